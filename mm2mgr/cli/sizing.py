"""How `size` goes about it: rates and deals together, sized, weighed against what stands in the reviewed file, written and said.

In: the tree, roll-ups of samples, brokers and workers. Out: overrides/sizing.yaml or only words, and an exit code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr import defaults
from mm2mgr.cli.carried import measured_capacities
from mm2mgr.cli.dealing import beating, deal_of, heartbeat_rates, listings, live_deals
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, say_json, talk
from mm2mgr.output.load_text import say_sizings
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.capacity import Line, MeasuredCapacity, by_evidence, by_hand, by_link
from mm2mgr.sizing.deal import Deal, Listing
from mm2mgr.sizing.growth import filled, levelled
from mm2mgr.sizing.load import Hours
from mm2mgr.sizing.stability import Before, Decision, Evidence, Policy, decide, settled
from mm2mgr.sizing.tasks import OVERLOADED, Bounds, Capacity, Now, Profile, Rules, Sizing, flow_load, size_load

if TYPE_CHECKING:
    from mm2mgr.sizing.growth import Growth
    from mm2mgr.throughput.rates import Statistic
    from mm2mgr.topology import Flow

TOO_SMALL = 2
_KAFKA_DEFAULTS = {
    "fetch.max.bytes": 52_428_800,
    "max.partition.fetch.bytes": 1_048_576,
    "buffer.memory": 33_554_432,
}
Rates = Mapping[str, Mapping[str, Mapping[TopicPartition, Hours]]]
"""Bytes per second in each hour by cluster, topic and partition: topics before partitions, so that a flow asks once for each."""


@dataclass(frozen=True)
class Measured:
    """Hours to plan with at today's level, the statistic that they are for, and the time that they are from.

    `profiles`: by cluster, what else was measured; `capacities`: by flow id, what one task was measured to carry.
    """

    rates: Rates
    window: str
    statistic: Statistic = "p95"
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    capacities: Mapping[str, MeasuredCapacity] = field(default_factory=dict)

    def profile(self, alias: str) -> Profile:
        """Return what else was measured of a cluster."""
        return self.profiles.get(alias) or Profile()


@dataclass(frozen=True)
class Wanted:
    """What the user asked `size` for; `window_seconds` None is the last four weeks."""

    store: Path
    flows: tuple[str, ...] = ()
    window_seconds: float | None = None
    statistic: Statistic = "p95"
    policy: Policy = field(default_factory=Policy)
    dry_run: bool = False
    check: bool = False
    output: str = "text"
    page: Path | None = None


def run_size(workspace: Workspace, wanted: Wanted) -> int:
    """Size the named flows and write the overrides file; flows whose source cannot be read keep what they have."""
    from mm2mgr.spec.sizing_file import read_sizing, sizing_path, sizing_target

    path, writes = sizing_path(workspace.files), not (wanted.dry_run or wanted.check)
    before = read_sizing(path)
    flows = workspace.flows(wanted.flows)
    if writes:
        sizing_target(path)  # refused now, not after minutes of work
    measured = read_rates(wanted.store, wanted.window_seconds, wanted.statistic)
    capacities = measured_capacities(workspace, wanted.store, flows, time.time_ns() // 1_000_000)
    measured = replace(measured, capacities=capacities)
    evidence, failures = _evidence(workspace, flows, measured)
    decisions = decide(evidence, _before(workspace), wanted.policy, int(time.time()))
    sizings = [settled(each, decisions[flow_id]) for flow_id, each in evidence.items()]
    _tell(flows, evidence, decisions, sizings, failures, wanted.output)
    if wanted.page:
        from mm2mgr.cli.paging import views_of_sizings, write_page

        views = views_of_sizings(wanted.store, flows, evidence, sizings, measured.rates)
        write_page(wanted.page, views, measured=f"{wanted.statistic} of {measured.window}")
    refused: tuple[str, ...] = ()
    if writes and sizings:
        source = f"{wanted.statistic} of {wanted.store}"
        document = _document(sizings, decisions, (measured.window, source))
        refused = _write(workspace, path, document, before)
    small = [one for one in sizings if one.now and one.now.verdict in OVERLOADED]
    if wanted.check and small:
        complain(f"too few tasks: {', '.join(one.flow_id for one in small)}", "mm2mgr size, then review and apply")
        return TOO_SMALL
    return 1 if failures or refused else 0


def read_rates(store: Path, window_seconds: float | None, statistic: Statistic) -> Measured:
    """Read the hours of a store's roll-ups, at today's level; without a rate, absent, not zero."""
    from mm2mgr.throughput.planning import hourly_rates

    found = hourly_rates(store, window_seconds, statistic)
    names, place = found.names, found.place
    filled(found.table, found.hours)
    topics = names.cluster[place] * max(1, len(names.topics)) + names.topic[place]
    growth: dict[str, dict[str, Growth]] = {}
    for number, grown in levelled(found.table, topics, found.hours).items():
        cluster, topic = divmod(number, max(1, len(names.topics)))
        growth.setdefault(names.clusters[cluster], {})[names.topics[topic]] = grown
    rates: dict[str, dict[str, dict[TopicPartition, Hours]]] = {}
    sizes: dict[str, dict[TopicPartition, float]] = {}
    columns = (names.cluster[place], names.topic[place], names.partition[place], found.record_bytes)
    for cluster, topic, partition, size, row in zip(*(column.tolist() for column in columns), found.table, strict=True):
        alias, one = names.clusters[cluster], TopicPartition(names.topics[topic], partition)
        rates.setdefault(alias, {}).setdefault(one.topic, {})[one] = row
        sizes.setdefault(alias, {})[one] = size
    profiles = {alias: Profile(of, growth.get(alias, {})) for alias, of in sizes.items()}
    window = f"{_text(found.first_ms / 1000)}/{_text(found.last_ms / 1000)}" if rates else "nothing measured"
    return Measured(rates, window, statistic, profiles)


def _evidence(
    workspace: Workspace, flows: Sequence[Flow], measured: Measured
) -> tuple[dict[str, Evidence], dict[str, str]]:
    """Return the sizing of each flow with the loads behind it, and the source clusters that could not be read."""
    found = listings({flow.source.alias: flow.source for flow in flows})
    failures = {alias: listing.message for alias, listing in found.items() if isinstance(listing, Mm2mgrError)}
    read = {alias: listing for alias, listing in found.items() if not isinstance(listing, Mm2mgrError)}
    readable = [flow for flow in flows if flow.source.alias in read]
    beats = beating(workspace.topology.flows)
    deals = {
        flow.id: deal_of(flow, read[flow.source.alias], flow.id in beats, live)
        for flow, live in zip(readable, live_deals(readable), strict=True)
    }
    return weigh(readable, deals, read, measured), failures


def weigh(
    flows: Sequence[Flow], deals: Mapping[str, Deal], read: Mapping[str, Listing], measured: Measured
) -> dict[str, Evidence]:
    """Size flows whose deals are known; no file and no network from here on."""
    unlisted = {alias: measured.rates.get(alias, {}).keys() - listing.partitions for alias, listing in read.items()}
    found = {}
    for flow in flows:
        deal, alias = deals[flow.id], flow.source.alias
        topics = {one.topic for one in deal.order} | {topic for topic in unlisted[alias] if flow.carries(topic)}
        by_topic = measured.rates.get(alias, {})
        rates = {one: rate for topic in topics for one, rate in by_topic.get(topic, {}).items()} | heartbeat_rates(deal)
        rules = rules_of(flow, measured.capacities.get(flow.id), measured.statistic)
        found[flow.id] = evidence_of(flow, deal, rates, rules, measured.profile(alias))
    return found


def evidence_of(
    flow: Flow, deal: Deal, rates: Mapping[TopicPartition, Hours], rules: Rules, profile: Profile
) -> Evidence:
    """Size one flow from the hours of its partitions."""
    resolved = flow_load(deal, rates, rules, profile)
    now = Now(int(flow.tasks.maximum), not flow.tasks.automatic)
    return Evidence(size_load(flow.id, resolved, rules, now), resolved.load, rules.bounds, deal.order)


def rules_of(flow: Flow, measured: MeasuredCapacity | None, statistic: Statistic) -> Rules:
    """Return what a flow is sized by, `measured` being what one of its tasks was seen to carry.

    A task that was measured carried the records there are, whatever their size: then only a written record capacity counts.
    """
    tasks, capacity = flow.settings.tasks, capacity_of(flow, measured)
    was_measured = measured is not None and capacity is measured.capacity
    is_written = flow.origin("tasks", "record_capacity").kind != "default"
    records = tasks.record_capacity if is_written or not was_measured else inf
    capacity = replace(capacity, records_per_second=records)
    bounds = Bounds(tasks.min, tasks.limit, tasks.partition_limit)
    return Rules(capacity, bounds, tasks.default_rate, statistic)


def capacity_of(flow: Flow, measured: MeasuredCapacity | None = None) -> Capacity:
    """Return what one task of the flow carries: as people wrote it, else as measured, else what the declared link allows,
    else the default.
    """
    tasks = flow.settings.tasks
    declared = Capacity(tasks.capacity, tasks.threshold)
    if flow.origin("tasks", "capacity").kind != "default":
        return by_hand(declared, measured)
    return by_evidence(measured, _by_link(flow, declared))


def _by_link(flow: Flow, declared: Capacity) -> Capacity:
    if flow.link is None:
        return declared
    fetch = client_number(flow.client("source_consumer"), "fetch.max.bytes")
    line = Line(flow.link.rtt, flow.link.bandwidth, defaults.BROKER_WINDOW_BYTES, fetch)
    return by_link(line, declared)


def client_number(client: Mapping[str, str], key: str) -> int:
    """Return a setting of a client as a number: Kafka's own default where the tree drops mm2mgr's or writes a placeholder."""
    text = client.get(key, "")
    return int(text) if text.isdecimal() else _KAFKA_DEFAULTS[key]


def _before(workspace: Workspace) -> dict[str, Before]:
    """Return what the reviewed files say; a time that cannot be read counts as none."""
    sizing = workspace.spec.tree.sizing
    return {flow_id: Before(sized.tasks_max, _seconds(sized.changed)) for flow_id, sized in sizing.items()}


def _seconds(text: str | None) -> int | None:
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if when is None:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def _tell(
    flows: Sequence[Flow],
    evidence: Mapping[str, Evidence],
    decisions: Mapping[str, Decision],
    sizings: Sequence[Sizing],
    failures: Mapping[str, str],
    output: str,
) -> None:
    if output == "json":
        more = {
            flow_id: {"needed_tasks": each.sizing.tasks, "moved_partitions": decisions[flow_id].moved_partitions}
            for flow_id, each in evidence.items()
        }
        rows = [{**sizing.to_dict(), **more[sizing.flow_id]} for sizing in sizings]
        say_json({"sizings": rows, "failures": dict(failures)})
    else:
        say_sizings(sizings, {flow.id: flow.tasks for flow in flows})
    for message in failures.values():
        complain(f"{message}; its flows are not sized", "their entries stay as they are")


def _document(
    sizings: Sequence[Sizing], decisions: Mapping[str, Decision], texts: tuple[str, str]
) -> Mapping[str, Mapping[str, object]]:
    from mm2mgr.sizing.overrides import overrides_document

    since = {flow_id: decision.changed_seconds for flow_id, decision in decisions.items()}
    changed = {flow_id: _text(seconds) for flow_id, seconds in since.items() if seconds is not None}
    entries: Mapping[str, Mapping[str, object]] = overrides_document(sizings, *texts, changed)["sizing"]
    return entries


def _write(
    workspace: Workspace,
    path: Path,
    entries: Mapping[str, Mapping[str, object]],
    before: Mapping[str, Mapping[str, object]],
) -> tuple[str, ...]:
    """Write the entries; return the flows that somebody else changed meanwhile."""
    from mm2mgr.spec.sizing_file import write_sizing

    written = write_sizing(path, entries, {flow.id for flow in workspace.topology.flows}, before, talk)
    if written.changed or not written.refused:
        talk(f"{path} {'written: review it, then plan' if written.changed else 'is up to date'}")
    if written.refused:
        message = f"{path}: not written for {', '.join(written.refused)}: the entries changed while size was at work"
        complain(message, "look at what others wrote, then run size again")
    return written.refused


def _text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"

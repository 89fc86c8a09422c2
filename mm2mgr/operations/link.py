"""`link read`: what the brokers of each cluster allow, written to overrides/brokers.yaml for review.

`link probe`: round trip and bandwidth between two clusters, as measured from this machine, as an entry of `links:`.

`link explain`: what flows carry over their links, by the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from statistics import median

from mm2mgr.check.needs import Entry, ask_brokers
from mm2mgr.errors import KafkaError, Mm2mgrError, SpecError
from mm2mgr.files import read_regular
from mm2mgr.formats.text_edits import NotEditable, StructuredText
from mm2mgr.kafka.bandwidth import Transfer, TransferLimits, read_rate, write_rate
from mm2mgr.kafka.inspection import BrokerAddress
from mm2mgr.kafka.wire import RoundTrip, round_trips
from mm2mgr.link import PAYLOAD_SHARE, BrokerLimits, FlowTraffic, window
from mm2mgr.link_forecast import LinkComparison, compare
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.reach import Limits
from mm2mgr.live.rights import Brokers
from mm2mgr.live.snapshot import ask
from mm2mgr.operations.fix import Fixes
from mm2mgr.operations.workspace import Workspace
from mm2mgr.spec.files import BROKERS, merge, override_target
from mm2mgr.spec.models import Link
from mm2mgr.spec.places import PathKey
from mm2mgr.text import nearest, rate_text
from mm2mgr.topology import KafkaCluster, Topology


@dataclass(frozen=True)
class BrokersReport:
    """What `link read` read: by cluster its entry of overrides/brokers.yaml. `failures`: clusters that could not be
    read, with why.

    `remarks`: what a reviewer should know, such as brokers that differ. `diff`: what changes in the file. `is_changed`:
    it was written; `refused`: clusters whose entries were changed meanwhile.
    """

    entries: Mapping[str, Entry]
    failures: Mapping[str, str]
    remarks: tuple[str, ...]
    path: Path
    diff: tuple[str, ...] = ()
    is_changed: bool = False
    refused: tuple[str, ...] = ()
    json_keys = "clusters=entries failures remarks file=path diff written=is_changed"


def link_read(
    workspace: Workspace,
    clusters: Sequence[str] = (),
    *,
    write: bool = True,
    timeout_seconds: float = 20.0,
    notify: Callable[[str], None] = lambda _: None,
) -> BrokersReport:
    """Ask the brokers of the named clusters, or of all, what they allow, and write overrides/brokers.yaml.

    Clusters that could not be read keep their entries. Mm2mgrError when the file cannot be written.
    """
    topology = workspace.topology
    chosen = [known_cluster(topology, alias) for alias in clusters] or list(topology.clusters.values())
    path = BROKERS.path(workspace.files, write=write)
    if write:
        override_target(path)
    before = BROKERS.read(path)
    limits = Limits(kafka_seconds=timeout_seconds, kafka_at_once=16, is_total=True)
    answers = workspace.ask(ask_brokers(topology, chosen), limits)
    entries = {
        alias: _keep_date(entry, before.get(alias, {})) for alias, entry in answers.entries(topology, before).items()
    }
    aliases = topology.clusters.keys()
    after = merge(before, entries, aliases, before)
    old, new = (BROKERS.text(limits_of).splitlines() if limits_of else [] for limits_of in (before, after))
    diff = tuple(unified_diff(old, new, str(path), str(path), lineterm="")) if entries else ()
    report = BrokersReport(entries, answers.failures, tuple(answers.remarks), path, diff)
    if not (write and entries):
        return report
    is_changed, refused = BROKERS.write(path, entries, aliases, before, notify)
    return replace(report, is_changed=is_changed, refused=refused)


def known_cluster(topology: Topology, alias: str) -> KafkaCluster:
    """Return a cluster by its alias."""
    if alias in topology.clusters:
        return topology.clusters[alias]
    near = nearest(alias, topology.clusters)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(topology.clusters))}"
    raise Mm2mgrError(f"no cluster '{alias}' in the tree", hint=hint)


def _keep_date(entry: Entry, before: Mapping[str, object]) -> Entry:
    """Keep the day of an entry that is as it was, so that the file changes only where brokers did."""
    same = {key: value for key, value in before.items() if key != "since"} == entry
    since = before.get("since") if same else None
    return {**entry, "since": since or datetime.now(UTC).date().isoformat()}


# --- probe ------------------------------------------------------------------------------------------------------------

# This machine is beside a cluster whose round trip is a small part of the other's, or as short as that.
_BESIDE_SHARE, _BESIDE_SECONDS = 0.2, 0.002
_WINDOW_SHARE = 0.7  # so much of what brokers' buffers let through means that these, not the link, were the limit


@dataclass(frozen=True)
class ProbedEnd:
    """The brokers of one cluster as this machine reaches them."""

    cluster: str
    brokers: tuple[RoundTrip, ...]
    json_keys = "cluster seconds brokers"

    @property
    def measured_seconds(self) -> list[float]:
        """The round trip to each broker that could be measured."""
        return sorted(trip.seconds for trip in self.brokers if trip.seconds is not None)

    @property
    def seconds(self) -> float:
        """The median over its brokers."""
        return median(self.measured_seconds)


@dataclass(frozen=True)
class LinkProbe:
    """What was measured from this machine to both ends. `verdict`: what that says about the link between them.

    `entry`: the entry of `links:`, None where this machine is beside neither end. `diff`: how the tree changes with it.
    """

    ends: tuple[ProbedEnd, ProbedEnd]
    verdict: str
    entry: Entry | None = None
    transfer: Transfer | None = None
    remarks: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    written: bool = False
    json_keys = "ends verdict remarks transfer entry diff written"

    @property
    def far(self) -> ProbedEnd:
        """The end that is farther away."""
        return max(self.ends, key=lambda end: end.seconds)


def link_probe(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    first: str,
    second: str,
    *,
    topic: str = "",
    temporary_topic: bool = False,
    limits: TransferLimits | None = None,
    write: bool = False,
    timeout_seconds: float = 10.0,
    notify: Callable[[str], None] = lambda _: None,
) -> LinkProbe:
    """Measure the round trip to every broker of two clusters, and the bandwidth to the far one where a topic says how.

    `topic`: read it; `temporary_topic`: write to one that is deleted afterwards. `write` puts the entry into the tree.
    KafkaError when an end does not answer.
    """
    topology = workspace.topology
    clusters = [known_cluster(topology, alias) for alias in (first, second)]
    if first == second:
        raise Mm2mgrError(f"a link from '{first}' to itself", hint="name two clusters")
    snapshot = workspace.ask(
        ask([Brokers(first), Brokers(second)]), Limits(kafka_seconds=timeout_seconds, is_total=True)
    )
    brokers = [snapshot[Brokers(alias)] for alias in (first, second)]
    with ThreadPoolExecutor(2) as threads:
        near, far = threads.map(_probe, clusters, brokers, (timeout_seconds, timeout_seconds))
    probe = judge_probe(near, far)
    if probe.entry is not None and (topic or temporary_topic):
        notify(f"measuring the bandwidth between this machine and {probe.far.cluster}")
        bounds, end = limits or TransferLimits(), topology.clusters[probe.far.cluster]
        access = kafka_access(end)
        moved = read_rate(access, topic, bounds) if topic else write_rate(access, str(topology.owner), bounds)
        probe = with_bandwidth(probe, moved, end.limits, reading=bool(topic))
    if probe.entry is None:
        return probe
    changed = declare_link(workspace, probe.entry)
    if write and changed.new:
        changed.write()
    return replace(probe, diff=tuple(changed.diff), written=write and bool(changed.new))


def _probe(cluster: KafkaCluster, brokers: Sequence[BrokerAddress], timeout_seconds: float) -> ProbedEnd:
    end = ProbedEnd(cluster.alias, round_trips(kafka_access(cluster), brokers, timeout_seconds))
    if not end.measured_seconds:
        reasons = "; ".join(f"{trip.broker}: {trip.problem}" for trip in end.brokers)
        raise KafkaError(f"{cluster.alias}: no broker took a connection: {reasons}")
    return end


def judge_probe(first: ProbedEnd, second: ProbedEnd) -> LinkProbe:
    """Return what round trips from here to both ends say about the link between them."""
    near, far = sorted((first, second), key=lambda end: end.seconds)
    ends = (first, second)
    remarks = tuple(
        f"{end.cluster}, {trip.broker}: {trip.problem}" for end in ends for trip in end.brokers if trip.problem
    )
    if near.seconds > max(_BESIDE_SHARE * far.seconds, _BESIDE_SECONDS):
        least, most = milliseconds(far.seconds - near.seconds), milliseconds(far.seconds + near.seconds)
        away = f"this machine is beside neither end, so run the probe beside {near.cluster} or {far.cluster}"
        return LinkProbe(ends, f"the link is between {least} and {most}: {away}", remarks=remarks)
    verdict = f"the link is about {milliseconds(far.seconds)}: this machine is beside {near.cluster}"
    if far.seconds <= _BESIDE_SECONDS:
        verdict += f" and {far.cluster}, and so short a link needs no entry"
    rtt = milliseconds(far.seconds).replace(" ", "")
    return LinkProbe(ends, verdict, {"between": [first.cluster, second.cluster], "rtt": rtt}, remarks=remarks)


def with_bandwidth(probe: LinkProbe, moved: Transfer, limits: BrokerLimits, *, reading: bool) -> LinkProbe:
    """Add a measured bandwidth to the entry, unless the brokers' socket buffers were the limit."""
    entry = dict(probe.entry or {})
    if moved.rewinds > moved.connections:
        times = f"{moved.rewinds / moved.connections:.0f} times"
        remark = f"the topic is small and was read {times}; a larger one loads the link better"
        probe = replace(probe, remarks=(*probe.remarks, remark))
    carried = f"{rate_text(moved.bytes_per_second)} over {moved.connections} connections"
    key = "socket.send.buffer.bytes" if reading else "socket.receive.buffer.bytes"
    buffer = limits.send_buffer_bytes if reading else limits.receive_buffer_bytes
    let_through = moved.connections * window("source" if reading else "target", buffer) / probe.far.seconds
    if moved.bytes_per_second >= _WINDOW_SHARE * let_through:
        limit = f"{carried} is what {key} of {probe.far.cluster} lets through"
        remark = f"{limit}, so the link may carry more: measure with more --connections"
        return replace(probe, transfer=moved, remarks=(*probe.remarks, remark))
    bandwidth = f"{float(f'{moved.bytes_per_second * 8 / PAYLOAD_SHARE / 1e6:.2g}'):g}Mbit/s"
    return replace(probe, transfer=moved, entry=entry | {"bandwidth": bandwidth})


def milliseconds(seconds: float) -> str:
    """Write a round trip as the tree has it, with a blank before the unit: whole milliseconds from 10 on, else with one
    digit."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 10 else f"{max(value, 0.1):.1f} ms"


def declare_link(workspace: Workspace, entry: Entry) -> Fixes:
    """Return how the files of the tree change when `links:` has this entry; all other lines stay as they are."""
    spec, pair = workspace.spec, set(entry["between"])
    index = next((number for number, link in enumerate(spec.tree.links) if set(link.between) == pair), None)
    old: dict[str, bytes] = {}
    new: dict[str, bytes] = {}
    by_hand = f"write it by hand: links: [{{between: [{', '.join(entry['between'])}], rtt: {entry['rtt']}}}]"
    try:
        path: PathKey = ("clusters",) if index is None and ("links",) not in spec.places else ("links",)
        place = spec.place(*path) if index is None else spec.place("links", index, "rtt")
        old[place.file] = read_regular(Path(place.file))
        text = StructuredText(old[place.file].decode())
        if index is not None:
            at = text.ending(("rtt",), place.line)
            there = spec.raw["links"][index]
            for key in entry.keys() - {"between"} if at else ():
                if there.get(key) != entry[key]:
                    text.set((*at[:-1], key), entry[key])
        elif path == ("links",):
            text.append((text.document(path) or 0, "links"), dict(entry))
        else:
            text.set((text.document(path) or 0, "links"), [dict(entry)])
        new[place.file] = text.result().encode()
        links = replace(workspace, contents=new).spec.tree.links
    except (OSError, UnicodeDecodeError, NotEditable, SpecError) as error:
        raise Mm2mgrError(f"the tree cannot be edited: {error}", hint=by_hand) from error
    others, others_before = ([link for link in tree if set(link.between) != pair] for tree in (links, spec.tree.links))
    rtts = [link.rtt for link in links if set(link.between) == pair]
    if others != others_before or rtts != [Link.model_validate(dict(entry)).rtt]:
        raise Mm2mgrError(f"{place.file}: the entry cannot be put in without changing others", hint=by_hand)
    return Fixes(old, {} if new == old else new, (), ())


def link_explain(
    workspace: Workspace, name: str, *, partitions: int | None = None, record_bytes: float = 1024.0
) -> tuple[LinkComparison, ...]:
    """Forecast the flows of a pair `A->B`, or those of a name or id, over their link; no cluster is asked.

    `partitions`: of each flow, by default one for each of its tasks. Mm2mgrError where no flow of that name crosses a
    link.
    """
    chosen = [(flow, flow.route) for flow in workspace.topology.select(name)]
    crossing = [(flow, route) for flow, route in chosen if route is not None]
    if not crossing:
        pair = chosen[0][0].pair
        entry = f"links: - {{between: [{pair.replace('->', ', ')}], rtt: 80ms}}"
        hint = f"declare its round trip: {entry}; `mm2mgr link probe` measures it"
        raise Mm2mgrError(f"no link is declared for {pair}", hint=hint)
    forecasts = []
    for flow, route in crossing:
        tasks = int(flow.tasks.maximum)
        traffic = FlowTraffic(partitions or tasks, min(tasks, partitions or tasks), record_bytes)
        forecasts.append(compare(flow, route, traffic))
    return tuple(forecasts)

"""What would be if: other traffic, a source less, a topic in another flow, a target more, another limit.

In go the flows as cases and a change, out come the cases after it, sized and placed by the code that `size` and `fleet` use.
A change makes new cases and never alters one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.deal import Deal, Listing, predict
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, Failover, FlowRun, Need, Worker, need
from mm2mgr.sizing.load import Hours, Load
from mm2mgr.sizing.tasks import Now, Profile, Rules, Sizing, flow_load, size_load

Carries = Callable[[str], bool]


@dataclass(frozen=True)
class Case:
    """One flow with all that its size depends on.

    `listing`: the topics of its source; `carries`: which topics its connector deals; `rates`: bytes per second by partition
    and hour; `record_bytes`: mean size (None: not measured); `now`: what the tree has (None: a new flow); `profile`: what else
    was measured of its source.
    """

    name: str
    source: str
    target: str
    connect: str
    listing: Listing
    carries: Carries
    deal: Deal
    rates: Mapping[TopicPartition, Hours]
    rules: Rules
    buffers: Buffers
    now: Now | None = None
    record_bytes: float | None = None
    profile: Profile = field(default_factory=Profile)

    @property
    def pair(self) -> str:
        """`source->target`."""
        return f"{self.source}->{self.target}"

    @property
    def flow_id(self) -> str:
        """`name:source->target`."""
        return f"{self.name}:{self.pair}"

    def dealing(self, carries: Carries, rates: Mapping[TopicPartition, Hours]) -> Case:
        """Return the case with other topics: what its connector would then deal is predicted."""
        return replace(self, carries=carries, rates=rates, deal=predict(self.listing, carries))

    def without(self, topic: str) -> Case:
        """Return the case without one of its topics."""
        kept = {one: rate for one, rate in self.rates.items() if one.topic != topic}
        return self.dealing(lambda name: name != topic and self.carries(name), kept)


@dataclass(frozen=True)
class Machines:
    """The workers of one Connect cluster: what one carries, how many there are (None: not declared), side tasks for each pair,
    and what decides how long the tasks of a lost one stop."""

    worker: Worker = field(default_factory=Worker)
    count: int | None = None
    side_tasks: Mapping[str, int] | None = None
    failover: Failover = field(default_factory=Failover)


@dataclass(frozen=True)
class Outcome:
    """What comes of a set of cases: a sizing by flow, and load and need by Connect cluster."""

    sizings: Mapping[str, Sizing]
    loads: Mapping[str, ConnectLoad]
    needs: Mapping[str, Need]


def outcome(cases: Iterable[Case], machines: Mapping[str, Machines]) -> Outcome:
    """Size every case and put it on its Connect cluster; a cluster without cases needs nothing and is absent."""
    sizings: dict[str, Sizing] = {}
    runs: dict[str, list[FlowRun]] = {}
    pairs: dict[str, set[str]] = {}
    for case in cases:
        resolved = flow_load(case.deal, case.rates, case.rules, case.profile)
        sizing = size_load(case.flow_id, resolved, case.rules, case.now)
        sizings[case.flow_id] = sizing
        runs.setdefault(case.connect, []).append(flow_run(case, sizing, resolved.load))
        pairs.setdefault(case.connect, set()).add(case.pair)
    loads = {name: _load(name, found, pairs[name], machines.get(name, Machines())) for name, found in runs.items()}
    return Outcome(sizings, loads, {name: need(load) for name, load in loads.items()})


def with_workers_seen(found: Outcome, counts: Mapping[str, int]) -> Outcome:
    """Judge by the workers seen at work where the tree declares no number."""
    loads = {name: replace(load, today=load.today or counts.get(name) or None) for name, load in found.loads.items()}
    return Outcome(found.sizings, loads, {name: need(load) for name, load in loads.items()})


def flow_run(case: Case, sizing: Sizing, load: Load) -> FlowRun:
    """Return a sized flow as its Connect cluster runs it: people's own number where they wrote one, else the recommended."""
    partitions, limit = max(1, len(case.deal.order)), case.rules.bounds.limit
    tasks = min(case.now.tasks if case.now and case.now.by_hand else sizing.tasks, partitions)
    most = max(tasks, min(partitions, limit or partitions))
    records = load.total / case.record_bytes if case.record_bytes else None
    capacity = case.rules.capacity.bytes_per_second
    return FlowRun(case.flow_id, case.pair, load, tasks, most, capacity, case.buffers, records)


def with_traffic(cases: Iterable[Case], factor: float) -> tuple[Case, ...]:
    """Multiply every rate, the default for what was never measured too."""
    return tuple(
        replace(
            case,
            rates={one: rate * factor for one, rate in case.rates.items()},
            rules=replace(case.rules, default_bytes_per_second=case.rules.default_bytes_per_second * factor),
        )
        for case in cases
    )


def without_source(cases: Iterable[Case], alias: str) -> tuple[Case, ...]:
    """Take out the flows that read from a cluster."""
    return tuple(case for case in cases if case.source != alias)


def with_topic_moved(cases: Collection[Case], topic: str, flow_ids: Collection[str]) -> tuple[Case, ...]:
    """Give a topic to the named flows and take it from the other flows of their pairs; partitions and rates go with it.

    A named flow whose pair has no other flow with the topic is left as it is.
    """
    takers = {case.pair for case in cases if case.flow_id in flow_ids}
    givers = {
        case.pair: case
        for case in cases
        if case.pair in takers and case.flow_id not in flow_ids and case.carries(topic)
    }

    def changed(case: Case) -> Case:
        giver = givers.get(case.pair)
        if giver is None:
            return case
        if case.flow_id in flow_ids:
            gained = {one: rate for one, rate in giver.rates.items() if one.topic == topic}
            return case.dealing(lambda name: name == topic or case.carries(name), {**case.rates, **gained})
        if not case.carries(topic):
            return case
        return case.without(topic)

    return tuple(changed(case) for case in cases)


def with_topic_split(cases: Collection[Case], topic: str, name: str) -> tuple[Case, ...]:
    """Give a topic a flow of its own, with the rules of the flow that carries it now, on every pair where one does.

    Where a pair has a flow of that name, from an earlier split, that one takes the topic too.
    """
    there = {case.pair: case.flow_id for case in cases if case.name == name}
    found: list[Case] = []
    for case in with_topic_moved(cases, topic, there.values()):
        if case.name == name or not case.carries(topic):
            found.append(case)
            continue
        found.append(case.without(topic))
        if case.pair not in there:
            own = {one: rate for one, rate in case.rates.items() if one.topic == topic}
            made = replace(case, name=name, now=None).dealing(lambda other: other == topic, own)
            there[case.pair] = made.flow_id
            found.append(made)
    return tuple(found)


def with_target(cases: Collection[Case], alias: str, connect: str, names: Collection[str]) -> tuple[Case, ...]:
    """Mirror the declared flows of these names to one target more, once from each of their sources.

    The new flows have the topics and rules of the ones they are made from; nothing is known of the way to the new target.
    """
    there = {(case.name, case.pair) for case in cases}
    new: dict[tuple[str, str], Case] = {}
    for case in cases:
        pair = f"{case.source}->{alias}"
        if case.name in names and case.source != alias and (case.name, pair) not in there:
            made = replace(case, target=alias, connect=connect, now=None).dealing(case.carries, case.rates)
            new.setdefault((case.name, pair), made)
    return (*cases, *new.values())


def with_limit(cases: Iterable[Case], flow_ids: Collection[str], limit: int) -> tuple[Case, ...]:
    """Bound the tasks of the named flows; a number written by hand is bounded too."""
    return tuple(_limited(case, limit) if case.flow_id in flow_ids else case for case in cases)


def _load(name: str, runs: Iterable[FlowRun], pairs: Collection[str], machines: Machines) -> ConnectLoad:
    known = machines.side_tasks or {}
    side = sum(known.get(pair, 2) for pair in pairs)  # a pair has a checkpoint and a heartbeat connector unless told
    return ConnectLoad(name, machines.worker, tuple(runs), side, machines.count, machines.failover)


def _limited(case: Case, limit: int) -> Case:
    now = replace(case.now, tasks=min(case.now.tasks, limit)) if case.now else None
    return replace(case, now=now, rules=replace(case.rules, bounds=replace(case.rules.bounds, limit=limit)))

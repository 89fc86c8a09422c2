"""`read`: all that sizing needs of a workspace, read once and first. `size`, `fleet`, `simulate` and pages judge it.

Rates and task capacity come from the store, topics from the brokers, assignments and placement from Connect's workers,
rules, buffers and the workers there are from the tree. A cluster that does not answer is a value with its reason, not
an error. The changes that `simulate` is asked for stand here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from mm2mgr.assignment import Assignment, Defects
from mm2mgr.connectors import RunningConnector
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.evidence.measured import MeasuredRates, measured_capacities, read_rates, read_weeks
from mm2mgr.link import FlowTraffic
from mm2mgr.link_forecast import client_number, forecast_of
from mm2mgr.live.questions import ConnectorsWithStatuses, TaskConfigs, UserTopics
from mm2mgr.live.reach import Limits
from mm2mgr.partitions import Listing, Statistic, TopicPartition, listing_of
from mm2mgr.sizing import scenario as what_if
from mm2mgr.sizing.capacity import MeasuredCapacity, by_evidence, by_hand, by_link
from mm2mgr.sizing.fleet import Buffers, Failover, WorkerLimits
from mm2mgr.sizing.scenario import ConnectWorkers, Scenario, Week
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Prediction, Rules, predict_assignment
from mm2mgr.text import few, whole_number
from mm2mgr.topology import ConnectCluster, Flow, Topology, by_pair

if TYPE_CHECKING:
    from mm2mgr.connectors import Connector
    from mm2mgr.live.snapshot import Snapshot, Steps


@dataclass(frozen=True)
class Changes:
    """The changes of a scenario: names as they were typed."""

    traffic: float | None = None
    lost_sources: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    def notes(self, topology: Topology) -> list[str]:
        """Return what else, apart from load, argues against these changes. Lanes of a flow carry stored offsets."""

        def is_of_lanes(topic: str, name: str) -> bool:
            givers = {flow.whole_id for flow in topology.flows if flow.carries(topic)}
            return givers <= {flow.whole_id for flow in topology.flows if flow.is_meant(name)}

        topics = ", ".join(topic for topic, name in self.moves if not is_of_lanes(topic, name))
        note = (
            "a flow that takes a topic over from another one mirrors it from the start: plan blocks such a move of"
            f" {topics} (mirrored-already) where records have been mirrored, unless --allow mirror-again"
        )
        return [note] if topics else []

    @property
    def text(self) -> str:
        """What is changed, in words."""
        parts = [f"{alias} lost" for alias in self.lost_sources]
        parts += [f"{topic} moved to {flow}" for topic, flow in self.moves]
        targets = [target.rpartition("=") for target in self.targets]
        parts += [f"{alias} added" + (f" for {flow}" if flow else "") for flow, _, alias in targets]
        parts += [f"limit of {flow} {count}" for flow, count in self.limits]
        return ", ".join([*parts, *([f"traffic × {self.traffic:g}"] if self.traffic else [])])


def apply_changes(topology: Topology, scenarios: Sequence[Scenario], changes: Changes) -> tuple[Scenario, ...]:
    """Return the scenarios after all changes; Mm2mgrError for names that mean nothing here."""
    changed = tuple(scenarios)
    for alias in changes.lost_sources:
        sources = sorted({scenario.source for scenario in scenarios})
        if alias not in sources and any(flow.source.alias == alias for flow in topology.flows):
            hint = "run without --lose-source to see the remaining load"
            raise Mm2mgrError(f"'{alias}' could not be read, so its flows are not counted to begin with", hint=hint)
        if alias not in sources:
            raise Mm2mgrError(f"no flow reads from '{alias}'", hint=f"source clusters: {', '.join(sources) or 'none'}")
        changed = what_if.without_source(changed, alias)
    for topic, name in changes.moves:
        changed = _move_topic(topology, changed, topic, name)
    for target in changes.targets:
        changed = _add_target(topology, changed, target)
    for name, count in changes.limits:
        if not (count.isdecimal() and int(count) > 0):
            raise Mm2mgrError(f"'{count}' is not a number of tasks", hint=f"for instance --limit {name}=8")
        changed = what_if.with_limit(changed, _ids(topology, name, changed), int(count))
    return what_if.with_traffic(changed, changes.traffic) if changes.traffic else changed


def _ids(topology: Topology, name: str, scenarios: Sequence[Scenario] = ()) -> set[str]:
    """Return the ids that a name means, those of flows that a change has added too; Mm2mgrError where it means none."""
    added = {scenario.flow_id for scenario in scenarios if name in (scenario.name, scenario.pair, scenario.flow_id)}
    declared = {flow.id for flow in topology.flows if flow.is_meant(name)}  # with lanes
    return added | declared or {flow.id for flow in topology.select(name)}


def _move_topic(topology: Topology, scenarios: Sequence[Scenario], topic: str, name: str) -> tuple[Scenario, ...]:
    """Give a topic to the flows of this name, or to one more of this name where no flow has it."""
    carrying = [scenario for scenario in scenarios if scenario.carries(topic)]
    hint = "`mm2mgr throughput --by topic` names topics"
    if ":" not in name and "->" not in name and all(flow.name != name for flow in topology.flows):
        if not carrying:
            raise Mm2mgrError(f"no flow carries '{topic}'", hint=hint)
        return what_if.with_topic_split(scenarios, topic, name)
    takers = _ids(topology, name)
    takers = {flow.id for flow in topology.flows if flow.id in takers and flow.lane_of is None} or takers
    pairs = {scenario.pair for scenario in scenarios if scenario.flow_id in takers}
    if not any(scenario.pair in pairs and scenario.flow_id not in takers for scenario in carrying):
        hint = f"a topic is moved between flows of the same source and target; {hint}"
        raise Mm2mgrError(f"no other flow of {', '.join(sorted(pairs)) or name} carries '{topic}'", hint=hint)
    return what_if.with_topic_moved(scenarios, topic, takers)


def _add_target(topology: Topology, scenarios: Sequence[Scenario], text: str) -> tuple[Scenario, ...]:
    """Run the new flows where the tree would: on the Connect cluster of that Kafka, else on one that is new too."""
    name, _, alias = text.rpartition("=")
    names = {flow.name for flow in topology.select(name)} if name else {scenario.name for scenario in scenarios}
    near = [connect.name for connect in topology.connects.values() if connect.kafka == alias]
    changed = what_if.with_target(scenarios, alias, near[0] if len(near) == 1 else f"{alias} (new)", names)
    if len(changed) == len(scenarios):
        raise Mm2mgrError(f"these flows already go to '{alias}' or come from it", hint="name a target they do not have")
    return changed


Answer = TypeVar("Answer")
_LIMITS = Limits(connect_seconds=10.0, kafka_seconds=10.0, at_once=4, kafka_at_once=16)


Listings = Mapping[str, Listing | Mm2mgrError]
Running = Mapping[str, Mapping[str, RunningConnector] | Mm2mgrError]
"""What Connect clusters run, by their names, or why they could not be read."""
RunningFlows = Mapping[str, RunningConnector | str]
"""The running connector of each flow with its tasks, by the flow's id, or why there is none."""


def read_clusters(flows: Sequence[Flow]) -> Steps[tuple[Listings, Running, RunningFlows]]:
    """Return the topics of each source; for the flows whose source answers, what their Connect clusters run."""
    sources = dict.fromkeys(flow.source.alias for flow in flows)
    connects = dict.fromkeys(flow.connect.name for flow in flows)
    snapshot = yield [*map(UserTopics, sources), *map(ConnectorsWithStatuses, connects)]
    listings: dict[str, Listing | Mm2mgrError] = {}
    for alias in sources:
        topics = snapshot.get(UserTopics(alias))
        listings[alias] = topics if isinstance(topics, Mm2mgrError) else listing_of(topics)
    readable = [flow for flow in flows if not isinstance(listings[flow.source.alias], Mm2mgrError)]
    running = {flow.connect.name: snapshot.get(ConnectorsWithStatuses(flow.connect.name)) for flow in readable}
    there = [flow for flow in readable if isinstance(_connector(flow, running), RunningConnector)]
    snapshot = yield [TaskConfigs(flow.connect.name, flow.connector_name("source")) for flow in there]
    return listings, running, {flow.id: _with_tasks(flow, running, snapshot) for flow in readable}


def _connector(flow: Flow, running: Running) -> RunningConnector | str:
    connectors = running[flow.connect.name]
    if isinstance(connectors, Mm2mgrError):
        return f"Connect cluster '{flow.connect.name}' could not be read"
    return connectors.get(flow.connector_name("source"), "not created yet")


def _with_tasks(flow: Flow, running: Running, snapshot: Snapshot) -> RunningConnector | str:
    connector = _connector(flow, running)
    if isinstance(connector, str):
        return connector
    tasks = snapshot.get(TaskConfigs(flow.connect.name, connector.name))
    return replace(connector, tasks=Failure.from_error(tasks) if isinstance(tasks, Mm2mgrError) else tasks)


def current_prediction(
    listing: Listing,
    carries: Callable[[str], bool],
    running: RunningConnector | str,
    may_have: Callable[[str], bool] = lambda _: False,
) -> Prediction:
    """Return what to size with: what the tasks have now, whatever dealt it, of the partitions that the flow carries.

    Kafka's own class deals all of them again where they have changed, so then that is predicted; another class may hold
    partitions back, and is taken to leave all where they are. Tasks of workers before 4.0 `may_have` heartbeats too,
    which these give to each source connector (KIP-1089): they have a place in the order, and no load.
    """
    if isinstance(running, str):
        return predict_assignment(listing, carries, running)
    if not running.assignment.task_of:
        is_read = not isinstance(running.tasks, Failure)
        note = "the connector has no tasks yet" if is_read else "the tasks of the connector could not be read"
        return predict_assignment(listing, carries, note)
    now, is_stock = running.assignment, running.is_stock
    others = {topic for topic in now.topics if not carries(topic) and may_have(topic)}
    counts = {topic: count for topic, count in listing.partitions.items() if carries(topic) or topic in others}
    older, in_turn = running.older_tasks, now.is_round_robin
    tasks_max = _tasks_max(running)
    as_many = is_stock or tasks_max is None or len(now.tasks) == min(tasks_max, len(now.order))
    beats = frozenset(partition for partition in now.order if partition.topic in others)
    if in_turn and as_many and _has_just(now, counts):
        remarks = tuple(_remarks(older, Defects()))
        return Prediction(now.order, "live", running=now, in_turn=True, without_load=beats, remarks=remarks)
    carried = {TopicPartition(topic, number): None for topic, count in counts.items() for number in range(count)}
    defects = now.defects(carried, listing.partitions, running.is_held)
    remarks = tuple(_remarks(older, defects))
    if in_turn and is_stock:
        note = "the partitions of the running connector differ from those in Kafka"
        return replace(predict_assignment(listing, carries, note), running=now, in_turn=True, remarks=remarks)
    order = (*(partition for partition in now.order if partition in carried), *defects.unassigned, *defects.held)
    running_now = Assignment(tuple(tuple(p for p in partitions if p in carried) for partitions in now.tasks))
    there = beats.intersection(order)
    return Prediction(order, "live", "", running_now, tasks_max, without_load=there, remarks=remarks)


def _tasks_max(running: RunningConnector) -> int | None:
    """Return the tasks.max that its tasks run with."""
    configs = [] if isinstance(running.tasks, Failure) else [task.config for task in running.tasks]
    return whole_number(configs[0].get("tasks.max", ""), 9) if configs else None


def _has_just(assignment: Assignment, counts: Mapping[str, int]) -> bool:
    """Whether tasks have all partitions of these topics and no others."""
    assigned = Counter([partition.topic for partition in assignment.order])
    return assigned == counts and all(partition.partition < counts[partition.topic] for partition in assignment.order)


def _remarks(older: Mapping[int, Collection[str]], defects: Defects) -> Iterator[str]:
    if older:
        keys = sorted({key for differing in older.values() for key in differing})
        yield f"Still on an older config ({few(keys)}), so what they have may change: tasks {few([*map(str, older)])}."
    if defects.twice:
        names = [f"{partition} (tasks {few([*map(str, tasks)])})" for partition, tasks in defects.twice.items()]
        yield f"In more than one task, so that each record arrives more than once: {few(names)}."
    if defects.unassigned:
        yield f"In no task now, so that nothing is mirrored of them: {few([*map(str, defects.unassigned)])}."
    if defects.held:
        yield f"Held by the connector's assignment, in no task: {few([*map(str, defects.held)])}."
    if defects.gone:
        yield f"Still in tasks, although Kafka no longer has them: {few([*map(str, defects.gone)])}."
    if defects.idle:
        yield f"Tasks without a partition: {few([*map(str, defects.idle)])}."


class ExpandedTree(Protocol):
    """What is needed of a workspace: the expanded tree, connectors rendered from it, and answers of its clusters."""

    @property
    def topology(self) -> Topology: ...

    @property
    def connectors(self) -> Sequence[Connector]: ...

    @property
    def now(self) -> float: ...

    def ask(self, steps: Steps[Answer], limits: Limits) -> Answer: ...


@dataclass(frozen=True)
class Evidence:
    """All that sizing needs. `flows`: those whose source was read; `failures`: why not, of the other sources.

    `rates`, `listings` are by cluster, `running` by Connect cluster, others (`weeks`: for pages only) by flow id.
    """

    flows: tuple[Flow, ...]
    rates: MeasuredRates
    listings: Mapping[str, Listing] = field(default_factory=dict)
    running: Running = field(default_factory=dict)
    connectors: RunningFlows = field(default_factory=dict)
    capacities: Mapping[str, MeasuredCapacity] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    weeks: Mapping[str, Week] = field(default_factory=dict)

    def scenarios(self) -> tuple[Scenario, ...]:
        """Return each flow as it is today, with all that its size depends on."""
        unlisted = {
            alias: self.rates.by_cluster.get(alias, {}).keys() - listing.partitions
            for alias, listing in self.listings.items()
        }
        return tuple(self._scenario(flow, unlisted[flow.source.alias]) for flow in self.flows)

    def _scenario(self, flow: Flow, unlisted: set[str]) -> Scenario:
        """Return a flow as a scenario; measured topics that Kafka no longer lists are named, and not counted."""
        alias = flow.source.alias
        listing = self.listings[alias]
        prediction = current_prediction(
            listing, flow.assigns, self.connectors[flow.id], flow.selection.takes_heartbeats
        )
        prediction = replace(prediction, is_balanced=flow.settings.balance.by == "plugin")
        own = [partition for partition in prediction.order if partition not in prediction.without_load]
        topics = {partition.topic for partition in own} | {topic for topic in unlisted if flow.carries(topic)}
        # Heartbeats are not sampled: one record per second is no load.
        beats = {partition: 0.0 for partition in own if flow.selection.is_heartbeats(partition.topic)}
        return Scenario(
            flow.name,
            source=alias,
            target=flow.target.alias,
            connect=flow.connect.name,
            listing=listing,
            carries=flow.assigns,
            prediction=prediction,
            rates=self.rates.of_topics(alias, topics) | beats,
            rules=rules_of(flow, self.capacities.get(flow.id), self.rates.statistic),
            buffers=_buffers_of(flow),
            now=CurrentTasks(int(flow.tasks.maximum), not flow.tasks.automatic),
            profile=self.rates.profile(alias),
            own_limit=flow.settings.catch_up.limit if flow.settings.catch_up else None,
            link_limit=flow.link.catch_up.limit if flow.link and flow.link.catch_up else None,
            whole_id=flow.whole_id,
        )


@dataclass(frozen=True)
class EvidenceOptions:
    """Which measurements to plan with: the tables in `store`, their newest `window_seconds` (None: 4 weeks).

    `statistic` of them. `views`: read what pages show too; `ways`: compare ways to assign partitions, too. `notify`
    gets a sentence per damaged file that was left out.
    """

    store: str | Path
    window_seconds: float | None = None
    statistic: Statistic = "p95"
    views: bool = False
    ways: bool = False
    notify: Callable[[str], None] = lambda _: None


def read(workspace: ExpandedTree, options: EvidenceOptions, flows: Sequence[Flow] | None = None) -> Evidence:
    """Read the evidence for some flows, or all; the store, each Kafka cluster and each Connect cluster is asked once.

    Mm2mgrError when the store has no roll-ups; a cluster that does not answer is a failure in the result.
    """
    chosen, store = list(workspace.topology.flows if flows is None else flows), options.store
    rates = read_rates(store, options.window_seconds, options.statistic, chosen)
    by_flow = read_weeks(store, chosen) if options.views else {}
    now_ms = round(1000 * workspace.now)
    capacities = measured_capacities(lambda: workspace.connectors, store, chosen, now_ms, options.notify)
    answers, running, connectors = workspace.ask(read_clusters(chosen), _LIMITS)
    failures = {alias: listing.message for alias, listing in answers.items() if isinstance(listing, Mm2mgrError)}
    listings = {alias: listing for alias, listing in answers.items() if not isinstance(listing, Mm2mgrError)}
    readable = tuple(flow for flow in chosen if flow.source.alias in listings)
    return Evidence(readable, rates, listings, running, connectors, capacities, failures, by_flow)


# --- what the tree declares -------------------------------------------------------------------------------------------


def rules_of(flow: Flow, measured: MeasuredCapacity | None, statistic: Statistic) -> Rules:
    """Return the rules to size a flow by; `measured` is the capacity measured of one of its tasks.

    A measured task carried the records there are, whatever their size: then only a written record capacity counts.
    """
    tasks, capacity = flow.settings.tasks, capacity_of(flow, measured)
    was_measured = measured is not None and capacity is measured[0]
    is_written = flow.origin("tasks", "record_capacity").kind != "default"
    records = tasks.record_capacity if is_written or not was_measured else inf
    capacity = replace(capacity, records_per_second=records)
    bounds = Bounds(tasks.min, tasks.limit, tasks.partition_limit)
    return Rules(capacity, bounds, tasks.default_rate, statistic)


def capacity_of(flow: Flow, measured: MeasuredCapacity | None = None) -> Capacity:
    """Return what one task of the flow can carry: as written in the tree, measured, by its link, or the default."""
    tasks = flow.settings.tasks
    declared = Capacity(tasks.capacity, tasks.threshold)
    if flow.origin("tasks", "capacity").kind != "default":
        return by_hand(declared, measured)
    if flow.route is not None:  # of one partition: with more, a task may carry more, but not for a hot one
        declared = by_link(forecast_of(flow, flow.route, FlowTraffic()), flow.route, declared)
    return by_evidence(measured, declared)


def _buffers_of(flow: Flow) -> Buffers:
    """Return the buffer sizes of the flow's clients; a source whose brokers were not read is taken to have as many as
    addresses are declared.
    """
    fetch = client_number(flow, "source consumer", "fetch.max.bytes")
    of_partition = client_number(flow, "source consumer", "max.partition.fetch.bytes")
    waiting = client_number(flow, "record producer", "buffer.memory")
    limits = flow.source.limits
    brokers = limits.brokers if limits.read else len(flow.source.model.bootstrap_servers)
    return Buffers(fetch, of_partition, waiting, brokers, client_number(flow, "source consumer", "max.poll.records"))


def declared_workers(
    connects: Mapping[str, ConnectCluster], flows: Iterable[Flow], failover: Failover | None = None
) -> dict[str, ConnectWorkers]:
    """Return the workers that the tree declares, by Connect cluster, with the idle tasks of the pairs there."""
    idle: dict[str, dict[str, int]] = {name: {} for name in connects}
    for pair, of_pair in by_pair(flows).items():
        heartbeats = any(flow.with_heartbeats for flow in of_pair)
        checkpoints = any(flow.with_checkpoints for flow in of_pair)
        idle[of_pair[0].connect.name][pair] = heartbeats + checkpoints
    workers_of = {}
    for name, connect in connects.items():
        workers = connect.model.workers
        limits = WorkerLimits(workers.tasks_per_worker, workers.memory, workers.network)
        workers_of[name] = ConnectWorkers(limits, workers.count, idle[name], failover or Failover())
    return workers_of

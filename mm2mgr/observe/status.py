"""The entrance: read Connect and Kafka once, compare with what is remembered, and report; and acknowledge losses.

Connect is read before Kafka: an end offset read first would make a flow that moves look as if it were past the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.equivalence import WorkerClients
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.exactly_once import ASKED_CONFIG, supports_exactly_once
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import Connector, RunningConnector, with_statuses
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.live.kafka_state import KafkaState, ReadKafka, SeenKafka, WantedLogs, read_kafka
from mm2mgr.live.questions import (
    AnsweringWorker,
    Configs,
    ConfigValidation,
    ConnectorsWithStatuses,
    ConnectQuestion,
    SilentWorkers,
    Statuses,
    StoredOffsets,
    TaskConfigs,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, answered, read
from mm2mgr.live.snapshot import Snapshot, Steps, side_by_side
from mm2mgr.observe.companions import checkpointing
from mm2mgr.observe.health import Description, Remembered, Status, judge, lags_of
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.ledger import Acknowledgement, LossEntry, acknowledgement_of, named
from mm2mgr.observe.memory import Memory, remember
from mm2mgr.observe.problems import Patience
from mm2mgr.observe.reading import LiveConnector, Orphan, OtherConnector, Reading, SeenConnect, Standing
from mm2mgr.observe.state_file import (
    LossLedger,
    StorePlace,
    TimedLooks,
    change,
    is_due_to_share,
    join_shared,
    load,
    settle,
    share,
    state_file,
    timed_looks,
)
from mm2mgr.observe.surplus import doubtful
from mm2mgr.observe.topic_sync import COPIED
from mm2mgr.partitions import TopicPartition
from mm2mgr.render import CLASSES, OWNER_KEY, connectors_of
from mm2mgr.samples.schema import Store
from mm2mgr.secrets import cut
from mm2mgr.topology import Flow, Topology
from mm2mgr.truth.reach import type_of

_CLUSTERS_AT_ONCE = 32
_GROUPS_AT_MOST = 100  # of a checkpoint connector; a request each


@dataclass(frozen=True)
class ObserveOptions:
    """How to observe: clients, limits, the store with the table of losses, memory file (None: the owner's file in the state folder).

    `deadline_seconds` bounds each request to Connect with its retries. `earlier`: the last looks at settings and ACLs of topics and
    offsets of consumer groups, which are read again where that is due; None: nowhere. `shares`: whether points of lag go into the
    store every five minutes, so that the first look on another machine knows where a lag goes.
    """

    kafka: ReadKafka = read_kafka
    clock: Callable[[], float] = time.time
    deadline_seconds: float = 20.0
    patience: Patience = field(default_factory=Patience)
    memory_file: Path | None = None
    store: Store = Path(".mm2mgr/samples")
    earlier: TimedLooks | None = None
    shares: bool = False
    snapshot: Snapshot | None = None
    """Answers from a file, beside which no cluster is asked."""


async def read_estate(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], how: ObserveOptions
) -> Reading:
    """Read the chosen flows and nothing else; with all flows also every declared Connect cluster, for orphans.

    Nothing is raised for a cluster that does not answer: its failure is in the Reading.
    """
    limits = Limits(connect_seconds=how.deadline_seconds, kafka_at_once=_CLUSTERS_AT_ONCE)
    steps = reading_of(topology, connectors, flows, how)
    return (await answered(steps, Clusters.of(topology), limits, how.snapshot))[0]


def reading_of(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], how: ObserveOptions
) -> Steps[Reading]:
    """Return the same from answers."""
    begun_at, whole = how.clock(), len({flow.id for flow in flows}) == len(topology.flows)
    connectors = tuple(connectors)
    wanted: dict[str, list[Connector]] = {flow.connect.name: [] for flow in flows}
    if whole:
        wanted = {name: [] for name in (*wanted, *topology.connects)}
    for connector in connectors_of(connectors, flows):
        wanted[connector.connect].append(connector)
    seen = yield from side_by_side(
        *(_read_connect(topology, name, each, how, orphans=whole) for name, each in wanted.items())
    )
    reading = Reading(how.clock(), tuple(flows), {connect.name: connect for connect in seen}, {}, whole, begun_at)
    declared = {(connector.connect, connector.name) for connector in connectors}
    reading = replace(reading, declared=topology.flows, connects=_without(declared, reading.connects))
    if how.earlier:
        reading = replace(reading, copied_asked=frozenset(_due(reading, how.earlier)))
    reading = replace(reading, clusters=(yield from _read_clusters(reading, how.kafka)))
    reading = yield from _with_later_ends(reading, how)
    return replace(reading, taken_at=how.clock())


def _due(reading: Reading, earlier: TimedLooks) -> Iterator[tuple[str, str]]:
    """Yield what is to be read again of the topics of which flows."""
    for kind, copied in COPIED.items():
        for flow in reading.flows:
            seen, look = reading.source_connector(flow), earlier.copied.get(kind, {}).get(flow.id)
            sync = copied.sync(seen) if seen else None
            if sync and sync.is_due(look.asked_at if look else None, reading.taken_at):
                yield kind, flow.id


# --- Connect ----------------------------------------------------------------------------------------------------------


def _read_connect(
    topology: Topology, name: str, wanted: Sequence[Connector], how: ObserveOptions, *, orphans: bool
) -> Steps[SeenConnect]:
    connect, owners = topology.connects[name], Ownership.of(topology)
    snapshot = yield [Configs(name), Statuses(name)]
    try:
        statuses = snapshot[Statuses(name)]
        connectors = with_statuses(snapshot[Configs(name)], statuses)
    except Mm2mgrError as error:
        return SeenConnect(name, failure=Failure.from_error(error))
    shown = [LiveConnector(one, connectors.get(one.name)) for one in wanted]
    busy = SilentWorkers(name, tuple(sorted({worker for one in statuses.values() for worker in one.workers})))
    validation = ConfigValidation.from_config(name, ASKED_CONFIG)
    asked = [validation] if any(one.type == "source" for one in wanted) else []
    more = [question for one in shown for question in _more(one, how)]
    snapshot = yield [AnsweringWorker(name), busy, *asked, *more]
    root, silent, validated = snapshot.get(AnsweringWorker(name)), snapshot.get(busy), snapshot.get(validation)
    version = "" if isinstance(root, Mm2mgrError) else root.version
    workers = WorkerClients(version or connect.model.version or "", topology.clusters[connect.kafka].client)
    adopted = {one for one, there in connectors.items() if owners.is_adopted((name, one), there.config)}
    seen = (_with_more(one, snapshot, how) for one in shown)
    return SeenConnect(
        name,
        {one.desired.name: replace(one, adopted=workers if one.desired.name in adopted else None) for one in seen},
        kafka_cluster_id="" if isinstance(root, Mm2mgrError) else root.kafka_cluster_id,
        orphans=tuple(_orphans(name, {one.name for one in wanted}, owners, connectors)) if orphans else (),
        silent_workers=frozenset() if isinstance(silent, Mm2mgrError) else silent,
        others=tuple(_others(name, owners, connectors)),
        version=version,
        exactly_once=None if isinstance(validated, Mm2mgrError) else supports_exactly_once(validated),
    )


async def read_states(
    topology: Topology, connectors: Iterable[Connector], deadline_seconds: float
) -> tuple[SeenConnect, ...]:
    """Read configs and states of connectors, and no more: one request per Connect cluster, side by side. Nothing is raised."""
    wanted: dict[str, list[Connector]] = {}
    for connector in connectors:
        wanted.setdefault(connector.connect, []).append(connector)
    limits = Limits(connect_seconds=deadline_seconds)
    snapshot = await read(map(ConnectorsWithStatuses, wanted), Clusters.of(topology), limits)

    def seen(name: str, declared: Iterable[Connector]) -> SeenConnect:
        answer = snapshot.get(ConnectorsWithStatuses(name))
        if isinstance(answer, Mm2mgrError):
            return SeenConnect(name, failure=Failure.from_error(answer))
        live = (LiveConnector(each, answer.get(each.name)) for each in declared)
        return SeenConnect(name, {each.desired.name: each for each in live})

    return tuple(seen(name, declared) for name, declared in wanted.items())


def _orphans(
    connect: str,
    wanted: Collection[str],
    owners: Ownership,
    connectors: Mapping[str, RunningConnector],
) -> Iterator[Orphan]:
    """Yield connectors that are the owner's and not declared, by name."""
    types = {name: kind for kind, name in CLASSES.items()}
    for name, there in sorted(connectors.items()):
        config, status = there.config, there.status
        if name in wanted or not owners.is_ours((connect, name), config):
            continue
        pair = f"{config.get('source.cluster.alias', '?')}->{config.get('target.cluster.alias', '?')}"
        kind = types.get(config.get("connector.class", ""), "source")
        yield Orphan(connect, name, kind, pair, cut(config.get("topics", "")), status.state if status else "no status")


def _without(declared: Collection[Named], connects: Mapping[str, SeenConnect]) -> dict[str, SeenConnect]:
    """Return the Connect clusters without declared connectors among the others."""

    def others(connect: SeenConnect) -> tuple[OtherConnector, ...]:
        return tuple(
            connector for connector in connect.others if (connector.connect, connector.connector) not in declared
        )

    return {name: replace(connect, others=others(connect)) for name, connect in connects.items()}


def _others(connect: str, owners: Ownership, connectors: Mapping[str, RunningConnector]) -> Iterator[OtherConnector]:
    """Yield the source connectors of a Connect cluster, by name."""
    for name, there in sorted(connectors.items()):
        if type_of(there.config.get("connector.class", "")) != "source":
            continue
        owner, status = there.config.get(OWNER_KEY, ""), there.status
        standing: Standing = "other-owner" if owner else "unmarked"
        if (connect, name) in owners.released:
            standing = "released"
        elif owners.is_ours((connect, name), there.config):
            standing = "left-over"
        yield OtherConnector(connect, name, there.config, status.work_state if status else "no status", standing, owner)


def _reads_groups(seen: LiveConnector, how: ObserveOptions) -> bool:
    """Tell whether the groups of a checkpoint connector are to be read now."""
    does = checkpointing(seen)
    return bool(does and how.earlier and does.is_due(how.earlier.checkpoints.get(seen.key), how.clock()))


def _more(seen: LiveConnector, how: ObserveOptions) -> Iterator[ConnectQuestion[Any]]:
    """Yield the questions for tasks and offsets of a source connector that exists, and for the tasks of a checkpoint connector where they are due."""
    place = seen.desired.connect, seen.desired.name
    is_source = seen.running is not None and seen.desired.type == "source"
    if is_source or _reads_groups(seen, how):
        yield TaskConfigs(*place)
    if is_source:
        yield StoredOffsets(*place)


def _with_more(seen: LiveConnector, snapshot: Snapshot, how: ObserveOptions) -> LiveConnector:
    """Add what was read of tasks, offsets and groups."""
    place = seen.desired.connect, seen.desired.name
    tasks = snapshot.get(TaskConfigs(*place))
    if not isinstance(tasks, Mm2mgrError) and _reads_groups(seen, how):
        groups = sorted(group for task in tasks for group in task.groups)
        seen = replace(seen, groups=tuple(groups[:_GROUPS_AT_MOST]))
    if seen.running is None or seen.desired.type != "source":
        return seen
    offsets = snapshot.get(StoredOffsets(*place))
    running = replace(
        seen.running,
        tasks=Failure.from_error(tasks) if isinstance(tasks, Mm2mgrError) else tasks,
        offsets=(
            Failure.from_error(offsets)
            if isinstance(offsets, Mm2mgrError)
            else parse_stored(offsets, seen.desired.config["source.cluster.alias"])
        ),
    )
    return replace(seen, running=running)


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _read_clusters(reading: Reading, kafka: ReadKafka) -> Steps[dict[str, SeenKafka]]:
    """Read sources and targets side by side, each cluster once."""
    aliases = dict.fromkeys(cluster.alias for flow in reading.flows for cluster in (flow.source, flow.target))
    questions = {alias: KafkaState(alias, _wanted_logs(reading, alias), kafka) for alias in aliases}
    snapshot = yield questions.values()
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return {
        alias: SeenKafka(failure=Failure.from_error(answer)) if isinstance(answer, Mm2mgrError) else answer
        for alias, answer in answers.items()
    }


def _with_later_ends(reading: Reading, how: ObserveOptions) -> Steps[Reading]:
    """Read the ends of source partitions again where more seems to have arrived than there was."""
    doubts: dict[str, list[TopicPartition]] = {}
    for flow in reading.flows:
        earlier = how.earlier.flows.get(flow.id) if how.earlier else None
        if earlier and (partitions := [*doubtful(reading, flow, earlier.surplus)]):
            doubts.setdefault(flow.source.alias, []).extend(partitions)
    questions = {
        alias: KafkaState(alias, WantedLogs(ends=tuple(partitions)), how.kafka) for alias, partitions in doubts.items()
    }
    snapshot = yield questions.values()
    clusters = dict(reading.clusters)
    for alias, question in questions.items():
        answer = snapshot.get(question)
        ends = {} if isinstance(answer, Mm2mgrError) else {one: log.end for one, log in answer.offsets.items()}
        clusters[alias] = replace(clusters[alias], later_ends=ends)
    return replace(reading, clusters=clusters)


def _wanted_logs(reading: Reading, alias: str) -> WantedLogs:
    """Return the topics to read of a cluster."""
    away = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.source.alias == alias]
    here = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.target.alias == alias]

    written = {
        reading.topic_of(one) for one in reading.companions() if one.desired.config["target.cluster.alias"] == alias
    }

    def is_mirrored(topic: str) -> bool:
        return topic in written or any(topic in assigned or flow.carries(topic) for flow, assigned in away)

    def is_mirror(topic: str) -> bool:
        sources = ((flow, assigned, flow.selection.upstream(topic)) for flow, assigned in here)
        return any(name and (name in assigned or flow.carries(name)) for flow, assigned, name in sources)

    return WantedLogs(
        is_mirrored,
        is_mirror,
        frozenset(_wanted_copied("configs", reading, alias)),
        frozenset(_wanted_copied("acls", reading, alias)),
        tuple(sorted(set(_wanted_groups(reading, alias)))),
        tuple(sorted({flow.source.alias for flow, _ in here})),
    )


def _wanted_groups(reading: Reading, alias: str) -> Iterator[str]:
    """Yield the groups whose offsets are wanted of a cluster: on the target only where they are synced."""
    for one in reading.companions():
        does, config = checkpointing(one), one.desired.config
        if config["source.cluster.alias"] == alias or (
            does and does.syncs_groups and config["target.cluster.alias"] == alias
        ):
            yield from one.groups or ()


def _wanted_copied(kind: str, reading: Reading, alias: str) -> Iterator[str]:
    """Yield the topics of a cluster whose settings or ACLs are wanted: on a flow's source those that its tasks have, and theirs on its target."""
    for flow in reading.flows:
        if (kind, flow.id) in reading.copied_asked and alias in (flow.source.alias, flow.target.alias):
            topics = _assigned_topics(reading, flow)
            yield from topics if flow.source.alias == alias else map(flow.remote_topic, topics)


def _assigned_topics(reading: Reading, flow: Flow) -> frozenset[str]:
    seen = reading.source_connector(flow)
    assigned = seen.partitions_by_task().values() if seen else ()
    return frozenset(one.topic for partitions in assigned for one in partitions)


@dataclass(frozen=True)
class Observation:
    """A status with the reading and the lags behind it, and what is remembered now."""

    reading: Reading
    lags: Mapping[str, FlowLag]
    status: Status
    memory: Memory


async def observe(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Observation:
    """Observe the flows with these ids (None: all) and remember what was seen."""
    how = options or ObserveOptions()
    chosen = None if only is None else set(only)
    flows = [flow for flow in topology.flows if chosen is None or flow.id in chosen]
    earlier = timed_looks(_file(topology, how))
    reading = await read_estate(topology, connectors, flows, replace(how, earlier=earlier))
    lags: dict[str, FlowLag] = {}

    def remembered(earlier: Memory) -> Memory:
        lags.update(lags_of(reading, earlier))
        memory = remember(earlier, reading, lags)
        return replace(memory, shared_at=now) if how.shares and is_due_to_share(earlier, now) else memory

    place, now, ids = _place(topology, how), reading.taken_at, [flow.id for flow in flows]
    kept = join_shared(place, change(place.memory_file, remembered), ids, now)
    unshared = share(place, kept.memory, ids) if kept.memory.shared_at == now else ()
    ledger = settle(place, kept.memory)
    seen = judge(reading, lags, Remembered(kept.earlier, kept.memory, how.patience), ledger.entries)
    warnings = (*kept.warnings, *ledger.warnings, *unshared)
    return Observation(reading, lags, replace(seen, warnings=warnings), kept.memory)


async def status(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Status:
    """Return the status of the flows with these ids (None: all); see `observe`. No failed cluster raises."""
    return (await observe(topology, connectors, only=only, options=options)).status


async def describe(
    topology: Topology, connectors: Sequence[Connector], flow: Flow, *, options: ObserveOptions | None = None
) -> Description:
    """Observe one flow and return everything about it."""
    seen = await observe(topology, connectors, only=[flow.id], options=options)
    return Description(flow, seen.reading, seen.lags.get(flow.id, FlowLag()), seen.status)


def read_losses(topology: Topology, options: ObserveOptions | None = None) -> LossLedger:
    """Return the ledger of a tree's owner, without a look at any cluster."""
    how = options or ObserveOptions()
    return settle(_place(topology, how), load(_file(topology, how)))


def acknowledge(
    topology: Topology,
    ids: Sequence[str],
    ack: Acknowledgement,
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> tuple[LossEntry, ...]:
    """Acknowledge losses by their ids, or `all` (of the flows with these ids), and return them; Mm2mgrError for unknown ids."""
    how = options or ObserveOptions()
    wanted = named(read_losses(topology, how).entries, ids, only)
    rows = tuple(acknowledgement_of(entry, ack) for entry in wanted)
    kept = change(_file(topology, how), lambda memory: replace(memory, unwritten=(*memory.unwritten, *rows)))
    if kept.warnings:
        raise Mm2mgrError(f"nothing was acknowledged: {kept.warnings[0]}")
    settle(_place(topology, how), kept.memory)
    return wanted


def _file(topology: Topology, how: ObserveOptions) -> Path:
    return how.memory_file or state_file(str(topology.owner))


def _place(topology: Topology, how: ObserveOptions) -> StorePlace:
    return StorePlace(how.store, str(topology.owner), _file(topology, how))

"""The entrance: read Connect and Kafka once, compare with what is remembered, and report; and acknowledge losses.

Connect is read before Kafka: an end offset read first would make a flow that moves look as if it were past the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from mm2mgr.connect.client import ConnectClient, silent_workers
from mm2mgr.connect.exactly_once import ask_exactly_once
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, parse_stored
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import committed_offsets, topic_acls, topic_configs
from mm2mgr.kafka.records import read_logs
from mm2mgr.live.dedicated import find_running
from mm2mgr.live.endpoints import connect_target, kafka_access
from mm2mgr.observe.companions import checkpointing
from mm2mgr.observe.health import Description, Remembered, Status, judge, lags_of
from mm2mgr.observe.kept import (
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
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.losses import Acknowledgement, LossEntry, acknowledgement_of, named
from mm2mgr.observe.memory import Memory, remember
from mm2mgr.observe.problems import Patience
from mm2mgr.observe.reading import (
    Failure,
    LiveConnector,
    Orphan,
    OtherConnector,
    Reading,
    SeenConnect,
    SeenKafka,
    Standing,
)
from mm2mgr.observe.surplus import doubtful
from mm2mgr.observe.topic_sync import COPIED
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.effect import WorkerClients
from mm2mgr.reconcile.ownership import Ownership
from mm2mgr.reconcile.plan import Named
from mm2mgr.render import CLASSES, OWNER_KEY, Connector, connectors_of
from mm2mgr.samples.schema import Store
from mm2mgr.secrets import cut
from mm2mgr.topology import Flow, Topology
from mm2mgr.truth.reach import type_of

T = TypeVar("T")
N = TypeVar("N", bound=Collection[str])
ReadKafka = Callable[[KafkaAccess, "WantedLogs"], SeenKafka]

_REQUESTS_AT_ONCE = 8  # per Connect cluster: a read of one connector may be forwarded to the leader
_CLUSTERS_AT_ONCE = 32
_GROUPS_AT_MOST = 100  # of a checkpoint connector; a request each
_KAFKA_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class WantedLogs:
    """Which topics of a cluster to read: those that flows mirror from it, whose ids count too, those that flows mirror to it, and
    the names of those whose settings or ACLs are wanted; the consumer groups whose committed offsets are; and the aliases of the sources
    that a dedicated MirrorMaker may mirror from. With `ends`, the ends of these partitions and nothing else."""

    away: Callable[[str], bool]
    here: Callable[[str], bool]
    configs: frozenset[str] = frozenset()
    acls: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    dedicated: tuple[str, ...] = ()
    ends: tuple[TopicPartition, ...] = ()

    def __call__(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions whose offsets are wanted; topics with their numbers of partitions."""
        wanted = ((topic, count) for topic, count in topics.items() if self.away(topic) or self.here(topic))
        return [TopicPartition(topic, number) for topic, count in wanted for number in range(count)]


def read_kafka(access: KafkaAccess, wanted: WantedLogs, timeout_seconds: float | None = None) -> SeenKafka:
    """Read one Kafka cluster's topics, and the offsets of the partitions wanted among them. Blocks; never raises."""
    try:
        with Kafka(access, timeout_seconds or _KAFKA_TIMEOUT_SECONDS) as kafka:
            if wanted.ends:
                return SeenKafka(offsets=read_logs(kafka, wanted.ends, ()).found)
            topics, cluster_id = kafka.counts_with_id()
            away = set(filter(wanted.away, topics))
            read = read_logs(kafka, wanted(topics), away)
            ids = kafka.topic_ids(away)
            configs = _if_readable(topic_configs, kafka, wanted.configs & topics.keys())
            acls = _if_readable(topic_acls, kafka, wanted.acls & topics.keys())
            groups = _if_readable(committed_offsets, kafka, wanted.groups)
            dedicated = _if_readable(
                lambda kafka, names: find_running(kafka, access, names, topics), kafka, wanted.dedicated
            )
    except Mm2mgrError as error:
        return SeenKafka(failure=Failure.of(error))
    return SeenKafka(
        topics,
        read.found,
        read.failed,
        topic_ids=ids,
        configs=configs,
        acls=acls,
        group_offsets=groups,
        dedicated=dedicated,
        cluster_id=cluster_id,
    )


def _if_readable(read: Callable[[Kafka, N], dict[str, T]], kafka: Kafka, names: N) -> dict[str, T]:
    """Return what is read by these names; nothing where that fails, as lag and progress do not need it."""
    try:
        return read(kafka, names) if names else {}
    except Mm2mgrError:
        return {}


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


async def read_estate(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], how: ObserveOptions
) -> Reading:
    """Read the chosen flows and nothing else; with all flows also every declared Connect cluster, for orphans.

    Nothing is raised for a cluster that does not answer: its failure is in the Reading.
    """
    begun_at, whole = how.clock(), len({flow.id for flow in flows}) == len(topology.flows)
    connectors = tuple(connectors)
    wanted: dict[str, list[Connector]] = {flow.connect.name: [] for flow in flows}
    if whole:
        wanted = {name: [] for name in (*wanted, *topology.connects)}
    for connector in connectors_of(connectors, flows):
        wanted[connector.connect].append(connector)
    seen = await asyncio.gather(
        *(_read_connect(topology, name, each, how, orphans=whole) for name, each in wanted.items())
    )
    reading = Reading(how.clock(), tuple(flows), {connect.name: connect for connect in seen}, {}, whole, begun_at)
    declared = {(connector.connect, connector.name) for connector in connectors}
    reading = replace(reading, declared=topology.flows, connects=_without(declared, reading.connects))
    if how.earlier:
        reading = replace(reading, copied_asked=frozenset(_due(reading, how.earlier)))
    reading = replace(reading, clusters=await _read_clusters(reading, how.kafka))
    return replace(await _with_later_ends(reading, how), taken_at=how.clock())


def _due(reading: Reading, earlier: TimedLooks) -> Iterator[tuple[str, str]]:
    """Yield what is to be read again of the topics of which flows."""
    for kind, copied in COPIED.items():
        for flow in reading.flows:
            seen, look = reading.source_connector(flow), earlier.copied.get(kind, {}).get(flow.id)
            sync = copied.sync(seen) if seen else None
            if sync and sync.is_due(look.asked_at if look else None, reading.taken_at):
                yield kind, flow.id


# --- Connect ----------------------------------------------------------------------------------------------------------


async def _read_connect(
    topology: Topology, name: str, wanted: Sequence[Connector], how: ObserveOptions, *, orphans: bool
) -> SeenConnect:
    connect, owners = topology.connects[name], Ownership.of(topology)
    try:
        async with ConnectClient(connect_target(connect), deadline_seconds=how.deadline_seconds) as client:
            infos, statuses = await client.infos(), await client.statuses()
            gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
            busy = sorted({worker for one in statuses.values() for worker in one.workers})
            mirrors = any(one.type == "source" for one in wanted)
            root, silent, exactly_once = await asyncio.gather(
                _kept(gate, client.root()),
                silent_workers(client.target, busy),
                ask_exactly_once(client) if mirrors else _nothing(),
            )
            shown = (LiveConnector(one, infos.get(one.name), statuses.get(one.name)) for one in wanted)
            seen = await asyncio.gather(*(_more(client, gate, one, how) for one in shown))
    except Mm2mgrError as error:
        return SeenConnect(name, failure=Failure.of(error))
    version = "" if isinstance(root, Failure) else root.version
    workers = WorkerClients(version or connect.model.version or "", topology.clusters[connect.kafka].client)
    adopted = {one for one, info in infos.items() if owners.is_adopted((name, one), info.config)}
    return SeenConnect(
        name,
        {one.desired.name: replace(one, adopted=workers if one.desired.name in adopted else None) for one in seen},
        kafka_cluster_id="" if isinstance(root, Failure) else root.kafka_cluster_id,
        orphans=tuple(_orphans(name, {one.name for one in wanted}, owners, infos, statuses)) if orphans else (),
        silent_workers=silent,
        others=tuple(_others(name, owners, infos, statuses)),
        version=version,
        exactly_once=exactly_once,
    )


async def _nothing() -> None:
    """Ask nobody."""


async def read_states(
    topology: Topology, connectors: Iterable[Connector], deadline_seconds: float
) -> tuple[SeenConnect, ...]:
    """Read configs and states of connectors, and no more: one request per Connect cluster, side by side. Nothing is raised."""
    wanted: dict[str, list[Connector]] = {}
    for connector in connectors:
        wanted.setdefault(connector.connect, []).append(connector)

    async def one(name: str, declared: Sequence[Connector]) -> SeenConnect:
        try:
            target = connect_target(topology.connects[name])
            async with ConnectClient(target, deadline_seconds=deadline_seconds) as client:
                infos, statuses = await client.infos_with_statuses()
        except Mm2mgrError as error:
            return SeenConnect(name, failure=Failure.of(error))
        seen = (LiveConnector(each, infos.get(each.name), statuses.get(each.name)) for each in declared)
        return SeenConnect(name, {each.desired.name: each for each in seen})

    return tuple(await asyncio.gather(*(one(name, declared) for name, declared in wanted.items())))


def _orphans(
    connect: str,
    wanted: Collection[str],
    owners: Ownership,
    infos: Mapping[str, ConnectorInfo],
    statuses: Mapping[str, ConnectorStatus],
) -> Iterator[Orphan]:
    """Yield connectors that are the owner's and not declared, by name."""
    types = {name: kind for kind, name in CLASSES.items()}
    for name, info in sorted(infos.items()):
        if name in wanted or not owners.is_ours((connect, name), info.config):
            continue
        config, status = info.config, statuses.get(name)
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


def _others(
    connect: str, owners: Ownership, infos: Mapping[str, ConnectorInfo], statuses: Mapping[str, ConnectorStatus]
) -> Iterator[OtherConnector]:
    """Yield the source connectors of a Connect cluster, by name."""
    for name, info in sorted(infos.items()):
        if type_of(info.config.get("connector.class", "")) != "source":
            continue
        owner, status = info.config.get(OWNER_KEY, ""), statuses.get(name)
        standing: Standing = "other-owner" if owner else "unmarked"
        if (connect, name) in owners.released:
            standing = "released"
        elif owners.is_ours((connect, name), info.config):
            standing = "left-over"
        yield OtherConnector(connect, name, info.config, status.work_state if status else "no status", standing, owner)


async def _more(
    client: ConnectClient, gate: asyncio.Semaphore, seen: LiveConnector, how: ObserveOptions
) -> LiveConnector:
    """Add tasks and offsets of a source connector that exists, and of a checkpoint connector its groups where that is due."""
    name = seen.desired.name
    does = checkpointing(seen)
    if does and how.earlier and does.is_due(how.earlier.checkpoints.get(seen.key), how.clock()):
        having = await _kept(gate, client.tasks(name))
        if not isinstance(having, Failure):
            groups = sorted(group for task in having for group in task.groups)
            seen = replace(seen, groups=tuple(groups[:_GROUPS_AT_MOST]))
    if seen.info is None or seen.desired.type != "source":
        return seen
    tasks = await _kept(gate, client.tasks(name))
    offsets = await _kept(gate, client.offsets(name))
    if isinstance(offsets, Failure):
        return replace(seen, tasks=tasks, offsets=offsets)
    return replace(seen, tasks=tasks, offsets=parse_stored(offsets, seen.desired.config["source.cluster.alias"]))


async def _kept(gate: asyncio.Semaphore, answer: Awaitable[T]) -> T | Failure:
    async with gate:
        try:
            return await answer
        except Mm2mgrError as error:
            return Failure.of(error)


# --- Kafka ------------------------------------------------------------------------------------------------------------


async def _read_clusters(reading: Reading, kafka: ReadKafka) -> dict[str, SeenKafka]:
    """Read sources and targets side by side, each cluster once, in threads because the client blocks."""
    clusters = {cluster.alias: cluster for flow in reading.flows for cluster in (flow.source, flow.target)}
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=max(1, min(_CLUSTERS_AT_ONCE, len(clusters)))) as threads:
        seen = await asyncio.gather(
            *(
                loop.run_in_executor(threads, kafka, kafka_access(cluster), _wanted_logs(reading, alias))
                for alias, cluster in clusters.items()
            )
        )
    return dict(zip(clusters, seen, strict=True))


async def _with_later_ends(reading: Reading, how: ObserveOptions) -> Reading:
    """Read the ends of source partitions again where more seems to have arrived than there was: clusters are read side by side."""
    doubts: dict[str, list[TopicPartition]] = {}
    for flow in reading.flows:
        earlier = how.earlier.flows.get(flow.id) if how.earlier else None
        if earlier and (partitions := [*doubtful(reading, flow, earlier.surplus)]):
            doubts.setdefault(flow.source.alias, []).extend(partitions)
    sources = {flow.source.alias: flow.source for flow in reading.flows if flow.source.alias in doubts}
    read = await asyncio.gather(
        *(
            asyncio.to_thread(
                how.kafka, kafka_access(source), WantedLogs(_no_topic, _no_topic, ends=tuple(doubts[alias]))
            )
            for alias, source in sources.items()
        )
    )
    clusters = dict(reading.clusters)
    for alias, cluster in zip(sources, read, strict=True):
        clusters[alias] = replace(
            clusters[alias], later_ends={partition: log.end for partition, log in cluster.offsets.items()}
        )
    return replace(reading, clusters=clusters)


def _no_topic(_: str) -> bool:
    return False


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
    assigned = seen.assigned().values() if seen else ()
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

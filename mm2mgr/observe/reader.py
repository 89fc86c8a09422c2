"""Reads what the chosen flows need from Connect and Kafka, all clusters at the same time.

Connect is read before Kafka: an end offset read first would make a flow that moves look as if it were past the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, parse_stored
from mm2mgr.endpoints import connect_target, kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.observe.reading import Failure, LiveConnector, Orphan, SeenConnect, SeenKafka, Snapshot
from mm2mgr.partitions import TopicPartition
from mm2mgr.render import CLASSES, OWNER_KEY, Connector, connectors_of
from mm2mgr.secrets import cut
from mm2mgr.topology import ConnectCluster, Flow, Topology

T = TypeVar("T")
Choose = Callable[[Mapping[str, int]], list[TopicPartition]]
ReadKafka = Callable[[KafkaAccess, Choose], SeenKafka]

_REQUESTS_AT_ONCE = 8  # per Connect cluster: a read of one connector may be forwarded to the leader
_CLUSTERS_AT_ONCE = 32
_KAFKA_TIMEOUT_SECONDS = 10.0


def read_kafka(access: KafkaAccess, choose: Choose) -> SeenKafka:
    """Read one Kafka cluster's topics, and the offsets of the partitions chosen among them. Blocks; never raises."""
    try:
        with Kafka(access, _KAFKA_TIMEOUT_SECONDS) as kafka:
            infos = kafka.topics()
            topics = {name: info.partitions for name, info in infos.items()}
            read = kafka.read_offsets(choose(topics))
    except Mm2mgrError as error:
        return SeenKafka(failure=Failure.of(error))
    ids = {name: info.topic_id for name, info in infos.items() if info.topic_id}
    return SeenKafka(topics, read.found, read.failed, topic_ids=ids)


@dataclass(frozen=True)
class Instruments:
    """What a reading is made with; `deadline_seconds` bounds each request to Connect with its retries."""

    kafka: ReadKafka = read_kafka
    clock: Callable[[], float] = time.time
    deadline_seconds: float = 20.0


async def read_estate(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], use: Instruments = Instruments()
) -> Snapshot:
    """Read the chosen flows and nothing else; with all flows also every declared Connect cluster, for orphans.

    Nothing is raised for a cluster that does not answer: its failure is in the Snapshot.
    """
    whole = len({flow.id for flow in flows}) == len(topology.flows)
    wanted: dict[str, list[Connector]] = {flow.connect.name: [] for flow in flows}
    if whole:
        wanted = {name: [] for name in (*wanted, *topology.connects)}
    for connector in connectors_of(connectors, flows):
        wanted[connector.connect].append(connector)
    owner = str(topology.owner) if whole else None
    seen = await asyncio.gather(
        *(_read_connect(topology.connects[name], group, owner, use.deadline_seconds) for name, group in wanted.items())
    )
    reading = Snapshot(use.clock(), tuple(flows), {connect.name: connect for connect in seen}, {}, whole)
    return replace(reading, clusters=await _read_clusters(reading, use.kafka), taken_at=use.clock())


# --- Connect ----------------------------------------------------------------------------------------------------------


async def _read_connect(
    connect: ConnectCluster, wanted: Sequence[Connector], owner: str | None, deadline_seconds: float
) -> SeenConnect:
    try:
        async with ConnectClient(connect_target(connect), deadline_seconds=deadline_seconds) as client:
            infos, statuses = await client.infos(), await client.statuses()
            gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
            root = await _kept(gate, client.root())
            shown = (LiveConnector(one, infos.get(one.name), statuses.get(one.name)) for one in wanted)
            seen = await asyncio.gather(*(_more(client, gate, one) for one in shown))
    except Mm2mgrError as error:
        return SeenConnect(connect.name, failure=Failure.of(error))
    return SeenConnect(
        connect.name,
        {one.desired.name: one for one in seen},
        kafka_cluster_id="" if isinstance(root, Failure) else root.kafka_cluster_id,
        orphans=tuple(_orphans(connect.name, {one.name for one in wanted}, owner, infos, statuses)) if owner else (),
    )


def _orphans(
    connect: str,
    wanted: Collection[str],
    owner: str,
    infos: Mapping[str, ConnectorInfo],
    statuses: Mapping[str, ConnectorStatus],
) -> Iterator[Orphan]:
    """Yield connectors that carry the owner's mark and are not declared, by name."""
    types = {name: kind for kind, name in CLASSES.items()}
    for name, info in sorted(infos.items()):
        if name in wanted or info.config.get(OWNER_KEY) != owner:
            continue
        config, status = info.config, statuses.get(name)
        pair = f"{config.get('source.cluster.alias', '?')}->{config.get('target.cluster.alias', '?')}"
        kind = types.get(config.get("connector.class", ""), "source")
        yield Orphan(connect, name, kind, pair, cut(config.get("topics", "")), status.state if status else "no status")


async def _more(client: ConnectClient, gate: asyncio.Semaphore, seen: LiveConnector) -> LiveConnector:
    """Add tasks and offsets of a source connector that exists; other connectors have none."""
    name = seen.desired.name
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


async def _read_clusters(reading: Snapshot, kafka: ReadKafka) -> dict[str, SeenKafka]:
    """Read sources and targets side by side, each cluster once, in threads because the client blocks."""
    clusters = {cluster.alias: cluster for flow in reading.flows for cluster in (flow.source, flow.target)}
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=max(1, min(_CLUSTERS_AT_ONCE, len(clusters)))) as threads:
        seen = await asyncio.gather(
            *(
                loop.run_in_executor(threads, kafka, kafka_access(cluster), _chooser(reading, alias))
                for alias, cluster in clusters.items()
            )
        )
    return dict(zip(clusters, seen, strict=True))


def _chooser(reading: Snapshot, alias: str) -> Choose:
    """Return the topics to read of a cluster: those that flows mirror from it, and those that flows mirror to it."""
    away = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.source.alias == alias]
    here = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.target.alias == alias]

    def wanted(topic: str) -> bool:
        if any(topic in assigned or flow.carries(topic) for flow, assigned in away):
            return True
        sources = ((flow, assigned, flow.selection.upstream(topic)) for flow, assigned in here)
        return any(name and (name in assigned or flow.carries(name)) for flow, assigned, name in sources)

    def choose(topics: Mapping[str, int]) -> list[TopicPartition]:
        return [TopicPartition(topic, n) for topic, count in topics.items() if wanted(topic) for n in range(count)]

    return choose


def _assigned_topics(reading: Snapshot, flow: Flow) -> frozenset[str]:
    seen = reading.source_connector(flow)
    assigned = seen.assigned().values() if seen else ()
    return frozenset(one.topic for partitions in assigned for one in partitions)

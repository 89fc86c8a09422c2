"""What brokers and workers say about the deal of flows: topics in the brokers' order, and assignments of running connectors.

In: flows. Out: a Deal per flow, read back where the connector runs with the partitions that Kafka has now, else predicted.
A worker that does not answer is no error: the deal then says that it was predicted, and why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.deal import Deal, Listing, listed, predict, read_back
from mm2mgr.topology import ConnectCluster, Flow, KafkaCluster

if TYPE_CHECKING:
    from mm2mgr.connect.client import Connect

HEARTBEATS = "heartbeats"
_CLUSTERS_AT_ONCE = 16
_CONNECTORS_AT_ONCE = 4
_WORKERS_SECONDS = 10.0


def listings(clusters: Mapping[str, KafkaCluster]) -> dict[str, Listing | Mm2mgrError]:
    """Return the partitions by topic of each cluster, without Kafka's own topics, in the admin client's order."""
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.kafka.client import Kafka

    def read(alias: str) -> Listing | Mm2mgrError:
        try:
            with Kafka(kafka_access(clusters[alias])) as kafka:
                topics = kafka.topics()
                return listed({name: topic.partitions for name, topic in topics.items() if not topic.internal})
        except Mm2mgrError as error:
            return error

    with ThreadPoolExecutor(max_workers=_CLUSTERS_AT_ONCE) as threads:
        return dict(zip(clusters, threads.map(read, clusters), strict=True))


def live_deals(flows: Sequence[Flow]) -> list[Deal | str]:
    """Return what the tasks of each flow's connector were assigned, or why that cannot be told."""
    found = asyncio.run(_live_deals(flows))
    return [found[flow.id] for flow in flows]


def deal_of(flow: Flow, listing: Listing, beats: bool, live: Deal | str) -> Deal:
    """Return the deal to size with: the running connector's where it knows the partitions of now, else the predicted one."""
    dealt = dealt_topics(flow, beats=beats)
    if isinstance(live, str):
        return replace(predict(listing, dealt), note=live)
    if _is_of_now(live, listing, dealt):
        return live
    return replace(predict(listing, dealt), note="the running connector has other partitions than Kafka has now")


def _is_of_now(live: Deal, listing: Listing, dealt: Callable[[str], bool]) -> bool:
    counts = Counter([one.topic for one in live.order])
    numbers_fit = all(one.partition < counts[one.topic] for one in live.order)
    return numbers_fit and counts == {name: count for name, count in listing.partitions.items() if dealt(name)}


def dealt_topics(flow: Flow, *, beats: bool) -> Callable[[str], bool]:
    """Return which topics the flow's connector deals: those it carries, and heartbeats where it is the one of its pair.

    Heartbeats come whatever `topics` says (MirrorSourceConnector.shouldReplicateTopic); those that would go round do not.
    """
    separator = flow.settings.separator

    def dealt(topic: str) -> bool:
        *hops, name = topic.split(separator)
        beat = beats and name == HEARTBEATS and flow.target.alias not in hops
        return beat or flow.carries(topic)

    return dealt


def beating(flows: Sequence[Flow]) -> set[str]:
    """Return the ids of the flows that carry the heartbeats of their pair, as the renderer chooses them."""
    first: dict[str, str] = {}
    for flow in flows:
        if flow.settings.heartbeats.enabled:
            first.setdefault(flow.pair, flow.id)
    return set(first.values())


def heartbeat_rates(deal: Deal) -> dict[TopicPartition, float]:
    """Return a rate for heartbeats, which nobody samples: a record a second is nothing beside a median of the flow."""
    return {one: 0.0 for one in deal.order if one.topic.endswith(HEARTBEATS)}


async def _live_deals(flows: Sequence[Flow]) -> dict[str, Deal | str]:
    by_connect: dict[str, list[Flow]] = {}
    for flow in flows:
        by_connect.setdefault(flow.connect.name, []).append(flow)
    found = await asyncio.gather(*(_of_cluster(each[0].connect, each) for each in by_connect.values()))
    return {flow_id: deal for part in found for flow_id, deal in part.items()}


async def _of_cluster(connect: ConnectCluster, flows: Sequence[Flow]) -> dict[str, Deal | str]:
    from mm2mgr.connect.client import Connect
    from mm2mgr.endpoints import connect_target

    turns = asyncio.Semaphore(_CONNECTORS_AT_ONCE)
    try:
        async with Connect(connect_target(connect), deadline_seconds=_WORKERS_SECONDS) as client:
            known = set(await client.connectors())

            async def of(flow: Flow) -> Deal | str:
                async with turns:
                    return await _of_flow(client, flow, known)

            return dict(zip((flow.id for flow in flows), await asyncio.gather(*map(of, flows)), strict=True))
    except Mm2mgrError:
        return {flow.id: f"Connect cluster '{connect.name}' could not be read" for flow in flows}


async def _of_flow(client: Connect, flow: Flow, known: set[str]) -> Deal | str:
    from mm2mgr.render import source_connector_name

    name = source_connector_name(flow)
    if name not in known:
        return "not created yet"
    tasks = sorted(await client.tasks(name), key=lambda task: task.id)
    deal = read_back([task.config.get("task.assigned.partitions", "") for task in tasks])
    return deal or "it has no tasks to read the order from"

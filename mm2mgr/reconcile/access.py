"""Reads the ids and topics of declared Kafka clusters from this machine.

A Kafka client is loaded only when a cluster is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mm2mgr.endpoints import kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.topology import KafkaCluster, Topology

_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class ClusterIds:
    """Cluster ids by alias, and for the other aliases why the id is unknown."""

    known: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


async def cluster_ids(
    topology: Topology, aliases: Iterable[str], timeout_seconds: float = _TIMEOUT_SECONDS, *, ask: bool = True
) -> ClusterIds:
    """Return the declared ids, and ask the other clusters, all at once, if they are to be asked."""
    ids = ClusterIds()
    asked = []
    for alias in dict.fromkeys(aliases):
        declared = topology.clusters[alias].model.cluster_id
        if declared:
            ids.known[alias] = declared
        elif ask:
            asked.append(alias)
    answers = (asyncio.to_thread(_ask, topology.clusters[alias], timeout_seconds) for alias in asked)
    for alias, answer in zip(asked, await asyncio.gather(*answers), strict=True):
        if isinstance(answer, Mm2mgrError):
            ids.unknown[alias] = answer.message
        else:
            ids.known[alias] = answer
    return ids


def _ask(cluster: KafkaCluster, timeout_seconds: float) -> str | Mm2mgrError:
    from mm2mgr.kafka.client import Kafka  # loads librdkafka, which a plan with declared ids does without

    try:
        with Kafka(kafka_access(cluster), timeout_seconds) as kafka:
            return kafka.cluster_id()
    except Mm2mgrError as error:
        return error


@dataclass(frozen=True)
class TopicListing:
    """Topics of one Kafka cluster: partitions of each that mm2mgr may see; of the wanted ones the records in their logs.

    `written` has the sum of their end offsets: above zero, a topic has had records, whether or not they are still there.
    """

    partitions: Mapping[str, int]
    records: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)


def read_topics(
    access: KafkaAccess,
    wanted: Callable[[str], bool],
    known: TopicListing | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> TopicListing:
    """Return the topics of a Kafka cluster, with the records of the wanted ones. Blocks; raises KafkaError.

    What is `known` of the cluster is not asked again.
    """
    from mm2mgr.kafka.client import Kafka

    if known and not any(wanted(topic) and topic not in known.records for topic in known.partitions):
        return known
    with Kafka(access, timeout_seconds) as kafka:
        partitions = known.partitions if known else kafka.partition_counts()
        had = known.records if known else {}
        chosen = {topic: count for topic, count in partitions.items() if wanted(topic) and topic not in had}
        records, written = dict.fromkeys(chosen, 0), dict.fromkeys(chosen, 0)
        for one, log in kafka.offsets(
            TopicPartition(topic, number) for topic, count in chosen.items() for number in range(count)
        ).items():
            records[one.topic] += log.end - log.start
            written[one.topic] += log.end
    return TopicListing(partitions, {**had, **records}, {**(known.written if known else {}), **written})

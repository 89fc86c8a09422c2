"""Partition 0 of MirrorMaker's offset-syncs and checkpoints topics, read whole: it writes no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mm2mgr.errors import KafkaError
from mm2mgr.failover.syncs import InternalRecord
from mm2mgr.partitions import TopicPartition

if TYPE_CHECKING:
    from mm2mgr.live.reach import KafkaReach


def read_internal(reach: KafkaReach, topic: str) -> Iterator[InternalRecord]:
    """Yield the records of a topic in the order of its log, those that compaction has left.

    Blocks, for `measuring_seconds` at most; KafkaError for a topic that is not there, or not readable in that time.
    """
    from mm2mgr.kafka.records import read_whole

    if topic not in reach.kafka.partition_counts():  # asked for by its name, brokers may create it
        raise KafkaError(
            f"{reach.access.alias}: no topic {topic}, or this login may not see it",
            hint=f"look whether the connector that writes it runs; this login needs Read on topic {topic}",
        )
    for record in read_whole(reach.kafka, TopicPartition(topic, 0), reach.limits.measuring_seconds):
        yield InternalRecord(record.key, record.value, (record.timestamp_ms or 0) / 1000)

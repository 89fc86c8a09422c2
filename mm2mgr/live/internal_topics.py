"""Topics in which MirrorMaker and Connect keep what they know, read whole.

Of offset-syncs and checkpoints that is partition 0: MirrorMaker writes no other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import KafkaError
from mm2mgr.failover.syncs import InternalRecord
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import span_text

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


def read_connect_offsets(
    reach: KafkaReach, topic: str, connectors: Collection[str]
) -> dict[str, tuple[SourceOffset, ...]]:
    """Return what these connectors stored in a topic of offsets (`offset.storage.topic`), by connector; one that stored
    nothing is absent.

    Blocks, for `measuring_seconds` at most; KafkaError for a topic that is not there, or not readable in that time.
    """
    from mm2mgr.kafka.records import read

    alias, seconds = reach.access.alias, reach.limits.measuring_seconds
    count = reach.kafka.partition_counts().get(topic, 0)
    if not count:
        raise KafkaError(
            f"{alias}: no topic {topic}, or this login may not see it",
            hint=f"write the workers' offset.storage.topic as offsets_topic; this login needs Read on topic {topic}",
        )
    deadline = timing.now() + seconds
    newest: dict[bytes, bytes | None] = {}
    partitions = [TopicPartition(topic, number) for number in range(count)]
    for record in read(reach.access, partitions, timeout_seconds=seconds, kafka=reach.kafka):
        if timing.now() > deadline:
            raise KafkaError(f"{alias}: topic {topic} could not be read to its end in {span_text(seconds)}")
        newest[record.key or b""] = record.value
    return parse_connect_offsets(newest.items(), connectors)


def parse_connect_offsets(
    records: Iterable[tuple[bytes, bytes | None]], connectors: Collection[str]
) -> dict[str, tuple[SourceOffset, ...]]:
    """Return the stored offsets in the newest record of each key, by connector; what Connect did not write is left out.

    A key is `["connector", {the source partition}]` in JSON, its value the offset, null where it was reset (KIP-875).
    """
    offsets: dict[str, list[SourceOffset]] = {}
    for key, value in records:
        try:
            name, partition = json.loads(key)
            offset = None if value is None else json.loads(value)
        except (ValueError, TypeError, RecursionError):
            continue
        if (
            isinstance(name, str)
            and name in connectors
            and isinstance(partition, dict)
            and (offset is None or isinstance(offset, dict))
        ):
            offsets.setdefault(name, []).append(SourceOffset(partition, offset))
    return {name: tuple(entries) for name, entries in offsets.items()}

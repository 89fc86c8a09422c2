"""An oracle of our own for tests: which records of a source log are in the target log, by the ids in their keys."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import read
from mm2mgr.partitions import TopicPartition

# The record's key carries its id; the checksum of the value shows that the bytes are the same.
RecordId = tuple[bytes, int]


@dataclass(frozen=True)
class PartitionProof:
    """What became of the records of one partition."""

    partition: TopicPartition
    records: int
    missing: int
    duplicated: int
    unexpected: int
    in_order: bool

    @property
    def exact(self) -> bool:
        """Every record exactly once, in order, unaltered, and nothing else."""
        return self.in_order and not (self.missing or self.duplicated or self.unexpected)


def compare(partition: TopicPartition, source: Sequence[RecordId], target: Sequence[RecordId]) -> PartitionProof:
    """Judge one partition: `source` and `target` are the ids in log order.

    Order is judged on the first arrivals of records that the source has, so that a loss is not reported as disorder
    too.
    """
    expected, got = Counter(source), Counter(target)
    missing = sum((expected - got).values())
    extra = got - expected
    duplicated = sum(count for record_id, count in extra.items() if record_id in expected)
    unexpected = sum(count for record_id, count in extra.items() if record_id not in expected)
    position = {record_id: index for index, record_id in enumerate(source)}
    arrived = [position[record_id] for record_id in dict.fromkeys(target) if record_id in position]
    return PartitionProof(partition, len(source), missing, duplicated, unexpected, arrived == sorted(arrived))


def read_ids(access: KafkaAccess, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[RecordId]]:
    """Return (key, checksum of the value) of every record per partition, in log order."""
    ids: dict[TopicPartition, list[RecordId]] = {partition: [] for partition in partitions}
    for record in read(access, list(ids)):
        checksum = zlib.crc32(record.value or b"")
        ids[TopicPartition(record.topic, record.partition)].append((record.key or b"", checksum))
    return ids


def prove(
    source: Mapping[TopicPartition, list[RecordId]], target: Mapping[TopicPartition, list[RecordId]], prefix: str
) -> list[PartitionProof]:
    """Compare every partition of the source with its remote one, named `prefix` + topic."""
    return [
        compare(partition, ids, target.get(TopicPartition(prefix + partition.topic, partition.partition), []))
        for partition, ids in sorted(source.items())
    ]

"""The proof: source log against target log, record by record. In: ids in the order they stand. Out: what is not as it should be."""

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
class Verdict:
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


def compare(partition: TopicPartition, source: Sequence[RecordId], target: Sequence[RecordId]) -> Verdict:
    """Judge one partition: `source` and `target` are the ids in log order.

    Order is judged on the first arrivals of records that the source has, so that a loss is not reported as disorder too.
    """
    wanted, got = Counter(source), Counter(target)
    missing = sum((wanted - got).values())
    extra = got - wanted
    duplicated = sum(count for one, count in extra.items() if one in wanted)
    unexpected = sum(count for one, count in extra.items() if one not in wanted)
    position = {one: index for index, one in enumerate(source)}
    arrived = [position[one] for one in dict.fromkeys(target) if one in position]
    return Verdict(partition, len(source), missing, duplicated, unexpected, arrived == sorted(arrived))


def read_ids(access: KafkaAccess, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[RecordId]]:
    """Return (key, checksum of the value) of every record per partition, in log order."""
    found: dict[TopicPartition, list[RecordId]] = {partition: [] for partition in partitions}
    for record in read(access, list(found)):
        checksum = zlib.crc32(record.value or b"")
        found[TopicPartition(record.topic, record.partition)].append((record.key or b"", checksum))
    return found


def prove(
    source: Mapping[TopicPartition, list[RecordId]], target: Mapping[TopicPartition, list[RecordId]], prefix: str
) -> list[Verdict]:
    """Compare every partition of the source with its remote one, named `prefix` + topic."""
    return [
        compare(partition, ids, target.get(TopicPartition(prefix + partition.topic, partition.partition), []))
        for partition, ids in sorted(source.items())
    ]

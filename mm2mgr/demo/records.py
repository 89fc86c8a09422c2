"""Records with ids: produced to a source cluster unevenly and without a pause, then found on the target, one by one."""

from __future__ import annotations

import os
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from mm2mgr import timing
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer, commit_group, read
from mm2mgr.partitions import TopicPartition

RECORD_BYTES = 2_000
# Records per second of each partition: app.orders-0 is the hot one.
RATES: Mapping[str, tuple[int, ...]] = {
    "app.orders": (200, 20, 20, 20, 20, 20),
    "app.clicks": (60, 60, 10, 10),
    "audit.log": (5, 40),
}
GROUP = "billing"
_TICK_SECONDS = 0.2


@dataclass
class Traffic:
    """Produces to one cluster in a thread of its own; `scale` multiplies all rates. Use it in a `with` block."""

    access: KafkaAccess
    scale: float = 1.0
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    error: Mm2mgrError | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic-{self.access.alias}", daemon=True)
        self._rates = {
            TopicPartition(topic, number): rate * self.scale
            for topic, rates in RATES.items()
            for number, rate in enumerate(rates)
        }

    def __enter__(self) -> Traffic:
        with Kafka(self.access, timeout_seconds=20) as kafka:
            kafka.create_topics({topic: (len(rates), 1, {}) for topic, rates in RATES.items()})
            # A second run on a kept sandbox goes on counting where the first one ended.
            self.sent.update(_ends(kafka, list(self._rates)))
        # A group that has read up to here: checkpoints translate its offsets for the target.
        commit_group(self.access, GROUP, self.sent)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.error:
            raise self.error

    def stop(self) -> None:
        """Stop producing; on return every record sent is stored on the source."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with Producer(self.access) as producer:
                owed = dict.fromkeys(self._rates, 0.0)
                last = timing.now()
                while not timing.wait(self._stop, _TICK_SECONDS):
                    now = timing.now()
                    for partition, rate in self._rates.items():
                        owed[partition] += rate * (now - last)
                        for _ in range(int(owed[partition])):
                            self._send(producer, partition)
                        owed[partition] %= 1
                    last = now
        except Mm2mgrError as error:
            self.error = error

    def _send(self, producer: Producer, partition: TopicPartition) -> None:
        number = self.sent[partition]
        name = f"{self.access.alias}/{partition.topic}-{partition.partition}#{number}".encode()
        producer.send(partition, name + b" " + os.urandom(RECORD_BYTES - len(name) - 1), key=name)
        self.sent[partition] = number + 1


def _ends(kafka: Kafka, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end of each partition; a topic just created answers only after its leader has settled in."""
    deadline = timing.now() + 20
    while True:
        read = kafka.read_offsets(partitions)
        if not read.failed:
            return {partition: offsets.end for partition, offsets in read.found.items()}
        if timing.now() > deadline:
            partition, reason = next(iter(read.failed.items()))
            raise KafkaError(f"{kafka.access.alias}: {partition.topic}-{partition.partition} cannot be read: {reason}")
        timing.sleep(0.1)


# --- the proof --------------------------------------------------------------------------------------------------------

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

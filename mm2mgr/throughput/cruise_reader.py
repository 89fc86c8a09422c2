"""Reads the records of Cruise Control's sample topic between offsets, and decodes them to Arrow batches.

The same object in this process and on Spark's executors, which get the settings, passwords included, with their tasks.
It joins no group and commits nothing to Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeAlias

import confluent_kafka
import pyarrow as pa

from mm2mgr.errors import KafkaError
from mm2mgr.throughput.cruise_records import decode_records

CRUISE_CONTROL_TOPIC = "cruise-control-topic"
_RECORDS_PER_TASK = 100_000
_CONSUME, _SILENCE_SECONDS = 2_000, 30.0
_READER = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never sent: partitions are assigned by hand
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # records that expired meanwhile are an error, never skipped in silence
    "log_level": 0,  # what goes wrong comes as an error
}
Offsets: TypeAlias = "Mapping[int, int]"
"""Partition → offset of the next record to read."""
Range: TypeAlias = "tuple[int, int, int]"
"""Partition, first offset, end offset."""


@dataclass(frozen=True)
class TopicReader:
    """Reads the sample topic of one cluster between offsets; the same object in this process and on executors."""

    cluster: str
    topic: str
    settings: Mapping[str, str] = field(repr=False)
    resolution_ms: int = 0

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Return the first and the end offset of every partition; KafkaError when the topic cannot be read."""
        with self._consumer() as consumer:
            described = consumer.list_topics(self.topic, timeout=10).topics[self.topic]
            if described.error is not None:
                raise confluent_kafka.KafkaException(described.error)
            places = [confluent_kafka.TopicPartition(self.topic, number) for number in sorted(described.partitions)]
            return {place.partition: consumer.get_watermark_offsets(place, timeout=10) for place in places}

    def offsets_at(self, time_ms: int, ends: Offsets) -> dict[int, int]:
        """Return the first offsets whose records are that young, else the end."""
        with self._consumer() as consumer:
            asked = [confluent_kafka.TopicPartition(self.topic, number, time_ms) for number in ends]
            places = consumer.offsets_for_times(asked, timeout=10)
        return {place.partition: place.offset if place.offset >= 0 else ends[place.partition] for place in places}

    def partitions(self, start: Offsets, end: Offsets) -> list[list[Range]]:
        """Return the work between two offsets as tasks: ranges of partitions, few records together, many apart."""
        tasks, room = list[list[Range]](), 0
        for number in sorted(end):
            first = start.get(number, 0)
            while first < end[number]:
                if room <= 0:
                    tasks.append([])
                    room = _RECORDS_PER_TASK
                count = min(room, end[number] - first)
                tasks[-1].append((number, first, first + count))
                first, room = first + count, room - count
        return tasks

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as batches of `cruise_records.SCHEMA`; an exception ends it with its
        message."""
        reached = {number: first for number, first, _ in ranges}
        ends = {number: end for number, _, end in ranges}
        heard = time.monotonic()
        with self._consumer() as consumer:
            consumer.assign([confluent_kafka.TopicPartition(self.topic, *place) for place in reached.items()])
            while behind := [number for number in ends if reached[number] < ends[number]]:
                messages = consumer.consume(_CONSUME, timeout=1.0)
                if not messages and time.monotonic() - heard > _SILENCE_SECONDS:
                    number = behind[0]
                    raise TimeoutError(f"partition {number} is silent at offset {reached[number]} of {ends[number]}")
                values, places = list[bytes | None](), list[tuple[int, int]]()
                for message in messages:
                    heard, error = time.monotonic(), message.error()
                    if error is not None and error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                        raise confluent_kafka.KafkaException(error)
                    number, offset = int(message.partition() or 0), int(message.offset() or 0)
                    if error is None and offset < ends[number]:
                        values.append(message.value())
                        places.append((number, offset))
                    reached[number] = max(reached[number], offset + (error is None))
                if ready := [number for number in behind if reached[number] >= ends[number]]:
                    consumer.pause([confluent_kafka.TopicPartition(self.topic, number) for number in ready])
                if values:
                    yield decode_records(values, places, self.cluster, CRUISE_CONTROL_TOPIC, self.resolution_ms)

    def _consumer(self) -> _OpenConsumer:
        return _OpenConsumer(self)


@dataclass
class _OpenConsumer:
    """A consumer that is closed at the end, whose errors name the topic."""

    reader: TopicReader

    def __enter__(self) -> confluent_kafka.Consumer:
        self._closing = closing(confluent_kafka.Consumer({**self.reader.settings, **_READER}))
        return self._closing.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._closing.__exit__(kind, error, None)
        if isinstance(error, confluent_kafka.KafkaException):
            reason = error.args[0].str()[:300]
            hint = "check `cruise_control_topic`; Strimzi calls it strimzi.cruisecontrol.partitionmetricsamples"
            raise KafkaError(f"the sample topic {self.reader.topic} cannot be read: {reason}", hint=hint) from error

"""Cruise Control's own sample topic: decoded and appended to the table `samples` by tasks of Spark or in this process,
exactly once.

How far each partition of the topic was read is recorded by the very commit that appends its samples, so there is no
checkpoint to keep: a process that dies between the two loses and repeats nothing, and of two that read the same topic
one goes on behind the other. It joins no group and commits nothing to Kafka. Executors need confluent-kafka, and get
the settings, passwords included, with their tasks.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, cast

import confluent_kafka
import pyarrow as pa

from mm2mgr.errors import KafkaError
from mm2mgr.samples.schema import SAMPLES, Store
from mm2mgr.samples.tables import Conflict, StoredTable
from mm2mgr.samples.writer import Expected, SampleWriter
from mm2mgr.throughput.cruise_records import ONLY_HERE, decode_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mm2mgr.samples.batch import Gathered, Inventory
    from mm2mgr.samples.readers import Opening

CRUISE_CONTROL_TOPIC = "cruise-control-topic"
_REACH_MS = 15 * 86_400_000
_RECORDS_PER_COMMIT = 1_000_000
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


def append(
    reader: TopicReader, start: Offsets, end: Offsets, writer: SampleWriter, spark: SparkSession | None
) -> tuple[int, list[str]]:
    """Append the samples between two offsets in one commit; return their number, and sentences about what was refused.

    On Spark, records are decoded and stored by its tasks; without, by the same two objects here.
    """
    writer.create()
    if spark is None:
        tasks = reader.partitions(start, end)
        return writer.commit([writer.write(reader.read(task)) for task in tasks])
    from mm2mgr.throughput.sample_sources import append_on_spark

    append_on_spark(spark, reader, start, end, writer)
    return writer.report()


# --- as a source of `sample` ------------------------------------------------------------------------------------------


class _Metrics(Protocol):
    cruise_control_topic: str
    cruise_control_interval: float


def open_source(opening: Opening) -> TopicSource:
    """Open the sample topic that is declared; Spark starts when it is read first."""
    declared, settings = cast("_Metrics", opening.metrics), opening.kafka_settings()
    interval_ms = round(declared.cruise_control_interval * 1000)
    reader = TopicReader(opening.access.alias, declared.cruise_control_topic, settings, interval_ms)
    spark = None if opening.spark is False else _shared_spark(opening.java_home, opening.log_file)
    return TopicSource(reader, opening.store, spark)


@cache
def _shared_spark(java_home: Callable[[], Path | None], log_file: Path) -> SharedSpark:
    return SharedSpark(java_home, log_file)


@dataclass
class SharedSpark:
    """One session for all clusters, started when the first needs it."""

    java_home: Callable[[], Path | None] = lambda: None
    log_file: Path | None = None
    running: SparkSession | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)

    def session(self) -> SparkSession:
        """Return the session, which the first call starts."""
        from mm2mgr.throughput.spark_session import session

        with self.starting:
            self.running = self.running or session(self.java_home(), self.log_file)
            return self.running

    def close(self) -> None:
        """End the session, if one was started."""
        with self.starting:
            if self.running is not None:
                from mm2mgr.throughput.spark_session import end

                end(self.running)
                self.running = None


@dataclass(frozen=True)
class TopicSource:
    """Cruise Control's sample topic on one cluster, appended to a store; `spark` None works in this process."""

    reader: TopicReader
    store: Store
    spark: SharedSpark | None = None
    source_prefix: ClassVar[str] = CRUISE_CONTROL_TOPIC

    def close(self) -> None:
        """End Spark, which the clusters share."""
        if self.spark:
            self.spark.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Append what came since the last commit, and yield how many samples that were, commit by commit.

        A topic that the store knows nothing of is read from `since_ms` on (None: all that it has).
        """
        from mm2mgr.samples.batch import Gathered

        names = self._progress_names(inventory)
        table, bounds = StoredTable(self.store, SAMPLES), self.reader.bounds()
        ends = {number: end for number, (_, end) in bounds.items()}
        stored = table.progress(map(names, bounds))
        stored_offsets = {number: stored[names(number)] for number in bounds if names(number) in stored}
        start, notes = self._start(bounds, stored_offsets, since_ms)
        expected = Expected.of(inventory, min(since_ms or until_ms, until_ms - _REACH_MS), until_ms)
        for end in _commits(start, ends):
            progress = {names(number): (start[number], end[number]) for number in end if start[number] < end[number]}
            writer = SampleWriter(self.store, expected, progress, str(uuid.uuid4()), ONLY_HERE)
            try:
                samples, said = append(self.reader, start, end, writer, self.spark.session() if self.spark else None)
            except Conflict as error:
                yield Gathered([], [*notes, error.message])
                return
            start = end
            yield Gathered([], [*notes, *said], samples)
            notes = []
        if notes:
            yield Gathered([], notes)

    def _progress_names(self, inventory: Inventory) -> Callable[[int], str]:
        """Return how the progress of a partition is called in the table: a topic created anew has another name."""
        info = inventory.topics.get(self.reader.topic)
        topic_id = info.topic_id if info else None
        return lambda number: f"mm2mgr {self.reader.cluster} {self.reader.topic} {topic_id or ''} {number}"

    def _start(
        self, bounds: Mapping[int, tuple[int, int]], stored: Offsets, since_ms: int | None
    ) -> tuple[dict[int, int], list[str]]:
        start, notes = {number: low for number, (low, _) in bounds.items()}, list[str]()
        if not stored and since_ms is not None:
            return self.reader.offsets_at(since_ms, {number: end for number, (_, end) in bounds.items()}), []
        expired = sum(max(0, low - stored[number]) for number, (low, _) in bounds.items() if number in stored)
        if expired:
            notes.append(f"{expired} records of {self.reader.topic} expired before they were read")
        for number, offset in stored.items():
            low, end = bounds[number]
            if offset > end:
                notes.append(
                    f"partition {number} of {self.reader.topic} ends at {end}, before what was read ({offset})"
                )
            start[number] = max(low, offset) if offset <= end else end
        return start, notes


def _commits(start: Offsets, ends: Offsets) -> Iterator[dict[int, int]]:
    """Yield the ends of one commit after another, so that a long past is not one commit; none where nothing is due."""
    count = -(-sum(end - start[number] for number, end in ends.items()) // _RECORDS_PER_COMMIT)
    for piece in range(1, count + 1):
        yield {number: start[number] + (end - start[number]) * piece // count for number, end in ends.items()}

"""Cruise Control's own sample topic, read and decoded by Spark straight from Kafka: one task per partition, explicit
offsets.

Samples come slice by slice, with counts of what was skipped. It joins no group and commits nothing. Executors need
confluent-kafka, and get the settings, passwords included, with their tasks. It does not judge whether a value is
believable.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # PySpark's bridge, ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from mm2mgr.errors import KafkaError
from mm2mgr.throughput.spark_session import end, failure, session

if TYPE_CHECKING:
    from mm2mgr.samples.batch import Gathered, Inventory
    from mm2mgr.samples.readers import Opening

CRUISE_CONTROL_TOPIC = "cruise-control-topic"
# Big-endian, after a version byte: leader, CPU, disk MB, in KB/s, out KB/s, (v1: produce, fetch, messages in,
# replication in and out, all per second), sample time in ms, partition; the rest is the topic in UTF-8. KB = 1024 B.
_LAYOUTS = {0: struct.Struct(">bi4dqi"), 1: struct.Struct(">bi9dqi")}
_KIB, _MIB = 1024.0, 1024.0 * 1024.0
_YEAR_3000_MS = 32_503_680_000_000
Range = tuple[int, int, int]
"""Partition, first offset, end offset."""
_VALUES = ("topic", "partition", "time_ms", "bytes_per_second", "records_per_second", "log_bytes")
_KINDS = (pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.float64(), pa.float64())
_SCHEMA = pa.schema([*zip(_VALUES, _KINDS, strict=True), ("fault", pa.string()), ("count", pa.int64())])
_RECORDS_PER_SLICE = 1_000_000
_CONSUME, _SILENCE_SECONDS = 2_000, 30.0
_READER = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never sent: partitions are assigned by hand
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "log_level": 0,  # what goes wrong comes as an error
}


TopicSamples = tuple[Mapping[str, list[object]], Mapping[str, int]]
"""One slice of the topic: columns of the decoded samples by name, and how many records were skipped by reason."""


class _Metrics(Protocol):
    cruise_control_topic: str
    cruise_control_interval: float


def open_source(opening: Opening) -> TopicSource:
    """Open the sample topic that is declared; Spark starts when it is read first."""
    declared = cast("_Metrics", opening.metrics)
    spark, interval_ms = _shared_spark(opening.java_home, opening.log_file), declared.cruise_control_interval * 1000
    return TopicSource(spark, opening.kafka_settings(), declared.cruise_control_topic, round(interval_ms))


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
        with self.starting:
            self.running = self.running or session(self.java_home(), self.log_file)
            return self.running

    def close(self) -> None:
        """End the session, if one was started."""
        with self.starting:
            if self.running is not None:
                end(self.running)
                self.running = None


@dataclass(frozen=True)
class TopicSource:
    """Cruise Control's sample topic on one cluster, decoded by Spark."""

    spark: SharedSpark
    settings: Mapping[str, str] = field(repr=False)
    topic: str
    interval_ms: int
    source_prefix: ClassVar[str] = CRUISE_CONTROL_TOPIC
    delivered: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """By time, whose samples were delivered; the newest moment is read again, since they come in several batches."""

    def close(self) -> None:
        """End Spark, which the clusters share."""
        self.spark.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield the samples from `since_ms` on (None: all that the topic has); those younger than `until_ms` come
        too."""
        from mm2mgr.samples.batch import Gathered, Rows, TopicNames

        if since_ms is None or since_ms < min(
            self.delivered, default=0
        ):  # what was delivered since then was not stored
            self.delivered.clear()
        for columns, skipped_records in topic_samples(self.spark.session(), self.settings, self.topic, since_ms):
            rows = Rows(inventory, CRUISE_CONTROL_TOPIC, self.interval_ms)
            names = TopicNames(inventory, keeps_dots=True)
            values = ("bytes_per_second", "records_per_second", "log_bytes")
            places = zip(*(columns[name] for name in ("topic", "partition", "time_ms", *values)), strict=True)
            for label, partition, time_ms, *row in places:
                topic = names.topic(label)
                if topic is not None and (topic, partition) not in self.delivered.get(time_ms, ()):
                    rows.add(topic, partition, time_ms, dict(zip(values, row, strict=True)))
                    self.delivered.setdefault(time_ms, set()).add((topic, partition))
            for old in sorted(self.delivered)[:-1]:
                del self.delivered[old]
            skipped = [f"{count} records skipped: {reason}" for reason, count in sorted(skipped_records.items())]
            yield Gathered(rows.batches(), [*skipped, *names.notes(), *rows.notes()])


def decode(value: bytes | None) -> dict[str, object] | str:
    """Decode the value of one record into bytes/s, records/s (None in v0) and bytes; the reason when it is no
    sample."""
    if not value:
        return "without a value"
    layout = _LAYOUTS.get(value[0])
    if layout is None:
        return f"of unknown version {value[0]}"
    if len(value) <= layout.size:
        return "cut short"
    _, _, _, disk, bytes_in, *more, time_ms, partition = layout.unpack_from(value)
    try:
        topic = value[layout.size :].decode()
    except UnicodeDecodeError:
        return "with a topic that is not UTF-8"
    if not 0 < time_ms < _YEAR_3000_MS:
        return "without a sample time"
    records = more[3] if value[0] else None
    rates = {"bytes_per_second": bytes_in * _KIB, "records_per_second": records, "log_bytes": disk * _MIB}
    return {"topic": topic, "partition": partition, "time_ms": time_ms, **rates}


def topic_samples(
    spark: SparkSession, settings: Mapping[str, str], topic: str, since_ms: int | None
) -> Iterator[TopicSamples]:
    """Yield the samples from `since_ms` on (None: all that the topic still has) to its end right now, oldest first.

    Record times are sample times, so a start at the newest known sample re-reads that moment: its partitions may have
    come in several batches. KafkaError when the topic cannot be read.
    """
    for ranges in _slices(_ranges(settings, topic, since_ms)):
        yield _collect_samples(
            [pa.ipc.open_stream(packed).read_all() for packed in _read(spark, dict(settings), topic, ranges)]
        )


def _read(spark: SparkSession, settings: dict[str, str], topic: str, ranges: list[Range]) -> list[bytes]:
    """Read each range in a task of its own. Arrow goes as bytes: Spark's own ways to hand it on need pandas."""
    do = F.udf(lambda number: _pack_rows(_range_rows(settings, topic, ranges[number])), BinaryType(), useArrow=False)
    try:
        answers = spark.range(0, len(ranges), 1, len(ranges)).select(do("id").alias("packed")).collect()
    except (PySparkException, Py4JError) as error:
        raise failure(f"Spark could not read {topic}", error) from error
    return [bytes(answer["packed"]) for answer in answers]


def _collect_samples(tables: list[pa.Table]) -> TopicSamples:
    table = pa.concat_tables([_SCHEMA.empty_table(), *tables])
    is_sample = table["fault"].is_null()
    skipped: Counter[str] = Counter()
    for row in table.filter(pc.invert(is_sample)).select(["fault", "count"]).to_pylist():
        skipped[row["fault"]] += row["count"]
    return table.filter(is_sample).select(_VALUES).to_pydict(), skipped


def _ranges(settings: Mapping[str, str], topic: str, since_ms: int | None) -> list[Range]:
    with closing(confluent_kafka.Consumer({**settings, **_READER})) as consumer:
        try:
            described = consumer.list_topics(topic, timeout=10).topics[topic]
            if described.error is not None:
                raise confluent_kafka.KafkaException(described.error)
            places = [confluent_kafka.TopicPartition(topic, number) for number in described.partitions]
            bounds = {place.partition: consumer.get_watermark_offsets(place, timeout=10) for place in places}
            starts = {number: low for number, (low, _) in bounds.items()}
            if since_ms is not None:
                asked = [confluent_kafka.TopicPartition(topic, place.partition, since_ms) for place in places]
                # -1: nothing that young; the end then.
                offsets = {
                    position.partition: position.offset for position in consumer.offsets_for_times(asked, timeout=10)
                }
                starts = {number: bounds[number][1] if offset < 0 else offset for number, offset in offsets.items()}
        except confluent_kafka.KafkaException as error:
            reason = error.args[0].str()[:300]
            hint = "check `cruise_control_topic`; Strimzi calls it strimzi.cruisecontrol.partitionmetricsamples"
            raise KafkaError(f"the sample topic {topic} cannot be read: {reason}", hint=hint) from error
    return [(number, starts[number], high) for number, (_, high) in sorted(bounds.items()) if starts[number] < high]


def _slices(ranges: list[Range]) -> Iterator[list[Range]]:
    """Cut all ranges into equally many pieces, so that no slice is more than the driver should hold at once."""
    count = -(-sum(end - start for _, start, end in ranges) // _RECORDS_PER_SLICE)
    for piece in range(count):
        cut = [
            (number, start + (end - start) * piece // count, start + (end - start) * (piece + 1) // count)
            for number, start, end in ranges
        ]
        yield [piece for piece in cut if piece[1] < piece[2]]


def _range_rows(settings: Mapping[str, str], topic: str, time_range: Range) -> Iterator[dict[str, object]]:
    """Yield the samples of one range, then one row per fault; an exception ends the task with its message."""
    partition, reached, end = time_range
    faults, heard = Counter[str](), time.monotonic()
    with closing(confluent_kafka.Consumer({**settings, **_READER})) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, reached)])
        while reached < end:
            messages = consumer.consume(_CONSUME, timeout=1.0)
            if not messages and time.monotonic() - heard > _SILENCE_SECONDS:
                raise TimeoutError(f"partition {partition} is silent at offset {reached} of {end}")
            for message in messages:
                heard, error, offset = time.monotonic(), message.error(), int(message.offset() or 0)
                if error is not None and error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise confluent_kafka.KafkaException(error)
                reached = max(reached, offset + (error is None))
                if error is None and offset < end:
                    decoded = decode(message.value())
                    if isinstance(decoded, str):
                        faults[decoded] += 1
                    else:
                        yield decoded
    yield from ({"fault": fault, "count": count} for fault, count in faults.items())


def _pack_rows(rows: Iterator[dict[str, object]]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as stream:
        while piece := list(islice(rows, _CONSUME)):
            stream.write_batch(pa.RecordBatch.from_pylist(piece, schema=_SCHEMA))
    return bytes(sink.getvalue().to_pybytes())

"""The table `samples` as a data source: what it leaves out unread, what a sink takes, and batches that come again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import SAMPLES
from mm2mgr.samples.tables import StoredTable, UnreadableFile
from mm2mgr.samples.writer import SampleWriter
from mm2mgr.throughput.cruise_reader import TopicReader
from mm2mgr.throughput.rollup_reader import frame_schema
from mm2mgr.throughput.sample_sources import (
    TOPIC_FORMAT,
    SamplesSource,
    TableReader,
    _StreamWriter,
    _topic_source,
    register_samples,
)
from mm2mgr.throughput.spark_source import RollupSource, ThroughputSink

from .stores import HOUR_MS, START, series, stored

ANY = StructType([])
FRAME = StructType([StructField(name, StringType()) for name in frame_schema().names])
TOPIC = _topic_source(TOPIC_FORMAT, TopicReader("dc1", "samples", {}), None, None)
HOURS = [f"2025-11-21T{hour}" for hour in range(10, 14)]


def store_of_hours(folder: Path) -> Path:
    return stored(folder, series("t", [(hour * 3600 + second, hour) for hour in range(4) for second in (0, 60)]))


@pytest.mark.parametrize(
    ("options", "hours"),
    [
        ({}, HOURS),
        ({"first": HOURS[1]}, HOURS[1:]),
        ({"first": HOURS[1], "last": HOURS[2]}, HOURS[1:3]),
        ({"last": "2"}, []),
    ],
)
def test_hours_that_are_not_asked_for_are_not_read(tmp_path: Path, options: dict[str, str], hours: list[str]) -> None:
    reader = TableReader(str(store_of_hours(tmp_path)), SAMPLES, options)
    parts = reader.partitions()
    assert [file.values[0] for part in parts for file in part.value] == hours
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["time_ms"] for row in rows) == [
        START + HOURS.index(hour) * HOUR_MS + second * 1000 for hour in hours for second in (0, 60)
    ]


def test_a_store_without_the_table_is_an_error_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match=r"there is no table .*samples"):
        TableReader(str(tmp_path), SAMPLES, {}).partitions()


def test_a_damaged_file_is_an_error_and_never_fewer_rows(tmp_path: Path) -> None:
    reader = TableReader(str(store_of_hours(tmp_path)), SAMPLES, {})
    for file in (tmp_path / SAMPLES).glob(f"hour={HOURS[0]}/*.parquet"):
        file.write_bytes(b"no Parquet")
    with pytest.raises(UnreadableFile):
        [list(reader.read(part)) for part in reader.partitions()]


def frame(**columns: list[Any]) -> pa.RecordBatch:
    same = {"cluster": "dc1", "topic": "t", "source": "by-hand"}
    count = len(columns["time_ms"])
    return pa.record_batch(
        {**{name: [value] * count for name, value in same.items()}, "partition": [0] * count, **columns}
    )


def test_a_batch_of_a_stream_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    """Also where it was written, and the driver died before the commit."""
    writer = SampleWriter(tmp_path)
    writer.create()
    batches = [frame(time_ms=[START + number], bytes_per_second=[1.0]) for number in range(3)]

    def rows() -> list[int]:
        table = StoredTable(tmp_path, SAMPLES)
        columns = [table.read_file(file, ["time_ms"])["time_ms"].to_pylist() for file in table.files()]
        return sorted(time_ms - START for column in columns for time_ms in column)

    first = _StreamWriter(writer, "a")
    first.commit([first.write(iter(batches[:1]))], 0)
    _StreamWriter(writer, "a").write(iter(batches[1:2]))  # killed before the commit
    assert rows() == [0]
    for batch_id, batch in ((1, batches[1]), (1, batches[1]), (0, batches[0]), (2, batches[2])):
        again = _StreamWriter(writer, "a")
        again.commit([again.write(iter([batch])), None], batch_id)
    assert rows() == [0, 1, 2]
    other = _StreamWriter(writer, "b")
    other.commit([other.write(iter(batches[:1]))], 0)
    assert rows() == [0, 0, 1, 2]


def test_rows_that_cannot_be_samples_are_left_out_and_counted(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.create()
    batch = frame(time_ms=[START, None, START, 0, START], bytes_per_second=[1.0, 1.0, -1.0, 1.0, None])
    batch = batch.set_column(3, "partition", pa.array([0, 0, 1, 2, -1], pa.int64()))
    samples, notes = writer.commit([writer.write([batch])])
    assert (samples, notes) == (
        1,
        [
            "1 records skipped: without a value that samples need",
            "2 values dropped: 1 negative, 1 of a partition that its topic does not have",
            "1 samples dropped: their time is in the future or long past",
        ],
    )


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        (["topic", "partition", "time_ms", "log_bytes"], "it has no column cluster, source"),
        (["cluster", "topic", "partition", "source", "time_ms"], "none of its columns is a measured value"),
        (
            ["cluster", "topic", "partition", "source", "time_ms", "bytes_per_sec"],
            "the table has no column bytes_per_sec",
        ),
    ],
)
def test_a_frame_of_something_else_is_refused(tmp_path: Path, columns: list[str], wrong: str) -> None:
    with pytest.raises(Mm2mgrError, match=wrong):
        SampleWriter(tmp_path).check(columns)


def test_a_store_that_is_none_is_named() -> None:
    with pytest.raises(Mm2mgrError, match="is a variable not set"):
        SamplesSource({"path": "s3://"}).reader(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (
            lambda options: SamplesSource(options).reader(ANY),
            "mm2mgr.samples has no option perod here: it has first, last",
        ),
        (
            lambda options: SamplesSource(options).writer(ANY, False),
            "mm2mgr.samples has no option perod here: it has none",
        ),
        (lambda options: SamplesSource(options).streamWriter(ANY, False), "no option perod here: it has app"),
        (
            lambda options: ThroughputSink(options).reader(ANY),
            "mm2mgr.throughput has no option perod here: it has first",
        ),
        (lambda options: ThroughputSink(options).writer(FRAME, False), "no option perod here: it has answer"),
        (lambda options: RollupSource(options).reader(ANY), "no option perod here: it has period, since, until, due"),
        (
            lambda options: TOPIC(options).reader(ANY),
            "mm2mgr.cruise-control-topic has no option perod here: it has none",
        ),
        (lambda options: TOPIC(options).streamReader(ANY), "no option perod here: it has none"),
    ],
)
def test_an_option_that_a_format_does_not_have_is_named_with_those_that_it_has(
    tmp_path: Path, use: Callable[[dict[str, str]], object], complaint: str
) -> None:
    given = {"path": str(tmp_path), "checkpointLocation": "c", "queryName": "q", "__of_a_platform": "x"}
    with pytest.raises(Mm2mgrError, match=complaint):
        use({**given, "Perod": "day"})
    complaints = []
    try:
        use(given)
    except Mm2mgrError as another:
        complaints.append(str(another))
    assert "no option" not in "".join(complaints)


@pytest.mark.spark
def test_spark_reads_and_appends_and_a_filter_stays_with_its_query(spark: SparkSession, tmp_path: Path) -> None:
    register_samples(spark)
    store = str(store_of_hours(tmp_path))
    frame = spark.read.format("mm2mgr.samples").load(store)
    assert frame.count() == 8
    (row,) = frame.where(f"hour = '{HOURS[1]}' AND time_ms > {START + HOUR_MS}").collect()
    assert (row.hour, row.cluster, row.topic, row.end_offset, row.bytes_out_per_second) == (
        HOURS[1],
        "dc1",
        "t",
        1,
        None,
    )
    assert spark.read.format("mm2mgr.samples").options(first=HOURS[2]).load(store).count() == 4
    assert spark.read.format("mm2mgr.samples").options(last="2").load(store).count() == 0
    new = frame.selectExpr(
        "cluster", "'u' AS topic", "partition", "'by-hand' AS source", "time_ms", "1.5D AS bytes_per_second"
    )
    new.write.format("mm2mgr.samples").mode("append").save(store)
    with pytest.raises(Exception, match=r"mm2mgr\.samples has no option frist here: it has first, last"):
        spark.read.format("mm2mgr.samples").option("Frist", HOURS[2]).load(store).count()
    again = spark.read.format("mm2mgr.samples").load(store).where("topic = 'u'")
    assert (again.count(), again.selectExpr("sum(bytes_per_second)").first()[0]) == (8, 12.0)  # type: ignore[index]
    with pytest.raises(Exception, match="samples are only appended"):
        new.write.format("mm2mgr.samples").mode("overwrite").save(store)
    with pytest.raises(Exception, match="it has no column source"):
        new.drop("source").write.format("mm2mgr.samples").mode("append").save(store)

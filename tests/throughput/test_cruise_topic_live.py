"""Cruise Control's sample topic on a real broker: decoded and stored exactly once by Spark, by a stream and in process."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession

from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka, TopicInfo
from mm2mgr.samples.batch import Inventory
from mm2mgr.samples.schema import SAMPLES, Store
from mm2mgr.samples.tables import StoredTable
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.throughput import cruise_reader, cruise_topic
from mm2mgr.throughput.cruise_reader import TopicReader
from mm2mgr.throughput.cruise_topic import TopicSource
from mm2mgr.throughput.sample_sources import TOPIC_FORMAT, register_samples, register_topic
from mm2mgr.throughput.warm_session import WarmSpark

from .standalone import BUCKET, environment, s3_server, submit
from .test_any_engine import lines
from .test_cruise_topic import TIME, version_0, version_1

pytestmark = [pytest.mark.live, pytest.mark.spark]
TOPIC, MINUTE, NOW = "__KafkaCruiseControlPartitionMetricSamples", 60_000, TIME + 3_600_000
JUNK = [b"\x07later version", version_1("t", 0, 1, 1, 1)[:30], b"\xff\xff"]
PASSWORD = "hunter2-canary"
MAIN = Path(cruise_topic.__file__).parents[1] / "__main__.py"


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAccess]:
    with Broker("dc1", tmp_path_factory.mktemp("cruise")) as broker:
        access = KafkaAccess("dc1", broker.bootstrap_servers)
        with Kafka(access) as kafka:
            kafka.create_topics({TOPIC: (4, 1, {"retention.ms": "-1"})})  # its records are of an earlier year
        values = []
        for number in range(1500):
            at, bytes_in = TIME + number // 300 * MINUTE, number + 0.25
            old = version_0("a.b", number, 2, bytes_in, at)
            values.append((number % 4, at, old if number % 3 == 0 else version_1("a.b", number, 2, bytes_in, 7.0, at)))
        write(access, [*values, *((number, TIME, junk) for number, junk in enumerate(JUNK))])
        yield access


TREE = """
owner: live
clusters:
  dc1: {{bootstrap_servers: ["{servers}"], metrics: {{cruise_control_topic: {topic}}}}}
  east: {{bootstrap_servers: ["127.0.0.1:1"]}}
connect:
  east: {{url: "http://127.0.0.1:1", kafka: east}}
flows:
  all: {{sources: [dc1], targets: [east], topics: {{include: ["a.*"]}}}}
"""
KILLED_BEFORE_THE_COMMIT = """
import os, signal, sys
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Inventory
from mm2mgr.samples.tables import StoredTable
from mm2mgr.throughput.cruise_topic import TopicSource
from mm2mgr.throughput.cruise_reader import TopicReader

store, servers, topic, now = sys.argv[1:]
StoredTable.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
reader = TopicReader("dc1", topic, {"bootstrap.servers": servers})
known = Inventory("dc1", {"a.b": TopicInfo(1500, "id", False)}, lambda name: True)
list(TopicSource(reader, store).gather(known, None, int(now)))
"""
# A Spark driver that is killed, with its JVM, by the process that commits what its tasks wrote.
DRIVER = """
import os, signal, sys
from pathlib import Path
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Inventory
from mm2mgr.samples.writer import SampleWriter
from mm2mgr.throughput import cruise_topic
from mm2mgr.throughput.cruise_reader import TopicReader
from mm2mgr.throughput.sample_sources import TOPIC_FORMAT, SamplesSource, _StreamWriter, register_topic
from mm2mgr.throughput.spark_session import end, session
from mm2mgr.throughput.warm_session import WarmSpark

way, moment, store, servers, topic, now, folder = sys.argv[1:]
processes = Path(folder, "processes")

def die():
    for process in processes.read_text().split():
        os.kill(int(process), signal.SIGKILL)

class Stream(_StreamWriter):
    def commit(self, messages, batchId):
        if moment != "before":
            super().commit(messages, batchId)
        if moment != "never":
            die()

class Samples(SamplesSource):
    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        return Stream(made._writer, made._app)

class Batch(SampleWriter):
    def commit(self, messages):
        answer = super().commit(messages) if moment != "before" else None
        if moment != "never":
            die()
        return answer

spark = session()
processes.write_text(f"{spark.sparkContext._gateway.proc.pid} {os.getpid()}")
reader = TopicReader("dc1", topic, {"bootstrap.servers": servers}, 60_000)
if way == "stream":
    spark.dataSource.register(Samples)
    register_topic(spark, reader)
    written = spark.readStream.format(TOPIC_FORMAT).load().writeStream.format("mm2mgr.samples").option("app", "cruise")
    query = written.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start(store)
    query.awaitTermination(300)
else:
    cruise_topic.SampleWriter = Batch
    known = Inventory("dc1", {"a.b": TopicInfo(1500, "id", False)}, lambda name: True)
    source = cruise_topic.TopicSource(reader, store if "://" in store else Path(store), WarmSpark(spark=spark))
    print(sum(piece.stored for piece in source.gather(known, None, int(now))))
end(spark)
"""
EXPECTED = {
    (number, TIME + number // 300 * MINUTE, (number + 0.25) * 1024, None if number % 3 == 0 else 14.0 * 1024)
    for number in range(1500)
}
SKIPPED = {f"1 records skipped: {reason}" for reason in ("of unknown version 7", "cut short", "of unknown version 255")}


def write(access: KafkaAccess, values: list[tuple[int, int, bytes]]) -> None:
    """Write (partition, time, value) gzipped and without keys, as Cruise Control does."""
    producer = confluent_kafka.Producer({**librdkafka_config(access), "compression.type": "gzip", "linger.ms": 50})
    for partition, time_ms, value in values:
        producer.produce(TOPIC, value, partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


def reader_of(access: KafkaAccess, topic: str = TOPIC) -> TopicReader:
    # On a connection without a login the client ignores the password, and must show it as little as any other.
    return TopicReader("dc1", topic, {**librdkafka_config(access), "sasl.password": PASSWORD}, MINUTE)


def inventory(access: KafkaAccess) -> Inventory:
    with Kafka(access) as kafka:
        topics = kafka.topics()
    return Inventory("dc1", {**topics, "a.b": TopicInfo(1500, "id", False)}, lambda name: name == "a.b")


def gather(source: TopicSource, access: KafkaAccess, since_ms: int | None = None) -> tuple[int, list[str]]:
    pieces = list(source.gather(inventory(access), since_ms, NOW))
    assert all(not piece.batches for piece in pieces)
    return sum(piece.stored for piece in pieces), [note for piece in pieces for note in piece.notes]


def rows(store: Store, *names: str) -> list[tuple[Any, ...]]:
    table = StoredTable(store, SAMPLES)
    names = names or ("partition", "time_ms", "bytes_per_second", "replication_bytes_out_per_second")
    columns = [table.read_file(file, names).to_pydict() for file in table.files()]
    return [row for each in columns for row in zip(*(each[name] for name in names), strict=True)]


def same_rows(found: Sequence[Any], expected: set[Any]) -> bool:
    return len(found) == len(expected) and set(found) == expected


def test_a_topic_that_is_not_there_is_named(access: KafkaAccess, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="__Other") as caught:
        gather(TopicSource(reader_of(access, "__Other"), tmp_path), access)
    assert "strimzi.cruisecontrol" in str(caught.value.hint)


@pytest.mark.parametrize("engine", ["Spark", "this process"])
def test_all_samples_come_once_junk_is_counted_and_a_second_reading_goes_on(
    spark: SparkSession, access: KafkaAccess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str
) -> None:
    if engine != "Spark":
        monkeypatch.setattr(cruise_topic, "_RECORDS_PER_COMMIT", 500)  # several commits
    monkeypatch.setattr(cruise_reader, "_RECORDS_PER_TASK", 300)
    source = TopicSource(reader_of(access), tmp_path, WarmSpark(spark=spark) if engine == "Spark" else None)
    samples, notes = gather(source, access)
    assert samples == 1500
    assert set(notes) >= SKIPPED
    assert same_rows(rows(tmp_path), EXPECTED)
    assert {row[:3] for row in rows(tmp_path, "cluster", "topic", "topic_id", "time_ms")} == {("dc1", "a.b", "id")}
    assert gather(source, access) == (0, [])
    other = TopicSource(reader_of(access), tmp_path)  # a store goes on with whatever engine
    assert gather(other, access) == (0, [])


def test_a_killed_process_loses_and_doubles_nothing(access: KafkaAccess, tmp_path: Path) -> None:
    """Killed after the files are written and before the commit; then killed after it; then two at the same time."""
    source, known = TopicSource(reader_of(access), tmp_path), inventory(access)
    StoredTable(tmp_path, SAMPLES).create()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_THE_COMMIT, str(tmp_path), access.bootstrap_servers, TOPIC, str(NOW)],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / SAMPLES).glob("hour=*/*.parquet"))
    assert rows(tmp_path) == []
    racing, late = source.gather(known, None, NOW), TopicSource(reader_of(access), tmp_path).gather(known, None, NOW)
    add = StoredTable.add

    def overtaken(*arguments: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StoredTable, "add", add)
            assert next(late).stored == 1500
        return add(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredTable, "add", overtaken)
        assert [piece.stored for piece in racing] == [0]
    assert same_rows(rows(tmp_path), EXPECTED)
    assert gather(source, access) == (0, [])


def test_a_stream_stores_each_batch_once_wherever_it_is_killed(
    spark: SparkSession, access: KafkaAccess, tmp_path: Path
) -> None:
    register_samples(spark)
    register_topic(spark, reader_of(access))
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    frame = spark.readStream.format(TOPIC_FORMAT).load()

    def run(store: Path, **options: str) -> None:
        stream = frame.writeStream.format("mm2mgr.samples").options(**options)
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(store))
        query.awaitTermination(120)

    with pytest.raises(Exception, match="a stream of samples has no name"):
        run(store)
    run(store, app="cruise")
    assert same_rows(rows(store), EXPECTED)
    shutil.rmtree(checkpoint / "commits")  # as if killed between the sink's commit and Spark's own
    run(store, app="cruise")
    assert same_rows(rows(store), EXPECTED)
    assert StoredTable(store, SAMPLES).progress(["stream cruise"]) == {"stream cruise": 0}
    shutil.rmtree(checkpoint / "commits")  # as if killed before the sink's commit: this store has nothing of the batch
    run(tmp_path / "other", app="cruise")
    assert same_rows(rows(tmp_path / "other"), EXPECTED)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written


@pytest.mark.matrix
@pytest.mark.parametrize("place", ["a folder", "S3"])
@pytest.mark.parametrize("way", ["stream", "sample"])
def test_a_spark_driver_killed_around_its_commit_stores_each_sample_once(
    access: KafkaAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, way: str
) -> None:
    """Killed after the tasks wrote and before the commit; started again and killed after it; then left in peace."""
    store: Store = f"s3://{BUCKET}/mm2mgr" if place == "S3" else tmp_path / "store"
    with s3_server(tmp_path, monkeypatch) if place == "S3" else nullcontext():
        for moment, committed in (("before", 0), ("after", 1500), ("never", 1500)):
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    DRIVER,
                    way,
                    moment,
                    str(store),
                    access.bootstrap_servers,
                    TOPIC,
                    str(NOW),
                    tmp_path,
                ],
                env=environment(PYTHONPATH=str(MAIN.parents[1])),
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == (0 if moment == "never" else -signal.SIGKILL), done.stdout + done.stderr
            assert len(rows(store)) == committed
            if moment == "before":
                files = StoredTable(store, SAMPLES).filesystem.get_file_info(FileSelector("", recursive=True))
                assert [file.path for file in files if file.path.endswith(".parquet")], "its tasks had written"
        assert same_rows(rows(store), EXPECTED)


def test_no_plan_option_or_error_has_the_password(
    spark: SparkSession, access: KafkaAccess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    register_samples(spark)
    register_topic(spark, reader_of(access))
    frame = spark.read.format(TOPIC_FORMAT).load()
    frame.explain("extended")
    frame.explain("formatted")
    plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    register_topic(spark, reader_of(access, "__Other"))
    with pytest.raises(Exception, match="__Other") as caught:
        spark.read.format(TOPIC_FORMAT).load().collect()
    shown = "".join([*capfd.readouterr(), plan, str(caught.value), repr(spark.sparkContext.getConf().getAll())])
    assert "cruise-control-topic" in shown
    assert PASSWORD not in shown
    source = TopicSource(reader_of(access, "__Other"), tmp_path, WarmSpark(spark=spark))
    with pytest.raises(Mm2mgrError) as refused:
        gather(source, access)
    assert PASSWORD not in repr((refused.value, source))


def test_a_frame_of_the_topic_answers_questions_that_the_table_cannot(spark: SparkSession, access: KafkaAccess) -> None:
    register_topic(spark, reader_of(access))
    frame = spark.read.format(TOPIC_FORMAT).load()
    assert frame.where("skipped IS NOT NULL").count() == len(JUNK)
    (row,) = frame.where("partition = 1 AND skipped IS NULL").collect()
    assert (row.leader, row.cpu, row.produce_requests_per_second) == (3, 0.5, 11.0)


# The same reading and writing by Spark in this process, above, and the command on Spark in cli/test_throughput.py are the gate's samples.
@pytest.mark.parametrize(
    "engine", ["--no-spark", *(pytest.param(way, marks=pytest.mark.matrix) for way in ("--spark", "executors"))]
)
def test_the_command_follows_the_topic_and_goes_on_after_it_was_stopped(
    access: KafkaAccess, tmp_path: Path, engine: str
) -> None:
    """Played as people type it: a first run, new samples, and a second run, in processes of their own."""
    with Kafka(access) as kafka:
        if "a.c" not in kafka.topics():
            kafka.create_topics({"a.c": (1, 1, {})})
    now = time.time_ns() // 1_000_000
    Path(tmp_path, "clusters").mkdir()
    Path(tmp_path, "clusters", "tree.yaml").write_text(TREE.format(servers=access.bootstrap_servers, topic=TOPIC))
    for number in (1, 2):
        write(access, [(0, now, version_1("a.c", 0, 1, float(number), 1.0, now + number))])
        words = ["sample", "--from", "cruise-control-topic", "--duration", "0s", "--store", "store"]
        command = (
            submit("local-cluster[2,1,1024]", MAIN, *words)
            if engine == "executors"
            else [sys.executable, "-m", "mm2mgr", *words, engine]
        )
        done = subprocess.run(
            command,
            env=environment() if engine == "executors" else None,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout + done.stderr  # spark-submit makes one of the two
        assert "records skipped: of unknown version 7" in printed or number == 2
        assert ("is read in this process (--no-spark)" in printed) is (engine == "--no-spark")
    times = [time_ms - now for _, time_ms in rows(tmp_path / "store", "topic", "time_ms") if time_ms >= now]
    assert sorted(times) == [1, 2]


def test_the_lines_of_the_page_answer_for_the_topic(
    spark: SparkSession,
    access: KafkaAccess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clusters").mkdir()
    Path("clusters", "tree.yaml").write_text(TREE.format(servers=access.bootstrap_servers, topic=TOPIC))
    exec(lines("Cruise Control's topic"), {"spark": spark})
    assert re.search(r"3\|\s*0\.5\|", capsys.readouterr().out)

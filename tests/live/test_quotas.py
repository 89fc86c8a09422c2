"""Quotas on real brokers: a catch-up limit that holds a backlog of two tasks, or a flow below what is produced, and the capacity of
a task that a quota holds down.

The capacity is found from its committed offsets; a task that keeps up has none.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.evidence.measured import settings_mark, task_measurements
from mm2mgr.evidence.task_rates import RecentLogs, TaskWatch, remember_compacted, task_readers
from mm2mgr.json_values import to_json
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import find_compacted
from mm2mgr.kafka.quotas import QuotaEntity, read_quotas, write_quotas
from mm2mgr.kafka.records import Producer
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.reading import Patience
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.kind import LiveProblem
from mm2mgr.problems.status import status
from mm2mgr.samples.follow import Reader, Round, Schedule, follow
from mm2mgr.samples.readers import KafkaReader, RecordSizes
from mm2mgr.samples.store import SampleStore, TaskRow, TaskStore
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sizing.capacity import Pace, Saturated, find_saturation

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import connector_url, create, rest, task_configs, until
from .traffic import Traffic

pytestmark = pytest.mark.live
LIMIT = 2_000_000  # bytes per second
RECORD_BYTES, PARTITIONS = 10_000, 4
BACKLOG_BYTES = 60_000_000
# As shipped (11), brokers let ten seconds' worth through at once, and then nothing for ten seconds.
EVENLY = {"quota.window.num": "2"}
MEASURED_SECONDS = 10.0
OURS, FOREIGN = QuotaEntity("mm2mgr.test/backlog:src->tgt"), QuotaEntity("web")
PLAIN = "checkpoints: false, heartbeats: false, "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("quotas"), runtime, workers=["w"], brokers=EVENLY) as pair:
        yield pair


def fill(access: KafkaAccess, topic: str, partitions: int, records: int) -> None:
    """Write a backlog that does not compress, to all partitions in turn."""
    noise = random.Random(20261123).randbytes(RECORD_BYTES * 50)
    with Producer(access, timeout_seconds=60) as producer:
        for number in range(records):
            start = number % 40 * RECORD_BYTES
            producer.send(TopicPartition(topic, number % partitions), noise[start : start + RECORD_BYTES])


def arrived(kafka: Kafka) -> int:
    """Return the bytes of the backlog that arrived."""
    ends = kafka.offsets([TopicPartition("src.backlog", number) for number in range(PARTITIONS)])
    return sum(each.end for each in ends.values()) * RECORD_BYTES


def rate(kafka: Kafka) -> float:
    """Return the bytes per second that arrive from now on."""
    began, first = time.monotonic(), arrived(kafka)
    until(lambda: time.monotonic() - began, lambda seconds: seconds > MEASURED_SECONDS, "time stands still")
    return (arrived(kafka) - first) / (time.monotonic() - began)


def test_a_backlog_arrives_at_the_limit_and_faster_without_it(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["backlog"], PARTITIONS)
    fill(pair.source, "backlog", PARTITIONS, BACKLOG_BYTES // RECORD_BYTES)
    write_quotas(pair.target, {FOREIGN: 5_000_000})
    tree.write(pair.yaml("test", flow("backlog", "backlog", ", tasks: {max: 2}, catch_up: {limit: 2MB/s}"), PLAIN))
    planned = tree.run("plan", "--detailed-exitcode", code=2)
    assert f"+ create  client id {OURS.client_id}  2 MB/s over 1 broker: 2 MB/s each" in planned
    tree.run("apply", "--yes")
    assert read_quotas(pair.target).rates == {FOREIGN: 5e6, OURS: 2e6}
    tree.run("plan", "--detailed-exitcode")
    assert len(task_configs(pair.url, "mm2.src.tgt.source.backlog")) == 2

    with Kafka(pair.target) as kafka:
        until(lambda: arrived(kafka), lambda now: now > 2 * LIMIT, "nothing arrives")
        limited = rate(kafka)
        print(f"with the limit of {LIMIT / 1e6:g} MB/s: {limited / 1e6:.2f} MB/s")
        assert LIMIT / 2 < limited < 1.15 * LIMIT, "brokers let nothing through above it; a busy machine may send less"

        assert "Drift: none" in tree.run("drift")
        write_quotas(pair.target, {OURS: 1_900_000})
        drifted = tree.run("drift", code=2)
        assert f"{OURS}: 2 MB/s -> 1.9 MB/s on each broker\n" in drifted, "the history has what was applied"
        assert "2 MB/s over 1 broker: 1.9 MB/s -> 2 MB/s each" in tree.run("plan", "--detailed-exitcode", code=2)

        tree.write(pair.yaml("test", flow("backlog", "backlog", ", tasks: {max: 2}"), PLAIN))
        assert f"- delete  client id {OURS.client_id}" in tree.run("plan")
        tree.run("apply", "--yes", "--wait", "0")
        began, first = time.monotonic(), arrived(kafka)
        # A second backlog: on a busy machine the rest of the first one arrives while apply ends.
        fill(pair.source, "backlog", PARTITIONS, BACKLOG_BYTES // RECORD_BYTES)
        until(lambda: arrived(kafka), lambda now: now >= 2 * BACKLOG_BYTES, "the backlogs do not arrive")
        free = (2 * BACKLOG_BYTES - first) / (time.monotonic() - began)
        print(f"without: {free / 1e6:.2f} MB/s")
        assert free > 1.3 * LIMIT, "more than brokers let through under it"
    assert read_quotas(pair.target).rates == {FOREIGN: 5e6}
    recorded = [entry for entry in tree.json("history")["entries"] if entry["connector"] == str(OURS)]
    assert [(entry["action"], entry["outcome"]) for entry in recorded] == [("create", "done"), ("delete", "done")]
    tree.run("plan", "--detailed-exitcode")


def test_a_flow_that_is_slower_than_production_is_told_until_production_ends(
    pair: Pair, tree: Tree, tmp_path: Path
) -> None:
    create(pair.source, ["swift"])
    limited = flow("swift", "swift", ", tasks: {max: 1}, catch_up: {limit: 500kB/s}")
    tree.write(pair.yaml("swift", limited, PLAIN, workers=", flush_interval: 1s"))
    tree.run("apply", "--yes", "--wait", "0")
    workspace = tree.workspace()
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(slower_seconds=5))

    def problems() -> dict[str, LiveProblem]:
        seen = asyncio.run(status(workspace.topology, workspace.connectors, options=options))
        return {one.kind: one for one in seen.problems()}

    with Traffic(pair.source, ["swift"], records_per_second=1_000, record_bytes=1_000):
        told = until(problems, lambda found: found.keys() == {"slower-than-production"}, "the lag grows")
    evidence = to_json(told["slower-than-production"].evidence)
    assert evidence["mirrored_records_per_second"] < evidence["produced_records_per_second"]
    until(problems, lambda found: not found, "the lag shrinks")


# --- the capacity of a task -------------------------------------------------------------------------------------------

HELD_BYTES_PER_SECOND, HELD_RECORDS = 600_000, 3_600  # a minute at the quota
SUSTAINED_SECONDS, DEADLINE_SECONDS = 20.0, 150.0
OVER_MS = 20_000  # without a lagging moment: what was there to carry is carried
SLOW, QUICK = "mm2.src.tgt.source.slow", "mm2.src.tgt.source.quick"


def committed_records(pair: Pair, name: str) -> int:
    """Return how many records of a connector are in its committed offsets."""
    found = rest("GET", connector_url(pair.url, name, "/offsets"))["offsets"]
    return sum(one["offset"]["offset"] + 1 for one in found if one["offset"])


def watch(pair: Pair, workspace: Workspace, folder: Path) -> TaskStore:
    """Sample as `mm2mgr sample` does, only more often, until what lagged has caught up or the time is over."""
    recent, store = RecentLogs(60), TaskStore(folder, print)
    pace = Pace(every_seconds=2, margin_seconds=4, gap_seconds=15)
    compacted = remember_compacted(lambda _, topics: find_compacted(pair.source, topics))
    tasks = task_readers(workspace.topology.flows, TaskWatch(recent, store, compacted, pace, timeout_seconds=5))
    stop, ends_at = threading.Event(), time.monotonic() + DEADLINE_SECONDS

    def progress(round_: Round) -> None:
        assert not round_.failures
        rows, now_ms = store.read(), time.time_ns() // 1_000_000
        over = found(rows) is not None and rows[-1].time_ms < now_ms - OVER_MS
        if over or time.monotonic() > ends_at:
            stop.set()

    readers: list[Reader] = [KafkaReader(pair.source, sizes=RecordSizes(30), heard=recent.take), *tasks]
    follow(readers, Schedule(1.0, None), SampleStore(folder), progress, stop)
    return store


def found(rows: list[TaskRow]) -> Saturated | None:
    return find_saturation(task_measurements(rows), SUSTAINED_SECONDS)


def test_a_task_that_a_quota_holds_down_is_measured_and_one_that_keeps_up_is_not(
    pair: Pair, tree: Tree, tmp_path: Path
) -> None:
    create(pair.source, ["slow"], partitions=2)
    create(pair.source, ["quick"])
    fill(pair.source, "slow", 2, HELD_RECORDS)
    write_quotas(pair.target, {QuotaEntity(f"connector-producer-{SLOW}-0"): HELD_BYTES_PER_SECOND})
    flows = flow("slow", "slow", ", tasks: {max: 1}") + flow("quick", "quick", ", tasks: {max: 1}")
    tree.write(pair.yaml("capacity", flows, PLAIN))
    tree.run("apply", "--yes")
    with Traffic(pair.source, ["quick"], records_per_second=20, record_bytes=500):
        # A quota lets its first two seconds' worth pass at once, which no task could go on with.
        until(lambda: committed_records(pair, SLOW), lambda n: n * RECORD_BYTES > 6 * HELD_BYTES_PER_SECOND, "begun")
        workspace = tree.workspace()
        rows = watch(pair, workspace, tmp_path / "store").read()
        until(lambda: committed_records(pair, QUICK), lambda n: n > 200, "the other connector carries")
    assert {row.connector for row in rows} == {SLOW}
    assert {row.settings for row in rows} == {
        settings_mark(one.config) for one in workspace.connectors if one.name == SLOW
    }
    held = found(rows)
    assert held is not None
    print(f"measured {held.bytes_per_second:.0f} B/s over {held.seconds:.0f} s, quota {HELD_BYTES_PER_SECOND}")
    # A lower quartile: never above the quota, and on a busy machine below it.
    assert 0.6 <= held.bytes_per_second / HELD_BYTES_PER_SECOND <= 1.05


def test_compacted_topics_are_told(pair: Pair) -> None:
    with Kafka(pair.source) as kafka:
        kafka.create_topics({"kept": (1, 1, {"cleanup.policy": "compact,delete"})})
    assert find_compacted(pair.source, ["kept", "gone"]) == frozenset({"kept"})

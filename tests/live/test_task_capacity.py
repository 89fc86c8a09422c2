"""The capacity of a real task, held down by a broker's quota, is found from its committed offsets; who keeps up has none."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mm2mgr.evidence.connect_tasks import RecentLogs, TaskWatch, TopicConfigs, task_readers
from mm2mgr.evidence.measured import settings_mark, task_measurements
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import compacted
from mm2mgr.kafka.quotas import QuotaEntity, write_quotas
from mm2mgr.kafka.records import Producer
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.follow import Reader, Round, Schedule, follow
from mm2mgr.samples.offsets import KafkaReader, RecordSizes
from mm2mgr.samples.store import SampleStore, TaskRow, TaskStore
from mm2mgr.sandbox.server import Runtime
from mm2mgr.sizing.capacity import Pace, Saturated, saturated

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import connector_url, create, rest, until

pytestmark = pytest.mark.live
QUOTA_BYTES_PER_SECOND = 1_500_000
RECORD_BYTES, RECORDS = 10_000, 12_000  # 80 s at the quota
SUSTAINED_SECONDS, DEADLINE_SECONDS = 20.0, 150.0
OVER_MS = 20_000  # without a lagging moment: what was there to carry is carried
SLOW, QUICK = "mm2.src.tgt.source.slow", "mm2.src.tgt.source.quick"


@dataclass(frozen=True)
class World(Pair):
    tree: Tree


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("capacity")
    with serving_pair(folder, runtime, workers=["w"]) as pair:
        write_quotas(pair.target, {QuotaEntity(f"connector-producer-{SLOW}-0"): QUOTA_BYTES_PER_SECOND})
        world = World(pair.src, pair.tgt, pair.workers, Tree(folder / "clusters"))
        flows = flow("slow", "slow", ", tasks: {max: 1}") + flow("quick", "quick", ", tasks: {max: 1}")
        world.tree.write(world.yaml("test", flows, "checkpoints: false, heartbeats: false, "))
        yield world


def fill(access: KafkaAccess) -> None:
    """Write a backlog that does not compress into both partitions of `slow`."""
    noise = random.Random(20261121).randbytes(RECORD_BYTES * 50)
    with Producer(access, timeout_seconds=60) as producer:
        for number in range(RECORDS):
            start = number % 40 * RECORD_BYTES
            producer.send(TopicPartition("slow", number % 2), noise[start : start + RECORD_BYTES])


@contextmanager
def trickle(access: KafkaAccess) -> Iterator[None]:
    """Write twenty records a second to `quick` meanwhile."""
    over = threading.Event()

    def write() -> None:
        with Producer(access, timeout_seconds=30) as producer:
            while not over.wait(0.05):
                producer.send(TopicPartition("quick", 0), b"x" * 500)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def committed_records(world: World, name: str) -> int:
    """Return how many records of a connector are in its committed offsets."""
    found = rest("GET", connector_url(world.url, name, "/offsets"))["offsets"]
    return sum(one["offset"]["offset"] + 1 for one in found if one["offset"])


def watch(world: World, workspace: Workspace, folder: Path) -> TaskStore:
    """Sample as `mm2mgr sample` does, only more often, until what lagged has caught up or the time is over."""
    recent, store = RecentLogs(60), TaskStore(folder, print)
    pace = Pace(every_seconds=2, margin_seconds=4, gap_seconds=15)
    configs = TopicConfigs(lambda _, topics: compacted(world.source, topics))
    tasks = task_readers(workspace.topology.flows, TaskWatch(recent, store, configs.compacted, pace, timeout_seconds=5))
    stop, ends_at = threading.Event(), time.monotonic() + DEADLINE_SECONDS

    def progress(round_: Round) -> None:
        assert not round_.failures
        rows, now_ms = store.read(), time.time_ns() // 1_000_000
        over = found(rows) is not None and rows[-1].time_ms < now_ms - OVER_MS
        if over or time.monotonic() > ends_at:
            stop.set()

    readers: list[Reader] = [KafkaReader(world.source, sizes=RecordSizes(30), heard=recent.take), *tasks]
    follow(readers, Schedule(1.0, None), SampleStore(folder), progress, stop)
    return store


def found(rows: list[TaskRow]) -> Saturated | None:
    return saturated(task_measurements(rows), SUSTAINED_SECONDS)


def test_a_task_that_a_quota_holds_down_is_measured_and_one_that_keeps_up_is_not(world: World, tmp_path: Path) -> None:
    create(world.source, ["slow"], partitions=2)
    create(world.source, ["quick"])
    fill(world.source)
    world.tree.run("apply", "--yes")
    with trickle(world.source):
        # A quota lets its first ten seconds' worth pass at once, which no task could go on with.
        until(lambda: committed_records(world, SLOW), lambda n: n * RECORD_BYTES > 14 * QUOTA_BYTES_PER_SECOND, "begun")
        workspace = world.tree.workspace()
        rows = watch(world, workspace, tmp_path / "store").read()
        until(lambda: committed_records(world, QUICK), lambda n: n > 200, "the other connector carries")
    assert {row.connector for row in rows} == {SLOW}
    assert {row.settings for row in rows} == {
        settings_mark(one.config) for one in workspace.connectors if one.name == SLOW
    }
    held = found(rows)
    assert held is not None
    print(f"measured {held.bytes_per_second:.0f} B/s over {held.seconds:.0f} s, quota {QUOTA_BYTES_PER_SECOND}")
    # A lower quartile: never above the quota, and on a busy machine below it.
    assert 0.6 <= held.bytes_per_second / QUOTA_BYTES_PER_SECOND <= 1.05


def test_compacted_topics_are_told(world: World) -> None:
    with Kafka(world.source) as kafka:
        kafka.create_topics({"kept": (1, 1, {"cleanup.policy": "compact,delete"})})
    assert compacted(world.source, ["kept", "gone"]) == frozenset({"kept"})

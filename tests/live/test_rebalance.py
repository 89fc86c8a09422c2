"""`rebalance --apply` on two real workers with the plugin: the tasks are as planned, and carry what was predicted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned, spread
from mm2mgr.assignment_text import ASSIGNMENT_KEY
from mm2mgr.kafka.records import Producer
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .record_ids import read_ids
from .seen import config_of, create, statuses, task_configs, topics, until

pytestmark = [pytest.mark.live, pytest.mark.matrix]
NAME = "mm2.src.tgt.source.even"
TOPICS = {f"t{number}": 4 for number in range(6)}
ALL = tuple(TopicPartition(topic, number) for topic in TOPICS for number in range(TOPICS[topic]))
# Records in each turn: dealt in turn over four tasks, the first partitions of all topics meet in task 0.
WEIGHTS = {partition: (9, 2, 1, 1)[partition.partition] + place % 3 for place, partition in enumerate(ALL)}
VALUE = b"x" * 1_000
HOUR_MS = 3_600_000
QUIET = "checkpoints: false, heartbeats: false, "


def running(url: str) -> Assignment:
    """Return the assignment of the tasks that run."""
    return Assignment(tuple(parse_assigned(task[ASSIGNED_KEY]) for task in task_configs(url, NAME)))


def assigned(judged: dict[str, Any]) -> Assignment:
    """Return the assignment that is planned."""
    tasks = judged["plan"]["assignment"]
    return Assignment(tuple(tuple(TopicPartition(*partition) for partition in task) for task in tasks))


def arrived(pair: Pair) -> dict[TopicPartition, int]:
    remote = {TopicPartition(f"src.{topic}", number): TopicPartition(topic, number) for topic, number in ALL}
    there = topics(pair.target)
    records = read_ids(pair.target, [partition for partition in remote if partition.topic in there])
    return dict.fromkeys(ALL, 0) | {remote[partition]: len(ids) for partition, ids in records.items()}


def carried(pair: Pair, turns: int) -> list[float]:
    """Produce so many turns, wait until all is there, and return the records that each task mirrored."""
    tasks, before = running(pair.url), arrived(pair)
    with Producer(pair.source, timeout_seconds=60) as producer:
        for _ in range(turns):
            for partition, weight in WEIGHTS.items():
                for _ in range(weight):
                    producer.send(partition, VALUE)
    total = sum(before.values()) + turns * sum(WEIGHTS.values())
    after = until(lambda: arrived(pair), lambda counts: sum(counts.values()) >= total, "records are missing")
    assert sum(after.values()) == total
    assert running(pair.url) == tasks
    return tasks.loads({partition: float(after[partition] - before[partition]) for partition in ALL})


def test_tasks_are_as_planned_and_carry_what_was_predicted(tmp_path: Path, tree: Tree) -> None:
    """24 skewed partitions, two workers, four tasks; records are counted per task before and after."""
    write_plugin(tmp_path / "plugins" / "mm2mgr")
    settings = {**WORKER, "plugin.path": str(tmp_path / "plugins")}
    with serving_pair(tmp_path, settings=settings) as pair:
        create(pair.source, list(TOPICS), 4)
        more = ", tasks: {max: 4, capacity: 100kB/s}, balance: plugin"
        tree.write(pair.yaml("even", flow("even", '"t[0-9]"', more), QUIET, workers=", workers: {count: 2}"))
        tree.run("apply", "--yes")
        until(lambda: running(pair.url), lambda tasks: len(tasks.tasks) == 4, "no four tasks")
        rates = {("src", *partition): 1_000.0 * weight for partition, weight in WEIGHTS.items()}
        end_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
        store = str(measured(tmp_path / "store", *[rates] * 3, end_ms=end_ms))
        before = carried(pair, 20)
        arguments = ("rebalance", "--store", store)
        (judged,) = json.loads(tree.run(*arguments, "-o", "json", code=2))["flows"]
        print(tree.run(*arguments, "--apply", "--yes"))
        tree.run("plan", "--detailed-exitcode")  # 0: nothing is to be applied
        planned = assigned(judged)
        assert [sorted(task) for task in running(pair.url).tasks] == [sorted(task) for task in planned.tasks]
        assert {task["worker_id"] for task in statuses(pair.url)[NAME]["tasks"]} == {
            worker.url.removeprefix("http://") for worker in pair.workers
        }
        after = carried(pair, 20)
        predicted = [task["bytes_per_second"] for task in judged["plan"]["tasks"]]
        shares = [load / sum(after) for load in after]
        expected = [load / sum(predicted) for load in predicted]
        print(f"records per task before {before}, after {after}; predicted {predicted}")
        print(f"busiest ÷ mean: before {spread(before):.3f}, after {spread(after):.3f}")
        assert shares == pytest.approx(expected, rel=0.1)
        assert spread(before) >= 1.5
        assert spread(after) <= 1.1
        text = config_of(pair.url, NAME)[ASSIGNMENT_KEY]
        assert json.loads(tree.run(*arguments, "--apply", "--yes", "-o", "json"))["applied"] is None
        assert config_of(pair.url, NAME)[ASSIGNMENT_KEY] == text
        assert "rebalance" in tree.run("history")

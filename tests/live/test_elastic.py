"""`tasks: {elastic: true}` on real brokers and a worker with the plugin: up at once before the peak of the week, down one step after it.

The weeks are written to the store, so that the peak is in the next hours, or far away; records with ids go through meanwhile.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mm2mgr.assignment import ASSIGNED_KEY, parse_assigned
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from mm2mgr.weeks import WEEK_HOURS
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .record_ids import prove, read_ids
from .seen import config_of, create, task_configs, until
from .traffic import Entry, producing

pytestmark = [pytest.mark.live, pytest.mark.matrix]
NAME, FLOW = "mm2.src.tgt.source.weekly", "weekly:src->tgt"
ALL = [TopicPartition("orders", number) for number in range(12)]
# Every second partition is busy, so that tasks dealt in turn are uneven; two of 70 kB/s usable are enough, or six at the peak.
QUIET = {("src", *partition): (9_000.0, 3_000.0)[partition.partition % 2] for partition in ALL}
PEAK = {partition: 5 * rate for partition, rate in QUIET.items()}
HOUR_MS = 3_600_000
TASKS = ", tasks: {limit: 8, capacity: 100kB/s, elastic: true}"
BALANCE = ", balance: {by: plugin, automatic: [schedule], rounds_per_day: 4, cool_down: 1s}"


def weeks(folder: Path, *peak_in_hours: int) -> str:
    """Return a store of two weeks and a bit, each with its peak in the hours that are so many from now."""
    this_hour = time.time_ns() // 1_000_000 // HOUR_MS
    peaks = {(this_hour + hours) % WEEK_HOURS for hours in peak_in_hours}
    rates = [PEAK if hour % WEEK_HOURS in peaks else QUIET for hour in range(this_hour - 2 * WEEK_HOURS - 6, this_hour)]
    return str(measured(folder, *rates, end_ms=this_hour * HOUR_MS))


def loads(pair: Pair) -> list[int]:
    """Return the load of each task of the connector, a quiet partition as 1 and a busy one as 3."""
    tasks = (parse_assigned(task[ASSIGNED_KEY]) for task in task_configs(pair.url, NAME))
    return sorted(sum((3, 1)[partition.partition % 2] for partition in task) for task in tasks)


def sized(tree: Tree, store: str) -> str:
    """Run `size`, as every hour, and return what it wrote of the flow."""
    tree.run("size", "--store", store)
    return str(yaml.safe_load(sizing_file(tree).read_text())["sizing"][FLOW])


def sizing_file(tree: Tree) -> Path:
    return tree.folder / "overrides" / "sizing.yaml"


def reconcile_until(tree: Tree, pair: Pair, store: str, tasks: int, busiest: int) -> None:
    """Reconcile, as cron does, until so many tasks run, the busiest with this load, and nothing is left to be written."""
    arguments = ("reconcile", "--rebalance", "--store", store, "--once")
    until(
        lambda: (tree.attempt(*arguments), loads(pair), config_of(pair.url, NAME)["tasks.max"]),
        lambda seen: (len(seen[1]), max(seen[1], default=0), seen[2]) == (tasks, busiest, str(tasks)),
        f"there are not {tasks} tasks, the busiest with {busiest}",
    )
    tree.run("plan", "--detailed-exitcode")


def test_tasks_grow_before_the_peak_of_the_week_and_shrink_one_step_after_it(tmp_path: Path, tree: Tree) -> None:
    write_plugin(tmp_path / "plugins" / "mm2mgr")
    settings = {**WORKER, "plugin.path": str(tmp_path / "plugins")}
    ids = itertools.count()

    def entries() -> Iterator[Entry]:
        for partition in ALL:
            id_ = b"%d" % next(ids)
            yield partition, b"value " + id_, id_

    with serving_pair(tmp_path, workers=("first",), settings=settings) as pair:
        create(pair.source, ["orders"], len(ALL))
        quiet = "checkpoints: false, heartbeats: false, "
        tree.write(pair.yaml("even", flow("weekly", "orders", TASKS + BALANCE), quiet, workers=", workers: {count: 1}"))
        far, near = weeks(tmp_path / "far", 100, 101), weeks(tmp_path / "near", 1, 2)
        assert "'tasks_max': 2," in sized(tree, far)
        tree.run("apply", "--yes")
        until(lambda: loads(pair), lambda tasks: tasks == [6, 18], "not two tasks, dealt in turn")
        with producing(pair.source, entries, 0.1):
            reconcile_until(tree, pair, far, 2, 12)
            grown = sized(tree, near)
            assert "'tasks_max': 6," in grown
            assert "Elastic: sized for the coming 24 hours" in grown
            began = time.monotonic()
            reconcile_until(tree, pair, near, 6, 4)
            print(f"six tasks after {time.monotonic() - began:.0f} s")
            assert "the last change was less than 20 h ago" in sized(tree, far), "one step a night"
            path = sizing_file(tree)
            path.write_text(re.sub("changed: .*", "changed: '2025-01-01T00:00:00Z'", path.read_text()))
            shrunk = sized(tree, far)
            assert "'tasks_max': 5," in shrunk
            assert "'holds_until'" in shrunk
            reconcile_until(tree, pair, far, 5, 6)
            assert "'tasks_max': 5," in sized(tree, far)
            tree.run("plan", "--detailed-exitcode")
        history = json.dumps(tree.json("history"))
        print(tree.run("history", "--full"))
        for tasks in (6, 5):
            assert f"elastic, and the tree has {tasks} tasks for the coming hours" in history
        source = read_ids(pair.source, ALL)
        remote = [TopicPartition(f"src.{partition.topic}", partition.partition) for partition in ALL]
        proofs = until(
            lambda: prove(source, read_ids(pair.target, remote), "src."),
            lambda proofs: not any(proof.missing for proof in proofs),
            "records are missing",
        )
        total, twice = sum(proof.records for proof in proofs), sum(proof.duplicated for proof in proofs)
        print(f"{total} records, none lost, {twice} twice")
        assert total > 100
        assert not any(proof.unexpected for proof in proofs)

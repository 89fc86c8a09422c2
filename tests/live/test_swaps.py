"""Stock class → plugin → assignment by load → lanes → stock, and plugin → stock, by `mm2mgr apply` and `rebalance` under traffic.

Every record has an id: none is lost; with exactly once each is there once; with at least once a record is there twice only where a
worker's log tells of a task that did not stop cleanly.
"""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned
from mm2mgr.assignment_text import DIGEST_KEY, PLUGIN_CLASS
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .record_ids import PartitionProof, prove, read_ids
from .seen import create, log_texts, task_configs, until
from .traffic import producing

pytestmark = [pytest.mark.live, pytest.mark.matrix]
OLDEST = "3.6.2"
NAME = "mm2.src.tgt.source.swapped"
LANE = f"{NAME}.heavy"
TOPICS = {"orders": 8, "a.b_c-1": 4}
ALL = [TopicPartition(topic, number) for topic in sorted(TOPICS) for number in range(TOPICS[topic])]
TASKS, HOUR_MS = 4, 3_600_000
UNCLEAN = re.compile(r"Graceful stop of task \S+ failed|Timed out waiting to flush offsets to storage")
STOCK, PLUGIN, LANES = "stock", "plugin", "{lanes: {heavy: [orders]}}"


def tree_text(pair: Pair, balance: str, delivery: str) -> str:
    more = f", tasks: {{max: {TASKS}, capacity: 100kB/s}}, balance: {balance}, delivery: {delivery}"
    one_flow = flow("swapped", ", ".join(f'"{topic}"' for topic in TOPICS), more)
    quiet = "checkpoints: false, heartbeats: false, "
    return pair.yaml("swap", one_flow, quiet, workers=f", workers: {{count: {len(pair.workers)}}}")


def rates_by_hour(folder: Path) -> str:
    """Roll up hours in which the first partition of each topic is nine times as busy."""
    rates = {("src", *partition): 18_000.0 if partition.partition == 0 else 2_000.0 for partition in ALL}
    return str(measured(folder, *[rates] * 3, end_ms=time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS))


def lane_has(pair: Pair, topic: str) -> None:
    """Wait until the topic is on the lane's connector alone, and all the others on the flow's own."""

    def read() -> list[set[str]]:
        assigned = [[parse_assigned(c[ASSIGNED_KEY]) for c in task_configs(pair.url, name)] for name in (NAME, LANE)]
        return [{p.topic for partitions in of_connector for p in partitions} for of_connector in assigned]

    until(read, lambda topics: topics == [set(TOPICS) - {topic}, {topic}], f"{topic} is not on the lane alone")


def has_class(pair: Pair, plugin: bool, by_load: bool = False) -> Assignment:
    """Wait until all tasks run with the class, and with an assignment of the config or without; return it."""

    def read() -> tuple[set[bool], set[bool], Assignment]:
        configs = task_configs(pair.url, NAME)
        assigned = Assignment(tuple(parse_assigned(config[ASSIGNED_KEY]) for config in configs))
        return {c["connector.class"] == PLUGIN_CLASS for c in configs}, {DIGEST_KEY in c for c in configs}, assigned

    found = until(read, lambda answer: answer[:2] == ({plugin}, {by_load}), f"not as after plugin={plugin}")
    assert sorted(found[2].order) == sorted(ALL)
    return found[2]


def apply_until_nothing_is_left(tree: Tree) -> None:
    """Apply; where topics change connectors, a plan has the first moves only."""
    until(
        lambda: (tree.run("apply", "--yes"), tree.attempt("plan"))[1],
        lambda text: "Plan: 0 to create, 0 to update, 0 to delete" in text,
        "the plan is not empty",
    )


def remote(partition: TopicPartition) -> TopicPartition:
    return TopicPartition(f"src.{partition.topic}", partition.partition)


def proofs(pair: Pair) -> list[PartitionProof]:
    source = read_ids(pair.source, ALL)
    return until(
        lambda: prove(source, read_ids(pair.target, map(remote, ALL)), "src."),
        lambda proofs: not any(proof.missing for proof in proofs),
        "records are missing",
    )


@pytest.mark.parametrize("version", [DEFAULT_VERSION, OLDEST])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_no_record_is_lost_whichever_class_mirrors_it(version: str, delivery: str, tmp_path: Path, tree: Tree) -> None:
    write_plugin(tmp_path / "plugins" / "mm2mgr")
    settings = {**WORKER, "plugin.path": str(tmp_path / "plugins")}
    if delivery == "exactly_once":
        settings["exactly.once.source.support"] = "enabled"
    ids = map(b"%d".__mod__, itertools.count())
    with serving_pair(tmp_path, kafka_runtime(version), settings=settings) as pair:
        for topic, partitions in TOPICS.items():
            create(pair.source, [topic], partitions)
        store = rates_by_hour(tmp_path / "store")
        tree.write(tree_text(pair, STOCK, delivery))
        tree.run("apply", "--yes")
        stock = has_class(pair, plugin=False)
        entries = lambda: [(p, b"value " + i, i) for p, i in zip(ALL, ids, strict=False)]  # noqa: E731
        with producing(pair.source, entries, 0.02):
            for turn in range(2):
                tree.write(tree_text(pair, PLUGIN, delivery))
                tree.run("apply", "--yes")
                has_class(pair, plugin=True)
                if not turn:  # a second rebalance within a day is left
                    tree.run("rebalance", "--apply", "--yes", "--store", store)
                    by_load = has_class(pair, plugin=True, by_load=True)
                    assert {task for task, held in enumerate(by_load.tasks) if any(not p.partition for p in held)}
                    assert sorted(map(sorted, by_load.tasks)) != sorted(map(sorted, stock.tasks))
                    assert "Plan: 0 to create, 0 to update" in tree.run("plan")
                    tree.write(tree_text(pair, LANES, delivery))
                    apply_until_nothing_is_left(tree)
                    lane_has(pair, "orders")
                tree.write(tree_text(pair, STOCK, delivery))
                apply_until_nothing_is_left(tree)
                has_class(pair, plugin=False)
        found = proofs(pair)
        unclean = [line for worker in pair.workers for log in log_texts(worker) for line in UNCLEAN.findall(log)]
    total, twice = sum(proof.records for proof in found), sum(proof.duplicated for proof in found)
    print(f"{version}, {delivery}: {total} records, 0 lost, {twice} twice; unclean stops: {unclean or 'none'}")
    assert total > 1_000
    assert not any(proof.unexpected for proof in found)
    assert not twice or (delivery == "at_least_once" and unclean)

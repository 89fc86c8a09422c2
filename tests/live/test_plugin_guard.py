"""The Connect plugin on real workers that get it one after the other, lack it, or are lost: plan waits, `watch` heals, no record is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, digest, read_text
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .seen import config_of, create, until
from .test_plugin import ALL, NAME, OLDEST, STOCK_CLASS, TOPICS, Mirror, joined, plugin_path, traffic, worker_id

pytestmark = [pytest.mark.live, pytest.mark.matrix]
QUIET = "checkpoints: false, heartbeats: false, "
HOUR_MS = 3_600_000


def tree_of(pair: Pair, more: str, workers: str = "") -> str:
    """Return a tree with one flow of all topics, whose connector is that of `Mirror`."""
    settings = f", tasks: {{max: 4, capacity: 100kB/s}}, connector_name: {NAME}{more}"
    return pair.yaml("guarded", flow("even", ", ".join(sorted(TOPICS)), settings), QUIET, workers=workers)


def runs_with(mirror: Mirror, kind: str) -> None:
    """Wait until all four tasks run with this class."""
    mirror.places_become("RUNNING", ["RUNNING"] * 4)
    until(mirror.tasks, lambda tasks: [task["connector.class"] for task in tasks] == [kind] * 4)


def events(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [event["action"] for event in map(json.loads, lines) if event["event"] == "watch_action"]


@pytest.mark.parametrize(
    ("version", "exactly_once"),
    [
        pytest.param(DEFAULT_VERSION, False, id="4.3.1"),
        pytest.param(OLDEST, False, id="3.6.2"),
        pytest.param(DEFAULT_VERSION, True, id="4.3.1-exactly-once"),
    ],
)
def test_a_rolling_upgrade_and_a_worker_without_the_jar(
    version: str, exactly_once: bool, tmp_path: Path, tree: Tree
) -> None:
    """Jar onto one worker after the other, then `balance: plugin`; one without it joins; `watch` heals; it goes; back to the plugin."""
    settings = WORKER | ({"exactly.once.source.support": "enabled"} if exactly_once else {})
    with serving_pair(tmp_path, kafka_runtime(version), settings=settings) as pair:
        mirror, (first, second) = Mirror(pair), pair.workers
        for topic, partitions in TOPICS.items():
            create(pair.source, [topic], partitions)
        more = ", delivery: exactly_once" if exactly_once else ""
        # One URL alone, and no count: the group tells the rest.
        text = tree_of(pair, f"{more}, balance: plugin").replace(f"{first.url}, {second.url}", first.url)
        tree.write(text)
        blocked = " ".join(tree.run("plan", code=1).split())
        assert f"{second.url.removeprefix('http://')}" in blocked, "an idle worker is asked"
        with traffic(mirror):
            tree.write(text.replace("balance: plugin", "balance: stock"))
            tree.run("apply", "--yes")
            mirror.mirrors_all()
            tree.write(text)
            for worker, lacking in ((first, [second]), (second, [])):
                before = mirror.arrived()
                worker.stop()
                worker.properties |= plugin_path(tmp_path)
                worker.start()
                mirror.mirrors_all()
                assert mirror.arrived() > before
                blocked = tree.attempt("plan")
                assert [other for other in (first, second) if f"{worker_id(other)} of" in blocked] == lacking, blocked
            tree.run("apply", "--yes")
            runs_with(mirror, PLUGIN_CLASS)
            with joined(pair, tmp_path, "late", version, settings) as late:
                heals(mirror, tree, tmp_path / "watch.jsonl", late)
                late.stop()
            tree.run("apply", "--yes")
            runs_with(mirror, PLUGIN_CLASS)
        mirror.exact(twice=not exactly_once)


def heals(mirror: Mirror, tree: Tree, log: Path, late: Worker) -> None:
    """A worker without the jar fails what it is given; `watch` sets the stock class, once, and plan waits."""
    until(mirror.places, lambda places: ("FAILED", worker_id(late)) in places, "nothing failed")
    problems = tree.json("status")["flows"][0]["problem_values"]
    assert "plugin-missing" in {problem["cause"] for problem in problems}
    with tree.start("watch", "--every", "1s", "--first-wait", "1s", "--events", str(log), "--reason", "night shift"):
        mirror.mirrors_all()
        until(lambda: events(log), lambda actions: actions[-1:] == ["recovered"])
        assert [action for action in events(log) if action != "wait"] == ["stock-class", "recovered"]
        blocked = " ".join(tree.run("plan", code=1).split())
        assert f"{worker_id(late)} of 'pair' has no {PLUGIN_CLASS}" in blocked
        tree.attempt("apply", "--yes")
        assert {task["connector.class"] for task in mirror.tasks()} == {STOCK_CLASS}, "it does not swing"
    assert ASSIGNMENT_KEY not in config_of(mirror.asked, NAME)
    assert "connector.class: plugin-missing; night shift" in tree.run("history", "--full")


def store_of(folder: Path, heavy: Mapping[TopicPartition, float]) -> str:
    """Return a store with three hours in which these partitions carry more than the others."""
    rates = {("src", *partition): heavy.get(partition, 1_000.0) for partition in ALL}
    end_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    return str(measured(folder, *[rates] * 3, end_ms=end_ms))


def runs_as_written(mirror: Mirror) -> None:
    """Wait until the tasks run by the assignment of the config."""
    text = config_of(mirror.asked, NAME)[ASSIGNMENT_KEY]
    mirror.runs_as(read_text(text).tasks(ALL, 4), digest(text))


def test_mm2mgr_killed_and_a_worker_lost_in_the_middle_of_a_new_assignment(tmp_path: Path, tree: Tree) -> None:
    settings = {**WORKER, **plugin_path(tmp_path)}
    with serving_pair(tmp_path, settings=settings) as pair:
        mirror, (_, second) = Mirror(pair), pair.workers
        for topic, partitions in TOPICS.items():
            create(pair.source, [topic], partitions)
        tree.write(tree_of(pair, ", balance: plugin", ", history: false"))

        def text() -> Any:
            return config_of(pair.url, NAME).get(ASSIGNMENT_KEY)

        with traffic(mirror):
            tree.run("apply", "--yes")
            runs_with(mirror, PLUGIN_CLASS)
            store = store_of(tmp_path / "one", {ALL[0]: 9_000.0, ALL[4]: 9_000.0, ALL[8]: 5_000.0})
            with tree.start("rebalance", "--store", store, "--apply", "--yes") as running:
                until(text, bool, "nothing is written")
                running.kill()
            runs_as_written(mirror)
            print(tree.run("rebalance", "--store", store, "--apply", "--yes"))
            before = text()
            store = store_of(tmp_path / "other", {ALL[1]: 9_000.0, ALL[2]: 8_000.0, ALL[3]: 7_000.0, ALL[5]: 9_000.0})
            with tree.start("rebalance", "--store", store, "--apply", "--yes") as running:
                until(text, lambda now: now != before, "nothing is written")
                second.kill()
                said, _ = running.communicate(timeout=180)
            print(said)
            runs_as_written(mirror)
            assert {worker for _, worker in mirror.places()} == {worker_id(pair.workers[0])}
            tree.attempt("rebalance", "--store", store, "--apply", "--yes")
            runs_as_written(mirror)
            assert text() != before
            second.start()
            until(lambda: {worker for _, worker in mirror.places()}, lambda workers: len(workers) == 2)
            runs_as_written(mirror)
        mirror.exact(twice=True)

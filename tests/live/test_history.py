"""History, drift and `reconcile` against real brokers and workers, two processes of `reconcile` among them, one of which is killed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.reconcile.history import TOPIC
from mm2mgr.sandbox.server import Runtime

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import config_of, connector_url, create, end_offset, rest, statuses, task_configs, topics, until

pytestmark = pytest.mark.live
NAME = "mm2.src.tgt.source.orders"
KEY = "source.consumer.max.poll.records"
CONFIG_TOPIC = "connect-pair-configs"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("history"), runtime, workers=["only"]) as pair:
        create(pair.source, ["orders"])
        yield pair


@pytest.fixture(autouse=True)
def _no_connectors(world: Pair) -> Iterator[None]:
    yield
    world.delete_connectors()


def tree_of(world: Pair, records: int, owner: str) -> str:
    more = f", checkpoints: false, heartbeats: false, source_consumer: {{max.poll.records: {records}}}"
    return world.yaml(owner, flow("orders", "orders", more))


def by_hand(world: Pair, value: str) -> None:
    """Change one key as people do, over REST."""
    rest("PUT", connector_url(world.url, NAME, "/config"), {**config_of(world.url, NAME), KEY: value})


def git(folder: Path, *arguments: str) -> str:
    line = ["git", "-C", str(folder), "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_who_changed_what_is_kept_a_change_by_hand_is_found_and_an_older_tree_brings_the_config_back(
    world: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_WHO", "ann")
    commits = []
    tree.write("")
    git(tree.folder, "init", "-q")
    for records in (500, 700):
        tree.write(tree_of(world, records, "ann"))
        git(tree.folder, "add", "tree.yaml")
        git(tree.folder, "commit", "-q", "-m", f"{records} records")
        commits.append(git(tree.folder, "rev-parse", "--short=12", "HEAD"))
        tree.run("apply", "--yes", "--reason", f"{records} at a time")
    assert topics(world.target)[TOPIC] == 1
    assert "Drift: none" in tree.run("drift")

    first, second = tree.json("history", NAME)["entries"]
    assert [(each["action"], each["commit"], each["reason"]) for each in (first, second)] == [
        ("create", commits[0], "500 at a time"),
        ("update", commits[1], "700 at a time"),
    ]
    assert (second["who"], second["command"], second["outcome"], second["flows"]) == (
        "ann",
        "apply",
        "done",
        ["orders:src->tgt"],
    )
    assert [(key["key"], key["before"], key["after"]) for key in second["keys"]] == [(KEY, "500", "700")]

    by_hand(world, "11")
    said = tree.run("drift", code=2)
    assert f"pair/{NAME}\n  {KEY}: 700 -> 11\n" in said
    tree.write(tree_of(world, 900, "ann"))
    assert f"  {KEY}: 700 -> 11\n" in tree.run("drift", code=2), "what is only edited in the tree is no drift"
    tree.write(tree_of(world, 700, "ann"))

    older = tree.folder.parent / "older"
    git(tree.folder, "worktree", "add", "-q", str(older), commits[0])
    back = Tree(older)
    assert f"~ {KEY}: 11 -> 500" in back.run("plan", "--out", str(older.parent / "back.json"))
    back.run("apply", str(older.parent / "back.json"), "--reason", "back to the first")
    assert config_of(world.url, NAME)[KEY] == "500"
    assert tree.json("history")["entries"][-1]["commit"] == commits[0]
    assert tree.json("drift")["drift"] == []

    rest("PUT", connector_url(world.url, NAME, "/pause"))
    until(lambda: statuses(world.url)[NAME]["connector"]["state"], lambda state: state == "PAUSED")
    (paused,) = tree.json("drift")["drift"]
    assert paused["state"] == {"applied": "RUNNING", "live": "PAUSED"}
    rest("DELETE", connector_url(world.url, NAME))
    (gone,) = until(lambda: tree.json("drift")["drift"], lambda found: bool(found) and found[0]["deleted"])
    assert (gone["connector"], gone["compared_with"]) == (NAME, "history")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kinds(file: Path) -> list[str]:
    return [line["event"] for line in lines(file)]


def test_one_of_two_reconcilers_writes_and_the_other_takes_over_when_it_is_killed(world: Pair, tree: Tree) -> None:
    tree.write(tree_of(world, 500, "loop"))
    first, second = (tree.folder.parent / f"{name}.jsonl" for name in ("first", "second"))
    order = ("reconcile", "--every", "2s", "--wait", "30", "--events")
    with tree.start(*order, str(first)) as one, tree.start(*order, str(second)) as two:
        # Whichever joined first writes.
        until(lambda: (kinds(first), kinds(second)), lambda both: sum("change_done" in each for each in both) == 1)
        writer, other = one, two
        if "change_done" in kinds(second):
            first, second, writer, other = second, first, two, one
        until(lambda: kinds(second), lambda found: "standby" in found)
        by_hand(world, "11")
        until(lambda: config_of(world.url, NAME)[KEY], lambda value: value == "500", "the writer did not repair it")
        assert "change_begun" not in kinds(second)
        writer.kill()
        writer.wait()
        by_hand(world, "12")
        until(lambda: config_of(world.url, NAME)[KEY], lambda value: value == "500", "nobody took over")
        assert "change_begun" in kinds(second)
        until(lambda: kinds(second)[-1], lambda kind: kind == "finished")
        other.send_signal(signal.SIGTERM)
        out, err = other.communicate(timeout=90)
        assert other.returncode == 0, out + err
        assert "Traceback" not in out + err

    entries = tree.json("history", NAME)["entries"]
    assert [each["command"] for each in entries] == ["reconcile"] * 3
    by_hand(world, "13")
    until(lambda: {task.get(KEY) for task in task_configs(world.url, NAME)}, lambda values: values == {"13"})
    before = end_offset(world.target, CONFIG_TOPIC)
    said = tree.run("reconcile", "--report-only", "--once", code=2)
    assert f"pair: update {NAME}" in said
    assert end_offset(world.target, CONFIG_TOPIC) == before, "the workers were told something"
    assert config_of(world.url, NAME)[KEY] == "13"

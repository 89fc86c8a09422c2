"""A snapshot of real Kafka and Connect: commands answer from it as from the clusters, also under made-up names."""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.sandbox.runtime import Runtime
from tests.cli.load import measured

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import commit, create, end_offset, until, write_values

pytestmark = pytest.mark.live
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("lag", "--by", "partition"),
    ("who", "invoices"),
    ("topics", "sales:src->tgt", "--all"),
    ("plan",),
    ("drift",),
    ("lint", "--connect", "pair", "--no-ask-brokers"),
    ("size", "--dry-run"),
    ("fleet",),
    ("check",),
)
KIND_OF = {"status": "kind", "lag": "state", "plan": "action", "drift": "state", "check": "status"}
MOVING = {"taken_at", "heartbeat_seconds", "seconds", "since", "checked_at", "duration_seconds"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("snapshot"), runtime, workers=["w"]) as pair:
        yield pair


def still(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: still(part) for key, part in value.items() if key not in MOVING}
    return [still(part) for part in value] if isinstance(value, list) else value


def kinds(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        own = [str(value[key])] if key in value else []
        return sorted(own + [kind for part in value.values() for kind in kinds(part, key)])
    return sorted(kind for part in value for kind in kinds(part, key)) if isinstance(value, list) else []


def test_commands_answer_from_a_snapshot_as_from_the_clusters(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["invoices", "invoices.eu", "returns"], 2)
    for topic in ("invoices", "returns"):
        write_values(pair.source, topic, *(b"x" * 100 for _ in range(50)))
    commit(pair.source, "billing", "invoices", 1)
    flows = flow("sales", "'invoices.*'", ", tasks: {max: 2}") + flow("back", "returns")
    tree.write(pair.yaml("shop", flows, "heartbeats: false, "))
    tree.run("apply", "--yes")
    until(lambda: [end_offset(pair.target, f"src.{topic}") for topic in ("invoices", "returns")], all)
    store = measured(tree.folder.parent / "store", {("src", "invoices", number): 2e6 for number in range(2)})
    stored = {"lag": ("--store", str(store)), "size": ("--store", str(store)), "fleet": ("--store", str(store))}

    def ask(tree: Tree, command: tuple[str, ...], *more: str) -> Any:
        shutil.rmtree(tree.folder.parent / "state", ignore_errors=True)
        return still(tree.json(*command, *more, *stored.get(command[0], ())))

    until(
        lambda: ask(tree, ("lag",)), lambda lag: all(row["total"]["lag_records"]["value"] == 0 for row in lag["flows"])
    )
    until(lambda: ask(tree, ("check",)), lambda check: check["counts"]["failed"] == 0)
    live = {command: ask(tree, command) for command in COMMANDS}
    file, strange = (str(tree.folder.parent / name) for name in ("night.json", "strange.json"))
    assert tree.json("snapshot", "--out", file)["failed"] == {}
    for command in COMMANDS:
        texts = (
            json.dumps(answer, indent=1).splitlines()
            for answer in (live[command], ask(tree, command, "--snapshot", file))
        )
        assert list(difflib.unified_diff(*texts, lineterm="", n=2)) == [], command
    assert live["size", "--dry-run"]["sizings"]
    assert {row["status"] for row in live["check",]["rows"]} >= {"ok"}

    shutil.rmtree(tree.folder.parent / "state", ignore_errors=True)
    taken = tree.json("snapshot", "--out", strange, "--anonymous")
    made_up = Tree(Path(taken["tree"]))
    text = Path(strange).read_text() + "".join(path.read_text() for path in made_up.folder.rglob("*.yaml"))
    assert {"invoices", "returns", "sales", "back", "billing", "src", "tgt", "shop"} & set(
        re.findall(r"[^\W_]+", text)
    ) == set()
    for command in COMMANDS:
        if key := KIND_OF.get(command[0]):
            assert kinds(ask(made_up, command, "--snapshot", strange), key) == kinds(live[command], key), command

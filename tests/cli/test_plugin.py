"""`mm2mgr plugin write`: the jar as it is in the package, replaced only by another one, and what to do next."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, PLUGIN_CLASS, digest
from mm2mgr.operations.plugin import PLUGIN_JAR

from .command import Command
from .recorded import FOLDER, TREE

SOURCE = "mm2.src.tgt.source.orders"
ASSIGNED = "version=1;rates=1;unlisted=1;orders:0-2@0"


def test_the_jar_is_written_and_what_is_next_is_said(mm2mgr: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plugins"
    out = mm2mgr("plugin", "write", str(folder)).out
    jar = folder / PLUGIN_JAR.name
    assert jar.read_bytes() == PLUGIN_JAR.read_bytes()
    assert f"written: {jar}" in out
    for words in (
        PLUGIN_CLASS,
        hashlib.sha256(jar.read_bytes()).hexdigest(),
        "plugin.path",
        "Restart",
        "docs/how-to/plugin.md",
    ):
        assert words in out


def test_an_older_jar_is_replaced_and_the_same_one_left_alone(mm2mgr: Command, tmp_path: Path) -> None:
    jar = tmp_path / PLUGIN_JAR.name
    jar.write_bytes(b"older")
    assert "replaced" in mm2mgr("plugin", "write", str(tmp_path)).out
    before = jar.stat()
    assert json.loads(mm2mgr("plugin", "write", str(tmp_path), "-o", "json").out)["change"] == "unchanged"
    assert (jar.stat().st_ino, jar.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder_that_cannot_be_made_is_a_sentence(mm2mgr: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = mm2mgr("plugin", "write", str(tmp_path / "file" / "below"), code=1)
    assert "cannot be written" in failed.err
    assert "name a folder" in failed.err


def with_plugin(recorded: Path, digest_of_tasks: str) -> dict[str, Any]:
    """Return recorded answers in which the flow `orders` runs with the plugin, made from the text of this digest."""
    document: dict[str, Any] = json.loads(recorded.read_text())
    for entry in document["answers"]:
        if entry["ask"] == "Configs":
            entry["answer"][SOURCE]["config"] |= {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: ASSIGNED}
        if entry["ask"] == "TaskConfigs" and entry["connector"] == SOURCE:
            (task,) = entry["answer"]
            task["config"][DIGEST_KEY] = digest_of_tasks
            task["without"] = [ASSIGNMENT_KEY]
    return document


@pytest.mark.parametrize("older", [False, True])
def test_status_tells_by_the_digest_whether_tasks_have_the_assignment(mm2mgr: Command, older: bool) -> None:
    mm2mgr.tree.mkdir()
    shutil.copy(TREE, mm2mgr.tree / "tree.yaml")
    file = mm2mgr.folder / "snapshot.json"
    tasks = digest("another text") if older else digest(ASSIGNED)
    file.write_text(json.dumps(with_plugin(FOLDER / "kafka-4.3.1.json", tasks)))
    problems = mm2mgr("status", "-o", "json", "--snapshot", file, code=1).json["problem_values"]
    old = [problem["evidence"]["keys"] for problem in problems if problem["kind"] == "old-task-config"]
    assert old == ([[DIGEST_KEY]] if older else [])


def test_a_connector_of_the_plugin_is_a_source_connector_of_another_class(mm2mgr: Command) -> None:
    """It is managed as before; where the tree has the stock class, that is a change, which takes the assignment away."""
    mm2mgr.tree.mkdir()
    shutil.copy(TREE, mm2mgr.tree / "tree.yaml")
    file = mm2mgr.folder / "snapshot.json"
    file.write_text(json.dumps(with_plugin(FOLDER / "kafka-4.3.1.json", digest(ASSIGNED))))
    clusters = mm2mgr("plan", "-o", "json", "--snapshot", file).json["clusters"]
    (change,) = (c for part in clusters for c in part["changes"] if c["connector"] == SOURCE)
    assert change["action"] == "update"
    keys = {key["key"]: key["kind"] for key in change["keys"]}
    assert keys == {"connector.class": "change", ASSIGNMENT_KEY: "remove"}

"""`mm2mgr plugin write`: the jar as it is in the package, replaced only by another one, and what to do next."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.operations.plugin import PLUGIN_JAR

from .command import Command


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

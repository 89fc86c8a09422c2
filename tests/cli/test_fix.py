"""lint --fix: a diff, and with --yes files that are whole, healthy, and not written when they changed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations import Workspace, fix
from tests.spec.trees import BASE, FLOW, write

from .command import Command
from .test_lint import DEAD, MISSPELT, file

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="pa55-moves";'


@pytest.mark.parametrize("name", ["a.properties", "a.json"])
def test_a_diff_without_yes_and_a_healthy_file_with_it(mm2mgr: Command, name: str) -> None:
    path = file(mm2mgr.folder, name, DEAD, MISSPELT)
    path.chmod(0o640)
    before = path.read_bytes()
    said = mm2mgr("lint", name, "--fix", code=1)
    assert "producer.override.batch.size" in said.out
    assert "write it with --yes" in said.out
    assert path.read_bytes() == before
    assert "2 findings fixed" in mm2mgr("lint", name, "--fix", "--yes").out
    assert path.stat().st_mode & 0o777 == 0o640
    assert mm2mgr("lint", name, "-o", "json").json["findings"] == []
    assert [each.name for each in mm2mgr.folder.iterdir() if each.name.startswith(".a")] == []


def test_a_tree_is_fixed_where_its_keys_are(mm2mgr: Command) -> None:
    text = BASE + FLOW + "    record_producer:\n      acks: 1  # quick\n"
    path = write(mm2mgr.folder, clusters=text) / "clusters.yaml"
    said = mm2mgr("--clusters", path, "lint", "--fix", "--yes")
    assert "+      acks: all" in said.out
    assert path.read_text() == text.replace("acks: 1  #", "acks: all  #")


def test_what_is_left_says_why(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.properties", {"security.protocol": "SSL"})
    found = mm2mgr("lint", "a.properties", "--fix", "-o", "json", code=1).json
    assert [(each["rule"], each["why"]) for each in found["left"]] == [("bare-security", "to be done by hand")]
    assert (found["diff"], found["fixed"], found["written"]) == ([], [], False)


def test_hints_are_applied_only_when_asked_for(mm2mgr: Command) -> None:
    path = file(mm2mgr.folder, "a.properties", {})
    text = path.read_text().replace("source.consumer.allow.auto.create.topics=false\n", "")
    path.write_text(text)
    found = mm2mgr("lint", "a.properties", "--fix", "--yes", "-o", "json").json
    assert [(each["rule"], each["why"]) for each in found["left"]] == [
        ("client-defaults", "a hint: applied with --fail-on info")
    ]
    assert path.read_text() == text
    mm2mgr("lint", "a.properties", "--fix", "--yes", "--fail-on", "info")
    assert "source.consumer.allow.auto.create.topics=false" in path.read_text()


def test_no_secret_in_the_diff_or_in_the_patch(mm2mgr: Command) -> None:
    path = file(
        mm2mgr.folder, "a.json", {"source.sasl.jaas.config": JAAS, "source.cluster.security.protocol": "SASL_SSL"}
    )
    for output in ("text", "json"):
        assert "pa55" not in mm2mgr("lint", "a.json", "--fix", "-o", output, code=1).out
    found = mm2mgr("lint", "a.json", "-o", "json", code=1)
    assert "pa55" not in found.out
    assert json.loads(path.read_text())["config"]["source.sasl.jaas.config"] == JAAS


def test_a_patch_is_of_the_connectors_config(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", DEAD, {"producer.override.acks": "1", "transforms~/x.y": "1", "tasks.max": "0"})
    found = mm2mgr("lint", "a.json", "-o", "json", code=1).json["findings"]
    patches: dict[str, Any] = {each["rule"]: each["patch"] for each in found}
    assert patches["dead-key"] == [{"op": "move", "from": "/batch.size", "path": "/producer.override.batch.size"}]
    assert patches["acks-weak"] == [
        {"op": "test", "path": "/producer.override.acks", "value": "1"},
        {"op": "replace", "path": "/producer.override.acks", "value": "all"},
    ]
    assert patches["invalid-value"] == []
    assert patches["unknown-key"][-1]["path"] == "/transforms~0~1x.y"


def test_no_patch_changes_what_is_mirrored(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", {"topics": " ", "enabled": "false", "source.cluster.alias": "a.b", "tasks.max": "2"})
    found = mm2mgr("lint", "a.json", "-o", "json", code=1).json["findings"]
    patches = {each["rule"]: each["patch"] for each in found}
    assert patches["empty-topics"] == patches["enabled-false"] == patches["alias-has-separator"] == []


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    paths = [file(tmp_path, name, DEAD) for name in ("a.properties", "b.properties")]
    paths[1].write_text(paths[1].read_text().replace("=orders", "=invoices"))
    fixes = fix(Workspace(), paths)
    before = paths[0].read_bytes()
    paths[1].write_text(paths[1].read_text() + "# mine\n")
    with pytest.raises(Mm2mgrError, match="changed meanwhile; nothing was written"):
        fixes.write()
    assert paths[0].read_bytes() == before


@pytest.mark.parametrize("arguments", [("--yes",), ("--fix", "--connect", "http://c:8083"), ("--fix", "-o", "sarif")])
def test_wrong_usage(mm2mgr: Command, arguments: tuple[str, ...]) -> None:
    mm2mgr("lint", *arguments, code=64)

"""Every fix that lint gives for the corpus, told as for a tree and as for mm2.properties: what it says can be written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.formats.templates import template_in
from mm2mgr.lint.findings import Finding, spell
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import RULES, lint
from mm2mgr.lint.subject import Estate, Form
from mm2mgr.spec.models import Cluster, Connect, FlowSettings, Tree
from mm2mgr.spec.scalars import OWNED_CONNECTOR_KEYS
from tests.examples import sampled
from tests.lint import made
from tests.lint.test_corpus import FAULTY, TREE, Case, sample_of

SETTINGS = set(FlowSettings.model_fields)
STARTS = re.compile(r"(?<![\w{.])(?P<name>[a-z_]+): (?=(?P<first>\S))")
PLACEHOLDERS = re.compile(r"\b\w{3}\|\w{3}\b|\[\.\.\.\]|: \.\.\.|\bunder clusters:|\bN\}")
FILES = [case for case in FAULTY if not case.data.get("tree") and not all(map(TREE.search, case.texts().values()))]


@cache
def estate_of(case: str, folder: Path) -> Estate:
    [found] = [each for each in FILES if each.name == case]
    paths = [folder / name for name in found.texts()]
    for path, text in zip(paths, found.texts().values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_files(paths, found.surroundings())


def findings_as(form: Form, case: Case, folder: Path) -> list[Finding]:
    """Return what lint says of a case's connectors as if people had written them in another form."""
    read = estate_of(case.name, folder)
    subjects = (
        replace(each, form=form, connector=replace(each.connector, connect="east"), resource=None)
        for each in read.subjects
    )
    rules = [rule for rule in RULES if rule.check or "files" not in (rule.over.__module__ if rule.over else "")]
    return lint(replace(read, subjects=tuple(subjects), files=()), rules)


def fragments(fix: str) -> Iterator[dict[str, Any]]:
    """Yield the pieces of YAML in a fix: `name: {…}`, and `name: value` where the name can be nothing else."""
    position = 0
    while found := STARTS.search(fix, position):
        position = found.end()
        if found["first"] in "{[":
            position = _end(fix, position)
            yield yaml.safe_load(fix[found.start() : position])
        elif found["name"] in SETTINGS or "_" in found["name"]:
            yield {found["name"]: re.split(r",? ", fix[position:], maxsplit=1)[0].rstrip(",").strip("'")}


def _end(text: str, start: int) -> int:
    """Return where a YAML flow collection ends."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        quoted ^= text[at] == "'"
        depth += 0 if quoted else (text[at] in "{[") - (text[at] in "}]")
        if depth == 0:
            return at + 1
    raise AssertionError(f"never ends: {text[start:]}")


def check(piece: dict[str, Any]) -> None:
    """Let the spec's models read a piece; "…" stands for what only people know."""
    [(name, value)] = piece.items()
    if name in ("clusters", "connect"):
        assert name in Tree.model_fields
        for entry in value.values():
            _check_entry(name, entry)
    else:
        assert name in SETTINGS, f"no setting of a flow: {piece}"
        if "…" not in str(value) and "[hidden]" not in str(value):
            FlowSettings.model_validate(piece)


def _check_entry(name: str, entry: object) -> None:
    model, needed = {
        "clusters": (Cluster, {"bootstrap_servers": ["b1:9092"]}),
        "connect": (Connect, {"url": "http://c:8083", "kafka": "b"}),
    }[name]
    given = entry if isinstance(entry, dict) else {}
    assert {key for key in given if key != "…"} <= set(model.model_fields), entry
    model.model_validate(needed | {key: value for key, value in given.items() if "…" not in f"{key}{value}"})


@sampled("case", sample_of(FILES), FILES, ids=lambda case: case.name)
def test_a_fix_for_a_tree_can_be_written_there(case: Case, tmp_path: Path) -> None:
    found = findings_as("tree", case, tmp_path)
    refused = {"clusters"} if any(each.rule == "bad-address" for each in found) else set()  # no tree has such addresses
    for each in found:
        assert not PLACEHOLDERS.search(each.fix), f"{each.rule}: {each.fix}"
        assert not re.search(r"write (producer|source|target)\.[\w.]+=", each.fix), f"{each.rule}: {each.fix}"
        for piece in fragments(each.fix):
            if not refused & piece.keys() and not template_in(str(piece)):  # nor values that a template fills in
                check(piece)


@sampled("case", sample_of(FILES), FILES, ids=lambda case: case.name)
@pytest.mark.parametrize("form", ["connect", "dedicated"])
def test_a_fix_for_a_file_holds_no_yaml(case: Case, form: Form, tmp_path: Path) -> None:
    for each in findings_as(form, case, tmp_path):
        names = {name for piece in fragments(each.fix) for name in piece}
        assert not names & (SETTINGS | {"clusters", "connect"}), f"{each.rule}: {each.fix}"


@pytest.mark.parametrize("key", OWNED_CONNECTOR_KEYS)
def test_every_key_that_a_tree_writes_itself_has_its_place(key: str) -> None:
    """It is a setting of the tree that its models know, or a line of a template."""
    kinds = {"factor": "1", "seconds": "1", "max": "1", "enabled": "false", "policy.class": "org.x.Policy"}
    value = next((value for end, value in kinds.items() if key.endswith(end)), "source")
    said = spell(made.source(form="tree"), key, value)
    pieces = list(fragments(said))
    for piece in pieces:
        check(piece)
    assert pieces or said == f"{key} = {value} in source.properties.j2, your own template"


def test_words_of_a_value_are_not_taken_for_places() -> None:
    said = spell(made.source(form="tree"), "topics", "TARGET,VALUE's,a{1}")
    assert yaml.safe_load(said) == {"topics": {"include": ["TARGET", "VALUE's", "a{1}"]}}

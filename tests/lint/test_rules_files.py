"""Slips in files: each rule with texts that trip it, near misses, and the fix applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.lint.findings import Hit, rules_of
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import BY_ID, files
from mm2mgr.lint.subject import Estate, Silence, Spot
from mm2mgr.lint.tree import invalid
from mm2mgr.spec.files import load
from tests.lint import made

CONNECTOR = "name=n\nconnector.class=MirrorSourceConnector\n"


def hits(rule: str, folder: Path, text: str) -> list[Hit]:
    path = folder / ("f.json" if text.startswith("{") else "f.properties")
    path.write_text(text)
    over = BY_ID[rule].over
    assert over is not None
    return list(over(read_files([path])))


def lines(found: list[Hit]) -> list[int]:
    return [hit.spot.line for hit in found if hit.spot]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (r"topics=payments\.orders", r"double it: topics = payments\\.orders"),
        (r"groups=app-\d+", r"double it: groups = app-\\d+"),
        (r"source.cluster.ssl.truststore.location=C:\kafka\a.jks", r"C:\\kafka\\a.jks"),
        (r"topics=payments\\.orders", None),
        ("topics=a,\\\n  b", None),
        (r"x=tab\there", None),
        (r"source.cluster.sasl.jaas.config=x required password=\"p\";", None),
    ],
)
def test_lost_backslash(tmp_path: Path, line: str, fix: str | None) -> None:
    found = hits("lost-backslash", tmp_path, f"{CONNECTOR}{line}\n")
    assert [fix in hit.fix for hit in found if fix] == ([True] if fix else [])
    assert lines(found) == ([3] if fix else [])
    if fix:
        repaired = found[0].fix.removeprefix("double it: ")
        assert hits("lost-backslash", tmp_path, f"{CONNECTOR}{repaired}\n") == []


@pytest.mark.parametrize(
    ("line", "trips"),
    [
        ("replication.factor=3 # three racks", True),
        ("topics=a // all", True),
        ('x.sasl.jaas.config=y required password="a # b"; # prod', True),
        ("topics=a#b", False),
        ("source.cluster.ssl.key.password=a # b", False),  # may be the password
        ('x.sasl.jaas.config=y required password="a # b";', False),
        ("url=http://x/y", False),
        ("# topics=a # b", False),
    ],
)
def test_comment_in_value(tmp_path: Path, line: str, trips: bool) -> None:
    found = hits("comment-in-value", tmp_path, f"{CONNECTOR}{line}\n")
    assert lines(found) == ([3] if trips else [])


def test_duplicate_key(tmp_path: Path) -> None:
    (found,) = hits("duplicate-key", tmp_path, f"{CONNECTOR}topics=a\ntasks.max=1\ntopics=b\n")
    assert (found.spot, "line 3 is ignored" in found.message) == (
        Spot(str(tmp_path / "f.properties"), 5, key="topics"),
        True,
    )
    text = '{"connector.class": "MirrorSource",\n"topics": "a",\n"topics": "a"}'
    (found,) = hits("duplicate-key", tmp_path, text)
    assert "with the same value" in found.message
    assert lines([found]) == [3]
    assert hits("duplicate-key", tmp_path, f"{CONNECTOR}topics=a\n#topics=b\ntopics.exclude=b\n") == []


def test_the_same_key_in_two_connectors_of_a_dump_is_no_duplicate(tmp_path: Path) -> None:
    one = '{"info": {"config": {"connector.class": "MirrorSource", "topics": "a"}}}'
    assert hits("duplicate-key", tmp_path, f'{{"a": {one}, "b": {one}}}') == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name=n\nconnector.class=MirrorSourceConnector \n", [2]),
        (f"{CONNECTOR}replication.policy.separator=_ \n", [3]),
        (f"{CONNECTOR}source.cluster.alias=A \nreplication.policy.class=IdentityReplicationPolicy\n", [3]),
        (f"{CONNECTOR}source.cluster.alias=A \nenabled=true \ntasks.max=3 \n", []),  # Kafka trims these
        ("clusters=A,B\nemit.heartbeats.enabled=false\nA->B.enabled=true \n", [3]),
        ("clusters=A,B \nA->B.enabled=true \n", []),  # the connector is started for its heartbeats, and trims
        ('{"connector.class": "MirrorSource",\n"name": "n "}', [2]),
    ],
)
def test_blank_in_value(tmp_path: Path, text: str, expected: list[int]) -> None:
    found = hits("blank-in-value", tmp_path, text)
    assert lines(found) == expected
    assert all("blank" in hit.fix for hit in found)


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("null", "leave tasks.max out"),
        ('["a", "b"]', '"tasks.max": "a,b"'),
        ('{"a": 1}', "joined by dots"),
        ('"null"', None),
        ("3", None),
        ('""', None),
    ],
)
def test_null_value(tmp_path: Path, value: str, fix: str | None) -> None:
    found = hits("null-value", tmp_path, f'{{"connector.class": "MirrorSource",\n"tasks.max": {value}}}')
    assert lines(found) == ([2] if fix else [])
    assert not fix or fix in found[0].fix


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    text = (
        f"{CONNECTOR}source.cluster.ssl.key.password=s3cr3t\\.x \nsource.cluster.ssl.key.password=s3cr3t\\d # s3cr3t\n"
    )
    found = [hit for rule in rules_of(files) for hit in hits(rule.id, tmp_path, text)]
    assert {"lost-backslash", "duplicate-key"} <= {rule.id for rule in rules_of(files) if hits(rule.id, tmp_path, text)}
    assert "s3cr3t" not in str(found)


@pytest.mark.parametrize(
    ("silence", "fix"),
    [
        (Silence("dead-key", "", Spot("f", 1)), "give the reason"),
        (Silence("ded-key", "because", Spot("f", 1)), "write dead-key"),
        (Silence("qqqqqqqq", "because", Spot("f", 1)), "mm2mgr lint --rules"),
        (Silence("dead-key", "because", Spot("f", 1)), None),
    ],
)
def test_silence_unexplained(silence: Silence, fix: str | None) -> None:
    subject = replace(made.source(), silences=(silence,))
    found = list(files.silence_unexplained(Estate((subject, subject))))
    assert [fix in hit.fix for hit in found if fix] == ([True] if fix else [])
    assert all(hit.spot == silence.spot for hit in found)


def test_what_the_loader_refuses_is_told_by_the_tree_alone() -> None:
    assert list(files.invalid_declaration(Estate((made.source(),)))) == []


@pytest.mark.parametrize("rule", rules_of(files), ids=lambda rule: rule.id)
def test_every_rule_has_a_story(rule: object) -> None:
    story = getattr(rule, "story", "")
    first, _, rest = story.partition("\n")
    assert first.endswith(".")
    assert len(rest.strip().splitlines()) >= 3


def test_a_missing_line_of_clusters_is_told_once(tmp_path: Path) -> None:
    part = "a->b.enabled = true\na->b.topics = orders\na->b.groups = billing\n"
    assert len(hits("no-flow-enabled", tmp_path, part)) == 1
    assert hits("unknown-cluster", tmp_path, part) == []
    assert lines(hits("unknown-cluster", tmp_path, f"clusters = b, c\n{part}")) == [2, 3, 4]


@pytest.mark.parametrize("text", ["{{- if .Values.on }}\nkind: KafkaMirrorMaker2\n", "spec:\n  topics: {{ topics }}\n"])
def test_a_template_that_is_no_yaml_has_to_be_rendered(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        load([path])
    (finding,) = invalid(error.value)
    assert finding.fix.startswith("lint what it renders to")

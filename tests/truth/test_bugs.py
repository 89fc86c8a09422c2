"""Known bugs as data: which releases have one, and that every entry can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm2mgr.defaults import PROPERTIES_EXCLUDE
from mm2mgr.lint.rules import BY_ID
from mm2mgr.truth.bugs import BUGS, BY_BUG, Bug, bugs_of
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import numbers
from tests.lint import made

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("bug", "has", "has_not"),
    [
        ("KAFKA-12468", ["2.7.2", "3.3.2", "3.4.0"], ["3.4.1", "3.5.0", "4.3.1"]),
        ("KAFKA-14079", ["3.2.0"], ["3.1.2", "3.2.1", "3.3.0"]),
        ("KAFKA-15607", ["3.5.1", "3.6.0"], ["2.6.3", "3.5.2", "3.6.1", "3.7.0"]),
        ("KAFKA-15906", ["3.4.1", "3.6.2"], ["3.4.0", "3.7.0"]),
        ("KAFKA-12252", ["2.7.1", "2.8.0"], ["2.7.2", "2.8.1", "3.0.0"]),
        ("KAFKA-15800", ["3.5.0", "3.5.1", "3.6.0"], ["3.4.1", "3.5.2", "3.6.1", "3.7.0"]),
        ("KAFKA-16087", ["3.6.2", "3.7.2"], ["3.8.0"]),
        ("KAFKA-19012", ["2.8.0", "3.9.1", "4.0.1", "4.1.1"], ["2.7.2", "3.9.2", "4.0.2", "4.1.2", "4.2.0", "4.3.1"]),
        ("KAFKA-17192", ["3.5.0", "3.8.0"], ["3.4.1", "3.8.1", "3.9.0"]),
        ("KAFKA-19794", ["2.7.0", "4.3.1"], ["2.6.3"]),
        ("KAFKA-20017", ["4.0.2", "4.1.2", "4.2.0"], ["3.9.2", "4.3.1"]),
    ],
)
def test_the_releases_that_have_a_bug(bug: str, has: list[str], has_not: list[str]) -> None:
    assert [version for version in (*has, *has_not) if BY_BUG[bug].affects(version)] == has


def test_of_a_line_without_a_patch_only_what_no_release_of_it_fixed_is_claimed() -> None:
    assert not BY_BUG["KAFKA-12468"].affects("3.4")
    assert BY_BUG["KAFKA-12468"].affects("3.3")
    assert BY_BUG["KAFKA-19794"].affects("4.3")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_an_entry_can_be_used(bug: Bug) -> None:
    assert re.fullmatch(r"KAFKA-\d{4,5}", bug.id)
    assert bug.types
    for first, last in bug.releases:
        assert not last or numbers(first) <= numbers(last)
    assert not bug.rule or bug.rule in BY_ID
    assert bug.evidence == "unverified" or _is_test_of(bug.evidence, bug)
    for key in filter(None, [bug.key]):
        assert key == "name" or any(load().history(scope, key) or "." in key for scope in bug.types)


def _is_test_of(evidence: str, bug: Bug) -> bool:
    """Tell whether a test is there, names the bug, and sees a release that has it and one that has not (while there is one)."""
    path, _, name = evidence.partition("::")
    found = re.search(rf"@on\((.*)\)\ndef {name}\((?:.|\n)*?\n\n\n", (REPOSITORY / path).read_text())
    versions = re.findall(r"[\d.]+", found[1]) if found else []
    has = {bug.affects(version) for version in versions}
    return bool(found and f'"{bug.id}"' in found[0]) and has == (
        {True} if bug.fixed_in == "not fixed yet" else {True, False}
    )


def test_entries_are_in_the_order_of_their_numbers_and_there_once() -> None:
    ids = [int(bug.id.partition("-")[2]) for bug in BUGS]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("bug", "having", "without"),
    [
        ("KAFKA-9747", made.source(name="A->B"), made.source(name="orders_A.B-1")),
        ("KAFKA-13255", made.source({"config.properties.exclude": "x"}), made.source()),
        ("KAFKA-13586", made.source({"producer.override.sasl.jaas.config": "${file:/x:y}"}), made.source()),
        ("KAFKA-15906", made.source(), made.source({"offset.lag.max": "0"})),
        ("KAFKA-20017", made.source(), made.source({"sync.topic.configs.enabled": "false"})),
        ("KAFKA-15059", made.source({"exactly.once.support": "required"}), made.source()),
        ("KAFKA-16087", made.source({"errors.tolerance": "all"}), made.source()),
        ("KAFKA-20163", made.source(), made.source({"config.properties.exclude": ",".join(PROPERTIES_EXCLUDE)})),
        (
            "KAFKA-20163",
            made.source({"config.properties.exclude": r".*\.before\..*"}),
            made.source({"config.properties.exclude": r"message\.timestamp\..*"}),
        ),
        ("KAFKA-14653", made.source({"x": "${file:/x:y}"}, form="dedicated"), made.source({"x": "${file:/x:y}"})),
        ("KAFKA-16837", made.source({"x": "${file:/x:y}"}), made.source({"x": "${file:/x:y}"}, form="dedicated")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_configs_that_a_bug_concerns(bug: str, having: made.Subject, without: made.Subject) -> None:
    assert BY_BUG[bug].only[1](having)
    assert not BY_BUG[bug].only[1](without)


def test_bugs_of_a_type() -> None:
    assert {bug.id for bug in bugs_of("heartbeat", "4.3.1")} == {"KAFKA-17049"}
    assert {bug.id for bug in bugs_of("checkpoint", "4.3.1")} == {"KAFKA-17049", "KAFKA-19794"}


def test_an_issue_that_reports_the_same_names_the_bug() -> None:
    assert BY_BUG["KAFKA-14842"] is BY_BUG["KAFKA-14837"]
    assert BY_BUG["KAFKA-12262"] is BY_BUG["KAFKA-12252"]

"""SARIF: the structure that code scanning takes, places, silences, and fingerprints that survive moved lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import __version__
from mm2mgr.json_values import to_json
from mm2mgr.lint.findings import Finding, Hit, Rule, Severity
from mm2mgr.lint.subject import Spot, Subject
from mm2mgr.lint.unjudged import NotJudged
from mm2mgr.operations import Workspace, lint
from mm2mgr.output.lint_text import FINGERPRINT, SCHEMA, SarifPlaces, sarif

ROOT = SarifPlaces(Path("/repository"))


def rule(name: str, severity: Severity, **facts: str) -> Rule:
    def check(subject: Subject) -> Iterator[Hit]:
        yield from ()

    check.__doc__ = f"About {name}.\n\nMore."
    return Rule(name, severity, check, **facts)


RULES = [
    rule("loop", "error", source="KIP-382", live="tests/x.py::test_loop"),
    rule("glob", "warning"),
    rule("slow", "info"),
    rule("unused", "error"),
]
IN_FILE = Finding("loop", "error", Spot("clusters/flows/a b.yaml", 12, key="topics"), "Records go round.", "Rename.")
LIVE = Finding(
    "glob", "warning", Spot(connect="east", connector="mm2/a", key="topics"), "Matches too much.", "Write .*"
)
INFO = Finding("slow", "info", Spot("mm2.properties"), "It is slow.", "More polls.")


def run(*findings: Finding, unread: tuple[str, ...] = ()) -> dict[str, Any]:
    made = to_json(sarif(findings, RULES, ROOT, unread))
    assert set(made) == {"$schema", "version", "runs"}
    assert (made["$schema"], made["version"], len(made["runs"])) == (SCHEMA, "2.1.0", 1)
    only: dict[str, Any] = made["runs"][0]
    assert set(only) == {"tool", "invocations", "results"}
    return only


def place(result: dict[str, Any]) -> tuple[str, int]:
    physical = result["locations"][0]["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def fingerprint(result: dict[str, Any]) -> str:
    return str(result["partialFingerprints"][FINGERPRINT])


def test_no_finding_is_an_empty_run_that_succeeded() -> None:
    only = run()
    assert only["results"] == only["tool"]["driver"]["rules"] == []
    assert only["tool"]["driver"]["name"] == "mm2mgr"
    assert only["tool"]["driver"]["version"] == __version__
    assert only["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_what_was_not_judged_is_a_note_and_no_failure() -> None:
    open_ = NotJudged("cluster ids", "where records go", "--connect", ("wrong-kafka",), 2, ("B: no broker answered",))
    (invocation,) = to_json(sarif([], RULES, ROOT, not_judged=[open_]))["runs"][0]["invocations"]
    (note,) = invocation["toolExecutionNotifications"]
    text = "Not judged for 2 connectors: where records go. Unknown: cluster ids (B: no broker answered). Supplied by: --connect."
    assert (invocation["executionSuccessful"], note) == (True, {"level": "note", "message": {"text": text}})


def test_every_result_has_a_rule_a_level_a_message_and_a_place() -> None:
    only = run(IN_FILE, LIVE, INFO)
    rules = only["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["loop", "glob", "slow"]  # those that were found
    for rule in rules:
        assert rule["shortDescription"]["text"] == f"About {rule['id']}"
        assert rule["help"]["text"].startswith(f"About {rule['id']}.\n\nMore.")
    assert "Source: KIP-382" in rules[0]["help"]["text"]
    assert "Source" not in rules[1]["help"]["text"]
    assert [rule["defaultConfiguration"]["level"] for rule in rules] == ["error", "warning", "note"]
    assert [result["level"] for result in only["results"]] == ["error", "warning", "note"]
    assert [rules[result["ruleIndex"]]["id"] for result in only["results"]] == ["loop", "glob", "slow"]
    assert only["results"][0]["message"] == {"text": "Records go round.\n\nFix: Rename."}
    places = [place(result) for result in only["results"]]
    assert places == [("clusters/flows/a%20b.yaml", 12), ("connectors/mm2%2Fa", 1), ("mm2.properties", 1)]


def test_rules_have_their_pages_and_their_help_as_markdown_too() -> None:
    stories = [
        rule("loop", "error", source="KIP-382", live="tests/x.py::test_loop"),
        rule("glob_all", "warning"),
    ]
    found = [IN_FILE, replace(LIVE, rule="glob_all")]
    driver = to_json(sarif(found, stories, ROOT._replace(rule_pages="https://docs.example.net/rules")))["runs"][0][
        "tool"
    ]["driver"]
    assert driver["informationUri"] == "https://docs.example.net/rules/"
    assert [made["helpUri"] for made in driver["rules"]] == [
        f"https://docs.example.net/rules/{name}.md" for name in ("loop", "glob_all")
    ]
    assert driver["rules"][0]["help"]["markdown"] == (
        "**About loop.**\n\nMore.\n\n*Source:* KIP-382\n\n*Reproduced by:* `tests/x.py::test_loop`"
    )
    assert "About glob\\_all" in driver["rules"][1]["help"]["markdown"], "no part of a name turns to italics"
    assert "Reproduced" not in str(driver["rules"][1]["help"]), "no test is named where there is none"
    without = run(IN_FILE)["tool"]["driver"]
    assert "informationUri" not in without, "SARIF has absolute addresses alone, and mm2mgr's pages have none"
    assert "helpUri" not in without["rules"][0]


def test_a_key_among_others_of_its_line_has_its_column(tmp_path: Path) -> None:
    before = (
        '{"name": "mm2", "config": {"connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector", '
    )
    (tmp_path / "one.json").write_text(f'{before}"no.such.key": "1"}}}}')
    (tmp_path / "two.json").write_text(f'{before}\n  "no.such.key": "1",\n  "name": "mm2"}}}}')
    report = lint(Workspace(), [tmp_path / "one.json", tmp_path / "two.json"])
    found = [finding for finding in report.findings if finding.rule == "unknown-key"]
    assert [str(finding.spot) for finding in found] == [
        f"{tmp_path}/one.json:1:{len(before) + 1}",
        f"{tmp_path}/two.json:2",
    ]
    results = to_json(sarif(found, RULES, SarifPlaces(tmp_path)))["runs"][0]["results"]
    regions = [result["locations"][0]["physicalLocation"]["region"] for result in results]
    assert regions == [{"startLine": 1, "startColumn": len(before) + 1}, {"startLine": 2}]


def test_a_live_connector_is_a_logical_location() -> None:
    (logical,) = run(LIVE)["results"][0]["locations"][0]["logicalLocations"]
    assert logical == {"name": "topics", "fullyQualifiedName": "east/mm2/a/topics", "kind": "property"}
    assert "logicalLocations" not in run(INFO)["results"][0]["locations"][0]


def test_a_missing_key_is_named_and_the_place_stays_that_of_the_connector() -> None:
    missing = Finding("loop", "error", Spot(connect="east", connector="mm2"), "Missing.", "Write it.", key="acks")
    assert (to_json(missing)["place"], to_json(missing)["key"]) == ("east/mm2", "acks")
    (logical,) = run(missing)["results"][0]["locations"][0]["logicalLocations"]
    assert logical == {"name": "acks", "fullyQualifiedName": "east/mm2/acks", "kind": "property"}


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("/repository/clusters/x.yaml", "clusters/x.yaml"),
        ("./x.yaml", "x.yaml"),
        ("../x.yaml", "../x.yaml"),
        ("A:B.properties", "A%3AB.properties"),
        ("/elsewhere/x y.yaml", "file:///elsewhere/x%20y.yaml"),
    ],
)
def test_paths_are_relative_to_the_root(file: str, uri: str) -> None:
    assert place(run(replace(INFO, spot=Spot(file, 3)))["results"][0]) == (uri, 3)


def test_silences_stand_on_all_results_or_on_none() -> None:
    assert all("suppressions" not in result for result in run(IN_FILE, LIVE)["results"])
    results = run(IN_FILE, replace(LIVE, silenced="the topic is ours"))["results"]
    assert [result["suppressions"] for result in results] == [
        [],
        [{"kind": "inSource", "justification": "the topic is ours"}],
    ]


def test_fingerprints_survive_moved_lines_and_tell_findings_apart() -> None:
    moved = replace(IN_FILE, spot=replace(IN_FILE.spot, line=99))
    assert fingerprint(run(IN_FILE)["results"][0]) == fingerprint(run(LIVE, moved)["results"][1])
    one, other = (replace(IN_FILE, message=f"As clusters/x.yaml:{line} says.") for line in (3, 14))
    assert fingerprint(run(one)["results"][0]) == fingerprint(run(other)["results"][0])
    others = [
        replace(IN_FILE, rule="glob"),
        replace(IN_FILE, message="Else."),
        replace(IN_FILE, spot=IN_FILE.spot.with_key("groups")),
        replace(IN_FILE, spot=replace(IN_FILE.spot, file="y.yaml")),
        moved,  # the same again, further down
    ]
    prints = [fingerprint(result) for result in run(IN_FILE, *others)["results"]]
    assert len(set(prints)) == len(prints)


def test_what_could_not_be_read_is_a_notification() -> None:
    assert run(INFO, unread=("east did not answer",))["invocations"] == [
        {
            "executionSuccessful": False,
            "toolExecutionNotifications": [{"level": "error", "message": {"text": "east did not answer"}}],
        }
    ]

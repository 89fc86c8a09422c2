"""What rules rest on: each names a live test that exists, or says that nobody has seen its effect on a live worker yet."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mm2mgr.json_values import to_json
from mm2mgr.lint.findings import Rule
from mm2mgr.lint.rules import RULES

REPOSITORY = Path(__file__).resolve().parents[2]
SEEN = [rule for rule in RULES if rule.live]
UNSEEN = [rule for rule in RULES if not rule.live]


def ids(rules: list[Rule]) -> list[str]:
    return [rule.id for rule in rules]


@pytest.mark.parametrize("rule", SEEN, ids=ids(SEEN))
def test_a_rule_names_a_live_test_that_exists(rule: Rule) -> None:
    path, _, name = rule.live.partition("::")
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    tests = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert "pytest.mark.live" in text, f"{path} is no live test"
    assert not name or name in tests, f"{path} has no {name}"


@pytest.mark.parametrize("rule", UNSEEN, ids=ids(UNSEEN))
def test_a_rule_without_a_live_test_says_so(rule: Rule) -> None:
    assert to_json(rule)["seen"].startswith("unverified")


@pytest.mark.parametrize("rule", UNSEEN, ids=ids(UNSEEN))
def test_a_rule_without_a_live_test_does_not_claim_to_have_been_seen_here(rule: Rule) -> None:
    assert "seen on 4.3.1" not in rule.story.lower()


def test_each_live_test_of_lint_that_shows_an_effect_stands_in_a_rule() -> None:
    named = {rule.live for rule in SEEN}
    here = Path(__file__).parent
    controls = {
        "test_a_healthy_connector_copies_bytes_and_is_not_found",
        "test_the_lab_has_the_workers_properties_right",
    }
    for file in here.glob("test_seen_live_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        assert [name for name in tests if name not in controls and f"tests/lint/{file.name}::{name}" not in named] == []

"""Flows of a tree that take each other's topics: said by lint as errors, at the line that people wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.rules import lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from tests.spec.trees import loaded
from tests.topology.test_clashes import BASE, flow

IDENTITY = ", replication_policy: identity"
BY_CLASS = ", replication_policy: org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def errors(folder: Path, **files: str) -> list[Finding]:
    """Return what lint says against a tree, hints aside, with the files' names alone."""
    spec = loaded(folder, x=BASE, **files)
    topology = expand(spec)
    return [each for each in lint(from_tree(topology, render(topology), spec)) if each.severity == "error"]


@pytest.mark.parametrize(
    ("there", "back", "fine"),
    [
        ("orders", "stock", True),
        ("orders, a.b", "stock, a-b", True),
        ("'eu[.].*'", "'us[.].*'", True),  # the usual pair of two active clusters
        ("'eu-.*'", "'.*-us'", False),
        ("'dc[12]-orders'", "'dc[32]-orders'", False),
        ("orders", "'st.*'", True),
        ("orders", "stock, orders", False),
        ("stocks", "'st.*'", False),
        ("'.*'", "stock", False),
    ],
)
@pytest.mark.parametrize("policy", [IDENTITY, BY_CLASS])
def test_topics_that_keep_their_names_go_one_way(
    tmp_path: Path, there: str, back: str, fine: bool, policy: str
) -> None:
    found = errors(tmp_path, y=flow("f", "a->b", there, policy), z=flow("g", "b->a", back, IDENTITY))
    assert [each.rule for each in found] == ([] if fine else ["identity-loop"])
    for each in found:
        assert "is mirrored a → b → a and returns under its own name, in an endless loop" in each.message
        assert (each.spot.file, each.spot.line) == (str(tmp_path / "y.yaml"), 1)
        assert "write replication_policy: default" in each.fix


def test_one_flow_that_keeps_names_both_ways(tmp_path: Path) -> None:
    text = f"flows: {{f: {{sources: [a, b], targets: [a, b], except: [a->a, b->b], topics: {{include: [t]}}{IDENTITY}}}}}\n"
    (found,) = errors(tmp_path, y=text)
    assert found.rule == "identity-loop"
    assert "topic 't' is mirrored" in found.message
    assert errors(tmp_path, y=text.replace(IDENTITY, "")) == []


def test_one_separator_for_flows_that_meet(tmp_path: Path) -> None:
    other = flow("g", "b->a", "t", ", separator: _")
    (found,) = errors(tmp_path, y=flow("f", "a->b", "'.*'"), z=flow("g", "b->a", "'.*'", ", separator: _"))
    assert (found.rule, found.spot.file, found.spot.line) == ("loop", str(tmp_path / "y.yaml"), 1)
    (found,) = errors(tmp_path, y=flow("f", "a->b", "t"), z=other)
    assert (found.rule, found.spot.file, found.spot.line) == ("separator-differs", str(tmp_path / "z.yaml"), 1)
    assert "write separator: ." in found.fix
    assert errors(tmp_path, z=flow("g", "b->a", "u", f", separator: _{IDENTITY}")) == []


@pytest.mark.parametrize("include", ["t", "u, 'x.*'", "u, t", "x1"])
def test_two_flows_of_a_pair_take_different_topics(tmp_path: Path, include: str) -> None:
    (found,) = errors(tmp_path, y=flow("f", "a->b", "t, 'x.*'"), z=flow("g", "a->b", include))
    assert (found.rule, found.spot.file, found.spot.line) == ("overlap", str(tmp_path / "z.yaml"), 1)
    assert found.message.endswith("from a: their records arrive twice")
    assert errors(tmp_path, z=flow("g", "a->c", include, ", run_on: on-b")) == []


@pytest.mark.parametrize(("separator", "fine"), [(".", False), ("_", True)])
def test_an_alias_that_holds_the_separator(tmp_path: Path, separator: str, fine: bool) -> None:
    text = BASE.replace("  c:", "  a.1:").replace("[c1", "[a11")
    spec = loaded(tmp_path, x=text, y=flow("f", "a.1->b", "t", f", separator: {separator!r}"))
    topology = expand(spec)
    found = [each for each in lint(from_tree(topology, render(topology), spec)) if each.severity == "error"]
    assert [each.rule for each in found] == ([] if fine else ["alias-has-separator"])
    for each in found:
        assert each.message.startswith("the alias 'a.1' contains the separator '.'")
        assert (each.spot.file, each.spot.line) == (str(tmp_path / "y.yaml"), 1)

"""The lists of connectors that change hands, as values; what is wrong with them is among the mistakes (tests/spec)."""

from __future__ import annotations

from pathlib import Path

from mm2mgr.render import render
from mm2mgr.topology import ListedConnector, Moved
from tests.spec.trees import BASE, FLOW, expanded

NAMED = """\
flows:
  f:
    sources: [a]
    targets: [b]
    topics: {include: [t]}
    connector_name: legacy f
    checkpoints: {connector_name: legacy-cp}
    heartbeats: {connector_name: legacy-hb}
  g: {sources: [a], targets: [b], topics: {include: [u]}, checkpoints: {connector_name: legacy-cp}, heartbeats: {connector_name: legacy-hb}}
"""


def test_connectors_keep_the_names_that_they_have(tmp_path: Path) -> None:
    connectors = {each.name: each for each in render(expanded(tmp_path, base=BASE, flow=NAMED))}
    assert list(connectors) == ["legacy-hb", "legacy f", "mm2.a.b.source.g", "legacy-cp"]
    assert all(each.config["name"] == name for name, each in connectors.items())
    assert connectors["legacy f"].origins["name"].where.endswith("flow.yaml:6")


def test_a_flow_of_several_pairs_names_each_under_pairs(tmp_path: Path) -> None:
    flow = """\
clusters: {c: {bootstrap_servers: [c1:9092]}}
flows:
  f: {sources: [a, c], targets: [b], topics: {include: [t]}, pairs: {"c->b": {connector_name: legacy}}}
"""
    names = [each.name for each in render(expanded(tmp_path, base=BASE, flow=flow)) if each.type == "source"]
    assert names == ["mm2.a.b.source.f", "legacy"]


def test_lists_of_several_files_are_one(tmp_path: Path) -> None:
    one = "adopt: [{connect: w, connector: legacy f}]\n"
    two = "adopt:\n- {connect: w, connector: legacy-cp, from_owner: others}\nrelease: [{connect: w, connector: x y}]\n"
    topology = expanded(tmp_path, base=BASE, flow=NAMED, one=one, two=two)
    assert topology.adopted == (
        ListedConnector("w", "legacy f", f"{tmp_path}/one.yaml:1"),
        ListedConnector("w", "legacy-cp", f"{tmp_path}/two.yaml:2", "others"),
    )
    assert topology.released == (ListedConnector("w", "x y", f"{tmp_path}/two.yaml:3"),)


def test_a_move_is_from_a_flow_a_connector_or_a_dedicated_mirrormaker(tmp_path: Path) -> None:
    moved = """\
moved:
- {from: "old:a->b", to: "f:a->b"}
- {from: w/legacy one, to: "f:a->b", from_owner: others}
- {from: {dedicated: "a->b"}, to: "f:a->b"}
"""
    place = f"{tmp_path}/moved.yaml"
    topology = expanded(tmp_path, base=BASE, flow=FLOW, moved=moved)
    assert topology.moved == (
        Moved("old:a->b", None, None, "f:a->b", (), None, f"{place}:2", "old:a->b"),
        Moved(None, ("w", "legacy one"), None, "f:a->b", (), "others", f"{place}:3", "w/legacy one"),
        Moved(None, None, ("a", "b"), "f:a->b", (), None, f"{place}:4", "{dedicated: a->b}"),
    )


def test_single_topics_move_between_flows_that_stay(tmp_path: Path) -> None:
    moved = 'moved: [{from: "g:a->b", to: "f:a->b", topics: [t, "u.*"]}]\n'
    (move,) = expanded(tmp_path, base=BASE, flow=NAMED, moved=moved).moved
    assert (move.flow, move.to, move.topics) == ("g:a->b", "f:a->b", ("t", "u.*"))

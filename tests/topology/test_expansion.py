"""Sources × targets: by list and by label, less the exceptions; and every name that stands for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from tests.spec.trees import complaint, complaints, expanded

CLUSTERS = """\
owner: team
clusters:
  a1: {bootstrap_servers: [a1:9092], labels: {tier: local, dc: x}}
  a2: {bootstrap_servers: [a2:9092], labels: {tier: local, dc: y}}
  a3: {bootstrap_servers: [a3:9092], labels: {tier: local, dc: z}}
  b1: {bootstrap_servers: [b1:9092], labels: {tier: aggregate}}
  b2: {bootstrap_servers: [b2:9092], labels: {tier: aggregate}}
connect:
  one: {url: "http://one:8083", kafka: b1}
  two: {url: "http://two:8083", kafka: b2}
"""


def flow(sources: str, targets: str, more: str = "") -> str:
    return f"flows:\n  f:\n    sources: {sources}\n    targets: {targets}\n    topics: {{include: [t]}}\n{more}"


@pytest.mark.parametrize(
    ("sources", "targets", "pairs"),
    [
        ("[a1]", "[b1]", ["a1->b1"]),
        ("[a2, a1]", "[b1]", ["a1->b1", "a2->b1"]),
        ("[a1, a2]", "[b1, b2]", ["a1->b1", "a2->b1", "a1->b2", "a2->b2"]),
        ("{tier: local}", "b2", ["a1->b2", "a2->b2", "a3->b2"]),
        ("{tier: local, dc: [x, z]}", "{tier: aggregate}", ["a1->b1", "a3->b1", "a1->b2", "a3->b2"]),
        ("{dc: y}", "'b1, b2'", ["a2->b1", "a2->b2"]),
    ],
)
def test_every_source_meets_every_target(tmp_path: Path, sources: str, targets: str, pairs: list[str]) -> None:
    topology = expanded(tmp_path, x=CLUSTERS, y=flow(sources, targets))
    assert [one.pair for one in topology.flows] == pairs
    assert [one.id for one in topology.flows] == [f"f:{pair}" for pair in pairs]


def test_exceptions_are_taken_out(tmp_path: Path) -> None:
    more = '    except: ["a1->b1", "a2->b2", "a3->b2"]\n'
    found = expanded(tmp_path, x=CLUSTERS, y=flow("{tier: local}", "[b1, b2]", more)).flows
    assert [one.pair for one in found] == ["a2->b1", "a3->b1", "a1->b2"]


def test_a_flow_to_itself_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    assert complaint(tmp_path, x=CLUSTERS, y=flow("[a1, b1]", "[b1]")) == (
        "y.yaml:3:5: flow 'f' would mirror 'b1' to itself; "
        "remove 'b1' from sources or targets, or add 'b1->b1' to except:"
    )
    assert len(expanded(tmp_path, y=flow("[a1, b1]", "[b1]", '    except: ["b1->b1"]\n')).flows) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (flow("[a1, a9]", "[b1]"), "y.yaml:3:19: unknown cluster alias 'a9'; did you mean 'a3'?"),
        (flow("[a1]", "[zebra]"), "y.yaml:4:15: unknown cluster alias 'zebra'; known: a1, a2, a3, b1, b2"),
        (flow("[a1, a1]", "[b1]"), "y.yaml:3:19: duplicate entry 'a1'"),
        (flow("{tier: locla}", "[b1]"), "y.yaml:3:5: no cluster has the labels tier=locla; labels here: dc=x, dc=y,"),
        (flow("{}", "[b1]"), "y.yaml:3:5: 'flows.f.sources'"),
        (
            flow("[a1]", "[b1]", '    except: ["a1->b2"]\n'),
            "y.yaml:6:14: unknown pair 'a1->b2'; did you mean 'a1->b1'?",
        ),
        (flow("[a1]", "[b1]", '    pairs: {"a2->b1": {}}\n'), "y.yaml:6:13: unknown pair 'a2->b1'"),
        ("links: [{between: [a1, b9], rtt: 1ms}]\n", "y.yaml:1:24: unknown cluster alias 'b9'"),
        (
            "connect: {three: {url: 'http://x', kafka: b3}}\n",
            "y.yaml:1:36: unknown cluster alias 'b3'; did you mean 'b2'?",
        ),
    ],
)
def test_names_that_stand_for_nothing(tmp_path: Path, text: str, says: str) -> None:
    found = complaints(tmp_path, x=CLUSTERS, y=text)
    assert [one for one in found if one.startswith(says)], found


def test_a_flow_without_topics_is_refused_once(tmp_path: Path) -> None:
    text = flow("{tier: local}", "[b1, b2]").replace("[t]", "[]")
    assert complaint(tmp_path, x=CLUSTERS, y=text) == (
        "y.yaml:2:3: flow 'f' has no topics: write topics: {include: [...]}"
    )


def test_two_aliases_of_one_cluster_are_refused(tmp_path: Path) -> None:
    found = complaint(tmp_path, x=CLUSTERS.replace("a2:9092", "a1:9092"))
    assert found.startswith("x.yaml:4:8: 'a2' and 'a1' share the address a1:9092")


def test_select_finds_by_id_pair_and_name_and_says_what_is_there(tmp_path: Path) -> None:
    topology = expanded(tmp_path, x=CLUSTERS, y=flow("[a1, a2]", "[b1]"))
    assert [one.id for one in topology.select("f")] == ["f:a1->b1", "f:a2->b1"]
    assert [one.id for one in topology.select("a2->b1")] == [one.id for one in topology.select("f:a2->b1")]
    (found,) = topology.select("f:a1->b1")
    connector = found.connector_name("source")
    assert topology.select(connector) == topology.select(f"{found.connect.name}/{connector}") == [found]
    for name in (f"elsewhere/{connector}", found.connector_name("heartbeat")):
        with pytest.raises(Mm2mgrError, match="no flow '"):
            topology.select(name)
    with pytest.raises(Mm2mgrError, match="no flow 'f:a1->b2'") as caught:
        topology.select("f:a1->b2")
    assert "f:a1->b1" in (caught.value.hint or "")


def test_one_flow_of_each_pair_carries_the_heartbeats(tmp_path: Path) -> None:
    flows = """\
flows:
  off: {sources: [a1], targets: [b1], topics: {include: [s]}, heartbeats: false}
  first: {sources: [a1, a2], targets: [b1], topics: {include: [t]}}
  second: {sources: [a1], targets: [b1], topics: {include: [u]}}
"""
    topology = expanded(tmp_path, x=CLUSTERS, y=flows)
    carriers = [flow.id for flow in topology.flows if flow.with_heartbeats]
    assert carriers == ["first:a1->b1", "first:a2->b1"]
    assert [flow.id for flow in topology.flows_of(("second:a1->b1", "gone:a1->b1"))] == ["second:a1->b1"]

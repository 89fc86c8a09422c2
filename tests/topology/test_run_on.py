"""Which Connect cluster runs a flow, and what flows that share a pair must agree on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.trees import FLOW, complaint, complaints, expanded

CLUSTERS = """\
owner: team
clusters:
  a: {bootstrap_servers: [a1:9092]}
  b: {bootstrap_servers: [b1:9092]}
  c: {bootstrap_servers: [c1:9092]}
connect:
  near: {url: "http://near:8083", kafka: b}
  far: {url: "http://far:8083", kafka: c}
"""
SECOND = FLOW.replace("  f:", "  g:").replace("[t]", "[u]")


def test_the_default_is_the_one_whose_kafka_is_the_target(tmp_path: Path) -> None:
    flows = expanded(tmp_path, x=CLUSTERS, y=FLOW.replace("[b]", "[b, c]")).flows
    assert [(flow.target.alias, flow.connect.name) for flow in flows] == [("b", "near"), ("c", "far")]


@pytest.mark.parametrize(
    ("run_on", "names"),
    [("far", ["far", "far"]), ("{b: far}", ["far", "far"]), ("{b: far, c: near}", ["far", "near"])],
)
def test_run_on_says_otherwise_for_all_or_for_one_target(tmp_path: Path, run_on: str, names: list[str]) -> None:
    text = FLOW.replace("[b]", "[b, c]") + f"    run_on: {run_on}\n"
    assert [flow.connect.name for flow in expanded(tmp_path, x=CLUSTERS, y=text).flows] == names


def test_a_pair_may_run_elsewhere(tmp_path: Path) -> None:
    text = FLOW.replace("[b]", "[b, c]") + '    pairs: {"a->b": {run_on: far}}\n'
    assert [flow.connect.name for flow in expanded(tmp_path, x=CLUSTERS, y=text).flows] == ["far", "far"]


def test_a_target_without_connect_cluster_must_say_who(tmp_path: Path) -> None:
    text = FLOW.replace("[a]", "[b]").replace("targets: [b]", "targets: [a]")
    found = complaint(tmp_path, x=CLUSTERS, y=text)
    assert found == "y.yaml:2:3: no Connect cluster has kafka: a; set the one that runs flow 'f' with run_on: {a: NAME}"


def test_two_connect_clusters_on_one_kafka_are_ambiguous_until_said(tmp_path: Path) -> None:
    clusters = CLUSTERS.replace("kafka: c", "kafka: b")
    found = complaint(tmp_path, x=clusters, y=FLOW)
    assert (
        found == "y.yaml:2:3: 2 Connect clusters have kafka: b; set the one that runs flow 'f' with run_on: {b: NAME}"
    )
    assert expanded(tmp_path, y=FLOW + "    run_on: near\n").flows[0].connect.name == "near"


def test_an_unknown_connect_cluster(tmp_path: Path) -> None:
    found = complaint(tmp_path, x=CLUSTERS, y=FLOW + "    run_on: nearr\n")
    assert found == "y.yaml:6:5: unknown Connect cluster 'nearr'; did you mean 'near'?"


def test_a_target_that_is_misspelt_in_run_on_is_not_passed_over(tmp_path: Path) -> None:
    found = complaint(tmp_path, x=CLUSTERS, y=FLOW + "    run_on: {bb: far}\n")
    assert found == "y.yaml:6:14: unknown cluster alias 'bb'; did you mean 'b'?"


def test_two_flows_may_share_a_pair(tmp_path: Path) -> None:
    topology = expanded(tmp_path, x=CLUSTERS, y=FLOW, z=SECOND)
    assert [flow.id for flow in topology.flows] == ["f:a->b", "g:a->b"]
    assert [flow.id for flow in topology.select("a->b")] == ["f:a->b", "g:a->b"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("replication_policy: identity", "flows 'f', 'g' share the pair a->b, which has one replication_policy"),
        ("separator: _", "flows 'f', 'g' share the pair a->b, which has one separator"),
        ("run_on: far", "flows 'g' and 'f' share the pair a->b and must run on the same Connect cluster"),
    ],
)
def test_but_they_must_agree_on_what_names_their_internal_topics(tmp_path: Path, setting: str, says: str) -> None:
    found = complaints(tmp_path, x=CLUSTERS, y=FLOW, z=f"{SECOND}    {setting}\n")
    assert any(problem.startswith(f"z.yaml:6:5: {says}") for problem in found)
    if "run_on" in setting:
        assert "since they share one heartbeat and one checkpoint connector" in " ".join(found)
        assert "write run_on: {b: near} here too" in " ".join(found)


@pytest.mark.parametrize("setting", ["offset_syncs: {location: target}", "offset_syncs: false"])
def test_where_offset_syncs_are_holds_for_the_pair(tmp_path: Path, setting: str) -> None:
    first, second = expanded(tmp_path, x=CLUSTERS, y=FLOW, z=f"{SECOND}    {setting}\n").flows
    assert first.settings.offset_syncs == second.settings.offset_syncs
    assert first.settings.offset_syncs.enabled is (setting != "offset_syncs: false")


def test_what_concerns_one_flow_only_may_differ(tmp_path: Path) -> None:
    more = "    tasks: {max: 3}\n    record_producer: {linger.ms: 5}\n    sync: {topic_acls: true}\n"
    assert len(expanded(tmp_path, x=CLUSTERS, y=FLOW, z=SECOND + more).flows) == 2

"""Which flows Cluster Mirroring (KIP-1279) could take by the KIP's text, and the property by which it could not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.cluster_mirroring import MirroringAdvice, advise_flow
from mm2mgr.expand import expand
from mm2mgr.json_values import to_json
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.spec.trees import write

TREE = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["a:9092"]}}
  b: {{bootstrap_servers: ["b:9092"]}}
  c: {{bootstrap_servers: ["c:9092"]}}
connect:
  a: {{url: "http://localhost:1", kafka: a}}
  b: {{url: "http://localhost:2", kafka: b}}
defaults: {{flows: {{replication_policy: {policy}, checkpoints: false, heartbeats: false}}}}
flows:
  main: {{sources: [a], targets: [b], topics: {{include: [orders, "app[.].*"]}}{more}}}
{others}
"""


def advice(
    tmp_path: Path, more: str = "", others: str = "", *, policy: str = "identity", tiered: tuple[str, ...] = ()
) -> MirroringAdvice:
    spec = load([write(tmp_path, x=TREE.format(more=more, others=others, policy=policy))])
    topology = expand(spec)
    flow = next(flow for flow in topology.flows if flow.name == "main")
    return advise_flow(flow, topology.flows, render(topology), tiered)


def transforms(types: dict[str, str]) -> str:
    keys = "".join(f", transforms.{name}.type: {type_}" for name, type_ in types.items())
    return f", source_connector: {{transforms: '{','.join(types)}'{keys}}}"


def test_a_plain_flow_could_move_and_nothing_is_promised(tmp_path: Path) -> None:
    plain = advice(tmp_path)
    assert plain.could_move
    assert plain.sentence == (
        "Cluster Mirroring (KIP-1279, in no release up to Kafka 4.3): by the KIP's text it could take this flow; its topics "
        "would be copied anew, with the offsets and ids of the source"
    )
    assert to_json(plain)["could_move"] is True


@pytest.mark.parametrize(
    ("more", "others", "policy", "words"),
    [
        ("", "", "default", "its topics get other names (replication_policy: default, such as a.orders)"),
        ("", "", "com.acme.Policy", "its topics may get other names (replication_policy: com.acme.Policy)"),
        (
            "",
            "  other: {sources: [c], targets: [b], topics: {include: ['app[.]x.*']}}",
            "identity",
            "fan-in: c is mirrored to 'app.x",
        ),
        (
            "",
            "  back: {sources: [b], targets: [a], topics: {include: [orders]}}",
            "identity",
            "active/active: 'orders' is written on both sides (back:b->a), and a mirror topic is read-only",
        ),
        (
            transforms({"low": "org.apache.kafka.connect.transforms.Filter"}),
            "",
            "identity",
            "a filter leaves out records (transforms: low)",
        ),
        (
            transforms({"route": "org.apache.kafka.connect.transforms.RegexRouter"}),
            "",
            "identity",
            "transforms alter records (route), and copies are byte for byte",
        ),
        ("", "brokers: {a: {version: '2.0'}}", "identity", "the brokers of a are older than 2.1 (2.0)"),
    ],
)
def test_what_a_flow_could_not_move_by(more: str, others: str, policy: str, words: str, tmp_path: Path) -> None:
    if others.startswith("brokers"):
        (tmp_path / "overrides").mkdir()
        (tmp_path / "overrides" / "brokers.yaml").write_text(others + "\n")
        others = ""
    found = advice(tmp_path, more, others, policy=policy)
    assert not found.could_move
    assert len(found.obstacles) == 1
    assert found.obstacles[0].startswith(words)
    assert "could not take this flow: " + words in found.sentence


def test_tiered_topics_of_the_target_are_one(tmp_path: Path) -> None:
    assert "tiered storage of topics on the target (orders)" in advice(tmp_path, tiered=("orders",)).sentence


@pytest.mark.parametrize(
    ("more", "others"),
    [
        ("", "  other: {sources: [c], targets: [b], topics: {include: [users]}}"),
        ("", "  other: {sources: [a], targets: [b], topics: {include: [users]}}"),
        ("", "  other: {sources: [a], targets: [c], run_on: b, topics: {include: [orders]}}"),
    ],
)
def test_other_flows_that_share_no_topic_are_no_obstacle(more: str, others: str, tmp_path: Path) -> None:
    assert advice(tmp_path, more, others).could_move


def test_what_would_be_otherwise_is_said(tmp_path: Path) -> None:
    others = "  back: {sources: [b], targets: [a], topics: {include: [users]}}"
    once = advice(tmp_path, ", delivery: exactly_once", others)
    assert once.could_move
    assert "no topic may be in both directions" in once.sentence
    assert "records of open transactions are copied too" in once.sentence


def test_converters_of_a_template_are_one(tmp_path: Path) -> None:
    topology = expand(load([write(tmp_path, x=TREE.format(more="", others="", policy="identity"))]))
    (flow,), (connector,) = topology.flows, render(topology)
    assert advise_flow(flow, topology.flows, [connector]).could_move
    config = {**connector.config, "value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    altered = advise_flow(flow, topology.flows, [replace(connector, config=config)])
    assert altered.obstacles == ("converters write records anew (value.converter), and copies are byte for byte",)

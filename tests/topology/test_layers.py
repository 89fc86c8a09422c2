"""The nearest value wins, key by key: pair, flow, defaults, mm2mgr; and each value says who wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.operations import Workspace
from mm2mgr.spec.models import Balance
from mm2mgr.topology import Flow, Topology
from tests.spec.trees import BASE, FLOW, complaint, expanded

DEFAULTS = """\
defaults:
  flows:
    refresh_interval: 5min
    record_producer: {linger.ms: 1, acks: all, batch.size: 1}
    checkpoints: false
    tasks: {limit: 8}
"""
OWN = """\
    record_producer: {linger.ms: 2, batch.size: 2}
    checkpoints: {interval: 30s}
    pairs:
      "a->b":
        record_producer: {linger.ms: 3, send.buffer.bytes: null}
        checkpoints: {enabled: true}
"""


def origin(folder: Path, flow: Flow, *path: str) -> str:
    return str(flow.origin(*path)).replace(f"{folder}/", "")


def test_the_nearest_layer_wins_key_by_key(tmp_path: Path) -> None:
    (flow,) = expanded(tmp_path, d=DEFAULTS, x=BASE + FLOW + OWN).flows
    client = flow.client("record_producer")
    assert client["linger.ms"] == "3"
    assert client["batch.size"] == "2"
    assert client["acks"] == "all"
    assert "send.buffer.bytes" not in client  # null drops what mm2mgr adds
    assert client["receive.buffer.bytes"].origin.kind == "default"
    assert (flow.settings.refresh_interval, flow.settings.checkpoints.enabled) == (300, True)
    assert flow.settings.checkpoints.interval == 30


def test_each_value_knows_who_said_it(tmp_path: Path) -> None:
    (flow,) = expanded(tmp_path, d=DEFAULTS, x=BASE + FLOW + OWN).flows
    assert origin(tmp_path, flow, "record_producer", "linger.ms") == "spec x.yaml:16"
    assert origin(tmp_path, flow, "record_producer", "batch.size") == "spec x.yaml:12"
    assert origin(tmp_path, flow, "record_producer", "acks") == "spec d.yaml:4"
    assert origin(tmp_path, flow, "checkpoints", "enabled") == "spec x.yaml:17"
    assert origin(tmp_path, flow, "checkpoints", "interval") == "spec x.yaml:13"
    assert origin(tmp_path, flow, "heartbeats", "interval") == "default mm2mgr"


def test_the_short_form_of_a_block_is_overlaid_like_the_long_one(tmp_path: Path) -> None:
    text = BASE + FLOW + "    heartbeats: false\n"
    (flow,) = expanded(tmp_path, d="defaults: {flows: {heartbeats: {interval: 9s}}}\n", x=text).flows
    assert (flow.settings.heartbeats.enabled, flow.settings.heartbeats.interval) == (False, 9)


@pytest.mark.parametrize("off", ["false", "{enabled: false}"])
@pytest.mark.parametrize("block", ["checkpoints", "heartbeats", "offset_syncs"])
def test_settings_near_by_switch_on_what_was_off_further_away(tmp_path: Path, block: str, off: str) -> None:
    inner = "location: target" if block == "offset_syncs" else "interval: 30s"
    text = BASE + FLOW + f"    {block}: {{{inner}}}\n"
    (flow,) = expanded(tmp_path, d=f"defaults: {{flows: {{{block}: {off}}}}}\n", x=text).flows
    assert getattr(flow.settings, block).enabled
    assert origin(tmp_path, flow, block, "enabled") == "spec x.yaml:12"
    (flow,) = expanded(tmp_path, x=text.replace(inner, f"{inner}, enabled: false")).flows
    assert not getattr(flow.settings, block).enabled


def test_layers_that_only_clash_together_are_a_problem_with_a_place(tmp_path: Path) -> None:
    text = BASE + FLOW + "    tasks: {min: 9}\n"
    found = complaint(tmp_path, d=DEFAULTS, x=text)
    assert (
        found == "x.yaml:12:5: 'tasks' of a->b, defaults included: min (9) is above limit (8): lower min or raise limit"
    )


def cluster_tree(folder: Path, defaults: str, own: str) -> Topology:
    text = BASE.replace("[a1:9092]}", f"[a1:9092]{own}}}") + FLOW
    return expanded(folder, d=f"defaults: {{clusters: {defaults}}}\n", x=text)


def test_clusters_share_what_the_defaults_say(tmp_path: Path) -> None:
    topology = cluster_tree(
        tmp_path,
        "{replication_factor: 1, labels: {x: y}, security: {protocol: SSL, ssl.truststore.type: PEM}}",
        ", replication_factor: 2, security: {protocol: SASL_SSL}",
    )
    a, b = topology.clusters["a"], topology.clusters["b"]
    assert (a.replication_factor, b.replication_factor) == ("2", "1")
    assert a.replication_factor.origin.where.endswith("x.yaml:3")
    assert b.replication_factor.origin.where.endswith("d.yaml:1")
    assert dict(a.client) == {
        "bootstrap.servers": "a1:9092",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
    }
    assert a.client["security.protocol"].origin.where.endswith("x.yaml:3")
    assert a.client["ssl.truststore.type"].origin.where.endswith("d.yaml:1")
    assert a.model.labels == {"x": "y"}


def test_protocol_and_its_long_name_are_one_key(tmp_path: Path) -> None:
    for far, near in (("protocol", "security.protocol"), ("security.protocol", "protocol")):
        topology = cluster_tree(tmp_path, f"{{security: {{{far}: SSL}}}}", f", security: {{{near}: SASL_SSL}}")
        said = topology.clusters["a"].client["security.protocol"]
        assert said == "SASL_SSL"
        assert said.origin.where.endswith("x.yaml:3")


def test_null_drops_a_security_key_of_the_defaults(tmp_path: Path) -> None:
    topology = cluster_tree(
        tmp_path,
        "{security: {protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: '${file:/x:y}'}}",
        ", security: {protocol: PLAINTEXT, sasl.mechanism: null, sasl.jaas.config: null, ssl.key.password: null}",
    )
    assert dict(topology.clusters["a"].client) == {"bootstrap.servers": "a1:9092", "security.protocol": "PLAINTEXT"}
    assert topology.clusters["b"].client["sasl.mechanism"] == "PLAIN"
    dropped = cluster_tree(tmp_path, "{security: {security.protocol: SSL}}", ", security: {protocol: null}")
    assert dict(dropped.clusters["a"].client) == {"bootstrap.servers": "a1:9092"}


def test_credentials_of_a_connect_cluster_replace_shared_ones_whole(tmp_path: Path) -> None:
    shared = "defaults: {connect: {auth: {basic: {username: u, password: '${env:P}'}}, producer_security: connector}}\n"
    text = BASE.replace("kafka: b}", "kafka: b, auth: {bearer: '${env:T}'}}\n  v: {url: http://v, kafka: a}") + FLOW
    connects = expanded(tmp_path, d=shared, x=text).connects
    assert connects["w"].model.auth is not None
    assert (connects["w"].model.auth.basic, connects["w"].model.auth.bearer) == (None, "${env:T}")
    assert connects["w"].model.producer_security == "connector"
    assert connects["v"].model.auth is not None
    assert connects["v"].model.auth.basic is not None


BALANCED = """\
owner: me
defaults:
  balance: {by: plugin, windows: 22-5, rounds_per_day: 3}
  flows: {balance: {rounds_per_day: 2}}
clusters: {a: {bootstrap_servers: ["a:9092"]}, b: {bootstrap_servers: ["b:9092"]}}
connect: {w: {url: "http://w:8083", kafka: b}}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [orders]}, balance: {cool_down: 2h, automatic: false}}
  clicks: {sources: [a], targets: [b], topics: {include: [clicks]}, balance: stock}
"""


def test_defaults_of_balance_are_below_those_of_flows_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text(BALANCED)
    clicks, orders = (flow for flow in Workspace((file,)).topology.flows)
    assert orders.settings.balance == Balance(
        by="plugin", windows=["22-5"], rounds_per_day=2, cool_down="2h", automatic=[]
    )
    assert (clicks.settings.balance.by, clicks.settings.balance.windows) == ("stock", ["22-5"])
    assert [str(orders.origin("balance", key).where) for key in ("by", "rounds_per_day", "cool_down")] == [
        f"{file}:3", f"{file}:4", f"{file}:8"
    ]  # fmt: skip

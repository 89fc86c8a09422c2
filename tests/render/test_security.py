"""Where security goes: the exact key sets S, T and P that were verified on real brokers, for each place Connect can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.spec.trees import BASE, FLOW, expanded

GOLDEN = Path(__file__).parent / "golden"
A = {
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
}
B = {
    "bootstrap.servers",
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
}
NONE: set[str] = set()


def under(connector: Connector, prefix: str) -> dict[str, str]:
    """What the connector says under a prefix about reaching a cluster."""
    keys = {key.removeprefix(prefix): value for key, value in connector.config.items() if key.startswith(prefix)}
    return {key: value for key, value in keys.items() if key in A | B}


@pytest.mark.parametrize(
    ("case", "record_producer"),
    [
        ("third_kafka", B),
        ("own_kafka_worker_security", NONE),
        ("own_kafka_connector_security", B - {"bootstrap.servers"}),
    ],
)
def test_each_client_gets_exactly_what_reaches_its_cluster(case: str, record_producer: set[str]) -> None:
    topology = expand(load([GOLDEN / case]))
    a, b = topology.clusters["a"].client, topology.clusters["b"].client
    heartbeat, source, checkpoint = render(topology)
    for connector in (source, checkpoint):
        assert under(connector, "source.cluster.") == a
        assert under(connector, "target.cluster.") == b
        assert under(connector, "producer.override.") == {key: b[key] for key in record_producer}
    # A heartbeat connector beats into the flow's source and needs no way to the other side.
    assert under(heartbeat, "source.cluster.") == {}
    assert under(heartbeat, "target.cluster.") == under(heartbeat, "producer.override.") == a
    assert (set(a), set(b)) == (A, B)


@pytest.mark.parametrize("case", ["third_kafka", "own_kafka_worker_security", "own_kafka_connector_security"])
def test_credentials_go_nowhere_else(case: str) -> None:
    for connector in render(expand(load([GOLDEN / case]))):
        secret = {key for key, value in connector.config.items() if "${" in value}
        assert all(key.startswith(("source.cluster.", "target.cluster.", "producer.override.")) for key in secret)
        jaas = {key.rpartition("sasl.")[0] for key in secret if key.endswith("jaas.config")}
        assert "target.cluster." not in jaas or connector.type == "heartbeat"


def test_a_plain_cluster_is_said_to_be_plain_where_workers_could_say_otherwise(tmp_path: Path) -> None:
    text = BASE.replace("connect:", "  c: {bootstrap_servers: [c1:9092]}\nconnect:").replace("kafka: b", "kafka: c")
    for connector in render(expanded(tmp_path, x=text + FLOW + "    run_on: w\n")):
        assert connector.config["producer.override.security.protocol"] == "PLAINTEXT"


def test_a_flow_back_from_the_workers_kafka_is_retargeted(tmp_path: Path) -> None:
    heartbeat, source, _ = render(expanded(tmp_path, x=BASE.replace("kafka: b", "kafka: a") + FLOW + "    run_on: w\n"))
    assert source.config["producer.override.bootstrap.servers"] == "b1:9092"
    assert "producer.override.bootstrap.servers" not in heartbeat.config


def test_one_principal_per_client_can_be_written_under_that_client(tmp_path: Path) -> None:
    more = "    source_admin: {sasl.jaas.config: '${file:/x:admin}'}\n    record_producer: {sasl.jaas.config: '${file:/x:p}'}\n"
    text = BASE.replace("kafka: b", "kafka: b, producer_security: connector")
    text = text.replace("[b1:9092]}", "[b1:9092], security: {sasl.jaas.config: '${file:/x:all}'}}")
    _, source, checkpoint = render(expanded(tmp_path, x=text + FLOW + more))
    assert source.config["source.admin.sasl.jaas.config"] == "${file:/x:admin}"
    assert source.config["producer.override.sasl.jaas.config"] == "${file:/x:p}"
    assert source.config["target.cluster.sasl.jaas.config"] == "${file:/x:all}"
    # record_producer is about records; checkpoints go with the cluster's own principal
    assert checkpoint.config["producer.override.sasl.jaas.config"] == "${file:/x:all}"

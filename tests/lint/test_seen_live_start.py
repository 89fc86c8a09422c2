"""Faults of keys, values, security and workers, seen on real ones: refused, FAILED at start, or RUNNING with another effect."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path

import pytest
import trustme

from mm2mgr import operations
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import lint
from mm2mgr.operations.workspace import Workspace
from tests.lint.conftest import LOGIN
from tests.lint.lab import Lab
from tests.lint.made import CONVERTERS, MIRROR, Changes
from tests.live.seen import Message, messages, rest, topics, until, values, write, write_values

pytestmark = pytest.mark.live
BYTES = (b"\x00k\xff", b"\x01v\xfe", (("h", b"\x01\xff"),))
SASL = "source.cluster.security.protocol"
JAAS = "source.cluster.sasl.jaas.config"
MECHANISM = "source.cluster.sasl.mechanism"


@pytest.fixture(scope="module")
def certificate() -> str:
    return trustme.CA().cert_pem.bytes().decode()


def test_a_healthy_connector_copies_bytes_and_is_not_found(lab: Lab) -> None:
    lab.create_with("fine")
    write(lab.source, "fine", [Message(0, *BYTES)])
    with lab.running({"fine": lab.flow("fine")}):
        (found,) = until(lambda: messages(lab.target, "A.fine"), lambda read: len(read) == 1)
        assert (found.key, found.value, found.headers) == BYTES
        assert lab.told() == set()


# --- keys -------------------------------------------------------------------------------------------------------------


def test_removed_exclude(lab: Lab) -> None:
    lab.create("removed-a", "removed-b")
    with lab.running({"removed": lab.flow("removed-.*", {"topics.blacklist": "removed-b"})}):
        until(lambda: topics(lab.target), lambda found: {"A.removed-a", "A.removed-b"} <= found.keys())
        assert lab.told() == {"key-removed"}
    lab.create("renamed-a", "renamed-b")
    fixed = lab.flow("renamed-.*", {"topics.exclude": "renamed-b"})
    assert lab.told_of(fixed) == set()
    with lab.running({"removed": fixed}):
        lab.until_state("removed", "RUNNING", "RUNNING")
        assert {"A.renamed-a", "A.renamed-b"} & topics(lab.target).keys() == {"A.renamed-a"}


def test_other_connectors_key(lab: Lab) -> None:
    lab.create_with("others", b"1")
    refused_by_java = {"groups": "*"}
    with lab.running({"others": lab.flow("others", refused_by_java), "reader": lab.checkpoint("*")}):
        lab.until_values("A.others", b"1")
        lab.until_failed("reader", "PatternSyntaxException")
        assert lab.state("others") == ["RUNNING", "RUNNING"]
        assert lab.told("others") == {"other-connectors-key"}


def test_worker_key(lab: Lab) -> None:
    lab.create_with("hourly", b"1")
    with lab.running({"hourly": lab.flow("hourly", {"offset.flush.interval.ms": "3600000"})}):
        until(lambda: lab.offsets("hourly"), lambda found: found == [0], "offsets that the worker flushed")
        assert lab.told() == {"worker-key"}


# --- values -----------------------------------------------------------------------------------------------------------


def test_invalid_client_value(lab: Lab) -> None:
    lab.create_with("invalid", b"1")
    faults = {
        "acks": {"producer.override.acks": "7"},
        "batch": {"producer.override.batch.size": "-5"},
        "fetch": {"source.consumer.fetch.max.bytes": "-5"},
        "admin": {"source.admin.retries": "-1"},
    }
    flows = {name: lab.flow("invalid", changes) for name, changes in faults.items()}
    with lab.running(flows):
        for name in ("acks", "batch", "fetch"):
            lab.until_failed(name, "ConfigException: Invalid value", task=True)
        lab.until_failed("admin", "ConfigException: Invalid value -1 for configuration retries")
        assert {name: lab.told(name) for name in flows} == {name: {"invalid-value"} for name in flows}
    for changes, code in (({"producer.override.linger.ms": "abc"}, "500"), ({"tasks.max": "0"}, "400")):
        refused = lab.flow("invalid", changes)
        assert lab.refusal("refused", refused).startswith(code)
        assert lab.told_of(refused) == {"invalid-value"}


def test_missing_address(lab: Lab) -> None:
    sides = ("source", "target")
    flows = {f"no-{side}": lab.flow("missing", {f"{side}.cluster.bootstrap.servers": None}) for side in sides}
    with lab.running(flows):
        for name in flows:
            lab.until_failed(name, "bootstrap")
            assert lab.told(name) == {"missing-required"}
    for key, said in (("connector.class", "connector"), ("source.cluster.alias", "source.cluster.alias")):
        refused = lab.flow("missing", {key: None})
        assert said in lab.refusal("refused", refused)
        assert lab.told_of(refused) == {"missing-required"}


def test_null_value(lab: Lab, tmp_path: Path) -> None:
    config = {**lab.flow("nothing"), "topics": None}
    assert lab.refusal("nothing", config).startswith("400")
    file = tmp_path / "null.json"
    file.write_text(json.dumps({"name": "nothing", "config": config}))
    assert [finding.rule for finding in lint(read_files([file])) if finding.severity == "error"] == ["null-value"]


def test_partial_topic_creation(lab: Lab) -> None:
    with lab.running({"partial": lab.flow("partial", {"topic.creation.default.partitions": "3"})}):
        lab.until_failed("partial", "topic.creation.default.replication.factor")
        assert lab.told() == {"partial-topic-creation"}


def test_topic_creation_elsewhere(lab: Lab) -> None:
    creation = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
    there = {"producer.override.bootstrap.servers": lab.b.bootstrap_servers}
    lab.create_with("creation", b"1")
    lab.create_with("creation-away", b"1")
    with (
        lab.running({"here": lab.flow("creation", creation)}),
        lab.running({"away": lab.flow("creation-away", {**creation, **there})}, lab.on_a),
    ):
        lab.until_values("A.creation", b"1")
        lab.until_values("A.creation-away", b"1")
        assert topics(lab.target)["A.creation"] == topics(lab.target)["A.creation-away"] == 1
        assert topics(lab.source)["A.creation-away"] == 3, "the empty topic on the workers' own Kafka"
        assert lab.told("here") == {"topic-creation-elsewhere"}
        assert lab.told("away", worker=lab.on_a) == {"topic-creation-elsewhere"}


def test_enabled_false(lab: Lab) -> None:
    lab.create_with("disabled", b"1")
    off = {"enabled": "false"}
    beats = {**off, "replication.policy.class": f"{MIRROR}DefaultReplicationPolicy"}
    connectors = {"off": lab.flow("disabled", off), "beating": lab.heartbeat(lab.b, beats)}
    with lab.running(connectors):
        until(lambda: messages(lab.target, "heartbeats"), bool, "beats")
        lab.until_state("off", "RUNNING")
        assert "A.disabled" not in topics(lab.target)
        assert {name: lab.told(name) for name in connectors} == {name: {"enabled-false"} for name in connectors}
        lab.put("off", lab.flow("disabled"))
        lab.until_values("A.disabled", b"1")


def test_policy_class(lab: Lab) -> None:
    key = "replication.policy.class"
    for name in (f"{MIRROR}IdentityReplicationPolcy", "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy"):
        refused = lab.flow("policy", {key: name})
        answer = lab.refusal("refused", refused)
        assert answer.startswith("400")
        assert name in answer
        assert lab.told_of(refused) == {"policy-class"}


def test_a_transformation_is_looked_for_among_what_the_workers_list(lab: Lab, tmp_path: Path) -> None:
    """A file of a connector that runs, so that the workers of `--connect` are its own."""
    lab.create("sieved")
    kafkas = "org.apache.kafka.connect.transforms.DropHeaders"
    sieved = {"transforms": "sieve", "transforms.sieve.headers": "h", "transforms.sieve.type": kafkas}
    with lab.running({"sieved": lab.flow("sieved", sieved)}):
        lab.until_state("sieved", "RUNNING", "RUNNING")
        file = tmp_path / "sieved.json"
        for name, refused in ((kafkas, False), ("DropHeaders", False), ("com.missing.Nope", True), ("Nope", True)):
            config = {"name": "sieved", **lab.flow("sieved", {**sieved, "transforms.sieve.type": name})}
            file.write_text(json.dumps(config), encoding="utf-8")
            report = operations.lint(Workspace(), [file], operations.LintOptions(connects=[lab.on_b.url]))
            errors = [finding for finding in report.loud if finding.severity == "error"]
            assert [finding.rule for finding in errors] == ["class-refused"] * refused, (name, errors)
            assert all("not on the workers, which list no such transformation" in each.message for each in errors)
            validation = f"{lab.on_b.url}/connector-plugins/MirrorSourceConnector/config/validate"
            assert bool(rest("PUT", validation, config)["error_count"]) is refused, name


# --- workers ----------------------------------------------------------------------------------------------------------


def test_wrong_kafka(lab: Lab) -> None:
    lab.create_with("astray", b"1")
    with lab.running({"astray": lab.flow("astray")}, lab.on_a):
        until(lambda: values(lab.source, "A.astray"), lambda found: found == [b"1"], "records on the workers' Kafka")
        until(lambda: lab.offsets("astray", lab.on_a), lambda found: found == [0])
        assert (topics(lab.target)["A.astray"], values(lab.target, "A.astray")) == (1, [])
        assert lab.state("astray", lab.on_a) == ["RUNNING", "RUNNING"]
        assert lab.told(worker=lab.on_a) == {"wrong-kafka"}
        (found,) = _of_lint(lab)
        assert f"({lab.ids[lab.a.bootstrap_servers]}, not {lab.ids[lab.b.bootstrap_servers]})" in found.message
        fixed = lab.flow("astray", {"producer.override.bootstrap.servers": lab.b.bootstrap_servers})
        lab.put("astray", fixed, lab.on_a)
        until(lambda: _written_and_read(lab, "astray"), bool, "records on the target")
        assert lab.told(worker=lab.on_a) == set()
        assert _of_lint(lab) == []
        host, _, port = lab.b.bootstrap_servers.rpartition(":")
        other_name = {"localhost": "127.0.0.1", "127.0.0.1": "localhost"}[host]
        lab.put("astray", {**fixed, "producer.override.bootstrap.servers": f"{other_name}:{port}"}, lab.on_a)
        assert _of_lint(lab) == []


def _of_lint(lab: Lab) -> list[Finding]:
    """Return what `lint --connect` finds by what workers and brokers say, hints left out."""
    report = operations.lint(Workspace(), options=operations.LintOptions(connects=[lab.on_a.url]))
    return [finding for finding in report.loud if finding.severity != "info"]


def _written_and_read(lab: Lab, topic: str) -> list[bytes | None]:
    """Write one more, since the first may still be taken by the task that is about to end."""
    write_values(lab.source, topic, b"2")
    return values(lab.target, f"A.{topic}")


def test_converters(lab: Lab) -> None:
    sent = [Message(0, *BYTES), Message(0, b"k", None)]
    names = ("unset", "string", "no-header")
    for name in names:
        lab.create(f"bytes-{name}")
        write(lab.source, f"bytes-{name}", sent)
    unset: dict[str, str | None] = dict.fromkeys(CONVERTERS)
    string = dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.storage.StringConverter")
    changes: dict[str, Changes] = {"unset": unset, "string": string, "no-header": {"header.converter": None}}
    with lab.running({name: lab.flow(f"bytes-{name}", changes[name]) for name in names}):
        lab.until_failed("unset", "JsonConverter", task=True)  # the record without a value
        json_read, text_read, header_read = (
            until(partial(messages, lab.target, f"A.bytes-{name}"), bool)[0] for name in names
        )
        assert json.loads(json_read.value or b"")["payload"] == base64.b64encode(BYTES[1]).decode()
        assert (text_read.value or b"").startswith(b"[B@")
        assert (header_read.key, header_read.value) == BYTES[:2]
        assert header_read.headers != BYTES[2]
        assert {name: lab.told(name) for name in names} == {name: {"converter"} for name in names}


def test_worker_keystore_clash(lab: Lab, certificate: str) -> None:
    lab.create_with("stores", b"1")
    override = {
        "bootstrap.servers": lab.b.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate,
        "ssl.keystore.key": "${nobody:knows}",
    }
    flow = lab.flow("stores", {f"producer.override.{key}": value for key, value in override.items()})
    with lab.running({"stores": flow}, lab.on_a):
        lab.until_state("stores", "RUNNING", "FAILED", worker=lab.on_a)
        assert "Both SSL key store location and separate private key are specified" in lab.trace("stores", lab.on_a)
        assert lab.told(worker=lab.on_a) - {"provider-unknown"} == {"worker-keystore-clash"}


def test_unknown_provider(lab: Lab) -> None:
    servers = "${nobody:path:key}"
    with lab.running({"literal": lab.flow("literal", {"source.cluster.bootstrap.servers": servers})}):
        lab.until_failed("literal", servers)
        assert lab.told() == {"provider-unknown"}


# --- security ---------------------------------------------------------------------------------------------------------


def test_security_incomplete(lab: Lab) -> None:
    address = {"source.cluster.bootstrap.servers": lab.a.bootstrap("LOGIN")}
    login = LOGIN.replace("user_mirror", 'username="mirror" password')
    whole = {**address, SASL: "SASL_PLAINTEXT", MECHANISM: "PLAIN", JAAS: login}
    lab.create_with("half", b"1")
    without = {"no-login": JAAS, "no-mechanism": MECHANISM, "no-protocol": SASL}
    flows = {name: lab.flow("half", {**whole, key: None, "admin.timeout.ms": "1500"}) for name, key in without.items()}
    with lab.running({**flows, "whole": lab.flow("half", whole)}):
        lab.until_failed("no-login", "Could not find a 'KafkaClient' entry in the JAAS configuration")
        lab.until_failed("no-mechanism", "No serviceName defined in either JAAS or Kafka config")
        lab.until_state("whole", "RUNNING", "RUNNING")
        lab.until_state("no-protocol", "RUNNING")
        clear = {"secret-in-clear"}
        assert {name: lab.told(name) - clear for name in flows} == {name: {"security-incomplete"} for name in flows}
        assert lab.told("whole") == clear


def test_store_type(lab: Lab, certificate: str, tmp_path: Path) -> None:
    store = "source.cluster.ssl.truststore."
    lines = {SASL: "SSL", f"{store}certificates": certificate}
    file = tmp_path / "ca.pem"
    file.write_text(certificate)
    faults = {
        "jks": (lines, "can be specified only for PEM", {"store-type-missing"}),
        "slashes": (
            {SASL: "SSL", f"{store}type": "PEM", f"{store}certificates": certificate.replace("\n", "\\n")},
            "in PEM file",
            {"pem-not-lines"},
        ),
        "password": (
            {SASL: "SSL", f"{store}type": "PEM", f"{store}location": str(file), f"{store}password": "of-nothing"},
            "password cannot be specified",
            {"store-type-missing", "secret-in-clear"},
        ),
    }
    with lab.running({name: lab.flow("stored", changes) for name, (changes, _, _) in faults.items()}):
        for name, (_, trace, rules) in faults.items():
            lab.until_failed(name, trace)
            assert lab.told(name) == rules


# --- exactly-once -----------------------------------------------------------------------------------------------------


def test_exactly_once_refused(lab: Lab) -> None:
    required = {"exactly.once.support": "required"}
    committed = {**required, "source.consumer.isolation.level": "read_committed"}
    slow = {"exactly-once-slow"}
    answer = lab.refusal("refused", lab.flow("once", required))
    assert answer.startswith("400")
    assert "isolation.level" in answer
    assert lab.told_of(lab.flow("once", required)) - slow == {"exactly-once-isolation", "exactly-once-worker"}
    answer = lab.refusal("refused", lab.flow("once", committed))
    assert "This worker does not have exactly-once source support enabled" in answer
    assert lab.told_of(lab.flow("once", committed)) - slow == {"exactly-once-worker"}
    for config in (lab.checkpoint("g", required), lab.heartbeat(lab.b, required)):
        assert lab.refusal("refused", config).startswith("400")
        assert lab.told_of(config) == {"exactly-once-unsupported"}


def test_the_lab_has_the_workers_properties_right(lab: Lab) -> None:
    """What lint is told of the workers is what they run with."""
    assert rest("GET", f"{lab.on_b.url}/")["kafka_cluster_id"] == lab.ids[lab.b.bootstrap_servers]
    assert rest("GET", f"{lab.on_a.url}/")["kafka_cluster_id"] == lab.ids[lab.a.bootstrap_servers]

"""Rules over a connector and its workers: policies, whose Kafka, converters, stores and providers."""

from __future__ import annotations

from typing import Any

import pytest

from mm2mgr.lint.subject import KafkaFacts, Spot, Subject, WorkerFacts
from tests.lint import made

ON_SOURCE = {"bootstrap.servers": "a1:9092", "config.providers": "file, env"}
ON_TARGET = {"bootstrap.servers": "b9:9092,B2:9092"}
NO_OVERRIDE = {"producer.override.bootstrap.servers": None}
TLS = {"target.cluster.security.protocol": "SSL", "target.cluster.ssl.truststore.location": "/ca.p12"}


def one(rule: str, subject: Subject) -> Any:
    (hit,) = made.hits(rule, subject)
    return hit


@pytest.mark.parametrize(
    ("worker", "refused"),
    [
        (WorkerFacts(policy="None"), ["bootstrap.servers", "security.protocol"]),
        (WorkerFacts(policy="Principal"), ["bootstrap.servers"]),
        (WorkerFacts(policy="All"), []),
        (WorkerFacts(policy="Allowlist"), []),  # the list is not known
        (WorkerFacts(policy="org.example.Own"), []),
        (WorkerFacts(), []),
        (WorkerFacts(properties={}), []),
        (WorkerFacts(refused={"producer.override.security.protocol": "no"}), ["security.protocol"]),
        (
            WorkerFacts(
                properties={
                    "connector.client.config.override.policy": "org.x.AllowlistConnectorClientConfigOverridePolicy",
                    "connector.client.config.override.allowlist": "bootstrap.servers, acks",
                }
            ),
            ["security.protocol"],
        ),
    ],
)
def test_override_policies(worker: WorkerFacts, refused: list[str]) -> None:
    subject = made.source({"producer.override.security.protocol": "SSL"}, worker=worker)
    hits = made.hits("policy-forbids", subject)
    assert len(hits) == bool(refused)
    for hit in hits:
        assert all(f"producer.override.{plain}" in hit.message for plain in refused)
        assert ("bootstrap.servers" in hit.message) == ("bootstrap.servers" in refused)


POLICY, LIST = "connector.client.config.override.policy", "connector.client.config.override.allowlist"
SECURE = {"producer.override.security.protocol": "SSL", "producer.override.linger.ms": "50"}
SAID = {"producer.override.linger.ms": "no", "producer.override.client.id": "no"}


@pytest.mark.parametrize(
    ("worker", "fix"),
    [
        (
            WorkerFacts(policy="None"),
            f"set {POLICY}=All on the workers, or Allowlist with {LIST}=bootstrap.servers,linger.ms,security.protocol",
        ),
        # What Principal allows, an Allowlist has to list.
        (
            WorkerFacts(policy="Principal"),
            f"set {POLICY}=All on the workers, or Allowlist with {LIST}=bootstrap.servers,linger.ms,security.protocol",
        ),
        (
            WorkerFacts(properties={POLICY: "Allowlist", LIST: "security.protocol, acks,bootstrap.servers"}),
            f"set {LIST}=security.protocol,acks,bootstrap.servers,linger.ms on the workers, or {POLICY}=All",
        ),
        # The workers tell what they refuse of what they were asked for, not the list itself.
        (
            WorkerFacts(policy="Allowlist", refused=SAID, allowed=frozenset({"producer.override.acks"})),
            f"add linger.ms to {LIST} of the workers and keep its entries, including acks, bootstrap.servers, security.protocol; "
            f"or set {POLICY}=All",
        ),
    ],
)
def test_the_remedy_of_a_policy_takes_back_nothing_that_is_allowed(worker: WorkerFacts, fix: str) -> None:
    assert one("policy-forbids", made.source(SECURE, worker=worker)).fix == fix


def test_overrides_of_clients_that_are_not_there_are_not_checked() -> None:
    changes = {**NO_OVERRIDE, "consumer.override.acks": "1", "admin.override.retries": "1"}
    assert made.hits("policy-forbids", made.source(changes, worker=WorkerFacts(policy="None"))) == []
    creation = {**changes, "topic.creation.default.partitions": "1"}
    assert "admin.override" in one("policy-forbids", made.source(creation, worker=WorkerFacts(policy="None"))).message
    stored = one(
        "policy-forbids", made.source({**changes, "offsets.storage.topic": "x"}, worker=WorkerFacts(policy="None"))
    )
    assert "consumer.override.acks, admin.override.retries" in stored.message


def test_records_on_the_workers_own_kafka() -> None:
    hit = one("wrong-kafka", made.source(NO_OVERRIDE, worker=WorkerFacts(properties=ON_SOURCE)))
    assert hit.fix == "write producer.override.bootstrap.servers=b1:9092,b2:9092"
    assert made.hits("wrong-kafka", made.source(worker=WorkerFacts(properties=ON_SOURCE))) == []
    assert made.hits("wrong-kafka", made.source(NO_OVERRIDE, worker=WorkerFacts(properties=ON_TARGET))) == []
    assert made.hits("wrong-kafka", made.source(NO_OVERRIDE)) == []
    moved = {**ON_SOURCE, "producer.bootstrap.servers": "b1:9092"}
    assert made.hits("wrong-kafka", made.source(NO_OVERRIDE, worker=WorkerFacts(properties=moved))) == []


def test_addresses_that_prove_nothing_and_one_that_does() -> None:
    local = {"source.cluster.bootstrap.servers": "localhost:9092", "target.cluster.bootstrap.servers": "localhost:9093"}
    for port, count in (("9092", 1), ("9093", 0), ("9094", 0)):
        worker = WorkerFacts(properties={"bootstrap.servers": f"localhost:{port}"})
        assert len(made.hits("wrong-kafka", made.source({**NO_OVERRIDE, **local}, worker=worker))) == count


NAMES = {
    "numbered data centres": ("dc1-kafka:9092", "dc2-kafka:9092", "dc2-kafka-b:9092"),
    "IP addresses": ("10.1.0.4:9092", "10.2.0.4:9092", "10.2.0.5:9092"),
    "short and full name": ("kafka-paris.example.org:9092", "kafka-oslo.example.org:9092", "kafka-oslo:9092"),
    "Kubernetes services": (
        "a-kafka-bootstrap.a.svc:9092",
        "b-kafka-bootstrap.b.svc.cluster.local:9092",
        "b-kafka-brokers.b:9092",
    ),
    "lettered brokers": ("src-kafka-a:9092", "kafka-a:9092,kafka-b:9092", "kafka-c:9092"),
    "other listener": ("src:9092", "tgt:9092", "tgt:9093"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_only_ids_and_equal_addresses_are_proof(names: tuple[str, str, str]) -> None:
    source, target, third = names
    sides = {"source.cluster.bootstrap.servers": source, "target.cluster.bootstrap.servers": target}
    elsewhere = KafkaFacts(cluster_id="elsewhere")
    ids = {"source_kafka": KafkaFacts(cluster_id="A-id"), "target_kafka": KafkaFacts(cluster_id="B-id")}

    def found(servers: str, worker_id: str | None = None, **facts: Any) -> int:
        own = made.source({**NO_OVERRIDE, **sides, "producer.override.bootstrap.servers": servers}, **facts)
        worker = WorkerFacts(properties={"bootstrap.servers": servers}, cluster_id=worker_id)
        theirs = made.source({**NO_OVERRIDE, **sides}, worker=worker, **facts)
        (count,) = {len(made.hits("wrong-kafka", each)) for each in ((theirs,) if worker_id else (own, theirs))}
        return count

    assert [found(each) for each in names] == [1, 0, 0]
    assert [found(third, worker_id, **ids) for worker_id in ("A-id", "B-id", "other")] == [1, 0, 1]
    assert found(source, "B-id", **ids) == 0
    one = made.source({**sides, "producer.override.bootstrap.servers": third}, records_kafka=elsewhere, **ids)
    assert "(elsewhere, not B-id)" in made.hits("wrong-kafka", one)[0].message


def test_cluster_ids_outrank_addresses() -> None:
    here, there = KafkaFacts(cluster_id="B-id"), KafkaFacts(cluster_id="A-id")
    ids = WorkerFacts(cluster_id="A-id", properties=ON_TARGET)
    assert len(made.hits("wrong-kafka", made.source(NO_OVERRIDE, worker=ids, target_kafka=here))) == 1
    same = WorkerFacts(cluster_id="A-id", properties=ON_SOURCE)
    assert made.hits("wrong-kafka", made.source(NO_OVERRIDE, worker=same, target_kafka=there)) == []


def test_an_override_that_leads_elsewhere() -> None:
    assert made.hits("wrong-kafka", made.source({"producer.override.bootstrap.servers": "c1:9092"})) == []
    assert len(made.hits("wrong-kafka", made.source({"producer.override.bootstrap.servers": "A1:9092"}))) == 1
    assert made.hits("wrong-kafka", made.source({"producer.override.bootstrap.servers": "B2:9092"})) == []
    assert made.hits("wrong-kafka", made.source({"producer.override.bootstrap.servers": "${env:B}"})) == []


def test_an_override_without_the_security_of_the_target() -> None:
    hit = one("override-insecure", made.source(TLS))
    assert "security.protocol, ssl.truststore.certificates" in hit.message
    assert "producer.override.security.protocol" in hit.fix
    same = {key.replace("target.cluster.", "producer.override."): value for key, value in TLS.items()}
    assert made.hits("override-insecure", made.source({**TLS, **same})) == []
    assert made.hits("override-insecure", made.source({**TLS, **NO_OVERRIDE})) == []
    assert made.hits("override-insecure", made.source({"target.cluster.security.protocol": "PLAINTEXT"})) == []
    theirs = {f"producer.{key.removeprefix('target.cluster.')}": value for key, value in TLS.items()}
    assert made.hits("override-insecure", made.source(TLS, worker=WorkerFacts(properties=theirs))) == []
    plain = {**TLS, **same, "producer.override.security.protocol": "PLAINTEXT"}
    assert len(made.hits("override-insecure", made.source(plain))) == 1


def test_converters() -> None:
    strings = "org.apache.kafka.connect.storage.StringConverter"
    hit = one("converter", made.source({"value.converter": strings}))
    assert hit.key == "value.converter"
    assert hit.fix == f"write value.converter={made.BYTES}"
    unset: dict[str, str | None] = dict.fromkeys(made.CONVERTERS)
    hit = one("converter", made.source(unset))
    assert all(f"{key}={made.BYTES}" in hit.fix for key in made.CONVERTERS)
    assert made.hits("converter", made.source(unset, form="dedicated")) == []
    assert made.hits("converter", made.source(unset, worker=WorkerFacts(properties=made.CONVERTERS))) == []
    assert made.hits("converter", made.source({"key.converter": "ByteArrayConverter"})) == []
    without_header = {key: value for key, value in made.CONVERTERS.items() if key != "header.converter"}
    hit = one("converter", made.source(unset, worker=WorkerFacts(properties=without_header)))
    assert hit.key == "header.converter"
    assert "SimpleHeaderConverter" in hit.message


def test_stores_of_the_workers_cannot_be_taken_back() -> None:
    p12 = WorkerFacts(
        properties={"producer.ssl.keystore.location": "/k.p12", "producer.ssl.keystore.password": "hunter2"}
    )
    inline = {"producer.override.ssl.keystore.key": "${dir:/tls:key}", "producer.override.ssl.keystore.type": "PEM"}
    hit = one("worker-keystore-clash", made.source(inline, worker=p12))
    assert hit.key == "producer.override.ssl.keystore.key"
    assert "hunter2" not in hit.message + hit.fix
    pem = {"producer.override.ssl.keystore.location": "/k.pem", "producer.override.ssl.keystore.type": "PEM"}
    assert "producer.ssl.keystore.password" in one("worker-keystore-clash", made.source(pem, worker=p12)).message
    same_kind = {"producer.override.ssl.keystore.location": "/b.p12"}
    assert made.hits("worker-keystore-clash", made.source(same_kind, worker=p12)) == []
    assert made.hits("worker-keystore-clash", made.source(inline)) == []
    assert made.hits("worker-keystore-clash", made.source(inline, worker=WorkerFacts(properties=ON_TARGET))) == []


def test_providers() -> None:
    secret = {"source.cluster.sasl.jaas.config": 'x required username="${file:/s:u}" password="${vault:/s:p}";'}
    hit = one("provider-unknown", made.source(secret, worker=WorkerFacts(properties=ON_SOURCE)))
    assert "vault" in hit.fix
    assert "${vault:…}" in hit.message
    assert made.hits("provider-unknown", made.source(secret)) == []
    known = {**ON_SOURCE, "config.providers": "vault,file"}
    assert made.hits("provider-unknown", made.source(secret, worker=WorkerFacts(properties=known))) == []


@pytest.mark.parametrize(
    ("form", "connect", "severity"), [("connect", "", "warning"), ("connect", "east", None), ("tree", "", None)]
)
def test_placeholder_unfilled(form: Any, connect: str, severity: str | None) -> None:
    """Where nothing else fills it in it is an error; a file may be a template."""
    changes = {"target.cluster.ssl.truststore.password": "${CA_PASS}", "topics": "orders"}
    [hit] = made.hits(
        "placeholder-unfilled", made.source(changes, form=form, spot=Spot("" if connect else "m.json", connect=connect))
    )
    assert hit.severity == severity
    assert "${env:CA_PASS}" in hit.fix


def test_no_fix_changes_what_a_template_fills_in() -> None:
    changes = {"source.cluster.bootstrap.servers": "http://{{ host }}:9092", "topics": "{{ topics }} payments"}
    found = made.findings(made.source(changes))
    assert not [each for each in found if each.hit and any("{{" in (edit.value or "") for edit in each.hit.edits)]
    assert not [each for each in found if each.severity == "error"]

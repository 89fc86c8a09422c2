"""Rules over values: what Kafka's definitions refuse, what is missing, and values that do another thing than they say."""

from __future__ import annotations

import pytest

from mm2mgr.lint.subject import Spot, Subject, WorkerFacts
from mm2mgr.truth.keys import SCOPES, load, problem
from tests.lint import made

MIRROR = made.MIRROR


def keys(rule: str, subject: Subject) -> list[str]:
    return [hit.key for hit in made.hits(rule, subject)]


@pytest.mark.parametrize(
    ("key", "wrong", "right"),
    [
        ("producer.override.acks", "7", "all"),
        ("producer.override.batch.size", "-5", "0"),
        ("producer.override.linger.ms", "abc", " 5 "),
        ("producer.override.compression.type", "brotli", "zstd"),
        ("producer.linger.ms", "soon", "5"),
        ("source.consumer.isolation.level", "READ_COMMITTED", "read_committed"),
        ("source.consumer.auto.offset.reset", "first", "by_duration:PT1H"),
        ("source.consumer.max.poll.records", "0", "1"),
        ("source.consumer.receive.buffer.bytes", "-2", "-1"),
        ("source.consumer.fetch.max.bytes", "3000000000", "2147483647"),
        ("source.admin.retries", "many", "3"),
        ("source.cluster.security.protocol", "TLS", "ssl"),
        ("errors.tolerance", "some", "none"),
        ("tasks.max", "0", "1"),
        ("tasks.max", "ten", "10"),
        ("sync.topic.acls.enabled", "yes", "FALSE"),
        ("offset-syncs.topic.location", "both", "target"),
        ("exactly.once.support", "always", "Requested"),
        ("metric.names.formats", "legacy,newer", "legacy,new"),
        ("producer.override.delivery.timeout.ms", "${file:/x:y}ms", "${file:/x:y}"),
    ],
)
def test_values_that_kafka_refuses(key: str, wrong: str, right: str) -> None:
    expected = [] if "${" in wrong else [key]
    assert keys("invalid-value", made.source({key: wrong})) == expected
    assert keys("invalid-value", made.source({key: right})) == []


def test_who_notices_a_wrong_value() -> None:
    (hit,) = made.hits("invalid-value", made.source({"tasks.max": "ten"}))
    assert "Connect refuses" in hit.message
    (hit,) = made.hits("invalid-value", made.source({"producer.override.acks": "7"}))
    assert "record producer" in hit.message
    assert "all, -1, 0, 1" in hit.fix
    (hit,) = made.hits("invalid-value", made.source({"target.admin.retries": "many"}))
    assert "connector is FAILED" in hit.message


def test_values_are_judged_by_the_workers_kafka() -> None:
    duration = {"source.consumer.auto.offset.reset": "by_duration:PT1H"}
    assert keys("invalid-value", made.source(duration, worker=WorkerFacts(version="4.0.0"))) == []
    assert keys("invalid-value", made.source(duration, worker=WorkerFacts(version="3.9.0"))) == list(duration)


def test_values_of_keys_that_do_nothing_are_left_alone() -> None:
    assert keys("invalid-value", made.source({"batch.size": "-5", "nobody.knows": "x"})) == []


def test_the_lines_of_a_cluster_in_mm2_properties_count() -> None:
    spots = {"producer.override.acks": Spot("mm2.properties", 3, key="B.producer.acks")}
    (hit,) = made.hits("invalid-value", made.source({"producer.override.acks": "7"}, form="dedicated", spots=spots))
    assert hit.message.startswith("B.producer.acks=7 ")


def test_every_default_of_kafka_is_a_value_that_it_accepts() -> None:
    known = load()
    for scope in SCOPES:
        for name in known.names(scope):
            for key in known.history(scope, name):
                # Kafka refuses some defaults in their own letters once they are written.
                if key.default is not None and name not in ("share.acquire.mode", "group.protocol"):
                    assert problem(key, key.default) == "", key


def test_missing_keys() -> None:
    assert "source.cluster.alias" in made.hits("missing-required", made.source({"source.cluster.alias": None}))[0].fix
    no_source = made.source({"source.cluster.bootstrap.servers": None})
    (hit,) = made.hits("missing-required", no_source)
    assert hit.fix.startswith("write source.cluster.bootstrap.servers=")
    assert "source consumer" in hit.message
    assert made.hits("missing-required", made.heartbeat({"source.cluster.bootstrap.servers": None})) == []
    (hit,) = made.hits("missing-required", made.heartbeat({"target.cluster.bootstrap.servers": " "}))
    assert "target.cluster.bootstrap.servers" in hit.fix
    own = {f"source.{kind}.bootstrap.servers": "a1:9092" for kind in ("admin", "consumer", "producer")}
    assert made.hits("missing-required", made.source({"source.cluster.bootstrap.servers": None, **own})) == []
    del own["source.admin.bootstrap.servers"]
    (hit,) = made.hits("missing-required", made.source({"source.cluster.bootstrap.servers": None, **own}))
    assert "source admin" in hit.message
    assert "consumer" not in hit.message


def test_a_target_without_an_alias() -> None:
    (hit,) = made.hits("target-alias-missing", made.source({"target.cluster.alias": None}))
    assert "target.cluster.alias=" in hit.fix
    assert made.hits("target-alias-missing", made.source()) == []


def test_topic_creation() -> None:
    whole = {"topic.creation.default.replication.factor": "3", "topic.creation.default.partitions": "6"}
    part = {"topic.creation.default.partitions": "6"}
    (hit,) = made.hits("partial-topic-creation", made.source(part))
    assert "topic.creation.default.replication.factor" in hit.fix
    assert hit.key in part
    assert made.hits("topic-creation-elsewhere", made.source(part)) == []
    assert made.hits("partial-topic-creation", made.source(whole)) == []
    assert len(made.hits("topic-creation-elsewhere", made.source(whole))) == 1
    for rule in ("partial-topic-creation", "topic-creation-elsewhere"):
        assert made.hits(rule, made.source()) == []


def test_enabled_false() -> None:
    assert keys("enabled-false", made.source({"enabled": "False"})) == ["enabled"]
    assert "ignores enabled=false" in made.hits("enabled-false", made.heartbeat({"enabled": "false"}))[0].message
    assert keys("enabled-false", made.source({"enabled": "true"})) == []
    assert keys("enabled-false", made.source({"enabled": "false"}, form="dedicated")) == []


@pytest.mark.parametrize(
    ("name", "version", "tripped"),
    [
        ("io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", None, True),
        (f"{MIRROR}IdentityReplicationPolicy", "2.8.1", True),
        (f"{MIRROR}IdentityReplicationPolicy", "3.0.0", False),
        (f"{MIRROR}IdentityReplicationPolicy", None, False),
        (f"{MIRROR}IdentityPolicy", None, True),
        (f"{MIRROR}DefaultReplicationPolicy", None, False),
        ("org.example.OwnPolicy", None, False),
    ],
)
def test_policy_classes(name: str, version: str | None, *, tripped: bool) -> None:
    hits = made.hits(
        "policy-class", made.source({"replication.policy.class": name}, worker=WorkerFacts(version=version))
    )
    assert bool(hits) is tripped
    assert all(f"={name}" not in hit.fix for hit in hits), "never the class that it refuses"


def test_workers_without_the_plugin() -> None:
    mirror = frozenset({f"{MIRROR}MirrorSourceConnector"})
    other = frozenset({"org.example.Sink"})
    assert keys("plugin-missing", made.source(worker=WorkerFacts(plugins=other))) == ["connector.class"]
    assert keys("plugin-missing", made.source()) == []
    for name in (f"{MIRROR}MirrorSourceConnector", "MirrorSourceConnector", "MirrorSource"):
        assert keys("plugin-missing", made.source({"connector.class": name}, worker=WorkerFacts(plugins=mirror))) == []


@pytest.mark.parametrize("plain", ["key.serializer", "value.serializer"])
def test_the_record_producer_takes_bytes_only(plain: str) -> None:
    key, package = f"producer.override.{plain}", "org.apache.kafka.common.serialization"
    [hit] = made.hits("invalid-value", made.source({key: f"{package}.StringSerializer"}))
    assert (hit.key, hit.fix) == (key, f"remove {key}")
    assert made.hits("invalid-value", made.source({key: f"{package}.ByteArraySerializer"})) == []

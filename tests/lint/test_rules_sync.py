"""Rules about ACLs, topic settings, replication factors and intervals."""

from __future__ import annotations

from typing import Any

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import sync
from mm2mgr.lint.subject import KafkaFacts, Spot, Subject, WorkerFacts
from tests.lint import made

OWN = rules_of(sync)
RULES = {rule.id for rule in OWN}
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def secured(*sides: str) -> dict[str, str]:
    return {f"{side}.cluster.{key}": value for side in sides for key, value in SCRAM.items()}


def test_acls_where_the_sides_log_in_differently() -> None:
    (hit,) = made.hits("sync-acls", made.source(secured("source")))
    assert "SCRAM-SHA-512 on the source, no login on the target" in hit.message
    assert made.hits("sync-acls", made.source({**secured("source"), "sync.topic.acls.enabled": "false"})) == []
    assert made.hits("sync-acls", made.source(secured("source", "target"))) == []
    assert made.hits("sync-acls", made.source()) == []


def test_acls_that_are_asked_for() -> None:
    (hit,) = made.hits("sync-acls", made.source({"sync.topic.acls.enabled": "true"}))
    assert hit.key == "sync.topic.acls.enabled"


def test_defaults_from() -> None:
    assert "source has an effect" in made.hits("sync-configs", made.source({"use.defaults.from": "A"}))[0].message
    old = WorkerFacts(version="3.4.0")
    assert made.hits("sync-configs", made.source({"use.defaults.from": "A"}, worker=old)) == []  # key-too-new says so
    assert made.hits("sync-configs", made.source({"use.defaults.from": "source"})) == []
    assert made.hits("sync-configs-off", made.source({"sync.topic.configs.enabled": "false"}))
    assert made.hits("sync-configs-off", made.source()) == []


@pytest.mark.parametrize(
    ("subject", "key", "where"),
    [
        (made.source(target_kafka=KafkaFacts(brokers=1)), "replication.factor", "target"),
        (made.source(source_kafka=KafkaFacts(brokers=2)), "offset-syncs.topic.replication.factor", "source"),
        (made.checkpoint(target_kafka=KafkaFacts(brokers=2)), "checkpoints.topic.replication.factor", "target"),
        (made.heartbeat(target_kafka=KafkaFacts(brokers=1)), "heartbeats.topic.replication.factor", "target"),
    ],
)
def test_more_replicas_than_brokers(subject: Subject, key: str, where: str) -> None:
    (hit,) = made.hits("replication-factor", subject)
    assert hit.key == key
    assert f"the {where} cluster" in hit.message
    name, _, value = hit.fix.removeprefix("write ").partition("=")
    fixed = made.connector(
        subject.type, {name: value}, source_kafka=subject.source_kafka, target_kafka=subject.target_kafka
    )
    assert made.hits("replication-factor", fixed) == []


def test_replicas_that_fit_or_are_not_known() -> None:
    assert made.hits("replication-factor", made.source()) == []
    small = KafkaFacts(brokers=1)
    broker = {"replication.factor": "-1", "offset-syncs.topic.replication.factor": "1"}
    assert made.hits("replication-factor", made.source(broker, source_kafka=small, target_kafka=small)) == []
    on_target = {"offset-syncs.topic.location": "target"}
    assert made.hits("replication-factor", made.source(on_target, source_kafka=small)) == []


@pytest.mark.parametrize(
    ("subject", "effect"),
    [
        (made.source({"refresh.topics.interval.seconds": "0"}), "fails when it starts"),
        (made.source({"sync.topic.configs.interval.seconds": "-1"}), "never runs"),
        (made.checkpoint({"emit.checkpoints.interval.seconds": "0"}), "without a pause"),
        (made.checkpoint({"refresh.groups.interval.seconds": "-5"}), "never runs"),
        (made.heartbeat({"emit.heartbeats.interval.seconds": "0"}), "without a pause"),
    ],
)
def test_intervals_of_nothing(subject: Subject, effect: str) -> None:
    (hit,) = made.hits("interval-zero", subject)
    assert effect in hit.message
    assert hit.key in subject.config


def test_intervals_that_are_fine() -> None:
    off = {"sync.topic.acls.enabled": "false", "sync.topic.acls.interval.seconds": "0"}
    fine = [
        made.source({"refresh.topics.interval.seconds": "10"}),
        made.source(off),
        made.heartbeat({"refresh.topics.interval.seconds": "0"}),
    ]
    assert made.hits("interval-zero", *fine) == []
    assert (
        made.told(
            made.source(), made.checkpoint(), made.heartbeat({"source.cluster.alias": "B", "target.cluster.alias": "A"})
        )
        & RULES
        == set()
    )


def hub(changes: made.Changes | None = None, **facts: Any) -> tuple[Subject, Subject]:
    """Return two source connectors with one target, from C with changes and from A with mm2mgr's limit."""
    other = {"source.cluster.alias": "C", "source.cluster.bootstrap.servers": "c1:9092", **(changes or {})}
    return made.source(other, name="from-c", **facts), made.source(
        {"source.producer.max.block.ms": "500"}, name="from-a"
    )


def test_offset_syncs_that_hold_up_other_flows() -> None:
    (hit,) = made.hits("offset-syncs-block", *hub())
    assert hit.subject is not None
    assert (hit.subject.name, hit.fix) == ("from-c", "write source.producer.max.block.ms=500")
    assert "max.block.ms=60000, the default" in hit.message
    assert "when C is unavailable, these workers store no offsets of from-a for 60 s per partition" in hit.message
    (hit,) = made.hits("offset-syncs-block", *hub({"producer.max.block.ms": "5000"}))
    assert hit.key == "producer.max.block.ms"


@pytest.mark.parametrize(
    "changes",
    [
        {"source.producer.max.block.ms": "4999"},
        {"emit.offset-syncs.enabled": "false"},
        {"offset-syncs.topic.location": "target"},  # when that one is down, neither flow moves
        {"source.cluster.alias": "A", "source.cluster.bootstrap.servers": "a1:9092"},
        {"enabled": "false"},
    ],
)
def test_offset_syncs_that_hold_up_nobody(changes: dict[str, str]) -> None:
    assert made.hits("offset-syncs-block", *hub(changes)) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"spot": Spot(connect="west", connector="from-c")},
        {"spot": Spot("from-c.properties", 1)},  # nobody knows on which workers
        {"worker": WorkerFacts(exactly_once=True)},
        {"state": "PAUSED"},
    ],
)
def test_offset_syncs_of_connectors_that_share_no_committing_thread(facts: dict[str, Any]) -> None:
    assert made.hits("offset-syncs-block", *hub(**facts)) == []


def test_offset_syncs_on_a_target_of_its_own() -> None:
    away = {"target.cluster.alias": "D", "target.cluster.bootstrap.servers": "d1:9092"}
    (hit,) = made.hits("offset-syncs-block", *hub({**away, "offset-syncs.topic.location": "target"}))
    assert "when D is unavailable" in hit.message
    assert hit.fix == "write target.producer.max.block.ms=500"

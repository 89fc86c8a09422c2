"""Rules about ACLs, topic settings, replication factors and intervals."""

from __future__ import annotations

import pytest

from mm2mgr.lint.rules_sync import RULES as OWN
from mm2mgr.lint.subject import Kafka, Subject, Worker
from tests.lint import made

RULES = {rule.id for rule in OWN}
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def secured(*sides: str) -> dict[str, str]:
    return {f"{side}.cluster.{key}": value for side in sides for key, value in SCRAM.items()}


def test_acls_where_the_sides_log_in_differently() -> None:
    (hit,) = made.hits("sync-acls", made.source(secured("source")))
    assert "SCRAM-SHA-512 there, no login here" in hit.message
    assert made.hits("sync-acls", made.source({**secured("source"), "sync.topic.acls.enabled": "false"})) == []
    assert made.hits("sync-acls", made.source(secured("source", "target"))) == []
    assert made.hits("sync-acls", made.source()) == []


def test_acls_that_are_asked_for() -> None:
    (hit,) = made.hits("sync-acls", made.source({"sync.topic.acls.enabled": "true"}))
    assert hit.key == "sync.topic.acls.enabled"


def test_defaults_from() -> None:
    assert "source has an effect" in made.hits("sync-configs", made.source({"use.defaults.from": "A"}))[0].message
    old = Worker(version="3.4.0")
    assert "3.5" in made.hits("sync-configs", made.source({"use.defaults.from": "source"}, worker=old))[0].message
    assert made.hits("sync-configs", made.source({"use.defaults.from": "source"})) == []
    assert made.hits("sync-configs-off", made.source({"sync.topic.configs.enabled": "false"}))
    assert made.hits("sync-configs-off", made.source()) == []


@pytest.mark.parametrize(
    ("subject", "key", "where"),
    [
        (made.source(target_kafka=Kafka(brokers=1)), "replication.factor", "target"),
        (made.source(source_kafka=Kafka(brokers=2)), "offset-syncs.topic.replication.factor", "source"),
        (made.checkpoint(target_kafka=Kafka(brokers=2)), "checkpoints.topic.replication.factor", "target"),
        (made.heartbeat(target_kafka=Kafka(brokers=1)), "heartbeats.topic.replication.factor", "target"),
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
    small = Kafka(brokers=1)
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

"""Rules over exactly-once: what Connect refuses, and what is not exactly-once although it was asked for."""

from __future__ import annotations

import pytest

from mm2mgr.lint.subject import KafkaFacts, Subject, WorkerFacts
from tests.lint import made

REQUIRED = {"exactly.once.support": "required"}
COMMITTED = {"source.consumer.isolation.level": "read_committed"}
ON = WorkerFacts(exactly_once=True)
ALL_THREE = {f"{kind}.override.bootstrap.servers": "b2:9092" for kind in ("producer", "consumer", "admin")}


def messages(rule: str, subject: Subject) -> list[str]:
    return [hit.message for hit in made.hits(rule, subject)]


def test_the_source_has_to_be_read_committed() -> None:
    (hit,) = made.hits("exactly-once-isolation", made.source(REQUIRED))
    assert hit.fix == "write source.consumer.isolation.level=read_committed"
    assert messages("exactly-once-isolation", made.source({**REQUIRED, **COMMITTED})) == []
    capitals = {**REQUIRED, "source.consumer.isolation.level": "READ_COMMITTED"}
    assert len(messages("exactly-once-isolation", made.source(capitals))) == 1
    assert messages("exactly-once-isolation", made.source({"exactly.once.support": "requested"})) == []
    assert (
        messages("exactly-once-isolation", made.source({**REQUIRED, "consumer.isolation.level": "read_committed"}))
        == []
    )


@pytest.mark.parametrize(
    ("worker", "tripped"),
    [
        (WorkerFacts(), False),
        (ON, False),
        (WorkerFacts(exactly_once=False), True),
        (WorkerFacts(properties={}), True),
        (WorkerFacts(properties={"exactly.once.source.support": "preparing"}), True),
        (WorkerFacts(properties={"exactly.once.source.support": "enabled"}), False),
    ],
)
def test_workers_that_do_not_provide_it(worker: WorkerFacts, *, tripped: bool) -> None:
    assert bool(messages("exactly-once-worker", made.source(REQUIRED, worker=worker))) is tripped
    assert messages("exactly-once-worker", made.source(worker=worker)) == []


def test_connectors_that_do_not_know_it() -> None:
    for subject in (made.checkpoint(REQUIRED), made.heartbeat(REQUIRED)):
        (hit,) = made.hits("exactly-once-unsupported", subject)
        assert hit.key == "exactly.once.support"
        assert subject.type in hit.message
    assert messages("exactly-once-unsupported", made.source(REQUIRED)) == []
    assert messages("exactly-once-unsupported", made.checkpoint(worker=ON)) == []


@pytest.mark.parametrize(
    ("left_out", "outcome"),
    [
        (("consumer", "admin"), "duplicates"),
        (("admin",), "never gets a status"),
        (("consumer",), "wrong position"),
    ],
)
def test_overrides_that_do_not_point_to_one_place(left_out: tuple[str, ...], outcome: str) -> None:
    some: dict[str, str | None] = {**ALL_THREE, **{f"{kind}.override.bootstrap.servers": None for kind in left_out}}
    (hit,) = made.hits("exactly-once-overrides", made.source(some, worker=ON))
    assert outcome in hit.message
    assert all(f"{kind}.override.bootstrap.servers" in hit.fix for kind in left_out)


def test_overrides_that_do() -> None:
    rule = "exactly-once-overrides"
    assert messages(rule, made.source(ALL_THREE, worker=ON)) == []
    assert messages(rule, made.source()) == []
    assert messages(rule, made.source({"producer.override.bootstrap.servers": None}, worker=ON)) == []
    assert len(messages(rule, made.source({"offsets.storage.topic": "mine"}))) == 1
    assert len(messages(rule, made.heartbeat(worker=ON))) == 1
    on_target = WorkerFacts(exactly_once=True, properties={"bootstrap.servers": "b1:9092"})
    assert messages(rule, made.source(worker=on_target)) == []
    known = WorkerFacts(exactly_once=True, cluster_id="B-id")
    assert messages(rule, made.source(worker=known, target_kafka=KafkaFacts(cluster_id="B-id"))) == []


def test_overrides_need_the_same_security() -> None:
    tls = {**ALL_THREE, "producer.override.security.protocol": "SSL", "producer.override.ssl.truststore.location": "/t"}
    (hit,) = made.hits("exactly-once-overrides", made.source(tls, worker=ON))
    assert "consumer.override.security.protocol" in hit.fix
    assert "admin.override.ssl.truststore.location" in hit.fix
    same = {
        key.replace("producer.", f"{kind}."): tls[key]
        for kind in ("consumer", "admin")
        for key in list(tls)
        if key.startswith("producer.")
    }
    assert messages("exactly-once-overrides", made.source({**tls, **same}, worker=ON)) == []


def test_limits_of_transactions() -> None:
    (hit,) = made.hits("exactly-once-transaction", made.source({"transaction.boundary": "CONNECTOR"}))
    assert "interval" in hit.fix
    assert messages("exactly-once-transaction", made.source({"transaction.boundary": "interval"})) == []


def test_small_transactions_are_slow() -> None:
    (hit,) = made.hits("exactly-once-slow", made.source(REQUIRED))
    assert "source.consumer.max.poll.records=5000" in hit.fix
    for change in ({"source.consumer.max.poll.records": "5000"}, {"transaction.boundary": "interval"}):
        assert messages("exactly-once-slow", made.source({**REQUIRED, **change})) == []
    assert messages("exactly-once-slow", made.source()) == []

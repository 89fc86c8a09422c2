"""Rules about order, durability, skipped and renamed records."""

from __future__ import annotations

import pytest

from mm2mgr.lint.subject import WorkerFacts
from tests.lint import made

IN_FLIGHT = "producer.override.max.in.flight.requests.per.connection"
IDEMPOTENCE = "producer.override.enable.idempotence"
RULES = {
    *("order-at-risk", "idempotence-conflict", "acks-weak", "errors-tolerated"),
    *("delivery-limited", "reset-none", "reset-latest", "transform-renames"),
}


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        ("order-at-risk", IN_FLIGHT, "2"),
        ("acks-weak", "producer.override.acks", "1"),
        ("acks-weak", "producer.override.acks", "0"),
        ("errors-tolerated", "errors.tolerance", "all"),
        ("delivery-limited", "producer.override.delivery.timeout.ms", "120000"),
        ("delivery-limited", "producer.override.max.block.ms", "60000"),
        ("delivery-limited", "producer.override.retries", "10"),
        ("reset-none", "source.consumer.auto.offset.reset", "none"),
        ("reset-none", "consumer.auto.offset.reset", "none"),
        ("reset-latest", "source.consumer.auto.offset.reset", "latest"),
    ],
)
def test_a_key_trips_its_rule_and_no_other_of_these(rule: str, key: str, value: str) -> None:
    assert made.told(made.source({key: value})) & RULES == {rule}
    (hit,) = made.hits(rule, made.source({key: value}))
    assert hit.key == key
    assert f"{key}={value}" in hit.message


@pytest.mark.parametrize(
    "changes",
    [
        {IN_FLIGHT: "1"},
        {IN_FLIGHT: "5", IDEMPOTENCE: "true"},
        {IN_FLIGHT: "5", "producer.override.retries": "0"},
        {"producer.max.in.flight.requests.per.connection": "5"},  # the offset-syncs producer's
        {"producer.override.acks": "all"},
        {"producer.override.acks": "-1"},
        {"errors.tolerance": "none"},
        {"producer.override.delivery.timeout.ms": "2147483647"},
        {"producer.override.delivery.timeout.ms": "${file:/x:y}"},
        {"source.consumer.auto.offset.reset": "earliest"},
    ],
)
def test_near_misses_are_silent(changes: dict[str, str]) -> None:
    told = made.told(made.source(changes)) & RULES - {"delivery-limited"}
    assert told == set()


def test_a_healthy_connector_trips_none() -> None:
    assert made.told(made.source(), made.checkpoint(), made.heartbeat()) & RULES == set()


def test_the_fix_for_the_order_silences_it() -> None:
    (hit,) = made.hits("order-at-risk", made.source({IN_FLIGHT: "5"}))
    changes = {edit.key: edit.value for edit in hit.edits}
    assert made.hits("order-at-risk", made.source({IN_FLIGHT: "5", **changes})) == []


def test_exactly_once_workers_keep_the_order() -> None:
    worker = WorkerFacts(exactly_once=True)
    assert made.hits("order-at-risk", made.source({IN_FLIGHT: "5"}, worker=worker)) == []
    assert made.hits("order-at-risk", made.source({IN_FLIGHT: "5"}, worker=WorkerFacts(exactly_once=False)))


@pytest.mark.parametrize(
    ("key", "value"), [("producer.override.acks", "1"), (IN_FLIGHT, "6"), ("producer.override.retries", "0")]
)
def test_idempotence_and_its_opposite_fail_the_task(key: str, value: str) -> None:
    subject = made.source({IDEMPOTENCE: "true", key: value})
    assert made.told(subject) & RULES == {"idempotence-conflict"}
    (hit,) = made.hits("idempotence-conflict", subject)
    assert hit.key == key
    wanted = hit.fix.removeprefix("write ").partition("=")[2]
    assert made.told(made.source({IDEMPOTENCE: "true", key: wanted})) & RULES == set()


def test_what_the_workers_say_counts_as_well() -> None:
    worker = WorkerFacts(properties={"producer.acks": "1"})
    (hit,) = made.hits("acks-weak", made.source(worker=worker))
    assert "producer.acks=1 of the workers" in hit.message
    assert made.hits("acks-weak", made.source({"producer.override.acks": "all"}, worker=worker)) == []


def test_old_lines_ignore_latest() -> None:
    reset = {"source.consumer.auto.offset.reset": "latest"}
    (old,) = made.hits("reset-latest", made.source(reset, worker=WorkerFacts(version="3.6.1")))
    (new,) = made.hits("reset-latest", made.source(reset, worker=WorkerFacts(version="3.6.2")))
    assert "KAFKA-13988" in old.message
    assert "never mirrored" in new.message
    (beside,) = made.hits("reset-latest", made.source({**reset, "mm2mgr.start": "latest"}))
    assert beside.message.endswith("never mirrored; where it begins is said by start: latest without it")


@pytest.mark.parametrize(
    "type_",
    [
        "org.apache.kafka.connect.transforms.RegexRouter",
        "org.apache.kafka.connect.transforms.TimestampRouter",
        "io.confluent.connect.transforms.ExtractTopic$Value",
    ],
)
def test_routers_are_told(type_: str) -> None:
    (hit,) = made.hits("transform-renames", made.source({"transforms": "r", "transforms.r.type": type_}))
    assert hit.key == "transforms.r.type"


def test_other_transformations_are_not() -> None:
    fine = {"transforms": "f", "transforms.f.type": "org.apache.kafka.connect.transforms.Filter"}
    assert made.hits("transform-renames", made.source(fine)) == []
    unused = {"transforms": "", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    assert made.hits("transform-renames", made.source(unused)) == []


def test_what_workers_give_all_their_producers_counts() -> None:
    too_short = WorkerFacts("4.3.1", {"producer.delivery.timeout.ms": "20000"}, exactly_once=False)
    (hit,) = made.hits("delivery-below-request", made.source(worker=too_short))
    assert "producer.delivery.timeout.ms=20000 of the workers" in hit.message
    assert hit.fix == "write producer.override.delivery.timeout.ms=2147483647"
    assert not made.hits("delivery-limited", made.source(worker=too_short))
    transactional = WorkerFacts("4.3.1", {"producer.transactional.id": "x"}, exactly_once=False)
    (hit,) = made.hits("transactional-id", made.source(worker=transactional))
    assert hit.fix == "remove producer.transactional.id from the workers' properties"


def test_exactly_once_workers_set_transactional_ids_themselves() -> None:
    changes = {"producer.override.transactional.id": "x"}
    assert not made.hits("transactional-id", made.source(changes, worker=WorkerFacts("4.3.1", exactly_once=True)))
    assert made.hits("transactional-id", made.heartbeat(changes, worker=WorkerFacts("4.3.1", exactly_once=False)))


@pytest.mark.parametrize(
    ("version", "changes", "refused"),
    [
        ("3.9.1", {"delivery.timeout.ms": "30000"}, False),
        ("4.0.0", {"delivery.timeout.ms": "30000"}, True),
        ("4.3.1", {"delivery.timeout.ms": "30005"}, False),
        ("4.3.1", {"delivery.timeout.ms": "2147483647", "request.timeout.ms": "2147483647"}, False),
        ("4.3.1", {"delivery.timeout.ms": "2147483646", "request.timeout.ms": "2147483647"}, True),
        ("4.3.1", {"request.timeout.ms": "200000"}, False),
        ("4.3.1", {"delivery.timeout.ms": "10000", "request.timeout.ms": "5000"}, False),
        ("4.3.1", {"delivery.timeout.ms": "${env:D}"}, False),
    ],
)
def test_delivery_timeouts_that_kafkas_producer_refuses(version: str, changes: dict[str, str], refused: bool) -> None:
    """Each was given to KafkaProducer itself, of 3.6.2 and 4.3.1."""
    config = {f"source.producer.{plain}": value for plain, value in changes.items()}
    assert bool(made.hits("delivery-below-request", made.source(config, worker=WorkerFacts(version)))) == refused

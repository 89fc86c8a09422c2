"""Rules about batches, requests, fetches, links and memory."""

from __future__ import annotations

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import sizes
from mm2mgr.lint.rules.sizes import known_limit, largest_at_source, size, tasks
from mm2mgr.lint.subject import KafkaFacts
from tests.lint import made

OWN = rules_of(sizes)
RULES = {rule.id for rule in OWN}
MIB = 1024 * 1024
BATCH, REQUEST, BUFFER = (f"producer.override.{key}" for key in ("batch.size", "max.request.size", "buffer.memory"))
PARTITION, FETCH, WINDOW = (
    f"source.consumer.{key}" for key in ("max.partition.fetch.bytes", "fetch.max.bytes", "receive.buffer.bytes")
)


def largest(bytes_by_topic: dict[str, int]) -> dict[str, dict[str, str]]:
    return {topic: {"max.message.bytes": str(most)} for topic, most in bytes_by_topic.items()}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("batch-above-buffer", {BATCH: str(50 * MIB)}),
        ("batch-above-topic", {BATCH: str(2 * MIB)}),
        ("batch-above-topic", {BATCH: "1048588"}),
        ("size-one-sided", {PARTITION: str(10 * MIB)}),
        ("buffer-below-request", {REQUEST: str(64 * MIB)}),
        (
            "fetch-min-waits",
            {"source.consumer.fetch.min.bytes": "100000", "source.consumer.fetch.max.wait.ms": "30000"},
        ),
        ("memory-of-tasks", {"tasks.max": "100", BUFFER: str(64 * MIB)}),
    ],
)
def test_what_trips_one_rule(rule: str, changes: dict[str, str]) -> None:
    assert made.told(made.source(changes)) & RULES == {rule}
    (hit,) = made.hits(rule, made.source(changes))
    assert hit.key in changes


@pytest.mark.parametrize(
    "changes",
    [
        {BATCH: "921600"},
        {BATCH: "1048587"},
        {PARTITION: str(4 * MIB)},
        {PARTITION: str(10 * MIB), REQUEST: str(10 * MIB)},
        {PARTITION: str(16 * MIB), WINDOW: "-1"},
        {REQUEST: str(32 * MIB), BUFFER: str(64 * MIB)},
        {"source.consumer.fetch.min.bytes": "100000", "source.consumer.fetch.max.wait.ms": "5000"},
        {"source.consumer.fetch.max.wait.ms": "30000"},
        {"tasks.max": "200"},
        {"tasks.max": "12", FETCH: str(100 * MIB)},
        {BATCH: "${file:/x:y}"},
    ],
)
def test_near_misses_are_silent(changes: dict[str, str]) -> None:
    assert made.told(made.source(changes)) & RULES == set()


def test_fixes_silence_their_rules() -> None:
    for rule, changes in (
        ("batch-above-buffer", {BATCH: str(50 * MIB)}),
        ("batch-above-topic", {BATCH: str(2 * MIB)}),
        ("size-one-sided", {PARTITION: str(10 * MIB)}),
        ("buffer-below-request", {REQUEST: str(64 * MIB)}),
    ):
        (hit,) = made.hits(rule, made.source(changes))
        key, _, value = hit.fix.removeprefix("write ").partition(",")[0].partition("=")
        assert made.told(made.source({**changes, key: value})) & RULES == set(), rule


def test_a_target_that_takes_more_or_less_is_judged_by_its_own_limit() -> None:
    batch = {BATCH: str(2 * MIB)}
    assert made.hits("batch-above-topic", made.source(batch, target_kafka=KafkaFacts(message_max_bytes=8 * MIB))) == []
    small = KafkaFacts(message_max_bytes=8 * MIB, topic_settings=largest({"A.orders": MIB, "A.other": 10}))
    assert "1048576 bytes" in made.hits("batch-above-topic", made.source(batch, target_kafka=small))[0].message


def test_larger_records_at_the_source_than_may_be_sent() -> None:
    large = KafkaFacts(topic_settings=largest({"orders": 8 * MIB, "unmirrored": 99 * MIB}))
    (hit,) = made.hits("request-below-records", made.source(source_kafka=large))
    assert str(8 * MIB) in hit.fix
    assert made.hits("request-below-records", made.source({REQUEST: str(8 * MIB)}, source_kafka=large)) == []
    assert made.hits("request-below-records", made.source(source_kafka=KafkaFacts(message_max_bytes=1_048_588))) == []


def test_larger_requests_than_the_target_takes() -> None:
    target = KafkaFacts(message_max_bytes=MIB)
    assert made.hits("request-above-target", made.source({REQUEST: str(8 * MIB)}, target_kafka=target))
    tuned = {REQUEST: str(8 * MIB), BATCH: "921600"}
    assert made.hits("request-above-target", made.source(tuned, target_kafka=target)) == []
    assert made.hits("request-above-target", made.source({REQUEST: str(8 * MIB)})) == []


def test_numbers() -> None:
    kafka = KafkaFacts(
        brokers=3, partitions={"orders": 24, "other": 100}, topic_settings=largest({"orders": 5, "other": 9})
    )
    subject = made.source({"tasks.max": "40"}, source_kafka=kafka, target_kafka=kafka)
    assert tasks(subject) == 24
    assert largest_at_source(subject) == 5
    assert known_limit(subject) is None
    assert [size(512), size(64 * 1024), size(50 * MIB), size(3 * 1024 * MIB)] == [
        "512 bytes",
        "64 KiB",
        "50 MiB",
        "3 GiB",
    ]

"""Faults of settings that shape the records, seen on a real worker: skipped, refused, stalled, or somewhere else."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import topic_configs
from mm2mgr.lint.subject import KafkaFacts
from mm2mgr.problems.connectors import classify
from tests.lint.lab import LARGE_BYTES, Lab
from tests.live.seen import connector_url, rest, topics, until, values, write_values

pytestmark = pytest.mark.live
LARGE = b"L" * 1_500_000
REQUEST = "producer.override.max.request.size"


def override(**changes: str) -> dict[str, str]:
    return {f"producer.override.{key.replace('_', '.')}": value for key, value in changes.items()}


# --- the records themselves -------------------------------------------------------------------------------------------


def test_idempotence_conflict(lab: Lab) -> None:
    lab.create_with("conflict", b"1")
    faults = {
        "acks": override(acks="1"),
        "flight": override(max_in_flight_requests_per_connection="6"),
        "retries": override(retries="0"),
    }
    idempotent = override(enable_idempotence="true")
    with lab.running({name: lab.flow("conflict", {**idempotent, **changes}) for name, changes in faults.items()}):
        for name in faults:
            lab.until_failed(name, "ConfigException", "idempotent producer", task=True)
            assert lab.told(name) == {"idempotence-conflict"}
        lab.put("acks", lab.flow("conflict", {**idempotent, "producer.override.acks": "all"}))
        lab.until_values("A.conflict", b"1")


def test_errors_tolerated(lab: Lab) -> None:
    lab.create("tolerant")
    lab.write_large("tolerant", b"before", LARGE, b"after")
    with lab.running({"tolerant": lab.flow("tolerant", {"errors.tolerance": "all"})}):
        lab.until_values("A.tolerant", b"before", b"after")
        until(lambda: lab.offsets("tolerant"), lambda found: found == [2], "the offset of the last record")
        assert lab.state("tolerant") == ["RUNNING", "RUNNING"]
        assert lab.told() == {"errors-tolerated"}


def test_record_refused(lab: Lab) -> None:
    """A limit of timestamps that MirrorMaker copied, and a compacted topic, refuse records that the source has."""
    day, old = 86_400_000, int(time.time() * 1000) - 10 * 86_400_000
    lab.create("aged", "keyless", configs={"retention.ms": "-1"})
    producer = confluent_kafka.Producer(librdkafka_config(lab.source))
    producer.produce("aged", b"old", timestamp=old)
    producer.produce("keyless", b"1")
    assert producer.flush(35) == 0
    lab.alter("aged", "message.timestamp.before.max.ms", str(day))
    lab.create("A.keyless", on=lab.target, configs={"cleanup.policy": "compact"})
    flows = {"aged": lab.flow("aged"), "keyless": lab.flow("keyless", {"sync.topic.configs.enabled": "false"})}
    with lab.running(flows):
        lab.until_failed("aged", "is out of range", task=True)
        lab.until_failed("keyless", "InvalidRecordException", "without key", task=True)
        assert {classify(lab.trace(name))[0] for name in flows} == {"record-refused"}
        with Kafka(lab.source, 30) as source, Kafka(lab.target, 30) as target:
            own, theirs = topic_configs(source, ["aged", "keyless"]), topic_configs(target, ["A.aged", "A.keyless"])
        assert theirs["A.aged"].values["message.timestamp.before.max.ms"] == str(day), "copied"
        facts = [
            KafkaFacts(topic_settings={name: each.values for name, each in found.items()}) for found in (own, theirs)
        ]
        for name in flows:
            assert "record-refused" in lab.told(name, source_kafka=facts[0], target_kafka=facts[1])


def test_filter_drops_all(lab: Lab) -> None:
    """Without a predicate it drops what it reads, and stores no offset; an undeclared predicate fails the task."""
    lab.create_with("filtered", b"1", b"2")
    lab.create_with("control", b"1")
    drop = {"transforms": "drop", "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter"}
    flows = {
        "all": lab.flow("filtered", drop),
        "undeclared": lab.flow("filtered", {**drop, "transforms.drop.predicate": "dead"}),
        "control": lab.flow("control"),
    }
    with lab.running(flows):
        lab.until_failed("undeclared", "Unknown configuration 'predicates.dead.", task=True)
        assert lab.told("undeclared") == {"transform-incomplete"}
        lab.until_state("all", "RUNNING", "RUNNING")
        until(lambda: topics(lab.target), lambda found: "A.filtered" in found, "the topic on the target")
        until(lambda: lab.offsets("control"), lambda found: found == [0], "the offset of a record that passed")
        assert values(lab.target, "A.filtered") == []
        assert lab.offsets("all") == []
        assert lab.told("all") == {"filter-drops-all"}
        lab.put("all", lab.flow("filtered"))
        lab.until_values("A.filtered", b"1", b"2")
    without_type = {"transforms": "drop", "transforms.drop.headers": "x"}
    assert "transforms.drop.type" in lab.refusal("typeless", lab.flow("filtered", without_type))
    negated = {**drop, "transforms.drop.negate": "true"}
    assert "negate" in lab.refusal("negated", lab.flow("filtered", negated))


def test_reset_none(lab: Lab) -> None:
    lab.create_with("nowhere", b"1")
    with lab.running({"nowhere": lab.flow("nowhere", {"source.consumer.auto.offset.reset": "none"})}):
        lab.until_logged("NoOffsetForPartitionException", "[nowhere-0]")
        assert lab.logged("WARN Failure during poll.", "MirrorSourceTask")
        assert lab.state("nowhere") == ["RUNNING", "RUNNING"]
        assert values(lab.target, "A.nowhere") == []
        assert lab.told() == {"reset-none"}
        lab.put("nowhere", lab.flow("nowhere"))
        lab.until_values("A.nowhere", b"1")


def test_reset_latest(lab: Lab) -> None:
    lab.create_with("late", b"early")

    def write_and_read() -> list[bytes | None]:
        write_values(lab.source, "late", b"later")
        return values(lab.target, "A.late")

    with lab.running({"late": lab.flow("late", {"source.consumer.auto.offset.reset": "latest"})}):
        read = until(write_and_read, bool, "a record that was written after the first read")
        assert set(read) == {b"later"}
        assert lab.told() == {"reset-latest"}


def test_transform_renames(lab: Lab) -> None:
    lab.create_with("routed", b"1")
    router = {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": "A\\.(.*)", "replacement": "to-$1"}
    changes = {"transforms": "route", **{f"transforms.route.{key}": value for key, value in router.items()}}
    with lab.running({"routed": lab.flow("routed", changes)}):
        lab.until_values("to-routed", b"1")
        assert "A.routed" in topics(lab.target)
        assert values(lab.target, "A.routed") == []
        assert lab.told() == {"transform-renames"}


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_batch_above_buffer(lab: Lab) -> None:
    lab.create_with("buffer", b"1")
    with lab.running({"buffer": lab.flow("buffer", override(batch_size="52428800"))}):
        lab.until_failed("buffer", "IllegalArgumentException", "Attempt to allocate 52428800 bytes", task=True)
        assert lab.told() == {"batch-above-buffer"}
        lab.put("buffer", lab.flow("buffer", override(batch_size="921600")))
        lab.until_values("A.buffer", b"1")


def test_batch_above_topic(lab: Lab) -> None:
    written = [b"%04d" % number + b"x" * 2_000 for number in range(2_000)]
    lab.create_with("batches", *written)
    changes = {**override(batch_size="3000000", linger_ms="2000"), "source.consumer.max.poll.records": "2000"}
    with lab.running({"batches": lab.flow("batches", changes)}):
        lab.until_logged("connector-producer-batches-0", "splitting and retrying", "MESSAGE_TOO_LARGE")
        lab.until_values("A.batches", *written)
        assert lab.state("batches") == ["RUNNING", "RUNNING"]
        assert lab.told() == {"batch-above-topic"}
    lab.create_with("smaller", *written)
    changes = {**changes, "producer.override.batch.size": "921600"}
    with lab.running({"smaller": lab.flow("smaller", changes)}):
        lab.until_values("A.smaller", *written)
        assert not lab.logged("connector-producer-smaller-0", "splitting and retrying")
        assert lab.told() == set()


def test_request_below_records(lab: Lab) -> None:
    lab.create("large", configs={"max.message.bytes": str(LARGE_BYTES)})
    lab.write_large("large", LARGE)
    one_sided = {"source.consumer.max.partition.fetch.bytes": "5242880"}
    too_large = "RecordTooLargeException: The message is"
    with lab.running({"large": lab.flow("large", one_sided)}):
        lab.until_failed("large", too_large, task=True)
        rest("POST", connector_url(lab.on_b.url, "large", "/tasks/0/restart"))
        until(lambda: lab.logged("id=large-0", "Task threw an uncaught"), lambda count: count > 1, "the second failure")
        lab.until_failed("large", too_large, task=True)
        known = KafkaFacts(brokers=1, topic_settings={"large": {"max.message.bytes": str(LARGE_BYTES)}})
        assert lab.told() == {"size-one-sided"}
        assert lab.told(source_kafka=known) == {"request-below-records"}
        lab.put("large", lab.flow("large", {REQUEST: str(LARGE_BYTES)}))
        lab.until_values("A.large", LARGE)
        assert lab.told(source_kafka=known) == set()


def test_buffer_below_request(lab: Lab) -> None:
    lab.create("memory", configs={"max.message.bytes": str(LARGE_BYTES)})
    lab.write_large("memory", LARGE)
    changes = {REQUEST: "2000000", **override(buffer_memory="1000000")}
    with lab.running({"memory": lab.flow("memory", changes)}):
        lab.until_failed("memory", "RecordTooLargeException", "buffer.memory", task=True)
        assert lab.told() == {"buffer-below-request"}
        lab.put("memory", lab.flow("memory", {**changes, "producer.override.buffer.memory": "4000000"}))
        lab.until_values("A.memory", LARGE)


def test_request_above_target(lab: Lab) -> None:
    """What the source takes by its brokers' own configuration is not synced to the target's topics."""
    lab.create("above")
    lab.write_large("above", LARGE)
    with lab.running({"above": lab.flow("above", {REQUEST: str(LARGE_BYTES)})}):
        lab.until_failed("above", "RecordTooLargeException: The request included a message larger than", task=True)
        source, target = (
            KafkaFacts(brokers=1, message_max_bytes=LARGE_BYTES),
            KafkaFacts(brokers=1, message_max_bytes=1_048_588),
        )
        assert lab.told(source_kafka=source, target_kafka=target) == {"request-above-target"}


def test_fetch_min_waits(lab: Lab) -> None:
    lab.create_with("quiet", b"1")
    reader = {"fetch.min.bytes": "1000000", "fetch.max.wait.ms": "60000", "request.timeout.ms": "1000"}
    changes = {f"source.consumer.{key}": value for key, value in reader.items()}
    with lab.running({"quiet": lab.flow("quiet", changes)}):
        hung_up = lambda: lab.logged("quiet", "Disconnecting from node 1 due to request timeout")  # noqa: E731
        until(hung_up, lambda count: count > 1, "a consumer that hangs up twice")
        assert values(lab.target, "A.quiet") == []
        assert lab.state("quiet") == ["RUNNING", "RUNNING"]
        assert lab.told() == {"fetch-min-waits"}
        lab.put("quiet", lab.flow("quiet", {**changes, "source.consumer.fetch.max.wait.ms": "500"}))
        lab.until_values("A.quiet", b"1")

"""Offsets, record sizes, reads and writes against brokers that speak the protocol, and against none."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.errors import KafkaError, KafkaSilence
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer, ReadLimits, mean_record_bytes, read, read_logs
from mm2mgr.partitions import Offsets, TopicPartition

ZERO, ONE, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)


def write(access: KafkaAccess, partition: TopicPartition, values: list[bytes]) -> None:
    with Producer(access, timeout_seconds=10) as producer:
        for value in values:
            producer.send(partition, value, key=b"k")


def test_offsets_are_read_in_bulk_and_missing_partitions_are_reported(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, ZERO, [b"x"] * 7)
    write(mock_cluster, ONE, [b"x"] * 3)
    with Kafka(mock_cluster, timeout_seconds=5) as kafka:
        answer = kafka.read_offsets([ZERO, ONE, GONE])
        assert kafka.offsets([ZERO, GONE]) == {ZERO: Offsets(0, 7)}
    assert answer.found == {ZERO: Offsets(0, 7), ONE: Offsets(0, 3)}
    assert list(answer.failed) == [GONE]
    assert "Unknown topic" in answer.failed[GONE]


def test_many_logs_are_read_in_bulk_as_one_by_one(mock_cluster: KafkaAccess) -> None:
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        for number in range(140):
            for _ in range(number % 3 + 1):
                producer.send(TopicPartition(f"t{number}", 0), b"x")
    many = [TopicPartition(f"t{number}", partition) for number in range(140) for partition in range(4)]
    with Kafka(mock_cluster, timeout_seconds=5) as kafka:
        bulk, each = read_logs(kafka, [*many, GONE]), kafka.read_offsets(many)
    assert bulk.found == each.found
    assert len(bulk.found) == len(many) > 500
    assert bulk.found[TopicPartition("t4", 0)] == Offsets(0, 2)
    assert list(bulk.failed) == [GONE]


def test_a_broker_that_needs_two_seconds_for_each_listing_is_heard(
    mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer to a request that was given up counts for nothing: asked every half second, it would never be heard."""
    with Kafka(mock_cluster) as kafka:
        answer = kafka.listing()

        class Slow:
            def list_topics(self, timeout: float) -> object:
                if timeout < 2:
                    raise confluent_kafka.KafkaException(
                        confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT)
                    )
                return answer

            def poll(self, _: float) -> int:
                return 0

        monkeypatch.setattr(kafka, "admin", Slow())
        assert kafka.listing() is answer


def test_log_starts_are_asked_for_only_where_they_are_wanted(
    mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [TopicPartition(f"t{number}", partition) for number in range(200) for partition in range(4)]
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        for one in many:
            producer.send(one, b"x")
    asked: dict[int, set[str]] = {}

    class Noting(confluent_kafka.Consumer):
        def offsets_for_times(self, partitions: list[Any], timeout: float) -> list[Any]:
            for one in partitions:
                asked.setdefault(one.offset, set()).add(one.topic)
            return super().offsets_for_times(partitions, timeout=timeout)

    monkeypatch.setattr(confluent_kafka, "Consumer", Noting)
    with Kafka(mock_cluster, timeout_seconds=5) as kafka:
        read = read_logs(kafka, many, {"t3", "t7"})
    assert read.found == dict.fromkeys(many, Offsets(0, 1))
    assert asked[confluent_kafka.OFFSET_BEGINNING] == {"t3", "t7"}
    assert asked[confluent_kafka.OFFSET_END] == {one.topic for one in many}


def test_many_logs_of_a_cluster_that_is_down_are_an_error(closed_port: int) -> None:
    many = [TopicPartition("t", number) for number in range(600)]
    down = KafkaAccess("dc1-logging", f"127.0.0.1:{closed_port}")
    with Kafka(down, timeout_seconds=1) as kafka, pytest.raises(KafkaError, match="dc1-logging: no broker"):
        read_logs(kafka, many)


def test_sizes_come_from_the_newest_records_and_count_keys(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, ZERO, [b"x" * 1000] * 20 + [b"x" * 10] * 5)
    sizes = mean_record_bytes(
        mock_cluster, {ZERO: Offsets(0, 25), ONE: Offsets(0, 0)}, ReadLimits(records_per_partition=5)
    )
    assert sizes == {ZERO: 11.0}


def test_a_look_at_a_deleted_topic_ends_in_time_and_keeps_the_others(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, ZERO, [b"x" * 9])
    started = time.monotonic()
    look = ReadLimits(limit_seconds=2.0)
    assert mean_record_bytes(mock_cluster, {ZERO: Offsets(0, 1), GONE: Offsets(0, 5)}, look) == {ZERO: 10.0}
    assert time.monotonic() - started < 20


def test_read_yields_everything_up_to_the_end_and_not_more(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, ZERO, [b"a", b"b", b"c"])
    write(mock_cluster, ONE, [b"d"])
    records = list(read(mock_cluster, [ZERO, ONE], until={ZERO: 2}, timeout_seconds=5))
    assert sorted((r.topic, r.partition, r.offset, r.key, r.value) for r in records) == [
        ("t", 0, 0, b"k", b"a"),
        ("t", 0, 1, b"k", b"b"),
        ("t", 1, 0, b"k", b"d"),
    ]
    assert all(r.timestamp_ms and r.timestamp_ms > 1_600_000_000_000 for r in records)


def test_read_says_when_the_end_is_not_reached(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, ZERO, [b"a"])
    with pytest.raises(KafkaError, match=r"mock: no record for 4 s.*t-0 before offset 5"):
        list(read(mock_cluster, [ZERO], until={ZERO: 5}, timeout_seconds=4))


def test_read_of_a_missing_topic_names_it(mock_cluster: KafkaAccess) -> None:
    with pytest.raises(KafkaError, match="mock: 1 partitions cannot be read; gone-0"):
        list(read(mock_cluster, [GONE], timeout_seconds=20))


def test_a_cluster_that_is_down_is_named_with_its_servers_and_the_reason(closed_port: int) -> None:
    access, messages = KafkaAccess("dc1-logging", f"127.0.0.1:{closed_port}"), []
    with Kafka(access, timeout_seconds=1) as kafka:
        for call in (kafka.topics, kafka.cluster_id, lambda: kafka.offsets([ZERO])):
            with pytest.raises(KafkaError) as caught:
                call()
            said = f"dc1-logging: no broker of 127.0.0.1:{closed_port} answered within 1 s"
            assert caught.value.message.startswith(said)
            assert caught.value.hint
            messages.append(caught.value.message)
    assert "refused" in " ".join(messages)  # on a busy machine the client may not have tried before the first call ends


def test_undelivered_records_raise(closed_port: int) -> None:
    access = KafkaAccess("dc1", f"127.0.0.1:{closed_port}")
    with pytest.raises(KafkaError, match="dc1: no broker of"), Producer(access, timeout_seconds=1) as producer:
        producer.send(ZERO, b"value")


def test_an_error_in_the_block_is_not_hidden_by_waiting_records(closed_port: int) -> None:
    def fail_while_a_record_waits() -> None:
        with Producer(KafkaAccess("dc1", f"127.0.0.1:{closed_port}"), timeout_seconds=30) as producer:
            producer.send(ZERO, b"value")
            raise ZeroDivisionError

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fail_while_a_record_waits()
    assert time.monotonic() - started < 20


def test_librdkafka_prints_nothing(closed_port: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KafkaError), Kafka(KafkaAccess("dc1", f"127.0.0.1:{closed_port}"), timeout_seconds=1) as kafka:
        kafka.topics()
    printed = "".join(capfd.readouterr())
    assert f":{closed_port}" not in printed, "a client of another test may end late and print"


def test_settings_that_the_library_refuses_are_an_error_without_the_secret() -> None:
    security = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "no certificate",
        "ssl.keystore.key": "hunter2",
    }
    with pytest.raises(KafkaError) as caught:
        Kafka(KafkaAccess("dc1", "h:1", security))
    assert caught.value.message.startswith("dc1: the client's settings failed")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("code", "is_silence"),
    [
        (confluent_kafka.KafkaError._TIMED_OUT, True),
        (confluent_kafka.KafkaError._TRANSPORT, True),
        (confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_ids_that_no_broker_gave_in_time_are_an_error_and_not_topics_without_ids(
    mock_cluster: KafkaAccess, code: int, is_silence: bool
) -> None:
    """A look without ids would be remembered, and a topic created again after it would never be noticed."""

    class Unheard:
        def describe_topics(self, names: confluent_kafka.TopicCollection, request_timeout: float) -> object:
            assert request_timeout > 0
            answer: Future[object] = Future()
            answer.set_exception(confluent_kafka.KafkaException(confluent_kafka.KafkaError(code)))
            return {"t": answer}

        def poll(self, timeout: float) -> int:
            return 0

    with Kafka(mock_cluster, timeout_seconds=5) as kafka:
        kafka.admin = Unheard()  # type: ignore[assignment]
        if is_silence:
            with pytest.raises(KafkaSilence):
                kafka.topic_ids(["t"])
        else:
            assert kafka.topic_ids(["t"]) == {}

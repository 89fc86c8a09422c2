"""Cruise Control's sample topic on a real broker, read by Spark: compressed batches, old versions, junk, and a second reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.throughput import cruise_topic
from mm2mgr.throughput.cruise_topic import TopicSamples, topic_samples

from .test_cruise_topic import TIME, version_0, version_1

pytestmark = [pytest.mark.live, pytest.mark.spark]
TOPIC, MINUTE = "__KafkaCruiseControlPartitionMetricSamples", 60_000
JUNK = [b"\x07later version", version_1("t", 0, 1, 1, 1)[:30], b"\xff\xff"]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAccess]:
    with Broker("dc1", tmp_path_factory.mktemp("cruise")) as broker:
        yield KafkaAccess("dc1", broker.bootstrap_servers)


def write(access: KafkaAccess, values: list[tuple[int, int, bytes]]) -> None:
    """Write (partition, time, value) gzipped and without keys, as Cruise Control does."""
    producer = confluent_kafka.Producer({**librdkafka_config(access), "compression.type": "gzip", "linger.ms": 50})
    for partition, time_ms, value in values:
        producer.produce(TOPIC, value, partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


def read(spark: SparkSession, access: KafkaAccess, since_ms: int | None) -> tuple[set[tuple[Any, ...]], dict[str, int]]:
    pieces: list[TopicSamples] = list(topic_samples(spark, librdkafka_config(access), TOPIC, since_ms))
    rows = [row for piece in pieces for row in zip(*piece[0].values(), strict=True)]
    assert len(rows) == len(set(rows))
    skipped: dict[str, int] = {}
    for piece in pieces:
        for reason, count in piece[1].items():
            skipped[reason] = skipped.get(reason, 0) + count
    return set(rows), skipped


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, access: KafkaAccess) -> None:
    with pytest.raises(KafkaError, match="__KafkaCruise") as caught:
        read(spark, access, None)
    assert "strimzi.cruisecontrol" in str(caught.value.hint)


def test_all_samples_come_once_junk_is_counted_and_a_second_reading_goes_on(
    spark: SparkSession, access: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({TOPIC: (4, 1, {})})
    monkeypatch.setattr(cruise_topic, "_RECORDS_PER_SLICE", 500)  # several slices
    assert read(spark, access, None) == (set(), {})
    values, expected = [], set()
    for number in range(1500):
        at, bytes_in = TIME + number // 300 * MINUTE, number + 0.25
        old = number % 3 == 0
        sample = version_0("a.b", number, 2, bytes_in, at) if old else version_1("a.b", number, 2, bytes_in, 7.0, at)
        values.append((number % 4, at, sample))
        expected.add(("a.b", number, at, bytes_in * 1024, None if old else 7.0, 2 * 1024.0 * 1024))
    write(access, [*values, *((number, TIME, junk) for number, junk in enumerate(JUNK))])
    found, skipped = read(spark, access, None)
    assert found == expected
    assert skipped == {"of unknown version 7": 1, "cut short": 1, "of unknown version 255": 1}
    newest = TIME + 4 * MINUTE
    write(
        access, [(0, newest, version_1("late", 0, 1, 1, 1, newest)), (1, newest, version_1("late", 1, 1, 1, 1, newest))]
    )
    again, _ = read(spark, access, newest)
    assert {row[0] for row in again} == {"a.b", "late"}
    assert {row[2] for row in again} == {newest}
    assert len(again) == 300 + 2
    assert read(spark, access, newest + MINUTE) == (set(), {})

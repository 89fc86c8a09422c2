"""The sampler over mock brokers: what is sampled, when record sizes are looked at, and what a dead cluster costs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.offsets import Offsets
from mm2mgr.kafka.producer import Producer
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.offsets import RecordSizes, Round, Schedule, Source, follow, poll
from mm2mgr.samples.store import SampleStore


def write(access: KafkaAccess, topic: str, partition: int, count: int) -> None:
    with Producer(access, timeout_seconds=10) as producer:
        for _ in range(count):
            producer.send((topic, partition), b"x" * 100)


def test_a_poll_reads_accepted_topics_and_skips_kafkas_own(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, "logs", 1, 5)
    write(mock_cluster, "other", 0, 1)
    write(mock_cluster, "__internal", 0, 1)
    with Kafka(mock_cluster, timeout_seconds=2) as kafka:
        everything = {(s.topic, s.partition): s for s in poll(kafka, sizes=RecordSizes()).samples}
        accepted = poll(kafka, lambda topic: topic == "logs").samples
    assert {topic for topic, _ in everything} == {"logs", "other"}
    assert everything["logs", 1].end_offset == 5
    assert everything["logs", 1].record_bytes == 100.0
    assert everything["logs", 0].record_bytes is None
    assert {sample.topic for sample in accepted} == {"logs"}
    assert all(sample.record_bytes is None for sample in accepted)


def test_record_sizes_are_looked_at_again_only_when_due(mock_cluster: KafkaAccess) -> None:
    write(mock_cluster, "logs", 0, 3)
    offsets = {TopicPartition("logs", 0): Offsets(0, 3), TopicPartition("empty", 0): Offsets(4, 4)}
    seldom, always = RecordSizes(every_seconds=3600), RecordSizes(every_seconds=0)
    assert [seldom.measure(mock_cluster, offsets) for _ in range(2)] == [{TopicPartition("logs", 0): 100.0}, {}]
    assert [bool(always.measure(mock_cluster, offsets)) for _ in range(2)] == [True, True]


def test_only_the_fullest_partitions_of_a_topic_are_looked_at(mock_cluster: KafkaAccess) -> None:
    for partition in range(4):
        write(mock_cluster, "a", partition, partition + 1)
    write(mock_cluster, "b", 0, 1)
    offsets = {TopicPartition("a", number): Offsets(0, number + 1) for number in range(4)}
    offsets |= {TopicPartition("a", number): Offsets(0, 1) for number in range(4, 9)} | {
        TopicPartition("b", 0): Offsets(0, 1)
    }
    looked = RecordSizes().measure(mock_cluster, offsets)
    assert {partition.partition for partition in looked if partition.topic == "a"} == {0, 1, 2, 3}
    assert TopicPartition("b", 0) in looked


def test_a_dead_cluster_is_reported_every_round_and_does_not_stop_the_others(
    mock_cluster: KafkaAccess, closed_port: int, tmp_path: Path
) -> None:
    write(mock_cluster, "logs", 0, 3)
    dead = Source(KafkaAccess("dead", f"127.0.0.1:{closed_port}"))
    misconfigured = Source(KafkaAccess("misconfigured", "${env:NOT_SET_ANYWHERE}:9092"))
    store, rounds = SampleStore(tmp_path), list[Round]()
    schedule = Schedule(interval_seconds=2.5, duration_seconds=2.5)
    kept = follow([dead, Source(mock_cluster), misconfigured], schedule, store, rounds.append)
    assert [one.number for one in rounds] == [1, 2]
    for one in rounds:
        assert set(one.failures) == {"dead", "misconfigured"}
        assert "dead: no broker of" in one.failures["dead"].message
        assert one.samples > 0
    samples = store.read()
    assert len(samples) == kept
    assert {sample.cluster for sample in samples} == {"mock"}
    assert len({sample.time_ms for sample in samples}) == 2


def test_following_ends_when_asked_to(mock_cluster: KafkaAccess, tmp_path: Path) -> None:
    stop, rounds = threading.Event(), list[Round]()

    def progress(one: Round) -> None:
        rounds.append(one)
        stop.set()

    follow([Source(mock_cluster)], Schedule(interval_seconds=600), SampleStore(tmp_path), progress, stop)
    assert len(rounds) == 1


@pytest.mark.parametrize(("interval", "timeout"), [(0.5, 1.0), (5.0, 4.0), (60.0, 10.0)])
def test_a_call_fits_into_the_interval_and_ten_seconds(interval: float, timeout: float) -> None:
    assert Schedule(interval_seconds=interval).timeout_seconds == timeout

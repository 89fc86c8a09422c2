"""Scratch groups against librdkafka's own mock of a cluster: what is committed is what a member of the group reads from."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import confluent_kafka
import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.scratch_groups import read_as_member, write_offsets
from mm2mgr.partitions import TopicPartition

pytestmark = pytest.mark.real_time
FULL, SHORT = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def access() -> Iterator[KafkaAccess]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for partition, count in ((FULL, 50), (SHORT, 10)):
        for number in range(count):
            producer.produce(*partition[:1], b"%d" % number, partition=partition.partition)
    assert producer.flush(10) == 0
    yield KafkaAccess("mock", f"{broker.host}:{broker.port}")  # noqa: PT022 - the producer has the cluster


def test_a_member_reads_from_what_is_committed_and_commits_nothing(access: KafkaAccess) -> None:
    assert write_offsets(access, {"scratch": {FULL: 30, SHORT: 10}}) == {}
    for _ in range(2):  # the second is at the same place
        read = read_as_member(access, "scratch", {FULL: 5, SHORT: 5}, 20.0, Event())
        assert [mark.offset for mark in read.marks[FULL]] == [30, 31, 32, 33, 34]
        assert (read.ended, read.faults, read.failure) == (frozenset({SHORT}), {}, "")
        assert read.first_seconds is not None
        assert 0 < read.first_seconds <= read.seconds
    stopped = Event()
    stopped.set()
    assert read_as_member(access, "scratch", {FULL: 5}, 20.0, stopped).marks == {}


def test_a_group_without_an_offset_is_not_read_from_somewhere(access: KafkaAccess) -> None:
    read = read_as_member(access, "nothing", {FULL: 5}, 20.0, Event())
    assert read.marks == {}
    assert "no previously committed offset" in read.faults[FULL]

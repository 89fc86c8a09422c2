"""The lease on brokers that speak the protocol: only partition 0 counts. Who holds it is asked of a real broker in `test_live`."""

from __future__ import annotations

import time

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.compacted import CompactedTopic
from mm2mgr.kafka.lease import Lease
from mm2mgr.partitions import TopicPartition
from tests.kafka.quick import Producer


@pytest.fixture
def wide(mock_cluster: KafkaAccess) -> CompactedTopic:
    """A topic of several partitions: mock brokers make them so."""
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        producer.send(TopicPartition("wide", 0), b"x", key=b"k")
    return CompactedTopic(mock_cluster, "wide", 1, {})


def test_a_topic_of_several_partitions_is_refused_with_the_remedy(wide: CompactedTopic) -> None:
    with pytest.raises(KafkaError, match="mock: topic wide has 4 partitions: mm2mgr needs exactly one") as refused:
        Lease(wide, "mm2mgr-team")
    assert "delete the topic" in str(refused.value.hint)


def test_of_two_members_with_partitions_of_one_topic_one_holds_the_lease(
    wide: CompactedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may add partitions while both run."""
    monkeypatch.setattr(CompactedTopic, "check_partitions", lambda self: None)
    leases = [Lease(wide, "mm2mgr-team") for _ in range(2)]
    try:
        assert all(lease.answered.wait(60) for lease in leases)
        deadline = time.monotonic() + 60
        while not any(lease.is_held for lease in leases) and time.monotonic() < deadline:
            time.sleep(0.1)  # partition 0 may change hands when the second one comes
        assert [lease.is_held for lease in leases].count(True) == 1
    finally:
        for lease in leases:
            lease.close()


def test_a_lease_that_silent_brokers_end_is_nobodys_as_far_as_is_known(
    wide: CompactedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may say then that another process holds it."""
    monkeypatch.setattr(CompactedTopic, "check_partitions", lambda self: None)
    lease = Lease(wide, "mm2mgr-team")
    try:
        assert lease.answered.wait(60)
        lease._expire(lease._consumer, [lease._partition])  # as the client calls it when its session has timed out
        assert (lease.is_held, lease.answered.is_set()) == (False, False)
    finally:
        lease.close()

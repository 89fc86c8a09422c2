"""Topics of one Kafka cluster: what is known of it is not asked again."""

from __future__ import annotations

from dataclasses import replace

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import Producer
from mm2mgr.reconcile.facts import TopicListing, read_topics
from tests.kafka.conftest import closed_port, mock_cluster

__all__ = ["closed_port", "mock_cluster"]


def test_a_cluster_that_is_source_and_target_is_listed_once(mock_cluster: KafkaAccess) -> None:
    with Producer(mock_cluster, timeout_seconds=10) as producer:
        for topic, records in (("orders", 3), ("a.orders", 2), ("other", 1)):
            for _ in range(records):
                producer.send((topic, 0), b"x")
    as_source = read_topics(mock_cluster, {"orders"}.__contains__, timeout_seconds=5)
    assert as_source.partitions.keys() == {"orders", "a.orders", "other"}
    assert as_source.records == as_source.written == {"orders": 3}
    listed = replace(as_source, partitions={**as_source.partitions, "named-only-here": 1})
    both = read_topics(mock_cluster, {"orders", "a.orders"}.__contains__, listed, timeout_seconds=5)
    assert both == TopicListing(listed.partitions, {"orders": 3, "a.orders": 2}, {"orders": 3, "a.orders": 2})


def test_a_cluster_of_which_everything_is_known_is_not_asked(closed_port: int) -> None:
    known = TopicListing({"orders": 1}, {"orders": 3}, {"orders": 3})
    assert read_topics(KafkaAccess("a", f"127.0.0.1:{closed_port}"), {"orders"}.__contains__, known) is known

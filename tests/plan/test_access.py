"""Topics of one Kafka cluster: what is known of it is not asked again."""

from __future__ import annotations

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.questions import PartitionCounts, TopicLogs
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.live.snapshot import Snapshot
from mm2mgr.partitions import Offsets
from mm2mgr.plan.facts import TopicListing, list_topics, list_with_records
from tests.kafka.conftest import mock_cluster
from tests.kafka.quick import Producer

__all__ = ["mock_cluster"]


def test_a_cluster_that_is_source_and_target_is_listed_once(mock_cluster: KafkaAccess) -> None:
    with Producer(mock_cluster, timeout_seconds=10) as producer:
        for topic, records in (("orders", 3), ("a.orders", 2), ("other", 1)):
            for _ in range(records):
                producer.send((topic, 0), b"x")
    reach = KafkaReach(mock_cluster, Limits(kafka_seconds=5))
    topics = PartitionCounts("a").ask(reach)
    assert topics.keys() == {"orders", "a.orders", "other"}
    snapshot = Snapshot(
        {PartitionCounts("a"): topics} | TopicLogs.ask_all(reach, [TopicLogs("a", "orders", topics["orders"])])
    )
    as_source = list_topics(snapshot, "a")
    assert as_source.records == as_source.written == {"orders": 3}
    steps = list_with_records({"a": {"orders", "a.orders"}.__contains__})
    assert snapshot.lacking(next(steps)) == []
    assert snapshot.lacking(steps.send(snapshot)) == [TopicLogs("a", "a.orders", topics["a.orders"])]
    reach.close()


def test_a_topic_of_which_records_were_deleted_has_had_records() -> None:
    snapshot = Snapshot({PartitionCounts("a"): {"t": 2}, TopicLogs("a", "t", 2): (Offsets(5, 7), Offsets(0, 1))})
    assert list_topics(snapshot, "a") == TopicListing({"t": 2}, {"t": 3}, {"t": 8})

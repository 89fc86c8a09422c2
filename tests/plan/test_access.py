"""Topics of one Kafka cluster: what is known of it is not asked again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from mm2mgr.defaults import by_default
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Failures
from mm2mgr.live.kafka_state import RunningKafka, list_topics
from mm2mgr.live.questions import KafkaQuestion, PartitionCounts, TopicLogs
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.snapshot import Snapshot, Steps
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.spec.models import Cluster
from mm2mgr.topology import KafkaCluster
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
    as_source = _answered(list_topics({"a": lambda _: False}), snapshot)["a"]
    assert as_source.records == as_source.log_ends == {"orders": 3}
    steps = list_topics({"a": {"orders", "a.orders"}.__contains__})
    assert snapshot.lacking(next(steps)) == []
    assert snapshot.lacking(steps.send(snapshot)) == [TopicLogs("a", "a.orders", topics["a.orders"])]
    reach.close()


def test_a_topic_of_which_records_were_deleted_has_had_records() -> None:
    logs = {TopicPartition("t", 0): Offsets(5, 7), TopicPartition("t", 1): Offsets(0, 1)}
    snapshot = Snapshot({PartitionCounts("a"): {"t": 2}, TopicLogs("a", "t", 2): logs})
    cluster = _answered(list_topics({"a": lambda _: False}), snapshot)["a"]
    assert cluster == RunningKafka({"t": 2}, logs)
    assert (cluster.records, cluster.log_ends) == ({"t": 3}, {"t": 8})


def test_a_cluster_that_was_silent_for_a_whole_time_out_is_waited_for_less() -> None:
    """Three questions in a row to a dead cluster would hold a plan up for three whole time-outs."""
    limits: list[tuple[str, float]] = []

    @dataclass(frozen=True)
    class Numbered(KafkaQuestion[int]):
        number: int

        def ask(self, reach: KafkaReach) -> int:
            limits.append((self.cluster, reach.limits.kafka_seconds))
            if self.cluster == "dead":
                raise Failures(reach.access).no_answer(reach.limits.kafka_seconds)
            return self.number

    def steps() -> Steps[None]:
        for number in range(3):
            yield [Numbered("dead", number), Numbered("slow", number)]

    model = Cluster.model_validate({"bootstrap_servers": ["127.0.0.1:1"]})
    clusters = Clusters(
        kafkas={alias: KafkaCluster(alias, {}, by_default("1", "Kafka"), model) for alias in ("dead", "slow")}
    )
    asyncio.run(run_steps(steps(), clusters, Limits()))
    assert [seconds for alias, seconds in limits if alias == "slow"] == [10, 10, 10]
    assert [seconds for alias, seconds in limits if alias == "dead"] == [10, 2, 2]


def _answered(steps: Steps[dict[str, RunningKafka]], snapshot: Snapshot) -> dict[str, RunningKafka]:
    """Return the result of a judgement to which the snapshot has all answers."""
    next(steps)
    steps.send(snapshot)
    with pytest.raises(StopIteration) as end:
        steps.send(snapshot)
    result: dict[str, RunningKafka] = end.value.value
    return result

"""Consumer group offsets through the admin API: committed for the demo's own group, read back anywhere.

In: a KafkaAccess and a group. Out: committed offsets. No other member of the group may be up while it is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka.admin import AdminClient

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.failures import client_settings
from mm2mgr.partitions import TopicPartition


def commit_group(
    access: KafkaAccess, group: str, offsets: Mapping[TopicPartition, int], timeout_seconds: float = 20.0
) -> None:
    """Commit the next offset to read of each partition, as the only member of a group that then leaves.

    The group is joined for real: MirrorCheckpointConnector passes over groups that never had a member ("simple" ones).
    """
    settings, failures = client_settings(access, {"group.id": group, "enable.auto.commit": False})
    wanted = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    consumer = None
    try:
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(sorted({partition.topic for partition in offsets}))
        deadline = time.monotonic() + timeout_seconds
        while len(consumer.assignment()) < len(wanted):
            if time.monotonic() > deadline:
                raise failures.no_answer(timeout_seconds)
            consumer.poll(0.1)
        consumer.commit(offsets=wanted, asynchronous=False)
    except (confluent_kafka.KafkaException, ValueError) as error:
        raise failures.error(error, f"committing offsets of group {group}", timeout_seconds) from error
    finally:
        if consumer is not None:
            consumer.close()


def read_group(access: KafkaAccess, group: str, timeout_seconds: float = 20.0) -> dict[TopicPartition, int]:
    """Return the committed offset of each partition of a group; empty for a group that does not exist."""
    settings, failures = client_settings(access, {})
    try:
        admin = AdminClient(settings)
        request = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        (future,) = admin.list_consumer_group_offsets(request, request_timeout=timeout_seconds).values()
        found = future.result(timeout_seconds + 1).topic_partitions or []
    except (confluent_kafka.KafkaException, TimeoutError, ValueError) as error:
        raise failures.error(error, f"reading offsets of group {group}", timeout_seconds) from error
    return {TopicPartition(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

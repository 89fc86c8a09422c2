"""The times of records: of the next one after an offset, and of the newest one of a partition.

A record's timestamp is what its producer set, unless the topic has `message.timestamp.type=LogAppendTime`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import confluent_kafka
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka, batches
from mm2mgr.kafka.records import consuming, fault_of
from mm2mgr.partitions import TopicPartition

_PARTITIONS_AT_ONCE = 200  # each sends a batch, of which only one record is wanted
_BATCH_BYTES = 65_536
_NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


def written_at(
    access: KafkaAccess, positions: Mapping[TopicPartition, int], limit_seconds: float = 10.0
) -> dict[TopicPartition, float]:
    """Return when the first record at or after each offset was written, in seconds since 1970.

    Partitions are absent whose record did not come in time, or has no timestamp. One record of each is looked at.
    """
    written: dict[TopicPartition, float] = {}
    deadline = time.monotonic() + limit_seconds
    for names in batches(list(positions), _PARTITIONS_AT_ONCE):
        waiting = {partition: positions[partition] for partition in names}
        if time.monotonic() >= deadline:
            break
        with consuming(access, waiting, {"fetch.message.max.bytes": _BATCH_BYTES}) as (consume, _):
            while waiting and (left := deadline - time.monotonic()) > 0:
                for message in consume(left):
                    partition = TopicPartition(message.topic(), message.partition())
                    if waiting.pop(partition, None) is None or fault_of(message) or message.error():
                        continue
                    kind, stamp = message.timestamp()
                    if kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE:
                        written[partition] = stamp / 1000
    return written


def newest_record_at(kafka: Kafka, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
    """Return the largest timestamp in each partition, in seconds since 1970; absent: it is empty, cannot be read, or
    its brokers are older than Kafka 3.0."""
    newest: dict[TopicPartition, float] = {}
    with kafka.doing("reading the newest timestamps"):
        asked = {confluent_kafka.TopicPartition(*partition): _NEWEST for partition in partitions}
        answers = kafka.admin.list_offsets(asked, request_timeout=kafka.left()) if asked else {}
        for key, future in answers.items():
            answer = kafka.unless_refused(future)
            if answer is not None and answer.timestamp is not None and answer.timestamp > 0:
                newest[TopicPartition(key.topic, key.partition)] = answer.timestamp / 1000
    return newest

"""Records and group offsets written to Kafka, for the demo and for proofs only.

Records are idempotent, acknowledged by all replicas, and sent to a given partition.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import client_settings
from mm2mgr.partitions import TopicPartition


class Producer:
    """A producer for a `with` block, which ends when every record is stored or with a KafkaError.

    `timeout_seconds` bounds the delivery of each record.
    """

    def __init__(self, access: KafkaAccess, timeout_seconds: float = 30.0) -> None:
        self.access = access
        self.timeout_seconds = timeout_seconds
        self._lost: confluent_kafka.KafkaError | None = None
        extra = {
            "enable.idempotence": True,  # implies acks=all and keeps the order within a partition
            "linger.ms": 20,
            "message.timeout.ms": int(timeout_seconds * 1000),
        }
        settings, self._failures = client_settings(access, extra)
        try:
            self._producer = confluent_kafka.Producer(settings)
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise self._failures.error(error, "the client's settings", timeout_seconds) from error

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.flush()
        else:
            self._producer.purge()  # the caller's error matters more than records still waiting

    def send(
        self, partition: tuple[str, int], value: bytes | None, key: bytes | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Queue one record for a (topic, partition); KafkaError as soon as an earlier record is known to be lost."""
        more: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            self._raise_lost()
            try:
                self._producer.produce(partition[0], value, key, partition[1], on_delivery=self._delivered, **more)
                self._producer.poll(0)
                return
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise self._failures.no_answer(self.timeout_seconds) from error
                self._producer.poll(0.1)
            except confluent_kafka.KafkaException as error:
                raise self._failures.error(error, f"writing to {partition[0]}", self.timeout_seconds) from error

    def flush(self) -> None:
        """Wait until every queued record is stored; KafkaError if one was not."""
        waiting = self._producer.flush(self.timeout_seconds + 1)
        self._raise_lost()
        if waiting:
            raise self._failures.no_answer(self.timeout_seconds)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is not None and self._lost is None:
            self._lost = error

    def _raise_lost(self) -> None:
        if self._lost is None:
            return
        if self._lost.code() == confluent_kafka.KafkaError._MSG_TIMED_OUT:
            raise self._failures.no_answer(self.timeout_seconds)
        lost = confluent_kafka.KafkaException(self._lost)
        raise self._failures.error(lost, "writing records", self.timeout_seconds) from lost


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

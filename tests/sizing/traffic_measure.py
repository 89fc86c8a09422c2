"""What connectors really carry, measured at the target without mm2mgr's sampler.

In go traffic sets that are being mirrored, out come bytes per second by source partition: of records, read by a plain
consumer between two moments, and of the target's logs on disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from tests.live.seen import admin, until

from .traffic import TrafficSet

_CAUGHT_UP_SECONDS = 1.5  # this much of the traffic is always on its way: fetches, batches, flushes
_READ_SECONDS = 180.0
_NOT_YET = (  # a partition of a topic that the connector is creating right now
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
)


@dataclass(frozen=True)
class Arrived:
    """Bytes per second by source partition: key, value and headers of records; and growth of logs, batches' overhead included."""

    records: dict[TopicPartition, float]
    logs: dict[TopicPartition, float]


@dataclass(frozen=True)
class Mirrored:
    """The mirrored partitions of a target, which bear the source's alias in front."""

    source: KafkaAccess
    target: Broker
    alias: str

    @property
    def access(self) -> KafkaAccess:
        return KafkaAccess(self.target.name, self.target.bootstrap_servers)

    def measure(self, sets: Sequence[TrafficSet], seconds: float) -> Arrived:
        """Wait until the connectors have caught up, then measure for some seconds while traffic goes on."""
        source, target = admin(self.source), admin(self.access)
        until(
            lambda: self._behind(sets, source, target),
            lambda lags: max(lags.values()) < _CAUGHT_UP_SECONDS,
            "caught up",
            seconds=400,  # a busy machine lets one connector start minutes after the others
        )
        remote = {self._remote(one): one for each in sets for one in each.sent}
        first, first_logs, begun = latest(target, remote), self._log_bytes(remote), time.monotonic()
        time.sleep(seconds)
        last, last_logs, took = latest(target, remote), self._log_bytes(remote), time.monotonic() - begun
        sums = record_bytes(self.access, first, last)
        return Arrived(
            {one: sums.get(there, 0) / took for there, one in remote.items()},
            {one: (last_logs[there] - first_logs[there]) / took for there, one in remote.items()},
        )

    def _behind(self, sets: Sequence[TrafficSet], source: AdminClient, target: AdminClient) -> dict[str, float]:
        """Return by how many seconds of its traffic each set is behind."""
        partitions = [one for each in sets for one in each.sent]
        arrived, written = latest(target, map(self._remote, partitions)), latest(source, partitions)
        return {
            each.name: sum(written[one] - arrived[self._remote(one)] for one in each.sent)
            / sum(flowing.records_per_second for flowing in each.sent.values())
            for each in sets
        }

    def _remote(self, one: TopicPartition) -> TopicPartition:
        return TopicPartition(f"{self.alias}.{one.topic}", one.partition)

    def _log_bytes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Weigh the segments on the broker's disk."""
        data = self.target.directory / "data"
        return {one: sum(path.stat().st_size for path in (data / str(one)).glob("*.log")) for one in partitions}


def latest(client: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end of each log, all asked for in one request; 0 for one that is not there yet."""
    asked = {confluent_kafka.TopicPartition(*one): OffsetSpec.latest() for one in partitions}  # type: ignore[no-untyped-call]
    return {TopicPartition(key.topic, key.partition): _end(each) for key, each in client.list_offsets(asked).items()}


def _end(future: Any) -> int:
    try:
        return int(future.result(20).offset)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() in _NOT_YET:
            return 0
        raise


def record_bytes(
    access: KafkaAccess, first: dict[TopicPartition, int], last: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Read every record from the first to the last offsets (exclusive) and add up keys, values and headers."""
    left = {one: last[one] - begin for one, begin in first.items() if last[one] > begin}
    sums = dict.fromkeys(left, 0)
    settings = {"bootstrap.servers": access.bootstrap_servers, "group.id": "nobody", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "error"})
    deadline = time.monotonic() + _READ_SECONDS
    try:
        consumer.assign([confluent_kafka.TopicPartition(*one, first[one]) for one in left])
        while left:
            assert time.monotonic() < deadline, f"not read: {left}"
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                _count(message, last, sums, left)
    finally:
        consumer.close()
    return sums


def _count(
    message: Any, last: Mapping[TopicPartition, int], sums: dict[TopicPartition, int], left: dict[TopicPartition, int]
) -> None:
    one = TopicPartition(message.topic(), message.partition())
    if message.offset() < last[one]:
        sums[one] += _size(message)
    if message.offset() >= last[one] - 1:
        left.pop(one, None)


def _size(message: Any) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    return len(message.key() or b"") + len(message.value() or b"") + headers

"""What several connections to a cluster carry at once, measured by reading a topic, or by writing to a temporary one.

Bytes are those on the wire, as the client counts them. The start, while connections speed up, is left out.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import confluent_kafka

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Failures, Kafka, open_client
from mm2mgr.kafka.records import NO_GROUP, partition_of
from mm2mgr.partitions import TopicPartition

T = TypeVar("T")
_STATISTICS_MS = 200
_WARM_UP_SHARE = 1 / 3  # of the time, while TCP finds the rate
_TICK_SECONDS = 0.1
_RECORD_BYTES = 100_000
_FIRST_ANSWER_SECONDS = 15.0
_READING = {
    **NO_GROUP,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 4 << 20,
    "fetch.max.bytes": 16 << 20,
    "receive.message.max.bytes": 64 << 20,
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 10,  # at the end of a partition, where reading begins again
    "enable.partition.eof": True,
}
_WRITING = {"acks": 1, "batch.size": 900_000, "linger.ms": 20, "queue.buffering.max.kbytes": 8 << 10}


@dataclass(frozen=True)
class TransferLimits:
    """When a measurement ends, and over how many connections it goes."""

    limit_bytes: float = 200e6
    limit_seconds: float = 15.0
    connections: int = 16


@dataclass(frozen=True)
class Transfer:
    """What was carried: bytes on the wire in all, and per second once the connections were warm.

    `rewinds`: how often a partition was read to its end and begun again.
    """

    bytes: int
    seconds: float
    bytes_per_second: float
    connections: int
    rewinds: int = 0


@dataclass
class _Meter:
    key: str
    limits: TransferLimits
    counts: dict[int, int] = field(default_factory=dict)
    series: list[tuple[float, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    began: float = field(default_factory=timing.now)
    stopped: threading.Event = field(default_factory=threading.Event)
    fault: confluent_kafka.KafkaError | None = None
    rewinds: int = 0

    def callback(self, number: int) -> Callable[[str], None]:
        def note(statistics: str) -> None:
            with self.lock:
                self.counts[number] = int(json.loads(statistics)[self.key])
                self.series.append((timing.now(), sum(self.counts.values())))

        return note

    @property
    def total(self) -> int:
        return self.series[-1][1] if self.series else 0

    def is_over(self) -> bool:
        spent = timing.now() - self.began
        return self.stopped.is_set() or self.total >= self.limits.limit_bytes or spent >= self.limits.limit_seconds

    def transfer(self) -> Transfer:
        first, last = self.began, self.series[-1][0]
        warm = first + (last - first) * _WARM_UP_SHARE
        at, carried = next((point for point in self.series if point[0] >= warm), self.series[0])
        rate = (self.total - carried) / (last - at) if last > at else self.total / max(last - first, 1e-3)
        return Transfer(self.total, last - first, rate, self.limits.connections, self.rewinds)


def read_rate(access: KafkaAccess, topic: str, limits: TransferLimits) -> Transfer:
    """Measure how fast an existing topic is read from its start, over and over; KafkaError without records."""
    with Kafka(access) as kafka:
        count = kafka.partition_counts().get(topic)
        if not count:
            raise KafkaError(
                f"{access.alias}: no topic '{topic}' that this login may see", hint="name one with records"
            )
        read_ends = kafka.read_offsets([TopicPartition(topic, number) for number in range(count)]).found
    ends = {partition: offsets for partition, offsets in read_ends.items() if offsets.end > offsets.start}
    if not ends:
        raise KafkaError(f"{access.alias}: topic '{topic}' has no records to read", hint="name one with records")

    def read(number: int, meter: _Meter) -> None:
        # More connections than partitions share them, each from another place.
        mine = list(ends)[number % len(ends) :: limits.connections] or [list(ends)[number % len(ends)]]
        share = number // len(ends) / max(-(-limits.connections // len(ends)), 1)
        with _client(access, meter, number, _READING, confluent_kafka.Consumer) as client:
            starts = [
                confluent_kafka.TopicPartition(
                    *partition, ends[partition].start + int((ends[partition].end - ends[partition].start) * share)
                )
                for partition in mine
            ]
            client.assign(starts)
            while not meter.is_over():
                for message in client.consume(2_000, timeout=_TICK_SECONDS):
                    error = message.error()
                    if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        partition = partition_of(message)
                        meter.rewinds += 1
                        client.seek(confluent_kafka.TopicPartition(*partition, ends[partition].start))
                    elif error is not None and error.code() != confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                        meter.fault = error
                        meter.stopped.set()

    return _measure_job(access, "rx_bytes", limits, read, f"reading topic {topic}")


def write_rate(access: KafkaAccess, owner: str, limits: TransferLimits) -> Transfer:
    """Measure how fast a temporary topic is written; it is deleted, and named so that no flow mirrors it."""
    topic = f"mm2mgr.probe.{owner}.{uuid.uuid4().hex[:8]}.internal"
    payload = os.urandom(_RECORD_BYTES)

    def write(number: int, meter: _Meter) -> None:
        def take_delivery(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is not None and not meter.is_over():  # at the end, what waits is given up
                meter.fault = error
                meter.stopped.set()

        with _client(access, meter, number, _WRITING, confluent_kafka.Producer) as client:
            while not meter.is_over():
                try:
                    client.produce(topic, payload, partition=number, on_delivery=take_delivery)
                    client.poll(0)
                except BufferError:
                    client.poll(_TICK_SECONDS)
            client.purge()
            client.flush(1)

    with Kafka(access) as kafka:
        kafka.create_topics({topic: (limits.connections, 1, {"retention.ms": "3600000"})})
        try:
            return _measure_job(access, "tx_bytes", limits, write, f"writing topic {topic}")
        finally:
            kafka.delete_topic(topic)


@contextmanager
def _client(
    access: KafkaAccess,
    meter: _Meter,
    number: int,
    settings: Mapping[str, object],
    kind: Callable[[dict[str, object]], T],
) -> Iterator[T]:
    extra = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": meter.callback(number), **settings}
    client, _ = open_client(kind, access, extra)
    try:
        yield client
    finally:
        if hasattr(client, "close"):
            client.close()


def _measure_job(
    access: KafkaAccess, key: str, limits: TransferLimits, job: Callable[[int, _Meter], None], doing: str
) -> Transfer:
    meter = _Meter(key, limits)
    errors: list[Exception] = []

    def run(number: int) -> None:
        try:
            job(number, meter)
        except Exception as error:  # of a thread: raised below
            errors.append(error)
            meter.stopped.set()

    threads: Sequence[threading.Thread] = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(limits.connections)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        meter.stopped.set()
        for thread in threads:
            thread.join(_FIRST_ANSWER_SECONDS)
        raise
    for error in errors:
        if isinstance(error, KafkaError):
            raise error
        raise Failures(access).error(error, doing, limits.limit_seconds) from error
    if meter.fault is not None:
        raise Failures(access).error(confluent_kafka.KafkaException(meter.fault), doing, limits.limit_seconds)
    if not meter.total:
        raise KafkaError(
            f"{access.alias}: {doing} carried nothing within {limits.limit_seconds:g} s", hint="raise --seconds"
        )
    return meter.transfer()

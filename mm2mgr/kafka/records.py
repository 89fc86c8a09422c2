"""Records read from Kafka without a group: the newest ones for their size, or all up to an end for a proof.

It never commits, joins a group, or reads without a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.failures import Failures, client_settings
from mm2mgr.partitions import Offsets, TopicPartition

_BATCH = 1_000
_NO_GROUP = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never sent: partitions are assigned by hand
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # an end reached over transaction markers has no record to show for it
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 8_192,
    "fetch.queue.backoff.ms": 5,  # a full queue is otherwise left alone for a second: 8 MB/s at most
}


@dataclass(frozen=True)
class ReadLimits:
    """Limits of one reading of record sizes; bytes and seconds are over all its partitions together."""

    records_per_partition: int = 50
    limit_bytes: int = 16_000_000
    limit_seconds: float = 3.0


@dataclass(frozen=True)
class Record:
    """One record as read; a null key or value is None, the time is milliseconds since 1970 or None."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def mean_record_bytes(
    access: KafkaAccess, partitions: Mapping[TopicPartition, Offsets], limits: ReadLimits | None = None
) -> dict[TopicPartition, float]:
    """Return the mean size of the newest records per partition: bytes of key, value and headers, before compression.

    Partitions whose records did not come within these limits are absent: unknown, not zero.
    """
    bounds = limits or ReadLimits()
    starts = {p: max(o.start, o.end - bounds.records_per_partition) for p, o in partitions.items() if o.end > o.start}
    sums: dict[TopicPartition, tuple[int, int]] = {}
    open_ends = {partition: partitions[partition].end for partition in starts}
    seen_bytes, deadline = 0, time.monotonic() + bounds.limit_seconds
    with _consumer(access, starts) as (consume, _):
        while open_ends and seen_bytes < bounds.limit_bytes and (left := deadline - time.monotonic()) > 0:
            for message in consume(left):
                if _fault(message):  # a topic deleted meanwhile is unknown, and no reason to lose the others
                    open_ends.pop(TopicPartition(message.topic(), message.partition()), None)
                    continue
                partition = _close_reached(message, open_ends)
                if message.error() is None:
                    size = _bytes_of(message)
                    count, total = sums.get(partition, (0, 0))
                    sums[partition] = (count + 1, total + size)
                    seen_bytes += size
    return {partition: total / count for partition, (count, total) in sums.items()}


def read(
    access: KafkaAccess,
    partitions: Iterable[TopicPartition],
    until: Mapping[TopicPartition, int] | None = None,
    timeout_seconds: float = 30.0,
) -> Iterator[Record]:
    """Yield every committed record from log start to `until` (exclusive; default: the ends right now), in fetch order.

    KafkaError when nothing new arrives for `timeout_seconds` although an end is not reached.
    """
    wanted = list(dict.fromkeys(partitions))
    with Kafka(access, timeout_seconds) as kafka:
        known = kafka.read_offsets(wanted)
    if known.failed:
        first, reason = next(iter(known.failed.items()))
        raise KafkaError(f"{access.alias}: {len(known.failed)} partitions cannot be read; {first}: {reason}")
    ends = {partition: (until or {}).get(partition, offsets.end) for partition, offsets in known.found.items()}
    open_ends = {partition: end for partition, end in ends.items() if known.found[partition].start < end}
    with _consumer(access, {partition: known.found[partition].start for partition in open_ends}) as (consume, failures):
        while open_ends:
            messages = consume(timeout_seconds)
            if not messages:
                raise _stopped_short(access, open_ends, failures, timeout_seconds)
            for message in messages:
                if fault := _fault(message):
                    raise failures.error(confluent_kafka.KafkaException(fault), "reading records", timeout_seconds)
                partition = _close_reached(message, open_ends)
                if message.error() is None and message.offset() < ends[partition]:
                    yield _record(message)


@contextmanager
def _consumer(
    access: KafkaAccess, starts: Mapping[TopicPartition, int]
) -> Iterator[tuple[Callable[[float], list[Any]], Failures]]:
    settings, failures = client_settings(access, _NO_GROUP)
    try:
        consumer = confluent_kafka.Consumer(settings)
    except (confluent_kafka.KafkaException, ValueError) as error:
        raise failures.error(error, "the client's settings", 0) from error
    try:
        consumer.assign([confluent_kafka.TopicPartition(*partition, offset) for partition, offset in starts.items()])
        yield (
            lambda seconds: consumer.consume(_BATCH, timeout=min(seconds, 0.2)) or consumer.consume(1, seconds),
            failures,
        )
    finally:
        consumer.close()


def _fault(message: Any) -> confluent_kafka.KafkaError | None:
    error: confluent_kafka.KafkaError | None = message.error()
    return None if error is None or error.code() == confluent_kafka.KafkaError._PARTITION_EOF else error


def _close_reached(message: Any, open_ends: dict[TopicPartition, int]) -> TopicPartition:
    """Drop the partition from `open_ends` when this record, or this end-of-partition event, reaches its end."""
    partition = TopicPartition(message.topic(), message.partition())
    next_offset = message.offset() + (1 if message.error() is None else 0)
    if next_offset >= open_ends.get(partition, next_offset + 1):
        del open_ends[partition]
    return partition


def _stopped_short(
    access: KafkaAccess, open_ends: Mapping[TopicPartition, int], failures: Failures, timeout_seconds: float
) -> KafkaError:
    partition, end = next(iter(open_ends.items()))
    why = f" ({failures.cut(failures.last.str())})" if failures.last else ""
    many = f"{len(open_ends)} partitions" if len(open_ends) > 1 else "one partition"
    return KafkaError(
        f"{access.alias}: no record for {timeout_seconds:g} s, {many} short of the end, such as {partition} "
        f"before offset {end}{why}",
        hint="an open transaction or an unavailable partition leader stops readers before the end of the log",
    )


def _bytes_of(message: Any) -> int:
    headers = message.headers() or []
    return (
        len(message.key() or b"")
        + len(message.value() or b"")
        + sum(len(name.encode()) + len(value or b"") for name, value in headers)
    )


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    known = kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        timestamp if known else None,
    )

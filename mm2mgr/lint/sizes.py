"""Sizes and rates of a source connector in numbers: its tasks, its fetches, what source and target take. Pure.

In: a subject. Out: bytes, bytes per second and counts, 0 or None where the facts for it are not known.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil

from mm2mgr.defaults import BROKER_WINDOW_BYTES
from mm2mgr.links import connection_rate
from mm2mgr.lint import patterns
from mm2mgr.lint.settings import MIB, READER, RECORDS, is_set
from mm2mgr.lint.subject import Subject

FETCH, PARTITION = "fetch.max.bytes", "max.partition.fetch.bytes"
TOPIC_BYTES = 1_048_588  # Kafka's default of message.max.bytes, twelve bytes above the producer's max.request.size
_WINDOW_SHARE = 1.2  # a consumer's receive.buffer.bytes of 65536 was seen to let 79 000 bytes be on their way


def number(subject: Subject, plain: str, client: str = RECORDS) -> int:
    """Return a setting of a client, 0 when it is no number."""
    return subject.number(client, plain) or 0


def above(subject: Subject, plain: str, limit: str) -> bool:
    """Tell whether one setting of the record producer is larger than another that bounds it."""
    return is_set(subject, RECORDS, plain, limit) and 0 < number(subject, limit) < number(subject, plain)


def tasks(subject: Subject) -> int:
    """Return how many tasks there are at most: no more than partitions, where these are known."""
    text = subject.get("tasks.max", "1")
    wanted = max(int(text), 1) if text.isdecimal() else 1
    return min(wanted, partitions(subject) or wanted)


def partitions(subject: Subject) -> int:
    """Return how many partitions the connector mirrors, 0 when that is not known."""
    known = subject.source_kafka.partitions or {}
    return sum(known[topic] for topic in _mirrored(subject, known))


def _mirrored(subject: Subject, topics: Collection[str]) -> list[str]:
    found = patterns.selection(subject) if topics else None
    return [topic for topic in topics if found.takes(topic)] if found else []


def fetch_of_one(subject: Subject) -> int:
    """Return the bytes a fetch of one partition may have where people wrote it, else 0."""
    if subject.type != "source" or not is_set(subject, READER, PARTITION):
        return 0
    return min(number(subject, PARTITION, READER), number(subject, FETCH, READER) or 50 * MIB)


def fetch_of_task(subject: Subject) -> int:
    """Return the bytes of one fetch from one broker: of one partition when it is not known how many a task has."""
    each = ceil(partitions(subject) / tasks(subject) / (subject.source_kafka.brokers or 1))
    return min(number(subject, FETCH, READER), max(each, 1) * number(subject, PARTITION, READER))


def bytes_per_second(subject: Subject) -> float:
    """Return what one connection carries: its window per round trip, at most its share of the link; 0 without a known link."""
    wire, buffer = subject.wire, number(subject, "receive.buffer.bytes", READER)
    if wire is None:
        return 0
    window = BROKER_WINDOW_BYTES if buffer == -1 else min(buffer * _WINDOW_SHARE, BROKER_WINDOW_BYTES)
    return connection_rate(max(wire.rtt_seconds, 1e-3), wire.bytes_per_second, window, tasks(subject))


def largest_at_source(subject: Subject) -> int:
    """Return the largest record the mirrored topics take, 0 when that is not known."""
    kafka = subject.source_kafka
    mirrored = _mirrored(subject, kafka.topic_max_message_bytes)
    return max((kafka.topic_max_message_bytes[topic] for topic in mirrored), default=kafka.message_max_bytes or 0)


def known_limit(subject: Subject) -> int | None:
    """Return the smallest record limit of the topics mirrored to, else the brokers', None when neither is known."""
    kafka = subject.target_kafka
    found = patterns.selection(subject) if kafka.topic_max_message_bytes else None
    upstream = {topic: found.upstream(topic) for topic in kafka.topic_max_message_bytes} if found else {}
    limits = [
        kafka.topic_max_message_bytes[topic] for topic, name in upstream.items() if name and found and found.takes(name)
    ]
    return min(limits, default=kafka.message_max_bytes)

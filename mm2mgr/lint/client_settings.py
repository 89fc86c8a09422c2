"""Client settings that several rules use: the key that sets a value, security, sizes and rates. Pure; unknown facts are 0 or None."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache
from math import ceil

from mm2mgr.defaults import BROKER_WINDOW_BYTES
from mm2mgr.lint import patterns
from mm2mgr.lint.fixes import written
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.truth.reach import CLIENTS, Client, ConnectorType

RECORDS, READER = "record producer", "source consumer"
MIB = 1024 * 1024


def key_of(subject: Subject, client: str, plain: str) -> str:
    """Return the connector's key that sets a client setting, "" for none."""
    return subject.written(client, plain) or ""


def described(subject: Subject, client: str, plain: str) -> str:
    """Return a setting with its origin for a message: `producer.override.acks=1`, or the workers', or the default."""
    value = subject.value(client, plain)
    if key := subject.written(client, plain):
        return f"{written(subject, key)}={value}"
    for prefix in _workers_prefixes(subject, client):
        if subject.worker_property(prefix + plain) is not None:
            return f"{prefix}{plain}={value} of the workers"
    return f"{plain}={value}, the default"


def is_set(subject: Subject, client: str, *plains: str) -> bool:
    """Tell whether one of these is set on the connector or on its workers; much cheaper than computing values."""
    if _is_written(subject.kind, client, plains):
        return True
    if not subject.worker.properties:
        return False
    prefixes = _workers_prefixes(subject, client)
    return any(subject.worker_property(prefix + plain) is not None for prefix in prefixes for plain in plains)


@lru_cache(maxsize=16384)
def _is_written(kind: SubjectKind, client: str, plains: tuple[str, ...]) -> bool:
    return any(key in kind.keys for plain in plains for key in _spellings(kind.type, client, plain))


@cache
def _spellings(type_: ConnectorType, client: str, plain: str) -> tuple[str, ...]:
    layers = [layer for each in CLIENTS[type_] if each.name == client for layer in each.layers]
    return tuple(layer.prefix + plain for layer in layers if layer.plain(layer.prefix + plain))


def _workers_prefixes(subject: Subject, client: str) -> tuple[str, ...]:
    found = subject.client(client)
    return found.worker_prefixes if found else ()


def size(number: float) -> str:
    """Return a number of bytes with a readable unit."""
    for unit, factor in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number:.0f} bytes"


TRUST = ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.engine.factory.class")
KEYS = ("ssl.keystore.key", "ssl.keystore.location", "ssl.engine.factory.class")
LOGIN = ("sasl.jaas.config",)
# One tuple a thing that a client needs; any of its names will do.
NEEDED: tuple[tuple[str, ...], ...] = (("security.protocol",), ("sasl.mechanism",), LOGIN, TRUST, KEYS)
STORES = ("ssl.truststore.", "ssl.keystore.")


def protocol(subject: Subject, client: str) -> str:
    """Return a client's security.protocol in capitals; "" when it is not set or a placeholder."""
    key = subject.written(client, "security.protocol")
    value = subject.get(key) if key else ""
    if not key and client == "record producer":
        value = subject.worker_property("producer.security.protocol") or ""
    return "" if "${" in value else value.upper()


def configured(subject: Subject, client: Client, plain: str) -> str:
    """Return the value that is configured for a client, "" for none; the workers' producer.* count for the record producer."""
    if key := subject.written(client.name, plain):
        return subject.get(key)
    values = (subject.worker_property(prefix + plain) for prefix in reversed(client.worker_prefixes))
    return next((value for value in values if value), "")


def lacking_in_override(subject: Subject) -> list[str]:
    """Return the security settings of the target that an overridden record producer lacks, the first name of each group."""
    address = subject.get("producer.override.bootstrap.servers")
    if not address or protocol(subject, "target admin") in ("", "PLAINTEXT"):
        return []
    needed = [each for each in NEEDED if _has(subject, "target admin", each)]
    lacking = [each[0] for each in needed if not _has(subject, "record producer", each)]
    if protocol(subject, "record producer") == "PLAINTEXT":
        lacking.append("security.protocol")
    return lacking


def _has(subject: Subject, client: str, names: tuple[str, ...]) -> bool:
    """Tell whether one of these settings is configured for a client."""
    worker = "producer." if client == "record producer" else None
    return any(
        subject.written(client, name) or (worker and subject.worker_property(worker + name) is not None)
        for name in names
    )


FETCH, PARTITION = "fetch.max.bytes", "max.partition.fetch.bytes"
TOPIC_BYTES = 1_048_588  # Kafka's default of message.max.bytes, twelve bytes above the producer's max.request.size
_WINDOW_SHARE = 1.2  # a consumer's receive.buffer.bytes of 65536 was seen to let 79 000 bytes be on their way


def number(subject: Subject, plain: str, client: str = RECORDS) -> int:
    """Return a setting of a client as a number, 0 when it is not a number."""
    return subject.number(client, plain) or 0


def above(subject: Subject, plain: str, limit: str) -> bool:
    """Tell whether one setting of the record producer exceeds another one that limits it."""
    return is_set(subject, RECORDS, plain, limit) and 0 < number(subject, limit) < number(subject, plain)


def tasks(subject: Subject) -> int:
    """Return the maximum number of tasks: at most the number of partitions where it is known."""
    text = subject.get("tasks.max", "1")
    wanted = max(int(text), 1) if text.isdecimal() else 1
    return min(wanted, partitions(subject) or wanted)


def partitions(subject: Subject) -> int:
    """Return how many partitions the connector mirrors, 0 when unknown."""
    known = subject.source_kafka.partitions or {}
    return sum(known[topic] for topic in _mirrored(subject, known))


def _mirrored(subject: Subject, topics: Collection[str]) -> list[str]:
    found = patterns.selection(subject) if topics else None
    return [topic for topic in topics if found.takes(topic)] if found else []


def fetch_of_one(subject: Subject) -> int:
    """Return the maximum bytes of a fetch of one partition where it is configured, else 0."""
    if subject.type != "source" or not is_set(subject, READER, PARTITION):
        return 0
    return min(number(subject, PARTITION, READER), number(subject, FETCH, READER) or 50 * MIB)


def fetch_of_task(subject: Subject) -> int:
    """Return the bytes of one fetch from one broker; of a single partition when the partitions per task are unknown."""
    each = ceil(partitions(subject) / tasks(subject) / (subject.source_kafka.brokers or 1))
    return min(number(subject, FETCH, READER), max(each, 1) * number(subject, PARTITION, READER))


def bytes_per_second(subject: Subject) -> float:
    """Return the rate of one connection: its window per round trip, at most its share of the link; 0 without a known link."""
    wire, buffer = subject.wire, number(subject, "receive.buffer.bytes", READER)
    if wire is None:
        return 0
    window = BROKER_WINDOW_BYTES if buffer == -1 else min(buffer * _WINDOW_SHARE, BROKER_WINDOW_BYTES)
    rate = window / max(wire.rtt_seconds, 1e-3)
    return min(rate, wire.bytes_per_second / tasks(subject)) if wire.bytes_per_second else rate


def largest_at_source(subject: Subject) -> int:
    """Return the largest record that the mirrored topics accept, 0 when unknown."""
    kafka = subject.source_kafka
    mirrored = _mirrored(subject, kafka.topic_max_message_bytes)
    return max((kafka.topic_max_message_bytes[topic] for topic in mirrored), default=kafka.message_max_bytes or 0)


def known_limit(subject: Subject) -> int | None:
    """Return the smallest record limit of the target's topics, else of its brokers; None when neither is known."""
    kafka = subject.target_kafka
    found = patterns.selection(subject) if kafka.topic_max_message_bytes else None
    upstream = {topic: found.upstream(topic) for topic in kafka.topic_max_message_bytes} if found else {}
    limits = [
        kafka.topic_max_message_bytes[topic] for topic, name in upstream.items() if name and found and found.takes(name)
    ]
    return min(limits, default=kafka.message_max_bytes)

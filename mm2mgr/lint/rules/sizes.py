"""Rules about sizes: batches, requests, records that do not fit, fetches too large for a link, memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mm2mgr.link import BATCH_SHARE
from mm2mgr.lint.findings import (
    READER,
    RECORDS,
    Hit,
    client_edit,
    client_hit,
    describe,
    edit_hit,
    key_for,
    keys_ending,
    rule,
)
from mm2mgr.lint.hops import selection_of
from mm2mgr.lint.subject import Subject
from mm2mgr.text import whole_number

MIB = 1024 * 1024


def size(number: float) -> str:
    """Return a number of bytes with a readable unit."""
    for unit, factor in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number:.0f} bytes"


FETCH, PARTITION = "fetch.max.bytes", "max.partition.fetch.bytes"
_OF_SIZES = keys_ending(
    *("batch.size", "buffer.memory", "max.request.size", "fetch.min.bytes", "fetch.max.wait.ms", "request.timeout.ms")
)
TOPIC_BYTES = 1_048_588  # Kafka's default of message.max.bytes, twelve bytes above the producer's max.request.size


def number(subject: Subject, plain: str, client: str = RECORDS) -> int:
    """Return a setting of a client as a number, 0 when it is not a number."""
    return subject.number(client, plain) or 0


def is_above_buffer(subject: Subject, plain: str) -> bool:
    """Tell whether a setting of the record producer exceeds its buffer.memory."""
    buffer = "buffer.memory"
    return subject.is_set(RECORDS, plain, buffer) and 0 < number(subject, buffer) < number(subject, plain)


def tasks(subject: Subject) -> int:
    """Return the maximum number of tasks: at most the number of partitions where it is known."""
    count = whole_number(subject.get("tasks.max", "1")) or 1
    return min(count, partitions(subject) or count)


def partitions(subject: Subject) -> int:
    """Return how many partitions the connector mirrors, 0 when unknown."""
    counts = subject.source_kafka.partitions or {}
    return sum(counts[topic] for topic in _mirrored_topics(subject, counts))


def _mirrored_topics(subject: Subject, topics: Collection[str]) -> list[str]:
    selection = selection_of(subject) if topics else None
    return [topic for topic in topics if selection.takes(topic)] if selection else []


def fetch_of_one(subject: Subject) -> int:
    """Return the maximum bytes of a fetch of one partition where it is configured, else 0."""
    if not subject.is_set(READER, PARTITION):
        return 0
    return min(number(subject, PARTITION, READER), number(subject, FETCH, READER) or 50 * MIB)


def largest_at_source(subject: Subject) -> int:
    """Return the largest record that the mirrored topics accept, 0 when unknown."""
    kafka = subject.source_kafka
    mirrored = _mirrored_topics(subject, kafka.topic_max_message_bytes)
    return max((kafka.topic_max_message_bytes[topic] for topic in mirrored), default=kafka.message_max_bytes or 0)


def known_limit(subject: Subject) -> int | None:
    """Return the smallest record limit of the target's topics, else of its brokers; None when neither is known."""
    kafka = subject.target_kafka
    selection = selection_of(subject) if kafka.topic_max_message_bytes else None
    upstream = {topic: selection.upstream(topic) for topic in kafka.topic_max_message_bytes} if selection else {}
    limits = [
        kafka.topic_max_message_bytes[topic]
        for topic, name in upstream.items()
        if name and selection and selection.takes(name)
    ]
    return min(limits, default=kafka.message_max_bytes)


_LIVE = "tests/lint/test_seen_live_records.py::"
_LARGE_RECORDS = 5 * MIB
_TOO_MUCH_MEMORY = 8 * 1024 * MIB


@rule("batch-above-buffer", "error", "BufferPool", live=_LIVE, reads=_OF_SIZES)
def batch_above_buffer(subject: Subject) -> Iterator[Hit]:
    """A batch is larger than the memory of the producer.

    The producer allocates batch.size bytes for a batch from buffer.memory (32 MiB by default). If one batch does not
    fit, the first record fails the task with IllegalArgumentException, "Attempt to allocate 52428800 bytes, but there
    is a hard limit of 33554432 on memory allocations". The connector itself shows RUNNING. Batches above 1 MiB have no
    benefit, since a topic does not accept them. Source: BufferPool.allocate; seen with batch.size of 50 MiB.
    """
    if is_above_buffer(subject, "batch.size"):
        effect = f"({size(number(subject, 'buffer.memory'))}): every task fails at its first record"
        message = f"{describe(subject, RECORDS, 'batch.size')} is more than buffer.memory {effect}"
        yield client_hit(subject, RECORDS, "batch.size", "921600", message)


@rule("batch-above-topic", "error", "KIP-126", types=("source",), live=_LIVE)
def batch_above_topic(subject: Subject) -> Iterator[Hit]:
    """Batches are larger than the target's topics accept.

    A broker refuses a batch above the topic's max.message.bytes (1048588 by default). The producer then halves it and
    sends it again, for every batch: the state is RUNNING, the log has a WARN ("splitting and retrying") and no error,
    and the link carries data that are discarded. Seen: 17.4 MB/s on the network, 0.08 MB/s delivered. Keep batch.size
    below the smallest max.message.bytes of the target; 900 KiB fits the default. Source: KIP-126, measured on 4.3.1.
    """
    if not subject.is_set(RECORDS, "batch.size") or is_above_buffer(subject, "batch.size"):
        return
    batch, limit = subject.number(RECORDS, "batch.size"), known_limit(subject) or TOPIC_BYTES
    if batch is not None and batch >= limit:
        effect = f"({limit} bytes): full batches are refused, split and retried"
        message = f"{describe(subject, RECORDS, 'batch.size')} is more than a target topic accepts {effect}"
        right = str(int(limit * BATCH_SHARE) // 1024 * 1024 or limit // 2)
        more = ", or raise max.message.bytes of the target's topics"
        edit = client_edit(subject, RECORDS, "batch.size", right)
        yield edit_hit(subject, message, [edit], key_for(subject, RECORDS, "batch.size"), more)


@rule("request-below-records", "error", "KAFKA-4169", types=("source",), live=_LIVE)
def request_below_records(subject: Subject) -> Iterator[Hit]:
    """The source has larger records than the producer may send.

    max.request.size (1 MiB by default) is compared with the record before compression (KAFKA-4169), so a record can be
    too large even if it fits compressed. The first such record fails the task with RecordTooLargeException, again after
    every restart, and its partitions make no progress. Raise max.request.size, with buffer.memory above it, and let the
    target's topics accept such records: topic settings are synced, a broker's message.max.bytes is not.
    """
    largest = largest_at_source(subject)
    request = subject.number(RECORDS, "max.request.size") if largest else None
    if request is not None and largest > max(request, TOPIC_BYTES):
        message = (
            f"the source accepts records of up to {largest} bytes, and "
            f"{describe(subject, RECORDS, 'max.request.size')}: the first larger record fails the task, also after "
            "each restart"
        )
        yield client_hit(subject, RECORDS, "max.request.size", str(largest), message)


@rule("size-one-sided", "warning", "KIP-74", types=("source",), live=f"{_LIVE}test_request_below_records")
def size_one_sided(subject: Subject) -> Iterator[Hit]:
    """Large records are configured for reading but not for writing.

    People raise max.partition.fetch.bytes above a few MiB for large records, although a consumer reads any record
    without it (KIP-74). The producer is the limit: its max.request.size is still 1 MiB, and the first larger record
    fails the task with RecordTooLargeException. For a long link, set receive.buffer.bytes as well; then this rule
    treats the fetch size as intended.
    """
    fetch = fetch_of_one(subject)
    for_records = not subject.is_set(RECORDS, "max.request.size") and not subject.is_set(READER, "receive.buffer.bytes")
    if fetch >= _LARGE_RECORDS and for_records and not any(request_below_records(subject)):
        message = (
            f"{describe(subject, READER, PARTITION)} reads large records, but the producer still refuses records "
            f"above {number(subject, 'max.request.size')} bytes (max.request.size), which fails the task"
        )
        edit = client_edit(subject, RECORDS, "max.request.size", str(fetch))
        more = ", and let the target's topics accept such records"
        yield edit_hit(subject, message, [edit], key_for(subject, READER, PARTITION), more)


@rule("request-above-target", "warning", "KIP-382", types=("source",), live=_LIVE)
def request_above_target(subject: Subject) -> Iterator[Hit]:
    """The producer may send larger records than the target accepts.

    With max.request.size above the target's message.max.bytes or a topic's max.message.bytes the producer sends the
    record and the broker refuses it: RecordTooLargeException, task FAILED. MirrorMaker syncs max.message.bytes of
    topics where it is set, but not what a source has from its brokers' configuration (STATIC_BROKER_CONFIG is
    filtered). Raise the limit on the target, for the topics or its brokers. Not reported where batches are tuned:
    requests contain many of them.
    """
    if not subject.is_set(RECORDS, "max.request.size"):
        return
    request, limit = subject.number(RECORDS, "max.request.size"), known_limit(subject)
    if request is None or limit is None:
        return
    largest = largest_at_source(subject)
    meant_for_records = largest > limit if largest else not subject.is_set(RECORDS, "batch.size")
    if request > max(limit, TOPIC_BYTES) and meant_for_records:
        effect = "it refuses larger records, which fails the task"
        message = f"{describe(subject, RECORDS, 'max.request.size')}, but the target accepts {limit} bytes: {effect}"
        fix = f"set max.message.bytes={request} for the target's topics (or message.max.bytes of its brokers)"
        yield Hit(message, fix, key_for(subject, RECORDS, "max.request.size"))


@rule("buffer-below-request", "warning", "KafkaProducer.ensureValidRecordSize", live=_LIVE, reads=_OF_SIZES)
def buffer_below_request(subject: Subject) -> Iterator[Hit]:
    """The producer's memory is smaller than the largest record it may send.

    A record must fit into max.request.size and into buffer.memory (32 MiB by default): the producer refuses one that is
    larger than either with RecordTooLargeException, and the task is FAILED. Set buffer.memory to at least twice
    max.request.size; each task has its own buffer. Source: KafkaProducer.
    """
    if is_above_buffer(subject, "max.request.size") and not is_above_buffer(subject, "batch.size"):
        effect = f"({size(number(subject, 'buffer.memory'))}): a record larger than the buffer fails the task"
        message = f"{describe(subject, RECORDS, 'max.request.size')} is more than buffer.memory {effect}"
        edit = client_edit(subject, RECORDS, "buffer.memory", str(2 * number(subject, "max.request.size")))
        yield edit_hit(subject, message, [edit], key_for(subject, RECORDS, "max.request.size"))


@rule("fetch-min-waits", "warning", "Kafka's consumer documentation", types=("source",), live=_LIVE, reads=_OF_SIZES)
def fetch_min_waits(subject: Subject) -> Iterator[Hit]:
    """The broker delays a fetch for longer than the consumer waits.

    With fetch.min.bytes above 1 the broker delays a fetch until that much has arrived, at most for fetch.max.wait.ms.
    If that is as long as request.timeout.ms (30 s by default), the consumer disconnects first and asks again: quiet
    topics are not mirrored at all, busy ones are, and the state is RUNNING. The log has "Disconnecting from node … due
    to request timeout" at INFO. Keep fetch.max.wait.ms to a few seconds. Seen on 4.3.1.
    """
    if not subject.is_set(READER, "fetch.min.bytes"):
        return
    least, wait = subject.number(READER, "fetch.min.bytes"), subject.number(READER, "fetch.max.wait.ms")
    timeout = subject.number(READER, "request.timeout.ms")
    if least is None or wait is None or timeout is None or least <= 1 or wait < timeout:
        return
    message = (
        f"{describe(subject, READER, 'fetch.max.wait.ms')} with fetch.min.bytes={least}: the consumer disconnects "
        f"after request.timeout.ms={timeout}, before the broker answers, so quiet topics are never mirrored"
    )
    key = subject.written_key(READER, "fetch.max.wait.ms") or subject.written_key(READER, "request.timeout.ms")
    yield edit_hit(subject, message, [client_edit(subject, READER, "fetch.max.wait.ms", "500")], key)


@rule("memory-of-tasks", "warning", "Kafka's consumer and producer documentation", types=("source",))
def memory_of_tasks(subject: Subject) -> Iterator[Hit]:
    """All tasks together may need more memory than workers usually have.

    Each task may hold fetch.max.bytes of fetched records per broker (50 MiB by default) and buffer.memory (32 MiB) of
    records to send. Raised and multiplied by tasks.max, that is more than 8 GiB: after an outage, when every task has a
    backlog, workers fail with OutOfMemoryError one after the other, because the tasks of a failed worker move to the
    next. Lower fetch.max.bytes; a few MiB are enough on a short link. Seen with 50 MiB fetches in a heap of 512 MiB.
    """
    usual = {(READER, FETCH): 50 * MIB, (RECORDS, "buffer.memory"): 32 * MIB}
    raised = [
        setting
        for setting in usual
        if subject.is_set(*setting) and number(subject, setting[1], setting[0]) > usual[setting]
    ]
    if not raised:
        return
    fetch, buffer = subject.number(READER, FETCH), subject.number(RECORDS, "buffer.memory")
    total = tasks(subject) * (fetch + buffer) if fetch is not None and buffer is not None else 0
    if total > _TOO_MUCH_MEMORY:
        client, plain = raised[0]
        effect = "together, and workers run out of heap when there is a backlog"
        message = f"{describe(subject, client, plain)}: {tasks(subject)} tasks may need {size(total)} {effect}"
        yield client_hit(subject, client, plain, str(16 * MIB), message)

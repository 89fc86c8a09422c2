"""Records read without a group, log ends in bulk; and records and group offsets written, for the demo and proofs.

Reading never commits, joins a group, or goes on without bound. Writing is idempotent, acknowledged by all replicas.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import confluent_kafka
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Failures, Kafka, OffsetsRead, TopicInfo, batches, client_settings, open_client
from mm2mgr.partitions import Offsets, TopicPartition

UNKNOWN = -1
_Side: TypeAlias = confluent_kafka.TopicPartition  # with the end of its log, as asked for or answered
Message: TypeAlias = Any  # the stubs let each part be None, which no part of a consumed message is
_PARTITIONS_PER_CALL = 500  # librdkafka 2.16 searches its list for every answer: 5 000 at once cost four times as much
_CALLS_AT_ONCE = 8  # hide the way to a broker that is far
_BATCH = 1_000
_NO_RIGHT_ON_GROUP = confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
NO_GROUP = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never joined: partitions are assigned by hand
    "enable.auto.commit": False,
}
_OF_ENDS = {
    **NO_GROUP,
    "isolation.level": "read_uncommitted",
}  # the high watermark, not the end of the last transaction
_OF_RECORDS = {
    **NO_GROUP,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # an end reached over transaction markers has no record to show for it
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 8_192,
    "fetch.queue.backoff.ms": 5,  # a full queue is otherwise left alone for a second: 8 MB/s at most
}


@dataclass(frozen=True)
class Ends:
    """Start and end per watched partition in their order, UNKNOWN (-1) where not read; reason → how many."""

    start: array[int]
    end: array[int]
    failed: Mapping[str, int]


class LogEnds:
    """A lasting connection to one cluster; `timeout_seconds` bounds every single call."""

    def __init__(self, access: KafkaAccess, timeout_seconds: float = 10.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._kafka = Kafka(access, timeout_seconds)
        limits = {"socket.timeout.ms": max(1000, int(timeout_seconds * 1000))}
        settings, self._failures = client_settings(access, {**_OF_ENDS, **limits})
        self._consumer = confluent_kafka.Consumer(settings)
        self._partitions: Sequence[TopicPartition] = ()
        self._asked: tuple[list[_Side], list[_Side]] = ([], [])
        self._in_bulk = True

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()

    def topics(self) -> dict[str, TopicInfo]:
        """Return every topic that this login may see; costs far more than `read`."""
        return self._kafka.topics()

    def watch(self, partitions: Sequence[TopicPartition]) -> None:
        """Set what `read` reads."""
        self._partitions = partitions
        self._asked = _both_sides(partitions)

    def read(self) -> Ends:
        """Read all watched partitions; KafkaError only when none could be read because nothing answered."""
        if not self._partitions:
            return Ends(array("q"), array("q"), {})
        return self._read_in_bulk() if self._in_bulk else self._read_one_by_one()

    def _read_in_bulk(self) -> Ends:
        try:
            first, last = (self._answers(side) for side in self._asked)
        except confluent_kafka.KafkaException:  # one silent broker fails the call for the partitions of all others too
            return self._read_one_by_one()
        failed = Counter(self._failures.cut(partition.error.str()) for partition in last if partition.error)
        both = zip(first, last, strict=True)
        failed.update(self._failures.cut(low.error.str()) for low, high in both if low.error and not high.error)
        # A failed partition keeps the negative number that it was asked with.
        starts, ends = (
            array("q", [max(partition.offset, UNKNOWN) for partition in answers]) for answers in (first, last)
        )
        return Ends(starts, ends, failed)

    def _answers(self, asked: list[_Side]) -> list[_Side]:
        return [partition for part in _in_bulk(self._consumer, asked, self._timeout_seconds, map) for partition in part]

    def _read_one_by_one(self) -> Ends:
        read = self._kafka.read_offsets(self._partitions)
        self._in_bulk = not read.unanswered
        if read.failed and not read.found and read.unanswered:
            raise KafkaError(f"{self._kafka.access.alias}: no partition could be read")
        none = (UNKNOWN, UNKNOWN)
        bounds = [(o.start, o.end) if (o := read.found.get(partition)) else none for partition in self._partitions]
        starts, ends = (array("q", side) for side in zip(*bounds, strict=True))
        return Ends(starts, ends, Counter(read.failed.values()))


def _both_sides(partitions: Iterable[TopicPartition]) -> tuple[list[_Side], list[_Side]]:
    return _asking(confluent_kafka.OFFSET_BEGINNING, partitions), _asking(confluent_kafka.OFFSET_END, partitions)


def _asking(side: int, partitions: Iterable[TopicPartition]) -> list[_Side]:
    return [confluent_kafka.TopicPartition(*partition, side) for partition in partitions]


def _in_bulk(
    consumer: confluent_kafka.Consumer,
    asked: list[_Side],
    timeout_seconds: float,
    call: Callable[..., Iterable[list[_Side]]],
) -> Iterable[list[_Side]]:
    """Return the answers in parts; `call` is map, or that of threads."""
    parts = [asked[at : at + _PARTITIONS_PER_CALL] for at in range(0, len(asked), _PARTITIONS_PER_CALL)]
    return call(lambda part: consumer.offsets_for_times(part, timeout=timeout_seconds), parts)


def read_logs(
    kafka: Kafka, partitions: Sequence[TopicPartition], starts: Container[str] | None = None, *, committed: bool = False
) -> OffsetsRead:
    """Return log start and end per partition as `Kafka.read_offsets` does; of many at a fifth of its cost.

    `starts`: the topics whose log starts are wanted, None for all; of many others only the end is asked for, and the
    start is given as 0. `committed`: an end before open transactions. A broker gets two requests per 500 partitions, or
    one. What has no answer in bulk is asked again, for the reason.
    """
    if len(partitions) <= _PARTITIONS_PER_CALL:
        return kafka.read_offsets(partitions, committed=committed)
    limits = {"socket.timeout.ms": max(1000, int(kafka.timeout_seconds * 1000))}
    isolation = {"isolation.level": "read_committed"} if committed else {}
    consumer, _ = open_client(confluent_kafka.Consumer, kafka.access, {**_OF_ENDS, **isolation, **limits})
    read_ends: dict[TopicPartition, Offsets] = {}
    whole = [partition for partition in partitions if starts is None or partition.topic in starts]
    ends_only = [partition for partition in partitions if starts is not None and partition.topic not in starts]
    asked = (*_both_sides(whole), _asking(confluent_kafka.OFFSET_END, ends_only))
    try:
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as threads:
            first, last, others = (_in_bulk(consumer, side, kafka.timeout_seconds, threads.map) for side in asked)
            for lows, highs in zip(first, last, strict=True):
                for low, high in zip(lows, highs, strict=True):
                    if not (low.error or high.error):
                        read_ends[TopicPartition(low.topic, low.partition)] = Offsets(low.offset, high.offset)
            for highs in others:
                read_ends.update(
                    {
                        TopicPartition(high.topic, high.partition): Offsets(0, high.offset)
                        for high in highs
                        if not high.error
                    }
                )
    except confluent_kafka.KafkaException:  # one silent broker fails a call for the partitions of all others too
        pass
    finally:
        consumer.close()
    rest = kafka.read_offsets(
        [partition for partition in partitions if partition not in read_ends], committed=committed
    )
    return replace(rest, found={**read_ends, **rest.found})


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
    seen_bytes, deadline = 0, timing.now() + bounds.limit_seconds
    with consuming(access, starts) as (consume, _):
        while open_ends and seen_bytes < bounds.limit_bytes and (left := deadline - timing.now()) > 0:
            for message in consume(left):
                if fault_of(message):  # a topic deleted meanwhile is unknown, and no reason to lose the others
                    open_ends.pop(partition_of(message), None)
                    continue
                partition = _close_reached(message, open_ends)
                if message.error() is None:
                    size = _bytes_of(message)
                    count, total = sums.get(partition, (0, 0))
                    sums[partition] = (count + 1, total + size)
                    seen_bytes += size
    return {partition: total / count for partition, (count, total) in sums.items()}


_STORED_BYTES_WANTED = 8_000_000  # before compression
_STORED_BYTES_LEAST = 100_000  # below, answers that hold no records weigh too much
_STORED_PARTITIONS = 8


def stored_record_bytes(
    access: KafkaAccess,
    logs: Mapping[TopicPartition, Offsets],
    record_bytes: float,
    timeout_seconds: float = 10.0,
    partitions: int = _STORED_PARTITIONS,
) -> float | None:
    """Return what a record takes in these logs as they are stored, compression and batch headers included.

    `record_bytes` is its size before compression. Brokers send batches as they store them, so that is the bytes
    received by the records in them: with any codec within 1 % of the files on disk, and 0.1 % where more than 8 MB are
    there. The newest records of the fullest `partitions` are read, from the beginning of a batch. None where too little
    is there, or comes in time.
    """
    received, records, snapshots = 0, 0, 0
    reached: int | None = None  # how many snapshots there were when all ends were reached

    def take(text: str) -> None:
        nonlocal received, records, snapshots
        statistics = json.loads(text)
        of = (partition for topic in statistics["topics"].values() for partition in topic["partitions"].values())
        received, records = (
            sum(broker["rxbytes"] for broker in statistics["brokers"].values()),
            sum(partition["rxmsgs"] for partition in of),
        )
        snapshots += 1

    chosen = sorted(logs, key=lambda partition: (logs[partition].start - logs[partition].end, partition))[:partitions]
    window = max(1, int(_STORED_BYTES_WANTED / max(1.0, record_bytes) / max(1, len(chosen))))
    starts = {
        partition: max(logs[partition].start, logs[partition].end - window)
        for partition in chosen
        if logs[partition].end > logs[partition].start
    }
    inside = {partition: start for partition, start in starts.items() if start > logs[partition].start}
    starts |= {
        partition: start
        for partition, start in batch_starts(access, inside, timeout_seconds / 2).items()
        if start < logs[partition].end
    }
    more = {"statistics.interval.ms": 50, "stats_cb": take, "fetch.message.max.bytes": _STORED_BYTES_WANTED}
    open_ends, deadline = {partition: logs[partition].end for partition in starts}, timing.now() + timeout_seconds
    with consuming(access, starts, more) as (consume, _):
        # A count is of use once all ends are reached: then nothing is received whose records are not counted yet. The
        # first one that comes then may have waited, made while a partition of the last answer was still unpacked.
        while (reached is None or snapshots < reached + 2) and timing.now() < deadline:
            for message in consume(0.1):
                if fault_of(message):
                    return None
                _close_reached(message, open_ends)
            if reached is None and not open_ends:
                reached = snapshots
    is_known = reached is not None and snapshots >= reached + 2 and records and received >= _STORED_BYTES_LEAST
    return received / records if is_known else None


def batch_starts(
    access: KafkaAccess, positions: Mapping[TopicPartition, int], limit_seconds: float
) -> dict[TopicPartition, int]:
    """Return where a batch begins, soon behind the position in each partition; absent where none came in time.

    A broker sends whole batches, and one of them where more would be too much: behind it the client goes on.
    """
    starts: dict[TopicPartition, int] = {}

    def take(text: str) -> None:
        for topic in json.loads(text)["topics"].values():
            for of in topic["partitions"].values():
                partition = TopicPartition(topic["topic"], of["partition"])
                if partition in positions and of["rxmsgs"] and of["next_offset"] > positions[partition]:
                    starts.setdefault(partition, of["next_offset"])

    more = {"statistics.interval.ms": 50, "stats_cb": take, "fetch.message.max.bytes": 1, "queued.min.messages": 1}
    deadline = timing.now() + limit_seconds
    if positions:
        with consuming(access, positions, more) as (consume, _):
            while len(starts) < len(positions) and timing.now() < deadline:
                consume(0.05)
    return starts


def read(
    access: KafkaAccess,
    partitions: Iterable[TopicPartition],
    until: Mapping[TopicPartition, int] | None = None,
    timeout_seconds: float = 30.0,
    kafka: Kafka | None = None,
) -> Iterator[Record]:
    """Yield every committed record from log start to `until` (exclusive; default: the ends right now), in fetch order.

    KafkaError when nothing new arrives for `timeout_seconds` although an end is not reached. `kafka`: an open client to
    ask for the offsets.
    """
    distinct = list(dict.fromkeys(partitions))
    with nullcontext(kafka) if kafka else Kafka(access, timeout_seconds) as client:
        known = client.read_offsets(distinct)
    if known.failed:
        first, reason = next(iter(known.failed.items()))
        raise KafkaError(f"{access.alias}: {len(known.failed)} partitions cannot be read; {first}: {reason}")
    ends = {partition: (until or {}).get(partition, offsets.end) for partition, offsets in known.found.items()}
    open_ends = {partition: end for partition, end in ends.items() if known.found[partition].start < end}
    with consuming(access, {partition: known.found[partition].start for partition in open_ends}) as (consume, failures):
        while open_ends:
            messages = consume(timeout_seconds)
            if not messages:
                raise _stopped_short(access, open_ends, failures, timeout_seconds)
            for message in messages:
                if fault := fault_of(message):
                    raise failures.error(confluent_kafka.KafkaException(fault), "reading records", timeout_seconds)
                partition = _close_reached(message, open_ends)
                if message.error() is None and message.offset() < ends[partition]:
                    yield _record(message)


def read_whole(kafka: Kafka, partition: TopicPartition, limit_seconds: float) -> Iterator[Record]:
    """Yield every committed record of a partition, up to the end that it has now.

    KafkaError unless all of it comes within `limit_seconds`.
    """
    deadline = timing.now() + limit_seconds
    for record in read(kafka.access, [partition], timeout_seconds=limit_seconds, kafka=kafka):
        if timing.now() > deadline:
            raise KafkaError(f"{kafka.access.alias}: {partition} could not be read to its end in {limit_seconds:g} s")
        yield record


# --- the times of records: what the producer set, unless the topic has message.timestamp.type=LogAppendTime ---------

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
    deadline = timing.now() + limit_seconds
    for names in batches(list(positions), _PARTITIONS_AT_ONCE):
        waiting = {partition: positions[partition] for partition in names}
        if timing.now() >= deadline:
            break
        with consuming(access, waiting, {"fetch.message.max.bytes": _BATCH_BYTES}) as (consume, _):
            while waiting and (left := deadline - timing.now()) > 0:
                for message in consume(left):
                    partition = partition_of(message)
                    if waiting.pop(partition, None) is None or fault_of(message) or message.error():
                        continue
                    kind, stamp = message.timestamp()
                    if kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE:
                        written[partition] = stamp / 1000
    return written


def without_records(
    access: KafkaAccess,
    positions: Mapping[TopicPartition, int],
    limit_seconds: float = 10.0,
    *,
    committed: bool = False,
) -> set[TopicPartition]:
    """Return the partitions that have no record from these offsets on: their end was reached without one. Records of
    open and aborted transactions count, unless only `committed` ones do; partitions that could not be read in time are
    absent."""
    isolation = "read_committed" if committed else "read_uncommitted"
    ended: set[TopicPartition] = set()
    deadline = timing.now() + limit_seconds
    for names in batches(list(positions), _PARTITIONS_AT_ONCE):
        waiting = {partition: positions[partition] for partition in names}
        limits = {"fetch.message.max.bytes": _BATCH_BYTES, "isolation.level": isolation}
        with consuming(access, waiting, limits) as (consume, _):
            while waiting and (left := deadline - timing.now()) > 0:
                for message in consume(left):
                    error, partition = message.error(), partition_of(message)
                    if waiting.pop(partition, None) is None or error is None or fault_of(message):
                        continue
                    ended.add(partition)
    return ended


def newest_record_at(kafka: Kafka, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
    """Return the largest timestamp in each partition, in seconds since 1970; absent: it is empty, cannot be read, or
    its brokers are older than Kafka 3.0."""
    newest: dict[TopicPartition, float] = {}
    with kafka.doing("reading the newest timestamps"):
        asked = {confluent_kafka.TopicPartition(*partition): _NEWEST for partition in partitions}
        answers = kafka.admin.list_offsets(asked, request_timeout=kafka.seconds_left()) if asked else {}
        for key, future in answers.items():
            answer = kafka.unless_refused(future)
            if answer is not None and answer.timestamp is not None and answer.timestamp > 0:
                newest[TopicPartition(key.topic, key.partition)] = answer.timestamp / 1000
    return newest


# --- one consumer -----------------------------------------------------------------------------------------------------


@contextmanager
def consuming(
    access: KafkaAccess, starts: Mapping[TopicPartition, int], more: Mapping[str, object] = MappingProxyType({})
) -> Iterator[tuple[Callable[[float], list[Message]], Failures]]:
    """Read partitions from these offsets on; the function returns messages that come within some seconds."""
    consumer, failures = open_client(confluent_kafka.Consumer, access, {**_OF_RECORDS, **more})
    try:
        consumer.assign([confluent_kafka.TopicPartition(*partition, offset) for partition, offset in starts.items()])
        yield lambda seconds: _consume(consumer, seconds), failures
    finally:
        consumer.close()


def _consume(consumer: confluent_kafka.Consumer, seconds: float) -> list[Message]:
    """Return what arrives in time; the client asks for its unused group's coordinator, which may be refused."""
    end = timing.now() + seconds
    while True:
        left = max(0.0, end - timing.now())
        messages: list[Message] = consumer.consume(_BATCH, timeout=min(left, 0.2)) or consumer.consume(1, left)
        usable = [
            message for message in messages if not message.error() or message.error().code() != _NO_RIGHT_ON_GROUP
        ]
        if usable or left == 0.0:
            return usable


def partition_of(message: Message) -> TopicPartition:
    """Return the partition that a message came from."""
    return TopicPartition(message.topic(), message.partition())


def fault_of(message: Message) -> confluent_kafka.KafkaError | None:
    """Return what is wrong with a message; the end of a partition is no fault."""
    error: confluent_kafka.KafkaError | None = message.error()
    return None if error is None or error.code() == confluent_kafka.KafkaError._PARTITION_EOF else error


def _close_reached(message: Message, open_ends: dict[TopicPartition, int]) -> TopicPartition:
    """Drop the partition from `open_ends` when this record, or this end-of-partition event, reaches its end."""
    partition = partition_of(message)
    next_offset = message.offset() + (1 if message.error() is None else 0)
    if next_offset >= open_ends.get(partition, next_offset + 1):
        del open_ends[partition]
    return partition


def _stopped_short(
    access: KafkaAccess, open_ends: Mapping[TopicPartition, int], failures: Failures, timeout_seconds: float
) -> KafkaError:
    partition, end = next(iter(open_ends.items()))
    reason = f" ({failures.cut(failures.last.str())})" if failures.last else ""
    many = f"{len(open_ends)} partitions" if len(open_ends) > 1 else "one partition"
    return KafkaError(
        f"{access.alias}: no record for {timeout_seconds:g} s, {many} short of the end, such as {partition} "
        f"before offset {end}{reason}",
        hint="an open transaction or an unavailable partition leader stops readers before the end of the log",
    )


def _bytes_of(message: Message) -> int:
    headers = message.headers() or []
    return (
        len(message.key() or b"")
        + len(message.value() or b"")
        + sum(len(name.encode()) + len(value or b"") for name, value in headers)
    )


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    has_time = kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        timestamp if has_time else None,
    )


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
        self._producer, self._failures = open_client(confluent_kafka.Producer, access, extra)

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
        deadline = timing.now() + self.timeout_seconds
        while True:
            self._raise_lost()
            try:
                self._producer.produce(
                    partition[0], value, key, partition[1], on_delivery=self._on_delivery, timestamp=timestamp_ms or 0
                )
                self._producer.poll(0)
                return
            except BufferError as error:
                if timing.now() > deadline:
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

    def _on_delivery(self, error: confluent_kafka.KafkaError | None, message: Message) -> None:
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
    positions = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    consumer = None
    try:
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(sorted({partition.topic for partition in offsets}))
        deadline = timing.now() + timeout_seconds
        while len(consumer.assignment()) < len(positions):
            if timing.now() > deadline:
                raise failures.no_answer(timeout_seconds)
            consumer.poll(0.1)
        consumer.commit(offsets=positions, asynchronous=False)
    except (confluent_kafka.KafkaException, ValueError) as error:
        raise failures.error(error, f"committing offsets of group {group}", timeout_seconds) from error
    finally:
        if consumer is not None:
            consumer.close()


def read_ranges(
    access: KafkaAccess, ranges: Sequence[tuple[TopicPartition, int, int]], timeout_seconds: float = 30.0
) -> Iterator[dict[str, Any]]:
    """Yield the records with offsets from one to before another, those of aborted transactions too: topic, partition,
    offset, timestamp in milliseconds since 1970 (None: none), key, value and headers as bytes.

    KafkaError where no record comes for `timeout_seconds` before an end is reached. Deleted ones are passed over.
    """
    for partition, first, end in ranges:
        with consuming(access, {partition: first}, {"isolation.level": "read_uncommitted"}) as (consume, failures):
            last = timing.now()
            is_open = True
            while is_open:
                if timing.now() - last > timeout_seconds:
                    raise _stopped_short(access, {partition: end}, failures, timeout_seconds)
                for message in consume(1.0):
                    last = timing.now()
                    if fault := fault_of(message):
                        raise failures.error(confluent_kafka.KafkaException(fault), f"reading {partition}", 0.0)
                    if message.error() is not None or message.offset() >= end:
                        is_open = False
                        break
                    yield _whole_record(message)
                    if message.offset() + 1 >= end:
                        is_open = False
                        break


def _whole_record(message: Message) -> dict[str, Any]:
    kind, stamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else stamp,
        "key": message.key(),
        "value": message.value(),
        "headers": list(message.headers() or []),
    }

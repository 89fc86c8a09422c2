"""Sources of the loop that takes samples: Kafka itself, whose polls are one batch each, and other systems, of which
what was missed is caught up, oldest first and a bounded piece per poll.

The Kafka client has no call for log sizes (DescribeLogDirs), so `log_bytes` stays unknown here.
"""

from __future__ import annotations

import math
import operator
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from mm2mgr import timing
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka, TopicInfo
from mm2mgr.kafka.records import Ends, LogEnds, ReadLimits, mean_record_bytes
from mm2mgr.metric_sources import SourceKind
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.samples.batch import Batch, Gathered, Inventory
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.http import Http
from mm2mgr.samples.schema import AHEAD_MS, KAFKA_OFFSETS, Store
from mm2mgr.samples.store import SampleStore

_PARTITIONS_PER_TOPIC = 4  # looked at for record sizes at least: the fullest ones carry the load that sizing is about
_PARTITIONS_PER_LOOK = 400
_SHORT_LOOK = ReadLimits()
# Where few partitions are due, because a mean of 50 mixed sizes is easily a third off. Half of the bytes are planned:
# how large the records are is only guessed by then.
_LONG_LOOK = ReadLimits(records_per_partition=2_000, limit_bytes=128_000_000, limit_seconds=10.0)
_TOPICS_EVERY_SECONDS = 300.0  # describing topics costs five times as much as reading all their offsets
_LOOK_AT_MOST_EVERY_SECONDS = 60.0  # while some partition has no leader, say
_LONG_AGO = -1e9


@dataclass
class RecordSizes:
    """Decides which topics' record sizes are due; a topic without an answer stays due, but waits behind the others."""

    every_seconds: float = 600.0
    _answered_at: dict[str, float] = field(default_factory=dict)
    _asked_at: dict[str, float] = field(default_factory=dict)

    def measure(
        self, access: KafkaAccess, topics: Sequence[TopicRows], ends: Ends, within_seconds: float = 15.0
    ) -> dict[int, float]:
        """Return mean record bytes by row, for some partitions of the topics that are due, longest waiting first.

        A short look at each says how large its records are, and so how many more the bytes of a long look allow.
        `within_seconds` bounds both together, because all clusters wait for the slowest one of a round.
        """
        until = timing.now() + within_seconds
        rows = self._due(topics, ends, timing.now())
        if not rows:
            return {}
        offsets = {partition: Offsets(ends.start[row], ends.end[row]) for row, partition in rows.items()}
        sizes = mean_record_bytes(access, offsets, _ending(_SHORT_LOOK, until))
        if len(rows) < _PARTITIONS_PER_LOOK and (longer := self._longer(offsets, sizes)):
            sizes |= mean_record_bytes(access, longer, _ending(_LONG_LOOK, until))
        now = timing.now()
        self._asked_at.update({partition.topic: now for partition in offsets})
        self._answered_at.update({partition.topic: now for partition in sizes})
        return {row: sizes[partition] for row, partition in rows.items() if partition in sizes}

    def forget_others(self, topics: Sequence[TopicRows]) -> None:
        """Forget topics that are gone."""
        names = {topic for topic, *_ in topics}
        for times in (self._answered_at, self._asked_at):
            for gone in times.keys() - names:
                del times[gone]

    def _longer(
        self, looked: Mapping[TopicPartition, Offsets], sizes: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, Offsets]:
        """Choose where to read further back, and how far, so that all together stay within the bytes of a long look.

        More of fuller logs, as they carry more; but by the square root, so that a full old one does not take
        everything.
        """
        roots = {partition: math.sqrt(looked[partition].end - looked[partition].start) for partition in sizes}
        share = _LONG_LOOK.limit_bytes / 2 / max(1.0, sum(root * sizes[partition] for partition, root in roots.items()))
        longer = {}
        for partition, root in roots.items():
            records = min(int(share * root), _LONG_LOOK.records_per_partition)
            if min(records, looked[partition].end - looked[partition].start) > _SHORT_LOOK.records_per_partition:
                longer[partition] = Offsets(
                    max(looked[partition].start, looked[partition].end - records), looked[partition].end
                )
        return longer

    def _due(self, topics: Sequence[TopicRows], ends: Ends, now: float) -> dict[int, TopicPartition]:
        waiting = [rows for rows in topics if now - self._answered_at.get(rows[0], _LONG_AGO) >= self.every_seconds]
        waiting.sort(key=lambda rows: self._asked_at.get(rows[0], _LONG_AGO))
        chosen: dict[int, TopicPartition] = {}
        others: list[tuple[int, TopicPartition]] = []
        for rows in waiting:
            ordered = _fullest(rows, ends)
            chosen.update(ordered[:_PARTITIONS_PER_TOPIC])
            if len(chosen) >= _PARTITIONS_PER_LOOK:
                return chosen
            others += ordered[_PARTITIONS_PER_TOPIC:]
        return {**chosen, **dict(others[: _PARTITIONS_PER_LOOK - len(chosen)])}


TopicRows = tuple[str, int, int]
"""Where a topic's partitions are in the columns of a batch: its name, the first row, and how many there are."""


def _fullest(rows_of: TopicRows, ends: Ends) -> list[tuple[int, TopicPartition]]:
    topic, first, partitions = rows_of
    rows = range(first, first + partitions)
    filled = [row for row in rows if ends.end[row] > ends.start[row] >= 0]
    fullest = nlargest(_PARTITIONS_PER_LOOK, filled, key=lambda row: ends.end[row] - ends.start[row])
    return [(row, TopicPartition(topic, row - first)) for row in fullest]


@dataclass
class _WatchedTopics:
    """The columns of names, made once per look at the topics and shared by all batches until the next one."""

    topics: list[TopicRows]
    names: list[str]
    numbers: array[int]
    topic_ids: list[str | None]
    ends: array[int] = field(default_factory=lambda: array("q"))

    @classmethod
    def from_infos(cls, infos: dict[str, TopicInfo]) -> _WatchedTopics:
        watched = cls([], [], array("i"), [])
        for topic, info in sorted(infos.items()):
            watched.topics.append((topic, len(watched.names), info.partitions))
            watched.names += [topic] * info.partitions
            watched.topic_ids += [info.topic_id] * info.partitions
            watched.numbers.extend(range(info.partitions))
        return watched

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(*pair) for pair in zip(self.names, self.numbers, strict=True)]

    def went_back(self, ends: array[int]) -> bool:
        """Tell whether a log is shorter than last time: truncated, or of a topic created anew."""
        return len(self.ends) == len(ends) and any(map(operator.lt, ends, self.ends))


@dataclass
class KafkaReader:
    """One cluster, poll after poll: the connection is kept while it works and made anew after a failure.

    `heard` is called with the batch of each poll.
    """

    access: KafkaAccess
    accepts: Callable[[str], bool] = lambda _: True
    timeout_seconds: float = 10.0
    sizes: RecordSizes | None = None
    connect: Callable[[KafkaAccess, float], LogEnds] = LogEnds
    heard: Callable[[Batch], None] = lambda _: None
    _logs: LogEnds | None = None
    _watched: _WatchedTopics = field(default_factory=lambda: _WatchedTopics.from_infos({}))
    _looked_at: float = _LONG_AGO

    def __post_init__(self) -> None:
        self.name = self.access.alias

    def poll(self) -> Poll:
        """Read every accepted topic once; the sample time is the middle of reading the offsets."""
        try:
            self._logs = self._logs or self.connect(self.access, self.timeout_seconds)
            return self._poll(self._logs)
        except KafkaError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; the next poll makes another."""
        self._looked_at = _LONG_AGO
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _poll(self, logs: LogEnds) -> Poll:
        if timing.now() >= self._looked_at + _TOPICS_EVERY_SECONDS:
            self._look_at_topics(logs)
        ends, time_ms = _read_ends(logs)
        # A new topic of the old name must not continue the old one's series, and one that is gone is no failure.
        if self._watched.went_back(ends.end) or (
            ends.failed and timing.now() >= self._looked_at + _LOOK_AT_MOST_EVERY_SECONDS
        ):
            self._look_at_topics(logs)
            ends, time_ms = _read_ends(logs)
        self._watched.ends = ends.end
        batch = self._batch(ends, time_ms)
        self.heard(batch)
        return Poll([batch], ends.failed)

    def _look_at_topics(self, logs: LogEnds) -> None:
        topics = Inventory(self.name, logs.topics(), self.accepts).topics_to_sample()
        self._looked_at = timing.now()
        self._watched = _WatchedTopics.from_infos(topics)
        logs.watch(self._watched.partitions())
        if self.sizes:
            self.sizes.forget_others(self._watched.topics)

    def _batch(self, ends: Ends, time_ms: int) -> Batch:
        watched = self._watched
        sizes = self.sizes.measure(self.access, watched.topics, ends, self.timeout_seconds) if self.sizes else {}
        return Batch(
            self.name,
            KAFKA_OFFSETS,
            time_ms,
            watched.names,
            watched.numbers,
            watched.topic_ids,
            end_offset=ends.end,
            start_offset=ends.start,
            record_bytes=[sizes.get(row) for row in range(len(watched.names))] if sizes else None,
        )


def _ending(look: ReadLimits, until: float) -> ReadLimits:
    return replace(look, limit_seconds=min(look.limit_seconds, until - timing.now()))


def _read_ends(logs: LogEnds) -> tuple[Ends, int]:
    before_ms = time.time_ns() // 1_000_000
    ends = logs.read()
    return ends, (before_ms + time.time_ns() // 1_000_000) // 2


_ROWS_PER_POLL = 1_000_000
_TOPICS_FOR_SECONDS = 300.0
_LATE_MS = 3_600_000  # what a source that answers does not have after an hour will not come: it is not asked for again
_REACH_MS = 15 * 86_400_000


class Source(Protocol):
    """A system that can be asked for the samples of a span of time."""

    @property
    def source_prefix(self) -> str:
        """What the sources of its samples start with."""

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield what it knows of the span (since exclusive, None: only the newest, or all of a topic), oldest first."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True)
class Opening:
    """What a metric source of one cluster is opened with: how Kafka is reached, and `metrics:` as declared.

    `http` opens a session with the endpoint that is declared for this source. Where `on_spark` is set, a
    local session has this `java_home`, and its log is `log_file`. A source that appends by itself does so to `store`.
    """

    access: KafkaAccess
    metrics: object
    step_seconds: float
    http: Callable[[], Http]
    store: Store
    log_file: Path
    on_spark: bool = False
    java_home: Path | None = None

    def kafka_settings(self) -> dict[str, str]:
        """Return how librdkafka reaches the cluster."""
        return librdkafka_config(self.access)


class _SourceModule(Protocol):
    def open_source(self, opening: Opening) -> Source: ...


def open_source(kind: SourceKind, opening: Opening) -> Source:
    """Open a metric source by its line of the table."""
    return cast("_SourceModule", import_module(kind.module)).open_source(opening)


_OpenAnswer = tuple[Iterator[Gathered], int, int]
"""What a source has still to give of a span, the time before which no sample is believed, and the span's end (ms)."""


@dataclass
class MetricSourceReader:
    """Reads one cluster from one source; `back_seconds` is how much of the past a first reading takes, 0 the newest
    only."""

    access: KafkaAccess
    accepts: Callable[[str], bool]
    source: Source
    store: SampleStore
    back_seconds: float = 0.0
    timeout_seconds: float = 10.0
    _newest_ms: int | None = None
    _looked: bool = False
    _answer: _OpenAnswer | None = None
    _inventory: Inventory | None = None
    _inventory_until: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.access.alias

    def poll(self) -> Poll:
        """Return what is new since the last poll; Mm2mgrError when the source, or Kafka's metadata, cannot be read."""
        # A begun answer first: a topic comes in order of offsets, so asking anew behind the newest time would skip
        # samples.
        answer, self._answer = self._answer or self._ask(time.time_ns() // 1_000_000), None
        pieces, floor_ms, until_ms = answer
        batches: list[Batch] = []
        notes: dict[str, None] = {}
        stored = 0
        try:
            for piece in pieces:
                stored += piece.stored
                believed, doubts = _in_time(piece.batches, floor_ms, until_ms)
                batches += believed
                notes |= dict.fromkeys([*piece.notes, *doubts])
                self._newest_ms = max([self._newest_ms or 0, *(batch.time_ms for batch in believed)]) or None
                if sum(map(len, batches)) + stored >= _ROWS_PER_POLL:
                    self._answer = answer
                    return Poll(
                        batches,
                        notes=(*notes, "catching up; more samples are pending"),
                        has_more=True,
                        stored=stored,
                        lost=self._forget,
                    )
        except Mm2mgrError as error:
            if not batches and not stored:
                raise
            # What came is kept; the next poll goes on behind it.
            return Poll(batches, notes=(*notes, error.message), stored=stored, lost=self._forget)
        if self._newest_ms is not None:
            self._newest_ms = max(self._newest_ms, until_ms - _LATE_MS)
        return Poll(batches, notes=tuple(notes), stored=stored, lost=self._forget)

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    def _forget(self) -> None:
        """Go back to what the store has: the next poll asks for everything after that."""
        self._answer, self._newest_ms, self._looked = None, None, False

    def _ask(self, now_ms: int) -> _OpenAnswer:
        since_ms = self._read_since_ms(now_ms)
        pieces = self.source.gather(self._topics(), since_ms, now_ms)
        return pieces, min(since_ms or now_ms, now_ms - _REACH_MS), now_ms

    def _topics(self) -> Inventory:
        if self._inventory is None or timing.now() > self._inventory_until:
            with Kafka(self.access, self.timeout_seconds) as kafka:
                self._inventory = Inventory(self.access.alias, kafka.topics(), self.accepts)
            self._inventory_until = timing.now() + _TOPICS_FOR_SECONDS
        return self._inventory

    def _read_since_ms(self, now_ms: int) -> int | None:
        if not self._looked:
            self._newest_ms = self.store.newest_of(self.name, self.source.source_prefix, now_ms - _REACH_MS)
            self._looked = True
        if self._newest_ms is not None:
            # What a clock that was ahead left, in the store or here, must not keep everything until then out.
            self._newest_ms = min(self._newest_ms, now_ms)
        if self._newest_ms is None and self.back_seconds:
            return now_ms - round(self.back_seconds * 1000)
        return self._newest_ms


def _in_time(batches: Sequence[Batch], since_ms: int, now_ms: int) -> tuple[list[Batch], list[str]]:
    believed = [batch for batch in batches if since_ms <= batch.time_ms <= now_ms + AHEAD_MS]
    if lost := sum(map(len, batches)) - sum(map(len, believed)):
        return believed, [f"{lost} samples dropped: their time is in the future or long past"]
    return believed, []

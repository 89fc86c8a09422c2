"""Kafka itself as a source: end offsets of every wanted partition, and now and then the size of their records.

In goes one cluster, out comes a batch per poll. It keeps no offsets but the last ones, and writes nothing.
The client has no call for log sizes (DescribeLogDirs), so `log_bytes` stays unknown here.
"""

from __future__ import annotations

import operator
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Protocol

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.kafka.log_ends import Ends, LogEnds
from mm2mgr.kafka.offsets import Offsets
from mm2mgr.kafka.records import Look, mean_record_bytes
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.schema import KAFKA_OFFSETS

_PARTITIONS_PER_TOPIC = 4  # looked at for record sizes: the fullest ones carry the load that sizing is about
_PARTITIONS_PER_LOOK = 400
_TOPICS_EVERY_SECONDS = 300.0  # describing topics costs five times as much as reading all their offsets
_LOOK_AT_MOST_EVERY_SECONDS = 60.0  # while some partition has no leader, say
_LONG_AGO = -1e9


class Logs(Protocol):
    """What is asked of a connection; `kafka.log_ends.LogEnds` is the real one."""

    def topics(self) -> dict[str, TopicInfo]: ...
    def watch(self, partitions: Sequence[TopicPartition]) -> None: ...
    def read(self) -> Ends: ...
    def close(self) -> None: ...


def not_internal(topic: str) -> bool:
    """Accept every topic that is not Kafka's own."""
    return not topic.startswith("__")


@dataclass
class RecordSizes:
    """Decides which topics' record sizes are due; a topic without an answer stays due, but waits behind the others."""

    every_seconds: float = 600.0
    look: Look = field(default_factory=Look)
    _answered_at: dict[str, float] = field(default_factory=dict)
    _asked_at: dict[str, float] = field(default_factory=dict)

    def measure(self, access: KafkaAccess, topics: Sequence[TopicRows], ends: Ends) -> dict[int, float]:
        """Return mean record bytes by row, for some partitions of the topics that are due, longest waiting first."""
        rows = self._due(topics, ends, time.monotonic())
        if not rows:
            return {}
        wanted = {one: Offsets(ends.start[row], ends.end[row]) for row, one in rows.items()}
        sizes = mean_record_bytes(access, wanted, self.look)
        now = time.monotonic()
        self._asked_at.update({one.topic: now for one in wanted})
        self._answered_at.update({one.topic: now for one in sizes})
        return {row: sizes[one] for row, one in rows.items() if one in sizes}

    def forget_others(self, topics: Sequence[TopicRows]) -> None:
        """Forget topics that are gone."""
        names = {each.topic for each in topics}
        for times in (self._answered_at, self._asked_at):
            for gone in times.keys() - names:
                del times[gone]

    def _due(self, topics: Sequence[TopicRows], ends: Ends, now: float) -> dict[int, TopicPartition]:
        waiting = [t for t in topics if now - self._answered_at.get(t.topic, _LONG_AGO) >= self.every_seconds]
        waiting.sort(key=lambda each: self._asked_at.get(each.topic, _LONG_AGO))
        chosen: dict[int, TopicPartition] = {}
        for each in waiting:
            rows = range(each.first, each.first + each.partitions)
            filled = [row for row in rows if ends.end[row] > ends.start[row] >= 0]
            for row in nlargest(_PARTITIONS_PER_TOPIC, filled, key=lambda row: ends.end[row] - ends.start[row]):
                chosen[row] = TopicPartition(each.topic, row - each.first)
            if len(chosen) >= _PARTITIONS_PER_LOOK:
                break
        return chosen


@dataclass(frozen=True)
class TopicRows:
    """Where a topic's partitions stand in the columns of a batch."""

    topic: str
    first: int
    partitions: int


@dataclass
class _Watched:
    """The columns of names, made once per look at the topics and shared by all batches until the next one."""

    topics: list[TopicRows]
    names: list[str]
    numbers: array[int]
    topic_ids: list[str | None]
    ends: array[int] = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, infos: dict[str, TopicInfo]) -> _Watched:
        made = cls([], [], array("i"), [])
        for topic, info in sorted(infos.items()):
            made.topics.append(TopicRows(topic, len(made.names), info.partitions))
            made.names += [topic] * info.partitions
            made.topic_ids += [info.topic_id] * info.partitions
            made.numbers.extend(range(info.partitions))
        return made

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(*one) for one in zip(self.names, self.numbers, strict=True)]

    def went_back(self, ends: array[int]) -> bool:
        """Tell whether a log is shorter than last time: truncated, or of a topic created anew."""
        return len(self.ends) == len(ends) and any(map(operator.lt, ends, self.ends))


class KafkaReader:
    """One cluster, poll after poll: the connection is kept while it works and made anew after a failure."""

    def __init__(
        self,
        access: KafkaAccess,
        accepts: Callable[[str], bool] = not_internal,
        timeout_seconds: float = 10.0,
        sizes: RecordSizes | None = None,
        connect: Callable[[KafkaAccess, float], Logs] = LogEnds,
    ) -> None:
        self.name = access.alias
        self._access, self._accepts, self._sizes = access, accepts, sizes
        self._connect, self._timeout_seconds = connect, timeout_seconds
        self._logs: Logs | None = None
        self._watched = _Watched.of({})
        self._looked_at = _LONG_AGO

    def poll(self) -> Poll:
        """Read every accepted topic once; the sample time is the middle of reading the offsets."""
        try:
            self._logs = self._logs or self._connect(self._access, self._timeout_seconds)
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

    def _poll(self, logs: Logs) -> Poll:
        if time.monotonic() >= self._looked_at + _TOPICS_EVERY_SECONDS:
            self._look_at_topics(logs)
        ends, time_ms = _timed(logs)
        # A new topic of the old name must not continue the old one's series, and one that is gone is no failure.
        if self._watched.went_back(ends.end) or (ends.failed and self._looked_long_ago()):
            self._look_at_topics(logs)
            ends, time_ms = _timed(logs)
        self._watched.ends = ends.end
        return Poll([self._batch(ends, time_ms)], ends.failed)

    def _looked_long_ago(self) -> bool:
        return time.monotonic() >= self._looked_at + _LOOK_AT_MOST_EVERY_SECONDS

    def _look_at_topics(self, logs: Logs) -> None:
        found = logs.topics()
        self._looked_at = time.monotonic()
        self._watched = _Watched.of({name: i for name, i in found.items() if self._accepts(name) and not i.internal})
        logs.watch(self._watched.partitions())
        if self._sizes:
            self._sizes.forget_others(self._watched.topics)

    def _batch(self, ends: Ends, time_ms: int) -> Batch:
        watched = self._watched
        sizes = self._sizes.measure(self._access, watched.topics, ends) if self._sizes else {}
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


def _timed(logs: Logs) -> tuple[Ends, int]:
    before_ms = time.time_ns() // 1_000_000
    ends = logs.read()
    return ends, (before_ms + time.time_ns() // 1_000_000) // 2

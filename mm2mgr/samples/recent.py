"""The last minutes of what was sampled from Kafka, in memory: how logs grew, and how large their records are.

It reads and writes nothing.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch, Real, Whole
from mm2mgr.samples.follow import Poll, Reader

_KEPT = 12  # polls of a cluster, at most that many and a few


@dataclass(frozen=True)
class LogGrowth:
    """A partition's log: its start now, its end at an earlier time, and the mean bytes of a record (None: not known yet)."""

    start: int
    end: int
    record_bytes: float | None


@dataclass(frozen=True)
class _PolledEnds:
    """The ends of a cluster's logs at one time; `first` is the row of each topic's partition 0."""

    batch: Batch
    first: dict[str, int]

    def row(self, one: TopicPartition) -> int | None:
        row = self.first.get(one.topic, -1) + one.partition
        there = one.topic in self.first and row < len(self.batch)
        return row if there and (self.batch.topics[row], self.batch.partitions[row]) == one else None


@dataclass
class _RecentCluster:
    kept: tuple[_PolledEnds, ...] = ()  # oldest first; replaced as a whole, because other threads read it
    record_bytes: dict[str, float] = field(default_factory=dict)


class RecentLogs:
    """What was polled of every cluster in the last `horizon_seconds`; the arrays of the batches are kept as they are."""

    def __init__(self, horizon_seconds: float) -> None:
        self._horizon_ms = round(horizon_seconds * 1000)
        self._clusters: defaultdict[str, _RecentCluster] = defaultdict(_RecentCluster)

    def take(self, batch: Batch) -> None:
        """Remember one poll of a cluster."""
        cluster = self._clusters[batch.cluster]
        cluster.record_bytes.update(_sizes(batch))
        newest = cluster.kept[-1] if cluster.kept else None
        same_names = newest is not None and newest.batch.topics is batch.topics
        first = newest.first if newest is not None and same_names else _first_rows(batch.topics)
        cluster.kept = (
            *self._earlier(cluster.kept, batch.time_ms),
            _PolledEnds(replace(batch, record_bytes=None), first),
        )

    def polled_ms(self, alias: str) -> int:
        """Return when a cluster was polled last, 0 before the first time."""
        kept = self._clusters[alias].kept
        return kept[-1].batch.time_ms if kept else 0

    def growth(self, alias: str, one: TopicPartition, at_ms: int) -> LogGrowth | None:
        """Return the log of a partition as it was at a time; None where that is not known, or the topic was created anew."""
        cluster = self._clusters[alias]
        kept = cluster.kept
        earlier = next((each for each in reversed(kept) if each.batch.time_ms <= at_ms), None)
        then, now = (_log(each, one) for each in (earlier, kept[-1])) if earlier else (None, None)
        if then is None or now is None or then.topic_id != now.topic_id or now.end < then.end or now.start is None:
            return None
        return LogGrowth(now.start, then.end, cluster.record_bytes.get(one.topic))

    def _earlier(self, kept: tuple[_PolledEnds, ...], now_ms: int) -> tuple[_PolledEnds, ...]:
        """Return what stays of the polls before one: not too many, and the last one from before the horizon."""
        if len(kept) > 1 and kept[-1].batch.time_ms - kept[-2].batch.time_ms < self._horizon_ms / _KEPT:
            kept = kept[:-1]
        old = sum(each.batch.time_ms <= now_ms - self._horizon_ms for each in kept)
        kept = kept[max(0, old - 1) :]
        # Only the newest starts are asked for, and a large estate's take memory.
        return (*kept[:-1], *(_PolledEnds(replace(one.batch, start_offset=None), one.first) for one in kept[-1:]))


class Overheard:
    """A source whose polls go into the memory as well."""

    def __init__(self, reader: Reader, recent: RecentLogs) -> None:
        self.name = reader.name
        self._reader, self._recent = reader, recent

    def poll(self) -> Poll:
        """Poll the source."""
        answer = self._reader.poll()
        for batch in answer.batches:
            self._recent.take(batch)
        return answer

    def close(self) -> None:
        """Close the source."""
        self._reader.close()


@dataclass(frozen=True)
class _LogAt:
    topic_id: str | None
    start: int | None
    end: int


def _log(ends: _PolledEnds, one: TopicPartition) -> _LogAt | None:
    row, batch = ends.row(one), ends.batch
    if row is None:
        return None
    end, topic_id = _at(batch.end_offset, row), batch.topic_ids[row] if batch.topic_ids else None
    return None if end is None else _LogAt(topic_id, _at(batch.start_offset, row), end)


def _at(column: Whole | None, row: int) -> int | None:
    value = None if column is None else column[row]
    return None if value is None or value < 0 else value


def _first_rows(topics: Sequence[str]) -> dict[str, int]:
    first: dict[str, int] = {}
    for row, topic in enumerate(topics):
        first.setdefault(topic, row)
    return first


def _sizes(batch: Batch) -> dict[str, float]:
    """Return the mean of the record sizes that the batch tells, by topic."""
    known: defaultdict[str, list[float]] = defaultdict(list)
    column: Real = batch.record_bytes if batch.record_bytes is not None else array("d")
    for row, size in enumerate(column):
        if size is not None and size >= 0:
            known[batch.topics[row]].append(size)
    return {topic: sum(sizes) / len(sizes) for topic, sizes in known.items()}

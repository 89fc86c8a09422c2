"""Two snapshots of a connector's committed offsets become measurements of its tasks: what each carried while it lagged.

A commit may be a whole flush interval old (60 s by default; not available over REST). So only a commit that was seen to move is
judged, and only by records that existed well before the snapshot that still showed the earlier commit: a task without lag has
committed those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from mm2mgr.partitions import TopicPartition

_LEAST_BEHIND = 2  # one offset missing at the end of a log may be the marker of a transaction, which is never mirrored


@dataclass(frozen=True)
class Pace:
    """How often offsets are read, how late a task that keeps up may commit a record, and for how long a busy task may
    commit nothing: after a longer gap it counts as one that was down.
    """

    every_seconds: float = 60.0
    margin_seconds: float = 60.0
    gap_seconds: float = 180.0

    @classmethod
    def beside(cls, interval_seconds: float) -> Pace:
        """Return the pace beside sampling at an interval: never more than once a minute."""
        every = max(60.0, interval_seconds)
        return cls(every, gap_seconds=3 * every)


@dataclass(frozen=True)
class Log:
    """One source partition: where its log starts now, where it ended at the time asked for, and the mean bytes of its
    records (None: unknown).
    """

    start: int
    end: int
    record_bytes: float | None


@dataclass(frozen=True)
class OffsetSnapshot:
    """The offset of the last record carried, by partition: every commit made before `asked_ms` is in it, none made after
    `time_ms`.
    """

    asked_ms: int
    time_ms: int
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Step:
    """One partition's commit that moved: bytes carried since the snapshot before (None: unknown) and records behind."""

    carried_bytes: float | None
    behind_records: int


@dataclass(frozen=True)
class TaskAssignment:
    """What a running task works on, where, and under which settings: a change of any of these begins a new stretch."""

    partitions: frozenset[TopicPartition]
    worker: str
    settings: str


@dataclass(frozen=True)
class MeasuredSpan:
    """What a lagging task carried in the `span_ms` before `time_ms`; a span of 0 opens a stretch.

    `uncertain_ms`: the commit that was seen then was made up to so long before.
    """

    task: int
    settings: str
    time_ms: int
    span_ms: int
    bytes_per_second: float
    lag_records: int
    uncertain_ms: int


def judged_at_ms(before: OffsetSnapshot, pace: Pace) -> int:
    """Return when the log ends were read by which the snapshot after `before` is judged."""
    return before.asked_ms - round(pace.margin_seconds * 1000)


def steps(
    before: OffsetSnapshot, now: OffsetSnapshot, log_of: Callable[[TopicPartition], Log | None]
) -> dict[TopicPartition, Step]:
    """Return the partitions whose commits moved; `log_of` returns a log as of `judged_at_ms`, or None."""
    moved = [one for one, offset in now.committed.items() if before.committed.get(one) != offset]
    return {one: _step(before.committed.get(one), now.committed[one], log_of(one)) for one in moved}


def _step(before: int | None, now: int, log: Log | None) -> Step:
    if log is None or (before is not None and now < before):
        return Step(None, 0)
    behind = log.end - (now + 1)
    behind = behind if behind >= _LEAST_BEHIND else 0
    if before is None or log.record_bytes is None or log.start > before + 1:  # the last: jumped over, not carried
        return Step(None, behind)
    return Step((now - before) * log.record_bytes, behind)


class Stretches:
    """The lagging tasks of one connector: what each one works on, and when its last commit was seen."""

    def __init__(self, pace: Pace) -> None:
        self._gap_ms = round(pace.gap_seconds * 1000)
        self._open: dict[int, tuple[TaskAssignment, int]] = {}

    def take(
        self,
        before: OffsetSnapshot,
        now: OffsetSnapshot,
        found: Mapping[TopicPartition, Step],
        assigned: Mapping[int, TaskAssignment],
    ) -> list[MeasuredSpan]:
        """Return a measurement for each task that committed and lags; the stretches of all that changed or caught up end."""
        spans = []
        for task in self._open.keys() - assigned.keys():
            del self._open[task]
        for task, current in assigned.items():
            since_ms = self._since(task, current, now)
            mine = [found[one] for one in current.partitions if one in found]
            lag = sum(one.behind_records for one in mine)
            if not mine:
                continue
            if not lag:
                self._open.pop(task, None)
                continue
            carried = _total(mine)
            span_ms = now.time_ms - since_ms if since_ms is not None and carried is not None else 0
            rate = (carried or 0.0) / span_ms * 1000 if span_ms else 0.0
            spans.append(
                MeasuredSpan(task, current.settings, now.time_ms, span_ms, rate, lag, now.time_ms - before.asked_ms)
            )
            self._open[task] = (current, now.time_ms)
        return spans

    def rest(self, moved: Collection[TopicPartition]) -> None:
        """Note commits none of which is behind: their tasks have caught up."""
        self._open = {task: one for task, one in self._open.items() if one[0].partitions.isdisjoint(moved)}

    def end(self) -> None:
        """End all stretches: something could not be seen."""
        self._open.clear()

    def _since(self, task: int, current: TaskAssignment, now: OffsetSnapshot) -> int | None:
        """Return when the last commit of a task was seen; None when its assignment changed or it was down."""
        known, since_ms = self._open.get(task, (None, 0))
        if known == current and 0 < now.time_ms - since_ms <= self._gap_ms:  # a clock may be set back
            return since_ms
        self._open.pop(task, None)
        return None


def _total(found: list[Step]) -> float | None:
    known = [one.carried_bytes for one in found if one.carried_bytes is not None]
    return sum(known) if len(known) == len(found) else None

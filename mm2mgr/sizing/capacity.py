"""What one task can carry: measured where tasks were saturated, else computed from the link, else the default.

A task without lag says nothing about its limit, so only rates held while lagging count; and of these a low quantile,
because the best five minutes of a month are luck, and a plan has to hold in the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from mm2mgr.link import LIMITS, Forecast, Route
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Capacity
from mm2mgr.text import rate_text, span_text

SUSTAINED_SECONDS = 300.0
_LOW_QUANTILE = 0.25
"""The share of the time in which lagging tasks carried less than the measured capacity."""
RECENT_DAYS = 30
"""Older measurements count only where there is no newer one: brokers, links and records may be others by then, but a
flow that keeps up on what was measured gives no new evidence, and must not get another number for that.
"""

_LOWERING_SECONDS = 3_600.0
"""A rate that was held proves that a task can carry it, but not that it cannot carry more: a slow target for some
minutes looks the same. To count below what the link or the default says, tasks must have lagged for so long in all.
"""

_SPAN_PER_DOUBT = 10
_SPANS_PER_DOUBT = 4  # a rate is at most a fifth too low because the time of its first commit is not known exactly
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class TaskMeasurement:
    """One task at one time: what it carried since the measurement before, and how many records it was behind.

    `uncertain_seconds`: the commit that was seen may be that old.
    """

    task: str
    time_ms: int
    bytes_per_second: float
    lag_records: int
    uncertain_seconds: float = 0.0


@dataclass(frozen=True)
class Saturated:
    """What tasks carried in at least three quarters of their lag, how long that was in all, and when it ended."""

    bytes_per_second: float
    seconds: float
    ended_ms: int


def find_saturation(
    measurements: Iterable[TaskMeasurement], sustained_seconds: float = SUSTAINED_SECONDS
) -> Saturated | None:
    """Return the lower quartile of what tasks carried with lag at both ends of spans; None without long ones.

    `measurements` may come in any order; the first measurement of a stretch only opens it. A stretch is cut into spans
    that last at least so long, each of which counts by its time.
    """
    ordered = sorted(measurements, key=lambda span: (span.task, span.time_ms))
    spans = [
        span
        for (_, lags), stretch in groupby(ordered, key=lambda span: (span.task, span.lag_records > 0))
        if lags
        for span in _spans(list(stretch), sustained_seconds)
    ]
    if not spans:
        return None
    spans.sort(key=lambda span: span.bytes_per_second)
    seconds = math.fsum(span.seconds for span in spans)
    passed = accumulate(span.seconds for span in spans)
    low = next(span for span, upto in zip(spans, passed, strict=True) if upto >= _LOW_QUANTILE * seconds)
    return Saturated(low.bytes_per_second, seconds, max(span.ended_ms for span in spans))


def by_history(held: Saturated, threshold: float, now_ms: int, day: str, connector: str = "") -> Capacity:
    """Return a measured capacity with its age, and the connector it was measured on where that is another one.

    `day` is the date of the measurement: the sentence is kept in a file, where an age alone would soon be wrong.
    """
    days = max(0.0, (now_ms - held.ended_ms) / 1000) / _DAY_SECONDS
    age = f"{days:.0f} days ago" if days >= 2 else f"{days * 24:.0f} h ago"
    tasks = f"tasks of {connector}" if connector else "tasks"
    reason = (
        f"measured until {day} ({age}) on {tasks} that lagged for {span_text(held.seconds)} and carried this or more"
        " for three quarters of that time"
    )
    return Capacity(held.bytes_per_second, threshold, reason)


MeasuredCapacity = tuple[Capacity, float]
"""A measured capacity, and for how many seconds the task of its connector that lagged longest did so in all."""


def by_evidence(measured: MeasuredCapacity | None, otherwise: Capacity) -> Capacity:
    """Return the measured capacity, unless it is the lower one with little to it: then the reason has both."""
    if measured is None:
        return otherwise
    capacity, lagged_seconds = measured
    if capacity.bytes_per_second >= otherwise.bytes_per_second or lagged_seconds >= _LOWERING_SECONDS:
        return capacity
    little = (
        f"{rate_text(capacity.bytes_per_second)} {capacity.reason}, observed for less than an hour of lag, so it does"
        " not lower the estimate"
    )
    return replace(otherwise, reason=f"{otherwise.reason}; {little}" if otherwise.reason else little)


def by_hand(declared: Capacity, measured: MeasuredCapacity | None) -> Capacity:
    """Return a capacity written by hand: it stays, and the reason says what was measured."""
    if measured is None:
        return declared
    capacity, _ = measured
    return replace(declared, reason=f"set by hand; {rate_text(capacity.bytes_per_second)} {capacity.reason}")


def by_link(forecast: Forecast, route: Route, default: Capacity) -> Capacity:
    """Return what the link lets one task carry, or the default where that is less: the model knows no slow brokers.

    Nor does it size what its settings stall: `lint` reports that, and no number of tasks helps.
    """
    if forecast.stall or forecast.task >= default.bytes_per_second:
        return default
    reason = f"by the link: {route.words}, limited by {LIMITS[forecast.task_limit]}"
    return Capacity(forecast.task, default.threshold, reason)


def _spans(stretch: list[TaskMeasurement], sustained_seconds: float) -> Iterator[Saturated]:
    """Cut a stretch into spans that last long enough, the last one longer by what is left.

    What is uncertain about the first commit counts as time, so that no rate is too high; as the spans follow one
    another it is spread over all of them, and long stretches are most exact. A span has ten times that, if the stretch
    has: commits that fall on this or that side of its ends are then at most a tenth of it.
    """
    doubt = stretch[0].uncertain_seconds
    whole = (stretch[-1].time_ms - stretch[0].time_ms) / 1000
    if len(stretch) < 2 or whole < max(sustained_seconds, _SPANS_PER_DOUBT * doubt):
        return
    least = min(whole, max(sustained_seconds, _SPAN_PER_DOUBT * doubt))
    seconds = carried = 0.0
    left = whole
    for before, measurement in pairwise(stretch):
        span = (measurement.time_ms - before.time_ms) / 1000
        seconds, carried, left = seconds + span, carried + span * measurement.bytes_per_second, left - span
        if seconds >= least and (left >= least or measurement is stretch[-1]):
            yield Saturated(carried / seconds * whole / (whole + doubt), seconds, measurement.time_ms)
            seconds = carried = 0.0


_LEAST_BEHIND = 2  # one offset missing at the end of a log may be the marker of a transaction, which is never mirrored


@dataclass(frozen=True)
class Pace:
    """How often offsets are read, how late a task that keeps up may commit a record, and for how long a busy task may
    commit nothing: after a longer gap it counts as one that was down."""

    every_seconds: float = 60.0
    margin_seconds: float = 60.0
    gap_seconds: float = 180.0

    @classmethod
    def for_sampling(cls, interval_seconds: float) -> Pace:
        """Return the pace for sampling at an interval: never more than once a minute."""
        every = max(60.0, interval_seconds)
        return cls(every, gap_seconds=3 * every)


@dataclass(frozen=True)
class Log:
    """One source partition: where its log starts now, where it ended at the time asked for, and the mean bytes of its
    records (None: unknown)."""

    start: int
    end: int
    record_bytes: float | None


@dataclass(frozen=True)
class OffsetSnapshot:
    """The offset of the last record carried, by partition: every commit made before `asked_ms` is in it, none made
    after `time_ms`."""

    asked_ms: int
    time_ms: int
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Step:
    """One partition's commit that moved: bytes carried since the snapshot before (None: unknown) and records behind."""

    carried_bytes: float | None
    behind_records: int


@dataclass(frozen=True)
class TaskWork:
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
    moved = [partition for partition, offset in now.committed.items() if before.committed.get(partition) != offset]
    return {
        partition: _step(before.committed.get(partition), now.committed[partition], log_of(partition))
        for partition in moved
    }


def _step(before: int | None, now: int, log: Log | None) -> Step:
    if log is None or (before is not None and now < before):
        return Step(None, 0)
    behind = log.end - (now + 1)
    behind = behind if behind >= _LEAST_BEHIND else 0
    if before is None or log.record_bytes is None or log.start > before + 1:  # the last: jumped over, not carried
        return Step(None, behind)
    return Step((now - before) * log.record_bytes, behind)


class Stretches:
    """The lagging tasks of one connector: what each one works on, and when its last commit was seen.

    A commit may be a whole flush interval old (60 s by default; not available over REST). So only a commit that was
    seen to move is judged, and only by records that existed well before the snapshot that still showed the earlier
    commit: a task without lag has committed those.
    """

    def __init__(self, pace: Pace) -> None:
        self._gap_ms = round(pace.gap_seconds * 1000)
        self._open: dict[int, tuple[TaskWork, int]] = {}

    def take(
        self,
        before: OffsetSnapshot,
        now: OffsetSnapshot,
        step_of: Mapping[TopicPartition, Step],
        assigned: Mapping[int, TaskWork],
    ) -> list[MeasuredSpan]:
        """Return a measurement per task that committed and lags; stretches of all that changed or caught up end."""
        spans = []
        for task in self._open.keys() - assigned.keys():
            del self._open[task]
        for task, current in assigned.items():
            since_ms = self._committed_since_ms(task, current, now)
            mine = [step_of[partition] for partition in current.partitions if partition in step_of]
            lag = sum(step.behind_records for step in mine)
            if not mine:
                continue
            if not lag:
                self._open.pop(task, None)
                continue
            carried = [step.carried_bytes for step in mine if step.carried_bytes is not None]
            span_ms = now.time_ms - since_ms if since_ms is not None and len(carried) == len(mine) else 0
            rate = sum(carried) / span_ms * 1000 if span_ms else 0.0
            uncertain_ms = now.time_ms - before.asked_ms
            spans.append(MeasuredSpan(task, current.settings, now.time_ms, span_ms, rate, lag, uncertain_ms))
            self._open[task] = (current, now.time_ms)
        return spans

    def rest(self, moved: Collection[TopicPartition]) -> None:
        """Note commits none of which is behind: their tasks have caught up."""
        self._open = {task: stretch for task, stretch in self._open.items() if stretch[0].partitions.isdisjoint(moved)}

    def end(self) -> None:
        """End all stretches: something could not be seen."""
        self._open.clear()

    def _committed_since_ms(self, task: int, current: TaskWork, now: OffsetSnapshot) -> int | None:
        """Return when the last commit of a task was seen; None when its assignment changed or it was down."""
        assigned, since_ms = self._open.get(task, (None, 0))
        if assigned == current and 0 < now.time_ms - since_ms <= self._gap_ms:  # a clock may be set back
            return since_ms
        self._open.pop(task, None)
        return None

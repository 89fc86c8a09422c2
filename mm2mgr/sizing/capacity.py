"""What one task can carry: measured where tasks were saturated, else computed from the link, else the default.

A task without lag says nothing about its limit, so only rates held while lagging count; and of these a low quantile, because the
best five minutes of a month are luck, and a plan has to hold in the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from mm2mgr.defaults import connection_rate, fetching_rate
from mm2mgr.sizing.tasks import Capacity
from mm2mgr.sizing.words import rate_text

SUSTAINED_SECONDS = 300.0
LOW_QUANTILE = 0.25
"""The share of the time in which lagging tasks carried less than the measured capacity."""
RECENT_DAYS = 30
"""Older measurements count only where there is no newer one: brokers, links and records may be others by then, but a flow
that keeps up on what was measured gives no new evidence, and must not get another number for that.
"""

LOWERING_SECONDS = 3_600.0
"""A rate that was held proves that a task can carry it, but not that it cannot carry more: a slow target for some minutes
looks the same. To count below what the link or the default says, tasks must have lagged for so long in all.
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
    """What tasks carried at least in three quarters of the time that they lagged, how long that was in all, and when it ended."""

    bytes_per_second: float
    seconds: float
    ended_ms: int


@dataclass(frozen=True)
class LinkLimits:
    """A link as TCP sees it: round trip, what it carries at most (None: not a limit), and bytes in flight per connection."""

    rtt_seconds: float
    bandwidth_bytes_per_second: float | None
    window_bytes: int
    fetch_bytes: int


def saturated(
    measurements: Iterable[TaskMeasurement], sustained_seconds: float = SUSTAINED_SECONDS
) -> Saturated | None:
    """Return the lower quartile of what tasks carried while they had lag at both ends of every span; None without long stretches.

    `measurements` may come in any order; the first measurement of a stretch only opens it. A stretch is cut into spans that last at least so
    long, each of which counts by its time.
    """
    ordered = sorted(measurements, key=lambda one: (one.task, one.time_ms))
    spans = [
        span
        for _, of_task in groupby(ordered, key=lambda one: one.task)
        for stretch in _lagging(of_task)
        for span in _spans(stretch, sustained_seconds)
    ]
    if not spans:
        return None
    spans.sort(key=lambda one: one.bytes_per_second)
    seconds = math.fsum(one.seconds for one in spans)
    passed = accumulate(one.seconds for one in spans)
    low = next(one for one, upto in zip(spans, passed, strict=True) if upto >= LOW_QUANTILE * seconds)
    return Saturated(low.bytes_per_second, seconds, max(one.ended_ms for one in spans))


def by_history(held: Saturated, threshold: float, now_ms: int, day: str, connector: str = "") -> Capacity:
    """Return a measured capacity with its age, and the connector it was measured on where that is another one.

    `day` is the date of the measurement: the sentence is kept in a file, where an age alone would soon be wrong.
    """
    days = max(0.0, (now_ms - held.ended_ms) / 1000) / _DAY_SECONDS
    age = f"{days:.0f} days ago" if days >= 2 else f"{days * 24:.0f} h ago"
    tasks = f"tasks of {connector}" if connector else "tasks"
    why = f"measured until {day} ({age}) on {tasks} that lagged for {held.seconds:.0f} s and carried this or more for three quarters of that time"
    return Capacity(held.bytes_per_second, threshold, why)


@dataclass(frozen=True)
class MeasuredCapacity:
    """A measured capacity, and how long the task of its connector that lagged longest did so in all."""

    capacity: Capacity
    lagged_seconds: float


def by_evidence(measured: MeasuredCapacity | None, otherwise: Capacity) -> Capacity:
    """Return the measured capacity, except where it is the lower one and there is little to it: then the reason has both."""
    if measured is None:
        return otherwise
    found = measured.capacity
    if found.bytes_per_second >= otherwise.bytes_per_second or measured.lagged_seconds >= LOWERING_SECONDS:
        return found
    little = f"{rate_text(found.bytes_per_second)} {found.why}, observed for less than an hour of lag, so it does not lower the estimate"
    return replace(otherwise, why=f"{otherwise.why}; {little}" if otherwise.why else little)


def by_hand(declared: Capacity, measured: MeasuredCapacity | None) -> Capacity:
    """Return a capacity written by hand: it stays, and the reason says what was measured."""
    if measured is None:
        return declared
    found = measured.capacity
    return replace(declared, why=f"set by hand; {rate_text(found.bytes_per_second)} {found.why}")


def by_link(line: LinkLimits, default: Capacity) -> Capacity:
    """Return what the link lets one task carry, or the default where that is less: the model knows no slow brokers."""
    rate = link_rate(line)
    if rate >= default.bytes_per_second:
        return default
    why = f"by the link: {line.rtt_seconds * 1000:g} ms"
    if line.bandwidth_bytes_per_second:
        why += f", {rate_text(line.bandwidth_bytes_per_second)}"
    return Capacity(rate, default.threshold, why)


def link_rate(line: LinkLimits) -> float:
    """Return bytes per second of one task that fetches over the link."""
    rate = connection_rate(line.rtt_seconds, line.bandwidth_bytes_per_second, line.window_bytes)
    return fetching_rate(line.rtt_seconds, rate, line.fetch_bytes)


def _lagging(measurements: Iterable[TaskMeasurement]) -> Iterator[list[TaskMeasurement]]:
    for lags, stretch in groupby(measurements, key=lambda one: one.lag_records > 0):
        if lags:
            yield list(stretch)


def _spans(stretch: list[TaskMeasurement], sustained_seconds: float) -> Iterator[Saturated]:
    """Cut a stretch into spans that last long enough, the last one longer by what is left.

    What is uncertain about the first commit counts as time, so that no rate is too high; as the spans follow one another it
    is spread over all of them, and long stretches are most exact. A span has ten times that, if the stretch has: commits
    that fall on this or that side of its ends are then at most a tenth of it.
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

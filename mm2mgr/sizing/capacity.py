"""What one task of a link can carry: measured where a task was saturated, else by the link model, else the default.

In go moments of tasks, or a link; out comes a Capacity with its reason and age. A task that keeps up proves nothing
about its limit, so only rates count that a task held while it lagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from mm2mgr.sizing.tasks import Capacity
from mm2mgr.sizing.words import rate_text

SUSTAINED_SECONDS = 300.0
RECENT_DAYS = 30
"""Older measurements count only where there is no newer one: brokers, links and records may be others by then, but a flow
that keeps up on what was measured gives no new evidence, and must not get another number for that.
"""

LOWERING_SECONDS = 3_600.0
"""A rate that was held proves that a task can carry it, but not that it cannot carry more: a slow target for some minutes
looks the same. To count below what the link or the default says, tasks must have lagged for so long in all.
"""

_SPANS_PER_DOUBT = 4  # a rate is told at most a fifth too low for not knowing when its first commit was made
_HAND_ON_BYTES_PER_SECOND = 60e6  # how fast a worker hands a fetch on, fitted to 64 measured runs
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class TaskMoment:
    """One task at one moment: what it carried since the moment before, and how many records it was behind.

    `uncertain_seconds`: what it had carried by then was committed up to so long before `time_ms`.
    """

    task: str
    time_ms: int
    bytes_per_second: float
    lag_records: int
    uncertain_seconds: float = 0.0


@dataclass(frozen=True)
class Saturated:
    """The highest rate that one task held while it lagged, and when that ended."""

    bytes_per_second: float
    seconds: float
    ended_ms: int


@dataclass(frozen=True)
class Line:
    """A link as TCP sees it: round trip, what it carries at most (None: not a limit), and bytes in flight per connection."""

    rtt_seconds: float
    bandwidth_bytes_per_second: float | None
    window_bytes: int
    fetch_bytes: int


def saturated(moments: Iterable[TaskMoment], sustained_seconds: float = SUSTAINED_SECONDS) -> Saturated | None:
    """Return the highest rate that a task held at least so long while it had lag at both ends of every span; None without one.

    `moments` may come in any order; the rate of a stretch is weighted by time, and its first moment only opens it. What is
    uncertain about that one counts as time, so that no rate is told too high; long stretches are told most exactly.
    """
    ordered = sorted(moments, key=lambda one: (one.task, one.time_ms))
    found = [
        held
        for _, of_task in groupby(ordered, key=lambda one: one.task)
        for stretch in _lagging(of_task)
        for held in _held(stretch, sustained_seconds)
    ]
    return max(found, key=lambda one: (one.bytes_per_second, one.ended_ms), default=None)


def by_history(held: Saturated, threshold: float, now_ms: int, day: str, connector: str = "") -> Capacity:
    """Return a measured capacity with its age, and the connector it was measured on where that is another one.

    `day` is the date of the measurement: the sentence is kept in a file, where an age alone would soon be wrong.
    """
    days = max(0.0, (now_ms - held.ended_ms) / 1000) / _DAY_SECONDS
    age = f"{days:.0f} days ago" if days >= 2 else f"{days * 24:.0f} h ago"
    task = f"a task of {connector}" if connector else "a task"
    why = f"measured {day} ({age}) on {task} that lagged for {held.seconds:.0f} s"
    return Capacity(held.bytes_per_second, threshold, why)


@dataclass(frozen=True)
class MeasuredCapacity:
    """A measured capacity, and how long the task of its connector that lagged longest did so in all."""

    capacity: Capacity
    lagged_seconds: float


def by_evidence(measured: MeasuredCapacity | None, otherwise: Capacity) -> Capacity:
    """Return the measured capacity, except where it is the lower one and there is little to it: then the reason tells both."""
    if measured is None:
        return otherwise
    found = measured.capacity
    if found.bytes_per_second >= otherwise.bytes_per_second or measured.lagged_seconds >= LOWERING_SECONDS:
        return found
    little = f"{rate_text(found.bytes_per_second)} {found.why}, but less than an hour of lag in all lowers nothing"
    return replace(otherwise, why=f"{otherwise.why}; {little}" if otherwise.why else little)


def by_hand(declared: Capacity, measured: MeasuredCapacity | None) -> Capacity:
    """Return a capacity that people wrote: it stays, and the reason tells what was measured instead."""
    if measured is None:
        return declared
    found = measured.capacity
    return replace(declared, why=f"written by hand; {rate_text(found.bytes_per_second)} {found.why}")


def by_link(line: Line, default: Capacity) -> Capacity:
    """Return what the link lets one task carry, or the default where that is less: the model knows no slow brokers."""
    rate = link_rate(line)
    if rate >= default.bytes_per_second:
        return default
    why = f"by the link: {line.rtt_seconds * 1000:g} ms"
    if line.bandwidth_bytes_per_second:
        why += f", {rate_text(line.bandwidth_bytes_per_second)}"
    return Capacity(rate, default.threshold, why)


def link_rate(line: Line) -> float:
    """Return bytes per second of one task that fetches over the link: one fetch D in flight takes RTT + D/r + D/P, r = min(B, W/RTT)."""
    rtt, fetch = line.rtt_seconds, line.fetch_bytes
    rates = [line.window_bytes / rtt] if rtt > 0 else []
    rates += [line.bandwidth_bytes_per_second] if line.bandwidth_bytes_per_second else []
    wire_seconds = fetch / min(rates) if rates else 0.0
    return fetch / (rtt + wire_seconds + fetch / _HAND_ON_BYTES_PER_SECOND)


def _lagging(moments: Iterable[TaskMoment]) -> Iterator[list[TaskMoment]]:
    for lags, stretch in groupby(moments, key=lambda one: one.lag_records > 0):
        if lags:
            yield list(stretch)


def _held(stretch: list[TaskMoment], sustained_seconds: float) -> Iterator[Saturated]:
    """Yield the mean rate of each shortest span of the stretch that lasts long enough, and of twice as long ones, and so on."""
    if len(stretch) < 2:
        return
    whole_seconds = (stretch[-1].time_ms - stretch[0].time_ms) / 1000
    while sustained_seconds <= whole_seconds:
        yield from _held_for(stretch, sustained_seconds)
        sustained_seconds *= 2


def _held_for(stretch: list[TaskMoment], sustained_seconds: float) -> Iterator[Saturated]:
    seconds = [(after.time_ms - before.time_ms) / 1000 for before, after in pairwise(stretch)]
    first, length, carried = 0, 0.0, 0.0
    for last, (span, moment) in enumerate(zip(seconds, stretch[1:], strict=True)):
        length += span
        carried += span * moment.bytes_per_second
        while length - seconds[first] >= sustained_seconds and first < last:
            length -= seconds[first]
            carried -= seconds[first] * stretch[first + 1].bytes_per_second
            first += 1
        doubt = stretch[first].uncertain_seconds
        if length >= max(sustained_seconds, _SPANS_PER_DOUBT * doubt):
            yield Saturated(carried / (length + doubt), length, moment.time_ms)

"""The week of a load: hours of the week, the peak to expect in each, its growth, and when that will pass a limit.

A peak counts at its hour of the week, at the level of the newest week, and only where it came twice: one glitch adds no
task. Hours are counted since 1970, UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
WEEKS = 4
"""How far back loads are judged: each hour of the week so often, and nothing that is older."""
EPOCH_HOUR_OF_WEEK = 72
"""Hours from Monday 00:00 to the first of January 1970, a Thursday."""
WEEK_SECONDS = 3_600.0 * WEEK_HOURS
_LEAST_PAIRS = 24
_STEADY = 1.001
"""A factor per week below which nothing is forecast: a limit that is passed in some years is no date."""


@dataclass(frozen=True)
class LoadWeek:
    """The load to expect in each hour of the week, from Monday 00:00 UTC on, in the unit that it was measured in.

    `growth`: the factor from one week to the next; 1 where too little is known. `weeks`: how many were measured.
    `compared`: how many hours of the newest week the growth comes from; 0: none is known.
    """

    peaks: tuple[float, ...]
    growth: float
    weeks: int
    compared: int = 0

    @property
    def peak(self) -> float:
        """The load of the busiest hour of the week."""
        return max(self.peaks)

    def coming_peak(self, hour: int, hours: int) -> float:
        """Return the highest load from this hour on, over so many."""
        return max(self.peaks[hour_of_week(later)] for later in range(hour, hour + max(1, hours)))

    def is_off_peak(self, hour: int, share: float = 0.25) -> bool:
        """Tell whether the load of this hour is among the lowest of the week, of which there are this share."""
        return self.peaks[hour_of_week(hour)] <= sorted(self.peaks)[max(0, math.ceil(share * WEEK_HOURS) - 1)]


@dataclass(frozen=True)
class LimitPassed:
    """When a subject, such as a flow's tasks, a worker's or a partition, will pass its limit at today's growth."""

    subject: str
    share: float
    seconds: float


@dataclass(frozen=True)
class FilledHours:
    """What hours carry: `measured`, and `total` with what is expected of the time that was not; `covered` is the share
    of their time that was measured. `growth` and `compared` as of a `LoadWeek`.
    """

    measured: float
    total: float
    covered: float
    growth: float
    compared: int


def hour_of_week(hour: int) -> int:
    """Return the hour of the week of an hour since 1970; 0 is Monday 00:00 UTC."""
    return (hour + EPOCH_HOUR_OF_WEEK) % WEEK_HOURS


def week_of_load(loads: Mapping[int, float], now_hour: int) -> LoadWeek | None:
    """Return the week to expect from the load of each hour of the last four; None where no hour was measured.

    Older hours are raised to the level of the newest week where the load grew. Of the values of an hour of the week the
    second highest counts. An hour that was not measured twice takes the highest of the others, so that it gives up no
    task; only where none was, each has its one value.
    """
    ages = {hour: (now_hour - hour) // WEEK_HOURS for hour in loads if 0 <= now_hour - hour < WEEKS * WEEK_HOURS}
    if not ages:
        return None
    growth, compared = _weekly_growth({hour: loads[hour] for hour in ages}, now_hour)
    values: dict[int, list[float]] = {}
    for hour, weeks in ages.items():
        values.setdefault(hour_of_week(hour), []).append(loads[hour] * max(1.0, growth) ** weeks)
    peaks = {hour: sorted(levels)[-2] for hour, levels in values.items() if len(levels) > 1}
    peaks = peaks or {hour: level for hour, (level,) in values.items()}
    unknown = max(peaks.values())
    weeks = len(set(ages.values()))
    return LoadWeek(tuple(peaks.get(hour, unknown) for hour in range(WEEK_HOURS)), growth, weeks, compared)


def fill_hours(
    amounts: Mapping[int, float], shares: Mapping[int, float], hours: range, now_hour: int
) -> FilledHours | None:
    """Return what `hours` carry together, from what was measured in each hour and the share of it that was; None where
    nothing was measured that tells.

    Time that was not measured has the mean of the same hour of the week in the four weeks up to `now_hour`, or since
    the first of `hours`, at its own level: load grows at the factor per week of `week_of_load`. An hour of the week
    that was never measured has the mean of all others.
    """
    since = min(now_hour - WEEKS * WEEK_HOURS + 1, hours.start)
    measured_shares = {hour: share for hour, share in shares.items() if share > 0 and since <= hour <= now_hour}
    if not measured_shares:
        return None
    loads = {
        hour: amounts[hour] / share for hour, share in measured_shares.items() if now_hour - hour < WEEKS * WEEK_HOURS
    }
    growth, compared = _weekly_growth(loads, now_hour)
    by_hour: dict[int, tuple[float, float]] = {}
    for hour, share in measured_shares.items():
        amount, time = by_hour.get(hour_of_week(hour), (0.0, 0.0))
        level = growth ** ((now_hour - hour) / WEEK_HOURS)
        by_hour[hour_of_week(hour)] = amount + amounts[hour] * level, time + share
    mean = math.fsum(amount for amount, _ in by_hour.values()) / math.fsum(time for _, time in by_hour.values())
    measured, expected, covered = 0.0, 0.0, 0.0
    for hour in hours:
        share = min(1.0, shares.get(hour, 0.0))
        amount, time = by_hour.get(hour_of_week(hour), (mean, 1.0))
        measured, covered = measured + amounts.get(hour, 0.0), covered + share
        expected += (1 - share) * amount / time * growth ** ((hour - now_hour) / WEEK_HOURS)
    return FilledHours(measured, measured + expected, covered / len(hours), growth, compared)


def forecast_limits(
    shares: Iterable[tuple[str, float]], growth: float, now_seconds: float, within_weeks: float = 52.0
) -> tuple[LimitPassed, ...]:
    """Return which subjects pass their limit, soonest first; `shares`: what each has of it at the week's peak.

    One that is above its limit has passed it now. Seconds are counted since 1970.
    """
    passed = []
    for subject, share in shares:
        weeks = math.inf
        if share > 1:
            weeks = 0.0
        elif share > 0 and growth > _STEADY:
            weeks = -math.log(share) / math.log(growth)
        if weeks <= within_weeks:
            passed.append(LimitPassed(subject, share, now_seconds + weeks * WEEK_SECONDS))
    return tuple(sorted(passed, key=lambda limit: (limit.seconds, limit.subject)))


def _weekly_growth(loads: Mapping[int, float], now_hour: int) -> tuple[float, int]:
    """Return the factor per week by the same hours of the newest week and the oldest one that has enough of them, and
    how many these are."""
    for weeks in range(WEEKS - 1, 0, -1):
        ratios = [
            load / earlier
            for hour, load in loads.items()
            if now_hour - hour < WEEK_HOURS and (earlier := loads.get(hour - weeks * WEEK_HOURS, 0.0)) > 0
        ]
        if len(ratios) >= _LEAST_PAIRS:
            return float(median(ratios) ** (1 / weeks)), len(ratios)
    return 1.0, 0

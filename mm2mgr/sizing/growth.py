"""Past hours as evidence of the hours to come: gaps are filled, and hours before a growth are raised to today's level.

Growth is measured against the same hours of earlier weeks: a Monday is no growth over a Sunday. Topics that shrink keep their
rates until those hours leave the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_WEEK_HOURS = 168
_DAY_HOURS = 24
_WEEKS = 4
_LEAST_GROWTH = 1.25
"""Less is noise, and within the threshold of a task."""
_MOST_GROWTH = 10.0
"""A topic that was all but idle says nothing about how large its old peaks would be today."""
_AGREEING = 0.75
"""The share of the newest day's hours that must have grown: a burst of some hours is no growth."""
_LEAST_PAIRS = 3
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True)
class TopicGrowth:
    """How many times as much as so many weeks ago a topic carries at the same hours."""

    factor: float
    weeks: int


def filled(table: Any, hours: Sequence[int]) -> None:
    """Fill unknown hours (NaN) of partitions × hours: with the partition's mean at this hour of the day, else its mean.

    `hours` are counted since 1970. A row that is unknown throughout stays so.
    """
    rows = np.flatnonzero(np.isnan(table.sum(axis=1)))
    if not len(rows):
        return
    some, of_day = table[rows], np.asarray(hours) % _DAY_HOURS
    missing = np.isnan(some)
    whole = _means(some, missing)
    for hour in np.unique(of_day):
        columns = np.flatnonzero(of_day == hour)
        means = _means(some[:, columns], missing[:, columns])
        means = np.where(np.isnan(means), whole, means)
        some[:, columns] = np.where(missing[:, columns], means[:, None], some[:, columns])
    table[rows] = some


def levelled(table: Any, topics: Any, hours: Sequence[int]) -> dict[int, TopicGrowth]:
    """Raise older hours of topics that grew to today's level, in place; return those topics with their growth.

    `topics` numbers the topic of each row, in blocks of one topic; `hours`, counted since 1970, go up. Each topic's newest day
    is compared with the same hours one, two and three weeks earlier. It has grown where three quarters of these hours did, by a
    quarter or more; the median is the factor. The days of the newest week are compared with those a week before each, so that what has
    risen already is not raised again. With less than eight days of history nothing is compared: the newest day is enough of it.
    """
    found: dict[int, TopicGrowth] = {}
    if not len(table):
        return found
    age = int(hours[-1]) - np.asarray(hours)
    if age[0] < _WEEK_HOURS:
        return found
    column = {int(one): place for place, one in enumerate(age)}
    starts = np.flatnonzero(np.diff(topics, prepend=-1))
    ends = np.append(starts[1:], len(table))
    first = 0
    while first < len(starts):
        last = first + max(1, int(np.searchsorted(ends[first:], starts[first] + _ROWS_AT_ONCE, "right")))
        low = starts[first]
        block = table[low : ends[last - 1]]
        sums = np.add.reduceat(np.nan_to_num(block), starts[first:last] - low, axis=0, dtype=np.float64)
        factors, growths = _factors(sums, age, column)
        for place in np.flatnonzero(growths[0] > 1):
            block[starts[first + place] - low : ends[first + place] - low] *= factors[place].astype(table.dtype)
            number = int(topics[starts[first + place]])
            found[number] = TopicGrowth(float(growths[0][place]), int(growths[1][place]))
        first = last
    return found


def _factors(sums: Any, age: Any, column: dict[int, int]) -> tuple[Any, tuple[Any, Any]]:
    """Return by topic and hour what to multiply by, and the greatest growth of each topic with its weeks."""
    factors = np.ones((len(sums), len(age)))
    best, weeks = np.ones(len(sums)), np.zeros(len(sums), np.int64)
    for week in range(1, _WEEKS):
        median, low = _ratios(sums, column, 0, week)
        grown = np.where(low >= _LEAST_GROWTH, np.minimum(median, _MOST_GROWTH), 1.0)
        factors[:, (age >= week * _WEEK_HOURS) & (age < (week + 1) * _WEEK_HOURS)] = grown[:, None]
        better = grown > best
        best, weeks = np.where(better, grown, best), np.where(better, week, weeks)
        if week == 1:
            for day in range(1, _WEEK_HOURS // _DAY_HOURS):
                risen = np.maximum(_ratios(sums, column, day, 1)[0], 1.0)
                left = np.where(grown / risen >= _LEAST_GROWTH, grown / risen, 1.0)
                factors[:, age // _DAY_HOURS == day] = left[:, None]
    return factors, (best, weeks)


def _ratios(sums: Any, column: dict[int, int], day: int, weeks: int) -> tuple[Any, Any]:
    """Return median and lower quartile of a day's hours over those some weeks before; 1 where too few can be compared."""
    ages = range(day * _DAY_HOURS, (day + 1) * _DAY_HOURS)
    pairs = [
        (column[one], column[one + weeks * _WEEK_HOURS])
        for one in ages
        if one in column and one + weeks * _WEEK_HOURS in column
    ]
    if len(pairs) < _LEAST_PAIRS:
        return np.ones(len(sums)), np.ones(len(sums))
    now, then = (sums[:, list(places)] for places in zip(*pairs, strict=True))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.sort(np.where((now == 0) & (then == 0), 1.0, now / then), axis=1)
    count = len(pairs)
    return ratios[:, count // 2], ratios[:, int((1 - _AGREEING) * count)]


def _means(values: Any, missing: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(missing, 0, values).sum(axis=1) / (~missing).sum(axis=1)

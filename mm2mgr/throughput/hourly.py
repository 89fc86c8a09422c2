"""Rates hour by hour: of partitions, topics, flows and whole weeks, and the hours that sizing judges.

Percentiles of a sum are not the sum of percentiles: a group has the mean (exact), the busiest hour (exact) and the sum
of the partitions' p95. Within an hour the roll-ups do not show whether peaks of partitions coincide. Topics of one
producer mostly peak together, so for sizing the p95 (or maximum) of each partition within the hour stands for the whole
hour, and the mean where that is more, as it is for a burst of less than three minutes. This counts too much for
partitions that take turns within an hour, never too little for those that take turns from hour to hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from mm2mgr.partitions import Statistic
from mm2mgr.samples.schema import HOUR_MS, Store, hour_start_ms
from mm2mgr.samples.tables import DataFile, StoredTable
from mm2mgr.throughput.rollup import PartitionNames, no_names, read_rows, throughput_table
from mm2mgr.throughput.windows import Throughput, Window, last_hours, record_sizes
from mm2mgr.weeks import WEEK_HOURS, WEEK_SECONDS, WEEKS

if TYPE_CHECKING:
    from mm2mgr.throughput.rollup import Array

WEEKS_SECONDS = WEEKS * WEEK_SECONDS
"""How far back sizing looks by default: each hour of the week four times, and nothing that is older."""

_CELLS = 50_000_000  # partitions × hours held at once, 200 MB; a large estate is judged by fewer hours of each week
_STRIDES = (1, 5, 7, 11, 13, 17, 19, 23)  # no divisor of 24, so that every hour of the day is among the hours of a week
_HOURS_FOR_SIZES = 12  # spread over the window: record sizes change slowly
_QUIET_HOURS = 4


@dataclass(frozen=True)
class HourlyRates:
    """Bytes per second of partitions × hours, NaN where unknown: row i is the partition at `place[i]` of `names`.

    `hours` are counted since 1970, oldest first, `record_bytes` the mean record size of each row (NaN: unknown),
    `first_ms` and `last_ms` when the oldest and newest samples were taken.
    """

    names: PartitionNames
    place: Array
    hours: tuple[int, ...]
    table: Array
    record_bytes: Array
    first_ms: int
    last_ms: int


@dataclass(frozen=True)
class GroupRate:
    """What the partitions of a topic or a flow carry together, in bytes per second; None where nothing is known.

    `bytes_per_second_p95_sum` adds up the p95 of the partitions, whenever each has it; sizing plans with what they
    carry at the same time. `by_hour` are the means of single hours, oldest first; `busiest_hour` is one of them, such
    as 2026-11-21T10 (UTC).
    """

    name: str
    cluster: str
    partitions: int
    bytes_per_second_mean: float | None
    bytes_per_second_p95_sum: float | None
    bytes_per_second_busiest_hour: float | None
    busiest_hour: str | None
    by_hour: tuple[float | None, ...]


@dataclass(frozen=True)
class WeekPattern:
    """Mean bytes per second by day of week (Monday first) and hour of day (UTC), None where nothing was measured.

    `peak` is (day, hour) of the busiest cell; `quiet` the first and the last-exclusive hour of day of the four hours in
    a row with the least load, None unless they are measured.
    """

    bytes_per_second: tuple[tuple[float | None, ...], ...]
    peak: tuple[int, int] | None
    quiet: tuple[int, int] | None


@dataclass(frozen=True)
class WeeklyGrowth:
    """Mean bytes per second of a topic in the newest 168 hours of a window and in the 168 before, None where nothing
    was measured, and the one as a multiple of the other."""

    cluster: str
    topic: str
    bytes_per_second_before: float | None
    bytes_per_second_now: float | None
    growth: float | None


def hourly_rates(store: Store, window_seconds: float | None, statistic: Statistic) -> HourlyRates:
    """Read the hours of the last weeks, or of a window; Mm2mgrError where nothing was rolled up."""
    table = throughput_table(store)
    window = last_hours(store, WEEKS_SECONDS if window_seconds is None else window_seconds)
    names = _names(table, window)
    chosen = _thin_hours(window.hours, len(names))
    size = record_sizes(store, window.only(chosen[:: -(-len(chosen) // _HOURS_FOR_SIZES)]), names)
    rates = np.full((len(names), len(chosen)), np.nan, np.float32)
    for column, hour in enumerate(chosen):
        rates[:, column] = _hour(table, window.files_of([hour]), names, size, statistic)
    rated = np.flatnonzero(np.isfinite(rates).any(axis=1))
    if len(rated) < len(rates):
        rates = rates[rated]
    ends = [_ends(table, window.files_of([hour])) for hour in (window.hours[0], window.hours[-1])]
    return HourlyRates(names, rated, tuple(map(_number, chosen)), rates, size[rated], ends[0][0], ends[1][1])


def _names(table: StoredTable, window: Window) -> PartitionNames:
    names = no_names()
    for hour in window.hours:
        rows = read_rows(table, window.files_of([hour]), ())
        if (names.places(rows) < 0).any():
            names = names.with_rows(rows)
    return names


def _ends(table: StoredTable, files: Sequence[DataFile]) -> tuple[int, int]:
    rows = read_rows(table, files, ("first_ms", "last_ms")).values
    return int(rows["first_ms"].min(initial=2**62)), int(rows["last_ms"].max(initial=0))


def _hour(
    table: StoredTable, files: Sequence[DataFile], names: PartitionNames, size: Array, statistic: Statistic
) -> Array:
    inner = [] if statistic == "mean" else [f"bytes_{statistic}", f"records_{statistic}"]
    roll_up = read_rows(table, files, ("covered_ms", "records", "bytes", *inner))
    rows, place = roll_up.values, names.places(roll_up)
    sized, size = np.isfinite(rows["bytes"]), np.append(size, np.nan)[place]
    volume = np.where(sized, rows["bytes"], rows["records"] * size)
    has_volume = np.isfinite(volume) & (rows["covered_ms"] > 0) & (place >= 0)
    at, seconds = place[has_volume], rows["covered_ms"][has_volume] / 1000
    sums, times = (np.bincount(at, values, len(names)) for values in (volume[has_volume], seconds))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / times
    if inner:
        peak = np.where(sized, rows[inner[0]], rows[inner[1]] * size)[has_volume]
        if statistic == "p50":  # of several logs or sources in one hour no median is known: the mean is taken instead
            alone = np.bincount(at, minlength=len(names))[at] == 1
            at, peak = at[alone], peak[alone]
            mean[at] = np.where(np.isfinite(peak), peak, mean[at])
        else:
            np.fmax.at(mean, at, peak)
    return mean


def _thin_hours(hours: Sequence[str], partitions: int) -> list[str]:
    """Keep hours so that the table fits in memory: the same hours of every week, so that weeks can be compared."""
    most = max(1, _CELLS // max(1, partitions))
    for stride in _STRIDES:
        chosen_hours = [hour for hour in hours if _number(hour) % WEEK_HOURS % stride == 0]
        if chosen_hours and len(chosen_hours) <= most:
            break
    return chosen_hours or list(hours[-1:])


def _number(hour: str) -> int:
    return hour_start_ms(hour) // HOUR_MS


def hourly(store: Store, window: Window, throughput: Throughput) -> Array:
    """Return bytes per second of every hour: an array of partitions × hours, NaN where nothing is known.

    Partitions that a job has added since `found` was read are left out.
    """
    table, size = throughput_table(store), throughput.values["record_bytes"]
    columns = [_hour(table, window.files_of([hour]), throughput.names, size, "mean") for hour in window.hours]
    return np.array(columns).reshape(len(window.hours), len(throughput)).T


def by_topic(throughput: Throughput, hourly: Array) -> list[GroupRate]:
    """Add up the partitions of every topic of every cluster, busiest topic first."""
    names, place = throughput.names, throughput.place
    key = names.cluster[place] * max(len(names.topics), 1) + names.topic[place]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    topics = [names.topics[number] for number in names.topic[place[first]].tolist()]
    clusters = [names.clusters[number] for number in names.cluster[place[first]].tolist()]
    return _add_up(list(zip(topics, clusters, strict=True)), np.arange(len(throughput)), group, throughput, hourly)


def by_flow(
    throughput: Throughput, hourly: Array, flows: Iterable[tuple[str, str, Callable[[str], bool]]]
) -> list[GroupRate]:
    """Add up the partitions that every flow carries, given as (id, source alias, carries); a flow may have none."""
    flows = list(flows)
    rows = [members(throughput, alias, carries) for _, alias, carries in flows]
    group = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    labels = [(name, alias) for name, alias, _ in flows]
    return _add_up(labels, np.concatenate([np.zeros(0, np.int64), *rows]), group, throughput, hourly)


def members(throughput: Throughput, alias: str, carries: Callable[[str], bool]) -> Array:
    """Return the rows of the partitions of a cluster whose topics are accepted."""
    names, place = throughput.names, throughput.place
    if alias not in names.clusters:
        return np.zeros(0, np.int64)
    inside = names.cluster[place] == names.clusters.index(alias)
    accepted = np.zeros(len(names.topics) or 1, np.bool_)
    for topic in np.unique(names.topic[place][inside]).tolist():
        accepted[topic] = carries(names.topics[topic])
    return np.flatnonzero(inside & accepted[names.topic[place]])


def topic_growth(topics: Sequence[GroupRate], hours: Sequence[str]) -> list[WeeklyGrowth]:
    """Compare the newest week of topics with the week before, hour by hour of `hours`; fastest growth first."""
    numbers = np.array([_number(hour) for hour in hours[len(hours) - len(topics[0].by_hour) :]] if topics else [])
    rates = np.array([[np.nan if rate is None else rate for rate in topic.by_hour] for topic in topics])
    rates = rates.reshape(len(topics), len(numbers))
    measured = np.isfinite(rates)
    newest = numbers[measured.any(axis=0)].max(initial=0)
    weeks = (newest - numbers) // WEEK_HOURS
    with np.errstate(invalid="ignore", divide="ignore"):
        now, before = (
            np.where(measured, rates, 0.0)[:, weeks == age].sum(axis=1) / measured[:, weeks == age].sum(axis=1)
            for age in (0, 1)
        )
        growth = np.where(before > 0, now / before, np.nan)
    columns = zip(topics, before.tolist(), now.tolist(), growth.tolist(), measured.any(axis=1).tolist(), strict=True)
    answers = [
        WeeklyGrowth(topic.cluster, topic.name, *map(_finite, numbers))
        for topic, *numbers, has_rate in columns
        if has_rate
    ]
    return sorted(answers, key=lambda topic: (-(topic.growth or 0.0), topic.cluster, topic.topic))


def week_pattern(throughput: Throughput, hourly: Array) -> WeekPattern:
    """Average the load of everything by day of week and hour of day (UTC), and find the peak and the quietest hours."""
    loads = _sum(hourly)
    sums, counts = np.zeros((7, 24)), np.zeros((7, 24))
    for hour, load in zip(throughput.window.hours, loads.tolist(), strict=True):
        moment = datetime.fromtimestamp(hour_start_ms(hour) / 1000, UTC)
        if not math.isnan(load):
            sums[moment.weekday(), moment.hour] += load
            counts[moment.weekday(), moment.hour] += 1
    with np.errstate(invalid="ignore"):
        cells = sums / counts
        by_hour = sums.sum(axis=0) / counts.sum(axis=0)
    table = tuple(_all(day) for day in cells.tolist())
    if np.isnan(cells).all():
        return WeekPattern(table, None, None)
    day, hour_of_day = divmod(int(np.nanargmax(cells)), 24)
    around = np.array([by_hour[[(start + step) % 24 for step in range(_QUIET_HOURS)]].mean() for start in range(24)])
    quiet = None if np.isnan(around).all() else int(np.nanargmin(around))
    return WeekPattern(table, (day, hour_of_day), None if quiet is None else (quiet, (quiet + _QUIET_HOURS) % 24))


def _add_up(
    labels: Sequence[tuple[str, str]], rows: Array, group: Array, throughput: Throughput, hourly: Array
) -> list[GroupRate]:
    count = len(labels)

    def sums(rates: Array) -> Array:
        """Add up by group; NaN only where none of them is known."""
        rates = rates[rows]
        has_rate = np.isfinite(rates)
        total = np.bincount(group, np.where(has_rate, rates, 0.0), count)
        return np.where(np.bincount(group, has_rate, count) > 0, total, np.nan)

    hours = np.array([sums(column) for column in hourly.T]).reshape(hourly.shape[1], count)
    window = throughput.window.hours[len(throughput.window.hours) - len(hours) :]
    columns = zip(
        labels,
        np.bincount(group, minlength=count).tolist(),
        sums(throughput.values["bytes_per_second_mean"]).tolist(),
        sums(throughput.values["bytes_per_second_p95"]).tolist(),
        hours.T.tolist(),
        strict=True,
    )
    groups = [
        GroupRate(name, cluster, partitions, _finite(mean), _finite(planned), *_peak(loads, window), _all(loads))
        for (name, cluster), partitions, mean, planned, loads in columns
    ]
    return sorted(groups, key=lambda load: (-(load.bytes_per_second_p95_sum or 0.0), load.cluster, load.name))


def _peak(loads: Sequence[float], hours: Sequence[str]) -> tuple[float | None, str | None]:
    known_loads = [(load, -place) for place, load in enumerate(loads) if not math.isnan(load)]
    if not known_loads:
        return None, None
    load, place = max(known_loads)  # the first of equals
    return load, hours[-place]


def _all(loads: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(_finite(load) for load in loads)


def _sum(rates: Array) -> Array:
    has_rate = np.isfinite(rates)
    return np.where(has_rate.any(axis=0), np.where(has_rate, rates, 0.0).sum(axis=0), np.nan)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value

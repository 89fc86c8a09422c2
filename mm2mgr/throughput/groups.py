"""Throughput of topics, flows and whole weeks: partitions added up, hour by hour.

In go a window's Throughput and its hourly rates, out come plain values. Percentiles of a sum are not the sum of
percentiles: what is given is the mean (exact), the busiest hour (exact) and the sum that sizing plans with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mm2mgr.samples.schema import hour_start_ms
from mm2mgr.throughput.rates import GroupRate, WeekPattern
from mm2mgr.throughput.windows import Throughput

_QUIET_HOURS = 4


def by_topic(found: Throughput, hourly: Any) -> list[GroupRate]:
    """Add up the partitions of every topic of every cluster, busiest topic first."""
    names, place = found.names, found.place
    key = names.cluster[place] * max(len(names.topics), 1) + names.topic[place]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    ends = np.append(starts[1:], len(key))
    groups = [
        _added(
            f"{names.topics[names.topic[place[start]]]}",
            names.clusters[names.cluster[place[start]]],
            rows,
            found,
            hourly,
        )
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        for rows in [slice(start, end)]
    ]
    return _busiest_first(groups)


def by_flow(found: Throughput, hourly: Any, flows: Iterable[tuple[str, str, Callable[[str], bool]]]) -> list[GroupRate]:
    """Add up the partitions that every flow carries, given as (id, source alias, carries); a flow may have none."""
    groups = []
    for name, alias, carries in flows:
        rows = members(found, alias, carries)
        groups.append(_added(name, alias, rows, found, hourly))
    return _busiest_first(groups)


def members(found: Throughput, alias: str, carries: Callable[[str], bool]) -> Any:
    """Return the rows of the partitions of a cluster whose topics are accepted."""
    names, place = found.names, found.place
    if alias not in names.clusters:
        return np.zeros(0, np.int64)
    inside = names.cluster[place] == names.clusters.index(alias)
    accepted = np.zeros(len(names.topics) or 1, np.bool_)
    for topic in np.unique(names.topic[place][inside]).tolist():
        accepted[topic] = carries(names.topics[topic])
    return np.flatnonzero(inside & accepted[names.topic[place]])


def week_pattern(found: Throughput, hourly: Any) -> WeekPattern:
    """Average the load of everything by day of week and hour of day (UTC), and find the peak and the quietest hours."""
    loads = _sum(hourly)
    sums, counts = np.zeros((7, 24)), np.zeros((7, 24))
    for hour, load in zip(found.window.hours, loads.tolist(), strict=True):
        moment = datetime.fromtimestamp(hour_start_ms(hour) / 1000, UTC)
        if not math.isnan(load):
            sums[moment.weekday(), moment.hour] += load
            counts[moment.weekday(), moment.hour] += 1
    with np.errstate(invalid="ignore"):
        cells = sums / counts
        by_hour = sums.sum(axis=0) / counts.sum(axis=0)
    table = tuple(tuple(_known(value) for value in day) for day in cells.tolist())
    if np.isnan(cells).all():
        return WeekPattern(table, None, None)
    day, hour_of_day = divmod(int(np.nanargmax(cells)), 24)
    around = np.array([by_hour[[(start + step) % 24 for step in range(_QUIET_HOURS)]].mean() for start in range(24)])
    quiet = None if np.isnan(around).all() else int(np.nanargmin(around))
    return WeekPattern(table, (day, hour_of_day), None if quiet is None else (quiet, (quiet + _QUIET_HOURS) % 24))


def _added(name: str, cluster: str, rows: Any, found: Throughput, hourly: Any) -> GroupRate:
    hours = _sum(hourly[rows])
    known = np.isfinite(hours)
    mean = _sum(found.values["bytes_per_second_mean"][rows][:, None])
    planned = _sum(found.values["bytes_per_second_p95"][rows][:, None])
    peak = int(np.nanargmax(hours)) if known.any() else None
    return GroupRate(
        name,
        cluster,
        len(found.place[rows]),
        _known(float(mean[0])),
        _known(float(planned[0])),
        None if peak is None else float(hours[peak]),
        None if peak is None else found.window.hours[len(found.window.hours) - hourly.shape[1] + peak],
        tuple(_known(value) for value in hours.tolist()),
    )


def _sum(rates: Any) -> Any:
    """Add up the rows; NaN only where none of them is known."""
    known = np.isfinite(rates)
    return np.where(known.any(axis=0), np.where(known, rates, 0.0).sum(axis=0), np.nan)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _busiest_first(groups: Sequence[GroupRate]) -> list[GroupRate]:
    return sorted(groups, key=lambda one: (-(one.bytes_per_second_p95_sum or 0.0), one.cluster, one.name))

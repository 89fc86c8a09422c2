"""Throughput of topics, flows and whole weeks: partitions added up, hour by hour.

Percentiles of a sum are not the sum of percentiles: a group has the mean (exact), the busiest hour (exact) and the sum of the partitions' p95.
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
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    topics = [names.topics[number] for number in names.topic[place[first]].tolist()]
    clusters = [names.clusters[number] for number in names.cluster[place[first]].tolist()]
    return _added(list(zip(topics, clusters, strict=True)), np.arange(len(found)), group, found, hourly)


def by_flow(found: Throughput, hourly: Any, flows: Iterable[tuple[str, str, Callable[[str], bool]]]) -> list[GroupRate]:
    """Add up the partitions that every flow carries, given as (id, source alias, carries); a flow may have none."""
    flows = list(flows)
    rows = [members(found, alias, carries) for _, alias, carries in flows]
    group = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    labels = [(name, alias) for name, alias, _ in flows]
    return _added(labels, np.concatenate([np.zeros(0, np.int64), *rows]), group, found, hourly)


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
    table = tuple(_all(day) for day in cells.tolist())
    if np.isnan(cells).all():
        return WeekPattern(table, None, None)
    day, hour_of_day = divmod(int(np.nanargmax(cells)), 24)
    around = np.array([by_hour[[(start + step) % 24 for step in range(_QUIET_HOURS)]].mean() for start in range(24)])
    quiet = None if np.isnan(around).all() else int(np.nanargmin(around))
    return WeekPattern(table, (day, hour_of_day), None if quiet is None else (quiet, (quiet + _QUIET_HOURS) % 24))


def _added(labels: Sequence[tuple[str, str]], rows: Any, group: Any, found: Throughput, hourly: Any) -> list[GroupRate]:
    """Add up the rows of every group, given with names and clusters; busiest first."""
    count = len(labels)

    def sums(rates: Any) -> Any:
        """Add up by group; NaN only where none of them is known."""
        rates = rates[rows]
        known = np.isfinite(rates)
        total = np.bincount(group, np.where(known, rates, 0.0), count)
        return np.where(np.bincount(group, known, count) > 0, total, np.nan)

    hours = np.array([sums(column) for column in hourly.T]).reshape(hourly.shape[1], count)
    window = found.window.hours[len(found.window.hours) - len(hours) :]
    columns = zip(
        labels,
        np.bincount(group, minlength=count).tolist(),
        sums(found.values["bytes_per_second_mean"]).tolist(),
        sums(found.values["bytes_per_second_p95"]).tolist(),
        hours.T.tolist(),
        strict=True,
    )
    return _busiest_first(
        [
            GroupRate(name, cluster, partitions, _known(mean), _known(planned), *_peak(loads, window), _all(loads))
            for (name, cluster), partitions, mean, planned, loads in columns
        ]
    )


def _peak(loads: Sequence[float], hours: Sequence[str]) -> tuple[float | None, str | None]:
    known = [(load, -place) for place, load in enumerate(loads) if not math.isnan(load)]
    if not known:
        return None, None
    load, place = max(known)  # the first of equals
    return load, hours[-place]


def _all(loads: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(_known(load) for load in loads)


def _sum(rates: Any) -> Any:
    """Add up the rows; NaN only where none of them is known."""
    known = np.isfinite(rates)
    return np.where(known.any(axis=0), np.where(known, rates, 0.0).sum(axis=0), np.nan)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _busiest_first(groups: Sequence[GroupRate]) -> list[GroupRate]:
    return sorted(groups, key=lambda one: (-(one.bytes_per_second_p95_sum or 0.0), one.cluster, one.name))

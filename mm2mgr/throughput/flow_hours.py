"""Bytes per second that the sources of flows got, hour by hour, from roll-ups alone.

A day is read once: it is read again where the table has other files of it, or a flow carries other topics.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mm2mgr.samples.schema import HOUR_MS, Store, day_of, hour_start_ms
from mm2mgr.samples.tables import by_period
from mm2mgr.throughput.rollup import throughput_table
from mm2mgr.throughput.topic_hours import read_topic_hours

_LEAST_COVERED = 0.1  # of an hour, for a rate to stand for it
_DAYS_KEPT = 64
_HOUR_SECONDS = 3600.0
_DAY_HOURS = 24


@dataclass(frozen=True)
class TopicChoice:
    """A flow: its id, the alias of its source, and the topics that it carries, as a text that is the same for the same
    topics and as a function."""

    flow: str
    source: str
    topics: str
    takes: Callable[[str], bool] = field(compare=False, repr=False)


def read_flow_bytes(
    store: Store, flows: tuple[TopicChoice, ...], now_ms: int, days: int
) -> Mapping[str, Mapping[int, float]]:
    """Return bytes per second by flow and hour since 1970, of the last days, without hours of which nothing is known.

    Mm2mgrError where a roll-up cannot be read.
    """
    files = by_period(throughput_table(store).files())
    volumes: dict[str, dict[int, float]] = {flow.flow: {} for flow in flows}
    for back in range(days):
        day = day_of(now_ms - back * _DAY_HOURS * HOUR_MS)
        names = tuple(file.path for period, of_period in files.items() if period.startswith(day) for file in of_period)
        first = hour_start_ms(f"{day}T00") // HOUR_MS
        for flow, rates in (_read_day(store, first, names, flows) if names else {}).items():
            volumes[flow] |= {first + at: rate for at, rate in enumerate(rates) if not math.isnan(rate)}
    return volumes


@lru_cache(maxsize=_DAYS_KEPT)
def _read_day(
    store: Store, first_hour: int, _files: tuple[str, ...], flows: tuple[TopicChoice, ...]
) -> Mapping[str, Sequence[float]]:
    """Return bytes per second of flows in each hour of a day, NaN: unknown."""
    of_source: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        of_source.setdefault(flow.source, []).append(number)

    def takers(cluster: str, topic: str) -> list[int]:
        return [number for number in of_source.get(cluster, ()) if flows[number].takes(topic)]

    hours = range(first_hour, first_hour + _DAY_HOURS)
    topics = read_topic_hours(store, hours, lambda cluster, topic: bool(takers(cluster, topic)))
    sums = np.zeros((len(flows), _DAY_HOURS))
    measured, unsized = np.zeros(sums.shape, np.bool_), np.zeros(sums.shape, np.bool_)
    for (cluster, topic), counts in topics.items():
        share = counts.covered_hours / np.maximum(counts.partitions, 1)
        has_rows = share > _LEAST_COVERED
        written = counts.records * (counts.record_bytes or 0.0) + counts.broker_bytes
        volume = written / np.where(has_rows, share, 1.0) / _HOUR_SECONDS
        for number in takers(cluster, topic):
            sums[number] += np.where(has_rows, volume, 0.0)
            measured[number] |= has_rows
            unsized[number] |= has_rows & (counts.records > 0) & (counts.record_bytes is None)
    rates = np.where(measured & ~unsized, sums, np.nan)
    return {flow.flow: array("d", row.tobytes()) for flow, row in zip(flows, rates, strict=True)}

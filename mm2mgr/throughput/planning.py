"""The hours that sizing judges: every partition of a store in every hour of the last weeks, from the roll-ups of hours alone.

Within an hour the roll-ups do not show whether
peaks of partitions coincide. Topics of one producer mostly peak together, so the p95 (or maximum) of each partition within the
hour stands for the whole hour, and the mean where that is more, as it is for a burst of less than three minutes. This counts too
much for partitions that take turns within an hour, never too little for those that take turns from hour to hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mm2mgr.samples.schema import HOUR_MS, Store, hour_start_ms
from mm2mgr.samples.tables import DataFile, StoredTable
from mm2mgr.throughput.part_files import PartitionNames, no_names, read_rows, throughput_table
from mm2mgr.throughput.rates import Statistic
from mm2mgr.throughput.windows import Window, last_hours, record_sizes

WEEKS_SECONDS = 28 * 86_400.0
"""How far back sizing looks by default: each hour of the week four times, and nothing that is older."""

_CELLS = 50_000_000  # partitions × hours held at once, 200 MB; a large estate is judged by fewer hours of each week
_STRIDES = (1, 5, 7, 11, 13, 17, 19, 23)  # no divisor of 24, so that every hour of the day is among the hours of a week
_HOURS_FOR_SIZES = 12  # spread over the window: record sizes change slowly
_WEEK_HOURS = 168


@dataclass(frozen=True)
class HourlyRates:
    """Bytes per second of partitions × hours, NaN where unknown: row i is the partition at `place[i]` of `names`.

    `hours` are counted since 1970, oldest first, `record_bytes` the mean record size of each row (NaN: unknown), `first_ms` and
    `last_ms` when the oldest and newest samples were taken.
    """

    names: PartitionNames
    place: Any
    hours: tuple[int, ...]
    table: Any
    record_bytes: Any
    first_ms: int
    last_ms: int


def hourly_rates(store: Store, window_seconds: float | None, statistic: Statistic) -> HourlyRates:
    """Read the hours of the last weeks, or of a window; Mm2mgrError where nothing was rolled up."""
    table = throughput_table(store)
    window = last_hours(store, WEEKS_SECONDS if window_seconds is None else window_seconds)
    names = _names(table, window)
    chosen = _thinned(window.hours, len(names))
    size = record_sizes(store, window.only(chosen[:: -(-len(chosen) // _HOURS_FOR_SIZES)]), names)
    rates = np.full((len(names), len(chosen)), np.nan, np.float32)
    for column, hour in enumerate(chosen):
        rates[:, column] = _hour(table, window.of([hour]), names, size, statistic)
    known = np.flatnonzero(np.isfinite(rates).any(axis=1))
    if len(known) < len(rates):
        rates = rates[known]
    ends = [_ends(table, window.of([hour])) for hour in (window.hours[0], window.hours[-1])]
    return HourlyRates(names, known, tuple(map(_number, chosen)), rates, size[known], ends[0][0], ends[1][1])


def _names(table: StoredTable, window: Window) -> PartitionNames:
    """Return the partitions of all hours; hours mostly have the same ones."""
    names = no_names()
    for hour in window.hours:
        rows = read_rows(table, window.of([hour]), ())
        if (names.places(rows) < 0).any():
            names = names.joined(rows)
    return names


def _ends(table: StoredTable, files: Sequence[DataFile]) -> tuple[int, int]:
    rows = read_rows(table, files, ("first_ms", "last_ms")).values
    return int(rows["first_ms"].min(initial=2**62)), int(rows["last_ms"].max(initial=0))


def _hour(table: StoredTable, files: Sequence[DataFile], names: PartitionNames, size: Any, statistic: Statistic) -> Any:
    """Return the rates of one hour by place in the names."""
    inner = [] if statistic == "mean" else [f"bytes_{statistic}", f"records_{statistic}"]
    found = read_rows(table, files, ("covered_ms", "records", "bytes", *inner))
    rows, place = found.values, names.places(found)
    sized = np.isfinite(rows["bytes"])
    whole = sized.all()
    volume = rows["bytes"] if whole else np.where(sized, rows["bytes"], rows["records"] * size[place])
    known = np.isfinite(volume) & (rows["covered_ms"] > 0)
    at, seconds = place[known], rows["covered_ms"][known] / 1000
    sums, times = (np.bincount(at, values, len(names)) for values in (volume[known], seconds))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / times
    if inner:
        peak = rows[inner[0]] if whole else np.where(sized, rows[inner[0]], rows[inner[1]] * size[place])
        if statistic == "p50":  # of several logs or sources in one hour no median is known: the mean stands for it
            alone = np.bincount(at, minlength=len(names))[at] == 1
            at, peak = at[alone], peak[known][alone]
            mean[at] = np.where(np.isfinite(peak), peak, mean[at])
        else:
            np.fmax.at(mean, at, peak[known])
    return mean


def _thinned(hours: Sequence[str], partitions: int) -> list[str]:
    """Keep hours so that the table fits in memory: the same hours of every week, so that weeks can be compared."""
    most = max(1, _CELLS // max(1, partitions))
    for stride in _STRIDES:
        kept = [hour for hour in hours if _number(hour) % _WEEK_HOURS % stride == 0]
        if kept and len(kept) <= most:
            break
    return kept or list(hours[-1:])


def _number(hour: str) -> int:
    return hour_start_ms(hour) // HOUR_MS

"""One hour of one series as one row: what flowed, for how long, how evenly, and what had to be left out.

`ROLLUP_COLUMNS` are its columns; the `throughput` table documents them with their units. Percentiles count every interval
with its milliseconds: p95 is the smallest rate that was not exceeded during 95 % of the covered time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mm2mgr.throughput.intervals import Intervals, intervals
from mm2mgr.throughput.series import Flags, Floats, Ints, Series
from mm2mgr.throughput.sketch import bucket_of

ROLLUP_COLUMNS: Mapping[str, str] = {
    "partition_id": "int32",
    "source": "string",
    "samples": "int32",
    "covered_ms": "int64",
    "records": "float64",
    "bytes": "float64",
    "resets": "int32",
    "gaps": "int32",
    "first_ms": "int64",
    "last_ms": "int64",
    "bytes_p50": "float64",
    "bytes_p95": "float64",
    "bytes_max": "float64",
    "records_p50": "float64",
    "records_p95": "float64",
    "records_max": "float64",
    "record_bytes": "float64",
    "sketch_buckets": "int16",
    "sketch_ms": "int32",
}
"""Columns of a roll-up; the last two are lists. `samples` are distinct moments, `bytes` is null where no record size is
known, `records` where the source tells none; rates are per second. `record_bytes` is the mean of the sizes read in the
hour, else the mean size in force. The sketch holds bytes per second, and where `bytes` is null records per second:
buckets of `sketch` with their milliseconds. Unknown is null, never zero."""

LISTS = ("sketch_buckets", "sketch_ms")
_SAME = 1e-9

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class RollUp:
    """The values by column name, one entry a series; the lists lie end to end, row i's from offset i to offset i + 1."""

    values: Mapping[str, Column]
    offsets: Column

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class _Used:
    """The usable intervals of the series that have any, numbered from 0 in order."""

    number: Ints
    span_ms: Ints
    bytes: Floats
    records: Floats
    starts: Ints

    def most(self, values: Floats) -> Floats:
        return np.asarray(np.maximum.reduceat(values, self.starts))

    def least(self, values: Floats) -> Floats:
        return np.asarray(np.minimum.reduceat(values, self.starts))


def roll_up(series: Series, hour_start_ms: int) -> RollUp | None:
    """Reduce the samples of an hour, with some of the hour before in front, to one row a series; None without any.

    A series without a sample in the hour has no row.
    """
    in_hour = series.time_ms >= hour_start_ms
    if not in_hour.any():
        return None
    steps = intervals(series, hour_start_ms)
    starts = np.flatnonzero(series.starts())
    alive = np.add.reduceat(in_hour.astype(np.int64), starts) > 0
    sums = _sums(series, steps, starts, in_hour)
    spread, lengths = _spread(steps, starts)
    lists = {name: spread.pop(name) for name in LISTS}
    values = {name: column[alive] for name, column in {**sums, **spread}.items()}
    offsets = np.append(0, np.cumsum(lengths[alive])).astype(np.int32)
    return RollUp({**values, **lists}, offsets)


def stacked(found: Iterable[RollUp | None]) -> RollUp | None:
    """Put roll-ups of one after another range of ids together; None where there is none."""
    parts = [each for each in found if each is not None]
    if not parts:
        return None
    values = {name: np.concatenate([each.values[name] for each in parts]) for name in ROLLUP_COLUMNS}
    lengths = np.concatenate([np.diff(each.offsets) for each in parts])
    return RollUp(values, np.append(0, np.cumsum(lengths)).astype(np.int32))


def _sums(series: Series, steps: Intervals, starts: Ints, in_hour: Flags) -> dict[str, Column]:
    def total(column: Column) -> Column:
        return np.asarray(np.add.reduceat(column, starts))

    def flowed(rates: Floats) -> Floats:
        """Return the amount of each series, NaN where the rate of one of its intervals is unknown."""
        return np.where(covered > 0, total(np.where(steps.usable, rates * span / 1000.0, 0.0)), np.nan)

    span = np.where(steps.usable, steps.elapsed_ms, 0)
    covered = total(span)
    records, volume = flowed(steps.records_per_second), flowed(steps.bytes_per_second)
    sizes = np.isfinite(series.record_bytes) & in_hour
    looked, size_sum = total(sizes.astype(np.int64)), total(np.where(sizes, series.record_bytes, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(looked > 0, size_sum / looked, np.where(records > 0, volume / records, np.nan))
    first = np.where(in_hour, series.time_ms, np.iinfo(np.int64).max)
    return {
        "partition_id": series.partition_id[starts],
        "source": series.source[starts],
        "samples": total(in_hour.astype(np.int32)),
        "covered_ms": covered,
        "records": records,
        "bytes": volume,
        "resets": total(steps.reset.astype(np.int32)),
        "gaps": total(steps.gap.astype(np.int32)),
        "first_ms": np.minimum.reduceat(first, starts),
        "last_ms": series.time_ms[np.append(starts[1:], len(series)) - 1],
        "record_bytes": size,
    }


def _spread(steps: Intervals, starts: Ints) -> tuple[dict[str, Column], Column]:
    """Return percentiles and sketch, and how many entries of the sketch belong to each series."""
    names = [f"{what}_{name}" for what in ("bytes", "records") for name in ("p50", "p95", "max")]
    spread: dict[str, Column] = {name: np.full(len(starts), np.nan) for name in names}
    lengths = np.zeros(len(starts), np.int64)
    rows = np.flatnonzero(steps.usable)
    if not len(rows):
        return {**spread, LISTS[0]: np.zeros(0, np.int16), LISTS[1]: np.zeros(0, np.int32)}, lengths
    of_row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(steps.usable))))[rows]
    first = np.flatnonzero(np.diff(of_row, prepend=-1))
    having = of_row[first]
    number = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rows))))
    volume, records = steps.bytes_per_second[rows], steps.records_per_second[rows]
    used = _Used(number, steps.elapsed_ms[rows], volume, records, first)
    sized = np.isfinite(used.most(np.where(np.isnan(volume), np.inf, 0.0)))
    leading = np.where(sized[number], volume, records)
    table = _ordered(used.number, leading, used.span_ms, used.starts)
    for name, values in table.statistics.items():
        spread[f"bytes_{name}"][having] = np.where(sized, values, np.nan)
        spread[f"records_{name}"][having] = np.where(sized, np.nan, values)
    for name, values in _records_too(used, table, sized).items():
        spread[f"records_{name}"][having[sized]] = values[sized]
    lengths[having] = table.lengths
    return {**spread, LISTS[0]: table.buckets, LISTS[1]: table.weights_ms}, lengths


@dataclass(frozen=True)
class _Ordered:
    """What sorting the rates of every series gives: statistics by name, and the sketch."""

    statistics: dict[str, Floats]
    buckets: Column
    weights_ms: Column
    lengths: Ints


def _records_too(used: _Used, table: _Ordered, sized: Flags) -> dict[str, Floats]:
    """Return the records' statistics of series with bytes: a division where records had one size, else a second sort."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = used.bytes / used.records
    quiet = ~(used.records > 0)
    low, high = used.least(np.where(quiet, np.inf, size)), used.most(np.where(quiet, -np.inf, size))
    silent = used.most(np.where(quiet, 0.0, 1.0)) == 0
    counted = np.isfinite(used.most(np.where(np.isnan(used.records), np.inf, 0.0)))
    same = silent | (high - low <= _SAME * high)
    divisor = np.where(silent, 1.0, np.where(np.isfinite(high), high, np.nan))
    found = {name: np.where(counted, values / divisor, np.nan) for name, values in table.statistics.items()}
    varied = sized & counted & ~same
    if varied.any():
        rows = varied[used.number]
        number = np.cumsum(varied)[used.number[rows]] - 1
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        again = _ordered(number, used.records[rows], used.span_ms[rows], starts).statistics
        for name, values in again.items():
            found[name][varied] = values
    return found


def _ordered(number: Ints, rates: Floats, span_ms: Ints, starts: Ints) -> _Ordered:
    """Sort the rates of every series, as padded tables of series that are about equally long."""
    lengths = np.diff(np.append(starts, len(number)))
    width_class = np.ceil(np.log2(lengths)).astype(np.int64)
    low_to_high, weights = np.empty(len(rates)), np.empty(len(rates), np.int64)
    for each in np.unique(width_class):
        some = width_class == each
        rows = slice(None) if some.all() else some[number]
        of_some, width = lengths[some], int(lengths[some].max())
        if (of_some == width).all():
            order = np.argsort(rates[rows].reshape(-1, width), axis=1).ravel()
        else:
            filled = np.arange(width) < of_some[:, None]
            padded = np.full(filled.shape, np.inf)
            padded[filled] = rates[rows]
            order = np.argsort(padded, axis=1)[filled]
        order += np.repeat(starts[some], of_some)
        low_to_high[rows], weights[rows] = rates[order], span_ms[order]
    return _Ordered(
        _statistics(low_to_high, weights, starts, lengths), *_sketched(number, low_to_high, weights, starts)
    )


def _statistics(rates: Floats, weights: Ints, starts: Ints, lengths: Ints) -> dict[str, Floats]:
    running = np.cumsum(weights)
    before = running[starts] - weights[starts]
    last = starts + lengths - 1
    total = running[last] - before

    def percentile(percent: int) -> Floats:
        # In whole numbers: a share of exactly 95 % must not be missed by a rounding.
        needed = -(-total * percent // 100)
        place = np.searchsorted(running, before + needed, side="left")
        return np.asarray(rates[np.clip(place, starts, last)])

    return {"p50": percentile(50), "p95": percentile(95), "max": rates[last]}


def _sketched(number: Ints, rates: Floats, weights: Ints, starts: Ints) -> tuple[Column, Column, Ints]:
    """Add up the milliseconds of neighbours in one bucket; return buckets, milliseconds and entries per series."""
    buckets = bucket_of(np.where(np.isfinite(rates), rates, 0.0))
    cut = np.ones(len(rates), np.bool_)
    cut[1:] = buckets[1:] != buckets[:-1]
    cut[starts] = True
    first = np.flatnonzero(cut)
    entries = np.bincount(number[first], minlength=len(starts))
    return buckets[first], np.add.reduceat(weights, first).astype(np.int32), entries

"""From sorted samples to intervals with a rate: which distances count, which are resets or gaps, and what flowed.

A series begins with a few samples of the hour before; the intervals end in the hour. Where several sources cover the same time,
the best of them counts, so that nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mm2mgr.throughput.series import (
    MOST_RECORDS_PER_SECOND,
    Flags,
    Floats,
    Ints,
    Series,
    sizes_in_force,
)

GAP_FACTOR = 3.0
# Even, so that an interval's own kind is never outnumbered where two overlapping samplers alternate short and long.
GAP_NEIGHBOURS = 6
_ROWS_AT_ONCE = 100_000
_SHADOWED = 0.5


@dataclass(frozen=True)
class Intervals:
    """One row a sample: the stretch of time that ends with it and the rates in it.

    `usable` intervals have a rate and end in the hour; `bytes_per_second` is NaN where no record size is known and
    the source tells no bytes, `records_per_second` where it tells no records.
    """

    elapsed_ms: Ints
    records_per_second: Floats
    bytes_per_second: Floats
    usable: Flags
    reset: Flags
    gap: Flags


def intervals(series: Series, hour_start_ms: int) -> Intervals:
    """Measure the distance of every sample to the one before it and judge it.

    Reset: the end offset went back, or forward by more than any broker takes. Gap: longer than three times the median
    of itself and its neighbours, up to six on either side, in the hour and before it. Neighbours, not the whole
    series: a sampler that was set to a longer pace has no gaps once six intervals of that pace are known.
    """
    first, in_hour = series.starts(), series.time_ms >= hour_start_ms
    elapsed = np.zeros(len(series), np.int64)
    elapsed[1:] = np.where(first[1:], 0, np.diff(series.time_ms))
    records = np.zeros(len(series), np.int64)
    records[1:] = np.diff(series.end_offset)
    by_offset = (series.end_offset >= 0) & ~first
    by_offset[1:] &= series.end_offset[:-1] >= 0
    seconds = np.maximum(elapsed, 1) / 1000.0
    counted = records / seconds
    reset = by_offset & ((records < 0) | (counted > MOST_RECORDS_PER_SECOND))
    gap, span, known = _gaps(elapsed, first) & ~reset, elapsed, by_offset
    per_second, sizes = counted, sizes_in_force(series)
    volume = per_second * sizes
    by_rate = ~by_offset & (np.isfinite(series.records_per_second) | np.isfinite(series.bytes_per_second))
    if by_rate.any():
        # A rate covers what its source says it covers, and never what the sample before it covers.
        span = np.where(by_rate & (series.resolution_ms > 0), series.resolution_ms, elapsed)
        span = np.where(by_rate & ~first & ~gap, np.minimum(span, elapsed), span)
        gap &= ~(by_rate & (series.resolution_ms > 0))
        known = (by_offset | by_rate) & (span > 0)
        per_second = np.where(by_offset, counted, series.records_per_second)
        in_bytes = ~by_offset & np.isfinite(series.bytes_per_second)
        volume = np.where(in_bytes, series.bytes_per_second, per_second * sizes)
    usable = known & in_hour & ~reset & ~gap
    if len(series) and series.source.min() != series.source.max():
        usable &= ~_shadowed(series, span, usable, hour_start_ms)
    return Intervals(span, per_second, volume, usable, reset & in_hour, gap & in_hour)


def _gaps(elapsed: Ints, first: Flags) -> Flags:
    """Flag intervals far longer than their neighbours; the median is taken only where a gap is possible at all."""
    flags = np.zeros(len(elapsed), np.bool_)
    if not len(elapsed):
        return flags
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(elapsed))
    shortest = np.minimum.reduceat(np.where(first, np.iinfo(np.int64).max, elapsed), starts)
    suspects = np.flatnonzero(elapsed > np.repeat(GAP_FACTOR * shortest, ends - starts))
    for cut in range(0, len(suspects), _ROWS_AT_ONCE):
        some = suspects[cut : cut + _ROWS_AT_ONCE]
        series = np.searchsorted(starts, some, side="right") - 1
        near = some[:, None] + np.arange(-GAP_NEIGHBOURS, GAP_NEIGHBOURS + 1)
        inside = (near > starts[series][:, None]) & (near < ends[series][:, None])
        near = np.clip(near, 0, len(elapsed) - 1)
        typical = np.nanmedian(np.where(inside, elapsed[near].astype(np.float64), np.nan), axis=1)
        flags[some] = elapsed[some] > GAP_FACTOR * typical
    return flags


def _shadowed(series: Series, span: Ints, usable: Flags, hour_start_ms: int) -> Flags:
    """Flag intervals of whose part in the hour a better source tells at least half; sources are numbered from best to worst.

    Only that part: of the hour before, just the last samples of the better source are here.
    """
    hidden = np.zeros(len(series), np.bool_)
    low = int((series.time_ms - span).min())
    stride = int(series.time_ms.max()) - low + 1
    end = series.partition_id.astype(np.int64) * stride + (series.time_ms - low)
    inside = np.clip(series.time_ms - hour_start_ms, 1, span)
    taken = np.zeros(len(series), np.bool_)
    for source in np.unique(series.source):
        rows = np.flatnonzero(usable & (series.source == source))
        better = np.flatnonzero(taken)
        if len(better):
            ends, spans = _united(end[better], span[better])
            covered = _covered(ends, spans, end[rows]) - _covered(ends, spans, end[rows] - inside[rows])
            hidden[rows[covered >= _SHADOWED * inside[rows]]] = True
        taken[rows[~hidden[rows]]] = True
    return hidden


def _united(ends: Ints, spans: Ints) -> tuple[Ints, Ints]:
    """Return ends and lengths of the stretches that the intervals cover together; those of two sources may overlap."""
    order = np.argsort(ends - spans, kind="stable")
    starts, reached = (ends - spans)[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.append(True, starts[1:] > reached[:-1]))
    last = reached[np.append(first[1:], len(starts)) - 1]
    return last, last - starts[first]


def _covered(ends: Ints, spans: Ints, moments: Ints) -> Floats:
    """Return how much of the time up to each moment the intervals cover, which do not overlap, on the one time line of all partitions."""
    order = np.argsort(ends, kind="stable")
    ends, spans = ends[order], spans[order]
    total = np.concatenate([[0], np.cumsum(spans)])
    place = np.searchsorted(ends, moments, side="right")
    next_ = np.minimum(place, len(ends) - 1)
    begun = np.clip(moments - (ends[next_] - spans[next_]), 0, spans[next_])
    return np.asarray(total[place] + np.where(place < len(ends), begun, 0), np.float64)

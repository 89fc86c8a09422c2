"""Samples of many partitions as arrays, cleaned and sorted, and the intervals between them: which have a rate, and
which.

A series is one partition as one source measures it. It begins with a few samples of the hour before; its intervals end
in the hour. Where several sources cover the same time, the best of them counts, so that nothing is counted twice.
Nothing here loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.samples.schema import KAFKA_OFFSETS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.integer[Any]] | Flags | slice

_MOST_BYTES_PER_SECOND = 1e12  # beyond any broker: a source that reports more is wrong, or reset its counter
_MOST_RECORDS_PER_SECOND = 1e9
_GAP_FACTOR = 3
# Even, so that an interval's own kind is never outnumbered where two overlapping samplers alternate short and long.
_GAP_NEIGHBOURS = 6
_LEAD_SAMPLES = (
    _GAP_NEIGHBOURS + 1
)  # of the hour before: as many intervals to judge a gap by as an interval has neighbours
_MOST_RECORD_BYTES = 2.0**31  # Kafka's own bound of a record
_IDS_PER_BLOCK = 2_048
_ROWS_AT_ONCE = 100_000
_SHADOWED = 0.5
_LONGEST_MS = 2**60


@dataclass(frozen=True)
class Series:
    """Samples sorted by partition, source rank and time; -1 and NaN are unknown.

    `source` numbers the sources from best to worst (`rank_sources`). A column with one value may be a view of it
    (`constant`).
    """

    partition_id: npt.NDArray[np.int32]
    source: npt.NDArray[np.int32]
    time_ms: Ints
    end_offset: Ints
    records_per_second: Floats
    bytes_per_second: Floats
    record_bytes: Floats
    resolution_ms: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.time_ms)

    def take(self, rows: Rows) -> Series:
        """Return these rows."""
        count = len(self.time_ms[rows])
        columns = (getattr(self, field.name) for field in fields(self))
        return Series(*(constant(column[:1], count) if _is_constant(column) else column[rows] for column in columns))

    @cached_property
    def first(self) -> Flags:
        """Flags of the first row of every series."""
        first = np.ones(len(self), np.bool_)
        np.not_equal(self.partition_id[1:], self.partition_id[:-1], out=first[1:])
        if not _is_constant(self.source):
            first[1:] |= self.source[1:] != self.source[:-1]
        return first

    @cached_property
    def starts(self) -> Ints:
        """The first row of every series."""
        return np.flatnonzero(self.first)

    @cached_property
    def ends(self) -> Ints:
        """The row behind the last one of every series."""
        return np.append(self.starts[1:], len(self)) if len(self) else self.starts

    def series_of(self, rows: Ints) -> Ints:
        """Return the number of the series that each row belongs to."""
        return np.searchsorted(self.starts, rows, side="right") - 1


def constant(value: float | np.generic, count: int) -> Any:
    """Return a column of one value that takes no memory."""
    return np.broadcast_to(value, count)


def _is_constant(column: npt.NDArray[np.generic]) -> bool:
    return bool(column.strides == (0,))


def _is_unknown(column: Floats) -> bool:
    return _is_constant(column) and not np.isfinite(column[:1]).any()


def rank_sources(names: list[str]) -> dict[str, int]:
    """Order sources from best to worst: offsets are exact per partition, Cruise Control's shares are estimates."""
    kinds = (KAFKA_OFFSETS, *(kind.prefix for kind in METRIC_SOURCES))

    def kind(name: str) -> int:
        whole = [place for place, kind_there in enumerate(kinds) if name == kind_there]
        start = [place for place, kind_there in enumerate(kinds) if name.startswith(kind_there)]
        return (whole or start or [len(kinds)])[0]

    return {name: place for place, name in enumerate(sorted(set(names), key=lambda name: (kind(name), name)))}


def clean(raw: Series, since_ms: int, until_ms: int) -> Series:
    """Take what can be true and lies in [since, until); sort it; keep each moment of a series once.

    Of two samples of one moment the larger end offset counts: it was read later. A sample whose offset lies below the
    one before while the next one does not is out of order (two samplers whose clocks disagree, a clock set back): it
    is left out instead of being a reset.
    """
    cleaned = replace(
        raw,
        records_per_second=_without_implausible(raw.records_per_second, 0.0, _MOST_RECORDS_PER_SECOND),
        bytes_per_second=_without_implausible(raw.bytes_per_second, 0.0, _MOST_BYTES_PER_SECOND),
        record_bytes=_without_implausible(raw.record_bytes, 1e-9, _MOST_RECORD_BYTES),
    )
    measured = (cleaned.end_offset >= 0) & (cleaned.time_ms >= since_ms) & (cleaned.time_ms < until_ms)
    if not measured.all():
        rated = np.isfinite(cleaned.records_per_second) | np.isfinite(cleaned.bytes_per_second)
        cleaned = cleaned.take(measured | (rated & (cleaned.time_ms >= since_ms) & (cleaned.time_ms < until_ms)))
    if not _is_sorted(cleaned):
        cleaned = cleaned.take(np.lexsort((cleaned.end_offset, cleaned.time_ms, cleaned.source, cleaned.partition_id)))
        last = np.ones(len(cleaned), np.bool_)
        last[:-1] = cleaned.first[1:] | (cleaned.time_ms[1:] != cleaned.time_ms[:-1])
        cleaned = cleaned.take(last)
    ends = cleaned.end_offset
    below = np.flatnonzero(ends[1:] < ends[:-1]) + 1
    series = cleaned.series_of(below)
    below = below[(below > cleaned.starts[series]) & (below + 1 < cleaned.ends[series])]
    dips = below[(ends[below] >= 0) & (ends[below + 1] >= ends[below - 1])]
    return cleaned.take(np.delete(np.arange(len(cleaned)), dips)) if len(dips) else cleaned


def _without_implausible(values: Floats, low: float, most: float) -> Floats:
    """Make unknown what cannot be true: a source that is wrong must not change a plan."""
    if _is_unknown(values):
        return values
    with np.errstate(invalid="ignore"):
        good = (values >= low) & (values <= most)  # false for NaN
    return values if good.all() else np.where(good, values, np.nan)


def _has_several_sources(series: Series) -> bool:
    return not _is_constant(series.source) and len(series) > 0 and bool(series.source.min() != series.source.max())


def _is_sorted(series: Series) -> bool:
    if _has_several_sources(series):
        return False
    late = series.time_ms[1:] <= series.time_ms[:-1]
    return bool((np.diff(series.partition_id[series.starts]) > 0).all()) and not (late & ~series.first[1:]).any()


def join_hours(lead: Series, hour: Series) -> Series:
    """Put the end of an hour in front of the next one, series by series."""
    if not len(lead):
        return hour
    sources = int(max(lead.source.max(), hour.source.max(initial=0))) + 1
    keys = [
        series.partition_id[series.starts].astype(np.int64) * sources + series.source[series.starts]
        for series in (lead, hour)
    ]
    hour_rows, lead_rows = (np.append(series.starts, len(series)) for series in (hour, lead))
    of_lead = np.repeat(hour_rows[np.searchsorted(keys[1], keys[0], side="left")], lead.ends - lead.starts)
    of_hour = np.repeat(lead_rows[np.searchsorted(keys[0], keys[1], side="right")], hour.ends - hour.starts)
    of_lead += np.arange(len(lead))
    of_hour += np.arange(len(hour))

    def together(first: Any, second: Any) -> Any:
        count = len(first) + len(second)
        if _is_constant(first) and _is_constant(second) and first[:1].tobytes() == second[:1].tobytes():
            return constant(first[:1], count)
        column = np.empty(count, first.dtype)
        column[of_lead], column[of_hour] = first, second
        return column

    return Series(*(together(getattr(lead, field.name), getattr(hour, field.name)) for field in fields(lead)))


def in_blocks(series: Series, ids: range) -> list[Series]:
    """Cut samples of these ids into small ranges of ids: arrays that stay in a core's cache take half the time."""
    if (series.partition_id[1:] < series.partition_id[:-1]).any():
        series = series.take(np.argsort(series.partition_id, kind="stable"))
    cuts = np.searchsorted(series.partition_id, [*range(ids.start, ids.stop, _IDS_PER_BLOCK), ids.stop]).tolist()
    return [series.take(slice(low, high)) for low, high in pairwise(cuts)]


def tail(series: Series) -> Series:
    """Return the last samples of every series, the last with the record size in force: what the next hour starts
    from."""
    if not len(series):
        return series
    rows = series.ends[:, None] + np.arange(-_LEAD_SAMPLES, 0)
    tails = series.take(rows[rows >= series.starts[:, None]])
    sized = np.flatnonzero(np.isfinite(series.record_bytes))
    if not len(sized):
        return tails
    last = sized[np.searchsorted(sized, series.ends) - 1]
    has_one = (last >= series.starts) & (last < series.ends)
    sizes = tails.record_bytes.copy()
    sizes[tails.ends[has_one] - 1] = series.record_bytes[last[has_one]]
    return replace(tails, record_bytes=sizes)


def _sizes_in_force(series: Series) -> Floats:
    """Return the record size at each row: the last one known in its series, else the next one, else NaN."""
    if _is_unknown(series.record_bytes):
        return series.record_bytes
    turns = np.flatnonzero(np.isfinite(series.record_bytes) | series.first)
    sizes, first = series.record_bytes[turns], series.first[turns]
    early = np.flatnonzero(np.isnan(sizes[:-1]) & ~first[1:])
    sizes[early] = sizes[early + 1]
    return np.repeat(sizes, np.diff(turns, append=len(series)))


@dataclass(frozen=True)
class Intervals:
    """One row per sample: the stretch of time that ends with it and the rates in it.

    `usable` intervals have a rate and end in the hour; `bytes_per_second` is NaN where no record size is known and
    the source reports no bytes, `records_per_second` where it reports no records.
    """

    elapsed_ms: Ints
    records_per_second: Floats
    bytes_per_second: Floats
    usable: Flags
    reset: Flags
    gap: Flags


def intervals(series: Series, in_hour: Flags, hour_start_ms: int) -> Intervals:
    """Measure the distance of every sample to the one before it and judge it.

    Reset: the end offset went back, or forward by more than any broker takes. Gap: longer than three times the median
    of itself and its neighbours, up to six on either side, in the hour and before it. Neighbours, not the whole
    series: a sampler that was set to a longer pace has no gaps once six intervals of that pace are known.
    """
    elapsed = _steps(series.time_ms)
    elapsed[series.starts] = 0
    has_end = series.end_offset >= 0
    has_end[1:] &= has_end[:-1]
    has_end[series.starts] = False
    by_offset = has_end
    per_second = _steps(series.end_offset) / (np.maximum(elapsed, 1) / 1000.0)
    reset = by_offset & ((per_second < 0) | (per_second > _MOST_RECORDS_PER_SECOND))
    gap, span, sizes = _gaps(series, elapsed) & ~reset, elapsed, _sizes_in_force(series)
    volume = per_second * sizes
    if not (_is_unknown(series.records_per_second) and _is_unknown(series.bytes_per_second)):
        by_rate = ~by_offset & (np.isfinite(series.records_per_second) | np.isfinite(series.bytes_per_second))
        # A rate covers what its source says it covers, and never what the sample before it covers.
        span = np.where(by_rate & (series.resolution_ms > 0), series.resolution_ms, elapsed)
        span = np.where(by_rate & ~series.first & ~gap, np.minimum(span, elapsed), span)
        gap &= ~(by_rate & (series.resolution_ms > 0))
        has_end = (by_offset | by_rate) & (span > 0)
        per_second = np.where(by_offset, per_second, series.records_per_second)
        in_bytes = ~by_offset & np.isfinite(series.bytes_per_second)
        volume = np.where(in_bytes, series.bytes_per_second, per_second * sizes)
    usable = has_end & in_hour & ~reset & ~gap
    if _has_several_sources(series):
        usable &= ~_flag_shadowed(series, span, usable, hour_start_ms)
    return Intervals(span, per_second, volume, usable, reset & in_hour, gap & in_hour)


def _steps(column: Ints) -> Ints:
    steps = np.zeros(len(column), np.int64)
    np.subtract(column[1:], column[:-1], out=steps[1:])
    return steps


def _gaps(series: Series, elapsed: Ints) -> Flags:
    """Flag intervals far longer than their neighbours; the median is taken only where a gap is possible at all."""
    flags = np.zeros(len(elapsed), np.bool_)
    if not len(elapsed):
        return flags
    starts, ends = series.starts, series.ends
    inner = elapsed.copy()
    inner[starts] = _LONGEST_MS
    bounds = _GAP_FACTOR * np.minimum.reduceat(inner, starts)
    if (np.maximum.reduceat(elapsed, starts) <= bounds).all():
        return flags
    suspects = np.flatnonzero(elapsed > np.repeat(bounds, ends - starts))
    for cut in range(0, len(suspects), _ROWS_AT_ONCE):
        some = suspects[cut : cut + _ROWS_AT_ONCE]
        own = series.series_of(some)
        near = some[:, None] + np.arange(-_GAP_NEIGHBOURS, _GAP_NEIGHBOURS + 1)
        inside = (near > starts[own][:, None]) & (near < ends[own][:, None])
        near = np.clip(near, 0, len(elapsed) - 1)
        typical = np.nanmedian(np.where(inside, elapsed[near].astype(np.float64), np.nan), axis=1)
        flags[some] = elapsed[some] > _GAP_FACTOR * typical
    return flags


def _flag_shadowed(series: Series, span: Ints, usable: Flags, hour_start_ms: int) -> Flags:
    """Flag intervals of whose part in the hour a better source covers at least half; sources are numbered from best to
    worst.

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
            ends, spans = _unite_stretches(end[better], span[better])
            covered = _covered_time(ends, spans, end[rows]) - _covered_time(ends, spans, end[rows] - inside[rows])
            hidden[rows[covered >= _SHADOWED * inside[rows]]] = True
        taken[rows[~hidden[rows]]] = True
    return hidden


def _unite_stretches(ends: Ints, spans: Ints) -> tuple[Ints, Ints]:
    """Return ends and lengths of the stretches that the intervals cover together; those of two sources may overlap."""
    order = np.argsort(ends - spans, kind="stable")
    starts, reached = (ends - spans)[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.append(True, starts[1:] > reached[:-1]))
    last = reached[np.append(first[1:], len(starts)) - 1]
    return last, last - starts[first]


def _covered_time(ends: Ints, spans: Ints, moments: Ints) -> Floats:
    total = np.concatenate([[0], np.cumsum(spans)])
    place = np.searchsorted(ends, moments, side="right")
    next_ = np.minimum(place, len(ends) - 1)
    begun = np.clip(moments - (ends[next_] - spans[next_]), 0, spans[next_])
    return np.asarray(total[place] + np.where(place < len(ends), begun, 0), np.float64)

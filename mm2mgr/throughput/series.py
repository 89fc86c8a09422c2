"""Samples of many partitions as arrays: cleaned, sorted by series and time, each moment once.

A series is one partition as one source measures it. Its columns are of equal length, so that intervals are differences of shifted
arrays; nothing here loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mm2mgr.samples.schema import CRUISE_CONTROL, CRUISE_CONTROL_TOPIC, KAFKA_OFFSETS, PROMETHEUS_PREFIX

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = -1
LEAD_SAMPLES = 7  # of the hour before: six intervals to judge a gap by, as many as an interval has neighbours
MOST_BYTES_PER_SECOND = 1e12  # beyond any broker: a source that says more lies, or reset its counter
MOST_RECORDS_PER_SECOND = 1e9
_IDS_PER_BLOCK = 2_048
_MOST_RECORD_BYTES = 2.0**31  # Kafka's own bound of a record


@dataclass(frozen=True)
class Series:
    """Samples sorted by partition, source rank and time; -1 and NaN are unknown.

    `source` numbers the sources from best to worst (`rank_sources`).
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

    def take(self, rows: npt.NDArray[np.integer] | Flags | slice) -> Series:
        """Return these rows."""
        return Series(*(getattr(self, one.name)[rows] for one in fields(self)))

    def starts(self) -> Flags:
        """Flag the first row of every series."""
        first = np.ones(len(self), np.bool_)
        first[1:] = (self.partition_id[1:] != self.partition_id[:-1]) | (self.source[1:] != self.source[:-1])
        return first


def rank_sources(names: list[str]) -> dict[str, int]:
    """Order sources from best to worst: offsets are exact per partition, Cruise Control's shares are estimates."""
    kinds = (KAFKA_OFFSETS, PROMETHEUS_PREFIX, CRUISE_CONTROL, CRUISE_CONTROL_TOPIC)

    def kind(name: str) -> int:
        whole = [place for place, one in enumerate(kinds) if name == one]
        start = [place for place, one in enumerate(kinds) if name.startswith(one)]
        return (whole or start or [len(kinds)])[0]

    return {name: place for place, name in enumerate(sorted(set(names), key=lambda name: (kind(name), name)))}


def clean(raw: Series, since_ms: int, until_ms: int) -> Series:
    """Take what can be true and lies in [since, until); sort it; keep each moment of a series once.

    Of two samples of one moment the larger end offset counts: it was read later. A sample whose offset lies below the
    one before while the next one does not is out of order (two samplers whose clocks disagree, a clock set back): it
    is left out instead of being a reset.
    """
    known = _plausible(raw)
    measured = (known.end_offset >= 0) | np.isfinite(known.records_per_second) | np.isfinite(known.bytes_per_second)
    measured &= (known.time_ms >= since_ms) & (known.time_ms < until_ms)
    kept = known if measured.all() else known.take(measured)
    if not _sorted(kept):
        kept = kept.take(np.lexsort((kept.end_offset, kept.time_ms, kept.source, kept.partition_id)))
    last = np.ones(len(kept), np.bool_)
    last[:-1] = kept.starts()[1:] | (kept.time_ms[1:] != kept.time_ms[:-1])
    once = kept if last.all() else kept.take(last)
    return _in_order(once)


def joined(lead: Series, hour: Series) -> Series:
    """Put two stretches of samples together, the first of which is over before the second begins."""
    if not len(lead):
        return hour
    both = Series(*(np.concatenate([getattr(lead, one.name), getattr(hour, one.name)]) for one in fields(lead)))
    number = both.partition_id.astype(np.int64) * (int(both.source.max()) + 1) + both.source
    return both.take(
        np.argsort(number, kind="stable")
    )  # two sorted runs to merge; within a series the lead stays first


def in_blocks(series: Series, ids: range) -> list[Series]:
    """Cut samples of these ids into small ranges of ids: arrays that stay in a core's cache take half the time."""
    if (np.diff(series.partition_id) < 0).any():
        series = series.take(np.argsort(series.partition_id, kind="stable"))
    cuts = np.searchsorted(series.partition_id, [*range(ids.start, ids.stop, _IDS_PER_BLOCK), ids.stop]).tolist()
    return [series.take(slice(low, high)) for low, high in pairwise(cuts)]


def tail(series: Series) -> Series:
    """Return the last samples of every series, each with the record size in force: what the next hour starts from."""
    if not len(series):
        return series
    starts = np.flatnonzero(series.starts())
    ends = np.append(starts[1:], len(series))
    rows = ends[:, None] + np.arange(-LEAD_SAMPLES, 0)
    chosen = rows[rows >= starts[:, None]]
    return Series(**{**vars(series.take(chosen)), "record_bytes": sizes_in_force(series, chosen)})


def sizes_in_force(series: Series, rows: npt.NDArray[np.integer] | slice = slice(None)) -> Floats:
    """Return the record size at these rows: the last one known in its series, else the next one, else NaN."""
    is_known = np.isfinite(series.record_bytes)
    known = np.flatnonzero(is_known)
    if not len(known):
        return series.record_bytes[rows]
    sizes, starts = series.record_bytes[known], np.flatnonzero(series.starts())
    lengths = np.diff(np.append(starts, len(series)))
    last = (np.cumsum(is_known) - 1)[rows]  # the place in `known` of the last one up to here; -1 before any
    found = np.where(known[last] >= np.repeat(starts, lengths)[rows], sizes[last], np.nan)
    found[last < 0] = np.nan
    early = np.flatnonzero(np.isnan(found))
    if len(early):
        after = np.minimum(last[early] + 1, len(known) - 1)
        inside = (last[early] + 1 < len(known)) & (known[after] < np.repeat(starts + lengths, lengths)[rows][early])
        found[early] = np.where(inside, sizes[after], np.nan)
    return found


def _plausible(raw: Series) -> Series:
    """Make unknown what cannot be true: a source that lies must not move a plan."""

    def within(values: Floats, low: float, most: float) -> Floats:
        with np.errstate(invalid="ignore"):
            good = (values >= low) & (values <= most)  # false for NaN
        return values if good.all() else np.where(good, values, np.nan)

    return Series(
        raw.partition_id,
        raw.source,
        raw.time_ms,
        raw.end_offset,
        within(raw.records_per_second, 0.0, MOST_RECORDS_PER_SECOND),
        within(raw.bytes_per_second, 0.0, MOST_BYTES_PER_SECOND),
        within(raw.record_bytes, 1e-9, _MOST_RECORD_BYTES),
        raw.resolution_ms,
    )


def _sorted(series: Series) -> bool:
    step = np.diff(series.partition_id)
    if (step < 0).any() or (len(series) and series.source.min() != series.source.max()):
        return False
    return not ((step == 0) & (np.diff(series.time_ms) <= 0)).any()


def _in_order(series: Series) -> Series:
    ends, same = series.end_offset, ~series.starts()
    if len(series) < 3:
        return series
    dip = np.zeros(len(series), np.bool_)
    below = same[1:-1] & (ends[1:-1] < ends[:-2]) & (ends[1:-1] >= 0)
    dip[1:-1] = below & same[2:] & (ends[2:] >= ends[:-2])
    return series.take(~dip) if dip.any() else series

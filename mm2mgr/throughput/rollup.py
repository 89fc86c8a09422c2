"""One hour of one series as one row, and rows as arrays that files are read into and written from.

`ROLLUP_COLUMNS` are its columns; the `throughput` table documents them with their units. Percentiles count every
interval with its milliseconds: p95 is the smallest rate that was not exceeded during 95 % of the covered time.

Sketches hold rates in logarithmic buckets, so that percentiles of hours merge into percentiles of any window. Bucket k
holds rates r with γ^k ≤ r < γ^(k+1), γ = 1.02/0.98, and stands for 2·γ^(k+1)/(γ+1): at most 2 % from any rate in it.
Weights are milliseconds; rates under a thousandth per second are zero and have a bucket of their own.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import THROUGHPUT, Store, ahead
from mm2mgr.samples.tables import STRINGS, DataFile, MissingFile, Share, StoredTable, UnreadableFile, codes_of
from mm2mgr.throughput.intervals import Flags, Floats, Intervals, Ints, Series, intervals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ROLLUP_COLUMNS = (
    *("partition_id", "source", "samples", "covered_ms", "records", "bytes", "resets", "gaps", "first_ms", "last_ms"),
    *("bytes_p50", "bytes_p95", "bytes_max", "records_p50", "records_p95", "records_max", "record_bytes"),
    *("sketch_buckets", "sketch_ms"),
)
"""Columns of a roll-up; the last two are lists. `samples` are distinct moments, `bytes` is null where no record size is
known, `records` where the source reports none; rates are per second. `record_bytes` is the mean of the sizes read in
the hour, else the mean size in force. The sketch holds bytes per second, and where `bytes` is null records per second:
buckets with their milliseconds. Unknown is null, never zero."""

LISTS = ("sketch_buckets", "sketch_ms")
DAY_COLUMNS = ROLLUP_COLUMNS[2:]
"""What a day has, too: all but what numbers the series of an hour."""
_RELATIVE_ERROR = 0.02
_SAME = 1e-9
_GAMMA = (1 + _RELATIVE_ERROR) / (1 - _RELATIVE_ERROR)
_LOG_GAMMA = float(np.log(_GAMMA))
_SMALLEST = 1e-3
ZERO = int(np.floor(np.log(_SMALLEST) / _LOG_GAMMA)) - 1
_SERIES_AT_ONCE = 32_768  # whose histograms are summed up in some 50 MB

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class RollUp:
    """The values by column name, one entry per series; the lists lie end to end, row i's from offset i to offset i +
    1."""

    values: Mapping[str, Column]
    offsets: Column


def roll_up(series: Series, hour_start_ms: int) -> RollUp | None:
    """Reduce the samples of an hour, with some of the hour before in front, to one row per series; None without any.

    A series without a sample in the hour has no row.
    """
    in_hour = series.time_ms >= hour_start_ms
    if not in_hour.any():
        return None
    steps = intervals(series, in_hour, hour_start_ms)
    values, lengths = _spread(series, steps)
    lists = {name: values.pop(name) for name in LISTS}
    values |= _counts(series, steps, in_hour)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(values["records"] > 0, values["bytes"] / values["records"], np.nan)
    values["record_bytes"] = np.where(np.isnan(values["record_bytes"]), mean, values["record_bytes"])
    alive = values["samples"] > 0
    offsets = np.append(0, np.cumsum(lengths[alive])).astype(np.int32)
    return RollUp({**{name: column[alive] for name, column in values.items()}, **lists}, offsets)


def stack_roll_ups(roll_ups: Iterable[RollUp | None]) -> RollUp | None:
    """Put roll-ups of one after another range of ids together; None where there is none."""
    parts = [roll_up for roll_up in roll_ups if roll_up is not None]
    if not parts:
        return None
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in ROLLUP_COLUMNS}
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return RollUp(values, np.append(0, np.cumsum(lengths)).astype(np.int32))


def _counts(series: Series, steps: Intervals, in_hour: Flags) -> dict[str, Column]:
    starts, count = series.starts, len(series.starts)

    def count_flags(flags: Flags) -> Column:
        return np.bincount(series.series_of(np.flatnonzero(flags)), minlength=count).astype(np.int32)

    samples = np.add.reduceat(in_hour, starts, dtype=np.int32)
    sized = np.flatnonzero(np.isfinite(series.record_bytes) & in_hour)
    of_size = series.series_of(sized)
    with np.errstate(invalid="ignore"):
        sizes = np.bincount(of_size, series.record_bytes[sized], count) / np.bincount(of_size, minlength=count)
    return {
        "partition_id": series.partition_id[starts],
        "source": series.source[starts],
        "samples": samples,
        "resets": count_flags(steps.reset),
        "gaps": count_flags(steps.gap),
        "first_ms": series.time_ms[np.minimum(series.ends - samples, len(series) - 1)],
        "last_ms": series.time_ms[series.ends - 1],
        "record_bytes": sizes,
    }


@dataclass(frozen=True)
class _Used:
    number: Ints
    span_ms: Ints
    bytes: Floats
    records: Floats
    starts: Ints

    def total(self, values: Column) -> Column:
        return np.asarray(np.add.reduceat(values, self.starts))

    def amount(self, rates: Floats) -> Floats:
        """Return the amount of each series, NaN where the rate of one of its intervals is unknown."""
        return self.total(rates * self.span_ms / 1000.0)


def _spread(series: Series, steps: Intervals) -> tuple[dict[str, Column], Column]:
    """Return amounts, percentiles and sketch of every series, and how many entries of the sketch belong to each."""
    count = len(series.starts)
    per_series = np.add.reduceat(steps.usable, series.starts, dtype=np.int64)
    names = [f"{quantity}{name}" for quantity in ("bytes", "records") for name in ("", "_p50", "_p95", "_max")]
    columns: dict[str, Column] = {name: np.full(count, np.nan) for name in names}
    columns["covered_ms"], lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    having = np.flatnonzero(per_series)
    if not len(having):
        return {**columns, LISTS[0]: np.zeros(0, np.int16), LISTS[1]: np.zeros(0, np.int32)}, lengths
    rows, per_series = np.flatnonzero(steps.usable), per_series[having]
    number, starts = np.repeat(np.arange(len(having)), per_series), np.cumsum(per_series) - per_series
    used = _Used(number, steps.elapsed_ms[rows], steps.bytes_per_second[rows], steps.records_per_second[rows], starts)
    volume, records = used.amount(used.bytes), used.amount(used.records)
    columns["covered_ms"][having], columns["bytes"][having], columns["records"][having] = (
        used.total(used.span_ms),
        volume,
        records,
    )
    sized, counted = np.isfinite(volume), np.isfinite(records)
    leading = used.bytes if sized.all() else np.where(sized[number], used.bytes, used.records)
    statistics, buckets, weights_ms, entries = _order_rates(number, leading, used.span_ms, starts)
    for name, values in statistics.items():
        columns[f"bytes_{name}"][having] = np.where(sized, values, np.nan)
        columns[f"records_{name}"][having] = np.where(sized, np.nan, values)
    for name, values in _records_too(used, statistics, sized, counted).items():
        columns[f"records_{name}"][having[sized]] = values[sized]
    lengths[having] = entries
    return {**columns, LISTS[0]: buckets, LISTS[1]: weights_ms}, lengths


def _records_too(used: _Used, statistics: Mapping[str, Floats], sized: Flags, counted: Flags) -> dict[str, Floats]:
    """Return the records' statistics of series with bytes: a division where records had one size, else a second
    sort."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = used.bytes / used.records
    quiet = ~(used.records > 0)
    low = np.minimum.reduceat(np.where(quiet, np.inf, size), used.starts)
    high = np.maximum.reduceat(np.where(quiet, -np.inf, size), used.starts)
    silent = np.isneginf(high)
    with np.errstate(invalid="ignore"):
        same = silent | (high - low <= _SAME * high)
    divisor = np.where(silent, 1.0, np.where(np.isfinite(high), high, np.nan))
    rates = {name: np.where(counted, values / divisor, np.nan) for name, values in statistics.items()}
    varied = sized & counted & ~same
    if varied.any():
        rows = varied[used.number]
        number = np.cumsum(varied)[used.number[rows]] - 1
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        again, *_ = _order_rates(number, used.records[rows], used.span_ms[rows], starts)
        for name, values in again.items():
            rates[name][varied] = values
    return rates


def _order_rates(
    number: Ints, rates: Floats, span_ms: Ints, starts: Ints
) -> tuple[dict[str, Floats], Column, Column, Ints]:
    """Sort the rates of every series, as padded tables of series that are about equally long; return their statistics,
    and the buckets and weights of their sketches, with how many belong to each.
    """
    lengths = np.diff(np.append(starts, len(number)))
    width_class = np.ceil(np.log2(lengths)).astype(np.int64)
    low_to_high, weights = np.empty(len(rates)), np.empty(len(rates), np.int64)
    for width_here in np.unique(width_class):
        some = width_class == width_here
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
    return _statistics(low_to_high, weights, starts, lengths), *_sketch_rates(low_to_high, weights, starts)


def _statistics(rates: Floats, weights: Ints, starts: Ints, lengths: Ints) -> dict[str, Floats]:
    running = np.cumsum(weights)
    before = running[starts] - weights[starts]
    last = starts + lengths - 1
    total = running[last] - before

    def of_time(percent: int) -> Floats:
        # In whole numbers: a share of exactly 95 % must not be missed by a rounding.
        needed = -(-total * percent // 100)
        place = np.searchsorted(running, before + needed, side="left")
        return np.asarray(rates[np.clip(place, starts, last)])

    return {"p50": of_time(50), "p95": of_time(95), "max": rates[last]}


def _sketch_rates(rates: Floats, weights: Ints, starts: Ints) -> tuple[Column, Column, Ints]:
    """Add up the milliseconds of neighbours in one bucket; return buckets, milliseconds and entries per series."""
    buckets = bucket_of(rates)
    cut = np.ones(len(rates), np.bool_)
    np.not_equal(buckets[1:], buckets[:-1], out=cut[1:])
    cut[starts] = True
    first = np.flatnonzero(cut)
    entries = np.diff(np.searchsorted(first, starts), append=len(first))
    return buckets[first], np.add.reduceat(weights, first).astype(np.int32), entries


def bucket_of(rates: Floats) -> npt.NDArray[np.int16]:
    """Return the bucket of each rate (per second, not negative); an unknown rate is in that of zero."""
    exponent = np.floor(np.log(np.maximum(rates, _SMALLEST)) / _LOG_GAMMA)
    return np.where(rates >= _SMALLEST, exponent, ZERO).astype(np.int16)


def rate_of(buckets: npt.NDArray[np.integer]) -> Floats:
    """Return the rate that each bucket stands for."""
    return np.where(buckets <= ZERO, 0.0, 2 * np.exp((buckets + 1.0) * _LOG_GAMMA) / (_GAMMA + 1))


def shift_buckets(buckets: npt.NDArray[np.integer], factors: Floats) -> Ints:
    """Return the buckets after every rate is multiplied by its factor (positive); rounding to a bucket costs another 2
    %."""
    moved = buckets + np.rint(np.log(factors) / _LOG_GAMMA)
    return np.where(buckets <= ZERO, ZERO, np.maximum(moved, ZERO)).astype(np.int64)


def merge_buckets(series: Ints, lengths: Ints, buckets: Ints, weights_ms: Ints) -> tuple[Ints, Ints, Ints]:
    """Add up equal buckets of each series: (series, bucket, weight), ordered by series and bucket.

    Sketches lie end to end in `buckets` and `weights_ms`; each has its length and its series, a small number from 0.
    """
    if not len(buckets):
        return series[:0], buckets, weights_ms
    low, span = int(buckets.min()), int(np.ptp(buckets)) + 1
    begins, histograms = np.cumsum(lengths) - lengths, []
    for base in range(0, int(series.max()) + 1, _SERIES_AT_ONCE):
        some = np.flatnonzero((series >= base) & (series < base + _SERIES_AT_ONCE))
        sizes = lengths[some]
        rows: slice | npt.NDArray[np.intp] = slice(None)
        if len(some) < len(series):
            rows = np.arange(sizes.sum()) + np.repeat(begins[some] - (np.cumsum(sizes) - sizes), sizes)
        keys = np.repeat((series[some] - base) * span - low, sizes) + buckets[rows]
        sums = np.bincount(keys, weights=weights_ms[rows])
        used = np.flatnonzero(sums)
        histograms.append((used // span + base, used % span + low, np.rint(sums[used]).astype(np.int64)))
    parts = [np.concatenate(column) for column in zip(*histograms, strict=True)]
    return parts[0], parts[1], parts[2]


def percentile(series: Ints, rates: Floats, weights_ms: Ints, share: float, count: int) -> Floats:
    """Return, for series 0 to count-1, the smallest rate not exceeded during `share` of its weight; NaN where it has
    none.

    The entries are ordered by series, then by rate.
    """
    running = np.cumsum(weights_ms)
    totals = np.bincount(series, weights=weights_ms, minlength=count)
    before = np.cumsum(totals) - totals
    place = np.searchsorted(running, before + share * totals - 1e-6, side="left")
    return np.where(totals > 0, rates[np.minimum(place, max(len(rates) - 1, 0))] if len(rates) else np.nan, np.nan)


NAMES = ("cluster", "topic", "partition", "topic_id", "source")
_READERS = 4  # a window is many small files
_DELTA = dict.fromkeys(("partition", "covered_ms", "first_ms", "last_ms", "samples"), "DELTA_BINARY_PACKED")


@dataclass(frozen=True)
class RateRows:
    """Rows of the table: numbers by column name, lists end to end with offsets, and names as codes of lists of
    strings."""

    values: dict[str, Array]
    offsets: Array
    clusters: list[str]
    topics: list[str]
    topic_ids: list[str | None]
    sources: list[str]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class PartitionNames:
    """Partitions ordered by cluster, topic and number; `cluster` and `topic` are places in the two lists of names."""

    clusters: list[str]
    topics: list[str]
    cluster: Array
    topic: Array
    partition: Array

    def __len__(self) -> int:
        return len(self.partition)

    @cached_property
    def _keys(self) -> Array:
        return _keys(self.cluster, self.topic, self.partition, len(self.topics))

    def places(self, rows: RateRows) -> Array:
        """Return the place of each row's partition, -1 where it is not among these."""
        cluster = _places_of(rows.clusters, self.clusters)[rows.values["cluster"]]
        topic = _places_of(rows.topics, self.topics)[rows.values["topic"]]
        keys = _keys(cluster, topic, rows.values["partition"], len(self.topics))
        at = np.minimum(np.searchsorted(self._keys, keys), max(len(self) - 1, 0))
        is_there = (cluster >= 0) & (topic >= 0) & (self._keys[at] == keys if len(self) else False)
        return np.where(is_there, at, -1)

    def with_rows(self, rows: RateRows) -> PartitionNames:
        """Return these and the partitions of the rows."""
        clusters, topics = sorted({*self.clusters, *rows.clusters}), sorted({*self.topics, *rows.topics})
        cluster = np.append(
            _places_of(self.clusters, clusters)[self.cluster],
            _places_of(rows.clusters, clusters)[rows.values["cluster"]],
        )
        topic = np.append(
            _places_of(self.topics, topics)[self.topic], _places_of(rows.topics, topics)[rows.values["topic"]]
        )
        partition = np.append(self.partition, rows.values["partition"].astype(np.int64))
        _, first = np.unique(_keys(cluster, topic, partition, len(topics)), return_index=True)
        return PartitionNames(clusters, topics, cluster[first], topic[first], partition[first])


def no_names() -> PartitionNames:
    """Return the names of no partition."""
    nothing = np.zeros(0, np.int64)
    return PartitionNames([], [], nothing, nothing, nothing)


def throughput_table(store: Store) -> StoredTable:
    """Return the table of roll-ups of a store."""
    return StoredTable(store, THROUGHPUT)


def is_hour(period: str) -> bool:
    """Tell whether a period is an hour such as 2026-11-21T10, not a day such as 2026-11-21."""
    return "T" in period


def past_hours(periods: Iterable[str]) -> list[str]:
    """Return the hours among these that are not in the future, by this machine's clock, oldest first; all of them where
    all are."""
    hours = sorted(filter(is_hour, periods))
    return hours[: len(hours) - len(ahead(hours, time.time_ns() // 1_000_000))] or hours


def hours_of_day(day: DataFile) -> set[str]:
    """Return the hours that a file of a day was merged from, by its `made_from`: their numbers first."""
    return {f"{day.values[0]}T{word}" for word in day.values[1].split() if word.isdecimal()}


_ALL = Share()


def read_rows(table: StoredTable, files: Sequence[DataFile], columns: Iterable[str], share: Share = _ALL) -> RateRows:
    """Return these columns of all files, with the names in any case; Mm2mgrError where a file is damaged or lost.

    Offsets are all zero where the lists are not asked for.
    """
    names = [*NAMES, *(name for name in columns if name not in NAMES)]

    def read(file: DataFile) -> pa.Table:
        return share.rows(table.read_file(file, names, share.may_hold))

    try:
        with ThreadPoolExecutor(_READERS) as readers:
            tables = list(readers.map(read, files))
    except (UnreadableFile, OSError) as error:
        reason = error.message if isinstance(error, UnreadableFile) else f"{table.uri}: {error}"
        hint = (
            "run `mm2mgr throughput`: it makes again what is gone or cut off and has samples; if this stays, move"
            f" {table.uri} away first"
        )
        raise Mm2mgrError(f"a roll-up is not readable: {reason}", hint=hint) from error
    return _as_arrays(_in_one_chunk(tables or [table.no_rows(names)]))


def rows_of_roll_up(roll_up: RollUp, names: RateRows, sources: Sequence[str]) -> pa.Table:
    """Return roll-ups as rows of a file of the table, sorted by name; `partition_id` is a place in `names`."""
    at, source = roll_up.values["partition_id"], roll_up.values["source"]
    codes = {name: names.values[name][at] for name in ("cluster", "topic", "partition", "topic_id")}
    order = np.lexsort(
        [
            source,
            codes["topic_id"],
            codes["partition"],
            _ranks(names.topics)[codes["topic"]],
            _ranks(names.clusters)[codes["cluster"]],
        ]
    )
    texts: dict[str, Sequence[str | None]] = {
        "cluster": names.clusters,
        "topic": names.topics,
        "topic_id": names.topic_ids,
    }
    columns = {name: _text(codes[name], texts[name]) for name in texts}
    columns |= {"partition": pa.array(codes["partition"], pa.int32()), "source": _text(source, sources)}
    for name in ROLLUP_COLUMNS:
        values = roll_up.values[name]
        if name in LISTS:
            columns[name] = pa.ListArray.from_arrays(pa.array(roll_up.offsets), pa.array(values))
        elif name not in ("partition_id", "source"):
            columns[name] = pa.array(values, from_pandas=True)  # NaN becomes null
    rows = pa.table(columns)
    return rows.take(pa.array(order)) if (np.diff(order) != 1).any() else rows


def write_rows(
    table: StoredTable, period: Sequence[str], rows: pa.Table, *, keep_empty: bool = False
) -> DataFile | None:
    """Write rows, sorted by name, to a file that is in no commit yet; None where there are none, unless
    `keep_empty`."""
    schema = table.file_schema
    rows = pa.table([rows[column.name].cast(column.type) for column in schema], schema=schema)
    encoding = {"use_dictionary": list(STRINGS), "column_encoding": _DELTA}
    return table.write_file(period, [rows], keep_empty=keep_empty, encoding=encoding)


def unreachable(store: Store, error: OSError | MissingFile) -> Mm2mgrError:
    """Return the error about tables that this machine does not see, or where it may not write."""
    # What to do is part of the message: Spark passes nothing else on, and not more than a few hundred characters.
    number = errno.ENOENT if isinstance(error, MissingFile) else error.errno
    reason = os.strerror(number) if number else str(error)[:100]
    return Mm2mgrError(
        f"{socket.gethostname()} cannot read or write the tables of {store}: {reason};"
        " every machine that runs executors needs this folder, or a URI that all of them reach"
    )


def _in_one_chunk(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1 and all(column.num_chunks == 1 for column in tables[0].columns):
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _as_arrays(table: pa.Table) -> RateRows:
    values: dict[str, Array] = {}
    texts: dict[str, list[Any]] = {}
    offsets = np.zeros(len(table) + 1, np.int32)
    for name in table.column_names:
        if name in STRINGS:
            texts[name], values[name] = codes_of(table[name])
            continue
        column = table[name].chunk(0) if table[name].num_chunks else table[name].combine_chunks()
        if name in LISTS:
            ends = column.offsets.to_numpy() if len(column) else offsets
            offsets = ends - ends[0]
            values[name] = column.values.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]]
        else:
            values[name] = column.to_numpy(zero_copy_only=False)  # a null among floats is NaN by itself
    return RateRows(values, offsets, texts["cluster"], texts["topic"], texts["topic_id"], texts["source"])


def _text(codes: Array, texts: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(texts), pa.string()))


def _ranks(names: Sequence[str]) -> Array:
    ranks = np.zeros(max(1, len(names)), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _places_of(names: Sequence[str], among: Sequence[str]) -> Array:
    places = {name: place for place, name in enumerate(among)}
    return np.array([places.get(name, -1) for name in names] or [-1], np.int64)


def _keys(cluster: Array, topic: Array, partition: Array, topics: int) -> Array:
    return (cluster * max(topics, 1) + topic) * 2**20 + partition  # a million partitions a topic is more than any has

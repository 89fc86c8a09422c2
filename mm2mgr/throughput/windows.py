"""Throughput of any window of whole hours, from roll-ups alone: no Spark, no JVM, no samples.

Means, maxima and counts are exact; p50 and p95 are exact where one hour of one source is all there is, else from merged
sketches: at most 2 % off, and up to 4 % where the record size of a part of the hours is borrowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_MS, Store, hour_of, hour_start_ms, hours_text, utc_text
from mm2mgr.samples.tables import DataFile, by_period
from mm2mgr.throughput.rollup import (
    DAY_COLUMNS,
    PartitionNames,
    RateRows,
    hours_of_day,
    is_hour,
    merge_buckets,
    no_names,
    past_hours,
    percentile,
    rate_of,
    read_rows,
    shift_buckets,
    throughput_table,
)

if TYPE_CHECKING:
    from mm2mgr.throughput.rollup import Array

Value = TypeVar("Value")

_SIZES = ("samples", "bytes", "record_bytes")
_DAY_LENGTH = len("2026-11-21")
Sums: TypeAlias = "tuple[Array, Array]"
"""Sum of record sizes and their number, by partition."""


@dataclass(frozen=True)
class Window:
    """Whole hours, first to last, such as 2026-11-21T10, and the periods whose rows describe them, each with its files.

    A day stands for its hours where all of them are in the window; of long ago there are only days, and no hours.
    """

    hours: tuple[str, ...]
    periods: tuple[str, ...]
    files: Mapping[str, Sequence[DataFile]] = field(repr=False, compare=False, default_factory=dict)

    def last(self, count: int) -> Window:
        """Return the newest hours of the window; for reading hour by hour."""
        return self.only(self.hours[-count:])

    def only(self, hours: Sequence[str]) -> Window:
        """Return some hours of the window, to be read hour by hour."""
        return replace(self, hours=tuple(hours), periods=tuple(hours))

    def files_of(self, periods: Iterable[str]) -> list[DataFile]:
        """Return the files of these hours or days."""
        return [file for period in periods for file in self.files[period]]

    def text(self) -> str:
        """Say which hours these are."""
        past = [period for period in self.periods if not is_hour(period) and period < self.hours[0][:_DAY_LENGTH]]
        days = f" and {len(past)} days" if past else ""
        first = past[0] if past else self.hours[0] if self.hours else ""
        return f"{first} to {self.hours[-1]} (UTC, {len(self.hours)} h{days})" if self.hours else "no hour"


@dataclass(frozen=True)
class Throughput:
    """One entry per partition that has a roll-up in the window, ordered by cluster, topic and partition number.

    `place` is the position of the partition in `names`. Rates are per second, NaN where unknown; `sources` are what the
    window was measured by.
    """

    window: Window
    names: PartitionNames
    sources: tuple[str, ...]
    place: Array
    values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.place)


@dataclass(frozen=True)
class PartitionRate:
    """The rates of one partition in a window; the field names are the columns of the result.

    `samples` counts distinct moments, `covered_seconds` the time that has a rate. Rates are None where the window
    has no usable interval; bytes are None also where no record size is known anywhere in the cluster.
    Percentiles are weighted by time: p95 is the rate that was not exceeded during 95 % of the covered seconds.
    """

    cluster: str
    topic: str
    partition: int
    window_start_ms: int
    window_end_ms: int
    samples: int
    covered_seconds: float
    resets: int
    gaps: int
    bytes_per_second_mean: float | None
    bytes_per_second_p50: float | None
    bytes_per_second_p95: float | None
    bytes_per_second_max: float | None
    records_per_second_mean: float | None
    records_per_second_p50: float | None
    records_per_second_p95: float | None
    records_per_second_max: float | None
    record_bytes: float | None


def choose(store: Store, since_ms: int | None = None) -> Window:
    """Find the hours from a moment on (None: all); Mm2mgrError when none has a roll-up."""
    return _choose_window(store, by_period(throughput_table(store).files()), since_ms)


def _choose_window(store: Store, files: Mapping[str, Sequence[DataFile]], since_ms: int | None) -> Window:
    all_hours = past_hours(files)  # an hour in the future is not the newest
    if not all_hours:
        raise Mm2mgrError(f"{store} holds no throughput", hint="run `mm2mgr throughput` first")
    first = "" if since_ms is None else hour_of(since_ms)
    hours = [hour for hour in all_hours if first <= hour]
    if since_ms is not None and not hours:
        hint = hours_text(all_hours).replace("samples exist", "roll-ups exist")
        raise Mm2mgrError(f"no throughput since {utc_text(since_ms / 1000)} in {store}", hint=hint)
    inside, with_hours = set(hours), {hour[:_DAY_LENGTH] for hour in filter(is_hour, files)}
    days = {period: hours_of_day(files[period][0]) for period in files if not is_hour(period)}
    merged_days = {day: of_day for day, of_day in days.items() if day in with_hours and of_day <= inside}
    past = [day for day in days if day not in with_hours and first <= f"{day}T00"]
    loose = inside.difference(*merged_days.values())
    return Window(tuple(hours), tuple(sorted([*merged_days, *past, *loose])), files)


def last_hours(store: Store, seconds: float | None) -> Window:
    """Choose the newest hours that make up at least this time; None: all of them."""
    everything = choose(store)
    if seconds is None:
        return everything
    count = max(1, -(-round(seconds * 1000) // HOUR_MS))
    return _choose_window(store, everything.files, hour_start_ms(everything.hours[-1]) - (count - 1) * HOUR_MS)


def read_throughput(store: Store, last_seconds: float | None = None) -> list[PartitionRate]:
    """Return the rates of the last whole hours of a store, or of all; ordered by cluster, topic and partition.

    Mm2mgrError when the store has no roll-up.
    """
    return rates_of(read_window(store, last_hours(store, last_seconds)))


def busiest(throughput: Throughput, top: int) -> Array:
    """Return the rows of the partitions with the highest p95 in bytes per second, busiest first; 0 is all of them."""
    order = np.argsort(-np.nan_to_num(throughput.values["bytes_per_second_p95"], nan=-1.0), kind="stable")
    return order[:top] if top else order


def rates_of(throughput: Throughput, rows: Array | None = None) -> list[PartitionRate]:
    """Return one value per partition, of all or of some rows; what is not known is None."""
    names, chosen = throughput.names, slice(None) if rows is None else rows
    place = throughput.place[chosen]
    clusters = [names.clusters[number] for number in names.cluster[place].tolist()]
    topics = [names.topics[number] for number in names.topic[place].tolist()]
    fields = list(PartitionRate.__dataclass_fields__)[3:]
    columns = [_plain(throughput.values[name][chosen].tolist()) for name in fields]
    return [
        PartitionRate(*row) for row in zip(clusters, topics, names.partition[place].tolist(), *columns, strict=True)
    ]


def read_window(store: Store, window: Window) -> Throughput:
    """Merge the roll-ups of a window to one entry per partition."""
    rows = read_rows(throughput_table(store), window.files_of(window.periods), DAY_COLUMNS)
    names = no_names().with_rows(rows)
    group = names.places(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = _no_sums(names)
        sizes = _chosen_sizes(store, sums, _add_sizes(sums, rows, names), names)
    values = _merge(rows, group, len(names), sizes)
    return Throughput(window, names, tuple(sorted(rows.sources)), np.arange(len(names)), values)


def record_sizes(store: Store, window: Window, names: PartitionNames) -> Array:
    """Return the mean record size of every partition of `names`, as `read_window` finds it for these hours."""
    table, sums = throughput_table(store), _no_sums(names)
    missing = np.zeros(len(names), np.bool_)
    for period in window.periods:
        rows = read_rows(table, window.files_of([period]), _SIZES)
        missing |= _add_sizes(sums, rows, names)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _chosen_sizes(store, sums, missing, names)


def _merge(rows: RateRows, group: Array, count: int, size: Array) -> dict[str, Array]:
    raw = rows.values

    def total(column: Array) -> Array:
        return np.bincount(group, weights=column, minlength=count)

    def known_total(column: Array, weight: Array) -> tuple[Array, Array]:
        has_value = np.isfinite(column)
        return total(np.where(has_value, column, 0.0)), total(np.where(has_value, weight, 0.0))

    seconds = raw["covered_ms"] / 1000.0
    with np.errstate(invalid="ignore", divide="ignore"):
        volume = np.where(np.isnan(raw["bytes"]), raw["records"] * size[group], raw["bytes"])
        byte_sum, byte_seconds = known_total(volume, seconds)
        record_sum, record_seconds = known_total(raw["records"], seconds)
        values = {
            "window_start_ms": _least(raw["first_ms"], group, count),
            "window_end_ms": -_least(-raw["last_ms"], group, count),
            "samples": total(raw["samples"]).astype(np.int64),
            "covered_seconds": total(seconds),
            "resets": total(raw["resets"]).astype(np.int64) + _logs(rows, group, count) - 1,
            "gaps": total(raw["gaps"]).astype(np.int64),
            "bytes_per_second_mean": byte_sum / byte_seconds,
            "records_per_second_mean": record_sum / record_seconds,
            "record_bytes": size,
        }
        factor = np.where(np.isnan(raw["bytes"]), size[group], 1.0)
        peak = np.where(np.isnan(raw["bytes"]), raw["records_max"] * size[group], raw["bytes_max"])
        values["bytes_per_second_max"] = -_least(-np.nan_to_num(peak, nan=-np.inf), group, count)
        values["records_per_second_max"] = -_least(-np.nan_to_num(raw["records_max"], nan=-np.inf), group, count)
        values |= _percentiles(rows, group, count, factor, values)
    return {
        name: np.where(np.isinf(column), np.nan, column) if column.dtype.kind == "f" else column
        for name, column in values.items()
    }


def _percentiles(rows: RateRows, group: Array, count: int, factor: Array, values: dict[str, Array]) -> dict[str, Array]:
    """Take percentiles from the roll-up where a partition has one, else from the sketches of all of its roll-ups.

    A partition without a byte count anywhere keeps its sketch of records, which is multiplied at the end; else what was
    counted in records is moved by its size first, and records are bytes over the mean size.
    """
    raw = rows.values
    lengths = np.diff(rows.offsets)
    in_records = np.bincount(group[np.isfinite(raw["bytes"])], minlength=count) == 0
    factors = np.where(in_records[group], 1.0, factor)
    buckets, weights = raw["sketch_buckets"], raw["sketch_ms"]
    if (factors != 1.0).any():
        counted = np.repeat(np.isfinite(factors), lengths)  # else in records of unknown size, beside bytes
        lengths = np.where(np.isfinite(factors), lengths, 0)
        buckets, weights = buckets[counted], weights[counted]
        buckets = shift_buckets(buckets, np.repeat(factors, lengths))
    number, bucket, weight = merge_buckets(group, lengths, buckets, weights)
    to_records = np.where(in_records, 1.0, values["records_per_second_mean"] / values["bytes_per_second_mean"])
    to_bytes = np.where(in_records, values["record_bytes"], 1.0)
    alone = np.bincount(group, minlength=count)[group] == 1
    exact = alone & (np.isfinite(raw["bytes_p50"]) | np.isfinite(raw["records_p50"]))
    percentiles: dict[str, Array] = {}
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        rate = percentile(number, rate_of(bucket), weight, share, count)
        volume = np.minimum(rate * to_bytes, values["bytes_per_second_max"])
        records = np.minimum(rate * to_records, values["records_per_second_max"])
        own = np.where(np.isnan(raw[f"bytes_{name}"]), raw[f"records_{name}"] * factor, raw[f"bytes_{name}"])
        volume[group[exact]], records[group[exact]] = own[exact], raw[f"records_{name}"][exact]
        percentiles[f"bytes_per_second_{name}"], percentiles[f"records_per_second_{name}"] = volume, records
    return percentiles


def _chosen_sizes(store: Store, of_window: Sums, missing: Array, names: PartitionNames) -> Array:
    """Return the mean record size of every partition: its own in the window, else its own at any other time, else its
    topic's, else its cluster's, else NaN. `missing`: which partitions have a row without bytes in the window."""
    if not (missing & (of_window[1] == 0)).any():
        return _mean_sizes(of_window, names)
    table, everything, sums = throughput_table(store), choose(store), _no_sums(names)
    for period in everything.periods:
        _add_sizes(sums, read_rows(table, everything.files_of([period]), _SIZES), names)
    return np.where(of_window[1] > 0, of_window[0] / of_window[1], _mean_sizes(sums, names))


def _no_sums(names: PartitionNames) -> Sums:
    return np.zeros(len(names)), np.zeros(len(names))


def _add_sizes(sums: Sums, rows: RateRows, names: PartitionNames) -> Array:
    place, raw = names.places(rows), rows.values
    is_sized = np.isfinite(raw["record_bytes"]) & (place >= 0)
    at, weight = place[is_sized], raw["samples"][is_sized]
    sums[0][:] += np.bincount(at, raw["record_bytes"][is_sized] * weight, len(names))
    sums[1][:] += np.bincount(at, weight, len(names))
    unsized = place[np.isnan(raw["bytes"]) & (place >= 0)]
    return np.bincount(unsized, minlength=len(names)) > 0


def _mean_sizes(sums: Sums, names: PartitionNames) -> Array:
    topic = names.cluster * max(len(names.topics), 1) + names.topic

    def mean_over(key: Array) -> Array:
        _, group = np.unique(key, return_inverse=True)
        return (np.bincount(group, sums[0]) / np.bincount(group, sums[1]))[group] if len(key) else np.zeros(0)

    size = sums[0] / sums[1]
    for key in (topic, names.cluster):
        size = np.where(np.isfinite(size), size, mean_over(key))
    return size


def _least(column: Array, group: Array, count: int) -> Array:
    smallest = np.full(count, np.iinfo(np.int64).max if column.dtype.kind == "i" else np.inf, column.dtype)
    np.minimum.at(smallest, group, column)
    return smallest


def _logs(rows: RateRows, group: Array, count: int) -> Array:
    ids = rows.values["topic_id"].astype(np.int64)
    has_id = np.array([topic_id is not None for topic_id in rows.topic_ids] or [True], np.bool_)[ids]
    pairs = np.unique(group[has_id].astype(np.int64) * max(1, len(rows.topic_ids)) + ids[has_id])
    return np.maximum(1, np.bincount(pairs // max(1, len(rows.topic_ids)), minlength=count))


def _plain(column: list[Value]) -> list[Value | None]:
    return [None if value != value else value for value in column]  # noqa: PLR0124  # NaN alone differs from itself

"""Throughput of any window of whole hours, from roll-ups alone: no Spark, no JVM, no samples.

In go a store and a window, out come columns by partition. Means, maxima and counts are exact; p50 and p95 are exact
where one hour of one source is all there is, else from merged sketches: at most 2 % off, and up to 4 % where the record
size of a part of the hours is borrowed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.samples.clock import ahead
from mm2mgr.samples.schema import DAY_PREFIX, HOUR_PREFIX, hour_of, hour_start_ms, hours_text, window_text
from mm2mgr.throughput.hours import check_layout, rollup_directory
from mm2mgr.throughput.names import Names, read_names
from mm2mgr.throughput.parts import read_parts
from mm2mgr.throughput.plan import finished, made_from
from mm2mgr.throughput.rollup import ROLLUP_COLUMNS, RollUp
from mm2mgr.throughput.sketch import merged, percentile, rate_of, shifted

HOUR_MS = 3_600_000
STATISTICS = ("mean", "p50", "p95", "max")
_HOURLY = ("partition_id", "covered_ms", "records", "bytes", "record_bytes")


@dataclass(frozen=True)
class Window:
    """Whole hours, first to last, such as 2026-11-21T10; the hours and days whose roll-ups tell about them."""

    hours: tuple[str, ...]
    days: tuple[str, ...]
    loose_hours: tuple[str, ...]

    def last(self, count: int) -> Window:
        """Return the newest hours of the window; for reading hour by hour."""
        return Window(self.hours[-count:], (), self.hours[-count:])

    def text(self) -> str:
        """Say which hours these are."""
        return f"{self.hours[0]} to {self.hours[-1]} (UTC, {len(self.hours)} h)" if self.hours else "no hour"


@dataclass(frozen=True)
class Throughput:
    """One entry a partition that has a roll-up in the window, ordered by cluster, topic and partition number.

    `place` is where the partition stands in `names`. Rates are per second, NaN where unknown; `sources` are what the
    window was measured by.
    """

    window: Window
    names: Names
    sources: tuple[str, ...]
    place: Any
    values: dict[str, Any]

    def __len__(self) -> int:
        return len(self.place)


def choose(store: Path, since_ms: int | None = None, until_ms: int | None = None) -> Window:
    """Find the hours that a window touches (since inclusive, until exclusive); Mm2mgrError when none has a roll-up."""
    check_layout(store)
    found = finished(store, HOUR_PREFIX)
    if not found:
        raise Mm2mgrError(f"{store} holds no throughput", hint="run `mm2mgr throughput` first")
    # The newest hours are those of now; where all are ahead, it is this machine's clock that is wrong.
    known = found[: len(found) - len(ahead(found, time.time_ns() // 1_000_000))] or found
    first = "" if since_ms is None else hour_of(since_ms)
    last = "~" if until_ms is None else hour_of(until_ms - 1)
    hours = [hour for hour in known if first <= hour <= last]
    if not hours:
        hint = hours_text(known).replace("samples exist", "roll-ups exist")
        raise Mm2mgrError(f"no throughput {window_text(since_ms, until_ms)} in {store}", hint=hint)
    inside, days, merged_hours = set(hours), [], set[str]()
    for day in finished(store, DAY_PREFIX):
        of_day = (made_from(store, f"{DAY_PREFIX}{day}") or {"hours": {}})["hours"].keys()
        if of_day and of_day <= inside:
            days.append(day)
            merged_hours |= of_day
    return Window(tuple(hours), tuple(days), tuple(hour for hour in hours if hour not in merged_hours))


def last_hours(store: Path, seconds: float | None) -> Window:
    """Choose the newest hours that make up at least this time; None: all of them."""
    everything = choose(store)
    if seconds is None:
        return everything
    count = max(1, -(-round(seconds * 1000) // HOUR_MS))
    return choose(store, hour_start_ms(everything.hours[-1]) - (count - 1) * HOUR_MS)


def read_window(store: Path, window: Window) -> Throughput:
    """Merge the roll-ups of a window to one entry a partition."""
    rows, sources = read_parts(_paths(store, window), list(ROLLUP_COLUMNS))
    if _merged_hours(store, window.days) != set(window.hours) - set(window.loose_hours):
        # A job merged one of the days anew meanwhile, maybe with hours that were just added to it: take the hours alone.
        window = Window(window.hours, (), window.hours)
        rows, sources = read_parts(_paths(store, window), list(ROLLUP_COLUMNS))
    names = read_names(store)
    known, group = np.unique(names.places(rows.values["partition_id"]), return_inverse=True)
    if len(known) and known[0] < 0:
        raise Mm2mgrError(f"the dictionary of {store} lacks partitions that were sampled", hint="restore its files")
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = _sizes(store, rows, names)
    values = _merge(rows, group, len(known), sizes[known])
    return Throughput(window, names, tuple(sorted(sources)), known, values)


def hourly(store: Path, window: Window, found: Throughput) -> Any:
    """Return bytes per second of every hour: an array of partitions × hours, NaN where nothing is known.

    Partitions that a job has added since `found` was read are left out.
    """
    table = np.full((len(found), len(window.hours)), np.nan)
    where = np.full(len(found.names) + 1, -1, np.int64)  # the last is for ids without a name
    where[found.place] = np.arange(len(found))
    for number, hour in enumerate(window.hours):
        rows, _ = read_parts(parts_of(store, f"{HOUR_PREFIX}{hour}"), _HOURLY)
        place = where[found.names.places(rows.values["partition_id"])]
        size = np.append(found.values["record_bytes"], np.nan)[place]
        volume = np.where(np.isnan(rows.values["bytes"]), rows.values["records"] * size, rows.values["bytes"])
        told = np.isfinite(volume) & (place >= 0)
        seconds = np.bincount(place[told], rows.values["covered_ms"][told] / 1000, len(found))
        with np.errstate(invalid="ignore", divide="ignore"):
            table[:, number] = np.bincount(place[told], volume[told], len(found)) / seconds
    return table


def record_sizes(store: Path, window: Window, names: Names) -> Any:
    """Return the mean record size of every partition of the dictionary, as `read_window` finds it for these hours."""
    rows, _ = read_parts(_paths(store, window), ("partition_id", "samples", "bytes", "record_bytes"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return _sizes(store, rows, names)


def _merge(rows: RollUp, group: Any, count: int, size: Any) -> dict[str, Any]:
    raw = rows.values

    def total(column: Any) -> Any:
        return np.bincount(group, weights=column, minlength=count)

    def known_total(column: Any, weight: Any) -> tuple[Any, Any]:
        known = np.isfinite(column)
        return total(np.where(known, column, 0.0)), total(np.where(known, weight, 0.0))

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
            "resets": total(raw["resets"]).astype(np.int64) + _logs(raw["partition_id"], group, count) - 1,
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
        name: np.where(np.isinf(one), np.nan, one) if one.dtype.kind == "f" else one for name, one in values.items()
    }


def _percentiles(rows: RollUp, group: Any, count: int, factor: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Take percentiles from the roll-up where a partition has one, else from the sketches of all of its roll-ups.

    A partition without a byte count anywhere keeps its sketch of records, which is multiplied at the end; else what was
    counted in records is moved by its size first, and records are bytes over the mean size.
    """
    raw = rows.values
    lengths = np.diff(rows.offsets)
    in_records = np.bincount(group[np.isfinite(raw["bytes"])], minlength=count) == 0
    factors = np.where(in_records[group], 1.0, factor)
    buckets = raw["sketch_buckets"]
    if (factors != 1.0).any():
        buckets = shifted(buckets, np.repeat(factors, lengths))
    number, bucket, weight = merged(group, lengths, buckets, raw["sketch_ms"])
    to_records = np.where(in_records, 1.0, values["records_per_second_mean"] / values["bytes_per_second_mean"])
    to_bytes = np.where(in_records, values["record_bytes"], 1.0)
    alone = np.bincount(group, minlength=count)[group] == 1
    exact = alone & (np.isfinite(raw["bytes_p50"]) | np.isfinite(raw["records_p50"]))
    found: dict[str, Any] = {}
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        rate = percentile(number, rate_of(bucket), weight, share, count)
        volume = np.minimum(rate * to_bytes, values["bytes_per_second_max"])
        records = np.minimum(rate * to_records, values["records_per_second_max"])
        told = np.where(np.isnan(raw[f"bytes_{name}"]), raw[f"records_{name}"] * factor, raw[f"bytes_{name}"])
        volume[group[exact]], records[group[exact]] = told[exact], raw[f"records_{name}"][exact]
        found[f"bytes_per_second_{name}"], found[f"records_per_second_{name}"] = volume, records
    return found


def _sizes(store: Path, rows: RollUp, names: Names) -> Any:
    """Return the mean record size of every partition of the dictionary: its own in the window, else its own at any other
    time, else its topic's, else its cluster's, else NaN."""
    of_window = _size_sums(rows, names)
    missing = np.isnan(rows.values["bytes"])
    if not (missing & (of_window[1][names.of_id[rows.values["partition_id"]]] == 0)).any():
        return _mean_sizes(of_window, names)
    everything, _ = read_parts(_paths(store, choose(store)), ("partition_id", "samples", "record_bytes"))
    return np.where(of_window[1] > 0, of_window[0] / of_window[1], _mean_sizes(_size_sums(everything, names), names))


def _size_sums(rows: RollUp, names: Names) -> tuple[Any, Any]:
    """Return the sum of record sizes and how many they are, by partition."""
    place = names.places(rows.values["partition_id"])
    known = np.isfinite(rows.values["record_bytes"]) & (place >= 0)
    place, weight = place[known], rows.values["samples"][known]
    sums = np.bincount(place, rows.values["record_bytes"][known] * weight, len(names))
    return sums, np.bincount(place, weight, len(names))


def _mean_sizes(sums: tuple[Any, Any], names: Names) -> Any:
    topic = names.cluster * max(len(names.topics), 1) + names.topic

    def mean_over(key: Any) -> Any:
        _, group = np.unique(key, return_inverse=True)
        return (np.bincount(group, sums[0]) / np.bincount(group, sums[1]))[group] if len(key) else np.zeros(0)

    size = sums[0] / sums[1]
    for key in (topic, names.cluster):
        size = np.where(np.isfinite(size), size, mean_over(key))
    return size


def _least(column: Any, group: Any, count: int) -> Any:
    found = np.full(count, np.iinfo(np.int64).max if column.dtype.kind == "i" else np.inf, column.dtype)
    np.minimum.at(found, group, column)
    return found


def _logs(ids: Any, group: Any, count: int) -> Any:
    """Return how many ids each partition had: every one after the first is a topic created anew."""
    pairs = np.unique(group.astype(np.int64) * (int(ids.max(initial=0)) + 1) + ids)
    return np.bincount(pairs // (int(ids.max(initial=0)) + 1), minlength=count)


def _merged_hours(store: Path, days: Sequence[str]) -> set[str]:
    marks = [made_from(store, f"{DAY_PREFIX}{day}") or {"hours": ()} for day in days]
    return {hour for mark in marks for hour in mark["hours"]}


def _paths(store: Path, window: Window) -> list[Path]:
    days = [path for day in window.days for path in parts_of(store, f"{DAY_PREFIX}{day}")]
    return days + [path for hour in window.loose_hours for path in parts_of(store, f"{HOUR_PREFIX}{hour}")]


def parts_of(store: Path, name: str) -> list[Path]:
    return listed(rollup_directory(store, name), "part-*.parquet")

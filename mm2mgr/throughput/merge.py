"""Roll-ups of the hours of a day merged into one of the day, so that a long window reads little.

Counts, sums, means and maxima merge exactly; the percentiles of a day are left to its sketch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mm2mgr.throughput.part_files import RateRows
from mm2mgr.throughput.rollup import ROLLUP_COLUMNS, RollUp
from mm2mgr.throughput.sketch import merged

DAY_COLUMNS = tuple(name for name in ROLLUP_COLUMNS if name not in ("partition_id", "source"))
_SUMS = ("samples", "covered_ms", "resets", "gaps")
_AMOUNTS = ("records", "bytes")
_PEAKS = ("bytes_max", "records_max")
_NOT_MERGED = ("bytes_p50", "bytes_p95", "records_p50", "records_p95")


def merge_day(hours: RateRows) -> tuple[RollUp, RateRows]:
    """Merge rows of hours: one for a log, source, and whether bytes are known; and the names of the logs by number.

    Hours with and hours without known record sizes stay apart, because their sketches count different things.
    """
    rows = hours.values
    order = sorted(range(len(hours.sources)), key=hours.sources.__getitem__)
    rank = np.argsort(order) if order else np.zeros(1, np.int64)
    log, first = _logs(hours)
    kinds = len(hours.sources) * 2 or 1
    unsized = np.isnan(rows["bytes"]).astype(np.int64)
    key = log * kinds + rank[rows["source"]] * 2 + unsized
    groups, group = np.unique(key, return_inverse=True)
    values: dict[str, Any] = {
        "partition_id": groups // kinds,
        "source": (groups % kinds // 2).astype(np.int32),
    }
    values |= _totals(rows, group, len(groups))
    number, buckets, weights = merged(group, np.diff(hours.offsets), rows["sketch_buckets"], rows["sketch_ms"])
    values |= {"sketch_buckets": buckets.astype(np.int16), "sketch_ms": weights.astype(np.int32)}
    offsets = np.append(0, np.cumsum(np.bincount(number, minlength=len(groups)))).astype(np.int32)
    names = {name: rows[name][first] for name in ("cluster", "topic", "partition", "topic_id")}
    ordered = [hours.sources[place] for place in order]
    of_logs = RateRows(
        names, np.zeros(len(first) + 1, np.int32), hours.clusters, hours.topics, hours.topic_ids, ordered
    )
    return RollUp(values, offsets), of_logs


def _logs(hours: RateRows) -> tuple[Any, Any]:
    """Return the number of each row's log, and the first row of each log."""
    rows = hours.values
    topic = (rows["cluster"].astype(np.int64) * len(hours.topics) + rows["topic"]) * len(hours.topic_ids) + rows[
        "topic_id"
    ]
    _, topic = np.unique(topic, return_inverse=True)
    _, first, log = np.unique(topic << 20 | rows["partition"], return_index=True, return_inverse=True)
    return log, first


def _totals(rows: Any, group: Any, count: int) -> dict[str, Any]:
    def total(column: Any) -> Any:
        return np.bincount(group, weights=column, minlength=count)

    found: dict[str, Any] = {name: total(rows[name]).astype(rows[name].dtype) for name in _SUMS}
    covered = np.isfinite(rows["bytes"]) | np.isfinite(rows["records"])
    for name in _AMOUNTS:
        # Unknown in one covered hour is unknown for the day; an hour without any interval adds nothing.
        lost = total((covered & np.isnan(rows[name])).astype(np.float64)) > 0
        none = total(covered.astype(np.float64)) == 0
        found[name] = np.where(lost | none, np.nan, total(np.nan_to_num(rows[name])))
    for name in _PEAKS:
        found[name] = np.full(count, -np.inf)
        np.maximum.at(found[name], group, np.nan_to_num(rows[name], nan=-np.inf))
        found[name] = np.where(np.isfinite(found[name]), found[name], np.nan)
    found["first_ms"], found["last_ms"] = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(found["first_ms"], group, rows["first_ms"])
    np.maximum.at(found["last_ms"], group, rows["last_ms"])
    known = np.isfinite(rows["record_bytes"])
    with np.errstate(invalid="ignore"):
        sizes = total(np.where(known, rows["record_bytes"] * rows["samples"], 0.0))
        found["record_bytes"] = sizes / total(np.where(known, rows["samples"], 0))
    return {**found, **{name: np.full(count, np.nan) for name in _NOT_MERGED}}

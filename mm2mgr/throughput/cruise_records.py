"""The records of Cruise Control's sample topic, decoded to Arrow batches: no client, no Spark.

It does not judge whether a value is believable; what is no sample has a reason instead of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

_HEAD = [("version", "i1"), ("leader", ">i4"), *((name, ">f8") for name in ("cpu", "disk", "in", "out"))]
_RATES = [(name, ">f8") for name in ("produce", "fetch", "records", "replication_in", "replication_out")]
_TAIL = [("time_ms", ">i8"), ("partition", ">i4")]
# Big-endian, after a version byte: leader, CPU, disk MB, in KB/s, out KB/s, (v1: produce, fetch, messages in,
# replication in and out, all per second, bytes in KB), sample time in ms, partition; the rest is the topic in UTF-8.
# KB = 1024 B.
_LAYOUTS = {0: np.dtype(_HEAD + _TAIL), 1: np.dtype(_HEAD + _RATES + _TAIL)}
_KIB, _MIB = 1024.0, 1024.0 * 1024.0
_YEAR_3000_MS = 32_503_680_000_000
_NUMBERS = {  # column: the field of the layout, and its unit
    "bytes_per_second": ("in", _KIB),
    "records_per_second": ("records", 1.0),
    "log_bytes": ("disk", _MIB),
    "bytes_out_per_second": ("out", _KIB),
    "replication_bytes_in_per_second": ("replication_in", _KIB),
    "replication_bytes_out_per_second": ("replication_out", _KIB),
    "produce_requests_per_second": ("produce", 1.0),
    "fetch_requests_per_second": ("fetch", 1.0),
    "cpu": ("cpu", 1.0),
}
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("cluster", "source", "topic")),
        ("partition", pa.int32()),
        ("time_ms", pa.int64()),
        ("resolution_ms", pa.int32()),
        *((name, pa.float64()) for name in _NUMBERS),
        ("leader", pa.int32()),
        ("record_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("skipped", pa.string()),
    ]
)
"""A row per record: the columns of `samples` that Cruise Control measures, in its units, and more that it knows (CPU
as a share of the broker's cores, requests, the leader's broker id), where the record is, and why it is no sample."""
ONLY_HERE = (
    "produce_requests_per_second",
    "fetch_requests_per_second",
    "cpu",
    "leader",
    "record_partition",
    "record_offset",
)
"""The columns that the table `samples` does not have."""


def decode_records(
    values: Sequence[bytes | None], places: Sequence[tuple[int, int]], cluster: str, source: str, resolution_ms: int
) -> pa.RecordBatch:
    """Decode the values of records, whose places are (partition, offset); a row for each, in their order."""
    reasons = [_objection(value) for value in values]
    whole = [reason is None for reason in reasons]
    columns: dict[str, Any] = {
        "cluster": [cluster] * len(values),
        "source": [source] * len(values),
        "topic": [None] * len(values),
        "resolution_ms": np.full(len(values), resolution_ms, np.int32),
        "record_partition": [partition for partition, _ in places],
        "record_offset": [offset for _, offset in places],
    }
    numbers = {field.name: np.zeros(len(values)) for field in SCHEMA if field.name in _NUMBERS}
    present = {name: np.zeros(len(values), np.bool_) for name in numbers}
    wholes = {name: np.zeros(len(values), np.int64) for name in ("time_ms", "partition", "leader")}
    for version, layout in _LAYOUTS.items():
        rows = [n for n in compress(range(len(values)), whole) if values[n][0] == version]  # type: ignore[index]
        heads = np.frombuffer(b"".join(values[n][: layout.itemsize] for n in rows), layout)  # type: ignore[index]
        for name, (field, unit) in _NUMBERS.items():
            if field in (layout.names or ()):
                numbers[name][rows], present[name][rows] = heads[field] * unit, True
        for name, column in wholes.items():
            column[rows] = heads[name]
        _decode_topics(values, rows, layout.itemsize, columns["topic"], reasons)
    untimed = (wholes["time_ms"] <= 0) | (wholes["time_ms"] >= _YEAR_3000_MS)
    for row in np.flatnonzero(untimed).tolist():
        reasons[row] = reasons[row] or "without a sample time"
    skipped = np.array([reason is not None for reason in reasons], np.bool_)
    columns |= {name: pa.array(column, pa.float64(), mask=skipped | ~present[name]) for name, column in numbers.items()}
    columns |= {name: pa.array(column, SCHEMA.field(name).type, mask=skipped) for name, column in wholes.items()}
    columns["topic"] = pa.array(columns["topic"], pa.string(), mask=skipped)
    columns["skipped"] = reasons
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _objection(value: bytes | None) -> str | None:
    if not value:
        return "without a value"
    layout = _LAYOUTS.get(value[0])
    if layout is None:
        return f"of unknown version {value[0]}"
    return "cut short" if len(value) <= layout.itemsize else None


def _decode_topics(
    values: Sequence[bytes | None], rows: Sequence[int], start: int, topics: list[str | None], reasons: list[str | None]
) -> None:
    names: dict[bytes, str | None] = {}
    for row in rows:
        raw = values[row][start:]  # type: ignore[index]
        if raw not in names:
            try:
                names[raw] = raw.decode()
            except UnicodeDecodeError:
                names[raw] = None
        topics[row] = names[raw]
        if topics[row] is None:
            reasons[row] = "with a topic that is not UTF-8"

"""The directory layout and the columns that writers and readers of samples share, as plain values.

In go and out come names, hours and sentences; it reads and writes nothing and imports no Parquet library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

LAYOUT_FILE = "LAYOUT"
LAYOUT = "mm2mgr samples, layout 2"
HOUR_PREFIX = "hour="
DAY_PREFIX = "day="
DICTIONARY = "dictionary"
ROLLUPS = "rollups"
COMPACTED_PREFIX = "ids-"
"""Start of the names of partition-major files; the other files of an hour are single polls."""

IDS_PER_ROW_GROUP = 4_096
IDS_PER_FILE = 65_536
"""Files of a closed hour and their row groups end at multiples of these, so ranges line up from hour to hour."""

SAMPLE_COLUMNS: Mapping[str, str] = {
    "partition_id": "int32",
    "time_ms": "int64",
    "end_offset": "int64",
    "start_offset": "int64",
    "records_per_second": "float64",
    "bytes_per_second": "float64",
    "record_bytes": "float64",
    "log_bytes": "int64",
    "resolution_ms": "int32",
    "source": "string",
}
"""Columns of hour=…/*.parquet with their Arrow types.

`time_ms` counts milliseconds since 1970 on the sampler's clock (UTC). `end_offset` is the high watermark. A rate covers
the `resolution_ms` that end with the millisecond `time_ms`, so a window up to 11:00 is filed under the hour of 10; 0 is a
moment. `record_bytes`: mean size of key, value and headers, uncompressed.
`log_bytes`: size of the leader's log on disk. What a source does not tell is null. A row is known by its partition,
time and source; where a crash left it twice, it counts once.
"""

DICTIONARY_COLUMNS: Mapping[str, str] = {
    "partition_id": "int32",
    "cluster": "string",
    "topic": "string",
    "partition": "int32",
    "topic_id": "string",
}
"""Columns of dictionary/*.parquet; a topic created anew has another `topic_id` (null before Kafka 2.8) and new ids."""

NEVER_NULL = frozenset({"partition_id", "time_ms", "resolution_ms", "source", "cluster", "topic", "partition"})

KAFKA_OFFSETS = "kafka-offsets"
CRUISE_CONTROL = "cruise-control"
CRUISE_CONTROL_TOPIC = "cruise-control-topic"
PROMETHEUS_PREFIX = "prometheus:"
"""Sources; behind Prometheus' stands the metric that was asked for."""

_HOUR = "%Y-%m-%dT%H"
_HOUR_MS = 3_600_000


def hour_of(time_ms: int) -> str:
    """Return the UTC hour that a moment belongs to, such as 2026-11-21T10."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime(_HOUR)


def hour_start_ms(hour: str) -> int:
    """Return the first millisecond of an hour such as 2026-11-21T10 (UTC); ValueError when it is none."""
    return round(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp() * 1000)


def hour_end_ms(hour: str) -> int:
    """Return the first millisecond after an hour."""
    return hour_start_ms(hour) + _HOUR_MS


def hours_text(hours: Sequence[str]) -> str:
    """Say in words which hours hold samples, for errors about an empty window."""
    if not hours:
        return "there are no samples yet: run `mm2mgr sample` first"
    if len(hours) == 1:
        return f"samples exist for the hour {hours[0]} (UTC)"
    return f"samples exist for {len(hours)} hours from {hours[0]} to {hours[-1]} (UTC)"


def window_text(since_ms: int | None, until_ms: int | None) -> str:
    """Say a time window in words, in UTC; None is an open side."""
    parts = [
        f"{word} {datetime.fromtimestamp(bound / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for word, bound in (("since", since_ms), ("until", until_ms))
        if bound is not None
    ]
    return " ".join(parts) or "at any time"

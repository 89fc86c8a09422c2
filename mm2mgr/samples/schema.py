"""The tables of a store: their names, columns, types and units, as plain values; and hours in words.

It imports no Parquet library and reads nothing. The reference page of the tables is generated from `TABLES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

from mm2mgr.metric_sources import METRIC_SOURCES

Store: TypeAlias = "str | Path"
"""Where the tables of a store are: a folder, or a URI such as s3://bucket/prefix."""
_URI = re.compile(r"^[a-z][a-z0-9+.-]+://")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):(/*)")
_OF_HADOOP = frozenset({"hdfs", "viewfs"})  # whose URIs may leave the server out
_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "lakefs"}) | _OF_HADOOP


class TableColumn(NamedTuple):
    """One column: its name, its Arrow type, the unit of its values and what they mean."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


_CLUSTER = TableColumn("cluster", "string", "", "alias of the Kafka cluster")
_TOPIC = TableColumn("topic", "string", "", "name of the topic")
_PARTITION = TableColumn("partition", "int32", "", "number of the partition in its topic")
_TOPIC_ID = TableColumn(
    "topic_id", "string", "", "id of the topic; a topic created anew has another one (null before Kafka 2.8)", True
)
KAFKA_OFFSETS = "kafka-offsets"
"""The source of Kafka's own offsets."""
_OTHERS = [kind.column for kind in METRIC_SOURCES]
_SOURCE = TableColumn("source", "string", "", f"{', '.join([KAFKA_OFFSETS, *_OTHERS[:-1]])} or {_OTHERS[-1]}")

SAMPLES, TASK_OFFSETS, THROUGHPUT, LOSSES, LAG = "samples", "task_offsets", "throughput", "losses", "lag"

TABLES: Mapping[str, tuple[TableColumn, ...]] = {
    SAMPLES: (
        TableColumn(
            "hour", "string", "UTC", "hour of `time_ms`, such as 2026-11-21T10; the table is partitioned by it"
        ),
        _CLUSTER,
        _TOPIC,
        _PARTITION,
        _TOPIC_ID,
        _SOURCE,
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "time of the sample; end of `resolution_ms` for rates"),
        TableColumn("resolution_ms", "int32", "ms", "time that the rates cover, ending with `time_ms`; 0 for a moment"),
        TableColumn("end_offset", "int64", "offset", "high watermark of the log", True),
        TableColumn("start_offset", "int64", "offset", "log start offset", True),
        TableColumn("records_per_second", "float64", "records/s", "measured rate, of sources that report rates", True),
        TableColumn("bytes_per_second", "float64", "B/s", "measured rate, of sources that report rates", True),
        TableColumn("record_bytes", "float64", "B", "mean size of key, value and headers, uncompressed", True),
        TableColumn("log_bytes", "int64", "B", "size of the leader's log on disk", True),
    ),
    TASK_OFFSETS: (
        TableColumn("hour", "string", "UTC", "hour of `time_ms`; the table is partitioned by it"),
        TableColumn("connect", "string", "", "name of the Connect cluster"),
        TableColumn("connector", "string", "", "name of the source connector"),
        TableColumn("source", "string", "", "alias of the source cluster"),
        TableColumn("target", "string", "", "alias of the target cluster"),
        TableColumn("settings", "string", "", "hash of the client settings that decide what a task can carry"),
        TableColumn("task", "int32", "", "number of the task"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when the committed offsets were read"),
        TableColumn("span_ms", "int64", "ms", "measured time before `time_ms`; 0 opens a new stretch"),
        TableColumn("bytes_per_second", "float64", "B/s", "what the lagging task carried in `span_ms`"),
        TableColumn("lag_records", "int64", "records", "lag of the task at least"),
        TableColumn("uncertain_ms", "int64", "ms", "the commit was made up to this long before `time_ms`"),
    ),
    THROUGHPUT: (
        TableColumn(
            "period",
            "string",
            "UTC",
            "an hour such as 2026-11-21T10 or a whole day such as 2026-11-21; partitioned by it",
        ),
        TableColumn(
            "made_from",
            "string",
            "",
            "what the period was made from: for an hour its samples and those of the hour before, for a day its hours;"
            " partitioned by it",
        ),
        _CLUSTER,
        _TOPIC,
        _PARTITION,
        _TOPIC_ID,
        _SOURCE,
        TableColumn("samples", "int32", "", "number of distinct sample times"),
        TableColumn("covered_ms", "int64", "ms", "time with a known rate"),
        TableColumn("records", "float64", "records", "records written in `covered_ms`", True),
        TableColumn("bytes", "float64", "B", "bytes written in `covered_ms`; null where no record size is known", True),
        TableColumn("resets", "int32", "", "how often the end offset went back"),
        TableColumn("gaps", "int32", "", "intervals too long to have a rate"),
        TableColumn("first_ms", "int64", "ms since 1970 UTC", "time of the first sample"),
        TableColumn("last_ms", "int64", "ms since 1970 UTC", "time of the last sample"),
        TableColumn("bytes_p50", "float64", "B/s", "median, weighted by time; null in days", True),
        TableColumn("bytes_p95", "float64", "B/s", "rate not exceeded in 95 % of the time; null in days", True),
        TableColumn("bytes_max", "float64", "B/s", "highest rate of an interval", True),
        TableColumn("records_p50", "float64", "records/s", "median, weighted by time; null in days", True),
        TableColumn("records_p95", "float64", "records/s", "rate not exceeded in 95 % of the time; null in days", True),
        TableColumn("records_max", "float64", "records/s", "highest rate of an interval", True),
        TableColumn("record_bytes", "float64", "B", "mean record size", True),
        TableColumn("sketch_buckets", "list<int16>", "", "rates as buckets k: (51/49)^k to (51/49)^(k+1) B/s", True),
        TableColumn("sketch_ms", "list<int32>", "ms", "time in each bucket; records/s where `bytes` is null", True),
    ),
    LOSSES: (
        TableColumn("owner", "string", "", "owner of the tree that declares the flow; the table is partitioned by it"),
        TableColumn("kind", "string", "", "loss, or acknowledgement of a range of offsets"),
        TableColumn("id", "string", "", "of flow, topic, topic id, partition, cause and `first_offset`"),
        TableColumn("flow", "string", "", "id of the flow, such as orders:a->b"),
        TableColumn("cluster", "string", "", "alias of the source cluster"),
        _TOPIC,
        TableColumn("topic_id", "string", "", "id of the topic whose offsets these are (null before Kafka 2.8)", True),
        _PARTITION,
        TableColumn("cause", "string", "", "retention, re-created, past-end or truncation"),
        TableColumn("evidence", "string", "", "how it was seen: log-start, target, offsets, topic-id or log-end"),
        TableColumn("first_offset", "int64", "offset", "first offset of the range"),
        TableColumn(
            "last_offset",
            "int64",
            "offset",
            "last offset of the range; null: up to the end of a log that is gone",
            True,
        ),
        TableColumn("records", "int64", "records", "lost in the range at most; null where nothing bounds it", True),
        TableColumn("least_records", "int64", "records", "lost in the range at least"),
        TableColumn(
            "since_ms", "int64", "ms since 1970 UTC", "the look before; null where this was the first one", True
        ),
        TableColumn(
            "time_ms", "int64", "ms since 1970 UTC", "the look that saw it, or the time of the acknowledgement"
        ),
        TableColumn("who", "string", "", "who acknowledged it", True),
        TableColumn("reason", "string", "", "why it was acknowledged", True),
    ),
    LAG: (
        TableColumn("hour", "string", "UTC", "hour in which the row was written; the table is partitioned by it"),
        TableColumn("owner", "string", "", "owner of the tree that declares the flow"),
        TableColumn("flow", "string", "", "id of the flow, such as orders:a->b"),
        TableColumn("home", "string", "", "id of the Kafka cluster that stores the flow's offsets"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "time of the look"),
        TableColumn("partitions", "int32", "", "partitions of the flow that were counted"),
        TableColumn("start_offsets", "int64", "offset", "sum of the log starts"),
        TableColumn("end_offsets", "int64", "offset", "sum of the log ends"),
        TableColumn("positions", "int64", "offset", "sum of the next offsets to mirror; ends less positions wait"),
    ),
}
"""Columns in order. A row of `samples` is known by cluster, topic, partition, topic id, source and time: repeated rows
count once. A day in `throughput` repeats what its hours say: read either hours (length of `period` 13) or days (10),
not both. Ranges in `losses` may overlap and repeat, as several processes write what each saw: they count once, less the
ranges acknowledged for the same partition, topic id and cause, as `mm2mgr losses` shows them. `lag` repeats what
earlier rows of an hour say, and keeps two hours.
"""

PARTITIONED_BY: Mapping[str, tuple[str, ...]] = {
    SAMPLES: ("hour",),
    TASK_OFFSETS: ("hour",),
    THROUGHPUT: ("period", "made_from"),
    LOSSES: ("owner",),
    LAG: ("hour",),
}


@dataclass(frozen=True)
class LossRow:
    """One row of `losses` without its owner, field by field: a range of offsets that may be lost, or its
    acknowledgement."""

    kind: str
    id: str
    flow: str
    cluster: str
    topic: str
    topic_id: str | None
    partition: int
    cause: str
    evidence: str
    first_offset: int
    last_offset: int | None
    records: int | None
    least_records: int
    since_ms: int | None
    time_ms: int
    who: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class SharedLag:
    """One row of `lag` without its hour and owner, field by field: what one look saw of a flow."""

    flow: str
    home: str
    time_ms: int
    partitions: int
    start_offsets: int
    end_offsets: int
    positions: int


HOUR_MS = 3_600_000
_HOUR = "%Y-%m-%dT%H"


def is_remote(store: Store) -> bool:
    """Say whether a store is at a URI instead of in a folder."""
    return _URI.match(str(store)) is not None


def store_of(text: str) -> Store:
    """Return the store that a user named: a URI as it is, else a folder; ValueError, as the end of a sentence, for what
    is neither.

    A variable that is empty must not make a folder out of what was meant to be a bucket.
    """
    if not text.strip():
        raise ValueError("is empty: is a variable not set?")
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if match is None or (not match[2] and scheme not in _SCHEMES):
        return Path(text)
    if scheme not in _SCHEMES:
        schemes = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        raise ValueError(f"begins with {match[0]}: name a folder, or a URI that begins with one of {schemes}")
    rest = text[match.end() :]
    leads = match[2] == "//" or (match[2] == "///" and scheme in _OF_HADOOP)
    if not leads or not rest.strip("/") or rest.startswith("/"):
        raise ValueError(f"names no bucket: write it as {scheme}://BUCKET/PREFIX (is a variable not set?)")
    if "@" in rest.partition("/")[0] and not scheme.startswith("abfs"):
        raise ValueError("has credentials in it: set them in the environment, such as AWS_ACCESS_KEY_ID")
    if "?" in text or "#" in text:
        raise ValueError("has a query in it: set credentials in the environment")
    if ".." in rest.split("/"):
        raise ValueError("has .. in it: name the place itself")
    return f"{scheme}:{match[2]}{rest.rstrip('/')}"


def log_file_of(store: Store, cache: Callable[[], Path]) -> Path:
    """Return the file that Spark's own messages go to: in a local store, else in the cache folder."""
    return (cache() if is_remote(store) else Path(store)) / "spark.log"


def hour_of(time_ms: int) -> str:
    """Return the UTC hour that a moment belongs to, such as 2026-11-21T10."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime(_HOUR)


def hour_start_ms(hour: str) -> int:
    """Return the first millisecond of an hour such as 2026-11-21T10 (UTC); ValueError when it is none."""
    return round(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp() * 1000)


def hour_end_ms(hour: str) -> int:
    """Return the first millisecond after an hour."""
    return hour_start_ms(hour) + HOUR_MS


def utc_text(seconds: float) -> str:
    """Return a time such as 2026-11-21T10:00:00Z."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def hours_text(hours: Sequence[str]) -> str:
    """Say in words which hours hold samples, for errors about an empty window."""
    if not hours:
        return "there are no samples yet: run `mm2mgr sample` first"
    if len(hours) == 1:
        return f"samples exist for the hour {hours[0]} (UTC)"
    return f"samples exist for {len(hours)} hours from {hours[0]} to {hours[-1]} (UTC)"

"""The tables of a store: their names, columns, types and units, as plain values; hours in words; and the clock.

It imports no Parquet library and reads nothing. The reference page of the tables is generated from `TABLES`. A jump of
the clock counts only after it has lasted, and retention asks the stored samples how much time has passed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

from mm2mgr import timing
from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.text import few, span_text

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
LAG_HISTORY = "lag_history"
AUDITS, FAILOVER_LOOKS, FAILOVER_CHECKS = "audits", "failover_looks", "failover_checks"
FAILOVER_REHEARSALS, STORED_SIZES = "failover_rehearsals", "stored_sizes"

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
        TableColumn("bytes_out_per_second", "float64", "B/s", "measured rate of what consumers read", True),
        TableColumn("replication_bytes_in_per_second", "float64", "B/s", "measured rate of followers' writes", True),
        TableColumn("replication_bytes_out_per_second", "float64", "B/s", "measured rate of followers' reads", True),
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
        TableColumn("kind", "string", "", "loss, audit (found by one), or acknowledgement of a range of offsets"),
        TableColumn("id", "string", "", "of flow, topic, topic id, partition, cause and `first_offset`"),
        TableColumn("flow", "string", "", "id of the flow, such as orders:a->b"),
        TableColumn("cluster", "string", "", "alias of the source cluster; of records that are extra, of the target"),
        _TOPIC,
        TableColumn("topic_id", "string", "", "id of the topic whose offsets these are (null before Kafka 2.8)", True),
        _PARTITION,
        TableColumn(
            "cause",
            "string",
            "",
            "retention, re-created, past-end, truncation or erased; an audit: missing, duplicated, altered, reordered,"
            " extra",
        ),
        TableColumn(
            "evidence", "string", "", "how it was seen: log-start, target, offsets, topic-id, log-end or records"
        ),
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
    LAG_HISTORY: (
        TableColumn("day", "string", "UTC", "day of `time_ms`; the table is partitioned by it"),
        TableColumn(
            "resolution", "string", "", "5min or 1h: the time of the clock that the row stands for; partitioned by it"
        ),
        TableColumn("owner", "string", "", "owner of the tree that declares the flow"),
        TableColumn("flow", "string", "", "id of the flow, such as orders:a->b"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "time of the last look in it"),
        TableColumn("partitions", "int32", "", "partitions of the flow that were counted then"),
        TableColumn("end_offsets", "int64", "offset", "sum of the log ends then"),
        TableColumn("positions", "int64", "offset", "sum of the next offsets to mirror then"),
        TableColumn(
            "lag_mean", "float64", "records", "mean of the rows of 5 min in an hour; null in rows of 5 min", True
        ),
        TableColumn("lag_max", "int64", "records", "most of the rows of 5 min in an hour; null in rows of 5 min", True),
        TableColumn(
            "covered_ms",
            "int64",
            "ms",
            "time of an hour with known rates; null in rows of 5 min, as the next two",
            True,
        ),
        TableColumn("produced", "int64", "records", "written to the source in `covered_ms`", True),
        TableColumn("mirrored", "int64", "records", "mirrored in `covered_ms`", True),
    ),
    AUDITS: (
        TableColumn("day", "string", "UTC", "day on which the audit began; the table is partitioned by it"),
        TableColumn("owner", "string", "", "owner of the tree that declares the flow"),
        TableColumn("flow", "string", "", "id of the flow, such as orders:a->b"),
        TableColumn("cluster", "string", "", "alias of the source cluster"),
        TableColumn("topic", "string", "", "topic on the source; empty where the whole flow could not be judged"),
        TableColumn("partition", "int32", "", "number of the partition on the source; -1 where the topic is empty"),
        TableColumn("target_topic", "string", "", "topic on the target"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when the audit began"),
        TableColumn("windows", "int32", "", "how many windows were compared; a sample has several"),
        TableColumn("source_first", "int64", "offset", "first offset of the first window of the source log"),
        TableColumn("source_end", "int64", "offset", "offset behind the last of them"),
        TableColumn("target_first", "int64", "offset", "first offset of the first window of the target log"),
        TableColumn("target_end", "int64", "offset", "offset behind the last of them"),
        TableColumn("source_records", "int64", "records", "records of the source that were compared"),
        TableColumn("target_records", "int64", "records", "records of the target that were compared"),
        TableColumn("missing", "int64", "records", "not on the target"),
        TableColumn("duplicated", "int64", "records", "on the target more than once"),
        TableColumn("altered", "int64", "records", "with another key, value, timestamp or headers"),
        TableColumn("reordered", "int64", "records", "in another order"),
        TableColumn("extra", "int64", "records", "on the target alone"),
        TableColumn("expected", "int64", "records", "that differ as the config says"),
        TableColumn(
            "not_judged", "string", "", "what could not be compared, with the reason; null where all was", True
        ),
        TableColumn("verdict", "string", "", "equal, differs or not judged"),
        TableColumn("engine", "string", "", "what did the work"),
        TableColumn("started_by", "string", "", "command, follow or serve"),
    ),
    FAILOVER_LOOKS: (
        TableColumn("owner", "string", "", "owner of the tree that declares the pair; the table is partitioned by it"),
        TableColumn("source", "string", "", "alias of the source cluster; partitioned by it"),
        TableColumn("target", "string", "", "alias of the target cluster; partitioned by it"),
        TableColumn(
            "kind",
            "string",
            "",
            "sync, group (what it committed) or end of a partition; anew: its topic was made anew on the source after"
            " that time; all syncs, all groups, all ends: the time at which all of them were read",
        ),
        TableColumn("group", "string", "", "name of the consumer group, of a group", True),
        TableColumn("topic", "string", "", "name of the topic on the source; empty where the row is of none"),
        TableColumn("partition", "int32", "", "number of the partition; -1 where the topic is empty"),
        TableColumn("place", "int32", "", "place of an offset sync among those kept of its partition, oldest first"),
        TableColumn(
            "offset",
            "int64",
            "offset",
            "on the source: of a sync, the next one that a group reads, or the end of the log (-1: not read); of all"
            " syncs the time of the newest one in ms since 1970 UTC",
        ),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when it was read"),
        TableColumn(
            "target_offset", "int64", "offset", "on the target: of a sync, or the end of the log (of anew: then)", True
        ),
        TableColumn(
            "stored_offset", "int64", "offset", "of an end: the offset behind the one that the connector stored", True
        ),
        TableColumn(
            "topic_id", "string", "", "of an end or anew: id of the topic on the source (null before Kafka 2.8)", True
        ),
        TableColumn("target_topic_id", "string", "", "of an end or anew: id of the topic on the target", True),
    ),
    FAILOVER_CHECKS: (
        TableColumn("day", "string", "UTC", "day of the check; the table is partitioned by it"),
        TableColumn("owner", "string", "", "owner of the tree that declares the pair"),
        TableColumn("source", "string", "", "alias of the source cluster"),
        TableColumn("target", "string", "", "alias of the target cluster"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when the check began"),
        TableColumn("verdict", "string", "", "GO, GO WITH, NO-GO or not judged"),
        TableColumn("reason", "string", "", "why it is no better one; empty for GO"),
        TableColumn("groups", "int32", "", "consumer groups that were judged"),
        TableColumn("groups_not_ready", "int32", "", "of these, NO-GO or not judged"),
        TableColumn("repeated", "int64", "records", "that would come again at most; null where not known", True),
        TableColumn("skipped", "int64", "records", "that would be skipped at most, where that is known"),
        TableColumn("lost", "int64", "records", "not on the target at most; null where not known", True),
        TableColumn(
            "lost_ms", "int64", "ms", "age of the oldest record that would be lost; null where not known", True
        ),
        TableColumn(
            "checkpoint_ms",
            "int64",
            "ms since 1970 UTC",
            "when the oldest of the groups' newest checkpoints was written; null where a group has none",
            True,
        ),
        TableColumn(
            "source_ms", "int64", "ms since 1970 UTC", "when the source was read; null where it never was", True
        ),
        TableColumn("started_by", "string", "", "command or serve"),
    ),
    FAILOVER_REHEARSALS: (
        TableColumn("day", "string", "UTC", "day of the rehearsal; the table is partitioned by it"),
        TableColumn("owner", "string", "", "owner of the tree that declares the pair"),
        TableColumn("source", "string", "", "alias of the source cluster"),
        TableColumn("target", "string", "", "alias of the target cluster"),
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when the rehearsal began"),
        TableColumn("verdict", "string", "", "good, good with, not good or not judged"),
        TableColumn("reason", "string", "", "why it is no better one; empty for good"),
        TableColumn("groups", "int32", "", "consumer groups that were rehearsed"),
        TableColumn("positions", "int32", "", "positions of these groups in partitions"),
        TableColumn("differing", "int32", "", "of these, with other records than the source has"),
        TableColumn("compared", "int64", "records", "that were compared with those of the source"),
        TableColumn("repeated", "int64", "records", "that came again"),
        TableColumn(
            "recovery_ms",
            "int64",
            "ms",
            "to judge, to write groups, and until the slowest group had its first record; null where not measured",
            True,
        ),
        TableColumn("started_by", "string", "", "command"),
    ),
    STORED_SIZES: (
        TableColumn("day", "string", "UTC", "day of the look; the table is partitioned by it"),
        TableColumn("cluster", "string", "", "alias of the Kafka cluster, a source or a target"),
        _TOPIC,
        TableColumn("time_ms", "int64", "ms since 1970 UTC", "when the topic was looked at"),
        TableColumn("record_bytes", "float64", "B", "mean size of key, value and headers, uncompressed"),
        TableColumn(
            "stored_bytes",
            "float64",
            "B",
            "mean of what a record takes in the log: compressed, with its share of the batch's header",
        ),
    ),
}
"""Columns in order. A row of `samples` is known by cluster, topic, partition, topic id, source and time: repeated rows
count once. A day in `throughput` repeats what its hours say: read either hours (length of `period` 13) or days (10),
not both. Ranges in `losses` may overlap and repeat, as several processes write what each saw: they count once, less the
ranges acknowledged for the same partition, topic id and cause, as `mm2mgr losses` shows them. `lag` repeats what
earlier rows of an hour say, and keeps two hours. What leaves it goes into `lag_history`, the newest look of each flow
and five minutes; two days later an hour becomes one row, and after 31 days it is removed. Rows of the same flow and
five minutes count once, the newest one, and of the same hour that which covers most. `audits` has a row per partition
and audit, and keeps 90 days. `failover_looks` has the newest of each key alone; `failover_checks` has a row per pair
and check, and keeps 90 days; `failover_rehearsals` a row per pair and rehearsal, and as many days. `stored_sizes` has a
row per topic and look, and keeps 400 days.
"""

PARTITIONED_BY: Mapping[str, tuple[str, ...]] = {
    SAMPLES: ("hour",),
    TASK_OFFSETS: ("hour",),
    THROUGHPUT: ("period", "made_from"),
    LOSSES: ("owner",),
    LAG: ("hour",),
    LAG_HISTORY: ("day", "resolution"),
    AUDITS: ("day",),
    FAILOVER_LOOKS: ("owner", "source", "target"),
    FAILOVER_CHECKS: ("day",),
    FAILOVER_REHEARSALS: ("day",),
    STORED_SIZES: ("day",),
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


@dataclass(frozen=True)
class AuditRow:
    """One row of `audits` without its day and owner, field by field: one partition of one audit."""

    flow: str
    cluster: str
    topic: str
    partition: int
    target_topic: str
    time_ms: int
    windows: int
    source_first: int
    source_end: int
    target_first: int
    target_end: int
    source_records: int
    target_records: int
    missing: int
    duplicated: int
    altered: int
    reordered: int
    extra: int
    expected: int
    not_judged: str | None
    verdict: str
    engine: str
    started_by: str


class KeptRow(NamedTuple):
    """One row of `failover_looks` without owner, source and target, field by field: one offset of the last look."""

    kind: str
    group: str | None
    topic: str
    partition: int
    place: int
    offset: int
    time_ms: int
    target_offset: int | None = None
    stored_offset: int | None = None
    topic_id: str | None = None
    target_topic_id: str | None = None


@dataclass(frozen=True)
class FailoverCheckRow:
    """One row of `failover_checks` without its day and owner, field by field: what one check of a pair came to."""

    source: str
    target: str
    time_ms: int
    verdict: str
    reason: str
    groups: int
    groups_not_ready: int
    repeated: int | None
    skipped: int
    lost: int | None
    lost_ms: int | None
    checkpoint_ms: int | None
    source_ms: int | None
    started_by: str


@dataclass(frozen=True)
class FailoverRehearsalRow:
    """One row of `failover_rehearsals` without its day and owner, field by field: what one rehearsal came to."""

    source: str
    target: str
    time_ms: int
    verdict: str
    reason: str
    groups: int
    positions: int
    differing: int
    compared: int
    repeated: int
    recovery_ms: int | None
    started_by: str


@dataclass(frozen=True)
class StoredSizeRow:
    """One row of `stored_sizes` without its day, field by field: what a record of a topic takes in its logs."""

    cluster: str
    topic: str
    time_ms: int
    record_bytes: float
    stored_bytes: float


HOUR_MS = 3_600_000
_DAY = "%Y-%m-%d"
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


def day_of(time_ms: int) -> str:
    """Return the UTC day that a moment belongs to, such as 2026-11-21."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime(_DAY)


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


_JUMP_SECONDS = 60.0
"""Smaller jumps are normal corrections of a clock: they harm no sample, and nothing waits for them."""
LASTING_SECONDS = 600.0
"""So long the clock must have stayed where it jumped to before samples carry its time."""
AHEAD_MS = 300_000
"""Clocks of machines differ by so much; a sample further ahead would end the newest window of every answer."""
_LONGEST_GAP_MS = 24 * HOUR_MS
_SHARE_OF_KEPT = 24


class News(list[str]):
    """Sentences that wait to be reported."""

    def take(self) -> list[str]:
        """Return them, and begin anew."""
        taken = list(self)
        self.clear()
        return taken


class TrustedClock:
    """This machine's clock beside a steady one; it is trusted as long as both go at the same speed."""

    def __init__(self) -> None:
        self._ahead = self.now_ms() / 1000 - timing.steady()
        self._jumped_to: float | None = None
        self._jumped_at = 0.0
        self.news = News()

    def is_trusted(self) -> bool:
        """Look at both clocks: False while this machine's has jumped, and not yet stayed there for long enough."""
        steady = timing.steady()
        ahead = self.now_ms() / 1000 - steady
        if abs(ahead - self._ahead) < _JUMP_SECONDS:
            if self._jumped_to is not None:
                self.news.append(f"the clock of this machine is back after {span_text(steady - self._jumped_at)}")
            self._ahead, self._jumped_to = ahead, None
            return True
        if self._jumped_to is None or abs(ahead - self._jumped_to) >= _JUMP_SECONDS:
            self._jumped_to, self._jumped_at = ahead, steady
            self.news.append(self._jump(ahead - self._ahead, ahead + steady))
            return False
        self._jumped_to = ahead
        if steady - self._jumped_at < LASTING_SECONDS:
            return False
        self._ahead, self._jumped_to = ahead, None
        self.news.append("the clock of this machine has stayed where it jumped to: samples carry its time from now on")
        return True

    def now_ms(self) -> int:
        """Return the time of this machine's clock."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def _jump(by_seconds: float, now_seconds: float) -> str:
        direction = "ahead" if by_seconds > 0 else "back"
        return (
            f"the clock of this machine jumped {direction} by {span_text(abs(by_seconds))}, to {_text(now_seconds)}:"
            f" nothing is sampled or removed until it is back, or has stayed there for {span_text(LASTING_SECONDS)}"
        )


def kept_since_ms(hours: Sequence[str], now_ms: int, keep_seconds: float) -> int:
    """Return the moment before which samples are older than `keep_seconds`, as far as the `hours` with samples bear
    that out.

    An hour without samples proves nothing: a gap counts as one day at most, and as a 24th of the time to keep, so that
    a clock that is ahead for a while takes little, and a long pause of the sampler is made up for within days.
    """
    left = round(keep_seconds * 1000)
    of_a_gap = min(_LONGEST_GAP_MS, left // _SHARE_OF_KEPT)
    moment = now_ms
    for start in sorted((start for hour in hours if (start := hour_start_ms(hour)) <= now_ms), reverse=True):
        passed = moment - start if moment - start <= HOUR_MS else min(moment - start, of_a_gap)
        if passed >= left:
            break
        left -= passed
        moment = start
    return moment - left


def ahead(hours: Sequence[str], now_ms: int) -> list[str]:
    """Return the hours that have not begun yet: the clock of a sampler was wrong when they were written, or this one
    is."""
    return [hour for hour in hours if hour_start_ms(hour) > now_ms + AHEAD_MS]


def ahead_text(place: str, hours: Sequence[str]) -> str:
    """Say what is the matter with hours that are `ahead`."""
    return (
        f"{place} holds samples of future hours, {few(hours, 1)} (UTC): the clock of this machine is behind, or "
        "that of another sampler was ahead; `throughput` and `size` leave them out until then"
    )


def held_text(hours: Sequence[str]) -> str:
    """Say why hours that are too old by this machine's clock stay, by the rule of `kept_since_ms`."""
    return (
        f"samples up to {hours[-1]} (UTC) are older than what is to be kept, and stay for now: after a pause of the "
        "sampler, or while the clock of this machine is ahead, at most a day of samples is removed per new hour"
    )


def _text(seconds: float) -> str:
    try:
        return utc_text(seconds)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{seconds:.0f} s after 1970"

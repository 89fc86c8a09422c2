"""Lag per partition, topic, task or flow: in records, bytes and seconds, with trend and forecasts. Pure.

Sums of partitions are those of their topics, tasks and flow. What is unknown is named, and makes a sum a lower bound, never a zero.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from mm2mgr.live.kafka_state import Failure
from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.trend import (
    FLOW,
    Points,
    RecordRate,
    TimeForecast,
    Trend,
    lag_trend,
    level_in,
    overtaken_in,
    partition_key,
    slowest_of,
    task_key,
    topic_key,
)
from mm2mgr.partitions import LogHistory, TopicPartition

LagLevel = Literal["partition", "topic", "task", "flow"]
"""What one row is about."""


class RowName(NamedTuple):
    """What one row is about; None where it does not say."""

    topic: str | None = None
    partition: int | None = None
    task: int | None = None


@dataclass(frozen=True)
class Amount:
    """A sum, or a maximum, over partitions. None: unknown; `at_least`: some partitions are missing, so it may be more."""

    value: float | None
    at_least: bool = False


@dataclass(frozen=True)
class Age:
    """How many seconds ago the next record to mirror was written. `at_least`: before the oldest sample, so it may be longer."""

    seconds: float
    basis: Literal["level", "rate history", "record timestamp"]
    at_least: bool = False


def age_of(one: PartitionLag, history: LogHistory | None, now: float) -> Age | None:
    """Return how long ago the log's end was at the position of the reader; None without samples of that time."""
    if not one.lag_records:
        return Age(0.0, "level")
    if history is None:
        return None
    known = [(ms / 1000, end) for ms, end in zip(history.times_ms, history.ends, strict=True) if ms / 1000 < now]
    if not known:
        return None
    after = next((place for place in reversed(range(len(known))) if known[place][1] <= one.position), -1) + 1
    if after == 0:
        return Age(now - known[0][0], "rate history", at_least=True)
    (begun, first), (ended, last) = known[after - 1], known[after] if after < len(known) else (now, one.log.end)
    share = (one.position - first) / (last - first) if last > first else 0.0
    return Age(max(0.0, now - begun - share * (ended - begun)), "rate history")


def production(history: LogHistory | None, since_ms: float) -> RecordRate | None:
    """Return how fast a log has grown since a time, and twice the standard error of that; None with less than three samples."""
    if history is None:
        return None
    first = bisect_right(history.times_ms, since_ms)
    times, ends = history.times_ms[first:], history.ends[first:]
    steps = [
        ((later - before) / 1000, more - less)
        for before, later, less, more in zip(times, times[1:], ends, ends[1:], strict=False)
        if later > before and more >= less
    ]
    if len(steps) < 2:
        return None
    seconds = math.fsum(length for length, _ in steps)
    mean = math.fsum(grown for _, grown in steps) / seconds
    spread = math.fsum(length * (grown / length - mean) ** 2 for length, grown in steps) / seconds
    return RecordRate(mean, 2 * math.sqrt(spread / (len(steps) - 1)))


@dataclass(frozen=True)
class LagRow:
    """The lag of one partition, topic, task or flow.

    `stored_seconds`: the oldest stored offset of a partition that is behind has not changed for so long, at least. `overtaken`: when
    retention deletes records that wait. `unknown`: partitions without a lag, and why; it is "" in the place of a partition where
    nothing is known of the flow.
    """

    flow: str
    topic: str | None
    partition: int | None
    task: int | None
    partitions: int
    records: Amount
    bytes: Amount
    seconds: Amount
    basis: str
    stored_seconds: float | None
    trend: Trend | None
    level: TimeForecast | None
    overtaken: TimeForecast | None
    unknown: Mapping[str, str] = field(default_factory=dict)
    offsets: PartitionLag | None = None
    json_keys = (
        "flow topic partition task partitions lag_records=records lag_bytes=bytes lag_seconds=seconds "
        "basis stored_offset_unchanged_seconds=stored_seconds trend level_in=level overtaken_in=overtaken "
        "unknown offsets"
    )


@dataclass(frozen=True)
class FlowFacts:
    """What is known of one flow at `taken_at`, in seconds since 1970: its lag, the points of earlier looks, and what was read of
    its logs. `retention_seconds` by topic, None for ever; a topic without an entry is not known. `heartbeat_seconds`: how long ago
    the newest heartbeat on the target was sent, which the latency from end to end does not exceed; a Failure says why not.
    """

    flow: str
    connect: str
    connector: str
    state: str
    taken_at: float
    flush_interval_seconds: float
    lag: FlowLag
    points: Mapping[str, Points] = field(default_factory=dict)
    histories: Mapping[TopicPartition, LogHistory] = field(default_factory=dict)
    written_at: Mapping[TopicPartition, float] = field(default_factory=dict)
    retention_seconds: Mapping[str, float | None] = field(default_factory=dict)
    heartbeat_seconds: float | Failure | None = None

    def age(self, one: PartitionLag) -> Age | None:
        """Return the age of the next record to mirror: by its own timestamp where that was read, else by the log's history."""
        if one.lag_records and one.partition in self.written_at:
            return Age(max(0.0, self.taken_at - self.written_at[one.partition]), "record timestamp")
        return age_of(one, self.histories.get(one.partition), self.taken_at)

    def rows(self, by: LagLevel) -> tuple[LagRow, ...]:
        """Return the rows of a level, most behind first, then what is unknown."""
        if self.lag.unknown is not None or not (self.lag.counted or self.lag.unread):
            return (self._nothing(self.lag.unknown),)
        found = _groups(self.lag, by)
        rows = [self._row(by, name, of, unread) for name, (of, unread) in found.items()]
        return tuple(sorted(rows, key=lambda row: (row.records.value is not None, -(row.records.value or 0))))

    @cached_property
    def total(self) -> LagRow:
        """The flow's own row."""
        return self.rows("flow")[0]

    def _nothing(self, why: str | None) -> LagRow:
        """Return the row of a flow whose lag is unknown, or that carries no partition."""
        amount = Amount(0) if why is None else Amount(None)
        unknown = {} if why is None else {"": why}
        return LagRow(self.flow, None, None, None, 0, amount, amount, amount, "", None, None, None, None, unknown)

    def _row(self, by: LagLevel, name: RowName, of: Sequence[PartitionLag], unread: Sequence[TopicPartition]) -> LagRow:
        behind = [one for one in of if one.lag_records]
        gone = bool(unread)
        unknown = {str(one): self.lag.unread[one] for one in unread}
        records = sum(one.lag_records for one in of)
        mine = self._trend(_key(by, name), behind)
        return LagRow(
            self.flow,
            *name,
            len(of) + len(unread),
            Amount(records, gone) if of else Amount(None),
            _sum([self._bytes(one) for one in behind], gone) if of else Amount(None),
            _longest([self.age(one) for one in behind], gone) if of else Amount(None),
            _basis(self.lag, of),
            max((one.unchanged_seconds for one in behind if one.unchanged_seconds is not None), default=None),
            mine,
            self._level(by, behind, mine) if of and not gone else None,
            self._overtaken(behind),
            unknown,
            of[0] if by == "partition" and of else None,
        )

    def _bytes(self, one: PartitionLag) -> float | None:
        history = self.histories.get(one.partition)
        size = history.record_bytes if history else None
        return None if size is None else one.lag_records * size

    def _trend(self, key: str, behind: Sequence[PartitionLag]) -> Trend | None:
        return lag_trend(self.points.get(key, ()), behind, self.flush_interval_seconds)

    def _level(self, by: LagLevel, behind: Sequence[PartitionLag], mine: Trend | None) -> TimeForecast | None:
        """Return when it is level: a flow when the last of its tasks is, for a sum shrinks fastest before the slow ones are left."""
        if by == "flow":
            tasks = {one.task: [each for each in behind if each.task == one.task] for one in behind}
            trends = {task: self._trend(task_key(task), part) for task, part in tasks.items()}
            if tasks and all(trends.values()):
                return slowest_of([self._drained(part, trends[task]) for task, part in tasks.items()])
        return self._drained(behind, mine)

    def _drained(self, behind: Sequence[PartitionLag], trend: Trend | None) -> TimeForecast | None:
        return level_in(sum(one.lag_records for one in behind), trend, self._production(behind))

    def _production(self, behind: Iterable[PartitionLag]) -> RecordRate | None:
        since_ms = 1000 * (self.taken_at - 900)
        rates = [production(self.histories.get(one.partition), since_ms) for one in behind]
        known = [one for one in rates if one]
        if not known:
            return None
        return RecordRate(math.fsum(one.mean for one in known), math.hypot(*(one.error for one in known)))

    def _overtaken(self, behind: Iterable[PartitionLag]) -> TimeForecast | None:
        found = [self._overtakes(one) for one in behind]
        return min((one for one in found if one), key=lambda one: one.seconds, default=None)

    def _overtakes(self, one: PartitionLag) -> TimeForecast | None:
        age, retention = self.age(one), self.retention_seconds.get(one.partition.topic)
        points = self.points.get(partition_key(one.partition), ())
        return overtaken_in(
            points, self._trend(partition_key(one.partition), [one]), age.seconds if age else None, retention
        )


def _groups(lag: FlowLag, by: LagLevel) -> dict[RowName, tuple[list[PartitionLag], list[TopicPartition]]]:
    """Return topic, partition and task of each row with its partitions, those that are known and those that are not."""

    def name(one: TopicPartition) -> RowName:
        if by == "partition":
            return RowName(one.topic, one.partition, lag.tasks.get(one))
        if by == "topic":
            return RowName(one.topic)
        return RowName(task=lag.tasks.get(one)) if by == "task" else RowName()

    found: dict[RowName, tuple[list[PartitionLag], list[TopicPartition]]] = {}
    for known in lag.counted:
        found.setdefault(name(known.partition), ([], []))[0].append(known)
    for missing in lag.unread:
        found.setdefault(name(missing), ([], []))[1].append(missing)
    return found


def _key(by: LagLevel, name: RowName) -> str:
    """Return the key of the points of a row."""
    keys = {
        "partition": partition_key(TopicPartition(str(name.topic), name.partition or 0)),
        "topic": topic_key(str(name.topic)),
        "task": task_key(name.task),
        "flow": FLOW,
    }
    return keys[by]


def _sum(values: Sequence[float | None], missing: bool) -> Amount:
    """Add up what is known; unknown where nothing is."""
    known = [value for value in values if value is not None]
    if values and not known:
        return Amount(None)
    return Amount(math.fsum(known), missing or len(known) < len(values))


def _longest(ages: Sequence[Age | None], missing: bool) -> Amount:
    known = [age for age in ages if age is not None]
    if ages and not known:
        return Amount(None)
    longest = max((age.seconds for age in known), default=0.0)
    return Amount(longest, missing or len(known) < len(ages) or any(age.at_least for age in known))


def _basis(lag: FlowLag, of: Sequence[PartitionLag]) -> str:
    """Say what the lag was counted from."""
    if lag.exact:
        return "stored offset (exact)"
    return " and ".join(sorted({one.basis for one in of if one.lag_records} or {one.basis for one in of}))

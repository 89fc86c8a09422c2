"""Lag per partition, topic, task or flow: in records, bytes and seconds, with trend and forecasts. Pure.

Sums of partitions are those of topics, tasks and flow. What is unknown is named: a lower bound, never a zero.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple

from mm2mgr.errors import Failure
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
    waiting_since,
)
from mm2mgr.partitions import LogHistory, TopicPartition

_LEAST_SEEN_SECONDS = 30.0  # what looks have seen to wait for less tells nothing of its age


class LagLevel(StrEnum):
    """What one row of lag is about."""

    PARTITION = "partition"
    TOPIC = "topic"
    TASK = "task"
    FLOW = "flow"


"""What one row is about."""


class RowName(NamedTuple):
    """What one row is about; None where it does not say."""

    topic: str | None = None
    partition: int | None = None
    task: int | None = None


@dataclass(frozen=True)
class Amount:
    """A sum, or a maximum, over partitions. None: unknown; `at_least`: partitions are missing, so it may be more."""

    value: float | None
    at_least: bool = False


@dataclass(frozen=True)
class Age:
    """How many seconds ago the next record to mirror was written. `at_least`: before the oldest sample or look."""

    seconds: float
    basis: Literal["level", "rate history", "record timestamp", "looks"]
    at_least: bool = False


def age_of(partition_lag: PartitionLag, history: LogHistory | None, now: float) -> Age | None:
    """Return how long ago the log's end was at the position of the reader; None without samples of that time."""
    if not partition_lag.lag_records:
        return Age(0.0, "level")
    if history is None:
        return None
    past_ends = [(ms / 1000, end) for ms, end in zip(history.times_ms, history.ends, strict=True) if ms / 1000 < now]
    if not past_ends:
        return None
    after = (
        next((place for place in reversed(range(len(past_ends))) if past_ends[place][1] <= partition_lag.position), -1)
        + 1
    )
    if after == 0:
        return Age(now - past_ends[0][0], "rate history", at_least=True)
    (begun, first), (ended, last) = (
        past_ends[after - 1],
        past_ends[after] if after < len(past_ends) else (now, partition_lag.log.end),
    )
    share = (partition_lag.position - first) / (last - first) if last > first else 0.0
    return Age(max(0.0, now - begun - share * (ended - begun)), "rate history")


def production(history: LogHistory | None, since_ms: float) -> RecordRate | None:
    """Return how fast a log has grown, and twice its standard error; None with less than three samples."""
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

    `stored_seconds`: the oldest stored offset of a partition that is behind has not changed for so long, at least.
    `overtaken`: when retention deletes records that wait. `unknown`: partitions without a lag, and why; it is "" in the
    place of a partition where nothing is known of the flow. `moves`: the flow is not PAUSED, STOPPED or FAILED, and its
    workers answer: else it is never level by itself.
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
    moves: bool = True
    json_keys = (
        "flow topic partition task partitions lag_records=records lag_bytes=bytes lag_seconds=seconds "
        "basis stored_offset_unchanged_seconds=stored_seconds trend level_in=level overtaken_in=overtaken "
        "unknown offsets"
    )


@dataclass(frozen=True)
class FlowFacts:
    """What is known of one flow at `taken_at`, in seconds since 1970: its lag, the points of earlier looks, and what
    was read of its logs. `retention_seconds` by topic, None for ever; a topic without an entry is not known.
    `heartbeat_seconds`: how long ago the newest heartbeat on the target was sent, which the latency from end to end
    does not exceed; a Failure says why not. `moves`: as of its rows.
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
    moves: bool = True
    json_keys = (
        "flow connect connector state flush_interval_seconds exact=lag.exact total "
        "heartbeat_seconds=heartbeat_age heartbeat_unknown"
    )

    @property
    def heartbeat_age(self) -> float | None:
        return None if isinstance(self.heartbeat_seconds, Failure) else self.heartbeat_seconds

    @property
    def heartbeat_unknown(self) -> str | None:
        """Why the age of the newest heartbeat is not known."""
        return self.heartbeat_seconds.message if isinstance(self.heartbeat_seconds, Failure) else None

    @property
    def lag_age_seconds(self) -> float | None:
        """How old the offsets may be that its lag is counted from."""
        return self.lag.age_seconds(self.flush_interval_seconds) if self.moves else None

    def age(self, partition_lag: PartitionLag) -> Age | None:
        """Return the age of the next record: by its own timestamp where that was read, else by the log's history, else
        by the looks that saw it wait, where the reader stands still."""
        if partition_lag.lag_records and partition_lag.partition in self.written_at:
            return Age(max(0.0, self.taken_at - self.written_at[partition_lag.partition]), "record timestamp")
        if by_history := age_of(partition_lag, self.histories.get(partition_lag.partition), self.taken_at):
            return by_history
        since = waiting_since(self.points.get(partition_key(partition_lag.partition), ()))
        if since is None or self.taken_at - since < _LEAST_SEEN_SECONDS:
            return None
        return Age(self.taken_at - since, "looks", at_least=True)

    def rows(self, by: LagLevel) -> tuple[LagRow, ...]:
        """Return the rows of a level, most behind first, then what is unknown."""
        if self.lag.unknown is not None or not (self.lag.counted_partitions or self.lag.unread):
            return (self._nothing(self.lag.unknown),)
        rows_by_name = _groups(self.lag, by)
        rows = [self._row(by, name, of, unread) for name, (of, unread) in rows_by_name.items()]
        return tuple(sorted(rows, key=lambda row: (row.records.value is not None, -(row.records.value or 0))))

    @cached_property
    def total(self) -> LagRow:
        """The flow's own row."""
        return self.rows(LagLevel.FLOW)[0]

    def _nothing(self, reason: str | None) -> LagRow:
        amount = Amount(0) if reason is None else Amount(None)
        unknown = {} if reason is None else {"": reason}
        return LagRow(self.flow, None, None, None, 0, amount, amount, amount, "", None, None, None, None, unknown)

    def _row(self, by: LagLevel, name: RowName, of: Sequence[PartitionLag], unread: Sequence[TopicPartition]) -> LagRow:
        behind = [partition for partition in of if partition.lag_records]
        gone = self.lag.is_least(unread)
        unknown = {str(partition): self.lag.unread[partition] for partition in unread}
        records = sum(partition.lag_records for partition in of)
        mine = self._trend(_key(by, name), behind)
        return LagRow(
            self.flow,
            *name,
            len(of) + len(unread),
            Amount(records, gone) if of else Amount(None),
            _sum([self._bytes(partition) for partition in behind], gone) if of else Amount(None),
            _longest([self.age(partition) for partition in behind], gone) if of else Amount(None),
            _basis(self.lag, of),
            max(
                (partition.unchanged_seconds for partition in behind if partition.unchanged_seconds is not None),
                default=None,
            ),
            mine,
            self._level(by, behind, mine) if of and not unread and not self.lag.last_stored and self.moves else None,
            self._overtaken(behind),
            unknown,
            of[0] if by == LagLevel.PARTITION and of else None,
            self.moves,
        )

    def _bytes(self, partition_lag: PartitionLag) -> float | None:
        history = self.histories.get(partition_lag.partition)
        size = history.record_bytes if history else None
        return None if size is None else partition_lag.lag_records * size

    def _trend(self, key: str, behind: Sequence[PartitionLag]) -> Trend | None:
        frozen = self.lag.last_stored is not None
        return lag_trend(self.points.get(key, ()), behind, self.flush_interval_seconds, frozen=frozen)

    def _level(self, by: LagLevel, behind: Sequence[PartitionLag], mine: Trend | None) -> TimeForecast | None:
        """A flow is level when its last task is, for a sum shrinks fastest before the slow ones are left."""
        if by == LagLevel.FLOW:
            tasks = {
                partition.task: [other for other in behind if other.task == partition.task] for partition in behind
            }
            trends = {task: self._trend(task_key(task), part) for task, part in tasks.items()}
            if tasks and all(trends.values()):
                return slowest_of([self._time_to_level(part, trends[task]) for task, part in tasks.items()])
        return self._time_to_level(behind, mine)

    def _time_to_level(self, behind: Sequence[PartitionLag], trend: Trend | None) -> TimeForecast | None:
        return level_in(sum(partition.lag_records for partition in behind), trend, self._production(behind))

    def _production(self, behind: Iterable[PartitionLag]) -> RecordRate | None:
        since_ms = 1000 * (self.taken_at - 900)
        rates = [production(self.histories.get(partition.partition), since_ms) for partition in behind]
        known_rates = [rate for rate in rates if rate]
        if not known_rates:
            return None
        return RecordRate(
            math.fsum(rate.mean for rate in known_rates), math.hypot(*(rate.error for rate in known_rates))
        )

    def _overtaken(self, behind: Iterable[PartitionLag]) -> TimeForecast | None:
        forecasts = [self._overtakes(partition) for partition in behind]
        return min(
            (forecast for forecast in forecasts if forecast), key=lambda forecast: forecast.seconds, default=None
        )

    def _overtakes(self, partition_lag: PartitionLag) -> TimeForecast | None:
        age, retention = self.age(partition_lag), self.retention_seconds.get(partition_lag.partition.topic)
        points = self.points.get(partition_key(partition_lag.partition), ())
        return overtaken_in(
            points,
            self._trend(partition_key(partition_lag.partition), [partition_lag]),
            age.seconds if age else None,
            retention,
        )


def _groups(lag: FlowLag, by: LagLevel) -> dict[RowName, tuple[list[PartitionLag], list[TopicPartition]]]:

    def name(partition: TopicPartition) -> RowName:
        if by == LagLevel.PARTITION:
            return RowName(partition.topic, partition.partition, lag.assignment.task_of.get(partition))
        if by == LagLevel.TOPIC:
            return RowName(partition.topic)
        return RowName(task=lag.assignment.task_of.get(partition)) if by == LagLevel.TASK else RowName()

    groups: dict[RowName, tuple[list[PartitionLag], list[TopicPartition]]] = {}
    for partition_lag in lag.counted_partitions:
        groups.setdefault(name(partition_lag.partition), ([], []))[0].append(partition_lag)
    for missing in lag.unread:
        groups.setdefault(name(missing), ([], []))[1].append(missing)
    return groups


def _key(by: LagLevel, name: RowName) -> str:
    keys = {
        LagLevel.PARTITION: partition_key(TopicPartition(str(name.topic), name.partition or 0)),
        LagLevel.TOPIC: topic_key(str(name.topic)),
        LagLevel.TASK: task_key(name.task),
        LagLevel.FLOW: FLOW,
    }
    return keys[by]


def _sum(values: Sequence[float | None], missing: bool) -> Amount:
    known_values = [value for value in values if value is not None]
    if values and not known_values:
        return Amount(None)
    return Amount(math.fsum(known_values), missing or len(known_values) < len(values))


def _longest(ages: Sequence[Age | None], missing: bool) -> Amount:
    known_ages = [age for age in ages if age is not None]
    if ages and not known_ages:
        return Amount(None)
    longest = max((age.seconds for age in known_ages), default=0.0)
    return Amount(longest, missing or len(known_ages) < len(ages) or any(age.at_least for age in known_ages))


def _basis(lag: FlowLag, of: Sequence[PartitionLag]) -> str:
    if lag.exact:
        return "stored offset (exact)"
    return " and ".join(
        sorted({partition.basis for partition in of if partition.lag_records} or {partition.basis for partition in of})
    )

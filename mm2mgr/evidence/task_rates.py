"""Measures what lagging tasks of source connectors carry, beside `sample`, from snapshots of their committed offsets.

The last minutes of what was sampled from Kafka stay in memory for it; measurements go into the history of tasks in the
store. If a connector or cluster cannot be read, only its own measurements are lost, never samples, and none is wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mm2mgr import timing
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, Unsupported
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import assignment_of
from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.measured import settings_mark
from mm2mgr.live.endpoints import connect_target
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch, Whole
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import TaskRow, TaskStore
from mm2mgr.sizing.capacity import (
    Log,
    MeasuredSpan,
    OffsetSnapshot,
    Pace,
    Step,
    Stretches,
    TaskWork,
    judged_at_ms,
    steps,
)

if TYPE_CHECKING:
    from mm2mgr.topology import ConnectCluster, Flow

_MOST_POLLS = 12  # polls of a cluster, at most that many and a few
_REQUESTS_AT_ONCE = 8  # as `status` does: a worker may have to forward each
_MOST_UNCONFIRMED = 100  # of a source that is no longer polled
_RUNNING = "RUNNING"
Compacted = Callable[[str, Collection[str]], frozenset[str]]
"""Which of these topics of a cluster are compacted; Mm2mgrError when the cluster does not say."""
_Rows = set[asyncio.Task[list[TaskRow]]]


@dataclass(frozen=True)
class _PolledEnds:
    """The ends of a cluster's logs at one time; `first` is the row of each topic's partition 0."""

    batch: Batch
    first: dict[str, int]

    def log(self, partition: TopicPartition) -> tuple[str | None, int | None, int] | None:
        """Return the topic id, start and end of a partition's log; None where its end is not known."""
        row, batch = self.first.get(partition.topic, -1) + partition.partition, self.batch
        if (
            partition.topic not in self.first
            or row >= len(batch)
            or (batch.topics[row], batch.partitions[row]) != partition
        ):
            return None
        end, topic_id = _value_at(batch.end_offset, row), batch.topic_ids[row] if batch.topic_ids else None
        return None if end is None else (topic_id, _value_at(batch.start_offset, row), end)


class RecentLogs:
    """What was polled of every cluster in the last `horizon_seconds`; arrays of batches are kept as they are."""

    def __init__(self, horizon_seconds: float) -> None:
        self._horizon_ms = round(horizon_seconds * 1000)
        # By cluster, oldest first; replaced as a whole, because other threads read it.
        self._polls: dict[str, tuple[_PolledEnds, ...]] = {}
        self._record_bytes: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def take(self, batch: Batch) -> None:
        """Remember one poll of a cluster."""
        self._record_bytes[batch.cluster].update(_sizes(batch))
        polls = self._polls.get(batch.cluster, ())
        newest = polls[-1] if polls else None
        same_names = newest is not None and newest.batch.topics is batch.topics
        first = newest.first if newest is not None and same_names else _first_rows(batch.topics)
        self._polls[batch.cluster] = (
            *self._earlier(polls, batch.time_ms),
            _PolledEnds(replace(batch, record_bytes=None), first),
        )

    def polled_ms(self, alias: str) -> int:
        """Return when a cluster was polled last, 0 before the first time."""
        polled = self._polls.get(alias, ())
        return polled[-1].batch.time_ms if polled else 0

    def growth(self, alias: str, partition: TopicPartition, at_ms: int) -> Log | None:
        """Return a partition's log as it was at a time; None where that is unknown, or the topic was created anew."""
        polled = self._polls.get(alias, ())
        earlier = next((ends for ends in reversed(polled) if ends.batch.time_ms <= at_ms), None)
        then, now = (earlier.log(partition), polled[-1].log(partition)) if earlier else (None, None)
        if then is None or now is None:
            return None
        topic_id, start, end = now
        if then[0] != topic_id or end < then[2] or start is None:
            return None
        return Log(start, then[2], self._record_bytes[alias].get(partition.topic))

    def _earlier(self, polled: tuple[_PolledEnds, ...], now_ms: int) -> tuple[_PolledEnds, ...]:
        """Return what stays of the polls before one: not too many, and the last one from before the horizon."""
        if len(polled) > 1 and polled[-1].batch.time_ms - polled[-2].batch.time_ms < self._horizon_ms / _MOST_POLLS:
            polled = polled[:-1]
        old = sum(ends.batch.time_ms <= now_ms - self._horizon_ms for ends in polled)
        polled = polled[max(0, old - 1) :]
        # Only the newest starts are asked for, and a large estate's take memory.
        return (
            *polled[:-1],
            *(_PolledEnds(replace(ends.batch, start_offset=None), ends.first) for ends in polled[-1:]),
        )


def _value_at(column: Whole | None, row: int) -> int | None:
    value = None if column is None else column[row]
    return None if value is None or value < 0 else value


def _first_rows(topics: Sequence[str]) -> dict[str, int]:
    first: dict[str, int] = {}
    for row, topic in enumerate(topics):
        first.setdefault(topic, row)
    return first


def _sizes(batch: Batch) -> dict[str, float]:
    """Return the mean of the record sizes that the batch has, by topic."""
    sizes_of: defaultdict[str, list[float]] = defaultdict(list)
    for row, size in enumerate(batch.record_bytes or ()):
        if size is not None and size >= 0:
            sizes_of[batch.topics[row]].append(size)
    return {topic: sum(sizes) / len(sizes) for topic, sizes in sizes_of.items()}


@dataclass(frozen=True)
class TaskWatch:
    """What all readers share: sampled logs, history, pace, and how long a snapshot of all connectors may take."""

    recent: RecentLogs
    store: TaskStore
    compacted: Compacted
    pace: Pace
    timeout_seconds: float = 10.0
    keep_seconds: float | None = None


@dataclass
class _WatchedConnector:
    """One source connector: its flow, the last snapshot of its offsets, and its lagging tasks."""

    flow: Flow
    name: str
    stretches: Stretches
    snapshot: OffsetSnapshot | None = None
    unconfirmed: list[_Unconfirmed] = field(default_factory=list)


class _Unconfirmed(NamedTuple):
    """A measurement that a later poll of the logs has yet to confirm: if retention has deleted records that the task
    had not read, its offsets jumped and it carried less. `read_up_to`: the offsets it started from.
    """

    span: MeasuredSpan
    read_up_to: Mapping[TopicPartition, int]


class TaskReader:
    """The connectors of one Connect cluster, as one of the readers that `sample` polls.

    It returns no samples. The first snapshot waits one interval, so that logs and record sizes are known.
    """

    gives_samples = False

    def __init__(self, connect: ConnectCluster, flows: Sequence[Flow], watch: TaskWatch) -> None:
        self.name = f"Connect cluster '{connect.name}'"
        self._connect, self._watch = connect, watch
        self._watched = [
            _WatchedConnector(flow, flow.connector_name("source"), Stretches(watch.pace)) for flow in flows
        ]
        self._due = timing.now() + watch.pace.every_seconds
        self._tidied_hour = ""
        self._notes: tuple[str, ...] = ()

    def poll(self) -> Poll:
        """Take a snapshot of all connectors when it is due; Mm2mgrError says why nothing there can be measured."""
        now = timing.now()
        if now < self._due:
            return Poll([], notes=self._notes)
        try:
            rows = self._rows_of(timing.run(self._snapshots()))
            self._watch.store.append(rows)
            now_ms = _now_ms()
            if (hour := hour_of(now_ms)) != self._tidied_hour:
                self._watch.store.tidy(now_ms, self._watch.keep_seconds)
                self._tidied_hour = hour
        except Mm2mgrError as error:
            problem = error.one_line.removeprefix(f"{self.name}: ")
            raise Mm2mgrError(f"{self.name}: task capacity is not measured: {problem}", hint=error.hint) from error
        # A little early: the interval of the samples sets the time, and a clock must not miss it by a millisecond.
        self._due = now + 0.9 * self._watch.pace.every_seconds
        return Poll([], notes=self._notes)

    def close(self) -> None:
        """Do nothing: no connection stays open between snapshots."""

    async def _snapshots(self) -> _Rows:
        """Take a snapshot of every connector; those that do not answer in time are first in the next one."""
        ends_at = asyncio.get_running_loop().time() + self._watch.timeout_seconds
        async with ConnectClient(connect_target(self._connect), deadline_seconds=self._watch.timeout_seconds) as client:
            names = set(await client.connectors())
            turns = asyncio.Semaphore(_REQUESTS_AT_ONCE)
            here = [connector for connector in self._watched if connector.name in names]
            here.sort(key=lambda connector: connector.snapshot.time_ms if connector.snapshot else 0)
            jobs = [asyncio.create_task(self._of_one(client, turns, connector)) for connector in here]
            if not jobs:
                return set()
            done, late = await asyncio.wait(jobs, timeout=max(0.0, ends_at - asyncio.get_running_loop().time()))
            for job in late:
                job.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return done

    def _rows_of(self, jobs: _Rows) -> list[TaskRow]:
        """Return all rows; raise only when every connector failed, or the workers do not expose offsets."""
        errors = [error for job in jobs if (error := job.exception()) is not None]
        for error in errors:
            if isinstance(error, Unsupported):
                reason = "workers do not expose connector offsets (Kafka 3.5 or newer required)"
                raise Mm2mgrError(reason) from error
            if len(errors) == len(jobs) or not isinstance(error, Mm2mgrError):
                raise error
        # A connector that is being restarted is not worth a note; a source that cannot be read is.
        self._notes = tuple(
            sorted({e.message for e in errors if not isinstance(e, ConnectError) and isinstance(e, Mm2mgrError)})
        )
        return [row for job in jobs if job.exception() is None for row in job.result()]

    async def _of_one(
        self, client: ConnectClient, turns: asyncio.Semaphore, connector: _WatchedConnector
    ) -> list[TaskRow]:
        async with turns:
            asked_ms = _now_ms()
            stored = parse_stored(await client.offsets(connector.name), connector.flow.source.alias)
            before, connector.snapshot = connector.snapshot, OffsetSnapshot(asked_ms, _now_ms(), stored)
            if before is None:
                return []
            try:
                connector.unconfirmed += await self._measure(client, connector, before, connector.snapshot)
            except BaseException:  # a late answer is cancelled: the next measurement must not span what was not seen
                connector.stretches.end()
                raise
        return [_row(connector, span) for span in self._confirm_spans(connector)]

    def _confirm_spans(self, connector: _WatchedConnector) -> list[MeasuredSpan]:
        """Take the measurements that a later poll of the logs has confirmed; drop those that it has refuted."""
        polled_ms, log_of = (
            self._watch.recent.polled_ms(connector.flow.source.alias),
            self._logs(connector.flow, _now_ms()),
        )
        begun_ms = polled_ms - round(self._watch.timeout_seconds * 1000)  # a poll is stamped with its middle
        ready = [unconfirmed for unconfirmed in connector.unconfirmed if unconfirmed.span.time_ms < begun_ms]
        connector.unconfirmed = [
            unconfirmed for unconfirmed in connector.unconfirmed if unconfirmed.span.time_ms >= begun_ms
        ][-_MOST_UNCONFIRMED:]

        def whole(unconfirmed: _Unconfirmed) -> bool:
            logs = {partition: log_of(partition) for partition in unconfirmed.read_up_to}
            return all(
                log is not None and log.start <= unconfirmed.read_up_to[place] + 1 for place, log in logs.items()
            )

        return [unconfirmed.span for unconfirmed in ready if whole(unconfirmed)]

    async def _measure(
        self, client: ConnectClient, connector: _WatchedConnector, before: OffsetSnapshot, now: OffsetSnapshot
    ) -> list[_Unconfirmed]:
        step_of = steps(before, now, self._logs(connector.flow, judged_at_ms(before, self._watch.pace)))
        if not any(step.behind_records for step in step_of.values()):
            connector.stretches.rest(step_of.keys())
            return []
        works = await _works(client, connector.name)
        mine = {partition.topic for work in works.values() for partition in work.partitions}
        topics = {topic for topic in mine if not connector.flow.selection.is_heartbeats(topic)}
        compacted = await asyncio.to_thread(self._watch.compacted, connector.flow.source.alias, topics)
        step_of = {
            partition: Step(None, 0) if partition.topic in compacted else step for partition, step in step_of.items()
        }
        spans = connector.stretches.take(before, now, step_of, works)
        moved = step_of.keys() & before.committed.keys()
        return [
            _Unconfirmed(span, {p: before.committed[p] for p in works[span.task].partitions & moved}) for span in spans
        ]

    def _logs(self, flow: Flow, at_ms: int) -> Callable[[TopicPartition], Log | None]:
        def log(partition: TopicPartition) -> Log | None:
            if flow.selection.is_heartbeats(
                partition.topic
            ):  # compacted and not sampled; one record per second is no load
                return Log(0, 0, 0.0)
            return self._watch.recent.growth(flow.source.alias, partition, at_ms)

        return log


def remember_compacted(ask: Callable[[str, Collection[str]], frozenset[str] | None]) -> Compacted:
    """Return what tells which topics are compacted, by answers of `ask` (None: not permitted) of the last hour."""
    compacted_at: dict[tuple[str, str], tuple[float, bool]] = {}

    def compacted_topics(alias: str, topics: Collection[str]) -> frozenset[str]:
        now = timing.now()
        new = [topic for topic in topics if now - compacted_at.get((alias, topic), (-1e9, False))[0] > 3600]
        compacted = ask(alias, new) if new else frozenset()
        if compacted is None:
            raise Mm2mgrError(
                f"{alias}: no permission to read topic configs; record counts of compacted topics would be wrong",
                hint="grant DescribeConfigs on the topics to the login of mm2mgr's own reads",
            )
        compacted_at.update({(alias, topic): (now, topic in compacted) for topic in new})
        return frozenset(topic for topic in topics if compacted_at[alias, topic][1])

    return compacted_topics


def task_readers(flows: Sequence[Flow], watch: TaskWatch) -> list[TaskReader]:
    """Return a reader for each Connect cluster that runs some of these flows."""
    by_connect: dict[str, list[Flow]] = {}
    for flow in flows:
        by_connect.setdefault(flow.connect.name, []).append(flow)
    return [TaskReader(connectors[0].connect, connectors, watch) for connectors in by_connect.values()]


async def _works(client: ConnectClient, name: str) -> Mapping[int, TaskWork]:
    tasks, status = await client.tasks(name), await client.status(name)
    workers = {task.id: task.worker_id for task in status.tasks if task.state == _RUNNING}
    assigned = assignment_of(tasks).tasks
    return {
        task.id: TaskWork(frozenset(assigned[task.id]), workers[task.id], settings_mark(task.config))
        for task in tasks
        if task.id in workers and task.id < len(assigned)
    }


def _row(connector: _WatchedConnector, span: MeasuredSpan) -> TaskRow:
    flow = connector.flow
    return TaskRow(
        connect=flow.connect.name,
        connector=connector.name,
        source=flow.source.alias,
        target=flow.target.alias,
        settings=span.settings,
        task=span.task,
        time_ms=span.time_ms,
        span_ms=span.span_ms,
        bytes_per_second=span.bytes_per_second,
        lag_records=span.lag_records,
        uncertain_ms=span.uncertain_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Watches the tasks of source connectors beside `sample`: committed offsets now and then, kept where a task lags.

In: a Connect cluster's flows, and what was sampled of their sources meanwhile. Out: rows of the history of tasks in the
store. A connector or a cluster that cannot be read costs its own moments only, never samples and never a wrong moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mm2mgr.cli.carried import settings_mark
from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError, Unsupported
from mm2mgr.connect.types import parse_stored
from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.reading import ASSIGNED_KEY, is_heartbeat, parse_assigned
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.live import target_of
from mm2mgr.render import source_connector_name
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.tasks import TaskRow, TaskStore
from mm2mgr.sizing.moments import Hand, Log, Look, Moment, Pace, Step, Stretches, judged_at_ms, steps

if TYPE_CHECKING:
    from mm2mgr.samples.recent import RecentLogs
    from mm2mgr.topology import ConnectCluster, Flow

_REQUESTS_AT_ONCE = 8  # as `status` does: a worker may have to forward each
_MOST_UNPROVED = 100  # of a source that is not polled any more
_RUNNING = "RUNNING"
Compacted = Callable[[str, Collection[str]], frozenset[str]]
"""Which of these topics of a cluster are compacted; Mm2mgrError when that cannot be told."""
_Jobs = set[asyncio.Task[list[TaskRow]]]


@dataclass(frozen=True)
class Around:
    """What is shared by all who watch: the sampled logs, the history, the pace, and the time that one look may take."""

    recent: RecentLogs
    store: TaskStore
    compacted: Compacted
    pace: Pace
    timeout_seconds: float = 10.0
    keep_seconds: float | None = None


@dataclass
class _Watched:
    """One source connector: its flow, the last look at its offsets, and its lagging tasks."""

    flow: Flow
    name: str
    stretches: Stretches
    look: Look | None = None
    unproved: list[_Unproved] = field(default_factory=list)


class _Unproved(NamedTuple):
    """A moment whose offsets may still turn out to be jumped over, not carried: retention took records that lagging tasks
    had not read, and the log's start that shows it was polled before. `read_up_to`: the offsets it went on from.
    """

    moment: Moment
    read_up_to: Mapping[TopicPartition, int]


class TaskReader:
    """The connectors of one Connect cluster, look after look, as a source among those that `sample` polls.

    It gives no samples. The first look waits a turn, so that logs and record sizes are known by then.
    """

    def __init__(self, connect: ConnectCluster, flows: Sequence[Flow], around: Around) -> None:
        self.name = f"Connect cluster '{connect.name}'"
        self._connect, self._around = connect, around
        self._watched = [
            _Watched(
                flow,
                source_connector_name(flow),
                Stretches(around.pace),
            )
            for flow in flows
        ]
        self._due = time.monotonic() + around.pace.every_seconds
        self._tidied_hour = -1
        self._notes: tuple[str, ...] = ()

    def poll(self) -> Poll:
        """Look at all connectors if it is time; Mm2mgrError says why nothing there can be measured."""
        now = time.monotonic()
        if now < self._due:
            return Poll([], notes=self._notes)
        try:
            rows = self._rows_of(asyncio.run(self._look()))
            self._around.store.append(rows)
            self._tidy()
        except Mm2mgrError as error:
            what = error.one_line.removeprefix(f"{self.name}: ")
            raise Mm2mgrError(f"{self.name}: no capacity is measured there: {what}", hint=error.hint) from error
        # A little early: the beat of the samples decides the moment, and a clock must not miss it by a millisecond.
        self._due = now + 0.9 * self._around.pace.every_seconds
        return Poll([], notes=self._notes)

    def close(self) -> None:
        """Nothing stays open between looks."""

    def _tidy(self) -> None:
        now_ms = _now_ms()
        if (hour := now_ms // 3_600_000) != self._tidied_hour:
            self._around.store.tidy(now_ms, self._around.keep_seconds)
            self._tidied_hour = hour

    async def _look(self) -> _Jobs:
        """Look at every connector; what does not answer in time is left out, and comes first in the next look."""
        ends_at = asyncio.get_running_loop().time() + self._around.timeout_seconds
        async with Connect(target_of(self._connect), deadline_seconds=self._around.timeout_seconds) as client:
            known = set(await client.connectors())
            turns = asyncio.Semaphore(_REQUESTS_AT_ONCE)
            here = [one for one in self._watched if one.name in known]
            here.sort(key=lambda one: one.look.time_ms if one.look else 0)
            jobs = [asyncio.create_task(self._of_one(client, turns, one)) for one in here]
            if not jobs:
                return set()
            done, late = await asyncio.wait(jobs, timeout=max(0.0, ends_at - asyncio.get_running_loop().time()))
            for job in late:
                job.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return done

    def _rows_of(self, jobs: _Jobs) -> list[TaskRow]:
        """Return all rows; an error only when every connector failed, or the workers cannot tell offsets at all."""
        errors = [error for job in jobs if (error := job.exception()) is not None]
        for error in errors:
            if isinstance(error, Unsupported):
                raise Mm2mgrError("its workers do not tell stored offsets", hint="Kafka 3.5 and newer do") from error
            if len(errors) == len(jobs) or not isinstance(error, Mm2mgrError):
                raise error
        # Of one connector that is being restarted there is nothing to tell; of a source that does not tell, there is.
        self._notes = tuple(
            sorted({e.message for e in errors if not isinstance(e, ConnectError) and isinstance(e, Mm2mgrError)})
        )
        return [row for job in jobs if job.exception() is None for row in job.result()]

    async def _of_one(self, client: Connect, turns: asyncio.Semaphore, one: _Watched) -> list[TaskRow]:
        async with turns:
            asked_ms = _now_ms()
            stored = parse_stored(await client.offsets(one.name), one.flow.source.alias)
            before, one.look = one.look, Look(asked_ms, _now_ms(), stored)
            if before is None:
                return []
            try:
                one.unproved += await self._moments(client, one, before, one.look)
            except BaseException:  # a late answer is cancelled: the next moment must not span what was not seen
                one.stretches.end()
                raise
        return [_row(one, moment) for moment in self._proved(one)]

    def _proved(self, one: _Watched) -> list[Moment]:
        """Take the moments that a later poll of the logs has proved; those that it has disproved are dropped."""
        polled_ms, log_of = self._around.recent.polled_ms(one.flow.source.alias), self._logs(one.flow, _now_ms())
        begun_ms = polled_ms - round(self._around.timeout_seconds * 1000)  # a poll is stamped with its middle
        ready = [each for each in one.unproved if each.moment.time_ms < begun_ms]
        one.unproved = [each for each in one.unproved if each.moment.time_ms >= begun_ms][-_MOST_UNPROVED:]

        def whole(each: _Unproved) -> bool:
            logs = {partition: log_of(partition) for partition in each.read_up_to}
            return all(log is not None and log.start <= each.read_up_to[place] + 1 for place, log in logs.items())

        return [each.moment for each in ready if whole(each)]

    async def _moments(self, client: Connect, one: _Watched, before: Look, now: Look) -> list[_Unproved]:
        found = steps(before, now, self._logs(one.flow, judged_at_ms(before, self._around.pace)))
        if not any(step.behind_records for step in found.values()):
            one.stretches.rest(found.keys())
            return []
        hands = await _hands(client, one.name)
        mine = {partition.topic for hand in hands.values() for partition in hand.partitions}
        topics = {topic for topic in mine if not is_heartbeat(one.flow, topic)}
        compacted = await asyncio.to_thread(self._around.compacted, one.flow.source.alias, topics)
        found = {each: Step(None, 0) if each.topic in compacted else step for each, step in found.items()}
        moments = one.stretches.take(before, now, found, hands)
        moved = found.keys() & before.committed.keys()
        return [
            _Unproved(each, {p: before.committed[p] for p in hands[each.task].partitions & moved}) for each in moments
        ]

    def _logs(self, flow: Flow, at_ms: int) -> Callable[[TopicPartition], Log | None]:
        def log(one: TopicPartition) -> Log | None:
            if is_heartbeat(flow, one.topic):  # compacted, nobody samples them, and a record a second is no load
                return Log(0, 0, 0.0)
            grown = self._around.recent.growth(flow.source.alias, one, at_ms)
            return Log(grown.start, grown.end, grown.record_bytes) if grown else None

        return log


@dataclass
class TopicConfigs:
    """Asks which topics are compacted, each one again after an hour, because that can be changed."""

    ask: Callable[[str, Collection[str]], frozenset[str] | None]
    _told: dict[tuple[str, str], tuple[float, bool]] = field(default_factory=dict)

    def compacted(self, alias: str, topics: Collection[str]) -> frozenset[str]:
        """Return the compacted ones; Mm2mgrError when the cluster does not tell."""
        now = time.monotonic()
        new = [topic for topic in topics if now - self._told.get((alias, topic), (-1e9, False))[0] > 3600]
        found = self.ask(alias, new) if new else frozenset()
        if found is None:
            raise Mm2mgrError(
                f"{alias}: topic configs may not be read, and offsets of compacted topics count no records",
                hint="allow DescribeConfigs on the topics to the login of mm2mgr's own reads",
            )
        self._told.update({(alias, topic): (now, topic in found) for topic in new})
        return frozenset(topic for topic in topics if self._told[alias, topic][1])


def task_readers(flows: Sequence[Flow], around: Around) -> list[TaskReader]:
    """Return a reader for each Connect cluster that runs some of these flows."""
    by_connect: dict[str, list[Flow]] = {}
    for flow in flows:
        by_connect.setdefault(flow.connect.name, []).append(flow)
    return [TaskReader(each[0].connect, each, around) for each in by_connect.values()]


async def _hands(client: Connect, name: str) -> Mapping[int, Hand]:
    tasks, status = await client.tasks(name), await client.status(name)
    workers = {task.id: task.worker_id for task in status.tasks if task.state == _RUNNING}
    return {
        task.id: Hand(
            frozenset(parse_assigned(task.config.get(ASSIGNED_KEY, ""))), workers[task.id], settings_mark(task.config)
        )
        for task in tasks
        if task.id in workers
    }


def _row(one: _Watched, moment: Moment) -> TaskRow:
    flow = one.flow
    names = (flow.connect.name, one.name, flow.source.alias, flow.target.alias, moment.settings, moment.task)
    carried = (moment.bytes_per_second, moment.lag_records, moment.uncertain_ms)
    return TaskRow(*names, moment.time_ms, moment.span_ms, *carried)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

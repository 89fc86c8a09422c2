"""Whether connectors show what was asked of them, a config that was written or a state that was chosen: looks at one
Connect cluster until each does, or the time is over.

A look is one request, a second one while a connector has no status, and one for each connector whose tasks may still
have the previous config, of which the first record is awaited, or whose stored offsets have to stand still. Nothing is
concluded from a cluster that does not answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from mm2mgr import timing
from mm2mgr.apply.arrival_check import DROPS, Arrivals, LogReader, describe_arrivals
from mm2mgr.assignment_text import expected_task_config
from mm2mgr.comparison.differences import Named, diff
from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.connect.errors import NotFound, Unsupported
from mm2mgr.connect.types import trace_summary
from mm2mgr.connectors import RESTING, ConnectorStatus, RunningConnector, TaskConfig, assignment_of, standing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import Configs, ConnectorsWithStatuses, Statuses, StoredOffsets, TaskConfigs, WrittenTopics
from mm2mgr.live.snapshot import Steps, side_by_side
from mm2mgr.plan.changes import Change
from mm2mgr.text import number_of, span_text

T = TypeVar("T")
Verdict = Literal["ok", "failed", "inconclusive"]
# How long a state must be shown once the tasks have the new config, before it is taken for theirs. The old one was seen
# for up to 0.45 s, with 40 connectors written at once; a task that is stuck goes on for
# task.shutdown.graceful.timeout.ms (5 s).
HOLD_SECONDS = 6.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_LONGEST_FLUSH_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Settled:
    """What a connector shows: `state` for people, and whether that is right, certainly wrong, or not known.

    What was wrong in the same way before a write is no fault of it: that is `ok`, and the state says so.
    """

    state: str
    verdict: Verdict
    arrived: bool | None = field(default=None, compare=False)
    """Whether a record was seen to arrive since a write; None where that is no question, or not known."""


States = dict[Named, Settled]
Ask = Callable[[Steps[Any]], Awaitable[Any]]
"""Asks what a judgement lacks, and returns its result."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on all of them."""
    distinct = set(verdicts)
    return "failed" if "failed" in distinct else "inconclusive" if "inconclusive" in distinct else "ok"


async def look_until(
    look: Callable[[], Awaitable[Sequence[T]]],
    end: float,
    halt: asyncio.Event,
    *,
    waits: Callable[[Sequence[T]], None] = lambda unsettled: None,
    shortest_pause: Callable[[Sequence[T]], float] = lambda unsettled: 0.0,
) -> Sequence[T]:
    """Look again and again, at longer and longer intervals, and return what is not settled at the end.

    `look` returns what is to be looked at again. `waits` is called once, before the first pause.
    """
    pause, is_first = _FIRST_PAUSE_SECONDS, True
    while (unsettled := await look()) and timing.now() < end and not halt.is_set():
        if is_first:
            waits(unsettled)
        is_first = False
        await pause_unless_halted(min(max(pause, shortest_pause(unsettled)), end - timing.now()), halt)
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    return unsettled


async def pause_unless_halted(seconds: float, halt: asyncio.Event) -> None:
    """Wait, but no longer than until the work is to end."""
    with suppress(TimeoutError):
        await asyncio.wait_for(halt.wait(), max(0.0, seconds))


def read_connectors(connect: str, names: Iterable[str]) -> Steps[dict[str, RunningConnector]]:
    """Return what a Connect cluster runs, in one request while the connectors of these names have a status."""
    question = ConnectorsWithStatuses(connect)
    connectors = (yield [question])[question]
    if not connectors.keys() >= set(names):  # the list leaves out what has no status yet
        connectors = (yield [Configs(connect)])[Configs(connect)] | connectors
    return connectors


_NO_TASKS = "no topic matches, or the source cluster does not answer"
_AS_BEFORE = ", as before the update"
_NUMBERS = re.compile(r"\d+")
_PARTITIONS = re.compile(r"[A-Za-z0-9._-]+-#")  # of another topic it is the same cause


# --- a state that was asked for ---------------------------------------------------------------------------------------


def judge_state(goal: str, shown: RunningConnector | None, *, is_source: bool) -> Settled:  # noqa: PLR0911
    """Tell whether a connector and every one of its tasks show the state."""
    if shown is None:
        return Settled("deleted meanwhile", "failed")
    if shown.status is None:
        return Settled("no status yet", "inconclusive")
    tasks, left = shown.shown_tasks, number_of(max(len(shown.task_ids), len(shown.status.tasks)), "task")
    failed = [task for task in tasks if task and task.state == "FAILED"]
    count, there = number_of(len(tasks), "task"), sum(task is not None and task.state == goal for task in tasks)
    match standing(shown, goal):
        case "FAILED":
            return Settled(f"FAILED: {trace_summary(shown.status.trace)}", "failed")
        case "tasks FAILED":
            return Settled(f"RUNNING, {len(failed)} of {count} FAILED: {trace_summary(failed[0].trace)}", "failed")
        case "other state":
            return Settled(f"{shown.state}, not {goal} yet", "inconclusive")
        case "tasks on their way" if goal == "STOPPED":
            return Settled(f"STOPPED, {left} not ended yet", "inconclusive")
        case "tasks on their way":
            return Settled(f"{goal}, {there} of {count} {goal}", "inconclusive")
        case "no tasks" if is_source:
            return Settled(f"RUNNING, no tasks yet ({_NO_TASKS})", "inconclusive")
    return Settled(f"{goal}, {number_of(len(failed), 'task')} FAILED" if failed and goal != "STOPPED" else goal, "ok")


class AskedConnector:
    """A connector of which a state was asked for, and since when it shows what it shows.

    `hold_seconds`: how long a state counts only as one from before, as after a restart. `still_seconds`: how long its
    stored offsets have to stand still; 0: they do not matter.
    """

    def __init__(self, name: str, goal: str, *, is_source: bool, hold_seconds: float, still_seconds: float) -> None:
        self.name, self.still_seconds = name, still_seconds
        self.settled = Settled("not looked at yet", "inconclusive")
        self.is_settled = False
        self.awaits_offsets = False
        self._goal, self._is_source, self._hold_seconds = goal, is_source, hold_seconds
        self._since = timing.now()
        self._offsets: object = None
        self._offsets_since = 0.0
        self._pending = ""

    def look(self, shown: RunningConnector | None, now: float) -> None:
        """Take in one reading of its state."""
        settled = judge_state(self._goal, shown, is_source=self._is_source)
        if settled != self.settled:
            self.settled, self._since = settled, now
        hold = HOLD_SECONDS if settled.verdict == "failed" else self._hold_seconds
        self.is_settled = settled.verdict != "inconclusive" and now - self._since >= hold
        self.awaits_offsets = self.still_seconds > 0 and settled.verdict == "ok"
        if not self.awaits_offsets:
            self._offsets = None
        elif self.is_settled:
            self.is_settled = False  # its offsets decide

    def take_no_offsets(self) -> None:
        """Note that its workers do not show stored offsets, which is all that can be known then."""
        reason = "whether its stored offsets still change is unknown: its workers do not show them (Kafka 3.5 does)"
        self.settled = Settled(f"{self.settled.state}; {reason}", "inconclusive")
        self.is_settled, self.awaits_offsets = True, False

    def take_offsets(self, offsets: Mapping[str, object], asked_at: float) -> None:
        """Take in its stored offsets; it is settled once they stood still for long enough."""
        if self._offsets != offsets:
            self._offsets, self._offsets_since = offsets, timing.now()
        still = max(0.0, asked_at - self._offsets_since)  # from the end of the first answer to the newest question
        self.is_settled = still >= self.still_seconds
        self._pending = f"stored offsets unchanged for {still:.0f} of {span_text(self.still_seconds)}"

    def take_error(self, error: Mm2mgrError) -> None:
        """Note that it could not be read; what was seen before no longer counts."""
        self.settled, self._since = Settled(f"unknown: {error.one_line}", "inconclusive"), timing.now()
        self.awaits_offsets, self.is_settled, self._offsets = False, False, None

    def result(self) -> Settled:
        """Return what it shows, with what is still missing."""
        if not self.awaits_offsets or self.is_settled:
            return self.settled
        return Settled(f"{self.settled.state}, {self._pending}", "inconclusive")


async def await_states(connect: str, ask: Ask, asked: Sequence[AskedConnector], end: float) -> None:
    """Look at connectors of one Connect cluster until all show what was asked of them, or the time is over."""
    unsettled = list(asked)

    def read_all() -> Steps[None]:
        shown = yield from read_connectors(connect, [connector.name for connector in unsettled])
        for connector in unsettled:
            connector.look(shown.get(connector.name), timing.now())
        asked_at = timing.now()
        questions = {
            connector.name: StoredOffsets(connect, connector.name)
            for connector in unsettled
            if connector.awaits_offsets
        }
        snapshot = yield questions.values()
        for connector in unsettled:
            if connector.name in questions:
                entries = snapshot.get(questions[connector.name])
                if not isinstance(entries, Mm2mgrError):
                    connector.take_offsets({entry.key: entry.offset for entry in entries}, asked_at)
                elif isinstance(entries, Unsupported):
                    connector.take_no_offsets()
                else:
                    connector.take_error(entries)

    async def look() -> list[AskedConnector]:
        try:
            await ask(read_all())
        except Mm2mgrError as error:
            for connector in unsettled:
                connector.take_error(error)
        unsettled[:] = [connector for connector in unsettled if not connector.is_settled]
        return unsettled

    def pause_of_flushes(waiting: Sequence[AskedConnector]) -> float:
        is_slow = all(connector.awaits_offsets for connector in waiting)
        return min(waiting[0].still_seconds / 12, _LONGEST_FLUSH_PAUSE_SECONDS) if is_slow else 0.0

    await look_until(look, end, asyncio.Event(), shortest_pause=pause_of_flushes)


# --- a config that was written ----------------------------------------------------------------------------------------


class WrittenConnector:
    """One written connector: whether its tasks have the config, and what is seen of it since when.

    `before`: what it showed before the write, None where that is not known or does not excuse it. `ran`: its tasks were
    RUNNING then, so that at the end of the wait it is broken when they are not.
    """

    def __init__(
        self,
        change: Change,
        hold_seconds: float,
        *,
        before: ConnectorStatus | None = None,
        ran: bool = False,
        arrivals: Arrivals | None = None,
    ) -> None:
        self.change = change
        self.name = change.connector
        self.written = {"name": self.name, **(change.config or change.before or {})}
        self._awaited = _has_records_to_copy(change)
        self.arrived = not self._awaited
        self.may_drop = bool(self.written.get("transforms"))
        self.takes_topics = bool(change.takes.topics) if change.takes and change.action == "create" else None
        self._hold_seconds = hold_seconds
        before_of_tasks, written_to_tasks = map(expected_task_config, (change.before or {}, self.written))
        self._keys = diff(before_of_tasks, written_to_tasks) if change.action == "update" else ()
        self._tasks_have_it = not self._keys
        self._before = before if change.action == "update" else None
        self._ran = ran
        self.arrivals = arrivals if ran else None
        self.is_broken_if_late = self.is_good_if_late = self.is_on_its_way = False
        self.is_without_tasks = False
        self._seen: tuple[Settled, bool] | None = None
        self._since = 0.0
        self._shown = ""

    @property
    def asks_tasks(self) -> bool:
        return not self._tasks_have_it

    def take(self, tasks: Iterable[TaskConfig]) -> None:
        """Compare the tasks' configs, each of which holds the connector's, by the keys that the write changed."""
        tasks_now = list(tasks)
        configs = [task.config for task in tasks_now]
        # Where the tree has a placeholder, workers may show another text.
        readable = [key for key in self._keys if "${" not in f"{key.before}{key.after}"]
        self._tasks_have_it = bool(configs) and all(
            JOURNAL_KEY not in config and all(config.get(key.key) == key.after for key in readable)
            for config in configs
        )
        if self.arrivals:
            self.arrivals.set_partitions(assignment_of(tasks_now).order, is_new=self._tasks_have_it)

    def look(self, shown: RunningConnector | None, now: float) -> tuple[Settled, bool]:
        """Return its state in this reading, and whether it is reliable."""
        settled, status = self.judge(shown), shown.status if shown else None
        self._shown = status.state if status else ""
        # Tasks of a connector that rests take the config when it runs again; one that failed gives them none.
        alone = status is not None and status.state not in {"RUNNING", "UNASSIGNED"}
        lost = shown is None or shown.config != self.written
        without_tasks = self.is_without_tasks = shown is not None and not shown.task_ids
        belongs = self._tasks_have_it or alone or lost or without_tasks
        stopped = self._ran and (without_tasks or not self._tasks_have_it)
        starts = status is not None and not alone and not (without_tasks and self.takes_topics is False)
        self.is_broken_if_late = starts and (stopped or (bool(self.takes_topics) and without_tasks))
        self.is_on_its_way = False
        self.is_good_if_late = not self._ran and (
            (without_tasks and self._before is not None and self._before.runs and not self._before.tasks)
            or (not belongs and settled.state.endswith(_AS_BEFORE))
        )
        if self._seen != (settled, belongs):
            self._seen, self._since = (settled, belongs), now
        if settled.verdict == "inconclusive":
            return settled, False
        if not belongs:
            return Settled(f"{settled.state}, but its tasks still have the previous config", "inconclusive"), False
        # Each worker answers from its own copy of Connect's config topic, and a busy one may not have read the write
        # yet.
        is_known_at_once = self.change.action == "no-op" or (
            self.change.action == "create" and not lost and (not without_tasks or self.takes_topics is False)
        )
        if is_known_at_once or now - self._since >= self._hold_seconds:
            return settled, True
        return Settled(f"{settled.state}, possibly from before the write", "inconclusive"), False

    def awaits_record(self) -> Settled:
        """Return its state while it runs without having written any of the records that it has to copy."""
        self.is_good_if_late, self.is_broken_if_late = self.may_drop, not self.may_drop
        reason = DROPS if self.may_drop else "a right may be missing"
        return Settled(f"RUNNING, no record has arrived yet ({reason})", "inconclusive")

    def judges_arrivals(self) -> Settled:
        """Return its state while it runs, by whether what its source gets since the update arrives at the target."""
        if self.arrivals is None:
            return Settled("RUNNING", "ok")
        arrivals = describe_arrivals(self.arrivals)
        self.is_broken_if_late = self.arrivals.is_broken
        is_missing = bool(self.arrivals.missing_topics)
        self.is_on_its_way = self.is_good_if_late = (
            bool(self.arrivals.waiting) and not self.arrivals.overdue and not is_missing
        )
        return Settled(
            f"RUNNING, {arrivals}" if arrivals else "RUNNING",
            "inconclusive" if self.arrivals.waiting or is_missing else "ok",
        )

    @property
    def has_arrived(self) -> bool | None:
        """Tell whether a record was seen to arrive since the write, of a source connector that runs; None where that
        is no question, or cannot be known."""
        if self.change.type != "source" or self._shown != "RUNNING" or self.is_without_tasks:
            return None
        if self.arrivals and self.arrivals.unknown:
            return None
        return self.arrivals.has_arrived if self.arrivals else self._awaited and self.arrived

    def judge(self, shown: RunningConnector | None) -> Settled:  # noqa: PLR0911
        """Return what a reading shows, whether or not it belongs to the new config."""
        if shown is None:
            return Settled("deleted since it was written", "failed")
        if shown.config != self.written:
            return Settled("its config was overwritten since it was written", "failed")
        if (status := shown.status) is None:
            return Settled("no status yet", "inconclusive")
        tasks = [task.state if task else "" for task in shown.shown_tasks]
        if failed := tasks.count("FAILED"):
            return self._unless_before(status, f"{status.state}, {failed} of {len(tasks)} tasks FAILED")
        place, running = standing(shown, "RUNNING"), tasks.count("RUNNING")
        if place == "FAILED":
            return self._unless_before(status, status.state)
        wished = self.change.state[1] if self.change.state else None
        if wished and status.state != wished:
            return Settled(f"{status.state}, not {wished} yet", "inconclusive")
        if place == "no tasks" and self.change.type == "source":
            return self._without_tasks()
        if status.state in RESTING and running:
            return Settled(f"{status.state}, {running} tasks still RUNNING", "inconclusive")
        # A checkpoint connector without consumer groups has no tasks.
        if status.state in RESTING or place in {"settled", "no tasks"}:
            return Settled(status.state, "ok")
        return Settled(f"{status.state}, {running} of {len(tasks)} tasks RUNNING", "inconclusive")

    def _unless_before(self, status: ConnectorStatus, state: str) -> Settled:
        """Return a failure, unless the same failed before: no more of it, and for no other reason."""
        before = self._before
        if before is None or not _failures(status) <= _failures(before):
            failed_tasks = (task.trace for task in status.tasks if task.state == "FAILED")
            trace = status.trace if status.state == "FAILED" else next(failed_tasks, None)
            return Settled(f"{state}: {trace_summary(trace)}" if trace else state, "failed")
        failed, of_before = (sum(task.state == "FAILED" for task in shown.tasks) for shown in (status, before))
        is_as_before = not self._ran or failed <= of_before
        return Settled(f"{state}{_AS_BEFORE}", "ok") if is_as_before else Settled(state, "failed")

    def _without_tasks(self) -> Settled:
        if self.takes_topics is False:
            return Settled("RUNNING, no topic matches yet", "ok")
        if self.takes_topics:
            return Settled(
                "RUNNING, no tasks although topics match (wrong credentials, or a right is missing)", "inconclusive"
            )
        reason = "its source cluster does not answer or refuses it" if self._ran else _NO_TASKS
        return Settled(f"RUNNING, no tasks yet ({reason})", "inconclusive")


def _failures(status: ConnectorStatus) -> set[tuple[bool, str]]:
    """Return what failed, connector or task, each with the root of its trace; numbers and partitions in it may differ
    each time."""
    failures = [(True, status.trace)] if status.state == "FAILED" else []
    failures += [(False, task.trace) for task in status.tasks if task.state == "FAILED"]
    return {(is_connector, _root(trace or "")) for is_connector, trace in failures}


def _root(trace: str) -> str:
    lines = trace.splitlines() or [""]
    root = next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0])
    return _PARTITIONS.sub("#", _NUMBERS.sub("#", root))


def _has_records_to_copy(change: Change) -> bool:
    """Tell whether a new connector must show a first record; one whose offsets may be stored already need not."""
    records = sum(count for _, count in change.takes.topics.values()) if change.takes else 0
    rests = change.state is not None and change.state[1] in RESTING
    return change.action == "create" and records > 0 and not rests and not change.needs_offsets


class Verification:
    """What the connectors that an apply wrote on one Connect cluster show, wave by wave.

    `states` is filled on the way, so that a caller that is interrupted has what was seen.
    """

    def __init__(  # noqa: PLR0913  when to end, and where to report
        self,
        connect: str,
        ask: Ask,
        *,
        wait_seconds: float,
        hold_seconds: float | None = None,
        states: States | None = None,
        halt: asyncio.Event | None = None,
        waits: Callable[[Sequence[str]], None] = lambda connectors: None,
        logs: LogReader | None = None,
    ) -> None:
        self.states = {} if states is None else states
        self._connect, self._ask = connect, ask
        self._wait_seconds = wait_seconds
        self._hold_seconds = min(HOLD_SECONDS if hold_seconds is None else hold_seconds, wait_seconds / 2)
        self._halt = halt or asyncio.Event()
        self._waits = waits
        self._logs = logs
        self._before: Mapping[str, ConnectorStatus] = {}
        self._good: dict[str, WrittenConnector] = {}

    async def remember(self) -> None:
        """Read what runs before the first write; without an answer nothing is known of that, and nothing concluded."""

        def read() -> Steps[Mapping[str, ConnectorStatus]]:
            statuses = (yield [Statuses(self._connect)]).get(Statuses(self._connect))
            return {} if isinstance(statuses, Mm2mgrError) else statuses

        self._before = await self._ask(read())

    def state_before(self, name: str) -> str | None:
        """Return the state that a connector had; None when it is not known."""
        return self._before[name].state if name in self._before else None

    async def check(self, changes: Iterable[Change], *, is_canary: bool = False) -> Verdict:
        """Wait until every connector that was written shows a state of its own config, or the time is over.

        What was good in an earlier wave and failed since counts too. What was wrong before in the same way counts only
        in a canary, which has to prove something.
        """
        written = [self._watch_change(change, is_canary) for change in changes if change.action != "delete"]
        written_at = time.time()
        for connector in written:
            self._good.pop(connector.name, None)
        concerned = [(self._connect, name) for name in (*self._good, *(connector.name for connector in written))]
        unsettled: Sequence[WrittenConnector] = written

        async def look() -> Sequence[WrittenConnector]:
            nonlocal unsettled
            unsettled = await self._look(unsettled)
            return unsettled

        if concerned:
            end = timing.now() + self._wait_seconds
            await look_until(
                look, end, self._halt, waits=lambda late: self._waits([connector.name for connector in late])
            )
        for connector in unsettled if not self._halt.is_set() else ():
            self._set(connector, await self._ask(self._judge_late(connector, None if is_canary else written_at)))
        for connector in written:
            if settled := self.states.get(self._key_of(connector)):
                self._set(connector, replace(settled, arrived=connector.has_arrived))
        return worst(self.states[named].verdict for named in concerned)

    def _judge_late(self, connector: WrittenConnector, written_at: float | None) -> Steps[Settled]:
        """Return what counts when a connector was not seen to be right in time; None: no excuse counts."""
        state, verdict = self.states[self._key_of(connector)].state, self.states[self._key_of(connector)].verdict
        if connector.is_good_if_late and connector.is_on_its_way:
            return Settled("RUNNING, no new records to judge by", "ok")
        if connector.is_good_if_late:
            is_said = connector.may_drop or state.endswith(_AS_BEFORE)
            return Settled(state if is_said else f"{state}{_AS_BEFORE}", "ok")
        waiting = connector.arrivals if connector.arrivals and connector.arrivals.waiting else None
        if (
            waiting
            and written_at is not None
            and self._logs
            and (yield from self._logs.was_silent(waiting, written_at))
        ):
            return Settled(f"{state}{_AS_BEFORE}", "ok")
        return Settled(state, "failed" if connector.is_broken_if_late else verdict)

    def forget(self, name: str) -> None:
        """Leave out a connector whose write was taken back."""
        self._good.pop(name, None)
        self.states.pop((self._connect, name), None)

    def _key_of(self, connector: WrittenConnector) -> Named:
        return self._connect, connector.name

    def _set(self, connector: WrittenConnector, settled: Settled) -> None:
        self.states[self._key_of(connector)] = settled

    def _watch_change(self, change: Change, is_canary: bool) -> WrittenConnector:
        arrivals = self._logs.watching(change) if self._logs else None
        if arrivals:
            arrivals.patience_seconds = min(self._hold_seconds, self._wait_seconds / 5)
        status = self._before.get(change.connector)
        ran = status is not None and any(task.state == "RUNNING" for task in status.tasks)
        before = None if is_canary else status
        return WrittenConnector(change, self._hold_seconds, before=before, ran=ran, arrivals=arrivals)

    async def _look(self, written: Sequence[WrittenConnector]) -> Sequence[WrittenConnector]:
        """Read all of them once and return those to read again."""
        try:
            return await self._ask(self._look_once(written))  # type: ignore[no-any-return]
        except Mm2mgrError as error:
            for connector in written:
                connector.is_broken_if_late = connector.is_good_if_late = False
                self._set(connector, Settled(f"unknown: {error.one_line}", "inconclusive"))
            return written

    def _look_once(self, written: Sequence[WrittenConnector]) -> Steps[Sequence[WrittenConnector]]:
        # Tasks first: a status that is read after they had the config is at least not older than that.
        asking = [connector for connector in written if connector.asks_tasks]
        without_tasks = [connector for connector in written if connector.is_without_tasks]
        yield from side_by_side(
            *map(self._take_tasks, asking), *(self._ask_topics(connector) for connector in without_tasks)
        )
        names = (*self._good, *(connector.name for connector in written))
        shown = yield from read_connectors(self._connect, names)
        now, reliable = timing.now(), []
        for connector in self._good.values():
            settled = connector.judge(shown.get(connector.name))
            if settled.verdict == "failed":
                self._set(connector, settled)
        for connector in written:
            settled, relied = connector.look(shown.get(connector.name), now)
            self._set(connector, settled)
            if relied:
                reliable.append(connector)
        running = [
            connector
            for connector in reliable
            if not connector.arrived and self.states[self._key_of(connector)].verdict == "ok"
        ]
        yield from side_by_side(self._read_logs(written, reliable), *map(self._ask_record, running))
        for connector in reliable:
            if connector in running and not connector.arrived:
                self._set(connector, connector.awaits_record())
            elif self.states[self._key_of(connector)] == Settled("RUNNING", "ok"):
                self._set(connector, connector.judges_arrivals())
        ended = [connector for connector in reliable if self.states[self._key_of(connector)].verdict != "inconclusive"]
        self._good |= {
            connector.name: connector for connector in ended if self.states[self._key_of(connector)].verdict == "ok"
        }
        return [connector for connector in written if connector not in ended]

    def _read_logs(self, written: Iterable[WrittenConnector], reliable: Sequence[WrittenConnector]) -> Steps[None]:
        """Read log ends of what was updated: once at first, and then from when its tasks are seen to run."""
        if self._logs is None:
            return
        runs = {id(connector.arrivals) for connector in reliable}
        asked = [connector.arrivals for connector in written if connector.arrivals]
        chosen = [arrivals for arrivals in asked if id(arrivals) in runs or not arrivals.now]
        for arrivals, ends in (yield from self._logs.read(chosen)):
            arrivals.take(ends, timing.now(), runs=id(arrivals) in runs)

    def _take_tasks(self, connector: WrittenConnector) -> Steps[None]:
        question = TaskConfigs(self._connect, connector.name)
        with suppress(NotFound):  # deleted: the infos show it
            connector.take((yield [question])[question])

    def _ask_topics(self, connector: WrittenConnector) -> Steps[None]:
        """Ask once whether an updated connector without tasks has anything to take."""
        change = connector.change
        is_asked = connector.takes_topics is None and change.type == "source" and change.action == "update"
        if self._logs and is_asked:
            connector.takes_topics = yield from self._logs.takes_topics(change)

    def _ask_record(self, connector: WrittenConnector) -> Steps[None]:
        """Ask for the first record that the target has: at once in topics written to, later in stored offsets."""
        topics, offsets = WrittenTopics(self._connect, connector.name), StoredOffsets(self._connect, connector.name)
        try:
            connector.arrived = bool((yield [topics])[topics] or (yield [offsets])[offsets])
        except (NotFound, Unsupported):
            connector.arrived = True  # these workers do not report it

"""Whether written connectors run with their new config: looks at one Connect cluster until each shows it, or the time
is over.

A look is one request, a second one while a connector has no status, and one for each connector whose tasks may still
have the previous config, or of which the first record is awaited. Nothing is concluded from a cluster that does not
answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mm2mgr import timing
from mm2mgr.apply.arrival_check import DROPS, Arrivals, LogReader, said
from mm2mgr.comparison.differences import Named, diff
from mm2mgr.comparison.journal import JOURNAL_KEY
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import NotFound, Unsupported
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, TaskConfig, TaskStatus
from mm2mgr.connectors import RESTING
from mm2mgr.errors import Mm2mgrError
from mm2mgr.plan.changes import Change

Verdict = Literal["ok", "failed", "inconclusive"]
LOOK_SECONDS = 15.0
"""How long one look may take: a Connect cluster that takes longer to answer is not known."""
# How long a state must be shown once the tasks have the new config, before it is taken for theirs. The old one was seen
# for up to 0.45 s, with 40 connectors written at once; a task that is stuck goes on for
# task.shutdown.graceful.timeout.ms (5 s).
HOLD_SECONDS = 6.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_REQUESTS_AT_ONCE = 8


@dataclass(frozen=True)
class Settled:
    """What a written connector shows: `state` for people, and whether that is right, certainly wrong, or not known.

    What was wrong in the same way before the write is no fault of it: that is `ok`, and the state says so.
    """

    state: str
    verdict: Verdict


States = dict[Named, Settled]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on all of them."""
    distinct = set(verdicts)
    return "failed" if "failed" in distinct else "inconclusive" if "inconclusive" in distinct else "ok"


class Watched:
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
        self.arrived = not _has_records_to_copy(change)
        self.may_drop = bool(self.written.get("transforms"))
        self.takes_topics = bool(change.takes.topics) if change.takes and change.action == "create" else None
        self._hold_seconds = hold_seconds
        self._keys = diff(change.before or {}, self.written) if change.action == "update" else ()
        self._tasks_have_it = not self._keys
        self._before = before if change.action == "update" else None
        self._ran = ran
        self.arrivals = arrivals if ran else None
        self.is_broken_if_late = self.is_good_if_late = self.is_on_its_way = False
        self.is_without_tasks = False
        self._seen: tuple[Settled, bool] | None = None
        self._since = 0.0

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
            assigned = [partition for task in tasks_now for partition in task.assigned]
            self.arrivals.set_partitions(assigned, is_new=self._tasks_have_it)

    def look(self, info: ConnectorInfo | None, status: ConnectorStatus | None, now: float) -> tuple[Settled, bool]:
        """Return its state in this reading, and whether it is reliable."""
        settled = self.judged(info, status)
        # Tasks of a connector that rests take the config when it runs again; one that failed gives them none.
        alone = status is not None and status.state not in {"RUNNING", "UNASSIGNED"}
        lost = info is None or info.config != self.written
        without_tasks = self.is_without_tasks = info is not None and not info.tasks
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
        arrivals = said(self.arrivals)
        self.is_broken_if_late = self.arrivals.is_broken
        self.is_on_its_way = self.is_good_if_late = bool(self.arrivals.waiting) and not self.arrivals.overdue
        return Settled(
            f"RUNNING, {arrivals}" if arrivals else "RUNNING", "inconclusive" if self.arrivals.waiting else "ok"
        )

    def judged(self, info: ConnectorInfo | None, status: ConnectorStatus | None) -> Settled:  # noqa: PLR0911
        """Return what a reading shows, whether or not it belongs to the new config."""
        if info is None:
            return Settled("deleted since it was written", "failed")
        if info.config != self.written:
            return Settled("its config was overwritten since it was written", "failed")
        if status is None:
            return Settled("no status yet", "inconclusive")
        tasks = [task.state if task else "" for task in tasks_of(info, status)]
        if failed := tasks.count("FAILED"):
            return self._unless_before(status, f"{status.state}, {failed} of {len(tasks)} tasks FAILED")
        if status.state == "FAILED":
            return self._unless_before(status, status.state)
        wished = self.change.state[1] if self.change.state else None
        if wished and status.state not in {wished, "FAILED"}:
            return Settled(f"{status.state}, not {wished} yet", "inconclusive")
        if status.state == "RUNNING" and not tasks and self.change.type == "source":
            return self._without_tasks()
        return _state(status.state, tasks)

    def _unless_before(self, status: ConnectorStatus, state: str) -> Settled:
        """Return a failure, unless the same failed before: no more of it, and for no other reason."""
        before = self._before
        if before is None or not _failures(status) <= _failures(before):
            return Settled(state, "failed")
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
        reason = "its source cluster does not answer or refuses it" if self._ran else WHY_NO_TASKS
        return Settled(f"RUNNING, no tasks yet ({reason})", "inconclusive")


def tasks_of(info: ConnectorInfo, status: ConnectorStatus) -> list[TaskStatus | None]:
    """Return the status of each task that a connector has: one may miss tasks (None), or still hold removed ones."""
    shown = {task.id: task for task in status.tasks}
    return [shown.get(task) for task in info.tasks]


WHY_NO_TASKS = "no topic matches, or the source cluster does not answer"
_AS_BEFORE = ", as before the update"
_NUMBERS = re.compile(r"\d+")


def _failures(status: ConnectorStatus) -> set[tuple[bool, str]]:
    """Return what failed, the connector itself or a task, each with the root of its trace; numbers in it may differ
    each time.
    """
    failures = [(True, status.trace)] if status.state == "FAILED" else []
    failures += [(False, task.trace) for task in status.tasks if task.state == "FAILED"]
    return {(is_connector, _root(trace or "")) for is_connector, trace in failures}


def _root(trace: str) -> str:
    lines = trace.splitlines() or [""]
    return _NUMBERS.sub("#", next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0]))


def _has_records_to_copy(change: Change) -> bool:
    """Tell whether a new connector must show a first record; one whose offsets may be stored already need not."""
    records = sum(count for _, count in change.takes.topics.values()) if change.takes else 0
    rests = change.state is not None and change.state[1] in RESTING
    return change.action == "create" and records > 0 and not rests and not change.needs_offsets


def _state(state: str, tasks: list[str]) -> Settled:
    """Judge a connector of which nothing failed by its own state and those of its tasks."""
    running = tasks.count("RUNNING")
    if state in RESTING:
        return Settled(f"{state}, {running} tasks still RUNNING", "inconclusive") if running else Settled(state, "ok")
    if state == "RUNNING" and running == len(tasks):
        return Settled(state, "ok")  # a checkpoint connector without consumer groups has no tasks
    return Settled(f"{state}, {running} of {len(tasks)} tasks RUNNING", "inconclusive")


class Verification:
    """What the connectors that an apply wrote on one Connect cluster show, wave by wave.

    `states` is filled on the way, so that a caller that is interrupted has what was seen. `client` gives up after
    LOOK_SECONDS.
    """

    def __init__(  # noqa: PLR0913  when to end, and where to report
        self,
        client: ConnectClient,
        *,
        wait_seconds: float,
        hold_seconds: float | None = None,
        states: States | None = None,
        halt: asyncio.Event | None = None,
        waits: Callable[[Sequence[str]], None] = lambda connectors: None,
        logs: LogReader | None = None,
    ) -> None:
        self.states = {} if states is None else states
        self._client = client
        self._wait_seconds = wait_seconds
        self._hold_seconds = min(HOLD_SECONDS if hold_seconds is None else hold_seconds, wait_seconds / 2)
        self._halt = halt or asyncio.Event()
        self._waits = waits
        self._logs = logs
        self._before: Mapping[str, ConnectorStatus] = {}
        self._good: dict[str, Watched] = {}
        self._gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def remember(self) -> None:
        """Read what runs before the first write; without an answer nothing is known of that, and nothing concluded."""
        with suppress(Mm2mgrError):
            self._before = await self._client.statuses()

    def state_before(self, name: str) -> str | None:
        """Return the state that a connector had; None when it is not known."""
        return self._before[name].state if name in self._before else None

    async def check(self, changes: Iterable[Change], *, is_canary: bool = False) -> Verdict:
        """Wait until every connector that was written shows a state of its own config, or the time is over.

        What was good in an earlier wave and failed since counts too. What was wrong before in the same way counts only
        in a canary, which has to prove something.
        """
        chosen = [change for change in changes if change.action != "delete"]
        watched = [self._watch_change(change, is_canary) for change in chosen]
        written_at = time.time()
        for connector in watched:
            self._good.pop(connector.name, None)
        concerned = [
            (self._client.target.name, name) for name in (*self._good, *(connector.name for connector in watched))
        ]
        end, pause, waited = timing.now() + self._wait_seconds, _FIRST_PAUSE_SECONDS, False
        while watched or self._good:
            watched = await self._look(watched)
            is_over = timing.now() >= end
            if not watched or is_over or self._halt.is_set():
                break
            if not waited:
                self._waits([connector.name for connector in watched])
                waited = True
            await paused(min(pause, end - timing.now()), self._halt)
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
        for connector in watched if not self._halt.is_set() else ():
            self._set(connector, await self._judged_late(connector, None if is_canary else written_at))
        return worst(self.states[named].verdict for named in concerned)

    async def _judged_late(self, watched: Watched, written_at: float | None) -> Settled:
        """Return what counts at the end of the wait of a connector that was not seen to be right; None: no excuse
        counts.
        """
        state, verdict = self.states[self._named(watched)].state, self.states[self._named(watched)].verdict
        if watched.is_good_if_late and watched.is_on_its_way:
            return Settled("RUNNING, no new records to judge by", "ok")
        if watched.is_good_if_late:
            return Settled(state if watched.may_drop or state.endswith(_AS_BEFORE) else f"{state}{_AS_BEFORE}", "ok")
        waiting = watched.arrivals if watched.arrivals and watched.arrivals.waiting else None
        if waiting and written_at is not None and self._logs and await self._logs.was_silent(waiting, written_at):
            return Settled(f"{state}{_AS_BEFORE}", "ok")
        return Settled(state, "failed" if watched.is_broken_if_late else verdict)

    def forget(self, name: str) -> None:
        """Leave out a connector whose write was taken back."""
        self._good.pop(name, None)
        self.states.pop((self._client.target.name, name), None)

    def _named(self, watched: Watched) -> Named:
        return self._client.target.name, watched.name

    def _set(self, watched: Watched, settled: Settled) -> None:
        self.states[self._named(watched)] = settled

    def _watch_change(self, change: Change, is_canary: bool) -> Watched:
        arrivals = self._logs.watching(change) if self._logs else None
        if arrivals:
            arrivals.patience_seconds = min(self._hold_seconds, self._wait_seconds / 5)
        before = None if is_canary else self._before.get(change.connector)
        return Watched(change, self._hold_seconds, before=before, ran=self._ran(change.connector), arrivals=arrivals)

    def _ran(self, name: str) -> bool:
        status = self._before.get(name)
        return status is not None and any(task.state == "RUNNING" for task in status.tasks)

    async def _look(self, watched: list[Watched]) -> list[Watched]:
        """Read all of them once and return those to read again."""
        try:
            return await self._look_once(watched)
        except Mm2mgrError as error:
            for connector in watched:
                connector.is_broken_if_late = connector.is_good_if_late = False
                self._set(connector, Settled(f"unknown: {error.one_line}", "inconclusive"))
            return watched

    async def _look_once(self, watched: list[Watched]) -> list[Watched]:
        # Tasks first: a status that is read after they had the config is at least not older than that.
        await asyncio.gather(*(self._ask_tasks(connector) for connector in watched if connector.asks_tasks))
        await asyncio.gather(*(self._ask_topics(connector) for connector in watched if connector.is_without_tasks))
        infos, statuses = await self._client.infos_with_statuses()
        if any(name not in infos for name in (*self._good, *(connector.name for connector in watched))):
            infos |= await self._client.infos()  # that list leaves out what has no status yet
        now, reliable = timing.now(), []
        for connector in self._good.values():
            settled = connector.judged(infos.get(connector.name), statuses.get(connector.name))
            if settled.verdict == "failed":
                self._set(connector, settled)
        for connector in watched:
            settled, relied = connector.look(infos.get(connector.name), statuses.get(connector.name), now)
            self._set(connector, settled)
            if relied:
                reliable.append(connector)
        running = [
            connector
            for connector in reliable
            if not connector.arrived and self.states[self._named(connector)].verdict == "ok"
        ]
        await asyncio.gather(*map(self._ask_record, running))
        await self._read_logs(watched, reliable)
        for connector in reliable:
            if connector in running and not connector.arrived:
                self._set(connector, connector.awaits_record())
            elif self.states[self._named(connector)] == Settled("RUNNING", "ok"):
                self._set(connector, connector.judges_arrivals())
        good = [connector for connector in reliable if self.states[self._named(connector)].verdict == "ok"]
        self._good |= {connector.name: connector for connector in good}
        ended = [connector for connector in reliable if self.states[self._named(connector)].verdict != "inconclusive"]
        return [connector for connector in watched if connector not in ended]

    async def _read_logs(self, watched: Iterable[Watched], reliable: Sequence[Watched]) -> None:
        """Read log ends of what was updated: once at first, and then from when its tasks are seen to run."""
        if self._logs is None:
            return
        runs = {id(connector.arrivals) for connector in reliable}
        asked = [connector.arrivals for connector in watched if connector.arrivals]
        chosen = [arrivals for arrivals in asked if id(arrivals) in runs or not arrivals.now]
        for arrivals, ends in await self._logs.read(chosen):
            arrivals.take(ends, timing.now(), runs=id(arrivals) in runs)

    async def _ask_tasks(self, connector: Watched) -> None:
        async with self._gate:
            with suppress(NotFound):  # deleted: the infos show it
                connector.take(await self._client.tasks(connector.name))

    async def _ask_topics(self, watched: Watched) -> None:
        """Ask once whether an updated connector without tasks has anything to take."""
        if (
            self._logs
            and watched.takes_topics is None
            and watched.change.type == "source"
            and watched.change.action == "update"
        ):
            watched.takes_topics = await self._logs.takes_topics(watched.change)

    async def _ask_record(self, connector: Watched) -> None:
        """Ask for the first record that the target acknowledged: at once in the topics written to, later in stored
        offsets.
        """
        async with self._gate:
            try:
                connector.arrived = bool(
                    await self._client.topics(connector.name) or await self._client.offsets(connector.name)
                )
            except (NotFound, Unsupported):
                connector.arrived = True  # these workers do not report it


async def paused(seconds: float, halt: asyncio.Event) -> None:
    """Wait, but no longer than until the work is to end."""
    with suppress(TimeoutError):
        await asyncio.wait_for(halt.wait(), max(0.0, seconds))

"""Carries out a plan: Connect clusters at the same time, connectors of one cluster in waves by type.

Connectors are created by POST, which cannot overwrite. Before an update or a delete, the live config is compared with the one in
the plan; afterwards `read_back` reports what was overwritten, and `settle` what the connectors show.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, ConnectUnreachable, NotFound
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, TaskConfig
from mm2mgr.endpoints import connect_target
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.offsets import JOURNAL_KEY
from mm2mgr.reconcile.plan import Change, ClusterPlan, Named, Plan, diff
from mm2mgr.reconcile.stages import carry_out, differing, error_at, other_writer, stages
from mm2mgr.topology import Topology

# Heartbeats first (their topic must be there when the source connector looks), checkpoints after what they translate.
_WAVES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("heartbeat", ("create", "update")),
    ("source", ("create", "update")),
    ("checkpoint", ("create", "update")),
    ("", ("delete",)),
)
# Concurrent writes share one rebalance; one after the other each waits for the last (seen: 25 s against 3 s).
_AT_ONCE = 8
FINISH_SECONDS = 60.0
"""How long writes that were begun may take after a halt, before they are cut short."""
# Two applies that look at the same moment both write, and a write waits in the worker for rebalances: the second one was
# seen to land 1 to 3 s after the first. Connect has no conditional write, so what counts is what is stored after that.
_RACE_SECONDS = 4.0
_LONGEST_RACE_SECONDS = 30.0
# A follower shows what it knew; the leader's writes reach it within a moment.
_READ_BACK_SECONDS = 5.0
_READ_BACK_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Result:
    """The result of one change. `error` is None on success, `doubt` says why the write could not be read back."""

    connect: str
    connector: str
    action: str
    type: str = ""
    error: str | None = None
    hint: str | None = None
    seconds: float = 0.0
    doubt: str = ""
    change: Change | None = field(default=None, repr=False, compare=False)
    ended: float = field(default=0.0, repr=False, compare=False)  # of the monotonic clock

    def to_dict(self) -> dict[str, Any]:
        return {
            "connect": self.connect,
            "connector": self.connector,
            "action": self.action,
            "ok": self.error is None,
            "error": self.error,
            "hint": self.hint,
            "doubt": self.doubt,
        }


Report = Callable[[Result], None]


async def apply_plan(  # noqa: PLR0913  what to do, whom to tell, and when to end
    topology: Topology,
    plan: Plan,
    *,
    report: Report = lambda result: None,
    begin: Callable[[Change], None] = lambda change: None,
    deadline_seconds: float = 120.0,
    halt: asyncio.Event | None = None,
) -> list[Result]:
    """Write every change of the plan; one that fails does not stop the others.

    `deadline_seconds` bounds each write, retries included. Results are reported as they come and returned in all; what
    `read_back` says is to be asked for afterwards. When no worker of a Connect cluster answers until a deadline, the rest
    of its changes are not tried and say so. Once `halt` is set no write is begun (`begin` is called for each), and
    those that were begun have FINISH_SECONDS to end: then a change without a result was not begun.
    """
    halt = halt or asyncio.Event()
    async with asyncio.TaskGroup() as group:
        work = _Work(topology, report, begin, deadline_seconds, halt)
        parts = [group.create_task(_cluster(work, part)) for part in plan.clusters]
        watch = group.create_task(_cut_short(halt, parts))
        if parts:
            await asyncio.wait(parts)
        watch.cancel()
    return [result for part in parts for result in part.result()]


async def _cut_short(halt: asyncio.Event, parts: Iterable[asyncio.Task[list[Result]]]) -> None:
    await halt.wait()
    await asyncio.sleep(FINISH_SECONDS)
    for part in parts:
        part.cancel()


@dataclass(frozen=True)
class _Work:
    """What all Connect clusters of one apply have in common."""

    topology: Topology
    report: Report
    begin: Callable[[Change], None]
    deadline_seconds: float
    halt: asyncio.Event


async def _cluster(work: _Work, part: ClusterPlan) -> list[Result]:
    results: dict[str, Result] = {}

    def tell(result: Result) -> None:
        results[result.connector] = result
        work.report(result)

    if not part.writes:
        return []
    try:
        target = connect_target(work.topology.connects[part.connect])
        connect = ConnectClient(target, deadline_seconds=work.deadline_seconds)
    except Mm2mgrError as error:  # its credentials or certificates are not there any more
        for change in part.writes:
            tell(_result(change, error, 0.0))
        return list(results.values())
    async with connect as client:
        gate = asyncio.Semaphore(_AT_ONCE)
        gone = False

        async def write(change: Change) -> None:
            nonlocal gone
            async with gate:
                if work.halt.is_set():
                    return
                work.begin(change)
                begun = time.monotonic()
                try:
                    # Each write to dead workers would wait out a deadline of its own: 120 s for every eight connectors.
                    todo = stages(change, work.topology.owner)
                    error = _error(change, *_UNTRIED) if gone else await carry_out({part.connect: client}, todo)
                except asyncio.CancelledError:
                    error = _error(change, "interrupted while it was written", "apply again to finish it")
            gone = gone or _no_worker_answers(error)
            tell(_result(change, error, time.monotonic() - begun))

        try:
            for wave in _waves(part.writes):
                proved = [each for each in part.writes if each.needs_offsets and each.connector in results]
                refused = {flow for each in proved if results[each.connector].error is not None for flow in each.flows}
                async with asyncio.TaskGroup() as group:
                    for change in wave:
                        if change.type != "source" and change.flows and refused.issuperset(change.flows):
                            work.begin(change)
                            tell(_result(change, _error(change, *_SERVES_NOTHING), 0.0))
                        else:
                            group.create_task(write(change))
        except asyncio.CancelledError:
            pass  # cut short: what was begun has told
    return list(results.values())


def _waves(writes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield what may be written at once: first what may turn out not to run, so that nothing is written beside it."""
    yield [change for change in writes if change.needs_offsets]
    rest = [change for change in writes if not change.needs_offsets]
    for type_, actions in _WAVES:
        yield [change for change in rest if change.action in actions and type_ in {"", change.type}]


async def read_back(topology: Topology, results: Iterable[Result], *, deadline_seconds: float = 30.0) -> list[Result]:
    """Read what was written, in one request per Connect cluster; return the results that it changes: what was overwritten.

    Waits until no process that read the cluster before a write of this apply can still be writing, as far as that can be known.
    """
    by_cluster: dict[str, list[Result]] = {}
    for result in results:
        if result.error is None and result.change:
            by_cluster.setdefault(result.connect, []).append(result)

    async def one(connect: str, done: list[Result]) -> list[Result]:
        try:
            target = connect_target(topology.connects[connect])
            async with ConnectClient(target, deadline_seconds=deadline_seconds) as client:
                return await _read_back(client, topology.owner, done)
        except Mm2mgrError as error:
            return [replace(result, doubt=f"written, but not read back: {error.one_line}") for result in done]

    parts = await asyncio.gather(*(one(connect, done) for connect, done in by_cluster.items()))
    return [result for part in parts for result in part]


async def _read_back(client: ConnectClient, owner: str, done: list[Result]) -> list[Result]:
    written = [result for result in done if result.action != "create"]  # nobody else creates what is there
    if written:
        slowest = max(result.seconds for result in written)
        race = min(max(_RACE_SECONDS, 2 * slowest), max(_RACE_SECONDS, _LONGEST_RACE_SECONDS))
        await asyncio.sleep(max(0.0, max(result.ended for result in written) + race - time.monotonic()))
    end = time.monotonic() + _READ_BACK_SECONDS
    while True:
        live = {name: info.config for name, info in (await client.infos()).items()}
        wrong = [found for result in done if (found := _overwritten(result, live.get(result.connector), owner))]
        if not wrong or time.monotonic() > end:
            return wrong
        await asyncio.sleep(_READ_BACK_PAUSE_SECONDS)


def _overwritten(result: Result, live: Mapping[str, str] | None, owner: str) -> Result | None:
    """Return the result as an error if what is stored is not what was written."""
    change = result.change
    if change is None or (change.action == "delete" and live is None):
        return None
    written = {"name": change.connector, **(change.config or {})}
    if change.action == "delete":
        what = "it was deleted, but exists again"
    elif live is None:
        what = "it was written, but no longer exists"
    elif keys := differing(written, live):
        what = f"it was written, but overwritten since (keys: {keys})"
    else:
        return None
    error = _error(change, what, other_writer(owner))
    return replace(result, error=error.message, hint=error.hint)


def _no_worker_answers(error: Mm2mgrError | None) -> bool:
    """Tell whether every URL was dead until the deadline, for the write or for reading back what became of it."""
    return error is not None and any(isinstance(each, ConnectUnreachable) for each in (error, error.__cause__))


_UNTRIED = "skipped: the previous write got no response from any URL", "bring the workers back, then apply again"
_SERVES_NOTHING = "skipped: the flow that it serves was not created", "see the error of its source connector"


def _error(change: Change, what: str, hint: str) -> ConnectError:
    return error_at((change.connect, change.connector), what, hint)


def _result(change: Change, error: Mm2mgrError | None, seconds: float) -> Result:
    return Result(
        change.connect,
        change.connector,
        change.action,
        change.type,
        error.message if error else None,
        error.hint if error else None,
        seconds,
        change=change,
        ended=time.monotonic(),
    )


Verdict = Literal["ok", "failed", "inconclusive"]
# How long a state must be shown once the tasks have the new config, before it is taken for theirs. The old one was seen for
# up to 0.45 s, with 40 connectors written at once; a task that is stuck goes on for task.shutdown.graceful.timeout.ms (5 s).
HOLD_SECONDS = 6.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Settled:
    """What a written connector shows: `state` for people, and whether that is right, certainly wrong, or not known."""

    state: str
    verdict: Verdict


States = dict[Named, Settled]


async def settle(
    topology: Topology,
    results: Iterable[Result],
    *,
    timeout_seconds: float,
    hold_seconds: float | None = None,
    states: States | None = None,
) -> States:
    """Wait until every connector that was created or updated shows a state of its own config, or the time is over.

    `states` is filled on the way, so that a caller that is interrupted has what was seen.
    """
    states = {} if states is None else states
    by_cluster: dict[str, list[_Watched]] = {}
    hold = min(HOLD_SECONDS if hold_seconds is None else hold_seconds, timeout_seconds / 2)
    for result in results:
        if result.error is None and result.change and result.action != "delete":
            by_cluster.setdefault(result.connect, []).append(_Watched(result.change, hold))
    async with asyncio.TaskGroup() as group:
        for connect, watched in by_cluster.items():
            group.create_task(_watch(topology, connect, watched, timeout_seconds, states))
    return states


class _Watched:
    """One written connector: whether its tasks have the config, and what is seen of it since when."""

    def __init__(self, change: Change, hold_seconds: float) -> None:
        self.change = change
        self.name = change.connector
        self.written = {"name": self.name, **(change.config or {})}
        self._is_new = change.action == "create"
        self._hold_seconds = hold_seconds
        self._keys = () if self._is_new else diff(change.before or {}, self.written)
        self._tasks_have_it = not self._keys
        self._seen: tuple[Settled, bool] | None = None
        self._since = 0.0

    @property
    def asks_tasks(self) -> bool:
        return not self._tasks_have_it

    def take(self, tasks: Iterable[TaskConfig]) -> None:
        """Compare the tasks' configs, each of which holds the connector's, by the keys that the write changed."""
        configs = [task.config for task in tasks]
        # Where the tree has a placeholder, workers may show another text.
        telling = [key for key in self._keys if "${" not in f"{key.before}{key.after}"]
        self._tasks_have_it = bool(configs) and all(
            JOURNAL_KEY not in config and all(config.get(key.key) == key.after for key in telling) for config in configs
        )

    def look(self, info: ConnectorInfo | None, status: ConnectorStatus | None, now: float) -> tuple[Settled, bool]:
        """Return its state in this reading, and whether it is reliable."""
        seen = self._judged(info, status)
        # Tasks of a connector that rests take the config when it runs again; one that failed gives them none.
        alone = status is not None and status.state not in {"RUNNING", "UNASSIGNED"}
        lost = info is None or info.config != self.written
        belongs = self._tasks_have_it or alone or lost or (info is not None and not info.tasks)
        if self._seen != (seen, belongs):
            self._seen, self._since = (seen, belongs), now
        if seen.verdict == "inconclusive":
            return seen, False
        if not belongs:
            return Settled(f"{seen.state}, but its tasks still have the previous config", "inconclusive"), False
        at_once = self._is_new and info is not None and bool(info.tasks)
        if at_once or now - self._since >= self._hold_seconds:
            return seen, True
        return Settled(f"{seen.state}, possibly from before the write", "inconclusive"), False

    def _judged(self, info: ConnectorInfo | None, status: ConnectorStatus | None) -> Settled:
        if info is None:
            return Settled("deleted since it was written", "failed")
        if info.config != self.written:
            return Settled("its config was overwritten since it was written", "failed")
        if status is None:
            return Settled("no status yet", "inconclusive")
        shown = {task.id: task.state for task in status.tasks}
        tasks = [shown.get(task, "") for task in info.tasks]  # a status may miss tasks, or still hold removed ones
        if failed := tasks.count("FAILED"):
            return Settled(f"{status.state}, {failed} of {len(tasks)} tasks FAILED", "failed")
        wished = self.change.state[1] if self.change.state else None
        if wished and status.state not in {wished, "FAILED"}:
            return Settled(f"{status.state}, not {wished} yet", "inconclusive")
        return _state(status.state, tasks, is_source=self.change.type == "source")


def _state(state: str, tasks: list[str], *, is_source: bool) -> Settled:
    """Judge a connector without failed tasks by its own state and those of its tasks."""
    running = tasks.count("RUNNING")
    if state == "FAILED":
        return Settled(state, "failed")
    if state in {"PAUSED", "STOPPED"}:
        return Settled(f"{state}, {running} tasks still RUNNING", "inconclusive") if running else Settled(state, "ok")
    if state == "RUNNING" and is_source and not tasks:
        why = "no topic matches, or the source cluster does not answer"
        return Settled(f"RUNNING, no tasks yet ({why})", "inconclusive")
    if state == "RUNNING" and running == len(tasks):
        return Settled(state, "ok")  # a checkpoint connector without consumer groups has no tasks
    return Settled(f"{state}, {running} of {len(tasks)} tasks RUNNING", "inconclusive")


async def _watch(
    topology: Topology,
    connect: str,
    watched: list[_Watched],
    timeout_seconds: float,
    states: States,
) -> None:
    end, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
    async with ConnectClient(connect_target(topology.connects[connect]), deadline_seconds=10) as client:
        while True:
            try:
                watched = await _look(client, connect, watched, states)
            except Mm2mgrError as error:
                unknown = Settled(f"unknown: {error.one_line}", "inconclusive")
                states.update({(connect, each.name): unknown for each in watched})
            if not watched or time.monotonic() >= end:
                return
            await asyncio.sleep(max(0.0, min(pause, end - time.monotonic())))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)


async def _look(client: ConnectClient, connect: str, watched: list[_Watched], states: States) -> list[_Watched]:
    """Read all of them once and return those to read again: two requests, and one for each connector whose tasks are read.

    Tasks first: a status that is read after they had the config is at least not older than that.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(each: _Watched) -> None:
        async with gate:
            try:
                each.take(await client.tasks(each.name))
            except NotFound:  # deleted: the infos tell
                return

    await asyncio.gather(*(ask(each) for each in watched if each.asks_tasks))
    infos, statuses = await asyncio.gather(client.infos(), client.statuses())
    now, again = time.monotonic(), []
    for each in watched:
        states[connect, each.name], relied = each.look(infos.get(each.name), statuses.get(each.name), now)
        if not relied:
            again.append(each)
    return again

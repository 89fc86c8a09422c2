"""`watch`: look at the connectors again and again, and restart what FAILED for a reason that a restart can cure; never anything else.

What is restarted, and when, is decided by `problems.watchdog`. Only connectors of the tree's owner are touched, by one process at a time.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from mm2mgr import timing
from mm2mgr.apply.events import EventLog
from mm2mgr.apply.history import Recorder, author, read
from mm2mgr.apply.leases import Leases
from mm2mgr.apply.verbs import untouchable
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import OutcomeUnknown
from mm2mgr.connectors import RESTING
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.garbage import collect_garbage
from mm2mgr.json_values import to_json
from mm2mgr.live.endpoints import connect_target
from mm2mgr.observe.read import read_states
from mm2mgr.observe.reading import LiveConnector, SeenConnect
from mm2mgr.operations.workspace import Workspace, pause
from mm2mgr.plan.changes import Change
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.problems.connectors import failures_of
from mm2mgr.problems.kind import LiveProblem
from mm2mgr.problems.watchdog import FailedPart, RestartHistory, RestartPolicy, WatchAction, Watchdog, part_of
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology, watch_group

_READ_SECONDS = 10.0
_WRITE_SECONDS = 20.0
_LISTEN_SECONDS = 0.2
_CLOSE_SECONDS = 1.0
_CHANCE = random.SystemRandom()
_TASK, _CONNECTOR = "task ", "connector"
_ACTIONS_KEPT = 100

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WatchOrder:
    """What is watched and how: `dry_run` restarts nothing and takes no lease; while the file `freeze_file` exists nothing is restarted.

    `reason` is kept in the history with each restart.
    """

    flows: tuple[str, ...] = ()
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    dry_run: bool = False
    freeze_file: Path | None = None
    reason: str = ""

    @property
    def frozen(self) -> bool:
        """Whether nothing may be restarted now; also where the file's folder cannot be looked into."""
        try:
            return self.freeze_file is not None and self.freeze_file.exists()
        except OSError:
            return True


@dataclass(frozen=True)
class WatchRound:
    """One look. `actions` are what is new since the look before; `error` says why there was none.

    `standby`: Connect clusters that another process watches. `without_lease`: those that are not watched since the lease could not
    be had, with the reason. `unread`: those that could not be read, with the reason. `resting`: those that failed before, with the seconds until they are
    asked again. `unrecorded`: those whose history was not written, with the reason.
    `unlogged`: what is missing in the event log.
    """

    number: int
    taken_at: float
    actions: tuple[WatchAction, ...] = ()
    frozen: bool = False
    standby: tuple[str, ...] = ()
    without_lease: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, float] = field(default_factory=dict)
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    unlogged: str = ""

    @property
    def failed(self) -> bool:
        """Whether a Connect cluster was not watched, other than by standing by, or a restart was not carried out."""
        return bool(self.error or self.without_lease or self.unread or any(action.error for action in self.actions))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values without secrets."""
        return {
            **vars(self),
            "actions": to_json(self.actions),
            "standby": list(self.standby),
            "resting": {name: round(seconds) for name, seconds in self.resting.items()},
            "unlogged": self.unlogged or None,
        }


@dataclass(frozen=True)
class WatchdogView:
    """What the watchdog of this process last saw, its newest actions with the times of their looks, and the restarts since the start.

    `last`: None before the first look.
    """

    last: WatchRound | None = None
    is_dry_run: bool = False
    actions: tuple[tuple[float, WatchAction], ...] = ()
    restarts: int = 0
    failed_restarts: int = 0

    def after(self, done: WatchRound) -> WatchdogView:
        """Return what is known after a further look."""
        restarts = [one for one in done.actions if one.action == "restart" and not one.dry_run]
        failed = sum(one.error is not None for one in restarts)
        kept = (*self.actions, *((done.taken_at, one) for one in done.actions))[-_ACTIONS_KEPT:]
        return replace(
            self,
            last=done,
            actions=kept,
            restarts=self.restarts + len(restarts) - failed,
            failed_restarts=self.failed_restarts + failed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, newest action first; what the last look saw is null before it."""
        actions = [{"taken_at": at, **to_json(action)} for at, action in reversed(self.actions)]
        last = to_json(self.last) if self.last else {}
        return {
            **{
                key: last.get(key)
                for key in ("taken_at", "frozen", "standby", "without_lease", "unread", "resting", "error")
            },
            "dry_run": self.is_dry_run,
            "restarts": self.restarts,
            "failed_restarts": self.failed_restarts,
            "actions": actions,
        }


def watch(
    workspace: Workspace,
    order: WatchOrder | None = None,
    *,
    every_seconds: float = 10.0,
    events: Path | None = None,
    wait: Callable[[float], object] = pause,
) -> Generator[WatchRound]:
    """Yield look after look until the caller stops. Between two of them it calls `wait` with seconds; what is true ends it.

    The tree is read anew each time. A Connect cluster that cannot be read is asked less and less often, ten minutes apart at most.
    """
    workspace.refuse_snapshot()
    log, loop = workspace.event_log(events), _Loop(workspace, order or WatchOrder(), RoundSchedule(every_seconds))
    try:
        while True:
            yield loop.round(log)
            collect_garbage()
            if wait(loop.schedule.pause(_CHANCE.random())):
                return
    finally:
        loop.close()
        log.close()


@dataclass
class _Loop:
    workspace: Workspace
    order: WatchOrder
    schedule: RoundSchedule
    number: int = 0
    restored: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.order.policy)
        self.leases = Leases(watch_group)
        self.unrecorded: dict[str, str] = {}

    def close(self) -> None:
        """Give up the leases; a broker that does not answer delays nothing."""
        thread = threading.Thread(target=self.leases.close, name="leaves the lease", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)

    def round(self, log: EventLog) -> WatchRound:
        """Look once; no failure raises."""
        self.number += 1
        log.begin_run()
        try:
            done = self._round(replace(self.workspace), log)
        except Exception as error:  # a text that nobody expected ends this look, and not the loop
            done = WatchRound(self.number, time.time(), error=cause(error))
            log.write("failed", {"error": done.error})
        return replace(done, unlogged=log.trouble)

    def _round(self, workspace: Workspace, log: EventLog) -> WatchRound:
        topology, order = workspace.topology, self.order
        connectors = workspace.connectors_of(workspace.flows(order.flows))
        concerned = {each.connect for each in connectors}
        standby, without = ((), {}) if order.dry_run else aside(lambda: self.leases.missing(topology))
        resting = self.schedule.resting(timing.now())
        asked = concerned - {*standby, *without, *resting}
        if not order.dry_run and asked > self.restored & asked:
            without = {**without, **self._restore(topology, asked - self.restored)}
            asked &= self.restored
        seen = wait_for(read_states(topology, (one for one in connectors if one.connect in asked), _READ_SECONDS))
        unread = {one.name: one.failure.message for one in seen if one.failure}
        self.schedule = self.schedule.after(timing.now(), asked, unread, _CHANCE.random())
        owners, frozen = Ownership.of(topology), order.frozen
        ours = [one for each in seen for one in each.connectors.values() if _is_watched(one, owners)]
        problems = [problem for one in ours for problem in failures_of(one)]
        actions = self.watchdog.look(problems, running(ours), asked - unread.keys(), timing.now(), frozen=frozen)
        if order.dry_run:
            actions = [replace(action, dry_run=True) for action in actions]
        else:
            actions = self._carried_out(workspace, actions, seen)
        done = WatchRound(
            self.number,
            time.time(),
            tuple(actions),
            frozen,
            tuple(name for name in standby if name in concerned),
            {name: why for name, why in without.items() if name in concerned},
            unread,
            resting,
            self._not_recorded(),
        )
        for action in done.actions:
            log.write("watch_action", to_json(action))
        if unread:
            log.write("unread", {"connects": unread})
        return done

    def _restore(self, topology: Topology, connects: set[str]) -> dict[str, str]:
        """Count the restarts of the watchdogs before this one, so that one that crashes again and again makes no storm either.

        Returns the Connect clusters whose history cannot be read, with the reason.
        """
        found = aside(lambda: timing.run(read(topology, connects)))
        self.restored |= connects - found.unread.keys()
        self._count(found.entries)
        return {name: f"its history could not be read: {why}" for name, why in found.unread.items()}

    def _count(self, entries: Iterable[HistoryEntry]) -> None:
        """Count recorded restarts, at their times on the clock of this process; one in the future, of another machine's clock, is of now."""
        wall, here = time.time(), timing.now()
        for entry in entries:
            if entry.command != "watch":
                continue
            at = here - max(0.0, wall - datetime.fromisoformat(entry.when).timestamp())
            for key in entry.keys if here - at <= self.order.policy.window_seconds else ():
                number = str(key.get("key", "")).removeprefix(_TASK)
                part = entry.connect, entry.connector, int(number) if number.isdecimal() else None
                known = self.watchdog.histories.get(part, RestartHistory())
                self.watchdog.histories[part] = replace(known, restarts=tuple(sorted((*known.restarts, at))))

    def _carried_out(
        self, workspace: Workspace, actions: list[WatchAction], seen: Iterable[SeenConnect]
    ) -> list[WatchAction]:
        restarts = [action for action in actions if action.action == "restart"]
        if not restarts:
            return actions
        kinds = {(each.name, one.desired.name): one.desired.type for each in seen for one in each.connectors.values()}
        done = {part_of(one.problem): one for one in wait_for(_restarted(workspace, restarts))}
        self._record(workspace, done.values(), kinds)
        return [done.get(part_of(one.problem), one) if one.action == "restart" else one for one in actions]

    def _record(self, workspace: Workspace, done: Iterable[WatchAction], kinds: Mapping[tuple[str, str], str]) -> None:
        """Record restarts as the verbs do, without waiting for Kafka."""
        by = author(workspace.files)
        for action in done:
            subject, cause = action.problem.subject, action.problem.cause
            what = f"{_TASK}{subject.tasks[0]}" if subject.tasks else _CONNECTOR
            reason = f"{what}: {cause}" + (f"; {self.order.reason}" if self.order.reason else "")
            recorder = Recorder(workspace.topology, "watch", by, reason)
            named = subject.connect, subject.connector
            recorder.end(_change(action, what, kinds[named]), "failed" if action.error else "done", action.error)
            threading.Thread(target=self._close_recorder, args=(recorder,), daemon=True).start()

    def _close_recorder(self, recorder: Recorder) -> None:
        self.unrecorded.update(recorder.close())

    def _not_recorded(self) -> dict[str, str]:
        found, self.unrecorded = self.unrecorded, {}
        return found


def _change(action: WatchAction, what: str, kind: str) -> Change:
    """Return a restart as the history has it."""
    subject = action.problem.subject
    flows = (subject.flow,) if subject.flow else ()
    key = KeyChange(what, "FAILED", "restarted")
    return Change(subject.connect, subject.connector, kind, "update", flows, keys=(key,))


def _is_watched(seen: LiveConnector, owners: Ownership) -> bool:
    """Tell whether it is there and not at rest, this owner's, and its stored offsets are not being moved."""
    if seen.running is None or seen.status is None or seen.status.state in RESTING:
        return False
    return untouchable(seen.running.config, (seen.desired.connect, seen.desired.name), owners) is None


def running(connectors: Iterable[LiveConnector]) -> set[FailedPart]:
    """Return the connectors and tasks that show RUNNING."""
    parts = set[FailedPart]()
    for seen in connectors:
        if seen.status is None:
            continue
        states: list[tuple[int | None, str]] = [(None, seen.status.state)]
        states += [(task.id, task.state) for task in seen.status.tasks]
        named = seen.desired.connect, seen.desired.name
        parts |= {(*named, task) for task, state in states if state == "RUNNING"}
    return parts


async def _restarted(workspace: Workspace, actions: Iterable[WatchAction]) -> list[WatchAction]:
    """Send restarts, each of one task or one connector's own instance, Connect clusters side by side."""
    by_cluster: dict[str, list[WatchAction]] = {}
    for action in actions:
        by_cluster.setdefault(action.problem.subject.connect, []).append(action)

    async def one(name: str, mine: list[WatchAction]) -> list[WatchAction]:
        try:
            target = connect_target(workspace.topology.connects[name])
            async with ConnectClient(target, deadline_seconds=_WRITE_SECONDS) as client:
                return [replace(action, error=await _restart(client, action.problem)) for action in mine]
        except Mm2mgrError as error:  # its credentials are gone since it was read
            return [replace(action, error=error.one_line) for action in mine]

    parts = await asyncio.gather(*(one(name, mine) for name, mine in by_cluster.items()))
    return [action for part in parts for action in part]


async def _restart(client: ConnectClient, problem: LiveProblem) -> str | None:
    subject = problem.subject
    try:
        if subject.tasks:
            await client.restart_task(subject.connector, subject.tasks[0])
        else:
            await client.restart(subject.connector)
    except OutcomeUnknown:
        return None  # the next look shows it
    except Mm2mgrError as error:
        return error.one_line
    return None


def aside(work: Callable[[], Answer]) -> Answer:
    """Do what blocks outside Python in a thread, so that a signal ends the wait for it."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LISTEN_SECONDS)
    if errors:
        raise errors[0]
    return answers[0]

"""`watch`: look at the connectors again and again, and restart what FAILED for a reason that a restart can cure; and
set the stock class where a worker lacks that of the Connect plugin; never anything else.

What is done, and when, is decided by `problems.watchdog`. Only connectors of the tree's owner are touched, by one
process at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from mm2mgr import timing
from mm2mgr.apply.history import Recorder, author, read
from mm2mgr.apply.leases import Leases, holder_note
from mm2mgr.apply.rounds import Rounds, run_in_thread
from mm2mgr.apply.verbs import restart_parts, untouchable
from mm2mgr.assignment_text import ASSIGNMENT_KEY, digest
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RESTING
from mm2mgr.errors import cause
from mm2mgr.files import is_frozen
from mm2mgr.json_values import to_json
from mm2mgr.live.reach import Limits
from mm2mgr.observe.read import read_states
from mm2mgr.observe.reading import LiveConnector
from mm2mgr.operations.workspace import Workspace, pause
from mm2mgr.plan.assignments import with_stock_class
from mm2mgr.plan.changes import Change
from mm2mgr.plan.history import RESTARTED, TASK
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.problems.connectors import failures_of
from mm2mgr.problems.watchdog import (
    WHOLE,
    FailedPart,
    RestartHistory,
    RestartPolicy,
    WatchAction,
    Watchdog,
    part_of,
)
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology, watch_group

LIMITS = Limits(connect_seconds=10.0, write_seconds=20.0)
_CONNECTOR, _CLASS = "connector", "connector.class"
_ACTIONS_KEPT = 100


@dataclass(frozen=True)
class WatchOrder:
    """What is watched and how: `dry_run` writes nothing and takes no lease; while the file `freeze_file` exists nothing
    is written.

    `reason` is kept in the history with each restart.
    """

    flows: tuple[str, ...] = ()
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    dry_run: bool = False
    freeze_file: Path | None = None
    reason: str = ""

    @property
    def frozen(self) -> bool:
        """Whether nothing may be restarted now."""
        return self.freeze_file is not None and is_frozen(self.freeze_file)


@dataclass(frozen=True)
class WatchRound:
    """One look. `actions` are what is new since the look before; `error` says why there was none.

    `standby`: Connect clusters that another process watches. `without_lease`: those that are not watched since the
    lease could not be had, with the reason. `unread`: those that could not be read, with the reason. `resting`: those
    that failed before, with the seconds until they are asked again. `unrecorded`: those whose history was not written,
    with the reason. `unlogged`: what is missing in the event log.
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
    def has_failed(self) -> bool:
        """Whether a Connect cluster was not watched, other than by standing by, or a restart was not carried out."""
        return bool(self.error or self.without_lease or self.unread or any(action.error for action in self.actions))

    def to_dict(self) -> dict[str, object]:
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
    """What the watchdog of this process last saw, its newest actions with the times of their looks, and the restarts
    since the start, those by the stock class included.

    `last`: None before the first look.
    """

    last: WatchRound | None = None
    is_dry_run: bool = False
    actions: tuple[tuple[float, WatchAction], ...] = ()
    restarts: int = 0
    failed_restarts: int = 0

    def after_round(self, done: WatchRound) -> WatchdogView:
        """Return what is known after a further look."""
        restarts = [action for action in done.actions if action.writes and not action.dry_run]
        failed = sum(action.error is not None for action in restarts)
        newest = (*self.actions, *((done.taken_at, action) for action in done.actions))[-_ACTIONS_KEPT:]
        return replace(
            self,
            last=done,
            actions=newest,
            restarts=self.restarts + len(restarts) - failed,
            failed_restarts=self.failed_restarts + failed,
        )

    def to_dict(self) -> dict[str, object]:
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
    """Yield look after look until the caller stops. Between two of them it calls `wait` with seconds; what is true ends
    it.

    The tree is read anew each time. A Connect cluster that cannot be read is asked less and less often, ten minutes
    apart at most.
    """
    workspace.refuse_snapshot()
    rounds = Rounds(Leases(watch_group), RoundSchedule(every_seconds), workspace.event_log(events))
    watching = _Watching(workspace, order or WatchOrder(), rounds)
    return rounds.run(watching.look, watching.fail, lambda _, seconds: wait(seconds))


@dataclass
class _Watching:
    """What one look leaves for the next."""

    workspace: Workspace
    order: WatchOrder
    rounds: Rounds
    restored: frozenset[str] = frozenset()
    unrecorded: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.order.policy)

    def fail(self, error: Exception) -> WatchRound:
        """Return the look that an error ended."""
        self.rounds.log.write("failed", {"error": cause(error)})
        return WatchRound(self.rounds.number, time.time(), error=cause(error))

    def look(self) -> WatchRound:
        """Look once with the tree as it is now, and restart what is due."""
        workspace, order, log = replace(self.workspace), self.order, self.rounds.log
        topology = workspace.topology
        connectors = workspace.connectors_of(workspace.flows(order.flows))
        concerned = {connector.connect for connector in connectors}
        note = holder_note("watch", author(workspace.files), self.began)
        standby, without = ((), {}) if order.dry_run else self.rounds.find_writable(topology, note)
        resting = self.rounds.resting()
        asked = concerned - {*standby, *without, *resting}
        if not order.dry_run and asked > self.restored & asked:
            without = {**without, **self._restore(topology, asked - self.restored)}
            asked &= self.restored
        reading = read_states(
            topology, (connector for connector in connectors if connector.connect in asked), LIMITS.connect_seconds
        )
        connects = wait_for(reading)
        unread = {connect.name: connect.failure.message for connect in connects if connect.failure}
        self.rounds.record_failures(asked, unread)
        owners, frozen = Ownership.of_tree(topology), order.frozen
        watched = [
            connector
            for connect in connects
            for connector in connect.connectors.values()
            if _is_watched(connector, owners)
        ]
        problems = [problem for connector in watched for problem in failures_of(connector)]
        actions = self.watchdog.look(problems, running(watched), asked - unread.keys(), timing.now(), frozen=frozen)
        if order.dry_run:
            actions = [replace(action, dry_run=True) for action in actions]
        else:
            actions = self._restart(workspace, actions, watched)
        for action in actions:
            log.write("watch_action", to_json(action))
        if unread:
            log.write("unread", {"connects": unread})
        unrecorded, self.unrecorded = self.unrecorded, {}
        return WatchRound(
            self.rounds.number,
            time.time(),
            tuple(actions),
            frozen,
            tuple(name for name in standby if name in concerned),
            {name: reason for name, reason in without.items() if name in concerned},
            unread,
            resting,
            unrecorded,
        )

    def _restore(self, topology: Topology, connects: set[str]) -> dict[str, str]:
        """Count the restarts of the watchdogs before this one, so that one that crashes again and again makes no storm
        either.

        They count at their times on the clock of this process; one in the future, of another machine's clock, is of
        now. Returns the Connect clusters whose history cannot be read, with the reason.
        """
        history = run_in_thread(lambda: timing.run(read(topology, connects)))
        self.restored |= connects - history.unread.keys()
        wall, here = time.time(), timing.now()
        for entry in history.entries:
            if entry.command != "watch":
                continue
            at = here - max(0.0, wall - datetime.fromisoformat(entry.when).timestamp())
            for key in entry.keys if here - at <= self.order.policy.window_seconds else ():
                named = str(key.get("key", ""))
                if named not in (_CONNECTOR, _CLASS) and not named.startswith(TASK):
                    continue  # what goes with the class
                number = named.removeprefix(TASK)
                task = WHOLE if named == _CLASS else int(number) if number.isdecimal() else None
                part = entry.connect, entry.connector, task
                restarts = self.watchdog.histories.get(part, RestartHistory())
                self.watchdog.histories[part] = replace(restarts, restarts=tuple(sorted((*restarts.restarts, at))))
        return {name: f"its history could not be read: {reason}" for name, reason in history.unread.items()}

    def _restart(
        self, workspace: Workspace, actions: list[WatchAction], watched: Iterable[LiveConnector]
    ) -> list[WatchAction]:
        """Carry out the restarts and changes of class among these actions and record them, without waiting for
        Kafka."""
        due = {part_of(action.problem): action for action in actions if action.writes}
        if not due:
            return actions
        connectors = {(connector.desired.connect, connector.desired.name): connector for connector in watched}
        changes = {part: _change(part, action, connectors[part[:2]]) for part, action in due.items()}
        configs = {part[:2]: change for part, change in changes.items() if change.config is not None}
        errors = wait_for(restart_parts(workspace.topology, due, configs, LIMITS))
        by = author(workspace.files)
        for part, error in errors.items():
            reason = f"{changes[part].keys[0].key}: {due[part].problem.cause}"
            reason += f"; {self.order.reason}" if self.order.reason else ""
            recorder = Recorder(workspace.topology, "watch", by, reason)
            recorder.end(changes[part], "failed" if error else "done", error)
            threading.Thread(target=self._close_recorder, args=(recorder,), daemon=True).start()
        return [
            replace(action, error=errors[part_of(action.problem)]) if action.writes else action for action in actions
        ]

    def _close_recorder(self, recorder: Recorder) -> None:
        self.unrecorded.update(recorder.close())


def _change(part: FailedPart, action: WatchAction, connector: LiveConnector) -> Change:
    """Return what the history has of an action; of one that changes the class also the config to write."""
    subject, desired = action.problem.subject, connector.desired
    flows = (subject.flow,) if subject.flow else ()
    change = Change(desired.connect, desired.name, desired.type, "update", flows)
    if action.action == "restart" or connector.running is None:
        key = _CONNECTOR if part[2] is None else f"{TASK}{part[2]}"
        return replace(change, keys=(KeyChange(key, "FAILED", RESTARTED),))
    before = connector.running.config
    config = with_stock_class(before)
    keys = [KeyChange(_CLASS, before.get(_CLASS), config[_CLASS])]
    if text := before.get(ASSIGNMENT_KEY):
        keys.append(KeyChange(ASSIGNMENT_KEY, f"digest {digest(text)}", None))
    return replace(change, keys=tuple(keys), config=config, before=before)


def _is_watched(connector: LiveConnector, owners: Ownership) -> bool:
    """Tell whether it is there and not at rest, this owner's, and its stored offsets are not being moved."""
    if connector.running is None or connector.status is None or connector.status.state in RESTING:
        return False
    return untouchable(connector.running.config, (connector.desired.connect, connector.desired.name), owners) is None


def running(connectors: Iterable[LiveConnector]) -> set[FailedPart]:
    """Return the connectors and tasks that show RUNNING; those where all does also as a whole."""
    parts = set[FailedPart]()
    for connector in connectors:
        if connector.status is None:
            continue
        states: list[tuple[int | None, str]] = [(None, connector.status.state)]
        states += [(task.id, task.state) for task in connector.status.tasks]
        named = connector.desired.connect, connector.desired.name
        parts |= {(*named, task) for task, state in states if state == "RUNNING"}
        if len(states) > 1 and all(state == "RUNNING" for _, state in states):
            parts.add((*named, WHOLE))
    return parts

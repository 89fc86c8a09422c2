"""Pauses, resumes, stops and restarts connectors, and watches them until they and all their tasks are there.

What a connector shows decides whether a request is needed; one of another owner gets none. A failed read ends in an error for the
connectors of that Connect cluster and never holds up another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import OutcomeUnknown, Unsupported
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, trace_summary
from mm2mgr.endpoints import connect_target
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile import verify
from mm2mgr.reconcile.offsets import JOURNAL_KEY
from mm2mgr.reconcile.ownership import Ownership
from mm2mgr.reconcile.verify import Settled
from mm2mgr.render import CLASSES
from mm2mgr.text import few, nearest, number_of
from mm2mgr.topology import Topology

Verb = Literal["pause", "resume", "stop", "restart"]
GOAL: Mapping[Verb, str] = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED", "restart": "RUNNING"}
_AT_ONCE = 8
_READ_SECONDS = 30.0
_WRITE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_LONGEST_FLUSH_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Order:
    """What is asked of connectors; `only_failed` limits a restart to what FAILED."""

    verb: Verb
    only_failed: bool = False

    @property
    def goal(self) -> str:
        """The state that the connectors are to show."""
        return GOAL[self.verb]


@dataclass(frozen=True)
class Target:
    """A connector that a verb concerns. `declared` is the state that the tree wants of it, and the line that says so."""

    connect: str
    connector: str
    flows: tuple[str, ...] = ()
    declared: tuple[str, str] | None = None


@dataclass(frozen=True)
class Turn:
    """One connector on its way: what is sent (`write`) or why nothing is, the state before, and what was seen afterwards.

    `doubt` says why nobody can tell whether a request was carried out.
    """

    target: Target
    action: Literal["write", "none", "refused", "failed"]
    before: str = ""
    detail: str = ""
    hint: str | None = None
    warning: str = ""
    kind: str = ""
    settled: Settled | None = None
    written: bool = False
    doubt: str = ""

    @property
    def name(self) -> str:
        """`connect/connector`, unique in the estate."""
        return f"{self.target.connect}/{self.target.connector}"

    def to_dict(self) -> dict[str, Any]:
        """Return the turn as JSON-ready values, without secrets."""
        return {
            "connect": self.target.connect,
            "connector": self.target.connector,
            "flows": list(self.target.flows),
            "action": self.action,
            "written": self.written,
            "before": self.before,
            "detail": self.detail,
            "hint": self.hint,
            "warning": self.warning,
            "doubt": self.doubt,
            "state": self.settled.state if self.settled else "",
            "verdict": self.settled.verdict if self.settled else "",
        }


Report = Callable[[Turn], None]


# --- what is to be done: pure -----------------------------------------------------------------------------------------


def decide(
    order: Order, target: Target, owners: Ownership, live: Mapping[str, ConnectorInfo], status: ConnectorStatus | None
) -> Turn:
    """Decide what one connector needs, from what its Connect cluster shows of it."""
    info, before = live.get(target.connector), status.state if status else ""
    if info is None:
        return Turn(target, "refused", detail="does not exist there", hint=_instead(target, live))
    turn = Turn(target, "write", before, warning=_against(order, target), kind=_kind(info))
    if why := untouchable(info, (target.connect, target.connector), owners):
        return replace(turn, action="refused", detail=why[0], hint=why[1])
    if order.verb == "restart":
        return _restart(order, turn, status)
    if order.verb == "resume" and before == "FAILED":
        hint = f"fix the cause, then mm2mgr restart --failed {turn.name}"
        return replace(turn, action="none", detail="not resting but FAILED", hint=hint)
    return replace(turn, action="none", detail=f"already {before}") if before == order.goal else turn


def untouchable(info: ConnectorInfo, named: tuple[str, str], owners: Ownership) -> tuple[str, str | None] | None:
    """Return why nothing may be sent to a connector, and what to do."""
    if not owners.is_ours(named, info.config):
        remedy = None if named in owners.released else owners.remedy(named, info.config)
        return f"{owners.whose(named, info.config)}; mm2mgr does not touch it", remedy
    if JOURNAL_KEY in info.config:
        hint = "unless an apply is in progress, run mm2mgr apply, which finishes it"
        return "a move of its stored offsets is not finished", hint
    return None


def _restart(order: Order, turn: Turn, status: ConnectorStatus | None) -> Turn:
    if turn.before in {"PAUSED", "STOPPED"}:
        return replace(turn, action="none", detail=f"{turn.before}: nothing of it runs", hint="mm2mgr resume runs it")
    if not order.only_failed:
        return turn
    failed = [str(task.id) for task in status.tasks if task.state == "FAILED"] if status else []
    if turn.before == "FAILED":
        failed.insert(0, "the connector itself")
    if not failed:
        return replace(turn, action="none", detail="nothing of it FAILED")
    return replace(
        turn, detail=f"FAILED: {', '.join(failed) if turn.before == 'FAILED' else 'task ' + ', '.join(failed)}"
    )


def _against(order: Order, target: Target) -> str:
    """Say that the tree declares another state, which the next apply would bring back."""
    if target.declared is None or order.verb == "restart" or target.declared[0] == order.goal:
        return ""
    state, where = target.declared
    return f"the tree declares state: {state.lower()} ({where}), so the next apply brings it back to {state}; change that line too"


def _instead(target: Target, live: Mapping[str, ConnectorInfo]) -> str:
    if target.flows:
        return "run mm2mgr apply, which creates it"
    near = nearest(target.connector, live, 0.4, count=3)
    return f"did you mean {', '.join(near)}?" if near else f"connectors there: {few(sorted(live), 5) or 'none'}"


def _kind(info: ConnectorInfo) -> str:
    """Return source, checkpoint or heartbeat; nothing for what is not MirrorMaker's."""
    found = info.config.get("connector.class", "").rpartition(".")[2]
    return next((kind for kind, name in CLASSES.items() if name.endswith(f".{found}")), "")


def judge(goal: str, info: ConnectorInfo | None, status: ConnectorStatus | None, *, is_source: bool) -> Settled:
    """Tell whether a connector and every one of its tasks show the state."""
    if info is None:
        return Settled("deleted meanwhile", "failed")
    if status is None:
        return Settled("no status yet", "inconclusive")
    if status.state == "FAILED":
        return Settled(f"FAILED: {trace_summary(status.trace)}", "failed")
    if status.state != goal:
        return Settled(f"{status.state}, not {goal} yet", "inconclusive")
    if goal == "STOPPED":
        left = number_of(max(len(info.tasks), len(status.tasks)), "task")
        ended = not (info.tasks or status.tasks)
        return Settled(goal, "ok") if ended else Settled(f"STOPPED, {left} not ended yet", "inconclusive")
    return _judge_tasks(goal, info, status, is_source=is_source)


def _judge_tasks(goal: str, info: ConnectorInfo, status: ConnectorStatus, *, is_source: bool) -> Settled:
    shown = {task.id: task for task in status.tasks}
    tasks = [shown.get(task) for task in info.tasks]  # a status may miss tasks, or hold removed ones
    failed = [task for task in tasks if task and task.state == "FAILED"]
    count, there = number_of(len(tasks), "task"), sum(task is not None and task.state == goal for task in tasks)
    if failed and goal == "RUNNING":
        return Settled(f"RUNNING, {len(failed)} of {count} FAILED: {trace_summary(failed[0].trace)}", "failed")
    if there + len(failed) < len(tasks):
        return Settled(f"{goal}, {there} of {count} {goal}", "inconclusive")
    if goal == "RUNNING" and is_source and not tasks:
        return Settled(
            "RUNNING, no tasks yet (no topic matches, or the source cluster does not answer)", "inconclusive"
        )
    # A FAILED task moves nothing and never becomes PAUSED.
    return Settled(f"{goal}, {number_of(len(failed), 'task')} FAILED" if failed else goal, "ok")


# --- reading and writing ----------------------------------------------------------------------------------------------


async def look(topology: Topology, order: Order, targets: Iterable[Target]) -> list[Turn]:
    """Read the Connect clusters concerned, side by side, and decide; nothing is written."""

    async def one(name: str, wanted: Sequence[Target]) -> list[Turn]:
        try:
            target = connect_target(topology.connects[name])
            async with ConnectClient(target, deadline_seconds=_READ_SECONDS) as client:
                live, statuses = await asyncio.gather(client.infos(), client.statuses())
        except Mm2mgrError as error:
            return [Turn(each, "failed", detail=error.message, hint=error.hint) for each in wanted]
        owners = Ownership.of(topology)
        return [decide(order, each, owners, live, statuses.get(each.connector)) for each in wanted]

    by_cluster: dict[str, list[Target]] = {}
    for target in targets:
        by_cluster.setdefault(target.connect, []).append(target)
    found = await asyncio.gather(*(one(name, wanted) for name, wanted in by_cluster.items()))
    return [turn for turns in found for turn in turns]


async def carry_out(topology: Topology, order: Order, turns: Sequence[Turn], report: Report) -> list[Turn]:
    """Send what was decided, Connect clusters side by side; returns before the connectors are there."""

    async def one(name: str, mine: Sequence[Turn]) -> list[Turn]:
        gate = asyncio.Semaphore(_AT_ONCE)
        try:
            connect = ConnectClient(connect_target(topology.connects[name]), deadline_seconds=_WRITE_SECONDS)
        except Mm2mgrError as error:  # its credentials are gone since it was read
            return [replace(turn, action="failed", detail=error.message, hint=error.hint) for turn in mine]

        async def send(turn: Turn) -> Turn:
            async with gate:
                sent = await _sent(connect, order, turn)
            report(sent)
            return sent

        async with connect:
            return list(await asyncio.gather(*map(send, mine)))

    writes = [turn for turn in turns if turn.action == "write"]
    parts = await asyncio.gather(*(one(name, mine) for name, mine in _by_cluster(writes).items()))
    sent = {turn.name: turn for part in parts for turn in part}
    return [sent.get(turn.name, turn) for turn in turns]


async def _sent(client: ConnectClient, order: Order, turn: Turn) -> Turn:
    name = turn.target.connector
    try:
        if order.verb == "restart":
            await client.restart(name, include_tasks=True, only_failed=order.only_failed)
        else:
            await {"pause": client.pause, "resume": client.resume, "stop": client.stop}[order.verb](name)
    except OutcomeUnknown as lost:
        if order.verb != "restart":
            return replace(turn, action="failed", detail=lost.message, hint=lost.hint)
        # That nothing is FAILED any more proves it; a plain restart leaves no trace.
        doubt = "" if order.only_failed else "the answer was lost, so it may not have been restarted"
        return replace(turn, written=True, doubt=doubt)
    except Mm2mgrError as error:
        return replace(turn, action="failed", detail=error.message, hint=error.hint)
    return replace(turn, written=True)


def _by_cluster(turns: Iterable[Turn]) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        found.setdefault(turn.target.connect, []).append(turn)
    return found


# --- until they are there ---------------------------------------------------------------------------------------------


async def watch(topology: Topology, order: Order, turns: Sequence[Turn], wait_seconds: float) -> list[Turn]:
    """Return the turns with what their connectors showed: until all are as wanted, or the time is over.

    A pause is over when every task is PAUSED and the stored offsets of a source connector stood still over two flushes, for which
    three flush intervals are added to `wait_seconds`: Connect goes on to flush what tasks had sent before they paused.
    """

    async def one(name: str, mine: Sequence[Turn]) -> list[_Watched]:
        flush = topology.connects[name].model.flush_interval
        watched = [_Watched(order, turn, 2 * flush) for turn in mine]
        end = time.monotonic() + wait_seconds + (3 * flush if any(each.must_stand_still for each in watched) else 0.0)
        try:
            target = connect_target(topology.connects[name])
        except Mm2mgrError as error:  # its credentials are gone since the request was sent
            for each in watched:
                each.unknown(error)
            return watched
        async with ConnectClient(target, deadline_seconds=_READ_SECONDS) as client:
            await _until_settled(client, watched, end)
        return watched

    mine = [turn for turn in turns if turn.written or (turn.action == "none" and turn.before == order.goal)]
    parts = await asyncio.gather(*(one(name, group) for name, group in _by_cluster(mine).items()))
    settled = {each.turn.name: each.result() for part in parts for each in part}
    return [replace(turn, settled=settled.get(turn.name)) for turn in turns]


async def _until_settled(client: ConnectClient, watched: Sequence[_Watched], end: float) -> None:
    pause, unsettled, gate = _FIRST_PAUSE_SECONDS, list(watched), asyncio.Semaphore(_AT_ONCE)
    while True:
        try:
            infos, statuses = await asyncio.gather(client.infos(), client.statuses())
            for each in unsettled:
                each.look(infos.get(each.connector), statuses.get(each.connector), time.monotonic())
            await asyncio.gather(*(each.look_at_offsets(client, gate) for each in unsettled if each.stands))
        except Mm2mgrError as error:
            for each in unsettled:
                each.unknown(error)
        unsettled = [each for each in unsettled if not each.is_settled]
        if not unsettled or time.monotonic() >= end:
            return
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
        if all(each.stands for each in unsettled):
            pause = min(max(unsettled[0].still_seconds / 12, _FIRST_PAUSE_SECONDS), _LONGEST_FLUSH_PAUSE_SECONDS)
        await asyncio.sleep(max(0.0, min(pause, end - time.monotonic())))


class _Watched:
    """One connector, and since when it shows what it shows."""

    def __init__(self, order: Order, turn: Turn, still_seconds: float) -> None:
        self.turn, self.connector, self.still_seconds = turn, turn.target.connector, still_seconds
        self.settled = Settled("not looked at yet", "inconclusive")
        self.is_settled = False
        self.must_stand_still = order.verb == "pause" and turn.kind == "source"
        self.stands = False
        self._goal = order.goal
        # Right after a restart Connect shows the states from before for a moment, and a failure only when it repeats.
        self._hold_seconds = verify.HOLD_SECONDS if order.verb == "restart" else 0.0
        self._since = time.monotonic()
        self._offsets: object = None
        self._offsets_since = 0.0
        self._pending = ""

    def look(self, info: ConnectorInfo | None, status: ConnectorStatus | None, now: float) -> None:
        """Take in one reading of its state."""
        seen = judge(self._goal, info, status, is_source=self.turn.kind == "source")
        if seen != self.settled:
            self.settled, self._since = seen, now
        hold = verify.HOLD_SECONDS if seen.verdict == "failed" else self._hold_seconds
        self.is_settled = seen.verdict != "inconclusive" and now - self._since >= hold
        self.stands = self.must_stand_still and seen.verdict == "ok"
        if not self.stands:
            self._offsets = None
        elif self.is_settled:
            self.is_settled = False  # its offsets decide

    async def look_at_offsets(self, client: ConnectClient, gate: asyncio.Semaphore) -> None:
        """Read its stored offsets, and settle it once they have stood still for long enough."""
        try:
            async with gate:
                asked = time.monotonic()
                found = {entry.key: entry.offset for entry in await client.offsets(self.connector)}
        except Unsupported:
            why = "whether its stored offsets stand still is unknown: its workers do not show them (Kafka 3.5 does)"
            self.settled = Settled(f"{self.settled.state}; {why}", "inconclusive")
            self.is_settled, self.stands = True, False
            return
        except Mm2mgrError as error:
            self.unknown(error)
            return
        if self._offsets != found:
            self._offsets, self._offsets_since = found, time.monotonic()
        still = max(0.0, asked - self._offsets_since)  # from the end of the first answer to the newest question
        if still >= self.still_seconds:
            self.is_settled = True
        else:
            self._pending = f"stored offsets stood still for {still:.0f} of {self.still_seconds:g} s"

    def result(self) -> Settled:
        """Return what it shows, with what is still missing."""
        if not self.stands or self.is_settled:
            return self.settled
        return Settled(f"{self.settled.state}, {self._pending}", "inconclusive")

    def unknown(self, error: Mm2mgrError) -> None:
        """Note that it could not be read; what was seen before no longer counts."""
        self.settled, self._since = Settled(f"unknown: {error.one_line}", "inconclusive"), time.monotonic()
        self.stands, self.is_settled, self._offsets = False, False, None

"""Watches connectors that were paused, resumed, stopped or restarted until they and all their tasks are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from mm2mgr import timing
from mm2mgr.apply import settle
from mm2mgr.apply.settle import Settled
from mm2mgr.apply.verbs import Order, Turn, by_cluster
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import Unsupported
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, trace_summary
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.endpoints import connect_target
from mm2mgr.text import number_of
from mm2mgr.topology import Topology

_AT_ONCE = 8
_READ_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_LONGEST_FLUSH_PAUSE_SECONDS = 10.0


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
    tasks = settle.tasks_of(info, status)
    failed = [task for task in tasks if task and task.state == "FAILED"]
    count, there = number_of(len(tasks), "task"), sum(task is not None and task.state == goal for task in tasks)
    if failed and goal == "RUNNING":
        return Settled(f"RUNNING, {len(failed)} of {count} FAILED: {trace_summary(failed[0].trace)}", "failed")
    if there + len(failed) < len(tasks):
        return Settled(f"{goal}, {there} of {count} {goal}", "inconclusive")
    if goal == "RUNNING" and is_source and not tasks:
        return Settled(f"RUNNING, no tasks yet ({settle.WHY_NO_TASKS})", "inconclusive")
    # A FAILED task moves nothing and never becomes PAUSED.
    return Settled(f"{goal}, {number_of(len(failed), 'task')} FAILED" if failed else goal, "ok")


async def watch(topology: Topology, order: Order, turns: Sequence[Turn], wait_seconds: float) -> list[Turn]:
    """Return the turns with what their connectors showed: until all are as wanted, or the time is over.

    A pause is over when every task is PAUSED and the stored offsets of a source connector have not changed over two
    flushes, for which three flush intervals are added to `wait_seconds`: Connect goes on to flush what tasks had sent
    before they paused.
    """

    async def watch_cluster(name: str, mine: Sequence[Turn]) -> list[_Watched]:
        flush = topology.connects[name].model.flush_interval
        watched = [_Watched(order, turn, 2 * flush) for turn in mine]
        end = (
            timing.now()
            + wait_seconds
            + (3 * flush if any(connector.needs_steady_offsets for connector in watched) else 0.0)
        )
        try:
            target = connect_target(topology.connects[name])
        except Mm2mgrError as error:  # its credentials are gone since the request was sent
            for connector in watched:
                connector.unknown(error)
            return watched
        async with ConnectClient(target, deadline_seconds=_READ_SECONDS) as client:
            await _until_settled(client, watched, end)
        return watched

    mine = [turn for turn in turns if turn.written or (turn.action == "none" and turn.before == order.goal)]
    parts = await asyncio.gather(*(watch_cluster(name, group) for name, group in by_cluster(mine).items()))
    settled = {connector.turn.name: connector.result() for part in parts for connector in part}
    return [replace(turn, settled=settled.get(turn.name)) for turn in turns]


async def _until_settled(client: ConnectClient, watched: Sequence[_Watched], end: float) -> None:
    pause, unsettled, gate = _FIRST_PAUSE_SECONDS, list(watched), asyncio.Semaphore(_AT_ONCE)
    while True:
        try:
            infos, statuses = await asyncio.gather(client.infos(), client.statuses())
            for connector in unsettled:
                connector.look(infos.get(connector.connector), statuses.get(connector.connector), timing.now())
            await asyncio.gather(
                *(connector.look_at_offsets(client, gate) for connector in unsettled if connector.awaits_offsets)
            )
        except Mm2mgrError as error:
            for connector in unsettled:
                connector.unknown(error)
        unsettled = [connector for connector in unsettled if not connector.is_settled]
        if not unsettled or timing.now() >= end:
            return
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
        if all(connector.awaits_offsets for connector in unsettled):
            pause = min(max(unsettled[0].still_seconds / 12, _FIRST_PAUSE_SECONDS), _LONGEST_FLUSH_PAUSE_SECONDS)
        await asyncio.sleep(max(0.0, min(pause, end - timing.now())))


class _Watched:
    """One connector, and since when it shows what it shows."""

    def __init__(self, order: Order, turn: Turn, still_seconds: float) -> None:
        self.turn, self.connector, self.still_seconds = turn, turn.target.connector, still_seconds
        self.settled = Settled("not looked at yet", "inconclusive")
        self.is_settled = False
        self.needs_steady_offsets = order.verb == "pause" and turn.kind == "source"
        self.awaits_offsets = False
        self._goal = order.goal
        # Right after a restart Connect shows the states from before for a moment, and a failure only when it repeats.
        self._hold_seconds = settle.HOLD_SECONDS if order.verb == "restart" else 0.0
        self._since = timing.now()
        self._offsets: object = None
        self._offsets_since = 0.0
        self._pending = ""

    def look(self, info: ConnectorInfo | None, status: ConnectorStatus | None, now: float) -> None:
        """Take in one reading of its state."""
        settled = judge(self._goal, info, status, is_source=self.turn.kind == "source")
        if settled != self.settled:
            self.settled, self._since = settled, now
        hold = settle.HOLD_SECONDS if settled.verdict == "failed" else self._hold_seconds
        self.is_settled = settled.verdict != "inconclusive" and now - self._since >= hold
        self.awaits_offsets = self.needs_steady_offsets and settled.verdict == "ok"
        if not self.awaits_offsets:
            self._offsets = None
        elif self.is_settled:
            self.is_settled = False  # its offsets decide

    async def look_at_offsets(self, client: ConnectClient, gate: asyncio.Semaphore) -> None:
        """Read its stored offsets, and settle it once they have not changed for long enough."""
        try:
            async with gate:
                asked = timing.now()
                offsets = {entry.key: entry.offset for entry in await client.offsets(self.connector)}
        except Unsupported:
            reason = "whether its stored offsets still change is unknown: its workers do not show them (Kafka 3.5 does)"
            self.settled = Settled(f"{self.settled.state}; {reason}", "inconclusive")
            self.is_settled, self.awaits_offsets = True, False
            return
        except Mm2mgrError as error:
            self.unknown(error)
            return
        if self._offsets != offsets:
            self._offsets, self._offsets_since = offsets, timing.now()
        still = max(0.0, asked - self._offsets_since)  # from the end of the first answer to the newest question
        if still >= self.still_seconds:
            self.is_settled = True
        else:
            self._pending = f"stored offsets unchanged for {still:.0f} of {self.still_seconds:g} s"

    def result(self) -> Settled:
        """Return what it shows, with what is still missing."""
        if not self.awaits_offsets or self.is_settled:
            return self.settled
        return Settled(f"{self.settled.state}, {self._pending}", "inconclusive")

    def unknown(self, error: Mm2mgrError) -> None:
        """Note that it could not be read; what was seen before no longer counts."""
        self.settled, self._since = Settled(f"unknown: {error.one_line}", "inconclusive"), timing.now()
        self.awaits_offsets, self.is_settled, self._offsets = False, False, None

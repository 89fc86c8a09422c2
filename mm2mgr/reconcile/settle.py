"""Waits until written connectors show a state that belongs to the new config, and judges it: ok, failed or inconclusive.

Connect's status has no generation: right after a write it still shows the state under the previous config (seen on 4.3.1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import NotFound
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, TaskConfig
from mm2mgr.endpoints import connect_target
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.apply import Result
from mm2mgr.reconcile.offset_move import THEN_KEY
from mm2mgr.reconcile.plan import Change, Named, diff
from mm2mgr.topology import Topology

Verdict = Literal["ok", "failed", "inconclusive"]
# How long a state must be shown once the tasks have the new config, before it is taken for theirs. The old one was seen for
# up to 0.45 s, with 40 connectors written at once; a task that is stuck goes on for task.shutdown.graceful.timeout.ms (5 s).
HOLD_SECONDS = 6.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_AT_ONCE = 8


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
            THEN_KEY not in config and all(config.get(key.key) == key.after for key in telling) for config in configs
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

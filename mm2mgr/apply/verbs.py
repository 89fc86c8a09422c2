"""Pauses, resumes, stops and restarts connectors; `wait` watches them until they and all their tasks are there.

What a connector shows decides whether a request is needed; one of another owner gets none. A failed read ends in an error for the
connectors of that Connect cluster and never holds up another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from mm2mgr.apply.settle import Settled
from mm2mgr.comparison.journal import JOURNAL_KEY, Journal
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import OutcomeUnknown
from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus
from mm2mgr.connectors import RESTING
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.endpoints import connect_target
from mm2mgr.live.questions import Configs, Statuses
from mm2mgr.live.snapshot import Steps
from mm2mgr.text import few, nearest
from mm2mgr.topology import Topology
from mm2mgr.truth.reach import type_of

Verb = Literal["pause", "resume", "stop", "restart"]
GOAL: Mapping[Verb, str] = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED", "restart": "RUNNING"}
_FINISH = "unless an apply is in progress, run mm2mgr apply, which finishes it"
_AT_ONCE = 8
_WRITE_SECONDS = 60.0


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

    @property
    def named(self) -> tuple[str, str]:
        """The Connect cluster and the connector."""
        return self.connect, self.connector


@dataclass(frozen=True)
class Turn:
    """One connector on its way: what is sent (`write`) or why nothing is, the state before, and what was seen afterwards.

    `doubt` says why it is unknown whether a request was carried out.
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
    json_keys = (
        "connect=target.connect connector=target.connector flows=target.flows "
        "action written before detail hint warning doubt state verdict"
    )

    @property
    def name(self) -> str:
        """`connect/connector`, unique in the estate."""
        return f"{self.target.connect}/{self.target.connector}"

    @property
    def state(self) -> str:
        """What was seen afterwards, empty where nothing was."""
        return self.settled.state if self.settled else ""

    @property
    def verdict(self) -> str:
        return self.settled.verdict if self.settled else ""


Report = Callable[[Turn], None]


# --- what is to be done: pure -----------------------------------------------------------------------------------------


def decide(
    order: Order, target: Target, owners: Ownership, live: Mapping[str, ConnectorInfo], status: ConnectorStatus | None
) -> Turn:
    """Decide what one connector needs, from what its Connect cluster shows of it."""
    info, before = live.get(target.connector), status.state if status else ""
    if info is None:
        return Turn(target, "refused", detail="does not exist there", hint=_instead(target, live))
    turn = Turn(
        target,
        "write",
        before,
        warning=_against_tree(order, target),
        kind=type_of(info.config.get("connector.class", "")) or "",
    )
    if refusal := untouchable(info, target.named, owners):
        return replace(turn, action="refused", detail=refusal[0], hint=refusal[1])
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
        return "a move of its stored offsets is not finished", _FINISH
    return None


def _restart(order: Order, turn: Turn, status: ConnectorStatus | None) -> Turn:
    if turn.before in RESTING:
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


def _against_tree(order: Order, target: Target) -> str:
    """Say that the tree declares another state, which the next apply would bring back."""
    if target.declared is None or order.verb == "restart" or target.declared[0] == order.goal:
        return ""
    state, where = target.declared
    return (
        f"the tree declares state: {state.lower()} ({where}), so the next apply brings it back to {state}; change that"
        " line too"
    )


def _instead(target: Target, live: Mapping[str, ConnectorInfo]) -> str:
    if target.flows:
        return "run mm2mgr apply, which creates it"
    near = nearest(target.connector, live, 0.4, count=3)
    return f"did you mean {', '.join(near)}?" if near else f"connectors there: {few(sorted(live), 5) or 'none'}"


# --- reading and writing ----------------------------------------------------------------------------------------------


def look(topology: Topology, order: Order, targets: Iterable[Target]) -> Steps[list[Turn]]:
    """Read the Connect clusters concerned, and decide; nothing is written."""
    targets_by_cluster = by_cluster(targets)
    snapshot = yield [kind(name) for name in targets_by_cluster for kind in (Configs, Statuses)]
    owners = Ownership.of(topology)
    turns: list[Turn] = []
    for name, mine in targets_by_cluster.items():
        try:
            live, statuses = snapshot[Configs(name)], snapshot[Statuses(name)]
        except Mm2mgrError as error:
            turns += [Turn(target, "failed", detail=error.message, hint=error.hint) for target in mine]
            continue
        turns += [decide(order, target, owners, live, statuses.get(target.connector)) for target in mine]
    stopped = any(turn.action == "write" and turn.before == "STOPPED" for turn in turns)
    return (yield from _with_givers_held(topology, turns)) if stopped else turns


def _with_givers_held(topology: Topology, turns: Iterable[Turn]) -> Steps[list[Turn]]:
    """Refuse stopped connectors whose topics another one is taking over: the move's journal is in that one's config, on any cluster."""
    snapshot = yield map(Configs, topology.connects)
    unread: list[str] = []
    takes_over: dict[tuple[str, str], str] = {}
    for name in topology.connects:
        infos = snapshot.get(Configs(name))
        if isinstance(infos, Mm2mgrError):
            unread.append(name)
            continue
        journals = ((info.name, Journal.of(info.config)) for info in infos.values())
        takes_over |= {journal.move.giver: f"{name}/{by}" for by, journal in journals if journal and journal.move}

    def held(turn: Turn) -> Turn:
        if turn.action != "write" or turn.before != "STOPPED":
            return turn
        if by := takes_over.get(turn.target.named):
            return replace(turn, action="refused", detail=f"{by} is taking over its topics", hint=_FINISH)
        blind = f"whether a move to {few(sorted(unread))} takes over its topics could not be read" if unread else ""
        return replace(turn, warning="; ".join(filter(None, (turn.warning, blind))))

    return list(map(held, turns))


async def carry_out(topology: Topology, order: Order, turns: Sequence[Turn], report: Report) -> list[Turn]:
    """Send what was decided, Connect clusters side by side; returns before the connectors are there."""

    async def carry_out_in_cluster(name: str, mine: Sequence[Turn]) -> list[Turn]:
        gate = asyncio.Semaphore(_AT_ONCE)
        try:
            connect = ConnectClient(connect_target(topology.connects[name]), deadline_seconds=_WRITE_SECONDS)
        except Mm2mgrError as error:  # its credentials are gone since it was read
            return [replace(turn, action="failed", detail=error.message, hint=error.hint) for turn in mine]

        async def send(turn: Turn) -> Turn:
            async with gate:
                sent = await _send(connect, order, turn)
            report(sent)
            return sent

        async with connect:
            return list(await asyncio.gather(*map(send, mine)))

    writes = [turn for turn in turns if turn.action == "write"]
    parts = await asyncio.gather(*(carry_out_in_cluster(name, mine) for name, mine in by_cluster(writes).items()))
    sent = {turn.name: turn for part in parts for turn in part}
    return [sent.get(turn.name, turn) for turn in turns]


async def _send(client: ConnectClient, order: Order, turn: Turn) -> Turn:
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


One = TypeVar("One", Target, Turn)


def by_cluster(items: Iterable[One]) -> dict[str, list[One]]:
    items_by_cluster: dict[str, list[One]] = {}
    for item in items:
        items_by_cluster.setdefault((item.target if isinstance(item, Turn) else item).connect, []).append(item)
    return items_by_cluster

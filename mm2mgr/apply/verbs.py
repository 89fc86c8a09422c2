"""Pauses, resumes, stops and restarts connectors, and waits until they and all their tasks are there; and stores other
offsets for stopped source connectors.

What a connector shows decides whether a request is needed; one of another owner gets none. A failed read ends in an
error for the connectors of that Connect cluster and never holds up another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from mm2mgr import timing
from mm2mgr.apply.history import Recorder
from mm2mgr.apply.settle import HOLD_SECONDS, AskedConnector, Settled, await_states
from mm2mgr.comparison.differences import KeyChange, Named
from mm2mgr.comparison.ownership import HELD_KEY, JOURNAL_KEY, Journal, Ownership, is_held
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import OutcomeUnknown
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import RESTING, Connector, RunningConnector, type_of, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import Configs, Statuses
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import ask_all, open_client
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import Change
from mm2mgr.plan.history import RESTARTED, TASK, read_history, rested_by_hand
from mm2mgr.plan.resets import FlowReset
from mm2mgr.remarks import Remark
from mm2mgr.render import LANE_OF_KEY, connectors_of, flow_of_lane
from mm2mgr.text import few, nearest, visible
from mm2mgr.topology import Flow, Topology

Verb = Literal["pause", "resume", "stop", "restart"]
GOAL: Mapping[Verb, str] = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED", "restart": "RUNNING"}
_FINISH = "unless an apply is in progress, run mm2mgr apply, which finishes it"
LIMITS = Limits(write_seconds=60.0)


@dataclass(frozen=True)
class StateRequest:
    """What is asked of connectors; `only_failed` limits a restart to what FAILED, `tasks` to these of one connector."""

    verb: Verb
    only_failed: bool = False
    tasks: tuple[int, ...] = ()

    @property
    def goal(self) -> str:
        """The state that the connectors are to show."""
        return GOAL[self.verb]


@dataclass(frozen=True)
class Choice:
    """Which connectors are meant, by any of these.

    `names`: flows (id or name: their source connectors), pairs (every connector of the pair) and `connect/connector`.
    `labels`: flows whose source or target cluster has each of these, pairs of key and value.
    `everything`: all that the tree declares.
    """

    names: Sequence[str] = ()
    labels: Collection[tuple[str, str]] = ()
    everything: bool = False


@dataclass(frozen=True)
class StateChange:
    """One connector that a verb concerns: what is sent (`write`) or why nothing is, its state before, and what it
    showed afterwards.

    `declared` is the state that the tree wants of it, and the line that says so. `doubt` says why it is unknown whether
    a request was carried out.
    """

    connect: str
    connector: str
    flows: tuple[str, ...] = ()
    declared: tuple[str, str] | None = None
    action: Literal["write", "none", "refused", "failed"] = "none"
    before: str = ""
    detail: str = ""
    hint: str | None = None
    warning: str = ""
    kind: str = ""
    settled: Settled | None = None
    written: bool = False
    noted: bool = False
    """Whether it rests already, and the history gets to know that a person wants it so: it stays until `resume`."""
    doubt: str = ""
    restarts: tuple[KeyChange, ...] = ()
    """What of the connector a restart is of, with the states before."""
    with_lanes: bool = False
    """Whether lanes of its flow are meant, too, that run and that the tree has no more."""
    json_keys = "connect connector flows action written noted before detail hint warning doubt state verdict"

    @property
    def full_name(self) -> tuple[str, str]:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    @property
    def name(self) -> str:
        """`connect/connector`, unique in the estate."""
        return f"{self.connect}/{self.connector}"

    @property
    def state(self) -> str:
        """What was seen afterwards, empty where nothing was."""
        return self.settled.state if self.settled else ""

    @property
    def verdict(self) -> str:
        return self.settled.verdict if self.settled else ""


Report = Callable[[StateChange], None]
FailedPart = tuple[str, str, int | None]
"""A Connect cluster, a connector on it, and a task; None: the connector itself."""


# --- which connectors, and what is to be done: pure -------------------------------------------------------------------


def choose_connectors(topology: Topology, connectors: Sequence[Connector], choice: Choice) -> tuple[StateChange, ...]:
    """Return each connector that is meant, once; Mm2mgrError where a name or the labels mean none."""
    declared = {(connector.connect, connector.name): connector for connector in connectors}
    chosen: dict[tuple[str, str], StateChange] = {}

    def take(meant: Iterable[Connector], *, with_lanes: bool = True) -> None:
        for connector in meant:
            state = None
            if connector.state:
                (flow,) = topology.flows_of(connector.flows)
                state = connector.state, flow.origin("state").where
            change = StateChange(connector.connect, connector.name, connector.flows, state, with_lanes=with_lanes)
            chosen.setdefault(change.full_name, change)
            if with_lanes:
                chosen[change.full_name] = replace(chosen[change.full_name], with_lanes=True)

    def take_sources(flows: Iterable[Flow]) -> None:
        take(connector for connector in connectors_of(connectors, flows) if connector.type == "source")

    if choice.everything:
        take(connectors)
    for name in choice.names:
        connect, slash, connector = name.partition("/")
        if slash and connect in topology.connects:
            take(filter(None, [declared.get((connect, connector))]), with_lanes=False)
            chosen.setdefault((connect, connector), StateChange(connect, connector))
            continue
        flows = topology.select(name)
        if name == flows[0].pair:
            take(connectors_of(connectors, flows))
        else:
            take_sources(flows)
    if choice.labels:
        take_sources(topology.with_labels(choice.labels))
    if not chosen:
        raise Mm2mgrError(
            "no connector is named", hint="name flows, pairs or CONNECT/CONNECTOR, or use --label or --all"
        )
    return tuple(chosen.values())


def decide(
    request: StateRequest, chosen: StateChange, owners: Ownership, live: Mapping[str, RunningConnector]
) -> StateChange:
    """Decide what one connector needs, from what its Connect cluster shows of it."""
    shown = live.get(chosen.connector)
    if shown is None:
        return replace(chosen, action="refused", detail="does not exist there", hint=_instead(chosen, live))
    kind, before = type_of(shown.config.get("connector.class", "")) or "", shown.state
    warning = _against_tree(request, chosen)
    change = replace(chosen, action="write", before=before, warning=warning, kind=kind)
    if refusal := untouchable(shown.config, chosen.full_name, owners):
        return replace(change, action="refused", detail=refusal.text, hint=refusal.remedy or None)
    if request.verb == "restart":
        return _restart(request, change, shown)
    if request.verb == "resume" and before == "FAILED":
        hint = f"fix the cause, then mm2mgr restart --failed {change.name}"
        return replace(change, action="none", detail="not resting but FAILED", hint=hint)
    if before != request.goal:
        return change
    return replace(change, action="none", detail=f"already {before}")


def untouchable(config: Mapping[str, str], named: tuple[str, str], owners: Ownership) -> Remark | None:
    """Return why nothing may be sent to a connector, and what to do."""
    if not owners.is_ours(named, config):
        remedy = "" if named in owners.released else owners.remedy(named, config)
        return Remark(f"{owners.whose(named, config)}; mm2mgr does not touch it", remedy=remedy)
    if is_held(config):
        return Remark("it must not run: the opposite direction keeps the same names", remedy=f"{config[HELD_KEY]}")
    if JOURNAL_KEY in config:
        return Remark("a move of its stored offsets is not finished", remedy=_FINISH)
    return None


def _restart(request: StateRequest, change: StateChange, shown: RunningConnector) -> StateChange:
    if change.before in RESTING:
        detail = f"{change.before}: nothing of it runs"
        return replace(change, action="none", detail=detail, hint="mm2mgr resume runs it")
    if request.tasks:
        return _restart_tasks(request.tasks, change, shown)
    tasks = shown.status.tasks if shown.status else ()
    whole = KeyChange("connector", change.before, RESTARTED)
    if not request.only_failed:
        return replace(change, restarts=(whole, *(_restart_of(task.id, task.state) for task in tasks)))
    failed_tasks = [task for task in tasks if task.state == "FAILED"]
    failed = ", ".join(str(task.id) for task in failed_tasks)
    restarts = tuple(_restart_of(task.id, task.state) for task in failed_tasks)
    if change.before == "FAILED":
        detail = f"FAILED: the connector itself{failed and f', {failed}'}"
        return replace(change, detail=detail, restarts=(whole, *restarts))
    return (
        replace(change, detail=f"FAILED: task {failed}", restarts=restarts)
        if failed
        else replace(change, action="none", detail="nothing of it FAILED")
    )


def _restart_of(task: int, state: str | None) -> KeyChange:
    return KeyChange(f"{TASK}{task}", state, RESTARTED)


def _restart_tasks(numbers: Sequence[int], change: StateChange, shown: RunningConnector) -> StateChange:
    """Return the restart of single tasks; refused where the connector does not have all of them."""
    states = {task.id: task.state for task in shown.status.tasks} if shown.status else {}
    existing = sorted({*shown.task_ids, *states})
    if missing := [number for number in numbers if number not in existing]:
        hint = f"its tasks: {', '.join(map(str, existing))}" if existing else "it has no tasks yet"
        return replace(change, action="refused", detail=f"has no task {', '.join(map(str, missing))}", hint=hint)
    tasks = ", ".join(f"task {number} {states.get(number, 'without a status')}" for number in numbers)
    restarts = tuple(_restart_of(number, states.get(number)) for number in numbers)
    return replace(change, detail=tasks, restarts=restarts)


def _against_tree(request: StateRequest, chosen: StateChange) -> str:
    """Say that the tree declares another state, which the next apply would bring back."""
    if chosen.declared is None or request.verb == "restart" or chosen.declared[0] == request.goal:
        return ""
    state, where = chosen.declared
    return (
        f"the tree declares state: {state.lower()} ({where}), so the next apply brings it back to {state}; change that"
        " line too"
    )


def _instead(chosen: StateChange, live: Mapping[str, RunningConnector]) -> str:
    if chosen.flows:
        return "run mm2mgr apply, which creates it"
    near = nearest(chosen.connector, live, 0.4, count=3)
    return f"did you mean {', '.join(near)}?" if near else f"connectors there: {few(sorted(live), 5) or 'none'}"


# --- reading and writing ----------------------------------------------------------------------------------------------


def plan_states(topology: Topology, request: StateRequest, chosen: Iterable[StateChange]) -> Steps[list[StateChange]]:
    """Read the Connect clusters concerned, and decide; nothing is written."""
    chosen_by_cluster = _by_cluster(chosen)
    snapshot = yield [kind(name) for name in chosen_by_cluster for kind in (Configs, Statuses)]
    owners = Ownership.of_tree(topology)
    changes: list[StateChange] = []
    for name, mine in chosen_by_cluster.items():
        try:
            live = with_statuses(snapshot[Configs(name)], snapshot[Statuses(name)])
        except Mm2mgrError as error:
            changes += [replace(change, action="failed", detail=error.message, hint=error.hint) for change in mine]
            continue
        meant = (*mine, *_lanes_beside(name, mine, owners, live))
        changes += [decide(request, change, owners, live) for change in meant]
    if any(change.action == "write" and change.before == "STOPPED" for change in changes):
        changes = yield from _refuse_givers(topology, changes)
    return (yield from _note_wishes(topology, request, changes))


def _note_wishes(topology: Topology, request: StateRequest, changes: Sequence[StateChange]) -> Steps[list[StateChange]]:
    """Have the history note that a person wants what rests already, so that an apply of the tree that once brought it
    there does not resume it; what a person brought there needs no note."""
    resting = [
        change
        for change in changes
        if change.action == "none"
        and change.before == request.goal in RESTING
        and topology.connects[change.connect].model.history
    ]
    if not resting:
        return list(changes)
    history = yield from read_history(topology, {change.connect for change in resting})
    held = rested_by_hand(history.entries)
    detail = f"already {request.goal}; noted as {request.goal} by hand: it stays so until mm2mgr resume"
    new = {change.full_name for change in resting if change.full_name not in held}
    return [replace(change, noted=True, detail=detail) if change.full_name in new else change for change in changes]


def _lanes_beside(
    connect: str, chosen: Sequence[StateChange], owners: Ownership, live: Mapping[str, RunningConnector]
) -> Iterator[StateChange]:
    """Yield lanes of the flows that are meant which still run and which the tree has no more: they mirror topics of
    these flows until an apply has ended them."""
    wholes = {flow for change in chosen if change.with_lanes for flow in change.flows}
    names = {change.connector for change in chosen}
    for name, shown in sorted(live.items()):
        whole, is_ours = shown.config.get(LANE_OF_KEY), owners.is_ours((connect, name), shown.config)
        if whole in wholes and name not in names and is_ours:
            flows = (flow_of_lane(shown.config) or whole, whole)
            yield StateChange(connect, name, tuple(map(visible, flows)))


def _refuse_givers(topology: Topology, changes: Iterable[StateChange]) -> Steps[list[StateChange]]:
    """Refuse stopped connectors whose topics another one is taking over.

    The move's journal is in that one's config, on any cluster.
    """
    snapshot = yield map(Configs, topology.connects)
    unread: list[str] = []
    takes_over: dict[tuple[str, str], str] = {}
    for name in topology.connects:
        infos = snapshot.get(Configs(name))
        if isinstance(infos, Mm2mgrError):
            unread.append(name)
            continue
        journals = ((info.name, Journal.of_config(info.config)) for info in infos.values())
        takes_over |= {journal.move.giver: f"{name}/{by}" for by, journal in journals if journal and journal.move}
    blind = f"whether a move to {few(sorted(unread))} takes over its topics could not be read" if unread else ""

    def judge(change: StateChange) -> StateChange:
        if change.action != "write" or change.before != "STOPPED":
            return change
        if by := takes_over.get(change.full_name):
            return replace(change, action="refused", detail=f"{by} is taking over its topics", hint=_FINISH)
        return replace(change, warning="; ".join(filter(None, (change.warning, blind))))

    return list(map(judge, changes))


async def send_requests(
    topology: Topology, request: StateRequest, changes: Sequence[StateChange], report: Report
) -> list[StateChange]:
    """Send what was decided, Connect clusters side by side; returns before the connectors are there."""

    async def send_to_cluster(name: str, mine: Sequence[StateChange]) -> list[StateChange]:
        gate = asyncio.Semaphore(LIMITS.at_once)

        async def send(client: ConnectClient, change: StateChange) -> StateChange:
            async with gate:
                sent = await _send(client, request, change)
            report(sent)
            return sent

        try:
            async with open_client(topology.connects[name], LIMITS.write_seconds) as client:
                return list(await asyncio.gather(*(send(client, change) for change in mine)))
        except Mm2mgrError as error:  # its credentials are gone since it was read
            return [replace(change, action="failed", detail=error.message, hint=error.hint) for change in mine]

    writes = [change for change in changes if change.action == "write"]
    parts = await asyncio.gather(*(send_to_cluster(name, mine) for name, mine in _by_cluster(writes).items()))
    sent = {change.full_name: change for part in parts for change in part}
    return [sent.get(change.full_name, change) for change in changes]


async def _send(client: ConnectClient, request: StateRequest, change: StateChange) -> StateChange:
    try:
        if request.tasks:
            return await _restart_each_task(client, request.tasks, change)
        if request.verb == "restart":
            await client.restart(change.connector, include_tasks=True, only_failed=request.only_failed)
        else:
            send = {"pause": client.pause, "resume": client.resume, "stop": client.stop}[request.verb]
            await send(change.connector)
    except OutcomeUnknown as lost:
        if request.verb != "restart":
            return replace(change, action="failed", detail=lost.message, hint=lost.hint)
        # That nothing is FAILED any more proves it; a plain restart leaves no trace.
        doubt = "" if request.only_failed else "the answer was lost, so it may not have been restarted"
        return replace(change, written=True, doubt=doubt)
    except Mm2mgrError as error:
        return replace(change, action="failed", detail=error.message, hint=error.hint)
    return replace(change, written=True)


async def _restart_each_task(client: ConnectClient, tasks: Sequence[int], change: StateChange) -> StateChange:
    """Restart tasks one after the other; the first that is refused ends it, and those before it are named."""
    unknown: list[int] = []
    for position, task in enumerate(tasks):
        try:
            await client.restart_task(change.connector, task)
        except OutcomeUnknown:
            unknown.append(task)
        except Mm2mgrError as error:
            restarted = f"; restarted before it: task {', '.join(map(str, tasks[:position]))}" if position else ""
            return replace(change, action="failed", detail=f"{error.message}{restarted}", hint=error.hint)
    doubt = f"the answer for task {', '.join(map(str, unknown))} was lost, so it may not have been restarted"
    return replace(change, written=True, doubt=doubt if unknown else "")


async def restart_parts(
    topology: Topology, parts: Iterable[FailedPart], configs: Mapping[Named, Change], limits: Limits
) -> dict[FailedPart, str | None]:
    """Restart tasks, or connectors' own instances, Connect clusters side by side; return what went wrong.

    `configs`: connectors that get another config in place of that, unless it is not the one before any more.
    """
    parts_by_cluster: dict[str, list[FailedPart]] = {}
    for part in parts:
        parts_by_cluster.setdefault(part[0], []).append(part)

    async def restart(client: ConnectClient, part: FailedPart) -> str | None:
        connect, connector, task = part
        try:
            if change := configs.get((connect, connector)):
                return await _write_config(client, change)
            await (client.restart(connector) if task is None else client.restart_task(connector, task))
        except OutcomeUnknown:
            return None  # the next look shows it
        except Mm2mgrError as error:
            return error.one_line
        return None

    async def restart_in_cluster(name: str, mine: list[FailedPart]) -> dict[FailedPart, str | None]:
        try:
            async with open_client(topology.connects[name], limits.write_seconds) as client:
                return {part: await restart(client, part) for part in mine}
        except Mm2mgrError as error:  # its credentials are gone since it was read
            return dict.fromkeys(mine, error.one_line)

    answers = await asyncio.gather(*(restart_in_cluster(name, mine) for name, mine in parts_by_cluster.items()))
    return {part: error for answer in answers for part, error in answer.items()}


async def _write_config(client: ConnectClient, change: Change) -> str | None:
    if await client.config(change.connector) != change.before:
        return "its config was changed meanwhile"
    await client.put_config(change.connector, change.config or {}, change.before)
    return None


async def wait_for_states(
    topology: Topology, request: StateRequest, changes: Sequence[StateChange], wait_seconds: float
) -> list[StateChange]:
    """Return the changes with what their connectors showed: until all are as wanted, or the time is over.

    A pause is over when every task is PAUSED and the stored offsets of a source connector have not changed over two
    flushes, for which three flush intervals are added to `wait_seconds`: Connect goes on to flush what tasks had sent
    before they paused.
    """

    async def wait_in_cluster(connect: str, mine: Sequence[StateChange]) -> dict[str, Settled]:
        flush = topology.connects[connect].model.flush_interval
        asked = {
            change.name: AskedConnector(
                change.connector,
                request.goal,
                is_source=change.kind == "source",
                # Right after a restart Connect shows the states from before for a moment, and a failure only when it
                # repeats.
                hold_seconds=HOLD_SECONDS if request.verb == "restart" else 0.0,
                still_seconds=2 * flush if request.verb == "pause" and change.kind == "source" else 0.0,
            )
            for change in mine
        }
        flushes = 3 * flush if any(connector.still_seconds for connector in asked.values()) else 0.0
        ask = partial(ask_all, topology=topology, limits=LIMITS)
        await await_states(connect, ask, list(asked.values()), timing.now() + wait_seconds + flushes)
        return {name: connector.result() for name, connector in asked.items()}

    mine = [
        change for change in changes if change.written or (change.action == "none" and change.before == request.goal)
    ]
    parts = await asyncio.gather(*(wait_in_cluster(name, group) for name, group in _by_cluster(mine).items()))
    settled = {name: shown for part in parts for name, shown in part.items()}
    return [replace(change, settled=settled.get(change.name)) for change in changes]


def _by_cluster(changes: Iterable[StateChange]) -> dict[str, list[StateChange]]:
    changes_by_cluster: dict[str, list[StateChange]] = {}
    for change in changes:
        changes_by_cluster.setdefault(change.connect, []).append(change)
    return changes_by_cluster


_LIMITS = Limits(write_seconds=30.0)
_READ_BACK_SECONDS = 30.0
_READ_BACK_PAUSE_SECONDS = 0.3


async def write_resets(topology: Topology, resets: Iterable[FlowReset], recorder: Recorder) -> list[FlowReset]:
    """Write resets side by side and record them; return them with what went wrong."""
    owners = Ownership.of_tree(topology)

    async def write(reset: FlowReset) -> FlowReset:
        if not reset.changes:
            return reset
        change = _as_recorded(reset)
        recorder.begin(change)
        try:
            async with open_client(reset.flow.connect, _LIMITS.write_seconds) as client:
                await _patch(client, reset, owners)
        except Mm2mgrError as error:
            recorder.end(change, "failed", error.message)
            return replace(reset, error=error)
        recorder.end(change, "done")
        return replace(reset, written=True)

    return list(await asyncio.gather(*map(write, resets)))


async def _patch(client: ConnectClient, reset: FlowReset, owners: Ownership) -> None:
    """Write the entries, unless connector or offsets are no longer what was shown, and read them back."""
    name, alias = reset.connector, reset.flow.source.alias
    if refused := untouchable((await client.info(name)).config, (reset.flow.connect.name, name), owners):
        raise Mm2mgrError(refused.text, hint=refused.remedy or None)
    stored = parse_stored(await client.offsets(name), alias)
    if moved := [str(offset.partition) for offset in reset.resets if stored.get(offset.partition) != offset.stored]:
        raise Mm2mgrError(
            f"stored offsets of {few(moved)} changed since they were shown; nothing was written", hint="run it again"
        )
    await client.patch_offsets(name, [offset.entry(alias) for offset in reset.changes])
    end = timing.now() + _READ_BACK_SECONDS
    while True:
        stored = parse_stored(await client.offsets(name), alias)
        wrong = [str(offset.partition) for offset in reset.changes if stored.get(offset.partition) != offset.wanted]
        if not wrong:
            return
        if timing.now() > end:
            raise Mm2mgrError(
                f"the offsets were written, but {few(wrong)} do not show it", hint="look with mm2mgr offsets show"
            )
        await asyncio.sleep(_READ_BACK_PAUSE_SECONDS)


def _as_recorded(reset: FlowReset) -> Change:
    """Return a reset as the history has it: one key for each partition that changes."""

    def to_text(offset: int | None) -> str | None:
        return None if offset is None else str(offset)

    keys = tuple(
        KeyChange(f"offset of {offset.partition}", to_text(offset.stored), to_text(offset.wanted))
        for offset in reset.changes
    )
    return Change(reset.flow.connect.name, reset.connector, "source", "update", (reset.flow.id,), keys)

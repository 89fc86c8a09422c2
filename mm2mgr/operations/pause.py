"""The daily verbs `pause`, `resume`, `stop` and `restart`: approval, requests, and the wait for the states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, Unpack

from mm2mgr import timing
from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.verbs import (
    Choice,
    Report,
    StateChange,
    StateRequest,
    Verb,
    choose_connectors,
    plan_states,
    send_requests,
    untouchable,
    wait_for_states,
    write_resets,
)
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.lint.hops import selection_of
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.live.questions import Configs, PlaceInLogs
from mm2mgr.live.snapshot import Snapshot, Steps, ask, side_by_side
from mm2mgr.log_places import AtTime, LogPositions, OfGroup
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.memory import measure_lags
from mm2mgr.observe.read import ObserveOptions, read_estate
from mm2mgr.observe.reading import LiveConnector, Reading
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import Change
from mm2mgr.plan.resets import FlowReset, ResetOrder, next_offsets, resets
from mm2mgr.render import FLOW_KEY, LANE_OF_KEY
from mm2mgr.spec.scalars import place_text
from mm2mgr.text import few
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, Topology
from mm2mgr.truth.reach import text_of


@dataclass(frozen=True)
class Turned:
    """What became of each connector."""

    verb: Verb
    turns: tuple[StateChange, ...] = ()
    waited: bool = False
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    """Connect clusters whose history was not written, and why."""
    json_keys = "verb outcome waited connectors=turns unrecorded"

    @property
    def outcome(self) -> Literal["done", "failed", "inconclusive"]:
        """`inconclusive`: a connector was not seen in its state in time, or its stored offsets still changed."""
        if any(turn.action in {"refused", "failed"} for turn in self.turns):
            return "failed"
        verdicts = {turn.settled.verdict for turn in self.turns if turn.settled}
        if "failed" in verdicts:
            return "failed"
        return "inconclusive" if "inconclusive" in verdicts or any(turn.doubt for turn in self.turns) else "done"


class How(TypedDict, total=False):
    """The arguments that all verbs share.

    `approve` gets what was decided before the first request; Mm2mgrError, with nothing sent, when it returns False.
    `report` gets each connector once its request is sent. `wait_seconds`: time limit for connectors to reach the state
    (0: do not look; default 60). `reason` is kept in the history.
    """

    reason: str
    wait_seconds: float
    approve: Callable[[Sequence[StateChange]], bool]
    report: Report


def pause(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Pause connectors: they keep their tasks, which mirror nothing until `resume`."""
    return turn(workspace, StateRequest("pause"), choice, how)


def resume(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Resume paused or stopped connectors."""
    return turn(workspace, StateRequest("resume"), choice, how)


def stop(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Stop connectors: they end their tasks, after which the stored offsets are exact."""
    return turn(workspace, StateRequest("stop"), choice, how)


def restart(
    workspace: Workspace,
    choice: Choice,
    *,
    only_failed: bool = False,
    tasks: Sequence[int] = (),
    **how: Unpack[How],
) -> Turned:
    """Restart connectors with their tasks, or only what of them FAILED.

    `tasks`: of one connector these alone, by their numbers, whatever their state. Mm2mgrError, with nothing sent, where
    several connectors are meant, and ValueError with `only_failed`.
    """
    if tasks and only_failed:
        raise ValueError("tasks: not together with only_failed")
    return turn(workspace, StateRequest("restart", only_failed, tuple(dict.fromkeys(tasks))), choice, how)


def turn(workspace: Workspace, request: StateRequest, choice: Choice, how: How) -> Turned:
    """Carry out a verb, and return what became of each connector; one that fails or is refused stops no other."""
    workspace.refuse_snapshot()
    topology, wait_seconds = workspace.topology, how.get("wait_seconds", 60.0)
    chosen = choose_connectors(topology, workspace.connectors, choice)
    if request.tasks:
        _refuse_several(chosen)  # before any is asked
    changes = workspace.ask(plan_states(topology, request, chosen))
    if request.tasks:
        _refuse_several(changes)  # lanes that the tree has no more, too
    if "approve" in how and not how["approve"](changes):
        raise Mm2mgrError("it was not approved; nothing was sent")
    recorder = Recorder(topology, request.verb, author(workspace.files), how.get("reason", ""))
    for change in changes:
        if change.action == "write":
            recorder.begin(_as_recorded(change, request))  # an interrupt leaves that
        elif change.noted:
            recorder.end(_as_recorded(change, request), "done")
    try:
        changes = wait_for(send_requests(topology, request, changes, how.get("report", lambda change: None)))
        _record(recorder, request, changes)
        if wait_seconds > 0:
            changes = wait_for(wait_for_states(topology, request, changes, wait_seconds))
            _record(recorder, request, changes)
    finally:
        unrecorded = recorder.close()
    return Turned(request.verb, tuple(changes), wait_seconds > 0, unrecorded)


def _refuse_several(changes: Sequence[StateChange]) -> None:
    """Mm2mgrError where more than one connector is meant: numbers of tasks are those of one connector."""
    if len(changes) > 1:
        names = few([change.name for change in changes], 5)
        message = f"numbers of tasks are those of one connector, and {len(changes)} are meant: {names}"
        raise Mm2mgrError(message, hint="name one of them as CONNECT/CONNECTOR")


def _record(recorder: Recorder, request: StateRequest, changes: Sequence[StateChange]) -> None:
    for change in changes:
        if change.action == "failed":
            recorder.end(_as_recorded(change, request), "failed", change.detail)
        elif change.written:
            is_good = change.verdict in {"", "ok"}
            recorder.end(
                _as_recorded(change, request), "done" if is_good else change.verdict, None if is_good else change.state
            )


def _as_recorded(change: StateChange, request: StateRequest) -> Change:
    state = change.before, request.goal
    return Change(change.connect, change.connector, change.kind, "update", change.flows, change.restarts, state=state)


# --- offsets ----------------------------------------------------------------------------------------------------------


_END_SECONDS = 30.0
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class FlowOffsets:
    """The stored offsets of one flow beside the source's log; `unknown`: why not, `others` are of no log."""

    flow: str
    connect: str
    connector: str
    state: str
    lag: FlowLag
    others: Mapping[TopicPartition, int] = field(default_factory=dict)
    unknown: str | None = None
    exact: bool = False
    """Whether nothing more can be stored: while it runs or is paused, what arrived may be ahead by a flush."""

    @property
    def lag_records(self) -> int | None:
        return self.lag.total_records if self.unknown is None else None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values; partitions as `describe` has them."""
        return {
            "flow": self.flow,
            "connect": self.connect,
            "connector": self.connector,
            "state": self.state,
            "exact": self.exact,
            "lag_records": self.lag_records,
            "unknown": self.unknown,
            "partitions": to_json(self.lag.partitions),
            "not_in_the_source": [
                {"topic": partition.topic, "partition": partition.partition, "stored_offset": stored}
                for partition, stored in sorted(self.others.items())
            ],
        }


def offsets(workspace: Workspace, choice: Choice) -> tuple[FlowOffsets, ...]:
    """Read the stored offsets of flows and the logs of their sources; what cannot be read is in the result."""
    flows = _flows(workspace, choice)
    reading = wait_for(read_estate(workspace.topology, workspace.connectors, flows, ObserveOptions()))
    lags = measure_lags(reading)
    return tuple(_offsets(reading, flow, lags.get(flow.id, FlowLag())) for flow in flows)


def _flows(workspace: Workspace, choice: Choice) -> list[Flow]:
    declared = {(source.connect, source.name) for source in workspace.connectors if source.type == "source"}
    chosen = choose_connectors(workspace.topology, workspace.connectors, choice)
    ids = [flow for connector in chosen if connector.full_name in declared for flow in connector.flows]
    if not ids:
        names = few([connector.name for connector in chosen])
        raise Mm2mgrError(f"{names}: no source connector of a flow of this tree", hint="name a flow")
    return workspace.topology.flows_of(ids)


def _offsets(reading: Reading, flow: Flow, lag: FlowLag) -> FlowOffsets:
    connector, failure = reading.source_connector(flow), reading.connects[flow.connect.name].failure
    if failure or connector is None or connector.running is None:
        reason = failure.message if failure else "its connector does not exist: run mm2mgr apply"
        return FlowOffsets(
            flow.id, flow.connect.name, connector.desired.name if connector else "", "", lag, unknown=reason
        )
    stored = {} if isinstance(connector.running.offsets, Failure) else connector.running.offsets
    in_source = {measured.partition for measured in lag.partitions} | lag.unread.keys()
    others = {partition: offset for partition, offset in stored.items() if partition not in in_source}
    unread = f"{few(list(map(str, lag.unread)))} could not be read" if lag.unread else None
    state = connector.status.state if connector.status else "no status"
    unknown = lag.unknown or unread
    return FlowOffsets(
        flow.id, flow.connect.name, connector.desired.name, state, lag, others, unknown, connector.running.has_stopped
    )


@dataclass(frozen=True)
class ResetOffsets:
    """What became of the resets."""

    flows: tuple[FlowReset, ...]
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    json_keys = "outcome flows unrecorded"

    @property
    def outcome(self) -> Literal["done", "failed"]:
        return "failed" if any(flow.error for flow in self.flows) else "done"


def reset_offsets(
    workspace: Workspace,
    choice: Choice,
    order: ResetOrder,
    *,
    reason: str = "",
    approve: Callable[[Sequence[FlowReset]], bool] = lambda planned: True,
) -> ResetOffsets:
    """Store other offsets for STOPPED source connectors and read them back; nothing unless all can be written.

    Mm2mgrError where a connector is not stopped or not this tree's, where a source or a group cannot be read, or where
    an offset is not in a log. Partitions in which a group has no offset that can be used are left as they are, and are
    in the result. `approve` gets what will be written; Mm2mgrError when it returns False.
    """
    workspace.refuse_snapshot()
    flows = _flows(workspace, choice)
    reading = wait_for(_read_once_ended(workspace, flows))
    stopped = [_stopped_flow(workspace.topology, reading, flow, part) for flow, part in _parts_of(order, flows)]
    positions = workspace.ask(side_by_side(*map(_ask_place, stopped)))
    planned = [_plan_reset(part, answer) for part, answer in zip(stopped, positions, strict=True)]
    _refuse_topics_elsewhere(planned, workspace.ask(ask([Configs(name) for name in {f.connect.name for f in flows}])))
    if not approve(planned):
        raise Mm2mgrError("the reset was not approved; nothing was written")
    recorder = Recorder(workspace.topology, "offsets reset", author(workspace.files), reason)
    try:
        done = wait_for(write_resets(workspace.topology, planned, recorder))
    finally:
        unrecorded = recorder.close()
    return ResetOffsets(tuple(done), unrecorded)


def _parts_of(order: ResetOrder, flows: Sequence[Flow]) -> Iterator[tuple[Flow, ResetOrder]]:
    """Yield each flow with what is to be reset of it: a topic that one of its lanes has is reset there alone."""
    for flow in flows:
        others = [other for other in flows if other.whole_id == flow.whole_id and other is not flow]
        topics = tuple(
            topic for topic in order.topics if flow.carries(topic) or not any(other.carries(topic) for other in others)
        )
        if topics or not order.topics:
            yield flow, replace(order, topics=topics)


def _refuse_topics_elsewhere(planned: Iterable[FlowReset], running: Snapshot) -> None:
    """Mm2mgrError for a topic that another part of the same flow mirrors now, until the tree is applied: an apply
    carries the offsets that are stored there, so that those of a reset would be lost."""
    for reset in planned:
        connect = reset.flow.connect.name
        for info in running[Configs(connect)].values():
            whole = info.config.get(LANE_OF_KEY) or info.config.get(FLOW_KEY)
            if whole != reset.flow.whole_id or info.name == reset.connector:
                continue
            subject = running_subject(connect, info.name, info.config, None, WorkerFacts())
            selection = selection_of(subject) if subject else None
            if elsewhere := [topic for topic in reset.topics if selection and selection.takes(topic)]:
                message = f"{reset.flow.id}: {few(elsewhere)} is mirrored by {connect}/{info.name} until an apply"
                raise Mm2mgrError(message, hint="mm2mgr apply, which brings its stored offsets; then stop and reset")


async def _read_once_ended(workspace: Workspace, flows: Sequence[Flow]) -> Reading:
    """Read the estate, again while a STOPPED connector shows tasks: a worker may be late to hear of their end."""
    end = timing.now() + _END_SECONDS
    while True:
        reading = await read_estate(workspace.topology, workspace.connectors, flows, ObserveOptions())
        connectors = (reading.source_connector(flow) for flow in flows)
        if timing.now() > end or not any(
            connector and connector.running and connector.running.is_stopping for connector in connectors
        ):
            return reading
        await asyncio.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True)
class _StoppedFlow:
    """A flow whose offsets may be reset: what is to be done, and the logs of the partitions concerned."""

    flow: Flow
    order: ResetOrder
    connector: LiveConnector
    logs: Mapping[TopicPartition, Offsets]


def _stopped_flow(topology: Topology, reading: Reading, flow: Flow, order: ResetOrder) -> _StoppedFlow:
    connector = _stopped_connector(topology, reading, flow)
    source = reading.clusters[flow.source.alias]
    if source.failure:
        raise Mm2mgrError(
            f"{flow.id}: {flow.source.alias} could not be read: {source.failure.message}", hint=source.failure.hint
        )
    taken = {topic: count for topic, count in source.topics.items() if flow.carries(topic)}
    if strange := [topic for topic in order.topics if topic not in taken]:
        there = "" if strange[0] in source.topics else f", and {flow.source.alias} has no such topic"
        raise Mm2mgrError(
            f"{flow.id} does not mirror {few(strange)}{there}", hint=f"it mirrors {few(sorted(taken), 5) or 'nothing'}"
        )
    mirrored = (TopicPartition(topic, number) for topic, count in taken.items() for number in range(count))
    partitions = [partition for partition in mirrored if order.concerns(partition)]
    if not partitions:
        raise Mm2mgrError(f"{flow.id} has no such partition", hint=f"it mirrors {few(sorted(taken), 5) or 'nothing'}")
    if unread := [partition for partition in partitions if partition not in source.offsets]:
        raise Mm2mgrError(
            f"{flow.id}: {few(list(map(str, unread)))} could not be read: {source.unread.get(unread[0], 'no answer')}"
        )
    return _StoppedFlow(flow, order, connector, {partition: source.offsets[partition] for partition in partitions})


def _ask_place(stopped: _StoppedFlow) -> Steps[LogPositions | None]:
    """Return where a time or a group is in the logs; None where the logs themselves say it."""
    to = stopped.order.to
    if not isinstance(to, (AtTime, OfGroup)):
        return None
    question = PlaceInLogs(stopped.flow.source.alias, place_text(to), frozenset(stopped.logs))
    return (yield [question])[question]


def _plan_reset(stopped: _StoppedFlow, place: LogPositions | None) -> FlowReset:
    flow, connector, order, logs = stopped.flow, stopped.connector, stopped.order, stopped.logs
    assert connector.running is not None
    assert not isinstance(connector.running.offsets, Failure)
    begins_at = text_of("source", connector.running.config, "source consumer", "auto.offset.reset") or "earliest"
    if place is None:
        return FlowReset(flow, connector.desired.name, resets(order.to, logs, connector.running.offsets, begins_at))
    if unread := sorted(map(str, logs.keys() - place.positions.keys())):
        raise Mm2mgrError(f"{flow.id}: {few(unread)} could not be read")
    offsets, gaps = next_offsets(order.to, place)
    logs = {partition: place.positions[partition].log for partition in offsets}
    planned = resets(offsets, logs, connector.running.offsets, begins_at)
    return FlowReset(flow, connector.desired.name, planned, gaps=gaps)


def _stopped_connector(topology: Topology, reading: Reading, flow: Flow) -> LiveConnector:
    failure = reading.connects[flow.connect.name].failure
    if failure:
        raise Mm2mgrError(f"{flow.id}: {failure.message}", hint=failure.hint)
    connector = reading.source_connector(flow)
    if connector is None or connector.running is None:
        raise Mm2mgrError(f"{flow.id}: its connector does not exist", hint="run mm2mgr apply")
    if refused := untouchable(
        connector.running.config, (flow.connect.name, connector.desired.name), Ownership.of_tree(topology)
    ):
        raise Mm2mgrError(f"{connector.key}: {refused.text}", hint=refused.remedy or None)
    if not connector.running.has_stopped:
        state = connector.status.state if connector.status else "without a status"
        shown = "STOPPED, but its tasks have not ended" if connector.running.is_stopping else state
        message = f"{connector.key} is {shown}: offsets can only be changed while it is STOPPED without a task"
        raise Mm2mgrError(message, hint=f"stop it first: mm2mgr stop '{flow.id}'")
    if isinstance(connector.running.offsets, Failure):
        raise Mm2mgrError(
            f"{connector.key}: stored offsets could not be read: {connector.running.offsets.message}",
            hint=connector.running.offsets.hint,
        )
    return connector

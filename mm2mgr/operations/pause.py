"""The daily verbs `pause`, `resume`, `stop` and `restart`: which connectors are meant, approval, requests, and waiting until they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack

from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.verbs import Order, Report, Target, Turn, Verb, carry_out, look
from mm2mgr.apply.wait import watch
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace, wait_for
from mm2mgr.plan.changes import Change
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Choice:
    """Which connectors are meant, by any of these.

    `names`: flows (id or name: their source connectors), pairs (every connector of the pair) and `connect/connector`.
    `labels`: flows whose source or target cluster has all of these labels. `everything`: all that the tree declares.
    """

    names: Sequence[str] = ()
    labels: Mapping[str, str] | None = None
    everything: bool = False


@dataclass(frozen=True)
class Turned:
    """What became of each connector."""

    verb: Verb
    turns: tuple[Turn, ...] = ()
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

    `approve` gets what was decided before the first request; Mm2mgrError, with nothing sent, when it returns False. `report` gets
    each connector once its request is sent. `wait_seconds`: time limit for connectors to reach the state (0: do not look; default 60).
    `reason` is kept in the history.
    """

    reason: str
    wait_seconds: float
    approve: Callable[[Sequence[Turn]], bool]
    report: Report


def pause(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Pause connectors: they keep their tasks, which mirror nothing until `resume`."""
    return turn(workspace, Order("pause"), choice, how)


def resume(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Resume paused or stopped connectors."""
    return turn(workspace, Order("resume"), choice, how)


def stop(workspace: Workspace, choice: Choice, **how: Unpack[How]) -> Turned:
    """Stop connectors: they end their tasks, after which the stored offsets are exact."""
    return turn(workspace, Order("stop"), choice, how)


def restart(workspace: Workspace, choice: Choice, *, only_failed: bool = False, **how: Unpack[How]) -> Turned:
    """Restart connectors with their tasks, or only what of them FAILED."""
    return turn(workspace, Order("restart", only_failed), choice, how)


def turn(workspace: Workspace, order: Order, choice: Choice, how: How) -> Turned:
    """Carry out a verb, and return what became of each connector; one that fails or is refused stops no other."""
    workspace.refuse_snapshot()
    wait_seconds = how.get("wait_seconds", 60.0)
    turns = workspace.ask(look(workspace.topology, order, list(chosen(workspace, choice))))
    if "approve" in how and not how["approve"](turns):
        raise Mm2mgrError("it was not approved; nothing was sent")
    recorder = _recorder(workspace, order, turns, how.get("reason", ""))
    try:
        turns = wait_for(carry_out(workspace.topology, order, turns, how.get("report", lambda turn: None)))
        _record(recorder, order, turns)
        if wait_seconds > 0:
            turns = wait_for(watch(workspace.topology, order, turns, wait_seconds))
            _record(recorder, order, turns)
    finally:
        unrecorded = recorder.close()
    return Turned(order.verb, tuple(turns), wait_seconds > 0, unrecorded)


def _recorder(workspace: Workspace, order: Order, turns: Sequence[Turn], reason: str) -> Recorder:
    """Return the history, in which every request that will be sent has begun: an interrupt leaves that."""
    recorder = Recorder(workspace.topology, order.verb, author(workspace.files), reason)
    for turn in turns:
        if turn.action == "write":
            recorder.begin(_change(turn, order))
    return recorder


def _record(recorder: Recorder, order: Order, turns: Sequence[Turn]) -> None:
    for turn in turns:
        if turn.action == "failed" or turn.written:
            wrong = turn.settled.state if turn.settled and turn.settled.verdict != "ok" else None
            verdict = "failed" if turn.action == "failed" else turn.settled.verdict if turn.settled else "ok"
            outcome = "done" if verdict == "ok" else verdict
            recorder.end(_change(turn, order), outcome, turn.detail if turn.action == "failed" else wrong)


def _change(turn: Turn, order: Order) -> Change:
    """Return a request as the history has it: an update of the state alone."""
    state = turn.before, order.goal
    return Change(turn.target.connect, turn.target.connector, turn.kind, "update", turn.target.flows, state=state)


def chosen(workspace: Workspace, choice: Choice) -> Iterator[Target]:
    """Yield each connector that is meant, once; Mm2mgrError where a name or the labels mean none."""
    topology, connectors = workspace.topology, workspace.connectors
    found: dict[tuple[str, str], Target] = {}

    def take(wanted: Iterator[Target]) -> None:
        found.update({each.named: each for each in wanted})

    if choice.everything:
        take(_target(topology, connector) for connector in connectors)
    for name in choice.names:
        connect, slash, connector = name.partition("/")
        if slash and connect in topology.connects:
            declared = (each for each in connectors if (each.connect, each.name) == (connect, connector))
            take(_target(topology, each) for each in declared)
            found.setdefault((connect, connector), Target(connect, connector))
            continue
        flows = topology.select(name)
        whole_pair = name == flows[0].pair
        served = workspace.connectors_of(flows)
        take(_target(topology, each) for each in served if whole_pair or each.type == "source")
    if choice.labels:
        served = workspace.connectors_of(labelled(topology, choice.labels))
        take(_target(topology, each) for each in served if each.type == "source")
    if not found:
        raise Mm2mgrError(
            "no connector is named", hint="name flows, pairs or CONNECT/CONNECTOR, or use --label or --all"
        )
    yield from found.values()


def labelled(topology: Topology, labels: Mapping[str, str]) -> list[Flow]:
    """Return the flows whose source or target cluster has each of these labels; Mm2mgrError when there is none."""

    def has(flow: Flow, label: tuple[str, str]) -> bool:
        return any(label in end.model.labels.items() for end in (flow.source, flow.target))

    flows = [flow for flow in topology.flows if all(has(flow, label) for label in labels.items())]
    if not flows:
        wanted = ", ".join(f"{key}={value}" for key, value in labels.items())
        known = sorted(
            {f"{key}={value}" for each in topology.clusters.values() for key, value in each.model.labels.items()}
        )
        raise Mm2mgrError(
            f"no flow has clusters with the labels {wanted}", hint=f"labels here: {', '.join(known) or 'none'}"
        )
    return flows


def _target(topology: Topology, connector: Connector) -> Target:
    declared = None
    if connector.state:
        (flow,) = topology.flows_of(connector.flows)
        declared = connector.state, flow.origin("state").where
    return Target(connector.connect, connector.name, connector.flows, declared)

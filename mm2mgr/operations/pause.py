"""The daily verbs `pause`, `resume`, `stop` and `restart`: approval, requests, and the wait for the states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack

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
    wait_for_states,
)
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.changes import Change
from mm2mgr.timing import wait_for


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


def restart(workspace: Workspace, choice: Choice, *, only_failed: bool = False, **how: Unpack[How]) -> Turned:
    """Restart connectors with their tasks, or only what of them FAILED."""
    return turn(workspace, StateRequest("restart", only_failed), choice, how)


def turn(workspace: Workspace, request: StateRequest, choice: Choice, how: How) -> Turned:
    """Carry out a verb, and return what became of each connector; one that fails or is refused stops no other."""
    workspace.refuse_snapshot()
    topology, wait_seconds = workspace.topology, how.get("wait_seconds", 60.0)
    chosen = choose_connectors(topology, workspace.connectors, choice)
    changes = workspace.ask(plan_states(topology, request, chosen))
    if "approve" in how and not how["approve"](changes):
        raise Mm2mgrError("it was not approved; nothing was sent")
    recorder = Recorder(topology, request.verb, author(workspace.files), how.get("reason", ""))
    for change in changes:
        if change.action == "write":
            recorder.begin(_as_recorded(change, request))  # an interrupt leaves that
    try:
        changes = wait_for(send_requests(topology, request, changes, how.get("report", lambda change: None)))
        _record(recorder, request, changes)
        if wait_seconds > 0:
            changes = wait_for(wait_for_states(topology, request, changes, wait_seconds))
            _record(recorder, request, changes)
    finally:
        unrecorded = recorder.close()
    return Turned(request.verb, tuple(changes), wait_seconds > 0, unrecorded)


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
    """Return a request as the history has it: an update of the state alone."""
    state = change.before, request.goal
    return Change(change.connect, change.connector, change.kind, "update", change.flows, state=state)

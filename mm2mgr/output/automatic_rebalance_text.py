"""What the loop of `serve --with rebalance` and `reconcile --rebalance` did, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mm2mgr.text import one_line

if TYPE_CHECKING:
    from mm2mgr.operations.automatic_rebalance import RebalanceRound
    from mm2mgr.output.console import PartLog


def rebalance_lines(done: RebalanceRound) -> Iterator[str]:
    """Yield what a look of the loop did, or what holds it, flow by flow; nothing for flows that are well."""
    if done.error or done.note:
        yield one_line(done.error or done.note)
    for flow in done.flows:
        is_quiet = (not flow.outcome and flow.decision.action == "keep") or flow.outcome == "kept"
        if not is_quiet or (flow.outcome == "kept" and flow.decision.trigger == "overload"):
            yield f"{flow.flow}: {flow.outcome or 'waits'}: {one_line(flow.text)}"
        elif not flow.outcome and flow.decision.is_held_for_good:
            yield f"{flow.flow}: nothing is rebalanced now: {one_line(flow.text)}"
        yield from (f"{flow.flow}: {note}" for note in flow.decision.notes)
    for connect, reason in done.unrecorded.items():
        yield f"the history of {connect} was not written: {one_line(reason)}"
    if done.unlogged:
        yield done.unlogged


def rebalance_key(done: RebalanceRound) -> str:
    """Return by what a look differs from another one; seconds in its words are no difference."""
    flows = (
        (flow.flow, flow.outcome, flow.decision.action, flow.decision.hold, len(flow.decision.notes))
        for flow in done.flows
    )
    return repr((done.error, done.note, *flows))


def say_rebalance_round(done: RebalanceRound, printed: str, log: PartLog) -> str:
    """Print a look of the loop where it differs from the one that was `printed`; return its key."""
    key = rebalance_key(done)
    if key != printed or done.applied:
        for line in rebalance_lines(done):
            log("rebalance", line)
    return key

"""What `apply` does and has done, as text: events on stderr as they come, the outcome on stdout."""

from __future__ import annotations

from collections.abc import Iterable

from mm2mgr.operations.apply import Applied, Waiting
from mm2mgr.output.console import say, talk
from mm2mgr.reconcile.apply import Result
from mm2mgr.text import few

_DONE = {"create": "created", "update": "updated", "delete": "deleted"}
_ALIKE = 5
"""More connectors than this in the same state share a line."""


def say_event(event: Result | Waiting) -> None:
    """Print one result, or that connectors are waited for."""
    if isinstance(event, Waiting):
        talk(f"waiting up to {event.seconds:.0f} s for the written connectors to run")
    elif event.doubt:
        talk(f"{event.connect}: {event.connector}: {event.doubt}", style="yellow")
    elif event.error is None:
        talk(f"{event.connect}: {_DONE[event.action]} {event.connector} ({event.seconds:.1f} s)")
    else:
        talk(f"{event.connect}: {event.action} of {event.connector} failed: {event.error}", style="bold red")


def say_applied(applied: Applied) -> None:
    """Print what does not run, what failed, what is unfinished or left, and the count of changes."""
    _say_states(applied)
    for result in applied.done:
        if result.doubt:
            say(f"{result.connect}/{result.connector}: {result.doubt}", style="yellow")
    for result in applied.failed:
        say(f"failed: {result.connect}/{result.connector}: {result.error}", style="bold red")
        if result.hint:
            say(f"        {result.hint}")
    for change in applied.unfinished:
        say(f"unfinished: {change.action} {change.connect}/{change.connector}", style="bold red")
    for change in applied.left:
        say(f"left: {change.action} {change.connect}/{change.connector}", style="bold yellow")
    count = f"Applied: {len(applied.done)} of {len(applied.plan.writes)} changes"
    say("; ".join((count, *_not_in_count(applied))), style="bold")
    if applied.failed or applied.left or applied.unfinished:
        say("Apply again to converge; what is done already will not be written a second time.")


def _say_states(applied: Applied) -> None:
    """Print each state that is not RUNNING; where many connectors show the same, in one line."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for (connect, connector), settled in sorted(applied.states.items()):
        if settled.state != "RUNNING":
            names.setdefault((connect, settled.state, settled.verdict), []).append(connector)
    for (connect, state, verdict), connectors in names.items():
        style = {"failed": "red", "ok": None}.get(verdict, "yellow")
        if len(connectors) > _ALIKE:
            say(f"{connect}: {len(connectors)} connectors: {state} ({few(connectors)})", style=style)
            continue
        for connector in connectors:
            say(f"{connect}/{connector}: {state}", style=style)


def _not_in_count(applied: Applied) -> Iterable[str]:
    """Yield what the number of applied changes does not show."""
    verdicts = [settled.verdict for settled in applied.states.values()]
    for verdict, what in (("failed", "FAILED or lost afterwards"), ("inconclusive", "not seen to run yet")):
        if verdict in verdicts:
            yield f"{verdicts.count(verdict)} of them {what}"
    blocked = applied.plan.counts()["blocked"]
    if blocked:
        yield f"{blocked} more blocked"
    if applied.plan.left_over:
        yield f"{applied.plan.left_over} no longer declared and still there (--prune deletes)"
    unread = [f"'{name}'" for name in applied.unread]
    if len(unread) == 1:
        yield f"Connect cluster {unread[0]} could not be read, its changes are not in this number"
    elif unread:
        yield f"Connect clusters {', '.join(unread)} could not be read, their changes are not in this number"

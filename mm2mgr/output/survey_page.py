"""The pages of `serve` that are a sentence and tables: losses, the watchdog, and the slow part (findings of lint, recent changes, plan)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mm2mgr.output.history_text import history_table
from mm2mgr.output.lint_text import finding_table
from mm2mgr.output.losses_text import loss_cells
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.output.watch_text import action_line, not_watched
from mm2mgr.text import few, number_of

Values = Mapping[str, Any]
MOST_ROWS = 200
"""Rows of partitions, problems, findings and changes on a page; commands of the terminal have all."""


def utc(seconds: float) -> str:
    """Return a time, in seconds since 1970, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def losses(view: Values) -> dict[str, Any]:
    """Return the losses that are not acknowledged."""
    found = view["status"]["losses"] if view["status"] else ()
    rows = [loss_cells(one) for one in found]
    columns = ("id", "flow", "partition", "offsets", "records", "first seen", "what happened")
    table = Table(columns, rows, right=("records",))
    lead = "Records that may never arrive. Acknowledge one with mm2mgr losses --ack ID." if rows else "No loss is open."
    return _tables("losses", "Losses", lead, [table] if rows else [])


def watchdog(found: Values | None) -> dict[str, Any]:
    """Return what the watchdog of this process did; None where none runs."""
    if found is None:
        lead = "No watchdog runs in this process: mm2mgr serve --watchdog, or mm2mgr watch."
        return _tables("watchdog", "Watchdog", lead, [])
    if found["taken_at"] is None:
        return _tables("watchdog", "Watchdog", "The watchdog has not looked yet.", [])
    rows = [(utc(one["taken_at"]), action_line(one)) for one in found["actions"]]
    failed = number_of(found["failed_restarts"], "restart")
    counts = f"Since the start: {number_of(found['restarts'], 'restart')}, and {failed} that Connect did not carry out."
    lead = f"{'A dry run: nothing is restarted. ' if found['dry_run'] else ''}{counts} Looked last at {utc(found['taken_at'])}."
    table = Table(("time", "what it saw and did"), rows)
    return _tables("watchdog", "Watchdog", lead, [table] if rows else [], list(not_watched(found)))


def findings(survey: Values | None) -> dict[str, Any]:
    """Return what lint finds in the tree."""
    return _surveyed("findings", "Findings of lint", survey, "findings", _findings)


def _findings(found: Values) -> tuple[str, list[str], list[Table]]:
    shown = found["findings"][:MOST_ROWS]
    table = finding_table(shown)
    rows = [(*row, below[0].removeprefix("fix: ")) for row, below in zip(table.rows, table.below, strict=True)]
    counts = found["summary"]
    words = [number_of(counts[f"{word}s"], word) for word in ("error", "warning", "info") if counts[f"{word}s"]]
    lead = f"{', '.join(words) or 'No findings'} in {number_of(counts['connectors'], 'connector')}."
    left = len(found["findings"]) - len(shown)
    notes = [f"{number_of(left, 'finding')} more: mm2mgr lint"] if left else []
    return lead, notes, [Table((*table.columns, "fix"), rows)] if rows else []


def changes(survey: Values | None) -> dict[str, Any]:
    """Return what was changed lately, newest first."""
    return _surveyed("changes", "Recent changes", survey, "history", _changes)


def _changes(found: Values) -> tuple[str, list[str], list[Table]]:
    entries = found["entries"][::-1]
    notes = [f"The history of {connect} could not be read: {why}" for connect, why in found["unread"].items()]
    lead = "Newest first; mm2mgr history has all." if entries else "No change is recorded."
    return lead, notes, [history_table(entries)] if entries else []


def plan(survey: Values | None) -> dict[str, Any]:
    """Return what `apply` would do; nothing can be written from here."""
    return _surveyed("plan", "Plan", survey, "plan", _plan)


def _plan(found: Values) -> tuple[str, list[str], list[Table]]:
    counts = found["counts"]
    words = {
        "create": "to create",
        "update": "to update",
        "delete": "to delete",
        "no-op": "unchanged",
        "blocked": "blocked",
    }
    lead = f"{', '.join(f'{counts[action]} {word}' for action, word in words.items())}. To write it: mm2mgr plan, then mm2mgr apply."
    notes = [f"{one['connect']}: {one['error']}" for one in found["clusters"] if one["error"]]
    rows = [
        (cluster["connect"], change["connector"], change["action"], _change_text(change))
        for cluster in found["clusters"]
        for change in cluster["changes"]
        if change["action"] != "no-op"
    ]
    notes += [f"{number_of(len(rows) - MOST_ROWS, 'change')} more: mm2mgr plan"] if len(rows) > MOST_ROWS else []
    table = Table(("Connect cluster", "connector", "action", "what"), rows[:MOST_ROWS])
    return lead, notes, [table] if rows else []


def _change_text(change: Values) -> str:
    """Say what a change does: the reason of a blocked one, the keys of another."""
    keys = few([f"{key['key']}: {or_dash(key['before'])} → {or_dash(key['after'])}" for key in change["keys"]])
    return "; ".join(part for part in (change["action"], change["reason"], keys, change["waits"]) if part)


def _surveyed(
    path: str,
    heading: str,
    survey: Values | None,
    part: str,
    made: Callable[[Values], tuple[str, list[str], list[Table]]],
) -> dict[str, Any]:
    if survey is None:
        return _tables(path, heading, "Not made yet: lint, plan and history are read at a slower pace.", [])
    found = survey[part]
    if "error" in found:
        return _tables(path, heading, f"It could not be made: {found['error']}", [])
    lead, notes, tables = made(found)
    return _tables(path, heading, lead, tables, [f"As of {utc(survey['taken_at'])}.", *notes])


def _tables(path: str, heading: str, lead: str, tables: Sequence[Table], notes: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "name": heading,
        "here": f"/{path}",
        "heading": heading,
        "lead": lead,
        "notes": notes,
        "tables": tables,
    }


def changes_of(name: str, survey: Values | None) -> list[str]:
    """Say what the plan would do to a flow's connectors."""
    clusters = survey["plan"].get("clusters", ()) if survey else ()
    return [
        f"{change['connector']}: {_change_text(change)}"
        for cluster in clusters
        for change in cluster["changes"]
        if name in change["flows"] and change["action"] != "no-op"
    ]

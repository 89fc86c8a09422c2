"""`history`: what was changed, by whom and when. `drift`: what people changed by hand since. Both only read;
`forget_history` deletes old changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from mm2mgr.apply.history import forget
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.live.snapshot import Steps
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.drift import DriftReport, find_drift
from mm2mgr.plan.history import HistoryEntry, read_history
from mm2mgr.timing import wait_for


@dataclass(frozen=True)
class HistoryReport:
    """Recorded changes, newest last; `unread` has the Connect clusters whose history could not be read, with the
    reason."""

    entries: tuple[HistoryEntry, ...]
    unread: Mapping[str, str] = field(default_factory=dict)


def history(
    workspace: Workspace,
    flows: Sequence[str] = (),
    *,
    connects: Sequence[str] = (),
    since_seconds: float | None = None,
    last: int | None = None,
) -> HistoryReport:
    """Read what was changed, newest last. `flows` may be flows of the tree, flows that it had once, or names of
    connectors.

    `connects` limits it to some Connect clusters, `since_seconds` to the last so many seconds, `last` to so many
    entries.
    """
    _check_connects(workspace, connects)
    recorded = workspace.ask(read_history(workspace.topology, connects or None))
    entries = _entries_about(workspace, flows, recorded.entries)
    if since_seconds is not None:
        start = _seconds_ago(since_seconds)
        entries = tuple(entry for entry in entries if entry.when >= start)
    return HistoryReport(entries if last is None else entries[max(0, len(entries) - last) :], recorded.unread)


def forget_history(workspace: Workspace, older_seconds: float, *, connects: Sequence[str] = ()) -> HistoryReport:
    """Delete the entries that are older than so many seconds, and return them; the configs that were last applied stay.

    `unread` has the Connect clusters whose history could not be read or written, with the reason.
    """
    workspace.refuse_snapshot()
    report = history(workspace, connects=connects)
    end = _seconds_ago(older_seconds)
    old = tuple(entry for entry in report.entries if entry.when < end)
    return HistoryReport(old, {**report.unread, **wait_for(forget(workspace.topology, old))})


def _seconds_ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _check_connects(workspace: Workspace, connects: Sequence[str]) -> None:
    in_tree = workspace.topology.connects
    for name in connects:
        if name not in in_tree:
            message = f"no Connect cluster '{name}' in the tree; known: {', '.join(sorted(in_tree))}"
            raise InvalidArgument("connect", message)


def _entries_about(
    workspace: Workspace, names: Sequence[str], entries: tuple[HistoryEntry, ...]
) -> tuple[HistoryEntry, ...]:
    """Return the entries about these names; the tree's error about one that neither it nor an entry knows."""
    if not names:
        return entries
    chosen = set[str]()
    for name in names:
        about = {entry.id for entry in entries if _is_about(entry, name)}
        try:
            flow_ids = {flow.id for flow in workspace.flows((name,))}
        except Mm2mgrError:
            if not about:
                raise
            flow_ids = set()
        chosen |= about | {entry.id for entry in entries if flow_ids.intersection(entry.flows)}
    return tuple(entry for entry in entries if entry.id in chosen)


def _is_about(entry: HistoryEntry, name: str) -> bool:
    flows = {name for flow in entry.flows for name in (flow, *flow.split(":", 1))}
    return name in flows | {entry.connector, f"{entry.connect}/{entry.connector}"}


def drift(workspace: Workspace, flows: Sequence[str] = ()) -> DriftReport:
    """Compare what runs with what was applied last, for all connectors of this owner or those that serve `flows`.

    Where no history can be read, or it does not know a connector, the tree is compared: then a change of the tree that
    was not applied yet counts as well, and a connector that was deleted by hand is not found.
    """
    return workspace.ask(drift_of(workspace, flows))


def drift_of(workspace: Workspace, flows: Sequence[str]) -> Steps[DriftReport]:
    """Return the same from answers."""
    chosen = workspace.connectors_of(workspace.flows(flows)) if flows else None
    return find_drift(workspace.topology, workspace.connectors, chosen)

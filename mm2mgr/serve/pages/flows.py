"""The list of flows, and the page of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mm2mgr.observe.lag_report import LagRow
from mm2mgr.operations.serve import EstateView
from mm2mgr.output.status_text import records_text
from mm2mgr.problems.health import TaskState
from mm2mgr.serve.pages.base import WORST_FIRST, Context, flow_link
from mm2mgr.text import span_text

_LATE_SECONDS = 60.0
UNKNOWN_LAG = "lag unknown"
"""What `pair_lag` says where nothing is counted."""


def flows(view: EstateView, source: str = "", target: str = "") -> Context:
    """Return the list of flows, or of those between two clusters."""
    statuses = view.look.status.flows if view.look else ()
    chosen = [flow for flow in statuses if not source or flow.pair == f"{source}->{target}"]
    rows = [
        {
            "flow": flow.flow,
            "link": flow_link(flow.flow),
            "health": flow.health,
            "state": flow.state,
            "tasks": _tasks_text(flow.tasks),
            "lag": pair_lag([view.total(flow.flow)])[0],
            "problems": len(flow.problems),
        }
        for flow in sorted(chosen, key=lambda flow: (WORST_FIRST.index(flow.health), flow.flow))
    ]
    heading = f"Flows from {source} to {target}" if source else "Flows"
    return {"name": "flows", "here": "/flows", "heading": heading, "rows": rows}


def _tasks_text(tasks: Sequence[TaskState]) -> str:
    counts = Counter(task.state for task in tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no task"


def pair_lag(totals: Sequence[LagRow | None]) -> tuple[str, bool]:
    rows = [row for row in totals if row]
    records = [row.records.value for row in rows if row.records.value is not None]
    if not rows or len(records) < len(totals):
        return UNKNOWN_LAG, True
    if not sum(records):
        return "level", False
    seconds = [row.seconds.value for row in rows if row.records.value]
    known_seconds = [value for value in seconds if value is not None]
    if len(known_seconds) < len(seconds):
        at_least = any(row.records.at_least for row in rows)
        return f"{records_text(sum(records), at_least)} records", True
    at_least = "at least " if any(row.seconds.at_least for row in rows) else ""
    return f"{at_least}{span_text(max(known_seconds))} behind", max(known_seconds) > _LATE_SECONDS

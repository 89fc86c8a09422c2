"""The pages of `serve`: models from the JSON-ready values of a view, and HTML without script from the models.

Every link is relative to the root, every state has a sign and a word beside its colour, and every figure its numbers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from mm2mgr.output.lag_text import lag_table, records_text
from mm2mgr.output.page import lag_curve, template
from mm2mgr.output.problem_text import offsets_not_stored, orphan, sentence
from mm2mgr.output.survey_page import MOST_ROWS, changes_of, utc
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import number_of, rate_text, span_text

Values = Mapping[str, Any]
PAGES = {
    "": "Overview",
    "flows": "Flows",
    "losses": "Losses",
    "findings": "Findings",
    "changes": "Changes",
    "plan": "Plan",
    "watchdog": "Watchdog",
}
"""The pages by path, in the order of the navigation."""
SIGNS = {"problem": "✕", "unknown": "?", "waiting": "…", "ok": "✓"}
_WORST_FIRST = tuple(SIGNS)
_LATE_SECONDS = 60.0


def html(page: str, view: Values, refresh_seconds: int | None = None, **more: Any) -> str:
    """Return a page: `page` names its template, `view` is the overview as values, `more` what the template needs."""
    status = view["status"]
    return template(f"serve_{page}.html.j2").render(
        title=f"mm2mgr: {more.pop('name')}",
        nav=[(f"/{path}", name) for path, name in PAGES.items()],
        health=status["health"] if status else "unknown",
        signs=SIGNS,
        origin=origin(view),
        trouble=_trouble(view),
        taken_at=utc(status["taken_at"]) if status else "",
        refresh=refresh_seconds,
        **more,
    )


@cache
def style() -> str:
    """Return the style sheet that every page of `serve` has, for the hash in the Content-Security-Policy."""
    empty: dict[str, Any] = {
        **{"status": None, "state": "starting", "age_seconds": None},
        **{"error": "", "tree_error": "", "warnings": []},
    }
    text = html("table", empty, name="", here="", heading="", lead="", notes=(), tables=())
    found = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert found is not None
    return found[1]


def origin(view: Values) -> str:
    """Say how old what is shown is."""
    age = view["age_seconds"]
    if age is None:
        return "No look has ended yet."
    return (
        f"Looked {span_text(age)} ago."
        if view["state"] == "ok"
        else f"The last complete look was {span_text(age)} ago."
    )


def _trouble(view: Values) -> list[str]:
    found = []
    if view["state"] == "stale":
        found.append("What is shown is stale: looks fail or take too long.")
    if view["error"]:
        found.append(f"The last look failed: {view['error']}")
    if view["tree_error"]:
        found.append(f"The YAML tree has changed and is wrong, so the one before it counts: {view['tree_error']}")
    return [*found, *view["warnings"]]


def flow_link(flow: str) -> str:
    """Return the address of a flow's page."""
    return f"/flow?{urlencode({'id': flow})}"


# --- overview ---------------------------------------------------------------------------------------------------------


def overview(now: float, view: Values) -> dict[str, Any]:
    """Return what the overview shows: the matrix, problems, and clusters that could not be read."""
    status = view["status"]
    if status is None:
        return {
            "name": "overview",
            "here": "/",
            "summary": "",
            "matrix": None,
            "problems": [],
            "failures": [],
            "more": 0,
        }
    problems = _problems(status)
    return {
        "name": "overview",
        "here": "/",
        "summary": summary(status),
        "matrix": matrix(now, view),
        "problems": problems[:MOST_ROWS],
        "more": max(0, len(problems) - MOST_ROWS),
        "failures": [(where, one["message"], one["hint"]) for where, one in status["failures"].items()],
    }


def summary(status: Values) -> str:
    """Count flows by health and their tasks by state."""
    flows = [f"{count} {word}" for word, count in status["counts"].items() if count]
    tasks = Counter(task["state"] for flow in status["flows"] for task in flow["tasks"])
    counted = ", ".join(f"{count} {state}" for state, count in tasks.most_common())
    return f"{number_of(len(status['flows']), 'flow')} ({', '.join(flows)}); {number_of(tasks.total(), 'task')}" + (
        f" ({counted})." if counted else "."
    )


def matrix(now: float, view: Values) -> dict[str, Any]:
    """Return the pairs of clusters as rows and columns; the side with more clusters is down, so that it stays readable."""
    cells: dict[tuple[str, str], list[Values]] = defaultdict(list)
    for flow in view["status"]["flows"]:
        source, _, target = flow["pair"].partition("->")
        cells[source, target].append(flow)
    sources, targets = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    across = "target" if len(sources) >= len(targets) else "source"
    down, along = (sources, targets) if across == "target" else (targets, sources)

    def cell(row: str, column: str) -> dict[str, Any] | None:
        pair = (row, column) if across == "target" else (column, row)
        return _cell(now, pair, cells[pair], view) if pair in cells else None

    return {
        "down": "source" if across == "target" else "target",
        "across": across,
        "columns": along,
        "rows": [(row, [cell(row, column) for column in along]) for row in down],
    }


def _cell(now: float, pair: tuple[str, str], flows: Sequence[Values], view: Values) -> dict[str, Any]:
    health = min((flow["health"] for flow in flows), key=_WORST_FIRST.index)
    lag, is_late = pair_lag([view["lag"].get(flow["flow"]) for flow in flows])
    known = [view["last_known"][flow["flow"]]["taken_at"] for flow in flows if flow["flow"] in view["last_known"]]
    only = len(flows) == 1
    return {
        "link": flow_link(flows[0]["flow"]) if only else f"/flows?{urlencode({'source': pair[0], 'target': pair[1]})}",
        "health": health,
        "late": is_late,
        "lag": f"known {span_text(now - min(known))} ago" if known else lag,
        "flows": "" if only else number_of(len(flows), "flow"),
        "pair": f"{pair[0]} to {pair[1]}",
    }


def pair_lag(rows: Sequence[Values | None]) -> tuple[str, bool]:
    """Return the lag of flows as a short text, in time where that is known, and whether it is more than a minute or unknown in time."""
    records = [row["lag_records"]["value"] for row in rows if row]
    if not records or None in records or None in rows:
        return "lag unknown", True
    if not sum(records):
        return "level", False
    seconds = [row["lag_seconds"]["value"] for row in rows if row and row["lag_records"]["value"]]
    if None in seconds:
        at_least = any(row["lag_records"]["at_least"] for row in rows if row)
        return f"{records_text(sum(records), at_least)} records", True
    return f"{span_text(max(seconds))} behind", max(seconds) > _LATE_SECONDS


def _problems(status: Values) -> list[tuple[str, str, str]]:
    """Return each problem with what it is about and the address of its flow's page, if it has one."""
    found = [
        (one.get("flow") or one["connector"], flow_link(one["flow"]) if "flow" in one else "", sentence(problem))
        for one in (*status["flows"], *status["companions"])
        for problem in one["problem_values"]
    ]
    found += [(one["connector"], "", orphan(one)) for one in status["orphans"]]
    found += [(one["connect"], "", offsets_not_stored(one)) for one in status["stale_offsets"]]
    return found


# --- flows ------------------------------------------------------------------------------------------------------------


def flows(view: Values, source: str = "", target: str = "") -> dict[str, Any]:
    """Return the list of flows, or of those between two clusters."""
    chosen = [
        flow
        for flow in (view["status"]["flows"] if view["status"] else ())
        if not source or flow["pair"] == f"{source}->{target}"
    ]
    rows = [
        {
            "flow": flow["flow"],
            "link": flow_link(flow["flow"]),
            "health": flow["health"],
            "state": flow["state"],
            "tasks": _tasks_text(flow["tasks"]),
            "lag": pair_lag([view["lag"].get(flow["flow"])])[0],
            "problems": len(flow["problem_values"]),
        }
        for flow in sorted(chosen, key=lambda one: (_WORST_FIRST.index(one["health"]), one["flow"]))
    ]
    heading = f"Flows from {source} to {target}" if source else "Flows"
    return {"name": "flows", "here": "/flows", "heading": heading, "rows": rows}


def _tasks_text(tasks: Sequence[Values]) -> str:
    counts = Counter(task["state"] for task in tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no task"


def flow(now: float, found: Values, survey: Values | None) -> dict[str, Any]:
    """Return one flow in full: state, tasks, lag over time, per topic and partition, losses, and what concerns it elsewhere."""
    status, known = found["status"], found["last_known"]
    shown = known["status"] if known else status
    points = found["points"]
    partitions = found["partitions"]
    lags, loads = ({str(row["task"]): row for row in found[part]} for part in ("tasks", "task_load"))
    tasks = [
        (
            str(task["id"]),
            task["state"],
            task["worker"],
            or_dash(task["partitions"]),
            *_task_lag(lags.get(str(task["id"]))),
            *_task_load(loads.get(str(task["id"]))),
        )
        for task in shown["tasks"]
    ]
    return {
        "name": found["flow"],
        "here": "/flows",
        "flow": found["flow"],
        "flow_health": status["health"],
        "state_word": status["state"],
        "connector": f"{shown['connector']} on {shown['connect']}" if shown["connector"] else shown["connect"],
        "aged": f"Its Connect cluster cannot be read; below is what was known {span_text(now - known['taken_at'])} ago."
        if known
        else "",
        "problems": [sentence(one) for one in status["problem_values"]],
        "notes": [*status["notes"], *([status["offsets_note"]] if status["offsets_note"] else [])],
        "lag": _lag_table([found["total"]], "flow"),
        "curve": lag_curve(points) if len(points) > 1 else "",
        "points": Table(
            ("time", "lag (records)"),
            [(utc(one["time"]), str(one["lag_records"])) for one in points],
            right=("lag (records)",),
        ),
        "tasks": Table(
            ("task", "state", "worker", "partitions", "lag (records)", "lag (time)", "load", "load (records)"),
            tasks,
            right=("task", "partitions", "lag (records)", "lag (time)", "load", "load (records)"),
        ),
        "load_note": f"The load is unknown: {found['load_unknown']}."
        if found["load_unknown"]
        else f"The load is what the source's partitions got on average in {found['load_hours']}.",
        "topics": _lag_table(found["topics"][:MOST_ROWS], "topic"),
        "partitions": _lag_table(partitions[:MOST_ROWS], "partition"),
        "left_out": max(0, len(partitions) - MOST_ROWS),
        "unknown": sorted({why for row in partitions for why in row["unknown"].values()}),
        "changes": changes_of(found["flow"], survey),
    }


def _task_lag(row: Values | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    records, seconds = row["lag_records"], row["lag_seconds"]["value"]
    return records_text(records["value"], records["at_least"]), "unknown" if seconds is None else span_text(seconds)


def _task_load(row: Values | None) -> tuple[str, str]:
    if row is None:
        return "unknown", "unknown"
    least, size, records = (
        "at least " if row["unmeasured_partitions"] else "",
        row["bytes_per_second"],
        row["records_per_second"],
    )
    return (
        "unknown" if size is None else f"{least}{rate_text(size)}",
        "unknown" if records is None else f"{least}{records:.1f}/s",
    )


def _lag_table(rows: list[Values], by: str) -> Table:
    """Return the table of `mm2mgr lag` without the flow, which the page is about."""
    table = lag_table([dict(row) for row in rows], by)
    return Table(table.columns[1:], [row[1:] for row in table.rows], right=table.right)

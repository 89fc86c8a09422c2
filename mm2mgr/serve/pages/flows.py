"""The list of flows, and the page of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mm2mgr.evidence.flow_load import TaskLoad
from mm2mgr.observe.lag_report import LagLevel, LagRow
from mm2mgr.observe.trend import FLOW
from mm2mgr.operations.serve import EstateView, Survey
from mm2mgr.output.page import lag_curve
from mm2mgr.output.status_text import lag_table, records_text
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.problems.health import FlowStatus, TaskState
from mm2mgr.serve.pages.base import MOST_ROWS, WORST_FIRST, Context, change_text, flow_link, utc
from mm2mgr.text import number_of, rate_text, span_text

_LATE_SECONDS = 60.0


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


def flow(now: float, view: EstateView, status: FlowStatus) -> Context:
    """Return one flow in full: state, tasks, lag over time, per topic and partition, and what concerns it elsewhere."""
    last_known = view.last_known(status)
    shown, facts, load = last_known.status if last_known else status, view.facts(status), view.load
    partitions, points = facts.rows(LagLevel.PARTITION), facts.points.get(FLOW, ())
    task_lags = {row.task: row for row in facts.rows(LagLevel.TASK)}
    task_loads = {task_load.task: task_load for task_load in view.task_loads(status)}
    tasks = [
        (
            str(task.id),
            task.state,
            task.worker,
            or_dash(task.partitions),
            *_lag_cells(task_lags.get(task.id)),
            *_load_cells(task_loads.get(task.id)),
        )
        for task in shown.tasks
    ]
    numbers = ("task", "partitions", "lag (records)", "lag (time)", "load", "load (records)")
    columns = ("task", "state", "worker", *numbers[1:])
    times = [(utc(point.time), str(point.lag_records)) for point in points]
    age = span_text(now - last_known.taken_at) if last_known else ""
    return {
        "name": status.flow,
        "here": "/flows",
        "flow": status.flow,
        "flow_health": status.health,
        "state_word": status.state,
        "connector": f"{shown.connector} on {shown.connect}" if shown.connector else shown.connect,
        "aged": f"Its Connect cluster cannot be read; below is what was known {age} ago." if age else "",
        "problems": status.sentences,
        "notes": [
            *_lane_sentences(status, view),
            *status.notes,
            *([status.offsets_note] if status.offsets_note else []),
            *([status.audit.sentence] if status.audit else []),
        ],
        "lag": _lag_table([facts.total], LagLevel.FLOW),
        "curve": lag_curve(points) if len(points) > 1 else "",
        "points": Table(("time", "lag (records)"), times, right=("lag (records)",)),
        "load": list(_load_sentences(status, view)),
        "tasks": Table(columns, tasks, right=numbers),
        "load_note": f"The load is unknown: {load.unknown}."
        if load.unknown
        else f"The load is what the source's partitions got on average in {load.hours}.",
        "topics": _lag_table(facts.rows(LagLevel.TOPIC)[:MOST_ROWS], LagLevel.TOPIC),
        "partitions": _lag_table(partitions[:MOST_ROWS], LagLevel.PARTITION),
        "left_out": max(0, len(partitions) - MOST_ROWS),
        "unknown": sorted({reason for row in partitions for reason in row.unknown.values()}),
        "changes": _changes_of(status.flow, view.survey),
    }


def _lane_sentences(status: FlowStatus, view: EstateView) -> Iterator[str]:
    if status.lane_of:
        yield f"It is a lane of {status.lane_of}."
    flows = view.look.status.flows if view.look else ()
    if lanes := [flow.flow for flow in flows if flow.lane_of == status.flow]:
        yield f"Its lanes, each with topics of its own: {', '.join(lanes)}."


def _load_sentences(status: FlowStatus, view: EstateView) -> Iterator[str]:
    """Say what a flow mirrors, how busy its tasks are, how many it needs, and which partitions no task can carry."""
    moves, need = view.throughput.get(status.flow), view.needs.flows.get(status.flow)
    if moves and moves.mirrored_records_per_second is not None:
        volume = moves.mirrored_bytes_per_second
        in_bytes = "" if volume is None else f" ({rate_text(volume)})"
        source = f"{moves.source_records_per_second or 0.0:.1f} records/s that its source gets"
        yield f"Mirrors {moves.mirrored_records_per_second:.1f} records/s{in_bytes}, of {source}."
    if (counted := status.interruptions) and any(counted.last_30_days):
        last_hour = counted.last_hour.text or "nothing"
        yield f"Interrupted in 30 days by {counted.last_30_days.text}; in the last hour by {last_hour}."
    if (whole := status.interruptions_with_lanes) and any(whole.last_30_days) and whole != counted:
        last_hour = whole.last_hour.text or "nothing"
        yield f"With its lanes: in 30 days {whole.last_30_days.text}; in the last hour {last_hour}."
    if moves and moves.busiest_share is not None and moves.balance is not None:
        share = f"{moves.busiest_share * 100:.0f} % of what a task is planned to carry"
        yield f"The busiest task got {share}, {moves.balance:.2f} times the mean of its tasks."
    if need is None:
        yield f"The tasks that it needs are unknown: {view.needs.unknown or 'its source could not be read'}."
        return
    running = sum(task.state == "RUNNING" for task in status.tasks)
    yield f"{number_of(need.tasks, 'task')} needed by the load of the last four weeks, {running} RUNNING."
    if need.hot_partitions:
        names = [
            f"{hot.topic}-{hot.partition} ({rate_text(hot.bytes_per_second)}, {hot.factor:.1f} times)"
            for hot in need.hot_partitions[:MOST_ROWS]
        ]
        yield f"More than a task is planned to carry, so that more tasks do not help: {', '.join(names)}."


def _lag_cells(row: LagRow | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    seconds = row.seconds.value
    records = records_text(row.records.value, row.records.at_least)
    return records, "unknown" if seconds is None else span_text(seconds)


def _load_cells(load: TaskLoad | None) -> tuple[str, str]:
    if load is None:
        return "unknown", "unknown"
    least, records = "at least " if load.unmeasured_partitions else "", load.records_per_second
    return (
        "unknown" if load.bytes_per_second is None else f"{least}{rate_text(load.bytes_per_second)}",
        "unknown" if records is None else f"{least}{records:.1f}/s",
    )


def _lag_table(rows: Sequence[LagRow], by: LagLevel) -> Table:
    table = lag_table(rows, by)
    return Table(table.columns[1:], [row[1:] for row in table.rows], right=table.right)


def _changes_of(name: str, survey: Survey | None) -> list[str]:
    changes = survey.plan.changes if survey and not isinstance(survey.plan, str) else ()
    return [
        f"{change.connector}: {change_text(change)}"
        for change in changes
        if name in change.flows and change.action != "no-op"
    ]


def pair_lag(totals: Sequence[LagRow | None]) -> tuple[str, bool]:
    rows = [row for row in totals if row]
    records = [row.records.value for row in rows if row.records.value is not None]
    if not rows or len(records) < len(totals):
        return "lag unknown", True
    if not sum(records):
        return "level", False
    seconds = [row.seconds.value for row in rows if row.records.value]
    known_seconds = [value for value in seconds if value is not None]
    if len(known_seconds) < len(seconds):
        at_least = any(row.records.at_least for row in rows)
        return f"{records_text(sum(records), at_least)} records", True
    return f"{span_text(max(known_seconds))} behind", max(known_seconds) > _LATE_SECONDS

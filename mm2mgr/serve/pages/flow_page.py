"""The page of a flow: its state and problems, lag and rates over time, what was changed, and all that concerns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from urllib.parse import urlencode

from mm2mgr.evidence.flow_load import TaskLoad
from mm2mgr.evidence.traffic import (
    HOUR_SECONDS,
    RANGES,
    UNSEEN_SECONDS,
    USUAL_RANGE,
    TrafficPoint,
    thin_out,
    volume,
)
from mm2mgr.observe.lag_report import LagLevel, LagRow
from mm2mgr.operations.estate_view import EstateView, Survey, WrittenFlow
from mm2mgr.output.history_text import action_line, entry_details, recorded_change
from mm2mgr.output.lint_text import finding_table
from mm2mgr.output.status_text import lag_table, loss_cells, records_text
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems.health import FlowStatus
from mm2mgr.serve.pages.base import (
    MOST_ROWS,
    SAME_SECONDS,
    Context,
    change_text,
    flow_link,
    shown_health,
    static_address,
    utc,
)
from mm2mgr.serve.pages.charts import (
    BYTES_PER_SECOND,
    MARKS,
    RECORDS,
    RECORDS_PER_SECOND,
    TIME,
    ChartLimit,
    ChartLine,
    ChartMark,
    TimeSpan,
    chart,
    line_sign,
    mark_sign,
)
from mm2mgr.serve.pages.traffic import beside_lines, traffic_of
from mm2mgr.serve.pages.wrong import late_line
from mm2mgr.text import count_text, number_of, rate_text, records_rate_text, span_text

_HOURS_GAP_SECONDS = 2 * HOUR_SECONDS
_MOST_CHANGES = 50
_MOST_NUMBERS = 120
_MARK_OF_COMMAND = {"watch": "restart", "restart": "restart", "rebalance": "rebalance"}


def flow(now: float, view: EstateView, status: FlowStatus, range_name: str = "") -> Context:
    """Return one flow in full. `range_name`: the time that charts show; with another word than those of `RANGES` it is
    a day, or the shortest one that has all that is known of the last day."""
    last_known = view.last_known(status)
    shown, facts, load = last_known.status if last_known else status, view.facts(status), view.load
    declared = view.survey.declared.get(status.flow, WrittenFlow()) if view.survey else WrittenFlow()
    partitions, tasks = (
        facts.rows(LagLevel.PARTITION),
        _tasks(view, shown, facts.rows(LagLevel.TASK), view.task_loads(status)),
    )
    age, total = span_text(now - last_known.taken_at) if last_known else "", view.flow_lag(status)
    names = {(shown.connect, shown.connector), *declared.connectors}
    source, _, target = status.pair.partition("->")
    return {
        "name": status.flow,
        "here": "/flows",
        "flow": status.flow,
        "flow_health": shown_health(view, status),
        "back": [
            ("Overview", "/"),
            ("All flows", "/flows"),
            (f"Flows from {source} to {target}", f"/flows?{urlencode({'source': source, 'target': target})}"),
        ],
        "state_word": status.state,
        "connector": f"{shown.connector} on {shown.connect}" if shown.connector else shown.connect,
        "aged": _aged_text(age, total) if age else "",
        "problems": [
            *((problem.sentence, problem.command) for problem in status.problems),
            *(line[2:] for line in [late_line(view, status.flow)] if line),
        ],
        "notes": [
            *_lane_sentences(status, view),
            *status.notes,
            *([status.offsets_note] if status.offsets_note else []),
            *([status.audit.sentence] if status.audit else []),
        ],
        "lag": _lag_table([total], LagLevel.FLOW),
        "history": _history(
            now, view, status, names, range_name if range_name in RANGES else _range(now, view, status)
        ),
        "load": [*beside_lines(traffic_of(view, status.flow)), *_load_sentences(status, view)],
        "tasks": tasks,
        "load_note": f"The load is unknown: {load.unknown or 'nothing was rolled up'}."
        if not load.hours
        else f"The load is what the source's partitions got on average in {load.hours}.",
        "plan": _plan_of(status.flow, view.survey),
        "changes": _changes(view, status.flow, names),
        "findings": _findings(view, status.flow, names),
        "losses": _losses(view, status.flow),
        "settings": Table(("setting", "value", "where it was written"), [*declared.settings]),
        "unsurveyed": "" if view.survey else "Changes, findings, settings and the plan are read at a slower pace.",
        "topics": _lag_table(facts.rows(LagLevel.TOPIC)[:MOST_ROWS], LagLevel.TOPIC),
        "partitions": _lag_table(partitions[:MOST_ROWS], LagLevel.PARTITION),
        "left_out": max(0, len(partitions) - MOST_ROWS),
        "unknown": sorted({reason for row in partitions for reason in row.unknown.values()}),
        "chart_script": static_address("charts.js"),
    }


def _aged_text(age: str, lag: LagRow) -> str:
    if lag.records.at_least:
        return f"No worker answers: the lag is at least that, and tasks are as they were known {age} ago."
    return f"Its Connect cluster cannot be read; below is what was known {age} ago."


# --- over time --------------------------------------------------------------------------------------------------------


def _range(now: float, view: EstateView, status: FlowStatus) -> str:
    points = view.traffic_points(status.flow, now, RANGES[USUAL_RANGE])
    known_seconds = now - points[0].time if points else 0.0
    return next(name for name, seconds in RANGES.items() if known_seconds <= seconds)


def _history(now: float, view: EstateView, status: FlowStatus, names: set[tuple[str, str]], range_name: str) -> Context:
    """Return the charts of a range with a table of their numbers, and what each mark in them is."""
    seconds = RANGES[range_name]
    points = view.traffic_points(status.flow, now, seconds)
    span = TimeSpan(now - seconds, now, _HOURS_GAP_SECONDS if seconds > RANGES["24h"] else UNSEEN_SECONDS)
    marks = [mark for mark in _marks(view, status.flow, names) if span.first <= mark.time <= now]
    earlier, volumes = view.traffic.unknown, view.traffic.bytes_unknown
    both = ", and bytes per second," * (volumes == earlier)
    unknown = [f"Lag and rates of before the last hour{both} are unknown: {earlier}"] if earlier else []
    unknown += [f"Bytes per second are unknown: {volumes}"] if volumes not in ("", earlier) else []
    unknown += view.traffic.warnings
    signs = [(mark_sign(kind), word) for kind, word in MARKS.items() if any(mark.kind == kind for mark in marks)]
    return {
        "ranges": [
            (name, f"{flow_link(status.flow)}&{urlencode({'range': name})}#time", name == range_name) for name in RANGES
        ],
        "charts": _charts(view, status.flow, points, span, marks) if points or marks else [],
        "signs": signs,
        "marks": Table(
            ("time", "what", "details"), [(utc(mark.time), MARKS[mark.kind], mark.text) for mark in marks[::-1]]
        ),
        "numbers": _numbers(view, status.flow, points, now, seconds),
        "unknown": unknown,
        "since": "" if points else "Nobody looked at this flow in this time; charts begin with the first looks.",
    }


def _charts(
    view: EstateView, name: str, points: Sequence[TrafficPoint], span: TimeSpan, marks: Sequence[ChartMark]
) -> list[Context]:
    times, is_by_hour = [point.time for point in points], span.gap_seconds == _HOURS_GAP_SECONDS
    most = view.look.max_lag_seconds.get(name) if view.look else None
    lag = [ChartLine("mean lag of the hour" if is_by_hour else "lag", "own", [point.lag for point in points])]
    if is_by_hour:
        lag.append(ChartLine("most of the hour", "most", [point.most_lag for point in points]))
    rates = [
        ChartLine("source", "other", [point.source_rate for point in points]),
        ChartLine("mirrored", "own", [point.mirrored_rate for point in points]),
    ]
    history = view.traffic.of_flow(name)
    sizes = [history.size_at(point) for point in points]
    volumes = [
        ChartLine(line.name, line.style, [volume(rate, size) for rate, size in zip(line.values, sizes, strict=True)])
        for line in rates
    ]
    limit = ChartLimit("max_lag", most) if most else None
    behind = [ChartLine("behind", "own", view.lag_times(name, span.last, points))]
    return [
        _figure("Lag", "records", lag, chart("Lag in records", span, times, lag, RECORDS, marks=marks)),
        _figure(
            "Lag in time",
            "how long ago the source was where the mirror is now",
            behind,
            chart("Lag in time", span, times, behind, TIME, limit=limit, marks=marks),
            limit,
        ),
        _figure(
            "Rates",
            "records/s",
            rates,
            chart("Records per second", span, times, rates, RECORDS_PER_SECOND, marks=marks),
        ),
        _figure(
            "Volume",
            "records times their mean size in the hour",
            volumes,
            chart("Bytes per second", span, times, volumes, BYTES_PER_SECOND, marks=marks),
        ),
    ]


def _figure(title: str, unit: str, lines: Sequence[ChartLine], drawn: str, limit: ChartLimit | None = None) -> Context:
    legend = [(line_sign(line.style), line.name) for line in lines] if len(lines) > 1 or limit else []
    if limit:
        legend.append((line_sign("limit"), f"{limit.name} {span_text(limit.value)}"))
    return {"title": title, "unit": unit, "legend": legend, "drawn": drawn}


def _numbers(view: EstateView, name: str, points: Sequence[TrafficPoint], now: float, seconds: float) -> Table:
    """Return the numbers of the charts, newest first; of several points close to each other the last one."""
    history, width = view.traffic.of_flow(name), seconds / _MOST_NUMBERS
    behind = dict(zip((point.time for point in points), view.lag_times(name, now, points), strict=True))
    rows = []
    for point in thin_out(points, width):
        late, size = behind[point.time], history.size_at(point)
        rows.append(
            (
                utc(point.time)[:16],
                count_text(point.lag),
                "unknown" if late is None else span_text(late),
                *(_rate(rate, count_text) for rate in (point.source_rate, point.mirrored_rate)),
                *(_rate(volume(rate, size), rate_text) for rate in (point.source_rate, point.mirrored_rate)),
            )
        )
    numbers = (
        "lag (records)",
        "lag (time)",
        "source (records/s)",
        "mirrored (records/s)",
        "source (bytes)",
        "mirrored (bytes)",
    )
    return Table(("time (UTC)", *numbers), rows[::-1], right=numbers)


def _rate(rate: float | None, write: Callable[[float], str]) -> str:
    return "unknown" if rate is None else write(rate)


def _marks(view: EstateView, name: str, names: set[tuple[str, str]]) -> list[ChartMark]:
    """Return what happened to a flow, oldest first: changes and restarts as the history has them, what the watchdog of
    this process did since, changes of its assignment, and losses."""
    marks = [_mark_of_entry(entry) for entry in _entries(view, name, names)]
    recorded = [mark.time for mark in marks if mark.kind == "restart"]
    for at, action in view.watchdog.actions if view.watchdog else ():
        subject = action.problem.subject
        is_own = subject.flow == name or (subject.connect, subject.connector) in names
        if (
            is_own
            and action.writes
            and not action.dry_run
            and not any(abs(at - then) < SAME_SECONDS for then in recorded)
        ):
            marks.append(ChartMark(at, "restart", f"watchdog: {action_line(action)}"))
    for at, round_ in view.rebalances.done if view.rebalances else ():
        if round_.flow == name and not any(
            mark.kind == "rebalance" and abs(at - mark.time) < SAME_SECONDS for mark in marks
        ):
            marks.append(ChartMark(at, "rebalance", f"rebalance {round_.outcome}: {round_.text}"))
    now = view.look.status.taken_at if view.look else 0.0
    for start, counts in view.traffic.of_flow(name).interruptions.items():
        kind = "rebalance" if counts.assignment_changes else "failure"
        marks += [ChartMark(float(start), kind, f"within {_width(now - start)}: {counts.text}")] if any(counts) else []
    marks += [
        ChartMark(loss.seen, "loss", f"{loss.partition}, offsets {loss.offsets_text}: {loss.cause}")
        for loss in (view.look.status.losses if view.look else ())
        if loss.flow == name
    ]
    return sorted(marks)


def _width(age: float) -> str:
    """Return how long a span of interruptions is that began so many seconds ago."""
    return "5 min" if age < 1.1 * HOUR_SECONDS else "an hour" if age < 25 * HOUR_SECONDS else "a day"


def _mark_of_entry(entry: HistoryEntry) -> ChartMark:
    kind = _MARK_OF_COMMAND.get(entry.command, "apply")
    parts = [
        f"{entry.command} by {entry.who}",
        recorded_change(entry),
        "" if entry.outcome == "done" else entry.outcome,
        entry.reason,
    ]
    return ChartMark(entry.at_seconds, kind, ": ".join(part for part in parts if part))


def _entries(view: EstateView, name: str, names: set[tuple[str, str]]) -> list[HistoryEntry]:
    history = view.survey.history if view.survey else ""
    entries = () if isinstance(history, str) else history.entries
    return [entry for entry in entries if name in entry.flows or (entry.connect, entry.connector) in names]


# --- what concerns it -------------------------------------------------------------------------------------------------


def _changes(view: EstateView, name: str, names: set[tuple[str, str]]) -> Context:
    """Return the newest changes of its connectors, each with its details."""
    entries = _entries(view, name, names)[::-1]
    lines = [
        {
            "at": entry.when[:19].replace("T", " "),
            "text": f"{entry.command} by {entry.who}{f' at commit {entry.commit}' if entry.commit else ''},"
            f" {entry.connect}/{entry.connector}: {recorded_change(entry)}, {entry.outcome}"
            + (f" — {entry.reason}" if entry.reason else ""),
            "details": [line.strip() for line in entry_details(entry)],
        }
        for entry in entries[:_MOST_CHANGES]
    ]
    history = view.survey.history if view.survey else None
    unread = history if isinstance(history, str) else ""
    return {"lines": lines, "more": max(0, len(entries) - _MOST_CHANGES), "unread": unread}


def _findings(view: EstateView, name: str, names: set[tuple[str, str]]) -> Context:
    """Return the findings of lint about its connectors."""
    report = view.survey.findings if view.survey else None
    if report is None or isinstance(report, str):
        return {"table": None, "unread": report or ""}
    own = [
        finding
        for finding in report.loud
        if (finding.spot.connect, finding.spot.connector) in names
        or any(
            name in subject.connector.flows or (subject.connector.connect, subject.name) in names
            for subject in (finding.hit.subjects if finding.hit else ())
        )
    ]
    table = finding_table(own[:MOST_ROWS])
    rows = [(*row, below[0].removeprefix("fix: ")) for row, below in zip(table.rows, table.below, strict=True)]
    return {"table": Table((*table.columns, "fix"), rows) if rows else None, "unread": ""}


def _losses(view: EstateView, name: str) -> Table:
    rows = [loss_cells(loss) for loss in (view.look.status.losses if view.look else ()) if loss.flow == name]
    columns = ("id", "partition", "offsets", "records", "first seen", "what happened")
    return Table(columns, [(row[0], *row[2:]) for row in rows[:MOST_ROWS]], right=("records",))


def _plan_of(name: str, survey: Survey | None) -> Context:
    plan = survey.plan if survey else None
    if plan is None or isinstance(plan, str):
        return {"changes": [], "unread": plan or ""}
    changes = [
        f"{change.connector}: {change_text(change)}"
        for change in plan.changes
        if name in change.flows and change.action != "no-op"
    ]
    return {"changes": changes, "unread": "", "command": f"mm2mgr plan {quote(name)}" if changes else ""}


def _tasks(view: EstateView, shown: FlowStatus, rows: Sequence[LagRow], loads: Sequence[TaskLoad]) -> list[Context]:
    lags, of_tasks = {row.task: row for row in rows}, {load.task: load for load in loads}
    return [
        {
            "id": task.id,
            "state": task.state,
            "worker": task.worker,
            "link": f"/worker?{urlencode({'connect': shown.connect, 'id': task.worker})}" if task.worker else "",
            "cells": [or_dash(task.partitions), *_lag_cells(lags.get(task.id)), *_load_cells(of_tasks.get(task.id))],
        }
        for task in shown.tasks
    ]


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
        source = f"{records_rate_text(moves.source_records_per_second or 0.0)} that its source gets"
        yield f"Mirrors {records_rate_text(moves.mirrored_records_per_second)}{in_bytes}, of {source}."
    elif moves and moves.source_records_per_second is not None and view.is_without_workers(status):
        yield "What it mirrors is not known while no worker tells: what its source gets is the growth of its log."
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
        "unknown" if records is None else f"{least}{count_text(records)}/s",
    )


def _lag_table(rows: Sequence[LagRow], by: LagLevel) -> Table:
    table = lag_table(rows, by)
    return Table(table.columns[1:], [row[1:] for row in table.rows], right=table.right)

"""The pages of `serve`: models from a view, and HTML without script from the models.

Every link is relative to the root, every state has a sign and a word beside its colour, and every figure its numbers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar
from urllib.parse import urlencode

from mm2mgr.evidence.flow_load import TaskLoad
from mm2mgr.failover.check import WORDS
from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.observe.lag_report import LagLevel, LagRow
from mm2mgr.observe.trend import FLOW
from mm2mgr.operations.automatic_rebalance import LastRound, RebalancesView
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.lint import LintReport
from mm2mgr.operations.serve import EstateView, Survey
from mm2mgr.operations.watch import WatchdogView
from mm2mgr.output.history_text import action_line, history_table, not_watched
from mm2mgr.output.lint_text import counts_text, finding_table
from mm2mgr.output.page import lag_curve, template
from mm2mgr.output.status_text import lag_table, loss_cells, records_text
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.problems.health import FlowStatus, Status, TaskState
from mm2mgr.text import few, number_of, rate_text, span_text

Part = TypeVar("Part")
Context = dict[str, object]
"""What a template needs."""
MOST_ROWS = 200
"""Rows of partitions, problems, findings and changes on a page; commands of the terminal have all."""
PAGES = {
    "": "Overview",
    "flows": "Flows",
    "losses": "Losses",
    "findings": "Findings",
    "changes": "Changes",
    "plan": "Plan",
    "watchdog": "Watchdog",
    "rebalance": "Rebalances",
    "failover": "Failover",
}
"""The pages by path, in the order of the navigation."""
SIGNS = {"problem": "✕", "unknown": "?", "waiting": "…", "ok": "✓"}
_WORST_FIRST = tuple(SIGNS)
_LATE_SECONDS = 60.0


def html(page: str, view: EstateView, tick: float, context: Context, refresh_seconds: int | None = None) -> str:
    """Return a page: `page` names its template, `context` is what that needs, and `tick` is now on the clock of the
    view."""
    status = view.look.status if view.look else None
    return template(f"serve_{page}.html.j2").render(
        title=f"mm2mgr: {context['name']}",
        nav=[(f"/{path}", name) for path, name in PAGES.items()],
        health=status.health if status else "unknown",
        signs=SIGNS,
        origin=_origin(view, tick),
        trouble=_trouble(view, tick),
        taken_at=utc(status.taken_at) if status else "",
        refresh=refresh_seconds,
        **{key: value for key, value in context.items() if key != "name"},
    )


@cache
def style() -> str:
    """Return the style sheet that every page of `serve` has, for the hash in the Content-Security-Policy."""
    text = html("table", EstateView(0.0, 1.0), 0.0, _table_page("", "", "", []))
    sheet = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert sheet is not None
    return sheet[1]


def utc(seconds: float) -> str:
    """Return a time, in seconds since 1970, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def flow_link(flow: str) -> str:
    """Return the address of a flow's page."""
    return f"/flow?{urlencode({'id': flow})}"


def _origin(view: EstateView, tick: float) -> str:
    age = view.age_seconds(tick)
    if age is None:
        return "No look has ended yet."
    is_fresh = view.state(tick) == "ok"
    return f"Looked {span_text(age)} ago." if is_fresh else f"The last complete look was {span_text(age)} ago."


def _trouble(view: EstateView, tick: float) -> list[str]:
    trouble = ["What is shown is stale: looks fail or take too long."] if view.state(tick) == "stale" else []
    if view.error:
        trouble.append(f"The last look failed: {view.error}")
    if view.tree_error:
        trouble.append(f"The YAML tree has changed and is wrong, so the one before it counts: {view.tree_error}")
    if view.audit and view.audit.error:
        trouble.append(f"The last audit of this process failed: {view.audit.error}")
    return [*trouble, *view.warnings]


# --- overview ---------------------------------------------------------------------------------------------------------


def overview(now: float, view: EstateView) -> Context:
    """Return what the overview shows: the matrix, problems, and clusters that could not be read."""
    status = view.look.status if view.look else None
    problems = _problems(status) if status else []
    failures = status.failures.items() if status else ()
    return {
        "name": "overview",
        "here": "/",
        "summary": _summary(status) if status else "",
        "matrix": _matrix(now, view, status.flows) if status else None,
        "problems": problems[:MOST_ROWS],
        "more": max(0, len(problems) - MOST_ROWS),
        "connects": _connects(view),
        "failures": [(cluster, failure.message, failure.hint) for cluster, failure in failures],
    }


def _connects(view: EstateView) -> Table:
    rows = [
        (name, or_dash(need.workers), or_dash(need.workers_needed))
        for name, need in sorted(view.needs.connects.items())
    ]
    columns = ("Connect cluster", "workers at work", "workers needed")
    return Table(columns, rows, right=columns[1:])


def _summary(status: Status) -> str:
    flows = [f"{count} {word}" for word, count in status.counts().items() if count]
    tasks = Counter(task.state for flow in status.flows for task in flow.tasks)
    counts = ", ".join(f"{count} {state}" for state, count in tasks.most_common())
    return f"{number_of(len(status.flows), 'flow')} ({', '.join(flows)}); {number_of(tasks.total(), 'task')}" + (
        f" ({counts})." if counts else "."
    )


def _matrix(now: float, view: EstateView, flows: Iterable[FlowStatus]) -> Context:
    """Return the pairs of clusters as rows and columns; the side with more clusters is down, so that it stays
    readable."""
    cells: dict[tuple[str, str], list[FlowStatus]] = defaultdict(list)
    for flow in flows:
        source, _, target = flow.pair.partition("->")
        cells[source, target].append(flow)
    sources, targets = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    across = "target" if len(sources) >= len(targets) else "source"
    down, along = (sources, targets) if across == "target" else (targets, sources)

    def cell(row: str, column: str) -> Context | None:
        pair = (row, column) if across == "target" else (column, row)
        return _cell(now, pair, cells[pair], view) if pair in cells else None

    return {
        "down": "source" if across == "target" else "target",
        "across": across,
        "columns": along,
        "rows": [(row, [cell(row, column) for column in along]) for row in down],
    }


def _cell(now: float, pair: tuple[str, str], flows: Sequence[FlowStatus], view: EstateView) -> Context:
    lag, is_late = _pair_lag([view.total(flow.flow) for flow in flows])
    ages = [now - last.taken_at for flow in flows if (last := view.last_known(flow))]
    only = len(flows) == 1
    return {
        "link": flow_link(flows[0].flow) if only else f"/flows?{urlencode({'source': pair[0], 'target': pair[1]})}",
        "health": min((flow.health for flow in flows), key=_WORST_FIRST.index),
        "late": is_late,
        "lag": f"known {span_text(max(ages))} ago" if ages else lag,
        "flows": "" if only else number_of(len(flows), "flow"),
        "pair": f"{pair[0]} to {pair[1]}",
    }


def _pair_lag(totals: Sequence[LagRow | None]) -> tuple[str, bool]:
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


def _problems(status: Status) -> list[tuple[str, str, str]]:
    return [
        *((flow.flow, flow_link(flow.flow), problem.sentence) for flow in status.flows for problem in flow.problems),
        *((other.connector, "", problem.sentence) for other in status.companions for problem in other.problems),
        *((lone.connector, "", lone.sentence()) for lone in status.orphans),
        *((stale.connect, "", stale.sentence()) for stale in status.stale_offsets),
    ]


# --- flows ------------------------------------------------------------------------------------------------------------


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
            "lag": _pair_lag([view.total(flow.flow)])[0],
            "problems": len(flow.problems),
        }
        for flow in sorted(chosen, key=lambda flow: (_WORST_FIRST.index(flow.health), flow.flow))
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
    partitions, points = facts.rows("partition"), facts.points.get(FLOW, ())
    task_lags = {row.task: row for row in facts.rows("task")}
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
        "lag": _lag_table([facts.total], "flow"),
        "curve": lag_curve(points) if len(points) > 1 else "",
        "points": Table(("time", "lag (records)"), times, right=("lag (records)",)),
        "load": list(_load_sentences(status, view)),
        "tasks": Table(columns, tasks, right=numbers),
        "load_note": f"The load is unknown: {load.unknown}."
        if load.unknown
        else f"The load is what the source's partitions got on average in {load.hours}.",
        "topics": _lag_table(facts.rows("topic")[:MOST_ROWS], "topic"),
        "partitions": _lag_table(partitions[:MOST_ROWS], "partition"),
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
        f"{change.connector}: {_change_text(change)}"
        for change in changes
        if name in change.flows and change.action != "no-op"
    ]


# --- pages that are a sentence and tables -----------------------------------------------------------------------------


def losses(view: EstateView) -> Context:
    """Return the losses that are not acknowledged."""
    rows = [loss_cells(loss) for loss in view.look.status.losses] if view.look else []
    columns = ("id", "flow", "partition", "offsets", "records", "first seen", "what happened")
    lead = "Records that may never arrive. Acknowledge one with mm2mgr losses --ack ID." if rows else "No loss is open."
    return _table_page("losses", "Losses", lead, [Table(columns, rows, right=("records",))] if rows else [])


def watchdog(view: WatchdogView | None) -> Context:
    """Return what the watchdog of this process did; None where none runs."""
    if view is None:
        lead = "No watchdog runs in this process: mm2mgr serve --watchdog, or mm2mgr watch."
        return _table_page("watchdog", "Watchdog", lead, [])
    if view.last is None:
        return _table_page("watchdog", "Watchdog", "The watchdog has not looked yet.", [])
    rows = [(utc(at), action_line(action)) for at, action in reversed(view.actions)]
    failed = number_of(view.failed_restarts, "restart")
    counts = f"Since the start: {number_of(view.restarts, 'restart')}, and {failed} that Connect did not carry out."
    dry_run = "A dry run: nothing is restarted. " if view.is_dry_run else ""
    lead = f"{dry_run}{counts} Looked last at {utc(view.last.taken_at)}."
    tables = [Table(("time", "what it saw and did"), rows)] if rows else []
    return _table_page("watchdog", "Watchdog", lead, tables, list(not_watched(view.last)))


def rebalance(view: RebalancesView | None) -> Context:
    """Return what is rebalanced without a person, what holds it, and the newest rounds; None where nothing is."""
    heading = "Rebalances"
    if view is None:
        lead = "Nothing is rebalanced by this process: mm2mgr serve --with rebalance, or mm2mgr reconcile --rebalance."
        return _table_page("rebalance", heading, lead, [])
    if view.last is None:
        return _table_page("rebalance", heading, "No flow was judged yet.", [])
    rows = [
        (
            flow.flow,
            flow.decision.hold or flow.outcome or "-",
            flow.text or "-",
            "unknown" if flow.rounds is None else str(flow.rounds),
            _last_round_text(flow.last),
            "-" if flow.decision.allowed_at is None else utc(flow.decision.allowed_at),
        )
        for flow in view.last.flows[:MOST_ROWS]
    ]
    columns = ("flow", "state", "why", "rounds", "last one", "next one allowed")
    done = [(utc(at), flow.flow, flow.outcome, flow.text) for at, flow in reversed(view.done)]
    tables = [Table(columns, rows, right=("rounds",))] if rows else []
    tables += [Table(("time", "flow", "outcome", "why"), done)] if done else []
    notes = [f"{flow.flow}: {note}" for flow in view.last.flows for note in flow.decision.notes]
    notes += [f"The last look failed: {view.last.error}"] if view.last.error else []
    notes += [view.last.note] if view.last.note else []
    return _table_page("rebalance", heading, f"Looked last at {utc(view.last.taken_at)}.", tables, notes)


def failover(now: float, view: EstateView) -> Context:
    """Return whether pairs that declare it could fail over, as the newest checks say, and the groups of those that this
    process checked."""
    heading, states = "Failover", view.look.status.failover if view.look else {}
    if not states:
        reason = "No pair declares `failover`, or the store could not be read." if view.look else "No look has ended."
        return _table_page("failover", heading, reason, [], list(_failover_notes(view)))
    columns = (
        *("pair", "verdict", "checked", "groups", "not ready", "would repeat", "would skip", "would lose"),
        *("oldest checkpoint", "source read", "why"),
    )
    order = {word: place for place, word in enumerate(WORDS)}
    rows = [
        _failover_row(now, pair, state)
        for pair, state in sorted(states.items(), key=lambda item: (order[item[1].verdict] if item[1] else 1, item[0]))
    ]
    tables = [Table(columns, rows[:MOST_ROWS], right=columns[3:8])]
    rehearsals = view.look.status.rehearsals if view.look else {}
    if rehearsals:
        of_rehearsals = ("pair", "rehearsal", "rehearsed", "last good", "recovery time", "why")
        lines = [_rehearsal_row(now, pair, rehearsal) for pair, rehearsal in sorted(rehearsals.items())]
        tables.append(Table(of_rehearsals, lines[:MOST_ROWS], right=("recovery time",)))
    for check in sorted(view.failover.checks.values(), key=lambda check: check.pair) if view.failover else ():
        groups = [
            (
                f"{check.pair}: {group.group}",
                f"{group.verdict} ({group.state})",
                or_dash(group.repeated),
                str(group.skipped),
                _ago(now, group.checkpoint_at),
            )
            for group in check.groups[:MOST_ROWS]
        ]
        if groups:
            right = ("would repeat", "would skip")
            tables.append(Table(("group", "verdict", *right, "oldest checkpoint"), groups, right=right))
    lead = (
        "Could consumers go on at the target now? Records at most; mm2mgr failover check names each partition. What is"
        " kept of a source that does not answer is as old as `source read`."
    )
    return _table_page("failover", heading, lead, tables, list(_failover_notes(view)))


def _failover_row(now: float, pair: str, state: ReadinessState | None) -> tuple[str, ...]:
    if state is None:
        return (pair, "not checked", *("-",) * 9)
    return (
        *(pair, state.verdict, _ago(now, state.checked_at), str(state.groups), str(state.groups_not_ready)),
        *(or_dash(state.repeated), str(state.skipped), or_dash(state.lost)),
        *(_ago(now, state.checkpoint_at), _ago(now, state.source_at), state.reason or "-"),
    )


def _rehearsal_row(now: float, pair: str, state: RehearsalState | None) -> tuple[str, ...]:
    if state is None:
        return (pair, "never", *("-",) * 4)
    seconds = "-" if state.recovery_seconds is None else span_text(state.recovery_seconds)
    good = "never" if state.good_at is None else _ago(now, state.good_at)
    return pair, state.verdict, _ago(now, state.rehearsed_at), good, seconds, state.reason or "-"


def _failover_notes(view: EstateView) -> Iterator[str]:
    if view.failover is None:
        yield "Nothing is checked by this process: mm2mgr serve --with failover, or mm2mgr failover check."
        return
    for check in view.failover.checks.values():
        if check.error:
            yield f"{check.pair}: the last check failed: {check.error}"
        yield from (f"{check.pair}: {warning}" for warning in check.warnings)
    if last := view.failover.last:
        yield from filter(None, (last.note, last.error and f"The last turn failed: {last.error}", *last.warnings))


def _ago(now: float, at: float | None) -> str:
    return "unknown" if at is None else f"{span_text(max(0.0, now - at))} ago"


def _last_round_text(last: LastRound | None) -> str:
    if last is None:
        return "-"
    gain = f": {last.before:.2f} → {last.after:.2f} times the mean" if last.before and last.after else ""
    return f"{utc(last.at_seconds)}{gain}"


def findings(survey: Survey | None) -> Context:
    """Return what lint finds in the tree."""
    return _survey_page("findings", "Findings of lint", survey, lambda survey: survey.findings, _findings)


def _findings(report: LintReport) -> tuple[str, list[str], list[Table]]:
    shown = report.loud[:MOST_ROWS]
    table = finding_table(shown)
    rows = [(*row, below[0].removeprefix("fix: ")) for row, below in zip(table.rows, table.below, strict=True)]
    lead = f"{counts_text(report) or 'No findings'} in {number_of(report.connectors, 'connector')}."
    left = len(report.loud) - len(shown)
    notes = [f"{number_of(left, 'finding')} more: mm2mgr lint"] if left else []
    return lead, notes, [Table((*table.columns, "fix"), rows)] if rows else []


def changes(survey: Survey | None) -> Context:
    """Return what was changed lately, newest first."""
    return _survey_page("changes", "Recent changes", survey, lambda survey: survey.history, _changes)


def _changes(report: HistoryReport) -> tuple[str, list[str], list[Table]]:
    notes = [f"The history of {connect} could not be read: {reason}" for connect, reason in report.unread.items()]
    lead = "Newest first; mm2mgr history has all." if report.entries else "No change is recorded."
    return lead, notes, [history_table(report.entries[::-1])] if report.entries else []


def plan(survey: Survey | None) -> Context:
    """Return what `apply` would do; nothing can be written from here."""
    return _survey_page("plan", "Plan", survey, lambda survey: survey.plan, _plan)


def _plan(plan: Plan) -> tuple[str, list[str], list[Table]]:
    words = {"no-op": "unchanged", "blocked": "blocked"}
    counts = (f"{count} {words.get(action, f'to {action}')}" for action, count in plan.counts().items())
    lead = f"{', '.join(counts)}. To write it: mm2mgr plan, then mm2mgr apply."
    notes = [f"{cluster.connect}: {cluster.error}" for cluster in plan.clusters if cluster.error]
    rows = [
        (change.connect, change.connector, change.action, _change_text(change))
        for change in plan.changes
        if change.action != "no-op"
    ]
    notes += [f"{number_of(len(rows) - MOST_ROWS, 'change')} more: mm2mgr plan"] if len(rows) > MOST_ROWS else []
    table = Table(("Connect cluster", "connector", "action", "what"), rows[:MOST_ROWS])
    return lead, notes, [table] if rows else []


def _change_text(change: Change) -> str:
    keys = []
    for key in change.keys:
        keys.append(f"{key.key}: {or_dash(key.masked_before)} → {or_dash(key.masked_after)}")
    return "; ".join(part for part in (change.action, change.reason, few(keys), change.waits) if part)


def _survey_page(
    path: str,
    heading: str,
    survey: Survey | None,
    read_part: Callable[[Survey], Part | str],
    page: Callable[[Part], tuple[str, list[str], list[Table]]],
) -> Context:
    if survey is None:
        return _table_page(path, heading, "Not made yet: lint, plan and history are read at a slower pace.", [])
    part = read_part(survey)
    if isinstance(part, str):
        return _table_page(path, heading, f"It could not be made: {part}", [])
    lead, notes, tables = page(part)
    return _table_page(path, heading, lead, tables, [f"As of {utc(survey.taken_at)}.", *notes])


def _table_page(path: str, heading: str, lead: str, tables: Sequence[Table], notes: Sequence[str] = ()) -> Context:
    return {"name": heading, "here": f"/{path}", "heading": heading, "lead": lead, "notes": notes, "tables": tables}

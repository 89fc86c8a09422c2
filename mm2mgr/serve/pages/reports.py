"""The pages that are a sentence and tables: losses, watchdog, rebalances, failover, findings, changes, plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from mm2mgr.failover.check import WORDS
from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.operations.automatic_rebalance import LastRound
from mm2mgr.operations.estate_view import PARTS, EstateView, PartState, Survey
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.lint import LintReport
from mm2mgr.operations.watch import WatchdogView
from mm2mgr.output.history_text import action_line, history_table, not_watched
from mm2mgr.output.lint_text import counts_text, finding_table
from mm2mgr.output.status_text import loss_cells
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.changes import Plan
from mm2mgr.serve.pages.base import MOST_ROWS, Context, change_text, table_page, utc
from mm2mgr.text import few, number_of, span_text

Part = TypeVar("Part")


def losses(view: EstateView) -> Context:
    """Return the losses that are not acknowledged."""
    rows = [loss_cells(loss) for loss in view.look.status.losses] if view.look else []
    columns = ("id", "flow", "partition", "offsets", "records", "first seen", "what happened")
    none = "No loss is open." if view.look else "No loss is known yet."
    lead = "Records that may never arrive. Acknowledge one with mm2mgr losses --ack ID." if rows else none
    return table_page("losses", "Losses", lead, [Table(columns, rows, right=("records",))] if rows else [])


def watchdog(view: WatchdogView | None) -> Context:
    """Return what the watchdog of this process did; None where none runs."""
    if view is None:
        lead = "No watchdog runs in this process: mm2mgr serve --with watch, or mm2mgr watch."
        return table_page("watchdog", "Watchdog", lead, [])
    if view.last is None:
        return table_page("watchdog", "Watchdog", "The watchdog has not looked yet.", [])
    rows = [(utc(at), action_line(action)) for at, action in reversed(view.actions)]
    failed = number_of(view.failed_restarts, "restart")
    counts = f"Since the start: {number_of(view.restarts, 'restart')}, and {failed} that Connect did not carry out."
    dry_run = "A dry run: nothing is restarted. " if view.is_dry_run else ""
    lead = f"{dry_run}{counts} Looked last at {utc(view.last.taken_at)}."
    tables = [Table(("time", "what it saw and did"), rows)] if rows else []
    return table_page("watchdog", "Watchdog", lead, tables, list(not_watched(view.last)))


def rebalance(estate: EstateView) -> Context:
    """Return what is rebalanced without a person, what holds it, and the newest rounds."""
    heading, view = "Rebalances", estate.rebalances
    standby = standby_text(estate.parts.get("rebalance"))
    if view is None:
        lead = "Nothing is rebalanced by this process: mm2mgr serve --with rebalance, or mm2mgr reconcile --rebalance."
        return table_page("rebalance", heading, lead, [])
    if view.last is None:
        lead = f"No flow was judged by this process: {standby}." if standby else "No flow was judged yet."
        return table_page("rebalance", heading, lead, [])
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
    return table_page("rebalance", heading, f"Looked last at {utc(view.last.taken_at)}.", tables, notes)


def failover(now: float, view: EstateView) -> Context:
    """Return whether pairs that declare it could fail over, as the newest checks say, and the groups of those that this
    process checked."""
    heading, states = "Failover", view.look.status.failover if view.look else {}
    if not states:
        reason = (
            "No pair declares `failover`, or the store could not be read." if view.look else "No check is known yet."
        )
        return table_page("failover", heading, reason, [], list(_failover_notes(view)))
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
    return table_page("failover", heading, lead, tables, list(_failover_notes(view)))


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


def parts(now: float, view: EstateView) -> Context:
    """Return what runs in this process beside looking, when each part last had a round, and what came of it."""
    columns = ("part", "here", "last round", "next round", "outcome", "last failure", "since the start")
    off = ("off", *("-",) * 4)
    rows = [
        (name, *_part_row(now, view.parts[name], _counts(view, name)))
        if name in view.parts
        else (name, *off, f"mm2mgr serve --with {name}")
        for name in PARTS
    ]
    lead = "What this process does beside looking at the estate; other processes may do the rest."
    return table_page("parts", "Parts", lead, [Table(columns, rows)])


def _part_row(now: float, part: PartState, counts: str) -> tuple[str, ...]:
    """Return the cells of a part that is on; `leader` and `standby` are those with a lease."""
    if part.ended_at is None:
        return ("on", "none yet", "now", "-", "-", "-")
    role = "standby" if part.outcome == "standby" else "leader" if part.has_lease else "on"
    failed = "-" if part.failed_at is None else f"{_ago(now, part.failed_at)}: {part.failure}"
    due = "-" if part.next_at is None else "now" if part.next_at <= now else f"in {span_text(part.next_at - now)}"
    return (role, _ago(now, part.ended_at), due, standby_text(part) or part.outcome, failed, counts)


def standby_text(part: PartState | None) -> str:
    """Say what another process does, and who that is; empty for nothing."""
    if part is None or not part.standby:
        return ""
    leaders = "; ".join(f"{leader} leads on {alias}" for alias, leader in part.leaders.items())
    return f"standby: another process does {few(part.standby)}" + (f" ({leaders})" if leaders else "")


def _counts(view: EstateView, name: str) -> str:
    dog, reconciles, balance, samples, part = view.watchdog, view.reconciles, view.rebalances, view.samples, view.parts
    match name:
        case "watch" if dog:
            return f"{number_of(dog.restarts, 'restart')}, {dog.failed_restarts} not carried out"
        case "reconcile" if reconciles:
            rounds = ", ".join(f"{count} {outcome}" for outcome, count in sorted(reconciles.rounds.items()))
            return f"rounds: {rounds or 'none'}; {number_of(reconciles.written, 'connector')} written"
        case "rebalance" if balance and balance.done:
            return f"the newest {number_of(len(balance.done), 'rebalance')} on its page"
        case "sample" if samples:
            return f"{number_of(samples.samples, 'sample')} in {number_of(samples.rounds, 'round')}"
    return number_of(part[name].rounds, "round")


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
    return lead, notes, [history_table(report.entries[: -MOST_ROWS - 1 : -1])] if report.entries else []


def plan(survey: Survey | None) -> Context:
    """Return what `apply` would do; nothing can be written from here."""
    return _survey_page("plan", "Plan", survey, lambda survey: survey.plan, _plan)


def _plan(plan: Plan) -> tuple[str, list[str], list[Table]]:
    words = {"no-op": "unchanged", "blocked": "blocked"}
    counts = (f"{count} {words.get(action, f'to {action}')}" for action, count in plan.counts().items())
    lead = f"{', '.join(counts)}."
    if any(change.action not in {"no-op", "blocked"} for change in plan.changes):
        lead += " To write it: mm2mgr plan, then mm2mgr apply."
    notes = [f"{cluster.connect}: {cluster.error}" for cluster in plan.clusters if cluster.error]
    rows = [
        (change.connect, change.connector, change.action, change_text(change))
        for change in plan.changes
        if change.action != "no-op"
    ]
    notes += [f"{number_of(len(rows) - MOST_ROWS, 'change')} more: mm2mgr plan"] if len(rows) > MOST_ROWS else []
    table = Table(("Connect cluster", "connector", "action", "what"), rows[:MOST_ROWS])
    return lead, notes, [table] if rows else []


def _survey_page(
    path: str,
    heading: str,
    survey: Survey | None,
    read_part: Callable[[Survey], Part | str],
    page: Callable[[Part], tuple[str, list[str], list[Table]]],
) -> Context:
    if survey is None:
        return table_page(path, heading, "Not made yet: lint, plan and history are read at a slower pace.", [])
    part = read_part(survey)
    if isinstance(part, str):
        return table_page(path, heading, f"It could not be made: {part}", [])
    lead, notes, tables = page(part)
    return table_page(path, heading, lead, tables, [f"{heading} as of {utc(survey.taken_at)}.", *notes])

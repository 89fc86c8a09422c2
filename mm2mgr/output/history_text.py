"""What was changed, and by whom: the history, drift, and the rounds of `reconcile` and `watch`, as text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.output.console import STYLES, say, say_table, talk
from mm2mgr.output.tables import Table
from mm2mgr.plan.changes import Change
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems.connectors import Failed
from mm2mgr.problems.watchdog import WatchAction
from mm2mgr.text import few, fit_text, number_of, one_line, rate_text, visible

if TYPE_CHECKING:
    from mm2mgr.operations.history import HistoryReport
    from mm2mgr.operations.reconcile import ReconcileRound
    from mm2mgr.operations.watch import WatchRound
    from mm2mgr.plan.drift import DriftReport
    from mm2mgr.problems.kind import ProblemSubject

_OUTCOMES = {**STYLES, "begun": "yellow", "inconclusive": "yellow", "done": "green"}
_LONGEST = 100


def say_history(report: HistoryReport, *, full: bool) -> None:
    """Print a line per change, newest last; `full`: below it the keys from what to what, and the error."""
    if report.entries:
        say_table(history_table(report.entries, full=full))
    else:
        say("No change is recorded.")
    _say_reasons("history not read for", report.unread)


def history_table(entries: Sequence[HistoryEntry], *, full: bool = False) -> Table:
    """Return a row per change; `full`: with the keys and the error below it."""
    rows = [
        (
            entry.when[:19].replace("T", " "),
            visible(entry.who),
            entry.commit,
            visible(entry.command),
            f"{entry.connect}/{entry.connector}",
            _change_text(entry),
            entry.outcome,
            visible(entry.reason),
        )
        for entry in entries
    ]
    return Table(
        ("time (UTC)", "who", "commit", "command", "connector", "change", "outcome", "reason"),
        rows,
        drop=("commit", "command", "reason"),
        wrap=("reason", "who"),
        styles={"outcome": _OUTCOMES},
        below=[_details(entry) if full else [] for entry in entries],
    )


def _change_text(entry: HistoryEntry) -> str:
    parts = [entry.action]
    if entry.keys:
        parts.append(f"({number_of(len(entry.keys), 'key')})")
    if entry.state:
        parts.append(f"{entry.state.get('before', '')} -> {entry.state['after']}".strip())
    return " ".join(part for part in parts if part)


def _details(entry: HistoryEntry) -> list[str]:
    lines = [f"  {key['key']}: {_short(key['before'])} -> {_short(key['after'])}" for key in entry.keys]
    return lines + ([f"  error: {entry.error}"] if entry.error else [])


def say_drift(report: DriftReport) -> None:
    """Print each connector that was changed by hand, with its keys from what was applied to what is there."""
    for drift in report.drifts:
        deleted = "  deleted" if drift.deleted else ""
        unowned = "  its owner mark is gone: mm2mgr no longer touches it" if drift.owner_mark == "gone" else ""
        against = _compared_with(drift.compared_with)
        say(f"{drift.connect}/{drift.connector}{deleted}{unowned}{against}", style="yellow")
        if drift.state:
            say(f"  state: {drift.state[0]} -> {drift.state[1]}")
        for key in drift.keys:
            say(f"  {_key_text(key)}")
    _say_reasons("compared with the tree, which finds no deleted connector, on", report.without_history)
    for quota in report.quotas:
        before, now = map(_rate_text, (quota.applied, quota.live))
        change = f"{before} -> {now} on each broker{_compared_with(quota.compared_with)}"
        say(f"{quota.kafka}: quota of {quota.quota}: {change}", style="yellow")
    for connect, reason in report.failed.items():
        say(f"! Connect cluster {connect}: {reason}", style=STYLES["unknown"])
    for kafka, reason in report.failed_quotas.items():
        say(f"! client quotas on Kafka cluster {kafka}: {reason}", style=STYLES["unknown"])
    counts = {"connector": len(report.drifts), "client quota": len(report.quotas)}
    changed = " and ".join(number_of(count, noun) for noun, count in counts.items() if count)
    say(f"Drift: {changed} changed by hand" if changed else "Drift: none", style="bold")


def _compared_with(source: str) -> str:
    return "" if source == "history" else "  (compared with the tree)"


def _key_text(change: KeyChange) -> str:
    return f"{change.key}: {_short(change.masked_before)} -> {_short(change.masked_after)}"


def _rate_text(bytes_per_second: float | None) -> str:
    return "(not set)" if bytes_per_second is None else rate_text(bytes_per_second)


def _short(value: str | None) -> str:
    return "(not set)" if value is None else fit_text(visible(value), _LONGEST)


def _say_reasons(sentence: str, reasons: Mapping[str, str]) -> None:
    by_reason = sorted(reasons.items(), key=itemgetter(1, 0))
    for reason, names in groupby(by_reason, key=itemgetter(1)):
        talk(f"{sentence} Connect cluster {few([name for name, _ in names])}: {reason}", style="yellow")


def say_unrecorded(unrecorded: Mapping[str, str]) -> None:
    """Say of which Connect clusters the history was not written, once for each reason."""
    _say_reasons("history not written for", unrecorded)


# --- reconcile --------------------------------------------------------------------------------------------------------


def say_round(done: ReconcileRound, printed: str) -> str:
    """Print what a round did, in one line, and below it what went wrong; nothing where that was `printed` before.

    Returns what is printed.
    """
    applied, counts = done.applied, done.plan.counts() if done.plan else {}
    lines = [done.error] if done.error else []
    unread = {part.connect: part.error for part in done.plan.clusters if part.error} if done.plan else {}
    lines += [f"Connect cluster {name}: {reason}" for name, reason in {**unread, **done.without_lease}.items()]
    if applied:
        lines += [f"{result.connect}/{result.connector}: {result.error}" for result in applied.results if result.error]
        lines += [f"{halted.connect} halted: {halted.why}" for halted in applied.halted]
        lines += _blocked_lines([change for change in applied.plan.changes if change.action == "blocked"])
    elif done.plan:
        lines += [f"{change.connect}: {change.action} {change.connector}" for change in done.plan.writes]
    lines += [f"nothing is deleted: {done.deletes_held}"] if done.deletes_held else []
    lines += [done.unlogged] if done.unlogged else []
    parts: list[str] = [done.outcome]
    if done.standby:
        parts.append(f"another process holds the lease for {few(done.standby)}")
    if done.resting:
        parts.append(f"left alone after failures: {few(list(done.resting))}")
    parts += [f"{counts[action]} to {action}" for action in ("create", "update", "delete") if counts.get(action)]
    if counts.get("blocked"):
        parts.append(f"{counts['blocked']} blocked")
    text = "\n".join(["; ".join(parts), *lines])
    if text != printed or (applied and applied.results):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} round {done.number}: {'; '.join(parts)}", _OUTCOMES.get(parts[0]))
        for line in lines:
            say(f"  {line}")
        if applied:
            say_unrecorded(applied.unrecorded)
    return text


def _blocked_lines(changes: Sequence[Change]) -> Iterator[str]:
    """Yield why connectors are blocked, and what to do, once for those that have both in common."""
    names: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        names.setdefault((change.reason, change.remedy), []).append(change.connector)
    for (reason, remedy), blocked in names.items():
        yield f"blocked: {few(blocked)}: {reason}" + (f"; fix: {remedy}" if remedy else "")


# --- watch ------------------------------------------------------------------------------------------------------------


def say_watch_round(done: WatchRound, printed: str) -> str:
    """Print what is new in a look, and what it could not look at, unless that was `printed` before; returns the
    latter."""
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done.taken_at))
    for action in done.actions:
        say(f"{clock} {action_line(action)}", style=_style(action))
    for connect, reason in done.unrecorded.items():
        talk(f"not in the history of Connect cluster {connect}: {reason}", style="yellow")
    if done.unlogged:
        talk(done.unlogged, style="yellow")
    text = "\n".join(not_watched(done))
    if text != printed:
        for line in text.splitlines() or ["all Connect clusters are watched again"]:
            say(f"{clock} {line}", style=STYLES["unknown"] if text else None)
    return text


def action_line(action: WatchAction) -> str:
    """Return one action as a line: what was done, to what, and why."""
    problem, number = action.problem, action.number
    part = _part(problem.subject)
    trace = problem.evidence.trace_summary if isinstance(problem.evidence, Failed) else ""
    failure = f"{part} FAILED ({problem.cause})"
    match action.action:
        case "recovered":
            return f"{part} runs again"
        case "wait":
            return f"{failure}: restart in {action.after_seconds:.0f} s unless it runs again: {trace}"
        case "restart" if action.error:
            return f"{failure}: restart {number} was not carried out: {action.error}"
        case "restart":
            return f"{failure}: {'would be restarted' if action.dry_run else 'restarted'} ({number}): {trace}"
    return f"{failure}: {_REASONS[action.reason].format(count=number_of(number, 'restart'))}: {trace}"


_REASONS: Mapping[str, str] = {
    "not-retryable": "not restarted, since a restart does not help; fix the cause, then run mm2mgr restart --failed",
    "breaker": "not restarted any more after {count}, until it is seen to run; "
    "fix the cause, then run mm2mgr restart --failed",
    "frozen": "not restarted, since the watchdog is frozen",
}


def _part(subject: ProblemSubject) -> str:
    name = subject.flow or f"{subject.connect}/{subject.connector}"
    return f"{name}: task {subject.tasks[0]}" if subject.tasks else f"{name}: connector"


def _style(action: WatchAction) -> str | None:
    if action.action == "tell" or action.error:
        return STYLES["problem"]
    return STYLES["ok"] if action.action == "recovered" else None


def not_watched(done: WatchRound) -> Iterator[str]:
    """Yield why Connect clusters are not watched, and whether nothing is restarted."""
    if done.error:
        yield one_line(done.error)
    if done.standby:
        yield f"another process watches Connect cluster {few(done.standby)}"
    missing = {**dict.fromkeys(done.resting, "could not be read, and is asked again later"), **done.unread}
    for connect, reason in sorted({**missing, **done.without_lease}.items()):
        yield f"Connect cluster {connect} is not watched: {one_line(reason)}"
    if done.frozen:
        yield "frozen: nothing is restarted"

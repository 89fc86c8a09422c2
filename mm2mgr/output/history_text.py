"""What was changed, and by whom: the history, drift, and the rounds of `reconcile` and `watch`, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from mm2mgr.output.automatic_rebalance_text import rebalance_key, rebalance_lines
from mm2mgr.output.console import STYLES, say, say_table, talk
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.history import RESTARTED, TASK
from mm2mgr.problems.connectors import Failed
from mm2mgr.text import few, fit_text, number_of, one_line, rate_text, span_text, visible, without_cluster

if TYPE_CHECKING:
    from mm2mgr.apply.verbs import StateChange
    from mm2mgr.comparison.differences import KeyChange
    from mm2mgr.operations.history import HistoryReport, SnapshotTaken
    from mm2mgr.operations.pause import FlowOffsets, ResetOffsets, Turned
    from mm2mgr.operations.plan import ReconcileRound
    from mm2mgr.operations.watch import WatchRound
    from mm2mgr.operations.who import FlowTopics, Mirroring, TakenTopic, TopicRoutes
    from mm2mgr.output.console import PartLog
    from mm2mgr.plan.drift import DriftReport
    from mm2mgr.plan.history import HistoryEntry
    from mm2mgr.plan.resets import FlowReset
    from mm2mgr.problems.kind import ProblemSubject
    from mm2mgr.problems.watchdog import WatchAction

_OUTCOMES = {**STYLES, "begun": "yellow", "inconclusive": "yellow", "done": "green"}
_LONGEST = 100
_TASKS_NAMED = 6


def say_history(report: HistoryReport, *, full: bool) -> None:
    """Print a line per change, newest last; `full`: below it the keys from what to what, and the error."""
    if report.entries:
        say_table(history_table(report.entries, full=full))
    else:
        say("No change is recorded.")
    _say_reasons("history not read for", report.unread)


def history_table(entries: Sequence[HistoryEntry], *, full: bool = False) -> Table:
    """Return a row per change; `full`: with where it ran, the keys and the error below it."""
    has_place = not full and any(run_place(entry) for entry in entries)
    rows = [
        {
            "time (UTC)": entry.when[:19].replace("T", " "),
            "who": visible(entry.who),
            **({"run as": run_place(entry)} if has_place else {}),
            "commit": entry.commit,
            "command": visible(entry.command),
            "connector": f"{entry.connect}/{entry.connector}",
            "change": recorded_change(entry),
            "outcome": entry.outcome,
            "reason": visible(entry.reason),
        }
        for entry in entries
    ]
    return Table(
        list(rows[0]) if rows else (),
        [list(row.values()) for row in rows],
        drop=("run as", "commit", "command", "reason"),
        wrap=("reason", "who"),
        styles={"outcome": _OUTCOMES},
        below=[entry_details(entry) if full else [] for entry in entries],
    )


def recorded_change(entry: HistoryEntry) -> str:
    """Return what was changed in some words: the action with its keys, a restart with its tasks, a state."""
    parts = [entry.action]
    if restarts := [key["key"] for key in entry.keys if key["after"] == RESTARTED]:
        parts = [f"restart of {_parts_text(restarts)}"]
    elif entry.keys:
        parts.append(f"({number_of(len(entry.keys), 'key')})")
    if entry.state and not (restarts and entry.state.get("before") == entry.state["after"]):
        parts.append(f"{entry.state.get('before', '')} -> {entry.state['after']}".strip())
    return " ".join(part for part in parts if part)


def is_restart(entry: HistoryEntry) -> bool:
    """Tell whether parts of a connector were restarted, and nothing was written to it."""
    return any(key["after"] == RESTARTED for key in entry.keys)


def _parts_text(names: Sequence[str]) -> str:
    """Return what of a connector was restarted: the connector itself, tasks by number, or both."""
    tasks = [name.removeprefix(TASK) for name in names if name.startswith(TASK)]
    numbers = few(tasks, _TASKS_NAMED, between=", ") if tasks else ""
    whole = [name for name in names if not name.startswith(TASK)]
    return " and ".join(filter(None, [*map(visible, whole), visible(f"task {numbers}") if numbers else ""]))


def run_place(entry: HistoryEntry) -> str:
    """Return the system's user and the host that a command ran on; empty for entries that do not say it."""
    return "@".join(visible(part) for part in (entry.user, entry.host) if part)


def entry_details(entry: HistoryEntry) -> list[str]:
    """Return lines about a change: where it ran, each key from what to what, and the error."""
    place = run_place(entry)
    lines = [f"  run as {place}"] if place else []
    lines += [f"  {key['key']}: {_short(key['before'])} -> {_short(key['after'])}" for key in entry.keys]
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
    unread = [number_of(len(report.failed), "Connect cluster")] if report.failed else []
    unread += [f"quotas of {number_of(len(report.failed_quotas), 'Kafka cluster')}"] if report.failed_quotas else []
    unknown = " and ".join(unread)
    seen_drift = f"{changed} changed by hand" if changed else "none seen" if unknown else "none"
    say(f"Drift: {seen_drift}{f'; {unknown} could not be read' if unknown else ''}", style="bold")


def _compared_with(source: str) -> str:
    return "" if source == "history" else "  (compared with the tree)"


def _key_text(change: KeyChange) -> str:
    return f"{change.key}: {_short(change.masked_before)} -> {_short(change.masked_after)}"


def _rate_text(bytes_per_second: float | None) -> str:
    return "(not set)" if bytes_per_second is None else rate_text(bytes_per_second)


def _short(value: str | None) -> str:
    return "(not set)" if value is None else fit_text(visible(value), _LONGEST)


def _say_reasons(sentence: str, reasons: Mapping[str, str]) -> None:
    for line in _reason_lines(sentence, reasons):
        talk(line, style="yellow")


def _reason_lines(sentence: str, reasons: Mapping[str, str]) -> Iterator[str]:
    by_reason = sorted(reasons.items(), key=itemgetter(1, 0))
    for reason, names in groupby(by_reason, key=itemgetter(1)):
        yield f"{sentence} Connect cluster {few([name for name, _ in names])}: {reason}"


def unrecorded_lines(unrecorded: Mapping[str, str]) -> Iterator[str]:
    """Yield of which Connect clusters the history was not written, once for each reason."""
    return _reason_lines("history not written for", unrecorded)


def say_unrecorded(unrecorded: Mapping[str, str]) -> None:
    """Print the same on stderr."""
    for line in unrecorded_lines(unrecorded):
        talk(line, style="yellow")


# --- reconcile --------------------------------------------------------------------------------------------------------


def say_round(done: ReconcileRound, printed: str, log: PartLog) -> str:
    """Print what a round did, in a line, and what went wrong, as far as it was not `printed` before.

    Returns what is known now. Failed writes are left out: they were printed as they came.
    """
    applied, counts = done.applied, done.plan.counts() if done.plan else {}
    lines = [reason for reason in done.reasons if reason not in done.failed_writes]
    if done.plan and not applied:
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
    rebalance = done.rebalance
    text = "\n".join(["; ".join(parts), *map(one_line, lines), rebalance_key(rebalance) if rebalance else ""])
    if text != printed or (applied and applied.results) or (rebalance and rebalance.applied):
        log("reconcile", f"round {done.number}: {'; '.join(parts)}", _OUTCOMES.get(parts[0]))
        for line in map(one_line, lines):
            if line not in printed.splitlines():
                log("reconcile", line, STYLES["unknown"] if done.outcome == "failed" else None)
        if rebalance and (rebalance.applied or rebalance_key(rebalance) not in printed.splitlines()):
            for line in rebalance_lines(rebalance):
                log("rebalance", line)
        for line in unrecorded_lines(applied.unrecorded) if applied else ():
            log("reconcile", line, "yellow")
    return text


# --- watch ------------------------------------------------------------------------------------------------------------


_FROZEN = "frozen: nothing is restarted"


def say_watch_round(done: WatchRound, printed: str, log: PartLog) -> str:
    """Print what is new in a look, and what it could not look at, as far as that was not `printed` before; returns the
    latter."""

    def log_line(text: str, style: str | None = STYLES["unknown"]) -> None:
        log("watch", text, style, done.taken_at)

    for action in done.actions:
        log_line(action_line(action), _style(action))
    for line in unrecorded_lines(done.unrecorded):
        log_line(line)
    if done.unlogged:
        log_line(done.unlogged)
    before = printed.splitlines()
    lines = list(_still_not_watched(done, before))
    for line in lines:
        if line not in before:
            log_line(line)
    if _FROZEN in before and _FROZEN not in lines:
        log_line("no longer frozen: tasks are restarted again", None)
    if set(before) - {_FROZEN} and not set(lines) - {_FROZEN}:
        log_line("all Connect clusters are watched again", None)
    return "\n".join(lines)


def _still_not_watched(done: WatchRound, printed: Sequence[str]) -> Iterator[str]:
    """Yield the lines of `not_watched`; a cluster that rests between two tries keeps its line, with the reason."""
    beginnings = [_not_watched_line(connect, "") for connect in done.resting]
    earlier = {line.partition(": ")[0]: line for line in printed if line.startswith(tuple(beginnings))}
    for line in not_watched(done):
        yield earlier.get(line.partition(": ")[0], line)


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
            coming = "restart" if problem.retryable else "the stock class"
            return f"{failure}: {coming} in {span_text(action.after_seconds or 0.0)} unless it runs again: {trace}"
        case "restart" | "stock-class" if action.error:
            attempt = f"restart {number}" if action.action == "restart" else f"the stock class ({number})"
            return f"{failure}: {attempt} was not carried out: {action.error}"
        case "stock-class":
            verb = "would get" if action.dry_run else "has"
            return (
                f"{failure}: {verb} the stock class now ({number}) and goes on from the stored offsets; put the jar of"
                f" mm2mgr plugin write onto every worker, then run mm2mgr apply: {trace}"
            )
        case "restart":
            return f"{failure}: {'would be restarted' if action.dry_run else 'restarted'} ({number}): {trace}"
    command = f"mm2mgr restart --failed {shlex.quote(_name(problem.subject))}"
    return f"{failure}: {_REASONS[action.reason].format(count=number_of(number, 'restart'), command=command)}: {trace}"


_REASONS: Mapping[str, str] = {
    "not-retryable": "not restarted, since a restart does not help; fix the cause, then run {command}",
    "breaker": "not restarted any more after {count}, until it is seen to run; fix the cause, then run {command}",
    "frozen": "not restarted, since the watchdog is frozen",
}


def _name(subject: ProblemSubject) -> str:
    return subject.flow or f"{subject.connect}/{subject.connector}"


def _part(subject: ProblemSubject) -> str:
    name = _name(subject)
    if len(subject.tasks) > 1:
        return f"{name}: {few([f'task {task}' for task in subject.tasks])}"
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
        yield _not_watched_line(connect, without_cluster(one_line(reason), connect))
    if done.frozen:
        yield _FROZEN


def _not_watched_line(connect: str, reason: str) -> str:
    return f"Connect cluster {connect} is not watched: {reason}"


# --- verbs ------------------------------------------------------------------------------------------------------------


_VERDICTS = {"ok": None, "failed": STYLES["failed"], "inconclusive": "yellow"}


def say_turns(turns: Sequence[StateChange]) -> None:
    """Print on stderr what is decided for each connector."""
    for turn in turns:
        if turn.action == "write":
            talk(f"{turn.name}: {turn.before or 'no status yet'}{f' ({turn.detail})' if turn.detail else ''}", None)
        if turn.warning and turn.action in {"write", "none"}:
            talk(f"warning: {turn.name}: {turn.warning}", STYLES["warning"])


def say_sent(turn: StateChange, wait_seconds: float) -> None:
    """Print on stderr what became of one request."""
    if turn.written:
        talk(f"{turn.name}: sent{', waiting' if wait_seconds else ''}")


def say_turned(turned: Turned) -> None:
    """Print one line per connector, and the count."""
    for turn in turned.turns:
        if turn.action in {"refused", "failed"}:
            say(f"! {turn.name}: {turn.action}: {one_line(turn.detail)}", STYLES["failed"])
        else:
            shown = turn.state or ("sent, not waited for" if turn.written else "")
            parts = [shown, turn.detail if turn.action == "none" else "", turn.doubt]
            sign = "=" if turn.action == "none" else "~"
            say(f"{sign} {turn.name}: {'; '.join(filter(None, parts))}", _VERDICTS.get(turn.verdict))
        if turn.hint:
            say(f"    {turn.hint}")
    say_unrecorded(turned.unrecorded)
    sent = sum(turn.written for turn in turned.turns)
    bad = sum(turn.action in {"refused", "failed"} or turn.verdict == "failed" for turn in turned.turns)
    unsure = sum(turn.verdict == "inconclusive" for turn in turned.turns)
    counts = [f"{turned.verb}: {sent} of {number_of(len(turned.turns), 'connector')} sent a request"]
    counts += [f"{bad} failed or refused"] if bad else []
    counts += [f"{unsure} not seen in that state in time"] if unsure else []
    say("; ".join(counts), style="bold")


# --- offsets ----------------------------------------------------------------------------------------------------------


def say_offsets(flows: Sequence[FlowOffsets]) -> None:
    """Print the partitions of each flow, and what is stored for partitions that its source does not have."""
    for flow in flows:
        lag = "unknown" if flow.lag_records is None else str(flow.lag_records)
        exact = "" if flow.exact else "; stored offsets are exact once it is STOPPED"
        say(f"{flow.flow}: {flow.state or 'unknown'}, lag {lag} records{exact}", "bold")
        rows = [
            (str(lag.partition), or_dash(lag.stored), str(lag.log.start), str(lag.log.end), str(lag.lag_records))
            for lag in flow.lag.partitions
        ]
        columns = ("partition", "stored offset", "log start", "log end", "lag (records)")
        say_table(Table(columns, rows, right=columns[1:]))
        for partition, offset in sorted(flow.others.items()):
            say(f"  {partition}: stored offset {offset} of a partition that the flow does not mirror, or that is gone")
        if flow.unknown:
            say(f"! {flow.flow}: {one_line(flow.unknown)}", STYLES["unknown"])


_PARTITIONS_SHOWN = 20


def say_planned_resets(flows: Sequence[FlowReset]) -> None:
    """Print on stderr how many records are mirrored again or skipped, by topic, and below each topic from which stored
    offset to which its partitions go."""
    for flow in flows:
        talk(f"{flow.flow.id} ({flow.flow.connect.name}/{flow.connector}):", None)
        for topic, counts in sorted(flow.topics.items()):
            moved = [f"{number_of(counts['again'], 'record')} mirrored again"] if counts["again"] else []
            moved += [f"{number_of(counts['skipped'], 'record')} never mirrored"] if counts["skipped"] else []
            where = f"{number_of(counts['partitions'], 'partition')} written" if counts["partitions"] else "unchanged"
            talk(f"  {topic}: {', '.join([*moved, where])}", "yellow" if moved else None)
            changed = [reset for reset in flow.changes if reset.partition.topic == topic]
            for reset in changed[:_PARTITIONS_SHOWN]:
                talk(f"    {reset.partition}: {_place_text(reset.stored)} -> {_place_text(reset.wanted)}", None)
            if (more := len(changed) - _PARTITIONS_SHOWN) > 0:
                talk(f"    and {number_of(more, 'partition')} more; the history has all of them", None)
        for partitions, text in (
            (flow.gaps.uncommitted, "the group has no offset there: left as it is"),
            (flow.gaps.beyond, "the group's offset is beyond the end of the log: left as it is"),
            (flow.gaps.expired, "records after the group's offset are gone: the first one that is left comes next"),
        ):
            if partitions:
                talk(f"  {few([str(partition) for partition in partitions])}: {text}", "yellow")
    counts_of_all = [counts for flow in flows for counts in flow.topics.values()]
    again, skipped = (sum(counts[kind] for counts in counts_of_all) for kind in ("again", "skipped"))
    parts = [
        f"{number_of(again, 'record')} {'is' if again == 1 else 'are'} mirrored again"
        if again
        else "nothing is mirrored again"
    ]
    parts += [
        f"{number_of(skipped, 'record')} {'is' if skipped == 1 else 'are'} never mirrored"
        if skipped
        else "nothing is skipped"
    ]
    talk(f"Data: {'; '.join(parts)}", "bold")


def _place_text(offset: int | None) -> str:
    return "nothing stored" if offset is None else f"offset {offset}"


def say_resets(done: ResetOffsets) -> None:
    """Print what was written, and what to do next."""
    for reset in done.flows:
        name = f"{reset.flow.connect.name}/{reset.connector}"
        if reset.error:
            say(f"! {name}: {one_line(reset.error.message)}", STYLES["failed"])
            if reset.error.hint:
                say(f"    {reset.error.hint}")
        elif reset.written:
            count = number_of(len(reset.changes), "partition")
            say(f"~ {name}: offsets of {count} written and read back; mm2mgr resume '{reset.flow.id}' starts it again")
        else:
            say(f"= {name}: nothing to write")
    say_unrecorded(done.unrecorded)


# --- who --------------------------------------------------------------------------------------------------------------


_STARTS = 3


def say_routes(report: TopicRoutes) -> None:
    """Print that no cluster has the topic and what would mirror it, else each route in one line; then the connectors on
    them, then those that do not mirror the topic, with the reason."""
    if report.missing:
        _say_missing(report)
    for route in report.routes:
        first = _stop(route[0].source, route[0].topic, None)
        line = " → ".join([first, *(_stop(hop.target, hop.becomes, hop.partitions) for hop in route)])
        say(f"  {line}" if report.missing else line, style=None if report.missing else "bold")
    if report.is_endless:
        say(
            "! Longer routes are cut: connectors send the topic round. `mm2mgr lint` finds such loops.",
            style=STYLES["warning"],
        )
    mirroring = [hop for hop in report.connectors if hop.takes]
    others = [hop for hop in report.connectors if not hop.takes]
    if not mirroring and not report.missing:
        nothing = "Nothing that is known" if report.unread else "Nothing"
        say(f"{nothing} mirrors {visible(report.topic)}.", style="bold")
    _say_connectors(mirroring, "name on target")
    if others:
        say()
        say("Not mirrored by, although they could:" if mirroring else "Named, but not mirrored, by:")
        _say_connectors(others, "")
    for connect, reason in report.unread.items():
        say(f"! Connect cluster {connect}: {reason}", style=STYLES["unknown"])
    for reason in report.unlisted.values():
        say(f"! whether it is there is not known: {reason}", style=STYLES["unknown"])


def _say_missing(report: TopicRoutes) -> None:
    """Print the names that are there, then which flows and other connectors would mirror the topic, and what to do."""
    topic, answering = visible(report.topic), "of those that answer " if report.unlisted else ""
    near = [visible(name) for name in report.nearest]
    nearest = f"; the nearest: {few(near)}" if near else ""
    say(f"No cluster {answering}has a topic {topic}{nearest}.", style=STYLES["warning"])
    if near:
        say(f"  If that is meant: mm2mgr who {shlex.quote(report.nearest[0])}")
    takers: dict[str, list[str]] = {}
    for first in dict.fromkeys(route[0] for route in report.routes):
        start = f"{visible(first.source)} has a topic {visible(first.topic)}"
        takers.setdefault(start, []).extend(first.flows or [visible(f"{first.connect}/{first.connector}")])
    for start, names in list(takers.items())[:_STARTS]:
        say(f"Once {start}, {few(list(dict.fromkeys(names)))} would mirror it.")
    if (more := len(takers) - _STARTS) > 0:
        say(f"The same holds for {number_of(more, 'more cluster')}: see below.")
    if takers:
        say("To have it mirrored, create it there: the tree needs no change. It would go:")
    else:
        scope = " that is known" if report.unread else ""
        say(f"No flow{scope} would select it. To have it mirrored, create it, and add it to `topics` of a flow.")


def _stop(cluster: str, topic: str | None, partitions: int | None) -> str:
    missing = " (not there yet)" if partitions == 0 else ""
    return f"{visible(cluster)}:{'?' if topic is None else visible(topic)}{missing}"


def _say_connectors(hops: Sequence[Mirroring], name: str) -> None:
    rows = [
        (
            _stop(hop.source, hop.topic, None),
            visible(hop.target),
            *([visible(hop.becomes or "?")] if name else []),
            visible(f"{hop.connect}/{hop.connector}"),
            hop.state,
            "this tree" if hop.is_ours else visible(hop.owner or "nobody"),
            ", ".join(hop.flows),
        )
        for hop in hops
    ]
    columns = ("topic", "to", *([name] if name else []), "connector", "state", "owner", "flows")
    below = [[hop.reason] if hop.reason else [] for hop in hops]
    if rows:
        say_table(Table(columns, rows, drop=("flows", "owner"), wrap=("flows",), below=below, indent=2))


def say_topics(flows: Sequence[FlowTopics]) -> None:
    """Print a table of each flow's topics, and how many it takes."""
    for flow in flows:
        taken = [topic for topic in flow.topics if topic.is_taken]
        partitions = sum(topic.partitions for topic in taken)
        count = f"{number_of(len(taken), 'topic')} with {number_of(partitions, 'partition')}"
        say(f"{flow.flow}: {flow.error or count}", style=STYLES["unknown"] if flow.error else "bold")
        reasons = any(topic.reason for topic in flow.topics)
        rows = [
            [
                visible(topic.topic),
                str(topic.partitions),
                visible(topic.becomes or "–") if topic.is_taken else "–",
                _there(topic),
                *([topic.reason] if reasons else []),
            ]
            for topic in flow.topics
        ]
        last = ["not taken because"] if reasons else []
        columns = ["topic", "partitions", f"name on {flow.target}", "there", *last]
        if rows:
            say_table(Table(columns, rows, right=("partitions",), wrap=last, indent=2))
        for note in flow.notes:
            say(f"  ! {note}", style=STYLES["unknown"])


def _there(topic: TakenTopic) -> str:
    if not topic.is_taken:
        return "–"
    if topic.arrived is None:
        return "?"
    if not topic.arrived:
        return "not yet"
    return "yes" if topic.arrived == topic.partitions else f"with {number_of(topic.arrived, 'partition')}"


# --- snapshot ---------------------------------------------------------------------------------------------------------


def say_taken(taken: SnapshotTaken) -> None:
    """Print the file, its size, and the clusters that did not answer."""
    say(f"{taken.file}: {number_of(taken.answers, 'answer')}, {taken.size_bytes / 1e6:.1f} MB")
    if taken.tree:
        say(f"{taken.tree}: the tree with the same made-up names; use both together: mm2mgr --clusters {taken.tree}")
    for pattern in taken.untranslated:
        talk(f"the pattern '{pattern}' became a list of names: made-up ones cannot match it as the real ones do")
    for cluster, reason in taken.failed.items():
        talk(f"not in it: something of '{cluster}' ({reason})")

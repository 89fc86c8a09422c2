"""What has changed since the last visit of a person: applies, restarts, rebalances, losses, new topics, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.output.history_text import action_line, is_restart, recorded_change, run_place
from mm2mgr.output.status_text import loss_cells, losses_of
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.serve.pages.base import SAME_SECONDS, Context, flow_link, utc
from mm2mgr.serve.visits import Visit
from mm2mgr.text import few, number_of, span_text

_LINES = 10
_Line = tuple[float, str, str, list[str]]


def recent_changes(now: float, view: EstateView, visit: Visit) -> Context:
    """Return what `changed.html.j2` shows: lines, the newest first, and since when."""
    since = visit.since
    lines = sorted(
        (*_applies(view, since), *_restarts(view, since), *_losses(view, since), *_new_topics(view, since)),
        reverse=True,
    )
    history = view.survey.history if view.survey else None
    unread = history if isinstance(history, str) else ""
    notes = [f"Changes could not be read: {unread}"] if unread else []
    notes += [] if view.survey else ["Changes of connectors are read at a slower pace, and are not read yet."]
    if history is not None and not isinstance(history, str):
        notes += [f"The history of {connect} could not be read: {reason}" for connect, reason in history.unread.items()]
    ago = span_text(max(1.0, now - visit.since))
    return {
        "since": f"in the last {ago}" if visit.is_first else f"since your last visit, {ago} ago",
        "since_utc": utc(visit.since),
        "lines": [_line(now, *line) for line in lines[:_LINES]],
        "more": max(0, len(lines) - _LINES),
        "notes": notes,
    }


def _line(now: float, at: float, text: str, link: str, details: list[str]) -> Context:
    """Return a line as the page shows it; the day of another day stands before the time."""
    day, time = utc(at)[:10], utc(at)[11:16]
    shown = time if utc(now).startswith(day) else f"{day[5:]} {time}"
    return {"at": shown, "day": day, "text": text, "link": link, "details": details}


def _entries(view: EstateView) -> Sequence[HistoryEntry]:
    history = view.survey.history if view.survey else ""
    return () if isinstance(history, str) else history.entries


def _applies(view: EstateView, since: float) -> Iterator[_Line]:
    """Yield a line per command that changed something."""
    new = [entry for entry in _entries(view) if entry.at_seconds >= since]
    new.sort(key=lambda entry: (_run(entry), entry.when))
    for _, of_run in groupby(new, _run):
        entries = list(of_run)
        first, outcomes = entries[0], [entry.outcome for entry in entries]
        actions = ["restart" if is_restart(entry) else entry.action for entry in entries]
        counts = ", ".join(f"{actions.count(action)} × {action}" for action in dict.fromkeys(actions) if action)
        if len(entries) == 1:
            name = first.flows[0] if len(first.flows) == 1 else f"{first.connect}/{first.connector}"
            counts = f"{recorded_change(first)} ({name})"
        bad = [f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes) if word != "done"]
        commit = f" at commit {first.commit}" if first.commit else ""
        reason = f" — {first.reason}" if first.reason else ""
        text = f"{first.command} by {first.who}{commit}: {counts}{f' ({few(bad)})' if bad else ''}{reason}"
        place = run_place(first)
        details = [f"run as {place}"] if place else []
        details += [
            f"{entry.connect}/{entry.connector}: {recorded_change(entry)}, {entry.outcome}" for entry in entries
        ]
        yield first.at_seconds, text, "/changes", details


def _run(entry: HistoryEntry) -> tuple[str, str]:
    """Return what the entries of one command share; a watchdog runs on, so each of its minutes is one."""
    minute = entry.when[:16] if entry.command == "watch" else ""
    return entry.id.partition("-")[0], minute


def _restarts(view: EstateView, since: float) -> Iterator[_Line]:
    """Yield restarts of this process's watchdog and its rebalances that the history does not have yet."""
    recorded = [(entry.connector, entry.at_seconds) for entry in _entries(view)]

    def is_recorded(connector: str, at: float) -> bool:
        return any(name == connector and abs(at - then) < SAME_SECONDS for name, then in recorded)

    for at, action in view.watchdog.actions if view.watchdog else ():
        if (
            at >= since
            and action.writes
            and not action.dry_run
            and not is_recorded(action.problem.subject.connector, at)
        ):
            yield at, f"watchdog: {action_line(action)}", "/watchdog", []
    for at, flow in view.rebalances.done if view.rebalances else ():
        if at >= since and not is_recorded(flow.connector, at):
            yield at, f"rebalance of {flow.flow} {flow.outcome}: {flow.text}", "/rebalance", []


def _losses(view: EstateView, since: float) -> Iterator[_Line]:
    """Yield a line per flow and topic that lost records."""
    losses = [loss for loss in view.look.status.losses if loss.seen >= since] if view.look else []
    losses.sort(key=lambda loss: (loss.flow, loss.partition.topic))
    for (flow, topic), of_topic in groupby(losses, lambda loss: (loss.flow, loss.partition.topic)):
        entries = list(of_topic)
        details = [f"{cells[0]}: {cells[2]}, offsets {cells[3]}, {cells[4]} records: {cells[6]}"
                   for cells in map(loss_cells, entries)]  # fmt: skip
        text = f"{flow}: {losses_of(len(entries))} in topic {topic}"
        yield max(loss.seen for loss in entries), text, flow_link(flow), details


def _new_topics(view: EstateView, since: float) -> Iterator[_Line]:
    """Yield a line per flow that takes topics which it did not take when this process began to look."""
    new = sorted((topic for topic in view.new_topics if topic.seen_at >= since), key=lambda topic: topic.flow)
    for flow, of_flow in groupby(new, lambda topic: topic.flow):
        topics = list(of_flow)
        text = f"{flow}: {number_of(len(topics), 'new topic')}"
        names = [f"{topic.topic}, since {utc(topic.seen_at)}" for topic in topics]
        yield max(topic.seen_at for topic in topics), text, flow_link(flow), names

"""What the watchdog does, as text from the JSON of its rounds: a line per action, and what it could not look at."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from mm2mgr.output.console import STYLES, say, talk
from mm2mgr.text import few, number_of, one_line


def say_watch_round(done: Mapping[str, Any], said: str) -> str:
    """Print what is new in a look, and what it could not look at where that is not what was `said` before; returns the latter."""
    for action in done["actions"]:
        say(f"{_clock(done)} {action_line(action)}", style=_style(action))
    for connect, why in done["unrecorded"].items():
        talk(f"not in the history of Connect cluster {connect}: {why}", style="yellow")
    if done["unlogged"]:
        talk(done["unlogged"], style="yellow")
    text = "\n".join(not_watched(done))
    if text != said:
        for line in text.splitlines() or ["all Connect clusters are watched again"]:
            say(f"{_clock(done)} {line}", style=STYLES["unknown"] if text else None)
    return text


def action_line(action: Mapping[str, Any]) -> str:
    """Return one action as a line: what was done, to what, and why."""
    problem = action["problem"]
    what = f"{_part(problem['subject'])} FAILED ({problem['cause']})"
    why, number = problem["evidence"]["trace_summary"], action["number"]
    match action["action"]:
        case "recovered":
            return f"{_part(problem['subject'])} runs again"
        case "wait":
            return f"{what}: restart in {action['after_seconds']:.0f} s unless it runs again: {why}"
        case "restart" if action["error"]:
            return f"{what}: restart {number} was not carried out: {action['error']}"
        case "restart":
            return f"{what}: {'would be restarted' if action['dry_run'] else 'restarted'} ({number}): {why}"
    return f"{what}: {_REASONS[action['reason']].format(count=number_of(number, 'restart'))}: {why}"


_REASONS = {
    "not-retryable": "not restarted, since a restart does not help; fix the cause, then run mm2mgr restart --failed",
    "breaker": "not restarted any more after {count}, until it is seen to run; fix the cause, then run mm2mgr restart --failed",
    "frozen": "not restarted, since the watchdog is frozen",
}


def _part(subject: Mapping[str, Any]) -> str:
    name = subject["flow"] or f"{subject['connect']}/{subject['connector']}"
    return f"{name}: task {subject['tasks'][0]}" if subject["tasks"] else f"{name}: connector"


def _style(action: Mapping[str, Any]) -> str | None:
    if action["action"] == "tell" or action["error"]:
        return STYLES["problem"]
    return STYLES["ok"] if action["action"] == "recovered" else None


def not_watched(done: Mapping[str, Any]) -> Iterator[str]:
    """Yield why Connect clusters are not watched, and whether nothing is restarted."""
    if done["error"]:
        yield one_line(done["error"])
    if done["standby"]:
        yield f"another process watches Connect cluster {few(done['standby'])}"
    missing = {**dict.fromkeys(done["resting"], "could not be read, and is asked again later"), **done["unread"]}
    for connect, why in sorted({**missing, **done["without_lease"]}.items()):
        yield f"Connect cluster {connect} is not watched: {one_line(why)}"
    if done["frozen"]:
        yield "frozen: nothing is restarted"


def _clock(done: Mapping[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done["taken_at"]))

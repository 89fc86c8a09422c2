"""The status of flows and the description of one, as text from their JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from mm2mgr.connectors import RESTING
from mm2mgr.observe.health import Status
from mm2mgr.observe.trend import Trend
from mm2mgr.operations.lag import LagReport
from mm2mgr.output.console import STYLES, say, say_json, say_json_line, say_table, talk
from mm2mgr.output.lag_text import records_text, trend_text
from mm2mgr.output.losses_text import losses_of
from mm2mgr.output.problem_text import offsets_not_stored, orphan, sentence
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import number_of, one_line

_SHOWN = 5


def say_status(status: dict[str, Any]) -> None:
    """Print one line per flow, the counts of checkpoint and heartbeat connectors, then every problem and note."""
    rows = [
        (flow["flow"], flow["health"], flow["state"], _tasks(flow), _per_task(flow), _lag(flow))
        for flow in status["flows"]
    ]
    columns = ("flow", "health", "state", "tasks", "partitions per task", "lag (records)")
    drop, wrap = ("partitions per task", "state", "tasks"), ("tasks", "partitions per task")
    say_table(Table(columns, rows, columns[-1:], drop, wrap, {"health": STYLES}))
    companions = Counter((one["type"], one["health"]) for one in status["companions"])
    for (kind, health), count in sorted(companions.items()):
        say(f"{number_of(count, f'{kind} connector')} {health}", style=STYLES.get(health))
    failures = {failure["message"] for failure in status["failures"].values()}  # printed once, below
    for one in (*status["flows"], *status["companions"]):
        _say_problems(one)
    for name, text, is_problem in _beside(status):
        say(f"{'!' if is_problem else ' '} {name}: {text}", STYLES["problem" if is_problem else "warning"])
    _say_notes(status, "notes", style=None, known=failures)
    moving = sorted(filter(_trend, status["flows"]), key=lambda flow: -flow["lag_records"])
    for flow in moving[:_SHOWN]:
        say(f"  {flow['flow']}: lag {_trend(flow)}")
    if len(moving) > _SHOWN:
        say(f"  the lag of {number_of(len(moving) - _SHOWN, 'flow')} more grows or shrinks: mm2mgr lag")
    for where, failure in status["failures"].items():
        say(f"! {where}: {one_line(failure['message'])}", style=STYLES["unknown"])
        if failure["hint"]:
            say(f"  {failure['hint']}")
    _say_notes(status, "offsets_note", style="dim")
    say(_summary(status), style=STYLES.get(status["health"]))


def say_warnings(warnings: Iterable[str]) -> None:
    """Print what was wrong with the file of earlier looks."""
    for warning in warnings:
        talk(f"warning: {warning}", style="bold yellow")


def say_look(output: str, look: Status | LagReport, value: object, text: Callable[[], None], *, watching: bool) -> None:
    """Print one look as `-o` asks: `value` as JSON, or as text.

    Where several are watched, JSON is on one line, and text below a line that separates it from the one before.
    """
    say_warnings(look.warnings)
    if output == "json":
        (say_json_line if watching else say_json)(value)
        return
    if watching:
        say(f"--- {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(look.taken_at))} ---", style="bold")
    text()


def say_description(found: dict[str, Any]) -> None:
    """Print one flow in full."""
    status = found["status"]
    say(f"{found['flow']}: {status['health']}", style=STYLES.get(status["health"]))
    for end in ("source", "target"):
        cluster = found[end]
        say(f"  {end:8} {cluster['alias']}  {cluster['bootstrap_servers']}  {cluster['security_protocol']}")
    connect = found["connect"]
    say(f"  runs on  {connect['name']}  {', '.join(connect['urls'])}  (its Kafka: {connect['kafka']})")
    trend = _trend(status)
    say(f"  {status['connector']}: {status['state']}, lag {_lag(status)} records{trend and ', '}{trend}")
    _say_sentences(status)
    for line in found["trace"]:
        say(f"    {line.expandtabs(4)}")
    for task in found["tasks"]:
        partitions = ", ".join(task["partitions"]) or "no partitions"
        say(f"  task {task['id']} {task['state']} on {task['worker']}: {partitions}")
        for line in task["trace"]:
            say(f"    {line.expandtabs(4)}")
    for one in found["companions"]:
        say(f"  {one['type']} {one['connector']}: {one['state']} ({one['health']})")
        _say_sentences(one)
    say("Topics", style="bold")
    topics = [(each["topic"], each["remote_topic"], str(each["partitions"])) for each in found["topics"]]
    say_table(Table(("source topic", "target topic", "partitions"), topics, right=("partitions",)))
    say("Partitions", style="bold")
    rows = [
        (f"{one['topic']}-{one['partition']}", or_dash(one["task"]), str(one["lag_records"])) for one in found["lag"]
    ]
    say_table(Table(("partition", "task", "lag (records)"), rows, right=("task", "lag (records)")))
    if status["offsets_note"]:
        say(status["offsets_note"], style="dim")
    say("Settings", style="bold")
    settings = [(each["setting"], each["value"], each["origin"]) for each in found["settings"]]
    say_table(Table(("setting", "value", "from"), settings, drop=("from",), wrap=("value", "from")))
    for where, failure in found["failures"].items():
        say(f"! {where}: {one_line(failure['message'])}", style=STYLES["unknown"])


def _beside(status: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield what belongs to no flow of the table: name, sentence, and whether it is a problem."""
    for one in status["orphans"]:
        yield f"{one['connect']}/{one['connector']}", orphan(one), one["state"] not in RESTING
    for one in status["stale_offsets"]:
        yield f"connect {one['connect']}", offsets_not_stored(one), bool(one["unread_sources"])
    shown = {flow["flow"] for flow in status["flows"]}
    undeclared = Counter(one["flow"] for one in status["losses"] if one["flow"] not in shown)
    for flow, count in undeclared.items():
        yield f"{flow} (not declared)", f"{losses_of(count)} to acknowledge: mm2mgr losses '{flow}'", True


def _say_notes(status: dict[str, Any], key: str, *, style: str | None, known: Collection[str] = ()) -> None:
    """Print notes with the names they belong to, those of many flows once."""
    holders: dict[str, list[dict[str, Any]]] = {}
    for one in (*status["flows"], *status["companions"]):
        found = one.get(key) or []
        for note in [found] if isinstance(found, str) else found:
            if note not in known:
                holders.setdefault(note, []).append(one)
    for note, of in holders.items():
        names = ", ".join(map(_name, of[:_SHOWN])) + (", …" if len(of) > _SHOWN else "")
        what = "flows" if all("flow" in one for one in of) else "connectors"
        say(f"  {names if len(of) == 1 else f'{len(of)} {what} ({names})'}: {note}", style=style)


def _summary(status: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {word}" for word, count in status["counts"].items() if count)
    losses, orphans = len(status["losses"]), len(status["orphans"])
    more = [f"; {losses_of(losses)}"] if losses else []
    more += [f"; {number_of(orphans, 'orphan')}"] if orphans else []
    return f"Flows: {counts or 'none'}{''.join(more)}"


def _say_sentences(one: dict[str, Any]) -> None:
    _say_problems(one)
    for note in one["notes"]:
        say(f"  {_name(one)}: {note}")


def _say_problems(one: dict[str, Any]) -> None:
    for problem in one["problem_values"]:
        say(f"! {_name(one)}: {sentence(problem)}", style=STYLES["problem"])


def _name(one: dict[str, Any]) -> str:
    return str(one.get("flow") or one["connector"])


def _tasks(flow: dict[str, Any]) -> str:
    states = Counter(task["state"] for task in flow["tasks"])
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "0"


def _trend(flow: dict[str, Any]) -> str:
    """Say where a lag goes, empty for one that stays; the looks of `serve` and of all commands count, so one look may know of hours."""
    trend = flow["trend"] if flow["lag_records"] else None
    if not trend or trend["direction"] == "steady":
        return ""
    return trend_text(Trend(trend["direction"], trend["seconds"], trend["records"]))


def _per_task(flow: dict[str, Any]) -> str:
    counts = flow["partitions_per_task"]
    return " ".join(or_dash(counts[task]) for task in sorted(counts, key=int))


def _lag(flow: dict[str, Any]) -> str:
    return records_text(flow["lag_records"], flow["lag_at_least"])

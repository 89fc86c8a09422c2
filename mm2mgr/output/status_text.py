"""Status and description as text. In: their `to_dict()` values. Out: tables and sentences on stdout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from mm2mgr.output.console import say, say_table

_STYLES = {"ok": "green", "waiting": "yellow", "problem": "bold red", "unknown": "bold magenta"}


def say_status(status: dict[str, Any]) -> None:
    """Print one line per flow, one per checkpoint or heartbeat connector that is not fine, then every problem."""
    rows = [
        (flow["flow"], flow["health"], flow["state"], _tasks(flow), _per_task(flow), _lag(flow))
        for flow in status["flows"]
    ]
    say_table(
        ["flow", "health", "state", "tasks", "partitions per task", "lag (records)"], rows, right=["lag (records)"]
    )
    companions = Counter((one["type"], one["health"]) for one in status["companions"])
    for (kind, health), count in sorted(companions.items()):
        say(
            f"{count} {kind} connector{'s' if count > 1 else ''} {health}",
            style=None if health == "ok" else _STYLES[health],
        )
    told = {failure["message"] for failure in status["failures"].values()}  # said once, below
    for one in (*status["flows"], *status["companions"]):
        _say_sentences(one, told)
    for where, failure in status["failures"].items():
        say(f"! {where}: {failure['message']}", style="bold magenta")
        if failure["hint"]:
            say(f"  {failure['hint']}")
    notes = {flow["offsets_note"] for flow in status["flows"] if flow["offsets_note"]}
    for note in sorted(notes):
        say(note, style="dim")
    counts = ", ".join(f"{count} {word}" for word, count in status["counts"].items() if count)
    say(f"Flows: {counts or 'none'}", style=_STYLES[status["health"]])


def say_description(found: dict[str, Any]) -> None:
    """Print one flow in full."""
    status = found["status"]
    say(f"{found['flow']}: {status['health']}", style=_STYLES[status["health"]])
    for end in ("source", "target"):
        cluster = found[end]
        say(f"  {end:8} {cluster['alias']}  {cluster['bootstrap_servers']}  {cluster['security_protocol']}")
    connect = found["connect"]
    say(f"  runs on  {connect['name']}  {', '.join(connect['urls'])}  (its Kafka: {connect['kafka']})")
    say(f"  {status['connector']}: {status['state']}, lag {_lag(status)} records")
    _say_sentences(status)
    for line in found["trace"]:
        say(f"    {line}")
    for task in found["tasks"]:
        say(
            f"  task {task['id']} {task['state']} on {task['worker']}: {', '.join(task['partitions']) or 'no partitions'}"
        )
        for line in task["trace"]:
            say(f"    {line}")
    for one in found["companions"]:
        say(f"  {one['type']} {one['connector']}: {one['state']} ({one['health']})")
        _say_sentences(one)
    say("Topics", style="bold")
    say_table(
        ["source topic", "on the target", "partitions"],
        [(t["topic"], t["remote_topic"], str(t["partitions"])) for t in found["topics"]],
        right=["partitions"],
    )
    say("Partitions", style="bold")
    rows = [
        (f"{one['topic']}-{one['partition']}", _or_dash(one["task"]), str(one["lag_records"])) for one in found["lag"]
    ]
    say_table(["partition", "task", "lag (records)"], rows, right=["task", "lag (records)"])
    if status["offsets_note"]:
        say(status["offsets_note"], style="dim")
    say("Settings", style="bold")
    say_table(["setting", "value", "from"], [(s["setting"], s["value"], s["origin"]) for s in found["settings"]])
    for where, failure in found["failures"].items():
        say(f"! {where}: {failure['message']}", style="bold magenta")


def _say_sentences(one: dict[str, Any], told: Collection[str] = ()) -> None:
    name = one.get("flow") or one["connector"]
    for problem in one["problems"]:
        say(f"! {name}: {problem}", style="bold red")
    for note in [note for note in one["notes"] if note not in told]:
        say(f"  {name}: {note}", style="yellow")


def _tasks(flow: dict[str, Any]) -> str:
    states = Counter(task["state"] for task in flow["tasks"])
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "0"


def _per_task(flow: dict[str, Any]) -> str:
    return " ".join(
        _or_dash(count) for _, count in sorted(flow["partitions_per_task"].items(), key=lambda item: int(item[0]))
    )


def _lag(flow: dict[str, Any]) -> str:
    return "unknown" if flow["lag_records"] is None else str(flow["lag_records"])


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)

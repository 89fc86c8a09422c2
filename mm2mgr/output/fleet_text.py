"""The reports of `fleet` and `simulate` as text, from the values that JSON has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.sizing.words import listed, rate_text, span_text
from mm2mgr.text import number_of

Values = Mapping[str, Any]


def say_fleet(report: Values) -> None:
    """Print workers per Connect cluster, then the reasons, losses and recoveries of each, then the layout by pairs."""
    rows = [
        (
            name,
            rate_text(one["bytes_per_second"]),
            str(one["tasks"]),
            _count(one["workers_needed"], "not possible"),
            _count(one["workers_today"], "-"),
        )
        for name, one in report["connect"].items()
    ]
    columns = ["connect cluster", "load", "tasks", "workers", "today"]
    say_table(Table(columns, rows, right=columns[1:]))
    for name, one in report["connect"].items():
        say()
        say(name, style="bold")
        for reason in one["reasons"]:
            say(f"  {reason}")
        _say_running(one["running"])
        for loss in one["losses"]:
            say(f"  {loss['reason']}")
        _say_recoveries(one)
    if report["connect"]:
        say()
        say(report["pair_layout"]["reason"])


def say_comparison(report: Values) -> None:
    """Print flows, Connect clusters and totals before and after a change, and what follows from it."""
    say(f"If: {report['change']}", style="bold")
    say("Before: the current recommendation of `size` and the workers it needs", style="dim")
    columns = ["flow", "load", "tasks", "busiest task", "of usable", "hot partitions"]
    rows = [_flow_row(flow_id, both) for flow_id, both in report["flows"].items()]
    if rows:
        say_table(Table([*columns, ""], rows, right=columns[1:], drop=("load", "busiest task", "of usable")))
    if unchanged := report["unchanged_flows"]:
        other = "other " if rows else ""
        say(
            f"{unchanged} {other}flow{' stays' if unchanged == 1 else 's stay'} as {'it is' if unchanged == 1 else 'they are'}"
        )
    say()
    columns = ["connect cluster", "load", "tasks", "workers needed", "today"]
    rows = [_connect_row(name, both) for name, both in report["connect"].items()]
    rows.append(_connect_row("all", report["totals"]))
    say_table(Table(columns, rows, right=columns[1:], drop=("today", "load")))
    if report["reasons"]:
        say()
    for reason in report["reasons"]:
        say(reason)
    for note in report.get("notes", ()):
        say(f"! {note}", style="yellow")


RUNNING_COLUMNS = ("worker", "tasks", "of flows", "load", "tasks that fail over if this worker is lost")


def running_rows(running: Values) -> list[tuple[str, ...]]:
    """Return the workers of a Connect cluster as they are now, for RUNNING_COLUMNS."""
    return [
        (
            one["worker"],
            str(one["tasks"]),
            str(one["flow_tasks"]),
            rate_text(one["bytes_per_second"]),
            _lost_text(one),
        )
        for one in running["workers"]
    ]


def _lost_text(one: Values) -> str:
    """Return the tasks of a worker, numbered as `status` does: `logs:a->hub 0 2`."""
    flows = [f"{flow_id} {' '.join(map(str, numbers))}" for flow_id, numbers in one["flows"].items()]
    others = one["tasks"] - one["flow_tasks"]
    return listed([*flows, *([number_of(others, "other")] if others else [])]) or "-"


def _say_running(running: Values) -> None:
    if running["workers"]:
        say("  Tasks by worker, as Connect reports them:")
        right, wrap = ("tasks", "of flows", "load"), RUNNING_COLUMNS[-1:]
        say_table(Table(RUNNING_COLUMNS, running_rows(running), right, drop=("of flows",), wrap=wrap, indent=2))
    for reason in running["reasons"]:
        say(f"  {reason}")


RECOVERY_COLUMNS = ("workers", "tasks", "time", "last flow", "raised to", "time then")


def recovery_rows(one: Values) -> list[tuple[str, ...]]:
    """Return the catch-up times of a Connect cluster, for RECOVERY_COLUMNS."""
    return [
        (
            str(each["workers"]),
            str(each["tasks"]),
            _time(each["now"]),
            each["now"]["last_flow"] or "-",
            str(each["raised_tasks"]),
            _time(each["raised"]),
        )
        for each in one["recoveries"]
    ]


def never_text(one: Values) -> str:
    """Name the flows that never catch up, whatever workers and tasks are listed; empty where all do."""
    never = one["recoveries"][-1]["raised"]["never"] if one["recoveries"] else ()
    return f"Cannot catch up with any number of workers listed here: {listed(never)}." if never else ""


def _time(found: Values) -> str:
    never = len(found["never"])
    if found["seconds"] is None:
        return "never" if never else "-"
    return span_text(found["seconds"]) + (f", {number_of(never, 'flow')} never" if never else "")


def _say_recoveries(one: Values) -> None:
    if one["note"]:
        say(f"  Catch-up from a lag of {one['lag']}: {one['note']}.")
    if not one["recoveries"]:
        return
    say(f"  Time to catch up from a lag of {one['lag']} while traffic continues:")
    right = ("workers", "tasks", "time", "raised to", "time then")
    say_table(Table(RECOVERY_COLUMNS, recovery_rows(one), right, drop=("last flow",), indent=2))
    if never := never_text(one):
        say(f"  {never}")


def _flow_row(flow_id: str, both: Values) -> tuple[str, ...]:
    before, after = both["before"], both["after"]
    note = "new" if before is None else "gone" if after is None else ""
    if after and after["capped_by"]:
        note = f"{note} capped by {after['capped_by']}".strip()
    return (
        flow_id,
        _change(both, "bytes_per_second", rate_text),
        _change(both, "tasks", str),
        _change(both, "busiest_bytes_per_second", rate_text),
        _change(both, "busiest_share", lambda share: f"{share * 100:.0f} %"),
        _change(both, "hot_partitions", str),
        note,
    )


def _connect_row(name: str, both: Values) -> tuple[str, ...]:
    return (
        name,
        _change(both, "bytes_per_second", rate_text),
        _change(both, "tasks", str),
        _change(both, "workers_needed", lambda count: _count(count, "not possible")),
        _count((both["after"] or both["before"])["workers_today"], "-"),
    )


def _change(both: Values, key: str, text: Callable[[Any], str]) -> str:
    """Return a value once where it stays the same, else both with an arrow; `-` where there is none."""
    before, after = ("-" if both[side] is None else text(both[side][key]) for side in ("before", "after"))
    return after if before == after else f"{before} → {after}"


def _count(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)

"""Lag as a table, from its JSON; and an amount of lag in words, for every table that has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import bytes_text, few, number_of, one_line, span_text

_TREND_STYLES = {"growing": "yellow"}
_COLUMNS = {
    "flow": ("flow",),
    "task": ("flow", "task"),
    "topic": ("flow", "topic"),
    "partition": ("flow", "partition", "task"),
}
_NUMBERS = ("lag (records)", "lag (bytes)", "lag (time)")
_WHERE_TO = ("trend", "level in", "retention in", "stored offset", "counted from")
_UNKNOWN_SHOWN = 3


def say_lag(found: Mapping[str, Any], shown: int) -> None:
    """Print `shown` rows per flow, then what is unknown and the heartbeats."""
    rows = list(_first_of_each(found["rows"], shown))
    say_table(lag_table(rows, found["by"]))
    left = len(found["rows"]) - len(rows)
    if left:
        say(f"{number_of(left, 'row')} less behind not shown: --rows shows more, -o json all", "dim")
    for text in _heartbeats(found["flows"]):
        say(text)
    for note in found["notes"]:
        say(f"  {note}", "dim")
    for where, failure in found["failures"].items():
        say(f"! {where}: {one_line(failure['message'])}", style=STYLES["unknown"])
        if failure["hint"]:
            say(f"  {failure['hint']}")


def lag_table(rows: list[dict[str, Any]], by: str) -> Table:
    """Return rows of one level (partition, topic, task or flow) as a table."""
    columns = (*_COLUMNS[by], *_NUMBERS, *_WHERE_TO)
    cells = [(*_name(row, by), *_amounts(row), *_outlook(row)) for row in rows]
    drop = ("counted from", "stored offset", "lag (bytes)", "retention in", "trend")
    return Table(columns, cells, right=("task", *_NUMBERS), drop=drop, wrap=("trend", "level in"), below=_below(rows))


def records_text(records: int | None, at_least: bool) -> str:
    """Write a lag in records: 40, `at least 40`, or unknown."""
    return "unknown" if records is None else f"{'at least ' if at_least else ''}{records:.0f}"


def _first_of_each(rows: list[dict[str, Any]], shown: int) -> Iterator[dict[str, Any]]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["flow"]] = counts.get(row["flow"], 0) + 1
        if counts[row["flow"]] <= shown:
            yield row


def _name(row: Mapping[str, Any], by: str) -> tuple[str, ...]:
    task = or_dash(row["task"])
    names = {
        "flow": (),
        "task": (task,),
        "topic": (row["topic"] or "-",),
        "partition": ("-" if row["topic"] is None else f"{row['topic']}-{row['partition']}", task),
    }
    return row["flow"], *names[by]


def _amounts(row: Mapping[str, Any]) -> tuple[str, str, str]:
    records, size, seconds = row["lag_records"], row["lag_bytes"], row["lag_seconds"]
    return (
        records_text(records["value"], records["at_least"]),
        _amount(size, bytes_text),
        _amount(seconds, span_text),
    )


def _amount(amount: Mapping[str, Any], text: Any) -> str:
    if amount["value"] is None:
        return "unknown"
    return f"{'at least ' if amount['at_least'] else ''}{text(amount['value'])}"


def _outlook(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    behind = row["lag_records"]["value"]
    if not behind:
        return "-", "-" if behind is None else "level", "-", "-", row["basis"]
    trend, stored = row["trend"], row["stored_offset_unchanged_seconds"]
    return (
        trend_text(trend) if trend else "unknown",
        _when(row["level_in"]) if row["level_in"] else "not at present rates" if _does_not_shrink(trend) else "unknown",
        _when(row["overtaken_in"]) if row["overtaken_in"] else "-",
        "new" if stored is None else f"{span_text(stored)} old",
        row["basis"],
    )


def trend_text(trend: Mapping[str, Any]) -> str:
    """Say what a lag does, and since when."""
    return f"{trend['direction']} for {span_text(trend['seconds'])}"


def _does_not_shrink(trend: Mapping[str, Any] | None) -> bool:
    return trend is not None and trend["direction"] != "shrinking"


def _when(forecast: Mapping[str, Any]) -> str:
    """Write a forecast: `12 min (10 min to 15 min)`; an end that is open is `or never`."""
    if not forecast["seconds"]:
        return "now"
    latest = forecast["latest_seconds"]
    until = "never" if latest is None else span_text(latest)
    best, earliest = span_text(forecast["seconds"]), span_text(forecast["earliest_seconds"])
    return best if best == earliest == until else f"{best} ({earliest} to {until})"


def _below(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [list(_unknown(row["unknown"])) for row in rows]


def _unknown(unknown: Mapping[str, str]) -> Iterator[str]:
    """Name the partitions that are unknown, by reason."""
    reasons: dict[str, list[str]] = {}
    for partition, why in unknown.items():
        reasons.setdefault(why, []).append(partition)
    for why, names in reasons.items():
        named = f"{few(names, _UNKNOWN_SHOWN)} " if names != [""] else ""
        yield f"{named}unknown: {one_line(why)}"


def _heartbeats(flows: list[dict[str, Any]]) -> Iterator[str]:
    """Say of each pair how old its newest heartbeat is."""
    said = set()
    for flow in flows:
        pair = flow["flow"].partition(":")[2]
        if pair in said:
            continue
        said.add(pair)
        if flow["heartbeat_seconds"] is not None:
            yield f"{pair}: a heartbeat takes at most {span_text(flow['heartbeat_seconds'])} from end to end"
        elif flow["heartbeat_unknown"]:
            yield f"{pair}: latency unknown: {one_line(flow['heartbeat_unknown'])}"

"""Lag as a table; and an amount of lag in words, for every table that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mm2mgr.errors import Failure
from mm2mgr.observe.lag_report import Amount, FlowFacts, LagLevel, LagRow
from mm2mgr.observe.trend import TimeForecast, Trend
from mm2mgr.operations.lag import LagReport
from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import bytes_text, few, number_of, one_line, span_text

_COLUMNS: Mapping[LagLevel, tuple[str, ...]] = {
    "flow": ("flow",),
    "task": ("flow", "task"),
    "topic": ("flow", "topic"),
    "partition": ("flow", "partition", "task"),
}
_NUMBERS = ("lag (records)", "lag (bytes)", "lag (time)")
_OUTLOOK = ("trend", "level in", "retention in", "stored offset", "counted from")
_UNKNOWN_SHOWN = 3


def say_lag(report: LagReport, shown: int) -> None:
    """Print `shown` rows per flow, then what is unknown and the heartbeats."""
    rows = list(_first_of_each(report.rows, shown))
    say_table(lag_table(rows, report.by))
    left = len(report.rows) - len(rows)
    if left:
        say(f"{number_of(left, 'row')} less behind not shown: --rows shows more, -o json all", "dim")
    for text in _heartbeats(report.flows):
        say(text)
    for note in report.notes:
        say(f"  {note}", "dim")
    say_failures(report.failures)


def say_failures(failures: Mapping[str, Failure], *, hints: bool = True) -> None:
    """Print which clusters could not be read, why, and what to do."""
    for cluster, failure in failures.items():
        say(f"! {cluster}: {one_line(failure.message)}", style=STYLES["unknown"])
        if hints and failure.hint:
            say(f"  {failure.hint}")


def lag_table(rows: Sequence[LagRow], by: LagLevel) -> Table:
    """Return rows of one level (partition, topic, task or flow) as a table."""
    columns = (*_COLUMNS[by], *_NUMBERS, *_OUTLOOK)
    cells = [(*_name_cells(row, by), *_amount_cells(row), *_outlook_cells(row)) for row in rows]
    drop = ("counted from", "stored offset", "lag (bytes)", "retention in", "trend")
    below = [list(_unknown_lines(row.unknown)) for row in rows]
    return Table(columns, cells, right=("task", *_NUMBERS), drop=drop, wrap=("trend", "level in"), below=below)


def records_text(records: float | None, at_least: bool) -> str:
    """Write a lag in records: 40, `at least 40`, or unknown."""
    return "unknown" if records is None else f"{'at least ' if at_least else ''}{records:.0f}"


def _first_of_each(rows: Iterable[LagRow], shown: int) -> Iterator[LagRow]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.flow] = counts.get(row.flow, 0) + 1
        if counts[row.flow] <= shown:
            yield row


def _name_cells(row: LagRow, by: LagLevel) -> tuple[str, ...]:
    task = or_dash(row.task)
    names: Mapping[LagLevel, tuple[str, ...]] = {
        "flow": (),
        "task": (task,),
        "topic": (row.topic or "-",),
        "partition": ("-" if row.topic is None else f"{row.topic}-{row.partition}", task),
    }
    return row.flow, *names[by]


def _amount_cells(row: LagRow) -> tuple[str, str, str]:
    records = records_text(row.records.value, row.records.at_least)
    return records, _amount_text(row.bytes, bytes_text), _amount_text(row.seconds, span_text)


def _amount_text(amount: Amount, text: Callable[[float], str]) -> str:
    return "unknown" if amount.value is None else f"{'at least ' if amount.at_least else ''}{text(amount.value)}"


def _outlook_cells(row: LagRow) -> tuple[str, str, str, str, str]:
    behind = row.records.value
    if not behind:
        return "-", "-" if behind is None else "level", "-", "-", row.basis
    endless = "not at present rates" if row.trend and row.trend.direction != "shrinking" else "unknown"
    return (
        trend_text(row.trend) if row.trend else "unknown",
        _forecast_text(row.level) if row.level else endless,
        _forecast_text(row.overtaken) if row.overtaken else "-",
        "new" if row.stored_seconds is None else f"{span_text(row.stored_seconds)} old",
        row.basis,
    )


def trend_text(trend: Trend) -> str:
    """Say what a lag does, and since when."""
    return f"{trend.direction} for {span_text(trend.seconds)}"


def _forecast_text(forecast: TimeForecast) -> str:
    """Write a forecast: `12 min (10 min to 15 min)`; an end that is open is `or never`."""
    if not forecast.seconds:
        return "now"
    until = "never" if forecast.latest_seconds is None else span_text(forecast.latest_seconds)
    best, earliest = span_text(forecast.seconds), span_text(forecast.earliest_seconds)
    return best if best == earliest == until else f"{best} ({earliest} to {until})"


def _unknown_lines(unknown: Mapping[str, str]) -> Iterator[str]:
    """Name the partitions that are unknown, by reason."""
    reasons: dict[str, list[str]] = {}
    for partition, reason in unknown.items():
        reasons.setdefault(reason, []).append(partition)
    for reason, names in reasons.items():
        partitions = f"{few(names, _UNKNOWN_SHOWN)} " if names != [""] else ""
        yield f"{partitions}unknown: {one_line(reason)}"


def _heartbeats(flows: Iterable[FlowFacts]) -> Iterator[str]:
    """Say of each pair how old its newest heartbeat is."""
    by_pair: dict[str, FlowFacts] = {}
    for flow in flows:
        by_pair.setdefault(flow.flow.partition(":")[2], flow)
    for pair, flow in by_pair.items():
        if isinstance(flow.heartbeat_seconds, Failure):
            yield f"{pair}: latency unknown: {one_line(flow.heartbeat_seconds.message)}"
        elif flow.heartbeat_seconds is not None:
            yield f"{pair}: a heartbeat takes at most {span_text(flow.heartbeat_seconds)} from end to end"

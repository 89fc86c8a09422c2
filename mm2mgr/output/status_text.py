"""The status of flows and the description of one, as text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.observe.lag_report import LagLevel
from mm2mgr.output.console import STYLES, clear_screen, say, say_json, say_json_line, say_table, talk
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.problems.loss import LOSS_CAUSES, LOSS_REMEDIES
from mm2mgr.text import bytes_text, few, number_of, one_line, span_text, visible, without_cluster

if TYPE_CHECKING:
    from mm2mgr.observe.lag_report import Amount, FlowFacts, LagRow
    from mm2mgr.observe.losses import LossEntry
    from mm2mgr.observe.trend import TimeForecast, Trend
    from mm2mgr.operations.status import LagReport, LossReport
    from mm2mgr.problems.health import ConnectorState, Description, FlowStatus, Status

_SHOWN = 5


class _Look(Protocol):
    @property
    def taken_at(self) -> float: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


_AnyLook = TypeVar("_AnyLook", bound=_Look)


def say_status(status: Status, *, notes: bool = False) -> None:
    """Print one line per flow, every problem, what could not be read, lags that grow, and one line; notes if wanted."""
    rows = [(flow.flow, flow.health, flow.state, _tasks(flow), _per_task(flow), _lag(flow)) for flow in status.flows]
    columns = ("flow", "health", "state", "tasks", "partitions per task", "lag (records)")
    drop, wrap = ("partitions per task", "state", "tasks"), ("tasks", "partitions per task")
    say_table(Table(columns, rows, columns[-1:], drop, wrap, {"health": STYLES}))
    connectors = (*status.flows, *status.companions)
    for connector in connectors:
        _say_problems(connector)
    beside = list(_beside_flows(status))
    for name, text, is_problem in beside:
        if is_problem:
            say(f"! {name}: {text}", STYLES["problem"])
    told_failures = status.told_failures()
    say_failures(told_failures, sign=" ")
    say_failures({where: failure for where, failure in status.failures.items() if where not in told_failures})
    failures = {one_line(failure.message) for failure in status.failures.values()}
    if not notes:  # why a flow is unknown is no note
        unknown = [flow for flow in status.flows if flow.health == "unknown"]
        _say_notes(((note, flow) for flow in unknown for note in flow.notes), without=failures)
    growing = sorted(filter(_is_growing, status.flows), key=lambda flow: -(flow.lag_records or 0))
    for flow in growing[:_SHOWN]:
        say(f"  {flow.flow}: lag {_trend(flow)}")
    if len(growing) > _SHOWN:
        say(f"  the lag of {number_of(len(growing) - _SHOWN, 'flow')} more grows: mm2mgr lag")
    if notes:
        _say_all_notes(status, connectors, beside)
    say(_summary(status), style=STYLES.get(status.health))


def _say_all_notes(
    status: Status, connectors: Sequence[ConnectorState], beside: Iterable[tuple[str, str, bool]]
) -> None:
    """Print what is no problem: counts of companions, notes, lags that shrink, what a lag is counted from."""
    counts = Counter((companion.type, companion.health) for companion in status.companions)
    for (type_, health), count in sorted(counts.items()):
        say(f"  {number_of(count, f'{type_} connector')} {health}")
    for name, text, is_problem in beside:
        if not is_problem:
            say(f"  {name}: {text}", STYLES["warning"])
    failures = {one_line(failure.message) for failure in status.failures.values()}  # printed once, above
    _say_notes(((note, connector) for connector in connectors for note in connector.notes), without=failures)
    for flow in status.flows:
        if _trend(flow) and not _is_growing(flow):
            say(f"  {flow.flow}: lag {_trend(flow)}")
    _say_notes(((flow.offsets_note, flow) for flow in status.flows if flow.offsets_note), style="dim")


def say_warnings(warnings: Iterable[str]) -> None:
    """Print what was wrong with the file of earlier looks."""
    for warning in warnings:
        talk(f"warning: {warning}", style="bold yellow")


def say_look(output: str, look: _AnyLook, text: Callable[[_AnyLook], None], *, watching: bool) -> None:
    """Print one look as `-o` asks; where several are watched, JSON on one line, and text in the place of the one before
    on a terminal, elsewhere below it.
    """
    if watching and output != "json":
        clear_screen()
    say_warnings(look.warnings)
    if output == "json":
        (say_json_line if watching else say_json)(to_json(look))
        return
    if watching:
        say(f"--- {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(look.taken_at))} ---", style="bold")
    text(look)


def say_description(description: Description) -> None:
    """Print one flow in full."""
    flow, status = description.flow, description.flow_status
    say(f"{flow.id}: {status.health}", style=STYLES.get(status.health))
    for end, cluster in (("source", flow.source), ("target", flow.target)):
        protocol = cluster.client.get("security.protocol", "PLAINTEXT")
        say(f"  {end:8} {cluster.alias}  {cluster.client['bootstrap.servers']}  {protocol}")
    connect = flow.connect
    say(f"  runs on  {connect.name}  {', '.join(map(str, connect.model.url))}  (its Kafka: {connect.kafka})")
    if flow.lane_of:
        say(f"  lane of  {flow.whole_id}")
    elif description.lanes:
        say(f"  lanes    {', '.join(description.lanes)}, each with topics of its own (mm2mgr describe LANE)")
    trend = _trend(status)
    lag = "lag unknown" if status.lag_records is None else f"lag {_lag(status)} records"
    say(f"  {status.connector or 'source connector'}: {status.state}, {lag}{trend and ', '}{trend}")
    _say_sentences(status)
    if status.audit:
        say(f"  {status.audit.sentence}")
    _say_trace(description.trace)
    for number, state, worker, partitions, trace in description.tasks:
        say(f"  task {number} {state} on {worker}: {', '.join(partitions) or 'no partitions'}")
        _say_trace(trace)
    for companion in description.status.companions:
        say(f"  {companion.type} {companion.connector}: {companion.state} ({companion.health})")
        _say_sentences(companion)
    say("Topics", style="bold")
    topics = [(topic, remote, str(count)) for topic, remote, count in description.topics]
    say_table(Table(("source topic", "target topic", "partitions"), topics, right=("partitions",)))
    say("Partitions", style="bold")
    rows = [(str(lag.partition), or_dash(lag.task), str(lag.lag_records)) for lag in description.lag.partitions]
    say_table(Table(("partition", "task", "lag (records)"), rows, right=("task", "lag (records)")))
    if status.offsets_note:
        say(status.offsets_note, style="dim")
    say("Settings", style="bold")
    settings = list(description.settings)
    say_table(Table(("setting", "value", "from"), settings, drop=("from",), wrap=("value", "from")))
    say(description.cluster_mirroring.sentence)
    for where, failure in description.status.failures.items():
        say(f"! {where}: {one_line(failure.message)}", style=STYLES["unknown"])


def _say_trace(lines: Iterable[str]) -> None:
    for line in lines:
        say(f"    {line.expandtabs(4)}")


def _beside_flows(status: Status) -> Iterator[tuple[str, str, bool]]:
    for orphan in status.orphans:
        yield f"{orphan.connect}/{orphan.connector}", orphan.sentence(), orphan.runs
    for offsets in status.stale_offsets:
        yield f"connect {offsets.connect}", offsets.sentence(), offsets.is_problem
    shown = {flow.flow for flow in status.flows}
    undeclared = Counter(loss.flow for loss in status.losses if loss.flow not in shown)
    for flow, count in undeclared.items():
        yield f"{flow} (not declared)", f"{losses_of(count)} to acknowledge: mm2mgr losses '{flow}'", True


def _say_notes(
    notes: Iterable[tuple[str, ConnectorState]], style: str | None = None, without: Collection[str] = ()
) -> None:
    holders: dict[str, list[ConnectorState]] = {}
    for note, connector in notes:
        if note not in without:
            holders.setdefault(note, []).append(connector)
    for note, connectors in holders.items():
        names = ", ".join(connector.name for connector in connectors[:_SHOWN])
        noun = "flows" if all(connector.type == "source" for connector in connectors) else "connectors"
        if len(connectors) > 1:
            names = f"{len(connectors)} {noun} ({names}{', …' * (len(connectors) > _SHOWN)})"
        say(f"  {names}: {note}", style=style)


def _summary(status: Status) -> str:
    counts = ", ".join(f"{count} {word}" for word, count in status.counts().items() if count)
    losses, orphans = len(status.losses), len(status.orphans)
    more = [f"; {losses_of(losses)}"] if losses else []
    more += [f"; {number_of(orphans, 'orphan')}"] if orphans else []
    waiting = sum(companion.health == "waiting" for companion in status.companions)
    more += [f"; {number_of(waiting, 'heartbeat or checkpoint connector')} waiting"] if waiting else []
    return f"Flows: {counts or 'none'}{''.join(more)}{_age_text(flow.lag_age_seconds for flow in status.flows)}"


def _age_text(ages: Iterable[float | None]) -> str:
    """Say once by how much lags may be too large: workers store offsets at intervals."""
    oldest = max((age for age in ages if age), default=None)
    return f"; lags may be up to {span_text(oldest)} old" if oldest else ""


def _say_sentences(connector: ConnectorState) -> None:
    _say_problems(connector)
    for note in connector.notes:
        say(f"  {connector.name}: {note}")


def _say_problems(connector: ConnectorState) -> None:
    for problem in connector.problems:
        style = STYLES["problem" if problem.evidence.endangers_records else "warning"]
        say(f"! {connector.name}: {problem.sentence}", style=style)


def _tasks(flow: FlowStatus) -> str:
    states = Counter(task.state for task in flow.tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or (
        "unknown" if flow.state == "unknown" else "0"
    )


def _is_growing(flow: FlowStatus) -> bool:
    return bool(_trend(flow)) and flow.trend is not None and flow.trend.direction == "growing"


def _trend(flow: FlowStatus) -> str:
    """Say where a lag goes, empty for one that stays; the looks of `serve` and of all commands count, so one look may
    know of hours.
    """
    trend = flow.trend if flow.lag_records else None
    return trend_text(trend) if trend and trend.direction != "steady" else ""


def _per_task(flow: FlowStatus) -> str:
    return " ".join(or_dash(count) for _, count in sorted(flow.partitions_per_task.items()))


def _lag(flow: FlowStatus) -> str:
    return records_text(flow.lag_records, flow.lag_at_least)


# --- losses -----------------------------------------------------------------------------------------------------------


_EVIDENCE = {
    "log-start": "seen while the stored offset lay before the log",
    "target": "between two looks, counted on the target",
    "offsets": "between two looks, with no count on the target",
    "topic-id": "by the topic id",
    "log-end": "by the log end",
    "records": "record by record, by an audit",
}


def say_losses(report: LossReport) -> None:
    """Print one line per entry, and below what to do about each cause."""
    losses, has_acks = report.entries, any(loss.acknowledged for loss in report.entries)
    columns: tuple[str, ...] = ("id", "flow", "partition", "offsets", "records", "cause", "after", "seen (UTC)", "how")
    rows = [_row(loss) + ((_acknowledgement(loss),) if has_acks else ()) for loss in losses]
    if rows:
        columns = (*columns, "acknowledged") if has_acks else columns
        say_table(Table(columns, rows, ("records",), ("how", "after", "flow"), ("how", "acknowledged")))
    for cause in dict.fromkeys(loss.cause for loss in report.still_open):
        say(f"{cause}: {LOSS_CAUSES[cause]}; {LOSS_REMEDIES[cause]}")
    if report.still_open:
        say(f"{losses_of(len(report.still_open))} to acknowledge: mm2mgr losses --ack ID --reason TEXT")
    else:
        say("No loss to acknowledge.")


def loss_cells(loss: LossEntry) -> tuple[str, ...]:
    """Return id, flow, partition, offsets, records, time and what happened, as a page shows an entry."""
    happened = f"{LOSS_CAUSES[loss.cause]}; {LOSS_REMEDIES[loss.cause]}"
    return (*_names(loss), f"{_time_text(loss.seen_utc)} UTC", happened)


def losses_of(count: int) -> str:
    """Write a count of losses."""
    return "1 loss" if count == 1 else f"{count} losses"


def acknowledged_text(loss: LossEntry) -> str:
    """Return the confirmation of an acknowledgement."""
    return f"acknowledged {loss.id}: {loss.flow}: {loss.partition}, offsets {loss.offsets_text} ({loss.cause})"


def _row(loss: LossEntry) -> tuple[str, ...]:
    since = _time_text(loss.since_utc) if loss.since_utc else "-"
    return (*_names(loss), loss.cause, since, _time_text(loss.seen_utc), _EVIDENCE[loss.evidence])


def _names(loss: LossEntry) -> tuple[str, ...]:
    most = loss.records
    records = "unknown" if most is None else f"{most}" if most == loss.least_records else f"up to {most}"
    return loss.id, loss.flow, str(loss.partition), loss.offsets_text, records


def _acknowledgement(loss: LossEntry) -> str:
    ack = loss.acknowledged
    return visible(f"{ack.who}, {_time_text(ack.at_utc)}{': ' if ack.reason else ''}{ack.reason}") if ack else "-"


def _time_text(utc: str) -> str:
    return utc.removesuffix("Z").replace("T", " ")


# --- lag --------------------------------------------------------------------------------------------------------------


_COLUMNS: Mapping[LagLevel, tuple[str, ...]] = {
    LagLevel.FLOW: ("flow",),
    LagLevel.TASK: ("flow", "task"),
    LagLevel.TOPIC: ("flow", "topic"),
    LagLevel.PARTITION: ("flow", "partition", "task"),
}
_NUMBERS = ("lag (records)", "lag (bytes)", "lag (time)")
_OUTLOOK = ("trend", "level in", "retention in", "stored offset", "counted from")
_UNKNOWN_SHOWN = 3


def say_lag(report: LagReport, shown: int, *, notes: bool = False) -> None:
    """Print `shown` rows per flow, what is unknown of them, and one line; heartbeats and notes if wanted."""
    rows = list(_first_of_each(report.rows, shown))
    say_table(lag_table(rows, report.by))
    left = len(report.rows) - len(rows)
    if left:
        say(f"{number_of(left, 'row')} less behind not shown: --rows shows more, -o json all", "dim")
    say_failures(report.failures)
    for text in report.problems:
        say(f"! {text}", style=STYLES["problem"])
    if notes:
        for text in (*_heartbeats(report.flows), *report.notes):
            say(f"  {text}", "dim")
    left_out = number_of(len(report.notes), "note") + ": --notes" if report.notes and not notes else ""
    say("; ".join(filter(None, (_lag_summary(report), left_out))))


def _lag_summary(report: LagReport) -> str:
    totals = [flow.total.records for flow in report.flows]
    behind = [total.value for total in totals if total.value]
    unknown = sum(total.value is None or (total.at_least and not total.value) for total in totals)
    parts = [number_of(len(totals), "flow"), f"{len(behind)} behind" if behind else "" if unknown else "all level"]
    parts += [f"{unknown} unknown"] if unknown else []
    return ", ".join(filter(None, parts)) + _age_text(flow.lag_age_seconds for flow in report.flows)


def say_failures(failures: Mapping[str, Failure], *, hints: bool = True, sign: str = "!") -> None:
    """Print which clusters could not be read, why, and what to do; without a `sign` those that a problem told of."""
    for cluster, failure in failures.items():
        reason = without_cluster(one_line(failure.message), cluster.partition(" ")[2])
        say(f"{sign} {cluster}: {reason}", style=STYLES["unknown"])
        if hints and failure.hint:
            say(f"  {failure.hint}")


def lag_table(rows: Sequence[LagRow], by: LagLevel) -> Table:
    """Return rows of one level (partition, topic, task or flow) as a table."""
    columns = (*_COLUMNS[by], *_NUMBERS, *_OUTLOOK)
    cells = [(*_name_cells(row, by), *_amount_cells(row), *_outlook_cells(row)) for row in rows]
    drop = ("counted from", "stored offset", "lag (bytes)", "retention in", "trend", "level in", "lag (time)")
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
        LagLevel.FLOW: (),
        LagLevel.TASK: (task,),
        LagLevel.TOPIC: (row.topic or "-",),
        LagLevel.PARTITION: ("-" if row.topic is None else f"{row.topic}-{row.partition}", task),
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
        at_zero = "unknown" if row.records.at_least else "level"
        return "-", "-" if behind is None else at_zero, "-", "-", row.basis
    return (
        trend_text(row.trend) if row.trend else "unknown",
        _level_text(row, behind),
        _forecast_text(row.overtaken) if row.overtaken else "-",
        "new" if row.stored_seconds is None else f"{span_text(row.stored_seconds)} old",
        row.basis,
    )


def _level_text(row: LagRow, behind: float) -> str:
    """Say when a row is level: never by itself where it does not run; it is, below a second of its traffic."""
    if not row.moves:
        return "-"
    is_recent = row.seconds.value is not None and row.seconds.value < 1 and not row.seconds.at_least
    if is_recent or (row.trend and row.trend.produced and behind < row.trend.produced.mean):
        return "level"
    if row.level:
        return _forecast_text(row.level)
    return "not at present rates" if row.trend and row.trend.direction != "shrinking" else "unknown"


def trend_text(trend: Trend) -> str:
    """Say what a lag does, and since when."""
    return f"{trend.direction} for {span_text(trend.seconds)}"


_HORIZON_SECONDS = 7 * 86_400.0
"""Rates of the last minutes or hours say nothing of times that are further away."""


def _forecast_text(forecast: TimeForecast) -> str:
    """Write a forecast: `12 min (10 min to 15 min)`; an end that is open is `to never`, and what is further away than a
    week is not counted."""
    if not forecast.seconds:
        return "now"
    horizon, latest = span_text(_HORIZON_SECONDS), forecast.latest_seconds
    if forecast.seconds > _HORIZON_SECONDS:
        return f"not within {horizon}"
    until = "never" if latest is None else span_text(latest) if latest <= _HORIZON_SECONDS else f"over {horizon}"
    best, earliest = span_text(forecast.seconds), span_text(forecast.earliest_seconds)
    return best if best == earliest == until else f"{best} ({earliest} to {until})"


def _unknown_lines(unknown: Mapping[str, str]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for partition, reason in unknown.items():
        reasons.setdefault(reason, []).append(partition)
    for reason, names in reasons.items():
        partitions = f"{few(names, _UNKNOWN_SHOWN)} " if names != [""] else ""
        yield f"{partitions}unknown: {one_line(reason)}"


def _heartbeats(flows: Iterable[FlowFacts]) -> Iterator[str]:
    by_pair: dict[str, FlowFacts] = {}
    for flow in flows:
        by_pair.setdefault(flow.flow.partition(":")[2], flow)
    for pair, flow in by_pair.items():
        if isinstance(flow.heartbeat_seconds, Failure):
            yield f"{pair}: latency unknown: {one_line(flow.heartbeat_seconds.message)}"
        elif flow.heartbeat_seconds is not None:
            yield f"{pair}: a heartbeat takes at most {span_text(flow.heartbeat_seconds)} from end to end"

"""The status of flows and the description of one, as text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from mm2mgr.json_values import to_json
from mm2mgr.output.console import STYLES, say, say_json, say_json_line, say_table, talk
from mm2mgr.output.lag_text import records_text, trend_text
from mm2mgr.output.losses_text import losses_of
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import number_of, one_line

if TYPE_CHECKING:
    from mm2mgr.problems.health import ConnectorState, Description, FlowStatus, Status

_SHOWN = 5


class _Look(Protocol):
    @property
    def taken_at(self) -> float: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


_AnyLook = TypeVar("_AnyLook", bound=_Look)


def say_status(status: Status) -> None:
    """Print one line per flow, the counts of checkpoint and heartbeat connectors, then every problem and note."""
    rows = [(flow.flow, flow.health, flow.state, _tasks(flow), _per_task(flow), _lag(flow)) for flow in status.flows]
    columns = ("flow", "health", "state", "tasks", "partitions per task", "lag (records)")
    drop, wrap = ("partitions per task", "state", "tasks"), ("tasks", "partitions per task")
    say_table(Table(columns, rows, columns[-1:], drop, wrap, {"health": STYLES}))
    counts = Counter((companion.type, companion.health) for companion in status.companions)
    for (type_, health), count in sorted(counts.items()):
        say(f"{number_of(count, f'{type_} connector')} {health}", style=STYLES.get(health))
    connectors = (*status.flows, *status.companions)
    for connector in connectors:
        _say_problems(connector)
    for name, text, is_problem in _beside_flows(status):
        say(f"{'!' if is_problem else ' '} {name}: {text}", STYLES["problem" if is_problem else "warning"])
    failures = {failure.message for failure in status.failures.values()}  # printed once, below
    _say_notes(((note, connector) for connector in connectors for note in connector.notes), without=failures)
    moving = sorted(filter(_trend, status.flows), key=lambda flow: -(flow.lag_records or 0))
    for flow in moving[:_SHOWN]:
        say(f"  {flow.flow}: lag {_trend(flow)}")
    if len(moving) > _SHOWN:
        say(f"  the lag of {number_of(len(moving) - _SHOWN, 'flow')} more grows or shrinks: mm2mgr lag")
    for where, failure in status.failures.items():
        say(f"! {where}: {one_line(failure.message)}", style=STYLES["unknown"])
        if failure.hint:
            say(f"  {failure.hint}")
    _say_notes(((flow.offsets_note, flow) for flow in status.flows if flow.offsets_note), style="dim")
    say(_summary(status), style=STYLES.get(status.health))


def say_warnings(warnings: Iterable[str]) -> None:
    """Print what was wrong with the file of earlier looks."""
    for warning in warnings:
        talk(f"warning: {warning}", style="bold yellow")


def say_look(output: str, look: _AnyLook, text: Callable[[_AnyLook], None], *, watching: bool) -> None:
    """Print one look as `-o` asks; where several are watched, JSON on one line, and text below a line that separates it
    from the one before.
    """
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
    trend = _trend(status)
    say(f"  {status.connector}: {status.state}, lag {_lag(status)} records{trend and ', '}{trend}")
    _say_sentences(status)
    _say_trace(description.trace)
    for task in description.tasks:
        say(f"  task {task.id} {task.state} on {task.worker}: {', '.join(task.partitions) or 'no partitions'}")
        _say_trace(task.trace)
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
    for where, failure in description.status.failures.items():
        say(f"! {where}: {one_line(failure.message)}", style=STYLES["unknown"])


def _say_trace(lines: Iterable[str]) -> None:
    for line in lines:
        say(f"    {line.expandtabs(4)}")


def _beside_flows(status: Status) -> Iterator[tuple[str, str, bool]]:
    """Yield what belongs to no flow of the table: name, sentence, and whether it is a problem."""
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
    """Print notes with the names they belong to, those of many flows once."""
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
    return f"Flows: {counts or 'none'}{''.join(more)}"


def _say_sentences(connector: ConnectorState) -> None:
    _say_problems(connector)
    for note in connector.notes:
        say(f"  {connector.name}: {note}")


def _say_problems(connector: ConnectorState) -> None:
    for sentence in connector.sentences:
        say(f"! {connector.name}: {sentence}", style=STYLES["problem"])


def _tasks(flow: FlowStatus) -> str:
    states = Counter(task.state for task in flow.tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "0"


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

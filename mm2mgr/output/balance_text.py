"""The answer of `rebalance` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mm2mgr.output.apply_text import say_applied
from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import first_few, in_yaml, number_of

if TYPE_CHECKING:
    from mm2mgr.balance.lanes import LanePlan
    from mm2mgr.balance.ways import Way
    from mm2mgr.operations.rebalance import FlowBalance, RebalanceReport

_MOST_MOVES = 5
WAY_COLUMNS = ("way", "tasks", "busiest task", "of the least possible", "tasks needed")


def say_rebalance(report: RebalanceReport) -> None:
    """Print each flow with the ways beside each other, the plan and its reasons."""
    for flow in report.flows:
        _say_flow(flow)
        say()
    worth = "; ".join(_counts(report)) or "No change is worth a restart"
    say(f"{worth}; {report.measured}, measured until {report.newest}", style="dim")


def _counts(report: RebalanceReport) -> Iterator[str]:
    """Yield how many changes are worth a restart, and how many of such may not be written."""
    if report.changes:
        yield f"{number_of(len(report.changes), 'change')} worth a restart"
    if left := sum(flow.verdict == "left" and flow.plan is not None and flow.plan.is_change for flow in report.flows):
        yield f"{number_of(left, 'change')} worth a restart may not be written now"


def say_rebalanced(report: RebalanceReport) -> None:
    """Print what became of the writes, and which were left since something had changed."""
    if report.applied:
        say_applied(report.applied)
    for flow in report.flows:
        if flow.flow in report.overtaken:
            say(f"{flow.flow}: nothing was written: {flow.detail}", style="yellow")


def way_cells(way: Way) -> tuple[str, ...]:
    """Return what one way to assign the partitions makes of a load, in `WAY_COLUMNS`."""
    connectors = number_of(way.connectors, "connector")
    return (
        f"{way.name}, {connectors}" if way.name == "lanes" or way.connectors > 1 else way.name,
        str(way.tasks),
        f"{way.busiest * 100:.0f} % of usable",
        f"{way.over_bound:.2f} times",
        f"none up to {way.searched}" if way.tasks_needed is None else str(way.tasks_needed),
    )


def _say_flow(flow: FlowBalance) -> None:
    say(f"{flow.flow}: {flow.connect}/{flow.connector}", style="bold")
    if flow.ways:
        say_table(Table(WAY_COLUMNS, list(map(way_cells, flow.ways)), right=WAY_COLUMNS[1:], indent=2))
    for reason in flow.plan.reasons if flow.plan else ():
        say(f"  {reason}")
    if flow.plan:
        moves = [f"{move.partition} from task {move.from_task} to {move.to_task}" for move in flow.plan.moves]
        for line in first_few(moves, "more moves, all of them in -o json", _MOST_MOVES):
            say(f"  {line}", style="dim")
    verdict = _VERDICTS[flow.verdict]
    say(f"  {verdict}: {flow.detail}" if flow.detail else f"  {verdict}", style=_STYLES.get(flow.verdict))
    for hold in flow.held if flow.verdict in {"rebalance", "keep"} else ():
        say(f"  The tree holds it now: {hold}", style="yellow")
    if flow.hint:
        say(f"  {flow.hint}", style="dim")
    if flow.lanes:
        say(f"  Or lanes, {number_of(flow.lanes.connectors, 'connector')} of the stock class, in the flow's YAML:")
        for line in lanes_yaml(flow.lanes):
            say(f"    {line}")


def lanes_yaml(lanes: LanePlan) -> list[str]:
    """Return planned lanes as the lines of a flow's YAML, those of the flow's own connector as its `tasks`."""
    lines = [f"tasks: {{max: {lanes.rest.tasks}}}", "balance:", "  lanes:"]
    for number, lane in enumerate(lanes.lanes, 1):
        topics = ", ".join(map(in_yaml, lane.topics))
        lines.append(f"    l{number}: {{topics: [{topics}], tasks: {{max: {lane.tasks}}}}}")
    return lines


_VERDICTS = {
    "rebalance": "Worth a restart",
    "keep": "Kept",
    "stock": "Nothing is written",
    "left": "Nothing is written",
    "unknown": "Not judged",
}
_STYLES = {"rebalance": "yellow", "unknown": "red"}

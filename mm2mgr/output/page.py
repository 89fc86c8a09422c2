"""The page of `size --page` and `fleet --page`: one HTML file that needs no script, no network and no other file.

In: views of flows, and the fleet's report as JSON has it. Out: markup; every name is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from mm2mgr.output.charts import DAYS, partition_bars, task_bars, week_map
from mm2mgr.output.fleet_text import RECOVERY_COLUMNS, never_text, recovery_rows
from mm2mgr.sizing.words import number_of, rate_text

_IN_FULL = 100  # flows drawn; all of them stand in the table
# The policy keeps the promise of the docstring: a name that slipped through could still load and run nothing.
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>mm2mgr: load and sizing</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --paper: #fbfbfa; --rule: #d9dde2; --fits: #2f6fa8; --over: #c2410c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --dim: #9aa5b1; --paper: #14181d; --rule: #343c46; --fits: #6cabdd; --over: #fb923c; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { border-top: 1px solid var(--rule); padding-top: 1.2rem; margin-top: 2.5rem; }
h3 { margin-top: 2rem; overflow-wrap: anywhere; } h4 { margin: 1rem 0 .3rem; color: var(--dim); font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .93em; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; } a { color: var(--fits); } .warn { color: var(--over); font-weight: 600; }
svg { display: block; width: 100%; max-width: 640px; height: auto; } svg.row { width: 200px; height: 12px; }
rect.fits { fill: var(--fits); } rect.over { fill: var(--over); } rect.none { fill: none; stroke: var(--rule); }
line { stroke: var(--ink); stroke-dasharray: 4 3; } text { fill: var(--dim); font-size: 11px; }
.note { color: var(--dim); } @media print { body { max-width: none; } h3 { break-after: avoid; } }
</style></head><body>
"""


@dataclass(frozen=True)
class FlowView:
    """What is shown of a flow: its sizing as JSON has it, load per task with today's number (empty: new) and with the
    recommended one, hottest partitions, and mean load by day of week and hour of day (empty: not measured); bytes per second."""

    sizing: Mapping[str, Any]
    before: tuple[float, ...]
    after: tuple[float, ...]
    hottest: tuple[tuple[str, float], ...]
    week: tuple[tuple[float | None, ...], ...]


def page(views: Sequence[FlowView], report: Mapping[str, Any] | None = None) -> str:
    """Return the page; the busiest flows come first, and only the first hundred are drawn."""
    ordered = sorted(views, key=lambda view: (-view.sizing["bytes_per_second"], view.sizing["flow_id"]))
    drawn = ordered[:_IN_FULL]
    parts = [_HEAD, "<h1>Load and sizing</h1>", _summary(ordered)]
    parts += [_fleet(report)] if report else []
    parts += ["<h2>Flows</h2>", _flow_table(ordered, len(drawn))]
    parts += [_flow(number, view) for number, view in enumerate(drawn)]
    if len(ordered) > len(drawn):
        parts.append(
            f'<p class="note">The {len(ordered) - len(drawn)} flows with less load stand in the table only.</p>'
        )
    return "".join([*parts, "</body></html>\n"])


def _summary(views: Sequence[FlowView]) -> str:
    load = rate_text(sum(view.sizing["bytes_per_second"] for view in views))
    tasks = number_of(sum(len(view.after) for view in views), "task")
    hot = sum(len(view.sizing["hot_partitions"]) for view in views)
    said = f"{number_of(len(views), 'flow')}, {load}, {tasks}, {number_of(hot, 'hot partition')}."
    return f"<p>{said} A dashed line is what one task is planned to carry; hours are UTC.</p>"


def _fleet(report: Mapping[str, Any]) -> str:
    failures = "".join(
        f'<p class="warn">{escape(one)}: its flows are not counted.</p>' for one in report["failures"].values()
    )
    connects = "".join(_connect(name, one) for name, one in report["connect"].items())
    return f"<h2>Connect clusters</h2>{failures}{connects}<p>{escape(report['pair_layout']['reason'])}</p>"


def _connect(name: str, one: Mapping[str, Any]) -> str:
    reasons = _sentences([*one["reasons"], *(loss["reason"] for loss in one["losses"])])
    note = (
        f'<p class="note">Recovery from a lag of {escape(one["lag"])}: {escape(one["note"])}.</p>'
        if one["note"]
        else ""
    )
    rows = recovery_rows(one)
    title = f"<h4>Time to catch up from a lag of {escape(one['lag'])}</h4>"
    table = f"{title}{_table(RECOVERY_COLUMNS, rows)}{_sentences([never_text(one)])}" if rows else ""
    return f"<h3>{escape(name)}</h3>{reasons}{note}{table}"


def _flow_table(views: Sequence[FlowView], drawn: int) -> str:
    rows = []
    for number, view in enumerate(views):
        sizing = view.sizing
        name = escape(sizing["flow_id"])
        linked = f'<a href="#flow-{number}">{name}</a>' if number < drawn else name
        share = sizing["busiest_bytes_per_second"] / sizing["usable_bytes_per_second"]
        warn = ' class="n warn"' if share > 1 else ' class="n"'
        today = sizing["now"]["tasks"] if sizing["now"] else "-"
        numbers = "".join(
            f'<td class="n">{each}</td>' for each in (rate_text(sizing["bytes_per_second"]), today, sizing["tasks"])
        )
        hot = len(sizing["hot_partitions"]) or ""
        rows.append(f'<tr><td>{linked}</td>{numbers}<td{warn}>{share * 100:.0f} %</td><td class="n">{hot}</td></tr>')
    head = _header(("flow", "load", "tasks now", "tasks", "busiest, of usable", "hot partitions"))
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _flow(number: int, view: FlowView) -> str:
    sizing = view.sizing
    usable, highest = sizing["usable_bytes_per_second"], max([*view.before, *view.after, 0.0])
    charts = [
        f"<h4>{title}: {number_of(len(loads), 'task')}, the busiest {rate_text(max(loads))}</h4>"
        + task_bars(loads, usable, highest, f"{title}: load of {number_of(len(loads), 'task')}")
        for title, loads in (("Before", view.before), ("After", view.after))
        if loads
    ]
    hot = f"<h4>Hottest partitions</h4>{partition_bars(view.hottest, usable)}" if view.hottest else ""
    parts = [_sentences(sizing["reasons"]), *charts, f'<div class="wide">{hot}</div>', _week(view)]
    return f'<h3 id="flow-{number}">{escape(sizing["flow_id"])}</h3>{"".join(parts)}'


def _week(view: FlowView) -> str:
    known = [
        (value, day, hour)
        for day, hours in enumerate(view.week)
        for hour, value in enumerate(hours)
        if value is not None
    ]
    if not known:
        return '<p class="note">No weekly pattern: nothing was measured.</p>'
    value, day, hour = max(known)
    peak = f"busiest on {DAYS[day]} at {hour:02d} h UTC with {rate_text(value)} on average"
    gaps = f"; {168 - len(known)} of 168 hours not measured" if len(known) < 168 else ""
    return f"<h4>Week: {peak}{gaps}</h4>{week_map(view.week, f'Load by hour of the week, {peak}')}"


def _sentences(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{_header(head)}{body}</table></div>'


def _header(names: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>"

"""The page of `size --page` and `fleet --page`: one HTML file that needs no script, no network and no other file.

In: views of flows, and the fleet's report as JSON has it. Out: markup; every name is escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from mm2mgr.output.charts import DAYS, MOST_BARS, escape, partition_bars, task_bars, week_map
from mm2mgr.output.fleet_text import RECOVERY_COLUMNS, RUNNING_COLUMNS, never_text, recovery_rows, running_rows
from mm2mgr.sizing.scenario import FlowView
from mm2mgr.sizing.words import number_of, rate_text

_IN_FULL = 100  # flows drawn; all of them stand in the table
_OPEN = 20  # of those drawn, how many are open where there are more: the others open by a click
TITLE = "mm2mgr: load and sizing"
"""What a page of mm2mgr is known by."""
_NUMBERS = {"workers", "tasks", "time", "raised to", "time then", "of flows", "load"}
# The policy keeps the promise of the docstring: a name that slipped through could still load and run nothing.
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{TITLE}</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --paper: #fbfbfa; --rule: #d9dde2; --fits: #2f6fa8; --over: #c2410c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --dim: #9aa5b1; --paper: #14181d; --rule: #343c46; --fits: #6cabdd; --over: #fb923c; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { border-top: 1px solid var(--rule); padding-top: 1.2rem; margin-top: 2.5rem; }
h3 { overflow-wrap: anywhere; margin: 2rem 0 .6rem; } h4, caption { margin: 1rem 0 .3rem; color: var(--dim); font-weight: 600; text-align: left; }
details { margin: .6rem 0; } summary { cursor: pointer; } summary h3 { display: inline; } details.flow { margin-top: 2rem; }
ul { padding-left: 1.2rem; } li { margin: .25rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .93em; margin: .8rem 0; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap; vertical-align: top; }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: min(11rem, 30vw); max-width: 30rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; } a { color: var(--fits); } .warn { color: var(--over); font-weight: 600; }
svg { display: block; width: 100%; max-width: 560px; height: auto; } svg.row { width: 120px; height: 12px; margin-top: .35rem; }
rect.fits { fill: var(--fits); } rect.over { fill: var(--over); } rect.none { fill: none; stroke: var(--rule); }
line { stroke: var(--ink); stroke-dasharray: 4 3; } text { fill: var(--dim); font-size: 12px; }
.note { color: var(--dim); } @media print { body { max-width: none; } h3 { break-after: avoid; } }
</style></head><body><main>
""".replace("{TITLE}", TITLE)


def page(views: Sequence[FlowView], report: Mapping[str, Any] | None = None, origin: str = "") -> str:
    """Return the page; the busiest flows come first, and only the first hundred are drawn. `origin`: when, and from what."""
    ordered = sorted(views, key=lambda view: (-view.sizing["bytes_per_second"], view.sizing["flow_id"]))
    drawn = ordered[:_IN_FULL]
    parts = [_HEAD, "<h1>Load and sizing</h1>", _summary(ordered)]
    parts += [f'<p class="note">{escape(origin)}</p>'] if origin else []
    parts += [_fleet(report)] if report else []
    parts += ["<h2>Flows</h2>", _flow_table(ordered, len(drawn))]
    parts += [_flow(number, view) for number, view in enumerate(drawn)]
    if len(ordered) > len(drawn):
        parts.append(
            f'<p class="note">The {len(ordered) - len(drawn)} flows with less load stand in the table only.</p>'
        )
    return "".join([*parts, "</main></body></html>\n"])


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
    running, rows = running_rows(one["running"]), recovery_rows(one)
    note = [f"Recovery from a lag of {one['lag']}: {one['note']}."] if one["note"] else []
    losses = [loss["reason"] for loss in one["losses"]]
    parts = [f"<h3>{escape(name)}</h3>", _sentences(one["reasons"])]
    parts += [_table("Tasks by worker, as Connect reports them", RUNNING_COLUMNS, running)] if running else []
    parts.append(_sentences([*one["running"]["reasons"], *losses, *note]))
    parts += [_table(f"Time to catch up from a lag of {one['lag']}", RECOVERY_COLUMNS, rows)] if rows else []
    return "".join([*parts, _sentences([never_text(one)])])


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
        rows.append(
            f'<tr><td class="name">{linked}</td>{numbers}<td{warn}>{share * 100:.0f} %</td><td class="n">{hot}</td></tr>'
        )
    columns = ("flow", "load", "tasks now", "tasks", "busiest, of usable", "hot partitions")
    return f'<div class="wide"><table>{_header(columns, columns[1:])}{"".join(rows)}</table></div>'


def _flow(number: int, view: FlowView) -> str:
    sizing = view.sizing
    usable, highest = sizing["usable_bytes_per_second"], max([*view.before, *view.after, 0.0])
    charts = [
        f"<h4>{_bars_title(title, loads)}</h4>{task_bars(loads, usable, highest, _bars_title(title, loads))}"
        for title, loads in (("Before", view.before), ("After", view.after))
        if loads
    ]
    hot = f'<div class="wide">{partition_bars(view.hottest, usable)}</div>' if view.hottest else ""
    parts = [_sentences(sizing["reasons"]), *charts, _task_table(view), hot, _week(view)]
    summary = f"<summary><h3>{escape(sizing['flow_id'])}</h3></summary>"
    return f'<details class="flow" id="flow-{number}"{" open" * (number < _OPEN)}>{summary}{"".join(parts)}</details>'


def _bars_title(title: str, loads: Sequence[float]) -> str:
    only = f"; the {MOST_BARS} heaviest are drawn" if len(loads) > MOST_BARS else ""
    return f"{title}: {number_of(len(loads), 'task')}, the busiest {rate_text(max(loads))}{only}"


def _task_table(view: FlowView) -> str:
    before, after = (sorted(loads, reverse=True)[:MOST_BARS] for loads in (view.before, view.after))
    rows = [
        (str(number), *("-" if load is None else rate_text(load) for load in pair))
        for number, pair in enumerate(zip_longest(before, after), 1)
    ]
    columns = ("heaviest first", "before", "after")
    return _folded("Load per task in numbers", _table("", columns, rows, columns))


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
    drawn = week_map(view.week, f"Load by hour of the week, {peak}")
    scale = f'<p class="note">Faint is nothing, full is {rate_text(value)}, empty is not measured.</p>'
    table = _table("", ("day", "mean", "busiest hour", "quietest hour"), _day_rows(view.week), {"mean"})
    return f"<h4>Week: {peak}{gaps}</h4>{drawn}{scale}{_folded('Week in numbers', table)}"


def _day_rows(week: Sequence[Sequence[float | None]]) -> list[tuple[str, ...]]:
    rows = []
    for name, hours in zip(DAYS, week, strict=False):
        known = [(value, hour) for hour, value in enumerate(hours) if value is not None]
        if known:
            mean = sum(value for value, _ in known) / len(known)
            ends = (f"{hour:02d} h: {rate_text(value)}" for value, hour in (max(known), min(known)))
            rows.append((name, rate_text(mean), *ends))
    return rows


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{title}</summary>{inside}</details>"


def _sentences(lines: Iterable[str]) -> str:
    said = "".join(f"<li>{escape(line)}</li>" for line in lines if line)
    return f"<ul>{said}</ul>" if said else ""


def _table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = frozenset(_NUMBERS)
) -> str:
    kinds = ['class="n"' if name in right else 'class="name"' for name in head]
    body = "".join(
        f"<tr>{''.join(f'<td {kind}>{escape(value)}</td>' for kind, value in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f'<div class="wide"><table>{caption}{_header(head, right)}{body}</table></div>'


def _header(names: Sequence[str], right: Collection[str]) -> str:
    cells = (f'<th scope="col"{" class=n" * (name in right)}>{escape(name)}</th>' for name in names)
    return f"<tr>{''.join(cells)}</tr>"

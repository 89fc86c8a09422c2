"""The page of `size --page` and `fleet --page`: values for `page.html.j2`, one HTML file without script or network.

Names reach the markup through Jinja's autoescape, with characters that reorder or hide text made visible; charts are SVG
from `charts`, which escapes its own text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import jinja2

from mm2mgr.output.charts import DAYS, MOST_BARS, ClusterLink, links, partition_bars, task_bars, week_map
from mm2mgr.output.fleet_text import RECOVERY_COLUMNS, RUNNING_COLUMNS, never_text, recovery_rows, running_rows
from mm2mgr.sizing.scenario import FlowView
from mm2mgr.sizing.words import rate_text
from mm2mgr.text import number_of, visible

_IN_FULL = 100  # flows drawn; the table has all of them
_OPEN = 20  # of those drawn, how many are open where there are more: the others open by a click
_PAIRS = 60  # drawn between sources and targets
TITLE = "mm2mgr: load and sizing"
"""What a page of mm2mgr is known by."""
_NUMBERS = frozenset({"workers", "tasks", "time", "raised to", "time then", "of flows", "load"})

Values = Mapping[str, Any]


def page(views: Sequence[FlowView], report: Values | None = None, origin: str = "") -> str:
    """Return the page, busiest flows first; only the first hundred are drawn. `origin`: when it was written, and from what."""
    ordered = sorted(views, key=lambda view: (-view.sizing["bytes_per_second"], view.sizing["flow_id"]))
    connects = [_connect(name, one) for name, one in report["connect"].items()] if report else []
    return _template().render(
        title=TITLE,
        origin=origin,
        summary=_summary(ordered),
        topology=_topology(ordered),
        report=report,
        connects=connects,
        rows=[_row(view.sizing) for view in ordered],
        flows=[_flow(view) for view in ordered[:_IN_FULL]],
        open=_OPEN,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mm2mgr", "output"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
    )
    return environment.get_template("page.html.j2")


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", right: Collection[str] = _NUMBERS
) -> dict[str, Any]:
    return {"title": title, "columns": columns, "rows": rows, "right": right}


def _summary(views: Sequence[FlowView]) -> str:
    load = rate_text(sum(view.sizing["bytes_per_second"] for view in views))
    tasks = number_of(sum(len(view.after) for view in views), "task")
    hot = sum(len(view.sizing["hot_partitions"]) for view in views)
    return f"{number_of(len(views), 'flow')}, {load}, {tasks}, {number_of(hot, 'hot partition')}."


def _topology(views: Sequence[FlowView]) -> dict[str, Any]:
    """Return the pairs of clusters with their flows, load and tasks, busiest first: as a table, and drawn."""
    by_pair: dict[tuple[str, str], list[FlowView]] = defaultdict(list)
    for view in views:
        source, _, target = view.sizing["flow_id"].partition(":")[2].partition("->")
        by_pair[source, target].append(view)
    pairs = [
        (
            ClusterLink(
                *ends, sum(view.sizing["bytes_per_second"] for view in own), sum(len(view.after) for view in own)
            ),
            own,
        )
        for ends, own in by_pair.items()
    ]
    pairs.sort(key=lambda pair: (-pair[0].rate, pair[0]))
    rows = [(link.source, link.target, str(len(own)), rate_text(link.rate), str(link.tasks)) for link, own in pairs]
    table = _table(("source", "target", "flows", "load", "tasks"), rows, right={"flows", "load", "tasks"})
    drawn = links([link for link, _ in pairs[:_PAIRS]]) if pairs else ""
    return {**table, "drawn": drawn, "left_out": max(0, len(pairs) - _PAIRS)}


def _connect(name: str, one: Values) -> dict[str, Any]:
    note = [f"Catch-up from a lag of {one['lag']}: {one['note']}."] if one["note"] else []
    return {
        "name": name,
        "reasons": one["reasons"],
        "running": _table(RUNNING_COLUMNS, running_rows(one["running"]), "Tasks by worker, as Connect reports them"),
        "findings": [*one["running"]["reasons"], *(loss["reason"] for loss in one["losses"]), *note],
        "recoveries": _table(RECOVERY_COLUMNS, recovery_rows(one), f"Time to catch up from a lag of {one['lag']}"),
        "never": [text] if (text := never_text(one)) else [],
    }


def _row(sizing: Values) -> dict[str, Any]:
    share = sizing["busiest_bytes_per_second"] / sizing["usable_bytes_per_second"]
    return {
        "flow": sizing["flow_id"],
        "tasks": sizing["tasks"],
        "now": sizing["now"]["tasks"] if sizing["now"] else "-",
        "load": rate_text(sizing["bytes_per_second"]),
        "share": f"{share * 100:.0f} %",
        "is_over": share > 1,
        "hot": len(sizing["hot_partitions"]) or "",
    }


def _flow(view: FlowView) -> dict[str, Any]:
    sizing = view.sizing
    usable, highest = sizing["usable_bytes_per_second"], max([*view.before, *view.after, 0.0])
    charts = [
        {"title": title, "drawn": task_bars(loads, usable, highest, title)}
        for name, loads in (("Before", view.before), ("After", view.after))
        if loads and (title := _bars_title(name, loads))
    ]
    return {
        "id": sizing["flow_id"],
        "reasons": [reason for reason in sizing["reasons"] if reason],
        "charts": charts,
        "tasks": _task_table(view),
        "hottest": partition_bars(view.hottest, usable) if view.hottest else "",
        "week": _week(view),
    }


def _bars_title(title: str, loads: Sequence[float]) -> str:
    only = f"; the {MOST_BARS} heaviest are drawn" if len(loads) > MOST_BARS else ""
    return f"{title}: {number_of(len(loads), 'task')}, the busiest {rate_text(max(loads))}{only}"


def _task_table(view: FlowView) -> dict[str, Any]:
    before, after = (sorted(loads, reverse=True)[:MOST_BARS] for loads in (view.before, view.after))
    rows = [
        (str(number), *("-" if load is None else rate_text(load) for load in pair))
        for number, pair in enumerate(zip_longest(before, after), 1)
    ]
    columns = ("heaviest first", "before", "after")
    return _table(columns, rows, right=columns)


def _week(view: FlowView) -> dict[str, Any] | None:
    """Return the weekly pattern, drawn and as a table by day; None where nothing was measured."""
    known = [
        (value, day, hour)
        for day, hours in enumerate(view.week)
        for hour, value in enumerate(hours)
        if value is not None
    ]
    if not known:
        return None
    value, day, hour = max(known)
    peak = f"busiest on {DAYS[day]} at {hour:02d} h UTC with {rate_text(value)} on average"
    gaps = f"; {168 - len(known)} of 168 hours not measured" if len(known) < 168 else ""
    table = _table(("day", "mean", "busiest hour", "quietest hour"), _day_rows(view.week), right={"mean"})
    drawn = week_map(view.week, f"Load by hour of the week, {peak}")
    return {**table, "title": f"Week: {peak}{gaps}", "drawn": drawn, "most": rate_text(value)}


def _day_rows(week: Sequence[Sequence[float | None]]) -> list[tuple[str, ...]]:
    rows = []
    for name, hours in zip(DAYS, week, strict=False):
        known = [(value, hour) for hour, value in enumerate(hours) if value is not None]
        if known:
            mean = sum(value for value, _ in known) / len(known)
            ends = (f"{hour:02d} h: {rate_text(value)}" for value, hour in (max(known), min(known)))
            rows.append((name, rate_text(mean), *ends))
    return rows

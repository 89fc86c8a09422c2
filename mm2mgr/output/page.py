"""The pages of `size`, `fleet` and `link explain`, and what the pages of `serve` are drawn with: values for templates,
each one HTML file without script or network.

Names reach the markup through Jinja's autoescape, with characters that reorder or hide text made visible; the charts,
inline SVG styled by the page, escape their own text. Every figure has a label and its numbers as a table, for readers
who see no picture.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape as escape_markup
from itertools import zip_longest

import jinja2

from mm2mgr.link_forecast import SETTINGS, Curve, CurvePoint, LinkComparison, Settings
from mm2mgr.operations.size import ConnectReport, FleetReport
from mm2mgr.output.load_text import (
    DAYS,
    OVER,
    curve_table,
    forecast_heading,
    forecast_table,
    lag_note,
    recovery_notes,
    recovery_table,
    running_table,
    value_text,
)
from mm2mgr.output.sankey import Drawing, Stream, sankey
from mm2mgr.output.tables import Table
from mm2mgr.sizing.scenario import FlowView
from mm2mgr.sizing.tasks import Sizing
from mm2mgr.text import number_of, rate_text, visible

_IN_FULL = 100  # flows drawn; the table has all of them
_OPEN = 20  # of those drawn, how many are open where there are more: the others open by a click
_PAIRS = 240  # drawn between sources and targets
TITLES = "mm2mgr: load and"
SIZE_TITLE = f"{TITLES} tasks (size)"
FLEET_TITLE = f"{TITLES} workers (fleet)"
LINK_TITLE = "mm2mgr: long links"
"""What the pages of mm2mgr are known by; those of loads, and older ones, begin alike."""

Context = dict[str, object]
"""What a template needs."""


def page(views: Sequence[FlowView], report: FleetReport | None = None, origin: str = "") -> str:
    """Return the page, busiest flows first; only the first hundred are drawn. `origin`: when it was written, and from
    what."""
    ordered = sorted(views, key=lambda view: (-view.sizing.bytes_per_second, view.sizing.flow_id))
    connects = [_connect(name, connect) for name, connect in report.connects.items()] if report else []
    return template("page.html.j2").render(
        title=FLEET_TITLE if report else SIZE_TITLE,
        heading="Load and workers" if report else "Load and tasks",
        origin=origin,
        summary=_summary(ordered),
        topology=_topology(ordered),
        report=report,
        connects=connects,
        rows=[_row(view.sizing) for view in ordered],
        flows=[_flow(view) for view in ordered[:_IN_FULL]],
        open=_OPEN,
    )


def link_page(flows: Iterable[LinkComparison], origin: str = "") -> str:
    """Return the page of `link explain`."""
    return template("link.html.j2").render(title=LINK_TITLE, origin=origin, flows=list(map(_over_link, flows)))


def _over_link(comparison: LinkComparison) -> Context:
    stalls = [
        f"With {row.settings} beside the {row.placement}: {row.forecast.verdict}."
        for row in comparison.rows
        if row.forecast.stall
    ]
    return {
        "id": comparison.flow,
        "heading": forecast_heading(comparison),
        "verdict": comparison.verdict,
        "table": forecast_table(comparison),
        "stalls": stalls,
        "curves": [
            {"title": f"Rate over {OVER[curve.over]}", "drawn": curves(curve), "table": curve_table(curve, drawn=False)}
            for curve in comparison.curves
        ],
        "not_drawn": _NOT_DRAWN,
    }


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of a page: it escapes what it is given, and shows characters that reorder or hide text."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("mm2mgr", folder) for folder in ("output", "serve/pages")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
    )
    return environment.get_template(name)


def _summary(views: Sequence[FlowView]) -> str:
    load = rate_text(sum(view.sizing.bytes_per_second for view in views))
    tasks = number_of(sum(len(view.after) for view in views), "task")
    hot = sum(len(view.sizing.hot_partitions) for view in views)
    return f"{number_of(len(views), 'flow')}, {load}, {tasks}, {number_of(hot, 'hot partition')}."


def _topology(views: Sequence[FlowView]) -> Context:
    streams = [_stream(view) for view in views]
    by_pair: dict[tuple[str, ...], list[Stream]] = defaultdict(list)
    for stream in streams:
        by_pair[stream.places].append(stream)
    pairs = sorted((-sum(stream.rate or 0.0 for stream in own), places, own) for places, own in by_pair.items())
    rows = [
        (*places, str(len(own)), rate_text(-rate), str(sum(stream.tasks for stream in own)))
        for rate, places, own in pairs
    ]
    figures = ("flows", "load", "tasks")
    table = Table(("source", "Connect cluster", "target", *figures), rows, right=figures)
    shown = {places for _, places, _ in pairs[:_PAIRS]}
    return {
        "table": table,
        "drawn": _estate([stream for stream in streams if stream.places in shown]) if pairs else "",
        "left_out": max(0, len(pairs) - _PAIRS),
    }


def _stream(view: FlowView) -> Stream:
    sizing = view.sizing
    source, _, target = sizing.flow_id.partition(":")[2].partition("->")
    is_over = sizing.busiest_bytes_per_second > sizing.usable_bytes_per_second
    state = "over" if is_over else "fits"
    return Stream((source, view.connect, target), sizing.bytes_per_second, state, len(view.after))


def _estate(streams: Sequence[Stream]) -> str:
    names = ("source", "Connect cluster", "target")
    columns = [place for place in range(3) if any(stream.places[place] for stream in streams)]
    drawing = Drawing(tuple(names[place] for place in columns), _STATES, rate_text)
    ends = [len({stream.places[place] for stream in streams}) for place in (0, 2)]
    label = (
        f"{number_of(ends[0], 'source cluster')}, {number_of(ends[1], 'target cluster')}; the numbers are in a table"
    )
    drawn = [stream._replace(places=tuple(stream.places[place] for place in columns)) for stream in streams]
    return sankey(drawn, drawing, label)


_STATES = {"over": ("!", "a task gets more than its usable capacity"), "fits": ("", "")}


def _connect(name: str, connect: ConnectReport) -> Context:
    ahead = connect.outlook
    note = [lag_note(ahead)] if ahead.note else []
    return {
        "name": name,
        "reasons": connect.need.reasons,
        "running": running_table(connect, title="Tasks by worker, as Connect reports them"),
        "findings": [*connect.running_reasons, *(loss.reason for loss in ahead.losses), *note],
        "recoveries": recovery_table(ahead, title=f"Time to catch up from a lag of {ahead.lag}"),
        "never": recovery_notes(ahead),
    }


def _row(sizing: Sizing) -> Context:
    share = sizing.busiest_bytes_per_second / sizing.usable_bytes_per_second
    return {
        "flow": sizing.flow_id,
        "tasks": sizing.tasks,
        "now": sizing.now.tasks if sizing.now else "-",
        "load": rate_text(sizing.bytes_per_second),
        "share": f"{share * 100:.0f} %",
        "is_over": share > 1,
        "hot": len(sizing.hot_partitions) or "",
    }


def _flow(view: FlowView) -> Context:
    sizing = view.sizing
    usable, highest = sizing.usable_bytes_per_second, max([*view.before, *view.after, 0.0])
    charts = []
    for name, loads in (("Before", view.before), ("After", view.after)):
        if loads:
            only = f"; the {MOST_BARS} heaviest are drawn" if len(loads) > MOST_BARS else ""
            title = f"{name}: {number_of(len(loads), 'task')}, the busiest {rate_text(max(loads))}{only}"
            charts.append({"title": title, "drawn": task_bars(loads, usable, highest, title)})
    return {
        "id": sizing.flow_id,
        "reasons": [reason for reason in sizing.reasons if reason],
        "charts": charts,
        "tasks": _task_table(view),
        "hottest": partition_bars(view.hottest, usable) if view.hottest else "",
        "week": _week(view),
    }


def _task_table(view: FlowView) -> Table:
    before, after = (sorted(loads, reverse=True)[:MOST_BARS] for loads in (view.before, view.after))
    rows = [
        (str(number), *("-" if load is None else rate_text(load) for load in pair))
        for number, pair in enumerate(zip_longest(before, after), 1)
    ]
    columns = ("heaviest first", "before", "after")
    return Table(columns, rows, right=columns)


def _week(view: FlowView) -> Context | None:
    known_hours, rows = [], []
    for day, hours in enumerate(view.week):
        measured = [(value, hour) for hour, value in enumerate(hours) if value is not None]
        known_hours += [(value, day, hour) for value, hour in measured]
        if measured:
            mean = sum(value for value, _ in measured) / len(measured)
            ends = (f"{hour:02d} h: {rate_text(value)}" for value, hour in (max(measured), min(measured)))
            rows.append((DAYS[day], rate_text(mean), *ends))
    if not known_hours:
        return None
    value, day, hour = max(known_hours)
    peak = f"busiest on {DAYS[day]} at {hour:02d} h UTC with {rate_text(value)} on average"
    gaps = f"; {168 - len(known_hours)} of 168 hours not measured" if len(known_hours) < 168 else ""
    title = f"Week: {peak}{gaps}"
    table = Table(("day", "mean", "busiest hour", "quietest hour"), rows, right={"mean"}, title=title)
    drawn = week_map(view.week, f"Load by hour of the week, {peak}")
    return {"table": table, "title": title, "drawn": drawn, "most": rate_text(value)}


MOST_BARS = 150
# The width of all figures: on a telephone, where it shrinks by a quarter, the text is still readable.
_WIDTH = 480.0
_AXIS, _BARS, _BASE = 78.0, 400.0, 118.0
_TOP = 8.0
_CELL, _DAYS = 18.5, 34.0


def escape(text: str) -> str:
    """Return foreign text as markup that shows it, line breaks and bidi characters too."""
    return escape_markup(visible(text))


_NOT_DRAWN = "Nothing to draw: there is one value, or nothing is mirrored at any of them."
_DASHES: dict[str, str] = dict(zip(SETTINGS, ("2 4", "9 5", ""), strict=True))
_NARROW, _LINE = 14.0, 16.0
"""Between numbers of an axis, and between lines of text."""


def curves(curve: Curve) -> str:
    """Draw a line per settings over a logarithmic scale, the tree's drawn full, and mark the value that the flow has
    now; nothing where there is no line to see.

    A legend below names the lines, since lines that meet would have their names one upon the other.
    """
    points = curve.points
    top = max(max(point.rates.values()) for point in points)
    if len(points) < 2 or not top:
        return ""
    values = [math.log(point.value) for point in points]
    span = values[-1] - values[0]

    def place(value: float) -> float:
        return _AXIS + (value - values[0]) / span * (_WIDTH - _AXIS - _NARROW)

    def height(rate: float) -> float:
        return _BASE - (_BASE - _TOP) * rate / top

    drawn = []
    for value, point in zip(values, points, strict=True):
        if set(point.marks) & {"here", SETTINGS[-1]}:
            drawn.append(f'<line x1="{place(value):.1f}" x2="{place(value):.1f}" y1="{_TOP:g}" y2="{_BASE:g}"/>')
    for number, settings in enumerate(SETTINGS):
        path = " ".join(
            f"{place(value):.1f},{height(point.rates[settings]):.1f}"
            for value, point in zip(values, points, strict=True)
        )
        drawn.append(_line(path, settings, settings))
        below = _BASE + _LINE * (number + 2)
        drawn.append(_line(f"{_AXIS:g},{below - 4:g} {_AXIS + 40:g},{below - 4:g}", settings))
        drawn.append(_text(_AXIS + 50, below, escape(_in_legend(settings, points))))
    drawn += [_text(_AXIS - 6, _TOP + 4, rate_text(top), "end"), _text(_AXIS - 6, _BASE, "0", "end")]
    for number, anchor in ((0, "start"), (-1, "end")):
        drawn.append(_text(place(values[number]), _BASE + 14, value_text(curve.over, points[number].value), anchor))
    label = f"rate over {OVER[curve.over]}; the numbers are in the table below"
    return _figure(_BASE + _LINE * (len(SETTINGS) + 1) + 6, label, "".join(drawn))


def _line(path: str, settings: str, title: str = "") -> str:
    style = f' stroke-dasharray="{_DASHES[settings]}"' if _DASHES[settings] else ""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<polyline class="curve" points="{path}"{style}>{inside}</polyline>'


def _in_legend(settings: Settings, points: Sequence[CurvePoint]) -> str:
    """Return the name of a line, and that it lies on the tree's own, where it does."""
    tree = SETTINGS[-1]
    same = all(math.isclose(point.rates[settings], point.rates[tree], rel_tol=0.01) for point in points)
    return f"{settings}: as {tree}" if same and settings != tree else settings


def task_bars(loads: Sequence[float], usable: float, highest: float, label: str) -> str:
    """Draw the load of each task, heaviest first, against a line at the usable capacity; `highest` is the top of the
    scale."""
    shown = sorted(loads, reverse=True)[:MOST_BARS]
    top = max(highest, usable, 1.0)
    step = min(32.0, _BARS / max(1, len(shown)))
    bars = "".join(
        _bar(number, step, load / top, f"{number + 1} of {len(loads)}: {rate_text(load)}", load > usable)
        for number, load in enumerate(shown)
    )
    return _figure(_BASE + 6, label, bars + _axis(usable, top, max(shown, default=0.0)))


def partition_bars(partitions: Sequence[tuple[str, float]], usable: float) -> str:
    """Draw the hottest partitions as rows of a table, each with a bar; those above the usable capacity stand out."""
    top = max([rate for _, rate in partitions] + [usable, 1.0])
    rows = (
        f'<tr><td class="name">{escape(name)}</td><td class="n">{rate_text(rate)}</td>'
        f'<td class="n{" warn" if rate > usable else ""}">{rate / usable * 100:.0f} %</td>'
        '<td><svg class="row" viewBox="0 0 120 12" aria-hidden="true">'
        f'<rect class="{_kind(rate > usable)}" width="{rate / top * 120:.1f}" height="12"/></svg></td></tr>'
        for name, rate in partitions
    )
    head = "".join(f'<th scope="col"{more}>{name}</th>' for name, more in _PARTITION_HEAD)
    return f"<table><caption>Hottest partitions</caption><tr>{head}<td></td></tr>{''.join(rows)}</table>"


_PARTITION_HEAD = (("partition", ""), ("rate", ' class="n"'), ("of usable", ' class="n"'))


def week_map(week: Sequence[Sequence[float | None]], label: str) -> str:
    """Draw the mean load of every hour of the week (UTC): the fuller, the higher; empty where nothing was measured."""
    top = max((value for day in week for value in day if value is not None), default=0.0) or 1.0
    cells = "".join(_hour(day, hour, value, top) for day, hours in enumerate(week) for hour, value in enumerate(hours))
    days = "".join(_text(0, 17 + (number + 0.72) * _CELL, name) for number, name in enumerate(DAYS))
    hours = "".join(_text(_DAYS + hour * _CELL, 12, f"{hour:02d}") for hour in range(0, 24, 3))
    return _figure(18 + 7 * _CELL, label, cells + days + hours)


def _bar(number: int, step: float, share: float, label: str, over: bool) -> str:
    height = max(0.5, (_BASE - _TOP) * share)
    place = f'x="{_AXIS + number * step:.2f}" y="{_BASE - height:.2f}" width="{step * 0.85:.2f}" height="{height:.2f}"'
    return f'<rect class="{_kind(over)}" {place}><title>{label}</title></rect>'


def _axis(usable: float, top: float, highest: float) -> str:
    line, peak = (_BASE - (_BASE - _TOP) * rate / top for rate in (usable, highest))
    mark = f'<line x1="{_AXIS:g}" x2="{_WIDTH:g}" y1="{line:.1f}" y2="{line:.1f}"/>'
    labels = _text(_AXIS - 6, line + 4, rate_text(usable), "end")
    if abs(line - peak) > 14:
        labels += _text(_AXIS - 6, peak + 4, rate_text(highest), "end")
    return mark + labels


def _hour(day: int, hour: int, value: float | None, top: float) -> str:
    place = f'x="{_DAYS + hour * _CELL:g}" y="{17 + day * _CELL:g}" width="{_CELL - 1:g}" height="{_CELL - 1:g}"'
    label = f"{DAYS[day]} {hour:02d} h: {'not measured' if value is None else rate_text(value)}"
    style = 'class="none"' if value is None else f'class="fits" fill-opacity="{0.08 + 0.92 * value / top:.3f}"'
    return f"<rect {style} {place}><title>{label}</title></rect>"


def _kind(over: bool) -> str:
    return "over" if over else "fits"


def _text(left: float, top: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{left:g}" y="{top:g}" text-anchor="{anchor}">{text}</text>'


def _figure(height: float, label: str, inside: str) -> str:
    size = f'viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}"'
    return f"<svg {size}>{inside}</svg>"

"""Small charts as inline SVG, styled by the page: clusters and what flows between them, tasks, partitions, a week by hours.

Every figure has a label, and the page has its numbers as a table, for readers who see no picture. Names are escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escape_markup
from typing import NamedTuple

from mm2mgr.sizing.words import rate_text
from mm2mgr.text import number_of, visible

MOST_BARS = 150
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# The width of all figures: on a telephone, where it shrinks by a quarter, the text is still readable.
_WIDTH = 480.0
_AXIS, _BARS, _BASE = 78.0, 400.0, 118.0
_TOP = 8.0
_CELL, _DAYS = 18.5, 34.0
_LEFT, _STEP, _LETTERS = 150, 26, 22
_TASK = "task"


def escape(text: str) -> str:
    """Return foreign text as markup that shows it, line breaks and bidi characters too."""
    return escape_markup(visible(text))


class ClusterLink(NamedTuple):
    """What flows from one cluster to another: bytes per second, and the tasks that copy them."""

    source: str
    target: str
    rate: float
    tasks: int


def links(pairs: Sequence[ClusterLink]) -> str:
    """Draw source clusters on the left, targets on the right, and a line per pair: the thicker, the more load."""
    sides = [list(dict.fromkeys(names)) for names in ([pair.source for pair in pairs], [pair.target for pair in pairs])]
    height = _STEP * max(map(len, sides)) + 8
    places = [{name: (number + 0.5) * height / len(side) for number, name in enumerate(side)} for side in sides]
    most = max(pair.rate for pair in pairs) or 1.0
    lines = "".join(
        f'<path d="M{_LEFT} {(top := places[0][pair.source]):.1f} C 240 {top:.1f} 240 {(end := places[1][pair.target]):.1f}'
        f' {_WIDTH - _LEFT:g} {end:.1f}" stroke-width="{1 + 7 * pair.rate / most:.1f}">'
        f"<title>{escape(f'{pair.source} -> {pair.target}: {rate_text(pair.rate)}, {number_of(pair.tasks, _TASK)}')}</title></path>"
        for pair in pairs
    )
    names = "".join(
        f'<text class="end" x="{left:g}" y="{top + 4:.1f}" text-anchor="{anchor}">{escape(_fitting(name))}</text>'
        for side, left, anchor in ((0, _LEFT - 8, "end"), (1, _WIDTH - _LEFT + 8, "start"))
        for name, top in places[side].items()
    )
    return _figure(height, f"{len(sides[0])} source clusters, {len(sides[1])} target clusters", lines + names)


def _fitting(name: str) -> str:
    """Return a name that fits beside the lines, without its middle; the table has the whole name."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS // 2]}…{name[1 - _LETTERS // 2 :]}"


def task_bars(loads: Sequence[float], usable: float, highest: float, label: str) -> str:
    """Draw the load of each task, heaviest first, against a line at the usable capacity; `highest` is the top of the scale."""
    shown = sorted(loads, reverse=True)[:MOST_BARS]
    top = max(highest, usable, 1.0)
    step = min(32.0, _BARS / max(1, len(shown)))
    bars = "".join(
        _bar(number, step, load / top, f"{number + 1} of {len(loads)}: {rate_text(load)}", load > usable)
        for number, load in enumerate(shown)
    )
    return _figure(_BASE + 2, label, bars + _axis(usable, top, max(shown, default=0.0)))


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
    """Draw the line at the usable capacity with its rate, and the rate of the heaviest task where there is room."""
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

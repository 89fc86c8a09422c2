"""Small charts as inline SVG: bars of tasks, bars of partitions, a week by hours. In: numbers. Out: markup, styled by the page.

Every figure has a text of its own for readers that see no picture; names are escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mm2mgr.sizing.words import rate_text

_WIDTH, _HEIGHT = 600.0, 110.0
_MOST_BARS = 150
_CELL = 22.0
_LEFT = 34.0
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def task_bars(loads: Sequence[float], usable: float, highest: float, label: str) -> str:
    """Draw the load of each task, heaviest first, against a line at what is usable; `highest` is the top of the scale."""
    shown = sorted(loads, reverse=True)[:_MOST_BARS]
    top = max(highest, usable, 1.0) * 1.05
    step = min(40.0, _WIDTH / max(1, len(shown)))
    bars = "".join(_bar(number * step, step, load, load / top, load > usable) for number, load in enumerate(shown))
    line = _HEIGHT * (1 - usable / top)
    mark = f'<line x1="0" x2="{_WIDTH:g}" y1="{line:.1f}" y2="{line:.1f}"><title>usable: {rate_text(usable)}</title></line>'
    return _figure(_WIDTH, _HEIGHT, label, bars + mark)


def partition_bars(partitions: Sequence[tuple[str, float]], usable: float) -> str:
    """Draw the hottest partitions as rows of a table, each with a bar; those above what is usable stand out."""
    top = max([rate for _, rate in partitions] + [usable, 1.0])
    rows = (
        f'<tr><td>{escape(name)}</td><td class="n">{rate_text(rate)}</td>'
        f'<td><svg class="row" viewBox="0 0 200 12" role="img" aria-label="{rate / usable * 100:.0f} % of what is usable">'
        f'<rect class="{_kind(rate > usable)}" width="{rate / top * 200:.1f}" height="12"/></svg></td>'
        f'<td class="n">{rate / usable * 100:.0f} %</td></tr>'
        for name, rate in partitions
    )
    head = '<tr><th>partition</th><th class="n">rate</th><th></th><th class="n">of usable</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def week_map(week: Sequence[Sequence[float | None]], label: str) -> str:
    """Draw the mean load of every hour of the week (UTC): the fuller, the higher; empty where nothing was measured."""
    top = max((value for day in week for value in day if value is not None), default=0.0) or 1.0
    cells = "".join(_hour(day, hour, value, top) for day, hours in enumerate(week) for hour, value in enumerate(hours))
    days = "".join(_text(0, 15 + (number + 0.75) * _CELL, name) for number, name in enumerate(DAYS))
    hours = "".join(_text(_LEFT + hour * _CELL, 11, f"{hour:02d}") for hour in range(0, 24, 3))
    return _figure(_LEFT + 24 * _CELL, 17 + 7 * _CELL, label, cells + days + hours)


def _bar(left: float, step: float, load: float, share: float, over: bool) -> str:
    height = max(0.5, _HEIGHT * share)
    place = f'x="{left:.2f}" y="{_HEIGHT - height:.2f}" width="{step * 0.85:.2f}" height="{height:.2f}"'
    return f'<rect class="{_kind(over)}" {place}><title>{rate_text(load)}</title></rect>'


def _hour(day: int, hour: int, value: float | None, top: float) -> str:
    place = f'x="{_LEFT + hour * _CELL:g}" y="{17 + day * _CELL:g}" width="{_CELL - 1:g}" height="{_CELL - 1:g}"'
    said = f"{DAYS[day]} {hour:02d} h: {'not measured' if value is None else rate_text(value)}"
    style = 'class="none"' if value is None else f'class="fits" fill-opacity="{0.08 + 0.92 * value / top:.3f}"'
    return f"<rect {style} {place}><title>{said}</title></rect>"


def _kind(over: bool) -> str:
    return "over" if over else "fits"


def _text(left: float, top: float, text: str) -> str:
    return f'<text x="{left:g}" y="{top:g}">{text}</text>'


def _figure(width: float, height: float, label: str, inside: str | Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label, quote=True)}">{"".join(inside)}</svg>'

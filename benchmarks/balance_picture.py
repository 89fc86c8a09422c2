"""The picture of balance.py: bytes and records per second of tasks and workers over time, control above candidate, and their lag.

In: series by time. Out: one SVG without a script or a font of its own, readable on a light and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#2f81f7", "#e8833a", "#2da44e", "#bf5af2")
_WIDTH, _HEIGHT, _LEFT, _TOP = 300.0, 130.0, 58.0, 30.0
_COLUMN, _ROW = _LEFT + _WIDTH + 12, _TOP + _HEIGHT + 34


@dataclass(frozen=True)
class Line:
    """One line of a panel: its name and its values, one for each of the panel's times."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One panel: its title, its unit and its lines over the same times (seconds)."""

    title: str
    unit: str
    seconds: Sequence[float]
    lines: Sequence[Line]


def draw(rows: Sequence[Sequence[Panel]], mark_seconds: float, note: str) -> str:
    """Draw panels in rows; those of a column have one scale, and a dashed line stands at `mark_seconds`."""
    tops = [
        max((value for row in rows for line in row[column].lines for value in line.values), default=1.0)
        for column in range(len(rows[0]))
    ]
    width, height = len(tops) * _COLUMN + 8, len(rows) * _ROW + 20
    body = "".join(
        f'<g transform="translate({column * _COLUMN + _LEFT:g} {row * _ROW + _TOP:g})">'
        + "".join(_panel(panel, _round_up(tops[column]), mark_seconds))
        + "</g>"
        for row, panels in enumerate(rows)
        for column, panel in enumerate(panels)
    )
    text = f'<text x="{_LEFT:g}" y="{height - 8:g}" class="s">{escape(note)}</text>'
    style = "text{font:12px sans-serif;fill:#7d8590}.t{font-weight:600}.s{font-size:11px}.g{stroke:#7d8590;stroke-opacity:.3}.m{stroke:#7d8590;stroke-dasharray:4 3}polyline{fill:none;stroke-width:1.6}"
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{style}</style>{body}{text}</svg>\n'


def _round_up(value: float) -> float:
    step = 10 ** math.floor(math.log10(value)) / 2 if value > 0 else 1.0
    return math.ceil(value / step) * step


def _panel(panel: Panel, top: float, mark_seconds: float) -> Iterator[str]:
    first, last = panel.seconds[0], panel.seconds[-1]

    def across(seconds: float) -> float:
        return (seconds - first) / (last - first) * _WIDTH

    yield f'<text class="t" y="-12">{escape(panel.title)}</text>'
    for share in (0.0, 0.5, 1.0):
        y = _HEIGHT * (1 - share)
        yield f'<line class="g" x1="0" x2="{_WIDTH:g}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<text class="s" x="-6" y="{y + 4:g}" text-anchor="end">{top * share:g}{escape(" " + panel.unit if share == 1 else "")}</text>'
    yield f'<line class="m" x1="{across(mark_seconds):.1f}" x2="{across(mark_seconds):.1f}" y1="0" y2="{_HEIGHT:g}"/>'
    for number, line in enumerate(panel.lines):
        points = " ".join(
            f"{across(s):.1f},{_HEIGHT * (1 - v / top):.1f}" for s, v in zip(panel.seconds, line.values, strict=True)
        )
        yield f'<polyline stroke="{_COLOURS[number % len(_COLOURS)]}" points="{points}"><title>{escape(line.name)}</title></polyline>'
    yield f'<text class="s" y="{_HEIGHT + 14:g}">{first:.0f} s</text>'
    yield f'<text class="s" x="{_WIDTH:g}" y="{_HEIGHT + 14:g}" text-anchor="end">{last:.0f} s</text>'

"""Charts over time as SVG, whole without script: clock times (UTC), gridlines with units, marks with titles, gaps where
nothing is known. `static/charts.js` adds the values under the pointer. What is returned is markup: its texts are
escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from mm2mgr.output.page import escape
from mm2mgr.text import count_text, rate_text, span_text

_WIDTH, _LEFT, _RIGHT, _TOP, _BASE, _HEIGHT = 480.0, 70.0, 472.0, 16.0, 132.0, 152.0
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_TICKS = (  # the longest span, seconds between ticks, and how they are written
    (_HOUR, 10 * _MINUTE, "%H:%M"),
    (6 * _HOUR, _HOUR, "%H:%M"),
    (_DAY, 4 * _HOUR, "%H:%M"),
    (7 * _DAY, _DAY, "%a %-d"),
    (math.inf, 5 * _DAY, "%-d %b"),
)
_STEPS = (1.0, 2.0, 2.5, 5.0)
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_MOST_LINES = 4
_SPARK_WIDTH, _SPARK_HEIGHT = 96.0, 22.0
Values = Sequence[float | None]


class ChartLine(NamedTuple):
    """A line of a chart: its name, its class in the style sheet, and a value per time; None: unknown, a gap."""

    name: str
    style: str
    values: Values


class ChartMark(NamedTuple):
    """Something that happened: seconds since 1970, what kind it is of, and a sentence."""

    time: float
    kind: str
    text: str


class ChartLimit(NamedTuple):
    """A line across the chart, such as `max_lag`."""

    name: str
    value: float


class TimeSpan(NamedTuple):
    """What a chart shows: from, to (seconds since 1970), and how far apart two looks are that belong together."""

    first: float
    last: float
    gap_seconds: float


class Unit(NamedTuple):
    """How values of a chart are written; `is_time`: gridlines are at whole minutes and hours."""

    write: Callable[[float], str]
    is_time: bool = False


RECORDS = Unit(count_text)
RECORDS_PER_SECOND = Unit(count_text)
BYTES_PER_SECOND = Unit(rate_text)
TIME = Unit(span_text, is_time=True)


def chart(  # noqa: PLR0913 - what it shows and over which time
    title: str,
    span: TimeSpan,
    times: Sequence[float],
    lines: Sequence[ChartLine],
    unit: Unit,
    *,
    limit: ChartLimit | None = None,
    marks: Sequence[ChartMark] = (),
) -> str:
    """Draw lines over time. Times are in order; a value that is None, and a time in which nobody looked, is a gap."""
    measured = [value for line in lines for value in line.values if value is not None]
    top, step = _scale(max([*measured, limit.value if limit else 0.0], default=0.0), unit)
    parts = [*_grid(span, top, step, unit)]
    if limit:
        height = _height(limit.value, top)
        parts.append(
            f'<line class="limit" x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{height:.1f}" y2="{height:.1f}">'
            f"<title>{escape(limit.name)}: {escape(unit.write(limit.value))}</title></line>"
        )
    parts += _gaps(span, times)
    for line in lines:
        written = " ".join("" if value is None else f"{value:.4g}" for value in line.values).replace(" ", ",")
        parts.append(
            f'<path class="{line.style}" d="{_path(span, times, line.values, top)}" data-name="{escape(line.name)}"'
            f' data-values="{written}"><title>{escape(line.name)}</title></path>'
        )
    form = "%H:%M" if span.last - span.first <= _DAY * 1.01 else "%-d %b %H:%M"
    parts += (_mark(left, several, form) for left, several in _group_marks(span, marks))
    if not measured:
        middle = (_LEFT + _RIGHT) / 2
        parts.append(f'<text x="{middle:g}" y="78" text-anchor="middle">nothing was measured</text>')
    offsets = ",".join(f"{time - span.first:.0f}" for time in times)
    of_span = f'data-first="{span.first:.0f}" data-last="{span.last:.0f}"'
    data = f'{of_span} data-times="{offsets}" data-unit="{_unit_name(unit)}"'
    label = f"{title} from {_moment(span.first)} to {_moment(span.last)} UTC; the numbers are in the table below"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(label)}" {data}>'
        f"{''.join(parts)}</svg>"
    )


def _unit_name(unit: Unit) -> str:
    return {BYTES_PER_SECOND: "bytes", TIME: "time"}.get(unit, "number")


def _moment(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"


def _scale(most: float, unit: Unit) -> tuple[float, float]:
    """Return the top of a scale and the step between its gridlines, in round numbers."""
    if most <= 0:
        return 1.0, 1.0
    if unit.is_time:
        step = next((float(step) for step in _TIME_STEPS if most / step <= _MOST_LINES), 0.0)
        step = step or _DAY * math.ceil(most / _DAY / _MOST_LINES)
        if most >= 1:
            return step * math.ceil(most / step), step
    power = 10.0 ** math.floor(math.log10(most / _MOST_LINES))
    step = power * next(step for step in (*_STEPS, 10.0) if most / (power * step) <= _MOST_LINES + 1e-9)
    return step * math.ceil(most / step - 1e-9), step


def _place(time: float, span: TimeSpan) -> float:
    return _LEFT + (time - span.first) / (span.last - span.first) * (_RIGHT - _LEFT)


def _height(value: float, top: float) -> float:
    return _BASE - (_BASE - _TOP) * min(max(value / top, 0.0), 1.0)


def _grid(span: TimeSpan, top: float, step: float, unit: Unit) -> Iterator[str]:
    for number in range(round(top / step) + 1):
        height = _height(number * step, top)
        yield f'<line class="grid" x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{height:.1f}" y2="{height:.1f}"/>'
        text = unit.write(number * step) if number else "0"
        yield f'<text x="{_LEFT - 6:g}" y="{height + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    for time, text in time_ticks(span.first, span.last):
        left = _place(time, span)
        yield f'<line class="grid" x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP:g}" y2="{_BASE + 3:g}"/>'
        place, anchor = (_WIDTH - 1, "end") if left > _RIGHT - 24 else (left, "middle")
        yield f'<text x="{place:.1f}" y="{_BASE + 16:g}" text-anchor="{anchor}">{escape(text)}</text>'


def time_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Return the round times between two, each as it is written: midnights by their day."""
    _, step, form = next(row for row in _TICKS if last - first <= row[0] * 1.01)
    start = math.ceil(first / step) * step
    ticks = [start + number * step for number in range(int((last - start) // step) + 1)]
    return [
        (time, f"{datetime.fromtimestamp(time, UTC):{'%-d %b' if step < _DAY and time % _DAY == 0 else form}}")
        for time in ticks
    ]


def _path(span: TimeSpan, times: Sequence[float], values: Values, top: float) -> str:
    """Return the path of a line: it begins anew after a gap, and a value alone is a dot."""
    parts, before = list[str](), -math.inf
    is_alone = False
    for time, value in zip(times, values, strict=True):
        if value is None:
            before = -math.inf
            continue
        begins = time - before > span.gap_seconds
        if begins and is_alone:
            parts.append("h0")
        parts.append(f"{'M' if begins else 'L'}{_place(time, span):.1f} {_height(value, top):.1f}")
        is_alone, before = begins, time
    return "".join([*parts, "h0" if is_alone else ""])


def _gaps(span: TimeSpan, times: Sequence[float]) -> Iterator[str]:
    """Yield the times in which nobody looked, as shaded parts."""
    for before, after in zip([span.first, *times], [*times, span.last], strict=True):
        if after - before > span.gap_seconds:
            left, right = _place(before, span), _place(after, span)
            yield (
                f'<rect class="unseen" x="{left:.1f}" y="{_TOP:g}" width="{right - left:.1f}"'
                f' height="{_BASE - _TOP:g}"><title>Nobody looked from {_moment(before)} to {_moment(after)} UTC'
                "</title></rect>"
            )


def _group_marks(span: TimeSpan, marks: Sequence[ChartMark]) -> Iterator[tuple[float, Sequence[ChartMark]]]:
    """Yield the marks in the span by where they are drawn; those that would overprint each other are one."""
    together = dict[int, list[ChartMark]]()
    for mark in sorted(marks):
        if span.first <= mark.time <= span.last:
            together.setdefault(int(_place(mark.time, span) // 8), []).append(mark)
    for several in together.values():
        yield _place(several[-1].time, span), several


def _mark(left: float, marks: Sequence[ChartMark], form: str) -> str:
    kinds = [kind for kind in MARKS if any(mark.kind == kind for mark in marks)]
    title = "; ".join(f"{datetime.fromtimestamp(mark.time, UTC):{form}} {mark.text}" for mark in marks)
    sign = (
        f'<path class="sign" d="M{left - 5:.1f} 2h10l-5 9z"/>'
        if kinds[0] != "loss"
        else (f'<path class="sign" d="M{left - 5:.1f} 2l10 10m0 -10l-10 10"/>')
    )
    return (
        f'<g class="mark {kinds[0]}"><line x1="{left:.1f}" x2="{left:.1f}" y1="12" y2="{_BASE:g}"/>{sign}'
        f"<title>{escape(title)}</title></g>"
    )


MARKS = {"loss": "loss", "failure": "failure", "restart": "restart", "rebalance": "rebalance", "apply": "change"}
"""The kinds of marks, the gravest first, as the legend names them."""


def mark_sign(kind: str) -> str:
    """Return the sign of a kind of marks for a legend."""
    path = "M2 2l8 8m0 -8l-8 8" if kind == "loss" else "M1 2h10l-5 9z"
    return f'<svg class="key mark {kind}" viewBox="0 0 12 12" aria-hidden="true"><path class="sign" d="{path}"/></svg>'


def line_sign(style: str) -> str:
    """Return a piece of a line for a legend."""
    return f'<svg class="key" viewBox="0 0 24 12" aria-hidden="true"><path class="{style}" d="M1 6h22"/></svg>'


def sparkline(values: Values, label: str = "") -> str:
    """Draw the values of one measurement, oldest first, without axes; None: unknown, a gap.

    `label` says what it is; without one it is decoration beside its numbers.
    """
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    step = _SPARK_WIDTH / max(1, len(values) - 1)
    parts, is_open, is_alone = list[str](), False, False
    for number, value in enumerate(values):
        if value is None:
            parts += ["h0"] if is_alone else []
            is_open = is_alone = False
            continue
        height = _SPARK_HEIGHT - 2 - (_SPARK_HEIGHT - 4) * value / top
        parts.append(f"{'L' if is_open else 'M'}{number * step:.1f} {height:.1f}")
        is_alone, is_open = not is_open, True
    path = "".join([*parts, "h0" if is_alone else ""])
    role = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    title = f"<title>{escape(label)}</title>" if label else ""
    return f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH:g} {_SPARK_HEIGHT:g}" {role}>{title}<path d="{path}"/></svg>'

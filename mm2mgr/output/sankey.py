"""The picture of an estate: columns of clusters, and what flows between them as bands, one per state, the wider the
more.

The drawing is inline SVG, styled by the page, in pixels: it is never shrunk, so that its text stays readable, and where
it is wider than the screen its region scrolls. Names are whole: long ones are written on several lines.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape as escape_markup
from typing import NamedTuple

from mm2mgr.text import number_of, visible

_LINE, _GAP, _PAD = 16.0, 6.0, 10.0
_NODE = 10.0  # the width of a bar at the edge
_BEND = 180.0  # between two columns
_THINNEST, _THINNEST_BAD = 1.5, 4.0  # of bands in the best state, and in any other
_LETTERS = 24  # per line of a name
_EDGE = 4.0
_STEPS = 6
_LEAST_BANDS, _BANDS_PER_NAME = 150.0, 9.0  # pixels that all traffic of a column gets


class Stream(NamedTuple):
    """What one flow carries: the cluster that it passes in each column, and `rate` (None: unknown)."""

    places: tuple[str, ...]
    rate: float | None
    state: str
    tasks: int = 0


@dataclass(frozen=True)
class Drawing:
    """How streams are drawn. `columns` name the places of streams; `states` have sign and word, worst first, and the
    sign stands before the names of clusters. `address`: where clusters by column lead to; None for a picture without
    links.
    """

    columns: tuple[str, ...]
    states: Mapping[str, tuple[str, str]]
    rate_text: Callable[[float], str]
    address: Callable[[Mapping[str, str]], str] | None = None


@dataclass
class _Sum:
    """Streams between two clusters, or through one: their known rates, and the worst state."""

    rate: float = 0.0
    unknown: int = 0
    flows: int = 0
    tasks: int = 0
    states: set[str] = field(default_factory=set)

    def add(self, stream: Stream) -> None:
        self.rate += stream.rate or 0.0
        self.unknown += stream.rate is None
        self.flows += 1
        self.tasks += stream.tasks
        self.states.add(stream.state)


class _Hop(NamedTuple):
    """A band: all streams of a state between two clusters."""

    left: str
    right: str
    state: str


@dataclass
class _Node:
    """A cluster in a column: `height` of its slot, `middle` of it, and where the next bands begin on both sides."""

    name: str
    lines: list[str]
    sum: _Sum
    inward: float = 0.0
    outward: float = 0.0
    height: float = 0.0
    middle: float = 0.0

    @property
    def bar(self) -> float:
        return max(self.inward, self.outward)


def sum_text(total: float, unknown: int, flows: int, rate_text: Callable[[float], str]) -> str:
    """Return a sum of rates in words: `unknown` of so many flows have none."""
    if unknown == flows:
        return "unknown"
    return f"at least {rate_text(total)}" if unknown else rate_text(total)


def sankey(streams: Sequence[Stream], drawing: Drawing, label: str) -> str:
    """Return the picture of these streams, at least one; `label` names it for those who do not see it."""
    last = len(drawing.columns) - 1
    sums: list[dict[str, _Sum]] = [defaultdict(_Sum) for _ in drawing.columns]
    hops: list[dict[_Hop, _Sum]] = [defaultdict(_Sum) for _ in range(last)]
    for stream in streams:
        for column, name in enumerate(stream.places):
            sums[column][name].add(stream)
        for column, (left, right) in enumerate(zip(stream.places, stream.places[1:], strict=False)):
            hops[column][_Hop(left, right, stream.state)].add(stream)
    columns = [
        {name: _Node(name, _lines(name), total) for name, total in sorted(of_column.items())} for of_column in sums
    ]
    widths = _thicknesses(hops, max(map(len, columns)), list(drawing.states)[-1])
    for column, of_column in enumerate(widths):
        for hop, width in of_column.items():
            columns[column][hop.left].outward += width
            columns[column + 1][hop.right].inward += width
    height = _place(columns, hops, last)
    edges = _edges(columns, last)
    bands = _bands(columns, hops, widths, edges, drawing)
    nodes = "".join(
        _node(column, node, edges[column], last, drawing)
        for column in range(last + 1)
        for node in columns[column].values()
    )
    kind = "img" if drawing.address is None else "group"
    size = f'width="{edges[last][1] + _names_width(columns[last]) + _EDGE:.0f}" height="{height:.0f}"'
    return f'<svg class="estate" {size} role="{kind}" aria-label="{_escape(label)}">{bands}{nodes}</svg>'


def _thicknesses(hops: Sequence[Mapping[_Hop, _Sum]], most: int, best: str) -> list[dict[_Hop, float]]:
    total = sum(of.rate for of in hops[0].values())
    height = max(_LEAST_BANDS, _BANDS_PER_NAME * most)

    def thickness(hop: _Hop, of: _Sum) -> float:
        thinnest = _THINNEST if hop.state == best else _THINNEST_BAD
        return max(thinnest, height * (of.rate / total) if total else 0.0)

    return [{hop: thickness(hop, of) for hop, of in of_column.items()} for of_column in hops]


def _place(columns: Sequence[dict[str, _Node]], hops: Sequence[Mapping[_Hop, _Sum]], last: int) -> float:
    """Order the clusters of each column so that few bands cross, place them, and return the height of the picture."""
    for column, nodes in enumerate(columns):
        for node in nodes.values():
            room = _PAD if 0 < column < last else 0.0
            node.height = max(node.bar, len(node.lines) * _LINE + room)
    height = max(sum(node.height + _GAP for node in nodes.values()) for nodes in columns) + 2 * _EDGE
    for column, nodes in enumerate(columns):
        if column:
            before = columns[column - 1]
            pull: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for hop, of in hops[column - 1].items():
                pull[hop.right].append((before[hop.left].middle, of.rate + 1e-9))
            means = {name: sum(y * w for y, w in pulls) / sum(w for _, w in pulls) for name, pulls in pull.items()}
            step = height / _STEPS  # those that are about as high stay in the order of their names
            ordered = sorted(nodes.values(), key=lambda node: (round(means[node.name] / step), node.name))
        else:
            ordered = list(nodes.values())
        free = (height - 2 * _EDGE - sum(node.height for node in ordered)) / len(ordered)
        top = _EDGE + free / 2
        for node in ordered:
            node.middle = top + node.height / 2
            top += node.height + free
    return height


def _edges(columns: Sequence[dict[str, _Node]], last: int) -> list[tuple[float, float]]:
    """Return where each column begins and ends, from left to right."""
    edges, left = [], _EDGE + _names_width(columns[0])
    for column, nodes in enumerate(columns):
        width = _names_width(nodes) + _PAD if 0 < column < last else _NODE
        edges.append((left, left + width))
        left += width + _BEND
    return edges


def _bands(
    columns: Sequence[dict[str, _Node]],
    hops: Sequence[Mapping[_Hop, _Sum]],
    widths: Sequence[Mapping[_Hop, float]],
    edges: Sequence[tuple[float, float]],
    drawing: Drawing,
) -> str:
    drawn: list[tuple[int, float, str]] = []
    order = list(drawing.states)
    for column, of_column in enumerate(hops):
        left_nodes, right_nodes = columns[column], columns[column + 1]
        ordered = sorted(of_column, key=lambda hop: order.index(hop.state))
        starts = _starts(ordered, widths[column], left_nodes, right_nodes, 0)
        ends = _starts(ordered, widths[column], right_nodes, left_nodes, 1)
        begin, end = edges[column][1], edges[column + 1][0]
        half = (begin + end) / 2
        for hop, total in of_column.items():
            top, bottom = starts[hop], ends[hop]
            path = f"M{begin:.0f} {top:.1f}C{half:.0f} {top:.1f} {half:.0f} {bottom:.1f} {end:.0f} {bottom:.1f}"
            dash = ' stroke-dasharray="4 3"' if total.unknown == total.flows else ""
            width = widths[column][hop]
            title = f"<title>{_escape(f'{hop.left} to {hop.right}: {_words(total, hop.state, drawing)}')}</title>"
            places = dict(zip(drawing.columns[column : column + 2], hop[:2], strict=True))
            line = f'<path class="{hop.state}" d="{path}" stroke-width="{width:.1f}"{dash}>{title}</path>'
            drawn.append((-order.index(hop.state), -width, _link(line, places, drawing, 'tabindex="-1"')))
    return "".join(markup for _, _, markup in sorted(drawn))


def _starts(
    hops: Iterable[_Hop],
    widths: Mapping[_Hop, float],
    nodes: Mapping[str, _Node],
    others: Mapping[str, _Node],
    side: int,
) -> dict[_Hop, float]:
    """Return the middle of each band at its clusters on one side: in the order of the clusters on the other."""
    used: dict[str, float] = defaultdict(float)
    places = {}
    for hop in sorted(hops, key=lambda hop: others[hop[1 - side]].middle):
        node, width = nodes[hop[side]], widths[hop]
        whole = node.inward if side else node.outward
        places[hop] = node.middle - whole / 2 + used[node.name] + width / 2
        used[node.name] += width
    return places


def _node(column: int, node: _Node, edge: tuple[float, float], last: int, drawing: Drawing) -> str:
    """Draw a cluster: a bar with its name beside it at the edges, a box around its name between them."""
    state = min(node.sum.states, key=list(drawing.states).index)
    left, right = edge
    is_box = 0 < column < last
    height = node.height if is_box else max(node.bar, 3.0)
    kind, corner = ("box ", ' rx="4"') if is_box else ("", "")
    size = f'width="{right - left:.0f}" height="{height:.1f}"{corner}'
    bar = f'<rect class="{kind}{state}" x="{left:.0f}" y="{node.middle - height / 2:.1f}" {size}/>'
    anchor, place = (
        ("middle", (left + right) / 2) if is_box else ("end", left - 6) if not column else ("start", right + 6)
    )
    top = node.middle - (len(node.lines) - 1) * _LINE / 2 + 4.5
    sign = drawing.states[state][0]
    first = f"{sign} " if sign else ""
    lines = "".join(
        f'<tspan x="{place:.0f}" y="{top + number * _LINE:.1f}">{_escape(("" if number else first) + line)}</tspan>'
        for number, line in enumerate(node.lines)
    )
    title = f"<title>{_escape(f'{drawing.columns[column]} {node.name}: {_words(node.sum, state, drawing)}')}</title>"
    markup = f'{title}{bar}<text class="end" text-anchor="{anchor}">{lines}</text>'
    return _link(markup, {drawing.columns[column]: node.name}, drawing) if drawing.address else f"<g>{markup}</g>"


def _link(markup: str, places: Mapping[str, str], drawing: Drawing, more: str = "") -> str:
    if drawing.address is None:
        return markup
    return f'<a href="{escape_markup(drawing.address(places))}"{" " if more else ""}{more}>{markup}</a>'


def _words(total: _Sum, state: str, drawing: Drawing) -> str:
    parts = [sum_text(total.rate, total.unknown, total.flows, drawing.rate_text), number_of(total.flows, "flow")]
    parts += [number_of(total.tasks, "task")] if total.tasks else []
    word = drawing.states[state][1]
    return ", ".join([*parts, *([word] if word else [])])


def _lines(name: str) -> list[str]:
    """Return a name on lines that are short enough, broken after a sign where there is one."""
    lines = []
    rest = visible(name)
    while len(rest) > _LETTERS:
        signs = [sign.end() for sign in re.finditer(r"[-._ ]", rest[:_LETTERS])]
        cut = signs[-1] if signs and signs[-1] > _LETTERS // 3 else _LETTERS
        lines.append(rest[:cut])
        rest = rest[cut:]
    return [*lines, rest]


def _names_width(nodes: Mapping[str, _Node]) -> float:
    """Return how wide the names of a column are at most, with a sign before them."""
    return max(sum(map(_width, line)) for node in nodes.values() for line in node.lines) + 22


def _width(character: str) -> float:
    """Return the width of a character at 13 px in a wide font, rather too much than too little."""
    if character in "fijlrt.,:;|!'- ":
        return 5.6
    if character in "mwMW@%" or unicodedata.east_asian_width(character) in {"W", "F"}:
        return 13.5
    return 9.8 if character.isupper() else 8.3


def _escape(text: str) -> str:
    return escape_markup(visible(text))

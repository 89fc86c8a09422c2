"""Tables: one value, shown on a terminal (`lines`), in Markdown (`markdown`) and on pages (the macro `table` of
macros.html.j2).

Pure: cells and a width in, lines of styled text out. On a terminal names and numbers are never cut. Where a table is
too wide, sentences and lists wrap in their own column, then columns are left out in the order that the table declares;
if the others still do not fit, each row becomes a block of lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mm2mgr.text import cells, cells_of

Piece = tuple[str, str | None]
"""Text and its style."""
Line = Sequence[Piece]

_WIDEST = 60  # a wider cell pushes the rest of its own line in a pipe, and no other line; on a terminal it may break
_LEAST_WRAPPED = 20
_NARROW_GAP = 2


@dataclass(frozen=True)
class Table:
    """Columns and cells, all of them printable.

    `right`: columns of numbers. `drop`: columns that a narrow terminal goes without, in this order. `wrap`: columns of
    sentences or lists, which may take several lines. `styles`: by column, the style of a cell that reads so. `below`:
    by row, sentences printed below it. `muted`: rows printed without emphasis. `title`: what a page has above it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()
    drop: Sequence[str] = ()
    wrap: Collection[str] = ()
    styles: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    indent: int = 0
    gap: int = 3
    header: bool = True
    below: Sequence[Sequence[str]] = ()
    muted: Collection[int] = ()
    title: str = ""

    def markdown(self, most_bytes: int) -> str:
        """Return the table, whose cells are Markdown; rows that find no room in so many bytes are counted."""
        lines, size = [], 0
        for row in self.rows:
            line = f"| {' | '.join(row)} |"
            size += len(line.encode()) + 1
            if size > most_bytes:
                break
            lines.append(line)
        more = len(self.rows) - len(lines)
        head = (f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}")
        return "\n".join((*head, *lines)) + (f"\n\n… and {more} more." if more else "")

    def lines(self, width: int | None) -> tuple[list[Line], tuple[str, ...]]:
        """Return the lines for a terminal of this width (None: no limit), and the columns that were left out."""
        header = [self.columns] if self.header else []
        natural = [max(map(cells, column), default=0) for column in zip(*header, *self.rows, strict=True)]
        if width is None:
            widths = [min(_WIDEST, column) for column in natural]
            return self._align(list(enumerate(widths)), self.gap, None), ()
        for count in range(len(self.drop) + 1):
            shown = [place for place, name in enumerate(self.columns) if name not in self.drop[:count]]
            for gap in (self.gap, _NARROW_GAP):
                room = width - self.indent - gap * (len(shown) - 1)
                if sum(natural[place] for place in shown) <= room:
                    widths = [natural[place] for place in shown]
                    break
            else:
                widths = self._wrap_columns(shown, natural, room)
            if widths:
                return self._align(list(zip(shown, widths, strict=True)), gap, width), tuple(self.drop[:count])
        return [line for number in range(len(self.rows)) for line in self._block(number, width)], ()

    def _wrap_columns(self, shown: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
        """Return widths that fit into `room` when columns of sentences wrap; [] when even so they do not."""
        least = [self._least(place, natural[place]) for place in shown]
        spare = room - sum(least)
        if spare < 0:
            return []
        flexible = [number for number, place in enumerate(shown) if self.columns[place] in self.wrap]
        for count, number in enumerate(flexible):
            more = min(natural[shown[number]] - least[number], spare // (len(flexible) - count))
            least[number] += more
            spare -= more
        return least

    def _least(self, place: int, natural: int) -> int:
        if self.columns[place] not in self.wrap:
            return natural
        text = [self.columns[place] if self.header else "", *(row[place] for row in self.rows)]
        longest = max(cells(word) for line in text for word in line.replace(",", ", ").split(" "))
        return max(min(longest, _WIDEST), min(natural, _LEAST_WRAPPED))

    def _align(self, shown: Sequence[tuple[int, int]], gap: int, width: int | None) -> list[Line]:
        """Return header and rows with these columns in these widths; without a terminal's `width` no cell is broken."""
        lines: list[Line] = []
        if self.header:
            lines += ([(text, "bold") for text, _ in line] for line in self._row(self.columns, shown, gap, width))
        for number, row in enumerate(self.rows):
            for line in self._row(row, shown, gap, width):
                lines.append([(text, "dim") for text, _ in line] if number in self.muted else line)
            lines += self._sentences_below(number, width)
        return lines

    def _row(self, row: Sequence[str], shown: Sequence[tuple[int, int]], gap: int, width: int | None) -> Iterator[Line]:
        broken = [
            [row[place]] if width is None or cells(row[place]) <= room else list(rows_of(row[place], room))
            for place, room in shown
        ]
        for number in range(max(map(len, broken))):
            line: list[Piece] = []
            for (place, room), parts in zip(shown, broken, strict=True):
                part = parts[number] if number < len(parts) else ""
                blanks = " " * (room - cells(part))
                before = " " * (gap if line else self.indent)
                name, right = self.columns[place], self.columns[place] in self.right
                line.append((before + (blanks if right else ""), None))
                line.append((part, self.styles.get(name, {}).get(row[place])))
                line.append(("" if right else blanks, None))
            yield _strip_end(line)

    def _sentences_below(self, number: int, width: int | None) -> Iterator[Line]:
        for sentence in self.below[number] if self.below else ():
            line = f"{' ' * (self.indent + 4)}{sentence}"
            for row in rows_of(line, width, self.indent + 8) if width else [line]:
                yield [(row, "dim" if number in self.muted else None)]

    def _block(self, number: int, width: int) -> Iterator[Line]:
        row, start, first = self.rows[number], " " * self.indent, self.columns[0]
        title = f"{first} {row[0]}" if first in self.right else row[0]
        for line in rows_of(start + title, width, self.indent + 4):
            yield [(line, "dim" if number in self.muted else "bold")]
        label = max(map(cells, self.columns[1:]), default=0)
        for name, cell in zip(self.columns[1:], row[1:], strict=True):
            if not cell:
                continue
            before = f"{start}  {name}{' ' * (label - cells(name) + 2)}"
            style = None if number in self.muted else self.styles.get(name, {}).get(cell)
            for line in rows_of(cell, max(1, width - cells(before))):
                yield [(before, None), (line, style)]
                before = " " * cells(before)
        yield from self._sentences_below(number, width)


def or_dash(value: object) -> str:
    """Return a value as the text of a cell, a dash for none."""
    return "-" if value is None else str(value)


def _strip_end(line: list[Piece]) -> Line:
    while line and not line[-1][0].strip():
        line.pop()
    return line


def rows_of(line: str, width: int, hanging: int = 0) -> Iterator[str]:
    """Break a line into rows, at blanks and after commas where there are some; all but the first are indented."""
    start, indent = 0, ""
    while (end := _reach(line, start, width - len(indent))) < len(line):
        blank, comma = line.rfind(" ", start, end + 1), line.rfind(",", start, end) + 1
        cut = max(blank, comma)
        cut = cut if cut > start and line[start:cut].strip() else end
        yield indent + line[start:cut]
        start, indent = cut + (line[cut] == " "), " " * hanging
    yield indent + line[start:]


def _reach(line: str, start: int, room: int) -> int:
    """Return the end of what fits from `start` into `room` columns, at least one character."""
    if line.isascii():
        return min(len(line), start + max(1, room))
    end = start
    while end < len(line) and (room := room - cells_of(line[end])) >= 0:
        end += 1
    return end if end == len(line) else max(end, start + 1)

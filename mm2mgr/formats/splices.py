"""Changes keys in the text of properties, JSON and YAML files and leaves the rest as it is, comments included.

A change replaces a piece of the original text. One that touches a piece which another one has changed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mm2mgr.formats.properties import BLANKS, LINE_END, Entry, read, remark
from mm2mgr.spec.places import PathKey

Value = str | int | bool | Sequence[Any] | Mapping[str, Any]


class NotEditable(Exception):
    """Why a change cannot be made, as the end of a sentence."""


class Editable(Protocol):
    """A text with changes; keys are paths, of one name in properties."""

    def set(self, path: PathKey, value: Value, instead_of: PathKey = ()) -> None:
        """Give a key a value; a new key takes the place of `instead_of`, which is removed, or follows the others."""

    def remove(self, path: PathKey, line: int = 0) -> None:
        """Remove a key, of several equal ones only that of a line; one that is not there is fine."""

    def copy(self) -> Editable: ...

    def result(self) -> str:
        """Return the changed text."""


@dataclass
class Pieces:
    """A text and what replaces its pieces."""

    text: str
    changes: list[tuple[int, int, str]] = field(default_factory=list)
    written: set[PathKey] = field(default_factory=set)

    def change(self, start: int, end: int, text: str) -> None:
        if (start, end, text) in self.changes:
            return
        if any(begin < end and start < stop for begin, stop, _ in self.changes):
            raise NotEditable("another fix changes the same place")
        self.changes.append((start, end, text))

    def claim(self, path: PathKey) -> None:
        """Note a new path; a second one inside of it has to wait until it is there."""
        if any(path[: len(other)] == other for other in self.written):
            raise NotEditable("another fix changes the same key")
        self.written.add(path)

    def result(self) -> str:
        text, position = [], 0
        for start, end, new in sorted(self.changes, key=lambda change: change[:2]):
            text += [self.text[position:start], new]
            position = end
        return "".join((*text, self.text[position:]))


def newline_of(text: str) -> str:
    match = LINE_END.search(text)
    return match[0] if match else "\n"


def copy_pieces(pieces: Pieces) -> Pieces:
    return Pieces(pieces.text, list(pieces.changes), set(pieces.written))


# --- properties -------------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"[ \t\f]*(?:[^\\=: \t\f]|\\.)*(?P<separator>[ \t\f]*[=:]?[ \t\f]*)")
_UNSAFE = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def escape(text: str, *, key: bool = False) -> str:
    """Return a key or a value as properties text that Java reads as the same."""
    result = "".join(_UNSAFE.get(sign) or (sign if ord(sign) < 256 else f"\\u{ord(sign):04x}") for sign in text)
    if key:
        return re.sub(r"[=: #!]", r"\\\g<0>", result)
    return f"\\{result}" if result.startswith(" ") else result


class PropertiesText:
    """Properties text, read as ISO-8859-1 like Java does; a key with an `Entry` in its path is that line."""

    def __init__(self, text: str, pieces: Pieces | None = None) -> None:
        self.pieces = pieces or Pieces(text)
        self.entries = read(text, "")
        ends = [match.end() for match in LINE_END.finditer(text)]
        self.starts = [0, *ends]
        self.lines = [text[start:end] for start, end in zip(self.starts, [*ends, len(text)], strict=True)]

    def copy(self) -> PropertiesText:
        return PropertiesText(self.pieces.text, copy_pieces(self.pieces))

    def result(self) -> str:
        return self.pieces.result()

    def set(self, path: PathKey, value: Value, instead_of: PathKey = ()) -> None:
        there = self._entries_at(path)
        if there and not instead_of:
            start, end = self._span(there[-1])
            head = _HEAD.match(self.pieces.text, start, end)
            begin = head.end() if head else start
            if after := remark(there[-1]):
                self.comment(there[-1].line, after.strip().lstrip("#/").strip())
            self.pieces.change(begin, end, escape(str(value)))
            return
        self.pieces.claim(path[:1])
        old = self._entries_at(instead_of)
        line = f"{escape(str(path[0]), key=True)}{self._separator(old)}{escape(str(value))}"
        if old:
            self.pieces.change(*self._span(old[-1]), line)
            for entry in [*old[:-1], *there]:
                self._drop(entry)
            return
        newline, text = newline_of(self.pieces.text), self.pieces.text
        before = "" if not text or text.endswith(("\n", "\r")) else newline
        self.pieces.change(len(text), len(text), f"{before}{line}{newline}")

    def remove(self, path: PathKey, line: int = 0) -> None:
        for entry in self._entries_at(path):
            if line in (0, entry.line):
                self._drop(entry)

    def comment(self, line: int, text: str) -> None:
        """Put a comment on a line of its own above a line."""
        start = self.starts[line - 1]
        if any(place[:2] == (start, start) for place in self.pieces.changes):
            return  # it is there already
        self.pieces.change(start, start, f"# {text}{newline_of(self.pieces.text)}")

    def _entries_at(self, path: PathKey) -> list[Entry]:
        """Return the lines of a key; a second part of the path is the number of one of them."""
        return [entry for entry in self.entries if path[:1] == (entry.key,) and path[1:] in ((), (entry.line,))]

    def _drop(self, entry: Entry) -> None:
        start, end = self._span(entry)
        match = LINE_END.match(self.pieces.text, end)
        self.pieces.change(start, match.end() if match else end, "")

    def _span(self, entry: Entry) -> tuple[int, int]:
        """Return where an entry begins and ends, with the lines that continue it and without the last line's end."""
        last = entry.line - 1
        while self._continues(last) and last + 1 < len(self.lines):
            last += 1
        return self.starts[entry.line - 1], self.starts[last] + len(self.lines[last].rstrip("\r\n"))

    def _continues(self, index: int) -> bool:
        line = self.lines[index].rstrip("\r\n")
        return (len(line) - len(line.rstrip("\\"))) % 2 == 1

    def _separator(self, near: Sequence[Entry]) -> str:
        for entry in (*near, *self.entries):
            head = _HEAD.match(self.lines[entry.line - 1].rstrip("\r\n"))
            if head and head["separator"].strip(BLANKS):
                return head["separator"]
        return "="

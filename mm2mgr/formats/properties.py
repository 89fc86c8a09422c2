"""Reads java.util.Properties text as Java does: entries in order, duplicates included, each with line and raw text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mm2mgr.errors import Problem, SpecError
from mm2mgr.secrets import remember
from mm2mgr.spec.places import PathKey, Place

BLANKS = " \t\f"
LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A backslash before one of these means something in a regular expression or a path; Java drops it and keeps the sign.
_LOST = re.compile(r"(?<!\\)\\(?=[.\[\]{}()*+?^$|]|[A-Za-eg-mo-qsv-z0-9])")
# From the first blank on: else long runs take for ever.
_REMARK = re.compile(r"(?<!\s)\s+(?:#|//)(?:\s.*)?$", re.DOTALL)
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"")


@dataclass(frozen=True)
class Entry:
    """One line of a properties or JSON file: `raw` is the text as written, `value` what the parser makes of it.

    `path` leads to it in a JSON or YAML file, with the number of the document first; () where nothing was written.
    `file` is where it is if that is another file than its connector's. `column` is where it begins in a line that has
    something else before it, else 0.
    """

    key: str
    value: str = field(repr=False)
    raw: str = field(repr=False)
    line: int
    path: PathKey = ()
    file: str = ""
    column: int = 0

    def __post_init__(self) -> None:
        remember({self.key: self.value})


def read(text: str, file: str, line_at: Callable[[int], int] = lambda line: line) -> tuple[Entry, ...]:
    """Return every entry; raise SpecError for what Java refuses (a broken Unicode escape).

    `line_at` returns the line of the file for a line of the text, where this is only a part of it.
    """
    return tuple(_entry(line_at(line), logical, file) for line, logical in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each logical line begins, and its text: continued lines joined, without leading blanks."""
    begun, start, continued = "", 0, False
    for number, line in enumerate(LINE_END.split(text), 1):
        rest = line.lstrip(BLANKS)
        if not begun and (not rest or rest[0] in "#!"):
            continue  # blank lines and comments; in the middle of an entry they are part of it
        start = start if begun else number
        continued = (len(rest) - len(rest.rstrip("\\"))) % 2 == 1
        begun += rest[:-1] if continued else rest
        if not continued:
            yield start, begun
            begun = ""
    if begun:
        yield start, begun


def _entry(line: int, text: str, file: str) -> Entry:
    def unescape(match: re.Match[str]) -> str:
        if match[1] == "u":
            message = r"a \u without four hexadecimal digits, for which Java refuses the whole file: write \\u"
            raise SpecError([Problem(Place(file, line, 1), message)])
        return _unescape(match)

    key = _KEY.match(text)
    end = key.end() if key else 0
    separator = _SEPARATOR.match(text, end)
    raw = text[separator.end() if separator else end :]
    return Entry(_with_pairs(_ESCAPE.sub(unescape, text[:end])), _with_pairs(_ESCAPE.sub(unescape, raw)), raw, line)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if code[0] == "u" and len(code) > 1 else _ESCAPED.get(code, code)


def _with_pairs(text: str) -> str:
    """Join the halves of characters that Java writes as two escapes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def java_value(entry: Entry) -> str:
    """Return what Java makes of a line's raw text, with all that was not meant."""
    return _with_pairs(_ESCAPE.sub(_unescape, entry.raw))


def last(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return what Java keeps of each key: its last entry."""
    return {entry.key: entry for entry in entries}


# --- common mistakes: rules report them, all else uses the intended value ---------------------------------------------


def lost_backslashes(entry: Entry) -> str | None:
    """Return the raw value with the backslashes doubled that Java drops, None when it drops none."""
    doubled = _LOST.sub(lambda match: match[0] + "\\", entry.raw)
    return doubled if doubled != entry.raw else None


def remark(entry: Entry) -> str | None:
    """Return the text after ` #` or ` //` that was meant as a comment, None for none; quoted text does not count."""
    hidden = _QUOTED.sub(lambda match: "_" * len(match[0]), entry.value)
    match = _REMARK.search(hidden)
    return entry.value[match.start() :] if match else None


def meant_value(entry: Entry) -> str:
    """Return the value without these mistakes, so that one mistake is one finding."""
    value = entry.value
    doubled = lost_backslashes(entry)
    if doubled is not None:
        value = _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), doubled)
    after = remark(entry)
    return value.removesuffix(after) if after else value


def as_typed(text: str) -> str:
    """Return text as it was typed: Java reads a file as ISO-8859-1, people write UTF-8."""
    try:
        return text.encode("iso-8859-1").decode("utf-8")
    except UnicodeError:
        return text

"""Changes keys in the text of properties, JSON and YAML files and leaves the rest as it is, comments included.

A change replaces a piece of the original text. One that touches a piece which another one has changed is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mm2mgr.formats.documents import parse
from mm2mgr.formats.properties import BLANKS, LINE_END, Entry, read, remark
from mm2mgr.spec.places import PathKey, syntax

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


@dataclass(frozen=True)
class _Span:
    """A value and where it is; `members` are names with the places of their keys, `block` is YAML by indentation."""

    start: int
    end: int
    kind: str
    members: tuple[tuple[str, int, _Span], ...] = ()
    items: tuple[_Span, ...] = ()
    block: bool = False
    plain: bool = True

    def get(self, key: object) -> _Span | None:
        """Return a member or an item; NotEditable for an alias, whose value is where its anchor is."""
        inner = ((at, span) for name, at, span in reversed(self.members) if name == key)
        if isinstance(key, int) and self.items:
            inner = ((self.start, span) for span in self.items[key : key + 1])
        begin, value = next(inner, (0, None))
        if value and value.start < begin:
            raise NotEditable("an anchor of YAML shares the value")
        return value


class StructuredText:
    """JSON or YAML text; a path begins with the number of its document."""

    def __init__(self, text: str, pieces: Pieces | None = None) -> None:
        self.pieces = pieces or Pieces(text)
        self.is_json = text.lstrip()[:1] in ("{", "[")
        self.roots = [_of_json(text)] if self.is_json else [_of_yaml(node, text) for node in syntax(text)]

    def copy(self) -> StructuredText:
        result = StructuredText.__new__(StructuredText)
        result.pieces, result.is_json, result.roots = copy_pieces(self.pieces), self.is_json, self.roots
        return result

    def result(self) -> str:
        return self.pieces.result()

    def set(self, path: PathKey, value: Value, instead_of: PathKey = ()) -> None:
        if instead_of and instead_of[:-1] == path[:-1] and self._find(path) is None and self._find(instead_of):
            self._rename(instead_of, path, value)
            return
        if instead_of:
            self.remove(instead_of)
        span, depth = self._deepest(path)
        if depth == len(path):
            self.pieces.change(
                span.start, span.end, self._text(_as(value, self.pieces.text, span), quoted=not span.plain)
            )
            return
        text = self.pieces.text[span.start : span.end]
        if span.kind != "object" and not (span.kind == "boolean" or text.lower() in ("", "~", "null")):
            raise NotEditable("it would take the place of something that is no mapping")
        self.pieces.claim(path[: depth + 1])
        for name in reversed(path[depth + 1 :]):
            value = {str(name): value}
        if not span.members and span.kind != "object":  # `heartbeats: true`, or nothing at all
            self.pieces.change(
                span.start, span.end, ("" if span.start < span.end else " ") + self._text({str(path[depth]): value})
            )
            return
        self._add(span, str(path[depth]), value)

    def append(self, path: PathKey, value: Value) -> None:
        """Add an item to a list, on a line of its own where the others have one; NotEditable where there is none."""
        span, text = self._find(path), self.pieces.text
        if span is None or span.kind != "list":
            raise NotEditable("it is not a list")
        if not span.block:
            at = span.items[-1].end if span.items else span.start + 1
            self.pieces.change(at, at, f"{', ' if span.items else ''}{self._text(value)}")
            return
        last = span.items[-1]
        begin, at = text.rfind("\n", 0, last.start) + 1, _line_end(text, last.end)
        dash = text.rindex("-", begin, last.start)
        self.pieces.change(at, at, f"{newline_of(text)}{text[begin:dash]}- {self._text(value)}")

    def remove(self, path: PathKey, line: int = 0) -> None:
        parent = self._find(path[:-1])
        members = parent.members if parent else ()
        indexes = [index for index, (name, _, _) in enumerate(members) if name == path[-1]]
        indexes = [index for index in indexes if len(indexes) == 1 or not line or self._line(members[index][1]) == line]
        if not parent or not indexes:
            return
        if len(parent.members) == len(indexes):
            self.pieces.change(parent.start, parent.end, "{}")
            return
        for index in indexes[:1] if line and len(indexes) > 1 else indexes:
            self._cut(parent, index)

    def document(self, path: PathKey) -> int | None:
        """Return the number of the first document that has a path, None when none has."""
        return next((number for number in range(len(self.roots)) if self._find((number, *path))), None)

    def ending(self, path: PathKey, line: int) -> PathKey:
        """Return the path of the value on a line whose last names are those of `path`, () for none."""
        return next(
            (
                candidate
                for candidate, at in self._paths()
                if candidate[-len(path) :] == path and self._line(at) == line
            ),
            (),
        )

    def _paths(self) -> Iterator[tuple[PathKey, int]]:
        waiting: list[tuple[PathKey, int, _Span]] = [((number,), 0, root) for number, root in enumerate(self.roots)]
        while waiting:
            path, at, span = waiting.pop()
            yield path, at
            waiting += [((*path, name), start, inner) for name, start, inner in span.members]
            waiting += [((*path, number), inner.start, inner) for number, inner in enumerate(span.items)]

    def _line(self, index: int) -> int:
        return self.pieces.text.count("\n", 0, index) + 1

    def _find(self, path: PathKey) -> _Span | None:
        span, depth = self._deepest(path)
        return span if depth == len(path) else None

    def _deepest(self, path: PathKey) -> tuple[_Span, int]:
        """Return the value that is as far along a path as there is one, and how far that is."""
        span = self.roots[int(path[0])]
        for depth, name in enumerate(path[1:], 1):
            inner = span.get(name)
            if inner is None:
                return span, depth
            span = inner
        return span, len(path)

    def _rename(self, old: PathKey, new: PathKey, value: Value) -> None:
        parent = self._find(old[:-1])
        assert parent
        self.pieces.claim(new)
        for index, (name, start, span) in enumerate(parent.members):
            if name == old[-1]:
                if any(other == name for other, _, _ in parent.members[index + 1 :]):
                    self._cut(parent, index)
                else:
                    self.pieces.change(start, span.end, self._member(str(new[-1]), _as(value, self.pieces.text, span)))

    def _member(self, key: str, value: Value) -> str:
        name = json.dumps(key, ensure_ascii=False) if self.is_json else _yaml_text(key)
        return f"{name}: {self._text(value)}"

    def _text(self, value: Value, *, quoted: bool = False) -> str:
        if self.is_json:
            return json.dumps(value, ensure_ascii=False)
        return json.dumps(value, ensure_ascii=False) if quoted and isinstance(value, str) else _yaml(value)

    def _add(self, parent: _Span, key: str, value: Value) -> None:
        text, member = self.pieces.text, self._member(key, value)
        if not parent.members:
            self.pieces.change(parent.start + 1, parent.start + 1, member)
            return
        _, first, _ = parent.members[0]
        *_, last = parent.members[-1]
        begin = text.rfind("\n", 0, first) + 1
        if parent.block:
            at = _line_end(text, last.end)
            self.pieces.change(at, at, f"{newline_of(text)}{' ' * (first - begin)}{member}")
            return
        alone = not text[begin:first].strip() and begin > parent.start
        glue = f",{newline_of(text)}{text[begin:first]}" if alone else ", "
        self.pieces.change(last.end, last.end, f"{glue}{member}")

    def _cut(self, parent: _Span, index: int) -> None:
        text, (_, start, span) = self.pieces.text, parent.members[index]
        line = text.rfind("\n", 0, start) + 1
        if index + 1 < len(parent.members) and (not parent.block or text[line:start].strip()):
            self.pieces.change(start, parent.members[index + 1][1], "")
        elif parent.block:
            end = _line_end(text, span.end)
            self.pieces.change(line, min(end + len(newline_of(text)), len(text)), "")
        elif index:
            self.pieces.change(parent.members[index - 1][2].end, span.end, "")
        else:
            self.pieces.change(start, span.end, "")


def _line_end(text: str, index: int) -> int:
    match = LINE_END.search(text, index)
    return match.start() if match else len(text)


def _as(value: Value, text: str, old: _Span) -> Value:
    """Return a value of the old one's kind: a number stays a number, where it can."""
    if old.kind in ("number", "boolean") and isinstance(value, str):
        if re.fullmatch(r"-?(0|[1-9]\d*)", value):
            return int(value)
        return value == "true" if value in ("true", "false") else value
    return value


def _yaml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml_text(key)}: {_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, str):
        return _yaml_text(value)
    return str(value) if isinstance(value, int) else f"[{', '.join(map(_yaml, value))}]"


_PLAIN = re.compile(r"[A-Za-z./_][\w./+*-]*(?:[:=][\w./+*-]+)*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def _yaml_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False) if re.search(r"[\n\t\r']", text) else f"'{text}'"


def _of_json(text: str) -> _Span:
    parse(text, "")  # refuses what is not JSON
    return _json_value(text, _skip(text, 0))


def _skip(text: str, index: int) -> int:
    while text[index : index + 1] in (" ", "\t", "\r", "\n", ",", ":") and index < len(text):
        index += 1
    return index


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[^\s,\]}]+")


def _json_value(text: str, index: int) -> _Span:
    if text[index] in "{[":
        members, items, at = [], [], _skip(text, index + 1)
        while text[at] not in "}]":
            key_at, name = at, ""
            if text[index] == "{" and (key := _STRING.match(text, at)):
                name, at = json.loads(key[0], strict=False), _skip(text, key.end())
            value = _json_value(text, at)
            members.append((name, key_at, value))
            items.append(value)
            at = _skip(text, value.end)
        if text[index] == "{":
            return _Span(index, at + 1, "object", members=tuple(members))
        return _Span(index, at + 1, "list", items=tuple(items))
    if match := _STRING.match(text, index):
        return _Span(index, match.end(), "text")
    word = _WORD.match(text, index)
    assert word
    return _Span(index, word.end(), "boolean" if word[0] in ("true", "false") else "number")


def _of_yaml(node: Any, text: str) -> _Span:
    start, kind = node.start_mark.index, node.id
    if kind == "scalar":
        end = node.end_mark.index
        plain = node.style not in ("'", '"')
        end = start + len(text[start:end].rstrip()) if plain else end
        of = {"tag:yaml.org,2002:int": "number", "tag:yaml.org,2002:bool": "boolean"}.get(node.tag, "text")
        return _Span(start, end, of, plain=plain)
    pairs = node.value if kind == "mapping" else []
    members = tuple(
        (key.value, key.start_mark.index, _of_yaml(value, text)) for key, value in pairs if key.id == "scalar"
    )
    items = tuple(_of_yaml(item, text) for item in node.value) if kind == "sequence" else ()
    if node.flow_style:
        return _Span(start, node.end_mark.index, "object" if kind == "mapping" else "list", members, items)
    end = max((span.end for span in (*(member for _, _, member in members), *items)), default=start)
    return _Span(start, end, "object" if kind == "mapping" else "list", members, items, block=True)

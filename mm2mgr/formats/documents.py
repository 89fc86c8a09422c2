"""Reads JSON and YAML documents with the line of every key, and finds the connectors in them: configs in any wrapper.

Duplicate keys, nulls and connectors of other plugins are kept: lint reports what Connect does with them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # the decoder's own, in C where there is one
from typing import Literal

from mm2mgr.errors import Problem, SpecError
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.properties import Entry
from mm2mgr.spec.places import Document, PathKey, Place

NodeKind = Literal["object", "list", "text", "number", "boolean", "null", "expression"]

_DEPTH = 64  # a dump of connectors is seven deep
_MOST_VALUES = 1_000_000
_BLANK = re.compile(r"[ \t\r\n]*")
_BEFORE_KEY = re.compile(r"[ \t{\[,]*")
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WRAPPERS = frozenset({"config", "info", "spec", "connectorConfiguration", "configs", "connector", "value"})
# What people write where JSON needs something else -> what to do about it.
_SLIPS = (
    (r"//|#|/\*", "it has no comments: remove this one"),
    (r"[‘’“”„«»]", 'typographic quotes: write double quotes, "'),
    (r"'", 'single quotes: write double quotes, "'),
    (r"\{[{%]|(?<=\{)[{%]", "this is a template: render it first"),
    (r"\$\{", 'a placeholder needs double quotes: "${…}"'),
    (r"(True|TRUE)\b", "write true in small letters"),
    (r"(False|FALSE)\b", "write false in small letters"),
    (r"(None|nil|undefined|NULL)\b", "write null"),
    (r"(NaN|Infinity|-Infinity|\+)", "not a number of JSON: write digits, or text in double quotes"),
    (r",", "a comma too many, or a value is missing before it"),
    (r"=", "write a colon between key and value, not ="),
    (r";", "write a comma between entries, not ;"),
    (r"(?<=[-: 0]0)\d", "a number does not begin with 0: remove it, or write text in double quotes"),
    (r"[A-Za-z_]", "keys and text need double quotes"),
)
_IN_TEXT = (  # a part of the decoder's message -> what to do about it
    (
        "control character",
        "a line break or tab inside a text, or a quote is missing: close the quote, or write \\n and \\t",
    ),
    ("escape", "a backslash in a text is written twice: \\\\"),
    ("Unterminated", "this quote is never closed"),
)
_scan: Callable[[str, int, bool], tuple[str, int]] = scanstring


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file: `text` is a scalar as Connect takes it, `members` an object's, `items` a list's.

    `path` leads to it, with the number of its document first. `text_line` is where a text of several lines begins, 0
    where all of it is in `line`; `source` is what an expression of Terraform was read from. `column` is where its key
    begins in a line that has something else before it, else 0.
    """

    kind: NodeKind
    line: int
    text: str = field(default="", repr=False)
    members: tuple[tuple[str, int, Node], ...] = ()
    items: tuple[Node, ...] = ()
    path: PathKey = ()
    text_line: int = 0
    source: object = field(default=None, repr=False)
    column: int = 0

    def get(self, name: str) -> Node | None:
        """Return a member by name, the last one of duplicates, as Connect does; None where there is none."""
        return next((node for key, _, node in reversed(self.members) if key == name), None)

    def node_at(self, *names: str) -> Node | None:
        """Return the node below several names."""
        node: Node | None = self
        for name in names:
            node = node.get(name) if node else None
        return node

    def word(self, *names: str) -> str:
        """Return the text of a scalar below some names, "" where there is none."""
        node = self.node_at(*names)
        return node.text if node and node.kind not in ("object", "list", "null") else ""


# --- JSON text --------------------------------------------------------------------------------------------------------


def parse(text: str, file: str, line_at: Callable[[int], int] | None = None) -> Node:
    """Parse JSON text; raise SpecError with line and column for invalid JSON and excessive nesting.

    `line_at` returns the line of the file for a line of the text, where this is only a part of it; then the columns of
    keys are not known.
    """
    return _Scanner(text, file, line_at).document()


class _Scanner:
    def __init__(self, text: str, file: str, line_at: Callable[[int], int] | None) -> None:
        self.text, self.file, self.line_at = text, file, line_at
        self.count = 0
        self.starts = [0, *(end.end() for end in re.finditer("\n", text))]

    def document(self) -> Node:
        node, end = self.value(self.skip(0), (0,))
        end = self.skip(end)
        if end != len(self.text):
            after = "a second document: write one list of both, [{…}, {…}]" if self.text[end] in "{[" else "remove it"
            raise self.wrong(end, f"not JSON: something follows the end of the document: {after}")
        return node

    def line(self, index: int) -> int:
        number = bisect_right(self.starts, index)
        return self.line_at(number) if self.line_at else number

    def column(self, index: int) -> int:
        """Return the column of a key from 1 on, 0 where its line begins with it or is not one of the file."""
        start = self.starts[bisect_right(self.starts, index) - 1]
        before = _BEFORE_KEY.match(self.text, start)
        return 0 if self.line_at or not before or before.end() >= index else index - start + 1

    def wrong(self, index: int, message: str) -> SpecError:
        column = index - self.starts[bisect_right(self.starts, index) - 1] + 1
        return SpecError([Problem(Place(self.file, self.line(index), column), message)])

    def error_at(self, index: int, expected: str) -> SpecError:
        """Return the error about what should not be there: what it probably is, and what to write."""
        advice = next(
            (words for sign, words in _SLIPS if re.compile(sign).match(self.text, index)), f"expected {expected}"
        )
        return self.wrong(index, f"not JSON: {advice}")

    def skip(self, index: int) -> int:
        blank = _BLANK.match(self.text, index)
        return blank.end() if blank else index

    def value(self, index: int, path: PathKey, column: int = 0) -> tuple[Node, int]:
        sign, line = self.text[index : index + 1], self.line(index)
        self.count += 1
        if self.count > _MOST_VALUES:
            raise self.wrong(
                index, f"contains more than {_MOST_VALUES:,} values, which no set of connector configs does"
            )
        if len(path) > _DEPTH + 1:
            raise self.wrong(index, f"nested deeper than {_DEPTH} levels, which no connector config is")
        if sign == "{":
            return self.object(index, path, column)
        if sign == "[":
            return self.list(index, path, column)
        if sign == '"':
            text, end = self.string(index)
            return Node("text", line, text, path=path, column=column), end
        match = _PLAIN.match(self.text, index)
        if not match:
            raise self.error_at(index, "a value, text in double quotes")
        word = match[0]
        kind: NodeKind = "null" if word == "null" else "boolean" if word in ("true", "false") else "number"
        return Node(kind, line, "" if kind == "null" else word, path=path, column=column), match.end()

    def string(self, index: int) -> tuple[str, int]:
        try:
            return _scan(self.text, index + 1, True)
        except JSONDecodeError as error:
            words = next((words for part, words in _IN_TEXT if part in error.msg), "text that JSON does not have")
            raise self.wrong(error.pos, f"not JSON: {words}") from error

    def object(self, index: int, path: PathKey, column: int) -> tuple[Node, int]:
        members: list[tuple[str, int, Node]] = []
        start, index = self.line(index), self.skip(index + 1)
        while self.text[index : index + 1] != "}":
            if self.text[index : index + 1] != '"':
                raise self.error_at(index, f"a key in double quotes, or }} for the {{ of line {start}")
            line, key_column = self.line(index), self.column(index)
            key, index = self.string(index)
            index = self.skip(index)
            if self.text[index : index + 1] != ":":
                raise self.error_at(index, "a colon after the key")
            node, index = self.value(self.skip(index + 1), (*path, key), key_column)
            members.append((key, line, node))
            index = self.next(index, "}", start)
        return Node("object", start, members=tuple(members), path=path, column=column), index + 1

    def list(self, index: int, path: PathKey, column: int) -> tuple[Node, int]:
        items: list[Node] = []
        start, index = self.line(index), self.skip(index + 1)
        while self.text[index : index + 1] != "]":
            node, index = self.value(index, (*path, len(items)))
            items.append(node)
            index = self.next(index, "]", start)
        return Node("list", start, items=tuple(items), path=path, column=column), index + 1

    def next(self, index: int, closing: str, opened: int) -> int:
        """Skip a comma to the next member, or stay at the closing bracket."""
        index = self.skip(index)
        sign = self.text[index : index + 1]
        if sign == closing:
            return index
        if sign != ",":
            raise self.error_at(
                index, f"a comma, or {closing} for the {'{' if closing == '}' else '['} of line {opened}"
            )
        comma, index = index, self.skip(index + 1)
        if self.text[index : index + 1] == closing:
            raise self.wrong(comma, f"not JSON: a comma before {closing}: remove it")
        return index


# --- YAML values ------------------------------------------------------------------------------------------------------


def of_yaml(document: Document, number: int = 0) -> Node:
    """Return a YAML document as the same kind of tree; `number` is its place in the file."""
    return _of_value(document.values, (number,), document.places, 1)


def _of_value(value: object, path: PathKey, places: Mapping[PathKey, Place], above: int) -> Node:
    line = places[path[1:]].line if path[1:] in places else above
    if isinstance(value, dict):
        inner = [(str(key), _of_value(item, (*path, key), places, line)) for key, item in value.items()]
        return Node("object", line, members=tuple((key, node.line, node) for key, node in inner), path=path)
    if isinstance(value, list):
        items = tuple(_of_value(item, (*path, index), places, line) for index, item in enumerate(value))
        return Node("list", line, items=items, path=path)
    if value is None:
        return Node("null", line, path=path)
    if isinstance(value, bool):
        return Node("boolean", line, str(value).lower(), path=path)
    return Node("text" if isinstance(value, str) else "number", line, str(value), path=path)


# --- connectors -------------------------------------------------------------------------------------------------------


def connectors(root: Node, name: str) -> Iterator[FoundConnector]:
    """Yield every connector below a node: what holds `connector.class`, under a name, in a list, in a dump of Connect.

    `name` is for a bare config: Connect takes it from the URL it is put to.
    """
    if root.get("connector.class"):
        name, entries = root.word("name") or name, entries_of(root)
        if not any(entry.key == "name" for entry in entries):
            entries = (*entries, text_entry("name", root.line, name))  # as Connect itself does
        yield replace(connector_of(name, root.word("connector.class"), entries, root.line), home=root.path)
        return
    for item in root.items:
        yield from connectors(item, name)
    own = root.word("name") or root.word("connectorName") or (root.get("spec") and root.word("metadata", "name"))
    if class_beside(root):
        yield _typed_connector(root, own or name)
        return
    state = root.word("status", "connector", "state") or root.word("state") or root.word("initial_state") or None
    for key, _, node in root.members:
        if node.kind in ("object", "list"):
            inner = (
                _with_outer_name(connector, root) if key == "config" else connector
                for connector in connectors(node, own or (name if key in _WRAPPERS else key))
            )
            names = {"name": (*root.path, "name")} if root.get("name") and key in _WRAPPERS else {}
            yield from (
                replace(connector, state=connector.state or state, places=names | {**connector.places})
                for connector in inner
            )


_CLASS_NAMES, _TASKS_NAMES = ("connectorClass", "connector_class"), ("tasksMax", "tasks_max")


def class_beside(node: Node | None) -> bool:
    """Tell whether a node has a connector's class beside its config, as resources of several operators do."""
    config = node.get("config") if node else None
    return bool(node and config and config.kind == "object" and any(map(node.word, _CLASS_NAMES)))


def _typed_connector(root: Node, name: str) -> FoundConnector:
    config = root.get("config") or root
    places = {
        key: child
        for key, names in (("connector.class", _CLASS_NAMES), ("tasks.max", _TASKS_NAMES))
        for member in names
        if (child := root.get(member)) and child.text
    }
    own = [text_entry("name", root.line, name), *(entry_of(key, node.line, node) for key, node in places.items())]
    written = entries_of(config)
    unused = tuple(entry for entry in written if entry.key == "name" or entry.key in places)
    entries = (*own, *(entry for entry in written if entry not in unused))
    connector = connector_of(name, places["connector.class"].text, entries, root.line)
    return replace(connector, home=config.path, unused=unused, places={key: node.path for key, node in places.items()})


def _with_outer_name(connector: FoundConnector, wrapper: Node) -> FoundConnector:
    """Return a connector with the name beside its config, as Connect does; another name within is unused."""
    name, own = wrapper.word("name"), connector.lines["name"]
    if not name or not own.value.strip() or own.value == name:
        return connector
    line = entry_of("name", wrapper.line, Node("text", wrapper.line, name, path=(*wrapper.path, "name")))
    config, lines = {**connector.config, "name": name}, {**connector.lines, "name": line}
    return replace(connector, name=name, config=config, lines=lines, unused=(own,))


def connector_of(name: str, class_name: str, entries: tuple[Entry, ...], line: int) -> FoundConnector:
    """Return the connector of these entries; its config has the last of duplicate keys and no nulls."""
    config = {entry.key: entry.value for entry in entries if entry.raw != "null"}
    return FoundConnector(name, class_name, config, {entry.key: entry for entry in entries}, line, entries)


def entries_of(config: Node) -> tuple[Entry, ...]:
    """Return a config's entries; see `entry_of`."""
    return tuple(entry_of(key, line, node) for key, line, node in config.members)


def entry_of(key: str, line: int, node: Node) -> Entry:
    """Return an entry; its raw text is quoted or in brackets unless the value is a plain word, so `null` is null."""
    if node.kind == "null":
        return Entry(key, "", "null", line, node.path, column=node.column)
    if node.kind == "list":
        return Entry(key, ",".join(item.text for item in node.items), "[…]", line, node.path, column=node.column)
    if node.kind == "object":
        return Entry(key, "", "{…}", line, node.path, column=node.column)
    raw = f'"{node.text}"' if node.kind == "text" else node.text
    return Entry(key, node.text, raw, line, node.path, column=node.column)


def text_entry(key: str, line: int, text: str) -> Entry:
    """Return the entry of a text, which is not null even if it is the word `null`."""
    return Entry(key, text, f'"{text}"', line)

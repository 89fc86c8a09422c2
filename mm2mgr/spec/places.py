"""Reads YAML text into plain values, with the file, line and column of every key and item; what is not YAML is told by
what somebody probably did there, without a value of the file, which may be a secret.

Places are stored by path, a tuple of keys and indexes. The meaning of keys is the subject of `models`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.error import Mark

from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import Unreadable, read_bytes

if TYPE_CHECKING:
    from yaml.error import Mark

Position = tuple[int, int, str]
"""Line and column from 0, and what to write."""
_CONFLICT = re.compile(r"(<{7}|={7}|>{7})( |$)")
_WORDS = (  # a part of the parser's message -> what to do about it
    ("expected key", "this is not a key: write key: value, or put text into quotes"),
    ("alphabetic or numeric", "& and * begin an anchor: text that begins with them needs quotes"),
    ("cannot start any token", "a sign that no value begins with: put the text into quotes"),
    ("node content", "a value is missing here, or a comma or bracket is too many"),
    ("'-' indicator", "the entries of a list begin with a dash and a blank, all in the same column"),
    ("sequence entries", "a list begins on the line below its key, or is written in brackets"),
    ("directive", "a value that begins with % needs quotes"),
    ("document start", "text after the end of the document: a line without indentation, or a bracket too many"),
)
_RESERVED = re.compile(r"(?:^|[\s\[{,])([@`%!*&])(?!\s)")
_KEY = re.compile(r"(?<![\w.$\"'/])([A-Za-z_][\w-]*):(?=[\[{\"'])|^\s*([a-z_]+):(?=[A-Za-z])")


def explain(error: Any, text: str) -> Position:  # noqa: PLR0911 - one return per mistake
    """Return the place and the words for an error of the parser in a text."""
    lines = text.splitlines() or [""]
    mark = error.problem_mark or error.context_mark
    last = min(mark.line, len(lines) - 1)
    start = error.context_mark or mark
    first = min(start.line, last - 1)
    region = range(last, max(first, last - 3, 0) - 1, -1)
    if position := next(_of_text(lines, region), None):
        return position
    problem, context = error.problem or "", error.context or ""
    line, here = lines[last], (mark.line, mark.column)
    indent = len(line) - len(line.lstrip(" "))
    if "escape" in problem:
        return *here, "a backslash in double quotes is written twice; or use single quotes: 'logs\\.app'"
    if "quoted scalar" in context:
        return start.line, start.column, "this quote is never closed"
    if "anchor" in problem or "undefined alias" in problem:
        return *here, "no anchor of this name (&name) comes before it; text that begins with * needs quotes"
    if "merging" in problem:
        return *here, "<<: takes the anchor of a map: write <<: *name, and &name at that map"
    if "flow" in context:
        return _of_brackets(lines, last, mark, start)
    if "mapping values" in problem:
        if re.match(r"\s*(- +)?[^\s:#]+: +\S", line[: mark.column]):
            return *here, "text with a colon and a blank in it needs quotes"
        return last, indent, "this line is indented deeper than the one above, which has a value already: align them"
    if "block" in context and indent != start.column and line.strip():
        words = f"this line begins in column {indent + 1}, the keys beside it in column {start.column + 1}: align them"
        return last, indent, words
    if "expected ':'" in problem:
        return start.line, start.column, "a key ends with a colon and a blank: write key: value"
    words = next((words for part, words in _WORDS if part in problem), "a key, a colon or quotes are missing")
    return *here, words


def _of_text(lines: list[str], region: Iterable[int]) -> Iterator[Position]:
    """Yield what the lines themselves give away, the ones that the parser complains about first."""
    for number, line in enumerate(lines):
        if _CONFLICT.match(line):
            words = "a conflict of a merge: keep one side, and remove the lines with <<<<<<<, ======= and >>>>>>>"
            yield number, 0, words
    for number in region:
        line = lines[number]
        blanks = line[: len(line) - len(line.lstrip())]
        if "\t" in blanks:
            yield number, blanks.index("\t"), "a tab: indent with blanks, two for each level"
        if match := re.search(r"\{[{%]", line):
            yield number, match.start(), "this is a template, not YAML: render it first"
        if line.lstrip().startswith(("//", "/*")):
            yield number, len(blanks), "a comment begins with #"
        for match in _KEY.finditer(line):
            yield number, match.end(), f"a blank is missing after '{match[1] or match[2]}:'"
    for number in region:
        plain = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", lambda match: "x" * len(match[0]), lines[number])
        if match := re.match(r"[^\[{]*[\[{].*(\$\{)", plain):  # from the first bracket on: else long runs take for ever
            yield number, match.start(1), 'a placeholder inside braces or brackets needs quotes: "${file:…}"'
        if (match := _RESERVED.search(plain)) and not re.search(r"&\w|\*\w[\w-]*\s*$", plain[match.start(1) :]):
            star = '; for everything write ".*"' if match[1] == "*" else ""
            yield number, match.start(1), f"a value that begins with {match[1]} needs quotes{star}"


def _of_brackets(lines: list[str], last: int, mark: Mark, start: Mark) -> Position:
    if mark.line == start.line and lines[last][: mark.column][-1:] in ("'", '"'):
        return mark.line, mark.column, "text goes on behind the quote: put all of it into the quotes"
    number = min(start.line, last)
    column = start.column if start.line == number else max(lines[number].rfind("["), lines[number].rfind("{"), 0)
    comment = "; a blank and # begin a comment" if any(" #" in line for line in lines[number : last + 1]) else ""
    sign = lines[number][column : column + 1]
    if sign not in "[{" or not sign:
        return mark.line, mark.column, "a comma or bracket is missing before this, or text needs quotes"
    return number, column, f"this {sign} is never closed, or a comma is missing behind it{comment}"


Key = str | int
PathKey = tuple[Key, ...]

_Best: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_BYTES = 20_000_000  # of a file of a tree, or of configs
_MAX_VALUES = 1_000_000  # what anchors may expand to: a few lines of nested anchors can name billions
_MAX_DEPTH = 1_000
_HARMLESS_DEPTH = 5_000  # older libyaml takes four times as many; Python's own recursion ends sooner, with an error
_TOO_DEEP = "nesting depth"  # what libyaml says from 0.2.6 on (PyYAML 6.0.4)
_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_TEXT_TAG = "tag:yaml.org,2002:str"
_NUMBER_TAGS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_OLD_NUMBER = re.compile(r"[-+]?0[0-7_]+|[^:]*:.*")  # YAML 1.1: 010 is eight and 1:30 is ninety, which is never meant


class _YamlLoader(_Best):  # type: ignore[misc]
    """PyYAML's loader without the search for path resolvers, which no safe loader has."""

    def descend_resolver(self, *_: object) -> None: ...

    def ascend_resolver(self) -> None: ...


class Place(NamedTuple):
    """Where a key was written: file as given by the user, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def nearest_place(places: Mapping[PathKey, Place], path: PathKey) -> Place:
    """Return where a path was written, or its nearest parent that was."""
    for length in range(len(path), -1, -1):
        if path[:length] in places:
            return places[path[:length]]
    return next(iter(places.values()), Place("?", 1, 1))


@dataclass(frozen=True)
class Document:
    """One YAML file: its values and the place of each of them."""

    file: str
    values: dict[str, object]
    places: dict[PathKey, Place]


def read_yaml(path: Path, data: bytes | None = None) -> list[Document]:
    """Read every YAML document of `path`; empty documents are left out. `data` is its content if it was read already.

    Raises SpecError with file:line:column for unreadable files, YAML syntax, duplicate keys and non-mappings.
    """
    file = str(path)
    try:
        text = (read_bytes(path, MOST_BYTES) if data is None else data).decode("utf-8-sig")
        _refuse_bombs(file, text)
        return [_Reader(file).document(node) for node in syntax(text)]
    except Unreadable as error:
        raise _refusal_error(file, str(error)) from error
    except UnicodeDecodeError as error:
        raise _refusal_error(file, f"is not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        if _TOO_DEEP in str(error.problem):
            raise _refusal_error(file, "nested too deeply", error.problem_mark) from error
        from mm2mgr.spec.places import explain  # nothing of it is needed where nothing is wrong

        line, column, problem = explain(error, text)
        raise SpecError([Problem(Place(file, line + 1, column + 1), f"not YAML: {problem}")]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise _refusal_error(file, f"not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise _refusal_error(file, "nested too deeply") from error


def syntax(text: str) -> list[yaml.Node]:
    """Return the nodes of YAML that `read_yaml` accepts, with their marks: one per document that is not empty."""
    return [node for node in yaml.compose_all(text, Loader=_YamlLoader) if node is not None and not _is_null(node)]


def _refusal_error(file: str, problem: str, mark: Any = None) -> SpecError:
    return SpecError([Problem(_place(file, mark), problem)])


def _place(file: str, mark: Mark | None) -> Place:
    return Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)


def _refuse_bombs(file: str, text: str) -> None:
    """Refuse files with too many values or levels (libyaml recurses in C, which would end the process)."""
    opened = text.count("[") + text.count("{") + text.count("- -") + text.count("? ?")
    if opened < _HARMLESS_DEPTH and text.count(",") + text.count("\n") < _MAX_VALUES // 2:
        return
    depth = 0
    for values, event in enumerate(yaml.parse(text, Loader=_YamlLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _refusal_error(file, "nested too deeply", event.start_mark)
        if values > _MAX_VALUES:
            raise _refusal_error(file, f"contains more than {_MAX_VALUES:,} values", event.start_mark)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


class _Reader(yaml.constructor.SafeConstructor):
    """Turns the node graph of one file into values; collects every problem before it raises."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.places: dict[PathKey, Place] = {}
        self.problems: list[Problem] = []
        self.count = 0
        self.checked: set[int] = set()  # nodes whose keys were looked at; an anchored node is read once per alias

    def document(self, root: yaml.Node) -> Document:
        if not isinstance(root, yaml.MappingNode):
            problem = "the file must contain keys such as 'clusters:' or 'flows:', each with a colon and no dash"
            raise _refusal_error(self.file, problem, root.start_mark)
        values = self.value(root, ())
        if self.problems:
            raise SpecError(self.problems)
        return Document(self.file, values, self.places)

    def problem(self, node: yaml.Node, message: str) -> None:
        self.problems.append(Problem(_place(self.file, node.start_mark), message))

    def value(self, node: yaml.Node, path: PathKey) -> Any:
        self.add(1 + len(path) // 8, node)  # each value remembers its path
        if path not in self.places:  # a value is where its key is
            self.places[path] = _place(self.file, node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if node.tag not in _PLAIN_TAGS:
            self.refuse_tag(node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def add(self, count: int, node: yaml.Node) -> None:
        self.count += count
        if self.count > _MAX_VALUES:
            problem = f"the anchors in this file expand to too many values (more than {_MAX_VALUES:,})"
            raise _refusal_error(self.file, problem, node.start_mark)

    def mapping(self, node: yaml.MappingNode, path: PathKey) -> dict[str, object]:
        if id(node) not in self.checked:
            self.checked.add(id(node))
            self.refuse_twice(node)
            self.flatten_mapping(node)
        result: dict[str, object] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.problem(key, "a key must be plain text (a template has to be rendered first)")
                continue
            here = (*path, key.value)
            self.places[here] = _place(self.file, key.start_mark)
            result[key.value] = self.value(item, here)
        return result

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Apply YAML's merge keys, below a mapping's own keys, and count their values."""
        super().flatten_mapping(node)
        self.add(len(node.value), node)

    def refuse_twice(self, node: yaml.MappingNode) -> None:
        nodes: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                first = nodes.setdefault(key.value, key)
                if first is not key:
                    line = first.start_mark.line + 1
                    self.problem(key, f"duplicate key '{key.value}', first in line {line}: keep one")

    def refuse_tag(self, node: yaml.Node) -> None:
        self.problem(node, f"the tag {node.tag} is not supported; text that begins with ! needs quotes")

    def scalar(self, node: yaml.Node) -> object:
        if node.tag == _TEXT_TAG:
            return node.value
        if node.tag in _NUMBER_TAGS and _OLD_NUMBER.fullmatch(node.value):
            plain = "" if ":" in node.value else f"{node.value.replace('_', '').lstrip('+-0') or 0}, or "
            number = self.construct_object(node)
            self.problem(node, f'{node.value} is the number {number} in YAML: write {plain}"{node.value}" in quotes')
            return None
        try:
            return self.construct_object(node)
        except yaml.constructor.ConstructorError:
            self.refuse_tag(node)
        except ValueError:  # 2026-13-45 looks like a date to YAML
            kind = node.tag.rpartition(":")[2].replace("timestamp", "date")
            self.problem(node, f"looks like a {kind}, but is none: write it in quotes")
        return None

"""Reads Terraform's own language (HCL) into the tree of `documents`: literals as values, all else as expressions.

Nothing is evaluated but locals of literals and the functions merge, join, concat, tomap and tostring of them. An
expression becomes the text `${…}`, as Terraform's JSON has it. `python-hcl2` gives no line of a key in a map and takes
twelve seconds per megabyte.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.errors import Problem, SpecError
from mm2mgr.formats.documents import Node, NodeKind
from mm2mgr.spec.places import PathKey, Place

_DEPTH = 64
_LABELS = 8  # no block of Terraform has more than two
_MOST_VALUES = 1_000_000
_RESOLVED = 20_000  # values that locals may expand to
_COMMENT = r"#[^\n]*+|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/"
_BLANK = re.compile(rf"(?:[ \t\r]++|{_COMMENT})*+")
_SPACE = re.compile(rf"(?:\s++|{_COMMENT})*+")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_HEREDOC = re.compile(r"<<(?P<indented>-?)(?P<end>[A-Za-z_][\w-]*)[ \t]*\r?\n")
_REFERENCE = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[(?:\d+|\"[^\"\n]*\"|\*)\])*")
_SIMPLE = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[[\w\"*.-]+\])+")
_FOR = re.compile(r"for\b")
_KEY = re.compile(r"[\w.-]+")
_PART = re.compile(r"[^\"\\$%\n]+")
_OF_EXPRESSION = re.compile(r"[^\"{}\[\]()\n,#/<]+")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_BLOCKS = "terraform|provider|resource|data|variable|locals|module|output|import|moved|removed|check|ephemeral"
_FILE = re.compile(rf"(?:{_BLOCKS})\s*(?:\"[^\"\n]*\"\s*)*\{{")


@dataclass(frozen=True)
class Block:
    """A block such as `resource "type" "name" {…}`: labels and body, with nested blocks as lists of objects."""

    kind: str
    labels: tuple[str, ...]
    body: Node
    line: int


@dataclass(frozen=True)
class Expression:
    """What is no literal: `name` is that of a reference (`local.x`) or of a function, with its arguments."""

    text: str = field(repr=False)
    name: str = ""
    arguments: tuple[Node, ...] | None = None


def is_hcl(text: str) -> bool:
    """Tell whether a text begins as a file of Terraform."""
    blank = _SPACE.match(text)
    return _FILE.match(text, blank.end() if blank else 0) is not None


def parse(text: str, file: str) -> tuple[Block, ...]:
    """Return the blocks of a file; SpecError with line and column for what is no HCL, too deep or too much."""
    scanner = _Scanner(text, file)
    return tuple(scanner.blocks())


def locals_of(blocks: tuple[Block, ...]) -> dict[str, Node]:
    """Return what the `locals` blocks define."""
    return {name: node for block in blocks if block.kind == "locals" for name, _, node in block.body.members}


class _Scanner:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.count = 0
        self.starts = [0, *(end.end() for end in re.finditer("\n", text))]

    def line(self, index: int) -> int:
        return bisect_right(self.starts, index)

    def wrong(self, index: int, message: str) -> SpecError:
        line = self.line(index)
        return SpecError([Problem(Place(self.file, line, index - self.starts[line - 1] + 1), f"not HCL: {message}")])

    def skip(self, index: int, *, lines: bool = True) -> int:
        match = (_SPACE if lines else _BLANK).match(self.text, index)
        return match.end() if match else index

    def add(self, index: int, depth: int) -> None:
        self.count += 1
        if self.count > _MOST_VALUES:
            raise self.wrong(index, f"more than {_MOST_VALUES:,} values")
        if depth > _DEPTH:
            raise self.wrong(index, f"nested deeper than {_DEPTH} levels")

    # --- bodies -------------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        index = self.skip(0)
        while index < len(self.text):
            start = index
            name, index = self.name(index)
            index = self.skip(index, lines=False)
            if self.text[index : index + 1] == "=":
                _, index = self.value(self.skip(index + 1), 1, ())
            else:
                labels, index = self.labels(index)
                body, index = self.body(index, 1, ())
                yield Block(name, labels, body, self.line(start))
            index = self.skip(index)

    def name(self, index: int) -> tuple[str, int]:
        match = _NAME.match(self.text, index)
        if not match:
            template = "this is a template: render it first" if self.text.startswith(("{{", "<%", "{%"), index) else ""
            raise self.wrong(index, template or "the name of a block or of an argument is expected here")
        return match[0], match.end()

    def labels(self, index: int) -> tuple[tuple[str, ...], int]:
        labels: list[str] = []
        while (sign := self.text[index : index + 1]) != "{":
            if len(labels) > _LABELS:
                raise self.wrong(index, "a { is expected here")
            if sign == '"':
                node, index = self.string(index, ())
                labels.append(node.text)
            elif match := _NAME.match(self.text, index):
                labels.append(match[0])
                index = match.end()
            else:
                raise self.wrong(index, "an = or a { is expected here")
            index = self.skip(index, lines=False)
        return tuple(labels), index

    def body(self, index: int, depth: int, path: PathKey) -> tuple[Node, int]:
        """Read what is between the braces of a block."""
        start, members = index, list[tuple[str, int, Node]]()
        nested: dict[str, list[Node]] = {}
        index = self.skip(index + 1)
        while self.text[index : index + 1] != "}":
            if index >= len(self.text):
                raise self.wrong(start, "this { is never closed")
            at = index
            self.add(at, depth)
            name, index = self.name(index)
            index = self.skip(index, lines=False)
            if self.text[index : index + 1] == "=":
                node, index = self.value(self.skip(index + 1), depth + 1, (*path, name))
                members.append((name, self.line(at), node))
            else:
                labels, index = self.labels(index)
                key = labels[0] if name == "dynamic" and labels else name
                node, index = self.body(index, depth + 1, (*path, key))
                node = replace(node, kind="expression", text=f"${{dynamic_{key}}}") if name == "dynamic" else node
                nested.setdefault(key, []).append(node)
            index = self.skip(index)
        members += [
            (key, nodes[0].line, Node("list", nodes[0].line, items=tuple(nodes), path=(*path, key)))
            for key, nodes in nested.items()
        ]
        return Node("object", self.line(start), members=tuple(members), path=path), index + 1

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, index: int, depth: int, path: PathKey) -> tuple[Node, int]:
        """Read a value up to its end: a line break, a comma or a closing bracket."""
        self.add(index, depth)
        node, end = self.literal(index, depth, path)
        if node is not None and self.is_end(end):
            return node, end
        end = self.end_of_expression(index, depth)
        text = self.text[index:end].strip()
        if not text:
            raise self.wrong(index, "a value is missing here")
        return self.expression(index, text, path), end

    def is_end(self, index: int) -> bool:
        index = self.skip(index, lines=False)
        return self.text[index : index + 1] in ("", "\n", ",", "]", "}", ")")

    def literal(  # noqa: PLR0911 - one return per kind
        self, index: int, depth: int, path: PathKey
    ) -> tuple[Node | None, int]:
        sign, line = self.text[index : index + 1], self.line(index)
        if sign == '"':
            return self.string(index, path)
        if sign == "<" and (match := _HEREDOC.match(self.text, index)):
            return self.heredoc(match, path)
        if sign == "{":
            return self.object(index, depth, path)
        if sign == "[":
            return self.list(index, depth, path)
        if match := _NUMBER.match(self.text, index):
            return Node("number", line, match[0], path=path), match.end()
        if not (match := _REFERENCE.match(self.text, index)):
            return None, index
        word, end = match[0], match.end()
        if word in ("true", "false", "null"):
            kind: NodeKind = "null" if word == "null" else "boolean"
            return Node(kind, line, "" if kind == "null" else word, path=path), end
        if self.text[end : end + 1] == "(" and _NAME.fullmatch(word):
            return self.call(index, word, end, depth, path)
        return self.expression(index, word, path), end

    def expression(self, index: int, text: str, path: PathKey) -> Node:
        line = self.line(index)
        words = text if _SIMPLE.fullmatch(text) else f"expression_of_line_{line}"
        reference = text if _REFERENCE.fullmatch(text) else ""
        return Node("expression", line, f"${{{words}}}", path=path, source=Expression(text, reference))

    def call(self, index: int, name: str, start: int, depth: int, path: PathKey) -> tuple[Node | None, int]:
        items, end = self.items(start, ")", depth, path)
        if items is None:
            return None, index
        text = self.text[index:end]
        node = self.expression(index, text, path)
        return replace(node, source=Expression(text, name, items)), end

    def items(self, index: int, closing: str, depth: int, path: PathKey) -> tuple[tuple[Node, ...] | None, int]:
        """Read the values between brackets; None for what only looks so, such as `[for …]`."""
        start, items = index, list[Node]()
        index = self.skip(index + 1)
        if _FOR.match(self.text, index):
            return None, start
        while self.text[index : index + 1] != closing:
            if index >= len(self.text):
                raise self.wrong(start, f"this {self.text[start]} is never closed")
            node, index = self.value(index, depth + 1, (*path, len(items)))
            items.append(node)
            index = self.skip(index)
            if self.text.startswith("...", index):
                return None, start
            if self.text[index : index + 1] == ",":
                index = self.skip(index + 1)
            elif self.text[index : index + 1] != closing:
                raise self.wrong(index, f"a comma or {closing} is missing here")
        return tuple(items), index + 1

    def list(self, index: int, depth: int, path: PathKey) -> tuple[Node | None, int]:
        items, end = self.items(index, "]", depth, path)
        return (None if items is None else Node("list", self.line(index), items=items, path=path)), end

    def object(self, index: int, depth: int, path: PathKey) -> tuple[Node | None, int]:
        start, members = index, list[tuple[str, int, Node]]()
        index = self.skip(index + 1)
        if _FOR.match(self.text, index):
            return None, start
        while self.text[index : index + 1] != "}":
            if index >= len(self.text):
                raise self.wrong(start, "this { is never closed")
            line = self.line(index)
            key, index = self.key(index)
            index = self.skip(index)
            if self.text[index : index + 1] not in ("=", ":"):
                raise self.wrong(index, "an = is missing after the key")
            node, index = self.value(self.skip(index + 1), depth + 1, (*path, key))
            members.append((key, line, node))
            index = self.skip(index)
            if self.text[index : index + 1] == ",":
                index = self.skip(index + 1)
        return Node("object", self.line(start), members=tuple(members), path=path), index + 1

    def key(self, index: int) -> tuple[str, int]:
        """Read a key: a text, a name with dots (which HCL refuses, and people write), or an expression in brackets."""
        if self.text[index : index + 1] == '"':
            node, end = self.string(index, ())
            return node.text, end
        if self.text[index : index + 1] == "(":
            end = self.end_of_expression(index, 1)
            closed = self.text.find(")", index, end)
            if closed < 0:
                raise self.wrong(index, "this ( is never closed")
            return f"${{{self.text[index + 1 : closed].strip()}}}", closed + 1
        match = _KEY.match(self.text, index)
        if not match:
            raise self.wrong(index, "a key is expected here: text in double quotes")
        return match[0], match.end()

    # --- text ---------------------------------------------------------------------------------------------------------

    def string(self, index: int, path: PathKey) -> tuple[Node, int]:
        start, parts, is_open = index, list[str](), False
        index += 1
        while True:
            match = _PART.match(self.text, index)
            if match:
                parts.append(match[0])
                index = match.end()
            sign = self.text[index : index + 1]
            if sign == '"':
                break
            if sign in ("", "\n"):
                raise self.wrong(start, "this quote is never closed")
            if sign == "\\":
                part, index = self.escape(index)
            else:
                part, index, template = self.template(index)
                is_open = is_open or template
            parts.append(part)
        return self.text_node(start, "".join(parts), path, is_open=is_open), index + 1

    def text_node(self, index: int, text: str, path: PathKey, *, is_open: bool) -> Node:
        line = self.line(index)
        source = Expression(text) if is_open else None
        return Node("expression" if is_open else "text", line, text, path=path, source=source)

    def escape(self, index: int) -> tuple[str, int]:
        sign = self.text[index + 1 : index + 2]
        if sign in ("u", "U"):
            digits = 4 if sign == "u" else 8
            code = self.text[index + 2 : index + 2 + digits]
            if not re.fullmatch(r"[0-9A-Fa-f]+", code) or len(code) < digits or int(code, 16) > 0x10FFFF:
                raise self.wrong(index, f"\\{sign} needs {digits} hexadecimal digits")
            return chr(int(code, 16)), index + 2 + digits
        if sign not in _ESCAPED:
            raise self.wrong(index, "a backslash in a text is written twice: \\\\")
        return _ESCAPED[sign], index + 2

    def template(self, index: int) -> tuple[str, int, bool]:
        """Read a dollar or percent sign in a text: doubled before a brace it is itself, else it begins a template."""
        sign = self.text[index]
        if self.text.startswith(f"{sign}{sign}{{", index):
            return f"{sign}{{", index + 3, False
        if self.text[index + 1 : index + 2] != "{":
            return sign, index + 1, False
        end = self.end_of_braces(index + 1)
        inner = self.text[index + 2 : end].strip().strip("~").strip()
        words = inner if sign == "$" and _SIMPLE.fullmatch(inner) else f"expression_of_line_{self.line(index)}"
        return f"${{{words}}}", end + 1, True

    def heredoc(self, match: re.Match[str], path: PathKey) -> tuple[Node, int]:
        start, begin = match.start(), match.end()
        closing = re.compile(rf"^[ \t]*{re.escape(match['end'])}[ \t]*\r?$", re.MULTILINE).search(self.text, begin)
        if not closing:
            raise self.wrong(start, f"no line has only {match['end']}, which ends this text")
        text, is_open = self.text[begin : closing.start()].replace("\r\n", "\n"), False
        parts, at, inner = list[str](), 0, _Scanner(text, self.file)
        for sign in re.finditer(r"[$%]{1,2}\{", text):
            if sign.start() < at:
                continue
            parts.append(text[at : sign.start()])
            if len(sign[0]) == 3:
                parts.append(sign[0][1:])
                at = sign.end()
                continue
            try:
                at = inner.end_of_braces(sign.end() - 1) + 1
            except SpecError:
                raise self.wrong(begin + sign.start(), "this { is never closed") from None
            name = text[sign.end() : at - 1].strip().strip("~").strip()
            is_directive = sign[0][0] == "%"
            words = name if _SIMPLE.fullmatch(name) else f"expression_of_line_{self.line(begin + sign.start())}"
            parts.append(f"{{% {name} %}}" if is_directive else f"${{{words}}}")
            is_open = True
        parts.append(text[at:])
        text = "".join(parts)
        if match["indented"]:
            lines = text.split("\n")
            indent = min((len(line) - len(line.lstrip(" \t")) for line in lines if line.strip()), default=0)
            text = "\n".join(line[indent:] for line in lines)
        node = self.text_node(start, text, path, is_open=is_open)
        return replace(node, text_line=self.line(begin)), closing.end()

    # --- expressions --------------------------------------------------------------------------------------------------

    def end_of_braces(self, index: int) -> int:
        """Return where the brace at an index is closed."""
        start, depth = index, 0
        while index < len(self.text):
            sign = self.text[index]
            if sign == '"':
                index = self.end_of_string(index)
                continue
            depth += (sign in "{[(") - (sign in "}])")
            if depth == 0:
                return index
            if depth > _DEPTH:
                break
            index += 1
        raise self.wrong(start, "this { is never closed")

    def end_of_string(self, index: int) -> int:
        """Return the index behind a text in quotes, whatever templates it has."""
        start, depth = index, 0
        index += 1
        while index < len(self.text):
            sign = self.text[index]
            if sign == "\\":
                index += 2
                continue
            if sign == '"' and depth == 0:
                return index + 1
            if self.text.startswith(("${", "%{"), index):
                depth, index = depth + 1, index + 2
                continue
            if sign == "}" and depth:
                depth -= 1
            if sign == "\n" and not depth:
                break
            index += 1
        raise self.wrong(start, "this quote is never closed")

    def end_of_expression(self, index: int, depth: int) -> int:
        """Return where an expression ends: at a line break, comma or bracket that is not inside of brackets."""
        start, opened = index, list[int]()
        while index < len(self.text):
            if match := _OF_EXPRESSION.match(self.text, index):
                index = match.end()
                continue
            sign = self.text[index]
            if sign == '"':
                index = self.end_of_string(index)
                continue
            if sign == "<" and (here := _HEREDOC.match(self.text, index)):
                _, index = self.heredoc(here, ())
                continue
            if sign in "#/" and (blank := _BLANK.match(self.text, index)) and blank.end() > index:
                index = blank.end()
                continue
            if sign in "{[(":
                opened.append(index)
                if depth + len(opened) > _DEPTH:
                    raise self.wrong(index, f"nested deeper than {_DEPTH} levels")
            elif sign in "}])":
                if not opened:
                    return index
                opened.pop()
            elif sign in "\n," and not opened:
                return index
            index += 1
        if opened:
            raise self.wrong(opened[-1], f"this {self.text[opened[-1]]} is never closed")
        return max(index, start)


# --- locals and functions ---------------------------------------------------------------------------------------------


@dataclass
class Resolver:
    """Replaces references to locals, and a few functions of literals, by their values."""

    values: Mapping[str, Node]
    count: int = 0

    def resolve(self, node: Node, depth: int = 0) -> Node:  # noqa: PLR0911 - one return per kind
        """Return a value with what can be known of it; the rest remains an expression."""
        self.count += 1
        if depth > _DEPTH or self.count > _RESOLVED:
            return node
        if node.kind == "object":
            members = tuple((key, line, self.resolve(item, depth + 1)) for key, line, item in node.members)
            return replace(node, members=members)
        if node.kind == "list":
            return replace(node, items=tuple(self.resolve(item, depth + 1) for item in node.items))
        if node.kind != "expression" or not isinstance(node.source, Expression):
            return node
        expression = node.source
        if expression.arguments is not None:
            arguments = [self.resolve(argument, depth + 1) for argument in expression.arguments]
            return _call(node, expression.name, arguments)
        if expression.name:
            return self.local(expression.name, depth) or node
        return self.text(node, depth)

    def local(self, name: str, depth: int) -> Node | None:
        scope, *names = re.findall(r"[\w-]+", name)
        if scope != "local" or not names or "*" in name:
            return None
        target = self.values.get(names[0])
        for inner in names[1:]:
            resolved = self.resolve(target, depth + 1) if target else None
            target = resolved.get(inner) if resolved and resolved.kind == "object" else None
        return self.resolve(target, depth + 1) if target else None

    def text(self, node: Node, depth: int) -> Node:
        """Fill locals into a text; it is a literal if nothing else is left."""
        is_open = False

        def fill_in(match: re.Match[str]) -> str:
            nonlocal is_open
            value = self.local(match[1], depth)
            if value is None or value.kind not in ("text", "number", "boolean"):
                is_open = True
                return match[0]
            return value.text

        text = re.sub(r"\$\{(local\.[\w.-]+)\}", fill_in, node.text)
        is_open = is_open or bool(re.search(r"\$\{(?:[\w-]+[.\[]|expression_of_line_)|\{%", text))
        return replace(node, kind="expression" if is_open else "text", text=text)


def _call(node: Node, name: str, arguments: list[Node]) -> Node:  # noqa: PLR0911 - one return per function
    """Return the value of a function of literals, else the expression."""
    if any(argument.kind == "expression" for argument in arguments) and name != "merge":
        return node
    kinds = {argument.kind for argument in arguments}
    if name == "merge" and kinds == {"object"}:
        members = {key: (key, line, item) for argument in arguments for key, line, item in argument.members}
        return replace(node, kind="object", text="", members=tuple(members.values()))
    if name == "concat" and kinds == {"list"}:
        return replace(node, kind="list", text="", items=tuple(item for of in arguments for item in of.items))
    if name in ("tomap", "tostring", "trimspace", "tolist", "toset") and len(arguments) == 1:
        is_text = name in ("tostring", "trimspace")
        return replace(arguments[0], kind="text", text=arguments[0].text.strip()) if is_text else arguments[0]
    if name == "join" and len(arguments) == 2 and arguments[1].kind == "list":
        items = arguments[1].items
        if all(item.kind in ("text", "number", "boolean") for item in items):
            return replace(node, kind="text", text=arguments[0].text.join(item.text for item in items))
    if name == "jsonencode" and len(arguments) == 1:
        return replace(node, kind="text", text=json.dumps(_plain(arguments[0])))
    return node


def _plain(node: Node) -> object:
    if node.kind == "object":
        return {key: _plain(item) for key, _, item in node.members}
    if node.kind == "list":
        return [_plain(item) for item in node.items]
    if node.kind in ("number", "boolean"):
        return json.loads(node.text)
    return None if node.kind == "null" else node.text

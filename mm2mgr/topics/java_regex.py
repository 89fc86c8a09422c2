"""Reads Java regular expressions: what java.util.regex refuses, names an expression is likely to match, and its syntax tree.

In: the text of one expression. Out: a `Shape`, or ValueError with Java's reason. It matches nothing itself: `automaton` does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from mm2mgr.topics.syntax import CLASSES, NOTHING, PROPERTIES, TOPIC_CHARS, Alt, Chars, Edge, Node, Repeat, Seq

FILL = "\0"  # stands in a sample where the expression takes any text (`.*`)
_SAMPLES = 8
_MOST_OPEN = 3
_FLAGS = re.compile(r"[idmsuxU]*(?:-[idmsuxU]*)?[:)]")
_GROUP_NAME = re.compile(r"<[A-Za-z][A-Za-z0-9]*>")
_COUNT = re.compile(r"(\d+)(,(\d*))?")
_CODE = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|0([0-3]?[0-7]{1,2})")
PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|\\[._-])+")
_LETTERS = frozenset("tnrfaecxu0dDwWsShHvVRXbBAGZzkpPNQ")  # what may follow a backslash, of the letters and the zero
_OF_CLASS = {"d": "1", "D": "x", "w": "x", "W": "-", "s": "", "S": "x", "p": "a", "P": "1"}

_EMPTY = Seq()


@dataclass(frozen=True)
class Part:
    """One step of an expression; `char` is set when it is exactly this character, `repeated` tells that a sign repeats it."""

    samples: tuple[str, ...]
    node: Node
    char: str = ""
    repeated: bool = False


@dataclass(frozen=True)
class Shape:
    """What an expression looks like: samples with FILL in them, the literal ends, the text when it is one plain name."""

    samples: tuple[str, ...]
    prefix: str
    suffix: str
    literal: str | None
    globs: tuple[str, ...]
    """Characters directly before a `*`, as in a shell's `orders*`."""
    costly: bool
    """Whether matching may take very long: it repeats what repeats or branches already, or has many open repetitions."""
    tree: Node | None
    """What it means for topic names; None for what is no regular language or is not understood here."""


@cache
def shape(text: str) -> Shape:
    """Read an expression; raises ValueError saying why Java refuses it."""
    if PLAIN.fullmatch(text):
        name = text.replace("\\", "")
        return Shape((name,), name, name, name, (), False, Seq(tuple(map(_only, name))))
    reader = _Reader(text)
    branches = reader.branches()
    if not reader.done:
        raise ValueError("unmatched closing ')'")
    samples = tuple(dict.fromkeys(sample for branch in branches for sample in _joined(branch)))[:_SAMPLES]
    only = _without_edges(branches[0]) if len(branches) == 1 else []
    prefix = "".join(part.char for part in takewhile(_is_char, only))
    suffix = "".join(part.char for part in takewhile(_is_char, reversed(only)))[::-1]
    literal = prefix if only and len(prefix) == len(only) else None
    costly = reader.nested or reader.open > _MOST_OPEN
    tree = None if reader.irregular else _tree(branches)
    return Shape(samples, prefix, suffix, literal, tuple(reader.globs), costly, tree)


@cache
def _only(char: str) -> Chars:
    return Chars(frozenset(char))


def _tree(branches: Sequence[Sequence[Part]]) -> Node:
    found = [
        parts[0].node if len(parts) == 1 else Seq(tuple(part.node for part in parts if part.node != _EMPTY))
        for parts in branches
    ]
    return found[0] if len(found) == 1 else Alt(tuple(found))


_SIMPLE = {
    "^": Part(("",), Edge("start")),
    "$": Part(("",), Edge("end")),
    ".": Part((".", "x"), Chars(TOPIC_CHARS)),
}
_EDGES = {"A": Edge("start"), "Z": Edge("end"), "z": Edge("end")}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _without_edges(parts: list[Part]) -> list[Part]:
    """Leave out the ^ and $ around a sequence: the whole name has to match anyway."""
    first = 1 if parts and parts[0].node == Edge("start") else 0
    last = -1 if len(parts) > first and parts[-1].node == Edge("end") else len(parts)
    return parts[first:last]


def _is_char(part: Part) -> bool:
    return part.char != "" and not part.repeated


def _joined(parts: list[Part]) -> tuple[str, ...]:
    """Return samples of a sequence: the first of every step, the second of every step, and so on."""
    count = min(max((len(part.samples) for part in parts), default=1), _SAMPLES)
    return tuple("".join(part.samples[i % len(part.samples)] for part in parts) for i in range(count))


class _Reader:
    """Walks over the text once, as java.util.regex.Pattern does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.globs: list[str] = []
        self.open = 0  # repetitions without an upper end
        self.nested = False
        self.irregular = False
        self.ignore_case = False

    @property
    def done(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str = "") -> str:
        """Return the next character; with `expected` only if it is one of these."""
        found = self.peek()
        if expected and (not found or found not in expected):
            return ""
        self.at += 1
        return found

    def branches(self, depth: int = 0) -> list[list[Part]]:
        if depth > 50:
            raise ValueError("groups are nested too deeply")
        found = [self.sequence(depth)]
        while self.take("|"):
            found.append(self.sequence(depth))
        return found

    def sequence(self, depth: int) -> list[Part]:
        parts: list[Part] = []
        while not self.done and self.peek() not in "|)":
            start, before = self.at, self.open
            parts += self.atoms(depth)
            varied = self.open > before or "|" in self.text[start : self.at]
            if parts:
                parts[-1] = self.repeated(parts[-1], varied=varied)
        return parts

    def atoms(self, depth: int) -> list[Part]:
        """Read one step; a quotation is as many as it has characters."""
        char = self.take()
        if char in "*+?":
            raise ValueError(f"dangling '{char}': nothing stands before it that could repeat")
        if char == "{":  # Java reads a count here, of nothing
            self.at -= 1
            return [Part(("",), _EMPTY)]
        if char == "\\":
            return self.escape()
        if char in _SIMPLE:
            return [_SIMPLE[char]]
        if char == "[":
            sample, chars = self.char_set()
            return [Part((sample,), Chars(chars))]
        return [self.group(depth)] if char == "(" else [self.plain(char)]

    def plain(self, char: str) -> Part:
        alike = {char.lower(), char.upper()} if self.ignore_case else {char}
        return Part((char,), Chars(TOPIC_CHARS & alike), char if len(alike) == 1 else "")

    def escape(self) -> list[Part]:
        if code := _CODE.match(self.text, self.at):
            self.at = code.end()
            octal = code[4]
            number = int(octal, 8) if octal else int(code[1] or code[2] or code[3], 16)
            return [self.plain(chr(min(number, 0x10FFFF)))]
        char = self.take()
        if not char:
            raise ValueError("a backslash at the end has nothing to escape")
        if char == "Q":
            quoted, closed, _ = self.text[self.at :].partition("\\E")
            self.at = min(self.at + len(quoted) + 2, len(self.text))
            self.irregular |= not closed  # it goes on in the next item of a list
            return [self.plain(each) if closed else Part((each,), _EMPTY) for each in quoted]
        if char.isascii() and char.isalpha() and char not in _LETTERS:
            raise ValueError(f"\\{char} is no escape that Java knows")
        if not (char.isascii() and char.isalnum()):
            return [self.plain(char)]
        sample = _OF_CLASS.get(char, "")
        if char in _EDGES:
            return [Part((sample,), _EDGES[char])]
        return [Part((sample,), Chars(self.property(char) if char in "pP" else self.class_of(char)))]

    def class_of(self, char: str) -> frozenset[str]:
        if char not in CLASSES and char not in "tnrfae":
            self.irregular = True  # a backreference, a word boundary, a named or a control character
        return CLASSES.get(char, NOTHING)

    def property(self, char: str) -> frozenset[str]:
        name = self.take()
        if name == "{":
            name, closed, _ = self.text[self.at :].partition("}")
            self.at += len(name) + 1
            if not closed:
                raise ValueError(f"\\{char}{{ has no closing brace")
        self.irregular |= name not in PROPERTIES or self.ignore_case
        found = PROPERTIES.get(name, NOTHING)
        return TOPIC_CHARS - found if char == "P" else found

    def char_set(self) -> tuple[str, frozenset[str]]:
        """Read a set after its bracket; return a character that is likely to be in it, and all of a topic's that are."""
        negated, start, members = bool(self.take("^")), self.at, ""
        chars: set[str] = set()
        others: list[frozenset[str]] = []  # what stands before each &&
        while True:
            char = self.take()
            if not char:
                raise ValueError("a [ has no closing bracket")
            if char == "]" and self.at > start + 1:
                break
            if char == "[":
                sample, inner = self.char_set()
                members, chars = members + sample, chars | inner
                self.irregular |= negated  # Java 8 and 9 disagree on what ^ negates then
            elif char == "&" and self.peek() == "&":
                self.take()
                others.append(frozenset(chars))
                chars = set()
                self.irregular |= negated or self.peek() == "&"
            else:
                sample, found = self.member(char)
                members, chars = members + sample, chars | found
        whole = frozenset(chars).intersection(*others)
        if self.ignore_case:
            whole = TOPIC_CHARS & {each for char in whole for each in (char.lower(), char.upper())}
        if negated:
            return next((each for each in "x1-_.q" if each in TOPIC_CHARS - whole), ""), TOPIC_CHARS - whole
        return members[:1], whole

    def member(self, char: str) -> tuple[str, frozenset[str]]:
        """Read one member of a set, or a range."""
        if char == "\\":
            self.irregular |= self.peek() == "Q"
            parts = self.escape()
            found = frozenset().union(*(part.node.of for part in parts if isinstance(part.node, Chars)))
            char = parts[0].samples[0] if len(parts) == 1 and parts[0].char else ""
            if not char:
                return "".join(part.samples[0] for part in parts), found
        else:
            self.check_range(char)
        following = self.text[self.at : self.at + 2]
        self.irregular |= following == "-&"
        if following[:1] != "-" or following[1:] in ("", "]", "[", "&"):
            return char, TOPIC_CHARS & {char}
        self.take()
        last = self.take()
        if last == "\\":
            last = self.escape()[0].samples[0]
        if last < char:
            raise ValueError(f"the range {char}-{last} runs backwards")
        return char, frozenset(each for each in TOPIC_CHARS if char <= each <= last)

    def check_range(self, first: str) -> None:
        following = self.text[self.at : self.at + 2]
        if following[:1] == "-" and following[1:] not in ("", "]", "[", "\\", "&") and following[1:] < first:
            raise ValueError(f"the range {first}{following} runs backwards")

    def group(self, depth: int) -> Part:
        ignore_case = self.ignore_case
        silent = self.take("?") and self.group_kind()
        if silent == ")":
            self.irregular |= (
                depth == 0 and self.ignore_case != ignore_case
            )  # it holds for the next items of a list too
            return Part(("",), _EMPTY)
        branches = self.branches(depth + 1)
        if not self.take(")"):
            raise ValueError("a ( has no closing parenthesis")
        self.ignore_case = ignore_case  # (?i) holds to the end of its group
        samples = tuple(dict.fromkeys(sample for branch in branches for sample in _joined(branch)))[:_SAMPLES]
        return Part(("",) if silent else samples, _tree(branches))

    def group_kind(self) -> str:
        """Read what follows `(?`; return ")" for flags alone, "look" for a lookaround, "" for a group that takes text."""
        if kind := self.take(":>"):
            self.irregular |= kind == ">"
            return ""
        if self.take("=!"):
            self.irregular = True
            return "look"
        if self.text[self.at : self.at + 2] in ("<=", "<!"):
            self.irregular = True
            self.at += 2
            return "look"
        found = _GROUP_NAME.match(self.text, self.at) or _FLAGS.match(self.text, self.at)
        if not found:
            raise ValueError("(? is followed by nothing that Java knows")
        self.at = found.end()
        if not found[0].startswith("<"):
            on, _, off = found[0][:-1].partition("-")
            self.irregular |= "x" in found[0]  # blanks and comments
            self.ignore_case = ("i" in on or self.ignore_case) and "i" not in off
        return ")" if found[0].endswith(")") else ""

    def repeated(self, part: Part, *, varied: bool) -> Part:
        sign = self.take("*+?{")
        if not sign:
            return part
        least, most = self.count() if sign == "{" else _COUNTS[sign]
        if sign != "?":
            self.nested |= varied
            self.open += sign != "{"
        self.irregular |= self.take("+?") == "+"  # a possessive repetition gives nothing back
        if sign == "*" and part.char and (part.char.isalnum() or part.char in "-_"):
            self.globs.append(part.char)
        if part.samples == (".", "x") and sign != "?":
            return Part((FILL,), Repeat(part.node, least, most), repeated=True)
        samples = part.samples if sign in "+{" else tuple(dict.fromkeys((*part.samples, "")))
        return Part(samples, Repeat(part.node, least, most), repeated=True)

    def count(self) -> tuple[int, int | None]:
        found = _COUNT.match(self.text, self.at)
        if not found:
            raise ValueError("a { that is no repetition count must be written \\{")
        self.at = found.end()
        if not self.take("}"):
            raise ValueError("a repetition count has no closing brace")
        if found[3] and int(found[3]) < int(found[1]):
            raise ValueError(f"the repetition count {found[0]} runs backwards")
        return int(found[1]), int(found[3]) if found[3] else None if found[2] else int(found[1])

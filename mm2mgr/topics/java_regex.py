"""Parses Java regular expressions: what java.util.regex refuses, likely sample names, and the syntax tree.

A ValueError has Java's reason. Matching is done by `automaton` and `names`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Literal

TOPIC_CHARS = frozenset(string.ascii_letters + string.digits + "._-")
OTHER = "\uffff"  # stands for every character that is not printable ASCII
CHARS = frozenset(map(chr, range(0x20, 0x7F))) | {OTHER}  # names of groups hold other characters than those of topics
_DIGITS, _WORD = frozenset(string.digits), TOPIC_CHARS - set(".-")
_BLANK = frozenset(" ")
NOTHING: frozenset[str] = frozenset()
_UPPER, _LOWER = frozenset(string.ascii_uppercase), frozenset(string.ascii_lowercase)
# As far as ASCII goes: names of topics hold nothing else.
CLASSES = {"d": _DIGITS, "w": _WORD, "s": _BLANK, "h": _BLANK, "v": NOTHING, "R": NOTHING}
CLASSES |= {name.upper(): CHARS - chars for name, chars in CLASSES.items() if name != "R"}
_ALNUM = _WORD - {"_"}
PROPERTIES = {
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "IsLetter"), _ALNUM - _DIGITS),
    **dict.fromkeys(("Digit", "N", "Nd", "IsN", "IsNd", "IsDigit"), _DIGITS),
    **dict.fromkeys(("Lower", "Ll", "IsLl", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsLu", "IsUppercase", "javaUpperCase"), _UPPER),
    **{"Graph": CHARS - {" ", OTHER}, "Print": CHARS - {OTHER}, "ASCII": CHARS - {OTHER}, "Cntrl": NOTHING},
    **dict.fromkeys(("Space", "Blank", "IsWhite_Space"), _BLANK),
    **{"Alnum": _ALNUM, "Punct": frozenset(string.punctuation), "XDigit": frozenset(string.hexdigits)},
}


@dataclass(frozen=True)
class Chars:
    """One character out of these."""

    of: frozenset[str]


@dataclass(frozen=True)
class Seq:
    """One node after the other; without any, the empty text."""

    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Alt:
    """Any one of the nodes."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A node `least` times or more; `most` is None without an upper end."""

    node: Node
    least: int
    most: int | None
    lazy: bool = False
    """Whether it tries fewer first, which matters only inside an atomic node."""


@dataclass(frozen=True)
class Edge:
    """The start or the end of the whole name."""

    at: Literal["start", "end"]


@dataclass(frozen=True)
class Lookaround:
    """A lookahead or lookbehind, positive or negative."""

    node: Node
    behind: bool
    negative: bool


@dataclass(frozen=True)
class Atomic:
    """A node without backtracking once it has matched: a possessive repetition, an independent group."""

    node: Node


@dataclass(frozen=True)
class Group:
    """A node whose text is remembered under a number."""

    node: Node
    number: int


@dataclass(frozen=True)
class Back:
    """The text that a group has matched before."""

    number: int


@dataclass(frozen=True)
class Boundary:
    """A word boundary, or a place that is none."""

    negative: bool


Node = Chars | Seq | Alt | Repeat | Edge | Lookaround | Atomic | Group | Back | Boundary
_OPEN_WEIGHT, _MOST_WEIGHT = 4, 14  # three repetitions without an end, and two choices


def _is_costly(node: Node) -> bool:
    """Tell whether backtracking may take very long: too many choices, or one inside a repetition."""
    return _choices(node) > _MOST_WEIGHT


def _choices(node: Node) -> float:
    if isinstance(node, Seq):
        return sum(map(_choices, node.nodes))
    if isinstance(node, Alt):
        return max(map(_choices, node.nodes)) + 1
    if isinstance(node, Lookaround | Atomic | Group):
        return _choices(node.node)
    if not isinstance(node, Repeat):
        return 0
    inner, span = _choices(node.node), None if node.most is None else node.most - node.least
    if inner and node.most is None:
        return float("inf")
    own = 0 if span == 0 else 1 if span == 1 else _OPEN_WEIGHT
    return inner * (node.most or 1) + (own if not inner or span is None else min(span, _MOST_WEIGHT + 1))


FILL = "\0"  # is in a sample where the expression takes any text (`.*`)
_SAMPLES = 8
_MOST_CHARS = 1_000_000
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
    """A step of an expression; `char` is set when it is exactly this one, `repeated` says that a sign repeats it."""

    samples: tuple[str, ...]
    node: Node
    char: str = ""
    repeated: bool = False


@dataclass(frozen=True)
class Shape:
    """What an expression looks like: samples with FILL, the literal ends, the text when it is one plain name."""

    samples: tuple[str, ...]
    prefix: str
    suffix: str
    literal: str | None
    globs: tuple[str, ...]
    """Characters directly before a `*`, as in a shell's `orders*`."""
    costly: bool
    """Whether a matcher that goes back and tries again may take very long."""
    tree: Node | None
    """What it means as a regular language; None for what is none or is not understood here."""
    whole: Node | None
    """The same with lookarounds, backreferences and what gives nothing back; None for what is not understood."""


def why_refused(text: str) -> str:
    """Return why Java refuses an expression, "" for one that it takes."""
    try:
        shape(text)
    except ValueError as error:
        return str(error)
    return ""


@cache
def shape(text: str) -> Shape:
    """Read an expression; raises ValueError saying why Java refuses it."""
    if PLAIN.fullmatch(text):
        name = text.replace("\\", "")
        letters = Seq(tuple(map(_only, name)))
        return Shape((name,), name, name, name, (), False, letters, letters)
    if len(text) > _MOST_CHARS:
        raise ValueError(f"longer than {_MOST_CHARS:,} characters")
    reader = _RegexReader(text)
    try:
        branches = reader.branches()
    except RecursionError as error:
        raise ValueError("sets are nested too deeply") from error
    if not reader.is_done:
        raise ValueError("unmatched closing ')'")
    samples = tuple(dict.fromkeys(sample for branch in branches for sample in _join_samples(branch)))[:_SAMPLES]
    only = _without_edges(branches[0]) if len(branches) == 1 else []
    prefix = "".join(part.char for part in takewhile(_is_char, only))
    suffix = "".join(part.char for part in takewhile(_is_char, reversed(only)))[::-1]
    literal = prefix if only and len(prefix) == len(only) else None
    whole = _tree(branches)
    tree = None if reader.irregular or reader.strange else whole
    costly = _is_costly(whole)
    return Shape(samples, prefix, suffix, literal, tuple(reader.globs), costly, tree, None if reader.strange else whole)


@cache
def _only(char: str) -> Chars:
    return Chars(frozenset(char))


def _tree(branches: Sequence[Sequence[Part]]) -> Node:
    nodes = [
        parts[0].node if len(parts) == 1 else Seq(tuple(part.node for part in parts if part.node != _EMPTY))
        for parts in branches
    ]
    return nodes[0] if len(nodes) == 1 else Alt(tuple(nodes))


_SIMPLE = {"^": Part(("",), Edge("start")), "$": Part(("",), Edge("end")), ".": Part((".", "x"), Chars(CHARS))}
_LOOKS = {"=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)}  # behind, negative
_EDGES = {"A": Edge("start"), "Z": Edge("end"), "z": Edge("end")}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _without_edges(parts: list[Part]) -> list[Part]:
    """Leave out the ^ and $ around a sequence: the whole name has to match anyway."""
    first = 1 if parts and parts[0].node == Edge("start") else 0
    last = -1 if len(parts) > first and parts[-1].node == Edge("end") else len(parts)
    return parts[first:last]


def _is_char(part: Part) -> bool:
    return part.char != "" and not part.repeated


def _join_samples(parts: list[Part]) -> tuple[str, ...]:
    """Return samples of a sequence: the first of every step, the second of every step, and so on."""
    count = min(max((len(part.samples) for part in parts), default=1), _SAMPLES)
    return tuple("".join(part.samples[i % len(part.samples)] for part in parts) for i in range(count))


class _RegexReader:
    """Walks over the text once, as java.util.regex.Pattern does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.globs: list[str] = []
        self.groups = 0
        self.irregular = False  # no regular language
        self.strange = False  # not understood here
        self.ignore_case = False

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str = "") -> str:
        """Return the next character; with `expected` only if it is one of these."""
        char = self.peek()
        if expected and (not char or char not in expected):
            return ""
        self.at += 1
        return char

    def branches(self, depth: int = 0) -> list[list[Part]]:
        if depth > 50:
            raise ValueError("groups are nested too deeply")
        branches = [self.sequence(depth)]
        while self.take("|"):
            branches.append(self.sequence(depth))
        return branches

    def sequence(self, depth: int) -> list[Part]:
        parts: list[Part] = []
        while not self.is_done and self.peek() not in "|)":
            parts += self.atoms(depth)
            if parts:
                parts[-1] = self.repetition(parts[-1])
        return parts

    def atoms(self, depth: int) -> list[Part]:
        """Read one step; a quotation is as many as it has characters."""
        char = self.take()
        if char in "*+?":
            raise ValueError(f"dangling '{char}': nothing before it to repeat")
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
        self.strange |= char not in CHARS and char.isprintable()  # one of those that are all taken for the same
        alike = {char.lower(), char.upper()} if self.ignore_case and char.isascii() else {char}
        return Part((char,), Chars(CHARS & alike), char if len(alike) == 1 else "")

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
            end = self.text.find("\\E", self.at)
            closed = end >= 0
            quoted = self.text[self.at : end if closed else len(self.text)]
            self.at = min(self.at + len(quoted) + 2, len(self.text))
            self.strange |= not closed  # it goes on in the next item of a list
            return [self.plain(char) if closed else Part((char,), _EMPTY) for char in quoted]
        if char.isascii() and char.isalpha() and char not in _LETTERS:
            raise ValueError(f"\\{char} is no escape that Java knows")
        if not (char.isascii() and char.isalnum()):
            return [self.plain(char)]
        sample = _OF_CLASS.get(char, "")
        if char in "bB" or char in "123456789":
            return [self.special(char)]
        if char in _EDGES:
            return [Part((sample,), _EDGES[char])]
        return [Part((sample,), Chars(self.property(char) if char in "pP" else self.class_of(char)))]

    def special(self, char: str) -> Part:
        """Read a word boundary or a backreference, which Java takes more digits for while there are so many groups."""
        self.irregular = True
        if char in "bB":
            self.strange |= self.peek() == "{"
            return Part(("",), Boundary(char == "B"))
        number = int(char)
        while (digit := self.peek()) and digit in "0123456789" and number * 10 + int(digit) <= self.groups:
            number = number * 10 + int(self.take())
        self.strange |= number > self.groups or self.ignore_case
        return Part(("",), Back(number))

    def class_of(self, char: str) -> frozenset[str]:
        if char not in CLASSES and char not in "tnrfae":
            self.strange = True  # a named or a control character, a named group
        return CLASSES.get(char, NOTHING)

    def property(self, char: str) -> frozenset[str]:
        name = self.take()
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise ValueError(f"\\{char}{{ has no closing brace")
            name = self.text[self.at : end]
            self.at = end + 1
        self.strange |= name not in PROPERTIES or self.ignore_case
        chars = PROPERTIES.get(name, NOTHING)
        return CHARS - chars if char == "P" else chars

    def char_set(self) -> tuple[str, frozenset[str]]:
        """Read a set after its bracket; return a character that is likely in it, and all that are."""
        negated, start, members = bool(self.take("^")), self.at, ""
        chars: set[str] = set()
        others: list[frozenset[str]] = []  # what is before each &&
        while True:
            char = self.take()
            if not char:
                raise ValueError("a [ has no closing bracket")
            if char == "]" and self.at > start + 1:
                break
            if char == "[":
                sample, inner = self.char_set()
                members, chars = members + sample, chars | inner
                self.strange |= negated  # Java 8 and 9 disagree on what ^ negates then
            elif char == "&" and self.peek() == "&":
                self.take()
                others.append(frozenset(chars))
                chars = set()
                self.strange |= negated or self.peek() == "&"
            else:
                sample, more = self.member(char)
                members, chars = members + sample, chars | more
        whole = frozenset(chars).intersection(*others)
        if self.ignore_case:
            whole = CHARS & {letter for char in whole for letter in (char.lower(), char.upper())}
        if negated:
            return next((char for char in "x1-_.q" if char in CHARS - whole), ""), CHARS - whole
        return members[:1], whole

    def member(self, char: str) -> tuple[str, frozenset[str]]:
        """Read one member of a set, or a range."""
        if char == "\\":
            self.strange |= self.peek() in tuple("Q123456789bB")
            parts = self.escape()
            chars = NOTHING.union(*(part.node.of for part in parts if isinstance(part.node, Chars)))
            char = parts[0].samples[0] if len(parts) == 1 and parts[0].char else ""
            if not char:
                return "".join(part.samples[0] for part in parts), chars
        else:
            self.check_range(char)
        following = self.text[self.at : self.at + 2]
        self.strange |= following == "-&"
        if following[:1] != "-" or following[1:] in ("", "]", "[", "&"):
            return char, CHARS & {char}
        self.take()
        last = self.take()
        if last == "\\":
            last = self.escape()[0].samples[0]
        if last < char:
            raise ValueError(f"the range {char}-{last} runs backwards")
        return char, frozenset(other for other in CHARS if char <= other <= last)

    def check_range(self, first: str) -> None:
        following = self.text[self.at : self.at + 2]
        if following[:1] == "-" and following[1:] not in ("", "]", "[", "\\", "&") and following[1:] < first:
            raise ValueError(f"the range {first}{following} runs backwards")

    def group(self, depth: int) -> Part:
        ignore_case = self.ignore_case
        number = 0
        if not self.take("?"):
            kind, self.groups = "", self.groups + 1
            number = self.groups
        else:
            kind = self.group_kind()
        if kind == ")":
            self.strange |= depth == 0 and self.ignore_case != ignore_case  # it holds for the next items of a list too
            return Part(("",), _EMPTY)
        branches = self.branches(depth + 1)
        if not self.take(")"):
            raise ValueError("a ( has no closing parenthesis")
        self.ignore_case = ignore_case  # (?i) holds to the end of its group
        samples = tuple(dict.fromkeys(sample for branch in branches for sample in _join_samples(branch)))[:_SAMPLES]
        node = _tree(branches)
        if kind in _LOOKS:
            behind, negative = _LOOKS[kind]
            return Part(("",), Lookaround(node, behind, negative))
        if kind == ">":
            node = Atomic(node)
        return Part(samples, Group(node, number) if number else node)

    def group_kind(self) -> str:
        """Read what follows `(?`; return ")" for flags alone, what it is for a lookaround or `>`, "" for others."""
        if self.take(":"):
            return ""
        if kind := self.take("=!>"):
            self.irregular = True
            return kind
        if (kind := self.text[self.at : self.at + 2]) in _LOOKS:
            self.irregular = True
            self.at += 2
            return kind
        match = _GROUP_NAME.match(self.text, self.at) or _FLAGS.match(self.text, self.at)
        if not match:
            raise ValueError("(? is followed by nothing that Java knows")
        self.at = match.end()
        if match[0].startswith("<"):
            self.groups += 1
            # Not kept by number.
            self.strange |= "\\" in self.text and any(f"\\{digit}" in self.text for digit in "123456789")
        else:
            on, _, off = match[0][:-1].partition("-")
            self.strange |= "x" in match[0]  # blanks and comments
            self.ignore_case = ("i" in on or self.ignore_case) and "i" not in off
        return ")" if match[0].endswith(")") else ""

    def repetition(self, part: Part) -> Part:
        sign = self.take("*+?{")
        if not sign:
            return part
        least, most = self.count() if sign == "{" else _COUNTS[sign]
        node: Node = Repeat(part.node, least, most)
        lazy_or_possessive = self.take("+?")
        if lazy_or_possessive == "+":
            self.irregular, node = True, Atomic(node)
        elif lazy_or_possessive == "?":
            node = Repeat(part.node, least, most, lazy=True)
        if sign == "*" and part.char and (part.char.isalnum() or part.char in "-_"):
            self.globs.append(part.char)
        if part.samples == (".", "x") and sign != "?":
            return Part((FILL,), node, repeated=True)
        samples = part.samples if sign in "+{" else tuple(dict.fromkeys((*part.samples, "")))
        return Part(samples, node, repeated=True)

    def count(self) -> tuple[int, int | None]:
        count = _COUNT.match(self.text, self.at)
        if not count:
            raise ValueError("a { that is no repetition count must be written \\{")
        self.at = count.end()
        if not self.take("}"):
            raise ValueError("a repetition count has no closing brace")
        if count[3] and int(count[3]) < int(count[1]):
            raise ValueError(f"the repetition count {count[0]} runs backwards")
        return int(count[1]), int(count[3]) if count[3] else None if count[2] else int(count[1])

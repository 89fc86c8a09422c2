"""Syntax trees of expressions as far as they matter for topic names, and Java's named sets of characters. Values only."""

from __future__ import annotations

import string
from dataclasses import dataclass
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


def is_costly(node: Node) -> bool:
    """Tell whether a matcher that goes back and tries again may take very long: too many choices, or one inside a repetition."""
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

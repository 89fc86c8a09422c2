"""Syntax trees of expressions as far as they concern topic names, and the sets of characters that Java has names for. Values only."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Literal

TOPIC_CHARS = frozenset(string.ascii_letters + string.digits + "._-")
_DIGITS, _WORD = frozenset(string.digits), TOPIC_CHARS - set(".-")
NOTHING: frozenset[str] = frozenset()
_UPPER, _LOWER = frozenset(string.ascii_uppercase), frozenset(string.ascii_lowercase)
# As far as topic names go: they hold no blank and nothing outside ASCII.
CLASSES = {"d": _DIGITS, "w": _WORD, "s": NOTHING, "h": NOTHING, "v": NOTHING, "R": NOTHING}
CLASSES |= {name.upper(): TOPIC_CHARS - chars for name, chars in CLASSES.items() if name != "R"}
_ALNUM = _WORD - {"_"}
PROPERTIES = {
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "IsLetter"), _ALNUM - _DIGITS),
    **dict.fromkeys(("Digit", "N", "Nd", "IsN", "IsNd", "IsDigit"), _DIGITS),
    **dict.fromkeys(("Lower", "Ll", "IsLl", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsLu", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Graph", "Print", "ASCII"), TOPIC_CHARS),
    **dict.fromkeys(("Space", "Blank", "Cntrl", "IsWhite_Space"), NOTHING),
    **{"Alnum": _ALNUM, "Punct": frozenset("._-"), "XDigit": frozenset(string.hexdigits)},
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


@dataclass(frozen=True)
class Edge:
    """The start or the end of the whole name."""

    at: Literal["start", "end"]


Node = Chars | Seq | Alt | Repeat | Edge

"""Reads Java regular expressions: what java.util.regex refuses, and a few names that an expression is likely to match.

In: the text of one expression. Out: a `Shape`, or ValueError with Java's reason. It matches nothing itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

FILL = "\0"  # stands in a sample where the expression takes any text (`.*`)
_SAMPLES = 8
_MOST_OPEN = 3
_FLAGS = re.compile(r"[idmsuxU]*(?:-[idmsuxU]*)?[:)]")
_GROUP_NAME = re.compile(r"<[A-Za-z][A-Za-z0-9]*>")
_COUNT = re.compile(r"(\d+)(,(\d*))?")
_LETTERS = frozenset("tnrfaecxu0dDwWsShHvVRXbBAGZzkpPNQ")  # what may follow a backslash, of the letters and the zero
_OF_CLASS = {"d": "1", "D": "x", "w": "x", "W": "-", "s": "", "S": "x", "p": "a", "P": "1"}


@dataclass(frozen=True)
class Part:
    """One step of an expression; `char` is set when it is exactly this character, `fixed` tells that nothing repeats it."""

    samples: tuple[str, ...]
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


@cache
def shape(text: str) -> Shape:
    """Read an expression; raises ValueError saying why Java refuses it."""
    reader = _Reader(text)
    branches = reader.branches()
    if not reader.done:
        raise ValueError("unmatched closing ')'")
    samples = tuple(dict.fromkeys(sample for branch in branches for sample in _joined(branch)))[:_SAMPLES]
    only = branches[0] if len(branches) == 1 else []
    prefix = "".join(part.char for part in takewhile(_is_char, only))
    suffix = "".join(part.char for part in takewhile(_is_char, reversed(only)))[::-1]
    literal = prefix if only and len(prefix) == len(only) else None
    return Shape(samples, prefix, suffix, literal, tuple(reader.globs), reader.nested or reader.open > _MOST_OPEN)


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
            return [Part(("",))]
        if char == "\\":
            return self.escape()
        simple = {"^": Part(("",)), "$": Part(("",)), ".": Part((".", "x"))}
        if char in simple:
            return [simple[char]]
        if char == "[":
            return [Part((self.char_set(),))]
        return [self.group(depth)] if char == "(" else [Part((char,), char)]

    def escape(self) -> list[Part]:
        char = self.take()
        if not char:
            raise ValueError("a backslash at the end has nothing to escape")
        if char == "Q":
            quoted, _, _ = self.text[self.at :].partition("\\E")
            self.at = min(self.at + len(quoted) + 2, len(self.text))
            return [Part((each,), each) for each in quoted]
        if char.isascii() and char.isalpha() and char not in _LETTERS:
            raise ValueError(f"\\{char} is no escape that Java knows")
        if char in "pP" and self.take("{"):
            self.at = self.text.find("}", self.at) + 1
            if not self.at:
                raise ValueError(f"\\{char}{{ has no closing brace")
        plain = not (char.isascii() and char.isalnum())
        return [Part((char,), char)] if plain else [Part((_OF_CLASS.get(char, ""),))]

    def char_set(self) -> str:
        """Read a set after its bracket; return a character that is likely to be in it."""
        negated, start, members = bool(self.take("^")), self.at, ""
        while True:
            char = self.take()
            if not char:
                raise ValueError("a [ has no closing bracket")
            if char == "]" and self.at > start + 1:
                break
            if char == "[":
                members += self.char_set()
            elif char == "\\":
                members += "".join(part.samples[0] for part in self.escape())
            else:
                members += char
                self.check_range(char)
        if negated:
            return next((each for each in "x1-_.q" if each not in members), "")
        return members[:1]

    def check_range(self, first: str) -> None:
        following = self.text[self.at : self.at + 2]
        if following[:1] == "-" and following[1:] not in ("", "]", "[", "\\", "&") and following[1:] < first:
            raise ValueError(f"the range {first}{following} runs backwards")

    def group(self, depth: int) -> Part:
        silent = self.take("?") and self.group_kind()
        branches = [] if silent == ")" else self.branches(depth + 1)
        if silent != ")" and not self.take(")"):
            raise ValueError("a ( has no closing parenthesis")
        samples = tuple(dict.fromkeys(sample for branch in branches for sample in _joined(branch)))[:_SAMPLES]
        return Part(("",) if silent else samples)

    def group_kind(self) -> str:
        """Read what follows `(?`; return ")" for flags alone, "look" for a lookaround, "" for a group that takes text."""
        if self.take(":>"):
            return ""
        if self.take("=!"):
            return "look"
        if self.text[self.at : self.at + 2] in ("<=", "<!"):
            self.at += 2
            return "look"
        found = _GROUP_NAME.match(self.text, self.at) or _FLAGS.match(self.text, self.at)
        if not found:
            raise ValueError("(? is followed by nothing that Java knows")
        self.at = found.end()
        return ")" if found[0].endswith(")") else ""

    def repeated(self, part: Part, *, varied: bool) -> Part:
        sign = self.take("*+?{")
        if not sign:
            return part
        if sign == "{":
            self.count()
        if sign != "?":
            self.nested |= varied
            self.open += sign != "{"
        self.take("+?")
        if sign == "*" and part.char and (part.char.isalnum() or part.char in "-_"):
            self.globs.append(part.char)
        if part.samples == (".", "x") and sign != "?":
            return Part((FILL,), repeated=True)
        return Part(part.samples if sign in "+{" else tuple(dict.fromkeys((*part.samples, ""))), repeated=True)

    def count(self) -> None:
        found = _COUNT.match(self.text, self.at)
        if not found:
            raise ValueError("a { that is no repetition count must be written \\{")
        self.at = found.end()
        if not self.take("}"):
            raise ValueError("a repetition count has no closing brace")
        if found[3] and int(found[3]) < int(found[1]):
            raise ValueError(f"the repetition count {found[0]} runs backwards")

"""Topic and group filters: which names a list of Java expressions matches, however many plain names it holds.

Items are in their Java form. Expressions that are not regular are matched as Java does, without repeating a step and with a budget.
Source: DefaultTopicFilter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import takewhile

from mm2mgr.errors import Mm2mgrError
from mm2mgr.spec.patterns import check_pattern, matcher
from mm2mgr.topics.automaton import LONGEST_NAME, Regular, TooLarge
from mm2mgr.topics.java_regex import (
    CHARS,
    FILL,
    OTHER,
    PLAIN,
    Alt,
    Atomic,
    Back,
    Boundary,
    Chars,
    Edge,
    Group,
    Lookaround,
    Node,
    Repeat,
    Seq,
    Shape,
    shape,
)

MOST_STEPS = 1_500_000
_MOST_INSTRUCTIONS = 20_000
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

_Texts = tuple[tuple[int, int], ...]  # where each group's text begins and ends; -1 for none
_Found = tuple[int, _Texts]


@dataclass(frozen=True)
class _Split:
    """Go on at each of these, the first one first."""

    to: tuple[int, ...]


@dataclass(frozen=True)
class _Save:
    """Remember where a group begins or ends."""

    number: int
    is_end: bool


@dataclass(frozen=True)
class _Inner:
    """Run a program of its own from here: of a Lookaround or an Atomic."""

    start: int
    node: Lookaround | Atomic


_Instruction = Chars | Edge | Boundary | Back | _Split | _Save | _Inner | None  # None: the end of a program


class Backtracker:
    """Matches whole names. All names together may take MOST_STEPS; then each further one raises TooLarge."""

    def __init__(self, tree: Node) -> None:
        self._program: list[_Instruction] = []
        self._groups = 0
        self._left = MOST_STEPS
        self._rough = Regular(_relaxed(tree))  # most names do not match anyway, and it is quick to say so
        self._inner: list[tuple[int, Node]] = []
        self._add(tree)
        self._program.append(None)
        while self._inner:  # programs of lookarounds stand behind
            at, node = self._inner.pop()
            found = self._program[at]
            assert isinstance(found, _Inner)
            self._program[at] = _Inner(len(self._program), found.node)
            self._add(node)
            self._program.append(None)

    def matches(self, name: str) -> bool:
        """Tell whether it matches a whole name; TooLarge."""
        if not self._rough.matches(name):
            return False
        text = "".join(char if char in CHARS else OTHER for char in name)
        return self._run(0, 0, ((-1, -1),) * self._groups, text, len(text)) is not None

    # --- the program --------------------------------------------------------------------------------------------------

    def _put(self, instruction: _Instruction) -> int:
        if len(self._program) >= _MOST_INSTRUCTIONS:
            raise TooLarge
        self._program.append(instruction)
        return len(self._program) - 1

    def _add(self, node: Node) -> None:
        if isinstance(node, Chars | Edge | Boundary | Back):
            self._put(node)
        elif isinstance(node, Lookaround | Atomic):
            self._inner.append((self._put(_Inner(0, node)), node.node))
        elif isinstance(node, Seq):
            for each in node.nodes:
                self._add(each)
        elif isinstance(node, Group):
            self._groups = max(self._groups, node.number)
            self._put(_Save(node.number, is_end=False))
            self._add(node.node)
            self._put(_Save(node.number, is_end=True))
        elif isinstance(node, Alt):
            self._alternatives(node)
        else:
            self._repeat(node)

    def _alternatives(self, node: Alt) -> None:
        split, ends, starts = self._put(_Split(())), [], []
        for each in node.nodes:
            starts.append(len(self._program))
            self._add(each)
            ends.append(self._put(_Split(())))
        self._program[split] = _Split(tuple(starts))
        for end in ends:
            self._program[end] = _Split((len(self._program),))

    def _repeat(self, node: Repeat) -> None:
        enough = LONGEST_NAME + 1
        for _ in range(min(node.least, enough)):
            before = len(self._program)
            self._add(node.node)
            if len(self._program) == before:
                break
        splits = []
        if node.most is None:
            splits.append(self._put(_Split(())))
            self._add(node.node)
            self._put(_Split((splits[0],)))
        else:
            for _ in range(min(node.most - node.least, enough)):
                splits.append(self._put(_Split(())))
                self._add(node.node)
        for split in splits:
            ways = (split + 1, len(self._program))
            self._program[split] = _Split(ways[::-1] if node.lazy else ways)

    # --- running it ---------------------------------------------------------------------------------------------------

    def _run(self, start: int, at: int, texts: _Texts, name: str, must_end: int | None) -> _Found | None:
        """Return the first way through a program, where it ends and its groups' texts. A state is tried once: it fails again."""
        waiting, tried = [(start, at, texts)], set()
        while waiting:
            state = waiting.pop()
            if state in tried:
                continue
            tried.add(state)
            self._left -= 1
            if self._left < 0:
                raise TooLarge
            number, at, texts = state
            step = self._program[number]
            if step is None:
                if must_end in (None, at):
                    return at, texts
            elif isinstance(step, _Split):
                waiting += [(to, at, texts) for to in reversed(step.to)]
            elif (after := self._after(step, at, texts, name)) is not None:
                waiting.append((number + 1, *after))
        return None

    def _after(self, step: _Instruction, at: int, texts: _Texts, name: str) -> _Found | None:
        """Return where a single step leads, None when it fails."""
        if isinstance(step, _Inner):
            return self._inside(step, at, texts, name)
        if isinstance(step, _Save):
            begin, end = texts[step.number - 1]
            changed = (begin, at) if step.is_end else (at, end)
            return at, (*texts[: step.number - 1], changed, *texts[step.number :])
        end = at
        if isinstance(step, Chars):
            is_there, end = at < len(name) and name[at] in step.of, at + 1
        elif isinstance(step, Edge):
            is_there = at == (0 if step.at == "start" else len(name))
        elif isinstance(step, Boundary):
            is_one = (at > 0 and name[at - 1] in _WORD) != (at < len(name) and name[at] in _WORD)
            is_there = is_one != step.negative
        else:
            assert isinstance(step, Back)
            begin, stop = texts[step.number - 1]
            is_there, end = 0 <= begin <= stop and name.startswith(name[begin:stop], at), at + stop - begin
        return (end, texts) if is_there else None

    def _inside(self, step: _Inner, at: int, texts: _Texts, name: str) -> _Found | None:
        """Run what a lookaround or an atomic node holds."""
        if isinstance(step.node, Atomic):
            return self._run(step.start, at, texts, name, None)
        if step.node.behind:
            ways = (self._run(step.start, each, texts, name, at) for each in range(at, -1, -1))
            found = next((one for one in ways if one is not None), None)
        else:
            found = self._run(step.start, at, texts, name, None)
        if step.node.negative:
            return (at, texts) if found is None else None
        return (at, found[1]) if found is not None else None


def _relaxed(node: Node) -> Node:
    """Return a regular language that holds all that a node matches: nobody looks around, and a backreference is any text."""
    if isinstance(node, Lookaround | Boundary):
        return Seq()
    if isinstance(node, Back):
        return Repeat(Chars(CHARS), 0, None)
    if isinstance(node, Atomic | Group):
        return _relaxed(node.node)
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(map(_relaxed, node.nodes)))
    return Repeat(_relaxed(node.node), node.least, node.most) if isinstance(node, Repeat) else node


Items = tuple[str, ...]
_MOST_SHOWN = 200
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")


@cache
def shape_of(item: str) -> Shape | None:
    """Return the shape of an item, None for one that Java refuses."""
    try:
        return shape(item)
    except ValueError:
        return None


def literal(item: str) -> str | None:
    """Return the one name that an item matches, None for one that matches others too."""
    if PLAIN.fullmatch(item):
        return item.replace("\\", "")
    found = shape_of(item)
    return found.literal if found else None


@cache
def readable(item: str, *, topics: bool = True) -> bool:
    """Tell whether it is known here what an item matches; names of groups and keys of settings hold other characters than topics."""
    if literal(item) is not None or (_alike(item) and not _is_costly(item)):
        return True
    return (topics or _alike(item)) and (
        machine_of((item,)) is not None or (_alike(item) and _backtracker(item) is not None)
    )


@cache
def _alike(item: str) -> bool:
    """Tell whether an expression means the same in Java and in Python."""
    if shape_of(item) is None:
        return False
    try:
        check_pattern(item)
    except ValueError:
        return False
    return True


def _is_costly(item: str) -> bool:
    found = shape_of(item)
    return found is None or found.costly


@lru_cache(maxsize=4096)
def machine_of(items: Items) -> Regular | None:
    """Return the machine of any of these items, None when one of them is not regular, not understood or too large."""
    trees = [found.tree if (found := shape_of(item)) else None for item in items]
    try:
        return Regular(Alt(tuple(tree for tree in trees if tree))) if None not in trees else None
    except TooLarge:
        return None


class _Looking:
    """An expression that begins with lookaheads, such as `(?!test).*`: a machine for each, and one for the rest."""

    def __init__(self, looks: Sequence[Lookaround], rest: Seq) -> None:
        anything = Repeat(Chars(CHARS), 0, None)
        self._looks = [(Regular(Seq((look.node, anything))), look.negative) for look in looks]
        self._rest = Regular(rest)

    def matches(self, name: str) -> bool:
        return self._rest.matches(name) and all(look.matches(name) != negative for look, negative in self._looks)


@lru_cache(maxsize=4096)
def _backtracker(item: str) -> _Looking | Backtracker | None:
    """Return what matches an item that is no regular language, None for one that is not understood or too large."""
    found = shape_of(item)
    if found is None or found.whole is None:
        return None
    nodes = found.whole.nodes if isinstance(found.whole, Seq) else (found.whole,)
    looks = list(takewhile(lambda node: isinstance(node, Lookaround) and not node.behind, nodes))
    try:
        return _Looking([look for look in looks if isinstance(look, Lookaround)], Seq(nodes[len(looks) :]))
    except (TooLarge, TypeError):  # what looks around elsewhere too
        pass
    try:
        return Backtracker(found.whole)
    except TooLarge:
        return None


class TooCostly(Mm2mgrError):
    """An expression whose match would take too long, or cannot be told here."""


def _too_costly(item: str) -> TooCostly:
    shown = item if len(item) <= _MOST_SHOWN else f"{item[:_MOST_SHOWN]}…"
    return TooCostly(
        f"the pattern '{shown}' takes too long to match",
        hint="repeat nothing that repeats already, above all beside a lookaround, a backreference or a possessive repetition",
    )


class _AnyOf:
    """Matches what one of the items does; a list may hold thousands of plain names.

    Python's expressions match what they read as Java does and are quick at; machines the rest, without going back.
    """

    def __init__(self, items: Items) -> None:
        self.literals = dict.fromkeys(name for item in items if (name := literal(item)) is not None)
        self.patterns = tuple(item for item in items if literal(item) is None)
        quick = [item for item in self.patterns if _alike(item) and not _is_costly(item)]
        # In a group, so that `matcher` does not take the dots of a plain name literally: Java does not.
        self._quick = matcher([f"(?:{item})" for item in quick], []) if quick else None
        self._others = [item for item in self.patterns if item not in set(quick) and readable(item)]
        self._unclear = next((item for item in self.patterns if _alike(item) and not readable(item)), None)

    def __call__(self, name: str) -> bool:
        if name in self.literals or (self._quick and self._quick(name)):
            return True
        if any(_matches(item, name) for item in self._others):
            return True
        if self._unclear is not None:
            raise _too_costly(self._unclear)
        return False


def _matches(item: str, name: str) -> bool:
    machine = machine_of((item,)) or _backtracker(item)
    try:
        return machine is not None and machine.matches(name)
    except TooLarge as error:
        raise _too_costly(item) from error


_any_of = lru_cache(maxsize=4096)(_AnyOf)


@dataclass(frozen=True)
class NameFilter:
    """A filter: names that match one of `include` wholly and none of `exclude`."""

    include: Items
    exclude: Items

    @cached_property
    def wanted(self) -> _AnyOf:
        return _any_of(self.include)

    @cached_property
    def unwanted(self) -> _AnyOf:
        return _any_of(self.exclude)

    def takes(self, name: str) -> bool:
        """Tell whether it takes a name; none is longer than Kafka allows."""
        return len(name) <= LONGEST_NAME and self.matches(name)

    def matches(self, name: str) -> bool:
        """Tell whether it takes a name of any length, as those of groups are."""
        return self.wanted(name) and not self.unwanted(name)


def samples(item: str, fill: str = "x") -> Iterator[str]:
    """Yield topic names that an item is likely to match."""
    found = shape_of(item)
    for sample in found.samples if found else ():
        name = sample.replace(FILL, fill)
        if _TOPIC.fullmatch(name):
            yield name


def joined(one: str, other: str) -> Iterator[str]:
    """Yield names of an item in which a name of the other stands where anything may."""
    for fill in ("x", ""):
        for part in samples(other, fill):
            yield from samples(one, part)

"""Machines that match names: regular languages, read letter by letter, and what is not regular, matched as Java does,
with a budget.

They are built from syntax trees (see `java_regex`); TooLarge is raised where an answer would cost too much.
"""

from __future__ import annotations

import string
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from mm2mgr.topics.java_regex import (
    CHARS,
    OTHER,
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
)

LONGEST_NAME = 249
_LIKED = "x" + string.ascii_lowercase.replace("x", "") + string.digits + "-._" + string.ascii_uppercase
_MOST_INSTRUCTIONS = 20_000
_MOST_WORK = 20_000_000  # places in the program that one machine looks at as it is walked


class TooLarge(Exception):
    """The answer would take more states than allowed."""


# --- machines ---------------------------------------------------------------------------------------------------------


class Machine(Protocol):
    """Reads a name from `start` on; state None: no continuation is accepted. `letters`: those that it distinguishes."""

    @property
    def start(self) -> Hashable: ...

    @property
    def letters(self) -> frozenset[frozenset[str]]: ...

    def step(self, state: Hashable, char: str) -> Hashable: ...

    def accepts(self, state: Hashable) -> bool: ...


def accepts(machine: Machine, name: str) -> bool:
    """Tell whether a machine accepts a whole name."""
    state = _state_after(machine, name)
    return state is not None and machine.accepts(state)


def _state_after(machine: Machine, text: str) -> Hashable:
    state = machine.start
    for char in text:
        if state is None:
            return None
        state = machine.step(state, char)
    return state


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
    start: int
    node: Lookaround | Atomic


_Instruction = Chars | Edge | Boundary | Back | _Split | _Save | _Inner | None  # None: the end of a program


class _Program:
    """A tree as instructions, one after the other; programs of lookarounds and atomic nodes follow. Raises TooLarge."""

    def __init__(self, tree: Node) -> None:
        self.steps: list[_Instruction] = []
        self.groups = 0
        self._inner: list[tuple[int, Lookaround | Atomic]] = []
        self._add(tree)
        self.steps.append(None)
        while self._inner:
            at, node = self._inner.pop()
            self.steps[at] = _Inner(len(self.steps), node)
            self._add(node.node)
            self.steps.append(None)

    def _put(self, instruction: _Instruction) -> int:
        if len(self.steps) >= _MOST_INSTRUCTIONS:
            raise TooLarge
        self.steps.append(instruction)
        return len(self.steps) - 1

    def _add(self, node: Node) -> None:
        if isinstance(node, Chars | Edge | Boundary | Back):
            self._put(node)
        elif isinstance(node, Lookaround | Atomic):
            self._inner.append((self._put(_Inner(0, node)), node))
        elif isinstance(node, Seq):
            for part in node.nodes:
                self._add(part)
        elif isinstance(node, Group):
            self.groups = max(self.groups, node.number)
            self._put(_Save(node.number, is_end=False))
            self._add(node.node)
            self._put(_Save(node.number, is_end=True))
        elif isinstance(node, Alt):
            self._alternatives(node)
        else:
            self._repeat(node)

    def _alternatives(self, node: Alt) -> None:
        split, ends, starts = self._put(_Split(())), [], []
        for part in node.nodes:
            starts.append(len(self.steps))
            self._add(part)
            ends.append(self._put(_Split(())))
        self.steps[split] = _Split(tuple(starts))
        for end in ends:
            self.steps[end] = _Split((len(self.steps),))

    def _repeat(self, node: Repeat) -> None:
        enough = LONGEST_NAME + 1  # more of what takes a letter is in no name, more of what takes none changes nothing
        for _ in range(min(node.least, enough)):
            before = len(self.steps)
            self._add(node.node)
            if len(self.steps) == before:
                return  # nothing, however often
        splits = []
        if node.most is None:
            splits.append(self._put(_Split(())))
            self._add(node.node)
            self._put(_Split((splits[0],)))
        else:
            for _ in range(min(node.most - node.least, enough)):
                splits.append(self._put(_Split(())))
                self._add(node.node)
                if len(self.steps) == splits[-1] + 1:
                    break
        for split in splits:
            ways = (split + 1, len(self.steps))
            self.steps[split] = _Split(ways[::-1] if node.lazy else ways)


class Regular:
    """The language of a tree: its program, made deterministic as far as it is walked. TooLarge; TypeError for what is
    not regular.
    """

    def __init__(self, tree: Node) -> None:
        steps = _Program(tree).steps
        self._moves = {at: step.of for at, step in enumerate(steps) if isinstance(step, Chars)}
        self._edges = {at: step.at for at, step in enumerate(steps) if isinstance(step, Edge)}
        self._jumps = {at: step.to for at, step in enumerate(steps) if isinstance(step, _Split)}
        self._jumps |= {at: (at + 1,) for at, step in enumerate(steps) if isinstance(step, _Save)}
        self._final = len(steps) - 1
        if len(self._moves) + len(self._edges) + len(self._jumps) != self._final:
            raise TypeError("a lookaround, a backreference or a possessive repetition is no part of a regular language")
        self._sets: list[frozenset[int]] = []
        self._number: dict[frozenset[int], int] = {}
        self._next: list[dict[str, int | None]] = []
        self._ends: dict[int, bool] = {}
        self._work = 0
        self.letters = frozenset(self._moves.values())
        self.start: Hashable = self._state_number(self._closure({0}, "start"))

    def matches(self, name: str) -> bool:
        """Tell whether it accepts a whole name of any characters, in time that grows as the name does; TooLarge."""
        state = self.start
        for char in name:
            if not isinstance(state, int):
                return False
            moves = self._next[state]
            state = moves[char] if char in moves else self.step(state, char if char in CHARS else OTHER)
        return state is not None and self.accepts(state)

    def step(self, state: Hashable, char: str) -> Hashable:
        assert isinstance(state, int)
        moves = self._next[state]
        if char not in moves:
            self._pay(len(self._sets[state]))
            reached = {
                state_now + 1
                for state_now in self._sets[state]
                if state_now in self._moves and char in self._moves[state_now]
            }
            moves[char] = self._state_number(self._closure(reached)) if reached else None
        return moves[char]

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, int)
        if state not in self._ends:
            self._ends[state] = self._final in self._closure(self._sets[state], "end")
        return self._ends[state]

    def _state_number(self, states: frozenset[int]) -> int:
        if states not in self._number:
            self._number[states] = len(self._sets)
            self._sets.append(states)
            self._next.append({})
        return self._number[states]

    def _closure(self, states: Iterable[int], edge: str = "") -> frozenset[int]:
        """Return where a letter or an edge is next, or the end, when all jumps and this edge are gone through."""
        closure = set(states)
        waiting = list(closure)
        while waiting:
            at = waiting.pop()
            for to in (at + 1,) if self._edges.get(at) == edge else self._jumps.get(at, ()):
                if to not in closure:
                    closure.add(to)
                    waiting.append(to)
        self._pay(len(closure))
        return frozenset(state_now for state_now in closure if state_now not in self._jumps)

    def _pay(self, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise TooLarge


class Literals:
    """The language of some names; a state is what was read, as long as one of them starts with it."""

    start: Hashable = ""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(set(names))
        self.letters = frozenset(frozenset(char) for char in {char for name in self._names for char in name})

    def step(self, state: Hashable, char: str) -> Hashable:
        text = f"{state}{char}"
        at = bisect_left(self._names, text)
        return text if at < len(self._names) and self._names[at].startswith(text) else None

    def accepts(self, state: Hashable) -> bool:
        at = bisect_left(self._names, str(state))
        return at < len(self._names) and self._names[at] == state


class Both:
    """What two machines accept, both of them."""

    def __init__(self, machine: Machine, other: Machine) -> None:
        self._one, self._other = machine, other
        self.start: Hashable = (machine.start, other.start)
        self.letters = machine.letters | other.letters

    def step(self, state: Hashable, char: str) -> Hashable:
        assert isinstance(state, tuple)
        first, other = self._one.step(state[0], char), self._other.step(state[1], char)
        return None if first is None or other is None else (first, other)

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, tuple)
        return self._one.accepts(state[0]) and self._other.accepts(state[1])


# --- words ------------------------------------------------------------------------------------------------------------


Resumed = tuple[Machine, str]
"""A machine that goes on after a text that it has read."""


@dataclass(frozen=True)
class Search:
    """What a search found: the shortest word or None, after walking over so many states; `open` when it gave up."""

    word: str | None
    states: int
    open: bool = False


def shortest(required: Sequence[Resumed], refused: Sequence[Resumed], most_states: int) -> Search:
    """Find the shortest text that all `required` and no `refused` machine accepts; breadth first: None proves it."""
    try:
        return _shortest(required, refused, most_states)
    except TooLarge:
        return Search(None, most_states, open=True)


def _shortest(required: Sequence[Resumed], refused: Sequence[Resumed], most_states: int) -> Search:
    machines = [machine for machine, _ in (*required, *refused)]
    needed = len(required)
    start = tuple(_state_after(machine, read) for machine, read in (*required, *refused))
    if None in start[:needed]:
        return Search(None, 1)
    longest = LONGEST_NAME - max((len(read) for _, read in required), default=0)
    letters = _letters(frozenset().union(*(machine.letters for machine in machines)))
    steps = tuple(enumerate(machines))
    waiting = deque([(start, "")])
    visited = set[tuple[Hashable, ...]]()  # not the start: a text may lead back to it, and the empty one is no name
    while waiting:
        states, text = waiting.popleft()
        if len(text) >= longest:
            break
        for char in letters:
            reached: list[Hashable] = []
            for at, machine in steps:
                state = states[at]
                reached.append(None if state is None else machine.step(state, char))
                if at < needed and reached[at] is None:
                    break
            else:
                new = tuple(reached)
                if new in visited:
                    continue
                if _are_accepted(machines, new, needed):
                    return Search(text + char, len(visited))
                if len(visited) >= most_states:
                    return Search(None, len(visited), open=True)
                visited.add(new)
                waiting.append((new, text + char))
    return Search(None, len(visited))


def _are_accepted(machines: Sequence[Machine], states: Sequence[Hashable], needed: int) -> bool:
    if not all(machine.accepts(state) for machine, state in zip(machines[:needed], states, strict=False)):
        return False
    others = zip(machines[needed:], states[needed:], strict=True)
    return not any(state is not None and machine.accepts(state) for machine, state in others)


@cache
def _letters(distinguished: frozenset[frozenset[str]]) -> tuple[str, ...]:
    """Return one letter of each kind that machines distinguish, a readable one."""
    kinds: dict[tuple[bool, ...], str] = {}
    for char in _LIKED:
        kinds.setdefault(tuple(char in chars for chars in distinguished), char)
    return tuple(kinds.values())


# --- what is no regular language
# ----------------------------------------------------------------------------------------

_MOST_STEPS = 1_500_000
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

_Texts = tuple[tuple[int, int], ...]  # where each group's text begins and ends; -1 for none
_Match = tuple[int, _Texts]


class Backtracker:
    """Matches whole names. All names together may take MOST_STEPS; then each further one raises TooLarge."""

    def __init__(self, tree: Node) -> None:
        self._program = _Program(tree)
        self._left = _MOST_STEPS
        self._rough = Regular(relax(tree))  # most names do not match anyway, and it is quick to say so

    def matches(self, name: str) -> bool:
        """Tell whether it matches a whole name; TooLarge."""
        if not self._rough.matches(name):
            return False
        text = "".join(char if char in CHARS else OTHER for char in name)
        return self._run(0, 0, ((-1, -1),) * self._program.groups, text, len(text)) is not None

    def _run(self, start: int, at: int, texts: _Texts, name: str, must_end: int | None) -> _Match | None:
        """Return the first way through a program, its end and its groups' texts. A state that failed fails again."""
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
            step = self._program.steps[number]
            if step is None:
                if must_end in (None, at):
                    return at, texts
            elif isinstance(step, _Split):
                waiting += [(to, at, texts) for to in reversed(step.to)]
            elif (after := self._step_after(step, at, texts, name)) is not None:
                waiting.append((number + 1, *after))
        return None

    def _step_after(self, step: _Instruction, at: int, texts: _Texts, name: str) -> _Match | None:
        """Return where a single step leads, None when it fails."""
        if isinstance(step, _Inner):
            return self._run_inside(step, at, texts, name)
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

    def _run_inside(self, step: _Inner, at: int, texts: _Texts, name: str) -> _Match | None:
        if isinstance(step.node, Atomic):
            return self._run(step.start, at, texts, name, None)
        if step.node.behind:
            ways = (self._run(step.start, start, texts, name, at) for start in range(at, -1, -1))
            way = next((way_there for way_there in ways if way_there is not None), None)
        else:
            way = self._run(step.start, at, texts, name, None)
        if step.node.negative:
            return (at, texts) if way is None else None
        return (at, way[1]) if way is not None else None


def relax(node: Node) -> Node:
    """Return a regular language of all that a node matches: lookarounds count as matched, a backreference as any."""
    if isinstance(node, Lookaround | Boundary):
        return Seq()
    if isinstance(node, Back):
        return Repeat(Chars(CHARS), 0, None)
    if isinstance(node, Atomic | Group):
        return relax(node.node)
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(map(relax, node.nodes)))
    return Repeat(relax(node.node), node.least, node.most) if isinstance(node, Repeat) else node

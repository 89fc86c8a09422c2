"""Matches expressions that are not regular, as Java does, without repeating a step and with a budget.

These have lookarounds, backreferences or possessive repetitions. Only backreferences need more than (size of the
expression) x (length of the name) states; TooLarge is raised when the budget is used up.
"""

from __future__ import annotations

from dataclasses import dataclass

from mm2mgr.topics.automaton import LONGEST_NAME, Regular, TooLarge
from mm2mgr.topics.syntax import (
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

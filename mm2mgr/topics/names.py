"""Topic and group filters: which names a list of Java expressions matches, however many plain names it holds.

Items are in their Java form. Here are matchers, machines, sample names and affixes of them. Source: DefaultTopicFilter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import takewhile

from mm2mgr.errors import Mm2mgrError
from mm2mgr.spec.patterns import check_pattern, matcher
from mm2mgr.topics.automaton import LONGEST_NAME, Regular, TooLarge
from mm2mgr.topics.backtracking import Backtracker
from mm2mgr.topics.java_regex import FILL, PLAIN, Shape, shape
from mm2mgr.topics.syntax import CHARS, TOPIC_CHARS, Alt, Chars, Group, Lookaround, Node, Repeat, Seq

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


_MOST_TEXTS, _MOST_REPEATS, _LONGEST = 64, 8, 249
_Texts = dict[str, bool]  # text → whether nothing follows it


@dataclass(frozen=True)
class Affixes:
    """Each name begins with one of `starts` and ends with one of `ends`; `names` are all of them, None when they are many."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    names: tuple[str, ...] | None = None


@lru_cache(maxsize=65536)
def affixes(item: str) -> Affixes:
    """Return the affixes of an item."""
    found = shape_of(item)
    if found is None:
        return Affixes((), (), ())
    if found.tree is None:
        return Affixes((found.prefix,), (found.suffix,))
    starts = _after(found.tree, {"": True}, backwards=False)
    ends = _after(found.tree, {"": True}, backwards=True)
    return Affixes(tuple(starts), tuple(ends), tuple(starts) if all(starts.values()) else None)


def meet(ones: Iterable[str], others: Iterable[str], *, at_end: bool = False) -> bool:
    """Tell whether a name can begin (or end) with one of each."""
    others = tuple(others)
    if at_end:
        return any(one.endswith(other) or other.endswith(one) for one in ones for other in others)
    return any(one.startswith(other) or other.startswith(one) for one in ones for other in others)


def _after(node: Node, texts: _Texts, *, backwards: bool) -> _Texts:
    """Go on with a node behind (or before) each text that is not cut."""
    if not any(texts.values()):
        return texts
    if isinstance(node, Chars):
        return _longer(node, texts, backwards=backwards)
    if isinstance(node, Group):
        return _after(node.node, texts, backwards=backwards)
    if isinstance(node, Seq):
        for each in reversed(node.nodes) if backwards else node.nodes:
            texts = _after(each, texts, backwards=backwards)
    elif isinstance(node, Alt):
        texts = _merged([_after(each, texts, backwards=backwards) for each in node.nodes], texts)
    elif isinstance(node, Repeat):
        for _ in range(min(node.least, _MOST_REPEATS)):
            before, texts = texts, _after(node.node, texts, backwards=backwards)
            if texts == before:
                break
        if node.most is None or node.most > _MOST_REPEATS:
            return dict.fromkeys(texts, False)
        ways = [texts]
        for _ in range(node.most - node.least):
            ways.append(_after(node.node, ways[-1], backwards=backwards))
            if ways[-1] == ways[-2]:
                break
        texts = _merged(ways, texts)
    return texts


def _longer(node: Chars, texts: _Texts, *, backwards: bool) -> _Texts:
    going_on = [text for text, whole in texts.items() if whole]
    of = node.of & TOPIC_CHARS
    if len(texts) + len(going_on) * len(of) > _MOST_TEXTS or any(len(text) >= _LONGEST for text in going_on):
        return dict.fromkeys(texts, False)
    longer = {char + text if backwards else text + char: True for text in going_on for char in sorted(of)}
    return _merged([{text: False for text, whole in texts.items() if not whole}, longer], texts)


def _merged(ways: Iterable[_Texts], before: _Texts) -> _Texts:
    """Put texts together; when they become too many, those from before are cut where they are."""
    found: _Texts = {}
    for each in ways:
        for text, whole in each.items():
            found[text] = found.get(text, True) and whole
    return found if len(found) <= _MOST_TEXTS else dict.fromkeys(before, False)

"""Topic and group filters: which names a list of Java expressions matches, however many plain names stand in it.

In: items in their Java form. Out: matchers, machines and sample names of them. Source: DefaultTopicFilter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from mm2mgr.spec.patterns import check_pattern, matcher
from mm2mgr.topics.automaton import LONGEST_NAME, Regular, TooLarge, accepts
from mm2mgr.topics.java_regex import FILL, PLAIN, Shape, shape
from mm2mgr.topics.syntax import Alt

Items = tuple[str, ...]
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
    """Tell whether it is known what an item matches: by Python's expressions where they mean the same, else by an automaton.

    Automata read topic names only; groups and keys of settings may hold other characters.
    """
    return literal(item) is not None or _alike(item) or (topics and machine_of((item,)) is not None)


@cache
def _alike(item: str) -> bool:
    """Tell whether an expression means the same in Java and in Python, and is quickly matched."""
    found = shape_of(item)
    if found is None or found.costly:
        return False
    try:
        check_pattern(item)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def machine_of(items: Items) -> Regular | None:
    """Return the machine of any of these items, None when one of them is not regular, not understood or too large."""
    trees = [found.tree if (found := shape_of(item)) else None for item in items]
    try:
        return Regular(Alt(tuple(tree for tree in trees if tree))) if None not in trees else None
    except TooLarge:
        return None


class _AnyOf:
    """Matches what one of the items does; a list may hold thousands of plain names."""

    def __init__(self, items: Items) -> None:
        self.literals = dict.fromkeys(name for item in items if (name := literal(item)) is not None)
        self.patterns = tuple(item for item in items if literal(item) is None)
        # In a group, so that `matcher` does not take the dots of a plain name literally: Java does not.
        alike = [f"(?:{item})" for item in self.patterns if _alike(item)]
        self._alike = matcher(alike, []) if alike else None
        self._others = [machine for item in self.patterns if not _alike(item) and (machine := machine_of((item,)))]

    def __call__(self, name: str) -> bool:
        if name in self.literals or (self._alike and self._alike(name)):
            return True
        return any(accepts(machine, name) for machine in self._others)


_any_of = lru_cache(maxsize=4096)(_AnyOf)


@dataclass(frozen=True)
class Names:
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
        return len(name) <= LONGEST_NAME and self.wanted(name) and not self.unwanted(name)


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

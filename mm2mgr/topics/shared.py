"""Whether several source connectors take one topic: found, proved that there is none, or not decided, at a bounded cost.

In: selections, each with the text that hops before it put before a topic. Out: Shared values. Names that people wrote and
readable samples come first; then the automata of all filters are walked together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice

from mm2mgr.topics.automaton import Begun, Both, Literals, Machine, Search, shortest
from mm2mgr.topics.names import Items, Names, joined, machine_of, samples, shape_of
from mm2mgr.topics.selection import Selection

_STATES_OF_ONE, _STATES_OF_ALL = 10_000, 100_000
_MOST_SAMPLES = 400


@dataclass(frozen=True)
class Shared:
    """A topic that several selections take; None with `undecided` (the patterns it hangs on), or proved that there is none."""

    topic: str | None = None
    undecided: str = ""


NONE = Shared()


class Budget:
    """How many states the searches of one question may walk over together."""

    def __init__(self, states: int = _STATES_OF_ALL) -> None:
        self.left = states

    def spend(self, search: Search) -> Search:
        self.left -= search.states
        return search


def meeting(
    members: Sequence[Selection], read: Sequence[str] = (), *, but: Items = (), budget: Budget | None = None
) -> Shared:
    """Find a topic that all selections take and none of `but` matches.

    With `read`, each takes it with a text before it: what the hops before it have put there.
    """
    budget = budget or Budget()
    begun = list(zip(members, read or [""] * len(members), strict=True))
    unwanted = Names(but, ())

    def taken(topic: str) -> bool:
        return not unwanted.takes(topic) and all(each.takes(before + topic) for each, before in begun)

    named, complete = _named(begun)
    found = next((topic for topic in named if topic and taken(topic)), None)
    if found is not None or complete:
        return Shared(found)
    kept = _may_meet(begun)
    if not all(kept):
        return NONE
    found = next((topic for topic in islice(_sampled(begun, kept), _MOST_SAMPLES) if topic and taken(topic)), None)
    return Shared(found) if found is not None else _searched(begun, kept, taken, but, budget)


_Begun = Sequence[tuple[Selection, str]]


def _named(begun: _Begun) -> tuple[Iterable[str], bool]:
    """Return the names that people wrote, as topics; and whether there can be no others."""
    only = [pair for pair in begun if not pair[0].names.wanted.patterns]
    chosen = [min(only, key=lambda pair: len(pair[0].names.wanted.literals))] if only else begun
    names = (
        name[len(before) :] for each, before in chosen for name in each.names.wanted.literals if name.startswith(before)
    )
    return names, bool(only)


def _may_meet(begun: _Begun) -> list[Items]:
    """Return the patterns of each selection whose literal starts and ends leave room for a topic that all of them take."""
    kept = [selection.names.wanted.patterns for selection, _ in begun]
    for at, (_, before) in enumerate(begun):
        for other, (_, before_other) in enumerate(begun):
            if at != other:
                ends = [_ends(item, before_other) for item in kept[other]]
                kept[at] = tuple(item for item in kept[at] if _fits(_ends(item, before), ends))
    return kept


@lru_cache(maxsize=65536)
def _ends(item: str, before: str) -> tuple[str, str] | None:
    """Return the literal start and end of what an item leaves for the topic; None when it does not begin with `before`."""
    found = shape_of(item)
    if found is None:
        return None
    if found.prefix.startswith(before):
        return found.prefix[len(before) :], "" if before else found.suffix
    return ("", "" if before else found.suffix) if before.startswith(found.prefix) else None


def _fits(own: tuple[str, str] | None, others: Sequence[tuple[str, str] | None]) -> bool:
    return own is not None and any(_facing(own, other) for other in others if other)


def _facing(one: tuple[str, str], other: tuple[str, str]) -> bool:
    starts = one[0].startswith(other[0]) or other[0].startswith(one[0])
    return starts and (one[1].endswith(other[1]) or other[1].endswith(one[1]))


def _sampled(begun: _Begun, kept: Sequence[Items]) -> Iterator[str]:
    """Yield readable topics to try: samples of the patterns, then samples in which one of another stands where anything may."""
    for (_, before), items in zip(begun, kept, strict=True):
        for item in items:
            yield from (name.removeprefix(before) for name in samples(item))
    for (_, before), items in zip(begun, kept, strict=True):
        others = dict.fromkeys(item for each in kept if each is not items for item in each)
        for item in items:
            yield from (name.removeprefix(before) for other in others for name in joined(item, other))


def _searched(begun: _Begun, kept: Sequence[Items], taken: Callable[[str], bool], but: Items, budget: Budget) -> Shared:
    """Decide by walking the automata of all filters together."""
    wanted = [tuple(item for item in items if machine_of((item,))) for items in kept]
    unclear = next((item for items in kept for item in items if not machine_of((item,))), "")
    undecided = Shared(undecided=unclear or " and ".join(dict.fromkeys(items[0] for items in kept)))
    machines = [machine_of(items) for items in wanted]
    required = [Begun(machine, before) for machine, (_, before) in zip(machines, begun, strict=True) if machine]
    if len(required) < len(begun) or not all(wanted) or budget.left <= 0:
        return undecided
    nothing = Shared(undecided=unclear)
    search = budget.spend(shortest(required, (), _STATES_OF_ONE))
    if search.word is None:
        return undecided if search.open else nothing
    if taken(search.word):
        return Shared(search.word)
    refused = [Begun(machine, before) for each, before in begun for machine in _refused(each)]
    refused += [Begun(machine) for machine in [machine_of(but)] if machine]
    search = budget.spend(shortest(required, refused, _STATES_OF_ONE))
    if search.word is None:
        return undecided if search.open else nothing
    return Shared(search.word) if taken(search.word) else undecided  # an exclude pattern that is not regular


def overlaps(selections: Sequence[Selection], kinds: Sequence[int] = ()) -> Iterator[tuple[int, int, Shared]]:
    """Yield (earlier, later, what both take), each later selection once, and what is not decided; those of one kind are not compared.

    Items are sorted by their literal starts, so that only selections are compared of which one item starts as the other's.
    """
    budget, known = Budget(), dict[tuple[int, int], Shared]()
    told: set[int] = set()
    for one, other in _facing_pairs(selections):
        pair = min(one, other), max(one, other)
        if pair in known or pair[1] in told or (kinds and kinds[one] == kinds[other]):
            continue
        known[pair] = meeting([selections[pair[0]], selections[pair[1]]], budget=budget)
        if known[pair].topic is not None:
            told.add(pair[1])
            yield *pair, known[pair]
    yield from ((*pair, shared) for pair, shared in known.items() if shared.undecided and pair[1] not in told)


def _facing_pairs(selections: Sequence[Selection]) -> Iterator[tuple[int, int]]:
    """Yield pairs of which both name one topic, or an item of one begins as a pattern of the other does."""
    by_name: dict[str, list[int]] = defaultdict(list)
    entries: list[tuple[str, bool, int]] = []  # start, whether it is a pattern's, whose
    for index, selection in enumerate(selections):
        wanted = selection.names.wanted
        for name in wanted.literals:
            by_name[name].append(index)
        starts = dict.fromkeys(found.prefix for item in wanted.patterns if (found := shape_of(item)))
        entries += [(start, True, index) for start in starts]
    for name, indexes in by_name.items():
        yield from combinations(indexes, 2)
        entries += [(name, False, index) for index in indexes]
    open_: list[tuple[str, int]] = []  # patterns whose start begins the current entry's
    for start, is_pattern, index in sorted(entries, key=lambda entry: (entry[0], not entry[1], entry[2])):
        while open_ and not start.startswith(open_[-1][0]):
            open_.pop()
        yield from ((before, index) for _, before in open_ if before != index)
        if is_pattern:
            open_.append((start, index))


# --- what is left out, as machines ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _refused(selection: Selection) -> tuple[Machine, ...]:
    """Return machines of what is left out though the include list matches; an exclude pattern that is not regular is missing."""
    names = selection.names
    literals = [name for name in names.unwanted.literals if names.wanted(name)]
    regular = tuple(item for item in names.unwanted.patterns if machine_of((item,)))
    found = [machine_of((*regular, *_internal(selection))), _cycle(selection), Literals(literals) if literals else None]
    return tuple(machine for machine in found if machine)


def _internal(selection: Selection) -> Items:
    mark = f"\\Q{selection.internal_separator}\\E"
    if selection.line >= (4, 0):
        return "__.*", r"\..*", f".*{mark}checkpoints{mark}internal", f"mm2.*{mark}internal"
    return "__.*", r"\..*", r".*[.-]internal", *((f".*{mark}internal",) if selection.line >= (3, 1) else ())


def _cycle(selection: Selection) -> Machine | None:
    if selection.policy is None:
        return None
    if selection.policy == "default":
        return _Cycle(selection.target, selection.separator)
    if selection.source == selection.target:
        return machine_of((".*",))
    heartbeats = machine_of((".*heartbeats",))
    return Both(_Cycle(selection.target, selection.separator), heartbeats) if heartbeats else None


class _Cycle:
    """The topics that DefaultReplicationPolicy takes for ones that have been on the target, as a machine (`Selection.is_cycle`)."""

    start: Hashable = ("maybe", "")

    def __init__(self, target: str, separator: str) -> None:
        self._target, self._separator = target, separator
        self.letters = frozenset(frozenset(char) for char in target + separator)

    def step(self, state: Hashable, char: str) -> Hashable:
        """States: a part that `maybe` becomes the target's alias, an `other` part, what is read `behind` that alias, `seen`."""
        assert isinstance(state, tuple)
        kind, read = state
        text = read + char
        if kind == "seen" or (kind == "behind" and not self._separator.startswith(text)):
            return "seen", ""
        if not self._separator:  # each letter is a part
            return ("behind", "") if char == self._target else ("other", "")
        if kind == "behind":
            return kind, "" if text == self._separator else text
        if text.endswith(self._separator):
            return ("behind", "") if kind == "maybe" and text == self._target + self._separator else self.start
        if kind == "maybe" and (self._target + self._separator).startswith(text):
            return kind, text
        return "other", next(text[at:] for at in range(len(text) + 1) if self._separator.startswith(text[at:]))

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, tuple)
        kind, read = state
        return bool(kind == "seen" or (kind == "behind" and read))

"""Whether several source connectors take one topic: found, proved that there is none, or undecided, at bounded cost.

Names that people wrote and readable samples are tried first; then the automata of all filters are walked together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from mm2mgr.topics.automaton import shortest
from mm2mgr.topics.java_regex import TOPIC_CHARS, Alt, Chars, Group, Node, Repeat, Seq
from mm2mgr.topics.names import Items, NameFilter, Selection, machine_of, names_of_both, refused_by, samples, shape_of

_STATES_OF_ONE, _STATES_OF_ALL, _STATES_AT_LEAST = 5_000, 20_000, 5
_NAMES_LIKE_ONE_STATE = 20
_MOST_SAMPLES, _FEW_SAMPLES = 400, 20
_LAST_SIGN = "\U0010ffff"
_MOST_PAIRS = 100_000  # of connectors whose patterns are looked at together


@dataclass(frozen=True)
class Shared:
    """A topic that several selections take; None with `undecided` (the patterns in question), or None if it is proved
    that there is none.
    """

    topic: str | None = None
    undecided: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether there is one, or may be."""
        return bool(self.topic or self.undecided)


NONE = Shared()


class Budget:
    """How many states the searches of one question may walk over together."""

    def __init__(self, states: int = _STATES_OF_ALL) -> None:
        self.left = states

    def spend(self, states: int) -> bool:
        """Tell whether there was something left to spend."""
        self.left -= states
        return self.left + states > 0


_MOST_TEXTS, _MOST_REPEATS, _LONGEST = 64, 8, 249
_Texts = dict[str, bool]  # text → whether nothing follows it


@dataclass(frozen=True)
class Affixes:
    """Each name begins with one of `starts`, ends with one of `ends`; `names`: all, None when many."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    names: tuple[str, ...] | None = None


@lru_cache(maxsize=65536)
def affixes(item: str) -> Affixes:
    """Return the affixes of an item."""
    shape = shape_of(item)
    if shape is None:
        return Affixes((), (), ())
    if shape.tree is None:
        return Affixes((shape.prefix,), (shape.suffix,))
    starts = _texts_after(shape.tree, {"": True}, backwards=False)
    ends = _texts_after(shape.tree, {"": True}, backwards=True)
    return Affixes(tuple(starts), tuple(ends), tuple(starts) if all(starts.values()) else None)


class Catalog:
    """The topics of a cluster, sorted, so that only those are matched that begin as a selection's patterns do."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._sorted = sorted(topics)
        self._names = frozenset(self._sorted)

    def taken_by(self, selection: Selection) -> list[str]:
        """Return the topics that a connector takes, sorted."""
        names = selection.names.includes
        topics = {name for name in names.literals if name in self._names}
        for start in {start for item in names.patterns for start in affixes(item).starts}:
            first = bisect_left(self._sorted, start)
            behind = bisect_left(self._sorted, f"{start}{_LAST_SIGN}", first)
            topics.update(self._sorted[first:behind])
        return [topic for topic in sorted(topics) if selection.takes(topic)]


def meet(texts: Iterable[str], others: Iterable[str], *, at_end: bool = False) -> bool:
    """Tell whether a name can begin (or end) with one of each."""
    others = tuple(others)
    if at_end:
        return any(text.endswith(other) or other.endswith(text) for text in texts for other in others)
    return any(text.startswith(other) or other.startswith(text) for text in texts for other in others)


def _texts_after(node: Node, texts: _Texts, *, backwards: bool) -> _Texts:
    """Go on with a node behind (or before) each text that is not cut."""
    if not any(texts.values()):
        return texts
    if isinstance(node, Chars):
        return _longer(node, texts, backwards=backwards)
    if isinstance(node, Group):
        return _texts_after(node.node, texts, backwards=backwards)
    if isinstance(node, Seq):
        for part in reversed(node.nodes) if backwards else node.nodes:
            texts = _texts_after(part, texts, backwards=backwards)
    elif isinstance(node, Alt):
        texts = _merge_texts([_texts_after(part, texts, backwards=backwards) for part in node.nodes], texts)
    elif isinstance(node, Repeat):
        for _ in range(min(node.least, _MOST_REPEATS)):
            before, texts = texts, _texts_after(node.node, texts, backwards=backwards)
            if texts == before:
                break
        if node.most is None or node.most > _MOST_REPEATS:
            return dict.fromkeys(texts, False)
        ways = [texts]
        for _ in range(node.most - node.least):
            ways.append(_texts_after(node.node, ways[-1], backwards=backwards))
            if ways[-1] == ways[-2]:
                break
        texts = _merge_texts(ways, texts)
    return texts


def _longer(node: Chars, texts: _Texts, *, backwards: bool) -> _Texts:
    going_on = [text for text, whole in texts.items() if whole]
    of = node.of & TOPIC_CHARS
    if len(texts) + len(going_on) * len(of) > _MOST_TEXTS or any(len(text) >= _LONGEST for text in going_on):
        return dict.fromkeys(texts, False)
    longer = {char + text if backwards else text + char: True for text in going_on for char in sorted(of)}
    return _merge_texts([{text: False for text, whole in texts.items() if not whole}, longer], texts)


def _merge_texts(ways: Iterable[_Texts], before: _Texts) -> _Texts:
    """Put texts together; when they become too many, those from before are cut where they are."""
    merged: _Texts = {}
    for way in ways:
        for text, whole in way.items():
            merged[text] = merged.get(text, True) and whole
    return merged if len(merged) <= _MOST_TEXTS else dict.fromkeys(before, False)


_Begun = Sequence[tuple[Selection, str]]
_Taken = Callable[[str], bool]
_Pair = tuple[int, int]  # the earlier and the later of two selections
_Open = dict[_Pair, tuple[dict[str, None], dict[str, None]]]  # items that may meet, of each


def meeting(
    members: Sequence[Selection], read: Sequence[str] = (), *, but: Items = (), budget: Budget | None = None
) -> Shared:
    """Find a topic that all selections take and none of `but` matches.

    With `read`, each takes it with a text before it: what the hops before it have put there.
    """
    budget = budget or Budget()
    begun = list(zip(members, read or [""] * len(members), strict=True))
    unwanted = NameFilter(but, ())

    def takes_all(topic: str) -> bool:
        return not unwanted.takes(topic) and all(selection.takes(before + topic) for selection, before in begun)

    named, complete = _listed_topics(begun)
    if not budget.spend(len(named) // _NAMES_LIKE_ONE_STATE):
        return Shared(undecided=f"{len(named)} names")
    topic_found = next((topic for topic in named if topic and takes_all(topic)), None)
    if topic_found is not None or complete:
        return Shared(topic_found)
    open_items = _may_meet(begun)
    return _decide(begun, open_items, takes_all, but, budget) if all(open_items) else NONE


def _listed_topics(begun: _Begun) -> tuple[list[str], bool]:
    """Return the listed names as topics, and whether there can be no others."""
    lists = [([*selection.names.includes.literals, *_few_names(selection)], before) for selection, before in begun]
    names = [[name[len(before) :] for name in names if name.startswith(before)] for names, before in lists]
    only = [topics for topics, (selection, _) in zip(names, begun, strict=True) if not _open_items(selection)]
    if not only:
        return list(dict.fromkeys(name for topics in names for name in topics)), False
    others = [set(topics) for topics in only if len(only) > 1]
    return [name for name in min(only, key=len) if all(name in other for other in others)], True


@lru_cache(maxsize=4096)
def _of_patterns(patterns: Items) -> tuple[tuple[str, ...], Items]:
    listed = dict.fromkeys(name for item in patterns for name in affixes(item).names or ())
    return tuple(listed), tuple(item for item in patterns if affixes(item).names is None)


def _few_names(selection: Selection) -> tuple[str, ...]:
    return _of_patterns(selection.names.includes.patterns)[0]


def _open_items(selection: Selection) -> Items:
    return _of_patterns(selection.names.includes.patterns)[1]


def _may_meet(begun: _Begun) -> list[Items]:
    """Return the patterns of each selection whose starts and ends leave room for a topic that all of them take."""
    open_items = [_open_items(selection) for selection, _ in begun]
    for at, (_, before) in enumerate(begun):
        for other, (_, before_other) in enumerate(begun):
            if at != other:
                ends = [_affixes_left(item, before_other) for item in open_items[other]]
                open_items[at] = tuple(
                    item for item in open_items[at] if any(_face(_affixes_left(item, before), end) for end in ends)
                )
    return open_items


@lru_cache(maxsize=65536)
def _affixes_left(item: str, before: str) -> Affixes:
    """Return the starts and ends that an item leaves for the topic when a text precedes it."""
    left = affixes(item)
    if not before:
        return left
    starts = [start[len(before) :] for start in left.starts if start.startswith(before)]
    return Affixes((*starts, *[""] * any(before.startswith(start) for start in left.starts)), ("",))


def _face(first: Affixes, other: Affixes) -> bool:
    return meet(first.starts, other.starts) and meet(first.ends, other.ends, at_end=True)


def _decide(begun: _Begun, items_of: Sequence[Items], taken: _Taken, but: Items, budget: Budget) -> Shared:
    """Decide between patterns: readable samples first, then by walking the automata of all filters together."""
    shared = next(
        (topic for topic in islice(_sample_topics(begun, items_of), _MOST_SAMPLES) if topic and taken(topic)), None
    )
    if shared is not None:
        return Shared(shared)
    regular_items = [tuple(item for item in items if machine_of((item,))) for items in items_of]
    unclear = next((item for items in items_of for item in items if not machine_of((item,))), "")
    undecided = Shared(undecided=unclear or " and ".join(dict.fromkeys(items[0] for items in items_of)))
    machines = [machine_of(items) for items in regular_items]
    required = [(machine, before) for machine, (_, before) in zip(machines, begun, strict=True) if machine]
    if len(required) < len(begun) or not all(regular_items) or budget.left <= 0:
        return undecided
    refused = [(machine, before) for selection, before in begun for machine in refused_by(selection)]
    refused += [(machine, "") for machine in [machine_of(but)] if machine and but]
    for left_out in ((), refused):  # without what is left out first: that is quick, and mostly proves it
        search = shortest(required, list(dict.fromkeys(left_out)), _STATES_OF_ONE)
        if not budget.spend(_STATES_AT_LEAST + search.states) or search.open:
            return undecided
        if search.word is None:
            return Shared(undecided=unclear)
        if taken(search.word):
            return Shared(search.word)
    return undecided  # an exclude pattern that is not regular refuses the word


def _sample_topics(begun: _Begun, items_of: Sequence[Items]) -> Iterator[str]:
    """Yield readable topics to try: samples of patterns, and of one in another where that takes any text."""
    for (_, before), items in zip(begun, items_of, strict=True):
        for item in items:
            yield from (name.removeprefix(before) for name in samples(item))
    for (_, before), items in zip(begun, items_of, strict=True):
        others = dict.fromkeys(item for items_there in items_of if items_there is not items for item in items_there)
        for item in items:
            yield from (name.removeprefix(before) for other in others for name in names_of_both(item, other))


# --- each with each ---------------------------------------------------------------------------------------------------


def overlaps(
    selections: Sequence[Selection], kinds: Sequence[int] = (), budget: Budget | None = None
) -> Iterator[tuple[int, int, Shared]]:
    """Yield (earlier, later, what both take), each later selection once, then once what of it is not decided.

    Those of one kind are not compared. Only items that may meet are: see `_facing`.
    """
    if kinds and len(set(kinds)) < 2:
        return
    budget = budget or Budget()
    open_: _Open = {}
    reported: set[int] = set()
    undecided: dict[int, tuple[int, int, Shared]] = {}
    for (place, item, name), (other, other_item, other_name) in _facing(selections, reported):
        pair = min(place, other), max(place, other)
        if pair[1] in reported or place == other or (kinds and kinds[place] == kinds[other]):
            continue
        both = [(selections[place], ""), (selections[other], "")]
        topic = name or other_name
        if topic:
            topic_of_both = topic if _taken_by(both)(topic) else None
        elif pair in open_:
            topic_of_both = None
        else:
            few = islice(_sample_topics(both, [(item,), (other_item,)]), _FEW_SAMPLES)
            topic_of_both = next((topic for topic in few if topic and _taken_by(both)(topic)), None)
        if topic_of_both is not None:
            reported.add(pair[1])
            yield *pair, Shared(topic_of_both)
        elif not topic and len(open_) >= _MOST_PAIRS and pair not in open_:
            reported.add(pair[1])
            yield *pair, Shared(undecided=f"{item} and {other_item}")
        elif not topic:
            items = open_.setdefault(pair, ({}, {}))
            items[place > other][item] = items[other > place][other_item] = None
    for pair, shared in _of_pairs(selections, open_, reported, budget):
        if shared.topic is not None:
            yield *pair, shared
        else:
            undecided.setdefault(pair[1], (*pair, shared))
    yield from (pair for later, pair in undecided.items() if later not in reported)


def _of_pairs(
    selections: Sequence[Selection], open_: _Open, reported: set[int], budget: Budget
) -> Iterator[tuple[_Pair, Shared]]:
    for pair, items in open_.items():
        if pair[1] in reported:
            continue
        both = [(selections[place], "") for place in pair]
        shared = _decide(both, [tuple(items_there) for items_there in items], _taken_by(both), (), budget)
        if shared.topic is not None:
            reported.add(pair[1])
        if shared != NONE:
            yield pair, shared


def _taken_by(both: _Begun) -> _Taken:
    return lambda topic: all(selection.takes(topic) for selection, _ in both)


_Entry = tuple[int, str, str]  # whose item, the item, the name when it is one


def _facing(selections: Sequence[Selection], reported: Set[int]) -> Iterator[tuple[_Entry, _Entry]]:
    """Yield two items that may match one name: equal names, or starts and ends that fit, at least one item a pattern.

    Sorted by their starts, only items are compared of which one begins as the other; those that may begin with anything
    are compared by their ends. What is in `reported` already is compared as the earlier one only.
    """
    by_name: dict[str, list[_Entry]] = defaultdict(list)
    patterns: list[_Entry] = []
    for index, selection in enumerate(selections):
        for name in (*selection.names.includes.literals, *_few_names(selection)):
            by_name[name].append((index, name, name))
        patterns += [(index, item, "") for item in _open_items(selection)]
    for name, entries in by_name.items():
        takers = [entry for entry in entries if len(entries) > 1 and selections[entry[0]].takes(name)]
        for at, entry in enumerate(takers):
            for before in takers[:at] if entry[0] not in reported else ():
                yield before, entry
                if entry[0] in reported:
                    break
    if not patterns:
        return
    names = [entry for entries in by_name.values() for entry in entries]
    anyhow = {item for _, item, _ in patterns if "" in affixes(item).starts}
    begun = [(start, entry) for entry in patterns if entry[1] not in anyhow for start in affixes(entry[1]).starts]
    yield from _beginning_alike([*begun, *((entry[2], entry) for entry in names)], reported)
    ended = [(end[::-1], entry) for entry in patterns for end in affixes(entry[1]).ends]
    every = [*ended, *((entry[2][::-1], entry) for entry in names)] if anyhow else []
    for first, other in _beginning_alike(every, reported):
        if first[1] in anyhow or other[1] in anyhow:
            yield first, other


def _beginning_alike(entries: Sequence[tuple[str, _Entry]], reported: Set[int]) -> Iterator[tuple[_Entry, _Entry]]:
    """Yield the patterns and names of which the text of one begins with the other's; two names are none."""
    open_: list[tuple[str, _Entry]] = []  # patterns whose text begins the current one's
    waiting: list[tuple[str, _Entry]] = []  # those of them that are not reported
    for text, entry in sorted(entries, key=lambda pair: (pair[0], pair[1][2] != "", pair[1])):
        while open_ and not text.startswith(open_[-1][0]):
            open_.pop()
        waiting = [pair for pair in waiting if pair[1][0] not in reported and text.startswith(pair[0])]
        for _, before in open_:
            if entry[0] in reported:
                break
            if entry[2] or _face(affixes(before[1]), affixes(entry[1])):
                yield before, entry
        if entry[0] in reported:
            for _, before in waiting:
                if before[0] > entry[0] and (entry[2] or _face(affixes(before[1]), affixes(entry[1]))):
                    yield before, entry
        if not entry[2]:
            open_.append((text, entry))
            waiting.append((text, entry))

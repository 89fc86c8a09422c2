"""Topic and group filters of connectors as they run: which names they take, and whether two of them take the same one.

In: the lists of a connector, defaults of its Kafka version included. Out: `Names`; None where a filter cannot be judged here
(a filter class of its own, placeholders, expressions that Python reads otherwise than Java). Source: DefaultTopicFilter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from mm2mgr.lint.java_regex import FILL, Shape, shape
from mm2mgr.lint.subject import Subject
from mm2mgr.spec.patterns import check_pattern, is_name, matcher
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import numbers

Items = tuple[str, ...]
FILTERS = {
    "topics": ("topic.filter.class", "DefaultTopicFilter"),
    "groups": ("group.filter.class", "DefaultGroupFilter"),
    "config.properties": ("config.property.filter.class", "DefaultConfigPropertyFilter"),
}
_LONGEST_NAME = 249
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST_NAME}}}")


@dataclass(frozen=True)
class Names:
    """A filter: names that match one of `include` wholly and none of `exclude`."""

    include: Items
    exclude: Items

    def takes(self, name: str) -> bool:
        """Tell whether it takes a name; none is longer than Kafka allows."""
        return len(name) <= _LONGEST_NAME and _any_of(self.include)(name) and not _any_of(self.exclude)(name)


@cache
def _any_of(items: Items) -> Callable[[str], bool]:
    # In a group, so that `matcher` does not take the dots of a plain name literally: Java does not.
    return matcher([f"(?:{item})" for item in items], [])


def judged(subject: Subject, what: str) -> bool:
    """Tell whether Kafka's own filter class reads the lists of `what` (topics, groups, config.properties)."""
    key, own = FILTERS[what]
    return subject.get(key, own).rpartition(".")[2] == own


def items(subject: Subject, key: str) -> Items:
    """Return what a LIST key holds, Kafka's default for it when nobody wrote it; () where it cannot be judged."""
    what = key.removesuffix(".exclude")
    if not judged(subject, what) or "${" in subject.get(key):
        return ()
    return _split(subject.get(key)) if key in subject.config else default(subject, key)


def default(subject: Subject, key: str) -> Items:
    """Return Kafka's own list for a key in the subject's version."""
    return _default(subject.type, key, subject.version)


def repeats_default(subject: Subject, key: str) -> bool:
    """Tell whether a list holds all of Kafka's default for it."""
    return set(default(subject, key)) <= set(items(subject, key))


@cache
def _default(type_: str, key: str, version: str) -> Items:
    found = truth_keys.load().find(type_, key, version)
    return tuple(item for item in (found.default or "").split(",") if item) if found else ()


def names(subject: Subject, what: str = "topics") -> Names | None:
    """Return a connector's filter of topics or groups, None when it cannot be judged."""
    include, exclude = (subject.config.get(key) for key in (what, f"{what}.exclude"))
    return _names(subject.type, what, include, exclude, subject.version) if judged(subject, what) else None


@lru_cache(maxsize=8192)
def _names(type_: str, what: str, include: str | None, exclude: str | None, version: str) -> Names | None:
    lists = [
        _default(type_, key, version) if text is None else _split(text)
        for key, text in ((what, include), (f"{what}.exclude", exclude))
    ]
    known = all("${" not in item and _alike(item) for each in lists for item in each)
    return Names(*lists) if known else None


@lru_cache(maxsize=8192)
def _split(text: str) -> Items:
    """Split as Kafka does; empty items match nothing that has a name."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


@cache
def _alike(item: str) -> bool:
    """Tell whether an expression means the same in Java and in Python, and is quickly matched."""
    found = shape_of(item)
    if found is None or found.costly:
        return False
    if found.literal or is_name(item):
        return True
    try:
        check_pattern(item)
    except ValueError:
        return False
    return True


@cache
def shape_of(item: str) -> Shape | None:
    """Return the shape of an item, None for one that Java refuses."""
    try:
        return shape(item)
    except ValueError:
        return None


def plain_name(item: str) -> str | None:
    """Return the one name an item is meant for, None for a real expression (unescaped dots of a name count as dots)."""
    found = shape_of(item)
    return item if is_name(item) else found.literal if found and found.literal else None


def samples(item: str, fill: str = "x") -> Iterator[str]:
    """Yield topic names that an item is likely to match."""
    found = shape_of(item)
    for sample in found.samples if found else ():
        name = sample.replace(FILL, fill)
        if _TOPIC.fullmatch(name):
            yield name


def is_internal(topic: str, separator: str, version: str) -> bool:
    """Tell whether a policy keeps a topic back whatever the filter says (ReplicationPolicy.isInternalTopic, KIP-1074)."""
    if topic.startswith(("__", ".")):
        return True
    if _before_4_0(version):
        return topic.endswith((".internal", "-internal", f"{separator}internal"))
    checkpoints = topic.endswith(f"{separator}checkpoints{separator}internal")
    return checkpoints or (topic.startswith("mm2") and topic.endswith(f"{separator}internal"))


@cache
def _before_4_0(version: str) -> bool:
    return numbers(version) < (4, 0)


def shared_name(first: str, second: str, taken: Callable[[str], bool]) -> str | None:
    """Return a name that both items match and `taken` agrees to, None when none is found."""
    for name in _candidates(first, second):
        if _any_of((first,))(name) and _any_of((second,))(name) and taken(name):
            return name
    return None


def _candidates(first: str, second: str) -> Iterator[str]:
    yield from samples(first)
    yield from samples(second)
    for one, other in ((first, second), (second, first)):
        yield from joined(one, other)


def joined(one: str, other: str) -> Iterator[str]:
    """Yield names of an item in which a name of the other stands where anything may."""
    for fill in ("x", ""):
        for part in samples(other, fill):
            yield from samples(one, part)


def overlaps(filters: Sequence[Names], kinds: Sequence[int] = ()) -> Iterator[tuple[int, int, str]]:
    """Yield (earlier, later, a name both take), each later filter once; filters of one kind are not compared.

    Items are sorted by their literal starts, so that only those are compared of which one starts as the other does.
    """
    told: set[int] = set()
    open_: list[tuple[str, str, int]] = []  # entries whose prefix starts the current one's
    for prefix, item, index in sorted(_entries(filters)):
        while open_ and not prefix.startswith(open_[-1][0]):
            open_.pop()
        for _, other, before in open_:
            if before == index or (kinds and kinds[before] == kinds[index]):
                continue
            if max(before, index) not in told:
                found = _shared(item, other, filters[index], filters[before])
                if found:
                    told.add(max(before, index))
                    yield min(before, index), max(before, index), found
        open_.append((prefix, item, index))


def _entries(filters: Sequence[Names]) -> Iterator[tuple[str, str, int]]:
    for index, each in enumerate(filters):
        for item in each.include:
            if found := shape_of(item):
                yield found.prefix, item, index


def _shared(item: str, other: str, first: Names, second: Names) -> str | None:
    if not may_meet(item, other):
        return None
    return shared_name(item, other, lambda name: first.takes(name) and second.takes(name))


def may_meet(item: str, other: str) -> bool:
    """Tell whether the literal starts and ends of two items leave room for a name that both match."""
    one, two = shape_of(item), shape_of(other)
    if one is None or two is None:
        return False
    starts = one.prefix.startswith(two.prefix) or two.prefix.startswith(one.prefix)
    return starts and (one.suffix.endswith(two.suffix) or two.suffix.endswith(one.suffix))

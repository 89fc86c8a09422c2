"""Source connectors as hops between clusters: which topics each takes, their names on the target, and paths that lead back.

Every loop is proved by a topic that is mirrored around it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from mm2mgr.lint import patterns
from mm2mgr.lint.clusters import Clusters
from mm2mgr.lint.clusters import clusters as clusters_of
from mm2mgr.lint.patterns import policy_of, separator_of
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.topics.names import NameFilter
from mm2mgr.topics.selection import PolicyName, Selection
from mm2mgr.topics.shared import Budget, Shared, meeting, overlaps

_LONGEST_WAY, _MOST_WAYS = 10, 1000
HEARTBEATS = (".*heartbeats",)  # every policy puts the alias before these, so the policies' own check for cycles holds


@dataclass(frozen=True, eq=False)
class Hop:
    """One source connector: from cluster number `source` to `target`; `selection` and `policy` are None when they are unknown."""

    subject: Subject
    source: int
    target: int
    policy: PolicyName | None
    separator: str
    selection: Selection | None

    @property
    def pair(self) -> tuple[int, int]:
        return self.source, self.target

    @cached_property
    def off(self) -> bool:
        """Tell whether it mirrors nothing: stopped, paused or enabled=false."""
        return self.subject.state in ("STOPPED", "PAUSED") or not self.subject.flag("enabled", default=True)

    @cached_property
    def plain(self) -> bool:
        """Tell whether its effect on a topic is predictable: known policy and filter, no transformation."""
        return self.policy is not None and self.selection is not None and not self.subject.get("transforms")

    @property
    def names(self) -> NameFilter | None:
        return self.selection.names if self.selection else None

    @cached_property
    def asks(self) -> tuple[object, ...]:
        """What it requires of a topic: hops with equal requirements are looked at once."""
        lists = self.subject.config.get("topics"), self.subject.config.get("topics.exclude")
        names = self.policy == "identity" or self.subject.target, self.separator
        return lists, names, self.selection and self.selection.internal_separator, self.subject.version


@dataclass(frozen=True)
class Circle:
    """Hops that lead back to their start, with a topic that is mirrored around; `endless` when that repeats."""

    hops: tuple[Hop, ...]
    topic: str
    returns_as: str
    endless: bool


@lru_cache(maxsize=4)
def hops(subjects: tuple[Subject, ...]) -> tuple[Hop, ...]:
    """Return a hop for each source connector."""
    known = clusters_of(subjects)
    return tuple(_hop(subject, known) for subject in subjects if subject.type == "source")


def _hop(subject: Subject, known: Clusters) -> Hop:
    return Hop(subject, *known.pair(subject), policy_of(subject), separator_of(subject), patterns.selection(subject))


def by_pair(found: Sequence[Hop]) -> dict[tuple[int, int], list[Hop]]:
    groups: dict[tuple[int, int], list[Hop]] = defaultdict(list)
    for hop in found:
        groups[hop.pair].append(hop)
    return groups


@dataclass(frozen=True)
class ConnectorsOfPair:
    """The source and checkpoint connectors between two clusters."""

    sources: list[Hop]
    checkpoints: list[Subject]


def pairs(estate: Estate) -> Mapping[tuple[int, int], ConnectorsOfPair]:
    """Group source and checkpoint connectors by their two clusters."""
    return _pairs(estate.subjects)


@lru_cache(maxsize=4)
def _pairs(subjects: tuple[Subject, ...]) -> Mapping[tuple[int, int], ConnectorsOfPair]:
    known = clusters_of(subjects)
    found = {pair: ConnectorsOfPair(group, []) for pair, group in by_pair(hops(subjects)).items()}
    for subject in subjects:
        if subject.type == "checkpoint":
            found.setdefault(known.pair(subject), ConnectorsOfPair([], [])).checkpoints.append(subject)
    return found


@lru_cache(maxsize=4)
def overlapping(
    subjects: tuple[Subject, ...], *, running: bool, alike: bool = False
) -> tuple[tuple[Hop, Hop, Shared], ...]:
    """Return pairs of hops between the same clusters that take one topic, each later hop once; undecided ones too.

    With `running`, inactive hops do not count; with `alike`, only hops that give a topic the same name on the target.
    """
    budget = Budget()
    groups: dict[object, list[tuple[Hop, Selection]]] = defaultdict(list)
    for hop in hops(subjects):
        if hop.selection and hop.plain and not (running and hop.off):
            groups[hop.pair, hop.selection.prefix if alike else ""].append((hop, hop.selection))
    found: list[tuple[Hop, Hop, Shared]] = []
    for group in groups.values():
        every = overlaps([selection for _, selection in group], budget=budget)
        found += [(group[before][0], group[later][0], shared) for before, later, shared in every]
    return tuple(found)


def names_alike(one: Hop, other: Hop, topic: str) -> bool:
    """Tell whether two hops give a topic the same name on the target; True where that is unknown."""
    return not one.selection or not other.selection or one.selection.names_alike(other.selection, topic)


def moving(found: Sequence[Hop]) -> list[Hop]:
    """Return the active hops between two clusters whose effect is predictable."""
    return [hop for hop in found if hop.plain and not hop.off and hop.source != hop.target]


@dataclass(frozen=True)
class WaysBack:
    """Paths that lead back: proved ones; for undecided ones the first hop, the last one and the patterns."""

    circles: tuple[Circle, ...]
    undecided: tuple[tuple[Hop, Hop, str], ...]


def rounds(starts: Sequence[Hop], every: Sequence[Hop]) -> WaysBack:
    """Return circles that begin with one of `starts`, each set of clusters once."""
    on_a_way_back = _on_circles(every)
    leaving: dict[int, list[Hop]] = defaultdict(list)
    for hop in every:
        if hop in on_a_way_back:
            leaving[hop.source].append(hop)
    found: dict[frozenset[int], Circle] = {}
    open_: dict[frozenset[int], tuple[Hop, Hop, str]] = {}
    budget = Budget()
    for start in starts:
        if start in on_a_way_back:
            circle, undecided = _Walk(start, leaving, budget).circle()
            if circle:
                found.setdefault(frozenset(hop.source for hop in circle.hops), circle)
            elif undecided:
                open_.setdefault(frozenset((start.source, start.target)), undecided)
    reported = {places for places in open_ if not any(places <= proved for proved in found)}
    return WaysBack(tuple(found.values()), tuple(open_[places] for places in open_ if places in reported))


def _on_circles(every: Sequence[Hop]) -> set[Hop]:
    """Return the hops whose target leads back to their source, whatever they take; the others cannot be part of a loop."""
    after: dict[int, set[int]] = defaultdict(set)
    for hop in every:
        after[hop.source].add(hop.target)
    reached: dict[int, set[int]] = {}
    for first in list(after):
        seen, waiting = set[int](), [first]
        while waiting:
            new = after.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[first] = seen
    return {hop for hop in every if hop.source in reached.get(hop.target, ())}


_Way = tuple[Hop, ...]


class _Walk:
    """The paths back to the source of one hop, shortest first; a path ends where no topic continues."""

    def __init__(self, start: Hop, leaving: Mapping[int, Sequence[Hop]], budget: Budget) -> None:
        self.start, self.leaving, self.budget = start, leaving, budget
        self.undecided: tuple[Hop, Hop, str] | None = None

    def circle(self) -> tuple[Circle | None, tuple[Hop, Hop, str] | None]:
        """Return a circle, an endless one if there is one; else what is not decided."""
        best: Circle | None = None
        for way, topic in self.ways():
            found = self.closed(way, topic)
            if found and found.endless:
                return found, None
            best = best or found
        return best, self.undecided

    def ways(self) -> Iterator[tuple[_Way, str]]:
        """Yield paths that lead back, each with a topic that is mirrored around."""
        waiting: deque[tuple[_Way, str]] = deque()
        seen: set[object] = set()
        self.push(waiting, seen, (self.start,), "")
        while waiting:
            way, topic = waiting.popleft()
            if way[-1].target == self.start.source:
                yield way, topic
            elif len(way) < _LONGEST_WAY:
                for hop in self.leaving.get(way[-1].target, ()):
                    self.push(waiting, seen, (*way, hop), topic)

    def push(self, waiting: deque[tuple[_Way, str]], seen: set[object], way: _Way, topic: str) -> None:
        """Add a path if some topic can take it. Paths with equal requirements count as one."""
        key = way[-1].target, put_before(way)[-1], frozenset(hop.asks for hop in way)
        if key in seen:
            return
        seen.add(key)
        if len(seen) > _MOST_WAYS:
            self.undecided = self.undecided or (self.start, way[-1], "too many ways lead back")
            return
        if not topic or _along(way, topic) is None:
            topic = self.topic(way) or ""
        if topic:
            waiting.append((way, topic))

    def topic(self, way: _Way) -> str | None:
        selections = [hop.selection for hop in way if hop.selection]
        shared = meeting(selections, put_before(way)[:-1], but=HEARTBEATS, budget=self.budget)
        if shared.undecided:
            self.undecided = self.undecided or (self.start, way[-1], shared.undecided)
        return shared.topic

    def closed(self, way: _Way, topic: str) -> Circle | None:
        back = _along(way, topic)
        if back is None:
            return None
        if _along(way, back):
            return Circle(way, topic, back, endless=True)
        again = self.topic((*way, *way))
        if again and (back_again := _along(way, again)):
            return Circle(way, again, back_again, endless=True)
        return Circle(way, topic, back, endless=False)


def put_before(way: _Way) -> list[str]:
    """Return the prefix of a topic before each hop, and after the last one."""
    before = [""]
    for hop in way:
        before.append(f"{hop.selection.prefix if hop.selection else ''}{before[-1]}")
    return before


def _along(way: Sequence[Hop], topic: str) -> str | None:
    """Return a topic's name after all hops of a path, None when one of them does not take it."""
    name = topic
    for hop in way:
        if hop.selection is None or not hop.selection.takes(name):
            return None
        name = hop.selection.renamed(name)
    return name

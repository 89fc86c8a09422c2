"""Source connectors as hops between clusters: the topics each takes, their names on the target, paths that lead back.

Clusters are one by their id, else by a shared address; an alias counts where the other ends of its connectors are one
cluster. Every loop is proved by a topic that is mirrored around it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.subject import Subject, addresses
from mm2mgr.lint.target_names import (
    SEPARATOR,
    Naming,
    Settings,
    TargetName,
    filters_of,
    naming_of,
    policy_of,
    separator_of,
)
from mm2mgr.spec.scalars import is_name
from mm2mgr.topics.names import Items, NameFilter, PolicyName, Selection, literal, readable
from mm2mgr.topics.shared import Budget, Catalog, Shared, meeting, overlaps
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import numbers

FILTERS = {
    "topics": ("topic.filter.class", "DefaultTopicFilter"),
    "groups": ("group.filter.class", "DefaultGroupFilter"),
    "config.properties": ("config.property.filter.class", "DefaultConfigPropertyFilter"),
}


def reads_lists(subject: Subject, kind: str) -> bool:
    """Tell whether Kafka's own filter class reads the lists of `what` (topics, groups, config.properties)."""
    key, own = FILTERS[kind]
    return subject.get(key, own).rpartition(".")[2] == own


def items_of(subject: Subject, key: str) -> Items:
    """Return the items of a LIST key, Kafka's default if it is not set; () where it is unknown."""
    kind = key.removesuffix(".exclude")
    text = subject.get(key)
    if not reads_lists(subject, kind) or is_open(text):
        return ()
    return _split(text) if key in subject.config else default_of(subject, key)


def default_of(subject: Subject, key: str) -> Items:
    """Return Kafka's own list for a key in the subject's version."""
    return _default(subject.type, key, subject.version)


@cache
def _default(type_: str, key: str, version: str) -> Items:
    definition = truth_keys.load().find(type_, key, version)
    return tuple(item for item in (definition.default or "").split(",") if item) if definition else ()


@lru_cache(maxsize=64)  # one rule after the other asks about the same connector
def selection_of(subject: Subject) -> Selection | None:
    """Return what a source connector takes, None when its filter is unknown."""
    names, separator = filter_of(subject), separator_of(subject)
    if names is None:
        return None
    internal = _internal_separator(subject)
    ends = subject.source, subject.target
    return Selection(names, policy_of(subject), *ends, separator, internal, subject.version)


def _internal_separator(subject: Subject) -> str:
    """Return the separator in names of internal topics, as workers of 3.1 or newer have it (KIP-690)."""
    own = subject.flag("replication.policy.internal.topic.separator.enabled", default=True)
    is_own = own or SEPARATOR not in subject.config or numbers(subject.version) < (3, 6)
    return separator_of(subject) if is_own else "."


def offset_syncs_topic(subject: Subject) -> tuple[str, str]:
    """Return the alias of the cluster that a source connector's offset syncs are on, and the name of their topic."""
    ends = (subject.source, subject.target)
    alias, other = ends[::-1] if subject.get("offset-syncs.topic.location").lower() == "target" else ends
    separator = _internal_separator(subject) if numbers(subject.version) >= (3, 1) else "."
    return alias, separator.join(("mm2-offset-syncs", other, "internal"))


def unread_pattern(subject: Subject) -> str:
    """Return the first expression for topics whose meaning is not known, "" without one."""
    every = (item for key in ("topics", "topics.exclude") for item in items_of(subject, key))
    return next((item for item in every if not _is_readable("topics", item)), "")


def filter_of(subject: Subject, kind: str = "topics") -> NameFilter | None:
    """Return a connector's filter of topics or groups, None when it is unknown."""
    include, exclude = (subject.config.get(key) for key in (kind, f"{kind}.exclude"))
    return _names(subject.type, kind, include, exclude, subject.version) if reads_lists(subject, kind) else None


@lru_cache(maxsize=8192)
def _names(type_: str, kind: str, include: str | None, exclude: str | None, version: str) -> NameFilter | None:
    lists = [
        _default(type_, key, version) if text is None else _split(text)
        for key, text in ((kind, include), (f"{kind}.exclude", exclude))
    ]
    return NameFilter(*lists) if all(_is_readable(kind, item) for items in lists for item in items) else None


def _is_readable(kind: str, item: str) -> bool:
    return not is_open(item) and readable(item, topics=kind == "topics")


@lru_cache(maxsize=8192)
def _split(text: str) -> Items:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def carries_heartbeats(subject: Subject) -> bool:
    """Tell whether a source connector mirrors heartbeats whatever its topics are: before 4.0 each does (KIP-1089)."""
    old = subject.known_version is not None and numbers(subject.known_version) < (4, 0)
    return old or subject.flag("heartbeats.replication.enabled", default=True)


def plain_name(item: str) -> str | None:
    """Return the one name an item is meant for, None for a real expression (unescaped dots of a name count as dots)."""
    return item if is_name(item) else literal(item) or None


ClusterSide = Literal["source", "target"]
SIDES: tuple[ClusterSide, ...] = ("source", "target")


@dataclass(frozen=True)
class Point:
    """One side of a connector as it is configured; alias "" when it is not set."""

    alias: str
    addresses: frozenset[str]
    cluster_id: str | None


def point(subject: Subject, side: ClusterSide) -> Point:
    """Return one side of a connector."""
    kafka = subject.source_kafka if side == "source" else subject.target_kafka
    servers = subject.get(f"{side}.cluster.bootstrap.servers")
    return _point(subject.get(f"{side}.cluster.alias"), servers, kafka.cluster_id)


@lru_cache(maxsize=8192)  # of thousands of connectors few have sides of their own
def _point(alias: str, servers: str, cluster_id: str | None) -> Point:
    return Point(alias, addresses(servers), cluster_id)


def same(point_here: Point, other: Point) -> bool:
    """Tell whether two points are one cluster: by their ids, else by a shared address. Similar names prove nothing."""
    if point_here.cluster_id and other.cluster_id:
        return point_here.cluster_id == other.cluster_id
    return bool(point_here.addresses & other.addresses)


@lru_cache(maxsize=4)
def clusters(subjects: tuple[Subject, ...]) -> Mapping[Subject, tuple[int, int]]:
    """Number the clusters of these connectors; return the source and target of each. One may have several aliases."""
    ends_of = {subject: (point(subject, "source"), point(subject, "target")) for subject in subjects}
    ends = dict.fromkeys(ends_of.values())
    points = list(dict.fromkeys(place for pair in ends for place in pair))
    groups = _JoinedPoints(points)
    by_id: dict[str, Point] = {}
    by_address: dict[str, Point] = {}
    for place in points:
        if place.cluster_id:
            groups.join(place, by_id.setdefault(place.cluster_id, place))
        for address in place.addresses:
            other = by_address.setdefault(address, place)
            if same(place, other):
                groups.join(place, other)
    for source, other in ends:
        groups.keep_apart(source, other)
    _join_aliases(points, groups)
    return {place: (groups.number[source], groups.number[other]) for place, (source, other) in ends_of.items()}


def _join_aliases(points: list[Point], groups: _JoinedPoints) -> None:
    """Join points with one alias where the other ends are one cluster, or where one of them is only the alias."""
    named = sorted((place for place in points if place.alias), key=_is_bare)
    joined = True
    while joined:  # which may show that other ends are one cluster
        joined = False
        alike: dict[tuple[str, int | None], list[Point]] = defaultdict(list)  # by alias, and by alias and other end
        for place in named:
            ends = [None] if _is_bare(place) else groups.facing[groups.number[place]]
            candidates = (other for end in ends for other in alike[place.alias, end])
            other = next((candidate for candidate in candidates if groups.may_join(place, candidate)), None)
            if other:
                groups.join(place, other)
                joined = True
            for end in (None, *groups.facing[groups.number[place]]):
                alike[place.alias, end].append(place)


def _is_bare(point: Point) -> bool:
    return not (point.cluster_id or point.addresses)


class _JoinedPoints:
    """Points in numbered groups that can be joined, and the groups that must stay separate."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.number = {place: number for number, place in enumerate(points)}
        self.members = {number: [place] for place, number in self.number.items()}
        self.facing: dict[int, set[int]] = defaultdict(set)

    def keep_apart(self, place: Point, other: Point) -> None:
        """Keep the groups of two points separate, unless they are one already."""
        first, second = self.number[place], self.number[other]
        if first != second:
            self.facing[first].add(second)
            self.facing[second].add(first)

    def may_join(self, place: Point, other: Point) -> bool:
        """Tell whether two points can be one cluster: not a connector's two ends, not joined, no two ids."""
        mine, theirs = self.number[place], self.number[other]
        if mine == theirs or theirs in self.facing[mine]:
            return False
        return len(self.ids(mine) | self.ids(theirs)) < 2

    def ids(self, number: int) -> set[str]:
        return {place.cluster_id for place in self.members[number] if place.cluster_id}

    def join(self, place: Point, other: Point) -> None:
        gone, stays = self.number[place], self.number[other]
        if gone == stays:
            return
        for member in self.members[gone]:
            self.number[member] = stays
        self.members[stays] += self.members.pop(gone)
        for opposite in self.facing.pop(gone, set()):
            self.facing[opposite].discard(gone)
            self.facing[opposite].add(stays)
            self.facing[stays].add(opposite)


_LONGEST_WAY, _MOST_WAYS = 10, 1000
HEARTBEATS = (".*heartbeats",)  # every policy puts the alias before these, so the policies' own check for cycles holds


@dataclass(frozen=True, eq=False)
class Hop:
    """One source connector, between two numbered clusters; `selection` and `policy` are None when they are unknown."""

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
    def plain(self) -> bool:
        """Tell whether its effect on a topic is predictable: known policy and filter, no transformation."""
        return self.policy is not None and self.selection is not None and not self.subject.get("transforms")

    @property
    def names(self) -> NameFilter | None:
        return self.selection.names if self.selection else None

    @cached_property
    def target_names(self) -> Naming:
        """How it names topics on the target."""
        return naming_of(self.subject)

    @cached_property
    def naming(self) -> tuple[object, ...]:
        """What a custom policy or transformations make names of: two hops for which it is equal name a topic alike."""
        own = ("replication.policy.", "transforms", "predicates", "source.cluster.alias", "target.cluster.alias")
        return tuple(sorted(setting for setting in self.subject.config.items() if setting[0].startswith(own)))

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
    ends_of = clusters(subjects)
    return tuple(
        Hop(subject, *ends_of[subject], policy_of(subject), separator_of(subject), selection_of(subject))
        for subject in subjects
        if subject.type == "source"
    )


def by_pair(members: Sequence[Hop]) -> dict[tuple[int, int], list[Hop]]:
    groups: dict[tuple[int, int], list[Hop]] = defaultdict(list)
    for hop in members:
        groups[hop.pair].append(hop)
    return groups


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
        if hop.selection and not (running and hop.subject.is_off):
            names = (hop.selection.prefix if alike else "") if hop.plain else hop.naming
            groups[hop.pair, names].append((hop, hop.selection))
    pairs: list[tuple[Hop, Hop, Shared]] = []
    for group in groups.values():
        every = overlaps([selection for _, selection in group], budget=budget)
        pairs += [(group[before][0], group[later][0], shared) for before, later, shared in every]
    return tuple(pairs)


def names_alike(hop: Hop, other: Hop, topic: str) -> bool:
    """Tell whether two hops give a topic the same name on the target; True where that is unknown."""
    return not hop.selection or not other.selection or hop.selection.names_alike(other.selection, topic)


def arriving_alike(
    own_hops: Iterable[Hop], others: Iterable[Hop], catalog: Catalog
) -> Iterator[tuple[Hop, Hop, list[str]]]:
    """Yield two hops of one source with the topics of which records of both arrive under the same name, sorted. Unknown
    ways to rename, and to drop records, are alike where all their settings are.
    """
    arrivals: dict[object, dict[str, _Arrival]] = {}
    ours, theirs = _by_effect(own_hops), _by_effect(others)
    for effect, alike in (ours | theirs).items():
        arrivals[effect] = dict(_arrivals(alike[0], catalog))
    meeting_at: dict[tuple[str, TargetName], list[tuple[object, tuple[Settings, ...]]]] = defaultdict(list)
    for effect in theirs:
        for topic, (name, filters) in arrivals[effect].items():
            meeting_at[topic, name].append((effect, filters))
    for effect, alike in ours.items():
        shared: dict[object, list[str]] = defaultdict(list)
        for topic, (name, filters) in arrivals[effect].items():
            for other, other_filters in meeting_at.get((topic, name), ()):
                if filters == other_filters or not filters or not other_filters:
                    shared[other].append(topic)
        yield from (
            (hop, rival, topics)
            for hop in alike
            for other, topics in shared.items()
            for rival in theirs[other]
            if rival is not hop
        )


_Arrival = tuple[TargetName, tuple[Settings, ...]]


def _by_effect(group: Iterable[Hop]) -> dict[object, list[Hop]]:
    """Return hops together that take the same topics, give them the same names, and drop the same records of them."""
    result: dict[object, list[Hop]] = defaultdict(list)
    for hop in group:
        result[hop.selection, hop.naming].append(hop)
    return result


def _arrivals(hop: Hop, catalog: Catalog) -> Iterator[tuple[str, _Arrival]]:
    """Yield the topics of which a hop mirrors records, sorted, with their names there and what drops some of them."""
    for topic in catalog.taken_by(hop.selection) if hop.selection else ():
        filters = filters_of(hop.subject, topic)
        if filters is not None:
            yield topic, (hop.target_names(topic), filters)


def moving(members: Sequence[Hop]) -> list[Hop]:
    """Return the active hops between two clusters whose effect is predictable."""
    return [hop for hop in members if hop.plain and not hop.subject.is_off and hop.source != hop.target]


WaysBack = tuple[tuple[Circle, ...], tuple[tuple[Hop, Hop, str], ...]]
"""Paths that lead back: proved ones; of undecided ones the first hop, the last one and the patterns."""


def rounds(starts: Sequence[Hop], every: Sequence[Hop]) -> WaysBack:
    """Return circles that begin with one of `starts`; over the same clusters only those with a new hop."""
    on_a_way_back = on_circles(every)
    leaving: dict[int, list[Hop]] = defaultdict(list)
    for hop in every:
        if hop in on_a_way_back:
            leaving[hop.source].append(hop)
    circles_reported: list[Circle] = []
    hops_of: dict[frozenset[int], set[Hop]] = defaultdict(set)
    open_: dict[frozenset[int], tuple[Hop, Hop, str]] = {}
    budget = Budget()
    for start in starts:
        if start in on_a_way_back:
            walk = _Walk(start, leaving, budget)
            circles = walk.circles()
            for circle in circles:
                places = frozenset(hop.source for hop in circle.hops)
                if not hops_of[places].issuperset(circle.hops):
                    circles_reported.append(circle)
                    hops_of[places].update(circle.hops)
            if walk.undecided and not circles:
                open_.setdefault(frozenset((start.source, start.target)), walk.undecided)
    reported = {places for places in open_ if not any(places <= proved for proved in hops_of)}
    return tuple(circles_reported), tuple(open_[places] for places in open_ if places in reported)


def on_circles(every: Sequence[Hop]) -> set[Hop]:
    """Return the hops whose target leads back to their source, whatever they take; no other can be in a loop."""
    after: dict[int, set[int]] = defaultdict(set)
    for hop in every:
        after[hop.source].add(hop.target)
    reached: dict[int, set[int]] = {}
    for first in list(after):
        reachable, waiting = set[int](), [first]
        while waiting:
            new = after.get(waiting.pop(), set()) - reachable
            reachable |= new
            waiting += new
        reached[first] = reachable
    return {hop for hop in every if hop.source in reached.get(hop.target, ())}


_Way = tuple[Hop, ...]


class _Walk:
    """The paths back to the source of one hop, shortest first; a path ends where no topic continues."""

    def __init__(self, start: Hop, leaving: Mapping[int, Sequence[Hop]], budget: Budget) -> None:
        self.start, self.leaving, self.budget = start, leaving, budget
        self.undecided: tuple[Hop, Hop, str] | None = None

    def circles(self) -> list[Circle]:
        """Return the circles, endless ones first; where there are none, `undecided` may say what is open."""
        circles = filter(None, (self.circle_of(way, topic) for way, topic in self.ways()))
        return sorted(circles, key=lambda circle: not circle.endless)

    def ways(self) -> Iterator[tuple[_Way, str]]:
        """Yield paths that lead back, each with a topic that is mirrored around."""
        waiting: deque[tuple[_Way, str]] = deque()
        tried: set[object] = set()
        self.push(waiting, tried, (self.start,), "")
        while waiting:
            way, topic = waiting.popleft()
            if way[-1].target == self.start.source:
                yield way, topic
            elif len(way) < _LONGEST_WAY:
                for hop in self.leaving.get(way[-1].target, ()):
                    self.push(waiting, tried, (*way, hop), topic)

    def push(self, waiting: deque[tuple[_Way, str]], tried: set[object], way: _Way, topic: str) -> None:
        """Add a path if some topic can take it. Paths with equal requirements count as one."""
        key = way[-1].target, put_before(way)[-1], frozenset(hop.asks for hop in way)
        if key in tried:
            return
        tried.add(key)
        if len(tried) > _MOST_WAYS:
            self.undecided = self.undecided or (self.start, way[-1], "too many ways lead back")
            return
        if not topic or _name_after(way, topic) is None:
            topic = self.topic(way) or ""
        if topic:
            waiting.append((way, topic))

    def topic(self, way: _Way) -> str | None:
        selections = [hop.selection for hop in way if hop.selection]
        shared = meeting(selections, put_before(way)[:-1], but=HEARTBEATS, budget=self.budget)
        if shared.undecided:
            self.undecided = self.undecided or (self.start, way[-1], shared.undecided)
        return shared.topic

    def circle_of(self, way: _Way, topic: str) -> Circle | None:
        back = _name_after(way, topic)
        if back is None:
            return None
        if _name_after(way, back):
            return Circle(way, topic, back, endless=True)
        again = self.topic((*way, *way))
        if again and (back_again := _name_after(way, again)):
            return Circle(way, again, back_again, endless=True)
        return Circle(way, topic, back, endless=False)


def put_before(way: _Way) -> list[str]:
    """Return the prefix of a topic before each hop, and after the last one."""
    before = [""]
    for hop in way:
        before.append(f"{hop.selection.prefix if hop.selection else ''}{before[-1]}")
    return before


def _name_after(way: Sequence[Hop], topic: str) -> str | None:
    name = topic
    for hop in way:
        if hop.selection is None or not hop.selection.takes(name):
            return None
        name = hop.selection.target_name(name)
    return name

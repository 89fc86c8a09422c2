"""The routes of a topic over all hops: which connectors take it, its name behind each, where it came from. Pure.

A route ends where nothing takes the topic, where its name is not known (a policy of one's own, transformations), where
it was before, or after ten hops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mm2mgr.lint.hops import Hop, Point, carries_heartbeats, clusters, hops, point, same
from mm2mgr.lint.subject import Subject, addresses
from mm2mgr.topology import KafkaCluster

_MOST_ROUTES = 1000
LONGEST = 10
"""Legs of a route: connectors that send a topic round under ever longer names make it endless."""


@dataclass(frozen=True)
class TopicPlace:
    """A topic on a cluster (by its number, see `hops.clusters`)."""

    cluster: int
    topic: str


@dataclass(frozen=True)
class TopicHop:
    """What a source connector does with a topic: `end` is None where it is not mirrored, or under an unknown name.

    `why` says why it is not mirrored although its list names it, or why that, or the name, is not known.
    """

    hop: Hop
    start: TopicPlace
    end: TopicPlace | None = None
    takes: bool | None = True
    why: str = ""


Route = tuple[TopicHop, ...]


@dataclass(frozen=True)
class Routes:
    """All hops of some connectors, and the names of the clusters between them."""

    every: tuple[Hop, ...]
    names: Mapping[int, str]
    _legs: dict[TopicPlace, tuple[TopicHop, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, subjects: tuple[Subject, ...], declared: Iterable[KafkaCluster]) -> Routes:
        """Number the clusters of these connectors; `declared` ones have their alias of the tree."""
        found = tuple(hop for hop in hops(subjects) if hop.source != hop.target)
        return cls(found, dict(_names(subjects, tuple(declared))))

    def legs(self, start: TopicPlace) -> tuple[TopicHop, ...]:
        """Return what the connectors that read this cluster do with the topic, where they have to do with it."""
        if start not in self._legs:
            found = (leg(hop, start.topic) for hop in self.every if hop.source == start.cluster)
            self._legs[start] = tuple(each for each in found if each)
        return self._legs[start]

    def onward(self, start: TopicPlace, way: Route = ()) -> Iterator[Route]:
        """Yield the routes from here to each end; the empty one where nothing takes the topic."""
        seen = {each.start for each in way}
        nexts = [each for each in self.legs(start) if each.takes and start not in seen]
        if not nexts or len(way) >= LONGEST:
            yield way
            return
        for each in nexts:
            if each.end is None:
                yield (*way, each)
            else:
                yield from self.onward(each.end, (*way, each))

    def back(self, end: TopicPlace, way: Route = ()) -> Iterator[Route]:
        """Yield the routes that lead here from where the topic was written first; the empty one if that is here."""
        seen = {each.end for each in way}
        before = [] if end in seen else list(self.into(end))
        if not before or len(way) >= LONGEST:
            yield way
            return
        for each in before:
            yield from self.back(each.start, (each, *way))

    def into(self, end: TopicPlace) -> Iterator[TopicHop]:
        """Yield the connectors that mirror a topic to this name."""
        for hop in self.every:
            upstream = hop.selection.upstream(end.topic) if hop.selection and hop.target == end.cluster else None
            found = leg(hop, upstream) if upstream else None
            if found and found.end == end:
                yield found

    def stops(self, topic: str) -> list[TopicPlace]:
        """Return where a topic of this name is mirrored to; if nowhere renamed, also where it may be written."""
        every = [TopicPlace(number, topic) for number in sorted({n for hop in self.every for n in hop.pair})]
        arriving = [stop for stop in every if any(self.into(stop))]
        if any(each.start.topic != topic for stop in arriving for each in self.into(stop)):
            return arriving
        return [stop for stop in every if stop in arriving or self.legs(stop)]

    def through(self, stop: TopicPlace) -> list[Route]:
        """Return the whole routes that pass a stop, each once."""
        found: dict[Route, None] = {}
        for before in self.back(stop):
            for whole in self.onward(stop, before):
                found[whole] = None
                if len(found) >= _MOST_ROUTES:
                    return list(found)
        return list(found)


def leg(hop: Hop, topic: str) -> TopicHop | None:
    """Return what a connector does with a topic of its source; None where its lists do not name it."""
    start, selection = TopicPlace(hop.source, topic), hop.selection
    if selection is None:
        return TopicHop(
            hop, start, takes=None, why="which topics it takes is not known: a filter class of its own, or placeholders"
        )
    if why := selection.refusal(topic):
        return TopicHop(hop, start, takes=False, why=why)
    as_heartbeats = carries_heartbeats(hop.subject) and selection.takes_heartbeats(topic)
    if not (selection.takes(topic) or as_heartbeats):
        return None
    if not hop.plain:
        by = "its transformations" if hop.policy else "a replication policy of its own"
        return TopicHop(hop, start, why=f"the name on the target is not known: {by}")
    return TopicHop(hop, start, TopicPlace(hop.target, selection.renamed(topic)))


def _names(subjects: tuple[Subject, ...], declared: Sequence[KafkaCluster]) -> Iterator[tuple[int, str]]:
    """Yield each cluster's number with its alias of the tree, else with the one in its connectors and an address."""
    ours = [
        Point(each.alias, addresses(",".join(each.model.bootstrap_servers)), each.model.cluster_id) for each in declared
    ]
    points: dict[int, list[Point]] = {}
    for subject, (source, target) in clusters(subjects).items():
        points.setdefault(source, []).append(point(subject, "source"))
        points.setdefault(target, []).append(point(subject, "target"))
    for number, found in points.items():
        known = next((one.alias for one in ours for each in found if same(one, each)), "")
        alias = next((each.alias for each in found if each.alias), "?")
        address = next((min(each.addresses) for each in found if each.addresses), "")
        is_taken = any(one.alias == alias for one in ours)
        yield number, known or (f"{alias} ({address})" if is_taken and address else alias)

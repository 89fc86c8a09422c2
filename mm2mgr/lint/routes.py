"""The routes of a topic over all hops: which connectors take it, its name behind each, where it came from. Pure.

A route ends where nothing takes the topic, where its name is not known (a policy of one's own, transformations), where
it was before, or after ten hops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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

    `reason` says why it is not mirrored although its list names it, or why that, or the name, is not known.
    """

    hop: Hop
    start: TopicPlace
    end: TopicPlace | None = None
    takes: bool | None = True
    reason: str = ""


Route = tuple[TopicHop, ...]


class Routes:
    """All hops of some connectors, and the names of the clusters between them; `declared` ones have their alias."""

    def __init__(self, subjects: tuple[Subject, ...], declared: Iterable[KafkaCluster]) -> None:
        self.every = tuple(hop for hop in hops(subjects) if hop.source != hop.target)
        self.names = dict(_names(subjects, tuple(declared)))
        self._legs: dict[TopicPlace, tuple[TopicHop, ...]] = {}

    def legs(self, start: TopicPlace) -> tuple[TopicHop, ...]:
        """Return what the connectors that read this cluster do with the topic, where they have to do with it."""
        if start not in self._legs:
            hops_here = (leg(hop, start.topic) for hop in self.every if hop.source == start.cluster)
            self._legs[start] = tuple(topic_hop for topic_hop in hops_here if topic_hop)
        return self._legs[start]

    def onward(self, start: TopicPlace, way: Route = ()) -> Iterator[Route]:
        """Yield the routes from here to each end; the empty one where nothing takes the topic."""
        visited = {next_hop.start for next_hop in way}
        nexts = [next_hop for next_hop in self.legs(start) if next_hop.takes and start not in visited]
        if not nexts or len(way) >= LONGEST:
            yield way
            return
        for next_hop in nexts:
            if next_hop.end is None:
                yield (*way, next_hop)
            else:
                yield from self.onward(next_hop.end, (*way, next_hop))

    def back(self, end: TopicPlace, way: Route = ()) -> Iterator[Route]:
        """Yield the routes that lead here from where the topic was written first; the empty one if that is here."""
        visited = {last_hop.end for last_hop in way}
        before = [] if end in visited else list(self.hops_into(end))
        if not before or len(way) >= LONGEST:
            yield way
            return
        for last_hop in before:
            yield from self.back(last_hop.start, (last_hop, *way))

    def hops_into(self, end: TopicPlace) -> Iterator[TopicHop]:
        """Yield the connectors that mirror a topic to this name."""
        for hop in self.every:
            upstream = hop.selection.upstream(end.topic) if hop.selection and hop.target == end.cluster else None
            hop_here = leg(hop, upstream) if upstream else None
            if hop_here and hop_here.end == end:
                yield hop_here

    def stops(self, topic: str) -> list[TopicPlace]:
        """Return where a topic of this name is mirrored to; if nowhere renamed, also where it may be written."""
        every = [TopicPlace(number, topic) for number in sorted({n for hop in self.every for n in hop.pair})]
        arriving = [stop for stop in every if any(self.hops_into(stop))]
        if any(last_hop.start.topic != topic for stop in arriving for last_hop in self.hops_into(stop)):
            return arriving
        return [stop for stop in every if stop in arriving or self.legs(stop)]

    def routes_through(self, stop: TopicPlace) -> list[Route]:
        """Return the whole routes that pass a stop, each once."""
        routes: dict[Route, None] = {}
        for before in self.back(stop):
            for whole in self.onward(stop, before):
                routes[whole] = None
                if len(routes) >= _MOST_ROUTES:
                    return list(routes)
        return list(routes)


def leg(hop: Hop, topic: str) -> TopicHop | None:
    """Return what a connector does with a topic of its source; None where its lists do not name it."""
    start, selection = TopicPlace(hop.source, topic), hop.selection
    if selection is None:
        return TopicHop(
            hop,
            start,
            takes=None,
            reason="which topics it takes is not known: a filter class of its own, or placeholders",
        )
    if reason := selection.refusal(topic):
        return TopicHop(hop, start, takes=False, reason=reason)
    as_heartbeats = carries_heartbeats(hop.subject) and selection.takes_heartbeats(topic)
    if not (selection.takes(topic) or as_heartbeats):
        return None
    if not hop.plain:
        by = "its transformations" if hop.policy else "a replication policy of its own"
        return TopicHop(hop, start, reason=f"the name on the target is not known: {by}")
    return TopicHop(hop, start, TopicPlace(hop.target, selection.target_name(topic)))


def _names(subjects: tuple[Subject, ...], declared: Sequence[KafkaCluster]) -> Iterator[tuple[int, str]]:
    """Yield each cluster's number with its alias of the tree, else with the one in its connectors and an address."""
    ours = [
        Point(end.alias, addresses(",".join(end.model.bootstrap_servers)), end.model.cluster_id) for end in declared
    ]
    points: dict[int, list[Point]] = {}
    for subject, (source, target) in clusters(subjects).items():
        points.setdefault(source, []).append(point(subject, "source"))
        points.setdefault(target, []).append(point(subject, "target"))
    for number, ends in points.items():
        declared_alias = next((cluster.alias for cluster in ours for end in ends if same(cluster, end)), "")
        alias = next((end.alias for end in ends if end.alias), "?")
        address = next((min(end.addresses) for end in ends if end.addresses), "")
        is_taken = any(cluster.alias == alias for cluster in ours)
        yield number, declared_alias or (f"{alias} ({address})" if is_taken and address else alias)

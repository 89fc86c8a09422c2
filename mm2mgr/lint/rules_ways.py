"""A rule over an estate: records that reach one topic by two ways through it. Ways that lead back are in `rules_estate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise, product

from mm2mgr.lint.findings import Hit, Rule
from mm2mgr.lint.hops import HEARTBEATS, Hop, hops, moving, put_before
from mm2mgr.lint.spelling import connector_key
from mm2mgr.lint.subject import Estate
from mm2mgr.topics.shared import Budget, meeting

_LONGEST_WAY, _MOST_WAYS, _MOST_CHOICES = 4, 1000, 200
_DEFAULT = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
_Edges = Mapping[int, Mapping[int, Sequence[Hop]]]
_Clusters = tuple[int, ...]


def two_ways(estate: Estate) -> Iterator[Hit]:
    """Records of one cluster reach another one by two ways under one name, so they arrive twice.

    With IdentityReplicationPolicy nothing shows which way a record came: when A→B→D and A→C→D take the same topic, or A→D
    beside A→B→D, each record is written into the same topic of D once per way. The same happens where names are kept only on
    the last part of a way. Offsets of both connectors are right and everything is RUNNING. Let one of the ways take other
    topics, or write DefaultReplicationPolicy on one of them: then the copies have names of their own. Source: KIP-382.
    """
    edges: dict[int, dict[int, list[Hop]]] = defaultdict(lambda: defaultdict(list))
    every = moving(hops(estate.subjects))
    if all(hop.policy == "default" for hop in every):
        return  # the way is in the name
    for hop in every:
        edges[hop.source][hop.target].append(hop)
    budget, told = Budget(), set[tuple[int, int]]()
    for start in [cluster for cluster, targets in edges.items() if len(targets) > 1]:
        by_end: dict[int, list[_Clusters]] = defaultdict(list)
        for way in islice(_ways(edges, (start,)), _MOST_WAYS):
            by_end[way[-1]].append(way)
        for end, ways in by_end.items():
            for one, other in combinations(ways, 2):
                if (start, end) not in told and set(one[1:-1]).isdisjoint(other[1:-1]):
                    hit = _arrives_twice(edges, one, other, budget)
                    if hit:
                        told.add((start, end))
                        yield hit


def _ways(edges: _Edges, way: _Clusters) -> Iterator[_Clusters]:
    """Yield the ways through clusters that begin so, none twice through one cluster."""
    for target in edges.get(way[-1], ()):
        if target not in way:
            yield (*way, target)
            if len(way) < _LONGEST_WAY:
                yield from _ways(edges, (*way, target))


def _arrives_twice(edges: _Edges, one: _Clusters, other: _Clusters, budget: Budget) -> Hit | None:
    for first, second in islice(product(_choices(edges, one), _choices(edges, other)), _MOST_CHOICES):
        before, after = put_before(first), put_before(second)
        if before[-1] != after[-1]:
            continue
        selections = [hop.selection for hop in (*first, *second) if hop.selection]
        shared = meeting(selections, [*before[:-1], *after[:-1]], but=HEARTBEATS, budget=budget)
        if shared.topic:
            return _hit(first, second, shared.topic)
    return None


def _choices(edges: _Edges, way: _Clusters) -> Iterator[tuple[Hop, ...]]:
    """Yield the source connectors along a way, one for each step."""
    yield from product(*(edges[source][target] for source, target in pairwise(way)))


def _hit(first: Sequence[Hop], second: Sequence[Hop], topic: str) -> Hit:
    source, target = first[0].subject.source, first[-1].subject.target
    ways = " and ".join(" → ".join([source, *(hop.subject.target for hop in way)]) for way in (first, second))
    message = f"'{topic}' of {source} reaches {target} by two ways under one name ({ways}): its records arrive twice"
    last = second[-1].subject
    fix = f"take it out of one of the ways, or write {connector_key(last, 'replication.policy.class', _DEFAULT)}"
    others = tuple(hop.subject for hop in (*first, *second) if hop.subject is not last)
    return Hit(message, fix, "topics", last, others=others)


RULES: tuple[Rule, ...] = (Rule("two-ways", "error", over=two_ways, source="KIP-382"),)

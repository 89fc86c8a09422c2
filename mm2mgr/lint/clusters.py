"""Finds the Kafka clusters of a set of connectors: the same id, else a shared address, else the same alias.

Each cluster has a number, since it may have several aliases.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mm2mgr.lint.subject import Subject, addresses

ClusterSide = Literal["source", "target"]
SIDES: tuple[ClusterSide, ...] = ("source", "target")


@dataclass(frozen=True)
class Point:
    """One side of a connector as it is configured; alias "" when it is not set."""

    alias: str
    addresses: frozenset[str]
    cluster_id: str | None


@dataclass(frozen=True)
class Clusters:
    """The clusters of an estate, numbered; one number may have several aliases."""

    pairs: Mapping[Subject, tuple[int, int]]

    def of(self, subject: Subject, side: ClusterSide) -> int:
        return self.pairs[subject][SIDES.index(side)]

    def pair(self, subject: Subject) -> tuple[int, int]:
        return self.pairs[subject]


def point(subject: Subject, side: ClusterSide) -> Point:
    """Return one side of a connector."""
    known = subject.source_kafka if side == "source" else subject.target_kafka
    servers = addresses(subject.get(f"{side}.cluster.bootstrap.servers"))
    return Point(subject.get(f"{side}.cluster.alias"), servers, known.cluster_id)


def apart(one: Point, other: Point) -> bool:
    """Tell whether two points are certainly different clusters: different ids, or hosts that differ in more than their numbers."""
    if one.cluster_id and other.cluster_id:
        return one.cluster_id != other.cluster_id
    if not one.addresses or not other.addresses or one.addresses & other.addresses:
        return False
    return not (_hosts(one.addresses) & _hosts(other.addresses))


def _hosts(servers: Iterable[str]) -> set[str]:
    """Return host names without digits and ports: brokers of one cluster are usually numbered."""
    return {re.sub(r"\d+", "", server.rpartition(":")[0] or server) for server in servers}


def same(one: Point, other: Point) -> bool:
    """Tell whether two points are certainly one cluster."""
    if one.cluster_id and other.cluster_id:
        return one.cluster_id == other.cluster_id
    return bool(one.addresses & other.addresses)


@lru_cache(maxsize=4)
def clusters(subjects: tuple[Subject, ...]) -> Clusters:
    """Number the clusters of these connectors."""
    ends_of = {subject: (point(subject, "source"), point(subject, "target")) for subject in subjects}
    ends = dict.fromkeys(ends_of.values())
    points = list(dict.fromkeys(each for pair in ends for each in pair))
    groups = _JoinedPoints(points)
    by_id: dict[str, Point] = {}
    by_address: dict[str, Point] = {}
    for each in points:
        if each.cluster_id:
            groups.join(each, by_id.setdefault(each.cluster_id, each))
        for address in each.addresses:
            other = by_address.setdefault(address, each)
            if same(each, other):
                groups.join(each, other)
    for one, other in ends:
        groups.keep_apart(one, other)
    _join_aliases(points, groups)
    return Clusters({each: (groups.number[one], groups.number[other]) for each, (one, other) in ends_of.items()})


def _join_aliases(points: list[Point], groups: _JoinedPoints) -> None:
    """Join points with one alias unless they are certainly different; never join the two ends of a connector.

    A side with nothing but an alias joins the first point of that alias.
    """
    by_alias: dict[str, list[Point]] = defaultdict(list)
    for each in sorted(points, key=lambda each: not (each.cluster_id or each.addresses)):
        if not each.alias:
            continue
        alike = (other for other in by_alias[each.alias] if not apart(each, other))
        if other := next((one for one in alike if groups.may_join(each, one)), None):
            groups.join(each, other)
        else:
            by_alias[each.alias].append(each)


class _JoinedPoints:
    """Points in numbered groups that can be joined, and the groups that must stay separate."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.number = {each: number for number, each in enumerate(points)}
        self.members = {number: [each] for each, number in self.number.items()}
        self.facing: dict[int, set[int]] = defaultdict(set)

    def keep_apart(self, one: Point, other: Point) -> None:
        """Keep the groups of two points separate, unless they are one already."""
        first, second = self.number[one], self.number[other]
        if first != second:
            self.facing[first].add(second)
            self.facing[second].add(first)

    def may_join(self, one: Point, other: Point) -> bool:
        return self.number[other] not in self.facing[self.number[one]]

    def join(self, one: Point, other: Point) -> None:
        gone, stays = self.number[one], self.number[other]
        if gone == stays:
            return
        for each in self.members[gone]:
            self.number[each] = stays
        self.members[stays] += self.members.pop(gone)
        for opposite in self.facing.pop(gone, set()):
            self.facing[opposite].discard(gone)
            self.facing[opposite].add(stays)
            self.facing[stays].add(opposite)

"""Source connectors as hops between clusters: what each takes, how it names it on the other side, and ways that lead back.

In: the source connectors of an estate. Out: `Hop` values and circles of them, each proved by a topic that goes round.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from mm2mgr.lint import patterns
from mm2mgr.lint.clusters import Clusters
from mm2mgr.lint.clusters import clusters as clusters_of
from mm2mgr.lint.subject import Estate, Subject

Policy = Literal["default", "identity"]
_POLICIES: dict[str, Policy] = {"DefaultReplicationPolicy": "default", "IdentityReplicationPolicy": "identity"}


@dataclass(frozen=True, eq=False)
class Hop:
    """One source connector: from cluster number `source` to `target`; `names` and `policy` are None when they cannot be judged."""

    subject: Subject
    source: int
    target: int
    policy: Policy | None
    separator: str
    names: patterns.Names | None

    @property
    def pair(self) -> tuple[int, int]:
        return self.source, self.target

    @cached_property
    def off(self) -> bool:
        """Tell whether it moves nothing: stopped, paused or enabled=false."""
        return self.subject.state in ("STOPPED", "PAUSED") or not self.subject.flag("enabled", default=True)

    @cached_property
    def plain(self) -> bool:
        """Tell whether a topic's way through it can be foretold: known policy and filter, no transformation."""
        return self.policy is not None and self.names is not None and not self.subject.get("transforms")

    def takes(self, topic: str) -> bool:
        """Tell whether it mirrors a topic of its source (MirrorSourceConnector.shouldReplicateTopic)."""
        if self.names is None or not self.names.takes(topic):
            return False
        if patterns.is_internal(topic, self.separator, self.subject.version):
            return False
        return self.policy == "identity" or self.subject.target not in topic.split(self.separator)[:-1]

    def renamed(self, topic: str) -> str:
        """Return a topic's name on the target."""
        return topic if self.policy == "identity" else f"{self.subject.source}{self.separator}{topic}"


@dataclass(frozen=True)
class Circle:
    """Hops that lead back to where they start, with a topic that goes round; `endless` when it goes round again and again."""

    hops: tuple[Hop, ...]
    topic: str
    returns_as: str
    endless: bool


def policy_of(subject: Subject) -> Policy | None:
    """Return which of Kafka's two policies a connector has, None for any other class."""
    return _POLICIES.get(subject.get("replication.policy.class", "DefaultReplicationPolicy").rpartition(".")[2])


def separator_of(subject: Subject) -> str:
    return subject.get("replication.policy.separator") or "."


@lru_cache(maxsize=4)
def hops(subjects: tuple[Subject, ...]) -> tuple[Hop, ...]:
    """Return a hop for each source connector."""
    known = clusters_of(subjects)
    return tuple(_hop(subject, known) for subject in subjects if subject.type == "source")


def _hop(subject: Subject, known: Clusters) -> Hop:
    names = patterns.names(subject)
    return Hop(subject, *known.pair(subject), policy_of(subject), separator_of(subject), names)


def by_pair(found: Sequence[Hop]) -> dict[tuple[int, int], list[Hop]]:
    groups: dict[tuple[int, int], list[Hop]] = defaultdict(list)
    for hop in found:
        groups[hop.pair].append(hop)
    return groups


@dataclass(frozen=True)
class Pair:
    """The connectors between two clusters; heartbeat connectors stand by what they write into."""

    sources: list[Hop]
    checkpoints: list[Subject]


def pairs(estate: Estate) -> Mapping[tuple[int, int], Pair]:
    """Group source and checkpoint connectors by the clusters they stand between."""
    return _pairs(estate.subjects)


@lru_cache(maxsize=4)
def _pairs(subjects: tuple[Subject, ...]) -> Mapping[tuple[int, int], Pair]:
    known = clusters_of(subjects)
    found = {pair: Pair(group, []) for pair, group in by_pair(hops(subjects)).items()}
    for subject in subjects:
        if subject.type == "checkpoint":
            found.setdefault(known.pair(subject), Pair([], [])).checkpoints.append(subject)
    return found


def overlapping(group: Sequence[Hop]) -> Iterator[tuple[Hop, Hop, str]]:
    """Yield two hops of one pair that take the same topic, and such a topic; each later hop once."""
    plain = [hop for hop in group if hop.plain]
    for before, later, topic in patterns.overlaps([hop.names for hop in plain if hop.names]):
        if plain[before].takes(topic) and plain[later].takes(topic):
            yield plain[before], plain[later], topic


def moving(found: Sequence[Hop]) -> list[Hop]:
    """Return the hops between two clusters that run and can be foretold."""
    return [hop for hop in found if hop.plain and not hop.off and hop.source != hop.target]


def circles(starts: Sequence[Hop], every: Sequence[Hop]) -> Iterator[Circle]:
    """Yield circles that begin with one of `starts`, each set of clusters once."""
    leaving: dict[int, list[Hop]] = defaultdict(list)
    into: dict[int, list[Hop]] = defaultdict(list)
    for hop in every:
        leaving[hop.source].append(hop)
        into[hop.target].append(hop)
    told: set[frozenset[int]] = set()
    for start in starts:
        if start.target not in leaving or start.source not in into:
            continue
        found = _circle(start, leaving, into[start.source])
        if found and (places := frozenset(hop.source for hop in found.hops)) not in told:
            told.add(places)
            yield found


def _circle(start: Hop, leaving: Mapping[int, Sequence[Hop]], closing: Sequence[Hop]) -> Circle | None:
    """Return a circle from one hop, an endless one rather than one that comes round once."""
    best: Circle | None = None
    for topic in _topics(start, closing):
        if not start.takes(topic) or not (way := _way(start, topic, leaving)):
            continue
        back = _along(way, topic)
        again = _along(way, back) if back else None
        if back and again:
            return Circle(way, topic, back, endless=True)
        if back and not best:
            best = Circle(way, topic, back, endless=False)
    return best


def _topics(start: Hop, closing: Sequence[Hop]) -> Iterator[str]:
    """Yield topics to try: samples of the first hop's filter and of those that lead back, also joined with each other."""
    own = start.names.include if start.names else ()
    others = dict.fromkeys(item for hop in closing if hop.names for item in hop.names.include)
    tried: set[str] = set()
    for item in (*own, *others):
        tried.update(found := [name for name in patterns.samples(item) if name not in tried])
        yield from found
    for item in own:
        for other in (each for each in others if patterns.may_meet(item, each)):
            yield from patterns.joined(item, other)


def _way(start: Hop, topic: str, leaving: Mapping[int, Sequence[Hop]]) -> tuple[Hop, ...] | None:
    """Return the shortest way back to where a topic started, first hop given."""
    waiting: deque[tuple[tuple[Hop, ...], str]] = deque([((start,), start.renamed(topic))])
    seen = {start.target}
    while waiting:
        way, name = waiting.popleft()
        for hop in leaving.get(way[-1].target, ()):
            if hop.target in seen or not hop.takes(name):
                continue
            if hop.target == start.source:
                return (*way, hop)
            seen.add(hop.target)
            waiting.append(((*way, hop), hop.renamed(name)))
    return None


def _along(way: Sequence[Hop], topic: str) -> str | None:
    """Return a topic's name after all hops of a way, None when one of them does not take it."""
    name = topic
    for hop in way:
        if not hop.takes(name):
            return None
        name = hop.renamed(name)
    return name

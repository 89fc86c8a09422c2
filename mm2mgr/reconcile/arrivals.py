"""Whether records still arrive after an update: log ends of what a connector mirrors, at its source and its target, compared over a wave.

Connect stores offsets once a minute by default, which is too seldom for that. A Kafka cluster that cannot be read is not asked
again, and nothing is concluded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mm2mgr.endpoints import kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.plan import Change
from mm2mgr.text import few
from mm2mgr.topology import Flow, Topology

Ends = Mapping[TopicPartition, tuple[int, int]]
"""Log ends of source partitions, and of the partitions on the target that they are mirrored to."""


@dataclass
class Arrivals:
    """What the topics of one connector had when it was first seen after its update, when its tasks were seen to run with it, and now.

    Who else writes to a topic of the target counts as well, as its records cannot be told apart.
    """

    flow: Flow
    partitions: set[TopicPartition] = field(default_factory=set)
    first: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    base: Ends | None = None
    now: Ends = field(default_factory=dict)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Take in partitions that its tasks have; heartbeats, which arrive every second, are left out."""
        self.partitions.update(one for one in partitions if not self.flow.selection.is_heartbeats(one.topic))

    def take(self, ends: Ends, *, runs: bool) -> None:
        """Take in a reading; `runs`: the tasks are seen to run with the new config."""
        self.now = ends
        for one, pair in ends.items():
            self.first.setdefault(one, pair)
        if runs and self.base is None:
            self.base = ends

    @property
    def fresh(self) -> list[str]:
        """The topics that got records since the update."""
        return sorted({one.topic for one, (source, _) in self.now.items() if source > self.first[one][0]})

    @property
    def waiting(self) -> list[str]:
        """Those of them of which more records wait than when it was first seen, while none arrives."""
        return [topic for topic in self.fresh if self._grown(self.first, topic) > 0 and not self._moved(1, topic)]

    @property
    def is_broken(self) -> bool:
        """Tell whether nothing arrives at all, of records that came while the tasks ran with the new config."""
        still = self.waiting
        return bool(still) and still == self.fresh and any(self._moved(0, topic) for topic in still)

    def _grown(self, before: Ends, topic: str) -> int:
        of = [one for one in self.now if one.topic == topic]
        return sum(self.now[one][0] - self.now[one][1] - (before[one][0] - before[one][1]) for one in of)

    def _moved(self, side: int, topic: str) -> bool:
        base = self.base or {}
        return any(one in base and ends[side] > base[one][side] for one, ends in self.now.items() if one.topic == topic)


class LogReader:
    """Reads log ends on the Kafka clusters of one tree, each cluster once a look."""

    def __init__(self, topology: Topology) -> None:
        self._flows = {flow.id: flow for flow in topology.flows}
        self._unread: set[str] = set()

    def watching(self, change: Change) -> Arrivals | None:
        """Return what to compare after an update of a source connector; None where nothing can be."""
        flow = next((self._flows[each] for each in change.flows if each in self._flows), None)
        is_one = change.type == "source" and change.action == "update" and bool(change.keys)
        return Arrivals(flow) if flow and is_one and not self._unread & _aliases(flow) else None

    async def read(self, watched: Iterable[Arrivals]) -> list[tuple[Arrivals, Ends]]:
        """Return the ends of what each of them has, without those whose clusters could not be read."""
        chosen = [each for each in watched if each.partitions and not self._unread & _aliases(each.flow)]
        wanted: dict[str, set[TopicPartition]] = {}
        clusters = {end.alias: end for each in chosen for end in (each.flow.source, each.flow.target)}
        for each in chosen:
            wanted.setdefault(each.flow.source.alias, set()).update(each.partitions)
            wanted.setdefault(each.flow.target.alias, set()).update(_remote(each.flow, one) for one in each.partitions)
        found: dict[str, Mapping[TopicPartition, int]] = {}

        async def of_kafka(alias: str) -> None:
            try:
                found[alias] = await asyncio.to_thread(read_ends, kafka_access(clusters[alias]), wanted[alias])
            except Mm2mgrError:
                self._unread.add(alias)

        await asyncio.gather(*map(of_kafka, wanted))
        read = [each for each in chosen if not self._unread & _aliases(each.flow)]
        return [(each, _both(each, found[each.flow.source.alias], found[each.flow.target.alias])) for each in read]


def _both(each: Arrivals, source: Mapping[TopicPartition, int], target: Mapping[TopicPartition, int]) -> Ends:
    ends = {one: (source.get(one), target.get(_remote(each.flow, one))) for one in each.partitions}
    return {one: (left, right) for one, (left, right) in ends.items() if left is not None and right is not None}


def said(arrivals: Arrivals) -> str:
    """Return what is seen of records, in words; nothing where they arrive."""
    if not arrivals.fresh:
        return "no new records to judge by"
    if not arrivals.waiting:
        return ""
    return f"no record of {few(arrivals.waiting)} arrives, although the source has new ones (a right may be missing)"


def _remote(flow: Flow, one: TopicPartition) -> TopicPartition:
    return TopicPartition(flow.remote_topic(one.topic), one.partition)


def _aliases(flow: Flow) -> set[str]:
    return {flow.source.alias, flow.target.alias}


def read_ends(
    access: KafkaAccess, partitions: Iterable[TopicPartition], timeout_seconds: float = 5.0
) -> dict[TopicPartition, int]:
    """Return the log ends of partitions, 0 of those that do not exist (yet). Blocks; raises KafkaError."""
    from mm2mgr.kafka.client import Kafka

    wanted = list(partitions)
    with Kafka(access, timeout_seconds) as kafka:
        counts = kafka.partition_counts()  # ends early where no broker listens
        there = [one for one in wanted if one.partition < counts.get(one.topic, 0)]
        ends = {one: log.end for one, log in kafka.offsets(there).items()}
    return dict.fromkeys(set(wanted) - set(there), 0) | ends

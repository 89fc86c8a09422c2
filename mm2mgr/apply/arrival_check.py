"""Whether records still arrive after an update: log ends of what a connector mirrors, at its source and its target,
compared over a wave.

Connect stores offsets once a minute by default, which is too seldom for that. A Kafka cluster that cannot be read is
not asked again, and nothing is concluded; nor is it of connectors whose records may have other names on the target, or
be dropped on the way. One offset more of a partition may be the marker of a transaction, which is no record and never
arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import OffsetsSince, PartitionCounts, PartitionEnds
from mm2mgr.live.snapshot import Steps
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change
from mm2mgr.text import few
from mm2mgr.topics.names import HEARTBEATS
from mm2mgr.topology import Flow, Topology
from mm2mgr.truth.reach import text_of

_BEFORE_SECONDS = 60.0
"""What arrived so long before an update says whether records arrived then;"""
_SURELY_RAN_SECONDS = 30.0
"""and what was written so long before it had the time to arrive."""

Ends = Mapping[TopicPartition, tuple[int, int]]
"""Log ends of source partitions, and of the partitions on the target that they are mirrored to."""


@dataclass
class Arrivals:
    """What the topics of one connector had when it was first seen after its update, when its tasks were seen to run
    with it, and now.

    Who else writes to a topic of the target counts as well, as its records cannot be told apart.
    """

    flow: Flow
    unknown: str = ""
    """Why log ends cannot say whether records of this connector arrive; empty where they can."""
    is_committed: bool = False
    """Whether it reads committed records only: what an open transaction holds back does not wait for it."""
    patience_seconds: float = 0.0
    """How long a record has to arrive."""
    sees_target: bool = True
    renames: bool = False
    """Whether the update gives its topics other names on the target: MirrorMaker creates all of them at once."""
    unseen: tuple[str, ...] = ()
    """The topics of which the target has no mirror, in the newest reading."""
    partitions: set[TopicPartition] = field(default_factory=set)
    first: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    base: Ends | None = None
    now: Ends = field(default_factory=dict)
    due: Ends = field(default_factory=dict)
    """What a reading had that is as old as a record has to arrive."""
    latest: tuple[float, Ends] | None = None
    arrived: set[str] = field(default_factory=set)
    """The topics that changed on the target since the tasks run, also those that were deleted and created again."""

    def set_partitions(self, assigned: Iterable[TopicPartition], *, is_new: bool) -> None:
        """Take in partitions of its tasks, of which those of the new config count in the end (`is_new`).

        What the new config does not take is left out, and so are heartbeats, which arrive every second.
        """
        selection = self.flow.selection
        taken = {
            partition
            for partition in assigned
            if selection.takes(partition.topic) and not selection.is_heartbeats(partition.topic)
        }
        self.partitions = taken if is_new else self.partitions | taken

    def take(self, ends: Ends, at: float, *, runs: bool) -> None:
        """Take in a reading of a moment, in seconds; `runs`: the tasks are seen to run with the new config."""
        self.now = ends
        for partition, pair in ends.items():
            if (
                partition not in self.first or pair[1] < self.first[partition][1]
            ):  # a topic that was created again on the target
                self.first[partition] = pair
        if not runs or not ends:
            return
        if self.base is None:
            self.base = ends
        self.arrived |= {
            partition.topic
            for partition, (_, end) in ends.items()
            if partition in self.base and end != self.base[partition][1]
        }
        if self.latest is None:
            self.latest = at, ends
        elif at - self.latest[0] >= self.patience_seconds:
            self.due, self.latest = self.latest[1], (at, ends)

    def forget(self) -> None:
        """Forget what was read, as one of its clusters cannot be read any more."""
        self.base, self.now, self.due, self.latest, self.arrived, self.unseen = None, {}, {}, None, set(), ()

    @property
    def missing_topics(self) -> tuple[str, ...]:
        """The topics that have no mirror of their new name since the tasks run with it."""
        return self.unseen if self.renames else ()

    @property
    def has_arrived(self) -> bool:
        """Tell whether records that came since it was first seen after the update arrived, of any topic."""
        return set(self.fresh) > set(self.waiting) and not self.missing_topics

    @property
    def fresh(self) -> list[str]:
        """The topics that got records since the update."""
        return self._topics_that_grew(self.first, self.now)

    @property
    def waiting(self) -> list[str]:
        """Those of them of which more records wait than when it was first seen, while none arrives."""
        behind = self._topics_behind(self.now)
        return [topic for topic in self.fresh if topic in behind and topic not in self.arrived]

    @property
    def overdue(self) -> list[str]:
        """Those of them whose records had the time to arrive."""
        behind = self._topics_behind(self.due)
        return [topic for topic in self.waiting if topic in behind]

    @property
    def is_broken(self) -> bool:
        """Tell whether nothing arrives at all, of records that came while the tasks ran with the new config."""
        due = self._topics_that_grew(self.base or {}, self.due)
        return self.waiting == self.fresh and any(topic in due for topic in self.overdue)

    @staticmethod
    def _topics_that_grew(before: Ends, after: Ends) -> list[str]:
        return sorted(
            {
                partition.topic
                for partition, (end, _) in after.items()
                if partition in before and end > before[partition][0] + 1
            }
        )

    def _topics_behind(self, ends: Ends) -> set[str]:
        return {
            partition.topic
            for partition, (source, target) in ends.items()
            if partition in self.first and source - target - (self.first[partition][0] - self.first[partition][1]) > 1
        }


DROPS = "its transforms may drop records, or rename their topics"
_NAMING = frozenset({"source.cluster.alias", "replication.policy.class", "replication.policy.separator"})
"""The keys of a connector that decide how topics are called on the target."""
_UNKNOWN_POLICY = "its replication policy, which names the topics, is none of Kafka's"


class LogReader:
    """What the Kafka clusters of one tree are asked about arrivals: each cluster once a look."""

    def __init__(self, topology: Topology) -> None:
        self._flows = {flow.id: flow for flow in topology.flows}
        self._unread: set[str] = set()

    def watching(self, change: Change) -> Arrivals | None:
        """Return what to compare after an update of a source connector; None where nothing can be."""
        flow = self._flow(change)
        is_one = change.type == "source" and change.action == "update" and bool(change.keys)
        if flow is None or not is_one or self._unread & _aliases(flow):
            return None
        unknown = DROPS if change.written_config.get("transforms") else "" if flow.selection.policy else _UNKNOWN_POLICY
        isolation = text_of("source", change.written_config, "source consumer", "isolation.level")
        renames = any(key.key in _NAMING for key in change.keys)
        return Arrivals(flow, unknown, isolation == "read_committed", renames=renames)

    def _flow(self, change: Change) -> Flow | None:
        return next((self._flows[flow_id] for flow_id in change.flows if flow_id in self._flows), None)

    def takes_topics(self, change: Change) -> Steps[bool | None]:
        """Tell whether a topic of the source matches what a connector takes now; None where that cannot be read."""
        flow = self._flow(change)
        if flow is None or flow.source.alias in self._unread:
            return None
        question = PartitionCounts(flow.source.alias)
        names = (yield [question]).get(question)
        if isinstance(names, Mm2mgrError):
            self._unread.add(flow.source.alias)
            return None
        return any(map(flow.selection.takes, names)) or (flow.with_heartbeats and HEARTBEATS in names)

    def was_silent(self, arrivals: Arrivals, written_at: float) -> Steps[bool]:
        """Tell whether no record of the waiting topics arrived before the update either: in the minute before
        `written_at` (seconds since 1970) each of them got records at the source, and none at the target. False where
        that cannot be read."""
        flow, topics = arrivals.flow, arrivals.waiting
        partitions = frozenset(partition for partition in arrivals.partitions if partition.topic in topics)
        since, ran = (round(1000 * (written_at - ago)) for ago in (_BEFORE_SECONDS, _SURELY_RAN_SECONDS))
        remote = {_remote(flow, partition): partition.topic for partition in partitions}
        questions = (
            OffsetsSince(flow.source.alias, partitions, since),
            OffsetsSince(flow.source.alias, partitions, ran),
            OffsetsSince(flow.target.alias, frozenset(remote), since),
        )
        snapshot = yield questions
        try:
            first, later, there = (snapshot[question] for question in questions)
        except Mm2mgrError:
            return False
        wrote = {
            partition.topic
            for partition, offset in first.items()
            if offset >= 0 and later.get(partition, offset) != offset
        }
        arrived = {remote[partition] for partition, offset in there.items() if offset >= 0}
        return bool(topics) and wrote.issuperset(topics) and not arrived

    def read(self, watched: Iterable[Arrivals]) -> Steps[list[tuple[Arrivals, Ends]]]:
        """Return the ends of what each of them has, without those whose clusters could not be read."""
        asked = [arrivals for arrivals in watched if arrivals.partitions and not arrivals.unknown]
        partitions_of: dict[tuple[str, bool], set[TopicPartition]] = {}
        for arrivals in asked:
            if not self._unread & _aliases(arrivals.flow):
                for place, partitions in zip(_places(arrivals), _pairs(arrivals), strict=True):
                    partitions_of.setdefault(place, set()).update(partitions)
        questions = {
            place: PartitionEnds(place[0], frozenset(partitions), place[1])
            for place, partitions in partitions_of.items()
        }
        snapshot = yield questions.values()
        self._unread |= {
            alias for (alias, _), question in questions.items() if isinstance(snapshot.get(question), Mm2mgrError)
        }
        ends: list[tuple[Arrivals, Ends]] = []
        for arrivals in asked:
            if self._unread & _aliases(arrivals.flow):
                arrivals.forget()
            else:
                ends.append((arrivals, _both(arrivals, *(snapshot[questions[place]] for place in _places(arrivals)))))
        return ends


def _places(arrivals: Arrivals) -> tuple[tuple[str, bool], tuple[str, bool]]:
    return (arrivals.flow.source.alias, arrivals.is_committed), (arrivals.flow.target.alias, False)


def _pairs(arrivals: Arrivals) -> tuple[Iterable[TopicPartition], Iterable[TopicPartition]]:
    return arrivals.partitions, (_remote(arrivals.flow, partition) for partition in arrivals.partitions)


def _both(
    arrivals: Arrivals, source: Mapping[TopicPartition, int | None], target: Mapping[TopicPartition, int | None]
) -> Ends:
    """Return both ends of its partitions, none where mm2mgr sees none of its topics there: 0 would be no reading."""
    remotes = {partition: _remote(arrivals.flow, partition) for partition in arrivals.partitions}
    arrivals.sees_target = any(target.get(remote) is not None for remote in remotes.values())
    topics = {partition.topic for partition, remote in remotes.items() if target.get(remote) is not None}
    arrivals.unseen = tuple(
        sorted({partition.topic for partition in remotes if source.get(partition) is not None} - topics)
    )
    return {
        partition: (source[partition] or 0, target[remote] or 0)
        for partition, remote in remotes.items()
        if arrivals.sees_target and partition in source and remote in target
    }


def describe_arrivals(arrivals: Arrivals) -> str:
    """Return what is seen of records, in words; nothing where they arrive."""
    if doubt := _doubt(arrivals):
        return doubt
    if arrivals.base is None:
        return ""
    if not arrivals.fresh:
        return "no new records to judge by"
    if not arrivals.waiting:
        return ""
    return f"no record of {few(arrivals.waiting)} arrives, although the source has new ones (a right may be missing)"


def _doubt(arrivals: Arrivals) -> str:
    """Return why log ends do not say whether records arrive; "" where they do."""
    flow = arrivals.flow
    if arrivals.unknown:
        return f"not known whether records arrive ({arrivals.unknown})"
    if arrivals.missing_topics:
        names = few([flow.remote_topic(topic) for topic in arrivals.missing_topics])
        cause = "the brokers may refuse the name, or a right is missing"
        return f"nothing arrives in {names}: not on {flow.target.alias} ({cause})"
    if not arrivals.sees_target:
        return f"not known whether records arrive (mm2mgr sees none of its topics on {flow.target.alias})"
    return ""


def _remote(flow: Flow, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(flow.remote_topic(partition.topic), partition.partition)


def _aliases(flow: Flow) -> set[str]:
    return {flow.source.alias, flow.target.alias}

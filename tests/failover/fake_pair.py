"""Two Kafka clusters as answers to the questions of a failover check, with their faults: what is refused, and who is dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2mgr.errors import KafkaError, KafkaSilence, Mm2mgrError
from mm2mgr.failover.syncs import Checkpoint, CheckpointLog, OffsetSync, OffsetSyncLog
from mm2mgr.kafka import scratch_groups
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Right, TopicSettings
from mm2mgr.kafka.groups import GroupOffsets, GroupState, RecordMark, RecordPlace
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.kafka.quotas import ProducerQuotas
from mm2mgr.kafka.scratch_groups import GroupRead
from mm2mgr.live import read as live_read
from mm2mgr.live.principals import Principal
from mm2mgr.live.questions import (
    CheckpointRecords,
    ClusterAcls,
    CommittedOffsets,
    GroupMembers,
    MemberCounts,
    OffsetSyncRecords,
    PartitionCounts,
    PartitionEnds,
    Quotas,
    RecordMarks,
    RecordTimes,
    RefusedTopics,
    SettingsOfTopics,
    TextsByKey,
    TopicIds,
    TopicLogs,
    TranslatedGroups,
)
from mm2mgr.live.reach import KafkaReach
from mm2mgr.live.rights import LoggedIn, LogIn, Permissions, RightsOf
from mm2mgr.live.schemas import SchemaIds
from mm2mgr.live.snapshot import Question
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.registry.ids import TopicSample

ALL = frozenset({"Describe", "DescribeConfigs", "ClusterAction"})
DESCRIBED = frozenset({"Describe"})


@dataclass
class FakeCluster:
    """One side: logs by partition, groups with offsets and states, and what this login may not read."""

    logs: dict[TopicPartition, Offsets] = field(default_factory=dict)
    open_ends: dict[TopicPartition, int] = field(default_factory=dict)
    commits: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    states: dict[str, GroupState] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    acls: tuple[Acl, ...] | None = ()
    quotas: ProducerQuotas = field(default_factory=lambda: ProducerQuotas(1))
    records: dict[TopicPartition, list[RecordMark]] = field(default_factory=dict)
    operations: frozenset[str] = ALL
    dead: bool = False
    refused: set[type] = field(default_factory=set)
    refused_groups: set[str] = field(default_factory=set)
    refused_topics: set[str] = field(default_factory=set)
    denied: set[Right] = field(default_factory=set)
    syncs: OffsetSyncLog = field(default_factory=OffsetSyncLog)
    checkpoints: CheckpointLog = field(default_factory=CheckpointLog)
    ids: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    samples: dict[str, TopicSample] = field(default_factory=dict)

    @property
    def partitions(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic, number in self.logs:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        return {topic: count for topic, count in counts.items() if topic not in self.refused_topics}


@dataclass
class FakePair:
    """Clusters by alias; `asked` counts the questions of each kind."""

    clusters: dict[str, FakeCluster]
    asked: dict[str, int] = field(default_factory=dict)

    def answer(self, reach: KafkaReach, questions: Sequence[Any]) -> dict[Question[Any], Any]:
        """Answer in the place of `live.read.ask_kafka`."""
        answers: dict[Question[Any], Any] = {}
        for question in questions:
            name = type(question).__name__
            self.asked[name] = self.asked.get(name, 0) + 1
            try:
                answers[question] = self._answer(reach.access.alias, question)
            except Mm2mgrError as error:
                answers[question] = error
        return answers

    def serve(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(live_read, "ask_kafka", self.answer)

    def _answer(self, alias: str, question: Question[Any]) -> Any:  # noqa: PLR0911, PLR0912  one per kind
        cluster = self.clusters[alias]
        if cluster.dead:
            error = KafkaSilence(f"{alias}: no broker of {alias}:9092 answered within 10 s")
            if isinstance(question, LogIn):
                from mm2mgr.errors import Failure

                return LoggedIn(Principal("User:mm2mgr"), failure=Failure.from_error(error))
            raise error
        if type(question) in cluster.refused:
            raise KafkaError(f"{alias}: reading failed: Broker: Topic authorization failed")
        match question:
            case LogIn():
                groups = frozenset(cluster.commits)
                view = ClusterView(alias, (1,), cluster.operations, cluster.partitions, groups, bool(groups))
                return LoggedIn(Principal("User:mm2mgr"), view)
            case GroupMembers():
                return {group: cluster.states.get(group, GroupState("EMPTY")) for group in cluster.commits}
            case MemberCounts():
                return {
                    group: cluster.members.get(group, 1)
                    for group in question.groups
                    if group not in cluster.refused_groups
                }
            case CommittedOffsets():
                known = {
                    group: dict(cluster.commits.get(group, {}))
                    for group in question.groups
                    if group not in cluster.refused_groups
                }
                return GroupOffsets(known, tuple(sorted(cluster.refused_groups & set(question.groups))))
            case TopicLogs():
                there = (TopicPartition(question.topic, number) for number in range(question.partitions))
                return {partition: cluster.logs[partition] for partition in there if partition in cluster.logs}
            case PartitionEnds():
                return {
                    partition: cluster.open_ends.get(partition, cluster.logs[partition].end)
                    for partition in question.partitions
                }
            case SettingsOfTopics():
                listed = cluster.partitions
                return {
                    topic: TopicSettings(cluster.settings.get(topic, {}), cluster.settings.get(topic, {}))
                    for topic in question.topics
                    if topic in listed
                }
            case ClusterAcls():
                return cluster.acls
            case Quotas():
                return cluster.quotas
            case TopicIds():
                return {topic: cluster.ids.get(topic, f"{alias}-{topic}") for topic in question.topics}
            case RefusedTopics():
                return tuple(sorted(cluster.refused_topics & set(question.topics)))
            case TranslatedGroups():
                return ()
            case RightsOf():
                told: Permissions = {}
                for right in question.rights:
                    permission = "no" if right in cluster.denied else "yes"
                    told.setdefault(right.kind, {}).setdefault(right.name, {})[right.operation] = permission
                return told
            case PartitionCounts():
                return cluster.partitions
            case TextsByKey():
                return dict(cluster.texts)
            case SchemaIds():
                return {topic: cluster.samples.get(topic, TopicSample(topic)) for topic, _ in question.topics}
            case RecordTimes():
                return {partition: 0.0 for partition, _ in question.positions}
            case RecordMarks():
                return {place: self._marks(cluster, place) for place in question.places}
            case OffsetSyncRecords():
                return cluster.syncs
            case CheckpointRecords():
                return cluster.checkpoints
        raise AssertionError(f"no answer to {question}")

    @staticmethod
    def _marks(cluster: FakeCluster, place: RecordPlace) -> tuple[RecordMark, ...]:
        marks = (mark for mark in cluster.records.get(place.partition, []) if place.offset <= mark.offset < place.end)
        return tuple(marks)[: place.most]


def sync(topic: str, upstream: int, downstream: int, partition: int = 0) -> OffsetSync:
    return OffsetSync(TopicPartition(topic, partition), upstream, downstream)


def syncs_of(*syncs: OffsetSync) -> OffsetSyncLog:
    by_partition: dict[TopicPartition, tuple[OffsetSync, ...]] = {}
    for each in syncs:
        by_partition[each.partition] = (*by_partition.get(each.partition, ()), each)
    return OffsetSyncLog(by_partition, 1.0)


def checkpoint(group: str, topic: str, upstream: int, downstream: int, partition: int = 0) -> Checkpoint:
    return Checkpoint(group, TopicPartition(topic, partition), upstream, downstream, "")


# --- scratch groups ---------------------------------------------------------------------------------------------------


@dataclass
class FakeScratch:
    """Scratch groups on the clusters of a pair, in the place of `kafka.scratch_groups`; `reads` are groups that were read.

    `refuses`: what the login may not do (`delete`, `write`, or Read on a topic by its name). `interrupt_at`: so many
    groups are read before somebody presses Ctrl-C.
    """

    pair: FakePair
    refuses: set[str] = field(default_factory=set)
    interrupt_at: int | None = None
    stays: str = ""
    reads: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)

    def serve(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(scratch_groups, "write_offsets", self.write_offsets)
        patch.setattr(scratch_groups, "delete_groups", self.delete_groups)
        patch.setattr(scratch_groups, "read_as_member", self.read_as_member)

    def write_offsets(self, access: KafkaAccess, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, str]:
        failed = {}
        for name, places in offsets.items():
            topics = self.refuses & {partition.topic for partition in places}
            if "write" in self.refuses or topics:
                failed[name] = (
                    "Broker: Group authorization failed" if not topics else "Broker: Topic authorization failed"
                )
                continue
            self.pair.clusters[access.alias].commits[name] = dict(places)
            self.created.append(name)
        return failed

    def delete_groups(self, access: KafkaAccess, names: Sequence[str], limit_seconds: float) -> dict[str, str]:
        if "delete" in self.refuses:
            return dict.fromkeys(names, "Broker: Group authorization failed")
        commits = self.pair.clusters[access.alias].commits
        left = {name: "Broker: The group is not empty" for name in names if self.stays and name.endswith(self.stays)}
        for name in names:
            if name not in left:
                commits.pop(name, None)
        return left

    def read_as_member(
        self, access: KafkaAccess, group: str, most: Mapping[TopicPartition, int], limit_seconds: float, stop: object
    ) -> GroupRead:
        if self.interrupt_at is not None and len(self.reads) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.reads.append(group)
        cluster = self.pair.clusters[access.alias]
        starts, marks, ended = cluster.commits[group], {}, set()
        for partition, count in most.items():
            end = cluster.logs[partition].end
            there = FakePair._marks(cluster, RecordPlace(partition, starts[partition], count, end))
            marks[partition] = there
            if len(there) < count:
                ended.add(partition)
        return GroupRead(marks, frozenset(ended), {}, 0.25, 0.5)

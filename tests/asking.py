"""How tests answer what `live` asks: one place for Kafka clusters, and one for a judgement that is asked by one Connect client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from mm2mgr.comparison.differences import Named
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.syncs import Checkpoint, CheckpointLog, OffsetSync, OffsetSyncLog
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Permission, Right, TopicSettings
from mm2mgr.kafka.groups import GroupOffsets, GroupState
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.kafka.quotas import ProducerQuotas
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.lint.subject import Estate
from mm2mgr.lint.workers import read_estate_of
from mm2mgr.live import read as live_read
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.principals import principal_of
from mm2mgr.live.questions import (
    CheckpointRecords,
    ClusterAcls,
    ClusterId,
    CommittedOffsets,
    Expiring,
    GroupMembers,
    MeasuredTopics,
    NewestRecord,
    OffsetsSince,
    OffsetSyncRecords,
    PartitionCounts,
    PartitionEnds,
    PlaceInLogs,
    Quotas,
    RecordTimes,
    RefusedTopics,
    SettingsOfTopics,
    StoredSizes,
    TextsByKey,
    TopicLogs,
    TopicRetention,
    TranslatedGroups,
    UserTopics,
    WorkerGroups,
)
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.live.rights import (
    EveryAcl,
    LimitsOf,
    LimitsRead,
    LoggedIn,
    LogIn,
    Permissions,
    RequestVersions,
    RightsOf,
    TopicsOfGroups,
)
from mm2mgr.live.snapshot import Question, Snapshot, Steps
from mm2mgr.log_places import LogPositions
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import Plan, Wish
from mm2mgr.plan.draft import Declared
from mm2mgr.plan.planner import plan_steps
from mm2mgr.spec.files import Spec
from mm2mgr.topology import Topology

Result = TypeVar("Result")
ReadTopics = Callable[[KafkaAccess], RunningKafka]


def topics_with(
    topics: Mapping[str, int], records: Mapping[str, int] | None = None, written: Mapping[str, int] | None = None
) -> RunningKafka:
    """Return a Kafka cluster with these topics (name → partitions), all records of one in its first partition.

    `written`: where its log ends, if records were deleted.
    """
    ends = dict(records or {}) | dict(written or {})
    starts = {topic: end - (records or {}).get(topic, 0) for topic, end in ends.items()}
    return RunningKafka(topics, {TopicPartition(topic, 0): Offsets(starts[topic], end) for topic, end in ends.items()})


def answer_kafka(
    patch: pytest.MonkeyPatch,
    *,
    topics: ReadTopics | None = None,
    sizes: Callable[[KafkaAccess, Mapping[str, int]], TopicSizes] | None = None,
    stored: Callable[[KafkaAccess, Mapping[str, tuple[int, float]]], dict[str, float]] | None = None,
    groups: Callable[[KafkaAccess, Callable[[str], bool], Callable[[str], bool]], tuple[str, ...]] | None = None,
    expiring: Callable[[], Sequence[TopicPartition]] | None = None,
    texts: Callable[[str], dict[str, str]] | None = None,
    ends: Callable[[KafkaAccess, PartitionEnds], dict[TopicPartition, int | None]] | None = None,
    since: Callable[[KafkaAccess, OffsetsSince], dict[TopicPartition, int]] | None = None,
    workers: Callable[[KafkaAccess], tuple[WorkerGroup, ...]] | None = None,
    places: Callable[[KafkaAccess, PlaceInLogs], LogPositions] | None = None,
    idle: bool = False,
) -> None:
    """Let these answer in the place of Kafka clusters; what none of them is for is asked for as ever, or `idle` clusters answer."""
    asked = live_read.ask_kafka

    def one(access: KafkaAccess, question: Question[Any]) -> Any:  # noqa: PLR0911, PLR0912  one per kind
        match question:
            case PartitionCounts() if topics:
                return topics(access).topics
            case UserTopics() if topics:
                return topics(access).topics
            case TopicLogs() if topics:
                logs = topics(access).offsets
                partitions = (TopicPartition(question.topic, number) for number in range(question.partitions))
                return {partition: logs.get(partition, Offsets(0, 0)) for partition in partitions}
            case MeasuredTopics() if sizes:
                return sizes(access, dict(question.topics))
            case StoredSizes() if stored:
                return stored(access, {name: (count, size) for name, count, size in question.topics})
            case TranslatedGroups() if groups:
                return groups(access, question.groups.matches, question.topics.takes)
            case TextsByKey() if texts:
                return texts(access.alias)
            case PartitionEnds() if ends:
                return ends(access, question)
            case OffsetsSince() if since:
                return since(access, question)
            case PlaceInLogs() if places:
                return places(access, question)
            case WorkerGroups() if workers:
                return workers(access)
            case Expiring() if expiring:
                return tuple(expiring())
            case Quotas() if idle:
                return ProducerQuotas(3)
            case ClusterId() if idle:
                return access.alias
            case NewestRecord() if idle:
                return 1.0
            case TopicRetention() if idle:
                return {question.topic: 60.0}
            case LogIn() if idle:
                counts = topics(access).topics if topics else {}
                view = ClusterView(access.alias, (1, 2), frozenset({"Describe"}), counts, frozenset({"billing"}), True)
                return LoggedIn(principal_of(access), view)
            case RightsOf() if idle:
                return _permissions(question.rights)
            case EveryAcl() if idle:
                return (Acl("User:ANONYMOUS", "*", "Read", "topic", "orders", prefixed=False, allow=True),)
            case TopicsOfGroups() if idle:
                return dict.fromkeys(question.groups, ("orders",))
            case LimitsOf() if idle:
                settings = {"max.message.bytes": "1048588", "cleanup.policy": "delete"}
                return LimitsRead.from_topics(1_048_588, dict.fromkeys(question.topics, settings))
            case RequestVersions() if idle:
                return {1: (0, 10), 0: (0, 9)}
            case GroupMembers() if idle:
                return {"billing": GroupState("EMPTY")}
            case CommittedOffsets() if idle:
                topic = "orders" if access.alias == "a" else "a.orders"
                return GroupOffsets({"billing": {TopicPartition(topic, 0): 3}})
            case SettingsOfTopics() if idle:
                return dict.fromkeys(question.topics, TopicSettings({"cleanup.policy": "delete"}, {}))
            case ClusterAcls() if idle:
                return (Acl("User:ANONYMOUS", "*", "Read", "topic", "orders", prefixed=False, allow=True),)
            case RefusedTopics() if idle:
                return ()
            case PartitionEnds() if idle:
                return dict.fromkeys(question.partitions, 5)
            case RecordTimes() if idle:
                return {partition: 1.0 for partition, _ in question.positions}
            case OffsetSyncRecords() if idle:
                return OffsetSyncLog(
                    {TopicPartition("orders", 0): (OffsetSync(TopicPartition("orders", 0), 2, 2),)}, 1.0
                )
            case CheckpointRecords() if idle:
                return CheckpointLog({Checkpoint("billing", TopicPartition("a.orders", 0), 3, 3, ""): 1.0})
        return NotImplemented

    def answer(reach: KafkaReach, questions: Sequence[Any]) -> dict[Question[Any], Any]:
        answers = {}
        for question in questions:
            try:
                answers[question] = one(reach.access, question)
            except Mm2mgrError as error:
                answers[question] = error
        return asked(reach, questions) if NotImplemented in answers.values() else answers

    patch.setattr(live_read, "ask_kafka", answer)


def _permissions(rights: Sequence[Right]) -> Permissions:
    """Answer no to what needs Write, and leave a missing topic open."""
    permissions: Permissions = {}
    for right in rights:
        permission: Permission = "no" if right.operation == "Write" else "open" if right.operation == "Read" else "yes"
        permissions.setdefault(right.kind, {}).setdefault(right.name, {})[right.operation] = permission
    return permissions


async def from_client(client: ConnectClient, steps: Steps[Result]) -> Result:
    """Return the result of a judgement whose questions one client answers."""
    snapshot = Snapshot()
    try:
        questions = next(steps)
        while True:
            answers: dict[Question[Any], Any] = {}
            for question in snapshot.lacking(questions):
                try:
                    answers[question] = await question.ask(client)  # type: ignore[attr-defined]
                except Mm2mgrError as error:
                    answers[question] = error
            snapshot = snapshot.with_answers(answers)
            questions = steps.send(snapshot)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def read_live(target: ConnectTarget, deadline_seconds: float = 30.0) -> Estate:
    """Return what a Connect cluster runs, as lint sees it."""
    limits = Limits(connect_seconds=deadline_seconds)
    return (await run_steps(read_estate_of(target.name), Clusters({target.name: target}), limits))[0]


async def make_plan(
    topology: Topology,
    connectors: Sequence[Connector],
    wish: Wish = Wish(),
    *,
    only: Sequence[str] | None = None,
    spec: Spec | None = None,
    deadline_seconds: float = 30.0,
    waits: Callable[[Plan], Collection[Named]] = lambda _: (),
) -> Plan:
    """Return the plan of a tree, from clusters that are asked side by side."""
    declared = Declared(topology, connectors, wish, None if only is None else frozenset(only), spec, waits)
    limits = Limits(connect_seconds=deadline_seconds)
    return (await run_steps(plan_steps(declared), Clusters.of_tree(topology), limits))[0]

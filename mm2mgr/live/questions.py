"""What clusters can be asked, as frozen values, each with the type of its answer and how it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from mm2mgr.connect.types import Plugin, PluginsOfWorkers, SourceOffset, Validation, WorkerInfo
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.syncs import CheckpointLog, OffsetSyncLog, collect_checkpoints, collect_offset_syncs
from mm2mgr.kafka.acls import Acl, TopicSettings
from mm2mgr.kafka.groups import GroupOffsets, GroupState, RecordMark, RecordPlace
from mm2mgr.kafka.quotas import ProducerQuotas, read_quotas
from mm2mgr.kafka.worker_groups import WorkerGroup, read_worker_groups
from mm2mgr.live.positions import read_positions
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.record_sizes import TopicSizes, read_sizes, read_stored
from mm2mgr.live.snapshot import Answers, Question
from mm2mgr.log_places import LogPositions
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.secrets import mask_config
from mm2mgr.spec.scalars import log_place
from mm2mgr.topics.names import NameFilter

if TYPE_CHECKING:
    from mm2mgr.connect.client import ConnectClient
    from mm2mgr.live.reach import KafkaReach

_ONE_WORKER_SECONDS = 5.0
Answer_co = TypeVar("Answer_co", covariant=True)


class ConnectQuestion(Question[Answer_co]):
    """A question to one Connect cluster."""

    async def ask(self, client: ConnectClient) -> Answer_co:
        """Return the answer; raises Mm2mgrError."""
        raise NotImplementedError


class ConnectorsWithStates(ConnectQuestion[dict[str, RunningConnector]]):
    """All connectors with the states of those that have one yet, in one request."""

    async def ask(self, client: ConnectClient) -> dict[str, RunningConnector]:
        return await client.infos_with_states()


class ConnectorsWithStatuses(ConnectQuestion[dict[str, RunningConnector]]):
    """The same, with the states of their tasks."""

    async def ask(self, client: ConnectClient) -> dict[str, RunningConnector]:
        return await client.infos_with_statuses()


class Configs(ConnectQuestion[dict[str, RunningConnector]]):
    """All connectors, those without a status too."""

    async def ask(self, client: ConnectClient) -> dict[str, RunningConnector]:
        return await client.infos()


class Statuses(ConnectQuestion[dict[str, ConnectorStatus]]):
    """The states of all connectors and their tasks."""

    async def ask(self, client: ConnectClient) -> dict[str, ConnectorStatus]:
        return await client.statuses()


class AnsweringWorker(ConnectQuestion[WorkerInfo]):
    """Which worker answers: its version, and the id of its Kafka cluster."""

    async def ask(self, client: ConnectClient) -> WorkerInfo:
        return await client.root()


class Plugins(ConnectQuestion[tuple[Plugin, ...]]):
    """The plugins of the worker that answers."""

    async def ask(self, client: ConnectClient) -> tuple[Plugin, ...]:
        return await client.plugins()


@dataclass(frozen=True)
class ConfigValidation(ConnectQuestion[Validation]):
    """What the worker that answers thinks of a config; nothing is written."""

    config: tuple[tuple[str, str], ...] = field(repr=False)  # may hold secrets

    @classmethod
    def from_config(cls, connect: str, config: Mapping[str, str]) -> ConfigValidation:
        return cls(connect, tuple(sorted(config.items())))

    def as_stored(self) -> ConfigValidation:
        return ConfigValidation.from_config(self.cluster, mask_config(dict(self.config)))

    async def ask(self, client: ConnectClient) -> Validation:
        config = dict(self.config)
        return await client.validate(config["connector.class"], config)


@dataclass(frozen=True)
class ConnectorQuestion(ConnectQuestion[Answer_co]):
    """A question about one connector."""

    connector: str


class StoredOffsets(ConnectorQuestion[tuple[SourceOffset, ...]]):
    """The stored source offsets of a connector."""

    async def ask(self, client: ConnectClient) -> tuple[SourceOffset, ...]:
        return await client.offsets(self.connector)


class TaskConfigs(ConnectorQuestion[tuple[TaskConfig, ...]]):
    """The configs of a connector's tasks, with what each is assigned."""

    async def ask(self, client: ConnectClient) -> tuple[TaskConfig, ...]:
        return await client.tasks(self.connector)


class WrittenTopics(ConnectorQuestion[tuple[str, ...]]):
    """The topics that a connector wrote to, by their names on the target."""

    async def ask(self, client: ConnectClient) -> tuple[str, ...]:
        return await client.topics(self.connector)


@dataclass(frozen=True)
class SilentWorkers(ConnectQuestion[frozenset[str]]):
    """Which workers, by their ids, accept no connection at their address."""

    workers: tuple[str, ...]

    async def ask(self, client: ConnectClient) -> frozenset[str]:
        from mm2mgr.connect.client import silent_workers

        return await silent_workers(client.target, self.workers)


@dataclass(frozen=True)
class PluginsOfEachWorker(ConnectQuestion[PluginsOfWorkers]):
    """The plugins of each worker that is known, by the cluster's URLs and by these ids."""

    workers: tuple[str, ...]

    async def ask(self, client: ConnectClient) -> PluginsOfWorkers:
        from mm2mgr.connect.client import plugins_of_workers

        return await plugins_of_workers(client.target, self.workers, _ONE_WORKER_SECONDS)


@dataclass(frozen=True)
class KafkaAndPluginsOfEachWorker(ConnectQuestion[PluginsOfWorkers]):
    """The same, with the version of Kafka that each of them runs."""

    workers: tuple[str, ...]

    async def ask(self, client: ConnectClient) -> PluginsOfWorkers:
        from mm2mgr.connect.client import plugins_of_workers

        return await plugins_of_workers(client.target, self.workers, _ONE_WORKER_SECONDS, with_kafka=True)


# --- Kafka ------------------------------------------------------------------------------------------------------------


class KafkaQuestion(Question[Answer_co]):
    """A question to one Kafka cluster; those of one kind are asked together."""

    def as_login(self) -> ClientLogin | None:
        """Return the login to ask as; None: mm2mgr's own."""
        return None

    def ask(self, reach: KafkaReach) -> Answer_co:
        """Return the answer; raises Mm2mgrError. Blocks."""
        raise NotImplementedError

    @classmethod
    def ask_all(cls, reach: KafkaReach, questions: Sequence[KafkaQuestion[object]]) -> Answers:
        """Return the answers, or why there is none: one after the other, unless a kind knows better."""
        answers: dict[Question[object], object] = {}
        for question in questions:
            try:
                answers[question] = question.ask(reach)
            except Mm2mgrError as error:
                answers[question] = error
        return answers


class ClusterId(KafkaQuestion[str]):
    """The id of a Kafka cluster."""

    def ask(self, reach: KafkaReach) -> str:
        return reach.kafka.cluster_id()


@dataclass(frozen=True)
class LoginQuestion(KafkaQuestion[Answer_co]):
    """A question that may be asked as one of the workers' logins; None: as mm2mgr's own."""

    login: ClientLogin | None = None

    def as_login(self) -> ClientLogin | None:
        return self.login

    def as_stored(self) -> LoginQuestion[Answer_co]:
        return replace(self, login=self.login and self.login.as_stored())


class BrokerCount(LoginQuestion[tuple[str, int]]):
    """Id and number of brokers of a Kafka cluster, asked as mm2mgr or with this login.

    Where no broker listens, it is not waited for.
    """

    def ask(self, reach: KafkaReach) -> tuple[str, int]:
        return reach.kafka.identity(while_down=False)


class PartitionCounts(KafkaQuestion[dict[str, int]]):
    """The topics that mm2mgr's login may see, with their partitions."""

    def ask(self, reach: KafkaReach) -> dict[str, int]:
        return reach.kafka.partition_counts()


class UserTopics(KafkaQuestion[dict[str, int]]):
    """The topics that are not Kafka's own, with their partitions, in the order that MirrorMaker's admin client has."""

    def ask(self, reach: KafkaReach) -> dict[str, int]:
        return {name: topic.partitions for name, topic in reach.kafka.topics().items() if not topic.internal}


@dataclass(frozen=True)
class TopicQuestion(KafkaQuestion[Answer_co]):
    """A question about all partitions of a topic, of which there are so many."""

    topic: str
    partitions: int

    @staticmethod
    def all_partitions(questions: Sequence[Any]) -> list[TopicPartition]:
        return [
            TopicPartition(question.topic, number) for question in questions for number in range(question.partitions)
        ]


class TopicLogs(TopicQuestion[dict[TopicPartition, Offsets]]):
    """Log start and end of the partitions of a topic; those that cannot be read are left out."""

    @classmethod
    def ask_all(cls, reach: KafkaReach, questions: Sequence[Any]) -> Answers:
        from mm2mgr.kafka.records import read_logs

        logs = read_logs(reach.kafka, cls.all_partitions(questions)).found
        by_topic: dict[str, dict[TopicPartition, Offsets]] = {question.topic: {} for question in questions}
        for partition, log in logs.items():
            by_topic[partition.topic][partition] = log
        return {question: by_topic[question.topic] for question in questions}


@dataclass(frozen=True)
class TopicIds(KafkaQuestion[dict[str, str]]):
    """The ids of topics by name; absent: a topic that cannot be described, and every one before Kafka 2.8."""

    topics: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> dict[str, str]:
        with reach.connect(reach.limits.measuring_seconds) as kafka:
            return kafka.topic_ids(self.topics)


@dataclass(frozen=True)
class PartitionEnds(KafkaQuestion[dict[TopicPartition, int | None]]):
    """Log ends of partitions, 0 of those that do not exist (yet), None where this login does not see the topic.

    `committed`: the first offset of an open transaction where there is one.
    """

    partitions: frozenset[TopicPartition]
    committed: bool = False

    def ask(self, reach: KafkaReach) -> dict[TopicPartition, int | None]:
        from mm2mgr.kafka.records import read_logs

        with reach.connect(reach.limits.measuring_seconds) as kafka:
            counts = kafka.partition_counts()  # ends early where no broker listens
            there = _existing(self.partitions, counts)
            logs = read_logs(kafka, there, (), committed=self.committed).found
        missing = {partition: 0 if partition.topic in counts else None for partition in self.partitions - set(there)}
        return {**missing, **{partition: log.end for partition, log in logs.items()}}


@dataclass(frozen=True)
class OffsetsSince(KafkaQuestion[dict[TopicPartition, int]]):
    """The first offset of partitions at a time (milliseconds since 1970) or later, -1 where there is none."""

    partitions: frozenset[TopicPartition]
    since_ms: int

    def ask(self, reach: KafkaReach) -> dict[TopicPartition, int]:
        with reach.connect(reach.limits.measuring_seconds) as kafka:
            there = _existing(self.partitions, kafka.partition_counts())
            return kafka.offsets_since(dict.fromkeys(there, self.since_ms))


@dataclass(frozen=True)
class OffsetsAtTimes(KafkaQuestion[dict[TopicPartition, int]]):
    """The first offset of each partition at a time of its own (milliseconds since 1970) or later, -1 where there is
    none."""

    times_ms: tuple[tuple[TopicPartition, int], ...]

    def ask(self, reach: KafkaReach) -> dict[TopicPartition, int]:
        with reach.connect(reach.limits.measuring_seconds) as kafka:
            return kafka.offsets_since(dict(self.times_ms))


@dataclass(frozen=True)
class PlaceInLogs(KafkaQuestion[LogPositions]):
    """Where a place (as `scalars.log_place` reads it) is in the logs of partitions.

    `committed`: the end of a log is the first offset of an open transaction where there is one.
    """

    place: str
    partitions: frozenset[TopicPartition]
    committed: bool = False

    @classmethod
    def ask_all(cls, reach: KafkaReach, questions: Sequence[Any]) -> Answers:
        answers: dict[Question[object], object] = {}
        with reach.connect(reach.limits.measuring_seconds) as kafka:
            counts = kafka.partition_counts()
            for question in questions:
                there, place = _existing(question.partitions, counts), log_place(question.place)
                try:
                    answers[question] = read_positions(kafka, place, there, committed=question.committed)
                except Mm2mgrError as error:
                    answers[question] = error
        return answers


def _existing(partitions: Iterable[TopicPartition], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [partition for partition in partitions if partition.partition < counts.get(partition.topic, 0)]


class WorkerGroups(KafkaQuestion[tuple[WorkerGroup, ...]]):
    """The groups of Connect workers on a Kafka cluster that mm2mgr's login may describe."""

    def ask(self, reach: KafkaReach) -> tuple[WorkerGroup, ...]:
        with reach.connect(reach.limits.kafka_seconds) as kafka:
            kafka.limit_time(reach.limits.kafka_seconds)
            return read_worker_groups(kafka)


class Quotas(KafkaQuestion[ProducerQuotas]):
    """The quotas of producers."""

    def ask(self, reach: KafkaReach) -> ProducerQuotas:
        return read_quotas(reach.access, reach.limits.measuring_seconds)


@dataclass(frozen=True)
class TextsByKey(KafkaQuestion[dict[str, str]]):
    """The newest text of each key of a compacted topic of mm2mgr; nothing while it does not exist."""

    topic: str

    def ask(self, reach: KafkaReach) -> dict[str, str]:
        from mm2mgr.kafka.compacted import CompactedTopic

        return CompactedTopic(reach.access, self.topic, 1, {}).read()


@dataclass(frozen=True)
class DedicatedOffsets(KafkaQuestion[tuple[SourceOffset, ...]]):
    """What a dedicated MirrorMaker from a source alias stored here; a failure unless it was shut down cleanly."""

    source: str

    def ask(self, reach: KafkaReach) -> tuple[SourceOffset, ...]:
        from mm2mgr.live.dedicated import read_dedicated

        return tuple(read_dedicated(reach, self.source))


@dataclass(frozen=True)
class OffsetsInTopic(KafkaQuestion[dict[str, tuple[SourceOffset, ...]]]):
    """What these connectors stored in a topic of offsets of Connect, by connector: while no worker answers."""

    topic: str
    connectors: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> dict[str, tuple[SourceOffset, ...]]:
        from mm2mgr.live.internal_topics import read_connect_offsets

        return read_connect_offsets(reach, self.topic, self.connectors)


@dataclass(frozen=True)
class Expiring(KafkaQuestion[tuple[TopicPartition, ...]]):
    """The partitions whose records from these offsets on retention deletes within so many seconds."""

    next_offsets: tuple[tuple[TopicPartition, int], ...]
    seconds: float

    def ask(self, reach: KafkaReach) -> tuple[TopicPartition, ...]:
        from mm2mgr.kafka.inspection import expiring

        with reach.connect(reach.limits.measuring_seconds) as kafka:
            return tuple(expiring(kafka, dict(self.next_offsets), self.seconds))


@dataclass(frozen=True)
class MeasuredTopics(KafkaQuestion[TopicSizes]):
    """Logs and record sizes of topics, each with its partitions, measured on samples."""

    topics: tuple[tuple[str, int], ...]

    def ask(self, reach: KafkaReach) -> TopicSizes:
        return read_sizes(reach, dict(self.topics))


@dataclass(frozen=True)
class StoredSizes(KafkaQuestion[dict[str, float]]):
    """What a record takes in logs of topics, each with its partitions and a record's size before compression."""

    topics: tuple[tuple[str, int, float], ...]

    def ask(self, reach: KafkaReach) -> dict[str, float]:
        return read_stored(reach, {name: (count, size) for name, count, size in self.topics})


@dataclass(frozen=True)
class TranslatedGroups(KafkaQuestion[tuple[str, ...]]):
    """The consumer groups of a filter that committed offsets on a topic of another."""

    groups: NameFilter
    topics: NameFilter

    def ask(self, reach: KafkaReach) -> tuple[str, ...]:
        from mm2mgr.kafka.inspection import translated_groups

        with reach.connect(reach.limits.kafka_seconds) as kafka:
            kafka.limit_time(reach.limits.kafka_seconds)
            return translated_groups(kafka, self.groups.matches, self.topics.takes)


@dataclass(frozen=True)
class TopicRetention(KafkaQuestion[dict[str, float | None]]):
    """For how many seconds a topic keeps a record (None: for ever), by its name; empty where it cannot be read."""

    topic: str

    @classmethod
    def ask_all(cls, reach: KafkaReach, questions: Sequence[Any]) -> Answers:
        from mm2mgr.kafka.inspection import retention

        seconds = retention(reach.kafka, {question.topic for question in questions})
        return {
            question: {question.topic: seconds[question.topic]} if question.topic in seconds else {}
            for question in questions
        }


@dataclass(frozen=True)
class RecordTimes(KafkaQuestion[dict[TopicPartition, float]]):
    """When the first record at or after each offset was written, in seconds since 1970; late ones are left out."""

    positions: tuple[tuple[TopicPartition, int], ...]

    def ask(self, reach: KafkaReach) -> dict[TopicPartition, float]:
        from mm2mgr.kafka.records import written_at

        return written_at(reach.access, dict(self.positions), reach.limits.measuring_seconds)


@dataclass(frozen=True)
class RecordlessEnds(KafkaQuestion[frozenset[TopicPartition]]):
    """Which partitions have no record from an offset on, only such as markers of transactions: read to their ends.

    `committed`: records of open and aborted transactions are none.
    """

    positions: tuple[tuple[TopicPartition, int], ...]
    committed: bool = False

    def ask(self, reach: KafkaReach) -> frozenset[TopicPartition]:
        from mm2mgr.kafka.records import without_records

        positions, seconds = dict(self.positions), reach.limits.measuring_seconds
        return frozenset(without_records(reach.access, positions, seconds, committed=self.committed))


class NewestRecord(TopicQuestion[float | None]):
    """The largest timestamp in a topic, in seconds since 1970; None where it is empty or its brokers do not tell."""

    @classmethod
    def ask_all(cls, reach: KafkaReach, questions: Sequence[Any]) -> Answers:
        from mm2mgr.kafka.records import newest_record_at

        newest: dict[str, float] = {}
        for partition, at in newest_record_at(reach.kafka, cls.all_partitions(questions)).items():
            newest[partition.topic] = max(at, newest.get(partition.topic, at))
        return {question: newest.get(question.topic) for question in questions}


# --- consumer groups, and what else a failover needs ------------------------------------------------------------------


class GroupMembers(KafkaQuestion[dict[str, GroupState]]):
    """The consumer groups that mm2mgr's login may see, each with its state, which tells whether it has members."""

    def ask(self, reach: KafkaReach) -> dict[str, GroupState]:
        from mm2mgr.kafka.groups import group_states

        return group_states(reach.kafka)


@dataclass(frozen=True)
class MemberCounts(KafkaQuestion[dict[str, int]]):
    """How many members each of these groups has; absent: a group that mm2mgr's login may not describe."""

    groups: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> dict[str, int]:
        from mm2mgr.kafka.groups import member_counts

        with reach.connect(reach.limits.measuring_seconds) as kafka:
            return member_counts(kafka, self.groups)


@dataclass(frozen=True)
class CommittedOffsets(KafkaQuestion[GroupOffsets]):
    """The next offset that each of these groups reads, by partition, and the groups that may not be read."""

    groups: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> GroupOffsets:
        from mm2mgr.kafka.groups import group_offsets

        with reach.connect(reach.limits.measuring_seconds) as kafka:
            return group_offsets(kafka, self.groups)


@dataclass(frozen=True)
class SettingsOfTopics(KafkaQuestion[dict[str, TopicSettings]]):
    """The settings of topics; absent: there is no such topic, or its settings may not be read."""

    topics: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> dict[str, TopicSettings]:
        from mm2mgr.kafka.inspection import topic_configs

        return topic_configs(reach.kafka, self.topics)


@dataclass(frozen=True)
class RefusedTopics(KafkaQuestion[tuple[str, ...]]):
    """Which of some topics mm2mgr's login may not describe, whether or not they exist."""

    topics: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> tuple[str, ...]:
        from mm2mgr.kafka.inspection import refused_topics

        return refused_topics(reach.kafka, self.topics)


class ClusterAcls(KafkaQuestion[tuple[Acl, ...] | None]):
    """All ACLs of a cluster, none where its brokers have no authorizer; None where mm2mgr's login may not read them."""

    def ask(self, reach: KafkaReach) -> tuple[Acl, ...] | None:
        from mm2mgr.kafka.inspection import cluster_acls

        return cluster_acls(reach.kafka)


@dataclass(frozen=True)
class RecordMarks(KafkaQuestion[dict[RecordPlace, tuple[RecordMark, ...]]]):
    """Digests of the records at some places, those of aborted transactions too; late ones are left out."""

    places: tuple[RecordPlace, ...]

    def ask(self, reach: KafkaReach) -> dict[RecordPlace, tuple[RecordMark, ...]]:
        from mm2mgr.kafka.groups import record_marks

        return record_marks(reach.access, self.places, reach.limits.measuring_seconds)


# --- what MirrorMaker keeps in topics of its own ----------------------------------------------------------------------


@dataclass(frozen=True)
class OffsetSyncRecords(KafkaQuestion[OffsetSyncLog]):
    """The offset syncs in a topic, which is on the source unless `offset-syncs.topic.location` is target."""

    topic: str

    def ask(self, reach: KafkaReach) -> OffsetSyncLog:
        from mm2mgr.live.internal_topics import read_internal

        return collect_offset_syncs(read_internal(reach, self.topic))


@dataclass(frozen=True)
class CheckpointRecords(KafkaQuestion[CheckpointLog]):
    """The newest checkpoints in a topic, which is on the target."""

    topic: str

    def ask(self, reach: KafkaReach) -> CheckpointLog:
        from mm2mgr.live.internal_topics import read_internal

        return collect_checkpoints(read_internal(reach, self.topic))

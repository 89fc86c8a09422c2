"""One Kafka cluster as its brokers show it: topics, log ends, settings, groups, and the questions for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from mm2mgr.errors import Failure, KafkaSilence, Mm2mgrError
from mm2mgr.kafka.acls import Acl, TopicSettings
from mm2mgr.live.dedicated import DedicatedMirrorMaker, find_running
from mm2mgr.live.questions import KafkaQuestion, PartitionCounts, TopicLogs
from mm2mgr.live.reach import KafkaReach
from mm2mgr.live.snapshot import Steps
from mm2mgr.partitions import Offsets, TopicPartition

if TYPE_CHECKING:
    from mm2mgr.kafka.client import Kafka

_PROBE_SECONDS = 3.0
T = TypeVar("T")
N = TypeVar("N", bound=Collection[str])


@dataclass(frozen=True)
class RunningKafka:
    """A Kafka cluster as its brokers show it: partitions per topic, and topic ids (Kafka 2.8 or newer); log start and
    end of the partitions asked for (`status` has a start only of topics that flows read from it, else 0), and why
    others are unread; settings and literal ACLs of the topics, and committed offsets of the groups asked for, that this
    login may read. `failure`: why nothing of it could be read.

    `dedicated`: the dedicated MirrorMakers that write to it, by the alias of their source. `later_ends`: log ends that
    were read again after all clusters. `recordless`: the partitions that have no record between two wanted offsets.
    `cluster_id`: "" where it is not known. `ids_unread`: no broker gave ids in time, so a topic that was created again
    cannot be told from the one before.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    failure: Failure | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, TopicSettings] = field(default_factory=dict)
    acls: Mapping[str, frozenset[Acl]] = field(default_factory=dict)
    group_offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    dedicated: Mapping[str, DedicatedMirrorMaker] = field(default_factory=dict)
    later_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    cluster_id: str = ""
    ids_unread: bool = False
    recordless: frozenset[TopicPartition] = frozenset()

    @cached_property
    def records(self) -> Counter[str]:
        """How many records are in the logs of each topic whose offsets were read."""
        return self._sums(lambda log: log.end - log.start)

    @cached_property
    def log_ends(self) -> Counter[str]:
        """The sum of their end offsets: above zero, a topic has had records, whether or not they are still there."""
        return self._sums(lambda log: log.end)

    def _sums(self, count: Callable[[Offsets], int]) -> Counter[str]:
        sums = Counter[str]()
        for partition, log in self.offsets.items():
            sums[partition.topic] += count(log)
        return sums


def list_topics(filters: Mapping[str, Callable[[str], bool]]) -> Steps[dict[str, RunningKafka]]:
    """Return Kafka clusters by alias with their topics, and the offsets of those that its filter takes."""
    snapshot = yield [PartitionCounts(alias) for alias in filters]
    questions = [
        TopicLogs(alias, topic, count)
        for alias, takes in filters.items()
        if not isinstance(topics := snapshot.get(PartitionCounts(alias)), Mm2mgrError)
        for topic, count in topics.items()
        if takes(topic)
    ]
    snapshot = yield questions
    asked = {*questions, *snapshot.answers}

    def cluster(alias: str) -> RunningKafka:
        try:
            topics = snapshot[PartitionCounts(alias)]
            logs = (TopicLogs(alias, topic, count) for topic, count in topics.items())
            # A file may lack what a changed tree asks for: that is unknown, not a topic without records.
            parts = [snapshot[log] for log in logs if log in asked]
        except Mm2mgrError as error:
            return RunningKafka(failure=Failure.from_error(error))
        return RunningKafka(topics, {partition: log for part in parts for partition, log in part.items()})

    return {alias: cluster(alias) for alias in filters}


def no_topic(_: str) -> bool:
    """Want none."""
    return False


@dataclass(frozen=True)
class WantedLogs:
    """What to read of a cluster: topics that flows mirror from it, whose ids count too; topics that flows mirror to it;
    names of topics whose settings or ACLs are wanted; consumer groups whose committed offsets are; aliases of the
    sources that a dedicated MirrorMaker may mirror from. With `ends`, the ends of these partitions and nothing else;
    with `between` whether there are records from an offset of a partition on to another, and nothing else (`committed`:
    such as readers of committed records get); with `is_probe` nothing but whether it answers. Both have little time.
    """

    away: Callable[[str], bool] = field(default=no_topic, compare=False)
    here: Callable[[str], bool] = field(default=no_topic, compare=False)
    configs: frozenset[str] = frozenset()
    acls: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    dedicated: tuple[str, ...] = ()
    ends: tuple[TopicPartition, ...] = ()
    between: tuple[tuple[TopicPartition, int, int], ...] = ()
    committed: bool = False
    is_probe: bool = field(default=False, compare=False)

    def __call__(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions whose offsets are wanted; topics with their numbers of partitions."""
        names = (topic for topic in topics if self.away(topic) or self.here(topic))
        return [TopicPartition(name, number) for name in names for number in range(topics[name])]


def read_kafka(reach: KafkaReach, part: WantedLogs) -> RunningKafka:
    """Read one Kafka cluster's topics, and the offsets of some of their partitions. Blocks; raises Mm2mgrError."""
    from mm2mgr.kafka.inspection import committed_offsets, topic_acls, topic_configs
    from mm2mgr.kafka.records import read_logs

    if part.is_probe:
        with reach.connect(_PROBE_SECONDS) as probe:
            return RunningKafka(cluster_id=probe.identity(while_down=False)[0])
    if part.between:
        return RunningKafka(recordless=frozenset(_recordless(reach, part)))
    kafka = reach.kafka
    if part.ends:
        return RunningKafka(offsets=read_logs(kafka, part.ends, ()).found)
    topics, cluster_id = kafka.counts_with_id()
    away = set(filter(part.away, topics))
    logs = read_logs(kafka, part(topics), away)
    ids = _topic_ids(kafka, away)
    return RunningKafka(
        topics,
        logs.found,
        logs.failed,
        topic_ids=ids or {},
        ids_unread=ids is None,
        configs=_if_readable(topic_configs, kafka, part.configs & topics.keys()),
        acls=_if_readable(topic_acls, kafka, part.acls & topics.keys()),
        group_offsets=_if_readable(committed_offsets, kafka, part.groups),
        dedicated=_if_readable(lambda _, names: find_running(reach, names, topics), kafka, part.dedicated),
        cluster_id=cluster_id,
    )


def _recordless(reach: KafkaReach, part: WantedLogs) -> set[TopicPartition]:
    from mm2mgr.kafka.records import read_logs, without_records

    begins = {partition: begin for partition, begin, _ in part.between}
    if part.committed:  # what an open transaction has may be committed yet
        stable = read_logs(reach.kafka, list(begins), (), committed=True).found
        ends = {partition: log.end for partition, log in stable.items()}
        begins = {partition: begin for partition, begin, end in part.between if ends.get(partition, -1) >= end}
    return without_records(reach.access, begins, _PROBE_SECONDS, committed=part.committed) if begins else set()


def _topic_ids(kafka: Kafka, topics: Collection[str]) -> dict[str, str] | None:
    """Return the ids of topics; None where no broker gave them in time, as lag and progress do not need them."""
    try:
        return kafka.topic_ids(topics)
    except KafkaSilence:
        return None


def _if_readable(read: Callable[[Kafka, N], Mapping[str, T]], kafka: Kafka, names: N) -> Mapping[str, T]:
    """Return what is read by these names; nothing where that fails, as lag and progress do not need it."""
    try:
        return read(kafka, names) if names else {}
    except Mm2mgrError:
        return {}


ReadKafka = Callable[[KafkaReach, WantedLogs], RunningKafka]


@dataclass(frozen=True)
class KafkaState(KafkaQuestion[RunningKafka]):
    """The wanted part of a Kafka cluster's state; `how` reads it."""

    wanted: WantedLogs
    how: ReadKafka = field(default=read_kafka, compare=False)

    def as_stored(self) -> KafkaState:
        """Return it without what only narrows it: a file has the state of all that was wanted."""
        return KafkaState(self.cluster, WantedLogs(ends=self.wanted.ends, between=self.wanted.between))

    def ask(self, reach: KafkaReach) -> RunningKafka:
        return self.how(reach, self.wanted)


@dataclass(frozen=True)
class KafkaProbe(KafkaQuestion[RunningKafka]):
    """Whether a Kafka cluster answers at all; nothing of it is read."""

    how: ReadKafka = field(default=read_kafka, compare=False)

    def ask(self, reach: KafkaReach) -> RunningKafka:
        return self.how(reach, WantedLogs(is_probe=True))

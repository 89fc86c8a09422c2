"""What is wrong although connectors and tasks run: by what arrives on the target, not by states. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from shlex import quote

from mm2mgr.observe.beside_records import COPIED, checkpointing
from mm2mgr.observe.interruptions import InterruptionCounts
from mm2mgr.observe.memory import Unarrived
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.flows import no_progress
from mm2mgr.problems.kind import (
    NAMED,
    ConnectorCase,
    FlowCase,
    LiveProblem,
    ProblemEvidence,
    companion_rule,
    flow_rule,
    kind,
    name_some,
)
from mm2mgr.text import span_text
from mm2mgr.topics.names import HEARTBEATS

_HEARTBEAT_INTERVALS = 5  # a rebalance or a slow broker may cost some of them
_CHECKPOINT_INTERVALS = 2


@dataclass(frozen=True)
class _TargetTopics(ProblemEvidence):
    topics: tuple[str, ...]
    "the first of them, by their names on the target"
    topic_count: int
    "how many there are"
    source: str
    "alias of the source"
    target: str
    "alias of the target"

    @property
    def some_topics(self) -> str:
        return name_some(self.topics, "topic", self.topic_count)


def _topics(case: FlowCase, topics: Iterable[str]) -> tuple[tuple[str, ...], int, str, str]:
    """Return the fields of `_TargetTopics`."""
    names = sorted(case.flow.remote_topic(topic) for topic in topics)
    return tuple(names[:NAMED]), len(names), case.flow.source.alias, case.flow.target.alias


# --- records of a flow ------------------------------------------------------------------------------------------------


@kind("arrives-twice", "critical", 0)
class ArrivesTwice(_TargetTopics):
    """More records arrived in topics on the target than the source had for them, look after look, and more than one
    restart of workers sends again; a problem until an hour after the last of them. Not judged where other flows of the
    tree write to the same topics, where the flow silences `overlap`, with another replication policy than the default
    one, with transforms, with acks of 0 or 1, or where workers do not tell whether they are exactly-once, or tell
    otherwise than the tree declares. Offsets of the source that are no records, as the markers of transactions, hide as
    many.
    """

    records: int
    "how many of them arrived twice, at least"
    one_task: bool
    "whether all of them are of one task, while other tasks mirror each record once"
    exactly_once: bool
    "whether the workers write with transactions, whose markers are not counted"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr who {quote(self.topics[0])}"

    def sentence(self, problem: LiveProblem) -> str:
        fact = (
            f"at least {self.records} records arrived twice in {self.some_topics} on {self.target} in the last"
            f" {span_text(problem.seconds)}: more than {self.source} had for them, and more than one restart of workers"
            " sends again"
        )
        if self.one_task:
            return (
                f"{fact}; all are of {problem.tasks}, and other tasks mirror each record once: two workers may run it,"
                " which Connect's status does not show; look for a worker that the others lost and that still runs, and"
                " stop it"
            )
        return (
            f"{fact}; look for a second mirror of these topics that mm2mgr cannot see (another Connect cluster, a"
            " dedicated MirrorMaker under another alias), for a producer that writes to them, for a worker that the"
            " others lost and that still runs, or for workers that die again and again"
        )


@flow_rule
def arrives_twice(case: FlowCase) -> Iterator[LiveProblem]:
    now, surplus = case.reading.taken_at, case.flow_memory.surplus
    twice = {
        TopicPartition(topic, number): place
        for topic, places in surplus.items()
        for number, place in places.items()
        if place.is_news(now)
    }
    if twice:
        task = _only_task(case, twice)
        evidence = ArrivesTwice(
            *_topics(case, {partition.topic for partition in twice}),
            records=sum(place.records for place in twice.values()),
            one_task=task is not None,
            exactly_once=bool(case.exactly_once),
        )
        since = max(0.0, now - min(place.began_at for place in twice.values()))
        yield case.problem(evidence, since=since, tasks=() if task is None else (task,))


def _only_task(case: FlowCase, twice: Collection[TopicPartition]) -> int | None:
    """Return the task of all these partitions, where all that it has mirrored since came twice, and of no other.

    Two workers may run it: Connect's status has one worker per task, whoever else still runs it, and its consumer is in
    no group.
    """
    tasks = {case.lag.assignment.task_of.get(partition) for partition in twice}
    task = tasks.pop()
    surplus = case.flow_memory.surplus
    began_at = min(surplus[topic][number].began_at for topic, number in twice)
    moved: dict[int | None, list[bool]] = {}
    for topic, places in surplus.items():
        for number, place in places.items():
            if place.moved_at >= began_at:
                moved.setdefault(case.lag.assignment.task_of.get(TopicPartition(topic, number)), []).append(
                    place.limit is not None
                )
    others = [is_twice for other, are_twice in moved.items() if other != task for is_twice in are_twice]
    return None if tasks or not others or any(others) or not all(moved.get(task, ())) else task


@kind("target-topic-missing", "critical", 2)
class TargetTopicMissing(_TargetTopics):
    """Tasks have topics that the target does not, and records wait, for longer than the refresh interval."""

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.some_topics} not seen on {self.target} for {span_text(problem.seconds)} while records wait: check"
            " that the topic was not deleted, that the workers' login may create it and mm2mgr's may describe it, and"
            f" that the connector's producer writes to {self.target}"
        )


@flow_rule
def target_topic_missing(case: FlowCase) -> Iterator[LiveProblem]:
    """A new topic is created at the next refresh."""
    waiting = {partition.partition.topic for partition in case.lag.counted_partitions if partition.lag_records > 1}
    waiting -= _written_elsewhere(case).keys()
    late = {topic: seconds for topic, seconds in _late(case, lambda count: count == 0).items() if topic in waiting}
    if late:
        yield case.problem(TargetTopicMissing(*_topics(case, late)), since=max(late.values()))


@kind("target-partitions-fewer", "critical", 2)
class TargetPartitionsFewer(_TargetTopics):
    """Topics on the target have fewer partitions than on the source for longer than the refresh interval."""

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.some_topics} with fewer partitions on {self.target} than on {self.source} for"
            f" {span_text(problem.seconds)}, longer than the refresh interval: check that the workers' login may alter"
            f" them on {self.target}, or add the partitions yourself; the records of the missing ones cannot arrive"
        )


@flow_rule
def target_partitions_fewer(case: FlowCase) -> Iterator[LiveProblem]:
    """Where no refresh adds the partitions, their records never arrive."""
    if late := _late(case, lambda count: count > 0):
        yield case.problem(TargetPartitionsFewer(*_topics(case, late)), since=max(late.values()))


def _late(case: FlowCase, with_count: Callable[[int], bool]) -> dict[str, float]:
    """Return topics with too few partitions (so many) on the target for longer than a refresh takes, with seconds."""
    if case.state != "RUNNING":
        return {}
    topics = [topic for topic, count in (case.lag.short or {}).items() if with_count(count)]
    clocks = {topic: case.flow_memory.short.get(topic) for topic in topics}
    limit = case.flow.settings.refresh_interval + case.patience.no_progress_seconds
    return {topic: clock.seconds for topic, clock in clocks.items() if clock and clock.seconds > limit}


@kind("records-not-on-target", "critical", 0)
class RecordsNotOnTarget(_TargetTopics):
    """Stored offsets advance, look after look, while nothing arrives in the topics on the target."""

    records: int
    "how many are mirrored by the stored offsets and not there, at least"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.records} records are mirrored, as the stored offsets say, but nothing arrived in {self.some_topics}"
            f" on {self.target} for {span_text(problem.seconds)}: the connector writes to another Kafka cluster; run"
            " mm2mgr check, compare bootstrap.servers of the workers and producer.override.bootstrap.servers with those"
            f" of {self.target}, and check that mm2mgr's login may describe the topics there"
        )


@flow_rule
def records_not_on_target(case: FlowCase) -> Iterator[LiveProblem]:
    """The remote topics do not grow or are not there: the records go elsewhere."""
    if lost := _written_elsewhere(case):
        seconds = max(topic.clock.seconds for topic in lost.values() if topic.clock)
        records = sum(topic.records for topic in lost.values())
        yield case.problem(RecordsNotOnTarget(*_topics(case, lost), records), since=seconds)


def _written_elsewhere(case: FlowCase) -> dict[str, Unarrived]:
    """Return the topics whose stored offsets advance without a record on the target.

    Only a record that a task has handed over moves its stored offset: transaction markers, aborted transactions and
    what compaction removed do not. Transforms may drop records, and so do tolerated errors, and a replication policy
    that is not known here gives other names: such flows are left out. Two advances, since one may be a reset.
    """
    config = case.connector.running.config if case.connector.running else {}
    drops = config.get("transforms") or config.get("errors.tolerance", "none") != "none"
    if drops or case.flow.selection.policy is None:
        return {}
    limit = case.patience.not_on_target_seconds
    return {
        topic: unarrived
        for topic, unarrived in case.flow_memory.unarrived.items()
        if unarrived.advances > 1
        and unarrived.clock
        and not unarrived.clock.paused
        and unarrived.clock.seconds >= limit
    }


@kind("slower-than-production")
class SlowerThanProduction(ProblemEvidence):
    """Tasks mirror, but the lag has grown for a quarter of an hour: records are produced faster."""

    produced_records_per_second: float
    "since the lag began to grow"
    mirrored_records_per_second: float
    "in the same time"
    grown_records: int
    "by how much the lag grew meanwhile"
    lag_records: int
    "records that wait"
    interruptions: InterruptionCounts = InterruptionCounts()
    "assignment changes and failures in the last hour"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr lag {problem.argument} --by task"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"the lag has grown for {span_text(problem.seconds)}, by {self.grown_records} to {self.lag_records}"
            f" records: {self.produced_records_per_second:.0f} records/s are produced and"
            f" {self.mirrored_records_per_second:.0f} mirrored{self.interruptions.as_cause}; find the slow tasks with"
            f" {problem.command}, and the tasks that it needs with mm2mgr size"
        )


@flow_rule
def slower_than_production(case: FlowCase) -> Iterator[LiveProblem]:
    """Every task mirrors; where one does not, that is another problem. What is held makes the lag grow by itself."""
    status, trend, waiting = case.connector.status, case.trend, case.lag.total_records
    if status is None or not status.runs or not waiting or not case.marks or any(no_progress(case)):
        return
    if case.lag.defects.held:
        return
    if trend is None or trend.direction != "growing" or trend.seconds < case.patience.slower_seconds:
        return
    net, produced, mirrored = trend.net, trend.produced, trend.mirrored
    if net and produced and mirrored and net.mean > net.error and mirrored.mean > mirrored.error:
        evidence = SlowerThanProduction(produced.mean, mirrored.mean, trend.records, waiting, case.last_hour)
        yield case.problem(evidence, since=trend.seconds)


# --- settings and ACLs of topics --------------------------------------------------------------------------------------


@kind("topic-configs-differ")
class TopicConfigsDiffer(_TargetTopics):
    """Settings of topics have not reached the target for longer than the connector's interval and a minute. Seen only
    where mm2mgr's own login has DescribeConfigs on the topics of both clusters.
    """

    settings: tuple[str, ...]
    "names of the first settings"
    interval_seconds: float
    "its sync.topic.configs.interval.seconds"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.some_topics} on {self.target} without the {name_some(self.settings, 'setting')} that {self.source}"
            f" has, for {span_text(problem.seconds)} (copied every {span_text(self.interval_seconds)}): check that the"
            f" workers' login may alter configs on {self.target} and that its brokers take them all, as one that they"
            " refuse holds up the whole topic; the workers' log has 'Could not alter configuration of topic';"
            " config.properties.exclude names what shall differ"
        )


@kind("topic-acls-differ")
class TopicAclsDiffer(_TargetTopics):
    """ACLs that MirrorMaker copies from topics of the source have not reached the target for longer than the
    connector's interval and a minute. Seen only where the flow copies them and mm2mgr's own login has Describe on both
    clusters.
    """

    acls: tuple[str, ...]
    "the first ACLs, as they would be on the target"
    interval_seconds: float
    "its sync.topic.acls.interval.seconds"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.some_topics} on {self.target} without the {name_some(self.acls, 'ACL')} that MirrorMaker copies"
            f" from {self.source}, for {span_text(problem.seconds)} (copied every {span_text(self.interval_seconds)}):"
            f" check that {self.target} has an authorizer, and that the workers' login has Describe on cluster"
            f" {self.source} and Alter on cluster {self.target}; the workers' log has 'Could not sync ACL of topic' or"
            " 'trying to describe ACLs'"
        )


@flow_rule
def topic_copies_differ(case: FlowCase) -> Iterator[LiveProblem]:
    """What has not reached the target for longer than the connector takes from one round to the next."""
    for copied, evidence in (("configs", TopicConfigsDiffer), ("acls", TopicAclsDiffer)):
        look, sync = case.memory.copied.get(copied, {}).get(case.flow.id), COPIED[copied].sync(case.connector)
        if look is None or sync is None:
            continue
        limit = sync.interval_seconds + case.patience.not_synced_seconds
        late = [
            (topic, setting, clock.seconds)
            for topic, clocks in look.missing.items()
            for setting, clock in clocks.items()
            if clock.seconds > limit and not clock.paused
        ]
        if late:
            missing = tuple(sorted({COPIED[copied].name(setting) for _, setting, _ in late})[:NAMED])
            topics = _topics(case, {topic for topic, _, _ in late})
            longest = max(seconds for _, _, seconds in late)
            yield case.problem(evidence(*topics, missing, sync.interval_seconds), since=longest)


# --- companion connectors ---------------------------------------------------------------------------------------------


@kind("heartbeats-not-emitted")
class HeartbeatsNotEmitted(ProblemEvidence):
    """A heartbeat connector's task runs, but no heartbeat came for several intervals and at least a minute."""

    cluster: str
    "alias of the cluster that it writes to"
    topic: str
    "the topic there"
    interval_seconds: float
    "its emit.heartbeats.interval.seconds"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"RUNNING, but no heartbeat has arrived in {self.topic} on {self.cluster} for {span_text(problem.seconds)}"
            f" (one is due every {span_text(self.interval_seconds)}): check that the connector's"
            f" producer.override.bootstrap.servers is {self.cluster}, that its login may write the topic, and"
            " the workers' log"
        )


@companion_rule
def heartbeats_not_emitted(case: ConnectorCase) -> Iterator[LiveProblem]:
    """Its topic does not grow: it writes elsewhere, or cannot write.

    Other pairs may write to the same topic, so growth proves nothing of this connector; no growth proves that none
    arrives.
    """
    beats, every = (
        case.memory.beats.get(case.connector.key),
        case.connector.number("emit.heartbeats.interval.seconds", 1),
    )
    if beats is None or beats.clock.paused or every is None:
        return
    if beats.clock.seconds >= max(case.patience.no_heartbeat_seconds, _HEARTBEAT_INTERVALS * every):
        cluster = case.connector.desired.config["target.cluster.alias"]
        yield case.problem(HeartbeatsNotEmitted(cluster, HEARTBEATS, every), since=beats.clock.seconds)


@dataclass(frozen=True)
class _Groups(ProblemEvidence):
    groups: tuple[str, ...]
    "the first of them"
    group_count: int
    "how many there are"
    source: str
    "alias of the source"
    target: str
    "alias of the target"

    @property
    def some_groups(self) -> str:
        return name_some(self.groups, "consumer group", self.group_count)


def _groups(case: ConnectorCase, groups: Iterable[str]) -> tuple[tuple[str, ...], int, str, str]:
    """Return the fields of `_Groups`."""
    names, config = tuple(groups), case.connector.desired.config
    return names[:NAMED], len(names), config["source.cluster.alias"], config["target.cluster.alias"]


@kind("checkpoints-not-emitted")
class CheckpointsNotEmitted(_Groups):
    """No checkpoint has been written for longer than two of the connector's intervals and a minute, although consumer
    groups have read on by more than offset.lag.max mirrored records. Seen only where mm2mgr's own login may describe
    the groups.
    """

    topic: str
    "the topic on the target"
    interval_seconds: float
    "its emit.checkpoints.interval.seconds"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"no checkpoint has been written to {self.topic} on {self.target} for {span_text(problem.seconds)} since"
            f" {self.some_groups} read on (one is due every {span_text(self.interval_seconds)}), so consumers that move"
            f" to {self.target} would read records again: check that the connector's"
            f" producer.override.bootstrap.servers is {self.target}, that the workers' logins may write the topics of"
            " checkpoints and of offset syncs, and the workers' log"
        )


@companion_rule
def checkpoints_not_emitted(case: ConnectorCase) -> Iterator[LiveProblem]:
    """Its tasks run, and its topic does not grow although groups must have got a checkpoint."""
    does, look = checkpointing(case.connector), case.memory.checkpoints.get(case.connector.key)
    if does is None or look is None or look.owed is None or look.owed.paused:
        return
    if look.owed.seconds >= _CHECKPOINT_INTERVALS * does.interval_seconds + case.patience.no_checkpoint_seconds:
        topic = case.reading.topic_of(case.connector)
        evidence = CheckpointsNotEmitted(*_groups(case, look.owed_groups), topic, does.interval_seconds)
        yield case.problem(evidence, since=look.owed.seconds)


@dataclass(frozen=True)
class RewoundOffset:
    """A group's offset in a partition of the source, on the target now and before."""

    group: str
    partition: str
    offset: int
    before: int


@kind("group-offsets-rewound")
class GroupOffsetsRewound(_Groups):
    """Offsets of consumer groups went back on the target although they did not on the source; a problem until they are
    where they were. Seen only where group offsets are synced and mm2mgr's own login may describe the groups.
    """

    offsets: tuple[RewoundOffset, ...]
    "the first of them: group, partition on the source, offset on the target now and before"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr failover check {quote(f'{self.source}->{self.target}')}"

    def sentence(self, problem: LiveProblem) -> str:
        first = self.offsets[0]
        return (
            f"offsets of {self.some_groups} went back on {self.target} and not on {self.source} ({first.group},"
            f" {first.partition}: {first.before} to {first.offset}): consumers there read records again; they were"
            " reset by hand, or by MirrorMaker (KAFKA-19794)"
        )


@companion_rule
def group_offsets_rewound(case: ConnectorCase) -> Iterator[LiveProblem]:
    """Their records would be read again (KAFKA-19794)."""
    look = case.memory.checkpoints.get(case.connector.key)
    rewound = [
        (RewoundOffset(group, partition, offset.target, offset.before), offset.rewound_at)
        for group, places in (look.synced if look else {}).items()
        for partition, offset in places.items()
        if offset.before is not None
    ]
    if rewound:
        groups = _groups(case, sorted({offset.group for offset, _ in rewound}))
        evidence = GroupOffsetsRewound(*groups, tuple(offset for offset, _ in rewound[:NAMED]))
        yield case.problem(evidence, since=case.reading.taken_at - min(rewound_at for _, rewound_at in rewound))

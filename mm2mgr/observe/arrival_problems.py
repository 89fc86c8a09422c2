"""What is wrong although connectors and tasks run: problems from what arrives, not from states. Pure.

The same kind of rules as in `problems`: of a flow's records, of the settings and ACLs that it copies, of the offsets
that Connect stores, and of companion connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mm2mgr.json_values import to_json
from mm2mgr.observe.companions import Beats, CheckpointLook, checkpointing
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.observe.memory import Memory, SyncLook, Unarrived
from mm2mgr.observe.problems import ConnectorCase, FlowCase, no_progress
from mm2mgr.observe.reading import Reading
from mm2mgr.observe.topic_sync import COPIED
from mm2mgr.partitions import TopicPartition
from mm2mgr.topics.names import HEARTBEATS

_NAMED = 20  # topics, settings, groups or offsets of one problem
_HEARTBEAT_INTERVALS = 5  # a rebalance or a slow broker may cost some of them
_CHECKPOINT_INTERVALS = 2


# --- records, settings and ACLs of a flow -----------------------------------------------------------------------------


def target_topic_missing(case: FlowCase) -> Iterator[LiveProblem]:
    """Topics that tasks have and the target does not, while records wait; a new one is created at the next refresh."""
    waiting = {
        partition.partition.topic for partition in case.lag.counted if partition.lag_records > 1
    } - _written_elsewhere(case).keys()
    late = {topic: seconds for topic, seconds in _late(case, lambda count: count == 0).items() if topic in waiting}
    if late:
        yield _topics_problem(case, "target-topic-missing", late, max(late.values()))


def target_partitions_fewer(case: FlowCase) -> Iterator[LiveProblem]:
    """Target topics with fewer partitions than their source's: where no refresh adds them, their records never
    arrive.
    """
    late = _late(case, lambda count: count > 0)
    if late:
        yield _topics_problem(case, "target-partitions-fewer", late, max(late.values()))


def records_not_on_target(case: FlowCase) -> Iterator[LiveProblem]:
    """Records that are mirrored by the stored offsets while the remote topics do not grow or are not there: they go
    elsewhere.
    """
    lost = _written_elsewhere(case)
    if lost:
        seconds = max(topic.clock.seconds for topic in lost.values() if topic.clock)
        records = {"records": sum(topic.records for topic in lost.values())}
        yield _topics_problem(case, "records-not-on-target", lost, seconds, records)


def arrives_twice(case: FlowCase, reading: Reading) -> Iterator[LiveProblem]:
    """Records that arrived more often than the source had them."""
    twice = {
        topic: certain
        for topic, places in case.kept.surplus.items()
        if (certain := {number: surplus for number, surplus in places.items() if surplus.is_news(reading.taken_at)})
    }
    if twice:
        surpluses = [surplus for places in twice.values() for surplus in places.values()]
        task = _only_task(case, {TopicPartition(topic, number) for topic in twice for number in twice[topic]})
        more = {
            "records": sum(surplus.records for surplus in surpluses),
            "one_task": task is not None,
            "exactly_once": bool(case.exactly_once),
        }
        since = min(surplus.began_at for surplus in surpluses)
        problem = _topics_problem(case, "arrives-twice", twice, max(0.0, reading.taken_at - since), more)
        yield replace(problem, subject=replace(problem.subject, tasks=() if task is None else (task,)))


def slower_than_production(case: FlowCase) -> Iterator[LiveProblem]:
    """A lag that grows for long while every task mirrors; where one does not, that is another problem."""
    status, trend = case.seen.status, case.trend
    if status is None or not status.runs or not case.lag.total_records or not case.marks or any(no_progress(case)):
        return
    if trend is None or trend.direction != "growing" or trend.seconds < case.patience.slower_seconds:
        return
    net, produced, mirrored = trend.net, trend.produced, trend.mirrored
    if net and produced and mirrored and net.mean > net.error and mirrored.mean > mirrored.error:
        evidence = {
            "produced_records_per_second": produced.mean,
            "mirrored_records_per_second": mirrored.mean,
            "grown_records": trend.records,
            "lag_records": case.lag.total_records,
        }
        yield case.problem("slower-than-production", evidence, since=trend.seconds)


def not_copied(case: FlowCase, looks: Mapping[str, Mapping[str, SyncLook]]) -> Iterator[LiveProblem]:
    """Settings and ACLs of topics that have not reached the target for longer than the connector takes from one round
    to the next.
    """
    for kind, copied in COPIED.items():
        look, sync = looks.get(kind, {}).get(case.flow.id), copied.sync(case.seen)
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
            missing = sorted({copied.name(setting) for _, setting, _ in late})[:_NAMED]
            more = {copied.evidence: missing, "interval_seconds": sync.interval_seconds}
            longest = max(seconds for _, _, seconds in late)
            yield _topics_problem(case, f"topic-{kind}-differ", {topic for topic, _, _ in late}, longest, more)


def flow_arrival_problems(case: FlowCase, reading: Reading, memory: Memory) -> tuple[LiveProblem, ...]:
    """Return the problems of what arrives of a flow."""
    return (
        *arrives_twice(case, reading),
        *target_topic_missing(case),
        *target_partitions_fewer(case),
        *records_not_on_target(case),
        *slower_than_production(case),
        *not_copied(case, memory.copied),
    )


def _written_elsewhere(case: FlowCase) -> dict[str, Unarrived]:
    """Return the topics whose stored offsets advance without a record on the target.

    Only a record that a task has handed over moves its stored offset: transaction markers, aborted transactions and
    what compaction removed do not. Transforms may drop records, and so do tolerated errors, and a replication policy
    that is not known here gives other names: such flows are left out. Two advances, since one may be a reset.
    """
    config = case.seen.running.config if case.seen.running else {}
    drops = config.get("transforms") or config.get("errors.tolerance", "none") != "none"
    if drops or case.flow.selection.policy is None:
        return {}
    limit = case.patience.not_on_target_seconds
    return {
        topic: unarrived
        for topic, unarrived in case.kept.unarrived.items()
        if unarrived.advances > 1
        and unarrived.clock
        and not unarrived.clock.paused
        and unarrived.clock.seconds >= limit
    }


def _only_task(case: FlowCase, twice: Collection[TopicPartition]) -> int | None:
    """Return the task that all these partitions are of, where all that it has mirrored since came twice, and nothing of
    others.

    Two workers may run it: Connect's status has one worker per task, whoever else still runs it, and its consumer is in
    no group.
    """
    tasks = {case.lag.tasks.get(partition) for partition in twice}
    task = tasks.pop()
    began_at = min(case.kept.surplus[topic][number].began_at for topic, number in twice)
    moved: dict[int | None, list[bool]] = {}
    for topic, places in case.kept.surplus.items():
        for number, surplus in places.items():
            if surplus.moved_at >= began_at:
                moved.setdefault(case.lag.tasks.get(TopicPartition(topic, number)), []).append(
                    surplus.limit is not None
                )
    others = [is_twice for other, are_twice in moved.items() if other != task for is_twice in are_twice]
    return None if tasks or not others or any(others) or not all(moved.get(task, ())) else task


def _late(case: FlowCase, with_count: Callable[[int], bool]) -> dict[str, float]:
    """Return topics of which the target has too few partitions (so many) for longer than a refresh takes, with the
    seconds.
    """
    if case.state != "RUNNING":
        return {}
    clocks = {topic: case.kept.short.get(topic) for topic, count in (case.lag.short or {}).items() if with_count(count)}
    limit = case.flow.settings.refresh_interval + case.patience.no_progress_seconds
    return {topic: clock.seconds for topic, clock in clocks.items() if clock and clock.seconds > limit}


def _topics_problem(
    case: FlowCase, kind: str, topics: Iterable[str], seconds: float, more: Mapping[str, Any] | None = None
) -> LiveProblem:
    """Return a problem of some of a flow's topics, named as on the target."""
    names = sorted(case.flow.remote_topic(topic) for topic in topics)
    evidence = {
        "topics": names[:_NAMED],
        "topic_count": len(names),
        "source": case.flow.source.alias,
        "target": case.flow.target.alias,
        **(more or {}),
    }
    return case.problem(kind, evidence, since=seconds)


# --- offsets that are not stored --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaleOffsets:
    """Flows of one Connect cluster whose records arrive while their offsets are not stored; `sources` could not be
    read.
    """

    connect: str
    flows: tuple[str, ...]
    seconds: float
    records: int
    sources: tuple[str, ...]
    json_keys = "connect flows seconds records unread_sources=sources"

    @property
    def is_problem(self) -> bool:
        """Whether a source is dead; otherwise the cause may be a long offset.flush.interval.ms, which workers do not
        show.
        """
        return bool(self.sources)

    def problem(self) -> LiveProblem:
        """Return it as a problem."""
        return LiveProblem("offsets-not-stored", ProblemSubject(self.connect), to_json(self), self.seconds)


def stale_offsets(reading: Reading, memory: Memory, patience_seconds: float) -> Iterator[StaleOffsets]:
    """Yield the Connect clusters where several flows, or one beside a dead source, have waited this long for a
    commit.
    """
    for name in reading.connects:
        flows = [flow for flow in reading.flows if flow.connect.name == name]
        unstored_of = [(flow.id, memory.of(flow.id).unstored) for flow in flows]
        waiting = [(flow, unstored.records, unstored.clock.seconds) for flow, unstored in unstored_of
                   if unstored and unstored.clock and not unstored.clock.paused and unstored.clock.seconds >= patience_seconds]  # fmt: skip
        dead = tuple(sorted({flow.source.alias for flow in flows if reading.clusters[flow.source.alias].failure}))
        if len(waiting) > 1 or (waiting and dead):
            yield StaleOffsets(
                name,
                tuple(flow for flow, _, _ in waiting),
                min(seconds for _, _, seconds in waiting),
                sum(records for _, records, _ in waiting),
                dead,
            )


# --- companion connectors ---------------------------------------------------------------------------------------------


def heartbeats_not_emitted(case: ConnectorCase, beats: Beats | None) -> Iterator[LiveProblem]:
    """A heartbeat connector whose task runs while its topic does not grow: it writes elsewhere, or cannot write.

    Other pairs may write to the same topic, so growth proves nothing of this connector; no growth proves that none
    arrives.
    """
    every = case.seen.number("emit.heartbeats.interval.seconds", 1)
    if beats is None or beats.clock.paused or every is None:
        return
    if beats.clock.seconds >= max(case.patience.no_heartbeat_seconds, _HEARTBEAT_INTERVALS * every):
        cluster = case.seen.desired.config["target.cluster.alias"]
        evidence = {"cluster": cluster, "topic": HEARTBEATS, "interval_seconds": every}
        yield case.problem("heartbeats-not-emitted", evidence, since=beats.clock.seconds)


def checkpoints_not_emitted(case: ConnectorCase, look: CheckpointLook | None, topic: str) -> Iterator[LiveProblem]:
    """A checkpoint connector whose tasks run and whose topic does not grow although groups must have got a
    checkpoint.
    """
    does = checkpointing(case.seen)
    if does is None or look is None or look.owed is None or look.owed.paused:
        return
    if look.owed.seconds >= _CHECKPOINT_INTERVALS * does.interval_seconds + case.patience.no_checkpoint_seconds:
        evidence = {"topic": topic, "interval_seconds": does.interval_seconds, **_groups(case, look.owed_groups)}
        yield case.problem("checkpoints-not-emitted", evidence, since=look.owed.seconds)


def group_offsets_rewound(case: ConnectorCase, look: CheckpointLook | None, now: float) -> Iterator[LiveProblem]:
    """Offsets of groups that went back on the target and not on the source: their records would be read again
    (KAFKA-19794).
    """
    rewound = [
        (group, partition, offset)
        for group, places in (look.synced if look else {}).items()
        for partition, offset in places.items()
        if offset.before is not None
    ]
    if rewound:
        offsets = [
            {"group": group, "partition": partition, "offset": offset.target, "before": offset.before}
            for group, partition, offset in rewound[:_NAMED]
        ]
        evidence = {**_groups(case, sorted({group for group, _, _ in rewound})), "offsets": offsets}
        yield case.problem(
            "group-offsets-rewound", evidence, since=now - min(offset.rewound_at for _, _, offset in rewound)
        )


def companion_arrival_problems(case: ConnectorCase, memory: Memory, reading: Reading) -> tuple[LiveProblem, ...]:
    """Return the problems of what a companion connector writes."""
    look = memory.checkpoints.get(case.seen.key)
    return (
        *heartbeats_not_emitted(case, memory.beats.get(case.seen.key)),
        *checkpoints_not_emitted(case, look, reading.topic_of(case.seen)),
        *group_offsets_rewound(case, look, reading.taken_at),
    )


def _groups(case: ConnectorCase, groups: Sequence[str]) -> dict[str, Any]:
    config = case.seen.desired.config
    return {
        "groups": list(groups[:_NAMED]),
        "group_count": len(groups),
        "source": config["source.cluster.alias"],
        "target": config["target.cluster.alias"],
    }

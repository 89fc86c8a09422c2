"""What is wrong with a flow by its tasks, its state and its progress, and by connectors that mirror the same. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from shlex import quote

from mm2mgr import topology
from mm2mgr.comparison.differences import Named, selects_otherwise
from mm2mgr.comparison.ownership import is_held
from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.connectors import RESTING, SETTABLE
from mm2mgr.live.dedicated import configs_topic, dedicated_names
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.interruptions import InterruptionCounts, describe_counts
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Reading, Standing
from mm2mgr.observe.trend import Points, lag_trend
from mm2mgr.problems.kind import (
    NAMED,
    FlowCase,
    LiveProblem,
    ProblemEvidence,
    ProblemSubject,
    flow_rule,
    kind,
    name_some,
)
from mm2mgr.text import few, number_of, span_text
from mm2mgr.topology import Flow
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import text_of


@kind("no-task", "critical", 2)
class NoTask(ProblemEvidence):
    """A source connector is RUNNING without a task: nothing is mirrored."""

    source: str
    "alias of the source"
    source_failure: str | None
    "why mm2mgr could not read the source; null where it could"
    matching_topics: int | None
    "topics of the source that the flow matches; null where it could not be read"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        if self.source_failure or self.matching_topics is None:
            return (
                "RUNNING without a task, nothing is mirrored: usually the workers cannot reach or log in to"
                f" {self.source}, which mm2mgr could not read either ({self.source_failure}); check the cluster, then"
                " the workers' log"
            )
        return (
            f"RUNNING without a task although {number_of(self.matching_topics, 'topic')} on {self.source} match: the"
            f" workers cannot reach or log in to {self.source}, or may not describe its topics; check their log for"
            " 'loading initial set of topic-partitions'"
        )


@flow_rule
def no_task(case: FlowCase) -> Iterator[LiveProblem]:
    """RUNNING without a task looks healthy and mirrors nothing; an unreachable source or a wrong pattern causes it."""
    unread = case.source.failure
    if case.runs_no_task and (unread or case.lag.matched):
        matching = None if unread else case.lag.matched
        yield case.problem(NoTask(case.flow.source.alias, unread.message if unread else None, matching))


@kind("no-topic-matches", "critical", 2)
class NoTopicMatches(ProblemEvidence):
    """No topic on the source matches the flow: nothing is mirrored."""

    selection: str
    "the flow's patterns against the source's topics, in words"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.selection}, nothing is mirrored: check the patterns, and that mm2mgr's login and that of the"
            " workers may describe the topics"
        )


@flow_rule
def no_topic_matches(case: FlowCase) -> Iterator[LiveProblem]:
    """A wrong pattern looks healthy: RUNNING without a task, or with one that mirrors heartbeats only."""
    is_empty = case.state == "RUNNING" and not case.source.failure and not case.lag.matched
    if is_empty and (selection := topology.matches_nothing(case.flow, case.source.topics)):
        yield case.problem(NoTopicMatches(selection))


RESTING_WORDS = tuple(state.lower() for state in sorted(RESTING))
"""How the tree declares a flow that rests."""


@kind("state-differs", "warning", 15)
class StateDiffers(ProblemEvidence):
    """A connector was resumed, stopped or paused, and the tree declares it paused, or stopped."""

    declared: str
    "the state that the tree declares"
    state: str
    "the connector's state"

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr plan"

    def sentence(self, problem: LiveProblem) -> str:
        return f"the tree declares state: {self.declared}, but the connector is {self.state}; run {problem.command}"


@flow_rule
def state_differs(case: FlowCase) -> Iterator[LiveProblem]:
    declared = case.flow.settings.state
    if declared in RESTING_WORDS and case.state in SETTABLE and case.state != declared.upper() and not case.journal:
        yield case.problem(StateDiffers(declared, case.state))


@dataclass(frozen=True)
class Resting(ProblemEvidence):
    """What a flow that rests although the tree has it running has in common, whether its lag grows or not."""

    state: str
    "PAUSED or STOPPED"
    lag_records: int | None
    "records that wait; null where that is unknown"
    danger: str
    "why records may be lost or are too late, in words: over max_lag, or retention overtakes; empty where they are not"

    @property
    def endangers_records(self) -> bool:
        return bool(self.danger)

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr resume {problem.argument}"

    def remedy(self, problem: LiveProblem) -> str:
        danger = f"; {self.danger}" if self.danger else ""
        meant = f"or declare state: {self.state.lower()} on the flow if that is intended"
        return f"{danger}; run {problem.command}, {meant}"


@kind("paused-by-hand", "warning", 15)
class PausedByHand(Resting):
    """A flow was paused or stopped by hand, with `mm2mgr pause` or over REST, and the tree has it running. It mirrors
    nothing; a danger once the oldest record waits for longer than `max_lag`, or retention overtakes it within a day.
    """

    def sentence(self, problem: LiveProblem) -> str:
        waits = f": {number_of(self.lag_records, 'record')} wait" if self.lag_records else ", and no record waits"
        waiting = waits if self.lag_records is not None else ""
        return f"{self.state} by hand, and the tree says running{waiting}{self.remedy(problem)}"


@kind("resting-while-lag-grows")
class RestingWhileLagGrows(Resting):
    """A flow was paused or stopped by hand, the tree has it running, and records keep arriving on the source. A danger
    once the oldest record waits for longer than `max_lag`, or retention overtakes it within a day.
    """

    grown_records: int
    "records that arrived since it was first seen at rest"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.state} by hand while its lag grows, and the tree says running: {self.lag_records} records wait,"
            f" {self.grown_records} of them new in the last {span_text(problem.seconds)}{self.remedy(problem)}"
        )


@flow_rule
def rests_by_hand(case: FlowCase) -> Iterator[LiveProblem]:
    """What a move holds, or the way back of a failover, is refused by `resume` and is no rest by hand."""
    config = case.connector.running.config if case.connector.running else {}
    is_declared = case.flow.settings.state in RESTING_WORDS
    if case.state not in RESTING or is_declared or case.journal or is_held(config):
        return
    rest, lag = case.flow_memory.rest, case.lag.total_records
    danger = danger_text(case.waiting_seconds, case.flow.settings.max_lag, case.overtaken_seconds)
    since = rest.clock.seconds if rest else None
    if lag and rest and rest.grown > 0:
        yield case.problem(RestingWhileLagGrows(case.state, lag, danger, rest.grown), since=since)
    else:
        yield case.problem(PausedByHand(case.state, lag, danger), since=since)


OVERTAKEN_SOON_SECONDS = 86_400.0


def danger_text(
    waiting_seconds: float | None, max_lag: float | None, overtaken_seconds: float | None, *, is_exact: bool = False
) -> str:
    """Return why the records that wait for a flow are in danger, in words; empty where they are not known to be.

    `waiting_seconds`: the age of the oldest, at least unless `is_exact`; `overtaken_seconds`: until retention deletes
    records that wait.
    """
    reasons = []
    if overtaken_seconds is not None and overtaken_seconds < OVERTAKEN_SOON_SECONDS:
        when = f"in {span_text(overtaken_seconds)}" if overtaken_seconds > 0 else "now"
        reasons.append(f"retention deletes records that wait {when}")
    if max_lag and waiting_seconds and waiting_seconds > max_lag:
        age = f"{'' if is_exact else 'at least '}{span_text(waiting_seconds)}"
        reasons.append(f"the oldest record that waits is {age} old, more than its max_lag of {span_text(max_lag)}")
    return ", and ".join(reasons)


@kind("no-progress", "critical", 0)
class NoProgress(ProblemEvidence):
    """Records wait, and neither stored offsets nor the remote topics move."""

    blind: bool
    "whether the target's end offsets are unknown, so that only stored offsets were compared"
    read_committed: bool
    "whether an open transaction on the source can be the cause"
    target: str
    "alias of the target"
    target_down: bool
    "whether the target answered mm2mgr before and does not now"
    interruptions: InterruptionCounts = InterruptionCounts()
    "assignment changes and failures in the last hour"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command if self.target_down else super().command(problem)

    def sentence(self, problem: LiveProblem) -> str:
        hint = " (read_committed: an open transaction on the source has the same effect)" if self.read_committed else ""
        still = "the stored offsets do not move" if self.blind else "neither the stored offsets nor the target move"
        stands = (
            f"no progress for {span_text(problem.seconds)}: records wait, but {still} for {problem.tasks or 'the flow'}"
        )
        if self.target_down:
            return (
                f"{stands}; {self.target} does not answer mm2mgr either: start its brokers, restart no task: producers"
                " wait for it, and go on by themselves"
            )
        check = f"check the workers' log for 'Failure during poll' and check rights and space on {self.target}"
        return f"{stands}{hint}{self.interruptions.as_cause}; {check}"


@flow_rule
def no_progress(case: FlowCase) -> Iterator[LiveProblem]:
    blind = case.lag.blind
    limit = case.patience.no_progress_blind_seconds if blind else case.patience.no_progress_seconds
    tasks_shown = case.connector.status.tasks if case.connector.status else ()
    failed = {str(task.id) for task in tasks_shown if task.state == "FAILED"}  # their cause is a problem of its own
    stuck = {
        task: mark.clock.seconds
        for task, mark in case.marks.items()
        if mark.behind and mark.clock.seconds >= limit and task not in failed
    }
    if case.state != "RUNNING" or not stuck:
        return
    committed = (
        text_of("source", case.connector.desired.config, "source consumer", "isolation.level") == "read_committed"
    )
    tasks = [] if set(stuck) == {"-"} else [int(task) for task in stuck if task != "-"]
    evidence = NoProgress(blind, committed, case.flow.target.alias, case.has_lost_target, case.last_hour)
    yield case.problem(evidence, since=min(stuck.values()), tasks=tasks)


@kind("workers-silent", "critical", 2)
class WorkersSilent(ProblemEvidence):
    """No worker of a Connect cluster answers, or the Kafka cluster that they live on does not; records arrive on the
    source, and the target does not move: nothing is mirrored until it runs again. Seen from the second look on, by the
    offsets that the workers stored last.
    """

    lag_records: int
    "records that wait, at least"
    grown_records: int
    "those of them that arrived since the last look at the workers"
    target_read: bool
    "whether the target's end offsets could be read"
    own_kafka: str = ""
    "the Kafka cluster that the workers live on, where it does not answer"
    silent_urls: tuple[str, ...] = ()
    "those of the workers' URLs that accepted the connection all the same, and gave no answer"
    workers_answer: bool = False
    "whether the workers answer, so that only their Kafka cluster does not"

    def places(self, connect: str) -> tuple[str, ...]:
        """Return the clusters whose silence it is, as the failures of a status name them."""
        workers = () if self.workers_answer else (f"connect {connect}",)
        return (*workers, *([f"kafka {self.own_kafka}"] if self.own_kafka else ()))

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        still = "the target does not move" if self.target_read else "the target could not be read"
        connect, own = problem.subject.connect, self.own_kafka
        silent, remedy = f"no worker of {connect} answers", "start its workers: they go on at the stored offsets"
        if own and not self.workers_answer:
            silent += f", nor does {own}, on which they live"
            remedy = "start its brokers first, then the workers that stay silent: they go on at the stored offsets"
        elif own:
            silent = f"{own}, on which the workers of {connect} live, does not answer"
            remedy = "start its brokers, restart nothing: workers and tasks go on by themselves"
        elif self.silent_urls:
            silent += f", though {few(self.silent_urls)} accept{'s' * (len(self.silent_urls) == 1)} connections"
            remedy = "look at process and log there, and restart what stays silent: it goes on at the stored offsets"
        return (
            f"{silent}: at least {self.lag_records} records wait, {self.grown_records} of them new in the last"
            f" {span_text(problem.seconds)}, and {still}; {remedy}"
        )


def workers_silent(
    flow: Flow, lag: FlowLag, points: Points, own_kafka: str = "", silent_urls: tuple[str, ...] | None = None
) -> Iterator[LiveProblem]:
    """Judge a flow whose workers know nothing, by its lag since, as `points` of looks have it: a target that moves
    shows that they run. Where what arrived cannot be counted, only what came since the last look is sure to wait.
    `own_kafka`: the Kafka cluster that they live on, where it does not answer. `silent_urls`: where they accept
    connections and do not answer (None: they answer)."""
    uncounted = lag.last_stored is not None and lag.last_stored.uncounted
    going = lag_trend(points[-2:] if uncounted else points, (), 0.0, frozen=True)
    is_still = lag.last_stored is not None and lag.last_stored.target_moves is False
    rests = flow.settings.state in RESTING_WORDS
    if going and going.direction == "growing" and is_still and not rests and lag.total_records:
        waiting = going.records if uncounted else lag.total_records
        evidence = WorkersSilent(
            waiting, going.records, not lag.blind, own_kafka, silent_urls or (), silent_urls is None
        )
        yield LiveProblem(evidence, ProblemSubject(flow.connect.name, flow=flow.id), going.seconds)


_OFTEN = 3  # in an hour: an apply, workers that are lost or restart one after the other stay below


@kind("often-interrupted")
class OftenInterrupted(ProblemEvidence):
    """The assignment of a flow changed in more than three five-minute spans of the last hour, or its tasks failed more
    than three times each. Tasks stop and start again each time, and records wait meanwhile. Two looks show a change;
    what happens between them counts once.
    """

    assignment_changes: int
    "looks in the last hour at which tasks had other partitions or other workers than at the look before"
    worker_changes: int
    "those of them at which tasks had other workers"
    failures: int
    "tasks that became FAILED in the last hour, and the connector"
    in_30_days: InterruptionCounts
    "the same counts for the last 30 days"
    lag_records: int | None
    "records that wait; null where that is unknown"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr history {problem.argument}"

    def sentence(self, problem: LiveProblem) -> str:
        counts = InterruptionCounts(self.assignment_changes, self.worker_changes, self.failures)
        remedies = ["check why workers join and leave (their uptime, memory and log)"] if self.worker_changes else []
        if self.assignment_changes > self.worker_changes:
            remedies.append("check what changes its topics, its partitions or its config (mm2mgr history)")
        if self.failures:
            remedies.append("find what makes its tasks FAIL (the workers' log)")
        waiting = "" if not self.lag_records else f" ({self.lag_records} now)"
        return (
            f"{describe_counts(counts, self.in_30_days)}: its tasks stop and start again each time, and records wait"
            f" meanwhile{waiting}; {', and '.join(remedies)}"
        )


@flow_rule
def often_interrupted(case: FlowCase) -> Iterator[LiveProblem]:
    counts, tasks = case.last_hour, len(case.connector.status.tasks) if case.connector.status else 0
    spans = case.flow_memory.interruptions.spans_with_changes(case.reading.taken_at)
    if case.interruptions and (spans > _OFTEN or counts.failures > _OFTEN * max(1, tasks)):
        yield case.problem(OftenInterrupted(*counts, case.interruptions.last_30_days, case.lag.total_records))


@kind("partitions-unassigned", "critical", 2)
class PartitionsUnassigned(ProblemEvidence):
    """No task has partitions of the flow for longer than its refresh interval."""

    partitions: tuple[str, ...]
    "the first of them"
    partition_count: int
    "how many there are"
    source: str
    "alias of the source"
    target: str
    "alias of the target"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{name_some(self.partitions, 'partition', self.partition_count)} not assigned to any task for"
            f" {span_text(problem.seconds)}, longer than the refresh interval: check that the workers' login may"
            f" describe them on {self.source} and create topics on {self.target}"
        )


@flow_rule
def partitions_unassigned(case: FlowCase) -> Iterator[LiveProblem]:
    """New partitions are found at the next refresh."""
    clocks = {
        str(partition): case.flow_memory.unassigned.get(str(partition)) for partition in case.lag.defects.unassigned
    }
    waited = {name: clock.seconds for name, clock in clocks.items() if clock}
    late = {name: seconds for name, seconds in waited.items() if seconds > case.flow.settings.refresh_interval}
    if late:
        source, target = case.flow.source.alias, case.flow.target.alias
        evidence = PartitionsUnassigned(tuple(late)[:NAMED], len(late), source, target)
        yield case.problem(evidence, since=max(late.values()))


@kind("partitions-in-two-tasks", "critical", 2)
class PartitionsInTwoTasks(ProblemEvidence):
    """More than one task has the same partitions, so that each of their records arrives more than once. Kafka's own
    class never deals them so, another class may.
    """

    partitions: tuple[str, ...]
    "the first of them"
    partition_count: int
    "how many there are"
    connector_class: str
    "the class of the connector, which deals them"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{name_some(self.partitions, 'partition', self.partition_count)} assigned to more than one task"
            f" ({problem.tasks}), so that each record arrives more than once: {self.connector_class} deals them"
            f" wrongly; correct its assignment, or set connector.class to {SOURCE_CLASS}, which keeps the offsets"
        )


@flow_rule
def partitions_in_two_tasks(case: FlowCase) -> Iterator[LiveProblem]:
    twice, running = case.lag.defects.twice, case.connector.running
    if twice and running:
        names = tuple(map(str, twice))
        evidence = PartitionsInTwoTasks(names[:NAMED], len(names), running.config.get("connector.class", ""))
        yield case.problem(evidence, tasks=sorted({task for tasks in twice.values() for task in tasks}))


@kind("old-task-config", "warning", 15)
class OldTaskConfig(ProblemEvidence):
    """Tasks still run on an older config than their connector's."""

    keys: tuple[str, ...]
    "config keys, without values"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{problem.tasks} still on an older config ({name_some(self.keys, 'key')}): if this lasts longer than a"
            " rebalance, the connector cannot start with the new one; check the clusters and the workers' log"
        )


@flow_rule
def old_task_config(case: FlowCase) -> Iterator[LiveProblem]:
    """Tasks carry a copy of the connector's whole config; status shows RUNNING even while it is an older one."""
    running = case.connector.running
    if running is None or case.state == "PAUSED":
        return  # a paused connector's tasks take a new config when they are resumed
    if stale := running.older_tasks:
        keys = {key for differing in stale.values() for key in differing}
        yield case.problem(OldTaskConfig(tuple(sorted(keys))), tasks=stale)


_RULE = "overlap"


@kind(_RULE, "critical", 2)  # an apply that moves topics between connectors stops one of them
class Overlap(ProblemEvidence):
    """Another connector that runs mirrors the same topics to the same names on the target, so that their records arrive
    twice: one made by hand, of another owner or left over, or that of a dedicated MirrorMaker. A dedicated MirrorMaker
    is seen by the members of its group on the target (`SOURCE-mm2`); where its config cannot be read, that it runs is a
    note. Connectors whose tasks have all failed do not count, nor do two that choose records by what these hold, each
    in its own way.
    """

    other: str
    "the other connector, as connect/name; of a dedicated MirrorMaker its group and target"
    standing: Standing
    "unmarked, other-owner, released, left-over (this owner's, no longer declared), dedicated or declared"
    owner: str
    "the owner in its mark, empty without one"
    topics: tuple[str, ...]
    (
        "the first topics of the source that both mirror; where the source could not be read, of those that the flow's"
        " tasks have"
    )
    topic_count: int
    "how many there are"
    source: str
    "alias of the source"
    target: str
    "alias of the target"

    def command(self, problem: LiveProblem) -> str:
        commands = {"left-over": "mm2mgr plan --prune", "declared": "mm2mgr plan"}
        return commands.get(self.standing) or f"mm2mgr who {quote(self.topics[0])}"

    def sentence(self, problem: LiveProblem) -> str:
        topics = name_some(self.topics, "topic", self.topic_count)
        ends = f"from {self.source} to {self.target}"
        if self.standing == "dedicated":
            return (
                f"a dedicated MirrorMaker mirrors {topics} {ends} too (group {self.other} has members): records arrive"
                " twice; stop its processes with SIGTERM, and see that nothing starts them again, or take the topics"
                " out of one of the two"
            )
        whose, remedy = {
            "unmarked": ("carries no owner mark", "stop or delete it there, or adopt it"),
            "other-owner": (
                f"belongs to owner '{self.owner}'",
                "agree on one of the two, and stop or delete the other",
            ),
            "released": ("is released", "stop or delete it there, or take the flow out of this tree"),
            "left-over": ("is no longer declared", "run mm2mgr plan --prune and mm2mgr apply --prune"),
            "declared": ("runs otherwise than declared, or this one does", "run mm2mgr plan"),
        }[self.standing]
        return (
            f"connector {self.other} ({whose}) mirrors {topics} {ends} too: records arrive twice; {remedy}, or take the"
            " topics out of one of the two"
        )


@flow_rule
def overlap(case: FlowCase) -> Iterator[LiveProblem]:
    """Judged for all flows at once (`find_overlaps`), since the time grows with what is there, not with the pairs."""
    yield from case.overlaps


def find_overlaps(reading: Reading) -> tuple[dict[str, tuple[LiveProblem, ...]], Mapping[str, tuple[str, ...]]]:
    """Return what mirrors topics of the flows of a reading beside their connectors: problems, and notes on what is not
    known, by the ids of the flows.
    """
    flows: dict[Named, tuple[Flow, LiveConnector]] = {}
    for flow in reading.flows:
        connector = reading.source_connector(flow)
        if connector and connector.running and not (connector.status and connector.status.work_state == "FAILED"):
            flows[connector.desired.connect, connector.desired.name] = flow, connector
    dedicated, notes = _dedicated_connectors(reading, [flow for flow, _ in flows.values()])
    others = [*(other for connect in reading.connects.values() for other in connect.others), *dedicated]
    changed = {named for named, (_, connector) in flows.items() if _runs_otherwise(connector)}
    if not flows or not (others or changed):
        return {}, notes
    beside = {named: OtherConnector(*named, {}, "", "declared") for named in flows}
    beside |= {(other.connect, other.connector): other for other in others if other.state != "FAILED"}
    problems: dict[str, tuple[LiveProblem, ...]] = {}
    for mine, theirs, topics in _shared_topics(reading, flows, beside, changed):
        flow = flows[mine][0]
        # What a connector that is not declared says in its config is no authority.
        if not any(_RULE in flows[named][0].settings.silence for named in (mine, theirs) if named in flows):
            problems[flow.id] = (*problems.get(flow.id, ()), _problem(flow, mine, beside[theirs], topics))
    return problems, notes


def _runs_otherwise(connector: LiveConnector) -> bool:
    """Lint has judged what is declared."""
    rests = connector.desired.state in RESTING and not (connector.status and connector.status.state in RESTING)
    return rests or (
        connector.running is not None and selects_otherwise(connector.running.config, connector.desired.config)
    )


def _shared_topics(
    reading: Reading,
    flows: Mapping[Named, tuple[Flow, LiveConnector]],
    beside: Mapping[Named, OtherConnector],
    changed: Set[Named],
) -> Iterator[tuple[Named, Named, list[str]]]:
    """Topics are those that the source has, or where it was not read those of the flow's tasks."""
    from mm2mgr.lint.mirroring import overlaps
    from mm2mgr.lint.reading import running_subject
    from mm2mgr.lint.subject import WorkerFacts

    versions = {name: connect.version for name, connect in reading.connects.items()}
    configs: dict[Named, tuple[Mapping[str, str], str | None]] = {
        named: (other.config, other.state) for named, other in beside.items()
    }
    configs |= {
        named: (connector.running.config, connector.status.state if connector.status else None)
        for named, (_, connector) in flows.items()
        if connector.running
    }
    subjects = {
        named: subject
        for named, (config, state) in configs.items()
        if (
            subject := running_subject(
                *named, config, state, WorkerFacts(version=kafka_version(versions.get(named[0], "")))
            )
        )
    }
    ours = {named: subject for named, subject in subjects.items() if named in flows}
    rivals = {named: subject for named, subject in subjects.items() if named not in flows or named in changed}
    there: dict[Named, Collection[str]] = {}
    for named, (flow, connector) in flows.items():
        source = reading.clusters.get(flow.source.alias, RunningKafka())
        there[named] = connector.assignment.topics if source.failure else source.topics
    reported = set[tuple[Named, Named]]()
    for mine, theirs, topics in overlaps(ours, rivals, there):
        for pair in ((mine, theirs), (theirs, mine)):
            if pair[0] in flows and pair not in reported:
                reported.add(pair)
                yield *pair, topics


def _problem(flow: Flow, mine: Named, other: OtherConnector, topics: Sequence[str]) -> LiveProblem:
    name = "/".join(filter(None, (other.connect, other.connector)))
    ends = flow.source.alias, flow.target.alias
    evidence = Overlap(name, other.standing, other.owner, tuple(topics[:NAMED]), len(topics), *ends)
    return LiveProblem(evidence, ProblemSubject(*mine, flow.id))


def _dedicated_connectors(
    reading: Reading, flows: Iterable[Flow]
) -> tuple[list[OtherConnector], dict[str, tuple[str, ...]]]:
    connectors: dict[str, OtherConnector] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for flow in flows:
        source, target = flow.source.alias, flow.target.alias
        runs = reading.clusters.get(target, RunningKafka()).dedicated.get(source)
        name = f"{dedicated_names(source)[2]} on {target}"
        if runs is None:
            continue
        if runs.config is None:
            notes[flow.id] = (
                (
                    f"a dedicated MirrorMaker runs (group {name} has {number_of(runs.members, 'member')}); whether it"
                    f" mirrors this flow's topics is not known: mm2mgr's login could not read {configs_topic(source)}"
                ),
            )
        else:
            config = {"connector.class": SOURCE_CLASS, **runs.config}
            connectors[name] = OtherConnector("", name, config, "RUNNING", "dedicated")
    return list(connectors.values()), notes

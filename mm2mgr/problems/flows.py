"""What is wrong with a flow by its tasks, its state and its progress. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr import topology
from mm2mgr.connectors import RESTING, SETTABLE
from mm2mgr.errors import Failure
from mm2mgr.problems.kind import NAMED, FlowCase, LiveProblem, ProblemEvidence, flow_rule, kind, name_some
from mm2mgr.text import number_of
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


@kind("state-differs", "warning", 15)
class StateDiffers(ProblemEvidence):
    """A connector was paused, stopped or resumed, and the tree declares another state."""

    declared: str
    "the state that the tree declares"
    state: str
    "the connector's state"

    def sentence(self, problem: LiveProblem) -> str:
        return f"the tree declares state: {self.declared}, but the connector is {self.state}; run mm2mgr plan"


@flow_rule
def state_differs(case: FlowCase) -> Iterator[LiveProblem]:
    declared = case.flow.settings.state
    if declared and case.state in SETTABLE and case.state != declared.upper() and not case.journal:
        yield case.problem(StateDiffers(declared, case.state))


@kind("resting-while-lag-grows")
class RestingWhileLagGrows(ProblemEvidence):
    """A connector was paused or stopped, and records keep arriving on the source."""

    state: str
    "PAUSED or STOPPED"
    lag_records: int
    "records that wait"
    grown_records: int
    "records that arrived since it was first seen at rest"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.state} while its lag grows: {self.lag_records} records wait, {self.grown_records} of them new in"
            f" the last {problem.seconds:.0f} s; run mm2mgr resume {problem.argument}, or declare state:"
            f" {self.state.lower()} on the flow if that is intended"
        )


@flow_rule
def resting_while_lag_grows(case: FlowCase) -> Iterator[LiveProblem]:
    at_rest = case.state in RESTING and not case.flow.settings.state and not case.journal
    rest = case.flow_memory.rest
    if at_rest and case.lag.total_records and rest and rest.grown > 0:
        evidence = RestingWhileLagGrows(case.state, case.lag.total_records, rest.grown)
        yield case.problem(evidence, since=rest.clock.seconds)


@kind("no-progress", "critical", 0)
class NoProgress(ProblemEvidence):
    """Records wait, and neither stored offsets nor the remote topics move."""

    blind: bool
    "whether the target's end offsets are unknown, so that only stored offsets were compared"
    read_committed: bool
    "whether an open transaction on the source can be the cause"
    target: str
    "alias of the target"

    def sentence(self, problem: LiveProblem) -> str:
        hint = " (read_committed: an open transaction on the source has the same effect)" if self.read_committed else ""
        still = "the stored offsets do not move" if self.blind else "neither the stored offsets nor the target move"
        return (
            f"no progress for {problem.seconds:.0f} s: records wait, but {still} for {problem.tasks or 'the flow'}"
            f"{hint}; check the workers' log for 'Failure during poll' and check rights and space on {self.target}"
        )


@flow_rule
def no_progress(case: FlowCase) -> Iterator[LiveProblem]:
    blind = case.lag.blind
    limit = case.patience.no_progress_blind_seconds if blind else case.patience.no_progress_seconds
    stuck = {
        task: mark.clock.seconds for task, mark in case.marks.items() if mark.behind and mark.clock.seconds >= limit
    }
    if case.state != "RUNNING" or not stuck:
        return
    committed = (
        text_of("source", case.connector.desired.config, "source consumer", "isolation.level") == "read_committed"
    )
    tasks = [] if set(stuck) == {"-"} else [int(task) for task in stuck if task != "-"]
    evidence = NoProgress(blind, committed, case.flow.target.alias)
    yield case.problem(evidence, since=min(stuck.values()), tasks=tasks)


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
            f" {problem.seconds:.0f} s, longer than the refresh interval: check that the workers' login may describe"
            f" them on {self.source} and create topics on {self.target}"
        )


@flow_rule
def partitions_unassigned(case: FlowCase) -> Iterator[LiveProblem]:
    """New partitions are found at the next refresh."""
    clocks = {str(partition): case.flow_memory.unassigned.get(str(partition)) for partition in case.lag.unassigned}
    waited = {name: clock.seconds for name, clock in clocks.items() if clock}
    late = {name: seconds for name, seconds in waited.items() if seconds > case.flow.settings.refresh_interval}
    if late:
        source, target = case.flow.source.alias, case.flow.target.alias
        evidence = PartitionsUnassigned(tuple(late)[:NAMED], len(late), source, target)
        yield case.problem(evidence, since=max(late.values()))


@kind("old-task-config", "warning", 15)
class OldTaskConfig(ProblemEvidence):
    """Tasks still run on an older config than their connector's."""

    keys: tuple[str, ...]
    "config keys, without values"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{problem.tasks} still on an older config ({name_some(self.keys, 'key')}): if this lasts longer than a"
            " rebalance, the connector cannot start with the new one; check the clusters and the workers' log"
        )


@flow_rule
def old_task_config(case: FlowCase) -> Iterator[LiveProblem]:
    """Tasks carry a copy of the connector's whole config; status shows RUNNING even while it is an older one."""
    running = case.connector.running
    if running is None or isinstance(running.tasks, Failure) or case.state == "PAUSED":
        return  # a paused connector's tasks take a new config when they are resumed
    # A reference that a worker resolved would look like a change.
    live = {key: value for key, value in running.config.items() if "${" not in value}
    older = {task.id: [key for key, value in live.items() if task.config.get(key) != value] for task in running.tasks}
    if stale := {task: keys for task, keys in older.items() if keys}:
        keys = {key for differing in stale.values() for key in differing}
        yield case.problem(OldTaskConfig(tuple(sorted(keys))), tasks=stale)

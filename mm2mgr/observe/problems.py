"""What is wrong with a connector or a flow: problems as values, and notes. Pure; output/ has the sentences of problems.

From a case, that is what was read of one connector with how long things have lasted; no problem known does not mean that all is well
(`health` decides that). To add a problem, write a function, put it into a tuple below (or into `arrival_problems`),
its kind into `kinds`, its sentence into output/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mm2mgr import topology
from mm2mgr.comparison.differences import diff, lowers_tasks
from mm2mgr.comparison.equivalence import compare
from mm2mgr.comparison.journal import Journal, unmarked
from mm2mgr.connect.types import trace_summary
from mm2mgr.connectors import RESTING, SETTABLE
from mm2mgr.errors import Failure
from mm2mgr.live.kafka_state import SeenKafka
from mm2mgr.observe.causes import CAUSES, Classified, classify
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.memory import FlowMemory, Mark
from mm2mgr.observe.reading import LiveConnector
from mm2mgr.observe.trend import FLOW, Trend, lag_trend
from mm2mgr.text import few
from mm2mgr.topology import Flow
from mm2mgr.truth.reach import text_of

_PARTITIONS_NAMED = 20


@dataclass(frozen=True)
class Patience:
    """How long something may last before it is a problem.

    Progress gets more than a flush interval (60 s by default): only then must stored offsets have moved. Where the
    target cannot be read they are all there is to see, so one late flush is forgiven. A target whose followers are slow may show
    records half a minute late to clients that do not wait for them (acks=1). A worker gets as long as Connect itself gives it by default
    (session.timeout.ms).
    """

    no_status_seconds: float = 60.0
    no_progress_seconds: float = 75.0
    no_progress_blind_seconds: float = 150.0
    not_stored_seconds: float = 75.0
    no_heartbeat_seconds: float = 60.0
    not_on_target_seconds: float = 60.0
    slower_seconds: float = 900.0
    not_synced_seconds: float = 60.0
    no_checkpoint_seconds: float = 60.0
    departed_seconds: float = 10.0


@dataclass(frozen=True)
class ConnectorCase:
    """One connector that was read, and for how long it has had no status, and workers have been silent, by their ids."""

    seen: LiveConnector
    patience: Patience
    without_status_seconds: float = 0.0
    silent_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The connector's state as Connect names it, `not applied`, or `no status`."""
        if self.seen.running is None:
            return "not applied"
        return self.seen.status.state if self.seen.status else "no status"

    @property
    def flow_id(self) -> str:
        """The id of the flow that it mirrors; empty for a companion."""
        desired = self.seen.desired
        return desired.flows[0] if desired.type == "source" else ""

    def problem(
        self,
        kind: str,
        evidence: Mapping[str, Any] | None = None,
        *,
        since: float | None = None,
        tasks: Iterable[int] = (),
    ) -> LiveProblem:
        """Return a problem of this connector, seen for `since` seconds."""
        desired = self.seen.desired
        return LiveProblem(
            kind,
            ProblemSubject(desired.connect, desired.name, self.flow_id, tuple(sorted(tasks))),
            evidence or {},
            since,
        )

    def failure(
        self, kind: str, classified: Classified, evidence: Mapping[str, Any], tasks: Iterable[int] = ()
    ) -> LiveProblem:
        """Return a failure as a problem, with its cause."""
        problem = self.problem(
            kind,
            {**evidence, "exception": classified.exception, "remedy": CAUSES[classified.cause].remedy},
            tasks=tasks,
        )
        return replace(problem, cause=classified.cause, retryable=classified.retryable)


@dataclass(frozen=True)
class FlowCase(ConnectorCase):
    """A flow's source connector with its lag, and what is remembered of it."""

    flow: Flow = field(kw_only=True)
    lag: FlowLag = field(kw_only=True)
    source: SeenKafka = field(kw_only=True)
    kept: FlowMemory = field(kw_only=True)
    exactly_once: bool | None = field(kw_only=True, default=None)
    """Whether its workers write with transactions; None: they do not tell."""

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The progress of each task; none where the lag is not known in full."""
        return {} if self.lag.unknown is not None or self.lag.unread else self.kept.marks

    @cached_property
    def trend(self) -> Trend | None:
        """What the lag has done over all looks that are remembered, of every command; None where it is not known."""
        if self.lag.unknown is not None or self.lag.unread:
            return None
        behind = [partition for partition in self.lag.counted if partition.lag_records]
        return lag_trend(self.kept.progress.get(FLOW, ()), behind, self.flow.connect.model.flush_interval)


# --- any connector ----------------------------------------------------------------------------------------------------


def not_applied(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A connector that the tree declares and Connect does not have."""
    if case.seen.running is None:
        yield case.problem("not-applied")


def drifted(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A config that was changed elsewhere, or a tree that is not applied. Names keys only: values may be secrets."""
    if case.seen.running is None:
        return
    if case.seen.adopted:
        differing = [*compare(case.seen.desired, case.seen.running.config, case.seen.adopted).differing]
        if differing:
            yield case.problem("config-differs", {"keys": differing, "adopted": True})
        return
    changes = diff(unmarked(case.seen.running.config), case.seen.desired.config)
    if lowers_tasks(changes) and isinstance(case, FlowCase) and case.flow.tasks.is_saving:
        return  # it may wait for its time: plan shows it
    if changes:
        yield case.problem("config-differs", {"keys": [change.key for change in changes], "adopted": False})


def offsets_on_the_way(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A move of stored offsets that is not finished: mm2mgr was killed, or is still working on it."""
    journal = Journal.of(case.seen.running.config) if case.seen.running else None
    if journal:
        yield case.problem("offsets-move-unfinished", {"then": journal.then})


def no_status(case: ConnectorCase) -> Iterator[LiveProblem]:
    """MirrorMaker's start jobs wait for both clusters, 60 s each by default, and Connect reports no status meanwhile."""
    waited = case.without_status_seconds
    if case.state == "no status" and waited >= case.patience.no_status_seconds:
        yield case.problem("no-status", {"clusters": case.seen.desired.pair.split("->")}, since=waited)


def failed(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A failed connector: usually its clients refuse a setting."""
    status = case.seen.status
    if status and status.state == "FAILED":
        run_on = any(task.state == "RUNNING" for task in status.tasks)
        classified = classify(status.trace)
        yield case.failure(
            "connector-failed", classified, {"trace_summary": trace_summary(status.trace), "tasks_run": run_on}
        )


def failed_tasks(case: ConnectorCase) -> Iterator[LiveProblem]:
    """Failed tasks, one problem per cause; Connect never restarts them by itself."""
    by_cause: dict[tuple[str, Classified], list[int]] = {}
    for task in case.seen.status.tasks if case.seen.status else ():
        if task.state == "FAILED":
            by_cause.setdefault((trace_summary(task.trace), classify(task.trace)), []).append(task.id)
    for (summary, classified), tasks in by_cause.items():
        yield case.failure("task-failed", classified, {"trace_summary": summary}, tasks)


def unassigned(case: ConnectorCase) -> Iterator[LiveProblem]:
    """No worker runs it; or a connector's new config waits for a dead cluster while old tasks keep running."""
    status = case.seen.status
    if status and status.state == "UNASSIGNED":
        yield case.problem("connector-unassigned")
    tasks = [task.id for task in status.tasks if task.state == "UNASSIGNED"] if status else []
    if tasks:
        yield case.problem("task-unassigned", tasks=tasks)


def on_departed_worker(case: ConnectorCase) -> Iterator[LiveProblem]:
    """What a dead worker ran stays RUNNING by its status until Connect gives it to others, five minutes later by default."""
    status = case.seen.status
    for worker, seconds in sorted(case.silent_seconds.items()):
        if status is None or seconds < case.patience.departed_seconds:
            continue
        tasks = [task.id for task in status.tasks if task.worker_id == worker and task.state == "RUNNING"]
        is_there = status.worker_id == worker and status.state == "RUNNING"
        if tasks or is_there:
            evidence = {"worker": worker, "connector_there": is_there}
            yield case.problem("worker-departed", evidence, since=seconds, tasks=tasks)


def heartbeat_without_task(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A heartbeat connector always has one task."""
    if case.seen.desired.type == "heartbeat" and _runs_empty(case):
        yield case.problem("heartbeat-without-task")


# --- source connectors ------------------------------------------------------------------------------------------------


def no_tasks(case: FlowCase) -> Iterator[LiveProblem]:
    """RUNNING without a task looks healthy and mirrors nothing; an unreachable source or a wrong pattern causes it."""
    unread = case.source.failure
    if _runs_empty(case) and (unread or case.lag.matched):
        yield case.problem(
            "no-task",
            {
                "source": case.flow.source.alias,
                "source_failure": unread.message if unread else None,
                "matching_topics": None if unread else case.lag.matched,
            },
        )


def matches_nothing(case: FlowCase) -> Iterator[LiveProblem]:
    """A wrong pattern looks healthy: RUNNING without a task, or with one that mirrors heartbeats only."""
    if case.state == "RUNNING" and not case.source.failure and not case.lag.matched:
        yield case.problem("no-topic-matches", {"selection": topology.matches_nothing(case.flow, case.source.topics)})


def not_in_wished_state(case: FlowCase) -> Iterator[LiveProblem]:
    """The connector was paused, stopped or resumed over REST, and the tree declares another state."""
    wish = case.flow.settings.state
    if wish and case.state in SETTABLE and case.state != wish.upper() and not _moving_offsets(case):
        yield case.problem("state-differs", {"declared": wish, "state": case.state})


def resting(case: FlowCase) -> Iterator[LiveProblem]:
    """A connector that was paused or stopped, while records keep arriving on the source."""
    at_rest = case.state in RESTING and not case.flow.settings.state and not _moving_offsets(case)
    rest = case.kept.rest
    if at_rest and case.lag.total_records and rest and rest.grown > 0:
        evidence = {"state": case.state, "lag_records": case.lag.total_records, "grown_records": rest.grown}
        yield case.problem("resting-while-lag-grows", evidence, since=rest.clock.seconds)


def old_config(case: FlowCase) -> Iterator[LiveProblem]:
    """Tasks carry a copy of the connector's whole config; status shows RUNNING even while it is an older one."""
    running = case.seen.running
    if running is None or isinstance(running.tasks, Failure) or case.state == "PAUSED":
        return  # a paused connector's tasks take a new config when they are resumed
    # A reference that a worker resolved would look like a change.
    live = {key: value for key, value in running.config.items() if "${" not in value}
    older = {task.id: [key for key, value in live.items() if task.config.get(key) != value] for task in running.tasks}
    stale = {task: keys for task, keys in older.items() if keys}
    if stale:
        keys = sorted({key for keys in stale.values() for key in keys})
        yield case.problem("old-task-config", {"keys": keys}, tasks=stale)


def no_progress(case: FlowCase) -> Iterator[LiveProblem]:
    """Records wait, and neither stored offsets nor the remote topics moved."""
    blind = case.lag.blind
    limit = case.patience.no_progress_blind_seconds if blind else case.patience.no_progress_seconds
    stuck = {
        task: mark.clock.seconds for task, mark in case.marks.items() if mark.behind and mark.clock.seconds >= limit
    }
    if case.state != "RUNNING" or not stuck:
        return
    committed = text_of("source", case.seen.desired.config, "source consumer", "isolation.level") == "read_committed"
    evidence = {"blind": blind, "read_committed": committed, "target": case.flow.target.alias}
    tasks = [] if set(stuck) == {"-"} else [int(task) for task in stuck if task != "-"]
    yield case.problem("no-progress", evidence, since=min(stuck.values()), tasks=tasks)


def abandoned_partitions(case: FlowCase) -> Iterator[LiveProblem]:
    """Partitions that the flow wants and no task has; new ones are found at the next refresh."""
    clocks = {str(partition): case.kept.unassigned.get(str(partition)) for partition in case.lag.unassigned}
    waited = {name: clock.seconds for name, clock in clocks.items() if clock}
    late = {name: seconds for name, seconds in waited.items() if seconds > case.flow.settings.refresh_interval}
    if late:
        evidence = {
            "partitions": list(late)[:_PARTITIONS_NAMED],
            "partition_count": len(late),
            "source": case.flow.source.alias,
            "target": case.flow.target.alias,
        }
        yield case.problem("partitions-unassigned", evidence, since=max(late.values()))


CONNECTOR_RULES: tuple[Callable[[ConnectorCase], Iterator[LiveProblem]], ...] = (
    not_applied,
    no_status,
    failed,
    failed_tasks,
    unassigned,
    on_departed_worker,
    heartbeat_without_task,
    offsets_on_the_way,
    drifted,
)
FLOW_RULES: tuple[Callable[[FlowCase], Iterator[LiveProblem]], ...] = (
    no_tasks,
    matches_nothing,
    not_in_wished_state,
    resting,
    no_progress,
    abandoned_partitions,
    old_config,
)


def failures(connector: LiveConnector) -> tuple[LiveProblem, ...]:
    """Return what of a connector FAILED."""
    case = ConnectorCase(connector, Patience())
    return (*failed(case), *failed_tasks(case))


def connector_problems(case: ConnectorCase) -> tuple[LiveProblem, ...]:
    """Return the problems that any connector can have."""
    return tuple(problem for rule in CONNECTOR_RULES for problem in rule(case))


def flow_problems(case: FlowCase) -> tuple[LiveProblem, ...]:
    """Return the problems of a flow: of its source connector, and of what arrives."""
    return connector_problems(case) + tuple(problem for rule in FLOW_RULES for problem in rule(case))


def _moving_offsets(case: ConnectorCase) -> bool:
    return case.seen.running is not None and Journal.of(case.seen.running.config) is not None


def _runs_empty(case: ConnectorCase) -> bool:
    status = case.seen.status
    return status is not None and status.state == "RUNNING" and not status.tasks


def companion_notes(case: ConnectorCase) -> tuple[str, ...]:
    """Return the notes on a companion connector."""
    notes, status = _state_notes(case), case.seen.status
    if case.seen.desired.type == "checkpoint" and status and status.state == "RUNNING" and not status.tasks:
        reason = "no consumer group has offsets on these topics, or the source does not answer the workers"
        notes.append(f"no task: {reason}")
    return tuple(notes)


def flow_notes(case: FlowCase) -> tuple[str, ...]:
    """Return the notes on a flow."""
    lag, notes = case.lag, _state_notes(case)
    if case.state == (case.flow.settings.state or "").upper() and case.state in RESTING:
        notes = [f"{case.state}, as declared"]
    if lag.unassigned:
        every = case.flow.settings.refresh_interval
        notes.append(f"{len(lag.unassigned)} partitions have no task: new partitions are detected every {every:.0f} s")
    if lag.deleted:
        names = ", ".join(sorted({partition.topic for partition in lag.deleted})[:3])
        notes.append(f"tasks still hold partitions that {case.flow.source.alias} no longer has: {names}")
    is_counted = case.seen.running is not None and lag.unknown is None
    if case.exactly_once is None and is_counted and case.flow.settings.replication_policy == "default":
        notes.append(
            "whether records arrive twice is not known: the workers do not tell whether they are exactly-once, so that"
            " transaction markers cannot be told from records"
        )
    if unread := case.seen.tasks_unread:
        notes.append(f"tasks could not be read: {unread.message}")
    return tuple(notes)


def offsets_note(case: FlowCase, target: SeenKafka, grown: str) -> str:
    """Return how accurate the lag is: Connect stores offsets at intervals, and only stored offsets can be read.

    `grown` is what `growth` says.
    """
    lag = case.lag
    if case.seen.running is None or lag.unknown is not None:
        return f"lag unknown: {lag.unknown or 'the connector is not applied'}"
    parts = []
    if case.state == "STOPPED":
        parts.append("exact: a stopped connector has stored all its offsets")
    elif lag.total_records and not case.flow.exactly_once:
        every = "every offset.flush.interval.ms (60 s by default)"
        parts.append(f"workers store offsets {every}, so the true lag may be lower")
    parts += [part for part in (grown, _nothing_stored(case), _past_end(case), _marker(case), _unread(case)) if part]
    if target.failure:
        parts.append(f"the target could not be read: {target.failure.message}")
    return "; ".join(parts)


def growth(case: FlowCase, now: float, before: Mapping[str, Mark]) -> str:
    """Return by how much the target grew since the last observation, where that is more than the stored offsets show.

    Empty for an exactly-once flow: its offsets are stored in the transaction that writes the records.
    """
    if case.flow.exactly_once or case.exactly_once:
        return ""
    both = [(case.marks[task], before[task]) for task in case.marks if task in before]
    growths = [(mark.arrived - old.arrived, mark.stored - old.stored) for mark, old in both
            if mark.arrived is not None and old.arrived is not None]  # fmt: skip
    arrived, stored = sum(grown for grown, _ in growths), max(0, sum(grown for _, grown in growths))
    if arrived <= stored:
        return ""
    seconds = now - max(old.clock.seen_at for _, old in both)
    return (
        f"in the last {seconds:.0f} s the target received {_at_most(case, arrived)}, of which the stored offsets show"
        f" {stored}"
    )


def _state_notes(case: ConnectorCase) -> list[str]:
    if case.state in RESTING:
        return [f"{case.state}: it does nothing until mm2mgr resume"]
    if case.state == "no status" and case.without_status_seconds < case.patience.no_status_seconds:
        return [f"no status for {case.without_status_seconds:.0f} s: a new connector first waits for both clusters"]
    return []


def _nothing_stored(case: FlowCase) -> str:
    empty = [partition for partition in case.lag.counted if partition.stored is None and partition.lag_records]
    arrived = sum(partition.arrived or 0 for partition in empty)
    already = f", but their remote topics hold {_at_most(case, arrived)} already" if arrived else ""
    return f"nothing stored yet for {len(empty)} partitions{already}" if empty else ""


def _past_end(case: FlowCase) -> str:
    past = [str(partition.partition) for partition in case.lag.counted if partition.past_end]
    if not past:
        return ""
    reason = "the topic was deleted and created again, or truncated"
    return f"the stored offset is past the end of {few(past)} ({reason}), so all that the log has counts as lag"


def _at_most(case: FlowCase, end_offsets: int) -> str:
    """Return growth of end offsets in words: 500 records in one transaction move an end by 501 (its marker)."""
    if case.exactly_once or case.flow.connect.exactly_once:
        return f"{end_offsets} records and transaction markers"
    unknown = " (or transaction markers: not known, as the workers do not tell whether they are exactly-once)"
    return f"{end_offsets} records{unknown if case.exactly_once is None else ''}"


def _marker(case: FlowCase) -> str:
    single = case.lag.total_records and all(partition.lag_records <= 1 for partition in case.lag.counted)
    return "one record behind can be a transaction's end marker, which is never mirrored" if single else ""


def _unread(case: FlowCase) -> str:
    for partition, reason in case.lag.unread.items():
        return f"{len(case.lag.unread)} partitions of the source could not be read ({partition}: {reason})"
    return ""

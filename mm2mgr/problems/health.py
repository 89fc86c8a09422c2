"""The status of every flow and of its companion connectors: states, lag, problems, notes, one word of health; and one
flow in full. Pure.

`ok` requires that all tasks run and that records were seen to arrive, or that none wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr import secrets
from mm2mgr.cluster_mirroring import MirroringAdvice, advise_flow
from mm2mgr.comparison.ownership import HELD_KEY, is_held
from mm2mgr.connectors import RESTING, Connector
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.observe.audits import AuditState
from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.observe.interruptions import InterruptionReport
from mm2mgr.observe.lag import FlowLag, LastStored, PartitionLag
from mm2mgr.observe.lag_report import LagRow
from mm2mgr.observe.losses import LossEntry, open_entries
from mm2mgr.observe.memory import FlowMemory, Mark, Memory
from mm2mgr.observe.reading import LiveConnector, Patience, Reading
from mm2mgr.observe.trend import FLOW, Trend, lag_trend
from mm2mgr.problems import companion_problems, flow_problems
from mm2mgr.problems.audit import audit_differs, not_audited
from mm2mgr.problems.connectors import Orphan, companion_rests_by_hand, find_orphans
from mm2mgr.problems.failover import failover_problems, rehearsal_problems
from mm2mgr.problems.flows import Resting, WorkersSilent, danger_text, find_overlaps, often_interrupted, workers_silent
from mm2mgr.problems.kind import ConnectorCase, FlowCase, LiveProblem, ProblemSubject, name_some
from mm2mgr.problems.loss import OffsetsNotStored, offsets_not_stored, records_lost
from mm2mgr.text import few, number_of, one_line, span_text
from mm2mgr.topology import Flow, KafkaCluster, config_text
from mm2mgr.truth.reach import text_of

Health = Literal["ok", "waiting", "problem", "unknown"]

_WORST_FIRST: tuple[Health, ...] = ("problem", "unknown", "waiting", "ok")
_MOST_SHOWN = 5  # partitions named per flow


@dataclass(frozen=True)
class TaskState:
    """One task: its state in Connect's words, its worker, and how many partitions it has (None: unknown)."""

    id: int
    state: str
    worker: str = ""
    partitions: int | None = None


@dataclass(frozen=True)
class ConnectorState:
    """One connector: `state` in Connect's words, or `not applied`, `no status`, `unknown`."""

    connect: str
    connector: str
    type: str
    pair: str
    state: str
    health: Health
    tasks: tuple[TaskState, ...] = ()
    problems: tuple[LiveProblem, ...] = ()
    notes: tuple[str, ...] = ()
    json_keys = "connect connector type pair state health tasks problem_values=problems notes problems=sentences"

    @property
    def name(self) -> str:
        """What people call it: the flow, or the connector."""
        return self.connector

    @property
    def sentences(self) -> list[str]:
        """Its problems in words."""
        return [problem.sentence for problem in self.problems]


@dataclass(frozen=True)
class FlowStatus(ConnectorState):
    """A flow through its source connector. `lag_records` is None where it is unknown, and a lower bound with
    `lag_at_least`; `offsets_note` says why. `trend`: what the lag has done over the looks of all commands and of
    `serve`; None after one look. `audit`: the last verdict on its records; None where it declares no audits.
    `interruptions`: assignment changes and failures in the last hour and in 30 days; None where it was never read;
    `interruptions_with_lanes`: those of a flow with lanes on all of its connectors. `lane_of`: the id of the flow that
    it is a lane of, None for any other flow. `lag_age_seconds`: how old the offsets may be that the lag is counted
    from, by the declared `flush_interval`; None where that makes no difference.
    """

    flow: str = field(kw_only=True)
    lane_of: str | None = field(kw_only=True, default=None)
    lag_records: int | None = field(kw_only=True, default=None)
    lag_at_least: bool = field(kw_only=True, default=False)
    lag_partitions: tuple[PartitionLag, ...] = field(kw_only=True, default=())
    lag_age_seconds: float | None = field(kw_only=True, default=None)
    offsets_note: str = field(kw_only=True, default="")
    trend: Trend | None = field(kw_only=True, default=None)
    audit: AuditState | None = field(kw_only=True, default=None)
    interruptions: InterruptionReport | None = field(kw_only=True, default=None)
    interruptions_with_lanes: InterruptionReport | None = field(kw_only=True, default=None)
    json_keys = (
        "flow lane_of connect connector type pair state health tasks problem_values=problems notes partitions_per_task "
        "lag_records lag_at_least lag_age_seconds lag_partitions offsets_note trend audit interruptions "
        "interruptions_with_lanes problems=sentences"
    )

    @property
    def name(self) -> str:
        return self.flow

    @property
    def partitions_per_task(self) -> dict[int, int | None]:
        """Partitions by task id; None where the tasks could not be read."""
        return {task.id: task.partitions for task in self.tasks}


@dataclass(frozen=True)
class Status:
    """Everything that was observed. `failures` are clusters that could not be read, as `connect NAME` or `kafka ALIAS`.

    `losses` are not acknowledged yet; `warnings` say what was wrong with the state file and the table of losses.
    `failover`: what checks say of each pair that declares it (None: there was none in the last days); empty where that
    could not be read. `rehearsals`: the same of the rehearsals of pairs that ask for some.
    """

    taken_at: float
    flows: tuple[FlowStatus, ...]
    companions: tuple[ConnectorState, ...] = ()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    orphans: tuple[Orphan, ...] = ()
    stale_offsets: tuple[OffsetsNotStored, ...] = ()
    losses: tuple[LossEntry, ...] = ()
    warnings: tuple[str, ...] = ()
    failover: Mapping[str, ReadinessState | None] = field(default_factory=dict)
    rehearsals: Mapping[str, RehearsalState | None] = field(default_factory=dict)

    @property
    def health(self) -> Health:
        """The worst health among the flows, or `problem` where something beside them has one."""
        beside = [
            *(companion.health == "problem" for companion in self.companions),
            *(orphan.runs for orphan in self.orphans),
            *(offset.is_problem for offset in self.stale_offsets),
        ]
        if self.losses or any(beside):
            return "problem"
        unread: list[Health] = ["unknown" for where in self.failures if where.startswith("connect ")]
        return min([*(flow.health for flow in self.flows), *unread], key=_WORST_FIRST.index, default="ok")

    def problems(self) -> tuple[LiveProblem, ...]:
        """Return every problem: of flows, of companions, and of what belongs to no flow of this status."""
        declared = {flow.flow for flow in self.flows}
        return (
            *(problem for status in (*self.flows, *self.companions) for problem in status.problems),
            *(orphan.problem for orphan in self.orphans if orphan.runs),
            *(offsets.problem for offsets in self.stale_offsets if offsets.is_problem),
            *records_lost((loss for loss in self.losses if loss.flow not in declared), self.taken_at),
        )

    def told_failures(self) -> dict[str, Failure]:
        """Return the failures that a problem of flows is about: workers that nobody can read are one thing wrong, as
        often as it is told."""
        silent = ((problem.subject.connect, problem.evidence) for flow in self.flows for problem in flow.problems)
        places = [evidence.places(connect) for connect, evidence in silent if isinstance(evidence, WorkersSilent)]
        return {
            where: failure
            for where, failure in self.failures.items()
            if any(where in silent_places for silent_places in places)
        }

    def counts(self) -> dict[str, int]:
        """Return how many flows have each health, worst first."""
        return {word: sum(flow.health == word for flow in self.flows) for word in _WORST_FIRST}

    def to_dict(self) -> dict[str, object]:
        """Return the status as JSON-ready values; text and pages are made from this too."""
        return {
            "taken_at": self.taken_at,
            "health": self.health,
            "counts": self.counts(),
            "flows": to_json(self.flows),
            "companions": to_json(self.companions),
            "orphans": [to_json(orphan) | {"detail": orphan.sentence()} for orphan in self.orphans],
            "stale_offsets": [to_json(offsets) | {"detail": offsets.sentence()} for offsets in self.stale_offsets],
            "losses": to_json(self.losses),
            "failover": to_json(self.failover),
            "rehearsals": to_json(self.rehearsals),
            "problem_values": [to_json(problem) for problem in self.problems()],
            "failures": to_json(self.failures),
            "warnings": list(self.warnings),
        }


def with_lag(status: Status, totals: Mapping[str, LagRow], limits: Mapping[str, float]) -> Status:
    """Return a status whose flows that rest by hand say what is known of the age of the records that wait, by samples
    and retention: `totals`: the lag of each flow, `limits`: its `max_lag`."""

    def refine(problem: LiveProblem) -> LiveProblem:
        evidence, total = problem.evidence, totals.get(problem.subject.flow)
        if not isinstance(evidence, Resting) or total is None:
            return problem
        left = total.overtaken.seconds if total.overtaken else None
        is_exact, most = not total.seconds.at_least, limits.get(problem.subject.flow)
        danger = danger_text(total.seconds.value, most, left, is_exact=is_exact)
        return replace(problem, evidence=replace(evidence, danger=danger or evidence.danger))

    flows = (replace(flow, problems=tuple(map(refine, flow.problems))) for flow in status.flows)
    return replace(status, flows=tuple(flows))


@dataclass(frozen=True)
class FailoverStates:
    """What checks and rehearsals of failover say of pairs; None: that could not be read, or was not asked for."""

    checks: Mapping[str, ReadinessState] | None = None
    rehearsals: Mapping[str, RehearsalState] | None = None

    def problems(self, flow: Flow, subject: ProblemSubject, since: float | None, now: float) -> tuple[LiveProblem, ...]:
        """Return what is wrong with the failover of the pair of a flow, known to declare it `since` then."""
        problems: list[LiveProblem] = []
        if self.checks is not None:
            problems += failover_problems(flow, subject, self.checks.get(flow.pair), since, now)
        if self.rehearsals is not None:
            problems += rehearsal_problems(flow, subject, self.rehearsals.get(flow.pair), now)
        return tuple(problems)


def judge(  # noqa: PLR0913 - a reading, what is remembered before and after it, and the limits
    reading: Reading,
    lags: Mapping[str, FlowLag],
    earlier: Memory,
    memory: Memory,
    *,
    patience: Patience | None = None,
    ledger: Iterable[LossEntry] = (),
    audits: Mapping[str, AuditState] | None = None,
    checks: FailoverStates = FailoverStates(),
) -> Status:
    """Judge a reading by the memory before it and after it (`memory.remember`), by the ledger's entries, and by what is
    known of audits of the flows, and of checks and rehearsals of the pairs that declare them (None: not read)."""
    losses = open_entries(ledger, None if reading.whole else [flow.id for flow in reading.flows])
    patience = patience or Patience()
    (overlaps, notes), about = find_overlaps(reading), (reading, memory, patience)
    companions = [ConnectorCase(companion, *about) for companion in reading.companions()]
    flows: list[FlowStatus] = []
    for flow in reading.flows:
        lost = [loss for loss in losses if loss.flow == flow.id]
        if connector := reading.source_connector(flow):
            beside, lag = overlaps.get(flow.id, ()), lags.get(flow.id, FlowLag())
            case = FlowCase(connector, *about, flow=flow, lag=lag, overlaps=beside)
            judged = _flow_status(case, earlier, notes.get(flow.id, ()), lost)
        else:
            judged = _unread_status(reading, flow, lost, lags.get(flow.id), memory.flow(flow.id))
        judged = replace(judged, lane_of=flow.whole_id if flow.lane_of else None)
        judged = _with_audit(judged, flow, audits, memory, reading.taken_at)
        flows.append(_with_failover(judged, flow, checks, reading, memory))
    return Status(
        reading.taken_at,
        tuple(flows),
        tuple(_companion(case, checks) for case in companions),
        reading.failures(),
        find_orphans(
            (orphan for connect in reading.connects.values() for orphan in connect.orphans),
            reading.declared,
            reading.moves,
        ),
        tuple(offsets_not_stored(reading, memory, patience.not_stored_seconds)),
        losses,
        failover={}
        if checks.checks is None
        else {flow.pair: checks.checks.get(flow.pair) for flow in reading.flows if flow.failover},
        rehearsals={}
        if checks.rehearsals is None
        else {
            flow.pair: checks.rehearsals.get(flow.pair)
            for flow in reading.flows
            if flow.failover and flow.failover.rehearse_every
        },
    )


def _flow_status(case: FlowCase, earlier: Memory, notes: Sequence[str], lost: Iterable[LossEntry]) -> FlowStatus:
    """Judge a flow; its open losses are a problem until they are acknowledged, even if it has recovered."""
    flow, lag, now = case.flow, case.lag, case.reading.taken_at
    info, creates = case.connector.running, None
    if info:
        creates = text_of("source", info.config, "source consumer", "allow.auto.create.topics") == "true"
    lost = list(lost)
    silent = lag.last_stored and case.state == "RUNNING"
    problems = (
        *(workers_silent(flow, lag, case.flow_memory.progress.get(FLOW, ()), flow.connect.kafka) if silent else ()),
        *flow_problems(case),
        *records_lost(lost, now, creates),
        *audit_differs(lost, now),
    )
    return FlowStatus(
        *_name_fields(case),
        "problem" if problems else _flow_health(case),
        _tasks(case.connector),
        problems,
        (*flow_notes(case), *notes),
        flow=flow.id,
        lag_records=lag.total_records if info else None,
        lag_at_least=lag.is_lower_bound,
        lag_age_seconds=_lag_age(case),
        lag_partitions=lag.most_behind(_MOST_SHOWN),
        offsets_note=offsets_note(case, growth(case, earlier.flow(flow.id).marks)),
        trend=case.trend,
        interruptions=case.interruptions,
        interruptions_with_lanes=case.interruptions_with_lanes,
    )


def _with_audit(
    status: FlowStatus, flow: Flow, audits: Mapping[str, AuditState] | None, memory: Memory, now: float
) -> FlowStatus:
    """Add what is known of the audits of a flow that declares them; two days without a verdict are a problem."""
    if flow.settings.audit is None or audits is None:
        return status
    state = audits.get(flow.id, AuditState())
    late = tuple(not_audited(flow, state, memory.audited_since.get(flow.id), now))
    problems = (*status.problems, *late)
    return replace(status, audit=state, problems=problems, health="problem" if late else status.health)


def _with_failover(
    status: FlowStatus, flow: Flow, checks: FailoverStates, reading: Reading, memory: Memory
) -> FlowStatus:
    """Add what checks say of failover to the first flow of a pair whose Connect cluster cannot be read: elsewhere it is
    a matter of the checkpoint connector."""
    first = next(other for other in reading.flows if other.pair == flow.pair)
    if first is not flow or status.state != "unknown":
        return status
    subject = ProblemSubject(flow.connect.name, flow=flow.id)
    problems = checks.problems(flow, subject, memory.failover_since.get(flow.pair), reading.taken_at)
    return replace(status, problems=(*status.problems, *problems), health="problem" if problems else status.health)


def _name_fields(case: ConnectorCase) -> tuple[str, str, str, str, str]:
    desired = case.connector.desired
    return desired.connect, desired.name, desired.type, desired.pair, case.state


def _unread_status(
    reading: Reading, flow: Flow, lost: Iterable[LossEntry], lag: FlowLag | None, memory: FlowMemory
) -> FlowStatus:
    """Judge a flow whose workers do not answer, by what they stored last and by both Kafka clusters."""
    connect = reading.connects[flow.connect.name]
    failure, own = connect.failure, flow.connect.kafka if reading.home_failure(connect.name) else ""
    reason = one_line(failure.message) if failure else "no source connector was rendered for this flow"
    lost, last_lag = list(lost), lag if lag and lag.last_stored and lag.total_records is not None else None
    points = memory.progress.get(FLOW, ())
    going = lag_trend(points, (), 0.0, frozen=True) if last_lag else None
    problems = (
        *(workers_silent(flow, last_lag, points, own, connect.silent_urls) if last_lag and not memory.rest else ()),
        *records_lost(lost, reading.taken_at),
        *audit_differs(lost, reading.taken_at),
    )
    return FlowStatus(
        flow.connect.name, "", "source", flow.pair, "unknown", "problem" if problems else "unknown", (), problems,
        (reason,), flow=flow.id,
        lag_records=last_lag.total_records if last_lag else None,
        lag_at_least=last_lag is not None and last_lag.is_lower_bound,
        lag_partitions=last_lag.most_behind(_MOST_SHOWN) if last_lag else (),
        offsets_note=_unread_offsets_note(flow, reading, lag),
        trend=going,
    )  # fmt: skip


def _unread_offsets_note(flow: Flow, reading: Reading, lag: FlowLag | None) -> str:
    """Return what the lag of a flow is counted from while its workers do not answer."""
    if lag is None or lag.last_stored is None:
        return "unknown: the Connect cluster could not be read"
    if lag.unknown is not None:
        return f"lag unknown: {lag.unknown}"
    return f"no worker of {flow.connect.name} answers: {_counted_from(reading, lag.last_stored)}"


def _counted_from(reading: Reading, last: LastStored) -> str:
    place = (
        "the offsets in the workers' topic"
        if last.seen_at is None
        else f"the offsets that were stored at the last look at its workers, {_ago(reading, last.seen_at)} ago"
    )
    moves = "; the target grows, so workers run, and only mm2mgr cannot reach them"
    fewer = "; the target has grown since, so fewer may wait" if last.uncounted else ""
    return f"lag is counted from {place}{moves if last.target_moves else ''}{fewer}"


def _ago(reading: Reading, at: float) -> str:
    return span_text(max(0.0, reading.taken_at - at))


def _flow_health(case: FlowCase) -> Health:
    """Return the health of a flow without problems: `ok` needs records that were seen to move, or none that wait.

    Where the target could never be read, stored offsets that move are enough; where it was and is not, they are not.
    """
    lag, status = case.lag, case.connector.status
    if status is None or not status.runs or lag.defects.unassigned:
        return "waiting"
    if lag.total_records is None or lag.unread or lag.last_stored or case.connector.tasks_unread:
        return "unknown"
    if lag.total_records and case.has_lost_target:
        return "unknown"
    waiting = {task for task, mark in case.marks.items() if mark.behind}
    moving = {task for task, mark in case.marks.items() if mark.moved}
    return "ok" if not lag.total_records or (moving and waiting <= moving) else "waiting"


def _companion(case: ConnectorCase, checks: FailoverStates) -> ConnectorState:
    """Without consumer groups a checkpoint connector needs no task. What checks say of failover is a matter of its
    pair's checkpoint connector."""
    problems, desired = companion_problems(case), case.connector.desired
    if desired.type == "checkpoint":
        flow, subject = case.reading.flows_of(case.connector)[0], ProblemSubject(desired.connect, desired.name)
        since, now = case.memory.failover_since.get(flow.pair), case.reading.taken_at
        problems += checks.problems(flow, subject, since, now)
    health: Health = "problem" if problems else "ok" if case.connector.runs else "waiting"
    return ConnectorState(*_name_fields(case), health, _tasks(case.connector), problems, companion_notes(case))


def _tasks(connector: LiveConnector) -> tuple[TaskState, ...]:
    tasks = connector.status.tasks if connector.status else ()
    counted = dict(enumerate(map(len, connector.assignment.tasks)))
    return tuple(TaskState(task.id, task.state, task.worker_id, counted.get(task.id)) for task in tasks)


# --- notes ------------------------------------------------------------------------------------------------------------


def companion_notes(case: ConnectorCase) -> tuple[str, ...]:
    """Return the notes on a companion connector."""
    notes = [] if any(companion_rests_by_hand(case)) else _state_notes(case)
    if case.connector.desired.type == "checkpoint" and case.runs_no_task:
        reason = "no consumer group has offsets on these topics, or the source does not answer the workers"
        notes.append(f"no task: {reason}")
    return tuple(notes)


def flow_notes(case: FlowCase) -> tuple[str, ...]:
    """Return the notes on a flow."""
    lag, notes = case.lag, _state_notes(case)
    if case.state == (case.flow.settings.state or "").upper() and case.state in RESTING:
        notes = [f"{case.state}, as declared"]
    notes += assignment_notes(case.flow, lag)
    is_counted = case.connector.running is not None and lag.unknown is None
    if case.exactly_once is None and is_counted and case.flow.settings.replication_policy == "default":
        notes.append(
            "whether records arrive twice is not known: the workers do not tell whether they are exactly-once, so that"
            " transaction markers cannot be told from records"
        )
    if case.interruptions and any(case.last_hour) and not any(often_interrupted(case)):
        notes.append(case.interruptions.text)
    if (whole := case.interruptions_with_lanes) and any(whole.last_hour) and whole != case.interruptions:
        notes.append(f"with its lanes: {whole.text}")
    if case.connector.tasks_unread:
        notes.append(f"tasks could not be read: {one_line(case.connector.tasks_unread.message)}")
    return (*notes, *_own_kafka_note(case))


def _own_kafka_note(case: FlowCase) -> Iterator[str]:
    """Workers keep states in memory, and ask their own Kafka for tasks and offsets; offsets of an exactly-once flow
    that runs elsewhere than beside its target are there."""
    running, own, target = case.connector.running, case.flow.connect.kafka, case.flow.target.alias
    offsets_unread = running is not None and isinstance(running.offsets, Failure)
    if case.reading.failure_of(own) and (case.connector.tasks_unread or offsets_unread):
        yield (
            f"the workers live on {own}, which does not answer mm2mgr either: without it they answer for states only,"
            " as they last were; start its brokers, restart nothing: workers and tasks go on by themselves"
        )
    elif running and offsets_unread and case.reading.failure_of(target) and running.config.get("offsets.storage.topic"):
        yield f"its stored offsets live on {target}, which does not answer mm2mgr either: start its brokers"


def assignment_notes(flow: Flow, lag: FlowLag) -> Iterator[str]:
    """Yield what is unusual about the assignment of a flow, and no problem by itself."""
    defects = lag.defects
    if defects.unassigned:
        every = flow.settings.refresh_interval
        yield f"{len(defects.unassigned)} partitions have no task: new partitions are detected every {span_text(every)}"
    if defects.held:
        names = name_some(map(str, defects.held), "partition")
        yield f"held by the connector's assignment, in no task, so that their records wait: {names}"
    if defects.idle:
        yield f"without a partition, so that it mirrors nothing: {name_some(map(str, defects.idle), 'task')}"
    if defects.gone:
        names = ", ".join(sorted({partition.topic for partition in defects.gone})[:3])
        yield f"tasks still hold partitions that {flow.source.alias} no longer has: {names}"


def offsets_note(case: FlowCase, grown: str) -> str:
    """Return how accurate the lag is: Connect stores offsets at intervals, and only stored offsets can be read.

    `grown` is what `growth` says.
    """
    lag = case.lag
    if case.connector.running is None or lag.unknown is not None:
        return f"lag unknown: {lag.unknown or 'the connector is not applied'}"
    parts = []
    if lag.last_stored:
        parts.append(f"{case.flow.connect.kafka} does not answer: {_counted_from(case.reading, lag.last_stored)}")
    elif case.state == "STOPPED":
        parts.append("exact: a stopped connector has stored all its offsets")
    elif lag.total_records and not case.flow.exactly_once:
        every = span_text(case.flow.connect.model.flush_interval)
        parts.append(f"workers store offsets every {every} (flush_interval), so the true lag may be lower")
    parts += [
        part for part in (grown, _nothing_stored(case), _past_end(case), _markers(case), _unread_note(case)) if part
    ]
    target = case.reading.clusters.get(case.flow.target.alias)
    if target and target.failure:
        parts.append(f"the target could not be read: {one_line(target.failure.message)}")
    return "; ".join(parts)


def _lag_age(case: FlowCase) -> float | None:
    is_stored_with_records = case.flow.exactly_once or case.exactly_once
    if case.lag.unknown is not None or is_stored_with_records or case.state in {*RESTING, "FAILED"}:
        return None
    return case.lag.age_seconds(case.flow.connect.model.flush_interval)


def growth(case: FlowCase, before: Mapping[str, Mark]) -> str:
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
    seconds = case.reading.taken_at - max(old.clock.seen_at for _, old in both)
    return (
        f"in the last {span_text(seconds)} the target received {_at_most(case, arrived)}, of which the stored offsets"
        f" show {stored}"
    )


def _state_notes(case: ConnectorCase) -> list[str]:
    if case.state in RESTING and case.journal:
        return [f"{case.state}: as long as the move of its offsets is not finished"]
    if case.state in RESTING:
        config = case.connector.running.config if case.connector.running else {}
        until = config[HELD_KEY] if is_held(config) else "until mm2mgr resume"
        return [f"{case.state}: it does nothing {until}"]
    if case.state == "no status" and case.without_status_seconds < case.patience.no_status_seconds:
        return [
            f"no status for {span_text(case.without_status_seconds)}: a new connector first waits for both clusters"
        ]
    return []


def _nothing_stored(case: FlowCase) -> str:
    empty = [
        partition for partition in case.lag.counted_partitions if partition.stored is None and partition.lag_records
    ]
    arrived = sum(partition.arrived or 0 for partition in empty)
    already = f", but their remote topics hold {_at_most(case, arrived)} already" if arrived else ""
    return f"nothing stored yet for {len(empty)} partitions{already}" if empty else ""


def _past_end(case: FlowCase) -> str:
    past = [str(partition.partition) for partition in case.lag.counted_partitions if partition.past_end]
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


def _markers(case: FlowCase) -> str:
    if markers := sum(partition.markers for partition in case.lag.counted_partitions):
        level = "" if case.lag.total_records else "level: "
        offsets = f"{number_of(markers, 'offset')} at the end of its logs"
        return f"{level}{offsets} {'hold' if markers > 1 else 'holds'} nothing to mirror, such as transaction markers"
    single = case.lag.total_records and all(partition.lag_records <= 1 for partition in case.lag.counted_partitions)
    return "one record behind can be a transaction's end marker, which is never mirrored" if single else ""


def _unread_note(case: FlowCase) -> str:
    for partition, reason in case.lag.unread.items():
        return f"{len(case.lag.unread)} partitions of the source could not be read ({partition}: {reason})"
    return ""


# --- one flow in full -----------------------------------------------------------------------------------------------

_TRACE_LINES = 12
_TRACE_CHARACTERS = 200
_CLIENTS = (
    "source_consumer",
    "record_producer",
    "source_admin",
    "target_admin",
    "offset_syncs_producer",
    "target_consumer",
)


@dataclass(frozen=True)
class Description:
    """One flow in full."""

    flow: Flow
    reading: Reading
    lag: FlowLag
    status: Status
    connectors: tuple[Connector, ...] = ()

    @property
    def flow_status(self) -> FlowStatus:
        """The flow's own status."""
        return next(flow for flow in self.status.flows if flow.flow == self.flow.id)

    def to_dict(self) -> dict[str, object]:
        """Return the description; `topics` gives the target topic of each source topic."""
        flow, status = self.flow, self.status
        topics = [dict(zip(("topic", "remote_topic", "partitions"), topic, strict=True)) for topic in self.topics]
        tasks = [dict(zip(("id", "state", "worker", "partitions", "trace"), task, strict=True)) for task in self.tasks]
        settings = [dict(zip(("setting", "value", "origin"), setting, strict=True)) for setting in self.settings]
        return {
            "flow": flow.id,
            "lane_of": flow.whole_id if flow.lane_of else None,
            "lanes": self.lanes,
            "source": _cluster(flow.source),
            "target": _cluster(flow.target),
            "connect": {"name": flow.connect.name, "urls": list(flow.connect.model.url), "kafka": flow.connect.kafka},
            "status": to_json(self.flow_status),
            "trace": self.trace,
            "tasks": tasks,
            "lag": to_json(self.lag.partitions),
            "topics": topics,
            "companions": to_json(status.companions),
            "settings": settings,
            "cluster_mirroring": to_json(self.cluster_mirroring),
            "losses": to_json(status.losses),
            "warnings": list(status.warnings),
            "failures": to_json(status.failures),
        }

    @property
    def lanes(self) -> list[str]:
        """The other lanes of a flow by their ids; none of a lane."""
        others = (other for other in self.reading.declared if other.whole_id == self.flow.id != other.id)
        return [] if self.flow.lane_of else [other.id for other in others]

    @property
    def cluster_mirroring(self) -> MirroringAdvice:
        """Whether Cluster Mirroring (KIP-1279) could take the flow."""
        target = self.reading.clusters.get(self.flow.target.alias)
        configs = target.configs if target else {}
        tiered = [
            remote
            for _, remote, _ in self.topics
            if remote in configs and configs[remote].values.get("remote.storage.enable") == "true"
        ]
        return advise_flow(self.flow, self.reading.declared, self.connectors, tiered)

    @property
    def trace(self) -> list[str]:
        """The trace of its connector, cut."""
        connector = self.reading.source_connector(self.flow)
        return trace_lines(connector.status.trace) if connector and connector.status else []

    @property
    def tasks(self) -> list[tuple[int, str, str, list[str], list[str]]]:
        """Id, state, worker, partitions and the lines of the trace of each task."""
        connector = self.reading.source_connector(self.flow)
        if connector is None or connector.status is None:
            return []
        assigned = dict(enumerate(connector.assignment.tasks))
        return [
            (
                task.id,
                task.state,
                task.worker_id,
                [*map(str, sorted(assigned.get(task.id, ())))],
                trace_lines(task.trace),
            )
            for task in connector.status.tasks
        ]

    @property
    def topics(self) -> list[tuple[str, str, int]]:
        """Each topic that the flow carries, its name on the target, and its partitions."""
        counts = Counter(lag.partition.topic for lag in self.lag.partitions)
        return [(topic, self.flow.remote_topic(topic), count) for topic, count in sorted(counts.items())]

    @property
    def settings(self) -> Iterator[tuple[str, str, str]]:
        """Setting, value and origin, as `flow_settings` has them."""
        return flow_settings(self.flow)


def flow_settings(flow: Flow) -> Iterator[tuple[str, str, str]]:
    """Setting, value as it is written, and origin, secrets masked: the main ones, of the clients what differs from
    Kafka's own defaults, and then every other one that is written in the tree, with its place."""
    yield from (shown := list(_main_settings(flow)))
    names = {name for name, _, _ in shown}
    ends: dict[tuple[object, ...], object] = {("sources",): flow.source.alias, ("targets",): flow.target.alias}
    values = {**flow.spelt, **{path: ends[path[:1]] for path in flow.written if path[:1] in ends}}
    for path, origin in flow.written.items():
        name = ".".join(map(str, path))
        if name not in names and origin.kind != "default" and path in values:
            yield name, secrets.mask(str(path[-1]), _written_text(values[path])), str(origin)


def _main_settings(flow: Flow) -> Iterator[tuple[str, str, str]]:
    settings = flow.settings
    values: dict[tuple[str, ...], object] = {
        ("topics", "include"): ", ".join(settings.topics.include),
        ("topics", "exclude"): ", ".join(settings.topics.exclude),
        ("replication_policy",): settings.replication_policy,
        ("separator",): settings.separator,
        ("refresh_interval",): flow.spelt.get(("refresh_interval",), span_text(settings.refresh_interval)),
        ("checkpoints", "enabled"): settings.checkpoints.enabled,
        ("checkpoints", "group_offsets"): settings.checkpoints.group_offsets,
        ("heartbeats", "enabled"): settings.heartbeats.enabled,
        ("offset_syncs", "enabled"): settings.offset_syncs.enabled,
        ("offset_syncs", "location"): settings.offset_syncs.location,
        ("sync", "topic_configs"): settings.sync.topic_configs,
        ("sync", "topic_acls"): settings.sync.topic_acls,
    }
    maximum = flow.tasks.maximum
    yield "tasks.max", str(maximum), str(maximum.origin)
    for path, value in values.items():
        yield ".".join(path), config_text(value), str(flow.origin(*path))
    for block in _CLIENTS:
        for key, text in flow.client(block).items():
            yield f"{block}.{key}", secrets.mask(key, text), str(text.origin)


def _written_text(value: object) -> str:
    """Return a value of the tree on one line, as YAML reads it again."""
    if value is None:
        return "null"
    return ", ".join(map(config_text, value)) if isinstance(value, list) else config_text(value)


def trace_lines(trace: str | None) -> list[str]:
    """Return the first lines of a Java trace and its last cause; masked before they are cut."""
    lines = secrets.mask_text(trace or "").splitlines()
    shown = lines[:_TRACE_LINES]
    causes = [line for line in lines[_TRACE_LINES:] if line.startswith("Caused by:")]
    if len(lines) > len(shown):
        shown += ["…", *causes[-1:]]
    return [line.rstrip()[:_TRACE_CHARACTERS] for line in shown]


def _cluster(cluster: KafkaCluster) -> dict[str, object]:
    protocol = cluster.client.get("security.protocol", "PLAINTEXT")
    return {
        "alias": cluster.alias,
        "bootstrap_servers": str(cluster.client["bootstrap.servers"]),
        "security_protocol": str(protocol),
    }

"""The status of every flow and of its companion connectors: states, lag, problems, one word of health; and one flow in full. Pure.

`ok` requires that all tasks run and that records were seen to arrive, or that none wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr import secrets
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.live.kafka_state import SeenKafka
from mm2mgr.observe.arrival_problems import (
    StaleOffsets,
    companion_arrival_problems,
    flow_arrival_problems,
    stale_offsets,
)
from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.lag import FlowLag, PartitionLag, SeenOffset, measure
from mm2mgr.observe.ledger import LossEntry, by_topic, open_entries
from mm2mgr.observe.memory import Memory
from mm2mgr.observe.overlaps import Overlaps, find_overlaps
from mm2mgr.observe.problems import (
    ConnectorCase,
    FlowCase,
    Patience,
    companion_notes,
    connector_problems,
    flow_notes,
    flow_problems,
    growth,
    offsets_note,
)
from mm2mgr.observe.reading import LiveConnector, Orphan, Reading
from mm2mgr.observe.trend import Trend
from mm2mgr.topology import Flow, KafkaCluster, config_text
from mm2mgr.truth.reach import text_of

Health = Literal["ok", "waiting", "problem", "unknown"]

_WORST_FIRST: tuple[Health, ...] = ("problem", "unknown", "waiting", "ok")
_NO_KAFKA = SeenKafka()
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
    json_keys = "connect connector type pair state health tasks problem_values=problems notes"


@dataclass(frozen=True)
class FlowStatus(ConnectorState):
    """A flow through its source connector. `lag_records` is None where it is unknown, and a lower bound with `lag_at_least`;
    `offsets_note` says why. `trend`: what the lag has done over the looks of all commands and of `serve`; None after one look.
    """

    flow: str = field(kw_only=True)
    lag_records: int | None = field(kw_only=True, default=None)
    lag_at_least: bool = field(kw_only=True, default=False)
    lag_partitions: tuple[PartitionLag, ...] = field(kw_only=True, default=())
    offsets_note: str = field(kw_only=True, default="")
    trend: Trend | None = field(kw_only=True, default=None)
    json_keys = (
        "flow connect connector type pair state health tasks problem_values=problems notes "
        "partitions_per_task lag_records lag_at_least lag_partitions offsets_note trend"
    )

    @property
    def partitions_per_task(self) -> dict[int, int | None]:
        """Partitions by task id; None where the tasks could not be read."""
        return {task.id: task.partitions for task in self.tasks}


@dataclass(frozen=True)
class Status:
    """Everything that was observed. `failures` are clusters that could not be read, as `connect NAME` or `kafka ALIAS`.

    `losses` are not acknowledged yet; `warnings` say what was wrong with the state file and the table of losses.
    """

    taken_at: float
    flows: tuple[FlowStatus, ...]
    companions: tuple[ConnectorState, ...] = ()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    orphans: tuple[Orphan, ...] = ()
    stale_offsets: tuple[StaleOffsets, ...] = ()
    losses: tuple[LossEntry, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def health(self) -> Health:
        """The worst health among the flows, or `problem` where something beside them has one; a waiting companion does not count."""
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
            *(orphan.problem() for orphan in self.orphans if orphan.runs),
            *(offset.problem() for offset in self.stale_offsets if offset.is_problem),
            *(loss.problem(self.taken_at) for loss in by_topic(self.losses) if loss.flow not in declared),
        )

    def counts(self) -> dict[str, int]:
        """Return how many flows have each health, worst first."""
        return {word: sum(flow.health == word for flow in self.flows) for word in _WORST_FIRST}

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON-ready values; text and pages are made from this too, the sentences in output/."""
        return {
            "taken_at": self.taken_at,
            "health": self.health,
            "counts": self.counts(),
            "flows": to_json(self.flows),
            "companions": to_json(self.companions),
            "orphans": to_json(self.orphans),
            "stale_offsets": to_json(self.stale_offsets),
            "losses": to_json(self.losses),
            "problem_values": [to_json(problem) for problem in self.problems()],
            "failures": to_json(self.failures),
            "warnings": list(self.warnings),
        }


def lags_of(reading: Reading, earlier: Memory | None = None) -> dict[str, FlowLag]:
    """Measure every flow of a reading whose connector could be read and exists, with the help of what is remembered."""
    lags = {}
    for flow in reading.flows:
        connector = reading.source_connector(flow)
        if connector and connector.running:
            lags[flow.id] = measure(reading, flow, connector, _seen_offsets(reading, flow, earlier))
    return lags


def _seen_offsets(reading: Reading, flow: Flow, earlier: Memory | None) -> dict[str, Mapping[int, SeenOffset]]:
    """Return what is remembered of stored offsets; those of a topic that was deleted and created again are of no use."""
    ids = reading.clusters.get(flow.source.alias, _NO_KAFKA).topic_ids
    topics = earlier.of(flow.id).topics if earlier else {}
    return {
        name: topic_looks.places
        for name, topic_looks in topics.items()
        if not topic_looks.ids or ids.get(name, topic_looks.ids[-1]) == topic_looks.ids[-1]
    }


@dataclass(frozen=True)
class Remembered:
    """The memory before this observation and after it (`memory.remember`), and the limits to judge by."""

    earlier: Memory
    memory: Memory
    patience: Patience = field(default_factory=Patience)


def judge(
    reading: Reading, lags: Mapping[str, FlowLag], remembered: Remembered, ledger: Iterable[LossEntry] = ()
) -> Status:
    """Judge a reading by what is remembered, and by the ledger's entries."""
    losses = open_entries(ledger, None if reading.whole else [flow.id for flow in reading.flows])
    beside = find_overlaps(reading)
    flows = tuple(
        _flow_status(reading, flow, lags.get(flow.id, FlowLag()), remembered, beside) for flow in reading.flows
    )
    return Status(
        reading.taken_at,
        tuple(_with_losses(reading, *pair, losses) for pair in zip(reading.flows, flows, strict=True)),
        tuple(
            _companion(ConnectorCase(*_case(companion, remembered)), remembered.memory, reading)
            for companion in reading.companions()
        ),
        reading.failures(),
        tuple(orphan for connect in reading.connects.values() for orphan in connect.orphans),
        tuple(stale_offsets(reading, remembered.memory, remembered.patience.not_stored_seconds)),
        losses,
    )


# --- flows ------------------------------------------------------------------------------------------------------------


def _flow_status(reading: Reading, flow: Flow, lag: FlowLag, remembered: Remembered, beside: Overlaps) -> FlowStatus:
    connector = reading.source_connector(flow)
    if connector is None:
        return _unread_status(reading, flow)
    source, target = (reading.clusters.get(cluster.alias, _NO_KAFKA) for cluster in (flow.source, flow.target))
    flow_memory, exactly_once = remembered.memory.of(flow.id), reading.connects[flow.connect.name].exactly_once
    case = FlowCase(
        *_case(connector, remembered), flow=flow, lag=lag, source=source, kept=flow_memory, exactly_once=exactly_once
    )
    problems = (
        *flow_problems(case),
        *beside.problems.get(flow.id, ()),
        *flow_arrival_problems(case, reading, remembered.memory),
    )
    grown = growth(case, reading.taken_at, remembered.earlier.of(flow.id).marks)
    return FlowStatus(
        *_name_fields(case),
        "problem" if problems else _flow_health(case),
        _tasks(connector),
        problems,
        (*flow_notes(case), *beside.notes.get(flow.id, ())),
        flow=flow.id,
        lag_records=lag.total_records if connector.running else None,
        lag_at_least=lag.is_lower_bound,
        lag_partitions=lag.most_behind(_MOST_SHOWN),
        offsets_note=offsets_note(case, target, grown),
        trend=case.trend,
    )


def _name_fields(case: ConnectorCase) -> tuple[str, str, str, str, str]:
    """Return the first fields of a ConnectorState."""
    desired = case.seen.desired
    return desired.connect, desired.name, desired.type, desired.pair, case.state


def _unread_status(reading: Reading, flow: Flow) -> FlowStatus:
    failure = reading.connects[flow.connect.name].failure
    reason = failure.message if failure else "no source connector was rendered for this flow"
    return FlowStatus(
        flow.connect.name, "", "source", flow.pair, "unknown", "unknown", notes=(reason,), flow=flow.id,
        offsets_note="unknown: the Connect cluster could not be read",
    )  # fmt: skip


def _with_losses(reading: Reading, flow: Flow, status: FlowStatus, losses: Iterable[LossEntry]) -> FlowStatus:
    """Return the status with its open losses: a problem until they are acknowledged, even if the flow has recovered."""
    lost = by_topic(loss for loss in losses if loss.flow == flow.id)
    if not lost:
        return status
    connector, creates = reading.source_connector(flow), None
    if connector and connector.running:
        creates = text_of("source", connector.running.config, "source consumer", "allow.auto.create.topics") == "true"
    problems = tuple(loss.problem(reading.taken_at, creates) for loss in lost)
    return replace(status, health="problem", problems=status.problems + problems)


def _flow_health(case: FlowCase) -> Health:
    """Return the health of a flow without problems: `ok` needs records that were seen to move, or none that wait."""
    lag, status = case.lag, case.seen.status
    if status is None or not status.runs or lag.unassigned:
        return "waiting"
    if lag.total_records is None or lag.unread or case.seen.tasks_unread:
        return "unknown"
    waiting = {task for task, mark in case.marks.items() if mark.behind}
    moving = {task for task, mark in case.marks.items() if mark.moved}
    return "ok" if not lag.total_records or (moving and waiting <= moving) else "waiting"


# --- connectors -------------------------------------------------------------------------------------------------------


def _case(connector: LiveConnector, remembered: Remembered) -> tuple[LiveConnector, Patience, float, dict[str, float]]:
    """Return the fields of a ConnectorCase: a worker that moves records is not silent, but out of reach."""
    clock, inside = remembered.memory.without_status.get(connector.key), f"{connector.desired.connect}/"
    silent = {
        key.removeprefix(inside): silent_worker.clock.seconds
        for key, silent_worker in remembered.memory.silent_workers.items()
        if key.startswith(inside) and not silent_worker.moved
    }
    return connector, remembered.patience, clock.seconds if clock else 0.0, silent


def _companion(case: ConnectorCase, memory: Memory, reading: Reading) -> ConnectorState:
    """Judge a checkpoint or heartbeat connector; without consumer groups a checkpoint connector needs no task."""
    problems = (*connector_problems(case), *companion_arrival_problems(case, memory, reading))
    health: Health = "problem" if problems else "ok" if case.seen.runs else "waiting"
    return ConnectorState(*_name_fields(case), health, _tasks(case.seen), problems, companion_notes(case))


def _tasks(connector: LiveConnector) -> tuple[TaskState, ...]:
    assigned = connector.partitions_by_task()
    tasks = connector.status.tasks if connector.status else ()
    counted = {task: len(partitions) for task, partitions in assigned.items()}
    return tuple(TaskState(task.id, task.state, task.worker_id, counted.get(task.id)) for task in tasks)


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

    @property
    def flow_status(self) -> FlowStatus:
        """The flow's own status."""
        return next(flow for flow in self.status.flows if flow.flow == self.flow.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the description; `topics` gives the target topic of each source topic."""
        flow, connector = self.flow, self.reading.source_connector(self.flow)
        return {
            "flow": flow.id,
            "source": _cluster(flow.source),
            "target": _cluster(flow.target),
            "connect": {"name": flow.connect.name, "urls": list(flow.connect.model.url), "kafka": flow.connect.kafka},
            "status": to_json(self.flow_status),
            "trace": trace_lines(connector.status.trace) if connector and connector.status else [],
            "tasks": _tasks_in_full(connector) if connector else [],
            "lag": to_json(self.lag.partitions),
            "topics": self.topics(),
            "companions": to_json(self.status.companions),
            "settings": [
                {"setting": name, "value": value, "origin": origin} for name, value, origin in _settings(flow)
            ],
            "losses": to_json(self.status.losses),
            "warnings": list(self.status.warnings),
            "failures": to_json(self.status.failures),
        }

    def topics(self) -> list[dict[str, Any]]:
        """Return each topic that the flow carries, its name on the target, and its partitions."""
        counts: dict[str, int] = {}
        for partition in self.lag.partitions:
            counts[partition.partition.topic] = counts.get(partition.partition.topic, 0) + 1
        return [
            {"topic": topic, "remote_topic": self.flow.remote_topic(topic), "partitions": count}
            for topic, count in sorted(counts.items())
        ]


def trace_lines(trace: str | None) -> list[str]:
    """Return the first lines of a Java trace and its last cause; masked before they are cut."""
    lines = secrets.mask_text(trace or "").splitlines()
    shown = lines[:_TRACE_LINES]
    causes = [line for line in lines[_TRACE_LINES:] if line.startswith("Caused by:")]
    if len(lines) > len(shown):
        shown += ["…", *causes[-1:]]
    return [line.rstrip()[:_TRACE_CHARACTERS] for line in shown]


def _cluster(cluster: KafkaCluster) -> dict[str, Any]:
    protocol = cluster.client.get("security.protocol", "PLAINTEXT")
    return {
        "alias": cluster.alias,
        "bootstrap_servers": str(cluster.client["bootstrap.servers"]),
        "security_protocol": str(protocol),
    }


def _tasks_in_full(connector: LiveConnector) -> list[dict[str, Any]]:
    assigned = connector.partitions_by_task()
    return [
        {
            "id": task.id,
            "state": task.state,
            "worker": task.worker_id,
            "partitions": [str(partition) for partition in sorted(assigned.get(task.id, ()))],
            "trace": trace_lines(task.trace),
        }
        for task in (connector.status.tasks if connector.status else ())
    ]


def _settings(flow: Flow) -> Iterator[tuple[str, str, str]]:
    """Yield setting, value and origin; of the clients only what differs from Kafka's own defaults."""
    s = flow.settings
    simple: dict[tuple[str, ...], object] = {
        ("topics", "include"): ", ".join(s.topics.include),
        ("topics", "exclude"): ", ".join(s.topics.exclude),
        ("replication_policy",): s.replication_policy,
        ("separator",): s.separator,
        ("refresh_interval",): f"{s.refresh_interval:g} s",
        ("checkpoints", "enabled"): s.checkpoints.enabled,
        ("checkpoints", "group_offsets"): s.checkpoints.group_offsets,
        ("heartbeats", "enabled"): s.heartbeats.enabled,
        ("offset_syncs", "enabled"): s.offset_syncs.enabled,
        ("offset_syncs", "location"): s.offset_syncs.location,
        ("sync", "topic_configs"): s.sync.topic_configs,
        ("sync", "topic_acls"): s.sync.topic_acls,
    }
    yield "tasks.max", str(flow.tasks.maximum), str(flow.tasks.maximum.origin)
    for path, value in simple.items():
        yield ".".join(path), config_text(value), str(flow.origin(*path))
    for block in _CLIENTS:
        for key, text in flow.client(block).items():
            yield f"{block}.{key}", secrets.mask(key, text), str(text.origin)

"""What is there: `status`, `watch_status`, `describe` and `check` ask the clusters and write nothing there; `losses` is
what the ledger holds of records that may never arrive, and `acknowledge` its acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import timing
from mm2mgr.errors import Failure, InvalidArgument, Mm2mgrError, cause, missing_extra
from mm2mgr.live.questions import NewestRecord, RecordTimes, TopicRetention
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.snapshot import Snapshot, Steps
from mm2mgr.observe.lag import FlowLag, PartitionLag, most_behind
from mm2mgr.observe.lag_report import FlowFacts, LagLevel, LagRow
from mm2mgr.observe.losses import Acknowledgement, LossEntry, open_entries
from mm2mgr.observe.read import LOOK_KAFKA_SECONDS, ObserveOptions
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, repeat
from mm2mgr.partitions import LogHistory, TopicPartition
from mm2mgr.problems.health import Description, Status, assignment_notes
from mm2mgr.problems.status import Observation, observe, read_losses
from mm2mgr.problems.status import acknowledge as acknowledge_losses
from mm2mgr.problems.status import describe as read_flow
from mm2mgr.problems.status import status as read_status
from mm2mgr.text import first_few
from mm2mgr.timing import wait_for
from mm2mgr.topics.names import HEARTBEATS

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked
    from mm2mgr.observe.reading import Reading
    from mm2mgr.problems.kind import LiveProblem
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow, Topology

_LEAST_SECONDS = 1.0
_OF_ASSIGNMENT = {"partitions-in-two-tasks", "old-task-config"}


def status(workspace: Workspace, flows: Sequence[str] = (), *, store: Store = DEFAULT_STORE) -> Status:
    """Read the health, tasks and lag of flows (all by default), and remember what was seen; losses go into a table of
    the store. No failed cluster raises."""
    only = workspace.only(flows)
    with looks_of(workspace, store) as options:
        return wait_for(read_status(workspace.topology, workspace.connectors, only=only, options=options))


def watch_status(
    workspace: Workspace, flows: Sequence[str] = (), *, every_seconds: float, store: Store = DEFAULT_STORE
) -> Iterator[Status]:
    """Yield a status, then one after each pause, until the caller stops."""
    return repeat(lambda: status(workspace, flows, store=store), every_seconds)


def describe(workspace: Workspace, flow: str, *, store: Store = DEFAULT_STORE) -> Description:
    """Read clusters, connectors, tasks with partitions, lag per partition, traces and losses of one flow."""
    chosen = workspace.flow(flow)
    with looks_of(workspace, store) as options:
        return wait_for(read_flow(workspace.topology, workspace.connectors, chosen, options=options))


@contextmanager
def looks_of(workspace: Workspace, store: Store) -> Iterator[ObserveOptions]:
    """Yield how to observe: a snapshot at its time and after what it remembers, and all that this leaves behind
    goes."""
    if workspace.snapshot is None:
        yield ObserveOptions(store=store)
        return
    with TemporaryDirectory(prefix="mm2mgr-") as folder:
        memory = Path(folder) / "memory.json"
        if workspace.snapshot.memory:
            memory.write_text(workspace.snapshot.memory)
        yield ObserveOptions(
            clock=lambda: workspace.now, memory_file=memory, store=Path(folder), snapshot=workspace.snapshot
        )


def check(workspace: Workspace, flows: Sequence[str] = (), *, timeout_seconds: float = 20.0) -> Checked:
    """Log in to every Kafka cluster as each client of the flows' connectors would, and compare rights, limits and
    workers.

    Whatever does not answer within `timeout_seconds` is a row of its own. Nothing is created, written or committed.
    """
    from mm2mgr.check.run import check as run  # needs lint, which `status` does without

    ends_at = timing.now() + timeout_seconds

    def limits() -> Limits:
        seconds = max(
            _LEAST_SECONDS, (ends_at - timing.now()) / 2
        )  # half of what is left, so that the next round has some
        return Limits(connect_seconds=seconds, kafka_seconds=seconds, is_total=True)

    steps = run(workspace.topology, workspace.connectors, workspace.flows(flows), workspace.spec)
    checked = workspace.ask(steps, limits)
    return replace(checked, seconds=timing.now() - ends_at + timeout_seconds)


# --- losses -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LossReport:
    """Entries of the ledger, oldest first; `warnings` say what of it could not be read."""

    entries: tuple[LossEntry, ...]
    warnings: tuple[str, ...] = ()
    json_keys = "losses=entries open=open_count warnings"

    @property
    def still_open(self) -> tuple[LossEntry, ...]:
        """Those that are not acknowledged."""
        return open_entries(self.entries)

    @property
    def open_count(self) -> int:
        return len(self.still_open)


def losses(
    workspace: Workspace, flows: Sequence[str] = (), *, store: Store = DEFAULT_STORE, everything: bool = False
) -> LossReport:
    """Read the ledger: open entries of these flows (none named: of all), or all entries. No cluster is asked.

    A flow that is no longer declared is named by its id. Mm2mgrError for a flow that neither the tree nor the ledger
    has.
    """
    ledger, warnings = read_losses(workspace.topology, ObserveOptions(store=store))
    entries = ledger if everything else open_entries(ledger)
    flow_ids = _flow_ids(workspace, flows, ledger)
    return LossReport(tuple(loss for loss in entries if flow_ids is None or loss.flow in flow_ids), tuple(warnings))


def acknowledge(
    workspace: Workspace,
    ids: Sequence[str],
    flows: Sequence[str] = (),
    *,
    reason: str = "",
    store: Store = DEFAULT_STORE,
) -> tuple[LossEntry, ...]:
    """Record that open losses were seen, with who, when and why, and return them; `all` as id means all, of these flows
    if any are named. Mm2mgrError, and nothing recorded, for an id that no open loss has."""
    from mm2mgr.apply.history import author

    options = ObserveOptions(store=store)
    flow_ids = _flow_ids(workspace, flows, read_losses(workspace.topology, options)[0])
    ack = Acknowledgement(author(workspace.files).who, time.time(), reason)
    return acknowledge_losses(workspace.topology, ids, ack, only=flow_ids, options=options)


def _flow_ids(workspace: Workspace, names: Sequence[str], entries: Sequence[LossEntry]) -> list[str] | None:
    flow_ids: list[str] = []
    for name in names:
        try:
            flow_ids += [flow.id for flow in workspace.flows((name,))]
        except Mm2mgrError:
            if all(loss.flow != name for loss in entries):
                raise
            flow_ids.append(name)
    return flow_ids if names else None


# --- lag --------------------------------------------------------------------------------------------------------------


_LIMITS = Limits(kafka_seconds=LOOK_KAFKA_SECONDS, kafka_at_once=32)
_MOST_RECORDS_READ = 1_000  # per flow with `timestamps`: those most behind
Key = TypeVar("Key")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LagReport:
    """The lag of flows at `taken_at` (seconds since 1970), one row per `by`; `notes` say what is unknown for all of
    them, and why.

    `failures` are clusters that could not be read, as `connect NAME` or `kafka ALIAS`.
    """

    taken_at: float
    by: LagLevel
    flows: tuple[FlowFacts, ...]
    failures: Mapping[str, Failure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with the assignments of the flows, by whose tasks their lag is told."""
    json_keys = "taken_at by known=is_known flows rows failures problems notes warnings"

    @cached_property
    def rows(self) -> tuple[LagRow, ...]:
        """The rows of all flows, by flow, most behind first."""
        return tuple(
            row for flow in self.flows for row in ((flow.total,) if self.by == LagLevel.FLOW else flow.rows(self.by))
        )

    @property
    def is_known(self) -> bool:
        """Whether the lag of every partition is known in records."""
        totals = [flow.total.records for flow in self.flows]
        return all(total.value is not None and not total.at_least for total in totals)


@dataclass(frozen=True)
class LagOptions:
    """How lag is shown and counted: one row per `by`; seconds from the log ends in the sample `store`, or with
    `timestamps` from one record read per partition that is behind, of the 1 000 most behind partitions of each flow."""

    by: LagLevel = LagLevel.FLOW
    timestamps: bool = False
    store: Store = DEFAULT_STORE

    def __post_init__(self) -> None:
        if self.by not in set(LagLevel):
            raise InvalidArgument("by", f"no level '{self.by}'; known: {', '.join(LagLevel)}")
        object.__setattr__(self, "by", LagLevel(self.by))  # its value is as good


def lag(workspace: Workspace, flows: Sequence[str] = (), options: LagOptions = LagOptions()) -> LagReport:
    """Measure the lag of flows (all by default) and remember it, so that the next call knows a trend. No failed cluster
    raises."""
    chosen, only = workspace.flows(flows), workspace.only(flows)
    with looks_of(workspace, options.store) as looks:
        observation = wait_for(observe(workspace.topology, workspace.connectors, only=only, options=looks))
    return report(workspace.topology, observation, chosen, options, workspace.snapshot)


def watch_lag(
    workspace: Workspace, flows: Sequence[str] = (), options: LagOptions = LagOptions(), *, every_seconds: float
) -> Iterator[LagReport]:
    """Yield a report, then one after each pause, until the caller stops."""
    return repeat(lambda: lag(workspace, flows, options), every_seconds)


def report(
    topology: Topology,
    observation: Observation,
    chosen: Sequence[Flow],
    options: LagOptions,
    snapshot: Snapshot | None = None,
) -> LagReport:
    """Return the report of an observation: what else it needs is read here, of partitions that are behind only."""
    return wait_for(run_steps(_report(observation, chosen, options), Clusters.of_tree(topology), _LIMITS, snapshot))[0]


def _report(observation: Observation, chosen: Sequence[Flow], options: LagOptions) -> Steps[LagReport]:
    reading, status = observation.reading, observation.status
    behind = {flow.id: _partitions_behind(observation, flow) for flow in chosen}
    late = [flow for flow in chosen if behind[flow.id]]
    histories, notes, warnings = _histories(observation, late, behind, options.store)
    retention = {
        TopicRetention(flow.source.alias, lag.partition.topic): None for flow in late for lag in behind[flow.id]
    }
    stamped = {flow.id: _written_at(flow, behind[flow.id]) for flow in late if options.timestamps}
    beats = filter(None, (newest_heartbeat(reading, flow) for flow in chosen))
    snapshot = yield [*retention, *stamped.values(), *beats]
    answers = (*map(snapshot.get, retention), *map(snapshot.get, stamped.values()))
    failed = sorted({answer.message for answer in answers if isinstance(answer, Mm2mgrError)})
    retention_seconds: dict[str, dict[str, float | None]] = {}
    for asked in retention:
        retention_seconds.setdefault(asked.cluster, {}).update(_answer_or_none(snapshot.get(asked)))
    judged = {flow.flow: flow for flow in status.flows}
    problems = [
        f"{flow.id}: {text}"
        for flow in chosen
        for text in _assignment_texts(flow, observation.lags.get(flow.id, FlowLag()), judged[flow.id].problems)
    ]
    facts = []
    for flow in chosen:
        connector = reading.source_connector(flow)
        facts.append(
            FlowFacts(
                flow.id,
                flow.connect.name,
                connector.desired.name if connector else "",
                judged[flow.id].state,
                reading.taken_at,
                flow.connect.model.flush_interval,
                observation.lags.get(flow.id) or FlowLag(unknown=_unknown_reason(reading, flow)),
                observation.memory.flow(flow.id).progress,
                histories.get(flow.id, {}),
                dict(_answer_or_none(snapshot.get(stamped[flow.id]))) if flow.id in stamped else {},
                retention_seconds.get(flow.source.alias, {}),
                _heartbeat_age(snapshot, reading, flow),
                observation.memory.flow(flow.id).state in ("", "RUNNING"),
            )
        )
    all_warnings = (*status.warnings, *warnings)
    told = ((*notes, *failed), all_warnings, tuple(problems))
    return LagReport(reading.taken_at, options.by, tuple(facts), reading.failures(), *told)


def _assignment_texts(flow: Flow, lag: FlowLag, problems: Iterable[LiveProblem]) -> Iterator[str]:
    """Yield what is wrong with the assignment of a flow, by whose tasks its lag is told."""
    yield from (problem.sentence for problem in problems if problem.kind in _OF_ASSIGNMENT or problem.older)
    yield from assignment_notes(flow, lag)


def _unknown_reason(reading: Reading, flow: Flow) -> str:
    failure = reading.connects[flow.connect.name].failure
    return failure.message if failure else "its connector is not applied: run mm2mgr apply"


def _partitions_behind(observation: Observation, flow: Flow) -> list[PartitionLag]:
    lag = observation.lags.get(flow.id)
    partitions = lag.counted_partitions if lag and lag.unknown is None else ()
    return [partition for partition in partitions if partition.lag_records]


def _histories(
    observation: Observation, late: Sequence[Flow], behind: Mapping[str, Sequence[PartitionLag]], store: Store
) -> tuple[dict[str, dict[TopicPartition, LogHistory]], list[str], list[str]]:
    """Read what the store knows of the partitions that are behind, by flow; and notes, and warnings about its files."""
    if not late:
        return {}, [], []
    warnings: list[str] = []
    try:
        from mm2mgr.samples.log_history import WantedLog, log_histories

        logs: dict[str, list[WantedLog]] = {}
        for flow in late:
            ids = observation.reading.clusters[flow.source.alias].topic_ids
            logs.setdefault(flow.source.alias, []).extend(
                WantedLog(lag.partition, lag.position, ids.get(lag.partition.topic, "")) for lag in behind[flow.id]
            )
        histories = log_histories(store, logs, round(1000 * observation.reading.taken_at), warnings.append)
    except Exception as error:  # whatever is in the store, lag in records is known without it
        if extra := missing_extra(error):
            of = "lag in bytes and seconds comes from the sample store"
            return {}, [f"{of}, which needs the extra mm2mgr[{extra}]"], []
        return {}, [], [f"lag in bytes and seconds is unknown: {cause(error)}"]
    missing = sorted(alias for alias, of in histories.items() if not any(history.times_ms for history in of))
    in_order = {alias: iter(of) for alias, of in histories.items()}
    by_flow = {flow.id: {lag.partition: next(in_order[flow.source.alias]) for lag in behind[flow.id]} for flow in late}
    note = (
        f"no samples of {', '.join(missing)} in {store}, and so no lag in bytes and seconds: keep mm2mgr sample running"
    )
    return by_flow, [note] if missing else [], first_few(warnings, "more warnings about files of the store")


def _answer_or_none(answer: Mapping[Key, Answer] | Mm2mgrError) -> Mapping[Key, Answer]:
    return {} if isinstance(answer, Mm2mgrError) else answer


def _written_at(flow: Flow, behind: Iterable[PartitionLag]) -> RecordTimes:
    asked = ((lag.partition, lag.position) for lag in most_behind(behind, _MOST_RECORDS_READ))
    return RecordTimes(flow.source.alias, tuple(asked))


def newest_heartbeat(reading: Reading, flow: Flow) -> NewestRecord | None:
    """Return the question when the newest heartbeat of a flow's pair was sent; None where its topic is not there."""
    name = flow.remote_topic(HEARTBEATS)
    count = reading.clusters[flow.target.alias].topics.get(name, 0)
    return NewestRecord(flow.target.alias, name, count) if count else None


def _heartbeat_age(snapshot: Snapshot, reading: Reading, flow: Flow) -> float | Failure:
    question = newest_heartbeat(reading, flow)
    newest = snapshot.get(question) if question else None
    if isinstance(newest, Mm2mgrError):
        return Failure.from_error(newest)
    if newest is not None:
        return max(0.0, reading.taken_at - newest)
    name = flow.remote_topic(HEARTBEATS)
    return Failure(f"no heartbeats of {flow.source.alias} on {flow.target.alias}: none in topic {name}")

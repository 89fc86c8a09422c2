"""`lag`: how far flows are behind in records, bytes and seconds, where that goes, and how long a heartbeat takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from mm2mgr.errors import EXTRA_OF, Failure, Mm2mgrError, cause
from mm2mgr.live.questions import NewestRecord, RecordTimes, TopicRetention
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, answered
from mm2mgr.live.snapshot import Snapshot, Steps
from mm2mgr.observe.lag import FlowLag, PartitionLag, most_behind
from mm2mgr.observe.lag_report import FlowFacts, LagLevel, LagRow
from mm2mgr.operations.status import looks_of
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, repeat
from mm2mgr.partitions import LogHistory, TopicPartition
from mm2mgr.problems.status import Observation, observe
from mm2mgr.text import first_few
from mm2mgr.timing import wait_for
from mm2mgr.topics.names import HEARTBEATS

if TYPE_CHECKING:
    from mm2mgr.observe.reading import Reading
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow, Topology

_LIMITS = Limits(kafka_seconds=10.0, kafka_at_once=32)
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
    json_keys = "taken_at by known=is_known flows rows failures notes warnings"

    @cached_property
    def rows(self) -> tuple[LagRow, ...]:
        """The rows of all flows, by flow, most behind first."""
        return tuple(row for flow in self.flows for row in ((flow.total,) if self.by == "flow" else flow.rows(self.by)))

    @property
    def is_known(self) -> bool:
        """Whether the lag of every partition is known in records."""
        totals = [flow.total.records for flow in self.flows]
        return all(total.value is not None and not total.at_least for total in totals)


@dataclass(frozen=True)
class LagOptions:
    """How lag is shown and counted: one row per `by`; seconds from the log ends in the sample `store`, or with
    `timestamps` from one record read per partition that is behind, of the 1 000 most behind partitions of each flow."""

    by: LagLevel = "flow"
    timestamps: bool = False
    store: Store = DEFAULT_STORE


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
    return wait_for(answered(_report(observation, chosen, options), Clusters.of(topology), _LIMITS, snapshot))[0]


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
    states = {flow.flow: flow.state for flow in status.flows}
    facts = []
    for flow in chosen:
        connector = reading.source_connector(flow)
        facts.append(
            FlowFacts(
                flow.id,
                flow.connect.name,
                connector.desired.name if connector else "",
                states[flow.id],
                reading.taken_at,
                flow.connect.model.flush_interval,
                observation.lags.get(flow.id) or FlowLag(unknown=_unknown_reason(reading, flow)),
                observation.memory.flow(flow.id).progress,
                histories.get(flow.id, {}),
                dict(_answer_or_none(snapshot.get(stamped[flow.id]))) if flow.id in stamped else {},
                retention_seconds.get(flow.source.alias, {}),
                _heartbeat_age(snapshot, reading, flow),
            )
        )
    all_warnings = (*status.warnings, *warnings)
    return LagReport(reading.taken_at, options.by, tuple(facts), reading.failures(), (*notes, *failed), all_warnings)


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
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return {}, [f"lag in bytes and seconds comes from the sample store, which needs the extra mm2mgr[{extra}]"], []
    except Exception as error:  # whatever is in the store, lag in records is known without it
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
    """Return the question when the next records to mirror were written, of the partitions that are most behind."""
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

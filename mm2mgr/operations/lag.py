"""`lag`: how far flows are behind in records, bytes and seconds, where that goes, and how long a heartbeat takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from mm2mgr.errors import EXTRA_OF, Mm2mgrError, cause
from mm2mgr.json_values import to_json
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import retention
from mm2mgr.kafka.timestamps import newest_record_at, written_at
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.observe.lag import FlowLag, PartitionLag, most_behind
from mm2mgr.observe.lag_report import FlowFacts, LagLevel, LagRow
from mm2mgr.observe.reading import Failure
from mm2mgr.observe.status import Observation, ObserveOptions, observe
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, repeated, wait_for
from mm2mgr.partitions import LogHistory, TopicPartition
from mm2mgr.text import first_few
from mm2mgr.topics.names import HEARTBEATS

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow, KafkaCluster

_RECORDS_SECONDS = 10.0
_READS_AT_ONCE = 32
_MOST_RECORDS_READ = 1_000  # per flow with `timestamps`: those most behind
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LagReport:
    """The lag of flows at `taken_at` (seconds since 1970), one row per `by`; `notes` say what is unknown for all of them, and why.

    `failures` are clusters that could not be read, as `connect NAME` or `kafka ALIAS`.
    """

    taken_at: float
    by: LagLevel
    flows: tuple[FlowFacts, ...]
    failures: Mapping[str, Failure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> tuple[LagRow, ...]:
        """The rows of all flows, by flow, most behind first."""
        return tuple(row for flow in self.flows for row in ((flow.total,) if self.by == "flow" else flow.rows(self.by)))

    @property
    def is_known(self) -> bool:
        """Whether the lag of every partition is known in records."""
        totals = [flow.total.records for flow in self.flows]
        return all(each.value is not None and not each.at_least for each in totals)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values: totals and heartbeats by flow, and the rows."""
        return {
            "taken_at": self.taken_at,
            "by": self.by,
            "known": self.is_known,
            "flows": [_flow_dict(flow) for flow in self.flows],
            "rows": to_json(self.rows),
            "failures": to_json(self.failures),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def _flow_dict(flow: FlowFacts) -> dict[str, Any]:
    beat = flow.heartbeat_seconds
    return {
        "flow": flow.flow,
        "connect": flow.connect,
        "connector": flow.connector,
        "state": flow.state,
        "flush_interval_seconds": flow.flush_interval_seconds,
        "exact": flow.lag.exact,
        "total": to_json(flow.total),
        "heartbeat_seconds": None if isinstance(beat, Failure) else beat,
        "heartbeat_unknown": beat.message if isinstance(beat, Failure) else None,
    }


@dataclass(frozen=True)
class LagOptions:
    """How lag is shown and counted: one row per `by`; seconds from the log ends in the sample `store`, or with `timestamps` from one
    record read per partition that is behind, of the 1 000 most behind partitions of each flow."""

    by: LagLevel = "flow"
    timestamps: bool = False
    store: Store = DEFAULT_STORE


def lag(workspace: Workspace, flows: Sequence[str] = (), options: LagOptions | None = None) -> LagReport:
    """Measure the lag of flows (all by default) and remember it, so that the next call knows a trend. No failed cluster raises."""
    chosen, how = workspace.flows(flows), options or LagOptions()
    looks = ObserveOptions(store=how.store)
    seen = wait_for(observe(workspace.topology, workspace.connectors, only=workspace.only(flows), options=looks))
    return report(seen, chosen, how)


def watch_lag(
    workspace: Workspace, flows: Sequence[str] = (), options: LagOptions | None = None, *, every_seconds: float
) -> Iterator[LagReport]:
    """Yield a report, then one after each pause, until the caller stops."""
    return repeated(lambda: lag(workspace, flows, options), every_seconds)


def report(seen: Observation, chosen: Sequence[Flow], options: LagOptions) -> LagReport:
    """Return the report of an observation: what else it needs is read here, of partitions that are behind only."""
    behind = {flow.id: _behind(seen, flow) for flow in chosen}
    histories, notes, warnings = _histories(seen, chosen, behind, options.store)
    late = [flow for flow in chosen if behind[flow.id]]
    topics: dict[str, set[str]] = {}
    for flow in late:
        topics.setdefault(flow.source.alias, set()).update(one.partition.topic for one in behind[flow.id])
    sources, targets = (
        {flow.source.alias: flow.source for flow in late},
        {flow.target.alias: flow.target for flow in chosen},
    )
    kept = _each({alias: partial(_retention, one, topics[alias]) for alias, one in sources.items()})
    stamped = _each(
        {flow.id: partial(_written_at, flow.source, behind[flow.id]) for flow in late if options.timestamps}
    )
    beats = _each({alias: partial(_heartbeats, one, seen, chosen) for alias, one in targets.items()})
    failed = sorted({each.message for found in (kept, stamped) for each in found.values() if isinstance(each, Failure)})
    facts = []
    for flow in chosen:
        connector = seen.reading.source_connector(flow)
        facts.append(
            FlowFacts(
                flow.id,
                flow.connect.name,
                connector.desired.name if connector else "",
                _state(seen, flow),
                seen.reading.taken_at,
                flow.connect.model.flush_interval,
                seen.lags.get(flow.id) or FlowLag(unknown=_why(seen, flow)),
                seen.memory.of(flow.id).progress,
                histories.get(flow.id, {}),
                _known(stamped.get(flow.id)),
                _known(kept.get(flow.source.alias)),
                _beat(beats[flow.target.alias], flow, seen.reading.taken_at),
            )
        )
    warnings = [*seen.status.warnings, *warnings]
    return LagReport(
        seen.reading.taken_at, options.by, tuple(facts), seen.reading.failures(), (*notes, *failed), tuple(warnings)
    )


def _why(seen: Observation, flow: Flow) -> str:
    failure = seen.reading.connects[flow.connect.name].failure
    return failure.message if failure else "its connector is not applied: run mm2mgr apply"


def _state(seen: Observation, flow: Flow) -> str:
    return next(one.state for one in seen.status.flows if one.flow == flow.id)


def _behind(seen: Observation, flow: Flow) -> list[PartitionLag]:
    found = seen.lags.get(flow.id)
    return [one for one in found.counted if one.lag_records] if found and found.unknown is None else []


def _histories(
    seen: Observation, chosen: Sequence[Flow], behind: Mapping[str, Sequence[PartitionLag]], store: Store
) -> tuple[dict[str, dict[TopicPartition, LogHistory]], list[str], list[str]]:
    """Read what the store knows of the partitions that are behind, by flow; and notes, and warnings about its files."""
    late = [flow for flow in chosen if behind[flow.id]]
    if not late:
        return {}, [], []
    warnings: list[str] = []
    try:
        from mm2mgr.samples.log_history import WantedLog, log_histories

        wanted: dict[str, list[WantedLog]] = {}
        for flow in late:
            ids = seen.reading.clusters[flow.source.alias].topic_ids
            logs = [WantedLog(one.partition, one.position, ids.get(one.partition.topic, "")) for one in behind[flow.id]]
            wanted.setdefault(flow.source.alias, []).extend(logs)
        read = log_histories(store, wanted, round(1000 * seen.reading.taken_at), warnings.append)
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return {}, [f"lag in bytes and seconds comes from the sample store, which needs the extra mm2mgr[{extra}]"], []
    except Exception as error:  # whatever is in the store, lag in records is known without it
        return {}, [], [f"lag in bytes and seconds is unknown: {cause(error)}"]
    missing = sorted(alias for alias, of in read.items() if not any(one.times_ms for one in of))
    each = {alias: iter(of) for alias, of in read.items()}
    found = {flow.id: {one.partition: next(each[flow.source.alias]) for one in behind[flow.id]} for flow in late}
    note = (
        f"no samples of {', '.join(missing)} in {store}, and so no lag in bytes and seconds: keep mm2mgr sample running"
    )
    return found, [note] if missing else [], first_few(warnings, "more warnings about files of the store")


def _each(jobs: Mapping[str, Callable[[], dict[Any, Answer]]]) -> dict[str, dict[Any, Answer] | Failure]:
    """Read side by side; what a cluster does not answer is a Failure."""

    def kept(read: Callable[[], dict[Any, Answer]]) -> dict[Any, Answer] | Failure:
        try:
            return read()
        except Mm2mgrError as error:
            return Failure.of(error)

    with ThreadPoolExecutor(max_workers=max(1, min(_READS_AT_ONCE, len(jobs)))) as threads:
        return dict(zip(jobs, threads.map(kept, jobs.values()), strict=True))


def _known(found: dict[Any, Answer] | Failure | None) -> dict[Any, Answer]:
    return {} if found is None or isinstance(found, Failure) else found


def _retention(cluster: KafkaCluster, topics: Collection[str]) -> dict[str, float | None]:
    with Kafka(kafka_access(cluster)) as kafka:
        return retention(kafka, topics)


def _written_at(cluster: KafkaCluster, behind: Iterable[PartitionLag]) -> dict[TopicPartition, float]:
    asked = {one.partition: one.position for one in most_behind(behind, _MOST_RECORDS_READ)}
    return written_at(kafka_access(cluster), asked, _RECORDS_SECONDS)


def _heartbeats(cluster: KafkaCluster, seen: Observation, chosen: Sequence[Flow]) -> dict[str, float]:
    """Return when the newest heartbeat of each pair on a target was sent, by the remote topic of heartbeats."""
    topics = seen.reading.clusters[cluster.alias].topics
    names = {flow.remote_topic(HEARTBEATS) for flow in chosen if flow.target.alias == cluster.alias}
    partitions = [TopicPartition(name, number) for name in names for number in range(topics.get(name, 0))]
    if not partitions:
        return {}
    with Kafka(kafka_access(cluster)) as kafka:
        found = newest_record_at(kafka, partitions)
    newest: dict[str, float] = {}
    for one, at in found.items():
        newest[one.topic] = max(at, newest.get(one.topic, at))
    return newest


def _beat(found: dict[str, float] | Failure, flow: Flow, now: float) -> float | Failure:
    if isinstance(found, Failure):
        return found
    name = flow.remote_topic(HEARTBEATS)
    if name in found:
        return max(0.0, now - found[name])
    return Failure(f"no heartbeats of {flow.source.alias} on {flow.target.alias}: none in topic {name}")

"""The load of an estate as `serve` shows it: what flows mirror now, what their tasks carry beside what a task can, and
what `size` and `fleet` say is needed.

Rates of tasks are those of the newest whole hour in the store, what is needed is judged by the newest four weeks, and
what is mirrored by the looks of the last minutes. Nothing here starts a JVM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr.assignment import Assignment, spread
from mm2mgr.connectors import RunningConnector, workers_at_work
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.observe.trend import FLOW, recent_rates
from mm2mgr.partitions import TopicPartition

if TYPE_CHECKING:
    from mm2mgr.evidence.read import ExpandedTree
    from mm2mgr.observe.lag_report import FlowFacts
    from mm2mgr.samples.schema import Store
    from mm2mgr.sizing.tasks import HotPartition

_LOAD_SECONDS = 3600.0
_RECENT_SECONDS = 300.0


@dataclass(frozen=True)
class TaskLoad:
    """Bytes and records per second of a task, without those of its partitions that were not measured."""

    task: int
    bytes_per_second: float | None
    records_per_second: float | None
    unmeasured_partitions: int


@dataclass(frozen=True)
class MeasuredLoad:
    """Bytes and records per second of source partitions, by cluster, over `hours`; `unknown`: why there are none.

    `until_seconds`: when these hours end, in seconds since 1970.
    """

    rates: Mapping[str, Mapping[TopicPartition, tuple[float | None, float | None]]] = field(default_factory=dict)
    hours: str = ""
    unknown: str = ""
    until_seconds: float = 0.0

    def of_tasks(self, source: str, assignment: Assignment) -> list[TaskLoad]:
        """Return the load of each task: sums over its partitions, None where none of them was measured."""
        rates = self.rates.get(source, {})
        by_task = [[rates.get(partition, (None, None)) for partition in task] for task in assignment.tasks]
        return [
            TaskLoad(
                task, _sum(rate for rate, _ in of), _sum(rate for _, rate in of), sum(rate is None for rate, _ in of)
            )
            for task, of in enumerate(by_task)
        ]


def _sum(rates: Iterable[float | None]) -> float | None:
    measured = [rate for rate in rates if rate is not None]
    return math.fsum(measured) if measured else None


def measured_load(store: Store) -> MeasuredLoad:
    """Return the mean rates of the newest whole hour in the store."""
    try:
        from mm2mgr.samples.schema import HOUR_MS, hour_start_ms
        from mm2mgr.throughput.windows import last_hours, rates_of, read_window

        throughput = read_window(store, last_hours(store, _LOAD_SECONDS))
        rates: dict[str, dict[TopicPartition, tuple[float | None, float | None]]] = {}
        for rate in rates_of(throughput):
            per_second = rate.bytes_per_second_mean, rate.records_per_second_mean
            rates.setdefault(rate.cluster, {})[TopicPartition(rate.topic, rate.partition)] = per_second
    except Exception as error:  # a store that cannot be read ends neither the survey nor the server
        return MeasuredLoad(unknown=cause(error))
    until = (hour_start_ms(throughput.window.hours[-1]) + HOUR_MS) / 1000
    return MeasuredLoad(rates, throughput.window.text(), until_seconds=until)


# --- what is needed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlowNeed:
    """What `size` computes for a flow: its tasks (of an elastic one those for the next hours), what one of them is
    planned to carry at most (records None: bytes alone count), and the partitions that none can carry.

    `limits_in_seconds`: until growth passes them, as forecast.
    """

    tasks: int
    usable_bytes_per_second: float
    usable_records_per_second: float | None
    hot_partitions: tuple[HotPartition, ...] = ()
    limits_in_seconds: Mapping[str, float] = field(default_factory=dict)

    def share(self, volume: float, records: float | None) -> float:
        """Return what a task gets, as a share of what one is planned to carry, in bytes or records, whichever is
        more."""
        of_records = (records or 0.0) / self.usable_records_per_second if self.usable_records_per_second else 0.0
        return max(volume / self.usable_bytes_per_second, of_records)


@dataclass(frozen=True)
class ConnectNeed:
    """What `fleet` computes for a Connect cluster; None: no number of workers does, or they could not be read.

    `workers`: those with a connector or a task; an idle one shows nowhere. `limits_in_seconds` as of flows.
    """

    workers_needed: int | None
    workers: int | None
    limits_in_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EstateNeeds:
    """What the load of the newest four weeks asks for, by flow and by Connect cluster; `unknown`: why nothing is."""

    flows: Mapping[str, FlowNeed] = field(default_factory=dict)
    connects: Mapping[str, ConnectNeed] = field(default_factory=dict)
    unknown: str = ""


def estate_needs(tree: ExpandedTree, store: Store) -> EstateNeeds:
    """Judge the load of all flows as `size` and `fleet` do; a source that cannot be read leaves its flows out."""
    try:
        from mm2mgr.evidence.read import EvidenceOptions, declared_workers, read
        from mm2mgr.sizing.elastic import coming_hours
        from mm2mgr.sizing.forecast import MeasuredWeeks, forecast_flow, forecast_workers
        from mm2mgr.sizing.scenario import outcome, with_workers_seen

        evidence, topology = read(tree, EvidenceOptions(store)), tree.topology
        weeks = evidence.rates.weeks
        scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
        result = outcome(scenarios.values(), declared_workers(topology.connects, topology.flows))
        coming = {
            flow.id: coming_hours(scenarios[flow.id], evidence.rates.hours, tree.now)
            for flow in evidence.flows
            if flow.settings.tasks.elastic and flow.tasks.automatic
        }
        elastic = {name: of.near.sizing.tasks for name, of in coming.items() if not isinstance(of, str)}
    except Exception as error:  # as above
        return EstateNeeds(unknown=cause(error))
    flows = {
        flow_id: FlowNeed(
            elastic.get(flow_id, flow.sizing.tasks),
            flow.load.usable,
            None if math.isinf(flow.load.usable_records) else flow.load.usable_records,
            flow.sizing.hot_partitions,
            forecast_flow(flow, weeks.get(flow_id, MeasuredWeeks()), tree.now).seconds_until(tree.now),
        )
        for flow_id, flow in result.flows.items()
    }
    workers = {name: _workers_of(evidence.running[name]) for name in result.needs}
    loads = with_workers_seen(result, {name: count or 0 for name, count in workers.items()}).loads
    needs = {
        name: ConnectNeed(
            need.workers_needed,
            workers[name],
            forecast_workers(loads[name], weeks, tree.now).seconds_until(tree.now),
        )
        for name, need in result.needs.items()
    }
    return EstateNeeds(flows, needs)


def _workers_of(running: Mapping[str, RunningConnector] | Mm2mgrError) -> int | None:
    if isinstance(running, Mm2mgrError):
        return None
    return len(workers_at_work([connector.status for connector in running.values() if connector.status]))


# --- what flows move now ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlowThroughput:
    """What a flow mirrors per second, and how its tasks share the load; None: unknown.

    `mirrored_bytes_per_second` has the mean record size of the newest hour. `busiest_share`: what the busiest task got
    in that hour as a share of what a task is planned to carry, in bytes or in records, whichever is more. `balance`:
    the busiest task's bytes by the mean of all tasks.
    """

    mirrored_records_per_second: float | None = None
    mirrored_bytes_per_second: float | None = None
    source_records_per_second: float | None = None
    busiest_share: float | None = None
    balance: float | None = None


def throughput_of(facts: FlowFacts, tasks: Iterable[TaskLoad], need: FlowNeed | None) -> FlowThroughput:
    """Return what a flow moves, from its last looks and the load of its tasks; while its stored offsets cannot be read,
    what its source's log gets, and what is mirrored as far as the target's ends tell; None where there is no lag."""
    lag, last = facts.lag, facts.lag.last_stored
    mirrored, produced = recent_rates(
        facts.points.get(FLOW, ()), _RECENT_SECONDS, 0.0 if last else facts.flush_interval_seconds
    )
    if lag.unknown is not None:
        mirrored = produced = None  # the looks are earlier ones, of which the newest may have stood still
    elif last and (lag.blind or last.uncounted):
        mirrored = None
    loads = [
        (task.bytes_per_second or 0.0, task.records_per_second)
        for task in tasks
        if task.bytes_per_second is not None or not task.unmeasured_partitions  # one without partitions carries nothing
    ]
    volume, records = _sum(volume for volume, _ in loads), _sum(records for _, records in loads)
    size = volume / records if volume is not None and records else None
    return FlowThroughput(
        mirrored,
        mirrored * size if mirrored is not None and size is not None else None,
        produced,
        max((need.share(volume, records) for volume, records in loads), default=None) if need else None,
        spread([volume for volume, _ in loads]) if loads else None,
    )

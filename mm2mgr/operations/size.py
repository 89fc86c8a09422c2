"""`size`: the number of tasks for each flow, from evidence, written to overrides/sizing.yaml for review."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.read import Changes, Evidence, EvidenceOptions, apply_changes, declared_workers, read
from mm2mgr.files import cache_folder
from mm2mgr.json_values import to_json
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, seconds_of, spark_java
from mm2mgr.samples.schema import utc_text
from mm2mgr.sizing.elastic import coming_hours, decide_elastic
from mm2mgr.sizing.fleet import Failover, FlowRun, PairLayout, Placement, WorkerNeed, per_pair, placement_of
from mm2mgr.sizing.forecast import LimitForecast, MeasuredWeeks, forecast_flow, forecast_workers
from mm2mgr.sizing.recovery import Lag, Outlook, outlook
from mm2mgr.sizing.scenario import (
    FlowView,
    Outcome,
    OutcomeComparison,
    flow_view,
    outcome,
    size_scenario,
    with_workers_seen,
)
from mm2mgr.sizing.stability import Decision, Policy, decide, overrides_document, sizing_as_decided
from mm2mgr.sizing.tasks import OVERLOADED, SizedFlow, Sizing
from mm2mgr.spec.files import SIZING, override_target

if TYPE_CHECKING:
    from mm2mgr.balance.ways import Way
    from mm2mgr.partitions import TopicPartition
    from mm2mgr.samples.schema import Store
    from mm2mgr.sizing.scenario import Scenario
    from mm2mgr.throughput.engine import ChosenEngine
    from mm2mgr.throughput.hourly import GroupRate, WeeklyGrowth, WeekPattern
    from mm2mgr.throughput.rollup_writer import Report
    from mm2mgr.throughput.warm_session import WarmSpark
    from mm2mgr.throughput.windows import PartitionRate, Throughput
    from mm2mgr.topology import Flow


@dataclass(frozen=True)
class SizingReport:
    """What `size` found and wrote. `failures`: source clusters that could not be read, with why; their flows are not
    sized.

    `needed`: by flow id the number that the load asks for, where `sizings` have the one decided for. `measured`: which
    rates it was planned with. `path`: the file that was to be written (None: nothing was), `is_changed`: whether its
    content is another one now, `refused`: flows whose entries were changed meanwhile. `views`: what a page shows,
    `ways`: by flow id, what each way to assign its partitions makes of its load; both if asked for. `forecasts`: by
    flow id, when growth passes a limit.
    """

    sizings: tuple[Sizing, ...]
    needed: Mapping[str, int]
    decisions: Mapping[str, Decision]
    failures: Mapping[str, str]
    measured: str
    path: Path | None = None
    is_changed: bool = False
    refused: tuple[str, ...] = ()
    views: tuple[FlowView, ...] = ()
    ways: Mapping[str, tuple[Way, ...]] = field(default_factory=dict)
    forecasts: Mapping[str, LimitForecast] = field(default_factory=dict)
    json_keys = "sizings=sizing_documents failures"

    @property
    def savings(self) -> dict[str, int]:
        """The flows whose number only saves tasks, each with its partitions: their restart can wait."""
        saving = (sizing for sizing in self.sizings if self.decisions[sizing.flow_id].is_saving)
        return {sizing.flow_id: sizing.partitions for sizing in saving}

    @property
    def holds_until(self) -> dict[str, str]:
        """Until when the elastic flows that only save tasks have enough of them."""
        until = {flow_id: self.decisions[flow_id].holds_until_seconds for flow_id in self.savings}
        return {flow_id: utc_text(seconds) for flow_id, seconds in until.items() if seconds is not None}

    @property
    def too_small(self) -> tuple[str, ...]:
        """The flows that have too few tasks today."""
        return tuple(sizing.flow_id for sizing in self.sizings if sizing.now and sizing.now.verdict in OVERLOADED)

    @property
    def sizing_documents(self) -> list[dict[str, object]]:
        return [
            {
                **to_json(sizing),
                "needed_tasks": self.needed[sizing.flow_id],
                "moved_partitions": self.decisions[sizing.flow_id].moved_partitions,
                "forecast": to_json(self.forecasts.get(sizing.flow_id)),
                **({"ways": to_json(self.ways[sizing.flow_id])} if sizing.flow_id in self.ways else {}),
            }
            for sizing in self.sizings
        ]


def size(
    workspace: Workspace,
    flows: Sequence[str] = (),
    options: EvidenceOptions = EvidenceOptions(DEFAULT_STORE),
    *,
    write: bool = True,
    report: Callable[[SizingReport], None] = lambda _: None,
) -> SizingReport:
    """Size the named flows, or all, and write overrides/sizing.yaml; flows whose source cannot be read keep their
    entries.

    Mm2mgrError when nothing was rolled up, or the file cannot be written; `report` gets the result all the same.
    `options.notify` gets warnings about the file too.
    """
    chosen = workspace.flows(flows)
    path = SIZING.path(workspace.files, write=write)
    before = SIZING.read(path)
    if write:
        override_target(path)  # refused now, not after minutes of work
    evidence = read(workspace, options, chosen)
    result = _judge(workspace, evidence, views=options.views, compare=options.ways)
    try:
        return _write(workspace, options, evidence, result, (path, before)) if write and result.sizings else result
    finally:
        report(result)


def _write(
    workspace: Workspace,
    options: EvidenceOptions,
    evidence: Evidence,
    result: SizingReport,
    file: tuple[Path, Mapping[str, Mapping[str, object]]],
) -> SizingReport:
    since = {flow_id: decision.changed_seconds for flow_id, decision in result.decisions.items()}
    changed = {flow_id: utc_text(seconds) for flow_id, seconds in since.items() if seconds is not None}
    source = f"{options.statistic} of {options.store}"
    document = overrides_document(result.sizings, evidence.rates.window, source, changed, result.savings)
    for flow_id, until in result.holds_until.items():
        document["sizing"][flow_id]["holds_until"] = until
    ids = {flow.id for flow in workspace.topology.flows}
    is_changed, refused = SIZING.write(file[0], document["sizing"], ids, file[1], options.notify)
    return replace(result, path=file[0], is_changed=is_changed, refused=refused)


def _judge(workspace: Workspace, evidence: Evidence, *, views: bool, compare: bool) -> SizingReport:
    scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
    sized = {flow_id: size_scenario(scenario) for flow_id, scenario in scenarios.items()}
    earlier = {
        flow_id: Decision(entry.tasks_max, seconds_of(entry.changed), is_saving=entry.saves_tasks)
        for flow_id, entry in workspace.spec.tree.sizing.items()
    }
    decisions = decide(sized, earlier, Policy(), int(workspace.now))
    by_coming_hours = dict(sized)
    for flow in evidence.flows:
        if flow.settings.tasks.elastic and flow.tasks.automatic:
            coming = coming_hours(scenarios[flow.id], evidence.rates.hours, workspace.now)
            before, entry = earlier.get(flow.id), workspace.spec.tree.sizing.get(flow.id)
            if before is not None and entry is not None:
                before = replace(before, holds_until_seconds=seconds_of(entry.holds_until))
            decisions[flow.id] = decide_elastic(coming, sized[flow.id], before, Policy(), int(workspace.now))
            by_coming_hours[flow.id] = sized[flow.id] if isinstance(coming, str) else coming.as_sized
    sizings = {flow_id: sizing_as_decided(flow, decisions[flow_id]) for flow_id, flow in by_coming_hours.items()}
    shown = [
        flow_view(replace(flow, sizing=sizings[name]), scenarios[name], evidence.weeks.get(name, ()))
        for name, flow in (sized.items() if views else ())
    ]
    needed = {flow_id: flow.sizing.tasks for flow_id, flow in by_coming_hours.items()}
    final, measured = tuple(sizings.values()), evidence.rates.text
    ways = _compare_ways(evidence.flows, scenarios, sized) if compare else {}
    forecasts = _forecasts(evidence, sized, workspace.now)
    return SizingReport(
        final, needed, decisions, evidence.failures, measured, views=tuple(shown), ways=ways, forecasts=forecasts
    )


def _forecasts(evidence: Evidence, sized: Mapping[str, SizedFlow], now_seconds: float) -> dict[str, LimitForecast]:
    weeks = evidence.rates.weeks
    return {name: forecast_flow(flow, weeks.get(name, MeasuredWeeks()), now_seconds) for name, flow in sized.items()}


def _compare_ways(
    flows: Sequence[Flow], scenarios: Mapping[str, Scenario], sized: Mapping[str, SizedFlow]
) -> dict[str, tuple[Way, ...]]:
    """Compare ways to assign the partitions of each flow. One with lanes is compared as a whole, where all of them are
    sized; its lanes by themselves as well. What has the plugin's class needs no lanes."""
    ways = {}
    for flow in flows:
        parts = [part for part in flows if part.whole_id == flow.id]
        parts.sort(key=lambda part: part.lane_of is not None)
        is_whole = len(parts) == len(flow.settings.balance.lanes) + 1
        may_have_lanes = flow.lane_of is None and is_whole and flow.settings.balance.by == "stock"
        of_parts = [(scenarios[part.id], sized[part.id]) for part in (parts if may_have_lanes else (flow,))]
        ways[flow.id] = _compare(of_parts, with_lanes=may_have_lanes)
    return ways


def _compare(parts: Sequence[tuple[Scenario, SizedFlow]], *, with_lanes: bool) -> tuple[Way, ...]:
    """Compare ways to assign the partitions of connectors, by what each carries alone, in bytes and in records."""
    from mm2mgr.assignment import Assignment
    from mm2mgr.balance.fresh import FlowToPack
    from mm2mgr.balance.lanes import plan_lanes
    from mm2mgr.balance.planner import plan_balance
    from mm2mgr.balance.rates import MeasuredRate
    from mm2mgr.balance.rules import BalanceRules
    from mm2mgr.balance.ways import compare_ways, with_connectors_today

    rates: dict[TopicPartition | str, MeasuredRate | float] = {}
    partitions: list[TopicPartition] = []
    for scenario, sized in parts:
        sizes, without_load = scenario.profile.record_bytes, scenario.prediction.without_load
        for partition, rate in zip(sized.order, sized.load.alone.tolist(), strict=True):
            if partition not in without_load:
                rates[partition] = MeasuredRate(rate, rate / sizes[partition] if sizes.get(partition) else 0.0)
                partitions.append(partition)
    rules = BalanceRules.of_sizing(parts[0][0].rules)
    plan = plan_balance(partitions, rates, rules=rules)
    running = [scenario.prediction.running for scenario, _ in parts]
    tasks = [task for assignment in running if assignment is not None for task in assignment.tasks]
    current = None if None in running else Assignment(tuple(tasks))
    lanes = plan_lanes(FlowToPack(partitions, rates, rules), plan.task_count).way if with_lanes else None
    return with_connectors_today(compare_ways(plan, rates, current, rules, lanes), len(parts))


# --- fleet ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConnectReport:
    """One Connect cluster: the workers it needs, what runs there now, and its losses and recoveries with
    `judged_workers`.

    `declared_workers`: as the tree says (None: it does not). `predicted`: flows whose assignment was not read back.
    `forecasts`: when growth passes a limit, of its flows by id; `forecast`: of its workers.
    """

    need: WorkerNeed
    judged_workers: int
    declared_workers: int | None
    running: Placement
    predicted: tuple[str, ...]
    outlook: Outlook
    forecast: LimitForecast
    forecasts: Mapping[str, LimitForecast]
    json_keys = (
        "connect=need.connect tasks=need.tasks side_tasks=need.side_tasks bytes_per_second=need.bytes_per_second "
        "workers_today=need.workers_today workers_needed=need.workers_needed by_limit=need.by_limit "
        "fullest=need.fullest reasons=need.reasons judged_workers running=running_document lag=outlook.lag "
        "losses=outlook.losses recoveries=outlook.recoveries note=outlook.note limited=outlook.limited "
        "within=outlook.within forecast forecasts"
    )

    @property
    def running_reasons(self) -> list[str]:
        """What is unusual about what runs now."""
        predicted = "the load of each task is predicted, because its assignment was not read back."
        return [
            *self.running.sentences(self.declared_workers),
            *(f"{flow_id}: {predicted}" for flow_id in self.predicted),
        ]

    @property
    def running_document(self) -> dict[str, object]:
        running = self.running
        return {
            "workers": running.workers,
            "flows": running.flows,
            "nowhere": running.nowhere,
            "reasons": self.running_reasons,
            "read": not running.note,
        }


@dataclass(frozen=True)
class FleetReport:
    """Every Connect cluster with a load, and the layout of one cluster per pair beside it.

    `failures`: source clusters that could not be read, with why; their flows are not counted. `measured`: which rates
    it was planned with. `views`: what a page shows, if asked for.
    """

    connects: Mapping[str, ConnectReport]
    pair_layout: PairLayout
    failures: Mapping[str, str]
    measured: str
    views: tuple[FlowView, ...] = ()
    json_keys = "connect=connects pair_layout failures"


def fleet(
    workspace: Workspace,
    options: EvidenceOptions = EvidenceOptions(DEFAULT_STORE),
    *,
    lag: Lag = Lag(),
    worker_counts: Iterable[int] = (),
    failover: Failover | None = None,
) -> FleetReport:
    """Judge every Connect cluster of the workspace; nothing is written. `worker_counts`: numbers to estimate recovery
    for.

    Mm2mgrError when nothing was rolled up.
    """
    evidence = read(workspace, options)
    scenarios, topology = evidence.scenarios(), workspace.topology
    result = outcome(scenarios, declared_workers(topology.connects, topology.flows, failover))
    running = placements(evidence, result)
    result = with_workers_seen(result, {name: len(placement.workers) for name, placement in running.items()})
    counts, connects = tuple(worker_counts), {}
    for name, load in result.loads.items():
        need, flows = result.needs[name], running[name].flows
        judged = need.workers_today or (need.workers_needed or need.fullest.workers) + 1
        declared = topology.connects[name].model.workers.count
        predicted = tuple(flow.flow_id for flow in flows if result.sizings[flow.flow_id].assignment != "live")
        ahead = outlook(load, judged, lag, counts)
        forecast = forecast_workers(load, evidence.rates.weeks, workspace.now)
        forecasts = _forecasts(evidence, {run.flow_id: result.flows[run.flow_id] for run in load.runs}, workspace.now)
        connects[name] = ConnectReport(need, judged, declared, running[name], predicted, ahead, forecast, forecasts)
    views = tuple(
        flow_view(result.flows[scenario.flow_id], scenario, evidence.weeks.get(scenario.flow_id, ()))
        for scenario in (scenarios if options.views else ())
    )
    layout = per_pair(list(result.loads.values()))
    return FleetReport(connects, layout, evidence.failures, evidence.rates.text, views)


def placements(evidence: Evidence, result: Outcome) -> dict[str, Placement]:
    """Return what every Connect cluster with a load runs now, with what its tasks carry."""
    runs = {run.flow_id: run for load in result.loads.values() for run in load.runs}
    flows: dict[str, dict[str, FlowRun]] = {}
    for flow in evidence.flows:
        flows.setdefault(flow.connect.name, {})[flow.connector_name("source")] = runs[flow.id]
    return {
        name: Placement(note=connectors.one_line)
        if isinstance(connectors, Mm2mgrError)
        else placement_of(
            [connector.status for connector in connectors.values() if connector.status],
            flows[name],
            result.loads[name].worker,
        )
        for name, connectors in evidence.running.items()
    }


@dataclass(frozen=True)
class SimulationReport(OutcomeComparison):
    """What is and what would be. `notes`: what else, apart from load, argues against it. `failures`: source clusters
    that could not be read; their flows are not counted."""

    changes: Changes
    failures: Mapping[str, str]
    notes: tuple[str, ...] = ()
    json_keys = f"change=changes.text notes {OutcomeComparison.json_keys} failures"


def simulate(
    workspace: Workspace, changes: Changes, options: EvidenceOptions = EvidenceOptions(DEFAULT_STORE)
) -> SimulationReport:
    """Compare the workspace with what it would be after some changes; nothing is written.

    Mm2mgrError for no changes, for names that mean nothing, and when nothing was rolled up.
    """
    if changes == Changes():
        hint = "for instance --traffic 1.5, --lose-source ALIAS, --move TOPIC=FLOW, --add-target ALIAS, --limit FLOW=N"
        raise Mm2mgrError("no change given", hint=hint)
    evidence, topology = read(workspace, options), workspace.topology
    scenarios, workers = evidence.scenarios(), declared_workers(topology.connects, topology.flows)
    changed = apply_changes(topology, scenarios, changes)
    before, after = outcome(scenarios, workers), outcome(changed, workers)
    running = {name: len(placement.workers) for name, placement in placements(evidence, before).items()}
    before, after = with_workers_seen(before, running), with_workers_seen(after, running)
    return SimulationReport(before, after, changes, evidence.failures, tuple(changes.notes(topology)))


# --- throughput -------------------------------------------------------------------------------------------------------


_CURVE_HOURS = 24
Working = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class RolledUp:
    """What a roll-up did: its report, and on which engine; neither where nothing was new. `notes` are sentences about
    samples that the answers leave out."""

    report: Report | None
    engine: ChosenEngine | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BusiestPartitions:
    """The busiest partitions with the bytes per second of the last 24 hours, of how many, and what rates leave out."""

    rates: list[PartitionRate]
    curves: list[list[float]]
    partitions: int
    resets: int
    gaps: int


def roll_up(
    workspace: Workspace,
    store: Store,
    spark: bool | None = None,
    working: Working = lambda _: nullcontext(),
    warm: WarmSpark | None = None,
) -> RolledUp:
    """Roll up the hours that are new or changed, on the engine that `spark` (--spark, --no-spark or neither) and the
    machine decide on; where nothing is due none is started.

    `working` is entered with a sentence while the job runs; `warm` is the session of a process that stays.
    Mm2mgrError when the store holds no sample.
    """
    from mm2mgr.samples.schema import ahead, ahead_text, log_file_of
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.throughput.rollup_job import is_due, make

    early = ahead(SampleStore(store).hours(), time.time_ns() // 1_000_000)
    notes = (ahead_text(str(store), early),) if early else ()
    if not is_due(store):
        return RolledUp(None, notes=notes)
    engine = workspace.engine(spark)
    if not engine.on_spark:
        with working(f"rolling up {store}"):
            return RolledUp(make(store), engine, notes)
    from mm2mgr.throughput.job import run

    with working(f"rolling up {store} on Spark"):
        session, log_file = warm.session(engine.java_home) if warm else None, log_file_of(store, cache_folder)
        return RolledUp(run(store, engine.java_home, session, log_file), engine, notes)


def prepare_spark(working: Working = lambda _: nullcontext()) -> Path:
    """Make the archive of classes for local Spark sessions where there is none; return its path. JavaMissing without a
    Java."""
    home = spark_java()
    from mm2mgr.throughput.class_archive import prepare

    with working("archiving Spark's classes"):
        return prepare(home)


def read_throughput(store: Store, window_seconds: float | None = None) -> Throughput:
    """Return the throughput of the newest whole hours, or of all; Mm2mgrError when nothing was rolled up."""
    from mm2mgr.throughput.windows import last_hours, read_window

    return read_window(store, last_hours(store, window_seconds))


def busiest_partitions(
    store: Store, throughput: Throughput, top: int, *, with_curves: bool = True
) -> BusiestPartitions:
    """Return the partitions with the highest p95, busiest first; `top` 0 is all of them."""
    from mm2mgr.throughput.hourly import hourly
    from mm2mgr.throughput.windows import busiest, rates_of

    rows = busiest(throughput, top)
    curves = hourly(store, throughput.window.last(_CURVE_HOURS), throughput)[rows].tolist() if with_curves else []
    totals = [int(throughput.values[name].sum()) for name in ("resets", "gaps")]
    return BusiestPartitions(rates_of(throughput, rows), curves, len(throughput), *totals)


def group_rates(
    workspace: Workspace, store: Store, throughput: Throughput, by: Literal["topic", "flow"]
) -> list[GroupRate]:
    """Add up the partitions of every topic, or of every flow of the tree; busiest first."""
    from mm2mgr.throughput.hourly import by_flow, by_topic, hourly

    rates = hourly(store, throughput.window, throughput)
    if by == "topic":
        return by_topic(throughput, rates)
    return by_flow(throughput, rates, [(flow.id, flow.source.alias, flow.carries) for flow in workspace.topology.flows])


def growth(store: Store, throughput: Throughput) -> list[WeeklyGrowth]:
    """Compare the newest week of each topic with the week before; fastest growth first."""
    from mm2mgr.throughput.hourly import by_topic, hourly, topic_growth

    return topic_growth(by_topic(throughput, hourly(store, throughput.window, throughput)), throughput.window.hours)


def week(store: Store, throughput: Throughput) -> WeekPattern:
    """Return the load of everything by day of week and hour of day."""
    from mm2mgr.throughput.hourly import hourly, week_pattern

    return week_pattern(throughput, hourly(store, throughput.window, throughput))


def flow_topics(workspace: Workspace, store: Store) -> list[tuple[str, str, str | None]]:
    """Return the rows of the table `flows` of the named views: flow id, source alias, and each rolled-up topic that the
    flow carries; None for the topic of a flow that carries none. Mm2mgrError when nothing was rolled up."""
    names = read_throughput(store).names
    pairs = sorted({(names.clusters[of], names.topics[at]) for of, at in zip(names.cluster, names.topic, strict=True)})
    rows: list[tuple[str, str, str | None]] = []
    for flow in workspace.topology.flows:
        topics = [topic for alias, topic in pairs if alias == flow.source.alias and flow.carries(topic)]
        rows += [(flow.id, flow.source.alias, topic) for topic in topics or (None,)]
    return rows

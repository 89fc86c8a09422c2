"""`fleet`: what each Connect cluster runs, how many workers it needs, and how it gets over lost workers and lag.

`simulate`: tasks, hot partitions and workers now and after given changes, by the code that `size` and `fleet` use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.changes import Changes, apply_changes
from mm2mgr.evidence.read import Evidence, EvidenceOptions, declared_workers, read
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.sizing.fleet import Failover, FlowRun, PairLayout, WorkerNeed, per_pair
from mm2mgr.sizing.placement import Placement, placement_of
from mm2mgr.sizing.recovery import Lag, Outlook, outlook
from mm2mgr.sizing.scenario import FlowView, Outcome, OutcomeComparison, flow_view, outcome, with_workers_seen


@dataclass(frozen=True)
class ConnectReport:
    """One Connect cluster: the workers it needs, what runs there now, and its losses and recoveries with
    `judged_workers`.

    `declared_workers`: as the tree says (None: it does not). `predicted`: flows whose assignment was not read back.
    """

    need: WorkerNeed
    judged_workers: int
    declared_workers: int | None
    running: Placement
    predicted: tuple[str, ...]
    outlook: Outlook
    json_keys = (
        "connect=need.connect tasks=need.tasks side_tasks=need.side_tasks bytes_per_second=need.bytes_per_second "
        "workers_today=need.workers_today workers_needed=need.workers_needed by_limit=need.by_limit "
        "fullest=need.fullest reasons=need.reasons judged_workers running=running_document lag=outlook.lag "
        "losses=outlook.losses recoveries=outlook.recoveries note=outlook.note limited=outlook.limited"
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
        connects[name] = ConnectReport(need, judged, declared, running[name], predicted, ahead)
    views = tuple(
        flow_view(result.flows[scenario.flow_id], scenario.rates, evidence.weeks.get(scenario.flow_id, ()))
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
        name: Placement(note=state.note)
        if state.note
        else placement_of(state.connectors, flows[name], result.loads[name].worker)
        for name, state in evidence.connects.items()
    }


@dataclass(frozen=True)
class SimulationReport(OutcomeComparison):
    """What is and what would be. `failures`: source clusters that could not be read; their flows are not counted."""

    changes: Changes
    failures: Mapping[str, str]
    json_keys = f"change=changes.text notes=changes.notes {OutcomeComparison.json_keys} failures"


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
    return SimulationReport(before, after, changes, evidence.failures)

"""`fleet`: what each Connect cluster runs, how many workers it needs, and how it gets over lost workers and lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm2mgr.evidence.declared import declared_workers
from mm2mgr.evidence.read import Evidence, read
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.render import source_connector_name
from mm2mgr.sizing.fleet import Failover, FlowRun, PairLayout, WorkerNeed, per_pair
from mm2mgr.sizing.load import Statistic
from mm2mgr.sizing.placement import Placement, placement_of
from mm2mgr.sizing.recovery import Lag, Outlook, outlook
from mm2mgr.sizing.scenario import FlowView, Outcome, flow_view, outcome, with_workers_seen


@dataclass(frozen=True)
class ConnectReport:
    """One Connect cluster: the workers it needs, what runs there now, and its losses and recoveries with `judged_workers`.

    `declared_workers`: as the tree says (None: it does not). `predicted`: flows whose assignment was not read back.
    """

    need: WorkerNeed
    judged_workers: int
    declared_workers: int | None
    running: Placement
    predicted: tuple[str, ...]
    outlook: Outlook

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        running = self.running.to_dict(self.declared_workers)
        running["reasons"] += [
            f"{flow_id}: the load of each task is predicted, because its assignment was not read back."
            for flow_id in self.predicted
        ]
        need = self.need.to_dict()
        return {**need, "judged_workers": self.judged_workers, "running": running, **self.outlook.to_dict()}


@dataclass(frozen=True)
class FleetReport:
    """Every Connect cluster with a load, and the layout of one cluster per pair beside it.

    `failures`: source clusters that could not be read, with why; their flows are not counted. `measured`: which rates it was
    planned with. `views`: what a page shows, if asked for.
    """

    connects: Mapping[str, ConnectReport]
    pair_layout: PairLayout
    failures: Mapping[str, str]
    measured: str
    views: tuple[FlowView, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        layout = {**vars(self.pair_layout), "reason": self.pair_layout.reason}
        connects = {name: one.to_dict() for name, one in self.connects.items()}
        return {"connect": connects, "pair_layout": layout, "failures": dict(self.failures)}


def fleet(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    *,
    store: str | Path = DEFAULT_STORE,
    window_seconds: float | None = None,
    statistic: Statistic = "p95",
    lag: Lag | None = None,
    worker_counts: Iterable[int] = (),
    failover: Failover | None = None,
    views: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> FleetReport:
    """Judge every Connect cluster of the workspace; nothing is written. `worker_counts`: numbers to estimate recovery for.

    Mm2mgrError when nothing was rolled up. `notify` gets warnings about the store.
    """
    evidence = read(
        workspace, store=store, window_seconds=window_seconds, statistic=statistic, weeks=views, warn=notify
    )
    scenarios = evidence.scenarios()
    found = outcome(scenarios, declared_workers(workspace.topology.connects, workspace.topology.flows, failover))
    running = placements(evidence, found)
    found = with_workers_seen(found, {name: len(one.workers) for name, one in running.items()})
    counts = tuple(worker_counts)
    connects = {}
    for name, load in found.loads.items():
        need = found.needs[name]
        judged = need.workers_today or (need.workers_needed or need.fullest.workers) + 1
        declared = workspace.topology.connects[name].model.workers.count
        predicted = tuple(one.flow_id for one in running[name].flows if found.sizings[one.flow_id].assignment != "live")
        ahead = outlook(load, judged, lag or Lag(), counts)
        connects[name] = ConnectReport(need, judged, declared, running[name], predicted, ahead)
    shown = [
        flow_view(found.flows[one.flow_id], one.rates, evidence.weeks.get(one.flow_id, ()))
        for one in scenarios
        if views
    ]
    layout = per_pair(list(found.loads.values()))
    return FleetReport(connects, layout, evidence.failures, evidence.rates.text, tuple(shown))


def placements(evidence: Evidence, found: Outcome) -> dict[str, Placement]:
    """Return what every Connect cluster with a load runs now, with what its tasks carry."""
    runs = {run.flow_id: run for load in found.loads.values() for run in load.runs}
    flows: dict[str, dict[str, FlowRun]] = {}
    for flow in evidence.flows:
        flows.setdefault(flow.connect.name, {})[source_connector_name(flow)] = runs[flow.id]
    return {
        name: Placement(note=state.note)
        if state.note
        else placement_of(state.connectors, flows[name], found.loads[name].worker)
        for name, state in evidence.connects.items()
    }

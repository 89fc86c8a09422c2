"""`fleet`: what each Connect cluster runs, how many workers it needs, and how it gets over lost workers and lag.

`simulate`: tasks, hot partitions and workers now and after given changes, by the code that `size` and `fleet` use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.read import Evidence, declared_workers, read
from mm2mgr.json_values import to_json
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.partitions import Statistic
from mm2mgr.sizing import scenario as what_if
from mm2mgr.sizing.fleet import Failover, FlowRun, PairLayout, WorkerNeed, per_pair
from mm2mgr.sizing.placement import Placement, placement_of
from mm2mgr.sizing.recovery import Lag, Outlook, outlook
from mm2mgr.sizing.scenario import FlowView, Outcome, Scenario, comparison, flow_view, outcome, with_workers_seen
from mm2mgr.topology import Topology


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
        running["reasons"] = [
            *self.running.sentences(self.declared_workers),
            *(
                f"{flow_id}: the load of each task is predicted, because its assignment was not read back."
                for flow_id in self.predicted
            ),
        ]
        need = to_json(self.need)
        return {**need, "judged_workers": self.judged_workers, "running": running, **asdict(self.outlook)}


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
        connects = to_json(self.connects)
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
    counts, connects = tuple(worker_counts), {}
    for name, load in found.loads.items():
        need = found.needs[name]
        judged = need.workers_today or (need.workers_needed or need.fullest.workers) + 1
        declared = workspace.topology.connects[name].model.workers.count
        predicted = tuple(one.flow_id for one in running[name].flows if found.sizings[one.flow_id].assignment != "live")
        ahead = outlook(load, judged, lag or Lag(), counts)
        connects[name] = ConnectReport(need, judged, declared, running[name], predicted, ahead)
    shown = [
        flow_view(found.flows[one.flow_id], one.rates, evidence.weeks.get(one.flow_id, ()))
        for one in (scenarios if views else ())
    ]
    layout = per_pair(list(found.loads.values()))
    return FleetReport(connects, layout, evidence.failures, evidence.rates.text, tuple(shown))


def placements(evidence: Evidence, found: Outcome) -> dict[str, Placement]:
    """Return what every Connect cluster with a load runs now, with what its tasks carry."""
    runs = {run.flow_id: run for load in found.loads.values() for run in load.runs}
    flows: dict[str, dict[str, FlowRun]] = {}
    for flow in evidence.flows:
        flows.setdefault(flow.connect.name, {})[flow.connector_name("source")] = runs[flow.id]
    return {
        name: Placement(note=state.note)
        if state.note
        else placement_of(state.connectors, flows[name], found.loads[name].worker)
        for name, state in evidence.connects.items()
    }


@dataclass(frozen=True)
class Changes:
    """The changes of a scenario: names as they were typed."""

    traffic: float | None = None
    lost_sources: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    def notes(self) -> list[str]:
        """Return what else, apart from load, argues against these changes."""
        topics = ", ".join(topic for topic, _ in self.moves)
        note = (
            f"a flow that takes a topic over from another one mirrors it from the start: plan blocks such a move of {topics} "
            "(mirrored-already) where records have been mirrored, unless --allow mirror-again"
        )
        return [note] if topics else []

    def text(self) -> str:
        """Say in words what is changed."""
        said = [f"{alias} lost" for alias in self.lost_sources]
        said += [f"{topic} moved to {flow}" for topic, flow in self.moves]
        targets = [target.rpartition("=") for target in self.targets]
        said += [f"{alias} added" + (f" for {flow}" if flow else "") for flow, _, alias in targets]
        said += [f"limit of {flow} {count}" for flow, count in self.limits]
        return ", ".join([*said, *([f"traffic × {self.traffic:g}"] if self.traffic else [])])


@dataclass(frozen=True)
class SimulationReport:
    """What is and what would be. `failures`: source clusters that could not be read, with why; their flows are not counted."""

    changes: Changes
    before: Outcome
    after: Outcome
    failures: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        change = {"change": self.changes.text(), "notes": self.changes.notes()}
        return {**change, **comparison(self.before, self.after), "failures": dict(self.failures)}


def simulate(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    changes: Changes,
    *,
    store: str | Path = DEFAULT_STORE,
    window_seconds: float | None = None,
    statistic: Statistic = "p95",
    notify: Callable[[str], None] = lambda _: None,
) -> SimulationReport:
    """Compare the workspace with what it would be after some changes; nothing is written.

    Mm2mgrError for no changes, for names that mean nothing, and when nothing was rolled up. `notify` gets warnings about the store.
    """
    if changes == Changes():
        hint = "for instance --traffic 1.5, --lose-source ALIAS, --move TOPIC=FLOW, --add-target ALIAS, --limit FLOW=N"
        raise Mm2mgrError("no change given", hint=hint)
    evidence = read(workspace, store=store, window_seconds=window_seconds, statistic=statistic, warn=notify)
    topology = workspace.topology
    scenarios, workers = evidence.scenarios(), declared_workers(topology.connects, topology.flows)
    changed = apply_changes(topology, scenarios, changes)
    before, after = outcome(scenarios, workers), outcome(changed, workers)
    seen = {name: len(one.workers) for name, one in placements(evidence, before).items()}
    return SimulationReport(changes, with_workers_seen(before, seen), with_workers_seen(after, seen), evidence.failures)


def apply_changes(topology: Topology, scenarios: Sequence[Scenario], changes: Changes) -> tuple[Scenario, ...]:
    """Return the scenarios after all changes; Mm2mgrError for names that mean nothing here."""
    changed = tuple(scenarios)
    for alias in changes.lost_sources:
        known = sorted({scenario.source for scenario in scenarios})
        if alias not in known and any(flow.source.alias == alias for flow in topology.flows):
            hint = "run without --lose-source to see the remaining load"
            raise Mm2mgrError(f"'{alias}' could not be read, so its flows are not counted to begin with", hint=hint)
        if alias not in known:
            raise Mm2mgrError(f"no flow reads from '{alias}'", hint=f"source clusters: {', '.join(known) or 'none'}")
        changed = what_if.without_source(changed, alias)
    for topic, name in changes.moves:
        changed = _moved(topology, changed, topic, name)
    for target in changes.targets:
        changed = _with_target(topology, changed, target)
    for name, count in changes.limits:
        if not (count.isdecimal() and int(count) > 0):
            raise Mm2mgrError(f"'{count}' is not a number of tasks", hint=f"for instance --limit {name}=8")
        changed = what_if.with_limit(changed, _ids(topology, name, changed), int(count))
    return what_if.with_traffic(changed, changes.traffic) if changes.traffic else changed


def _ids(topology: Topology, name: str, scenarios: Sequence[Scenario] = ()) -> set[str]:
    """Return the ids that a name means, those of flows that a change has added too; Mm2mgrError where it means none."""
    added = {scenario.flow_id for scenario in scenarios if name in (scenario.name, scenario.pair, scenario.flow_id)}
    return added or {flow.id for flow in topology.select(name)}


def _moved(topology: Topology, scenarios: Sequence[Scenario], topic: str, name: str) -> tuple[Scenario, ...]:
    """Give a topic to the flows of this name, or to one more of this name where no flow has it."""
    carrying = [scenario for scenario in scenarios if scenario.carries(topic)]
    hint = "`mm2mgr throughput --by topic` names topics"
    if ":" not in name and "->" not in name and all(flow.name != name for flow in topology.flows):
        if not carrying:
            raise Mm2mgrError(f"no flow carries '{topic}'", hint=hint)
        return what_if.with_topic_split(scenarios, topic, name)
    wanted = _ids(topology, name)
    pairs = {scenario.pair for scenario in scenarios if scenario.flow_id in wanted}
    if not any(scenario.pair in pairs and scenario.flow_id not in wanted for scenario in carrying):
        hint = f"a topic is moved between flows of the same source and target; {hint}"
        raise Mm2mgrError(f"no other flow of {', '.join(sorted(pairs)) or name} carries '{topic}'", hint=hint)
    return what_if.with_topic_moved(scenarios, topic, wanted)


def _with_target(topology: Topology, scenarios: Sequence[Scenario], text: str) -> tuple[Scenario, ...]:
    """Run the new flows where the tree would: on the Connect cluster of that Kafka, else on one that is new too."""
    name, _, alias = text.rpartition("=")
    names = {flow.name for flow in topology.select(name)} if name else {scenario.name for scenario in scenarios}
    near = [connect.name for connect in topology.connects.values() if connect.kafka == alias]
    changed = what_if.with_target(scenarios, alias, near[0] if len(near) == 1 else f"{alias} (new)", names)
    if len(changed) == len(scenarios):
        raise Mm2mgrError(f"these flows already go to '{alias}' or come from it", hint="name a target they do not have")
    return changed

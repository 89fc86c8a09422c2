"""How fleet and simulate go about it: the tree, measured rates and the brokers' topics as cases, changed as asked for.

In: the tree and what the user asked. Out: words, JSON or a page, and an exit code. Nothing is written but the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr.cli.cases import Asked, cases_of, machines_of
from mm2mgr.cli.placing import placements
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, say_json
from mm2mgr.output.fleet_text import say_comparison, say_fleet
from mm2mgr.sizing import whatif
from mm2mgr.sizing.comparison import comparison
from mm2mgr.sizing.fleet import Failover, per_pair
from mm2mgr.sizing.recovery import Lag, outlook
from mm2mgr.sizing.whatif import Case, Outcome, outcome, with_workers_seen

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.sizing.placement import Placement
    from mm2mgr.topology import Topology


@dataclass(frozen=True)
class Changes:
    """What would be other: names as people wrote them."""

    traffic: float | None = None
    lost_sources: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    def notes(self) -> Iterator[str]:
        """Say what stands in the way of these changes, beside load."""
        if self.moves:
            topics = ", ".join(topic for topic, _ in self.moves)
            yield (
                f"a flow that takes a topic over from another one mirrors it from the start: plan blocks such a move of {topics} "
                "(mirrored-already) where records have been mirrored, unless --mirror-again"
            )

    def text(self) -> str:
        """Say in words what is changed."""
        said = [f"{alias} lost" for alias in self.lost_sources]
        said += [f"{topic} moved to {flow}" for topic, flow in self.moves]
        targets = [target.rpartition("=") for target in self.targets]
        said += [f"{alias} added" + (f" for {flow}" if flow else "") for flow, _, alias in targets]
        said += [f"limit of {flow} {count}" for flow, count in self.limits]
        return ", ".join([*said, *([f"traffic × {self.traffic:g}"] if self.traffic else [])])


@dataclass(frozen=True)
class FleetQuestion:
    """What `fleet` is asked beside the rates: the lag, worker counts to estimate it for, the workers' failover settings, a page."""

    lag: Lag
    counts: tuple[int, ...] = ()
    failover: Failover = field(default_factory=Failover)
    page: Path | None = None


def run_fleet(workspace: Workspace, asked: Asked, question: FleetQuestion) -> int:
    """Tell what every Connect cluster runs, needs and survives."""
    cases, failures = cases_of(workspace, asked)
    found = outcome(cases, machines_of(workspace.topology, question.failover))
    running = placements(workspace.topology, found)
    found = with_workers_seen(found, {name: len(one.workers) for name, one in running.items()})
    report = fleet_report(workspace.topology, found, running, question)
    if asked.output == "json":
        say_json({**report, "failures": dict(failures)})
    else:
        say_fleet(report)
    if question.page:
        from mm2mgr.cli.paging import rates_text, views_of_cases, write_page

        views = views_of_cases(workspace, asked, cases, found)
        write_page(question.page, views, {**report, "failures": dict(failures)}, rates_text(asked))
    return _failed(failures)


def run_simulate(workspace: Workspace, asked: Asked, changes: Changes) -> int:
    """Compare what is with what would be."""
    if changes == Changes():
        hint = "for instance --traffic 1.5, --lose-source ALIAS, --move TOPIC=FLOW, --add-target ALIAS, --limit FLOW=N"
        raise Mm2mgrError("nothing to change was named", hint=hint)
    cases, failures = cases_of(workspace, asked)
    machines = machines_of(workspace.topology)
    changed = apply_changes(workspace.topology, cases, changes)
    before, after = outcome(cases, machines), outcome(changed, machines)
    running = {name: len(one.workers) for name, one in placements(workspace.topology, before).items()}
    sides = (with_workers_seen(before, running), with_workers_seen(after, running))
    report = {"change": changes.text(), "notes": list(changes.notes()), **comparison(*sides)}
    if asked.output == "json":
        say_json({**report, "failures": dict(failures)})
    else:
        say_comparison(report)
    return _failed(failures)


def fleet_report(
    topology: Topology, found: Outcome, running: Mapping[str, Placement], question: FleetQuestion
) -> dict[str, object]:
    """Return what runs, needs, losses, recoveries and the old layout as plain JSON values."""
    connects = {}
    for name, load in found.loads.items():
        need = found.needs[name]
        judged = need.workers_today or (need.workers_needed or need.fullest.workers) + 1
        now = running[name].to_dict(topology.connects[name].model.workers.count)
        now["reasons"] += [
            f"{one['flow_id']}: the load of each task is predicted, because its assignment was not read back."
            for one in now["flows"]
            if found.sizings[one["flow_id"]].deal != "live"
        ]
        ahead = outlook(load, judged, question.lag, question.counts).to_dict()
        connects[name] = {**need.to_dict(), "judged_workers": judged, "running": now, **ahead}
    pairs = per_pair(list(found.loads.values()))
    return {"connect": connects, "pair_layout": {**vars(pairs), "reason": pairs.reason}}


def apply_changes(topology: Topology, cases: Sequence[Case], changes: Changes) -> tuple[Case, ...]:
    """Return the cases after all changes; Mm2mgrError for names that mean nothing here."""
    changed = tuple(cases)
    for alias in changes.lost_sources:
        known = sorted({case.source for case in cases})
        if alias not in known and any(flow.source.alias == alias for flow in topology.flows):
            hint = "run without --lose-source to see the remaining load"
            raise Mm2mgrError(f"'{alias}' could not be read, so its flows are not counted to begin with", hint=hint)
        if alias not in known:
            raise Mm2mgrError(f"no flow reads from '{alias}'", hint=f"source clusters: {', '.join(known) or 'none'}")
        changed = whatif.without_source(changed, alias)
    for topic, name in changes.moves:
        changed = _moved(topology, changed, topic, name)
    for target in changes.targets:
        changed = _with_target(topology, changed, target)
    for name, count in changes.limits:
        if not (count.isdecimal() and int(count) > 0):
            raise Mm2mgrError(f"'{count}' is no limit of tasks", hint=f"for instance --limit {name}=8")
        changed = whatif.with_limit(changed, _ids(topology, name, changed), int(count))
    return whatif.with_traffic(changed, changes.traffic) if changes.traffic else changed


def _ids(topology: Topology, name: str, cases: Sequence[Case] = ()) -> set[str]:
    """Return the ids that a name means, those of flows that a change has added too; Mm2mgrError where it means none."""
    added = {case.flow_id for case in cases if name in (case.name, case.pair, case.flow_id)}
    return added or {flow.id for flow in topology.select(name)}


def _moved(topology: Topology, cases: Sequence[Case], topic: str, name: str) -> tuple[Case, ...]:
    if _is_new(topology, name):
        return _split(cases, topic, name)
    wanted = _ids(topology, name)
    pairs = {case.pair for case in cases if case.flow_id in wanted}
    if not any(case.carries(topic) for case in cases if case.pair in pairs and case.flow_id not in wanted):
        hint = (
            "a topic is moved between flows of the same source and target; `mm2mgr throughput --by topic` names topics"
        )
        raise Mm2mgrError(f"no other flow of {', '.join(sorted(pairs)) or name} carries '{topic}'", hint=hint)
    return whatif.with_topic_moved(cases, topic, wanted)


def _is_new(topology: Topology, name: str) -> bool:
    """Tell whether a name could be that of a flow more: no flow has it, and it is neither a pair nor an id."""
    return ":" not in name and "->" not in name and all(flow.name != name for flow in topology.flows)


def _split(cases: Sequence[Case], topic: str, name: str) -> tuple[Case, ...]:
    if not any(case.carries(topic) for case in cases):
        raise Mm2mgrError(f"no flow carries '{topic}'", hint="`mm2mgr throughput --by topic` names topics")
    return whatif.with_topic_split(cases, topic, name)


def _with_target(topology: Topology, cases: Sequence[Case], text: str) -> tuple[Case, ...]:
    """Run the new flows where the tree would: on the Connect cluster of that Kafka, else on one that is new too."""
    name, _, alias = text.rpartition("=")
    names = {flow.name for flow in topology.select(name)} if name else {case.name for case in cases}
    near = [connect.name for connect in topology.connects.values() if connect.kafka == alias]
    changed = whatif.with_target(cases, alias, near[0] if len(near) == 1 else f"{alias} (new)", names)
    if len(changed) == len(cases):
        raise Mm2mgrError(
            f"these flows go to '{alias}' already, or come from it", hint="name a target they do not have"
        )
    return changed


def _failed(failures: Mapping[str, str]) -> int:
    for message in failures.values():
        complain(f"{message}; its flows are not counted", "check bootstrap_servers and access: of this cluster")
    return 1 if failures else 0

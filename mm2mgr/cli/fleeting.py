"""How fleet and simulate go about it: the tree, measured rates and the brokers' topics as cases, changed as asked for.

In: the tree and what the user asked. Out: words, JSON or a page, and an exit code. Nothing is written but the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.cli.cases import Asked, cases_of, machines_of
from mm2mgr.cli.estate import Estate
from mm2mgr.errors import Mm2mgrError
from mm2mgr.output.console import complain, say_json
from mm2mgr.output.fleet_text import say_comparison, say_fleet
from mm2mgr.sizing import whatif
from mm2mgr.sizing.fleet import per_pair
from mm2mgr.sizing.recovery import Lag, outlook
from mm2mgr.sizing.whatif import Case, Outcome, comparison, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.topology import Topology


@dataclass(frozen=True)
class Changes:
    """What would be other: names as people wrote them."""

    traffic: float | None = None
    lost_sources: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Say in words what is changed."""
        said = [f"{alias} lost" for alias in self.lost_sources]
        said += [f"{topic} moved to {flow}" for topic, flow in self.moves]
        said += [f"{alias.rpartition('=')[2]} added" for alias in self.targets]
        said += [f"limit of {flow} {count}" for flow, count in self.limits]
        return ", ".join([*said, *([f"traffic × {self.traffic:g}"] if self.traffic else [])])


def run_fleet(estate: Estate, asked: Asked, lag: Lag, counts: Sequence[int], page: Path | None) -> int:
    """Tell what every Connect cluster needs and survives."""
    cases, failures = cases_of(estate, asked)
    found = outcome(cases, machines_of(estate.topology))
    report = fleet_report(found, lag, counts, failures)
    if asked.output == "json":
        say_json(report)
    else:
        say_fleet(report)
    if page:
        from mm2mgr.cli.paging import views_of_cases, write_page

        write_page(page, views_of_cases(estate, asked, cases, found), report)
    return _failed(failures)


def run_simulate(estate: Estate, asked: Asked, changes: Changes) -> int:
    """Compare what is with what would be."""
    if changes == Changes():
        hint = "for instance --traffic 1.5, --lose-source ALIAS, --move TOPIC=FLOW, --add-target ALIAS, --limit FLOW=N"
        raise Mm2mgrError("nothing to change was named", hint=hint)
    cases, failures = cases_of(estate, asked)
    machines = machines_of(estate.topology)
    changed = apply_changes(estate.topology, cases, changes)
    report = {"change": changes.text(), **comparison(outcome(cases, machines), outcome(changed, machines))}
    if asked.output == "json":
        say_json({**report, "failures": dict(failures)})
    else:
        say_comparison(report)
    return _failed(failures)


def fleet_report(found: Outcome, lag: Lag, counts: Sequence[int], failures: Mapping[str, str]) -> dict[str, object]:
    """Return needs, losses, recoveries and the old layout as plain JSON values."""
    connects = {}
    for name, load in found.loads.items():
        need = found.needs[name]
        judged = need.workers_today or (need.workers_needed or need.fullest.workers) + 1
        connects[name] = {**need.to_dict(), "judged_workers": judged, **outlook(load, judged, lag, counts).to_dict()}
    pairs = per_pair(list(found.loads.values()))
    return {
        "connect": connects,
        "pair_layout": {**vars(pairs), "reason": pairs.reason},
        "failures": dict(failures),
    }


def apply_changes(topology: Topology, cases: Sequence[Case], changes: Changes) -> tuple[Case, ...]:
    """Return the cases after all changes; Mm2mgrError for names that mean nothing here."""
    changed = tuple(cases)
    for alias in changes.lost_sources:
        known = sorted({case.source for case in cases})
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
        changed = whatif.with_limit(changed, _ids(topology, name), int(count))
    return whatif.with_traffic(changed, changes.traffic) if changes.traffic else changed


def _ids(topology: Topology, name: str) -> set[str]:
    return {flow.id for flow in topology.select(name)}


def _moved(topology: Topology, cases: Sequence[Case], topic: str, name: str) -> tuple[Case, ...]:
    wanted = _ids(topology, name)
    pairs = {case.pair for case in cases if case.flow_id in wanted}
    if not any(case.carries(topic) for case in cases if case.pair in pairs and case.flow_id not in wanted):
        hint = (
            "a topic is moved between flows of the same source and target; `mm2mgr throughput --by topic` names topics"
        )
        raise Mm2mgrError(f"no other flow of {', '.join(sorted(pairs)) or name} carries '{topic}'", hint=hint)
    return whatif.with_topic_moved(cases, topic, wanted)


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

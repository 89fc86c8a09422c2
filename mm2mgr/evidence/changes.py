"""The changes that `simulate` is asked for, as they were typed, and the scenarios after them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mm2mgr.errors import Mm2mgrError
from mm2mgr.sizing import scenario as what_if
from mm2mgr.sizing.scenario import Scenario
from mm2mgr.topology import Topology


@dataclass(frozen=True)
class Changes:
    """The changes of a scenario: names as they were typed."""

    traffic: float | None = None
    lost_sources: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    @property
    def notes(self) -> list[str]:
        """What else, apart from load, argues against these changes."""
        topics = ", ".join(topic for topic, _ in self.moves)
        note = (
            f"a flow that takes a topic over from another one mirrors it from the start: plan blocks such a move of {topics} "
            "(mirrored-already) where records have been mirrored, unless --allow mirror-again"
        )
        return [note] if topics else []

    @property
    def text(self) -> str:
        """What is changed, in words."""
        parts = [f"{alias} lost" for alias in self.lost_sources]
        parts += [f"{topic} moved to {flow}" for topic, flow in self.moves]
        targets = [target.rpartition("=") for target in self.targets]
        parts += [f"{alias} added" + (f" for {flow}" if flow else "") for flow, _, alias in targets]
        parts += [f"limit of {flow} {count}" for flow, count in self.limits]
        return ", ".join([*parts, *([f"traffic × {self.traffic:g}"] if self.traffic else [])])


def apply_changes(topology: Topology, scenarios: Sequence[Scenario], changes: Changes) -> tuple[Scenario, ...]:
    """Return the scenarios after all changes; Mm2mgrError for names that mean nothing here."""
    changed = tuple(scenarios)
    for alias in changes.lost_sources:
        sources = sorted({scenario.source for scenario in scenarios})
        if alias not in sources and any(flow.source.alias == alias for flow in topology.flows):
            hint = "run without --lose-source to see the remaining load"
            raise Mm2mgrError(f"'{alias}' could not be read, so its flows are not counted to begin with", hint=hint)
        if alias not in sources:
            raise Mm2mgrError(f"no flow reads from '{alias}'", hint=f"source clusters: {', '.join(sources) or 'none'}")
        changed = what_if.without_source(changed, alias)
    for topic, name in changes.moves:
        changed = _move_topic(topology, changed, topic, name)
    for target in changes.targets:
        changed = _add_target(topology, changed, target)
    for name, count in changes.limits:
        if not (count.isdecimal() and int(count) > 0):
            raise Mm2mgrError(f"'{count}' is not a number of tasks", hint=f"for instance --limit {name}=8")
        changed = what_if.with_limit(changed, _ids(topology, name, changed), int(count))
    return what_if.with_traffic(changed, changes.traffic) if changes.traffic else changed


def _ids(topology: Topology, name: str, scenarios: Sequence[Scenario] = ()) -> set[str]:
    """Return the ids that a name means, those of flows that a change has added too; Mm2mgrError where it means none."""
    added = {scenario.flow_id for scenario in scenarios if name in (scenario.name, scenario.pair, scenario.flow_id)}
    return added or {flow.id for flow in topology.select(name)}


def _move_topic(topology: Topology, scenarios: Sequence[Scenario], topic: str, name: str) -> tuple[Scenario, ...]:
    """Give a topic to the flows of this name, or to one more of this name where no flow has it."""
    carrying = [scenario for scenario in scenarios if scenario.carries(topic)]
    hint = "`mm2mgr throughput --by topic` names topics"
    if ":" not in name and "->" not in name and all(flow.name != name for flow in topology.flows):
        if not carrying:
            raise Mm2mgrError(f"no flow carries '{topic}'", hint=hint)
        return what_if.with_topic_split(scenarios, topic, name)
    takers = _ids(topology, name)
    pairs = {scenario.pair for scenario in scenarios if scenario.flow_id in takers}
    if not any(scenario.pair in pairs and scenario.flow_id not in takers for scenario in carrying):
        hint = f"a topic is moved between flows of the same source and target; {hint}"
        raise Mm2mgrError(f"no other flow of {', '.join(sorted(pairs)) or name} carries '{topic}'", hint=hint)
    return what_if.with_topic_moved(scenarios, topic, takers)


def _add_target(topology: Topology, scenarios: Sequence[Scenario], text: str) -> tuple[Scenario, ...]:
    """Run the new flows where the tree would: on the Connect cluster of that Kafka, else on one that is new too."""
    name, _, alias = text.rpartition("=")
    names = {flow.name for flow in topology.select(name)} if name else {scenario.name for scenario in scenarios}
    near = [connect.name for connect in topology.connects.values() if connect.kafka == alias]
    changed = what_if.with_target(scenarios, alias, near[0] if len(near) == 1 else f"{alias} (new)", names)
    if len(changed) == len(scenarios):
        raise Mm2mgrError(f"these flows already go to '{alias}' or come from it", hint="name a target they do not have")
    return changed

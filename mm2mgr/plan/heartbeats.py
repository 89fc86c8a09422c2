"""Decides which source connector of each pair mirrors its heartbeats: the one that does live, so that no tree gives
them away unasked. Pure.

Another connector has no stored offsets of them and would mirror all of them again; while two mirror them, each arrives
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RESTING, Connector, RunningConnector
from mm2mgr.defaults import by_default
from mm2mgr.lint.hops import selection_of
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.plan.changes import WRITES, Change, aliases_of, connector_text, type_of
from mm2mgr.remarks import Remark
from mm2mgr.render import FLOW_KEY, HEARTBEATS_KEY
from mm2mgr.topics.names import Selection
from mm2mgr.topology import Flow, Moved, Topology

_GOES_ON = "its connector carries the heartbeats of its pair live"
_LEFT_TO = "exactly one source connector of a pair carries its heartbeats"
_PRUNE = "--prune deletes it; or its flow's successor takes them over with moved:"
_LEAVE = "stop or delete it there, or write heartbeats: false or checkpoints: false in the flows of the pair"
_COMPANIONS = {"heartbeat": "writes the heartbeats", "checkpoint": "writes the checkpoints"}


@dataclass(frozen=True)
class RunningConnectors:
    """What runs on the Connect clusters that could be read, and which of it carries this tree's mark, or did before it
    was released.

    `deletes`: whether the plan deletes what the tree no longer declares; `held`: why it will, and not now.
    """

    configs: Mapping[Named, Mapping[str, str]] = field(repr=False)
    states: Mapping[Named, str]
    owned: Collection[Named]
    released: Collection[Named] = ()
    deletes: bool = False
    held: str = ""
    workers: Mapping[str, WorkerFacts] = field(default_factory=dict)
    unread: Collection[str] = ()
    """The Connect clusters that could not be read."""

    @classmethod
    def from_live(
        cls,
        owners: Ownership,
        live: Mapping[str, Mapping[str, RunningConnector]],
        *,
        deletes: bool = False,
        held: str = "",
    ) -> RunningConnectors:
        """Return what runs on these Connect clusters."""
        running = {(connect, name): there for connect, named in live.items() for name, there in named.items()}
        configs: dict[Named, Mapping[str, str]] = {named: there.config for named, there in running.items()}
        states = {named: there.state for named, there in running.items()}
        owned = dict.fromkeys(sorted(named for named, config in configs.items() if owners.is_ours(named, config)))
        return cls(configs, states, owned, sorted(owners.released.keys() & configs.keys()), deletes, held)

    def is_carrying(self, named: Named, flow_pair: str) -> bool:
        """Tell whether a connector mirrors the heartbeats of a pair when it runs."""
        config = self.configs.get(named, {})
        carries = config.get(HEARTBEATS_KEY, "true").strip().lower() == "true"
        return carries and type_of(config) == "source" and "->".join(aliases_of(config)) == flow_pair

    def selection(self, named: Named, config: Mapping[str, str]) -> Selection | None:
        """Return which topics a config takes; None when that is unknown."""
        subject = running_subject(*named, config, None, self.workers.get(named[0], WorkerFacts()))
        return selection_of(subject) if subject else None

    def left_over(self, declared: Collection[Named]) -> Iterator[Named]:
        """Yield what runs, was this tree's and is not declared."""
        for named in (*self.owned, *self.released):
            if named not in declared and self.states.get(named, "") not in RESTING:
                yield named


@dataclass(frozen=True)
class Carrier:
    """Who mirrors the heartbeats of a pair. `by_name` is the connector that `render` names for it.

    `full_name` is None while `left_over`, which still does, is not deleted; with `full_name`, it is deleted first.
    """

    pair: str
    by_name: Named
    full_name: Named | None
    left_over: Named | None = None
    is_released: bool = False
    """Whether the left-over is under `release:`, so that no plan deletes it."""


def heartbeat_carriers(
    topology: Topology, connectors: Sequence[Connector], running: RunningConnectors
) -> dict[str, Carrier]:
    """Return who mirrors the heartbeats of each pair that has any; `connectors` are as they are rendered."""
    flows = {flow.id: flow for flow in topology.flows}
    declared = {(c.connect, c.name) for c in connectors}
    by_pair: dict[str, list[Connector]] = {}
    for connector in connectors:
        if connector.type == "source" and flows[connector.flows[0]].settings.heartbeats.enabled:
            by_pair.setdefault(connector.pair, []).append(connector)
    left_over = sorted(running.left_over(declared))
    return {
        carrier.pair: carrier
        for sources in by_pair.values()
        if (carrier := _carrier(sources, flows, topology.moved, running, left_over))
    }


def _carrier(
    sources: Sequence[Connector],
    flows: Mapping[str, Flow],
    moved: Iterable[Moved],
    running: RunningConnectors,
    left_over: Iterable[Named],
) -> Carrier | None:
    by_name = next((c for c in sources if c.config.get(HEARTBEATS_KEY) == "true"), None)
    if by_name is None:  # a template of the user's own decides
        return None
    pair, first, names = by_name.pair, (by_name.connect, by_name.name), [(c.connect, c.name) for c in sources]
    for named in names:
        if named in running.owned and running.is_carrying(named, pair):
            return Carrier(pair, first, named)
    receivers = {c.flows[0]: (c.connect, c.name) for c in sources}
    for entry in moved:
        if entry.to in receivers and not entry.topics and _gives_heartbeats(entry, flows[entry.to].pair, running):
            return Carrier(pair, first, receivers[entry.to])
    for named in left_over:
        if running.is_carrying(named, pair):
            released = named in running.released
            return Carrier(pair, first, first if running.deletes and not released else None, named, released)
    return Carrier(pair, first, first)


def _gives_heartbeats(entry: Moved, pair: str, running: RunningConnectors) -> bool:
    """Tell whether the heartbeats of a pair move with a whole flow, and their stored offsets."""
    if entry.dedicated:
        return True
    if entry.connector:
        return running.is_carrying(entry.connector, pair)
    givers = (named for named in running.owned if running.configs[named].get(FLOW_KEY) == entry.flow)
    return any(running.is_carrying(named, pair) for named in givers)


def with_carriers(connectors: Iterable[Connector], carriers: Mapping[str, Carrier]) -> list[Connector]:
    """Return the connectors, of which in each pair only the carrier mirrors heartbeats."""

    def with_carrier(connector: Connector) -> Connector:
        carrier = carriers.get(connector.pair) if connector.type == "source" else None
        if carrier is None or connector.config.get(HEARTBEATS_KEY) not in {"true", "false"}:
            return connector
        carries = (connector.connect, connector.name) == carrier.full_name
        value = by_default("true" if carries else "false", _GOES_ON if carries else _LEFT_TO)
        if value == connector.config[HEARTBEATS_KEY]:
            return connector
        config = {**connector.config, HEARTBEATS_KEY: str(value)}
        return replace(connector, config=config, origins={**connector.origins, HEARTBEATS_KEY: value.origin})

    return [with_carrier(connector) for connector in connectors]


def carrier_notes(
    carriers: Iterable[Carrier], running: RunningConnectors, writes: Iterable[Change]
) -> Iterator[tuple[str, str]]:
    """Yield Connect clusters with a note: where no carrier may begin, and where that of a pair with new flows is
    another one than `render` names.
    """
    grown = {
        "->".join(aliases_of(change.config or {}))
        for change in writes
        if (change.action, change.type) == ("create", "source")
    }
    for carrier in carriers:
        connect = carrier.by_name[0]
        if carrier.full_name is None and carrier.left_over:
            pruned = _held_text(running) if running.held else _PRUNE
            left, remedy = ("released", _LEAVE) if carrier.is_released else ("no longer declared", pruned)
            still = f"are still mirrored by {connector_text(carrier.left_over)}, which is {left}"
            begins = f"'{carrier.by_name[1]}' begins when that one is gone ({remedy})"
            yield connect, f"the heartbeats of {carrier.pair} {still}: {begins}"
        elif carrier.full_name and carrier.full_name != carrier.by_name and carrier.pair in grown:
            stay = f"stay with '{carrier.full_name[1]}', which mirrors them now"
            yield (
                connect,
                f"the heartbeats of {carrier.pair} {stay}; `render`, which asks nobody, names '{carrier.by_name[1]}'",
            )


def _held_text(running: RunningConnectors) -> str:
    return f"it is deleted in a later round: {running.held}"


# --- what takes the place of something that still runs
# ---------------------------------------------------------------------


def left_overs_of(
    changes: Mapping[Named, Change], carriers: Mapping[str, Carrier], running: RunningConnectors
) -> dict[Named, Named]:
    """Return the writes that begin what a left-over still does, each with that one.

    That is the new carrier of heartbeats, and a heartbeat or checkpoint connector of a pair that has another one under
    another name.
    """
    left_overs = {c.full_name: c.left_over for c in carriers.values() if c.full_name and c.left_over}
    declared = {named for named, change in changes.items() if change.action != "delete"}
    for named in sorted(running.left_over(declared)):
        kind, pair = type_of(running.configs[named]), aliases_of(running.configs[named])
        if kind not in _COMPANIONS or (named in changes and changes[named].moves_to):
            continue
        for change in changes.values():
            if change.action == "create" and change.type == kind and aliases_of(change.config or {}) == pair:
                left_overs[change.full_name] = named
    return {new: old for new, old in left_overs.items() if new in changes and changes[new].action in WRITES}


def after_left_over(change: Change, left_over: Named) -> Change:
    """Return the change with the deletion that comes before it."""
    goes = f"{connector_text(left_over)}, which still {_does(change)}, is deleted first"
    return replace(change, follows=(left_over,)).with_remarks(Remark(goes, "notes"))


def left_over_stays(change: Change, left_over: Named, running: RunningConnectors) -> Remark:
    """Say why a change cannot begin while its left-over is not deleted."""
    is_released = left_over in running.released
    left = "released" if is_released else "no longer declared"
    text = f"{connector_text(left_over)}, which is {left}, still {_does(change)} of this pair: each would arrive twice"
    pruned = f"nothing: {_held_text(running)}" if running.held else "add --prune, which deletes that one first"
    return Remark(text, remedy=_LEAVE if is_released else pruned)


def _does(change: Change) -> str:
    return _COMPANIONS.get(change.type, "mirrors the heartbeats")

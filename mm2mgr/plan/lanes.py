"""Lanes come, change and go in turn: which topics of a flow change connectors in this plan, with their stored offsets.

A connector takes part in one move at a time, so that whatever dies on the way, one journal says how it ends. A plan
therefore has the first moves that concern different connectors, and every other topic stays on the connector that has
it now; the next plan has the next ones. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr import defaults
from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Journal, Move, without_journal
from mm2mgr.connectors import Connector
from mm2mgr.plan.changes import type_of
from mm2mgr.plan.heartbeats import RunningConnectors
from mm2mgr.plan.moves import flow_of
from mm2mgr.render import LANE_OF_KEY, flow_of_lane
from mm2mgr.spec.models import Topics
from mm2mgr.spec.scalars import is_name, java_list
from mm2mgr.text import few, number_of
from mm2mgr.topics.names import literal
from mm2mgr.topology import Flow, Moved, Topology, topics_without

Config = Mapping[str, str]
_Turn = tuple[Named, Named]  # who gives, and who takes


@dataclass(frozen=True)
class LanesInTurn:
    """`connectors`: those of the tree, flows with lanes as this plan is to bring them. `moved`: what changes connectors
    for that. `notes`: by Connect cluster, what is left for the next plans. `waiting`: lanes that are declared no more
    and still have topics, so that nothing deletes them.
    """

    connectors: tuple[Connector, ...]
    moved: tuple[Moved, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    waiting: frozenset[Named] = frozenset()


def lanes_in_turn(topology: Topology, connectors: Iterable[Connector], running: RunningConnectors) -> LanesInTurn:
    """Return what this plan makes of flows that have lanes, or had some."""
    connectors = tuple(connectors)
    live_lanes: dict[tuple[str, str], list[Named]] = {}
    for named in running.owned:
        config = running.configs[named]
        if type_of(config) == "source" and (whole := config.get(LANE_OF_KEY)):
            live_lanes.setdefault((whole, named[0]), []).append(named)
    by_flow = {c.flows[0]: c for c in connectors if c.type == "source"}
    lanes_of: dict[str, list[Connector]] = {}
    for flow in topology.flows:
        if flow.lane_of is not None:
            lanes_of.setdefault(flow.whole_id, []).append(by_flow[flow.id])
    result = LanesInTurn(connectors)
    for flow in topology.flows:
        lanes, live = lanes_of.get(flow.id, []), live_lanes.get((flow.id, flow.connect.name), [])
        if flow.lane_of is None and (lanes or live):
            group = _Group.read(flow, by_flow[flow.id], lanes, live, running)
            unclear = set(live) - {(c.connect, c.name) for c in lanes}  # nobody says who would go on with their topics
            result = group.added_to(result) if group else replace(result, waiting=result.waiting | unclear)
    return _with_moved_lanes(result, topology, running)


def _with_moved_lanes(result: LanesInTurn, topology: Topology, running: RunningConnectors) -> LanesInTurn:
    """Add what `moved:` means for the lanes of the flows that it names: those of the same name go on where these
    stopped. Whose turn has not come keeps its topics."""
    live = {flow_of_lane(running.configs[named]): named for named in running.owned}
    declared, written = {flow.id for flow in topology.flows}, {m.to: m for m in topology.moved if not m.topics}
    coming = {flow_of(connector) for connector in result.connectors if connector.type == "source"}
    moved, waiting = list(result.moved), set(result.waiting)
    for lane in topology.flows:
        entry = written.get(lane.id)
        whole = written.get(lane.whole_id) if lane.lane_of and not entry else None
        if whole and whole.flow and whole.flow not in declared:
            name, _, pair = whole.flow.rpartition(":")
            former = f"{name}{lane.name.removeprefix(lane.declared_name)}:{pair}"
            receiver = live.get(lane.id)
            if former in live or (receiver and Journal.of_config(running.configs[receiver])):
                entry = replace(whole, flow=former, to=lane.id)
                moved.append(entry)
        giver = entry.connector or live.get(entry.flow) if entry else None
        if lane.lane_of and giver and lane.id not in coming:
            waiting.add(giver)
    return replace(result, moved=tuple(moved), waiting=frozenset(waiting))


def with_lanes_of(flow_ids: Iterable[str], topology: Topology) -> frozenset[str]:
    """Return these flows with the other lanes of theirs, with which they exchange topics."""
    chosen = frozenset(flow_ids)
    wholes = {flow.whole_id for flow in topology.flows if flow.id in chosen}
    return chosen | {flow.id for flow in topology.flows if flow.whole_id in wholes}


@dataclass(frozen=True)
class _Group:
    """A flow with its lanes, as declared and as they run.

    `now`: the connector of each topic that a lane has or is to have, as it runs; `then`: as declared. `begun`: the
    moves that an earlier apply did not finish, with their topics (None: there are none).
    """

    flow: Flow
    own: Connector
    declared: Mapping[Named, Connector]
    live: Mapping[Named, Config] = field(repr=False)
    now: Mapping[str, Named]
    then: Mapping[str, Named]
    begun: Mapping[_Turn, Sequence[str]] | None

    @classmethod
    def read(
        cls,
        flow: Flow,
        own: Connector,
        lanes: Iterable[Connector],
        live_lanes: Iterable[Named],
        running: RunningConnectors,
    ) -> _Group | None:
        """Return a group; None where nothing of it runs yet, or where it is not known which topics a lane has: what
        must not be written is then found as for any flow."""
        own_name = (own.connect, own.name)
        declared = {(c.connect, c.name): c for c in (own, *lanes)}
        mine = dict.fromkeys((*(named for named in declared if named in running.owned), *live_lanes))
        live = {named: running.configs[named] for named in mine}
        takes = running.selection(own_name, without_journal(live[own_name])) if own_name in live else None
        names = {named: _names(config) for named, config in live.items() if named != own_name}
        names_then = {named: _names(c.config) for named, c in declared.items() if named != own_name}
        if not live or (own_name in live and takes is None) or None in (*names.values(), *names_then.values()):
            return None
        now = {topic: named for named, topics in names.items() for topic in topics or ()}
        then = {topic: named for named, topics in names_then.items() for topic in topics or ()}
        begun = _read_begun(live)
        unclear = Counter(topic for topics in names.values() for topic in topics or ())
        unclear.subtract(topic for _, topics in begun.values() for topic in topics or ())
        if any(count > 1 for count in unclear.values()):  # two lanes have it, and no journal says which one goes on
            return None
        if takes is not None:
            now |= dict.fromkeys((topic for topic in then if topic not in now and takes.takes(topic)), own_name)
        now |= {topic: giver for (giver, _), (_, topics) in begun.items() for topic in topics or ()}
        then |= dict.fromkeys((topic for topic in now if topic not in then), own_name)
        for (giver, receiver), (move, topics) in begun.items():
            for named in (receiver, giver) if topics and move.partial else (receiver,):
                declared.setdefault(named, _connector_as_it_runs(named, live[named], own))
        turns = {turn: topics for turn, (_, topics) in begun.items() if topics}
        return cls(flow, own, declared, live, now, then, turns if begun else None)

    @property
    def own_name(self) -> Named:
        return self.own.connect, self.own.name

    def topics_of(self, named: Named) -> list[str]:
        """Return the topics of a lane as it runs."""
        return sorted(topic for topic, owner in self.now.items() if owner == named)

    def turns(self) -> dict[_Turn, Sequence[str]]:
        """Return what moves in this plan, by the two connectors."""
        if self.begun is not None:
            return dict(self.begun)
        pending: dict[_Turn, list[str]] = {}
        for topic in sorted(self.now):
            if self.now[topic] != self.then[topic]:
                pending.setdefault((self.now[topic], self.then[topic]), []).append(topic)
        # Who is left something comes first: so a lane whose topics are exchanged is given the new ones before.
        order = sorted(pending, key=lambda turn: (self._is_emptied(turn[0], pending[turn]), self._place(turn)))
        gone = {giver for giver, _ in order if giver not in self.declared}
        heir = {giver: max((t for t in order if t[0] == giver), key=lambda t: len(pending[t])) for giver in gone}
        chosen: dict[_Turn, Sequence[str]] = {}
        busy: set[Named] = set()
        for turn in order:
            after = {**self.now, **dict.fromkeys(pending[turn], turn[1])}
            has_own = turn[0] != self.own_name or self._own_topics(after).include
            if has_own and busy.isdisjoint(turn) and heir.get(turn[0], turn) == turn:
                chosen[turn] = self.topics_of(turn[0]) if turn[0] in gone else pending[turn]
                busy |= {*turn}
        return chosen

    def _own_topics(self, owners: Mapping[str, Named]) -> Topics:
        """Return what the flow's own connector mirrors beside the lanes that have these topics."""
        whole = self.flow.undivided or self.flow.settings.topics
        return topics_without(whole, [topic for topic, owner in owners.items() if owner != self.own_name])

    def _is_emptied(self, giver: Named, topics: Sequence[str]) -> bool:
        return giver != self.own_name and len(topics) == len(self.topics_of(giver))

    def _place(self, turn: _Turn) -> tuple[int, ...]:
        places = {named: place for place, named in enumerate(self.declared)}
        return tuple(places.get(named, len(places)) for named in turn)

    def added_to(self, result: LanesInTurn) -> LanesInTurn:
        """Return the connectors with what this plan makes of the group."""
        turns = self.turns()
        after = {**self.now, **{topic: turn[1] for turn, topics in turns.items() for topic in topics}}
        # What no connector has now begins where it is declared; while moves are finished, on a connector of its own.
        begins = self.then.items()
        after = {topic: named for topic, named in begins if self.begun is None or named not in self.live} | after
        connectors = []
        rendered = {(connector.connect, connector.name) for connector in result.connectors}
        staying = [connector for named, connector in self.declared.items() if named not in rendered]
        for connector in (*result.connectors, *staying):
            named = (connector.connect, connector.name)
            topics = [topic for topic, owner in after.items() if owner == named]
            if connector.type != "source" or named not in self.declared:
                connectors.append(connector)
            elif named == self.own_name:
                own = self._own_topics(after)
                excluded = java_list([*defaults.TOPICS_EXCLUDE, *own.exclude])
                own_connector = _with_key(connector, "topics", java_list(own.include))
                connectors.append(_with_key(own_connector, "topics.exclude", excluded))
            elif topics:
                connectors.append(_with_key(connector, "topics", java_list(topics)))
        left = {(connector.connect, connector.name) for connector in connectors}
        moved = tuple(self._moved_entry(turn, topics if turn[0] in left else ()) for turn, topics in turns.items())
        waiting = self.live.keys() - self.declared.keys() - {giver for giver, _ in turns}
        later = sorted(topic for topic, named in self.then.items() if after.get(topic) != named)
        notes = [(self.own.connect, _later_text(self.flow.id, later))] if later else []
        return LanesInTurn(
            tuple(connectors), (*result.moved, *moved), (*result.notes, *notes), result.waiting | waiting
        )

    def _moved_entry(self, turn: _Turn, topics: Iterable[str]) -> Moved:
        giver, receiver = turn
        place = self.flow.origin_of("balance", "lanes").where or f"flow '{self.flow.name}'"
        config = self.declared[giver].config if giver in self.declared else self.live[giver]
        flow = flow_of_lane(config) or self.flow.id
        return Moved(
            flow,
            None,
            None,
            flow_of_lane(self.declared[receiver].config) or self.flow.id,
            tuple(topics),
            None,
            place,
            flow,
        )


def _later_text(flow: str, topics: Sequence[str]) -> str:
    return (
        f"lanes of '{flow}': {number_of(len(topics), 'topic')} ({few(topics)}) will change connectors in the next"
        " plans, since a connector is part of one move at a time: apply again"
    )


def _with_key(connector: Connector, key: str, value: str) -> Connector:
    if connector.config.get(key) == value:
        return connector
    return replace(connector, config={**connector.config, key: value})


def _names(config: Config) -> list[str] | None:
    """Return the topics that a lane's config names; None where it has anything else than names."""
    names = [literal(item.strip()) for item in config.get("topics", "").split(",")]
    return None if any(name is None or not is_name(name) for name in names) else [name for name in names if name]


def _read_begun(live: Mapping[Named, Config]) -> dict[_Turn, tuple[Move, Sequence[str] | None]]:
    """Return the moves that an earlier apply began, as journals say, with their topics: they are finished as they were
    begun. None: the giver is gone, or none of this flow's."""
    begun: dict[_Turn, tuple[Move, Sequence[str] | None]] = {}
    for receiver, config in live.items():
        journal = Journal.of_config(config)
        if journal is not None and (move := journal.move) is not None:
            topics = move.topics or (_names(live[move.giver]) if move.giver in live else None)
            begun[move.giver, receiver] = move, topics if move.giver in live else None
    return begun


def _connector_as_it_runs(named: Named, config: Config, own: Connector) -> Connector:
    """Return a lane that is declared no more, and that a move concerns which was begun: it stays until that has ended.

    A receiver that never ran is held back by a key of its config.
    """
    plain = without_journal(config)
    if config.get("enabled") == "false":
        del plain["enabled"]
    return replace(own, name=named[1], config=plain, origins={}, state=None)

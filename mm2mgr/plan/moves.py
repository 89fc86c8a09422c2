"""Moves of topics between connectors (`moved:` in the tree), with their stored offsets, as part of a plan. Pure.

Offsets are stored by connector name on a Connect cluster (KIP-875), so a renamed flow, another Connect cluster and
another flow for a topic need them carried along. The receiver's config holds the journal: every plan reads that config
in any case, whatever machine it runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import SELECTING, Named, diff
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, Move, Picks, TakeOver, storage_topic, without_journal
from mm2mgr.connectors import RESTING, Connector
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.plan.changes import Change, ClusterPlan, Price, aliases_of, connector_text, type_of, with_price
from mm2mgr.plan.heartbeats import RunningConnectors
from mm2mgr.remarks import Remark
from mm2mgr.render import FLOW_KEY, OWNER_KEY, flow_of_lane
from mm2mgr.spec.scalars import is_name, java_pattern
from mm2mgr.text import few, in_yaml
from mm2mgr.topics.names import NameFilter, Selection
from mm2mgr.topics.shared import meeting
from mm2mgr.topology import KafkaCluster, Moved, Topology
from mm2mgr.truth.reach import numbers

Config = Mapping[str, str]
Filters = tuple[tuple[Selection | NameFilter, ...], tuple[Selection, ...]]


def with_moves(
    parts: Iterable[ClusterPlan],
    topology: Topology,
    connectors: Iterable[Connector],
    running: RunningConnectors,
    *,
    is_whole: bool,
) -> list[ClusterPlan]:
    """Return the plans with the moves that the tree asks for, and with those that were begun and are not finished.

    `is_whole`: the plan is of the whole tree, so that what is not part of it is left over; else it is not asked for.
    """
    parts, moved = list(parts), topology.moved
    begun = [named for named in sorted(running.owned) if JOURNAL_KEY in running.configs[named]]
    if not moved and not begun:
        return parts
    changes = {change.full_name: change for part in parts for change in part.changes}
    planning = _Planning(running, {(c.connect, c.name): c for c in connectors}, topology.clusters, changes)
    begun = [named for named in begun if is_whole or named in changes]
    continued = [entry for entry in moved if planning.receiver(entry) in begun]
    for entry in continued:
        planning.take(entry)
    for named in begun:
        planning.take_back(named)
    for entry in moved:
        if entry not in continued:  # what was begun comes first: its connectors do not run until it ends
            planning.take(entry)
    for named in begun:
        planning.hold_unconfirmed(named)
    connects = {part.connect for part in parts}
    more = {connect: ClusterPlan(connect) for connect, _ in planning.changes if connect not in connects}
    return [planning.part(part) for part in (*parts, *more.values())]


def with_other_sides(flows: Iterable[str], moved: Iterable[Moved]) -> frozenset[str]:
    """Return the chosen flows' ids with those they take over from, or that take over from them: both or none."""
    chosen, moved = set(flows), tuple(moved)
    while more := {flow for m in moved for flow in (m.flow, m.to) if flow and {m.flow, m.to} & chosen} - chosen:
        chosen |= more
    return frozenset(chosen)


@dataclass
class _Planning:
    """The changes of a plan while moves are put into it. Both sides of a move may be on different Connect clusters."""

    running: RunningConnectors
    desired: Mapping[Named, Connector] = field(repr=False)
    clusters: Mapping[str, KafkaCluster] = field(repr=False)
    changes: dict[Named, Change]
    notes: dict[str, list[str]] = field(default_factory=dict)
    concerned: set[Named] = field(default_factory=set)
    ending: set[Named] = field(default_factory=set)
    """Those of `concerned` whose move was begun by an earlier apply."""

    def part(self, part: ClusterPlan) -> ClusterPlan:
        """Return the plan of a Connect cluster as it is now; what gives its topics away is no longer left over."""
        if part.error:
            return part
        names = {change.connector for change in part.changes}
        added = [c for (connect, name), c in self.changes.items() if connect == part.connect and name not in names]
        left = tuple(name for name in part.left_over if (part.connect, name) not in self.changes)
        strangers = sum(c.full_name in self.running.configs and c.full_name not in self.running.owned for c in added)
        changes = (*(self.changes[part.connect, name] for name in (c.connector for c in part.changes)), *added)
        notes = (*part.notes, *self.notes.get(part.connect, ()))
        return replace(part, changes=changes, left_over=left, unowned=part.unowned - strangers, notes=notes)

    def rests(self, named: Named) -> str:
        """Return the state that a connector goes back to: the declared one, else what people chose, else RUNNING."""
        declared = self.desired[named].state if named in self.desired else None
        shown = self.running.states.get(named, "")
        return declared or (shown if shown in RESTING else "RUNNING")

    def take(self, entry: Moved) -> None:
        """Plan one entry of the tree: the move, what of it is left, why it cannot be done, or that its line can go."""
        running, receiver = self.running, self.receiver(entry)
        if receiver is None:
            return
        givers = self.givers(entry, receiver)
        change = self.changes.get(receiver)
        if change is None:  # its Connect cluster could not be read: what it takes over stays as it is
            for giver in givers if receiver[0] in running.unread else ():
                self.hold(giver, f"its topics move to {connector_text(receiver)}, which could not be read")
            return
        journal = Journal.of_config(running.configs.get(receiver, {}))
        if journal and not journal.is_readable:
            for giver in givers:
                self.hold(giver, f"{connector_text(receiver)}, which takes over its topics, has an unreadable journal")
            return
        if journal and journal.move:
            if journal.move.giver in givers or journal.move.giver not in running.configs:
                self.arrange(change, journal.move.giver, entry, journal)
            return
        if len(givers) > 1:
            names = few([f"{connect}/{name}" for connect, name in givers])
            text = f"'{entry.written}' may be any of {names}"
            self.block(change, _refusal(text, f"write one of them as from: at {entry.place}"))
        elif givers and self.is_due(change, givers[0], entry):
            self.arrange(change, givers[0], entry, None)
        elif entry.connector and entry.connector[0] in running.unread and change.action == "create":
            text = f"Connect cluster '{entry.connector[0]}', on which '{entry.connector[1]}' runs, could not be read"
            self.block(change, _refusal(text))
        elif running.unread and entry.flow and not givers and change.action == "create":
            unread = few([f"'{connect}'" for connect in running.unread])
            text = f"flow '{entry.flow}' was not found, and Connect cluster {unread} could not be read"
            self.block(change, _refusal(text))
        else:
            note = self.what_became_of(entry, change, givers)
            self.notes.setdefault(receiver[0], []).append(f"moved: {note}")

    def what_became_of(self, entry: Moved, change: Change, givers: Sequence[Named]) -> str:
        """Return what an entry comes to that moves nothing now."""
        whose = " (a pair's: when each of its flows says so)" if entry.of_pair else ""
        where, config = f"the line at {entry.place}{whose}", self.running.configs.get(change.full_name)
        has = self.running.selection(change.full_name, without_journal(config)) if config else None
        if missing := [topic for topic in entry.topics if is_name(topic) and not (has and has.takes(topic))]:
            return (
                f"nothing of '{entry.written}' moves to '{entry.to}' now, which does not mirror {few(missing)}: "
                f"write them under its topics:, or remove {where}"
            )
        if change.action == "create":
            return (
                f"nothing that runs carries the mark of '{entry.written}', so '{entry.to}' takes over nothing: a"
                " connector that was adopted carries none before its first change, so write its name as from:"
                f" CONNECT/CONNECTOR, or remove {where}"
            )
        if givers and not entry.topics and not entry.dedicated:
            return (
                f"'{entry.to}' runs already and begins to take nothing, so {connector_text(givers[0])} gives it"
                f" nothing; {where} can go, and --prune deletes what is no longer declared"
            )
        return f"'{entry.written}' is '{entry.to}' now; {where} can go"

    def receiver(self, entry: Moved) -> Named | None:
        desired = self.desired.items()
        return next((named for named, c in desired if c.type == "source" and flow_of(c) == entry.to), None)

    def givers(self, entry: Moved, receiver: Named) -> list[Named]:
        live, desired = self.running.configs, self.desired
        if entry.dedicated:
            return [("", "->".join(entry.dedicated))]
        if entry.connector:
            return [entry.connector] if entry.connector in live else []
        declared = [named for named, c in desired.items() if c.type == "source" and flow_of(c) == entry.flow]
        if entry.topics:
            return [named for named in declared if named in live]
        others = [
            named for named in live if named != receiver and named not in desired and type_of(live[named]) == "source"
        ]
        if marked := [named for named in others if live[named].get(FLOW_KEY) == entry.flow]:
            return marked
        # What was adopted carries no mark before its first change: adopt: has it, and its pair is that of the flow.
        pair = tuple((entry.flow or "").partition(":")[2].split("->"))
        unmarked_ones = (named for named in others if named in self.running.owned and FLOW_KEY not in live[named])
        return [named for named in unmarked_ones if aliases_of(live[named]) == pair]

    def is_due(self, change: Change, giver: Named, entry: Moved) -> bool:
        """Tell whether the receiver begins to take what the giver gives up, or cannot."""
        takes = change.action in {"create", "blocked"} or (
            change.action == "update" and any(key.key in SELECTING for key in change.keys)
        )
        gives = self.changes.get(giver)
        narrowed = gives is not None and gives.action == "update" and any(key.key in SELECTING for key in gives.keys)
        if entry.dedicated:  # nothing shows afterwards whether it was taken over
            return change.action == "create"
        return takes and (not entry.topics or narrowed or self.takes_up_rested(change, giver, entry))

    def takes_up_rested(self, change: Change, giver: Named, entry: Moved) -> bool:
        """Tell whether the receiver begins to take a topic that the giver once took, and whose offsets rest there."""
        running, receiver = self.running, change.full_name
        live, keeps = running.configs.get(receiver), self.desired[giver].config
        begins = change.config and running.selection(receiver, change.config)
        others = [running.selection(giver, running.configs[giver]), running.selection(giver, keeps)]
        others += [running.selection(receiver, without_journal(live))] if live else []
        if not begins:
            return False
        taken = [selection for selection in others if selection]
        names = (topic for topic in entry.topics if is_name(topic) and begins.takes(topic))
        if any(not any(selection.takes(topic) for selection in taken) for topic in names):
            return True
        patterns = tuple(topic for topic in entry.topics if not is_name(topic))
        but = tuple(item for selection in taken for item in selection.names.include)
        again = replace(begins, names=NameFilter(patterns, ()))
        return bool(patterns) and meeting([begins, again], but=but).is_possible

    def take_back(self, receiver: Named) -> None:
        """Plan the end of a move that was begun and that no entry of the tree asks for any more."""
        journal = Journal.of_config(self.running.configs[receiver])
        if not journal or not journal.move or receiver in self.concerned:
            return
        change = self.changes.get(receiver)
        if type_of(self.running.configs[receiver]) != "source":
            return
        if change is None or change.action == "delete":
            config, shown = self.running.configs[receiver], self.running.states.get(receiver, "")
            unmarked_config = without_journal(config)
            change = Change(
                *receiver,
                "source",
                "update",
                keys=diff(config, unmarked_config),
                config=unmarked_config,
                before=config,
                shown=shown,
            )
        self.arrange(change, journal.move.giver, None, journal)

    def arrange(self, change: Change, giver: Named, entry: Moved | None, journal: Journal | None) -> None:
        running, receiver = self.running, change.full_name
        reason = next(self.refusals(change, giver, entry, journal), None)
        if change.action == "blocked" or reason:
            if reason and change.action != "blocked":
                self.block(change, reason)
            if giver not in self.ending:
                self.hold(giver, f"{connector_text(receiver)}, which takes over its topics, is blocked")
            self.concerned |= {receiver, giver}
            return
        if journal:
            self.ending |= {receiver, giver}
        over = self.taken_over(change, giver, entry, journal)
        where = connector_text(giver) if giver[0] else f"the dedicated MirrorMaker {giver[1]}"
        verb = (
            "takes back what it had begun to take over"
            if over.back
            else "finishes taking over"
            if journal
            else "takes over"
        )
        sentence = f"{verb} from {where}, with its stored offsets; neither runs meanwhile"
        if over.back and over.move.created:
            change = replace(change, action="delete", keys=diff(running.configs[receiver], {}), config=None, state=None)
        self.changes[receiver] = replace(change, takes_over=over).with_reason(sentence)
        beside = [companion for companion, _ in over.beside]
        self.concerned |= {receiver, giver, *beside}
        to = f"its topics move to {connector_text(receiver)}"
        if over.before is not None and not over.back and over.keeps is None and not over.leaves:
            self.changes[giver] = self.delete_change(giver, receiver, to)
        elif over.before is not None:
            gives = self.changes.get(giver) or Change(*giver, "source", "update", before=over.before)
            gives = replace(gives, moves_to=receiver).with_reason("it goes on as before" if over.back else to)
            if gives.action == "no-op" and over.keeps is not None and not over.move.carried:  # it is stopped meanwhile
                rested = f"offsets of topics that it no longer takes move to {connector_text(receiver)}"
                keys, price = diff(over.before, over.keeps), Price(gives.tasks)
                gives = replace(gives, action="update", config=dict(over.keeps), keys=keys, price=price)
                gives = gives.with_reason(rested)
            if over.back or over.leaves:
                config = without_journal(over.before)
                keys = diff(over.before, config)
                gives = replace(gives, action="update", config=config, keys=keys, state=None)
            elif gives.action == "no-op" and over.move.giver_then != "STOPPED":  # narrowed already, and not begun again
                turned = (gives.shown, over.move.giver_then) if gives.shown != over.move.giver_then else None
                gives = replace(gives, action="update", config=over.before, state=turned)
            if over.leaves:
                gives = gives.with_reason(f"{to}; it stays, STOPPED, until --prune deletes it")
            self.changes[giver] = gives
        for companion in beside:
            self.changes[companion] = self.delete_change(
                companion, receiver, "it served only connectors whose topics move"
            )

    def taken_over(self, change: Change, giver: Named, entry: Moved | None, journal: Journal | None) -> TakeOver:
        """Return what a receiver takes over, and how far that is already."""
        running, receiver = self.running, change.full_name
        live = running.configs.get(giver)
        move = journal.move if journal else None
        if move is None:
            created = change.action == "create"
            source = entry.dedicated if entry and entry.dedicated else aliases_of(live or {})
            partial = entry is not None and bool(entry.topics)
            topics = entry.topics if entry else ()
            move = Move(giver, source, self.rests(giver), created=created, partial=partial, topics=topics)
            then = move.giver_then if created else self.rests(receiver)
        else:
            then = journal.then if journal else ""
        declared = self.desired[receiver].state if receiver in self.desired else None
        back = entry is None and not move.carried
        keeps = self.desired[giver].config if move.partial and giver in self.desired else None
        alias = (running.configs[receiver] if back else change.config or {}).get("source.cluster.alias", "")
        picks = Picks(move.pair[0], alias, *self.offset_filters(receiver, giver, entry, None if back else keeps, move))
        planned = self.changes.get(giver)
        leaves = entry is None and not back and keeps is None and not (planned and planned.action == "delete")
        stay = move.partial or back or entry is None
        gone = (
            ()
            if stay
            else tuple(
                (companion, running.configs[companion]) for companion in self.unneeded_companions(giver, move.pair)
            )
        )
        now = Journal(declared or then, needs=journal.needs if journal else (), move=move)
        kafka = self.clusters[(change.config or {})["target.cluster.alias"]] if not giver[0] and not back else None
        resting = None
        if entry and live and receiver in self.desired and (move.partial or not move.created):
            takes, stays = self.resting_filters(receiver, giver, entry, move)
            resting = replace(picks, takes=takes, leaves=stays)
        leaves = leaves and live is not None
        version = running.workers.get(receiver[0], WorkerFacts()).version
        born_stopped = not version or numbers(version) >= (3, 7)
        return TakeOver(giver, live, keeps, now, picks, gone, back, leaves, resting, born_stopped, kafka)

    def delete_change(self, named: Named, receiver: Named, reason: str) -> Change:
        config = self.running.configs[named]
        keys, remarks = diff(without_journal(config), {}), (Remark(reason, "notes"),)
        gone = Change(*named, type_of(config), "delete", (), keys, remarks, before=config, moves_to=receiver)
        return with_price(gone)

    def offset_filters(
        self, receiver: Named, giver: Named, entry: Moved | None, keeps: Config | None, move: Move
    ) -> Filters:
        """Return which topics' offsets move and which stay; stale offsets of other topics never move."""
        if not move.partial and move.created:
            return (), ()
        had, has = self.running.configs.get(giver), self.running.configs.get(receiver)
        if had and keeps is not None and without_journal(had) == dict(keeps) and move.carried:
            had = None  # it is narrowed already, so it says no more what moves
        config = self.desired[receiver].config if receiver in self.desired and entry else None
        took = without_journal(has) if has and not move.created and not move.carried else None
        return self._filters([(giver, had), (receiver, config)], [(giver, keeps), (receiver, took)], entry)

    def resting_filters(self, receiver: Named, giver: Named, entry: Moved, move: Move) -> Filters:
        """Return the same for topics that the giver takes no more: whatever it has stored of them is final."""
        has = self.running.configs.get(receiver)
        took = without_journal(has) if has and not move.created and not move.carried else None
        keeps = self.desired[giver].config if giver in self.desired else None
        leaves = [(giver, self.running.configs[giver]), (giver, keeps), (receiver, took)]
        return self._filters([(receiver, self.desired[receiver].config)], leaves, entry)

    def _filters(
        self,
        takes: Iterable[tuple[Named, Config | None]],
        leaves: Iterable[tuple[Named, Config | None]],
        entry: Moved | None,
    ) -> Filters:
        """Return what must take a topic that moves, and what must not: the selections of these configs."""

        def selections(configs: Iterable[tuple[Named, Config | None]]) -> tuple[Selection, ...]:
            return tuple(filter(None, (self.running.selection(named, config) for named, config in configs if config)))

        topics = (NameFilter(tuple(map(java_pattern, entry.topics)), ()),) if entry and entry.topics else ()
        return (*selections(takes), *topics), selections(leaves)

    def unneeded_companions(self, giver: Named, pair: tuple[str, str]) -> Iterator[Named]:
        """Yield the connectors of the giver's pair, there, that nothing else needs: heartbeats and checkpoints."""
        live, desired = self.running.configs, self.desired
        of_pair = [
            companion
            for companion in self.running.owned
            if companion[0] == giver[0] and companion not in desired and companion != giver
        ]
        of_pair = [companion for companion in of_pair if set(aliases_of(live[companion])) == set(pair)]
        if not any(type_of(live[companion]) == "source" and companion not in self.concerned for companion in of_pair):
            yield from (
                companion
                for companion in of_pair
                if type_of(live[companion]) != "source" and companion not in self.concerned
            )

    def refusals(self, change: Change, giver: Named, entry: Moved | None, journal: Journal | None) -> Iterator[Remark]:
        running, receiver = self.running, change.full_name
        live, had, config = running.configs.get(receiver), running.configs.get(giver), change.config
        other = connector_text(giver)
        if giver[0] in running.unread:
            yield _refusal(
                f"Connect cluster '{giver[0]}', from which it takes over '{giver[1]}', could not be read",
                "plan again when it answers",
            )
        elif giver[0] and giver[0] not in running.workers:
            yield _refusal(
                f"Connect cluster '{giver[0]}', from which it takes over '{giver[1]}', is not declared",
                f"declare it under connect: until the move has ended; else {_NO_MOVE}",
            )
        if {giver, receiver} & self.ending:
            yield _refusal(
                "one of its two connectors is part of a move that was begun and is not finished",
                "apply, which ends that one; then apply again",
            )
        elif {giver, receiver} & self.concerned:
            yield _refusal(
                "one of its two connectors is part of another move",
                "apply one move after the other: keep one entry of moved: for now, and leave the topics of the"
                " other one where they are",
            )
        if journal and journal.move:
            yield from self.doubts_about_journal(receiver, journal.move, had, entry)
        yield from self.blockers_of_giver(giver, receiver, entry)
        if journal and journal.move:
            yield from self.blockers_of_half_done_move(change, journal.move, had, entry)
        purposes = {
            giver: "offsets are exact only of a STOPPED connector (KIP-875)",
            receiver: "it is stopped and given offsets (KIP-875)",
        }
        for named in (giver, receiver):
            version = running.workers.get(named[0], WorkerFacts()).version
            if version and numbers(version) < (3, 6):
                needs = f"{purposes[named]}, which needs 3.6"
                yield _refusal(
                    f"the workers of Connect cluster '{named[0]}' run Kafka {version}: {needs}",
                    "upgrade them; or add --allow mirror-again",
                )
        keeps = self.desired[giver].config if giver in self.desired else None
        for whose, before, after in (("it", live, config), (other, had, keeps)):
            if before and after and storage_topic(before) != storage_topic(after):
                yield _refusal(
                    f"where {whose} stores offsets changes at the same time", "apply that change first, then the move"
                )
        configs = [(giver, had), (giver, keeps), (receiver, live and without_journal(live)), (receiver, config)]
        unknown = any(config and running.selection(named, config) is None for named, config in configs)
        if entry and (entry.topics or live) and unknown:
            yield _refusal(
                "which topics its connectors take is unknown (their topic.filter.class is not Kafka's)",
                "move the whole flow to a new one",
            )

    def blockers_of_giver(self, giver: Named, receiver: Named, entry: Moved | None) -> Iterator[Remark]:
        """Yield why a connector may not give its topics: somebody else's, or no source that can be stopped now."""
        had = self.running.configs.get(giver)
        if had is None:
            return
        owner, other = had.get(OWNER_KEY), connector_text(giver)
        if type_of(had) != "source":
            yield _refusal(
                f"{other} is no MirrorSourceConnector", "correct from: in the entry of moved:, or remove that entry"
            )
        elif giver in self.running.released:
            yield _refusal(f"{other} is under release:", "remove its entry of release:, or the entry of moved:")
        elif giver not in self.running.owned and not owner:
            adopt = f"adopt: [{{connect: {in_yaml(giver[0])}, connector: {in_yaml(giver[1])}}}]"
            yield _refusal(
                f"{other} carries no owner mark and is not adopted", f"write {adopt} beside the entry of moved:"
            )
        elif giver not in self.running.owned and (entry is None or entry.from_owner != owner):
            yield _refusal(
                f"{other} belongs to owner '{owner}'",
                f"write from_owner: {in_yaml(str(owner))} in the entry of moved:, once that owner agrees",
            )
        journal = Journal.of_config(had)
        if journal and journal.gives != receiver:
            yield _refusal(
                f"{other} is itself in the middle of a move of its stored offsets",
                "bring the tree back to what it was, apply to finish that one, then move it",
            )

    def doubts_about_journal(
        self, receiver: Named, move: Move, had: Config | None, entry: Moved | None
    ) -> Iterator[Remark]:
        """Yield why a journal is not followed: anybody may have written it, so tree or giver has to agree."""
        giver = move.giver
        journal = Journal.of_config(had or {})
        where = connector_text(giver) if giver[0] else f"the dedicated MirrorMaker {giver[1]}"
        if entry is None and not (journal and journal.gives == receiver) and not (move.carried and had is None):
            flow = self.running.configs[receiver].get(FLOW_KEY, "")
            from_ = in_yaml("/".join(giver)) if giver[0] else f"{{dedicated: {giver[1]}}}"
            topics = ", topics: […]" if move.partial else ""
            yield _refusal(
                f"its journal says that it takes over from {where}, which neither moved: nor that connector confirms",
                f"if an apply began that move, write moved: [{{from: {from_}, to: {in_yaml(flow)}{topics}}}] and"
                f" apply, which finishes it; else {_NO_MOVE}",
            )
        elif move.created and not move.carried and not _is_disabled(self.running.configs[receiver]):
            yield _refusal(
                "its journal says that it never ran, and its config lets it run (enabled), so no apply wrote that",
                _NO_MOVE,
            )
        elif entry and entry.topics and not move.partial:
            yield _refusal(
                f"its journal says that it takes over all of {where}, and '{entry.written}' at {entry.place} only"
                " topics of it",
                f"if an apply began that move, write the entry as it was and apply, which finishes it; else {_NO_MOVE}",
            )
        elif not giver[0] and "->".join(move.pair) != giver[1]:
            yield _refusal(
                f"its journal says that it takes over from {where}, between {'->'.join(move.pair)}", _NO_MOVE
            )
        elif had is not None and aliases_of(had) != move.pair:
            yield _refusal(
                f"its journal says that it takes over from {where}, between {'->'.join(move.pair)}, and that"
                f" connector is between {'->'.join(aliases_of(had))}",
                _NO_MOVE,
            )

    def hold_unconfirmed(self, named: Named) -> None:
        """Block a connector whose journal is unreadable, or speaks of a move that is not planned."""
        config = self.running.configs[named]
        journal = Journal.of_config(config)
        change = self.changes.get(named) or Change(*named, type_of(config), "no-op", before=config)
        if journal is None or change.action == "blocked" or change.moves_to or change.takes_over:
            return
        if not journal.is_readable:
            self.block(change, Remark("its journal (mm2mgr.journal) is unreadable", remedy=_NO_MOVE))
        elif journal.gives:
            reason = (
                f"its journal says that its topics move to {connector_text(journal.gives)}, and no move of these two is"
                " planned"
            )
            how = "if an apply began that move, bring the tree back to what it was and apply, which finishes it"
            self.block(change, Remark(reason, remedy=f"{how}; else {_NO_MOVE}"))
        elif journal.move:
            self.block(change, Remark("its journal speaks of a move that cannot be its own", remedy=_NO_MOVE))
        elif journal.behind is not None and not _is_disabled(config):
            reason = (
                "its journal says that its offsets are stored elsewhere, and its config lets it run (enabled), so no"
                " apply wrote that"
            )
            self.block(change, Remark(reason, remedy=_NO_MOVE))

    def blockers_of_half_done_move(
        self, change: Change, move: Move, had: Config | None, entry: Moved | None
    ) -> Iterator[Remark]:
        """Yield why a move that was begun cannot continue with the tree as it is now."""
        if not move.carried and had is None and entry and not entry.dedicated:
            yield _refusal(
                f"{connector_text(move.giver)} was deleted before its offsets were carried",
                f"delete '{change.connector}' there, which never ran; then plan again" if move.created else _NO_MOVE,
            )
        live = self.running.configs[change.full_name]
        otherwise = any(live.get(key) != (change.config or {}).get(key) for key in SELECTING)
        again = entry is None and not move.partial and had is not None and move.giver in self.desired
        if move.carried and again:
            yield _refusal(
                f"{connector_text(move.giver)} is declared again, and its offsets are carried already",
                f"bring the tree back to what it was, apply to finish the move, then move it back; else {_NO_MOVE}",
            )
        elif move.carried and (move.partial or not move.created) and (otherwise or (move.partial and entry is None)):
            yield _refusal(
                "its move was begun with other topics, and its offsets are carried already",
                "bring the tree back to what it was, apply to finish the move, then change the topics; else"
                f" {_NO_MOVE}",
            )

    def block(self, change: Change, remark: Remark) -> None:
        self.changes[change.full_name] = change.with_remarks(remark)

    def hold(self, giver: Named, reason: str) -> None:
        """Keep what gives its topics away as it is."""
        gives = self.changes.get(giver)
        if gives and gives.action in {"update", "delete"}:
            self.changes[giver] = gives.with_remarks(Remark(reason))


def flow_of(connector: Connector) -> str:
    """Return the flow that a source connector is; a lane that is declared no more is one of its own until it ends."""
    return flow_of_lane(connector.config) or connector.flows[0]


def _refusal(text: str, remedy: str = "") -> Remark:
    return Remark(text, "blocks", remedy, "moved")


_NO_MOVE = "remove the key mm2mgr.journal from its config over REST, and see whether it is to run"


def _is_disabled(config: Config) -> bool:
    """Tell whether a config lets no task run, as each one does that an apply writes before the offsets are there."""
    return config.get("enabled", "true").strip().lower() == "false"

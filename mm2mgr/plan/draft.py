"""What a plan is drafted from: what the tree wants, beside what Connect clusters answered, compared. Pure.

A draft has every change that is wanted; `judges` says which of them must not be written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mm2mgr.comparison.differences import (
    KeyChange,
    Named,
    WorkerClients,
    another_connector,
    compare,
    diff,
    with_live_order,
)
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, ListEntry, Ownership, is_moved, move_text
from mm2mgr.connectors import RESTING, SETTLED, Connector, RunningConnector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import Estate, WorkerFacts
from mm2mgr.plan.assignments import assignment_remarks, with_assignments
from mm2mgr.plan.changes import ORDER, WRITES, Action, Change, ClusterPlan, Plan, Wish, type_of, with_price
from mm2mgr.plan.heartbeats import (
    Carrier,
    RunningConnectors,
    after_left_over,
    heartbeat_carriers,
    left_overs_of,
    with_carriers,
)
from mm2mgr.plan.judges import ClusterFacts, Connectors, may_write_to_other_cluster, writes_through_workers
from mm2mgr.plan.lanes import LanesInTurn, lanes_in_turn
from mm2mgr.plan.moves import with_moves
from mm2mgr.plan.quotas import ClientId, UsedClientIds, client_id_of
from mm2mgr.plan.starts import with_live_starts, with_starts
from mm2mgr.plan.ways_back import hold_remark, with_holds
from mm2mgr.remarks import Remark
from mm2mgr.spec.files import Spec
from mm2mgr.text import few, number_of
from mm2mgr.topology import Flow, ListedConnector, Topology


@dataclass(frozen=True)
class Live:
    """What a Connect cluster answered; `worker` in full, and `note`, only where something is to be written.

    Connectors that have reported no state yet may be missing, until configs are read alone before a write.
    """

    connectors: Mapping[str, RunningConnector]
    worker: WorkerFacts
    note: str | None = None


Answers = Mapping[str, Live | Mm2mgrError]
"""What each Connect cluster runs, or why that is not known."""


@dataclass(frozen=True)
class Declared:
    """What the tree wants: `connectors` as they are rendered, `only` for these flows, by their ids (None: for all).

    With `spec`, comments in the tree's files silence guards as a flow's `silence:` does. `waits`: the connectors of a
    plan whose update waits for its time (`schedule`), so that the tasks which it saves are still there.
    """

    topology: Topology
    connectors: Sequence[Connector]
    wish: Wish = Wish()
    only: frozenset[str] | None = None
    spec: Spec | None = None
    waits: Callable[[Plan], Collection[Named]] = lambda _: ()

    @cached_property
    def owners(self) -> Ownership:
        return Ownership.of_tree(self.topology)

    @cached_property
    def flows(self) -> dict[str, Flow]:
        return {flow.id: flow for flow in self.topology.flows}

    def allows(self, kind: str, connector: Named) -> bool:
        """Tell whether the wish, or all flows that a connector serves, allow a costly kind of change."""
        return kind in self.wish.allow or kind in self._allowed_by_flows.get(connector, ())

    @cached_property
    def _allowed_by_flows(self) -> dict[Named, frozenset[str]]:
        return {
            (c.connect, c.name): frozenset.intersection(
                *(frozenset(self.flows[flow].settings.allow) for flow in c.flows)
            )
            for c in self.connectors
            if c.flows
        }


@dataclass(frozen=True)
class Draft:
    """The changes that the tree wants, by Connect cluster. `connectors` are those of the tree, of which in each pair
    one of the `carriers` goes on with the heartbeats; `left_overs`: see `heartbeats.left_overs_of`.

    `compared` has what was compared, before moves were put in.
    """

    declared: Declared
    answers: Answers
    connectors: Sequence[Connector]
    running: RunningConnectors
    carriers: Mapping[str, Carrier]
    parts: Sequence[ClusterPlan]
    left_overs: Mapping[Named, Named]
    lanes: LanesInTurn
    compared: Mapping[str, ClusterPlan] = field(repr=False)

    @cached_property
    def live(self) -> dict[str, Live]:
        """The Connect clusters that could be read."""
        return _live(self.answers)

    @cached_property
    def errors(self) -> tuple[str, ...]:
        """The Connect clusters that could not."""
        return tuple(name for name in self.answers if name not in self.live)

    @cached_property
    def by_cluster(self) -> dict[str, list[Connector]]:
        """The connectors that the plan is to bring to each Connect cluster."""
        return _connectors_by_cluster(self.declared, self.connectors)

    @cached_property
    def changes(self) -> dict[Named, Change]:
        return {change.full_name: change for part in self.parts for change in part.changes}

    @cached_property
    def writes(self) -> list[Change]:
        """The creates and updates."""
        return [change for change in self.changes.values() if change.action in WRITES]

    @property
    def through_workers(self) -> list[str]:
        """The aliases of the Kafka clusters that the workers' own producers write to."""
        connectors = (connector for name in self.live for connector in self.by_cluster[name])
        aliases = (c.config.get("target.cluster.alias", "") for c in connectors if writes_through_workers(c.config))
        return [alias for alias in dict.fromkeys(aliases) if alias in self.declared.topology.clusters]

    @property
    def sources_with_other_tasks(self) -> set[str]:
        """The sources of connectors whose number of tasks changes: their topics show how many partitions move."""
        updates = (change for change in self.writes if change.action == "update" and change.type == "source")
        changed = (change for change in updates if any(key.key == "tasks.max" for key in change.keys))
        sources = {(change.config or {}).get("source.cluster.alias", "") for change in changed}
        return sources & self.declared.topology.clusters.keys()

    def clusters(self, cluster_ids: Mapping[str, str]) -> ClusterFacts:
        """Return what is known of Connect and Kafka clusters."""
        shared = {name: connect.kafka for name, connect in self.declared.topology.connects.items()}
        return ClusterFacts({name: live.worker for name, live in self.live.items()}, cluster_ids, shared)

    def is_as_declared(self, clusters: ClusterFacts) -> bool:
        """Tell whether just what is declared runs, on workers known to suit it: then nothing is to be judged."""
        return (
            self.declared.only is None
            and not any(part.unowned or part.left_over for part in self.parts)
            and all(change.action == "no-op" for change in self.changes.values())
            and not any(
                may_write_to_other_cluster(c.config, clusters.workers.get(c.connect), clusters) for c in self.connectors
            )
        )

    def all_connectors(self, tree: Estate) -> Connectors:
        """Return what the tree wants, as lint sees it, and what runs, owned or not."""
        desired = {
            (c.connect, c.name): replace(subject, state=c.state) if c.state in RESTING else subject
            for c, subject in zip(self.connectors, tree.subjects, strict=True)
        }
        subjects = (
            ((name, connector), running_subject(name, connector, there.config, there.state or None, live.worker))
            for name, live in self.live.items()
            for connector, there in live.connectors.items()
        )
        # Only the tree silences what concerns the tree.
        running = {named: replace(subject, silences=()) for named, subject in subjects if subject}
        held = self.declared.wish.deletes_held
        return Connectors(desired, running, frozenset(self.running.owned), self.errors, tree.files, held)

    @cached_property
    def client_ids(self) -> dict[Named, ClientId]:
        """The client ids with this owner's mark that running connectors have."""
        owner, configs = self.declared.topology.owner, self.running.configs
        return {named: used for named, config in configs.items() if (used := client_id_of(owner, config))}

    def used_client_ids(self, plan: Plan) -> UsedClientIds:
        """Return the client ids that a quota may be for, after a plan too: those of connectors that it does not write
        or delete.
        """
        planned = {change.full_name: change.action for change in plan.changes}
        in_use = {used for named, used in self.client_ids.items() if planned.get(named, "blocked") == "blocked"}
        concerned = frozenset(used for named, used in self.client_ids.items() if named in planned)
        return UsedClientIds(concerned, None if self.errors else frozenset(in_use), self.declared.only is None)

    def idle_permits(self, needed: Collection[tuple[Named, str]]) -> Iterator[tuple[str, str]]:
        """Yield Connect clusters with what flows allow there although nothing needs it: a line that stays would let the
        next accident through.
        """
        idle: dict[tuple[str, str], list[str]] = {}
        for c in (connector for on in self.by_cluster.values() for connector in on if connector.type == "source"):
            for kind in self.declared.flows[c.flows[0]].settings.allow:
                if ((c.connect, c.name), kind) not in needed:
                    idle.setdefault((c.connect, kind), []).append(c.flows[0])
        for (connect, permit), flows in idle.items():
            yield connect, f"`allow: [{permit}]` of {few(flows)} is not needed (any more): the line can go"


def make_draft(
    declared: Declared, answers: Answers, former: Draft | None = None, *, replace_carriers: bool = True
) -> Draft:
    """Compare what Connect clusters should run with what they run; of a `former` draft holds what still runs as it did.

    Without `replace_carriers` the former's go on with the heartbeats.
    """
    live, topology, wish = _live(answers), declared.topology, declared.wish
    deletes = wish.prune and declared.only is None
    connectors_on = {name: there.connectors for name, there in live.items()}
    running = replace(
        RunningConnectors.from_live(declared.owners, connectors_on, deletes=deletes, held=wish.deletes_held),
        workers={name: there.worker for name, there in live.items()},
        unread=[name for name in answers if name not in live],
    )
    if former and not replace_carriers:
        lanes, carriers, connectors = former.lanes, former.carriers, former.connectors
    else:
        lanes = lanes_in_turn(topology, declared.connectors, running)
        carriers = heartbeat_carriers(topology, lanes.connectors, running)
        connectors = with_assignments(with_carriers(lanes.connectors, carriers), running.configs)
        connectors = with_holds(with_live_starts(connectors, running.configs), running)
    chosen = _connectors_by_cluster(declared, connectors)
    names = topology.connects if declared.only is None else sorted(filter(chosen.get, topology.connects))
    compared = {
        name: former.compared[name]
        if former
        and connectors == former.connectors
        and _connectors_of(former.answers[name]) == _connectors_of(answers[name])
        else _compare_on(name, declared, chosen[name], answers[name])
        for name in names
    }
    moving = replace(topology, moved=(*topology.moved, *lanes.moved))
    compared = {name: without_deletes(part, lanes.waiting) for name, part in compared.items()}
    parts = with_moves(compared.values(), moving, connectors, running, is_whole=declared.only is None)
    parts = with_starts(parts, running, topology.clusters, connectors)
    left_overs = left_overs_of({c.full_name: c for part in parts for c in part.changes}, carriers, running)
    if left_overs:
        deleted = {change.full_name for part in parts for change in part.changes if change.action == "delete"}
        first = {named: old for named, old in left_overs.items() if old in deleted}
        parts = [
            part.each(lambda c: after_left_over(c, first[c.full_name]) if c.full_name in first else c) for part in parts
        ]
    return Draft(declared, answers, connectors, running, carriers, parts, left_overs, lanes, compared)


def _live(answers: Answers) -> dict[str, Live]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, Live)}


def _connectors_of(answer: Live | Mm2mgrError) -> object:
    return answer.connectors if isinstance(answer, Live) else answer


def _connectors_by_cluster(declared: Declared, connectors: Iterable[Connector]) -> dict[str, list[Connector]]:
    on: dict[str, list[Connector]] = {name: [] for name in declared.topology.connects}
    for connector in connectors:
        if declared.only is None or declared.only & set(connector.flows):
            on[connector.connect].append(connector)
    return on


def _compare_on(
    name: str, declared: Declared, connectors: Sequence[Connector], answer: Live | Mm2mgrError
) -> ClusterPlan:
    if isinstance(answer, Mm2mgrError):
        return ClusterPlan(name, error=answer.message, hint=answer.hint)
    running = answer.connectors
    owners, connect = declared.owners, declared.topology.connects[name]
    if declared.only is not None:  # what is left over shows only in the plan of the whole tree
        names = {connector.name for connector in connectors}
        running = {name: connector for name, connector in running.items() if name in names}
        owners = replace(owners, released={})
    client = declared.topology.clusters[connect.kafka].client
    workers = WorkerClients(answer.worker.version or connect.model.version or "", client)
    part = plan_cluster(owners, name, connectors, running, workers)
    return with_deletes(part, running) if declared.wish.prune and declared.only is None else part


# --- one Connect cluster ----------------------------------------------------------------------------------------------


def plan_cluster(
    owners: Ownership,
    connect: str,
    desired: Iterable[Connector],
    running: Mapping[str, RunningConnector],
    workers: WorkerClients | None = None,
) -> ClusterPlan:
    """Compare what one Connect cluster should run with what it runs, by name; nothing is deleted."""
    workers = workers or WorkerClients()
    ordered = sorted(desired, key=lambda connector: (connector.pair, ORDER[connector.type], connector.name))
    lists: list[ListEntry] = []
    changes = []
    for connector in ordered:
        live, entry = running.get(connector.name), owners.adopted.get((connect, connector.name))
        if entry:
            change, listed = _adopt(owners, entry, connector, live, workers)
            lists.append(listed)
        else:
            change = _compare(owners, connect, connector, live)
        changes.append(change.with_remarks(*assignment_remarks(connector.config)))
    names = {connector.name for connector in ordered}
    ours = {name for name, live in running.items() if owners.is_ours((connect, name), live.config)}
    left_over = sorted(ours - names)
    configs = {name: live.config for name, live in running.items()}
    lists += [owners.released_entry(named, configs.get(named[1])) for named in owners.released if named[0] == connect]
    shown_changes = (with_price(_as_shown(change, running.get(change.connector))) for change in changes)
    return ClusterPlan(connect, tuple(shown_changes), tuple(left_over), len(running) - len(ours), lists=tuple(lists))


def with_deletes(part: ClusterPlan, running: Mapping[str, RunningConnector]) -> ClusterPlan:
    """Return a plan that deletes what is left over."""
    deletes = (_delete(part.connect, name, running[name].config) for name in part.left_over)
    priced = (with_price(_as_shown(change, running[change.connector])) for change in deletes)
    return replace(part, changes=(*part.changes, *priced), left_over=())


def without_deletes(part: ClusterPlan, waiting: Collection[Named]) -> ClusterPlan:
    """Return a plan in which connectors that wait for their turn are neither deleted nor left over."""
    changes = tuple(c for c in part.changes if c.action != "delete" or c.full_name not in waiting)
    left = tuple(name for name in part.left_over if (part.connect, name) not in waiting)
    return replace(part, changes=changes, left_over=left)


def _as_shown(change: Change, running: RunningConnector | None) -> Change:
    return replace(change, shown=running.state, tasks=len(running.task_ids)) if running else change


def _compare(owners: Ownership, connect: str, desired: Connector, running: RunningConnector | None) -> Change:
    named, live, state = (connect, desired.name), running.config if running else None, running.state if running else ""
    ours = live is not None and owners.is_ours(named, live)
    desired_config = desired.config if live is None else with_live_order(desired.config, live)

    def change(action: Action, keys: tuple[KeyChange, ...] = (), *remarks: Remark) -> Change:
        config, before = desired_config if action in WRITES else None, live if ours else None
        flows, name = desired.flows, desired.name
        return Change(connect, name, desired.type, action, flows, keys, remarks, config, before=before, shown=state)

    if live is None:
        rests = ("", desired.state) if desired.state in RESTING else None
        created = change("create", diff({}, desired.config, desired.origins), *hold_remark(desired.config))
        return replace(created, state=rests)
    if not ours:
        reason = f"a connector of this name exists and {owners.whose(named, live)}; mm2mgr does not touch it"
        other = another_connector(desired, live) if JOURNAL_KEY not in live else None
        if other:  # adopting it would be refused, for this reason
            return change("blocked", (), Remark(f"{reason}; it {other}", remedy=_without_text(desired)))
        remedy = f"{owners.remedy(named, live)}; else {_without_text(desired)}"
        return change("blocked", (), Remark(reason, remedy=remedy))
    keys = diff(live, desired_config, desired.origins) if live != desired_config else ()
    moves = keys and desired.type == "source" and is_moved(live, desired_config)
    runs = state in {"RUNNING", "FAILED"}
    along = (Remark(move_text(live, desired_config, runs=runs), "notes"),) if moves else ()
    turn = _turn(state, desired.state)
    change_found = change("update", keys, *along) if keys or turn else change("no-op")
    if turn:
        change_found = replace(change_found, state=turn)
    if moves and not runs and (journal := Journal.of_config(live)):  # what runs has nothing to prove
        change_found = replace(change_found, needs_offsets=journal.needs)
    if desired.state is None and state in RESTING and JOURNAL_KEY not in live:
        return change_found.with_remarks(Remark(state, "rests"))
    if desired.state is None or state in SETTLED:
        return change_found
    unknown = f"whether it is {desired.state} could not be read (it shows {state or 'no status yet'}); plan again"
    return change_found.with_remarks(Remark(unknown, "warns"))


def _adopt(
    owners: Ownership,
    entry: ListedConnector,
    desired: Connector,
    running: RunningConnector | None,
    workers: WorkerClients,
) -> tuple[Change, ListEntry]:
    """Return what happens to a connector that `adopt:` names, and what its line says."""
    change, live = _compare(owners, entry.connect, desired, running), running.config if running else None
    listed = ListEntry("adopt", entry.connector, entry.place)
    is_marked = live is not None and not owners.is_adopted(entry.full_name, live)
    if live is None:
        reason = "nothing of that name runs there, and a new connector would mirror everything from the start"
        change = change.with_remarks(Remark(reason, remedy=f"correct {entry.place}, or remove that entry"))
    elif not is_marked and (other := another_connector(desired, live)):
        correct = f"if another connector is meant, correct {entry.place}"
        remedy = f"{correct}; else remove that entry, and {_without_text(desired)}"
        change = change.with_remarks(Remark(f"the connector to be adopted {other}", remedy=remedy))
    if live is None or change.action == "blocked":
        return change, replace(listed, says=f"not adopted: {change.reason}")
    if is_marked:
        return change, replace(listed, says="it carries the owner mark", done=True)
    differing, pending = compare(desired, live, workers)
    if differing:
        rest = f"{number_of(len(pending), 'other key')} mark it, are defaults of mm2mgr, or say what holds already"
        reason = f"adopted: the tree differs in {few(differing)}; {rest}"
        says = "its owner mark is written with this change; then this line can go"
        return change.with_remarks(Remark(reason, "notes")), replace(listed, says=says)
    # With the config that it has: what only pauses or stops it leaves that as it is.
    rests = replace(change, action="update", keys=(), config=live) if change.state else None
    says = "nothing is written until its config must change, and the owner mark then: this line is needed until then"
    remarks = tuple(remark for remark in change.remarks if remark.effect != "notes")
    nothing = replace(change, action="no-op", keys=(), config=None, remarks=remarks)
    return rests or nothing, replace(listed, says=f"adopted; {says}", pending=pending)


def _turn(shown: str, wished: str | None) -> tuple[str, str] | None:
    """Return the states before and after, where a connector is to be paused, resumed or stopped.

    A failed connector is not resumed for that. No state, or a transitional one, says nothing.
    """
    if wished is None or shown not in SETTLED or shown == wished or (shown, wished) == ("FAILED", "RUNNING"):
        return None
    return shown, wished


# A pair has one heartbeat and one checkpoint connector, whoever runs it.
_REMEDIES = {
    "heartbeat": (
        "leave the heartbeats of the pair to that connector: write heartbeats: false in flow '{flow}' and the other"
        " flows of the pair"
    ),
    "checkpoint": (
        "leave the checkpoints of the pair to that connector, which then has to take these topics and groups too: "
        "write checkpoints: false in flow '{flow}' and the other flows of the pair"
    ),
    "source": "rename flow '{flow}', or delete that connector if it is no longer needed",
}


def _without_text(desired: Connector) -> str:
    """Return how a flow does without a connector that has its name and is not this tree's."""
    flow, origin = desired.flows[0].partition(":")[0], desired.origins.get("name")
    if desired.type == "source" and origin and origin.kind == "spec":
        return (
            f"write another connector_name in flow '{flow}' ({origin.where}), or delete that connector if it is no"
            " longer needed"
        )
    return _REMEDIES[desired.type].format(flow=flow)


def _delete(connect: str, name: str, config: Mapping[str, str]) -> Change:
    type_, keys = type_of(config), diff(config, {})
    return Change(connect, name, type_, "delete", (), keys, (Remark("no longer declared", "notes"),), before=config)

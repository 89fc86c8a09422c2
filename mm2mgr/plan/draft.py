"""What a plan is drafted from: what the tree wants, beside what Connect clusters answered, compared. Pure.

A draft has every change that is wanted; `judges` says which of them must not be written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.equivalence import WorkerClients
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RESTING, Connector, RunningConnector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import Estate, WorkerFacts
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Wish, plan_cluster
from mm2mgr.plan.guards import ClusterFacts, Connectors, may_write_to_other_cluster, writes_through_workers
from mm2mgr.plan.heartbeats import (
    Carrier,
    RunningConnectors,
    after_left_over,
    heartbeat_carriers,
    left_overs_of,
    with_carriers,
)
from mm2mgr.plan.moves import BothSides, with_moves
from mm2mgr.plan.quotas import ClientId, UsedClientIds, client_id_of
from mm2mgr.text import few
from mm2mgr.topology import Flow, Topology


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
    """What the tree wants: `connectors` as they are rendered, `only` for these flows (None: for all)."""

    topology: Topology
    connectors: Sequence[Connector]
    wish: Wish
    only: frozenset[str] | None

    @cached_property
    def owners(self) -> Ownership:
        return Ownership.of(self.topology)

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
    """The changes that the tree wants, by Connect cluster. `connectors` are those of the tree, of which in each pair one
    of the `carriers` goes on with the heartbeats; `left_overs`: see `heartbeats.left_overs_of`.

    `compared` has what was compared, before moves were put in.
    """

    declared: Declared
    answers: Answers
    connectors: Sequence[Connector]
    running: RunningConnectors
    carriers: Mapping[str, Carrier]
    parts: Sequence[ClusterPlan]
    left_overs: Mapping[Named, Named]
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
    def on(self) -> dict[str, list[Connector]]:
        """The connectors that the plan is to bring to each Connect cluster."""
        return _chosen(self.declared, self.connectors)

    @cached_property
    def changes(self) -> dict[Named, Change]:
        return {change.named: change for part in self.parts for change in part.changes}

    @cached_property
    def writes(self) -> list[Change]:
        """The creates and updates."""
        return [change for change in self.changes.values() if change.action in WRITES]

    @property
    def through_workers(self) -> list[str]:
        """The aliases of the Kafka clusters that the workers' own producers write to."""
        connectors = (connector for name in self.live for connector in self.on[name])
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
        """Tell whether just what is declared runs, on workers that are known to suit it: then there is nothing to
        judge.
        """
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
        planned = {change.named: change.action for change in plan.changes}
        kept = {used for named, used in self.client_ids.items() if planned.get(named, "blocked") == "blocked"}
        concerned = frozenset(used for named, used in self.client_ids.items() if named in planned)
        return UsedClientIds(concerned, None if self.errors else frozenset(kept), self.declared.only is None)

    def idle_permits(self, needed: Collection[tuple[Named, str]]) -> Iterator[tuple[str, str]]:
        """Yield Connect clusters with what flows allow there although nothing needs it: a line that stays would let the
        next accident through.
        """
        idle: dict[tuple[str, str], list[str]] = {}
        for c in (connector for on in self.on.values() for connector in on if connector.type == "source"):
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
    running = RunningConnectors.of(
        declared.owners,
        {name: there.connectors for name, there in live.items()},
        deletes=wish.prune and declared.only is None,
        held=wish.deletes_held,
    )
    if former and not replace_carriers:
        carriers, connectors = former.carriers, former.connectors
    else:
        carriers = heartbeat_carriers(topology, declared.connectors, running)
        connectors = with_carriers(declared.connectors, carriers)
    chosen = _chosen(declared, connectors)
    names = topology.connects if declared.only is None else sorted(filter(chosen.get, topology.connects))
    compared = {
        name: former.compared[name]
        if former and connectors == former.connectors and _shown(former.answers[name]) == _shown(answers[name])
        else _compare_on(name, declared, chosen[name], answers[name])
        for name in names
    }
    sides = BothSides(
        running.configs,
        running.states,
        {name: there.worker for name, there in live.items()},
        frozenset(answers.keys() - live.keys()),
        frozenset(running.owned),
        {(c.connect, c.name): c for c in connectors},
        topology.clusters,
        released=declared.owners.released.keys(),
        is_whole=declared.only is None,
    )
    parts = with_moves(compared.values(), topology.moved, sides)
    left_overs = left_overs_of({c.named: c for part in parts for c in part.changes}, carriers, running)
    if left_overs:
        deleted = {change.named for part in parts for change in part.changes if change.action == "delete"}
        first = {named: old for named, old in left_overs.items() if old in deleted}
        parts = [part.each(lambda c: after_left_over(c, first[c.named]) if c.named in first else c) for part in parts]
    return Draft(declared, answers, connectors, running, carriers, parts, left_overs, compared)


def _live(answers: Answers) -> dict[str, Live]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, Live)}


def _shown(answer: Live | Mm2mgrError) -> object:
    return answer.connectors if isinstance(answer, Live) else answer


def _chosen(declared: Declared, connectors: Iterable[Connector]) -> dict[str, list[Connector]]:
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
    wish, owners, connect = declared.wish, declared.owners, declared.topology.connects[name]
    if declared.only is not None:  # what is left over shows only in the plan of the whole tree
        names = {connector.name for connector in connectors}
        running = {name: connector for name, connector in running.items() if name in names}
        wish, owners = replace(wish, prune=False), replace(owners, released={})
    configs: dict[str, Mapping[str, str]] = {name: connector.config for name, connector in running.items()}
    states = {name: connector.state for name, connector in answer.connectors.items() if connector.status}
    tasks = {name: len(connector.task_ids) for name, connector in answer.connectors.items()}
    client = declared.topology.clusters[connect.kafka].client
    workers = WorkerClients(answer.worker.version or connect.model.version or "", client)
    return plan_cluster(owners, name, connectors, configs, wish, states=states, tasks=tasks, workers=workers)

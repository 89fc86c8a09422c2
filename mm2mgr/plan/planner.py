"""Makes a plan: asks what Connect clusters run and, for writes, for their workers, offsets and topics.

It says what it lacks, and is told (`live.snapshot.Steps`). A plan without changes costs two requests per Connect
cluster, whatever else runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.equivalence import WorkerClients
from mm2mgr.comparison.journal import JOURNAL_KEY
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import RESTING, RunningConnector, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import Estate, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import ask_worker, harmless_overrides, shared_workers, version_of
from mm2mgr.live.questions import (
    AnsweringWorker,
    Configs,
    ConnectorsWithStates,
    DedicatedOffsets,
    Expiring,
    StoredOffsets,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, answered
from mm2mgr.live.snapshot import Question, Snapshot, Steps, side_by_side
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.adoption_claims import Claims, adopting, read_claims, refused, rewriting
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Wish, plan_cluster, with_mass_deletes_held
from mm2mgr.plan.facts import ClusterIds, TopicListing, cluster_ids, list_with_records, quotas_of, refusals, user_of
from mm2mgr.plan.guards import (
    ClusterFacts,
    Connectors,
    may_write_to_other_cluster,
    with_guards,
    writes_through_workers,
)
from mm2mgr.plan.heartbeats import (
    Carrier,
    RunningConnectors,
    carrier_notes,
    heartbeat_carriers,
    with_carriers,
    with_left_overs_first,
)
from mm2mgr.plan.mirrored import (
    ALLOWED_BY,
    ArrivedTopics,
    MirrorVerdict,
    judge,
)
from mm2mgr.plan.mirroring_cost import read_estimate
from mm2mgr.plan.moves import BothSides, with_moves, with_other_sides
from mm2mgr.plan.quotas import (
    ClientId,
    UsedClientIds,
    client_id_of,
    quota_changes,
    wanted_quotas,
)
from mm2mgr.plan.stages import steps_of
from mm2mgr.plan.widening import MirroredState, StartedTopics, Widening, taken, unseen_successors, widenings
from mm2mgr.remarks import Remark
from mm2mgr.render import Connector
from mm2mgr.spec.loader import Spec
from mm2mgr.text import few, one_line
from mm2mgr.topology import Flow, Topology, matches_nothing

# Stages of a move wait up to a minute each; a person who finishes an interrupted one needs longer.
_LONGEST_PAUSE_SECONDS = 900.0


@dataclass(frozen=True)
class _Live:
    """What a Connect cluster answered; `worker` in full, and `note`, only where something is to be written.

    Connectors that have reported no state yet may be missing, until configs are read alone before a write.
    """

    connectors: Mapping[str, RunningConnector]
    worker: WorkerFacts
    note: str | None = None


async def make_plan(  # noqa: PLR0913  the tree in three forms, and what is wanted of it
    topology: Topology,
    connectors: Sequence[Connector],
    wish: Wish | None = None,
    *,
    only: Iterable[str] | None = None,
    spec: Spec | None = None,
    deadline_seconds: float = 30.0,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
    snapshot: Snapshot | None = None,
) -> Plan:
    """Read every Connect cluster concurrently and compare. `only` limits the plan to connectors that serve these flow
    ids.

    A cluster that cannot be read is in the plan with its error; the others are planned anyway. Guards have had
    their say: what must not be written is blocked, what could not be verified is noted. With `spec`, comments in the
    tree's files silence guards as a flow's `silence:` does. Connect clusters to `skip` are not asked: what runs there
    is unknown, with this error. What a `snapshot` answers is not asked again, and beside one from a file nothing is
    asked.
    """
    steps = plan_steps(topology, connectors, wish, only=only, spec=spec, skip=skip)
    limits = Limits(connect_seconds=deadline_seconds)
    return (await answered(steps, Clusters.of(topology), limits, snapshot))[0]


def plan_steps(  # noqa: PLR0913  the tree in three forms, and what is wanted of it
    topology: Topology,
    connectors: Sequence[Connector],
    wish: Wish | None = None,
    *,
    only: Iterable[str] | None = None,
    spec: Spec | None = None,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
) -> Steps[Plan]:
    """Make the same plan from answers: it yields the questions that it lacks. Pure."""
    chosen = None if only is None else with_other_sides(only, topology.moved)
    making = _Making(topology, connectors, wish or Wish(), chosen)
    making.errors.update(skip)
    return making.plan(lambda: from_tree(topology, making.connectors, spec))


@dataclass
class _Making:
    """One plan in the making: what was read so far."""

    topology: Topology
    rendered: Sequence[Connector]
    wish: Wish
    only: frozenset[str] | None
    snapshot: Snapshot = field(default_factory=Snapshot)
    live: dict[str, _Live] = field(default_factory=dict)
    errors: dict[str, Mm2mgrError] = field(default_factory=dict)
    parts: dict[str, ClusterPlan] = field(default_factory=dict)
    """What was compared already, of what has not been asked again since."""
    unverified: dict[str, str] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    needed: set[tuple[Named, str]] = field(default_factory=set)
    """Connectors with the costly kinds of change that they need."""
    carriers: Mapping[str, Carrier] = field(default_factory=dict)
    """Who mirrors the heartbeats of each pair, by what runs."""

    def __post_init__(self) -> None:
        self.connectors: Sequence[Connector] = self.rendered

    @cached_property
    def flows(self) -> dict[str, Flow]:
        return {flow.id: flow for flow in self.topology.flows}

    @cached_property
    def owners(self) -> Ownership:
        return Ownership.of(self.topology)

    def plan(self, as_lint_sees_it: Callable[[], Estate]) -> Steps[Plan]:
        """Read, compare and judge; the tree as lint sees it has the connectors in the same order."""
        yield from self.read_running()
        self.refuse_shared()
        self.place_heartbeats()
        connectors = (each for name in self.topology.connects for each in self.wanted(name))
        wanted = wanted_quotas(self.topology, connectors, user_of)
        asked = {each.kafka for each in wanted} | {alias for alias, _ in self.running_client_ids().values()}
        made: Plan
        made, read = yield from side_by_side(self.of_connectors(as_lint_sees_it), quotas_of(self.topology, asked))
        return (
            replace(made, quotas=quota_changes(made.owner, wanted, read, self.used_client_ids(made))) if read else made
        )

    def of_connectors(self, as_lint_sees_it: Callable[[], Estate]) -> Steps[Plan]:
        """Return the plan without quotas."""
        if any(part.writes for part in self.compared()):
            yield from self.read_without_status()
            self.place_heartbeats()
        written = sorted({change.connect for change in self.writes()})
        contested = adopting(self.owners, self.compared()) | rewriting(self.compared())
        ids, self.claims, _ = yield from side_by_side(
            cluster_ids(self.topology, self.through_workers(), ask=bool(written)),
            read_claims(self.topology, contested),
            self.read_workers(written),
        )
        if self.is_as_declared(self.known(ids)):
            return self.made([refused(part, self.claims) for part in self.compared()], ids, (), MirroredState())
        run = self.all_connectors(as_lint_sees_it())
        found = widenings(self.writes(), run.desired, run.live)
        seen = yield from self.read_mirrored(found, self.with_other_tasks(run))
        overs = {c.named: c.takes_over for c in self.writes() if c.takes_over}
        begun = {c.named for c in self.writes() if c.takes_over and JOURNAL_KEY in (c.before or {})}
        verdicts = {
            (named := each.named): judge(
                each, seen, run, self.version(named[0]), overs.get(named), begun=named in begun
            )
            for each in found
        }
        against = {each.named: self.against(each, verdicts[each.named]) for each in found}
        dedicated, retention = yield from side_by_side(self.ask_dedicated(), self.ask_retention(seen))
        for named, objection in (*dedicated, *retention):
            against.setdefault(named, []).append(objection)
        successors = {named: [old.old for old in one.again] for named, one in verdicts.items() if one.again}
        successors |= unseen_successors(run)
        estimate = yield from read_estimate(self.topology.clusters, run, seen, found, verdicts, self.writes())
        parts = [self.with_topics(part, found, seen, verdicts).each(estimate.priced) for part in self.compared()]
        # What others claim is blocked before the guards judge: whatever is connected with it is then blocked, too.
        parts = [refused(part, self.claims) for part in parts]
        held = with_mass_deletes_held(parts, self.wish)
        judged = with_guards(held, run, self.known(ids), against, successors)
        if refusing := (yield from self.ask_validation(judged)):
            for named, objection in refusing:
                against.setdefault(named, []).append(objection)
            judged = with_guards(held, run, self.known(ids), against, successors)
        return self.made(judged, ids, found, seen)

    def made(
        self, parts: Iterable[ClusterPlan], ids: ClusterIds, found: Sequence[Widening], seen: MirroredState
    ) -> Plan:
        """Return the plan, with what apply will do and what could not be verified."""
        owner = self.topology.owner

        def with_steps(change: Change) -> Change:
            return replace(change, steps=steps) if (steps := steps_of(change, owner)) else change

        carried = list(carrier_notes(self.carriers.values(), self.running(), self.writes())) if self.carriers else []

        def noted(part: ClusterPlan) -> ClusterPlan:
            of_carriers = (note for connect, note in carried if connect == part.connect and connect in self.live)
            return replace(part, notes=(*part.notes, *of_carriers, *self.notes(part, ids, found, seen)))

        return Plan(owner, tuple(part.each(with_steps) for part in map(noted, parts)), self.wish)

    def known(self, ids: ClusterIds) -> ClusterFacts:
        shared = {name: connect.kafka for name, connect in self.topology.connects.items()}
        return ClusterFacts({name: live.worker for name, live in self.live.items()}, ids.known, shared)

    def is_as_declared(self, known: ClusterFacts) -> bool:
        """Tell whether just what is declared runs, on workers that are known to suit it: then there is nothing to
        judge.
        """
        return (
            self.only is None
            and not any(part.unowned or part.left_over for part in self.compared())
            and all(change.action == "no-op" for part in self.compared() for change in part.changes)
            and not any(
                may_write_to_other_cluster(c.config, known.workers.get(c.connect), known) for c in self.connectors
            )
        )

    def wanted(self, name: str) -> list[Connector]:
        """Return the connectors that the plan is to bring to a Connect cluster."""
        return [c for c in self.connectors if c.connect == name and (self.only is None or self.only & set(c.flows))]

    def compared(self) -> list[ClusterPlan]:
        """Compare what Connect clusters should run with what they run."""
        names = self.topology.connects if self.only is None else sorted(filter(self.wanted, self.topology.connects))
        for name in names:
            if name not in self.parts:
                self.parts[name] = self.compared_on(name)
        moving = with_moves([self.parts[name] for name in names], self.topology.moved, self.both_sides())
        return with_left_overs_first(moving, self.carriers, self.running())

    def refuse_shared(self) -> None:
        """Take Connect clusters that share their workers or configs for unread: a plan of one would delete what the
        other created.
        """
        ids = {name: live.worker.cluster_id or "" for name, live in self.live.items()}
        for name, error in shared_workers(self.running_by_connect(), ids).items():
            self.errors[name] = error
            self.live.pop(name)
            self.parts.pop(name, None)

    def place_heartbeats(self) -> None:
        """Let the connectors that mirror heartbeats go on with them."""
        self.carriers = heartbeat_carriers(self.topology, self.rendered, self.running())
        connectors = with_carriers(self.rendered, self.carriers)
        if connectors != list(self.connectors):
            self.connectors = connectors
            self.parts.clear()

    def running_by_connect(self) -> dict[str, Mapping[str, RunningConnector]]:
        return {name: live.connectors for name, live in self.live.items()}

    def running(self) -> RunningConnectors:
        """Return what runs, for what only one connector of a pair may do."""
        deletes, held = self.wish.prune and self.only is None, self.wish.deletes_held
        return RunningConnectors.of(self.owners, self.running_by_connect(), deletes=deletes, held=held)

    def both_sides(self) -> BothSides:
        """Return what runs and what is wanted, for moves, whose two sides may be on different Connect clusters."""
        running = self.running()
        return BothSides(
            running.configs,
            running.states,
            {name: read.worker for name, read in self.live.items()},
            frozenset(self.errors),
            frozenset(running.owned),
            {(c.connect, c.name): c for c in self.connectors},
            self.topology.clusters,
            released=self.owners.released.keys(),
            is_whole=self.only is None,
        )

    def compared_on(self, name: str) -> ClusterPlan:
        if name in self.errors:
            return ClusterPlan(name, error=self.errors[name].message, hint=self.errors[name].hint)
        live, connect = self.live[name], self.topology.connects[name]
        configs: dict[str, Mapping[str, str]] = {each: there.config for each, there in live.connectors.items()}
        wanted, wish, owners = self.wanted(name), self.wish, self.owners
        if self.only is not None:  # what is left over shows only in the plan of the whole tree
            names = {connector.name for connector in wanted}
            configs = {each: config for each, config in configs.items() if each in names}
            wish, owners = replace(wish, prune=False), replace(owners, released={})
        tasks = {connector: len(there.task_ids) for connector, there in live.connectors.items()}
        states = {connector: there.state for connector, there in live.connectors.items() if there.status}
        client = self.topology.clusters[connect.kafka].client
        workers = WorkerClients(live.worker.version or connect.model.version or "", client)
        return plan_cluster(owners, name, wanted, configs, wish, states=states, tasks=tasks, workers=workers)

    def writes(self) -> list[Change]:
        return [change for part in self.compared() for change in part.changes if change.action in WRITES]

    def through_workers(self) -> list[str]:
        """Return the aliases of the Kafka clusters that the workers' own producers write to."""
        connectors = [connector for name in self.live for connector in self.wanted(name)]
        aliases = (c.config.get("target.cluster.alias", "") for c in connectors if writes_through_workers(c.config))
        return [alias for alias in dict.fromkeys(aliases) if alias in self.topology.clusters]

    def all_connectors(self, tree: Estate) -> Connectors:
        """Return what the tree wants and what runs, owned or not."""
        desired = {
            (c.connect, c.name): replace(subject, state=c.state) if c.state in RESTING else subject
            for c, subject in zip(self.connectors, tree.subjects, strict=True)
        }
        live, owned = {}, set()
        for name, read in self.live.items():
            for connector, there in read.connectors.items():
                config = there.config
                subject = running_subject(name, connector, config, there.state or None, read.worker)
                if subject:  # only the tree silences what concerns the tree
                    live[name, connector] = replace(subject, silences=())
                if self.owners.is_ours((name, connector), config):
                    owned.add((name, connector))
        held = self.wish.deletes_held
        return Connectors(desired, live, frozenset(owned), tuple(self.errors), tree.files, held)

    # --- reading ------------------------------------------------------------------------------------------------------

    def ask(self, questions: Iterable[Question[Any]]) -> Steps[Snapshot]:
        """Return what was read so far, with the answers to these questions."""
        self.snapshot = yield questions
        return self.snapshot

    def take(self, name: str, live: _Live) -> None:
        """Take in what a Connect cluster runs; what was compared holds where its configs are the same."""
        before, self.live[name] = self.live.get(name), live
        if before is None or live.connectors != before.connectors:
            self.parts.pop(name, None)

    def fail(self, name: str, error: Mm2mgrError) -> None:
        """Take a Connect cluster for unread from now on."""
        self.errors[name] = error
        self.live.pop(name, None)
        self.parts.pop(name, None)

    def read_running(self) -> Steps[None]:
        """Read what Connect clusters run, in which state, and who answers."""
        names = [name for name in self.topology.connects if name not in self.errors]
        snapshot = yield from self.ask(kind(name) for name in names for kind in (ConnectorsWithStates, AnsweringWorker))
        for name in names:
            try:
                connectors, root = snapshot[ConnectorsWithStates(name)], snapshot[AnsweringWorker(name)]
                self.take(name, _Live(connectors, version_of(root)))
            except Mm2mgrError as error:
                self.fail(name, error)

    def read_without_status(self) -> Steps[None]:
        """Read connectors without a status too: one that is missing from a list is never created, nor forgotten."""
        names = list(self.live)
        snapshot = yield from self.ask(map(Configs, names))
        for name in names:
            try:
                known = self.live[name].connectors
                statuses = {connector: there.status for connector, there in known.items() if there.status}
                connectors = with_statuses(snapshot[Configs(name)], statuses)
                self.take(name, replace(self.live[name], connectors=connectors))
            except Mm2mgrError as error:
                self.fail(name, error)

    def read_workers(self, names: Iterable[str]) -> Steps[None]:
        """Read plugins, override policy and exactly-once support."""
        yield from side_by_side(*map(self.read_worker, names))

    def read_worker(self, name: str) -> Steps[None]:
        overrides = harmless_overrides(key for connector in self.wanted(name) for key in connector.config)
        try:
            worker, failed = yield from ask_worker(name, overrides)
            note = f"not verified: {failed.message}" if failed else None
            self.take(name, replace(self.live[name], worker=worker, note=note))
        except Mm2mgrError as error:
            self.fail(name, error)

    def read_mirrored(self, found: Sequence[Widening], also: Iterable[str]) -> Steps[MirroredState]:
        """Read the stored offsets of the connectors concerned, and the topics of their Kafka clusters and of `also`
        others.
        """
        concerned = {old: hop.subject.source for each in found for old, hop in each.neighbours()}
        concerned |= {each.named: each.before.subject.source for each in found if each.before}
        aliases = {each.source for each in found}.union(also)
        sources = {alias: StartedTopics(each for each in found if each.source == alias) for alias in sorted(aliases)}
        snapshot, topics = yield from side_by_side(
            self.ask(StoredOffsets(*named) for named in concerned), list_with_records(sources)
        )
        begun = {
            named: tuple(taken)
            for alias, one in sources.items()
            if isinstance(topics[alias], TopicListing)
            for named, taken in one.topics.items()
        }
        targets = {
            alias: ArrivedTopics((each for each in found if each.target == alias), begun, unread=bool(self.errors))
            for alias in sorted({each.target for each in found})
        }
        topics |= yield from list_with_records(targets)
        offsets: dict[Named, Mapping[TopicPartition, int] | None] = {}
        former: dict[tuple[Named, str], Mapping[TopicPartition, int]] = {}
        turned = {(old, each.source) for each in found for old in each.opposite}
        for named, source in concerned.items():
            entries = snapshot.get(StoredOffsets(*named))
            if isinstance(entries, Mm2mgrError):
                offsets[named] = None
                continue
            offsets[named] = parse_stored(entries, source)
            former.update({(old, alias): parse_stored(entries, alias) for old, alias in turned if old == named})
            former[named, ""] = parse_stored(entries, "", {*self.topology.clusters, source})
        return MirroredState(offsets, topics, begun, former, self.topology.clusters)

    # --- quotas -------------------------------------------------------------------------------------------------------

    def running_client_ids(self) -> dict[Named, ClientId]:
        """Return the client ids with this owner's mark, by connector."""
        return {
            (name, connector): client_id
            for name, live in self.live.items()
            for connector, there in live.connectors.items()
            if (client_id := client_id_of(self.topology.owner, there.config))
        }

    def used_client_ids(self, made: Plan) -> UsedClientIds:
        """Return the client ids that a quota may be for, after a plan too: those of connectors that it does not write
        or delete.
        """
        running = self.running_client_ids()
        planned = {change.named: change.action for change in made.changes}
        kept = {one for named, one in running.items() if planned.get(named, "blocked") == "blocked"}
        concerned = frozenset(one for named, one in running.items() if named in planned)
        return UsedClientIds(concerned, None if self.errors else frozenset(kept), self.only is None)

    # --- what costs more than is written unasked ----------------------------------------------------------------------

    def with_other_tasks(self, run: Connectors) -> set[str]:
        """Return the sources of connectors whose number of tasks changes: their topics show how many partitions
        move.
        """
        writes = (change for change in self.writes() if change.action == "update" and change.type == "source")
        changed = (each.named for each in writes if any(key.key == "tasks.max" for key in each.keys))
        return {run.desired[each].source for each in changed if each in run.desired} & self.topology.clusters.keys()

    def allows(self, kind: str, connector: Named) -> bool:
        """Tell whether the wish, or all flows that a connector serves, allow a costly kind of change."""
        return kind in self.wish.allow or kind in self.allowed_by_flows.get(connector, ())

    @cached_property
    def allowed_by_flows(self) -> dict[Named, frozenset[str]]:
        """The kinds that all flows of a connector allow, by connector."""
        return {
            (c.connect, c.name): frozenset.intersection(
                *(frozenset(self.flows[flow].settings.allow) for flow in c.flows)
            )
            for c in self.connectors
            if c.flows
        }

    def ask_dedicated(self) -> Steps[list[tuple[Named, Remark]]]:
        """Return why dedicated MirrorMakers cannot be taken over now."""
        questions = {
            change.named: DedicatedOffsets(over.dedicated.alias, over.picks.before)
            for change in self.writes()
            if (over := change.takes_over) and over.dedicated and not over.move.carried
        }
        snapshot = yield questions.values()
        errors = ((named, snapshot.get(question)) for named, question in questions.items())
        return [
            (named, Remark(error.message, "blocks", error.hint or "plan again when it can be read", "moved"))
            for named, error in errors
            if isinstance(error, Mm2mgrError)
        ]

    def ask_validation(self, judged: Iterable[ClusterPlan]) -> Steps[list[tuple[Named, Remark]]]:
        """Return what workers say against the configs that would be written; where they do not tell, that is noted."""
        writes = [change for part in judged for change in part.changes if change.action in WRITES and change.keys]
        origins = {(c.connect, c.name): c.origins for c in self.connectors}
        # Workers whose override policy could not be asked for do not validate.
        asked = [change for change in writes if not self.live[change.connect].note]
        refusing: list[tuple[Named, Remark]] = []
        for change, reasons in zip(asked, (yield from side_by_side(*map(_validate, asked))), strict=True):
            if isinstance(reasons, Mm2mgrError):
                text = (
                    f"not verified: whether the workers accept the config of '{change.connector}' ({reasons.one_line})"
                )
                self.unverified.setdefault(change.connect, text)
                continue
            for key, reason in reasons.items():
                if key in self.live[change.connect].worker.refused:
                    continue  # `policy-forbids` says that, which a tree may silence
                origin = origins[change.named].get(key)
                where = f" ({origin.where})" if origin and origin.where else ""
                how = f"correct {key or 'that setting'}{where}, or give the workers what it needs"
                text = ": ".join(filter(None, (key, one_line(reason))))
                refusing.append((change.named, Remark(text, "blocks", how, "refused-by-workers")))
        return refusing

    def ask_retention(self, seen: MirroredState) -> Steps[list[tuple[Named, Remark]]]:
        """Return the moves whose pause would outlast records that have yet to be mirrored; what cannot be read is
        noted.
        """
        questions: dict[Named, Expiring] = {}
        for change in self.writes():
            over, alias = change.takes_over, (change.config or {}).get("source.cluster.alias", "")
            stored = seen.offsets.get(over.giver) if over and not over.move.carried else None
            if over and stored and isinstance(seen.topics.get(alias), TopicListing):
                position = tuple((one, last + 1) for one, last in sorted(stored.items()))
                questions[change.named] = Expiring(alias, position, _LONGEST_PAUSE_SECONDS)
        snapshot = yield questions.values()
        found = []
        for named, question in questions.items():
            late = snapshot.get(question)
            if isinstance(late, Mm2mgrError):
                self.unverified[named[0]] = f"not verified: retention of what moves to '{named[1]}' ({late.one_line})"
            elif late:
                minutes = f"{_LONGEST_PAUSE_SECONDS / 60:.0f} min"
                why = (
                    f"retention deletes records of {few([str(one) for one in late])} within {minutes}, before they are"
                    " mirrored"
                )
                how = "wait until the flow has caught up, or raise retention.ms of the topic for the time of the move"
                found.append((named, Remark(why, "blocks", how, "moved")))
        return found

    def against(self, widening: Widening, verdict: MirrorVerdict) -> list[Remark]:
        """Return the objections to a write without those of an allowed kind."""
        kinds = [(objection, ALLOWED_BY.get(objection.rule, "")) for objection in verdict.objections]
        self.needed.update((widening.named, kind) for _, kind in kinds if kind)
        return [objection for objection, kind in kinds if not self.allows(kind, widening.named)]

    def idle_permits(self, connect: str) -> Iterator[str]:
        """Yield what flows allow although nothing needs it: a line that stays would let the next accident through."""
        idle: dict[str, list[str]] = {}
        for c in self.wanted(connect):
            for kind in self.flows[c.flows[0]].settings.allow if c.type == "source" else ():
                if ((c.connect, c.name), kind) not in self.needed:
                    idle.setdefault(kind, []).append(c.flows[0])
        for permit, flows in idle.items():
            yield f"`allow: [{permit}]` of {few(flows)} is not needed (any more): the line can go"

    # --- warnings and notes beside the changes
    # ------------------------------------------------------------------------------

    def with_topics(
        self, part: ClusterPlan, found: Sequence[Widening], seen: MirroredState, verdicts: Mapping[Named, MirrorVerdict]
    ) -> ClusterPlan:
        """Add to source connectors which topics they will mirror, which they mirror again on request, and what must be
        proved first.
        """
        chosen = {each.named: each for each in found}
        deleted = {change.named for each in self.compared() for change in each.changes if change.action == "delete"}

        def with_topics_of(change: Change) -> Change:
            widening, needs = chosen.get(change.named), change.needs_offsets
            if needs and self.allows("mirror-again", change.named):
                self.needed.add((change.named, "mirror-again"))
                again = f"mirrors {few(list(needs))} again, if no offsets are stored under its name"
                change = replace(change, needs_offsets=()).with_remarks(Remark(again, "notes"))
            if widening is None:
                return change
            verdict, listed = verdicts[widening.named], seen.listed(widening.source)
            takes = taken(widening, seen)
            nothing = None
            if listed and takes and not takes.topics:
                nothing = matches_nothing(self.flows[change.flows[0]], listed.partitions)
            change = replace(change, takes=takes).with_remarks(*([Remark(nothing, "warns")] if nothing else []))
            if self.allows("mirror-again", widening.named):
                self.needed.update((widening.named, "mirror-again") for _ in verdict.needs)
                change = change.with_remarks(
                    *(Remark(f"mirrors again what {again} already mirrored", "notes") for again in verdict.again)
                )
                first = [each.old for each in verdict.again if each.old in deleted and not change.takes_over]
                return replace(change, follows=tuple(dict.fromkeys((*change.follows, *first))))
            return replace(change, needs_offsets=verdict.needs) if change.action == "create" else change

        return part.each(with_topics_of)

    def version(self, connect: str) -> str | None:
        """Return the Kafka version of the workers, None when it is not known."""
        return self.live[connect].worker.version if connect in self.live else None

    def notes(
        self, part: ClusterPlan, ids: ClusterIds, found: Sequence[Widening], seen: MirroredState
    ) -> Iterator[str]:
        """Yield what could not be verified."""
        live = self.live.get(part.connect)
        if live is None:
            return
        if live.note:
            yield live.note
        if part.connect in self.unverified:
            yield self.unverified[part.connect]
        yield from self.idle_permits(part.connect)
        for alias, why in ids.unknown.items():
            to = (c for c in self.wanted(part.connect) if c.config.get("target.cluster.alias") == alias)
            if any(writes_through_workers(c.config) for c in to):
                spared = f"declare clusters: {{{alias}: {{cluster_id: …}}}} to compare it without a request"
                yield (
                    f"not verified: that these workers write to Kafka '{alias}', whose id could not be read ({why});"
                    f" {spared}"
                )
        sources = sorted({each.source for each in found if each.named[0] == part.connect})
        unlisted = {alias: reason for alias in sources if isinstance(reason := seen.topics.get(alias), str)}
        if unlisted:
            names, first = few([f"'{alias}'" for alias in unlisted]), next(iter(unlisted.values()))
            yield f"not verified: which topics of {names} these flows take; they could not be listed ({first})"


def _validate(change: Change) -> Steps[dict[str, str] | Mm2mgrError]:
    """Return what the workers say against the config that a change writes, by key."""
    try:
        return (yield from refusals(change.connect, change.written))
    except Mm2mgrError as error:
        return error

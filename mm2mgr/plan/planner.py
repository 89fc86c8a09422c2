"""Makes a plan: asks what Connect clusters run and, for writes, for their workers, offsets and topics.

It says what it lacks, and is told (`live.snapshot.Steps`). A plan without changes costs two requests per Connect
cluster, whatever else runs there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import is_held
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import ConnectorStatus, with_statuses, workers_at_work
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import ask_worker, harmless_overrides, shared_workers, version_of
from mm2mgr.live.kafka_state import list_topics
from mm2mgr.live.questions import (
    AnsweringWorker,
    Configs,
    ConnectorsWithStates,
    DedicatedOffsets,
    Expiring,
    Statuses,
    StoredOffsets,
)
from mm2mgr.live.snapshot import Steps, ask, or_error, side_by_side
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan
from mm2mgr.plan.draft import Answers, Declared, Draft, Live, make_draft
from mm2mgr.plan.facts import cluster_ids, quotas_of, refusals, user_of
from mm2mgr.plan.heartbeats import carrier_notes
from mm2mgr.plan.history import (
    adopting,
    read_claims,
    read_history,
    rested_by_tree,
    rewriting,
    with_claims_shown,
)
from mm2mgr.plan.judges import Connectors, Facts, judge_parts, writes_through_workers
from mm2mgr.plan.lanes import with_lanes_of
from mm2mgr.plan.mirrored import ALLOWED_BY, ArrivedTopics, MirrorVerdict, judge
from mm2mgr.plan.mirroring_cost import count_assigned, read_estimate
from mm2mgr.plan.moves import with_other_sides
from mm2mgr.plan.plugin_guard import ask_plugin_workers
from mm2mgr.plan.quotas import quota_changes, wanted_quotas
from mm2mgr.plan.renames import without_renamed
from mm2mgr.plan.stages import steps_of
from mm2mgr.plan.starts import ask_starts, with_positions, without_effect
from mm2mgr.plan.widening import MirroredState, StartedTopics, Widening, topics_taken, unseen_successors, widenings
from mm2mgr.plan.worker_cap import WorkerCap, count_tasks
from mm2mgr.remarks import Remark
from mm2mgr.text import few, one_line
from mm2mgr.topology import Topology, matches_nothing

# Stages of a move wait up to a minute each; a person who finishes an interrupted one needs longer.
_LONGEST_PAUSE_SECONDS = 900.0
Verdicts = Mapping[Named, MirrorVerdict]
Objections = tuple[list[tuple[Named, Remark]], dict[str, str]]
"""What answers have against single writes, and by Connect cluster what could not be verified."""


def plan_steps(declared: Declared, skip: Mapping[str, Mm2mgrError] = MappingProxyType({})) -> Steps[Plan]:
    """Compare what the tree declares with what every Connect cluster runs: yields the questions that it lacks. Pure.

    A cluster that cannot be read is in the plan with its error; the others are planned anyway. All is judged: what
    must not be written is blocked, what could not be verified is noted. Connect clusters to `skip` are not asked: what
    runs there is unknown, with this error.
    """
    topology = declared.topology
    if declared.only is not None:
        only = with_other_sides(declared.only, topology.moved)
        declared = replace(declared, only=with_lanes_of(only, topology))
    draft = make_draft(declared, (yield from _read_running(topology, skip)))
    draft, resumed = yield from _with_resumed(draft)
    quotas = wanted_quotas(topology, (connector for on in draft.by_cluster.values() for connector in on), user_of)
    aliases = {quota.kafka for quota in quotas} | {alias for alias, _ in draft.client_ids.values()}
    plan: Plan
    (plan, draft), read = yield from side_by_side(_judge_steps(draft), quotas_of(topology, aliases))
    plan = replace(plan, clusters=tuple(part.each(lambda c: _said_resumed(c, resumed)) for part in plan.clusters))
    if not read:
        return plan
    return replace(plan, quotas=quota_changes(plan.owner, quotas, read, draft.used_client_ids(plan)))


def _with_resumed(draft: Draft) -> Steps[tuple[Draft, Mapping[Named, str]]]:
    """Resume what rests because an apply brought it there: the tree no longer says so. Return the draft, and why."""
    resting = {change.full_name: change.shown for change in draft.changes.values() if change.rests}
    resting = {named: state for named, state in resting.items() if not is_held(draft.running.configs[named])}
    if not resting:
        return draft, {}
    topology = draft.declared.topology
    history = yield from read_history(topology, {connect for connect, _ in resting})
    resumed = rested_by_tree(history.entries, resting)
    if not resumed:
        return draft, {}
    connectors = tuple(
        replace(connector, state="RUNNING") if (connector.connect, connector.name) in resumed else connector
        for connector in draft.declared.connectors
    )
    return make_draft(replace(draft.declared, connectors=connectors), draft.answers), resumed


def _said_resumed(change: Change, resumed: Mapping[Named, str]) -> Change:
    reason = resumed.get(change.full_name)
    return change.with_remarks(Remark(reason, "notes")) if reason and change.state else change


def _judge_steps(draft: Draft) -> Steps[tuple[Plan, Draft]]:
    """Return the plan without quotas, and the draft that it was made from."""
    declared, topology = draft.declared, draft.declared.topology
    if any(part.writes for part in draft.parts):
        draft = make_draft(declared, (yield from _read_without_status(draft)), draft)
    written = sorted({change.connect for change in draft.writes})
    contested = adopting(declared.owners, draft.parts) | rewriting(draft.parts)
    (ids, unknown_ids), claims, workers = yield from side_by_side(
        cluster_ids(topology, draft.through_workers, ask=bool(written)),
        read_claims(topology, contested),
        side_by_side(*(_read_worker(draft, name) for name in written)),
    )
    if written:
        answers = {**draft.answers, **dict(zip(written, workers, strict=True))}
        draft = make_draft(declared, answers, draft, replace_carriers=False)
    clusters = draft.clusters(ids)
    shown = [with_claims_shown(part, claims) for part in draft.parts]
    if not claims.others and draft.is_as_declared(clusters):
        return _finish_plan(draft, shown, _notes(draft, unknown_ids)), draft
    run = draft.all_connectors(from_tree(topology, draft.connectors, declared.spec))
    # What is held mirrors nothing, whatever its config takes; `failover back` says where it begins.
    running_writes = [change for change in draft.writes if not is_held(change.config or {})]
    writes = widenings(running_writes, run.desired, run.live)
    state = yield from _read_mirrored(draft, writes)
    verdicts = _verdicts(draft, writes, state, run)
    dedicated, late, caps, plugins, (positions, against_starts) = yield from side_by_side(
        _ask_dedicated(draft),
        _ask_retention(draft, state),
        _read_caps(draft, run, state),
        ask_plugin_workers(draft),
        ask_starts(draft.writes),
    )
    estimate = yield from read_estimate(draft, run, state, writes, verdicts)
    against = {
        named: [r for r in verdict.objections if not declared.allows(ALLOWED_BY.get(r.rule, ""), named)]
        for named, verdict in verdicts.items()
    }
    for named, remark in (*plugins, *dedicated, *late[0], *against_starts.items()):
        against.setdefault(named, []).append(remark)
    successors = {named: [again.old for again in verdict.again] for named, verdict in verdicts.items() if verdict.again}
    by_name = {widening.full_name: widening for widening in writes}
    facts = Facts(
        [
            part.each(
                lambda c: with_positions(
                    estimate.with_price(_with_topics(c, draft, by_name.get(c.full_name), state, verdicts)),
                    positions.get(c.full_name),
                )
            )
            for part in shown
        ],
        declared.wish,
        run,
        clusters,
        claims,
        draft.running,
        draft.left_overs,
        against,
        successors | unseen_successors(run),
        caps,
    )
    parts = judge_parts(facts)
    refusing, unvalidated = yield from _ask_validation(draft, parts)
    if refusing:
        for named, remark in refusing:
            against.setdefault(named, []).append(remark)
        parts = judge_parts(facts)
    unverified = {**unvalidated, **late[1]}
    unlisted = (*_notes_on_unlisted(writes, state), *_notes_on_unseen_workers(caps))
    notes = _notes(draft, unknown_ids, unverified, _needed_permits(draft, verdicts), unlisted)
    return _finish_plan(draft, parts, notes), draft


def _finish_plan(draft: Draft, parts: Iterable[ClusterPlan], notes: Iterable[tuple[str, str]]) -> Plan:
    """Return the plan, with what apply will do, and notes on the Connect clusters that could be read."""
    owner = draft.declared.topology.owner
    by_connect: dict[str, list[str]] = {name: [] for name in draft.live}
    for connect, note in notes:
        by_connect.get(connect, []).append(note)

    def with_steps(change: Change) -> Change:
        return replace(change, steps=steps) if (steps := steps_of(change, owner)) else change

    noted = (replace(part, notes=(*part.notes, *by_connect.get(part.connect, ()))) for part in parts)
    return Plan(owner, tuple(part.each(with_steps) for part in noted), draft.declared.wish)


def _notes(
    draft: Draft,
    unknown_ids: Mapping[str, str],
    unverified: Mapping[str, str] = MappingProxyType({}),
    needed: Collection[tuple[Named, str]] = (),
    unlisted: Iterable[tuple[str, str]] = (),
) -> Iterator[tuple[str, str]]:
    """Yield Connect clusters with what could not be verified on them, and what nothing needs any more."""
    if draft.carriers:
        yield from carrier_notes(draft.carriers.values(), draft.running, draft.writes)
    yield from draft.lanes.notes
    yield from without_effect(draft.declared.connectors, draft.running)
    yield from ((connect, live.note) for connect, live in draft.live.items() if live.note)
    yield from unverified.items()
    yield from draft.idle_permits(needed)
    for alias, reason in unknown_ids.items():
        to = (c for on in draft.by_cluster.values() for c in on if c.config.get("target.cluster.alias") == alias)
        for connect in dict.fromkeys(c.connect for c in to if writes_through_workers(c.config)):
            spared = f"declare clusters: {{{alias}: {{cluster_id: …}}}} to compare it without a request"
            whose = f"that these workers write to Kafka '{alias}', whose id could not be read ({reason})"
            yield connect, f"not verified: {whose}; {spared}"
    yield from unlisted


# --- judging what writes mirror ---------------------------------------------------------------------------------------


def _verdicts(draft: Draft, writes: Iterable[Widening], state: MirroredState, run: Connectors) -> Verdicts:
    live, changes = draft.live, draft.changes
    return {
        named: judge(widening, state, run, live[named[0]].worker.version if named[0] in live else None, changes[named])
        for widening in writes
        for named in [widening.full_name]
    }


def _needed_permits(draft: Draft, verdicts: Verdicts) -> set[tuple[Named, str]]:
    """Return the connectors with the costly kinds of change that they need."""
    kinds = ((named, ALLOWED_BY.get(remark.rule, "")) for named, of in verdicts.items() for remark in of.objections)
    proved = {change.full_name for change in draft.changes.values() if change.needs_offsets}
    proved |= {named for named, verdict in verdicts.items() if verdict.needs}
    return {(named, kind) for named, kind in kinds if kind} | {(named, "mirror-again") for named in proved}


def _with_topics(
    change: Change, draft: Draft, widening: Widening | None, state: MirroredState, verdicts: Verdicts
) -> Change:
    """Add to a source connector what it will mirror, what no longer, what again on request, and what must be proved
    first.
    """
    is_allowed = draft.declared.allows("mirror-again", change.full_name)
    if change.needs_offsets and is_allowed:
        again = f"mirrors {few(list(change.needs_offsets))} again, if no offsets are stored under its name"
        change = replace(change, needs_offsets=()).with_remarks(Remark(again, "notes"))
    if widening is None:
        return change
    verdict, listed, takes = verdicts[widening.full_name], state.kafka(widening.source), topics_taken(widening, state)
    takes = takes and without_renamed(takes, verdict.renames)
    if takes and (over := change.takes_over) and not over.back:
        takes = replace(takes, moved=frozenset(filter(over.has_topic, takes.topics)))
    change = replace(change, takes=takes, ends=verdict.ends, renames=verdict.renames)
    if listed and takes and not takes.topics:
        nothing = matches_nothing(draft.declared.flows[change.flows[0]], listed.topics)
        change = change.with_remarks(*([Remark(nothing, "warns")] if nothing else []))
    if is_allowed:
        whose = (Remark(f"mirrors again what {again} already mirrored", "notes") for again in verdict.again)
        olds = [again.old for again in verdict.again if not change.takes_over and again.old in draft.changes]
        first = (old for old in olds if draft.changes[old].action == "delete")
        return replace(change, follows=tuple(dict.fromkeys((*change.follows, *first)))).with_remarks(*whose)
    return replace(change, needs_offsets=verdict.needs) if change.action == "create" else change


def _notes_on_unlisted(writes: Iterable[Widening], state: MirroredState) -> Iterator[tuple[str, str]]:
    """Yield Connect clusters with a note on the sources whose topics could not be listed."""
    reasons: dict[str, dict[str, str]] = {}
    for connect, alias in sorted({(widening.full_name[0], widening.source) for widening in writes}):
        if (kafka := state.kafkas.get(alias)) and kafka.failure:
            reasons.setdefault(connect, {})[alias] = kafka.failure.message
    for connect, by_alias in reasons.items():
        which, reason = few([f"'{alias}'" for alias in by_alias]), next(iter(by_alias.values()))
        yield connect, f"not verified: which topics of {which} these flows take; they could not be listed ({reason})"


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_running(topology: Topology, skip: Mapping[str, Mm2mgrError]) -> Steps[Answers]:
    """Read what Connect clusters run, in which state, and who answers.

    Those that share their workers or configs count as unread: a plan of one would delete what the other created.
    """
    names = [name for name in topology.connects if name not in skip]
    snapshot = yield [kind(name) for name in names for kind in (ConnectorsWithStates, AnsweringWorker)]
    answers: dict[str, Live | Mm2mgrError] = dict(skip)
    for name in names:
        try:
            connectors, root = snapshot[ConnectorsWithStates(name)], snapshot[AnsweringWorker(name)]
            answers[name] = Live(connectors, version_of(root))
        except Mm2mgrError as error:
            answers[name] = error
    read = {name: live for name, live in answers.items() if isinstance(live, Live)}
    ids = {name: live.worker.cluster_id or "" for name, live in read.items()}
    return answers | shared_workers({name: live.connectors for name, live in read.items()}, ids)


def _read_without_status(draft: Draft) -> Steps[Answers]:
    """Read connectors without a status too: one that is missing from a list is never created, nor forgotten."""
    snapshot = yield map(Configs, draft.live)
    answers = dict(draft.answers)
    for name, live in draft.live.items():
        statuses = {connector: there.status for connector, there in live.connectors.items() if there.status}
        try:
            answers[name] = replace(live, connectors=with_statuses(snapshot[Configs(name)], statuses))
        except Mm2mgrError as error:
            answers[name] = error
    return answers


def _read_worker(draft: Draft, name: str) -> Steps[Live | Mm2mgrError]:
    """Read plugins, override policy and exactly-once support."""
    overrides = harmless_overrides(key for connector in draft.by_cluster[name] for key in connector.config)
    try:
        worker, failed = yield from ask_worker(name, overrides)
    except Mm2mgrError as error:
        return error
    return replace(draft.live[name], worker=worker, note=f"not verified: {failed.message}" if failed else None)


def _read_mirrored(draft: Draft, writes: Sequence[Widening]) -> Steps[MirroredState]:
    """Read the stored offsets of the connectors concerned, and the topics of their Kafka clusters."""
    declared = draft.declared.topology.clusters
    concerned = {old: hop.subject.source for widening in writes for old, hop in widening.neighbours()}
    concerned |= {widening.full_name: widening.before.subject.source for widening in writes if widening.before}
    aliases = {widening.source for widening in writes} | draft.sources_with_other_tasks
    started = {alias: StartedTopics(w for w in writes if w.source == alias) for alias in sorted(aliases)}
    snapshot, kafkas = yield from side_by_side(ask(StoredOffsets(*named) for named in concerned), list_topics(started))
    begun = {
        named: tuple(names)
        for alias, by_write in started.items()
        if not kafkas[alias].failure
        for named, names in by_write.topics.items()
    }
    targets = {
        alias: ArrivedTopics((w for w in writes if w.target == alias), begun, unread=bool(draft.errors))
        for alias in sorted({widening.target for widening in writes})
    }
    kafkas |= yield from list_topics(targets)
    offsets: dict[Named, Mapping[TopicPartition, int] | None] = {}
    former: dict[tuple[Named, str], Mapping[TopicPartition, int]] = {}
    turned = {(old, widening.source) for widening in writes for old in widening.opposite}
    for named, source in concerned.items():
        entries = snapshot.get(StoredOffsets(*named))
        if isinstance(entries, Mm2mgrError):
            offsets[named] = None
            continue
        offsets[named] = parse_stored(entries, source)
        former.update({(old, alias): parse_stored(entries, alias) for old, alias in turned if old == named})
        former[named, ""] = parse_stored(entries, "", {*declared, source})
    return MirroredState(offsets, kafkas, begun, former, declared)


def _ask_dedicated(draft: Draft) -> Steps[list[tuple[Named, Remark]]]:
    """Return why dedicated MirrorMakers cannot be taken over now."""
    questions = {
        change.full_name: DedicatedOffsets(over.dedicated.alias, over.picks.before)
        for change in draft.writes
        if (over := change.takes_over) and over.dedicated and not over.move.carried
    }
    snapshot = yield questions.values()
    errors = ((named, snapshot.get(question)) for named, question in questions.items())
    return [
        (named, Remark(error.message, "blocks", error.hint or "plan again when it can be read", "moved"))
        for named, error in errors
        if isinstance(error, Mm2mgrError)
    ]


def _ask_retention(draft: Draft, state: MirroredState) -> Steps[Objections]:
    """Return the moves whose pause would outlast records that have yet to be mirrored; what cannot be read is noted."""
    questions: dict[Named, Expiring] = {}
    for change in draft.writes:
        over, alias = change.takes_over, (change.config or {}).get("source.cluster.alias", "")
        stored = state.offsets.get(over.giver) if over and not over.move.carried else None
        if over and stored and state.kafka(alias):
            position = tuple((partition, last + 1) for partition, last in sorted(stored.items()))
            questions[change.full_name] = Expiring(alias, position, _LONGEST_PAUSE_SECONDS)
    snapshot = yield questions.values()
    remarks, unverified = [], {}
    for named, question in questions.items():
        late = snapshot.get(question)
        if isinstance(late, Mm2mgrError):
            unverified[named[0]] = f"not verified: retention of what moves to '{named[1]}' ({late.one_line})"
        elif late:
            which, minutes = few([str(partition) for partition in late]), f"{_LONGEST_PAUSE_SECONDS / 60:.0f} min"
            text = f"retention deletes records of {which} within {minutes}, before they are mirrored"
            remedy = "wait until the flow has caught up, or raise retention.ms of the topic for the time of the move"
            remarks.append((named, Remark(text, "blocks", remedy, "moved")))
    return remarks, unverified


def _read_caps(draft: Draft, run: Connectors, state: MirroredState) -> Steps[dict[str, WorkerCap]]:
    """Return what workers may carry, of Connect clusters that declare it and get more tasks.

    Where they do not declare how many workers there are, those with a connector or a task count.
    """
    stopped = [named for named, subject in run.desired.items() if subject.state == "STOPPED"]

    def partitions(named: Named) -> int | None:
        subject = run.desired.get(named)
        listed = state.kafka(subject.source) if subject else None
        return count_assigned(subject, listed.topics) if subject and listed is not None else None

    caps: dict[str, WorkerCap] = {}
    topology = draft.declared.topology
    capped = [part for part in draft.parts if topology.connects[part.connect].model.workers.task_cap is not None]
    waiting = draft.declared.waits(Plan(topology.owner, tuple(draft.parts))) if capped else ()
    for part in capped:
        connect, live, workers = (
            part.connect,
            draft.live.get(part.connect),
            topology.connects[part.connect].model.workers,
        )
        if live is None or workers.task_cap is None:
            continue
        counts = count_tasks(connect, live.connectors, part.changes, stopped, partitions)
        counts |= {name: counts[name].as_it_runs for where, name in waiting if where == connect and name in counts}
        others = frozenset(name for name in live.connectors if (connect, name) not in draft.running.owned)
        cap = WorkerCap(workers.task_cap, counts, workers.count, is_declared=workers.count is not None, others=others)
        if cap.is_raised:
            caps[connect] = cap
    snapshot = yield [Statuses(connect) for connect, cap in caps.items() if not cap.is_declared]
    return {
        connect: cap if cap.is_declared else _with_workers(cap, snapshot.get(Statuses(connect)))
        for connect, cap in caps.items()
    }


def _with_workers(cap: WorkerCap, statuses: Mapping[str, ConnectorStatus] | Mm2mgrError) -> WorkerCap:
    if isinstance(statuses, Mm2mgrError):
        return replace(cap, unread=statuses.one_line)
    return replace(cap, workers=len(workers_at_work(statuses.values())) or None)


def _notes_on_unseen_workers(caps: Mapping[str, WorkerCap]) -> Iterator[tuple[str, str]]:
    """Yield Connect clusters on which no worker is seen: a cluster that runs nothing yet shows none."""
    whether = "not verified: whether the tasks fit the workers (tasks_per_worker)"
    for connect, cap in caps.items():
        if cap.workers is None and not cap.unread:
            yield connect, f"{whether}: none has anything yet, so none is seen; declare workers: {{count: …}}"


def _ask_validation(draft: Draft, parts: Iterable[ClusterPlan]) -> Steps[Objections]:
    """Return what workers say against the configs that would be written; where they do not tell, that is noted."""
    writes = [change for part in parts for change in part.changes if change.action in WRITES and change.keys]
    origins = {(c.connect, c.name): c.origins for c in draft.connectors}
    # Workers whose override policy could not be asked for do not validate.
    asked = [change for change in writes if not draft.live[change.connect].note]
    remarks: list[tuple[Named, Remark]] = []
    unverified: dict[str, str] = {}
    validations = (or_error(refusals(change.connect, change.written_config)) for change in asked)
    for change, reasons in zip(asked, (yield from side_by_side(*validations)), strict=True):
        if isinstance(reasons, Mm2mgrError):
            text = f"not verified: whether the workers accept the config of '{change.connector}' ({reasons.one_line})"
            unverified.setdefault(change.connect, text)
            continue
        for key, reason in reasons.items():
            if key in draft.live[change.connect].worker.refused:
                continue  # `policy-forbids` says that, which a tree may silence
            origin = origins[change.full_name].get(key)
            where = f" ({origin.where})" if origin and origin.where else ""
            remedy = f"correct {key or 'that setting'}{where}, or give the workers what it needs"
            text = ": ".join(filter(None, (key, one_line(reason))))
            remarks.append((change.full_name, Remark(text, "blocks", remedy, "refused-by-workers")))
    return remarks, unverified

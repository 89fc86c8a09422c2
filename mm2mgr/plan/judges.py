"""Judges what a plan would write: one list of judges, whose remarks take effect in one place; and what
lint has against changes, judged over all connectors that will run. Pure.

A judge sees the changes as a round begins, and not what others say in it, so the order of the list only decides whose
reason is given. A change whose partner is blocked is blocked with it, and then all is judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from mm2mgr.comparison.differences import SELECTING, Named
from mm2mgr.comparison.ownership import is_held
from mm2mgr.lint.findings import Finding, Rule
from mm2mgr.lint.rules import find, of_connectors, sort_findings
from mm2mgr.lint.subject import Estate, SourceFile, Subject, WorkerFacts
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Wish, connector_text, count_deletes
from mm2mgr.plan.heartbeats import RunningConnectors, left_over_stays
from mm2mgr.plan.history import CLAIMED, Claims
from mm2mgr.plan.worker_cap import ALLOW, WorkerCap
from mm2mgr.remarks import Remark
from mm2mgr.render import HEARTBEATS_KEY, LANE_OF_KEY
from mm2mgr.truth.reach import CLUSTER_KEYS, Setting, clients, numbers, settings

RECORDS = "producer.override."
_RECORD_PRODUCER = next(client for client in clients("source", Setting()) if client.name == "record producer")
STATE_TOO_NEW = "state-too-new"
# Another team's name for a cluster is no reason to rename one's own: what comes of it (a loop, an overlap) is a rule of
# its own.
_OUR_OWN = "cluster-two-aliases"
# All that unchanged connectors are asked where nothing is written: it needs no probe of the workers.
_UNCHANGED = "wrong-kafka"


@cache
def _rules_by_id() -> Mapping[str, Rule]:
    return {rule.id: rule for rule in of_connectors()}


@cache
def rules_alone() -> tuple[Rule, ...]:
    """Return the rules that are asked of a connector by itself."""
    return tuple(rule for rule in _rules_by_id().values() if rule.severity == "error" and rule.check)


@cache
def rules_together() -> tuple[Rule, ...]:
    """Return the rules that are asked of all connectors that will run."""
    errors = (
        rule for rule in _rules_by_id().values() if rule.severity == "error" and rule.over and rule.id != _OUR_OWN
    )
    return (*errors, _rules_by_id()["overlap-undecided"])


def writes_through_workers(config: Mapping[str, str]) -> bool:
    """Tell whether records go to the workers' own Kafka: nothing sends Connect's producer elsewhere."""
    return not settings(_RECORD_PRODUCER, config).get("bootstrap.servers")


MIRRORED = "mirrored-already"
"""The rule of a write that would mirror records a second time."""
Remarks = Mapping[Named, Sequence[Remark]]
"""What is said of connectors."""


@dataclass(frozen=True)
class ClusterFacts:
    """What was found out before anything is written: workers by Connect cluster, ids by alias of the Kafka cluster,
    which the tree declares where no broker was asked for them.

    `shared` has the alias of the Kafka cluster that each Connect cluster is declared to run on.
    """

    workers: Mapping[str, WorkerFacts] = field(default_factory=dict)
    cluster_ids: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Connectors:
    """Every connector that the tree wants, and every MirrorMaker connector on Connect clusters that were read.

    `owned` are those that run and carry this tree's owner mark; `unread` are the Connect clusters that could not be
    read; `files` are the tree's, with the comments that silence rules; `deletes_held` says why a loop deletes later, if
    so.
    """

    desired: Mapping[Named, Subject]
    live: Mapping[Named, Subject]
    owned: frozenset[Named] = frozenset()
    unread: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()
    deletes_held: str = ""

    def is_abandoned(self, connector: Named) -> bool:
        """Tell whether a connector runs, is owned, and is no longer declared."""
        return connector in self.owned and connector not in self.desired

    def with_changes(self, changes: Mapping[Named, Change]) -> dict[Named, Subject]:
        """Return what will run once these changes are written; of a Connect cluster not read, all that is wanted."""
        result = {}
        for connector, subject in self.live.items():
            change = changes.get(connector)
            action = change.action if change else ""
            if connector in self.desired and action in {"update", "no-op"}:
                result[connector] = self.desired[connector]  # what rests by hand is meant to run again
            elif action != "delete":
                result[connector] = subject
        for connector, subject in self.desired.items():
            change = changes.get(connector)
            if (change and change.action == "create") or connector[0] in self.unread:
                result[connector] = subject
        return result


def check_each(parts: Iterable[ClusterPlan], connectors: Connectors, facts: ClusterFacts) -> Remarks:
    """Return the objections to each connector by itself: all errors where something is written, else very few."""
    result: dict[Named, Sequence[Remark]] = {}
    for part in parts:
        changed = [change for change in part.changes if change.action in WRITES]
        named = [change.full_name for change in part.changes]
        subjects = tuple(connectors.desired[name] for name in named if name in connectors.desired)
        worker = facts.workers.get(part.connect)
        if not changed:
            subjects = tuple(
                subject for subject in subjects if may_write_to_other_cluster(subject.config, worker, facts)
            )
        rules = rules_alone() if changed else (_rules_by_id()[_UNCHANGED],) if subjects else ()
        against = objections(part.connect, Estate(subjects, connectors.files), facts, rules) if subjects else {}
        for change in part.changes:
            against_change = (
                *against.get(change.connector, ()),
                *_state_too_new(change, worker.version if worker else None),
                *_lane_that_stays(change, worker.version if worker else None),
            )
            result[part.connect, change.connector] = against_change
    return result


def may_write_to_other_cluster(config: Mapping[str, str], worker: WorkerFacts | None, facts: ClusterFacts) -> bool:
    """Tell whether an unchanged connector is worth a closer look: its workers may run on another Kafka, or be old."""
    if worker is None or worker.version is None or numbers(worker.version) < (4, 0):
        return True
    target = config.get("target.cluster.alias", "")
    return facts.cluster_ids.get(target) != worker.cluster_id and writes_through_workers(config)


def check_jointly(
    changes: Mapping[Named, Change], connectors: Connectors, repeating: Container[Named] = frozenset()
) -> Remarks:
    """Return the objections to connectors because of others that run, or will run; of connectors that are `repeating`
    what one that is no longer declared has mirrored, that says it already.

    There are none where nothing is written and only declared connectors run: `lint` judges the tree alone.
    """
    if connectors.live.keys() <= connectors.desired.keys() and not any(c.action in WRITES for c in changes.values()):
        return {}
    after = connectors.with_changes(changes)
    names = {subject: connector for connector, subject in after.items()}
    estate = Estate(tuple(after.values()), connectors.files, complete=not connectors.unread)
    ours = tuple(
        subject
        for connector, subject in after.items()
        if connector in connectors.owned or connectors.desired.get(connector) is subject
    )
    of_ours = find(replace(estate, subjects=ours), (_rules_by_id()[_OUR_OWN],))
    result: dict[Named, list[Remark]] = {}
    for finding, hit in (*find(estate, rules_together()), *of_ours):
        concerned = list(dict.fromkeys(names[subject] for subject in hit.subjects))
        abandoned = [connector for connector in concerned if connectors.is_abandoned(connector)]
        takes_over = finding.rule == "overlap" and len(abandoned) == len(concerned) - 1
        remedy = _without_others(finding, concerned, connectors, changes, takes_over=takes_over)
        for connector in concerned:
            if connector in changes and not (takes_over and connector in repeating):
                result.setdefault(connector, []).append(_remark(finding, remedy))
    return result


def _without_others(
    finding: Finding,
    concerned: Iterable[Named],
    connectors: Connectors,
    changes: Mapping[Named, Change],
    *,
    takes_over: bool,
) -> str:
    """Return the fix, with what to do about connectors that are part of the finding and not of the tree; that alone
    where one of the tree does what others `takes_over`, which it no longer declares, still do."""
    parts = [] if takes_over else [finding.fix]
    for connect, name in (connector for connector in concerned if connector not in connectors.desired):
        if not connectors.is_abandoned((connect, name)):
            place = "not managed by this tree: stop or delete it there"
        elif connectors.deletes_held:
            place = f"no longer declared: it is deleted in a later round: {connectors.deletes_held}"
        elif (connect, name) in changes:
            place = "no longer declared, and its deletion is blocked here: see there"
        else:
            place = "no longer declared: let this one take its topics over by moved:, or --prune deletes it"
        parts.append(f"'{name}' on Connect cluster '{connect}' is {place}")
    return "; or ".join(parts)


def _remark(finding: Finding, remedy: str) -> Remark:
    if finding.silenced is None:
        return Remark(finding.message, "blocks" if finding.severity == "error" else "warns", remedy, finding.rule)
    text = f"{finding.message.rstrip('.')} (silenced: {finding.silenced})"
    return Remark(text, "warns", remedy, finding.rule)


def objections(
    connect: str, estate: Estate, facts: ClusterFacts, rules: Sequence[Rule] | None = None
) -> dict[str, tuple[Remark, ...]]:
    """Return the objections to each connector by name."""
    subjects = [
        _with_workers_kafka(subject, facts.workers.get(connect), facts.cluster_ids) for subject in estate.subjects
    ]
    pairs_with_heartbeats = {
        subject.pair for subject in subjects if subject.type == "source" and mirrors_heartbeats(subject)
    }
    hits: dict[Subject, list[Finding]] = {}
    for finding, hit in find(Estate(tuple(subjects), estate.files), rules_alone() if rules is None else rules):
        if hit.subject:
            hits.setdefault(hit.subject, []).append(finding)
    against = {}
    for subject in subjects:
        against_subject = [
            *(_remark(hit, _remedy(connect, subject, hit, facts)) for hit in sort_findings(hits.get(subject, ()))),
            *_unknown_to_the_worker(subject, pairs_with_heartbeats),
            *_dispute(subject, connect, facts),
        ]
        if against_subject:
            against[subject.name] = tuple(against_subject)
    return against


def _with_workers_kafka(subject: Subject, worker: WorkerFacts | None, ids: Mapping[str, str]) -> Subject:
    """Put what was found out in the place of what was declared."""
    if worker is None and not ids:
        return subject
    declared = subject.worker
    worker = replace(worker or declared, version=(worker and worker.version) or declared.version)
    if worker.exactly_once is None:
        worker = replace(worker, exactly_once=declared.exactly_once)
    source = replace(subject.source_kafka, cluster_id=ids.get(subject.source, subject.source_kafka.cluster_id))
    target = replace(subject.target_kafka, cluster_id=ids.get(subject.target, subject.target_kafka.cluster_id))
    return replace(subject, worker=worker, source_kafka=source, target_kafka=target)


def _remedy(connect: str, subject: Subject, finding: Finding, facts: ClusterFacts) -> str:
    """Return the fix, in terms of a tree whose Connect clusters are known."""
    if finding.rule == "wrong-kafka" and writes_through_workers(subject.config):
        # Never a bootstrap.servers by hand: mm2mgr writes the override, with its security, once it knows where workers
        # live.
        live_on = subject.worker.cluster_id
        alias = next((alias for alias, cluster_id in facts.cluster_ids.items() if cluster_id == live_on), "…")
        return (
            f"the workers run on the Kafka cluster with id {live_on}: correct connect: {{{connect}: {{kafka:"
            f" {alias}}}}} or its url"
        )
    refused = [key for key in subject.config if key in subject.worker.refused]
    tuning = [key.removeprefix(RECORDS) for key in refused if key.startswith(RECORDS)]
    if finding.rule == "policy-forbids" and tuning and len(tuning) == len(refused) and CLUSTER_KEYS.isdisjoint(tuning):
        without = ", ".join(f"{key}: null" for key in tuning)
        return f"{finding.fix}; or do without: record_producer: {{{without}}}"
    return finding.fix


def _unknown_to_the_worker(subject: Subject, pairs_with_heartbeats: Container[str]) -> Iterator[Remark]:
    """Keys that older workers skip in silence, where what they do instead matters."""
    version = subject.worker.version
    if version is None or subject.type != "source":
        return
    if numbers(version) < (3, 9) and not subject.flag("emit.offset-syncs.enabled", default=True):
        yield Remark(
            f"the workers' Kafka {version} does not know emit.offset-syncs.enabled (KIP-1031, 3.9) and would write"
            " offset syncs to the source anyway",
            "blocks",
            "write offset_syncs: true, or offset_syncs: {location: target} to keep the source untouched; or upgrade the"
            " workers",
            "key-too-new",
        )
    if numbers(version) < (4, 0) and subject.pair in pairs_with_heartbeats and not mirrors_heartbeats(subject):
        yield Remark(
            f"the workers' Kafka {version} does not know heartbeats.replication.enabled (4.0), so this flow mirrors the"
            f" heartbeats of {subject.pair} too, and they arrive more than once",
            "warns",
            "upgrade the workers to 4.0, or accept duplicate heartbeats",
            "key-too-new",
        )


def mirrors_heartbeats(source: Subject) -> bool:
    """Tell whether a source connector is to mirror the heartbeats of its pair; workers before 4.0 do so in any case."""
    return source.flag(HEARTBEATS_KEY, default=True)


def _dispute(subject: Subject, connect: str, facts: ClusterFacts) -> Iterator[Remark]:
    """Two Connect clusters are declared on one Kafka cluster but run on two: which is right needs its id."""
    alias = facts.shared.get(connect)
    mine = _id_of(facts, connect)
    if alias is None or mine is None or alias in facts.cluster_ids or not writes_through_workers(subject.config):
        return
    others = [
        name for name, theirs in facts.shared.items() if theirs == alias and _id_of(facts, name) not in (None, mine)
    ]
    if others:
        yield Remark(
            f"Connect clusters '{connect}' and '{others[0]}' are both declared on Kafka '{alias}', but their workers"
            f" run on two: {mine} and {_id_of(facts, others[0])}",
            "blocks",
            f"correct `kafka:` of the one that is wrong, or write clusters: {{{alias}: {{cluster_id: …}}}} to say"
            " which",
            "wrong-kafka",
        )


def _id_of(facts: ClusterFacts, connect: str) -> str | None:
    worker = facts.workers.get(connect)
    return worker.cluster_id if worker else None


def _state_too_new(change: Change, version: str | None) -> Iterator[Remark]:
    """States that older workers cannot keep a connector in: it would run first, or not stop."""
    if change.state is None or version is None:
        return
    wished = change.state[1]
    if change.action == "create" and numbers(version) < (3, 7) and not is_held(change.config or {}):
        yield Remark(
            f"the workers' Kafka {version} cannot create a connector {wished} (KIP-980, 3.7): it would run first",
            "blocks",
            "upgrade the workers; or leave `state` out until the connector has been created",
            STATE_TOO_NEW,
        )
    elif wished == "STOPPED" and numbers(version) < (3, 5):
        yield Remark(
            f"the workers' Kafka {version} cannot stop a connector (KIP-875, 3.5)",
            "blocks",
            "write state: paused, or upgrade the workers",
            STATE_TOO_NEW,
        )


def _lane_that_stays(change: Change, version: str | None) -> Iterator[Remark]:
    """Lanes begin on any worker; only from 3.6 on their topics can change connectors with their stored offsets."""
    if change.action == "create" and version and numbers(version) < (3, 6) and LANE_OF_KEY in (change.config or {}):
        yield Remark(
            f"it is a lane on workers of Kafka {version}: its topics cannot change connectors later (KIP-875, 3.6)",
            "warns",
            "upgrade the workers before its topics are to change connectors",
        )


Changes = Mapping[Named, Change]
# More deletes than both the number and the share of the owner's connectors need a word; and more than half of them, or
# all.
_DELETES_UNASKED = 10
_DELETES_UNASKED_SHARE = 0.2
_DELETES_UNASKED_HALF = 0.5


@dataclass(frozen=True)
class Facts:
    """What is known when changes are judged: the plan as it was drafted, what runs, and what clusters answered.

    `against` has what was read of single writes, `successors` the connectors that another one replaces, and
    `left_overs`, for a write, what runs, is not declared, and still does what it begins to do.
    """

    parts: Sequence[ClusterPlan]
    wish: Wish
    connectors: Connectors = field(default_factory=lambda: Connectors({}, {}))
    clusters: ClusterFacts = field(default_factory=ClusterFacts)
    claims: Claims = field(default_factory=Claims)
    running: RunningConnectors = field(default_factory=lambda: RunningConnectors({}, {}, ()))
    left_overs: Mapping[Named, Named] = field(default_factory=dict)
    against: Remarks = field(default_factory=dict)
    successors: Mapping[Named, Sequence[Named]] = field(default_factory=dict)
    caps: Mapping[str, WorkerCap] = field(default_factory=dict)
    """By Connect cluster whose workers are declared to carry so many tasks, and which gets more."""

    @cached_property
    def by_itself(self) -> Remarks:
        """What lint has against each connector, whatever becomes of the others."""
        return check_each(self.parts, self.connectors, self.clusters)


PLUGIN_MISSING = "plugin-missing"
"""That a worker lacks a class: the lint rule, which knows the one that answers, and `plugin_guard`, which asks all."""
Judge = Callable[[Changes, Facts], Remarks]


# --- judges -----------------------------------------------------------------------------------------------------------


def adopted_by_others(changes: Changes, facts: Facts) -> Remarks:
    """Nothing is adopted or written that another owner claims."""
    claims = facts.claims.others
    return {named: [Remark(str(claims[named]), remedy=CLAIMED)] for named in changes.keys() & claims.keys()}


def left_overs_that_stay(changes: Changes, facts: Facts) -> Remarks:
    """Nothing begins what a left-over still does that is not deleted first."""
    return {
        named: [left_over_stays(changes[named], left_over, facts.running)]
        for named, left_over in facts.left_overs.items()
        if named in changes and changes[named].action in WRITES and left_over not in changes[named].follows
    }


def too_many_deletes(changes: Changes, facts: Facts) -> Remarks:
    """All deletes, where they are too many to go unasked: the common accident is a tree that lost its flows, or one
    file of them.
    """
    count, owned = count_deletes([*changes.values()], sum(len(part.left_over) for part in facts.parts))
    are_few = count <= max(_DELETES_UNASKED, owned * _DELETES_UNASKED_SHARE) and count <= owned * _DELETES_UNASKED_HALF
    if "deletes" in facts.wish.allow or count <= facts.wish.allow_deletes or are_few:
        return {}
    reason = f"one of {count} deletes, of {owned} connectors of this owner"
    remark = Remark(reason, remedy=f"if all of them are intended, add --allow-deletes {count}")
    return {named: [remark] for named, change in changes.items() if change.action == "delete" and not change.moves_to}


def wrong(changes: Changes, facts: Facts) -> Remarks:
    """What lint has against a connector on its workers, what clusters answered about single writes (topics that are
    mirrored already, configs that workers refuse), and what lint has against all that will run.

    What is blocked leaves in place what runs. Of what runs already all warns.
    """
    repeating = {named for named, remarks in facts.against.items() if any(of.rule == MIRRORED for of in remarks)}
    together = check_jointly(changes, facts.connectors, repeating)
    read = {named: {remark.rule for remark in facts.against[named]} for named in facts.against}
    by_itself = {  # what was asked of each worker says it once, with their names
        named: [
            remark for remark in remarks if remark.rule != PLUGIN_MISSING or PLUGIN_MISSING not in read.get(named, ())
        ]
        for named, remarks in facts.by_itself.items()
    }
    sources = (by_itself, facts.against, together)
    return {
        named: list(_of_change(changes[named], (remark for source in sources for remark in source.get(named, ()))))
        for named in dict.fromkeys(named for source in sources for named in source)
        if named in changes
    }


def _of_change(change: Change, remarks: Iterable[Remark]) -> Iterator[Remark]:
    for remark in remarks:
        if remark.effect == "warns" or change.action == "no-op":
            yield replace(remark, effect="warns")
        elif change.action in WRITES and (not change.only_rests or remark.rule == STATE_TOO_NEW):
            yield remark


JUDGES: tuple[Judge, ...] = (adopted_by_others, left_overs_that_stay, too_many_deletes, wrong)


def crowded_workers(changes: Changes, facts: Facts) -> Remarks:
    """More tasks than the workers of a Connect cluster are declared to carry."""
    result: dict[Named, list[Remark]] = {}
    followed = {named for change in changes.values() for named in change.follows}
    for connect, cap in facts.caps.items():
        first = {name for where, name in followed if where == connect}
        writes = {c.connector for c in changes.values() if c.connect == connect and c.action in {*WRITES, "delete"}}
        for name, remark in cap.remarks(connect, writes, allowed=ALLOW in facts.wish.allow, first=first):
            result.setdefault((connect, name), []).append(remark)
    return result


LATE_JUDGES: tuple[Judge, ...] = (crowded_workers,)
"""Those that count what the others leave: what is blocked for another reason takes no room from the rest."""


# --- partners ---------------------------------------------------------------------------------------------------------


def serves_only_blocked(changes: Changes, _: Facts) -> Remarks:
    """A checkpoint connector without its flow would run and translate nothing: it waits, and so do the heartbeats."""
    blocked = {
        (change.connect, change.flows[0]): change.connector
        for change in changes.values()
        if change.type == "source" and change.action == "blocked" and change.flows
    }

    def reason(change: Change) -> str | None:
        names = [blocked.get((change.connect, flow)) for flow in change.flows]
        is_idle = change.type != "source" and change.action in WRITES and names and all(names)
        return f"it serves only blocked connectors: {', '.join(filter(None, names))}" if is_idle else None

    return _because(changes, reason)


def replaced_by_blocked(changes: Changes, facts: Facts) -> Remarks:
    """What another connector replaces that is blocked, or whose Connect cluster could not be read and has no changes.

    Deleted or narrowed alone, its topics would not be mirrored, and who goes on later would lack their offsets.
    """
    again = facts.successors
    blocked = {new: olds for new, olds in again.items() if new not in changes or changes[new].action == "blocked"}
    successors = {old: new for new, olds in blocked.items() for old in olds}
    # Its heartbeat and checkpoint connectors are named after the same pair, and are deleted with it.
    deleted = {old: new for old, new in successors.items() if old in changes and changes[old].action == "delete"}
    beside = {(old[0], _pair_of(changes[old])): new for old, new in deleted.items()}

    def reason(change: Change) -> str | None:
        new = successors.get(change.full_name)
        if new is None and beside and change.type != "source" and change.action == "delete":
            new = beside.get((change.connect, _pair_of(change)))
        narrowed = change.action == "update" and any(key.key in SELECTING for key in change.keys)
        if new is None or not (change.action == "delete" or narrowed):
            return None
        problem = "is blocked" if new in changes else "could not be read"
        return f"{connector_text(new)}, which takes over its topics, {problem}: they would no longer be mirrored"

    return _because(changes, reason) if successors else {}


def _pair_of(change: Change) -> frozenset[str]:
    """Return the two clusters that a connector connects; a heartbeat's are the other way round."""
    config = change.before or {}
    return frozenset(config.get(key, "") for key in ("source.cluster.alias", "target.cluster.alias"))


def follows_blocked(changes: Changes, _: Facts) -> Remarks:
    """What follows a deletion that is blocked, and the whole of a move of which something is."""
    partners: dict[Named, set[Named]] = {}
    for change in changes.values():
        for other in (change.moves_to, change.takes_over.giver if change.takes_over else None):
            if other:
                partners.setdefault(change.full_name, set()).add(other)
                partners.setdefault(other, set()).add(change.full_name)
    blocked = _blocked_names(changes)

    def reason(change: Change) -> str | None:
        if (first := sorted(blocked.intersection(change.follows))) and change.action in WRITES:
            which = f"{connector_text(first[0])}, which is to be deleted first, is blocked"
            return f"{which}: it still does what this one begins"
        others = sorted(partners.get(change.full_name, set()) & blocked)
        if change.action in {"blocked", "no-op"} or not others:
            return None
        return f"{connector_text(others[0])}, the other side of the move, is blocked"

    return _because(changes, reason)


def _because(changes: Changes, reason: Callable[[Change], str | None]) -> Remarks:
    reasons = ((named, reason(change)) for named, change in changes.items())
    return {named: [Remark(text)] for named, text in reasons if text}


PARTNERS: tuple[Judge, ...] = (serves_only_blocked, replaced_by_blocked, follows_blocked)


# --- their effect -----------------------------------------------------------------------------------------------------


def judge_parts(
    facts: Facts,
    judges: Sequence[Judge] = JUDGES,
    partners: Sequence[Judge] = PARTNERS,
    late_judges: Sequence[Judge] = LATE_JUDGES,
) -> list[ClusterPlan]:
    """Return the drafted parts with all remarks; afterwards nothing else blocks a change."""
    changes: Changes = {change.full_name: change for part in facts.parts for change in part.changes}
    while True:
        remarks, changes = _settle(changes, facts, judges, partners)
        late = [judge(changes, facts) for judge in late_judges]
        held = _with_blocks(changes, _first_reasons(late))
        if _blocked_names(held) == _blocked_names(changes):
            break
        changes = held
    everything = (*remarks, *late)
    final = {
        named: change.with_remarks(
            *(r for of_judge in everything for r in of_judge.get(named, ()) if r.effect == "warns")
        )
        for named, change in changes.items()
    }
    return [part.each(lambda change: final[change.full_name]) for part in facts.parts]


def _settle(
    changes: Changes, facts: Facts, judges: Sequence[Judge], partners: Sequence[Judge]
) -> tuple[list[Remarks], Changes]:
    """Return the remarks of judges who see all that is blocked, and the changes with what blocks them."""
    while True:
        remarks = [judge(changes, facts) for judge in judges]
        now = _with_partners(_with_blocks(changes, _first_reasons(remarks)), facts, partners)
        if _blocked_names(now) == _blocked_names(changes):
            return remarks, now
        changes = now


def _first_reasons(remarks: Iterable[Remarks]) -> Remarks:
    """Return what blocks, of each change as the first judge says that has anything against it."""
    reasons: dict[Named, Sequence[Remark]] = {}
    for of_judge in remarks:
        for named, of in of_judge.items():
            if blocking := [remark for remark in of if remark.effect == "blocks"]:
                reasons.setdefault(named, blocking)
    return reasons


def _blocked_names(changes: Changes) -> frozenset[Named]:
    return frozenset(named for named, change in changes.items() if change.action == "blocked")


def _with_blocks(changes: Changes, remarks: Remarks) -> dict[Named, Change]:
    return {
        named: change.with_remarks(*(remark for remark in remarks.get(named, ()) if remark not in change.remarks))
        for named, change in changes.items()
    }


def _with_partners(changes: Changes, facts: Facts, partners: Sequence[Judge]) -> Changes:
    """Block what would be wrong without something that is blocked, until nothing more is."""
    while True:
        before = _blocked_names(changes)
        for judge in partners:
            changes = _with_blocks(changes, judge(changes, facts))
        if _blocked_names(changes) == before:
            return changes


def with_many_changes_held(plan: Plan) -> Plan:
    """Block everything where there are more changes than the plan may have."""
    count, most = len(plan.writes) + len(plan.quota_writes), plan.wish.max_changes
    if most is None or count <= most:
        return plan
    remedy = f"look at each of them; if they are intended, write --max-changes {count}, or plan fewer flows with --flow"
    remark = Remark(f"too many changes: {count}, and --max-changes allows {most}", remedy=remedy)

    def hold(change: Change) -> Change:
        return change if change.action in {"no-op", "blocked"} else change.with_remarks(remark)

    quotas = tuple(quota.as_blocked(remark) if quota.is_write else quota for quota in plan.quotas)
    return replace(plan, clusters=tuple(cluster.each(hold) for cluster in plan.clusters), quotas=quotas)

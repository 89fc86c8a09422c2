"""What stands against writing a connector: the guard rules of lint, judged by what its real workers and Kafka clusters say.

In: a ClusterPlan, the connectors as lint subjects, and `Known`. Out: the same plan with changes blocked or warned of. Pure.
A flow is written as a whole: what would serve only blocked flows waits with them; the connectors of other flows go on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.lint.catalogue import RULES
from mm2mgr.lint.findings import Finding, Rule
from mm2mgr.lint.run import lint
from mm2mgr.lint.subject import Estate, Subject, Worker
from mm2mgr.reconcile.plan import Change, ClusterPlan
from mm2mgr.truth.reach import CLUSTER_KEYS, numbers

RECORDS = "producer.override."
GUARDS = tuple(rule for rule in RULES if rule.guard)


@dataclass(frozen=True)
class Objection:
    """What speaks against one connector: the rule, what would happen, what to do; some only warn."""

    rule: str
    reason: str
    remedy: str
    blocks: bool = True

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason.rstrip('.')}"


@dataclass(frozen=True)
class Known:
    """What was found out before anything is written: workers by Connect cluster, ids by alias of the Kafka cluster.

    `shared` has the alias of the Kafka cluster that each Connect cluster is declared to live on.
    """

    workers: Mapping[str, Worker] = field(default_factory=dict)
    cluster_ids: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)


def writes_through_workers(config: Mapping[str, str]) -> bool:
    """Tell whether records go to the workers' own Kafka: nothing sends Connect's producer elsewhere."""
    return not config.get(f"{RECORDS}bootstrap.servers", "").strip()


def guarded(part: ClusterPlan, estate: Estate, known: Known, rules: Sequence[Rule] = GUARDS) -> ClusterPlan:
    """Return the plan of one Connect cluster with its guards' say; `estate` has the connectors it wants, as subjects."""
    against = objections(part.connect, estate, known, rules)
    worker = known.workers.get(part.connect)
    version = worker.version if worker else None
    changes = [
        _judged(change, (*against.get(change.connector, ()), *_state_too_new(change, version)))
        for change in part.changes
    ]
    return replace(part, changes=tuple(_with_their_flows(changes, part.changes)))


def objections(
    connect: str, estate: Estate, known: Known, rules: Sequence[Rule] = GUARDS
) -> dict[str, tuple[Objection, ...]]:
    """Return what speaks against each connector by name."""
    subjects = [_informed(subject, known.workers.get(connect), known.cluster_ids) for subject in estate.subjects]
    beating = {subject.pair for subject in subjects if subject.type == "source" and _carries_heartbeats(subject)}
    found = {}
    for subject in subjects:
        alone = Estate((subject,), estate.files)
        said = [
            *_by_rules(connect, alone, known, rules),
            *_unknown_to_the_worker(subject, beating),
            *_disputed(subject, connect, known),
        ]
        if said:
            found[subject.name] = tuple(said)
    return found


def _informed(subject: Subject, worker: Worker | None, ids: Mapping[str, str]) -> Subject:
    """Put what was found out in the place of what was declared."""
    declared = subject.worker
    worker = replace(worker or declared, version=(worker and worker.version) or declared.version)
    if worker.exactly_once is None:
        worker = replace(worker, exactly_once=declared.exactly_once)
    source = replace(subject.source_kafka, cluster_id=ids.get(subject.source, subject.source_kafka.cluster_id))
    target = replace(subject.target_kafka, cluster_id=ids.get(subject.target, subject.target_kafka.cluster_id))
    return replace(subject, worker=worker, source_kafka=source, target_kafka=target)


def _by_rules(connect: str, alone: Estate, known: Known, rules: Sequence[Rule]) -> Iterator[Objection]:
    for finding in lint(alone, rules):
        remedy = _remedy(connect, alone.subjects[0], finding, known)
        if finding.silenced is None:
            yield Objection(finding.rule, finding.message, remedy, finding.severity == "error")
        else:
            reason = f"{finding.message.rstrip('.')} (silenced: {finding.silenced})"
            yield Objection(finding.rule, reason, remedy, blocks=False)


def _remedy(connect: str, subject: Subject, finding: Finding, known: Known) -> str:
    """Return the fix, in terms of a tree whose Connect clusters are known."""
    if finding.rule == "wrong-kafka" and writes_through_workers(subject.config):
        # Never a bootstrap.servers by hand: mm2mgr writes the override, with its security, once it knows where workers live.
        live_on = subject.worker.cluster_id
        alias = next((alias for alias, each in known.cluster_ids.items() if each == live_on), "…")
        return (
            f"the workers live on cluster id {live_on}: correct connect: {{{connect}: {{kafka: {alias}}}}} or its url"
        )
    refused = [key for key in subject.config if key in subject.worker.refused]
    tuning = [key.removeprefix(RECORDS) for key in refused if key.startswith(RECORDS)]
    if finding.rule == "policy-forbids" and tuning and len(tuning) == len(refused) and CLUSTER_KEYS.isdisjoint(tuning):
        without = ", ".join(f"{key}: null" for key in tuning)
        return f"{finding.fix}; or do without: record_producer: {{{without}}}"
    return finding.fix


def _unknown_to_the_worker(subject: Subject, beating: Container[str]) -> Iterator[Objection]:
    """Keys that older workers skip in silence, where what they do instead matters."""
    version = subject.worker.version
    if version is None or subject.type != "source":
        return
    if numbers(version) < (3, 9) and not subject.flag("emit.offset-syncs.enabled", default=True):
        yield Objection(
            "key-too-new",
            f"the workers' Kafka {version} does not know emit.offset-syncs.enabled (KIP-1031, 3.9) and would write offset "
            "syncs to the source all the same",
            "write offset_syncs: true, or offset_syncs: {location: target} to keep the source untouched; or upgrade the workers",
        )
    if numbers(version) < (4, 0) and subject.pair in beating and not _carries_heartbeats(subject):
        yield Objection(
            "key-too-new",
            f"the workers' Kafka {version} does not know heartbeats.replication.enabled (4.0), so this flow mirrors the "
            f"heartbeats of {subject.pair} too, and they arrive more than once",
            "upgrade the workers to 4.0, or put up with repeated heartbeats",
            blocks=False,
        )


def _carries_heartbeats(source: Subject) -> bool:
    return source.flag("heartbeats.replication.enabled", default=True)


def _disputed(subject: Subject, connect: str, known: Known) -> Iterator[Objection]:
    """Two Connect clusters declared on one Kafka live on two: without its id, nobody knows which one is right."""
    alias = known.shared.get(connect)
    mine = _id_of(known, connect)
    if alias is None or mine is None or alias in known.cluster_ids or not writes_through_workers(subject.config):
        return
    others = [
        name for name, theirs in known.shared.items() if theirs == alias and _id_of(known, name) not in (None, mine)
    ]
    if others:
        yield Objection(
            "wrong-kafka",
            f"Connect clusters '{connect}' and '{others[0]}' are both declared on Kafka '{alias}', but their workers live on "
            f"two: {mine} and {_id_of(known, others[0])}",
            f"correct `kafka:` of the one that is wrong, or write clusters: {{{alias}: {{cluster_id: …}}}} to say which",
        )


def _id_of(known: Known, connect: str) -> str | None:
    worker = known.workers.get(connect)
    return worker.cluster_id if worker else None


def _state_too_new(change: Change, version: str | None) -> Iterator[Objection]:
    """States that older workers cannot keep a connector in: it would run first, or not stop."""
    if change.state is None or version is None:
        return
    wished = change.state[1]
    if change.action == "create" and numbers(version) < (3, 7):
        yield Objection(
            "state-too-new",
            f"the workers' Kafka {version} cannot create a connector {wished} (KIP-980, 3.7): it would run first",
            "upgrade the workers; or leave `state` out until the connector has been created",
        )
    elif wished == "STOPPED" and numbers(version) < (3, 5):
        yield Objection(
            "state-too-new",
            f"the workers' Kafka {version} cannot stop a connector (KIP-875, 3.5)",
            "write state: paused, or upgrade the workers",
        )


def _judged(change: Change, said: Sequence[Objection]) -> Change:
    """Block what would be written; of what runs already, or cannot be written anyway, only warn."""
    blocking = [each for each in said if each.blocks]
    if change.action == "update" and not change.keys:  # only its state changes
        blocking = [each for each in blocking if each.rule == "state-too-new"]
    if blocking and change.action in {"create", "update"}:
        change = _blocked(
            change, "; ".join(map(str, blocking)), "; ".join(dict.fromkeys(each.remedy for each in blocking))
        )
        said = [each for each in said if not each.blocks]
    return replace(change, warnings=(*change.warnings, *(f"{each} ({each.remedy})" for each in said)))


def _blocked(change: Change, reason: str, remedy: str) -> Change:
    return replace(change, action="blocked", reason=reason, remedy=remedy, keys=(), config=None, state=None)


def _with_their_flows(changes: Sequence[Change], before: Iterable[Change]) -> Iterator[Change]:
    """A checkpoint connector without its flow would run and translate nothing: it waits, and so do the heartbeats."""
    waiting = {
        change.flows[0]: change.connector
        for change, was in zip(changes, before, strict=True)
        if change.type == "source" and change.action == "blocked" != was.action
    }
    for change in changes:
        served = [flow for flow in change.flows if flow in waiting]
        if change.action in {"create", "update"} and served and len(served) == len(change.flows):
            yield _blocked(change, f"it serves only what is blocked: {', '.join(waiting[flow] for flow in served)}", "")
        else:
            yield change

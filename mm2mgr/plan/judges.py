"""Judges what a plan would write: one list of judges, whose remarks take effect in one place. Pure.

A judge sees the changes as a round begins, and not what others say in it, so the order of the list only decides whose
reason is given. A change whose partner is blocked is blocked with it, and then all is judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mm2mgr.comparison.differences import SELECTING, Named
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Wish, connector_text, count_deletes
from mm2mgr.plan.guards import STATE_TOO_NEW, ClusterFacts, Connectors, Remarks, check_each, check_jointly
from mm2mgr.plan.heartbeats import RunningConnectors, left_over_stays
from mm2mgr.plan.history import CLAIMED, Claims
from mm2mgr.remarks import Remark

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

    @cached_property
    def by_itself(self) -> Remarks:
        """What lint has against each connector, whatever becomes of the others."""
        return check_each(self.parts, self.connectors, self.clusters)


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
        if named in changes and changes[named].action in WRITES and not changes[named].follows
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
    together = check_jointly(changes, facts.connectors)
    sources = (facts.by_itself, facts.against, together)
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

    If it was deleted or narrowed alone, its topics would not be mirrored, and who goes on later would not have their
    offsets.
    """
    again = facts.successors
    blocked = {new: olds for new, olds in again.items() if new not in changes or changes[new].action == "blocked"}
    successors = {old: new for new, olds in blocked.items() for old in olds}
    # Its heartbeat and checkpoint connectors are named after the same pair, and run beside it.
    beside = {(old[0], _pair_of(changes[old])): new for old, new in successors.items() if old in changes}

    def reason(change: Change) -> str | None:
        new = successors.get(change.named)
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
                partners.setdefault(change.named, set()).add(other)
                partners.setdefault(other, set()).add(change.named)
    blocked = _blocked_names(changes)

    def reason(change: Change) -> str | None:
        if (first := sorted(blocked.intersection(change.follows))) and change.action in WRITES:
            which = f"{connector_text(first[0])}, which is to be deleted first, is blocked"
            return f"{which}: it still does what this one begins"
        others = sorted(partners.get(change.named, set()) & blocked)
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
    facts: Facts, judges: Sequence[Judge] = JUDGES, partners: Sequence[Judge] = PARTNERS
) -> list[ClusterPlan]:
    """Return the drafted parts with all remarks; afterwards nothing else blocks a change."""
    changes: Changes = {change.named: change for part in facts.parts for change in part.changes}
    while True:
        remarks = [judge(changes, facts) for judge in judges]
        now = _with_partners(_with_blocks(changes, _first_reasons(remarks)), facts, partners)
        if _blocked_names(now) == _blocked_names(changes):
            break
        changes = now
    final = {
        named: change.with_remarks(*(r for of_judge in remarks for r in of_judge.get(named, ()) if r.effect == "warns"))
        for named, change in now.items()
    }
    return [part.each(lambda change: final[change.named]) for part in facts.parts]


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

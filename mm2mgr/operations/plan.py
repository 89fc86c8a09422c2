"""`plan`: what would change on the Connect clusters, and which of it waits because it only saves tasks; nothing is
written there.

`apply`: plan anew, compare with the reviewed plan, get approval, write, wait for states, read back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.comparison.differences import Named
from mm2mgr.errors import InvalidArgument, KafkaError, Mm2mgrError, StalePlan, cause
from mm2mgr.files import check_free
from mm2mgr.json_values import to_json
from mm2mgr.off_peak import OffPeak
from mm2mgr.operations.workspace import Workspace, seconds_of
from mm2mgr.plan.changes import KINDS, Change, Plan, Wish, count_deletes
from mm2mgr.plan.draft import Declared
from mm2mgr.plan.history import HistoryEntry, read_history, rested_by_hand
from mm2mgr.plan.judges import with_many_changes_held
from mm2mgr.plan.planfile import ANEW, PLAN, PlanFile, as_reviewed, read_plan, write_plan
from mm2mgr.plan.planner import plan_steps
from mm2mgr.plan.saved import Making
from mm2mgr.plan.schedule import (
    UNCHANGED_SECONDS,
    RestartRules,
    RoundSchedule,
    Saving,
    TreeReadings,
    waiting,
    with_waiting,
)
from mm2mgr.secrets import mask_text
from mm2mgr.text import few, span_text, without_cluster
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, lease_group

if TYPE_CHECKING:
    from mm2mgr.apply.applied import Applied, Interrupts
    from mm2mgr.apply.rounds import Rounds
    from mm2mgr.apply.waves import Event, Rollout
    from mm2mgr.operations.automatic_rebalance import ReadFacts, RebalanceOrder, RebalanceRound, Rebalancing
    from mm2mgr.spec.models import Sized


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is about, and what it may change.

    `flows` limits it to flows by id, pair or declared name, and `labels`, pairs of key and value, to those whose
    clusters have all of them beside these. `allow`, `allow_deletes` and `max_changes` are for costly changes.
    """

    flows: Sequence[str] = ()
    prune: bool = False
    allow: Sequence[str] = ()
    allow_deletes: int = 0
    max_changes: int | None = None
    labels: Collection[tuple[str, str]] = ()

    def only(self, workspace: Workspace) -> list[str] | None:
        """Return the ids of the flows that it is about, None for all; Mm2mgrError where a name or label means none."""
        return workspace.only(workspace.flow_names(self.flows, self.labels))

    @property
    def wish(self) -> Wish:
        """What may be changed; Mm2mgrError for a kind of change that does not exist."""
        if unknown := sorted(frozenset(self.allow) - KINDS.keys()):
            raise Mm2mgrError(f"'{unknown[0]}' is no kind of change to allow", hint=f"allow one of {', '.join(KINDS)}")
        return Wish(self.prune, frozenset(self.allow), self.allow_deletes, self.max_changes)


def plan(
    workspace: Workspace,
    options: PlanOptions = PlanOptions(),
    *,
    out: Path | None = None,
    report: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """Compare the tree with what the Connect clusters run; a cluster that cannot be read has an error in the plan.

    `out` is a file for review and `apply`: it is refused before any cluster is asked when it holds something else.
    `report` gets the plan once that file is written, or could not be.
    """
    only = options.only(workspace)
    if out:
        workspace.refuse_as_output(out, "--out")
        check_free(out, PLAN)
    planned = _with_choices_explained(workspace, read_due_plan(workspace, options.wish, only))
    try:
        if out:
            files = [str(file) for file in workspace.files]
            templates = str(workspace.templates) if workspace.templates else None
            matrix = workspace.flow_matrix if only is None else None
            write_plan(out, planned, files, templates, only, matrix, _making(workspace))
    finally:
        report(planned)
    return planned


def saved_plan(path: Path) -> PlanFile:
    """Return what `plan` wrote to a file; no cluster is asked, and no tree read. Mm2mgrError for any other file.

    Its `as_shown` is made of what `apply` compares, so that it reads as what that would do.
    """
    return read_plan(path)


def _making(workspace: Workspace) -> Making:
    from mm2mgr.apply.history import author

    by = author(workspace.files)
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Making(when, mask_text(by.who), by.commit)


def _with_choices_explained(workspace: Workspace, plan: Plan) -> Plan:
    connects = {change.connect for change in plan.changes if change.rests}
    if not connects:
        return plan
    held = rested_by_hand(workspace.ask(read_history(workspace.topology, connects)).entries)

    def explain(change: Change) -> Change:
        entry = held.get(change.full_name)
        if not change.rests or entry is None or not entry.state:
            return change
        since = entry.when[:16].replace("T", " ")
        why = f": {entry.reason}" if entry.reason else ""
        state = change.rests if entry.state["after"] == change.rests else f"{change.rests}, {entry.state['after']}"
        text = f"{state} by {entry.who} since {since} UTC{why}"
        remarks = (replace(remark, text=text) if remark.effect == "rests" else remark for remark in change.remarks)
        return replace(change, remarks=tuple(remarks))

    return replace(plan, clusters=tuple(part.each(explain) for part in plan.clusters))


Waits = Callable[[Plan], Mapping[Named, str]]
"""Returns the connectors of a plan whose update waits, each with the reason."""


def read_plan_of(
    workspace: Workspace,
    wish: Wish,
    only: Sequence[str] | None,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
    waits: Waits = lambda _: {},
) -> Plan:
    """Return the plan for all flows, or `only` those with these ids, in which nothing waits yet.

    `skip`: see `plan_steps`; what will wait by `waits` leaves its tasks where they are.
    """
    chosen = None if only is None else frozenset(only)
    declared = Declared(workspace.topology, workspace.connectors, wish, chosen, workspace.spec, waits)
    return workspace.ask(plan_steps(declared, skip))


def read_due_plan(
    workspace: Workspace,
    wish: Wish,
    only: Sequence[str] | None,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
) -> Plan:
    """Return the plan in which updates that only save tasks wait until their time has come; the others are counted.

    Those are of flows whose number in overrides/sizing.yaml only saves tasks, and is not outranked by the tree, which
    says when they are due.
    """
    tree = workspace.spec.tree
    savings = {
        flow.id: _saving(tree.sizing[flow.id], flow) for flow in workspace.topology.flows if flow.tasks.is_saving
    }

    def waits(plan: Plan) -> Mapping[Named, str]:
        return waiting(plan, savings, workspace.now, tree.defaults.move_budget)

    plan = read_plan_of(workspace, wish, only, skip, waits)
    return with_many_changes_held(with_waiting(plan, waits(plan)))


def _saving(sized: Sized, flow: Flow) -> Saving:
    settings = flow.settings.tasks
    rules = RestartRules(settings.cool_down, tuple(map(OffPeak.parse, settings.off_peak)))
    changed, until = seconds_of(sized.changed), seconds_of(sized.holds_until)
    return Saving(sized.tasks_max, changed, sized.partitions, until, rules)


def apply(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    planfile: Path | None = None,
    options: PlanOptions = PlanOptions(),
    *,
    wait_seconds: float = 30.0,
    at_once: int | None = None,
    canary: Sequence[str] = (),
    pause_seconds: float = 0.0,
    rollback: bool = False,
    approve: Callable[[Plan], bool] = lambda plan: True,
    report: Callable[[Event], None] = lambda event: None,
    interrupts: Interrupts | None = None,
    reason: str = "",
    events: Path | None = None,
) -> Applied:
    """Make the Connect clusters run what the tree says, and return what became of each change; one that is refused
    stops no other.

    A `planfile` names its own tree and options; StalePlan when tree or live state changed since it was made.
    `approve` gets the plan before the first write; Mm2mgrError, with nothing written, when it returns False. `report`
    gets each result and what becomes of each wave. The other arguments are those of `Rollout`: `canary` names flows
    as `flows` does. `reason` is kept in the history; `events` is a file to which what happens is appended as JSON
    lines.

    While it writes it holds the lease of the tree's owner, which `reconcile` holds, too; Mm2mgrError, with nothing
    written, where another process has it, also after the time in which Kafka misses one that was killed.
    """
    from mm2mgr.apply.applied import Progress, no_interrupts, write_approved
    from mm2mgr.apply.history import Author, Recorder, author
    from mm2mgr.apply.leases import Leases, take_lease, wait_for_lease
    from mm2mgr.apply.waves import Rollout

    workspace.refuse_snapshot()
    if wait_seconds == 0 and (canary or rollback):
        raise InvalidArgument(
            "wait", f"with 0 nothing is looked at, so {'a canary' if canary else 'a rollback'} has no verdict"
        )
    log = workspace.event_log(events)
    wish = options.wish
    if planfile and (options.flows or options.labels or wish != Wish()):
        choices = "its flows, whether to prune, which costly changes and how many are allowed"
        raise Mm2mgrError(f"a PLANFILE already says {choices}", hint="leave the options out")

    def make() -> tuple[Plan, Workspace]:
        if planfile:
            return _plan_as_reviewed(workspace, planfile)
        return read_due_plan(workspace, wish, options.only(workspace)), workspace

    planned, tree = make()
    if wait_for_lease(tree.topology, planned, report):
        planned, tree = make()  # the process that had it may have written
    workspace = tree
    rollout = Rollout(wait_seconds, at_once, pause_seconds, frozenset(workspace.only(canary) or ()), rollback)
    rollout.check_canary(planned)
    if not approve(planned):
        raise Mm2mgrError("the plan was not approved; nothing was written")
    by = author(workspace.files) if not planned.is_empty or workspace.topology.adopted or events else Author("")
    leases = Leases(lease_group)
    try:
        planned = take_lease(leases, workspace.topology, planned, by, report)
        progress = Progress(planned, report, Recorder(workspace.topology, "apply", by, reason), log)
        applied = wait_for(write_approved(workspace.topology, progress, rollout, interrupts or no_interrupts, leases))
    finally:
        leases.close()
    log.close()
    return applied


def _plan_as_reviewed(workspace: Workspace, planfile: Path) -> tuple[Plan, Workspace]:
    document = read_plan(planfile)
    templates = Path(document.templates) if document.templates else None
    named = tuple(map(str, workspace.files)), workspace.templates
    if workspace.named_by_option and named != (document.clusters, templates):
        raise Mm2mgrError(
            f"{planfile} was made from another tree or templates: {', '.join(document.clusters)}",
            hint="leave --clusters and --templates out, or make a plan of the tree you name",
        )
    workspace = Workspace(tuple(Path(file) for file in document.clusters), templates)
    planned = read_plan_of(workspace, document.wish, document.only, {}, lambda _: document.waiting)
    planned = with_many_changes_held(with_waiting(planned, document.waiting))
    planned = as_reviewed(document.plan, planned)
    if document.matrix and document.matrix != workspace.flow_matrix:
        raise StalePlan("the plan is stale: the tree has other flows than reviewed", hint=ANEW)
    return planned, workspace


# --- reconcile --------------------------------------------------------------------------------------------------------


_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_READ_AGAIN = (
    f"the tree must be read unchanged again, at least {span_text(UNCHANGED_SECONDS)} later, before anything is deleted"
)
_GIT_AT_WORK = "git is changing the tree, or is in the middle of a merge or rebase ({work} exists)"
_NEVER_ALL = (
    "a loop never deletes all connectors of its owner ({count}); if that is meant: mm2mgr apply --prune --allow-deletes"
    " {count}"
)


@dataclass(frozen=True)
class ReconcileRound:
    """One round. `plan` and `applied` are None where there was none; `error` is why.

    `standby`: Connect clusters that another process writes. `without_lease`: those that were not written since the
    lease could not be had, with the reason. `resting`: those that failed before, with the seconds until they are asked
    again. `deletes_held`: why nothing is deleted although that is asked for, and `deletes_wait`: a later reading of the
    same tree ends that. `unlogged`: what is missing in the event log.
    """

    number: int
    plan: Plan | None = None
    applied: Applied | None = None
    standby: tuple[str, ...] = ()
    without_lease: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, float] = field(default_factory=dict)
    deletes_held: str = ""
    deletes_wait: bool = False
    rebalance: RebalanceRound | None = None
    error: str | None = None
    unlogged: str = ""

    @property
    def outcome(self) -> str:
        """Return done, failed, inconclusive, standby, or changes: there are some, and they are only reported."""
        if self.error is not None or self.without_lease or (self.rebalance and self.rebalance.has_failed):
            return "failed"
        if self.applied is not None:
            return self.applied.outcome
        if self.plan is None:
            return "standby"
        return "failed" if self.plan.has_failed else "done" if self.plan.is_empty else "changes"

    @property
    def failed_writes(self) -> tuple[str, ...]:
        """The changes that were not written, and where writing was halted, each with the reason."""
        applied = self.applied
        if applied is None:
            return ()
        failed = [f"{result.connect}/{result.connector}: {result.error}" for result in applied.failed_results]
        return (*failed, *(f"{halted.connect} halted: {halted.why}" for halted in applied.halted))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not everything was read and written, a line for each reason: what is refused names its remedy."""
        applied, lines = self.applied, [self.error] if self.error else []
        unread = {part.connect: part.error for part in self.plan.clusters if part.error} if self.plan else {}
        missing = {**unread, **self.without_lease}
        lines += [f"Connect cluster {name}: {without_cluster(reason, name)}" for name, reason in missing.items()]
        if applied:
            lines += self.failed_writes
            names: dict[tuple[str, str], list[str]] = {}
            for change in applied.plan.changes:
                if change.action == "blocked":
                    names.setdefault((change.reason, change.remedy), []).append(change.connector)
            for (reason, remedy), blocked in names.items():
                lines.append(f"blocked: {few(blocked)}: {reason}" + (f"; fix: {remedy}" if remedy else ""))
        return tuple(lines)

    @property
    def failed_connects(self) -> set[str]:
        """The Connect clusters that could not be read, or where a change was not written or broke a connector."""
        failed = {part.connect for part in self.plan.clusters if part.error} if self.plan else set()
        failed |= self.rebalance.failed_connects if self.rebalance else set()
        if self.applied is not None:
            failed |= {result.connect for result in self.applied.failed_results}
            failed |= {halted.connect for halted in self.applied.halted}
            failed |= {connect for (connect, _), settled in self.applied.states.items() if settled.verdict == "failed"}
        return failed

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values without secrets."""
        return {
            "round": self.number,
            "outcome": self.outcome,
            "error": self.error,
            "counts": self.plan.counts() if self.plan else None,
            "changes": [{"connect": change.connect, **to_json(change)} for change in self.plan.writes]
            if self.plan
            else [],
            "quotas": to_json(self.plan.quota_writes) if self.plan else [],
            "unread": {part.connect: part.error for part in self.plan.clusters if part.error} if self.plan else {},
            "applied": to_json(self.applied),
            "standby": list(self.standby),
            "without_lease": dict(self.without_lease),
            "resting": {name: round(seconds) for name, seconds in self.resting.items()},
            "deletes_held": self.deletes_held,
            "rebalance": to_json(self.rebalance),
            "unlogged": self.unlogged or None,
        }


@dataclass(frozen=True)
class ReconcileView:
    """What `reconcile` inside another process did: its last round and when that ended (None, 0.0: none yet), the rounds
    since the start by their outcome, and how many connectors they wrote."""

    last: ReconcileRound | None = None
    taken_at: float = 0.0
    rounds: Mapping[str, int] = field(default_factory=dict)
    written: int = 0

    def after_round(self, ended: ReconcileRound, now: float) -> ReconcileView:
        """Return what is known after a further round."""
        rounds = {**self.rounds, ended.outcome: self.rounds.get(ended.outcome, 0) + 1}
        written = sum(result.error is None for result in ended.applied.results) if ended.applied else 0
        return ReconcileView(ended, now, rounds, self.written + written)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values without secrets."""
        return {
            "taken_at": self.taken_at,
            "rounds": dict(self.rounds),
            "written": self.written,
            "last": self.last.to_dict() if self.last else None,
        }


@dataclass(frozen=True)
class ReconcileOrder:
    """What every round does: what it plans, how carefully it writes, or that it only reports; and what it rebalances
    afterwards (None: nothing)."""

    options: PlanOptions = PlanOptions()
    every_seconds: float = 60.0
    wait_seconds: float = 30.0
    rollback: bool = False
    report_only: bool = False
    reason: str = ""
    rebalances: RebalanceOrder | None = None

    @property
    def rollout(self) -> Rollout:
        from mm2mgr.apply.waves import Rollout

        return Rollout(self.wait_seconds, rollback=self.rollback)


def reconcile(  # noqa: PLR0913  how to write, and what another part of the process brings
    workspace: Workspace,
    order: ReconcileOrder | None = None,
    *,
    events: Path | None = None,
    report: Callable[[Event], None] = lambda event: None,
    interrupts: Interrupts | None = None,
    read_facts: ReadFacts | None = None,
    closing: threading.Event | None = None,
) -> Generator[ReconcileRound]:
    """Yield round after round, with pauses, until the caller stops, `closing` is set, or an interrupt ended a round's
    writes.

    The first pause begins when the next round is asked for. A Connect cluster that fails is tried again after longer
    and longer pauses. `read_facts`: what rebalances go by, where another part of the process reads it. With `closing`
    the lease is left within a second at the end, else within 20.
    """
    from mm2mgr.apply.applied import no_interrupts
    from mm2mgr.apply.leases import Leases
    from mm2mgr.apply.rounds import Rounds

    workspace.refuse_snapshot()
    order = order or ReconcileOrder()
    rounds = Rounds(
        Leases(lease_group),
        RoundSchedule(order.every_seconds),
        workspace.event_log(events),
        close_seconds=1.0 if closing else 20.0,
    )
    reconciling = _Reconciling(workspace, order, rounds, report, interrupts or no_interrupts, read_facts, closing)
    return rounds.run(reconciling.reconcile_once, reconciling.fail, reconciling.rest)


@dataclass
class _Reconciling:
    """What one round leaves for the next."""

    workspace: Workspace
    order: ReconcileOrder
    rounds: Rounds
    report: Callable[[Event], None]
    interrupts: Interrupts
    read_facts: ReadFacts | None = None
    closing: threading.Event | None = None
    failed: Mapping[Named, HistoryEntry] = field(default_factory=dict)
    readings: TreeReadings = field(default_factory=TreeReadings)
    began: float = field(default_factory=time.time)
    rebalancing: Rebalancing | None = None

    def __post_init__(self) -> None:
        if self.order.rebalances:
            from mm2mgr.operations.automatic_rebalance import FactsOfItsOwn, Rebalancing

            order = self.order.rebalances
            facts = self.read_facts or FactsOfItsOwn(order.store)
            self.rebalancing = Rebalancing(order, facts, self.rounds, self.report, self.interrupts)

    def rest(self, ended: ReconcileRound, seconds: float) -> bool:
        """Wait for the next round, or until a lease is won or lost; tell whether there is none."""
        if ended.applied and ended.applied.interrupted:
            return True
        end, changed, closing = timing.now() + seconds, self.rounds.leases.changed, self.closing
        while (left := end - timing.now()) > 0 and not changed.is_set():
            if timing.wait(closing or changed, min(left, _NAP_SECONDS)) and closing:
                break
        return self._is_closing

    @property
    def _is_closing(self) -> bool:
        return self.closing is not None and self.closing.is_set()

    def fail(self, error: Exception) -> ReconcileRound:
        """Return the round that an error ended."""
        self.readings = TreeReadings()  # what comes next has to be read twice
        message, hint = (error.message, error.hint) if isinstance(error, Mm2mgrError) else (cause(error), None)
        text = f"{message}; {hint}" if hint else message
        self.rounds.log.write("failed", {"error": text})
        return ReconcileRound(self.rounds.number, error=text)

    def reconcile_once(self) -> ReconcileRound:
        """Do one round with the tree as it is now."""
        from mm2mgr.apply.applied import Progress, to_logged_plan, write_approved
        from mm2mgr.apply.history import Recorder, author
        from mm2mgr.apply.leases import holder_note

        workspace, order, log = replace(self.workspace), self.order, self.rounds.log
        only, topology = order.options.only(workspace), workspace.topology
        workspace.connectors  # noqa: B018  mistakes of the tree show before anything is asked
        by = author(workspace.files)
        note = holder_note("reconcile", by, self.began)
        standby, without = ((), {}) if order.report_only else self.rounds.find_writable(topology, note)
        resting = self.rounds.resting()
        if standby:
            log.write("standby", {"connects": list(standby)})
        if resting:
            log.write("resting", {"connects": {name: round(seconds) for name, seconds in resting.items()}})
        left_out = {**dict.fromkeys((*standby, *resting), "not asked in this round"), **without}
        if left_out.keys() >= topology.connects.keys():
            return ReconcileRound(self.rounds.number, None, None, standby, without, resting)
        planned, held, is_wait = self._plan(workspace, only, left_out)
        applied = None
        if order.report_only or self._is_closing:
            log.write("plan_made", to_logged_plan(planned, by.commit))
        else:
            recorder = Recorder(topology, "reconcile", by, order.reason, self.failed)
            progress = Progress(planned, self.report, recorder, log)
            writing = write_approved(topology, progress, order.rollout, self.interrupts, self.rounds.leases)
            applied = wait_for(writing)
            self.failed = recorder.failed_entries
        if held:
            log.write("deletes_held", {"count": planned.left_over, "why": held})
        ended = ReconcileRound(self.rounds.number, planned, applied, standby, without, resting, held, is_wait)
        if self.rebalancing and applied and not applied.interrupted:
            writable = frozenset(topology.connects.keys() - left_out.keys() - ended.failed_connects)
            ended = replace(ended, rebalance=self.rebalancing.look_or_fail(workspace, writable))
        self.rounds.record_failures((part.connect for part in planned.clusters), ended.failed_connects)
        return ended

    def _plan(
        self, workspace: Workspace, only: list[str] | None, left_out: Mapping[str, str]
    ) -> tuple[Plan, str, bool]:
        """Return the plan of a round, why nothing is deleted although that is asked for, and whether a later reading of
        the same tree ends that.
        """
        options, skip = self.order.options, {name: KafkaError(why) for name, why in left_out.items()}

        def plan_with(wish: Wish) -> Plan:
            return read_due_plan(workspace, wish, only, skip)

        held, is_wait = self._why_no_deletes(workspace)
        wish = replace(options.wish, prune=options.prune and not held, deletes_held=held)
        planned = plan_with(wish)
        deletes, owned = count_deletes(planned.changes, planned.left_over)
        if deletes and deletes == owned:
            held = _NEVER_ALL.format(count=owned)
            planned = plan_with(replace(wish, prune=False, deletes_held=held))
        planned = replace(planned, clusters=tuple(part for part in planned.clusters if part.connect not in skip))
        held = held if planned.left_over else ""
        return planned, held, bool(held) and is_wait

    def _why_no_deletes(self, workspace: Workspace) -> tuple[str, bool]:
        """Return why this round deletes nothing, empty if it may, and whether a later reading of the same tree is all
        that is missing.
        """
        from mm2mgr.apply.rounds import git_at_work

        now = timing.now()
        self.readings = self.readings.after_reading(workspace.spec.tree, now)
        if not self.order.options.prune:
            return "", False
        if work := git_at_work(workspace.files):
            return _GIT_AT_WORK.format(work=work), False
        return ("", False) if self.readings.is_confirmed(now) else (_READ_AGAIN, True)

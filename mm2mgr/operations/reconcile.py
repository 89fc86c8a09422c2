"""`reconcile`: plan and apply in a loop, one writer at a time.

The tree is read anew each round; one that has mistakes is reported, and nothing is written. The lease is held per Kafka
cluster that Connect clusters run on: what another process holds is left to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr import timing
from mm2mgr.apply.applied import Applied, Interrupts, Progress, no_interrupts, to_logged_plan, write_approved
from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.leases import Leases, holder_note
from mm2mgr.apply.rounds import Rounds, git_at_work
from mm2mgr.apply.waves import Event, Rollout
from mm2mgr.comparison.differences import Named
from mm2mgr.errors import KafkaError, Mm2mgrError, cause
from mm2mgr.json_values import to_json
from mm2mgr.operations.plan import PlanOptions, hold_restarts, read_plan_of
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.changes import Plan, Wish, count_deletes
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.plan.schedule import UNCHANGED_SECONDS, RoundSchedule, TreeReadings
from mm2mgr.timing import wait_for
from mm2mgr.topology import lease_group

_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_READ_AGAIN = (
    f"the tree must be read unchanged again, at least {UNCHANGED_SECONDS:.0f} s later, before anything is deleted"
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
    error: str | None = None
    unlogged: str = ""

    @property
    def outcome(self) -> str:
        """Return done, failed, inconclusive, standby, or changes: there are some, and they are only reported."""
        if self.error is not None or self.without_lease:
            return "failed"
        if self.applied is not None:
            return self.applied.outcome
        if self.plan is None:
            return "standby"
        return "failed" if self.plan.failed else "done" if self.plan.is_empty else "changes"

    @property
    def failed(self) -> set[str]:
        """The Connect clusters that could not be read, or where a change was not written or broke a connector."""
        failed = {part.connect for part in self.plan.clusters if part.error} if self.plan else set()
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
            "unlogged": self.unlogged or None,
        }


@dataclass(frozen=True)
class ReconcileOrder:
    """What every round does: what it plans, how carefully it writes, or that it only reports."""

    options: PlanOptions = PlanOptions()
    wait_seconds: float = 30.0
    rollback: bool = False
    report_only: bool = False
    reason: str = ""

    @property
    def rollout(self) -> Rollout:
        return Rollout(self.wait_seconds, rollback=self.rollback)


def reconcile(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    order: ReconcileOrder | None = None,
    *,
    every_seconds: float = 60.0,
    events: Path | None = None,
    report: Callable[[Event], None] = lambda event: None,
    interrupts: Interrupts = no_interrupts,
) -> Generator[ReconcileRound]:
    """Yield round after round, with pauses, until the caller stops or an interrupt ended a round's writes.

    The first pause begins when the next round is asked for. A Connect cluster that fails is tried again after longer
    and longer pauses.
    """
    workspace.refuse_snapshot()
    rounds = Rounds(Leases(lease_group), RoundSchedule(every_seconds), workspace.event_log(events))
    reconciling = _Reconciling(workspace, order or ReconcileOrder(), rounds, report, interrupts)
    return rounds.run(reconciling.reconcile_once, reconciling.fail, reconciling.rest)


@dataclass
class _Reconciling:
    """What one round leaves for the next."""

    workspace: Workspace
    order: ReconcileOrder
    rounds: Rounds
    report: Callable[[Event], None]
    interrupts: Interrupts
    failed: Mapping[Named, HistoryEntry] = field(default_factory=dict)
    readings: TreeReadings = field(default_factory=TreeReadings)
    began: float = field(default_factory=time.time)

    def rest(self, ended: ReconcileRound, seconds: float) -> bool:
        """Wait for the next round, or until a lease is won or lost; tell whether there is none."""
        if ended.applied and ended.applied.interrupted:
            return True
        end = timing.now() + seconds
        while (left := end - timing.now()) > 0 and not timing.wait(self.rounds.leases.changed, min(left, _NAP_SECONDS)):
            pass
        return False

    def fail(self, error: Exception) -> ReconcileRound:
        """Return the round that an error ended."""
        self.readings = TreeReadings()  # what comes next has to be read twice
        message, hint = (error.message, error.hint) if isinstance(error, Mm2mgrError) else (cause(error), None)
        text = f"{message}; {hint}" if hint else message
        self.rounds.log.write("failed", {"error": text})
        return ReconcileRound(self.rounds.number, error=text)

    def reconcile_once(self) -> ReconcileRound:
        """Do one round with the tree as it is now."""
        workspace, order, log = replace(self.workspace), self.order, self.rounds.log
        only, topology = workspace.only(order.options.flows), workspace.topology
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
        if order.report_only:
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
        self.rounds.record_failures((part.connect for part in planned.clusters), ended.failed)
        return ended

    def _plan(
        self, workspace: Workspace, only: list[str] | None, left_out: Mapping[str, str]
    ) -> tuple[Plan, str, bool]:
        """Return the plan of a round, why nothing is deleted although that is asked for, and whether a later reading of
        the same tree ends that.
        """
        options, skip = self.order.options, {name: KafkaError(why) for name, why in left_out.items()}

        def plan_with(wish: Wish) -> Plan:
            return hold_restarts(workspace, read_plan_of(workspace, wish, only, skip), options.restarts)

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
        now = timing.now()
        self.readings = self.readings.after(workspace.spec.tree, now)
        if not self.order.options.prune:
            return "", False
        if work := git_at_work(workspace.files):
            return _GIT_AT_WORK.format(work=work), False
        return ("", False) if self.readings.is_confirmed(now) else (_READ_AGAIN, True)

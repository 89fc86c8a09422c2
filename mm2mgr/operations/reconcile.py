"""`reconcile`: plan and apply in a loop, one writer at a time.

The tree is read anew each round; one that has mistakes is reported, and nothing is written. The lease is held per Kafka cluster
that Connect clusters run on: what another process holds is left to it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mm2mgr import timing
from mm2mgr.apply.applied import Applied, Interrupts, Progress, to_logged_plan, uninterrupted, write_approved
from mm2mgr.apply.checkout import git_at_work
from mm2mgr.apply.events import EventLog
from mm2mgr.apply.history import Author, Recorder, author
from mm2mgr.apply.leases import Leases, holder_note
from mm2mgr.apply.waves import Event, Rollout
from mm2mgr.comparison.differences import Named
from mm2mgr.errors import KafkaError, Mm2mgrError, cause
from mm2mgr.garbage import collect_garbage
from mm2mgr.json_values import to_json
from mm2mgr.operations.plan import PlanOptions, hold_restarts, read_plan_of
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.changes import Plan, count_deletes
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.plan.schedule import UNCHANGED_SECONDS, RoundSchedule, TreeReadings
from mm2mgr.timing import wait_for
from mm2mgr.topology import lease_group

_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_CHANCE = random.SystemRandom()
_READ_AGAIN = (
    f"the tree must be read unchanged again, at least {UNCHANGED_SECONDS:.0f} s later, before anything is deleted"
)
_GIT_AT_WORK = "git is changing the tree, or is in the middle of a merge or rebase ({work} exists)"
_NEVER_ALL = "a loop never deletes all connectors of its owner ({count}); if that is meant: mm2mgr apply --prune --allow-deletes {count}"


@dataclass(frozen=True)
class ReconcileRound:
    """One round. `plan` and `applied` are None where there was none; `error` is why.

    `standby`: Connect clusters that another process writes. `without_lease`: those that were not written since the lease could not
    be had, with the reason. `resting`: those that failed before, with the seconds until they are asked again.
    `deletes_held`: why nothing is deleted although that is asked for, and `deletes_wait`: a later reading of the same tree ends that.
    `unlogged`: what is missing in the event log.
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
        found = {part.connect for part in self.plan.clusters if part.error} if self.plan else set()
        if self.applied is not None:
            found |= {each.connect for each in self.applied.failed} | {each.connect for each in self.applied.halted}
            found |= {connect for (connect, _), seen in self.applied.states.items() if seen.verdict == "failed"}
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values without secrets."""
        return {
            "round": self.number,
            "outcome": self.outcome,
            "error": self.error,
            "counts": self.plan.counts() if self.plan else None,
            "changes": _changes(self.plan) if self.plan else [],
            "quotas": to_json(self.plan.quota_writes) if self.plan else [],
            "unread": {part.connect: part.error for part in self.plan.clusters if part.error} if self.plan else {},
            "applied": to_json(self.applied),
            "standby": list(self.standby),
            "without_lease": dict(self.without_lease),
            "resting": {name: round(seconds) for name, seconds in self.resting.items()},
            "deletes_held": self.deletes_held,
            "unlogged": self.unlogged or None,
        }


def _changes(plan: Plan) -> list[dict[str, Any]]:
    return [{"connect": change.connect, **to_json(change)} for change in plan.writes]


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
    interrupts: Interrupts = uninterrupted,
) -> Generator[ReconcileRound]:
    """Yield round after round, with a pause between them, until the caller stops or an interrupt ended a round's writes.

    The first pause begins when the next round is asked for. A Connect cluster that fails is tried again after longer and longer pauses.
    """
    workspace.refuse_snapshot()
    log, loop = (
        workspace.event_log(events),
        _Loop(workspace, order or ReconcileOrder(), RoundSchedule(every_seconds), interrupts),
    )
    try:
        while True:
            done = loop.round(log, report)
            yield done
            if done.applied and done.applied.interrupted:
                return
            collect_garbage()
            loop.sleep()
    finally:
        loop.leases.close()
        log.close()


@dataclass
class _Loop:
    workspace: Workspace
    order: ReconcileOrder
    schedule: RoundSchedule
    interrupts: Interrupts
    number: int = 0
    failed: Mapping[Named, HistoryEntry] = field(default_factory=dict)
    readings: TreeReadings = field(default_factory=TreeReadings)

    def __post_init__(self) -> None:
        self.leases, self.began = Leases(lease_group), time.time()

    def sleep(self) -> None:
        """Wait for the next round, or until a lease is won or lost."""
        end = timing.now() + self.schedule.pause(_CHANCE.random())
        while (left := end - timing.now()) > 0 and not timing.wait(self.leases.changed, min(left, _NAP_SECONDS)):
            pass

    def round(self, log: EventLog, report: Callable[[Event], None]) -> ReconcileRound:
        """Do one round; no failure raises."""
        self.number += 1
        log.begin_run()
        try:
            done = self._round(replace(self.workspace), log, report)
        except Exception as error:  # whatever it is, it ends this round and not the loop
            self.readings = TreeReadings()  # what comes next has to be read twice
            message, hint = (error.message, error.hint) if isinstance(error, Mm2mgrError) else (cause(error), None)
            done = ReconcileRound(self.number, error=f"{message}; {hint}" if hint else message)
        if done.error is not None:
            log.write("failed", {"error": done.error})
        return replace(done, unlogged=log.trouble)

    def _round(self, workspace: Workspace, log: EventLog, report: Callable[[Event], None]) -> ReconcileRound:
        only, topology, order = workspace.only(self.order.options.flows), workspace.topology, self.order
        workspace.connectors  # noqa: B018  mistakes of the tree show before anything is asked
        by = author(workspace.files)
        standby, without = (
            ((), {}) if order.report_only else self.leases.missing(topology, holder_note("reconcile", by, self.began))
        )
        resting = self.schedule.resting(timing.now())
        if standby:
            log.write("standby", {"connects": list(standby)})
        if resting:
            log.write("resting", {"connects": {name: round(seconds) for name, seconds in resting.items()}})
        left_out = {**dict.fromkeys((*standby, *resting), "not asked in this round"), **without}
        if left_out.keys() >= topology.connects.keys():
            return ReconcileRound(self.number, None, None, standby, without, resting)
        skip = {name: KafkaError(why) for name, why in left_out.items()}
        held, wait = self._why_no_deletes(workspace)
        wish = replace(order.options.wish, prune=order.options.prune and not held, deletes_held=held)
        made = hold_restarts(workspace, read_plan_of(workspace, wish, only, skip), order.options.restarts)
        deletes, owned = count_deletes(made.changes, made.left_over)
        if deletes and deletes == owned:
            held = _NEVER_ALL.format(count=owned)
            without_deletes = read_plan_of(workspace, replace(wish, prune=False, deletes_held=held), only, skip)
            made = hold_restarts(workspace, without_deletes, order.options.restarts)
        made = replace(made, clusters=tuple(part for part in made.clusters if part.connect not in skip))
        applied = None
        if order.report_only:
            log.write("plan_made", to_logged_plan(made, by.commit))
        else:
            applied = self._apply(workspace, made, by, log, report)
        held = held if made.left_over else ""
        if held:
            log.write("deletes_held", {"count": made.left_over, "why": held})
        done = ReconcileRound(self.number, made, applied, standby, without, resting, held, bool(held) and wait)
        asked = [part.connect for part in made.clusters]
        self.schedule = self.schedule.after(timing.now(), asked, done.failed, _CHANCE.random())
        return done

    def _why_no_deletes(self, workspace: Workspace) -> tuple[str, bool]:
        """Return why this round deletes nothing, empty if it may, and whether a later reading of the same tree is all that is missing."""
        now = timing.now()
        self.readings = self.readings.after(workspace.spec.tree, now)
        if not self.order.options.prune:
            return "", False
        if work := git_at_work(workspace.files):
            return _GIT_AT_WORK.format(work=work), False
        return ("", False) if self.readings.is_confirmed(now) else (_READ_AGAIN, True)

    def _apply(
        self, workspace: Workspace, made: Plan, by: Author, log: EventLog, report: Callable[[Event], None]
    ) -> Applied:
        recorder = Recorder(workspace.topology, "reconcile", by, self.order.reason, self.failed)
        progress = Progress(made, report, recorder, log)
        applied = wait_for(
            write_approved(workspace.topology, progress, self.order.rollout, self.interrupts, self.leases)
        )
        self.failed = recorder.failed
        return applied

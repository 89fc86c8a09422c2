"""`plan`: what would change on the Connect clusters, and which of it waits because it only saves tasks; nothing is written there.

`apply`: plan anew, compare with the reviewed plan, get approval, write, wait for states, read back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mm2mgr import timing
from mm2mgr.apply.adoption import settle_claims, withdraw_undeclared
from mm2mgr.apply.carry_out import carry_out_quotas
from mm2mgr.apply.events import EventLog
from mm2mgr.apply.execute import apply_plan, read_back
from mm2mgr.apply.history import Author, Recorder, author
from mm2mgr.apply.leases import KILLED_SECONDS, Leases, holder_note, read_holders
from mm2mgr.apply.settle import Settled, States
from mm2mgr.apply.waves import (
    Event,
    Halted,
    LeaseAwaited,
    Result,
    RolledBack,
    Rollout,
    Unguarded,
    WaveVerified,
)
from mm2mgr.comparison.differences import Named
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.files import check_free
from mm2mgr.json_values import to_json
from mm2mgr.operations.workspace import Workspace, wait_for
from mm2mgr.plan.changes import Change, Plan, Wish
from mm2mgr.plan.history import HistoryEntry, read_history
from mm2mgr.plan.judges import with_many_changes_held
from mm2mgr.plan.planfile import PLAN, as_reviewed, read_plan, write_plan
from mm2mgr.plan.planner import make_plan
from mm2mgr.plan.price import KINDS
from mm2mgr.plan.quotas import QuotaChange, QuotaResult, client_id_of
from mm2mgr.plan.schedule import RestartRules, Saving, waiting, with_waiting
from mm2mgr.text import few, visible
from mm2mgr.topology import Topology, lease_group

if TYPE_CHECKING:
    from mm2mgr.kafka.lease import Holder


_ASK_AGAIN_SECONDS = 1.0
_LOOKS_FOR_NOTE = 4


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is about, and what it may change.

    `flows` limits it to flows by id, pair or declared name. `allow`, `allow_deletes` and `max_changes` are for costly
    changes. `restarts` says when updates that only save tasks are due; until then they wait in the plan.
    """

    flows: Sequence[str] = ()
    prune: bool = False
    allow: Sequence[str] = ()
    allow_deletes: int = 0
    max_changes: int | None = None
    restarts: RestartRules = RestartRules()

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
    `report` gets the plan before that file is written.
    """
    only = workspace.only(options.flows)
    if out:
        workspace.refuse_as_output(out, "--out")
        check_free(out, PLAN)
    held = with_restarts_held(workspace, planned(workspace, options.wish, only), options.restarts)
    made = _with_choices_explained(workspace, held)
    report(made)
    if out:
        templates = str(workspace.templates) if workspace.templates else None
        write_plan(out, made, [str(file) for file in workspace.files], templates, only)
    return made


def _with_choices_explained(workspace: Workspace, plan: Plan) -> Plan:
    """Return the plan with who paused or stopped a connector and why, as far as the history has it."""
    connects = {change.connect for change in plan.changes if change.rests}
    if not connects:
        return plan
    newest: dict[Named, HistoryEntry] = {}
    for entry in workspace.ask(read_history(workspace.topology, connects)).entries:
        if entry.state and entry.outcome != "failed":
            newest[entry.connect, entry.connector] = entry

    def explained(change: Change) -> Change:
        entry = newest.get(change.named)
        if not change.rests or entry is None or not entry.state or entry.state["after"] != change.rests:
            return change
        since = entry.when[:16].replace("T", " ")
        why = f": {entry.reason}" if entry.reason else ""
        text = f"{change.rests} by {entry.who} since {since} UTC{why}"
        remarks = (replace(remark, text=text) if remark.effect == "rests" else remark for remark in change.remarks)
        return replace(change, remarks=tuple(remarks))

    return replace(plan, clusters=tuple(part.each(explained) for part in plan.clusters))


def planned(
    workspace: Workspace,
    wish: Wish,
    only: Sequence[str] | None,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
) -> Plan:
    """Return the plan for all flows, or `only` those with these ids, in which nothing waits yet; `skip`: see `make_plan`."""
    topology, connectors, spec = workspace.topology, workspace.connectors, workspace.spec
    return wait_for(make_plan(topology, connectors, wish, only=only, spec=spec, skip=skip, snapshot=workspace.snapshot))


def with_restarts_held(workspace: Workspace, plan: Plan, rules: RestartRules) -> Plan:
    """Return the plan in which updates that only save tasks wait, by the rules, until their time has come; the others are counted.

    Those are of flows whose number in overrides/sizing.yaml only saves tasks, and is not outranked by the tree.
    """
    sizing = workspace.spec.tree.sizing
    reviewed = {flow.id: sizing[flow.id] for flow in workspace.topology.flows if flow.tasks.is_saving}
    savings = {name: Saving(one.tasks_max, seconds_of(one.changed), one.partitions) for name, one in reviewed.items()}
    return with_many_changes_held(with_waiting(plan, waiting(plan, rules, savings, workspace.now)))


def seconds_of(text: str | None) -> int | None:
    """Return a written time as seconds since 1970, UTC where it names no zone; None where it is none."""
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return None if when is None else int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


@dataclass(frozen=True)
class Applied:
    """What became of a plan. Each connector has one result, the latest; `begun` are the changes that were tried.

    `waves` are those that were verified, `halted` the Connect clusters on which a wave was not good: nothing more was begun there.
    """

    plan: Plan
    results: tuple[Result, ...] = ()
    states: Mapping[Named, Settled] = field(default_factory=dict)
    begun: frozenset[Named] = frozenset()
    interrupted: bool = False
    waves: tuple[WaveVerified, ...] = ()
    halted: tuple[Halted, ...] = ()
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    """Connect clusters whose history was not written, and why."""
    quotas: tuple[QuotaResult, ...] = ()
    unlogged: str = ""
    """What is missing in the event log, and why."""
    lost_leases: tuple[str, ...] = ()
    """Kafka clusters whose lease was lost, so that nothing more was written: another process may write now."""

    @property
    def done(self) -> list[Result]:
        return [result for result in self.results if result.is_done]

    @property
    def rolled_back(self) -> list[Result]:
        return [result for result in self.results if result.rolled_back]

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.error is not None]

    @property
    def failed_quotas(self) -> list[QuotaResult]:
        return [result for result in self.quotas if result.error is not None]

    @property
    def left_quotas(self) -> list[QuotaChange]:
        """Quotas that were not written, since the work ended before."""
        tried = {(result.change.kafka, result.change.entity) for result in self.quotas}
        return [change for change in self.plan.quota_writes if (change.kafka, change.entity) not in tried]

    @property
    def left(self) -> list[Change]:
        """Changes that were not begun."""
        return [change for change in self.plan.writes if change.named not in self.begun]

    @property
    def unfinished(self) -> list[Change]:
        """Changes that were begun and have no result: an interrupt cut them short."""
        unknown = self.begun - {result.named for result in self.results}
        return [change for change in self.plan.writes if change.named in unknown]

    @property
    def unread(self) -> list[str]:
        """Connect clusters that could not be read, so that they have no changes."""
        return [cluster.connect for cluster in self.plan.clusters if cluster.error]

    @property
    def outcome(self) -> Literal["done", "failed", "inconclusive"]:
        """`inconclusive`: nothing is known to be wrong, but a person has to look at what was not seen to run, or not read back."""
        verdicts = {settled.verdict for settled in self.states.values()} | {each.verdict for each in self.halted}
        waits = {each.connect for each in self.halted if each.verdict == "inconclusive"}
        left = [change for change in self.left if change.connect not in waits]
        if self.failed or left or self.unfinished or self.plan.failed or "failed" in verdicts:
            return "failed"
        if self.failed_quotas or self.left_quotas:
            return "failed"
        doubts = "inconclusive" in verdicts or any(result.doubt for result in self.done) or self.lost_leases
        return "inconclusive" if doubts else "done"

    def finished(self) -> dict[str, Any]:
        """Return the end as the event log has it."""
        found = to_json(self)
        names = ("results", "quotas", "halted", "rolled_back", "left", "unfinished", "unrecorded", "lost_leases")
        kept = {name: found[name] for name in names}
        return {"outcome": self.outcome, "interrupted": self.interrupted, **kept}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values without secrets."""
        results = []
        for result in self.results:
            seen = self.states.get(result.named)
            shown = {"state": seen.state, "verdict": seen.verdict} if seen else {"state": "", "verdict": ""}
            results.append({**to_json(result), **shown})
        return {
            "results": results,
            "quotas": to_json(self.quotas),
            "waves": to_json(self.waves),
            "halted": to_json(self.halted),
            "rolled_back": [result.connector for result in self.rolled_back],
            "left": [change.connector for change in self.left],
            "unfinished": [change.connector for change in self.unfinished],
            "failed_clusters": self.unread,
            "blocked": [to_json(change) for change in self.plan.changes if change.action == "blocked"],
            "notes": [note for cluster in self.plan.clusters for note in cluster.notes],
            "unrecorded": dict(self.unrecorded),
            "unlogged": self.unlogged or None,
            "lost_leases": list(self.lost_leases),
        }


Interrupts = Callable[[Callable[[], Applied]], AbstractContextManager[asyncio.Event]]
"""Gets a function that returns what is applied so far. Yields the event that ends the work: once it is set, no change is
begun, and those that were begun have FINISH_SECONDS to end. It is entered inside the event loop that does the work."""


@contextmanager
def uninterrupted(_so_far: Callable[[], Applied]) -> Iterator[asyncio.Event]:
    """Yield an event that nothing sets."""
    yield asyncio.Event()


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
    interrupts: Interrupts = uninterrupted,
    reason: str = "",
    events: Path | None = None,
) -> Applied:
    """Make the Connect clusters run what the tree says, and return what became of each change; one that is refused stops no other.

    A `planfile` names its own tree and options; StalePlan when tree or live state changed since it was made.
    `approve` gets the plan before the first write; Mm2mgrError, with nothing written, when it returns False. `report`
    gets each result and what becomes of each wave. The other arguments are those of `Rollout`: `canary` names flows
    as `flows` does. `reason` is kept in the history; `events` is a file to which what happens is appended as JSON
    lines.

    While it writes it holds the lease of the tree's owner, which `reconcile` holds, too; Mm2mgrError, with nothing
    written, where another process has it, also after the time in which Kafka misses one that was killed.
    """
    workspace.refuse_snapshot()
    if wait_seconds == 0 and (canary or rollback):
        raise InvalidArgument(
            "wait", f"with 0 nothing is looked at, so {'a canary' if canary else 'a rollback'} has no verdict"
        )
    log = workspace.event_log(events)
    wish = options.wish
    if planfile and (options.flows or wish != Wish() or options.restarts != RestartRules()):
        what = "its flows, whether to prune, which costly changes and how many are allowed, and what waits"
        raise Mm2mgrError(f"a PLANFILE already says {what}", hint="leave the options out")

    def make() -> tuple[Plan, Workspace]:
        if planfile:
            return _reviewed(workspace, planfile)
        made = planned(workspace, wish, workspace.only(options.flows))
        return with_restarts_held(workspace, made, options.restarts), workspace

    made, tree = make()
    if _wait_for_lease(tree.topology, made, report):
        made, tree = make()  # the process that had it may have written
    workspace = tree
    rollout = Rollout(wait_seconds, at_once, pause_seconds, frozenset(workspace.only(canary) or ()), rollback)
    _check_canary(made, rollout)
    if not approve(made):
        raise Mm2mgrError("the plan was not approved; nothing was written")
    by = author(workspace.files) if not made.is_empty or workspace.topology.adopted or events else Author("")
    leases = Leases(lease_group)
    try:
        made = _with_lease(leases, workspace.topology, made, by, report)
        progress = Progress(made, report, Recorder(workspace.topology, "apply", by, reason), log)
        applied = carried_out(workspace, progress, rollout, interrupts, leases)
    finally:
        leases.close()
    log.close()
    return applied


def carried_out(
    workspace: Workspace, progress: Progress, rollout: Rollout, interrupts: Interrupts, leases: Leases
) -> Applied:
    """Write a plan that is approved, as long as the leases that are held are not lost, and return what became of it."""
    topology = workspace.topology
    progress.log.write("plan_made", plan_made(progress.plan, progress.recorder.author.commit))
    with leases.watched(topology):
        if topology.adopted or topology.released:
            wait_for(settle_claims(topology, progress.plan.clusters, progress.recorder))
        is_halted = wait_for(_write(workspace, progress, rollout, interrupts, leases))
    applied = progress.so_far(interrupted=is_halted and not leases.lost)
    applied = replace(applied, lost_leases=tuple(sorted(leases.lost)))
    progress.log.write("finished", applied.finished())
    return replace(applied, unlogged=progress.log.trouble)


def plan_made(plan: Plan, commit: str) -> dict[str, Any]:
    """Return a plan as the event log has it."""
    unread = {part.connect: part.error for part in plan.clusters if part.error}
    return {"owner": plan.owner, "commit": commit, "counts": plan.counts(), "unread": unread}


def _reviewed(workspace: Workspace, planfile: Path) -> tuple[Plan, Workspace]:
    """Return the plan made anew, held to the reviewed one, with the tree that the file names."""
    document = read_plan(planfile)
    templates = Path(document.templates) if document.templates else None
    named = tuple(map(str, workspace.files)), workspace.templates
    if workspace.named_by_option and named != (document.clusters, templates):
        raise Mm2mgrError(
            f"{planfile} was made from another tree or templates: {', '.join(document.clusters)}",
            hint="leave --clusters and --templates out, or make a plan of the tree you name",
        )
    workspace = Workspace(tuple(Path(file) for file in document.clusters), templates)
    made = with_waiting(planned(workspace, document.wish, document.only), document.waiting)
    return as_reviewed(document.plan, made), workspace


def _check_canary(plan: Plan, rollout: Rollout) -> None:
    """Refuse a canary that could prove nothing."""
    if not rollout.canary:
        return
    serving = [change for change in plan.changes if rollout.is_canary(change) and change.type == "source"]
    unread = [f"Connect cluster '{part.connect}' could not be read" for part in plan.clusters if part.error]
    blocked = [f"{change.connector} is blocked" for change in serving if change.action == "blocked"]
    if missing := rollout.canary.difference(*(change.flows for change in serving)):
        trouble = unread or [f"the plan has no connector of {few(sorted(missing))}"]
    else:
        trouble = blocked
    if trouble:
        raise Mm2mgrError(f"the canary cannot go first: {trouble[0]}", hint="nothing was written; name another flow")


def _wait_for_lease(topology: Topology, plan: Plan, report: Callable[[Event], None]) -> bool:
    """Wait while another process of this owner holds the lease where the plan writes, no longer than Kafka takes to miss one that was killed.

    Returns whether there was one; Mm2mgrError where it still holds it. Without the lease being taken, so that nothing is held while a person thinks.
    """
    end: float | None = None
    while held := wait_for(read_holders(topology, _written_connects(topology, plan), lease_group(topology)))[0]:
        alias, holder = next(iter(held.items()))
        if end is None:
            end = timing.now() + KILLED_SECONDS
            report(LeaseAwaited(alias, _holder_text(holder), KILLED_SECONDS))
        elif timing.now() > end:
            raise _refused(plan.owner, alias, holder)
        timing.sleep(_ASK_AGAIN_SECONDS)
    return end is not None


def _with_lease(leases: Leases, topology: Topology, plan: Plan, by: Author, report: Callable[[Event], None]) -> Plan:
    """Take the lease where the plan writes, and return the plan with a note where it cannot be had; Mm2mgrError where another process has it."""
    connects = _written_connects(topology, plan)
    if not connects:
        return plan
    standby, without = leases.take(topology, connects, holder_note("apply", by, time.time()))
    if standby:
        leases.close()  # else this process may be taken for the holder
        alias = topology.connects[standby[0]].kafka
        for _ in range(_LOOKS_FOR_NOTE):
            holder = wait_for(read_holders(topology, standby, lease_group(topology)))[0].get(alias)
            if holder and holder.note:
                break
            timing.sleep(_ASK_AGAIN_SECONDS)
        raise _refused(plan.owner, alias, holder)
    notes = {
        connect: f"not verified: that no other process of owner '{plan.owner}' writes here at the same time ({reason})"
        for connect, reason in without.items()
    }
    for connect, note in notes.items():
        report(Unguarded(connect, note))
    parts = (
        replace(part, notes=(*part.notes, notes[part.connect])) if part.connect in notes else part
        for part in plan.clusters
    )
    return replace(plan, clusters=tuple(parts))


def _written_connects(topology: Topology, plan: Plan) -> set[str]:
    """Return the Connect clusters that the plan writes, where the tree lets others see who does."""
    return {change.connect for change in plan.writes if topology.connects[change.connect].model.history}


def _holder_text(holder: Holder | None) -> str:
    return (
        ", ".join(filter(None, (visible(holder.note), f"on {visible(holder.host)}")))
        if holder
        else "it is not known which"
    )


def _refused(owner: str, alias: str, holder: Holder | None) -> Mm2mgrError:
    return Mm2mgrError(
        f"another process of owner '{owner}' is at work: it holds the lease on Kafka '{alias}' ({_holder_text(holder)}); nothing was written",
        hint="when an `apply` has ended, apply again; a `reconcile` goes on: let it apply the tree, or end it before you apply by hand",
    )


async def _write(
    workspace: Workspace, progress: Progress, rollout: Rollout, interrupts: Interrupts, leases: Leases
) -> bool:
    """Write and verify wave by wave, then read back; return whether an interrupt, or a lease that was lost, cut that short."""
    topology = workspace.topology
    before, after = (
        [each for each in progress.plan.quota_writes if (each.action == "delete") is is_last]
        for is_last in (False, True)
    )
    with interrupts(progress.so_far) as halt, leases.ending(halt):
        for done in await carry_out_quotas(topology, before):
            progress.take(done)
        await apply_plan(
            topology,
            progress.plan,
            rollout=rollout,
            report=progress.take,
            begin=progress.begin,
            halt=halt,
            states=progress.states,
            guard=leases.check,
        )
        for result in await read_back(topology, progress.so_far().done):
            progress.take(result)
        if not halt.is_set():
            free, held = progress.without_users(after)
            for done in (*await carry_out_quotas(topology, free), *held):
                progress.take(done)
        await progress.record()
        recorded = {change.connect for change in progress.plan.writes} - progress.unrecorded.keys()
        await withdraw_undeclared(topology, recorded, progress.recorder)
        return halt.is_set()


@dataclass
class Progress:
    """An apply on its way. `so_far` is true at any moment, also when the work is stopped in the middle."""

    plan: Plan
    report: Callable[[Event], None]
    recorder: Recorder
    log: EventLog
    begun: set[Named] = field(default_factory=set)
    results: dict[Named, Result] = field(default_factory=dict)
    states: States = field(default_factory=dict)
    waves: list[WaveVerified] = field(default_factory=list)
    halted: list[Halted] = field(default_factory=list)
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    quotas: list[QuotaResult] = field(default_factory=list)

    def begin(self, change: Change) -> None:
        self.begun.add(change.named)
        self.recorder.begin(change)
        if not self.log.is_open:  # masking all keys of 500 connectors takes a tenth of a second
            return
        shown = to_json(change)
        kept = {name: shown[name] for name in ("connector", "action", "flows", "keys", "state")}
        self.log.write("change_begun", {"connect": change.connect, **kept})

    def take(self, event: Event) -> None:
        """Take in what happened; a later result of the same connector replaces an earlier one."""
        match event:
            case Result():
                self._take_result(event)
            case QuotaResult():
                self.quotas.append(event)
                self.recorder.quota(event)
            case RolledBack():
                for result in event.results:
                    self._take_result(result)
            case WaveVerified():
                self.waves.append(event)
            case Halted():
                self.halted.append(event)
        self.report(event)
        self.log.take(event)

    def _take_result(self, result: Result) -> None:
        self.results[result.named] = result
        if result.change and result.rolled_back:
            self.recorder.take_back(result.change)
        elif result.change and result.error is not None:
            self.recorder.end(result.change, "failed", result.error)

    def without_users(self, deletes: Iterable[QuotaChange]) -> tuple[list[QuotaChange], list[QuotaResult]]:
        """Return the quotas that may be deleted, and as failed those whose client id a connector kept that could not be written."""
        named = {result.named for result in self.so_far().done}
        kept = {
            client_id_of(self.plan.owner, change.before): change.connector
            for change in self.plan.writes
            if change.before and change.named not in named
        }
        free, held = [], []
        for each in deletes:
            if user := kept.get((each.kafka, each.entity.client_id)):
                held.append(
                    QuotaResult(
                        each, f"kept: connector {user}, which has its client id, was not written", "apply again"
                    )
                )
            else:
                free.append(each)
        return free, held

    async def record(self) -> None:
        """Record what is done, now that it was read back, with what it shows; wait until all is stored in the history."""
        for named, result in self.results.items():
            if not result.change or not result.is_done:
                continue
            seen = self.states.get(named)
            self.recorder.end(result.change, "done")
            if seen and seen.verdict != "ok":
                self.recorder.end(result.change, seen.verdict, seen.state)
            elif result.doubt:
                self.recorder.end(result.change, "inconclusive", result.doubt)
        self.unrecorded = await asyncio.to_thread(self.recorder.close)

    def so_far(self, *, interrupted: bool = True) -> Applied:
        results, states = tuple(self.results.values()), dict(self.states)
        return Applied(
            self.plan,
            results,
            states,
            frozenset(self.begun),
            interrupted,
            tuple(self.waves),
            tuple(self.halted),
            self.unrecorded,
            tuple(self.quotas),
            self.log.trouble,
        )

"""`plan`: what would change on the Connect clusters, and which of it waits because it only saves tasks; nothing is
written there.

`apply`: plan anew, compare with the reviewed plan, get approval, write, wait for states, read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from mm2mgr.apply.applied import Applied, Interrupts, Progress, no_interrupts, write_approved
from mm2mgr.apply.history import Author, Recorder, author
from mm2mgr.apply.leases import Leases, take_lease, wait_for_lease
from mm2mgr.apply.waves import Event, Rollout
from mm2mgr.comparison.differences import Named
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.files import check_free
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.changes import KINDS, Change, Plan, Wish
from mm2mgr.plan.history import HistoryEntry, read_history
from mm2mgr.plan.judges import with_many_changes_held
from mm2mgr.plan.planfile import PLAN, as_reviewed, read_plan, write_plan
from mm2mgr.plan.planner import make_plan
from mm2mgr.plan.schedule import RestartRules, Saving, waiting, with_waiting
from mm2mgr.timing import wait_for
from mm2mgr.topology import lease_group


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
    planned = hold_restarts(workspace, read_plan_of(workspace, options.wish, only), options.restarts)
    planned = _with_choices_explained(workspace, planned)
    report(planned)
    if out:
        templates = str(workspace.templates) if workspace.templates else None
        write_plan(out, planned, [str(file) for file in workspace.files], templates, only)
    return planned


def _with_choices_explained(workspace: Workspace, plan: Plan) -> Plan:
    """Return the plan with who paused or stopped a connector and why, as far as the history has it."""
    connects = {change.connect for change in plan.changes if change.rests}
    if not connects:
        return plan
    newest: dict[Named, HistoryEntry] = {}
    for entry in workspace.ask(read_history(workspace.topology, connects)).entries:
        if entry.state and entry.outcome != "failed":
            newest[entry.connect, entry.connector] = entry

    def explain(change: Change) -> Change:
        entry = newest.get(change.named)
        if not change.rests or entry is None or not entry.state or entry.state["after"] != change.rests:
            return change
        since = entry.when[:16].replace("T", " ")
        why = f": {entry.reason}" if entry.reason else ""
        text = f"{change.rests} by {entry.who} since {since} UTC{why}"
        remarks = (replace(remark, text=text) if remark.effect == "rests" else remark for remark in change.remarks)
        return replace(change, remarks=tuple(remarks))

    return replace(plan, clusters=tuple(part.each(explain) for part in plan.clusters))


def read_plan_of(
    workspace: Workspace,
    wish: Wish,
    only: Sequence[str] | None,
    skip: Mapping[str, Mm2mgrError] = MappingProxyType({}),
) -> Plan:
    """Return the plan for all flows, or `only` those with these ids, in which nothing waits yet.

    `skip`: see `make_plan`.
    """
    topology, connectors, spec = workspace.topology, workspace.connectors, workspace.spec
    return wait_for(make_plan(topology, connectors, wish, only=only, spec=spec, skip=skip, snapshot=workspace.snapshot))


def hold_restarts(workspace: Workspace, plan: Plan, rules: RestartRules) -> Plan:
    """Return the plan in which updates that only save tasks wait until their time has come; the others are counted.

    Those are of flows whose number in overrides/sizing.yaml only saves tasks, and is not outranked by the tree.
    """
    reviewed = {
        flow.id: workspace.spec.tree.sizing[flow.id] for flow in workspace.topology.flows if flow.tasks.is_saving
    }
    savings = {
        name: Saving(sized.tasks_max, seconds_of(sized.changed), sized.partitions) for name, sized in reviewed.items()
    }
    return with_many_changes_held(with_waiting(plan, waiting(plan, rules, savings, workspace.now)))


def seconds_of(text: str | None) -> int | None:
    """Return a written time as seconds since 1970, UTC where it names no zone; None where it is none."""
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return None if when is None else int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


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
    interrupts: Interrupts = no_interrupts,
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
    workspace.refuse_snapshot()
    if wait_seconds == 0 and (canary or rollback):
        raise InvalidArgument(
            "wait", f"with 0 nothing is looked at, so {'a canary' if canary else 'a rollback'} has no verdict"
        )
    log = workspace.event_log(events)
    wish = options.wish
    if planfile and (options.flows or wish != Wish() or options.restarts != RestartRules()):
        choices = "its flows, whether to prune, which costly changes and how many are allowed, and what waits"
        raise Mm2mgrError(f"a PLANFILE already says {choices}", hint="leave the options out")

    def make() -> tuple[Plan, Workspace]:
        if planfile:
            return _plan_as_reviewed(workspace, planfile)
        fresh = read_plan_of(workspace, wish, workspace.only(options.flows))
        return hold_restarts(workspace, fresh, options.restarts), workspace

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
        applied = wait_for(write_approved(workspace.topology, progress, rollout, interrupts, leases))
    finally:
        leases.close()
    log.close()
    return applied


def _plan_as_reviewed(workspace: Workspace, planfile: Path) -> tuple[Plan, Workspace]:
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
    planned = with_waiting(read_plan_of(workspace, document.wish, document.only), document.waiting)
    return as_reviewed(document.plan, planned), workspace

"""The operation `plan`: what would change on the Connect clusters. It writes nothing there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mm2mgr.files import check_free
from mm2mgr.operations.restarts import with_restarts_held
from mm2mgr.operations.workspace import Workspace, wait_for
from mm2mgr.reconcile.live import make_plan
from mm2mgr.reconcile.plan import Plan, Wish
from mm2mgr.reconcile.planfile import PLAN, write_plan
from mm2mgr.reconcile.restarts import RestartRules


def plan(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    flows: Sequence[str] = (),
    *,
    prune: bool = False,
    mirror_again: bool = False,
    allow_deletes: int = 0,
    restarts: RestartRules | None = None,
    out: Path | None = None,
    report: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """Compare the tree with what the Connect clusters run; a cluster that cannot be read has an error in the plan.

    `flows` limits the plan to flows by id, pair or declared name. `restarts` says when updates that
    only save tasks are due; until then they wait in the plan. `out` is a file for review and `apply`: it is refused
    before any cluster is asked when it holds something else. `report` gets the plan before that file is written.
    """
    only = workspace.only(flows)
    if out:
        check_free(out, PLAN)
    wish = Wish(prune, mirror_again, allow_deletes=allow_deletes)
    made = with_restarts_held(workspace, planned(workspace, wish, only), restarts)
    report(made)
    if out:
        templates = str(workspace.templates) if workspace.templates else None
        write_plan(out, made, [str(file) for file in workspace.files], templates, only)
    return made


def planned(workspace: Workspace, wish: Wish, only: Sequence[str] | None) -> Plan:
    """Return the plan for all flows, or `only` those with these ids, in which nothing waits yet."""
    return wait_for(make_plan(workspace.topology, workspace.connectors, wish, only=only, spec=workspace.spec))

"""Which updates of a plan wait because they only save tasks: the rules of `plan` and `apply` on what the reviewed sizing says."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from mm2mgr.operations.workspace import Workspace
from mm2mgr.reconcile.plan import Plan
from mm2mgr.reconcile.restarts import RestartRules, Saving, waiting, with_waiting


def with_restarts_held(
    workspace: Workspace, plan: Plan, rules: RestartRules | None = None, now_seconds: float | None = None
) -> Plan:
    """Return the plan in which updates that only save tasks wait, by the rules, until their time has come."""
    now = time.time() if now_seconds is None else now_seconds
    return with_waiting(plan, waiting(plan, rules or RestartRules(), savings(workspace), now))


def savings(workspace: Workspace) -> dict[str, Saving]:
    """Return the flows whose number of tasks in overrides/sizing.yaml only saves tasks, and is not outranked by the tree."""
    sizing = workspace.spec.tree.sizing
    saving = {flow.id: sizing[flow.id] for flow in workspace.topology.flows if flow.tasks.is_saving}
    return {flow_id: Saving(one.tasks_max, seconds_of(one.changed), one.partitions) for flow_id, one in saving.items()}


def seconds_of(text: str | None) -> int | None:
    """Return a written time as seconds since 1970, UTC where it names no zone; None where it is none."""
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return None if when is None else int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())

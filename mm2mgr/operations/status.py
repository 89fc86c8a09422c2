"""The operations that ask the clusters and write nothing there: `status`, `watch_status`, `acknowledge`, `describe` and `check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mm2mgr.observe.health import Description, Status
from mm2mgr.observe.memory import RecordLoss
from mm2mgr.observe.status import acknowledge as acknowledge_losses
from mm2mgr.observe.status import describe as read_flow
from mm2mgr.observe.status import status as read_status
from mm2mgr.operations.workspace import Workspace, repeated, wait_for

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked


def status(workspace: Workspace, flows: Sequence[str] = ()) -> Status:
    """Read the health, tasks and lag of flows (all by default), and remember what was seen. No failed cluster raises."""
    return wait_for(read_status(workspace.topology, workspace.connectors, only=workspace.only(flows)))


def watch_status(workspace: Workspace, flows: Sequence[str] = (), *, every_seconds: float) -> Iterator[Status]:
    """Yield a status, then one after each pause, until the caller stops."""
    return repeated(lambda: status(workspace, flows), every_seconds)


def acknowledge(workspace: Workspace, ids: Sequence[str], flows: Sequence[str] = ()) -> tuple[RecordLoss, ...]:
    """Mark losses as seen, so that they are no longer a problem; `all` as id means all, of these flows if any are named."""
    return acknowledge_losses(workspace.topology, ids, only=workspace.only(flows))


def describe(workspace: Workspace, flow: str) -> Description:
    """Read clusters, connectors, tasks with partitions, lag per partition, traces and losses of one flow."""
    return wait_for(read_flow(workspace.topology, workspace.connectors, workspace.flow(flow)))


def check(workspace: Workspace, flows: Sequence[str] = (), *, timeout_seconds: float = 20.0) -> Checked:
    """Log in to every Kafka cluster as each client of the flows' connectors would, and compare rights, limits and workers.

    Whatever does not answer within `timeout_seconds` is a row of its own. Nothing is created, written or committed.
    """
    from mm2mgr.check.run import check as run  # needs lint, which `status` does without

    chosen = workspace.flows(flows)
    return run(workspace.topology, workspace.connectors, chosen, workspace.spec, timeout_seconds)

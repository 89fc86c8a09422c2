"""The operation `describe`: everything about one flow."""

from __future__ import annotations

from mm2mgr.observe.describe import Description
from mm2mgr.observe.status import describe as read_flow
from mm2mgr.operations.workspace import Workspace, wait_for


def describe(workspace: Workspace, flow: str) -> Description:
    """Read clusters, connectors, tasks with partitions, lag per partition, traces and losses of one flow."""
    return wait_for(read_flow(workspace.topology, workspace.connectors, workspace.flow(flow)))

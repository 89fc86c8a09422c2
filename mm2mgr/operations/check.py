"""The operation `check`: whether brokers and workers have what the tree needs, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from mm2mgr.check.judge import Checked
from mm2mgr.check.run import check as run
from mm2mgr.operations.workspace import Workspace


def check(workspace: Workspace, flows: Sequence[str] = (), *, timeout_seconds: float = 20.0) -> Checked:
    """Log in to every Kafka cluster as each client of the flows' connectors would, and compare rights, limits and workers.

    Whatever does not answer within `timeout_seconds` is a row of its own. Nothing is created, written or committed.
    """
    chosen = workspace.flows(flows)
    return run(workspace.topology, workspace.connectors, chosen, workspace.spec, timeout_seconds)

"""`groups`: the consumer groups of Kafka clusters of the tree, their lag, and where their offsets are translated."""

from __future__ import annotations

from dataclasses import replace

from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.reach import Limits
from mm2mgr.observe.group_lag import GroupsOrder, GroupsReport, list_groups
from mm2mgr.operations.failover import unread_with_commands
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import nearest
from mm2mgr.topology import Flow

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=30.0)


def groups(workspace: Workspace, where: str | None = None, order: GroupsOrder = GroupsOrder()) -> GroupsReport:
    """List consumer groups: of a Kafka cluster, of the source of a pair or flow, or of all clusters that flows use.

    Of a pair or flow, only its topics count, and only its target. No cluster that fails raises; Mm2mgrError for a name
    that the tree does not have.
    """
    workspace.refuse_snapshot()
    aliases, flows = groups_place(workspace, where)
    report = workspace.ask(list_groups(aliases, flows, order, lambda: workspace.now), _LIMITS)
    return replace(report, unread=unread_with_commands(workspace, report.unread))


def groups_place(workspace: Workspace, where: str | None) -> tuple[list[str], list[Flow]]:
    """Return the clusters that a name means, and the flows whose topics count there; Mm2mgrError for an unknown one."""
    topology = workspace.topology
    if where is None:
        flows = list(topology.flows)
        ends = [cluster.alias for flow in flows for cluster in (flow.source, flow.target)]
        return list(dict.fromkeys(ends)) or list(topology.clusters), flows
    if where in topology.clusters:
        return [where], list(topology.flows)
    try:
        flows = topology.select(where)
    except Mm2mgrError as error:
        names = sorted({*topology.clusters, *(name for flow in topology.flows for name in (flow.pair, flow.name))})
        near = nearest(where, names, 0.4, count=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"here are: {', '.join(names[:10]) or 'none'}"
        raise Mm2mgrError(f"no Kafka cluster, pair or flow '{where}'", hint=hint) from error
    return list(dict.fromkeys(flow.source.alias for flow in flows)), flows

"""Where the tasks of the tree's Connect clusters are now, as their workers say. One request for each Connect cluster.

In: cases, flows and what was sized. Out: a Placement by Connect cluster; one that does not answer says so in its note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError
from mm2mgr.sizing.placement import Placement, SeenConnector, SeenTask, placed
from mm2mgr.sizing.whatif import Outcome
from mm2mgr.topology import ConnectCluster, Topology

if TYPE_CHECKING:
    from mm2mgr.connect.types import ConnectorStatus
    from mm2mgr.sizing.fleet import FlowRun, Worker

_WORKERS_SECONDS = 10.0


def placements(topology: Topology, found: Outcome) -> dict[str, Placement]:
    """Return what every Connect cluster with a load runs now."""
    from mm2mgr.render import source_connector_name

    runs = {run.flow_id: run for load in found.loads.values() for run in load.runs}
    flows: dict[str, dict[str, FlowRun]] = {}
    for flow in topology.flows:
        if flow.id in runs:
            flows.setdefault(flow.connect.name, {})[source_connector_name(flow)] = runs[flow.id]
    connects = [topology.connects[name] for name in found.loads if name in topology.connects]
    said = asyncio.run(_statuses(connects))
    return {name: _placed(each, flows.get(name, {}), found.loads[name].worker) for name, each in said.items()}


def _placed(said: Collection[ConnectorStatus] | Mm2mgrError, flows: Mapping[str, FlowRun], limits: Worker) -> Placement:
    if isinstance(said, Mm2mgrError):
        return Placement(note=said.one_line)
    return placed((_seen(status) for status in said), flows, limits)


def _seen(status: ConnectorStatus) -> SeenConnector:
    tasks = (SeenTask(task.id, task.state, task.worker_id) for task in status.tasks)
    return SeenConnector(status.name, status.worker_id if status.state != "UNASSIGNED" else "", tuple(tasks))


async def _statuses(connects: Iterable[ConnectCluster]) -> dict[str, Collection[ConnectorStatus] | Mm2mgrError]:
    chosen = list(connects)
    said = await asyncio.gather(*(_ask(connect) for connect in chosen))
    return {connect.name: each for connect, each in zip(chosen, said, strict=True)}


async def _ask(connect: ConnectCluster) -> Collection[ConnectorStatus] | Mm2mgrError:
    from mm2mgr.connect.client import Connect
    from mm2mgr.endpoints import connect_target

    try:
        async with Connect(connect_target(connect), deadline_seconds=_WORKERS_SECONDS) as client:
            return (await client.statuses()).values()
    except Mm2mgrError as error:
        return error

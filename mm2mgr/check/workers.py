"""The Connect side of a check: version, Kafka cluster, plugins and override policy of each Connect cluster, all at once.

In: the topology and connectors. Out: a Worker per Connect cluster, or why it could not be read. Creates nothing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mm2mgr.check.checked import Row
from mm2mgr.connect.client import Connect
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.subject import WorkerFacts as Worker
from mm2mgr.observe.reading import Failure
from mm2mgr.reconcile.live import target_of
from mm2mgr.reconcile.workers import ask_worker, harmless
from mm2mgr.render import Connector
from mm2mgr.topology import ConnectCluster, Topology

Answer = tuple[Worker, Failure | None] | Failure
"""What the workers say, with the reason where their override policy could not be found; or why they do not answer."""


async def read_workers(topology: Topology, connectors: Sequence[Connector], seconds: float) -> dict[str, Answer]:
    """Ask every Connect cluster that the connectors run on."""
    names = sorted({connector.connect for connector in connectors})
    asked = (_ask(topology.connects[name], connectors, seconds) for name in names)
    return dict(zip(names, await asyncio.gather(*asked), strict=True))


async def _ask(connect: ConnectCluster, connectors: Sequence[Connector], seconds: float) -> Answer:
    keys = (key for connector in connectors if connector.connect == connect.name for key in connector.config)
    try:
        async with asyncio.timeout(seconds), Connect(target_of(connect), deadline_seconds=seconds) as client:
            worker, unprobed = await ask_worker(client, harmless(keys))
    except Mm2mgrError as error:
        return Failure.of(error)
    except TimeoutError:
        return Failure(f"Connect cluster '{connect.name}' did not answer within {seconds:g} s", "check its url")
    return worker, Failure.of(unprobed) if unprobed else None


def rows(answers: dict[str, Answer]) -> list[Row]:
    """Return one row for each Connect cluster, and one for a policy that could not be found."""
    found = []
    for name, answer in answers.items():
        where = f"connect {name}"
        if isinstance(answer, Failure):
            found.append(Row("failed", where, "ask the workers", effect=answer.message, fix=answer.hint or ""))
            continue
        worker, unprobed = answer
        policy = f", overrides: {worker.policy}" if worker.policy else ""
        what = f"workers of Kafka {worker.version or 'unknown'} on Kafka cluster {worker.cluster_id}{policy}"
        found.append(Row("ok", where, what))
        if unprobed:
            found.append(Row("unknown", where, "override policy", effect=unprobed.message, fix=unprobed.hint or ""))
    return found

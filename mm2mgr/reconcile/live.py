"""Reads what Connect clusters run, all of them at once, one request each. In: connectors wanted. Out: a Plan.

Credentials of a Connect cluster are resolved here, on their way to the client, and kept nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, Tls
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.placeholders import resolve
from mm2mgr.reconcile.plan import ClusterPlan, Plan, Wish, mirrored_already, plan_cluster
from mm2mgr.render import Connector
from mm2mgr.topology import ConnectCluster, Topology


def target_of(connect: ConnectCluster) -> ConnectTarget:
    """Return where a declared Connect cluster is, with its credentials resolved on this machine."""
    model = connect.model
    auth: BasicAuth | BearerAuth | None = None
    if model.auth and model.auth.basic:
        basic = model.auth.basic
        auth = BasicAuth(_resolved(connect, basic.username), _resolved(connect, basic.password))
    elif model.auth and model.auth.bearer:
        auth = BearerAuth(_resolved(connect, model.auth.bearer))
    tls = Tls(_path(model.tls.ca), _path(model.tls.certificate), _path(model.tls.key)) if model.tls else None
    return ConnectTarget(connect.name, tuple(model.url), auth, tls)


def _resolved(connect: ConnectCluster, text: str) -> str:
    try:
        return resolve(f"Connect cluster '{connect.name}', auth", text)
    except KafkaError as error:
        raise ConnectError(
            error.message, hint="provide this variable or file on the machine that runs mm2mgr"
        ) from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


async def make_plan(
    topology: Topology,
    connectors: Sequence[Connector],
    wish: Wish | None = None,
    *,
    only: Iterable[str] | None = None,
    deadline_seconds: float = 30.0,
) -> Plan:
    """Read every Connect cluster concurrently and compare. `only` limits the plan to connectors that serve these flow ids.

    A cluster that cannot be read is in the plan with its error; the others are planned all the same.
    """
    chosen = None if only is None else set(only)
    wanted = [c for c in connectors if chosen is None or chosen & set(c.flows)]
    read = dict(
        zip(
            topology.connects,
            await asyncio.gather(*(_live(c, deadline_seconds) for c in topology.connects.values())),
            strict=True,
        )
    )
    known = {name: live for name, live in read.items() if not isinstance(live, Mm2mgrError)}
    wish = wish or Wish()
    again = mirrored_already(topology.owner, connectors, known)
    here = Wish(wish.prune and chosen is None, wish.mirror_again, again)

    def part(name: str) -> ClusterPlan:
        live = read[name]
        if isinstance(live, Mm2mgrError):
            return ClusterPlan(name, error=live.message, hint=live.hint)
        desired = [connector for connector in wanted if connector.connect == name]
        if chosen is not None:  # what is left over shows only in the plan of the whole tree
            live = {each: config for each, config in live.items() if any(c.name == each for c in desired)}
        return plan_cluster(topology.owner, name, desired, live, here)

    names = list(topology.connects) if chosen is None else sorted({c.connect for c in wanted})
    return Plan(topology.owner, tuple(map(part, names)), wish.prune, wish.mirror_again)


async def _live(connect: ConnectCluster, deadline_seconds: float) -> dict[str, dict[str, str]] | Mm2mgrError:
    """Return the configs of all connectors by name, or why they could not be read."""
    try:
        async with Connect(target_of(connect), deadline_seconds=deadline_seconds) as client:
            return {name: info.config for name, info in (await client.infos()).items()}
    except Mm2mgrError as error:
        return error

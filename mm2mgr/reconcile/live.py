"""Reads what Connect clusters run and what their workers say, all at once, four requests each. In: connectors wanted. Out: a Plan.

Credentials of a Connect cluster are resolved here, on their way to the client, and kept nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, Tls
from mm2mgr.connect.types import ConnectorInfo
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.placeholders import resolve
from mm2mgr.lint.subject import Worker
from mm2mgr.lint.tree import from_tree
from mm2mgr.reconcile.access import ClusterIds, cluster_ids
from mm2mgr.reconcile.guards import Known, guarded, writes_through_workers
from mm2mgr.reconcile.plan import (
    Change,
    ClusterPlan,
    Plan,
    Wish,
    mirrored_already,
    plan_cluster,
    with_mass_deletes_held,
    with_predecessors_kept,
)
from mm2mgr.reconcile.workers import ask_worker, harmless
from mm2mgr.render import Connector
from mm2mgr.spec.loader import Spec
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


@dataclass(frozen=True)
class _Live:
    """What a Connect cluster answered: configs by connector; its worker, where connectors are wanted; what it kept back."""

    configs: dict[str, dict[str, str]]
    worker: Worker | None = None
    note: str | None = None
    states: Mapping[str, str] = field(default_factory=dict)


async def make_plan(  # noqa: PLR0913  the tree in three forms, and what is wanted of it
    topology: Topology,
    connectors: Sequence[Connector],
    wish: Wish | None = None,
    *,
    only: Iterable[str] | None = None,
    spec: Spec | None = None,
    deadline_seconds: float = 30.0,
) -> Plan:
    """Read every Connect cluster concurrently and compare. `only` limits the plan to connectors that serve these flow ids.

    A cluster that cannot be read is in the plan with its error; the others are planned all the same. Guards have had
    their say: what must not be written is blocked, what could not be verified is noted. With `spec`, comments in the
    tree's files silence guards as a flow's `silence:` does.
    """
    chosen = None if only is None else set(only)
    wanted = [c for c in connectors if chosen is None or chosen & set(c.flows)]
    desired = {name: [connector for connector in wanted if connector.connect == name] for name in topology.connects}
    read, ids = await asyncio.gather(
        _read(topology, desired, deadline_seconds), cluster_ids(topology, _reached_through_workers(topology, wanted))
    )
    known = _known(topology, read, ids)
    wish = wish or Wish()
    configs = {name: live.configs for name, live in read.items() if isinstance(live, _Live)}
    again = mirrored_already(topology.owner, connectors, configs)
    here = Wish(wish.prune and chosen is None, wish.mirror_again, again)

    def part(name: str) -> ClusterPlan:
        live, here_wanted = read[name], desired[name]
        if isinstance(live, Mm2mgrError):
            return ClusterPlan(name, error=live.message, hint=live.hint)
        found = live.configs
        if chosen is not None:  # what is left over shows only in the plan of the whole tree
            found = {each: config for each, config in found.items() if any(c.name == each for c in here_wanted)}
        planned = plan_cluster(topology.owner, name, here_wanted, found, here, states=live.states)
        planned = guarded(planned, from_tree(topology, here_wanted, spec), known) if here_wanted else planned
        unknown = [alias for alias in _reached_through_workers(topology, here_wanted) if alias in ids.unknown]
        return replace(planned, notes=tuple(_notes(live, {alias: ids.unknown[alias] for alias in unknown})))

    names = list(topology.connects) if chosen is None else sorted({c.connect for c in wanted})
    unread = [name for name, live in read.items() if isinstance(live, Mm2mgrError)]
    parts = with_predecessors_kept([_aware(part(name), unread) for name in names], again)
    parts = with_mass_deletes_held(parts, wish.allow_deletes)
    return Plan(topology.owner, parts, wish.prune, wish.mirror_again, wish.allow_deletes)


def _aware(part: ClusterPlan, unread: Sequence[str]) -> ClusterPlan:
    """Say of what is created that nobody knows whether an unread Connect cluster has mirrored it before."""
    if not unread:
        return part
    warning = (
        f"if this flow has run on {' or '.join(unread)}, which could not be read, all of it is mirrored a second time"
    )

    def warned(change: Change) -> Change:
        if (change.type, change.action) != ("source", "create"):
            return change
        return replace(change, warnings=(*change.warnings, warning))

    return replace(part, changes=tuple(map(warned, part.changes)))


async def _read(
    topology: Topology, desired: Mapping[str, Sequence[Connector]], deadline_seconds: float
) -> dict[str, _Live | Mm2mgrError]:
    lives = (_live(connect, desired[name], deadline_seconds) for name, connect in topology.connects.items())
    return dict(zip(topology.connects, await asyncio.gather(*lives), strict=True))


async def _live(connect: ConnectCluster, desired: Sequence[Connector], deadline_seconds: float) -> _Live | Mm2mgrError:
    """Return what a Connect cluster runs, and what its worker says if it is to run something; or why it cannot be read."""
    overrides = harmless(key for connector in desired for key in connector.config)
    try:
        async with Connect(target_of(connect), deadline_seconds=deadline_seconds) as client:
            if not desired:
                return _Live(_configs(await client.infos()))
            infos, (worker, failed) = await asyncio.gather(client.infos(), ask_worker(client, overrides))
            note = f"not verified: {failed.message}" if failed else None
            return _Live(_configs(infos), worker, note, await _states(client, desired))
    except Mm2mgrError as error:
        return error


async def _states(client: Connect, desired: Iterable[Connector]) -> dict[str, str]:
    """Return the states that connectors show, where one is wished for; those without a status are not in it."""
    if not any(connector.state for connector in desired):
        return {}
    return {name: status.state for name, status in (await client.statuses()).items()}


def _configs(infos: Mapping[str, ConnectorInfo]) -> dict[str, dict[str, str]]:
    return {name: info.config for name, info in infos.items()}


def _reached_through_workers(topology: Topology, connectors: Iterable[Connector]) -> list[str]:
    """Return the aliases of the Kafka clusters that records reach as the workers' own."""
    aliases = (c.config.get("target.cluster.alias", "") for c in connectors if writes_through_workers(c.config))
    return [alias for alias in dict.fromkeys(aliases) if alias in topology.clusters]


def _known(topology: Topology, read: Mapping[str, _Live | Mm2mgrError], ids: ClusterIds) -> Known:
    workers = {name: live.worker for name, live in read.items() if isinstance(live, _Live) and live.worker}
    return Known(workers, ids.known, {name: connect.kafka for name, connect in topology.connects.items()})


def _notes(live: _Live, unknown: Mapping[str, str]) -> Iterator[str]:
    if live.note:
        yield live.note
    for alias, why in unknown.items():
        spared = f"declare clusters: {{{alias}: {{cluster_id: …}}}} to have it compared without asking"
        yield f"not verified: that these workers write to Kafka '{alias}', whose id could not be read ({why}); {spared}"

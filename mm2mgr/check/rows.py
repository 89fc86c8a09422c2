"""Rows of a check that are no single rights: logins, cluster ids, and what nobody can be asked. In: sessions. Out: rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from mm2mgr.check.checked import Row
from mm2mgr.check.needs import Need, knows_names
from mm2mgr.check.sessions import Team
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, Topology, matches_nothing

_ONCE = "record producer: Write on transactional id <group.id of the workers>-{name}-* and the same for the workers' own admin client"


def access_rows(crew: Team, wanted: Sequence[Need]) -> Iterator[Row]:
    """Yield a row for each login that got in, or why it did not and what could therefore not be asked."""
    for login, session in crew.sessions.items():
        clients = tuple(dict.fromkeys(need.client for need in wanted if need.login == login)) or ("mm2mgr itself",)
        connectors = tuple(dict.fromkeys(need.connector for need in wanted if need.login == login))
        row = Row("ok", login.cluster, "log in", session.principal.name, clients, connectors)
        if session.failure is None:
            yield row
        elif session.usable:
            yield replace(row, status="failed", effect=session.failure.message, fix=session.failure.hint or "")
        else:
            yield replace(row, status="unknown", effect=session.failure.message, fix=_unusable(clients))


def _unusable(clients: Sequence[str]) -> str:
    if clients == ("mm2mgr itself",):
        return "give the cluster an `access:` block with settings that this machine can use"
    return (
        "rights are seen only by logging in with this client's own settings (an `access:` block is for mm2mgr's reads): put the "
        "variable or file that it names on this machine too, or run check where the workers run"
    )


def identity_rows(crew: Team, topology: Topology) -> Iterator[Row]:
    """Yield a row for each alias behind which another cluster answers than declared (one under two aliases: see lint)."""
    seen: dict[str, str] = {}
    for session in crew.sessions.values():
        if session.seen:
            seen.setdefault(session.alias, session.seen.cluster_id)
    for alias, cluster_id in seen.items():
        declared = topology.clusters[alias].model.cluster_id
        if declared and declared != cluster_id:
            effect = f"another Kafka cluster answers there: {cluster_id}, not {declared}"
            yield Row("failed", alias, "cluster id", effect=effect, fix="correct bootstrap_servers or cluster_id")


def unmatched_rows(flows: Sequence[Flow], topics: Mapping[str, Collection[str]]) -> Iterator[Row]:
    """Yield a row for each flow that takes none of the topics that logins see on its source; `topics` are by alias."""
    for flow in flows:
        seen = topics.get(flow.source.alias)
        if seen is not None and (message := matches_nothing(flow, seen)):
            effect = f"flow {flow.id} mirrors nothing until such a topic exists, or until a login may see it"
            fix = "compare the patterns with the names of the topics (the whole name has to match)"
            yield Row("unknown", flow.source.alias, message, effect=effect, fix=fix)


def untold_rows(topology: Topology, connectors: Sequence[Connector]) -> Iterator[Row]:
    """Yield what nobody can be asked: names made by unknown classes, and what exactly-once workers need."""
    for flow in topology.flows:
        names = tuple(f"{one.connect}/{one.name}" for one in connectors if flow.id in one.flows)
        if names and not knows_names(flow):
            fix = f"compare by hand: {flow.policy} names the topics"
            yield Row("unknown", flow.target.alias, "rights on remote topics", connectors=names, fix=fix)
    for connector in connectors:
        if topology.connects[connector.connect].exactly_once:
            what, names = _ONCE.format(name=connector.name), (f"{connector.connect}/{connector.name}",)
            effect = "without it the task fails, or all tasks as soon as there are two"
            yield Row(
                "unknown",
                connector.config["target.cluster.alias"],
                what,
                connectors=names,
                effect=effect,
                fix="no broker tells",
            )

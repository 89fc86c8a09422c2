"""Two connectors that mirror the same topics both ways under the same names: at most one of them may run. Pure.

With IdentityReplicationPolicy no name tells where a record came from (KAFKA-9914), so the one that does not run is
held: STOPPED, without tasks whoever resumes it. Only `failover back` knows from which offset on the other side has
records of its own; it writes them, holds the other one, and lets go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import HELD_KEY, as_held, hold_keys, is_held
from mm2mgr.connectors import Connector
from mm2mgr.defaults import POLICIES
from mm2mgr.plan.changes import aliases_of
from mm2mgr.plan.heartbeats import RunningConnectors
from mm2mgr.remarks import Remark
from mm2mgr.topics.names import Selection
from mm2mgr.topics.shared import meeting

Pair = tuple[str, str]


def with_holds(connectors: Sequence[Connector], running: RunningConnectors) -> list[Connector]:
    """Return the tree's connectors, those that are held with what holds them.

    These are connectors that have the mark and still keep names, and new ones that the tree wants STOPPED beside
    another one in the opposite direction that keeps the names of the same topics.
    """
    ways = _identity_ways(connectors, running)

    def with_hold(connector: Connector) -> Connector:
        named = connector.connect, connector.name
        live = running.configs.get(named)
        if live is not None and is_held(live) and keeps_names(connector.config):
            config = {**connector.config, **hold_keys(live)}
            return replace(connector, config=config, state="STOPPED")
        if live is None and connector.state == "STOPPED" and (pair := opposite_of(named, ways)):
            return replace(connector, config=as_held(connector.config, "->".join(pair)))
        return connector

    return [with_hold(connector) if connector.type == "source" else connector for connector in connectors]


def _identity_ways(
    connectors: Iterable[Connector], running: RunningConnectors
) -> dict[Named, tuple[Pair, Selection | None]]:
    return {
        (connector.connect, connector.name): (
            aliases_of(connector.config),
            running.selection((connector.connect, connector.name), connector.config),
        )
        for connector in connectors
        if connector.type == "source" and keeps_names(connector.config)
    }


def keeps_names(config: Mapping[str, str]) -> bool:
    """Tell whether topics keep their names on the target."""
    return config.get("replication.policy.class", "").rpartition(".")[2] == POLICIES["identity"].rpartition(".")[2]


def opposite_of(named: Named, ways: Mapping[Named, tuple[Pair, Selection | None]]) -> Pair | None:
    """Return the pair in the opposite direction of which a connector shares a topic with this one; None for none."""
    if named not in ways:
        return None
    pair, selection = ways[named]
    for other, (other_pair, other_selection) in ways.items():
        if other != named and other_pair == pair[::-1] and _may_share(selection, other_selection):
            return other_pair
    return None


def _may_share(selection: Selection | None, other: Selection | None) -> bool:
    return selection is None or other is None or meeting([selection, other]).is_possible


def hold_remark(config: Mapping[str, str]) -> Iterator[Remark]:
    """Yield what is said of a connector that is created held."""
    if is_held(config):
        yield Remark(
            f"STOPPED without tasks {config[HELD_KEY]}: it keeps names that the opposite direction keeps", "notes"
        )

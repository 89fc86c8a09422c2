"""`failover check`: whether consumers could go on at the target of a pair now. It writes nothing to clusters; what it
read of the source is kept in the store, and what it came to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mm2mgr.check.judge import commands
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import PairReadiness, Unread
from mm2mgr.failover.kept import KeptLooks
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.reach import Limits
from mm2mgr.observe.failover_rows import check_row
from mm2mgr.observe.memory import Memory
from mm2mgr.observe.pair_look import FailoverOptions, PairToJudge
from mm2mgr.observe.pair_readiness import pair_readiness
from mm2mgr.observe.state_file import (
    StorePlace,
    keep_looks,
    load,
    parse_memory,
    read_looks,
    record_check,
    state_file,
)
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.topology import Flow, by_pair

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=30.0)


@dataclass(frozen=True)
class CheckedPair:
    """A check of one pair, and what of it could not be kept, or of earlier looks could not be read."""

    readiness: PairReadiness
    warnings: tuple[str, ...] = ()


def failover_check(
    workspace: Workspace, pair: str, options: FailoverOptions = FailoverOptions(), earlier: KeptLooks | None = None
) -> PairReadiness:
    """Judge whether a pair `source->target` can fail over now. No cluster that fails raises.

    `earlier`: what earlier looks at the pair left, for a source that does not answer.
    """
    judged = PairToJudge(
        workspace.topology, workspace.connectors, tuple(flows_of_pair(workspace, pair)), options, earlier
    )
    readiness = workspace.ask(pair_readiness(judged, _memory(workspace), lambda: workspace.now), _LIMITS)
    return with_commands(workspace, readiness)


def check_and_keep(
    workspace: Workspace,
    pair: str,
    options: FailoverOptions = FailoverOptions(),
    *,
    store: Store = DEFAULT_STORE,
    started_by: str = "command",
) -> CheckedPair:
    """Judge a pair as `failover_check` does, with what earlier looks left in the store, and keep what this one read.

    Only checks of all groups, at the offsets that they have, count for the readiness of the pair. With a snapshot,
    nothing is read from the store and nothing is kept.
    """
    flows = flows_of_pair(workspace, pair)
    if workspace.snapshot is not None:
        return CheckedPair(failover_check(workspace, pair, options))
    owner = str(workspace.topology.owner)
    place, aliases = StorePlace(store, owner, state_file(owner)), (flows[0].source.alias, flows[0].target.alias)
    earlier, warnings = read_looks(place, aliases)
    readiness = failover_check(workspace, pair, options, earlier)
    if readiness.looked is not None:
        warnings += keep_looks(place, aliases, readiness.looked)
    if options.groups is None and not options.translated:
        warnings += record_check(place, check_row(readiness, started_by))
    return CheckedPair(readiness, tuple(dict.fromkeys(warnings)))


def with_commands(workspace: Workspace, readiness: PairReadiness) -> PairReadiness:
    """Return it with the commands that give the rights that mm2mgr's login lacks."""
    return replace(readiness, unread=unread_with_commands(workspace, readiness.unread))


def unread_with_commands(workspace: Workspace, unread: Iterable[Unread]) -> tuple[Unread, ...]:
    """Return what could not be read, each with the commands that give the rights for it."""
    clusters = workspace.topology.clusters
    completed = []
    for missing in unread:
        lines: list[str] = []
        if missing.principal and missing.where in clusters:
            servers = kafka_access(clusters[missing.where]).bootstrap_servers
            lines = commands([(servers, missing.principal, right) for right in missing.rights])
        completed.append(replace(missing, commands=tuple(lines)))
    return tuple(completed)


def flows_of_pair(workspace: Workspace, pair: str) -> list[Flow]:
    """Return the flows of the one pair that is named, as `source->target` or by a flow; Mm2mgrError for several."""
    pairs = by_pair(workspace.flows((pair,)))
    if len(pairs) > 1:
        raise Mm2mgrError(f"'{pair}' means {len(pairs)} pairs", hint=f"name one: {', '.join(pairs)}")
    (name,) = pairs
    return by_pair(workspace.topology.flows)[name]


def _memory(workspace: Workspace) -> Memory:
    if workspace.snapshot is not None:
        return parse_memory(workspace.snapshot.memory) if workspace.snapshot.memory else Memory()
    return load(state_file(str(workspace.topology.owner)))

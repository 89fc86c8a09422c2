"""`history`: what was changed, by whom and when. `drift`: what people changed by hand since. Both only read; `forget_history` deletes old changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from mm2mgr.apply.history import forget
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RunningConnector, with_statuses
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.kafka.quotas import RATE_KEY
from mm2mgr.live.questions import Configs, Statuses
from mm2mgr.live.snapshot import Steps, side_by_side
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.drift import Drift, LastApplied, QuotaDrift, drifts, quota_drifts
from mm2mgr.plan.facts import quotas_of, user_of
from mm2mgr.plan.heartbeats import RunningConnectors, heartbeat_carriers, with_carriers
from mm2mgr.plan.history import History, HistoryEntry, read_history
from mm2mgr.plan.quotas import wanted_quotas
from mm2mgr.timing import wait_for


@dataclass(frozen=True)
class HistoryReport:
    """Recorded changes, newest last; `unread` has the Connect clusters whose history could not be read, with the reason."""

    entries: tuple[HistoryEntry, ...]
    unread: Mapping[str, str] = field(default_factory=dict)


def history(
    workspace: Workspace,
    flows: Sequence[str] = (),
    *,
    connects: Sequence[str] = (),
    since_seconds: float | None = None,
    last: int | None = None,
) -> HistoryReport:
    """Read what was changed, newest last. `flows` may be flows of the tree, flows that it had once, or names of connectors.

    `connects` limits it to some Connect clusters, `since_seconds` to the last so many seconds, `last` to so many entries.
    """
    _check_connects(workspace, connects)
    found = workspace.ask(read_history(workspace.topology, connects or None))
    entries = _of(workspace, flows, found.entries)
    if since_seconds is not None:
        start = _seconds_ago(since_seconds)
        entries = tuple(entry for entry in entries if entry.when >= start)
    return HistoryReport(entries if last is None else entries[max(0, len(entries) - last) :], found.unread)


def forget_history(workspace: Workspace, older_seconds: float, *, connects: Sequence[str] = ()) -> HistoryReport:
    """Delete the entries that are older than so many seconds, and return them; the configs that were last applied stay.

    `unread` has the Connect clusters whose history could not be read or written, with the reason.
    """
    workspace.refuse_snapshot()
    found = history(workspace, connects=connects)
    end = _seconds_ago(older_seconds)
    old = tuple(entry for entry in found.entries if entry.when < end)
    return HistoryReport(old, {**found.unread, **wait_for(forget(workspace.topology, old))})


def _seconds_ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _check_connects(workspace: Workspace, connects: Sequence[str]) -> None:
    known = workspace.topology.connects
    for name in connects:
        if name not in known:
            raise InvalidArgument(
                "connect", f"no Connect cluster '{name}' in the tree; known: {', '.join(sorted(known))}"
            )


def _of(workspace: Workspace, names: Sequence[str], entries: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the entries about these names; the tree's error about one that neither it nor an entry knows."""
    chosen = set[str]()
    for name in names:
        here = {each.id for each in entries if _is_about(each, name)}
        try:
            ids = {flow.id for flow in workspace.flows((name,))}
        except Mm2mgrError:
            if not here:
                raise
            ids = set()
        chosen |= here | {each.id for each in entries if ids.intersection(each.flows)}
    return tuple(each for each in entries if each.id in chosen) if names else entries


def _is_about(entry: HistoryEntry, name: str) -> bool:
    flows = {name for flow in entry.flows for name in (flow, *flow.split(":", 1))}
    return name in flows | {entry.connector, f"{entry.connect}/{entry.connector}"}


@dataclass(frozen=True)
class DriftReport:
    """What was changed by hand. `failed`: Connect clusters that could not be read; `without_history`: those compared with the tree."""

    drifts: tuple[Drift, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    without_history: Mapping[str, str] = field(default_factory=dict)
    quotas: tuple[QuotaDrift, ...] = ()
    """Client quotas that were changed by hand."""
    failed_quotas: Mapping[str, str] = field(default_factory=dict)
    """Kafka clusters whose quotas could not be read, with the reason."""
    json_keys = "drift=drifts failed without_history quotas failed_quotas"


def drift(workspace: Workspace, flows: Sequence[str] = ()) -> DriftReport:
    """Compare what runs with what was applied last, for all connectors of this owner or those that serve `flows`.

    Where no history can be read, or it does not know a connector, the tree is compared: then a change of the tree that was not
    applied yet counts as well, and a connector that was deleted by hand is not found.
    """
    return workspace.ask(drift_of(workspace, flows))


def drift_of(workspace: Workspace, flows: Sequence[str]) -> Steps[DriftReport]:
    """Return the same from answers."""
    topology, connectors = workspace.topology, workspace.connectors
    chosen = workspace.connectors_of(workspace.flows(flows)) if flows else connectors
    connects = sorted({each.connect for each in chosen}) if flows else list(topology.connects)
    known, lives = yield from side_by_side(read_history(topology, connects), _running(connects))
    owners = Ownership.of(topology)
    there = {name: live for name, live in lives.items() if not isinstance(live, Mm2mgrError)}
    carriers = heartbeat_carriers(topology, connectors, RunningConnectors.of(owners, there))
    chosen = tuple(with_carriers(chosen, carriers))
    failed, found = dict[str, str](), list[Drift]()
    for name, live in lives.items():
        if isinstance(live, Mm2mgrError):
            failed[name] = live.one_line
            continue
        here = [connector for connector in chosen if connector.connect == name]
        names = {connector.name for connector in here}
        applied = {one: last for one, last in last_applied(known, name).items() if not flows or one in names}
        found += drifts(name, owners, here, applied, live)
    wanted = wanted_quotas(topology, chosen, user_of)
    ids = {each.entity.client_id for each in wanted}
    quotas = {
        named: rate for named, rate in applied_quotas(known).items() if not flows or any(one in named[1] for one in ids)
    }
    asked = {each.kafka for each in wanted} | {kafka for (kafka, _), rate in quotas.items() if rate is not None}
    read_there = yield from quotas_of(topology, asked)
    changed = [
        each
        for kafka, live in read_there.items()
        if not isinstance(live, str)
        for each in quota_drifts(topology.owner, wanted, quotas, kafka, live)
    ]
    unread = {kafka: why for kafka, why in read_there.items() if isinstance(why, str)}
    return DriftReport(tuple(found), failed, known.unread, tuple(changed), unread)


def applied_quotas(known: History) -> dict[tuple[str, str], float | None]:
    """Return what each client quota was last set to, by Kafka cluster and whom it is for; None: it was deleted."""
    found = dict[tuple[str, str], float | None]()
    for entry in known.entries:
        for key in entry.keys:
            name, _, kafka = str(key["key"]).partition(" on ")
            if name == RATE_KEY and kafka:
                with suppress(ValueError):  # no number of ours
                    found[kafka, entry.connector] = None if key["after"] is None else float(key["after"])
    return found


def _running(connects: Iterable[str]) -> Steps[dict[str, dict[str, RunningConnector] | Mm2mgrError]]:
    snapshot = yield [kind(name) for name in connects for kind in (Configs, Statuses)]

    def live(name: str) -> dict[str, RunningConnector] | Mm2mgrError:
        try:
            return with_statuses(snapshot[Configs(name)], snapshot[Statuses(name)])
        except Mm2mgrError as error:
            return error

    return {name: live(name) for name in connects}


def last_applied(known: History, connect: str) -> dict[str, LastApplied]:
    """Return what commands did last to each connector of a Connect cluster."""
    newest, states = dict[str, HistoryEntry](), dict[str, str | None]()
    for entry in known.entries:
        if entry.connect == connect:
            newest[entry.connector] = entry
            chosen = str(entry.state["after"]) if entry.state else None
            if entry.outcome not in {"failed", "rolled back"} and (chosen or entry.action in {"create", "delete"}):
                states[entry.connector] = chosen
    configs = {name: config for (where, name), config in known.applied.items() if where == connect}
    found = {}
    for name in configs.keys() | newest.keys():
        last = newest.get(name)
        is_unsure = last is not None and last.outcome in {"begun", "failed"}
        keys = last.keys if last and is_unsure else ()
        found[name] = LastApplied(
            configs.get(name),
            states.get(name),
            {key["key"]: (key["before"], key["after"]) for key in keys},
            is_unsure and last is not None and last.action in {"create", "delete"},
        )
    return found

"""What people changed by hand: live connectors compared with what was applied last, key by key. Pure.

What was applied comes from the history, secrets masked; for a connector that the history does not know, from the tree.
A state that a command chose is no drift. Who did it cannot be known: Connect keeps no names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.comparison.differences import KeyChange, with_live_order
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import SETTABLE, Connector, RunningConnector, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.quotas import RATE_KEY, ProducerQuotas
from mm2mgr.live.questions import Configs, Statuses
from mm2mgr.live.snapshot import Steps, side_by_side
from mm2mgr.plan.facts import quotas_of, user_of
from mm2mgr.plan.heartbeats import RunningConnectors, heartbeat_carriers, with_carriers
from mm2mgr.plan.history import History, HistoryEntry, read_history
from mm2mgr.plan.quotas import WantedQuota, rate_per_broker, wanted_quotas
from mm2mgr.plan.ways_back import with_holds
from mm2mgr.render import OWNER_KEY, quota_mark
from mm2mgr.secrets import MASK
from mm2mgr.topology import Topology

_OWN_KEYS = "mm2mgr."


@dataclass(frozen=True)
class LastApplied:
    """What commands did last to one connector, as the history has it.

    `config` is None where it does not know one. `state` is the one that a command chose, `unsure` the keys of a change
    whose outcome is not known, each with the values that it may have now.
    """

    config: Mapping[str, str] | None = None
    state: str | None = None
    unsure: Mapping[str, tuple[str | None, ...]] | None = None
    may_be_gone: bool = False


@dataclass(frozen=True)
class Drift:
    """A connector changed by hand: `keys` from applied to live, `state` likewise; `deleted` needs neither."""

    connect: str
    connector: str
    flows: tuple[str, ...]
    compared_with: Literal["history", "tree"]
    keys: tuple[KeyChange, ...] = ()
    state: tuple[str, str] | None = None
    deleted: bool = False

    json_keys = "connect connector flows compared_with deleted owner_mark keys state=state_change"

    @property
    def owner_mark(self) -> Literal["gone", "there"]:
        return "gone" if any(key.key == OWNER_KEY for key in self.keys) else "there"

    @property
    def state_change(self) -> dict[str, str] | None:
        return self.state and {"applied": self.state[0], "live": self.state[1]}


@dataclass(frozen=True)
class QuotaDrift:
    """One client quota that was changed by hand, in bytes per second on each broker (None: there is none). `quota`:
    whom it is for.
    """

    kafka: str
    quota: str
    flows: tuple[str, ...]
    compared_with: Literal["history", "tree"]
    applied: float | None
    live: float | None


AppliedQuotas = Mapping[tuple[str, str], float | None]
"""What each quota was last set to, as the history has it, by Kafka cluster and whom it is for."""


def quota_drifts(
    owner: str, quotas: Iterable[WantedQuota], applied: AppliedQuotas, kafka: str, live: ProducerQuotas
) -> Iterator[QuotaDrift]:
    """Yield the quotas of this owner on one Kafka cluster that were changed by hand; those that the history does not
    know are compared with the tree, where it wants them."""
    declared = {str(quota.entity): quota for quota in quotas if quota.kafka == kafka}
    there = {str(entity): rate for entity, rate in live.rates.items() if entity.client_id.startswith(quota_mark(owner))}
    for quota in sorted({*declared, *there, *(quota for alias, quota in applied if alias == kafka)}):
        tree, is_applied = declared.get(quota), (kafka, quota) in applied
        if tree is None and not is_applied:
            continue
        by_tree = rate_per_broker(tree.bytes_per_second, live.brokers) if tree else None
        before, now = applied[kafka, quota] if is_applied else by_tree, there.get(quota)
        if before != now:
            flows = tree.flows if tree else ()
            yield QuotaDrift(kafka, quota, flows, "history" if is_applied else "tree", before, now)


def drifts(
    connect: str,
    owners: Ownership,
    connectors: Iterable[Connector],
    applied: Mapping[str, LastApplied],
    live: Mapping[str, RunningConnector],
) -> Iterator[Drift]:
    """Yield what was changed by hand on a Connect cluster; connectors of others, and released ones, are left out."""
    declared = {connector.name: connector for connector in connectors}
    for name in sorted(declared.keys() | applied.keys()):
        tree, last, config = (
            declared.get(name),
            applied.get(name, LastApplied()),
            live[name].config if name in live else None,
        )
        flows = tree.flows if tree else ()
        if (connect, name) in owners.released:
            continue
        if config is None:
            if last.config is not None and not last.may_be_gone:
                yield Drift(connect, name, flows, "history", deleted=True)
            continue
        if tree is None and config.get(OWNER_KEY, owners.owner) != owners.owner:
            continue  # handed over to another owner
        if last.config is not None:
            keys = tuple(_change_of(with_live_order(last.config, config), config, last.unsure or {}))
        elif tree is not None and config.get(OWNER_KEY) == owners.owner:
            keys = tuple(_change_of(with_live_order(tree.config, config), config, {}))
        else:
            continue
        state = _state(live[name].state, last.state, tree.state if tree else None)
        if keys or state:
            yield Drift(connect, name, flows, "tree" if last.config is None else "history", keys, state)


def _change_of(
    applied: Mapping[str, str], live: Mapping[str, str], unsure: Mapping[str, tuple[str | None, ...]]
) -> Iterator[KeyChange]:
    for key in sorted(applied.keys() | live.keys()):
        if key.startswith(_OWN_KEYS) and key != OWNER_KEY:
            continue
        now = live.get(key)
        if not any(_is_same(config, now) for config in (applied.get(key), *unsure.get(key, ()))):
            yield KeyChange(key, applied.get(key), now)


def _is_same(applied: str | None, live: str | None) -> bool:
    """Compare a value that may be masked: of what was masked, only that there is a value is known."""
    if applied is None or live is None or MASK not in applied:
        return applied == live
    return re.fullmatch(".*".join(map(re.escape, applied.split(MASK))), live, re.DOTALL) is not None and live != ""


def _state(live: str, chosen: str | None, declared: str | None) -> tuple[str, str] | None:
    """Return the state that was applied and the live one, where somebody changed it by hand."""
    expected = chosen or declared or "RUNNING"
    return None if live not in SETTABLE or live in (expected, declared) else (expected, live)


# --- the whole estate -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftReport:
    """What was changed by hand. `failed`: unread Connect clusters; `without_history`: those compared with the tree."""

    drifts: tuple[Drift, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    without_history: Mapping[str, str] = field(default_factory=dict)
    quotas: tuple[QuotaDrift, ...] = ()
    """Client quotas that were changed by hand."""
    failed_quotas: Mapping[str, str] = field(default_factory=dict)
    """Kafka clusters whose quotas could not be read, with the reason."""
    json_keys = "drift=drifts failed without_history quotas failed_quotas"


def find_drift(
    topology: Topology, connectors: Sequence[Connector], chosen: Sequence[Connector] | None
) -> Steps[DriftReport]:
    """Compare the chosen connectors (None: all of this owner) with what was applied last."""
    connects = list(topology.connects) if chosen is None else sorted({connector.connect for connector in chosen})
    history, lives = yield from side_by_side(read_history(topology, connects), _read_running(connects))
    owners = Ownership.of_tree(topology)
    running = {name: live for name, live in lives.items() if not isinstance(live, Mm2mgrError)}
    live_connectors = RunningConnectors.from_live(owners, running)
    carriers = heartbeat_carriers(topology, connectors, live_connectors)
    declared = with_holds(with_carriers(connectors if chosen is None else chosen, carriers), live_connectors)
    connector_drifts = list[Drift]()
    for name, live in running.items():
        here = [connector for connector in declared if connector.connect == name]
        names = {connector.name for connector in here}
        applied = last_applied(history, name)
        if chosen is not None:
            applied = {connector: last for connector, last in applied.items() if connector in names}
        connector_drifts += drifts(name, owners, here, applied, live)
    wanted = wanted_quotas(topology, declared, user_of)
    client_ids = {quota.entity.client_id for quota in wanted}
    applied_rates = applied_quotas(history)
    if chosen is not None:
        applied_rates = {
            named: rate
            for named, rate in applied_rates.items()
            if any(client_id in named[1] for client_id in client_ids)
        }
    clusters = {quota.kafka for quota in wanted} | {
        kafka for (kafka, _), rate in applied_rates.items() if rate is not None
    }
    answers = yield from quotas_of(topology, clusters)
    quotas = tuple(
        drift
        for kafka, live_quotas in answers.items()
        if not isinstance(live_quotas, str)
        for drift in quota_drifts(topology.owner, wanted, applied_rates, kafka, live_quotas)
    )
    failed = {name: live.one_line for name, live in lives.items() if isinstance(live, Mm2mgrError)}
    failed_quotas = {kafka: reason for kafka, reason in answers.items() if isinstance(reason, str)}
    return DriftReport(tuple(connector_drifts), failed, history.unread, quotas, failed_quotas)


def applied_quotas(history: History) -> dict[tuple[str, str], float | None]:
    """Return what each client quota was last set to, by Kafka cluster and whom it is for; None: it was deleted."""
    rates = dict[tuple[str, str], float | None]()
    for entry in history.entries:
        for key in entry.keys:
            name, _, kafka = str(key["key"]).partition(" on ")
            if name == RATE_KEY and kafka:
                with suppress(ValueError):  # no number of ours
                    rates[kafka, entry.connector] = None if key["after"] is None else float(key["after"])
    return rates


def _read_running(connects: Iterable[str]) -> Steps[dict[str, dict[str, RunningConnector] | Mm2mgrError]]:
    snapshot = yield [kind(name) for name in connects for kind in (Configs, Statuses)]

    def live(name: str) -> dict[str, RunningConnector] | Mm2mgrError:
        try:
            return with_statuses(snapshot[Configs(name)], snapshot[Statuses(name)])
        except Mm2mgrError as error:
            return error

    return {name: live(name) for name in connects}


def last_applied(history: History, connect: str) -> dict[str, LastApplied]:
    """Return what commands did last to each connector of a Connect cluster."""
    newest, states = dict[str, HistoryEntry](), dict[str, str | None]()
    for entry in history.entries:
        if entry.connect == connect:
            newest[entry.connector] = entry
            chosen = str(entry.state["after"]) if entry.state else None
            if entry.outcome not in {"failed", "rolled back"} and (chosen or entry.action in {"create", "delete"}):
                states[entry.connector] = chosen
    configs = {name: config for (where, name), config in history.applied.items() if where == connect}
    applied = {}
    for name in configs.keys() | newest.keys():
        last = newest.get(name)
        is_unsure = last is not None and last.outcome in {"begun", "failed"}
        keys = last.keys if last and is_unsure else ()
        applied[name] = LastApplied(
            configs.get(name),
            states.get(name),
            {key["key"]: (key["before"], key["after"]) for key in keys},
            is_unsure and last is not None and last.action in {"create", "delete"},
        )
    return applied

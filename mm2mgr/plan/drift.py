"""What people changed by hand: live connectors compared with what was applied last, key by key. Pure.

What was applied comes from the history, secrets masked; for a connector that the history does not know, from the tree.
A state that a command chose is no drift. Who did it cannot be known: Connect keeps no names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.equivalence import with_live_order
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import SETTABLE, Connector, RunningConnector
from mm2mgr.json_values import to_json
from mm2mgr.kafka.quotas import ProducerQuotas
from mm2mgr.plan.quotas import WantedQuota, rate_per_broker
from mm2mgr.render import OWNER_KEY, quota_mark
from mm2mgr.secrets import MASK

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
    """One connector that was changed by hand. `keys` are from applied to live; `state` likewise; `deleted` needs
    neither.
    """

    connect: str
    connector: str
    flows: tuple[str, ...]
    compared_with: Literal["history", "tree"]
    keys: tuple[KeyChange, ...] = ()
    state: tuple[str, str] | None = None
    deleted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, secrets masked."""
        return {
            "connect": self.connect,
            "connector": self.connector,
            "flows": list(self.flows),
            "compared_with": self.compared_with,
            "deleted": self.deleted,
            "owner_mark": "gone" if any(key.key == OWNER_KEY for key in self.keys) else "there",
            "keys": to_json(self.keys),
            "state": self.state and {"applied": self.state[0], "live": self.state[1]},
        }


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
    """Yield what was changed by hand on one Connect cluster; connectors of others, and released ones, are passed
    over.
    """
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

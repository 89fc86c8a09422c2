"""The client quotas that catch-up limits become: those that are wanted, compared with those that brokers have. Pure.

A quota is this owner's by its client id, which begins with the owner's mark; no other is touched. Where quotas could
not be read, none is created or deleted. One stays as long as a connector may run with its client id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mm2mgr.connectors import Connector
from mm2mgr.json_values import to_json
from mm2mgr.kafka.quotas import DEFAULT, ProducerQuotas, QuotaEntity
from mm2mgr.remarks import Remark
from mm2mgr.render import CLIENT_ID_KEY, quota_mark
from mm2mgr.text import few
from mm2mgr.topology import Topology

ClientId = tuple[str, str]
"""A Kafka cluster that records are written to, and the client id of their producer."""


@dataclass(frozen=True)
class WantedQuota:
    """A quota on `kafka`, in bytes per second over all its brokers. `note`: why it is not for a user as well."""

    kafka: str
    entity: QuotaEntity
    bytes_per_second: float
    flows: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class QuotaChange:
    """What happens to a quota. `before`, `after`: bytes per second on each of `brokers` brokers; None: no quota.

    `bytes_per_second` is the limit that was declared, over all brokers (None: it is declared no longer). `reason` says
    why it is blocked or deleted, `notes` what else may decide instead of it.
    """

    kafka: str
    entity: QuotaEntity
    action: Literal["create", "update", "delete", "no-op", "blocked"]
    before: float | None = None
    after: int | None = None
    bytes_per_second: float | None = None
    brokers: int | None = None
    flows: tuple[str, ...] = ()
    reason: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_write(self) -> bool:
        return self.action not in {"no-op", "blocked"}

    def as_blocked(self, remark: Remark) -> QuotaChange:
        """Return the change as one that is not written."""
        return replace(self, action="blocked", after=None, reason=remark.text, remedy=remark.remedy)

    def to_dict(self) -> dict[str, object]:
        return {
            "kafka": self.kafka,
            "client_id": self.entity.client_id,
            "user": self.entity.user or None,
            "action": self.action,
            "before": self.before,
            "after": self.after,
            "bytes_per_second": self.bytes_per_second,
            "brokers": self.brokers,
            "flows": list(self.flows),
            "reason": self.reason,
            "remedy": self.remedy,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class QuotaResult:
    """What became of one change of a quota; `error` is None on success."""

    change: QuotaChange
    error: str | None = None
    hint: str | None = None

    def to_dict(self) -> dict[str, object]:
        named = {name: value for name, value in to_json(self.change).items() if name in _NAMING}
        return {**named, "ok": self.error is None, "error": self.error, "hint": self.hint}


_NAMING = ("kafka", "client_id", "user", "action", "before", "after", "flows")


@dataclass(frozen=True)
class UsedClientIds:
    """The client ids with this owner's mark that running connectors have: those of the connectors that a plan is about,
    and those that stay in use whatever it writes (None: any may, since a Connect cluster could not be read).
    `is_whole`: the plan is about the whole tree."""

    concerned: frozenset[ClientId] = frozenset()
    kept: frozenset[ClientId] | None = frozenset()
    is_whole: bool = True

    def is_kept(self, named: ClientId) -> bool:
        return self.kept is None or named in self.kept


def client_id_of(owner: str, config: Mapping[str, str]) -> ClientId | None:
    """Return the client id of a connector that a quota of this owner may be for; None where it has none."""
    client_id = config.get(CLIENT_ID_KEY, "")
    return (config.get("target.cluster.alias", ""), client_id) if client_id.startswith(quota_mark(owner)) else None


def wanted_quotas(
    topology: Topology, connectors: Iterable[Connector], user_of: Callable[[str, str], tuple[str, str]]
) -> tuple[WantedQuota, ...]:
    """Return the quotas of these connectors. `user_of` returns, for an alias and a sasl.jaas.config, the user and why
    there is none.

    Only where the connector itself brings the login of its record producer is a user part of the quota.
    """
    flows = {flow.id: flow for flow in topology.flows}
    quotas: dict[tuple[str, QuotaEntity], WantedQuota] = {}
    for connector in connectors:
        flow = flows[connector.flows[0]]
        if connector.type != "source" or (limit := flow.catch_up) is None:
            continue
        user, note = user_of(flow.target.alias, connector.config.get("producer.override.sasl.jaas.config", ""))
        entity = QuotaEntity(connector.config[CLIENT_ID_KEY], user)
        quota = WantedQuota(flow.target.alias, entity, limit.bytes_per_second, (), note)
        quota = quotas.setdefault((quota.kafka, entity), quota)
        quotas[quota.kafka, entity] = replace(quota, flows=(*quota.flows, flow.id))
    return tuple(quotas.values())


def quota_changes(
    owner: str, desired: Iterable[WantedQuota], read: Mapping[str, ProducerQuotas | str], used: UsedClientIds
) -> tuple[QuotaChange, ...]:
    """Compare wanted quotas with what was read of each Kafka cluster, or with why it could not be read."""
    desired = tuple(desired)
    return tuple(
        change
        for kafka, answer in sorted(read.items())
        for change in _changes_on(owner, kafka, [quota for quota in desired if quota.kafka == kafka], answer, used)
    )


def _changes_on(
    owner: str, kafka: str, desired: list[WantedQuota], answer: ProducerQuotas | str, used: UsedClientIds
) -> Iterator[QuotaChange]:
    ids = {quota.entity.client_id for quota in desired}
    if isinstance(answer, str):
        entities = {quota.entity: (quota.bytes_per_second, quota.flows) for quota in desired}
        gone = {named[1] for named in used.concerned if named[0] == kafka and not used.is_kept(named)} - ids
        for entity, (limit, flows) in [*entities.items(), *((QuotaEntity(name), (None, ())) for name in sorted(gone))]:
            unknown = QuotaChange(kafka, entity, "blocked", bytes_per_second=limit, flows=flows)
            yield replace(
                unknown, reason=f"quotas could not be read: {answer}", remedy="plan again when they can be read"
            )
        return
    for quota in desired:
        before, after = answer.rates.get(quota.entity), rate_per_broker(quota.bytes_per_second, answer.brokers)
        action: Literal["create", "update", "no-op"]
        action = "create" if before is None else "no-op" if before == after else "update"
        change = QuotaChange(
            kafka, quota.entity, action, before, after, quota.bytes_per_second, answer.brokers, quota.flows
        )
        yield replace(change, notes=tuple(_notes(quota, answer)))
    for entity, rate in sorted(answer.rates.items()):
        named = kafka, entity.client_id
        is_meant = used.is_whole or named in used.concerned or entity.client_id in ids
        is_ours = entity.client_id.startswith(quota_mark(owner)) and all(entity != quota.entity for quota in desired)
        if is_ours and is_meant and not used.is_kept(named):
            reason = (
                "no connector has its client id any more" if entity.client_id not in ids else "the login is another one"
            )
            yield QuotaChange(kafka, entity, "delete", rate, brokers=answer.brokers, reason=reason)


def rate_per_broker(bytes_per_second: float, brokers: int) -> int:
    """Return what each broker lets through, in whole bytes per second: brokers count a quota each by itself."""
    return max(1, int(bytes_per_second / max(brokers, 1)))


def _notes(wanted_quota: WantedQuota, answer: ProducerQuotas) -> Iterator[str]:
    """Yield why the quota is not for a user, and which others Kafka prefers to it (ClientQuotaManager's order)."""
    if wanted_quota.note:
        yield wanted_quota.note
    default = [
        entity
        for entity in answer.rates
        if entity.user == DEFAULT and entity.client_id in {"", DEFAULT, wanted_quota.entity.client_id}
    ]
    if default and not wanted_quota.entity.user:
        yield (
            f"Kafka prefers the quota of {few([str(entity) for entity in default])}, so this one has no effect on users"
            " without their own"
        )

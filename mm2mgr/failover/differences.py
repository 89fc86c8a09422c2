"""What clients miss on the target of a pair, beside records and offsets: ACLs, quotas, state of streams. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mm2mgr.kafka.acls import Acl, Right, is_allowed
from mm2mgr.kafka.quotas import ProducerQuotas, QuotaEntity

_STREAMS_SUFFIXES = ("-changelog", "-repartition")
_EVERYBODY = "User:*"
SHARE_GROUPS = "__share_group_state"
"""Kafka's topic of the state of share groups (KIP-932), which is there once one was used."""


def acl_gaps(
    source: Iterable[Acl], target: Iterable[Acl], remotes: Mapping[str, str], groups: Collection[str]
) -> Iterator[tuple[str, Right]]:
    """Yield principals that may read a mirrored topic, or as one of these groups, on the source and not on the target,
    with the right that is missing there.

    `remotes`: names on the target by topic. Of an ACL for many names one name stands for all. Super users have no ACL,
    and are not known.
    """
    by_principal: dict[str, list[Acl]] = defaultdict(list)
    for acl in target:
        by_principal[acl.principal].append(acl)
    done: set[tuple[str, Right]] = set()
    for acl in source:
        if not acl.allow or acl.operation not in {"Read", "All"} or acl.kind not in {"topic", "group"}:
            continue
        name = _first(acl, remotes if acl.kind == "topic" else groups)
        if name is None:
            continue
        right = Right("Read", acl.kind, remotes[name] if acl.kind == "topic" else name)
        there = (*by_principal[acl.principal], *(by_principal[_EVERYBODY] if acl.principal != _EVERYBODY else ()))
        if (acl.principal, right) not in done and is_allowed(there, acl.principal, right) is False:
            done.add((acl.principal, right))
            yield acl.principal, right


def _first(acl: Acl, names: Collection[str]) -> str | None:
    if not acl.prefixed and acl.name != "*":
        return acl.name if acl.name in names else None
    return next((name for name in names if acl.name == "*" or name.startswith(acl.name)), None)


def quota_gaps(
    source: ProducerQuotas, target: ProducerQuotas, is_ours: Callable[[QuotaEntity], bool]
) -> list[QuotaEntity]:
    """Return for whom producers' quotas over all brokers differ between two clusters; ours are left out."""
    entities = {*source.rates, *target.rates}

    def total(quotas: ProducerQuotas, entity: QuotaEntity) -> float | None:
        rate = quotas.rates.get(entity)
        return None if rate is None else rate * quotas.brokers

    return sorted(
        entity for entity in entities if not is_ours(entity) and total(source, entity) != total(target, entity)
    )


@dataclass(frozen=True)
class StreamsState:
    """A Kafka Streams application by its id, which is its group, and its topics with state or data on their way."""

    application: str
    topics: tuple[str, ...]


def streams_states(topics: Iterable[str], groups: Collection[str]) -> list[StreamsState]:
    """Return the Streams applications among the groups, by name: their internal topics are named after them."""
    by_application: dict[str, list[str]] = defaultdict(list)
    for topic in sorted(topics):
        if topic.endswith(_STREAMS_SUFFIXES) and (application := _prefix_in(topic, groups)):
            by_application[application].append(topic)
    return [StreamsState(application, tuple(names)) for application, names in sorted(by_application.items())]


def _prefix_in(topic: str, groups: Collection[str]) -> str:
    """Return the longest group of which the topic's name is one of its internal topics', "" where there is none."""
    parts = topic.split("-")
    return next((name for end in range(len(parts) - 1, 0, -1) if (name := "-".join(parts[:end])) in groups), "")

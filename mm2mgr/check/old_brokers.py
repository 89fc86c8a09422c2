"""Brokers that are too old for Connect workers of Kafka 4.0 and newer, whose clients dropped old versions of requests (KIP-896). Pure.

The least version of each request is from `validVersions` in Kafka's message files (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mm2mgr.check.judge import CheckRow
from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

FIRST_WORKERS = (4, 0)
"""Before, clients took every version of a request."""
OLDEST_SUPPORTED = "2.1"
_FETCH = 1
_FETCH_OF_OLDEST = 10
_BY_HAND = "compare the brokers' versions by hand (kafka-broker-api-versions.sh)"
# The highest version of Fetch tells an older line.
_LINES = {2: "0.10.0", 3: "0.10.1 or 0.10.2", 5: "0.11", 6: "1.0", 7: "1.1", 8: "2.0"}


@dataclass(frozen=True)
class Switch:
    """A key that decides whether a request is sent, Kafka's default of it, and how a tree turns it off."""

    key: str
    default: str
    off: str

    def is_on(self, config: Mapping[str, str]) -> bool:
        return config.get(self.key, self.default).strip().lower() == "true"


_ACLS = Switch("sync.topic.acls.enabled", "true", "sync: {topic_acls: false}")
_CONFIGS = Switch("sync.topic.configs.enabled", "true", "sync: {topic_configs: false}")
_GROUPS = Switch("sync.group.offsets.enabled", "false", "checkpoints: {group_offsets: false}")


@dataclass(frozen=True)
class Request:
    """A request that a connector sends to one side, and its least version since 4.0; `only_with` decides whether it is sent."""

    key: int
    name: str
    least: int
    side: Literal["source", "target"]
    type: ConnectorType
    effect: str
    only_with: Switch | None = None


REQUESTS = (
    Request(1, "Fetch", 4, "source", "source", "no record is read"),
    Request(2, "ListOffsets", 1, "source", "source", "no record is read"),
    Request(32, "DescribeConfigs", 1, "source", "source", "no topic is created on the target"),
    Request(29, "DescribeAcls", 1, "source", "source", "ACLs are not copied", _ACLS),
    Request(9, "OffsetFetch", 1, "source", "checkpoint", "no group's offsets are translated"),
    Request(0, "Produce", 3, "target", "source", "no record is written"),
    Request(19, "CreateTopics", 2, "target", "source", "no topic is created"),
    Request(30, "CreateAcls", 1, "target", "source", "ACLs are not copied", _ACLS),
    Request(44, "IncrementalAlterConfigs", 0, "target", "source", "the connector fails as it copies topic settings, and nothing is mirrored", _CONFIGS),
    Request(0, "Produce", 3, "target", "checkpoint", "no checkpoint is written"),
    Request(8, "OffsetCommit", 2, "target", "checkpoint", "no group's offsets are set", _GROUPS),
    Request(0, "Produce", 3, "target", "heartbeat", "no heartbeat is written"),
)  # fmt: skip


def new_workers(connectors: Sequence[Connector], versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return the version of each Connect cluster of these connectors whose clients dropped old requests, as far as known."""
    names = dict.fromkeys(connector.connect for connector in connectors)
    known = {name: version for name in names if (version := versions.get(name))}
    return {name: version for name, version in known.items() if numbers(kafka_version(version) or "") >= FIRST_WORKERS}


def old_broker_rows(
    connectors: Sequence[Connector],
    workers: Mapping[str, str],
    answers: Mapping[str, Mapping[int, tuple[int, int]] | None],
) -> Iterator[CheckRow]:
    """Yield a row for each cluster and the new workers that use it; `answers` of its brokers by alias, None: they could not be asked."""
    users: dict[tuple[str, str], list[tuple[Connector, str]]] = {}
    for connector in connectors:
        for side in ("source", "target"):
            # A heartbeat connector has no client on its source.
            if connector.connect in workers and (side == "target" or connector.type != "heartbeat"):
                alias = connector.config[f"{side}.cluster.alias"]
                users.setdefault((alias, connector.connect), []).append((connector, side))
    for (alias, connect), used in users.items():
        names = tuple(dict.fromkeys(f"{connector.connect}/{connector.name}" for connector, _ in used))
        yield _row(alias, f"Kafka {workers[connect]} ({connect})", names, _needed(used), answers.get(alias))


def _needed(used: Sequence[tuple[Connector, str]]) -> list[Request]:
    return [
        request
        for request in REQUESTS
        if any(
            (request.side, request.type) == (side, connector.type)
            and (request.only_with is None or request.only_with.is_on(connector.config))
            for connector, side in used
        )
    ]


def _row(
    alias: str,
    workers: str,
    connectors: tuple[str, ...],
    needed: Sequence[Request],
    answer: Mapping[int, tuple[int, int]] | None,
) -> CheckRow:
    what = f"brokers that workers of {workers} can use"
    if answer is None:
        effect = f"no broker said which requests it takes; these workers cannot use brokers before {OLDEST_SUPPORTED}"
        return CheckRow("unknown", alias, what, connectors=connectors, effect=effect, fix=_BY_HAND)
    line = _line(answer)
    missing = [request for request in needed if answer.get(request.key, (0, -1))[1] < request.least]
    if missing:
        lacks = ", ".join(dict.fromkeys(f"{request.name} {request.least}" for request in missing))
        results = "; ".join(dict.fromkeys(request.effect for request in missing))
        effect = f"these brokers{line} do not take {lacks}: {results}"
        return CheckRow("failed", alias, what, connectors=connectors, effect=effect, fix=_remedy(missing))
    if line:
        effect = f"these brokers{line} take what is sent, but Kafka neither supports nor tests them with workers since 4.0 (KIP-896)"
        return CheckRow("unknown", alias, what, connectors=connectors, effect=effect, fix=_remedy(missing))
    return CheckRow("ok", alias, what, connectors=connectors)


def _line(answer: Mapping[int, tuple[int, int]]) -> str:
    """Return the line of brokers before 2.1, as the end of their name; "" for newer ones."""
    highest = answer.get(_FETCH, (0, _FETCH_OF_OLDEST))[1]
    if highest >= _FETCH_OF_OLDEST:
        return ""
    return f" of Kafka {_LINES[highest]}" if highest in _LINES else f", older than Kafka {OLDEST_SUPPORTED},"


def _remedy(missing: Sequence[Request]) -> str:
    switches = dict.fromkeys(request.only_with.off for request in missing if request.only_with)
    can_do_without = missing and all(request.only_with for request in missing)
    others = f", or set {' and '.join(switches)}" if can_do_without else ""
    oldest = "2.3" if any(request.name == "IncrementalAlterConfigs" for request in missing) else OLDEST_SUPPORTED
    return f"run these flows on workers of Kafka 3.9, or upgrade the brokers to {oldest} or newer{others}"

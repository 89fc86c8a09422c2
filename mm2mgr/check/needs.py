"""Which rights MirrorMaker's clients need, and what is seen when one is left out: a table, and the needs of given connectors. Pure.

In: rendered connectors and what is known to exist. Out: one Need per client and resource. Rows 1 to 24 were left out one at a
time on brokers of Kafka 4.3.1 that deny by default (tests/check/test_acls_live.py asks for each); 25 to 27 come with a topic of offsets (KIP-618).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from mm2mgr import defaults
from mm2mgr.check.logins import Login, login_of
from mm2mgr.kafka.acls import Right
from mm2mgr.render import Connector, Type
from mm2mgr.spec.patterns import is_name
from mm2mgr.topology import Flow, Topology
from mm2mgr.truth.reach import Client, Setting, clients

On = Literal["topic", "remote topic", "offset syncs", "checkpoints", "heartbeats", "offsets", "group", "cluster"]


@dataclass(frozen=True)
class Row:
    """One right that a type of connector needs. `key`: only when this config key is true; `beside`: only with that client."""

    number: int
    type: Type
    client: str
    operation: str
    on: On
    effect: str
    key: str = ""
    beside: str = ""


_CREATED_BY_PRODUCER = (
    "the task fails at its first record; a producer that may create topics makes it with the brokers' defaults"
)
_NO_SYNCS = "records flow, but no offset is ever translated for consumer groups"
_NO_CHECKPOINTS = "everything is RUNNING and no checkpoint is written; the log says so once"
_ACLS, _CONFIGS, _GROUPS = "sync.topic.acls.enabled", "sync.topic.configs.enabled", "sync.group.offsets.enabled"

_TYPES = get_args(Type)

ROWS: tuple[Row, ...] = (
    Row(1, "source", "source admin", "Describe", "topic", "the topic is not mirrored, without a word in any log"),
    Row(2, "source", "source admin", "DescribeConfigs", "topic", f"it is not created on the target: {_CREATED_BY_PRODUCER}"),
    Row(3, "source", "source consumer", "Read", "topic", "RUNNING, and not one record is read"),
    Row(4, "source", "target admin", "Create", "remote topic", _CREATED_BY_PRODUCER),
    Row(5, "source", "target admin", "Describe", "remote topic", "its partitions cannot be compared with the source's"),
    Row(6, "source", "target admin", "Alter", "remote topic", "partitions added on the source are never added here"),
    Row(7, "source", "record producer", "Write", "remote topic", "the task fails at its first record"),
    Row(8, "source", "target admin", "AlterConfigs", "remote topic", "later changes of topic settings are not copied", key=_CONFIGS),
    Row(9, "source", "source admin", "Describe", "cluster", "ACLs are not copied", key=_ACLS),
    Row(10, "source", "target admin", "Alter", "cluster", "ACLs are not copied", key=_ACLS),
    Row(11, "source", "offset-syncs admin", "Create", "offset syncs", _NO_SYNCS),
    Row(12, "source", "offset-syncs producer", "Write", "offset syncs", _NO_SYNCS),
    Row(13, "checkpoint", "source admin", "Describe", "group", "its offsets are not translated; if it is listed all the same, nobody's are"),
    Row(14, "checkpoint", "source admin", "Describe", "topic", "offsets on it are not translated, without a word in any log"),
    Row(15, "checkpoint", "offset-syncs admin", "Describe", "offset syncs", _NO_CHECKPOINTS),
    Row(16, "checkpoint", "offset-syncs consumer", "Read", "offset syncs", _NO_CHECKPOINTS),
    Row(17, "checkpoint", "target admin", "Create", "checkpoints", "everything is RUNNING, but the topic never appears"),
    Row(18, "checkpoint", "target admin", "Describe", "checkpoints", _NO_CHECKPOINTS, beside="checkpoints consumer"),
    Row(19, "checkpoint", "checkpoints consumer", "Read", "checkpoints", "after a restart, offsets of records mirrored before it are not translated"),
    Row(20, "checkpoint", "record producer", "Write", "checkpoints", "the task fails"),
    Row(21, "checkpoint", "target admin", "Read", "group", "its offsets are never set on the target", key=_GROUPS),
    Row(22, "checkpoint", "target admin", "Read", "remote topic", "offsets on it are never set on the target", key=_GROUPS),
    Row(23, "heartbeat", "target admin", "Create", "heartbeats", "the task fails"),
    Row(24, "heartbeat", "record producer", "Write", "heartbeats", "the task fails"),
    *(Row(25, each, "record producer", "Write", "offsets", "the task fails when it stores offsets") for each in _TYPES),
    *(Row(26, each, "framework offsets consumer", "Read", "offsets", "the task cannot read where it left off") for each in _TYPES),
    *(Row(27, each, "framework admin", "Create", "offsets", "the topic of offsets is not there and the task fails") for each in _TYPES),
)  # fmt: skip
EFFECTS = {row.number: row.effect for row in ROWS}


@dataclass(frozen=True)
class Need:
    """A right that one client of a connector needs; `number` is its row, `connector` is `connect/name`."""

    number: int
    connector: str
    client: str
    login: Login
    right: Right


@dataclass(frozen=True)
class Known:
    """Topics that exist by alias, and by pair the groups whose offsets its checkpoint connector translates."""

    topics: Mapping[str, Collection[str]] = field(default_factory=dict)
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)


def needs(
    topology: Topology, connectors: Sequence[Connector], known: Known, versions: Mapping[str, str | None]
) -> Iterator[Need]:
    """Yield what the connectors need; `versions` are Kafka's of the workers by Connect cluster, as far as known."""
    for connector in connectors:
        there = present(connector, versions.get(connector.connect))
        named = _Names(topology, connector, known)
        for row in ROWS:
            client = there.get(row.client)
            if row.type != connector.type or client is None or (row.beside and row.beside not in there):
                continue
            if row.key and connector.config.get(row.key, "false").lower() != "true":
                continue
            login = login_of(client, connector, topology)
            for right in named.rights(row):
                yield Need(row.number, f"{connector.connect}/{connector.name}", row.client, login, right)


def present(connector: Connector, version: str | None = None) -> dict[str, Client]:
    """Return the clients that a connector has, by name."""
    setting = Setting.of(connector.config, version) if version else Setting.of(connector.config)
    return {client.name: client for client in clients(connector.type, setting)}


def mirrored(flow: Flow, topics: Collection[str], *, heartbeats: bool = False) -> list[str]:
    """Return the topics that a flow mirrors: those it names, and those that exist; with its heartbeats where it carries them."""
    named = {name for name in flow.settings.topics.include if is_name(name)}
    found = {topic for topic in named.union(topics) if flow.carries(topic)}
    if heartbeats:
        judge = flow.selection
        found |= {"heartbeats"} | {
            topic for topic in topics if judge.is_heartbeats(topic) and not judge.is_cycle(topic)
        }
    return sorted(found)


def knows_names(flow: Flow) -> bool:
    """Tell whether the names of a flow's topics on the target are known: not with a replication policy of one's own."""
    return flow.policy in defaults.POLICIES.values()


class _Names:
    """The resources that a connector touches."""

    def __init__(self, topology: Topology, connector: Connector, known: Known) -> None:
        self.connector = connector
        self.flows = topology.flows_of(connector.flows)
        self.known = known

    def rights(self, row: Row) -> list[Right]:
        if row.on == "cluster":
            return [Right(row.operation, "cluster")]
        if row.on == "group":
            return [
                Right(row.operation, "group", name) for name in sorted(self.known.groups.get(self.flows[0].pair, ()))
            ]
        return [Right(row.operation, "topic", name) for name in self.topics(row.on)]

    def topics(self, on: On) -> list[str]:
        config = self.connector.config
        mark = config.get("replication.policy.separator", ".")
        if on in ("topic", "remote topic"):
            return self.records(remote=on == "remote topic")
        if on == "heartbeats":
            return ["heartbeats"]
        if on == "offsets":
            return [config["offsets.storage.topic"]] if config.get("offsets.storage.topic") else []
        if on == "checkpoints":
            return [mark.join([config["source.cluster.alias"], "checkpoints", "internal"])]
        other = "target" if config.get("offset-syncs.topic.location", "source") == "source" else "source"
        return [mark.join(["mm2-offset-syncs", config[f"{other}.cluster.alias"], "internal"])]

    def records(self, *, remote: bool) -> list[str]:
        beats = self.connector.config.get("heartbeats.replication.enabled", "false") == "true"
        there = self.known.topics.get(self.flows[0].source.alias, ())
        pairs = [(flow, topic) for flow in self.flows for topic in mirrored(flow, there, heartbeats=beats)]
        if remote:
            return sorted({flow.remote_topic(topic) for flow, topic in pairs if knows_names(flow)})
        return sorted({topic for _, topic in pairs})

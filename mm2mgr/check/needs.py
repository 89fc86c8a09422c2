"""The rights that MirrorMaker's clients need, with the effect of a missing one, the needs and principals of given
connectors, and the entries of overrides/brokers.yaml: what brokers allow, and the topics that flows write to. Pure.

For rows 1 to 24, each right was removed from brokers of Kafka 4.3.1 that deny by default (tests/check/test_acls_live.py
checks each); rows 25 to 27 apply to connectors with an offsets topic of their own (KIP-618); those from 28 on are
rights of mm2mgr itself. Row 42 is told and not asked for: Connect tells nobody the name of its workers' group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from mm2mgr import defaults
from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.acls import CLUSTER_NAME, ResourceKind, Right
from mm2mgr.link import BY_SYSTEM
from mm2mgr.live.dedicated import configs_topic, dedicated_names
from mm2mgr.live.questions import PartitionCounts
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.rights import BrokerSettings, RecordLimits
from mm2mgr.live.snapshot import Steps
from mm2mgr.log_places import OfGroup
from mm2mgr.spec.models import BrokersRead
from mm2mgr.spec.scalars import is_name, log_place
from mm2mgr.topology import Flow, KafkaCluster, Topology, audit_group, lease_group, watch_group
from mm2mgr.truth.reach import Client, Setting, clients, settings

OWN = "mm2mgr itself"
On = Literal[
    "topic", "remote topic", "offset syncs", "checkpoints", "heartbeats", "offsets", "group", "cluster",
    "history", "lease", "watch lease", "audit lease", "audited topic",
    "dedicated offsets", "dedicated status", "dedicated configs", "dedicated group", "quotas", "workers' group",
    "start group", "judged cluster", "judged syncs", "judged checkpoints", "judged group", "moved group",
]  # fmt: skip
_GROUPS_OF: tuple[On, ...] = (
    "group", "lease", "watch lease", "audit lease", "dedicated group", "workers' group", "start group",
    "judged group", "moved group",
)  # fmt: skip
_KINDS: dict[On, ResourceKind] = {
    "cluster": "cluster",
    "quotas": "cluster",
    "judged cluster": "cluster",
    **dict.fromkeys(_GROUPS_OF, "group"),
}  # all others are topics


@dataclass(frozen=True)
class RightRule:
    """One right that a type of connector, or mm2mgr, needs.

    `key`: only when this config key is true; `beside`: only with that client.
    """

    number: int
    type: ConnectorType | Literal["mm2mgr"]
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
_NO_LEASE = (
    "`reconcile` gets no lease and writes nothing there; `apply` writes, and says that another process may write at the"
    " same time"
)
_NO_WATCH_LEASE = "`watch` gets no lease and restarts nothing there"
_NO_AUDIT_LEASE = (
    "`audit --follow` and `serve --with audit` get no lease: they audit all the same, perhaps beside another process"
)
_NO_QUOTAS = "quotas of `catch_up` cannot be read, so none is written or deleted; all else is planned and applied"
_NO_LIMIT = "quotas of `catch_up` are not written; flows mirror without a limit, and `apply` ends with exit code 1"
_NO_CONFIG = "`status` does not see whether a dedicated MirrorMaker that came back mirrors the same topics"
_NO_WORKERS_GROUP = (
    "`plan` of `balance: plugin` does not see workers that run nothing: it goes by `workers: {count: …}`, and without"
    " that the plugin's class is not written"
)
_NOT_TAKEN = "`moved:` cannot take over from the dedicated MirrorMaker"
_ACLS, _CONFIGS, _GROUPS = "sync.topic.acls.enabled", "sync.topic.configs.enabled", "sync.group.offsets.enabled"

_TYPES = get_args(ConnectorType)

ROWS: tuple[RightRule, ...] = (
    RightRule(1, "source", "source admin", "Describe", "topic", "the topic is not mirrored, and no log says so"),
    RightRule(2, "source", "source admin", "DescribeConfigs", "topic",
        f"it is not created on the target: {_CREATED_BY_PRODUCER}"),
    RightRule(3, "source", "source consumer", "Read", "topic",
        "RUNNING, but no record is read; thousands of refusals per second fill the logs"),
    RightRule(4, "source", "target admin", "Create", "remote topic", _CREATED_BY_PRODUCER),
    RightRule(5, "source", "target admin", "Describe", "remote topic",
        "its partitions cannot be compared with the source's"),
    RightRule(6, "source", "target admin", "Alter", "remote topic",
        "partitions added on the source are never added here"),
    RightRule(7, "source", "record producer", "Write", "remote topic", "the task fails at its first record"),
    RightRule(8, "source", "target admin", "AlterConfigs", "remote topic",
        "later changes of topic settings are not copied", key=_CONFIGS),
    RightRule(9, "source", "source admin", "Describe", "cluster", "ACLs are not copied", key=_ACLS),
    RightRule(10, "source", "target admin", "Alter", "cluster", "ACLs are not copied", key=_ACLS),
    RightRule(11, "source", "offset-syncs admin", "Create", "offset syncs", _NO_SYNCS),
    RightRule(12, "source", "offset-syncs producer", "Write", "offset syncs", _NO_SYNCS),
    RightRule(13, "checkpoint", "source admin", "Describe", "group",
        "its offsets are not translated; if it is listed anyway, no group's offsets are"),
    RightRule(14, "checkpoint", "source admin", "Describe", "topic",
        "offsets on it are not translated, and no log says so"),
    RightRule(15, "checkpoint", "offset-syncs admin", "Describe", "offset syncs", _NO_CHECKPOINTS),
    RightRule(16, "checkpoint", "offset-syncs consumer", "Read", "offset syncs", _NO_CHECKPOINTS),
    RightRule(17, "checkpoint", "target admin", "Create", "checkpoints",
        "everything is RUNNING, but the topic never appears"),
    RightRule(18, "checkpoint", "target admin", "Describe", "checkpoints",
        _NO_CHECKPOINTS, beside="checkpoints consumer"),
    RightRule(19, "checkpoint", "checkpoints consumer", "Read", "checkpoints",
        "after a restart, offsets of records mirrored before it are not translated"),
    RightRule(20, "checkpoint", "record producer", "Write", "checkpoints", "the task fails"),
    RightRule(21, "checkpoint", "target admin", "Read", "group",
        "its offsets are never set on the target", key=_GROUPS),
    RightRule(22, "checkpoint", "target admin", "Read", "remote topic",
        "offsets on it are never set on the target", key=_GROUPS),
    RightRule(23, "heartbeat", "target admin", "Create", "heartbeats", "the task fails"),
    RightRule(24, "heartbeat", "record producer", "Write", "heartbeats", "the task fails"),
    *(RightRule(25, kind, "record producer", "Write", "offsets",
        "the task fails when it stores offsets") for kind in _TYPES),
    *(RightRule(26, kind, "framework offsets consumer", "Read", "offsets",
        "the task cannot read where it left off") for kind in _TYPES),
    *(RightRule(27, kind, "framework admin", "Create", "offsets",
        "the offsets topic does not exist, and the task fails") for kind in _TYPES),
    RightRule(28, "mm2mgr", OWN, "Write", "history",
        "apply and the verbs do their work and say that the history was not written"),
    RightRule(29, "mm2mgr", OWN, "Create", "history",
        "the history is not written until the topic is created: one partition, cleanup.policy=compact"),
    RightRule(30, "mm2mgr", OWN, "Read", "history",
        f"no `history`; `drift` compares with the tree; {_NO_LEASE}; {_NO_WATCH_LEASE}"),
    RightRule(31, "mm2mgr", OWN, "Read", "lease", _NO_LEASE),
    RightRule(38, "mm2mgr", OWN, "Read", "watch lease", _NO_WATCH_LEASE),
    RightRule(39, "mm2mgr", OWN, "Read", "audit lease", _NO_AUDIT_LEASE),
    RightRule(40, "mm2mgr", OWN, "Read", "audited topic", "`audit` cannot read its records: the topic is not judged"),
    RightRule(41, "mm2mgr", OWN, "DescribeConfigs", "audited topic",
        "`audit` does not know whether it is compacted: the topic is not judged"),
    RightRule(32, "mm2mgr", OWN, "Read", "dedicated offsets", _NOT_TAKEN),
    RightRule(33, "mm2mgr", OWN, "Read", "dedicated status", _NOT_TAKEN),
    RightRule(34, "mm2mgr", OWN, "Describe", "dedicated group", _NOT_TAKEN),
    RightRule(35, "mm2mgr", OWN, "DescribeConfigs", "quotas", _NO_QUOTAS),
    RightRule(37, "mm2mgr", OWN, "Read", "dedicated configs", _NO_CONFIG),
    RightRule(36, "mm2mgr", OWN, "AlterConfigs", "quotas", _NO_LIMIT),
    RightRule(42, "mm2mgr", OWN, "Describe", "workers' group", _NO_WORKERS_GROUP),
    RightRule(43, "mm2mgr", OWN, "Describe", "start group",
        "no `start: {group: NAME}`: the flow is not created; no `offsets reset --from-group`"),
    RightRule(44, "mm2mgr", OWN, "Describe", "judged cluster",
        "`failover check` does not see every group, nor ACLs, of that cluster: not judged"),
    RightRule(45, "mm2mgr", OWN, "Read", "judged syncs", "`failover check` translates no offset: not judged"),
    RightRule(46, "mm2mgr", OWN, "Read", "judged checkpoints", "`failover check` sees no checkpoint: not judged"),
    RightRule(47, "mm2mgr", OWN, "Describe", "judged group",
        "`failover check` does not see its offsets there: not judged"),
    RightRule(48, "mm2mgr", OWN, "Read", "moved group",
        "`failover run` cannot write its offsets, and refuses before it stops anything"),
)  # fmt: skip
EFFECTS = {row.number: row.effect for row in ROWS}


@dataclass(frozen=True)
class RequiredRight:
    """A right that one client of a connector needs; `number`: its row, `connector`: `connect/name`, "" for mm2mgr."""

    number: int
    connector: str
    client: str
    login: ClientLogin
    right: Right


ExistingNames = tuple[Mapping[str, Collection[str]], Mapping[str, Collection[str]]]
"""Topics that exist by alias, and by pair the groups whose offsets its checkpoint connector translates."""


def needs(
    topology: Topology, connectors: Sequence[Connector], existing: ExistingNames, versions: Mapping[str, str | None]
) -> Iterator[RequiredRight]:
    """Yield what the connectors need; `versions` are Kafka's of the workers by Connect cluster, as far as known."""
    for connector in connectors:
        by_name = {client.name: client for client in clients_of(connector, versions.get(connector.connect))}
        names_of = _resources(topology, connector, existing)
        for row in ROWS:
            client = by_name.get(row.client)
            if row.type != connector.type or client is None or (row.beside and row.beside not in by_name):
                continue
            if row.key and connector.config.get(row.key, "false").lower() != "true":
                continue
            login = login_of(client, connector, topology)
            for name in names_of[row.on]:
                right = Right(row.operation, _KINDS.get(row.on, "topic"), name)
                yield RequiredRight(row.number, f"{connector.connect}/{connector.name}", row.client, login, right)


def own_needs(
    topology: Topology,
    connectors: Sequence[Connector],
    existing: ExistingNames,
    login_on: Callable[[str], ClientLogin],
) -> Iterator[RequiredRight]:
    """Yield what mm2mgr itself needs for history, leases, quotas, declared audits and failovers, starts and take-overs.

    `login_on`: its login by alias.
    """
    connects = [topology.connects[name] for name in {connector.connect for connector in connectors}]
    flow_ids = {flow_id for connector in connectors for flow_id in connector.flows}
    flows = topology.flows_of(flow_ids)
    audited = [flow for flow in flows if flow.settings.audit]
    audited_from = {flow.connect.kafka for flow in audited}
    for alias in sorted({connect.kafka for connect in connects if connect.model.history}):
        names: dict[On, str] = {"history": HISTORY_TOPIC, "lease": lease_group(topology)}
        names |= {"watch lease": watch_group(topology)}
        names |= {"audit lease": audit_group(topology)} if alias in audited_from else {}
        yield from _own_rights(login_on(alias), names)
    for alias in sorted({flow.target.alias for flow in flows if flow.catch_up}):
        yield from _own_rights(login_on(alias), {"quotas": CLUSTER_NAME})
    for flow in audited:
        topics = mirrored_topics(flow, existing[0].get(flow.source.alias, ()))
        mirrors = [flow.remote_topic(topic) for topic in topics] if knows_names(flow) else []
        for alias, topics_there in ((flow.source.alias, topics), (flow.target.alias, mirrors)):
            for topic in topics_there:
                yield from _own_rights(login_on(alias), {"audited topic": topic})
    for flow in flows:
        place = log_place(flow.start) if flow.start else None
        if isinstance(place, OfGroup):
            yield from _own_rights(login_on(flow.source.alias), {"start group": place.group})
    yield from _failover_needs(flows, existing, login_on)
    for entry in topology.moved:
        if entry.dedicated and entry.to in flow_ids:
            (flow,) = topology.flows_of({entry.to})
            source = entry.dedicated[0]
            offsets, status, group = dedicated_names(source)
            yield from _own_rights(
                login_on(flow.target.alias),
                {
                    "dedicated offsets": offsets,
                    "dedicated status": status,
                    "dedicated group": group,
                    "dedicated configs": configs_topic(source),
                },
            )


def _failover_needs(
    flows: Iterable[Flow], existing: ExistingNames, login_on: Callable[[str], ClientLogin]
) -> Iterator[RequiredRight]:
    """Yield what mm2mgr needs to judge pairs that declare `failover`, and to write their groups' offsets."""
    by_pair = {flow.pair: flow for flow in flows if flow.failover and flow.with_checkpoints}
    for pair, flow in sorted(by_pair.items()):
        source, target, mark = flow.source.alias, flow.target.alias, flow.selection.internal_separator
        on_source = flow.settings.offset_syncs.location == "source"
        syncs_at, other = (source, target) if on_source else (target, source)
        syncs = mark.join(("mm2-offset-syncs", other, "internal"))
        yield from _own_rights(login_on(syncs_at), {"judged syncs": syncs})
        yield from _own_rights(login_on(target), {"judged checkpoints": flow.selection.checkpoints_topic})
        for alias in (source, target):
            yield from _own_rights(login_on(alias), {"judged cluster": CLUSTER_NAME})
            for group in sorted(existing[1].get(pair, ())):
                yield from _own_rights(login_on(alias), {"judged group": group})
                if alias == target:
                    yield from _own_rights(login_on(alias), {"moved group": group})


def _own_rights(login: ClientLogin, names: Mapping[On, str]) -> Iterator[RequiredRight]:
    for row in ROWS:
        if row.on in names:
            right = Right(row.operation, _KINDS.get(row.on, "topic"), names[row.on])
            yield RequiredRight(row.number, "", row.client, login, right)


def clients_of(connector: Connector, version: str | None = None) -> list[Client]:
    """Return the clients that a connector has."""
    setting = Setting.from_config(connector.config, version) if version else Setting.from_config(connector.config)
    return list(clients(connector.type, setting))


def mirrored_topics(flow: Flow, topics: Collection[str], *, heartbeats: bool = False) -> list[str]:
    """Return the topics that a flow mirrors: those it names, and those that exist; heartbeats if it carries them."""
    names = {name for name in flow.settings.topics.include if is_name(name)}
    carried = {topic for topic in names.union(topics) if flow.carries(topic)}
    if heartbeats:
        carried |= {"heartbeats"} | {topic for topic in topics if flow.selection.takes_heartbeats(topic)}
    return sorted(carried)


def knows_names(flow: Flow) -> bool:
    """Tell whether the names of a flow's topics on the target are known: not with a replication policy of one's own."""
    return flow.policy in defaults.POLICIES.values()


def _resources(topology: Topology, connector: Connector, existing: ExistingNames) -> dict[On, list[str]]:
    config, flows = connector.config, topology.flows_of(connector.flows)
    mark, source = config.get("replication.policy.separator", "."), config["source.cluster.alias"]
    heartbeats = config.get("heartbeats.replication.enabled", "false") == "true"
    topics_there, groups_there = existing
    topics = topics_there.get(flows[0].source.alias, ())
    pairs = [(flow, topic) for flow in flows for topic in mirrored_topics(flow, topics, heartbeats=heartbeats)]
    syncs_on_source = config.get("offset-syncs.topic.location", "source").strip() == "source"
    storage = config.get("offsets.storage.topic")
    return {
        "topic": sorted({topic for _, topic in pairs}),
        "remote topic": sorted({flow.remote_topic(topic) for flow, topic in pairs if knows_names(flow)}),
        "offset syncs": [
            mark.join(["mm2-offset-syncs", config["target.cluster.alias"] if syncs_on_source else source, "internal"])
        ],
        "checkpoints": [mark.join([source, "checkpoints", "internal"])],
        "heartbeats": ["heartbeats"],
        "offsets": [storage] if storage else [],
        "group": sorted(groups_there.get(flows[0].pair, ())),
        "cluster": [CLUSTER_NAME],
    }


_BOOTSTRAP = "bootstrap.servers"


def login_of(client: Client, connector: Connector, topology: Topology) -> ClientLogin:
    """Return the login of one client of a connector."""
    config = connector.config
    side = "source" if client.side == "source" else "target"
    alias = config[f"{side}.cluster.alias"]
    own = settings(client, config)
    if client.side in ("source", "target"):
        return ClientLogin.from_config(alias, own)
    # Connect's own clients start from the workers' settings, which are not in the tree; what it says of that cluster is
    # said of the workers.
    declared = {key: str(value) for key, value in topology.clusters[alias].client.items()}
    is_whole = "security.protocol" in own
    login = {**({_BOOTSTRAP: declared[_BOOTSTRAP]} if is_whole else declared), **own}
    return ClientLogin.from_config(alias, login, assumed=not is_whole and len(declared) > 1)


_VERSION = "inter.broker.protocol.version"  # the only setting that names a version; Kafka 4.0 removed it
_OLDEST_WITHOUT = "4.0"
_SIZES = tuple(size.alias for size in BrokersRead.model_fields.values() if size.alias)
Entry = dict[str, Any]


@dataclass
class BrokerAnswers:
    """What clusters answered, by alias: entries of brokers, topics, and max.message.bytes of topics."""

    brokers: dict[str, Entry] = field(default_factory=dict)
    topics: dict[str, Collection[str]] = field(default_factory=dict)
    limits: dict[str, Mapping[str, int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def entries(self, topology: Topology, before: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
        """Return the entries of the clusters that answered, with the limits of the flows that write to each."""
        entries = {}
        for alias, entry in self.brokers.items():
            if alias in self.failures:
                continue
            earlier = before.get(alias, {}).get("flows") or {}
            flows: dict[str, int] = {}
            limits = self.limits.get(alias, {})
            for flow in sorted(topology.flows, key=lambda flow: flow.id):
                if flow.target.alias != alias:
                    continue
                topics = self.written_topics(flow)
                sizes = [limits[topic] for topic in topics if topic in limits]
                if flow.source.alias not in self.topics or len(sizes) < len(topics):  # not all could be read
                    sizes += [earlier[flow.id]] if flow.id in earlier else []
                if sizes:
                    flows[flow.id] = min(sizes)
            # What the brokers' own limit says as well needs no line.
            own = {flow_id: size for flow_id, size in flows.items() if size != entry["message.max.bytes"]}
            entries[alias] = entry | ({"flows": own} if own else {})
        return entries

    def written_topics(self, flow: Flow) -> list[str]:
        """Return the topics on the target that a flow writes to and that exist."""
        names = mirrored_topics(flow, self.topics.get(flow.source.alias, ())) if knows_names(flow) else []
        return [name for name in map(flow.remote_topic, names) if name in self.topics.get(flow.target.alias, ())]


def ask_brokers(topology: Topology, chosen: Iterable[KafkaCluster]) -> Steps[BrokerAnswers]:
    """Ask the chosen clusters; one that does not answer is a failure, and hides nothing of the others."""
    answers = BrokerAnswers()
    targets = [cluster.alias for cluster in chosen]
    sources = {flow.source.alias for flow in topology.flows if flow.target.alias in targets}
    aliases = [alias for alias in topology.clusters if alias in sources.union(targets)]
    snapshot = yield [*map(PartitionCounts, aliases), *map(BrokerSettings, targets)]
    for alias in aliases:
        topics = snapshot.get(PartitionCounts(alias))
        configs = snapshot.get(BrokerSettings(alias)) if alias in targets else {}
        error = next((answer for answer in (configs, topics) if isinstance(answer, Mm2mgrError)), None)
        if error and alias in targets:
            answers.failures[alias] = error.message + (f" ({error.hint})" if error.hint else "")
        elif error:
            answers.remarks.append(f"{error.message}; limits of topics that flows from there write to stay as they are")
        if isinstance(topics, Mm2mgrError) or isinstance(configs, Mm2mgrError):
            continue
        answers.topics[alias] = topics.keys()
        if configs:
            answers.brokers[alias], remarks = smallest(alias, configs)
            answers.remarks += remarks
    questions = list(_record_limits(topology, targets, answers))
    snapshot = yield questions
    for question in questions:
        limits = snapshot.get(question)
        if isinstance(limits, Mm2mgrError):
            answers.failures[question.cluster] = limits.message + (f" ({limits.hint})" if limits.hint else "")
            continue
        answers.limits[question.cluster] = limits
        if refused := sorted(set(question.topics) - limits.keys()):
            unread = f"max.message.bytes of {len(refused)} topics cannot be read, such as {refused[0]}"
            answers.remarks.append(f"{question.cluster}: {unread}: this login needs DescribeConfigs on them")
    answers.remarks.sort()
    return answers


def _record_limits(topology: Topology, targets: Iterable[str], answers: BrokerAnswers) -> Iterator[RecordLimits]:
    for alias in targets:
        flows = (flow for flow in topology.flows if flow.target.alias == alias)
        topics = {topic for flow in flows for topic in answers.written_topics(flow)}
        if alias in answers.topics and topics:
            yield RecordLimits(alias, tuple(sorted(topics)))


def smallest(alias: str, configs: Mapping[int, Mapping[str, str]]) -> tuple[Entry, list[str]]:
    """Return the entry of a cluster, and a remark for each setting in which its brokers differ."""
    versions = (_version(settings) for settings in configs.values())
    entry: Entry = {"count": len(configs), "version": min(versions, key=_order)}
    remarks = []
    for key in _SIZES:
        by_broker = {broker: int(settings[key]) for broker, settings in configs.items()}
        entry[key] = min(by_broker.values(), key=lambda size: math.inf if size == BY_SYSTEM else size)
        if len(set(by_broker.values())) > 1:
            sizes = ", ".join(f"{size} on broker {broker}" for broker, size in sorted(by_broker.items()))
            remarks.append(f"{alias}: brokers differ in {key} ({sizes}); the smallest counts")
    return entry, remarks


def _version(configs: Mapping[str, str]) -> str:
    return configs[_VERSION].partition("-")[0] if _VERSION in configs else _OLDEST_WITHOUT


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())

"""What a connector and each client of it effectively get: from its config, its workers, Connect, MirrorMaker and Kafka.

Values are those that Java reads, with the mistakes of their writer: `a.b.c = 5 # five` is no number. Sources: as those
of `truth.reach` and `truth.keys`; ConnectorConfig, AbstractHerder.validateConnectorConfig, DefaultTopicFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from mm2mgr.assignment_text import ASSIGNMENT_KEY, is_plugin_class
from mm2mgr.comparison.differences import meaning
from mm2mgr.connectors import CLASSES, Connector, ConnectorType, type_of
from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers
from mm2mgr.formats.mm2_properties import Line
from mm2mgr.formats.properties import java_value
from mm2mgr.topology import ConnectCluster, KafkaCluster
from mm2mgr.truth.classes import KAFKA
from mm2mgr.truth.explain import RENAMED, policy_name, policy_refuses
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import (
    CLUSTER_KEYS,
    ConfiguredClient,
    Setting,
    Value,
    clients,
    framework_defaults,
    numbers,
    winners,
)

POLICY, ALLOWLIST = "connector.client.config.override.policy", "connector.client.config.override.allowlist"
ADDRESS = "bootstrap.servers"
CONVERTERS = ("key.converter", "value.converter", "header.converter")
_BYTES = "ByteArrayConverter"
_OWN_OFFSETS_CHECKED = (3, 3)  # before, the policy was asked about producer.override. only
# Given to MirrorMaker's clients as objects; its consumers are assigned their partitions, and have no group.
_OF_NO_EFFECT = frozenset({"key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "group.id"})
_CLIENT_PLUGINS = (
    *("metric.reporters", "interceptor.classes", "partitioner.class", "partition.assignment.strategy"),
    *("sasl.login.class", "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"),
    *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "ssl.engine.factory.class"),
)
_CONNECTOR_PLUGINS = (
    *("replication.policy.class", "topic.filter.class", "group.filter.class", "config.property.filter.class"),
    *("forwarding.admin.class", "metric.reporters"),
)
_NAMED_ELSEWHERE = frozenset({"name", "connector.class", "source.cluster.alias", "target.cluster.alias"})
_OF_PROCESSES = frozenset({"config.providers", "security.providers"})  # defined for connectors, and read by none
_PREFIXES_OF_PLUGINS = ("transforms.", "predicates.", "topic.creation.")


@dataclass(frozen=True, eq=False)
class EffectiveConnector:
    """A connector of MirrorMaker on workers of one Kafka version."""

    connector: FoundConnector
    type: ConnectorType
    version: str
    workers: FoundWorkers = field(default_factory=lambda: FoundWorkers({}))

    @cached_property
    def config(self) -> Mapping[str, str]:
        """Its config as Java reads it, in the names of today where the version still reads old ones (KIP-629)."""
        config = {key: value.strip() for key, value in config_of(self.connector).items()}
        for old, new in RENAMED.items():
            if old in config and load().find(self.type, old, self.version):
                value = config.pop(old)
                config.setdefault(new, value)
        return config

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return self.workers.properties

    @cached_property
    def setting(self) -> Setting:
        return Setting.from_config(self.config, self.version, exactly_once=self.workers.exactly_once)

    @cached_property
    def clients(self) -> dict[str, ConfiguredClient]:
        """Its clients by name."""
        return {
            client.name: ConfiguredClient(
                client, self.setting, self.config, self.properties, winners(client, self.config)
            )
            for client in clients(self.type, self.setting)
        }

    # --- clients ------------------------------------------------------------------------------------------------------

    def names_of(self, client: ConfiguredClient) -> set[str]:
        """Return the plain keys that config, workers, Connect or MirrorMaker set for a client."""
        names = {*client.written, *framework_defaults(client.client, self.setting, load())}
        for prefix in client.client.worker_prefixes:
            inherited = {key.removeprefix(prefix) for key in self.properties if key.startswith(prefix)} - {"client.id"}
            names |= inherited if prefix else {key for key in inherited if self.definition_of(client, key)}
        return names | ({ADDRESS} if client.client.worker_prefixes else set())

    def definition_of(self, client: ConfiguredClient, plain: str) -> Key | None:
        return load().find(client.client.kind, plain, self.version)

    def value_of(self, client: ConfiguredClient, plain: str) -> Value | None:
        """Return what a client gets, None for nothing, and for what it never looks at."""
        own = client.client.worker_prefixes
        if plain in _OF_NO_EFFECT and not own:
            return None
        if self.definition_of(client, plain) is None and not self.has_plugins(client):
            return None
        if plain.startswith(("sasl.", "ssl.")) and not self._speaks(client, plain.partition(".")[0]):
            return None
        if plain == ADDRESS and own and client.own_value(ADDRESS) is None:
            servers = self.properties.get(ADDRESS)
            return None if servers is None else Value(ADDRESS, servers.strip(), "workers", ADDRESS)
        return client.value(plain)

    def _speaks(self, client: ConfiguredClient, kind: str) -> bool:
        """Tell whether a client's security.protocol has SASL, or TLS; a placeholder may be any."""
        protocol = client.value("security.protocol")
        return protocol is None or "${" in protocol.value or kind.upper() in protocol.value.upper()

    def has_plugins(self, client: ConfiguredClient) -> bool:
        """Tell whether classes that are not Kafka's get the whole config of a client, and may read any key of it."""
        names = (value.value for key in _CLIENT_PLUGINS if (value := client.own_value(key)))
        return any(_is_foreign(name) for name in names)

    # --- the connector itself -----------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> set[str]:
        """The keys of the connector itself that are written, and what comes from its workers."""
        return {key for key in (*self.config, *CONVERTERS) if self.reads(key)}

    def reads(self, key: str) -> bool:
        """Tell whether something of the connector reads a key that is no client's."""
        if (
            key in _NAMED_ELSEWHERE
            or key in CLUSTER_KEYS
            or key in _OF_PROCESSES
            or (key == "tasks.max" and self.type == "heartbeat")
        ):
            return False
        if key.startswith("mm2mgr."):
            return key == ASSIGNMENT_KEY and is_plugin_class(self.connector.class_name)
        if key.startswith(_PREFIXES_OF_PLUGINS):
            return self._reads_plugin_key(key)
        converter = next((name for name in CONVERTERS if key.startswith(f"{name}.")), "")
        if converter:
            return not self.config.get(converter, _BYTES).endswith(_BYTES)
        if load().find(self.type, key, self.version):
            return not self._is_idle(key)
        return self.has_own_plugins and not is_of_mirror_maker(key) and not self.is_of_client(key)

    def is_of_client(self, key: str) -> bool:
        """Tell whether a client of such a connector has a prefix for a key."""
        return any(layer.plain(key) for client in self.clients.values() for layer in client.client.layers)

    def _reads_plugin_key(self, key: str) -> bool:
        kind, _, rest = key.partition(".")
        if kind == "topic":
            groups = [*_items(self.config.get("topic.creation.groups", "")), "default"]
            return key == "topic.creation.groups" or rest.removeprefix("creation.").partition(".")[0] in groups
        return rest.partition(".")[0] in _items(self.config.get(kind, ""))

    def _is_idle(self, key: str) -> bool:
        """Tell whether a key belongs to something that is switched off."""
        switches = [key.removesuffix(".interval.seconds") + ".enabled"] if key.endswith(".interval.seconds") else []
        switches += ["emit.offset-syncs.enabled"] if key.startswith(("offset-syncs.topic.", "offset.lag.max")) else []
        return any(self._is_off(switch) for switch in switches)

    def _is_off(self, switch: str) -> bool:
        definition = load().find(self.type, switch, self.version)
        return definition is not None and self.config.get(switch, definition.default or "").lower() == "false"

    @cached_property
    def has_own_plugins(self) -> bool:
        """Whether classes that are not Kafka's get its whole config, and may read any key of it."""
        return any(_is_foreign(self.config.get(key, "")) for key in _CONNECTOR_PLUGINS)

    def own_value(self, key: str) -> Value | None:
        """Return what the connector itself gets; None for nothing, and where only its unknown workers decide."""
        if not self.reads(key):
            return None
        if key in self.config:
            return Value(key, self.config[key], "connector", key)
        if key in CONVERTERS:
            definition = load().find("worker", key, self.version)
            from_workers = self.properties.get(key)
            if from_workers is not None:
                return Value(key, from_workers.strip(), "workers", key)
            has_all = "key.converter" in self.properties  # workers do not start without; a tree has none of theirs
            usual = definition.default if definition and has_all else None
            return None if usual is None else Value(key, usual, "Kafka")
        default = self._default(key)
        return None if default is None else Value(key, default, "Kafka")

    def _default(self, key: str) -> str | None:
        definition = load().find(self.type, key, self.version)
        if definition is not None:
            return definition.default
        kind, _, rest = key.partition(".")
        alias, _, plain = rest.partition(".")
        if kind not in ("transforms", "predicates"):
            return None
        plugin = self.config.get(f"{kind}.{alias}.type", "")
        return next((key.default for key in load().settings(plugin, self.version) if key.name == plain), None)

    @cached_property
    def refused_keys(self) -> tuple[str, ...]:
        """The overrides for which its workers refuse it (400), as far as their policy is known; see `truth.explain`."""
        since_3_3 = numbers(self.version) >= _OWN_OFFSETS_CHECKED
        prefixes = ["producer.override."]
        prefixes += ["consumer.override."] if since_3_3 and self.setting.has("own offsets") else []
        prefixes += ["admin.override."] if since_3_3 and self.setting.has("framework admin") else []
        listed = [*_items(self.properties.get(ALLOWLIST, ""))]
        keys = sorted(key for key in self.config if key.startswith(tuple(prefixes)))
        return tuple(key for key in keys if policy_refuses(self.policy, key.partition(".override.")[2], listed))

    @cached_property
    def policy(self) -> str:
        """The override policy of its workers by its short name; their version's default where it is not known."""
        definition = load().find("worker", POLICY, self.version)
        named = self.workers.policy or self.properties.get(POLICY, "") or (definition.default if definition else "")
        return policy_name(named or "")


def config_of(connector: FoundConnector) -> dict[str, str]:
    """Return a connector's config as Java reads its file, where readers correct what was meant."""

    def text(key: str, value: str) -> str:
        entry = connector.lines.get(key)
        if entry is None or entry.raw == "null":
            return value
        is_line = isinstance(entry, Line) and entry.raw != f'"{entry.value}"'  # lines may come from YAML, too
        return java_value(entry) if is_line else entry.value

    return {key: text(key, value) for key, value in connector.config.items()}


def with_declared_workers(
    connector: Connector, connects: Mapping[str, ConnectCluster], clusters: Mapping[str, KafkaCluster]
) -> FoundConnector:
    """Return a connector of a tree as readers of files return them, with the workers that the tree declares.

    A tree says little of them: their version, whether they are exactly-once, and their Kafka cluster. With
    `producer_security: worker` their clients reach it as the tree says that it is reached.
    """
    connect = connects[connector.connect]
    return FoundConnector(
        connector.name,
        connector.config.get("connector.class", ""),
        connector.config,
        state=connector.state,
        owner=connector.connect,
        workers=declared_workers(connect, clusters[connect.kafka]),
    )


def declared_workers(connect: ConnectCluster, kafka: KafkaCluster) -> FoundWorkers:
    """Return what a tree says of the workers of a Connect cluster."""
    properties = {key: str(value) for key, value in kafka.client.items()}
    if connect.model.producer_security == "worker":
        kinds = ("producer.", "consumer.", "admin.")
        properties |= {kind + key: str(value) for kind in kinds for key, value in kafka.client.items()}
    properties[EXACTLY_ONCE_KEY] = "enabled" if connect.exactly_once else "disabled"
    return FoundWorkers(properties, version=connect.model.version)


def effective(connector: FoundConnector, version: str, workers: FoundWorkers | None) -> EffectiveConnector:
    """Return a connector with its clients; `workers` where its file does not say more of them."""
    type_ = type_of(connector.class_name)
    if type_ is None:
        raise ValueError(f"{connector.class_name} is no connector of MirrorMaker")
    return EffectiveConnector(connector, type_, version, workers or FoundWorkers({}))


def meaning_of(key: str, text: str, kind: str) -> object:
    """Return what a value means: see `comparison.differences`; numbers and Kafka's classes in any spelling too."""
    text = text.strip()
    if kind in ("int", "long", "short", "double"):
        number = _number(text, float if kind == "double" else int)
        return text if number is None else number
    if kind == "class" and "." not in text:
        return _classes_by_simple_name().get(text, text)
    return meaning(key, text, kind)


def _number(text: str, kind: Callable[[str], float]) -> float | None:
    try:
        return kind(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


@cache
def _classes_by_simple_name() -> dict[str, str]:
    """Return Kafka's plugins by the names that Connect takes instead (PluginUtils)."""
    names: dict[str, str] = {}
    for purpose in ("converter", "header converter", "transformation", "predicate"):
        for line in load().lines:
            for name in load().classes(purpose, line):
                simple = name.rpartition(".")[2]
                names |= {simple: name, simple.removesuffix("Converter"): name}
    return names


def is_of_mirror_maker(key: str) -> bool:
    """Tell whether a connector of MirrorMaker defines a key in some version."""
    return any(load().history(type_, key) for type_ in CLASSES.values())


def _is_foreign(text: str) -> bool:
    return any(not name.startswith(KAFKA) for name in _items(text))


def _items(text: str) -> Iterator[str]:
    return (item for part in text.split(",") if (item := part.strip()))


@cache
def changed_defaults(scope: str, version: str, other: str) -> frozenset[str]:
    """Return the keys of a scope whose defaults differ between two versions, or that only one of them has."""
    if load().line(version) == load().line(other):
        return frozenset()
    names = {*load().names(scope, version), *load().names(scope, other)}
    keys = ((name, load().find(scope, name, version), load().find(scope, name, other)) for name in names)
    return frozenset(
        name
        for name, key, later in keys
        if "<" not in name and (key.default if key else None) != (later.default if later else None)
    )

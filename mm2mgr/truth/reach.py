"""Which client of a connector reads a key, which spelling wins, and what the client gets for it, from whom.

In this order: the connector's config (the spelling with the highest rank), the workers' properties, what Connect or
MirrorMaker sets, Kafka's default; keys that cannot be set get the last two only. Sources: MirrorConnectorConfig and
Connect's Worker. A test compares every row with what these classes of each line answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

from mm2mgr.connectors import ConnectorType
from mm2mgr.spec.scalars import CONNECTOR_KEYS_LIKE_PREFIXES, SECURITY_KEYS
from mm2mgr.truth.keys import Keys, load

ClientKind = Literal["producer", "consumer", "admin"]
Side = Literal["source", "target", "records", "offsets"]
Exists = Literal["always", "syncs on source", "syncs on target", "own offsets", "framework admin"]

# The first versions with …
_SIDED = (2, 8)  # source.producer. and source.consumer., for one cluster
_SYNCS_LOCATION = (3, 0)  # offset-syncs.topic.location (KIP-716)
_OWN_OFFSETS = (3, 3)  # exactly-once workers and offsets.storage.topic (KIP-618)
_SYNCS_ADMIN = (3, 4, 1)  # KAFKA-12468
_READ_BACK = (3, 7, 1)  # KAFKA-15905
_SYNCS_OFF = (3, 9)  # emit.offset-syncs.enabled (KIP-1031)
# Known to MirrorClientConfig since 4.1; older lines drop them, and their clients do not know them either.
_OAUTH_SINCE_4_1 = frozenset(
    f"sasl.oauthbearer.{name}"
    for name in (
        *("jwt.retriever.class", "jwt.validator.class", "scope"),
        *("client.credentials.client.id", "client.credentials.client.secret"),
        *("assertion.algorithm", "assertion.file", "assertion.template.file"),
        *("assertion.private.key.file", "assertion.private.key.passphrase"),
        *("assertion.claim.aud", "assertion.claim.iss", "assertion.claim.sub", "assertion.claim.jti.include"),
        *("assertion.claim.exp.seconds", "assertion.claim.nbf.seconds"),
    )
)
# What `source.cluster.` and `target.cluster.` let pass: MirrorClientConfig.CLIENT_CONFIG_DEF has no security.providers.
CLUSTER_KEYS = (SECURITY_KEYS - {"security.providers"}) | _OAUTH_SINCE_4_1 | {"bootstrap.servers"}


@dataclass(frozen=True)
class Layer:
    """A prefix in the connector config; `filtered` lets only the names of MirrorClientConfig pass and drops the rest.

    Versions before `since` do not read it.
    """

    prefix: str
    filtered: bool = False
    since: tuple[int, ...] = ()

    def plain(self, key: str) -> str | None:
        """Return the client's name of `key`, None when this layer does not pass it."""
        name = key.removeprefix(self.prefix)
        if name == key or not name or key in CONNECTOR_KEYS_LIKE_PREFIXES:
            return None
        # `producer.` also catches `producer.override.x`, as the unknown key `override.x` that every client ignores.
        if name.startswith("override.") or (self.filtered and name not in CLUSTER_KEYS):
            return None
        return name


@dataclass(frozen=True)
class Client:
    """A Kafka client of a connector; `layers` from lowest to highest, `forced` are keys that cannot be set.

    `role` is how its client.id ends (MirrorMaker's own, KAFKA-14838) or starts (the framework's); `worker_prefixes` are
    what it takes from the worker's properties, below every layer; `block` is the setting of a flow that stands for it.
    Versions before `since` do not create it.
    """

    name: str
    kind: ClientKind
    role: str
    side: Side
    layers: tuple[Layer, ...]
    exists: Exists = "always"
    worker_prefixes: tuple[str, ...] = ()
    block: str | None = None
    forced: frozenset[str] = frozenset()
    since: tuple[int, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What decides which clients there are: Kafka's version and five facts about connector and worker."""

    version: str = "4.3.1"
    offset_syncs_location: str = "source"
    offsets_storage_topic: bool = False
    exactly_once: bool = False
    topic_creation: bool = False
    offset_syncs: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, str], version: str = "4.3.1", *, exactly_once: bool = False) -> Setting:
        """Read the facts from a connector's config, as far as the version knows them; exactly-once is the workers'."""
        line = numbers(version)
        return cls(
            version,
            config.get("offset-syncs.topic.location", "source").strip() if line >= _SYNCS_LOCATION else "source",
            line >= _OWN_OFFSETS and bool(config.get("offsets.storage.topic", "").strip()),
            exactly_once and line >= _OWN_OFFSETS,
            any(key.startswith("topic.creation.") for key in config),
            line < _SYNCS_OFF or config.get("emit.offset-syncs.enabled", "true").strip().lower() != "false",
        )

    def has(self, exists: Exists) -> bool:
        """Tell whether a client with this condition exists."""
        own_offsets = self.offsets_storage_topic or self.exactly_once
        return {
            "always": True,
            "syncs on source": self.offset_syncs and self.offset_syncs_location == "source",
            "syncs on target": self.offset_syncs and self.offset_syncs_location == "target",
            "own offsets": own_offsets,
            "framework admin": own_offsets or self.topic_creation,
        }[exists]


@dataclass(frozen=True)
class Reached:
    """A client that reads a key: the plain key, and the rank of the prefix (higher wins)."""

    client: Client
    key: str
    prefix: str
    rank: int


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers to compare, `3.7` before `3.7.1`; what follows a dash does not count."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


def _own(
    name: str, role: str, exists: Exists = "always", block: str | None = None, since: tuple[int, ...] = ()
) -> Client:
    """Return a client that MirrorMaker itself creates; all of them have the same three prefixes.

    The last word of its name is its kind. It is the source's unless its role names the target.
    """
    kind: ClientKind = next(kind for kind in get_args(ClientKind) if name.endswith(kind))
    side: Side = "target" if "-target-" in role else "source"
    sided = Layer(f"{side}.{kind}.", since=() if kind == "admin" else _SIDED)
    layers = (Layer(f"{side}.cluster.", filtered=True), Layer(f"{kind}."), sided)
    # MirrorConnectorConfig puts this one last.
    forced = frozenset({"enable.auto.commit"}) if kind == "consumer" else frozenset()
    return Client(name, kind, role, side, layers, exists, block=block, forced=forced, since=since)


def _syncs(
    kind: ClientKind, on_source: str | None, on_target: str, since: tuple[int, ...] = ()
) -> tuple[Client, Client]:
    name, since_target = f"offset-syncs {kind}", max(since, _SYNCS_LOCATION)
    return (
        _own(name, f"offset-syncs-source-{kind}", "syncs on source", on_source, since),
        _own(name, f"offset-syncs-target-{kind}", "syncs on target", on_target, since_target),
    )


def _framework(records_block: str | None) -> tuple[Client, ...]:
    """Return the clients that Connect's Worker creates for any source connector; it reads only these prefixes."""
    producer, consumer, admin = ((Layer(f"{kind}.override."),) for kind in ("producer", "consumer", "admin"))
    return (
        Client(
            "record producer",
            "producer",
            "connector-producer",
            "records",
            producer,
            "always",
            ("producer.",),
            records_block,
        ),
        Client(
            "framework offsets consumer",
            "consumer",
            "connector-consumer",
            "offsets",
            consumer,
            "own offsets",
            ("consumer.",),
            since=_OWN_OFFSETS,
        ),
        Client(
            "framework admin", "admin", "connector-adminclient", "offsets", admin, "framework admin", ("", "admin.")
        ),
    )


# What an exactly-once worker decides itself, whatever anybody writes (Worker.exactlyOnceSourceTaskProducerConfigs,
# KIP-618).
EXACTLY_ONCE_FORCES = {
    "record producer": frozenset({"enable.idempotence", "transactional.id"}),
    "framework offsets consumer": frozenset({"isolation.level"}),
}

CLIENTS: dict[ConnectorType, tuple[Client, ...]] = {
    "source": (
        _own("source consumer", "replication-consumer", block="source_consumer"),
        *_framework("record_producer"),
        _own("source admin", "replication-source-admin", block="source_admin"),
        _own("target admin", "replication-target-admin", block="target_admin"),
        *_syncs("producer", "offset_syncs_producer", "offset_syncs_producer"),
        *_syncs("admin", "source_admin", "target_admin"),
    ),
    "checkpoint": (
        *_framework(None),
        _own("source admin", "checkpoint-source-admin", block="source_admin"),
        _own("target admin", "checkpoint-target-admin", block="target_admin"),
        *_syncs("consumer", None, "target_consumer"),
        *_syncs("admin", "source_admin", "target_admin", _SYNCS_ADMIN),
        _own("checkpoints consumer", "checkpoints-target-consumer", block="target_consumer", since=_READ_BACK),
    ),
    # Written so that heartbeats land on the flow's source: there `target` is the cluster that the flow reads from.
    "heartbeat": (*_framework(None), _own("target admin", "heartbeats-target-admin", block="source_admin")),
}


def clients(type_: ConnectorType, setting: Setting) -> tuple[Client, ...]:
    """Return the clients of such a connector."""
    existing = tuple(client for client in clients_of_line(type_, setting.version) if setting.has(client.exists))
    if not setting.exactly_once:
        return existing
    return tuple(
        replace(client, forced=client.forced | EXACTLY_ONCE_FORCES.get(client.name, frozenset())) for client in existing
    )


@lru_cache
def clients_of_line(type_: ConnectorType, version: str) -> tuple[Client, ...]:
    """Return the clients that such connectors can have in a Kafka version, whatever their config."""
    line = numbers(version)
    existing = (client for client in CLIENTS[type_] if client.since <= line)
    return tuple(_of_line(client, line) for client in existing)


def _of_line(client: Client, line: tuple[int, ...]) -> Client:
    layers = tuple(layer for layer in client.layers if layer.since <= line)
    # 2.7 sets it last; newer lines only where nothing else did.
    reset = {"auto.offset.reset"} if client.kind == "consumer" and line < _SIDED else set()
    return replace(client, layers=layers, forced=client.forced | reset)


def seen_by(client: Client, key: str) -> tuple[Reached, ...]:
    """Return how a client reads a key, forced keys included; ranks count from the lowest prefix."""
    names = ((rank, layer, layer.plain(key)) for rank, layer in enumerate(client.layers))
    return tuple(Reached(client, plain, layer.prefix, rank) for rank, layer, plain in names if plain is not None)


def winners(client: Client, config: Mapping[str, str]) -> Mapping[str, str]:
    """Return plain key -> the key of the connector config that wins for this client."""
    return _winners(client, tuple(config))


@lru_cache(maxsize=4096)  # values do not matter here, and of thousands of connectors most have the same keys
def _winners(client: Client, keys: tuple[str, ...]) -> Mapping[str, str]:
    hits = [(hit.rank, hit.key, key) for key in keys for hit in seen_by(client, key) if hit.key not in client.forced]
    return {plain: key for _, plain, key in sorted(hits)}  # the highest rank comes last and stays


def settings(client: Client, config: Mapping[str, str]) -> dict[str, str]:
    """Return what a connector's config sets for a client, by plain key."""
    return {plain: config[key].strip() for plain, key in winners(client, config).items()}


def framework_defaults(client: Client, setting: Setting, keys: Keys) -> dict[str, str]:
    """Return the defaults that Connect or MirrorMaker sets for a client; they override Kafka's."""
    if client.name == "record producer":
        name = "record_producer_exactly_once" if setting.exactly_once else "record_producer"
    elif client.kind == "consumer":
        name = "offsets_consumer" if client.worker_prefixes else f"{client.side}_consumer"
    else:
        return {}
    return keys.framework_defaults(name, setting.version)


def framework(client: Client) -> str:
    """Return who sets these defaults of a client."""
    return "Connect" if client.worker_prefixes else "MirrorMaker"


@dataclass(frozen=True)
class Value:
    """A setting of a client; `written_as` is the key that sets it, of connector or workers, None for a default."""

    key: str
    value: str
    origin: str
    written_as: str | None = None


@dataclass(frozen=True, eq=False)
class ConfiguredClient:
    """A client of a connector, with the connector's config and its workers' properties, empty where unknown.

    `written` has the key of the config that sets each plain key (see `winners`).
    """

    client: Client
    setting: Setting
    config: Mapping[str, str] = field(repr=False)  # may hold secrets, as those of the workers
    workers: Mapping[str, str] = field(repr=False)
    written: Mapping[str, str]

    def inherited_key(self, plain: str) -> str:
        """Return the workers' property that a plain key is taken from where the config has none, "" for none."""
        if not self.workers:
            return ""
        keys = (prefix + plain for prefix in reversed(self.client.worker_prefixes))
        return next((key for key in keys if key in self.workers), "")

    def own_value(self, plain: str) -> Value | None:
        """Return what connector or workers set."""
        if key := self.written.get(plain):
            return Value(plain, self.config[key].strip(), "connector", key)
        if key := self.inherited_key(plain):
            return Value(plain, self.workers[key].strip(), "workers", key)
        return None

    def value(self, plain: str, keys: Keys | None = None) -> Value | None:
        """Return what the client gets, None where nothing sets it and Kafka has no default."""
        configured = None if plain in self.client.forced else self.own_value(plain)
        return configured or self._default(plain, keys or load())

    def _default(self, plain: str, keys: Keys) -> Value | None:
        default = framework_defaults(self.client, self.setting, keys).get(plain)
        if default is not None:
            return Value(plain, default, f"set by {framework(self.client)}")
        definition = keys.find(self.client.kind, plain, self.setting.version)
        return Value(plain, definition.default, "Kafka") if definition and definition.default is not None else None

    def values(self, keys: Keys) -> list[Value]:
        """Return what is set, by key."""
        names = {*self.written, *framework_defaults(self.client, self.setting, keys)}
        values = [value for name in names if (value := self.value(name, keys))]
        if self.client.worker_prefixes and not self.own_value("bootstrap.servers"):
            values.append(Value("bootstrap.servers", "the workers' own", "Connect worker"))
        return sorted(values, key=lambda setting: setting.key)

    def unset_values(self, keys: Keys) -> list[Value]:
        """Return Kafka's own defaults of the keys that nothing sets."""
        decided = {value.key for value in self.values(keys)}
        names = (name for name in keys.names(self.client.kind, self.setting.version) if name not in decided)
        return [value for name in names if (value := self.value(name, keys))]


def configured_clients(
    type_: ConnectorType, config: Mapping[str, str], setting: Setting | None = None
) -> dict[str, ConfiguredClient]:
    """Return the clients of a connector by name; without a setting those of the newest Kafka on unknown workers."""
    setting = setting or Setting.from_config(config)
    return {
        client.name: ConfiguredClient(client, setting, config, {}, winners(client, config))
        for client in clients(type_, setting)
    }


def text_of(type_: ConnectorType, config: Mapping[str, str], client: str, plain: str) -> str:
    """Return what a client of a connector gets as far as the config alone shows, "" for nothing or no such client."""
    setting = Setting.from_config(config)
    own = next((candidate for candidate in clients(type_, setting) if candidate.name == client), None)
    value = ConfiguredClient(own, setting, config, {}, winners(own, config)).value(plain) if own else None
    return value.value if value else ""

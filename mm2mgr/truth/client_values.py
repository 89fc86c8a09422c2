"""The one place that says what a client of a connector gets for a key, and who decides it. Pure.

In this order: the connector's config (the spelling with the highest rank), the workers' properties, what Connect or
MirrorMaker sets, Kafka's default; keys that cannot be set get the last two only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mm2mgr.truth.keys import Keys, load
from mm2mgr.truth.reach import Client, ConnectorType, Setting, clients, seen_by


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

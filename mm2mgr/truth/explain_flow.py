"""The effective settings of a connector's clients: each plain key with the value that won and who said it.

In: a connector config with origins, and the version it runs on; out: `ClientSettings`. Values are as in the config: whoever
shows them masks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mm2mgr.truth.explain_default import framework, framework_defaults
from mm2mgr.truth.keys import Keys
from mm2mgr.truth.reach import Client, ConnectorType, Setting, clients, effective


@dataclass(frozen=True)
class Value:
    """One setting of a client; `written_as` is the connector key that won, None where nobody wrote one."""

    key: str
    value: str
    origin: str
    written_as: str | None = None


@dataclass(frozen=True)
class ClientSettings:
    """A client and what it is given, by key."""

    client: Client
    values: tuple[Value, ...]


def client_settings(  # noqa: PLR0913 - a connector, and what it runs on
    type_: ConnectorType,
    config: Mapping[str, str],
    origins: Mapping[str, object],
    version: str,
    keys: Keys,
    *,
    exactly_once: bool = False,
) -> tuple[ClientSettings, ...]:
    """Return the settings of every client that a connector with this config has; `exactly_once` is about the workers."""
    setting = Setting.of(config, version, exactly_once=exactly_once)
    return tuple(
        ClientSettings(
            client, tuple(sorted(_values(client, config, origins, setting, keys), key=lambda each: each.key))
        )
        for client in clients(type_, setting)
    )


def _values(
    client: Client, config: Mapping[str, str], origins: Mapping[str, object], setting: Setting, keys: Keys
) -> Iterator[Value]:
    won = effective(client, config)
    for plain, key in won.items():
        yield Value(plain, config[key], str(origins.get(key, "connector")), key)
    by_framework = framework_defaults(client, setting, keys)
    for plain, value in by_framework.items():
        if plain not in won:
            yield Value(plain, value, f"set by {framework(client)}")
    if client.worker_prefixes and "bootstrap.servers" not in won:
        yield Value("bootstrap.servers", "the workers' own", "Connect worker")


def kafka_defaults(settings: ClientSettings, version: str, keys: Keys) -> tuple[Value, ...]:
    """Return Kafka's own defaults of all keys that nobody set on a client."""
    kind, given = settings.client.kind, {value.key for value in settings.values}
    found = (keys.find(kind, name, version) for name in keys.names(kind, version) if name not in given)
    return tuple(Value(key.name, key.default, "Kafka") for key in found if key and key.default is not None)

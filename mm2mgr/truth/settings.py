"""What a key is by definition, who sets another default, and the effective settings of a connector's clients.

Kafka's part comes from `mm2mgr.truth.keys`, mm2mgr's from `mm2mgr.defaults`. Values are as in the config: the caller masks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from mm2mgr.defaults import CLIENT_DEFAULTS
from mm2mgr.truth.keys import Key, Keys
from mm2mgr.truth.reach import CLIENTS, Client, ConnectorType, Setting, clients, effective


@dataclass(frozen=True)
class Definition:
    """Kafka's definition of a key in one scope, and other defaults of it."""

    scope: str
    type: str
    valid: str
    default: str | None
    required: bool
    history: tuple[str, ...]
    lines: str
    set_instead: tuple[str, ...]


def define_all(
    scopes: Sequence[str], name: str, types: Sequence[ConnectorType], version: str, keys: Keys
) -> tuple[Definition, ...]:
    """Return the definitions of a key in several scopes; equal ones are merged."""
    found: dict[Definition, list[str]] = {}
    for scope in scopes:
        found.setdefault(replace(define(scope, name, types, version, keys), scope=""), []).append(scope)
    return tuple(replace(each, scope=", ".join(same)) for each, same in found.items())


def define(scope: str, name: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Definition:
    """Return the definition of a key; that of its last line if `version` does not have it. `types` select the defaults to add."""
    history = keys.history(scope, name)
    now = keys.find(scope, name, version) or history[-1]
    changed = tuple(_changes(history))
    lines = _lines(now.exists_in, keys) + ("" if keys.line(version) in now.exists_in else f"; not in {version}")
    others = tuple(_other_defaults(scope, name, types, version, keys))
    return Definition(scope, now.type, now.valid, now.default, now.required, changed, lines, others)


def _other_defaults(kind: str, plain: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Iterator[str]:
    """Yield other defaults of a client: from Connect or MirrorMaker, then from mm2mgr."""
    reported: dict[str, None] = {}
    for client in (client for type_ in types for client in CLIENTS[type_] if client.kind == kind):
        if (value := framework_defaults(client, Setting(version), keys).get(plain)) is not None:
            reported[f"{client.name}: {value} ({framework(client)})"] = None
        if client.block and plain in CLIENT_DEFAULTS.get(client.block, {}):
            value, why = CLIENT_DEFAULTS[client.block][plain]
            reported[f"{client.block}: {value} (mm2mgr: {why})"] = None
    yield from reported


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


def _lines(exists_in: Sequence[str], keys: Keys) -> str:
    first, last = exists_in[0], exists_in[-1]
    since = f"since {first}{' or earlier' if first == keys.lines[0] else ''}"
    return since if last == keys.lines[-1] else f"{since}, gone after {last}"


def _changes(history: Sequence[Key]) -> Iterator[str]:
    """Yield each default with its lines, nothing if it never changed."""
    runs = groupby(history, key=lambda key: key.default)
    spans = [(default, [line for key in same for line in key.lines]) for default, same in runs]
    if len(spans) > 1:
        for default, lines in spans:
            yield f"{_shown(default)} in {lines[0]}" + (f"-{lines[-1]}" if lines[1:] else "")


def _shown(default: str | None) -> str:
    return "none" if default is None else default or "empty"


@dataclass(frozen=True)
class Value:
    """One setting of a client; `written_as` is the connector key that sets it, None for a default."""

    key: str
    value: str
    origin: str
    written_as: str | None = None


@dataclass(frozen=True)
class EffectiveSettings:
    """A client and its settings, by key."""

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
) -> tuple[EffectiveSettings, ...]:
    """Return the settings of every client that a connector with this config has; `exactly_once` is about the workers."""
    setting = Setting.of(config, version, exactly_once=exactly_once)
    return tuple(
        EffectiveSettings(
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


def kafka_defaults(settings: EffectiveSettings, version: str, keys: Keys) -> tuple[Value, ...]:
    """Return Kafka's own defaults of all keys that are not set for a client."""
    kind, configured = settings.client.kind, {value.key for value in settings.values}
    found = (keys.find(kind, name, version) for name in keys.names(kind, version) if name not in configured)
    return tuple(Value(key.name, key.default, "Kafka") for key in found if key and key.default is not None)

"""What a key is: type, valid values, default and its changes, the Kafka lines that have it, and who sets another default.

In: a scope and a name; out: `Definition`. Kafka's part comes from `mm2mgr.truth.keys`, mm2mgr's from `mm2mgr.defaults`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from mm2mgr.defaults import CLIENT_DEFAULTS
from mm2mgr.truth.keys import Key, Keys
from mm2mgr.truth.reach import CLIENTS, Client, ConnectorType, Setting


@dataclass(frozen=True)
class Definition:
    """What Kafka says of the key in one scope, and who gives it another default."""

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
    """Return the facts of a key in several scopes, those that are the same in one value."""
    found: dict[Definition, list[str]] = {}
    for scope in scopes:
        found.setdefault(replace(define(scope, name, types, version, keys), scope=""), []).append(scope)
    return tuple(replace(each, scope=", ".join(same)) for each, same in found.items())


def define(scope: str, name: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Definition:
    """Return the facts of a key; of its last line where `version` does not have it. `types` say whose defaults to add."""
    history = keys.history(scope, name)
    now = keys.find(scope, name, version) or history[-1]
    changed = tuple(_changes(history))
    lines = _lines(now.exists_in, keys) + ("" if keys.line(version) in now.exists_in else f"; not in {version}")
    others = tuple(_other_defaults(scope, name, types, version, keys))
    return Definition(scope, now.type, now.valid, now.default, now.required, changed, lines, others)


def _other_defaults(kind: str, plain: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Iterator[str]:
    """Yield who gives a client another default: Connect or MirrorMaker, then mm2mgr."""
    told: dict[str, None] = {}
    for client in (client for type_ in types for client in CLIENTS[type_] if client.kind == kind):
        if (value := framework_defaults(client, Setting(version), keys).get(plain)) is not None:
            told[f"{client.name}: {value} ({framework(client)})"] = None
        if client.block and plain in CLIENT_DEFAULTS.get(client.block, {}):
            value, why = CLIENT_DEFAULTS[client.block][plain]
            told[f"{client.block}: {value} (mm2mgr: {why})"] = None
    yield from told


def framework_defaults(client: Client, setting: Setting, keys: Keys) -> dict[str, str]:
    """Return what Connect or MirrorMaker sets on a client before anybody configures it; it outranks Kafka's default."""
    if client.name == "record producer":
        name = "record_producer_exactly_once" if setting.exactly_once else "record_producer"
    elif client.kind == "consumer":
        name = "offsets_consumer" if client.worker_prefixes else f"{client.side}_consumer"
    else:
        return {}
    return keys.framework_defaults(name, setting.version)


def framework(client: Client) -> str:
    """Return who sets defaults of a client before anybody configures it."""
    return "Connect" if client.worker_prefixes else "MirrorMaker"


def _lines(exists_in: Sequence[str], keys: Keys) -> str:
    first, last = exists_in[0], exists_in[-1]
    since = f"since {first}{' or earlier' if first == keys.lines[0] else ''}"
    return since if last == keys.lines[-1] else f"{since}, gone after {last}"


def _changes(history: Sequence[Key]) -> Iterator[str]:
    """Yield each default with the lines that have it, nothing when it never changed."""
    runs = groupby(history, key=lambda key: key.default)
    spans = [(default, [line for key in same for line in key.lines]) for default, same in runs]
    if len(spans) > 1:
        for default, lines in spans:
            yield f"{_shown(default)} in {lines[0]}" + (f"-{lines[-1]}" if lines[1:] else "")


def _shown(default: str | None) -> str:
    return "none" if default is None else default or "empty"

"""How a fix is written where the people of this finding write: the YAML tree, a connector config, or mm2.properties. Pure."""

from __future__ import annotations

from typing import Literal

from mm2mgr.lint.subject import Subject
from mm2mgr.spec.keys import OWNED_CONNECTOR_KEYS
from mm2mgr.truth.reach import CLIENTS

_DEDICATED = {
    "record producer": "{target}.producer.",
    "source consumer": "{source}.consumer.",
    "checkpoints consumer": "{target}.consumer.",
    "offset-syncs producer": "{source}.producer.",
    "source admin": "{source}.admin.",
    "target admin": "{target}.admin.",
}


def client_key(subject: Subject, client: str, plain: str, value: str = "…") -> str:
    """Return how to give a client a plain key: `producer.override.acks=all`, `record_producer: {acks: all}` or `B.producer.acks = all`."""
    found = next(each for each in CLIENTS[subject.type] if each.name == client)
    if subject.form == "tree" and found.block:
        return f"{found.block}: {{{plain}: {value}}}"
    if subject.form == "dedicated" and client in _DEDICATED:
        return f"{_DEDICATED[client].format(source=subject.source, target=subject.target)}{plain} = {value}"
    return f"{found.layers[-1].prefix}{plain}={value}"


def cluster_key(subject: Subject, side: Literal["source", "target"], plain: str, value: str = "…") -> str:
    """Return how to give one side's clients a security key or address."""
    alias = subject.source if side == "source" else subject.target
    if subject.form == "tree":
        inner = f"bootstrap_servers: [{value}]" if plain == "bootstrap.servers" else f"security: {{{plain}: {value}}}"
        return f"clusters: {{{alias}: {{{inner}}}}}"
    if subject.form == "dedicated":
        return f"{alias}.{plain} = {value}"
    return f"{side}.cluster.{plain}={value}"


def connector_key(subject: Subject, key: str, value: str = "…") -> str:
    """Return how to set one of the connector's own keys."""
    if subject.form == "tree":
        owned = OWNED_CONNECTOR_KEYS.get(key)
        return owned.removeprefix("write ") if owned else f"{subject.type}_connector: {{{key}: {value}}}"
    if subject.form == "dedicated":
        return f"{subject.pair}.{key} = {value}"
    return f"{key}={value}"

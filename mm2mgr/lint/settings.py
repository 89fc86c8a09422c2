"""What decides a client's setting, in words and numbers: the key as people wrote it, the workers' properties, or a default. Pure."""

from __future__ import annotations

from functools import cache, lru_cache

from mm2mgr.lint.key_fixes import written
from mm2mgr.lint.subject import Kind, Subject
from mm2mgr.truth.reach import CLIENTS, ConnectorType

RECORDS, READER = "record producer", "source consumer"
MIB = 1024 * 1024


def key_of(subject: Subject, client: str, plain: str) -> str:
    """Return the connector's key that decides a setting, "" when none does."""
    return subject.written(client, plain) or ""


def said(subject: Subject, client: str, plain: str) -> str:
    """Return a setting as a reader knows it: `producer.override.acks=1`, or who else says so."""
    value = subject.value(client, plain)
    if key := subject.written(client, plain):
        return f"{written(subject, key)}={value}"
    for prefix in _workers_prefixes(subject, client):
        if subject.worker_property(prefix + plain) is not None:
            return f"{prefix}{plain}={value} of the workers"
    return f"{plain}={value}, the default"


def is_set(subject: Subject, client: str, *plains: str) -> bool:
    """Tell whether people set one of these, on the connector or on its workers; it is much cheaper than asking for values."""
    if _is_written(subject.kind, client, plains):
        return True
    if not subject.worker.properties:
        return False
    prefixes = _workers_prefixes(subject, client)
    return any(subject.worker_property(prefix + plain) is not None for prefix in prefixes for plain in plains)


@lru_cache(maxsize=16384)
def _is_written(kind: Kind, client: str, plains: tuple[str, ...]) -> bool:
    return any(key in kind.keys for plain in plains for key in _spellings(kind.type, client, plain))


@cache
def _spellings(type_: ConnectorType, client: str, plain: str) -> tuple[str, ...]:
    layers = [layer for each in CLIENTS[type_] if each.name == client for layer in each.layers]
    return tuple(layer.prefix + plain for layer in layers if layer.plain(layer.prefix + plain))


def _workers_prefixes(subject: Subject, client: str) -> tuple[str, ...]:
    found = subject.client(client)
    return found.worker_prefixes if found else ()


def size(number: float) -> str:
    """Return bytes for people."""
    for unit, factor in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number:.0f} bytes"

"""What a connector's clients say about protocol, login and stores: the questions that the rules on security share.

In: a subject and a client's name; out: protocols and groups of settings. Pure; values of secrets never leave it.
"""

from __future__ import annotations

from mm2mgr.lint.subject import Subject
from mm2mgr.truth.reach import Client

TRUST = ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.engine.factory.class")
KEYS = ("ssl.keystore.key", "ssl.keystore.location", "ssl.engine.factory.class")
LOGIN = ("sasl.jaas.config",)
# One tuple a thing that a client needs; any of its names will do.
NEEDED: tuple[tuple[str, ...], ...] = (("security.protocol",), ("sasl.mechanism",), LOGIN, TRUST, KEYS)
STORES = ("ssl.truststore.", "ssl.keystore.")


def protocol(subject: Subject, client: str) -> str:
    """Return a client's security.protocol in capitals; "" when it is not written or stands behind a placeholder."""
    key = subject.written(client, "security.protocol")
    value = subject.get(key) if key else ""
    if not key and client == "record producer":
        value = subject.worker_property("producer.security.protocol") or ""
    return "" if "${" in value else value.upper()


def said(subject: Subject, client: Client, plain: str) -> str:
    """Return the value that somebody gave a client, "" for none; the workers' producer.* count for the record producer."""
    if key := subject.written(client.name, plain):
        return subject.get(key)
    values = (subject.worker_property(prefix + plain) for prefix in reversed(client.worker_prefixes))
    return next((value for value in values if value), "")


def lacking_in_override(subject: Subject) -> list[str]:
    """Return what a record producer that is sent to the target's address lacks of the target's security, first names only."""
    address = subject.get("producer.override.bootstrap.servers")
    if not address or protocol(subject, "target admin") in ("", "PLAINTEXT"):
        return []
    needed = [each for each in NEEDED if _has(subject, "target admin", each)]
    lacking = [each[0] for each in needed if not _has(subject, "record producer", each)]
    if protocol(subject, "record producer") == "PLAINTEXT":
        lacking.append("security.protocol")
    return lacking


def _has(subject: Subject, client: str, names: tuple[str, ...]) -> bool:
    """Tell whether somebody said one of these settings to a client."""
    worker = "producer." if client == "record producer" else None
    return any(
        subject.written(client, name) or (worker and subject.worker_property(worker + name) is not None)
        for name in names
    )

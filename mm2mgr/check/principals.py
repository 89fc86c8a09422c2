"""The principal behind a login, as ACLs name it. In: a Login. Out: a Principal. Reads the files that placeholders and stores name.

Rules of the brokers that map names (`ssl.principal.mapping.rules` and the like) are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mm2mgr.check.certificate import subject
from mm2mgr.check.logins import Login
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.jaas import parse_jaas
from mm2mgr.kafka.placeholders import resolve

ANONYMOUS = "User:ANONYMOUS"
_BY_CERTIFICATE = "User:<subject of the client certificate>"
_BY_LOGIN = "User:<name behind this login>"


@dataclass(frozen=True)
class Principal:
    """A principal's name; not `known`: a word in its place that people have to replace."""

    name: str
    known: bool = True


def principal_of(login: Login) -> Principal:
    """Return who the brokers take this login for."""
    security = dict(login.security)
    protocol = security.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return Principal(ANONYMOUS)
    try:
        settings = {key: resolve(login.cluster, value) for key, value in security.items()}
        name = _user(settings) if protocol.startswith("SASL_") else _subject(settings)
    except (KafkaError, OSError, ValueError):
        name = None
    if name:
        return Principal(name)
    return Principal(_BY_LOGIN if protocol.startswith("SASL_") else _BY_CERTIFICATE, known=False)


def _user(settings: dict[str, str]) -> str | None:
    user = parse_jaas(settings.get("sasl.jaas.config", "")).options.get("username")
    return f"User:{user}" if user else None


def _subject(settings: dict[str, str]) -> str | None:
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    if not chain and not location:
        return ANONYMOUS
    if not chain and settings.get("ssl.keystore.type", "").upper() != "PEM":
        return None
    name = subject(chain or Path(str(location)).read_text(encoding="utf-8"))
    return f"User:{name}" if name else None

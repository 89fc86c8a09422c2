"""Rules about the text of bootstrap.servers, for every client: what Kafka refuses, ignores or misreads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv6Address

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Edit, Hit, connector_hit, edit_hit, failing, file_key, rule
from mm2mgr.lint.rules.security import configured_value, keys_with_clients
from mm2mgr.lint.subject import Subject
from mm2mgr.truth.reach import numbers

_ADDRESS = "bootstrap.servers"
# Utils.getHost and getPort, before and since KAFKA-16824: what is before the last address was passed over. The jars of
# 3.9.2 are as before.
_LOOSE = re.compile(r".*?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)")
_STRICT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)")
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://")
_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@rule(
    "bad-address",
    "error",
    "ClientUtils.parseAndValidateAddresses, KAFKA-16824, KIP-1161",
    stops=True,
    needs=(_ADDRESS,),
)
def bad_address(subject: Subject) -> Iterator[Hit]:
    """Kafka cannot read an address, or reads it otherwise than meant.

    bootstrap.servers is a list of host:port with commas between. A client that finds no port, or one above 65535,
    quotes, a path, blanks or semicolons throws "Invalid url in bootstrap.servers" or "Invalid port in
    bootstrap.servers" when it is created: Connect accepts the config, and the connector is FAILED, with
    producer.override. the tasks. Up to 3.7, and again in 3.9.2, `a:9092;b:9092` is no error, and only the last address
    is used (KAFKA-16824). An empty item, as behind a trailing comma, is refused since 4.2 (KIP-1161) and skipped
    before. A scheme (`SASL_SSL://host:9092`) is allowed and ignored.
    """
    for key, client in keys_with_clients(subject.kind, _ADDRESS):
        servers = subject.get(key)
        if wrong := _fault(servers, subject.version):
            effect = f"the {client.name} does not know the rest" if _ONLY in wrong else failing(client)
            if wrong.endswith(_NO_HOST):
                effect = f"the {client.name} looks for brokers on its worker's machine"
            message = f"{file_key(subject, key)}: {wrong}: {effect}"
            hit = connector_hit(subject, key, _meant_servers(servers, subject.version), message)
            perhaps = wrong.endswith(_NO_HOST) or (
                wrong == _EMPTY and servers.strip(", ") and not subject.known_version
            )
            hit = replace(hit, mirrors=_ONLY in wrong)  # from the last broker alone, which may be of another cluster
            yield replace(hit, severity="warning") if perhaps else hit


@lru_cache(maxsize=4096)
def _fault(servers: str, version: str) -> str:
    """Return what is wrong with a list of addresses, "" for nothing."""
    items = [item.strip() for item in servers.split(",")]
    if not servers or is_open(servers):
        return ""  # missing-required reports the former
    wrong = next((problem for item in items if item and (problem := _wrong(item, numbers(version)))), "")
    if not wrong and "" in items and (numbers(version) >= (4, 2) or not any(items)):
        return _EMPTY
    return wrong


_ONLY = " reads only "
_NO_HOST = "has no host"
_EMPTY = "an item of the list is empty (a comma too many), which Kafka refuses since 4.2"


def _is_loose(version: tuple[int, ...]) -> bool:
    return version < (3, 8) or (3, 9, 1) <= version < (4,)


def _wrong(item: str, version: tuple[int, ...]) -> str:
    """Return what is wrong with one address, "" for nothing."""
    match = _STRICT.fullmatch(item)
    shown = "'{}'".format(re.sub(r"[^/\s]*@", "…@", item))  # who writes a user there may write a password, too
    if not match and _is_loose(version) and (last := _LOOSE.fullmatch(item)):
        return f"of {shown} Kafka {'.'.join(map(str, version))}{_ONLY}'{last['host']}:{last['port']}'"
    if not match:
        return f"{shown} {_reason(item)}"
    if not 0 < int(match["port"]) <= 65535:
        return f"the port of {shown} is not between 1 and 65535"
    if not match["host"]:
        return f"{shown} {_NO_HOST}"
    return f"{shown} has two ports" if ":" in match["host"] and not _is_ipv6(match["host"]) else ""


_REASONS = (  # of an address without its scheme, the first that applies
    (r".*;.*", "has a semicolon; commas separate addresses"),
    (r".*\s.*", "contains a blank; commas separate addresses"),
    (r".*[\"'`].*", "has quotes around it"),
    (r".*/.*", "has a path behind the port"),
    (r"[^:]*|\[.*\]", "has no port"),
    (r".*:\d*\D+\d*", "has no number as its port"),
    (r".*", "has a character that no host name may have"),
)


def _reason(item: str) -> str:
    bare = item.rpartition("://")[2]
    return next(text for pattern, text in _REASONS if re.fullmatch(pattern, bare, re.DOTALL))


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _meant_servers(servers: str, version: str) -> str:
    """Return the addresses as Kafka reads them; `…` is in the place of what only a person knows."""
    texts = re.split(r"[,;\s]+", re.sub(r"\s*:\s*", ":", servers))
    bare = [re.sub(r"(?<=\d)/.*", "", text.strip("\"'`")) for text in texts]
    if servers.startswith("[") and servers.endswith("]") and "::" not in servers:  # a list in JSON
        bare = [text.strip("[]\"'`") for text in texts]
    ports = {item.rpartition(":")[2] for item in bare if not _wrong(item, (4,))}
    port = ports.pop() if len(ports) == 1 else "…"
    whole = ",".join(item if ":" in item.rpartition("://")[2] else f"{item}:{port}" for item in bare if item)
    return whole if whole and ("…" in whole or not _fault(whole, version)) else "host:9092,…"


@rule("address-scheme", "warning", "Kafka's Utils.getHost", needs=(_ADDRESS,))
def address_scheme(subject: Subject) -> Iterator[Hit]:
    """The scheme before an address does not select the protocol.

    Kafka reads `SASL_SSL://host:9092` as host:9092 and ignores the scheme, which is the syntax of a broker's listeners.
    The protocol is security.protocol, PLAINTEXT where it is not set: a client that speaks PLAINTEXT to a TLS port gets
    no answer, and the connector is RUNNING without tasks or records. http:// and https:// are no protocols of Kafka:
    the port may be that of a REST service.
    """
    for key, client in keys_with_clients(subject.kind, _ADDRESS):
        match = _SCHEME.match(subject.get(key))
        scheme = match[1].upper() if match else ""
        message = f"{file_key(subject, key)}: Kafka ignores {scheme}://"
        if scheme in ("HTTP", "HTTPS"):
            more = ", and check that the ports are those of brokers"
            yield connector_hit(subject, key, _SCHEME.sub("", subject.get(key)), message, more)
        elif scheme in _PROTOCOLS and not configured_value(subject, client.name, "security.protocol"):
            edit = Edit(f"{key.removesuffix(_ADDRESS)}security.protocol", scheme)
            effect = f", and without security.protocol the {client.name} speaks PLAINTEXT"
            yield edit_hit(subject, message + effect, [edit], key, f", or remove {scheme}://")

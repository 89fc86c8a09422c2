"""Who the brokers take a login for: the name in its JAAS string, or the subject of its certificate as Java spells it.

Placeholders and files are read on this machine. Nothing connects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import KafkaError
from mm2mgr.files import read_regular
from mm2mgr.kafka.access import KafkaAccess, parse_jaas, resolve

_MOST_PEM_BYTES = 1 << 20
ANONYMOUS = "User:ANONYMOUS"
BY_CERTIFICATE = "User:<subject of the client certificate>"
BY_LOGIN = "User:<name behind this login>"


@dataclass(frozen=True)
class Principal:
    """A principal's name; not `is_known`: a word in its place that people have to replace."""

    name: str
    is_known: bool = True


def principal_of(access: KafkaAccess) -> Principal:
    """Return who the brokers take this login for."""
    protocol = access.security.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return Principal(ANONYMOUS)
    try:
        settings = {key: resolve(access.alias, value) for key, value in access.security.items()}
        name = _user(settings) if protocol.startswith("SASL_") else _subject(settings)
    except (KafkaError, OSError, ValueError):
        name = None
    if name:
        return Principal(name)
    return Principal(BY_LOGIN if protocol.startswith("SASL_") else BY_CERTIFICATE, is_known=False)


def _user(settings: Mapping[str, str]) -> str | None:
    user = parse_jaas(settings.get("sasl.jaas.config", ""))[1].get("username")
    return f"User:{user}" if user else None


def _subject(settings: Mapping[str, str]) -> str | None:
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    if not chain and not location:
        return ANONYMOUS
    if not chain and settings.get("ssl.keystore.type", "").upper() != "PEM":
        return None
    name = subject_of(chain or read_regular(Path(str(location)), _MOST_PEM_BYTES).decode())
    return f"User:{name}" if name else None


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
# What java.security's X500Principal.getName() has words for; other types are written as numbers, their values as bytes.
_WORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_VERSION = 0xA0
_SUBJECT = 4  # serial, signature algorithm, issuer, validity, subject


def subject_of(pem: str) -> str | None:
    """Return the subject of the first certificate, None where there is none that can be read."""
    match = _CERTIFICATE.search(pem)
    if not match:
        return None
    try:
        certificate = base64.b64decode("".join(match[1].split()), validate=True)
        fields = [part for part in _parts(_body(_body(certificate))) if part[0] != _VERSION]
        # A step of the name may have several values: `CN=a+UID=b`.
        steps = (_parts(body) for _, body, _ in _parts(fields[_SUBJECT][1]))
        names = ["+".join(_value(pair) for _, pair, _ in step) for step in steps]
    except (ValueError, IndexError):  # no base64, no text, or not what belongs at this place of a certificate
        return None
    return ",".join(reversed(names))  # RFC 2253 begins at the end


def _value(pair: bytes) -> str:
    (_, type_, _), (tag, value, whole) = _parts(pair)
    word = _WORDS.get(_dotted_number(type_))
    if word is None or tag not in _ENCODINGS:
        return f"{_dotted_number(type_)}=#{whole.hex()}"
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", value.decode(_ENCODINGS[tag]))
    text = re.sub(r"^ | $", r"\\ ", text)
    return f"{word}={text}"


def _dotted_number(body: bytes) -> str:
    numbers, number = [body[0] // 40, body[0] % 40], 0
    for byte in body[1:]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return ".".join(map(str, numbers))


def _body(data: bytes) -> bytes:
    """Return the body of the first element; IndexError where there is none."""
    first = next(_parts(data), None)
    if first is None:
        raise IndexError
    return first[1]


def _parts(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, body and the whole of each element; IndexError where the data ends too soon."""
    at = 0
    while at < len(data):
        start, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
        if at + length > len(data):
            raise IndexError
        yield tag, data[at : at + length], data[start : at + length]
        at += length

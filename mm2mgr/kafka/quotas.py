"""Producers' quotas of one Kafka cluster (KIP-546): read, set and removed over Kafka's own protocol, for which
librdkafka has no calls.

One connection to one bootstrap server, with the login of mm2mgr's other clients; brokers hand on what only their
controller decides. Each broker counts a quota by itself (KIP-13). Every failure is a KafkaError without secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.wire import ask, seconds_left, tls_of, words_of
from mm2mgr.secrets import cut, mask_text

DEFAULT = "<default>"
"""In the place of a user or client id: all those without a quota of their own."""
RATE_KEY, CONSUMER_RATE_KEY = "producer_byte_rate", "consumer_byte_rate"
_HANDSHAKE, _AUTHENTICATE, _DESCRIBE, _ALTER, _CLUSTER = (17, 1), (36, 0), (48, 0), (49, 0), (60, 0)  # API key, version
_EVERY_ENTITY = struct.pack(">i?", 0, False)  # a filter without components, that others may have
_NO_RIGHT = 31
_MOST_ANSWER_BYTES, _LONGEST_REASON = 100_000_000, 300
RIGHTS = "mm2mgr's login needs DescribeConfigs on the cluster to read quotas, and AlterConfigs to write them"
_REACH = "check bootstrap servers, login and network from this machine; client quotas need brokers from 2.8 on"
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class QuotaEntity:
    """Whom a quota is for: a client id, a user, or both; "" is not part of it."""

    client_id: str = ""
    user: str = ""

    def __str__(self) -> str:
        parts = (f"user {self.user}" if self.user else "", f"client id {self.client_id}" if self.client_id else "")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class ProducerQuotas:
    """What producers may write to each broker, in bytes per second, by entity; and how many brokers there are."""

    brokers: int
    rates: Mapping[QuotaEntity, float] = field(default_factory=dict)


def read_quotas(access: KafkaAccess, timeout_seconds: float = 10.0) -> ProducerQuotas:
    """Read all quotas of producers; those of consumers, requests and addresses are left out."""
    with _connect(access, timeout_seconds) as line:
        # Flexible: lengths are one more than they are, and fields may follow that are not known here.
        cluster = line.ask(_CLUSTER, b"\0\0", flexible=True)
        cluster.number("i")  # milliseconds for which this request is throttled
        line.check(cluster.number("h"), cluster.compact_text(), "counting the brokers")
        cluster.compact_text()
        cluster.number("i")
        brokers = cluster.varint() - 1
        answer = line.ask(_DESCRIBE, _EVERY_ENTITY)
        answer.number("i")
        line.check(answer.number("h"), answer.text(), "reading client quotas")
        entries = answer.read_items(
            lambda: (answer.entity(), dict(answer.read_items(lambda: (answer.text(), answer.number("d")))))
        )
    return ProducerQuotas(
        brokers, {entity: values[RATE_KEY] for entity, values in entries if entity and RATE_KEY in values}
    )


def write_quotas(
    access: KafkaAccess,
    rates: Mapping[QuotaEntity, int | None],
    timeout_seconds: float = 10.0,
    rate_key: str = RATE_KEY,
) -> dict[QuotaEntity, str]:
    """Set quotas of producers, or of consumers (bytes per second and broker; None: remove); return why each refused
    one is."""
    entries = b"".join(_packed_entity(entity) + _packed_change(rate_key, rate) for entity, rate in rates.items())
    with _connect(access, timeout_seconds) as line:
        answer = line.ask(_ALTER, struct.pack(">i", len(rates)) + entries + b"\0")  # and not for validation only
        answer.number("i")
        results = answer.read_items(lambda: (answer.number("h"), answer.text(), answer.entity()))
    return {entity: _reason(code, message) for code, message, entity in results if code and entity}


# --- what is sent, and what comes back --------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _packed_entity(entity: QuotaEntity) -> bytes:
    parts = {"client-id": entity.client_id, "user": entity.user}
    named = [_text(kind) + _text(name) for kind, name in parts.items() if name]
    return struct.pack(">i", len(named)) + b"".join(named)


def _packed_change(rate_key: str, rate: int | None) -> bytes:
    return struct.pack(">i", 1) + _text(rate_key) + struct.pack(">d?", rate or 0.0, rate is None)


class _Answer:
    """The fields of an answer, taken one after the other; struct.error where it ends too soon."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> Any:
        (number,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(f">{form}")
        return number

    def text(self) -> str | None:
        return self._text(self.number("h"))

    def compact_text(self) -> str | None:
        return self._text(self.varint() - 1)

    def varint(self) -> int:
        byte = int(self.number("B"))
        return byte if byte < 0x80 else byte & 0x7F | self.varint() << 7

    def data_field(self) -> bytes:
        return bytes(self.number(f"{max(0, self.number('i'))}s"))

    def read_items(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(self.number("i"))]

    def entity(self) -> QuotaEntity | None:
        """Return an entity; None for one of a kind that is not known here."""
        parts = dict(self.read_items(lambda: (self.text(), self.text())))
        if not parts.keys() <= {"client-id", "user"}:
            return None
        names = {kind: DEFAULT if name is None else name for kind, name in parts.items()}
        return QuotaEntity(names.get("client-id", ""), names.get("user", ""))

    def _text(self, size: int) -> str | None:
        return None if size < 0 else self.number(f"{size}s").decode()


def _reason(code: int, message: str | None) -> str:
    if code == _NO_RIGHT:
        return "this login may not do that"
    return cut(" ".join(mask_text(message or f"error {code}").split()), _LONGEST_REASON)


class _Line:
    """A connection to one broker until a deadline."""

    def __init__(self, access: KafkaAccess, line: socket.socket, end: float) -> None:
        self.access, self.line, self.end, self.sent = access, line, end, 0

    def ask(self, api: tuple[int, int], body: bytes, *, flexible: bool = False) -> _Answer:
        self.sent += 1
        request = struct.pack(">hhi", *api, self.sent) + _text("mm2mgr") + (b"\0" if flexible else b"") + body
        answer = _Answer(ask(self.line, _bytes(request), _MOST_ANSWER_BYTES, self.end)[0])
        if answer.number("i") != self.sent:
            raise ValueError("the answer is to another request")
        if flexible:
            answer.number("B")
        return answer

    def check(self, code: int, message: str | None, doing: str) -> None:
        if code:
            hint = RIGHTS if code == _NO_RIGHT else _REACH
            raise KafkaError(f"{self.access.alias}: {doing} failed: {_reason(code, message)}", hint=hint)

    def log_in(self, mechanism: str, user: str, password: str) -> None:
        answer = self.ask(_HANDSHAKE, _text(mechanism))
        self.check(answer.number("h"), None, f"logging in with {mechanism}")
        if mechanism == "PLAIN":
            self._authenticate(f"\0{user}\0{password}".encode())
            return
        self._scram(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), user, password)

    def _authenticate(self, data: bytes) -> bytes:
        answer = self.ask(_AUTHENTICATE, _bytes(data))
        self.check(answer.number("h"), answer.text(), "logging in")
        return answer.data_field()

    def _scram(self, digest: str, user: str, password: str) -> None:
        """Log in without sending the password (RFC 5802); ValueError where the broker cannot prove that it knows it."""
        name = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={secrets.token_hex(16)}"
        theirs = self._authenticate(f"n,,{first}".encode()).decode()
        fields = dict(part.split("=", 1) for part in theirs.split(","))
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
        last = f"c=biws,r={fields['r']}"
        signed = ",".join((first, theirs, last)).encode()
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(key_byte ^ other for key_byte, other in zip(key, signature, strict=True))
        answer = self._authenticate(f"{last},p={b64encode(proof).decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        if not hmac.compare_digest(answer, b"v=" + b64encode(expected)):
            raise ValueError("the broker does not know the password")


@contextmanager
def _connect(access: KafkaAccess, timeout_seconds: float) -> Iterator[_Line]:
    config, end = librdkafka_config(access), timing.now() + timeout_seconds
    servers = [server.strip() for server in config["bootstrap.servers"].split(",") if server.strip()]
    reason = ""
    for number, server in enumerate(servers):
        host, _, port = server.rpartition(":")
        try:
            # A server that is silent must leave time for the others.
            opened = socket.create_connection(
                (host.strip("[]"), int(port)), seconds_left(end) / (len(servers) - number)
            )
        except (OSError, ValueError) as error:
            reason = f": {words_of(error)}"
            continue
        with opened as plain, _errors_of(access, timeout_seconds):
            plain.settimeout(seconds_left(end))
            context = tls_of(config)
            with context.wrap_socket(plain, server_hostname=host.strip("[]")) if context else plain as line:
                session = _Line(access, line, end)
                if mechanism := config.get("sasl.mechanism"):
                    session.log_in(mechanism, config["sasl.username"], config["sasl.password"])
                yield session
                return
    raise KafkaError(f"{access.alias}: no broker of {access.bootstrap_servers} answered{reason}", hint=_REACH)


@contextmanager
def _errors_of(access: KafkaAccess, timeout_seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise KafkaError(
            f"{access.alias}: no answer about client quotas within {timeout_seconds:g} s", hint=_REACH
        ) from error
    except (OSError, ValueError, KeyError, struct.error, RecursionError) as error:
        reason = (
            "the answer is not Kafka's" if isinstance(error, struct.error) else cut(words_of(error), _LONGEST_REASON)
        )
        raise KafkaError(f"{access.alias}: asking about client quotas failed: {reason}", hint=_REACH) from error

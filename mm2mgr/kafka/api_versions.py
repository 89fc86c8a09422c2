"""Which requests the brokers of a cluster take: their ApiVersions answer, which no client library passes on.

A broker answers it before any login (KIP-43), so TCP or TLS is enough. The answer is bounded, and only ever a remark of
a check.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from mm2mgr.errors import KafkaError
from mm2mgr.files import write_all
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

Versions = Mapping[int, tuple[int, int]]
"""By a request's number (`apiKey` in Kafka's message files): the lowest and the highest version that is taken."""

_REQUEST = struct.pack(">hhih", 18, 0, 1, 6) + b"mm2mgr"  # ApiVersions, version 0, correlation id, client id
_MOST_BYTES = 1 << 16  # Kafka 4.3 sends 400 bytes
_MOST_BROKERS = 10


def read_versions(access: KafkaAccess, timeout_seconds: float) -> Versions | None:
    """Return what every bootstrap server that answers takes; None where none answers in time, or its settings cannot be
    used here.
    """
    end, answers = time.monotonic() + timeout_seconds, []
    try:
        settings = librdkafka_config(access)
        with _tls(settings) as context:
            addresses = list(_addresses(settings["bootstrap.servers"]))[:_MOST_BROKERS]
            for number, (host, port) in enumerate(addresses):
                now = time.monotonic()
                deadline = now + (end - now) / (len(addresses) - number)  # a silent one leaves time for the others
                try:
                    answers.append(_ask(host, port, context, deadline))
                except (OSError, ValueError, struct.error):
                    continue
    except (OSError, ValueError, KafkaError):
        return None
    return _common(answers)


def decode(answer: bytes) -> Versions:
    """Read an answer of version 0; ValueError or struct.error where it is none."""
    correlation, error, count = struct.unpack_from(">ihi", answer)
    if correlation != 1 or error != 0 or not 0 < count <= (len(answer) - 10) // 6:
        raise ValueError("no answer to ApiVersions")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}


def _common(answers: Iterable[Versions]) -> Versions | None:
    """Return what all of them take: a cluster that is being upgraded has brokers of two versions."""
    common: dict[int, tuple[int, int]] | None = None
    for answer in answers:
        if common is None:
            common = dict(answer)
        common = {
            key: (max(low, answer[key][0]), min(high, answer[key][1]))
            for key, (low, high) in common.items()
            if key in answer
        }
    return common


def _addresses(servers: str) -> Iterator[tuple[str, int]]:
    for server in dict.fromkeys(servers.split(",")):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal() and int(port) < 1 << 16:
            yield host.strip("[]"), int(port)


def _ask(host: str, port: int, context: ssl.SSLContext | None, deadline: float) -> Versions:
    with ExitStack() as stack:
        raw = stack.enter_context(socket.create_connection((host, port), _left(deadline)))
        connection = stack.enter_context(context.wrap_socket(raw, server_hostname=host)) if context else raw
        connection.settimeout(_left(deadline))
        connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        (size,) = struct.unpack(">i", _receive(connection, 4, deadline))
        if not 0 < size <= _MOST_BYTES:
            raise ValueError("no answer of a broker")
        return decode(_receive(connection, size, deadline))


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    answer = b""
    while len(answer) < size:
        connection.settimeout(_left(deadline))
        if not (part := connection.recv(size - len(answer))):
            raise ValueError("the connection ended")
        answer += part
    return answer


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


@contextmanager
def _tls(settings: Mapping[str, str]) -> Iterator[ssl.SSLContext | None]:
    """Yield the TLS of librdkafka's settings, None where there is none; ValueError for a keystore that Python does not
    read.
    """
    if not settings["security.protocol"].endswith("SSL"):
        yield None
        return
    if "ssl.keystore.location" in settings:
        raise ValueError("PKCS12 is not read here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings["ssl.endpoint.identification.algorithm"] == "https"
    if authorities := settings.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=authorities)
    elif location := settings.get("ssl.ca.location"):
        context.load_verify_locations(**{"capath" if os.path.isdir(location) else "cafile": location})
    else:
        context.load_default_certs()
    with ExitStack() as stack:
        chain = settings.get("ssl.certificate.location") or _in_memory(settings.get("ssl.certificate.pem"), stack)
        key = settings.get("ssl.key.location") or _in_memory(settings.get("ssl.key.pem"), stack)
        if chain and key:
            context.load_cert_chain(
                chain, key, lambda: settings.get("ssl.key.password", "")
            )  # never asks on a terminal
        yield context


def _in_memory(text: str | None, stack: ExitStack) -> str:
    """Return the name of a file that is on no disk: OpenSSL reads keys from files only."""
    if not text:
        return ""
    opened = os.memfd_create("mm2mgr")
    stack.callback(os.close, opened)
    write_all(opened, text.encode())
    return f"/proc/self/fd/{opened}"

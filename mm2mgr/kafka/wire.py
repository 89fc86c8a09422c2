"""Kafka's protocol by hand, where librdkafka has no call: ApiVersions requests, which need no login (KIP-43) and no
right, and the round trips that they and TCP connects take.

Every answer is bounded and in time.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.files import write_all
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

if TYPE_CHECKING:
    from mm2mgr.kafka.inspection import BrokerAddress

Versions = Mapping[int, tuple[int, int]]
"""By a request's number (`apiKey` in Kafka's message files): the lowest and the highest version that is taken."""

# Size, ApiVersions, version 0, correlation id, client id. Each connection sends one: before a SASL login brokers take
# no second.
_BODY = struct.pack(">hhih", 18, 0, 1, 6) + b"mm2mgr"
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
_MOST_BYTES = 1 << 16  # Kafka 4.3 sends 400 bytes
_MOST_BROKERS = 10
_AT_ONCE = 16
# A request that takes so much longer than a connect was answered farther away: something between accepts connections.
_BETWEEN_FACTOR, _BETWEEN_SECONDS = 2.0, 0.01


def read_versions(access: KafkaAccess, timeout_seconds: float) -> Versions | None:
    """Return what all bootstrap servers that answer take; None where none does, or settings cannot be used here."""
    end, answers = timing.now() + timeout_seconds, list[Versions]()
    try:
        settings = librdkafka_config(access)
        context = tls_of(settings, inline=True)
    except (OSError, ValueError, KafkaError):
        return None
    addresses = list(_addresses(settings["bootstrap.servers"]))[:_MOST_BROKERS]
    for number, (host, port) in enumerate(addresses):
        now = timing.now()
        deadline = now + (end - now) / (len(addresses) - number)  # a silent one leaves time for the others
        try:
            with ExitStack() as stack:
                line = stack.enter_context(socket.create_connection((host, port), seconds_left(deadline)))
                if context:
                    line = stack.enter_context(context.wrap_socket(line, server_hostname=host))
                answers.append(decode(ask(line, _REQUEST, _MOST_BYTES, deadline)[0]))
        except (OSError, ValueError, struct.error):
            continue
    return _common(answers)


def decode(answer: bytes) -> Versions:
    """Read an answer of version 0; ValueError or struct.error where it is none."""
    correlation, error, count = struct.unpack_from(">ihi", answer)
    if correlation != 1 or error != 0 or not 0 < count <= (len(answer) - 10) // 6:
        raise ValueError("no answer to ApiVersions")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}


def _common(answers: Iterable[Versions]) -> Versions | None:
    """Return what all of them take: a cluster that is being upgraded has brokers of two versions."""
    common: Versions | None = None
    for answer in answers:
        common = answer if common is None else common
        pairs = {key: (*limits, *answer[key]) for key, limits in common.items() if key in answer}
        common = {key: (max(low, least), min(high, most)) for key, (low, high, least, most) in pairs.items()}
    return common


def _addresses(servers: str) -> Iterator[tuple[str, int]]:
    for server in dict.fromkeys(servers.split(",")):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal() and int(port) < 1 << 16:
            yield host.strip("[]"), int(port)


# --- round trips ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundTrip:
    """What one broker took: the median of TCP connects, and the shortest request (a busy broker only adds); None: not
    measured, for the reason in `problem`."""

    broker: str
    connect_seconds: float | None = None
    request_seconds: float | None = None
    problem: str = ""
    json_keys = "broker connect_seconds request_seconds why=problem seconds"

    @property
    def seconds(self) -> float | None:
        """The round trip: that of a connect, which no busy broker delays, unless a proxy answers connects itself."""
        connect, request = self.connect_seconds, self.request_seconds
        if connect is None or request is None or request <= _BETWEEN_FACTOR * connect + _BETWEEN_SECONDS:
            return connect
        return request


def round_trips(
    access: KafkaAccess, brokers: Sequence[BrokerAddress], timeout_seconds: float, samples: int = 10
) -> tuple[RoundTrip, ...]:
    """Measure every broker, several at a time; one broker's failure is a value with the reason."""
    config = librdkafka_config(access)
    measure = partial(round_trip, config=config, timeout_seconds=timeout_seconds, samples=samples)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return tuple(threads.map(measure, brokers))


def round_trip(
    broker: BrokerAddress, *, config: Mapping[str, str], timeout_seconds: float, samples: int = 10
) -> RoundTrip:
    """Measure one broker with the TLS settings of a client's configuration."""
    tls, problem = None, ""
    try:
        tls = tls_of(config)
    except (OSError, ValueError) as error:
        problem = f"only connects were timed: {words_of(error)}"
    connects, requests = list[float](), list[float]()
    for _ in range(samples):
        try:
            began = time.perf_counter()
            with socket.create_connection((broker.host, broker.port), timeout_seconds) as line:
                connects.append(time.perf_counter() - began)
                if not problem:
                    try:
                        requests.append(_time_request(line, broker.host, tls))
                    except (OSError, ValueError) as error:
                        problem = f"only connects were timed: {words_of(error)}"
        except OSError as error:
            if not connects:
                return RoundTrip(str(broker), problem=f"no connection: {words_of(error)}")
            break
    return RoundTrip(str(broker), median(connects), min(requests, default=None), problem)


def _time_request(line: socket.socket, host: str, tls: ssl.SSLContext | None) -> float:
    if tls is None:
        return ask(line, _REQUEST, _MOST_BYTES)[1]
    with tls.wrap_socket(line, server_hostname=host) as wrapped:
        return ask(wrapped, _REQUEST, _MOST_BYTES)[1]


# --- one connection ---------------------------------------------------------------------------------------------------


def ask(line: socket.socket, request: bytes, most_bytes: int, deadline: float | None = None) -> tuple[bytes, float]:
    """Send one request; return its answer, and the seconds until that began. ValueError where it is not Kafka's; with
    a deadline (of mm2mgr's clock) TimeoutError, else the socket's own time-out counts."""

    def receive(count: int) -> bytes:
        received = b""
        while len(received) < count:
            if deadline is not None:
                line.settimeout(seconds_left(deadline))
            if not (part := line.recv(count - len(received))):
                raise ConnectionResetError("the broker closed the connection")
            received += part
        return received

    if deadline is not None:
        line.settimeout(seconds_left(deadline))
    began = time.perf_counter()
    line.sendall(request)
    (size,) = struct.unpack(">i", receive(4))
    took = time.perf_counter() - began
    if not 4 <= size <= most_bytes:
        raise ValueError("the answer is not Kafka's")
    return receive(size), took


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline of mm2mgr's clock; TimeoutError when it has passed."""
    if (left := deadline - timing.now()) <= 0:
        raise TimeoutError
    return left


def tls_of(config: Mapping[str, str], *, inline: bool = False) -> ssl.SSLContext | None:
    """Return the TLS of a client: who is trusted, and its certificate (from memory too if `inline`); None where it
    uses none, ValueError for a keystore that is not read here."""
    if not config["security.protocol"].endswith("SSL"):
        return None
    if "ssl.keystore.location" in config or ("ssl.certificate.pem" in config and not inline):
        raise ValueError("the client certificate is not in a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config["ssl.endpoint.identification.algorithm"] == "https"
    if authorities := config.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=authorities)
    elif location := config.get("ssl.ca.location"):
        context.load_verify_locations(**{"capath" if os.path.isdir(location) else "cafile": location})
    else:
        context.load_default_certs()
    with ExitStack() as stack:
        chain, key = (
            config.get(f"ssl.{part}.location") or _in_memory(config.get(f"ssl.{part}.pem"), stack)
            for part in ("certificate", "key")
        )
        if chain and key:
            password = config.get("ssl.key.password", "")
            context.load_cert_chain(chain, key, lambda: password)  # never asks on a terminal
    return context


def _in_memory(text: str | None, stack: ExitStack) -> str:
    """Return the name of a file that is on no disk: OpenSSL reads keys from files only."""
    if not text:
        return ""
    opened = os.memfd_create("mm2mgr")
    stack.callback(os.close, opened)
    write_all(opened, text.encode())
    return f"/proc/self/fd/{opened}"


def words_of(error: Exception) -> str:
    """Say what went wrong on a connection."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__

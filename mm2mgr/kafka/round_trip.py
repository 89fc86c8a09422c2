"""Round trips to brokers from this machine: TCP connects, and ApiVersions requests, which need no login and no
right.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

if TYPE_CHECKING:
    from mm2mgr.kafka.inspection import BrokerAddress

# Size, API key 18, version 0, correlation id, client id. Each connection sends one: before a SASL login brokers take no
# second.
_CLIENT = b"mm2mgr"
_BODY = struct.pack(f">hhih{len(_CLIENT)}s", 18, 0, 1, len(_CLIENT), _CLIENT)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
_MOST_ANSWER_BYTES = 1 << 20
_AT_ONCE = 16
# A request that takes so much longer than a connect was answered farther away: something between accepts connections.
_BETWEEN_FACTOR, _BETWEEN_SECONDS = 2.0, 0.01


@dataclass(frozen=True)
class RoundTrip:
    """What one broker took: the median of TCP connects, and the shortest request (a busy broker only adds); None: not
    measured, with `why`.
    """

    broker: str
    connect_seconds: float | None = None
    request_seconds: float | None = None
    why: str = ""

    @property
    def seconds(self) -> float | None:
        """The round trip: that of a connect, which no busy broker delays, unless something on the way answers connects
        itself.
        """
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
    if config["security.protocol"].endswith("SSL"):
        try:
            tls = tls_of(config)
        except (OSError, ValueError) as error:
            problem = f"only connects were timed: {words_of(error)}"
    connects, requests = list[float](), list[float]()
    ask = not problem
    for _ in range(samples):
        try:
            began = time.perf_counter()
            with socket.create_connection((broker.host, broker.port), timeout_seconds) as line:
                connects.append(time.perf_counter() - began)
                if ask:
                    try:
                        requests.append(_request(line, broker.host, tls))
                    except (OSError, ValueError) as error:
                        ask, problem = False, f"only connects were timed: {words_of(error)}"
        except OSError as error:
            if not connects:
                return RoundTrip(str(broker), why=f"no connection: {words_of(error)}")
            break
    return RoundTrip(str(broker), median(connects), min(requests, default=None), problem)


def _request(line: socket.socket, host: str, tls: ssl.SSLContext | None) -> float:
    """Return how long the broker took to answer one request."""
    if tls is None:
        return _time_request(line)
    with tls.wrap_socket(line, server_hostname=host) as wrapped:
        return _time_request(wrapped)


def _time_request(line: socket.socket) -> float:
    began = time.perf_counter()
    line.sendall(_REQUEST)
    (size,) = struct.unpack(">i", receive_bytes(line, 4))
    took = time.perf_counter() - began
    if not 4 <= size <= _MOST_ANSWER_BYTES:
        raise ValueError("the answer is not Kafka's")
    receive_bytes(line, size)
    return took


def receive_bytes(line: socket.socket, count: int) -> bytes:
    """Return the next bytes of a connection, exactly so many; ConnectionResetError where it ends before."""
    data_read = b""
    while len(data_read) < count:
        data = line.recv(count - len(data_read))
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        data_read += data
    return data_read


def tls_of(config: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS of a client: who is trusted, and its certificate; ValueError where that is not in a PEM file."""
    if "ssl.keystore.location" in config or "ssl.certificate.pem" in config:
        raise ValueError("the client certificate is not in a PEM file")
    context = ssl.create_default_context(cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem"))
    context.check_hostname = config["ssl.endpoint.identification.algorithm"] != "none"
    if "ssl.certificate.location" in config:
        own = config["ssl.certificate.location"], config["ssl.key.location"]
        context.load_cert_chain(*own, password=config.get("ssl.key.password", ""))
    return context


def words_of(error: Exception) -> str:
    """Say what went wrong on a connection."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__

"""The socket and the process: where the server listens, with which certificate, and how it ends within two seconds of a
signal.

Connections are bounded in number and time, so that strangers who open them and send nothing keep nobody out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mm2mgr.errors import InvalidArgument
from mm2mgr.serve.app import security_headers

_GRACE_SECONDS = 1
_ACCEPT_PAUSE_SECONDS = 0.1  # where no connection can be accepted, such as without a free file descriptor
_LEAST_CONNECTIONS, _MOST_CONNECTIONS = 8, 256

Halting = Callable[[Callable[[], None], Callable[[], None]], AbstractContextManager[asyncio.Event]]
"""Calls the first function on the first signal, the second one on every later one."""


@dataclass(frozen=True)
class Binding:
    """Where to listen, and the PEM files of TLS (None: plain HTTP). Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8642
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address without brackets is one of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_tls(binding: Binding) -> None:
    """Raise InvalidArgument for a certificate without a key, and for files that are no certificate with its key."""
    if binding.certificate is None and binding.key is None:
        return
    if binding.certificate is None or binding.key is None:
        missing = "tls-key" if binding.key is None else "tls-certificate"
        raise InvalidArgument(missing, "a certificate and its key are needed, both as PEM files")
    try:
        # A callable, since without a password OpenSSL would ask for one on the terminal.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(binding.certificate, binding.key, password=lambda: "")
    except OSError as error:  # ssl.SSLError too
        reason = error.strerror if not isinstance(error, ssl.SSLError) else "not a certificate with its unencrypted key"
        raise InvalidArgument(
            "tls-certificate", f"{binding.certificate} and {binding.key} cannot be used: {reason}"
        ) from error


@contextmanager
def listening(binding: Binding) -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket that listens and its URL; InvalidArgument for an address that cannot be listened on."""
    family = socket.AF_INET6 if ":" in binding.host else socket.AF_INET
    try:
        listener = socket.create_server((binding.host, binding.port), family=family)
    except OSError as error:
        raise InvalidArgument(
            "listen", f"cannot listen on {binding.host} port {binding.port}: {error.strerror or error}"
        ) from error
    with listener:
        shown = f"[{binding.host}]" if family == socket.AF_INET6 else binding.host
        scheme = "https" if binding.certificate else "http"
        yield listener, f"{scheme}://{shown}:{listener.getsockname()[1]}"


def most_connections() -> int:
    """Return how many may be open: a quarter of what the process may open, since the looks need the rest."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else files // 4
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, most))


class _Server(uvicorn.Server):
    """Leaves signals to mm2mgr, which has its own rules for them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """One connection; it reports when a request has come, and when it waits for the next one."""

    def __init__(self, connections: Connections, task: asyncio.Task[None], server: uvicorn.Server) -> None:
        super().__init__(server.config, server.server_state, {})
        self._crowd, self._task = connections, task
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._crowd.answers(self._task)

    def on_response_complete(self) -> None:
        # The answer is written; what of it is still in the buffer has time, but makes room for others as well.
        self._crowd.waits(self._task, is_sent=not self.transport.get_write_buffer_size())
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            lines = [b"HTTP/1.1 400 Bad Request", b"content-type: text/plain; charset=utf-8", b"connection: close"]
            lines += [f"{name}: {value}".encode() for name, value in security_headers().items()]
            body = msg.encode()
            lines += [b"content-length: %d" % len(body), b"", body]
            self.transport.write(b"\r\n".join(lines))
        self.transport.close()


@dataclass
class Connections:
    """The open connections, at most `most`; one that waits gives way to a new one, and none waits for ever.

    `request_seconds`: for the TLS handshake and the header of a request, and between two requests; `answer_seconds`:
    for the body of a request and for taking the answer. `closed` counts those that were ended, by reason: `late`,
    `crowded`, and `not-accepted` for those that could not begin.
    """

    most: int = field(default_factory=most_connections)
    request_seconds: float = 10.0
    answer_seconds: float = 60.0
    closed: Counter[str] = field(default_factory=Counter)
    _open: set[asyncio.Task[None]] = field(default_factory=set)
    _waiting: dict[asyncio.Task[None], None] = field(default_factory=dict)  # the one that waits longest first
    _timers: dict[asyncio.Task[None], asyncio.TimerHandle] = field(default_factory=dict)

    async def accept(self, listener: socket.socket, server: uvicorn.Server) -> None:
        """Take connections until the server ends. asyncio's own way takes as many as come, and tries again at once
        where it fails.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while not server.should_exit:
            try:
                connected, _ = await loop.sock_accept(listener)
            except OSError:
                self.closed["not-accepted"] += 1
                self._make_room()
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            task = loop.create_task(self._serve(connected, server))
            self._open.add(task)
            task.add_done_callback(self._forget)
            self.waits(task)
            await asyncio.sleep(0)
            while len(self._open) > self.most:
                self._make_room()
                await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)

    def waits(self, task: asyncio.Task[None], *, is_sent: bool = True) -> None:
        """Note that a connection waits for a request, or for the rest of the answer before it to be taken."""
        self._waiting.pop(task, None)
        self._waiting[task] = None
        self._limit(task, self.request_seconds if is_sent else self.answer_seconds)

    def answers(self, task: asyncio.Task[None]) -> None:
        """Note that a request has come."""
        self._waiting.pop(task, None)
        self._limit(task, self.answer_seconds)

    def _limit(self, task: asyncio.Task[None], seconds: float) -> None:
        if timer := self._timers.get(task):
            timer.cancel()
        self._timers[task] = asyncio.get_running_loop().call_later(seconds, self._end, task, "late")

    def _make_room(self) -> None:
        if longest := next(iter(self._waiting), None):
            self._end(longest, "crowded")

    def _end(self, task: asyncio.Task[None], reason: str) -> None:
        self._waiting.pop(task, None)
        if task.cancel():
            self.closed[reason] += 1

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._waiting.pop(task, None)
        self._timers.pop(task).cancel()

    async def _serve(self, connected: socket.socket, server: uvicorn.Server) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task
        connection = _Connection(self, task, server)
        try:
            await loop.connect_accepted_socket(lambda: connection, connected, ssl=server.config.ssl)
            await connection.lost.wait()
        except OSError:
            pass  # the handshake failed
        finally:
            if connection.transport:
                connection.transport.abort()


def run(app: ASGIApp, binding: Binding, listener: socket.socket, halting: Halting, connections: Connections) -> None:
    """Serve until a signal comes; then connections get a second to end."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # no line for each malformed request: strangers would fill the disk
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=binding.certificate,
        ssl_keyfile=binding.key,
    )
    config.load()
    server = _Server(config)

    def stop(*, at_once: bool) -> None:
        server.should_exit, server.force_exit = True, at_once

    async def serve() -> None:
        with halting(lambda: stop(at_once=False), lambda: stop(at_once=True)):
            accepting = asyncio.create_task(connections.accept(listener, server))
            await server.serve(sockets=[])
            accepting.cancel()

    asyncio.run(serve())

"""The socket and the process: where the server listens, with which certificate, and how it ends within two seconds of a signal."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from mm2mgr.errors import InvalidArgument

_GRACE_SECONDS = 1
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

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
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


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
        why = error.strerror if not isinstance(error, ssl.SSLError) else "not a certificate with its unencrypted key"
        raise InvalidArgument(
            "tls-certificate", f"{binding.certificate} and {binding.key} cannot be used: {why}"
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


class _Server(uvicorn.Server):
    """Leaves signals to mm2mgr, which has its own rules for them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(  # noqa: PLR0913, PLR0917  what to serve, where, and what to call when
    app: Starlette,
    binding: Binding,
    listener: socket.socket,
    halting: Halting,
    started: Callable[[], None],
    ending: Callable[[], None],
) -> None:
    """Serve until a signal comes; then connections get a second to end.

    `started` is called once signals are handled, `ending` at once when the first one comes.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=binding.certificate,
        ssl_keyfile=binding.key,
    )
    server = _Server(config)

    def stop(*, at_once: bool) -> None:
        ending()
        server.should_exit, server.force_exit = True, at_once

    async def served() -> None:
        with halting(lambda: stop(at_once=False), lambda: stop(at_once=True)):
            started()
            await server.serve(sockets=[listener])

    asyncio.run(served())

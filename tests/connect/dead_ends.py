"""URLs that give no answer, each in its own way; all on loopback, and gone when left."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress


@contextmanager
def dead_url() -> Iterator[str]:
    """A port that refuses: bound, so that nobody else gets it, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def silent_url(scheme: str = "http") -> Iterator[str]:
    """A port that takes connections and never answers, neither a request nor a TLS greeting."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as held:
        yield f"{scheme}://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def black_hole_url() -> Iterator[str]:
    """A port whose queue is full: Linux drops every further SYN, as a firewall does."""
    with ExitStack() as stack:
        held = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(held.getsockname())
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def trickling_url() -> Iterator[str]:
    """A server that begins an answer to every request and never ends it."""
    over = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
            while not over.wait(0.02):
                connection.sendall(b" ")

    def serve(held: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=trickle, args=(held.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as held:
        server = threading.Thread(target=serve, args=(held,), daemon=True)
        server.start()
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
        over.set()
        held.shutdown(socket.SHUT_RDWR)
        server.join(5)


@contextmanager
def plain_behind_https_url() -> Iterator[str]:
    """A server that does not speak TLS at an https URL."""
    with trickling_url() as url:
        yield url.replace("http:", "https:")


DeadEnd = Callable[[], AbstractContextManager[str]]
# A write never got out to these, so it may go to the next URL.
NEVER_CONNECTED: dict[str, DeadEnd] = {
    "refuses": dead_url,
    "drops": black_hole_url,
    "no TLS": plain_behind_https_url,
    "silent in TLS": lambda: silent_url("https"),
}
DEAD_ENDS: dict[str, DeadEnd] = {**NEVER_CONNECTED, "silent": silent_url, "trickles": trickling_url}

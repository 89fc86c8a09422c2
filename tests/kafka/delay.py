"""A TCP proxy on loopback that delivers what it takes in either direction later: a long link for tests."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mm2mgr.kafka.inspection import BrokerAddress


@contextmanager
def delayed(host: str, port: int, one_way_seconds: float) -> Iterator[BrokerAddress]:
    """Yield the address of a proxy to host and port; connections that it took end with it."""
    lines: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                with suppress(OSError):
                    near, _ = server.accept()
                    far = socket.create_connection((host, port))
                    lines.extend((near, far))
                    for pair in ((near, far), (far, near)):
                        _pump(*pair, one_way_seconds)
                    continue
                return

        threading.Thread(target=accept, daemon=True).start()
        yield BrokerAddress(1, *server.getsockname())
        server.shutdown(socket.SHUT_RDWR)
        for line in lines:
            line.close()


def _pump(source: socket.socket, target: socket.socket, seconds: float) -> None:
    waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def take() -> None:
        data = b"?"
        while data:
            with suppress(OSError):
                data = source.recv(65_536)
                waiting.put((time.monotonic() + seconds, data))
                continue
            waiting.put((0.0, b""))
            return

    def give() -> None:
        with suppress(OSError):
            while True:
                due, data = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)

    threading.Thread(target=take, daemon=True).start()
    threading.Thread(target=give, daemon=True).start()

"""A forward proxy on loopback: plain requests are passed on, CONNECT opens a tunnel; it keeps the heads that it was sent."""

from __future__ import annotations

import base64
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ForwardProxy:
    """Where it listens, what it was sent, and whose requests it passes on; `broken`: it makes no connection."""

    url: str = ""
    basic: tuple[str, str] | None = None
    broken: bool = False
    heads: list[str] = field(default_factory=list)

    def admits(self, head: str) -> bool:
        wanted = base64.b64encode(":".join(self.basic or ()).encode()).decode()
        return self.basic is None or f"proxy-authorization: Basic {wanted}".lower() in head.lower()


@contextmanager
def proxying(basic: tuple[str, str] | None = None) -> Iterator[ForwardProxy]:
    """Serve a proxy on a free port; every thread has ended on leaving."""
    proxy = ForwardProxy(basic=basic)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.serve(self.request)

        def serve(self, client: socket.socket) -> None:
            data = b""
            while b"\r\n\r\n" not in data:
                if not (piece := client.recv(65536)):
                    return
                data += piece
            head, _, body = data.partition(b"\r\n\r\n")
            text = head.decode("latin-1")
            proxy.heads.append(text)
            method, target, _ = text.split("\r\n", 1)[0].split(" ")
            if not proxy.admits(text):
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            if proxy.broken:
                client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                return
            url = urlsplit(f"//{target}" if method == "CONNECT" else target)
            try:
                worker = socket.create_connection((str(url.hostname), url.port or 80), timeout=30)
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            with worker:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
                    lines = text.split("\r\n")[1:]
                    kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection"))]
                    whole = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close"])
                    worker.sendall(f"{whole}\r\n\r\n".encode("latin-1") + body)
                upwards = threading.Thread(target=_pump, args=(client, worker), daemon=True)
                upwards.start()
                _pump(worker, client)
                upwards.join(5)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join(5)


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Pass on everything until one side ends, and end both."""
    with suppress(OSError):
        while piece := one.recv(65536):
            other.sendall(piece)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

"""Stands before a worker's REST API: calls a function when the worker has carried out a write, before mm2mgr gets the answer, and
answers some requests itself, as a worker does that rebalances."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from mm2mgr.sandbox.kafka_servers import DIRECT

# What workers say in the middle of a rebalance.
_BUSY = json.dumps(
    {
        "error_code": 409,
        "message": "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)",
    }
).encode()


class Gateway(ThreadingHTTPServer):
    """For a `with` block. `after` gets the name of the connector, and the config that was written (None: something else was)."""

    daemon_threads = True

    def __init__(self, worker_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.worker_url = worker_url
        self.after: Callable[[str, dict[str, str] | None], None] = lambda name, config: None
        self.is_busy: Callable[[str, str], bool] = lambda method, path: False
        """Whether a request is refused: it does not reach the worker."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __exit__(self, *error: Any) -> None:
        self.shutdown()
        super().__exit__(*error)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.is_busy(self.command, self.path):
            self._answer(409, _BUSY)
            return
        request = urllib.request.Request(self.server.worker_url + self.path, body or None, method=self.command)
        request.add_header("Content-Type", "application/json")
        try:
            with DIRECT.open(request, timeout=100) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        if self.command != "GET" and status < 300 and self.path.startswith("/connectors"):
            self.server.after(*_written(self.path, body))
        self._answer(status, content)

    def _answer(self, status: int, content: bytes) -> None:
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


def _written(path: str, body: bytes) -> tuple[str, dict[str, str] | None]:
    """Return the connector that a write is about, and the config in it."""
    _, _, name, *rest = [*path.partition("?")[0].split("/"), ""]
    if not name:
        created = json.loads(body)
        return created["name"], created["config"]
    return unquote(name), json.loads(body) if rest[:1] == ["config"] else None

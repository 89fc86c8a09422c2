"""The HTTP side of metric sources over real sockets: an answer that is late, cut, endless or missing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from mm2mgr import web
from mm2mgr.samples.metric_sources import Endpoint, Http, SourceError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def answering(speak: Callable[[socket.socket, threading.Event], None]) -> Iterator[Endpoint]:
    """Serve one connection after another with `speak`, until the block ends."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    connection.recv(65_536)
                    with suppress(OSError):
                        speak(connection, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint("Prometheus of 'dc1'", f"http://127.0.0.1:{server.getsockname()[1]}", timeout_seconds=0.6)
        finally:
            over.set()
            thread.join(10)


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(10)


def trickling(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    while not over.wait(0.05):
        connection.sendall(b" ")


def cut(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b'Content-Length: 1000\r\n\r\n{"status":"success"')


def cut_chunk(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\n{")


def no_http(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"\x15\x03\x01\x00\x02")


@pytest.mark.parametrize(
    ("speak", "told"),
    [
        (silent, "no answer within 0.6 s"),
        (trickling, "no whole answer within 0.6 s"),
        (cut, "broke in the middle"),
        (cut_chunk, "broke in the middle"),
        (no_http, "Prometheus of 'dc1'"),
    ],
)
def test_what_does_not_come_whole_is_an_error(
    speak: Callable[[socket.socket, threading.Event], None], told: str
) -> None:
    with answering(speak) as endpoint, Http(endpoint) as http, pytest.raises(SourceError) as caught:
        http.get("/x", {})
    assert told in caught.value.message
    assert caught.value.__cause__ is not None or speak is trickling


def test_no_server_there_is_an_error_without_object_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with Http(Endpoint("Cruise Control of 'dc1'", url)) as http, pytest.raises(SourceError) as caught:
        http.get("/x", {})
    assert "Cruise Control of 'dc1' at " + url in caught.value.message
    assert "Connection refused" in caught.value.message
    assert "0x" not in caught.value.message


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(HEAD + b"Content-Length: 999999999\r\n\r\n")
        while not over.is_set():
            connection.sendall(b" " * 65_536)

    monkeypatch.setattr(web, "LIMIT_BYTES", 1 << 20)
    larger = pytest.raises(SourceError, match="larger than 1 MiB")
    with answering(endless) as endpoint, Http(replace(endpoint, timeout_seconds=20)) as http, larger:
        http.get("/x", {})


def test_a_proxy_or_netrc_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def well(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(well) as endpoint, Http(endpoint) as http:
        assert http.get("/x", {"a": "b"}).json == {}

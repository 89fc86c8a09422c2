"""The HTTP side of metric sources over real sockets: an answer that is late, cut, endless or missing."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from mm2mgr import bounded_http
from mm2mgr.samples.http import Endpoint, Http, SourceError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def answering(speak: Callable[..., None], context: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """Serve one connection after another with `speak`, until the block ends; with TLS where there is a context."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    wire = context.wrap_socket(connection, server_side=True) if context else connection
                    with wire:
                        request = wire.recv(65_536)
                        speak(wire, over, *([request] if isinstance(speak, Recorded) else []))

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


def hangs_up(connection: socket.socket, over: threading.Event) -> None:
    pass


def test_a_server_that_hangs_up_is_told_without_the_names_of_classes() -> None:
    with answering(hangs_up) as endpoint, Http(endpoint) as http, pytest.raises(SourceError) as raised:
        http.get("/api/v1/query", {})
    assert str(raised.value).endswith("no connection: Remote end closed connection without response")


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(HEAD + b"Content-Length: 999999999\r\n\r\n")
        while not over.is_set():
            connection.sendall(b" " * 65_536)

    monkeypatch.setattr(bounded_http, "LIMIT_BYTES", 1 << 20)
    larger = pytest.raises(SourceError, match="larger than 1 MiB")
    with answering(endless) as endpoint, Http(replace(endpoint, timeout_seconds=20)) as http, larger:
        http.get("/x", {})


WELL = HEAD + b"Content-Length: 2\r\n\r\n{}"


class Recorded:
    """Gives these answers, one per connection and the last one again and again; `requests` are what came."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.requests = list(answers), list[bytes]()

    def __call__(self, connection: socket.socket, over: threading.Event, request: bytes) -> None:
        self.requests.append(request)
        connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def test_a_proxy_or_netrc_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(server := Recorded(WELL)) as endpoint, Http(endpoint) as http:
        assert http.get("/x", {"a": "b c"}).json == {}
    (request,) = server.requests
    assert request.startswith(b"GET /x?a=b+c HTTP/1.1\r\n")
    assert b"authorization" not in request.lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_and_no_login_goes_elsewhere(status: int) -> None:
    with answering(other := Recorded(WELL)) as elsewhere:
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere.url}/x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        with answering(Recorded(head)) as endpoint, Http(replace(endpoint, basic=("ann", "hunter2"))) as http:
            assert http.get("/x", {}).status == status
    assert other.requests == []


@pytest.mark.parametrize("location", ["http://[", "//", "\x00", "http://a b", "x" * 60_000])
def test_a_redirect_to_nowhere_is_an_answer_as_well(location: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    with answering(Recorded(head)) as endpoint, Http(endpoint) as http:
        assert http.get("/x", {}).status == 302


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 1\r\nRetry-After: 9999\r\n\r\nx",
    ],
)
def test_what_failed_at_once_is_asked_again(first: bytes) -> None:
    with answering(server := Recorded(first, first, WELL)) as endpoint, Http(endpoint) as http:
        assert http.get("/x", {}).json == {}
    assert len(server.requests) == 3


def test_what_fails_again_and_again_is_an_answer() -> None:
    with (
        answering(
            server := Recorded(b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy")
        ) as endpoint,
        Http(endpoint) as http,
    ):
        answer = http.get("/x", {})
    assert (answer.status, answer.text, len(server.requests)) == (503, "busy", 3)


def test_asking_again_ends_with_the_time() -> None:
    def hesitant(connection: socket.socket, over: threading.Event) -> None:
        asked.append(over.wait(0.4))

    asked: list[bool] = []
    with (
        answering(hesitant) as endpoint,
        Http(endpoint) as http,
        pytest.raises(SourceError, match=r"no answer within 0\.6 s"),
    ):
        http.get("/x", {})
    assert len(asked) <= 2


def test_a_connection_is_kept_for_the_next_question() -> None:
    def twice(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(WELL)
        asked.append(connection.recv(65_536))
        connection.sendall(WELL)

    asked: list[bytes] = []
    with answering(twice) as endpoint, Http(endpoint) as http:
        assert [http.get("/x", {}).json, http.get("/y", {}).json] == [{}, {}]
    assert asked[0].startswith(b"GET /y ")


# --- whom to trust ----------------------------------------------------------------------------------------------------


@contextmanager
def tls_server(
    authority: trustme.CA, speak: Callable[..., None], client: trustme.CA | None = None
) -> Iterator[Endpoint]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if client:
        client.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    with answering(speak, context) as endpoint:
        yield replace(endpoint, url=endpoint.url.replace("http:", "https:"))


def test_only_the_declared_authority_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that come with requests either: here they hold the one that signed the server's certificate."""
    mine, other = trustme.CA(), trustme.CA()
    for name, authority in (("mine.pem", mine), ("other.pem", other)):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(tmp_path / "mine.pem"))
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(tmp_path / "mine.pem"))
    with tls_server(mine, Recorded(WELL)) as endpoint:
        with Http(replace(endpoint, ca=str(tmp_path / "mine.pem"))) as http:
            assert http.get("/x", {}).json == {}
        for untrusting in (replace(endpoint, ca=str(tmp_path / "other.pem")), endpoint):
            with Http(untrusting) as http, pytest.raises(SourceError, match=r"TLS failed.*verify failed"):
                http.get("/x", {})


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with tls_server(authority, Recorded(WELL)) as endpoint:
        named = replace(endpoint, ca=str(file), url=endpoint.url.replace("127.0.0.1", "localhost"))
        with Http(named) as http, pytest.raises(SourceError, match="TLS failed"):
            http.get("/x", {})


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    authority, client, file = trustme.CA(), trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    mine = tmp_path / "mine.pem"
    client.issue_cert("ann@example.org").private_key_and_cert_chain_pem.write_to_path(str(mine))
    with tls_server(authority, Recorded(WELL), client) as endpoint:
        with Http(replace(endpoint, ca=str(file), certificate=str(mine), key=str(mine))) as http:
            assert http.get("/x", {}).json == {}
        with Http(replace(endpoint, ca=str(file))) as http, pytest.raises(SourceError):
            http.get("/x", {})

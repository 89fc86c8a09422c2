"""Whoever can reach the port of `serve`: no request without the login gets more than /healthz, and no connection keeps others out."""

from __future__ import annotations

import asyncio
import base64
import errno
import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.serve import server
from mm2mgr.serve.app import Login, Site, application, security_headers
from mm2mgr.serve.server import Binding, Connections, is_loopback, most_connections
from tests.examples import draw_examples
from tests.serve.estate import NOW, SURVEY, flow_status, look_of, serving, view_of

FLOW = "orders:a->b"
VIEW = view_of(look_of([flow_status(FLOW, "a->b")], {FLOW: {"orders": 40}}), survey=SURVEY)
CLOCK = NOW.__add__(5.0).__float__  # five seconds after the look
LOGIN = Login("ann", "right", "tok")
ADMITTED = b"Basic " + base64.b64encode(b"ann:right")
HOSTS = (
    b"x/healthz?",
    b"x/healthz#",
    b"x/healthz",
    b"/healthz",
    b"x/healthz?a=@y",
    b"a@x/healthz?",
    b"x\\healthz?",
    b"[::1",
    b"",
)
TARGETS = (
    *("/healthz", "/", "/flows", "/api/status", "/metrics", "//healthz", "/healthz/", "/healthz;/flows", "/healthz%2f..%2fflows"),
    *("/flows?/healthz", "/flows#/healthz", "/%66lows", "/flows%2f", "/healthz/../flows", "http://x/flows", "http://x/healthz?/flows"),
    *("/flows%00/healthz", "*", "/api/status/", "/API/status", "/nothing", "/.%2e/healthz"),
)  # fmt: skip
LOGINS = (
    *(b"Basic \xff", b"Basic", b"Bearer", b"Bearer ", b"Bearer \xff\xfe", b"Basic " + b"A" * 3, b"Basic " + base64.b64encode(b"\xff:\xfe")),
    *(b"Basic " + base64.b64encode(b"ann"), b"Basic " + base64.b64encode(b":"), b"bearer tokk", b"Digest x", b"\x80", b"Basic =" * 50),
)  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(lambda: VIEW, clock=CLOCK, login=LOGIN) as served:
        yield served


@pytest.fixture(scope="module")
def here() -> Iterator[str]:
    """A server without a login."""
    with serving(lambda: VIEW, clock=CLOCK, site=Site(is_loopback)) as served:
        yield served


def connect(url: str) -> socket.socket:
    return socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=10)


def exchange(url: str, request: bytes) -> bytes:
    """Send these bytes and return all that comes until the server closes the connection."""
    with connect(url) as wire:
        wire.sendall(request)
        return b"".join(iter(lambda: wire.recv(65536), b""))


def http(method: str, target: str, headers: list[tuple[bytes, bytes]], version: str = "1.1") -> bytes:
    lines = [
        f"{method} {target} HTTP/{version}".encode(),
        *(b"%s: %s" % pair for pair in headers),
        b"Connection: close",
    ]
    return b"\r\n".join([*lines, b"", b""])


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert found, answer[:200]
    return int(found[1])


def check_headers(answer: bytes) -> None:
    head = answer.partition(b"\r\n\r\n")[0].decode().lower()
    for name, value in security_headers().items():
        assert head.count(f"{name}: {value}".lower()) == 1, head


# --- who gets in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/api/status", "/", "/metrics", "/healthz/"])
def test_no_host_opens_a_path(path: str, host: bytes) -> None:
    """The application alone, as any server would call it."""

    def ask(login: Login | None, hosts: Any) -> int:
        status = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            status.extend([message["status"]] if message["type"] == "http.response.start" else [])

        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"},
            **{
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "root_path": "",
                "headers": [(b"host", host)],
            },
            **{"client": ("192.0.2.1", 1), "server": ("127.0.0.1", 8642)},
        }
        asyncio.run(application(lambda: VIEW, login, site=Site(hosts))(scope, receive, send))  # type: ignore[arg-type]
        return int(status[0])

    assert ask(LOGIN, None) == 401
    assert ask(None, is_loopback) == 421


@draw_examples(150)
@given(
    method=st.sampled_from(["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "DELETE", "CONNECT", "get", "X"]),
    target=st.sampled_from(TARGETS) | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).map("/".__add__),
    host=st.sampled_from([*HOSTS, b"localhost"]) | st.binary(max_size=12),
    login=st.sampled_from([*LOGINS, ADMITTED]) | st.binary(max_size=12),
    version=st.sampled_from(["1.1", "1.1", "1.0", "0.9", "2.0", "x"]),
    more=st.sampled_from(
        [
            *([], [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade")], [(b"X-Forwarded-Host", b"x/healthz?")]),
            *([(b"Authorization", ADMITTED), (b"Authorization", b"Basic x")], [(b"Content-Length", b"99999999")]),
            *([(b"Transfer-Encoding", b"chunked")], [(b"X", b"y" * 100_000)], [(b"X-Original-URL", b"/healthz")], [(b"Host", b"y")]),
        ]
    ),
)  # fmt: skip
def test_whatever_is_sent_nothing_is_shown_without_the_login(  # noqa: PLR0917
    url: str, method: str, target: str, host: bytes, login: bytes, version: str, more: list[tuple[bytes, bytes]]
) -> None:
    is_admitted = login.strip() == ADMITTED and not any(name == b"Authorization" for name, _ in more)
    answer = exchange(url, http(method, target, [(b"Host", host), (b"Authorization", login), *more], version))
    status = status_of(answer)
    check_headers(answer)
    assert status in {200, 400, 401, 405} | ({404} if is_admitted else set()), answer[:300]
    if not is_admitted:
        assert FLOW.encode() not in answer
        assert b"orders" not in answer
        assert status != 200 or target.partition("?")[0] == "/healthz" or "%" in target


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_that_is_none_is_refused(url: str, login: bytes) -> None:
    answer = exchange(url, http("GET", "/flows", [(b"Host", b"localhost"), (b"Authorization", login)]))
    assert status_of(answer) in {400, 401}, "400: no header value at all"
    check_headers(answer)
    if login == b"Basic \xff":
        assert status_of(answer) == 401


def test_a_token_that_is_not_ascii_is_admitted() -> None:
    with serving(lambda: VIEW, clock=CLOCK, login=Login(token="schlüssel")) as served:
        for token, status in (("schlüssel", 200), ("schlussel", 401)):
            bearer = (b"Authorization", b"Bearer " + token.encode())
            assert status_of(exchange(served, http("GET", "/flows", [(b"Host", b"x"), bearer]))) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost", "LOCALHOST", "127.0.0.1", "127.0.0.2", "127.255.1.9", "[::1]")),
        *((f"{name}:8642", 200) for name in ("localhost", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]")),
        *((name, 421) for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1")),
        *((name, 421) for name in ("localhost:x", "localhost@evil.example", "evil.example:1@localhost", "::1", "[::1")),
        *((name, 421) for name in ("", "localhost/", "localhost?", "localhost#", "localhost:8642:1", "[localhost]x")),
    ],
)
def test_without_a_login_every_name_of_this_machine_is_answered_and_no_other(here: str, host: str, status: int) -> None:
    answer = exchange(here, http("GET", "/flows", [(b"Host", host.encode())]))
    assert status_of(answer) == status
    check_headers(answer)
    assert (FLOW.replace(">", "&gt;").encode() in answer) == (status == 200)
    assert status_of(exchange(here, http("GET", "/healthz", [(b"Host", host.encode())]))) == 200


def test_without_a_host_only_healthz_is_answered(here: str) -> None:
    assert status_of(exchange(here, http("GET", "/flows", [], "1.0"))) == 421
    assert status_of(exchange(here, http("GET", "/healthz", [], "1.0"))) == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_needs_no_login(host: str) -> None:
    assert Binding(host).is_loopback


def test_no_answer_sends_elsewhere(url: str) -> None:
    """With a slash too many, a library would make the address to go to from the header Host."""
    login = (b"Authorization", ADMITTED)
    answer = exchange(url, http("GET", "/flows/", [(b"Host", b"evil.example"), login]))
    assert (status_of(answer), b"evil.example" in answer) == (404, False)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000, 400),
        (http("GET", "/flows", [(b"Host", b"x")]), 401),
        (http("GET", "/nothing", [(b"Host", b"x"), (b"Authorization", ADMITTED)]), 404),
        (http("POST", "/flows", [(b"Host", b"x"), (b"Authorization", ADMITTED), (b"Content-Length", b"10")]), 405),
        (http("TRACE", "/flows", [(b"Host", b"x"), (b"Authorization", ADMITTED)]), 405),
    ],
)
def test_errors_have_the_headers_too(url: str, request_: bytes, status: int) -> None:
    answer = exchange(url, request_)
    assert status_of(answer) == status
    check_headers(answer)


def test_a_fault_of_the_page_has_the_headers_too(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Any:
        raise ValueError("no view")

    with serving(broken) as served:
        answer = exchange(served, http("GET", "/flows", [(b"Host", b"x")]))
    assert status_of(answer) == 500
    check_headers(answer)
    assert b"no view" not in answer


# --- connections ------------------------------------------------------------------------------------------------------

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "


def is_answered(url: str) -> bool:
    return status_of(exchange(url, http("GET", "/healthz", [(b"Host", b"x")]))) == 200


def test_connections_without_a_request_keep_nobody_out(capfd: pytest.CaptureFixture[str]) -> None:
    crowd = Connections(most=8)
    with serving(lambda: VIEW, crowd, clock=CLOCK) as served, ExitStack() as stack:
        held = [stack.enter_context(connect(served)) for _ in range(60)]
        for wire in held[::2]:
            with suppress(ConnectionError):  # closed already
                wire.sendall(HALF)
        assert is_answered(served)
        with suppress(ConnectionError):
            assert held[0].recv(1) == b"", "the one that waited longest was closed"
        text = exchange(served, http("GET", "/metrics", [(b"Host", b"x")])).decode()
    assert crowd.closed["crowded"] >= 52
    assert re.search(r'^mm2mgr_closed_connections_total\{owner="ann",reason="crowded"\} 5\d\.0$', text, re.MULTILINE)
    assert capfd.readouterr() == ("", ""), "and no line of it is in the log"


@pytest.mark.parametrize(
    "sent", [b"", HALF, http("GET", "/healthz", [(b"Host", b"x")]).replace(b"close", b"keep-alive")]
)
def test_a_connection_that_waits_is_closed_in_time(sent: bytes) -> None:
    crowd = Connections(request_seconds=0.05)
    with serving(lambda: VIEW, crowd, clock=CLOCK) as served, connect(served) as wire:
        wire.sendall(sent)
        while wire.recv(65536):
            pass
    assert crowd.closed["late"] == 1


def test_a_connection_that_sends_on_and_on_is_closed_in_time() -> None:
    crowd = Connections(request_seconds=0.1)
    with serving(lambda: VIEW, crowd, clock=CLOCK) as served, connect(served) as wire:
        wire.sendall(
            http("POST", "/flows", [(b"Host", b"x"), (b"Content-Length", b"9999999999")]).replace(b"close", b"x")
        )
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            deque(map(wire.sendall, repeat(b"x" * 1000, 1_000_000)), maxlen=0)
    assert crowd.closed["late"] == 1


def test_where_no_connection_can_be_accepted_it_pauses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, accept = iter(range(3)), asyncio.SelectorEventLoop.sock_accept

    async def sock_accept(self: Any, listener: socket.socket) -> Any:
        if next(refused, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(self, listener)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", sock_accept)
    monkeypatch.setattr(server, "_ACCEPT_PAUSE_SECONDS", 0.001)
    crowd = Connections()
    with serving(lambda: VIEW, crowd, clock=CLOCK) as served:
        assert is_answered(served)
    assert crowd.closed == {"not-accepted": 3}


@pytest.mark.parametrize(("files", "most"), [(128, 32), (16, 8), (1024, 256), (1_000_000, 256), (-1, 256)])
def test_the_looks_keep_most_of_what_the_process_may_open(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, files))
    assert most_connections() == most


def test_a_tls_handshake_that_never_ends_keeps_nobody_out(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued, file = authority.issue_cert("127.0.0.1"), tmp_path / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(file))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    crowd = Connections(most=8)
    with serving(lambda: VIEW, crowd, clock=CLOCK, tls=file) as served, ExitStack() as stack:
        held = [stack.enter_context(connect(served)) for _ in range(30)]
        held[-1].sendall(b"no TLS at all")
        with trusted.wrap_socket(connect(served), server_hostname="127.0.0.1") as wire:
            wire.sendall(http("GET", "/healthz", [(b"Host", b"x")]))
            assert status_of(wire.recv(65536)) == 200
    assert crowd.closed["crowded"] >= 20

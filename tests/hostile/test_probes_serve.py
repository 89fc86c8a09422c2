"""Raw requests to the application of `serve`: whatever path, host, header and method, without the login nobody gets more than healthz."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

import pytest

from mm2mgr.serve.app import Login, Site, application
from mm2mgr.serve.pages import flow_link
from mm2mgr.serve.server import is_loopback
from tests.serve.test_app import FLOW, basic, small

PATHS = (
    *(
        "/",
        "/flows",
        "/plan",
        "/metrics",
        "/api/status",
        "/api/plan",
        "/changes",
        "/watchdog",
        flow_link(FLOW).partition("?")[0],
    ),
    *(
        "//healthz",
        "/healthz/",
        "/healthz/..",
        "/healthz/../plan",
        "/healthz?",
        "/healthz%2f",
        "/HEALTHZ",
        "/plan/healthz",
        "/./plan",
    ),
    *(
        "",
        "*",
        "http://x/healthz",
        "/%00",
        "/\x1b[2J",
        "/\u202e",
        "/" + "a" * 60_000,
        "/api/../plan",
        "/plan;/healthz",
        "/plan#/healthz",
    ),
)
HOSTS = (
    b"localhost",
    b"localhost/healthz?",
    b"x/healthz?",
    b"x/healthz#",
    b"x\\/healthz",
    b"",
    b"[::1]",
    b"localhost:99999",
    b"\xff",
    b"a" * 9_000,
    b"evil.example",
    b"localhost@evil.example",
    b"127.0.0.1.evil.example",
)
HEADERS: dict[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "empty": [(b"authorization", b"")],
    "high": [(b"authorization", b"Basic \xff\xfe")],
    "no base64": [(b"authorization", b"Basic !!!")],
    "half": [(b"authorization", b"Basic YQ")],
    "bearer": [(b"authorization", b"Bearer ")],
    "bearer of nul": [(b"authorization", b"Bearer \0")],
    "twice": [(b"authorization", basic("ann", "right")["Authorization"].encode()), (b"authorization", b"Basic eA==")],
    "other word": [(b"authorization", b"Negotiate x")],
    "long": [(b"authorization", b"Basic " + b"A" * 60_000)],
    "forwarded": [
        (b"x-forwarded-host", b"localhost"),
        (b"x-original-url", b"/healthz"),
        (b"x-rewrite-url", b"/healthz"),
    ],
}
METHODS = ("GET", "HEAD", "POST", "TRACE", "X\x1b")


def answer(
    path: str, headers: Iterable[tuple[bytes, bytes]], method: str = "GET", *, login: Login | None, query: bytes = b""
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Call the application with the raw scope of a request."""
    app = application(small, login, site=Site(None if login else is_loopback), clock=lambda: 0.0)
    sent: list[dict[str, object]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    body = b"".join(bytes(message.get("body", b"")) for message in sent[1:])  # type: ignore[arg-type]
    return int(sent[0]["status"]), dict(sent[0]["headers"]), body  # type: ignore[call-overload]


PROBES = [(path, host, HEADERS["none"], "GET") for path in PATHS for host in HOSTS[:6]]
PROBES += [("/plan", host, headers, "GET") for host, headers in itertools.product(HOSTS, HEADERS.values())]
PROBES += [
    (path, b"localhost", HEADERS["none"], method)
    for path in ("/", "/plan", "/healthz", "/metrics")
    for method in METHODS
]


def test_without_the_login_nobody_gets_in() -> None:
    assert len(PROBES) > 300
    for path, host, headers, method in PROBES:
        status, told, body = answer(path, [(b"host", host), *headers], method, login=Login("ann", "right", "tok"))
        case = (path[:40], host[:40], method, status)
        assert status == 401 or (path == "/healthz" and status in {200, 405, 503}), case
        assert FLOW.encode() not in body, case
        assert told[b"x-content-type-options"] == b"nosniff", case
        assert b"\x1b" not in body, case


def test_without_a_login_only_this_machine_is_answered() -> None:
    for path, host, headers, method in PROBES:
        status, told, body = answer(path, [(b"host", host), *headers], method, login=None)
        is_ours = host in {b"localhost", b"[::1]", b"localhost:99999"}
        case = (path[:40], host[:40], method, status)
        assert status < 500 or (path == "/healthz" and status == 503), case
        assert is_ours or status == 421 or path == "/healthz", case
        assert told[b"x-content-type-options"] == b"nosniff", case
        assert b"\x1b" not in body, case


@pytest.mark.parametrize(
    "query", [b"id=%ff", b"id=" + b"x" * 50_000, b"id=%00", b"id=%1b[2J", b"id=<script>", b"id", b"&&&=", b"\xff"]
)
@pytest.mark.parametrize("path", ["/flow", "/api/flow", "/plan", "/metrics"])
def test_a_hostile_query_is_a_page_or_a_404(path: str, query: bytes) -> None:
    status, _, body = answer(path, [(b"host", b"localhost")], login=None, query=query)
    assert status in {200, 404}
    assert b"<script>" not in body
    assert b"\x1b" not in body

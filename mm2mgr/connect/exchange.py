"""One exchange with a worker over HTTP, of many at the same time: within a deadline and with a bounded body."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx

from mm2mgr.bounded_http import ACCEPTED_ENCODING, Body, Broken, Exchanged, Late


def http_client(
    headers: Mapping[str, str],
    verify: ssl.SSLContext | bool,
    transport: httpx.AsyncBaseTransport | None,
    proxy: httpx.Proxy | None = None,
) -> httpx.AsyncClient:
    """Return an HTTP client that takes nothing from the environment and follows no redirect.

    What the YAML tree says is all there is: its proxy, no other certificates, no ~/.netrc. A redirect could carry the
    credentials to another host.
    """
    own_headers = {"Accept": "application/json", "Accept-Encoding": ACCEPTED_ENCODING, **headers}
    return httpx.AsyncClient(
        headers=own_headers, verify=verify, transport=transport, proxy=proxy, trust_env=False, follow_redirects=False
    )


class Times(NamedTuple):
    """How long an answer may take as a whole, each of TCP and TLS to connect, and the answer to begin."""

    seconds: float
    connect_seconds: float
    first_seconds: float


# What httpcore tells of a new connection, and of one that it has already.
_CONNECTED = ("connection.connect_tcp.complete", "http11.send_request_headers.started")


async def exchange(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    times: Times,
    **content: Any,
) -> Exchanged:
    """Send one request and return the answer; httpx.HTTPError before it began, then Late, Broken or BodyRefused."""
    request = http.build_request(
        method, url, timeout=httpx.Timeout(times.seconds, connect=times.connect_seconds, pool=None), **content
    )
    connected, begun, allowed = False, False, min(times.seconds, times.first_seconds)
    ends_at = asyncio.get_running_loop().time() + times.seconds

    async def trace(event: str, _: object) -> None:
        nonlocal connected
        connected |= event in _CONNECTED

    request.extensions["trace"] = trace
    try:
        # httpx times each read; headers or a body that trickle in need the outer bound.
        async with asyncio.timeout(allowed) as limit:
            response = await http.send(request, stream=True)
            begun, allowed = True, times.seconds
            limit.reschedule(ends_at)
            try:
                text = await _text(response)
            finally:
                await response.aclose()
    except httpx.ConnectTimeout:
        raise
    except (httpx.TimeoutException, TimeoutError) as late:
        raise Late(allowed, begun=begun, connected=connected) from late
    except httpx.HTTPError as error:
        if begun:
            raise Broken(str(error) or type(error).__name__) from error
        raise
    return Exchanged(response.status_code, response.headers, text)


async def _text(response: httpx.Response) -> str:
    """Read the raw body, because httpx unpacks each piece whole, whatever becomes of it."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    with Body(response.headers.get("Content-Encoding", "")) as body:
        async for piece in response.stream:
            body.add(piece)
        return body.text()

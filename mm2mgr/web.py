"""HTTP as mm2mgr uses it everywhere: one exchange within a deadline, a bounded body, no proxy but a declared one, and no redirect.

`Body` unpacks, counts and judges an answer while it comes in, before anything is made of it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import httpx

if importlib.util.find_spec("sniffio") is None:
    # httpcore imports it before every request, and a package that is not there is searched for anew each time: a fifth of
    # what 500 creates cost. This entry makes the import fail at once.
    sys.modules["sniffio"] = None  # type: ignore[assignment]

ACCEPTED_ENCODING = "gzip"
LIMIT_BYTES = 256 * 1024 * 1024
"""Of an unpacked body. The largest that a real estate has is the status of a Connect cluster: 5 000 connectors with 500
tasks each, 105 bytes per task with a worker's long host name, are 250 MiB; their configs (50 kB each) are as much. Cruise
Control's load of 500 000 partitions is 120 MiB, Prometheus' answer about them half of that."""
LIMIT_VALUES = 12_000_000
"""Of commas and opening brackets, which bound what JSON becomes in memory (10 to 200 bytes each): that status has 10
million, that load 5 million."""


class BodyRefused(Exception):
    """The body is larger than a limit, or not packed as it says; the text is a clause for a message."""


class Body:
    """One body; `encoding` is the answer's Content-Encoding."""

    def __init__(self, encoding: str = "") -> None:
        name = encoding.strip().lower() or "identity"
        if name not in {"identity", "gzip", "x-gzip"}:
            raise BodyRefused(f"the answer is encoded as {encoding.strip()[:40]!r}, which was not requested")
        self._inflater = None if name == "identity" else _gzip()
        self._found = bytearray()
        self.received_bytes = 0  # over the wire

    def add(self, piece: bytes) -> None:
        """Take the next raw piece; BodyRefused at once when the limit is passed, however small the pieces are packed."""
        self.received_bytes += len(piece)
        try:
            while piece and self._inflater:
                self._found += self._inflater.decompress(piece, LIMIT_BYTES + 1 - len(self._found))
                self._check_size()
                piece = self._inflater.unconsumed_tail or self._inflater.unused_data
                if self._inflater.eof and piece:
                    self._inflater = _gzip()  # gzip files may follow one another
        except zlib.error as error:
            raise BodyRefused("the answer is declared as gzip, but is not") from error
        self._found += piece
        self._check_size()

    def text(self) -> str:
        """Return the whole body, once; BodyRefused when it ends too soon or holds more values than any answer needs."""
        if self._inflater and self.received_bytes and not self._inflater.eof:
            raise BodyRefused("the gzip data ends too early")
        found, self._found = self._found, bytearray()
        if len(found) > LIMIT_VALUES and sum(map(found.count, (b",", b"[", b"{"))) > LIMIT_VALUES:
            raise BodyRefused(f"the answer holds more than {LIMIT_VALUES / 1e6:g} million values")
        return found.decode("utf-8-sig", errors="replace")

    def _check_size(self) -> None:
        if max(len(self._found), self.received_bytes) > LIMIT_BYTES:
            packed = ", unpacked" if self._inflater else ""
            raise BodyRefused(f"the answer is larger than {LIMIT_BYTES >> 20} MiB{packed}")


def _gzip() -> zlib._Decompress:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


# --- one exchange -----------------------------------------------------------------------------------------------------


class Late(TimeoutError):
    """The answer did not come, or (`begun`) not come whole, in the time allowed."""

    def __init__(self, seconds: float, *, begun: bool) -> None:
        super().__init__(f"no answer in time ({seconds:.3g} s)")
        self.begun = begun


class Broken(OSError):
    """The connection broke in the middle of an answer."""


@dataclass(frozen=True)
class Exchanged:
    """An answer as it came: status, headers and the whole body as text."""

    status: int
    headers: Mapping[str, str]
    text: str


def client(
    headers: Mapping[str, str],
    verify: ssl.SSLContext | bool,
    transport: httpx.AsyncBaseTransport | None,
    proxy: httpx.Proxy | None = None,
) -> httpx.AsyncClient:
    """Return an HTTP client that takes nothing from the environment and follows no redirect.

    What the YAML tree says is all there is: its proxy, no other certificates, no ~/.netrc. A redirect could carry the
    credentials to another host.
    """
    wanted = {"Accept": "application/json", "Accept-Encoding": ACCEPTED_ENCODING, **headers}
    return httpx.AsyncClient(
        headers=wanted, verify=verify, transport=transport, proxy=proxy, trust_env=False, follow_redirects=False
    )


def tls_context(
    ca: str | PathLike[str] | None,
    certificate: str | PathLike[str] | None,
    key: str | PathLike[str] | None,
    password: str | None,
) -> ssl.SSLContext:
    """Return whom to trust (None: the machine's authorities) and whom to present; OSError or ValueError for unusable files."""
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        # A callable, since without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password or "")
    return context


async def exchange(
    http: httpx.AsyncClient, method: str, url: str, seconds: float, connect_seconds: float, **content: Any
) -> Exchanged:
    """Send one request and return the answer; httpx.HTTPError before it began, then Late, Broken or BodyRefused."""
    request = http.build_request(
        method, url, timeout=httpx.Timeout(seconds, connect=connect_seconds, pool=None), **content
    )
    begun = False
    try:
        # httpx times each read; headers or a body that trickle in need the outer bound.
        async with asyncio.timeout(seconds):
            response = await http.send(request, stream=True)
            begun = True
            try:
                text = await _text(response)
            finally:
                await response.aclose()
    except httpx.ConnectTimeout:
        raise
    except (httpx.TimeoutException, TimeoutError) as late:
        raise Late(seconds, begun=begun) from late
    except httpx.HTTPError as error:
        if begun:
            raise Broken(str(error) or type(error).__name__) from error
        raise
    return Exchanged(response.status_code, response.headers, text)


async def _text(response: httpx.Response) -> str:
    """Read the raw body, because httpx unpacks each piece whole, whatever becomes of it."""
    body = Body(response.headers.get("Content-Encoding", ""))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for piece in response.stream:
        body.add(piece)
    return body.text()

"""One HTTP endpoint of a metric source: a GET returns status, headers and decoded JSON within a deadline.

Every failure is a SourceError that names the endpoint without its credentials.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from mm2mgr import web
from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import cut, mask_text, remember

CONNECT_SECONDS = 5.0
_LONGEST_REASON = 300
_MASKED = 100_000  # characters of an answer that is no JSON, looked through for secrets before it is cut


class SourceError(Mm2mgrError):
    """A metric source did not answer, refused, or answered something else than it should."""


@dataclass(frozen=True)
class Endpoint:
    """Where a source answers and what to show it; `name` says whose it is, such as "Prometheus of 'dc1'".

    At most one of `basic` (user, password) and `bearer` is given. `ca`, `certificate` and `key` are PEM files.
    """

    name: str
    url: str
    basic: tuple[str, str] | None = field(default=None, repr=False)
    bearer: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.basic:
            remember({"authorization": self.basic_header(), "password": self.basic[1]})
        remember({"token": (self.bearer or "").strip(), "key.password": self.key_password or ""})

    def basic_header(self) -> str:
        """Return the Authorization header of user and password."""
        return "Basic " + base64.b64encode(":".join(self.basic or ()).encode()).decode()


@dataclass(frozen=True)
class HttpAnswer:
    """One answer: the JSON is None when the body is none, which `text` (cut) then shows."""

    status: int
    headers: Mapping[str, str]
    json: Any
    text: str


class Http:
    """A kept-alive session with one endpoint; use it in a `with` block, from one thread at a time that runs no event loop."""

    def __init__(self, endpoint: Endpoint, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.endpoint = endpoint
        self._client = web.client(self._headers(), self._verify(), transport)
        self._loop: asyncio.Runner | None = asyncio.Runner()

    def __enter__(self) -> Http:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._loop:
            self._loop.run(self._client.aclose())
            self._loop.close()
            self._loop = None

    def get(
        self, path: str, parameters: Mapping[str, str], headers: Mapping[str, str] | None = None, seconds: float = 0.0
    ) -> HttpAnswer:
        """Return the answer to one GET; SourceError when none came whole within `seconds` (default: the endpoint's)."""
        if self._loop is None:
            raise RuntimeError("the session is closed")
        limit, url = seconds or self.endpoint.timeout_seconds, self.endpoint.url.rstrip("/") + path
        asked = web.exchange(
            self._client,
            "GET",
            url,
            limit,
            min(CONNECT_SECONDS, limit),
            params=dict(parameters),
            headers=dict(headers or {}),
        )
        try:
            return _answer(self._loop.run(asked))
        except web.BodyRefused as error:
            raise self.error(str(error), "check `url`: no metric source answers so much") from error
        except (web.Late, httpx.ConnectTimeout) as error:
            late = "no whole answer" if isinstance(error, web.Late) and error.begun else "no answer"
            hint = "check that it runs and can be reached from this machine"
            raise self.error(f"{late} within {limit:.3g} s", hint) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._failed(error) from error

    def refused(self, answer: HttpAnswer, what: str) -> SourceError:
        """Build the error for an answer that is not what it should be; `what` is the endpoint's own reason, or empty."""
        reason = shorten(what or answer.text or "an empty answer")
        hints = {401: "check `auth`", 403: "check `auth`: this login may not read metrics", 404: "check `url`"}
        return self.error(f"HTTP {answer.status}: {reason}", hints.get(answer.status))

    def error(self, what: str, hint: str | None = None) -> SourceError:
        """Build an error that names this endpoint."""
        return SourceError(f"{self.endpoint.name} at {self.endpoint.url}: {what}", hint=hint)

    def _failed(self, error: Exception) -> SourceError:
        if isinstance(error, web.Broken):
            return self.error("the connection broke in the middle of an answer")
        inner = _innermost(error)
        if isinstance(inner, ssl.SSLError):
            return self.error(f"TLS failed: {shorten(str(inner))}", "check `tls` of this source")
        number = inner.errno if isinstance(inner, OSError) else None
        reason = os.strerror(number) if number and number > 0 else str(inner)
        return self.error(f"no connection: {shorten(reason)}", "check `url` and the network from here")

    def _headers(self) -> dict[str, str]:
        mine = self.endpoint
        if mine.bearer is not None:
            return {"Authorization": f"Bearer {self._token(mine.bearer)}"}
        return {"Authorization": mine.basic_header()} if mine.basic else {}

    def _verify(self) -> ssl.SSLContext | bool:
        mine = self.endpoint
        if not mine.url.startswith("https:"):
            return False
        try:
            return web.tls_context(mine.ca, mine.certificate, mine.key, mine.key_password)
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (mine.ca, mine.certificate, mine.key)))
            hint = "They must be readable PEM files; an encrypted key needs `key_password`."
            raise self.error(f"the TLS files cannot be used ({files}): {error}", hint) from error

    def _token(self, text: str) -> str:
        token = text.strip()
        # An HTTP library quotes an illegal header value in its error, and the token would be in the log.
        if not token or not (token.isascii() and token.isprintable()):
            raise self.error("the bearer token is empty or holds characters that no HTTP header can carry")
        return token


def shorten(text: str) -> str:
    """Put text of others on one line, without secrets, and cut it."""
    return cut(" ".join(mask_text(text[:_MASKED]).split()), _LONGEST_REASON)


def _answer(found: web.Exchanged) -> HttpAnswer:
    try:
        decoded = json.loads(found.text)
    except (ValueError, RecursionError):
        decoded = None
    return HttpAnswer(found.status, found.headers, decoded, cut(found.text[:_MASKED], _LONGEST_REASON))


def _innermost(error: BaseException) -> BaseException:
    """Follow the causes to what the socket or TLS reported: the outer texts say only that it failed."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error

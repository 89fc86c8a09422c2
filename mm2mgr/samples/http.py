"""One HTTP endpoint that metrics come from: GET a path, get back status, headers and the decoded JSON, within a deadline.

Every failure is a SourceError that names the endpoint without its credentials; it judges no answer of the endpoint itself.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import requests

from mm2mgr.bodies import ACCEPTED_ENCODING, Body, BodyRefused
from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import cut, mask_text, remember

# What urllib3 raises while a body is read; requests gives it this name, and mm2mgr imports no urllib3.
_BrokenBody: type[Exception] = requests.exceptions.BaseHTTPError  # type: ignore[attr-defined]
CONNECT_SECONDS = 5.0
_PIECE_BYTES = 65_536
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
            header = "Basic " + base64.b64encode(":".join(self.basic).encode()).decode()
            remember({"authorization": header, "password": self.basic[1]})
        remember({"token": (self.bearer or "").strip(), "key.password": self.key_password or ""})


@dataclass(frozen=True)
class HttpAnswer:
    """One answer: the JSON is None when the body is none, which `text` (cut) then shows."""

    status: int
    headers: Mapping[str, str]
    json: Any
    text: str


class Http:
    """A kept-alive session with one endpoint; use it in a `with` block."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session = requests.Session()
        # What the YAML tree says is all there is: no proxy and no ~/.netrc from the environment.
        self._session.trust_env = False
        # The machine's authorities, as for every other connection of mm2mgr, not the list that requests brings along.
        paths = ssl.get_default_verify_paths()
        self._session.verify = endpoint.ca or paths.cafile or paths.capath or True
        self._session.headers.update({"Accept": "application/json", "Accept-Encoding": ACCEPTED_ENCODING})
        self._adapter = _Adapter(self._context() if endpoint.certificate else None)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._adapter)
        if endpoint.basic:
            self._session.auth = endpoint.basic
        if endpoint.bearer is not None:
            self._session.headers["Authorization"] = f"Bearer {self._token(endpoint.bearer)}"

    def __enter__(self) -> Http:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def get(
        self, path: str, parameters: Mapping[str, str], headers: Mapping[str, str] | None = None, seconds: float = 0.0
    ) -> HttpAnswer:
        """Return the answer to one GET; SourceError when none came whole within `seconds` (default: the endpoint's)."""
        limit = seconds or self.endpoint.timeout_seconds
        ends_at = time.monotonic() + limit
        end = threading.Timer(limit, self._adapter.break_off)
        end.daemon = True
        end.start()
        late = "no answer"
        try:
            # No redirects: they could carry the credentials to another host.
            with self._session.get(
                self.endpoint.url.rstrip("/") + path,
                params=dict(parameters),
                headers=dict(headers or {}),
                timeout=(min(CONNECT_SECONDS, limit), limit),
                allow_redirects=False,
                stream=True,
            ) as response:
                late = "no whole answer"
                return _answer(response, self._body(response, ends_at))
        except BodyRefused as error:
            raise self.error(str(error), "check `url`: no metric source answers so much") from error
        except (requests.RequestException, _BrokenBody, OSError) as error:
            if time.monotonic() >= ends_at or isinstance(error, requests.Timeout):
                hint = "check that it runs and can be reached from this machine"
                raise self.error(f"{late} within {limit:.3g} s", hint) from error
            raise self._failed(error) from error
        finally:
            end.cancel()

    def refused(self, answer: HttpAnswer, what: str) -> SourceError:
        """Build the error for an answer that is not what it should be; `what` is the endpoint's own reason, or empty."""
        reason = shorten(what or answer.text or "an empty answer")
        hints = {401: "check `auth`", 403: "check `auth`: this login may not read metrics", 404: "check `url`"}
        return self.error(f"HTTP {answer.status}: {reason}", hints.get(answer.status))

    def error(self, what: str, hint: str | None = None) -> SourceError:
        """Build an error that names this endpoint."""
        return SourceError(f"{self.endpoint.name} at {self.endpoint.url}: {what}", hint=hint)

    def _body(self, response: requests.Response, ends_at: float) -> str:
        # requests times each read only; a body that trickles in would hold the round for hours.
        body = Body(response.headers.get("Content-Encoding", ""))
        while piece := response.raw.read1(_PIECE_BYTES, decode_content=False):
            body.add(piece)
            if time.monotonic() >= ends_at:
                break
        if time.monotonic() >= ends_at:  # what was broken off may look like an end
            raise requests.ReadTimeout
        return body.text()

    def _failed(self, error: Exception) -> SourceError:
        if isinstance(error, (_BrokenBody, requests.exceptions.ChunkedEncodingError)):
            return self.error("the connection broke in the middle of an answer")
        if isinstance(error, requests.exceptions.SSLError):
            return self.error(f"TLS failed: {shorten(str(_innermost(error)))}", "check `tls` of this source")
        return self.error(f"no connection: {shorten(str(_innermost(error)))}", "check `url` and the network from here")

    def _context(self) -> ssl.SSLContext:
        mine = self.endpoint
        context = ssl.create_default_context(cafile=mine.ca)
        try:
            # A callable, since without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(str(mine.certificate), mine.key, password=lambda: mine.key_password or "")
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (mine.certificate, mine.key)))
            hint = "They must be readable PEM files; an encrypted key needs `key_password`."
            raise self.error(f"the TLS files cannot be used ({files}): {error}", hint) from error
        return context

    def _token(self, text: str) -> str:
        token = text.strip()
        # An HTTP library quotes an illegal header value in its error, and the token would be in the log.
        if not token or not (token.isascii() and token.isprintable()):
            raise self.error("the bearer token is empty or holds characters that no HTTP header can carry")
        return token


class _Adapter(requests.adapters.HTTPAdapter):
    """Remembers its connections, so that all can be broken off: headers that trickle in are bound by no time-out of requests.

    With a context it shows that one's certificate: requests itself has no way to give the password of a key.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        if self._context:
            more["ssl_context"] = self._context
        super().init_poolmanager(*arguments, **more)

    def get_connection_with_tls_context(self, *given: Any, **named: Any) -> Any:
        """Return the pool of a URL, whose new connections are remembered."""
        pool: Any = super().get_connection_with_tls_context(*given, **named)
        if "ConnectionCls" not in vars(pool):
            kind, remembered = pool.ConnectionCls, self._connections

            def connection(*about: Any, **more: Any) -> Any:
                made = kind(*about, **more)
                remembered.add(made)
                return made

            pool.ConnectionCls = connection
        return pool

    def break_off(self) -> None:
        """End every connection, whoever waits for it."""
        for each in list(self._connections):
            if each.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(each.sock, socket.SHUT_RDWR)  # not TLS' own, which would wait for an answer


def shorten(text: str) -> str:
    """Put text of others on one line, without secrets, and cut it."""
    return cut(" ".join(mask_text(text[:_MASKED]).split()), _LONGEST_REASON)


def _answer(response: requests.Response, body: str) -> HttpAnswer:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        decoded = None
    return HttpAnswer(response.status_code, response.headers, decoded, cut(body[:_MASKED], _LONGEST_REASON))


def _innermost(error: BaseException) -> BaseException:
    """Follow `reason`, arguments and causes to what the socket said: the outer texts repeat URL and object addresses."""
    while True:
        inner = getattr(error, "reason", None) or next(
            (each for each in error.args if isinstance(each, Exception)), None
        )
        inner = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
        if inner is None or inner is error:
            return error
        error = inner

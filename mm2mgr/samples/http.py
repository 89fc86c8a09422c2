"""A metric source over HTTP, asked one question after the other in a kept-alive session: the only owner of `requests`.

`requests` bounds each read of the socket, and so not an answer that comes in drips. Here every read ends at the
deadline of the exchange.
"""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, InvalidHeader, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import TimeoutError as WireTimeoutError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse
    from urllib3.connectionpool import ConnectionPool

from mm2mgr import bounded_http, timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import cut, mask_text, remember
from mm2mgr.text import span_text

CONNECT_SECONDS = 5.0
_LONGEST_REASON = 300
_MASKED = 100_000  # characters of an answer that is no JSON, looked through for secrets before it is cut
_PIECE_BYTES = 65_536
_ENDS_AT: ContextVar[float] = ContextVar("ends_at")  # of the exchange that this thread is in, on the monotonic clock


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
    json: object
    text: str


class Http:
    """A kept-alive session with one endpoint; use it in a `with` block, from one thread at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session = SourceSession(self._headers(), self._trust())

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def get(
        self, path: str, parameters: Mapping[str, str], headers: Mapping[str, str] | None = None, seconds: float = 0.0
    ) -> HttpAnswer:
        """Return the answer to one GET; SourceError when none came whole within `seconds` (default: the endpoint's)."""
        limit, url = seconds or self.endpoint.timeout_seconds, self.endpoint.url.rstrip("/") + path
        try:
            return _answer(self._session.get(url, parameters, headers or {}, limit))
        except bounded_http.BodyRefused as error:
            raise self.error(str(error), "check `url`: no metric source sends so much") from error
        except bounded_http.Late as error:
            late = "no whole answer" if error.begun else "no answer"
            hint = "check that it runs and can be reached from this machine"
            raise self.error(f"{late} within {span_text(limit)}", hint) from error
        except OSError as error:
            raise self._failure_of(error) from error

    def refusal(self, answer: HttpAnswer, reason: str) -> SourceError:
        """Build the error for an answer that is not what it should be; `reason` is the endpoint's own reason, or
        empty."""
        text = shorten(reason or answer.text or "an empty answer")
        hints = {401: "check `auth`", 403: "check `auth`: this login may not read metrics", 404: "check `url`"}
        hints |= dict.fromkeys((301, 302, 303, 307, 308), "check `url`: a redirect is not followed")
        return self.error(f"HTTP {answer.status}: {text}", hints.get(answer.status))

    def error(self, reason: str, hint: str | None = None) -> SourceError:
        """Build an error that names this endpoint."""
        return SourceError(f"{self.endpoint.name} at {self.endpoint.url}: {reason}", hint=hint)

    def _failure_of(self, error: Exception) -> SourceError:
        if isinstance(error, bounded_http.Broken):
            return self.error("the connection broke in the middle of an answer")
        if isinstance(error, bounded_http.NotHttp):
            return self.error(f"what answers there does not speak HTTP: {shorten(str(error))}", "check `url`")
        inner = _innermost(error)
        if isinstance(inner, ssl.SSLError):
            return self.error(f"TLS failed: {shorten(str(inner))}", "check `tls` of this source")
        number = inner.errno if isinstance(inner, OSError) else None
        reason = os.strerror(number) if number and number > 0 else str(inner)
        return self.error(f"no connection: {shorten(reason)}", "check `url` and the network from here")

    def _headers(self) -> dict[str, str]:
        mine = self.endpoint
        if mine.bearer is None:
            return {"Authorization": mine.basic_header()} if mine.basic else {}
        token = mine.bearer.strip()
        # An HTTP library quotes an illegal header value in its error, and the token would be in the log.
        if not token or not (token.isascii() and token.isprintable()):
            raise self.error("the bearer token is empty or holds characters that no HTTP header can carry")
        return {"Authorization": f"Bearer {token}"}

    def _trust(self) -> ssl.SSLContext | None:
        mine = self.endpoint
        if not mine.url.startswith("https:"):
            return None
        try:
            return bounded_http.tls_context(mine.ca, mine.certificate, mine.key, mine.key_password)
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (mine.ca, mine.certificate, mine.key)))
            hint = "They must be readable PEM files; an encrypted key needs `key_password`."
            raise self.error(f"the TLS files cannot be used ({files}): {error}", hint) from error


def shorten(text: str) -> str:
    """Put text of others on one line, without secrets, and cut it."""
    return cut(" ".join(mask_text(text[:_MASKED]).split()), _LONGEST_REASON)


def _answer(exchanged: bounded_http.Exchanged) -> HttpAnswer:
    try:
        decoded = json.loads(exchanged.text)
    except (ValueError, RecursionError):
        decoded = None
    return HttpAnswer(exchanged.status, exchanged.headers, decoded, cut(exchanged.text[:_MASKED], _LONGEST_REASON))


def _innermost(error: BaseException) -> BaseException:
    """Follow the causes to what the socket or TLS reported: the outer texts say only that it failed."""
    while (inner := error.__cause__ or error.__context__ or _argument(error)) is not None:
        error = inner
    return error


def _argument(error: BaseException) -> BaseException | None:
    last = error.args[-1] if error.args else None
    return last if isinstance(last, BaseException) else None


class SourceSession:
    """A session that takes nothing from the environment and follows no redirect, which could carry the credentials to
    another host.

    `headers` are sent with every question; `context` says whom to trust (None: the source is asked without TLS).
    """

    def __init__(self, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self._session = _Direct()
        self._session.trust_env = False
        self._session.headers.clear()
        self._session.headers.update(
            {
                "Accept": "application/json",
                "Accept-Encoding": bounded_http.ACCEPTED_ENCODING,
                "User-Agent": "mm2mgr",
                **headers,
            }
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(context))

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def get(
        self, url: str, parameters: Mapping[str, str], headers: Mapping[str, str], seconds: float
    ) -> bounded_http.Exchanged:
        """Return the answer to one GET; OSError before it began (NotHttp where it is none), then Late, Broken or
        BodyRefused.

        Where no connection was made, or it broke without an answer, or a gateway says that nobody is behind it, it is
        asked again.
        """
        ends_at, begun = timing.now() + seconds, False
        token = _ENDS_AT.set(ends_at)
        try:
            wait = (min(CONNECT_SECONDS, seconds), seconds)
            with self._session.get(
                url, params=dict(parameters), headers=dict(headers), timeout=wait, stream=True, allow_redirects=False
            ) as response:
                begun = True
                return bounded_http.Exchanged(response.status_code, response.headers, _text(response))
        except (OSError, HTTPError, ValueError) as error:  # the last for a chunk of a negative size
            if timing.now() >= ends_at or isinstance(error, requests.Timeout | WireTimeoutError):
                raise bounded_http.Late(seconds, begun=begun) from error
            if begun:
                raise bounded_http.Broken(str(error) or type(error).__name__) from error
            if (wrong := _protocol_error(error)) is not None:
                raise bounded_http.NotHttp(str(wrong)) from error
            if isinstance(error, OSError):
                raise
            raise OSError(str(error)) from error
        finally:
            _ENDS_AT.reset(token)


def _protocol_error(error: BaseException) -> BaseException | None:
    is_one = isinstance(error, HTTPException | InvalidHeader) and not isinstance(error, RemoteDisconnected)
    inner = (
        error.__cause__
        or error.__context__
        or next((argument for argument in error.args if isinstance(argument, Exception)), None)
    )
    return error if is_one else None if inner is None else _protocol_error(inner)


def _text(response: requests.Response) -> str:
    """Read the raw body, because what unpacks it elsewhere unpacks each piece whole, whatever becomes of it."""
    with bounded_http.Body(response.headers.get("Content-Encoding", "")) as body:
        for piece in response.raw.stream(_PIECE_BYTES, decode_content=False):
            body.add(piece)
        return body.text()


class _Direct(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None  # to tell where an answer sends, requests would read all of its body


class _Retry(Retry):
    """Asks again what failed at once, never what took its time."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        waited = isinstance(error, ConnectTimeoutError | ReadTimeoutError) and not isinstance(error, NewConnectionError)
        if error is not None and (waited or timing.now() >= _ENDS_AT.get()):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


class _Adapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(
            pool_maxsize=1,
            max_retries=_Retry(
                total=2,
                other=0,
                redirect=False,
                allowed_methods={"GET"},
                status_forcelist={502, 503},
                backoff_factor=0.1,
                raise_on_status=False,
                respect_retry_after_header=False,
            ),
        )

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **named: object) -> None:
        super().init_poolmanager(connections, maxsize, block, **named, ssl_context=self._context)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def cert_verify(self, *_: object, **__: object) -> None:
        """Leave it to the context: requests would trust its own list of authorities beside the declared one."""


# --- an exchange ends at its deadline, whatever comes in drips --------------------------------------------------------


def _seconds_left() -> float:
    left = _ENDS_AT.get() - timing.now()
    if left <= 0:
        raise OSError("the time is up")
    return left


class _Reading(io.RawIOBase):
    """What one answer brings over the wire, headers too."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire, self._file, self._count = wire, wire.makefile("rb", buffering=0), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._wire.settimeout(_seconds_left())
        count = self._file.readinto(buffer)
        self._count += count or 0
        if self._count > bounded_http.LIMIT_BYTES:
            raise bounded_http.BodyRefused(f"the answer is larger than {bounded_http.LIMIT_BYTES >> 20} MiB")
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp.close()
        self.fp = io.BufferedReader(_Reading(sock))


class _Connection(HTTPConnection):
    response_class = _Answer

    def connect(self) -> None:
        self.timeout = min(CONNECT_SECONDS, _seconds_left())
        super().connect()


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection

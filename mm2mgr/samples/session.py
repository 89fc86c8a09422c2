"""A kept-alive HTTP session with one metric source, which is asked one question after the other: the only owner of
`requests`.

`requests` bounds each read of the socket, and so not an answer that comes in drips. Here every read ends at the
deadline of the exchange.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, InvalidHeader, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import TimeoutError as WireTimeoutError

from mm2mgr import bounded_http, timing

CONNECT_SECONDS = 5.0
_PIECE_BYTES = 65_536
_ENDS_AT: ContextVar[float] = ContextVar("ends_at")  # of the exchange that this thread is in, on the monotonic clock


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
    """Return what is wrong with an answer, from the errors that led to this one; None where there was no answer."""
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
        response: Any = None,
        error: Any = None,
        *more: Any,
        **named: Any,
    ) -> Self:
        waited = isinstance(error, ConnectTimeoutError | ReadTimeoutError) and not isinstance(error, NewConnectionError)
        if error is not None and (waited or timing.now() >= _ENDS_AT.get()):
            raise error
        return super().increment(method, url, response, error, *more, **named)


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

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named, ssl_context=self._context)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Leave it to the context: requests would trust its own list of authorities beside the declared one."""


# --- an exchange ends at its deadline, whatever comes in drips
# -----------------------------------------------------------


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
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
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

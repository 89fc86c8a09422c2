"""The calls of one Connect cluster: which URL answers, how long it may take, and what is repeated.

A read is sent to several URLs side by side. A write goes to the next URL only if no connection was made, and is
repeated only after reading back showed that it did not happen. It knows no endpoint.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from mm2mgr import bounded_http, timing
from mm2mgr.connect.errors import (
    PAGE_HINT,
    AlreadyExists,
    Answer,
    Call,
    ConnectBusy,
    ConnectError,
    ConnectUnreachable,
    NotFound,
    OutcomeUnknown,
    WrongBody,
    error_of,
    lost_answer_error,
)
from mm2mgr.connect.exchange import Times, exchange, http_client
from mm2mgr.connect.target import ConnectTarget, TlsFiles
from mm2mgr.secrets import cut

CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
# How long a URL has the read to itself before the next is asked too: most workers answer sooner, even on a slow link.
_HEAD_START_SECONDS = 1.0
# How old what was read of credentials and certificates may be; refused ones are read again at once.
RENEW_SECONDS = 5.0
# A worker gives up after 90 s by itself (a constant in Kafka's HerderRequestHandler) and says so; wait for that answer.
_WRITE_SECONDS = 95.0
# Of what is left of a write's deadline, the share kept for reading back when the answer is lost.
_READ_BACK_SHARE = 0.2
_CONNECTING_SHARE = 0.8


@dataclass(frozen=True)
class Deadline:
    """The moment (of the monotonic clock) at which a call gives up, retries included; `silence_ends_at`: the same while
    no URL has answered anything."""

    ends_at: float
    read_seconds: float = _READ_SECONDS
    silence_ends_at: float = math.inf

    @classmethod
    def in_seconds(cls, seconds: float, silence_seconds: float = math.inf) -> Deadline:
        # More of a long time for one attempt: a long list over a slow link must be able to come whole.
        return cls(timing.now() + seconds, max(_READ_SECONDS, seconds / 4), timing.now() + silence_seconds)

    def seconds_left(self) -> float:
        """Return the seconds that are left, never negative."""
        return max(0.0, self.ends_at - timing.now())

    def attempt_seconds(self, write: bool) -> float:
        """Return how long one attempt may wait for its answer."""
        return (
            min(self.seconds_left() * (1 - _READ_BACK_SHARE), _WRITE_SECONDS)
            if write
            else min(self.seconds_left(), self.read_seconds)
        )


class ConnectHttp:
    """The HTTP side of one Connect cluster; `reached` tells whether any of its URLs ever took a connection, `answered`
    whether any ever began an answer. `silence_seconds`: how long a call waits for the first one."""

    def __init__(
        self,
        target: ConnectTarget,
        transport: httpx.AsyncBaseTransport | None = None,
        silence_seconds: float = math.inf,
    ) -> None:
        self.target = target
        self.reached = self.answered = False
        self.silence_seconds = silence_seconds
        self._preferred = 0
        self._transport = transport
        self._retired: list[httpx.AsyncClient] = []
        self._http, self._seen = self._client(), _stamps(target)
        self._renew_at = timing.now() + RENEW_SECONDS

    def _client(self) -> httpx.AsyncClient:
        target = self.target
        headers = dict(target.headers) | ({"Authorization": target.auth.header()} if target.auth else {})
        return http_client(headers, _verify(target), self._transport, _proxy(target))

    async def close(self) -> None:
        """Close all connections."""
        for client in (*self._retired, self._http):
            await client.aclose()

    def _renew_target(self) -> bool:
        """Take over credentials and certificates that changed on this machine; tell whether any did.

        What cannot be read just now, such as a file that is being replaced, stays as it was.
        """
        self._renew_at = timing.now() + RENEW_SECONDS
        if self.target.renewed is None:
            return False
        before = self.target, self._http
        try:
            fresh = self.target.renewed()
            stamps = _stamps(fresh)
            if fresh == self.target and stamps == self._seen:
                return False
            self.target = fresh
            self._http, self._seen = self._client(), stamps
        except ConnectError:
            self.target, self._http = before
            return False
        self._retired.append(before[1])  # calls on their way still use it
        return True

    def turn_from(self, url: str) -> None:
        """Start the next call at the URL after this one."""
        urls = self.target.urls
        if urls[self._preferred] == url:
            self._preferred = (self._preferred + 1) % len(urls)

    def seconds_left(self, deadline: Deadline) -> float:
        """Return the seconds that a call has left, never negative."""
        left = deadline.seconds_left()
        return left if self.answered else max(0.0, min(left, deadline.silence_ends_at - timing.now()))

    async def send(self, call: Call, deadline: Deadline) -> Answer:
        """Return the first answer that any URL gives; each failure before it is kept for the error's list."""
        if timing.now() >= self._renew_at:
            self._renew_target()
        ways = self._in_turn if call.write else self._side_by_side
        while True:
            failures: dict[str, Exception] = {}
            used = self._http
            answer = await ways(call, deadline, failures)
            # Neither has been carried out, so that a write may be sent again too.
            is_refused = answer is None or answer.status in _REFUSED
            # Another call may have read them again meanwhile.
            if is_refused and self.seconds_left(deadline) and (self._http is not used or self._renew_target()):
                continue
            if answer is None:
                raise self._unreachable(call, failures) from list(failures.values())[-1]
            return answer

    async def _in_turn(self, call: Call, deadline: Deadline, failures: dict[str, Exception]) -> Answer | None:
        """Write to the first URL that takes the connection; each URL has a share of the time for taking it."""
        urls = self._in_order()
        for number, url in enumerate(urls):
            # Each of TCP and TLS takes up to one share.
            shares = 2 * (len(urls) - number) + 1
            try:
                return await self._ask(url, call, deadline, shares)
            except (httpx.HTTPError, OSError) as failure:  # a TLS alert comes as bare ssl.SSLError
                self._note_failure(url, failure, failures)
                if not _never_connected(failure):
                    raise lost_answer_error(call, f"{url}: {_reason(failure)}") from failure
        return None

    async def _side_by_side(self, call: Call, deadline: Deadline, failures: dict[str, Exception]) -> Answer | None:
        """Read from all URLs, each started a moment after the one before it, or at once when that one failed.

        While one is silent, those that failed or are busy are asked again: they may be restarting.
        """
        waiting = deque(self._in_order())
        untried = len(waiting)
        pause = min(_HEAD_START_SECONDS, self.seconds_left(deadline) / (2 * untried))
        asked: dict[asyncio.Task[Answer], str] = {}
        busy: Answer | None = None
        starts_at = 0.0
        try:
            while asked or untried:
                if waiting and (not asked or timing.now() >= starts_at):
                    url = waiting.popleft()
                    asked[asyncio.create_task(self._ask(url, call, deadline))] = url
                    untried, starts_at = max(0, untried - 1), timing.now() + pause
                seconds = max(0.0, starts_at - timing.now()) if waiting else None
                done, _ = await asyncio.wait(asked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    url = asked.pop(task)
                    waiting.append(url)
                    try:
                        answer = task.result()
                    except (httpx.HTTPError, OSError) as failure:
                        self._note_failure(url, failure, failures)
                        continue
                    if not asked or not isinstance(error_of(answer, call), ConnectBusy):
                        self._preferred = self.target.urls.index(url)
                        return answer
                    busy = answer
            return busy
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def _unreachable(self, call: Call, failures: dict[str, Exception]) -> ConnectError:
        proxy = self.target.proxy
        way = f" through the proxy {proxy.url}" if proxy else ""
        # Through a proxy, it is the proxy that accepted it.
        silent = () if proxy else tuple(url for url, failure in failures.items() if _is_silent(failure))
        tried = "\n".join(
            f"  {url}{way}: {'accepted the connection, ' if url in silent else ''}{_reason(failure)}"
            for url, failure in failures.items()
        )
        keys = "`url`, `proxy` and `tls`" if proxy else "`url` and `tls`"
        hint = f"Check that the workers run and that {keys} of Connect cluster '{call.cluster}' are right."
        if silent:
            hint = (
                "A worker that accepts connections and gives no answer is suspended, overloaded, or waits for its own"
                f" Kafka cluster: check the brokers that Connect cluster '{call.cluster}' lives on, then its process"
                " and log; restart it if it stays silent."
            )
        if any(
            isinstance(failure, httpx.ProxyError) and str(failure).startswith("407") for failure in failures.values()
        ):
            hint = (
                f"The proxy wants other credentials: check `proxy: {{basic: …}}` of Connect cluster '{call.cluster}'."
            )
        error = call.error(ConnectUnreachable, f"no URL answered:\n{tried}", hint=hint)
        if isinstance(error, ConnectUnreachable):
            error.silent_urls = silent
        return error

    def _note_failure(self, url: str, failure: Exception, failures: dict[str, Exception]) -> None:
        failures[url] = _more_telling(failures.get(url), failure)
        self.turn_from(url)
        self.reached |= not _never_connected(failure)
        has_begun = isinstance(failure, bounded_http.Late) and failure.begun
        self.answered |= has_begun or isinstance(failure, bounded_http.Broken)

    def _in_order(self) -> tuple[str, ...]:
        urls = self.target.urls
        return urls[self._preferred :] + urls[: self._preferred]

    async def _ask(self, url: str, call: Call, deadline: Deadline, connect_shares: int = 1) -> Answer:
        seconds = deadline.attempt_seconds(call.write)
        first_seconds = seconds if call.write else min(seconds, self.seconds_left(deadline))
        # A read's attempt is longer than its connecting: what ends it then has taken the connection.
        connect_seconds = min(CONNECT_SECONDS, seconds / connect_shares, _CONNECTING_SHARE * first_seconds)
        try:
            times = Times(seconds, connect_seconds, first_seconds)
            exchanged = await exchange(self._http, call.method, url + call.path, times, json=call.body)
        except bounded_http.BodyRefused as refused:
            self.reached = self.answered = True
            problem = f"{url}: {refused}"
            raise (
                lost_answer_error(call, problem) if call.write else call.error(WrongBody, problem, hint=PAGE_HINT)
            ) from refused
        self.reached = self.answered = True
        return Answer(exchanged.status, exchanged.text, url, exchanged.headers.get("Location", ""))


# 407 is that of a proxy before a plain `http:` URL.
_REFUSED = (401, 403, 407)


def _never_connected(failure: Exception) -> bool:
    # A ProxyError is the answer of a proxy that did not make the connection.
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol | httpx.ProxyError):
        return True
    # In TLS 1.3 the server refuses a client certificate only after the handshake: an alert where the answer should be.
    return _tls_alert(failure) is not None


def _tls_alert(failure: BaseException) -> ssl.SSLError | None:
    link: BaseException | None = failure
    while link is not None:
        if isinstance(link, ssl.SSLError) and "ALERT" in (link.reason or ""):
            return link
        link = link.__cause__ or link.__context__
    return None


def _is_silent(failure: Exception) -> bool:
    """Tell whether a connection was taken, and no answer begun in time."""
    return isinstance(failure, bounded_http.Late) and failure.connected and not failure.begun


def _more_telling(before: Exception | None, failure: Exception) -> Exception:
    """Return the failure of a URL to tell of: not the later one where that merely had less time."""
    is_shorter = isinstance(failure, bounded_http.Late) and (
        _is_unconnected(failure) or (isinstance(before, bounded_http.Late) and before.seconds > failure.seconds)
    )
    return before if before and is_shorter else failure


def _is_unconnected(failure: Exception) -> bool:
    """Tell whether time was over before a connection was taken or refused."""
    return isinstance(failure, bounded_http.Late) and not failure.connected and not failure.begun


def _reason(failure: Exception) -> str:
    if isinstance(failure, httpx.ConnectTimeout) or _is_unconnected(failure):
        return "no connection in time"
    if isinstance(failure, bounded_http.Late):
        return f"{'the answer did not come whole' if failure.begun else 'no answer'} in {round(failure.seconds, 1):g} s"
    text = str(_tls_alert(failure) or failure) or type(failure).__name__
    return cut(re.sub(r"bytearray\(b(['\"].*['\"])\)", r"\1", text, flags=re.DOTALL))  # h11 quotes so what it was sent


def _verify(target: ConnectTarget) -> ssl.SSLContext | bool:
    if not any(url.startswith("https:") for url in target.urls):
        return False  # nothing to verify, and loading the system's authorities takes tens of milliseconds
    tls = target.tls or TlsFiles()
    try:
        return bounded_http.tls_context(tls.ca_file, tls.certificate_file, tls.key_file, tls.key_password)
    except (OSError, ValueError) as cause:
        files = ", ".join(str(path) for path in (tls.ca_file, tls.certificate_file, tls.key_file) if path)
        raise ConnectError(
            f"{target.noun} '{target.name}': the TLS files cannot be used ({files}): {cause}",
            hint="They must be readable PEM files; an encrypted key needs `key_password`.",
            cluster=target.name,
        ) from cause


def _stamps(target: ConnectTarget) -> tuple[object, ...]:
    """Return what changes whenever one of the TLS files does."""
    tls = target.tls or TlsFiles()
    return tuple(_stamp(path) for path in (tls.ca_file, tls.certificate_file, tls.key_file))


def _stamp(path: Path | None) -> object:
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return status and (status.st_ino, status.st_size, status.st_mtime_ns)


def _proxy(target: ConnectTarget) -> httpx.Proxy | None:
    proxy = target.proxy
    if proxy is None:
        return None
    # The client certificate is for the workers, not for the proxy.
    authority = target.tls.ca_file if target.tls else None
    context = bounded_http.tls_context(authority, None, None, None) if proxy.url.startswith("https:") else None
    login = (proxy.basic.username, proxy.basic.password) if proxy.basic else None
    return httpx.Proxy(proxy.url, auth=login, ssl_context=context)


_READ_DEADLINE_SECONDS = 60.0
# A write must outlast the 90 s after which a worker gives up, and leave time to read back what became of it.
_WRITE_DEADLINE_SECONDS = 120.0
LONGEST_BACKOFF_SECONDS = 5.0

T = TypeVar("T")
Check = Callable[[Deadline], Awaitable[bool]]


class Caller:
    """The calls of one client; a `deadline_seconds` of None means the `timeout` declared for reads (60 s by default),
    and twice that for writes.
    """

    def __init__(self, wire: ConnectHttp, deadline_seconds: float | None, first_backoff_seconds: float) -> None:
        self._wire = wire
        self._deadline_seconds = deadline_seconds
        self._first_backoff_seconds = first_backoff_seconds

    def with_deadline(self, deadline_seconds: float) -> Caller:
        """Return these calls with another deadline, over the same connections."""
        return Caller(self._wire, deadline_seconds, self._first_backoff_seconds)

    @property
    def pauses(self) -> tuple[float, ...]:
        """How long to wait before each look at what was written: followers learn of it just after the leader."""
        return 0.0, self._first_backoff_seconds, 4 * self._first_backoff_seconds

    async def read(self, call: Call, deadline: Deadline | None = None) -> Answer:
        """Return the answer of a call that changes nothing, inside the given deadline or one of its own."""
        deadline = deadline or self._deadline(_READ_DEADLINE_SECONDS)
        return await self._retrying(deadline)(self._exchange, call, deadline)

    async def write(self, call: Call, happened: Check | None, may_repeat: Check | None = None) -> Answer | None:
        """Return the answer, or None when it was lost and `happened` showed that the write is in place.

        Raises OutcomeUnknown when that is unknown; with `happened` None, whenever the answer is lost. `may_repeat` is
        asked before the write is sent again: it tells whether that is still needed, and raises where somebody else
        wrote meanwhile.
        """
        deadline = self._deadline(_WRITE_DEADLINE_SECONDS)
        attempts = 0

        async def attempt() -> Answer | None:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and may_repeat and not await may_repeat(deadline):
                return None
            try:
                return await self._exchange(call, deadline)
            except OutcomeUnknown as lost:
                if await self._resolve_outcome(lost, happened, deadline):
                    return None
                problem = f"{lost.message}; reading back showed that it had not happened"
                raise ConnectBusy(problem, hint=lost.hint, cluster=lost.cluster, connector=lost.connector) from lost
            except (AlreadyExists, NotFound):
                # An earlier attempt may have done it after all: then this is what it looks like.
                if attempts > 1 and happened and await self._shows(happened, deadline):
                    return None
                raise

        return await self._retrying(deadline)(attempt)

    async def _resolve_outcome(self, lost: OutcomeUnknown, happened: Check | None, deadline: Deadline) -> bool:
        if happened is None:
            raise lost
        try:
            return await self._shows(happened, deadline)
        except ConnectError as unreadable:
            # Not repeated: without reading back, that would be a second blind write.
            raise lost from unreadable

    async def _shows(self, happened: Check, deadline: Deadline) -> bool:
        for pause in self.pauses:
            await asyncio.sleep(min(pause, deadline.seconds_left()))
            if await happened(deadline):
                return True
        return False

    async def _exchange(self, call: Call, deadline: Deadline) -> Answer:
        answer = await self._wire.send(call, deadline)
        error = error_of(answer, call)
        if error is None:
            return answer
        if isinstance(error, ConnectBusy | OutcomeUnknown):
            self._wire.turn_from(answer.url)
        answer.text = ""
        raise error

    def _deadline(self, default_seconds: float) -> Deadline:
        if self._deadline_seconds is not None:
            return Deadline.in_seconds(self._deadline_seconds, self._wire.silence_seconds)
        declared = self._wire.target.timeout_seconds
        return Deadline.in_seconds(
            default_seconds if declared is None else declared * default_seconds / _READ_DEADLINE_SECONDS,
            self._wire.silence_seconds,
        )

    def _retrying(self, deadline: Deadline) -> AsyncRetrying:
        def passes(error: BaseException) -> bool:
            return isinstance(error, ConnectBusy) or (isinstance(error, ConnectUnreachable) and self._wire.reached)

        def stop(state: RetryCallState) -> bool:
            return state.upcoming_sleep >= self._wire.seconds_left(deadline)

        # Random over the whole interval: hundreds of connectors are refused by the same rebalance at once.
        wait = wait_random_exponential(multiplier=self._first_backoff_seconds, max=LONGEST_BACKOFF_SECONDS)
        return AsyncRetrying(retry=retry_if_exception(passes), wait=wait, stop=stop, reraise=True)


def parse_answer(answer: Answer, call: Call, parse: Callable[[object], T]) -> T:
    """Return the answer's body as a value; WrongBody names the Connect cluster and what was wrong."""
    data = answer.json(call)
    try:
        return parse(data)
    except WrongBody as wrong:
        message = wrong.message  # and not the error itself, whose frames hold the data
    answer.text, data = "", None
    hint = "The Connect cluster may be older than Kafka 2.3, or something else answers at its `url`."
    raise call.error(WrongBody, message, hint=hint, status=answer.status)

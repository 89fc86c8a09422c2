"""Clusters whose samples come from another system than Kafka: its HTTP endpoint, and its answers read as a source of
the loop.

What was missed is caught up, oldest first and a bounded piece per poll: the system is asked for everything after its
newest sample in the store, and a long answer is taken to its end before the next question.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mm2mgr import bounded_http
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.samples.batch import Batch, Gathered, Inventory
from mm2mgr.samples.clock import AHEAD_MS
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.session import SourceSession
from mm2mgr.samples.store import SampleStore
from mm2mgr.secrets import cut, mask_text, remember

_LONGEST_REASON = 300
_MASKED = 100_000  # characters of an answer that is no JSON, looked through for secrets before it is cut
_ROWS_PER_POLL = 1_000_000
_TOPICS_FOR_SECONDS = 300.0
_LATE_MS = 3_600_000  # what a source that answers does not have after an hour will not come: it is not asked for again
_REACH_MS = 15 * 86_400_000


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
            raise self.error(f"{late} within {limit:.3g} s", hint) from error
        except OSError as error:
            raise self._failure_of(error) from error

    def refusal(self, answer: HttpAnswer, reason: str) -> SourceError:
        """Build the error for an answer that is not what it should be; `reason` is the endpoint's own reason, or
        empty.
        """
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
    """Return the error that urllib3 has put into another one as its last argument."""
    last = error.args[-1] if error.args else None
    return last if isinstance(last, BaseException) else None


class Source(Protocol):
    """A system that can be asked for the samples of a span of time."""

    @property
    def source_prefix(self) -> str:
        """What the sources of its samples start with."""

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield what it knows of the span (since exclusive, None: only the newest, or all of a topic), oldest first."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True)
class _OpenAnswer:
    """What a source has still to give of a span that ends at `until_ms`; no sample from before `floor_ms` is
    believed.
    """

    pieces: Iterator[Gathered]
    floor_ms: int
    until_ms: int


@dataclass
class MetricSourceReader:
    """Reads one cluster from one source; `back_seconds` is how much of the past a first reading takes, 0 the newest
    only.
    """

    access: KafkaAccess
    accepts: Callable[[str], bool]
    source: Source
    store: SampleStore
    back_seconds: float = 0.0
    timeout_seconds: float = 10.0
    _newest_ms: int | None = None
    _looked: bool = False
    _answer: _OpenAnswer | None = None
    _inventory: Inventory | None = None
    _inventory_until: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.access.alias

    def poll(self) -> Poll:
        """Return what is new since the last poll; Mm2mgrError when the source, or Kafka's metadata, cannot be read."""
        # A begun answer first: a topic comes in order of offsets, so asking anew behind the newest time would skip
        # samples.
        answer, self._answer = self._answer or self._ask(time.time_ns() // 1_000_000), None
        batches: list[Batch] = []
        notes: dict[str, None] = {}
        try:
            for piece in answer.pieces:
                believed, doubts = _in_time(piece.batches, answer.floor_ms, answer.until_ms)
                batches += believed
                notes |= dict.fromkeys([*piece.notes, *doubts])
                self._newest_ms = max([self._newest_ms or 0, *(batch.time_ms for batch in believed)]) or None
                if sum(map(len, batches)) >= _ROWS_PER_POLL:
                    self._answer = answer
                    return Poll(
                        batches,
                        notes=(*notes, "catching up; more samples are pending"),
                        has_more=True,
                        lost=self._forget,
                    )
        except Mm2mgrError as error:
            if not batches:
                raise
            # What came is kept; the next poll goes on behind it.
            return Poll(batches, notes=(*notes, error.message), lost=self._forget)
        if self._newest_ms is not None:
            self._newest_ms = max(self._newest_ms, answer.until_ms - _LATE_MS)
        return Poll(batches, notes=tuple(notes), lost=self._forget)

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    def _forget(self) -> None:
        """Go back to what the store has: the next poll asks for everything after that."""
        self._answer, self._newest_ms, self._looked = None, None, False

    def _ask(self, now_ms: int) -> _OpenAnswer:
        since_ms = self._read_since_ms(now_ms)
        pieces = self.source.gather(self._topics(), since_ms, now_ms)
        return _OpenAnswer(pieces, min(since_ms or now_ms, now_ms - _REACH_MS), now_ms)

    def _topics(self) -> Inventory:
        if self._inventory is None or time.monotonic() > self._inventory_until:
            with Kafka(self.access, self.timeout_seconds) as kafka:
                self._inventory = Inventory(self.access.alias, kafka.topics(), self.accepts)
            self._inventory_until = time.monotonic() + _TOPICS_FOR_SECONDS
        return self._inventory

    def _read_since_ms(self, now_ms: int) -> int | None:
        if not self._looked:
            self._newest_ms = self.store.newest_of(self.name, self.source.source_prefix, now_ms - _REACH_MS)
            self._looked = True
        if self._newest_ms is not None:
            # What a clock that was ahead left, in the store or here, must not keep everything until then out.
            self._newest_ms = min(self._newest_ms, now_ms)
        if self._newest_ms is None and self.back_seconds:
            return now_ms - round(self.back_seconds * 1000)
        return self._newest_ms


def _in_time(batches: Sequence[Batch], since_ms: int, now_ms: int) -> tuple[list[Batch], list[str]]:
    """Return the batches whose time can be true, and a sentence about the others."""
    believed = [batch for batch in batches if since_ms <= batch.time_ms <= now_ms + AHEAD_MS]
    if lost := sum(map(len, batches)) - sum(map(len, believed)):
        return believed, [f"{lost} samples dropped: their time is in the future or long past"]
    return believed, []

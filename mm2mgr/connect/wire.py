"""Sends one request to a Connect cluster over the first of its URLs that answers, and remembers that URL.

A Call in, an Answer out; raises ConnectUnreachable, OutcomeUnknown or ConnectBusy when no answer came. It must not
judge answers or repeat a write: a write goes to the next URL only if the connection was never made.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass

import httpx

from mm2mgr.connect.answers import Answer, Call, lost
from mm2mgr.connect.errors import ConnectError, ConnectUnreachable
from mm2mgr.connect.mask import cut
from mm2mgr.connect.target import ConnectTarget, Tls

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
# A worker gives up after 90 s by itself (a constant in Kafka's HerderRequestHandler) and says so; hear it out.
WRITE_SECONDS = 95.0
# Of what is left of a write's deadline, the share kept for reading back when the answer is lost.
READ_BACK_SHARE = 0.2


@dataclass(frozen=True)
class Deadline:
    """The moment (of the monotonic clock) at which a call gives up, retries included."""

    ends_at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        """Return the seconds that are left, never negative."""
        return max(0.0, self.ends_at - time.monotonic())

    def attempt_seconds(self, write: bool) -> float:
        """Return how long one attempt may wait for its answer."""
        return min(self.left() * (1 - READ_BACK_SHARE), WRITE_SECONDS) if write else min(self.left(), READ_SECONDS)


class Wire:
    """The HTTP side of one Connect cluster; `reached` tells whether any of its URLs ever took a connection."""

    def __init__(self, target: ConnectTarget, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.target = target
        self.reached = False
        self._preferred = 0
        # No proxies or certificates from the environment: what the YAML tree says is all there is. No redirects either:
        # they could carry the credentials to another host.
        self._http = httpx.AsyncClient(
            headers={"Accept": "application/json"} | ({"Authorization": target.auth.header()} if target.auth else {}),
            verify=_ssl_context(target),
            transport=transport,
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def turn_from(self, url: str) -> None:
        """Start the next call at the URL after this one."""
        urls = self.target.urls
        if urls[self._preferred] == url:
            self._preferred = (self._preferred + 1) % len(urls)

    async def send(self, call: Call, deadline: Deadline) -> Answer:
        """Return the first answer that any URL gives; each failure before it is kept for the error's list."""
        reasons: dict[str, str] = {}
        cause: Exception | None = None
        for url in self._in_order():
            try:
                answer = await self._ask(url, call, deadline)
            except (httpx.HTTPError, OSError) as failure:  # a TLS alert comes as bare ssl.SSLError
                reasons[url] = _reason(failure)
                cause = failure
                self.turn_from(url)
                if not _never_connected(failure):
                    self.reached = True
                    if call.write:
                        raise lost(call, f"{url}: {reasons[url]}") from failure
            else:
                self.reached = True
                return answer
        raise _unreachable(call, reasons) from cause

    def _in_order(self) -> tuple[str, ...]:
        urls = self.target.urls
        return urls[self._preferred :] + urls[: self._preferred]

    async def _ask(self, url: str, call: Call, deadline: Deadline) -> Answer:
        seconds = deadline.attempt_seconds(call.write)
        # httpx times each read; a body that trickles in needs the outer bound.
        async with asyncio.timeout(seconds):
            response = await self._http.request(
                call.method,
                url + call.path,
                json=call.body,
                timeout=httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds), pool=None),
            )
        return Answer(response.status_code, response.text, url, response.headers.get("Location", ""))


def _unreachable(call: Call, reasons: dict[str, str]) -> ConnectError:
    tried = "\n".join(f"  {url}: {reason}" for url, reason in reasons.items())
    hint = f"Check that the workers run and that `url` and `tls` of Connect cluster '{call.cluster}' are right."
    return call.error(ConnectUnreachable, f"no URL answered:\n{tried}", hint=hint)


def _never_connected(failure: Exception) -> bool:
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
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


def _reason(failure: Exception) -> str:
    if isinstance(failure, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(failure, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    return cut(str(_tls_alert(failure) or failure) or type(failure).__name__)


def _ssl_context(target: ConnectTarget) -> ssl.SSLContext | bool:
    if not any(url.startswith("https:") for url in target.urls):
        return False  # nothing to verify, and loading the system's authorities takes tens of milliseconds
    tls = target.tls or Tls()
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file:
            # A callable, since without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=lambda: tls.key_password or "")
    except (OSError, ValueError) as cause:
        files = ", ".join(str(path) for path in (tls.ca_file, tls.certificate_file, tls.key_file) if path)
        raise ConnectError(
            f"Connect cluster '{target.name}': the TLS files cannot be used ({files}): {cause}",
            hint="They must be readable PEM files; an encrypted key needs its password.",
            cluster=target.name,
        ) from cause
    return context

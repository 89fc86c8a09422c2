"""What the two HTTP clients share: an answer's body, unpacked, counted and judged while it comes in; and whom to trust.

`connect.exchange` asks many workers at the same time, `samples.http` one metric source after the other. Both take
one answer within a deadline and with a bounded body, no proxy but a declared one, and no redirect.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

ACCEPTED_ENCODING = "gzip"
LIMIT_BYTES = 256 * 1024 * 1024
"""Of an unpacked body. The largest that a real estate has is the status of a Connect cluster: 5 000 connectors with 500
tasks each, 105 bytes per task with a worker's long host name, are 250 MiB; their configs (50 kB each) are as much.
Cruise Control's load of 500 000 partitions is 120 MiB, Prometheus' answer about them half of that."""
LIMIT_VALUES = 12_000_000
"""Of commas and opening brackets, which bound what JSON becomes in memory (10 to 200 bytes each): that status has 10
million, that load 5 million."""


class BodyRefused(Exception):
    """The body is larger than a limit, or not packed as it says; the text is a clause for a message."""


class Body:
    """One body; `encoding` is the answer's Content-Encoding. Use it in a `with` block, after which it holds nothing.

    An error keeps the frames that it came through, and so their variables, until Python looks for garbage: seldom, and
    a body is large.
    """

    def __init__(self, encoding: str = "") -> None:
        name = encoding.strip().lower() or "identity"
        if name not in {"identity", "gzip", "x-gzip"}:
            raise BodyRefused(f"the answer is encoded as {encoding.strip()[:40]!r}, which was not requested")
        self._inflater = None if name == "identity" else _gzip()
        self._found = bytearray()
        self.received_bytes = 0  # over the wire

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._found, self._inflater = bytearray(), None

    def add(self, piece: bytes) -> None:
        """Take the next raw piece; BodyRefused when the limit is passed, however small the pieces are packed."""
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
        """Return the whole body; BodyRefused when it ends too soon or holds more values than any answer needs."""
        if self._inflater and self.received_bytes and not self._inflater.eof:
            raise BodyRefused("the gzip data ends too early")
        if len(self._found) > LIMIT_VALUES and sum(map(self._found.count, (b",", b"[", b"{"))) > LIMIT_VALUES:
            raise BodyRefused(f"the answer holds more than {LIMIT_VALUES / 1e6:g} million values")
        return self._found.decode("utf-8-sig", errors="replace")

    def _check_size(self) -> None:
        if max(len(self._found), self.received_bytes) > LIMIT_BYTES:
            packed = ", unpacked" if self._inflater else ""
            raise BodyRefused(f"the answer is larger than {LIMIT_BYTES >> 20} MiB{packed}")


def _gzip() -> zlib._Decompress:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


# --- one exchange -----------------------------------------------------------------------------------------------------


class Late(TimeoutError):
    """The answer did not come, or (`begun`) not come whole, in the time allowed; `connected`: the server had taken the
    connection."""

    def __init__(self, seconds: float, *, begun: bool, connected: bool = False) -> None:
        super().__init__(f"no answer in time ({seconds:.3g} s)")
        self.seconds, self.begun, self.connected = seconds, begun, connected


class Broken(OSError):
    """The connection broke in the middle of an answer."""


class NotHttp(OSError):
    """Something answered, and not as HTTP wants it; the text is what it sent, or what is wrong with it."""


@dataclass(frozen=True)
class Exchanged:
    """An answer as it came: status, headers and the whole body as text."""

    status: int
    headers: Mapping[str, str]
    text: str


def tls_context(
    ca: str | PathLike[str] | None,
    certificate: str | PathLike[str] | None,
    key: str | PathLike[str] | None,
    password: str | None,
) -> ssl.SSLContext:
    """Return whom to trust (None: the machine's authorities) and whom to present; OSError or ValueError for unusable
    files.
    """
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        # A callable, since without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password or "")
    return context

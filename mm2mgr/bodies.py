"""The body of one HTTP answer as it comes in: unpacked, counted and judged before anything is made of it.

In: raw pieces. Out: the text; BodyRefused, with the limit in its sentence, for what no honest server sends. Knows no HTTP library.
"""

from __future__ import annotations

import zlib

ACCEPTED_ENCODING = "gzip"
LIMIT_BYTES = 256 * 1024 * 1024
"""Of an unpacked body. The largest that a real estate has is the status of a Connect cluster: 5 000 connectors with 500
tasks each, 105 bytes a task with a worker's long host name, are 250 MiB; their configs (50 kB each) are as much. Cruise
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
            raise BodyRefused(f"the answer is packed as {encoding.strip()[:40]!r}, which was not asked for")
        self._inflater = None if name == "identity" else _gzip()
        self._found = bytearray()
        self._received = 0

    @property
    def received_bytes(self) -> int:
        """How much came over the wire."""
        return self._received

    def add(self, piece: bytes) -> None:
        """Take the next raw piece; BodyRefused at once when the limit is passed, however small the pieces are packed."""
        self._received += len(piece)
        try:
            while piece and self._inflater:
                self._found += self._inflater.decompress(piece, LIMIT_BYTES + 1 - len(self._found))
                self._check_size()
                piece = self._inflater.unconsumed_tail or self._inflater.unused_data
                if self._inflater.eof and piece:
                    self._inflater = _gzip()  # gzip files may follow one another
        except zlib.error as error:
            raise BodyRefused("the answer says that it is packed with gzip, and is not") from error
        self._found += piece
        self._check_size()

    def text(self) -> str:
        """Return the whole body, once; BodyRefused when it ends too soon or holds more values than any answer needs."""
        if self._inflater and self._received and not self._inflater.eof:
            raise BodyRefused("the packed answer ends in the middle")
        found, self._found = self._found, bytearray()
        if len(found) > LIMIT_VALUES and sum(map(found.count, (b",", b"[", b"{"))) > LIMIT_VALUES:
            raise BodyRefused(f"the answer holds more than {LIMIT_VALUES / 1e6:g} million values")
        return found.decode("utf-8-sig", errors="replace")

    def _check_size(self) -> None:
        if max(len(self._found), self._received) > LIMIT_BYTES:
            packed = ", unpacked" if self._inflater else ""
            raise BodyRefused(f"the answer is larger than {LIMIT_BYTES >> 20} MiB{packed}")


def _gzip() -> zlib._Decompress:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)

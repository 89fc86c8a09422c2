"""Answers that no honest server gives, spoken over a real socket of the loopback, for as long as anybody listens."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
Pieces = Callable[[threading.Event], Iterator[bytes]]


@contextmanager
def speaking(pieces: Pieces) -> Iterator[str]:
    """Answer every request with the pieces, until the other side hangs up or the block ends; yield the URL."""
    over, threads = threading.Event(), list[threading.Thread]()

    def speak(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(10)
            connection.recv(65_536)
            for piece in pieces(over):
                if over.is_set():
                    return
                connection.sendall(piece)

    def accept(server: socket.socket) -> None:
        while not over.is_set():
            with suppress(OSError):
                threads.append(threading.Thread(target=speak, args=(server.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(0.05)
        threads.append(threading.Thread(target=accept, args=(server,)))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            for thread in threads:
                thread.join(20)


def once(*pieces: bytes) -> Pieces:
    return lambda over: iter(pieces)


def body(text: str | bytes, encoding: str = "") -> Pieces:
    """A whole answer of this body."""
    data = text if isinstance(text, bytes) else text.encode()
    more = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    return once(OK + f"{more}Content-Length: {len(data)}\r\n\r\n".encode(), data)


def again_and_again(head: bytes, piece: bytes, pause_seconds: float = 0.0) -> Pieces:
    def pieces(over: threading.Event) -> Iterator[bytes]:
        yield head
        while not (over.wait(pause_seconds) if pause_seconds else over.is_set()):
            yield piece

    return pieces


def bomb(over: threading.Event) -> Iterator[bytes]:
    """One gzip file of blanks without end: a thousandth of its size on the wire."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    yield GZIP + packer.compress(b"[") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (8 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    while True:
        yield block


TOO_LARGE: dict[str, Pieces] = {
    "endless": again_and_again(OK + b"Connection: close\r\n\r\n", b" " * 65_536),
    "endless in chunks": again_and_again(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    ),
    "gzip bomb": bomb,
    "gzip files of nothing": again_and_again(GZIP, gzip.compress(b"") * 3_000),
    "stops far behind the limit": body("[" + " " * (3 << 20) + "]"),
    "error without end": again_and_again(b"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n", b"x" * 65_536),
}
REFUSED: dict[str, tuple[Pieces, str]] = {
    "packed twice": (body(gzip.compress(gzip.compress(b"[]")), "gzip, gzip"), "encoded as 'gzip, gzip', which was not"),
    "packed otherwise": (body(b"\x28\xb5\x2f\xfd", "zstd"), "encoded as 'zstd', which was not requested"),
    "not packed at all": (body("[]", "gzip"), "is declared as gzip, but is not"),
    "packed by half": (body(gzip.compress(b"[" + b" " * 10_000)[:20], "gzip"), "gzip data ends too early"),
    "too many values": (body("[" + "[]," * 1_000 + "1]"), "holds more than 0.001 million values"),
}
LATE: dict[str, Pieces] = {
    "body by drips": again_and_again(OK + b"Content-Length: 100000\r\n\r\n", b" ", 0.02),
    "packed by drips": again_and_again(GZIP, gzip.compress(b""), 0.02),
    "headers by drips": again_and_again(OK + b"X: ", b"x", 0.02),
    "one more header": again_and_again(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.1),
    "to be continued": again_and_again(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
}
NONSENSE: dict[str, str] = {
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "deep and whole": "[" * 50_000 + "]" * 50_000,
    "long number": "1" * 100_000,
    "numbers in a list": json.dumps([10**400]),
    "nothing": "",
    "NaN": "NaN",
    "surrogates": '"\\ud800"',
}
NO_HTTP: dict[str, bytes] = {
    "mail": b"220 mail.example ESMTP\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status that is none": b"HTTP/1.1 99 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "an endless header": OK + b"X: " + b"x" * 200_000,
    "a negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk of letters": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
}

"""A broker behind a real socket that knows client quotas, and logins by SASL; its side of the protocol shares no code with mm2mgr's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Parts = tuple[tuple[str, str | None], ...]
"""Kinds and names of an entity; a name that is None is the default."""
RATE = "producer_byte_rate"


def of_client(client_id: str, user: str = "") -> Parts:
    return (("client-id", client_id), *((("user", user),) if user else ()))


@dataclass
class QuotaBroker:
    """What it has and how it answers. `refuse`: error code and message for whatever writes; `unreadable`: for whatever reads."""

    brokers: int = 3
    quotas: dict[Parts, dict[str, float]] = field(default_factory=dict)
    refuse: tuple[int, str | None] = (0, None)
    unreadable: tuple[int, str | None] = (0, None)
    logins: dict[str, str] = field(default_factory=dict)
    """Passwords by user; none: nobody has to log in."""
    asked: list[int] = field(default_factory=list)
    """API keys of requests."""
    address: str = ""
    silent: bool = False

    def rates(self) -> dict[Parts, float]:
        return {parts: values[RATE] for parts, values in self.quotas.items() if RATE in values}

    def set(self, rate: float, client_id: str, user: str = "") -> None:
        """Change a quota as a person does."""
        self.quotas[of_client(client_id, user)] = {RATE: rate}


@contextmanager
def serving_quotas(broker: QuotaBroker | None = None) -> Iterator[QuotaBroker]:
    """Serve on a free port until the block ends."""
    broker = broker or QuotaBroker()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            _Session(broker, self.request).serve()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

    with Server(("127.0.0.1", 0), Handler) as server:
        broker.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield broker
        finally:
            server.shutdown()
            thread.join()


class _Session:
    def __init__(self, broker: QuotaBroker, line: socket.socket) -> None:
        self.broker, self.line = broker, line
        self.user, self.steps = ("" if broker.logins else "ANONYMOUS"), list[bytes]()
        self.mechanism = ""

    def serve(self) -> None:
        while head := self.read(4):
            data = self.read(struct.unpack(">i", head)[0])
            key, _, number, size = struct.unpack_from(">hhih", data)
            self.broker.asked.append(key)
            if self.broker.silent:
                continue
            if not self.user and key not in (17, 36):
                return  # as real brokers do with whoever has not logged in
            answer = {17: self.handshake, 36: self.authenticate, 48: self.describe, 49: self.alter, 60: self.cluster}[
                key
            ]
            body = struct.pack(">i", number) + answer(data[10 + size :])
            self.line.sendall(struct.pack(">i", len(body)) + body)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.line.recv(count - len(data))
            except OSError:
                return b""
            if not more:
                return b""
            data += more
        return data

    def cluster(self, _: bytes) -> bytes:
        # header tags, throttle, error, no message, cluster id, controller, brokers
        low, high = (self.broker.brokers + 1) & 0x7F, (self.broker.brokers + 1) >> 7
        count = bytes([low | 0x80, high]) if high else bytes([low])
        return struct.pack(">BihBB3sI", 0, 0, 0, 0, 4, b"abc", 1) + count

    def describe(self, _: bytes) -> bytes:
        code, why = self.broker.unreadable
        found = struct.pack(">ih", 0, code) + _text(why) + struct.pack(">i", len(self.broker.quotas))
        for parts, values in self.broker.quotas.items():
            found += struct.pack(">i", len(parts)) + b"".join(_text(kind) + _text(name) for kind, name in parts)
            found += struct.pack(">i", len(values))
            found += b"".join(_text(key) + struct.pack(">d", value) for key, value in values.items())
        return found

    def alter(self, body: bytes) -> bytes:
        taken = _Fields(body)
        answers = []
        for _ in range(taken.number("i")):
            parts = tuple((str(taken.text()), taken.text()) for _ in range(taken.number("i")))
            for _ in range(taken.number("i")):
                key, value, remove = str(taken.text()), taken.number("d"), taken.number("?")
                if self.broker.refuse[0]:
                    continue
                values = self.broker.quotas.setdefault(parts, {})
                values.pop(key, None)
                if not remove:
                    assert value == int(value) >= 1, "brokers take whole numbers from 1 on"
                    values[key] = value
                if not values:
                    del self.broker.quotas[parts]
            named = struct.pack(">i", len(parts)) + b"".join(_text(kind) + _text(name) for kind, name in parts)
            answers.append(struct.pack(">h", self.broker.refuse[0]) + _text(self.broker.refuse[1]) + named)
        assert taken.number("?") is False, "it is to be written"
        return struct.pack(">ii", 0, len(answers)) + b"".join(answers)

    # --- logins -------------------------------------------------------------------------------------------------------

    def handshake(self, body: bytes) -> bytes:
        self.mechanism = str(_Fields(body).text())
        return struct.pack(">hi", 0 if self.mechanism != "SCRAM-SHA-1" else 33, 0)

    def authenticate(self, body: bytes) -> bytes:
        self.steps.append(body[4:])
        answer = self.plain() if self.mechanism == "PLAIN" else self.scram()
        if answer is None:
            return struct.pack(">h", 58) + _text("Authentication failed: invalid credentials") + struct.pack(">i", 0)
        return struct.pack(">h", 0) + _text(None) + struct.pack(">i", len(answer)) + answer

    def plain(self) -> bytes | None:
        _, user, password = self.steps[-1].decode().split("\0")
        self.user = user if self.broker.logins.get(user) == password else ""
        return b"" if self.user else None

    def scram(self) -> bytes | None:
        digest = "sha" + self.mechanism.rpartition("-")[2]
        salt, iterations = b"salty", 4096
        first = self.steps[0].decode().removeprefix("n,,")
        fields = dict(part.split("=", 1) for part in first.split(","))
        theirs = f"r={fields['r']}more,s={base64.b64encode(salt).decode()},i={iterations}"
        if len(self.steps) == 1:
            return theirs.encode()
        last, _, proof = self.steps[1].decode().rpartition(",p=")
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        salted = hashlib.pbkdf2_hmac(digest, self.broker.logins.get(user, "?").encode(), salt, iterations)
        signed = f"{first},{theirs},{last}".encode()
        stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
        signature = hmac.digest(stored, signed, digest)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(digest, key).digest() != stored:
            return None
        self.user = user
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        return b"v=" + base64.b64encode(verifier)


class _Fields:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> Any:
        (found,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(f">{form}")
        return found

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self.number(f"{size}s").decode()


def _text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()

"""An estate of 20 Connect clusters that answer late and badly: its tree, its fakes with faults by seed, and a server of its own process.

`Harsh.transport` answers inside a test; `python -m tests.scale.estate` serves all clusters over HTTP, beside mock brokers, so that
a benchmark measures the client alone. It prints where they are as JSON and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.fake_connect import FORWARD_CUT, NO_LEADER, REBALANCE, STALE, TIMED_OUT, Answer, Dropped, FakeConnect

CLUSTERS, SOURCES = 20, 4
ANSWER_SECONDS = 0.02
_CONFLICTING = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong, as shares of requests. `rebalance_seconds`: how long one lasts after a write begins it."""

    conflicts: float = 0.15
    ambiguous: float = 0.02
    resets: float = 0.02
    rebalances: float = 0.05
    rebalance_seconds: float = 1.5
    breaks: float = 0.0
    """The share of written connectors whose first task fails."""


NONE = Faults(0.0, 0.0, 0.0, 0.0)


@dataclass
class Harsh:
    """One Connect cluster with faults drawn by a seed; `answer_seconds` late, and not there at all while `down`."""

    fake: FakeConnect
    seed: int = 0
    faults: Faults = NONE
    answer_seconds: float = ANSWER_SECONDS
    down: bool = False
    tally: Counter[str] = field(default_factory=Counter)
    written_at: float = 0.0

    def __post_init__(self) -> None:
        self._dice = random.Random(f"{self.seed} {self.fake.cluster_id}")
        self._rebalancing_until = 0.0

    def quiet(self) -> None:
        """End all faults."""
        self.faults, self.down = NONE, False

    def handle(self, now: float, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Answer one request as a worker does on a bad day; Dropped for a cut connection."""
        url, faults = urlsplit(target), self.faults
        writes = method != "GET" and not url.path.endswith("/validate")
        self.tally["write" if writes else "read"] += 1
        if writes:
            self.written_at = now

        def answer() -> Answer:
            return self.fake.handle(method, url.path, url.query, body, headers)[0]

        if now < self._rebalancing_until and url.path.endswith(("/config", "/tasks")):
            return self._failed("rebalance", 500, REBALANCE)
        if self._dice.random() < faults.conflicts and (writes or url.path.endswith("/tasks")):
            return self._failed("conflict", 409, self._dice.choice((STALE, NO_LEADER, _CONFLICTING)))
        if self._dice.random() < faults.resets:
            self.tally["reset"] += 1
            raise Dropped
        if writes and self._dice.random() < faults.rebalances:
            self._rebalancing_until = now + faults.rebalance_seconds
        if writes and self._dice.random() < faults.ambiguous:
            answer()  # carried out, and the answer is lost
            if self._dice.random() < 0.5:
                self.tally["lost"] += 1
                raise Dropped
            return self._failed("lost", 500, self._dice.choice((TIMED_OUT, FORWARD_CUT)))
        reply = answer()
        if writes and self._dice.random() < faults.breaks:
            for name, one in self.fake.connectors.items():
                if name in url.path or name.encode() in body:
                    one.failed_tasks = {0: "java.lang.IllegalStateException"}
        return reply

    def _failed(self, what: str, status: int, message: str) -> Answer:
        self.tally[what] += 1
        body = json.dumps({"error_code": status, "message": message}).encode()
        return status, {"Content-Type": "application/json"}, body

    def transport(self) -> Any:
        """Return an httpx.MockTransport that answers as this cluster."""
        import httpx

        async def answer(request: httpx.Request) -> httpx.Response:
            loop, patience = asyncio.get_running_loop(), request.extensions["timeout"]["read"]
            if self.down:
                raise httpx.ConnectError("connection refused")
            reply: Answer | None = None
            with suppress(Dropped):
                target = str(request.url)
                reply = self.handle(loop.time(), request.method, target, request.content, request.headers)
            await asyncio.sleep(min(self.answer_seconds, patience))
            if patience < self.answer_seconds:
                raise httpx.ReadTimeout("no answer")
            if reply is None:
                raise httpx.ReadError("connection reset by peer")
            return httpx.Response(reply[0], headers=reply[1], content=reply[2])

        return httpx.MockTransport(answer)


def tree_lines(connectors: int, urls: Sequence[str], brokers: Mapping[str, str] | None = None) -> Iterator[str]:
    """Write a tree of so many connectors, shared out evenly over Connect clusters w0, w1, … on Kafka clusters t0, t1, …

    Each target has one source; its heartbeat and its checkpoint connector count too.
    """
    sources = [f"s{number}" for number in range(SOURCES)]
    targets = [f"t{number}" for number in range(len(urls))]
    yield "owner: scale"
    yield "defaults: {flows: {refresh_interval: 10min}, clusters: {replication_factor: 1}}"
    yield "clusters:"
    for alias in sources + targets:
        server = (brokers or {}).get(alias, f"{alias}.example:9092")
        yield f'  {alias}: {{bootstrap_servers: ["{server}"], cluster_id: id-{alias}}}'
    yield "connect:"
    for number, url in enumerate(urls):
        yield f'  w{number}: {{url: "{url}", kafka: t{number}}}'
    yield "flows:"
    for number in range(len(urls)):
        share = connectors * (number + 1) // len(urls) - connectors * number // len(urls)
        for flow in range(share - 2):
            yield f"  flow-{number}-{flow}:"
            yield f"    sources: [{sources[number % SOURCES]}]"
            yield f"    targets: [t{number}]"
            yield f"    topics: {{include: ['team{flow}[.].*', 'shared{flow}'], exclude: ['.*[.]tmp']}}"
            yield f"    tasks: {{max: {1 + flow % 8}}}"


# --- over HTTP --------------------------------------------------------------------------------------------------------


class _Http(asyncio.Protocol):
    """The least of HTTP/1.1 that a Connect client needs: keep-alive, Content-Length, one answer after the other."""

    def __init__(self, harsh: Harsh) -> None:
        self._harsh, self._got = harsh, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._got[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            size = end + 4 + int(headers.get("content-length", 0))
            if len(self._got) < size:
                return
            body, self._got = self._got[end + 4 : size], self._got[size:]
            method, target, _ = first.split(" ", 2)
            self._answer(method, target, body, headers)

    def _answer(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        if target == "/estate/forget":  # of the benchmark, not of Connect
            self._harsh.fake.connectors.clear()
        if target.startswith("/estate"):
            self._send((200, {}, json.dumps(self._harsh.tally).encode()))
            self._harsh.tally.clear()
            return
        try:
            reply = self._harsh.handle(loop.time(), method, target, body, headers)
        except Dropped:
            loop.call_later(self._harsh.answer_seconds, self._transport.abort)
            return
        loop.call_later(self._harsh.answer_seconds, self._send, reply)

    def _send(self, reply: Answer) -> None:
        status, headers, body = reply
        lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in headers.items())]
        if status != 204:
            lines.append(f"Content-Length: {len(body)}")
        if not self._transport.is_closing():
            self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)


async def _serve(clusters: Sequence[Harsh]) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda one=one: _Http(one), "127.0.0.1", 0) for one in clusters]  # type: ignore[misc]
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    mocks = {alias: _mock_broker() for alias in [*(f"s{n}" for n in range(SOURCES)), *_targets(len(urls))]}
    print(json.dumps({"urls": urls, "brokers": {alias: server for alias, (_, server) in mocks.items()}}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _targets(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def _mock_broker() -> tuple[Any, str]:
    """Return librdkafka's own mock broker (it ends with the client that is returned) and its address."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
    servers = producer.list_topics(timeout=20).brokers
    producer.produce("mm2mgr.history.internal", b"", b"created")  # it creates topics for producers only
    producer.flush(20)
    return producer, next(f"{one.host}:{one.port}" for one in servers.values())


def main() -> None:
    """Serve the estate until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument("--answer-seconds", type=float, default=ANSWER_SECONDS)
    given = parser.parse_args()
    fakes = [FakeConnect(cluster_id=f"id-{target}") for target in _targets(given.clusters)]
    asyncio.run(_serve([Harsh(fake, answer_seconds=given.answer_seconds) for fake in fakes]))


if __name__ == "__main__":
    main()

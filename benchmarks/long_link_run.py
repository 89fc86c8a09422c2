"""Real brokers and a real Connect worker on either side of an emulated link, and one mirror at a time measured between them."""

from __future__ import annotations

import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import confluent_kafka

from benchmarks.emulated_link import ADDRESSES, EmulatedLink, Side
from benchmarks.long_link_settings import Buffers, Case, Ends, config, forecast
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import LogEnds
from mm2mgr.link import Forecast
from mm2mgr.operations.link import link_read
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import DIRECT, Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import Server

WARM_UP_SECONDS = 3.0
# A fetch that cannot finish within request.timeout.ms (30 s) starts again for ever.
STALLED_SECONDS = 45.0
_POLL_SECONDS = 0.2
_CLIENTS = ("source.consumer.", "producer.override.")
_FLAGS_OF_SHORT_LIVES = {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}
_WRITERS_BATCH_BYTES = 16_384  # what ordinary producers write; a fetch never takes less than a whole batch


class LinkBroker(Broker):
    """A broker that answers at its end of the link."""

    heap = "512m"
    address_in_link = ""

    def bootstrap(self, listener: str) -> str:
        return f"{self.address_in_link}:{self.ports[listener]}"


class LinkWorker(Worker):
    """A worker with the JVM's ordinary compiler and collector."""

    def jvm_arguments(self) -> list[str]:
        return [word for word in super().jvm_arguments() if word not in _FLAGS_OF_SHORT_LIVES]


@dataclass(frozen=True)
class Outcome:
    """What became of a row: records per second as MB/s of values, and what else was seen meanwhile."""

    case: Case
    settings: dict[str, str]
    megabytes_per_second: float
    forecast: Forecast
    wire_megabytes_per_second: float
    drops: int
    first_record_seconds: float | None
    error: str
    load: float
    idle_share: float
    worker_rss_mib: int

    @property
    def stalled(self) -> bool:
        return self.first_record_seconds is None

    def to_dict(self) -> dict[str, Any]:
        case = asdict(self.case)
        return {
            **case,
            "settings": self.settings,
            "measured_mb_s": round(self.megabytes_per_second, 2),
            "predicted_mb_s": round(self.forecast.flow / 1e6, 2),
            "verdict": self.forecast.verdict,
            "stalled": self.stalled,
            "wire_mb_s": round(self.wire_megabytes_per_second, 2),
            "drops": self.drops,
            "first_record_s": self.first_record_seconds,
            "error": self.error,
            "load": round(self.load, 1),
            "idle_share": round(self.idle_share, 2),
            "worker_rss_mib": self.worker_rss_mib,
        }


@dataclass(frozen=True)
class _Mirror:
    """The connector of a row, on the worker of one side."""

    case: Case
    ends: Ends
    config: dict[str, str]
    side: Side

    @property
    def url(self) -> str:
        return f"{self.ends.connect_url}/connectors/{self.ends.alias}"

    @property
    def topic(self) -> str:
        return f"{self.ends.alias}.{self.ends.topic}"


class Bench:
    """Both sides of the link with their servers."""

    def __init__(self, link: EmulatedLink, folder: Path, runtime: Runtime, heap: str) -> None:
        self.link = link
        self.brokers: dict[Side, LinkBroker] = {}
        self.workers: dict[Side, LinkWorker] = {}
        self._folder, self._runtime, self._heap = folder, runtime, heap
        self._rows = 0
        self._written: dict[str, int] = {}

    @contextmanager
    def serving(self, buffers: Buffers) -> Iterator[None]:
        """Serve with these socket buffers of the brokers; what is stored stays from one time to the next."""
        with ExitStack() as stack:
            sizes = dict.fromkeys(("socket.send.buffer.bytes", "socket.receive.buffer.bytes"), "-1")
            more = {"message.max.bytes": "1048588", **(sizes if buffers == "-1" else {})}
            for side, address in ADDRESSES.items():
                broker = self.brokers.get(side) or LinkBroker(side, self._folder / side, runtime=self._runtime)
                broker.address_in_link, broker.properties = address, more
                self.brokers[side] = broker
                stack.callback(broker.stop)
            self._start(self.brokers)
            for side, broker in self.brokers.items():
                name = f"worker-{side}"
                worker = LinkWorker(name, self._folder / name, broker.bootstrap_servers, runtime=self._runtime)
                worker.heap = self._heap
                self.workers[side] = worker
                stack.callback(worker.stop)
            self._start(self.workers)
            yield

    def access(self, side: Side) -> KafkaAccess:
        return KafkaAccess(side, self.brokers[side].bootstrap_servers)

    def preload(self, case: Case, megabytes: int) -> None:
        """Write the row's backlog once, spread evenly: records of random bytes, with compression ones that it halves."""
        topic, partitions, record_bytes, compression = case.topic, case.partitions, case.record_bytes, case.compression
        if topic in self._written:
            return
        count = megabytes * 1_000_000 // record_bytes
        material = os.urandom(4_000_000 + record_bytes)
        if compression != "none":
            material = bytes(byte & 15 for byte in material)
        configs = {"max.message.bytes": str(case.message_bytes), "retention.ms": "-1", "segment.bytes": str(64 << 20)}
        with self.link.inside("source"):
            with Kafka(self.access("source"), 30) as kafka:
                kafka.create_topics({topic: (partitions, 1, configs)})
            more: dict[str, Any] = {"batch.size": max(_WRITERS_BATCH_BYTES, 2 * record_bytes), "linger.ms": 20}
            more |= {"message.max.bytes": case.message_bytes, "compression.type": compression}
            producer = confluent_kafka.Producer({**librdkafka_config(self.access("source")), **more})
            span = len(material) - record_bytes
            for number in range(count):
                at = number * 7919 % span
                value = material[at : at + record_bytes]
                while True:
                    try:
                        producer.produce(topic, value, partition=number % partitions)
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(0)
            if producer.flush(120):
                raise Mm2mgrError(f"{topic}: the backlog could not be written")
        self._written[topic] = count

    def written(self, topic: str) -> int:
        """Return how many records were written to a topic before."""
        return self._written[topic]

    def measure(self, case: Case, seconds: float) -> Outcome:
        """Run the row's connector until its rate is known, then take away what it made."""
        self._rows += 1
        side: Side = "target" if case.placement == "remote consume" else "source"
        worker = self.workers[side]
        if not worker.running:  # after a row that failed, which would come back with it
            self._start({side: worker})
            for left in self.rest(side, "GET", f"{worker.url}/connectors"):
                self.rest(side, "DELETE", f"{worker.url}/connectors/{left}")
        assert worker.process
        Path(f"/proc/{worker.process.pid}/clear_refs").write_text("5")  # its largest memory counts from here
        name = f"r{self._rows}"
        source, target = (self.brokers[end].bootstrap_servers for end in ADDRESSES)
        ends = Ends(name, source, target, case.topic, worker.url)
        self.link.set(case.rtt_ms / 1000, case.link_bytes_per_second)
        with self.link.inside(side):
            mirror = _Mirror(case, ends, config(case, ends, self._folder / f"tree-{name}", read_brokers), side)
        self.rest(side, "PUT", f"{mirror.url}/config", mirror.config)
        try:
            outcome = self._watch(mirror, seconds)
        finally:
            self.take_away(mirror.side, mirror.url, mirror.topic)
        if outcome.stalled or outcome.error:  # what is left of it would disturb the next row
            worker.kill()
        return outcome

    def _watch(self, mirror: _Mirror, seconds: float) -> Outcome:
        case, worker = mirror.case, self.workers[mirror.side]
        began, idle_before, before = time.monotonic(), _cpu(), self.link.read()
        first: float | None = None
        seen: list[tuple[float, int]] = []
        for at, records in self.arrivals(mirror.topic, case.partitions):
            if records and first is None:
                first = at
            if first is None and at - began > STALLED_SECONDS:
                break
            if first is not None and at >= first + WARM_UP_SECONDS:
                if not seen:
                    before, idle_before = self.link.read(), _cpu()
                seen.append((at, records))
            if first is not None and (
                at > first + WARM_UP_SECONDS + seconds or records >= self._written[mirror.ends.topic]
            ):
                break
        after, idle_after = self.link.read(), _cpu()
        status = None
        with suppress(OSError):
            status = self.rest(mirror.side, "GET", f"{mirror.url}/status")
        return Outcome(
            case=case,
            settings={key: value for key, value in mirror.config.items() if key.startswith(_CLIENTS)},
            megabytes_per_second=slope(seen) * case.record_bytes / 1e6,
            forecast=forecast(case, mirror.config),
            wire_megabytes_per_second=(after.bytes - before.bytes) / (after.at - before.at) / 1e6,
            drops=after.drops - before.drops,
            first_record_seconds=None if first is None else round(first - began, 1),
            error=_failure(status) if worker.running else "the worker died",
            load=os.getloadavg()[0],
            idle_share=(idle_after[0] - idle_before[0]) / max(1, idle_after[1] - idle_before[1]),
            worker_rss_mib=_rss_mib(worker),
        )

    def arrivals(self, topic: str, partitions: int) -> Iterator[tuple[float, int]]:
        """Yield the time and how many records the target has, again and again."""
        with self.link.inside("target"):
            ends = LogEnds(self.access("target"))
        try:
            ends.watch([TopicPartition(topic, number) for number in range(partitions)])
            while True:
                yield time.monotonic(), sum(max(end, 0) for end in ends.read().end)
                time.sleep(_POLL_SECONDS)
        finally:
            ends.close()

    def take_away(self, side: Side, url: str, topic: str) -> None:
        """Delete a connector, wait until the link is quiet, and delete what it made on the target."""
        with suppress(OSError, Mm2mgrError):
            self.rest(side, "DELETE", url)
        self._until_quiet()
        with self.link.inside("target"), Kafka(self.access("target"), 30) as kafka:
            for future in kafka.admin.delete_topics([topic]).values():
                with suppress(confluent_kafka.KafkaException):  # nothing arrived, so there is none
                    future.result(30)

    def _until_quiet(self, seconds: float = 60.0) -> None:
        """Wait until tasks that were asked to end no longer use the link."""
        deadline, before = time.monotonic() + seconds, self.link.read()
        while time.monotonic() < deadline:
            time.sleep(1.0)
            after = self.link.read()
            if after.bytes + after.back_bytes - before.bytes - before.back_bytes < 50_000:
                return
            before = after

    def rest(self, side: Side, method: str, url: str, body: object = None) -> Any:
        """Ask the worker of one side, again while it rebalances."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        deadline = time.monotonic() + 60
        while True:
            try:
                with self.link.inside(side), DIRECT.open(request, timeout=60) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code not in (404, 409, 500, 503) or time.monotonic() > deadline or method == "DELETE":
                    raise Mm2mgrError(f"{method} {url}: {error.code} {error.read().decode()[:300]}") from error
                time.sleep(1)

    def _start(self, servers: dict[Side, Any]) -> None:
        for side, server in servers.items():
            with self.link.inside(side):
                server.begin()
        for side, server in servers.items():
            with self.link.inside(side):
                server.wait_ready(180)


def slope(seen: Sequence[tuple[float, int]]) -> float:
    """Return records per second by least squares: a large fetch arrives as a step, and end against end would count one too much or too few."""
    if len(seen) < 2 or seen[0][1] == seen[-1][1]:
        return 0.0
    middle, mean = (math.fsum(column) / len(seen) for column in zip(*seen, strict=True))
    above = math.fsum((at - middle) * (records - mean) for at, records in seen)
    return above / math.fsum((at - middle) ** 2 for at, _ in seen)


def read_brokers(workspace: Workspace) -> None:
    """Do what `mm2mgr link read` does."""
    if failures := link_read(workspace).failures:
        raise Mm2mgrError(f"brokers could not be read: {dict(failures)}")


def _failure(status: Any) -> str:
    traces = [task.get("trace", "") for task in (status or {}).get("tasks", []) if task["state"] == "FAILED"]
    return f"task FAILED: {traces[0].splitlines()[0][:200]}" if traces and traces[0] else ""


def _cpu() -> tuple[int, int]:
    """Return idle and all ticks of the machine so far."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _rss_mib(server: Server) -> int:
    if not (server.process and server.running):
        return 0
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)

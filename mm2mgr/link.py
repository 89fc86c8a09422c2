"""The one model of a long link: round trip, bandwidth, settings of clients and brokers → rates, the limit that binds,
memory.

Rendering, sizing, lint, `explain`, `simulate` and `fleet` ask it. Pure. Units: bytes and seconds; a bandwidth of None
is no limit. Its constants were fitted to 64 measured runs of Kafka 4.3.1 over an emulated link
(tests/topology/link_runs.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mm2mgr.text import rate_text, span_text

MIB = 1 << 20
Placement = Literal["target", "source", "elsewhere"]
Limit = Literal[
    "client window",
    "broker window",
    "system window",
    "request/response",
    "batch",
    "bandwidth",
    "worker",
    "partitions",
    "stall",
]

FETCH_SECONDS = 20.0
"""What one fetch or request may take of request.timeout.ms (30 s): the rule D <= r x 20 s."""
_SYSTEM_WINDOW = 2_800_000
"""Bytes in flight of one connection where the operating system decides: stock Linux (tcp_rmem, tcp_wmem)."""
PAYLOAD_SHARE = 0.965
"""Of a link's bandwidth, what headers leave."""
BATCH_SHARE = 0.88
"""Of what a topic accepts (max.message.bytes), what a batch may have by batch.size: 900 KiB fit the default."""
GAIN_WORTH_SAYING = 1.3
"""A change that would carry less more than that is not advised."""
HAND_ON_BYTES_PER_SECOND = 60e6
"""A worker hands the records of one fetch on at this rate before it sends the next fetch."""
_HAND_ON_RECORDS_PER_SECOND = 100_000
RECORD_HEAP_BYTES = 700
"""Of a record that a task has polled, beside its own bytes: the objects of consumer and Connect, two of them maps of
partition and offset.
"""
POLLED_RECORD_BYTES = 1000
"""Records are taken to be at least this large where their size decides how many a poll should return."""
WORKER_HEAP_BYTES = 128.0 * MIB
"""Fitted to one worker: 4 tasks of 3 partitions (fetches of 12 MiB, buffers of 32 MiB) left 355 MiB after GC."""
HEAP_SHARE = 0.7
"""Of -Xmx for what stays alive; the same worker did its full rate with 355 of 512 MiB."""
USUAL_HEAP_BYTES = 512.0 * MIB
"""Taken for a worker whose heap is not declared."""
_SHARING = 4
_FILLED = 0.9
# Bytes in flight that a socket buffer of one byte was seen to allow: the kernel doubles it and keeps a part for itself.
# Of the source's brokers 160 kB were seen on one machine, 240 kB on another: the smaller one decides what is safe.
_IN_FLIGHT = {
    "consumer": 79_000 / 65_536,
    "source": 170_000 / 102_400,
    "producer": 345_000 / 131_072,
    "target": 126_000 / 102_400,
}


BY_SYSTEM = -1
"""A socket buffer that the operating system sizes."""


@dataclass(frozen=True)
class BrokerLimits:
    """What the brokers of a Kafka cluster allow, the smallest where they differ; Kafka's defaults until `read`.

    `version`: at least this Kafka, "" where unknown.
    """

    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    socket_request_bytes: int = 104_857_600
    message_bytes: int = 1_048_588
    brokers: int = 1
    version: str = ""
    read: bool = False


@dataclass(frozen=True)
class Leg:
    """One side of a worker: the round trip to a Kafka cluster and what the line carries."""

    rtt_seconds: float
    bandwidth_bytes_per_second: float | None = None

    @property
    def payload(self) -> float:
        """Bytes of records per second that the line carries (infinity: no limit)."""
        limit = self.bandwidth_bytes_per_second
        return limit * PAYLOAD_SHARE if limit else math.inf

    @property
    def words(self) -> str:
        """Such as `100 ms, 25 MB/s`."""
        limit = self.bandwidth_bytes_per_second
        return f"{self.rtt_seconds * 1000:g} ms" + (f", {rate_text(limit)}" if limit else "")


@dataclass(frozen=True)
class Route:
    """How a flow's worker reaches its source (`reading`) and its target (`writing`); None: that end is near."""

    placement: Placement
    reading: Leg | None = None
    writing: Leg | None = None

    @classmethod
    def over_link(cls, link: Leg, placement: Placement = "target") -> Route:
        """Return the route over one link: a worker elsewhere counts as one that reads over it."""
        return cls(placement, writing=link) if placement == "source" else cls(placement, reading=link)

    @property
    def legs(self) -> tuple[Leg, ...]:
        """The legs that are long: one or both."""
        return tuple(leg for leg in (self.reading, self.writing) if leg)

    @property
    def rtt_seconds(self) -> float:
        """The round trip of its longest leg."""
        return max(leg.rtt_seconds for leg in self.legs)

    @property
    def words(self) -> str:
        """Such as `100 ms, 25 MB/s`; of two legs both."""
        if self.reading and self.writing:
            return f"{self.reading.words} to the source and {self.writing.words} to the target"
        return self.legs[0].words if self.legs else "no long link"


@dataclass(frozen=True)
class Clients:
    """The settings of a flow's consumer and record producer that decide its rate; defaults as in Connect."""

    receive_buffer_bytes: int = 65_536
    fetch_bytes: int = 50 * MIB
    partition_fetch_bytes: int = MIB
    poll_records: int = 500
    fetch_timeout_ms: int = 30_000
    send_buffer_bytes: int = 131_072
    batch_bytes: int = 16_384
    in_flight: int = 1
    request_bytes: int = MIB
    request_timeout_ms: int = 30_000
    buffer_bytes: int = 32 * MIB

    @classmethod
    def read(cls, number: Callable[[str, str], int | None]) -> Clients | None:
        """Return them from a function of client and key; None where one of them is no number."""
        reader, writer = "source consumer", "record producer"
        numbers = {
            "receive_buffer_bytes": number(reader, "receive.buffer.bytes"),
            "fetch_bytes": number(reader, "fetch.max.bytes"),
            "partition_fetch_bytes": number(reader, "max.partition.fetch.bytes"),
            "poll_records": number(reader, "max.poll.records"),
            "fetch_timeout_ms": number(reader, "request.timeout.ms"),
            "send_buffer_bytes": number(writer, "send.buffer.bytes"),
            "batch_bytes": number(writer, "batch.size"),
            "in_flight": number(writer, "max.in.flight.requests.per.connection"),
            "request_bytes": number(writer, "max.request.size"),
            "request_timeout_ms": number(writer, "request.timeout.ms"),
            "buffer_bytes": number(writer, "buffer.memory"),
        }
        present = {name: value for name, value in numbers.items() if value is not None}
        return cls(**present) if len(present) == len(numbers) else None


@dataclass(frozen=True)
class FlowTraffic:
    """What a flow carries. `compression`: bytes of records per stored byte of the source; `recompression`: per byte
    that the producer sends.
    """

    partitions: int = 1
    tasks: int = 1
    record_bytes: float = 1024.0
    compression: float = 1.0
    recompression: float = 1.0


@dataclass(frozen=True)
class Forecast:
    """What to expect, in bytes of records per second. `limit` binds the flow, `task_limit` one task; `stall`: why
    nothing arrives.
    """

    partition: float
    task: float
    flow: float
    limit: Limit
    task_limit: Limit
    fetch_seconds: float
    request_seconds: float
    task_heap_bytes: float
    fetch_bytes: float = 0.0
    stall: str = ""
    json_keys = (
        "partition task flow limit task_limit fetch_seconds request_seconds task_heap_bytes fetch_bytes stall verdict"
    )

    def fits(self, heap_bytes: float = USUAL_HEAP_BYTES, tasks: int = 1) -> bool:
        """Tell whether so many tasks fit into one worker's heap."""
        return WORKER_HEAP_BYTES + tasks * self.task_heap_bytes <= HEAP_SHARE * heap_bytes

    @property
    def verdict(self) -> str:
        """What decides, as a sentence."""
        if self.stall:
            return f"nothing arrives: {self.stall}"
        return (
            f"{rate_text(self.flow)} ({rate_text(self.task)} per task, {rate_text(self.partition)} per partition),"
            f" limited by {LIMITS[self.limit]}"
        )


LIMITS: dict[Limit, str] = {
    "client window": "the client's socket buffer",
    "broker window": "the brokers' socket buffers",
    "system window": "what the operating system keeps in flight on one connection",
    "request/response": "one fetch at a time, whose round trip, transfer and hand-on follow each other",
    "batch": "the batches of one round trip",
    "bandwidth": "the link's bandwidth",
    "worker": "what a worker hands on",
    "partitions": "the number of partitions",
    "stall": "a time-out",
}


def predict(
    route: Route,
    clients: Clients,
    traffic: FlowTraffic,
    source: BrokerLimits = BrokerLimits(),
    target: BrokerLimits = BrokerLimits(),
) -> Forecast:
    """Return what a flow carries over its route with these settings of clients and brokers."""
    return _Model(route, clients, traffic, source, target).forecast()


def task_heap(fetched: float, poll_records: int, record_bytes: float = POLLED_RECORD_BYTES) -> float:
    """Return the heap of a task, what waits to be sent aside: fetched data twice (arriving, and as records), and the
    records' objects.
    """
    return 2.0 * fetched + min(poll_records, fetched / max(record_bytes, 1.0)) * RECORD_HEAP_BYTES


def records_of(fetched: float) -> int:
    """Return how many records one poll must be able to return for so many bytes of a fetch."""
    return math.ceil(fetched / POLLED_RECORD_BYTES)


def window(end: Literal["consumer", "source", "producer", "target"], buffer: int) -> float:
    """Return the bytes in flight that one end's socket buffer allows."""
    return _SYSTEM_WINDOW if buffer == BY_SYSTEM else min(buffer * _IN_FLIGHT[end], _SYSTEM_WINDOW)


def connection(leg: Leg, client: float, broker: float) -> tuple[float, Limit]:
    """Return what one TCP connection with these windows carries, and what limits it."""
    flying = min(client, broker)
    limit: Limit = (
        "system window" if flying >= _SYSTEM_WINDOW else "client window" if client < broker else "broker window"
    )
    by_window = flying / leg.rtt_seconds if leg.rtt_seconds > 0 else math.inf
    return (leg.payload, "bandwidth") if leg.payload <= by_window else (by_window, limit)


class _Rate(NamedTuple):
    value: float
    limit: Limit


@dataclass(frozen=True)
class _Model:
    route: Route
    clients: Clients
    traffic: FlowTraffic
    source: BrokerLimits
    target: BrokerLimits

    def forecast(self) -> Forecast:
        clients, traffic = self.clients, self.traffic
        tasks = max(min(traffic.tasks, traffic.partitions), 1)
        most, least = math.ceil(traffic.partitions / tasks), max(traffic.partitions // tasks, 1)
        fuller = tasks if most == least else traffic.partitions - least * tasks
        busiest, single, whole = self.task(most), self.task(1), self.whole()
        demand = fuller * busiest.value + (tasks - fuller) * self.task(least).value
        limit = busiest.limit
        if demand >= whole:
            limit = "bandwidth"
        elif traffic.tasks > traffic.partitions:
            limit = "partitions"
        fetch, request = self.fetch_seconds(most, tasks), self.request_seconds(most, tasks)
        record = math.ceil(traffic.record_bytes)
        fetch_bytes, of_partition = max(clients.fetch_bytes, record), max(clients.partition_fetch_bytes, record)
        fetched = min(self.source.brokers * fetch_bytes, most * of_partition)
        stored = traffic.record_bytes / traffic.compression
        heap = task_heap(fetched, clients.poll_records, stored) + clients.buffer_bytes
        if stall := self.stall(fetch, request):
            return Forecast(0.0, 0.0, 0.0, "stall", "stall", fetch, request, heap, self.fetch_bytes(most), stall)
        rates = min(single.value, whole), min(busiest.value, whole), _share_of_line(demand, whole, tasks)
        return Forecast(*rates, limit, busiest.limit, fetch, request, heap, self.fetch_bytes(most))

    def whole(self) -> float:
        """Return what the lines carry, in bytes of records."""
        lines = [math.inf]
        if self.route.reading:
            lines.append(self.route.reading.payload * self.traffic.compression)
        if self.route.writing:
            lines.append(self.route.writing.payload * self.traffic.recompression)
        return min(lines)

    def task(self, partitions: int) -> _Rate:
        """Return what a task with so many partitions carries alone on the line: the slower leg, or the worker."""
        handed_on = min(HAND_ON_BYTES_PER_SECOND, self.traffic.record_bytes * _HAND_ON_RECORDS_PER_SECOND)
        rates = [_Rate(handed_on, "worker")]
        if self.route.reading:
            rates.append(self.reading(self.route.reading, partitions, handed_on))
        if self.route.writing:
            rates.append(self.writing(self.route.writing, partitions))
        return min(rates, key=lambda rate: rate.value)

    def reading(self, leg: Leg, partitions: int, handed_on: float) -> _Rate:
        """One fetch D in flight per broker: c D / (RTT + D/r + c D/P). A partition waits until its last fetch was
        polled in full.

        Where one poll returns all of it (max.poll.records), the next fetch is on its way while the records are handed
        on; the socket is not read meanwhile, and takes what its buffer holds.
        """
        brokers, ratio = max(min(self.source.brokers, partitions), 1), self.traffic.compression
        rate, limit = self.reading_connection(leg)
        fetch = self.fetch_bytes(partitions)
        handing = brokers * fetch * ratio / handed_on
        meanwhile = leg.rtt_seconds + window("consumer", self.clients.receive_buffer_bytes) / rate
        is_polled_at_once = self.clients.poll_records * self.traffic.record_bytes >= brokers * fetch * ratio
        parts: dict[Limit, float] = {
            "request/response": leg.rtt_seconds,
            limit: fetch / rate,
            "worker": max(handing - meanwhile, 0.0) if is_polled_at_once else handing,
        }
        carried = brokers * fetch * ratio / math.fsum(parts.values())
        longest = max(parts, key=lambda part: parts[part])
        if longest == "bandwidth" and carried < _FILLED * leg.payload * ratio:
            longest = "request/response"
        return _Rate(min(carried, leg.payload * ratio), longest)

    def writing(self, leg: Leg, partitions: int) -> _Rate:
        """One request R in flight: R / (RTT + R/r); k of them: min(r, k R / RTT); per broker."""
        brokers, ratio = max(min(self.target.brokers, partitions), 1), self.traffic.recompression
        rate, limit = self.writing_connection(leg)
        rate *= ratio  # a batch counts before compression
        request, trip = self.request_bytes(partitions), leg.rtt_seconds
        if self.clients.in_flight > 1:
            by_batch = self.clients.in_flight * request / trip if trip else math.inf
            reached = _Rate(min(rate, by_batch), "batch" if by_batch < rate else limit)
        else:
            seconds = trip + request / rate
            reached = _Rate(request / seconds if seconds else math.inf, "batch" if trip > request / rate else limit)
        return _Rate(min(brokers * reached.value, leg.payload * ratio), reached.limit)

    def fetch_bytes(self, partitions: int) -> float:
        """A fetch returns at least one record (KIP-74); its limits count stored, so compressed, bytes."""
        of_broker = math.ceil(partitions / max(min(self.source.brokers, partitions), 1))
        asked = min(self.clients.fetch_bytes, of_broker * self.clients.partition_fetch_bytes)
        return max(asked, self.traffic.record_bytes / self.traffic.compression)

    def request_bytes(self, partitions: int) -> float:
        """A batch has whole records, at least one; it and the request are limited by their size before compression."""
        record = max(self.traffic.record_bytes, 1.0)
        batch = max(self.clients.batch_bytes // record, 1) * record
        of_broker = math.ceil(partitions / max(min(self.target.brokers, partitions), 1))
        return max(min(self.clients.request_bytes, of_broker * batch), record)

    def reading_connection(self, leg: Leg) -> tuple[float, Limit]:
        clients = window("consumer", self.clients.receive_buffer_bytes)
        return connection(leg, clients, window("source", self.source.send_buffer_bytes))

    def writing_connection(self, leg: Leg) -> tuple[float, Limit]:
        clients = window("producer", self.clients.send_buffer_bytes)
        return connection(leg, clients, window("target", self.target.receive_buffer_bytes))

    # --- time-outs ----------------------------------------------------------------------------------------------------

    def fetch_seconds(self, partitions: int, tasks: int) -> float:
        """Return how long a fetch takes while all connections share the line."""
        if not (leg := self.route.reading):
            return 0.0
        share = leg.payload / (tasks * max(min(self.source.brokers, partitions), 1))
        return leg.rtt_seconds + self.fetch_bytes(partitions) / min(self.reading_connection(leg)[0], share)

    def request_seconds(self, partitions: int, tasks: int) -> float:
        """Return the same of a request. It is written whole before the next: those before it are what the window holds,
        a round trip.
        """
        if not (leg := self.route.writing):
            return 0.0
        share = leg.payload / (tasks * max(min(self.target.brokers, partitions), 1))
        sent = self.request_bytes(partitions) / self.traffic.recompression
        return 2 * leg.rtt_seconds + sent / min(self.writing_connection(leg)[0], share)

    def stall(self, fetch: float, request: float) -> str:
        """Return why nothing arrives, "" where something does."""
        clients, accepted = self.clients, self.target.message_bytes
        if clients.batch_bytes > clients.buffer_bytes:
            return f"batch.size ({clients.batch_bytes}) is more than buffer.memory ({clients.buffer_bytes}): tasks fail"
        if clients.batch_bytes > accepted:
            return (
                f"batch.size ({clients.batch_bytes}) is more than the target accepts ({accepted}): batches are refused"
                " and split"
            )
        late = "{} takes {}, longer than request.timeout.ms ({}) of the {}"
        if fetch * 1000 > clients.fetch_timeout_ms:
            return late.format("a fetch", span_text(fetch), span_text(clients.fetch_timeout_ms / 1000), "consumer")
        if request * 1000 > clients.request_timeout_ms:
            return late.format(
                "a request", span_text(request), span_text(clients.request_timeout_ms / 1000), "producer"
            )
        return ""


def _share_of_line(demand: float, whole: float, tasks: int) -> float:
    """Return what a line carries for tasks that want so much: several get less than all until they want more."""
    if tasks == 1 or not demand or math.isinf(whole):
        return min(demand, whole)
    return float(demand / (1 + (demand / whole) ** _SHARING) ** (1 / _SHARING))

"""The client settings that a declared link asks for, with reasons: enough for it, within time-outs and memory. Pure.

What people write outranks them. Where the brokers' buffers were not read, sizes do for open ones and time-outs for
Kafka's defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.defaults import Text, by_default
from mm2mgr.link import (
    BATCH_SHARE,
    BY_SYSTEM,
    FETCH_SECONDS,
    HAND_ON_BYTES_PER_SECOND,
    HEAP_SHARE,
    MIB,
    POLLED_RECORD_BYTES,
    RECORD_HEAP_BYTES,
    USUAL_HEAP_BYTES,
    WORKER_HEAP_BYTES,
    BrokerLimits,
    Clients,
    Leg,
    Route,
    connection,
    records_of,
    window,
)
from mm2mgr.text import span_text

Profile = Literal["latency", "balanced", "throughput"]
KIB = 1024
_LARGEST_FETCH = 50 * MIB  # brokers answer with 55 MiB at most (their fetch.max.bytes)
_NEAR_FETCH = 8 * MIB
_USUAL_RECORD = MIB  # max.request.size of Kafka
_USUAL_BUFFER = 32 * MIB  # buffer.memory of Kafka
_USUAL_BATCH = 16 * KIB
_TIMEOUT_SECONDS = 30.0  # request.timeout.ms of Kafka
_PIPELINE = 5  # requests in flight that an idempotent producer keeps in order
_IDEMPOTENT_SINCE = (2, 8)  # from here on the right to write a topic is enough (KIP-679)
# What max.block.ms of the offset-syncs producer must leave time for on a long link: metadata of the offset-syncs topic,
# which takes one round trip on an open connection and three on a new one (TLS and SASL go on in the background). A sync
# that finds no metadata in time is dropped, and the partition's next record makes another one (OffsetSyncWriter), so
# only a partition that gets no further record would miss its last sync.
_SYNC_ROUND_TRIPS = 5
_HELD = 2 + RECORD_HEAP_BYTES / POLLED_RECORD_BYTES  # heap per byte of a fetch, see link.task_heap
_USUAL_SYNC_BLOCK_MS = 500


_KAFKAS = {
    "fetch.max.bytes": Clients.fetch_bytes,
    "max.partition.fetch.bytes": Clients.partition_fetch_bytes,
    "max.poll.records": Clients.poll_records,
    "request.timeout.ms": Clients.fetch_timeout_ms,
    "batch.size": Clients.batch_bytes,
    "max.in.flight.requests.per.connection": Clients.in_flight,
    "max.request.size": Clients.request_bytes,
    "buffer.memory": Clients.buffer_bytes,
}


@dataclass(frozen=True)
class _Aim:
    """What a profile wants: the least bytes of a fetch, the share of a fetch's time that the round trip may take,
    batches per round trip, and linger.ms.
    """

    fetch: int
    waiting: float
    batches: float
    linger_ms: int
    buffer: int = _USUAL_BUFFER


_AIMS: dict[Profile, _Aim] = {
    "latency": _Aim(MIB, 0.25, 1.0, 5),
    "balanced": _Aim(4 * MIB, 0.05, 2.0, 20),
    "throughput": _Aim(4 * MIB, 0.03, math.inf, 100, 64 * MIB),
}


@dataclass(frozen=True)
class Crossing:
    """A flow's way over its link and what bounds its settings.

    `idempotent`: its producer may have several requests in flight; `poll_records`: what a poll may return at least.

    The last four are what people wrote: socket buffers, max.request.size or batch.size, and buffer.memory (0: nothing).
    """

    route: Route
    tasks: int = 1
    profile: Profile = "balanced"
    source: BrokerLimits = field(default_factory=BrokerLimits)
    target: BrokerLimits = field(default_factory=BrokerLimits)
    heap_bytes: float = USUAL_HEAP_BYTES
    worker_tasks: int = 1
    idempotent: bool = False
    poll_records: int = Clients.poll_records
    receive_buffer_bytes: int = BY_SYSTEM
    send_buffer_bytes: int = BY_SYSTEM
    request_bytes: int = 0
    buffer_bytes: int = 0

    @property
    def task_bytes(self) -> float:
        """The heap that one task may use."""
        return max(HEAP_SHARE * self.heap_bytes - WORKER_HEAP_BYTES, 0.0) / max(self.worker_tasks, 1)

    @property
    def largest_record(self) -> int:
        """What both ends accept, at least Kafka's usual limit."""
        return max(_USUAL_RECORD, min(self.source.message_bytes, self.target.message_bytes), self.request_bytes)


def compile_block(block: str, crossing: Crossing) -> dict[str, Text]:
    """Return the settings of one client block of a flow; those that Kafka or mm2mgr has anyway are left out."""
    if block == "source_consumer":
        return _reader(crossing)
    if block == "record_producer":
        return _writer(crossing)
    return _offset_syncs(crossing.route) if block == "offset_syncs_producer" else {}


def compiled_clients(crossing: Crossing) -> Clients:
    """Return what both clients get where people wrote nothing, with the defaults of Kafka and Connect for the rest."""
    settings = {
        "source consumer": compile_block("source_consumer", crossing),
        "record producer": compile_block("record_producer", crossing),
    }
    usual = dict.fromkeys(("receive.buffer.bytes", "send.buffer.bytes"), str(BY_SYSTEM))

    def number(client: str, key: str) -> int:
        return int(settings[client].get(key) or usual.get(key) or _KAFKAS[key])

    return Clients.read(number) or Clients()


def may_pipeline(target: BrokerLimits, written: Mapping[str, str | None], *, secured: bool) -> bool:
    """Tell whether an idempotent producer is allowed: by the target's version (KIP-679) or for lack of any ACL, and by
    what is written.

    With acks, retries or more in flight than it accepts, it would refuse to start; switched off, requests could
    overtake each other.
    """
    numbers = [int(part) for part in target.version.split(".")[:2] if part.isdecimal()]
    allowed = tuple(numbers) >= _IDEMPOTENT_SINCE if len(numbers) == 2 else not secured
    flying = written.get("max.in.flight.requests.per.connection") or ""
    return (
        allowed
        and (written.get("acks") or "all") in {"all", "-1"}
        and written.get("enable.idempotence", "true") == "true"
        and written.get("retries") != "0"
        and (not flying or (flying.isdecimal() and len(flying) < 11 and int(flying) <= _PIPELINE))
    )


# --- the consumer at the source ---------------------------------------------------------------------------------------


def _reader(crossing: Crossing) -> dict[str, Text]:
    leg, brokers = crossing.route.reading, max(crossing.source.brokers, 1)
    room = (crossing.task_bytes - _buffer(crossing) - crossing.poll_records * RECORD_HEAP_BYTES) / _HELD / brokers
    if leg is None:
        limit = _even(max(min(_NEAR_FETCH, room), 64 * KIB))
        reason = "the source is near: a larger fetch fills only memory, while the producer waits for the link"
        return {"fetch.max.bytes": _text(limit, reason), "max.partition.fetch.bytes": _text(min(limit, MIB), reason)}
    share, words = _share(leg, crossing)
    aim = _AIMS[crossing.profile]
    rate = _open(leg, crossing.source.read and window("source", crossing.source.send_buffer_bytes))
    wish = leg.rtt_seconds * (1 - aim.waiting) / aim.waiting / (1 / rate + 1 / HAND_ON_BYTES_PER_SECOND)
    bounds: dict[str, float] = {
        f"so large that the round trip is {aim.waiting:.0%} of its time": max(wish, aim.fetch),
        f"{words}, and a fetch has to end within {span_text(FETCH_SECONDS)}": share * FETCH_SECONDS,
        f"the heap of a worker with {crossing.worker_tasks} tasks": room,
        "brokers answer with little more": _LARGEST_FETCH,
    }
    reason, most = min(bounds.items(), key=lambda bound: bound[1])
    fetch = _even(max(most, 64 * KIB))
    reason = f"link of {leg.words}: {reason}"
    result = {"fetch.max.bytes": _text(fetch, reason), "max.partition.fetch.bytes": _text(fetch, reason)}
    reason = (
        f"link of {leg.words}: one poll returns a whole fetch of records of 1 kB, so that the next fetch is sent before"
        " they are handed on"
    )
    result["max.poll.records"] = _text(max(records_of(brokers * fetch), crossing.poll_records), reason)
    return result | _timeout(leg, max(fetch, crossing.largest_record) / share, "a fetch", words)


def _share(leg: Leg, crossing: Crossing) -> tuple[float, str]:
    source = crossing.source
    rate = connection(
        leg, window("consumer", crossing.receive_buffer_bytes), window("source", source.send_buffer_bytes)
    )[0]
    return _least(leg, rate, crossing.tasks * max(source.brokers, 1))


def _least(leg: Leg, rate: float, connections: int) -> tuple[float, str]:
    least = min(rate, leg.payload / connections)
    return least, f"{least / 1e6:.2f} MB/s per connection"


# --- the producer at the target ---------------------------------------------------------------------------------------


def _writer(crossing: Crossing) -> dict[str, Text]:
    leg, target = crossing.route.writing, crossing.target
    result: dict[str, Text] = {}
    if crossing.largest_record > _USUAL_RECORD + 12:  # brokers' default is 12 bytes above the producer's
        reason = f"both ends accept records of {crossing.largest_record} bytes; compared before compression"
        result["max.request.size"] = _text(crossing.largest_record, reason)
    if (buffer := _buffer(crossing)) != _USUAL_BUFFER:
        reason = f"its share of the heap of a worker with {crossing.worker_tasks} tasks"
        result["buffer.memory"] = _text(buffer, reason)
    if leg is None:
        return result
    aim, link = _AIMS[crossing.profile], f"link of {leg.words}"
    rate = _open(leg, target.read and window("target", target.receive_buffer_bytes))
    wish = aim.batches * rate * leg.rtt_seconds / _PIPELINE if crossing.idempotent else math.inf
    accepted = f"{target.message_bytes} bytes; larger ones are refused and split"
    bounds: dict[str, float] = {
        f"{link}: {_PIPELINE} of them in flight fill {rate / 1e6:.1f} MB/s for one partition": max(wish, _USUAL_BATCH),
        f"{link}: as large as the target's topics accept ({accepted})": target.message_bytes * BATCH_SHARE,
        f"{link}: an eighth of buffer.memory": buffer / 8,
    }
    reason, batch_bytes = min(bounds.items(), key=lambda bound: bound[1])
    result["batch.size"] = _text(_even(batch_bytes), reason)
    result["linger.ms"] = _text(aim.linger_ms, f"{link}: a batch may wait a moment to be filled")
    if crossing.idempotent:
        reason = f"{link}: with one request in flight (Connect's default) a partition sends one batch per round trip"
        result["max.in.flight.requests.per.connection"] = _text(_PIPELINE, reason)
        reason = f"keeps order and drops repeated records with {_PIPELINE} requests in flight"
        result |= {"enable.idempotence": _text("true", reason), "acks": _text("all", "an idempotent producer needs it")}
    carried = connection(
        leg, window("producer", crossing.send_buffer_bytes), window("target", target.receive_buffer_bytes)
    )[0]
    share, words = _least(leg, carried, crossing.tasks * max(target.brokers, 1))
    return result | _timeout(leg, 2 * leg.rtt_seconds + crossing.largest_record / share, "a request", words)


def _buffer(crossing: Crossing) -> int:
    """Return buffer.memory: half a task's memory, at most the profile's, at least two of the largest requests."""
    if crossing.buffer_bytes:
        return crossing.buffer_bytes
    most = _AIMS[crossing.profile].buffer if crossing.route.writing else _USUAL_BUFFER
    return max(_even(min(most, crossing.task_bytes / 2)), 2 * crossing.largest_record)


# --- both -------------------------------------------------------------------------------------------------------------


def _offset_syncs(route: Route) -> dict[str, Text]:
    trip = route.rtt_seconds
    wait_ms = round(_SYNC_ROUND_TRIPS * trip * 1000)
    if wait_ms <= _USUAL_SYNC_BLOCK_MS:
        return {}
    reason = f"link of {trip * 1000:.0f} ms: {_SYNC_ROUND_TRIPS} round trips for the metadata of an offset sync"
    return {"max.block.ms": by_default(str(wait_ms), reason)}


def _open(leg: Leg, broker_window: float) -> float:
    """Return what a connection can carry; 0 for a window not read: it may be open, and must not be the limit."""
    return connection(leg, window("producer", BY_SYSTEM), broker_window or window("target", BY_SYSTEM))[0]


def _timeout(leg: Leg, seconds: float, subject: str, words: str) -> dict[str, Text]:
    if seconds + leg.rtt_seconds <= FETCH_SECONDS:
        return {}
    limit = math.ceil(max(1.5 * (seconds + leg.rtt_seconds), _TIMEOUT_SECONDS))
    reason = f"{subject} may take {span_text(seconds)} at {words}"
    return {"request.timeout.ms": _text(limit * 1000, reason)}


def _even(number: float) -> int:
    unit = MIB if number >= MIB else KIB
    return int(number // unit) * unit or int(number)


def _text(value: int | str, reason: str) -> Text:
    return by_default(str(value), reason)

"""Skewed traffic sets made from a seed, and a thread that keeps producing them at a steady pace.

In go a random source and brokers, out come topics, rates by partition, and records. It knows nothing of samples or sizing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import confluent_kafka

from mm2mgr.partitions import TopicPartition

Skew = Literal["equal", "zipf", "one hot", "mostly idle", "two sizes", "sizes by partition"]
SKEWS: tuple[Skew, ...] = ("zipf", "one hot", "mostly idle", "two sizes", "equal", "sizes by partition")
HOT: tuple[Skew, ...] = ("one hot", "mostly idle")  # few partitions carry most
CODECS = ("none", "none", "lz4", "none", "zstd")
NAMES = ("orders.v{}", "dc1-logs-{}", "Metrics_{}", "team.{}.events", "c{}", "iot-readings-europe-west-{}")
LEAST_RECORDS_PER_SECOND = 2.0  # below, one record more or less is most of what is measured in seconds
SMALL, LARGE = (180,), (6_000,)
MIXED = (*[250] * 12, *[600] * 5, 1_500, 1_500, 4_000)
_NOISE = random.Random(1).randbytes(200_000)
_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class Flowing:
    """What flows into one partition: records per second, and the sizes of values, each as likely as the next."""

    records_per_second: float
    value_bytes: tuple[int, ...]
    key_bytes: int = 0

    @property
    def bytes_per_second(self) -> float:
        return self.records_per_second * (sum(self.value_bytes) / len(self.value_bytes) + self.key_bytes)


@dataclass(frozen=True)
class TrafficSet:
    """One flow: what is sent to each of its partitions, those without traffic included, and how it is compressed."""

    name: str
    skew: Skew
    sent: Mapping[TopicPartition, Flowing]
    codec: str

    @property
    def topics(self) -> dict[str, int]:
        """Return the number of partitions by topic."""
        counts: dict[str, int] = {}
        for one in self.sent:
            counts[one.topic] = counts.get(one.topic, 0) + 1
        return counts


def make_sets(seed: int, count: int, first: int = 0) -> list[TrafficSet]:
    """Return traffic sets `first` to `first + count` of an endless series; the seed alone decides what is in each."""
    return [_make(random.Random(f"{seed}/{number}"), number) for number in range(first, first + count)]


def _make(chance: random.Random, number: int) -> TrafficSet:
    skew = SKEWS[number % len(SKEWS)]
    names = [
        f"{name.format(chance.randrange(10_000))}.s{number}" for name in chance.sample(NAMES, chance.randint(2, 6))
    ]
    partitions = [TopicPartition(name, n) for name in names for n in range(chance.randint(2, 8))]
    chance.shuffle(partitions)
    weights = _weights(skew, chance, partitions)
    sizes = _sizes(skew, chance, sorted(names), partitions)
    total, key_bytes = chance.uniform(150e3, 300e3), chance.choice((0, 0, 16))
    sent = {}
    for one, weight in zip(partitions, weights, strict=True):
        record_bytes = Flowing(1, sizes[one], key_bytes).bytes_per_second
        rate = max(LEAST_RECORDS_PER_SECOND, total * weight / sum(weights) / record_bytes) if weight else 0.0
        sent[one] = Flowing(rate, sizes[one], key_bytes)
    return TrafficSet(f"set-{number}", skew, dict(sorted(sent.items())), chance.choice(CODECS))


def _weights(skew: Skew, chance: random.Random, partitions: Sequence[TopicPartition]) -> list[float]:
    """Return shares of the bytes, by position of the shuffled partitions."""
    count = len(partitions)
    if skew == "equal":
        return [1.0] * count
    if skew == "one hot":
        rest = [chance.uniform(0.5, 1.5) for _ in range(count - 1)]
        return [sum(rest) * chance.uniform(0.6, 1.5), *rest]
    if skew == "mostly idle":
        busy = max(3, count // 4)
        return [chance.uniform(0.5, 2.0) if position < busy else 0.0 for position in range(count)]
    exponent = chance.uniform(0.6, 1.3)
    return [1 / (position + 1) ** exponent for position in range(count)]


def _sizes(
    skew: Skew, chance: random.Random, names: Sequence[str], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the sizes of values by partition; all of a topic have the same but where the skew is in the sizes."""
    if skew == "sizes by partition":
        return {one: chance.choice((SMALL, (900,), LARGE)) for one in partitions}
    kinds = {name: chance.choice((SMALL, (1_000,), (chance.randint(300, 3_000),), MIXED)) for name in names}
    if skew == "two sizes":
        kinds |= {names[0]: SMALL, names[1]: LARGE}
    return {one: kinds[one.topic] for one in partitions}


class Producing:
    """Sends sets at their rates in a thread of its own; use it in a `with` block, which fails when a record was lost.

    On entry as much is stored as would have been sent in `history_seconds`.
    """

    def __init__(
        self, bootstrap_servers: str, sets: Sequence[TrafficSet], history_seconds: float = 30.0, seed: int = 1
    ) -> None:
        codecs = {each.codec for each in sets}
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 100,
            "acks": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
        self._producers = {codec: confluent_kafka.Producer({**settings, "compression.type": codec}) for codec in codecs}
        self._chance = random.Random(seed)
        self._lines = [
            _Line(one, flowing, self._producers[each.codec], self._chance.random())
            for each in sets
            for one, flowing in each.sent.items()
            if flowing.records_per_second
        ]
        self._history_seconds = history_seconds
        self._stop, self._lost = threading.Event(), list[str]()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._send_until(self._history_seconds)
        self._flush()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            self._flush()

    def _run(self) -> None:
        begun = time.monotonic() - self._history_seconds
        while not self._stop.wait(_TICK_SECONDS):
            self._send_until(time.monotonic() - begun)

    def _send_until(self, seconds: float) -> None:
        for line in self._lines:
            line.send_until(seconds, self._chance, self._delivered)
        for producer in self._producers.values():
            producer.poll(0)

    def _flush(self) -> None:
        waiting = sum(producer.flush(30) for producer in self._producers.values())
        assert waiting == 0, f"{waiting} records are not stored"
        assert not self._lost, self._lost[:3]

    def _delivered(self, error: object, _: object) -> None:
        if error:
            self._lost.append(str(error))


class _Line:
    """One partition: how many records it is owed; a random phase keeps slow partitions from sending in step."""

    def __init__(self, one: TopicPartition, flowing: Flowing, producer: confluent_kafka.Producer, phase: float) -> None:
        self.one, self.flowing, self.producer, self.phase = one, flowing, producer, phase
        self.sent = 0

    def send_until(self, seconds: float, chance: random.Random, delivered: Callable[[object, object], None]) -> None:
        owed = int(seconds * self.flowing.records_per_second + self.phase)
        for _ in range(owed - self.sent):
            value, key = (self._noise(size, chance) for size in (self._size(chance), self.flowing.key_bytes))
            self.producer.produce(self.one.topic, value, key or None, self.one.partition, on_delivery=delivered)
        self.sent = owed

    def _size(self, chance: random.Random) -> int:
        sizes = self.flowing.value_bytes
        return sizes[0] if len(sizes) == 1 else chance.choice(sizes)

    @staticmethod
    def _noise(size: int, chance: random.Random) -> bytes:
        start = int(chance.random() * (len(_NOISE) - size))
        return _NOISE[start : start + size]

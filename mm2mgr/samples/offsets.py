"""The sampler: end offsets of every wanted partition at an interval, and now and then the size of their records.

In go clusters and a schedule, out go samples to a store and a report per round.
One cluster that fails must not stop the others: it is reported and tried again in the next round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.offsets import Offsets
from mm2mgr.kafka.records import Look, mean_record_bytes
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import Sample
from mm2mgr.samples.store import SampleStore

SOURCE = "kafka-offsets"
_PARTITIONS_PER_TOPIC = 4  # looked at for record sizes: the fullest ones carry the load that sizing is about
_PARTITIONS_PER_LOOK = 400


def not_internal(topic: str) -> bool:
    """Accept every topic that is not Kafka's own."""
    return not topic.startswith("__")


@dataclass(frozen=True)
class Source:
    """One cluster to sample, and which of its topics."""

    access: KafkaAccess
    accepts: Callable[[str], bool] = not_internal


@dataclass(frozen=True)
class Schedule:
    """When to sample: every `interval_seconds`, for `duration_seconds` or until stopped (None)."""

    interval_seconds: float = 30.0
    duration_seconds: float | None = None
    sizes_every_seconds: float = 600.0

    @property
    def timeout_seconds(self) -> float:
        """Time for one call to a cluster: within the interval, so that a silent cluster delays no round of the others."""
        return min(10.0, max(1.0, 0.8 * self.interval_seconds))


@dataclass
class RecordSizes:
    """Decides which topics' record sizes are due; a topic without an answer stays due."""

    every_seconds: float = 600.0
    look: Look = field(default_factory=Look)
    _looked_at: dict[str, float] = field(default_factory=dict)

    def measure(self, access: KafkaAccess, offsets: Mapping[TopicPartition, Offsets]) -> dict[TopicPartition, float]:
        """Return mean record bytes for some partitions of the topics that are due, longest waiting first."""
        due = self._due(offsets, time.monotonic())
        sizes = mean_record_bytes(access, {one: offsets[one] for one in due}, self.look) if due else {}
        self._looked_at.update({partition.topic: time.monotonic() for partition in sizes})
        return sizes

    def _due(self, offsets: Mapping[TopicPartition, Offsets], now: float) -> list[TopicPartition]:
        fullest: dict[str, list[TopicPartition]] = {}
        for partition in sorted(offsets, key=lambda one: offsets[one].start - offsets[one].end):
            if offsets[partition].end > offsets[partition].start:
                fullest.setdefault(partition.topic, []).append(partition)
        waiting = [topic for topic in fullest if now - self._looked_at.get(topic, -1e9) >= self.every_seconds]
        waiting.sort(key=lambda topic: self._looked_at.get(topic, -1e9))
        return [one for topic in waiting for one in fullest[topic][:_PARTITIONS_PER_TOPIC]][:_PARTITIONS_PER_LOOK]


@dataclass(frozen=True)
class Poll:
    """One cluster read once: its samples, and the reason for each partition that could not be read."""

    samples: list[Sample]
    unread: Mapping[TopicPartition, str]


@dataclass(frozen=True)
class Round:
    """One round over all clusters, for the progress display."""

    number: int
    samples: int
    unread: Mapping[str, Mapping[TopicPartition, str]]
    failures: Mapping[str, KafkaError]


def poll(kafka: Kafka, accepts: Callable[[str], bool] = not_internal, sizes: RecordSizes | None = None) -> Poll:
    """Read every accepted topic of one cluster once; the sample time is the middle of reading the offsets."""
    topics = {name: info for name, info in kafka.topics().items() if accepts(name) and not info.internal}
    partitions = [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]
    before_ms = time.time_ns() // 1_000_000
    read = kafka.read_offsets(partitions)
    time_ms = (before_ms + time.time_ns() // 1_000_000) // 2
    measured = sizes.measure(kafka.access, read.found) if sizes else {}
    alias = kafka.access.alias
    samples = [
        Sample(alias, *one, time_ms, offsets.end, offsets.start, topics[one.topic].topic_id, measured.get(one), SOURCE)
        for one, offsets in read.found.items()
    ]
    return Poll(samples, read.failed)


def follow(
    sources: Sequence[Source],
    schedule: Schedule,
    store: SampleStore,
    progress: Callable[[Round], None],
    stop: threading.Event | None = None,
) -> int:
    """Sample all clusters side by side until the schedule ends or `stop` is set; return the number of samples kept."""
    readers = [_Reader(source, schedule) for source in sources]
    kept = 0
    with ThreadPoolExecutor(max_workers=max(1, len(readers))) as threads:
        for number in _ticks(schedule, stop or threading.Event()):
            answers = dict(zip([reader.alias for reader in readers], threads.map(_Reader.poll, readers), strict=True))
            polls = {alias: answer for alias, answer in answers.items() if isinstance(answer, Poll)}
            samples = [sample for one in polls.values() for sample in one.samples]
            store.append(samples)
            kept += len(samples)
            failures = {alias: answer for alias, answer in answers.items() if isinstance(answer, KafkaError)}
            unread = {alias: one.unread for alias, one in polls.items() if one.unread}
            progress(Round(number, len(samples), unread, failures))
    return kept


@dataclass
class _Reader:
    """One cluster over many rounds: the connection is kept while it works and made anew after a failure."""

    source: Source
    schedule: Schedule
    sizes: RecordSizes = field(init=False)
    kafka: Kafka | None = None

    def __post_init__(self) -> None:
        self.sizes = RecordSizes(self.schedule.sizes_every_seconds)

    @property
    def alias(self) -> str:
        return self.source.access.alias

    def poll(self) -> Poll | KafkaError:
        try:
            self.kafka = self.kafka or Kafka(self.source.access, self.schedule.timeout_seconds)
            return poll(self.kafka, self.source.accepts, self.sizes)
        except KafkaError as error:
            self.kafka = None
            return error


def _ticks(schedule: Schedule, stop: threading.Event) -> Iterator[int]:
    """Yield round numbers on a steady beat; a round that took too long skips beats instead of bunching up."""
    started, beat, number = time.monotonic(), 0, 0
    end = float("inf") if schedule.duration_seconds is None else schedule.duration_seconds
    while beat * schedule.interval_seconds <= end:
        if stop.wait(max(0.0, started + beat * schedule.interval_seconds - time.monotonic())):
            return
        number += 1
        yield number
        beat = max(beat, int((time.monotonic() - started) / schedule.interval_seconds)) + 1

"""Measures, beside `sample`, what records take in the logs of both ends of flows: compressed, headers of batches
included.

It is what `cost` counts bytes with, as offsets count records alone. A topic that cannot be measured is left out, and no
sample waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.errors import cause
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import ReadLimits, mean_record_bytes, read_logs, stored_record_bytes
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.schema import StoredSizeRow
from mm2mgr.samples.store import StoredSizeStore

if TYPE_CHECKING:
    from mm2mgr.topology import Flow, KafkaCluster

_MEASURED_EVERY_SECONDS = 3_600.0  # compression changes with the producers, not with the traffic
_LOOK_EVERY_SECONDS = 600.0
_LOOK_SECONDS = 60.0  # of one cluster
_TOPICS_PER_LOOK = 50  # of one cluster, a few MB of each
_PARTITIONS_PER_TOPIC = 3
_SIZES = ReadLimits(records_per_partition=200, limit_bytes=32_000_000, limit_seconds=10.0)


@dataclass
class StoredSizesReader:
    """Looks as one of the readers that are polled: it gives no samples, and what it measures goes to `sizes`.

    The topics whose logs grew most since they were measured come first. A run of one round does not look.
    """

    flows: Sequence[Flow]
    sizes: StoredSizeStore
    first_look_seconds: float
    timeout_seconds: float = 10.0  # of one call; samples are not delayed by it
    connect: Callable[[KafkaCluster, float], Kafka] = lambda cluster, seconds: Kafka(kafka_access(cluster), seconds)
    name, gives_samples = "stored sizes", False
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _running: Future[tuple[str, ...]] | None = None
    _notes: tuple[str, ...] = ()
    _measured: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._due = timing.now() + self.first_look_seconds

    def poll(self) -> Poll:
        """Begin a look when it is due; the notes of the last one name the clusters that were not looked at."""
        if self._running and self._running.done():
            ended, self._running = self._running, None
            self._notes = ended.result()
        if self._running is None and timing.now() >= self._due:
            self._due = timing.now() + _LOOK_EVERY_SECONDS
            self._running = self._thread.submit(self._look)
        return Poll([], notes=self._notes)

    def close(self) -> None:
        """Wait for the look that is under way."""
        self._thread.shutdown()

    def _look(self) -> tuple[str, ...]:
        clusters: dict[str, KafkaCluster] = {}
        names: dict[str, set[str]] = {}
        notes: list[str] = []
        by_source: dict[str, list[Flow]] = {}
        for flow in self.flows:
            by_source.setdefault(flow.source.alias, []).append(flow)
            clusters |= {flow.source.alias: flow.source, flow.target.alias: flow.target}

        def list_topics(alias: str) -> None:
            with self.connect(clusters[alias], self.timeout_seconds) as kafka:
                listed = kafka.topics()
            for flow in by_source[alias]:
                carried = [topic for topic in listed if flow.carries(topic)]
                names.setdefault(alias, set()).update(carried)
                names.setdefault(flow.target.alias, set()).update(map(flow.remote_topic, carried))

        def measure(alias: str) -> None:
            with self.connect(clusters[alias], self.timeout_seconds) as kafka:
                rows = self._measure(kafka, names[alias])
            self.sizes.append(rows, time.time_ns() // 1_000_000)

        for step, aliases in ((list_topics, by_source), (measure, names)):
            for alias in list(aliases):
                try:
                    step(alias)
                except Exception as error:  # no sample may be lost for it
                    notes.append(f"sizes of stored records on '{alias}' were not measured: {cause(error)}")
        return tuple(dict.fromkeys(notes))

    def _measure(self, kafka: Kafka, names: Iterable[str]) -> list[StoredSizeRow]:
        until, alias, listed = timing.now() + _LOOK_SECONDS, kafka.access.alias, kafka.topics()
        every = [
            TopicPartition(name, number)
            for name in sorted(names)
            if name in listed
            for number in range(listed[name].partitions)
        ]
        logs: dict[str, dict[TopicPartition, Offsets]] = {}
        for partition, log in read_logs(kafka, every).found.items():
            logs.setdefault(partition.topic, {})[partition] = log
        chosen = self._choose(alias, logs)
        fullest = {
            partition: log
            for name in chosen
            for partition, log in sorted(logs[name].items(), key=lambda of: of[1].start - of[1].end)[
                :_PARTITIONS_PER_TOPIC
            ]
        }
        by_topic: dict[str, list[float]] = {}
        for partition, size in mean_record_bytes(kafka.access, fullest, _SIZES).items():
            by_topic.setdefault(partition.topic, []).append(size)
        rows = []
        for name in chosen:
            left = until - timing.now()
            if left <= 0:
                break
            if sizes := by_topic.get(name):
                mean = sum(sizes) / len(sizes)
                seconds = min(self.timeout_seconds, left)
                stored = stored_record_bytes(kafka.access, logs[name], mean, seconds, _PARTITIONS_PER_TOPIC)
                if stored is not None:
                    rows.append(StoredSizeRow(alias, name, time.time_ns() // 1_000_000, mean, stored))
                    self._measured[alias, name] = timing.now(), _end_of(logs[name])
        return rows

    def _choose(self, alias: str, logs: Mapping[str, Mapping[TopicPartition, Offsets]]) -> list[str]:
        now, grown = timing.now(), dict[str, int]()
        for name, of_topic in logs.items():
            at, end = self._measured.get((alias, name), (-_MEASURED_EVERY_SECONDS, 0))
            if now - at >= _MEASURED_EVERY_SECONDS and _end_of(of_topic) > end:
                grown[name] = _end_of(of_topic) - end
        return sorted(grown, key=lambda name: (-grown[name], name))[:_TOPICS_PER_LOOK]


def _end_of(log: Mapping[TopicPartition, Offsets]) -> int:
    return sum(offsets.end for offsets in log.values())

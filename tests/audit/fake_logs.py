"""Logs in memory behind a consumer that answers like librdkafka's, so that both passes run without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import pytest

from mm2mgr import timing
from mm2mgr.audit import reading
from mm2mgr.audit.windows import AuditOrder, Expectation, FlowOrder, LogAccess, LogWindow, PartitionOrder
from mm2mgr.partitions import Offsets, TopicPartition
from tests.live.seen import Message

_CODES = confluent_kafka.KafkaError


@dataclass(frozen=True)
class FakeRecord:
    """A record, or with `code` an error, as a consumer returns it."""

    place: TopicPartition
    at: int
    record: Message | None = None
    code: int = 0

    def error(self) -> Any:
        return _CODES(self.code, f"error {self.code}") if self.code else None

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        assert self.record
        return self.record.key

    def value(self) -> bytes | None:
        assert self.record
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        assert self.record
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        assert self.record
        return 1, self.record.timestamp_ms


@dataclass
class FakeCluster:
    """One cluster: its logs, from `starts` on, and partitions that fail at an offset."""

    logs: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    fails_at: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """By partition an offset and the error's code; those of one that is silent have no code (0)."""
    compacted: set[tuple[TopicPartition, int]] = field(default_factory=set)
    """Offsets whose records compaction has removed."""
    read_records: int = 0

    def log(self, partition: TopicPartition) -> Offsets:
        end = len(self.logs.get(partition, []))
        return Offsets(min(end, self.starts.get(partition, 0)), end)


@dataclass
class FakeLogs:
    """Clusters by bootstrap servers; `install` puts them in the place of all brokers."""

    clusters: dict[str, FakeCluster] = field(default_factory=lambda: {"src": FakeCluster(), "tgt": FakeCluster()})

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def consumer(settings: dict[str, Any]) -> _FakeConsumer:
            return _FakeConsumer(self.clusters[settings["bootstrap.servers"]])

        monkeypatch.setattr(reading.confluent_kafka, "Consumer", consumer)

    def put(self, source: Sequence[Message], target: Sequence[Message], topic: str = "t", partition: int = 0) -> None:
        self.clusters["src"].logs[TopicPartition(topic, partition)] = list(source)
        self.clusters["tgt"].logs[TopicPartition(f"src.{topic}", partition)] = list(target)

    def part(
        self, expectation: Expectation, end: int | None = None, topic: str = "t", number: int = 0
    ) -> PartitionOrder:
        """Return the whole logs, the source's up to `end` as stored."""
        there, here = TopicPartition(topic, number), TopicPartition(f"src.{topic}", number)
        log, mirror = self.clusters["src"].log(there), self.clusters["tgt"].log(here)
        window = LogWindow(there, log.start, log.end if end is None else end)
        return PartitionOrder(window, LogWindow(here, *mirror), log, mirror, expectation)

    def order(self, *parts: PartitionOrder, **more: Any) -> AuditOrder:
        accesses = (LogAccess(alias, {"bootstrap.servers": alias}) for alias in ("src", "tgt"))
        return AuditOrder((FlowOrder("f:src->tgt", *accesses, parts),), **more)


@dataclass
class _FakeConsumer:
    cluster: FakeCluster
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def assign(self, places: list[Any]) -> None:
        self.positions = {TopicPartition(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: list[Any]) -> None:
        for place in places:
            self.positions.pop(TopicPartition(place.topic, place.partition), None)

    def consume(self, count: int, timeout: float) -> list[FakeRecord]:
        answers: list[FakeRecord] = []
        for partition, position in list(self.positions.items()):
            log, fault = self.cluster.logs.get(partition), self.cluster.fails_at.get(partition)
            if log is None:
                answers.append(FakeRecord(partition, -1001, code=_CODES.UNKNOWN_TOPIC_OR_PART))
                continue
            if position < self.cluster.starts.get(partition, 0):
                answers.append(FakeRecord(partition, position, code=_CODES._AUTO_OFFSET_RESET))
                continue
            end = min(len(log), position + min(count, 700), *([fault[0]] if fault else []))
            left = (at for at in range(position, end) if (partition, at) not in self.cluster.compacted)
            answers += [FakeRecord(partition, at, log[at]) for at in left]
            self.cluster.read_records += max(0, end - position)
            self.positions[partition] = max(position, end)
            if fault and end >= fault[0]:
                answers += [FakeRecord(partition, end, code=fault[1])] if fault[1] else []
            elif end >= len(log):
                answers.append(FakeRecord(partition, end, code=_CODES._PARTITION_EOF))
        if not answers:
            timing.sleep(timeout)
        return answers

    def list_topics(self, topic: str, timeout: float) -> Any:
        raise confluent_kafka.KafkaException(_CODES(_CODES._TIMED_OUT, f"{topic}: nothing in {timeout} s"))

    def close(self) -> None:
        self.positions = {}

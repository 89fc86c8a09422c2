"""The sample topic of Cruise Control as a source: what is believed is stored and counted, the rest is said, and how far it was read is stored with it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples import readers
from mm2mgr.samples.batch import Inventory
from mm2mgr.samples.readers import MetricSourceReader
from mm2mgr.samples.schema import SAMPLES
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import StoredTable
from mm2mgr.throughput.cruise_reader import Range, TopicReader
from mm2mgr.throughput.cruise_records import decode_records
from mm2mgr.throughput.cruise_topic import TopicSource
from tests.examples import sampled
from tests.throughput.test_cruise_topic import version_1

T0, T1 = 1_795_255_200_000, 1_795_255_320_000
TOPICS = {"a.b": TopicInfo(3, "id", False), "samples": TopicInfo(1, "s1", False)}
KNOWN = Inventory("dc1", TOPICS, lambda topic: topic == "a.b")


@dataclass(frozen=True)
class Log(TopicReader):
    """A sample topic of one partition whose records are in a list; `low` is its log start."""

    records: list[bytes] = field(default_factory=list)
    low: list[int] = field(default_factory=lambda: [0])

    def bounds(self) -> dict[int, tuple[int, int]]:
        return {0: (self.low[0], self.low[0] + len(self.records))}

    def offsets_at(self, time_ms: int, ends: Any) -> dict[int, int]:
        return {0: 1}

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        for _, first, end in ranges:
            values = self.records[first - self.low[0] : end - self.low[0]]
            yield decode_records(values, [(0, first)] * len(values), "dc1", "cruise-control-topic", 120_000)


def stored(store: Path, *names: str) -> list[tuple[Any, ...]]:
    table = StoredTable(store, SAMPLES)
    columns = [table.read_file(file, names).to_pydict() for file in table.files()]
    return sorted(row for each in columns for row in zip(*(each[name] for name in names), strict=True))


def poll(source: TopicSource, since_ms: int | None = None, known: Inventory = KNOWN) -> tuple[int, list[str]]:
    pieces = list(source.gather(known, since_ms, T1))
    return sum(piece.stored for piece in pieces), [note for piece in pieces for note in piece.notes]


def test_what_came_is_stored_once_and_what_is_refused_is_said(tmp_path: Path) -> None:
    log = Log("dc1", "samples", {}, 120_000, [version_1("a.b", 0, 5, 10, 7.0, T0), version_1("gone", 0, 1, 1, 1, T0)])
    log.records.extend([b"\x09", b"\x09", version_1("samples", 0, 1, 1, 1, T0)])
    source = TopicSource(log, tmp_path)
    count, notes = poll(source)
    assert count == 1
    assert stored(tmp_path, "source", "time_ms", "resolution_ms", "topic_id", "bytes_per_second", "log_bytes") == [
        ("cruise-control-topic", T0, 120_000, "id", 10240.0, 5 * 1024 * 1024)
    ]
    assert "2 records skipped: of unknown version 9" in notes
    assert any("gone" in note for note in notes)
    assert any("1 of 3 partitions have samples; missing (not zero): partitions of a.b" in note for note in notes)
    log.records.extend([version_1("a.b", 1, 5, -3.0, 7.0, T0), version_1("a.b", 3, 1, 1, 1, T0)])
    log.records.extend([version_1("a.b", 0, 5, float("nan"), 7.0, T1), version_1("a.b", 0, 5, 1, 1, T1 + 10**9)])
    count, notes = poll(source, T0)
    assert count == 2
    assert (1, T0, None, 7.0) in stored(tmp_path, "partition", "time_ms", "bytes_per_second", "records_per_second")
    dropped = "5 values dropped: 2 negative, 2 not a number, 1 of a partition that its topic does not have"
    assert dropped in notes  # bytes in and twice as many out
    assert "1 samples dropped: their time is in the future or long past" in notes
    assert poll(source, T1) == (0, [])
    assert len(stored(tmp_path, "time_ms")) == 3


def test_a_store_that_has_samples_but_no_offsets_begins_at_its_newest_sample(tmp_path: Path) -> None:
    log = Log("dc1", "samples", {}, 120_000, [version_1("a.b", 0, 5, n, 7.0, T0 + n) for n in range(4)])
    assert poll(TopicSource(log, tmp_path), since_ms=T0)[0] == 3  # offsets_at


def test_records_that_expired_unread_are_said_and_a_topic_created_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = Log("dc1", "samples", {}, 120_000, [version_1("a.b", 0, 5, n, 7.0, T0 + n) for n in range(4)])
    source = TopicSource(log, tmp_path)
    assert poll(source)[0] == 4
    log.low[0] = 10
    count, notes = poll(source)
    assert (count, notes[0]) == (4, "6 records of samples expired before they were read")
    anew = replace(KNOWN, topics={**TOPICS, "samples": TopicInfo(1, "s2", False)})
    log.low[0] = 0
    assert "partition 0 of samples ends at 4, before what was read (14)" in poll(source)[1]
    assert poll(source, known=anew)[0] == 4


def test_a_poll_counts_what_the_source_stored_and_a_failure_between_commits_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Log):
        def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
            if ranges[0][1]:
                raise Mm2mgrError("the broker is gone")
            yield from super().read(ranges)

    monkeypatch.setattr("mm2mgr.throughput.cruise_topic._RECORDS_PER_COMMIT", 2)
    monkeypatch.setattr(readers.time, "time_ns", lambda: T1 * 1_000_000)
    log = Failing("dc1", "samples", {}, 120_000, [version_1("a.b", n, 5, 1, 7.0, T0) for n in (0, 1, 2, 0)])
    source = TopicSource(log, tmp_path)
    reader = MetricSourceReader(KafkaAccess("dc1", "nowhere:1"), lambda _: True, source, SampleStore(tmp_path))
    monkeypatch.setattr(MetricSourceReader, "_topics", lambda _: KNOWN)
    first = reader.poll()
    assert (first.stored, first.batches, first.notes[-1]) == (2, [], "the broker is gone")
    assert (
        poll(TopicSource(cast("Any", Log(*(getattr(log, name) for name in Log.__dataclass_fields__))), tmp_path))[0]
        == 2
    )


class Killed(BaseException):
    """The process is gone at this point."""


@sampled("seed", range(3), range(12))
def test_any_kills_and_any_two_at_the_same_time_store_each_sample_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw, count, add = random.Random(seed), 0, StoredTable.add
    monkeypatch.setattr("mm2mgr.throughput.cruise_topic._RECORDS_PER_COMMIT", 2)
    log = Log("dc1", "samples", {}, 120_000)

    def killed(*arguments: Any) -> bool:
        if draw.random() < 0.5:
            add(*arguments)  # after its commit
        raise Killed

    def write(most: int) -> int:
        records = range(draw.randrange(most))
        junk = [draw.random() < 0.2 for _ in records]
        for number, is_junk in enumerate(junk):
            place = count + number - sum(junk[:number])
            log.records.append(b"\x09" if is_junk else version_1("a.b", draw.randrange(3), 5, 1, 7.0, T0 + place))
        return len(junk) - sum(junk)

    for _ in range(10):
        count += write(6)
        running = [TopicSource(log, tmp_path).gather(KNOWN, None, T1) for _ in range(draw.randrange(3))]
        while running:
            source = draw.choice(running)
            with monkeypatch.context() as patch:
                if draw.random() < 0.3:
                    patch.setattr(StoredTable, "add", killed)
                try:
                    next(source)
                except (StopIteration, Killed):
                    running.remove(source)
            count += write(4)
    poll(TopicSource(log, tmp_path))
    assert stored(tmp_path, "time_ms") == [(T0 + number,) for number in range(count)]

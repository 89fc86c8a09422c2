"""The sample topic of Cruise Control as a source: decoded rows become batches, skipped records are said, nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Inventory
from mm2mgr.throughput import cruise_topic
from mm2mgr.throughput.cruise_topic import SharedSpark, TopicSamples, TopicSource

T0, T1 = 1_795_255_200_000, 1_795_255_320_000
KNOWN = Inventory("dc1", {"a.b": TopicInfo(3, "id", False)}, lambda topic: True)


def test_samples_of_one_moment_that_come_in_two_readings_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[Any, ...]] = [("a.b", 0, T0, 10.0, None, 5.0), ("gone", 0, T0, 1.0, 1.0, 1.0)]
    asked: list[int | None] = []

    def read(spark: object, settings: object, topic: str, since_ms: int | None) -> Iterator[TopicSamples]:
        asked.append(since_ms)
        rows = [row for row in log if row[2] >= (since_ms or 0)]
        names = ("topic", "partition", "time_ms", "bytes_per_second", "records_per_second", "log_bytes")
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        yield columns, {"of unknown version 9": 2}

    monkeypatch.setattr(cruise_topic, "topic_samples", read)
    source = TopicSource(SharedSpark(running=cast("Any", object())), {}, "samples", 120_000)
    (first,) = source.gather(KNOWN, None, T1)
    (batch,) = first.batches
    assert (batch.source, batch.time_ms, batch.resolution_ms) == ("cruise-control-topic", T0, 120_000)
    assert (batch.bytes_per_second, batch.records_per_second, batch.log_bytes) == ([10.0], None, [5])
    assert "2 records skipped: of unknown version 9" in first.notes
    assert any("gone" in note for note in first.notes)
    log += [("a.b", 1, T0, -3.0, 7.0, 5.0), ("a.b", 0, T1, float("nan"), 7.0, 5.0)]
    (second,) = source.gather(KNOWN, T0, T1)
    assert [(each.time_ms, list(each.partitions), each.bytes_per_second) for each in second.batches] == [
        (T0, [1], None),
        (T1, [0], None),
    ]
    assert any("2 values dropped: 1 negative, 1 not a number" in note for note in second.notes)
    (third,) = source.gather(KNOWN, T1, T1)
    assert third.batches == []
    assert asked == [None, T0, T1]

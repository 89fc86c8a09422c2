"""Stores with a few samples, as tests of roll-ups like to write them, and what is read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import KAFKA_OFFSETS, Store
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup import throughput_table
from mm2mgr.throughput.rollup_job import make
from mm2mgr.throughput.rollup_writer import Report
from mm2mgr.throughput.windows import PartitionRate, read_throughput
from tests.samples.rows import Sample, batches

StoreT = TypeVar("StoreT", Path, str)
START = 1_763_719_200_000  # 2025-11-21T10:00:00Z
HOUR_MS = 3_600_000


def series(
    topic: str, points: Iterable[tuple[int, int]], topic_id: str | None = "id", size: float | None = 100.0
) -> list[Sample]:
    """Samples of partition 0 at (seconds after the start, end offset); only the first looks at record sizes."""
    return [
        Sample("dc1", topic, 0, START + seconds * 1000, offset, 0, topic_id, None if n else size, KAFKA_OFFSETS)
        for n, (seconds, offset) in enumerate(points)
    ]


def elsewhere(samples: Iterable[Sample], cluster: str) -> list[Sample]:
    """The same samples of another cluster."""
    return [replace(sample, cluster=cluster) for sample in samples]


def stored(folder: StoreT, *samples: Sequence[Sample]) -> StoreT:
    """Append samples to the store of a folder."""
    SampleStore(folder).append(*batches(one for each in samples for one in each))
    return folder


def rates(source: str, points: Iterable[tuple[int, float]], resolution_ms: int = 0) -> list[Batch]:
    """Batches of a source that reports bytes per second of t-0, at (seconds after the start, rate)."""
    return [
        Batch(
            "dc1",
            source,
            START + seconds * 1000,
            ["t"],
            [0],
            resolution_ms=resolution_ms,
            bytes_per_second=[rate],
        )
        for seconds, rate in points
    ]


def rolled(folder: Store) -> Report:
    """Roll up what is due, in this process."""
    return make(folder)


def throughput_of(folder: Path, *samples: Sequence[Sample]) -> dict[str, PartitionRate]:
    """Store, roll up, and read everything back by topic; topics of other clusters as cluster/topic."""
    stored(folder, *samples)
    rolled(folder)
    found = read_throughput(folder)
    return {rate.topic if rate.cluster == "dc1" else f"{rate.cluster}/{rate.topic}": rate for rate in found}


@dataclass(frozen=True)
class Contents:
    """All that a table of roll-ups holds, and what its periods were made from."""

    marks: list[tuple[str, ...]]
    rows: list[dict[str, Any]]


def contents(store: Store) -> Contents:
    table = throughput_table(store)
    files = table.files()
    rows = [
        {"period": file.values[0], "made_from": file.values[1], **row}
        for file in files
        for row in table.read_file(file, table.file_schema.names).to_pylist()
    ]
    names = ("period", "cluster", "topic", "partition", "source")
    rows.sort(key=lambda row: (*(row[name] for name in names), row["topic_id"] or ""))
    return Contents(sorted({file.values for file in files}), rows)

"""Samples one by one, as tests like to write them, and the batches that a source would make of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import Share, StoredTable, read_share


@dataclass(frozen=True)
class Sample:
    """The log of one partition at one moment."""

    cluster: str
    topic: str
    partition: int
    time_ms: int
    end_offset: int
    start_offset: int
    topic_id: str | None
    record_bytes: float | None
    source: str


def batches(samples: Iterable[Sample]) -> list[Batch]:
    """Gather samples of one cluster, source and time."""

    def key(sample: Sample) -> tuple[int, str, str]:
        return sample.time_ms, sample.cluster, sample.source

    groups = [list(rows) for _, rows in groupby(sorted(samples, key=key), key=key)]
    return [
        Batch(
            rows[0].cluster,
            rows[0].source,
            rows[0].time_ms,
            [row.topic for row in rows],
            [row.partition for row in rows],
            [row.topic_id for row in rows],
            end_offset=[row.end_offset for row in rows],
            start_offset=[row.start_offset for row in rows],
            record_bytes=[row.record_bytes for row in rows],
        )
        for rows in groups
    ]


def samples_of(table: Any) -> list[Sample]:
    """Turn what the store read into samples, in the store's order."""
    names = list(Sample.__dataclass_fields__)
    return [Sample(**row) for row in table.select(names).to_pylist()]


def stored(store: SampleStore) -> Any:
    """Return every sample of a store once, ordered by partition, time and source, as a table; what is damaged is left out."""
    schema = store.table.file_schema
    rows, _ = read_share(store.table, store.table.files(), schema.names, Share())
    names = ("cluster", "topic", "partition", "topic_id", "time_ms", "source")
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows.to_pylist():
        found.setdefault(tuple(row[name] or "" if name != "partition" else row[name] for name in names), row)
    return pa.Table.from_pylist([found[key] for key in sorted(found)], schema=schema)


def data_files(store: Path, table: str = "samples", period: str = "") -> list[Path]:
    """Return where the files of a table are, of all periods or of one."""
    opened = StoredTable(store, table)
    return [Path(opened.uri, file.path) for file in opened.files() if file.values[0].startswith(period)]

"""The sample store: a directory of Parquet files, one per round and hour, written once and never changed.

In go samples, out come samples of a time window.
A crash must not leave half a file behind: files get their name only when they are complete.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import (
    HOUR_PREFIX,
    LAYOUT,
    LAYOUT_FILE,
    Sample,
    hour_of,
    hour_start_ms,
    hours_text,
    window_text,
)

SCHEMA = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("start_offset", pa.int64(), nullable=False),
        pa.field("topic_id", pa.string()),
        pa.field("record_bytes", pa.float64()),
        pa.field("source", pa.string(), nullable=False),
    ]
)


class SampleStore:
    """An append-only directory `hour=2026-11-21T10/<time>-<id>.parquet`, hours in UTC."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def append(self, samples: Iterable[Sample]) -> list[Path]:
        """Write samples, one file per hour they touch; on return they survive a crash."""
        self._claim()
        ordered = sorted(samples, key=lambda sample: (sample.time_ms, sample.cluster, sample.topic, sample.partition))
        return [self._write(hour, list(rows)) for hour, rows in groupby(ordered, key=lambda s: hour_of(s.time_ms))]

    def hours(self) -> list[str]:
        """Return the hours that have at least one complete file, oldest first."""
        return sorted({path.parent.name.removeprefix(HOUR_PREFIX) for path in self._files()})

    def newest_ms(self) -> int:
        """Return the time of the newest sample; Mm2mgrError when there is none. Reads one hour, however long the store."""
        hours = self.hours()
        if not hours:
            raise Mm2mgrError(f"no samples in {self.directory}", hint=hours_text([]))
        return max(sample.time_ms for sample in self.read(since_ms=hour_start_ms(hours[-1])))

    def read(self, since_ms: int | None = None, until_ms: int | None = None) -> list[Sample]:
        """Return the samples of a window (since inclusive, until exclusive); Mm2mgrError when there is none."""
        self.check_layout()
        low, high = since_ms if since_ms is not None else 0, until_ms if until_ms is not None else 2**62
        found = [
            Sample(**row)
            for path in self._files()
            if _may_overlap(path, since_ms, until_ms)
            for row in _rows(path)
            if low <= row["time_ms"] < high
        ]
        if not found:
            window = window_text(since_ms, until_ms)
            raise Mm2mgrError(f"no samples {window} in {self.directory}", hint=hours_text(self.hours()))
        return found

    def check_layout(self) -> None:
        """Refuse a directory that another layout of mm2mgr wrote; a directory without samples passes."""
        marker = self.directory / LAYOUT_FILE
        if marker.is_file() and (found := marker.read_text(encoding="utf-8").strip()) != LAYOUT:
            raise Mm2mgrError(
                f"{self.directory} holds “{found[:80]}”, this mm2mgr reads “{LAYOUT}”",
                hint="sample into another directory, or use the mm2mgr version that wrote this one",
            )

    def _claim(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.check_layout()
            marker = self.directory / LAYOUT_FILE
            if not marker.is_file():
                _replace(marker, lambda draft: draft.write_text(LAYOUT + "\n", encoding="utf-8"))
        except OSError as error:
            raise _cannot_write(self.directory, error) from error

    def _write(self, hour: str, rows: list[Sample]) -> Path:
        table = pa.Table.from_pylist([vars(row) for row in rows], schema=SCHEMA)
        target = self.directory / f"{HOUR_PREFIX}{hour}" / f"{rows[0].time_ms}-{uuid.uuid4().hex[:8]}.parquet"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, lambda draft: pq.write_table(table, draft, compression="zstd"))
        except (OSError, pa.ArrowException) as error:
            raise _cannot_write(target, error) from error
        return target

    def _files(self) -> list[Path]:
        # A leading dot marks a file being written; Spark skips such names too.
        return sorted(path for path in self.directory.glob(f"{HOUR_PREFIX}*/*.parquet") if path.name[0] != ".")


def _replace(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target under a hidden name, force it to disk, then give it its name."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(draft)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _may_overlap(path: Path, since_ms: int | None, until_ms: int | None) -> bool:
    hour = path.parent.name.removeprefix(HOUR_PREFIX)
    not_before = since_ms is None or hour >= hour_of(since_ms)
    return not_before and (until_ms is None or hour <= hour_of(until_ms))


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, schema=SCHEMA, partitioning=None).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise Mm2mgrError(
            f"{path} is not a readable sample file",
            hint="mm2mgr never writes half a file: check the disk, then move this file away to go on without it",
        ) from error
    return rows


def _cannot_write(path: Path, error: Exception) -> Mm2mgrError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return Mm2mgrError(f"samples cannot be written to {path}: {reason}", hint="check the directory's rights and space")

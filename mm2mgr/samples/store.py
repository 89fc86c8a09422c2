"""The sample store: a directory of Parquet files by hour, many small ones while an hour runs and few after it is over.

In go batches, out come tables of a time window. A crash, a full disk or a damaged file never takes other samples along,
and nothing counts twice: a sample is known by partition, time and source.
"""

from __future__ import annotations

import shutil
import time
import uuid
import warnings
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.compact import compact_hour, loose_files, once, ordered
from mm2mgr.samples.dictionary import Dictionary, alone
from mm2mgr.samples.files import (
    ABANDONED_SECONDS,
    SAMPLE_SCHEMA,
    UnreadableFile,
    bounds,
    put,
    read_columns,
    reading,
    sweep,
    tables_to,
    writing,
)
from mm2mgr.samples.schema import (
    HOUR_PREFIX,
    LAYOUT,
    LAYOUT_FILE,
    SAMPLE_COLUMNS,
    hour_end_ms,
    hour_of,
    hour_start_ms,
    hours_text,
    window_text,
)

_EXPIRED = ".expired-"


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


@dataclass(frozen=True)
class Written:
    """One file that was added, and how many samples are in it."""

    hour: str
    path: Path
    samples: int


class SampleStore:
    """`hour=2026-11-21T10/<time>-<random>.parquet` per round, `ids-….parquet` once compacted, `dictionary/` for names.

    Hours are UTC. `warn` is told of every damaged file that was left out.
    """

    def __init__(self, directory: Path, warn: Callable[[str], None] = _warn) -> None:
        self.directory = directory
        self._warn = warn
        self._dictionary = Dictionary(directory, warn)
        self._swept_at = -ABANDONED_SECONDS
        self._claimed = False

    def append(self, *batches: Batch) -> list[Written]:
        """Write batches, one file per hour they touch; on return they survive a crash."""
        self._claim()
        by_hour: dict[str, list[Batch]] = {}
        for batch in batches:
            by_hour.setdefault(hour_of(batch.time_ms), []).append(batch)
        return [written for hour, each in sorted(by_hour.items()) if (written := self._write(hour, each))]

    def hours(self) -> list[str]:
        """Return the hours that have at least one complete file, oldest first."""
        return [hour for hour in self._hour_folders() if self._files(hour)]

    def loose_hours(self) -> list[str]:
        """Return the hours with files that `compact` would replace, oldest first."""
        return [hour for hour in self._hour_folders() if loose_files(self._folder(hour))]

    def newest_ms(self) -> int:
        """Return the time of the newest sample; Mm2mgrError when there is none. Reads footers of one hour."""
        self.check_layout()
        for hour in reversed(self.hours()):
            if times := [found for found in self.each_file(hour, lambda path: bounds(path, "time_ms")) if found]:
                return int(max(newest for _, newest in times))
        raise Mm2mgrError(f"no samples in {self.directory}", hint=hours_text([]))

    def read(self, since_ms: int | None = None, until_ms: int | None = None) -> Any:
        """Return the samples of a window (since inclusive, until exclusive) as a table; Mm2mgrError when there is none.

        Columns: those of `schema.SAMPLE_COLUMNS`, then cluster, topic, partition and topic_id. Each sample is there once,
        ordered by partition_id, time_ms and source.
        """
        self.check_layout()
        low, high = since_ms if since_ms is not None else 0, until_ms if until_ms is not None else 2**62
        tables = [SAMPLE_SCHEMA.empty_table()]
        for hour in self._hours_between(low, high):
            for rows in self.each_file(hour, lambda path: read_columns(path, SAMPLE_COLUMNS)):
                times = rows["time_ms"]
                tables.append(rows.filter(pc.and_(pc.greater_equal(times, low), pc.less(times, high))))
        found = once(ordered(pa.concat_tables(tables)))
        if not len(found):
            window = window_text(since_ms, until_ms)
            raise Mm2mgrError(f"no samples {window} in {self.directory}", hint=hours_text(self.hours()))
        return self._named(found)

    def each_file(self, hour: str, read: Callable[[Path], Any]) -> list[Any]:
        """Return what `read` makes of each file of an hour, newest polls last; damaged files are left out.

        What a compaction or retention takes away meanwhile is no damage: the hour is read again.
        """
        while True:
            found, damaged = list[Any](), dict[Path, str]()
            for path in self._files(hour):
                try:
                    found.append(read(path))
                except UnreadableFile as error:
                    damaged[path] = error.message
            if all(path.exists() for path in damaged):
                for message in damaged.values():
                    self._warn(f"{message}; left out")
                return found

    def dictionary(self) -> Any:
        """Return the table of partitions by id (`schema.DICTIONARY_COLUMNS`)."""
        damaged: list[UnreadableFile] = []
        entries = self._dictionary.table(damaged)
        for error in damaged:
            self._warn(f"{error.message}; the partitions in it have no names")
        return entries

    def compact(self, hour: str) -> list[Path]:
        """Replace the files of an hour by few, ordered by partition and time; return the new ones, none if there was nothing to do.

        A crash in between leaves samples twice, which readers count once, and the next call tidies up.
        """
        self.check_layout()
        folder = self._folder(hour)
        if not loose_files(folder):
            return []
        with alone(self.directory, f"compaction of {hour}", self._warn):
            # Look again: another sampler may have done it while this one waited.
            return compact_hour(folder, self._warn) if loose_files(folder) else []

    def expire(self, before_ms: int) -> list[str]:
        """Remove the hours that ended before a moment; roll-ups and the dictionary stay. Return the hours removed."""
        self.check_layout()
        old = [hour for hour in self._hour_folders() if hour_end_ms(hour) <= before_ms]
        with writing(self.directory):
            for hour in old:  # out of sight first: half a folder must never pass for the whole hour
                with suppress(FileNotFoundError):  # another sampler was faster
                    self._folder(hour).rename(self.directory / f"{_EXPIRED}{hour}-{uuid.uuid4().hex[:8]}")
            for folder in self.directory.glob(f"{_EXPIRED}????-??-??T??-????????"):
                shutil.rmtree(folder, ignore_errors=True)
        return old

    def check_layout(self) -> None:
        """Refuse a directory that another layout of mm2mgr wrote; a directory without samples passes."""
        marker = self.directory / LAYOUT_FILE
        if not marker.is_file():
            if any(self.directory.glob(f"{HOUR_PREFIX}*")):
                raise self._refused(f"{self.directory} holds samples, but no {LAYOUT_FILE} file says of which layout")
            return
        with reading(marker):
            found = marker.read_text(encoding="utf-8", errors="replace").strip()
        if found != LAYOUT:
            raise self._refused(f"{self.directory} holds {found[:80]!r}, this mm2mgr reads {LAYOUT!r}")

    def _refused(self, what: str) -> Mm2mgrError:
        hint = "sample into another directory (--store), or move this one away; a mm2mgr of its version still reads it"
        return Mm2mgrError(what, hint=hint)

    def _claim(self) -> None:
        marker = self.directory / LAYOUT_FILE
        with writing(self.directory):
            self.check_layout()
            if not marker.is_file():
                if self._claimed:
                    # A new store here would fill the disk under a mount point, with ids that its dictionary does not name.
                    hint = "mount it again, and samples go on; to begin a new store, start `mm2mgr sample` again"
                    raise Mm2mgrError(f"the sample store {self.directory} is gone: no {LAYOUT_FILE} file", hint=hint)
                put(marker, lambda draft: draft.write_text(LAYOUT + "\n", encoding="utf-8"))
                self._claimed = True
                return
            self._claimed = True
        if time.monotonic() - self._swept_at >= ABANDONED_SECONDS:  # not each round: it looks through all hours
            sweep(self.directory)
            self._swept_at = time.monotonic()

    def _write(self, hour: str, batches: Sequence[Batch]) -> Written | None:
        rows = ordered(pa.concat_tables([self._table(batch) for batch in batches]))
        if not len(rows):
            return None
        target = self._folder(hour) / f"{batches[0].time_ms}-{uuid.uuid4().hex[:8]}.parquet"
        with writing(self.directory):
            tables_to(target, iter([rows]))
        return Written(hour, target, len(rows))

    def _table(self, batch: Batch) -> Any:
        values = {name: _column(given, SAMPLE_SCHEMA.field(name).type) for name, given in batch.values().items()}
        told = [column.is_valid() for column in values.values() if column is not None]
        topic_ids = batch.topic_ids or [None] * len(batch)
        ids = self._dictionary.ids(batch.cluster, batch.topics, batch.partitions, topic_ids)
        constants = {"time_ms": batch.time_ms, "resolution_ms": batch.resolution_ms, "source": batch.source}
        columns: dict[str, Any] = {"partition_id": _column(ids, pa.int32()), **values, **constants}
        rows = [_filled(columns[field.name], field.type, len(batch)) for field in SAMPLE_SCHEMA]
        table = pa.Table.from_arrays(rows, schema=SAMPLE_SCHEMA)
        return table.filter(_any(told)) if told else table.slice(0, 0)

    def _named(self, samples: Any) -> Any:
        entries = self.dictionary()
        places = pc.index_in(samples["partition_id"], value_set=entries["partition_id"])
        if nameless := places.null_count:
            self._warn(f"{nameless} samples in {self.directory} belong to partitions that its dictionary does not name")
            samples, places = samples.filter(places.is_valid()), places.drop_null()
        for name in ("cluster", "topic", "partition", "topic_id"):
            samples = samples.append_column(name, entries[name].take(places))
        return samples

    def _hours_between(self, low_ms: int, high_ms: int) -> list[str]:
        return [hour for hour in self._hour_folders() if hour_end_ms(hour) > low_ms and hour_start_ms(hour) < high_ms]

    def _hour_folders(self) -> list[str]:
        names = [path.name.removeprefix(HOUR_PREFIX) for path in listed(self.directory, f"{HOUR_PREFIX}*")]
        return sorted(name for name in names if _is_hour(name))

    def _folder(self, hour: str) -> Path:
        return self.directory / f"{HOUR_PREFIX}{hour}"

    def _files(self, hour: str) -> list[Path]:
        # A leading dot marks a file being written; Spark skips such names too.
        return [path for path in listed(self._folder(hour), "*.parquet") if path.name[0] != "."]


def _is_hour(text: str) -> bool:
    try:
        return hour_of(hour_start_ms(text)) == text
    except ValueError:
        return False


def _column(given: Any, kind: Any) -> Any:
    """Make an Arrow column, null where a whole number is negative; None stays None."""
    if given is None:
        return None
    if isinstance(given, array) and given.itemsize * 8 == kind.bit_width:
        column = pa.Array.from_buffers(kind, len(given), [None, pa.py_buffer(given)])
    else:
        column = pa.array(given, kind)
    if not pa.types.is_integer(kind):
        return column
    return pc.if_else(pc.less(column, pa.scalar(0, kind)), pa.scalar(None, kind), column)


def _filled(given: Any, kind: Any, length: int) -> Any:
    if isinstance(given, pa.Array):
        return given
    return pa.nulls(length, kind) if given is None else pa.repeat(pa.scalar(given, kind), length)


def _any(masks: Sequence[Any]) -> Any:
    together = masks[0]
    for mask in masks[1:]:
        together = pc.or_(together, mask)
    return together

"""Appends samples that come as Arrow batches to the table `samples`: parts written by any process, one commit for all.

The same object in this process and on Spark's executors: `commit([write(batches) for batches in …])`. What other
systems report is believed or refused by the rules of `batch.py`, and what is refused is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.batch import LARGEST, Doubts, Inventory, TopicNames, missing_notes
from mm2mgr.samples.schema import AHEAD_MS, HOUR_MS, PARTITIONED_BY, SAMPLES, Store, hour_of
from mm2mgr.samples.table_errors import writing
from mm2mgr.samples.tables import DataFile, Progress, StoredTable, arrow_schema

REQUIRED = ("cluster", "topic", "partition", "source", "time_ms")
"""The columns that a frame of samples must have."""
SKIPPED = "skipped"
"""The column that says why a row is no sample; null for samples."""
_SCHEMA = pa.schema([of for of in arrow_schema(SAMPLES) if of.name not in PARTITIONED_BY[SAMPLES]])
_ROWS_PER_FILE = 1_000_000
_MOST_NAMES = 10_000
_YEAR_3000_MS = 32_503_680_000_000
Flags = npt.NDArray[np.bool_]


@dataclass
class Tally:
    """What was made of the rows of a frame; `measured` has a bit for each partition of a topic that has a sample."""

    samples: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    doubts: Doubts = field(default_factory=Doubts)
    untimely: int = 0
    unknown: set[str] = field(default_factory=set)
    measured: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the counts of another part."""
        self.samples += other.samples
        self.untimely += other.untimely
        self.skipped.update(other.skipped)
        self.doubts.update(other.doubts)
        self.unknown |= other.unknown
        for topic, partitions in other.measured.items():
            self.measured[topic] = self.measured.get(topic, 0) | partitions


@dataclass(frozen=True)
class Written:
    """The files that one part of the rows became, in no commit yet, and what was made of the rows."""

    files: list[DataFile]
    tally: Tally


@dataclass(frozen=True)
class Expected:
    """What samples of one cluster are believed: its topics by name as (partitions, topic id), None for those that are
    not sampled, and the times that its clocks can have shown, in ms."""

    topics: Mapping[str, tuple[int, str | None] | None] = field(repr=False)
    since_ms: int
    until_ms: int

    @classmethod
    def from_inventory(cls, inventory: Inventory, since_ms: int, until_ms: int) -> Expected:
        """Expect what is to be sampled of a cluster, from a moment on until shortly after another."""
        chosen = inventory.topics_to_sample()
        topics = {
            name: (info.partitions, info.topic_id) if name in chosen else None
            for name, info in inventory.topics.items()
        }
        return cls(topics, since_ms, until_ms + AHEAD_MS)

    def notes(self, tally: Tally) -> list[str]:
        """Say which topics the cluster does not have, and which partitions to sample have no sample."""
        names = TopicNames(Inventory("", {}, lambda _: True), keeps_dots=True, unknown=tally.unknown)
        partitions = {topic: expected[0] for topic, expected in self.topics.items() if expected}
        measured = {topic: bits.bit_count() for topic, bits in tally.measured.items()}
        return [*names.notes(), *tally.doubts.notes(), *missing_notes(measured, partitions)]


@dataclass(frozen=True)
class SampleWriter:
    """Appends frames of samples to one store.

    A frame has the columns `REQUIRED` and any others of the table `samples` but `hour`, and may have `SKIPPED`;
    `ignored` are columns that are not stored. `expected` None believes every topic. `progress` is recorded by the
    commit, which happens once for it (`StoredTable.add`); `label` is what the commit is found by in the history.
    """

    store: Store
    expected: Expected | None = None
    progress: Progress = field(default_factory=dict)
    label: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def _table(self) -> StoredTable:
        return StoredTable(self.store, SAMPLES)

    def check(self, columns: Sequence[str]) -> None:
        """Mm2mgrError where a frame lacks a column that samples need, or has one that the table does not know."""
        lacking = [name for name in REQUIRED if name not in columns]
        allowed = {*_SCHEMA.names, SKIPPED, *self.ignored}
        unknown = [name for name in columns if name not in allowed]
        if lacking or unknown or not set(columns) & LARGEST.keys():
            wrong = "it has no column " + ", ".join(lacking) if lacking else "none of its columns is a measured value"
            wrong = f"the table has no column {', '.join(unknown)}" if unknown else wrong
            hint = f"required: {', '.join(REQUIRED)}, and at least one of {', '.join(LARGEST)}"
            raise Mm2mgrError(f"the frame is no frame of samples: {wrong}", hint=hint)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write one part of the rows to files that are in no commit yet, one per hour; the table must exist."""
        tally, files, hours = Tally(), list[DataFile](), dict[int, list[pa.Table]]()
        waiting = 0
        for batch in batches:
            if batch.num_rows:
                for hour, rows in _by_hour(self._plausible_rows(pa.Table.from_batches([batch]), tally)):
                    hours.setdefault(hour, []).append(rows)
                    waiting += len(rows)
                if waiting >= _ROWS_PER_FILE:
                    files += self._files(hours)
                    hours, waiting = {}, 0
        return Written([*files, *self._files(hours)], tally)

    def create(self) -> None:
        """Create the table where it is missing."""
        self._table.create()

    def commit(self, parts: Iterable[Written | None]) -> tuple[int, list[str]]:
        """Append all parts in one commit; return the number of samples, and sentences about what was refused.

        Where the table has the `progress` of this writer already, nothing changes: (0, no sentence). Conflict where
        another process is ahead.
        """
        files, tally = list[DataFile](), Tally()
        for part in parts:
            if part is not None:
                files += part.files
                tally.add(part.tally)
        if not files and not self.progress:
            return 0, self._notes(tally)
        note = {"label": self.label, "samples": tally.samples, "notes": self._notes(tally)}
        return (tally.samples, self._notes(tally)) if self._table.add(files, self.progress, note) else (0, [])

    def report(self) -> tuple[int, list[str]]:
        """Return what `commit` returned in another process, from the table's history; (0, no sentence) where it
        changed nothing."""
        for note in self._table.notes():
            if note.get("label") == self.label:
                samples, notes = note["samples"], note["notes"]
                return int(str(samples)), [str(sentence) for sentence in notes] if isinstance(notes, list) else []
        return 0, []

    def _notes(self, tally: Tally) -> list[str]:
        skipped = [f"{count} records skipped: {reason}" for reason, count in sorted(tally.skipped.items())]
        others = self.expected.notes(tally) if self.expected else tally.doubts.notes()
        lost = f"{tally.untimely} samples dropped: their time is in the future or long past"
        return [*skipped, *others, *([lost] if tally.untimely else [])]

    def _files(self, hours: Mapping[int, Sequence[pa.Table]]) -> list[DataFile]:
        with writing(self._table.uri):
            written = [self._table.write_file((hour_of(hour * HOUR_MS),), rows) for hour, rows in sorted(hours.items())]
        return [file for file in written if file is not None]

    def _plausible_rows(self, rows: pa.Table, tally: Tally) -> pa.Table:
        """Return the rows that are believed, with the columns of the table's files."""
        if SKIPPED in rows.column_names:
            reasons = rows[SKIPPED]
            for entry in pc.value_counts(reasons.drop_null()).to_pylist():
                tally.skipped[entry["values"]] += entry["counts"]
            rows = rows.filter(reasons.is_null())
        rows = rows.filter(pa.array(self._in_sampled_partitions(rows, tally)))
        values, any_value = _plausible_values(rows, tally)
        time_ms = rows["time_ms"].to_numpy()
        since, until = (self.expected.since_ms, self.expected.until_ms) if self.expected else (1, _YEAR_3000_MS)
        timely = (since <= time_ms) & (time_ms <= until)
        tally.untimely += int((any_value & ~timely).sum())
        stored = any_value & timely
        columns = {name: values.get(name) for name in LARGEST}
        for name in ("topic_id", "resolution_ms", *REQUIRED):
            columns[name] = rows[name] if name in rows.column_names else None
        if self.expected:
            ids = {topic: entry[1] for topic, entry in self.expected.topics.items() if entry}
            columns["topic_id"] = pa.array([ids.get(topic) for topic in rows["topic"].to_pylist()], pa.string())
        if columns["resolution_ms"] is None:
            columns["resolution_ms"] = pa.repeat(pa.scalar(0, pa.int32()), len(rows))
        arrays = [
            pa.nulls(len(rows), of.type) if (column := columns[of.name]) is None else column.cast(of.type)
            for of in _SCHEMA
        ]
        table = pa.table(arrays, schema=_SCHEMA).filter(pa.array(stored))
        tally.samples += len(table)
        if self.expected:
            _mark_measured(table, tally)
        return table

    def _in_sampled_partitions(self, rows: pa.Table, tally: Tally) -> Flags:
        chosen = np.ones(len(rows), np.bool_)
        nulls = [rows[name].is_null().to_numpy() for name in REQUIRED]
        for flags in nulls:
            tally.skipped["without a value that samples need"] += int((chosen & flags).sum())
            chosen &= ~flags
        partitions = rows["partition"].fill_null(-1).to_numpy()
        if self.expected is None:
            impossible = chosen & ((partitions < 0) | (partitions >= 1_000_000))
        else:
            topics = rows["topic"].combine_chunks().dictionary_encode()
            names = topics.dictionary.to_pylist()
            entries = [self.expected.topics.get(name) for name in names]
            lost = [name for name in names if name not in self.expected.topics and not name.startswith("__")]
            tally.unknown.update(lost[: max(0, _MOST_NAMES - len(tally.unknown))])
            codes = topics.indices.fill_null(0).to_numpy(zero_copy_only=False)
            counts = np.array([entry[0] if entry else 0 for entry in entries] or [0])[codes]
            chosen &= np.array([entry is not None for entry in entries] or [False])[codes]
            impossible = chosen & ((partitions < 0) | (partitions >= counts))
        tally.doubts["of a partition that its topic does not have"] += int(impossible.sum())
        tally.doubts, tally.skipped = Doubts(+tally.doubts), +tally.skipped
        return np.asarray(chosen & ~impossible)


def _plausible_values(rows: pa.Table, tally: Tally) -> tuple[dict[str, pa.Array], Flags]:
    """Return the measured values that are believed by column, and which rows have one at all."""
    values, any_value = dict[str, pa.Array](), np.zeros(len(rows), np.bool_)
    for name, largest in LARGEST.items():
        if name not in rows.column_names:
            continue
        present = rows[name].is_valid().to_numpy()
        numbers = rows[name].cast(pa.float64()).to_numpy()
        with np.errstate(invalid="ignore"):
            reasons = {
                "not a number": np.isnan(numbers),
                "negative": numbers < 0,
                f"above {largest:.0e}": numbers > largest,
            }
        bad = np.zeros(len(rows), np.bool_)
        for reason, flags in reasons.items():
            if count := int((present & flags).sum()):
                tally.doubts[reason] += count
            bad |= flags
        believed = present & ~bad
        any_value |= believed
        target = _SCHEMA.field(name).type
        whole = numbers if target == pa.float64() else np.where(believed, numbers, 0).astype(np.int64)
        values[name] = pa.array(whole, target, mask=~believed)
    return values, any_value


def _by_hour(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    hours: npt.NDArray[Any] = rows["time_ms"].to_numpy() // HOUR_MS
    for hour in np.unique(hours).tolist():
        yield hour, rows.filter(pa.array(hours == hour))


def _mark_measured(rows: pa.Table, tally: Tally) -> None:
    places = rows.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    for topic, partition in zip(places["topic"].to_pylist(), places["partition"].to_pylist(), strict=True):
        tally.measured[topic] = tally.measured.get(topic, 0) | 1 << partition

"""Writes roll-ups to the table `throughput`: tasks write files that are in no commit, the driver commits each period.

A commit takes the old files of the period out and puts the new ones in, so that readers never see an hour absent or
twice; a job that dies leaves each hour either unchanged or complete. Two jobs at once do the same work and change
nothing twice. The same object in this process and on Spark (`spark_source.py`).
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import Store, is_remote
from mm2mgr.samples.tables import Conflict, DataFile, MissingFile, StoredTable, by_period
from mm2mgr.throughput.rollup import is_hour, throughput_table, unreachable, write_rows
from mm2mgr.throughput.rollup_reader import PERIOD_REPORT, PeriodReport

_TRIES = 5
_DAY_LENGTH = len("2026-11-21")


@dataclass
class Report:
    """What a run did: the hours and days made, samples read for them, and why files were left out."""

    made: list[str] = field(default_factory=list)
    samples: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Add what another run did."""
        self.made += other.made
        self.samples += other.samples
        self.unreadable |= other.unreadable


@dataclass
class WrittenFiles:
    """What a task wrote: for each period, what it was made from, its files, and which shares of how many these are; for
    a day, the files it is made of."""

    made_from: dict[str, str] = field(default_factory=dict)
    shares: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    of_days: dict[str, list[str]] = field(default_factory=dict)
    samples: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


class ThroughputWriter:
    """Replaces the periods of a frame of roll-ups in the table; it holds nothing but the store."""

    def __init__(self, store: Store) -> None:
        self.store: Store = store if is_remote(store) else os.path.abspath(store)

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
        """Write a file for each period and share of the topics. Mm2mgrError where rows of one are missing, and where
        the table cannot be reached from here."""
        table, written = throughput_table(self.store), WrittenFiles()
        for rows, report in _periods(batches):
            last = rows.slice(len(rows) - 1).to_pylist()[0]
            name, made_from = last["period"], last["made_from"]
            written.made_from[name] = made_from
            written.shares.setdefault(name, []).append((report.share[0], report.share[1]))
            written.unreadable |= report.left_out
            if not is_hour(name):
                written.of_days[name] = report.files
            if not report.rows:
                continue
            if is_hour(name):
                written.samples += pc.sum(rows["samples"]).as_py()
            try:
                written.files += filter(None, [write_rows(table, (name, made_from), rows)])
            except (OSError, MissingFile) as error:
                raise unreachable(self.store, error) from error
        return written

    def commit(self, messages: Sequence[WrittenFiles]) -> Report:
        """Put the periods into the table, each in a commit of its own; return what was made. Mm2mgrError where a share
        of one is missing or came twice."""
        table, report = throughput_table(self.store), Report()
        made_from, of_days = dict[str, str](), dict[str, list[str]]()
        shares = defaultdict[str, list[tuple[int, int]]](list)
        for message in messages:
            report.samples += message.samples
            report.unreadable |= message.unreadable
            made_from |= message.made_from
            of_days |= message.of_days
            for name, numbers in message.shares.items():
                shares[name] += numbers
        for numbers in shares.values():
            of = numbers[0][1]
            if sorted(numbers) != [(number, of) for number in range(of)]:
                raise _incomplete()
        files = by_period(file for message in messages for file in message.files)
        _require(table, [file for of_period in files.values() for file in of_period])
        for name in sorted(made_from):
            new = files.get(name, [])
            if not new:  # nothing that can be believed: an empty file keeps in mind from what
                empty = write_rows(table, (name, made_from[name]), table.file_schema.empty_table(), keep_empty=True)
                new = [empty] if empty else []
            if _commit_period(table, name, new, of_days.get(name, ())):
                report.made.append(name)
        return report

    def abort(self, messages: Sequence[WrittenFiles | None]) -> None:
        """Do nothing: files without a commit are deleted with those that no reader needs."""


def _periods(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, PeriodReport]]:
    """Cut batches after each row with a report; Mm2mgrError where a report has not as many rows as it counts."""
    rows: list[pa.RecordBatch] = []
    for batch in batches:
        start, reports = 0, batch.column(batch.schema.get_field_index(PERIOD_REPORT))
        for end in (np.flatnonzero(reports.is_valid()) + 1).tolist():
            rows.append(batch.slice(start, end - start))
            whole, report = pa.Table.from_batches(rows), PeriodReport(**json.loads(reports[end - 1].as_py()))
            periods = whole["period"].combine_chunks()
            if len(whole) != max(1, report.rows) or pc.any(pc.not_equal(periods, periods[-1])).as_py():
                raise _incomplete()
            yield whole, report
            rows, start = [], end
        if start < len(batch):
            rows.append(batch.slice(start))
    if rows:
        raise _incomplete()


def _incomplete() -> Mm2mgrError:
    return Mm2mgrError(
        "mm2mgr.throughput takes the frame of mm2mgr.rollups as it is, and rows of it are missing, came twice or were"
        " moved to other tasks: nothing was changed"
    )


def _commit_period(table: StoredTable, name: str, new: Sequence[DataFile], of_day: Iterable[str]) -> bool:
    """Replace the files of a period; with an hour, its day goes. False where the hours of a day are others than were
    merged."""
    for left in reversed(range(_TRIES)):
        state = table.snapshot()
        roll_ups = by_period(state.files)
        if not set(of_day) <= {file.path for file in state.files}:
            return False
        old = [*roll_ups.get(name, ()), *roll_ups.get(name[:_DAY_LENGTH], ())]
        try:
            table.replace(state, list(dict.fromkeys(old)), new)
            break
        except Conflict:
            if not left:
                raise
    return True


def _require(table: StoredTable, files: Sequence[DataFile]) -> None:
    for file in files:
        if table.filesystem.get_file_info(file.path).size != file.size:
            raise Mm2mgrError(
                f"a task wrote {table.uri}/{file.path}, which the driver does not see; nothing was changed",
                hint="use a folder that every machine mounts, or a URI that all of them reach; or use --no-spark",
            )

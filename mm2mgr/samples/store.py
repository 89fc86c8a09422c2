"""The sample store: what samplers append to and roll-ups are made from, and beside it the history of tasks.

A round is one commit, so that a crash, a full disk or a damaged file never harms other samples. Several samplers may
append at once; a repeated row counts once.
"""

from __future__ import annotations

import warnings
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from functools import reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.samples.batch import Batch, Real, Whole
from mm2mgr.samples.lag_history import LagHistoryStore
from mm2mgr.samples.schema import (
    AUDITS,
    FAILOVER_CHECKS,
    FAILOVER_LOOKS,
    FAILOVER_REHEARSALS,
    HOUR_MS,
    LAG,
    LOSSES,
    SAMPLES,
    STORED_SIZES,
    TASK_OFFSETS,
    AuditRow,
    FailoverCheckRow,
    FailoverRehearsalRow,
    KeptRow,
    LossRow,
    SharedLag,
    Store,
    StoredSizeRow,
    day_of,
    hour_end_ms,
    hour_of,
    hour_start_ms,
    kept_since_ms,
)
from mm2mgr.samples.table_errors import writing
from mm2mgr.samples.tables import (
    Conflict,
    DataFile,
    Share,
    StoredTable,
    by_period,
    codes_of,
    missing_table_error,
    read_share,
    shares_of,
)

Value = TypeVar("Value")
_ROWS_AT_A_TIME = 1_000_000
_FOR_EVER_MS = 2**62
_TASKS_PER_CONNECTOR = 4  # kept of an hour: those that lagged longest; the fastest would say more than a task can carry
_ORDER = ("cluster", "topic", "partition", "topic_id", "time_ms", "source")
_WHOLE = ("partition", "time_ms", "resolution_ms", "end_offset", "start_offset", "log_bytes")
# Sorted whole numbers cost almost nothing as differences.
COMPACTED: Mapping[str, object] = {
    "use_dictionary": ["cluster", "topic", "topic_id", "source"],
    "column_encoding": dict.fromkeys(_WHOLE, "DELTA_BINARY_PACKED"),
}
"""How Parquet files of sorted samples are encoded."""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


class SampleStore:
    """The samples of one store. Hours are UTC. `warn` receives a sentence for every damaged file that was left out."""

    def __init__(self, store: Store, warn: Callable[[str], None] = _warn) -> None:
        self.store = store
        self.table = StoredTable(store, SAMPLES, warn)
        self._claimed = False

    def append(self, *batches: Batch) -> int:
        """Add batches in one commit; on return every reader sees them. Return the number of samples that were kept."""
        if not self._claimed:
            self.table.create()
            self._claimed = True
        tables = [_table(batch, self.table.schema) for batch in sorted(batches, key=lambda batch: batch.cluster)]
        row_count = sum(map(len, tables))
        if row_count:
            self.table.append(pa.concat_tables(tables))
        elif not self.table.exists():
            raise missing_table_error(self.table.uri)
        return row_count

    def hours(self) -> list[str]:
        """Return the hours that have samples, oldest first."""
        return list(by_period(self.table.files()))

    def loose_hours(self) -> list[str]:
        """Return the hours with more files than an hour that is over needs, oldest first."""
        return [hour for hour, files in by_period(self.table.files()).items() if len(files) > 1]

    def newest_of(self, alias: str, source_prefix: str, floor_ms: int) -> int | None:
        """Return the time of the newest sample of one cluster from one kind of source; None when none is after
        `floor_ms`."""
        hours = by_period(self.table.files())
        match = pc.starts_with if source_prefix.endswith(":") else pc.equal
        for hour in sorted((hour for hour in hours if hour_end_ms(hour) > floor_ms), reverse=True):
            files = [file for file in hours[hour] if _may_name(file, alias, source_prefix)]
            newest = 0
            for file in files:
                rows = self.table.read_or_warn(file, ("cluster", "source", "time_ms"))
                if rows is None:
                    continue
                named = match(rows["source"].cast(pa.string()), source_prefix)
                mine = pc.and_(named, pc.equal(rows["cluster"].cast(pa.string()), alias))
                newest = max(newest, pc.max(rows["time_ms"].filter(mine)).as_py() or 0)
            if newest:
                return newest
        return None

    def compact(self, hour: str) -> int:
        """Rewrite the files of an hour as few, sorted by partition and time, in one commit; return how many were
        replaced.

        Samples that arrive meanwhile stay beside them. What another process rewrites at the same time is left to it. A
        damaged file stays where it is.
        """
        # Delta's own `optimize` was tried (deltalake 1.6, an hour of 120 polls of 100 000 partitions, 12 million rows).
        # `compact` takes 2.0 CPU s instead of 14.0, but leaves the polls as they lie: the roll-up of the hour, which
        # skips what is sorted by share, then takes 10.9 CPU s instead of 1.4 and 1.4 GB instead of 0.3, twice per
        # hour, and the file is 16 % larger. `z_order` sorts too little: 10.5 CPU s and 2.5 GB, the roll-up 3.6. Either
        # fails as a whole on one damaged file. `delete` costs what `_expire` does (0.02 CPU s), and roll-ups need
        # `replace` in any case: their files come from several processes, in one commit.
        state = self.table.snapshot()
        old = [file for file in state.files if file.values[0] == hour]
        names = self.table.file_schema.names
        if len(old) > 1:
            old = [file for file in old if self.table.read_or_warn(file, names) is not None]
        if len(old) < 2:
            return 0
        with writing(self.table.uri):
            shares = shares_of(self.table, old, _ROWS_AT_A_TIME)
            new = self.table.write_file((hour,), (self._share(old, share) for share in shares), encoding=COMPACTED)
        if new is None:
            return 0
        try:
            self.table.replace(state, old, [new], same_rows=True)
        except Conflict:  # vacuum will delete the new file
            return 0
        return len(old)

    def expire(self, before_ms: int) -> list[str]:
        """Remove the hours that ended before a moment; return them."""
        return _expire(self.table, before_ms)

    def vacuum(self) -> None:
        """Delete the files that were replaced hours ago."""
        if self.table.exists():
            self.table.vacuum()

    def _share(self, files: Sequence[DataFile], share: Share) -> pa.Table:
        rows, _ = read_share(self.table, files, self.table.file_schema.names, share)
        return _sort_samples(rows.unify_dictionaries().combine_chunks()).cast(self.table.file_schema)


# --- the history of tasks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskRow:
    """What one lagging task carried in the `span_ms` before `time_ms` (0: only the start of such a span).

    `connect` and `connector` are names, `source` and `target` aliases; `settings` differs between configs that carry
    differently. `lag_records` is its lag at least; its commit was made up to `uncertain_ms` before.
    """

    connect: str
    connector: str
    source: str
    target: str
    settings: str
    task: int
    time_ms: int
    span_ms: int
    bytes_per_second: float
    lag_records: int
    uncertain_ms: int


_COLUMNS = [field.name for field in fields(TaskRow)]


class TaskStore:
    """What lagging tasks of connectors carried; it judges nothing. `warn` receives a sentence for every damaged file
    that was left out."""

    def __init__(self, store: Store, warn: Callable[[str], None]) -> None:
        self._table, self._samples = StoredTable(store, TASK_OFFSETS, warn), StoredTable(store, SAMPLES)

    def append(self, rows: Sequence[TaskRow]) -> None:
        """Add the rows of one snapshot of all connectors in one commit."""
        if rows:
            self._table.create()
            self._table.append(_arrow(rows, self._table.schema, hour=[hour_of(row.time_ms) for row in rows]))

    def read(self, since_ms: int = 0, until_ms: int = _FOR_EVER_MS) -> list[TaskRow]:
        """Return the rows of [since, until), each once, by connector, task and time."""
        files = [
            file
            for file in self._table.files()
            if hour_end_ms(file.values[0]) > since_ms and hour_start_ms(file.values[0]) < until_ms
        ]
        rows = {row for file in files for row in self._rows(file) or () if since_ms <= row.time_ms < until_ms}
        return sorted(rows, key=lambda row: (row.connect, row.connector, row.task, row.time_ms))

    def tidy(self, now_ms: int, keep_seconds: float | None = None) -> None:
        """Remove what ended more than `keep_seconds` ago by `kept_since_ms`, and make one file of each hour that is
        over.

        Of such an hour, the tasks that lagged longest stay. What another sampler tidies at the same time is left to it.
        """
        files = self._table.files()
        if keep_seconds is not None:
            sampled = {*by_period(files), *by_period(self._samples.files())}
            _expire(self._table, kept_since_ms(list(sampled), now_ms, keep_seconds))
        state = self._table.snapshot()
        old, new = list[DataFile](), list[DataFile]()
        for hour, several in by_period(state.files).items():
            if hour_end_ms(hour) <= now_ms and len(several) > 1:
                read = {file: rows for file in several if (rows := self._rows(file)) is not None}
                longest = _longest({row for rows in read.values() for row in rows})
                if len(read) > 1:
                    with writing(self._table.uri):
                        file = self._table.write_file((hour,), [_arrow(longest, self._table.file_schema)])
                    old += read
                    new += [file] if file else []
        with suppress(Conflict):
            self._table.replace(state, old, new)
        if files:
            self._table.vacuum()

    def _rows(self, file: DataFile) -> list[TaskRow] | None:
        table = self._table.read_or_warn(file, _COLUMNS)
        if table is None:
            return None
        columns = [_share_equal_values(table[name].to_pylist()) for name in _COLUMNS]
        return [TaskRow(*row) for row in zip(*columns, strict=True)]


def _arrow(
    rows: Iterable[TaskRow | LossRow | SharedLag | AuditRow | FailoverCheckRow | FailoverRehearsalRow | StoredSizeRow],
    schema: pa.Schema,
    **others: Sequence[str],
) -> pa.Table:
    names = [name for name in schema.names if name not in others]
    values = [astuple(row) for row in rows]
    columns = {name: [row[at] for row in values] for at, name in enumerate(names)} | others
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _longest(rows: Iterable[TaskRow]) -> list[TaskRow]:
    by_task: defaultdict[tuple[str, str, str], defaultdict[int, list[TaskRow]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row.time_ms):
        by_task[row.connect, row.connector, row.settings][row.task].append(row)
    longest = [sorted(tasks.values(), key=_lag_rank, reverse=True)[:_TASKS_PER_CONNECTOR] for tasks in by_task.values()]
    return [row for tasks in longest for task in tasks for row in task]


def _lag_rank(rows: Sequence[TaskRow]) -> tuple[int, int]:
    return sum(row.span_ms for row in rows), -rows[0].task


def _share_equal_values(values: list[Value]) -> list[Value]:
    """Return a column with one object for all its equal values: a month of a connector that always lags is 170 000
    rows."""
    first: dict[Value, Value] = {}
    return [first.setdefault(value, value) for value in values]


# --- losses -----------------------------------------------------------------------------------------------------------


class LossStore:
    """The rows of `losses` of one owner, in no order and as often as they were written. `warn` receives a sentence for
    every damaged file that was left out."""

    def __init__(self, store: Store, owner: str, warn: Callable[[str], None] = _warn) -> None:
        self._table, self._owner = StoredTable(store, LOSSES, warn), owner

    def append(self, rows: Sequence[LossRow]) -> None:
        """Add rows in one commit; the table is created with the first ones."""
        if rows:
            self._table.create()
            self._table.append(_arrow(rows, self._table.schema, owner=[self._owner] * len(rows)))

    def read(self) -> list[LossRow]:
        """Return all rows; none where there is no table."""
        names = self._table.file_schema.names
        files = (file for file in self._table.files() if file.values[0] == self._owner)
        tables = (self._table.read_or_warn(file, names) for file in files)
        columns = ([table[name].to_pylist() for name in names] for table in tables if table is not None)
        return [LossRow(*row) for column_block in columns for row in zip(*column_block, strict=True)]


# --- lag --------------------------------------------------------------------------------------------------------------

_DAY_MS = 24 * HOUR_MS
_LATEST_MS = 6 * HOUR_MS  # so long a store may be away without a gap in its history


class LagStore:
    """What processes of one owner saw of the lag of its flows in the last hour or two. `warn` as for `LossStore`."""

    def __init__(self, store: Store, owner: str, warn: Callable[[str], None] = _warn) -> None:
        self._table, self._owner = StoredTable(store, LAG, warn), owner

    def append(self, rows: Sequence[SharedLag], now_ms: int) -> None:
        """Add rows in one commit, and move the hours that ended more than one ago into `lag_history`; the table is
        created with the first ones.

        Where they cannot be moved, they stay for a day.
        """
        if not rows:
            return
        self._table.create()
        hours, owners = [hour_of(now_ms)] * len(rows), [self._owner] * len(rows)
        self._table.append(_arrow(rows, self._table.schema, hour=hours, owner=owners))
        before_ms = now_ms - HOUR_MS
        try:
            self._keep(before_ms, now_ms)
        except Exception:
            before_ms = now_ms - _DAY_MS
            raise
        finally:
            if _expire(self._table, before_ms):
                self._table.vacuum()

    def _keep(self, before_ms: int, now_ms: int) -> None:
        """Add the looks of hours that ended before a moment to the history; those that were made long before they were
        written were there before."""
        looks = list[pa.Table]()
        for file in self._table.files():
            if hour_end_ms(file.values[0]) <= before_ms:
                rows = self._table.read_or_warn(file, [field.name for field in self._table.file_schema])
                if rows is not None:
                    looks.append(
                        rows.filter(pc.greater_equal(rows["time_ms"], hour_start_ms(file.values[0]) - _LATEST_MS))
                    )
        if looks:
            LagHistoryStore(self._table.store).append(looks, now_ms)

    def read(self, now_ms: int) -> list[SharedLag]:
        """Return the rows of this hour and of the one before, each once, in no order; none where there is no table."""
        names = [field.name for field in fields(SharedLag)]
        files = (file for file in self._table.files() if hour_end_ms(file.values[0]) > now_ms - HOUR_MS)
        tables = (self._table.read_or_warn(file, ["owner", *names]) for file in files)
        mine = [table.filter(pc.equal(table["owner"], self._owner)) for table in tables if table is not None]
        columns = ([table[name].to_pylist() for name in names] for table in mine)
        return list({SharedLag(*row) for column_block in columns for row in zip(*column_block, strict=True)})


# --- audits -----------------------------------------------------------------------------------------------------------

_KEPT_DAYS = 90


class AuditStore:
    """What audits of one owner's flows compared, a row per partition. `warn` as for `LossStore`."""

    def __init__(self, store: Store, owner: str, warn: Callable[[str], None] = _warn) -> None:
        self._table, self._owner = StoredTable(store, AUDITS, warn), owner

    def append(self, rows: Sequence[AuditRow], now_ms: int) -> None:
        """Add the rows of an audit in one commit; the table is created with the first ones.

        Days that ended more than 90 days ago are removed, and those that are over become one file.
        """
        if not rows:
            return
        self._table.create()
        days, owners = [day_of(row.time_ms) for row in rows], [self._owner] * len(rows)
        self._table.append(_arrow(rows, self._table.schema, day=days, owner=owners))
        _tidy_days(self._table, now_ms)

    def read(self, since_ms: int = 0) -> list[AuditRow]:
        """Return the rows of audits that began since then, each once, oldest first; none where there is no table."""
        names = [field.name for field in fields(AuditRow)]
        files = (file for file in self._table.files() if file.values[0] >= day_of(since_ms))
        tables = (self._table.read_or_warn(file, ["owner", *names]) for file in files)
        mine = [table.filter(pc.equal(table["owner"], self._owner)) for table in tables if table is not None]
        columns = ([table[name].to_pylist() for name in names] for table in mine)
        rows = {AuditRow(*row) for column_block in columns for row in zip(*column_block, strict=True)}
        recent = (row for row in rows if row.time_ms >= since_ms)
        return sorted(recent, key=lambda row: (row.time_ms, row.flow, row.topic, row.partition, row.source_first))


# --- failover ---------------------------------------------------------------------------------------------------------

_KEEP_TRIES = 5
_CHECK_FILES = 20  # of today, which every look at the status reads
Join = Callable[[Sequence[Sequence[KeptRow]]], Iterable[KeptRow]]
"""Returns the rows to keep instead of those of several files."""


class LookStore:
    """What the last looks at one pair of clusters left of its source: one file, replaced as a whole.

    `warn` receives a sentence for every damaged file that was left out.
    """

    def __init__(self, store: Store, owner: str, pair: tuple[str, str], warn: Callable[[str], None] = _warn) -> None:
        self._table, self._values = StoredTable(store, FAILOVER_LOOKS, warn), (owner, *pair)

    def keep(self, join: Join, *, is_whole: bool) -> None:
        """Put what `join` makes of the rows that are there into their place, in one commit; the table is created with
        the first ones.

        A file that cannot be read stays, unless what is kept is whole without it. Where another process keeps a look at
        the same time, both are joined; Conflict where that fails again and again.
        """
        self._table.create()
        for left in reversed(range(_KEEP_TRIES)):
            state = self._table.snapshot()
            old = self._files(state.files)
            read = {file: rows for file in old if (rows := self._rows(file)) is not None}
            with writing(self._table.uri):
                new = self._table.write_file(self._values, [self._arrow(join(list(read.values())))])
            try:
                self._table.replace(state, old if is_whole else list(read), [new] if new else [])
                break
            except Conflict:  # vacuum will delete the new file
                if not left:
                    raise
        self._table.vacuum()

    def read(self) -> list[list[KeptRow]]:
        """Return the rows of each file; none where nothing was kept."""
        return [rows for file in self._files(self._table.files()) if (rows := self._rows(file)) is not None]

    def _files(self, files: Iterable[DataFile]) -> list[DataFile]:
        return [file for file in files if file.values == self._values]

    def _rows(self, file: DataFile) -> list[KeptRow] | None:
        table = self._table.read_or_warn(file, KeptRow._fields)
        if table is None:
            return None
        columns = [_share_equal_values(table[name].to_pylist()) for name in KeptRow._fields]
        return [KeptRow(*row) for row in zip(*columns, strict=True)]

    def _arrow(self, rows: Iterable[KeptRow]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(KeptRow._fields)
        values = dict(zip(KeptRow._fields, columns, strict=True))
        schema = self._table.file_schema
        return pa.table([pa.array(values[field.name], field.type) for field in schema], schema=schema)


class CheckStore:
    """What checks of failover came to for the pairs of one owner, a row per check. `warn` as for `LossStore`."""

    def __init__(self, store: Store, owner: str, warn: Callable[[str], None] = _warn) -> None:
        self._table, self._owner = StoredTable(store, FAILOVER_CHECKS, warn), owner

    def append(self, rows: Sequence[FailoverCheckRow], now_ms: int) -> None:
        """Add rows in one commit, and remove old ones as `AuditStore` does; the table is created with the first."""
        if rows:
            self._table.create()
            days, owners = [day_of(row.time_ms) for row in rows], [self._owner] * len(rows)
            self._table.append(_arrow(rows, self._table.schema, day=days, owner=owners))
            _tidy_days(self._table, now_ms, _CHECK_FILES)

    def read(self, since_ms: int = 0) -> list[FailoverCheckRow]:
        """Return the rows of checks that began since then, each once, oldest first; none where there is no table."""
        names = [field.name for field in fields(FailoverCheckRow)]
        files = (file for file in self._table.files() if file.values[0] >= day_of(since_ms))
        tables = (self._table.read_or_warn(file, ["owner", *names]) for file in files)
        mine = [table.filter(pc.equal(table["owner"], self._owner)) for table in tables if table is not None]
        columns = ([table[name].to_pylist() for name in names] for table in mine)
        rows = {FailoverCheckRow(*row) for column_block in columns for row in zip(*column_block, strict=True)}
        return sorted(
            (row for row in rows if row.time_ms >= since_ms), key=lambda row: (row.time_ms, row.source, row.target)
        )


class RehearsalStore:
    """What rehearsals of failover came to for the pairs of one owner, a row each. `warn` as for `LossStore`."""

    def __init__(self, store: Store, owner: str, warn: Callable[[str], None] = _warn) -> None:
        self._table, self._owner = StoredTable(store, FAILOVER_REHEARSALS, warn), owner

    def append(self, rows: Sequence[FailoverRehearsalRow], now_ms: int) -> None:
        """Add rows in one commit, and remove old ones as `AuditStore` does; the table is created with the first."""
        if rows:
            self._table.create()
            days, owners = [day_of(row.time_ms) for row in rows], [self._owner] * len(rows)
            self._table.append(_arrow(rows, self._table.schema, day=days, owner=owners))
            _tidy_days(self._table, now_ms, _CHECK_FILES)

    def read(self, is_enough: Callable[[Sequence[FailoverRehearsalRow]], bool]) -> list[FailoverRehearsalRow]:
        """Return the rows, each once, oldest first, of the newest days until they are enough; none where there is no
        table."""
        names = [field.name for field in fields(FailoverRehearsalRow)]
        rows: set[FailoverRehearsalRow] = set()
        for _, files in sorted(by_period(self._table.files()).items(), reverse=True):
            tables = (self._table.read_or_warn(file, ["owner", *names]) for file in files)
            mine = [table.filter(pc.equal(table["owner"], self._owner)) for table in tables if table is not None]
            columns = ([table[name].to_pylist() for name in names] for table in mine)
            rows |= {FailoverRehearsalRow(*row) for column_block in columns for row in zip(*column_block, strict=True)}
            if is_enough(list(rows)):
                break
        return sorted(rows, key=lambda row: (row.time_ms, row.source, row.target))


# --- sizes of stored records ------------------------------------------------------------------------------------------

_KEPT_DAYS_OF_SIZES = 400  # as roll-ups of days


class StoredSizeStore:
    """What records take in the logs of topics, as looks at them measured it. `warn` as for `LossStore`."""

    def __init__(self, store: Store, warn: Callable[[str], None] = _warn) -> None:
        self._table = StoredTable(store, STORED_SIZES, warn)

    def append(self, rows: Sequence[StoredSizeRow], now_ms: int) -> None:
        """Add the rows of a look in one commit, and remove those of more than 400 days ago."""
        if rows:
            self._table.create()
            self._table.append(_arrow(rows, self._table.schema, day=[day_of(row.time_ms) for row in rows]))
            _tidy_days(self._table, now_ms, _CHECK_FILES, _KEPT_DAYS_OF_SIZES)

    def read(self, since_ms: int, until_ms: int) -> list[StoredSizeRow]:
        """Return the rows of [since, until), oldest first; those of the nearest day with any where these days have
        none, and none where there is no table."""
        names = [field.name for field in fields(StoredSizeRow)]
        days = by_period(self._table.files())
        inside = [day for day in days if day_of(since_ms) <= day <= day_of(until_ms - 1)]
        if not inside and days:
            before = [day for day in days if day < day_of(since_ms)]
            inside = [max(before)] if before else [min(days)]
        tables = (self._table.read_or_warn(file, names) for day in inside for file in days[day])
        columns = ([table[name].to_pylist() for name in names] for table in tables if table is not None)
        rows = {StoredSizeRow(*row) for column_block in columns for row in zip(*column_block, strict=True)}
        return sorted(rows, key=lambda row: (row.time_ms, row.cluster, row.topic))


# --- files ------------------------------------------------------------------------------------------------------------


def _expire(table: StoredTable, before_ms: int) -> list[str]:
    state = table.snapshot()
    old = [file for file in state.files if hour_end_ms(file.values[0]) <= before_ms]
    with suppress(Conflict):
        table.replace(state, old, [])
    return list(by_period(old))


def _tidy_days(table: StoredTable, now_ms: int, most_of_today: int | None = None, kept_days: int = _KEPT_DAYS) -> None:
    """Remove days that ended more than `kept_days` ago, and make one file of each day that is over, of today's too
    where these are more than `most_of_today`."""
    state, today = table.snapshot(), day_of(now_ms)
    oldest = day_of(max(0, now_ms - kept_days * _DAY_MS))
    old, new = [file for file in state.files if file.values[0] < oldest], list[DataFile]()
    for day, several in by_period(state.files).items():
        is_due = day < today or (most_of_today is not None and len(several) > most_of_today)
        if oldest <= day and is_due and len(several) > 1:
            names = table.file_schema.names
            read = {file: rows for file in several if (rows := table.read_or_warn(file, names)) is not None}
            if len(read) > 1:
                with writing(table.uri):
                    file = table.write_file((day,), [rows.cast(table.file_schema) for rows in read.values()])
                old += read
                new += [file] if file else []
    if old:
        with suppress(Conflict):
            table.replace(state, old, new)
        table.vacuum()


def _may_name(file: DataFile, alias: str, prefix: str) -> bool:
    clusters, sources = file.bounds.get("cluster", (alias, alias)), file.bounds.get("source", (prefix, prefix))
    return clusters[0] <= alias <= clusters[1] and sources[0][: len(prefix)] <= prefix <= sources[1][: len(prefix)]


# --- rows of samples --------------------------------------------------------------------------------------------------


def _table(batch: Batch, schema: pa.Schema) -> pa.Table:
    length = len(batch)
    values = {name: _column(column, schema.field(name).type) for name, column in batch.values().items()}
    has_value = [column.is_valid() for column in values.values() if column is not None]
    constants = {
        "hour": hour_of(batch.time_ms),
        "cluster": batch.cluster,
        "time_ms": batch.time_ms,
        "resolution_ms": batch.resolution_ms,
        "source": batch.source,
    }
    names = {
        "topic": pa.array(batch.topics, pa.string()),
        "partition": _column(batch.partitions, pa.int32()),
        "topic_id": pa.array(batch.topic_ids, pa.string()) if batch.topic_ids else None,
    }
    columns: dict[str, object] = {**values, **names, **constants}
    rows = [_fill_column(columns[field.name], field.type, length) for field in schema]
    table = pa.Table.from_arrays(rows, schema=schema)
    return table.filter(reduce(pc.or_, has_value)) if has_value else table.slice(0, 0)


def _column(values: Whole | Real | None, kind: pa.DataType) -> pa.Array | None:
    if values is None:
        return None
    if isinstance(values, array) and values.itemsize * 8 == kind.bit_width:
        column = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    else:
        column = pa.array(values, kind)
    if not pa.types.is_integer(kind):
        return column
    return pc.if_else(pc.less(column, pa.scalar(0, kind)), pa.scalar(None, kind), column)


def _fill_column(values: object, kind: pa.DataType, length: int) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.nulls(length, kind) if values is None else pa.repeat(pa.scalar(values, kind), length)


def _sort_samples(samples: pa.Table) -> pa.Table:
    """Sort samples by partition, time and source; of one moment's, the one read last (the larger offset) comes
    first."""
    if not len(samples):
        return samples
    keys = [_ranks(samples[name]) for name in _ORDER]
    ends = -samples["end_offset"].fill_null(-1).to_numpy().astype(np.int64)
    return samples.take(pa.array(np.lexsort([ends, *reversed(keys)])))


def _ranks(column: pa.ChunkedArray) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.to_numpy())
    names, codes = codes_of(column)
    ordered = {name: rank for rank, name in enumerate(sorted({name or "" for name in names}))}
    return np.array([ordered[name or ""] for name in names] or [0], np.int32)[codes]

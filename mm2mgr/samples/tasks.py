"""The history of tasks: what lagging tasks of connectors carried, as the `task_offsets` table of a store.

It judges nothing. A look is one commit; of an hour that is over, the tasks that lagged longest stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from typing import Any

import pyarrow as pa

from mm2mgr.samples.clock import kept_since_ms
from mm2mgr.samples.schema import SAMPLES, TASK_OFFSETS, Store, hour_end_ms, hour_of, hour_start_ms
from mm2mgr.samples.tables import Conflict, DataFile, StoredTable, UnreadableFile, writing

_FOR_EVER_MS = 2**62
_TASKS_PER_CONNECTOR = 4  # kept of an hour: those that lagged longest; the fastest would say more than a task can carry


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


_COLUMNS = [each.name for each in fields(TaskRow)]


class TaskStore:
    """The history of tasks in one store. `warn` receives a sentence for every damaged file that was left out."""

    def __init__(self, store: Store, warn: Callable[[str], None]) -> None:
        self._table, self._samples, self._warn = StoredTable(store, TASK_OFFSETS), StoredTable(store, SAMPLES), warn

    def append(self, rows: Sequence[TaskRow]) -> None:
        """Add the rows of one look in one commit."""
        if rows:
            self._table.create()
            hours = pa.array([hour_of(row.time_ms) for row in rows])
            self._table.append(_arrow(rows, self._table.file_schema).add_column(0, self._table.schema.field(0), hours))

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
        """Make one file of each hour that is over, and remove what ended more than `keep_seconds` ago by `kept_since_ms`."""
        by_hour: defaultdict[str, list[DataFile]] = defaultdict(list)
        for file in self._table.files():
            by_hour[file.values[0]].append(file)
        sampled = {*by_hour, *(file.values[0] for file in self._samples.files())}
        kept_since = None if keep_seconds is None else kept_since_ms(list(sampled), now_ms, keep_seconds)
        for hour, files in by_hour.items():
            with suppress(Conflict):  # another sampler is at it
                if kept_since is not None and hour_end_ms(hour) <= kept_since:
                    self._replace(files, None)
                elif hour_end_ms(hour) <= now_ms and len(files) > 1:
                    self._make_one(hour, files)
        if by_hour:
            self._table.vacuum()

    def _make_one(self, hour: str, files: Sequence[DataFile]) -> None:
        read = {file: rows for file in files if (rows := self._rows(file)) is not None}
        kept = _longest({row for rows in read.values() for row in rows})
        if len(read) > 1:
            with writing(self._table.uri):
                new = self._table.write_file((hour,), [_arrow(kept, self._table.file_schema)])
            self._replace(list(read), new)

    def _replace(self, old: Sequence[DataFile], new: DataFile | None) -> None:
        state = self._table.snapshot()
        if set(state.files).issuperset(old):  # else another sampler was faster
            self._table.replace(state, old, [new] if new else [])

    def _rows(self, file: DataFile) -> list[TaskRow] | None:
        try:
            table = self._table.read_file(file, _COLUMNS)
        except UnreadableFile as error:
            self._warn(f"{error.message}; left out")
            return None
        columns = [_shared(table[name].to_pylist()) for name in _COLUMNS]
        return [TaskRow(*row) for row in zip(*columns, strict=True)]


def _arrow(rows: Iterable[TaskRow], schema: Any) -> Any:
    columns = zip(*map(astuple, rows), strict=True)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)


def _longest(rows: Iterable[TaskRow]) -> list[TaskRow]:
    """Return the rows of the tasks that lagged longest, some for each connector and its settings."""
    by_task: defaultdict[tuple[str, str, str], defaultdict[int, list[TaskRow]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row.time_ms):
        by_task[row.connect, row.connector, row.settings][row.task].append(row)
    kept = [sorted(tasks.values(), key=_lagged, reverse=True)[:_TASKS_PER_CONNECTOR] for tasks in by_task.values()]
    return [row for tasks in kept for task in tasks for row in task]


def _lagged(rows: Sequence[TaskRow]) -> tuple[int, int]:
    return sum(row.span_ms for row in rows), -rows[0].task


def _shared(values: list[Any]) -> list[Any]:
    """Return a column with one object for all its equal values: a month of a connector that always lags is 170 000 rows."""
    first: dict[Any, Any] = {}
    return [first.setdefault(value, value) for value in values]

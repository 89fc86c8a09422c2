"""The history of tasks in a sample store: what lagging tasks of connectors carried, in `tasks/` beside the hours.

In go rows, out come the rows since a time; it knows Parquet and hours, and judges nothing. A file is written whole or not
at all, once a look, and those of an hour that is over become one.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.files import listed
from mm2mgr.samples.clock import kept_since_ms
from mm2mgr.samples.dictionary import alone
from mm2mgr.samples.files import UnreadableFile, put, read_columns, writing
from mm2mgr.samples.schema import hour_end_ms, hour_of
from mm2mgr.samples.store import SampleStore

_FOLDER = "tasks"
_WHOLE_HOUR = "hour"
_FOR_EVER_MS = 2**62
_TASKS_PER_CONNECTOR = 4  # kept of an hour: those that lagged longest; the fastest would say more than a task can carry
_HOUR_LENGTH = len("2026-11-21T10")
TASK_COLUMNS: Mapping[str, str] = {
    "connect": "string",
    "connector": "string",
    "source": "string",
    "target": "string",
    "settings": "string",
    "task": "int32",
    "time_ms": "int64",
    "span_ms": "int64",
    "bytes_per_second": "float64",
    "lag_records": "int64",
    "uncertain_ms": "int64",
}
_SCHEMA = pa.schema([pa.field(name, getattr(pa, kind)()) for name, kind in TASK_COLUMNS.items()])


@dataclass(frozen=True)
class TaskRow:
    """What one lagging task carried in the `span_ms` before `time_ms` (0: only the start of such a span).

    `connect` and `connector` are names, `source` and `target` aliases, `settings` tells configs apart that carry
    differently. `lag_records` is how far it was behind at least; its commit was made up to `uncertain_ms` before.
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


class TaskStore:
    """`tasks/<hour>-<time>-<random>.parquet` a look, `<hour>-hour-<random>.parquet` once the hour is over (UTC).

    `warn` is told of every damaged file that was left out.
    """

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        self._store = SampleStore(directory, warn)
        self._directory, self._folder, self._warn = directory, directory / _FOLDER, warn

    def append(self, rows: Sequence[TaskRow]) -> None:
        """Write the rows of one look; on return they survive a crash."""
        if rows:
            self._store.append()  # no samples, but the store's layout is claimed, or refused
            newest_ms = max(row.time_ms for row in rows)
            self._write(f"{hour_of(newest_ms)}-{newest_ms}", rows)

    def read(self, since_ms: int = 0, until_ms: int = _FOR_EVER_MS) -> list[TaskRow]:
        """Return the rows of [since, until), each once, by connector, task and time; Mm2mgrError for another layout."""
        self._store.check_layout()
        hour_ms = 3_600_000
        paths = [path for path in self._files() if since_ms < hour_end_ms(_hour(path)) < until_ms + hour_ms]
        rows = {row for path in paths for row in self._rows(path) if since_ms <= row.time_ms < until_ms}
        if not all(path.exists() for path in paths):  # a sampler has just made one file of their hour
            return self.read(since_ms, until_ms)
        return sorted(rows, key=lambda row: (row.connect, row.connector, row.task, row.time_ms))

    def tidy(self, now_ms: int, keep_seconds: float | None = None) -> None:
        """Make one file of each hour that is over, and remove what ended more than `keep_seconds` ago by `kept_since_ms`.

        A crash in between leaves rows twice, which readers count once.
        """
        if not self._folder.is_dir():
            return
        self._store.check_layout()
        with alone(self._directory, "tidying of the history of tasks", self._warn), writing(self._folder):
            by_hour: defaultdict[str, list[Path]] = defaultdict(list)
            for path in self._files():
                by_hour[_hour(path)].append(path)
            sampled = {*self._store.hours(), *by_hour}
            kept_since = None if keep_seconds is None else kept_since_ms(list(sampled), now_ms, keep_seconds)
            for hour, paths in by_hour.items():
                if kept_since is not None and hour_end_ms(hour) <= kept_since:
                    _remove(paths)
                elif hour_end_ms(hour) <= now_ms and any(not _is_whole(path) for path in paths):
                    self._make_one(hour, paths)

    def _make_one(self, hour: str, paths: Sequence[Path]) -> None:
        read = {path: rows for path in paths if (rows := self._rows(path))}
        if all(map(_is_whole, read)):
            return  # the others are damaged, and stay
        self._write(f"{hour}-{_WHOLE_HOUR}", _longest({row for rows in read.values() for row in rows}))
        _remove(read)

    def _write(self, name: str, rows: Iterable[TaskRow]) -> None:
        columns = zip(*map(astuple, rows), strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)]
        target = self._folder / f"{name}-{uuid.uuid4().hex[:8]}.parquet"
        with writing(target):
            put(target, lambda draft: pq.write_table(pa.table(arrays, schema=_SCHEMA), draft, compression="zstd"))

    def _rows(self, path: Path) -> list[TaskRow]:
        try:
            columns = {name: _shared(values) for name, values in read_columns(path, TASK_COLUMNS).to_pydict().items()}
        except UnreadableFile as error:
            if path.exists():
                self._warn(f"{error.message}; left out")
            return []
        rows = zip(*(columns[each.name] for each in fields(TaskRow)), strict=True)
        return [TaskRow(*row) for row in rows if None not in row]

    def _files(self) -> list[Path]:
        return [path for path in listed(self._folder, "*.parquet") if _is_named_by_hour(path)]


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


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _hour(path: Path) -> str:
    return path.name[:_HOUR_LENGTH]


def _is_whole(path: Path) -> bool:
    return path.name[_HOUR_LENGTH:].startswith(f"-{_WHOLE_HOUR}-")


def _is_named_by_hour(path: Path) -> bool:
    try:
        return path.name[0] != "." and hour_end_ms(_hour(path)) > 0
    except ValueError:
        return False

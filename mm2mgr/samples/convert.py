"""Reads a store in the format of earlier versions (a folder with a LAYOUT file) into the tables of a new one.

The old format: `dictionary/` numbers partitions, `hour=…/` holds samples by these numbers, `rollups/hour=…/` their roll-ups,
`tasks/` the history of tasks. Roll-ups are taken over where retention removed their samples; others are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed, special_kind
from mm2mgr.samples.schema import SAMPLES, TABLES, TASK_OFFSETS, THROUGHPUT, Store, hour_of
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import OLD_LAYOUT, StoredTable

_LAYOUT = "mm2mgr samples, layout 2"
_ROWS_AT_A_TIME = 2_000_000
_MADE_FROM = ".made-from.json"  # beside a roll-up that is whole


@dataclass(frozen=True)
class Converted:
    """How many samples, hours of roll-ups, and rows of the history of tasks are in the new store."""

    samples: int
    roll_ups: int
    task_rows: int


def convert(old: Path, new: Store, warn: Callable[[str], None], progress: Callable[[str], None]) -> Converted:
    """Copy an old store into new tables, hour by hour; the old one stays as it is. Mm2mgrError where NEW has tables already.

    `warn` receives a sentence for each damaged file that was left out, `progress` each hour.
    """
    layout = old / OLD_LAYOUT
    found = layout.read_text(encoding="utf-8", errors="replace").strip() if layout.is_file() else ""
    if found != _LAYOUT:
        raise Mm2mgrError(
            f"{old} is not a store that can be converted: {OLD_LAYOUT} says {found[:80]!r}, not {_LAYOUT!r}"
            if found
            else f"{old} is not a store of an earlier version: it has no {OLD_LAYOUT} file",
            hint="name the folder that earlier versions used with --store",
        )
    store, tables = SampleStore(new, warn), {name: StoredTable(new, name) for name in TABLES}
    if any(table.exists() for table in tables.values()):
        raise Mm2mgrError(f"{new} holds tables already", hint="name a folder or URI that is empty")
    names = _names(old)
    for table in tables.values():
        table.create()
    samples, hours = 0, set[str]()
    for folder in listed(old, "hour=*"):
        hour = folder.name.removeprefix("hour=")
        progress(hour)
        for rows in _pieces(folder, warn):
            named = _named(rows, names, tables[SAMPLES].schema, {"hour": hour})
            tables[SAMPLES].append(named)
            samples += len(named)
            hours.add(hour)
        store.compact(hour)
    roll_ups = _roll_ups(old, names, tables[THROUGHPUT], hours, warn)
    return Converted(samples, roll_ups, _tasks(old, tables[TASK_OFFSETS], warn))


def _roll_ups(old: Path, names: Any, table: StoredTable, with_samples: set[str], warn: Callable[[str], None]) -> int:
    made = 0
    for folder in listed(old / "rollups", "hour=*"):
        hour = folder.name.removeprefix("hour=")
        if hour in with_samples or not (folder / _MADE_FROM).is_file():
            continue
        parts = list(_pieces(folder, warn))
        for rows in parts:
            table.append(_named(rows, names, table.schema, {"period": hour, "made_from": "converted"}))
        made += bool(parts)
    return made


def _tasks(old: Path, table: StoredTable, warn: Callable[[str], None]) -> int:
    count = 0
    for rows in _pieces(old / "tasks", warn):
        hours = pa.array([hour_of(time_ms) for time_ms in rows["time_ms"].to_pylist()], pa.string())
        whole = rows.append_column("hour", hours).drop_null()
        table.append(_in_schema(whole, table.schema))
        count += len(whole)
    return count


def _names(old: Path) -> Any:
    """Return clusters, topics, partitions and topic ids by the number of the partition."""
    columns = ["partition_id", "cluster", "topic", "partition", "topic_id"]
    tables = [pq.read_table(path, columns=columns, partitioning=None) for path in _files(old / "dictionary")]
    if not tables:
        raise Mm2mgrError(f"{old} has no dictionary of partitions", hint="restore its files from a backup")
    return pa.concat_tables(tables).combine_chunks()


def _files(folder: Path) -> list[Path]:
    files = [path for path in listed(folder, "*.parquet") if path.name[0] != "."]
    for path in files:
        if kind := special_kind(path):
            raise Mm2mgrError(f"{path} is {kind}, not a file", hint="restore it from a backup, or move it away")
    return files


def _pieces(folder: Path, warn: Callable[[str], None]) -> Iterator[Any]:
    """Yield the rows of a folder's files, some at a time; damaged files are left out."""
    for path in _files(folder):
        try:
            with pq.ParquetFile(path) as file:
                pieces = [pa.Table.from_batches([each]) for each in file.iter_batches(_ROWS_AT_A_TIME)]
        except (OSError, pa.ArrowException, ValueError) as error:
            warn(f"{path} is not a readable Parquet file: {str(error).partition(chr(10))[0][:120]}; left out")
            continue
        yield from pieces


def _named(rows: Any, names: Any, schema: Any, constants: dict[str, str]) -> Any:
    places = pc.index_in(rows["partition_id"], value_set=names["partition_id"])
    rows, places = rows.filter(places.is_valid()), places.drop_null()
    for name in ("cluster", "topic", "partition", "topic_id"):
        rows = rows.append_column(name, names[name].take(places))
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(value, len(rows)))
    return _in_schema(rows, schema)


def _in_schema(rows: Any, schema: Any) -> Any:
    given = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in given else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)

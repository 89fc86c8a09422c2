"""Parquet files of the store: written whole or not at all, read whole or named as unreadable.

In go tables and paths; it knows columns and row groups, and nothing of hours or clusters.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import (
    DICTIONARY,
    DICTIONARY_COLUMNS,
    HOUR_PREFIX,
    IDS_PER_ROW_GROUP,
    LAYOUT_FILE,
    NEVER_NULL,
    SAMPLE_COLUMNS,
)

ABANDONED_SECONDS = 3_600.0


def _schema(columns: Mapping[str, str]) -> Any:
    return pa.schema([pa.field(name, getattr(pa, kind)(), name not in NEVER_NULL) for name, kind in columns.items()])


SAMPLE_SCHEMA = _schema(SAMPLE_COLUMNS)
DICTIONARY_SCHEMA = _schema(DICTIONARY_COLUMNS)
# Sorted integers cost almost nothing as differences; Spark reads them three times as fast as a dictionary.
_FORMAT = {
    "compression": "zstd",
    "use_dictionary": ["source"],
    "column_encoding": {name: "DELTA_BINARY_PACKED" for name, kind in SAMPLE_COLUMNS.items() if kind[:3] == "int"},
}


class UnreadableFile(Mm2mgrError):
    """One file of the store is damaged or of another kind; the others are right without it."""


def tables_to(target: Path, tables: Iterator[Any]) -> int:
    """Write sample tables, each sorted by id, as one file with a row group per range of ids; return the number of rows.

    Failures are the libraries' own; the caller names the place with `writing`, in words that stay the same each time.
    """
    rows = 0

    def write(draft: Path) -> None:
        nonlocal rows
        with pq.ParquetWriter(draft, SAMPLE_SCHEMA, **_FORMAT) as writer:
            for table in tables:
                for part in by_range(table, IDS_PER_ROW_GROUP):
                    writer.write_table(part, row_group_size=len(part))
                    rows += len(part)

    put(target, write)
    return rows


def by_range(table: Any, span: int) -> Iterator[Any]:
    """Cut a table that is sorted by partition_id where a multiple of `span` ids begins."""
    ranges = pc.divide(table["partition_id"], pa.scalar(span, pa.int32())).combine_chunks()
    start = 0
    for run in pc.run_end_encode(ranges).run_ends.to_pylist():
        yield table.slice(start, run - start)
        start = run


def put(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target under a hidden name, force it to disk, then give it its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(draft)
        _to_disk(draft)
        draft.replace(target)
        _to_disk(target.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn failures to write into a Mm2mgrError that names the place."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number else type(error).__name__
        hint = "check the directory's rights and space; what was written before stays readable"
        raise Mm2mgrError(f"samples cannot be written to {path}: {reason}", hint=hint) from error


def read_columns(path: Path, columns: Mapping[str, str], ids: range | None = None) -> Any:
    """Return a file's rows in the columns of this version, of all partitions or of a range of ids; UnreadableFile.

    A file of another version may lack columns that can be null and hold more than these.
    """
    with reading(path), pq.ParquetFile(path) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        if lost := [name for name in columns if name in NEVER_NULL and name not in names]:
            raise pa.ArrowInvalid(f"it has no column {lost[0]}")
        groups = [number for number in range(file.num_row_groups) if ids is None or _holds(file.metadata, number, ids)]
        table = _conform(file.read_row_groups(groups, columns=names), _schema(columns))
        return table if ids is None else table.filter(_within(table["partition_id"], ids.start, ids.stop))


def bounds(path: Path, column: str) -> tuple[int, int] | None:
    """Return the smallest and largest value of a column, from the footer where it tells; None for a file without rows."""
    with reading(path), pq.ParquetFile(path) as file:
        told = [_statistics(file.metadata, number, column) for number in range(file.num_row_groups)]
        known = [one for one in told if one is not None]
        if len(known) == len(told):
            return (min(low for low, _ in known), max(high for _, high in known)) if known else None
        values = pc.min_max(file.read(columns=[column])[column]).as_py()
        return None if values["min"] is None else (values["min"], values["max"])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn failures to read a file into UnreadableFile."""
    try:
        yield
    # pyarrow raises these for a footer or a page that makes no sense, depending on where the damage lies.
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UnreadableFile(
            f"{path} is not a readable sample file: {first[:120]}",
            hint="mm2mgr never writes half a file: check the disk, then move this file away",
        ) from error


def sweep(directory: Path) -> None:
    """Remove drafts that a killed process left behind an hour ago or earlier; younger ones may be in the making."""
    drafts = [
        path for name in (f"{HOUR_PREFIX}*", DICTIONARY, "tasks") for path in directory.glob(f"{name}/.*.parquet.*")
    ]
    for draft in (*drafts, *directory.glob(f".{LAYOUT_FILE}.*")):
        try:
            if time.time() - draft.stat().st_mtime > ABANDONED_SECONDS:
                draft.unlink()
        except OSError:
            continue  # another process was first, or may; a draft harms nobody


def _conform(table: Any, schema: Any) -> Any:
    given = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in given else pa.nulls(len(table), field.type)
        for field in schema
    ]
    empty = [
        field.name for field, column in zip(schema, columns, strict=True) if not field.nullable and column.null_count
    ]
    if empty:
        raise pa.ArrowInvalid(f"its column {empty[0]} has nulls")
    return pa.Table.from_arrays(columns, schema=schema)


def _holds(metadata: Any, number: int, ids: range) -> bool:
    told = _statistics(metadata, number, "partition_id")
    return told is None or (told[0] < ids.stop and told[1] >= ids.start)


def _statistics(metadata: Any, number: int, column: str) -> tuple[int, int] | None:
    group = metadata.row_group(number)
    for place in range(group.num_columns):
        if group.column(place).path_in_schema == column:
            found = group.column(place).statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    raise KeyError(f"it has no column {column}")


def _within(column: Any, low: int, high: int) -> Any:
    return pc.and_(pc.greater_equal(column, low), pc.less(column, high))


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

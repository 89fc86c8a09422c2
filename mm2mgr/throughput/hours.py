"""The hours of a store as files: what there is to roll up, what a roll-up was made from, and samples as arrays.

In goes a store's directory, out come paths, marks and Series; damaged sample files are named and left out.
Nothing here needs Spark: the same functions run in the driver, in executors and in tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.samples.schema import (
    DICTIONARY,
    HOUR_PREFIX,
    LAYOUT,
    LAYOUT_FILE,
    NEVER_NULL,
    ROLLUPS,
    SAMPLE_COLUMNS,
    hour_of,
    hour_start_ms,
)
from mm2mgr.throughput.proof import not_allowed
from mm2mgr.throughput.series import UNKNOWN, Series

IDS_PER_PART = 16_384  # some row groups of a compacted file; an hour of them at one sample a minute is a million rows
_COMPACTIONS = 3  # an hour is compacted once, and once more where late samples came
_COLUMNS = {
    "partition_id": (np.int32, 0),
    "source": (np.int32, 0),
    "time_ms": (np.int64, 0),
    "end_offset": (np.int64, UNKNOWN),
    "records_per_second": (np.float64, np.nan),
    "bytes_per_second": (np.float64, np.nan),
    "record_bytes": (np.float64, np.nan),
    "resolution_ms": (np.int32, 0),
}


def check_layout(store: Path) -> None:
    """Refuse a directory that another layout of mm2mgr wrote; a directory without samples passes."""
    marker = store / LAYOUT_FILE
    if marker.is_file() and (found := marker.read_text(encoding="utf-8", errors="replace").strip()) != LAYOUT:
        raise Mm2mgrError(
            f"{store} holds “{found[:80]}”, this mm2mgr reads “{LAYOUT}”",
            hint="sample into another directory, or use the mm2mgr version that wrote this one",
        )


def sample_files(store: Path) -> dict[str, list[Path]]:
    """Return the complete sample files of every hour, oldest hour first."""
    hours: dict[str, list[Path]] = {}
    for folder in listed(store, f"{HOUR_PREFIX}*"):
        hour = folder.name.removeprefix(HOUR_PREFIX)
        if _is_hour(hour) and (files := sample_files_of(store, hour)):
            hours[hour] = files
    return hours


def sample_files_of(store: Path, hour: str) -> list[Path]:
    """Return the complete sample files of one hour; none where the hour is gone, NotSeenError where it may not be read."""
    folder = store / f"{HOUR_PREFIX}{hour}"
    try:
        names = os.listdir(folder)  # a glob would take what may not be read for empty
    except OSError as error:
        not_allowed(folder, error)
        return []
    # A leading dot marks a file being written.
    return sorted(folder / name for name in names if name.endswith(".parquet") and name[0] != ".")


def samples_in(path: Path) -> int:
    """Return how many samples a file says it holds; 0 where it is damaged or gone."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return 0


def mark_of(files: Sequence[Path]) -> list[list[Any]]:
    """Return names and sizes: files of the store never change, so a roll-up with the same mark need not be made again."""
    return [[path.name, _size(path)] for path in files]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # compacted just now: no later mark is like this one, so the hour is made once more
        return -1


def hour_before(hour: str) -> str:
    """Return the hour before an hour."""
    return hour_of(hour_start_ms(hour) - 1)


def next_id(store: Path) -> int:
    """Return a number above every partition id, from the footers of the dictionary."""
    ends = [0]
    for path in listed(store / DICTIONARY, "*.parquet"):
        if path.stem.isdecimal():
            try:
                ends.append(int(path.stem) + int(pq.read_metadata(path).num_rows))
            except (OSError, pa.ArrowException) as error:
                raise Mm2mgrError(f"{path} is not a readable dictionary", hint="restore it from a backup") from error
    return max(ends)


def read_samples(files: Sequence[Path], ids: range) -> tuple[Series, list[str], dict[str, str]]:
    """Return the samples of a range of ids, their sources' names by number, and the reason for each file left out."""
    names: dict[str, int] = {}
    parts: list[dict[str, Any]] = []
    unreadable: dict[str, str] = {}
    for path in files:
        try:
            parts.append(_read(path, ids, names))
        # pyarrow raises these for a footer or a page that makes no sense, depending on where the damage lies.
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            not_allowed(path, error)
            unreadable[str(path)] = next(iter(str(error).splitlines()), type(error).__name__)[:120]
    if len(parts) == 1:
        return Series(**parts[0]), list(names), unreadable
    columns = {
        name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, kind)
        for name, (kind, _) in _COLUMNS.items()
    }
    return Series(**columns), list(names), unreadable


def read_hour(store: Path, hour: str, ids: range) -> tuple[Series, list[str], dict[str, str], list[Path]]:
    """Return what `read_samples` finds in an hour, and in which files; again where `sample --follow` put its files together
    meanwhile.
    """
    for _ in range(_COMPACTIONS):
        files = sample_files_of(store, hour)
        found = read_samples(files, ids)
        if all(path.exists() for path in files):
            break
    return *found, files


def rollup_directory(store: Path, name: str) -> Path:
    """Return where the roll-up of an hour or day such as hour=2026-11-21T10 lies."""
    return store / ROLLUPS / name


def part_name(low_id: int) -> str:
    """Return the file name of the roll-up of the ids from `low_id` on."""
    return f"part-{low_id:010d}.parquet"


def _read(path: Path, ids: range, names: dict[str, int]) -> dict[str, Any]:
    with pq.ParquetFile(path, read_dictionary=["source"]) as file:
        present = [name for name in _COLUMNS if name in file.schema_arrow.names]
        place = file.schema_arrow.names.index("partition_id")
        groups = [n for n in range(file.num_row_groups) if _may_hold(file.metadata.row_group(n), place, ids)]
        table = file.read_row_groups(groups, columns=present, use_threads=False)
    arrays = {name: _array(table, name, kind, unknown, names) for name, (kind, unknown) in _COLUMNS.items()}
    one = arrays["partition_id"]
    inside = (one >= ids.start) & (one < ids.stop)
    return arrays if inside.all() else {name: column[inside] for name, column in arrays.items()}


def _array(table: Any, name: str, kind: Any, unknown: float, names: dict[str, int]) -> Any:
    if name not in table.column_names:
        if name in ("partition_id", "time_ms", "source"):
            raise KeyError(f"it has no column {name}")
        return np.full(len(table), unknown, kind)
    column = table[name]
    if column.null_count and name in NEVER_NULL:
        raise ValueError(f"its column {name} has nulls")
    if name == "source":
        return _codes(column, names)
    if column.type != (wanted := getattr(pa, SAMPLE_COLUMNS[name])()):
        column = column.cast(wanted)  # an error where a value does not fit; numpy would wrap it around
    if column.null_count == len(column):
        return np.full(len(column), unknown, kind)
    filled = column.fill_null(unknown) if column.null_count else column
    return filled.to_numpy().astype(kind, copy=False)


def _codes(column: Any, names: dict[str, int]) -> Any:
    found = [np.zeros(0, np.int32)]
    for chunk in column.chunks:
        encoded = chunk if isinstance(chunk, pa.DictionaryArray) else chunk.dictionary_encode()
        table = [names.setdefault(str(name), len(names)) for name in encoded.dictionary.to_pylist()]
        if len(table) == 1 and not encoded.null_count:
            found.append(np.full(len(encoded), table[0], np.int32))
        elif table:
            found.append(np.array(table, np.int32)[encoded.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(found)


def _may_hold(group: Any, place: int, ids: range) -> bool:
    statistics = group.column(place).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < ids.stop and statistics.max >= ids.start)


def _is_hour(text: str) -> bool:
    try:
        hour_start_ms(text)
    except ValueError:
        return False
    return True


def recoded(series: Series, names: Sequence[str], ranks: Mapping[str, int]) -> Series:
    """Renumber the sources of a Series by rank, and put its series into that order."""
    table = np.array([ranks[name] for name in names] or [0], np.int32)
    if (table == np.arange(len(table))).all():
        return series
    found = Series(**{**vars(series), "source": table[series.source]})
    return found.take(np.lexsort((found.source, found.partition_id)))  # stable: each series stays in order of time

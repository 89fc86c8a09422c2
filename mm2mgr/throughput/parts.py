"""The Parquet files of roll-ups: one part for every range of ids, written whole, read back as arrays.

In go RollUps and paths; it knows nothing of hours, sessions or names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput.rollup import LISTS, ROLLUP_COLUMNS, RollUp

_READERS = 4  # a window is many small files


def _type_of(name: str) -> Any:
    kind = getattr(pa, ROLLUP_COLUMNS[name])()
    return pa.list_(kind) if name in LISTS else kind


SCHEMA = pa.schema([pa.field(name, _type_of(name)) for name in ROLLUP_COLUMNS])
_FORMAT = {
    "compression": "zstd",
    "use_dictionary": ["source"],
    "column_encoding": dict.fromkeys(
        ("partition_id", "covered_ms", "first_ms", "last_ms", "samples"), "DELTA_BINARY_PACKED"
    ),
}


def write_part(path: Path, found: RollUp, sources: Sequence[str]) -> None:
    """Write one part and force it to disk; the caller gives it its final name."""
    columns = [_column(found, name, sources) for name in ROLLUP_COLUMNS]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), path, **_FORMAT)
    with path.open("rb") as written:
        os.fsync(written.fileno())


def read_parts(paths: Sequence[Path], columns: Sequence[str]) -> tuple[RollUp, list[str]]:
    """Return the rows of all parts in these columns, and the names of their sources by number; Mm2mgrError.

    Offsets are all zero where the lists are not asked for.
    """
    with ThreadPoolExecutor(_READERS) as readers:
        tables = list(readers.map(lambda path: _table(path, columns), paths))
    if not tables:
        tables = [SCHEMA.empty_table().select(list(columns))]
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    values: dict[str, Any] = {}
    sources: list[str] = []
    offsets = np.zeros(len(table) + 1, np.int32)
    for name in columns:
        column = table[name].chunk(0) if table[name].num_chunks else pa.array([], SCHEMA.field(name).type)
        if name in LISTS:
            ends = column.offsets.to_numpy() if len(column) else offsets
            offsets = ends - ends[0]
            values[name] = column.values.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]]
        elif name == "source":
            encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
            sources = [str(one) for one in encoded.dictionary.to_pylist()]
            values[name] = encoded.indices.to_numpy(zero_copy_only=False)
        else:
            whole = column.null_count and ROLLUP_COLUMNS[name] != "float64"  # a null among floats is NaN by itself
            values[name] = (column.fill_null(0) if whole else column).to_numpy(zero_copy_only=False)
    return RollUp(values, offsets), sources


def _table(path: Path, columns: Sequence[str]) -> Any:
    # Neither `read_table` nor any compute function: each loads a module for a tenth of a second.
    try:
        with pq.ParquetFile(path, read_dictionary=["source"]) as file:
            if lost := set(columns) - set(file.schema_arrow.names):
                raise pa.ArrowInvalid(f"it has no column {min(lost)}")
            return file.read(columns=list(columns), use_threads=False)
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        hint = f"remove {path.parent} and run `mm2mgr throughput`: it is made again from the samples that are kept"
        raise Mm2mgrError(f"a roll-up is not readable: {path}: {first[:200]}", hint=hint) from error


def _column(found: RollUp, name: str, sources: Sequence[str]) -> Any:
    values = found.values[name]
    if name in LISTS:
        return pa.ListArray.from_arrays(pa.array(found.offsets), pa.array(values))
    if name == "source":
        return pa.DictionaryArray.from_arrays(pa.array(values), pa.array(list(sources), pa.string())).cast(pa.string())
    return pa.array(values, from_pandas=True)  # NaN becomes null

"""Compaction: the many files of an hour that is over become few, ordered by partition and then time.

In goes an hour's folder, out come its new files. New files get their names before old ones go, so that a crash repeats
samples but never loses one; a file that cannot be read stays where it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.files import listed
from mm2mgr.samples.files import UnreadableFile, bounds, read_columns, tables_to, writing
from mm2mgr.samples.schema import COMPACTED_PREFIX, IDS_PER_FILE, IDS_PER_ROW_GROUP, SAMPLE_COLUMNS

# What is in memory at a time: so many partitions of one hour, a million samples when one comes each minute.
_IDS_AT_A_TIME = 4 * IDS_PER_ROW_GROUP


def loose_files(folder: Path) -> list[Path]:
    """Return the files of single polls in an hour's folder: what compaction replaces."""
    return [path for path in _files(folder) if not path.name.startswith(COMPACTED_PREFIX)]


def compact_hour(folder: Path, warn: Callable[[str], None]) -> list[Path]:
    """Rewrite all readable files of the folder; return the new ones. The caller keeps other compactions out."""
    with writing(folder):
        try:
            old = _readable(folder, warn, to_the_end=False)
            new = _rewritten(folder, old)
        except UnreadableFile:  # a damaged page, which no footer shows: find its file, and do without
            old = _readable(folder, warn, to_the_end=True)
            new = _rewritten(folder, old)
        for path in old:
            path.unlink(missing_ok=True)
    return new


def ordered(samples: Any) -> Any:
    """Sort samples by partition, time and source; of one moment's, the one read last (the larger offset) comes first."""
    # In one piece: sorting and gathering over sixty pieces takes several times as long.
    keys = [(name, "ascending") for name in ("partition_id", "time_ms", "source")]
    return samples.combine_chunks().sort_by([*keys, ("end_offset", "descending")])


def once(samples: Any) -> Any:
    """Drop the repetitions among ordered samples; the first one stays."""
    if len(samples) < 2:
        return samples
    same = None
    for name in ("partition_id", "time_ms", "source"):
        column = samples[name].combine_chunks()
        equal = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
        same = equal if same is None else pc.and_(same, equal)
    if not pc.any(same).as_py():
        return samples
    return samples.filter(pa.concat_arrays([pa.array([True]), pc.invert(same)]))


def _files(folder: Path) -> list[Path]:
    return [path for path in listed(folder, "*.parquet") if path.name[0] != "."]


def _readable(folder: Path, warn: Callable[[str], None], *, to_the_end: bool) -> dict[Path, tuple[int, int] | None]:
    """Return the files that can be read with the ids that each one spans."""
    found = {}
    for path in _files(folder):
        try:
            found[path] = bounds(path, "partition_id")
            if to_the_end:
                read_columns(path, SAMPLE_COLUMNS)
        except UnreadableFile as error:
            warn(f"{error.message}; it stays as it is and is left out")
            found.pop(path, None)
    return found


def _rewritten(folder: Path, old: Mapping[Path, tuple[int, int] | None]) -> list[Path]:
    spans = [span for span in old.values() if span]
    new: list[Path] = []
    try:
        end = max((high for _, high in spans), default=-1) + 1
        for start in range(0, end, IDS_PER_FILE):
            ids = range(start, min(start + IDS_PER_FILE, end))
            if not any(low < ids.stop and high >= ids.start for low, high in spans):
                continue
            target = folder / f"{COMPACTED_PREFIX}{start:09d}-{uuid.uuid4().hex[:8]}.parquet"
            new.append(target)
            if not tables_to(target, _partition_major(list(old), ids)):
                new.remove(target)
                target.unlink()
    except BaseException:  # on a full disk the half that is done would only take more of it
        for path in new:
            path.unlink(missing_ok=True)
        raise
    return new


def _partition_major(files: Sequence[Path], ids: range) -> Iterator[Any]:
    for start in range(ids.start, ids.stop, _IDS_AT_A_TIME):
        part = range(start, start + _IDS_AT_A_TIME)
        yield once(ordered(pa.concat_tables([read_columns(path, SAMPLE_COLUMNS, part) for path in files])))

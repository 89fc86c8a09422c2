"""When a source was last heard of: what a sampler that starts anew must know before it asks for the rest.

In go a store, a cluster and a kind of source, out comes a time. Of most files it reads the footer alone, and of the others a
row group at a time, because an hour of a large estate does not fit into memory.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mm2mgr.samples.files import reading
from mm2mgr.samples.schema import hour_end_ms
from mm2mgr.samples.store import SampleStore

_COLUMNS = ("partition_id", "time_ms", "source")


def newest_of(store: SampleStore, alias: str, source_prefix: str, floor_ms: int) -> int | None:
    """Return the time of the newest sample of one cluster from one kind of source; None when none is after `floor_ms`."""
    entries = store.dictionary()
    ids = entries.filter(pc.equal(entries["cluster"], alias))["partition_id"].combine_chunks()
    if not len(ids):
        return None
    for hour in reversed(store.hours()):
        if hour_end_ms(hour) <= floor_ms:
            return None
        times: list[int] = [
            found for found in store.each_file(hour, partial(_newest, ids=ids, prefix=source_prefix)) if found
        ]
        if times:
            return max(times)
    return None


def _newest(path: Path, ids: Any, prefix: str) -> int | None:
    newest = None
    with reading(path), pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            if _may_hold(file.metadata.row_group(number), ids, prefix, newest):
                rows = file.read_row_group(number, columns=list(_COLUMNS))
                named = (pc.starts_with if prefix.endswith(":") else pc.equal)(rows["source"].cast(pa.string()), prefix)
                times = rows.filter(pc.and_(named, pc.is_in(rows["partition_id"], ids)))["time_ms"]
                newest = max([*([newest] if newest else []), *pc.unique(times).to_pylist()], default=None)
    return newest


def _may_hold(group: Any, ids: Any, prefix: str, newest: int | None) -> bool:
    """Tell from a footer whether a row group can have something newer of these partitions and this source."""
    columns = [group.column(place) for place in range(group.num_columns)]
    told = {one.path_in_schema: one.statistics for one in columns if one.statistics and one.statistics.has_min_max}
    if (one := told.get("partition_id")) and (one.max < ids[0].as_py() or one.min > ids[-1].as_py()):
        return False
    if (one := told.get("source")) and not one.min[: len(prefix)] <= prefix <= one.max[: len(prefix)]:
        return False
    return newest is None or "time_ms" not in told or bool(told["time_ms"].max > newest)

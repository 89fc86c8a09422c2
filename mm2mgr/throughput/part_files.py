"""The rows of the `throughput` table as arrays: read from files, and written to them.

A topic created anew has another id and stays one topic to readers: `PartitionNames` knows partitions by name alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.clock import ahead
from mm2mgr.samples.schema import THROUGHPUT, Store
from mm2mgr.samples.tables import STRINGS, DataFile, Share, StoredTable, UnreadableFile, codes_of
from mm2mgr.throughput.rollup import LISTS, ROLLUP_COLUMNS, RollUp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

NAMES = ("cluster", "topic", "partition", "topic_id", "source")
_READERS = 4  # a window is many small files
_DELTA = dict.fromkeys(("partition", "covered_ms", "first_ms", "last_ms", "samples"), "DELTA_BINARY_PACKED")


@dataclass(frozen=True)
class RateRows:
    """Rows of the table: numbers by column name, lists end to end with offsets, and names as codes of lists of
    strings."""

    values: dict[str, Array]
    offsets: Array
    clusters: list[str]
    topics: list[str]
    topic_ids: list[str | None]
    sources: list[str]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class PartitionNames:
    """Partitions ordered by cluster, topic and number; `cluster` and `topic` are places in the two lists of names."""

    clusters: list[str]
    topics: list[str]
    cluster: Array
    topic: Array
    partition: Array

    def __len__(self) -> int:
        return len(self.partition)

    @cached_property
    def _keys(self) -> Array:
        return _keys(self.cluster, self.topic, self.partition, len(self.topics))

    def places(self, rows: RateRows) -> Array:
        """Return the place of each row's partition, -1 where it is not among these."""
        cluster = _places_of(rows.clusters, self.clusters)[rows.values["cluster"]]
        topic = _places_of(rows.topics, self.topics)[rows.values["topic"]]
        keys = _keys(cluster, topic, rows.values["partition"], len(self.topics))
        at = np.minimum(np.searchsorted(self._keys, keys), max(len(self) - 1, 0))
        is_there = (cluster >= 0) & (topic >= 0) & (self._keys[at] == keys if len(self) else False)
        return np.where(is_there, at, -1)

    def with_rows(self, rows: RateRows) -> PartitionNames:
        """Return these and the partitions of the rows."""
        clusters, topics = sorted({*self.clusters, *rows.clusters}), sorted({*self.topics, *rows.topics})
        cluster = np.append(
            _places_of(self.clusters, clusters)[self.cluster],
            _places_of(rows.clusters, clusters)[rows.values["cluster"]],
        )
        topic = np.append(
            _places_of(self.topics, topics)[self.topic], _places_of(rows.topics, topics)[rows.values["topic"]]
        )
        partition = np.append(self.partition, rows.values["partition"].astype(np.int64))
        _, first = np.unique(_keys(cluster, topic, partition, len(topics)), return_index=True)
        return PartitionNames(clusters, topics, cluster[first], topic[first], partition[first])


def no_names() -> PartitionNames:
    """Return the names of no partition."""
    nothing = np.zeros(0, np.int64)
    return PartitionNames([], [], nothing, nothing, nothing)


def throughput_table(store: Store) -> StoredTable:
    """Return the table of roll-ups of a store."""
    return StoredTable(store, THROUGHPUT)


def is_hour(period: str) -> bool:
    """Tell whether a period is an hour such as 2026-11-21T10, not a day such as 2026-11-21."""
    return "T" in period


def past_hours(periods: Iterable[str]) -> list[str]:
    """Return the hours among these that are not in the future, by this machine's clock, oldest first; all of them where
    all are."""
    hours = sorted(filter(is_hour, periods))
    return hours[: len(hours) - len(ahead(hours, time.time_ns() // 1_000_000))] or hours


def hours_of_day(day: DataFile) -> set[str]:
    """Return the hours that a file of a day was merged from, by its `made_from`: their numbers first."""
    return {f"{day.values[0]}T{word}" for word in day.values[1].split() if word.isdecimal()}


_ALL = Share()


def read_rows(table: StoredTable, files: Sequence[DataFile], columns: Iterable[str], share: Share = _ALL) -> RateRows:
    """Return these columns of all files, with the names in any case; Mm2mgrError where a file is damaged or lost.

    Offsets are all zero where the lists are not asked for.
    """
    names = [*NAMES, *(name for name in columns if name not in NAMES)]

    def read(file: DataFile) -> pa.Table:
        return share.rows(table.read_file(file, names, share.may_hold))

    try:
        with ThreadPoolExecutor(_READERS) as readers:
            tables = list(readers.map(read, files))
    except (UnreadableFile, OSError) as error:
        reason = error.message if isinstance(error, UnreadableFile) else f"{table.uri}: {error}"
        hint = (
            "run `mm2mgr throughput`: it makes again what is gone or cut off and has samples; if this stays, move"
            f" {table.uri} away first"
        )
        raise Mm2mgrError(f"a roll-up is not readable: {reason}", hint=hint) from error
    return _as_arrays(_in_one_chunk(tables or [table.no_rows(names)]))


def write_rows(
    table: StoredTable, period: Sequence[str], roll_up: RollUp, names: RateRows, sources: Sequence[str]
) -> DataFile | None:
    """Write roll-ups to a file that is in no commit yet, sorted by name; `partition_id` is a place in `names`."""
    at, source = roll_up.values["partition_id"], roll_up.values["source"]
    codes = {name: names.values[name][at] for name in ("cluster", "topic", "partition", "topic_id")}
    order = np.lexsort(
        [
            source,
            codes["topic_id"],
            codes["partition"],
            _ranks(names.topics)[codes["topic"]],
            _ranks(names.clusters)[codes["cluster"]],
        ]
    )
    texts: dict[str, Sequence[str | None]] = {
        "cluster": names.clusters,
        "topic": names.topics,
        "topic_id": names.topic_ids,
    }
    columns = {name: _text(codes[name], texts[name]) for name in texts}
    columns |= {"partition": pa.array(codes["partition"], pa.int32()), "source": _text(source, sources)}
    for name in ROLLUP_COLUMNS:
        values = roll_up.values[name]
        if name in LISTS:
            columns[name] = pa.ListArray.from_arrays(pa.array(roll_up.offsets), pa.array(values))
        elif name not in ("partition_id", "source"):
            columns[name] = pa.array(values, from_pandas=True)  # NaN becomes null
    rows = pa.table([columns[field.name].cast(field.type) for field in table.file_schema], schema=table.file_schema)
    rows = rows.take(pa.array(order)) if (np.diff(order) != 1).any() else rows
    return table.write_file(period, [rows], encoding={"use_dictionary": list(STRINGS), "column_encoding": _DELTA})


def _in_one_chunk(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1 and all(column.num_chunks == 1 for column in tables[0].columns):
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _as_arrays(table: pa.Table) -> RateRows:
    values: dict[str, Array] = {}
    texts: dict[str, list[Any]] = {}
    offsets = np.zeros(len(table) + 1, np.int32)
    for name in table.column_names:
        if name in STRINGS:
            texts[name], values[name] = codes_of(table[name])
            continue
        column = table[name].chunk(0) if table[name].num_chunks else table[name].combine_chunks()
        if name in LISTS:
            ends = column.offsets.to_numpy() if len(column) else offsets
            offsets = ends - ends[0]
            values[name] = column.values.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]]
        else:
            values[name] = column.to_numpy(zero_copy_only=False)  # a null among floats is NaN by itself
    return RateRows(values, offsets, texts["cluster"], texts["topic"], texts["topic_id"], texts["source"])


def _text(codes: Array, texts: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(texts), pa.string()))


def _ranks(names: Sequence[str]) -> Array:
    ranks = np.zeros(max(1, len(names)), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _places_of(names: Sequence[str], among: Sequence[str]) -> Array:
    places = {name: place for place, name in enumerate(among)}
    return np.array([places.get(name, -1) for name in names] or [-1], np.int64)


def _keys(cluster: Array, topic: Array, partition: Array, topics: int) -> Array:
    return (cluster * max(topics, 1) + topic) * 2**20 + partition  # a million partitions a topic is more than any has

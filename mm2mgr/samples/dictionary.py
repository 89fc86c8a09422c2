"""The dictionary of partitions: a small number for each (cluster, topic, topic id, partition), given once and for good.

In go names, out come ids; a new partition is on disk before any sample of it.
Several samplers may share a directory: ids are given under a file lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.locks import locked
from mm2mgr.samples.files import DICTIONARY_SCHEMA, UnreadableFile, bounds, put, read_columns, writing
from mm2mgr.samples.schema import DICTIONARY, DICTIONARY_COLUMNS, HOUR_PREFIX

_TopicKey = tuple[str, str, str | None]
_NewPartition = tuple[str, str, int, str | None]
_UNKNOWN = -1
_MOST_FILES = 64  # then they are merged: an estate that creates topics every minute must not end in 500 000 files
_HOURS_COMPARED = 24
LOCK_SECONDS = 300.0  # a compaction of an hour of a large estate takes minutes; what takes longer hangs


@contextmanager
def alone(directory: Path, purpose: str, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes that share the store out while ids are given or files replaced; `say` tells of a long wait."""
    with ExitStack() as held:
        with writing(directory):
            held.enter_context(locked(directory / ".lock", purpose, LOCK_SECONDS, say))
        yield


class Dictionary:
    """The ids of one store, kept in memory as an array per topic."""

    def __init__(self, store: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._store, self._say = store, say
        self._directory = store / DICTIONARY
        self._loaded: dict[str, tuple[int, int]] = {}
        self._ids: dict[_TopicKey, array[int]] = {}
        self._newest: dict[tuple[str, str], str | None] = {}
        self._next = 0
        self._compared = False

    def ids(
        self, cluster: str, topics: Sequence[str], partitions: Sequence[int], topic_ids: Sequence[str | None]
    ) -> array[int]:
        """Return the id of every row, giving new ones where needed; a topic id of None means the topic as known by now."""
        found, missing = self._look_up(cluster, topics, partitions, topic_ids)
        if not missing:
            return found
        with alone(self._store, f"new partitions of {cluster}", self._say):
            self._load()
            _, missing = self._look_up(cluster, topics, partitions, topic_ids)
            self._add(missing)
            self._merge_files()
        return self._look_up(cluster, topics, partitions, topic_ids)[0]

    def table(self, unreadable: list[UnreadableFile] | None = None) -> Any:
        """Return every entry, ordered by id; damaged files go to `unreadable`, or are raised where it is None."""
        tables = [DICTIONARY_SCHEMA.empty_table()]
        for path in self._files():
            try:
                tables.append(read_columns(path, DICTIONARY_COLUMNS))
            except UnreadableFile as error:
                if not path.exists():  # another process merged it into the first file just now
                    return self.table(unreadable)
                if unreadable is None:
                    raise
                unreadable.append(error)
        return _once(pa.concat_tables(tables).sort_by("partition_id"))

    def _look_up(
        self, cluster: str, topics: Sequence[str], partitions: Sequence[int], topic_ids: Sequence[str | None]
    ) -> tuple[array[int], list[_NewPartition]]:
        found, missing = array("i"), dict[_NewPartition, None]()
        seen: tuple[str, str | None] | None = None
        row, actual = array("i"), None
        for topic, partition, topic_id in zip(topics, partitions, topic_ids, strict=True):
            if seen != (topic, topic_id):
                seen = (topic, topic_id)
                actual = self._newest.get((cluster, topic)) if topic_id is None else topic_id
                row = self._ids.get((cluster, topic, actual), array("i"))
            one = row[partition] if partition < len(row) else _UNKNOWN
            found.append(one)
            if one == _UNKNOWN:
                missing[cluster, topic, partition, actual] = None
        return found, list(missing)

    def _load(self) -> None:
        """Take in what this or another process added since the last time."""
        files = self._files()
        present = {path.name for path in files}
        self._loaded = {name: mark for name, mark in self._loaded.items() if name in present}
        for path in files:
            mark = _mark(path)
            if self._loaded.get(path.name) == mark:
                continue
            try:
                columns = [column.to_pylist() for column in read_columns(path, DICTIONARY_COLUMNS).columns]
            except UnreadableFile as error:
                # Going on would give numbers a second time, and samples of one partition to another.
                hint = "restore it from a backup, or sample into another directory; samples there stay readable"
                raise Mm2mgrError(error.message, hint=hint) from error
            for one, cluster, topic, partition, topic_id in zip(*columns, strict=True):
                self._enter(one, (cluster, topic, partition, topic_id))
            self._loaded[path.name] = mark

    def _enter(self, one: int, entry: _NewPartition) -> None:
        cluster, topic, partition, topic_id = entry
        row = self._ids.setdefault((cluster, topic, topic_id), array("i"))
        row.extend([_UNKNOWN] * (partition + 1 - len(row)))
        row[partition] = one
        if one >= self._next:
            self._newest[cluster, topic] = topic_id
            self._next = one + 1

    def _add(self, missing: Sequence[_NewPartition]) -> None:
        if not missing:
            return
        self._compare()
        numbers = range(self._next, self._next + len(missing))
        columns = [numbers, *zip(*missing, strict=True)]
        self._write(
            pa.table(
                [pa.array(list(each), kind) for each, kind in zip(columns, DICTIONARY_SCHEMA.types, strict=True)],
                schema=DICTIONARY_SCHEMA,
            )
        )
        for one, entry in zip(numbers, missing, strict=True):
            self._enter(one, entry)

    def _compare(self) -> None:
        """Refuse to give numbers that samples already have: a dictionary from an old backup does not know of them."""
        if self._compared:
            return
        highest = -1
        for folder in sorted(self._store.glob(f"{HOUR_PREFIX}*"))[-_HOURS_COMPARED:]:
            for path in folder.glob("*.parquet"):
                with suppress(UnreadableFile):
                    highest = max([highest, *(bounds(path, "partition_id") or ())])
        if highest >= self._next:
            raise Mm2mgrError(
                f"{self._directory} names {self._next} partitions, but samples have numbers up to {highest}",
                hint="restore the dictionary's newest files, or sample into another directory",
            )
        self._compared = True

    def _merge_files(self) -> None:
        files = self._files()
        if len(files) <= _MOST_FILES:
            return
        self._write(self.table())
        for path in files[1:]:
            path.unlink(missing_ok=True)

    def _write(self, table: Any) -> None:
        target = self._directory / f"{table['partition_id'][0].as_py()}.parquet"
        with writing(self._directory):
            put(target, lambda draft: pq.write_table(table, draft, compression="zstd"))
        self._loaded[target.name] = _mark(target)

    def _files(self) -> list[Path]:
        found = [path for path in listed(self._directory, "*.parquet") if path.stem.isdecimal()]
        return sorted(found, key=lambda path: int(path.stem))


def _mark(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _once(entries: Any) -> Any:
    """Drop the repeated ids that a crash while merging files leaves behind."""
    ids = entries["partition_id"].to_pylist()
    first = [place for place, one in enumerate(ids) if place == 0 or one != ids[place - 1]]
    return entries if len(first) == len(ids) else entries.take(pa.array(first))

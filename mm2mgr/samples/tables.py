"""Delta Lake tables at a URI: created, appended to, read file by file or share by share, and changed in one atomic
commit.

Credentials and endpoints of object storage come from the environment (AWS_…, GOOGLE_…, AZURE_…), as the `deltalake`
package reads them; they are neither stored nor printed. Everything else about a table's files is here: no other module
imports `deltalake`.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import list_paths, special_kind
from mm2mgr.samples.schema import PARTITIONED_BY, TABLES, Store, hour_start_ms, is_remote, store_of
from mm2mgr.samples.table_errors import damaged_log, reaching, writing
from mm2mgr.text import number_of

_ROWS_PER_GROUP = 65_536
_KEPT_FOR_READERS_HOURS = 6
"""Files that a commit replaced stay this long, for readers that began before it."""
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": f"interval {_KEPT_FOR_READERS_HOURS} hours",
    "delta.checkpointInterval": "100",
}
_WRITER = WriterProperties(compression="ZSTD", max_row_group_size=_ROWS_PER_GROUP)
_ONE_WRITER = "mm2mgr rewrite"  # commits that replace files conflict by this name, so that no two replace the same ones
_TRIES = 5
STRINGS = ("cluster", "topic", "topic_id", "source")
_BOUNDED = ("cluster", "source")  # whose smallest and largest value the table keeps for each file


Progress: TypeAlias = "Mapping[str, tuple[int, int]]"
"""By name how far something was read: the number expected in the table at most, and the one to record. Of processes
that record the same name at the same time, one succeeds."""

_KINDS = {
    "string": {"string"},
    "int": {"byte", "short", "integer", "long"},
    "float": {"float", "double"},
    "list": {"array"},
}
"""Types of a Delta table that columns may have, by how the names of ours begin."""


class UnreadableFile(Mm2mgrError):
    """One data file is damaged; the others are right without it."""


class MissingFile(UnreadableFile):
    """One data file that the table lists is not there."""


class Conflict(Mm2mgrError):
    """Another process replaced files of the table meanwhile; nothing was changed."""


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table: its path in the table, size, rows, and the values of the table's partition
    columns."""

    path: str
    size: int
    rows: int
    values: tuple[str, ...]
    bounds: Mapping[str, tuple[str, str]] = field(default_factory=dict, compare=False)
    """Smallest and largest cluster and source, where the table says so."""
    statistics: str = field(default="", compare=False, repr=False)
    """Of a file that is in no commit yet: what the table's log is to say of its columns."""


@dataclass(frozen=True)
class TableSnapshot:
    """The files of a table in one of its states, ordered by partition; the state itself is for `StoredTable.replace`.

    `refused`: files that it lists and that are not to be read, with the reason.
    """

    files: list[DataFile]
    table: DeltaTable | None = field(repr=False)
    refused: Mapping[str, str] = field(default_factory=dict)


def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    lists = {"list<int16>": pa.list_(pa.int16()), "list<int32>": pa.list_(pa.int32())}
    kinds = {column.name: lists.get(column.type) or getattr(pa, column.type)() for column in TABLES[name]}
    return pa.schema([pa.field(column.name, kinds[column.name], column.nullable) for column in TABLES[name]])


class StoredTable:
    """One table of a store. Every change is one commit: readers see all of it or nothing.

    `warn` gets a sentence for each damaged file, and for those that the table lists and that are not its own.
    """

    def __init__(self, store: Store, name: str, warn: Callable[[str], None] = lambda _: None) -> None:
        self.store, self.name = _check_store(store), name
        self._warn, self._refused = warn, dict[str, str]()
        self.schema = arrow_schema(name)
        self.partitioned_by = PARTITIONED_BY[name]
        self.uri = f"{store}/{name}" if is_remote(self.store) else str(Path(os.path.abspath(store)) / name)
        self._open: DeltaTable | None = None
        self._appending = threading.Lock()

    @cached_property
    def filesystem(self) -> pa_fs.FileSystem:
        """The file system in which `DataFile.path` leads to the file."""
        if is_remote(self.store):
            return pa_fs.PyFileSystem(DeltaStorageHandler(self.uri))
        return pa_fs.SubTreeFileSystem(self.uri, pa_fs.LocalFileSystem())

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in the files: without the partition columns."""
        return pa.schema([field for field in self.schema if field.name not in self.partitioned_by])

    def exists(self) -> bool:
        """Say whether the table was created."""
        if not is_remote(self.store):
            list_paths(Path(self.uri), "_delta_log")
        self._refuse_pipes()
        with reaching(self.uri):
            return DeltaTable.is_deltatable(self.uri)

    def _refuse_pipes(self) -> None:
        """Mm2mgrError where the log has a pipe or a device, on which the library would wait without end."""
        log = Path(self.uri, "_delta_log")
        if is_remote(self.store) or not log.is_dir():
            return
        with reaching(self.uri), os.scandir(log) as entries:
            special = [entry.name for entry in entries if not (entry.is_file() or entry.is_dir())]
        for name in special:
            if kind := special_kind(log / name):
                raise damaged_log(self.uri, f"{name} is {kind}, not a file")

    def create(self) -> None:
        """Create the table where it is missing; several processes may do so at once. Mm2mgrError for one of somebody
        else. A table of an earlier version gets the columns that it lacks."""
        if self.exists():
            with reaching(self.uri):
                opened = DeltaTable(self.uri)
                self._check_columns(opened)
            present = {field.name for field in opened.schema().fields}
            if missing := [field for field in self.schema if field.name not in present]:
                self._refuse_links("_delta_log")
                with writing(self.uri):
                    opened.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
            return
        if self._holds_other_files() and not self.exists():
            # A table's folder is cleaned of files that the table does not know.
            raise Mm2mgrError(
                f"{self.uri} holds files and is not a table", hint="name another folder or URI with --store"
            )
        self._refuse_links("_delta_log")
        with writing(self.uri):
            if not is_remote(self.store):
                Path(self.uri).mkdir(parents=True, exist_ok=True)
            try:
                DeltaTable.create(
                    self.uri,
                    self.schema,
                    mode="ignore",
                    partition_by=list(self.partitioned_by),
                    configuration=_CONFIGURATION,
                )
            except DeltaError:
                if not DeltaTable.is_deltatable(self.uri):  # else another process was faster
                    raise

    def _holds_other_files(self) -> bool:
        with reaching(self.uri):
            infos = self.filesystem.get_file_info(pa_fs.FileSelector("", allow_not_found=True))
            return any(not info.path.strip("/").startswith("_delta_log") for info in infos)

    def append(self, rows: pa.Table) -> None:
        """Add rows in one commit; beside other writers, and Mm2mgrError where the table is gone."""
        with self._appending, writing(self.uri):
            if not is_remote(self.store) and not list_paths(Path(self.uri), "_delta_log"):
                self._open = None
                raise missing_table_error(self.uri)
            self._refuse_links("_delta_log", *self._folders_of(rows))
            self._refuse_pipes()
            for left in reversed(range(_TRIES)):
                try:
                    self._open = self._open or DeltaTable(self.uri)
                    write_deltalake(self._open, rows, mode="append", writer_properties=_WRITER)
                    return
                except BaseException as error:
                    self._open = None  # its state is behind the table, where another process replaced files
                    if not left or not isinstance(error, CommitFailedError):
                        raise

    def _folders_of(self, rows: pa.Table) -> list[str]:
        name = self.partitioned_by[0]
        return [f"{name}={value}" for value in pc.unique(rows[name]).to_pylist()]

    def _refuse_links(self, *names: str) -> None:
        """Mm2mgrError where one of these of a folder's entries is a link: what is written there would be written
        elsewhere."""
        if is_remote(self.store):
            return
        for path in (Path(self.uri, name) for name in names):
            if os.path.islink(path):
                hint = (
                    "move what it leads to into its place, or move the link away; to use another disk, link the store's"
                    " folder"
                )
                raise Mm2mgrError(f"{path} is a link: nothing is written where it leads", hint=hint)

    def files(self) -> list[DataFile]:
        """Return the files of the table as it is now; none where it does not exist."""
        return self.snapshot().files

    def snapshot(self) -> TableSnapshot:
        """Return the state of the table as it is now; without files where it does not exist."""
        if not is_remote(self.store):
            for folder in (Path(self.store), Path(self.uri)):
                list_paths(folder, "_delta_log")  # the library takes a folder that may not be read for no table
        self._refuse_pipes()
        links = self._links()
        with reaching(self.uri):
            try:
                opened = DeltaTable(self.uri)
            except TableNotFoundError:
                if self._holds_other_files():
                    raise damaged_log(self.uri, "it has files, and no log says which") from None
                return TableSnapshot([], None)
            self._check_columns(opened)
            actions = pa.table(opened.get_add_actions(flatten=True))
        keys = [f"partition.{name}" for name in self.partitioned_by]
        limits = {column: (f"min.{column}", f"max.{column}") for column in _BOUNDED}
        limits = {column: pair for column, pair in limits.items() if set(pair) <= set(actions.column_names)}
        column_names = ["path", "size_bytes", "num_records", *keys, *(key for pair in limits.values() for key in pair)]
        files, refused = [], {}
        for row in actions.select(column_names).to_pylist():
            bounds = {name: (row[low], row[high]) for name, (low, high) in limits.items()}
            bounds = {name: pair for name, pair in bounds.items() if all(isinstance(bound, str) for bound in pair)}
            values = tuple(str(row[key]) for key in keys)
            if reason := self._objection(row["path"], values, links):
                refused[f"{self.uri}/{row['path']}"] = reason
            else:
                files.append(DataFile(row["path"], row["size_bytes"], row["num_records"] or 0, values, bounds))
        self._name_refused(refused)
        return TableSnapshot(sorted(files, key=lambda file: (file.values, file.path)), opened, refused)

    def _check_columns(self, table: DeltaTable) -> None:
        """Refuse a table of somebody else; a column that can be null may be missing, as in tables of earlier
        versions."""
        hint = "name another folder or URI with --store, or move that table away"
        wrong, kinds = (
            "",
            {schema_field.name: getattr(schema_field.type, "type", "") for schema_field in table.schema().fields},
        )
        if (by := table.metadata().partition_columns) != list(self.partitioned_by):
            wrong = f"it is partitioned by {', '.join(by) or 'no column'}, not by {', '.join(self.partitioned_by)}"
        for column in TABLES[self.name]:
            fitting = next(of for begins, of in _KINDS.items() if column.type.startswith(begins))
            if column.name not in kinds:
                wrong = wrong or ("" if column.nullable else f"it has no column {column.name}")
            elif kinds[column.name] not in fitting:
                wrong = wrong or f"its column {column.name} is of the type {kinds[column.name]}, not {column.type}"
        if wrong:
            raise Mm2mgrError(f"{self.uri} is not the table {self.name} of mm2mgr: {wrong}", hint=hint)

    def _links(self) -> frozenset[str]:
        if is_remote(self.store) or not os.path.isdir(self.uri):
            return frozenset()
        with reaching(self.uri), os.scandir(self.uri) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())

    def _objection(self, path: str, values: Sequence[str], links: frozenset[str]) -> str:
        if not _is_inside(path):
            return "its path leads out of the table"
        if not links.isdisjoint(text.partition("/")[0] for text in (path, unquote(path))):
            return "its folder is a link"
        name, value = self.partitioned_by[0], values[0]
        try:
            if name in ("hour", "period"):
                hour_start_ms(value if "T" in value or name == "hour" else f"{value}T00")
        except ValueError:
            return f"its {name} is {value[:40]!r}"
        return ""

    def _name_refused(self, refused: Mapping[str, str]) -> None:
        new = {path: reason for path, reason in refused.items() if path not in self._refused}
        self._refused.update(new)
        for path, reason in list(new.items())[:1]:
            more = f", and so are {number_of(len(new) - 1, 'other file')} of it" if len(new) > 1 else ""
            self._warn(f"the table {self.uri} lists {path[len(self.uri) + 1 :][:200]!r}, but {reason}: left out{more}")

    def replace(
        self, state: TableSnapshot, old: Sequence[DataFile], new: Sequence[DataFile], *, same_rows: bool = False
    ) -> None:
        """Take files out of a state of the table and put others in, in one commit; Conflict when another process
        replaced files since. Appends meanwhile are no conflict. `same_rows`: nothing but their order changes."""
        if not old and not new:
            return
        self._refuse_links("_delta_log")
        self._refuse_pipes()
        with writing(self.uri):
            table = state.table or DeltaTable(self.uri)
            now_ms, names, changes = time.time_ns() // 1_000_000, self.partitioned_by, not same_rows
            actions: list[AddAction | RemoveAction] = [
                *(
                    AddAction(file.path, file.size, _partition_values(names, file), now_ms, changes, file.statistics)
                    for file in new
                ),
                *(RemoveAction(file.path, changes, now_ms, file.size, _partition_values(names, file)) for file in old),
            ]
            commit = CommitProperties(app_transactions=[Transaction(_ONE_WRITER, now_ms)], max_commit_retries=100)
            try:
                table.create_write_transaction(actions, "append", self.schema, list(names), commit_properties=commit)
            except CommitFailedError as error:
                raise Conflict(
                    f"{self.uri}: another process replaced files at the same time",
                    hint="nothing was changed; run it again when the other one is done",
                ) from error

    def add(
        self, new: Sequence[DataFile], progress: Progress, note: Mapping[str, object] = MappingProxyType({})
    ) -> bool:
        """Add files of `write_file` in one commit that also records progress; False, and no change, where the table
        has this progress already.

        Conflict where it has a part of it, or another process is ahead: nothing was changed. `note` is kept as JSON in
        the table's history.
        """
        self._refuse_links("_delta_log", *{Path(file.path).parent.name for file in new})
        self._refuse_pipes()
        ahead = Conflict(
            f"{self.uri}: another process appended the same samples", hint="nothing was changed; run it again"
        )
        with writing(self.uri):
            table = DeltaTable(self.uri)
            stored = {name: table.transaction_version(name) for name in progress}
            reached = {name: -1 if version is None else version for name, version in stored.items()}
            if progress and all(reached[name] >= version for name, (_, version) in progress.items()):
                return False
            if any(reached[name] > expected for name, (expected, _) in progress.items()):
                raise ahead
            now_ms = time.time_ns() // 1_000_000
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    file.path, file.size, _partition_values(self.partitioned_by, file), now_ms, True, file.statistics
                )
                for file in new
            ]
            commit = CommitProperties(
                custom_metadata={"mm2mgr": json.dumps(note)} if note else None,
                app_transactions=[Transaction(name, version, now_ms) for name, (_, version) in progress.items()],
                max_commit_retries=100,
            )
            try:
                table.create_write_transaction(
                    actions, "append", self.schema, list(self.partitioned_by), commit_properties=commit
                )
            except CommitFailedError as error:
                raise ahead from error
        return True

    def progress(self, names: Iterable[str]) -> dict[str, int]:
        """Return the progress that commits of `add` recorded, by name; a name without any is left out."""
        if not self.exists():
            return {}
        with reaching(self.uri):
            table = DeltaTable(self.uri)
            stored = {name: table.transaction_version(name) for name in names}
        return {name: version for name, version in stored.items() if version is not None}

    def notes(self, newest: int = 20) -> list[Mapping[str, object]]:
        """Return the notes of `add` among the newest commits, newest first."""
        with reaching(self.uri):
            return [json.loads(entry["mm2mgr"]) for entry in DeltaTable(self.uri).history(newest) if "mm2mgr" in entry]

    def vacuum(self) -> None:
        """Delete files that no reader needs: those replaced some hours ago, and those of killed writers.

        None where the folder has a link: the library follows it, and deletes what it finds there.
        """
        if link := self._first_link():
            self._warn(f"{link} is a link: no file of the table {self.uri} that is no longer needed is deleted")
            return
        self._refuse_pipes()
        with writing(self.uri):
            table = DeltaTable(self.uri)
            table.vacuum(_KEPT_FOR_READERS_HOURS, dry_run=False, enforce_retention_duration=False, full=True)

    def _first_link(self) -> str:
        if is_remote(self.store):
            return ""
        for folder, folders, names in os.walk(self.uri):
            for name in (*folders, *names):
                if os.path.islink(path := os.path.join(folder, name)):
                    return path
        return ""

    def write_file(
        self,
        values: Sequence[str],
        tables: Iterable[pa.Table],
        *,
        keep_empty: bool = False,
        encoding: Mapping[str, object] = MappingProxyType({}),
    ) -> DataFile | None:
        """Write rows to a file that is in no commit yet; None, and no file, where there are none (unless
        `keep_empty`)."""
        path = f"{self.partitioned_by[0]}={values[0]}/part-{uuid.uuid4()}.parquet"
        rows, statistics = 0, _Statistics()
        self._refuse_links("_delta_log", Path(path).parent.name)
        if not is_remote(self.store):
            Path(self.uri, path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                self.filesystem.open_output_stream(path) as stream,
                pq.ParquetWriter(stream, self.file_schema, compression="zstd", **encoding) as writer,
            ):
                for table in tables:
                    writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
                    rows += len(table)
                    statistics.add(table)
            if not rows and not keep_empty:
                self.filesystem.delete_file(path)
                return None
            if not is_remote(self.store):
                _to_disk(Path(self.uri, path))
            size, bounds = self.filesystem.get_file_info(path).size, statistics.bounds()
            return DataFile(path, size, rows, tuple(values), bounds, statistics.text(rows))
        except BaseException:
            with suppress(OSError):  # on a full disk half a file would only take more of it
                self.filesystem.delete_file(path)
            raise

    def are_there(self, files: Iterable[DataFile]) -> bool:
        """Tell whether files on this machine's disk are as long as the table says; of others nothing is known, and
        True."""
        if is_remote(self.store):
            return True
        try:
            return all(os.path.getsize(Path(self.uri, file.path)) == file.size for file in files)
        except OSError:
            return False

    def read_file(
        self, file: DataFile, columns: Sequence[str], is_needed: Callable[[pq.RowGroupMetaData], bool] = lambda _: True
    ) -> pa.Table:
        """Return columns of a file, without the row groups whose metadata is not `wanted`; strings as dictionaries.

        UnreadableFile where it is damaged, MissingFile where it is gone; OSError where it cannot be reached. A column
        that can be null may be missing.
        """
        kind = "" if is_remote(self.store) else special_kind(Path(self.uri, file.path))
        if kind and kind != "a folder":
            raise UnreadableFile(f"{self.uri}/{file.path} is {kind}, not a file", hint="bring it back from a backup")
        try:
            with self.filesystem.open_input_file(file.path) as opened:
                parquet = pq.ParquetFile(opened, read_dictionary=[name for name in STRINGS if name in columns])
                present = [name for name in columns if name in parquet.schema_arrow.names]
                groups = [n for n in range(parquet.num_row_groups) if is_needed(parquet.metadata.row_group(n))]
                table = parquet.read_row_groups(groups, columns=present, use_threads=False)
            return self._conform(table, columns)
        # pyarrow raises these for a footer or a page that makes no sense, depending on where the damage lies.
        except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
                hint = "bring it back from a backup, if there is one; what it held is not counted"
                raise MissingFile(f"{self.uri}/{file.path} is gone", hint=hint) from error
            if isinstance(error, OSError) and not _is_damage(error):
                raise
            first = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise UnreadableFile(
                f"{self.uri}/{file.path} is not a readable Parquet file: {first[:120]}",
                hint="mm2mgr never commits half a file: check the storage",
            ) from error

    def read_or_warn(self, file: DataFile, columns: Sequence[str]) -> pa.Table | None:
        """Return columns of a file; None, with a warning, where it is damaged, gone, or cannot be reached."""
        try:
            return self.read_file(file, columns)
        except UnreadableFile as error:
            self._warn(f"{error.message}; left out")
        except OSError as error:
            self._warn(f"{self.uri}/{file.path} is not readable: {error.strerror or error}; left out")
        return None

    def no_rows(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns of no file, as `read_file` would."""
        text = pa.dictionary(pa.int32(), pa.string())
        kinds = [pa.field(name, text if name in STRINGS else self.schema.field(name).type) for name in columns]
        return pa.schema(kinds).empty_table()

    def _conform(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        converted = []
        for name in columns:
            kind = self.schema.field(name)
            if name not in table.column_names:
                if not kind.nullable:
                    raise pa.ArrowInvalid(f"it has no column {name}")
                column = pa.chunked_array([pa.nulls(len(table), kind.type)])
            else:
                column = table[name]
                if not kind.nullable and column.null_count:
                    raise pa.ArrowInvalid(f"its column {name} has nulls")
                if name not in STRINGS and column.type != kind.type:
                    column = column.cast(kind.type)  # an error where a value does not fit
            if name in STRINGS and not pa.types.is_dictionary(column.type):
                column = column.cast(pa.string()).dictionary_encode()
            converted.append(column)
        return pa.table(converted, names=list(columns))


def by_period(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Return files by their hour or day, in their order."""
    files_by_period: dict[str, list[DataFile]] = {}
    for file in files:
        files_by_period.setdefault(file.values[0], []).append(file)
    return files_by_period


def missing_table_error(uri: str) -> Mm2mgrError:
    """Return the error about a table that was there when this process began."""
    hint = "mount it again, and samples go on; to begin a new store, start `mm2mgr sample` again"
    return Mm2mgrError(f"the table {uri} is gone", hint=hint)


def _check_store(store: Store) -> Store:
    try:
        return store_of(store) if isinstance(store, str) else store
    except ValueError as error:
        raise Mm2mgrError(f"the store {store!r} {error}") from None


def _is_inside(path: str) -> bool:
    for text in (path, unquote(path)):
        if (
            not text.strip("/")
            or text.startswith(("/", "\\"))
            or "\0" in text
            or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text)
        ):
            return False
        if ".." in re.split(r"[/\\]", text):
            return False
    return True


def _is_damage(error: OSError) -> bool:
    return error.errno in (None, 5) and not isinstance(error, FileNotFoundError | PermissionError | ConnectionError)


def _partition_values(names: Sequence[str], file: DataFile) -> dict[str, str | None]:
    return dict(zip(names, file.values, strict=True))


class _Statistics:
    """Smallest value, largest value and nulls of each column of a file, as the table's log keeps them.

    All of them: the library takes a column without them for one that has no value, and readers lose its rows.
    """

    def __init__(self) -> None:
        self._low, self._high, self._nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()

    def add(self, table: pa.Table) -> None:
        """Count the rows of a part of the file."""
        for name, column in zip(table.column_names, table.columns, strict=True):
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if pa.types.is_list(column.type) or column.null_count == len(column):
                continue
            low, high = pc.min_max(column).as_py().values()
            if isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high)):
                low, high = -sys.float_info.max, sys.float_info.max
            self._low[name] = min(low, self._low.get(name, low))
            self._high[name] = max(high, self._high.get(name, high))

    def bounds(self) -> dict[str, tuple[str, str]]:
        """Return smallest and largest cluster and source."""
        return {name: (self._low[name], self._high[name]) for name in _BOUNDED if name in self._low}

    def text(self, rows: int) -> str:
        """Return them as the log has them."""
        counts = {"numRecords": rows, "nullCount": self._nulls}
        return json.dumps({**counts, "minValues": self._low, "maxValues": self._high})


def _to_disk(path: Path) -> None:
    with path.open("rb") as opened:
        os.fsync(opened.fileno())


TopicName = tuple[str, str]
"""Cluster and topic."""


@dataclass(frozen=True)
class Share:
    """The topics from `low` on, up to but not including `high` (None: to the last)."""

    low: TopicName = ("", "")
    high: TopicName | None = None

    def may_hold(self, group: pq.RowGroupMetaData) -> bool:
        """Tell from the metadata of a row group whether it can have rows of the share."""
        columns = [group.column(place) for place in range(group.num_columns)]
        limits = {
            column.path_in_schema: column.statistics
            for column in columns
            if column.path_in_schema in ("cluster", "topic")
        }
        if any(limit is None or not limit.has_min_max for limit in limits.values()) or len(limits) < 2:
            return True
        cluster, topic = limits["cluster"], limits["topic"]
        return (cluster.max, topic.max) >= self.low and (self.high is None or (cluster.min, topic.min) < self.high)

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of the share; `cluster` and `topic` are dictionaries."""
        if self == Share():
            return table
        return pa.Table.from_batches(
            [self._rows_inside(batch) for batch in table.to_batches() if len(batch)], table.schema
        )

    def _rows_inside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        clusters, cluster = codes_of(batch["cluster"])
        topics, topic = codes_of(batch["topic"])
        names = [[(str(name), str(of_it)) for of_it in topics] for name in clusters]
        inside = np.array(
            [[self.low <= name and (self.high is None or name < self.high) for name in row] for row in names]
        )
        if inside.all():
            return batch
        rows = np.flatnonzero(inside[cluster, topic])
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:  # sorted rows: nothing is copied
            return batch.slice(rows[0], len(rows))
        return batch.take(pa.array(rows))


def read_share(
    table: StoredTable, files: Iterable[DataFile], columns: Sequence[str], share: Share
) -> tuple[pa.Table, dict[str, str]]:
    """Return the rows of a share in the order of the files, and the reason for each file left out."""
    tables, unreadable = [table.no_rows(columns)], {}
    for file in files:
        try:
            tables.append(share.rows(table.read_file(file, columns, share.may_hold)))
        except UnreadableFile as error:
            if isinstance(error, MissingFile) and not is_remote(table.store):
                raise  # what has the file only on another machine must not be counted without it
            unreadable[f"{table.uri}/{file.path}"] = error.message
    return pa.concat_tables(tables), unreadable


def shares_of(table: StoredTable, files: Sequence[DataFile], rows_per_share: int) -> list[Share]:
    """Cut the topics in these files into shares of about as many rows; files that cannot be read count as nothing."""
    weights: dict[TopicName, float] = {}
    kinds: dict[tuple[str, str] | None, list[DataFile]] = {}
    if sum(file.rows for file in files) <= rows_per_share:
        return [Share()]
    for file in files:
        kinds.setdefault(file.bounds.get("cluster"), []).append(file)
    for alike in kinds.values():
        # The polls of a cluster are much alike: one represents all of them. Rewritten files have topics of their own.
        read = _representative(alike)
        scale = sum(share.rows for share in alike) / max(1, sum(share.rows for share in read))
        for file in read:
            try:
                names = table.read_file(file, ("cluster", "topic"))
            except UnreadableFile:
                continue
            for name, count in chain.from_iterable(map(_counts, names.to_batches())):
                weights[name] = weights.get(name, 0.0) + count * scale
    shares, low, held = [], ("", ""), 0.0
    for name in sorted(weights):
        if held and held + weights[name] > rows_per_share:
            shares.append(Share(low, name))
            low, held = name, 0.0
        held += weights[name]
    return [*shares, Share(low)]


def codes_of(column: pa.Array | pa.ChunkedArray) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """Return the strings of a dictionary column in one chunk, and their number for each row; null is a string, too."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    names: list[str | None] = list(whole.dictionary.to_pylist())
    if 0 < len(whole) == whole.indices.null_count:
        return [*names, None], np.full(len(whole), len(names), np.int32)
    codes = whole.indices.to_numpy(zero_copy_only=False)
    if (
        whole.indices.null_count
    ):  # nulls are NaN here; `fill_null` would load pyarrow.compute, which takes longer than small jobs
        codes = np.where(np.isnan(codes), len(names), codes).astype(np.int32)
        names.append(None)
    return names, codes


def _representative(alike: Sequence[DataFile]) -> Sequence[DataFile]:
    largest = max(alike, key=lambda share: share.rows)
    return [share for share in alike if 2 * share.rows > largest.rows] if len(alike) <= 8 else [largest]


def _counts(batch: pa.RecordBatch) -> Iterator[tuple[TopicName, int]]:
    clusters, cluster = codes_of(batch["cluster"])
    topics, topic = codes_of(batch["topic"])
    counts = np.bincount(cluster.astype(np.int64) * len(topics) + topic)
    for key in np.flatnonzero(counts).tolist():
        yield (str(clusters[key // len(topics)]), str(topics[key % len(topics)])), int(counts[key])

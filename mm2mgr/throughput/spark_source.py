"""The tables of mm2mgr as data sources of Spark: a frame of what is due, and the sink that puts it into its table.

`register(session)`, then `spark.read.format("mm2mgr.rollups").load(store)`, and
`frame.write.format("mm2mgr.throughput").mode("append").save(store)`. Each Python process of a job imports this module:
what reads and writes is imported only where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import TABLES, store_of
from mm2mgr.samples.schema import THROUGHPUT as _TABLE
from mm2mgr.throughput.sample_sources import PERIODS, TableReader, check_options, register_samples

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

ROLLUPS, THROUGHPUT = "mm2mgr.rollups", "mm2mgr.throughput"
"""The names of the formats."""
_KINDS = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "float64": "DOUBLE"}
_KINDS |= {"list<int16>": "ARRAY<SMALLINT>", "list<int32>": "ARRAY<INT>"}
_PERIOD_REPORT = "period_report"
ANSWER = "answer"
"""Option of the sink: a file that its commit writes what it made to, or its error, as JSON."""


def register(spark: SparkSession) -> None:
    """Give a session the formats `mm2mgr.rollups`, `mm2mgr.throughput` and `mm2mgr.samples`."""
    for source in (RollupSource, ThroughputSink):
        spark.dataSource.register(source)
    register_samples(spark)


def columns_of(table: str) -> str:
    """Return the columns of a table of mm2mgr as Spark declares them."""
    return ", ".join(f"{column.name} {_KINDS[column.type]}" for column in TABLES[table])


class _Task(InputPartition):
    """One unit of work."""


class _Message(WriterCommitMessage):
    """What one task wrote."""

    def __init__(self, written: Any) -> None:
        self.written = written


class RollupSource(DataSource):
    """Roll-ups of the hours or days that are due; options as of `RollupReader`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return ROLLUPS

    def schema(self) -> str:
        """Return the columns of the table `throughput`, and the report that the last row of a period has."""
        return f"{columns_of(_TABLE)}, {_PERIOD_REPORT} STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a store; Mm2mgrError for an option that it does not have."""
        return _Rollups(self.options)


class ThroughputSink(DataSource):
    """The table `throughput`, which takes frames of `mm2mgr.rollups`; the options `first` and `last` choose periods."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return THROUGHPUT

    def schema(self) -> str:
        """Return the columns of the table."""
        return columns_of(_TABLE)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a store's table; Mm2mgrError for an option that it does not have."""
        check_options(self.options, THROUGHPUT, *PERIODS)
        return TableReader(_store_in(self.options, THROUGHPUT), _TABLE, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a store; Mm2mgrError for a frame of something else, and an unknown option."""
        check_options(self.options, THROUGHPUT, ANSWER)
        expected = [*(column.name for column in TABLES[_TABLE]), _PERIOD_REPORT]
        if schema.names != expected or overwrite:
            raise Mm2mgrError(f"{THROUGHPUT} appends frames of {ROLLUPS} as they are, with all of their columns")
        if ANSWER not in self.options:  # a notebook, where nobody made sure that there is a table
            from mm2mgr.throughput.rollup import throughput_table

            throughput_table(_store_in(self.options, THROUGHPUT)).create()
        return _Throughput(self.options)


class _Rollups(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        from mm2mgr.throughput.rollup_reader import RollupReader

        check_options(options, ROLLUPS, *RollupReader.OPTIONS)
        options = {name.lower(): value for name, value in options.items()}
        store = _store_in(options, ROLLUPS)
        self._reader = RollupReader(store, **{name: options[name] for name in RollupReader.OPTIONS if name in options})

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(unit) for unit in self._reader.partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition.value) if isinstance(partition, _Task) else iter(())  # nothing is due


class _Throughput(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._store, self._answer = _store_in(options, THROUGHPUT), options.get(ANSWER)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from mm2mgr.throughput.rollup_writer import ThroughputWriter

        return _Message(ThroughputWriter(self._store).write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from mm2mgr.throughput.rollup_writer import ThroughputWriter

        written = [message.written for message in messages if isinstance(message, _Message)]
        try:
            report = ThroughputWriter(self._store).commit(written)
        except Mm2mgrError as error:
            self._tell({"error": [error.message, error.hint]})
            raise
        self._tell(asdict(report))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: files without a commit are deleted with those that no reader needs."""

    def _tell(self, answer: Mapping[str, object]) -> None:
        if self._answer:
            Path(self._answer).write_text(json.dumps(answer))


def _store_in(options: Mapping[str, str], format_name: str) -> str:
    """Return the store that a frame is loaded from or saved to, for every machine: a folder by its whole path."""
    try:
        store = store_of(options.get("path", ""))
    except ValueError as error:
        raise Mm2mgrError(f"{format_name}: the path {error}", hint="name a store in load() or save()") from None
    return store if isinstance(store, str) else str(store.absolute())

"""Samples as data sources of Spark: the table `samples` as `mm2mgr.samples`, to read, to append to and as the sink of a
stream; and Cruise Control's topic, to read whole or as a stream.

The objects that do the work (`SampleWriter`, `TopicReader`) know nothing of Spark. Kafka's settings go
inside of the class of a source, which Spark pickles: options of a source are printed with its plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import SAMPLES, TABLES, store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mm2mgr.samples.tables import DataFile
    from mm2mgr.samples.writer import SampleWriter, Written
    from mm2mgr.throughput.cruise_reader import Offsets, TopicReader

SAMPLES_FORMAT, TOPIC_FORMAT = "mm2mgr.samples", "mm2mgr.cruise-control-topic"
_BYTES_PER_TASK = 16_000_000
_KINDS = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "float64": "DOUBLE", "double": "DOUBLE"}
PERIODS = ("first", "last")
"""The options of a format that reads a table."""
_OF_SPARK = frozenset({"path", "paths", "checkpointlocation", "queryname"})
"""What Spark itself hands on among the options of a source and a sink, beside names that begin with two underscores."""


def check_options(options: Mapping[str, str], format_name: str, *valid: str) -> None:
    """Mm2mgrError for an option that a format does not have: Spark ignores what nobody asks for."""
    names = {*valid, *_OF_SPARK}
    unknown = sorted(name for name in map(str.lower, options) if name not in names and not name.startswith("__"))
    if unknown:
        has = f"it has {', '.join(valid)}" if valid else "it has none"
        raise Mm2mgrError(f"{format_name} has no option {', '.join(unknown)} here: {has}")


def register_samples(spark: SparkSession) -> None:
    """Make `mm2mgr.samples` known to a session."""
    spark.dataSource.register(SamplesSource)


def register_topic(spark: SparkSession, reader: TopicReader) -> None:
    """Make the sample topic of one cluster known as `mm2mgr.cruise-control-topic`, for `read` and `readStream`."""
    spark.dataSource.register(_topic_source(TOPIC_FORMAT, reader, None, None))


def append_on_spark(
    spark: SparkSession, reader: TopicReader, start: Offsets, end: Offsets, writer: SampleWriter
) -> None:
    """Read the sample topic between two offsets and append it by `writer`, both by tasks of Spark; Mm2mgrError when the
    job fails, and then nothing was appended."""
    from mm2mgr.throughput.spark_session import SPARK_ERRORS, failure

    source, sink = (f"{name}.{reader.cluster}" for name in (TOPIC_FORMAT, SAMPLES_FORMAT))  # clusters run side by side
    spark.dataSource.register(_topic_source(source, reader, start, end))
    spark.dataSource.register(_sink(sink, writer))
    try:
        spark.read.format(source).load().write.format(sink).mode("append").save(str(writer.store))
    except SPARK_ERRORS as error:
        raise failure(f"Spark could not read {reader.topic}", error) from error


# --- the table samples ------------------------------------------------------------------------------------------------


class SamplesSource(DataSource):
    """The table `samples` of the store that `load` or `save` names; the options `first` and `last` choose hours.

    A stream needs the option `app`, the name under which the table records its batches: a batch that comes again
    changes nothing. A stream that begins with a new checkpoint needs a new name.
    """

    @classmethod
    def name(cls) -> str:
        return SAMPLES_FORMAT

    def schema(self) -> str:
        return _ddl((column.name, column.type) for column in TABLES[SAMPLES])

    def reader(self, schema: StructType) -> DataSourceReader:
        check_options(self.options, SAMPLES_FORMAT, *PERIODS)
        return TableReader(self._store(), SAMPLES, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        check_options(self.options, SAMPLES_FORMAT)
        return _BatchWriter(self._writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        check_options(self.options, SAMPLES_FORMAT, "app")
        app = self.options.get("app")
        if not app:
            raise Mm2mgrError('a stream of samples has no name: add .option("app", "NAME")')
        return _StreamWriter(self._writer(schema, overwrite), str(app))

    def _writer(self, schema: StructType, overwrite: bool) -> SampleWriter:
        from mm2mgr.samples.writer import SampleWriter
        from mm2mgr.throughput.cruise_records import ONLY_HERE

        if overwrite:
            raise Mm2mgrError("samples are only appended", hint='write them with .mode("append")')
        writer = SampleWriter(self._store(), ignored=ONLY_HERE)
        writer.check(schema.fieldNames())
        writer.create()
        return writer

    def _store(self) -> str:
        try:
            store = store_of(self.options.get("path", ""))
        except ValueError as error:
            hint = f'name a store: spark.read.format("{SAMPLES_FORMAT}").load(STORE)'
            raise Mm2mgrError(f"the store {error}", hint=hint) from None
        return store if isinstance(store, str) else str(store.absolute())


class TableReader(DataSourceReader):
    """Reads the files of a table of a store; `first` and `last` are the periods to read, all
    where they are empty.

    It takes no filters from Spark: 4.3.0 keeps what one query pushes down in the frame, so that the next query on the
    same frame would miss rows.
    """

    def __init__(self, store: str, name: str, options: Mapping[str, str]) -> None:
        self._store, self._name = store, name
        self._first, self._last = options.get("first", ""), options.get("last", "")

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the periods, small ones together; Mm2mgrError where the store has no such table."""
        from mm2mgr.samples.tables import StoredTable

        table = StoredTable(self._store, self._name)
        if not table.exists():
            hint = "name the folder or URI that `mm2mgr sample --store` wrote to; a folder as the session sees it"
            raise Mm2mgrError(f"there is no table {table.uri}", hint=hint)
        tasks: list[list[DataFile]] = []
        room = 0
        for file in table.files():
            if self._first <= file.values[0] and (not self._last or file.values[0] <= self._last):
                if room <= 0:
                    tasks.append([])
                    room = _BYTES_PER_TASK
                tasks[-1].append(file)
                room -= file.size
        return [InputPartition(files) for files in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files; UnreadableFile where one of its files is damaged."""
        import pyarrow as pa

        from mm2mgr.samples.tables import StoredTable

        table = StoredTable(self._store, self._name)
        schema = pa.schema([pa.field(column.name, column.type) for column in table.schema])
        for file in _task_of(partition):
            rows = table.read_file(file, table.file_schema.names)
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            for name, value in zip(table.partitioned_by, file.values, strict=True):
                columns[name] = pa.chunked_array([pa.repeat(pa.scalar(value), len(rows))])
            whole = pa.table([columns[of.name].cast(of.type) for of in schema], schema=schema)
            yield from whole.combine_chunks().to_batches()


class _Message(WriterCommitMessage):
    def __init__(self, written: Written) -> None:
        self.written = written


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, writer: SampleWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Message(self._writer.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(_parts(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave files that are in no commit to the next vacuum."""


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: SampleWriter, app: str) -> None:
        self._writer, self._app = writer, app

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Message(self._writer.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # PySpark's name
        progress = {f"stream {self._app}": (batchId - 1, batchId)}
        replace(self._writer, progress=progress, label=f"{self._app} {batchId}").commit(_parts(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave files that are in no commit to the next vacuum."""


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[Written | None]:
    return [message.written if isinstance(message, _Message) else None for message in messages]


def _sink(name: str, writer: SampleWriter) -> type[DataSource]:
    """Return a sink that appends by this very writer; inside of the class, so that it appears in no plan."""

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            writer.check(schema.fieldNames())
            return _BatchWriter(writer)

    return Sink


# --- Cruise Control's topic -------------------------------------------------------------------------------------------


def _topic_source(name: str, reader: TopicReader, start: Offsets | None, end: Offsets | None) -> type[DataSource]:
    class SampleTopic(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            from mm2mgr.throughput.cruise_records import SCHEMA

            return _ddl((of.name, str(of.type)) for of in SCHEMA)

        def reader(self, schema: StructType) -> DataSourceReader:
            check_options(self.options, name)
            return _TopicBatchReader(reader, start, end)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            check_options(self.options, name)
            return _TopicStreamReader(reader)

    return SampleTopic


class _TopicBatchReader(DataSourceReader):
    def __init__(self, reader: TopicReader, start: Offsets | None, end: Offsets | None) -> None:
        self._reader, self._start, self._end = reader, start, end

    def partitions(self) -> Sequence[InputPartition]:
        start, end = self._start, self._end
        if start is None or end is None:
            bounds = self._reader.bounds()
            start = {number: low for number, (low, _) in bounds.items()}
            end = {number: high for number, (_, high) in bounds.items()}
        return [InputPartition(task) for task in self._reader.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(_task_of(partition))


class _TopicStreamReader(DataSourceStreamReader):
    """Offsets are Kafka's, {partition: next offset}, as text in JSON; a stream begins with the oldest record."""

    def __init__(self, reader: TopicReader) -> None:
        self._reader = reader

    def initialOffset(self) -> dict[str, int]:
        return {str(number): low for number, (low, _) in self._reader.bounds().items()}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # as in PySpark 4.1; later ones call it, too
        return {str(number): high for number, (_, high) in self._reader.bounds().items()}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        first, last = ({int(number): offset for number, offset in of.items()} for of in (start, end))
        return [InputPartition(task) for task in self._reader.partitions(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(_task_of(partition))


def _task_of(partition: InputPartition | None) -> Any:
    """Return what to read: nothing where there is no partition, which Spark reads all the same (4.1: None)."""
    return () if partition is None or partition.value is None else partition.value


def _ddl(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {_KINDS[kind]}" for name, kind in columns)

"""The two passes as data sources of Spark: partitions are tasks, rows are what a task yields as Arrow batches.

Tasks hold the clients' settings, secrets included. They go inside the pickled class, never as options: options stand in
plans, in Spark's UI and in event logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.window import Window

from mm2mgr.audit.blocks import RADIX
from mm2mgr.audit.scan import BLOCK, SCAN_SCHEMA
from mm2mgr.throughput.spark_session import SPARK_ERRORS

LOG_SOURCE = "mm2mgr.log"
_numbers, _free_names = count(), list[str]()
Run = Callable[[Any], Iterator[pa.RecordBatch]]
_TYPES = {pa.int8(): "tinyint", pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean", pa.string(): "string"}
_TYPES[pa.binary()] = "binary"
_SUMS = ("count", "sum", "weighted", "xor")


class TaskSource(DataSource):
    """Runs tasks and reads their rows; `read_tasks` makes a class of it that has the tasks."""

    tasks: Sequence[Any] = ()
    run: Run
    rows: pa.Schema

    format: str = LOG_SOURCE

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> str:
        return ", ".join(f"{field.name} {_TYPES[field.type]}" for field in self.rows)

    def reader(self, schema: object) -> DataSourceReader:
        return _TaskReader(tuple(self.tasks), type(self).run)


class _TaskReader(DataSourceReader):
    def __init__(self, tasks: Sequence[Any], run: Run) -> None:
        self._tasks, self._run = tasks, run

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(len(self._tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._tasks:  # Spark reads one partition of a source that has none
            yield from self._run(self._tasks[partition.value])


@contextmanager
def read_tasks(spark: SparkSession, tasks: Sequence[Any], run: Run, rows: pa.Schema) -> Iterator[DataFrame]:
    """Yield the rows of tasks as a frame, one partition per task; nothing runs until it is used.

    Spark never lets go of a source, so afterwards the name gets one without tasks, and the next reading gets the name:
    in a session that stays no settings of clients do.
    """
    # One name is of one source, in all sessions of a context.
    name = _free_names.pop() if _free_names else f"{LOG_SOURCE}.{next(_numbers)}"
    content = {"run": staticmethod(run), "rows": rows, "format": name}

    def register(own: Sequence[Any]) -> None:
        spark.dataSource.register(type("Tasks", (TaskSource,), {**content, "tasks": tuple(own)}))

    register(tasks)
    try:
        yield spark.read.format(name).load()
    finally:
        with suppress(*SPARK_ERRORS):  # the session may have ended
            register(())
        _free_names.append(name)


def different_blocks(rows: DataFrame, context: int, shares: int) -> DataFrame:
    """Join the blocks of ranges into those of whole logs and return, of each partition, those from the first that
    differs on, with so many before it (of equal logs none); rows of other kinds stay as they are.

    One shuffle by partition into so many shares, so one job of two stages: the windows need no other. Sums go modulo
    2^64, without ANSI.
    """
    is_block = F.col("kind") == BLOCK
    log = Window.partitionBy("part", "side", "kind").orderBy("first_offset")
    before = log.rowsBetween(Window.unboundedPreceding, -1)
    ranges = rows.repartition(shares, "part").withColumns(
        {
            "block": F.coalesce(F.sum(F.col("ends").cast("int")).over(before), F.lit(0)),
            "place": F.coalesce(F.sum("count").over(before), F.lit(0)),
            "begins": F.coalesce(F.lag("ends").over(log), F.lit(True)),
            "note_offset": F.when(is_block, 0).otherwise(F.col("first_offset")),
            "judged": is_block | F.col("judged"),
        }
    )
    first_place = F.max(F.when(F.col("begins"), F.col("place"))).over(log.rowsBetween(Window.unboundedPreceding, 0))
    whole = (
        ranges.withColumn("place", F.col("place") - first_place)
        .withColumn("weighted", F.expr(_AT_ITS_PLACE))
        .groupBy("part", "side", "kind", "text", "judged", "note_offset", "block")
        .agg(
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.sum("count").alias("count"),
            F.sum("sum").alias("sum"),
            F.sum("weighted").alias("weighted"),
            F.bit_xor("xor").alias("xor"),
            F.bool_or("ends").alias("ends"),
        )
    )
    sums, both_sides = F.struct(*_SUMS), Window.partitionBy("part", "kind", "block")
    is_alone = F.count("*").over(both_sides) < 2
    differs = is_block & (is_alone | (F.min(sums).over(both_sides) != F.max(sums).over(both_sides)))
    first_block = F.min(F.when(F.col("differs"), F.col("block"))).over(Window.partitionBy("part"))
    left = whole.withColumn("differs", differs).withColumn("first_block", first_block)
    return left.where(~is_block | (F.col("block") >= F.col("first_block") - context)).select(*SCAN_SCHEMA.names)


def _weighted_at_its_place() -> str:
    """Return in SQL `weighted` × RADIX^`place` modulo 2^64, for places below 2^40: Spark has no such power."""
    squares = [pow(RADIX, 1 << bit, 2**64) for bit in range(40)]
    signed = ", ".join(f"{square - 2**64 if square >= 2**63 else square}L" for square in squares)
    start = "named_struct('power', weighted, 'left', place)"
    step = "named_struct('power', state.power * if(state.left & 1 = 1, square, 1L), 'left', shiftright(state.left, 1))"
    power = f"aggregate(array({signed}), {start}, (state, square) -> {step}, state -> state.power)"
    return f"if(place = 0, weighted, {power})"  # but for the first block of a range all begin at 0


_AT_ITS_PLACE = _weighted_at_its_place()

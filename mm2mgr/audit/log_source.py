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
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.window import Window

from mm2mgr.audit.blocks import RADIX
from mm2mgr.audit.scan import BLOCK, SOURCE
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


def whole_blocks(rows: DataFrame) -> DataFrame:
    """Join the blocks of ranges into those of whole logs, numbered by `block`; sums go modulo 2^64, without ANSI."""
    log = Window.partitionBy("part", "side").orderBy("first_offset").rowsBetween(Window.unboundedPreceding, -1)
    inside = Window.partitionBy("part", "side", "block").orderBy("first_offset")
    inside = inside.rowsBetween(Window.unboundedPreceding, -1)
    numbered = rows.where(F.col("kind") == BLOCK).withColumn(
        "block", F.coalesce(F.sum(F.col("ends").cast("int")).over(log), F.lit(0))
    )
    before = F.coalesce(F.sum("count").over(inside), F.lit(0))
    joined = numbered.withColumn("weighted", F.col("weighted") * _power_of_radix(before))
    return joined.groupBy("part", "side", "block").agg(
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.min("min_time_ms").alias("min_time_ms"),
        F.max("max_time_ms").alias("max_time_ms"),
        F.sum("count").alias("count"),
        F.sum("sum").alias("sum"),
        F.sum("weighted").alias("weighted"),
        F.bit_xor("xor").alias("xor"),
        F.bool_or("ends").alias("ends"),
    )


def _power_of_radix(exponent: Column) -> Column:
    """Return RADIX to a power below 2^40, modulo 2^64: Spark has no such function."""
    power, square = F.lit(1).cast("bigint"), RADIX
    for bit in range(40):
        signed = square - 2**64 if square >= 2**63 else square
        power *= F.when(exponent.bitwiseAND(1 << bit) != 0, F.lit(signed)).otherwise(F.lit(1).cast("bigint"))
        square = square * square % 2**64
    return power


def different_blocks(blocks: DataFrame, context: int) -> DataFrame:
    """Return the blocks of each partition from the first difference on, with so many before it; of equal logs none."""
    sides = [
        blocks.where((F.col("side") == SOURCE) == is_source).select(
            "part", "block", *(F.col(name).alias(f"{name}_{is_source}".lower()) for name in _SUMS)
        )
        for is_source in (True, False)
    ]
    both = sides[0].join(sides[1], ["part", "block"], "full_outer")
    equal = F.lit(True)
    for name in _SUMS:
        equal &= F.col(f"{name}_true").eqNullSafe(F.col(f"{name}_false"))
    first = both.where(~equal).groupBy("part").agg(F.min("block").alias("first_block"))
    left = blocks.join(first, "part").where(F.col("block") >= F.col("first_block") - context)
    return left.drop("first_block").orderBy("part", "side", "block")

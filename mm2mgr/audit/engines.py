"""What runs the tasks of an audit: Spark, or processes of this machine. Both give the same answer.

Only blocks from the first difference on, and records that differ, come back to the caller.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from mm2mgr.audit.blocks import Blocks, join_blocks
from mm2mgr.audit.latest import LATEST_SCHEMA, RECORD, different_keys, different_keys_frame, latest
from mm2mgr.audit.scan import BLOCK, SCAN_SCHEMA, SOURCE, TARGET, ScanTask, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Run = Callable[[Any], Iterator[pa.RecordBatch]]
CONTEXT_BLOCKS = 2
_OFFSETS_OF_A_PROCESS = 200_000  # a process costs half a second to start


@dataclass(frozen=True)
class LogSums:
    """The two logs of one partition: blocks from the first that differs on (none: all are equal), and how many records
    were read of each, and in the window that is judged."""

    source: Blocks
    target: Blocks
    source_records: int
    target_records: int
    judged_records: int


@dataclass(frozen=True)
class Scanned:
    """Pass 1 by number of the partition; `notes` are rows of other kinds than blocks (SCAN_SCHEMA)."""

    parts: dict[int, LogSums]
    notes: list[dict[str, Any]]


@dataclass(frozen=True)
class Latest:
    """Compacted topics: the latest records of keys that differ (LATEST_SCHEMA), how many records were read by number of
    the partition and side, and rows of other kinds."""

    rows: pa.Table
    counts: dict[tuple[int, int], int]
    notes: list[dict[str, Any]]


class Engine(Protocol):
    """Runs tasks."""

    @property
    def name(self) -> str: ...

    @property
    def cores(self) -> int: ...

    def scan(self, tasks: Sequence[ScanTask], numbers: Sequence[int]) -> Scanned:
        """Read the logs of the partitions with these numbers and sum them up as blocks."""

    def latest(self, tasks: Sequence[ScanTask]) -> Latest:
        """Read logs and return the latest records of keys that differ."""

    def rows(self, tasks: Sequence[Any], run: Run, schema: pa.Schema) -> pa.Table:
        """Run tasks and return their rows."""


@dataclass(frozen=True)
class InProcess:
    """This process for little, else as many as there are cores."""

    processes: int = 0

    @property
    def cores(self) -> int:
        return self.processes or len(os.sched_getaffinity(0))

    @property
    def name(self) -> str:
        return f"in process, {self.cores} cores" if self.cores > 1 else "in process"

    def scan(self, tasks: Sequence[ScanTask], numbers: Sequence[int]) -> Scanned:
        return _join_ranges(self.rows(tasks, scan, SCAN_SCHEMA), numbers)

    def latest(self, tasks: Sequence[ScanTask]) -> Latest:
        table = self.rows(tasks, latest, LATEST_SCHEMA)
        counts: dict[tuple[int, int], int] = {}
        for part, side, count in zip(*(table.column(n).to_pylist() for n in ("part", "side", "records")), strict=True):
            counts[part, side] = counts.get((part, side), 0) + count
        kinds = np.array(table.column("kind").to_pylist(), dtype=object)
        return Latest(different_keys(table), counts, table.filter(pa.array(kinds != RECORD)).to_pylist())

    def rows(self, tasks: Sequence[Any], run: Run, schema: pa.Schema) -> pa.Table:
        offsets = sum(getattr(task, "offsets", 0) for task in tasks)
        if self.cores < 2 or len(tasks) < 2 or offsets < _OFFSETS_OF_A_PROCESS:
            return pa.Table.from_batches([batch for task in tasks for batch in run(task)], schema)
        with _pool(min(self.cores, len(tasks))) as pool:
            answers = [pool.submit(_pack_rows, run, task, schema) for task in tasks]
            tables = [pa.ipc.open_stream(done.result()).read_all() for done in as_completed(answers)]
        return pa.concat_tables([schema.empty_table(), *tables])


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """Start processes afresh: what a client of this one has open must not be inherited."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _pack_rows(run: Run, task: Any, schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in run(task):
            stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _join_ranges(table: pa.Table, numbers: Sequence[int]) -> Scanned:
    kinds = np.array(table.column("kind").to_pylist(), dtype=object)
    notes = table.filter(pa.array(kinds != BLOCK)).to_pylist()
    rows = table.filter(pa.array(kinds == BLOCK))
    part, side = (rows.column(name).to_numpy() for name in ("part", "side"))
    parts: dict[int, LogSums] = {}
    judged = rows.column("judged").to_numpy(zero_copy_only=False)
    for number in sorted(numbers):
        sides = [
            Blocks.from_arrow(rows.filter(pa.array((part == number) & (side == which)))) for which in (SOURCE, TARGET)
        ]
        inside = judged[(part == number) & (side == SOURCE)]
        whole = [join_blocks([_take(blocks, np.argsort(blocks.first_offset, kind="stable"))]) for blocks in sides]
        remaining = _from_first_difference(*whole)
        parts[number] = LogSums(*remaining, whole[0].records, whole[1].records, int(sides[0].count[inside].sum()))
    return Scanned(parts, notes)


def _from_first_difference(source: Blocks, target: Blocks) -> tuple[Blocks, Blocks]:
    left, right = source.fingerprints(), target.fingerprints()
    shorter = min(len(left), len(right))
    differs = np.flatnonzero(left[:shorter] != right[:shorter])
    if not len(differs) and len(left) == len(right):
        first = len(left)
    else:
        first = max(0, int(differs[0]) if len(differs) else shorter)
        first = max(0, first - CONTEXT_BLOCKS)
    rest = slice(first, None)
    return _take(source, rest), _take(target, rest)


def _take(blocks: Blocks, rows: Any) -> Blocks:
    return Blocks(*(getattr(blocks, column.name)[rows] for column in fields(Blocks)))


@contextmanager
def _persist(frame: DataFrame) -> Iterator[DataFrame]:
    rows = frame.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


@dataclass(frozen=True)
class OnSpark:
    """A session of Spark, as it is: local, a cluster, or what spark-submit started."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        return max(1, self.spark.sparkContext.defaultParallelism)

    @property
    def name(self) -> str:
        return f"Spark on {self.spark.sparkContext.master}"

    def scan(self, tasks: Sequence[ScanTask], numbers: Sequence[int]) -> Scanned:
        from pyspark.sql import functions as F

        from mm2mgr.audit.log_source import different_blocks, read_tasks, whole_blocks

        with read_tasks(self._session(), tasks, scan, SCAN_SCHEMA) as frame, _persist(frame) as rows:
            offset = F.when(F.col("kind") == BLOCK, 0).otherwise(F.col("first_offset")).alias("first_offset")
            groups = rows.groupBy("part", "side", "kind", "text", "judged", offset)
            answers = groups.agg(F.sum("count").alias("count")).toArrow().to_pylist()
            left = different_blocks(whole_blocks(rows), CONTEXT_BLOCKS).toArrow()
        part, side = (left.column(name).to_numpy() for name in ("part", "side"))
        counts: Counter[tuple[int, int, bool]] = Counter()
        for row in answers:
            if row["kind"] == BLOCK:
                counts[row["part"], row["side"], row["judged"]] += row["count"]

        def sums_of(number: int) -> LogSums:
            source, target = (
                Blocks.from_arrow(left.filter(pa.array((part == number) & (side == which))))
                for which in (SOURCE, TARGET)
            )
            judged, around = (counts[number, SOURCE, flag] for flag in (True, False))
            return LogSums(source, target, judged + around, counts[number, TARGET, True], judged)

        notes = [row for row in answers if row["kind"] != BLOCK]
        return Scanned({number: sums_of(number) for number in sorted(numbers)}, notes)

    def latest(self, tasks: Sequence[ScanTask]) -> Latest:
        from pyspark.sql import functions as F

        from mm2mgr.audit.log_source import read_tasks

        with read_tasks(self._session(), tasks, latest, LATEST_SCHEMA) as frame, _persist(frame) as rows:
            sums = rows.groupBy("part", "side").agg(F.sum("records").alias("records")).toArrow().to_pylist()
            notes = rows.where(F.col("kind") != RECORD).toArrow().to_pylist()
            table = different_keys_frame(rows).toArrow().cast(LATEST_SCHEMA)
        return Latest(table, {(row["part"], row["side"]): row["records"] for row in sums}, notes)

    def rows(self, tasks: Sequence[Any], run: Run, schema: pa.Schema) -> pa.Table:
        from mm2mgr.audit.log_source import read_tasks

        with read_tasks(self._session(), tasks, run, schema) as rows:
            return rows.toArrow().cast(schema)

    def _session(self) -> SparkSession:
        """Return a session with settings of its own over the same context: sums are to go round at 2^64."""
        spark = self.spark.newSession()
        spark.conf.set("spark.sql.ansi.enabled", "false")
        return spark

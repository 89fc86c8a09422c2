"""What runs the tasks of an audit: Spark, or processes of this machine. Both give the same answer.

Only blocks from the first difference on, and records that differ, come back to the caller.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.audit.blocks import Blocks, join_blocks
from mm2mgr.audit.latest import LATEST_SCHEMA, RECORD, different_keys, different_keys_frame, latest
from mm2mgr.audit.scan import BLOCK, READ, SCAN_SCHEMA, SOURCE, TARGET, ScanTask, scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[Any], Iterator[pa.RecordBatch]]
CONTEXT_BLOCKS = 2
_OFFSETS_OF_A_PROCESS = 200_000  # a process costs half a second to start
_ROWS_OF_A_SHARE = 100_000
_SETTINGS = {
    "spark.sql.ansi.enabled": "false",  # sums are to go round at 2^64
    # Plans of one shuffle over few rows: compiling and adapting them would take longer than running them.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


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
        return _latest(table, different_keys(table))

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
    def from_first_difference(sides: tuple[Blocks, Blocks]) -> tuple[Blocks, Blocks]:
        source, target = (join_blocks([blocks]) for blocks in sides)
        return _from_first_difference(source, target)

    return _sums_of_logs(table, numbers, from_first_difference)


def _sums_of_logs(
    table: pa.Table, numbers: Sequence[int], join: Callable[[tuple[Blocks, Blocks]], tuple[Blocks, Blocks]]
) -> Scanned:
    """Return pass 1 by its rows; `join` gets the blocks of both sides of a partition in the order of their offsets."""
    counts, notes, rows = _by_kind(table, BLOCK, "count")
    part, side = (rows.column(name).to_numpy() for name in ("part", "side"))

    def blocks_of_side(number: int, which: int) -> Blocks:
        blocks = Blocks.from_arrow(rows.filter(pa.array((part == number) & (side == which))))
        return _take(blocks, np.argsort(blocks.first_offset, kind="stable"))

    parts: dict[int, LogSums] = {}
    for number in sorted(numbers):
        left = join((blocks_of_side(number, SOURCE), blocks_of_side(number, TARGET)))
        judged, around = (counts[number, SOURCE, flag] for flag in (True, False))
        parts[number] = LogSums(*left, judged + around, counts[number, TARGET, True], judged)
    return Scanned(parts, notes)


def _latest(table: pa.Table, different: pa.Table) -> Latest:
    """Return what is known of compacted topics by rows of all kinds and the records that differ."""
    counts, notes, _ = _by_kind(table, RECORD, "records")
    return Latest(different, {place[:2]: count for place, count in counts.items()}, notes)


def _by_kind(
    table: pa.Table, kind: str, of: str
) -> tuple[Counter[tuple[int, int, bool]], list[dict[str, Any]], pa.Table]:
    """Return how many records were read by partition, side and whether they are judged, the rows of other kinds, and
    those of one kind."""
    is_kind = pc.equal(table.column("kind"), kind)
    counts: Counter[tuple[int, int, bool]] = Counter()
    notes = []
    for row in table.filter(pc.invert(is_kind)).to_pylist():
        if row["kind"] == READ:
            counts[row["part"], row["side"], row.get("judged", True)] += row[of]
        else:
            notes.append(row)
    return counts, notes, table.filter(is_kind)


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


@dataclass(frozen=True)
class OnSpark:
    """A session of Spark, as it is: local, a cluster, or what spark-submit started."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        return max(1, self.spark.sparkContext.defaultParallelism)

    @property
    def name(self) -> str:
        return f"on Spark ({self.spark.sparkContext.master})"

    def scan(self, tasks: Sequence[ScanTask], numbers: Sequence[int]) -> Scanned:
        from mm2mgr.audit.log_source import different_blocks, read_tasks

        rows = sum(scan_range.most_blocks for task in tasks for scan_range in task.ranges)
        with self._session() as spark, read_tasks(spark, tasks, scan, SCAN_SCHEMA) as frame:
            shares = min(len(numbers), self._shares(rows))
            table = different_blocks(frame, CONTEXT_BLOCKS, shares).toArrow()
        return _sums_of_logs(table, numbers, lambda sides: sides)

    def latest(self, tasks: Sequence[ScanTask]) -> Latest:
        from mm2mgr.audit.log_source import read_tasks

        with self._session() as spark, read_tasks(spark, tasks, latest, LATEST_SCHEMA) as frame:
            shares = self._shares(sum(task.offsets for task in tasks))
            table = different_keys_frame(frame, shares).toArrow().cast(LATEST_SCHEMA)
        different = table.filter(pc.equal(table.column("kind"), RECORD))
        return _latest(table, different.sort_by([(name, "ascending") for name in ("part", "key_hash", "side")]))

    def rows(self, tasks: Sequence[Any], run: Run, schema: pa.Schema) -> pa.Table:
        from mm2mgr.audit.log_source import read_tasks

        with self._session() as spark, read_tasks(spark, tasks, run, schema) as rows:
            return rows.toArrow().cast(schema)

    def _shares(self, rows: int) -> int:
        return max(self.cores, rows // _ROWS_OF_A_SHARE)

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """Yield a session with settings of its own over the same context.

        Spark looks formats up in the session that its thread used last: those of others are there again afterwards.
        """
        from mm2mgr.throughput.spark_session import SPARK_ERRORS

        spark = self.spark.newSession()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        try:
            yield spark
        finally:
            with suppress(*SPARK_ERRORS):  # the session may have ended
                self.spark.createDataFrame([], "nothing int")  # makes it the one that was used last

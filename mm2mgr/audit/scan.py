"""Pass 1 on one machine: ranges of logs are read and summed up as blocks, rows that Spark and this process share.

A task is what one consumer reads: ranges of several partitions of one cluster. Its rows are blocks, how many records
of a range were read, what transformations drop of the source's records, and why a range could not be read to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mm2mgr.audit.blocks import BLOCK_SCHEMA, Blocks, BlockSums
from mm2mgr.audit.reading import ReadFault, WindowReader
from mm2mgr.audit.records import records_of, signed_columns
from mm2mgr.audit.windows import LogAccess, LogWindow, RecordStep, as_mirrored
from mm2mgr.partitions import TopicPartition

SOURCE, TARGET = 0, 1
BLOCK, READ, DROPPED, FAULT = "block", "read", "dropped", "fault"
# Spark has no unsigned numbers: the same 64 bits go as signed ones.
_SIGNED = pa.schema([pa.field(f.name, pa.int64() if f.type == pa.uint64() else f.type) for f in BLOCK_SCHEMA])
_PLACE = [
    ("part", pa.int32()),
    ("side", pa.int32()),
    ("judged", pa.bool_()),
    ("kind", pa.string()),
    ("text", pa.string()),
]
SCAN_SCHEMA = pa.schema([*_PLACE, *_SIGNED])


@dataclass(frozen=True)
class ScanRange:
    """A range of one side of a partition that is compared; `part` is its number in the order.

    `fields` count; `steps` are what the flow's transformations do with records of a source; `judged` is whether its
    records are of the window, not only around it.
    """

    part: int
    side: int
    window: LogWindow
    bits: int
    fields: tuple[str, ...]
    steps: tuple[RecordStep, ...] = ()
    judged: bool = True

    @property
    def most_blocks(self) -> int:
        """About how many blocks its records make, and not fewer."""
        return 2 + ((self.window.end - self.window.first) >> max(0, self.bits - 1))


@dataclass(frozen=True)
class ScanTask:
    """What one consumer reads, no partition twice; `algorithm` is of `records_of`."""

    access: LogAccess
    ranges: tuple[ScanRange, ...]
    algorithm: str
    silence_seconds: float

    @property
    def offsets(self) -> int:
        """How many records it reads at most."""
        return sum(scan_range.window.end - scan_range.window.first for scan_range in self.ranges)


_TASKS_WITH_ROOM = 16


def tasks_of(
    ranges: Iterable[tuple[LogAccess, ScanRange]], offsets_per_task: int, algorithm: str, silence_seconds: float
) -> list[ScanTask]:
    """Share ranges out to tasks of about so many offsets each, those of one cluster together.

    A partition is in no task twice, so its ranges are in as many; those of all partitions share these, since a
    consumer takes a tenth of a second to start.
    """
    tasks: list[tuple[LogAccess, dict[TopicPartition, ScanRange]]] = []
    open_tasks: dict[tuple[str, bool], list[tuple[dict[TopicPartition, ScanRange], int]]] = {}
    for access, whole in ranges:
        window, with_room = whole.window, open_tasks.setdefault((access.alias, access.committed), [])
        for first in range(window.first, window.end, offsets_per_task):
            end = min(window.end, first + offsets_per_task)
            most = offsets_per_task - (end - first)
            fitting = (
                place for place, (task, size) in enumerate(with_room) if size <= most and window.partition not in task
            )
            place = next(fitting, None)
            task, size = ({}, 0) if place is None else with_room.pop(place)
            if place is None:
                tasks.append((access, task))
            task[window.partition] = replace(whole, window=LogWindow(window.partition, first, end))
            if size + end - first < offsets_per_task:
                with_room.append((task, size + end - first))
                del with_room[:-_TASKS_WITH_ROOM]
    return [ScanTask(access, tuple(task.values()), algorithm, silence_seconds) for access, task in tasks]


def scan(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Read the ranges of a task and yield their rows (SCAN_SCHEMA); what cannot be read is a row, nothing is raised."""
    ranges = {scan_range.window.partition: scan_range for scan_range in task.ranges}
    sums = {partition: BlockSums(scan_range.bits) for partition, scan_range in ranges.items()}
    dropped: dict[TopicPartition, Counter[str]] = {partition: Counter() for partition in ranges}
    reader = WindowReader(task.access, [scan_range.window for scan_range in task.ranges], task.silence_seconds)
    for answer in reader:
        if isinstance(answer, tuple):
            window, messages = answer
            scan_range = ranges[window.partition]
            if scan_range.steps:
                messages = list(as_mirrored(messages, scan_range.steps, dropped[window.partition]))
            sums[window.partition].add(records_of(messages, scan_range.fields, task.algorithm))
            continue
        scan_range = ranges[answer.window.partition]
        blocks = sums.pop(answer.window.partition).blocks()
        yield _rows(scan_range, blocks)
        yield _row(scan_range, READ, "", blocks.records, scan_range.window.first)
        for says, count in dropped[answer.window.partition].items():
            yield _row(scan_range, DROPPED, says, count, answer.window.first)
        if isinstance(answer, ReadFault):
            yield _row(scan_range, FAULT, answer.reason, 0, answer.offset)


def _rows(scan_range: ScanRange, blocks: Blocks) -> pa.RecordBatch:
    return _with_place(scan_range, BLOCK, "", signed_columns(blocks, BLOCK_SCHEMA))


def _row(scan_range: ScanRange, kind: str, text: str, count: int, offset: int) -> pa.RecordBatch:
    numbers = {"first_offset": offset, "last_offset": offset, "count": count}
    row = [{field.name: numbers.get(field.name, False if field.name == "ends" else 0) for field in _SIGNED}]
    return _with_place(scan_range, kind, text, pa.RecordBatch.from_pylist(row, _SIGNED).columns)


def _with_place(scan_range: ScanRange, kind: str, text: str, columns: list[pa.Array]) -> pa.RecordBatch:
    count = len(columns[0])
    places = [
        pa.array(np.full(count, scan_range.part, np.int32)),
        pa.array(np.full(count, scan_range.side, np.int32)),
        pa.array(np.full(count, scan_range.judged)),
        pa.array([kind] * count, pa.string()),
        pa.array([text] * count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays([*places, *columns], schema=SCAN_SCHEMA)

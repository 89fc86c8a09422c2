"""Pass 2 on one machine: a gap, where the blocks of two logs differ, is read again on both sides and compared record by
record; and source records are looked for that a target has once more.

Rows are records without a partner, and why something could not be read. They are all that leaves the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.audit.differences import CLOSED, Edges, Unmatched, compare_gap
from mm2mgr.audit.reading import ClientRefused, LogConsumer, ReadFault, WindowReader
from mm2mgr.audit.records import RECORD_SCHEMA, Records, records_of, signed_columns
from mm2mgr.audit.scan import SOURCE, TARGET, ScanRange
from mm2mgr.audit.windows import LogAccess, as_mirrored

REST, FAULT, COPY, DOUBT, REPEATS = "rest", "fault", "copy", "doubt", "repeats"
_SIGNED = [pa.field(f.name, pa.int64()) for f in RECORD_SCHEMA]
_HEAD = [("part", pa.int32()), ("kind", pa.string()), ("text", pa.string())]
_TAIL = [("is_target", pa.bool_()), ("place", pa.int64()), ("copy_of", pa.int64()), ("before_ms", pa.int64())]
GAP_SCHEMA = pa.schema([*_HEAD, *_SIGNED, *_TAIL, ("edge", pa.int8()), ("value", pa.binary())])
_AT_ONCE = 200_000  # offsets of gaps that are read at once
LEADS, TRAILS = 1, 2
"""Flags of `edge`: a source record before the first that has a partner, or behind the last."""


_Values = tuple[Sequence[bytes | None], Sequence[bytes | None]]


@dataclass(frozen=True)
class LogSide:
    """One log of a gap: how it is read, and the range of it."""

    access: LogAccess
    range: ScanRange


@dataclass(frozen=True)
class GapTask:
    """A gap of one partition. With `wanted_hashes`, only records of one log, `source`, with these are looked for."""

    source: LogSide
    target: LogSide | None
    algorithm: str
    silence_seconds: float
    edges: Edges = CLOSED
    show_values: bool = False
    wanted_hashes: npt.NDArray[np.uint64] | None = field(default=None, compare=False)


class _Unreadable(Exception):
    """Why a side could not be read to its end."""

    def __init__(self, side: LogSide, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.side, self.offset, self.reason = side, offset, reason


def compare(tasks: Sequence[GapTask]) -> Iterator[pa.RecordBatch]:
    """Read gaps, those close to each other at once, and yield their rows (GAP_SCHEMA); what cannot be read is a row,
    nothing is raised."""
    with _Consumers() as consumers:
        for close_tasks in _close_together(tasks):
            yield from _compare(close_tasks, consumers)


def _close_together(tasks: Sequence[GapTask]) -> Iterator[list[GapTask]]:
    """Yield gaps of one partition that are read at once: a client fetches a megabyte, however little is asked for."""
    group: list[GapTask] = []
    for task in tasks:
        if group and not _is_close(group[0], task):
            yield group
            group = []
        group.append(task)
    if group:
        yield group


def _is_close(first: GapTask, task: GapTask) -> bool:
    if first.target is None or task.target is None or first.source.range.part != task.source.range.part:
        return False
    sides = ((first.source, task.source), (first.target, task.target))
    return all(
        one_side.range.window.first <= other_side.range.window.first
        and other_side.range.window.end - one_side.range.window.first <= _AT_ONCE
        for one_side, other_side in sides
    )


@dataclass
class _Consumers:
    """The consumers of gaps, one for each cluster: a gap is often read faster than a connection opened."""

    opened: dict[tuple[str, bool], LogConsumer] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self.opened.values():
            consumer.close()

    def consumer_of(self, access: LogAccess) -> LogConsumer:
        """Return the one of a cluster; ClientRefused where the settings are wrong."""
        place = access.alias, access.committed
        if place not in self.opened:
            self.opened[place] = LogConsumer(access)
        return self.opened[place]


def _compare(tasks: Sequence[GapTask], consumers: _Consumers) -> Iterator[pa.RecordBatch]:
    first, last = tasks[0], tasks[-1]
    part, source_side, target_side = first.source.range.part, _up_to(first.source, last.source), None
    try:
        if first.wanted_hashes is not None:
            equal_records, _ = _read(first, source_side, consumers, values=False)
            found_records = equal_records.take(np.isin(equal_records.hash, first.wanted_hashes))
            yield _copy_rows(part, found_records, is_target=first.source.range.side == TARGET)
            return
        assert first.target is not None
        assert last.target is not None
        target_side = _up_to(first.target, last.target)
        sources = _read(first, source_side, consumers, values=first.show_values)
        targets = _read(first, target_side, consumers, values=first.show_values)
    except _Unreadable as error:
        name = "source" if error.side.range.side == SOURCE else "target"
        text = f"the {name}'s records from offset {error.offset} on could not be read again: {error.reason}"
        yield _note(part, FAULT, text)
        return
    for task in tasks:
        assert task.target is not None
        source, source_values = _cut(*sources, task.source)
        target, target_values = _cut(*targets, task.target)
        rest = compare_gap(source, target, task.edges)
        yield _rest(task, rest, source, target, (source_values, target_values))
        for low, high in rest.doubts.spans if rest.doubts else ():
            yield _note(part, DOUBT, "", low, high)
        if rest.doubts and rest.doubts.repeats:
            yield _note(part, REPEATS, "")


def _up_to(first: LogSide, last: LogSide) -> LogSide:
    """Return a range from the start of one to the end of another."""
    window = replace(first.range.window, end=max(first.range.window.end, last.range.window.end))
    return replace(first, range=replace(first.range, window=window))


def _cut(records: Records, values: list[bytes | None], side: LogSide) -> tuple[Records, list[bytes | None]]:
    window = side.range.window
    first, end = np.searchsorted(records.offset, [window.first, window.end]).tolist()
    return records.take(slice(first, end)), values[first:end]


def _read(task: GapTask, side: LogSide, consumers: _Consumers, *, values: bool) -> tuple[Records, list[bytes | None]]:
    parts: list[Records] = []
    values_read: list[bytes | None] = []
    wanted_hashes, steps = task.wanted_hashes, side.range.steps
    window = side.range.window
    try:
        log = consumers.consumer_of(side.access)
    except ClientRefused as error:
        raise _Unreadable(side, window.first, str(error)) from error
    for answer in WindowReader(side.access, [window], task.silence_seconds, log):
        if isinstance(answer, ReadFault):
            raise _Unreadable(side, answer.offset, answer.reason)
        if not isinstance(answer, tuple):
            continue
        messages = list(as_mirrored(answer[1], steps, Counter())) if steps else answer[1]
        records = records_of(messages, side.range.fields, task.algorithm)
        if wanted_hashes is not None:
            records = records.take(np.isin(records.hash, wanted_hashes))
        parts.append(records)
        if values:
            values_read += [message.value() for message in messages]
    return Records.join(parts), values_read


def _rest(task: GapTask, rest: Unmatched, source: Records, target: Records, values: _Values) -> pa.RecordBatch:
    rows = rest.to_arrow()
    source_rows = np.searchsorted(source.offset, rest.source.offset)
    target_rows = np.searchsorted(target.offset, rest.target.offset)
    newest = np.maximum.accumulate(target.time_ms) if len(target) else target.time_ms
    before = np.where(target_rows > 0, newest[np.maximum(target_rows - 1, 0)], -1) if len(target) else target_rows
    texts: list[bytes | None] = [None] * rows.num_rows
    if values[0] or values[1]:
        texts = [values[0][row] for row in source_rows.tolist()] + [values[1][row] for row in target_rows.tolist()]
    columns = {name: rows.column(name) for name in rows.schema.names}
    signed = [pa.array(columns[f.name].to_numpy(zero_copy_only=False).view(np.int64), pa.int64()) for f in _SIGNED]
    edges = np.concatenate([_edges(rest, source, task.edges.due), np.zeros(len(rest.target), np.int8)])
    times = np.concatenate([np.full(len(rest.source), -1), before]).astype(np.int64)
    arrays = [
        *signed,
        *(columns[name] for name in ("is_target", "place", "copy_of")),
        pa.array(times),
        pa.array(edges, pa.int8()),
        pa.array(texts, pa.binary()),
    ]
    return _in_schema(task.source.range.part, REST, "", arrays, rows.num_rows)


def _edges(rest: Unmatched, source: Records, due: int | None) -> npt.NDArray[np.int8]:
    """Tell which source records without a partner are before the first that surely has one, or behind the
    last."""
    partners = np.setdiff1d(source.offset, rest.source.offset, assume_unique=True)
    if due is not None:
        partners = partners[partners < due]
    first, last = (partners[0], partners[-1]) if len(partners) else (np.iinfo(np.int64).max, -1)
    if rest.doubts is not None:
        first = max(first, rest.doubts.sure_from)
    flags = LEADS * (rest.source.offset < first) + TRAILS * (rest.source.offset > last)
    return flags.astype(np.int8)


def _copy_rows(part: int, records: Records, *, is_target: bool) -> pa.RecordBatch:
    count = len(records)
    signed = signed_columns(records, RECORD_SCHEMA)
    zeros = pa.array(np.zeros(count, np.int64))
    flags, edges = pa.array(np.full(count, is_target)), pa.array(np.zeros(count, np.int8))
    return _in_schema(part, COPY, "", [*signed, flags, zeros, zeros, zeros, edges, pa.nulls(count, pa.binary())], count)


def _note(part: int, kind: str, text: str, offset: int = 0, place: int = 0) -> pa.RecordBatch:
    zero, first, second = (pa.array(np.full(1, number, np.int64)) for number in (0, offset, place))
    signed = [first, *[zero] * (len(_SIGNED) - 1)]
    flags, edges = pa.array(np.zeros(1, np.bool_)), pa.array(np.zeros(1, np.int8))
    return _in_schema(part, kind, text, [*signed, flags, second, zero, zero, edges, pa.nulls(1, pa.binary())], 1)


def _in_schema(part: int, kind: str, text: str, arrays: list[pa.Array], count: int) -> pa.RecordBatch:
    head = [pa.array(np.full(count, part, np.int32)), pa.array([kind] * count, pa.string())]
    return pa.RecordBatch.from_arrays([*head, pa.array([text] * count, pa.string()), *arrays], schema=GAP_SCHEMA)

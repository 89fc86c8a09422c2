"""Compacted topics: of each key the latest record of both logs, compared.

Compaction runs on each side by itself, so older records of a key may be gone on either, and a tombstone after its time.
Records behind the judged window (the tail) are all looked at: the target may have any of them already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mm2mgr.audit.differences import altered_fields
from mm2mgr.audit.reading import ReadFault, WindowReader
from mm2mgr.audit.records import NULL_HASH, RECORD_SCHEMA, Records, key_text, records_of
from mm2mgr.audit.report import DifferenceKind, RecordDifference
from mm2mgr.audit.scan import DROPPED, FAULT, SOURCE, TARGET, Counter, ScanRange, ScanTask, as_mirrored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAIL = 2
RECORD = "record"
_PLACE = [("part", pa.int32()), ("side", pa.int32()), ("kind", pa.string()), ("text", pa.string())]
LATEST_SCHEMA = pa.schema([*_PLACE, *(pa.field(f.name, pa.int64()) for f in RECORD_SCHEMA), ("records", pa.int64())])
_NUMBERS = LATEST_SCHEMA.names[len(_PLACE) :]
_BATCHES = 32


def latest(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Read ranges and yield the latest record of each key (LATEST_SCHEMA), of a tail all; `records`, of the first row,
    is how many were read."""
    ranges = {each.window.partition: each for each in task.ranges}
    parts: dict[Any, list[Records]] = {partition: [] for partition in ranges}
    counts, dropped = dict.fromkeys(ranges, 0), {partition: Counter[str]() for partition in ranges}
    for answer in WindowReader(task.access, [each.window for each in task.ranges], task.silence_seconds):
        if isinstance(answer, tuple):
            window, messages = answer
            each = ranges[window.partition]
            if each.steps:
                messages = list(as_mirrored(messages, each.steps, dropped[window.partition]))
            counts[window.partition] += len(messages)
            own = parts[window.partition]
            own.append(records_of(messages, each.fields, task.algorithm))
            if each.side != TAIL and len(own) >= _BATCHES:
                parts[window.partition] = [_last_of_keys(Records.joined(own))]
            continue
        partition = answer.window.partition
        each, records = ranges[partition], Records.joined(parts.pop(partition))
        kept = records if each.side == TAIL else _last_of_keys(records)
        yield _rows(each, kept, counts[partition])
        for says, count in dropped[partition].items():
            yield _note(each, DROPPED, says, count)
        if isinstance(answer, ReadFault):
            yield _note(each, FAULT, answer.reason, answer.offset)


def _last_of_keys(records: Records) -> Records:
    _, rows = np.unique(records.key_hash[::-1], return_index=True)
    return records.take(np.sort(len(records) - 1 - rows))


def _rows(each: ScanRange, records: Records, count: int) -> pa.RecordBatch:
    columns = [pa.array(getattr(records, f.name).view(np.int64), pa.int64()) for f in RECORD_SCHEMA]
    counts = np.zeros(len(records), np.int64)
    counts[:1] = count
    return _placed(each, RECORD, "", [*columns, pa.array(counts)])


def _note(each: ScanRange, kind: str, text: str, number: int) -> pa.RecordBatch:
    zero = pa.array(np.zeros(1, np.int64))
    return _placed(each, kind, text, [pa.array([number], pa.int64()), *[zero] * (len(_NUMBERS) - 1)])


def _placed(each: ScanRange, kind: str, text: str, columns: list[pa.Array]) -> pa.RecordBatch:
    count = len(columns[0])
    place = [pa.array(np.full(count, number, np.int32)) for number in (each.part, each.side)]
    texts = [pa.array([each_text] * count, pa.string()) for each_text in (kind, text)]
    return pa.RecordBatch.from_arrays([*place, *texts, *columns], schema=LATEST_SCHEMA)


def different_keys(rows: pa.Table) -> pa.Table:
    """Return the latest records of keys that differ, with those of the tail; and one row per side for the counts."""
    table = rows.filter(pa.array([kind == RECORD for kind in rows.column("kind").to_pylist()], pa.bool_()))
    columns = {name: table.column(name).to_numpy() for name in ("part", "side", "key_hash", "offset", "hash")}
    order = np.lexsort((columns["offset"], columns["side"], columns["key_hash"], columns["part"]))
    part, side, key, hashes = (columns[name][order] for name in ("part", "side", "key_hash", "hash"))
    ends = np.ones(len(order), np.bool_)
    ends[:-1] = (part[1:] != part[:-1]) | (key[1:] != key[:-1]) | (side[1:] != side[:-1])
    is_last = ends & (side != TAIL)
    chosen = np.flatnonzero(is_last)
    pair = np.zeros(len(order), np.bool_)  # the source's latest right before the target's, of one key, and the same
    both = (np.diff(part[chosen]) == 0) & (np.diff(key[chosen]) == 0) & (np.diff(hashes[chosen]) == 0)
    pair[chosen[:-1][both]] = pair[chosen[1:][both]] = True
    different = {(int(part[row]), int(key[row])) for row in chosen.tolist() if not pair[row]}
    stays = [
        (bool(is_last[row]) or side[row] == TAIL) and (int(part[row]), int(key[row])) in different
        for row in range(len(order))
    ]
    return table.take(pa.array(order[np.array(stays, np.bool_)]))


def different_keys_frame(rows: DataFrame) -> DataFrame:
    """Return the same as a frame."""
    from pyspark.sql import functions as F

    records = rows.where(F.col("kind") == RECORD)
    place = ["part", "key_hash"]
    others = [name for name in _NUMBERS if name not in ("key_hash", "offset")]
    newest = F.max(F.struct("offset", *others)).alias("newest")
    last = records.where(F.col("side") != TAIL).groupBy(*place, "side").agg(newest)
    different = last.groupBy(*place).agg(
        F.count("*").alias("sides"), F.min("newest.hash").alias("low"), F.max("newest.hash").alias("high")
    )
    different = different.where((F.col("sides") < 2) | (F.col("low") != F.col("high"))).select(*place)  # noqa: PLR2004
    names = LATEST_SCHEMA.names
    flat = last.select(*place, "side", "newest.*").withColumn("kind", F.lit(RECORD)).withColumn("text", F.lit(""))
    tail = records.where(F.col("side") == TAIL)
    return flat.select(*names).unionByName(tail.select(*names)).join(different, place).select(*names)


def compare_latest(rows: pa.Table, counted: tuple[str, ...], eaten: tuple[int, int]) -> tuple[
    list[RecordDifference], list[str]
]:
    """Say what differs of one partition's keys, and what cannot be judged.

    `eaten`: the log starts of source and target: above 0 retention has removed records too, of whatever key.
    """
    sides = rows.column("side").to_numpy()
    records = [_records(rows.filter(pa.array(sides == side))) for side in (SOURCE, TARGET, TAIL)]
    source, target = ({int(key): row for row, key in enumerate(each.key_hash)} for each in records[:2])
    later: dict[int, set[int]] = {}
    for key, number in zip(records[2].key_hash.tolist(), records[2].hash.tolist(), strict=True):
        later.setdefault(int(key), set()).add(int(number))
    found: list[RecordDifference] = []
    gone = [0, 0]
    for key in sorted(source.keys() | target.keys()):
        before, after = source.get(key), target.get(key)
        if after is not None and int(records[1].hash[after]) in later.get(key, ()):
            continue
        kind = DifferenceKind.ALTERED
        if after is None:
            if records[0].value_hash[before] == NULL_HASH or key in later:
                continue
            if eaten[1] > 0:
                gone[1] += 1
                continue
            kind = DifferenceKind.MISSING
        elif before is None:
            if records[1].value_hash[after] == NULL_HASH or key in later:
                continue
            if eaten[0] > 0:
                gone[0] += 1
                continue
            kind = DifferenceKind.EXTRA
        found.append(_difference(kind, records[0], before, records[1], after, counted))
    texts = ("the source has no record of {} keys of the target", "the target has no record of {} keys of the source")
    why = [
        f"{text.format(count)}, and retention has removed records there"
        for text, count in zip(texts, gone, strict=True)
        if count
    ]
    return sorted(found, key=lambda each: (each.source_offset is None, each.source_offset or 0, each.target_offset or 0)), why


def _records(rows: pa.Table) -> Records:
    columns = {f.name: rows.column(f.name).to_numpy() for f in RECORD_SCHEMA}
    return Records(*(columns[f.name].view(np.uint64) if f.type == pa.uint64() else columns[f.name] for f in RECORD_SCHEMA))


def _difference(
    kind: DifferenceKind, source: Records, before: int | None, target: Records, after: int | None, counted: tuple[str, ...]
) -> RecordDifference:
    records, row = (source, before) if before is not None else (target, after)
    assert row is not None
    fields = altered_fields(source, before, target, after, counted) if before is not None and after is not None else ()
    return RecordDifference(
        kind,
        None if before is None else int(source.offset[before]),
        None if after is None else int(target.offset[after]),
        int(records.time_ms[row]),
        key_text(int(records.key_hash[row])),
        fields,
        note="the latest record of this key" if kind is DifferenceKind.ALTERED else "",
    )

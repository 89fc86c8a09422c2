"""Compacted topics: of each key the latest record of both logs, read range by range and compared where they differ.

Runs like pass 1: rows are the latest records of a range, and why it could not be read. No transformation drops
any of them (`expectation`): which record of a key was the latest before would be unknown once compaction has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mm2mgr.audit.latest_records import LatestRecords
from mm2mgr.audit.reading import ReadFault, WindowReader
from mm2mgr.audit.records import RECORD_SCHEMA, Records, records_of, signed_columns
from mm2mgr.audit.scan import FAULT, READ, SOURCE, ScanRange, ScanTask
from mm2mgr.audit.windows import as_mirrored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = "record"
_PLACE = [("part", pa.int32()), ("side", pa.int32()), ("kind", pa.string()), ("text", pa.string())]
_NUMBERS = [*RECORD_SCHEMA.names, "records"]
LATEST_SCHEMA = pa.schema([*_PLACE, *((name, pa.int64()) for name in _NUMBERS)])


def latest(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Read ranges and yield the latest record of each key (LATEST_SCHEMA), and for each range how many `records` were
    read."""
    ranges = {scan_range.window.partition: scan_range for scan_range in task.ranges}
    newest = {partition: LatestRecords() for partition in ranges}
    counts, dropped = dict.fromkeys(ranges, 0), Counter[str]()
    for answer in WindowReader(task.access, [scan_range.window for scan_range in task.ranges], task.silence_seconds):
        if isinstance(answer, tuple):
            window, messages = answer
            scan_range = ranges[window.partition]
            if scan_range.steps:
                messages = list(as_mirrored(messages, scan_range.steps, dropped))
            counts[window.partition] += len(messages)
            newest[window.partition].add(records_of(messages, scan_range.fields, task.algorithm))
            continue
        partition = answer.window.partition
        scan_range = ranges[partition]
        yield _rows(scan_range, newest.pop(partition).records())
        yield _row(scan_range, READ, "", offset=scan_range.window.first, records=counts[partition])
        if isinstance(answer, ReadFault):
            yield _row(scan_range, FAULT, answer.reason, offset=answer.offset)


def _rows(scan_range: ScanRange, records: Records) -> pa.RecordBatch:
    columns = signed_columns(records, RECORD_SCHEMA)
    return _in_schema(scan_range, RECORD, "", [*columns, pa.array(np.zeros(len(records), np.int64))])


def _row(scan_range: ScanRange, kind: str, text: str, **numbers: int) -> pa.RecordBatch:
    columns = [pa.array([numbers.get(name, 0)], pa.int64()) for name in _NUMBERS]
    return _in_schema(scan_range, kind, text, columns)


def _in_schema(scan_range: ScanRange, kind: str, text: str, columns: list[pa.Array]) -> pa.RecordBatch:
    count = len(columns[0])
    place = [pa.array(np.full(count, number, np.int32)) for number in (scan_range.part, scan_range.side)]
    texts = [pa.array([each_text] * count, pa.string()) for each_text in (kind, text)]
    return pa.RecordBatch.from_arrays([*place, *texts, *columns], schema=LATEST_SCHEMA)


def different_keys(rows: pa.Table) -> pa.Table:
    """Return the latest records of keys that differ, or that only one side has."""
    table = rows.filter(pa.array([kind == RECORD for kind in rows.column("kind").to_pylist()], pa.bool_()))
    names = ("part", "side", "key_hash", "offset", "hash")
    part, side, key, offset, hashes = (table.column(name).to_numpy() for name in names)
    order = np.lexsort((offset, side, key, part))
    part, side, key, hashes = part[order], side[order], key[order], hashes[order]
    same_key = (np.diff(part) == 0) & (np.diff(key) == 0)
    newest = np.flatnonzero(np.append(~(same_key & (np.diff(side) == 0)), np.ones(min(1, len(order)), np.bool_)))
    pairs = (np.diff(part[newest]) == 0) & (np.diff(key[newest]) == 0) & (np.diff(hashes[newest]) == 0)
    differs = np.ones(len(newest), np.bool_)
    differs[:-1][pairs] = differs[1:][pairs] = False
    return table.take(pa.array(order[newest[differs]]))


def different_keys_frame(rows: DataFrame, shares: int) -> DataFrame:
    """Return the same as a frame, by one shuffle into so many shares; rows of other kinds stay as they are."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    is_record = F.col("kind") == RECORD
    others = [name for name in _NUMBERS if name not in ("key_hash", "offset")]
    place = ["part", "side", "kind", "text", "key_hash"]
    note_offset = F.when(is_record, 0).otherwise(F.col("offset"))
    newest = (
        rows.repartition(shares, "part", "key_hash")
        .groupBy(*place, note_offset.alias("note_offset"))
        .agg(F.max(F.struct("offset", *others)).alias("newest"))
        .select(*place, "newest.*")
    )
    both_sides = Window.partitionBy("part", "kind", "key_hash")
    is_alone = F.count("*").over(both_sides) < 2
    differs = is_alone | (F.min("hash").over(both_sides) != F.max("hash").over(both_sides))
    return newest.withColumn("differs", differs).where(~is_record | F.col("differs")).select(*LATEST_SCHEMA.names)


def sides_of(rows: pa.Table) -> tuple[Records, Records]:
    """Return the records of both sides of one partition, source first."""
    is_source = rows.column("side").to_numpy() == SOURCE
    source, target = (Records.from_arrow(rows.filter(pa.array(flags))) for flags in (is_source, ~is_source))
    return source, target

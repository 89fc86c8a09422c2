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
from mm2mgr.audit.scan import FAULT, SOURCE, ScanRange, ScanTask, as_mirrored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = "record"
_PLACE = [("part", pa.int32()), ("side", pa.int32()), ("kind", pa.string()), ("text", pa.string())]
_NUMBERS = [*RECORD_SCHEMA.names, "records"]
LATEST_SCHEMA = pa.schema([*_PLACE, *((name, pa.int64()) for name in _NUMBERS)])


def latest(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Read ranges and yield the latest record of each key (LATEST_SCHEMA); `records`, of the first row of a range, is
    how many were read."""
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
        yield _rows(scan_range, newest.pop(partition).records(), counts[partition])
        if isinstance(answer, ReadFault):
            yield _fault(scan_range, answer)


def _rows(scan_range: ScanRange, records: Records, count: int) -> pa.RecordBatch:
    columns = signed_columns(records, RECORD_SCHEMA)
    counts = np.zeros(len(records), np.int64)
    counts[:1] = count
    return _in_schema(scan_range, RECORD, "", [*columns, pa.array(counts)])


def _fault(scan_range: ScanRange, fault: ReadFault) -> pa.RecordBatch:
    columns = [pa.array([fault.offset if name == "offset" else 0], pa.int64()) for name in _NUMBERS]
    return _in_schema(scan_range, FAULT, fault.reason, columns)


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


def different_keys_frame(rows: DataFrame) -> DataFrame:
    """Return the same as a frame."""
    from pyspark.sql import functions as F

    place = ["part", "key_hash"]
    others = [name for name in _NUMBERS if name not in ("key_hash", "offset")]
    newest = F.max(F.struct("offset", *others)).alias("newest")
    last = rows.where(F.col("kind") == RECORD).groupBy(*place, "side").agg(newest)
    different = last.groupBy(*place).agg(
        F.count("*").alias("sides"), F.min("newest.hash").alias("low"), F.max("newest.hash").alias("high")
    )
    different = different.where((F.col("sides") == 1) | (F.col("low") != F.col("high"))).select(*place)
    flat = last.select(*place, "side", "newest.*").withColumn("kind", F.lit(RECORD)).withColumn("text", F.lit(""))
    return flat.join(different, place).select(*LATEST_SCHEMA.names)


def sides_of(rows: pa.Table) -> tuple[Records, Records]:
    """Return the records of both sides of one partition, source first."""
    is_source = rows.column("side").to_numpy() == SOURCE
    source, target = (Records.from_arrow(rows.filter(pa.array(flags))) for flags in (is_source, ~is_source))
    return source, target

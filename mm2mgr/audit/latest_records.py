"""Compacted topics: only the latest record of each key counts, as compaction may have removed the others on one side.

A tombstone (a null value) counts like no record at all: after delete.retention.ms it is removed. Records without a key
are left out: brokers refuse them for compacted topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mm2mgr.audit.differences import CLOSED, Edges, Explain, altered_difference, altered_fields, difference_of
from mm2mgr.audit.records import NULL_HASH, Records
from mm2mgr.audit.report import DifferenceKind, RecordDifference
from mm2mgr.audit.windows import ALL_FIELDS


def latest_of(records: Records) -> Records:
    """Return the latest record of each key, in the order of the keys' hashes."""
    keyed = records.take(records.key_hash != NULL_HASH)
    newest_first = keyed.take(np.argsort(keyed.offset, kind="stable")[::-1])
    _, rows = np.unique(newest_first.key_hash, return_index=True)
    return newest_first.take(rows)


@dataclass
class LatestRecords:
    """The latest record of each key of a log or a range of one; memory holds about 48 bytes for each key."""

    parts: list[Records] = field(default_factory=list)
    _rows: int = 0

    def add(self, records: Records) -> None:
        """Add records, or the latest ones of another range, in any order."""
        self.parts.append(latest_of(records))
        self._rows += len(self.parts[-1])
        if self._rows > 2 * len(self.parts[0]) + 100_000:
            self.parts = [self.records()]
            self._rows = len(self.parts[0])

    def records(self) -> Records:
        """Return the latest record of each key."""
        return latest_of(Records.join(self.parts))


def compare_latest(
    source: Records,
    target: Records,
    edges: Edges = CLOSED,
    counted: Sequence[str] = ALL_FIELDS,
    explain: Explain = lambda difference: "",
) -> list[RecordDifference]:
    """Compare the latest records of both logs (from `latest_of`); the target's window must end where its log ends.

    A key whose latest source record is not due yet is not judged. At an open start, a key that only the target has may
    be of before the window. Where value and timestamp differ, the latest record is missing, and a note names the
    record that the target has.
    """
    _, left, right = np.intersect1d(source.key_hash, target.key_hash, assume_unique=True, return_indices=True)
    differences = []
    for row, other in zip(
        *(rows[source.hash[left] != target.hash[right]].tolist() for rows in (left, right)), strict=True
    ):
        if source.value_hash[row] == NULL_HASH == target.value_hash[other] or _is_not_due(source, row, edges):
            continue
        names = altered_fields(source, row, target, other, counted)
        if {"value", "timestamp"} & set(counted) <= set(names):
            missing = difference_of(DifferenceKind.MISSING, source, row, None, 0)
            note = f"the latest record of this key on the target is at offset {int(target.offset[other])}"
            differences.append(replace(missing, note=note))
        else:
            differences.append(altered_difference(source, row, target, other, counted))
    for row in _rows_without(source, left):
        if not _is_not_due(source, row, edges):
            differences.append(difference_of(DifferenceKind.MISSING, source, row, None, 0))
    if not edges.open_start:
        extra = [difference_of(DifferenceKind.EXTRA, None, 0, target, row) for row in _rows_without(target, right)]
        differences.extend(replace(difference, note="the source has no record of this key") for difference in extra)
    return [replace(difference, expected=explain(difference)) for difference in differences]


def _rows_without(records: Records, partners: np.typing.NDArray[np.intp]) -> list[int]:
    """Return the rows of values whose key the other side does not have."""
    alone = records.value_hash != NULL_HASH
    alone[partners] = False
    rows: list[int] = np.flatnonzero(alone).tolist()
    return rows


def _is_not_due(source: Records, row: int, edges: Edges) -> bool:
    return edges.due is not None and bool(source.offset[row] >= edges.due)

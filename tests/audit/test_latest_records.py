"""Compacted topics: only the latest record of each key counts, on random logs."""

from __future__ import annotations

import random

import pytest

from mm2mgr.audit.differences import CLOSED, Edges
from mm2mgr.audit.latest_records import LatestRecords, compare_latest, latest_of
from mm2mgr.audit.records import Records
from mm2mgr.audit.report import DifferenceKind

from .logs import START_MS, Log, Record, with_offsets

K = DifferenceKind


def log_of(rows: list[tuple[int, Record]]) -> Log:
    return Log(tuple(record for _, record in rows), tuple(offset for offset, _ in rows))


def compacted(rows: list[tuple[int, Record]], rng: random.Random) -> list[tuple[int, Record]]:
    """Remove some of what compaction may remove: any record but the latest of its key, and whole keys that ended."""
    latest = {record.key: (offset, record) for offset, record in rows}
    gone = {key for key, (_, record) in latest.items() if record.value is None and rng.random() < 0.5}
    stays = [(offset, record) for offset, record in rows if latest[record.key][0] == offset or rng.random() < 0.5]
    return [(offset, record) for offset, record in stays if record.key not in gone]


def keyed_rows(count: int, rng: random.Random) -> list[tuple[int, Record]]:
    records = [
        Record(b"key-%d" % rng.randrange(count // 3 + 1), rng.choice((None, b"", b"v%d" % row)), START_MS + row)
        for row in range(count)
    ]
    log = with_offsets(records, rng)
    return list(zip(log.offsets, log.records, strict=True))


def latest(rows: list[tuple[int, Record]], rng: random.Random | None = None) -> Records:
    """Take the latest records in random shares."""
    columns = log_of(rows).columns()
    shares = LatestRecords()
    cut = rng.randrange(len(columns) + 1) if rng else 0
    for part in (slice(cut, None), slice(0, cut)):
        shares.add(columns.take(part))
    return shares.records()


def judge(source: list[tuple[int, Record]], target: list[tuple[int, Record]], edges: Edges = CLOSED) -> list[tuple]:
    differences = compare_latest(latest(source), latest(target), edges)
    return [(item.kind, item.source_offset, item.target_offset, item.fields) for item in differences]


@pytest.mark.parametrize("seed", range(40))
def test_what_either_side_s_compaction_removes_is_no_difference_and_a_stale_key_is_one(seed):
    rng = random.Random(seed)
    rows = keyed_rows(rng.choice((1, 10, 60)), rng)
    copied = [(7 + 3 * number, record) for number, (_, record) in enumerate(rows)]
    source, target = compacted(rows, rng), compacted(copied, rng)
    assert compare_latest(latest(source, rng), latest(target, rng)) == []
    ends = {record.key: (offset, record) for offset, record in rows if record.value is not None}
    ends = {key: end for key, end in ends.items() if max(o for o, r in rows if r.key == key) == end[0]}
    if not ends:
        return
    key = rng.choice(sorted(ends))
    lost = [(offset, record) for offset, record in copied if record.key != key]
    assert judge(rows, lost) == [(K.MISSING, ends[key][0], None, ())]
    stale = [*lost, (1, Record(key, b"stale", START_MS - 5))]
    (difference,) = compare_latest(latest(rows), latest(stale))
    assert (difference.kind, difference.source_offset) == (K.MISSING, ends[key][0])
    assert difference.note == "the latest record of this key on the target is at offset 1"


def test_a_latest_record_that_was_altered_and_one_that_only_the_target_has():
    first, second = Record(b"a", b"1", START_MS), Record(b"b", b"2", START_MS + 1)
    altered = Record(b"a", b"1", START_MS, (("h", None),))
    alien = Record(b"z", b"9", START_MS)
    source = [(0, first), (1, second)]
    assert judge(source, [(5, altered), (6, second)]) == [(K.ALTERED, 0, 5, ("headers",))]
    assert judge(source, [(5, first), (6, second), (7, alien)]) == [(K.EXTRA, None, 7, ())]
    assert judge(source, [(5, first), (6, second), (7, alien)], Edges(open_start=True)) == []
    assert judge(source, [(6, second)], Edges(due=0)) == []
    assert judge(source, [(6, second)], Edges(due=1)) == [(K.MISSING, 0, None, ())]


def test_tombstones_equal_no_record_and_a_lost_one_shows_as_a_key_that_should_be_gone():
    value, tombstone = Record(b"a", b"1", START_MS), Record(b"a", None, START_MS + 1)
    other_tombstone = Record(b"a", None, START_MS + 9)
    assert judge([(0, value), (1, tombstone)], []) == []
    assert judge([], [(0, value), (1, tombstone)]) == []
    assert judge([(1, tombstone)], [(1, other_tombstone)]) == []
    assert judge([(0, value), (1, tombstone)], [(0, value)]) == [(K.MISSING, 1, None, ())]
    assert judge([], [(0, value)]) == [(K.EXTRA, None, 0, ())]


def test_records_without_a_key_are_left_out_of_the_latest():
    rows = [(0, Record(None, b"1", START_MS)), (1, Record(b"a", b"1", START_MS)), (2, Record(b"a", b"2", START_MS))]
    assert latest_of(log_of(rows).columns()).offset.tolist() == [2]

"""What an audit says of random logs with random faults: these differences with these offsets, and no other."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mm2mgr.audit.differences import Edges, Unmatched, compare_gap, copies_to_find, settle, tally
from mm2mgr.audit.records import Records, records_of
from mm2mgr.audit.report import DifferenceKind, RecordDifference

from .logs import (
    START_MS,
    Expected,
    Log,
    Record,
    as_tuple,
    audit_logs,
    distinct_records,
    few_records,
    joined,
    longest_common,
    mirrored_with_faults,
    with_offsets,
)

K = DifferenceKind
SIZES = (1, 2, 5, 20, 80, 300)


def check_faults(seed: int) -> None:
    rng = random.Random(seed)
    source = with_offsets(distinct_records(rng.choice(SIZES), rng), rng)
    target, expected = mirrored_with_faults(source, rng, rng.choice((0, 1, 2, 4, 8)))
    bits = rng.choice((0, 1, 2, 4, 30))
    differences = audit_logs(source.columns(), target.columns(), bits, rng=rng)
    assert sorted((as_tuple(difference) for difference in differences), key=str) == expected, (seed, bits)


def check_equal_records(seed: int) -> None:
    """With equal records several answers are right: the differences turn the source into the target, and are few."""
    rng = random.Random(seed)
    source = with_offsets(few_records(rng.choice((1, 2, 5, 12, 30)), rng), rng)
    records = list(source.records)
    for _ in range(rng.choice((0, 1, 2, 4))):
        place = rng.randrange(len(records) + 1)
        change = rng.choice(("lose", "repeat", "other"))
        if change == "lose":
            del records[place : place + rng.choice((1, 3))]
        elif change == "repeat":
            records[place:place] = records[max(0, place - rng.choice((1, 2, 7))) : place]
        else:
            records.insert(place, Record(b"k", rng.choice((b"v", b"x", None)), START_MS + rng.randrange(4)))
    target = with_offsets(records, rng)
    columns = source.columns(), target.columns()
    differences = audit_logs(*columns, 30)
    assert_explains(differences, *columns)
    unmatched = sum((difference.kind in (K.MISSING, K.ALTERED, K.REORDERED)) for difference in differences)
    assert unmatched == len(source.records) - longest_common(columns[0].hash.tolist(), columns[1].hash.tolist())
    for bits in (0, 1, 3):
        assert_explains(audit_logs(*columns, bits, rng=rng), *columns)


def assert_explains(differences: list[RecordDifference], source: Records, target: Records) -> None:
    """What is left of both logs without the differences is equal in order, and each difference is what it says."""
    hashes = [dict(zip(log.offset.tolist(), log.hash.tolist(), strict=True)) for log in (source, target)]
    before, after = hashes[0].copy(), hashes[1].copy()
    for difference in differences:
        source_offset, target_offset = difference.source_offset, difference.target_offset
        if difference.kind is K.DUPLICATED:
            assert hashes[0][source_offset] == hashes[1][target_offset]
        elif source_offset is not None:
            assert (difference.kind is K.MISSING) == (target_offset is None)
            del before[source_offset]
        if target_offset is not None:
            assert (difference.kind is K.EXTRA) == (source_offset is None)
            del after[target_offset]
        if difference.kind is K.REORDERED:
            assert hashes[0][source_offset] == hashes[1][target_offset]
        if difference.kind is K.ALTERED:
            assert hashes[0][source_offset] != hashes[1][target_offset]
            assert difference.fields
    assert list(before.values()) == list(after.values())
    surplus = Counter(hashes[1].values()) - Counter(hashes[0].values())
    extra = Counter(hashes[1][d.target_offset] for d in differences if d.kind in (K.EXTRA, K.DUPLICATED, K.ALTERED))
    assert all(surplus[number] <= extra[number] for number in surplus)


def check_window(seed: int) -> None:
    """Faults of a window in the middle of both logs, whose ends are open on the target."""
    rng = random.Random(seed)
    records = distinct_records(150, rng)
    source = with_offsets(records[50:100], rng)
    middle, expected = mirrored_with_faults(source, rng, rng.choice((0, 1, 3, 5)))
    last = middle.offsets[-1] if middle.offsets else 0
    before, after = as_log(records[:50], list(range(-50, 0))), as_log(records[100:], list(range(last + 1, last + 51)))
    target = Log(before.records + middle.records + after.records, before.offsets + middle.offsets + after.offsets)
    touched = {offset for _, _, offset, _ in expected}
    intact = [offset for offset in middle.offsets if offset not in touched]
    if not intact:
        return
    # What is of no record in the window is no fault before the first and after the last that is.
    expected = [item for item in expected if item[0] is not K.EXTRA or intact[0] < (item[2] or 0) < intact[-1]]
    bits = rng.choice((0, 1, 2, 4, 30))
    differences = audit_logs(
        source.columns(), target.columns(), bits, edges=Edges(open_start=True, open_end=True), rng=rng
    )

    ends = source.records[0].time_ms, source.records[-1].time_ms
    burst = {row for row, record in zip(source.offsets, source.records, strict=True) if record.time_ms in ends}

    def is_sure(item: Expected) -> bool:
        """One that is as old as the window's edge may be another one of its burst."""
        return item[0] is not K.DUPLICATED or item[1] not in burst

    def at_edge(item: Expected) -> Expected:
        """A record that may be of another window shares too little with an altered one without a key."""
        is_edge = item[0] is K.ALTERED and not intact[0] < (item[2] or 0) < intact[-1]
        return (K.MISSING, item[1], None, ()) if is_edge else item

    actual = sorted((at_edge(item) for item in map(as_tuple, differences) if is_sure(item)), key=str)
    assert_same_but_for_copies(actual, sorted(map(at_edge, filter(is_sure, expected)), key=str), seed)


def assert_same_but_for_copies(actual: list[Expected], expected: list[Expected], seed: int) -> None:
    """Which of two copies is the surplus one is free where nothing of the window is before the first."""
    if actual != expected:
        assert {kind for kind, *_ in {*actual} ^ {*expected}} <= {K.DUPLICATED, K.EXTRA}, seed
        both = ([item[:2] for item in items if item[0] is not K.EXTRA] for items in (actual, expected))
        assert next(both) == next(both), seed


@pytest.mark.parametrize("seed", range(6))
def test_faults_of_a_window_are_found_between_what_is_before_and_after_it(seed):
    for case in range(15):
        check_window(seed * 1_000 + case)


@pytest.mark.parametrize("seed", range(12))
def test_faults_of_all_kinds_are_found_with_their_offsets_and_nothing_else(seed):
    for case in range(15):
        check_faults(seed * 1_000 + case)


@pytest.mark.parametrize("seed", range(6))
def test_differences_of_logs_with_equal_records_explain_the_target_and_are_the_fewest(seed):
    for case in range(20):
        check_equal_records(seed * 1_000 + case)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(100))
def test_many_random_logs(seed):
    for case in range(200):
        check_faults(1_000_000 + seed * 1_000 + case)
        check_equal_records(1_000_000 + seed * 1_000 + case)
        check_window(1_000_000 + seed * 1_000 + case)


def as_log(records: list[Record], offsets: list[int] | None = None) -> Log:
    return Log(tuple(records), tuple(offsets or range(len(records))))


def numbered(count: int) -> list[Record]:
    """Records with keys in turn, a timestamp and a value each."""
    return [Record(b"k%d" % (row % 5), b"v%d" % row, START_MS + row, (("h", b"1"),)) for row in range(count)]


def kinds_and_offsets(differences: list[RecordDifference]) -> list[tuple[DifferenceKind, int | None, int | None]]:
    return [(item.kind, item.source_offset, item.target_offset) for item in differences]


def test_a_run_that_a_restart_repeats_is_duplicates_also_when_it_begins_long_before():
    records = numbered(2_000)
    repeated = [*records[:1_500], *records[1_000:1_500], *records[1_500:]]
    for bits in (1, 4, 8, 30):
        differences = audit_logs(as_log(records).columns(), as_log(repeated).columns(), bits)
        assert kinds_and_offsets(differences) == [(K.DUPLICATED, row, row + 500) for row in range(1_000, 1_500)]


def test_a_repeated_run_in_the_middle_of_which_a_record_was_lost_before():
    records = numbered(300)
    target = [*records[:50], *records[51:100], *records[40:100], *records[100:]]
    differences = audit_logs(as_log(records).columns(), as_log(target).columns(), 3)
    # With the repetition each record has a place in order, 50 too: what came between is further copies only.
    assert tally(differences)[0] == {K.DUPLICATED: 59}
    assert {item.source_offset for item in differences} == set(range(40, 100)) - {50}


def test_a_record_that_moved_far_is_reordered_not_missing_and_extra():
    records = numbered(3_000)
    target = [*records[:10], *records[11:2_900], records[10], *records[2_900:]]
    for bits in (2, 6, 30):
        differences = audit_logs(as_log(records).columns(), as_log(target).columns(), bits)
        assert kinds_and_offsets(differences) == [(K.REORDERED, 10, 2_899)]
        assert differences[0].time_ms == START_MS + 10


def test_what_the_difference_says_of_the_record():
    source = as_log([Record(None, b"v", START_MS), Record(b"k", b"v", START_MS + 5), Record(b"k", b"w", START_MS + 6)])
    target = as_log([Record(None, b"V", START_MS), Record(b"k", b"w", START_MS + 6)], [10, 12])
    altered, missing = audit_logs(source.columns(), target.columns(), 1)
    assert altered == RecordDifference(K.ALTERED, 0, 10, START_MS, None, ("value",))
    key_hash = f"{int(source.columns().key_hash[1]):016x}"
    assert missing == RecordDifference(K.MISSING, 1, None, START_MS + 5, key_hash)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"value": b"other"}, ("value",)),
        ({"value": None}, ("value",)),
        ({"value": b""}, ("value",)),
        ({"key": None}, ("key",)),
        ({"key": b""}, ("key",)),
        ({"time_ms": START_MS + 3_600_000}, ("timestamp",)),
        ({"headers": ()}, ("headers",)),
        ({"headers": (("h", None),)}, ("headers",)),
        ({"headers": (("h", b"1"), ("h", b"1"))}, ("headers",)),
        ({"value": b"", "headers": ()}, ("value", "headers")),
        ({"key": b"", "time_ms": 5, "headers": ()}, ("key", "timestamp", "headers")),
    ],
)
def test_which_fields_were_altered(change: dict[str, Any], fields: tuple[str, ...]):
    records = numbered(20)
    target = [*records[:7], replace(records[7], **change), *records[8:]]
    (difference,) = audit_logs(as_log(records).columns(), as_log(target).columns(), 2)
    assert (difference.kind, difference.source_offset, difference.target_offset) == (K.ALTERED, 7, 7)
    assert difference.fields == fields


def test_a_lost_record_and_an_unlike_one_in_its_place_are_missing_and_extra():
    records = numbered(20)
    target = [*records[:7], Record(b"other", b"other", START_MS + 999), *records[8:]]
    differences = audit_logs(as_log(records).columns(), as_log(target).columns(), 2)
    assert kinds_and_offsets(differences) == [(K.MISSING, 7, None), (K.EXTRA, None, 7)]


def test_timestamps_that_do_not_count_may_differ_and_null_keys_are_paired_by_place():
    counted = ("key", "value", "headers")
    records = [Record(None, b"v%d" % row, START_MS + row) for row in range(40)]
    appended = [replace(record, time_ms=START_MS + 70_000 + row) for row, record in enumerate(records)]
    source = as_log(records).columns(counted)
    assert audit_logs(source, as_log(appended).columns(counted), 2, counted=counted) == []
    appended[20] = replace(appended[20], value=b"other")
    (altered,) = audit_logs(source, as_log(appended).columns(counted), 2, counted=counted)
    assert (altered.kind, altered.source_offset, altered.fields) == (K.ALTERED, 20, ("value",))
    appended[30:30] = appended[25:30]
    differences = audit_logs(source, as_log(appended).columns(counted), 2, counted=counted)
    assert tally(differences)[0] == {K.ALTERED: 1, K.DUPLICATED: 5}


def test_records_of_before_and_after_the_window_are_no_fault_at_open_ends():
    records = numbered(500)
    source, target = as_log(records).columns().take(slice(100, 300)), as_log(records).columns()
    for bits in (0, 3, 30):
        assert audit_logs(source, target, bits, edges=Edges(open_start=True, open_end=True)) == []
        assert len(audit_logs(source, target, bits, edges=Edges(open_start=True))) == 200
        assert len(audit_logs(source, target, bits, edges=Edges(open_end=True))) == 100


@pytest.mark.parametrize("place", [100, 105, 295, 300])
def test_at_open_ends_copies_of_the_window_s_records_came_twice_and_lost_ones_are_missing(place):
    edges = Edges(open_start=True, open_end=True)
    records = numbered(500)
    source = as_log(records).columns().take(slice(100, 300))
    repeated = [*records[:place], *records[max(100, place - 5) : place], *records[place:]]
    for bits in (0, 3, 30):
        differences = audit_logs(source, as_log(repeated).columns(), bits, edges=edges)
        count = place - max(100, place - 5)
        assert set(tally(differences)[0]) <= {K.DUPLICATED}
        # One that is as old as the window's edge may be another one of its burst.
        assert count - (place in (105, 300)) <= len(differences) <= count
    lost = [*records[:100], *records[102:299], *records[300:]]
    for bits in (0, 3, 30):
        differences = audit_logs(source, as_log(lost).columns(), bits, edges=edges)
        assert kinds_and_offsets(differences) == [(K.MISSING, row, None) for row in (100, 101, 299)]


def test_where_timestamps_do_not_count_an_equal_record_at_an_open_end_is_no_copy():
    counted = ("key", "value", "headers")
    source = as_log(numbered(20)).columns(counted)
    target = as_log([*numbered(20), *numbered(20)[15:]]).columns(counted)
    edges = Edges(open_end=True, open_copies=False)
    assert audit_logs(source, target, 2, edges=edges, counted=counted) == []
    assert len(audit_logs(source, target, 2, edges=replace(edges, open_copies=True), counted=counted)) == 4


def test_records_that_are_not_due_may_be_there_or_not_but_not_twice():
    records = numbered(100)
    source = as_log(records).columns()
    for arrived in (80, 90, 100):
        for bits in (1, 30):
            target = as_log(records[:arrived]).columns()
            assert audit_logs(source, target, bits, edges=Edges(due=80)) == []
    target = as_log([*records[:90], *records[85:88]]).columns()
    differences = audit_logs(source, target, 3, edges=Edges(due=80))
    assert kinds_and_offsets(differences) == [(K.DUPLICATED, row, row + 5) for row in (85, 86, 87)]
    target = as_log([*records[:70], *records[71:90]]).columns()
    assert kinds_and_offsets(audit_logs(source, target, 3, edges=Edges(due=80))) == [(K.MISSING, 70, None)]
    target = as_log([*records[:85], *records[86:90], records[85]]).columns()
    assert kinds_and_offsets(audit_logs(source, target, 3, edges=Edges(due=80))) == [(K.REORDERED, 85, 89)]


def test_expected_differences_are_counted_by_reason_and_are_no_fault():
    records = numbered(30)
    records[5] = replace(records[5], value=None)
    target = [*records[:5], *records[6:10], *records[11:]]
    explain = lambda item: "tombstones are dropped" if item.source_offset == 5 else ""  # noqa: E731
    source, copy = as_log(records).columns(), as_log(target).columns()
    rest = compare_gap(source, copy)
    differences = settle(rest, explain=explain)
    assert tally(differences) == ({K.MISSING: 1}, {"tombstones are dropped": 1})


@pytest.mark.parametrize("seed", range(20))
def test_among_the_records_of_another_source_those_of_one_are_each_there_in_order(seed):
    rng = random.Random(seed)
    records = distinct_records(80, rng)
    sources = [with_offsets(part, rng) for part in (records[:40], records[40:])]
    faulty, expected = mirrored_with_faults(sources[0], rng, rng.choice((0, 1, 4)))
    order = [0] * len(faulty.records) + [1] * 40
    rng.shuffle(order)
    queues = iter(zip(faulty.records, faulty.offsets, strict=True)), iter((record, -1) for record in records[40:])
    entries = [next(queues[number]) for number in order]
    target = as_log([record for record, _ in entries])
    places = {offset: place for place, (_, offset) in enumerate(entries) if offset >= 0}
    settled = settle(compare_gap(sources[0].columns(), target.columns()))
    actual = [as_tuple(item) for item in settled if item.kind is not K.EXTRA]
    wanted = [
        (kind, source, None if place is None else places[place], fields)
        for kind, source, place, fields in expected
        if kind is not K.EXTRA
    ]
    assert sorted(actual, key=str) == sorted(wanted, key=str)
    others = settle(compare_gap(sources[1].columns(), target.columns()))
    assert {item.kind for item in others} <= {K.EXTRA}


def test_the_rest_of_a_gap_comes_back_from_arrow():
    records = numbered(50)
    gap = compare_gap(as_log(records).columns(), as_log([*records[:20], *records[15:40], *records[41:]]).columns())
    back = Unmatched.from_arrow(gap.to_arrow())
    assert back.to_arrow().equals(gap.to_arrow())
    assert settle(back) == settle(gap)
    assert settle(joined([])) == []


class WrongReader:
    """A message as a careless reader takes it."""

    def __init__(self, record: Record, place: int, wrong: str) -> None:
        self.record, self.place, self.wrong = record, place, wrong

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, self.record.time_ms + (3_600_000 if self.wrong == "time zone" else 0)

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value or b"" if self.wrong == "null is empty" else self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        if self.wrong == "no headers":
            return None
        if self.wrong == "headers as a mapping":
            return list(dict(self.record.headers).items())
        return list(self.record.headers)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("no headers", "headers"),
        ("headers as a mapping", "headers"),
        ("null is empty", "value"),
        ("time zone", "timestamp"),
    ],
)
def test_a_reader_that_is_wrong_on_one_side_is_caught(wrong, field):
    """Both sides are read by one code, so the wrong reader stands for a log that lacks what it ignores."""
    rng = random.Random(3)
    records = distinct_records(60, rng)
    records[30] = replace(records[30], value=None, headers=(("h", b"1"), ("h", None)))
    log = with_offsets(records, rng)
    misread = records_of([WrongReader(*pair, wrong) for pair in zip(log.records, log.offsets, strict=True)])
    differences = audit_logs(log.columns(), misread, 3)
    assert {item.kind for item in differences} == {K.ALTERED}
    assert {item.fields for item in differences} == {(field,)}
    assert log.offsets[30] in [item.source_offset for item in differences]
    true = records_of([WrongReader(*pair, "") for pair in zip(log.records, log.offsets, strict=True)])
    assert audit_logs(log.columns(), true, 3) == []


def test_a_gap_of_100_000_altered_records_is_compared_in_linear_time():
    count = 100_000
    hashes = np.random.default_rng(1).integers(1, 1 << 64, (3, count), np.uint64)
    offset = np.arange(count, dtype=np.int64)
    keys = hashes[2] % np.uint64(1_000)
    source = Records(offset, offset, hashes[0], keys, hashes[0], keys)
    target = Records(offset, offset, hashes[1], keys, hashes[1], keys)
    rest = compare_gap(source, target)
    assert (len(rest.source), len(rest.target)) == (count, count)
    assert len(copies_to_find(rest, ("key", "value", "headers"))) == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_window_of_few_kinds_of_records_has_no_difference_wherever_else_they_are(seed):
    rng = random.Random(seed)
    kinds, burst = rng.choice((2, 5, 50)), rng.choice((1, 10))
    records = [Record(None, b"v%d" % rng.randrange(kinds), START_MS + row // burst) for row in range(1_500)]
    counted = rng.choice((("key", "value", "timestamp", "headers"), ("key", "value", "headers")))
    whole = as_log(records).columns(counted)
    first = rng.randrange(100, 700)
    window = whole.take(slice(first, rng.randrange(first + 200, 1_400)))
    edges = Edges(open_start=True, open_end=True, open_copies="timestamp" in counted)
    for bits in (3, 30):
        assert audit_logs(window, whole, bits, edges=edges, counted=counted) == []

"""What an audit says of random logs with random faults: these differences with these offsets, and no other."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from mm2mgr.audit.differences import Edges, runs_of, tally
from mm2mgr.audit.records import Records
from mm2mgr.audit.report import DifferenceKind, RecordDifference

from .logs import (
    START_MS,
    Log,
    Record,
    as_tuple,
    audit_logs,
    distinct_records,
    few_records,
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

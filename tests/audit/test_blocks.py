"""Blocks: any split of a log gives the same ones, and the gaps between aligned blocks hold every difference."""

from __future__ import annotations

import itertools
import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from mm2mgr.audit.blocks import BLOCK_SCHEMA, Blocks, align_blocks, block_bits, blocks_of, join_blocks
from mm2mgr.audit.records import Records, signed_columns

from .logs import any_blocks, distinct_records, few_records, mirrored_with_faults, with_offsets


def numbered(count: int, seed: int = 1) -> Records:
    """Records of random hashes, quicker than real ones."""
    hashes = np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64)
    offset = np.arange(count, dtype=np.int64)
    return Records(offset, 1_000 + offset // 7, hashes, hashes, hashes, hashes)


def reordered(records: Records, rows: list[int]) -> Records:
    """Take records in another order, with new offsets."""
    taken = records.take(np.array(rows, np.intp))
    return Records(np.arange(len(rows), dtype=np.int64), *(getattr(taken, name) for name in _OTHERS))


def columns_of(blocks: Blocks) -> list[pa.Array]:
    return signed_columns(blocks, BLOCK_SCHEMA)


_OTHERS = ("time_ms", "hash", "key_hash", "value_hash", "headers_hash")


@pytest.mark.parametrize("seed", range(40))
def test_any_split_into_ranges_and_batches_gives_the_same_blocks(seed):
    rng = random.Random(seed)
    records = rng.choice((distinct_records, few_records))(rng.choice((0, 1, 3, 50, 400)), rng)
    columns = with_offsets(records, rng).columns()
    for bits in (0, 1, 3, 6, 20):
        whole = blocks_of(columns, bits)
        for _ in range(4):
            assert columns_of(any_blocks(columns, bits, rng)) == columns_of(whole)
        assert whole.records == len(columns)
        table = pa.Table.from_arrays(columns_of(whole), BLOCK_SCHEMA.names)
        assert columns_of(Blocks.from_arrow(table)) == columns_of(whole)


def test_a_fingerprint_tells_order_and_number_apart():
    log = numbered(6)
    orders = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [0, 1, 2], [0, 1, 2, 3, 3, 3], [0, 1, 2, 4], [3, 3], [4, 4]]
    prints = [int(blocks_of(reordered(log, rows), 64 - 1).fingerprints()[0]) for rows in orders]
    assert len(set(prints)) == len(orders)


def test_records_of_a_switch_in_any_other_order_are_another_block():
    log = numbered(3)
    for kinds, length in ((2, 10), (3, 6)):
        prints: set[int] = set()
        orders = [list(rows) for rows in itertools.product(range(kinds), repeat=length)]
        for rows in orders:
            records = reordered(log, rows)
            parts = [blocks_of(records.take(slice(0, 4)), 63), blocks_of(records.take(slice(4, None)), 63)]
            fingerprint = int(blocks_of(records, 63).fingerprints()[0])
            assert int(join_blocks(parts).fingerprints()[0]) == fingerprint
            prints.add(fingerprint)
        assert len(prints) == len(orders)


@pytest.mark.parametrize("kind", ["lost", "twice", "swapped", "altered"])
def test_a_difference_changes_its_own_block_and_the_rest_is_not_read_again(kind):
    source = numbered(200_000)
    rows = list(range(200_000))
    if kind == "lost":
        del rows[70_000]
    elif kind == "twice":
        rows[70_000:70_000] = rows[69_990:70_000]
    elif kind == "swapped":
        rows[70_000:70_002] = [70_001, 70_000]
    target = reordered(source, rows)
    if kind == "altered":
        target.hash[70_000] ^= np.uint64(1 << 40)
    bits = block_bits(200_000)
    alignment = align_blocks(blocks_of(source, bits), blocks_of(target, bits))
    (gap,) = alignment.gaps
    assert gap.source[0] <= 70_000 < gap.source[1]
    assert gap.source_records + gap.target_records < 2_000
    assert alignment.matched_records + gap.source_records == 200_000


@pytest.mark.parametrize("seed", range(30))
def test_gaps_hold_every_fault_and_what_is_outside_of_them_is_equal_in_order(seed):
    rng = random.Random(seed)
    source = with_offsets(distinct_records(200, rng), rng)
    target, _ = mirrored_with_faults(source, rng, 6)
    columns = source.columns(), target.columns()
    alignment = align_blocks(blocks_of(columns[0], 2), blocks_of(columns[1], 2))
    left = []
    for log, name in zip(columns, ("source", "target"), strict=True):
        outside = np.ones(len(log), np.bool_)
        for gap in alignment.gaps:
            first, end = getattr(gap, name)
            outside &= (log.offset < first) | (log.offset >= end)
        left.append(log.hash[outside].tolist())
    assert left[0] == left[1]
    assert len(left[0]) == alignment.matched_records
    ends = [gap.source for gap in alignment.gaps]
    assert all(first <= end for first, end in ends)
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_equal_logs_have_no_gap_and_logs_without_a_block_have_no_match():
    log = numbered(1_000)
    blocks, empty = blocks_of(log, 4), join_blocks([])
    assert align_blocks(blocks, blocks).gaps == ()
    assert align_blocks(empty, empty).gaps == ()
    (gap,) = align_blocks(blocks, empty).gaps
    assert (gap.source, gap.target, gap.at_start, gap.at_end) == ((0, 1_000), (0, 0), True, True)


def test_windows_that_start_and_end_within_other_blocks_are_aligned_between():
    log = numbered(10_000)
    source, target = blocks_of(log.take(slice(1_234, 9_000)), 5), blocks_of(log, 5)
    alignment = align_blocks(source, target)
    first, last = alignment.gaps
    assert (first.at_start, first.at_end, last.at_start, last.at_end) == (True, False, False, True)
    assert first.source[0] == 1_234
    assert first.target[0] == 0
    assert last.source[1] == 9_000
    assert last.target[1] == 10_000
    assert alignment.matched_records > 7_000


def test_periodic_logs_are_aligned_without_an_answer_for_every_pair():
    hashes = np.tile(numbered(20).hash, 10_000)
    offset = np.arange(len(hashes), dtype=np.int64)
    source = Records(offset, offset, hashes, hashes, hashes, hashes)
    target = reordered(source, [*range(50_000), *range(50_001, 200_000)])
    for bits in (0, 1, 30):
        alignment = align_blocks(blocks_of(source, bits), blocks_of(target, bits))
        gaps = alignment.gaps
        assert sum(gap.source_records for gap in gaps) - sum(gap.target_records for gap in gaps) == 1


@pytest.mark.parametrize(("records", "bits"), [(0, 6), (1_000, 6), (1_000_000, 8), (4_000_000, 10), (10**12, 14)])
def test_there_are_a_few_thousand_blocks_of_a_log(records, bits):
    assert block_bits(records) == bits

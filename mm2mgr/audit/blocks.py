"""Pass 1: logs summed up as blocks whose ends the records themselves decide, and the blocks of two logs aligned.

A record whose hash has its low bits zero ends a block (as rsync and casync cut files). So both logs are cut at the same
records without looking at each other, and a missing or further record changes one block, not all that follow. Sums are
linear: parts of a block that were read in neighbouring ranges join exactly, however a log was split.

A log of few distinct records whose timestamps do not count may have no such record, and is one block then: nothing is
wrong with the answer, but where it differs it is read again as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.audit.records import Hashes, Ints, Records, columns_in, mix
from mm2mgr.audit.sequences import Rows, common_subsequence

Flags = npt.NDArray[np.bool_]

BLOCK_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("first_offset", "last_offset", "count")]
    + [(name, pa.uint64()) for name in ("sum", "weighted", "xor")]
    + [("ends", pa.bool_())]
)
_LEAST_BITS, _MOST_BITS = 6, 14
RADIX = 0xD1342543DE82EF95
"""An odd number: its powers modulo 2^64 repeat after 2^62 positions."""


@dataclass(frozen=True)
class Blocks:
    """Consecutive runs of records of one log, as columns (BLOCK_SCHEMA).

    `sum` and `xor` are of the hashes, `weighted` is the sum of hash × RADIX^position with the first record at 1; all
    are modulo 2^64. A factor that grew by steps (position × hash) would not see records A B B A become B A A B.
    `ends` is false where the block goes on in the next range.
    """

    first_offset: Ints
    last_offset: Ints
    count: Ints
    sum: Hashes
    weighted: Hashes
    xor: Hashes
    ends: Flags

    def __len__(self) -> int:
        return len(self.count)

    @property
    def records(self) -> int:
        """How many records are in the blocks."""
        return int(self.count.sum())

    def fingerprints(self) -> Hashes:
        """Return a number per block: equal for the same records in the same order, and else different (but for a
        chance of 1 in 2^64).
        """
        number = mix(self.count.astype(np.uint64))
        for part in (self.sum, self.weighted, self.xor):
            number = mix(number + part)
        return number

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> Blocks:
        """Read the columns of BLOCK_SCHEMA, sums also as signed numbers; others may be there."""
        return cls(*columns_in(table, BLOCK_SCHEMA))


def block_bits(records: int) -> int:
    """Return the bits for a log of so many records: a few thousand blocks, each of 64 to 16 384 records on average."""
    return min(max((records // 4096).bit_length(), _LEAST_BITS), _MOST_BITS)


def blocks_of(records: Records, bits: int) -> Blocks:
    """Sum up records that follow each other; the last block is open unless its last record ends it."""
    count = len(records)
    if not count:
        return Blocks.from_arrow(BLOCK_SCHEMA.empty_table())
    hashes = records.hash
    cuts = (hashes & np.uint64((1 << bits) - 1)) == 0
    last = np.flatnonzero(cuts)
    if not len(last) or last[-1] != count - 1:
        last = np.append(last, count - 1)
    first = np.concatenate([[0], last[:-1] + 1])
    counts = last - first + 1
    powers = np.cumprod(np.full(count, RADIX, np.uint64))[np.arange(count) - np.repeat(first, counts)]
    return Blocks(
        first_offset=records.offset[first],
        last_offset=records.offset[last],
        count=counts.astype(np.int64),
        sum=np.add.reduceat(hashes, first),
        weighted=np.add.reduceat(hashes * powers, first),
        xor=np.bitwise_xor.reduceat(hashes, first),
        ends=cuts[last],
    )


def join_blocks(parts: Iterable[Blocks]) -> Blocks:
    """Join the blocks of ranges of one log, in any order of the ranges, into those of the whole.

    The ranges may not overlap.
    """
    tables = [part for part in parts if len(part)]
    if not tables:
        return Blocks.from_arrow(BLOCK_SCHEMA.empty_table())
    tables.sort(key=lambda part: int(part.first_offset[0]))
    columns = {
        column.name: np.concatenate([getattr(part, column.name) for part in tables]) for column in fields(Blocks)
    }
    last = np.flatnonzero(columns["ends"])
    if not len(last) or last[-1] != len(columns["ends"]) - 1:
        last = np.append(last, len(columns["ends"]) - 1)
    first = np.concatenate([[0], last[:-1] + 1])
    before = np.cumsum(columns["count"]) - columns["count"]
    before -= np.repeat(before[first], last - first + 1)
    return Blocks(
        first_offset=columns["first_offset"][first],
        last_offset=columns["last_offset"][last],
        count=np.add.reduceat(columns["count"], first),
        sum=np.add.reduceat(columns["sum"], first),
        weighted=np.add.reduceat(columns["weighted"] * np.power(np.uint64(RADIX), before.astype(np.uint64)), first),
        xor=np.bitwise_xor.reduceat(columns["xor"], first),
        ends=columns["ends"][last],
    )


@dataclass
class BlockSums:
    """Sums up a range of a log batch by batch; memory holds the finished blocks and one batch."""

    bits: int
    parts: list[Blocks] = field(default_factory=list)

    def add(self, records: Records) -> None:
        """Add the next records of the range."""
        self.parts.append(blocks_of(records, self.bits))
        if len(self.parts) >= 64:
            self.parts = [join_blocks(self.parts)]

    def blocks(self) -> Blocks:
        """Return the blocks of all that was added."""
        return join_blocks(self.parts)


@dataclass(frozen=True)
class Gap:
    """A stretch of both logs whose blocks differ, to be read again: offsets, first included, end excluded.

    One side may be empty (first = end). `at_start` and `at_end`: no matched block of the windows is before or after it.
    The counts are of records in its blocks.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    source_records: int
    target_records: int
    at_start: bool = False
    at_end: bool = False


@dataclass(frozen=True)
class Alignment:
    """How the blocks of two logs belong together: rows of matched blocks on both sides, and the gaps between them."""

    source_rows: Rows
    target_rows: Rows
    matched_records: int
    gaps: tuple[Gap, ...]


def align_blocks(source: Blocks, target: Blocks, context: int = 1) -> Alignment:
    """Align two logs by equal blocks in order.

    `context` matched blocks before each gap are in the gap, too (and not in the matched records), as most repeated
    records repeat those right before, and some after it. Windows that start within a block differ in their first block
    at least, so a gap at the start, and one at the end, says little yet.
    """
    source_rows, target_rows = common_subsequence(source.fingerprints(), target.fingerprints(), source.count)
    keep = _without_context(source, target, source_rows, target_rows, context)
    source_rows, target_rows = source_rows[keep], target_rows[keep]
    gaps = []
    lefts = [-1, *source_rows.tolist()], [-1, *target_rows.tolist()]
    rights = [*source_rows.tolist(), len(source)], [*target_rows.tolist(), len(target)]
    for number, bounds in enumerate(zip(*lefts, *rights, strict=True)):
        source_left, target_left, source_right, target_right = bounds
        if source_right - source_left == 1 and target_right - target_left == 1:
            continue
        gaps.append(
            Gap(
                source=_offsets(source, source_left, source_right),
                target=_offsets(target, target_left, target_right),
                source_records=int(source.count[source_left + 1 : source_right].sum()),
                target_records=int(target.count[target_left + 1 : target_right].sum()),
                at_start=number == 0,
                at_end=number == len(source_rows),
            )
        )
    return Alignment(source_rows, target_rows, int(source.count[source_rows].sum()), tuple(gaps))


def _without_context(source: Blocks, target: Blocks, source_rows: Rows, target_rows: Rows, context: int) -> Flags:
    """Return which matched blocks stay matched.

    Not the last ones before a gap, and not those after it, up to as many records as the target has in the gap: which
    copy of repeated records is the surplus one shows behind them.
    """
    stays = np.ones(len(source_rows), np.bool_)
    before = np.concatenate([[0], np.cumsum(target.count)])
    starts, ends = np.append(-1, target_rows) + 1, np.append(target_rows, len(target))
    has_gap = (ends > starts) | (np.append(source_rows, len(source)) > np.append(-1, source_rows) + 1)
    for number in np.flatnonzero(has_gap).tolist():
        stays[max(0, number - context) : number] = False
        records, row = int(before[ends[number]] - before[starts[number]]), number
        if not number:  # what the target has of before the window may be long
            lost_at_start = int(source.count[: source_rows[0] if len(source_rows) else len(source)].sum())
            records = min(records, 2 * lost_at_start + 1)
        while row < len(source_rows) and records > 0:
            stays[row] = False
            records -= int(source.count[source_rows[row]])
            row += 1
    return stays


def _offsets(blocks: Blocks, left: int, right: int) -> tuple[int, int]:
    """Return the offsets between two blocks: up to the next one, or to the last record where there is none."""
    first = int(blocks.last_offset[left]) + 1 if left >= 0 else int(blocks.first_offset[0]) if len(blocks) else 0
    if right < len(blocks):
        return first, int(blocks.first_offset[right])
    return first, max(first, int(blocks.last_offset[-1]) + 1 if len(blocks) else first)

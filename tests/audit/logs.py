"""Random logs, and faults put into their mirrored copy with what an audit has to say of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mm2mgr.audit.blocks import Blocks, BlockSums, align_blocks, blocks_of, join_blocks
from mm2mgr.audit.differences import CLOSED, REST_SCHEMA, Edges, Unmatched, compare_gap, copies_to_find, settle
from mm2mgr.audit.records import Records, records_of
from mm2mgr.audit.report import DifferenceKind, RecordDifference
from mm2mgr.audit.windows import ALL_FIELDS

Headers = tuple[tuple[str, bytes | None], ...]
START_MS = 1_790_000_000_000


@dataclass(frozen=True)
class Record:
    """A record without its offset."""

    key: bytes | None
    value: bytes | None
    time_ms: int
    headers: Headers = ()


@dataclass(frozen=True)
class FakeMessage:
    """What is read of a confluent_kafka.Message."""

    record: Record
    place: int

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, self.record.time_ms

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.record.headers) or None


@dataclass(frozen=True)
class Log:
    """A partition's log: records and their offsets."""

    records: tuple[Record, ...]
    offsets: tuple[int, ...]

    def columns(self, counted: Sequence[str] = ALL_FIELDS) -> Records:
        return records_of([FakeMessage(*pair) for pair in zip(self.records, self.offsets, strict=True)], counted)


def with_offsets(records: Sequence[Record], rng: random.Random) -> Log:
    """Give records offsets with gaps, as transactions and compaction leave them."""
    steps = [rng.choice((1, 1, 1, 2, 5)) for _ in records]
    start = rng.choice((0, 0, 7, 1_000_000))
    return Log(tuple(records), tuple(start + sum(steps[:row]) for row in range(len(records))))


def distinct_records(count: int, rng: random.Random) -> list[Record]:
    """Records no two of which are equal, also not when one field is altered: value and (key, timestamp) are unique."""
    records = []
    time_ms = START_MS
    for row in range(count):
        key = rng.choice((None, b"", b"a", b"b", b"key-%d" % row))
        headers = rng.choice(((), (), (("h", b"1"),), (("h", None), ("h", b"")), (("trace", b"%d" % row),)))
        if key is None or rng.random() < 0.7 or (records and records[-1].key in (None, key)):
            time_ms += rng.randrange(1, 40)
        elif records and any(before.key == key and before.time_ms == time_ms for before in records):
            time_ms += 1
        records.append(Record(key, b"value-%d" % row, time_ms, headers))
    return records


def few_records(count: int, rng: random.Random) -> list[Record]:
    """Records many of which are equal: tombstones, empty values, null keys, one timestamp for many."""
    kinds = rng.choice((1, 2, 3, 6))
    pool = [
        Record(rng.choice((None, b"", b"k")), rng.choice((None, b"", b"v")), START_MS + rng.randrange(3))
        for _ in range(kinds)
    ]
    period = rng.random() < 0.3
    return [pool[row % kinds] if period else rng.choice(pool) for row in range(count)]


Expected = tuple[DifferenceKind, int | None, int | None, tuple[str, ...]]


def as_tuple(difference: RecordDifference) -> Expected:
    return difference.kind, difference.source_offset, difference.target_offset, difference.fields


@dataclass
class _Entry:
    """One record of the target: the row of its source record, and what is to be said of it."""

    row: int | None
    record: Record
    kind: DifferenceKind | None = None
    fields: tuple[str, ...] = ()


def mirrored_with_faults(source: Log, rng: random.Random, faults: int) -> tuple[Log, list[Expected]]:
    """Mirror a log of distinct records with some faults; return the target and what is different, sorted.

    Each source record takes part in one fault at most; faults may be next to each other and at the ends. What moves
    jumps over more records that stay than move with it, so that only one answer is the shortest.
    """
    stretches = _stretches(len(source.records), rng, faults)
    entries = [_Entry(row, record) for row, record in enumerate(source.records)]
    for kind, first, length in sorted(stretches, key=lambda stretch: stretch[1], reverse=True):
        run = entries[first : first + length]
        if kind == "missing":
            del entries[first : first + length]
        elif kind == "altered":
            entries[first : first + length] = [_altered(entry, rng) for entry in run]
        elif kind == "duplicated":
            # Only right behind itself or behind all: what is between is as the other faults left it.
            copies = [_Entry(entry.row, entry.record, DifferenceKind.DUPLICATED) for entry in run]
            place = first + length if rng.random() < 0.5 else len(entries)
            entries[place:place] = copies
        elif kind == "moved":
            moved = [replace(entry, kind=DifferenceKind.REORDERED) for entry in run]
            del entries[first : first + length]
            place = first + 4 * length + 4
            entries[place:place] = moved
        else:
            alien = Record(b"alien-%d" % first, b"alien-%d" % first, START_MS - 1 - first)
            entries.insert(first, _Entry(None, alien, DifferenceKind.EXTRA))
    target = with_offsets([entry.record for entry in entries], rng)
    expected: list[Expected] = []
    arrived = {entry.row for entry in entries}
    for row, offset in enumerate(source.offsets):
        if row not in arrived:
            expected.append((DifferenceKind.MISSING, offset, None, ()))
    for entry, offset in zip(entries, target.offsets, strict=True):
        if entry.kind is not None:
            source_offset = None if entry.row is None else source.offsets[entry.row]
            expected.append((entry.kind, source_offset, offset, entry.fields))
    return target, sorted(expected, key=str)


def _stretches(count: int, rng: random.Random, faults: int) -> list[tuple[str, int, int]]:
    """Choose faults, their first rows and lengths, none over another."""
    stretches: list[tuple[str, int, int]] = []
    taken = [False] * count
    for number in range(faults):
        kind = rng.choice(("missing", "altered", "duplicated", "moved", "extra"))
        length = rng.choice((1, 1, 2, 3)) if kind != "duplicated" else rng.choice((1, 2, 5, 9))
        first = rng.choice((0, count - length, rng.randrange(count))) if number == 0 else rng.randrange(count)
        if first < 0 or first + length > count or any(taken[first : first + length]):
            continue
        if kind == "moved":
            jumped = range(first + length, min(count, first + length + 4 * length + 4))
            if len(jumped) < 4 * length + 4 or any(taken[row] for row in jumped):
                continue
            taken[first : jumped.stop] = [True] * (jumped.stop - first)
        else:
            taken[first : first + length] = [True] * length
        stretches.append((kind, first, length))
    return stretches


def _altered(entry: _Entry, rng: random.Random) -> _Entry:
    record = entry.record
    fields = rng.choice((("key",), ("value",), ("timestamp",), ("headers",), ("value", "headers"), ("key", "headers")))
    if "key" in fields:
        record = replace(record, key=None if record.key is not None else b"")
    if "value" in fields:
        record = replace(record, value=rng.choice((None, b"", b"other")))
    if "timestamp" in fields:
        record = replace(record, time_ms=record.time_ms + 3_600_000)
    if "headers" in fields:
        record = replace(record, headers=(*record.headers, ("more", None)))
    return _Entry(entry.row, record, DifferenceKind.ALTERED, fields)


def any_blocks(records: Records, bits: int, rng: random.Random) -> Blocks:
    """Sum up a log in random ranges, each in random batches."""
    cuts = sorted({0, len(records), *(rng.randrange(len(records) + 1) for _ in range(rng.randrange(4)))})
    parts = []
    for first, end in pairwise(cuts):
        sums = BlockSums(bits)
        middle = rng.randrange(first, end + 1)
        sums.add(records.take(slice(first, middle)))
        sums.add(records.take(slice(middle, end)))
        parts.append(sums.blocks())
    rng.shuffle(parts)
    return join_blocks(parts)


def joined(gaps: Sequence[Unmatched]) -> Unmatched:
    """Return what is without a partner in several gaps, as it comes back from the machines that compare them."""
    return Unmatched.from_arrow(pa.Table.from_batches([gap.to_arrow() for gap in gaps], REST_SCHEMA))


def audit_logs(
    source: Records,
    target: Records,
    bits: int,
    *,
    edges: Edges = CLOSED,
    counted: Sequence[str] = ALL_FIELDS,
    rng: random.Random | None = None,
) -> list[RecordDifference]:
    """Run both passes over two logs in memory."""
    blocks = [any_blocks(log, bits, rng) if rng else blocks_of(log, bits) for log in (source, target)]

    def read(log: Records, bounds: tuple[int, int]) -> Records:
        return log.take((log.offset >= bounds[0]) & (log.offset < bounds[1]))

    gaps = [
        compare_gap(
            read(source, gap.source),
            read(target, gap.target),
            replace(
                edges,
                open_start=edges.open_start and gap.at_start,
                open_end=edges.open_end and gap.at_end,
                window=(int(source.offset[0]), edges.due or int(source.offset[-1]) + 1) if len(source) else None,
            ),
        )
        for gap in align_blocks(blocks[0], blocks[1]).gaps
    ]
    rest = joined(gaps)
    wanted = copies_to_find(rest, counted)
    window = None if edges.due is None else (0, edges.due)
    return settle(rest, [source.take(np.isin(source.hash, wanted.hash))], counted, window=window)


def longest_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of a longest common subsequence, the slow and obvious way."""
    above = np.zeros(len(second) + 1, np.int64)
    for item in first:
        row = above.copy()
        for place, other in enumerate(second):
            row[place + 1] = above[place] + 1 if item == other else max(row[place], above[place + 1])
        above = row
    return int(above[-1])

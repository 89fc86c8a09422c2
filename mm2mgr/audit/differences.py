"""Pass 2: the records of the gaps of two logs compared one by one, and what is different told as a reader needs it.

A gap is compared by itself (`compare_gap`, anywhere), then all gaps of a partition together (`settle`), as a record may
have moved from one gap to another, or come twice long after its first copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.audit.records import ALL_FIELDS, NULL_HASH, RECORD_SCHEMA, Hashes, Ints, Records, key_text, mix
from mm2mgr.audit.report import DifferenceKind, RecordDifference
from mm2mgr.audit.sequences import Rows, common_subsequence

RowPairs = tuple[Rows, Rows]
REST_SCHEMA = RECORD_SCHEMA
for _field in (pa.field("is_target", pa.bool_()), pa.field("place", pa.int64()), pa.field("copy_of", pa.int64())):
    REST_SCHEMA = REST_SCHEMA.append(_field)

Explain = Callable[[RecordDifference], str]
"""Says why the flow's config makes a difference; empty for a fault."""


@dataclass(frozen=True)
class Rest:
    """Records of one or more gaps that have no partner in order.

    `place` is the same number for records of both sides between the same two partners; it is unique within a partition.
    `copy_of` is for target records: the offset of a source record in the gap that is the same and has its partner, -1
    for none. `matched` is how many records have a partner.
    """

    source: Records
    source_place: Ints
    target: Records
    target_place: Ints
    copy_of: Ints
    matched: int

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns of REST_SCHEMA; `matched` is not in it."""
        both = Records.joined([self.source, self.target]).to_arrow()
        sources, targets = len(self.source), len(self.target)
        columns = [
            pa.array(np.repeat([False, True], [sources, targets])),
            pa.array(np.concatenate([self.source_place, self.target_place])),
            pa.array(np.concatenate([np.full(sources, -1, np.int64), self.copy_of])),
        ]
        return pa.RecordBatch.from_arrays([*both.columns, *columns], schema=REST_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch, matched: int) -> Rest:
        """Read the columns of REST_SCHEMA; others may be there."""
        flags, place, copy_of = (
            table.column(name).to_numpy(zero_copy_only=False) for name in ("is_target", "place", "copy_of")
        )
        records = Records.from_arrow(table)
        return cls(records.take(~flags), place[~flags], records.take(flags), place[flags], copy_of[flags], matched)

    @classmethod
    def joined(cls, parts: Sequence[Rest]) -> Rest:
        """Return the rest of several gaps, in the order of their offsets."""
        source, target = Records.joined([part.source for part in parts]), Records.joined([p.target for p in parts])
        places = [np.concatenate([[], *(getattr(part, name) for part in parts)]).astype(np.int64) for name in _PLACES]
        by_source, by_target = np.argsort(source.offset, kind="stable"), np.argsort(target.offset, kind="stable")
        return cls(
            source.take(by_source),
            places[0][by_source],
            target.take(by_target),
            places[1][by_target],
            places[2][by_target],
            sum(part.matched for part in parts),
        )


_PLACES = ("source_place", "target_place", "copy_of")


@dataclass(frozen=True)
class Edges:
    """What the windows do not decide at the ends of a gap.

    `open_start`, `open_end`: target records before the first (after the last) record that has a partner belong to no
    window, so they are never extra; set them for a gap `at_start` or `at_end` unless the target's window is bounded
    there. `due`: source records from this offset on need not have arrived yet.
    """

    open_start: bool = False
    open_end: bool = False
    due: int | None = None


CLOSED = Edges()


def compare_gap(source: Records, target: Records, edges: Edges = CLOSED) -> Rest:
    """Match the records of a gap in order and return what has no partner; `hash` of both must be over the same fields.

    Where several matches are as long, what came twice is the later copy, or the earlier one at an open start.
    """
    if edges.open_start:
        left, right = common_subsequence(source.hash[::-1], target.hash[::-1])
        left, right = len(source) - 1 - left[::-1], len(target) - 1 - right[::-1]
    else:
        left, right = common_subsequence(source.hash, target.hash)
    lost = np.ones(len(source), np.bool_)
    lost[left] = False
    if edges.due is not None:
        lost &= source.offset < edges.due
    surplus = np.ones(len(target), np.bool_)
    surplus[right] = False
    rows = np.arange(len(target))
    if edges.open_start:
        surplus &= rows > (right[0] if len(right) else len(target))
    if edges.open_end:
        surplus &= rows < (right[-1] if len(right) else -1)
    rest, first = target.take(surplus), source.offset[0] if len(source) else target.offset[0] if len(target) else 0
    before = np.concatenate([[first - 1], source.offset[left]])  # a place is named after the partner before it
    return Rest(
        source=source.take(lost),
        source_place=before[np.searchsorted(left, np.flatnonzero(lost))],
        target=rest,
        target_place=before[np.searchsorted(right, np.flatnonzero(surplus))],
        copy_of=copies(rest, source.take(left)),
        matched=len(left),
    )


def copies(target: Records, source: Records) -> Ints:
    """Return for each target record the last offset of a source record that is the same, -1 for none."""
    if not len(source):
        return np.full(len(target), -1, np.int64)
    order = np.argsort(source.hash, kind="stable")
    hashes = source.hash[order]
    rows = np.maximum(np.searchsorted(hashes, target.hash, "right") - 1, 0)
    return np.where(hashes[rows] == target.hash, source.offset[order[rows]], -1).astype(np.int64)


def settle(
    rest: Rest,
    earlier: Sequence[Records] = (),
    counted: Sequence[str] = ALL_FIELDS,
    explain: Explain = lambda difference: "",
) -> list[RecordDifference]:
    """Say what happened to each record without a partner, in the order of offsets.

    A record that both sides have at other places is reordered; a further copy of a source record that arrived (in the
    gaps or in `earlier`) is duplicated; two records at one place that share their key, value or timestamp are one that
    was altered. The others are missing, or extra.
    """
    moved_source, moved_target = _pair_moved(rest)
    found = [
        _difference(DifferenceKind.REORDERED, rest.source, source, rest.target, target)
        for source, target in zip(moved_source.tolist(), moved_target.tolist(), strict=True)
    ]
    copy_of = rest.copy_of.copy()
    for records in earlier:
        copy_of = np.maximum(copy_of, copies(rest.target, records))
    open_source, open_target = np.ones(len(rest.source), np.bool_), np.ones(len(rest.target), np.bool_)
    open_source[moved_source], open_target[moved_target] = False, False
    duplicated = np.flatnonzero(open_target & (copy_of >= 0))
    for row in duplicated.tolist():
        copy = _difference(DifferenceKind.DUPLICATED, None, None, rest.target, row)
        found.append(replace(copy, source_offset=int(copy_of[row])))
    open_target[duplicated] = False
    for source, target in zip(*_pair_altered(rest, open_source, open_target, counted), strict=True):
        altered = _difference(DifferenceKind.ALTERED, rest.source, source, rest.target, target)
        found.append(replace(altered, fields=_altered_fields(rest, source, target, counted)))
        open_source[source] = open_target[target] = False
    for row in np.flatnonzero(open_source).tolist():
        found.append(_difference(DifferenceKind.MISSING, rest.source, row, None, None))
    for row in np.flatnonzero(open_target).tolist():
        found.append(_difference(DifferenceKind.EXTRA, None, None, rest.target, row))
    found = [replace(difference, expected=explain(difference)) for difference in found]
    return sorted(found, key=_by_offsets)


def unexplained(rest: Rest) -> Records:
    """Return the target records whose first copy is to be looked for in the source before the gaps.

    Where a place has no such record, `settle` needs nothing of `earlier`.
    """
    _, moved = _pair_moved(rest)
    open_target = rest.copy_of < 0
    open_target[moved] = False
    return rest.target.take(open_target)


def tally(differences: Iterable[RecordDifference]) -> tuple[dict[DifferenceKind, int], dict[str, int]]:
    """Count faults by kind, and expected differences by reason."""
    counts: Counter[DifferenceKind] = Counter()
    expected: Counter[str] = Counter()
    for difference in differences:
        if difference.expected:
            expected[difference.expected] += 1
        else:
            counts[difference.kind] += 1
    return dict(counts), dict(expected)


@dataclass(frozen=True)
class Run:
    """Differences of one kind whose records follow each other: first and last offset on each side, None as in them."""

    kind: DifferenceKind
    count: int
    source: tuple[int, int] | None
    target: tuple[int, int] | None
    time_ms: tuple[int, int] | None
    expected: str = ""


RUN_GAP = 8
"""Offsets between two records that still follow each other: markers of transactions take some."""


def runs_of(differences: Iterable[RecordDifference]) -> list[Run]:
    """Sum up differences that follow each other: a restart that repeats 500 records is one run.

    A run rises on both sides and its target offsets are at most RUN_GAP apart.
    """
    groups: list[list[RecordDifference]] = []
    for difference in sorted(differences, key=lambda one: (one.kind, one.expected, *_by_target(one))):
        if groups and _follows(groups[-1][-1], difference):
            groups[-1].append(difference)
        else:
            groups.append([difference])
    return sorted((_run(group) for group in groups), key=lambda run: run.source or run.target or (0, 0))


def _by_target(difference: RecordDifference) -> tuple[int, int]:
    source, target = _by_offsets(difference)[1:]
    return (target, source) if target >= 0 else (source, source)


def _follows(before: RecordDifference, after: RecordDifference) -> bool:
    if (before.kind, before.expected) != (after.kind, after.expected):
        return False
    sides = ((before.source_offset, after.source_offset), (before.target_offset, after.target_offset))
    return all(a is None or b is None or 0 < b - a <= RUN_GAP for a, b in sides)


def _run(group: list[RecordDifference]) -> Run:
    def ends(name: str) -> tuple[int, int] | None:
        values = [value for difference in group if (value := getattr(difference, name)) is not None]
        return (min(values), max(values)) if values else None

    return Run(
        group[0].kind, len(group), ends("source_offset"), ends("target_offset"), ends("time_ms"), group[0].expected
    )


def _pair_moved(rest: Rest) -> RowPairs:
    """Return rows of both sides that are the same record: the n-th lost with the n-th surplus one."""
    return _pair_equal(rest.source.hash, rest.target.hash)


def _pair_altered(
    rest: Rest, open_source: npt.NDArray[np.bool_], open_target: npt.NDArray[np.bool_], counted: Sequence[str]
) -> RowPairs:
    """Return rows of both sides at one place that share the most fields, at least a key, a value or a timestamp.

    Where timestamps do not count, records with null keys at a place with as many of both sides are paired, too.
    """
    source_rows, target_rows = np.flatnonzero(open_source), np.flatnonzero(open_target)
    pairs: list[RowPairs] = []
    names = [name for name in ALL_FIELDS if name in counted]
    shared = [subset for size in range(len(names) - 1, 0, -1) for subset in combinations(names, size)]
    for subset in shared:
        sources = source_rows[_identified(rest.source, source_rows, subset)]
        targets = target_rows[_identified(rest.target, target_rows, subset)]
        if not len(sources) or not len(targets):
            continue
        left, right = _pair_equal(
            _hash_at_place(rest.source, rest.source_place, sources, subset),
            _hash_at_place(rest.target, rest.target_place, targets, subset),
        )
        pairs.append((sources[left], targets[right]))
        source_rows = np.setdiff1d(source_rows, pairs[-1][0], assume_unique=True)
        target_rows = np.setdiff1d(target_rows, pairs[-1][1], assume_unique=True)
    if "timestamp" not in counted:
        pairs.append(_pair_null_keys(rest, source_rows, target_rows))
    return _concatenated(pairs)


def _pair_null_keys(rest: Rest, source_rows: Rows, target_rows: Rows) -> RowPairs:
    source_rows = source_rows[rest.source.key_hash[source_rows] == NULL_HASH]
    target_rows = target_rows[rest.target.key_hash[target_rows] == NULL_HASH]
    source_places, sources = np.unique(rest.source_place[source_rows], return_counts=True)
    target_places, targets = np.unique(rest.target_place[target_rows], return_counts=True)
    places, left, right = np.intersect1d(source_places, target_places, assume_unique=True, return_indices=True)
    places = places[sources[left] == targets[right]]
    return (
        source_rows[np.isin(rest.source_place[source_rows], places)],
        target_rows[np.isin(rest.target_place[target_rows], places)],
    )


def _identified(records: Records, rows: Rows, subset: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which records have one of the fields that tell records apart: a key, a value, a timestamp."""
    flags = np.full(len(rows), "timestamp" in subset)
    if "key" in subset:
        flags |= records.key_hash[rows] != NULL_HASH
    if "value" in subset:
        flags |= records.value_hash[rows] != NULL_HASH
    return flags


def _hash_at_place(records: Records, place: Ints, rows: Rows, subset: Sequence[str]) -> Hashes:
    return mix(records.take(rows).hashed_over(subset).hash + place[rows].view(np.uint64))


def _pair_equal(left: Hashes, right: Hashes) -> RowPairs:
    """Return rows with equal hashes: the n-th occurrence on one side with the n-th on the other."""
    left_ranked, right_ranked = _ranked(left), _ranked(right)
    _, left_rows, right_rows = np.intersect1d(left_ranked, right_ranked, assume_unique=True, return_indices=True)
    order = np.argsort(right_rows)
    return left_rows[order], right_rows[order]


def _ranked(hashes: Hashes) -> Hashes:
    """Return distinct hashes: those of the second, third and further occurrences are mixed with that number."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(hashes) else np.zeros(0, np.intp)
    ranks = np.zeros(len(hashes), np.uint64)
    ranks[order] = np.arange(len(hashes)) - np.repeat(starts, np.diff(np.append(starts, len(hashes))))
    return np.where(ranks > 0, mix(hashes + mix(ranks)), hashes)


def _concatenated(pairs: Sequence[RowPairs]) -> RowPairs:
    empty = np.zeros(0, np.intp)
    return np.concatenate([empty, *(left for left, _ in pairs)]), np.concatenate(
        [empty, *(right for _, right in pairs)]
    )


def _altered_fields(rest: Rest, source: int, target: int, counted: Sequence[str]) -> tuple[str, ...]:
    before, after = rest.source, rest.target
    same = {
        "key": before.key_hash[source] == after.key_hash[target],
        "value": before.value_hash[source] == after.value_hash[target],
        "timestamp": before.time_ms[source] == after.time_ms[target],
        "headers": before.headers_hash[source] == after.headers_hash[target],
    }
    return tuple(name for name in ALL_FIELDS if name in counted and not same[name])


def _difference(
    kind: DifferenceKind, source: Records | None, source_row: int | None, target: Records | None, target_row: int | None
) -> RecordDifference:
    """Return a difference with timestamp and key of the source's record, or the target's where there is none."""
    records, row = (source, source_row) if source is not None else (target, target_row)
    assert records is not None
    return RecordDifference(
        kind=kind,
        source_offset=None if source is None else int(source.offset[source_row]),
        target_offset=None if target is None else int(target.offset[target_row]),
        time_ms=int(records.time_ms[row]),
        key_hash=key_text(int(records.key_hash[row])),
    )


def _by_offsets(difference: RecordDifference) -> tuple[bool, int, int]:
    source, target = difference.source_offset, difference.target_offset
    return source is None, source if source is not None else -1, target if target is not None else -1

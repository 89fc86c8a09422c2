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
import pyarrow as pa

from mm2mgr.audit.doubts import (
    Flags,
    PlaceDoubts,
    Span,
    are_elsewhere,
    doubts_at_start,
    find_doubts,
    is_single,
    rows_without,
)
from mm2mgr.audit.records import NULL_HASH, RECORD_SCHEMA, Hashes, Ints, Records, key_text, mix
from mm2mgr.audit.report import DifferenceKind, RecordDifference
from mm2mgr.audit.sequences import Rows, pair_among_others, pair_in_order
from mm2mgr.audit.windows import ALL_FIELDS

RowPairs = tuple[Rows, Rows]
REST_SCHEMA = pa.schema([*RECORD_SCHEMA, ("is_target", pa.bool_()), ("place", pa.int64()), ("copy_of", pa.int64())])
NO_COPY, OUTSIDE, NOT_OURS, BEHIND = -1, -2, -3, -4

Explain = Callable[[RecordDifference], str]
"""Says why the flow's config makes a difference; empty for a fault."""


@dataclass(frozen=True)
class Unmatched:
    """Records of one or more gaps of a partition that have no partner in order.

    `place` is the same number for records of both sides between the same two partners; it is unique within a partition.
    `copy_of` is for target records: the offset of an equal source record in the gap that has its partner, NO_COPY for
    none, OUTSIDE for none where the record may be of before or after the window, and so is no fault by itself, NOT_OURS
    where it is not one as a copy either, BEHIND where it is open whether it is a copy or a later equal one.
    `doubts` are what equal records leave open of one gap, `doubtful` the source offsets of all gaps that are in doubt.
    """

    source: Records
    source_place: Ints
    target: Records
    target_place: Ints
    copy_of: Ints
    doubts: PlaceDoubts | None = None
    doubtful: Sequence[Span] = ()

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns of REST_SCHEMA."""
        both = Records.join([self.source, self.target]).to_arrow()
        sources, targets = len(self.source), len(self.target)
        columns = [
            pa.array(np.repeat([False, True], [sources, targets])),
            pa.array(np.concatenate([self.source_place, self.target_place])),
            pa.array(np.concatenate([np.full(sources, NO_COPY), self.copy_of])),
        ]
        return pa.RecordBatch.from_arrays([*both.columns, *columns], schema=REST_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> Unmatched:
        """Read the columns of REST_SCHEMA, of gaps in any order; others may be there."""
        names = ("is_target", "place", "copy_of")
        flags, place, copy_of = (table.column(name).to_numpy(zero_copy_only=False) for name in names)
        records = Records.from_arrow(table)
        order = np.argsort(records.offset, kind="stable")
        source, target = order[~flags[order]], order[flags[order]]
        return cls(records.take(source), place[source], records.take(target), place[target], copy_of[target])


@dataclass(frozen=True)
class Edges:
    """What the windows do not decide at the ends of a gap.

    `open_start`, `open_end`: target records before the first (after the last) that has a partner may be of before
    (after) the window, so they are never extra; set them for a gap `at_start` or `at_end` unless the target's window is
    bounded there. `open_copies`: those that equal a record of the window came twice; say no where timestamps do not
    count, as an equal record may be that of another time. `due`: source records from this offset on need not have
    arrived yet; where the source is read beyond it, the target's end need not be open. `window`: what is judged of the
    source, where that is to be told from what is around it. `among_others`: the target has records of other sources.
    """

    open_start: bool = False
    open_end: bool = False
    due: int | None = None
    open_copies: bool = True
    window: Span | None = None
    among_others: bool = False
    is_whole: bool = False


CLOSED = Edges()


def compare_gap(source: Records, target: Records, edges: Edges = CLOSED) -> Unmatched:
    """Match the records of a gap in order and return what has no partner; `hash` of both must be over the same fields.

    Where several matches are as long, what came twice is the later copy, or the earlier one at an open start.
    """
    due = len(source) if edges.due is None else int(np.searchsorted(source.offset, edges.due))
    is_open = edges.open_start, edges.open_end
    if edges.among_others:
        pairs, others = pair_among_others(source.hash, target.hash, due), []
    else:
        pairs, *others = pair_in_order(source.hash, target.hash, due, is_open)
    left, right = pairs
    lost_rows, surplus_rows = rows_without(left, len(source)), rows_without(right, len(target))
    rest = target.take(surplus_rows)
    # A place is named after the partner before it; where the source has no record, by a number no source offset has.
    start = source.offset[0] - 1 if len(source) else -2 - target.offset[0] if len(target) else 0
    before = np.concatenate([[start], source.offset[left]])
    source_place, place = before[np.searchsorted(left, lost_rows)], before[np.searchsorted(right, surplus_rows)]
    copy_of = copies(rest, place, source.take(left))
    # What an open end has belongs to no window; one burst of equal records may be on both sides of its edge.
    first, last = (int(right[0]), int(right[-1])) if len(right) else (len(target), -1)
    outside, unsure, near = _beyond_edges(source, rest, (surplus_rows < first, surplus_rows > last), is_open)
    if any(is_open) and are_elsewhere(left, len(source) if edges.due is None else due):
        outside |= ~_are_between_sure(source, target, pairs, surplus_rows)  # partners by chance tell no place
    copy_of[outside & (copy_of == NO_COPY)] = OUTSIDE
    if outside.any():
        is_known = _have_identity(target, source)
        if edges.open_copies and not unsure.all():  # by its time it is of no other window, so the same twice tells, too
            is_known[surplus_rows[~unsure]] |= _have_identity(target, source, with_copies=True)[surplus_rows[~unsure]]
        copy_of[(copy_of == OUTSIDE) & ~is_known[surplus_rows]] = NOT_OURS
    is_once = source.hash[is_single(source.hash)]
    open_copy = unsure & (copy_of >= 0)
    if open_copy.any():
        open_copy &= np.isin(rest.hash, source.hash[_have_identity(source)])
    if near.any():  # of a record that is no part of this gap
        open_copy |= near & (copy_of < 0) & _have_identity(target)[surplus_rows]
    copy_of[unsure if edges.open_copies else outside] = NOT_OURS
    if edges.open_copies:
        copy_of[open_copy] = BEHIND
    elif edges.is_whole:
        copy_of[_may_be_again(source, target, right, edges)[surplus_rows]] = BEHIND
    doubts = doubts_at_start(source, target, pairs) if edges.among_others and edges.open_start else None
    if edges.window is not None:
        bounds = *edges.window, edges.window[1] if edges.due is None else edges.due
        doubts = find_doubts(source, target, [pairs, *others], bounds, is_open)
        copy_of[doubts.surplus] = NOT_OURS
        # What the source has once, and the target in a place where it cannot be told, is not missing.
        there = np.intersect1d(is_once, rest.hash[copy_of <= NOT_OURS])
        doubts = doubts.with_lost(source.offset[lost_rows], np.isin(source.hash[lost_rows], there), edges.window)
        lost_rows, source_place = lost_rows[~doubts.lost], source_place[~doubts.lost]
    if edges.open_start:
        later = _later_copies(surplus_rows, copy_of, outside, source.offset[left], right)
        order = np.argsort(later)
        rest, copy_of = target.take(later[order]), copy_of[order]
        place = before[np.searchsorted(right, later[order])]
    return Unmatched(source.take(lost_rows), source_place, rest, place, copy_of, doubts)


def _beyond_edges(
    source: Records, rest: Records, beyond: tuple[Flags, Flags], is_open: tuple[bool, bool]
) -> tuple[Flags, Flags, Flags]:
    """Return which records without a partner, before or behind all partners, are at an open end; which of them may be
    of another window by their timestamps, as those of a burst; and which of these as well of this window, where
    timestamps are in disorder."""
    outside, unsure, near = (np.zeros(len(rest), np.bool_) for _ in range(3))
    # What was not read may be out of order by more than what was.
    disorder = 2 * int((np.maximum.accumulate(source.time_ms) - source.time_ms).max(initial=0))
    for flags, edge, sign in ((beyond[0], 0, 1), (beyond[1], -1, -1)):
        if not is_open[edge]:
            continue
        outside |= flags
        if len(source):
            later = sign * (rest.time_ms - source.time_ms[edge])
            unsure |= flags & (later <= disorder)
            near |= flags & (np.abs(later) <= disorder) & (disorder > 0)
            if disorder and flags.any():  # more of it may be in what was not read
                unsure |= flags & np.isin(rest.hash, source.hash[~_have_identity(source)])
        else:
            unsure |= flags
    return outside, unsure, near


def _may_be_again(source: Records, target: Records, partners: Rows, edges: Edges) -> Flags:
    """Return which target records may be copies where timestamps do not count: at an open end those behind the last
    partner; at an open start those that equal what the source has once, in the run of its records right before the
    first partner, or where two that follow each other do so in the source.
    """
    again, rows = np.zeros(len(target), np.bool_), np.arange(len(target))
    if edges.open_end:
        again |= rows > (partners[-1] if len(partners) else -1)
    if edges.open_start and len(partners):
        others = np.flatnonzero(~np.isin(target.hash[: partners[0]], source.hash))
        is_run = (rows > (others[-1] if len(others) else -1)) & (rows < partners[0])
        once = np.flatnonzero(is_single(source.hash))
        again |= is_run & np.isin(target.hash, source.hash[once])
        hashes, places = np.unique(source.hash[once], return_index=True)
        at = np.searchsorted(hashes, target.hash[: partners[0]])
        at = np.minimum(at, len(hashes) - 1)
        at = np.where(hashes[at] == target.hash[: partners[0]], once[places[at]], -1) if len(once) else at
        follows = np.flatnonzero((np.diff(at) == 1) & (at[:-1] >= 0))
        again[follows] = again[follows + 1] = True
    return again


def _later_copies(rows: Rows, copy_of: Ints, outside: Flags, offsets: Ints, partners: Rows) -> Rows:
    """Return target rows, where the first of several copies is before all partners with the last one in its place."""
    own = np.flatnonzero(outside & (copy_of >= 0) & (rows < (partners[0] if len(partners) else 0)))
    if not len(own):
        return rows
    own = own[np.argsort(copy_of[own], kind="stable")]
    copied, later = copy_of[own], rows.copy()
    is_last = np.append(copied[1:] != copied[:-1], True)
    later[own] = np.where(is_last, partners[np.searchsorted(offsets, copied)], np.append(rows[own[1:]], 0))
    return later


def _have_identity(records: Records, *others: Records, with_copies: bool = False) -> Flags:
    """Return which records are told from all others, or with copies from all that are not the same, by their timestamp
    with their key, and with their value; nor are there two such records in the other log."""
    flags = np.ones(len(records), np.bool_)
    first = np.unique(records.hash, return_index=True)[1] if with_copies else np.arange(len(records))
    for names in (("key", "timestamp"), ("value", "timestamp")):
        hashes = records.hashed_over(names).hash
        flags &= np.isin(hashes, hashes[first][is_single(hashes[first])])
        for log in others:
            there = log.hashed_over(names).hash
            flags &= ~np.isin(hashes, there[~is_single(there)])
    return flags


def _are_between_sure(source: Records, target: Records, pairs: RowPairs, rows: Rows) -> Flags:
    """Return which target rows are between two partners that are told from all others by more than their fields."""
    left, right = pairs
    sure = right[_have_identity(source)[left] & _have_identity(target)[right]]
    return (rows > sure[0]) & (rows < sure[-1]) if len(sure) else np.zeros(len(rows), np.bool_)


def copies(target: Records, places: Ints, source: Records) -> Ints:
    """Return for each target record the offset of an equal source record: the last one at or before the place, else the
    first one after it; -1 for none.
    """
    if not len(source):
        return np.full(len(target), -1, np.int64)
    source = source.take(np.argsort(source.offset, kind="stable"))
    count = len(source) + 1
    hashes, codes = np.unique(source.hash, return_inverse=True)
    ordered = np.sort(codes * count + np.arange(len(source)))
    code = np.searchsorted(hashes, target.hash)
    exists = hashes[np.minimum(code, len(hashes) - 1)] == target.hash
    place = np.searchsorted(source.offset, places, "right")
    after = np.searchsorted(ordered, code * count + place)
    before = np.maximum(after - 1, 0)
    rows = np.where(ordered[before] // count == code, before, np.minimum(after, len(ordered) - 1))
    return np.where(exists, source.offset[ordered[rows] % count], -1).astype(np.int64)


def settle(
    rest: Unmatched,
    earlier: Sequence[Records] = (),
    counted: Sequence[str] = ALL_FIELDS,
    explain: Explain = lambda difference: "",
    window: Span | None = None,
) -> list[RecordDifference]:
    """Say what happened to each record without a partner, in the order of source offsets.

    A record that both sides have at other places is reordered; a further copy of a source record that arrived (in the
    gaps or in `earlier`) is duplicated; two records at one place that share their key, value or timestamp are one that
    was altered. The others are missing (source records behind the window never), or extra.
    """
    source, target = rest.source, rest.target
    lost, surplus = np.ones(len(source), np.bool_), np.ones(len(target), np.bool_)
    differences: list[RecordDifference] = []

    def add_pairs(kind: DifferenceKind, pairs: RowPairs) -> None:
        for row, other in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
            if kind is DifferenceKind.ALTERED:
                differences.append(altered_difference(source, row, target, other, counted))
            else:
                differences.append(difference_of(kind, source, row, target, other))
        lost[pairs[0]] = surplus[pairs[1]] = False

    # What is not judged is in another place only where it is nowhere else.
    is_judged = np.ones(len(source), np.bool_)
    if window is not None:
        is_judged = (source.offset >= window[0]) & (source.offset < window[1])
    for low, end in rest.doubtful:
        is_judged &= (source.offset < low) | (source.offset >= end)
    for from_rows, to_rows in ((is_judged, rest.copy_of > NOT_OURS), (~is_judged, rest.copy_of < 0)):
        rows, others = np.flatnonzero(from_rows), np.flatnonzero(to_rows & surplus & (rest.copy_of > NOT_OURS))
        left, right = _pair_equal(source.hash[rows], target.hash[others])
        add_pairs(DifferenceKind.REORDERED, (rows[left], others[right]))
    copy_of = rest.copy_of
    for records in earlier:
        offsets = copies(target, rest.target_place, records)
        copy_of = np.where((copy_of < 0) & (copy_of > NOT_OURS) & (offsets >= 0), offsets, copy_of)
    duplicated = np.flatnonzero(surplus & (copy_of >= 0))
    for row in duplicated.tolist():
        copy = difference_of(DifferenceKind.DUPLICATED, None, 0, target, row)
        differences.append(replace(copy, source_offset=int(copy_of[row])))
    surplus[duplicated] = False
    add_pairs(DifferenceKind.ALTERED, _pair_altered(rest, lost, surplus & (rest.copy_of > NOT_OURS), counted))
    if window is not None:
        lost &= source.offset < window[1]
    for row in np.flatnonzero(lost).tolist():
        differences.append(difference_of(DifferenceKind.MISSING, source, row, None, 0))
    for row in np.flatnonzero(surplus & (copy_of == NO_COPY)).tolist():
        differences.append(difference_of(DifferenceKind.EXTRA, None, 0, target, row))
    return sorted((replace(item, expected=explain(item)) for item in differences), key=_by_offsets)


def copies_to_find(rest: Unmatched, counted: Sequence[str] = ALL_FIELDS) -> Records:
    """Return the target records that may be copies of source records that are in no gap.

    Look for these on the source and hand what was read to `settle`; without any, `settle` needs no `earlier`. Where
    timestamps do not count, most of the log would be searched: what can be an altered record is left out.
    """
    lost, surplus = np.ones(len(rest.source), np.bool_), np.isin(rest.copy_of, [NO_COPY, OUTSIDE])
    moved = _pair_equal(rest.source.hash, rest.target.hash)
    lost[moved[0]] = surplus[moved[1]] = False
    if "timestamp" not in counted:
        surplus[_pair_altered(rest, lost, surplus, counted)[1]] = False
    return rest.target.take(surplus | (rest.copy_of == BEHIND))


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


def _pair_altered(rest: Unmatched, lost: Flags, surplus: Flags, counted: Sequence[str]) -> RowPairs:
    """Return rows of both sides at one place that share the most fields, at least a key, a value or a timestamp.

    Where timestamps do not count, records with null keys at a place with as many of both sides are paired, too.
    """
    source, target = rest.source, rest.target
    source_rows, target_rows = np.flatnonzero(lost), np.flatnonzero(surplus)
    inside = rest.copy_of > OUTSIDE
    names = [name for name in ALL_FIELDS if name in counted]
    pairs: list[RowPairs] = []
    for subset in (subset for size in range(len(names) - 1, 0, -1) for subset in combinations(names, size)):
        sources, targets = source_rows, target_rows
        # All fields but one are enough, also where they are null; not a null key without headers.
        if len(subset) < len(names) - 1 or not {"value", "timestamp"} & {*subset}:
            sources = sources[_has_identity(source, sources, subset)]
            targets = targets[_has_identity(target, targets, subset)]
        if not {"value", "timestamp"} <= {*subset}:
            # Too little of a record that may be of another window; its timestamp with a key or a value will do.
            keyed = {"key", "timestamp"} <= {*subset}
            targets = targets[inside[targets] | (keyed & (target.key_hash[targets] != NULL_HASH))]
        if not len(sources) or not len(targets):
            continue
        left, right = _pair_equal(
            _hash_at_place(source, rest.source_place, sources, subset),
            _hash_at_place(target, rest.target_place, targets, subset),
        )
        pairs.append((sources[left], targets[right]))
        source_rows = np.setdiff1d(source_rows, pairs[-1][0], assume_unique=True)
        target_rows = np.setdiff1d(target_rows, pairs[-1][1], assume_unique=True)
    if "timestamp" not in counted:
        pairs.append(_pair_null_keys(rest, source_rows, target_rows[inside[target_rows]]))
    empty = np.zeros(0, np.intp)
    return np.concatenate([empty, *(left for left, _ in pairs)]), np.concatenate(
        [empty, *(right for _, right in pairs)]
    )


def _pair_null_keys(rest: Unmatched, source_rows: Rows, target_rows: Rows) -> RowPairs:
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


def _has_identity(records: Records, rows: Rows, subset: Sequence[str]) -> Flags:
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
    left_ranked, right_ranked = _number_occurrences(left), _number_occurrences(right)
    _, left_rows, right_rows = np.intersect1d(left_ranked, right_ranked, assume_unique=True, return_indices=True)
    order = np.argsort(right_rows)
    return left_rows[order], right_rows[order]


def _number_occurrences(hashes: Hashes) -> Hashes:
    """Return distinct hashes: those of the second, third and further occurrences are mixed with that number."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(hashes) else np.zeros(0, np.intp)
    ranks = np.zeros(len(hashes), np.uint64)
    ranks[order] = np.arange(len(hashes)) - np.repeat(starts, np.diff(np.append(starts, len(hashes))))
    return np.where(ranks > 0, mix(hashes + mix(ranks)), hashes)


def altered_fields(before: Records, row: int, after: Records, other: int, counted: Sequence[str]) -> tuple[str, ...]:
    same = {
        "key": before.key_hash[row] == after.key_hash[other],
        "value": before.value_hash[row] == after.value_hash[other],
        "timestamp": before.time_ms[row] == after.time_ms[other],
        "headers": before.headers_hash[row] == after.headers_hash[other],
    }
    return tuple(name for name in ALL_FIELDS if name in counted and not same[name])


def difference_of(
    kind: DifferenceKind, source: Records | None, source_row: int, target: Records | None, target_row: int
) -> RecordDifference:
    """Return a difference with timestamp and key of the source's record, or the target's where there is none."""
    records, row = (source, source_row) if source is not None else (target, target_row)
    return RecordDifference(
        kind=kind,
        source_offset=None if source is None else int(source.offset[source_row]),
        target_offset=None if target is None else int(target.offset[target_row]),
        time_ms=None if records is None else int(records.time_ms[row]),
        key_hash=None if records is None else key_text(int(records.key_hash[row])),
        content=_content(target, target_row, ("key", "value", "headers")) if source is None and target else None,
    )


def altered_difference(
    before: Records, row: int, after: Records, other: int, counted: Sequence[str]
) -> RecordDifference:
    """Return the difference of an altered record, with what its altered fields are on the target."""
    names = altered_fields(before, row, after, other, counted)
    difference = difference_of(DifferenceKind.ALTERED, before, row, after, other)
    return replace(difference, fields=names, content=_content(after, other, names))


def _content(records: Records, row: int, fields: Sequence[str]) -> int:
    return int(records.take(slice(row, row + 1)).hashed_over(fields).hash[0])


def _by_offsets(difference: RecordDifference) -> tuple[bool, int, int]:
    source, target = difference.source_offset, difference.target_offset
    return source is None, source if source is not None else -1, target if target is not None else -1

"""Where equal records leave open what became of those of a window: its place on the target, or which is lost. Pure.

Of two logs of which a part is read, equal records say little: the window may match at several places, and a lost one
may be that before the window. Runs of records that are found once on both sides hold the logs together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mm2mgr.audit.records import Hashes, Ints, Records
from mm2mgr.audit.sequences import RUN, Pairs, Rows, common_length, may_be_sent_again, runs_at

Flags = npt.NDArray[np.bool_]
Span = tuple[int, int]
"""Rows or offsets, end excluded."""


@dataclass(frozen=True)
class PlaceDoubts:
    """What is open of one gap. `spans` are source offsets of the window, end excluded, that cannot be judged; the flags
    are of source and target records without a partner that may as well be outside of the window. `repeats`: there are
    differences of records that have equals, or most have no partner, so that a larger part of the logs may tell another
    story.
    """

    spans: tuple[Span, ...]
    lost: Flags
    surplus: Flags
    repeats: bool
    sure_from: int = 0
    """At an open start the source offset of the first record whose place on the target is sure: partners of those
    before it may be equal by chance."""

    def with_lost(self, offsets: Ints, flags: Flags, window: Span) -> PlaceDoubts:
        """Return it with more of the lost records, whose offsets these are, in doubt."""
        inside = np.flatnonzero(flags & ~self.lost & (offsets >= window[0]) & (offsets < window[1]))
        runs = np.split(inside, np.flatnonzero(np.diff(inside) != 1) + 1) if len(inside) else []
        spans = [_span(offsets, int(run[0]), int(run[-1]) + 1) for run in runs]
        return replace(
            self, spans=(*self.spans, *spans), lost=self.lost | flags, repeats=self.repeats or len(spans) > 0
        )


def find_doubts(
    source: Records, target: Records, answers: list[Pairs], bounds: tuple[int, int, int], is_open: tuple[bool, bool]
) -> PlaceDoubts:
    """Return what the pairs of a gap, the first of several answers that are as good, leave open. At a start or an end
    that is open the target may have records that the source's part does not have. `bounds` are the source offsets of
    the window, its end excluded, and the end of what must have arrived."""
    window, due, (open_start, open_end) = bounds[:2], bounds[2], is_open
    left, right = pairs = answers[0]
    first, end = np.searchsorted(source.offset, window).tolist()
    lost, surplus = rows_without(left, len(source)), rows_without(right, len(target))
    anchors = np.flatnonzero(_have_one_place(source.hash, target.hash, pairs)) if any(is_open) else left[:0]
    spans = list(_without_place(source, target, left[anchors], window, is_open))
    lacking = [np.setdiff1d(np.arange(first, end), partners) for partners, _ in answers]
    rows_due = int(np.searchsorted(source.offset, due))
    if not all(map(len, lacking)) or may_be_sent_again(
        source.hash, target.hash, rows_due, is_open, _count_runs(lost) + _count_runs(surplus)
    ):  # nothing of the window need be lost
        spans += [_span(source.offset, int(part[0]), int(part[-1]) + 1) for part in lacking if len(part)]
    unsure_lost, unsure_surplus = np.zeros(len(source), np.bool_), np.zeros(len(target), np.bool_)
    repeated = source.hash[~is_single(source.hash)]
    if any(is_open):  # what equals other records tells nothing there
        beyond = np.ones(len(target), np.bool_)
        if len(anchors):
            beyond[right[anchors[0]] if open_start else 0 : right[anchors[-1]] + 1 if open_end else None] = False
        unsure_surplus |= beyond & np.isin(target.hash, repeated)
    repeats = bool(spans) or (any(is_open) and are_elsewhere(left, rows_due))
    starts, ends = np.searchsorted(left, lost), np.searchsorted(right, surplus)
    # A surplus record beside a lost one may be that record, altered.
    for run in _movable(source.hash, lost[~np.isin(starts, ends)], repeated):
        is_tail = run[1] == len(source) and (open_end or source.offset[run[0]] >= due)
        if is_tail or (run[0] == 0 and open_start):
            continue
        low, high = _reach(source.hash, run)
        repeats |= low == 0 or high == len(source)  # and may go on in what is not read again
        length = run[1] - run[0]
        inside = [min(at + length, end) - max(at, first) for at in (low, high - length)]
        if max(low, first) < min(high, end) and min(inside) <= 0:
            spans.append(_span(source.offset, max(low, first), min(high, end)))
            unsure_lost[run[0] : run[1]] = True
    low_limit = -1 if first == 0 and not open_start else first
    high_limit = len(source) + 1 if end == len(source) and not open_end else end
    for run in _movable(target.hash, surplus[~np.isin(ends, starts)], repeated):
        place = int(np.searchsorted(right, run[0]))
        if (place == 0 and open_start) or (place == len(right) and open_end):
            continue
        at = int(left[place - 1]) + 1 if place else 0
        low, high = (at + limit - edge for limit, edge in zip(_reach(target.hash, run), run, strict=True))
        low, high = max(low, 0), min(high, len(source))
        is_inside = low_limit < low and high < high_limit
        if not is_inside and max(low, low_limit + 1) <= min(high, high_limit - 1):
            spans.append(_span(source.offset, max(low - 1, first), min(high + 1, end)))
            unsure_surplus[run[0] : run[1]] = True
    repeats |= bool(spans)
    if not repeats:
        judged = lost[(lost >= first) & (lost < end)]
        low = right[0] if open_start and len(right) else -1
        between = surplus[(surplus > low) & (surplus < (right[-1] if open_end and len(right) else len(target)))]
        is_there = np.isin(source.hash[judged], target.hash) | np.isin(source.hash[judged], repeated)
        repeats = bool(is_there.any() or np.isin(target.hash[between], repeated).any())
    sure = source.offset[left[anchors[:open_start]]]
    return PlaceDoubts(tuple(spans), unsure_lost[lost], unsure_surplus[surplus], repeats, int(sure.max(initial=0)))


def doubts_at_start(source: Records, target: Records, pairs: Pairs) -> PlaceDoubts | None:
    """Return what is open where the target, which has others' records too, may have lost its beginning, None where it
    has all: partners before the first record whose place is sure may be others', equal by chance."""
    if not target.offset[:1].any():
        return None
    anchors = pairs[0][_have_one_place(source.hash, target.hash, pairs)]
    sure_from = int(source.offset[anchors[0]]) if len(anchors) else int(np.iinfo(np.int64).max)
    lost, surplus = (np.zeros(len(log) - len(pairs[0]), np.bool_) for log in (source, target))
    return PlaceDoubts((), lost, surplus, repeats=False, sure_from=sure_from)


def _without_place(
    source: Records, target: Records, anchors: Rows, window: Span, is_open: tuple[bool, bool]
) -> list[Span]:
    """Return the part of the window before the first, and after the last record whose place on the target is sure."""
    if not any(is_open):
        return []
    rows = np.flatnonzero(np.isin(source.hash, target.hash))
    if not len(anchors):
        return [window] if len(rows) else []
    before, after = rows[rows < anchors[0]], rows[rows > anchors[-1]]
    beyond = [part for part, may_be in zip((before, after), is_open, strict=True) if may_be and len(part)]
    spans = [_span(source.offset, int(part[0]), int(part[-1]) + 1) for part in beyond]
    spans = [(max(low, window[0]), min(high, window[1])) for low, high in spans]
    return [(low, high) for low, high in spans if low < high]


def _have_one_place(first: Hashes, second: Hashes, pairs: Pairs) -> Flags:
    """Return which pairs are of a record, or of a run of RUN records, that either side has once."""
    left, right = pairs
    flags = is_single(first)[left] & is_single(second)[right]
    if len(left) >= RUN and not flags.all():
        is_run = (left[RUN - 1 :] - left[: 1 - RUN] == RUN - 1) & (right[RUN - 1 :] - right[: 1 - RUN] == RUN - 1)
        starts = np.flatnonzero(is_run)
        single = is_single(runs_at(first))[left[starts]] & is_single(runs_at(second))[right[starts]]
        changes = np.zeros(len(left) + 1, np.int64)
        np.add.at(changes, starts[single], 1)
        np.add.at(changes, starts[single] + RUN, -1)
        flags |= np.cumsum(changes)[:-1] > 0
    return flags


def are_elsewhere(partners: Rows, due: int) -> bool:
    """Return whether so few of the rows before `due` have a partner that these may be equal by chance."""
    return 2 * int((partners < due).sum()) < due


def _count_runs(rows: Rows) -> int:
    """Return how many runs of rows that follow each other there are."""
    return int((np.diff(rows) != 1).sum()) + 1 if len(rows) else 0


def is_single(hashes: Hashes) -> Flags:
    """Return which hashes are there once."""
    _, places, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    flags: Flags = (counts == 1)[places]
    return flags


def rows_without(partners: Rows, count: int) -> Rows:
    """Return those of so many rows that have no partner."""
    flags = np.ones(count, np.bool_)
    flags[partners] = False
    return np.flatnonzero(flags)


def _movable(hashes: Hashes, rows: Rows, repeated: Hashes) -> list[Span]:
    """Return runs of rows, end excluded, that could be one record earlier or later with nothing else changed; where the
    source repeats none of them, they are of the same records in each place."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    starts, ends = rows[np.append(0, cuts)], rows[np.append(cuts, len(rows)) - 1] + 1
    before, after = np.maximum(starts - 1, 0), np.minimum(ends, len(hashes) - 1)
    moves = (starts > 0) & (hashes[before] == hashes[ends - 1])
    moves |= (ends < len(hashes)) & (hashes[after] == hashes[starts])
    moves &= np.logical_or.reduceat(np.isin(hashes[rows], repeated), np.append(0, cuts))
    return list(zip(starts[moves].tolist(), ends[moves].tolist(), strict=True))


def _reach(hashes: Hashes, run: Span) -> Span:
    """Return the rows that a run covers when it is moved as far as it goes to both sides."""
    start, end = run
    earlier = common_length(hashes[:start][::-1], hashes[end - start : end][::-1])
    later = common_length(hashes[end:], hashes[start : len(hashes) - (end - start)])
    return start - earlier, end + later


def _span(offsets: Ints, low: int, high: int) -> Span:
    return int(offsets[low]), int(offsets[high - 1]) + 1

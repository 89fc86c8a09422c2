"""The longest common subsequence of two sequences of hashes, without quadratic cost.

Exact where what is left between common ends has few pairs of equal hashes (Hunt and Szymanski 1977) or few differences
(Myers 1986). Beyond both bounds the answer is still a common subsequence and the same at each run, but may be shorter
than the longest, where hashes repeat.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mm2mgr.audit.records import Hashes, mix

Rows = npt.NDArray[np.intp]
Pairs = tuple[Rows, Rows]
"""Rows of the first and of the second sequence that belong together, both rising."""

MOST_PAIRS = 400_000
MOST_EDITS = 400
EDITS_OF_A_STRETCH, MOST_STRETCHES = 100, 400
MOST_STEPS = 16_000_000
RUN = 32


def common_subsequence(first: Hashes, second: Hashes, weights: Rows | None = None) -> Pairs:
    """Return the rows of a longest common subsequence; with weights of the first sequence, of a heaviest one.

    Equal hashes have equal weights. Where several are as long: common ends first, and equal elements as early as they
    can be, so that of equal records the later copy is the surplus one.
    """
    left, right = _between_common_ends(first, second, weights, _middle_of_common)
    embed_early(first, left)
    embed_early(second, right)
    return left, right


def pair_in_order(first: Hashes, second: Hashes, due: int, is_open: tuple[bool, bool]) -> list[Pairs]:
    """Match two logs in order so that most records have a partner that need one: all of the second, and those of the
    first before row `due`. More than one answer where several are as good.

    At an open start or end the second may have more than the first has, and partners are as near as they can be.
    """
    best = _pair_between(first, second, is_open)
    most = due + len(second)
    if is_open[1] or _count_explained(best, due, is_open[0]) == most or len(np.unique(first)) == len(first):
        return [best]
    answers = [best]
    if is_open[0]:
        reach = max(due, int(best[0][-1]) + 1 if len(best[0]) else 0)
        (left, right), is_done = _by_edits(first[:reach][::-1], second[::-1], MOST_EDITS, None)
        answers += [(reach - 1 - left[::-1], len(second) - 1 - right[::-1])] if is_done else []
    else:
        pairs, is_done = _by_edits(first, second, MOST_EDITS, due)
        if is_done:
            embed_early(first, pairs[0])
            embed_early(second, pairs[1])
        answers.append(pairs if is_done else common_subsequence(first, second))
    if due < len(first):  # what need not have arrived only explains what is left
        left, right = _pair_between(first[:due], second, (is_open[0], True))
        behind = int(right[-1]) + 1 if len(right) else 0
        later, further = common_subsequence(first[due:], second[behind:])
        answers.append((np.concatenate([left, later + due]), np.concatenate([right, further + behind])))
    most = max(_count_explained(pairs, due, is_open[0]) for pairs in answers)
    return [pairs for pairs in answers if _count_explained(pairs, due, is_open[0]) == most]


def may_be_sent_again(first: Hashes, second: Hashes, due: int, is_open: tuple[bool, bool], most: int) -> bool:
    """Return whether at most so many restarts explain all that is different: each goes back to a row that was there
    before, and goes on from it. False, too, for so many rows that it would take long to know."""
    if not due or len(first) * len(second) > MOST_STEPS or not np.isin(first[:due], second).all():
        return False
    never = np.int32(most + 1)
    costs, least = np.full(len(first), never, np.int32), int(never)
    for row, code in enumerate(second.tolist()):
        again = np.minimum.accumulate(costs[::-1])[::-1] + 1
        start = 0 if is_open[0] or not row else never
        costs = np.minimum(np.where(first == code, np.minimum(np.append(start, costs[:-1]), again), never), never)
        least = min(least, int(costs[-1]) if is_open[1] else least)
    return min(least, int(costs[due - 1 :].min())) <= most


def pair_among_others(first: Hashes, second: Hashes, due: int) -> Pairs:
    """Match a log with one that has others' records, too: what is due as early as can be where all of it that has an
    equal is there in order, else as much as can be.
    """
    left = np.flatnonzero(np.isin(first, second))
    rows: list[int] = []
    needed = iter(first[left].tolist())
    code = next(needed, None)
    for row, other in enumerate(second.tolist()):
        if other == code:
            rows.append(row)
            code = next(needed, None)
    if len(rows) < (left < due).sum():
        return common_subsequence(first, second)
    return left[: len(rows)], np.array(rows, np.intp)


def _count_explained(pairs: Pairs, due: int, open_start: bool) -> int:
    """Return how many elements need no further explanation."""
    before = int(pairs[1][0]) if open_start and len(pairs[1]) else 0
    return int((pairs[0] < due).sum()) + len(pairs[1]) + before


def _pair_between(first: Hashes, second: Hashes, is_open: tuple[bool, bool]) -> Pairs:
    if not is_open[0]:
        return subsequence_in_runs(first, second)
    left, right = subsequence_in_runs(first[::-1], second[::-1])
    left, right = len(first) - 1 - left[::-1], len(second) - 1 - right[::-1]
    if is_open[1] and len(right):  # as near to the longest run as can be, at both ends
        ends = np.append(np.flatnonzero(np.diff(right) != 1), len(right) - 1)
        pivot = int(ends[np.argmax(np.diff(ends, prepend=-1))])
        behind = right[pivot:] - right[pivot]
        embed_early(second[right[pivot] :], behind)
        right[pivot:] = behind + right[pivot]
    return left, right


def subsequence_in_runs(first: Hashes, second: Hashes) -> Pairs:
    """Return rows of a common subsequence in few long runs: where elements repeat, they say less than their neighbours.

    Matches runs of RUN equal elements, then what is between; before the first and after the last run only as much as
    is as near to it on both sides. The subsequence may be shorter than the longest.
    """
    if not _repeat(first, second):
        return common_subsequence(first, second)
    left, right = common_subsequence(runs_at(first), runs_at(second))
    if not len(left):
        return common_subsequence(first, second)
    starts = np.flatnonzero(np.append(True, (np.diff(left) != 1) | (np.diff(right) != 1)))
    ends = np.append(starts[1:], len(left)) - 1
    parts: list[Pairs] = []
    row = column = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        shift = max(0, row - int(left[start]), column - int(right[start]))
        first_row, first_column = int(left[start]) + shift, int(right[start]) + shift
        length = int(left[end]) + RUN - first_row
        if length <= 0:
            continue
        parts.append(_between_runs(first, second, (row, first_row), (column, first_column), is_head=not parts))
        parts.append((np.arange(first_row, first_row + length), np.arange(first_column, first_column + length)))
        row, column = first_row + length, first_column + length
    most = 2 * min(len(first) - row, len(second) - column) + RUN
    bounds = (row, min(len(first), row + most)), (column, min(len(second), column + most))
    parts.append(_between_runs(first, second, *bounds, is_head=False))
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([rows for _, rows in parts])


def _between_runs(
    first: Hashes, second: Hashes, rows: tuple[int, int], columns: tuple[int, int], *, is_head: bool
) -> Pairs:
    if not is_head:
        left, right = common_subsequence(first[slice(*rows)], second[slice(*columns)])
        return left + rows[0], right + columns[0]
    most = 2 * min(rows[1], columns[1]) + RUN
    backward = first[max(0, rows[1] - most) : rows[1]][::-1], second[max(0, columns[1] - most) : columns[1]][::-1]
    left, right = common_subsequence(*backward)
    return rows[1] - 1 - left[::-1], columns[1] - 1 - right[::-1]


def _repeat(first: Hashes, second: Hashes) -> bool:
    """Return whether two sequences repeat themselves so much that single elements say little."""
    shorter = min(len(first), len(second))
    if shorter < 4 * RUN:
        return False
    hashes, counts = np.unique(first, return_counts=True)
    others, other_counts = np.unique(second, return_counts=True)
    _, left, right = np.intersect1d(hashes, others, assume_unique=True, return_indices=True)
    return int(counts[left] @ other_counts[right]) > 4 * shorter


def runs_at(hashes: Hashes) -> Hashes:
    """Return a hash of the RUN elements from each row on."""
    length = 1
    while length < RUN:
        hashes = mix(hashes[:-length] + mix(hashes[length:]))
        length *= 2
    return hashes


def _between_common_ends(
    first: Hashes,
    second: Hashes,
    weights: Rows | None,
    pair_middle: Callable[[Hashes, Hashes, Rows | None], Pairs],
) -> Pairs:
    """Pair common ends in their order, and what is between them by the function."""
    shorter = min(len(first), len(second))
    head = common_length(first[:shorter], second[:shorter])
    rest = shorter - head
    tail = common_length(first[len(first) - rest :][::-1], second[len(second) - rest :][::-1])
    first_middle, second_middle = first[head : len(first) - tail], second[head : len(second) - tail]
    heads, tails = np.arange(head), np.arange(-tail, 0)
    if not len(first_middle) or not len(second_middle):
        left = right = np.zeros(0, np.intp)
    else:
        middle_weights = None if weights is None else weights[head : len(first) - tail]
        left, right = pair_middle(first_middle, second_middle, middle_weights)
    return (
        np.concatenate([heads, left + head, tails + len(first)]),
        np.concatenate([heads, right + head, tails + len(second)]),
    )


def common_length(first: Hashes, second: Hashes) -> int:
    """Return how many leading elements of two arrays of one length are equal."""
    start, step = 0, 64
    while start < len(first):
        differs = first[start : start + step] != second[start : start + step]
        if differs.any():
            return start + int(differs.argmax())
        start, step = start + step, min(step * 8, 1 << 20)
    return len(first)


def _middle_of_common(first: Hashes, second: Hashes, weights: Rows | None) -> Pairs:
    """Pair two sequences whose ends differ: first leave out what the other does not have."""
    first_rows = np.flatnonzero(np.isin(first, second))
    second_rows = np.flatnonzero(np.isin(second, first))
    reduced = first[first_rows], second[second_rows], None if weights is None else weights[first_rows]
    if len(first_rows) < len(first) or len(second_rows) < len(second):
        left, right = _between_common_ends(*reduced, _middle)
    else:
        left, right = _middle(*reduced)
    return first_rows[left], second_rows[right]


def _middle(first: Hashes, second: Hashes, weights: Rows | None) -> Pairs:
    """Pair two sequences that hold the same set of hashes, and whose ends differ."""
    hashes, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
    left, right = codes[: len(first)], codes[len(first) :]
    left_counts = np.bincount(left, minlength=len(hashes))
    right_counts = np.bincount(right, minlength=len(hashes))
    if int(left_counts @ right_counts) <= MOST_PAIRS:
        return _by_pairs(left.tolist(), right.tolist(), weights)
    pairs, is_done = _by_edits(first, second, MOST_EDITS, len(first))
    if is_done:
        return pairs
    once = (left_counts == 1) & (right_counts == 1)
    if once.any():
        return _between_anchors(first, second, weights, np.flatnonzero(once[left]), np.flatnonzero(once[right]))
    return _by_stretches(first, second, weights)


def _by_pairs(left: list[int], right: list[int], weights: Rows | None) -> Pairs:
    """Hunt and Szymanski: a longest rising chain among all pairs of equal elements."""
    places: dict[int, list[int]] = {}
    for row in range(len(right) - 1, -1, -1):
        places.setdefault(right[row], []).append(row)
    pairs = [(row, other) for row, code in enumerate(left) for other in places.get(code, ())]
    rows, partners = _as_pairs(pairs)
    chain = _rising(partners, None if weights is None else weights[rows])
    return rows[chain], partners[chain]


def _by_edits(first: Hashes, second: Hashes, most_edits: int, due: int | None) -> tuple[Pairs, bool]:
    """Myers: pair with the fewest insertions and deletions; equal stretches are compared as arrays. What the first has
    behind row `due` may be left over; None: what is left of either when the other has ended.

    Beyond so many edits: the pairs of the way that came farthest, and False.
    """
    rows, columns = len(first), len(second)
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(most_edits + 1):
        history.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            row = _step(reached, edits, diagonal)[1]
            column = row - diagonal
            if row < rows and column < columns and first[row] == second[column]:
                length = min(rows - row, columns - column)
                row += common_length(first[row : row + length], second[column : column + length])
            reached[diagonal], column = row, row - diagonal
            is_whole = row == rows or column == columns if due is None else row >= due and column == columns
            if is_whole and row <= rows and column <= columns:
                return _trace_back(history, edits, row, column), True
    inside = [
        (2 * row - diagonal, diagonal, row) for diagonal, row in reached.items() if (most_edits - diagonal) % 2 == 0
    ]
    inside = [
        (total, row, row - diagonal) for total, diagonal, row in inside if row <= rows and row - diagonal <= columns
    ]
    if not inside:
        return (np.zeros(0, np.intp), np.zeros(0, np.intp)), False
    _, row, column = max(inside)
    return _trace_back(history, most_edits, row, column), False


def _step(reached: dict[int, int], edits: int, diagonal: int) -> tuple[int, int]:
    """Return the diagonal before the last edit on the way to this one, and the row behind that edit."""
    down = diagonal == -edits or (diagonal != edits and reached.get(diagonal - 1, -1) < reached.get(diagonal + 1, -1))
    return (diagonal + 1, reached[diagonal + 1]) if down else (diagonal - 1, reached[diagonal - 1] + 1)


def _trace_back(history: list[dict[int, int]], edits: int, row: int, column: int) -> Pairs:
    stretches: list[tuple[int, int, int]] = []
    for number in range(edits, 0, -1):
        diagonal = row - column
        before, start = _step(history[number], number, diagonal)
        stretches.append((start, start - diagonal, row - start))
        row = history[number][before]
        column = row - before
    stretches.append((0, 0, row))
    left = [np.arange(start, start + length) for start, _, length in reversed(stretches)]
    right = [np.arange(start, start + length) for _, start, length in reversed(stretches)]
    return np.concatenate(left), np.concatenate(right)


def _by_stretches(first: Hashes, second: Hashes, weights: Rows | None) -> Pairs:
    """Go the way that comes farthest with some edits, and on from there; what is left after that by occurrence."""
    parts: list[Pairs] = []
    row = column = 0
    for _ in range(MOST_STRETCHES):
        (left, right), is_done = _by_edits(first[row:], second[column:], EDITS_OF_A_STRETCH, len(first) - row)
        parts.append((left + row, right + column))
        if is_done or not len(left):
            break
        row, column = row + int(left[-1]) + 1, column + int(right[-1]) + 1
    if not is_done:
        left, right = _by_occurrence(first[row:], second[column:], None if weights is None else weights[row:])
        parts.append((left + row, right + column))
    return np.concatenate([left for left, _ in parts]), np.concatenate([right for _, right in parts])


def _between_anchors(first: Hashes, second: Hashes, weights: Rows | None, left: Rows, right: Rows) -> Pairs:
    """Pair hashes that occur once in both by their longest rising chain, then what is between two of these."""
    right_sorted = right[np.argsort(second[right])]
    partners = right_sorted[np.searchsorted(second[right_sorted], first[left])]
    chain = _rising(partners, None if weights is None else weights[left])
    left_anchors, right_anchors = left[chain], partners[chain]
    left_parts, right_parts = [left_anchors], [right_anchors]
    bounds = [*left_anchors.tolist(), len(first)], [*right_anchors.tolist(), len(second)]
    row = column = 0
    for anchor, partner in zip(*bounds, strict=True):
        if anchor > row and partner > column:
            inner_weights = None if weights is None else weights[row:anchor]
            inner = _between_common_ends(first[row:anchor], second[column:partner], inner_weights, _middle_of_common)
            left_parts.append(inner[0] + row)
            right_parts.append(inner[1] + column)
        row, column = anchor + 1, partner + 1
    return np.sort(np.concatenate(left_parts)), np.sort(np.concatenate(right_parts))


def _by_occurrence(left: Hashes, right: Hashes, weights: Rows | None) -> Pairs:
    """Pair the n-th occurrence of a hash with the n-th, and take the longest rising chain of these pairs."""
    places: dict[tuple[int, int], int] = {}
    counts: Counter[int] = Counter()
    for row, code in enumerate(right.tolist()):
        places[code, counts[code]] = row
        counts[code] += 1
    counts.clear()
    pairs = []
    for row, code in enumerate(left.tolist()):
        partner = places.get((code, counts[code]))
        counts[code] += 1
        if partner is not None:
            pairs.append((row, partner))
    rows, partners = _as_pairs(pairs)
    chain = _rising(partners, None if weights is None else weights[rows])
    return rows[chain], partners[chain]


def _rising(numbers: Rows, weights: Rows | None) -> Rows:
    """Return the rows of a longest, or heaviest, strictly rising chain."""
    if weights is not None:
        return _heaviest_rising(numbers, weights)
    ends: list[int] = []  # the least last number of a chain by its length
    nodes: list[int] = []  # its row
    before = np.full(len(numbers), -1, np.intp)
    for row, number in enumerate(numbers.tolist()):
        length = bisect_left(ends, number)
        if length == len(ends):
            ends.append(number)
            nodes.append(row)
        else:
            ends[length], nodes[length] = number, row
        if length:
            before[row] = nodes[length - 1]
    return _chain(nodes[-1] if nodes else -1, before)


def _heaviest_rising(numbers: Rows, weights: Rows) -> Rows:
    """Keep chains whose weight rises with their last number, and of those with one last number the heaviest."""
    ends: list[int] = []
    totals: list[int] = []
    nodes: list[int] = []
    before = np.full(len(numbers), -1, np.intp)
    for row, (number, weight) in enumerate(zip(numbers.tolist(), weights.tolist(), strict=True)):
        place = bisect_left(ends, number)
        total = weight
        if place:
            before[row] = nodes[place - 1]
            total += totals[place - 1]
        if place < len(ends) and ends[place] == number and totals[place] >= total:
            continue
        after = place
        while after < len(ends) and totals[after] <= total:
            after += 1
        ends[place:after], totals[place:after], nodes[place:after] = [number], [total], [row]
    return _chain(nodes[-1] if nodes else -1, before)


def _chain(node: int, before: Rows) -> Rows:
    chain = []
    while node >= 0:
        chain.append(node)
        node = int(before[node])
    return np.array(chain[::-1], np.intp)


def _as_pairs(pairs: list[tuple[int, int]]) -> Pairs:
    both = np.array(pairs, np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def embed_early(hashes: Hashes, rows: Rows) -> None:
    """Move each row, first to last, to the first equal element after the row before it."""
    gaps = np.flatnonzero(np.diff(rows, prepend=-1) > 1)
    following = np.append(gaps[1:], len(rows)).tolist()
    index = 0
    for number, gap in enumerate(gaps.tolist()):
        index = max(index, gap)
        while index < following[number]:
            start, row = int(rows[index - 1]) + 1 if index else 0, int(rows[index])
            equal = hashes[start:row] == hashes[row]
            if not equal.any():
                break
            start += int(equal.argmax())
            stretch = following[number] - index
            moved = common_length(hashes[start : start + stretch], hashes[row : row + stretch])
            rows[index : index + moved] = np.arange(start, start + moved)
            index += moved

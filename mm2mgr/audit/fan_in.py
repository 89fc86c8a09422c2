"""Fan-in: several source logs mirrored into one target log, each source's records in its order among others'.

Blocks cannot be aligned, as the order between sources is free. Their order-independent sums show whether a window is
equal up to order; otherwise each target record is assigned to its source, and each source compared with its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from mm2mgr.audit.blocks import Blocks
from mm2mgr.audit.records import Hashes, Ints, Records
from mm2mgr.audit.windows import ALL_FIELDS


def is_same_multiset(sources: Sequence[Blocks], target: Blocks) -> bool:
    """Return whether the target has the sources' records, each as often, in whatever order."""
    parts = [*sources]
    sums = [np.concatenate([getattr(part, name) for part in parts]) for name in ("count", "sum", "xor")]
    return (
        int(sums[0].sum()) == target.records
        and int(sums[1].sum()) == int(target.sum.sum())
        and int(np.bitwise_xor.reduce(sums[2])) == int(np.bitwise_xor.reduce(target.xor))
    )


def assign_to_sources(sources: Sequence[Records], target: Records, counted: Sequence[str] = ALL_FIELDS) -> Ints:
    """Return for each target record the number of its source.

    Equal records of several sources go where they leave out the fewest records since the source's last one; for such
    records only their number is certain, not from which source each is. A record of no source goes to the one with a
    record that shares most of its fields, else to the first: it is altered, or extra.
    """
    numbers = np.full(len(target), -1, np.int64)
    holders = np.zeros(len(target), np.int64)
    for number, source in enumerate(sources):
        held = np.isin(target.hash, source.hash)
        holders += held
        numbers[held] = number
    ambiguous = np.flatnonzero(holders > 1)
    if len(ambiguous):
        _assign_ambiguous(sources, target, numbers, ambiguous)
    names = [name for name in ALL_FIELDS if name in counted]
    for size in range(len(names) - 1, 0, -1):
        for subset in combinations(names, size):
            for number, source in enumerate(sources):
                rows = np.flatnonzero(numbers < 0)
                if len(rows):
                    hashes = target.take(rows).hashed_over(subset).hash
                    numbers[rows[np.isin(hashes, source.hashed_over(subset).hash)]] = number
    return np.maximum(numbers, 0)


def _assign_ambiguous(sources: Sequence[Records], target: Records, numbers: Ints, ambiguous: Ints) -> None:
    """Assign records that several sources hold, in the order of the target."""
    is_ambiguous = np.zeros(len(target), np.bool_)
    is_ambiguous[ambiguous] = True
    progress = [_progress(source, target, (numbers == number) & ~is_ambiguous) for number, source in enumerate(sources)]
    shared = np.unique(target.hash[ambiguous])
    places = [_rows_by_hash(source, shared) for source in sources]
    taken = [-1] * len(sources)  # the last row of each source that an ambiguous record took
    for row, key in zip(ambiguous.tolist(), target.hash[ambiguous].tolist(), strict=True):
        best: tuple[int, int, int] | None = None
        for number, by_hash in enumerate(places):
            reached = max(int(progress[number][row]), taken[number])
            rows = by_hash.get(key, [])
            following = next((place for place in rows if place > reached), None)
            if following is not None and (best is None or following - reached < best[0]):
                best = following - reached, number, following
        if best is None:
            numbers[row] = next(number for number, by_hash in enumerate(places) if key in by_hash)
            continue
        _, number, following = best
        numbers[row] = number
        taken[number] = following
        places[number][key].remove(following)


def _progress(source: Records, target: Records, is_own: np.typing.NDArray[np.bool_]) -> Ints:
    """Return for each target row the highest source row that came at or before it, -1 for none."""
    hashes, first_rows = np.unique(source.hash, return_index=True)
    reached = np.full(len(target), -1, np.int64)
    if len(hashes):
        reached[is_own] = first_rows[np.searchsorted(hashes, target.hash[is_own])]
    return np.maximum.accumulate(reached)


def _rows_by_hash(source: Records, shared: Hashes) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.isin(source.hash, shared)).tolist():
        places.setdefault(int(source.hash[row]), []).append(row)
    return places

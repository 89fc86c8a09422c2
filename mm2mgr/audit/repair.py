"""What it takes to mirror again what is missing or altered: the offset to go back to, and what would come twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mm2mgr.audit.blocks import Blocks
from mm2mgr.audit.report import DifferenceKind, RecordDifference


@dataclass(frozen=True)
class Repair:
    """How a partition is repaired by mirroring again from `source_offset`, the first record that is to come again.

    `arrives`: the missing records that would come. `comes_again`: altered ones, which come a second time, beside their
    altered copy. `comes_twice`: records that arrived well and would come once more; `at_most` where the count is an
    upper bound, as the offset is within a block. The connector stores the last mirrored offset: `source_offset` - 1.
    """

    source_offset: int
    arrives: int
    comes_again: int
    comes_twice: int
    at_most: bool = False


def repair(differences: Iterable[RecordDifference], source: Blocks) -> Repair | None:
    """Return where to go back to for all faults of a partition that mirroring again can repair; None without any.

    `source` are the blocks of all that was mirrored so far. Duplicated, reordered and extra records stay as they are.
    """
    missing, altered = [], []
    for difference in differences:
        if difference.expected or difference.source_offset is None:
            continue
        if difference.kind is DifferenceKind.MISSING:
            missing.append(difference.source_offset)
        elif difference.kind is DifferenceKind.ALTERED:
            altered.append(difference.source_offset)
    if not missing and not altered:
        return None
    offset = min(missing + altered)
    later = source.last_offset >= offset
    records = int(source.count[later].sum())
    within = later & (source.first_offset < offset)
    return Repair(
        source_offset=offset,
        arrives=len(missing),
        comes_again=len(altered),
        comes_twice=max(0, records - len(missing) - len(altered)),
        at_most=bool(within.any()),
    )

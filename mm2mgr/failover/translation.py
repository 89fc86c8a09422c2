"""Offsets of a group on the source, translated to the target: as a release of Kafka does it, and sharper.

Sources: OffsetSyncStore.translateDownstream of 2.7 to 4.3; KAFKA-12635 (3.3), KAFKA-12468 and KAFKA-14666 (3.4.1, 3.5),
KAFKA-15202 (3.5.2, 3.6), KAFKA-15905 (3.7.1, 3.8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.partitions import Offsets

# --- as Kafka does it -------------------------------------------------------------------------------------------------

_WITHOUT_GUESS = (3, 3, 0)  # KAFKA-12635: a partition without syncs is not translated to the same offset
_MANY_SYNCS = (3, 4, 1)  # KAFKA-12468, KAFKA-14666: older syncs are used too, and only one record behind each
_SPACED_WELL = (3, 5, 2)  # KAFKA-15202: more of the older ones are held
_AFTER_CHECKPOINTS = (3, 7, 1)  # KAFKA-15905: a task that read the checkpoints topic takes syncs from before its start
_STORED_SYNCS = 64  # OffsetSyncStore.SYNCS_PER_PARTITION
_NEWEST_PATCH = 1_000  # of a release that is given as a line


def translate_as_kafka(
    release: str,
    upstream_offset: int,
    syncs: Sequence[OffsetSync],
    started_at: int = 0,
    *,
    read_checkpoints: bool = True,
) -> int | None:
    """Return the offset that a checkpoint task of a release gives for a group's offset; None: it writes no checkpoint.

    `syncs` are those of one partition in the order of their topic; the first `started_at` of them were there when the
    task started. `read_checkpoints`: the task could read the checkpoints topic then (releases from 3.7.1 on do).
    Releases before 3.3 give the same offset for a partition without syncs, which is a guess of theirs.
    """
    number = _release_number(release)
    if not syncs:
        return upstream_offset if number < _WITHOUT_GUESS else None
    stored = stored_syncs(release, syncs, started_at, read_checkpoints=read_checkpoints)
    nearest = next((sync for sync in stored if sync.upstream <= upstream_offset), None)
    if nearest is None:
        return None
    step = upstream_offset - nearest.upstream
    return nearest.downstream + (step if number < _MANY_SYNCS else min(step, 1))


def stored_syncs(
    release: str, syncs: Sequence[OffsetSync], started_at: int = 0, *, read_checkpoints: bool = True
) -> tuple[OffsetSync, ...]:
    """Return the syncs of one partition that a checkpoint task of a release has in memory, the newest first.

    ValueError for a text that is no release of Kafka.
    """
    number = _release_number(release)
    if not syncs or number < _MANY_SYNCS:
        return tuple(syncs[-1:])
    keeps_older = read_checkpoints and number >= _AFTER_CHECKPOINTS
    update = _update_well_spaced if number >= _SPACED_WELL else _update
    upstream = [sync.upstream for sync in syncs]
    slots = [0] * _STORED_SYNCS  # which sync; equal ones that were written twice are two
    for new in range(1, len(syncs)):
        is_loading = new < started_at and not keeps_older
        if is_loading or upstream[new] < upstream[slots[0]]:
            slots = [new] * _STORED_SYNCS
        else:
            slots = update(slots, new, upstream)
    return tuple(syncs[number] for number in dict.fromkeys(slots))


def _release_number(release: str) -> tuple[int, int, int]:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    if not match:
        raise ValueError(f"{release!r} is no release of Kafka")
    return int(match[1]), int(match[2]), int(match[3]) if match[3] else _NEWEST_PATCH


def _is_recent(later: int, earlier: int, later_slot: int, earlier_slot: int, upstream: Sequence[int]) -> bool:
    """Invariant B of OffsetSyncStore: the sync of a later slot is not too old for it."""
    return later == earlier or upstream[later] <= upstream[earlier] + (1 << earlier_slot) - (1 << later_slot)


def _is_apart(later: int, earlier: int, later_slot: int, upstream: Sequence[int]) -> bool:
    """Invariant C of OffsetSyncStore: syncs of two slots are far enough from each other."""
    return later == earlier or upstream[later] >= upstream[earlier] + (1 << max(later_slot - 2, 0))


def _update(original: Sequence[int], new: int, upstream: Sequence[int]) -> list[int]:
    """Return the slots after a new sync, as 3.4.1 to 3.5.1 fill them."""
    slots = list(original)
    replacement, candidate = new, slots[0]
    slots[0] = new
    for slot in range(1, _STORED_SYNCS):
        previous = slots[slot - 1]
        is_followed = slot + 1 >= _STORED_SYNCS or _is_apart(candidate, slots[slot + 1], slot, upstream)
        if (
            is_followed
            and _is_recent(previous, candidate, slot - 1, slot, upstream)
            and _is_apart(previous, candidate, slot - 1, upstream)
        ):
            replacement = candidate
        if _is_recent(previous, slots[slot], slot - 1, slot, upstream):
            break
        candidate, slots[slot] = slots[slot], replacement
    return slots


def _update_well_spaced(original: Sequence[int], new: int, upstream: Sequence[int]) -> list[int]:
    """Return the slots after a new sync, as 3.5.2 and later releases fill them."""
    slots = list(original)
    replacement, position = new, 0
    slots[0] = new
    for slot in range(1, _STORED_SYNCS):
        previous = slots[slot - 1]
        while True:
            candidate = original[position]
            is_apart = _is_apart(previous, candidate, slot - 1, upstream)
            is_followed = slot + 1 >= _STORED_SYNCS or _is_apart(candidate, slots[slot + 1], slot, upstream)
            is_repeated = position + 1 < _STORED_SYNCS and candidate == original[position + 1]
            is_promoted = is_apart and is_followed and _is_recent(previous, candidate, slot - 1, slot, upstream)
            if is_promoted:
                replacement = candidate
            is_passed_over = is_repeated or not is_apart
            if is_promoted or is_passed_over:
                position += 1
            if position >= slot or not is_passed_over:
                break
        if _is_recent(previous, slots[slot], slot - 1, slot, upstream):
            break
        slots[slot] = replacement
    return slots


# --- our own ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """How far a partition was mirrored at one moment, read in this order: `stored`, then `target`, then `source`.

    `target` is the end of its log on the target, `source` that of its log on the source (None: not readable), and
    `stored` the offset behind the one that the source connector stored (None: not known). So all records below
    `stored` have copies below `target`, and no record from `source` on has.
    """

    target: int
    source: int | None = None
    stored: int | None = None


@dataclass(frozen=True)
class ReadSection:
    """A section of a log whose records were read: from `first` to before `end`, and its offsets without a record."""

    first: int
    end: int
    empty: tuple[int, ...] = ()


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a partition's log on the target, read after the offset syncs.

    `ends` are looks at it, now and earlier, of the same topics (by their ids). `transactional`: offsets may hold
    control records, as transactional producers write them, MirrorMaker with exactly-once delivery too; then records
    are counted only in `sections` that were read.
    """

    log: Offsets
    ends: tuple[Ends, ...] = ()
    transactional: bool = True
    sections: tuple[ReadSection, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A group's offset on the target: never behind a record that the group has not read; None: unknown.

    `repeats_at_most`: how many records that the group has read come again from there on, each counted once.
    """

    offset: int | None
    repeats_at_most: int
    reason: str


def translate(upstream_offset: int, syncs: Sequence[OffsetSync], log: TargetFacts) -> Translation:
    """Return the offset on the target for a group's next offset on the source.

    `syncs` are those of the partition in the order of their topic; older ones, that compaction removed since, help.
    """
    (translation,) = translate_all((upstream_offset,), syncs, log)
    return translation


def translate_all(
    upstream_offsets: Iterable[int], syncs: Sequence[OffsetSync], log: TargetFacts
) -> tuple[Translation, ...]:
    """Translate the offsets of many groups in one partition."""
    raise NotImplementedError

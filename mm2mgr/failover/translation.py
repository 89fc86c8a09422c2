"""Offsets of a group on the source, translated to the target: as a release of Kafka does it, and sharper.

Sources: OffsetSyncStore.translateDownstream of 2.7 to 4.3; KAFKA-12635 (3.3), KAFKA-12468 and KAFKA-14666 (3.4.1, 3.5),
KAFKA-15202 (3.5.2, 3.6), KAFKA-15905 (3.7.1, 3.8).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

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
    return _stored_syncs(_release_number(release), tuple(syncs), started_at, read_checkpoints)


@lru_cache(maxsize=8)  # many groups in one partition
def _stored_syncs(
    release: tuple[int, int, int], syncs: tuple[OffsetSync, ...], started_at: int, read_checkpoints: bool
) -> tuple[OffsetSync, ...]:
    if not syncs or release < _MANY_SYNCS:
        return syncs[-1:]
    keeps_older = read_checkpoints and release >= _AFTER_CHECKPOINTS
    update = _update_well_spaced if release >= _SPACED_WELL else _update
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
class MirroredEnds:
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
    """A section of a log whose records were read, from `first` to before `end`.

    `empty`: its offsets without a record, in order. `repeated`: those, in order, whose record has the timestamp, key
    and value of an earlier one of the section, as it has when it was mirrored twice.
    """

    first: int
    end: int
    empty: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()

    @classmethod
    def from_records(cls, first: int, end: int, records: Iterable[tuple[int, Hashable]]) -> ReadSection:
        """Make it of all records in it: each with its offset, and what tells it from others, such as a digest."""
        contents, repeated, offsets = set[Hashable](), [], set[int]()
        for offset, content in records:
            offsets.add(offset)
            if content in contents:
                repeated.append(offset)
            contents.add(content)
        return cls(first, end, tuple(offset for offset in range(first, end) if offset not in offsets), tuple(repeated))


class _Place(NamedTuple):
    """A place in the target's log before which no record is from source offset `upstream` or a later one.

    `is_record`: the record from that offset is there.
    """

    upstream: int
    downstream: int
    is_record: bool

    @property
    def read_to(self) -> int:
        """The end of the section that is to be read for it."""
        return self.downstream + self.is_record


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a partition's log on the target, read after the offset syncs.

    `ends` are looks at it, the oldest first, of the same topics (by their ids). `transactional`: offsets may hold
    control records, as transactional producers write them, MirrorMaker with exactly-once delivery too; then records
    are counted only in `sections` that were read.
    """

    log: Offsets
    ends: tuple[MirroredEnds, ...] = ()
    transactional: bool = True
    sections: tuple[ReadSection, ...] = ()

    def count(self, first: int, end: int) -> int | None:
        """Return how many records there are from an offset to before another; None: not known.

        Those that compaction or retention has removed since may be counted.
        """
        if first >= end:
            return 0
        section = self._section_with(first, end)
        if section is None:
            return None if self.transactional else end - first
        return end - first - (bisect_left(section.empty, end) - bisect_left(section.empty, first))

    def is_straight(self, first: int, place: _Place, room: int) -> bool:
        """Tell whether no record from an offset to before a place came twice; `room`: the offsets of the source there.

        Either the records were read, and none repeats another, that of the place neither; or there are exactly as many.
        """
        section = self._section_with(first, place.read_to)
        if first < place.read_to and section:
            return bisect_left(section.repeated, first) == bisect_left(section.repeated, place.read_to)
        return self.count(first, place.downstream) == room

    def counts_more(self, sync: OffsetSync, later: OffsetSync) -> bool:
        """Tell whether more records are known between two syncs than the source can have there."""
        count = self.count(sync.downstream + 1, later.downstream)
        return count is not None and count > later.upstream - sync.upstream - 1

    def place_before(self, end: int, count: int) -> int:
        """Return the offset from which so many records lie before `end`, in a section that was read."""
        offset = end - count
        section = self._section_with(end - 1, end)
        for empty in reversed(section.empty[: bisect_left(section.empty, end)] if section else ()):
            if empty < offset:
                break
            offset -= 1
        return offset

    def _section_with(self, first: int, end: int) -> ReadSection | None:
        place = bisect_right(self._joined_sections, first, key=lambda section: section.first) - 1
        return self._joined_sections[place] if place >= 0 and self._joined_sections[place].end >= end else None

    @cached_property
    def _joined_sections(self) -> list[ReadSection]:
        """The sections in order, those that touch joined."""
        joined: list[ReadSection] = []
        for section in sorted(self.sections, key=lambda section: section.first):
            if joined and section.first <= joined[-1].end:
                before = joined.pop()
                empty, repeated = (
                    tuple(sorted({*first, *second}))
                    for first, second in ((before.empty, section.empty), (before.repeated, section.repeated))
                )
                joined.append(ReadSection(before.first, max(before.end, section.end), empty, repeated))
            else:
                joined.append(section)
        return joined


@dataclass(frozen=True)
class Translation:
    """A group's offset on the target, and why it is that: from there on it misses no record that it has not read on the
    source. None: unknown.

    `repeats_at_most`: how many records that the group has read come again from there on, each counted once. `deleted`:
    so many offsets before it the target's log does not have any more, from the first that would miss nothing on.
    """

    offset: int | None
    repeats_at_most: int
    reason: str
    deleted: int = 0


def translate(upstream_offset: int, syncs: Sequence[OffsetSync], log: TargetFacts) -> Translation:
    """Return the offset on the target for a group's next offset on the source.

    `syncs` are those of the partition in the order of their topic; older ones, that compaction removed since, help.
    Relied on: a task that starts writes a sync with its first record (2.7 to 4.3 do). Where that was lost, what came
    twice is noticed by the records that are too many, unless gaps of the source make up for them.
    """
    return _Mirrored.from_syncs(syncs, log).translate(upstream_offset)


def translate_all(
    upstream_offsets: Iterable[int], syncs: Sequence[OffsetSync], log: TargetFacts
) -> tuple[Translation, ...]:
    """Translate the offsets of many groups in one partition, as `translate` does."""
    mirrored = _Mirrored.from_syncs(syncs, log)
    return tuple(mirrored.translate(offset) for offset in upstream_offsets)


def section_to_count(upstream_offset: int, syncs: Sequence[OffsetSync], log: TargetFacts) -> tuple[int, int] | None:
    """Return the section of the target's log (end exclusive) that makes a translation sharper once it was read."""
    return _Mirrored.from_syncs(syncs, log).section(upstream_offset)


_MARGIN = 2  # a start whose sync is lost and whose repeated records are hidden by gaps makes a run seem longer


@dataclass(frozen=True)
class _Bound:
    """The first record that a group has not read is at `offset` or later; `repeats` that it has read follow at most."""

    offset: int
    repeats: int
    reason: str


@dataclass(frozen=True)
class _Run:
    """What was mirrored from one start of a task to the next, as its syncs show it: both their offsets only rise.

    `end`: where the next run begins in the target's log.
    """

    syncs: tuple[OffsetSync, ...]
    upstream: tuple[int, ...]
    end: int

    @property
    def first(self) -> OffsetSync:
        return self.syncs[0]

    def nearest(self, offset: int) -> OffsetSync:
        """Return the last sync at or below a source offset that the run has."""
        return self.syncs[bisect_right(self.upstream, offset) - 1]

    def next_after(self, offset: int) -> OffsetSync | None:
        """Return the first sync above a source offset."""
        place = bisect_right(self.upstream, offset)
        return self.syncs[place] if place < len(self.syncs) else None

    def count_new(self, facts: TargetFacts) -> int:
        """Return how many records this run has, at least."""
        parts = [*(sync.downstream for sync in self.syncs), self.end]
        return sum(facts.count(first, end) or 0 for first, end in pairwise(parts))

    def count_from(self, offset: int) -> int:
        """Return how many records of this run, at most, are from a source offset or a later one."""
        if offset < self.first.upstream:
            return self.end
        sync = self.nearest(offset)
        return self.end - sync.downstream - (sync.upstream < offset)


@dataclass(frozen=True)
class _Extra:
    """More records lie between two places on the target than offsets on the source, by `count`: some came twice."""

    first: int
    end: int
    count: int


@dataclass(frozen=True)
class _Mirrored:
    """A partition as it was mirrored: runs in the order of the target's log, and which of them may be relied on.

    A task that is started again mirrors those records again that its connector had not stored as mirrored. From then on
    what earlier runs have of these is superseded, but only once the new run has come as far as they had: until then
    records may be in an earlier run only. `complete`: the last run that has.
    """

    facts: TargetFacts
    runs: tuple[_Run, ...]
    complete: int
    ends: tuple[MirroredEnds, ...]
    extras: tuple[_Extra, ...]

    @classmethod
    def from_syncs(cls, syncs: Sequence[OffsetSync], facts: TargetFacts) -> _Mirrored:
        runs = _split_runs(syncs, facts)
        ends = tuple(end for end in facts.ends if end.target <= facts.log.end)
        complete = max((number for number in range(len(runs)) if _is_complete(runs, number, facts, ends)), default=0)
        return cls(facts, runs, complete, ends, tuple(_find_extras(runs, facts, ends)))

    def translate(self, offset: int) -> Translation:
        """Return the latest offset that is proven to miss nothing."""
        log = self.facts.log
        if self.runs and (sync := self.runs[-1].syncs[-1]).downstream >= log.end:
            return _untranslated_because(
                f"the log ends at {log.end}, an offset sync is to {sync.downstream}: truncated or made anew"
            )
        bounds = [*self._bounds_by_syncs(offset), *self._bounds_by_ends(offset)]
        if not bounds:
            return _untranslated_because(
                "no offset sync at or below it" if self.runs else "no offset sync of this partition"
            )
        best = max(bounds, key=lambda bound: bound.offset)
        repeats = min(bound.repeats + self._count_again(bound, offset) for bound in bounds)
        if best.offset < log.start:
            text = f"{best.reason}; the target has deleted records since"
            return Translation(log.start, repeats, text, log.start - best.offset)
        return Translation(best.offset, repeats, best.reason)

    def section(self, offset: int) -> tuple[int, int] | None:
        """Return the section of the target's log (end exclusive) in which records are to be counted for an offset."""
        run = self._run_of(offset)
        below = run.nearest(offset) if run else None
        for place in self._places_above(offset):
            if below and below.upstream < offset and below.downstream + 1 < place.downstream:
                return below.downstream + 1, place.read_to
        return None

    def _bounds_by_syncs(self, offset: int) -> Iterator[_Bound]:
        run = self._run_of(offset)
        if run is None:
            first = self.runs[0].first if self.runs else None
            if first and first.downstream <= self.facts.log.start:
                yield _Bound(first.downstream, 0, f"before the offset sync at {first.upstream}")
            return
        sync = run.nearest(offset)
        if sync.upstream == offset:
            yield _Bound(sync.downstream, 0, f"the offset sync at {offset}")
            return
        behind = offset - sync.upstream - 1
        yield _Bound(sync.downstream + 1, behind, f"behind the offset sync at {sync.upstream}")
        for place in self._places_above(offset):
            # At most `place.upstream - offset` records that are unread lie before this place. Gaps on the source make
            # it less, and compaction of the target too; records that came twice would make it more.
            begin, room = sync.downstream + 1, place.upstream - sync.upstream - 1
            count = self.facts.count(begin, place.downstream)
            if count is not None and count <= room and self.facts.is_straight(begin, place, room):
                back = max(begin, self.facts.place_before(place.downstream, place.upstream - offset))
                reason = f"counted between source offsets {sync.upstream} and {place.upstream}"
                yield _Bound(back, min(behind, room - count), reason)

    def _places_above(self, offset: int) -> Iterator[_Place]:
        """Yield the next sync above an offset in its run, and ends of the log that are nearer."""
        run = self._run_of(offset)
        if run is None:
            return
        below, above = run.nearest(offset), run.next_after(offset)
        if above:
            yield _Place(above.upstream, above.downstream, is_record=True)
        places = [
            _Place(end.source, end.target, is_record=False)
            for end in self.ends
            if end.source is not None
            and offset <= end.source
            and (above is None or end.source < above.upstream)
            and below.downstream < end.target <= run.end
        ]
        yield from sorted({min(places), max(places)} if places else ())

    def _run_of(self, offset: int) -> _Run | None:
        """Return the last run to rely on that has an offset."""
        runs = [run for run in self.runs[: self.complete + 1] if run.first.upstream <= offset]
        return runs[-1] if runs else None

    def _bounds_by_ends(self, offset: int) -> Iterator[_Bound]:
        """Yield what follows from an end of the source that the group has passed: what was mirrored before is read."""
        passed = [end for end in self.ends if end.source is not None and end.source <= offset]
        if not passed:
            return
        target = max(end.target for end in passed)
        repeats = []
        stored = max((end.stored for end in self.ends if end.stored is not None and end.target <= target), default=None)
        if stored is not None:
            repeats.append(max(0, offset - stored))
        place = bisect_left(self._downstream, target) - 1
        before = self._syncs[place] if place >= 0 else None
        if before and before.upstream < offset:
            behind = offset - before.upstream - 1
            count = self.facts.count(before.downstream + 1, target) or 0
            repeats.append(behind - count if count <= behind else behind)
        if repeats:
            yield _Bound(target, min(repeats), "all that was mirrored is read")

    @cached_property
    def _syncs(self) -> list[OffsetSync]:
        return [sync for run in self.runs for sync in run.syncs]

    @cached_property
    def _downstream(self) -> list[int]:
        return [sync.downstream for sync in self._syncs]

    def _count_again(self, bound: _Bound, offset: int) -> int:
        """Return how many records below a source offset may have been mirrored again from a bound on."""
        later = [run.first.upstream for run in self.runs if run.first.downstream >= bound.offset]
        again = max(0, offset - min(later, default=offset))
        for extra in self.extras:
            if extra.end > bound.offset:
                # What came twice is in one piece: before it reaches what is read, it has what lies between.
                between = max(0, extra.first - bound.offset - bound.repeats + 1)
                again += max(0, extra.count - between)
        return again


def _untranslated_because(reason: str) -> Translation:
    return Translation(None, 0, reason)


def _split_runs(syncs: Sequence[OffsetSync], facts: TargetFacts) -> tuple[_Run, ...]:
    """Return the runs; what was before the target's log went back is of another log, and dropped.

    A run begins where offsets of the source go back, and where more records lie before a sync than offsets of the
    source do: a task was started again that had not gone back to before the last sync, or whose first sync is lost.
    """
    runs: list[list[OffsetSync]] = []
    for sync in syncs:
        last = runs[-1][-1] if runs else None
        if last and (last.upstream, last.downstream) == (sync.upstream, sync.downstream):
            continue
        if last and sync.downstream <= last.downstream:
            runs, last = [], None
        if last is None or sync.upstream <= last.upstream or facts.counts_more(last, sync):
            runs.append([])
        runs[-1].append(sync)
    ends = [run[0].downstream for run in runs[1:]] + [facts.log.end] * bool(runs)
    return tuple(
        _Run(tuple(run), tuple(sync.upstream for sync in run), run_end) for run, run_end in zip(runs, ends, strict=True)
    )


def _is_complete(runs: Sequence[_Run], number: int, facts: TargetFacts, ends: Sequence[MirroredEnds]) -> bool:
    """Tell whether a run and those after it have all that earlier ones have from its first source offset on."""
    if number == 0:
        return True
    first = runs[number].first
    reached = max(run.upstream[-1] for run in runs[number:]) + 1
    after = [end for end in ends if end.target > first.downstream]
    reached = max([reached, *(end.stored for end in after if end.stored is not None)])
    if reached >= min((end.source for end in after if end.source is not None), default=reached + 1):
        return True
    overlap = max(run.count_from(first.upstream) for run in runs[:number])
    return runs[number].count_new(facts) >= _MARGIN * overlap


def _find_extras(runs: Sequence[_Run], facts: TargetFacts, ends: Sequence[MirroredEnds]) -> Iterator[_Extra]:
    places = [(sync.upstream, sync.downstream) for run in runs for sync in run.syncs]
    last = places[-1] if places else (0, 0)
    places += [
        (end.source, end.target)
        for end in ends[-1:]
        if places and end.source is not None and end.source > last[0] and last[1] < end.target
    ]
    for (upstream, first), (next_upstream, end) in pairwise(places):
        count = facts.count(first + 1, end)
        extra = (end - first - 1 if count is None else count) - (next_upstream - upstream - 1)
        if next_upstream > upstream and extra > 0:
            yield _Extra(first, end, extra)

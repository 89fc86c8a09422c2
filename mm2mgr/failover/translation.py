"""Offsets of a group on the source, translated to the target from the offset syncs, nearer than Kafka does it.

Source: MirrorSourceTask and OffsetSyncStore.translateDownstream of 2.7 to 4.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.partitions import Offsets


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


class _Place(NamedTuple):
    """A place in the target's log before which no record is from source offset `upstream` or a later one."""

    upstream: int
    downstream: int


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a partition's log on the target, read after the offset syncs.

    `ends` are looks at it, the oldest first, of the same topics (by their ids). `transactional`: offsets may hold
    control records, as transactional producers write them, MirrorMaker with exactly-once delivery too; then records
    are not counted.
    """

    log: Offsets
    ends: tuple[MirroredEnds, ...] = ()
    transactional: bool = True

    def count(self, first: int, end: int) -> int | None:
        """Return how many records there are from an offset to before another; None: not known.

        Those that compaction or retention has removed since are counted.
        """
        if first >= end:
            return 0
        return None if self.transactional else end - first

    def counts_more(self, sync: OffsetSync, later: OffsetSync) -> bool:
        """Tell whether more records are known between two syncs than the source can have there."""
        count = self.count(sync.downstream + 1, later.downstream)
        return count is not None and count > later.upstream - sync.upstream - 1


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
            # it less, and compaction of the target too; records that came twice would make it more. As many records
            # as offsets of the source: none came twice.
            begin = sync.downstream + 1
            if self.facts.count(begin, place.downstream) == place.upstream - sync.upstream - 1:
                reason = f"counted between source offsets {sync.upstream} and {place.upstream}"
                yield _Bound(max(begin, place.downstream - (place.upstream - offset)), 0, reason)

    def _places_above(self, offset: int) -> Iterator[_Place]:
        """Yield the next sync above an offset in its run, and ends of the log that are nearer."""
        run = self._run_of(offset)
        if run is None:
            return
        below, above = run.nearest(offset), run.next_after(offset)
        if above:
            yield _Place(above.upstream, above.downstream)
        places = [
            _Place(end.source, end.target)
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

"""Offsets of a group on a cluster that was mirrored to, translated to where these records came from. Pure.

With last names a group on B may still be within what A->B brought, which B->A never mirrors: no offset sync of B->A is
at or below it. The offset syncs of A->B say where these records are on A: the record behind one on B is behind it on A.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import Translation
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.partitions import Offsets

MOST_READ = 500
"""Records that are read on each side to make a bound sharper."""


class BackBound(NamedTuple):
    """Where a group at `position` of B goes on on A: it has read all that A has before `offset`, of what came to B.

    `sync`: the nearest of A->B at or below the position. `between`: so many records it has read behind that at most;
    `again`: so many that come later on A it had read before it, since they were mirrored twice, at most. `is_read`: the
    records of both sides were read, and are the same.
    """

    position: int
    sync: OffsetSync
    offset: int
    between: int
    again: int
    is_read: bool = False

    @property
    def repeats(self) -> int:
        """How many records come again from there on, at most."""
        return self.between + self.again

    @property
    def reason(self) -> str:
        """Say what tells it."""
        if self.is_read:
            return f"compared from the offset sync of the way there at {self.sync.upstream} on"
        if self.sync.downstream == self.position:
            return f"the offset sync of the way there from {self.sync.upstream}"
        return f"behind the offset sync of the way there from {self.sync.upstream}"

    def as_translation(self, log: Offsets) -> Translation:
        """Return it for the log of A."""
        if self.offset < log.start:
            text = f"{self.reason}; the target has deleted records since"
            return Translation(log.start, self.repeats, text, log.start - self.offset)
        return Translation(self.offset, self.repeats, self.reason)

    def places(self, log: Offsets) -> tuple[RecordPlace, RecordPlace] | None:
        """Return what is to be read of B and of A to make it sharper; None where that is too much, or of no use."""
        count = self.position - self.sync.downstream
        if not 1 < count <= MOST_READ or self.sync.upstream < log.start:
            return None
        here, there = self.sync.partition, self.sync.partition
        return (
            RecordPlace(here, self.sync.downstream, count, self.position),
            RecordPlace(there, self.sync.upstream, count, log.end),
        )

    def compare(self, here: Sequence[RecordMark], there: Sequence[RecordMark]) -> BackBound | None:
        """Return it made sharper by the records at its places; None where the sync is of another record of A.

        What A has behind the sync is read as far as B has each of it before the position, whatever else B has there.
        """
        first = self.sync.downstream, self.sync.upstream
        if not here or not there or (here[0].offset, there[0].offset) != first:
            return self  # compacted or deleted since
        if not there[0].is_copy_of(here[0]):
            return None
        copies = Counter(mark[1:] for mark in here[1:] if mark.offset < self.position)
        offset = self.offset
        for mark in there[1:]:
            if not copies[mark[1:]]:
                break
            copies[mark[1:]] -= 1
            offset = mark.offset + 1
        return self._replace(offset=offset, between=copies.total(), is_read=True)


@dataclass(frozen=True)
class ReverseSyncs:
    """The offset syncs of A->B in one partition, in the order of their topic, to be read backwards.

    `source` is the log of B (None: not read), `target` that of A; both were read after the syncs. Relied on: a task
    that starts writes a sync with its first record, and compaction has not removed that of the last one which went back
    before the position.
    """

    syncs: tuple[OffsetSync, ...]
    source: Offsets | None
    target: Offsets
    refusal: str = field(init=False, default="")

    def __post_init__(self) -> None:
        last = self.syncs[-1] if self.syncs else None
        if last and last.upstream >= self.target.end:
            text = f"the target's log ends at {self.target.end}, and records were mirrored from {last.upstream} of it"
            object.__setattr__(self, "refusal", f"{text}: truncated or made anew")
        if last and self.source and last.downstream >= self.source.end:
            text = f"the source's log ends at {self.source.end}, and records were mirrored to {last.downstream} of it"
            object.__setattr__(self, "refusal", f"{text}: truncated or made anew")

    def bound_of(self, position: int) -> BackBound | None:
        """Return where a group at an offset of B goes on on A; None where nothing tells."""
        if self.refusal:
            return None
        place = bisect_right(self._downstream, position) - 1
        if place < 0:
            return None
        sync, again = self._of_this_log[place], self._ahead[place]
        if sync.downstream == position:
            return BackBound(position, sync, sync.upstream, 0, again)
        return BackBound(position, sync, sync.upstream + 1, position - sync.downstream - 1, again)

    @cached_property
    def _of_this_log(self) -> list[OffsetSync]:
        """The syncs since B's log went back the last time."""
        last: list[OffsetSync] = []
        for sync in self.syncs:
            if last and sync.downstream < last[-1].downstream:
                last = []
            if not last or sync.downstream > last[-1].downstream:
                last.append(sync)
        return last

    @cached_property
    def _downstream(self) -> list[int]:
        return [sync.downstream for sync in self._of_this_log]

    @cached_property
    def _ahead(self) -> list[int]:
        """By sync, how many records B has before it that are from its offset of A or a later one, at most: those that
        were mirrored before a task went back."""
        ahead: list[int] = []
        run = 0  # the first sync since offsets of A went back
        upstream: list[int] = []
        for place, sync in enumerate(self._of_this_log):
            before = self._of_this_log[place - 1] if place else None
            if before is None:
                ahead.append(0)
            elif sync.upstream > before.upstream:
                between = sync.downstream - before.downstream - 1
                twice = max(0, between - (sync.upstream - before.upstream - 1))
                passed = 0 if twice else (between + 1) // _MARGIN
                ahead.append(max(0, ahead[-1] - passed) + twice)
            else:
                nearest = run + bisect_right(upstream, sync.upstream) - 1
                if nearest < run:  # further back than this run began
                    start = self.source.start if self.source else 0
                    ahead.append(sync.downstream - min(start, sync.downstream))
                else:
                    of_run = self._of_this_log[nearest]
                    is_behind = of_run.upstream < sync.upstream
                    ahead.append(sync.downstream - of_run.downstream - is_behind + ahead[nearest])
                run, upstream = place, []
            upstream.append(sync.upstream)
        return ahead


_MARGIN = 2  # markers of transactions, and what others wrote, make a run seem to have come further

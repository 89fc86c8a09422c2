"""A model of one mirrored partition: gaps, control records, restarts that mirror twice, compaction, lost syncs, looks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import MirroredEnds, TargetFacts
from mm2mgr.partitions import Offsets, TopicPartition

PARTITION = TopicPartition("t", 0)


@dataclass(frozen=True)
class Habits:
    """What happens in a partition, as probabilities per offset unless said otherwise.

    `gap`: offsets of the source without a record. `exactly_once`: the mirror writes in transactions, whose markers take
    offsets, some of them aborted. `restart`: the task begins again behind what was stored. `lost_syncs` of those that
    are written, never the first of a run.
    """

    gap: float = 0.0
    exactly_once: bool = False
    restart: float = 0.0
    lost_syncs: float = 0.0
    offset_lag_max: int = 100
    store: float = 0.02
    look: float = 0.01


@dataclass
class Mirroring:
    """A partition that is mirrored; `copies` has the source offset of each record on the target, by its offset there."""

    randomness: random.Random
    habits: Habits
    source: list[bool] = field(default_factory=list)  # whether an offset has a record
    copies: dict[int, int] = field(default_factory=dict)
    end: int = 0
    next_offset: int = 0  # on the source, to be mirrored
    stored: int = 0
    syncs: list[OffsetSync] = field(default_factory=list)
    looks: list[MirroredEnds] = field(default_factory=list)
    start: int = 0
    _last_copied: int | None = None
    _last_synced: int | None = None
    _uncommitted: list[tuple[int, int]] = field(default_factory=list)
    _unwritten_sync: OffsetSync | None = None
    _firsts: set[OffsetSync] = field(default_factory=set)

    def produce(self, count: int) -> None:
        for _ in range(count):
            if self.randomness.random() < self.habits.gap:
                self.source += [False] * self.randomness.choice((1, 1, 1, 2, 30))
            else:
                self.source.append(True)

    def mirror(self, *, calmly: bool = False) -> None:
        """Mirror the next offset, unless all are; `calmly`: nothing else happens."""
        if self.next_offset < len(self.source):
            offset, self.next_offset = self.next_offset, self.next_offset + 1
            if self.source[offset]:
                self.copies[self.end] = offset
                self._uncommitted.append((offset, self.end))
                self.end += 1
        chance, habits = self.randomness.random, self.habits
        if not habits.exactly_once or calmly or chance() < 0.1:
            self._commit()
        if calmly:
            return
        if habits.exactly_once and self._uncommitted and chance() < 0.02:
            self._abort()
        if chance() < habits.store and not self._uncommitted:
            self.stored = self.next_offset
            self._write_delayed_sync()
        if chance() < habits.restart:
            self._restart()
        if chance() < habits.look:
            self.look()

    def look(self) -> None:
        """Read the stored offset, then the target's end, then the source's, while both go on."""
        stored, end = self.stored if self.randomness.random() < 0.7 else None, self.end
        source = len(self.source) if self.randomness.random() < 0.8 else None
        self.looks.append(MirroredEnds(end, source, stored))

    def _commit(self) -> None:
        for offset, place in self._uncommitted:
            self._note(offset, place)
        if self._uncommitted and self.habits.exactly_once:
            self.end += 1  # the marker
            self.stored = self.next_offset
        self._uncommitted = []

    def _abort(self) -> None:
        for _, place in self._uncommitted:
            del self.copies[place]
        self.next_offset = self._uncommitted[0][0]
        self.end += 1
        self._uncommitted = []
        self._last_copied = self._last_synced = None  # the task was started again

    def _note(self, offset: int, place: int) -> None:
        """Write a sync when MirrorMaker does: the first of a run, after a gap, and when the last is too far behind."""
        is_first = self._last_synced is None
        skipped = self._last_copied is not None and offset != self._last_copied + 1
        stale = self._last_synced is not None and place - (self._last_synced + 1) >= self.habits.offset_lag_max
        self._last_copied = offset
        sync = OffsetSync(PARTITION, offset, place)
        if is_first or skipped or stale:
            self._last_synced = place
            if is_first or self.randomness.random() >= self.habits.lost_syncs:
                self.syncs.append(sync)
            if is_first:
                self._firsts.add(sync)
            self._unwritten_sync = None
        else:
            self._unwritten_sync = sync

    def _write_delayed_sync(self) -> None:
        if self._unwritten_sync and self.randomness.random() < 0.5:
            self.syncs.append(self._unwritten_sync)
        self._unwritten_sync = None

    def _restart(self) -> None:
        if self._uncommitted:
            self._abort()
        self.next_offset = self.stored
        self._last_copied = self._last_synced = None
        self._unwritten_sync = None

    def begin_run(self) -> None:
        """Mirror until a run that has begun has its first record, and with that a sync."""
        while self._last_copied is None and self.next_offset < len(self.source):
            self.mirror(calmly=True)

    def mirror_unseen(self, count: int) -> None:
        """Mirror on after the syncs were read: a restart would have written one."""
        self.habits = replace(self.habits, restart=0.0)
        for _ in range(count):
            self.mirror()

    def syncs_without_newest(self, count: int) -> list[OffsetSync]:
        """Return the syncs without some of the newest, which were not written yet; the first of a run is at once."""
        newest = max((place for place, sync in enumerate(self.syncs) if sync in self._firsts), default=-1)
        return self.syncs[: max(newest + 1, len(self.syncs) - count)]

    def compact(self) -> None:
        """Remove the older copy of what came twice, and some records altogether, as compaction of the target does."""
        newest = {source: place for place, source in sorted(self.copies.items())}
        removed = {source for source in newest if self.randomness.random() < 0.3}
        self.copies = {place: source for source, place in newest.items() if source not in removed}

    def expire(self) -> None:
        self.start = self.randomness.randint(0, self.end)
        self.copies = {place: source for place, source in self.copies.items() if place >= self.start}

    def facts(self) -> TargetFacts:
        """Return what a reader knows."""
        return TargetFacts(Offsets(self.start, self.end), tuple(self.looks), self.habits.exactly_once)


def random_mirroring(randomness: random.Random) -> Mirroring:
    """Return a partition after a while, with looks at it; not all that is on the source is mirrored.

    Gaps, restarts and lost syncs are never all three there: gaps as long as what came twice hide it.
    """
    lost_syncs = randomness.choice((0.0, 0.0, 0.5, 0.95))
    gap, restart = randomness.choice((0.0, 0.0, 0.02, 0.2)), randomness.choice((0.0, 0.0, 0.005, 0.02))
    if gap and restart:
        lost_syncs = 0.0
    habits = Habits(
        gap=gap,
        exactly_once=randomness.random() < 0.3,
        restart=restart,
        lost_syncs=lost_syncs,
        offset_lag_max=randomness.choice((0, 5, 30, 100)),
        store=randomness.choice((0.005, 0.05)),
        look=randomness.choice((0.0, 0.01, 0.05)),
    )
    mirroring = Mirroring(randomness, habits)
    for _ in range(randomness.choice((1, 2, 5))):
        mirroring.produce(randomness.choice((1, 10, 60, 150)))
        lag = randomness.choice((0, 0, 3, 40))
        for _ in range(400):
            if mirroring.next_offset >= len(mirroring.source) - lag:
                break
            mirroring.mirror()
            if randomness.random() < 0.1:
                mirroring.produce(1)
    mirroring.begin_run()
    if randomness.random() < 0.5:
        mirroring.look()
    return mirroring

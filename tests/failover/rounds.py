"""A partition that is mirrored there and back: gaps, restarts that mirror twice, records that are lost, writes of others."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from mm2mgr.failover.back import BackPartition, Beginning, begin_partition
from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.partitions import Offsets, TopicPartition

HERE = TopicPartition("orders", 0)


@dataclass
class Log:
    """A partition: the id of the record at each offset, None for a marker of a transaction; ids that begin with the name
    of the cluster were produced there."""

    name: str
    ids: list[str | None] = field(default_factory=list)
    start: int = 0
    produced: int = 0

    def produce(self, gap: bool = False) -> None:
        self.ids.append(f"{self.name}{self.produced}")
        self.produced += 1
        if gap:
            self.ids.append(None)

    @property
    def offsets(self) -> Offsets:
        return Offsets(self.start, len(self.ids))

    def marks(self, place: RecordPlace) -> list[RecordMark]:
        first = max(place.offset, self.start)
        section = [(offset, self.ids[offset]) for offset in range(first, min(place.end, len(self.ids)))]
        return [RecordMark(offset, "", name, 0) for offset, name in section if name is not None][: place.most]


@dataclass
class Mirror:
    """A connector of one direction: where it is, what it has stored, and its offset syncs, every few records and where
    offsets of the source are left out."""

    source: Log
    target: Log
    stored: int | None = None
    at: int = 0
    every: int = 3
    syncs: list[OffsetSync] = field(default_factory=list)
    fresh: bool = True
    last: int = -1

    def run(self, records: int) -> None:
        for _ in range(records):
            while self.at < len(self.source.ids) and self.source.ids[self.at] is None:
                self.at += 1
            if self.at >= len(self.source.ids):
                return
            if self.fresh or self.at != self.last + 1 or self.at - self.syncs[-1].upstream >= self.every:
                self.syncs.append(OffsetSync(HERE, self.at, len(self.target.ids)))
                self.fresh = False
            self.target.ids.append(self.source.ids[self.at])
            self.last, self.at = self.at, self.at + 1

    def store(self) -> None:
        self.stored = self.at or None

    def crash(self) -> None:
        self.at, self.fresh = self.stored or 0, True

    def go_on_at(self, first: int) -> None:
        self.stored, self.at, self.fresh = first or None, first, True


def traffic(dice: random.Random, mirror: Mirror, steps: int, strange: float = 0.0) -> None:
    """Produce and mirror for a while; with some probability of each step somebody writes to the target too."""
    for _ in range(steps):
        if strange and dice.random() < strange:
            mirror.target.produce()
        match dice.choice(["produce", "produce", "run", "run", "store", "crash"]):
            case "produce":
                mirror.source.produce(gap=dice.random() < 0.1)
            case "run":
                mirror.run(dice.randint(1, 6))
            case "store":
                mirror.store()
            case _:
                mirror.crash() if dice.random() < 0.3 else None


def fail_over(dice: random.Random, mirror: Mirror, *, clean: bool) -> None:
    if clean:
        mirror.run(10_000)
        mirror.store()
    for _ in range(dice.randint(0, 5)):
        mirror.source.produce()  # nobody mirrors these


def way_back(mirror: Mirror, stopped_end: int | None, begun: tuple[int, int] | None, other: Mirror) -> Beginning:
    part = BackPartition(
        HERE,
        mirror.target.offsets,
        mirror.source.offsets,
        mirror.stored,
        stopped_end,
        tuple(mirror.syncs),
        begun,
        other.stored,
    )
    places = part.places()
    assert places is not None
    if not part.needs_comparison:
        return begin_partition(part)
    return begin_partition(part, mirror.source.marks(places[0]), mirror.target.marks(places[1]))

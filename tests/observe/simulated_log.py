"""A partition with ids and the MirrorMaker task that reads it, to hold the ledger to: what it says to be lost against what arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mm2mgr.observe.losses import NOTHING, PartitionLook
from mm2mgr.partitions import Offsets

Record = tuple[str, int, int]
"""Topic id, offset and a number that no other record has: offsets are used again after a truncation."""


@dataclass
class SimulatedPartition:
    """One source partition, its task, its stored offset, and what arrived on the target, by what MirrorMaker and Kafka do."""

    topic_id: str = "t1"
    start: int = 0
    records: list[Record] = field(default_factory=list)
    position: int = 0
    stored: int | None = None
    arrived: Counter[Record] = field(default_factory=Counter)
    target_end: int = 0
    stopped: bool = False
    made: int = 0
    every: set[Record] = field(default_factory=set)
    found_empty_at: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def is_exact(self) -> bool:
        """Whether nothing arrived that the stored offset does not show."""
        return self.stopped or self.stored == self.end - 1

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            record = (self.topic_id, self.end, self.made)
            self.records.append(record)
            self.every.add(record)

    def mirror(self, count: int) -> None:
        """Mirror so many records; a position that is not in the log goes back to its start, as auto.offset.reset says."""
        if self.stopped:
            return
        if not self.start <= self.position <= self.end:
            self.position = self.start
        for record in self.records[self.position - self.start :][:count]:
            self.arrived[record] += 1
            self.target_end += 1
            self.position = record[1] + 1

    def flush(self) -> None:
        if not self.stopped and self.position > 0:
            self.stored = self.position - 1

    def stop(self) -> None:
        self.flush()
        self.stopped = True

    def resume(self) -> None:
        if self.stopped:
            self.restart()

    def restart(self) -> None:
        """Start the task, also after a crash: what was not stored comes again."""
        self.stopped = False
        self.position = 0 if self.stored is None else self.stored + 1

    def retain(self, count: int) -> None:
        """Delete so many records at the start of the log."""
        count = min(count, len(self.records))
        self.start += count
        del self.records[:count]

    def truncate(self, count: int) -> None:
        del self.records[len(self.records) - min(count, len(self.records)) :]

    def recreate(self) -> None:
        self.topic_id = f"t{int(self.topic_id[1:]) + 1}"
        self.start, self.records = 0, []

    def look(self, *, counts: bool = True) -> PartitionLook:
        if self.start == self.end:
            self.found_empty_at.add(self.end)
        arrived = self.target_end if counts else None
        return PartitionLook(
            self.topic_id,
            Offsets(self.start, self.end),
            NOTHING if self.stored is None else self.stored,
            arrived,
            self.is_exact,
        )

    def lost(self) -> set[Record]:
        """Return the records that never arrived and no longer can: they left the log, or the task is behind them."""
        waiting = set(self.records[max(0, self.position - self.start) :])
        return {record for record in self.every if not self.arrived[record]} - waiting

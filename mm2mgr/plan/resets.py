"""Where a source goes on after its stored offsets are changed: which records come again or are skipped. Pure.

Connect checks none of it: PATCH takes offsets past the end, unknown topics and other aliases (seen on 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.partitions import Offsets, TopicPartition, goes_on
from mm2mgr.text import few
from mm2mgr.topology import Flow

Place = Literal["earliest", "latest"] | int
"""Where to go on: at the start or the end of each log, or with the record of this offset."""


@dataclass(frozen=True)
class ResetOrder:
    """What a reset is to do: where to go on, in which topics and partitions (none named: in all)."""

    to: Place
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def concerns(self, partition: TopicPartition) -> bool:
        """Tell whether a partition is to be reset."""
        named = not self.topics or partition.topic in self.topics
        return named and (not self.partitions or partition.partition in self.partitions)


@dataclass(frozen=True)
class OffsetReset:
    """One source partition: the last mirrored offset that is stored, and that is to be stored (None: no entry).

    `again` counts offsets that are mirrored once more, `skipped` those that never will be; with transactions or
    compaction the records are fewer.
    """

    partition: TopicPartition
    log: Offsets
    stored: int | None
    wanted: int | None
    again: int = 0
    skipped: int = 0
    json_keys = (
        "topic=partition.topic partition=partition.partition log_start=log.start log_end=log.end "
        "stored_offset=stored wanted_offset=wanted again skipped"
    )

    @property
    def is_change(self) -> bool:
        """Whether another entry is to be stored."""
        return self.stored != self.wanted

    def entry(self, source_alias: str) -> SourceOffset:
        """Return what is sent to Connect."""
        key = {"cluster": source_alias, "partition": self.partition.partition, "topic": self.partition.topic}
        return SourceOffset(key, None if self.wanted is None else {"offset": self.wanted})


def resets(
    to: Place, logs: Mapping[TopicPartition, Offsets], stored: Mapping[TopicPartition, int], begins_at: str
) -> tuple[OffsetReset, ...]:
    """Return what a reset does to each partition; Mm2mgrError where a place is not in a log.

    `begins_at` is the consumer's auto.offset.reset, by which a partition without an entry begins, or one whose entry
    left its log.
    """
    outside = [
        f"{partition} has {log.start} to {log.end}" for partition, log in sorted(logs.items()) if not _holds(log, to)
    ]
    if outside:
        raise Mm2mgrError(
            f"offset {to} is not in every log: {few(outside)}", hint="name topics and partitions that have it"
        )
    resets_by_partition = tuple(
        _reset(partition, log, to, stored.get(partition), begins_at) for partition, log in sorted(logs.items())
    )
    if begins_at != "earliest" and (
        first := [str(reset.partition) for reset in resets_by_partition if reset.wanted is None and reset.log.end]
    ):
        problem = (
            f"{few(first)} would go on at offset 0, for which no entry can be stored, and without one the consumer's"
        )
        raise Mm2mgrError(
            f"{problem} auto.offset.reset={begins_at} decides",
            hint="set source_consumer: {auto.offset.reset: earliest} first",
        )
    return resets_by_partition


def _holds(log: Offsets, to: Place) -> bool:
    return not isinstance(to, int) or log.start <= to <= log.end


def _reset(partition: TopicPartition, log: Offsets, to: Place, stored: int | None, begins_at: str) -> OffsetReset:
    place = {"earliest": log.start, "latest": log.end}[to] if isinstance(to, str) else to
    before = goes_on(log, stored, begins_at)
    # An entry is the last mirrored offset, and cannot be negative.
    new_offset = place - 1 if place else None
    return OffsetReset(partition, log, stored, new_offset, max(0, before - place), max(0, place - before))


def by_topic(offset_resets: Iterable[OffsetReset]) -> dict[str, dict[str, int]]:
    """Return for each topic how many partitions change, and how many records come again or are skipped."""
    topics: dict[str, dict[str, int]] = {}
    for reset in offset_resets:
        counts = topics.setdefault(reset.partition.topic, {"partitions": 0, "again": 0, "skipped": 0})
        counts["partitions"] += reset.is_change
        counts["again"] += reset.again
        counts["skipped"] += reset.skipped
    return topics


@dataclass(frozen=True)
class FlowReset:
    """A reset of one flow; `error` says what went wrong when it was written."""

    flow: Flow
    connector: str
    resets: tuple[OffsetReset, ...]
    written: bool = False
    error: Mm2mgrError | None = None

    @property
    def changes(self) -> tuple[OffsetReset, ...]:
        return tuple(reset for reset in self.resets if reset.is_change)

    @property
    def topics(self) -> Mapping[str, Mapping[str, int]]:
        return by_topic(self.resets)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values."""
        return {
            "flow": self.flow.id,
            "connect": self.flow.connect.name,
            "connector": self.connector,
            "written": self.written,
            "error": self.error and self.error.message,
            "hint": self.error and self.error.hint,
            "topics": self.topics,
            "partitions": to_json(self.resets),
        }

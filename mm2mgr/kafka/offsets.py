"""Offsets as values: where a partition's log starts and ends."""

from __future__ import annotations

from dataclasses import dataclass

from mm2mgr.partitions import TopicPartition


@dataclass(frozen=True)
class Offsets:
    """The first offset still in the log, and the next one to be written (the high watermark)."""

    start: int
    end: int


@dataclass
class OffsetsRead:
    """What one reading found, the reason per partition it did not find, and whether a broker stayed silent."""

    found: dict[TopicPartition, Offsets]
    failed: dict[TopicPartition, str]
    unanswered: bool = False

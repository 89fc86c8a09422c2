"""A partition's name and the offsets of its log, shared by everything that reads, measures or places partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Statistic = Literal["mean", "p50", "p95", "max"]
"""What one number stands for the rates of a partition over time."""


class TopicPartition(NamedTuple):
    """One partition of one topic; never joined into a string, because `a-2` is also a legal topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


ASSIGNED_KEY = "task.assigned.partitions"


def parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    """Read a task's `task.assigned.partitions`: `topic-partition` joined by commas; what has no number there gets
    partition -1.

    Topics may hold dashes, never commas.
    """
    parts = (part.strip().rpartition("-") for part in text.split(",") if part.strip())
    return tuple(
        TopicPartition(topic, int(number) if topic and number.isdecimal() and len(number) < 11 else -1)
        for topic, _, number in parts
    )


class Offsets(NamedTuple):
    """The first offset still in a partition's log, and the next one to be written (the high watermark)."""

    start: int
    end: int


def goes_on(log: Offsets, stored: int | None, begins_at: str = "earliest") -> int:
    """Return the offset of the next record that a task mirrors."""
    if stored is not None and log.start <= stored + 1 <= log.end:
        return stored + 1
    return log.end if begins_at == "latest" else log.start


@dataclass(frozen=True)
class LogHistory:
    """The end offset of a partition's log at some times (milliseconds since 1970, oldest first), and the mean size of
    its records in bytes before compression (None: not measured).
    """

    times_ms: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    record_bytes: float | None = None

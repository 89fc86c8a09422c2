"""Places in the logs of a Kafka cluster at which mirroring begins or goes on, and where they are in each log. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from mm2mgr.partitions import Offsets, TopicPartition

START_KEY = "mm2mgr.start"
"""Key of a source connector: where it was to begin when it was created, as `scalars.log_place` reads it."""
GROUP_PREFIX = "group:"
"""What the text of a place begins with that is a consumer group's."""


@dataclass(frozen=True)
class AtTime:
    """With the first record of a time (milliseconds since 1970) or later; without one, `ago_seconds` back from now."""

    time_ms: int | None = None
    ago_seconds: float = 0.0

    def resolve(self, now: float) -> int:
        """Return the time in milliseconds since 1970; `now` in seconds since 1970."""
        return max(0, round(1000 * (now - self.ago_seconds))) if self.time_ms is None else self.time_ms


@dataclass(frozen=True)
class OfGroup:
    """With the next record that a consumer group of the same cluster reads, by its committed offsets."""

    group: str


Place = Literal["earliest", "latest"] | int | AtTime | OfGroup
"""The start or the end of each log, the record of an offset, that of a time, or where a group goes on."""


def time_text(time_ms: int) -> str:
    """Return a time as the tree has it: `2026-11-27T12:00:00Z`."""
    written = datetime.fromtimestamp(time_ms / 1000, UTC)
    return written.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Return milliseconds since 1970 of a time such as `2026-11-27T12:00` (UTC without a zone), below 0 before that."""
    at = datetime.fromisoformat(text)
    return round(1000 * (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


class LogPosition(NamedTuple):
    """A place in one log: its next offset; None: the group has committed none there."""

    log: Offsets
    next: int | None


@dataclass(frozen=True)
class LogPositions:
    """Where a place is in logs; partitions that could not be read are left out. `members`: of its group, None where
    nobody says."""

    positions: Mapping[TopicPartition, LogPosition] = field(default_factory=dict)
    members: int | None = None

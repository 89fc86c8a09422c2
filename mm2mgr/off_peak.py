"""Hours of the day in which restarts do not hurt. Pure; times are in UTC."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

_HOUR_SECONDS = 3600


@dataclass(frozen=True)
class OffPeak:
    """The hours (UTC) in which restarts do not hurt: from `start_hour` to before `end_hour`, also over midnight."""

    start_hour: int
    end_hour: int

    @classmethod
    def parse(cls, text: str) -> OffPeak:
        """Read hours such as `22-5`; ValueError for other text."""
        first, _, last = text.strip().partition("-")
        if not (_is_hour(first) and int(first) < 24 and _is_hour(last) and int(last) <= 24):
            raise ValueError("is not a span of hours such as 22-5")
        return cls(int(first), int(last) % 24)

    def contains(self, when_seconds: float) -> bool:
        """Tell whether a time (in seconds since 1970) is in these hours; equal hours mean the whole day."""
        length = (self.end_hour - self.start_hour) % 24 or 24
        return (int(when_seconds) // _HOUR_SECONDS - self.start_hour) % 24 < length

    def begins_after(self, when_seconds: float) -> float:
        """Return when these hours next begin, or this time where it is in them; in seconds since 1970."""
        if self.contains(when_seconds):
            return when_seconds
        hour = int(when_seconds) // _HOUR_SECONDS
        return float((hour + (self.start_hour - hour) % 24) * _HOUR_SECONDS)

    def __str__(self) -> str:
        return f"{self.start_hour:02d}-{self.end_hour:02d} h UTC"


def next_in(windows: Collection[OffPeak], when_seconds: float) -> float:
    """Return the first time from this one on that is in any of the windows; without any, all times are."""
    return min((window.begins_after(when_seconds) for window in windows), default=when_seconds)


def _is_hour(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 2

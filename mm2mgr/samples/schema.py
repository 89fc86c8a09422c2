"""One sample of one partition, and the directory layout that writers and readers of samples share.

In go and out come plain values; it reads and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

LAYOUT_FILE = "LAYOUT"
LAYOUT = "mm2mgr samples, layout 1"
HOUR_PREFIX = "hour="
_HOUR = "%Y-%m-%dT%H"


@dataclass(frozen=True)
class Sample:
    """The log of one partition at one moment; the field names are the Parquet columns.

    `time_ms` counts milliseconds since 1970 on the sampler's clock. `topic_id` is null before Kafka 2.8, and
    `record_bytes` is null in the many samples that did not look at records.
    """

    cluster: str
    topic: str
    partition: int
    time_ms: int
    end_offset: int
    start_offset: int
    topic_id: str | None
    record_bytes: float | None
    source: str


def hour_of(time_ms: int) -> str:
    """Return the UTC hour that a moment belongs to, such as 2026-11-21T10."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime(_HOUR)


def hour_start_ms(hour: str) -> int:
    """Return the first millisecond of an hour such as 2026-11-21T10 (UTC)."""
    return round(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp() * 1000)


def hours_text(hours: list[str]) -> str:
    """Say in words which hours hold samples, for errors about an empty window."""
    if not hours:
        return "there are no samples yet: run `mm2mgr sample` first"
    if len(hours) == 1:
        return f"samples exist for the hour {hours[0]} (UTC)"
    return f"samples exist for {len(hours)} hours from {hours[0]} to {hours[-1]} (UTC)"


def window_text(since_ms: int | None, until_ms: int | None) -> str:
    """Say a time window in words, in UTC; None is an open side."""
    parts = [
        f"{word} {datetime.fromtimestamp(bound / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for word, bound in (("since", since_ms), ("until", until_ms))
        if bound is not None
    ]
    return " ".join(parts) or "at any time"

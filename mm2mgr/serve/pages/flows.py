"""The lag of flows together, in words."""

from __future__ import annotations

from collections.abc import Sequence

from mm2mgr.observe.lag_report import LagRow
from mm2mgr.output.status_text import records_text
from mm2mgr.text import span_text

_LATE_SECONDS = 60.0
UNKNOWN_LAG = "lag unknown"
"""What `pair_lag` says where nothing is counted."""


def pair_lag(totals: Sequence[LagRow | None]) -> tuple[str, bool]:
    rows = [row for row in totals if row]
    records = [row.records.value for row in rows if row.records.value is not None]
    if not rows or len(records) < len(totals):
        return UNKNOWN_LAG, True
    if not sum(records):
        is_least = any(row.records.at_least for row in rows)
        return (UNKNOWN_LAG if is_least else "level"), is_least
    seconds = [row.seconds.value for row in rows if row.records.value]
    known_seconds = [value for value in seconds if value is not None]
    if len(known_seconds) < len(seconds):
        is_least = any(row.records.at_least for row in rows)
        return f"{records_text(sum(records), is_least)} records", True
    at_least = "at least " if any(row.seconds.at_least for row in rows) else ""
    return f"{at_least}{span_text(max(known_seconds))} behind", max(known_seconds) > _LATE_SECONDS

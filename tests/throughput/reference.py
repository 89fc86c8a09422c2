"""The roll-up of one hour of one series, computed the slow and obvious way: one Python loop, one note per millisecond."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise


@dataclass
class Point:
    """One sample: when, the end offset, and the record size if records were looked at."""

    time_ms: int
    end: int
    size: float | None = None


def clean(points: list[Point]) -> list[Point]:
    """Each moment once (the larger offset), without samples that dip below both neighbours."""
    latest: dict[int, Point] = {}
    for point in sorted(points, key=lambda one: (one.time_ms, one.end)):
        latest[point.time_ms] = point
    once = list(latest.values())
    dips = {place for place in range(1, len(once) - 1) if once[place].end < once[place - 1].end <= once[place + 1].end}
    return [point for place, point in enumerate(once) if place not in dips]


def reference(before: list[Point], hour: list[Point], hour_start_ms: int) -> dict[str, float | int | None] | None:
    """Return the columns of the roll-up, None where the hour has no sample."""
    lead, own = clean(before), clean(hour)
    if not own:
        return None
    tail = [Point(one.time_ms, one.end, _size(lead, place)) for place, one in enumerate(lead)][-7:]
    row = tail + own
    distances = [b.time_ms - a.time_ms for a, b in pairwise(row)]
    used: list[tuple[int, int, float | None]] = []
    resets = gaps = 0
    for place, (a, b) in enumerate(pairwise(row)):
        if b.time_ms < hour_start_ms:
            continue
        elapsed = b.time_ms - a.time_ms
        if b.end < a.end:
            resets += 1
        elif elapsed > 3 * statistics.median(distances[max(0, place - 6) : place + 7]):
            gaps += 1
        else:
            used.append((elapsed, b.end - a.end, _size(row, place + 1)))
    sized = all(size is not None for _, _, size in used)
    records = _statistics([(ms, float(count)) for ms, count, _ in used])
    volume = _statistics([(ms, count * (size or 0.0)) for ms, count, size in used]) if sized else dict.fromkeys(records)
    looked = [one.size for one in own if one.size is not None]
    return {
        "samples": len(own),
        "covered_ms": sum(ms for ms, _, _ in used),
        "resets": resets,
        "gaps": gaps,
        "first_ms": own[0].time_ms,
        "last_ms": own[-1].time_ms,
        "records": records["sum"],
        "bytes": volume["sum"],
        **{f"records_{name}": records[name] for name in ("p50", "p95", "max")},
        **{f"bytes_{name}": volume[name] for name in ("p50", "p95", "max")},
        **({"record_bytes": statistics.fmean(looked)} if looked else {}),
    }


def _size(row: list[Point], place: int) -> float | None:
    before = [one.size for one in row[: place + 1] if one.size is not None]
    after = [one.size for one in row[place:] if one.size is not None]
    return before[-1] if before else after[0] if after else None


def _statistics(used: list[tuple[int, float]]) -> dict[str, float | None]:
    if not used:
        return dict.fromkeys(("sum", "p50", "p95", "max"))
    noted = sorted(rate for ms, amount in used for rate in [amount * 1000 / ms] * ms)
    return {
        "sum": sum(amount for _, amount in used),
        "p50": noted[math.ceil(len(noted) * 50 / 100 - 1e-12) - 1],
        "p95": noted[(len(noted) * 95 + 99) // 100 - 1],
        "max": noted[-1],
    }

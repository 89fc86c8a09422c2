"""The throughput of a few samples, computed the slow and obvious way: one Python loop, one note per millisecond."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from itertools import pairwise

from mm2mgr.samples.schema import Sample
from mm2mgr.throughput.rates import PartitionRate

Key = tuple[str, str, int]


def reference(samples: list[Sample], max_gap_seconds: float | None = None) -> dict[Key, PartitionRate]:
    series: dict[Key, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda s: (s.time_ms, s.end_offset)):
        series[sample.cluster, sample.topic, sample.partition].append(sample)
    return {key: _one(key, rows, samples, max_gap_seconds) for key, rows in series.items()}


def _one(key: Key, rows: list[Sample], everything: list[Sample], max_gap_seconds: float | None) -> PartitionRate:
    ends = [b.time_ms for a, b in pairwise(rows) if b.time_ms > a.time_ms]
    distances = [b.time_ms - a.time_ms for a, b in pairwise(rows) if b.time_ms > a.time_ms]
    resets = gaps = 0
    used: list[tuple[int, int, float | None]] = []
    for place, (a, b) in enumerate(pairwise(rows), start=1):
        elapsed = b.time_ms - a.time_ms
        ids = [row.topic_id for row in rows[:place] if row.topic_id is not None]
        changed = bool(ids) and b.topic_id is not None and b.topic_id != ids[-1]
        if b.end_offset < a.end_offset or changed:
            resets += 1
        elif elapsed > 0 and elapsed > _longest(distances, ends.index(b.time_ms), max_gap_seconds):
            gaps += 1
        elif elapsed > 0:
            used.append((elapsed, b.end_offset - a.end_offset, _size(rows, place, key, everything)))
    records = _statistics([(ms, float(count)) for ms, count, _ in used])
    volume = _statistics([(ms, count * size) for ms, count, size in used if size is not None])
    return PartitionRate(
        *key,
        window_start_ms=rows[0].time_ms,
        window_end_ms=rows[-1].time_ms,
        samples=len({row.time_ms for row in rows}),
        covered_seconds=sum(ms for ms, _, _ in used) / 1000,
        resets=resets,
        gaps=gaps,
        **{f"bytes_per_second_{name}": value for name, value in volume.items()},
        **{f"records_per_second_{name}": value for name, value in records.items()},
        record_bytes=_size(rows, len(rows) - 1, key, everything),
    )


def _longest(distances: list[int], place: int, max_gap_seconds: float | None) -> float:
    longest = 3 * statistics.median(distances[max(0, place - 6) : place + 7])
    return longest if max_gap_seconds is None else min(longest, max_gap_seconds * 1000)


def _size(rows: list[Sample], place: int, key: Key, everything: list[Sample]) -> float | None:
    before = [row.record_bytes for row in rows[: place + 1] if row.record_bytes is not None]
    after = [row.record_bytes for row in rows[place:] if row.record_bytes is not None]
    topic = [s.record_bytes for s in everything if (s.cluster, s.topic) == key[:2] and s.record_bytes is not None]
    cluster = [s.record_bytes for s in everything if s.cluster == key[0] and s.record_bytes is not None]
    if before:
        return before[-1]
    if after:
        return after[0]
    return statistics.fmean(topic) if topic else statistics.fmean(cluster) if cluster else None


def _statistics(intervals: list[tuple[int, float]]) -> dict[str, float | None]:
    if not intervals:
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    noted = sorted(rate for ms, amount in intervals for rate in [amount * 1000 / ms] * ms)
    mean = sum(amount for _, amount in intervals) * 1000 / sum(ms for ms, _ in intervals)
    return {"mean": mean, "p50": _percentile(noted, 0.5), "p95": _percentile(noted, 0.95), "max": noted[-1]}


def _percentile(ordered: list[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

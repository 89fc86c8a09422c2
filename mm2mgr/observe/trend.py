"""Where a lag goes: its trend over looks, the time until it is level, or retention overtakes the reader. Pure.

A look leaves one point for each flow, each task, and the topics and partitions that are most behind; old points are
thinned out, so that a memory of days stays small. Rates are fitted through the points of the run that goes on now:
since the lag began to grow or shrink. A forecast is an interval, or none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Literal, NamedTuple

from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.partitions import TopicPartition

Direction = Literal["growing", "shrinking", "steady"]

_MOST_POINTS = 24
_NEWEST_KEPT = 8  # never thinned out: what the next look continues
_UNSEEN_SECONDS = 900.0  # between two looks: what a lag did meanwhile is not known (`serve` shares a point every 5 min)
_MOST_NAMED = 20  # topics, and partitions, of a flow that are followed
_LEAST_POINTS = 3  # a slope through two has no error
_LEAST_SPREAD = 1e-9  # seconds squared: looks that are no time apart show no rate
_LEAST_ERROR = 0.05  # of a slope: the points of one run are not independent of each other
_STILL = 0.001  # of production: a reader this slow makes no progress


class LagPoint(NamedTuple):
    """Sums over partitions at one time (seconds since 1970): log starts, log ends, next offsets to mirror."""

    time: float
    partitions: int
    start: int
    end: int
    position: int

    @property
    def lag_records(self) -> int:
        """Records that wait."""
        return self.end - self.position


Points = tuple[LagPoint, ...]
FLOW = "flow"
"""The key of a flow's own points; `task_key`, `topic_key` and `partition_key` name the others."""


def task_key(task: int | None) -> str:
    return f"task {'-' if task is None else task}"


def topic_key(topic: str) -> str:
    return f"topic {topic}"


def partition_key(partition: TopicPartition) -> str:
    return f"partition {partition}"


def follow_lag(earlier: Mapping[str, Points], lag: FlowLag, now: float) -> dict[str, Points]:
    """Return the points of a flow after a look that saw all of its partitions; after a gap they begin anew."""
    recent = {key: points for key, points in earlier.items() if points and now - points[-1].time <= _UNSEEN_SECONDS}
    return {key: _add_point(recent.get(key, ()), _point(now, of)) for key, of in _groups(lag).items()}


def _groups(lag: FlowLag) -> dict[str, list[PartitionLag]]:
    tasks: dict[str, list[PartitionLag]] = {}
    topics: dict[str, list[PartitionLag]] = {}
    for partition in lag.counted_partitions:
        tasks.setdefault(task_key(partition.task), []).append(partition)
        topics.setdefault(topic_key(partition.partition.topic), []).append(partition)
    behind = {key: records for key, of in topics.items() if (records := sum(partition.lag_records for partition in of))}
    named = {key: topics[key] for key in nlargest(_MOST_NAMED, behind, key=behind.__getitem__)}
    partitions = {partition_key(partition.partition): [partition] for partition in lag.most_behind(_MOST_NAMED)}
    return {FLOW: list(lag.counted_partitions), **tasks, **named, **partitions}


def _point(now: float, of: Iterable[PartitionLag]) -> LagPoint:
    count = start = end = position = 0
    for partition in of:
        count, start, end = count + 1, start + partition.log.start, end + partition.log.end
        position += min(partition.position, partition.log.end)
    return LagPoint(now, count, start, end, position)


def waiting_since(points: Points) -> float | None:
    """Return since when a record has waited at least (seconds since 1970): since the first look at which the reader was
    where it still is, before the log's end; None where nothing waits, or one look alone says so."""
    since, place = None, points[-1].position if points else 0
    for point in reversed(points):
        if point.position != place or point.lag_records <= 0:
            break
        since = point.time
    return since if points and since != points[-1].time else None


def _add_point(points: Points, new: LagPoint) -> Points:
    """Add a point. Other partitions, a log that is shorter, a reset or a clock set back begin anew."""
    if not points:
        return (new,)
    last = points[-1]
    if new.partitions != last.partitions or new.end < last.end or new.position < points[0].position:
        return (new,)
    if new.time <= last.time:
        return points if new.time == last.time else (new,)
    return _thin_out((*points, new))


def join_points(own: Points, others: Iterable[LagPoint]) -> Points:
    """Return the points of several processes that looked at the same partitions as one that made all of these looks
    would have them.

    Those of others that are newer than the newest `own` one are left out: it belongs to the look that is judged. So are
    those before a gap in which nobody looked.
    """
    points: Points = ()
    if own:
        begins = own[0].time
        earlier = sorted((point for point in others if point.time < begins), reverse=True)
        for point in earlier:
            if begins - point.time > _UNSEEN_SECONDS:
                break
            begins = point.time
        by_time = {round(1000 * point.time): point for point in (*others, *own) if begins <= point.time <= own[-1].time}
        for _, point in sorted(by_time.items()):
            points = _add_point(points, point)
    return points


def _thin_out(points: Points) -> Points:
    if len(points) <= _MOST_POINTS:
        return points
    old = range(1, len(points) - _NEWEST_KEPT)
    densest = min(old, key=lambda place: points[place + 1].time - points[place - 1].time)
    return points[:densest] + points[densest + 1 :]


# --- what the points say ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordRate:
    """Records per second, and how far off that may be."""

    mean: float
    error: float = 0.0
    json_keys = "records_per_second=mean error"


def recent_rates(points: Points, seconds: float, least_seconds: float) -> tuple[float | None, float | None]:
    """Return the records per second that were mirrored and produced over the newest looks, of so many seconds at most.

    None, None where these are less than `least_seconds` apart: stored offsets move once per flush interval.
    """
    if len(points) < 2:
        return None, None
    last = points[-1]
    first = min(next(place for place, point in enumerate(points) if point.time >= last.time - seconds), len(points) - 2)
    span = last.time - points[first].time
    if span < max(least_seconds, 1.0):
        return None, None
    return (last.position - points[first].position) / span, (last.end - points[first].end) / span


@dataclass(frozen=True)
class Trend:
    """What a lag has been doing for `seconds`; `records` is by how much it changed meanwhile.

    `mirrored`, `produced`: rates of that time, None with fewer than three looks. `net`: how fast the lag grows.
    """

    direction: Direction
    seconds: float
    records: int
    mirrored: RecordRate | None = None
    produced: RecordRate | None = None
    net: RecordRate | None = None
    json_keys = "direction seconds records mirrored produced"


def trend(points: Points, noise_seconds: float) -> Trend | None:
    """Return what the lag of these points does; None after one look. `noise_seconds`: how old a position may be, which
    is the flush interval where it is a stored offset; a change that this explains is none."""
    if len(points) < 2:
        return None
    seconds = points[-1].time - points[0].time
    fastest = max(points[-1].end - points[0].end, points[-1].position - points[0].position) / seconds
    direction, first = _run(points, noise_seconds, noise_seconds * fastest + 1)
    run = points[first:]
    change = run[-1].lag_records - run[0].lag_records
    fits = [_fit(run, [getattr(point, name) for point in run]) for name in ("position", "end", "lag_records")]
    return Trend(direction, run[-1].time - run[0].time, change, *fits)


def lag_trend(
    points: Points, behind: Sequence[PartitionLag], flush_interval_seconds: float, *, frozen: bool = False
) -> Trend | None:
    """Return what a lag does, with the noise of its count; `behind`: its partitions in which records wait. `frozen`: no
    worker answers, so its offsets are the last ones of all these looks, and nothing is noise."""
    if len(points) < 2:
        return None
    if frozen:
        return trend(points, 0.0)
    between = (points[-1].time - points[0].time) / (len(points) - 1)
    refined = all(point.basis == "target end" for point in behind)
    # What arrived between a flush and the next look is not seen by the target's end either.
    return trend(points, min(flush_interval_seconds, between) if refined else flush_interval_seconds)


def _run(points: Points, noise_seconds: float, noise: float) -> tuple[Direction, int]:
    """Return the direction of the lag and the point since which it goes there; movements within the noise turn nothing.

    A lag that has not gone on for a quarter of that time, and for two noises, has become steady.
    """
    lags = [point.lag_records for point in points]
    direction = first = low = high = reached = 0  # `reached`: where the lag last went on by more than a trifle
    for place, lag in enumerate(lags):
        low, high = (place if lag <= lags[low] else low), (place if lag >= lags[high] else high)
        if direction <= 0 and lag - lags[low] > noise:
            direction, first, high, reached = 1, low, place, place
        elif direction >= 0 and lags[high] - lag > noise:
            direction, first, low, reached = -1, high, place, place
        elif direction * (lag - lags[reached]) > noise / 4:
            reached = place
    words: dict[int, Direction] = {1: "growing", -1: "shrinking", 0: "steady"}
    since, whole = points[-1].time - points[reached].time, points[-1].time - points[first].time
    if direction and since > max(2 * noise_seconds, whole / 4):
        return "steady", reached
    return words[direction], first


def _fit(points: Sequence[LagPoint], values: Sequence[int]) -> RecordRate | None:
    if len(points) < _LEAST_POINTS:
        return None
    times = [point.time - points[0].time for point in points]
    middle, level = math.fsum(times) / len(times), math.fsum(values) / len(values)
    spread = math.fsum((time - middle) ** 2 for time in times)
    if spread < _LEAST_SPREAD:
        return None
    slope = math.fsum((t - middle) * (v - level) for t, v in zip(times, values, strict=True)) / spread
    left = math.fsum((v - level - slope * (t - middle)) ** 2 for t, v in zip(times, values, strict=True))
    error = 2 * math.sqrt(left / (len(times) - 2) / spread)
    return RecordRate(slope, max(error, _LEAST_ERROR * abs(slope)))


@dataclass(frozen=True)
class TimeForecast:
    """Seconds until something happens at present rates, earliest and latest (None: it may never happen)."""

    seconds: float
    earliest_seconds: float
    latest_seconds: float | None
    reason: str = ""


def level_in(lag_records: int, of: Trend | None, produced: RecordRate | None = None) -> TimeForecast | None:
    """Return when a lag that shrinks is level; None where it does not shrink, or too few looks saw it.

    `produced`: the production that the sample store has seen, whose error widens the interval: traffic of the next
    minutes need not be that of the last ones.
    """
    if lag_records == 0:
        return TimeForecast(0.0, 0.0, 0.0)
    if of is None or of.direction != "shrinking" or of.net is None or of.net.mean >= 0:
        return None
    error = math.hypot(of.net.error, produced.error if produced else 0.0)
    fastest, slowest = error - of.net.mean, -error - of.net.mean
    return TimeForecast(
        lag_records / -of.net.mean, lag_records / fastest, lag_records / slowest if slowest > 0 else None, "drain"
    )


def slowest_of(forecasts: Sequence[TimeForecast | None]) -> TimeForecast | None:
    """Return when the last of several is level; None where one of them is not known to be."""
    present = [forecast for forecast in forecasts if forecast is not None]
    if not present or len(present) < len(forecasts):
        return None
    latest = [forecast.latest_seconds for forecast in present]
    return TimeForecast(
        max(forecast.seconds for forecast in present),
        max(forecast.earliest_seconds for forecast in present),
        None if None in latest else max(seconds for seconds in latest if seconds is not None),
        "drain",
    )


def overtaken_in(
    points: Points, of: Trend | None, age_seconds: float | None, retention_seconds: float | None
) -> TimeForecast | None:
    """Return when retention deletes records of one partition that the reader has not reached; None where it does not,
    or nothing is known about it.

    By `retention.ms`, a record that waits is deleted when it is so old; brokers delete whole segments, so it may be
    later. By the log's start, where that has moved faster than the reader.
    """
    estimates = [
        estimate for estimate in (_by_age(of, age_seconds, retention_seconds), _by_start(points, of)) if estimate
    ]
    return min(estimates, key=lambda estimate: estimate.seconds, default=None)


def _by_age(of: Trend | None, age_seconds: float | None, retention_seconds: float | None) -> TimeForecast | None:
    if age_seconds is None or retention_seconds is None:
        return None
    left = max(0.0, retention_seconds - age_seconds)
    if left == 0:
        return TimeForecast(0.0, 0.0, 0.0, "retention.ms")
    if of is None or of.mirrored is None or of.produced is None:
        return None
    # The reader crosses `mirrored` records in a second, which were written in mirrored / produced seconds.
    if of.mirrored.mean <= _STILL * of.produced.mean or of.mirrored.mean <= 0:
        return TimeForecast(left, left, left, "retention.ms")
    ages = 1 - of.mirrored.mean / of.produced.mean if of.produced.mean > 0 else -1.0
    error = of.mirrored.error / of.produced.mean if of.produced.mean > 0 else 0.0
    if ages <= 0:
        return None
    return TimeForecast(left / ages, left / min(1.0, ages + error), left / (ages - error) if ages > error else None,
                    "retention.ms")  # fmt: skip


def _by_start(points: Points, of: Trend | None) -> TimeForecast | None:
    if of is None or of.mirrored is None:
        return None
    run = [point for point in points if points[-1].time - point.time <= of.seconds]
    start = _fit(run, [point.start for point in run])
    if start is None or start.mean <= 0 or start.mean <= of.mirrored.mean:
        return None
    between, closing = points[-1].position - points[-1].start, start.mean - of.mirrored.mean
    error = start.error + of.mirrored.error
    latest = between / (closing - error) if closing > error else None
    return TimeForecast(max(0.0, between / closing), max(0.0, between / (closing + error)), latest, "log start")

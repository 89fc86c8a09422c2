"""What flows were behind and moved over the last 31 days, as the pages of `serve` draw it.

Lag and records come from looks (tables `lag` and `lag_history`, and of the last hour the looks of this process), bytes
from roll-ups. A rate is that between two looks at the same partitions, 15 minutes apart at most; a log end or a
position that goes back begins anew. Nothing is filled in where nobody looked, and nothing here starts a JVM.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from mm2mgr.errors import cause
from mm2mgr.observe.trend import LagPoint
from mm2mgr.text import first_few

if TYPE_CHECKING:
    from collections.abc import Callable

    from mm2mgr.observe.interruptions import InterruptionCounts
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
WEEK_SECONDS = 7 * DAY_SECONDS
UNSEEN_SECONDS = 900.0
"""Between looks that are further apart nothing is known."""
RANGES = {"1h": HOUR_SECONDS, "6h": 6 * HOUR_SECONDS, "24h": DAY_SECONDS, "7d": WEEK_SECONDS, "30d": 30 * DAY_SECONDS}
"""The times that are drawn, by name, in seconds."""
USUAL_RANGE = "24h"
_FINE_SECONDS = DAY_SECONDS  # what is longer is drawn by hours
_LOOK_SECONDS = 60.0  # stored offsets move once per flush
_DAYS = 31
_USUAL_FACTOR = 2.0


class TrafficPoint(NamedTuple):
    """A look, or an hour with its last look at `time` (seconds since 1970).

    `partitions`, `end`, `position` are those of the look; `lag` and `most_lag` mean and most of its time, in records.
    `seconds`: the time before it with known rates, in which `produced` records were written and `mirrored` were
    mirrored; 0.0 where none is known.
    """

    time: float
    partitions: int
    end: int
    position: int
    lag: float
    most_lag: float
    seconds: float = 0.0
    produced: float = 0.0
    mirrored: float = 0.0

    @property
    def source_rate(self) -> float | None:
        """Records per second that the source got; None: unknown."""
        return self.produced / self.seconds if self.seconds else None

    @property
    def mirrored_rate(self) -> float | None:
        """Records per second that were mirrored; None: unknown."""
        return self.mirrored / self.seconds if self.seconds else None


@dataclass(frozen=True)
class TrafficColumns:
    """Points, oldest first, as columns: a month of 240 flows is a quarter of a million of them."""

    whole: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in range(3)))
    real: tuple[array[float], ...] = field(default_factory=lambda: tuple(array("d") for _ in range(6)))

    def __len__(self) -> int:
        return len(self.whole[0])

    def points_since(self, time: float) -> list[TrafficPoint]:
        """Return the points from then on (seconds since 1970)."""
        first = bisect_left(self.real[0], time)
        times, *others = (column[first:] for column in self.real)
        return list(map(TrafficPoint, times, *(column[first:] for column in self.whole), *others))

    def of_hour(self, hour: int) -> TrafficPoint | None:
        """Return the point of an hour since 1970, of columns of hours; None without one."""
        at = bisect_right(self.real[0], (hour + 1) * HOUR_SECONDS - 1e-9) - 1
        if at < 0 or self.real[0][at] < hour * HOUR_SECONDS:
            return None
        time, *others = (column[at] for column in self.real)
        partitions, end, position = (column[at] for column in self.whole)
        return TrafficPoint(time, partitions, end, position, *others)


@dataclass(frozen=True)
class FlowPast:
    """What is known of one flow: looks of five minutes of the last days, hours of 31 days, and by hour since 1970 the
    bytes per second that its source got.

    `interruptions`: what interrupted it, by the start of a span in seconds since 1970: of five minutes in the last
    hour, of an hour in the last day, else of a day.
    """

    looks: TrafficColumns = field(default_factory=TrafficColumns)
    hours: TrafficColumns = field(default_factory=TrafficColumns)
    bytes_per_second: Mapping[int, float] = field(default_factory=dict)
    interruptions: Mapping[int, InterruptionCounts] = field(default_factory=dict)

    def points(self, now: float, seconds: float, recent: Sequence[LagPoint] = ()) -> list[TrafficPoint]:
        """Return the points of the newest so many seconds: of an hour as this process saw them, of a day by five
        minutes, else by hours, and always up to the newest look of `recent`."""
        own = [point for point in points_of_looks(recent) if now - seconds <= point.time]
        if seconds > _FINE_SECONDS:
            points = self.hours.points_since(now - seconds)
            return [*points, *(point for point in own[-1:] if not points or point.time > points[-1].time)]
        points = self.looks.points_since(now - seconds)
        if own:
            at = bisect_left(
                points, own[0].time if seconds <= HOUR_SECONDS else points[-1].time if points else 0.0, key=_time
            )
            points = points[:at] if seconds <= HOUR_SECONDS else points
            newer = [point for point in own if not points or point.time > points[-1].time]
            points = [*points, *(newer if seconds <= HOUR_SECONDS else thin_out(newer, 300.0))]
        return [point for point in points if now - seconds <= point.time]

    @cached_property
    def record_bytes(self) -> float | None:
        """The mean size of a record in the newest hour with records and bytes; None: unknown."""
        for hour in sorted(self.bytes_per_second, reverse=True):
            point = self.hours.of_hour(hour)
            if point and point.source_rate:
                return self.bytes_per_second[hour] / point.source_rate
        return None

    def size_at(self, point: TrafficPoint) -> float | None:
        """Return the mean size of a record in the hour of a point, else in the newest hour known; None: unknown."""
        hour = int(point.time // HOUR_SECONDS)
        of_hour, volume = self.hours.of_hour(hour), self.bytes_per_second.get(hour)
        return volume / of_hour.source_rate if volume and of_hour and of_hour.source_rate else self.record_bytes

    def hour_bytes(self, hour: int) -> float | None:
        """Return the bytes per second that its source got in an hour since 1970; None: unknown."""
        return self.bytes_per_second.get(hour)


def _time(point: TrafficPoint) -> float:
    return point.time


@dataclass(frozen=True)
class TrafficHistory:
    """What is known of each flow; `unknown` and `bytes_unknown` say why looks and bytes are not known.

    `warnings`: damaged files of the store that were left out.
    """

    flows: Mapping[str, FlowPast] = field(default_factory=dict)
    unknown: str = ""
    bytes_unknown: str = ""
    warnings: tuple[str, ...] = ()

    def of_flow(self, flow: str) -> FlowPast:
        return self.flows.get(flow, _NOTHING)


_NOTHING = FlowPast()


def points_of_looks(looks: Sequence[LagPoint]) -> list[TrafficPoint]:
    """Return looks, a minute apart at least, with the rates between them."""
    points: list[TrafficPoint] = []
    newest = looks[-1].time if looks else 0.0
    for look in looks:
        if points and look.time - points[-1].time < _LOOK_SECONDS and look.time < newest:
            continue
        points.append(_point_after(points[-1] if points else None, look))
    return points


def _point_after(before: TrafficPoint | None, look: LagPoint) -> TrafficPoint:
    lag = float(max(look.lag_records, 0))
    steps = (0.0, 0, 0)
    if before and before.partitions == look.partitions and 0 < look.time - before.time <= UNSEEN_SECONDS:
        produced, mirrored = look.end - before.end, look.position - before.position
        if produced >= 0 and mirrored >= 0:
            steps = look.time - before.time, produced, mirrored
    return TrafficPoint(look.time, look.partitions, look.end, look.position, lag, lag, *steps)


def thin_out(points: Sequence[TrafficPoint], seconds: float) -> list[TrafficPoint]:
    """Return points of which each stands for all looks of so many seconds of the clock."""
    thinned: list[TrafficPoint] = []
    for point in points:
        if not thinned or thinned[-1].time // seconds != point.time // seconds:
            thinned.append(point)
            continue
        before = thinned[-1]
        sums = (before.seconds + point.seconds, before.produced + point.produced, before.mirrored + point.mirrored)
        thinned[-1] = TrafficPoint(*point[:5], max(before.most_lag, point.most_lag), *sums)
    return thinned


def lag_seconds(points: Sequence[TrafficPoint]) -> list[float | None]:
    """Return for each point how long before it the log ended where the mirror is then, between looks in a straight
    line; None where these points do not go back so far.

    Other partitions, and a log that is shorter, begin anew.
    """
    seconds: list[float | None] = []
    times, ends = list[float](), list[int]()
    before: TrafficPoint | None = None
    for point in points:
        if before and (before.partitions != point.partitions or point.end < before.end):
            times, ends = [], []
        times.append(point.time)
        ends.append(point.end)
        before = point
        seconds.append(_reached_before(times, ends, point))
    return seconds


def _reached_before(times: Sequence[float], ends: Sequence[int], point: TrafficPoint) -> float | None:
    if point.position >= point.end:
        return 0.0
    at = bisect_right(ends, point.position)
    if at == 0:
        return None
    share = (point.position - ends[at - 1]) / (ends[at] - ends[at - 1])
    return point.time - (times[at - 1] + share * (times[at] - times[at - 1]))


def volume(rate: float | None, record_bytes: float | None) -> float | None:
    """Return bytes per second of records per second; None: unknown."""
    return None if rate is None or record_bytes is None else rate * record_bytes


def history_dict(
    traffic: FlowPast, points: Sequence[TrafficPoint], behind_seconds: Sequence[float | None]
) -> list[dict[str, float | None]]:
    """Return points, and how far behind the flow was at each, as JSON has them; rates are those since the point before,
    None: unknown."""
    return [
        {
            "time": point.time,
            "lag_records": point.lag,
            "most_lag_records": point.most_lag,
            "lag_seconds": behind,
            "source_records_per_second": point.source_rate,
            "mirrored_records_per_second": point.mirrored_rate,
            "source_bytes_per_second": volume(point.source_rate, size),
            "mirrored_bytes_per_second": volume(point.mirrored_rate, size),
        }
        for point, behind in zip(points, behind_seconds, strict=True)
        for size in (traffic.size_at(point),)
    ]


# --- reading ----------------------------------------------------------------------------------------------------------


def traffic_history(owner: str, flows: Sequence[Flow], store: Store, now: float) -> TrafficHistory:
    """Read what the store and the memory know of these flows; what cannot be read is said, and raises nothing."""
    looks, unknown, warnings = dict[str, tuple[TrafficColumns, TrafficColumns]](), "", list[str]()
    try:
        looks = _read_looks(owner, store, now, warnings.append)
    except Exception as error:  # a store that cannot be read ends neither the survey nor the server
        unknown = cause(error)
    volumes: Mapping[str, Mapping[int, float]] = {}
    bytes_unknown = ""
    try:
        volumes = _read_bytes(flows, store, now)
    except Exception as error:  # as above
        bytes_unknown = cause(error)
    from mm2mgr.observe.state_file import load, state_file

    memory, empty = load(state_file(owner)), TrafficColumns()
    return TrafficHistory(
        {
            flow.id: FlowPast(
                *looks.get(flow.id, (empty, empty)),
                volumes.get(flow.id, {}),
                dict(memory.flow(flow.id).interruptions.spans),
            )
            for flow in flows
        },
        unknown,
        bytes_unknown,
        tuple(first_few(warnings, "more warnings about files of the tables of lag")),
    )


def _read_looks(
    owner: str, store: Store, now: float, warn: Callable[[str], None]
) -> dict[str, tuple[TrafficColumns, TrafficColumns]]:
    from mm2mgr.samples.lag_history import LagHistoryStore

    looks, hours = LagHistoryStore(store, warn).read_columns(owner, round(1000 * now))
    empty = TrafficColumns()
    columns = [{flow: TrafficColumns(*arrays) for flow, arrays in by_flow.items()} for by_flow in (looks, hours)]
    return {flow: (columns[0].get(flow, empty), columns[1].get(flow, empty)) for flow in {**looks, **hours}}


def _read_bytes(flows: Sequence[Flow], store: Store, now: float) -> Mapping[str, Mapping[int, float]]:
    from mm2mgr.throughput.flow_hours import TopicChoice, read_flow_bytes

    choices = tuple(TopicChoice(flow.id, flow.source.alias, repr(flow.selection), flow.carries) for flow in flows)
    return read_flow_bytes(store, choices, round(1000 * now), _DAYS)


# --- beside earlier times ---------------------------------------------------------------------------------------------


Verdict = Literal["as usual", "more than usual", "less than usual", "unknown"]


class Beside(NamedTuple):
    """A rate now beside the means of the same hour of the clock a day and a week before; None: not measured."""

    now: float | None = None
    yesterday: float | None = None
    last_week: float | None = None


def verdict(besides: Iterable[Beside]) -> Verdict:
    """Return whether the sum of these rates is `as usual`: between half and twice of that of yesterday or last week.

    Only what was measured now and then is compared; `unknown` where nothing was.
    """
    rows, shares = list(besides), list[float]()
    for place in (1, 2):
        both = [(row.now, then) for row in rows if row.now is not None and (then := row[place]) is not None]
        if both:
            now, before = (math.fsum(rate for rate in of) for of in zip(*both, strict=True))
            shares.append(now / before if before else math.inf if now else 1.0)
    if not shares:
        return "unknown"
    if min(shares) > _USUAL_FACTOR:
        return "more than usual"
    return "less than usual" if max(shares) < 1 / _USUAL_FACTOR else "as usual"


def add_up(besides: Iterable[Beside]) -> Beside:
    """Return the sums of what was measured of several flows; None where nothing was."""
    rows = list(besides)

    def total(rates: Iterable[float | None]) -> float | None:
        measured = [rate for rate in rates if rate is not None]
        return math.fsum(measured) if measured else None

    return Beside(*(total(row[place] for row in rows) for place in range(3)))


def rates_beside(
    traffic: FlowPast, source_rate: float | None, source_bytes: float | None, now: float
) -> tuple[Beside, Beside]:
    """Return records and bytes per second of a flow's source, now and then."""
    hour = int(now // HOUR_SECONDS)
    records, volumes = list[float | None](), list[float | None]()
    for before in (hour - 24, hour - 7 * 24):
        point = traffic.hours.of_hour(before)
        records.append(point.source_rate if point else None)
        volumes.append(traffic.hour_bytes(before))
    return Beside(source_rate, *records), Beside(source_bytes, *volumes)


def by_hour(traffic: FlowPast, now: float, hours: int = 24) -> Iterator[tuple[int, float | None]]:
    """Yield the hours since 1970 up to this one with the records per second that the source got, None: unknown."""
    newest = int(now // HOUR_SECONDS)
    rates = {
        int(point.time // HOUR_SECONDS): point.source_rate
        for point in traffic.hours.points_since((newest - hours + 1) * HOUR_SECONDS)
    }
    for hour in range(newest - hours + 1, newest + 1):
        yield hour, rates.get(hour)

"""When growth passes a limit: the tasks of a flow, a partition what one task can carry, the workers theirs.

The load of the four newest weeks grows on at the same factor per week. One week of measurements shows no growth, and a
limit that is more than a year away is no date.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mm2mgr.sizing.fleet import ConnectLoad, fullest
from mm2mgr.sizing.tasks import SizedFlow
from mm2mgr.text import number_of
from mm2mgr.weeks import LimitPassed, LoadWeek, forecast_limits

HEAVIEST = 8
"""How many partitions of a flow are looked at: those that are the nearest to what one task can carry."""


@dataclass(frozen=True)
class MeasuredWeeks:
    """The weeks of a flow's load, and of the topics that have its heaviest partitions."""

    flow: LoadWeek | None = None
    topics: Mapping[str, LoadWeek] = field(default_factory=dict)


@dataclass(frozen=True)
class LimitForecast:
    """The limits that are passed within a year, by kind: of a flow `tasks` and `partition`, of workers `tasks` and
    `network`.

    `growth`: the factor per week, from `weeks` of measurements; None: too little is known. `reason`: all in words, also
    why nothing is forecast.
    """

    growth: float | None
    weeks: int
    limits: Mapping[str, LimitPassed]
    reason: str

    def seconds_until(self, now_seconds: float) -> dict[str, float]:
        """Return how long it is until each limit is passed; 0 where it is."""
        return {kind: max(0.0, limit.seconds - now_seconds) for kind, limit in self.limits.items()}


def forecast_flow(sized: SizedFlow, weeks: MeasuredWeeks, now_seconds: float) -> LimitForecast:
    """Return when the busiest task passes what is usable with as many tasks as the flow's limit allows, and when a
    partition does by itself; hot partitions have passed it and are named by the sizing."""
    load, limits = sized.load, dict[str, LimitPassed]()
    growth = _growth_of(weeks.flow)
    most = sized.most
    share = min(load.strain(most), load.strain(min(most, sized.sizing.tasks))) if len(load.hours) else 0.0
    if growth is not None and sized.bounds.limit is not None and most == sized.bounds.limit:
        _add(
            limits, "tasks", forecast_limits([(f"the limit of {number_of(most, 'task')}", share)], growth, now_seconds)
        )
    alone = load.alone_share
    places = [int(place) for place in (-alone).argsort(kind="stable") if alone[place] <= 1][:HEAVIEST]
    partitions: list[LimitPassed] = []
    for place in places:
        partition = sized.order[place]
        of_topic = _growth_of(weeks.topics.get(partition.topic))
        factor = growth if of_topic is None else of_topic
        if factor is not None:
            subject = f"what one task can carry, by partition {partition} alone,"
            partitions += forecast_limits([(subject, float(alone[place]))], factor, now_seconds)
    _add(limits, "partition", sorted(partitions, key=lambda limit: (limit.seconds, limit.subject)))
    return _forecast(weeks.flow, growth, limits)


def forecast_workers(load: ConnectLoad, weeks: Mapping[str, MeasuredWeeks], now_seconds: float) -> LimitForecast:
    """Return when a Connect cluster's workers of today pass what each may have: tasks, which grow with the load, and
    bytes per second."""
    growth = _common_growth(load, weeks)
    measured = [of.flow for run in load.runs if (of := weeks.get(run.flow_id)) and of.flow]
    newest = max(measured, key=lambda week: week.weeks, default=None)
    if not load.today:
        count = newest.weeks if newest else 0
        return LimitForecast(growth, count, {}, "No forecast: the number of workers is not known (workers: count).")
    limits: dict[str, LimitPassed] = {}
    if growth is not None:
        room = load.today * load.worker.tasks - load.side_tasks
        workers = f"of {number_of(load.today, 'worker')}"
        shares = {"tasks": (f"{load.worker.tasks} tasks each {workers}", load.tasks / room if room > 0 else math.inf)}
        if load.worker.network_bytes_per_second is not None:
            used = fullest(load, load.today).bytes_per_second / load.worker.network_bytes_per_second
            shares["network"] = (f"the network {workers}", used)
        for kind, share in shares.items():
            _add(limits, kind, forecast_limits([share], growth, now_seconds))
    return _forecast(newest, growth, limits)


def _growth_of(week: LoadWeek | None) -> float | None:
    return week.growth if week is not None and week.compared else None


def _common_growth(load: ConnectLoad, weeks: Mapping[str, MeasuredWeeks]) -> float | None:
    """Return the growth of the flows together; one of which none is known stays as it is."""
    growths = [(run.load.total, _growth_of(of.flow) if (of := weeks.get(run.flow_id)) else None) for run in load.runs]
    if not load.bytes_per_second or all(growth is None for _, growth in growths):
        return None
    return math.fsum(total * (1.0 if growth is None else growth) for total, growth in growths) / load.bytes_per_second


def _add(limits: dict[str, LimitPassed], kind: str, passed: Iterable[LimitPassed]) -> None:
    if (first := next(iter(passed), None)) is not None:
        limits[kind] = first


def _forecast(week: LoadWeek | None, growth: float | None, limits: Mapping[str, LimitPassed]) -> LimitForecast:
    weeks = week.weeks if week else 0
    if growth is None and not limits:
        reason = "No forecast: growth shows from two weeks of measurements on; there are fewer."
        if weeks > 1:
            reason = "No forecast: too few hours of the newest week were measured in an earlier one, too."
        return LimitForecast(None, weeks, limits, reason)
    factor = 1.0 if growth is None else growth
    grows = f"At today's growth of {(factor - 1) * 100:.1f} % a week"
    if limits:
        ends = ", ".join(f"{limit.subject} {_when(limit)}" for limit in limits.values())
        return LimitForecast(growth, weeks, limits, f"{grows + ', the' if factor > 1 else 'The'} load passes {ends}.")
    if factor <= 1:
        return LimitForecast(growth, weeks, limits, "No forecast: the load does not grow.")
    return LimitForecast(growth, weeks, limits, f"{grows}, no limit is passed within a year.")


def _when(limit: LimitPassed) -> str:
    if limit.share > 1:
        return f"now ({limit.share * 100:.0f} %)" if limit.share < math.inf else "now"
    day = f"{datetime.fromtimestamp(limit.seconds, UTC):%Y-%m-%d}"
    return f"on {day} (now {limit.share * 100:.0f} %)"

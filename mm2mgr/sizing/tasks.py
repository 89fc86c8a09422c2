"""How many tasks a flow needs: the smallest number whose every task holds when Connect deals it the flow's partitions.

In go the deal and measured hours, out comes a Sizing with a sentence for each number. It knows nothing of where rates
come from, and of no earlier sizing: whether a new number is worth a restart is decided in `stability`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing import reasons
from mm2mgr.sizing.deal import Deal
from mm2mgr.sizing.growth import Growth
from mm2mgr.sizing.load import Coverage, Hours, Load, Statistic, complete

DEFAULT_RATE_BYTES_PER_SECOND = 5_000.0
DEFAULT_RECORDS_PER_SECOND = 100_000.0
"""An estimate: four tasks moved 90 000 records of 200 bytes a second on two cores that their brokers shared, where larger records
were bound by their bytes. It decides where records are smaller than 100 bytes."""
DEFAULT_PARTITIONS = 500
"""Brooklin's default of partitionsPerTask (LoadBasedTaskCountEstimator)."""
Verdict = Literal["fits", "too small", "badly dealt", "more than needed", "not measured"]
OVERLOADED: tuple[Verdict, ...] = ("too small", "badly dealt")


@dataclass(frozen=True)
class Capacity:
    """What one task can move, and the share of it to plan with; 10 MB/s is 10 000 000 bytes per second (MB = 10⁶).

    `records_per_second` counts where records are so small that a task is bound by their number; `why` says where the bytes
    come from, where that is worth a sentence.
    """

    bytes_per_second: float = 10_000_000.0
    threshold: float = 0.7
    why: str = ""
    records_per_second: float = DEFAULT_RECORDS_PER_SECOND

    @property
    def usable_bytes_per_second(self) -> int:
        """Capacity × threshold, in whole bytes so that 70 % of 10 MB/s is exactly 7 MB/s; at least 1."""
        return max(1, round(self.bytes_per_second * self.threshold))

    @property
    def usable_records_per_second(self) -> float:
        """The same share of the records."""
        return max(1.0, self.records_per_second * self.threshold)


@dataclass(frozen=True)
class Bounds:
    """Least and most tasks of a flow, and most partitions of a task; where they contradict each other, the limit wins."""

    minimum: int = 1
    limit: int | None = None
    partitions: int = DEFAULT_PARTITIONS


@dataclass(frozen=True)
class Rules:
    """The numbers that people configure.

    `default_bytes_per_second` stands for a partition of a flow that was never measured: small, because such flows are
    new or idle, but not zero, because thousands of partitions are a load. `statistic`: which of the hours count; with p95 a
    task may be above what is usable in 5 % of them.
    """

    capacity: Capacity = Capacity()
    bounds: Bounds = Bounds()
    default_bytes_per_second: float = DEFAULT_RATE_BYTES_PER_SECOND
    statistic: Statistic = "p95"


@dataclass(frozen=True)
class Profile:
    """What else was measured of a source: mean record size by partition, and the topics that grew."""

    record_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)
    growth: Mapping[str, Growth] = field(default_factory=dict)


@dataclass(frozen=True)
class Now:
    """The number of tasks that the tree gives the flow today, and whether people wrote it."""

    tasks: int
    by_hand: bool = False


@dataclass(frozen=True)
class HotPartition:
    """A measured partition above the usable capacity of one task, and how many times that capacity it carries."""

    topic: str
    partition: int
    bytes_per_second: float
    factor: float


@dataclass(frozen=True)
class Judgement:
    """What today's number of tasks makes of the load.

    `too small`: more tasks do better. `badly dealt`: fewer do, because busy partitions happen to share a task today.
    `fits` also where no number does better.
    """

    tasks: int
    by_hand: bool
    busiest_bytes_per_second: float
    verdict: Verdict


@dataclass(frozen=True)
class Sizing:
    """The answer for one flow; the four partition counts add up to the partitions that exist."""

    flow_id: str
    tasks: int
    bytes_per_second: float
    busiest_bytes_per_second: float
    usable_bytes_per_second: int
    deal: Literal["live", "predicted", "guessed"]
    measured_partitions: int
    topic_rate_partitions: int
    flow_rate_partitions: int
    default_partitions: int
    hot_partitions: tuple[HotPartition, ...]
    capped_by: Literal["limit", "partitions"] | None
    now: Judgement | None
    growth: Mapping[str, Growth]
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = asdict(self)
        fields["hot_partitions"] = [asdict(hot) for hot in self.hot_partitions]
        return {**fields, "reasons": list(self.reasons)}


@dataclass(frozen=True, eq=False)
class FlowLoad:
    """What a flow is sized from: its deal, its load by position, where the rates come from, and which partitions were measured."""

    deal: Deal
    load: Load
    coverage: Coverage
    measured: Collection[TopicPartition]
    growth: Mapping[str, Growth]


def size_flow(
    flow_id: str,
    deal: Deal,
    rates: Mapping[TopicPartition, Hours],
    rules: Rules | None = None,
    now: Now | None = None,
) -> Sizing:
    """Size one flow of which nothing but rates is known; see `flow_load`."""
    rules = rules or Rules()
    return size_load(flow_id, flow_load(deal, rates, rules), rules, now)


def size_load(flow_id: str, known: FlowLoad, rules: Rules, now: Now | None) -> Sizing:
    """Size one flow; partitions that were measured and are gone are named and not counted."""
    deal, load, coverage = known.deal, known.load, known.coverage
    tasks, capped_by = _tasks(load, rules.bounds)
    hot = _hot(known)
    judged = judge(load, now, tasks, measured=coverage.measured > 0) if now else None
    told = reasons.Told(deal, load, coverage, rules, tasks, capped_by, hot, judged, known.growth)
    why = (*reasons.sentences(told), *reasons.gone(deal.order, known.measured))
    counts = (coverage.measured, coverage.topic, coverage.flow, coverage.default)
    numbers = (tasks, load.total, load.busiest(tasks), rules.capacity.usable_bytes_per_second)
    return Sizing(flow_id, *numbers, deal.source, *counts, hot, capped_by, judged, known.growth, why)


def flow_load(
    deal: Deal, rates: Mapping[TopicPartition, Hours], rules: Rules, profile: Profile | None = None
) -> FlowLoad:
    """Return the load of a flow by position of its deal.

    `deal` holds the partitions that Kafka has now, `rates` bytes per second of this flow's partitions in each hour.
    """
    profile = profile or Profile()
    resolved, coverage = complete(deal.order, rates, rules.default_bytes_per_second)
    sizes = [profile.record_bytes.get(one, math.nan) for one in deal.order] if profile.record_bytes else None
    capacity = rules.capacity
    limits = (capacity.usable_bytes_per_second, rules.statistic, capacity.bytes_per_second)
    load = Load(resolved, *limits, sizes, capacity.usable_records_per_second, rules.bounds.partitions)
    topics = dict.fromkeys(one.topic for one in deal.order)
    growth = {topic: profile.growth[topic] for topic in topics if topic in profile.growth}
    return FlowLoad(deal, load, coverage, rates.keys(), growth)


def judge(load: Load, now: Now, recommended: int, *, measured: bool = True) -> Judgement:
    """Tell whether today's number of tasks fits."""
    verdict: Verdict = "fits"
    if not measured and len(load.hours):
        verdict = "not measured"
    elif load.fits(now.tasks):
        verdict = "more than needed" if recommended < now.tasks else "fits"
    elif recommended > now.tasks:
        verdict = "too small"
    elif load.fits(recommended):
        verdict = "badly dealt"
    return Judgement(now.tasks, now.by_hand, load.busiest(now.tasks), verdict)


def _tasks(load: Load, bounds: Bounds) -> tuple[int, Literal["limit", "partitions"] | None]:
    """Return the first number that fits from the least possible on, and what kept it from being the one asked for.

    More tasks are not always better: the deal goes by position, so each number makes other neighbours.
    """
    partitions = max(1, len(load.hours))
    limit = partitions if bounds.limit is None else max(1, bounds.limit)
    start, most = max(load.least, bounds.minimum), min(limit, partitions)
    if start > most:
        return most, "limit" if limit <= partitions and bounds.limit is not None else "partitions"
    fitting = next((tasks for tasks in range(start, most + 1) if load.fits(tasks)), None)
    if fitting is not None:
        return fitting, None
    return min(range(start, most + 1), key=load.strain), "limit"


def _hot(known: FlowLoad) -> tuple[HotPartition, ...]:
    """Return the measured partitions that no task can carry, worst first."""
    load, order = known.load, known.deal.order
    heavy = [place for place in load.heavy if order[place] in known.measured]
    heavy.sort(key=lambda place: (-load.alone[place], order[place]))
    return tuple(HotPartition(*order[one], float(load.alone[one]), float(load.alone_share[one])) for one in heavy)

"""How many tasks a flow needs: the smallest number with which every task fits when Connect assigns it the flow's partitions.

Rates may come from anywhere, and an earlier sizing does not count: whether a new number is worth a restart, `stability` decides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing import reasons
from mm2mgr.sizing.assignment import Assignment
from mm2mgr.sizing.growth import TopicGrowth
from mm2mgr.sizing.load import Coverage, Hours, Load, Statistic, complete

DEFAULT_RATE_BYTES_PER_SECOND = 5_000.0
DEFAULT_RECORDS_PER_SECOND = 100_000.0
"""An estimate: four tasks moved 90 000 records of 200 bytes a second on two cores that their brokers shared, where larger records
were bound by their bytes. It decides where records are smaller than 100 bytes."""
DEFAULT_PARTITIONS = 500
"""Brooklin's default of partitionsPerTask (LoadBasedTaskCountEstimator)."""
Fit = Literal["fits", "too small", "badly dealt", "more than needed", "not measured"]
OVERLOADED: tuple[Fit, ...] = ("too small", "badly dealt")


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
    growth: Mapping[str, TopicGrowth] = field(default_factory=dict)


@dataclass(frozen=True)
class CurrentTasks:
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

    `too small`: more tasks fit better. `badly dealt`: fewer do, because busy partitions happen to share a task today.
    `fits` also where no other number is better.
    """

    tasks: int
    by_hand: bool
    busiest_bytes_per_second: float
    verdict: Fit


@dataclass(frozen=True)
class Sizing:
    """The answer for one flow; the four partition counts add up to the partitions that exist."""

    flow_id: str
    tasks: int
    bytes_per_second: float
    busiest_bytes_per_second: float
    usable_bytes_per_second: int
    assignment: Literal["live", "predicted", "guessed"]
    measured_partitions: int
    topic_rate_partitions: int
    flow_rate_partitions: int
    default_partitions: int
    hot_partitions: tuple[HotPartition, ...]
    capped_by: Literal["limit", "partitions"] | None
    now: Judgement | None
    growth: Mapping[str, TopicGrowth]
    reasons: tuple[str, ...]

    @property
    def partitions(self) -> int:
        """The partitions that exist."""
        return (
            self.measured_partitions + self.topic_rate_partitions + self.flow_rate_partitions + self.default_partitions
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = asdict(self)
        fields["hot_partitions"] = [asdict(hot) for hot in self.hot_partitions]
        fields["reasons"] = list(self.reasons)
        # In JSON the assignment has the name that it had in the first version.
        return {"deal" if key == "assignment" else key: value for key, value in fields.items()}


@dataclass(frozen=True, eq=False)
class FlowLoad:
    """What a flow is sized from: its assignment, the load by position, where the rates come from, and the measured partitions."""

    assignment: Assignment
    load: Load
    coverage: Coverage
    measured: Collection[TopicPartition]
    growth: Mapping[str, TopicGrowth]


@dataclass(frozen=True)
class SizedFlow:
    """A sizing with the load behind it; `order`: the partitions of the load, those that Kafka has now."""

    sizing: Sizing
    load: Load
    bounds: Bounds
    order: tuple[TopicPartition, ...]

    @cached_property
    def peak(self) -> Load:
        """The same hours judged by the busiest of them, with the whole capacity of a task."""
        load = self.load
        records = load.usable_records * load.capacity / load.usable
        return replace(load, usable=load.capacity, usable_records=records, statistic="max", most_partitions=None)

    @property
    def most(self) -> int:
        """The most tasks that bounds and partitions allow."""
        partitions = max(1, len(self.load.hours))
        return partitions if self.bounds.limit is None else min(self.bounds.limit, partitions)


def size_flow(
    flow_id: str,
    assignment: Assignment,
    rates: Mapping[TopicPartition, Hours],
    rules: Rules | None = None,
    now: CurrentTasks | None = None,
) -> Sizing:
    """Size one flow of which nothing but rates is known; see `flow_load`."""
    rules = rules or Rules()
    return size_load(flow_id, flow_load(assignment, rates, rules), rules, now)


def size_load(flow_id: str, known: FlowLoad, rules: Rules, now: CurrentTasks | None) -> Sizing:
    """Size one flow; measured partitions that no longer exist are named and not counted."""
    assignment, load, coverage = known.assignment, known.load, known.coverage
    tasks, capped_by = _tasks(load, rules.bounds)
    hot = _hot(known)
    judged = judge(load, now, tasks, measured=coverage.measured > 0) if now else None
    facts = reasons.SizingFacts(assignment, load, coverage, rules, tasks, capped_by, hot, judged, known.growth)
    why = (*reasons.sentences(facts), *reasons.gone(assignment.order, known.measured))
    counts = (coverage.measured, coverage.topic, coverage.flow, coverage.default)
    numbers = (tasks, load.total, load.busiest(tasks), rules.capacity.usable_bytes_per_second)
    return Sizing(flow_id, *numbers, assignment.source, *counts, hot, capped_by, judged, known.growth, why)


def flow_load(
    assignment: Assignment, rates: Mapping[TopicPartition, Hours], rules: Rules, profile: Profile | None = None
) -> FlowLoad:
    """Return the load of a flow by position of its assignment.

    `assignment` holds the partitions that Kafka has now, `rates` bytes per second of this flow's partitions in each hour.
    """
    profile = profile or Profile()
    resolved, coverage = complete(assignment.order, rates, rules.default_bytes_per_second)
    sizes = [profile.record_bytes.get(one, math.nan) for one in assignment.order] if profile.record_bytes else None
    capacity = rules.capacity
    limits = (capacity.usable_bytes_per_second, rules.statistic, capacity.bytes_per_second)
    load = Load(resolved, *limits, sizes, capacity.usable_records_per_second, rules.bounds.partitions)
    topics = dict.fromkeys(one.topic for one in assignment.order)
    growth = {topic: profile.growth[topic] for topic in topics if topic in profile.growth}
    return FlowLoad(assignment, load, coverage, rates.keys(), growth)


def judge(load: Load, now: CurrentTasks, recommended: int, *, measured: bool = True) -> Judgement:
    """Judge today's number of tasks."""
    verdict: Fit = "fits"
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

    More tasks are not always better: the assignment goes by position, so each number makes other neighbours.
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
    load, order = known.load, known.assignment.order
    heavy = [place for place in load.heavy if order[place] in known.measured]
    heavy.sort(key=lambda place: (-load.alone[place], order[place]))
    return tuple(HotPartition(*order[one], float(load.alone[one]), float(load.alone_share[one])) for one in heavy)

"""How many tasks a flow needs: the smallest number whose busiest task fits when Connect deals it the flow's partitions.

In go the deal and measured rates, out comes a Sizing with a sentence for each number. It knows nothing of where rates
come from, and of no earlier sizing: whether a new number is worth a restart is decided in `stability`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing import reasons
from mm2mgr.sizing.deal import Deal
from mm2mgr.sizing.load import Coverage, Load, complete

DEFAULT_RATE_BYTES_PER_SECOND = 5_000.0
Verdict = Literal["fits", "too small", "badly dealt", "more than needed", "not measured"]
OVERLOADED: tuple[Verdict, ...] = ("too small", "badly dealt")


@dataclass(frozen=True)
class Capacity:
    """What one task can move, and the share of it to plan with; 10 MB/s is 10 000 000 bytes per second (MB = 10⁶).

    `why` says where the number comes from, where that is worth a sentence.
    """

    bytes_per_second: float = 10_000_000.0
    threshold: float = 0.7
    why: str = ""

    @property
    def usable_bytes_per_second(self) -> int:
        """Capacity × threshold, in whole bytes so that 70 % of 10 MB/s is exactly 7 MB/s; at least 1."""
        return max(1, round(self.bytes_per_second * self.threshold))


@dataclass(frozen=True)
class Bounds:
    """Least and most tasks of a flow; where they contradict each other, the limit wins."""

    minimum: int = 1
    limit: int | None = None


@dataclass(frozen=True)
class Rules:
    """The numbers that people configure.

    `default_bytes_per_second` stands for a partition of a flow that was never measured: small, because such flows are
    new or idle, but not zero, because thousands of partitions are a load.
    """

    capacity: Capacity = Capacity()
    bounds: Bounds = Bounds()
    default_bytes_per_second: float = DEFAULT_RATE_BYTES_PER_SECOND


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
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = asdict(self)
        fields["hot_partitions"] = [asdict(hot) for hot in self.hot_partitions]
        return {**fields, "reasons": list(self.reasons)}


def size_flow(
    flow_id: str,
    deal: Deal,
    rates: Mapping[TopicPartition, float],
    rules: Rules | None = None,
    now: Now | None = None,
) -> Sizing:
    """Size one flow.

    `deal` holds the partitions that Kafka has now, `rates` bytes per second of this flow's partitions by the caller's
    choice of percentile; those of partitions that are gone are named and not counted.
    """
    rules = rules or Rules()
    load, coverage = flow_load(deal, rates, rules)
    tasks, capped_by = _tasks(load, rules.bounds)
    hot = _hot(deal, load, rates)
    judged = judge(load, now, tasks, measured=coverage.measured > 0) if now else None
    told = reasons.Told(deal, load, coverage, rules, tasks, capped_by, hot, judged)
    why = (*reasons.sentences(told), *reasons.gone(deal.order, rates))
    counts = (coverage.measured, coverage.topic, coverage.flow, coverage.default)
    numbers = (tasks, load.total, load.busiest(tasks), rules.capacity.usable_bytes_per_second)
    return Sizing(flow_id, *numbers, deal.source, *counts, hot, capped_by, judged, why)


def flow_load(deal: Deal, rates: Mapping[TopicPartition, float], rules: Rules) -> tuple[Load, Coverage]:
    """Return the load of a flow by position of its deal, and where its rates come from."""
    resolved, coverage = complete(deal.order, rates, rules.default_bytes_per_second)
    return Load(resolved, rules.capacity.usable_bytes_per_second), coverage


def judge(load: Load, now: Now, recommended: int, *, measured: bool = True) -> Judgement:
    """Tell whether today's number of tasks fits."""
    verdict: Verdict = "fits"
    if not measured and load.rates:
        verdict = "not measured"
    elif not load.rates or load.fits(now.tasks):
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
    partitions = max(1, len(load.rates))
    limit = partitions if bounds.limit is None else max(1, bounds.limit)
    start, most = max(load.least, bounds.minimum), min(limit, partitions)
    if start > most:
        return most, "limit" if limit <= partitions and bounds.limit is not None else "partitions"
    fitting = next((tasks for tasks in range(start, most + 1) if load.fits(tasks)), None)
    if fitting is not None or not load.rates:
        return fitting or most, None
    return min(range(start, most + 1), key=load.busiest), "limit"


def _hot(deal: Deal, load: Load, rates: Mapping[TopicPartition, float]) -> tuple[HotPartition, ...]:
    """Return the measured partitions that no task can carry, worst first."""
    heavy = [deal.order[position] for position in load.heavy]
    above = sorted((one for one in heavy if one in rates), key=lambda one: (-rates[one], one))
    return tuple(HotPartition(*one, rates[one], rates[one] / load.usable) for one in above)

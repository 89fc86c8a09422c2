"""How many tasks a flow needs, and why: measured load over what one task can carry, within bounds.

In go the flow's partitions and their measured rates, out comes a Sizing with a sentence for each number.
It knows nothing of where rates come from and decides nothing about which task gets which partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.words import listed, number_of, rate_text

DEFAULT_RATE_BYTES_PER_SECOND = 5_000.0


@dataclass(frozen=True)
class Capacity:
    """What one task can move, and the share of it to plan with; 10 MB/s is 10 000 000 bytes per second (MB = 10⁶)."""

    bytes_per_second: float = 10_000_000.0
    threshold: float = 0.7

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

    `default_bytes_per_second` stands for a partition whose topic was never measured: small, because such topics are
    new or idle, but not zero, because thousands of them are a load.
    """

    capacity: Capacity = Capacity()
    bounds: Bounds = Bounds()
    default_bytes_per_second: float = DEFAULT_RATE_BYTES_PER_SECOND


@dataclass(frozen=True)
class HotPartition:
    """A measured partition above the usable capacity of one task, and how many times that capacity it carries."""

    topic: str
    partition: int
    bytes_per_second: float
    factor: float


@dataclass(frozen=True)
class Sizing:
    """The answer for one flow; the three partition counts add up to the partitions that exist."""

    flow_id: str
    tasks: int
    bytes_per_second: float
    measured_partitions: int
    topic_rate_partitions: int
    default_partitions: int
    hot_partitions: tuple[HotPartition, ...]
    capped_by: Literal["limit", "partitions"] | None
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = asdict(self)
        fields["hot_partitions"] = [asdict(hot) for hot in self.hot_partitions]
        return {**fields, "reasons": list(self.reasons)}


@dataclass(frozen=True)
class _Load:
    """The rate of every existing partition, and where each came from."""

    rates: Mapping[TopicPartition, float]
    measured: int
    by_topic: int
    by_default: int

    @property
    def total(self) -> float:
        return math.fsum(self.rates.values())


def size_flow(
    flow_id: str,
    partitions: Mapping[TopicPartition, bool],
    rates: Mapping[TopicPartition, float],
    rules: Rules | None = None,
) -> Sizing:
    """Size one flow.

    `partitions` holds the flow's partitions, true where Kafka has them now, false where they were only measured.
    `rates` are bytes per second by the caller's choice of percentile; partitions outside the flow are ignored.
    """
    rules = rules or Rules()
    load = _load({one for one, exists in partitions.items() if exists}, rates, rules.default_bytes_per_second)
    usable = rules.capacity.usable_bytes_per_second
    needed = max(1, math.ceil(load.total / usable))
    tasks, capped_by = _within(needed, rules.bounds, len(load.rates))
    hot = _hot({one: rate for one, rate in load.rates.items() if one in rates}, usable)
    gone = sorted({one.topic for one, exists in partitions.items() if not exists and one in rates})
    reasons = (
        *_why_needed(load, rules, needed),
        *_why_bounded(load, rules.bounds, needed, tasks, capped_by),
        *_why_hot(hot),
        *([f"Measured but no longer in Kafka, so ignored: {listed(gone)}."] if gone else []),
    )
    return Sizing(flow_id, tasks, load.total, load.measured, load.by_topic, load.by_default, hot, capped_by, reasons)


def _load(existing: Iterable[TopicPartition], rates: Mapping[TopicPartition, float], default: float) -> _Load:
    """Give each partition its own rate, else the mean of its topic's measured partitions, else the default."""
    ordered = sorted(existing)
    own = {one: rates[one] for one in ordered if one in rates}
    by_topic: dict[str, list[float]] = {}
    for one, rate in own.items():
        by_topic.setdefault(one.topic, []).append(rate)
    means = {topic: math.fsum(known) / len(known) for topic, known in by_topic.items()}
    resolved = {one: own.get(one, means.get(one.topic, default)) for one in ordered}
    borrowed = sum(one not in own and one.topic in means for one in ordered)
    return _Load(resolved, len(own), borrowed, len(ordered) - len(own) - borrowed)


def _within(needed: int, bounds: Bounds, partitions: int) -> tuple[int, Literal["limit", "partitions"] | None]:
    """Clamp: at least the minimum, at most the limit and the partitions, and never below one task."""
    wanted = max(needed, bounds.minimum, 1)
    limit = wanted if bounds.limit is None else max(1, bounds.limit)
    most = max(1, partitions)
    tasks = min(wanted, limit, most)
    if tasks == wanted:
        return tasks, None
    return tasks, "limit" if limit <= most else "partitions"


def _hot(rates: Mapping[TopicPartition, float], usable: int) -> tuple[HotPartition, ...]:
    above = sorted((one for one, rate in rates.items() if rate > usable), key=lambda one: (-rates[one], one))
    return tuple(HotPartition(*one, rates[one], rates[one] / usable) for one in above)


def _why_needed(load: _Load, rules: Rules, needed: int) -> list[str]:
    if not load.rates:
        return ["No partition of this flow exists in Kafka: one task waits for the first."]
    capacity = rules.capacity
    usable = f"{rate_text(capacity.usable_bytes_per_second)} usable per task"
    share = f"({rate_text(capacity.bytes_per_second)} × {capacity.threshold * 100:g} %)"
    partitions = number_of(len(load.rates), "partition")
    origin = f"Of {partitions}, {load.measured} have a rate of their own"
    if load.by_topic:
        origin += f", {load.by_topic} {_take(load.by_topic)} the mean of their topic"
    if load.by_default:
        origin += (
            f", {load.by_default} {_take(load.by_default)} the default of {rate_text(rules.default_bytes_per_second)}"
        )
    total = f"{rate_text(load.total)} over {partitions}, divided by {usable} {share}"
    return [f"{total}, needs {number_of(needed, 'task')}.", f"{origin}."]


def _take(count: int) -> str:
    return "takes" if count == 1 else "take"


def _why_bounded(load: _Load, bounds: Bounds, needed: int, tasks: int, capped_by: str | None) -> list[str]:
    reasons = []
    if needed < bounds.minimum:
        reasons.append(f"The minimum asks for {number_of(bounds.minimum, 'task')}.")
    if capped_by == "partitions":
        reasons.append(f"Capped at {tasks}, the number of partitions: a task without a partition has nothing to do.")
    if capped_by == "limit":
        reasons.append(f"Capped at the limit of {number_of(tasks, 'task')}.")
    if tasks < needed:
        each = rate_text(load.total / tasks)
        reasons.append(f"The load asks for {needed}: every task then carries {each} on average, above what is usable.")
    return reasons


def _why_hot(hot: tuple[HotPartition, ...]) -> list[str]:
    if not hot:
        return []
    names = [f"{h.topic}-{h.partition} ({rate_text(h.bytes_per_second)}, {h.factor:.1f} times)" for h in hot]
    return [
        f"Above the usable capacity of one task: {listed(names)}. "
        "A partition is read by one task, so no number of tasks helps: spread its keys or give its topic more partitions."
    ]

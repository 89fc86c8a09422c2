"""The load of a flow: one rate for every partition of its deal, where each rate came from, and what a number of tasks makes of it.

In go partitions in the connector's order and measured rates, out come loads per task. It decides no number of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.deal import dealt


@dataclass(frozen=True)
class Coverage:
    """How many partitions have a rate of their own, and what the others take: they add up to the partitions that exist."""

    measured: int
    topic: int
    flow: int
    default: int

    @property
    def share(self) -> float:
        """Share of partitions with a rate of their own; 1 for a flow without partitions."""
        total = self.measured + self.topic + self.flow + self.default
        return self.measured / total if total else 1.0


@dataclass(frozen=True)
class Load:
    """Bytes per second by position of the deal. `usable`: what one task is planned to carry at most, in bytes per second."""

    rates: Sequence[float]
    usable: float

    @cached_property
    def total(self) -> float:
        return math.fsum(self.rates)

    @cached_property
    def heavy(self) -> list[int]:
        """The positions that no task can carry."""
        return [position for position, rate in enumerate(self.rates) if rate > self.usable]

    @cached_property
    def rest(self) -> Sequence[float]:
        """The rates with 0 for what no task can carry."""
        return [0.0 if rate > self.usable else rate for rate in self.rates] if self.heavy else self.rates

    @property
    def least(self) -> int:
        """Return a number of tasks below which none can do: one for each heavy partition, and the rest by what is usable."""
        return max(1, len(self.heavy) + math.ceil(math.fsum(self.rest) / self.usable))

    def per_task(self, tasks: int) -> list[float]:
        """Return the load of each task; one task without load where there is no partition."""
        return [math.fsum(hand) for hand in dealt(self.rates, tasks)] or [0.0]

    def busiest(self, tasks: int) -> float:
        """Return the load of the busiest task."""
        return max(self.per_task(tasks))

    def fits(self, tasks: int, share: float = 1.0) -> bool:
        """Tell whether no task has more than `share` of what is usable.

        A partition that has more by itself is no reason against, as no number of tasks makes it less: one that no task
        can carry is set aside, but two of those must not share a task.
        """
        count = min(tasks, len(self.rates))
        if len({position % count for position in self.heavy}) < len(self.heavy):
            return False
        most = self.usable if share == 1 else max(self.usable * share, max(self.rest, default=0.0))
        return all(math.fsum(hand) <= most for hand in dealt(self.rest, tasks))


def complete(
    order: Sequence[TopicPartition], rates: Mapping[TopicPartition, float], default_bytes_per_second: float
) -> tuple[list[float], Coverage]:
    """Give each partition its own rate, else the mean of its topic's measured partitions, else the flow's median,
    else the default.
    """
    own = [_possible(rates.get(one)) for one in order]
    known: dict[str, list[float]] = {}
    for one, rate in zip(order, own, strict=True):
        if rate is not None:
            known.setdefault(one.topic, []).append(rate)
    means = {topic: math.fsum(found) / len(found) for topic, found in known.items()}
    measured = [rate for rate in own if rate is not None]
    other = median(measured) if measured else default_bytes_per_second
    resolved = [means.get(one.topic, other) if rate is None else rate for one, rate in zip(order, own, strict=True)]
    topic = sum(rate is None and one.topic in means for one, rate in zip(order, own, strict=True))
    left = len(order) - len(measured) - topic
    return resolved, Coverage(len(measured), topic, left if measured else 0, 0 if measured else left)


def _possible(rate: float | None) -> float | None:
    """Drop what no partition can have: a source that says NaN, infinity or less than nothing has not measured."""
    return rate if rate is not None and 0 <= rate < math.inf else None

"""A fresh balanced assignment: the least number of tasks that holds, and which of them gets which partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mm2mgr.assignment import Assignment
from mm2mgr.balance.packing import RELIEF, ROUNDING, Packing, Weights
from mm2mgr.balance.rates import MEASURED, PlannedRate, Rates, RateSource, measured_share, resolve_rates
from mm2mgr.balance.rules import BalanceRules, LoadLook
from mm2mgr.partitions import Listing, TopicPartition, listing_of, predict
from mm2mgr.sizing.tasks import HotPartition
from mm2mgr.text import few, number_of, rate_text

Choice = Literal["fresh", "keep", "rebalance", "grow", "shrink"]
LEVEL = 1.001
"""A fresh plan stops to exchange a thousandth above the bound."""
_LEAST_LOAD = 1e-9  # of a flow without traffic, so that nothing is divided by zero
_TOO_TIGHT = 5e-5  # whether so little is left to spare is not worth finding out
_SINGLE_STEPS = 4
_REPACKED, _REPACKED_PARTITIONS = 96, 2_000


@dataclass(frozen=True)
class TaskShare:
    """The planned load of a task; `usable_share`: of its usable capacity, in bytes or in records, whichever is more."""

    task: int
    partitions: int
    bytes_per_second: float
    records_per_second: float
    usable_share: float


@dataclass(frozen=True)
class PartitionMove:
    """A partition that another task gets."""

    partition: TopicPartition
    from_task: int
    to_task: int


@dataclass(frozen=True, eq=False)
class BalancePlan:
    """The assignment to have, and why.

    `choice`: `keep` changes nothing (partitions that no task has yet are in `assignment`, and are no reason to write
    it); all others are worth one restart. `moves` are of partitions that have a task now. `busiest`, `bound`: as shares
    of the usable capacity of a task. `capped`: the bounds allow too few tasks. `look` is for the history of the next
    plan; None where nothing runs. `rates`: what each partition was planned with.
    """

    choice: Choice
    assignment: Assignment
    moves: tuple[PartitionMove, ...]
    reasons: tuple[str, ...]
    tasks: tuple[TaskShare, ...]
    busiest: float
    bound: float
    hot_partitions: tuple[HotPartition, ...]
    capped: bool
    look: LoadLook | None
    rates: tuple[PlannedRate, ...]
    json_keys = (
        "choice task_count assignment=assignment.tasks moves reasons tasks busiest bound over_bound hot_partitions"
        " capped look"
    )

    @property
    def task_count(self) -> int:
        """The number of tasks."""
        return len(self.assignment.tasks)

    @property
    def over_bound(self) -> float:
        """The busiest task's load by the least that is possible; 1 is the best."""
        return self.busiest / self.bound if self.bound > 0 else 1.0

    @property
    def is_change(self) -> bool:
        """Whether it is worth writing, which restarts all tasks of the connector."""
        return self.choice != "keep"


class FlowToPack:
    """The partitions of a flow with their rates as weights, and the packings that the rules allow."""

    def __init__(self, partitions: Iterable[TopicPartition], rates: Rates, rules: BalanceRules) -> None:
        self.rules = rules
        self.rates = resolve_rates(partitions, rates, rules.default_bytes_per_second, rules.stale_seconds)
        self.coverage = measured_share(self.rates, rates, rules.stale_seconds)
        self.weights = Weights.of_shares(
            [rate.partition for rate in self.rates],
            [rate.bytes_per_second / rules.capacity.usable_bytes_per_second for rate in self.rates],
            [rate.records_per_second / rules.capacity.usable_records_per_second for rate in self.rates],
        )
        limit = rules.bounds.limit
        self.most_partitions = max(1, rules.bounds.partitions)
        self.most_tasks = max(1, len(self.rates) if limit is None else min(limit, len(self.rates)))

    def pack_fresh(self) -> tuple[Packing, bool]:
        """Return a packing with the least number of tasks that holds, and whether the bounds allow too few."""
        least = max(self.rules.bounds.minimum, self.least_tasks)
        if least > self.most_tasks:
            return self.no_worse_than_stock(self.pack(self.most_tasks)), self.least_tasks > self.most_tasks
        packing, capped = self.first_that_fits(least, self.pack)
        return self.no_worse_than_stock(packing), capped

    @cached_property
    def least_tasks(self) -> int:
        """A number of tasks below which no packing fits."""
        return self.weights.least_tasks(self.most_partitions)

    def first_that_fits(self, least: int, pack: Callable[[int], Packing], share: float = 1.0) -> tuple[Packing, bool]:
        """Return the packing with the first number of tasks that fits, and whether even the most do not.

        After some single steps these double, and what lies between is halved.
        """
        packing, tasks, below, step = pack(least), least, least - 1, 1
        while not self.fits(packing, share):
            if tasks >= self.most_tasks:
                return packing, True
            step = step * 2 if tasks >= least + _SINGLE_STEPS else 1
            below, tasks = tasks, min(self.most_tasks, tasks + step)
            packing = pack(tasks)
        while tasks - below > 1:
            middle = (tasks + below) // 2
            fewer = pack(middle)
            if self.fits(fewer, share):
                packing, tasks = fewer, middle
            else:
                below = middle
        return packing, False

    def fits(self, packing: Packing, share: float = 1.0) -> bool:
        """Tell whether each task holds at a share of the usable capacity.

        What a partition has by itself is no reason against; beside a hot one a task may have a tenth more.
        """
        weights = self.weights.heaviest
        for task, held in enumerate(packing.members):
            if len(held) > self.most_partitions:
                return False
            alone = max((weights[place] for place in held), default=0.0)
            if packing.share(task) > max(alone, packing.ceiling(task, share)) + ROUNDING:
                return False
        return True

    def pack(self, tasks: int, pinned_tasks: Mapping[int, int] | None = None) -> Packing:
        """Return a packing of so many tasks; `pinned_tasks`: the tasks of positions that stay there.

        Where bytes and records both count, one that begins with the heaviest in both together may be the better one.
        Where exchanges end above the level, the busiest task is packed anew with some others.
        """
        packing = self._pack(tasks, pinned_tasks or {}, by_sum=False)
        if _strain(packing) <= 1 + ROUNDING or len(self.rates) > _REPACKED_PARTITIONS:
            return packing
        if len(self.weights.dimensions) > 1:
            packing = min(packing, self._pack(tasks, pinned_tasks or {}, by_sum=True), key=_strain)
            if not pinned_tasks and _strain(packing) > 1 + ROUNDING:
                packing = min(packing, self._pack_mixed(tasks), key=_strain)
        for attempt in range(_REPACKED):
            if _strain(packing) <= 1 + ROUNDING:
                break
            packing = min(packing, self._packed_anew(packing, attempt), key=_strain)
        return packing

    def _packed_anew(self, packing: Packing, attempt: int) -> Packing:
        """Return a packing with the partitions of the busiest task and two others packed again, the others as they
        are."""
        tasks = len(packing.members)
        order = sorted(range(tasks), key=lambda task: (-packing.share(task), task))
        turn, first = divmod(attempt, max(1, tasks - 1))
        first, second = 1 + first, 1 + (first + turn + 1) % max(1, tasks - 1)
        emptied = {order[0], *order[first : first + 1], *order[second : second + 1 + turn % 2]}
        again = self.without_partitions(tasks, LEVEL, relief=1.0)
        for task, held in enumerate(packing.members):
            for place in held if task not in emptied else held & packing.pinned:
                again.put(place, task)
        again.pinned = packing.pinned
        again.place(range(len(self.rates)), by_sum=attempt % 3 > 0)
        again.relieve(self.steps(tasks))
        return again

    def _pack(self, tasks: int, pinned_tasks: Mapping[int, int], by_sum: bool) -> Packing:
        packing = self.without_partitions(tasks, LEVEL, relief=1.0)
        for place, task in pinned_tasks.items():
            packing.put(place, task)
        packing.pinned = frozenset(pinned_tasks)
        packing.place(range(len(self.rates)), by_sum)
        packing.relieve(self.steps(tasks))
        return packing

    def _pack_mixed(self, tasks: int) -> Packing:
        """Return a packing that begins with the task which the bound of both dimensions comes from."""
        _, held = self.weights.mixed_task(tasks)
        packing = self.without_partitions(tasks, LEVEL, relief=1.0)
        for place in held[: self.most_partitions]:
            packing.put(place, 0)
        packing.pinned = frozenset(held[: self.most_partitions])
        packing.place(range(len(self.rates)), by_sum=True)
        packing.relieve(self.steps(tasks))
        packing.pinned = frozenset()
        packing.relieve(self.steps(tasks))
        return packing

    def no_worse_than_stock(self, packing: Packing) -> Packing:
        """Return the packing, or that of stock Connect with exchanges where this is better, as with a handful of
        partitions."""
        tasks = len(packing.members)
        stock = self.without_partitions(tasks, LEVEL, relief=1.0)
        if len(self.rates) > tasks * self.most_partitions:
            return packing
        for position, place in enumerate(self.stock_order):
            stock.put(place, position % tasks)
        if stock.strain(stock.level) >= packing.strain(packing.level):
            return packing
        stock.relieve(self.steps(tasks))
        return stock

    @cached_property
    def stock_order(self) -> list[int]:
        """Positions in the order in which MirrorMaker assigns them in turn, predicted from the topics' names."""
        return self.order_of(lambda topic: True)

    def order_of(self, is_taken: Callable[[str], bool]) -> list[int]:
        """Return positions in the order of a connector that takes some of the topics: their number changes it."""
        return [place for name in predict(self._listing, is_taken).order for place in self.places[name.topic]]

    @cached_property
    def places(self) -> Mapping[str, list[int]]:
        """The positions of each topic's partitions."""
        places: dict[str, list[int]] = {}
        for place, rate in enumerate(self.rates):
            places.setdefault(rate.partition.topic, []).append(place)
        return places

    @cached_property
    def _listing(self) -> Listing:
        return listing_of(dict.fromkeys(self.places, 1))

    def without_partitions(self, tasks: int, level: float, relief: float = RELIEF) -> Packing:
        """Return tasks without partitions; `level`: which multiple of the bound needs no relief."""
        _, bound = self.weights.least_load_beside_hot(tasks)
        room = max(self.most_partitions, math.ceil(len(self.rates) / tasks))
        needs_no_relief = 1.0 if bound < 1 - _TOO_TIGHT and bound * level > 1 else max(_LEAST_LOAD, bound * level)
        return Packing(self.weights, tasks, room, needs_no_relief, relief)

    def steps(self, tasks: int) -> int:
        """Return how many exchanges are worth trying."""
        return 64 + 8 * tasks + len(self.rates) // 4

    def result(self, choice: Choice, packing: Packing, reasons: Iterable[str]) -> BalancePlan:
        """Return the plan of a packing, as of a connector that does not run."""
        names = self.weights.partitions
        tasks = [sorted(held) for held in packing.members]
        return BalancePlan(
            choice,
            Assignment(tuple(tuple(names[place] for place in held) for held in tasks)),
            (),
            tuple(reasons),
            tuple(self.task_share(task, held, packing) for task, held in enumerate(tasks)),
            packing.busiest,
            self.weights.least_load(len(tasks)),
            self.hot_partitions(),
            False,
            None,
            self.rates,
        )

    def task_share(self, task: int, held: list[int], packing: Packing) -> TaskShare:
        """Return the planned load of a task."""
        volume = sum(self.rates[place].bytes_per_second for place in held)
        records = sum(self.rates[place].records_per_second for place in held)
        return TaskShare(task, len(held), volume, records, packing.share(task))

    def hot_partitions(self) -> tuple[HotPartition, ...]:
        """Return the measured partitions that no task is planned to carry, heaviest first."""
        hot = [(self.rates[place], self.weights.heaviest[place]) for place in self.weights.hot]
        return tuple(
            HotPartition(*rate.partition, rate.bytes_per_second, factor)
            for rate, factor in hot
            if rate.source in MEASURED
        )

    def reasons(self, packing: Packing, capped: bool) -> list[str]:
        """Say what the number of tasks follows from, in the order of the computation."""
        tasks, bounds = len(packing.members), self.rules.bounds
        if not self.rates:
            return ["No matching topic exists yet; one task is enough."]
        total = rate_text(sum(rate.bytes_per_second for rate in self.rates))
        usable = rate_text(self.rules.capacity.usable_bytes_per_second)
        reasons = [
            f"{total} over {number_of(len(self.rates), 'partition')}, {usable} usable per task: the busiest of"
            f" {number_of(tasks, 'task')} gets {percent(packing.busiest)} of the usable capacity; no assignment gets it"
            f" below {percent(self.weights.least_load(tasks))}.",
            *self.rate_reasons(),
        ]
        if capped:
            limit = f"the limit of {bounds.limit}" if tasks == bounds.limit else "the number of partitions"
            reasons.append(f"Capped at {number_of(tasks, 'task')} by {limit}: the load needs more.")
        elif tasks == bounds.minimum > self.least_tasks:
            reasons.append(f"The configured minimum is {number_of(tasks, 'task')}.")
        return reasons

    def rate_reasons(self) -> list[str]:
        """Say where rates come from that are not measured on their partition, and which partitions are hot."""
        hot = [f"{h.topic}-{h.partition} ({h.factor:.1f} times the usable)" for h in self.hot_partitions()]
        text = f"Hot partitions, which more tasks do not help: {few(hot)}."
        return [*self._source_reasons(), *([text] if hot else [])]

    def _source_reasons(self) -> list[str]:
        counts: dict[RateSource, int] = {}
        for rate in self.rates:
            counts[rate.source] = counts.get(rate.source, 0) + 1
        sources: dict[RateSource, str] = {
            "stale": "their own, out of date",
            "topic": "their share of their topic's",
            "topic mean": "the mean of their topic",
            "flow": "the median of the flow",
            "default": f"the default of {rate_text(self.rules.default_bytes_per_second)}",
        }
        taken = [f"{counts[source]} {text}" for source, text in sources.items() if source in counts]
        measured = counts.get("own", 0)
        verb = "is measured on its" if measured == 1 else "are measured on their"
        own = f"Of {len(self.rates)} rates, {measured} {verb} partition; others:"
        return [f"{own} {', '.join(taken)}."] if taken else []


def _strain(packing: Packing) -> float:
    return packing.strain(packing.level)


def percent(share: float) -> str:
    """Write a share of the usable capacity, such as 85 %; with a digit where that would round to nothing."""
    return f"{share * 100:.0f} %" if share >= 0.095 or not share else f"{share * 100:.2g} %"

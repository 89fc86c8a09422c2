"""What each way to assign partitions makes of the same load: today's, stock Connect's, lanes, the plan, and what is
possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mm2mgr.assignment import Assignment
from mm2mgr.balance.fresh import BalancePlan, FlowToPack
from mm2mgr.balance.packing import RELIEF, ROUNDING, Packing
from mm2mgr.balance.rates import Rates
from mm2mgr.balance.rules import BalanceRules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_MORE_TASKS = 1.25
"""The best `tasks.max` for stock Connect is looked for up to a quarter more tasks than the plan has."""
_MOST_SEARCHED = 10
_ADDITIONS = 400_000_000  # some seconds: a flow of half a million partitions is not tried with every number of tasks


@dataclass(frozen=True)
class Way:
    """One way to assign the partitions: its busiest task, and the least possible with so many tasks, as shares of
    usable.

    `tasks_needed`: the least number with which no task is overloaded; None: not by this way, up to `searched` tasks.
    `connectors`: how many there are, each with a part of the tasks.
    """

    name: str
    tasks: int
    busiest: float
    bound: float
    tasks_needed: int | None
    searched: int
    connectors: int = 1
    json_keys = "name tasks busiest bound over_bound tasks_needed searched connectors"

    @property
    def over_bound(self) -> float:
        """The busiest task's load by the least that is possible with so many tasks; 1 is the best."""
        return self.busiest / self.bound if self.bound > 0 else 1.0


def compare_ways(
    plan: BalancePlan,
    rates: Rates,
    current: Assignment | None = None,
    rules: BalanceRules = BalanceRules(),
    lanes: Way | None = None,
) -> tuple[Way, ...]:
    """Compare a plan with today's assignment, stock Connect at its best `tasks.max`, lanes, and the lower bound.

    `rates` and `rules` are those of the plan; `lanes`: the way of several connectors for the same partitions.
    """
    flow = FlowToPack((rate.partition for rate in plan.rates), rates, rules)
    tasks = max(1, plan.task_count)
    bound = flow.weights.least_load(tasks)
    ways = [_stock(flow, tasks)]
    if current is not None and current.tasks:
        ways.insert(0, _today(flow, current))
    if lanes is not None:
        ways.append(lanes)
    ways.append(Way("plugin", tasks, plan.busiest, bound, _tasks_with_plugin(flow, plan), flow.most_tasks))
    ways.append(Way("lower bound", tasks, bound, bound, flow.least_tasks, flow.most_tasks))
    return tuple(ways)


def with_connectors_today(ways: Sequence[Way], connectors: int) -> tuple[Way, ...]:
    """Return the ways of a flow whose tasks of today are of so many connectors, which are its lanes."""
    return tuple(replace(way, connectors=connectors) if way.name == "today" else way for way in ways)


def _tasks_with_plugin(flow: FlowToPack, plan: BalancePlan) -> int | None:
    """Return how many tasks a fresh plan needs, which the plan itself may be; None where the bounds allow too few."""
    if plan.choice == "fresh":
        return None if plan.capped else plan.task_count
    packing, capped = flow.pack_fresh()
    return None if capped else len(packing.members)


def _today(flow: FlowToPack, current: Assignment) -> Way:
    tasks = len(current.tasks)
    packing = Packing(flow.weights, tasks, flow.most_partitions)
    task_of = current.task_of
    for place, rate in enumerate(flow.rates):
        if rate.partition in task_of:
            packing.put(place, task_of[rate.partition])
    needed = tasks if flow.fits(packing) else None
    return Way("today", tasks, packing.busiest, flow.weights.least_load(tasks), needed, tasks)


def _stock(flow: FlowToPack, tasks: int) -> Way:
    stock = StockAssignments(flow)
    most = min(flow.most_tasks, max(_MOST_SEARCHED * tasks, flow.rules.bounds.minimum))
    most = min(most, tasks + max(64, _ADDITIONS // max(1, len(flow.rates))))
    near = range(tasks, max(tasks, min(most, math.ceil(_MORE_TASKS * tasks))) + 1)
    best = min(near, key=lambda count: (stock.busiest(count) / (flow.weights.least_load(count) or 1.0), count))
    needed = next((count for count in range(max(1, flow.least_tasks), most + 1) if stock.fits(count)), None)
    return Way("stock", best, stock.busiest(best), flow.weights.least_load(best), needed, most)


class StockAssignments:
    """The loads of tasks as stock Connect assigns a flow's partitions in turn, for any number of tasks.

    `order`: the partitions of a lane, by place, in the order of the connector that has them alone; None: all.
    """

    def __init__(self, flow: FlowToPack, order: Sequence[int] | None = None) -> None:
        order = flow.stock_order if order is None else order
        self._most_partitions = flow.most_partitions
        self._shares = [np.asarray(shares)[order] for shares in flow.weights.dimensions]
        heaviest = np.asarray(flow.weights.heaviest)[order]
        self._hot = np.where(heaviest > 1 + ROUNDING, heaviest, 0.0)

    def busiest(self, tasks: int) -> float:
        """Return the load of the busiest of so many tasks, as a share of what is usable."""
        return float(self._per_task(tasks).max(initial=0.0))

    def fits(self, tasks: int) -> bool:
        """Tell whether each task holds; the task of a hot partition may have a tenth beside it."""
        if math.ceil(len(self._hot) / tasks) > self._most_partitions:
            return False
        may_have = np.maximum(1.0, RELIEF * _by_task(self._hot, tasks, np.maximum)) if self._hot.any() else 1.0
        return bool((self._per_task(tasks) <= may_have + ROUNDING).all())

    def _per_task(self, tasks: int) -> Array:
        loads = _by_task(self._shares[0], tasks, np.add)
        for shares in self._shares[1:]:
            loads = np.maximum(loads, _by_task(shares, tasks, np.add))
        return loads


def _by_task(shares: Array, tasks: int, add: np.ufunc) -> Array:
    table: Array = np.zeros(-(-len(shares) // tasks) * tasks)
    table[: len(shares)] = shares
    loads: Array = add.reduce(table.reshape(-1, tasks), axis=0)
    return loads

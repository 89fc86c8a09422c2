"""Planned lanes: each topic in one, never worse than stock, and close to what partitions allow."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from mm2mgr.assignment import round_robin
from mm2mgr.balance.fresh import FlowToPack
from mm2mgr.balance.lanes import plan_lanes
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rates import MeasuredRate
from mm2mgr.balance.rules import BalanceRules
from mm2mgr.partitions import TopicPartition, listing_of, predict
from tests.balance.shapes import Shape, issue_bound, published_shapes, random_shape, share_of, stock_order

AVERAGE = 1.20


def planned(shape: Shape, most_lanes: int = 32) -> float:
    """Plan lanes, add their loads up anew, and return the busiest task by the least that is possible."""
    tasks = plan_balance(shape.rates, shape.rates).task_count
    plan = plan_lanes(FlowToPack(shape.rates, shape.rates, BalanceRules()), tasks, most_lanes)
    parts = (plan.rest, *plan.lanes)
    assert Counter(topic for lane in parts for topic in lane.topics) == Counter({p.topic for p in shape.rates})
    assert sum(lane.tasks for lane in parts) <= tasks
    assert plan.connectors <= most_lanes
    listing = listing_of(Counter(name.topic for name in sorted(shape.rates)))
    busiest = []
    for lane in parts:
        order = predict(listing, lane.topics.__contains__).order
        busiest += [share_of(shape.rates, task) for task in round_robin(order, lane.tasks).tasks]
    assert max(busiest) == pytest.approx(plan.way.busiest)
    stock = [share_of(shape.rates, task) for task in round_robin(stock_order(shape.rates), tasks).tasks]
    assert max(busiest) <= max(stock) + 1e-9
    return max(busiest) / issue_bound(shape.rates, tasks)


def test_lanes_of_random_sets_are_even_on_average() -> None:
    assert fmean(planned(random_shape(seed)) for seed in range(12)) <= AVERAGE


@pytest.mark.matrix
def test_lanes_of_published_shapes_are_even_on_average() -> None:
    assert fmean(planned(shape) for shape in published_shapes(("metrics", "logging", "clickstream"))) <= AVERAGE


def test_one_connector_is_stock() -> None:
    shape = random_shape(3)
    tasks = plan_balance(shape.rates, shape.rates).task_count
    plan = plan_lanes(FlowToPack(shape.rates, shape.rates, BalanceRules()), tasks, 1)
    assert (plan.lanes, plan.rest.tasks) == ((), tasks)


def test_a_flow_without_partitions_has_no_lanes() -> None:
    plan = plan_lanes(FlowToPack((), {}, BalanceRules()), 1)
    assert (plan.connectors, plan.way.busiest) == (1, 0.0)


def test_a_heavy_topic_gets_a_connector_of_its_own() -> None:
    rates = {TopicPartition("heavy", n): MeasuredRate(5e6) for n in range(3)}
    rates |= {TopicPartition(f"light{n}", 0): MeasuredRate(0.9e6) for n in range(5)}
    plan = plan_lanes(FlowToPack(rates, rates, BalanceRules()), 4)
    assert [set(lane.topics) for lane in plan.lanes] == [{"heavy"}]
    assert (plan.rest.tasks, plan.lanes[0].tasks) == (1, 3)

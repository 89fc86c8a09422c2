"""The ways to assign partitions beside each other: today's, stock Connect's, the plan, and the lower bound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm2mgr.assignment import Assignment, round_robin
from mm2mgr.balance.fresh import FlowToPack
from mm2mgr.balance.packing import Weights, least_load_of, packing_bound
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rates import MeasuredRate, measured_share, resolve_rates
from mm2mgr.balance.rules import BalanceRules
from mm2mgr.balance.ways import StockAssignments, Way, compare_ways
from mm2mgr.json_values import to_json
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Bounds
from tests.balance.shapes import USABLE, published_shapes, share_of, stock_order


def partitions_of(topic: str, shares: list[float]) -> dict[TopicPartition, MeasuredRate]:
    return {TopicPartition(topic, number): MeasuredRate(share * USABLE) for number, share in enumerate(shares)}


@pytest.mark.parametrize("shape", list(published_shapes(("metrics",)))[:3], ids=lambda shape: shape.name)
def test_stock_is_the_assignment_in_turn_of_javas_order(shape) -> None:
    stock = StockAssignments(FlowToPack(shape.rates, shape.rates, BalanceRules()))
    for tasks in (1, 7, 10, 68):
        assignment = round_robin(stock_order(shape.rates), tasks)
        assert stock.busiest(tasks) == pytest.approx(max(share_of(shape.rates, task) for task in assignment.tasks))


def test_each_way_has_its_busiest_task_and_the_tasks_that_it_needs() -> None:
    rates = partitions_of("a", [0.6, 0.1, 0.6, 0.1, 0.6, 0.1])
    names = sorted(rates)
    today = Assignment((tuple(names[0:1] + names[2:3]), tuple(names[1:2] + names[3:])))
    plan = plan_balance(rates, rates)
    assert plan.task_count == 3
    lanes = Way("lanes", 4, 0.7, 0.6, 4, 4)
    ways = {way.name: way for way in compare_ways(plan, rates, today, lanes=lanes)}
    assert list(ways) == ["today", "stock", "lanes", "plugin", "lower bound"]
    assert (ways["today"].busiest, ways["today"].tasks_needed) == (pytest.approx(1.2), None)
    assert ways["stock"].tasks_needed == 3  # 0.6 + 0.1 each: in turn 0 and 3, 1 and 4, 2 and 5
    assert (ways["plugin"].busiest, ways["plugin"].tasks_needed) == (pytest.approx(0.7), 3)
    assert (ways["lower bound"].over_bound, ways["lower bound"].tasks_needed) == (1.0, 3)
    assert ways["lanes"] is lanes
    assert to_json(ways["stock"])["tasks_needed"] == 3


def test_stock_that_no_number_of_tasks_helps_needs_none_up_to_the_limit() -> None:
    rates = partitions_of("a", [0.9, 0.05, 0.9, 0.05])
    rules = BalanceRules(bounds=Bounds(limit=2))
    plan = plan_balance(rates, rates, None, rules)
    ways = {way.name: way for way in compare_ways(plan, rates, None, rules)}
    assert (ways["stock"].tasks_needed, ways["stock"].searched) == (None, 2)
    assert (ways["stock"].busiest, ways["plugin"].busiest) == (pytest.approx(1.8), pytest.approx(0.95))


def test_the_load_bound_counts_pairs_and_more() -> None:
    def bound(tasks: int, *weights: float) -> float:
        ordered = sorted(weights, reverse=True)
        return least_load_of(ordered, [sum(ordered[:count]) for count in range(len(ordered) + 1)], tasks)

    assert bound(2, 3, 1) == 3  # the heaviest
    assert bound(2, 3, 3, 2) == 5  # two of the first three are on one task
    assert bound(2, 1, 1, 1, 1, 1) == 3  # three of five
    assert bound(2, 2, 1, 1) == 2  # the mean


def test_the_packing_bound_counts_what_cannot_be_together() -> None:
    assert packing_bound([0.6, 0.6, 0.6]) == 3
    assert packing_bound([0.6, 0.6, 0.5, 0.3]) == 3
    assert packing_bound([0.5, 0.5, 0.5, 0.5]) == 2
    assert packing_bound([0.4] * 5) == 2
    assert packing_bound([]) == 0


def test_hot_partitions_have_a_task_of_their_own_unless_the_others_are_heavier() -> None:
    names = [TopicPartition("a", number) for number in range(6)]
    weights = Weights(tuple(names), ([3.0, 1.5, 0.5, 0.5, 0.5, 0.5],))
    assert weights.least_load_beside_hot(4) == (2, 1.0)
    assert weights.least_load_beside_hot(3) == (1, 1.75)
    assert weights.least_tasks(500) == 4


def test_a_rate_is_that_of_the_partition_else_its_topic_else_the_flows_median_else_the_default() -> None:
    names = [TopicPartition(topic, number) for topic in ("a", "b", "c", "d") for number in (0, 1)]
    rates = {
        names[0]: MeasuredRate(10, 1, age_seconds=99),
        names[1]: 30.0,
        names[2]: MeasuredRate(5),
        "c": MeasuredRate(8, 4),
        names[4]: MeasuredRate(float("nan")),
    }
    resolved = resolve_rates(reversed(names), rates, 7.0, stale_seconds=60)
    assert [(rate.bytes_per_second, rate.records_per_second, rate.source) for rate in resolved] == [
        (10, 1, "stale"),
        (30, 0, "own"),
        (5, 0, "own"),
        (5, 0, "topic mean"),
        (4, 2, "topic"),
        (4, 2, "topic"),
        (10, 0, "flow"),
        (10, 0, "flow"),
    ]
    assert measured_share(resolved, rates, 60) == 4 / 8
    assert {rate.source for rate in resolve_rates(names, {}, 7.0, 60)} == {"default"}


def test_what_measured_partitions_leave_of_a_topics_rate_is_for_the_others() -> None:
    names = [TopicPartition("a", number) for number in range(3)]
    rates = {"a": MeasuredRate(100), names[0]: MeasuredRate(60)}
    assert [rate.bytes_per_second for rate in resolve_rates(names, rates, 7.0, 60)] == [60, 20, 20]
    rates["a"] = MeasuredRate(50)  # it contradicts the partition
    assert [rate.bytes_per_second for rate in resolve_rates(names, rates, 7.0, 60)] == [60, 60, 60]


def test_the_example_of_the_library_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "library.md").read_text()
    (code,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        if "plan_balance" in block
    ]
    exec(compile(code, "library.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["0 2 6.5 MB/s", "1 2 5.5 MB/s", "2 4 6.0 MB/s"]
    assert [line.split()[-1] for line in lines[3:]] == ["4", "3", "3"]


def test_the_example_of_weeks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "library.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "week_of_load" in block]
    exec(compile(code, "library.md", "exec"), {})
    first, night, third = capsys.readouterr().out.splitlines()
    assert first.startswith("1.05 a week, peak ")
    assert night.endswith(" MB/s")
    assert third == "limit of 8 tasks in 73 days"

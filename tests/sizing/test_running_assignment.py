"""What runs is sized as it runs, whatever dealt it: for its own number of tasks just that, for any other one in turn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import Assignment, read_back, round_robin
from mm2mgr.connectors import ConnectorStatus, TaskStatus
from mm2mgr.evidence.read import current_prediction
from mm2mgr.partitions import Listing, TopicPartition, listing_of, predict
from mm2mgr.sizing.fleet import Buffers, FlowRun, placement_of
from mm2mgr.sizing.load import Load
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Prediction, Rules, flow_load, size_load
from tests.sizing.assignments import FOREIGN, STOCK, Drawn, assignments, running, topics
from tests.sizing.sizes import size_flow

MB = 1_000_000.0


def prediction(drawn: Drawn, connector_class: str = FOREIGN, tasks_max: int = 9) -> Prediction:
    carried = {one.topic for one in drawn.carried}
    return current_prediction(
        Listing(drawn.there, exact=True), carried.__contains__, running(drawn.assignment, connector_class, tasks_max)
    )


@given(assignments(), st.sampled_from([STOCK, FOREIGN]))
def test_the_order_has_each_partition_of_the_flow_once_and_defects_are_told(drawn: Drawn, connector_class: str) -> None:
    one = prediction(drawn, connector_class)
    assert sorted(one.order) == sorted(drawn.carried)
    told = " ".join(one.remarks)
    defects = drawn.assignment.defects(drawn.carried, drawn.there)
    for subject, partitions in (
        ("In more than one task", defects.twice),
        ("In no task now", defects.unassigned),
        ("Still in tasks", defects.gone),
        ("Tasks without a partition", defects.idle),
    ):
        assert (subject in told) == bool(partitions)
        assert all(str(partition) in told for partition in list(partitions)[:3])


@given(assignments(), st.integers(0, 9))
def test_its_own_number_of_tasks_gets_what_the_tasks_have_and_any_other_is_dealt_in_turn(
    drawn: Drawn, factor: int
) -> None:
    drawn_tasks = drawn.assignment.tasks
    one = prediction(drawn)
    rates = {partition: float(place * factor % 7) for place, partition in enumerate(one.order)}
    load = flow_load(one, rates, Rules()).load
    there = Assignment(tuple(tuple(p for p in hand if p in drawn.carried) for hand in drawn_tasks))
    if drawn.assignment.order and there.order:
        assert one.source == "live"
        assert load.per_task(len(drawn_tasks)) == there.loads(rates)
        assert load.per_task(9) == there.loads(rates), "tasks.max, of which the class makes fewer tasks"
        assert load.fullest(9) == max(map(len, there.tasks))
        assert load.hours_of(9).sum() == sum(there.loads(rates))
    other = next(tasks for tasks in (1, 2, 7) if tasks != len(drawn_tasks))
    dealt = round_robin(one.order, other)
    if len(dealt.tasks) != len(drawn_tasks):
        assert load.per_task(other) == (dealt.loads(rates) or [0.0])
        both = one.running or round_robin(one.order, len(drawn_tasks))
        if both.order:
            assert load.count_moved(len(drawn_tasks), other) == both.count_moved(dealt)


@given(topics, st.integers(1, 12), st.sampled_from([STOCK, FOREIGN]))
def test_what_is_dealt_in_turn_is_sized_as_before(listing: dict[str, int], tasks: int, connector_class: str) -> None:
    order = predict(listing_of(listing), lambda _: True).order
    assignment = round_robin(order, tasks)
    one = current_prediction(listing_of(listing), lambda _: True, running(assignment, connector_class, tasks))
    assert one == Prediction(order, "live", running=assignment, in_turn=True)


def test_a_stock_connector_deals_again_where_its_partitions_changed_and_another_class_may_hold_them() -> None:
    listing = listing_of({"a": 2, "b": 1})
    now = read_back({0: "a-0", 1: "a-1"})
    stock, foreign = (current_prediction(listing, lambda _: True, running(now, kind)) for kind in (STOCK, FOREIGN))
    assert (stock.source, stock.running, stock.in_turn) == ("predicted", now, True)
    assert stock.note == "the partitions of the running connector differ from those in Kafka"
    assert (foreign.source, foreign.running, foreign.order[-1]) == ("live", now, TopicPartition("b", 0))
    assert stock.remarks == foreign.remarks == ("In no task now, so that nothing is mirrored of them: b-0.",)


def test_tasks_on_another_config_than_their_connector_are_told() -> None:
    connector = running(read_back({0: "a-0", 1: "a-1"}))
    connector.config["topics"] = "a"
    listing = listing_of({"a": 2})
    assert current_prediction(listing, lambda _: True, connector).remarks == (), "a class may keep a key to itself"
    connector.config["connector.class"] = STOCK
    (told,) = current_prediction(listing, lambda _: True, connector).remarks
    assert told == "Still on an older config (connector.class, topics), so what they have may change: tasks 0, 1."


ORDER = tuple(TopicPartition("t", number) for number in range(6))
RATES = dict(zip(ORDER, (6 * MB, 1 * MB, 1 * MB, 1 * MB, 2 * MB, 1 * MB), strict=True))
EVEN = Assignment((ORDER[:1], ORDER[1:]))


def test_the_reasons_say_that_partitions_are_not_dealt_in_turn() -> None:
    sizing = size_flow("f", Prediction(ORDER, "live", running=EVEN), RATES, now=CurrentTasks(2))
    assert (sizing.tasks, sizing.busiest_bytes_per_second, sizing.assignment) == (2, 6 * MB, "live")
    assert any(
        reason.startswith("As the partitions are assigned now, and not round-robin, the busiest of 2 tasks handles")
        for reason in sizing.reasons
    )
    assert sizing.now is not None
    assert sizing.now.verdict == "fits"
    stock = size_flow("f", Prediction(ORDER, "live"), RATES, now=CurrentTasks(2))
    assert stock.tasks > 2


def test_a_flow_of_the_plugin_is_sized_by_load_for_any_other_number_of_tasks() -> None:
    balanced = Prediction(ORDER, "live", running=Assignment((ORDER,)), is_balanced=True)
    sizing = size_flow("f", balanced, RATES, now=CurrentTasks(1))
    assert (sizing.tasks, sizing.busiest_bytes_per_second) == (2, 6 * MB), "by number it takes more than two"
    assert any(reason.startswith("With partitions assigned by load (`balance: plugin`") for reason in sizing.reasons)
    alone = size_flow("f", replace(balanced, running=None, source="predicted"), RATES, now=None)
    assert alone.tasks == 2


@given(
    st.lists(st.floats(0, 9 * MB), min_size=1, max_size=60),
    st.integers(1, 70),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_by_load_each_partition_has_one_task_and_no_task_is_far_above_the_bound(
    rates: list[float], tasks: int, most: int | None
) -> None:
    load = Load(rates, 7 * MB, "max", most_partitions=most, is_balanced=True)
    positions = load.positions(tasks)
    assert sorted(place for task in positions for place in task) == list(range(len(rates)))
    assert len(positions) == min(tasks, len(rates))
    assert load.fullest(tasks) <= max(most or len(rates), -(-len(rates) // len(positions)))
    assert load.per_task(tasks) == pytest.approx([sum(rates[place] for place in task) for task in positions])
    if most is None:
        busiest = max(positions, key=lambda task: sum(rates[place] for place in task))
        at_most = max([*rates, sum(rates) / len(positions) + min(rates[place] for place in busiest)])
        assert load.busiest(tasks) <= at_most + 1e-6, "Graham (1969): it was the lightest task when it got its last one"


def test_what_a_hot_partition_shares_its_task_with_is_that_of_the_running_task() -> None:
    rules = Rules(Capacity(5 * MB, 1.0), Bounds(2, 2))
    prediction = Prediction(ORDER, "live", running=EVEN)
    sizing = size_load("f", flow_load(prediction, RATES, rules), rules, None)
    assert any(reason.endswith("shares its task with: 0 B/s here.") for reason in sizing.reasons), sizing.reasons


@pytest.mark.parametrize("limit", [4, 5])
def test_most_partitions_of_a_task_are_those_of_the_fullest_one(limit: int) -> None:
    rules = Rules(Capacity(100 * MB), Bounds(partitions=limit))
    load = flow_load(Prediction(ORDER, "live", running=EVEN), RATES, rules).load
    assert load.fits(2) == (limit == 5)
    assert load.fits(3)


def test_workers_carry_what_their_tasks_have() -> None:
    load = flow_load(Prediction(ORDER, "live", running=EVEN), RATES, Rules()).load
    buffers = Buffers(2**24, 2**22, 2**25)
    run = FlowRun("f:a->b", "a->b", load, 2, 2, 10 * MB, buffers)
    status = ConnectorStatus(
        "c", "RUNNING", "w1", tasks=(TaskStatus(0, "RUNNING", "w1"), TaskStatus(1, "RUNNING", "w2"))
    )
    placement = placement_of([status], {"c": run})
    assert {one.worker: one.bytes_per_second for one in placement.workers} == {"w1": 6 * MB, "w2": 6 * MB}
    assert placement.flows[0].busiest_bytes_per_second == 6 * MB
    assert math.isclose(run.heap_bytes, buffers.heap_bytes(5))

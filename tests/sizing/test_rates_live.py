"""Predicted load of tasks against what real connectors carry while traffic runs; benchmarks/predicted_load.py does it at length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.assignment import round_robin
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Capacity, Prediction, Rules
from tests.sizing.sizes import size_flow

from .traffic import SKEWS, TrafficSet, make_sets
from .traffic_run import Spans, World, run, world
from .traffic_verdict import Outcome

SEED = 20261121
# The benchmark holds them to a tenth, on a machine of its own.
RATES_WITHIN_HERE = 0.25
SPANS = Spans(history=30, interval=8, sampled=40, measured=20)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("rates")) as started:
        yield started


def sent_rates(each: TrafficSet) -> dict[TopicPartition, float]:
    return {one: flowing.bytes_per_second for one, flowing in each.sent.items()}


def carries_what_is_sent(each: TrafficSet, one: Outcome) -> bool:
    """Tell whether as much arrived while it was measured as was to be sent: a starved machine sends or mirrors in bursts, which shows
    nothing of a prediction."""
    sent, carried = sum(sent_rates(each).values()), sum(one.measured.values())
    print(f"{each.name}: {carried / sent - 1:+.1%} carried of what is sent, task {one.task_error:+.1%}")
    return abs(carried / sent - 1) < RATES_WITHIN_HERE / 2


@pytest.mark.live
def test_tasks_carry_what_was_predicted(brokers: World, tmp_path: Path) -> None:
    for attempt in range(3):
        series = make_sets(SEED, len(SKEWS), first=attempt * len(SKEWS))
        sets = [each for each in series if each.skew in ("zipf", "one hot", "sizes by partition")]
        outcomes = run(brokers, sets, tmp_path / f"samples-{attempt}", SEED, SPANS)
        if all(map(carries_what_is_sent, sets, outcomes)):
            break
    # Which tasks carry what, and that all of it arrives, is Kafka's; how fast is this machine's, so rates are held to what was sent.
    for each, one in zip(sets, outcomes, strict=True):
        assert {part for part, rate in one.measured.items() if rate} == {
            part for part, rate in sent_rates(each).items() if rate
        }
        judged = one.judged_by(sent_rates(each))
        assert judged.faults(RATES_WITHIN_HERE) == [], one.name
    assert all(one.foreseen for one in outcomes)
    assert all(one.sizing.tasks > 1 for one in outcomes)
    assert any(one.said_hot for one in outcomes)


# --- the verdict itself: each bar can be missed ---------------------------------------------------------------------------

ORDER = tuple(TopicPartition("t", number) for number in range(6))
RATES = dict(zip(ORDER, (40.0, 10.0, 10.0, 30.0, 20.0, 20.0), strict=True))


def outcome(usable: float, **measured: float) -> Outcome:
    """Return what came of a flow that does as was predicted, but for the partitions of these numbers (`p0`)."""
    sizing = size_flow("f", Prediction(ORDER, "predicted"), RATES, Rules(Capacity(usable, 1.0)))
    hands = [list(hand) for hand in round_robin(ORDER, sizing.tasks).tasks]
    truth = {one: measured.get(f"p{one.partition}", rate) for one, rate in RATES.items()}
    return Outcome("set", "zipf", sizing, hands, hands, True, RATES, RATES, truth, truth)


def test_a_right_prediction_has_no_fault() -> None:
    one = outcome(70)
    assert (one.faults(), one.foreseen, one.sizing.tasks, one.smallest) == ([], True, 2, 2)
    assert one.order == list(ORDER)
    assert outcome(35).truly_hot == {ORDER[0]}
    assert outcome(35).faults() == []


def test_a_rate_that_is_off_by_more_than_a_tenth_is_a_fault() -> None:
    assert outcome(80, p0=46.0).faults() == []
    assert outcome(80, p0=49.0).faults() == ["busiest task -11.4%", "a task -11.4%"]
    assert outcome(80, p5=12.0).faults() == ["a task +15.4%"]
    assert outcome(80, p5=12.0).faults(RATES_WITHIN_HERE) == []
    assert outcome(80, p5=12.0).judged_by(RATES).faults() == []


def test_a_task_above_what_is_usable_is_a_fault_where_another_number_does() -> None:
    assert outcome(70, p0=45.0).faults() == ["a task is overloaded, 4 tasks would do"]
    assert outcome(70, p0=69.0, p2=69.0, p4=69.0, p1=69.0, p3=69.0, p5=69.0).smallest == 6


def test_more_tasks_than_the_smallest_number_and_one_are_a_fault() -> None:
    one = outcome(70)
    assert replace(one, sizing=replace(one.sizing, tasks=3)).faults() == []
    assert "2 tasks would do" in replace(one, sizing=replace(one.sizing, tasks=4)).faults()


def test_a_wrong_verdict_on_a_hot_partition_is_a_fault() -> None:
    assert "hot partitions are []" in outcome(39, p0=38.0).faults()
    assert "hot partitions are ['t-0']" in outcome(42, p0=43.0).faults()


def test_another_assignment_than_foreseen_is_reported() -> None:
    one = outcome(70)
    assert not replace(one, predicted_hands=one.predicted_hands[::-1]).foreseen
    assert "the assignment read back does not replay" in replace(one, replayed=False).faults()


def test_sets_are_the_same_for_a_seed_and_each_kind_is_skewed_in_its_way() -> None:
    series = make_sets(SEED, 36)
    assert series[7:9] == make_sets(SEED, 2, first=7)
    assert [each.skew for each in series[: len(SKEWS)]] == list(SKEWS)
    for each in series:
        rates = [flowing.bytes_per_second for flowing in each.sent.values()]
        assert {"one hot": max(rates) > 0.3 * sum(rates), "mostly idle": 0 in rates}.get(each.skew, 0 not in rates)

"""The plan of an assignment: what it holds for random flows, when it changes a running one, and how even it is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mm2mgr.assignment import Assignment, round_robin
from mm2mgr.balance.fresh import BalancePlan
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rates import MeasuredRate
from mm2mgr.balance.rules import BalanceHistory, BalanceRules, LoadLook
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Bounds
from tests.balance.shapes import USABLE, issue_bound, published_shapes, random_shape, share_of, stock_order
from tests.examples import sampled

HOUR = 3_600.0
OFTEN = BalanceRules(cool_down_seconds=0, rounds_per_day=1_000)


def partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def rates(**shares: float) -> dict[TopicPartition, MeasuredRate]:
    """Return rates of partitions of topics named by letters, in shares of the usable capacity: `a0=0.5`."""
    return {TopicPartition(name[0], int(name[1:])): MeasuredRate(share * USABLE) for name, share in shares.items()}


def running(*tasks: str) -> Assignment:
    """Return an assignment from texts such as "a0 b1"."""
    return Assignment(tuple(tuple(TopicPartition(n[0], int(n[1:])) for n in task.split()) for task in tasks))


def in_two_looks(
    measured: dict[TopicPartition, MeasuredRate], current: Assignment, rules: BalanceRules = OFTEN, **history: object
) -> BalancePlan:
    """Plan in two looks an hour apart, and return the second plan."""
    first = plan_balance(measured, measured, current, rules, BalanceHistory(HOUR, **history))  # type: ignore[arg-type]
    assert first.look is not None
    looks = (first.look,)
    return plan_balance(measured, measured, current, rules, BalanceHistory(2 * HOUR, looks, **history))  # type: ignore[arg-type]


def held_sets(plan: BalancePlan) -> list[set[str]]:
    return [{f"{p.topic}{p.partition}" for p in task} for task in plan.assignment.tasks]


def random_flow(chance: Random) -> tuple[dict[TopicPartition, MeasuredRate], Assignment, BalanceRules]:
    """Return a small flow with some partitions hot, some silent and some unmeasured, and how it runs."""
    names = [TopicPartition(f"t{chance.randrange(6)}", number) for number in range(chance.randint(2, 40))]
    measured = {
        name: MeasuredRate(
            chance.choice((0.0, 1.0, 1.0)) * chance.lognormvariate(-2.0, 1.2) * USABLE, chance.random() * 2e4
        )
        for name in names
    }
    tasks = chance.randint(1, min(6, len(names)))
    order = chance.sample(names, len(names))
    cut = chance.randint(len(names) // 2, len(names))
    current = round_robin(order[:cut], min(tasks, cut))
    limit = chance.choice((None, None, chance.randint(1, 8)))
    bounds = Bounds(chance.randint(1, 3), limit, chance.choice((500, 500, chance.randint(2, 20))))
    pinned = frozenset(chance.sample(order[:cut], min(cut, chance.randint(0, 2))))
    return measured, current, replace(OFTEN, bounds=bounds, pinned=pinned)


@sampled("seed", range(20), range(60))
def test_each_partition_has_one_task_within_the_bounds_and_pinned_ones_stay(seed: int) -> None:
    chance = Random(seed)
    measured, current, rules = random_flow(chance)
    existing = list(measured)
    for name in chance.sample(existing, len(existing) // 5):
        del measured[name]
    bounds = rules.bounds
    limit = min(len(existing), bounds.limit or len(existing))
    room = max(bounds.partitions, -(-len(existing) // limit))
    fresh = plan_balance(existing, measured, None, rules)
    first = plan_balance(existing, measured, current, rules, BalanceHistory(HOUR, is_off_peak=True))
    assert first.look is not None
    history = BalanceHistory(2 * HOUR, (first.look,), is_off_peak=True)
    for plan in (fresh, first, plan_balance(existing, measured, current, rules, history)):
        tasks = plan.assignment.tasks
        assert sorted(p for task in tasks for p in task) == sorted(existing)
        if plan.choice != "keep":
            assert len(tasks) <= max(limit, len(current.tasks) if bounds.limit is None else 0)
            assert len(tasks) >= min(bounds.minimum, limit)
        if len(tasks) * room >= len(existing):
            pins = len(rules.pinned)
            assert max(map(len, tasks)) <= max(room, pins)
        after = plan.assignment.task_of
        for name in rules.pinned if plan is not fresh else ():
            assert after[name] == current.task_of[name] or current.task_of[name] >= len(tasks)
        moved = {move.partition for move in plan.moves}
        assert plan is fresh or moved == {p for p, task in current.task_of.items() if p in after and after[p] != task}
        assert plan.choice != "keep" or not plan.moves


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_the_input_means_nothing(seed: int) -> None:
    chance = Random(seed)
    measured, current, rules = random_flow(chance)
    shuffled = chance.sample(list(measured.items()), len(measured))
    turned = Assignment(tuple(tuple(reversed(task)) for task in current.tasks))
    for before, same in ((None, None), (current, turned)):
        plan = plan_balance(measured, measured, before, rules)
        again = plan_balance([name for name, _ in shuffled], dict(shuffled), same, rules)
        assert (plan.assignment, plan.moves, plan.reasons) == (again.assignment, again.moves, again.reasons)


@sampled("seed", range(20), range(60))
def test_a_silent_partition_moves_nothing(seed: int) -> None:
    chance = Random(seed)
    measured, current, rules = random_flow(chance)
    rules = replace(rules, bounds=Bounds())
    current = plan_balance(measured, measured, current, rules).assignment
    first = plan_balance(measured, measured, current, rules, BalanceHistory(HOUR))
    assert first.look is not None
    history = BalanceHistory(2 * HOUR, (first.look,))
    plan = plan_balance(measured, measured, current, rules, history)
    silent = TopicPartition(chance.choice(("t0", "another")), 99)
    tasks = list(current.tasks)
    tasks[chance.randrange(len(tasks))] += (silent,)
    for before in (current, Assignment(tuple(tasks))):
        with_silent = plan_balance([*measured, silent], measured, before, rules, history)
        assert with_silent.look is not None
        assert replace(with_silent.look, unmeasured=0) == plan.look
        assert silent in with_silent.assignment.task_of
        assert plan.is_change or (with_silent.choice, with_silent.moves) == ("keep", ())


@pytest.mark.parametrize("seed", [541, 556, 564, 572, 577, 625])
def test_too_few_tasks_for_the_bounds_and_the_load_are_raised_in_one_restart(seed: int) -> None:
    measured, current, rules = random_flow(Random(seed))
    looks: tuple[LoadLook, ...] = ()
    counts = []
    for look in range(1, 6):
        plan = plan_balance(measured, measured, current, rules, BalanceHistory(look * HOUR, looks))
        assert plan.look is not None
        looks, current = (*looks, plan.look), plan.assignment
        counts.append(plan.is_change)
    assert counts == [True, False, False, False, False]


def test_hot_partitions_are_alone_and_named() -> None:
    plan = plan_balance(*2 * (rates(a0=3.0, b0=0.4, b1=0.4, c0=0.3, c1=0.3, d0=0.0),))
    assert {"a0"} in held_sets(plan)
    assert plan.task_count == 3
    assert [(hot.topic, round(hot.factor, 1)) for hot in plan.hot_partitions] == [("a", 3.0)]
    assert any("Hot partitions" in reason and "a-0 (3.0 times" in reason for reason in plan.reasons)


def test_a_running_task_that_a_hot_partition_fills_is_named_and_not_passed_over() -> None:
    """Its load is no reason to change, and the sentence that leaves it out says so."""
    measured = rates(a0=3.0, b0=0.01, b1=0.4, c1=0.4)
    plan = in_two_looks(measured, running("a0 b0", "b1", "c1"))
    assert plan.choice == "keep"
    assert plan.reasons[0].startswith("The busiest of 3 tasks, those with a hot partition left out, has 40 %")
    assert plan.reasons[-1] == "Hot partitions, which more tasks do not help: a-0 (3.0 times the usable)."
    assert "left out" not in in_two_looks(rates(b0=0.4, b1=0.4), running("b0", "b1")).reasons[0]


def test_by_one_rate_of_many_it_is_not_said_that_more_tasks_are_needed() -> None:
    partitions = [TopicPartition("a", number) for number in range(8)]
    hot = {partitions[0]: MeasuredRate(9 * USABLE)}
    plan = plan_balance(partitions, hot, round_robin(partitions, 2), BalanceRules(bounds=Bounds(limit=2)))
    assert plan.reasons[0].startswith("Only 1 of 8 partitions has a fresh rate")
    assert plan.reasons[1].startswith("Of 8 rates, 1 is measured on its partition; others: ")
    assert not plan.capped


def test_partitions_of_a_topic_are_spread_over_tasks() -> None:
    measured = {
        TopicPartition(f"t{topic}", number): MeasuredRate(0.1 * USABLE) for topic in range(6) for number in range(4)
    }
    plan = plan_balance(measured, measured, None, BalanceRules(bounds=Bounds(minimum=4)))
    assert [len({p.topic for p in task}) for task in plan.assignment.tasks] == [6, 6, 6, 6]


def test_partitions_without_traffic_are_spread_by_number_and_by_topic() -> None:
    measured = {TopicPartition(f"t{topic}", number): MeasuredRate(0.0) for topic in range(10) for number in range(4)}
    plan = plan_balance(measured, measured, None, BalanceRules(bounds=Bounds(minimum=4)))
    assert [len(task) for task in plan.assignment.tasks] == [10] * 4
    assert [len({p.topic for p in task}) for task in plan.assignment.tasks] == [10] * 4


def test_records_count_where_they_are_small() -> None:
    tiny = {TopicPartition("tiny", number): MeasuredRate(10_000, 20_000) for number in range(6)}
    large = {TopicPartition("large", number): MeasuredRate(0.25 * USABLE, 100) for number in range(6)}
    plan = plan_balance(*2 * ({**tiny, **large},))
    assert plan.task_count == 2
    assert [sorted(p.topic for p in task) for task in plan.assignment.tasks] == [["large"] * 3 + ["tiny"] * 3] * 2


def test_an_even_assignment_stays_and_so_does_an_uneven_one_at_the_first_look() -> None:
    measured = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2)
    even = plan_balance(measured, measured, running("a0 c0", "b0 d0"))
    assert (even.choice, even.moves) == ("keep", ())
    uneven = plan_balance(measured, measured, running("a0 b0", "c0 d0"))
    assert uneven.choice == "keep"
    assert "in 1 of the 2 looks that a change needs" in uneven.reasons[0]
    assert uneven.over_bound > 1.3


def test_an_uneven_one_is_levelled_in_the_second_look_with_few_moves() -> None:
    measured = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2)
    plan = in_two_looks(measured, running("a0 b0", "c0 d0"))
    assert plan.choice == "rebalance"
    assert len(plan.moves) == 2
    assert plan.over_bound == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rounds", "rules", "words"),
    [
        ((HOUR,), BalanceRules(rounds_per_day=1), "the last 24 hours had 1 change, and the limit is 1"),
        ((2 * HOUR - 60,), BalanceRules(rounds_per_day=9), "the last change was 60 s ago"),
    ],
)
def test_rounds_of_a_day_and_the_cool_down_hold_a_change_back(
    rounds: tuple[float, ...], rules: BalanceRules, words: str
) -> None:
    measured, current = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2), running("a0 b0", "c0 d0")
    look = plan_balance(measured, measured, current).look
    assert look is not None
    looks = tuple(replace(look, seconds=2 * HOUR - ago) for ago in (30, 20))
    plan = plan_balance(measured, measured, current, rules, BalanceHistory(2 * HOUR, looks, rounds))
    assert plan.choice == "keep"
    assert words in plan.reasons[0]


def test_looks_before_the_last_round_do_not_count() -> None:
    measured, current = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2), running("a0 b0", "c0 d0")
    look = plan_balance(measured, measured, current, OFTEN, BalanceHistory(HOUR)).look
    assert look is not None
    history = BalanceHistory(3 * HOUR, (look,), (2 * HOUR,))
    assert plan_balance(measured, measured, current, OFTEN, history).choice == "keep"
    history = BalanceHistory(3 * HOUR, (look,), (0.5 * HOUR,))
    assert plan_balance(measured, measured, current, OFTEN, history).choice == "rebalance"


def test_pinned_partitions_stay_where_they_are() -> None:
    measured = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2)
    rules = replace(OFTEN, pinned=frozenset({partition("a-0"), partition("b-0")}))
    plan = in_two_looks(measured, running("a0 b0", "c0 d0"), rules)
    assert (plan.choice, plan.moves) == ("keep", ())
    assert "no other assignment is better" in plan.reasons[0]


@pytest.mark.parametrize("age", [None, 100_000.0])
def test_a_provider_that_fell_silent_changes_nothing(age: float | None) -> None:
    measured, current = rates(a0=0.9, b0=0.9, c0=0.1, d0=0.1), running("a0 b0", "c0 d0")
    look = LoadLook(0.0, 2, 1.8, 1.0, 1.0, 2)
    left = {} if age is None else {name: replace(rate, age_seconds=age) for name, rate in measured.items()}
    history = BalanceHistory(HOUR, (look, look), is_off_peak=True)
    plan = plan_balance(measured, left, current, OFTEN, history)
    assert (plan.choice, plan.assignment) == ("keep", current)
    assert plan.reasons[0] == "Only 0 of 4 partitions have a fresh rate; a change needs 50 %: unchanged."
    assert plan_balance(measured, measured, current, OFTEN, history).is_change


def test_an_overload_that_no_exchange_cures_gets_more_tasks_at_once() -> None:
    measured = rates(a0=0.7, b0=0.7, c0=0.7)
    plan = in_two_looks(measured, running("a0 b0", "c0"))
    assert (plan.choice, plan.task_count, len(plan.moves)) == ("grow", 3, 1)
    capped = in_two_looks(measured, running("a0 b0", "c0"), replace(OFTEN, bounds=Bounds(limit=2)))
    assert (capped.choice, capped.capped) == ("keep", True)


def test_tasks_are_given_up_one_at_a_time_and_off_peak_only() -> None:
    measured = rates(a0=0.2, b0=0.2, c0=0.2, d0=0.2)
    current = running("a0", "b0", "c0", "d0")
    assert in_two_looks(measured, current).choice == "keep"
    plan = in_two_looks(measured, current, is_off_peak=True)
    assert (plan.choice, plan.task_count, len(plan.moves)) == ("shrink", 3, 1)
    full = rates(a0=0.46, b0=0.46, c0=0.46)
    assert in_two_looks(full, running("a0", "b0", "c0"), is_off_peak=True).choice == "keep"


def test_a_lowered_limit_is_obeyed_at_once_even_without_rates() -> None:
    measured, current = rates(a0=0.2, b0=0.2, c0=0.2, d0=0.2), running("a0", "b0", "c0", "d0")
    plan = plan_balance(measured, {}, current, BalanceRules(bounds=Bounds(limit=2)))
    assert (plan.choice, plan.task_count) == ("shrink", 2)
    assert "the limit is 2" in plan.reasons[0]
    plan = plan_balance(measured, measured, running("a0 b0", "c0 d0"), BalanceRules(bounds=Bounds(minimum=3)))
    assert (plan.choice, plan.task_count) == ("grow", 3)
    plan = plan_balance(measured, measured, running("a0 b0", "c0 d0"), BalanceRules(bounds=Bounds(minimum=9)))
    assert (plan.choice, plan.task_count) == ("grow", 4)  # a task without a partition does nothing


def test_a_partition_in_two_tasks_is_taken_from_one_at_once() -> None:
    measured = rates(a0=0.2, b0=0.2)
    plan = plan_balance(measured, measured, running("a0 b0", "b0"))
    assert plan.choice == "rebalance"
    assert "More than one task has b-0" in plan.reasons[0]
    assert sorted(p for task in plan.assignment.tasks for p in task) == sorted(measured)


def test_a_new_partition_goes_to_the_lightest_task_and_is_no_reason_to_restart() -> None:
    measured = rates(a0=0.5, b0=0.48)
    names = [*measured, partition("n-0")]
    plan = plan_balance(names, measured, running("a0", "b0"))
    assert (plan.choice, plan.moves) == ("keep", ())
    assert held_sets(plan) == [{"a0"}, {"b0", "n0"}]


def test_three_looks_can_be_asked_for_and_no_round_at_all() -> None:
    measured, current = rates(a0=0.4, b0=0.4, c0=0.2, d0=0.2), running("a0 b0", "c0 d0")
    assert in_two_looks(measured, current, replace(OFTEN, looks=3)).choice == "keep"
    assert plan_balance(measured, measured, current, replace(OFTEN, looks=1)).choice == "rebalance"
    assert in_two_looks(measured, current, replace(OFTEN, rounds_per_day=0)).choice == "keep"


def test_a_change_waits_for_the_rates_of_new_partitions() -> None:
    measured = rates(a0=0.4, b0=0.4, c0=0.1, d0=0.1, e0=0.1, f0=0.1)
    current = running("a0 b0", "c0 d0 e0 f0")
    first = plan_balance(measured, measured, current, OFTEN, BalanceHistory(HOUR))
    assert first.look is not None
    names = [*measured, partition("n-0")]
    second = plan_balance(names, measured, current, OFTEN, BalanceHistory(2 * HOUR, (first.look,)))
    assert second.choice == "keep"
    assert "but 1 new partition without a rate yet" in second.reasons[0]
    assert second.look is not None
    history = BalanceHistory(3 * HOUR, (first.look, second.look))
    assert plan_balance(names, measured, second.assignment, OFTEN, history).choice == "rebalance"


def test_pairs_of_topic_and_number_are_partitions_too() -> None:
    measured = {("a", 0): 0.9 * USABLE, ("a", 1): 0.9 * USABLE}
    plan = plan_balance(list(measured), measured)  # type: ignore[arg-type]
    assert held_sets(plan) == [{"a0"}, {"a1"}]


def test_partitions_that_are_gone_are_in_no_task() -> None:
    measured = rates(a0=0.5, b0=0.5)
    assert held_sets(plan_balance(measured, measured, running("a0 x0", "b0 x1"))) == [{"a0"}, {"b0"}]


@pytest.mark.parametrize(
    ("bounds", "current"),
    [(Bounds(partitions=1), running("a0 a1", "a2")), (Bounds(minimum=3), running("a0 a1", "a2"))],
)
def test_bounds_that_pinned_partitions_pass_restart_nothing(bounds: Bounds, current: Assignment) -> None:
    measured = rates(a0=0.3, a1=0.3, a2=0.3)
    rules = replace(OFTEN, bounds=bounds, pinned=frozenset({partition("a-0"), partition("a-1")}))
    plan = plan_balance(measured, measured, current, rules)
    assert (plan.choice, plan.moves) == ("keep", ())
    assert plan.reasons[0].endswith("No other assignment is possible: unchanged.")


@sampled("seed", range(12), range(40))
def test_a_minimum_of_tasks_is_reached_in_one_change(seed: int) -> None:
    chance = Random(seed)
    count = chance.randint(2, 12)
    measured = {partition(f"a-{number}"): chance.choice((0.0, 0.2 * USABLE)) for number in range(count)}
    current = round_robin(list(measured), chance.randint(1, 3))
    rules = replace(OFTEN, bounds=Bounds(minimum=chance.randint(1, 14)))
    plan = plan_balance(measured, measured, current, rules)
    assert all(plan.assignment.tasks), "Connect has no task without partitions"
    assert plan.task_count >= min(rules.bounds.minimum, count)
    assert plan_balance(measured, measured, plan.assignment, rules).choice == "keep"


def test_a_partition_of_two_tasks_restarts_them_only_where_kafka_has_it() -> None:
    measured = rates(a0=0.3, a1=0.3)
    assert plan_balance(measured, measured, running("a0 b0", "a1 b0"), OFTEN).choice == "keep"
    plan = plan_balance(measured, measured, running("a0", "a1 a0"), OFTEN)
    assert (plan.choice, held_sets(plan)) == ("rebalance", [{"a0"}, {"a1"}])


def test_a_flow_without_partitions_has_one_task() -> None:
    plan = plan_balance([], {})
    assert plan.task_count == 1
    assert plan.reasons == ("No matching topic exists yet; one task is enough.",)
    assert plan_balance([], {}, running("a0")).choice == "keep"


def judge(measured: dict[TopicPartition, MeasuredRate], plan: BalancePlan) -> tuple[float, float]:
    """Return the busiest task of a plan and of stock Connect by the bound of the issue, both added up anew."""
    bound = issue_bound(measured, plan.task_count)
    stock = round_robin(stock_order(measured), plan.task_count)
    planned, dealt = (max(share_of(measured, task) for task in a.tasks) for a in (plan.assignment, stock))
    return planned / bound, dealt / bound


@pytest.mark.parametrize("shape", list(published_shapes(("metrics", "clickstream"))), ids=lambda shape: shape.name)
def test_published_traffic_is_even_within_two_hundredths_and_never_worse_than_stock(shape) -> None:
    plan = plan_balance(shape.rates, shape.rates)
    planned, stock = judge(shape.rates, plan)
    assert planned <= min(1.02, stock + 1e-9)
    assert max(task.usable_share for task in plan.tasks) <= 1 + 1e-9


@sampled("seed", range(8), range(24))
def test_random_traffic_is_even_within_two_hundredths_and_never_worse_than_stock(seed: int) -> None:
    shape = random_shape(seed)
    plan = plan_balance(shape.rates, shape.rates)
    planned, stock = judge(dict(shape.rates), plan)
    assert planned <= min(1.02, stock + 1e-9)

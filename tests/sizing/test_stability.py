"""When a new number of tasks is worth a restart: each rule just below and just above its threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.assignment import Assignment
from mm2mgr.sizing.stability import Decision, EarlierSizing, OffPeak, Policy, decide, moved, settled
from mm2mgr.sizing.tasks import Bounds, CurrentTasks, Rules, SizedFlow, flow_load, size_load

MB = 1_000_000.0
HOUR = 3600
NOW = 500_000 * 24 * HOUR + 14 * HOUR
LONG_AGO = NOW - 30 * 24 * HOUR


def evidence(
    rate: float, count: int = 20, *, measured: int = 20, peak: float = 1.0, rules: Rules | None = None
) -> SizedFlow:
    """A flow of partitions with one rate, of which so many were measured; in one of 20 hours it is a multiple of that."""
    rules = rules or Rules()
    order = tuple(TopicPartition("t", number) for number in range(count))
    rates = dict.fromkeys(order[:measured], rate)
    hours = {one: np.array([rate * peak, *[rate] * 19]) for one, rate in rates.items()}
    known = flow_load(Assignment(order, "live"), hours, rules)
    return SizedFlow(size_load("f", known, rules, None), known.load, rules.bounds, order)


def decided(each: SizedFlow, before: EarlierSizing | None, policy: Policy | None = None, when: int = NOW) -> Decision:
    return decide({"f": each}, {"f": before} if before else {}, policy or Policy(), when)["f"]


def test_the_first_number_is_taken_as_it_is() -> None:
    assert decided(evidence(3 * MB), None) == Decision(10, NOW, 0, ())


def test_up_goes_at_once_whatever_the_hour_and_the_last_change() -> None:
    policy = Policy(off_peak=OffPeak(2, 4), moved_partitions=0)
    decision = decided(evidence(3 * MB), EarlierSizing(4, NOW), policy)
    assert (decision.tasks, decision.changed_seconds) == (10, NOW)
    assert decision.reasons == ("Changed from 4: 16 of 20 partitions move to another task.",)


def test_no_change_keeps_the_time_of_the_last_one() -> None:
    assert decided(evidence(3 * MB), EarlierSizing(10, LONG_AGO)) == Decision(10, LONG_AGO, 0, ())


@pytest.mark.parametrize(("hours", "tasks"), [(23, 10), (24, 9)])
def test_down_waits_for_the_cool_down(hours: int, tasks: int) -> None:
    decision = decided(evidence(MB), EarlierSizing(10, NOW - hours * HOUR))
    assert decision.tasks == tasks
    assert ("a step down waits 1 d" in decision.reasons[0]) == (hours < 24)


def test_down_goes_one_step_and_says_where_to() -> None:
    decision = decided(evidence(MB), EarlierSizing(10, LONG_AGO))
    assert (decision.tasks, decision.changed_seconds) == (9, NOW)
    assert decision.reasons[0].endswith("One step towards 3; the busiest handles 3 MB/s.")


def test_a_file_that_tells_no_time_may_step_down() -> None:
    assert decided(evidence(MB), EarlierSizing(10)).tasks == 9


@pytest.mark.parametrize(("hour", "tasks"), [(21, 10), (22, 9), (4, 9), (5, 10)])
def test_down_waits_for_the_off_peak_hours_across_midnight(hour: int, tasks: int) -> None:
    when = NOW + (hour - 14) * HOUR
    assert decided(evidence(MB), EarlierSizing(10, LONG_AGO), Policy(off_peak=OffPeak(22, 5)), when).tasks == tasks


@pytest.mark.parametrize(("rate", "tasks"), [(3.15 * MB, 10), (3.16 * MB, 11)])
def test_down_leaves_room_so_that_a_small_rise_does_not_undo_it(rate: float, tasks: int) -> None:
    """Ten tasks of two partitions carry 6.3 MB/s, 90 % of the usable capacity, or a little more."""
    decision = decided(evidence(rate), EarlierSizing(11, LONG_AGO))
    assert decision.tasks == tasks
    assert ("90 % of the usable capacity" in decision.reasons[0]) == (tasks == 11)


@pytest.mark.parametrize(("peak", "tasks"), [(3.3, 9), (3.4, 10)])
def test_down_only_if_the_highest_rates_fit_the_whole_capacity(peak: float, tasks: int) -> None:
    """Nine tasks have up to three partitions: 3 MB/s as planned, and 9.9 or 10.2 MB/s at their peak."""
    assert decided(evidence(MB, peak=peak), EarlierSizing(10, LONG_AGO)).tasks == tasks


@pytest.mark.parametrize("before", [EarlierSizing(2, LONG_AGO), EarlierSizing(15, LONG_AGO)])
def test_nothing_measured_changes_nothing_and_says_so(before: EarlierSizing) -> None:
    decision = decided(evidence(3 * MB, measured=0), before)
    assert (decision.tasks, decision.changed_seconds) == (before.tasks, LONG_AGO)
    assert "no measurements for this flow; unchanged" in decision.reasons[0]


@pytest.mark.parametrize(("measured", "tasks"), [(9, 4), (10, 10)])
def test_too_little_measured_changes_nothing(measured: int, tasks: int) -> None:
    decision = decided(evidence(3 * MB, measured=measured), EarlierSizing(4, LONG_AGO))
    assert decision.tasks == tasks
    assert ("only 9 of 20 partitions were measured" in decision.reasons[0]) == (tasks == 4)


def test_the_budget_of_moved_partitions_is_shared_by_the_flows_that_go_down() -> None:
    each, before = evidence(MB), EarlierSizing(10, LONG_AGO)
    needed = moved(20, 10, 9)
    flows = {name: replace(each, sizing=replace(each.sizing, flow_id=name)) for name in ("a", "b", "c")}
    decisions = decide(flows, dict.fromkeys(flows, before), Policy(moved_partitions=2 * needed), NOW)
    assert [one.tasks for one in decisions.values()] == [9, 9, 10]
    assert f"{needed} partitions would move, and this run's budget has 0 left" in decisions["c"].reasons[0]


def test_a_limit_that_people_lowered_is_followed_at_once() -> None:
    each = evidence(MB, rules=Rules(bounds=Bounds(1, 5)))
    decision = decided(each, EarlierSizing(10, NOW), Policy(moved_partitions=0, off_peak=OffPeak(2, 3)))
    assert decision.tasks <= 5


def test_the_settled_sizing_has_the_load_of_the_number_decided_for() -> None:
    each = evidence(MB)
    decision = decided(each, EarlierSizing(10, LONG_AGO))
    sizing = settled(each, decision)
    assert (sizing.tasks, sizing.busiest_bytes_per_second) == (9, 3 * MB)
    assert sizing.reasons == (*each.sizing.reasons, *decision.reasons)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_moved_counts_the_partitions_with_another_task(partitions: int, before: int, after: int) -> None:
    count = moved(partitions, before, after)
    assert 0 <= count <= max(0, partitions - min(before, after))
    assert moved(partitions, before, before) == 0


def test_a_number_that_does_not_fit_is_left_at_once_also_for_a_smaller_one() -> None:
    """With 5 tasks the two busy partitions, ten places apart, share one; with 3 they do not."""
    order = tuple(TopicPartition("t", number) for number in range(11))
    rates = dict.fromkeys(order, 0.0) | {order[0]: 4 * MB, order[10]: 4 * MB}
    known = flow_load(Assignment(order, "live"), rates, Rules())
    sizing = size_load("f", known, Rules(), CurrentTasks(5))
    assert sizing.now is not None
    assert (sizing.tasks, sizing.now.verdict) == (3, "badly dealt")
    each = SizedFlow(sizing, known.load, Bounds(), order)
    assert decided(each, EarlierSizing(5, NOW), Policy(moved_partitions=0)).tasks == 3


@given(st.lists(st.floats(0, 7 * MB), min_size=1, max_size=25), st.integers(1, 25), st.integers(0, 60))
def test_a_decision_never_makes_a_fitting_flow_too_small(rates: list[float], before: int, hours: int) -> None:
    order = tuple(TopicPartition("t", number) for number in range(len(rates)))
    known = flow_load(Assignment(order, "live"), dict(zip(order, rates, strict=True)), Rules())
    load, sizing = known.load, size_load("f", known, Rules(), None)
    each = SizedFlow(sizing, known.load, Bounds(), order)
    decision = decided(each, EarlierSizing(before, NOW - hours * HOUR))
    assert load.fits(decision.tasks)
    assert decision.tasks >= min(before, sizing.tasks)

"""When a new number of tasks is worth a restart: each rule just below and just above its threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import moved_partitions
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.stability import Decision, Policy, decide, sizing_as_decided
from mm2mgr.sizing.tasks import Bounds, CurrentTasks, Prediction, Rules, SizedFlow, flow_load, size_load

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
    known = flow_load(Prediction(order, "live"), hours, rules)
    return SizedFlow(size_load("f", known, rules, None), known.load, rules.bounds, order)


def decided(each: SizedFlow, before: Decision | None, policy: Policy | None = None, when: int = NOW) -> Decision:
    return decide({"f": each}, {"f": before} if before else {}, policy or Policy(), when)["f"]


def test_the_first_number_is_taken_as_it_is() -> None:
    assert decided(evidence(3 * MB), None) == Decision(10, NOW, 0, ())


def test_up_goes_at_once_whatever_the_last_change() -> None:
    decision = decided(evidence(3 * MB), Decision(4, NOW))
    assert (decision.tasks, decision.changed_seconds) == (10, NOW)
    assert decision.reasons == ("Changed from 4: 16 of 20 partitions move to another task.",)


def test_no_change_keeps_the_time_of_the_last_one() -> None:
    assert decided(evidence(3 * MB), Decision(10, LONG_AGO)) == Decision(10, LONG_AGO, 0, ())


def test_down_goes_one_step_and_says_where_to() -> None:
    decision = decided(evidence(MB), Decision(10, NOW))
    assert (decision.tasks, decision.changed_seconds, decision.is_saving) == (9, NOW, True)
    assert decision.reasons[0].endswith("One step towards 3; the busiest handles 3 MB/s.")


def test_a_file_that_tells_no_time_may_step_down() -> None:
    assert decided(evidence(MB), Decision(10)).tasks == 9


@pytest.mark.parametrize(("rate", "tasks"), [(3.15 * MB, 10), (3.16 * MB, 11)])
def test_down_leaves_room_so_that_a_small_rise_does_not_undo_it(rate: float, tasks: int) -> None:
    """Ten tasks of two partitions carry 6.3 MB/s, 90 % of the usable capacity, or a little more."""
    decision = decided(evidence(rate), Decision(11, LONG_AGO))
    assert decision.tasks == tasks
    assert ("90 % of the usable capacity" in decision.reasons[0]) == (tasks == 11)


@pytest.mark.parametrize(("peak", "tasks"), [(3.3, 9), (3.4, 10)])
def test_down_only_if_the_highest_rates_fit_the_whole_capacity(peak: float, tasks: int) -> None:
    """Nine tasks have up to three partitions: 3 MB/s as planned, and 9.9 or 10.2 MB/s at their peak."""
    assert decided(evidence(MB, peak=peak), Decision(10, LONG_AGO)).tasks == tasks


@pytest.mark.parametrize("before", [Decision(2, LONG_AGO), Decision(15, LONG_AGO)])
def test_nothing_measured_changes_nothing_and_says_so(before: Decision) -> None:
    decision = decided(evidence(3 * MB, measured=0), before)
    assert (decision.tasks, decision.changed_seconds) == (before.tasks, LONG_AGO)
    assert "no measurements for this flow; unchanged" in decision.reasons[0]


@pytest.mark.parametrize(("measured", "tasks"), [(9, 4), (10, 10)])
def test_too_little_measured_changes_nothing(measured: int, tasks: int) -> None:
    decision = decided(evidence(3 * MB, measured=measured), Decision(4, LONG_AGO))
    assert decision.tasks == tasks
    assert ("only 9 of 20 partitions were measured" in decision.reasons[0]) == (tasks == 4)


@pytest.mark.parametrize("is_saving", [True, False])
def test_a_number_that_stays_remains_the_saving_that_it_was(is_saving: bool) -> None:
    """Whether it is kept because it is right, or because nothing was measured."""
    each, before = evidence(3 * MB), Decision(10, LONG_AGO, is_saving=is_saving)
    assert decided(each, before).is_saving == is_saving
    assert decided(evidence(3 * MB, measured=0), before).is_saving == is_saving
    assert not decided(evidence(6 * MB), before).is_saving


def test_a_limit_that_people_lowered_is_followed_at_once() -> None:
    each = evidence(MB, rules=Rules(bounds=Bounds(1, 5)))
    decision = decided(each, Decision(10, NOW))
    assert decision.tasks <= 5
    assert not decision.is_saving


def test_the_settled_sizing_has_the_load_of_the_number_decided_for() -> None:
    each = evidence(MB)
    decision = decided(each, Decision(10, LONG_AGO))
    sizing = sizing_as_decided(each, decision)
    assert (sizing.tasks, sizing.busiest_bytes_per_second) == (9, 3 * MB)
    assert sizing.reasons == (*each.sizing.reasons, *decision.reasons)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_moved_counts_the_partitions_with_another_task(partitions: int, before: int, after: int) -> None:
    count = moved_partitions(partitions, before, after)
    assert 0 <= count <= max(0, partitions - min(before, after))
    assert moved_partitions(partitions, before, before) == 0


def test_a_number_that_does_not_fit_is_left_at_once_also_for_a_smaller_one() -> None:
    """With 5 tasks the two busy partitions, ten places apart, share one; with 3 they do not."""
    order = tuple(TopicPartition("t", number) for number in range(11))
    rates = dict.fromkeys(order, 0.0) | {order[0]: 4 * MB, order[10]: 4 * MB}
    known = flow_load(Prediction(order, "live"), rates, Rules())
    sizing = size_load("f", known, Rules(), CurrentTasks(5))
    assert sizing.now is not None
    assert (sizing.tasks, sizing.now.verdict) == (3, "badly dealt")
    each = SizedFlow(sizing, known.load, Bounds(), order)
    decision = decided(each, Decision(5, NOW))
    assert (decision.tasks, decision.is_saving) == (3, False)


@given(st.lists(st.floats(0, 7 * MB), min_size=1, max_size=25), st.integers(1, 25), st.integers(0, 60))
def test_a_decision_never_makes_a_fitting_flow_too_small(rates: list[float], before: int, hours: int) -> None:
    order = tuple(TopicPartition("t", number) for number in range(len(rates)))
    known = flow_load(Prediction(order, "live"), dict(zip(order, rates, strict=True)), Rules())
    load, sizing = known.load, size_load("f", known, Rules(), None)
    each = SizedFlow(sizing, known.load, Bounds(), order)
    decision = decided(each, Decision(before, NOW - hours * HOUR))
    assert load.fits(decision.tasks)
    assert decision.tasks >= min(before, sizing.tasks)

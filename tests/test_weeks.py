"""Tasks that follow the week, and the date at which growth passes a limit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mm2mgr.assignment import Assignment
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rates import MeasuredRate, rates_of_coming_hours
from mm2mgr.balance.rules import BalanceHistory, BalanceRules
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Bounds
from mm2mgr.weeks import (
    WEEK_HOURS,
    LoadWeek,
    fill_hours,
    forecast_limits,
    hour_of_week,
    week_of_load,
)
from tests.balance.shapes import USABLE

MONDAY = 4 * 24 + 52 * WEEK_HOURS  # the first of January 1970 was a Thursday
NOW = MONDAY + 4 * WEEK_HOURS


def by_day(hour: int) -> float:
    """Return a load between 1 at four in the morning and 3 at four in the afternoon."""
    return 2 - math.cos((hour % 24 - 4) / 12 * math.pi)


def four_weeks(growth: float = 1.0) -> dict[int, float]:
    return {hour: by_day(hour) * growth ** ((hour - NOW) // WEEK_HOURS + 1) for hour in range(MONDAY, NOW)}


def test_hours_of_the_week_begin_on_monday() -> None:
    assert [hour_of_week(hour) for hour in (0, MONDAY, MONDAY + 25)] == [72, 0, 25]


def test_the_week_is_that_of_the_last_four() -> None:
    week = week_of_load(four_weeks(), NOW - 1)
    assert week is not None
    assert (week.weeks, week.growth) == (4, 1.0)
    assert week.peaks == pytest.approx([by_day(hour) for hour in range(WEEK_HOURS)])
    assert week.coming_peak(NOW + 4, 8) == pytest.approx(by_day(11))
    assert [hour for hour in range(24) if week.is_off_peak(NOW + hour)] == [1, 2, 3, 4, 5, 6, 7]


def test_one_glitch_is_no_peak_and_a_peak_that_comes_again_is() -> None:
    loads = four_weeks()
    loads[MONDAY + 10] = 50.0
    week = week_of_load(loads, NOW - 1)
    assert week is not None
    assert week.peak == pytest.approx(3.0)
    loads[MONDAY + 10 + WEEK_HOURS] = 40.0
    week = week_of_load(loads, NOW - 1)
    assert week is not None
    assert week.peak == 40.0


def test_growth_raises_older_weeks_and_dates_the_limit() -> None:
    week = week_of_load(four_weeks(1.1), NOW - 1)
    assert week is not None
    assert week.growth == pytest.approx(1.1)
    assert week.peak == pytest.approx(3.0)
    day = 86_400.0
    passed = forecast_limits([("logs", 0.5), ("clicks", 1.2), ("idle", 0.0)], week.growth, 1_000.0)
    assert [limit.subject for limit in passed] == ["clicks", "logs"]
    assert passed[0].seconds == 1_000.0
    assert (passed[1].seconds - 1_000) / day == pytest.approx(7 * math.log(2) / math.log(1.1))
    assert forecast_limits([("logs", 0.5)], 1.0, 0.0) == ()
    assert forecast_limits([("logs", 0.001)], 1.01, 0.0) == ()


def test_hours_that_were_never_measured_give_up_no_task() -> None:
    assert week_of_load({}, NOW) is None
    assert week_of_load({NOW - 5 * WEEK_HOURS: 9.0}, NOW) is None
    week = week_of_load({NOW - 1: 2.0, NOW - 2: 3.0}, NOW)
    assert week is not None
    assert set(week.peaks) == {2.0, 3.0}
    assert week.peaks.count(3.0) == WEEK_HOURS - 1


def test_tasks_follow_the_day_grow_at_once_and_shrink_one_by_one_off_peak() -> None:
    week = LoadWeek(tuple(by_day(hour) for hour in range(WEEK_HOURS)), 1.0, 4)
    at_peak = {TopicPartition("a", number): MeasuredRate(0.2 * USABLE) for number in range(40)}  # eight tasks at 3
    rules = BalanceRules(bounds=Bounds(4, 10), rounds_per_day=24)
    assignment = plan_balance(at_peak, at_peak, None, rules).assignment
    history, counts = BalanceHistory(), []
    for hour in range(NOW, NOW + 72):
        coming = rates_of_coming_hours(at_peak, week, hour, 3)
        history = replace(history, now_seconds=3_600.0 * hour, is_off_peak=week.is_off_peak(hour))
        plan = plan_balance(at_peak, coming, assignment, rules, history)
        before, assignment = len(assignment.tasks), plan.assignment
        assert plan.look is not None
        history = replace(history, looks=(*history.looks, plan.look))
        if plan.is_change:
            history = replace(history, rounds_seconds=(*history.rounds_seconds, 3_600.0 * hour))
        assert plan.task_count >= before - 1
        assert plan.choice != "shrink" or week.is_off_peak(hour)
        counts.append((hour % 24, plan.task_count, busiest_now(assignment, by_day(hour) / 3)))
    assert {count for _, count, _ in counts} >= {6, 8}
    assert max(count for _, count, _ in counts) <= 10
    assert max(busiest for _, _, busiest in counts) <= 1.0
    assert min(count for hour, count, _ in counts if 12 <= hour <= 18) >= 8


def busiest_now(assignment: Assignment, level: float) -> float:
    return max(map(len, assignment.tasks)) * 0.2 * level


def test_time_that_was_not_measured_has_the_mean_of_its_hour_of_the_week() -> None:
    loads = four_weeks()
    month = range(NOW - WEEK_HOURS, NOW + WEEK_HOURS)
    filled = fill_hours(loads, dict.fromkeys(loads, 1.0), month, NOW - 1)
    assert filled is not None
    week = sum(by_day(hour) for hour in range(WEEK_HOURS))
    assert filled.measured == pytest.approx(week)
    assert filled.total == pytest.approx(2 * week)
    assert filled.covered == 0.5


def test_what_is_to_come_grows_on_and_what_is_missing_before_is_less() -> None:
    loads = four_weeks(1.1)
    shares = dict.fromkeys(loads, 1.0)
    coming = fill_hours(loads, shares, range(NOW, NOW + WEEK_HOURS), NOW - 1)
    week = sum(by_day(hour) for hour in range(WEEK_HOURS))
    assert coming is not None
    assert coming.total == pytest.approx(1.1 * week)
    assert (coming.measured, coming.covered, round(coming.growth, 6)) == (0.0, 0.0, 1.1)
    gap = range(MONDAY + WEEK_HOURS, MONDAY + 2 * WEEK_HOURS)
    rest = {hour: load for hour, load in loads.items() if hour not in gap}
    missing = fill_hours(rest, dict.fromkeys(rest, 1.0), gap, NOW - 1)
    assert missing is not None
    assert missing.total == pytest.approx(1.1**-2 * week)


def test_an_hour_that_was_measured_in_part_counts_as_it_went_on() -> None:
    filled = fill_hours({NOW: 6.0}, {NOW: 0.25}, range(NOW, NOW + 2), NOW)
    assert filled is not None
    assert (filled.measured, filled.total, filled.covered) == (6.0, 48.0, 0.125)
    assert fill_hours({}, {}, range(NOW, NOW + 2), NOW) is None
    assert fill_hours({NOW: 6.0}, {NOW: 1.0}, range(NOW, NOW + 2), NOW + 5 * WEEK_HOURS) is not None, "of the month"

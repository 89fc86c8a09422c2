"""The date when growth passes a limit: of a flow, of a partition, of workers; and none where nothing shows growth."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.sizing.fleet import WorkerLimits
from mm2mgr.sizing.forecast import MeasuredWeeks, forecast_flow, forecast_workers
from mm2mgr.sizing.scenario import size_scenario, with_traffic
from mm2mgr.sizing.tasks import SizedFlow
from mm2mgr.weeks import WEEK_HOURS, WEEK_SECONDS, LoadWeek, week_of_load
from tests.sizing.estates import MB, connect, run, scenario

NOW = 1_800_000_000.0
DAY = 86_400.0


def weeks_of(growth: float, weeks: int = 4) -> LoadWeek:
    """Return what is measured of a load that grew by a factor per week."""
    newest = 3_000 * WEEK_HOURS
    hours = range(newest - weeks * WEEK_HOURS + 1, newest + 1)
    week = week_of_load({hour: (1 + hour % 24) * growth ** ((hour - newest) / WEEK_HOURS) for hour in hours}, newest)
    assert week is not None
    return week


def sized(rate: float, limit: int | None = 8, growth: float = 1.0) -> SizedFlow:
    """Return a flow with eight partitions of a rate each, of which a task may have 7 MB/s."""
    of_topics = scenario("f", {"t": rate, "u": rate}, lambda topic: True, limit=limit)
    return size_scenario(*with_traffic([of_topics], growth))


def test_a_flow_passes_its_limit_and_a_partition_a_task_on_the_days_that_growth_says() -> None:
    weeks = MeasuredWeeks(weeks_of(1.1), {"t": weeks_of(1.1), "u": weeks_of(1.2)})
    found = forecast_flow(sized(1 * MB, 4), weeks, NOW)
    assert found.growth == pytest.approx(1.1)
    tasks, partition = found.limits["tasks"], found.limits["partition"]
    assert tasks.subject == "the limit of 4 tasks"
    assert (tasks.seconds - NOW) / WEEK_SECONDS == pytest.approx(math.log(3.5) / math.log(1.1)), (
        "two partitions of 1 MB/s"
    )
    assert partition.subject == "what one task can carry, by partition u-0 alone,"
    assert (partition.seconds - NOW) / WEEK_SECONDS == pytest.approx(math.log(7) / math.log(1.2)), (
        "its own topic's growth"
    )
    assert found.reason.startswith("At today's growth of 10.0 % a week, the load passes the limit of 4 tasks on 2027-0")
    assert found.seconds_until(NOW + 400 * DAY) == {"tasks": 0.0, "partition": 0.0}


def test_what_is_passed_already_is_now() -> None:
    found = forecast_flow(sized(6 * MB, 2), MeasuredWeeks(weeks_of(1.1)), NOW)
    assert found.limits["tasks"].seconds == NOW
    assert "the limit of 2 tasks now (343 %)" in found.reason


@pytest.mark.parametrize(
    ("weeks", "reason"),
    [
        (None, "No forecast: growth shows from two weeks of measurements on; there are fewer."),
        (weeks_of(1.5, 1), "No forecast: growth shows from two weeks of measurements on; there are fewer."),
        (weeks_of(1.0), "No forecast: the load does not grow."),
        (weeks_of(0.9), "No forecast: the load does not grow."),
        (weeks_of(1.005), "At today's growth of 0.5 % a week, no limit is passed within a year."),
    ],
)
def test_without_growth_or_from_one_week_nothing_is_forecast_and_it_says_so(
    weeks: LoadWeek | None, reason: str
) -> None:
    found = forecast_flow(sized(1 * MB, 8), MeasuredWeeks(weeks), NOW)
    assert (found.reason, found.limits) == (reason, {})
    at_work = forecast_workers(connect(run("f", [1 * MB] * 2), today=3), {"f": MeasuredWeeks(weeks)}, NOW)
    assert (at_work.reason, at_work.limits) == (reason, {})


@given(st.floats(1.01, 1.5), st.floats(0.1, 5.0), st.integers(1, 8))
def test_a_flow_fits_a_day_before_the_date_and_not_a_day_after_it(growth: float, rate: float, limit: int) -> None:
    flow = sized(rate * MB, limit)
    found = forecast_flow(flow, MeasuredWeeks(weeks_of(growth)), NOW).limits.get("tasks")
    if found is None or found.seconds == NOW:
        return
    weeks = (found.seconds - NOW) / WEEK_SECONDS
    before, after = (sized(rate * MB, limit, growth ** (weeks + days / 7)) for days in (-1, 1))
    assert before.load.fits(before.most)
    assert not after.load.fits(after.most) or after.load.heavy


def test_workers_pass_their_tasks_and_their_network() -> None:
    weeks = {"f": MeasuredWeeks(weeks_of(1.1)), "g": MeasuredWeeks(weeks_of(1.1, 1))}
    load = connect(run("f", [1 * MB] * 4), worker=WorkerLimits(4, None, 8 * MB), side_tasks=2, today=2)
    found = forecast_workers(load, weeks, NOW)
    assert {kind: limit.subject for kind, limit in found.limits.items()} == {
        "tasks": "4 tasks each of 2 workers",
        "network": "the network of 2 workers",
    }
    assert (found.limits["tasks"].seconds - NOW) / WEEK_SECONDS == pytest.approx(math.log(6 / 4) / math.log(1.1))
    assert found.limits["network"].share == pytest.approx(3 / 8)
    with_flat = connect(run("f", [1 * MB] * 4), run("g", [1 * MB] * 4), today=2)
    assert forecast_workers(with_flat, weeks, NOW).growth == pytest.approx(1.05), "half of the load grows by a tenth"
    unknown = forecast_workers(replace(load, today=None), weeks, NOW)
    assert (unknown.limits, "the number of workers is not known" in unknown.reason) == ({}, True)

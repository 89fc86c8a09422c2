"""Capacity of a task: only what it held while it lagged counts; a link bounds it; and each number comes with its age or its line."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest

from mm2mgr.link import BrokerLimits, Clients, FlowTraffic, Leg, Route, predict
from mm2mgr.sizing.capacity import (
    TaskMeasurement,
    by_evidence,
    by_hand,
    by_history,
    by_link,
    find_saturation,
)
from mm2mgr.sizing.tasks import Capacity

MB = 1_000_000.0


def moments(task: str, *rates_and_lags: tuple[float, int], step_seconds: int = 60) -> list[TaskMeasurement]:
    return [
        TaskMeasurement(task, number * step_seconds * 1000, rate * MB, lag)
        for number, (rate, lag) in enumerate(rates_and_lags)
    ]


def test_the_lower_quartile_of_what_lagging_tasks_carried_counts() -> None:
    """Five minutes at 3, 6, 9 and 12 MB/s: in three quarters of the time and in no more than a quarter less than what counts."""
    rates = (12, 3, 9, 6)
    each = [moments(f"t{number}", *[(rate, 100)] * 6) for number, rate in enumerate(rates)]
    held = find_saturation([one for of_task in each for one in of_task])
    assert held is not None
    assert (held.bytes_per_second, held.seconds, held.ended_ms) == (3 * MB, 1200, 300_000)
    held = find_saturation([one for of_task in each for one in of_task if one.task != "t1"])
    assert held is not None
    assert held.bytes_per_second == 6 * MB


def test_the_best_five_minutes_of_a_month_are_not_the_capacity() -> None:
    """A task with a true mean of 8 MB/s: its best five minutes of thirty days were 12.7 MB/s."""
    chance = random.Random(7)
    rates = [8 * chance.lognormvariate(-(0.2**2) / 2, 0.2) for _ in range(12 * 24)]
    minutes = [(rate, 1) for rate in rates for _ in range(5)]
    assert max(rates) > 12.5
    held = find_saturation(moments("a", (0, 1), *minutes))
    assert held is not None
    assert held.bytes_per_second == pytest.approx(8 * MB, rel=0.2)
    assert held.bytes_per_second < statistics.fmean(rates) * MB
    assert held.bytes_per_second == pytest.approx(sorted(rates)[len(rates) // 4] * MB, rel=0.01)


def test_a_task_that_keeps_up_proves_nothing() -> None:
    assert find_saturation(moments("a", *[(9, 0)] * 20)) is None


@pytest.mark.parametrize(("count", "found"), [(5, False), (6, True)])
def test_a_rate_must_be_held(count: int, found: bool) -> None:
    assert (find_saturation(moments("a", *[(9, 1)] * count)) is not None) == found


def test_a_pause_without_lag_ends_the_stretch() -> None:
    assert find_saturation(moments("a", *[(9, 1)] * 4, (9, 0), *[(9, 1)] * 4)) is None


def test_what_is_left_of_a_stretch_belongs_to_its_last_span() -> None:
    held = find_saturation(moments("a", (0, 1), *[(4, 1)] * 5, *[(2, 1)] * 5, (14, 1), (14, 1)))
    assert held is not None
    assert (held.bytes_per_second, held.seconds) == (4 * MB, 720)  # 300 s of 4, and 420 s of 5.4 MB/s


def uncertain(seconds: float, *rates: float) -> list[TaskMeasurement]:
    return [replace(one, uncertain_seconds=seconds) for one in moments("a", *[(rate, 1) for rate in rates])]


@pytest.mark.parametrize(("count", "rate"), [(6, 8 * 300 / 360), (11, 8 * 600 / 660), (41, 8 * 2400 / 2460)])
def test_what_is_uncertain_about_the_first_commit_makes_a_rate_lower_and_a_long_stretch_makes_up_for_it(
    count: int, rate: float
) -> None:
    held = find_saturation(uncertain(60, *[8] * count))
    assert held is not None
    assert held.bytes_per_second == pytest.approx(rate * MB)


def test_a_stretch_that_is_short_beside_its_uncertainty_tells_nothing() -> None:
    assert find_saturation(uncertain(76, *[8] * 6)) is None
    assert find_saturation(uncertain(74, *[8] * 6)) is not None


def test_what_people_wrote_stays_beside_what_was_measured() -> None:
    declared, measured = Capacity(5 * MB), Capacity(8 * MB, 0.7, "measured 3 h ago on a task that lagged for 300 s")
    assert by_hand(declared, None) == declared
    judged = by_hand(declared, (measured, 300))
    assert judged.bytes_per_second == 5 * MB
    assert judged.reason == "set by hand; 8 MB/s measured 3 h ago on a task that lagged for 300 s"


@pytest.mark.parametrize(
    ("rate", "lagged_seconds", "counts"), [(11, 300, True), (10, 300, True), (9, 3_599, False), (9, 3_600, True)]
)
def test_a_rate_that_was_held_raises_at_once_and_lowers_only_after_an_hour_of_lag(
    rate: float, lagged_seconds: float, counts: bool
) -> None:
    measured = (Capacity(rate * MB, 0.7, "measured 3 h ago on a task that lagged for 300 s"), lagged_seconds)
    found = by_evidence(measured, Capacity())
    assert found.bytes_per_second == (rate if counts else 10) * MB
    assert "measured 3 h ago" in found.reason
    assert ("less than an hour of lag" in found.reason) != counts
    assert by_evidence(None, Capacity()) == Capacity()


def test_a_capacity_measured_on_another_connector_names_it() -> None:
    held = find_saturation(moments("a", *[(8, 1)] * 6))
    assert held is not None
    assert by_history(held, 0.7, held.ended_ms, "1970-01-01", "mm2.a.b.source.logs").reason == (
        "measured until 1970-01-01 (0 h ago) on tasks of mm2.a.b.source.logs that lagged for 5 min and carried this or more for three quarters of that time"
    )


def test_the_order_of_moments_does_not_matter() -> None:
    given = moments("a", *[(2, 1)] * 6, (14, 1), *[(2, 1)] * 6)
    assert find_saturation(given[::-1]) == find_saturation(given)


@pytest.mark.parametrize(("hours", "age"), [(3, "3 h ago"), (47, "47 h ago"), (120, "5 days ago")])
def test_a_measured_capacity_tells_its_age(hours: int, age: str) -> None:
    held = find_saturation(moments("a", *[(8, 1)] * 6))
    assert held is not None
    capacity = by_history(held, 0.7, held.ended_ms + hours * 3_600_000, "1970-01-01")
    assert (capacity.bytes_per_second, capacity.threshold) == (8 * MB, 0.7)
    assert (
        capacity.reason
        == f"measured until 1970-01-01 ({age}) on tasks that lagged for 5 min and carried this or more for three quarters of that time"
    )


def test_a_far_link_bounds_a_task_and_a_near_one_does_not() -> None:
    clients = Clients(receive_buffer_bytes=-1, fetch_bytes=30_000_000, partition_fetch_bytes=30_000_000)
    far, near = Route.over_link(Leg(0.160, 25 * MB)), Route.over_link(Leg(0.001))
    capacity = by_link(predict(far, clients, FlowTraffic()), far, Capacity())
    assert capacity.bytes_per_second == pytest.approx(30e6 / (0.16 + 30e6 / 1.0625e6 + 0.5))
    assert capacity.reason == "by the link: 160 ms, 25 MB/s, limited by the brokers' socket buffers"
    assert by_link(predict(near, clients, FlowTraffic()), near, Capacity()) == Capacity()


def test_beside_the_source_the_producer_decides() -> None:
    """Kafka's defaults: 16 KiB per round trip, a fifth of what reading over the same link gives."""
    reading, writing = Route.over_link(Leg(0.1, 25 * MB)), Route.over_link(Leg(0.1, 25 * MB), "source")
    far, near = (by_link(predict(way, Clients(), FlowTraffic()), way, Capacity()) for way in (writing, reading))
    assert far.bytes_per_second == pytest.approx(0.15 * MB, rel=0.15)
    assert near.bytes_per_second == pytest.approx(0.76 * MB, rel=0.1)


def test_settings_that_stall_are_no_capacity() -> None:
    route, article = Route.over_link(Leg(0.1)), Clients(partition_fetch_bytes=50 << 20)
    assert by_link(predict(route, article, FlowTraffic(), BrokerLimits()), route, Capacity()) == Capacity()

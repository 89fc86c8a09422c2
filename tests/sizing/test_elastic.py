"""Tasks that follow the week, over random weeks of load: within bounds, before the peak, down one step a night, and not for a glitch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from mm2mgr.partitions import TopicPartition, listing_of
from mm2mgr.sizing.elastic import BETWEEN_STEPS_SECONDS, ComingHours, coming_hours, decide_elastic
from mm2mgr.sizing.scenario import Scenario, size_scenario
from mm2mgr.sizing.stability import Decision, Policy
from mm2mgr.sizing.tasks import Bounds, CurrentTasks, Rules, predict_assignment
from mm2mgr.weeks import WEEK_HOURS, hour_of_week
from tests.sizing.estates import BUFFERS, MB

BEGIN = 2_900 * WEEK_HOURS
HISTORY = 4 * WEEK_HOURS
POLICY = Policy()
Total = Callable[[int], float]


@dataclass
class Flow:
    """A flow whose partitions share a load by hour, and the decisions of `size`, which runs every hour."""

    total: Total
    shares: np.ndarray
    bounds: Bounds
    is_balanced: bool

    def scenario(self, hours: range, tasks: int) -> Scenario:
        names = [TopicPartition("t", number) for number in range(len(self.shares))]
        loads = np.array([self.total(hour) for hour in hours])
        listing = listing_of({"t": len(names)})
        prediction = replace(predict_assignment(listing, lambda _: True), is_balanced=self.is_balanced)
        rates = {name: loads * share for name, share in zip(names, self.shares, strict=True)}
        return Scenario(
            "f",
            "a",
            "hub",
            "w",
            listing,
            lambda _: True,
            prediction,
            rates,
            Rules(bounds=self.bounds),
            BUFFERS,
            CurrentTasks(tasks),
        )

    def coming(self, hour: int, tasks: int) -> tuple[ComingHours, Scenario]:
        """Return the judgement at the beginning of an hour: what is measured ends with the hour before."""
        hours = range(max(BEGIN, hour - HISTORY), hour)
        scenario = self.scenario(hours, tasks)
        coming = coming_hours(scenario, hours, 3_600.0 * hour + 300)
        assert not isinstance(coming, str)
        return coming, scenario

    def decide(self, hour: int, before: Decision | None) -> tuple[Decision, ComingHours]:
        coming, scenario = self.coming(hour, before.tasks if before else 1)
        decision = decide_elastic(coming, size_scenario(scenario), before, POLICY, 3_600 * hour + 300)
        return decision, coming

    def busiest(self, hour: int, tasks: int) -> float:
        return size_scenario(self.scenario(range(hour, hour + 1), tasks)).load.busiest_share(tasks)


def week_shape(chance: Random) -> Total:
    """Return a load that repeats every week: nights and days, some days busier, a job at some hour."""
    base, swing, noon = chance.uniform(5, 40) * MB, chance.uniform(0, 2), chance.randrange(24)
    days = [chance.uniform(0.4, 1.0) for _ in range(7)]
    job, extra = chance.randrange(WEEK_HOURS), chance.uniform(0, 1.5)

    def total(hour: int) -> float:
        place = hour_of_week(hour)
        by_day = 1 + swing * (1 + math.cos((place % 24 - noon) / 12 * math.pi)) / 2 * days[place // 24]
        return base * (by_day + (extra if place == job else 0.0))

    return total


def random_flow(seed: int, total: Total | None = None) -> tuple[Flow, Random]:
    chance = Random(seed)
    shape = week_shape(chance)
    shares = np.array([chance.lognormvariate(0, 0.3) for _ in range(chance.choice((24, 60, 96)))])
    least = chance.randint(1, 4)
    bounds = Bounds(least, chance.choice((least, least + 3, 20, 64)))
    return Flow(total or shape, shares / shares.sum(), bounds, chance.random() < 0.5), chance


def with_noise(flow: Flow, chance: Random, growth: float) -> Flow:
    noise = {hour: chance.uniform(0.85, 1.15) for hour in range(BEGIN, BEGIN + HISTORY + 30 * 24)}
    shape = flow.total
    return replace(flow, total=lambda hour: shape(hour) * noise[hour] * growth ** ((hour - BEGIN) / WEEK_HOURS))


def check_a_week(seed: int, days: int) -> None:
    flow, chance = random_flow(seed)
    flow = with_noise(flow, chance, chance.choice((0.9, 1.0, 1.0, 1.1)))
    before: Decision | None = None
    changes: list[int] = []
    for hour in range(BEGIN + HISTORY, BEGIN + HISTORY + 24 * days):
        decision, coming = flow.decide(hour, before)
        most = min(flow.bounds.limit or 999, len(flow.shares))
        assert min(flow.bounds.minimum, most) <= decision.tasks <= most
        if before is not None and decision.tasks != before.tasks:
            if decision.is_saving:
                assert coming.is_off_peak
                assert 3_600 * (hour - changes[-1]) >= BETWEEN_STEPS_SECONDS if changes else True
                between = range(decision.tasks + 1, before.tasks)
                assert not [
                    n for n in between if coming.day.load.fits(n, POLICY.hysteresis) and coming.day.peak.fits(n)
                ]
                assert decision.holds_until_seconds == 3_600 * (hour + 24) + 300
            else:
                assert not coming.near.load.fits(before.tasks), "raised although the next hours fit"
            changes.append(hour)
        before = decision
    by_day = Counter((hour - BEGIN) // 24 for hour in changes)
    assert max(by_day.values(), default=0) <= 3, by_day


@pytest.mark.parametrize("seed", range(2))
def test_over_random_weeks_tasks_stay_in_bounds_go_down_a_step_a_night_and_restart_seldom(seed: int) -> None:
    check_a_week(seed, 3)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2, 42))
def test_over_many_random_weeks_the_same_holds(seed: int) -> None:
    check_a_week(seed, 10)


@pytest.mark.parametrize("seed", range(3))
def test_one_glitch_changes_nothing(seed: int) -> None:
    flow, chance = random_flow(seed)
    shape, glitch = flow.total, BEGIN + HISTORY - chance.randint(1, 3 * WEEK_HOURS)
    spoilt = replace(flow, total=lambda hour: shape(hour) * (25 if hour == glitch else 1))
    for hour in (BEGIN + HISTORY, BEGIN + HISTORY + 7, glitch + 1, glitch + WEEK_HOURS):
        if hour < BEGIN + 3 * WEEK_HOURS:
            continue
        first, _ = flow.decide(hour, None)
        for tasks in (first.tasks, first.tasks + 1):
            decisions = [one.decide(hour, Decision(tasks, 0))[0] for one in (flow, spoilt)]
            assert decisions[0].tasks == decisions[1].tasks


@pytest.mark.parametrize("seed", range(2))
def test_where_the_week_repeats_tasks_are_there_before_each_peak_and_no_change_follows_where_it_is_flat(
    seed: int,
) -> None:
    flow, _ = random_flow(seed)
    flow = replace(flow, bounds=Bounds(1, None), is_balanced=True)
    before, _ = flow.decide(BEGIN + HISTORY, None)
    for hour in range(BEGIN + HISTORY, BEGIN + HISTORY + 48):
        before, _ = flow.decide(hour, before)
        assert flow.busiest(hour, before.tasks) <= 1.0 + 1e-9, "as planned, from the first minute of the hour on"
    flat = replace(flow, total=lambda hour: 30 * MB)
    first, _ = flat.decide(BEGIN + HISTORY, None)
    for hour in range(BEGIN + HISTORY, BEGIN + HISTORY + 26):
        again, _ = flat.decide(hour, first)
        assert again.tasks == first.tasks


def test_a_new_level_counts_from_its_second_hour_on() -> None:
    flow, _ = random_flow(1)
    flow = replace(flow, bounds=Bounds(1, None), is_balanced=True)
    shape, now = flow.total, BEGIN + HISTORY
    higher = replace(flow, total=lambda hour: shape(hour) * (3 if hour >= now else 1))
    before, _ = higher.decide(now, None)
    after_one, _ = higher.decide(now + 1, before)
    after_two, coming = higher.decide(now + 2, after_one)
    assert (after_one.tasks, after_two.tasks > 2 * before.tasks) == (before.tasks, True)
    assert coming.reason.endswith("by the same hours of 4 weeks, 3.00 times that.")


def test_without_two_weeks_or_with_a_silent_source_nothing_changes() -> None:
    flow, _ = random_flow(1)
    short, silent = range(BEGIN, BEGIN + 100), range(BEGIN, BEGIN + HISTORY)
    reasons = []
    for hours, now in ((short, short.stop), (silent, silent.stop + 5)):
        scenario = flow.scenario(hours, 3)
        coming = coming_hours(scenario, hours, 3_600.0 * now)
        decision = decide_elastic(coming, size_scenario(scenario), Decision(3, 0), POLICY, 3_600 * now)
        assert decision.tasks == 3
        reasons += decision.reasons
    assert reasons == [
        "Stays at 3: it follows the week once 2 weeks are measured.",
        "Stays at 3: nothing was measured in the last 5 hours.",
    ]

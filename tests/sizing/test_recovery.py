"""Time to catch up: held against a clock that is stepped by hand, and what lost workers mean."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.link import WORKER_HEAP_BYTES
from mm2mgr.sizing.fleet import ConnectLoad, Failover, WorkerLimits
from mm2mgr.sizing.recovery import (
    CatchUp,
    Lag,
    behind_seconds,
    catch_up_seconds,
    loss,
    outlook,
    recovery,
    workers_within,
)

from .assignor import Group
from .estates import MB, connect, run


def stepped(backlog: float, rate: float, speed: float, steps: int = 4000) -> float:
    """Step a task's backlog until it is gone; return the seconds."""
    step = backlog / (speed - rate) / steps
    seconds = 0.0
    while backlog > 0:
        backlog += (rate - speed) * step
        seconds += step
    return seconds


@given(st.floats(1, 1e5), st.floats(0.05, 0.95))
def test_catching_up_takes_as_long_as_the_clock_says(behind: float, utilisation: float) -> None:
    rate, speed = 10 * MB * utilisation, 10 * MB
    assert catch_up_seconds(behind, utilisation) == pytest.approx(stepped(behind * rate, rate, speed), rel=1e-3)


@given(st.floats(1, 1e5), st.floats(1, 50))
def test_who_cannot_keep_up_never_catches_up(behind: float, utilisation: float) -> None:
    assert catch_up_seconds(behind, utilisation) is None


@dataclass
class Moving:
    """A task in a simulation: what comes in, and what it is behind."""

    rate: float
    backlog: float


def simulated(load: ConnectLoad, workers: int, behind: float, step: float, most: float) -> float | None:
    """Let tasks work off their backlogs on workers as Connect would spread them, step by step; None: not within `most` seconds.

    A worker gives each task the same of what it can move; what one does not need the others get.
    """
    group, loads = Group(workers), {run.flow_id: run.load.per_task(run.tasks) for run in load.runs}
    for name, each in loads.items():
        group.create(name, len(each))
    for number in range(load.side_tasks):
        group.create(f"side{number}", 1)
    hands = [[Moving(loads[n][i], loads[n][i] * behind) for n, i in hand if n in loads] for hand in group.workers]
    speed = load.worker.tasks * 10 * MB
    can = min(speed, load.worker.network_bytes_per_second or speed)
    seconds = 0.0
    while any(task.backlog > 1e-6 for hand in hands for task in hand):
        if seconds > most:
            return None
        for hand in hands:
            left, waiting = can * step, sorted(hand, key=lambda task: task.backlog + task.rate * step)
            for place, task in enumerate(waiting):
                moved = min(task.backlog + task.rate * step, 10 * MB * step, left / (len(waiting) - place))
                task.backlog += task.rate * step - moved
                left -= moved
        seconds += step
    return seconds


flows_of_tasks = st.lists(st.lists(st.floats(0.1 * MB, 9 * MB), min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=60)
@given(flows_of_tasks, st.integers(1, 4), st.integers(0, 6), st.integers(1, 8), st.none() | st.floats(20 * MB, 60 * MB))
def test_a_simulation_is_never_slower_than_predicted(
    loads: list[list[float]], workers: int, side_tasks: int, places: int, network: float | None
) -> None:
    runs = [run(f"f{number}", each) for number, each in enumerate(loads)]
    load = connect(*runs, worker=WorkerLimits(places, network_bytes_per_second=network), side_tasks=side_tasks)
    forecast = recovery(load, workers, 600.0).now
    if forecast.never or forecast.seconds is None or forecast.seconds > 50_000:
        return
    step = max(forecast.seconds, 1.0) / 400
    real = simulated(load, workers, 600.0, step, forecast.seconds * 1.05 + 2 * step)
    assert real is not None, f"later than the {forecast.seconds:.0f} s predicted"
    if network is None and places >= load.tasks:  # nothing is shared: exact
        assert real == pytest.approx(forecast.seconds, abs=2 * step)


def test_the_simulation_is_no_faster_where_every_worker_is_as_full() -> None:
    """Six even tasks on two workers of two places each: three share what two can move."""
    load = connect(run("f", [4 * MB] * 6), worker=WorkerLimits(2))
    forecast = recovery(load, 2, 600.0).now.seconds
    assert forecast == pytest.approx(600 * 0.6 / 0.4)
    assert simulated(load, 2, 600.0, 1.0, 2000.0) == pytest.approx(forecast, abs=2)


def test_a_lag_in_records_on_workers_that_tasks_share() -> None:
    """1.15 billion records of 1 kB, 240 MB/s coming in, 90 tasks of 10 MB/s, of which a worker carries three."""
    flow = run("metrics", [240 * MB / 90] * 90, records=240_000.0)
    load = connect(flow, worker=WorkerLimits(3))
    found = outlook(load, 30, Lag(records=1.15e9), (5, 10, 20, 30, 60)).recoveries
    speeds = {10: 300 * MB, 20: 540 * MB, 30: 900 * MB, 60: 900 * MB}  # 20 workers: five tasks on some, at 3/5
    expected = {workers: 1.15e12 / (speed - 240 * MB) for workers, speed in speeds.items()}
    assert found[0].now.seconds is None  # 18 tasks a worker at a sixth of their speed: 150 of 240 MB/s
    assert {each.workers: each.now.seconds for each in found[1:]} == pytest.approx(expected)
    assert [round((each.now.seconds or 0) / 60) for each in found[1:]] == [319, 64, 29, 29]


def test_more_workers_help_only_with_more_tasks() -> None:
    load = connect(run("f", [2 * MB] * 12, tasks=3, most=12), worker=WorkerLimits(3))
    one, two, five = (recovery(load, count, 3600.0) for count in (1, 2, 5))
    assert one.now.seconds == two.now.seconds == five.now.seconds == pytest.approx(3600 * 0.8 / 0.2)
    assert (one.raised_tasks, two.raised_tasks, five.raised_tasks) == (3, 6, 12)
    assert two.raised.seconds == pytest.approx(3600 * 0.4 / 0.6)
    assert five.raised.seconds == pytest.approx(3600 * 0.2 / 0.8)


def test_more_tasks_that_make_a_busier_one_are_not_taken() -> None:
    loads = [4 * MB, 1 * MB, 1 * MB, 4 * MB, 1 * MB, 1 * MB]  # three tasks put both heavy ones together
    found = recovery(connect(run("f", loads, tasks=2, most=3), worker=WorkerLimits(3)), 1, 3600.0)
    assert found.raised_tasks == found.tasks == 2
    assert found.raised == found.now


def test_the_slowest_flow_decides_and_is_named() -> None:
    found = recovery(connect(run("fast", [MB]), run("slow", [8 * MB])), 1, 600.0)
    assert found.now.last_flow == "slow"
    assert found.now.seconds == pytest.approx(2400)


def test_the_network_of_a_worker_is_shared() -> None:
    load = connect(run("f", [3 * MB] * 4), worker=WorkerLimits(10, network_bytes_per_second=20 * MB))
    assert recovery(load, 1, 100.0).now.seconds == pytest.approx(100 * 0.6 / 0.4)
    assert recovery(load, 4, 100.0).now.seconds == pytest.approx(100 * 0.3 / 0.7)


def test_a_hot_partition_never_catches_up_and_hides_no_other_flow() -> None:
    found = outlook(connect(run("hot", [12 * MB, MB]), run("cold", [5 * MB])), 2, Lag(60))
    assert {each.now for each in found.recoveries} == {CatchUp(60.0, "cold", ("hot",))}
    assert [each.workers for each in found.recoveries] == [1, 2, 3, 4, 6]
    assert found.losses[0].reason.endswith(
        "Falling behind even with all workers: hot. All others have caught up 5.17 min after that, cold last."
    )


def test_records_without_a_size_say_nothing_about_time() -> None:
    found = outlook(connect(run("f", [MB])), 1, Lag(records=1000))
    assert (found.recoveries, found.note) == (
        (),
        "no record sizes were measured, so a lag in records cannot be converted to time",
    )
    assert outlook(connect(run("f", [MB])), 1, Lag(60)).recoveries


def test_flows_without_a_record_size_are_taken_like_the_others() -> None:
    known, unknown = run("f", [MB], records=1000.0), run("g", [3 * MB])
    assert behind_seconds(connect(known, unknown), Lag(records=8000)) == pytest.approx(2)


def test_a_lost_worker_stops_its_tasks_for_five_minutes_and_the_rest_catches_up() -> None:
    found = loss(connect(run("f", [5 * MB] * 8), worker=WorkerLimits(4)), 3, 1)
    assert (found.workers, found.stopped_tasks, found.broken) == (2, 3, ())
    assert (found.stopped_seconds, found.leader_stopped_seconds) == (310, 10)
    assert found.after.seconds == pytest.approx(310)
    assert found.reason == (
        "1 worker lost of 3: up to 3 of 8 tasks stop for about 5.17 min (session.timeout.ms of 10 s, then "
        "scheduled.rebalance.max.delay.ms of 5 min), or about 10 s if it was the leader of the Connect group, because a new leader "
        "knows no earlier assignment (REST does not show the leader); the remaining 2 workers then run up to 4 tasks each. "
        "All flows have caught up 5.17 min after that, f last."
    )


def test_too_few_left_fall_behind() -> None:
    found = loss(connect(run("f", [6 * MB] * 8), worker=WorkerLimits(4)), 2, 1)
    assert (found.broken, found.after) == (("tasks",), CatchUp(None, "", ("f",)))
    assert found.reason.endswith("too much for one: more than 4 tasks. Falling behind until a worker is back: f.")


def test_a_worker_without_heap_may_take_the_next_one_with_it() -> None:
    flow = run("f", [MB] * 4)
    heap = (WORKER_HEAP_BYTES + 2 * flow.heap_bytes) / 0.7
    found = loss(connect(flow, worker=WorkerLimits(10, heap_bytes=heap + 1)), 2, 1)
    assert found.broken == ("memory",)
    assert found.reason.endswith("so it may run out of memory, and so may the worker that takes over.")


def test_none_left() -> None:
    found = loss(connect(run("f", [MB])), 1, 1)
    assert (found.workers, found.stopped_tasks, found.stopped_seconds, found.after.seconds) == (0, 1, None, None)
    assert found.reason == "The only worker lost: no task runs."
    assert loss(connect(run("f", [MB])), 2, 2).reason == "All 2 workers lost: no task runs."


@pytest.mark.parametrize("lost", [1, 2])
def test_the_settings_of_the_workers_decide_how_long_tasks_stop(lost: int) -> None:
    load = replace(connect(run("f", [5 * MB] * 8), worker=WorkerLimits(8)), failover=Failover(6, 60))
    found = loss(load, 3, lost)
    assert (found.stopped_seconds, found.leader_stopped_seconds) == (66, 6)
    assert found.after.seconds == pytest.approx(66)
    assert (
        "stop for about 66 s (session.timeout.ms of 6 s, then scheduled.rebalance.max.delay.ms of 60 s)" in found.reason
    )
    assert f"or about 6 s if {'it' if lost == 1 else 'one of them'} was the leader of the Connect group" in found.reason


def test_without_a_delay_it_does_not_matter_who_led() -> None:
    found = loss(replace(connect(run("f", [MB] * 4)), failover=Failover(6, 0)), 2, 1)
    assert found.stopped_seconds == found.leader_stopped_seconds == 6
    assert found.reason.startswith(
        "1 worker lost of 2: up to 2 of 4 tasks stop for about 6 s (session.timeout.ms); the remaining worker"
    )


def test_idle_tasks_push_busy_ones_together() -> None:
    """Three tasks and six idle ones on three workers of one place each: all three may share one worker's place."""
    alone, crowded = (connect(run("f", [2 * MB] * 3), worker=WorkerLimits(1), side_tasks=side) for side in (0, 6))
    assert recovery(alone, 3, 600.0).now.seconds == pytest.approx(600 * 0.2 / 0.8)
    # Of one connector no two meet on three workers when it is created, but after a loss they do.
    assert recovery(crowded, 3, 600.0).now.seconds == pytest.approx(600 * 0.6 / 0.4)


def test_no_more_workers_are_lost_than_there_are() -> None:
    load = connect(run("f", [MB]))
    assert [len(outlook(load, workers, Lag()).losses) for workers in (1, 2, 3)] == [1, 2, 2]


def test_as_many_workers_are_lost_as_is_asked() -> None:
    load = replace(connect(run("f", [MB] * 5), worker=WorkerLimits(5)), failover=Failover(lost_workers=(3, 9)))
    found = outlook(load, 5, Lag()).losses
    assert [(each.lost, each.workers, each.stopped_tasks) for each in found] == [(3, 2, 3), (5, 0, 5)]
    assert found[0].reason.startswith("3 workers lost of 5: up to 3 of 5 tasks stop for about ")
    assert "if one of them was the leader" in found[0].reason
    assert found[1].reason == "All 5 workers lost: no task runs."


@given(st.lists(st.floats(0.1, 5), min_size=2, max_size=8), st.integers(1, 7), st.floats(1.05, 4))
def test_only_what_lost_tasks_had_is_behind_under_a_limit(rates: list[float], lost: int, headroom: float) -> None:
    """Held against a clock: the traffic of lost tasks piles up, and all of the limit is there for it."""
    workers, lost = len(rates), min(lost, len(rates) - 1)
    flow = replace(run("f", [rate * MB for rate in rates]), limit_used=1 / headroom)
    load = replace(connect(flow, worker=WorkerLimits(10)), failover=Failover(6, 60))
    behind = sum(sorted(rates)[-lost:]) * 66
    by_limit = stepped(behind, sum(rates), sum(rates) * headroom)
    by_task = stepped(max(rates) * 66, max(rates), 10)
    assert loss(load, workers, lost).after.seconds == pytest.approx(max(by_limit, by_task), rel=1e-3)


# --- workers for a time -------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    flows_of_tasks,
    st.integers(0, 4),
    st.integers(1, 6),
    st.none() | st.floats(10 * MB, 60 * MB),
    st.floats(1, 10_000),
)
def test_the_workers_named_are_the_fewest_that_catch_up_in_time(
    loads: list[list[float]], side_tasks: int, places: int, network: float | None, within: float
) -> None:
    runs = [run(f"f{number}", each, tasks=min(2, len(each)), most=len(each)) for number, each in enumerate(loads)]
    load = connect(*runs, worker=WorkerLimits(places, network_bytes_per_second=network), side_tasks=side_tasks)
    found = workers_within(load, 600.0, "10 min", within)
    least = found.for_load or 1

    def is_enough(workers: int) -> bool:
        caught_up = recovery(load, workers, 600.0).raised
        return not caught_up.never and caught_up.seconds is not None and caught_up.seconds <= within

    enough = [
        workers for workers in range(least, max(least, sum(map(len, loads)) + side_tasks) + 1) if is_enough(workers)
    ]
    assert found.workers == min(enough, default=None)
    if found.workers:
        assert (found.catch_up.seconds or 0) <= within
        assert found.reason.startswith(f"{found.workers} worker")
    else:
        assert found.reason.startswith("No number of workers works off 10 min of lag within ")


def test_the_workers_for_a_time_are_named_with_their_tasks() -> None:
    """4 h of 40 MB/s within 20 min: a task of 10 MB/s that carries r is level after 4 h × r ÷ (10 MB/s − r)."""
    load = connect(run("f", [0.5 * MB] * 80, tasks=8, most=80), worker=WorkerLimits(4))
    found = outlook(load, 2, Lag(4 * 3600.0, within_seconds=1200.0)).within
    assert found is not None
    assert (found.workers, found.tasks, found.for_load) == (20, 80, 2)
    assert found.catch_up.seconds == pytest.approx(4 * 3600 * 0.05 / 0.95)
    assert found.reason == (
        "20 workers with 80 tasks instead of 8 work off 4 h of lag within 20 min, in 12.6 min (2 without a lag)."
    )


def test_a_partition_that_is_too_slow_alone_is_helped_by_no_worker() -> None:
    found = outlook(connect(run("f", [2 * MB, MB]), run("hot", [12 * MB])), 2, Lag(3600.0, within_seconds=600.0)).within
    assert found is not None
    assert found.workers is None
    assert found.reason == (
        "No number of workers works off 60 min of lag within 10 min: even with a worker for each task, hot never catches up."
    )
    slow = outlook(connect(run("f", [8 * MB, MB])), 2, Lag(3600.0, within_seconds=600.0)).within
    assert slow is not None
    assert slow.reason.endswith("even with a worker for each task, f takes 4 h.")


# --- catch-up limits ----------------------------------------------------------------------------------------------------


@given(st.floats(1, 1e5), st.lists(st.floats(0.1, 5), min_size=1, max_size=4), st.floats(0.5, 60))
def test_flows_under_one_limit_catch_up_together_at_that_rate(behind: float, rates: list[float], limit: float) -> None:
    """Held against a clock: all of them get the limit's bytes, of which their traffic is only a part."""
    used = sum(rates) / limit
    load = connect(*(replace(run(f"f{n}", [rate * MB], tasks=1), limit_used=used) for n, rate in enumerate(rates)))
    found = recovery(load, 4, behind).now
    if limit <= sum(rates):
        assert found == CatchUp(None, "", tuple(f"f{n}" for n in range(len(rates))))
    elif used < 0.95:
        by_limit = stepped(behind * sum(rates), sum(rates), limit)
        alone = max(stepped(behind * rate, rate, 10) for rate in rates)  # what a task of 10 MB/s takes
        assert found.seconds == pytest.approx(max(by_limit, alone), rel=1e-3)


def test_a_limit_is_named_where_it_decides() -> None:
    held, free = replace(run("held", [2 * MB]), limit_used=0.9), replace(run("free", [2 * MB]), limit_used=0.1)
    found = outlook(connect(held, free), 2, Lag())
    assert found.limited == ("held",)
    assert found.recoveries[0].now.last_flow == "held"
    assert outlook(connect(run("none", [2 * MB])), 2, Lag()).limited == ()

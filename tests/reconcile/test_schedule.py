"""The schedule of `reconcile`, on a made clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.reconcile.schedule import LONGEST_BACKOFF_SECONDS, RoundSchedule

CHANCE = st.floats(0, 1)


def test_a_cluster_that_fails_is_asked_after_twice_as_long_each_time_and_the_others_go_on() -> None:
    schedule, now, waits = RoundSchedule(60.0), 0.0, []
    for _ in range(6):
        schedule = schedule.after(now, ["good", "bad"], ["bad"], 0.5)
        (name, seconds), *others = schedule.resting(now).items()
        assert (name, others) == ("bad", [])
        waits.append(seconds)
        now += seconds
        assert schedule.resting(now) == {}
    assert waits == [120, 240, 480, 600, 600, 600]


def test_one_success_ends_it_and_a_cluster_that_was_not_asked_stays() -> None:
    schedule = RoundSchedule(60.0).after(0.0, ["a", "b"], ["a", "b"], 0.5)
    assert schedule.after(1.0, [], [], 0.5) == schedule
    after = schedule.after(500.0, ["a"], [], 0.5)
    assert (after.failures, set(after.resting(100.0))) == ({"b": 1}, {"b"})


@given(st.floats(1, 3600), CHANCE, st.integers(1, 2000))
def test_jitter_and_backoff_stay_in_their_bounds(every: float, chance: float, failures: int) -> None:
    schedule = RoundSchedule(every, {"a": failures}).after(0.0, ["a"], ["a"], chance)
    longest = max(every, LONGEST_BACKOFF_SECONDS)
    assert schedule.resting(0.0)["a"] <= 1.1 * longest * (1 + 1e-9)
    assert 0.9 * every <= schedule.pause(chance) * (1 + 1e-9)
    assert schedule.pause(chance) <= 1.1 * every * (1 + 1e-9)

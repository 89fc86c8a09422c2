"""The schedule of `reconcile`, on a made clock: its rounds, and when updates that only save tasks wait: each rule just below and above its
threshold, and everything that is no mere saving.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import moved_partitions
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.json_values import to_json
from mm2mgr.off_peak import OffPeak
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.plan.schedule import (
    LONGEST_BACKOFF_SECONDS,
    RestartRules,
    RoundSchedule,
    Saving,
    waiting,
    with_waiting,
)

CHANCE = st.floats(0, 1)
HOUR = 3600
NOW = 500_000 * 24 * HOUR + 14 * HOUR
LONG_AGO = NOW - 30 * 24 * HOUR


def test_a_cluster_that_fails_is_asked_after_twice_as_long_each_time_and_the_others_go_on() -> None:
    schedule, now, waits = RoundSchedule(60.0), 0.0, []
    for _ in range(6):
        schedule = schedule.after_round(now, ["good", "bad"], ["bad"], 0.5)
        (name, seconds), *others = schedule.resting(now).items()
        assert (name, others) == ("bad", [])
        waits.append(seconds)
        now += seconds
        assert schedule.resting(now) == {}
    assert waits == [120, 240, 480, 600, 600, 600]


def test_one_success_ends_it_and_a_cluster_that_was_not_asked_stays() -> None:
    schedule = RoundSchedule(60.0).after_round(0.0, ["a", "b"], ["a", "b"], 0.5)
    assert schedule.after_round(1.0, [], [], 0.5) == schedule
    after = schedule.after_round(500.0, ["a"], [], 0.5)
    assert (after.failures, set(after.resting(100.0))) == ({"b": 1}, {"b"})


@given(st.floats(1, 3600), CHANCE, st.integers(1, 2000))
def test_jitter_and_backoff_stay_in_their_bounds(every: float, chance: float, failures: int) -> None:
    schedule = RoundSchedule(every, {"a": failures}).after_round(0.0, ["a"], ["a"], chance)
    longest = max(every, LONGEST_BACKOFF_SECONDS)
    assert schedule.resting(0.0)["a"] <= 1.1 * longest * (1 + 1e-9)
    assert 0.9 * every <= schedule.pause(chance) * (1 + 1e-9)
    assert schedule.pause(chance) <= 1.1 * every * (1 + 1e-9)


# --- restarts that wait -----------------------------------------------------------------------------------------------


def update(flow: str = "f", before: str = "10", after: str = "9", *more: KeyChange) -> Change:
    keys = (KeyChange("tasks.max", before, after), *more)
    return Change("w", f"mm2.{flow}", "source", "update", (flow,), keys, config={"tasks.max": after})


def plan(*changes: Change) -> Plan:
    return Plan("team", (ClusterPlan("w", changes),))


def why(change: Change, saving: Saving | None, when: float = NOW, moved_at_once: int | None = None) -> str | None:
    known = {"f": saving} if saving else {}
    return waiting(plan(change), known, when, moved_at_once).get(("w", "mm2.f"))


@pytest.mark.parametrize(("hours", "waits"), [(23, True), (24, False)])
def test_a_saving_waits_for_the_cool_down(hours: int, waits: bool) -> None:
    reason = why(update(), Saving(9, NOW - hours * HOUR))
    assert reason == ("1 d after the last change of its sizing (tasks: cool_down)" if waits else None)


def test_a_sizing_that_tells_no_time_is_not_held_by_the_cool_down() -> None:
    assert why(update(), Saving(9)) is None


@pytest.mark.parametrize(("hour", "waits"), [(21, True), (22, False), (4, False), (5, True)])
def test_a_saving_waits_for_the_off_peak_hours_across_midnight(hour: int, waits: bool) -> None:
    rules = RestartRules(off_peak=(OffPeak(22, 5),))
    reason = why(update(), Saving(9, LONG_AGO, rules=rules), NOW + (hour - 14) * HOUR)
    assert reason == ("for 22-05 h UTC (tasks: off_peak)" if waits else None)


def test_equal_hours_are_the_whole_day() -> None:
    assert why(update(), Saving(9, LONG_AGO, rules=RestartRules(off_peak=(OffPeak(3, 3),)))) is None


@pytest.mark.parametrize(("hour", "waits"), [(2, False), (6, True), (13, False)])
def test_several_spans_of_hours_are_all_good(hour: int, waits: bool) -> None:
    rules = RestartRules(off_peak=(OffPeak(2, 5), OffPeak(12, 14)))
    reason = why(update(), Saving(9, LONG_AGO, rules=rules), NOW + (hour - 14) * HOUR)
    assert reason == ("for 02-05 h UTC, 12-14 h UTC (tasks: off_peak)" if waits else None)


def test_each_flow_waits_as_its_own_tree_says() -> None:
    savings = {"f": Saving(9, NOW - HOUR, rules=RestartRules(HOUR)), "g": Saving(9, NOW - HOUR)}
    assert waiting(plan(update("f"), update("g")), savings, NOW).keys() == {("w", "mm2.g")}


def test_the_budget_is_shared_in_the_order_of_the_plan_and_counts_from_what_runs() -> None:
    changes = plan(update("f"), update("g", "12"), update("h"), update("i"))
    savings = dict.fromkeys(("f", "g", "h", "i"), Saving(9, LONG_AGO, 20))
    needed, other = moved_partitions(20, 10, 9), moved_partitions(20, 12, 9)
    found = waiting(changes, savings, NOW, needed + other)
    assert found == {
        ("w", f"mm2.{flow}"): f"{needed} partitions would move, 0 left of the budget (defaults: move_budget)"
        for flow in "hi"
    }


def test_without_a_known_number_of_partitions_a_budget_holds() -> None:
    assert "unknown, run mm2mgr size" in str(why(update(), Saving(9, LONG_AGO), moved_at_once=99))
    assert why(update(), Saving(9, LONG_AGO)) is None


@pytest.mark.parametrize(
    "change",
    [
        update("f", "9", "10"),
        update("f", "10", "9", KeyChange("topics", "a", "b")),
        replace(update(), state=("RUNNING", "PAUSED")),
        replace(update(), action="blocked"),
        replace(update(), action="create"),
        update("f", "${env:TASKS}", "9"),
        replace(
            update(), follows=(("w", "left-over"),)
        ),  # held together with a deletion that goes first, or gone together
        update("f", "10", "8"),  # another number than that of the sizing: people bounded it
    ],
)
def test_what_is_no_mere_saving_does_not_wait(change: Change) -> None:
    assert why(change, Saving(9, NOW, 20, rules=RestartRules(off_peak=(OffPeak(2, 3),))), moved_at_once=0) is None


def test_a_number_that_is_no_saving_does_not_wait() -> None:
    assert why(update(), None, moved_at_once=0) is None


def test_what_waits_is_shown_and_not_written_and_holds_up_nothing_else() -> None:
    found = with_waiting(plan(update("f"), update("g")), {("w", "mm2.f"): "for 22-05 h UTC (tasks: off_peak)"})
    first, second = found.changes
    assert [change.connector for change in found.writes] == ["mm2.g"]
    assert (first.action, first.config, first.waits) == ("no-op", None, "for 22-05 h UTC (tasks: off_peak)")
    assert first.warnings == ("waiting with 9 instead of 10 tasks: for 22-05 h UTC (tasks: off_peak)",)
    assert to_json(first)["waits"] == first.waits
    assert second == update("g")
    assert not found.has_failed

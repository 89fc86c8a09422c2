"""Restart storms are impossible: whatever fails, and whenever it is looked at."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.problems.connectors import CAUSES, TaskFailed
from mm2mgr.problems.kind import LiveProblem, ProblemSubject
from mm2mgr.problems.watchdog import (
    WHOLE,
    FailedPart,
    RestartHistory,
    RestartPolicy,
    Watchdog,
    decide,
    part_of,
)

POLICY = RestartPolicy(first_seconds=10, longest_seconds=60, restarts=3, window_seconds=600, jitter=0.2)
PART: FailedPart = ("east", "mm2.a.b.source.orders", 0)


def failed(cause: str = "time-out", *tasks: int) -> LiveProblem:
    subject = ProblemSubject("east", "mm2.a.b.source.orders", "orders:a->b", tasks or (0,))
    return LiveProblem(TaskFailed("boom", (cause, "x.Y")), subject)


def restart(number: int) -> tuple[str, object]:
    return "restart", number


def look_again(seconds: float) -> tuple[str, object]:
    return "wait", seconds


def escalate(reason: str) -> tuple[str, object]:
    return "tell", reason


def decided(
    problem: LiveProblem, history: RestartHistory, now: float, policy: RestartPolicy, *, frozen: bool = False
) -> tuple[str, object]:
    """Return the action with what it depends on: the number of the restart, the wait, or the reason."""
    action = decide(problem, history, now, policy, frozen=frozen)
    return action.action, {"restart": action.number, "wait": action.after_seconds, "tell": action.reason}[action.action]


def test_a_delay_policy_is_arithmetic_on_given_times() -> None:
    calm = replace(POLICY, jitter=0)
    fresh = RestartHistory(failing_since=1000.0)
    assert decided(failed(), fresh, 1000.0, calm) == look_again(10)
    assert decided(failed(), fresh, 1009.0, calm) == look_again(1)
    assert decided(failed(), fresh, 1010.0, calm) == restart(1)
    once = replace(fresh, restarts=(1010.0,), failing_since=1011.0)
    assert decided(failed(), once, 1020.0, calm) == look_again(10), "20 s after the first restart"
    assert decided(failed(), once, 1030.0, calm) == restart(2)
    later = replace(once, failing_since=1500.0)
    assert decided(failed(), later, 1500.0, calm) == look_again(10), "also a late failure gets the first wait"
    thrice = replace(fresh, restarts=(1010.0, 1030.0, 1070.0))
    assert decided(failed(), thrice, 1200.0, calm) == escalate("breaker")
    assert decided(failed(), thrice, 1611.0, calm) == restart(3), "the first one has left the window"
    assert decided(failed(), replace(thrice, is_open=True), 9e9, calm) == escalate("breaker"), "until it is seen to run"
    assert decided(failed(), fresh, 1010.0, calm, frozen=True) == escalate("frozen")
    assert decided(failed("record-size"), fresh, 9e9, calm) == escalate("not-retryable")
    assert decided(failed("record-size"), fresh, 9e9, calm, frozen=True) == escalate("not-retryable")


def test_waits_differ_from_task_to_task_and_are_the_same_when_asked_again() -> None:
    fresh = RestartHistory(failing_since=0.0)
    waits = [decide(failed("quota", task), fresh, 0.0, POLICY) for task in range(20)]
    assert waits == [decide(failed("quota", task), fresh, 0.0, POLICY) for task in range(20)]
    seconds = [wait.after_seconds for wait in waits if wait.action == "wait" and wait.after_seconds is not None]
    assert len(set(seconds)) == 20
    assert min(seconds) >= 10
    assert max(seconds) <= 12
    assert max(seconds) - min(seconds) > 1


def looks(dog: Watchdog, *times: float, running: bool = False, cause: str = "time-out") -> list[str]:
    """Look at these times, and return what is new: the word, and the reason."""
    problems, runs = ([], {PART}) if running else ([failed(cause)], set())
    return [
        f"{one.action} {one.reason or one.number}".strip()
        for now in times
        for one in dog.look(problems, runs, {"east"}, now)
    ]


def test_everything_is_said_once_and_the_breaker_opens_once() -> None:
    dog = Watchdog(replace(POLICY, jitter=0))
    assert looks(dog, 0, 1, 9) == ["wait 0"]
    assert looks(dog, 10, 11, 29) == ["restart 1", "wait 1"]
    assert looks(dog, 30, 70, 71) == ["restart 2", "restart 3", "tell breaker"]
    assert looks(dog, *range(72, 5000, 100)) == []
    assert looks(dog, 5001, 5002, running=True) == ["recovered 0"]
    assert dog.histories == {}
    assert looks(dog, 5003) == ["wait 0"], "a person restarted it, and it fails again"


def test_a_failure_that_no_restart_cures_is_told_once_and_again_when_its_cause_changes() -> None:
    dog = Watchdog(POLICY)
    assert looks(dog, 0, 100, 10_000, cause="authorisation") == ["tell not-retryable"]
    assert looks(dog, 10_001, cause="record-size") == ["tell not-retryable"]
    assert looks(dog, 10_002, running=True) == ["recovered 0"]


def test_a_connector_whose_class_a_worker_lacks_is_one_part_with_all_of_its_tasks() -> None:
    dog = Watchdog(replace(POLICY, jitter=0))
    parts = [failed("plugin-missing", 0, 2), failed("plugin-missing", 1), failed("time-out", 3)]
    named = PART[:2]

    def look(now: float, running: set[FailedPart]) -> list[tuple[str, FailedPart]]:
        return [(action.action, part_of(action.problem)) for action in dog.look(parts, running, {"east"}, now)]

    assert look(0, set()) == [("wait", (*named, WHOLE))], "nothing is restarted beside it"
    assert look(10, set()) == [("stock-class", (*named, WHOLE))]
    assert look(11, set()) == [("wait", (*named, WHOLE))]
    parts.clear()
    assert look(12, {(*named, None), (*named, 1)}) == []
    assert look(13, {(*named, None), (*named, WHOLE)}) == [("recovered", (*named, WHOLE))]
    assert dog.histories[*named, WHOLE].restarts == (10,)


def test_what_is_left_of_a_lacking_class_right_after_it_was_changed_is_not_told() -> None:
    dog = Watchdog(replace(POLICY, jitter=0))

    def look(now: float, cause: str) -> list[str]:
        return [action.action for action in dog.look([failed(cause)], set(), {"east"}, now)]

    assert [look(0, "plugin-missing"), look(10, "plugin-missing")] == [["wait"], ["stock-class"]]
    assert look(11, "class-missing") == [], "the connector has the stock class, its task still the old trace"
    assert look(12, "authorisation") == ["tell"]
    assert look(41, "class-missing") == ["tell"], "the worker lacks the stock class, too"


def test_a_cluster_that_cannot_be_read_changes_nothing() -> None:
    dog = Watchdog(replace(POLICY, jitter=0))
    looks(dog, 0, 10, 30, 70, 71)
    before = dict(dog.histories)
    assert dog.look([], set(), set(), 100_000) == []
    assert dog.histories == before
    assert looks(dog, 100_001) == [], "it FAILED all the time"


def test_what_is_deleted_is_forgotten() -> None:
    dog = Watchdog(replace(POLICY, jitter=0))
    looks(dog, 0, 10)
    assert dog.look([], set(), {"east"}, 11) == []
    assert dog.histories[PART].restarts == (10,)
    dog.look([], set(), {"east"}, 611)
    assert (dog.histories, dog._problems) == ({}, {})


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 300, allow_nan=False),
        st.lists(st.sampled_from(["fine", "gone", *CAUSES]), min_size=2, max_size=2),
        st.booleans(),
        st.booleans(),
    ),
    max_size=120,
)
POLICIES = st.builds(
    RestartPolicy,
    first_seconds=st.floats(0.1, 60),
    longest_seconds=st.floats(1, 600),
    restarts=st.integers(0, 5),
    window_seconds=st.floats(1, 4000),
    jitter=st.floats(0, 1),
)


@given(EVENTS, POLICIES)
def test_restart_storms_are_impossible(
    events: list[tuple[float, list[str], bool, bool]], policy: RestartPolicy
) -> None:
    """Two tasks do anything at any time; the watchdog looks or not, is frozen or not, sees the cluster or not."""
    dog, now, restarts = Watchdog(policy), 1000.0, dict[FailedPart, list[float]]()
    for after, states, frozen, is_read in events:
        now += after
        problems = [failed(state, task) for task, state in enumerate(states) if state in CAUSES and is_read]
        running = {(*PART[:2], task) for task, state in enumerate(states) if state == "fine" and is_read}
        actions = dog.look(problems, running, {"east"} if is_read else set(), now, frozen=frozen)
        for one in actions:
            if one.action == "restart":
                assert one.problem.retryable
                assert not frozen
                earlier = restarts.setdefault(part_of(one.problem), [])
                recent = [at for at in earlier if now - at <= policy.window_seconds]
                assert not recent or now - recent[-1] >= policy.backoff_seconds(len(recent))
                earlier.append(now)
        assert len({part_of(one.problem) for one in actions if one.action == "restart"}) == sum(
            one.action == "restart" for one in actions
        )
    for times in restarts.values():
        assert all(
            later - first > policy.window_seconds for first, later in zip(times, times[policy.restarts :], strict=False)
        )
        assert all(later - first >= min(policy.first_seconds, policy.longest_seconds, policy.window_seconds)
                   for first, later in itertools.pairwise(times))  # fmt: skip


def test_memory_stays_flat() -> None:
    dog = Watchdog(POLICY)
    for number in range(20_000):
        subject = ProblemSubject("east", f"c{number % 997}", "", (number % 7,))
        dog.look([replace(failed(), subject=subject)], set(), {"east"}, number * 10.0)
    assert len(dog.histories) <= 2


@pytest.mark.parametrize("restarts", [0, 1])
def test_no_restart_at_all_can_be_allowed(restarts: int) -> None:
    policy = replace(POLICY, restarts=restarts, jitter=0)
    assert decided(failed(), RestartHistory(0.0), 100.0, policy) == (restart(1) if restarts else escalate("breaker"))

"""When a flow is rebalanced without a person: over random sequences of looks, on a made clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import Assignment, round_robin
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rules import BalanceHistory, BalanceRules
from mm2mgr.balance.triggers import (
    AutomaticRules,
    FlowLook,
    TaskLoadLook,
    Trigger,
    TriggerDecision,
    TriggerState,
    decide,
)
from mm2mgr.off_peak import OffPeak
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Bounds, Capacity

HOUR, DAY = 3_600.0, 86_400.0
START = 20_000 * DAY  # midnight, UTC
LATE = AutomaticRules(max_lag_seconds=600.0)
BUSY = TaskLoadLook(0, 1.3, 900.0, is_growing=True)
WELL = TaskLoadLook(1, 0.6, 5.0)


def decisions(
    looks: list[FlowLook], rules: AutomaticRules = LATE, every: float = 60.0
) -> list[tuple[str, str | None, str | None]]:
    """Return action, trigger and hold of each look, one after the other; nothing is due by schedule."""
    state, said = TriggerState(), []
    for number, look in enumerate(looks):
        state, decision = decide(state, look, START + number * every, replace(rules, triggers=("overload",)))
        said.append((decision.action, decision.trigger, decision.hold))
    return said


def test_a_task_must_be_overloaded_and_late_in_two_looks_in_a_row() -> None:
    busy, well = FlowLook((BUSY, WELL)), FlowLook((replace(BUSY, share=0.9), WELL))
    assert [action for action, *_ in decisions([busy, busy])] == ["keep", "plan"]
    assert [action for action, *_ in decisions([busy, well, busy, busy])] == ["keep", "keep", "keep", "plan"]
    in_time = FlowLook((replace(BUSY, lag_seconds=600.0),))
    unknown = FlowLook((replace(BUSY, lag_seconds=None), replace(BUSY, share=None)))
    assert {action for action, *_ in decisions([in_time] * 5 + [unknown] * 5)} == {"keep"}
    assert {action for action, *_ in decisions([busy] * 5, AutomaticRules())} == {"keep"}, "no max_lag, nothing is late"


def test_a_tree_by_which_nothing_is_ever_rebalanced_is_told() -> None:
    busy = FlowLook((BUSY,))
    overload: tuple[Trigger, ...] = ("overload",)

    def notes(rules: AutomaticRules) -> tuple[str, ...]:
        return decide(TriggerState(), busy, START, rules)[1].notes

    (note,) = notes(AutomaticRules(triggers=overload))
    assert note.startswith("nothing is ever rebalanced: its tree has no max_lag")
    assert notes(AutomaticRules()) == notes(replace(LATE, triggers=overload)) == ()


def test_a_plan_that_did_not_help_is_not_made_again_at_once() -> None:
    assert [action for action, *_ in decisions([FlowLook((BUSY,))] * 12)].count("plan") == 2


@pytest.mark.parametrize(
    ("look", "rules", "hold"),
    [
        ({"frozen_by": "freeze"}, {}, "frozen"),
        ({"rounds_seconds": None, "unread": "no broker"}, {}, "history"),
        ({"rounds_seconds": (START - HOUR,)}, {}, "rounds"),
        ({"rounds_seconds": (START + 10 * DAY,)}, {}, "rounds"),  # by a clock that is ahead
        ({"tries_seconds": (START - 60,)}, {}, "rounds"),
        ({}, {"windows": (OffPeak(22, 5), OffPeak(12, 13)), "start": 8 * HOUR}, "window"),
        ({"unsettled": "it is PAUSED"}, {}, "settling"),
    ],
)
def test_what_holds_a_round_is_told(look: dict[str, object], rules: dict[str, object], hold: str) -> None:
    made = FlowLook((BUSY,), **look)  # type: ignore[arg-type]
    start = START + float(rules.pop("start", 0.0))  # type: ignore[arg-type]
    state, held = TriggerState(), replace(LATE, **rules)  # type: ignore[arg-type]
    for number in range(3):
        state, decision = decide(state, made, start + 60 * number, held)
    assert (decision.action, decision.trigger, decision.hold) == ("wait", "overload", hold)
    assert decision.reason


def test_rates_that_are_old_make_no_task_overloaded() -> None:
    stale = FlowLook((BUSY,), stale="too old")
    assert {action for action, *_ in decisions([stale] * 5)} == {"keep"}
    _, decision = decide(TriggerState(), stale, START, LATE)
    assert (decision.action, decision.hold) == ("keep", "stale"), "nor is a plan made by schedule"


def test_a_task_that_is_late_without_being_overloaded_is_told_and_not_moved() -> None:
    slow, stuck = TaskLoadLook(0, 0.4, 900.0, is_growing=True), TaskLoadLook(2, 0.4, 900.0, is_still=True)
    catching_up = TaskLoadLook(1, 0.4, 900.0)
    look, state = FlowLook((slow, catching_up, stuck)), TriggerState()
    _, first = decide(state, look, START, LATE)
    assert first.notes == ()
    for number in range(4):
        state, decision = decide(state, look, START + 60 * number, replace(LATE, triggers=("overload",)))
        assert decision.action == "keep"
    about_slow, about_stuck = decision.notes
    assert ("target slow" in about_slow, "poison record" in about_stuck) == (True, True)
    assert (about_slow.startswith("task 0"), about_stuck.startswith("task 2")) == (True, True)


def test_the_next_round_is_after_the_cool_down_the_day_and_within_the_window() -> None:
    rules = replace(LATE, windows=(OffPeak(22, 5),))
    look = FlowLook((BUSY,), rounds_seconds=(START + 9 * HOUR,))
    _, decision = decide(TriggerState(), look, START + 10 * HOUR, rules)
    assert decision.allowed_at == START + DAY + 22 * HOUR
    _, decision = decide(TriggerState(), replace(look, frozen_by="x"), START + 10 * HOUR, rules)
    assert decision.allowed_at is None
    never = replace(rules, rules=BalanceRules(rounds_per_day=0))
    _, decision = decide(TriggerState(), FlowLook((BUSY,)), START + 23 * HOUR, never)
    assert (decision.hold, decision.allowed_at) == ("rounds", None)


@dataclass
class Loop:
    """The loop as the operation runs it: what it writes goes into the history, which outlives the process."""

    rules: AutomaticRules
    state: TriggerState = field(default_factory=TriggerState)
    rounds: list[float] = field(default_factory=list)
    tries: list[float] = field(default_factory=list)

    def look(self, look: FlowLook, now: float, *, fails: bool = False) -> TriggerDecision:
        """Look, and write whatever plan is asked for."""
        known = look.rounds_seconds is not None
        look = replace(look, rounds_seconds=tuple(self.rounds) if known else None, tries_seconds=tuple(self.tries))
        self.state, decision = decide(self.state, look, now, self.rules)
        if decision.action == "plan":
            self.state = self.state.after_try(now)
            self.tries.append(now)
            if not fails:
                self.rounds.append(now)
        return decision


@st.composite
def sequences(draw: st.DrawFn) -> tuple[AutomaticRules, list[tuple[float, FlowLook, str]]]:
    """Draw rules, and looks with the seconds since the one before, and what happens: nothing, a kill, a failed write."""
    spans = st.tuples(st.integers(0, 23), st.integers(0, 23)).map(lambda hours: OffPeak(*hours))
    rules = AutomaticRules(
        BalanceRules(cool_down_seconds=draw(st.sampled_from([0.0, 60.0, HOUR, 2 * DAY])), rounds_per_day=draw(st.integers(0, 3))),
        draw(st.sampled_from([("overload", "schedule"), ("overload",), ("schedule",), ()])),
        draw(st.integers(1, 4)),
        tuple(draw(st.lists(spans, max_size=2))),
        draw(st.sampled_from([None, 600.0])),
    )  # fmt: skip
    tasks = st.lists(
        st.builds(
            TaskLoadLook,
            st.integers(0, 3),
            st.sampled_from([None, 0.5, 1.0, 1.4]),
            st.sampled_from([None, 10.0, 900.0]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=4,
    ).map(tuple)
    looks = st.builds(
        FlowLook,
        tasks,
        st.sampled_from([(), (), (), None]),
        frozen_by=st.sampled_from(["", "", "freeze"]),
        stale=st.sampled_from(["", "", "too old"]),
        unsettled=st.sampled_from(["", "", "it is PAUSED"]),
    )
    steps = st.tuples(
        st.sampled_from([0.0, 10.0, 60.0, 700.0, HOUR, 5 * HOUR]), looks, st.sampled_from(["", "", "killed", "fails"])
    )
    return rules, draw(st.lists(steps, min_size=1, max_size=60))


@given(sequences())
def test_no_sequence_of_looks_makes_more_rounds_than_are_allowed(
    drawn: tuple[AutomaticRules, list[tuple[float, FlowLook, str]]],
) -> None:
    rules, steps = drawn
    loop, now = Loop(rules), START
    for seconds, look, event in steps:
        now += seconds
        if event == "killed":
            loop.state = TriggerState()
        before = list(loop.tries)
        decision = loop.look(look, now, fails=event == "fails")
        if decision.action != "plan":
            continue
        assert decision.trigger in rules.triggers
        assert not look.frozen_by
        assert look.rounds_seconds is not None
        assert not look.stale
        assert not look.unsettled
        assert not rules.windows or any(window.contains(now) for window in rules.windows)
        assert all(now - at >= rules.rules.cool_down_seconds for at in before)
        if event != "fails":
            assert sum(now - at < DAY for at in loop.rounds) <= rules.rules.rounds_per_day
    assert len(set(loop.rounds)) == len(loop.rounds) or rules.rules.cool_down_seconds == 0


@pytest.mark.parametrize("drifts", [True, False])
def test_a_month_of_drift_restarts_a_connector_at_most_once_a_day_and_none_without_a_change(drifts: bool) -> None:
    """Looks every hour for 30 days, mm2mgr killed now and then; the planner is the real one."""
    draw = random.Random(7)
    partitions = [TopicPartition(f"t{number % 6}", number // 6) for number in range(48)]
    rates = {partition: draw.paretovariate(1.3) * 100_000.0 for partition in partitions}
    capacity = sum(rates.values()) / 6 / 0.7
    rules = BalanceRules(Capacity(capacity, 0.7), Bounds(1, 8, 500))
    assignment: Assignment = round_robin(partitions, 8)
    loop, written = Loop(AutomaticRules(rules)), list[float]()
    for number in range(30 * 24):
        now = START + HOUR * number
        if drifts and number % 6 == 0:
            rates = {partition: rate * draw.lognormvariate(0.0, 0.08) for partition, rate in rates.items()}
        if draw.random() < 0.05:
            loop.state = TriggerState()
        look = FlowLook(rounds_seconds=tuple(written))
        loop.state, decision = decide(loop.state, look, now, loop.rules)
        if decision.action != "plan":
            continue
        seen = plan_balance(partitions, rates, assignment, rules, BalanceHistory(now - 60)).look
        assert seen is not None
        plan = plan_balance(partitions, rates, assignment, rules, BalanceHistory(now, (seen,), tuple(written)))
        if plan.is_change:
            loop.state = loop.state.after_try(now)
            written.append(now)
            assignment = plan.assignment
    assert written
    assert all(later - earlier >= DAY for earlier, later in pairwise(written))
    if not drifts:
        assert len(written) == 1, "the first one makes it even, and then nothing changes"

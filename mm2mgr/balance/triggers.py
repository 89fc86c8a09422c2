"""When a flow is rebalanced without a person: one value of state and one function of it, a look, and the time.

A plan is made for a task that gets more than it is planned to carry and is late, in several looks in a row, or as it is
due by schedule. It is written only while nothing holds it: a freeze file, a history that cannot be read, rates that are
old, a connector that settles, the cool-down, the rounds of a day, or the hours of the day.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from mm2mgr.balance.rules import BalanceRules
from mm2mgr.off_peak import OffPeak, next_in
from mm2mgr.text import list_names, number_of, span_text

Trigger = Literal["overload", "schedule"]
Hold = Literal["frozen", "history", "stale", "settling", "rounds", "window"]
Action = Literal["plan", "wait", "keep"]
TRIGGERS: tuple[Trigger, ...] = ("overload", "schedule")
LASTING_HOLDS: frozenset[Hold] = frozenset({"frozen", "history", "stale"})
"""Those that a person has to end: they are told also while nothing asks for a round."""
_NEVER_LATE = (
    "nothing is ever rebalanced: its tree has no max_lag, so that no task is late, and no trigger but overload"
)
PAUSE_SECONDS = 600.0
"""Between two plans for one trigger: roll-ups are made by the hour."""
STANDBY_SECONDS = 60.0
"""The same after another process held the lease."""


@dataclass(frozen=True)
class AutomaticRules:
    """What a flow's tree says of automatic rebalances. `max_lag_seconds`: None, so that no task is late.

    `looks`: in how many in a row a task must be overloaded and late. `windows`: none are all hours.
    """

    rules: BalanceRules = BalanceRules()
    triggers: Collection[Trigger] = TRIGGERS
    looks: int = 2
    windows: tuple[OffPeak, ...] = ()
    max_lag_seconds: float | None = None


@dataclass(frozen=True)
class TaskLoadLook:
    """A task in one look. `share`: what it gets, of what it is planned to carry; None: unknown. `lag_seconds`: None
    where unknown.

    `is_growing`: whether its lag grows; `is_still`: whether it mirrors nothing although records wait.
    """

    task: int
    share: float | None = None
    lag_seconds: float | None = None
    is_growing: bool = False
    is_still: bool = False


@dataclass(frozen=True)
class FlowLook:
    """One look at a flow. `rounds_seconds`: when its tasks were restarted for another assignment, `tries_seconds`: when
    that was begun, done or not; None: the history could not be read, for the reason in `unread`.

    `frozen_by`: the file that exists. `stale`: why there are no rates to judge by, `unsettled`: why the connector
    cannot be written now; empty where they are, and where it can.
    """

    tasks: tuple[TaskLoadLook, ...] = ()
    rounds_seconds: tuple[float, ...] | None = ()
    tries_seconds: tuple[float, ...] = ()
    unread: str = ""
    frozen_by: str = ""
    stale: str = ""
    unsettled: str = ""


@dataclass(frozen=True)
class TriggerState:
    """What one look leaves for the next. `overloaded`: looks in a row in which a task was overloaded and late, all of
    them after the round at `since_seconds`; `late`: by task, looks in a row in which it was late without that.

    `planned_at`: when the last plan for each trigger was made; `tried_at`: when this process last began to write.
    """

    overloaded: int = 0
    since_seconds: float = -math.inf
    late: tuple[tuple[int, int], ...] = ()
    planned_at: tuple[tuple[Trigger, float], ...] = ()
    tried_at: float = -math.inf

    def after_try(self, now: float) -> TriggerState:
        """Return the state after a write was begun: another one waits for the cool-down, whatever became of it."""
        return replace(self, tried_at=now, overloaded=0)

    def after_standby(self, now: float) -> TriggerState:
        """Return the state after another process held the lease: in a minute a plan is made again, as that process may
        have been killed, and its lease ends within that time."""
        latest = now - PAUSE_SECONDS + STANDBY_SECONDS
        return replace(self, planned_at=tuple((trigger, min(at, latest)) for trigger, at in self.planned_at))

    def may_plan(self, trigger: Trigger, now: float) -> bool:
        """Tell whether the last plan for this trigger is long enough ago, by a clock that may be set back."""
        return not 0 <= now - dict(self.planned_at).get(trigger, -math.inf) < PAUSE_SECONDS


@dataclass(frozen=True)
class TriggerDecision:
    """What to do: `plan` (make a plan, and write it where it is worth a restart), `wait` (something asks for it, and
    `hold` says what holds it), or `keep`.

    `reason`: in words. `notes`: of tasks that are late and not overloaded, and of a tree by which none is ever late.
    `allowed_at`: when a round may be next, in seconds since 1970; None while nobody can tell.
    """

    action: Action
    trigger: Trigger | None = None
    hold: Hold | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    allowed_at: float | None = None

    @property
    def is_held_for_good(self) -> bool:
        """Whether a person has to end what holds it."""
        return self.hold in LASTING_HOLDS


def decide(
    state: TriggerState, look: FlowLook, now: float, rules: AutomaticRules
) -> tuple[TriggerState, TriggerDecision]:
    """Decide about one flow after one look. `now`: seconds since 1970; a look at the same time as the one before, or
    earlier, is one look more all the same."""
    newest = max(look.rounds_seconds or (), default=-math.inf)
    if newest > state.since_seconds:
        state = replace(state, overloaded=0, since_seconds=newest)
    busy = _overloaded_tasks(look, rules)
    late = _tasks_late_for_another_reason(look, rules)
    counts = dict(state.late)
    state = replace(
        state,
        overloaded=state.overloaded + 1 if busy else 0,
        late=tuple((task.task, counts.get(task.task, 0) + 1) for task in late),
    )
    notes = tuple(_note(task) for task in late if dict(state.late)[task.task] >= rules.looks)
    if rules.max_lag_seconds is None and set(rules.triggers) == {"overload"}:
        notes = (*notes, _NEVER_LATE)
    trigger: Trigger | None = None
    if state.overloaded >= rules.looks and "overload" in rules.triggers and state.may_plan("overload", now):
        trigger = "overload"
    elif "schedule" in rules.triggers and state.may_plan("schedule", now):
        trigger = "schedule"
    hold, reason, allowed_at = _hold(state, look, now, rules)
    if trigger is None:
        return state, TriggerDecision("keep", None, hold, reason if hold in LASTING_HOLDS else "", notes, allowed_at)
    sentence = _busy_text(busy, rules) if trigger == "overload" else ""
    if hold:
        is_asked = trigger == "overload"
        return state, TriggerDecision(
            "wait" if is_asked else "keep", trigger, hold, _join(sentence, reason), notes, allowed_at
        )
    state = replace(state, planned_at=tuple({**dict(state.planned_at), trigger: now}.items()))
    return state, TriggerDecision("plan", trigger, None, sentence, notes, allowed_at)


def hold_of(state: TriggerState, look: FlowLook, now: float, rules: AutomaticRules) -> tuple[Hold | None, str]:
    """Return what holds a round now, and in words; to be asked again with a look that was made under the lease."""
    return _hold(state, look, now, rules)[:2]


def holds_of_tree(look: FlowLook, now: float, rules: AutomaticRules) -> tuple[str, ...]:
    """Say what holds a round now, all of it: for a person, who may write all the same."""
    return tuple(reason for _, reason in _holds(look, now, rules, -math.inf))


def _hold(
    state: TriggerState, look: FlowLook, now: float, rules: AutomaticRules
) -> tuple[Hold | None, str, float | None]:
    """Return what holds a round now, in words, and when the next one may be."""
    tried_at = min(max((state.tried_at, *look.tries_seconds)), now)
    due = max(rules.rules.allowed_at(look.rounds_seconds or (), now), tried_at + rules.rules.cool_down_seconds)
    is_known = not look.frozen_by and look.rounds_seconds is not None and due < math.inf
    hold, reason = next(_holds(look, now, rules, tried_at), (None, ""))
    return hold, reason, next_in(rules.windows, due) if is_known else None


def _holds(look: FlowLook, now: float, rules: AutomaticRules, tried_at: float) -> Iterator[tuple[Hold, str]]:
    """Yield all that holds a round now, and in words."""
    if look.frozen_by:
        yield "frozen", f"{look.frozen_by} exists"
    if look.rounds_seconds is None:
        yield "history", f"the history was not read, so that the rounds of today are unknown: {look.unread}"
    elif reason := rules.rules.wait_reason(look.rounds_seconds, now):
        yield "rounds", reason
    if now < tried_at + rules.rules.cool_down_seconds:
        yield "rounds", f"the last try was {span_text(now - tried_at)} ago"
    if next_in(rules.windows, now) > now:
        yield "window", f"only in {list_names([str(window) for window in rules.windows])}"
    if look.stale:
        yield "stale", look.stale
    if look.unsettled:
        yield "settling", look.unsettled


def _overloaded_tasks(look: FlowLook, rules: AutomaticRules) -> list[TaskLoadLook]:
    """Return the tasks that get more than they are planned to carry and are late; none by rates that are old."""
    if look.stale:
        return []
    return [task for task in _late_tasks(look, rules) if task.share is not None and task.share > 1]


def _tasks_late_for_another_reason(look: FlowLook, rules: AutomaticRules) -> list[TaskLoadLook]:
    """Return the tasks that are late although they get no more than they can carry."""
    if look.stale:
        return []
    late = (task for task in _late_tasks(look, rules) if task.share is not None and task.share <= 1)
    return [task for task in late if task.is_growing or task.is_still]


def _late_tasks(look: FlowLook, rules: AutomaticRules) -> Iterable[TaskLoadLook]:
    most = rules.max_lag_seconds
    return (task for task in look.tasks if most is not None and (task.lag_seconds or 0.0) > most)


def _note(task: TaskLoadLook) -> str:
    text = f"task {task.task} gets {_percent(task.share)} of what it is planned to carry, and is"
    text = f"{text} {span_text(task.lag_seconds or 0.0)} late: another assignment does not help"
    if task.is_still:
        return f"{text}; it mirrors nothing, as behind a record that it cannot read or write (poison record)"
    return f"{text}; the target or the link takes less than it sends (target slow)"


def _busy_text(busy: Iterable[TaskLoadLook], rules: AutomaticRules) -> str:
    task = max(busy, key=lambda task: task.share or 0.0)
    late = f"{span_text(task.lag_seconds or 0.0)} late, {span_text(rules.max_lag_seconds or 0.0)} allowed"
    looks = number_of(rules.looks, "look")
    return f"task {task.task} gets {_percent(task.share)} of what it is planned to carry and is {late}, in {looks}"


def _percent(share: float | None) -> str:
    return f"{(share or 0.0) * 100:.0f} %"


def _join(*texts: str) -> str:
    return "; ".join(filter(None, texts))

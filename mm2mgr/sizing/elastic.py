"""Elastic flows: the tasks that the hours to come ask for, up at once, down one step off-peak.

A flow is sized by what its past weeks carried in these hours of the week, at today's level. So it has its tasks before
the peak of a day comes, and not in it; what came once only is no peak. Each change restarts all tasks of a connector:
so one up takes the whole coming day, and one down has to hold for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.load import Hours
from mm2mgr.sizing.scenario import Scenario, size_scenario
from mm2mgr.sizing.stability import Decision, Policy, blind_reason, change, next_below, not_worth_it, stay
from mm2mgr.sizing.tasks import SizedFlow
from mm2mgr.weeks import DAY_HOURS, WEEK_HOURS, LoadWeek, hour_of_week, week_of_load

if TYPE_CHECKING:
    from mm2mgr.sizing.load import Array

NEAR_HOURS = 3
"""A number that is too small for these hours is raised now."""
HOLDS_HOURS = DAY_HOURS
"""How long a new number has to hold, as far as the week tells."""
BETWEEN_STEPS_SECONDS = 20 * 3_600.0
"""The least time from a change to a step down: one step per night, whatever hour `size` runs at."""
STALE_HOURS = 3
_LEAST_WEEKS = 2
_NOW_HOURS = 2


@dataclass(frozen=True)
class ComingHours:
    """A flow sized for the hours to come: for the next ones (`near`), and for as long as a number has to hold (`day`).

    `is_off_peak`: whether this hour is among the quietest of the week. `reason`: what it was sized by, as a sentence.
    """

    near: SizedFlow
    day: SizedFlow
    is_off_peak: bool
    reason: str

    @property
    def as_sized(self) -> SizedFlow:
        """The flow as sized for the day; what it has today is judged by the next hours."""
        sizing = replace(self.day.sizing, now=self.near.sizing.now, reasons=(self.reason, *self.day.sizing.reasons))
        return replace(self.day, sizing=sizing)


def coming_hours(scenario: Scenario, hours: Sequence[int], now_seconds: float) -> ComingHours | str:
    """Size a flow for the hours to come; else the reason why it cannot be, with which nothing changes.

    `hours`: those of the scenario's rates, since 1970, in rising order.
    """
    now_hour = int(now_seconds // 3_600)
    rates = {name: rate for name, rate in scenario.rates.items() if np.size(rate) == len(hours)}
    if not rates:
        return "nothing of it was measured"
    if now_hour - hours[-1] > STALE_HOURS:
        return f"nothing was measured in the last {now_hour - hours[-1] - 1} hours"
    measured = _MeasuredHours(rates, hours)
    week = week_of_load(dict(zip(hours, measured.total.tolist(), strict=True)), hours[-1])
    if week is None or week.weeks < _LEAST_WEEKS or hours[-1] - hours[0] < WEEK_HOURS:
        return f"it follows the week once {_LEAST_WEEKS} weeks are measured"
    level = measured.level(week)
    near, day = (
        _size_by(scenario, measured.expected_rates(week, level, range(now_hour, now_hour + span)))
        for span in (NEAR_HOURS, HOLDS_HOURS)
    )
    above = f", {level:.2f} times that" if level > 1 else ""
    reason = f"Elastic: sized for the coming {HOLDS_HOURS} hours, by the same hours of {week.weeks} weeks{above}."
    return ComingHours(near, day, week.is_off_peak(now_hour), reason)


class _MeasuredHours:
    """Rates of partitions by hour, and what they add up to."""

    def __init__(self, rates: Mapping[TopicPartition, Hours], hours: Sequence[int]) -> None:
        self._rates, self._hours = rates, hours
        self.total: Array = np.zeros(len(hours))
        for rate in rates.values():
            self.total += rate

    def level(self, week: LoadWeek) -> float:
        """Return how many times the expected load there is now, where it is more in each of the last two hours."""
        hours = self._hours[-_NOW_HOURS:]
        expected = [week.peaks[hour_of_week(hour)] for hour in hours]
        if hours[-1] - hours[0] >= _NOW_HOURS or not all(expected):
            return 1.0
        ratios = [float(load) / peak for load, peak in zip(self.total[-_NOW_HOURS:], expected, strict=True)]
        return max(1.0, min(ratios))

    def expected_rates(self, week: LoadWeek, level: float, coming: Iterable[int]) -> dict[TopicPartition, Hours]:
        """Return the rates to expect in coming hours: those of the past hour that has the second highest load of its
        hour of the week, at today's level."""
        busiest_first = np.argsort(-self.total, kind="stable").tolist()
        by_hour: dict[int, list[int]] = {}
        for column in busiest_first:
            by_hour.setdefault(hour_of_week(self._hours[column]), []).append(column)
        places = [hour_of_week(hour) for hour in coming]
        columns = [by_hour[place][1] if len(by_hour.get(place, ())) > 1 else busiest_first[1] for place in places]
        peaks, loads = np.array([week.peaks[place] * level for place in places]), self.total[columns]
        factors = np.divide(peaks, loads, out=np.ones(len(columns)), where=loads > 0)
        return {partition: np.asarray(rate)[columns] * factors for partition, rate in self._rates.items()}


def _size_by(scenario: Scenario, rates: Mapping[TopicPartition, Hours]) -> SizedFlow:
    rules = replace(scenario.rules, statistic="max")
    return size_scenario(replace(scenario, rates={**scenario.rates, **rates}, rules=rules))


def decide_elastic(
    coming: ComingHours | str, sized: SizedFlow, before: Decision | None, policy: Policy, when_seconds: int
) -> Decision:
    """Decide for one elastic flow; `sized` is its sizing by all hours, for where the coming ones are not known."""
    decision = _decide(coming, sized, before, policy, when_seconds)
    if isinstance(coming, str) or not (decision.is_saving and coming.day.load.fits(decision.tasks)):
        return decision
    return replace(decision, holds_until_seconds=when_seconds + HOLDS_HOURS * 3_600)


def _decide(
    coming: ComingHours | str, sized: SizedFlow, before: Decision | None, policy: Policy, when_seconds: int
) -> Decision:
    if before is None or before.tasks > sized.most:  # people lowered the limit, or partitions are gone
        first = sized if isinstance(coming, str) else coming.day
        tasks = first.sizing.tasks
        return Decision(tasks, when_seconds) if before is None else change(first, before, tasks, when_seconds)
    if isinstance(coming, str):
        return replace(before, reasons=(f"Stays at {before.tasks}: {coming}.",))
    if (reason := blind_reason(sized, policy)) is not None:
        return stay(coming.day.sizing, before, reason)
    if before.tasks < coming.day.bounds.minimum or not coming.near.load.fits(before.tasks):
        return _grow(coming.day, before, policy, when_seconds)
    return _shrink(coming, before, policy, when_seconds)


def _shrink(coming: ComingHours, before: Decision, policy: Policy, when_seconds: int) -> Decision:
    step = next_below(coming.day, before.tasks, policy.hysteresis)
    if step is None:
        return before
    if not coming.is_off_peak:
        return stay(coming.day.sizing, before, "tasks are given up off-peak")
    if before.changed_seconds is not None and when_seconds - before.changed_seconds < BETWEEN_STEPS_SECONDS:
        hours = BETWEEN_STEPS_SECONDS / 3_600
        return stay(coming.day.sizing, before, f"the last change was less than {hours:g} h ago")
    return change(coming.day, before, step, when_seconds)


def _grow(day: SizedFlow, before: Decision, policy: Policy, when_seconds: int) -> Decision:
    """Raise the tasks to the next number that holds for the day, with room for a small rise where that is allowed;
    where none does, to what relieves the busiest most."""
    most = range(max(day.load.least, day.bounds.minimum, before.tasks + 1), day.most + 1)
    fitting = (tasks for share in (policy.hysteresis, 1.0) for tasks in most if day.load.fits(tasks, share))
    more = next(fitting, day.sizing.tasks)
    if more == before.tasks:
        return before
    raised = replace(day, sizing=replace(day.sizing, tasks=more))
    worthless = not_worth_it(raised, before, policy)
    return stay(raised.sizing, before, worthless) if worthless else change(raised, before, more, when_seconds)

"""When `reconcile` acts: the next round, which Connect clusters rest after failures, and which updates wait for a good
moment, since they only lower the number of tasks. `watch` has the same rounds. Pure: times and chance come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.assignment import moved_partitions
from mm2mgr.comparison.differences import Named, lowers_tasks
from mm2mgr.off_peak import OffPeak
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.remarks import Remark
from mm2mgr.text import list_names, number_of

_JITTER = 0.1
LONGEST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True)
class RoundSchedule:
    """A round `every_seconds`; a Connect cluster that fails waits twice as long each time, ten minutes at most.

    `failures` are in a row; `due` is when a failing cluster is asked again, on the clock that `now` is of.
    """

    every_seconds: float
    failures: Mapping[str, int] = field(default_factory=dict)
    due: Mapping[str, float] = field(default_factory=dict)

    def after_round(self, now: float, asked: Iterable[str], failed: Iterable[str], chance: float) -> RoundSchedule:
        """Return the schedule after a round; `chance`: 0 to 1. Clusters that were not asked stay as they are."""
        failures, due, failing = dict(self.failures), dict(self.due), set(failed)
        for name in asked:
            failures.pop(name, None)
            due.pop(name, None)
            if name in failing:
                failures[name] = self.failures.get(name, 0) + 1
                due[name] = now + self._spread(self._backoff(failures[name]), chance)
        return RoundSchedule(self.every_seconds, failures, due)

    def resting(self, now: float) -> dict[str, float]:
        """Return the Connect clusters that are not asked now, each with the seconds until it is."""
        return {name: due - now for name, due in self.due.items() if due > now}

    def pause(self, chance: float) -> float:
        """Return the seconds between rounds: 10 % more or less, so that processes begun together drift apart."""
        return self._spread(self.every_seconds, chance)

    def _backoff(self, failures: int) -> float:
        longest = max(self.every_seconds, LONGEST_BACKOFF_SECONDS)
        return min(longest, self.every_seconds * 2.0 ** min(failures, 30))

    def _spread(self, seconds: float, chance: float) -> float:
        return seconds * (1 - _JITTER + 2 * _JITTER * chance)


# --- deletes that wait ------------------------------------------------------------------------------------------------

UNCHANGED_SECONDS = 60.0
"""How long readings of a tree must be equal before a loop deletes what they leave out: a file may be away while it is
replaced.
"""


@dataclass(frozen=True)
class TreeReadings:
    """The newest reading of a tree, and since when readings have been equal to it, on the clock that `now` is of."""

    tree: object = None
    since: float = 0.0

    def after_reading(self, tree: object, now: float) -> TreeReadings:
        """Return what is known after a further reading."""
        return self if self.tree == tree else TreeReadings(tree, now)

    def is_confirmed(self, now: float) -> bool:
        """Tell whether an earlier reading, long enough ago, and all since then were equal to the newest."""
        return self.tree is not None and now - self.since >= UNCHANGED_SECONDS


# --- restarts that wait -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RestartRules:
    """When fewer tasks of a flow are applied: so long after its sizing changed, in these hours (none: in all)."""

    cool_down_seconds: float = 86_400.0
    off_peak: tuple[OffPeak, ...] = ()


@dataclass(frozen=True)
class Saving:
    """What the reviewed sizing says of a flow that gets fewer tasks although more would fit as well.

    `changed_seconds`: since when (None: it does not say); `partitions`: how many the flow has (None: it does not say).
    `holds_until_seconds`: until when an elastic flow has enough of them; it waits for no cool-down. `rules`: what the
    tree says of the flow.
    """

    tasks: int
    changed_seconds: int | None = None
    partitions: int | None = None
    holds_until_seconds: int | None = None
    rules: RestartRules = RestartRules()


def waiting(
    plan: Plan, savings: Mapping[str, Saving], now_seconds: float, moved_at_once: int | None = None
) -> dict[Named, str]:
    """Return the connectors whose update waits, each with the reason; `savings` are by flow id.

    Connectors share the budget of partitions that move at once (None: any number) in the order of the plan.
    """
    reasons, left = {}, moved_at_once
    for change in plan.changes:
        saving = _saving(change, savings)
        if saving is None:
            continue
        (key,) = change.keys
        reason = _too_early(saving, now_seconds)
        if reason is None and left is not None:
            every = saving.partitions
            moved = None if every is None else moved_partitions(every, int(key.before or 0), saving.tasks)
            if moved is None:
                reason = "the number of partitions that would move is unknown, run mm2mgr size (defaults: move_budget)"
            elif moved > left:
                reason = (
                    f"{number_of(moved, 'partition')} would move, {left} left of the budget (defaults: move_budget)"
                )
            else:
                left -= moved
        if reason:
            reasons[change.full_name] = reason
    return reasons


def with_waiting(plan: Plan, reasons: Mapping[Named, str]) -> Plan:
    """Return the plan with these updates held: shown with their reason, and not written."""

    def hold(change: Change) -> Change:
        reason = reasons.get(change.full_name)
        if not reason or not _lowers_tasks(change):
            return change
        (key,) = change.keys
        sentence = f"waiting with {key.after} instead of {key.before} tasks: {reason}"
        return change.with_remarks(Remark(reason, "waits"), Remark(sentence, "warns"))

    return replace(plan, clusters=tuple(part.each(hold) for part in plan.clusters))


def _saving(change: Change, savings: Mapping[str, Saving]) -> Saving | None:
    """Return the saving that an update is for; None where it is for something else."""
    if not _lowers_tasks(change):
        return None
    savings_of_change = (savings[flow] for flow in change.flows if flow in savings)
    return next((saving for saving in savings_of_change if str(saving.tasks) == change.keys[0].after), None)


def _lowers_tasks(change: Change) -> bool:
    # What follows a deletion goes with it: else nothing did what both do, until its time has come.
    return change.action == "update" and change.state is None and not change.follows and lowers_tasks(change.keys)


def _too_early(saving: Saving, now_seconds: float) -> str | None:
    changed, until, rules = saving.changed_seconds, saving.holds_until_seconds, saving.rules
    if until is not None and now_seconds >= until:
        return "they were enough for the hours that it was sized for, which are over (mm2mgr size)"
    if until is None and changed is not None and now_seconds < changed + rules.cool_down_seconds:
        hours = rules.cool_down_seconds / 3600
        span = f"{hours / 24:g} d" if hours >= 24 else f"{hours:g} h"
        return f"{span} after the last change of its sizing (tasks: cool_down)"
    if rules.off_peak and not any(hours.contains(now_seconds) for hours in rules.off_peak):
        return f"for {list_names(list(map(str, rules.off_peak)))} (tasks: off_peak)"
    return None

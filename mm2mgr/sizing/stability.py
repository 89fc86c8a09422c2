"""Whether a new number of tasks is worth a restart: up at once, down step by step, no change without measurements.

All tasks of a connector restart when their number changes, so a change has to be worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mm2mgr.sizing.tasks import SizedFlow, Sizing
from mm2mgr.sizing.words import rate_text
from mm2mgr.text import number_of


@dataclass(frozen=True)
class OffPeak:
    """The hours (UTC) in which restarts do not hurt, from `start_hour` up to and without `end_hour`; may span midnight."""

    start_hour: int
    end_hour: int

    def contains(self, when_seconds: int) -> bool:
        """Tell whether a moment (since 1970) is in these hours; equal hours mean the whole day."""
        length = (self.end_hour - self.start_hour) % 24 or 24
        return (when_seconds // 3600 - self.start_hour) % 24 < length

    def __str__(self) -> str:
        return f"{self.start_hour:02d}-{self.end_hour:02d} h UTC"


@dataclass(frozen=True)
class Policy:
    """When fewer tasks are taken.

    `hysteresis`: share of the usable capacity that the busiest task may have afterwards, so that the next small rise does
    not undo the step. `least_coverage`: share of partitions with a rate of their own, below which nothing changes.
    `moved_partitions`: how many partitions may change their task in one run by going down; None: any number.
    """

    cool_down_seconds: float = 86_400.0
    hysteresis: float = 0.9
    least_coverage: float = 0.5
    off_peak: OffPeak | None = None
    moved_partitions: int | None = None


@dataclass(frozen=True)
class EarlierSizing:
    """What the reviewed file says: the number, and when it last changed (seconds since 1970; None: it does not say)."""

    tasks: int
    changed_seconds: int | None = None


@dataclass(frozen=True)
class Decision:
    """The number to write, since when it holds, how many partitions change their task for it, and why it is not another."""

    tasks: int
    changed_seconds: int | None
    moved_partitions: int
    reasons: tuple[str, ...]


def decide(
    evidence: Mapping[str, SizedFlow], before: Mapping[str, EarlierSizing], policy: Policy, when_seconds: int
) -> dict[str, Decision]:
    """Decide for each flow id; flows that go down share the budget of moved partitions in the order given."""
    decisions, left = {}, policy.moved_partitions
    for flow_id, each in evidence.items():
        decision = _decide(each, before.get(flow_id), policy, when_seconds)
        if left is not None and flow_id in before and _may_wait(each, before[flow_id], decision):
            if decision.moved_partitions > left:
                decision = _over_budget(each.sizing, before[flow_id], decision.moved_partitions, left)
            left -= decision.moved_partitions
        decisions[flow_id] = decision
    return decisions


def moved(partitions: int, before: int, after: int) -> int:
    """Count the partitions that another task gets when the number of tasks changes: position p goes to task p mod n."""
    return sum(position % before != position % after for position in range(partitions))


def _decide(evidence: SizedFlow, before: EarlierSizing | None, policy: Policy, when_seconds: int) -> Decision:
    sizing = evidence.sizing
    if before is None:
        return Decision(sizing.tasks, when_seconds, 0, ())
    if before.tasks > evidence.most:  # people lowered the limit, or partitions are gone: nothing to weigh
        return _change(evidence, before, sizing.tasks, when_seconds)
    if sizing.tasks == before.tasks:
        return Decision(before.tasks, before.changed_seconds, 0, ())
    why = _blind(evidence, policy)
    if why is None and (sizing.tasks > before.tasks or not evidence.load.fits(before.tasks)):
        why = _not_worth_it(evidence, before, policy)
        return _change(evidence, before, sizing.tasks, when_seconds) if why is None else _stay(sizing, before, why)
    step = _next_below(evidence, before.tasks, policy.hysteresis)
    why = why or _too_early(before, policy, when_seconds)
    if why is None and step is not None:
        return _change(evidence, before, step, when_seconds)
    return _stay(sizing, before, why or _no_room(policy))


def _may_wait(evidence: SizedFlow, before: EarlierSizing, decision: Decision) -> bool:
    """Tell whether a decision is a mere saving: fewer tasks, where those of before fit and are allowed."""
    return decision.tasks < before.tasks <= evidence.most and evidence.load.fits(before.tasks)


def _not_worth_it(evidence: SizedFlow, before: EarlierSizing, policy: Policy) -> str | None:
    """Say why another number is not worth a restart; None where it is, which is at once.

    Mostly that is a larger one. But assignment goes by position, so a flow can be too small with 5 tasks and fit with 3.
    """
    load, wanted = evidence.load, evidence.sizing.tasks
    if before.tasks < evidence.bounds.minimum:
        return None
    if load.fits(before.tasks):
        return "the current tasks fit"
    if not load.fits(wanted) and load.busiest(wanted) > policy.hysteresis * load.busiest(before.tasks):
        return "both are overloaded, and more tasks would barely relieve the busiest one"
    return None


def _blind(evidence: SizedFlow, policy: Policy) -> str | None:
    measured, partitions = evidence.sizing.measured_partitions, len(evidence.load.hours)
    if not measured:
        return "no measurements for this flow; unchanged"
    if measured < policy.least_coverage * partitions:
        needed = f"a change needs {policy.least_coverage * 100:g} %"
        return f"only {measured} of {number_of(partitions, 'partition')} were measured; {needed}"
    return None


def _too_early(before: EarlierSizing, policy: Policy, when_seconds: int) -> str | None:
    changed = before.changed_seconds
    if changed is not None and when_seconds < changed + policy.cool_down_seconds:
        return f"a step down waits {_span(policy.cool_down_seconds)} after the last change"
    if policy.off_peak is not None and not policy.off_peak.contains(when_seconds):
        return f"a step down waits for {policy.off_peak}"
    return None


def _next_below(evidence: SizedFlow, tasks: int, hysteresis: float) -> int | None:
    """Return the next smaller number that fits with room to spare, at the planned rate and in the busiest hour."""
    for fewer in range(tasks - 1, evidence.sizing.tasks - 1, -1):
        if evidence.load.fits(fewer, hysteresis) and evidence.peak.fits(fewer):
            return fewer
    return None


def _no_room(policy: Policy) -> str:
    share = f"{policy.hysteresis * 100:g} % of the usable capacity"
    return f"with fewer tasks the busiest would exceed {share}, or peaks would not fit"


def _change(evidence: SizedFlow, before: EarlierSizing, tasks: int, when_seconds: int) -> Decision:
    partitions = len(evidence.load.hours)
    count = moved(partitions, before.tasks, tasks)
    said = f"Changed from {before.tasks}: {count} of {number_of(partitions, 'partition')} move to another task."
    step = ""
    if tasks < before.tasks and tasks > evidence.sizing.tasks:
        step = (
            f" One step towards {evidence.sizing.tasks}; the busiest handles {rate_text(evidence.load.busiest(tasks))}."
        )
    return Decision(tasks, when_seconds, count, (said + step,))


def _stay(sizing: Sizing, before: EarlierSizing, why: str) -> Decision:
    return Decision(
        before.tasks, before.changed_seconds, 0, (f"Stays at {before.tasks} instead of {sizing.tasks}: {why}.",)
    )


def _over_budget(sizing: Sizing, before: EarlierSizing, needed: int, left: int) -> Decision:
    partitions = number_of(needed, "partition")
    return _stay(sizing, before, f"{partitions} would move, and this run's budget has {left} left")


def _span(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:g} d" if hours >= 24 else f"{hours:g} h"


def settled(evidence: SizedFlow, decision: Decision) -> Sizing:
    """Return the sizing with the number that was decided for, and the reasons for that."""
    busiest = evidence.load.busiest(decision.tasks)
    reasons = (*evidence.sizing.reasons, *decision.reasons)
    return replace(evidence.sizing, tasks=decision.tasks, busiest_bytes_per_second=busiest, reasons=reasons)


def overrides_document(
    sizings: Iterable[Sizing], when_text: str, source_text: str, changed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return {"sizing": {flow id: …}} in the order of flow ids, as it is written below `clusters/overrides/` for review.

    `when_text` is the measured time window, `source_text` what was measured (the statistic and the result it came from),
    `changed` when a flow's number last became another one.
    """
    since = changed or {}
    return {
        "sizing": {
            sizing.flow_id: {
                "tasks_max": sizing.tasks,
                "reason": " ".join(sizing.reasons),
                "bytes_per_second": round(sizing.bytes_per_second),
                "measured": when_text,
                "source": source_text,
                **({"changed": since[sizing.flow_id]} if sizing.flow_id in since else {}),
            }
            for sizing in sorted(sizings, key=lambda one: one.flow_id)
        }
    }

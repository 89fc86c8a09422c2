"""Whether a new number of tasks is worth a restart: up at once, down step by step, no change without measurements.

All tasks of a connector restart when their number changes, so a change has to be worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mm2mgr.sizing.tasks import SizedFlow, Sizing
from mm2mgr.text import number_of, rate_text


@dataclass(frozen=True)
class Policy:
    """When another number is worth a restart.

    `hysteresis`: share of the usable capacity that the busiest task may have after a step down, so that the next small
    rise does not undo it. `least_coverage`: share of partitions with a rate of their own, below which nothing changes.
    """

    hysteresis: float = 0.9
    least_coverage: float = 0.5


@dataclass(frozen=True)
class Decision:
    """The number to write, or that the reviewed file has: since when it holds (seconds since 1970; None: the file does
    not say), how many partitions change their task for it, and why it is not another.

    `is_saving`: it only saves tasks, as the number before fits and is allowed; then its restart can wait.
    `holds_until_seconds`: of an elastic flow, until when fewer tasks are enough; after that they are not to be written.
    """

    tasks: int
    changed_seconds: int | None = None
    moved_partitions: int = 0
    reasons: tuple[str, ...] = ()
    is_saving: bool = False
    holds_until_seconds: int | None = None


def decide(
    evidence: Mapping[str, SizedFlow], before: Mapping[str, Decision], policy: Policy, when_seconds: int
) -> dict[str, Decision]:
    """Decide for each flow id."""
    return {
        flow_id: _decide(flow_evidence, before.get(flow_id), policy, when_seconds)
        for flow_id, flow_evidence in evidence.items()
    }


def _decide(evidence: SizedFlow, before: Decision | None, policy: Policy, when_seconds: int) -> Decision:
    sizing = evidence.sizing
    if before is None:
        return Decision(sizing.tasks, when_seconds)
    if before.tasks > evidence.most:  # people lowered the limit, or partitions are gone: nothing to weigh
        return change(evidence, before, sizing.tasks, when_seconds)
    if sizing.tasks == before.tasks:
        return before
    reason = blind_reason(evidence, policy)
    if reason is None and (sizing.tasks > before.tasks or not evidence.load.fits(before.tasks)):
        reason = not_worth_it(evidence, before, policy)
        return change(evidence, before, sizing.tasks, when_seconds) if reason is None else stay(sizing, before, reason)
    step = next_below(evidence, before.tasks, policy.hysteresis)
    if reason is None and step is not None:
        return change(evidence, before, step, when_seconds)
    share = f"{policy.hysteresis * 100:g} % of the usable capacity"
    return stay(sizing, before, reason or f"with fewer tasks the busiest would exceed {share}, or peaks would not fit")


def not_worth_it(evidence: SizedFlow, before: Decision, policy: Policy) -> str | None:
    """Say why another number is not worth a restart; None where it is, which is at once.

    Mostly that is a larger one. But assignment goes by position: 5 tasks may be too few where 3 fit.
    """
    load, recommended = evidence.load, evidence.sizing.tasks
    if before.tasks < evidence.bounds.minimum:
        return None
    if load.fits(before.tasks):
        return "the current tasks fit"
    if not load.fits(recommended) and load.busiest(recommended) > policy.hysteresis * load.busiest(before.tasks):
        return "both are overloaded, and more tasks would barely relieve the busiest one"
    return None


def blind_reason(evidence: SizedFlow, policy: Policy) -> str | None:
    """Say why too little is measured for any change; None where enough is."""
    measured, partitions = evidence.sizing.measured_partitions, len(evidence.load.hours)
    if not measured:
        return "no measurements for this flow; unchanged"
    if measured < policy.least_coverage * partitions:
        needed = f"a change needs {policy.least_coverage * 100:g} %"
        return f"only {measured} of {number_of(partitions, 'partition')} were measured; {needed}"
    return None


def next_below(evidence: SizedFlow, tasks: int, hysteresis: float) -> int | None:
    """Return the next smaller number that fits with room for a small rise; None where none does."""
    for fewer in range(tasks - 1, evidence.sizing.tasks - 1, -1):
        if evidence.load.fits(fewer, hysteresis) and evidence.peak.fits(fewer):
            return fewer
    return None


def change(evidence: SizedFlow, before: Decision, tasks: int, when_seconds: int) -> Decision:
    """Return the decision for another number."""
    count, reason = _moves(evidence, before.tasks, tasks)
    if evidence.sizing.tasks < tasks < before.tasks:
        busiest = rate_text(evidence.load.busiest(tasks))
        reason += f" One step towards {evidence.sizing.tasks}; the busiest handles {busiest}."
    is_saving = tasks < before.tasks <= evidence.most and evidence.load.fits(before.tasks)
    return Decision(tasks, when_seconds, count, (reason,), is_saving)


def _moves(evidence: SizedFlow, before: int, tasks: int) -> tuple[int, str]:
    """Return how many partitions change their task by the change itself, in words too."""
    if evidence.load.is_balanced:
        return 0, f"Changed from {before}: mm2mgr rebalance moves partitions to as many tasks."
    count, partitions = evidence.load.count_moved(before, tasks), len(evidence.load.hours)
    return count, f"Changed from {before}: {count} of {number_of(partitions, 'partition')} move to another task."


def stay(sizing: Sizing, before: Decision, reason: str) -> Decision:
    """Return the decision before, with why it is kept."""
    return replace(before, reasons=(f"Stays at {before.tasks} instead of {sizing.tasks}: {reason}.",))


def sizing_as_decided(evidence: SizedFlow, decision: Decision) -> Sizing:
    """Return the sizing with the number that was decided for, and the reasons for that."""
    busiest = evidence.load.busiest(decision.tasks)
    reasons = (*evidence.sizing.reasons, *decision.reasons)
    return replace(evidence.sizing, tasks=decision.tasks, busiest_bytes_per_second=busiest, reasons=reasons)


def overrides_document(
    sizings: Iterable[Sizing],
    when_text: str,
    source_text: str,
    changed: Mapping[str, str] | None = None,
    savings: Mapping[str, int] | None = None,
) -> dict[str, dict[str, dict[str, object]]]:
    """Return {"sizing": {flow id: …}} in the order of flow ids, as written to `clusters/overrides/` for review.

    `when_text` is the measured time window, `source_text` what was measured (the statistic and the result it came
    from), `changed` when a flow's number last became another one. `savings`: the partitions of flows whose number only
    saves tasks.
    """
    entries = {}
    for sizing in sorted(sizings, key=lambda partition: partition.flow_id):
        entry: dict[str, object] = {
            "tasks_max": sizing.tasks,
            "reason": " ".join(sizing.reasons),
            "bytes_per_second": round(sizing.bytes_per_second),
            "measured": when_text,
            "source": source_text,
        }
        if changed and sizing.flow_id in changed:
            entry["changed"] = changed[sizing.flow_id]
        if savings and sizing.flow_id in savings:
            entry["saves_tasks"] = True
            entry["partitions"] = savings[sizing.flow_id]
        entries[sizing.flow_id] = entry
    return {"sizing": entries}

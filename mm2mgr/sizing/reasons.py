"""The reasons for a flow's number of tasks, as sentences. Only shares are computed here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.load import Coverage, Load
from mm2mgr.sizing.words import listed, rate_text
from mm2mgr.text import number_of

if TYPE_CHECKING:
    from mm2mgr.sizing.assignment import Assignment
    from mm2mgr.sizing.growth import TopicGrowth
    from mm2mgr.sizing.tasks import HotPartition, Judgement, Rules

_ORDERS = {
    "live": "the order of the running connector",
    "predicted": "the predicted order",
    "guessed": "an order that is not certain, because topic names share a hash bucket",
}


@dataclass(frozen=True)
class SizingFacts:
    """What the sentences are about."""

    assignment: Assignment
    load: Load
    coverage: Coverage
    rules: Rules
    tasks: int
    capped_by: str | None
    hot: Sequence[HotPartition]
    now: Judgement | None
    growth: Mapping[str, TopicGrowth]

    @property
    def judged(self) -> str:
        """Say which of the hours count; empty where there is only one."""
        count = self.load.hours.shape[1]
        return f" ({self.rules.statistic} of {count} hours)" if count > 1 else ""


def sentences(facts: SizingFacts) -> list[str]:
    """Return the reasons in the order of the computation: load, coverage, growth, bounds, assignment, hot partitions, today's number."""
    if not len(facts.load.hours):
        return ["No matching topic exists yet; one task is enough."]
    known = [_load(facts), *_records(facts), _coverage(facts), *_growth(facts)]
    return [*known, *_bounds(facts), *_assigned(facts), *_hot(facts), *_sometimes_hot(facts), *_by_hand(facts)]


def gone(order: Iterable[TopicPartition], measured: Iterable[TopicPartition]) -> list[str]:
    """Name the topics that were measured and are no longer there."""
    missing = sorted({one.topic for one in set(measured) - set(order)})
    return [f"Measured but no longer in Kafka, so ignored: {listed(missing)}."] if missing else []


def _load(facts: SizingFacts) -> str:
    load, capacity = facts.load, facts.rules.capacity
    origin = f" × {capacity.threshold * 100:g} %" + (f"; {capacity.why}" if capacity.why else "")
    usable = f"{rate_text(load.usable)} usable per task ({rate_text(capacity.bytes_per_second)}{origin})"
    total = f"{rate_text(load.total)} over {number_of(len(load.hours), 'partition')}"
    total += f" at the same time{facts.judged}" if facts.judged else ""
    if not load.heavy:
        return f"{total}, divided by {usable}, needs {number_of(load.least, 'task')}."
    heavy = len(load.heavy)
    rest = f"{rate_text(load.rest)} outside of {number_of(heavy, 'hot partition')}"
    needs = f"needs at least {number_of(load.least, 'task')} with {'it' if heavy == 1 else 'those'}"
    return f"{total}; {rest}, divided by {usable}, {needs}."


def _records(facts: SizingFacts) -> list[str]:
    load, capacity = facts.load, facts.rules.capacity
    if load.records is None:
        return []
    usable = f"{load.usable_records:.0f} usable per task ({capacity.records_per_second:.0f} × {capacity.threshold * 100:g} %)"
    return [f"Records are small, so their number is the limit: {load.records:.0f} records/s, {usable}."]


def _growth(facts: SizingFacts) -> list[str]:
    if not facts.growth:
        return []
    most = sorted(facts.growth.items(), key=lambda item: (-item[1].factor, item[0]))
    names = [f"{topic} {one.factor:.1f} times in {number_of(one.weeks, 'week')}" for topic, one in most]
    return [f"Traffic grew: {listed(names)}. Earlier hours count at the level of the newest day."]


def _coverage(facts: SizingFacts) -> str:
    coverage = facts.coverage
    said = f"Of {number_of(len(facts.load.hours), 'partition')}, {coverage.measured} have a rate of their own"
    default = f"the default of {rate_text(facts.rules.default_bytes_per_second)}"
    for count, what in (
        (coverage.topic, "the mean of their topic"),
        (coverage.flow, "the median of the flow"),
        (coverage.default, default),
    ):
        said += f", {count} {'takes' if count == 1 else 'take'} {what}" if count else ""
    return f"{said}."


def _bounds(facts: SizingFacts) -> list[str]:
    load, minimum, tasks = facts.load, facts.rules.bounds.minimum, facts.tasks
    said = []
    if load.least < minimum:
        said.append(f"The configured minimum is {number_of(minimum, 'task')}.")
    if load.least_by_partitions > 1 and load.least_by_partitions == load.least:
        said.append(f"No task may have more than {load.most_partitions} partitions: that needs {load.least} tasks.")
    if facts.capped_by == "partitions":
        said.append(f"Capped at {tasks}, the number of partitions: more tasks would have no partition.")
    if facts.capped_by == "limit":
        said.append(_limited(facts))
    if tasks < load.least:
        each = rate_text(load.total / tasks)
        said.append(f"The load needs {load.least}; with {number_of(tasks, 'task')}, each handles {each} on average.")
    return said


def _limited(facts: SizingFacts) -> str:
    limit = number_of(facts.rules.bounds.limit or facts.tasks, "task")
    if facts.load.least > facts.tasks or facts.rules.bounds.minimum > facts.tasks:
        return f"Capped at the limit of {limit}."
    return f"Capped by the limit of {limit}: no number up to it fits; with {facts.tasks} the busiest task has the least load."


def _assigned(facts: SizingFacts) -> list[str]:
    load, tasks = facts.load, facts.tasks
    busiest = load.busiest(tasks)
    share = f"{rate_text(busiest)}, {load.busiest_share(tasks) * 100:.0f} % of the usable capacity"
    note = f" ({facts.assignment.note})" if facts.assignment.note else ""
    said = f"With round-robin assignment in {_ORDERS[facts.assignment.source]}{note}, the busiest of {number_of(tasks, 'task')} handles {share}."
    first = max(load.least, facts.rules.bounds.minimum)
    if tasks <= first or facts.capped_by:
        return [said]
    over = rate_text(load.busiest(first))
    return [f"{said} With {number_of(first, 'task')}, one would handle {over}."]


def _hot(facts: SizingFacts) -> list[str]:
    if not facts.hot:
        return []
    load = facts.load
    names = [f"{h.topic}-{h.partition} ({rate_text(h.bytes_per_second)}, {h.factor:.1f} times)" for h in facts.hot]
    times = max(math.ceil(one.factor) for one in facts.hot)
    loads = load.per_task(facts.tasks)
    beside = max(loads[place % len(loads)] - load.alone[place] for place in load.heavy)
    return [
        f"Above the usable capacity of one task: {listed(names)}. A partition is read by one task, so adding tasks "
        f"does not help: distribute its keys, give its topic {times} times the partitions, or raise what one task can carry (larger "
        f"fetches and batches, compression). More tasks only take away what it shares its task with: {rate_text(max(0.0, beside))} here."
    ]


def _sometimes_hot(facts: SizingFacts) -> list[str]:
    load = facts.load
    if not load.sometimes_heavy:
        return []
    peaks = load.hours.max(axis=1)
    worst = sorted(load.sometimes_heavy, key=lambda place: -peaks[place])
    names = [f"{facts.assignment.order[place]} ({rate_text(float(peaks[place]))})" for place in worst]
    return [
        f"In some hours a single partition exceeds the usable capacity of a task, and adding tasks does not help: {listed(names)}."
    ]


def _by_hand(facts: SizingFacts) -> list[str]:
    now = facts.now
    if now is None or not now.by_hand:
        return []
    busiest = f"the busiest of {number_of(now.tasks, 'task')} handles {rate_text(now.busiest_bytes_per_second)}"
    verdict = {
        "fits": "that fits" if now.busiest_bytes_per_second <= facts.load.usable else "no other number is better",
        "too small": f"too few, {facts.tasks} are enough",
        "badly dealt": f"overloaded, because busy partitions share a task: {facts.tasks} are enough",
        "more than needed": f"{facts.tasks} are enough",
        "not measured": "not measured, so not judged",
    }[now.verdict]
    return [f"Set by hand: {busiest}; {verdict}."]

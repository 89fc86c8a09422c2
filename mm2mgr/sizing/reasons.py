"""Why a flow gets its number of tasks, in sentences. In: what was computed. Out: text; nothing is computed here but shares."""

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
    from mm2mgr.sizing.deal import Deal
    from mm2mgr.sizing.growth import Growth
    from mm2mgr.sizing.tasks import HotPartition, Judgement, Rules

_ORDERS = {
    "live": "the order of the running connector",
    "predicted": "the order predicted for its connector",
    "guessed": "the order guessed for its connector, because names share a hash",
}


@dataclass(frozen=True)
class Told:
    """What the sentences are about."""

    deal: Deal
    load: Load
    coverage: Coverage
    rules: Rules
    tasks: int
    capped_by: str | None
    hot: Sequence[HotPartition]
    now: Judgement | None
    growth: Mapping[str, Growth]

    @property
    def judged(self) -> str:
        """Say which of the hours count; empty where there is only one."""
        count = self.load.hours.shape[1]
        return f" ({self.rules.statistic} of {count} hours)" if count > 1 else ""


def sentences(told: Told) -> list[str]:
    """Return the reasons in the order of the computation: load, coverage, growth, bounds, deal, hot partitions, today's number."""
    if not len(told.load.hours):
        return ["No partition of this flow exists in Kafka: one task waits for the first."]
    known = [_load(told), *_records(told), _coverage(told), *_growth(told)]
    return [*known, *_bounds(told), *_dealt(told), *_hot(told), *_sometimes_hot(told), *_by_hand(told)]


def gone(order: Iterable[TopicPartition], measured: Iterable[TopicPartition]) -> list[str]:
    """Name the topics that were measured and are no longer there."""
    missing = sorted({one.topic for one in set(measured) - set(order)})
    return [f"Measured but no longer in Kafka, so ignored: {listed(missing)}."] if missing else []


def _load(told: Told) -> str:
    load, capacity = told.load, told.rules.capacity
    origin = f" × {capacity.threshold * 100:g} %" + (f"; {capacity.why}" if capacity.why else "")
    usable = f"{rate_text(load.usable)} usable per task ({rate_text(capacity.bytes_per_second)}{origin})"
    total = f"{rate_text(load.total)} over {number_of(len(load.hours), 'partition')}"
    total += f" at the same time{told.judged}" if told.judged else ""
    if not load.heavy:
        return f"{total}, divided by {usable}, needs {number_of(load.least, 'task')}."
    heavy = len(load.heavy)
    rest = f"{rate_text(load.rest)} outside of {number_of(heavy, 'hot partition')}"
    needs = f"needs at least {number_of(load.least, 'task')} with {'it' if heavy == 1 else 'those'}"
    return f"{total}; {rest}, divided by {usable}, {needs}."


def _records(told: Told) -> list[str]:
    load, capacity = told.load, told.rules.capacity
    if load.records is None:
        return []
    usable = f"{load.usable_records:.0f} usable per task ({capacity.records_per_second:.0f} × {capacity.threshold * 100:g} %)"
    return [f"Its records are small, so their number decides: {load.records:.0f} records/s, {usable}."]


def _growth(told: Told) -> list[str]:
    if not told.growth:
        return []
    most = sorted(told.growth.items(), key=lambda item: (-item[1].factor, item[0]))
    names = [f"{topic} {one.factor:.1f} times in {number_of(one.weeks, 'week')}" for topic, one in most]
    return [f"Traffic grew: {listed(names)}. Earlier hours count at the level of the newest day."]


def _coverage(told: Told) -> str:
    coverage = told.coverage
    said = f"Of {number_of(len(told.load.hours), 'partition')}, {coverage.measured} have a rate of their own"
    default = f"the default of {rate_text(told.rules.default_bytes_per_second)}"
    for count, what in (
        (coverage.topic, "the mean of their topic"),
        (coverage.flow, "the median of the flow"),
        (coverage.default, default),
    ):
        said += f", {count} {'takes' if count == 1 else 'take'} {what}" if count else ""
    return f"{said}."


def _bounds(told: Told) -> list[str]:
    load, minimum, tasks = told.load, told.rules.bounds.minimum, told.tasks
    said = []
    if load.least < minimum:
        said.append(f"The minimum asks for {number_of(minimum, 'task')}.")
    if load.least_by_partitions > 1 and load.least_by_partitions == load.least:
        said.append(f"No task may have more than {load.most_partitions} partitions: that needs {load.least} tasks.")
    if told.capped_by == "partitions":
        said.append(f"Capped at {tasks}, the number of partitions: a task without a partition has nothing to do.")
    if told.capped_by == "limit":
        said.append(_limited(told))
    if tasks < load.least:
        each = rate_text(load.total / tasks)
        said.append(f"The load asks for {load.least}: every task then carries {each} on average.")
    return said


def _limited(told: Told) -> str:
    limit = number_of(told.rules.bounds.limit or told.tasks, "task")
    if told.load.least > told.tasks or told.rules.bounds.minimum > told.tasks:
        return f"Capped at the limit of {limit}."
    return f"Capped by the limit of {limit}: no number up to it fits, and {told.tasks} leaves the least on the busiest."


def _dealt(told: Told) -> list[str]:
    load, tasks = told.load, told.tasks
    busiest = load.busiest(tasks)
    share = f"{rate_text(busiest)}, {load.busiest_share(tasks) * 100:.0f} % of what is usable"
    note = f" ({told.deal.note})" if told.deal.note else ""
    said = f"Dealt in turn in {_ORDERS[told.deal.source]}{note}, the busiest of {number_of(tasks, 'task')} carries {share}."
    first = max(load.least, told.rules.bounds.minimum)
    if tasks <= first or told.capped_by:
        return [said]
    over = rate_text(load.busiest(first))
    return [f"{said} {number_of(first, 'task')} would leave {over} on one."]


def _hot(told: Told) -> list[str]:
    if not told.hot:
        return []
    load = told.load
    names = [f"{h.topic}-{h.partition} ({rate_text(h.bytes_per_second)}, {h.factor:.1f} times)" for h in told.hot]
    times = max(math.ceil(one.factor) for one in told.hot)
    loads = load.per_task(told.tasks)
    beside = max(loads[place % len(loads)] - load.alone[place] for place in load.heavy)
    return [
        f"Above the usable capacity of one task: {listed(names)}. A partition is read by one task, so no number of tasks "
        f"helps: spread its keys, give its topic {times} times the partitions, or make one task carry more (larger "
        f"fetches and batches, compression). More tasks only take away what it shares its task with: {rate_text(max(0.0, beside))} here."
    ]


def _sometimes_hot(told: Told) -> list[str]:
    load = told.load
    if not load.sometimes_heavy:
        return []
    peaks = load.hours.max(axis=1)
    worst = sorted(load.sometimes_heavy, key=lambda place: -peaks[place])
    names = [f"{told.deal.order[place]} ({rate_text(float(peaks[place]))})" for place in worst]
    return [f"In some hours a partition alone is above what is usable, and no number of tasks helps: {listed(names)}."]


def _by_hand(told: Told) -> list[str]:
    now = told.now
    if now is None or not now.by_hand:
        return []
    busiest = f"the busiest of {number_of(now.tasks, 'task')} carries {rate_text(now.busiest_bytes_per_second)}"
    verdict = {
        "fits": "that fits" if now.busiest_bytes_per_second <= told.load.usable else "no number does better",
        "too small": f"too small, {told.tasks} would do",
        "badly dealt": f"too much, because busy partitions share it: {told.tasks} would do",
        "more than needed": f"{told.tasks} would do",
        "not measured": "nothing was measured, so it is not judged",
    }[now.verdict]
    return [f"Written by hand: {busiest}; {verdict}."]

"""How many tasks a flow needs: the smallest number with which each fits as Connect assigns the flow's partitions.

Rates may come from anywhere, and an earlier sizing does not count: whether a new number is worth a restart, `stability`
decides. The reasons, as sentences, come with the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from mm2mgr.assignment import Assignment
from mm2mgr.partitions import Listing, Statistic, TopicPartition, predict
from mm2mgr.sizing.load import Coverage, Hours, Load, TopicGrowth, complete
from mm2mgr.text import list_names, number_of, rate_text

_DEFAULT_RATE_BYTES_PER_SECOND = 5_000.0
_DEFAULT_RECORDS_PER_SECOND = 100_000.0
"""An estimate: four tasks moved 90 000 records of 200 bytes a second on two cores that their brokers shared, where
larger records were bound by their bytes. It decides where records are smaller than 100 bytes."""
_DEFAULT_PARTITIONS = 500
"""Brooklin's default of partitionsPerTask (LoadBasedTaskCountEstimator)."""
Fit = Literal["fits", "too small", "badly dealt", "more than needed", "not measured"]
OVERLOADED: tuple[Fit, ...] = ("too small", "badly dealt")


@dataclass(frozen=True)
class Capacity:
    """What one task can move, and the share of it to plan with; 10 MB/s is 10 000 000 bytes per second (MB = 10⁶).

    `records_per_second` counts where records are so small that a task is bound by their number; `reason` says where the
    bytes come from, where that is worth a sentence.
    """

    bytes_per_second: float = 10_000_000.0
    threshold: float = 0.7
    reason: str = ""
    records_per_second: float = _DEFAULT_RECORDS_PER_SECOND

    @property
    def usable_bytes_per_second(self) -> int:
        """Capacity × threshold, in whole bytes so that 70 % of 10 MB/s is exactly 7 MB/s; at least 1."""
        return max(1, round(self.bytes_per_second * self.threshold))

    @property
    def usable_records_per_second(self) -> float:
        """The same share of the records."""
        return max(1.0, self.records_per_second * self.threshold)


@dataclass(frozen=True)
class Bounds:
    """Least and most tasks of a flow, most partitions of a task; where they contradict, the limit wins."""

    minimum: int = 1
    limit: int | None = None
    partitions: int = _DEFAULT_PARTITIONS


@dataclass(frozen=True)
class Rules:
    """The numbers that people configure.

    `default_bytes_per_second` is taken for a partition of a flow that was never measured: small, because such flows are
    new or idle, but not zero, because thousands of partitions are a load. `statistic`: which of the hours count; with
    p95 a task may be above what is usable in 5 % of them.
    """

    capacity: Capacity = Capacity()
    bounds: Bounds = Bounds()
    default_bytes_per_second: float = _DEFAULT_RATE_BYTES_PER_SECOND
    statistic: Statistic = "p95"


@dataclass(frozen=True)
class Profile:
    """What else was measured of a source: mean record size by partition, and the topics that grew."""

    record_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)
    growth: Mapping[str, TopicGrowth] = field(default_factory=dict)


@dataclass(frozen=True)
class CurrentTasks:
    """The number of tasks that the tree gives the flow today, and whether people wrote it."""

    tasks: int
    by_hand: bool = False


@dataclass(frozen=True)
class Prediction:
    """What tasks get: for the number that runs what they have now, for any other number `order` dealt in turn, or by
    load where `is_balanced`: the plugin is to assign partitions.

    `order`: the partitions that the flow has in Kafka now. `source` says where it comes from: read back from the
    running connector (`live`), `predicted`, or `guessed` where that is not certain; `note`: why it was not read back.
    `running`: what the tasks have now, with the `tasks_max` that they run with; `in_turn`: dealing partitions in turn
    gives just that, so that it need not be told apart. `without_load`: partitions of the order that are none of the
    flow's. `remarks`: what is wrong with what runs now, as sentences.
    """

    order: tuple[TopicPartition, ...]
    source: Literal["live", "predicted", "guessed"]
    note: str = ""
    running: Assignment | None = None
    tasks_max: int | None = None
    in_turn: bool = False
    without_load: frozenset[TopicPartition] = frozenset()
    remarks: tuple[str, ...] = ()
    is_balanced: bool = False


def predict_assignment(listing: Listing, carries: Callable[[str], bool], note: str = "") -> Prediction:
    """Predict what the tasks of a stock connector get that carries these topics."""
    stock = predict(listing, carries)
    return Prediction(stock.order, "predicted" if stock.exact else "guessed", note)


@dataclass(frozen=True)
class HotPartition:
    """A measured partition above the usable capacity of one task, and how many times that capacity it carries."""

    topic: str
    partition: int
    bytes_per_second: float
    factor: float


@dataclass(frozen=True)
class Judgement:
    """What today's number of tasks makes of the load.

    `too small`: more tasks fit better. `badly dealt`: fewer do, because busy partitions happen to share a task today.
    `fits` also where no other number is better.
    """

    tasks: int
    by_hand: bool
    busiest_bytes_per_second: float
    verdict: Fit


@dataclass(frozen=True)
class Sizing:
    """The answer for one flow; the four partition counts add up to the partitions that exist."""

    flow_id: str
    tasks: int
    bytes_per_second: float
    busiest_bytes_per_second: float
    usable_bytes_per_second: int
    assignment: Literal["live", "predicted", "guessed"]
    measured_partitions: int
    topic_rate_partitions: int
    flow_rate_partitions: int
    default_partitions: int
    hot_partitions: tuple[HotPartition, ...]
    capped_by: Literal["limit", "partitions"] | None
    now: Judgement | None
    growth: Mapping[str, TopicGrowth]
    reasons: tuple[str, ...]
    json_keys = (
        "flow_id tasks bytes_per_second busiest_bytes_per_second usable_bytes_per_second deal=assignment "
        "measured_partitions topic_rate_partitions flow_rate_partitions default_partitions hot_partitions "
        "capped_by now growth reasons"
    )

    @property
    def partitions(self) -> int:
        """The partitions that exist."""
        return (
            self.measured_partitions + self.topic_rate_partitions + self.flow_rate_partitions + self.default_partitions
        )


@dataclass(frozen=True, eq=False)
class FlowLoad:
    """What a flow is sized from: prediction, load by position, where rates come from, measured partitions."""

    prediction: Prediction
    load: Load
    coverage: Coverage
    measured: Collection[TopicPartition]
    growth: Mapping[str, TopicGrowth]


@dataclass(frozen=True)
class SizedFlow:
    """A sizing with the load behind it; `order`: the partitions of the load, those that Kafka has now."""

    sizing: Sizing
    load: Load
    bounds: Bounds
    order: tuple[TopicPartition, ...]

    @cached_property
    def peak(self) -> Load:
        """The same hours judged by the busiest of them, with the whole capacity of a task."""
        load = self.load
        records = load.usable_records * load.capacity / load.usable
        return replace(load, usable=load.capacity, usable_records=records, statistic="max", most_partitions=None)

    @property
    def most(self) -> int:
        """The most tasks that bounds and partitions allow."""
        partitions = max(1, len(self.load.hours))
        return partitions if self.bounds.limit is None else min(self.bounds.limit, partitions)


def size_load(flow_id: str, flow_load: FlowLoad, rules: Rules, now: CurrentTasks | None) -> Sizing:
    """Size one flow; measured partitions that no longer exist are named and not counted."""
    load, (measured, of_topic, of_flow, by_default) = flow_load.load, flow_load.coverage
    tasks, capped_by = _tasks(load, rules.bounds)
    sizing = Sizing(
        flow_id,
        tasks=tasks,
        bytes_per_second=load.total,
        busiest_bytes_per_second=load.busiest(tasks),
        usable_bytes_per_second=rules.capacity.usable_bytes_per_second,
        assignment=flow_load.prediction.source,
        measured_partitions=measured,
        topic_rate_partitions=of_topic,
        flow_rate_partitions=of_flow,
        default_partitions=by_default,
        hot_partitions=_hot(flow_load),
        capped_by=capped_by,
        now=_judge(flow_load, now, tasks) if now else None,
        growth=flow_load.growth,
        reasons=(),
    )
    return replace(sizing, reasons=tuple(_reasons(sizing, flow_load, rules)))


def flow_load(
    prediction: Prediction, rates: Mapping[TopicPartition, Hours], rules: Rules, profile: Profile | None = None
) -> FlowLoad:
    """Return the load of a flow by position of its order.

    `rates`: bytes per second of this flow's partitions in each hour.
    """
    profile, order = profile or Profile(), prediction.order
    resolved, coverage = complete(order, rates, rules.default_bytes_per_second, prediction.without_load)
    sizes = [profile.record_bytes.get(partition, math.nan) for partition in order] if profile.record_bytes else None
    capacity = rules.capacity
    limits = (capacity.usable_bytes_per_second, rules.statistic, capacity.bytes_per_second)
    load = Load(resolved, *limits, sizes, capacity.usable_records_per_second, rules.bounds.partitions)
    load = replace(load, is_balanced=prediction.is_balanced)
    if prediction.running and (prediction.is_balanced or not prediction.in_turn):
        position_of = {partition: position for position, partition in enumerate(order)}
        tasks = prediction.running.tasks
        running = [[position_of[partition] for partition in task if partition in position_of] for task in tasks]
        load = replace(load, running=running, running_max=prediction.tasks_max)
    topics = dict.fromkeys(partition.topic for partition in order)
    growth = {topic: profile.growth[topic] for topic in topics if topic in profile.growth}
    return FlowLoad(prediction, load, coverage, rates.keys(), growth)


def _judge(flow_load: FlowLoad, now: CurrentTasks, recommended: int) -> Judgement:
    load = flow_load.load
    verdict: Fit = "fits"
    if not flow_load.coverage[0] and any(flow_load.coverage):
        verdict = "not measured"
    elif load.fits(now.tasks):
        verdict = "more than needed" if recommended < now.tasks else "fits"
    elif recommended > now.tasks:
        verdict = "too small"
    elif load.fits(recommended):
        verdict = "badly dealt"
    return Judgement(now.tasks, now.by_hand, load.busiest(now.tasks), verdict)


def _tasks(load: Load, bounds: Bounds) -> tuple[int, Literal["limit", "partitions"] | None]:
    """Return the first number that fits from the least possible on, and what kept it from being the one asked for.

    More tasks are not always better: the assignment goes by position, so each number makes other neighbours.
    """
    partitions = max(1, len(load.hours))
    limit = partitions if bounds.limit is None else max(1, bounds.limit)
    start, most = max(load.least, bounds.minimum), min(limit, partitions)
    if start > most:
        return most, "limit" if limit <= partitions and bounds.limit is not None else "partitions"
    fitting = next((tasks for tasks in range(start, most + 1) if load.fits(tasks)), None)
    if fitting is not None:
        return fitting, None
    return min(range(start, most + 1), key=load.strain), "limit"


def _hot(flow_load: FlowLoad) -> tuple[HotPartition, ...]:
    load, order = flow_load.load, flow_load.prediction.order
    heavy = [place for place in load.heavy if order[place] in flow_load.measured]
    heavy.sort(key=lambda place: (-load.alone[place], order[place]))
    return tuple(
        HotPartition(*order[place], float(load.alone[place]), float(load.alone_share[place])) for place in heavy
    )


_ORDERS = {
    "live": "the order of the running connector",
    "predicted": "the predicted order",
    "guessed": "an order that is not certain, because topic names share a hash bucket",
}


def _reasons(sizing: Sizing, flow_load: FlowLoad, rules: Rules) -> Iterator[str]:
    """Yield the reasons in the order of the computation: load, coverage, growth, bounds, assignment, hot partitions,
    today's number."""
    if any(flow_load.coverage):
        yield from _load_reasons(flow_load, rules)
        yield from _bounds_reasons(sizing, flow_load.load, rules.bounds)
        yield _assignment_reason(sizing, flow_load, rules.bounds)
        yield from _hot_reasons(sizing, flow_load)
        if sizing.now and sizing.now.by_hand:
            yield _by_hand(sizing, sizing.now)
    else:
        yield "No matching topic exists yet; one task is enough."
    yield from flow_load.prediction.remarks
    if gone := sorted({partition.topic for partition in set(flow_load.measured) - set(flow_load.prediction.order)}):
        yield f"Measured but no longer in Kafka, so ignored: {list_names(gone)}."


def _load_reasons(flow_load: FlowLoad, rules: Rules) -> Iterator[str]:
    load, capacity = flow_load.load, rules.capacity
    measured, of_topic, of_flow, by_default = flow_load.coverage
    partitions, hours = number_of(sum(flow_load.coverage), "partition"), load.hours.shape[1]
    share = f"{capacity.threshold * 100:g} %"
    reason = f"; {capacity.reason}" if capacity.reason else ""
    usable = f"{rate_text(load.usable)} usable per task ({rate_text(capacity.bytes_per_second)} × {share}{reason})"
    total = f"{rate_text(load.total)} over {partitions}"
    total += f" at the same time ({rules.statistic} of {hours} hours)" if hours > 1 else ""
    least, heavy = number_of(load.least, "task"), len(load.heavy)
    if heavy:
        rest = f"{rate_text(load.rest)} outside of {number_of(heavy, 'hot partition')}"
        yield f"{total}; {rest}, divided by {usable}, needs at least {least} with {'it' if heavy == 1 else 'those'}."
    else:
        yield f"{total}, divided by {usable}, needs {least}."
    if load.records is not None:
        usable = f"{load.usable_records:.0f} usable per task ({capacity.records_per_second:.0f} × {share})"
        yield f"Records are small, so their number is the limit: {load.records:.0f} records/s, {usable}."
    others = (
        (of_topic, "the mean of their topic"),
        (of_flow, "the median of the flow"),
        (by_default, f"the default of {rate_text(rules.default_bytes_per_second)}"),
    )
    taken = "".join(f", {count} {'takes' if count == 1 else 'take'} {traffic}" for count, traffic in others if count)
    yield f"Of {partitions}, {measured} have a rate of their own{taken}."
    if flow_load.growth:
        most = sorted(flow_load.growth.items(), key=lambda item: (-item[1].factor, item[0]))
        names = [
            f"{topic} {topic_growth.factor:.1f} times in {number_of(topic_growth.weeks, 'week')}"
            for topic, topic_growth in most
        ]
        yield f"Traffic grew: {list_names(names)}. Earlier hours count at the level of the newest day."


def _bounds_reasons(sizing: Sizing, load: Load, bounds: Bounds) -> Iterator[str]:
    tasks = sizing.tasks
    if load.least < bounds.minimum:
        yield f"The configured minimum is {number_of(bounds.minimum, 'task')}."
    if load.least_by_partitions > 1 and load.least_by_partitions == load.least:
        yield f"No task may have more than {load.most_partitions} partitions: that needs {load.least} tasks."
    if sizing.capped_by == "partitions":
        yield f"Capped at {tasks}, the number of partitions: more tasks would have no partition."
    if sizing.capped_by == "limit":
        limit = number_of(bounds.limit or tasks, "task")
        if max(load.least, bounds.minimum) > tasks:
            yield f"Capped at the limit of {limit}."
        else:
            yield (
                f"Capped by the limit of {limit}: no number up to it fits; with {tasks} the busiest task has the least"
                " load."
            )
    if tasks < load.least:
        average = rate_text(load.total / tasks)
        yield f"The load needs {load.least}; with {number_of(tasks, 'task')}, each handles {average} on average."


def _assignment_reason(sizing: Sizing, flow_load: FlowLoad, bounds: Bounds) -> str:
    load, tasks, prediction = flow_load.load, sizing.tasks, flow_load.prediction
    share = f"{rate_text(load.busiest(tasks))}, {load.busiest_share(tasks) * 100:.0f} % of the usable capacity"
    note = f" ({prediction.note})" if prediction.note else ""
    dealt = f"With round-robin assignment in {_ORDERS[prediction.source]}{note}"
    if load.is_balanced:
        dealt = "With partitions assigned by load (`balance: plugin` and mm2mgr rebalance)"
    if load.runs_now(tasks):
        dealt = "As the partitions are assigned now, and not round-robin"
    sentence = f"{dealt}, the busiest of {number_of(tasks, 'task')} handles {share}."
    first = max(load.least, bounds.minimum)
    if tasks <= first or sizing.capped_by:
        return sentence
    now = " as it is assigned now" if load.runs_now(first) else ""
    return f"{sentence} With {number_of(first, 'task')}, one would handle {rate_text(load.busiest(first))}{now}."


def _hot_reasons(sizing: Sizing, flow_load: FlowLoad) -> Iterator[str]:
    load, hot = flow_load.load, sizing.hot_partitions
    if hot:
        names = [f"{h.topic}-{h.partition} ({rate_text(h.bytes_per_second)}, {h.factor:.1f} times)" for h in hot]
        times = max(math.ceil(hot_partition.factor) for hot_partition in hot)
        beside = load.most_beside(load.heavy, sizing.tasks)
        yield (
            f"Above the usable capacity of one task: {list_names(names)}. A partition is read by one task, so adding"
            f" tasks does not help: distribute its keys, give its topic {times} times the partitions, or raise what"
            " one task can carry (larger fetches and batches, compression). More tasks only take away what it shares"
            f" its task with: {rate_text(beside)} here."
        )
    if load.sometimes_heavy:
        peaks = load.hours.max(axis=1)
        worst = sorted(load.sometimes_heavy, key=lambda place: -peaks[place])
        names = [f"{flow_load.prediction.order[place]} ({rate_text(float(peaks[place]))})" for place in worst]
        yield (
            "In some hours a single partition exceeds the usable capacity of a task, and adding tasks does not help:"
            f" {list_names(names)}."
        )


def _by_hand(sizing: Sizing, now: Judgement) -> str:
    is_within = now.busiest_bytes_per_second <= sizing.usable_bytes_per_second
    enough = f"{sizing.tasks} {'is' if sizing.tasks == 1 else 'are'} enough"
    verdict = {
        "fits": "that fits" if is_within else "no other number is better",
        "too small": f"too few, {enough}",
        "badly dealt": f"overloaded, because busy partitions share a task: {enough}",
        "more than needed": enough,
        "not measured": "not measured, so not judged",
    }[now.verdict]
    busiest = f"the busiest of {number_of(now.tasks, 'task')} handles {rate_text(now.busiest_bytes_per_second)}"
    return f"Set by hand: {busiest}; {verdict}."

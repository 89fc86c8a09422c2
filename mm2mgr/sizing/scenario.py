"""Scenarios: changed traffic, a source less, a topic in another flow, a target more, another limit; what each would
need, and what changes from one to another.

They are sized and placed by the code of `size` and `fleet`. A change makes new ones and never alters one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from mm2mgr.partitions import Listing, TopicPartition
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, Failover, FlowRun, WorkerLimits, WorkerNeed, need
from mm2mgr.sizing.load import Hours
from mm2mgr.sizing.tasks import (
    CurrentTasks,
    Prediction,
    Profile,
    Rules,
    SizedFlow,
    Sizing,
    flow_load,
    predict_assignment,
    size_load,
)
from mm2mgr.text import list_names, number_of

_HOTTEST = 10
Week = tuple[tuple[float | None, ...], ...]
"""Mean bytes per second by day of week and hour of day; None where nothing was measured."""
Carries = Callable[[str], bool]


@dataclass(frozen=True)
class Scenario:
    """One flow with all that its size depends on.

    `listing`: the topics of its source; `carries`: which topics its connector assigns; `rates`: bytes per second by
    partition and hour; `record_bytes`: mean size (None: not measured); `now`: what the tree has (None: a new flow);
    `profile`: what else was measured of its source. Catch-up limits are bytes per second: its own, and the one that it
    shares with other flows over its link.
    """

    name: str
    source: str
    target: str
    connect: str
    listing: Listing
    carries: Carries
    prediction: Prediction
    rates: Mapping[TopicPartition, Hours]
    rules: Rules
    buffers: Buffers
    now: CurrentTasks | None = None
    profile: Profile = field(default_factory=Profile)
    own_limit: float | None = None
    link_limit: float | None = None
    whole_id: str = ""
    """What lanes of one flow have in common, such as its own limit; "" for a flow that is alone."""

    @property
    def pair(self) -> str:
        """`source->target`."""
        return f"{self.source}->{self.target}"

    @property
    def record_bytes(self) -> float | None:
        """The mean size of its records; None where none was measured."""
        sizes = self.profile.record_bytes
        sized_rates = [
            (float(np.mean(rate)), sizes[partition])
            for partition, rate in self.rates.items()
            if sizes.get(partition, 0.0) > 0
        ]
        records = sum(volume / size for volume, size in sized_rates)
        return sum(volume for volume, _ in sized_rates) / records if records else None

    @property
    def flow_id(self) -> str:
        """`name:source->target`."""
        return f"{self.name}:{self.pair}"

    def with_topics(self, carries: Carries, rates: Mapping[TopicPartition, Hours]) -> Scenario:
        """Return the scenario with other topics: what its connector would then be assigned is predicted."""
        prediction = predict_assignment(self.listing, carries)
        balanced = replace(prediction, is_balanced=self.prediction.is_balanced)
        return replace(self, carries=carries, rates=rates, prediction=balanced)

    def without_topic(self, topic: str) -> Scenario:
        """Return the scenario without one of its topics."""
        rates = {partition: rate for partition, rate in self.rates.items() if partition.topic != topic}
        return self.with_topics(lambda name: name != topic and self.carries(name), rates)


@dataclass(frozen=True)
class ConnectWorkers:
    """The workers of one Connect cluster: what one carries, how many there are (None: not declared), side tasks for
    each pair, and what decides how long the tasks of a lost one stop."""

    worker: WorkerLimits = field(default_factory=WorkerLimits)
    count: int | None = None
    side_tasks: Mapping[str, int] | None = None
    failover: Failover = field(default_factory=Failover)


@dataclass(frozen=True)
class Outcome:
    """What comes of a set of scenarios: sized flows by id, and load and needed workers by Connect cluster."""

    flows: Mapping[str, SizedFlow]
    loads: Mapping[str, ConnectLoad]
    needs: Mapping[str, WorkerNeed]

    @property
    def sizings(self) -> dict[str, Sizing]:
        """The sizings by flow id."""
        return {flow_id: flow.sizing for flow_id, flow in self.flows.items()}


@dataclass(frozen=True)
class FlowView:
    """What is shown of a flow: its sizing, load per task with today's number (empty: new) and with the
    recommended one, hottest partitions, and mean load by day of week and hour of day (empty: not measured); bytes per
    second. `connect`: the Connect cluster that runs it."""

    sizing: Sizing
    before: tuple[float, ...]
    after: tuple[float, ...]
    hottest: tuple[tuple[str, float], ...]
    week: Week
    connect: str = ""


def size_scenario(scenario: Scenario) -> SizedFlow:
    """Size one flow."""
    flow_load_now = flow_load(scenario.prediction, scenario.rates, scenario.rules, scenario.profile)
    sizing = size_load(scenario.flow_id, flow_load_now, scenario.rules, scenario.now)
    return SizedFlow(sizing, flow_load_now.load, scenario.rules.bounds, scenario.prediction.order)


def outcome(scenarios: Iterable[Scenario], machines: Mapping[str, ConnectWorkers]) -> Outcome:
    """Size every scenario on its Connect cluster; a cluster without scenarios needs nothing and is absent."""
    scenarios = tuple(scenarios)
    flows = {scenario.flow_id: size_scenario(scenario) for scenario in scenarios}
    used = _limits_used(scenarios, flows)
    runs: dict[str, list[FlowRun]] = {}
    pairs: dict[str, set[str]] = {}
    for scenario in scenarios:
        run = _flow_run(scenario, flows[scenario.flow_id])
        runs.setdefault(scenario.connect, []).append(replace(run, limit_used=used.get(scenario.flow_id, 0.0)))
        pairs.setdefault(scenario.connect, set()).add(scenario.pair)
    loads = {name: _load(name, own, pairs[name], machines.get(name, ConnectWorkers())) for name, own in runs.items()}
    return Outcome(flows, loads, {name: need(load) for name, load in loads.items()})


def _limits_used(scenarios: Iterable[Scenario], flows: Mapping[str, SizedFlow]) -> dict[str, float]:
    """Return by flow the traffic under its catch-up limit as a share of that; lanes share that of their flow,
    and flows over one link without a limit of their own the link's."""
    sharing: dict[tuple[str, float], list[Scenario]] = {}
    for scenario in scenarios:
        if scenario.own_limit:
            sharing.setdefault((scenario.whole_id or scenario.flow_id, scenario.own_limit), []).append(scenario)
        elif scenario.link_limit:
            sharing.setdefault((scenario.pair, scenario.link_limit), []).append(scenario)
    shares: dict[str, float] = {}
    for (_, limit), alike in sharing.items():
        total = math.fsum(flows[scenario.flow_id].load.total for scenario in alike)
        shares |= {scenario.flow_id: total / limit for scenario in alike}
    return shares


def with_workers_seen(outcome: Outcome, counts: Mapping[str, int]) -> Outcome:
    """Judge by the workers seen at work where the tree declares no number."""
    loads = {name: replace(load, today=load.today or counts.get(name) or None) for name, load in outcome.loads.items()}
    return Outcome(outcome.flows, loads, {name: need(load) for name, load in loads.items()})


def _flow_run(scenario: Scenario, flow: SizedFlow) -> FlowRun:
    partitions, limit = max(1, len(scenario.prediction.order)), scenario.rules.bounds.limit
    tasks = min(scenario.now.tasks if scenario.now and scenario.now.by_hand else flow.sizing.tasks, partitions)
    most = max(tasks, min(partitions, limit or partitions))
    size = scenario.record_bytes
    return FlowRun(
        scenario.flow_id,
        scenario.pair,
        flow.load,
        tasks=tasks,
        most=most,
        capacity_bytes_per_second=scenario.rules.capacity.bytes_per_second,
        buffers=scenario.buffers,
        records_per_second=flow.load.total / size if size else None,
        without_load=len(scenario.prediction.without_load),
        is_guessed=not flow.sizing.measured_partitions and flow.sizing.partitions > 0,
    )


def with_traffic(scenarios: Iterable[Scenario], factor: float) -> tuple[Scenario, ...]:
    """Multiply every rate, the default for what was never measured too."""
    return tuple(
        replace(
            scenario,
            rates={partition: rate * factor for partition, rate in scenario.rates.items()},
            rules=replace(scenario.rules, default_bytes_per_second=scenario.rules.default_bytes_per_second * factor),
        )
        for scenario in scenarios
    )


def without_source(scenarios: Iterable[Scenario], alias: str) -> tuple[Scenario, ...]:
    """Take out the flows that read from a cluster."""
    return tuple(scenario for scenario in scenarios if scenario.source != alias)


def with_topic_moved(scenarios: Collection[Scenario], topic: str, flow_ids: Collection[str]) -> tuple[Scenario, ...]:
    """Give a topic to the named flows and take it from the other flows of their pairs; partitions and rates go with it.

    A named flow whose pair has no other flow with the topic is left as it is.
    """
    takers = {scenario.pair for scenario in scenarios if scenario.flow_id in flow_ids}
    givers = {
        scenario.pair: scenario
        for scenario in scenarios
        if scenario.pair in takers and scenario.flow_id not in flow_ids and scenario.carries(topic)
    }

    def move_topic(scenario: Scenario) -> Scenario:
        giver = givers.get(scenario.pair)
        if giver is None:
            return scenario
        if scenario.flow_id in flow_ids:
            gained = {partition: rate for partition, rate in giver.rates.items() if partition.topic == topic}
            carries = scenario.carries
            return scenario.with_topics(lambda name: name == topic or carries(name), {**scenario.rates, **gained})
        return scenario.without_topic(topic) if scenario.carries(topic) else scenario

    return tuple(move_topic(scenario) for scenario in scenarios)


def with_topic_split(scenarios: Collection[Scenario], topic: str, name: str) -> tuple[Scenario, ...]:
    """Give a topic a flow of its own, with the rules of the flow that carries it now, on every pair where one does.

    Where a pair has a flow of that name, from an earlier split, that one takes the topic too.
    """
    there = {scenario.pair: scenario.flow_id for scenario in scenarios if scenario.name == name}
    changed_scenarios: list[Scenario] = []
    for scenario in with_topic_moved(scenarios, topic, there.values()):
        if scenario.name == name or not scenario.carries(topic):
            changed_scenarios.append(scenario)
            continue
        changed_scenarios.append(scenario.without_topic(topic))
        if scenario.pair not in there:
            own = {partition: rate for partition, rate in scenario.rates.items() if partition.topic == topic}
            split = replace(scenario, name=name, now=None).with_topics(lambda other: other == topic, own)
            there[scenario.pair] = split.flow_id
            changed_scenarios.append(split)
    return tuple(changed_scenarios)


def with_target(
    scenarios: Collection[Scenario], alias: str, connect: str, names: Collection[str]
) -> tuple[Scenario, ...]:
    """Mirror the declared flows of these names to one target more, once from each of their sources.

    The new flows have topics and rules of those they are made from; the way to the new target is unknown.
    """
    there = {(scenario.name, scenario.pair) for scenario in scenarios}
    new: dict[tuple[str, str], Scenario] = {}
    for scenario in scenarios:
        pair = f"{scenario.source}->{alias}"
        if scenario.name in names and scenario.source != alias and (scenario.name, pair) not in there:
            moved = replace(scenario, target=alias, connect=connect, now=None, link_limit=None)
            new.setdefault((scenario.name, pair), moved.with_topics(scenario.carries, scenario.rates))
    return (*scenarios, *new.values())


def with_limit(scenarios: Iterable[Scenario], flow_ids: Collection[str], limit: int) -> tuple[Scenario, ...]:
    """Bound the tasks of the named flows; a number written by hand is bounded too."""

    def limit_tasks(scenario: Scenario) -> Scenario:
        now = replace(scenario.now, tasks=min(scenario.now.tasks, limit)) if scenario.now else None
        bounds = replace(scenario.rules.bounds, limit=limit)
        return replace(scenario, now=now, rules=replace(scenario.rules, bounds=bounds))

    return tuple(limit_tasks(scenario) if scenario.flow_id in flow_ids else scenario for scenario in scenarios)


def _load(name: str, runs: Iterable[FlowRun], pairs: Collection[str], machines: ConnectWorkers) -> ConnectLoad:
    # A pair has a checkpoint and a heartbeat connector unless declared otherwise.
    side = sum((machines.side_tasks or {}).get(pair, 2) for pair in pairs)
    return ConnectLoad(name, machines.worker, tuple(runs), side, machines.count, machines.failover)


def flow_view(sized: SizedFlow, scenario: Scenario, week: Week) -> FlowView:
    """Return what the page shows of a flow."""
    sizing, load = sized.sizing, sized.load
    before = tuple(load.per_task(sizing.now.tasks)) if sizing.now else ()
    hottest = _hottest(sized, scenario.rates)
    return FlowView(sizing, before, tuple(load.per_task(sizing.tasks)), hottest, week, scenario.connect)


def _hottest(sized: SizedFlow, measured: Collection[TopicPartition]) -> tuple[tuple[str, float], ...]:
    rates = dict(zip(sized.order, sized.load.alone.tolist(), strict=True))
    measured_order = [partition for partition in sized.order if partition in measured and rates[partition] > 0]
    measured_order.sort(key=lambda partition: (-rates[partition], partition))
    return tuple((str(partition), rates[partition]) for partition in measured_order[:_HOTTEST])


class FlowSummary(TypedDict):
    """What a comparison shows of a flow's sizing; rates in bytes per second."""

    bytes_per_second: float
    tasks: int
    busiest_bytes_per_second: float
    usable_bytes_per_second: int
    busiest_share: float
    hot_partitions: int
    capped_by: str | None
    reasons: tuple[str, ...]


class FlowChange(TypedDict):
    """A flow before and after; None: it is not there."""

    before: FlowSummary | None
    after: FlowSummary | None
    why_fewer_tasks: str | None


@dataclass(frozen=True)
class Totals:
    """What all flows and Connect clusters come to; None: no number of workers does, or none is declared."""

    flows: int
    bytes_per_second: float
    tasks: int
    workers_needed: int | None
    workers_today: int | None
    hot_partitions: int


class ConnectChange(TypedDict):
    """A Connect cluster before and after, or all together; None: it has no load."""

    before: WorkerNeed | Totals | None
    after: WorkerNeed | Totals | None


@dataclass(frozen=True)
class OutcomeComparison:
    """Two outcomes side by side: flows that differ, Connect clusters, totals, and what that means."""

    before: Outcome
    after: Outcome
    json_keys = "flows=changed_flows unchanged_flows connect=connects totals reasons"

    @cached_property
    def changed_flows(self) -> dict[str, FlowChange]:
        changes: dict[str, FlowChange] = {}
        for flow_id in dict.fromkeys((*self.before.sizings, *self.after.sizings)):
            old, new = self.before.sizings.get(flow_id), self.after.sizings.get(flow_id)
            before, after = _summary(old), _summary(new)
            if before != after:
                changes[flow_id] = {"before": before, "after": after, "why_fewer_tasks": _why_fewer(old, new)}
        return changes

    @property
    def unchanged_flows(self) -> int:
        return len(self.before.sizings.keys() | self.after.sizings.keys()) - len(self.changed_flows)

    @property
    def connects(self) -> dict[str, ConnectChange]:
        names = dict.fromkeys((*self.before.needs, *self.after.needs))
        return {name: {"before": self.before.needs.get(name), "after": self.after.needs.get(name)} for name in names}

    @property
    def totals(self) -> ConnectChange:
        return {"before": _totals(self.before), "after": _totals(self.after)}

    @property
    def reasons(self) -> list[str]:
        return _consequences(self.before, self.after)


def _why_fewer(before: Sizing | None, after: Sizing | None) -> str | None:
    """Say why a flow with more load gets fewer tasks than before, or than it has now; None where it does not.

    Without a hot partition and a limit that cannot happen: what fits a load fits a smaller one too.
    """
    if before is None or after is None or after.bytes_per_second <= before.bytes_per_second:
        return None
    sentence = f"{after.flow_id}: {after.tasks} instead of {number_of(before.tasks, 'task')} despite more traffic"
    if after.tasks < before.tasks:
        hot_before = {(hot_partition.topic, hot_partition.partition) for hot_partition in before.hot_partitions}
        hot = [
            hot_partition
            for hot_partition in after.hot_partitions
            if (hot_partition.topic, hot_partition.partition) not in hot_before
        ]
        if after.capped_by == "limit":
            return f"{sentence}: capped by its limit."
        if hot:
            names = list_names([f"{hot_partition.topic}-{hot_partition.partition}" for hot_partition in hot])
            alone = "alone exceeds" if len(hot) == 1 else "each alone exceed"
            return (
                f"{sentence}: {names} {alone} the usable capacity of a task, so more tasks do not help there; for the"
                f" rest {after.tasks} are enough."
            )
        return (
            f"{sentence}: its partitions are assigned in another order, or alone exceed the usable capacity in more"
            " hours."
        )
    now = after.now
    if now is None or after.tasks >= now.tasks:
        return None
    by = "set by hand" if now.by_hand else "set by an earlier `size`"
    return (
        f"{after.flow_id}: {number_of(now.tasks, 'task')} now ({by}) {'is' if now.tasks == 1 else 'are'} more than its"
        f" load needs: {before.tasks} before the change, {after.tasks} after it."
    )


def _consequences(before: Outcome, after: Outcome) -> list[str]:
    hot, hot_before = _hot(after), _hot(before)
    short, short_before = _short(after), _short(before)
    pairs = set(map(_pair, after.sizings))
    cold = [f"{name} of {pair}" for name, pair in hot_before if (name, pair) not in hot and pair in pairs]
    newly_short = [flow_id for flow_id in short if flow_id not in short_before]
    changes = (
        (
            "New hot partitions (adding tasks does not help)",
            [hot[partition] for partition in hot if partition not in hot_before],
        ),
        ("No longer hot", cold),
        ("Capped by their limit, with more load on a task than planned", newly_short),
        (
            "At or above their catch-up limit, so that they fall behind",
            [flow_id for flow_id in _flows_at_limit(after) if flow_id not in _flows_at_limit(before)],
        ),
    )
    sentences = [f"{subject}: {list_names(names)}." for subject, names in changes if names]
    both = ((before.sizings.get(flow_id), sizing) for flow_id, sizing in after.sizings.items())
    sentences += [reason for pair in both if (reason := _why_fewer(*pair))]
    for name in dict.fromkeys((*before.needs, *after.needs)):
        old, new = before.needs.get(name), after.needs.get(name)
        if new is None:
            sentences.append(f"{name}: no traffic left.")
        elif old is None or old.reasons[-1] != new.reasons[-1]:
            sentences.append(f"{name}: {new.reasons[-1]}")
    return sentences


def _hot(outcome: Outcome) -> dict[tuple[str, str], str]:
    """Return hot partitions by name and pair, whichever flow they are in, each with how many times it is too much."""
    return {
        (name := f"{hot.topic}-{hot.partition}", _pair(flow_id)): f"{name} of {flow_id} ({hot.factor:.1f} times)"
        for flow_id, sizing in outcome.sizings.items()
        for hot in sizing.hot_partitions
    }


def _pair(flow_id: str) -> str:
    return flow_id.partition(":")[2]


def _short(outcome: Outcome) -> list[str]:
    return [
        flow_id
        for flow_id, sizing in outcome.sizings.items()
        if sizing.capped_by == "limit" and sizing.busiest_bytes_per_second > sizing.usable_bytes_per_second
    ]


def _flows_at_limit(outcome: Outcome) -> list[str]:
    return [run.flow_id for load in outcome.loads.values() for run in load.runs if run.limit_used >= 1]


def _summary(sizing: Sizing | None) -> FlowSummary | None:
    if sizing is None:
        return None
    return {
        "bytes_per_second": sizing.bytes_per_second,
        "tasks": sizing.tasks,
        "busiest_bytes_per_second": sizing.busiest_bytes_per_second,
        "usable_bytes_per_second": sizing.usable_bytes_per_second,
        "busiest_share": sizing.busiest_bytes_per_second / sizing.usable_bytes_per_second,
        "hot_partitions": len(sizing.hot_partitions),
        "capped_by": sizing.capped_by,
        "reasons": sizing.reasons,
    }


def _totals(outcome: Outcome) -> Totals:
    needs = outcome.needs.values()
    asked = [need.workers_needed for need in needs]
    today = [need.workers_today for need in needs if need.workers_today]
    return Totals(
        len(outcome.sizings),
        math.fsum(need.bytes_per_second for need in needs),
        sum(need.tasks for need in needs),
        None if None in asked else sum(count or 0 for count in asked),
        sum(today) if today else None,
        sum(len(sizing.hot_partitions) for sizing in outcome.sizings.values()),
    )

"""What would be if: other traffic, a source less, a topic in another flow, a target more, another limit.

In go the flows as cases and a change, out come the cases after it, sized and placed by the code that `size` and `fleet` use.
A change makes new cases and never alters one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.deal import Deal, Listing, predict
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, FlowRun, Need, Worker, need
from mm2mgr.sizing.tasks import Now, Rules, Sizing, flow_load, size_flow

Carries = Callable[[str], bool]


@dataclass(frozen=True)
class Case:
    """One flow with all that its size depends on.

    `listing`: the topics of its source; `carries`: which topics its connector deals; `rates`: bytes
    per second by partition; `record_bytes`: mean size (None: not measured); `now`: what the tree has (None: a new flow).
    """

    name: str
    source: str
    target: str
    connect: str
    listing: Listing
    carries: Carries
    deal: Deal
    rates: Mapping[TopicPartition, float]
    rules: Rules
    buffers: Buffers
    now: Now | None = None
    record_bytes: float | None = None

    @property
    def pair(self) -> str:
        """`source->target`."""
        return f"{self.source}->{self.target}"

    @property
    def flow_id(self) -> str:
        """`name:source->target`."""
        return f"{self.name}:{self.pair}"

    def dealing(self, carries: Carries, rates: Mapping[TopicPartition, float]) -> Case:
        """Return the case with other topics: what its connector would then deal is predicted."""
        return replace(self, carries=carries, rates=rates, deal=predict(self.listing, carries))


@dataclass(frozen=True)
class Machines:
    """The workers of one Connect cluster: what one carries, how many there are (None: not told), and side tasks for each pair."""

    worker: Worker = field(default_factory=Worker)
    count: int | None = None
    side_tasks: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Outcome:
    """What comes of a set of cases: a sizing by flow, and load and need by Connect cluster."""

    sizings: Mapping[str, Sizing]
    loads: Mapping[str, ConnectLoad]
    needs: Mapping[str, Need]


def outcome(cases: Iterable[Case], machines: Mapping[str, Machines]) -> Outcome:
    """Size every case and put it on its Connect cluster; a cluster without cases needs nothing and is absent."""
    sizings: dict[str, Sizing] = {}
    runs: dict[str, list[FlowRun]] = {}
    pairs: dict[str, set[str]] = {}
    for case in cases:
        sizing = size_flow(case.flow_id, case.deal, case.rates, case.rules, case.now)
        sizings[case.flow_id] = sizing
        runs.setdefault(case.connect, []).append(flow_run(case, sizing))
        pairs.setdefault(case.connect, set()).add(case.pair)
    loads = {name: _load(name, found, pairs[name], machines.get(name, Machines())) for name, found in runs.items()}
    return Outcome(sizings, loads, {name: need(load) for name, load in loads.items()})


def flow_run(case: Case, sizing: Sizing) -> FlowRun:
    """Return a sized flow as its Connect cluster runs it: people's own number where they wrote one, else the recommended."""
    load, _ = flow_load(case.deal, case.rates, case.rules)
    partitions, limit = max(1, len(case.deal.order)), case.rules.bounds.limit
    tasks = min(case.now.tasks if case.now and case.now.by_hand else sizing.tasks, partitions)
    most = max(tasks, min(partitions, limit or partitions))
    records = load.total / case.record_bytes if case.record_bytes else None
    capacity = case.rules.capacity.bytes_per_second
    return FlowRun(case.flow_id, case.pair, load, tasks, most, capacity, case.buffers, records)


def with_traffic(cases: Iterable[Case], factor: float) -> tuple[Case, ...]:
    """Multiply every rate, the default for what was never measured too."""
    return tuple(
        replace(
            case,
            rates={one: rate * factor for one, rate in case.rates.items()},
            rules=replace(case.rules, default_bytes_per_second=case.rules.default_bytes_per_second * factor),
        )
        for case in cases
    )


def without_source(cases: Iterable[Case], alias: str) -> tuple[Case, ...]:
    """Take out the flows that read from a cluster."""
    return tuple(case for case in cases if case.source != alias)


def with_topic_moved(cases: Collection[Case], topic: str, flow_ids: Collection[str]) -> tuple[Case, ...]:
    """Give a topic to the named flows and take it from the other flows of their pairs; partitions and rates go with it.

    A named flow whose pair has no other flow with the topic is left as it is.
    """
    takers = {case.pair for case in cases if case.flow_id in flow_ids}
    givers = {
        case.pair: case
        for case in cases
        if case.pair in takers and case.flow_id not in flow_ids and case.carries(topic)
    }

    def changed(case: Case) -> Case:
        giver = givers.get(case.pair)
        if giver is None:
            return case
        if case.flow_id in flow_ids:
            gained = {one: rate for one, rate in giver.rates.items() if one.topic == topic}
            return case.dealing(lambda name: name == topic or case.carries(name), {**case.rates, **gained})
        if not case.carries(topic):
            return case
        kept = {one: rate for one, rate in case.rates.items() if one.topic != topic}
        return case.dealing(lambda name: name != topic and case.carries(name), kept)

    return tuple(changed(case) for case in cases)


def with_target(cases: Collection[Case], alias: str, connect: str, names: Collection[str]) -> tuple[Case, ...]:
    """Mirror the declared flows of these names to one target more, once from each of their sources.

    The new flows have the topics and rules of the ones they are made from; nothing is known of the way to the new target.
    """
    there = {(case.name, case.pair) for case in cases}
    new: dict[tuple[str, str], Case] = {}
    for case in cases:
        pair = f"{case.source}->{alias}"
        if case.name in names and case.source != alias and (case.name, pair) not in there:
            made = replace(case, target=alias, connect=connect, now=None).dealing(case.carries, case.rates)
            new.setdefault((case.name, pair), made)
    return (*cases, *new.values())


def with_limit(cases: Iterable[Case], flow_ids: Collection[str], limit: int) -> tuple[Case, ...]:
    """Bound the tasks of the named flows; a number written by hand is bounded too."""
    return tuple(_limited(case, limit) if case.flow_id in flow_ids else case for case in cases)


def comparison(before: Outcome, after: Outcome) -> dict[str, Any]:
    """Return both outcomes side by side as plain JSON values: flows that differ, Connect clusters, and totals."""
    flows = {
        flow_id: {"before": _of_flow(before, flow_id), "after": _of_flow(after, flow_id)}
        for flow_id in dict.fromkeys((*before.sizings, *after.sizings))
    }
    connects = {
        name: {side: _of_connect(found, name) for side, found in (("before", before), ("after", after))}
        for name in dict.fromkeys((*before.needs, *after.needs))
    }
    totals = {side: _totals(found) for side, found in (("before", before), ("after", after))}
    changed = {flow_id: both for flow_id, both in flows.items() if both["before"] != both["after"]}
    return {"flows": changed, "unchanged_flows": len(flows) - len(changed), "connect": connects, "totals": totals}


def _load(name: str, runs: Iterable[FlowRun], pairs: Collection[str], machines: Machines) -> ConnectLoad:
    known = machines.side_tasks or {}
    side = sum(known.get(pair, 2) for pair in pairs)  # a pair has a checkpoint and a heartbeat connector unless told
    return ConnectLoad(name, machines.worker, tuple(runs), side, machines.count)


def _limited(case: Case, limit: int) -> Case:
    now = replace(case.now, tasks=min(case.now.tasks, limit)) if case.now else None
    return replace(case, now=now, rules=replace(case.rules, bounds=replace(case.rules.bounds, limit=limit)))


def _of_flow(found: Outcome, flow_id: str) -> dict[str, Any] | None:
    sizing = found.sizings.get(flow_id)
    if sizing is None:
        return None
    return {
        "bytes_per_second": sizing.bytes_per_second,
        "tasks": sizing.tasks,
        "busiest_bytes_per_second": sizing.busiest_bytes_per_second,
        "usable_bytes_per_second": sizing.usable_bytes_per_second,
        "hot_partitions": len(sizing.hot_partitions),
        "capped_by": sizing.capped_by,
        "reasons": list(sizing.reasons),
    }


def _of_connect(found: Outcome, name: str) -> dict[str, Any] | None:
    one = found.needs.get(name)
    return None if one is None else one.to_dict()


def _totals(found: Outcome) -> dict[str, Any]:
    needs = found.needs.values()
    return {
        "flows": len(found.sizings),
        "bytes_per_second": math.fsum(one.bytes_per_second for one in needs),
        "tasks": sum(one.tasks for one in needs),
        "workers_needed": None
        if any(one.workers_needed is None for one in needs)
        else sum(one.workers_needed or 0 for one in needs),
        "hot_partitions": sum(len(one.hot_partitions) for one in found.sizings.values()),
    }

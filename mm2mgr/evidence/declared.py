"""What the tree declares, as sizing takes it: rules and buffers of a flow, workers of a Connect cluster. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from mm2mgr.ceilings import ENOUGH_PARTITIONS, Ceiling, ceilings
from mm2mgr.link import Clients, FlowTraffic, Forecast, Placement, Route, predict
from mm2mgr.link_settings import compiled_clients, may_pipeline
from mm2mgr.sizing.capacity import MeasuredCapacity, by_evidence, by_hand, by_link
from mm2mgr.sizing.fleet import Buffers, Failover, WorkerLimits
from mm2mgr.sizing.load import Statistic
from mm2mgr.sizing.scenario import ConnectWorkers
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Rules
from mm2mgr.text import number_of, rate_text
from mm2mgr.topology import ConnectCluster, Flow
from mm2mgr.truth.client_values import text_of
from mm2mgr.truth.reach import CLIENTS


def rules_of(flow: Flow, measured: MeasuredCapacity | None, statistic: Statistic) -> Rules:
    """Return the rules to size a flow by; `measured` is the capacity measured of one of its tasks.

    A measured task carried the records there are, whatever their size: then only a written record capacity counts.
    """
    tasks, capacity = flow.settings.tasks, capacity_of(flow, measured)
    was_measured = measured is not None and capacity is measured.capacity
    is_written = flow.origin("tasks", "record_capacity").kind != "default"
    records = tasks.record_capacity if is_written or not was_measured else inf
    capacity = replace(capacity, records_per_second=records)
    bounds = Bounds(tasks.min, tasks.limit, tasks.partition_limit)
    return Rules(capacity, bounds, tasks.default_rate, statistic)


def capacity_of(flow: Flow, measured: MeasuredCapacity | None = None) -> Capacity:
    """Return what one task of the flow can carry: as written in the tree, else as measured, else by its link, else the default."""
    tasks = flow.settings.tasks
    declared = Capacity(tasks.capacity, tasks.threshold)
    if flow.origin("tasks", "capacity").kind != "default":
        return by_hand(declared, measured)
    if flow.route is not None:  # of one partition: with more, a task may carry more, but not for a hot one
        declared = by_link(forecast_of(flow, flow.route, FlowTraffic()), flow.route, declared)
    return by_evidence(measured, declared)


def forecast_of(flow: Flow, route: Route, traffic: FlowTraffic) -> Forecast:
    """Return what the flow carries over a route with its settings and the limits of its brokers."""
    return predict(route, clients_of(flow), traffic, flow.source.limits, flow.target_limits)


def clients_of(flow: Flow) -> Clients:
    """Return the settings of the flow's clients that decide its rate; Kafka's own where one of them is no number."""
    return Clients.of(lambda client, key: client_number(flow, client, key)) or Clients()


@dataclass(frozen=True)
class LinkForecast:
    """What a flow carries over its link as it is set, with one partition for each task; `other`: with workers beside the other end."""

    route: Route
    here: Forecast
    other: Forecast | None
    unread: tuple[str, ...] = ()
    """Clusters whose brokers' limits were not read."""

    @property
    def sentences(self) -> list[str]:
        found = [f"workers {_PLACES[self.route.placement]}, over {self.route.words}: {self.here.verdict}"]
        if self.other and not self.here.stall and not self.other.stall:
            way, end = ("produce", "source") if self.route.reading else ("consume", "target")
            words = "cannot exceed" if self.other.partition > self.here.partition else "can carry"
            then = f"with workers beside the {end} (remote {way}) {rate_text(self.other.partition)}"
            found.append(f"one partition {words} {rate_text(self.here.partition)} here; {then}")
        if self.unread:
            found.append(
                f"the limits of {' and '.join(self.unread)} were not read, so Kafka's defaults count: mm2mgr link read"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        other = self.other.to_dict() if self.other else None
        placement, route = self.route.placement, self.route.words
        return {
            "placement": placement,
            "route": route,
            "forecast": self.here.to_dict(),
            "other_end": other,
            "verdict": self.sentences,
        }


_PLACES: dict[Placement, str] = {
    "target": "beside the target (remote consume)",
    "source": "beside the source (remote produce)",
    "elsewhere": "elsewhere",
}


def outlook(flow: Flow) -> LinkForecast | None:
    """Return what a flow carries over its link, None where none is declared."""
    route, crossing = flow.route, flow.crossing
    if route is None or crossing is None:
        return None
    tasks, leg = int(flow.tasks.maximum), route.reading or route.writing
    other = None
    if leg and not (route.reading and route.writing):
        there = Route.over(leg, "source" if route.reading else "target")
        secured = bool(flow.target.model.security)
        moved = replace(crossing, route=there, idempotent=may_pipeline(flow.target_limits, {}, secured=secured))
        other = predict(
            there, compiled_clients(moved), FlowTraffic(tasks, tasks), flow.source.limits, flow.target_limits
        )
    unread = tuple(end.alias for end in (flow.source, flow.target) if not end.limits.read)
    return LinkForecast(route, forecast_of(flow, route, FlowTraffic(tasks, tasks)), other, unread)


def capped(flows: Iterable[Flow]) -> list[str]:
    """Return a sentence for each buffer of brokers that caps flows whose tasks do not make up for it: what to set, and the gain."""
    found: dict[tuple[str, str], list[tuple[Ceiling, Flow]]] = {}
    for flow in flows:
        if flow.route is None:
            continue
        tasks = int(flow.tasks.maximum)
        traffic = FlowTraffic(max(ENOUGH_PARTITIONS, tasks), tasks)
        for each in ceilings(flow.route, clients_of(flow), traffic, flow.source.limits, flow.target_limits):
            if each.tasks > tasks:
                cluster = flow.source if each.end == "source" else flow.target
                found.setdefault((cluster.alias, each.key), []).append((each, flow))
    lines = []
    for (alias, _), capping in sorted(found.items()):
        each, flow = max(capping, key=lambda pair: pair[0].lifted / pair[0].now)
        more = f" and {number_of(len(capping) - 1, 'other flow')}" if len(capping) > 1 else ""
        lines.append(f"{flow.id}{more}: {each.advice(alias)}; {each.meanwhile(int(flow.tasks.maximum))}")
    return lines


def buffers_of(flow: Flow) -> Buffers:
    """Return the buffer sizes of the flow's clients; a source whose brokers were not read is taken to have as many as addresses are declared."""
    fetch = client_number(flow, "source consumer", "fetch.max.bytes")
    of_partition = client_number(flow, "source consumer", "max.partition.fetch.bytes")
    waiting = client_number(flow, "record producer", "buffer.memory")
    limits = flow.source.limits
    brokers = limits.brokers if limits.read else len(flow.source.model.bootstrap_servers)
    return Buffers(fetch, of_partition, waiting, brokers)


def current_tasks(flow: Flow) -> CurrentTasks:
    """Return the number of tasks that the tree has for a flow."""
    return CurrentTasks(int(flow.tasks.maximum), not flow.tasks.automatic)


def client_number(flow: Flow, client: str, key: str) -> int:
    """Return a setting of a client as a number: Kafka's default where the tree unsets mm2mgr's or writes a placeholder."""
    (found,) = (each for each in CLIENTS["source"] if each.name == client)
    written = flow.client(found.block or "").get(key, "")
    config = {found.layers[-1].prefix + key: written} if written.removeprefix("-").isdecimal() else {}
    return int(text_of("source", config, client, key))


def declared_workers(
    connects: Mapping[str, ConnectCluster], flows: Iterable[Flow], failover: Failover | None = None
) -> dict[str, ConnectWorkers]:
    """Return the workers that the tree declares, by Connect cluster, with the idle tasks of the pairs there."""
    idle: dict[str, dict[str, int]] = {name: {} for name in connects}
    pairs: dict[str, list[Flow]] = {}
    for flow in flows:
        pairs.setdefault(flow.pair, []).append(flow)
    for pair, of_pair in pairs.items():
        heartbeats = any(flow.with_heartbeats for flow in of_pair)
        checkpoints = any(flow.with_checkpoints for flow in of_pair)
        idle[of_pair[0].connect.name][pair] = heartbeats + checkpoints
    found = {}
    for name, connect in connects.items():
        workers = connect.model.workers
        limits = WorkerLimits(workers.tasks_per_worker, workers.memory, workers.network)
        found[name] = ConnectWorkers(limits, workers.count, idle[name], failover or Failover())
    return found

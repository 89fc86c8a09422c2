"""What the tree declares, as sizing takes it: rules and buffers of a flow, workers of a Connect cluster. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from mm2mgr.link import FlowTraffic
from mm2mgr.link_forecast import client_number, forecast_of
from mm2mgr.sizing.capacity import MeasuredCapacity, by_evidence, by_hand, by_link
from mm2mgr.sizing.fleet import Buffers, Failover, WorkerLimits
from mm2mgr.sizing.load import Statistic
from mm2mgr.sizing.scenario import ConnectWorkers
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Rules
from mm2mgr.topology import ConnectCluster, Flow


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


def buffers_of(flow: Flow) -> Buffers:
    """Return the buffer sizes of the flow's clients; a source whose brokers were not read is taken to have as many as addresses are declared."""
    fetch = client_number(flow, "source consumer", "fetch.max.bytes")
    of_partition = client_number(flow, "source consumer", "max.partition.fetch.bytes")
    waiting = client_number(flow, "record producer", "buffer.memory")
    limits = flow.source.limits
    brokers = limits.brokers if limits.read else len(flow.source.model.bootstrap_servers)
    return Buffers(fetch, of_partition, waiting, brokers, client_number(flow, "source consumer", "max.poll.records"))


def current_tasks(flow: Flow) -> CurrentTasks:
    """Return the number of tasks that the tree has for a flow."""
    return CurrentTasks(int(flow.tasks.maximum), not flow.tasks.automatic)


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

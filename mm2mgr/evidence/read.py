"""`read`: everything that sizing needs of a workspace, read once and first. `size`, `fleet`, `simulate` and pages judge
its result.

Rates and task capacity come from the store, topics from the brokers, assignments and placement from Connect's workers,
rules, buffers and the workers there are from the tree. A cluster that does not answer is a value with its reason, not
an error.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mm2mgr import timing
from mm2mgr.assignment import Assignment, Listing, assignment_read_back, listing_of, predict
from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.measured import MeasuredRates, measured_capacities, read_rates, read_weeks
from mm2mgr.link import FlowTraffic
from mm2mgr.link_forecast import client_number, forecast_of
from mm2mgr.partitions import ASSIGNED_KEY, Statistic
from mm2mgr.sizing.capacity import MeasuredCapacity, by_evidence, by_hand, by_link
from mm2mgr.sizing.fleet import Buffers, Failover, WorkerLimits
from mm2mgr.sizing.placement import ConnectorPlacement, TaskPlacement
from mm2mgr.sizing.scenario import ConnectWorkers, Scenario, Week
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Rules
from mm2mgr.topology import ConnectCluster, Flow, KafkaCluster, Topology, by_pair

if TYPE_CHECKING:
    from mm2mgr.connect.client import ConnectClient
    from mm2mgr.connect.types import ConnectorStatus
    from mm2mgr.render import Connector

_CLUSTERS_AT_ONCE = 16
_CONNECTORS_AT_ONCE = 4
_WORKERS_SECONDS = 10.0


@dataclass(frozen=True)
class ConnectState:
    """What one Connect cluster runs: every connector with its tasks, and the assignment of flows by id, or why there is
    none.

    `note`: why the cluster could not be read.
    """

    connectors: tuple[ConnectorPlacement, ...] = ()
    assignments: Mapping[str, Assignment | str] = field(default_factory=dict)
    note: str = ""


def read_listings(clusters: Mapping[str, KafkaCluster]) -> dict[str, Listing | Mm2mgrError]:
    """Return the partitions by topic of each cluster, without Kafka's own topics, in the admin client's order."""
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.live.endpoints import kafka_access

    def read(alias: str) -> Listing | Mm2mgrError:
        try:
            with Kafka(kafka_access(clusters[alias])) as kafka:
                topics = kafka.topics()
                return listing_of({name: topic.partitions for name, topic in topics.items() if not topic.internal})
        except Mm2mgrError as error:
            return error

    with ThreadPoolExecutor(max_workers=_CLUSTERS_AT_ONCE) as threads:
        return dict(zip(clusters, threads.map(read, clusters), strict=True))


def _read_connects(flows: Iterable[Flow]) -> dict[str, ConnectState]:
    """Return the state of each Connect cluster that runs some of these flows, by name."""
    by_connect: dict[str, list[Flow]] = {}
    for flow in flows:
        by_connect.setdefault(flow.connect.name, []).append(flow)

    async def states() -> list[ConnectState]:
        return await asyncio.gather(*(_state(flows[0].connect, flows) for flows in by_connect.values()))

    return dict(zip(by_connect, timing.run(states()), strict=True))


def current_assignment(listing: Listing, mirrored: Callable[[str], bool], running: Assignment | str) -> Assignment:
    """Return the assignment to size with: the running connector's if it has today's partitions, else a predicted
    one.
    """
    note = running if isinstance(running, str) else "the partitions of the running connector differ from those in Kafka"
    if not isinstance(running, str) and _is_current(running, listing, mirrored):
        return running
    return replace(predict(listing, mirrored), note=note)


def _is_current(running: Assignment, listing: Listing, mirrored: Callable[[str], bool]) -> bool:
    counts = Counter([partition.topic for partition in running.order])
    numbers_fit = all(partition.partition < counts[partition.topic] for partition in running.order)
    return numbers_fit and counts == {name: count for name, count in listing.partitions.items() if mirrored(name)}


async def _state(connect: ConnectCluster, flows: Sequence[Flow]) -> ConnectState:
    from mm2mgr.connect.client import ConnectClient
    from mm2mgr.live.endpoints import connect_target

    turns = asyncio.Semaphore(_CONNECTORS_AT_ONCE)
    connectors: tuple[ConnectorPlacement, ...] = ()
    try:
        async with ConnectClient(connect_target(connect), deadline_seconds=_WORKERS_SECONDS) as client:
            statuses = await client.statuses()
            connectors = tuple(map(_placement, statuses.values()))

            async def of(flow: Flow) -> Assignment | str:
                async with turns:
                    return await _running(client, flow, statuses)

            assignments = dict(zip((flow.id for flow in flows), await asyncio.gather(*map(of, flows)), strict=True))
            return ConnectState(connectors, assignments)
    except Mm2mgrError as error:
        unread = f"Connect cluster '{connect.name}' could not be read"
        note = "" if connectors else error.one_line
        return ConnectState(connectors, dict.fromkeys((flow.id for flow in flows), unread), note)


async def _running(client: ConnectClient, flow: Flow, names: Collection[str]) -> Assignment | str:
    name = flow.connector_name("source")
    if name not in names:
        return "not created yet"
    tasks = sorted(await client.tasks(name), key=lambda task: task.id)
    order = assignment_read_back([task.config.get(ASSIGNED_KEY, "") for task in tasks])
    return order or "the connector has no tasks yet"


def _placement(status: ConnectorStatus) -> ConnectorPlacement:
    tasks = (TaskPlacement(task.id, task.state, task.worker_id) for task in status.tasks)
    return ConnectorPlacement(status.name, status.worker_id if status.state != "UNASSIGNED" else "", tuple(tasks))


class ExpandedTree(Protocol):
    """What is needed of a workspace: the expanded tree, and the connectors rendered from it."""

    @property
    def topology(self) -> Topology: ...

    @property
    def connectors(self) -> Sequence[Connector]: ...


@dataclass(frozen=True)
class Evidence:
    """Everything that sizing needs. `flows` are those whose source was read; `failures` says of the other sources why
    not.

    `rates` and `listings` are by cluster, `capacities` and `weeks` (read for pages only) by flow id, `connects` by
    name.
    """

    flows: tuple[Flow, ...]
    rates: MeasuredRates
    listings: Mapping[str, Listing] = field(default_factory=dict)
    connects: Mapping[str, ConnectState] = field(default_factory=dict)
    capacities: Mapping[str, MeasuredCapacity] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    weeks: Mapping[str, Week] = field(default_factory=dict)

    def scenarios(self) -> tuple[Scenario, ...]:
        """Return each flow as it is today, with all that its size depends on."""
        unlisted = {
            alias: self.rates.by_cluster.get(alias, {}).keys() - listing.partitions
            for alias, listing in self.listings.items()
        }
        return tuple(self._scenario(flow, unlisted[flow.source.alias]) for flow in self.flows)

    def _scenario(self, flow: Flow, unlisted: set[str]) -> Scenario:
        """Return a flow as a scenario; measured topics that Kafka no longer lists are in it to be named, and are not
        counted.
        """
        alias = flow.source.alias
        listing = self.listings[alias]
        running = self.connects[flow.connect.name].assignments[flow.id]
        assignment = current_assignment(listing, flow.assigns, running)
        topics = {partition.topic for partition in assignment.order} | {
            topic for topic in unlisted if flow.carries(topic)
        }
        # Heartbeats are not sampled: one record per second is no load.
        beats = {partition: 0.0 for partition in assignment.order if flow.selection.is_heartbeats(partition.topic)}
        return Scenario(
            flow.name,
            source=alias,
            target=flow.target.alias,
            connect=flow.connect.name,
            listing=listing,
            carries=flow.assigns,
            assignment=assignment,
            rates=self.rates.of_topics(alias, topics) | beats,
            rules=rules_of(flow, self.capacities.get(flow.id), self.rates.statistic),
            buffers=_buffers_of(flow),
            now=CurrentTasks(int(flow.tasks.maximum), not flow.tasks.automatic),
            profile=self.rates.profile(alias),
            own_limit=flow.settings.catch_up.limit if flow.settings.catch_up else None,
            link_limit=flow.link.catch_up.limit if flow.link and flow.link.catch_up else None,
        )


def read(  # noqa: PLR0913  one argument per option
    workspace: ExpandedTree,
    flows: Sequence[Flow] | None = None,
    *,
    store: str | Path,
    window_seconds: float | None = None,
    statistic: Statistic = "p95",
    weeks: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Evidence:
    """Read the evidence for some flows, or all; the store, each Kafka cluster and each Connect cluster is asked once.

    Mm2mgrError when the store has no roll-ups; a cluster that does not answer is a failure in the result. `weeks`: read
    what pages show of them too. `warn` gets a sentence per damaged file that was left out.
    """
    chosen = list(workspace.topology.flows if flows is None else flows)
    rates = read_rates(store, window_seconds, statistic)
    by_flow = read_weeks(store, chosen) if weeks else {}
    capacities = measured_capacities(lambda: workspace.connectors, store, chosen, time.time_ns() // 1_000_000, warn)
    listing_of = read_listings({flow.source.alias: flow.source for flow in chosen})
    failures = {alias: listing.message for alias, listing in listing_of.items() if isinstance(listing, Mm2mgrError)}
    listings = {alias: listing for alias, listing in listing_of.items() if not isinstance(listing, Mm2mgrError)}
    readable = tuple(flow for flow in chosen if flow.source.alias in listings)
    return Evidence(readable, rates, listings, _read_connects(readable), capacities, failures, by_flow)


# --- what the tree declares -------------------------------------------------------------------------------------------


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
    """Return what one task of the flow can carry: as written in the tree, else as measured, else by its link, else the
    default.
    """
    tasks = flow.settings.tasks
    declared = Capacity(tasks.capacity, tasks.threshold)
    if flow.origin("tasks", "capacity").kind != "default":
        return by_hand(declared, measured)
    if flow.route is not None:  # of one partition: with more, a task may carry more, but not for a hot one
        declared = by_link(forecast_of(flow, flow.route, FlowTraffic()), flow.route, declared)
    return by_evidence(measured, declared)


def _buffers_of(flow: Flow) -> Buffers:
    """Return the buffer sizes of the flow's clients; a source whose brokers were not read is taken to have as many as
    addresses are declared.
    """
    fetch = client_number(flow, "source consumer", "fetch.max.bytes")
    of_partition = client_number(flow, "source consumer", "max.partition.fetch.bytes")
    waiting = client_number(flow, "record producer", "buffer.memory")
    limits = flow.source.limits
    brokers = limits.brokers if limits.read else len(flow.source.model.bootstrap_servers)
    return Buffers(fetch, of_partition, waiting, brokers, client_number(flow, "source consumer", "max.poll.records"))


def declared_workers(
    connects: Mapping[str, ConnectCluster], flows: Iterable[Flow], failover: Failover | None = None
) -> dict[str, ConnectWorkers]:
    """Return the workers that the tree declares, by Connect cluster, with the idle tasks of the pairs there."""
    idle: dict[str, dict[str, int]] = {name: {} for name in connects}
    for pair, of_pair in by_pair(flows).items():
        heartbeats = any(flow.with_heartbeats for flow in of_pair)
        checkpoints = any(flow.with_checkpoints for flow in of_pair)
        idle[of_pair[0].connect.name][pair] = heartbeats + checkpoints
    workers_of = {}
    for name, connect in connects.items():
        workers = connect.model.workers
        limits = WorkerLimits(workers.tasks_per_worker, workers.memory, workers.network)
        workers_of[name] = ConnectWorkers(limits, workers.count, idle[name], failover or Failover())
    return workers_of

"""The estate as cases: every flow with its topics, rates, rules and buffers, and the workers that the tree declares.

In: the tree, roll-ups, brokers and workers. Out: values for `mm2mgr.sizing.whatif`. Sources that cannot be read are named.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr.cli.carried import measured_capacities
from mm2mgr.cli.dealing import beating, deal_of, dealt_topics, heartbeat_rates, listings, live_deals
from mm2mgr.cli.sizing import Rates, client_number, read_rates, rules_of
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.fleet import Buffers, Failover, Worker
from mm2mgr.sizing.load import Hours
from mm2mgr.sizing.tasks import Now
from mm2mgr.sizing.whatif import Case, Machines

if TYPE_CHECKING:
    from mm2mgr.throughput.rates import Statistic
    from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Asked:
    """Which rates to start from, and how to answer."""

    store: Path
    window_seconds: float | None = None
    statistic: Statistic = "p95"
    output: str = "text"


def cases_of(workspace: Workspace, asked: Asked) -> tuple[tuple[Case, ...], dict[str, str]]:
    """Return every flow whose source can be read as a case, and the sources that cannot, with why."""
    measured = read_rates(asked.store, asked.window_seconds, asked.statistic)
    flows = workspace.topology.flows
    capacities = measured_capacities(workspace, asked.store, flows, time.time_ns() // 1_000_000)
    found = listings({flow.source.alias: flow.source for flow in flows})
    failures = {alias: listing.message for alias, listing in found.items() if isinstance(listing, Mm2mgrError)}
    read = {alias: listing for alias, listing in found.items() if not isinstance(listing, Mm2mgrError)}
    readable, beats = [flow for flow in flows if flow.source.alias in read], beating(flows)
    cases = []
    for flow, live in zip(readable, live_deals(readable), strict=True):
        listing = read[flow.source.alias]
        deal = deal_of(flow, listing, flow.id in beats, live)
        dealt = dealt_topics(flow, beats=flow.id in beats)
        carried, profile = carried_rates(flow, measured.rates), measured.profile(flow.source.alias)
        rates = carried | heartbeat_rates(deal)
        ends = (flow.name, flow.source.alias, flow.target.alias, flow.connect.name)
        rules = rules_of(flow, capacities.get(flow.id), measured.statistic)
        now = Now(int(flow.tasks.maximum), not flow.tasks.automatic)
        size = record_bytes(carried, profile.record_bytes)
        cases.append(Case(*ends, listing, dealt, deal, rates, rules, _buffers(flow), now, size, profile))
    return tuple(cases), failures


def machines_of(topology: Topology, failover: Failover | None = None) -> dict[str, Machines]:
    """Return the workers that the tree declares, by Connect cluster, with the idle tasks of the pairs there."""
    side: dict[str, dict[str, int]] = {name: {} for name in topology.connects}
    pairs: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        pairs.setdefault(flow.pair, []).append(flow)
    for pair, flows in pairs.items():
        beats = any(flow.settings.heartbeats.enabled for flow in flows)
        checks = any(flow.with_checkpoints for flow in flows)
        side[flows[0].connect.name][pair] = beats + checks
    found = {}
    for name, connect in topology.connects.items():
        workers = connect.model.workers
        worker = Worker(workers.tasks_per_worker, workers.memory, workers.network)
        found[name] = Machines(worker, workers.count, side[name], failover or Failover())
    return found


def carried_rates(flow: Flow, rates: Rates) -> dict[TopicPartition, Hours]:
    """Return the measured rates of the partitions that a flow carries."""
    topics = rates.get(flow.source.alias, {})
    return {one: rate for topic, of in topics.items() if flow.carries(topic) for one, rate in of.items()}


def record_bytes(rates: Mapping[TopicPartition, Hours], sizes: Mapping[TopicPartition, float]) -> float | None:
    """Return the mean size of the records of these partitions; None where none was measured."""
    told = [(float(rate.mean()), sizes[one]) for one, rate in rates.items() if sizes.get(one, 0.0) > 0]
    records = sum(volume / size for volume, size in told)
    return sum(volume for volume, _ in told) / records if records else None


def _buffers(flow: Flow) -> Buffers:
    """Take the sizes from the clients' settings; a source is taken to have as many brokers as addresses are declared."""
    consumer, producer = flow.client("source_consumer"), flow.client("record_producer")
    fetch = client_number(consumer, "fetch.max.bytes")
    of_partition = client_number(consumer, "max.partition.fetch.bytes")
    waiting = client_number(producer, "buffer.memory")
    return Buffers(fetch, of_partition, waiting, len(flow.source.model.bootstrap_servers))

"""`read`: everything that sizing needs of a workspace, read once and first. `size`, `fleet`, `simulate` and pages judge its result.

Rates and task capacity come from the store, topics from Kafka, assignments and placement from Connect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.assignments import (
    ConnectState,
    current_assignment,
    heartbeat_rates,
    mirrored_topics,
    read_connects,
    read_listings,
)
from mm2mgr.evidence.declared import buffers_of, current_tasks, rules_of
from mm2mgr.evidence.rates import MeasuredRates, read_rates, read_weeks
from mm2mgr.evidence.task_capacity import measured_capacities
from mm2mgr.sizing.assignment import Listing
from mm2mgr.sizing.capacity import MeasuredCapacity
from mm2mgr.sizing.load import Statistic
from mm2mgr.sizing.scenario import Scenario, Week
from mm2mgr.topology import Flow, Topology

if TYPE_CHECKING:
    from mm2mgr.render import Connector


class ExpandedTree(Protocol):
    """What is needed of a workspace: the expanded tree, and the connectors rendered from it."""

    @property
    def topology(self) -> Topology: ...

    @property
    def connectors(self) -> Sequence[Connector]: ...


@dataclass(frozen=True)
class Evidence:
    """Everything that sizing needs. `flows` are those whose source was read; `failures` says of the other sources why not.

    `rates` and `listings` are by cluster, `capacities` and `weeks` (read for pages only) by flow id, `connects` by name.
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
        """Take measured topics that Kafka no longer lists along: they are named, and not counted."""
        alias = flow.source.alias
        listing, profile = self.listings[alias], self.rates.profile(alias)
        mirrored = mirrored_topics(flow)
        running = self.connects[flow.connect.name].assignments[flow.id]
        assignment = current_assignment(listing, mirrored, running)
        topics = {one.topic for one in assignment.order} | {topic for topic in unlisted if flow.carries(topic)}
        rates = self.rates.of_topics(alias, topics) | heartbeat_rates(assignment)
        rules = rules_of(flow, self.capacities.get(flow.id), self.rates.statistic)
        ends = (flow.name, alias, flow.target.alias, flow.connect.name)
        buffers, now = buffers_of(flow), current_tasks(flow)
        return Scenario(*ends, listing, mirrored, assignment, rates, rules, buffers, now, profile)


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

    Mm2mgrError when the store has no roll-ups; a cluster that does not answer is a failure in the result. `weeks`: read what
    pages show of them too. `warn` gets a sentence per damaged file that was left out.
    """
    chosen = list(workspace.topology.flows if flows is None else flows)
    rates = read_rates(store, window_seconds, statistic)
    by_flow = read_weeks(store, chosen) if weeks else {}
    capacities = measured_capacities(lambda: workspace.connectors, store, chosen, time.time_ns() // 1_000_000, warn)
    found = read_listings({flow.source.alias: flow.source for flow in chosen})
    failures = {alias: listing.message for alias, listing in found.items() if isinstance(listing, Mm2mgrError)}
    listings = {alias: listing for alias, listing in found.items() if not isinstance(listing, Mm2mgrError)}
    readable = tuple(flow for flow in chosen if flow.source.alias in listings)
    return Evidence(readable, rates, listings, read_connects(readable), capacities, failures, by_flow)

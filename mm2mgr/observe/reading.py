"""What was read of the clusters at one moment, as values. No I/O.

A failed read is a value too, so one dead cluster hides no other. `status` makes a Reading; `lag` compares what it holds, `problems` and
`health` judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.comparison.equivalence import WorkerClients
from mm2mgr.connectors import RESTING, Connector, ConnectorStatus, RunningConnector
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.live.kafka_state import SeenKafka
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.partitions import TopicPartition
from mm2mgr.topics.names import HEARTBEATS
from mm2mgr.topology import Flow


@dataclass(frozen=True)
class LiveConnector:
    """One declared connector, and what its Connect cluster shows of it (`running` None: not applied).

    Tasks and offsets are read for source connectors only, `groups`, the consumer groups that its tasks have, for
    checkpoint connectors where that is due.
    `adopted`: what its workers bring, where the tree adopts it and has not written it yet.
    """

    desired: Connector
    running: RunningConnector | None = None
    adopted: WorkerClients | None = None
    groups: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """`connect/name`, unique in the estate."""
        return f"{self.desired.connect}/{self.desired.name}"

    @property
    def status(self) -> ConnectorStatus | None:
        """What it and its tasks show; None where it is not there, or shows nothing yet."""
        return self.running.status if self.running else None

    @property
    def runs(self) -> bool:
        """Whether it and all its tasks are RUNNING, and it has a task."""
        return self.running is not None and self.running.runs

    def number(self, key: str, default: float) -> float | None:
        """Return a number of the config that runs, `default` where the key is not set; None for one that only a worker
        can resolve.
        """
        try:
            return float(self.running.config.get(key, default)) if self.running else default
        except ValueError:
            return None

    @property
    def tasks_unread(self) -> Failure | None:
        """Why its tasks could not be read."""
        return self.running.tasks if self.running and isinstance(self.running.tasks, Failure) else None

    def partitions_by_task(self) -> dict[int, tuple[TopicPartition, ...]]:
        """Return the partitions of each task; empty when the tasks could not be read."""
        return self.running.partitions_by_task if self.running else {}


@dataclass(frozen=True)
class Orphan:
    """A connector with this tree's owner mark that the tree does not declare; `state` in Connect's words, or `no status`."""

    connect: str
    connector: str
    type: str
    pair: str
    topics: str
    state: str

    @property
    def runs(self) -> bool:
        """Whether it still works, or would after a restart."""
        return self.state not in RESTING

    def problem(self) -> LiveProblem:
        """Return it as a problem."""
        return LiveProblem("orphan", ProblemSubject(self.connect, self.connector), to_json(self))


Standing = Literal["unmarked", "other-owner", "released", "left-over", "dedicated", "declared"]
"""What a connector is to a tree. left-over: this owner's, and no longer declared. dedicated: of a dedicated MirrorMaker."""


@dataclass(frozen=True)
class OtherConnector:
    """A source connector of MirrorMaker that the tree does not declare; `state` in Connect's words and by its tasks (`work_state`), or
    `no status`.

    `owner`: the owner in its mark, "" without one. One of a dedicated MirrorMaker has `connect` "", and the group as its name.
    """

    connect: str
    connector: str
    config: Mapping[str, str] = field(repr=False)  # may hold secrets
    state: str
    standing: Standing
    owner: str = ""


@dataclass(frozen=True)
class SeenConnect:
    """One Connect cluster; with a `failure` it has no connectors, and nothing is known about them.

    `kafka_cluster_id` is the Kafka its workers live on ("": unknown). Orphans are only looked for with all flows. `silent_workers`
    have connectors or tasks by their status, and accept no connection (see `connect.client`). `others` are there too, and not among
    the connectors that were asked for. `version` is its workers' Kafka ("": unknown), `exactly_once` whether they write with transactions (None: they do not tell).
    """

    name: str
    connectors: Mapping[str, LiveConnector] = field(default_factory=dict)
    failure: Failure | None = None
    kafka_cluster_id: str = ""
    orphans: tuple[Orphan, ...] = ()
    silent_workers: frozenset[str] = frozenset()
    others: tuple[OtherConnector, ...] = ()
    version: str = ""
    exactly_once: bool | None = None


@dataclass(frozen=True)
class Reading:
    """The chosen flows of an estate, read from `begun_at` to `taken_at` (seconds since 1970); `whole` when these are all of them.

    `copied_asked`: what was asked for too of the topics of which flows, as (`configs` or `acls`, id). `declared`: all flows of the tree.
    """

    taken_at: float
    flows: tuple[Flow, ...]
    connects: Mapping[str, SeenConnect]
    clusters: Mapping[str, SeenKafka]
    whole: bool = False
    begun_at: float = 0.0
    copied_asked: frozenset[tuple[str, str]] = frozenset()
    declared: tuple[Flow, ...] = ()

    def source_connector(self, flow: Flow) -> LiveConnector | None:
        """Return the flow's source connector; None when its Connect cluster could not be read."""
        for seen in self.connects[flow.connect.name].connectors.values():
            if seen.desired.type == "source" and flow.id in seen.desired.flows:
                return seen
        return None

    def companions(self) -> tuple[LiveConnector, ...]:
        """Return the checkpoint and heartbeat connectors in the reading, by name."""
        every = (seen for connect in self.connects.values() for seen in connect.connectors.values())
        return tuple(sorted((one for one in every if one.desired.type != "source"), key=lambda one: one.key))

    def flows_of(self, companion: LiveConnector) -> list[Flow]:
        """Return the flows of the reading that share a companion."""
        return [flow for flow in self.flows if flow.id in companion.desired.flows]

    def topic_of(self, companion: LiveConnector) -> str:
        """Return the topic on its target that a heartbeat or checkpoint connector writes to."""
        if companion.desired.type == "heartbeat":
            return HEARTBEATS
        return self.flows_of(companion)[0].selection.checkpoints_topic

    def failures(self) -> dict[str, Failure]:
        """Return what could not be read at all, as `connect NAME` or `kafka ALIAS`."""
        connects = {f"connect {name}": seen.failure for name, seen in self.connects.items()}
        clusters = {f"kafka {alias}": seen.failure for alias, seen in self.clusters.items()}
        return {where: failure for where, failure in (connects | clusters).items() if failure}

"""What was read of the clusters at one moment, as values, and for how long a condition was seen to last. No I/O.

A failed read is a value too, so one dead cluster hides no other. `read` makes a Reading; `lag` compares what it holds,
`problems` judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.assignment import Assignment
from mm2mgr.comparison.differences import WorkerClients
from mm2mgr.connectors import Connector, ConnectorStatus, RunningConnector
from mm2mgr.errors import Failure
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.partitions import TopicPartition
from mm2mgr.topics.names import HEARTBEATS
from mm2mgr.topology import Flow, Moved


@dataclass(frozen=True)
class LiveConnector:
    """One declared connector, and what its Connect cluster shows of it (`running` None: not applied).

    Tasks and offsets are read for source connectors only, `groups`, the consumer groups that its tasks have, for
    checkpoint connectors where that is due. `adopted`: what its workers bring, where the tree adopts it and has not
    written it yet. `without_plugin`: the workers, by their ids, that have RESTARTING tasks of the Connect plugin's
    class, and answered that they lack it.
    """

    desired: Connector
    running: RunningConnector | None = None
    adopted: WorkerClients | None = None
    groups: tuple[str, ...] | None = None
    without_plugin: frozenset[str] = frozenset()

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
        """Return a number of the config that runs, or `default`; None for one that only a worker can resolve."""
        try:
            return float(self.running.config.get(key, default)) if self.running else default
        except ValueError:
            return None

    @property
    def tasks_unread(self) -> Failure | None:
        """Why its tasks could not be read."""
        return self.running.tasks if self.running and isinstance(self.running.tasks, Failure) else None

    @property
    def assignment(self) -> Assignment:
        """The partitions of each task; no task when these could not be read."""
        return self.running.assignment if self.running else Assignment()


Standing = Literal["unmarked", "other-owner", "released", "left-over", "dedicated", "declared"]
"""What a connector is to a tree. left-over: this owner's, and no longer declared. dedicated: of a dedicated
MirrorMaker.
"""


@dataclass(frozen=True)
class OtherConnector:
    """A connector of MirrorMaker that the tree does not declare; `state` in Connect's words, or `no status`.

    `owner`: the one in its mark, "" without. One of a dedicated MirrorMaker has `connect` "", its group as name.
    """

    connect: str
    connector: str
    config: Mapping[str, str] = field(repr=False)  # may hold secrets
    state: str
    standing: Standing
    owner: str = ""


@dataclass(frozen=True)
class SeenConnect:
    """One Connect cluster; with a `failure` it has no connectors, and nothing is known about them but what their topic
    of offsets holds: `stored`, by connector (None: it was not read).

    `kafka_cluster_id` is the Kafka its workers live on ("": unknown). `orphans` are this owner's and not declared; they
    are only looked for with all flows. `silent_workers` have connectors or tasks by their status, and accept no
    connection (see `connect.client`). `others` are source connectors that are there too, and not among those that were
    asked for, with their state by their tasks (`work_state`). `version` is its workers' Kafka ("": unknown),
    `exactly_once` whether they write with transactions (None: they do not tell). `silent_urls`: those that accepted
    the connection and gave no answer, where none did.
    """

    name: str
    connectors: Mapping[str, LiveConnector] = field(default_factory=dict)
    failure: Failure | None = None
    kafka_cluster_id: str = ""
    orphans: tuple[OtherConnector, ...] = ()
    silent_workers: frozenset[str] = frozenset()
    others: tuple[OtherConnector, ...] = ()
    version: str = ""
    exactly_once: bool | None = None
    stored: Mapping[str, Mapping[TopicPartition, int]] | None = None
    silent_urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """The chosen flows of an estate, read from `begun_at` to `taken_at` (seconds since 1970); `whole` when these are
    all of them.

    `copied_asked`: what was asked for too of the topics of which flows, as (`configs` or `acls`, id). `declared`: all
    flows of the tree. `desired`: the declared source connector of each flow in the reading, by its id. `moves`: what
    the tree has under `moved:`. `searches`: the partitions of each flow whose last offsets were searched for records,
    by its id, and what was found.
    """

    taken_at: float
    flows: tuple[Flow, ...]
    connects: Mapping[str, SeenConnect]
    clusters: Mapping[str, RunningKafka]
    whole: bool = False
    begun_at: float = 0.0
    copied_asked: frozenset[tuple[str, str]] = frozenset()
    declared: tuple[Flow, ...] = ()
    desired: Mapping[str, Connector] = field(default_factory=dict)
    moves: tuple[Moved, ...] = ()
    searches: Mapping[str, tuple[frozenset[TopicPartition], RunningKafka]] = field(default_factory=dict)

    def source_connector(self, flow: Flow) -> LiveConnector | None:
        """Return the flow's source connector; None when its Connect cluster could not be read."""
        for connector in self.connects[flow.connect.name].connectors.values():
            if connector.desired.type == "source" and flow.id in connector.desired.flows:
                return connector
        return None

    def companions(self) -> tuple[LiveConnector, ...]:
        """Return the checkpoint and heartbeat connectors in the reading, by name."""
        connectors = [connector for connect in self.connects.values() for connector in connect.connectors.values()]
        companions = (connector for connector in connectors if connector.desired.type != "source")
        return tuple(sorted(companions, key=lambda companion: companion.key))

    def flows_of(self, companion: LiveConnector) -> list[Flow]:
        """Return the flows of the reading that share a companion."""
        return [flow for flow in self.flows if flow.id in companion.desired.flows]

    def topic_of(self, companion: LiveConnector) -> str:
        """Return the topic on its target that a heartbeat or checkpoint connector writes to."""
        if companion.desired.type == "heartbeat":
            return HEARTBEATS
        return self.flows_of(companion)[0].selection.checkpoints_topic

    def failure_of(self, alias: str) -> Failure | None:
        """Return why a Kafka cluster could not be read at all; None where it was, or was not asked."""
        return self.clusters.get(alias, RunningKafka()).failure

    def workers_failure(self, flow: Flow) -> Failure | None:
        """Return why nobody knows a flow's stored offsets: no worker answers, or those that do cannot read them, since
        their own Kafka cluster is silent."""
        connect, connector = self.connects[flow.connect.name], self.source_connector(flow)
        if connect.failure:
            return connect.failure
        offsets = connector.running.offsets if connector and connector.running else None
        return offsets if isinstance(offsets, Failure) and self.home_failure(connect.name) else None

    def home_failure(self, connect: str) -> Failure | None:
        """Return why the Kafka cluster that the workers of a Connect cluster live on could not be read."""
        homes = {flow.connect.kafka for flow in self.flows if flow.connect.name == connect}
        return next(filter(None, map(self.failure_of, homes)), None)

    def failures(self) -> dict[str, Failure]:
        """Return what could not be read at all, as `connect NAME` or `kafka ALIAS`."""
        connects = {f"connect {name}": connect.failure for name, connect in self.connects.items()}
        clusters = {f"kafka {alias}": kafka.failure for alias, kafka in self.clusters.items()}
        return {where: failure for where, failure in (connects | clusters).items() if failure}


# --- how long something lasts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patience:
    """How long something may last before it is a problem.

    Progress gets more than a flush interval (60 s by default): only then must stored offsets have moved. Where the
    target cannot be read they are all there is to see, so one late flush is forgiven. A target whose followers are slow
    may show records half a minute late to clients that do not wait for them (acks=1). A worker gets as long as Connect
    itself gives it by default (session.timeout.ms).
    """

    no_status_seconds: float = 60.0
    no_progress_seconds: float = 75.0
    no_progress_blind_seconds: float = 150.0
    not_stored_seconds: float = 75.0
    no_heartbeat_seconds: float = 60.0
    not_on_target_seconds: float = 60.0
    slower_seconds: float = 900.0
    not_synced_seconds: float = 60.0
    no_checkpoint_seconds: float = 60.0
    departed_seconds: float = 10.0


@dataclass(frozen=True)
class ConditionClock:
    """How long a condition has been seen to last. Time around an observation that could not see it does not count."""

    seconds: float
    seen_at: float
    paused: bool = False

    def see(self, now: float) -> ConditionClock:
        """Return the clock after an observation that saw the condition."""
        return ConditionClock(self.seconds + (0.0 if self.paused else max(0.0, now - self.seen_at)), now)

    def pause(self) -> ConditionClock:
        """Return the clock after an observation that could not see it."""
        return replace(self, paused=True)


def continue_clock(earlier: ConditionClock | None, now: float) -> ConditionClock:
    """Return the earlier clock, continued, or a new one."""
    return earlier.see(now) if earlier else ConditionClock(0.0, now)


def paused_all(clocks: Mapping[str, ConditionClock]) -> dict[str, ConditionClock]:
    """Return clocks after an observation that could not see their conditions."""
    return {name: clock.pause() for name, clock in clocks.items()}

"""What was read of the clusters at one moment, as values, and how far each flow is behind. No I/O.

A failed read is a value too, so one dead cluster hides no other. `status` makes a Snapshot; `problems` and `health` judge it. Lag compares the ends of the source's log with the offsets that Connect stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, TaskConfig
from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.reconcile.effect import WorkerClients
from mm2mgr.reconcile.resets import goes_on
from mm2mgr.render import Connector
from mm2mgr.topology import Flow
from mm2mgr.truth.client_values import text_of


@dataclass(frozen=True)
class Failure:
    """Why something could not be read, and what to do about it."""

    message: str
    hint: str | None = None

    @classmethod
    def of(cls, error: Mm2mgrError) -> Failure:
        return cls(error.message, error.hint)

    def to_dict(self) -> dict[str, str | None]:
        return dict(vars(self))


@dataclass(frozen=True)
class LiveConnector:
    """One declared connector as its Connect cluster shows it.

    `info` None: not applied. `status` None: it has none (yet). Tasks and offsets are read for source connectors only.
    `adopted`: what its workers bring, where the tree adopts it and has not written it yet.
    """

    desired: Connector
    info: ConnectorInfo | None = None
    status: ConnectorStatus | None = None
    tasks: tuple[TaskConfig, ...] | Failure = ()
    offsets: Mapping[TopicPartition, int] | Failure = field(default_factory=dict)
    adopted: WorkerClients | None = None

    @property
    def key(self) -> str:
        """`connect/name`, unique in the estate."""
        return f"{self.desired.connect}/{self.desired.name}"

    def assigned(self) -> dict[int, tuple[TopicPartition, ...]]:
        """Return the partitions of each task; empty when the tasks could not be read."""
        if isinstance(self.tasks, Failure):
            return {}
        return {task.id: task.assigned for task in self.tasks}


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
        return self.state not in {"PAUSED", "STOPPED"}

    def problem(self) -> LiveProblem:
        """Return it as a problem."""
        return LiveProblem("orphan", ProblemSubject(self.connect, self.connector), self.to_dict())

    def to_dict(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class SeenConnect:
    """One Connect cluster; with a `failure` it has no connectors, and nothing is known about them.

    `kafka_cluster_id` is the Kafka its workers live on ("": unknown). Orphans are only looked for with all flows.
    """

    name: str
    connectors: Mapping[str, LiveConnector] = field(default_factory=dict)
    failure: Failure | None = None
    kafka_cluster_id: str = ""
    orphans: tuple[Orphan, ...] = ()


@dataclass(frozen=True)
class SeenKafka:
    """One Kafka cluster: partitions per topic, topic ids (Kafka 2.8 or newer), log start and end of the partitions asked
    for, reasons for those unread."""

    topics: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    failure: Failure | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """The chosen flows of an estate at `taken_at` (seconds since 1970); `whole` when these are all of them."""

    taken_at: float
    flows: tuple[Flow, ...]
    connects: Mapping[str, SeenConnect]
    clusters: Mapping[str, SeenKafka]
    whole: bool = False

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

    def failures(self) -> dict[str, Failure]:
        """Return what could not be read at all, as `connect NAME` or `kafka ALIAS`."""
        connects = {f"connect {name}": seen.failure for name, seen in self.connects.items()}
        clusters = {f"kafka {alias}": seen.failure for alias, seen in self.clusters.items()}
        return {where: failure for where, failure in (connects | clusters).items() if failure}


# --- lag --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionLag:
    """One source partition. `stored` is the last replicated offset (None: nothing stored yet), `arrived` the end offset
    of the remote partition (None: unknown), `task` None when no task has it."""

    partition: TopicPartition
    log: Offsets
    stored: int | None
    lag_records: int
    task: int | None = None
    arrived: int | None = None
    heartbeat: bool = False

    @property
    def past_end(self) -> bool:
        """Tell whether the stored offset cannot belong to this log: it was created again, or truncated."""
        return self.stored is not None and self.stored >= self.log.end

    @property
    def lost_records(self) -> int:
        """Return how many records left the log before they were replicated.

        One missing offset in an empty log is the end marker of a transaction, which is no record.
        """
        lost = 0 if self.stored is None else max(0, self.log.start - (self.stored + 1))
        return 0 if lost == 1 and self.log.start == self.log.end else lost

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "task": self.task,
            "lag_records": self.lag_records,
            "stored_offset": self.stored,
            "log_start": self.log.start,
            "log_end": self.log.end,
            "target_end": self.arrived,
            "note": "nothing stored yet"
            if self.stored is None
            else "stored offset is past the end"
            if self.past_end
            else "",
        }


@dataclass(frozen=True)
class FlowLag:
    """Every partition that a flow carries. `unknown` says why there is no lag; `matched` counts topics that match the flow."""

    partitions: tuple[PartitionLag, ...] = ()
    matched: int = 0
    unassigned: tuple[TopicPartition, ...] = ()
    deleted: tuple[TopicPartition, ...] = ()
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    unknown: str | None = None

    @cached_property
    def counted(self) -> tuple[PartitionLag, ...]:
        """The partitions that count as lag: heartbeats arrive every second, so their offsets are always behind."""
        return tuple(one for one in self.partitions if not one.heartbeat)

    @property
    def blind(self) -> bool:
        """Whether the target's end offsets are all unknown."""
        return all(one.arrived is None for one in self.partitions)

    @cached_property
    def total_records(self) -> int | None:
        """Lag in records; None where unknown."""
        return None if self.unknown is not None else sum(one.lag_records for one in self.counted)

    def most_behind(self, count: int) -> tuple[PartitionLag, ...]:
        """Return the partitions with the largest lag, only those that have any."""
        behind = (one for one in self.counted if one.lag_records)
        return tuple(sorted(behind, key=lambda one: (-one.lag_records, one.partition))[:count])


def is_heartbeat(flow: Flow, topic: str) -> bool:
    """Tell whether a topic holds heartbeats, this cluster's own or ones that were mirrored to it."""
    return topic == "heartbeats" or topic.endswith(f"{flow.settings.separator}heartbeats")


def measure(flow: Flow, seen: LiveConnector, source: SeenKafka, target: SeenKafka) -> FlowLag:
    """Compare stored offsets with the source's log; what could not be read makes the lag unknown, not zero."""
    if source.failure:
        return FlowLag(unknown=f"source {flow.source.alias} could not be read: {source.failure.message}")
    tasks = {partition: task for task, partitions in seen.assigned().items() for partition in partitions}
    matched = [topic for topic in source.topics if flow.carries(topic)]
    wanted = {TopicPartition(topic, number) for topic in matched for number in range(source.topics[topic])}
    every = sorted(wanted | {one for one in tasks if one.partition < source.topics.get(one.topic, 0)})
    unknown, stored = None, seen.offsets
    if isinstance(stored, Failure):
        unknown, stored = f"stored offsets could not be read: {stored.message}", {}
    # Without an entry that is in the log, a task begins where this says: with `latest` at its end, so that nothing waits.
    begins_at = text_of("source", seen.desired.config, "source consumer", "auto.offset.reset")

    def one(partition: TopicPartition, log: Offsets) -> PartitionLag:
        offset = stored.get(partition)
        remote = target.offsets.get(TopicPartition(flow.remote_topic(partition.topic), partition.partition))
        return PartitionLag(
            partition,
            log,
            offset,
            log.end - goes_on(log, offset, begins_at),
            tasks.get(partition),
            remote.end if remote else None,
            is_heartbeat(flow, partition.topic),
        )

    return FlowLag(
        tuple(one(partition, source.offsets[partition]) for partition in every if partition in source.offsets),
        matched=len(matched),
        unassigned=tuple(sorted(wanted - tasks.keys())) if tasks else (),
        deleted=tuple(sorted(one for one in tasks if one.partition >= source.topics.get(one.topic, 0))),
        unread={one: source.unread.get(one, "no answer") for one in every if one not in source.offsets},
        unknown=unknown,
    )

"""How far a flow is behind, partition by partition: source ends against the offsets that Connect stored. Pure.

In: a flow and what was read of its connector, source and target. Out: a FlowLag. Judging it is not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mm2mgr.observe.reading import Failure, SeenConnector, SeenKafka
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.topology import Flow


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
        """Return the partition as JSON-ready values."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "task": self.task,
            "lag_records": self.lag_records,
            "stored_offset": self.stored,
            "log_start": self.log.start,
            "log_end": self.log.end,
            "target_end": self.arrived,
            "note": "nothing stored yet" if self.stored is None else "",
        }


@dataclass(frozen=True)
class FlowLag:
    """Every partition that a flow carries. `unknown` says why there is no lag; `matched` counts topics that the flow wants."""

    partitions: tuple[PartitionLag, ...] = ()
    matched: int = 0
    unassigned: tuple[TopicPartition, ...] = ()
    deleted: tuple[TopicPartition, ...] = ()
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    unknown: str | None = None

    @cached_property
    def counted(self) -> tuple[PartitionLag, ...]:
        """The partitions that count as lag: heartbeats keep coming each second, so their offsets always look behind."""
        return tuple(one for one in self.partitions if not one.heartbeat)

    @property
    def blind(self) -> bool:
        """Tell whether nothing is known of what arrived on the target."""
        return all(one.arrived is None for one in self.partitions)

    @cached_property
    def total_records(self) -> int | None:
        """Lag in records; None when it is not known."""
        return None if self.unknown is not None else sum(one.lag_records for one in self.counted)

    def most_behind(self, count: int) -> tuple[PartitionLag, ...]:
        """Return the partitions with the largest lag, only those that have any."""
        behind = (one for one in self.counted if one.lag_records)
        return tuple(sorted(behind, key=lambda one: (-one.lag_records, one.partition))[:count])


def is_heartbeat(flow: Flow, topic: str) -> bool:
    """Tell whether a topic holds heartbeats, this cluster's own or ones that were mirrored to it."""
    return topic == "heartbeats" or topic.endswith(f"{flow.settings.separator}heartbeats")


def upstream_topic(flow: Flow, topic: str) -> str | None:
    """Return which source topic is mirrored to this topic of the target; None when none is, or the policy is not known."""
    return flow.selection.upstream(topic)


def measure(flow: Flow, seen: SeenConnector, source: SeenKafka, target: SeenKafka) -> FlowLag:
    """Compare stored offsets with the source's log; what could not be read makes the lag unknown, not zero."""
    tasks = {partition: task for task, partitions in seen.assigned().items() for partition in partitions}
    if source.failure:
        return FlowLag(unknown=f"source {flow.source.alias} could not be read: {source.failure.message}")
    matched = {topic: count for topic, count in source.topics.items() if flow.carries(topic)}
    wanted = {TopicPartition(topic, number) for topic, count in matched.items() for number in range(count)}
    every = sorted(wanted | {one for one in tasks if one.partition < source.topics.get(one.topic, 0)})
    known_tasks = not isinstance(seen.tasks, Failure)
    stored = {} if isinstance(seen.offsets, Failure) else seen.offsets
    # With `latest` a task begins at the end of a log, so what lies before its first stored offset was never meant to go.
    from_end = seen.desired.config.get("source.consumer.auto.offset.reset") == "latest"

    def one(partition: TopicPartition, log: Offsets) -> PartitionLag:
        offset = stored.get(partition)
        remote = target.offsets.get(TopicPartition(flow.remote_topic(partition.topic), partition.partition))
        return PartitionLag(
            partition,
            log,
            offset,
            _behind(log, offset, from_end),
            tasks.get(partition),
            remote.end if remote else None,
            is_heartbeat(flow, partition.topic),
        )

    return FlowLag(
        tuple(one(partition, source.offsets[partition]) for partition in every if partition in source.offsets),
        matched=len(matched),
        unassigned=tuple(sorted(wanted - tasks.keys())) if known_tasks and tasks else (),
        deleted=tuple(sorted(one for one in tasks if one.partition >= source.topics.get(one.topic, 0))),
        unread={one: source.unread.get(one, "no answer") for one in every if one not in source.offsets},
        unknown=f"stored offsets could not be read: {seen.offsets.message}"
        if isinstance(seen.offsets, Failure)
        else None,
    )


def _behind(log: Offsets, stored: int | None, from_end: bool) -> int:
    """Return end - (stored + 1), never negative; records that left the log already are lost, not behind."""
    if stored is None:
        return 0 if from_end else max(0, log.end - log.start)
    return max(0, log.end - max(stored + 1, log.start))

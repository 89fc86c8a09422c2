"""What MirrorMaker writes beside records: heartbeats that arrive, checkpoints that are due, group offsets on the
target, and the settings and ACLs of topics. Pure.

A checkpoint is due when a consumer group has read on by more than `offset.lag.max` mirrored records: by then
MirrorMaker has written an offset sync, so the group's offset translates to a higher one than before (OffsetSyncStore,
MirrorCheckpointTask). Settings and ACLs are copied at intervals, and what is refused is only logged. Of settings, those
are compared that are set on topics of the source and that the connector copies. What is a default there, which
MirrorMaker deletes on the target or leaves alone by its version, is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from mm2mgr.kafka.acls import Acl
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.lag import FlowLag, PartitionLag, is_only_writer
from mm2mgr.observe.reading import ConditionClock, LiveConnector, Reading, continue_clock
from mm2mgr.partitions import TopicPartition
from mm2mgr.topics.names import NameFilter, readable
from mm2mgr.topology import Flow

_CHECKPOINT_SECONDS = 60
_DEFAULT_LAG_MAX = 100
_LEAST_SECONDS_BETWEEN = 5.0
_MOST_PARTITIONS = 1_000  # of all groups of one connector
# Offset syncs grow sparse with their distance from the end of the log; a group this many times nearer finds one behind
# its baseline.
_NEAR_THE_END = 10


@dataclass(frozen=True)
class Beats:
    """The end of the topic that a running heartbeat connector writes to, and for how long it has not moved."""

    end: int
    clock: ConditionClock

    def pause(self) -> Beats:
        """Return it after an observation that could not read the topic."""
        return replace(self, clock=self.clock.pause())


class Baseline(NamedTuple):
    """Where a group was in a partition when it was first seen after the last checkpoint: its committed offset, and the
    end of the remote partition once the records before that offset had been mirrored (None: not yet).
    """

    committed: int
    arrived: int | None = None


class SyncedOffset(NamedTuple):
    """A group's offset in a partition of the source and in its remote partition. `before`: the latter's, from which it
    went back although the source's did not, at `rewound_at` (seconds since 1970), and which it has not reached again.
    """

    source: int
    target: int
    before: int | None = None
    rewound_at: float = 0.0


@dataclass(frozen=True)
class CheckpointLook:
    """The end of the topic that a checkpoint connector writes to, for how long it has not moved while the connector
    ran, and what is remembered of consumer groups, by group and partition.

    `asked_at`: when their offsets were last asked for. `owed`: for how long these groups have been due a checkpoint.
    """

    end: int | None = None
    still: ConditionClock | None = None
    asked_at: float | None = None
    baselines: Mapping[str, Mapping[str, Baseline]] = field(default_factory=dict)
    owed: ConditionClock | None = None
    owed_groups: tuple[str, ...] = ()
    synced: Mapping[str, Mapping[str, SyncedOffset]] = field(default_factory=dict)

    def pause(self) -> CheckpointLook:
        """Return it after an observation without the topic, or the source, when no checkpoint can come."""
        return replace(self, still=self.still and self.still.pause(), owed=self.owed and self.owed.pause())


@dataclass(frozen=True)
class Checkpointing:
    """What a running checkpoint connector does: seconds between its checkpoints, and whether it commits them."""

    interval_seconds: float
    syncs_groups: bool

    def is_due(self, look: CheckpointLook | None, now: float) -> bool:
        """Tell whether groups' offsets are due: once per interval, if synced or without a checkpoint since."""
        if look is None or look.still is None:
            return False
        every = max(_LEAST_SECONDS_BETWEEN, self.interval_seconds)
        is_early = look.asked_at is not None and 0 <= now - look.asked_at < every
        return not is_early and (self.syncs_groups or look.still.seconds >= self.interval_seconds)


def checkpointing(connector: LiveConnector) -> Checkpointing | None:
    """Return what a running checkpoint connector does; None for others, and where only a worker knows its config."""
    if connector.desired.type != "checkpoint" or not connector.runs or connector.running is None:
        return None
    seconds = connector.number("emit.checkpoints.interval.seconds", _CHECKPOINT_SECONDS)
    syncs_groups = connector.running.config.get("sync.group.offsets.enabled", "false").strip().lower() == "true"
    return None if seconds is None else Checkpointing(seconds, syncs_groups)


def heartbeat_topics(earlier: Mapping[str, Beats], reading: Reading) -> dict[str, Beats]:
    """Follow the topic of each heartbeat connector whose task runs; what could not be read pauses."""

    def follow(old: Beats | None, connector: LiveConnector) -> Beats | None:
        if not connector.runs:
            return None
        end = _end(reading, connector)
        if end is None:
            return old and old.pause()
        return Beats(end, continue_clock(old.clock if old and old.end == end else None, reading.taken_at))

    return _follow_connectors(earlier, reading, "heartbeat", follow)


def checkpoint_looks(
    earlier: Mapping[str, CheckpointLook], reading: Reading, lags: Mapping[str, FlowLag]
) -> dict[str, CheckpointLook]:
    """Follow each checkpoint connector's topic, and groups where they were read. One that does not run owes nothing."""

    def follow(old: CheckpointLook | None, connector: LiveConnector) -> CheckpointLook | None:
        if checkpointing(connector) is None:
            return old and CheckpointLook(asked_at=old.asked_at, synced=old.synced)
        end = None if _cluster(reading, connector, "source").failure else _end(reading, connector)
        look = _since_written(old or CheckpointLook(), end, reading.taken_at)
        return (
            look
            if connector.groups is None
            else _with_groups(look, reading, connector, _mirrored_by_flows(reading, connector, lags))
        )

    return _follow_connectors(earlier, reading, "checkpoint", follow)


class _Pausable(Protocol):
    def pause(self: _Followed) -> _Followed: ...


_Followed = TypeVar("_Followed", bound=_Pausable)


def _follow_connectors(
    earlier: Mapping[str, _Followed],
    reading: Reading,
    kind: str,
    follow: Callable[[_Followed | None, LiveConnector], _Followed | None],
) -> dict[str, _Followed]:
    """Return what is remembered by `connect/connector`; it pauses where the Connect cluster was not read."""
    followed_connectors = dict(earlier)
    for connect in reading.connects.values():
        for connector in connect.connectors.values():
            old = followed_connectors.pop(connector.key, None)
            if connector.desired.type == kind and (new := follow(old, connector)):
                followed_connectors[connector.key] = new
        if connect.failure:
            inside = f"{connect.name}/"
            followed_connectors |= {
                key: followed.pause() for key, followed in followed_connectors.items() if key.startswith(inside)
            }
    return followed_connectors


def _cluster(reading: Reading, connector: LiveConnector, side: str) -> RunningKafka:
    return reading.clusters.get(connector.desired.config[f"{side}.cluster.alias"], RunningKafka())


def _end(reading: Reading, connector: LiveConnector) -> int | None:
    """Return the sum of the ends of a companion's topic; None where it was not read in full, and where the workers' own
    Kafka cluster is silent: without it they stop their tasks, so nothing is due."""
    if reading.home_failure(connector.desired.connect):
        return None
    kafka, topic = _cluster(reading, connector, "target"), reading.topic_of(connector)
    partitions = [TopicPartition(topic, number) for number in range(kafka.topics.get(topic, 0))]
    ends = [kafka.offsets[partition].end for partition in partitions if partition in kafka.offsets]
    return sum(ends) if partitions and len(ends) == len(partitions) else None


# --- checkpoints and groups -------------------------------------------------------------------------------------------


def _since_written(old: CheckpointLook, end: int | None, now: float) -> CheckpointLook:
    """A checkpoint that was written begins everything anew."""
    if end is None:
        return old.pause()
    if end != old.end or old.still is None:
        return CheckpointLook(end=end, still=ConditionClock(0.0, now), asked_at=old.asked_at, synced=old.synced)
    return replace(old, still=old.still.see(now), owed=old.owed and old.owed.see(now))


@dataclass(frozen=True)
class _Mirrored:
    """One partition of a flow: the name of its topic on the target, the flow's offset.lag.max, and its lag.

    `lag`: None where growth of the remote partition does not count records, or was not read.
    """

    remote_topic: str
    lag_max: float
    lag: PartitionLag | None


def _mirrored_by_flows(
    reading: Reading, checkpoints: LiveConnector, lags: Mapping[str, FlowLag]
) -> Callable[[TopicPartition], _Mirrored | None]:
    flows = reading.flows_of(checkpoints)
    lag_of = {
        flow.id: {partition_lag.partition: partition_lag for partition_lag in lags[flow.id].counted_partitions}
        for flow in flows
        if flow.id in lags and lags[flow.id].unknown is None and is_only_writer(reading, flow)
    }

    def find(partition: TopicPartition) -> _Mirrored | None:
        flow = next((flow for flow in flows if flow.carries(partition.topic)), None)
        if flow is None:
            return None
        source = reading.source_connector(flow)
        lag_max = source.number("offset.lag.max", _DEFAULT_LAG_MAX) if source else None
        lag = None if lag_max is None else lag_of.get(flow.id, {}).get(partition)
        return _Mirrored(flow.remote_topic(partition.topic), lag_max or 0, lag)

    return find


def _with_groups(
    look: CheckpointLook,
    reading: Reading,
    connector: LiveConnector,
    mirrored: Callable[[TopicPartition], _Mirrored | None],
) -> CheckpointLook:
    """What was not read stays as it was."""
    now = reading.taken_at
    source, target = _cluster(reading, connector, "source"), _cluster(reading, connector, "target")
    if source.failure or target.failure:
        return replace(look, asked_at=now)
    baselines, synced, owed, left = dict(look.baselines), dict(look.synced), set(look.owed_groups), _MOST_PARTITIONS
    for group in connector.groups or ():
        if group not in source.group_offsets:
            continue
        committed = dict(islice(source.group_offsets[group].items(), left))
        left -= len(committed)
        mirrored_partitions = {partition: how for partition in committed if (how := mirrored(partition))}
        followed = {partition: how for partition, how in mirrored_partitions.items() if how.lag is not None}
        before = baselines.get(group, {})
        baselines[group] = {
            str(partition): _baseline(before.get(str(partition)), committed[partition], how)
            for partition, how in followed.items()
        }
        if any(
            _is_owed(baselines[group][str(partition)], committed[partition], how) for partition, how in followed.items()
        ):
            owed.add(group)
        else:
            owed.discard(group)
        if group in target.group_offsets:
            there, pairs = target.group_offsets[group], synced.get(group, {})
            places = (
                (partition, TopicPartition(how.remote_topic, partition.partition))
                for partition, how in mirrored_partitions.items()
            )
            synced[group] = {
                str(partition): _sync_of(pairs.get(str(partition)), committed[partition], there[remote], now)
                for partition, remote in places
                if remote in there
            }
    assigned = set(connector.groups or ())
    owed &= assigned
    return replace(
        look,
        asked_at=now,
        baselines={group: places_of_group for group, places_of_group in baselines.items() if group in assigned},
        owed=(look.owed or ConditionClock(0.0, now)) if owed else None,
        owed_groups=tuple(sorted(owed)),
        synced={group: offsets_of_group for group, offsets_of_group in synced.items() if group in assigned},
    )


def _baseline(old: Baseline | None, committed: int, how: _Mirrored) -> Baseline:
    """Stored offsets are read before ends, so the target has all that they show."""
    assert how.lag is not None
    stored, arrived = how.lag.stored, how.lag.arrived
    went_back = old is not None and (committed < old.committed or (arrived or 0) < (old.arrived or 0))
    base = Baseline(committed) if old is None or went_back else old
    is_mirrored = stored is not None and stored + 1 >= base.committed
    return base._replace(arrived=arrived) if base.arrived is None and is_mirrored else base


def _is_owed(base: Baseline, committed: int, how: _Mirrored) -> bool:
    if how.lag is None or how.lag.arrived is None or base.arrived is None:
        return False
    behind = max(0, how.lag.log.end - committed)
    mirrored = how.lag.arrived - base.arrived - behind
    return committed - base.committed > how.lag_max and mirrored > how.lag_max + _NEAR_THE_END * behind


def _sync_of(old: SyncedOffset | None, source: int, target: int, now: float) -> SyncedOffset:
    """Where the source's offset went back too, the group was reset."""
    if old is None or source < old.source:
        return SyncedOffset(source, target)
    if target < old.target:
        return SyncedOffset(source, target, max(old.target, old.before or 0), old.rewound_at if old.before else now)
    if old.before is not None and target < old.before:
        return old._replace(source=source, target=target)
    return SyncedOffset(source, target)


# --- settings and ACLs of topics --------------------------------------------------------------------------------------

_FILTER_CLASS = "DefaultConfigPropertyFilter"
_COPY_SECONDS = 600
_NO_NAMES = NameFilter((), ())
TopicOnCluster = tuple[RunningKafka, str]


@dataclass(frozen=True)
class TopicSync:
    """What one connector copies of its topics: the seconds between two rounds, and the names of settings left out."""

    interval_seconds: float
    excluded: NameFilter = _NO_NAMES

    def is_due(self, asked_at: float | None, now: float) -> bool:
        """Tell whether both sides are to be read again: twice in each of the connector's own rounds is enough."""
        return asked_at is None or not 0 <= now - asked_at < self.interval_seconds / 2


def config_sync(connector: LiveConnector) -> TopicSync | None:
    """Return how a RUNNING connector copies settings by its config; None where it does not, or that cannot be known."""
    config = connector.running.config if connector.running else {}
    excluded = config.get("config.properties.exclude", "${")
    items = tuple(item for part in excluded.split(",") if (item := part.strip()))
    if config.get("config.property.filter.class", _FILTER_CLASS).rpartition(".")[2] != _FILTER_CLASS or not all(
        "${" not in item and readable(item, topics=False) for item in items
    ):
        return None
    sync = _sync(connector, "sync.topic.configs")
    return replace(sync, excluded=NameFilter(items, ())) if sync else None


def acl_sync(connector: LiveConnector) -> TopicSync | None:
    """Return how a RUNNING connector copies ACLs by its config; None where it does not, or that cannot be known."""
    return _sync(connector, "sync.topic.acls")


def _sync(connector: LiveConnector, keys: str) -> TopicSync | None:
    if connector.running is None or connector.status is None or connector.status.state != "RUNNING":
        return None
    if connector.running.config.get(f"{keys}.enabled", "true").strip().lower() != "true":
        return None
    seconds = connector.number(f"{keys}.interval.seconds", _COPY_SECONDS)
    return TopicSync(seconds) if seconds and seconds > 0 else None


def _settings_missing(side: TopicOnCluster, remote: TopicOnCluster, sync: TopicSync) -> frozenset[str] | None:
    """Return the settings that the target does not have as the source has them, as `name=digest of the value`."""
    settings, there = (kafka.configs.get(topic) for kafka, topic in (side, remote))
    if not settings or not there:
        return None
    return frozenset(
        f"{key}={hashlib.blake2s(value.encode(), digest_size=6).hexdigest()}"
        for key, value in settings.set.items()
        if there.values.get(key) != value and not sync.excluded.matches(key)
    )


def _acls_missing(side: TopicOnCluster, remote: TopicOnCluster, _: TopicSync) -> frozenset[str] | None:
    acls, there = (kafka.acls.get(topic) for kafka, topic in (side, remote))
    if acls is None or there is None:
        return None
    return frozenset(
        str(mirrored) for acl in acls if (mirrored := mirrored_acl(acl, remote[1])) and mirrored not in there
    )


def mirrored_acl(acl: Acl, remote_topic: str) -> Acl | None:
    """Return the ACL that MirrorMaker makes on the target from a literal one of a source topic; None for a grant to
    write, which it leaves out.

    A grant of every operation becomes one to read, so that only MirrorMaker writes to a mirror. It removes none
    (MirrorSourceConnector).
    """
    if acl.allow and acl.operation == "Write":
        return None
    return replace(acl, name=remote_topic, operation="Read" if acl.allow and acl.operation == "All" else acl.operation)


@dataclass(frozen=True)
class Copied:
    """One thing that source connectors copy of their topics: how by their config, and what of a topic's is not on the
    target (None: it was not read on both sides). A problem has it as this `evidence`, by its `name`.
    """

    sync: Callable[[LiveConnector], TopicSync | None]
    missing: Callable[[TopicOnCluster, TopicOnCluster, TopicSync], frozenset[str] | None]
    evidence: str
    name: Callable[[str], str]


COPIED: Mapping[str, Copied] = {
    "configs": Copied(config_sync, _settings_missing, "settings", lambda setting: setting.partition("=")[0]),
    "acls": Copied(acl_sync, _acls_missing, "acls", str),
}


def missing_of(
    reading: Reading, flow: Flow, connector: LiveConnector, kind: str, sync: TopicSync
) -> dict[str, frozenset[str] | None] | None:
    """Return what the target lacks of each topic that tasks have (None: unread there); None: tasks were not read."""
    if connector.tasks_unread:
        return None
    source, target = (reading.clusters[cluster.alias] for cluster in (flow.source, flow.target))
    return {
        topic: COPIED[kind].missing((source, topic), (target, flow.remote_topic(topic)), sync)
        for topic in connector.assignment.topics
        if not flow.selection.is_heartbeats(topic)
    }

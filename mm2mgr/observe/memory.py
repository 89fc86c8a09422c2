"""What one observation leaves for the next: clocks, the progress of tasks, and the looks of the ledger. Pure.

`state_file` has the memory on disk. It holds names, offsets and times, no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mm2mgr.comparison.ownership import Journal, is_held
from mm2mgr.connectors import RESTING
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.beside_records import COPIED, Beats, CheckpointLook, checkpoint_looks, heartbeat_topics, missing_of
from mm2mgr.observe.interruptions import Interruptions, follow_interruptions
from mm2mgr.observe.lag import (
    FlowLag,
    LastStored,
    PartitionLag,
    SeenOffset,
    SeenTopic,
    Surplus,
    Surpluses,
    follow,
    is_only_writer,
    measure,
    measure_without_workers,
    reached_at,
    seen_offsets,
    weight_in,
)
from mm2mgr.observe.losses import NOTHING, FlowLooks, PartitionLook, row_of, take
from mm2mgr.observe.reading import ConditionClock, LiveConnector, Reading, continue_clock, paused_all
from mm2mgr.observe.trend import Points, follow_lag
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import LossRow
from mm2mgr.topology import Flow
from mm2mgr.truth.reach import text_of


def see_topics(
    lag: FlowLag, ids: Mapping[str, str], earlier: Mapping[str, SeenTopic], now: float
) -> dict[str, SeenTopic]:
    """Return what to remember of the flow's topics; one that the source does not have stays remembered."""
    topics, by_topic = dict(earlier), dict[str, list[PartitionLag]]()
    for partition in lag.counted_partitions:
        by_topic.setdefault(partition.partition.topic, []).append(partition)
    for name, partitions in by_topic.items():
        old, topic_id = earlier.get(name, SeenTopic()), ids.get(name, "")
        topic_ids = old.ids if topic_id in ("", *old.ids) else (*old.ids, topic_id)
        unread = {number: place for number, place in old.places.items() if TopicPartition(name, number) in lag.unread}
        places = {partition.partition.partition: _place(partition, old, now) for partition in partitions}
        topics[name] = SeenTopic(topic_ids, unread | places)
    return topics


def _place(partition_lag: PartitionLag, old: SeenTopic, now: float) -> SeenOffset:
    before, stored = (
        old.places.get(partition_lag.partition.partition),
        -1 if partition_lag.stored is None else partition_lag.stored,
    )
    arrived = reached_at(before, stored, partition_lag.arrived, partition_lag.log.end)
    if before is None or before.stored != stored:
        return SeenOffset(stored, arrived, now, partition_lag.arrived)  # nobody has searched behind it
    still_end = before.still_end
    if partition_lag.arrived is not None:
        stands = partition_lag.arrived == before.latest
        still_end = (partition_lag.log.end if still_end is None else still_end) if stands else None
    return before._replace(
        arrived=before.arrived if arrived is None else arrived,
        latest=before.latest if partition_lag.arrived is None else partition_lag.arrived,
        searched_to=partition_lag.searched_to,
        recordless_to=partition_lag.recordless_to,
        still_end=still_end,
    )


@dataclass(frozen=True)
class Mark:
    """The progress of one task: the sums of its stored offsets and of its remote end offsets (None: never read).

    `behind` tells whether records were waiting, `clock` for how long neither sum moved although records waited, `moved`
    whether that time began with a movement that was seen.
    """

    stored: int
    arrived: int | None
    behind: bool
    clock: ConditionClock
    moved: bool = False

    def has_moved_since(self, before: Mark) -> bool:
        """Tell whether one of the sums has grown; one that was not read on both sides does not count."""
        has_arrived = self.arrived is not None and before.arrived is not None and self.arrived > before.arrived
        return self.stored > before.stored or has_arrived


@dataclass(frozen=True)
class Rest:
    """A connector seen PAUSED or STOPPED: the source's end offsets then, their growth since, and for how long."""

    ends: int
    grown: int
    clock: ConditionClock


@dataclass(frozen=True)
class Unstored:
    """The sums of stored and of remote end offsets when the stored ones last moved; records that arrived since, and for
    how long (None: nothing has arrived since)."""

    stored: int
    arrived: int
    records: int = 0
    clock: ConditionClock | None = None


@dataclass(frozen=True)
class Unarrived:
    """The end of a remote topic that does not move, a sum over its partitions, and the records that are mirrored
    meanwhile, as the stored offsets say.

    `floor`: the offset that these begin at, a sum too (None: not known yet). Stored offsets follow what arrived, so it
    lies where the source's log ended once the end stopped moving; where the remote topic has never held a record, all
    that is stored later counts. `advances`: looks that saw the records grow; the clock runs since the first of these.
    """

    end: int
    floor: int | None = None
    records: int = 0
    advances: int = 0
    clock: ConditionClock | None = None


@dataclass(frozen=True)
class SyncLook:
    """When one thing that is copied of a flow's topics (settings or ACLs) was last asked for (seconds since 1970), and
    for how long which of it is not on the target: by topic of the source, as `COPIED` words it.
    """

    asked_at: float
    missing: Mapping[str, Mapping[str, ConditionClock]] = field(default_factory=dict)

    def pause(self) -> SyncLook:
        """Return it after an observation that could not see what is missing."""
        return replace(self, missing={topic: paused_all(clocks) for topic, clocks in self.missing.items()})


@dataclass(frozen=True)
class SilentWorker:
    """For how long a worker has accepted no connection. `moved`: its tasks have moved records since, so it runs."""

    clock: ConditionClock
    moved: bool = False


_Timed = TypeVar("_Timed", Mark, Rest, Unstored, Unarrived)


@dataclass(frozen=True)
class FlowMemory:
    """What is remembered of one flow. `home` is the Kafka cluster of its workers, which stores its offsets; `progress`
    are the points of its lag by their keys (see `trend`), of looks that saw it in the same `state`. `mirror`: how its
    topics are named on which Kafka cluster, for the `surplus` there. `seen_at`: when its stored offsets were last read
    from its workers (seconds since 1970).
    """

    home: str = ""
    unassigned: Mapping[str, ConditionClock] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    topics: Mapping[str, SeenTopic] = field(default_factory=dict)
    rest: Rest | None = None
    unstored: Unstored | None = None
    progress: Mapping[str, Points] = field(default_factory=dict)
    short: Mapping[str, ConditionClock] = field(default_factory=dict)
    unarrived: Mapping[str, Unarrived] = field(default_factory=dict)
    surplus: Mapping[str, Mapping[int, Surplus]] = field(default_factory=dict)
    mirror: str = ""
    interruptions: Interruptions = field(default_factory=Interruptions)
    state: str = ""
    seen_at: float = 0.0

    def pause(self) -> FlowMemory:
        """Return the memory after an observation without the source, the stored offsets or the Connect cluster."""
        return replace(
            self,
            unassigned=paused_all(self.unassigned),
            short=paused_all(self.short),
            unarrived={topic: _pause(unarrived) for topic, unarrived in self.unarrived.items()},
            marks={task: _pause(mark) for task, mark in self.marks.items()},
            rest=self.rest and _pause(self.rest),
            unstored=self.unstored and _pause(self.unstored),
        )


@dataclass(frozen=True)
class Memory:
    """What earlier observations left: `without_status`, `beats` and `checkpoints` by `connect/connector`, flows and
    their looks by their ids.

    `silent_workers` are by `connect/worker id`. `copied`: the looks at settings and at ACLs of topics, each by the ids
    of flows. `unwritten` are rows of the ledger that are not in its table yet. `shared_at`: when this machine last
    wrote points of lag into the store (seconds since 1970). `audited_since`: when a flow was first seen to declare
    audits, by its id; `failover_since`: the same for a pair that declares failover.
    """

    without_status: Mapping[str, ConditionClock] = field(default_factory=dict)
    flows: Mapping[str, FlowMemory] = field(default_factory=dict)
    looks: Mapping[str, FlowLooks] = field(default_factory=dict)
    unwritten: tuple[LossRow, ...] = ()
    shared_at: float = 0.0
    beats: Mapping[str, Beats] = field(default_factory=dict)
    copied: Mapping[str, Mapping[str, SyncLook]] = field(default_factory=dict)
    checkpoints: Mapping[str, CheckpointLook] = field(default_factory=dict)
    silent_workers: Mapping[str, SilentWorker] = field(default_factory=dict)
    audited_since: Mapping[str, float] = field(default_factory=dict)
    failover_since: Mapping[str, float] = field(default_factory=dict)

    def flow(self, flow: str) -> FlowMemory:
        """Return what is remembered of a flow."""
        return self.flows.get(flow, _NOTHING)


_NOTHING = FlowMemory()


def measure_lags(reading: Reading, earlier: Memory | None = None) -> dict[str, FlowLag]:
    """Measure every flow of a reading whose connector exists, with the help of what is remembered: where its workers do
    not answer, or know no offsets because their own Kafka cluster does not, by the offsets that they stored last."""
    lags = {}
    for flow in reading.flows:
        connector, last = reading.source_connector(flow), None
        if reading.workers_failure(flow):
            last = _lag_by_last_stored(reading, flow, earlier or Memory())
        if last:
            lags[flow.id] = last
        elif connector and connector.running:
            lags[flow.id] = measure(reading, flow, connector, _seen_offsets(reading, flow, earlier))
    return lags


def _lag_by_last_stored(reading: Reading, flow: Flow, earlier: Memory) -> FlowLag | None:
    """Return the lag by what the workers' topic holds, else by the last look at them; None where neither is known."""
    connect, old, remembered = reading.connects[flow.connect.name], earlier.flow(flow.id), {}
    if flow.id not in reading.desired:
        return None
    stored = (connect.stored or {}).get(reading.desired[flow.id].name)
    last = LastStored(None if stored is not None else old.seen_at)
    home = reading.clusters.get(flow.connect.kafka, RunningKafka()).cluster_id
    if not home or home == old.home:  # else other brokers than at the last look, so other offsets
        remembered = _seen_offsets(reading, flow, earlier)
    if not stored and not remembered:
        return None
    if stored is None:
        stored = {
            TopicPartition(topic, number): place.stored
            for topic, places in remembered.items()
            for number, place in places.items()
            if place.stored >= 0
        }
    lag = measure_without_workers(reading, flow, stored, remembered, last)
    if old.state != UNREAD and lag.last_stored:
        return replace(lag, last_stored=lag.last_stored._replace(target_moves=None))
    return lag


def _seen_offsets(reading: Reading, flow: Flow, earlier: Memory | None) -> dict[str, Mapping[int, SeenOffset]]:
    return seen_offsets(reading, flow, earlier.flow(flow.id).topics if earlier else {})


def remember(earlier: Memory, reading: Reading, lags: Mapping[str, FlowLag]) -> Memory:
    """Return the memory after this reading. Flows outside of it stay as they were; what it could not see pauses."""
    flows = dict(earlier.flows)
    for flow in reading.flows:
        old, connector, lag = earlier.flow(flow.id), reading.source_connector(flow), lags.get(flow.id)
        home = reading.connects[flow.connect.name].kafka_cluster_id or old.home
        if old.home and home != old.home:
            old = FlowMemory()
        if connector is not None and connector.running is None:  # not applied; its offsets outlive it
            flows[flow.id] = FlowMemory(home, topics=old.topics, interruptions=old.interruptions)
            continue
        if connector is not None and connector.running is not None:
            followed = follow_interruptions(old.interruptions, connector.running, reading.taken_at)
            old = replace(old, interruptions=followed)
        if lag and lag.last_stored and lag.unknown is None and not lag.unread:
            flows[flow.id] = _follow_unread(old, reading, flow, lag)
            continue
        if connector is None or lag is None or lag.unknown is not None:
            flows[flow.id] = replace(old.pause(), home=home)
            continue
        ids = reading.clusters[flow.source.alias].topic_ids
        topics = see_topics(lag, ids, old.topics, reading.taken_at)
        new = old.pause() if lag.unread else _follow_flow(old, flow, connector, lag, reading.taken_at)
        mirror, surplus = _surplus(old, reading, flow, lag, topics)
        flows[flow.id] = replace(new, home=home, topics=topics, mirror=mirror, surplus=surplus)
    looks, lost = _looks(earlier.looks, reading, lags)
    return replace(
        earlier,
        without_status=_without_status(earlier.without_status, reading),
        flows=flows,
        beats=heartbeat_topics(earlier.beats, reading),
        copied={kind: _sync_looks(kind, earlier.copied.get(kind, {}), reading) for kind in COPIED},
        checkpoints=checkpoint_looks(earlier.checkpoints, reading, lags),
        silent_workers=_silent_workers(earlier, reading, flows),
        looks=looks,
        unwritten=(*earlier.unwritten, *lost),
        audited_since=_audited_since(earlier.audited_since, reading),
        failover_since=_failover_since(earlier.failover_since, reading),
    )


UNREAD = "unread"
"""The state of a flow whose workers, or their own Kafka cluster, did not answer."""


def _follow_unread(old: FlowMemory, reading: Reading, flow: Flow, lag: FlowLag) -> FlowMemory:
    """Follow the lag of a flow whose workers know nothing: it grows since the last look at them."""
    topics = see_topics(lag, reading.clusters[flow.source.alias].topic_ids, old.topics, reading.taken_at)
    before = old.progress if old.state == UNREAD else {key: points[-1:] for key, points in old.progress.items()}
    progress = follow_lag(before, lag, reading.taken_at)
    return replace(old.pause(), topics=topics, progress=progress, state=UNREAD)


def _standing(connector: LiveConnector) -> str:
    """Return the state that a trend belongs to: tasks that move or begin to are RUNNING."""
    state = connector.status.work_state if connector.status else ""
    return state if state in {*RESTING, "FAILED"} else "RUNNING"


def _audited_since(earlier: Mapping[str, float], reading: Reading) -> dict[str, float]:
    begun = {flow.id: earlier.get(flow.id, reading.taken_at) for flow in reading.flows if flow.settings.audit}
    read = {flow.id for flow in reading.flows}
    return {**{flow: since for flow, since in earlier.items() if flow not in read}, **begun}


def _failover_since(earlier: Mapping[str, float], reading: Reading) -> dict[str, float]:
    begun = {flow.pair: earlier.get(flow.pair, reading.taken_at) for flow in reading.flows if flow.failover}
    read = {flow.pair for flow in reading.flows}
    return {**{pair: since for pair, since in earlier.items() if pair not in read}, **begun}


def _surplus(
    old: FlowMemory, reading: Reading, flow: Flow, lag: FlowLag, topics: Mapping[str, SeenTopic]
) -> tuple[str, Surpluses]:
    """Return where a flow's topics are mirrored to, and what to remember there of records that arrive twice.

    What was remembered is of no use elsewhere. What could not be read changes nothing.
    """
    source, target = reading.clusters[flow.source.alias], reading.clusters.get(flow.target.alias, RunningKafka())
    earlier = {
        topic: (
            places
            if topic in topics and topics[topic].ids == old.topics.get(topic, SeenTopic()).ids
            else {number: place.of_log_before() for number, place in places.items()}
        )
        for topic, places in old.surplus.items()
    }
    if lag.unread or target.failure or reading.connects[flow.connect.name].exactly_once is None:
        return old.mirror, earlier
    mirror = f"{flow.remote_topic('*')} on {target.cluster_id or flow.target.alias}"
    earlier = earlier if mirror == old.mirror else {}
    surplus = follow(lag, earlier, weight_in(reading, flow), source.later_ends, reading.taken_at)
    doubts = [topic for topic, places in surplus.items() if any(place.limit is not None for place in places.values())]
    for topic in doubts:
        if any(_writes_too(other, flow, topic) for other in reading.declared):
            del surplus[topic]
    return mirror, surplus


def _writes_too(other: Flow, flow: Flow, topic: str) -> bool:
    """Tell whether another flow that runs writes to the mirror of a flow's topic."""
    if other.id == flow.id or other.target.alias != flow.target.alias or other.settings.state in ("paused", "stopped"):
        return False
    name = other.selection.upstream(flow.remote_topic(topic))
    return name is not None and other.carries(name)


def _silent_workers(earlier: Memory, reading: Reading, flows: Mapping[str, FlowMemory]) -> dict[str, SilentWorker]:
    workers = dict(earlier.silent_workers)
    for connect in reading.connects.values():
        old = {key: workers.pop(key) for key in earlier.silent_workers if key.startswith(f"{connect.name}/")}
        if connect.failure:
            workers |= {
                key: replace(silent_worker, clock=silent_worker.clock.pause()) for key, silent_worker in old.items()
            }
        for worker in connect.silent_workers:
            before = old.get(f"{connect.name}/{worker}")
            moved = before is not None and (before.moved or _moves(worker, connect.name, reading, earlier, flows))
            clock = continue_clock(before.clock if before else None, reading.taken_at)
            workers[f"{connect.name}/{worker}"] = SilentWorker(clock, moved)
    return workers


def _moves(worker: str, connect: str, reading: Reading, earlier: Memory, flows: Mapping[str, FlowMemory]) -> bool:
    for flow in reading.flows:
        connector = reading.source_connector(flow)
        if flow.connect.name != connect or connector is None or connector.status is None:
            continue
        before, after = earlier.flow(flow.id).marks, flows[flow.id].marks
        for task in (str(task.id) for task in connector.status.tasks if task.worker_id == worker):
            if task in before and task in after and after[task].has_moved_since(before[task]):
                return True
    return False


def _looks(
    earlier: Mapping[str, FlowLooks], reading: Reading, lags: Mapping[str, FlowLag]
) -> tuple[dict[str, FlowLooks], list[LossRow]]:
    """Return the looks at the partitions of each flow after this reading, and what it shows to be lost.

    Heartbeats are no loss. A look without topic ids changes nothing: remembered, it would hide that a topic was created
    again. Offsets on another Kafka cluster than before are other offsets, such as those of a sandbox
    made anew.
    """
    looks, lost = dict(earlier), list[LossRow]()
    for flow in reading.flows:
        connector, lag = reading.source_connector(flow), lags.get(flow.id)
        if connector is None or connector.running is None or lag is None or lag.unknown is not None:
            continue
        if reading.clusters[flow.source.alias].ids_unread:
            continue
        flow_looks, home = looks.get(flow.id, FlowLooks()), reading.connects[flow.connect.name].kafka_cluster_id
        if flow_looks.home and home and home != flow_looks.home:
            flow_looks = FlowLooks()
        partitions = _partition_looks(reading, flow, lag)
        topics = {partition.topic for partition in partitions}
        flow_looks = flow_looks.with_mirrors({topic: flow.remote_topic(topic) for topic in topics})
        flow_looks, lost_ranges = take(flow_looks, partitions, reading.begun_at, reading.taken_at)
        looks[flow.id] = replace(flow_looks, home=home or flow_looks.home)
        lost += [
            row_of(flow.id, flow.source.alias, partition, lost_range, reading.taken_at)
            for partition, lost_range in lost_ranges
        ]
    return looks, lost


def _partition_looks(reading: Reading, flow: Flow, lag: FlowLag) -> dict[TopicPartition, PartitionLook]:
    """Partitions without a stored offset are left out, unless their reader begins at the start of the log."""
    ids, counts = reading.clusters[flow.source.alias].topic_ids, is_only_writer(reading, flow)
    begins_at_start = _begins_at_start(reading, flow)
    return {
        partition.partition: PartitionLook(
            ids.get(partition.partition.topic, ""),
            partition.log,
            NOTHING if partition.stored is None else partition.stored,
            partition.arrived if counts else None,
            lag.exact or partition.stored == partition.log.end - 1,
        )
        for partition in lag.counted_partitions
        if partition.stored is not None or begins_at_start
    }


def _begins_at_start(reading: Reading, flow: Flow) -> bool:
    """Tell whether a flow mirrors a partition that it has no offset of from the start of the log on, whole. Not while
    its offsets move or are to be written, nor where transforms may drop records, whose offsets are then never stored.
    """
    connector = reading.source_connector(flow)
    config = connector.running.config if connector and connector.running else {}
    if not config or config.get("transforms") or config.get("errors.tolerance", "none") != "none" or is_held(config):
        return False
    begins = text_of("source", config, "source consumer", "auto.offset.reset")
    return begins == "earliest" and Journal.of_config(config) is None


def marks_of(lag: FlowLag, now: float, *, running: bool) -> dict[str, Mark]:
    """Return the progress of each task of a flow; partitions without a known task are counted together as `-`.

    Progress is judged per task, not per partition: MirrorMaker serves the partitions of a task in turn, while a record
    that cannot be sent blocks all of them. A single waiting record may be a transaction's end marker, never mirrored.
    Partitions that are held do not count.
    """
    sums: dict[str, list[int]] = {}
    held = frozenset(lag.defects.held)
    for partition in lag.partitions:
        if partition.partition in held:
            continue
        total = sums.setdefault("-" if partition.task is None else str(partition.task), [0, 0, 0])
        total[0] += 0 if partition.stored is None else partition.stored + 1
        total[1] += partition.arrived or 0
        total[2] += running and partition.lag_records > 1
    return {
        task: Mark(stored, None if lag.blind else arrived, behind > 0, ConditionClock(0.0, now))
        for task, (stored, arrived, behind) in sums.items()
    }


def _follow_flow(old: FlowMemory, flow: Flow, connector: LiveConnector, lag: FlowLag, now: float) -> FlowMemory:
    state, standing = connector.status.state if connector.status else "", _standing(connector)
    marks = marks_of(lag, now, running=state == "RUNNING")
    return FlowMemory(
        unassigned={
            str(partition): continue_clock(old.unassigned.get(str(partition)), now)
            for partition in lag.defects.unassigned
        },
        marks={task: _follow_mark(mark, old.marks.get(task)) for task, mark in marks.items()},
        rest=_rest(old.rest, lag, now) if state in RESTING else None,
        unstored=_follow_unstored(old.unstored, lag, now) if state == "RUNNING" and not flow.exactly_once else None,
        progress=follow_lag(old.progress if old.state in ("", standing) else {}, lag, now),
        short=(
            paused_all(old.short)
            if lag.short is None
            else {topic: continue_clock(old.short.get(topic), now) for topic in lag.short}
        ),
        unarrived=_follow_unarrived(old.unarrived, lag, now) if state == "RUNNING" else {},
        interruptions=old.interruptions,
        state=standing,
        seen_at=now,
    )


def _follow_mark(mark: Mark, earlier: Mark | None) -> Mark:
    """Compare a mark with the one before. End offsets only grow: equal ones prove that nothing arrived in between."""
    if earlier is None:
        return mark
    arrived, before = mark.arrived, earlier.arrived
    mark = replace(mark, arrived=before if arrived is None else arrived)
    if mark.has_moved_since(earlier):
        return replace(mark, moved=True)
    if earlier.has_moved_since(mark):
        return mark  # other partitions, or offsets that were reset: nothing to compare with
    if arrived is not None and before is None:
        return replace(mark, moved=earlier.moved)  # the target is seen for the first time
    if mark.behind and earlier.behind:
        return replace(mark, clock=earlier.clock.see(mark.clock.seen_at), moved=earlier.moved)
    return mark


def _rest(old: Rest | None, lag: FlowLag, now: float) -> Rest:
    ends = sum(partition.log.end for partition in lag.counted_partitions)
    return Rest(old.ends, ends - old.ends, old.clock.see(now)) if old else Rest(ends, 0, ConditionClock(0.0, now))


def _follow_unstored(old: Unstored | None, lag: FlowLag, now: float) -> Unstored | None:
    """The time counts from the observation that saw the first record arrive while no offset is stored."""
    if lag.blind:
        return old and _pause(old)
    stored = sum(0 if partition.stored is None else partition.stored + 1 for partition in lag.counted_partitions)
    arrived = sum(partition.arrived or 0 for partition in lag.counted_partitions)
    waiting = sum(partition.stored_lag_records for partition in lag.counted_partitions)
    if old is None or stored != old.stored or arrived < old.arrived or waiting <= 1:
        return Unstored(stored, arrived)
    if arrived == old.arrived:
        return old
    return Unstored(stored, old.arrived, arrived - old.arrived, continue_clock(old.clock, now))


def _follow_unarrived(old: Mapping[str, Unarrived], lag: FlowLag, now: float) -> dict[str, Unarrived]:
    if lag.short is None:
        return {topic: _pause(timed) for topic, timed in old.items()}
    missing = {topic for topic, count in lag.short.items() if count == 0}
    sums: dict[str, list[int]] = {}
    unknown = set[str]()
    for partition in lag.counted_partitions:
        topic, position = partition.partition.topic, 0 if partition.stored is None else partition.stored + 1
        end = 0 if topic in missing else partition.arrived
        if partition.task is None or end is None:
            unknown.add(topic)
            continue
        total = sums.setdefault(topic, [0, 0, 0])
        total[0] += end
        total[1] += position
        total[2] += max(position, partition.log.end)
    return {
        topic: _since_moved(old.get(topic), end, position, floor, now)
        for topic, (end, position, floor) in sums.items()
        if topic not in unknown
    }


def _since_moved(old: Unarrived | None, end: int, position: int, floor: int, now: float) -> Unarrived:
    if old is None and end == 0:
        return Unarrived(end, position)
    if old is None or old.end != end:
        return Unarrived(end)
    if old.floor is None:
        return Unarrived(end, floor)
    records = max(0, position - old.floor)
    if records < old.records:
        return Unarrived(end)  # the offsets were reset
    if records == old.records:
        return replace(old, clock=old.clock and old.clock.see(now))
    return Unarrived(end, old.floor, records, old.advances + 1, continue_clock(old.clock, now))


def _pause(timed: _Timed) -> _Timed:
    return replace(timed, clock=timed.clock.pause()) if timed.clock else timed


def _sync_looks(kind: str, earlier: Mapping[str, SyncLook], reading: Reading) -> dict[str, SyncLook]:
    """Follow what connectors copy to the target; one that does not run starts anew when it does."""
    looks = dict(earlier)
    for flow in reading.flows:
        old, connector = looks.pop(flow.id, None), reading.source_connector(flow)
        sync = COPIED[kind].sync(connector) if connector else None
        if connector and sync and (kind, flow.id) in reading.copied_asked:
            missing = missing_of(reading, flow, connector, kind, sync)
            looks[flow.id] = _sync_look(old or SyncLook(reading.taken_at), missing, reading.taken_at)
        elif old and (sync or not connector):
            looks[flow.id] = old if sync else old.pause()
    return looks


def _sync_look(old: SyncLook, missing: Mapping[str, frozenset[str] | None] | None, now: float) -> SyncLook:
    if missing is None:
        return replace(old.pause(), asked_at=now)
    clocks = dict[str, Mapping[str, ConditionClock]]()
    for topic, names in missing.items():
        before = old.missing.get(topic, {})
        clocks[topic] = (
            paused_all(before) if names is None else {name: continue_clock(before.get(name), now) for name in names}
        )
    return SyncLook(now, {topic: clocks_of_topic for topic, clocks_of_topic in clocks.items() if clocks_of_topic})


def _without_status(earlier: Mapping[str, ConditionClock], reading: Reading) -> dict[str, ConditionClock]:
    clocks = dict(earlier)
    for connect in reading.connects.values():
        for connector in connect.connectors.values():
            clock = clocks.pop(connector.key, None)
            if connector.running is not None and connector.status is None:
                clocks[connector.key] = continue_clock(clock, reading.taken_at)
        if connect.failure:
            inside = f"{connect.name}/"
            clocks |= {key: clock.pause() for key, clock in clocks.items() if key.startswith(inside)}
    return clocks

"""What one observation leaves for the next: clocks, the progress of tasks, topic ids, and records that may never arrive. Pure.

A loss keeps its id until it is acknowledged. An acknowledged incident is not reported again; a new one gets a new id.
`status` keeps the memory on disk. It holds names, offsets and times, no secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.observe.lag import FlowLag, PartitionLag, SeenOffset, reached_at
from mm2mgr.observe.reading import LiveConnector, Snapshot
from mm2mgr.observe.trend import Points, followed
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, number_of
from mm2mgr.topology import Flow

Kind = Literal["retention", "past-end", "re-created"]

_SHOWN = 3


@dataclass(frozen=True)
class Gap:
    """What one partition lost while this offset was the stored one; `before` is what it lost in the same incident earlier."""

    stored: int
    records: int
    before: int = 0

    @property
    def total(self) -> int:
        """All records of the incident."""
        return self.before + self.records


@dataclass(frozen=True)
class SeenTopic:
    """The ids that a topic has had, and what is remembered of each partition since its stored offset was first seen."""

    ids: tuple[str, ...] = ()
    places: Mapping[int, SeenOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordLoss:
    """One incident on one topic of a flow; `gaps` by partition."""

    id: str
    flow: str
    topic: str
    kind: Kind
    first_seen: float
    gaps: Mapping[int, Gap] = field(default_factory=dict)
    topic_id: str = ""
    acknowledged_at: float | None = None

    @property
    def records(self) -> int:
        """How many records at most."""
        return sum(gap.total for gap in self.gaps.values())

    def detail(self) -> str:
        """Return what happened and what to do about it."""
        if self.kind == "retention":
            return (
                f"up to {number_of(self.records, 'record')} left the source before they were mirrored (retention): "
                f"{self._partitions()}; give the topic longer retention or the flow more tasks"
            )
        if self.kind == "past-end":
            return (
                f"the stored offset lies at or past the end of {self._partitions()}: the topic was deleted and created "
                "again, or truncated, and its new records are skipped or sent twice; compare it with the target, then stop "
                "the flow and reset these offsets"
            )
        if not self.records:
            return (
                f"topic {self.topic} was deleted and created again: its new records are mirrored from the start, "
                "records left in the old topic are lost; compare it with the target"
            )
        return (
            f"topic {self.topic} was deleted and created again: up to {number_of(self.records, 'record')} of the new topic are "
            f"skipped, because offsets of the old one are stored: {self._partitions()}; compare it with the target, then "
            "stop the flow and reset these offsets"
        )

    def problem(self, now: float) -> LiveProblem:
        """Return it as a problem."""
        return LiveProblem(
            "records-lost", ProblemSubject(flow=self.flow), self.to_dict(), max(0.0, now - self.first_seen)
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "flow": self.flow,
            "topic": self.topic,
            "kind": self.kind,
            "records": self.records,
            "first_seen": self.first_seen,
            "partitions": {str(number): gap.total for number, gap in sorted(self.gaps.items())},
            "detail": self.detail(),
        }

    def _partitions(self) -> str:
        what = "{gap.total}" if self.kind == "retention" else "{gap.stored} stored"
        shown = [f"{self.topic}-{n} ({what.format(gap=gap)})" for n, gap in sorted(self.gaps.items())]
        return few(shown, _SHOWN)


def see_topics(
    flow: Flow, lag: FlowLag, ids: Mapping[str, str], earlier: Mapping[str, SeenTopic], now: float
) -> tuple[dict[str, SeenTopic], list[RecordLoss]]:
    """Return what to remember of the flow's topics, and the losses that this observation shows, without ids. Heartbeats are no loss.

    A topic that the source does not have stays remembered: with another id it would be a new one.
    """
    topics, seen = dict(earlier), list[RecordLoss]()
    by_topic: dict[str, list[PartitionLag]] = {}
    for one in lag.counted:
        by_topic.setdefault(one.partition.topic, []).append(one)
    for name, partitions in by_topic.items():
        old, topic_id = earlier.get(name, SeenTopic()), ids.get(name, "")
        for kind, gaps in _gaps(flow, topic_id, partitions, old):
            seen.append(RecordLoss("", flow.id, name, kind, now, gaps, topic_id))
        known = old.ids if topic_id in ("", *old.ids) else (*old.ids, topic_id)
        unread = {number: place for number, place in old.places.items() if TopicPartition(name, number) in lag.unread}
        places = {one.partition.partition: _place(one, old, now) for one in partitions}
        topics[name] = SeenTopic(known, unread | places)
    return topics, seen


def enter(losses: Mapping[str, RecordLoss], seen: RecordLoss) -> dict[str, RecordLoss]:
    """Return the losses with what was seen: a new one, or more records of an open one."""
    of_topic = [one for one in losses.values() if (one.flow, one.topic) == (seen.flow, seen.topic)]
    recreated = {one.topic_id for one in of_topic if one.kind == "re-created" and one.topic_id}
    if seen.kind != "retention" and seen.topic_id in recreated:
        return dict(losses)
    same = [one for one in of_topic if one.kind == seen.kind]
    acknowledged = [one for one in same if one.acknowledged_at is not None]
    gaps = dict(_further(seen, acknowledged))
    if not gaps:
        return dict(losses)
    still_open = [one for one in same if one.acknowledged_at is None]
    if seen.kind == "re-created" or not still_open:
        loss = replace(seen, id=_id(seen, gaps, len(acknowledged)), gaps=gaps)
    else:
        last = max(still_open, key=lambda one: one.first_seen)
        more = {number: _joined(last.gaps.get(number), gap) for number, gap in gaps.items()}
        loss = replace(last, gaps={**last.gaps, **more})
    return {**losses, loss.id: loss}


def acknowledge(losses: Mapping[str, RecordLoss], ids: Iterable[str], now: float) -> dict[str, RecordLoss]:
    """Return the losses with these acknowledged; unknown ids are ignored."""
    done = {one: replace(losses[one], acknowledged_at=now) for one in ids if one in losses}
    return {**losses, **done}


def open_losses(losses: Mapping[str, RecordLoss], flows: Iterable[str] | None = None) -> tuple[RecordLoss, ...]:
    """Return the open losses, oldest first; of these flows only, unless None."""
    wanted = None if flows is None else set(flows)
    found = (one for one in losses.values() if one.acknowledged_at is None and (wanted is None or one.flow in wanted))
    return tuple(sorted(found, key=lambda one: (one.first_seen, one.flow, one.topic, one.id)))


def _gaps(
    flow: Flow, topic_id: str, partitions: list[PartitionLag], old: SeenTopic
) -> Iterator[tuple[Kind, dict[int, Gap]]]:
    """Yield what the partitions of a topic lost, by how."""
    stored = [(one, one.stored) for one in partitions if one.stored is not None]
    if stored and topic_id and old.ids and topic_id not in old.ids:
        yield "re-created", {one.partition.partition: Gap(s, _skipped(one, s, old)) for one, s in stored}
    past = {one.partition.partition: Gap(s, one.log.end - one.log.start) for one, s in stored if one.past_end}
    if past:
        yield "past-end", past
    lost = {one.partition.partition: Gap(s, n) for one, s in stored if (n := _lost(flow, one, old)) > 0}
    if lost:
        yield "retention", lost


def _skipped(one: PartitionLag, stored: int, old: SeenTopic) -> int:
    """Return how many records of a new topic lie below the stored offset; none where that offset went back, because it then belongs to the new topic."""
    before = old.places.get(one.partition.partition)
    return 0 if before and stored < before.stored else max(0, min(stored + 1, one.log.end) - one.log.start)


def _lost(flow: Flow, one: PartitionLag, old: SeenTopic) -> int:
    """Return how many records left the log unmirrored: fewer where some have arrived and their offsets are not stored yet.

    Only the default policy gives a remote topic a single writer, and only without transactions ends count records.
    """
    if flow.exactly_once or flow.settings.replication_policy != "default":
        return one.lost_records
    arrived = _place(one, old).arrived
    return one.lost_records - (0 if arrived is None or one.arrived is None else max(0, one.arrived - arrived))


def _place(one: PartitionLag, old: SeenTopic, now: float | None = None) -> SeenOffset:
    before, stored = old.places.get(one.partition.partition), -1 if one.stored is None else one.stored
    arrived = reached_at(before, stored, one.arrived, one.log.end)
    if before is None or before.stored != stored:
        return SeenOffset(stored, arrived, now, one.arrived)
    return before._replace(
        arrived=before.arrived if arrived is None else arrived,
        latest=before.latest if one.arrived is None else one.arrived,
    )


def _further(seen: RecordLoss, acknowledged: list[RecordLoss]) -> Iterator[tuple[int, Gap]]:
    """Yield the gaps that are not acknowledged: retention may remove more records at the same stored offset."""
    for number, gap in seen.gaps.items():
        known = [one.gaps[number] for one in acknowledged if number in one.gaps]
        known = [one for one in known if one.stored == gap.stored]
        left = gap.records - sum(one.records for one in known)
        if not known or (seen.kind == "retention" and left > 0):
            yield number, replace(gap, records=left)


def _joined(old: Gap | None, new: Gap) -> Gap:
    if old is None:
        return new
    if old.stored == new.stored:
        return replace(old, records=max(old.records, new.records))
    return replace(new, before=old.total)


def _id(seen: RecordLoss, gaps: Mapping[int, Gap], earlier: int) -> str:
    """Return the id of a new incident; the number of those acknowledged before tells two at the same offset apart."""
    first = min(gaps)
    what = seen.topic_id if seen.kind == "re-created" else f"{first}@{gaps[first].stored}+{earlier}"
    text = "\0".join((seen.flow, seen.topic, seen.kind, what))
    return hashlib.sha256(text.encode()).hexdigest()[:7]


RESTING = frozenset({"PAUSED", "STOPPED"})


@dataclass(frozen=True)
class ConditionClock:
    """How long a condition has been seen to last. Time around an observation that could not see it does not count."""

    seconds: float
    seen_at: float
    paused: bool = False

    def on(self, now: float) -> ConditionClock:
        """Return the clock after an observation that saw the condition."""
        return ConditionClock(self.seconds + (0.0 if self.paused else max(0.0, now - self.seen_at)), now)

    def pause(self) -> ConditionClock:
        """Return the clock after an observation that could not see it."""
        return replace(self, paused=True)


def started(earlier: ConditionClock | None, now: float) -> ConditionClock:
    """Return the earlier clock, continued, or a new one."""
    return earlier.on(now) if earlier else ConditionClock(0.0, now)


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
class FlowMemory:
    """What is remembered of one flow. `home` is the Kafka cluster of its workers, which stores its offsets; `progress` are the points
    of its lag by their keys (see `trend`)."""

    home: str = ""
    unassigned: Mapping[str, ConditionClock] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    topics: Mapping[str, SeenTopic] = field(default_factory=dict)
    rest: Rest | None = None
    unstored: Unstored | None = None
    progress: Mapping[str, Points] = field(default_factory=dict)

    def paused(self) -> FlowMemory:
        """Return the memory after an observation without the source, the stored offsets or the Connect cluster."""
        return replace(
            self,
            unassigned={name: clock.pause() for name, clock in self.unassigned.items()},
            marks={task: replace(mark, clock=mark.clock.pause()) for task, mark in self.marks.items()},
            rest=self.rest and replace(self.rest, clock=self.rest.clock.pause()),
            unstored=_paused(self.unstored),
        )


@dataclass(frozen=True)
class Memory:
    """What earlier observations left: `without_status` by `connect/connector`, flows by their ids, losses by theirs."""

    without_status: Mapping[str, ConditionClock] = field(default_factory=dict)
    flows: Mapping[str, FlowMemory] = field(default_factory=dict)
    losses: Mapping[str, RecordLoss] = field(default_factory=dict)

    def of(self, flow: str) -> FlowMemory:
        """Return what is remembered of a flow."""
        return self.flows.get(flow, _NOTHING)


_NOTHING = FlowMemory()


def remember(earlier: Memory, reading: Snapshot, lags: Mapping[str, FlowLag]) -> Memory:
    """Return the memory after this reading. Flows outside the reading stay as they were; what it could not see pauses."""
    flows, losses = dict(earlier.flows), dict(earlier.losses)
    for flow in reading.flows:
        old, seen, lag = earlier.of(flow.id), reading.source_connector(flow), lags.get(flow.id)
        home = reading.connects[flow.connect.name].kafka_cluster_id or old.home
        if old.home and home != old.home:
            old = FlowMemory()
        if seen is not None and seen.info is None:  # not applied; its offsets outlive it
            flows[flow.id] = FlowMemory(home, topics=old.topics)
            continue
        if seen is None or lag is None or lag.unknown is not None:
            flows[flow.id] = replace(old.paused(), home=home)
            continue
        ids = reading.clusters[flow.source.alias].topic_ids
        topics, lost = see_topics(flow, lag, ids, old.topics, reading.taken_at)
        for loss in lost:
            losses = enter(losses, loss)
        new = old.paused() if lag.unread else _seen(old, flow, seen, lag, reading.taken_at)
        flows[flow.id] = replace(new, home=home, topics=topics)
    return Memory(_without_status(earlier.without_status, reading), flows, losses)


def marks_of(lag: FlowLag, now: float, *, running: bool) -> dict[str, Mark]:
    """Return the progress of each task of a flow; partitions without a known task are counted together as `-`.

    Progress is judged per task, not per partition: MirrorMaker serves the partitions of a task in turn, while a record
    that cannot be sent blocks all of them. A single waiting record may be a transaction's end marker, never mirrored.
    """
    sums: dict[str, list[int]] = {}
    for one in lag.partitions:
        total = sums.setdefault("-" if one.task is None else str(one.task), [0, 0, 0])
        total[0] += 0 if one.stored is None else one.stored + 1
        total[1] += one.arrived or 0
        total[2] += running and one.lag_records > 1
    return {
        task: Mark(stored, None if lag.blind else arrived, behind > 0, ConditionClock(0.0, now))
        for task, (stored, arrived, behind) in sums.items()
    }


def _seen(old: FlowMemory, flow: Flow, seen: LiveConnector, lag: FlowLag, now: float) -> FlowMemory:
    state = seen.status.state if seen.status else ""
    marks = marks_of(lag, now, running=state == "RUNNING")
    return FlowMemory(
        unassigned={str(one): started(old.unassigned.get(str(one)), now) for one in lag.unassigned},
        marks={task: _since(mark, old.marks.get(task)) for task, mark in marks.items()},
        rest=_rest(old.rest, lag, now) if state in RESTING else None,
        unstored=_unstored(old.unstored, lag, now) if state == "RUNNING" and not flow.exactly_once else None,
        progress=followed(old.progress, lag, now),
    )


def _since(mark: Mark, earlier: Mark | None) -> Mark:
    """Compare a mark with the one before. End offsets only grow, so equal ones prove that nothing arrived in between."""
    if earlier is None:
        return mark
    arrived, before = mark.arrived, earlier.arrived
    mark = replace(mark, arrived=before if arrived is None else arrived)
    target_moved = 0 if arrived is None or before is None else arrived - before
    if mark.stored > earlier.stored or target_moved > 0:
        return replace(mark, moved=True)
    if mark.stored < earlier.stored or target_moved < 0:
        return mark  # other partitions, or offsets that were reset: nothing to compare with
    if arrived is not None and before is None:
        return replace(mark, moved=earlier.moved)  # the target is seen for the first time
    if mark.behind and earlier.behind:
        return replace(mark, clock=earlier.clock.on(mark.clock.seen_at), moved=earlier.moved)
    return mark


def _rest(old: Rest | None, lag: FlowLag, now: float) -> Rest:
    ends = sum(one.log.end for one in lag.counted)
    return Rest(old.ends, ends - old.ends, old.clock.on(now)) if old else Rest(ends, 0, ConditionClock(0.0, now))


def _unstored(old: Unstored | None, lag: FlowLag, now: float) -> Unstored | None:
    """Follow records that arrive while no offset is stored; the time counts from the observation that saw the first of them."""
    if lag.blind:
        return _paused(old)
    stored = sum(0 if one.stored is None else one.stored + 1 for one in lag.counted)
    arrived = sum(one.arrived or 0 for one in lag.counted)
    waiting = sum(one.stored_lag_records for one in lag.counted)
    if old is None or stored != old.stored or arrived < old.arrived or waiting <= 1:
        return Unstored(stored, arrived)
    if arrived == old.arrived:
        return old
    return Unstored(stored, old.arrived, arrived - old.arrived, started(old.clock, now))


def _paused(unstored: Unstored | None) -> Unstored | None:
    return replace(unstored, clock=unstored.clock.pause()) if unstored and unstored.clock else unstored


def _without_status(earlier: Mapping[str, ConditionClock], reading: Snapshot) -> dict[str, ConditionClock]:
    clocks = dict(earlier)
    for connect in reading.connects.values():
        for seen in connect.connectors.values():
            clock = clocks.pop(seen.key, None)
            if seen.info is not None and seen.status is None:
                clocks[seen.key] = started(clock, reading.taken_at)
        if connect.failure:
            inside = f"{connect.name}/"
            clocks |= {key: clock.pause() for key, clock in clocks.items() if key.startswith(inside)}
    return clocks

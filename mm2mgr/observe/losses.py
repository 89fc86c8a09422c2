"""Records that may never arrive: taken by retention, or of a topic that was deleted and created again. Pure.

A loss keeps its id until it is acknowledged. An acknowledged incident is not reported again; a new one gets a new id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.observe.reading import FlowLag, PartitionLag
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few
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
    """The ids that a topic has had, and per partition the stored offset with the remote end offset when it was first seen."""

    ids: tuple[str, ...] = ()
    places: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)


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
                f"up to {_records(self.records)} left the source before they were mirrored (retention): "
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
            f"topic {self.topic} was deleted and created again: up to {_records(self.records)} of the new topic are "
            f"skipped, because offsets of the old one are stored: {self._partitions()}; compare it with the target, then "
            "stop the flow and reset these offsets"
        )

    def sentence(self, now: float) -> str:
        """Return the detail with the age, and how to acknowledge it."""
        return (
            f"loss {self.id}, first seen {_ago(now - self.first_seen)}: {self.detail()}; "
            f"acknowledge it with mm2mgr status --ack {self.id}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the loss as JSON-ready values."""
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


@dataclass(frozen=True)
class Sighting:
    """A loss as one observation shows it."""

    flow: str
    topic: str
    kind: Kind
    topic_id: str
    gaps: Mapping[int, Gap]


def see_topics(
    flow: Flow, lag: FlowLag, ids: Mapping[str, str], earlier: Mapping[str, SeenTopic]
) -> tuple[dict[str, SeenTopic], list[Sighting]]:
    """Return what to remember of the flow's topics, and the losses that this observation shows. Heartbeats are no loss.

    A topic that the source does not have stays remembered: with another id it would be a new one.
    """
    topics, sightings = dict(earlier), list[Sighting]()
    by_topic: dict[str, list[PartitionLag]] = {}
    for one in lag.counted:
        by_topic.setdefault(one.partition.topic, []).append(one)
    for name, partitions in by_topic.items():
        old, topic_id = earlier.get(name, SeenTopic()), ids.get(name, "")
        sightings += _sightings(flow, name, topic_id, partitions, old)
        known = old.ids if topic_id in ("", *old.ids) else (*old.ids, topic_id)
        unread = {number: place for number, place in old.places.items() if TopicPartition(name, number) in lag.unread}
        places = {one.partition.partition: _place(one, old) for one in partitions if one.stored is not None}
        topics[name] = SeenTopic(known, unread | places)
    return topics, sightings


def enter(losses: Mapping[str, RecordLoss], sighting: Sighting, now: float) -> dict[str, RecordLoss]:
    """Return the losses with what was seen: a new one, or more records of an open one."""
    of_topic = [one for one in losses.values() if (one.flow, one.topic) == (sighting.flow, sighting.topic)]
    if sighting.kind != "retention" and any(
        one.kind == "re-created" and one.topic_id == sighting.topic_id and one.topic_id for one in of_topic
    ):
        return dict(losses)
    same = [one for one in of_topic if one.kind == sighting.kind]
    acknowledged = [one for one in same if one.acknowledged_at is not None]
    gaps = dict(_further(sighting, acknowledged))
    if not gaps:
        return dict(losses)
    still_open = [one for one in same if one.acknowledged_at is None]
    if sighting.kind == "re-created" or not still_open:
        loss = RecordLoss(
            _id(sighting, gaps, len(acknowledged)),
            sighting.flow,
            sighting.topic,
            sighting.kind,
            now,
            gaps,
            topic_id=sighting.topic_id,
        )
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


def _sightings(
    flow: Flow, topic: str, topic_id: str, partitions: list[PartitionLag], old: SeenTopic
) -> Iterator[Sighting]:
    stored = [(one, one.stored) for one in partitions if one.stored is not None]
    if stored and topic_id and old.ids and topic_id not in old.ids:
        gaps = {one.partition.partition: Gap(offset, _skipped(one, offset, old)) for one, offset in stored}
        yield Sighting(flow.id, topic, "re-created", topic_id, gaps)
    past = {one.partition.partition: Gap(s, one.log.end - one.log.start) for one, s in stored if one.past_end}
    if past:
        yield Sighting(flow.id, topic, "past-end", topic_id, past)
    lost = {one.partition.partition: Gap(s, n) for one, s in stored if (n := _lost(flow, one, old)) > 0}
    if lost:
        yield Sighting(flow.id, topic, "retention", topic_id, lost)


def _skipped(one: PartitionLag, stored: int, old: SeenTopic) -> int:
    """Return how many records of a new topic lie below the stored offset; none where that offset went back, because it then belongs to the new topic."""
    before = old.places.get(one.partition.partition)
    return 0 if before and stored < before[0] else max(0, min(stored + 1, one.log.end) - one.log.start)


def _lost(flow: Flow, one: PartitionLag, old: SeenTopic) -> int:
    """Return how many records left the log unmirrored: fewer where some have arrived and their offsets are not stored yet.

    Only the default policy gives a remote topic a single writer, and only without transactions ends count records.
    """
    if flow.exactly_once or flow.settings.replication_policy != "default":
        return one.lost_records
    _, arrived = _place(one, old)
    return one.lost_records - (0 if arrived is None or one.arrived is None else max(0, one.arrived - arrived))


def _place(one: PartitionLag, old: SeenTopic) -> tuple[int, int | None]:
    before = old.places.get(one.partition.partition)
    now = (-1 if one.stored is None else one.stored, one.arrived)
    return before if before and before[0] == now[0] and before[1] is not None else now


def _further(sighting: Sighting, acknowledged: list[RecordLoss]) -> Iterator[tuple[int, Gap]]:
    """Yield the gaps that are not acknowledged: retention may remove more records at the same stored offset."""
    for number, gap in sighting.gaps.items():
        known = [one.gaps[number] for one in acknowledged if number in one.gaps]
        known = [one for one in known if one.stored == gap.stored]
        left = gap.records - sum(one.records for one in known)
        if not known or (sighting.kind == "retention" and left > 0):
            yield number, replace(gap, records=left)


def _joined(old: Gap | None, new: Gap) -> Gap:
    if old is None:
        return new
    if old.stored == new.stored:
        return replace(old, records=max(old.records, new.records))
    return replace(new, before=old.total)


def _id(sighting: Sighting, gaps: Mapping[int, Gap], earlier: int) -> str:
    """Return the id of a new incident; the number of those acknowledged before tells two at the same offset apart."""
    first = min(gaps)
    what = sighting.topic_id if sighting.kind == "re-created" else f"{first}@{gaps[first].stored}+{earlier}"
    text = "\0".join((sighting.flow, sighting.topic, sighting.kind, what))
    return hashlib.sha256(text.encode()).hexdigest()[:7]


def _records(number: int) -> str:
    return f"{number} record{'' if number == 1 else 's'}"


def _ago(seconds: float) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"

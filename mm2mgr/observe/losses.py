"""What is lost of a partition, from one look at it to the next, and the ledger of it. Pure.

A look has the stored offset, the log's start and end, the topic id and, where it counts records, the target's end.
Whatever left the log, or was passed over, between two looks becomes a range of offsets. What several looks, and several
processes, saw to be lost becomes one entry of the ledger for each range: rows of the table `losses` are facts, ranges
of offsets and ranges that were acknowledged. Rows in any order, and however often they were written, make the same
entries, so that no process has to wait for another.

What is guaranteed, from the first look with a stored offset on, or from the first look at a flow that is applied and
begins at the log's start: each record that was in the log, left it or was passed
over, and never arrived, lies in a range, at the latest when the flow is next level with its source, or STOPPED. Of each
range at least `least_records` and at most `records` are lost; they are equal, and exact, where the target counts and
the flow was level or STOPPED at both looks. This holds as long as the target's end grows by the records of this flow
alone, each once; where it cannot count (identity policy, exactly-once workers, no answer), nothing but the offsets
bounds a range. One offset missing in an empty log is taken for the end marker of a transaction; a truncation that the
log outgrew between two looks cannot be seen; and a topic without topic ids (before Kafka 2.8) is known as created again
by its end. Beyond that, what had arrived is known to be gone where a look sees the target's end behind that of an
earlier one: not where the target cannot count, nor where it has outgrown its old end by then.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Literal, NamedTuple

from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.samples.schema import LossRow, utc_text
from mm2mgr.text import list_names, number_of

Cause = Literal[
    "retention",
    "re-created",
    "past-end",
    "truncation",
    "erased",
    "missing",
    "duplicated",
    "altered",
    "reordered",
    "extra",
]
"""retention: the log start passed the reader. re-created: the topic has another id. past-end: the stored offset is not
in the log. truncation: the log end went back under the same topic id. erased: the target's end went back, so what had
arrived is gone. The others are what an audit finds."""
Evidence = Literal["log-start", "target", "offsets", "topic-id", "log-end", "records"]
"""log-start: seen while the stored offset lay before the log. target: between two looks, counted by the target's end.
offsets: between two looks, with nothing to count by. topic-id and log-end: seen by these. records: compared by an
audit."""

_CLOCK_WAS_SET_SECONDS = 600.0


NOTHING = -1
"""In the place of a stored offset that is not there."""


class PartitionLook(NamedTuple):
    """One partition as a look found it. `arrived`: the target's end, None where it does not count these records.

    `stored`: NOTHING where no offset is stored yet, and the reader begins at the log's start.
    `is_exact`: nothing arrived beyond the stored offset, as it is the log's last one, or the flow STOPPED.
    """

    topic_id: str
    log: Offsets
    stored: int
    arrived: int | None = None
    is_exact: bool = False


class KnownPlace(NamedTuple):
    """What looks have left of one partition.

    Every record before `next` has arrived or is in the ledger; `arrived` is the target's end when that was first seen,
    and up to `ahead` records from `next` on had arrived by then. `since` is the last look (seconds) at which the log
    still held `next`; `furthest` is what the task may have reached by the last look; `target_end` is the target's end
    when it was last read.
    """

    topic_id: str
    log: Offsets
    stored: int
    next: int
    since: float
    arrived: int | None = None
    ahead: int = 0
    furthest: int = 0
    former_ids: tuple[str, ...] = ()
    target_end: int | None = None


class LostRange(NamedTuple):
    """Offsets of one partition that may be lost; `last` and `records` None: as far as the log went, which is gone."""

    cause: Cause
    evidence: Evidence
    topic_id: str
    first: int
    last: int | None
    records: int | None
    least_records: int
    since: float | None


# --- from look to look ------------------------------------------------------------------------------------------------


def compare(look: PartitionLook, earlier: KnownPlace | None, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """Return what to remember of a partition after a look, and what it shows to be lost since the one before."""
    if earlier is None:
        next_ = look.log.start if look.stored >= look.log.end else look.stored + 1
        ahead = 0 if look.is_exact else max(0, look.log.end - next_)
        begun = KnownPlace(look.topic_id, look.log, look.stored, next_, now, look.arrived, ahead)
        place, lost = compare(look, begun, now)
        return place, [lost_range._replace(since=None) for lost_range in lost]
    if look.topic_id in earlier.former_ids:
        return earlier, []  # a broker that has not heard of the new topic yet
    if look.topic_id and earlier.topic_id and look.topic_id != earlier.topic_id:
        return _judge_recreated(look, earlier, now)
    if look.topic_id and not earlier.topic_id:
        earlier = earlier._replace(topic_id=look.topic_id)
    if look.log.end < earlier.log.end:
        return _judge_truncation(look, earlier, now)
    if look.stored >= look.log.end:
        return _judge_past_end(look, earlier, now)
    return _judge_retention(look, earlier, now)


def _judge_beginning(look: PartitionLook, earlier: KnownPlace | None, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """Judge a partition that no offset is stored of: its reader is to begin at the log's start, as the first look saw
    it; what leaves the log from then on and does not arrive is lost. Offsets that were stored and are gone were reset.
    """
    start, end = look.log
    has_read = not look.is_exact and look.arrived != 0
    begun = KnownPlace(
        look.topic_id, look.log, NOTHING, start, now, look.arrived, end - start if has_read else 0, end * has_read
    )
    if earlier is None:
        return begun, []
    if earlier.stored != NOTHING or look.topic_id in earlier.former_ids:
        return earlier, []
    lost: list[LostRange] = []
    if look.topic_id and earlier.topic_id and look.topic_id != earlier.topic_id:
        gone = LostRange("re-created", "topic-id", earlier.topic_id, earlier.next, None, None, 0, earlier.since)
        former = (*earlier.former_ids, earlier.topic_id)
        had_records = earlier.log.end > earlier.next
        earlier = begun._replace(next=earlier.furthest, former_ids=former)
        lost = [gone, *_range("re-created", "topic-id", earlier, 0, earlier.next - 1)] if had_records else []
    elif end < earlier.log.end:
        lost = _range("truncation", "log-end", earlier, max(earlier.next, end), earlier.log.end - 1)
        furthest, former = earlier.furthest, earlier.former_ids
        earlier = begun._replace(next=min(earlier.next, end), furthest=furthest, former_ids=former)
    virtual = earlier.next - 1
    place, more = _judge_retention(look._replace(stored=virtual), earlier._replace(stored=virtual), now)
    furthest = max(earlier.furthest, end * has_read)
    return place._replace(stored=NOTHING, furthest=furthest), [*lost, *more]


def _judge_recreated(look: PartitionLook, earlier: KnownPlace, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """The rest of the old log is gone; of the new one, what lies up to the old stored offset is skipped."""
    gone = LostRange("re-created", "topic-id", earlier.topic_id, earlier.next, None, None, 0, earlier.since)
    begins = 0 if look.stored < earlier.stored else earlier.furthest
    former = (*earlier.former_ids, earlier.topic_id)
    new = earlier._replace(topic_id=look.topic_id, stored=look.stored, next=begins, arrived=None, former_ids=former)
    skipped = _range("re-created", "topic-id", new, 0, begins - 1)
    place, more = _judge_past_end(look, new, now) if look.stored >= look.log.end else _judge_retention(look, new, now)
    return place, [gone, *skipped, *more]


def _judge_truncation(look: PartitionLook, earlier: KnownPlace, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """What was cut off and had not arrived is lost; offsets from the new end on are used again, and skipped."""
    end, is_past = look.log.end, look.stored >= look.log.end
    first, last = end if is_past else max(earlier.next, end), max(earlier.log.end - 1, look.stored if is_past else 0)
    cut = _range("truncation", "log-end", earlier, first, last)
    place, more = _judge_retention(look, earlier._replace(next=look.stored + 1, stored=look.stored, arrived=None), now)
    return place, [*cut, *more]


def _judge_past_end(look: PartitionLook, earlier: KnownPlace, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """The log lacks the stored offset: what is written up to there is skipped, unless a restart finds it missing."""
    cause: Cause = "re-created" if earlier.former_ids and earlier.stored >= earlier.log.end else "past-end"
    place = earlier._replace(next=max(earlier.next, look.stored + 1), stored=look.stored, arrived=None)
    return _advance(look, place, now), _range(cause, "log-end", earlier, earlier.next, look.stored)


def _judge_retention(look: PartitionLook, earlier: KnownPlace, now: float) -> tuple[KnownPlace, list[LostRange]]:
    """Judge a log start that passed `next` by the offsets, and by what the target counted since.

    Where that does not decide yet, because records may have arrived whose offsets are not stored, the place stays, and
    a later look decides.
    """
    start, end, reached = look.log.start, look.log.end, look.stored + 1
    size = start - earlier.next
    if size <= 0 or (size == 1 and start == end):  # the end marker of a transaction is no record
        return _advance(look, earlier, now), []
    counted, furthest = _count_arrived(look, earlier), reached if look.is_exact else end
    evidence: Evidence = "log-start" if reached < start else "offsets" if counted is None else "target"
    if counted is None:
        most, least = size, size if look.is_exact and reached <= earlier.next else 0
    else:
        most = size - max(0, counted - max(0, furthest - start))
        least = max(0, size - max(0, counted + earlier.ahead - max(0, reached - start)))
        is_open = least == 0 < most if reached >= start else counted >= size
        if is_open and not look.is_exact:
            return earlier._replace(log=look.log, stored=look.stored, furthest=_furthest(look, earlier)), []
    place = _advance(look, earlier, now)
    if reached < start:  # whatever arrives from now on lies behind the log's start
        ahead = max(0, furthest - start) if counted is None else min(counted + earlier.ahead, max(0, furthest - start))
        place = place._replace(next=start, arrived=look.arrived, ahead=ahead)
    if most <= 0:
        return place, []
    return place, [
        LostRange("retention", evidence, earlier.topic_id, earlier.next, start - 1, most, least, earlier.since)
    ]


def _count_arrived(look: PartitionLook, earlier: KnownPlace) -> int | None:
    """Return how many records the target received since `next` was first seen; None where that cannot be counted."""
    if earlier.arrived is None or look.arrived is None or look.arrived < earlier.arrived:
        return None
    return look.arrived - earlier.arrived


def _advance(look: PartitionLook, earlier: KnownPlace, now: float) -> KnownPlace:
    """Put `next` behind the stored offset; while that does not move, the first count of the target stays."""
    reached, next_, arrived, ahead = look.stored + 1, earlier.next, earlier.arrived, earlier.ahead
    if look.stored < earlier.stored:  # set back: repeated records cannot be distinguished from new ones
        arrived, ahead = None, 0
    if reached > next_ or (reached == next_ and (look.stored != earlier.stored or look.is_exact)):
        counts = reached > next_ or look.stored > earlier.stored or arrived is not None
        arrived = look.arrived if counts else None
        next_, ahead = reached, 0 if look.is_exact else max(0, look.log.end - reached)
    furthest, former = _furthest(look, earlier), earlier.former_ids
    return KnownPlace(earlier.topic_id, look.log, look.stored, next_, now, arrived, ahead, furthest, former)


def _furthest(look: PartitionLook, earlier: KnownPlace) -> int:
    """Return what the task may have reached: the stored offset if exact, else the log's end, or where it was.

    An offset stored for an older, longer log may be the last one of this log by chance.
    """
    before = earlier.furthest if look.stored == earlier.stored else 0
    if look.is_exact and before <= look.log.end:
        return look.stored + 1
    return max(look.stored + 1, look.log.end, before)


def _judge_target(
    look: PartitionLook, earlier: KnownPlace | None, place: KnownPlace
) -> tuple[KnownPlace, list[LostRange]]:
    """Return the place with the target's end, and what had arrived there before its log began anew or was cut.

    That is at most as much as the old log held, up to the records that the new one has; nothing of what a reset makes
    the flow mirror again.
    """
    had = earlier.target_end if earlier else None
    if look.arrived is None or earlier is None or look.topic_id in earlier.former_ids:
        return place._replace(target_end=had if look.arrived is None else look.arrived), []
    place = place._replace(target_end=look.arrived)
    if had is None or look.arrived >= had:
        return place, []
    last = look.stored if look.stored < earlier.stored else max(earlier.next - 1, look.stored - look.arrived)
    return place, _range("erased", "target", earlier, max(0, earlier.next - had), last)


def _range(cause: Cause, evidence: Evidence, earlier: KnownPlace, first: int, last: int) -> list[LostRange]:
    size = last - first + 1
    return [LostRange(cause, evidence, earlier.topic_id, first, last, size, 0, earlier.since)] if size > 0 else []


@dataclass(frozen=True)
class FlowLooks:
    """What looks have left of a flow: the places of its partitions by topic, the Kafka cluster that stores its offsets,
    when the last look ended (seconds since 1970), and how topics are called on the target."""

    home: str = ""
    ended: float = 0.0
    topics: Mapping[str, Mapping[int, KnownPlace]] = field(default_factory=dict)
    mirrors: Mapping[str, str] = field(default_factory=dict)

    def with_mirrors(self, mirrors: Mapping[str, str]) -> FlowLooks:
        """Return it without what was counted on the target in topics that have another name there now: the end of
        another topic tells nothing of what arrived before."""
        if mirrors.items() <= self.mirrors.items():
            return self
        renamed = [topic for topic, name in mirrors.items() if self.mirrors.get(topic, name) != name]
        anew = {
            topic: {
                number: place._replace(arrived=None, target_end=None)
                for number, place in self.topics.get(topic, {}).items()
            }
            for topic in renamed
        }
        return replace(self, topics={**self.topics, **anew}, mirrors={**self.mirrors, **mirrors})


def take(
    flow_looks: FlowLooks, looks: Mapping[TopicPartition, PartitionLook], began: float, ended: float
) -> tuple[FlowLooks, list[tuple[TopicPartition, LostRange]]]:
    """Return what to remember of a flow after a look, and what it shows to be lost.

    Partitions that the look does not have stay as they were. A look that began before the last one ended says nothing:
    what it read may be older. One from long before means that the clock was set back.
    """
    if flow_looks.ended - _CLOCK_WAS_SET_SECONDS < began < flow_looks.ended:
        return flow_looks, []
    topics = {topic: dict(places) for topic, places in flow_looks.topics.items()}
    lost = list[tuple[TopicPartition, LostRange]]()
    for partition, look in looks.items():
        places = topics.setdefault(partition.topic, {})
        judge = _judge_beginning if look.stored == NOTHING else compare
        earlier = places.get(partition.partition)
        place, ranges = judge(look, earlier, ended)
        places[partition.partition], erased = _judge_target(look, earlier, place)
        lost += [(partition, lost_range) for lost_range in (*ranges, *erased)]
    return replace(flow_looks, ended=ended, topics=topics), lost


# --- the ledger -------------------------------------------------------------------------------------------------------

LOSS, AUDIT, ACKNOWLEDGEMENT = "loss", "audit", "acknowledgement"
"""Kinds of rows: what looks show to be lost, what an audit finds, and what was acknowledged of both."""
_ID_LENGTH = 10


@dataclass(frozen=True)
class Acknowledgement:
    """Who acknowledged an entry, when (seconds since 1970), and why."""

    who: str
    at: float
    reason: str
    json_keys = "who at=at_utc reason"

    @property
    def at_utc(self) -> str:
        return utc_text(self.at)


@dataclass(frozen=True)
class LossEntry:
    """A range of offsets of one partition that may never arrive; it stays in the ledger, acknowledged or not.

    `first_offset` to `last_offset` (None: to the end of a log that is gone) belong to the topic with `topic_id`. At
    least `least_records` and at most `records` of them (None: not known) are lost. It happened between `since` (None:
    before the first look) and `seen`, in seconds since 1970. `cause` and `evidence` are those of `ledger`. `seen_as`
    has the ids of what was seen of it, by which it can also be named.
    """

    id: str
    flow: str
    cluster: str
    partition: TopicPartition
    topic_id: str | None
    cause: str
    evidence: str
    first_offset: int
    last_offset: int | None
    records: int | None
    least_records: int
    since: float | None
    seen: float
    acknowledged: Acknowledgement | None = None
    seen_as: frozenset[str] = field(default=frozenset(), compare=False)

    json_keys = (
        "kind id flow cluster topic=partition.topic partition=partition.partition topic_id cause evidence first_offset "
        "last_offset records least_records since=since_utc seen=seen_utc acknowledged"
    )

    @property
    def kind(self) -> str:
        """`audit` for what an audit found, else `loss`."""
        return AUDIT if self.evidence == "records" else LOSS

    @property
    def since_utc(self) -> str | None:
        return None if self.since is None else utc_text(self.since)

    @property
    def seen_utc(self) -> str:
        return utc_text(self.seen)

    @property
    def sentence(self) -> str:
        """What may never arrive, why, and what to do."""
        count = "an unknown number of records" if self.records is None else number_of(self.records, "record")
        most = f"up to {count}" if self.records and self.records != self.least_records else count
        return (
            f"{self.flow}: {most} of '{self.partition}' on '{self.cluster}', offsets {self.offsets_text}, may never"
            f" arrive ({self.cause}); mm2mgr losses --ack {self.id} acknowledges it"
        )

    @property
    def offsets_text(self) -> str:
        """Its offsets: `10 to 19`, `10`, or `from 10 on`."""
        first, last = self.first_offset, self.last_offset
        return f"from {first} on" if last is None else f"{first}" if first == last else f"{first} to {last}"


def row_of(flow: str, cluster: str, partition: TopicPartition, lost: LostRange, now: float) -> LossRow:
    """Return what is written of a lost range. Equal ranges have equal ids."""
    key = (flow, cluster, partition.topic, lost.topic_id or None, partition.partition, lost.cause)
    return LossRow(
        AUDIT if lost.evidence == "records" else LOSS,
        _id(key, lost.first),
        *key,
        lost.evidence,
        lost.first,
        lost.last,
        lost.records,
        lost.least_records,
        None if lost.since is None else round(lost.since * 1000),
        round(now * 1000),
    )


def acknowledgement_of(entry: LossEntry, ack: Acknowledgement) -> LossRow:
    """Return what is written when an entry is acknowledged: its range as it is now, and nothing that is seen later."""
    key = (entry.flow, entry.cluster, entry.partition.topic, entry.topic_id, entry.partition.partition, entry.cause)
    return LossRow(
        ACKNOWLEDGEMENT,
        entry.id,
        *key,
        entry.evidence,
        entry.first_offset,
        entry.last_offset,
        entry.records,
        entry.least_records,
        None if entry.since is None else round(entry.since * 1000),
        round(ack.at * 1000),
        ack.who,
        ack.reason,
    )


def entries_of(rows: Iterable[LossRow]) -> tuple[LossEntry, ...]:
    """Return the entries that rows make together, oldest first, acknowledged ones too.

    Ranges of a partition that overlap or touch, of one topic id and cause, are one entry; acknowledged ones another.
    """
    ordered = sorted(set(rows), key=lambda row: (_texts(_key_of(row)), row.first_offset, row.time_ms, row.id))
    entries = [entry for key, of_key in groupby(ordered, key=_key_of) for entry in _entries(key, list(of_key))]
    return tuple(
        sorted(entries, key=lambda entry: (entry.seen, entry.flow, entry.partition, entry.first_offset, entry.id))
    )


def open_entries(entries: Iterable[LossEntry], flows: Iterable[str] | None = None) -> tuple[LossEntry, ...]:
    """Return the entries that are not acknowledged; of these flows only, unless None."""
    ids_of_flows = None if flows is None else set(flows)
    return tuple(
        entry
        for entry in entries
        if entry.acknowledged is None and (ids_of_flows is None or entry.flow in ids_of_flows)
    )


def find_entries(
    entries: Iterable[LossEntry], ids: Sequence[str], flows: Iterable[str] | None = None
) -> tuple[LossEntry, ...]:
    """Return the open entries with these ids, or `all` (of these flows); Mm2mgrError for an id that none has."""
    still_open = open_entries(entries)
    by_id: dict[str, list[LossEntry]] = {}
    for entry in still_open:
        for name in {entry.id, *entry.seen_as}:
            by_id.setdefault(name, []).append(entry)
    if unknown := [name for name in dict.fromkeys(ids) if name != "all" and name not in by_id]:
        hint = f"losses here: {list_names([entry.id for entry in still_open]) or 'none'}"
        raise Mm2mgrError(f"no open loss {', '.join(unknown)}", hint=hint)
    meant = {entry.id for name in ids for entry in by_id.get(name, ())}
    meant |= {entry.id for entry in (open_entries(still_open, flows) if "all" in ids else ())}
    return tuple(entry for entry in still_open if entry.id in meant)


_Key = tuple[str, str, str, str | None, int, str]
_Bounds = tuple[int, float]  # the first offset, and the one behind the last; infinity where the last is not known
_ENDLESS = float("inf")


def _entries(key: _Key, rows: Sequence[LossRow]) -> Iterator[LossEntry]:
    loss_rows = [row for row in rows if row.kind in (LOSS, AUDIT)]
    losses_in = _finder(loss_rows)
    acks_in = _finder([row for row in rows if row.kind == ACKNOWLEDGEMENT])
    for joined in _join_ranges(map(_bounds, loss_rows)):
        left, lost = [joined], losses_in(joined)
        for row in sorted(acks_in(joined), key=lambda row: (row.time_ms, row.id, row.who)):
            ack = Acknowledgement(row.who or "", row.time_ms / 1000, row.reason or "")
            parts = [part for bounds in left if (part := _common(bounds, _bounds(row)))]
            yield from (replace(_entry(key, part, lost), acknowledged=ack) for part in parts)
            left = [rest for bounds in left for rest in _cut_out(bounds, _bounds(row))]
        yield from (_entry(key, part, lost) for part in left)


def _entry(key: _Key, part: _Bounds, loss_rows: Sequence[LossRow]) -> LossEntry:
    flow, cluster, topic, topic_id, partition, cause = key
    rows = [row for row in loss_rows if _common(_bounds(row), part)]
    first_seen = min(rows, key=lambda row: (row.time_ms, row.first_offset, row.id))
    most = min(part[1] - part[0], sum(_size(_bounds(row)) if row.records is None else row.records for row in rows))
    since = None if any(row.since_ms is None for row in rows) else min(row.since_ms or 0 for row in rows) / 1000
    return LossEntry(
        _id(key, part[0]),
        flow,
        cluster,
        TopicPartition(topic, partition),
        topic_id,
        cause,
        first_seen.evidence,
        part[0],
        None if part[1] == _ENDLESS else int(part[1]) - 1,
        None if most == _ENDLESS else int(most),
        _least(rows, part),
        since,
        first_seen.time_ms / 1000,
        seen_as=frozenset(row.id for row in rows),
    )


def _least(rows: Sequence[LossRow], part: _Bounds) -> int:
    """Return how many records are lost in a part at least: the most that rows which do not overlap say together."""
    ends, sums = [-_ENDLESS], [0.0]
    for row in sorted(rows, key=lambda row: _bounds(row)[1]):
        first, behind = _bounds(row)
        common = _common((first, behind), part)
        outside = behind - first - (_size(common) if common else 0) if row.least_records else 0.0
        with_it = sums[bisect_right(ends, first) - 1] + max(0.0, row.least_records - outside)
        ends.append(behind)
        sums.append(max(sums[-1], with_it))
    return int(sums[-1])


def _key_of(row: LossRow) -> _Key:
    return row.flow, row.cluster, row.topic, row.topic_id, row.partition, row.cause


def _texts(key: _Key) -> tuple[str, ...]:
    return tuple(map(str, key))


def _id(key: _Key, first: int) -> str:
    return hashlib.sha256("\0".join((*_texts(key), str(first))).encode()).hexdigest()[:_ID_LENGTH]


def _bounds(row: LossRow) -> _Bounds:
    return row.first_offset, _ENDLESS if row.last_offset is None else row.last_offset + 1


def _size(bounds: _Bounds) -> float:
    return bounds[1] - bounds[0]


def _join_ranges(ranges: Iterable[_Bounds]) -> list[_Bounds]:
    merged: list[_Bounds] = []
    for first, behind in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], behind)
        else:
            merged.append((first, behind))
    return merged


def _common(bounds: _Bounds, other: _Bounds) -> _Bounds | None:
    first, behind = max(bounds[0], other[0]), min(bounds[1], other[1])
    return (first, behind) if first < behind else None


def _finder(rows: Sequence[LossRow]) -> Callable[[_Bounds], list[LossRow]]:
    """Return a function that finds the rows, in the order of their first offsets, that overlap a range."""
    firsts = [row.first_offset for row in rows]
    furthest = list(accumulate((_bounds(row)[1] for row in rows), max))

    def find(bounds: _Bounds) -> list[LossRow]:
        near = rows[bisect_right(furthest, bounds[0]) : bisect_left(firsts, bounds[1])]
        return [row for row in near if _common(_bounds(row), bounds)]

    return find


def _cut_out(whole: _Bounds, part: _Bounds) -> list[_Bounds]:
    pieces = ((whole[0], min(whole[1], part[0])), (max(whole[0], part[1]), whole[1]))
    return [(int(first), behind) for first, behind in pieces if first < behind]

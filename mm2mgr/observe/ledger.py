"""The ledger's entries: what several looks, and several processes, saw to be lost, made into one entry for each range.
Pure.

Rows of the table `losses` are facts: ranges of offsets, and ranges that were acknowledged. Rows in any order, and
however often they were written, make the same entries, so that no process has to wait for another.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.observe.loss_detection import LostRange
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import LossRow, utc_text
from mm2mgr.text import list_names

LOSS, ACKNOWLEDGEMENT = "loss", "acknowledgement"
_ID_LENGTH, _SHOWN = 10, 3


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
        "id flow cluster topic=partition.topic partition=partition.partition topic_id cause evidence first_offset "
        "last_offset records least_records since=since_utc seen=seen_utc acknowledged"
    )

    @property
    def since_utc(self) -> str | None:
        return None if self.since is None else utc_text(self.since)

    @property
    def seen_utc(self) -> str:
        return utc_text(self.seen)


def row_of(flow: str, cluster: str, partition: TopicPartition, lost: LostRange, now: float) -> LossRow:
    """Return what is written of a lost range. Equal ranges have equal ids."""
    key = (flow, cluster, partition.topic, lost.topic_id or None, partition.partition, lost.cause)
    return LossRow(
        LOSS,
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

    Ranges of a partition that overlap or touch, of one topic id and cause, are one entry; what is acknowledged of them
    is another.
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


def named(
    entries: Iterable[LossEntry], ids: Sequence[str], flows: Iterable[str] | None = None
) -> tuple[LossEntry, ...]:
    """Return the open entries that are meant by ids, or by `all` (of these flows); Mm2mgrError for an id that none
    has.
    """
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


@dataclass(frozen=True)
class TopicLoss:
    """The open entries of one flow, topic and cause, which are one problem."""

    flow: str
    topic: str
    cause: str
    entries: tuple[LossEntry, ...]

    @property
    def first_seen(self) -> float:
        """When the first of them was seen, in seconds since 1970."""
        return min(entry.seen for entry in self.entries)

    def problem(self, now: float, flow_creates_topics: bool | None = None) -> LiveProblem:
        """Return them as a problem; `flow_creates_topics`: whether the flow's consumer creates what it misses, None:
        unknown.
        """
        evidence = {
            "topic": self.topic,
            "cause": self.cause,
            "records": sum(entry.records or 0 for entry in self.entries),
            "least_records": sum(entry.least_records for entry in self.entries),
            "is_bounded": all(entry.records is not None for entry in self.entries),
            "flow_creates_topics": flow_creates_topics,
            "loss_count": len(self.entries),
            "losses": [to_json(entry) for entry in self.entries[:_SHOWN]],
        }
        return LiveProblem("records-lost", ProblemSubject(flow=self.flow), evidence, max(0.0, now - self.first_seen))


def by_topic(entries: Iterable[LossEntry]) -> tuple[TopicLoss, ...]:
    """Gather entries by flow, topic and cause, in the order of the first of each."""
    groups: dict[tuple[str, str, str], list[LossEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.flow, entry.partition.topic, entry.cause), []).append(entry)
    return tuple(TopicLoss(*key, tuple(sorted(of, key=lambda entry: entry.partition))) for key, of in groups.items())


_Key = tuple[str, str, str, str | None, int, str]
_Bounds = tuple[int, float]  # the first offset, and the one behind the last; infinity where the last is not known
_ENDLESS = float("inf")


def _entries(key: _Key, rows: Sequence[LossRow]) -> Iterator[LossEntry]:
    loss_rows = [row for row in rows if row.kind == LOSS]
    acks = sorted((row for row in rows if row.kind == ACKNOWLEDGEMENT), key=lambda row: (row.time_ms, row.id, row.who))
    for bounds in _join_ranges(map(_bounds, loss_rows)):
        left = [bounds]
        for row in acks:
            ack = Acknowledgement(row.who or "", row.time_ms / 1000, row.reason or "")
            parts = [part for bounds in left if (part := _common(bounds, _bounds(row)))]
            yield from (replace(_entry(key, part, loss_rows), acknowledged=ack) for part in parts)
            left = [rest for bounds in left for rest in _without(bounds, _bounds(row))]
        yield from (_entry(key, part, loss_rows) for part in left)


def _entry(key: _Key, part: _Bounds, loss_rows: Sequence[LossRow]) -> LossEntry:
    """Return the entry of a range, from all rows that say something of it."""
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
    """Join ranges that overlap or touch."""
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


def _without(whole: _Bounds, part: _Bounds) -> list[_Bounds]:
    pieces = ((whole[0], min(whole[1], part[0])), (max(whole[0], part[1]), whole[1]))
    return [(int(first), behind) for first, behind in pieces if first < behind]

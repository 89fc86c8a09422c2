"""The way back after a failover A->B where topics keep their names: where B->A begins, and which records of A are lost.

What came from A never goes back: B->A begins behind the last record that A->B brought. Where a journal has the ends of
B's logs at the stop, that is there; else records of both sides are compared, from the last known copy on. Records that
A has and B never got are named and never merged. Pure.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.journal import Ends, FailoverJournal
from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import TargetFacts, translate
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.partitions import Offsets, TopicPartition

MOST_COMPARED = 50_000
"""Records of a partition that are compared on each side, at most."""
_MOST_GAPS = 1_000
"""Offsets of the source without a record, such as markers of transactions, that a comparison allows for."""


MADE_ANEW = "the topic was made anew on A"
"""Ends the refusal of a partition whose records are not those that were mirrored."""
_MARGIN = 5_000
"""Records of the source before the first that is looked for, which may have been mirrored again."""


class Range(NamedTuple):
    """Offsets from `first` to before `end`."""

    first: int
    end: int


# --- which records of the target are copies ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Copies:
    """What comparing a section of both logs showed. `copied`: offsets of the source whose records are on the target.

    `behind`: the offset on the target behind the last copy (None: no copy). `strange`: offsets of the target, in order,
    whose records are not of the source.
    """

    copied: frozenset[int] = frozenset()
    behind: int | None = None
    strange: tuple[int, ...] = ()

    @property
    def strange_between(self) -> tuple[int, ...]:
        """The strange ones before the last copy: somebody wrote to the target while it was mirrored to."""
        return tuple(offset for offset in self.strange if self.behind is not None and offset < self.behind)


def compare_records(
    source: Sequence[RecordMark], target: Sequence[RecordMark], first: int = 0, *, is_cut: bool = False
) -> Copies:
    """Find the copies of a partition's records, both in the order of their logs.

    A task mirrors in order, here from the source offset `first` on. One that is started again goes back, to a record
    that it mirrored before. `is_cut`: the source has deleted records whose copies come first: what comes before the
    first copy is not strange.
    """
    places: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for place, record in enumerate(source):
        places[record[1:]].append(place)
    copied, strange, behind = set[int](), list[int](), None
    expected = bisect_left(source, first, key=lambda record: record.offset)
    for record in target:
        candidates = places.get(record[1:])
        if not candidates:
            if copied or not is_cut:
                strange.append(record.offset)
            continue
        nearest = bisect_right(candidates, expected)
        place = candidates[nearest - 1] if nearest else candidates[0]
        copied.add(source[place].offset)
        behind, expected = record.offset + 1, place + 1
    return Copies(frozenset(copied), behind, tuple(strange))


def lost_ranges(records: Iterable[int], copied: frozenset[int], unread: Range | None = None) -> tuple[Range, ...]:
    """Return the offsets of records without a copy, those next to each other in one range; `unread` are all lost."""
    ranges: list[Range] = []
    extend = False  # whether the record before is in the last range
    for offset in records:
        if offset in copied:
            extend = False
        elif extend:
            ranges[-1] = Range(ranges[-1].first, offset + 1)
        else:
            ranges.append(Range(offset, offset + 1))
            extend = True
    if unread and unread.first < unread.end:
        if ranges and extend:
            ranges[-1] = Range(ranges[-1].first, unread.end)
        else:
            ranges.append(unread)
    return tuple(ranges)


# --- one partition ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BackPartition:
    """A partition of a topic on both sides, once the mirror A->B is stopped.

    `remote`: its name on B, which is another one with default names. `target` is B's log. `source` is A's (None: A has
    no such partition). `mirrored`: the offset of A that A->B mirrors next (None: nothing was mirrored). `stopped_end`:
    the end of B's log at the stop, by a journal that is still true. `syncs` are those of A->B; `begun`: an offset of A
    with the end of B's log, at which A->B was prepared to go on. `back_stored`: the offset of B that B->A mirrors next,
    as it is stored.
    """

    partition: TopicPartition
    target: Offsets
    source: Offsets | None = None
    mirrored: int | None = None
    stopped_end: int | None = None
    syncs: tuple[OffsetSync, ...] = ()
    begun: tuple[int, int] | None = None
    back_stored: int | None = None
    remote: TopicPartition | None = None

    @property
    def mirrored_next(self) -> int:
        """The first offset of A of which it is not known that it is on B."""
        start, end = (self.source.start, self.source.end) if self.source else (0, self.mirrored or 0)
        return start if self.mirrored is None else max(start, min(end, self.mirrored))

    @property
    def has_lost_copied(self) -> bool:
        """Whether A's log ends before what A->B mirrored of it: it has lost records that B has, or was made anew."""
        is_same_name = self.remote is None or self.remote == self.partition
        return is_same_name and self.source is not None and (self.mirrored or 0) > self.source.end

    @property
    def known_stop(self) -> int | None:
        """The end of B's log at the stop; None where B->A does not begin there, since A lacks records before it."""
        return None if self.has_lost_copied else self.stopped_end

    @property
    def may_have_lost(self) -> bool:
        """Whether A's log goes on behind what is known to be mirrored."""
        return self.source is not None and self.mirrored_next < self.source.end

    @property
    def base(self) -> tuple[int, int]:
        """A source offset with a place on the target, such that no copy of that record or a later one lies before it,
        and every record from there on was mirrored behind it if it was at all."""
        source_start = self.source.start if self.source else 0
        bases = [(source_start, self.target.start)]
        if self.mirrored is not None and self.syncs:
            # No further than is certainly mirrored: B's own records would count as mirrored ones. A marker that counts
            # as a record makes it begin earlier, no later.
            facts = TargetFacts(Offsets(self.target.start, self.syncs[-1].downstream + 1), transactional=False)
            lower = translate(self.mirrored_next, self.syncs, facts).offset
            bases += [
                (sync.upstream, sync.downstream)
                for sync in self.syncs
                if lower is not None
                and sync.downstream <= lower
                and sync.upstream
                <= self.mirrored_next - self.has_lost_copied  # so that a copy shows that it is that log
            ][-1:]
        if self.begun and not (self.has_lost_copied and self.begun[0] >= self.mirrored_next):
            bases.append(self.begun)
        return max(bases, key=lambda base: base[1])

    @property
    def needs_comparison(self) -> bool:
        """Whether records are to be compared: to find where B's own begin, or what of A's last records is on B."""
        if self.source is None or self.target.start == self.target.end:
            return False
        return self.known_stop is None or self.may_have_lost or self._has_too_many

    @property
    def _has_too_many(self) -> bool:
        """Whether B has more records up to the stop than A had offsets."""
        source, target = self.base
        return self.known_stop is not None and self.known_stop - target > max(0, self.mirrored_next - source)

    def places(self) -> tuple[RecordPlace, RecordPlace] | None:
        """Return what is to be read of A and of B; None where that is too much."""
        assert self.source is not None
        source, target = max(self.base[0], self.source.start), max(self.base[1], self.target.start)
        # A task that is started again goes back, at most to what was stored then; its offset sync may be lost.
        again = min((sync.upstream for sync in self.syncs if sync.downstream >= self.base[1]), default=source)
        source = max(self.source.start, min(again, source - _MARGIN))
        end = self.target.end if self.known_stop is None else min(self.known_stop, self.target.end)
        count = end - target
        if count > MOST_COMPARED:
            return None
        source_end = min(self.source.end, max(self.mirrored_next, self.base[0]) + count + _MOST_GAPS)
        if source_end - source > 2 * MOST_COMPARED:
            return None
        most = max(1, source_end - source), max(1, count)
        return (
            RecordPlace(self.partition, source, most[0], source_end),
            RecordPlace(self.remote or self.partition, target, most[1], end),
        )


@dataclass(frozen=True)
class Beginning:
    """Where B->A begins in a partition. `first`: the first offset of B that it mirrors. `lost`: offsets of A whose
    records B never got, at most; `exact`: they were compared. `strange`: offsets of B before `first` whose records are
    not from A, so that A never gets them. `refusal`: why it is not known where it begins."""

    partition: TopicPartition
    target: Offsets
    first: int
    source_end: int = 0
    how: str = ""
    lost: tuple[Range, ...] = ()
    exact: bool = True
    strange: tuple[int, ...] = ()
    refusal: str = ""

    json_keys = "topic=partition.topic partition=partition.partition first own_records how lost exact strange refusal"

    @property
    def own_records(self) -> int:
        """How many offsets of B go to A."""
        return max(0, self.target.end - self.first)

    @property
    def lost_count(self) -> int:
        return sum(lost.end - lost.first for lost in self.lost)


def begin_partition(  # noqa: PLR0911  one for each way to know it
    part: BackPartition, source: Sequence[RecordMark] | None = None, target: Sequence[RecordMark] | None = None
) -> Beginning:
    """Return where B->A begins in a partition; `source` and `target` are the records of its `places`, where read."""
    log_end = part.source.end if part.source else 0
    begin = Beginning(part.partition, part.target, part.target.start, log_end)
    if part.source is None:
        return replace(begin, first=part.target.start, how="A has no such partition")
    lost: tuple[Range, ...] = (Range(part.mirrored_next, log_end),) if part.may_have_lost else ()
    if part.target.start == part.target.end:
        return replace(begin, first=part.target.end, how="B has no record", lost=lost)
    if part.known_stop is None and part.mirrored is None and part.source.end == 0:
        return replace(begin, first=part.base[1], how="A has no record")
    if not part.needs_comparison:
        assert part.known_stop is not None
        return _check_place(replace(begin, first=part.known_stop, how="the end at the stop"), part)
    if source is None or target is None:
        if part.known_stop is None:
            text = "no journal has the end of its log at the stop" if not part.has_lost_copied else _lost_text(part)
            return replace(begin, refusal=f"{text}, and its records could not be compared with those of A")
        begin = replace(begin, first=part.known_stop, how="the end at the stop", lost=lost, exact=False)
        return _check_place(begin, part)
    copies = compare_records(source, target, part.base[0], is_cut=part.source.start > part.base[0])
    read_to = part.places()
    assert read_to is not None
    behind = (record.offset for record in source if record.offset >= part.mirrored_next)
    unread = Range(max(part.mirrored_next, read_to[0].end), log_end)
    lost = lost_ranges(behind, copies.copied, unread)
    if part.known_stop is not None:
        begin = replace(begin, first=part.known_stop, how="the end at the stop", lost=lost, strange=copies.strange)
        return _check_place(begin, part)
    return _by_comparison(replace(begin, lost=lost), part, copies)


def _by_comparison(begin: Beginning, part: BackPartition, copies: Copies) -> Beginning:
    """Return where it begins without a journal: behind the last copy, if all before it are copies."""
    if copies.strange_between:
        offsets = f"offset {copies.strange_between[0]}"
        text = f"records that are not from A lie between copies of A's (first: {offsets}), and no journal has the stop"
        return replace(begin, strange=copies.strange_between, refusal=text)
    if copies.behind is None and part.has_lost_copied:
        text = f"{_lost_text(part)}, and none of its last records is on B: {MADE_ANEW}"
        return replace(begin, refusal=text)
    if copies.behind is None and part.mirrored is not None and part.mirrored > part.base[0]:
        return replace(begin, refusal="no record of A was found on B, although A->B has stored that it mirrored some")
    first = part.base[1] if copies.behind is None else copies.behind
    how = "behind the last copy, by comparison"
    how = f"{how}: A lacks what was mirrored behind it, which goes back" if part.has_lost_copied else how
    return _check_place(replace(begin, first=first, how=how), part)


def _lost_text(part: BackPartition) -> str:
    end = part.source.end if part.source else 0
    return f"A's log ends at offset {end}, and A->B has mirrored up to offset {part.mirrored} of it"


def _check_place(begin: Beginning, part: BackPartition) -> Beginning:
    if not part.target.start <= begin.first <= part.target.end:
        log = f"{part.target.start} to {part.target.end}"
        text = f"B's log has offsets {log}, not {begin.first}: it was truncated, made anew, or has lost records since"
        if begin.first < part.target.start:
            return replace(begin, first=part.target.start, how="the start of the log: records before it are gone")
        return replace(begin, refusal=text)
    if part.back_stored is not None and part.back_stored > begin.first:
        text = f"B->A has mirrored up to offset {part.back_stored} already, which is behind {begin.first}"
        return replace(begin, refusal=f"{text}: what is known of the stop is older than that")
    return begin


def stale_reason(journal: FailoverJournal | None, mirrored: Ends) -> str:
    """Return why the ends of a journal are not to be used; "" where A->B has mirrored nothing since."""
    if journal is None:
        return "there is no journal of a failover"
    if journal.outcome == "abandoned":
        return "the last failover was abandoned"
    if not journal.target_ends:
        return "the journal of the failover has no ends of logs yet"
    if dict(journal.source_stored) != {place: mirrored[place] for place in journal.source_stored if place in mirrored}:
        return "the mirror has stored other offsets since the failover"
    if mirrored.keys() - journal.source_stored.keys():
        return "the journal does not say how far all partitions were mirrored at the stop"
    return ""


# --- what is kept of it -----------------------------------------------------------------------------------------------

PREFIX = "failback/"
_VERSION = 1
_TOPIC_RANGES = 10_000
"""Ranges of lost records that are kept of a topic, whose text has to fit into a record."""


@dataclass(frozen=True)
class Prepared:
    """One way back that was prepared, at `at` (seconds since 1970), after a failover of `pair`.

    `places`: by partition the first offset of the new source that it mirrors, and the end of its target's log then.
    `lost`: offsets of the target of the way back whose records the other side never got; `at_most`: partitions in which
    they were not compared, or where so many ranges of a topic are lost that the last of a partition were joined, with
    what lies between them.
    """

    pair: str
    owner: str
    at: float
    places: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    lost: Mapping[TopicPartition, tuple[Range, ...]] = field(default_factory=dict)
    at_most: frozenset[TopicPartition] = frozenset()

    @classmethod
    def from_beginnings(cls, pair: str, owner: str, at: float, beginnings: Iterable[Beginning]) -> Prepared:
        parts = list(beginnings)
        lost = {part.partition: part.lost for part in parts if part.lost}
        few_enough = _with_few_ranges(lost)
        inexact = {part.partition for part in parts if part.lost and not part.exact}
        joined = {partition for partition, ranges in few_enough.items() if ranges != lost[partition]}
        places = {part.partition: (part.first, part.source_end) for part in parts}
        return cls(pair, owner, at, places, few_enough, frozenset(inexact | joined))

    @property
    def id(self) -> str:
        """The same for the same places, so that a run that is repeated replaces what it kept."""
        text = json.dumps(sorted([*place, *offsets] for place, offsets in self.places.items()))
        return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()

    def texts(self) -> dict[str, str]:
        """Return the texts to keep, by key: one for each topic."""
        topics: dict[str, list[Any]] = {}
        for place, offsets in sorted(self.places.items()):
            row = [place.partition, *offsets, [list(lost) for lost in self.lost.get(place, ())], place in self.at_most]
            topics.setdefault(place.topic, []).append(row)
        start = f"{PREFIX}{self.owner}/{self.pair}/{self.id}"
        head = {"version": _VERSION, "at": self.at}
        return {
            f"{start}/{topic}": json.dumps({**head, "topic": topic, "partitions": rows})
            for topic, rows in topics.items()
        }


def _with_few_ranges(lost: Mapping[TopicPartition, tuple[Range, ...]]) -> dict[TopicPartition, tuple[Range, ...]]:
    """Return what was lost in as many ranges of each topic as a text holds: all offsets of before, and more."""
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in lost:
        topics[partition.topic].append(partition)
    bounded = dict(lost)
    for partitions in topics.values():
        most = max(1, _TOPIC_RANGES // len(partitions))
        if sum(len(lost[partition]) for partition in partitions) <= _TOPIC_RANGES:
            continue
        for partition in partitions:
            ranges = lost[partition]
            if len(ranges) > most:
                bounded[partition] = (*ranges[: most - 1], Range(ranges[most - 1].first, ranges[-1].end))
    return bounded


def parse_prepared(texts: Mapping[str, str], owner: str, pair: str) -> list[Prepared]:
    """Read the ways back that were prepared after failovers of a pair, oldest first; Mm2mgrError for one that is not
    readable."""
    start = f"{PREFIX}{owner}/{pair}/"
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for key, text in texts.items():
        if key.startswith(start):
            by_id.setdefault(key.removeprefix(start).partition("/")[0], []).append(_read_rows(key, text))
    return sorted((_join(owner, pair, rows) for rows in by_id.values()), key=lambda prepared: prepared.at)


def _read_rows(key: str, text: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
        if row["version"] != _VERSION:
            raise ValueError(f"version {row['version']!r}")
        topic, at = str(row["topic"]), float(row["at"])
        partitions = [
            (TopicPartition(topic, int(number)), (int(first), int(end)), tuple(Range(int(a), int(b)) for a, b in lost),
             bool(at_most))
            for number, first, end, lost, at_most in row["partitions"]
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Mm2mgrError(
            f"what was kept of a way back (key {key} of the history topic) cannot be read: {error}",
            hint="use the mm2mgr that wrote it, or write a tombstone for that key",
        ) from error
    return {"at": at, "partitions": partitions}


def _join(owner: str, pair: str, rows: Sequence[Mapping[str, Any]]) -> Prepared:
    parts = [part for row in rows for part in row["partitions"]]
    return Prepared(
        pair,
        owner,
        max(row["at"] for row in rows),
        {partition: places for partition, places, _, _ in parts},
        {partition: lost for partition, _, lost, _ in parts if lost},
        frozenset(partition for partition, _, _, at_most in parts if at_most),
    )


def known_lost(rounds: Iterable[Prepared]) -> Iterator[tuple[TopicPartition, Range, float, bool]]:
    """Yield what was lost in all rounds: partition, offsets, when it was noted, and whether it was compared; each
    offset once."""
    covered: dict[TopicPartition, int] = {}
    for prepared in rounds:
        for partition, ranges in sorted(prepared.lost.items()):
            for lost in ranges:
                first = max(lost.first, covered.get(partition, 0))
                if first < lost.end:
                    yield partition, Range(first, lost.end), prepared.at, partition not in prepared.at_most
                covered[partition] = max(covered.get(partition, 0), lost.end)

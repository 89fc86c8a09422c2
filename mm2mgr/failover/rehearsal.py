"""A rehearsal of a failover: names of its scratch groups, records on both sides compared, and its verdict. Pure.

Scratch groups are on the target, under names that MirrorMaker's default filter and mm2mgr leave out of checkpoints
(`__.*` in DefaultGroupFilter, KIP-382). By its name a group is known to be one of this owner, and nothing else is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from mm2mgr.failover.check import GroupPosition, GroupReadiness, PairReadiness, Risk, TopicTraits, Unread
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.kafka.scratch_groups import GroupRead
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, number_of

PREFIX = "__mm2mgr-rehearsal."
ABANDONED_SECONDS = 3_600.0
"""So old a scratch group of another machine is left by a rehearsal that was killed: none takes so long."""
MOST_READ = 500
"""Records of a position that are read on the target."""
RehearsalWord = Literal["not good", "not judged", "good with", "good"]
"""A verdict, worst first."""
Outcome = Literal["differs", "not read", "not compared", "within", "same", "at the end"]
"""What a position came to, worst first. `within`: no more came again than may; `at the end`: nothing was to be read."""

REHEARSAL_WORDS: tuple[RehearsalWord, ...] = get_args(RehearsalWord)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
GOOD: tuple[RehearsalWord, ...] = ("good", "good with")


@dataclass(frozen=True)
class RehearsalOptions:
    """`groups`: a Java expression that names of groups match (None: all), of which `most_groups` are rehearsed, worst
    first. `records`: so many are read from each position. `groups_at_once`: so many members read at a time, each for
    `group_seconds` at most."""

    groups: str | None = None
    records: int = 10
    groups_at_once: int = 8
    most_groups: int = 300
    group_seconds: float = 30.0


# --- names ------------------------------------------------------------------------------------------------------------


class ScratchNames(NamedTuple):
    """Names of one rehearsal's groups: of which owner, where it runs (eight hexadecimal digits), and since when
    (seconds since 1970)."""

    owner: str
    place: str
    began_at: int

    def name(self, number: int) -> str:
        """Return the name of its group of this number."""
        return f"{PREFIX}{self.owner}.{self.place}-{self.began_at:010d}.{number}"

    def find_abandoned(self, groups: Iterable[str]) -> list[str]:
        """Return the groups that earlier rehearsals of this owner left: those from here, where no other one runs, and
        old ones from elsewhere."""
        form = re.compile(rf"{re.escape(PREFIX + self.owner)}\.([0-9a-f]{{8}})-([0-9]{{10}})\.[0-9]{{1,6}}")
        places = ((group, form.fullmatch(group)) for group in groups)
        return sorted(
            group
            for group, match in places
            if match and (match[1] == self.place or self.began_at - int(match[2]) > ABANDONED_SECONDS)
        )


def place_id(*parts: str) -> str:
    """Return eight hexadecimal digits that stand for a place, such as a machine, a folder and a pair."""
    return hashlib.blake2s("\0".join(parts).encode(), digest_size=4).hexdigest()


# --- what is written and read -----------------------------------------------------------------------------------------


class ScratchGroup(NamedTuple):
    """A group with the name of its copy, and the positions that are rehearsed: those with a translated offset."""

    group: GroupReadiness
    name: str
    positions: tuple[GroupPosition, ...]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets that are committed for the copy."""
        return {position.remote: position.bounds.lower for position in self.positions if position.bounds}

    def most(self, records: int) -> dict[TopicPartition, int]:
        """Return how many records of each partition are read: those that may come again, some of them twice, too."""
        return {
            position.remote: min(MOST_READ, records + 2 * position.bounds.repeats)
            for position in self.positions
            if position.bounds
        }


def choose_groups(readiness: PairReadiness, names: ScratchNames, most: int) -> tuple[ScratchGroup, ...]:
    """Return the groups to rehearse, worst first."""
    return tuple(
        ScratchGroup(group, names.name(number), tuple(filter(_is_readable, group.positions)))
        for number, group in enumerate(readiness.worst_first[:most])
    )


def _is_readable(position: GroupPosition) -> bool:
    log, bounds = position.log, position.bounds
    return log is not None and bounds is not None and log.start <= bounds.lower <= log.end


def source_places(groups: Iterable[ScratchGroup], records: int) -> tuple[RecordPlace, ...]:
    """Return what is to be read on the source, each place once."""
    places = (
        source_place(position, records) for group in groups for position in group.positions if _has_unread(position)
    )
    return tuple(dict.fromkeys(places))


def source_place(position: GroupPosition, records: int) -> RecordPlace:
    """Return where the records are on the source that a group reads next."""
    return RecordPlace(position.partition, position.committed or 0, records, position.end or 0)


def _has_unread(position: GroupPosition) -> bool:
    return position.committed is not None and position.end is not None and position.committed < position.end


# --- records compared -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RehearsedPosition:
    """What a group read from its translated offset on: `compared` records that it had to read, and `again` others."""

    position: GroupPosition
    outcome: Outcome
    compared: int = 0
    again: int = 0
    reason: str = ""

    json_keys = (
        "topic=position.partition.topic partition=position.partition.partition remote_topic=position.remote.topic "
        "committed=position.committed translated=position.translated_offset "
        "repeats_at_most=position.translated_repeats_at_most outcome compared again reason"
    )


def compare(
    position: GroupPosition, expected: Sequence[RecordMark] | None, read: GroupRead, traits: TopicTraits
) -> RehearsedPosition:
    """Compare what a group has to read from its offset on the source on with what its copy read on the target.

    `expected`: None where that was not read. Records that are equal in key, value and timestamp count once.
    """
    if fault := read.faults.get(position.remote):
        return RehearsedPosition(position, "not read", reason=fault)
    if not _has_unread(position):
        return RehearsedPosition(position, "at the end")
    topic = position.partition.topic
    if topic in traits.altered:
        reason = "copies are not equal: transforms, or timestamps of the target's own"
        return RehearsedPosition(position, "not compared", reason=reason)
    if expected is None:
        return RehearsedPosition(position, "not read", reason="its records on the source could not be read")
    marks = read.marks.get(position.remote, ())
    lacking = "not mirrored yet" if position.remote in read.ended else f"not among the {len(marks)} that were read"
    return _Compared.of_marks(expected, marks).judge(
        position, lacking, is_sparse=topic in traits.sparse, is_shared=topic in traits.shared
    )


class _Compared(NamedTuple):
    """Where the records that are to be read are among those that were, in the order of their first copies."""

    places: tuple[int | None, ...]
    total: int

    @classmethod
    def of_marks(cls, expected: Sequence[RecordMark], read: Sequence[RecordMark]) -> _Compared:
        distinct = dict.fromkeys(mark[1:] for mark in read)
        number = {mark: place for place, mark in enumerate(distinct)}
        return cls(tuple(number.get(mark) for mark in dict.fromkeys(mark[1:] for mark in expected)), len(distinct))

    def judge(self, position: GroupPosition, lacking: str, *, is_sparse: bool, is_shared: bool) -> RehearsedPosition:
        """Return what the position came to; `lacking`: why none may be there."""
        may_repeat = position.translated_repeats_at_most or 0
        there = [place for place in self.places if place is not None]
        last = max(there, default=-1)
        is_lacking = len(there) < len(self.places)
        until = self.total if is_lacking else last + 1  # what follows the last record that is compared is newer
        others = until - len(there)
        is_gap = any(place is not None for place in self.places[self._first_lacking() :])
        if not self.places:
            return RehearsedPosition(position, "not compared", reason="the source has deleted its records since")
        if is_gap and not is_sparse:
            reason = "a record that it has to read is not there, and later ones are"
            return RehearsedPosition(position, "differs", len(there), others, reason)
        if others > may_repeat and not (is_sparse or is_shared):
            reason = f"{number_of(others, 'other record')} there, and {may_repeat} may come again at most"
            return RehearsedPosition(position, "differs", len(there), others, reason)
        if not there:
            return RehearsedPosition(position, "not compared", 0, 0, lacking)
        again = last + 1 - sum(place <= last for place in there)
        return RehearsedPosition(position, "within" if again else "same", len(there), again)

    def _first_lacking(self) -> int:
        return next((number for number, place in enumerate(self.places) if place is None), len(self.places))


# --- the report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A stage of a rehearsal, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class RehearsedGroup:
    """A group with what its copy read, and how long that took from the start of a member on (None: not read).

    `untranslated`: positions without a translated offset that have something to read. `failure`: why it was not
    rehearsed.
    """

    group: str
    scratch: str
    positions: tuple[RehearsedPosition, ...] = ()
    first_seconds: float | None = None
    seconds: float = 0.0
    untranslated: tuple[TopicPartition, ...] = ()
    failure: str = ""

    json_keys = "group scratch word first_seconds seconds untranslated=untranslated_names failure positions"

    @property
    def untranslated_names(self) -> list[str]:
        return [str(partition) for partition in self.untranslated]

    @cached_property
    def outcome(self) -> Outcome:
        """The worst of its positions'."""
        return min((place.outcome for place in self.positions), key=OUTCOMES.index, default="at the end")

    @property
    def word(self) -> RehearsalWord:
        if self.failure or self.outcome == "differs":
            return "not good"
        if self.untranslated or self.outcome == "not read":
            return "not judged"
        return "good" if self.outcome in {"same", "at the end"} and not self.may_repeat else "good with"

    @property
    def may_repeat(self) -> int:
        """Records that come again at most."""
        return sum(place.position.translated_repeats_at_most or 0 for place in self.positions)

    @property
    def again(self) -> int:
        """Records that came again."""
        return sum(place.again for place in self.positions)

    @property
    def compared_records(self) -> int:
        """Records that were compared."""
        return sum(place.compared for place in self.positions)


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal of a pair that began at `taken_at` (seconds since 1970) came to.

    `blocks`: what the check says that would end a failover. `asked`: the expression for groups (None: all were asked
    for), of which `left_out` were not rehearsed. `deleted`, `abandoned`: scratch groups of this one, and of earlier
    ones, that it deleted; `remaining`: those that are still there.
    """

    pair: str
    taken_at: float
    groups: tuple[RehearsedGroup, ...] = ()
    stages: tuple[Stage, ...] = ()
    unread: tuple[Unread, ...] = ()
    blocks: tuple[str, ...] = ()
    not_begun: str = ""
    asked: str | None = None
    left_out: int = 0
    records: int = 0
    deleted: int = 0
    abandoned: int = 0
    remaining: tuple[str, ...] = ()

    json_keys = (
        "pair taken_at verdict recovery_seconds not_measured stages counts left_out records deleted abandoned "
        "remaining unread groups=worst_first"
    )
    not_measured = (
        "how long people take to notice and to decide, DNS, restarts of clients and their own rebalances, and"
        " the switch of producers"
    )

    @cached_property
    def verdict(self) -> RehearsalVerdict:
        return judge_rehearsal(self)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many positions came to each outcome."""
        outcomes = [place.outcome for group in self.groups for place in group.positions]
        return {outcome: outcomes.count(outcome) for outcome in reversed(OUTCOMES)}

    @cached_property
    def first_seconds(self) -> float | None:
        """How long the slowest group took to its first record; None where one has none."""
        times = [group.first_seconds for group in self.groups if group.positions]
        measured = [seconds for seconds in times if seconds is not None]
        return max(measured) if measured and len(measured) == len(times) else None

    @cached_property
    def recovery_seconds(self) -> float | None:
        """How long `failover run --disaster` would take until each group has its first record: to judge, to write
        groups, and the slowest group's first record. None where it was not measured."""
        seconds = {stage.name: stage.seconds for stage in self.stages}
        parts = [seconds.get(JUDGE), seconds.get(WRITE), self.first_seconds]
        return None if None in parts else sum(part or 0.0 for part in parts)

    @cached_property
    def worst_first(self) -> tuple[RehearsedGroup, ...]:
        """The groups, those that are not good first, then those in which more came again, then by name."""
        return tuple(
            sorted(self.groups, key=lambda group: (REHEARSAL_WORDS.index(group.word), -group.again, group.group))
        )


JUDGE, WRITE, SOURCE = "read and judge", "write groups", "records of the source"
FIRST, READ, DELETE = "first record of the slowest group", "all records of all groups", "delete scratch groups"


@dataclass(frozen=True)
class RehearsalVerdict:
    """The verdict of a rehearsal, and why it is no better one."""

    word: RehearsalWord
    reasons: tuple[str, ...] = field(default=())


def judge_rehearsal(rehearsal: Rehearsal) -> RehearsalVerdict:
    """Return the verdict: good only where all was read and every record that a group has to read was there."""
    reasons: Mapping[RehearsalWord, list[str]] = {word: [] for word in REHEARSAL_WORDS}
    for word, reason in _reasons(rehearsal):
        reasons[word].append(reason)
    word = next((word for word in REHEARSAL_WORDS if reasons[word]), "good")
    return RehearsalVerdict(word, tuple(reasons[word]) if word != "good" else ())


def _reasons(rehearsal: Rehearsal) -> Iterator[tuple[RehearsalWord, str]]:
    groups = rehearsal.groups
    if rehearsal.remaining:
        text = f"{number_of(len(rehearsal.remaining), 'scratch group')} not deleted ({few(rehearsal.remaining)})"
        yield "not good", text
    yield from (("not good", text) for text in rehearsal.blocks)
    for group in groups:
        if group.failure:
            yield "not good", f"{group.group}: {group.failure}"
    yield from _reason_about(groups, "differs", "not good", "other records than the source has")
    yield from _reason_about(groups, "not read", "not judged", "records could not be read")
    untranslated = [group for group in groups if group.untranslated]
    if untranslated:
        names = few([group.group for group in untranslated])
        yield "not judged", f"{number_of(len(untranslated), 'group')} ({names}): position not known"
    for unread in rehearsal.unread:
        yield "not judged", f"{unread.where}: {unread.subject} could not be read"
    if rehearsal.not_begun:
        yield "not judged", rehearsal.not_begun
    elif not groups:
        matching = "" if rehearsal.asked is None else f" that matches {rehearsal.asked!r}"
        yield "not judged", f"no group{matching} has committed offsets on a topic that this pair mirrors"
    if may_repeat := sum(group.may_repeat for group in groups):
        again = sum(group.again for group in groups)
        yield "good with", f"{number_of(again, 'record')} came again, {may_repeat} may at most"
    if count := rehearsal.counts["not compared"]:
        yield "good with", f"records of {number_of(count, 'position')} were not compared"
    if rehearsal.left_out:
        yield "good with", f"{number_of(rehearsal.left_out, 'group')} left out"


def _reason_about(
    groups: Collection[RehearsedGroup], outcome: Outcome, word: RehearsalWord, text: str
) -> Iterator[tuple[RehearsalWord, str]]:
    places = [
        f"{group.group} in {place.position.partition}{f' ({place.reason})' if place.reason else ''}"
        for group in groups
        for place in group.positions
        if place.outcome == outcome
    ]
    if places:
        yield word, f"{text}: {few(places, between='; ')}"


def untranslated_partitions(group: GroupReadiness, chosen: Collection[GroupPosition]) -> tuple[TopicPartition, ...]:
    """Return where a group has something to read, or may have, and no offset to begin at on the target."""
    rehearsed = {position.partition for position in chosen}
    risks: Iterable[tuple[GroupPosition, Risk]] = zip(group.positions, group.risks, strict=True)
    return tuple(
        position.partition for position, risk in risks if position.partition not in rehearsed and risk.state != "exact"
    )

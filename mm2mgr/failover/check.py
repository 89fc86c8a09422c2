"""Whether a pair can fail over now: where each group would start on the target, what is lost, and one verdict. Pure.

The true position of a group in a remote partition is the first record there that it has not read. It is not before our
translation, which may be off by so many records at most. A group that starts behind the translation may skip records:
by more than that may be off it does, by less it is not judged. What it starts before it may come again, together with
what the translation may be off. Where nothing translates, a checkpoint at or below what the group committed stands in,
if all was mirrored when it was read (from 3.4.1 on MirrorMaker translates to no later record than the one to go on
with: KAFKA-12468). What could not be read is never GO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from mm2mgr.failover.kept import KeptLooks
from mm2mgr.failover.translation import Translation
from mm2mgr.kafka.acls import Right
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.remarks import Remark
from mm2mgr.text import few, number_of, span_text

Word = Literal["NO-GO", "not judged", "GO WITH", "GO"]
"""A verdict, worst first."""
State = Literal["skips", "differs", "out of range", "absent", "unknown", "repeats", "exact"]
"""How a group would start in one partition, worst first."""
Sampled = Literal["", "same", "within", "differs"]
"""What reading the records showed: nothing was read, the same record at both offsets, within the bounds, neither."""

WORDS: tuple[Word, ...] = get_args(Word)
STATES: tuple[State, ...] = get_args(State)
_WORD_OF: dict[State, Word] = {
    **dict.fromkeys(("skips", "differs", "out of range", "absent"), "NO-GO"),
    "unknown": "not judged",
    "repeats": "GO WITH",
    "exact": "GO",
}


class PositionBounds(NamedTuple):
    """Where the true position lies: not before `lower`, and so many records that were read follow there at most."""

    lower: int
    repeats: int


def bounds_of(translation: Translation | None, proven: int | None, log: Offsets | None) -> PositionBounds | None:
    """Return where a true position lies; None where nothing tells.

    `proven`: the best checkpoint that cannot be behind it, for want of a translation; one beyond the end of the log is
    of another topic. It makes no translation sharper: while records are mirrored again after a restart, MirrorMaker's
    checkpoints are ahead of copies that are there only once.
    """
    if translation is not None and translation.offset is not None:
        return PositionBounds(translation.offset, max(0, translation.repeats_at_most))
    if proven is None or log is None or proven > log.end:
        return None
    return PositionBounds(proven, log.end - proven)


class Risk(NamedTuple):
    """What happens to a group that starts at an offset: so many records come again at most, and so many are skipped at
    most (None: not known)."""

    state: State
    repeats: int | None = None
    skips: int | None = None


@dataclass(frozen=True)
class GroupPosition:
    """A group in one partition of the source, and in its remote partition.

    `committed`: the next offset that it reads on the source (None: unknown), `end`: the end of the source's log there,
    as it is, or was at the last look. `on_target`: the offset that it has on the target (None: none). `checkpoint`: the
    newest one, as source and target offset, and when it was written (seconds since 1970). `log`: the remote
    partition's (None: not read). `deleted`: offsets that the target's log had and has no more, of records that it has
    not read and that are still on the source, at least.
    """

    group: str
    partition: TopicPartition
    remote: TopicPartition
    committed: int | None
    end: int | None = None
    on_target: int | None = None
    checkpoint: tuple[int, int] | None = None
    checkpoint_at: float | None = None
    bounds: PositionBounds | None = None
    reason: str = ""
    log: Offsets | None = None
    sampled: Sampled = ""
    deleted: int = 0

    json_keys = (
        "topic=partition.topic partition=partition.partition remote_topic=remote.topic committed source_end=end "
        "checkpoint checkpoint_at on_target translated=translated_offset translated_repeats_at_most reason "
        "state=risk.state repeats_at_most=risk.repeats skips_at_most=risk.skips sampled"
    )

    @property
    def translated_offset(self) -> int | None:
        """The offset to start at on the target: the latest that skips nothing."""
        return self.bounds.lower if self.bounds else None

    @property
    def translated_repeats_at_most(self) -> int | None:
        """How many records come again from there on, at most."""
        return self.bounds.repeats if self.bounds else None

    @cached_property
    def risk(self) -> Risk:
        """What happens if it starts at the offset that it has on the target."""
        return self.risk_at(self.on_target)

    def risk_at(self, start: int | None) -> Risk:
        """Return what happens if the group starts at this offset; None: it has none."""
        log, bounds = self.log, self.bounds
        if self.sampled == "differs":
            return Risk("differs")
        if log is None:
            return Risk("unknown")
        if self._has_nothing_to_read(log):
            return Risk("exact", 0, 0)
        if start is None or not log.start <= start <= log.end:
            return Risk("absent" if start is None else "out of range")
        if bounds is None:
            return Risk("unknown", log.end - start)
        return Risk("skips", bounds.repeats, self.deleted) if self.deleted else _risk_within(start, bounds, log)

    def _has_nothing_to_read(self, log: Offsets) -> bool:
        """Tell whether both logs are empty for the group, so that any start is the right one; MirrorMaker translates
        nothing there."""
        is_empty = log.start == log.end and self.end is not None and self.committed == self.end
        return is_empty and (self.bounds is None or self.bounds.lower == log.end) and self.on_target in {None, log.end}


def _risk_within(start: int, bounds: PositionBounds, log: Offsets) -> Risk:
    if start > bounds.lower:
        skips = start - bounds.lower
        return Risk("skips" if skips > bounds.repeats else "unknown", bounds.repeats, skips)
    repeats = min(bounds.lower - start + bounds.repeats, log.end - start)
    return Risk("repeats" if repeats else "exact", repeats, 0)


@dataclass(frozen=True)
class GroupReadiness:
    """A group with its positions. `has_members`: on the target, where its offsets can then not be written.

    `translated`: it is judged as if the translated offsets were committed on the target before it starts there.
    """

    group: str
    positions: tuple[GroupPosition, ...]
    has_members: bool = False
    on_source: str = ""
    translated: bool = False

    json_keys = (
        "group word state members_on_target=has_members state_on_source=on_source partitions=count "
        "repeats_at_most=repeats skips_at_most=skips checkpoint_at positions"
    )

    @cached_property
    def risks(self) -> tuple[Risk, ...]:
        """The risk of each position, in their order."""
        if not self.translated:
            return tuple(position.risk for position in self.positions)
        return tuple(position.risk_at(position.translated_offset) if position.bounds or position.risk.state == "exact"
                     else Risk("unknown") for position in self.positions)  # fmt: skip

    @cached_property
    def state(self) -> State:
        """The worst of its partitions'."""
        return min((risk.state for risk in self.risks), key=STATES.index, default="exact")

    @property
    def word(self) -> Word:
        return "NO-GO" if self.has_members else _WORD_OF[self.state]

    @property
    def count(self) -> int:
        return len(self.positions)

    @cached_property
    def repeats(self) -> int | None:
        """Records that come again at most; None where that is not known of a partition."""
        numbers = [risk.repeats for risk in self.risks]
        return None if None in numbers else sum(number or 0 for number in numbers)

    @cached_property
    def skips(self) -> int:
        """Records that it skips, at most, where that is known."""
        return sum(risk.skips or 0 for risk in self.risks)

    @cached_property
    def checkpoint_at(self) -> float | None:
        """When the oldest of its newest checkpoints was written, in seconds since 1970; None where one is missing."""
        times = [position.checkpoint_at for position in self.positions]
        return None if None in times else min((time for time in times if time is not None), default=None)

    @property
    def sample_counts(self) -> tuple[int, int]:
        """How many positions records were read at, and at how many of them the same record was found."""
        return (
            sum(bool(position.sampled) for position in self.positions),
            sum(position.sampled == "same" for position in self.positions),
        )


@dataclass(frozen=True)
class Unread:
    """What could not be read, where (a cluster's alias, or `connect NAME`), why, and what to do: it is never GO.

    `rights` that mm2mgr's login, which is `principal` there, lacks; `commands` give them.
    """

    where: str
    subject: str
    reason: str
    remedy: str = ""
    principal: str = ""
    rights: tuple[Right, ...] = ()
    commands: tuple[str, ...] = ()

    json_keys = "where what=subject reason remedy commands"


@dataclass(frozen=True)
class RecoveryPoint:
    """What is not on the target: records at most, and how many seconds ago the oldest of them was written (None: not
    known), in so many partitions. `age_seconds`: how old that knowledge is (0: read now)."""

    records: int | None = None
    seconds: float | None = None
    partitions: int = 0
    age_seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class TimeToExpect:
    """Seconds, once producers have stopped: until the last record is on the target, at the pace of the mirror so far
    (None: not known), and until the checkpoints and group offsets after it are written."""

    drain_seconds: float | None
    checkpoint_seconds: float

    json_keys = "drain_seconds checkpoint_seconds total_seconds"

    @property
    def total_seconds(self) -> float | None:
        return None if self.drain_seconds is None else self.drain_seconds + self.checkpoint_seconds


@dataclass(frozen=True)
class FailoverVerdict:
    """The verdict, why it is no better one, and its numbers."""

    word: Word
    reasons: tuple[str, ...] = ()
    repeats_at_most: int | None = 0
    skips_at_most: int = 0
    lost_at_most: int | None = 0


class TopicTraits(NamedTuple):
    """Topics of the source whose copies are not equal, not all there, or not alone.

    `altered`: transforms may alter records, or the target sets their timestamps. `sparse`: compacted, or of aborted
    transactions nothing is mirrored. `shared`: others may write to their remote topics.
    """

    altered: frozenset[str] = frozenset()
    sparse: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PairReadiness:
    """Whether a pair can fail over, at `taken_at` (seconds since 1970). `source_age_seconds`: how old is what is known
    of the source (0: it was read now, None: nothing is, or not all of it). `translated`: see GroupReadiness. `asked`:
    the Java expression that names of the judged groups match (None: all were asked for). `looked`: what was read of the
    source, to be kept; None where it did not answer."""

    pair: str
    taken_at: float
    groups: tuple[GroupReadiness, ...] = ()
    remarks: tuple[Remark, ...] = ()
    unread: tuple[Unread, ...] = ()
    recovery: RecoveryPoint = field(default_factory=RecoveryPoint)
    time: TimeToExpect = field(default_factory=lambda: TimeToExpect(None, 0.0))
    source_age_seconds: float | None = 0.0
    translated: bool = False
    asked: str | None = None
    sampled: int = 0
    looked: KeptLooks | None = field(default=None, repr=False)
    traits: TopicTraits = field(default_factory=TopicTraits, repr=False)

    json_keys = "pair taken_at verdict source_age_seconds translated recovery time remarks=shown_remarks unread groups"

    @property
    def shown_remarks(self) -> list[dict[str, str]]:
        return [{"text": remark.text, "effect": remark.effect, "remedy": remark.remedy} for remark in self.remarks]

    @cached_property
    def verdict(self) -> FailoverVerdict:
        return judge(self)

    @cached_property
    def worst_first(self) -> tuple[GroupReadiness, ...]:
        """The groups: verdicts worst first, then those with more to skip or repeat, then by name."""
        return tuple(sorted(self.groups, key=_badness))


def _badness(group: GroupReadiness) -> tuple[int, int, int, int, str]:
    repeats = group.repeats
    return (
        WORDS.index(group.word),
        STATES.index(group.state),
        -group.skips,
        -(repeats if repeats is not None else 0),
        group.group,
    )


def judge(pair: PairReadiness) -> FailoverVerdict:
    """Return the verdict. A skip, an active group on the target, a position out of range or missing, or a remark that
    blocks is NO-GO; without these, anything unknown is not judged; without that, repeats, losses and remarks that warn
    are GO WITH them."""
    reasons: dict[Word, list[str]] = {word: [] for word in WORDS}
    for word, reason in _reasons(pair):
        reasons[word].append(reason)
    word = next((word for word in WORDS if reasons[word]), "GO")
    numbers = [group.repeats for group in pair.groups]
    return FailoverVerdict(
        word,
        tuple(reasons[word]) if word != "GO" else (),
        None if None in numbers else sum(number or 0 for number in numbers),
        sum(group.skips for group in pair.groups),
        pair.recovery.records,
    )


_TEXTS: dict[State, str] = {
    "skips": "would skip records, which is an error",
    "differs": "other records at the translated offset than on the source",
    "out of range": "offset outside of the target's log: its consumers' auto.offset.reset would decide",
    "absent": "no offset on the target: its consumers' auto.offset.reset would decide",
    "unknown": "position not known",
}


def _reasons(pair: PairReadiness) -> Iterator[tuple[Word, str]]:
    groups = sorted(pair.groups, key=lambda group: group.group)
    for state, text in _TEXTS.items():
        yield from _reason_about(_WORD_OF[state], [group for group in groups if group.state == state], text)
    yield from _reason_about("NO-GO", [group for group in groups if group.has_members], "has members on the target")
    if pair.asked is not None and not groups:
        yield "not judged", f"no group that reads a mirrored topic matches {pair.asked!r}"
    for remark in pair.remarks:
        if remark.effect in {"blocks", "warns"}:
            yield "NO-GO" if remark.effect == "blocks" else "GO WITH", remark.text
    for unread in pair.unread:
        yield "not judged", f"{unread.where}: {unread.subject} could not be read"
    if pair.recovery.records is None:
        yield "not judged", f"records lost are not known: {pair.recovery.reason or 'the lag could not be read'}"
    elif pair.recovery.records:
        yield "GO WITH", lost_text(pair.recovery)
    if repeats := sum(group.repeats or 0 for group in groups):
        yield "GO WITH", f"at most {number_of(repeats, 'record')} again"
    if pair.source_age_seconds:
        yield "GO WITH", f"what is known of the source is {span_text(pair.source_age_seconds)} old"
    elif pair.source_age_seconds is None:
        yield "not judged", "the source does not answer, and no earlier look at it was kept"


def _reason_about(word: Word, groups: Sequence[GroupReadiness], text: str) -> Iterator[tuple[Word, str]]:
    if groups:
        yield word, f"{number_of(len(groups), 'group')} ({few([group.group for group in groups])}): {text}"


def lost_text(recovery: RecoveryPoint) -> str:
    """Say what would be lost."""
    if recovery.records is None:
        return f"records lost: not known ({recovery.reason})"
    old = "" if recovery.seconds is None else f", the oldest written {span_text(recovery.seconds)} ago"
    age = f"; as of {span_text(recovery.age_seconds)} ago, and all that was written since" * bool(recovery.age_seconds)
    return f"at most {number_of(recovery.records, 'record')} lost{old if recovery.records else ''}{age}"


def word_of(words: Iterable[Word]) -> Word:
    """Return the worst of some verdicts; GO of none."""
    return min(words, key=WORDS.index, default="GO")

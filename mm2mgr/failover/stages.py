"""The stages of a failover as values, in order, and whether what clusters show means that a stage is done. Pure.

planned: producers stop, the last records arrive, the pair is stopped, groups are written. cutoff: the same, but at a
time that all know. disaster: the source is gone, and what has arrived is what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.failover.check import PairReadiness, Word, judge, word_of
from mm2mgr.failover.group_offsets import GroupOrder, group_reasons
from mm2mgr.failover.journal import Ends, FailoverJournal, Mode
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, number_of, span_text

StageName = Literal[
    "readiness", "drain", "producers", "quiet", "arrived", "translated", "stop", "ends", "groups", "back", "consumers"
]
Actor = Literal["mm2mgr", "you"]


@dataclass(frozen=True)
class FailoverStage:
    """One stage: what is done, and who does it."""

    name: StageName
    title: str
    by: Actor = "mm2mgr"


_TITLES: Mapping[StageName, str] = {
    "readiness": "check all groups",
    "drain": "the mirror has almost all records",
    "producers": "stop the producers, and let the consumers read to the end",
    "quiet": "nobody writes to the source any more",
    "arrived": "the last records are on the target",
    "translated": "the position of every group is known on the target",
    "stop": "stop the connectors of the pair",
    "ends": "note where the logs of the target end",
    "groups": "write the offsets of the groups on the target",
    "back": "prepare the way back",
    "consumers": "start consumers and producers on the target",
}
_BY_PEOPLE: frozenset[StageName] = frozenset({"producers", "back", "consumers"})
_ORDER: Mapping[Mode, tuple[StageName, ...]] = {
    "planned": tuple(_TITLES),
    "cutoff": tuple(_TITLES),
    "disaster": ("readiness", "stop", "ends", "groups", "consumers", "back"),
}


def stages_of(mode: Mode) -> tuple[FailoverStage, ...]:
    """Return the stages of a failover, in the order in which they are done."""
    stages = tuple(
        FailoverStage(name, _TITLES[name], "you" if name in _BY_PEOPLE else "mm2mgr") for name in _ORDER[mode]
    )
    if mode != "cutoff":
        return stages
    until = FailoverStage("producers", "wait until the time at which producers stop")
    return tuple(until if stage.name == "producers" else stage for stage in stages)


# --- what clusters show -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairConnector:
    """A connector of the pair as its Connect cluster shows it; `state` is "" where it does not exist.

    `rests`: it is STOPPED without a task, or PAUSED where workers cannot stop. `refusal`: why mm2mgr may not touch it.
    `declared`: the state that the tree declares of it, and where.
    """

    connect: str
    name: str
    type: str
    state: str
    rests: bool = False
    refusal: str = ""
    declared: tuple[str, str] | None = None

    @property
    def full_name(self) -> str:
        return f"{self.connect}/{self.name}"

    @property
    def is_there(self) -> bool:
        return self.state != ""


@dataclass(frozen=True)
class MirrorFacts:
    """How far a pair is mirrored, at `taken_at` (seconds since 1970), and how its connectors are.

    `stored`: the offset that is mirrored next, by partition of the source. `source_ends`, `target_ends`: the ends of
    logs of mirrored topics, by the names on either side. `open_ends`: those before open transactions. `behind`: records
    that are not mirrored, at most, of partitions that have some. `seconds_behind`: how long ago the oldest of them was
    written. `unknown`: why it is not known how far the pair is mirrored. `late`: records written at or after the time
    of a cutoff (None: they could not be read). `unread`: partitions of the source whose ends could not be read.
    `can_stop`: the workers can stop connectors (Kafka 3.5). `connect_failure`: why their Connect cluster did not
    answer; `target_failure`: why ends of the target's logs are missing.
    """

    taken_at: float
    connectors: tuple[PairConnector, ...] = ()
    stored: Ends = field(default_factory=dict)
    source_ends: Ends = field(default_factory=dict)
    target_ends: Ends = field(default_factory=dict)
    open_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds_behind: float | None = 0.0
    unknown: str = ""
    late: Mapping[TopicPartition, int] | None = field(default_factory=dict)
    unread: tuple[TopicPartition, ...] = ()
    can_stop: bool = True
    connect_failure: str = ""
    target_failure: str = ""

    @property
    def records_behind(self) -> int:
        return sum(self.behind.values())

    @property
    def to_stop(self) -> list[PairConnector]:
        """The connectors that are not at rest yet."""
        return [connector for connector in self.connectors if connector.is_there and not connector.rests]

    @property
    def are_stopped(self) -> bool:
        """Whether nothing of the pair runs, as far as its Connect cluster tells."""
        return not self.connect_failure and not self.to_stop


@dataclass(frozen=True)
class StageProgress:
    """How far a stage is. `text` says what is seen; `blocked` why it cannot go on by itself ("": it can)."""

    done: bool
    text: str = ""
    blocked: str = ""


# --- readiness --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunVerdict:
    """Whether a failover may begin, why it is no better verdict, and what it is to write."""

    word: Word
    reasons: tuple[str, ...] = ()
    repeats_at_most: int = 0
    groups_to_write: int = 0
    groups_in_all: int = 0


def run_verdict(
    readiness: PairReadiness, orders: Collection[GroupOrder], connectors: Collection[PairConnector] = ()
) -> RunVerdict:
    """Return whether a failover may begin: the verdict of a check, but for the groups, which are to be written.

    A connector that mm2mgr may not touch, or that the tree declares as running, so that an apply would start it again,
    is NO-GO.
    """
    beside = judge(replace(readiness, groups=(), asked=None if orders else readiness.asked))
    reasons: list[tuple[Word, str]] = [(beside.word, reason) for reason in beside.reasons]
    reasons += group_reasons(orders)
    for connector in connectors:
        if connector.is_there and connector.refusal:
            reasons.append(("NO-GO", f"{connector.full_name}: {connector.refusal}"))
        if connector.declared and connector.declared[0] == "RUNNING":
            text = f"the tree declares state: running ({connector.declared[1]}), so an apply would start it again"
            reasons.append(("NO-GO", f"{connector.full_name}: {text}: remove that line"))
    repeats = sum(order.repeats for order in orders)
    if repeats:
        reasons.append(("GO WITH", f"at most {number_of(repeats, 'record')} again"))
    word = word_of(name for name, _ in reasons)
    shown = tuple(dict.fromkeys(reason for name, reason in reasons if name == word)) if word != "GO" else ()
    writes = sum(order.action == "write" for order in orders)
    return RunVerdict(word, shown, repeats, writes, len(orders))


def may_begin(mode: Mode, verdict: RunVerdict) -> bool:
    """Tell whether a failover may begin; in a disaster there is no better moment, so it says what is wrong, and goes on
    with what it can do."""
    return mode == "disaster" or verdict.word in {"GO", "GO WITH"}


def readiness_progress(mode: Mode, verdict: RunVerdict) -> StageProgress:
    """Return how the check of all groups came out."""
    text = f"{verdict.word}{': ' * bool(verdict.reasons)}{'; '.join(verdict.reasons)}"
    return StageProgress(True, text) if may_begin(mode, verdict) else StageProgress(False, text, text)


# --- the stages before anything is written ----------------------------------------------------------------------------


def drain_progress(facts: MirrorFacts, seconds: float) -> StageProgress:
    """Tell whether the oldest record that is not mirrored was written less than so many seconds ago."""
    if facts.unknown:
        return StageProgress(False, f"the lag is not known: {facts.unknown}")
    old, records = facts.seconds_behind, number_of(facts.records_behind, "record")
    if not facts.behind:
        return StageProgress(True, "nothing is behind")
    if old is None:
        return StageProgress(False, f"{records} behind, of unknown age")
    return StageProgress(old <= seconds, f"{records} behind, the oldest written {span_text(old)} ago")


@dataclass(frozen=True)
class QuietSource:
    """How the source's logs moved over looks at it: none has since `since`, as of `until`, in seconds of a clock that
    nobody can set.

    `written`: how many offsets each partition went on by at the last look at which any did; control records of
    transactions count.
    """

    since: float
    until: float
    ends: Ends = field(default_factory=dict)
    written: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, facts: MirrorFacts, ended_at: float) -> QuietSource:
        """Return the first look, which ended then."""
        return cls(ended_at, ended_at, dict(facts.source_ends))

    def next_look(self, facts: MirrorFacts, began_at: float, ended_at: float) -> QuietSource:
        """Return it with one more look; an end that could not be read, or is gone, is no quiet end."""
        if not self.ends:  # nothing to compare with: the source did not answer, or had no topic
            return QuietSource.begin(facts, ended_at)
        written = {
            partition: end - self.ends.get(partition, 0)
            for partition, end in facts.source_ends.items()
            if end != self.ends.get(partition, 0)
        }
        is_blind = is_source_unread(facts) or not self.ends.keys() <= facts.source_ends.keys()
        since = ended_at if written or is_blind else self.since
        return QuietSource(since, max(since, began_at), {**self.ends, **facts.source_ends}, written or self.written)

    @property
    def seconds(self) -> float:
        """For how long no end has moved."""
        return max(0.0, self.until - self.since)


def is_source_unread(facts: MirrorFacts) -> bool:
    """Tell whether ends of the source's logs are missing; of a source that does not answer, nothing is listed."""
    return bool(facts.unread) or (not facts.source_ends and facts.unknown != "")


def quiet_progress(
    quiet: QuietSource, facts: MirrorFacts, seconds: float, clients: Collection[str] = ()
) -> StageProgress:
    """Tell whether no log of the source has moved for so many seconds, and who still writes.

    `clients`: what is known of who may: logins and client ids with a quota there.
    """
    if not facts.source_ends and is_source_unread(facts):
        reason = f" ({facts.unknown})" if facts.unknown else ""
        return StageProgress(False, f"the ends of the source's logs could not be read{reason}")
    open_transactions = sorted(
        partition for partition, end in facts.open_ends.items() if end < facts.source_ends.get(partition, end)
    )
    if open_transactions:
        names = few([str(partition) for partition in open_transactions])
        return StageProgress(False, f"open transactions: {names}")
    late = f"; {late_text(facts.late)}" if facts.late or facts.late is None else ""
    if quiet.seconds >= seconds:
        return StageProgress(True, f"no log has moved for {span_text(quiet.seconds)}{late}")
    if not quiet.written:
        return StageProgress(False, f"no log has moved for {span_text(quiet.seconds)} of {span_text(seconds)}{late}")
    return StageProgress(False, f"{writers_text(quiet.written)}{late}; {_clients_text(clients)}")


def writers_text(written: Mapping[TopicPartition, int]) -> str:
    """Say which partitions are still written, those with most records first."""
    most = sorted(written, key=lambda partition: (-written[partition], partition))
    names = few([f"{partition} (+{written[partition]})" for partition in most])
    return f"{number_of(len(written), 'partition')} still written: {names}"


def late_text(late: Mapping[TopicPartition, int] | None) -> str:
    """Say which records were written after the time that was agreed."""
    if late is None:
        return "whether records were written after the cutoff could not be read"
    names = few([f"{partition} (+{late[partition]})" for partition in sorted(late, key=lambda p: (-late[p], p))])
    return f"{number_of(sum(late.values()), 'record')} written after the cutoff: {names}"


def _clients_text(clients: Collection[str]) -> str:
    blind = "Kafka does not tell who writes to a partition"
    return f"{blind}; clients with a quota there: {few(sorted(clients), 5)}" if clients else blind


def arrived_progress(facts: MirrorFacts) -> StageProgress:
    """Tell whether every record of the source is on the target: the stored offsets have come to the ends."""
    if facts.unknown:
        return StageProgress(False, f"the lag is not known: {facts.unknown}")
    if not facts.behind:
        return StageProgress(True, "every record of the source is on the target")
    names = few([f"{partition} ({count})" for partition, count in sorted(facts.behind.items())])
    return StageProgress(False, f"{number_of(facts.records_behind, 'record')} not known to be there: {names}")


def translated_progress(orders: Collection[GroupOrder], waited_seconds: float, limit_seconds: float) -> StageProgress:
    """Tell whether every group's position is exact on the target; after a while what it may be off is named."""
    repeats = sum(order.repeats for order in orders)
    unknown = [
        order.group for order in orders if order.action == "uncertain" or (order.unknown and order.reads_on_source)
    ]
    if not repeats and not unknown:
        return StageProgress(True, "exact for every group")
    parts = [f"at most {number_of(repeats, 'record')} again"] if repeats else []
    parts += [f"not known for {few(sorted(unknown))}"] if unknown else []
    is_over = waited_seconds >= limit_seconds
    return StageProgress(is_over and not unknown, "; ".join(parts))


# --- the stages that write --------------------------------------------------------------------------------------------


def stop_progress(facts: MirrorFacts, mode: Mode) -> StageProgress:
    """Tell whether the pair's connectors rest. A Connect cluster that does not answer ends a planned failover; in a
    disaster the risk is named."""
    if facts.connect_failure:
        text = f"the Connect cluster does not answer ({facts.connect_failure})"
        risk = "whether its workers still run, and go on to write records and group offsets on the target, is not known"
        return StageProgress(True, f"{text}: {risk}") if mode == "disaster" else StageProgress(False, text, text)
    if blocked := [f"{connector.full_name}: {connector.refusal}" for connector in facts.to_stop if connector.refusal]:
        return StageProgress(False, few(blocked), few(blocked))
    if left := [connector.full_name for connector in facts.to_stop]:
        return StageProgress(False, f"to be stopped: {few(left)}")
    how = "STOPPED" if facts.can_stop else "PAUSED (Kafka before 3.5 cannot stop: a paused connector keeps its tasks)"
    return StageProgress(
        True, how if any(connector.is_there for connector in facts.connectors) else "no connector is there"
    )


def goes_on(journal: FailoverJournal | None, facts: MirrorFacts) -> bool:
    """Tell whether a journal is of the failover that is under way: it is open or done, and the pair has not run since
    it was stopped; else a new one begins."""
    if journal is None or journal.outcome == "abandoned":
        return False
    if "ends" not in journal.reached:
        return journal.is_open
    if facts.connect_failure:
        return True
    return facts.are_stopped and not ran_since(journal, facts)


def ran_since(journal: FailoverJournal, facts: MirrorFacts) -> bool:
    """Tell whether offsets of the source were stored since the ends were noted: the ends are not where it stopped."""
    noted = journal.source_stored
    if facts.stored.keys() - noted.keys() and facts.target_ends.keys() - journal.target_ends.keys():
        return True  # partitions that were not mirrored then
    return any(facts.stored.get(partition, offset) != offset for partition, offset in noted.items())


def ends_progress(journal: FailoverJournal | None) -> StageProgress:
    """Tell whether the ends of the target's logs are noted."""
    if journal is None or "ends" not in journal.reached:
        return StageProgress(False, "not noted yet")
    return StageProgress(True, f"noted for {number_of(len(journal.target_ends), 'partition')}")


def groups_progress(orders: Collection[GroupOrder]) -> StageProgress:
    """Tell whether nothing is left to be written, and which groups are not."""
    left = [order for order in orders if order.action == "write"]
    notes = [reason for _, reason in group_reasons(orders)]
    if left:
        return StageProgress(
            False, f"{number_of(len(left), 'group')} to be written{'; ' * bool(notes)}{'; '.join(notes)}"
        )
    there = sum(order.action in {"level", "gone on"} for order in orders)
    return StageProgress(True, "; ".join([f"{number_of(there, 'group')} at the offsets to go on from", *notes]))

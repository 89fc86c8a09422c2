"""What looks, checks and rehearsals of failover leave in the store: rows of the tables `failover_looks`,
`failover_checks` and `failover_rehearsals`, and what the newest of them say. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mm2mgr.failover.check import WORDS, PairReadiness, Word
from mm2mgr.failover.kept import AnewPlace, Ids, KeptLooks
from mm2mgr.failover.rehearsal import GOOD, REHEARSAL_WORDS, Rehearsal, RehearsalWord
from mm2mgr.failover.syncs import OffsetSync, OffsetSyncLog
from mm2mgr.failover.translation import MirroredEnds
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import FailoverCheckRow, FailoverRehearsalRow, KeptRow, utc_text
from mm2mgr.text import few, fit_text, number_of, span_text

_LONGEST_REASON = 500
_READY: tuple[Word, ...] = ("GO", "GO WITH")


# --- looks ------------------------------------------------------------------------------------------------------------


def rows_of(looks: KeptLooks) -> Iterator[KeptRow]:
    """Yield the rows of the table that keeps it."""
    written = looks.syncs.written_at
    for kind, at in (("all syncs", looks.syncs_at), ("all groups", looks.commits_at), ("all ends", looks.ends_at)):
        if at:
            yield KeptRow(kind, None, "", -1, 0, _ms(written or 0.0) if kind == "all syncs" else 0, _ms(at))
    for partition, syncs in looks.syncs.by_partition.items():
        for place, sync in enumerate(syncs):
            yield KeptRow("sync", None, *partition, place, sync.upstream, _ms(looks.syncs_at), sync.downstream)
    for group, offsets in looks.commits.items():
        at_ms = _ms(looks.group_read_at(group))
        if not offsets:
            yield KeptRow("group", group, "", -1, 0, 0, at_ms)
        for partition, offset in offsets.items():
            yield KeptRow("group", group, *partition, 0, offset, at_ms)
    for partition, ends in looks.ends.items():
        ids = looks.topic_ids.get(partition.topic, (None, None))
        source = -1 if ends.source is None else ends.source
        yield KeptRow("end", None, *partition, 0, source, _ms(looks.ends_at), ends.target, ends.stored, *ids)
    for partition, anew in looks.anew.items():
        of_now = anew.source_id, anew.target_id
        yield KeptRow("anew", None, *partition, 0, 0, _ms(anew.at), anew.target_end, None, *of_now)


def looks_of(rows: Iterable[KeptRow]) -> KeptLooks:
    """Return what rows of `rows_of` hold; ValueError where they are none."""
    times, written_at = dict.fromkeys(("all syncs", "all groups", "all ends"), 0.0), None
    syncs: dict[TopicPartition, list[tuple[int, OffsetSync]]] = {}
    commits: dict[str, dict[TopicPartition, int]] = {}
    group_times: dict[str, float] = {}
    ends: dict[TopicPartition, MirroredEnds] = {}
    topic_ids: dict[str, Ids] = {}
    anew: dict[TopicPartition, AnewPlace] = {}
    names: dict[TopicPartition, TopicPartition] = {}  # held once, not once per row
    for row in rows:
        partition, at = TopicPartition(row.topic, row.partition), row.time_ms / 1000
        partition = names.setdefault(partition, partition)
        if row.kind in times:
            times[row.kind] = at
            written_at = row.offset / 1000 if row.kind == "all syncs" and row.offset else written_at
        elif row.kind == "sync" and row.target_offset is not None:
            sync = OffsetSync(partition, row.offset, row.target_offset)
            syncs.setdefault(partition, []).append((row.place, sync))
        elif row.kind == "group" and row.group is not None:
            group_times[row.group] = min(at, group_times.get(row.group, at))
            offsets = commits.setdefault(row.group, {})
            if row.partition >= 0:
                offsets[partition] = row.offset
        elif row.kind == "end" and row.target_offset is not None:
            ends[partition] = MirroredEnds(row.target_offset, None if row.offset < 0 else row.offset, row.stored_offset)
            if row.topic_id is not None and row.target_topic_id is not None:
                topic_ids[row.topic] = (row.topic_id, row.target_topic_id)
        elif row.kind == "anew" and None not in (row.target_offset, row.topic_id, row.target_topic_id):
            anew[partition] = AnewPlace(at, row.target_offset or 0, row.topic_id or "", row.target_topic_id or "")
        else:
            raise ValueError(f"a row of the kind {row.kind[:40]!r} that is not complete")
    by_partition = {
        partition: tuple(sync for _, sync in sorted(placed, key=lambda place: place[0]))
        for partition, placed in syncs.items()
    }
    apart = {group: at for group, at in group_times.items() if at != times["all groups"]}
    of_syncs = OffsetSyncLog(by_partition, written_at)
    return KeptLooks(
        *(commits, times["all groups"], ends, times["all ends"], of_syncs, times["all syncs"], apart, topic_ids, anew)
    )


# --- checks -----------------------------------------------------------------------------------------------------------


def check_row(readiness: PairReadiness, started_by: str) -> FailoverCheckRow:
    """Return the row of a check. Group names are in it where a reason names some, no offset and no record."""
    verdict, recovery = readiness.verdict, readiness.recovery
    source, _, target = readiness.pair.partition("->")
    written = [group.checkpoint_at for group in readiness.groups]
    oldest = None if None in written else min((at for at in written if at is not None), default=None)
    age = readiness.source_age_seconds
    return FailoverCheckRow(
        source=source,
        target=target,
        time_ms=_ms(readiness.taken_at),
        verdict=verdict.word,
        reason=fit_text(few(list(verdict.reasons), 3, "; "), _LONGEST_REASON) if verdict.reasons else "",
        groups=len(readiness.groups),
        groups_not_ready=sum(group.word not in _READY for group in readiness.groups),
        repeated=verdict.repeats_at_most,
        skipped=verdict.skips_at_most,
        lost=verdict.lost_at_most,
        lost_ms=None if recovery.seconds is None else _ms(recovery.seconds),
        checkpoint_ms=None if oldest is None else _ms(oldest),
        source_ms=None if age is None else _ms(readiness.taken_at - age),
        started_by=started_by,
    )


@dataclass(frozen=True)
class ReadinessState:
    """What the checks of the last days say of a pair; times in seconds since 1970.

    `verdict`: that of the newest check, `not judged` where the store has a word that is none. `not_ready_since`: the
    first of the checks without GO or GO WITH up to the newest; None where that is ready. `ready_at`: the last check
    with GO or GO WITH; None: none in these days.
    """

    pair: str
    checked_at: float
    verdict: Word
    reason: str = ""
    groups: int = 0
    groups_not_ready: int = 0
    repeated: int | None = None
    skipped: int = 0
    lost: int | None = None
    lost_seconds: float | None = None
    checkpoint_at: float | None = None
    source_at: float | None = None
    not_ready_since: float | None = None
    ready_at: float | None = None
    started_by: str = ""
    json_keys = (
        "pair verdict checked=checked_utc checked_at reason groups groups_not_ready repeated_at_most=repeated "
        "skipped_at_most=skipped lost_at_most=lost lost_seconds checkpoint_at source_at not_ready_since ready_at "
        "started_by"
    )

    @property
    def checked_utc(self) -> str:
        return utc_text(self.checked_at)

    @property
    def is_ready(self) -> bool:
        """Whether the newest check says GO or GO WITH."""
        return self.verdict in _READY

    @property
    def records_at_risk(self) -> int | None:
        """Records that would be lost or skipped, at most; None where that is not known."""
        return None if self.lost is None else self.lost + self.skipped

    def sentence(self, now: float) -> str:
        """Say what the newest check came to."""
        ago = f"checked {span_text(max(0.0, now - self.checked_at))} ago"
        reason = f": {self.reason}" if self.reason else ""
        return f"Failover {self.pair}: {self.verdict}, {number_of(self.groups, 'group')}, {ago}{reason}."


def readiness_states(rows: Iterable[FailoverCheckRow]) -> dict[str, ReadinessState]:
    """Return what the checks, oldest first, say of each pair that has rows."""
    by_pair: dict[str, list[FailoverCheckRow]] = {}
    for row in rows:
        by_pair.setdefault(f"{row.source}->{row.target}", []).append(row)
    return {pair: _state(pair, checks) for pair, checks in by_pair.items()}


def _state(pair: str, checks: list[FailoverCheckRow]) -> ReadinessState:
    newest = checks[-1]
    ready = [row.time_ms for row in checks if _word(row) in _READY]
    failed = [row.time_ms for row in checks if not ready or row.time_ms > ready[-1]]
    return ReadinessState(
        pair,
        newest.time_ms / 1000,
        _word(newest),
        newest.reason,
        newest.groups,
        newest.groups_not_ready,
        newest.repeated,
        newest.skipped,
        newest.lost,
        _seconds(newest.lost_ms),
        _seconds(newest.checkpoint_ms),
        _seconds(newest.source_ms),
        _seconds(min(failed, default=None)),
        _seconds(max(ready, default=None)),
        newest.started_by,
    )


# --- rehearsals -------------------------------------------------------------------------------------------------------


def rehearsal_row(rehearsal: Rehearsal, started_by: str) -> FailoverRehearsalRow:
    """Return the row of a rehearsal. Group names are in it where a reason names some, no offset and no record."""
    verdict = rehearsal.verdict
    source, _, target = rehearsal.pair.partition("->")
    seconds = rehearsal.recovery_seconds
    return FailoverRehearsalRow(
        source=source,
        target=target,
        time_ms=_ms(rehearsal.taken_at),
        verdict=verdict.word,
        reason=fit_text(few(list(verdict.reasons), 3, "; "), _LONGEST_REASON) if verdict.reasons else "",
        groups=len(rehearsal.groups),
        positions=sum(rehearsal.counts.values()),
        differing=rehearsal.counts["differs"],
        compared=sum(group.compared_records for group in rehearsal.groups),
        repeated=sum(group.again for group in rehearsal.groups),
        recovery_ms=None if seconds is None else _ms(seconds),
        started_by=started_by,
    )


@dataclass(frozen=True)
class RehearsalState:
    """What rehearsals say of a pair: the newest one, when the last good one began (seconds since 1970; None: there was
    none in 90 days), and the recovery time that it measured."""

    pair: str
    rehearsed_at: float
    verdict: RehearsalWord
    reason: str = ""
    groups: int = 0
    good_at: float | None = None
    recovery_seconds: float | None = None
    json_keys = "pair verdict rehearsed=rehearsed_utc rehearsed_at reason groups good_at recovery_seconds"

    @property
    def rehearsed_utc(self) -> str:
        return utc_text(self.rehearsed_at)


def rehearsal_states(rows: Iterable[FailoverRehearsalRow]) -> dict[str, RehearsalState]:
    """Return what rehearsals say of each pair that has rows."""
    by_pair: dict[str, list[FailoverRehearsalRow]] = {}
    for row in sorted(rows, key=lambda row: row.time_ms):
        by_pair.setdefault(f"{row.source}->{row.target}", []).append(row)
    states: dict[str, RehearsalState] = {}
    for pair, rehearsals in by_pair.items():
        newest = rehearsals[-1]
        good = [row for row in rehearsals if row.verdict in GOOD]
        states[pair] = RehearsalState(
            pair,
            newest.time_ms / 1000,
            next((word for word in REHEARSAL_WORDS if word == newest.verdict), "not judged"),
            newest.reason,
            newest.groups,
            good[-1].time_ms / 1000 if good else None,
            _seconds(good[-1].recovery_ms) if good else None,
        )
    return states


def _word(row: FailoverCheckRow) -> Word:
    return next((word for word in WORDS if word == row.verdict), "not judged")


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _ms(seconds: float) -> int:
    return round(1000 * seconds)

"""What checks of a pair leave: a row of the table `failover_checks` each, and what the newest say of the pair. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mm2mgr.failover.check import WORDS, PairReadiness, Word
from mm2mgr.samples.schema import FailoverCheckRow, utc_text
from mm2mgr.text import few, fit_text, number_of, span_text

_LONGEST_REASON = 500
_READY: tuple[Word, ...] = ("GO", "GO WITH")


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


def _word(row: FailoverCheckRow) -> Word:
    return next((word for word in WORDS if word == row.verdict), "not judged")


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _ms(seconds: float) -> int:
    return round(1000 * seconds)

"""What to know about flows beside their problems: what they wait for, how accurate their lag is, and Connect clusters that
mirror without storing offsets, because one dead source blocks the commits of every flow on its worker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mm2mgr.observe.memory import RESTING, Mark, Memory
from mm2mgr.observe.problems import ConnectorCase, FlowCase
from mm2mgr.observe.reading import Failure, SeenKafka, Snapshot
from mm2mgr.topology import Flow


def companion_notes(case: ConnectorCase) -> tuple[str, ...]:
    """Return the notes on a companion connector."""
    notes, status = _state_notes(case), case.seen.status
    if case.seen.desired.type == "checkpoint" and status and status.state == "RUNNING" and not status.tasks:
        notes.append(
            "no task: no consumer group has offsets on these topics, or the source does not answer the workers"
        )
    return tuple(notes)


def flow_notes(case: FlowCase) -> tuple[str, ...]:
    """Return the notes on a flow."""
    lag, notes = case.lag, _state_notes(case)
    if case.state == (case.flow.settings.state or "").upper() and case.state in RESTING:
        notes = [f"{case.state}, as declared"]
    if lag.unassigned:
        every = case.flow.settings.refresh_interval
        notes.append(f"{len(lag.unassigned)} partitions have no task: new partitions are detected every {every:.0f} s")
    if lag.deleted:
        names = ", ".join(sorted({one.topic for one in lag.deleted})[:3])
        notes.append(f"tasks still hold partitions that {case.flow.source.alias} no longer has: {names}")
    if isinstance(case.seen.tasks, Failure):
        notes.append(f"tasks could not be read: {case.seen.tasks.message}")
    return tuple(notes)


def offsets_note(case: FlowCase, target: SeenKafka, grown: str) -> str:
    """Return how accurate the lag is: Connect stores offsets at intervals, and only stored offsets can be read."""
    lag = case.lag
    if case.seen.info is None or lag.unknown is not None:
        return f"lag unknown: {lag.unknown or 'the connector is not applied'}"
    parts = []
    if case.state == "STOPPED":
        parts.append("exact: a stopped connector has stored all its offsets")
    elif lag.total_records and not case.flow.exactly_once:
        parts.append(
            "workers store offsets every offset.flush.interval.ms (60 s by default), so the true lag may be lower"
        )
    parts += [part for part in (grown, _nothing_stored(case), _marker(case), _unread(case)) if part]
    if target.failure:
        parts.append(f"the target could not be read: {target.failure.message}")
    return "; ".join(parts)


def growth(flow: Flow, now: float, marks: Mapping[str, Mark], before: Mapping[str, Mark]) -> str:
    """Return by how much the target grew since the last observation, where that is more than the stored offsets show.

    Empty for an exactly-once flow: its offsets are stored in the transaction that writes the records.
    """
    if flow.exactly_once:
        return ""
    both = [(marks[task], before[task]) for task in marks if task in before]
    seen = [(mark.arrived - old.arrived, mark.stored - old.stored) for mark, old in both
            if mark.arrived is not None and old.arrived is not None]  # fmt: skip
    arrived, stored = sum(one for one, _ in seen), max(0, sum(one for _, one in seen))
    if arrived <= stored:
        return ""
    seconds = now - max(old.clock.seen_at for _, old in both)
    return f"in the last {seconds:.0f} s the target received {_at_most(flow, arrived)}, of which the stored offsets show {stored}"


def _state_notes(case: ConnectorCase) -> list[str]:
    if case.state in RESTING:
        return [f"{case.state}: it does nothing until it is resumed"]
    if case.state == "no status" and case.without_status_seconds < case.patience.no_status_seconds:
        return [f"no status for {case.without_status_seconds:.0f} s: a new connector first waits for both clusters"]
    return []


def _nothing_stored(case: FlowCase) -> str:
    empty = [one for one in case.lag.counted if one.stored is None and one.lag_records]
    arrived = sum(one.arrived or 0 for one in empty)
    already = f", but their remote topics hold {_at_most(case.flow, arrived)} already" if arrived else ""
    return f"nothing stored yet for {len(empty)} partitions{already}" if empty else ""


def _at_most(flow: Flow, end_offsets: int) -> str:
    """Return growth of end offsets in words: 500 records in one transaction move an end by 501 (its marker)."""
    return f"{end_offsets} records{' and transaction markers' if flow.connect.exactly_once else ''}"


def _marker(case: FlowCase) -> str:
    single = case.lag.total_records and all(one.lag_records <= 1 for one in case.lag.counted)
    return "one record behind can be a transaction's end marker, which is never mirrored" if single else ""


def _unread(case: FlowCase) -> str:
    for partition, why in case.lag.unread.items():
        return f"{len(case.lag.unread)} partitions of the source could not be read ({partition}: {why})"
    return ""


# --- offsets that are not stored -------------------------------------------------------------------------------------

_SHOWN = 5


@dataclass(frozen=True)
class StaleOffsets:
    """Flows of one Connect cluster whose records arrive while their offsets are not stored; `sources` could not be read."""

    connect: str
    flows: tuple[str, ...]
    seconds: float
    records: int
    sources: tuple[str, ...]

    @property
    def is_problem(self) -> bool:
        """Whether a source is dead; otherwise the cause may be a long offset.flush.interval.ms, which workers do not show."""
        return bool(self.sources)

    def sentence(self) -> str:
        """Return what it means and, where known, what to do."""
        names = ", ".join(self.flows[:_SHOWN]) + (", …" if len(self.flows) > _SHOWN else "")
        count = "1 flow" if len(self.flows) == 1 else f"{len(self.flows)} flows"
        fact = (
            f"offsets of {count} not stored for {self.seconds:.0f} s while their records arrive ({names}); a restart would "
            f"mirror at least {self.records} records again"
        )
        if not self.sources:
            return (
                f"{fact}; normal if offset.flush.interval.ms of its workers is longer, else check their log for a "
                "source that does not answer"
            )
        dead = ", ".join(self.sources)
        return (
            f"{fact}; source {dead} could not be read, and a dead source blocks offset commits of every flow on its workers: "
            f"bring {dead} back, or declare state: stopped on the flows from it"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "connect": self.connect,
            "flows": list(self.flows),
            "seconds": self.seconds,
            "records": self.records,
            "unread_sources": list(self.sources),
            "detail": self.sentence(),
        }


def stale_offsets(reading: Snapshot, memory: Memory, patience_seconds: float) -> Iterator[StaleOffsets]:
    """Yield the Connect clusters where several flows, or one beside a dead source, have waited this long for a commit."""
    for name in reading.connects:
        flows = [flow for flow in reading.flows if flow.connect.name == name]
        kept = [(flow.id, memory.of(flow.id).unstored) for flow in flows]
        waiting = [(flow, one.records, one.clock.seconds) for flow, one in kept
                   if one and one.clock and not one.clock.paused and one.clock.seconds >= patience_seconds]  # fmt: skip
        dead = tuple(sorted({flow.source.alias for flow in flows if reading.clusters[flow.source.alias].failure}))
        if len(waiting) > 1 or (waiting and dead):
            yield StaleOffsets(
                name,
                tuple(flow for flow, _, _ in waiting),
                min(seconds for _, _, seconds in waiting),
                sum(records for _, records, _ in waiting),
                dead,
            )

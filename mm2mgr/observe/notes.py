"""What is worth saying about a flow and is no problem: things still to come, and how far its lag can be trusted. Pure.

In: a case, as `problems` takes it. Out: sentences without advice; whatever needs action belongs into `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mm2mgr.observe.memory import RESTING, Mark
from mm2mgr.observe.problems import Case, FlowCase
from mm2mgr.observe.reading import Failure, SeenKafka
from mm2mgr.topology import Flow


def companion_notes(case: Case) -> tuple[str, ...]:
    """Return what to know about a connector beside the flow."""
    notes, status = _state_notes(case), case.seen.status
    if case.seen.desired.type == "checkpoint" and status and status.state == "RUNNING" and not status.tasks:
        notes.append(
            "no task: no consumer group has offsets on these topics, or the source does not answer the workers"
        )
    return tuple(notes)


def flow_notes(case: FlowCase) -> tuple[str, ...]:
    """Return what to know about a flow."""
    lag, notes = case.lag, _state_notes(case)
    if case.state == (case.flow.settings.state or "").upper() and case.state in RESTING:
        notes = [f"{case.state} as the tree says"]
    if lag.unassigned:
        every = case.flow.settings.refresh_interval
        notes.append(f"{len(lag.unassigned)} partitions have no task: new ones are looked for every {every:.0f} s")
    if lag.deleted:
        names = ", ".join(sorted({one.topic for one in lag.deleted})[:3])
        notes.append(f"tasks still hold partitions that {case.flow.source.alias} no longer has: {names}")
    if isinstance(case.seen.tasks, Failure):
        notes.append(f"tasks could not be read: {case.seen.tasks.message}")
    return tuple(notes)


def offsets_note(case: FlowCase, target: SeenKafka, grown: str) -> str:
    """Say how far the lag can be trusted: Connect stores offsets at intervals, and only what it stored can be read."""
    lag = case.lag
    if case.seen.info is None or lag.unknown is not None:
        return f"lag is not known: {lag.unknown or 'the connector is not applied'}"
    parts = []
    if case.state == "STOPPED":
        parts.append("exact: a stopped connector has stored all its offsets")
    elif lag.total_records and not case.flow.exactly_once:
        parts.append("workers store offsets every offset.flush.interval.ms (60 s by default), so true lag may be lower")
    parts += [part for part in (grown, _nothing_stored(case), _marker(case), _unread(case)) if part]
    if target.failure:
        parts.append(f"the target could not be read: {target.failure.message}")
    return "; ".join(parts)


def growth(flow: Flow, now: float, marks: Mapping[str, Mark], before: Mapping[str, Mark]) -> str:
    """Say that the target got more records since the last look than the stored offsets show; nothing if it did not.

    Of an exactly-once flow there is nothing to say: offsets are stored in the transaction that writes the records.
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
    return (
        f"in the last {seconds:.0f} s the target got {_at_most(flow, arrived)}, of which stored offsets show {stored}"
    )


def _state_notes(case: Case) -> list[str]:
    if case.state in RESTING:
        return [f"{case.state}: it does nothing until somebody resumes it"]
    if case.state == "no status" and case.without_status_seconds < case.patience.no_status_seconds:
        return [f"no status for {case.without_status_seconds:.0f} s: a new connector first waits for both clusters"]
    return []


def _nothing_stored(case: FlowCase) -> str:
    empty = [one for one in case.lag.counted if one.stored is None and one.lag_records]
    arrived = sum(one.arrived or 0 for one in empty)
    already = f", but their remote topics hold {_at_most(case.flow, arrived)} already" if arrived else ""
    return f"nothing stored yet for {len(empty)} partitions{already}" if empty else ""


def _at_most(flow: Flow, end_offsets: int) -> str:
    """Return a growth of end offsets in words: 500 records in one transaction move an end by 501 (its marker)."""
    return f"{end_offsets} records{' and transaction markers' if flow.connect.exactly_once else ''}"


def _marker(case: FlowCase) -> str:
    single = case.lag.total_records and all(one.lag_records <= 1 for one in case.lag.counted)
    return "one record behind can be a transaction's end marker, which is never mirrored" if single else ""


def _unread(case: FlowCase) -> str:
    for partition, why in case.lag.unread.items():
        return f"{len(case.lag.unread)} partitions of the source could not be read ({partition}: {why})"
    return ""

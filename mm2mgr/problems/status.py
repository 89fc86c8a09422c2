"""The entrance: reads Connect and Kafka once, compares with what is remembered, and judges; and acknowledges losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.audit.report import AuditReport
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.audits import audit_rows, ledger_rows
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.losses import Acknowledgement, LossEntry, acknowledgement_of, find_entries
from mm2mgr.observe.memory import Memory, measure_lags, remember
from mm2mgr.observe.read import ObserveOptions, read_estate
from mm2mgr.observe.reading import Reading
from mm2mgr.observe.state_file import (
    StorePlace,
    audits_of,
    change,
    is_due_to_share,
    join_shared,
    load,
    read_audits,
    readiness_of,
    record_audit,
    rehearsals_of,
    settle,
    share,
    state_file,
    timed_looks,
)
from mm2mgr.problems.health import Description, FailoverStates, Status, judge
from mm2mgr.samples.schema import AuditRow
from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Observation:
    """A status with the reading and the lags behind it, and what is remembered now."""

    reading: Reading
    lags: Mapping[str, FlowLag]
    status: Status
    memory: Memory


async def observe(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Observation:
    """Observe the flows with these ids (None: all) and remember what was judged."""
    how = options or ObserveOptions()
    chosen = None if only is None else set(only)
    flows = [flow for flow in topology.flows if chosen is None or flow.id in chosen]
    earlier = timed_looks(_file(topology, how))
    reading = await read_estate(topology, connectors, flows, replace(how, earlier=earlier))
    lags: dict[str, FlowLag] = {}

    def remember_reading(earlier: Memory) -> Memory:
        lags.update(measure_lags(reading, earlier))
        memory = remember(earlier, reading, lags)
        return replace(memory, shared_at=now) if how.shares and is_due_to_share(earlier, now) else memory

    place, now, ids = _place(topology, how), reading.taken_at, [flow.id for flow in flows]
    before, memory, unwritten = change(place.memory_file, remember_reading)
    memory, unjoined = join_shared(place, before, memory, ids, now)
    unshared = share(place, memory, ids) if memory.shared_at == now else ()
    entries, unsettled = settle(place, memory)
    audits, unaudited = audits_of(place, now) if any(flow.settings.audit for flow in flows) else (None, [])
    pairs = {flow.pair for flow in flows if flow.failover}
    checks, unchecked = readiness_of(place, now) if pairs else (None, [])
    rehearsed = {flow.pair for flow in flows if flow.failover and flow.failover.rehearse_every}
    rehearsals, unrehearsed = rehearsals_of(place, rehearsed) if rehearsed else (None, [])
    states = FailoverStates(checks, rehearsals)
    judged = judge(reading, lags, before, memory, patience=how.patience, ledger=entries, audits=audits, checks=states)
    unidentified = [
        f"kafka {alias}: no broker gave the ids of topics in time, so this look finds no loss; the next one does"
        for alias, kafka in reading.clusters.items()
        if kafka.ids_unread
    ]
    warnings = (*unwritten, *unidentified, *unjoined, *unsettled, *unshared, *unaudited, *unchecked, *unrehearsed)
    return Observation(reading, lags, replace(judged, warnings=warnings), memory)


async def status(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Status:
    """Return the status of the flows with these ids (None: all); see `observe`. No failed cluster raises."""
    return (await observe(topology, connectors, only=only, options=options)).status


async def describe(
    topology: Topology, connectors: Sequence[Connector], flow: Flow, *, options: ObserveOptions | None = None
) -> Description:
    """Observe one flow and return everything about it."""
    observation = await observe(topology, connectors, only=[flow.id], options=options)
    lag = observation.lags.get(flow.id, FlowLag())
    return Description(flow, observation.reading, lag, observation.status, tuple(connectors))


def read_losses(topology: Topology, options: ObserveOptions | None = None) -> tuple[tuple[LossEntry, ...], list[str]]:
    """Return the ledger of a tree's owner, and what could not be read of it, without a look at any cluster."""
    how = options or ObserveOptions()
    return settle(_place(topology, how), load(_file(topology, how)))


def record(
    topology: Topology, report: AuditReport, started_by: str, options: ObserveOptions | None = None
) -> list[str]:
    """Write an audit of a tree's flows into the table of audits and the ledger; return what could not be written."""
    how = options or ObserveOptions()
    flows, place = {flow.id: flow for flow in topology.flows}, _place(topology, how)
    lost = ledger_rows(report, flows, settle(place, load(place.memory_file))[0])
    return record_audit(place, audit_rows(report, flows, started_by), lost, report.began + report.seconds)


def read_audit_history(
    topology: Topology, since: float, options: ObserveOptions | None = None
) -> tuple[list[AuditRow], list[str]]:
    """Return the rows of audits of a tree's owner since then (seconds since 1970), oldest first, and warnings."""
    return read_audits(_place(topology, options or ObserveOptions()), since)


def acknowledge(
    topology: Topology,
    ids: Sequence[str],
    ack: Acknowledgement,
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> tuple[LossEntry, ...]:
    """Acknowledge losses by ids, or `all` (of these flows), and return them; Mm2mgrError for unknown ids."""
    how = options or ObserveOptions()
    losses = find_entries(read_losses(topology, how)[0], ids, only)
    rows = tuple(acknowledgement_of(entry, ack) for entry in losses)
    _, memory, warnings = change(
        _file(topology, how), lambda memory: replace(memory, unwritten=(*memory.unwritten, *rows))
    )
    if warnings:
        raise Mm2mgrError(f"nothing was acknowledged: {warnings[0]}")
    settle(_place(topology, how), memory)
    return losses


def _file(topology: Topology, how: ObserveOptions) -> Path:
    return how.memory_file or state_file(str(topology.owner))


def _place(topology: Topology, how: ObserveOptions) -> StorePlace:
    return StorePlace(how.store, str(topology.owner), _file(topology, how))

"""The entrance: look at an estate once, compare with earlier looks, say how it is; and acknowledge losses.

In: topology and rendered connectors. Out: a Status, or an Observation that also holds what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.describe import Description
from mm2mgr.observe.health import Looks, Status, judge, lags_of
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.losses import Loss, open_losses
from mm2mgr.observe.losses import acknowledge as mark
from mm2mgr.observe.memory import remember
from mm2mgr.observe.problems import Patience
from mm2mgr.observe.reader import Instruments, read_estate
from mm2mgr.observe.reading import Reading
from mm2mgr.observe.state import change, load, state_file
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Manner:
    """How to look: instruments, patience, where to remember (None: the owner's file in the state folder), partitions named per flow."""

    instruments: Instruments = field(default_factory=Instruments)
    patience: Patience = field(default_factory=Patience)
    memory_file: Path | None = None
    top: int = 5


@dataclass(frozen=True)
class Observation:
    """A status with the reading and the lags that it was made from."""

    reading: Reading
    lags: Mapping[str, FlowLag]
    status: Status


async def observe(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    manner: Manner | None = None,
) -> Observation:
    """Look at the flows with these ids (None: all) and remember what was seen."""
    how = manner or Manner()
    chosen = None if only is None else set(only)
    flows = [flow for flow in topology.flows if chosen is None or flow.id in chosen]
    reading = await read_estate(topology, connectors, flows, how.instruments)
    lags = lags_of(reading)
    kept = change(_file(topology, how), lambda earlier: remember(earlier, reading, lags))
    seen = judge(reading, lags, Looks(kept.earlier, kept.memory, how.patience), top=how.top)
    return Observation(reading, lags, replace(seen, warnings=kept.warnings))


async def status(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    manner: Manner | None = None,
) -> Status:
    """Return the status of the flows with these ids (None: all); see `observe`. No failed cluster raises."""
    return (await observe(topology, connectors, only=only, manner=manner)).status


async def describe(
    topology: Topology, connectors: Sequence[Connector], flow: Flow, *, manner: Manner | None = None
) -> Description:
    """Look at one flow and return everything about it."""
    seen = await observe(topology, connectors, only=[flow.id], manner=manner)
    return Description(flow, seen.reading, seen.lags.get(flow.id, FlowLag()), seen.status)


def acknowledge(
    topology: Topology, ids: Sequence[str], *, only: Iterable[str] | None = None, manner: Manner | None = None
) -> tuple[Loss, ...]:
    """Acknowledge losses by their ids, or `all` (of the flows with these ids), and return them; Mm2mgrError for unknown ids."""
    how = manner or Manner()
    file = _file(topology, how)
    known = {one.id: one for one in open_losses(load(file).losses)}
    wanted = [one for one in dict.fromkeys(ids) if one != "all"]
    if unknown := [one for one in wanted if one not in known]:
        raise Mm2mgrError(
            f"no loss {', '.join(unknown)} waits to be acknowledged", hint=f"losses here: {', '.join(known) or 'none'}"
        )
    if "all" in ids:
        wanted = [one.id for one in open_losses(known, only)]
    kept = change(file, lambda memory: replace(memory, losses=mark(memory.losses, wanted, how.instruments.clock())))
    if kept.warnings:
        raise Mm2mgrError(f"nothing is acknowledged: {kept.warnings[0]}")
    return tuple(known[one] for one in wanted)


def _file(topology: Topology, how: Manner) -> Path:
    return how.memory_file or state_file(str(topology.owner))

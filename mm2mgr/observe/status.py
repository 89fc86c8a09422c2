"""The entrance: look at an estate once (or twice, some seconds apart), compare with earlier looks, and say how it is.

In: topology and rendered connectors. Out: a Status, or an Observation that also holds what it was made from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mm2mgr.observe import memory
from mm2mgr.observe.describe import Description
from mm2mgr.observe.health import Looks, Status, judge, lags_of
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.problems import Patience
from mm2mgr.observe.reader import Instruments, read_estate
from mm2mgr.observe.reading import Reading
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Manner:
    """How to look: instruments, patience, where to remember (None: the owner's file), partitions named per flow."""

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
    watch_seconds: float = 0.0,
    manner: Manner | None = None,
) -> Observation:
    """Look at the flows with these ids (None: all) and remember what was seen.

    With `watch_seconds` there are two looks so far apart, so that progress shows within one call.
    """
    how = manner or Manner()
    chosen = None if only is None else set(only)
    flows = [flow for flow in topology.flows if chosen is None or flow.id in chosen]
    if watch_seconds > 0:
        await _look(topology, connectors, flows, how)
        await asyncio.sleep(watch_seconds)
    return await _look(topology, connectors, flows, how)


async def status(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    watch_seconds: float = 0.0,
    manner: Manner | None = None,
) -> Status:
    """Return the status of the flows with these ids (None: all); see `observe`. No failed cluster raises."""
    return (await observe(topology, connectors, only=only, watch_seconds=watch_seconds, manner=manner)).status


async def describe(
    topology: Topology, connectors: Sequence[Connector], flow: Flow, *, manner: Manner | None = None
) -> Description:
    """Look at one flow and return everything about it."""
    seen = await observe(topology, connectors, only=[flow.id], manner=manner)
    return Description(flow, seen.reading, seen.lags.get(flow.id, FlowLag()), seen.status)


async def _look(topology: Topology, connectors: Sequence[Connector], flows: Sequence[Flow], how: Manner) -> Observation:
    reading = await read_estate(topology, connectors, flows, how.instruments)
    lags = lags_of(reading)
    file = how.memory_file or memory.memory_file(topology.owner)
    earlier = memory.load(file)
    now = memory.remember(earlier, reading, lags)
    memory.save(file, now)
    return Observation(reading, lags, judge(reading, lags, Looks(earlier, now, how.patience), top=how.top))

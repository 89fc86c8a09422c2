"""Stores other offsets for stopped source connectors, and reads them back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from mm2mgr import timing
from mm2mgr.apply.history import Recorder
from mm2mgr.apply.verbs import untouchable
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.types import parse_stored
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import open_client
from mm2mgr.plan.changes import Change
from mm2mgr.plan.resets import FlowReset
from mm2mgr.text import few
from mm2mgr.topology import Topology

_LIMITS = Limits(write_seconds=30.0)
_READ_BACK_SECONDS = 30.0
_READ_BACK_PAUSE_SECONDS = 0.3


async def write_resets(topology: Topology, resets: Iterable[FlowReset], recorder: Recorder) -> list[FlowReset]:
    """Write resets side by side and record them; return them with what went wrong."""
    owners = Ownership.of(topology)

    async def write(reset: FlowReset) -> FlowReset:
        if not reset.changes:
            return reset
        change = _as_recorded(reset)
        recorder.begin(change)
        try:
            async with open_client(reset.flow.connect, _LIMITS.write_seconds) as client:
                await _patch(client, reset, owners)
        except Mm2mgrError as error:
            recorder.end(change, "failed", error.message)
            return replace(reset, error=error)
        recorder.end(change, "done")
        return replace(reset, written=True)

    return list(await asyncio.gather(*map(write, resets)))


async def _patch(client: ConnectClient, reset: FlowReset, owners: Ownership) -> None:
    """Write the entries, unless connector or offsets are no longer what was shown, and read them back."""
    name, alias = reset.connector, reset.flow.source.alias
    if refused := untouchable((await client.info(name)).config, (reset.flow.connect.name, name), owners):
        raise Mm2mgrError(refused.text, hint=refused.remedy or None)
    stored = parse_stored(await client.offsets(name), alias)
    if moved := [str(offset.partition) for offset in reset.resets if stored.get(offset.partition) != offset.stored]:
        raise Mm2mgrError(
            f"stored offsets of {few(moved)} changed since they were shown; nothing was written", hint="run it again"
        )
    await client.patch_offsets(name, [offset.entry(alias) for offset in reset.changes])
    end = timing.now() + _READ_BACK_SECONDS
    while True:
        stored = parse_stored(await client.offsets(name), alias)
        wrong = [str(offset.partition) for offset in reset.changes if stored.get(offset.partition) != offset.wanted]
        if not wrong:
            return
        if timing.now() > end:
            raise Mm2mgrError(
                f"the offsets were written, but {few(wrong)} do not show it", hint="look with mm2mgr offsets show"
            )
        await asyncio.sleep(_READ_BACK_PAUSE_SECONDS)


def _as_recorded(reset: FlowReset) -> Change:
    """Return a reset as the history has it: one key for each partition that changes."""

    def to_text(offset: int | None) -> str | None:
        return None if offset is None else str(offset)

    keys = tuple(
        KeyChange(f"offset of {offset.partition}", to_text(offset.stored), to_text(offset.wanted))
        for offset in reset.changes
    )
    return Change(reset.flow.connect.name, reset.connector, "source", "update", (reset.flow.id,), keys)

"""Copies a connector's stored offsets when its config changes where they are stored, or lets it run only if it has some.

Connect does not do it: its lookup in the workers' own topic, meant as a fallback, is hidden by the nulls of the connector's
empty topic (ConnectorOffsetBackingStore.get, KIP-618), so every record would be mirrored again; seen on 4.3.1. The marks of a move
in progress are keys of the connector's own config, so it survives the process that began it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, NotFound
from mm2mgr.connect.types import SourceOffset, parse_stored
from mm2mgr.text import few

Config = Mapping[str, str]

TOPIC = "offsets.storage.topic"
THEN_KEY = "mm2mgr.offsets_then"
"""The state that the connector is brought back to; with it alone its offsets are where its config says."""
FROM_KEY = "mm2mgr.offsets_from"
"""The topic that its offsets are still to be taken from, empty for the workers' own; overrides as they were follow behind a dot."""
NEEDS_KEY = "mm2mgr.offsets_needed"
"""The topics without whose stored offsets the connector must not run, joined by commas: they have arrived on the target already."""
# Which Kafka the topic is on: without them a topic of the same name elsewhere would be read, and created, empty.
_OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")


def is_moved(live: Config, wanted: Config) -> bool:
    """Tell whether writing `wanted` would leave stored offsets behind, or a move that was begun unfinished."""
    return THEN_KEY in live or _topic(live) != _topic(wanted)


def left_at(live: Config, wanted: Config) -> dict[str, str] | None:
    """Return the keys that lead to offsets which `wanted` does not reach; None when it reaches them."""
    if FROM_KEY in live:
        behind = f"{FROM_KEY}."
        overrides = {key.removeprefix(behind): value for key, value in live.items() if key.startswith(behind)}
        return {TOPIC: live[FROM_KEY]} | overrides
    return place(live) if _topic(live) != _topic(wanted) else None


def place(config: Config) -> dict[str, str]:
    """Return the keys that say where offsets are stored; the topic is empty for the workers' own."""
    return {TOPIC: _topic(config)} | {key: value for key, value in config.items() if key.startswith(_OVERRIDES)}


def at(where: Config, config: Config) -> dict[str, str]:
    """Return a config that finds its offsets at another place."""
    own = place(config)
    return {key: value for key, value in config.items() if key not in own} | {
        key: value for key, value in where.items() if value
    }


def marked(config: Config, then: str, where: Config | None = None) -> dict[str, str]:
    """Return a config that says how a move ends: in which state, and from where offsets are still to be taken."""
    marks = {THEN_KEY: then}
    for key, value in (where or {}).items():
        marks[FROM_KEY if key == TOPIC else f"{FROM_KEY}.{key}"] = value
    return {**unmarked(config), **marks}


def unmarked(config: Config) -> dict[str, str]:
    """Return a config without marks."""
    marks = (THEN_KEY, NEEDS_KEY)
    return {key: value for key, value in config.items() if key not in marks and not key.startswith(FROM_KEY)}


def move_text(live: Config, wanted: Config) -> str:
    """Describe, for a plan, what an update does besides writing the config."""
    if NEEDS_KEY in live:
        return f"finishes checking its stored offsets, then {live[THEN_KEY]}"
    if THEN_KEY in live:
        return f"finishes moving its stored offsets, then {live[THEN_KEY]} again"
    return f"stops the connector, copies its offsets from {_named(live)} to {_named(wanted)}, resumes it"


def _topic(config: Config) -> str:
    return config.get(TOPIC, "").strip()


def _named(config: Config) -> str:
    return _topic(config) or "the workers' own topic"


_WAIT_SECONDS = 60.0
_RESTORE_SECONDS = 30.0
_POLL_SECONDS = 0.3


async def put_with_offsets(
    client: ConnectClient, name: str, live: Mapping[str, str], wanted: Mapping[str, str], wished: str | None = None
) -> None:
    """Stop a connector, change its config, store the offsets it had once more, and bring it back to its state.

    `wished` is the state to bring it to instead. Dying at any point leaves marks (`offset_move`) with which the next call finishes: the connector does not run between
    leaving its offsets and having them. When a step is refused the old config is put back, unless that was cut short before.
    Offsets are exact only while it is STOPPED (KIP-875); needs Kafka 3.6.
    """
    if NEEDS_KEY in live:
        await _prove(client, name, live)
    was = live.get(THEN_KEY) or await _resting_state(client, name)
    then = wished or was
    behind = left_at(live, wanted)
    try:
        if behind is not None:
            await _carry(client, name, live, marked(wanted, then, behind))
    except BaseException:  # cancelled, too
        if THEN_KEY not in live:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESTORE_SECONDS):
                    await _finish(client, name, live, was)
        raise
    await _finish(client, name, wanted, then)


async def create_with_offsets(
    client: ConnectClient, name: str, wanted: Mapping[str, str], then: str, topics: Sequence[str]
) -> None:
    """Create a connector, and let it run only if offsets of these topics are stored under its name; else delete it again.

    Offsets outlive their connector (KIP-875), but cannot be read without one. Needs Kafka 3.7 (KIP-980).
    """
    unproved = {**marked(wanted, then), NEEDS_KEY: ",".join(topics)}
    await client.create(name, unproved, "STOPPED")
    await put_with_offsets(client, name, unproved, wanted)


async def _prove(client: ConnectClient, name: str, live: Mapping[str, str]) -> None:
    """Delete a connector that has never run and whose stored offsets lack a topic; raises ConnectError then."""
    await _until(name, "did not stop", lambda: _is_stopped(client, name))
    stored = {one.topic for one in parse_stored(await client.offsets(name), live["source.cluster.alias"])}
    missing = [topic for topic in live[NEEDS_KEY].split(",") if topic not in stored]
    if missing:
        await client.delete(name)
        raise ConnectError(
            f"connector '{name}': the target has records of {few(missing)} already, and no offsets are stored under this name: "
            "every record would be mirrored again, so the connector was deleted before it ran",
            hint="give the flow the name, the alias and the Connect cluster that it had; or add --mirror-again",
            connector=name,
        )


async def _carry(client: ConnectClient, name: str, live: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Write `wanted`, whose marks say where the offsets are, and store them where it looks for them; leave it STOPPED."""
    then, behind = wanted[THEN_KEY], left_at(wanted, wanted) or {}
    if THEN_KEY not in live and then != "STOPPED":
        # Before it is stopped: afterwards nobody could tell that it is to run again. Workers that are not exactly-once
        # any more refuse `required`, which would bar the way to at_least_once.
        lenient = {key: value for key, value in live.items() if key != "exactly.once.support"}
        await client.put_config(name, marked(lenient, then))
    await client.stop(name)
    await _until(name, "did not stop", lambda: _is_stopped(client, name))
    if place(live) != behind:  # cut short before: only the config of then finds them
        await _put(client, name, at(behind, wanted))
    offsets = await _stored(client, name)
    await _put(client, name, wanted)
    gone = [entry for key, entry in (await _stored(client, name)).items() if key not in offsets]
    if offsets or gone:  # what a former time left in the topic would hide records that have yet to go
        await client.patch_offsets(name, [*offsets.values(), *(SourceOffset(one.partition, None) for one in gone)])

    async def same() -> bool:
        return await _stored(client, name) == offsets

    await _until(name, "did not store the offsets that were written", same)


async def _finish(client: ConnectClient, name: str, config: Mapping[str, str], then: str) -> None:
    """Bring a connector back to its state before the last mark goes, with a config that finds its offsets."""
    if then != "STOPPED":
        await client.put_config(name, marked(config, then))
        await (client.pause if then == "PAUSED" else client.resume)(name)
    await client.put_config(name, unmarked(config))


async def _resting_state(client: ConnectClient, name: str) -> str:
    """Return the state that it is meant to have: only PAUSED and STOPPED are chosen by people."""
    try:
        state = (await client.status(name)).state
    except NotFound:  # it has not reported yet
        return "RUNNING"
    return state if state in {"PAUSED", "STOPPED"} else "RUNNING"


async def _is_stopped(client: ConnectClient, name: str) -> bool:
    """Tell whether it and all its tasks have stopped: the tasks store their last offsets on the way out."""
    try:
        status = await client.status(name)
    except NotFound:
        return False
    return status.state == "STOPPED" and not status.tasks


async def _put(client: ConnectClient, name: str, config: Mapping[str, str]) -> None:
    """Write a config, and wait until the worker that answers knows it: offsets are read by what that one knows."""
    await client.put_config(name, config)

    async def known() -> bool:
        return await client.config(name) == {"name": name, **config}

    await _until(name, "did not apply its config", known)


async def _stored(client: ConnectClient, name: str) -> dict[str, SourceOffset]:
    return {entry.key: entry for entry in await client.offsets(name) if entry.offset is not None}


async def _until(name: str, otherwise: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not await holds():
        if time.monotonic() > end:
            raise ConnectError(
                f"connector '{name}' {otherwise} within {_WAIT_SECONDS:.0f} s",
                hint="check it with mm2mgr describe, then apply again: it continues where this apply stopped",
                connector=name,
            )
        await asyncio.sleep(_POLL_SECONDS)

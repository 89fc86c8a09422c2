"""Takes a connector's stored offsets along when its config changes where they are stored.

In: a Connect client, the old and the new config. Out: the new config in place, with the same offsets. Connect does not do
it: the lookup in the workers' own topic, meant as a fallback, is hidden by the nulls of an empty topic of the connector's
own (ConnectorOffsetBackingStore.get, KIP-618), so all would be mirrored again; seen on 4.3.1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError, NotFound
from mm2mgr.connect.types import ConnectorStatus

_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.3


def is_moved(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Tell whether a change of config leaves stored offsets behind in another topic."""
    return before.get("offsets.storage.topic", "") != after.get("offsets.storage.topic", "")


async def put_with_offsets(client: Connect, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Stop a connector, change its config, store the offsets it had once more, and let it run on.

    Offsets are exact only while it is STOPPED (KIP-875); needs Kafka 3.6. On failure the old config is put back.
    """
    status = await _status(client, name)
    state = status.state if status else "RUNNING"
    await client.stop(name)
    try:
        await _stopped(client, name)
        offsets = [entry for entry in await client.offsets(name) if entry.offset is not None]
        await client.put_config(name, after)
        if offsets:
            await client.patch_offsets(name, offsets)
    except BaseException:  # Ctrl-C too: running on with the new config would mirror everything again
        await client.put_config(name, before)
        await _back_to(client, name, state)
        raise
    await _back_to(client, name, state)


async def _status(client: Connect, name: str) -> ConnectorStatus | None:
    try:
        return await client.status(name)
    except NotFound:  # it has not reported yet
        return None


async def _back_to(client: Connect, name: str, state: str) -> None:
    if state == "PAUSED":
        await client.pause(name)
    elif state != "STOPPED":
        await client.resume(name)


async def _stopped(client: Connect, name: str) -> None:
    """Wait until it and all its tasks have stopped: the tasks store their last offsets on the way out."""
    end = time.monotonic() + _WAIT_SECONDS
    while (status := await _status(client, name)) is None or status.state != "STOPPED" or status.tasks:
        if time.monotonic() > end:
            raise ConnectError(
                f"connector '{name}' did not stop within {_WAIT_SECONDS:.0f} s",
                hint="its config was left as it was; look at its tasks with mm2mgr describe",
                connector=name,
            )
        await asyncio.sleep(_POLL_SECONDS)

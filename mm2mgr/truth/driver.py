"""Which lines of mm2.properties MirrorMaker's driver gives to the workers of its pairs, and which it reads itself.

Follows MirrorMakerConfig.workerConfig and MirrorMakerConfig.config, which are alike from 2.7 to 4.3 but for its REST
server (3.5).
"""

from __future__ import annotations

_WORKER_PREFIXES = (
    *("offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter"),
    *("task", "worker", "replication.policy", "config.providers"),
)
REST_PREFIXES = ("listeners", "admin.listeners", "rest.", "access.control.", "response.http.headers.")
"""Settings of a dedicated MirrorMaker's REST server, with dedicated.mode.enable.internal.rest (KIP-710, 3.5)."""
PROVIDERS = "config.providers."


def to_worker(key: str) -> bool:
    """Tell whether the driver passes a top-level line to the workers of every pair."""
    return key.startswith(_WORKER_PREFIXES)


def place_of_worker_key(key: str) -> str:
    """Say where a setting of the workers has an effect in mm2.properties."""
    if to_worker(key):
        return (
            f"in mm2.properties, {key} reaches the workers of all pairs, and B.{key} those of the pairs that write to B"
        )
    if key.startswith(REST_PREFIXES):
        return (
            f"in mm2.properties, {key} is a setting of the driver's own REST server "
            "(dedicated.mode.enable.internal.rest, since 3.5)"
        )
    return f"in mm2.properties, B.{key} reaches the workers of the pairs that write to B; {key} alone reaches no worker"

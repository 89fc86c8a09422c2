"""Who reads a key of a connector config, asked of the table as tests ask it: for one key, forced ones left out."""

from __future__ import annotations

from mm2mgr.connectors import ConnectorType
from mm2mgr.truth.reach import Reached, Setting, clients, seen_by


def reached(type_: ConnectorType, key: str, setting: Setting) -> tuple[Reached, ...]:
    """Return every client that reads a key; none if the key has no effect."""
    return tuple(
        hit for client in clients(type_, setting) for hit in seen_by(client, key) if hit.key not in client.forced
    )

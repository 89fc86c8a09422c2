"""The compacted topics that mm2mgr writes, in memory: what is kept is stored at once, and can be looked through."""

from __future__ import annotations

import pytest

from mm2mgr.kafka import compacted
from mm2mgr.kafka.compacted import CompactedTopic

Kept = dict[str, dict[str, str]]
"""Texts by key, by alias of the Kafka cluster."""


def keeping(patch: pytest.MonkeyPatch) -> Kept:
    """Put memory in the place of all such topics."""
    kept: Kept = {}

    class Writer:
        """What TextWriter does, without its thread."""

        def __init__(self, topic: CompactedTopic) -> None:
            self._kept = kept.setdefault(topic.access.alias, {})

        def put(self, key: str, value: str | None) -> None:
            if value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = value

        def close(self) -> None:
            return None

    patch.setattr(compacted, "TextWriter", Writer)
    patch.setattr(CompactedTopic, "exists", lambda topic: topic.access.alias in kept)
    patch.setattr(CompactedTopic, "read", lambda topic: dict(kept.get(topic.access.alias, {})))
    return kept

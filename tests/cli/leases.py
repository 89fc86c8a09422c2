"""A stand-in for the lease; real ones are in tests/live/test_history.py and tests/live/test_watch.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.compacted import CompactedTopic


class FakeLease:
    """A lease that is held unless the Kafka cluster is in `of_others`; Kafka clusters in `dead` do not answer."""

    of_others: ClassVar[set[str]] = set()
    dead: ClassVar[set[str]] = set()
    groups: ClassVar[set[str]] = set()
    closed: ClassVar[list[str]] = []
    notes: ClassVar[list[str]] = []

    def __init__(self, topic: CompactedTopic, group: str, changed: Callable[[], None]) -> None:
        assert topic.name == HISTORY_TOPIC
        self.alias, self.changed = topic.access.alias, changed
        if self.alias in self.dead:
            raise KafkaError(f"{self.alias}: no broker answered")
        self.groups.add(group)
        self.answered = self
        self.refused: KafkaError | None = None

    @classmethod
    def forget(cls) -> None:
        """Begin anew."""
        cls.of_others, cls.dead, cls.groups, cls.closed, cls.notes = set(), set(), set(), [], []

    def wait(self, seconds: float) -> bool:
        return True

    def is_set(self) -> bool:
        return True

    @property
    def is_held(self) -> bool:
        return self.alias not in self.of_others

    def confirm(self, note: str | None = None) -> bool:
        self.notes.append(note or "")
        return self.is_held

    def was_confirmed(self) -> bool:
        return self.is_held

    def close(self) -> None:
        self.closed.append(self.alias)

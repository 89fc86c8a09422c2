"""What a cluster says of its topics, against which the names in metrics are checked and mapped back.

It does no I/O and does not guess: a name that fits two topics is refused, and reported in a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Batch

_NAMED = 5


@dataclass(frozen=True)
class Inventory:
    """The topics of one cluster by name, and which of them are wanted."""

    alias: str
    topics: Mapping[str, TopicInfo]
    accepts: Callable[[str], bool]

    def wanted(self) -> dict[str, TopicInfo]:
        """Return the topics to sample: accepted ones that are not Kafka's own."""
        return {name: info for name, info in self.topics.items() if self.accepts(name) and not info.internal}


@dataclass(frozen=True)
class Gathered:
    """One answer of a source: its samples, and in words everything that a reader of them has to know."""

    batches: list[Batch]
    notes: list[str]


@dataclass
class TopicNames:
    """Maps the topic names of a source back to the cluster's topics.

    Some metric pipelines write `_` for `.`, so `a_b` may mean `a.b`. Where no name of an answer has a dot (`keeps_dots`
    is False), a name that fits two topics is refused.
    """

    inventory: Inventory
    keeps_dots: bool
    ambiguous: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    _flat: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for topic in self.inventory.topics:
            self._flat.setdefault(topic.replace(".", "_"), []).append(topic)

    def topic(self, label: str) -> str | None:
        """Return the topic that a label means; None, remembered, for none or several."""
        exact = [label] if label in self.inventory.topics else []
        fitting = exact if self.keeps_dots else self._flat.get(label, [])
        if len(fitting) == 1:
            return fitting[0]
        if not label.startswith("__"):  # Kafka lists some of its own logs nowhere, such as that of its controllers
            (self.ambiguous if fitting else self.unknown).add(label)
        return None

    def notes(self) -> list[str]:
        """Say which names were refused and which this cluster does not have."""
        notes = []
        for label in sorted(self.ambiguous):
            fitting = " and ".join(sorted(self._flat[label]))
            notes.append(f"“{label}” is refused: with . written as _ it fits {fitting}")
        if self.unknown:
            notes.append(f"{len(self.unknown)} topics in the answer are not this cluster's: {some(self.unknown)}")
        return notes


def coverage(inventory: Inventory, measured: Iterable[tuple[str, int]]) -> list[str]:
    """Say which wanted partitions have no sample; nothing when all have one. Missing is not zero."""
    wanted = inventory.wanted()
    there = {(topic, partition) for topic, partition in measured if topic in wanted}
    total = sum(info.partitions for info in wanted.values())
    if len(there) >= total:
        return []
    per_topic = Counter(topic for topic, _ in there)
    missing = [topic for topic, info in wanted.items() if per_topic[topic] < info.partitions]
    return [f"{len(there)} of {total} partitions answered for; missing (not zero): partitions of {some(missing)}"]


def some(names: Iterable[str]) -> str:
    """List a few names, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more

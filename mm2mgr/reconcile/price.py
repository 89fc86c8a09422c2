"""What a change costs: tasks that restart, partitions that another task gets, records that are mirrored again, what cannot be undone. Pure.

Costly kinds are written only where `--allow KIND`, or `allow: [KIND]` on the flow, says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mm2mgr.assignment import listing_of, partitions_by_task, predict
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.topics.names import Selection

KINDS = {
    "mirror-again": "mirror records a second time that another connector has mirrored",
    "target-names": "mirror topics of a flow that runs under other names on the target from now on",
    "deletes": "delete more connectors than go unasked (10, or 20 % of this owner's)",
}
"""The costly kinds of change; `deletes` belongs to no flow. The flow's `allow` (spec) has the others."""
RECORD_OVERHEAD_BYTES = 10
"""What a record takes in a log besides key, value and headers: lengths, attributes, and deltas of time and offset."""
Assigned = Callable[[str], bool]
_BATCH_BYTES, _BATCH_HEADER_BYTES = 16_384, 61  # Kafka's default batch.size, and what each batch takes


@dataclass(frozen=True)
class Volume:
    """Records, and bytes of them in the target's log; `unmeasured` names what could not be measured, and is not in them."""

    records: int = 0
    size_bytes: int = 0
    unmeasured: tuple[str, ...] = ()

    def __add__(self, other: Volume) -> Volume:
        unmeasured = tuple(dict.fromkeys((*self.unmeasured, *other.unmeasured)))
        return Volume(self.records + other.records, self.size_bytes + other.size_bytes, unmeasured)

    def to_dict(self) -> dict[str, Any]:
        return {"records": self.records, "bytes": self.size_bytes, "unmeasured": list(self.unmeasured)}


@dataclass(frozen=True)
class Price:
    """What one change costs, or several together.

    `restarts` are tasks that run now and start anew; `moved` of `partitions` get another task, None where they could not be
    counted; `again` is what is mirrored a second time; `groups` are consumer groups whose checkpoints start anew, `group_patterns`
    what they match where they could not be read; `irreversible` says what no later plan undoes.
    """

    restarts: int = 0
    moved: int | None = 0
    partitions: int = 0
    again: Volume | None = None
    groups: tuple[str, ...] = ()
    group_patterns: tuple[str, ...] = ()
    irreversible: tuple[str, ...] = ()

    def __add__(self, other: Price) -> Price:
        return Price(
            self.restarts + other.restarts,
            None if self.moved is None or other.moved is None else self.moved + other.moved,
            self.partitions + other.partitions,
            self.again + other.again if self.again and other.again else self.again or other.again,
            tuple(dict.fromkeys((*self.groups, *other.groups))),
            tuple(dict.fromkeys((*self.group_patterns, *other.group_patterns))),
            tuple(dict.fromkeys((*self.irreversible, *other.irreversible))),
        )

    def to_dict(self) -> dict[str, Any] | None:
        """Return JSON-ready values, None for nothing."""
        if self == Price():
            return None
        return {
            "restarts": self.restarts,
            "moved_partitions": self.moved,
            "partitions": self.partitions,
            "again": self.again and self.again.to_dict(),
            "groups": list(self.groups),
            "group_patterns": list(self.group_patterns),
            "irreversible": list(self.irreversible),
        }


@dataclass(frozen=True)
class TopicSizes:
    """Logs of the partitions of some topics, and the mean size of their records (key, value and headers) by topic, where measured.

    Sizes are before compression.
    """

    logs: Mapping[TopicPartition, Offsets]
    record_bytes: Mapping[str, float]


def volume(
    sizes: TopicSizes, topics: Iterable[str], own: Mapping[TopicPartition, int], stored: Mapping[str, float]
) -> Volume:
    """Return what is mirrored of these topics, from the log's start or the offsets that a connector has of its `own`.

    `stored` has what a record takes on the target, where it was measured on what is there; else its log counts as uncompressed.
    """
    records, size, unmeasured = 0, 0.0, []
    for topic in sorted(topics):
        logs = {one: log for one, log in sizes.logs.items() if one.topic == topic}
        count = sum(max(0, log.end - max(log.start, own.get(one, -1) + 1)) for one, log in logs.items())
        mean = sizes.record_bytes.get(topic)
        if not logs or (count and mean is None):
            unmeasured.append(topic)
        records += count
        size += count * (stored.get(topic) or log_bytes(mean)) if mean is not None else 0
    return Volume(records, round(size), tuple(unmeasured))


def log_bytes(record_bytes: float) -> float:
    """Return what a record of this size takes in a log, with its share of the batch's header."""
    whole = record_bytes + RECORD_OVERHEAD_BYTES
    return whole + _BATCH_HEADER_BYTES / max(1.0, _BATCH_BYTES // whole)


def moved(
    listed: Mapping[str, int], before: Assigned | None, after: Assigned | None, tasks: tuple[int, int]
) -> tuple[int, int] | None:
    """Return how many of a connector's partitions get another task, and how many it has; None where its topics are not known.

    `listed` has all topics of the source as its brokers list them, which decides the order; `tasks` are those before and after.
    """
    if before is None or after is None:
        return None
    listing = listing_of({topic: count for topic, count in listed.items() if not topic.startswith("__")})
    was, now = (
        {
            one: task
            for task, its_own in enumerate(partitions_by_task(predict(listing, takes).order, max(count, 1)))
            for one in its_own
        }
        for takes, count in zip((before, after), tasks, strict=True)
    )
    return sum(now.get(one, task) != task for one, task in was.items()), len(was)


def assigned(selection: Selection | None, *, heartbeats: bool) -> Assigned | None:
    """Return which topics a connector assigns to its tasks: those it takes, and heartbeats that come in no circle."""
    if selection is None:
        return None

    def takes(topic: str) -> bool:
        return selection.takes(topic) or (heartbeats and selection.takes_heartbeats(topic))

    return takes


def summed(prices: Iterable[Price]) -> Price:
    """Return the prices together."""
    return sum(prices, Price())

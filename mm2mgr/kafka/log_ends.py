"""Log start and end of many partitions, read repeatedly at the lowest cost.

One blocking call for many partitions instead of an answer object for each takes an eighth of the admin client's processor time.
It never joins a group and never commits; the admin client is used where a broker of the cluster does not answer.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka, TopicInfo
from mm2mgr.kafka.failures import client_settings
from mm2mgr.partitions import TopicPartition

UNKNOWN = -1
_PARTITIONS_PER_CALL = 500  # librdkafka 2.16 searches its list for every answer: 5 000 at once cost four times as much
_NO_GROUP = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never sent: only offsets are asked for
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",  # the high watermark, not the end of the last closed transaction
}


@dataclass(frozen=True)
class Ends:
    """Log start and end per watched partition, in their order, UNKNOWN (-1) where not read; reason → how many of those."""

    start: array[int]
    end: array[int]
    failed: Mapping[str, int]


class LogEnds:
    """A lasting connection to one cluster; `timeout_seconds` bounds every single call."""

    def __init__(self, access: KafkaAccess, timeout_seconds: float = 10.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._kafka = Kafka(access, timeout_seconds)
        limits = {"socket.timeout.ms": max(1000, int(timeout_seconds * 1000))}
        settings, self._failures = client_settings(access, {**_NO_GROUP, **limits})
        self._consumer = confluent_kafka.Consumer(settings)
        self._partitions: Sequence[TopicPartition] = ()
        self._asked: tuple[list[Any], list[Any]] = ([], [])
        self._in_bulk = True

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()

    def topics(self) -> dict[str, TopicInfo]:
        """Return every topic that this login may see; costs far more than `read`."""
        return self._kafka.topics()

    def watch(self, partitions: Sequence[TopicPartition]) -> None:
        """Set what `read` reads."""
        self._partitions = partitions
        sides = (confluent_kafka.OFFSET_BEGINNING, confluent_kafka.OFFSET_END)
        first, last = ([confluent_kafka.TopicPartition(*one, side) for one in partitions] for side in sides)
        self._asked = (first, last)

    def read(self) -> Ends:
        """Read all watched partitions; KafkaError only when none could be read because nothing answered."""
        if not self._partitions:
            return Ends(array("q"), array("q"), {})
        return self._read_in_bulk() if self._in_bulk else self._read_one_by_one()

    def _read_in_bulk(self) -> Ends:
        try:
            first, last = (self._answers(each) for each in self._asked)
        except confluent_kafka.KafkaException:  # one silent broker fails the call for the partitions of all others too
            return self._read_one_by_one()
        failed = Counter(self._failures.cut(one.error.str()) for one in last if one.error)
        both = zip(first, last, strict=True)
        failed.update(self._failures.cut(low.error.str()) for low, high in both if low.error and not high.error)
        # A failed partition keeps the negative number that it was asked with.
        starts, ends = (array("q", [max(one.offset, UNKNOWN) for one in each]) for each in (first, last))
        return Ends(starts, ends, failed)

    def _answers(self, asked: list[Any]) -> list[Any]:
        parts = [asked[at : at + _PARTITIONS_PER_CALL] for at in range(0, len(asked), _PARTITIONS_PER_CALL)]
        return [one for part in parts for one in self._consumer.offsets_for_times(part, timeout=self._timeout_seconds)]

    def _read_one_by_one(self) -> Ends:
        read = self._kafka.read_offsets(self._partitions)
        self._in_bulk = not read.unanswered
        if read.failed and not read.found and read.unanswered:
            raise KafkaError(f"{self._kafka.access.alias}: no partition could be read")
        none = (UNKNOWN, UNKNOWN)
        found = [(o.start, o.end) if (o := read.found.get(one)) else none for one in self._partitions]
        starts, ends = (array("q", side) for side in zip(*found, strict=True))
        return Ends(starts, ends, Counter(read.failed.values()))

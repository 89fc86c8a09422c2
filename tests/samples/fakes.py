"""Sources that do as a test says, without a network."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.kafka.records import Ends
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll


@dataclass
class FakeLogs:
    """A cluster: topics with their ids, and the ends of their logs as a test sets them."""

    infos: dict[str, TopicInfo] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    looks: int = 0
    watched: Sequence[TopicPartition] = ()

    def __call__(self, access: KafkaAccess, timeout_seconds: float) -> FakeLogs:
        return self

    def add(self, topic: str, partitions: int, topic_id: str | None = "id", end: int = 10) -> None:
        self.infos[topic] = TopicInfo(partitions, topic_id, internal=False)
        self.ends.update({TopicPartition(topic, number): end for number in range(partitions)})

    def topics(self) -> dict[str, TopicInfo]:
        self.looks += 1
        return dict(self.infos)

    def watch(self, partitions: Sequence[TopicPartition]) -> None:
        self.watched = partitions

    def read(self) -> Ends:
        ends = array("q", (self.ends.get(one, -1) for one in self.watched))
        unknown = ends.count(-1)
        return Ends(array("q", bytes(8 * len(ends))), ends, {"unknown topic": unknown} if unknown else {})

    def close(self) -> None:
        self.watched = ()


@dataclass
class FakeReader:
    """A source whose answer to poll number n (from 1) is `answer(n)`: an end offset, or a reason to fail."""

    name: str
    answer: Callable[[int], int | str]
    polls: int = 0
    closed: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    clock: Callable[[], int] = lambda: 1_763_719_200_000

    def poll(self) -> Poll:
        self.polls += 1
        found = self.answer(self.polls)
        if isinstance(found, str):
            raise KafkaError(f"{self.name}: {found}")
        time_ms = self.clock() + self.polls
        return Poll([Batch(self.name, "fake", time_ms, ["t"], [0], end_offset=[found])], dict(self.left_out))

    def close(self) -> None:
        self.closed = True

"""Records with ids that keep coming: what a change meets in production, and what shows afterwards whether any was lost or came twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.records import Producer, read
from mm2mgr.partitions import TopicPartition

from .seen import until


class Traffic:
    """Writes numbered records to topics of one partition, in turn, from its own thread: `with Traffic(source, topics) as traffic: …`."""

    def __init__(
        self,
        access: KafkaAccess,
        topics: Iterable[str],
        records_per_second: float = 100.0,
        record_bytes: int = 1,
        timeout_seconds: float = 60.0,
    ) -> None:
        self._topics, self._record_bytes = tuple(topics), record_bytes
        # Twenty times a second at most: with each record in a request of its own, the brokers would do little else.
        self._pause_seconds = max(len(self._topics) / records_per_second, 0.05)
        self._rounds_at_once = round(records_per_second * self._pause_seconds / len(self._topics))
        # Idempotent: a source that is stopped meanwhile has each record once.
        settings = {"message.timeout.ms": round(1000 * timeout_seconds), "enable.idempotence": True, "log_level": 0}
        self._producer = confluent_kafka.Producer({**librdkafka_config(access), **settings})
        self._ended = threading.Event()
        self._lost: list[object] = []
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.rounds = 0
        """So many records are in each topic, with the values 1, 2, …, after zeros up to `record_bytes`"""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0
        assert not self._lost

    def _run(self) -> None:
        while not self._ended.wait(self._pause_seconds):
            for _ in range(self._rounds_at_once):
                value = str(self.rounds + 1).zfill(self._record_bytes).encode()
                for topic in self._topics:
                    self._producer.produce(topic, value, on_delivery=self._note)
                self.rounds += 1
            self._producer.poll(0)

    def _note(self, error: object, _message: object) -> None:
        if error is not None:
            self._lost.append(error)

    def arrived(self, target: KafkaAccess, alias: str, seconds: float = 120.0) -> dict[str, Counter[int]]:
        """Wait until every record is in its mirror, after the end of the traffic; return by topic how often each is there."""
        mirrors = {f"{alias}.{topic}": topic for topic in self._topics}
        wanted = set(range(1, self.rounds + 1))

        def found() -> dict[str, Counter[int]]:
            counts = {topic: Counter[int]() for topic in self._topics}
            for record in read(target, [TopicPartition(mirror, 0) for mirror in mirrors], timeout_seconds=60):
                counts[mirrors[record.topic]][int(record.value or 0)] += 1
            return counts

        return until(found, lambda all_: all(wanted <= one.keys() for one in all_.values()), "records lost", seconds)


Entry = tuple[tuple[str, int], bytes, bytes | None]
"""A partition with the value and the key of a record."""


@contextmanager
def producing(access: KafkaAccess, entries: Callable[[], Iterable[Entry]], every_seconds: float) -> Iterator[None]:
    """Write records again and again without pause, and begin when the first ones were sent."""
    enough, flows = threading.Event(), threading.Event()

    def produce() -> None:
        with Producer(access, timeout_seconds=60) as producer:
            while not enough.wait(every_seconds):
                for partition, value, key in entries():
                    producer.send(partition, value, key=key)
                flows.set()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert flows.wait(60)
        yield
    finally:
        enough.set()
        thread.join()

"""Producers and consumer groups that move from one cluster to another: what each read, by ids in the records' values."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

from .seen import commit_all, is_transient

_READ = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
}


@dataclass
class Traffic:
    """A producer that writes an id a time into topics of one partition until it is ended; `stored` are acknowledged.

    `mark` begins each id.
    """

    access: KafkaAccess
    topics: Sequence[str]
    pause_seconds: float = 0.002
    mark: str = ""
    stored: dict[str, list[str]] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(default_factory=threading.Thread)

    def run(self) -> None:
        producer = confluent_kafka.Producer(
            {**librdkafka_config(self.access), "linger.ms": 5, "message.timeout.ms": 20_000}
        )
        number = 0

        def keep(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                self.stored.setdefault(message.topic() or "", []).append((message.value() or b"").decode())

        while not self._ending.is_set():
            for topic in self.topics:
                producer.produce(topic, f"{self.mark}{topic}-{number}".encode(), partition=0, on_delivery=keep)
            number += 1
            producer.poll(0)
            time.sleep(self.pause_seconds)
        producer.flush(2 if self.pause_seconds < 0 else 20)

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()

    def join(self) -> None:
        """Wait until it has ended, and all is acknowledged that will be."""
        self._thread.join(30)


@contextmanager
def traffic(
    access: KafkaAccess, topics: Sequence[str], pause_seconds: float = 0.002, mark: str = ""
) -> Iterator[Traffic]:
    """Write until the block, or the traffic, is ended."""
    made = Traffic(access, topics, pause_seconds, mark)
    made.start()
    try:
        yield made
    finally:
        made.end()
        made.join()


def consume(
    access: KafkaAccess, group: str, topics: Iterable[str], most: int = 10**9, reset: str = "error"
) -> list[str]:
    """Read as a member of a group from its offsets on, to the ends or `most` records; commit, leave, and return the ids."""
    names, ids, ended = list(topics), list[str](), set[str]()
    consumer = confluent_kafka.Consumer(
        {**librdkafka_config(access), **_READ, "group.id": group, "auto.offset.reset": reset}
    )
    consumer.subscribe(names)
    deadline = time.monotonic() + 60
    offsets = (
        dict.fromkeys(names, 0) if reset == "earliest" else {}
    )  # a topic of which nothing was read yet counts, too
    try:
        while len(ids) < most and ended != set(names):
            assert time.monotonic() < deadline, f"{group} read {len(ids)} records, and not to the ends"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if is_transient(error):
                    continue
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(message.topic() or "")
                continue
            ids.append((message.value() or b"").decode())
            offsets[message.topic() or ""] = (message.offset() or 0) + 1
        places = [confluent_kafka.TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
        if places:
            commit_all(consumer, places)
    finally:
        consumer.close()
    return ids


def missing_and_twice(ids: Iterable[str], read: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the ids that nobody read, and those that were read more than once."""
    counts = Counter(read)
    return [name for name in ids if not counts[name]], [name for name, count in counts.items() if count > 1]

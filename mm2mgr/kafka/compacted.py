"""One compacted topic as a map of texts by key: written by a background thread, read as a whole.

Where no broker listens, writing and reading end within about a second, with a KafkaError.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import confluent_kafka

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Failures, Kafka, client_settings, open_client
from mm2mgr.kafka.records import NO_GROUP, read
from mm2mgr.partitions import TopicPartition

_SECONDS = 5.0
# A broker behind a firewall that drops packets is given up after this, and not after 30 s.
REACH = {"socket.connection.setup.timeout.ms": 3_000}
_GLANCE_SECONDS = 0.5
_CONTROLLER_SECONDS = 1.0
_LOOKER = {**REACH, **NO_GROUP, "allow.auto.create.topics": False}
_PRODUCER = {
    **REACH,
    "acks": "all",
    # A record that is stored twice has the same key, so no right is needed for an idempotent producer.
    "enable.idempotence": False,
    "linger.ms": 5,
    "compression.type": "lz4",
    "message.timeout.ms": int(_SECONDS * 1000),
}


DELETE_TOPIC = (
    "end all processes of mm2mgr, save what `mm2mgr history -o json` prints if it is needed, and delete the topic: it"
    " is made anew with one partition"
)
"""What to do about a topic with several partitions: Kafka never takes partitions away."""


def several_partitions(count: int) -> str:
    """Say what is wrong with a topic of several partitions, as the end of a sentence."""
    return f"has {count} partitions: mm2mgr needs exactly one, which is its lease too"


@dataclass(frozen=True)
class CompactedTopic:
    """A topic of one partition; `configs` and the number of copies are for when it does not exist yet."""

    access: KafkaAccess
    name: str
    replication_factor: int
    configs: Mapping[str, str]

    def read(self) -> dict[str, str]:
        """Return the newest text of each key, the newest last; nothing while the topic does not exist."""
        if not self.exists():
            return {}
        values: dict[str, str] = {}
        for record in read(self.access, [TopicPartition(self.name, 0)], timeout_seconds=_SECONDS):
            key = (record.key or b"").decode("utf-8", "replace")
            values.pop(key, None)
            if record.value is not None:
                values[key] = record.value.decode("utf-8", "replace")
        return values

    def create(self) -> None:
        """Create the topic if it does not exist."""
        if not self.exists():
            with Kafka(self.access, _SECONDS) as kafka:
                kafka.wait_for_controller(_CONTROLLER_SECONDS)
                kafka.create_topics({self.name: (1, self.replication_factor, self.configs)})

    def exists(self) -> bool:
        """Tell whether the topic exists; KafkaError at once where no broker listens, or the login may not see it."""
        return self._partitions() is not None

    def check_partitions(self) -> None:
        """Raise KafkaError for more than one partition: only partition 0 is written and read, and is the lease."""
        if (count := self._partitions() or 1) > 1:
            alias = self.access.alias
            raise KafkaError(f"{alias}: topic {self.name} {several_partitions(count)}", hint=DELETE_TOPIC)

    def _partitions(self) -> int | None:
        doing = f"looking for topic {self.name}"
        # Asked by an admin client, brokers may create the topic.
        consumer, failures = open_client(confluent_kafka.Consumer, self.access, _LOOKER)
        began = timing.now()
        try:
            while True:
                try:
                    topic = consumer.list_topics(self.name, timeout=_GLANCE_SECONDS).topics[self.name]
                except confluent_kafka.KafkaException as error:
                    consumer.poll(0)  # delivers the background error that explains a time-out
                    passed = timing.now() - began
                    if failures.all_down or failures.is_refused or passed > _SECONDS:
                        raise failures.error(error, doing, round(passed, 1)) from error
                    continue
                if topic.error and topic.error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise failures.error(confluent_kafka.KafkaException(topic.error), doing, _SECONDS)
                is_unknown = topic.error and topic.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
                return None if is_unknown else len(topic.partitions)
        finally:
            consumer.close()


class TextWriter:
    """Writes to one compacted topic, which it creates; `put` never waits, `close` says what went wrong."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._queue: queue.SimpleQueue[tuple[str, str | None] | None] = queue.SimpleQueue()
        self._error: KafkaError | None = None
        self._thread = threading.Thread(target=self._run, name=f"writes {topic.name}", daemon=True)
        self._thread.start()

    def put(self, key: str, value: str | None) -> None:
        """Queue a text to be written; None deletes the key."""
        self._queue.put((key, value))

    def close(self) -> KafkaError | None:
        """Wait until all is stored, or is known not to be; return why not."""
        self._queue.put(None)
        self._thread.join(3 * _SECONDS)
        if self._thread.is_alive():
            return KafkaError(f"{self._topic.access.alias}: topic {self._topic.name} could not be written in time")
        return self._error

    def _run(self) -> None:
        try:
            self._topic.create()
            self._write()
        except KafkaError as error:
            self._error = error

    def _write(self) -> None:
        settings, failures = client_settings(self._topic.access, _PRODUCER)
        lost: list[confluent_kafka.KafkaError] = []

        def note_loss(error: confluent_kafka.KafkaError | None, _message: object) -> None:
            if error is not None:
                lost.append(error)

        try:
            producer = confluent_kafka.Producer(settings)
            while (item := self._next(producer)) is not None:
                key, value = item
                producer.produce(
                    self._topic.name, None if value is None else value.encode(), key.encode(), 0, on_delivery=note_loss
                )
            waiting = producer.flush(_SECONDS + 1)
        except (confluent_kafka.KafkaException, BufferError, ValueError) as error:
            raise failures.error(error, f"writing to {self._topic.name}", _SECONDS) from error
        if lost or waiting:
            raise _loss_error(failures, lost, self._topic.name)

    def _next(self, producer: confluent_kafka.Producer) -> tuple[str, str | None] | None:
        """Return what is to be written next, None at the end; what was stored meanwhile is acknowledged."""
        while True:
            producer.poll(0)
            try:
                return self._queue.get(timeout=0.5)
            except queue.Empty:
                continue


def _loss_error(failures: Failures, lost: list[confluent_kafka.KafkaError], topic: str) -> KafkaError:
    if not lost or lost[0].code() == confluent_kafka.KafkaError._MSG_TIMED_OUT:
        return failures.no_answer(_SECONDS)
    return failures.error(confluent_kafka.KafkaException(lost[0]), f"writing to {topic}", _SECONDS)

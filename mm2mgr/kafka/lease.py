"""The right to be the only writer, as a membership of a consumer group: whoever has the one partition of a topic holds it.

A holder that crashes loses it after the session time-out, which the brokers measure: no clocks are compared, and nothing has to be
cleaned up. A newcomer takes nothing from the holder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import confluent_kafka

from mm2mgr.kafka.client import client_settings
from mm2mgr.kafka.compacted import REACH, CompactedTopic

SESSION_SECONDS = 10.0
_HEARTBEAT_SECONDS = 2.0
_POLL_SECONDS = 0.2
_CONFIRM_SECONDS = 5


class Lease:
    """A member of the group from when it is made until `close`; a thread of its own takes part in it.

    `changed` is called from that thread whenever the lease is won or lost. KafkaError where the topic can neither be seen nor made.
    """

    def __init__(self, topic: CompactedTopic, group: str, changed: Callable[[], None] = lambda: None) -> None:
        topic.create()
        self._partition = confluent_kafka.TopicPartition(topic.name, 0)
        self._changed = changed
        self._holds = False
        self.answered = threading.Event()
        """Set once it is known whether this member or another one holds the lease."""
        self._ending = threading.Event()
        self._asked = threading.Event()
        self._confirmed = threading.Event()
        extra = {
            **REACH,
            "group.id": group,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "session.timeout.ms": int(SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": int(_HEARTBEAT_SECONDS * 1000),
            "socket.timeout.ms": _CONFIRM_SECONDS * 1000,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        settings, failures = client_settings(topic.access, extra)
        try:
            self._consumer = confluent_kafka.Consumer(settings)
            self._consumer.subscribe([topic.name], on_assign=self._assign, on_revoke=self._lose, on_lost=self._lose)
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise failures.error(error, f"joining group {group}", 0) from error
        self._thread = threading.Thread(target=self._take_part, name=f"lease {group}", daemon=True)
        self._thread.start()

    @property
    def held(self) -> bool:
        """Tell whether it is held, as far as is known here."""
        return self._holds

    def confirmed(self) -> bool:
        """Ask the brokers whether it is held now: the commit of a member that was replaced meanwhile is refused."""
        if not self._holds:
            return False
        self._confirmed.clear()
        self._asked.set()
        return self._confirmed.wait(2 * _CONFIRM_SECONDS) and self._holds

    def close(self) -> None:
        """Leave the group: the next member has the lease at once."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()
        self._holds = False

    def _take_part(self) -> None:
        while not self._ending.is_set():
            self._consumer.poll(_POLL_SECONDS)
            if self._asked.is_set():
                self._asked.clear()
                self._commit()

    def _commit(self) -> None:
        """Commit something; only here, since a commit of another thread than that which polls never ends."""
        at = confluent_kafka.TopicPartition(self._partition.topic, 0, int(time.time()))
        try:
            self._consumer.commit(offsets=[at], asynchronous=False)
        except confluent_kafka.KafkaException:
            return
        self._confirmed.set()

    def _assign(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # only the membership is wanted
            self._holds = True
        self.answered.set()
        self._changed()

    def _lose(self, _consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if partitions:
            self._holds = False
            self._changed()

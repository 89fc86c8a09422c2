"""The right to be the only writer, as a membership of a consumer group: whoever has partition 0 of a topic holds it.

A holder that crashes loses it after the session time-out, which the brokers measure: no clocks are compared, and
nothing has to be cleaned up. A newcomer takes nothing from the holder. Who holds it can be asked without joining:
`read_holder`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription  # type: ignore[attr-defined]

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka, client_settings
from mm2mgr.kafka.compacted import REACH, CompactedTopic

SESSION_SECONDS = 10.0
_HEARTBEAT_SECONDS = 2.0
_POLL_SECONDS = 0.2
_CONFIRM_SECONDS = 5
_ASK_AGAIN_SECONDS = 0.1
_LONGEST_NOTE = 2_000  # bytes; brokers refuse more than 4 096 (offset.metadata.max.bytes)
_NOT_ALLOWED = {
    confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
    confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class Lease:
    """A member of the group from when it is made until `close`; a thread of its own takes part in it.

    `changed` is called from that thread whenever the lease is won or lost. KafkaError where the topic can neither be
    seen nor made, and where it has several partitions.
    """

    def __init__(self, topic: CompactedTopic, group: str, changed: Callable[[], None] = lambda: None) -> None:
        topic.create()
        topic.check_partitions()
        self._partition = confluent_kafka.TopicPartition(topic.name, 0)
        self._changed = changed
        self._holds = False
        self._note = ""
        self.answered = threading.Event()
        """Set once it is known whether this member or another one holds the lease, or that this one may not take
        part."""
        self.refused: KafkaError | None = None
        """Why the brokers let this member not take part."""
        self._ending = threading.Event()
        self._asked = threading.Event()
        self._replied = threading.Event()
        self._one_asks = threading.Lock()
        self._confirmed_at: float | None = None
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
        settings, self._failures = client_settings(topic.access, extra)
        self._joining = f"joining group {group}"
        try:
            self._consumer = confluent_kafka.Consumer(settings)
            self._consumer.subscribe([topic.name], on_assign=self._assign, on_revoke=self._lose, on_lost=self._expire)
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise self._failures.error(error, self._joining, 0) from error
        self._thread = threading.Thread(target=self._take_part, name=f"lease {group}", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> bool:
        """Tell whether it is held, as far as is known here."""
        return self._holds

    def confirm(self, note: str | None = None) -> bool:
        """Ask the brokers whether it is held now: the commit of a member that was replaced meanwhile is refused.

        `note` says for others who holds it, and for what; `read_holder` returns it. None: as before.
        """
        with self._one_asks:
            if not self._holds:
                return False
            self._note = self._note if note is None else note
            self._replied.clear()
            self._asked.set()
            return timing.wait(self._replied, 2 * _CONFIRM_SECONDS) and self._holds and self.refused is None

    def was_confirmed(self) -> bool:
        """Tell whether it was confirmed so short a time ago that no other member can have it yet."""
        at = self._confirmed_at
        return self._holds and at is not None and timing.steady() - at < SESSION_SECONDS / 2

    def close(self) -> None:
        """Leave the group: the next member has the lease at once."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()
        self._holds = False

    def _take_part(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(_POLL_SECONDS)
            if message is not None and (error := message.error()):
                self._note_refusal(error)
            if self._asked.is_set() and (not self._holds or self._commit()):
                self._asked.clear()
                self._replied.set()

    def _note_refusal(self, error: confluent_kafka.KafkaError) -> bool:
        """Note that this login may not take part, if brokers say so; then all that waits for an answer goes on."""
        if error.code() not in _NOT_ALLOWED:
            return False
        self.refused = self._failures.error(confluent_kafka.KafkaException(error), self._joining, 0)
        self.answered.set()
        return True

    def _commit(self) -> bool:
        """Commit something; only here, since a commit of another thread than that which polls never ends.

        Returns whether that was answered for good: in a rebalance, or while another broker becomes the coordinator, it
        is asked again.
        """
        began = timing.steady()
        # Behind the member's id, so that the note of a former holder is never taken for that of this one.
        note = f"{self._consumer.memberid()} {self._note}"[:_LONGEST_NOTE]
        at = confluent_kafka.TopicPartition(self._partition.topic, 0, int(time.time()), note)
        try:
            self._consumer.commit(offsets=[at], asynchronous=False)
        except confluent_kafka.KafkaException as error:
            return self._note_refusal(error.args[0])
        self._confirmed_at = began
        return True

    def _assign(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # only the membership is wanted
        if self._is_among(partitions):
            self._holds = True
        self.answered.set()
        self._changed()

    def _lose(self, _consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if self._is_among(partitions):
            self._holds, self._confirmed_at = False, None
            self._changed()

    def _expire(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Lose it because brokers were silent: who has it is not known until they answer again."""
        self.answered.clear()
        self._lose(consumer, partitions)

    def _is_among(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> bool:
        """Tell whether partition 0 is one of them: any other one, of a topic that somebody enlarged, gives no right."""
        return any(partition.partition == self._partition.partition for partition in partitions)


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease: where it runs, as its brokers see it, and its note."""

    host: str
    note: str


def read_holder(access: KafkaAccess, topic: str, group: str, timeout_seconds: float = 1.0) -> Holder | None:
    """Return who holds, or is about to take, the lease, without joining its group; KafkaError where that fails."""
    with Kafka(access, timeout_seconds) as kafka:
        kafka.limit_time(timeout_seconds)
        with kafka.doing(f"describing group {group}"):
            described = _describe(kafka, group)
            if described is None:
                return None
            holder = _holder(described, topic)
            if holder is None:
                return None
            request = ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
            (asked,) = kafka.admin.list_consumer_group_offsets([request], request_timeout=kafka.seconds_left()).values()
            (stored,) = kafka.result(asked).topic_partitions
    member, _, note = (stored.metadata or "").partition(" ")
    return Holder(holder.host.lstrip("/"), note if member == holder.member_id else "")


_COORDINATOR_COMES = {
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What a broker says of a group while it, or another one, is about to coordinate it."""


def _describe(kafka: Kafka, group: str) -> Any:
    """Return the description of a group, None where there is none; asked again while its coordinator changes."""
    while True:
        (asked,) = kafka.admin.describe_consumer_groups([group], request_timeout=kafka.seconds_left()).values()
        try:
            return kafka.first_answer(asked, while_down=False)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            if code == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND:
                return None
            if code not in _COORDINATOR_COMES or kafka.seconds_left() < _ASK_AGAIN_SECONDS:
                raise
        timing.sleep(_ASK_AGAIN_SECONDS)


def _holder(group: ConsumerGroupDescription, topic: str) -> MemberDescription | None:
    """Return the member that has partition 0; while a group rebalances nobody knows which one, and any of them may."""
    if group.state != ConsumerGroupState.STABLE:
        return next(iter(group.members), None)
    having = (member for member in group.members if member.assignment)
    return next(
        (
            member
            for member in having
            if any((p.topic, p.partition) == (topic, 0) for p in member.assignment.topic_partitions)
        ),
        None,
    )

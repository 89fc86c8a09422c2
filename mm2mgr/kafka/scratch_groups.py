"""Consumer groups that exist for a moment, on one cluster: their offsets written, records read as a member, deletion.

Whoever calls it names the groups, and answers for their being no group of an application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any

from mm2mgr import timing
from mm2mgr.kafka.groups import RecordMark, record_mark
from mm2mgr.partitions import TopicPartition

if TYPE_CHECKING:
    from mm2mgr.kafka.access import KafkaAccess
    from mm2mgr.kafka.client import Kafka

SESSION_SECONDS = 10.0
"""For so long brokers count a killed member as one: its group cannot be deleted before."""
_GROUPS_AT_ONCE = 200
_WAIT_SECONDS = 0.5
_POLL_SECONDS = 0.2
_BATCH = 500
_FETCH_BYTES = 262_144
_CALL_SECONDS = 30.0


@dataclass(frozen=True)
class GroupRead:
    """What a member of a group read from the offsets that are committed for it.

    `first_seconds`: from before the client was made until it had a record, or the end of a log where none follows
    (None: neither came). `ended`: partitions whose end was reached. `faults`: why a partition could not be read.
    """

    marks: Mapping[TopicPartition, tuple[RecordMark, ...]] = field(default_factory=dict)
    ended: frozenset[TopicPartition] = frozenset()
    faults: Mapping[TopicPartition, str] = field(default_factory=dict)
    first_seconds: float | None = None
    seconds: float = 0.0
    failure: str = ""


def write_offsets(
    access: KafkaAccess, offsets: Mapping[str, Mapping[TopicPartition, int]], timeout_seconds: float = _CALL_SECONDS
) -> dict[str, str]:
    """Commit the offsets of groups without members, many requests on their way at a time; return by group why it could
    not be written, in the brokers' words.

    KafkaError where no broker answers.
    """
    import confluent_kafka
    from confluent_kafka import ConsumerGroupTopicPartitions

    from mm2mgr.kafka.client import Kafka, batches

    failed: dict[str, str] = {}
    with Kafka(access, timeout_seconds) as kafka:
        for names in batches(list(offsets), _GROUPS_AT_ONCE):
            with kafka.doing("writing group offsets"):
                asked = {
                    name: kafka.admin.alter_consumer_group_offsets(
                        [
                            ConsumerGroupTopicPartitions(
                                name,
                                [confluent_kafka.TopicPartition(*place, at) for place, at in offsets[name].items()],
                            )
                        ],
                        request_timeout=kafka.seconds_left(),
                    )[name]
                    for name in names
                }
                for name, future in asked.items():
                    reason = _refusal(kafka, future)
                    if reason:
                        failed[name] = reason
    return failed


def _refusal(kafka: Kafka, future: Any) -> str:
    import confluent_kafka

    try:
        answer = kafka.result(future)
    except confluent_kafka.KafkaException as error:
        kafka.unless_refused(future)  # raises silence
        return kafka.failures.cut(error.args[0].str())
    errors = [position for position in answer.topic_partitions or [] if position.error]
    return f"{errors[0].topic}-{errors[0].partition}: {errors[0].error.str()}" if errors else ""


def delete_groups(access: KafkaAccess, names: Sequence[str], limit_seconds: float) -> dict[str, str]:
    """Delete groups, those that still have a member again and again; return why a group is still there. A group that
    does not exist counts as deleted.

    KafkaError where no broker answers.
    """
    from mm2mgr.kafka.client import Kafka

    deadline, left = timing.now() + limit_seconds, list(names)
    with Kafka(access, _CALL_SECONDS) as kafka:
        while True:
            failed = _delete_once(kafka, left)
            left = [name for name, (_, is_lasting) in failed.items() if not is_lasting]
            if not left or timing.now() >= deadline:
                return {name: reason for name, (reason, _) in failed.items()}
            timing.sleep(_WAIT_SECONDS)


def _delete_once(kafka: Kafka, names: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Return why groups could not be deleted, and whether trying again is of no use."""
    import confluent_kafka

    from mm2mgr.kafka.client import batches

    codes = confluent_kafka.KafkaError
    failed: dict[str, tuple[str, bool]] = {}
    for some in batches(list(names), _GROUPS_AT_ONCE):
        with kafka.doing("deleting groups"):
            asked = kafka.admin.delete_consumer_groups(some, request_timeout=kafka.seconds_left())
            for name, future in asked.items():
                try:
                    kafka.result(future)
                except confluent_kafka.KafkaException as error:
                    code = error.args[0].code()
                    if code == codes.GROUP_ID_NOT_FOUND:
                        continue
                    kafka.unless_refused(future)  # raises silence
                    waits = code in {codes.NON_EMPTY_GROUP, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_COORDINATOR}
                    failed[name] = kafka.failures.cut(error.args[0].str()), not waits
    return failed


def read_as_member(
    access: KafkaAccess, group: str, most: Mapping[TopicPartition, int], limit_seconds: float, stop: Event
) -> GroupRead:
    """Join a group, and read at most so many records of each partition from what is committed for it there.

    Nothing is committed. Records of aborted transactions count, as MirrorMaker mirrors them. It ends early once `stop`
    is set. No failure raises.
    """
    import confluent_kafka

    from mm2mgr.errors import KafkaError
    from mm2mgr.kafka.client import open_client

    began = timing.now()
    codes = confluent_kafka.KafkaError
    final = {codes.GROUP_AUTHORIZATION_FAILED, codes.INVALID_SESSION_TIMEOUT, codes.INCONSISTENT_GROUP_PROTOCOL}
    reader = _Reader(dict(most), began, frozenset(final))
    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",  # what is committed counts, and nothing else
        "isolation.level": "read_uncommitted",
        "session.timeout.ms": int(SESSION_SECONDS * 1000),
        "fetch.message.max.bytes": _FETCH_BYTES,
        "queued.max.messages.kbytes": 8_192,
    }
    try:
        consumer, failures = open_client(confluent_kafka.Consumer, access, settings)
    except KafkaError as error:
        return GroupRead(failure=error.one_line)
    try:
        consumer.subscribe(
            sorted({partition.topic for partition in most}),
            on_assign=lambda member, _: member.assign([confluent_kafka.TopicPartition(*place) for place in most]),
        )
        while reader.waiting and not stop.is_set() and (left := began + limit_seconds - timing.now()) > 0:
            for message in consumer.consume(_BATCH, timeout=min(left, _POLL_SECONDS)):
                reader.take(message)
            if reader.failure:
                break
        late = "" if not reader.waiting or reader.failure or stop.is_set() else f"not read within {limit_seconds:g} s"
        if late and failures.last is not None:
            late = f"{late} ({failures.cut(failures.last.str())})"
        return reader.result(late)
    except confluent_kafka.KafkaException as error:
        return reader.result(failures.error(error, f"reading as group {group}", limit_seconds).one_line)
    finally:
        consumer.close()


@dataclass
class _Reader:
    """What has come of each partition so far."""

    most: dict[TopicPartition, int]
    began: float
    final_codes: frozenset[int]
    """Errors of the group after which waiting is of no use; others pass."""
    marks: dict[TopicPartition, list[RecordMark]] = field(default_factory=dict)
    ended: set[TopicPartition] = field(default_factory=set)
    faults: dict[TopicPartition, str] = field(default_factory=dict)
    first_seconds: float | None = None
    failure: str = ""

    def __post_init__(self) -> None:
        self.waiting = set(self.most)

    def take(self, message: Any) -> None:
        from mm2mgr.kafka.records import fault_of, partition_of

        fault = fault_of(message)
        if message.topic() is None:
            self.failure = fault.str() if fault and fault.code() in self.final_codes else self.failure
            return
        partition = partition_of(message)
        if partition not in self.waiting:
            return
        if fault:
            self.faults[partition] = fault.str()
            self.waiting.discard(partition)
            return
        if self.first_seconds is None:
            self.first_seconds = timing.now() - self.began
        if message.error() is not None:
            self.ended.add(partition)
        else:
            self.marks.setdefault(partition, []).append(record_mark(message))
        if partition in self.ended or len(self.marks[partition]) >= self.most[partition]:
            self.waiting.discard(partition)

    def result(self, failure: str) -> GroupRead:
        return GroupRead(
            {partition: tuple(marks) for partition, marks in self.marks.items()},
            frozenset(self.ended),
            {**self.faults, **dict.fromkeys(self.waiting, failure or "not read")},
            self.first_seconds,
            timing.now() - self.began,
            self.failure or failure,
        )

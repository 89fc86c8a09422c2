"""Consumer groups of one cluster: which there are, whether they have members, what they committed; and single records
by their digests. Nothing is joined; `alter_group_offsets` is all that writes.

The client is loaded when something is asked: these values are used without it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mm2mgr import timing
from mm2mgr.partitions import TopicPartition

if TYPE_CHECKING:
    from mm2mgr.kafka.access import KafkaAccess
    from mm2mgr.kafka.client import Kafka

_GROUPS_AT_ONCE = 200
_PARTITIONS_AT_ONCE = 2_000
_WITHOUT_MEMBERS = frozenset({"", "EMPTY", "DEAD"})


@dataclass(frozen=True)
class GroupState:
    """A consumer group as brokers list it: its state, such as STABLE or EMPTY ("": brokers before 2.6 do not tell), and
    whether offsets were committed for it by hand, without a member (`is_simple`).
    """

    state: str = ""
    is_simple: bool = False

    @property
    def has_members(self) -> bool:
        """Whether it has members now, as far as brokers tell."""
        return self.state not in _WITHOUT_MEMBERS


@dataclass(frozen=True)
class GroupOffsets:
    """The next offset that each group reads, by partition; `refused`: groups that this login may not read."""

    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def group_states(kafka: Kafka) -> dict[str, GroupState]:
    """Return the consumer groups that this login may see: all with Describe on the cluster, else those that it may
    describe. KafkaError also where a single broker did not list its groups."""
    with kafka.doing("listing consumer groups"):
        asked = kafka.admin.list_consumer_groups(request_timeout=kafka.seconds_left())
        listed = kafka.first_answer(asked, while_down=False)
        if listed.errors:
            raise listed.errors[0]
    return {
        group.group_id: GroupState(
            "" if group.state.name == "UNKNOWN" else group.state.name, bool(group.is_simple_consumer_group)
        )
        for group in listed.valid
    }


def member_counts(kafka: Kafka, groups: Sequence[str]) -> dict[str, int]:
    """Return how many members each group has now; those that this login may not describe are left out."""
    from mm2mgr.kafka.client import batches

    counts: dict[str, int] = {}
    for names in batches(groups, _GROUPS_AT_ONCE):
        with kafka.doing("describing consumer groups"):
            asked = kafka.admin.describe_consumer_groups(list(names), request_timeout=kafka.seconds_left())
            for group, future in asked.items():
                description = kafka.unless_refused(future)
                if description is not None:
                    counts[group] = len(description.members)
    return counts


def group_offsets(kafka: Kafka, groups: Sequence[str]) -> GroupOffsets:
    """Return the offsets of groups: many requests on their way at a time, a group with all its partitions in one.

    Brokers leave out partitions of topics that this login may not describe.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions

    from mm2mgr.kafka.client import batches

    offsets: dict[str, dict[TopicPartition, int]] = {}
    refused: list[str] = []
    for names in batches(groups, _GROUPS_AT_ONCE):
        with kafka.doing("reading group offsets"):
            asked = {
                group: kafka.admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group)], request_timeout=kafka.seconds_left()
                )[group]
                for group in names
            }
            for group, future in asked.items():
                answer = kafka.unless_refused(future)
                if answer is None:
                    refused.append(group)
                    continue
                offsets[group] = {
                    TopicPartition(position.topic, position.partition): position.offset
                    for position in answer.topic_partitions or []
                    if position.offset >= 0
                }
    return GroupOffsets(offsets, tuple(refused))


_JOINED = "has members now"
_SLOW_SECONDS = 30.0


def alter_group_offsets(
    kafka: Kafka, offsets: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[str, tuple[str, bool]]:
    """Set the next offsets that groups read (KIP-396); brokers refuse a group that has members.

    Returns why not, for each group that was refused in whole or in part, and whether a right is missing (Read on the
    group and its topics). Many requests are on their way at a time.
    """
    import confluent_kafka

    from mm2mgr.kafka.client import batches

    refused: dict[str, tuple[str, bool]] = {}
    for names in batches(list(offsets), _GROUPS_AT_ONCE):
        with kafka.doing("writing group offsets"):
            asked = {
                group: kafka.admin.alter_consumer_group_offsets(
                    [
                        confluent_kafka.ConsumerGroupTopicPartitions(
                            group, [confluent_kafka.TopicPartition(*place, at) for place, at in offsets[group].items()]
                        )
                    ],
                    request_timeout=min(_SLOW_SECONDS, kafka.seconds_left()),
                )[group]
                for group in names
            }
            for group, future in asked.items():
                try:
                    errors = [place.error for place in kafka.result(future).topic_partitions or [] if place.error]
                except confluent_kafka.KafkaException as error:
                    errors = [error.args[0]]
                if errors:
                    refused[group] = _refusal(kafka, errors[0])
    return refused


def _refusal(kafka: Kafka, error: Any) -> tuple[str, bool]:
    import confluent_kafka

    codes = confluent_kafka.KafkaError
    if error.code() in {codes.UNKNOWN_MEMBER_ID, codes.NON_EMPTY_GROUP, codes.REBALANCE_IN_PROGRESS}:
        return _JOINED, False
    missing = error.code() in {codes.GROUP_AUTHORIZATION_FAILED, codes.TOPIC_AUTHORIZATION_FAILED}
    return kafka.failures.cut(error.str()), missing


# --- single records ---------------------------------------------------------------------------------------------------


class RecordMark(NamedTuple):
    """What tells a record from others: its offset, digests of key and value ("" for null), and its timestamp in
    milliseconds since 1970 (-1: none)."""

    offset: int
    key: str
    value: str
    timestamp_ms: int

    def is_copy_of(self, other: RecordMark) -> bool:
        """Tell whether both are the same record, at whatever offsets."""
        return self[1:] == other[1:]


class RecordPlace(NamedTuple):
    """At most so many records, from an offset of a partition on, before the offset `end`."""

    partition: TopicPartition
    offset: int
    most: int
    end: int


def record_marks(
    access: KafkaAccess, places: Sequence[RecordPlace], limit_seconds: float = 10.0
) -> dict[RecordPlace, tuple[RecordMark, ...]]:
    """Return the records at each place, those of aborted transactions too, as MirrorMaker reads them by default.

    A place is absent whose records did not come in time. Values are never kept, only their digests.
    """
    marks: dict[RecordPlace, tuple[RecordMark, ...]] = {}
    deadline, waiting = timing.now() + limit_seconds, list(dict.fromkeys(places))
    while waiting and timing.now() < deadline:
        # A consumer reads a partition at one place at a time.
        first = {place.partition: place for place in reversed(waiting)}
        turn = dict(islice(first.items(), _PARTITIONS_AT_ONCE))
        waiting = [place for place in waiting if turn.get(place.partition) is not place]
        marks |= _read_turn(access, turn, deadline)
    return marks


def _read_turn(
    access: KafkaAccess, turn: Mapping[TopicPartition, RecordPlace], deadline: float
) -> dict[RecordPlace, tuple[RecordMark, ...]]:
    from mm2mgr.kafka.records import consuming, fault_of, partition_of

    marks: dict[RecordPlace, tuple[RecordMark, ...]] = {}
    begun: dict[TopicPartition, list[RecordMark]] = {partition: [] for partition in turn}
    starts = {partition: place.offset for partition, place in turn.items()}
    with consuming(access, starts, {"isolation.level": "read_uncommitted"}) as (consume, _):
        while begun and (left := deadline - timing.now()) > 0:
            for message in consume(left):
                partition = partition_of(message)
                if partition not in begun:
                    continue
                place, read = turn[partition], begun[partition]
                if fault_of(message):
                    del begun[partition]
                    continue
                is_record = message.error() is None and message.offset() < place.end
                if is_record and message.offset() >= place.offset:
                    read.append(record_mark(message))
                if not is_record or len(read) >= place.most or message.offset() + 1 >= place.end:
                    marks[place] = tuple(read)
                    del begun[partition]
    return marks


def record_mark(message: Any) -> RecordMark:
    """Return what tells a record that was consumed from others."""
    _, stamp = message.timestamp()  # negative without a time
    return RecordMark(message.offset(), _digest(message.key()), _digest(message.value()), max(-1, stamp))


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.blake2s(data, digest_size=12).hexdigest()

"""Reads where a place is in the logs of one Kafka cluster. Blocks, and raises KafkaError."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.log_places import AtTime, LogPosition, LogPositions, OfGroup, Place, time_text
from mm2mgr.partitions import Offsets, TopicPartition

if TYPE_CHECKING:
    from mm2mgr.kafka.client import Kafka


def read_positions(
    kafka: Kafka, place: Place, partitions: Sequence[TopicPartition], *, committed: bool
) -> LogPositions:
    """Return where a place is in the logs of these partitions, with their starts and ends."""
    if isinstance(place, AtTime) and place.resolve(now := time.time()) > 1000 * now:
        # Kafka would answer with the end of each log, and what is written until then would be mirrored, too.
        raise KafkaError(
            f"{time_text(place.resolve(now))} is in the future: which record is the first one of it is not known yet",
            hint="correct the time, or its zone (UTC where it names none); or write latest for the ends of the logs",
        )
    logs = kafka.read_offsets(partitions, committed=committed).found
    if isinstance(place, AtTime):
        return LogPositions(_at_time(kafka, logs, place.resolve(time.time())))
    if isinstance(place, OfGroup):
        return _of_group(kafka, logs, place.group)
    if isinstance(place, int):
        return LogPositions({partition: LogPosition(log, place) for partition, log in logs.items()})
    return LogPositions({p: LogPosition(log, log.end if place == "latest" else log.start) for p, log in logs.items()})


def _at_time(kafka: Kafka, logs: Mapping[TopicPartition, Offsets], time_ms: int) -> dict[TopicPartition, LogPosition]:
    """Return the first offsets at or after a time. Where there is none, that is the end that was read before: what
    arrives between the two looks may well have a later timestamp."""
    since = kafka.offsets_since(dict.fromkeys(logs, time_ms))
    return {
        partition: LogPosition(log, min(since[partition], log.end) if since[partition] >= 0 else log.end)
        for partition, log in logs.items()
        if partition in since
    }


def _of_group(kafka: Kafka, logs: Mapping[TopicPartition, Offsets], group: str) -> LogPositions:
    from mm2mgr.kafka.inspection import committed_offsets, group_members

    committed = committed_offsets(kafka, [group]).get(group)
    if committed is None:
        raise KafkaError(
            f"{kafka.access.alias}: the offsets of group '{group}' may not be read",
            hint=f"give mm2mgr's login Describe on group '{group}' there",
        )
    members: int | None = None
    with suppress(Mm2mgrError):
        members = group_members(kafka, group)
    return LogPositions(
        {partition: LogPosition(log, committed.get(partition)) for partition, log in logs.items()}, members
    )

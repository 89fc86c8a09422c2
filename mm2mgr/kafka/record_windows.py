"""A few records at given places of many partitions, within limits of bytes and time. Reading blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from mm2mgr import timing
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import Message, ReadLimits, consuming, fault_of, partition_of
from mm2mgr.partitions import Offsets, TopicPartition

_PARTITIONS_AT_ONCE = 200
_BATCH_BYTES = 65_536  # of each partition, a batch comes whole and few records of it are wanted

TakeRecord: TypeAlias = Callable[[Message], None]
Refusal: TypeAlias = Callable[[TopicPartition, str], None]


def read_windows(
    access: KafkaAccess,
    rounds: Sequence[Mapping[TopicPartition, Offsets]],
    limits: ReadLimits,
    take: TakeRecord,
    refuse: Refusal,
) -> None:
    """Give `take` the records between the offsets of partitions, one round after the other, those of open transactions
    too; and `refuse` the partitions that cannot be read, with the reason.

    Reading ends without a word at the limits of bytes (of keys and values) and seconds over all rounds; so many records
    per partition as a window holds.
    """
    deadline, left_bytes = timing.now() + limits.limit_seconds, limits.limit_bytes
    for windows in rounds:
        partitions = list(windows)
        for at in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            turn = {partition: windows[partition] for partition in partitions[at : at + _PARTITIONS_AT_ONCE]}
            if timing.now() >= deadline or left_bytes <= 0:
                return
            left_bytes = _read_turn(access, turn, (deadline, left_bytes), (take, refuse))


def _read_turn(
    access: KafkaAccess,
    windows: dict[TopicPartition, Offsets],
    bounds: tuple[float, int],
    results: tuple[TakeRecord, Refusal],
) -> int:
    """Read these windows; return how many bytes are left."""
    deadline, left_bytes = bounds
    take, refuse = results
    starts = {partition: window.start for partition, window in windows.items()}
    limits = {"fetch.message.max.bytes": _BATCH_BYTES, "isolation.level": "read_uncommitted"}
    with consuming(access, starts, limits) as (consume, _):
        while windows and left_bytes > 0 and (left := deadline - timing.now()) > 0:
            for message in consume(left):
                partition = partition_of(message)
                window = windows.get(partition)
                if window is None:
                    continue
                if fault := fault_of(message):
                    refuse(partition, fault.str())
                    del windows[partition]
                    continue
                is_record = message.error() is None and message.offset() < window.end
                if is_record:
                    take(message)
                    left_bytes -= len(message.key() or b"") + len(message.value() or b"")
                if not is_record or message.offset() + 1 >= window.end:
                    del windows[partition]
    return left_bytes

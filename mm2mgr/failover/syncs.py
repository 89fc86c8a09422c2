"""Records of MirrorMaker's internal topics, offset syncs and checkpoints, from their bytes.

Sources: OffsetSync, Checkpoint, CheckpointStore, MirrorClient.remoteConsumerOffsets (KIP-382, KIP-545); releases 2.7 to
4.3 write the same bytes. MirrorMaker reads and writes partition 0 of these topics only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from mm2mgr.partitions import TopicPartition

_CHECKPOINT_VERSION = 0  # no release has another


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record of the source partition has offset `upstream` there, and its copy `downstream` on the target."""

    partition: TopicPartition
    upstream: int
    downstream: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's next offset in a partition, by its name on the target: `upstream` on the source, `downstream` there.

    `metadata` is what the group committed with it.
    """

    group: str
    partition: TopicPartition
    upstream: int
    downstream: int
    metadata: str


def parse_offset_sync(key: bytes, value: bytes | None) -> OffsetSync | None:
    """Return the offset sync of a record, None for a tombstone; ValueError for bytes of another shape."""
    return _sync(_parse_sync_key(key), value)


def parse_checkpoint(key: bytes, value: bytes | None) -> Checkpoint | None:
    """Return the checkpoint of a record, None for a tombstone; ValueError for bytes of another shape."""
    return _checkpoint(*_parse_checkpoint_key(key), value)


def _sync(partition: TopicPartition, value: bytes | None) -> OffsetSync | None:
    if value is None:
        return None
    upstream, downstream = _numbers(_OFFSETS, value)
    return OffsetSync(partition, upstream, downstream)


def _checkpoint(group: str, partition: TopicPartition, value: bytes | None) -> Checkpoint | None:
    if value is None:
        return None
    offsets = _VERSIONED_OFFSETS.size
    version, upstream, downstream = _numbers(_VERSIONED_OFFSETS, value[:offsets])
    if version != _CHECKPOINT_VERSION:
        raise ValueError(f"a checkpoint of version {version}; MirrorMaker 2.7 to 4.3 writes {_CHECKPOINT_VERSION}")
    metadata, rest = _text(value[offsets:])
    _check_end(rest)
    return Checkpoint(group, partition, upstream, downstream, metadata)


def _parse_sync_key(key: bytes) -> TopicPartition:
    topic, rest = _text(key)
    return TopicPartition(topic, *_numbers(_PARTITION, rest))


def _parse_checkpoint_key(key: bytes) -> tuple[str, TopicPartition]:
    group, rest = _text(key)
    return group, _parse_sync_key(rest)


# Fields as org.apache.kafka.common.protocol.types.Type writes them: INT16, INT32, INT64, and STRING.
_PARTITION, _LENGTH = struct.Struct(">i"), struct.Struct(">h")
_OFFSETS, _VERSIONED_OFFSETS = struct.Struct(">qq"), struct.Struct(">hqq")


def _numbers(layout: struct.Struct, data: bytes) -> tuple[int, ...]:
    if len(data) != layout.size:
        raise ValueError(f"{len(data)} bytes where its fields have {layout.size}")
    return layout.unpack(data)


def _text(data: bytes) -> tuple[str, bytes]:
    """Return a text, with its length in bytes before it, and what follows it."""
    (length,) = _numbers(_LENGTH, data[: _LENGTH.size])
    end = _LENGTH.size + length
    if not _LENGTH.size <= end <= len(data):
        raise ValueError(f"a text of {length} bytes in {len(data)}")
    return data[_LENGTH.size : end].decode(), data[end:]  # a UnicodeDecodeError is a ValueError


def _check_end(rest: bytes) -> None:
    if rest:
        raise ValueError(f"{len(rest)} bytes more than its fields have")


# --- whole topics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InternalRecord:
    """A record of an internal topic as read; `written_at` is its timestamp in seconds since 1970."""

    key: bytes | None
    value: bytes | None
    written_at: float


@dataclass(frozen=True)
class OffsetSyncLog:
    """The offset syncs of a topic by source partition, in the order of its log: compaction keeps the newest, and older
    ones only for a while.

    `written_at`: when the newest was written (seconds since 1970). `unreadable`: records that are no offset syncs.
    """

    by_partition: dict[TopicPartition, tuple[OffsetSync, ...]] = field(default_factory=dict)
    written_at: float | None = None
    unreadable: int = 0


@dataclass(frozen=True)
class CheckpointLog:
    """The newest checkpoint of each group and partition, with the time it was written (seconds since 1970).

    `unreadable`: records that are no checkpoints.
    """

    newest: dict[Checkpoint, float] = field(default_factory=dict)
    unreadable: int = 0


def collect_offset_syncs(records: Iterable[InternalRecord]) -> OffsetSyncLog:
    """Return the offset syncs among the records of a topic; a tombstone removes those before it."""
    by_partition: dict[TopicPartition, list[OffsetSync]] = {}
    partitions: dict[bytes, TopicPartition] = {}  # of a million records, a few keys
    written_at: float | None = None
    unreadable = 0
    for record in records:
        key = record.key or b""
        try:
            partition = partitions.get(key) or partitions.setdefault(key, _parse_sync_key(key))
            sync = _sync(partition, record.value)
        except ValueError:
            unreadable += 1
            continue
        if sync is None:
            by_partition.pop(partition, None)
            continue
        by_partition.setdefault(partition, []).append(sync)
        written_at = max(record.written_at, written_at or record.written_at)
    return OffsetSyncLog({partition: tuple(syncs) for partition, syncs in by_partition.items()}, written_at, unreadable)


def collect_checkpoints(records: Iterable[InternalRecord]) -> CheckpointLog:
    """Return the newest checkpoint of each group and partition, as RemoteClusterUtils.translateOffsets has them.

    Records that are no checkpoints are passed over, as there; a tombstone, which no release writes, removes one.
    """
    newest: dict[bytes, tuple[Checkpoint, float]] = {}
    names: dict[bytes, tuple[str, TopicPartition]] = {}
    unreadable = 0
    for record in records:
        key = record.key or b""
        try:
            group, partition = names.get(key) or names.setdefault(key, _parse_checkpoint_key(key))
            checkpoint = _checkpoint(group, partition, record.value)
        except ValueError:
            unreadable += 1
            continue
        if checkpoint is None:
            newest.pop(key, None)
        else:
            newest[key] = checkpoint, record.written_at
    return CheckpointLog(dict(newest.values()), unreadable)

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
    partition = _parse_sync_key(key)
    if value is None:
        return None
    fields = _Fields(value)
    sync = OffsetSync(partition, fields.int64(), fields.int64())
    fields.end()
    return sync


def parse_checkpoint(key: bytes, value: bytes | None) -> Checkpoint | None:
    """Return the checkpoint of a record, None for a tombstone; ValueError for bytes of another shape."""
    group, partition = _parse_checkpoint_key(key)
    if value is None:
        return None
    fields = _Fields(value)
    if (version := fields.int16()) != _CHECKPOINT_VERSION:
        raise ValueError(f"a checkpoint of version {version}; MirrorMaker 2.7 to 4.3 writes {_CHECKPOINT_VERSION}")
    checkpoint = Checkpoint(group, partition, fields.int64(), fields.int64(), fields.text())
    fields.end()
    return checkpoint


def _parse_sync_key(key: bytes) -> TopicPartition:
    fields = _Fields(key)
    partition = TopicPartition(fields.text(), fields.int32())
    fields.end()
    return partition


def _parse_checkpoint_key(key: bytes) -> tuple[str, TopicPartition]:
    fields = _Fields(key)
    group = fields.text()
    partition = TopicPartition(fields.text(), fields.int32())
    fields.end()
    return group, partition


class _Fields:
    """Reads fields as org.apache.kafka.common.protocol.types.Schema writes them; ValueError where they are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def int64(self) -> int:
        return self._number(">q")

    def text(self) -> str:
        """Return a STRING: its length in bytes as INT16, and UTF-8."""
        length = self.int16()
        if length < 0:
            raise ValueError(f"a string of {length} bytes")
        return self._take(length).decode()  # a UnicodeDecodeError is a ValueError

    def end(self) -> None:
        """Raise ValueError unless all was read."""
        if rest := len(self._data) - self._at:
            raise ValueError(f"{rest} bytes more than its fields have")

    def _number(self, layout: str) -> int:
        (number,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return int(number)

    def _take(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError(f"ends after {len(self._data)} bytes, within a field")
        self._at += length
        return self._data[self._at - length : self._at]


# --- whole topics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InternalRecord:
    """A record of an internal topic as read; `written_at` is its timestamp in seconds since 1970."""

    key: bytes | None
    value: bytes | None
    written_at: float


@dataclass(frozen=True)
class OffsetSyncs:
    """The offset syncs of a topic by source partition, in the order of its log: compaction keeps the newest, and older
    ones only for a while.

    `written_at`: when the newest was written (seconds since 1970). `unreadable`: records that are no offset syncs.
    """

    by_partition: dict[TopicPartition, tuple[OffsetSync, ...]] = field(default_factory=dict)
    written_at: float | None = None
    unreadable: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """The newest checkpoint of each group and partition, with the time it was written (seconds since 1970).

    `unreadable`: records that are no checkpoints.
    """

    newest: dict[Checkpoint, float] = field(default_factory=dict)
    unreadable: int = 0


def collect_offset_syncs(records: Iterable[InternalRecord]) -> OffsetSyncs:
    """Return the offset syncs among the records of a topic; a tombstone removes those before it."""
    by_partition: dict[TopicPartition, list[OffsetSync]] = {}
    names: dict[TopicPartition, TopicPartition] = {}  # held once, not once per record
    written_at: float | None = None
    unreadable = 0
    for record in records:
        try:
            sync = parse_offset_sync(record.key or b"", record.value)
            if sync is None:
                by_partition.pop(_parse_sync_key(record.key or b""), None)
                continue
        except ValueError:
            unreadable += 1
            continue
        partition = names.setdefault(sync.partition, sync.partition)
        by_partition.setdefault(partition, []).append(OffsetSync(partition, sync.upstream, sync.downstream))
        written_at = max(record.written_at, written_at or record.written_at)
    return OffsetSyncs({partition: tuple(syncs) for partition, syncs in by_partition.items()}, written_at, unreadable)


def collect_checkpoints(records: Iterable[InternalRecord]) -> Checkpoints:
    """Return the newest checkpoint of each group and partition, as RemoteClusterUtils.translateOffsets has them.

    Records that are no checkpoints are passed over, as there; a tombstone, which no release writes, removes one.
    """
    newest: dict[tuple[str, TopicPartition], tuple[Checkpoint, float]] = {}
    unreadable = 0
    for record in records:
        try:
            checkpoint = parse_checkpoint(record.key or b"", record.value)
            key = _parse_checkpoint_key(record.key or b"")
        except ValueError:
            unreadable += 1
            continue
        if checkpoint is None:
            newest.pop(key, None)
        else:
            newest[key] = checkpoint, record.written_at
    return Checkpoints(dict(newest.values()), unreadable)

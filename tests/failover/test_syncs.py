"""Records of internal topics from their bytes, and from whole topics."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from mm2mgr.failover.syncs import (
    Checkpoint,
    InternalRecord,
    OffsetSync,
    collect_checkpoints,
    collect_offset_syncs,
    parse_checkpoint,
    parse_offset_sync,
)
from mm2mgr.partitions import TopicPartition

ORDERS = TopicPartition("orders", 3)
# As MirrorMaker writes them; tests/failover/test_as_kafka.py compares with what each release has.
SYNC_KEY = b"\0\6orders\0\0\0\3"
SYNC_VALUE = bytes.fromhex("0000000000000080 0000000100000000")
CHECKPOINT_KEY = b"\0\2g1\0\10A.orders\0\0\0\3"
CHECKPOINT_VALUE = bytes.fromhex("0000 0000000000000081 0000000100000001") + b"\0\4note"
CHECKPOINT = Checkpoint("g1", TopicPartition("A.orders", 3), 129, 2**32 + 1, "note")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def checkpoint_record(group: str, upstream: int | None, written_at: float = 0.0) -> InternalRecord:
    value = None if upstream is None else struct.pack(">hqq", 0, upstream, upstream) + text("")
    return InternalRecord(text(group) + text("A.orders") + struct.pack(">i", 3), value, written_at)


def test_an_offset_sync_has_the_source_partition_and_both_offsets() -> None:
    assert parse_offset_sync(SYNC_KEY, SYNC_VALUE) == OffsetSync(ORDERS, 128, 2**32)
    assert parse_offset_sync(SYNC_KEY, None) is None


def test_a_checkpoint_has_the_group_and_the_partition_on_the_target() -> None:
    assert parse_checkpoint(CHECKPOINT_KEY, CHECKPOINT_VALUE) == CHECKPOINT
    assert parse_checkpoint(CHECKPOINT_KEY, None) is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"", SYNC_VALUE, "0 bytes"),
        (SYNC_KEY[:-1], SYNC_VALUE, "3 bytes where its fields have 4"),
        (SYNC_KEY + b"\0", SYNC_VALUE, "5 bytes"),
        (b"\xff\xff\0\0\0\3", SYNC_VALUE, "a text of -1 bytes"),
        (b"\x7f\xffabc", SYNC_VALUE, "a text of 32767 bytes in 5"),
        (b"\0\1\xff\0\0\0\3", SYNC_VALUE, "utf-8"),
        (SYNC_KEY, SYNC_VALUE[:-1], "15 bytes where its fields have 16"),
        (SYNC_KEY, SYNC_VALUE + b"\0", "17 bytes"),
        (SYNC_KEY, b"", "0 bytes"),
        (SYNC_KEY[:-1], None, "3 bytes"),
    ],
)
def test_other_bytes_are_no_offset_sync(key: bytes, value: bytes | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_offset_sync(key, value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (SYNC_KEY, CHECKPOINT_VALUE, "a text of|bytes where"),
        (CHECKPOINT_KEY, b"\0\1" + CHECKPOINT_VALUE[2:], "a checkpoint of version 1"),
        (CHECKPOINT_KEY, CHECKPOINT_VALUE[:-1], "a text of 4 bytes"),
        (CHECKPOINT_KEY, CHECKPOINT_VALUE + b"\0", "1 bytes more"),
        (CHECKPOINT_KEY, CHECKPOINT_VALUE[:10], "10 bytes where its fields have 18"),
    ],
)
def test_other_bytes_are_no_checkpoint(key: bytes, value: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_checkpoint(key, value)


def test_any_bytes_give_a_value_or_a_value_error() -> None:
    randomness = random.Random(37)
    for _ in range(3000):
        key, value = (
            bytearray(data) for data in randomness.choice(((SYNC_KEY, SYNC_VALUE), (CHECKPOINT_KEY, CHECKPOINT_VALUE)))
        )
        for data in (key, value):
            for _ in range(randomness.randint(0, 2)):
                place = randomness.randrange(len(data))
                data[place : place + randomness.randint(0, 2)] = randomness.randbytes(randomness.randint(0, 2))
        for parse in (parse_offset_sync, parse_checkpoint):
            with suppress(ValueError):
                parse(bytes(key), bytes(value))


def test_a_topic_of_syncs_is_read_in_the_order_of_its_log() -> None:
    others = TopicPartition("others", 0)
    other_key = text("others") + struct.pack(">i", 0)

    def record(key: bytes | None, upstream: int, downstream: int, written_at: float) -> InternalRecord:
        return InternalRecord(key, struct.pack(">qq", upstream, downstream), written_at)

    read = collect_offset_syncs(
        [
            record(SYNC_KEY, 0, 0, 5.0),
            record(other_key, 7, 8, 9.0),
            record(None, 1, 1, 99.0),
            record(SYNC_KEY, 100, 90, 8.0),
            InternalRecord(SYNC_KEY, b"?", 99.0),
        ]
    )
    assert read.by_partition == {
        ORDERS: (OffsetSync(ORDERS, 0, 0), OffsetSync(ORDERS, 100, 90)),
        others: (OffsetSync(others, 7, 8),),
    }
    assert (read.written_at, read.unreadable) == (9.0, 2)
    tombstone = collect_offset_syncs([record(SYNC_KEY, 0, 0, 5.0), InternalRecord(SYNC_KEY, None, 6.0)])
    assert tombstone.by_partition == {}


def test_of_checkpoints_the_newest_counts_also_when_it_goes_back() -> None:
    """As in RemoteClusterUtils.translateOffsets, which passes over what it cannot read."""
    read = collect_checkpoints(
        [
            checkpoint_record("g1", 10, 1.0),
            checkpoint_record("g2", 5, 2.0),
            checkpoint_record("g1", 30, 3.0),
            InternalRecord(b"garbage", b"", 4.0),
            checkpoint_record("g1", 20, 5.0),
            checkpoint_record("g3", 1, 6.0),
            checkpoint_record("g3", None, 7.0),
        ]
    )
    assert {(c.group, c.upstream): at for c, at in read.newest.items()} == {("g1", 20): 5.0, ("g2", 5): 2.0}
    assert read.unreadable == 1

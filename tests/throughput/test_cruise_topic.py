"""Cruise Control's sample topic: byte layouts as its serializer writes them, and what is skipped and counted."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.throughput.cruise_topic import _slices, decode

TIME = 1_795_255_200_000
topics = st.text("abcXYZ019._-", min_size=1, max_size=249)
rates = st.floats(0, 1e9)


def version_0(topic: str, partition: int, disk: float, bytes_in: float, time_ms: int = TIME) -> bytes:
    """One sample as the first version wrote it: 49 bytes and the topic."""
    head = struct.pack(">b", 0) + struct.pack(">i", 3) + struct.pack(">4d", 0.5, disk, bytes_in, 2 * bytes_in)
    return head + struct.pack(">q", time_ms) + struct.pack(">i", partition) + topic.encode()


def version_1(  # noqa: PLR0917 - the fields in their order
    topic: str, partition: int, disk: float, bytes_in: float, records: float, time_ms: int = TIME
) -> bytes:
    """One sample as the current version writes it: 89 bytes and the topic."""
    head = struct.pack(">b", 1) + struct.pack(">i", 3) + struct.pack(">4d", 0.5, disk, bytes_in, 2 * bytes_in)
    rest = struct.pack(">5d", 11.0, 12.0, records, 13.0, 14.0)
    return head + rest + struct.pack(">q", time_ms) + struct.pack(">i", partition) + topic.encode()


def test_the_heads_are_as_long_as_cruise_controls() -> None:
    assert len(version_0("", 0, 0, 0)) == 49
    assert len(version_1("", 0, 0, 0, 0)) == 89


@given(topics, st.integers(0, 2**31 - 1), rates, rates, rates)
def test_both_versions_decode_to_bytes_and_milliseconds(
    topic: str, partition: int, disk: float, bytes_in: float, records: float
) -> None:
    same = {
        "topic": topic,
        "partition": partition,
        "time_ms": TIME,
        "bytes_per_second": bytes_in * 1024,
        "log_bytes": disk * 1024 * 1024,
    }
    assert decode(version_0(topic, partition, disk, bytes_in)) == {**same, "records_per_second": None}
    assert decode(version_1(topic, partition, disk, bytes_in, records)) == {**same, "records_per_second": records}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "without a value"),
        (b"", "without a value"),
        (b"\x02" + version_1("t", 0, 1, 1, 1)[1:], "of unknown version 2"),
        (b"\xff" + b"x" * 200, "of unknown version 255"),
        (version_0("", 0, 1, 1), "cut short"),
        (version_1("topic", 0, 1, 1, 1)[:60], "cut short"),
        (version_1("t", 0, 1, 1, 1)[:-1] + b"\xff", "with a topic that is not UTF-8"),
        (version_1("t", 0, 1, 1, 1, time_ms=-1), "without a sample time"),
        (version_1("t", 0, 1, 1, 1, time_ms=2**60), "without a sample time"),
    ],
)
def test_what_is_no_sample_is_named(value: bytes | None, reason: str) -> None:
    assert decode(value) == reason


@given(st.binary(max_size=120))
def test_no_bytes_break_the_decoder(value: bytes) -> None:
    assert isinstance(decode(value), dict | str)


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 3 * 10**6)), min_size=1, max_size=32),
)
def test_slices_cover_each_offset_once_and_stay_small(spans: list[tuple[int, int]]) -> None:
    ranges = [(number, start, start + length) for number, (start, length) in enumerate(spans)]
    reached = {number: start for number, start, _ in ranges}
    for piece in _slices(ranges):
        assert 0 < sum(end - start for _, start, end in piece) <= 1_000_000 + len(ranges)
        for number, start, end in piece:
            assert reached[number] == start < end
            reached[number] = end
    assert reached == {number: end for number, _, end in ranges}

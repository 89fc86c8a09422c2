"""Cruise Control's sample topic: byte layouts as its serializer writes them, and what is skipped and counted."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.throughput.cruise_reader import TopicReader
from mm2mgr.throughput.cruise_records import SCHEMA, decode_records
from mm2mgr.throughput.cruise_topic import _commits

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


def decode(*values: bytes | None) -> list[dict[str, Any]]:
    """The rows of records at offsets 7, 8, … of partition 2."""
    places = [(2, 7 + number) for number in range(len(values))]
    batch = decode_records(values, places, "dc1", "cruise-control-topic", 120_000)
    assert batch.schema == SCHEMA
    rows: list[dict[str, Any]] = batch.to_pylist()
    assert [(row["record_partition"], row["record_offset"]) for row in rows] == places
    return rows


@given(topics, st.integers(0, 2**31 - 1), rates, rates, rates)
def test_both_versions_decode_to_bytes_and_milliseconds(
    topic: str, partition: int, disk: float, bytes_in: float, records: float
) -> None:
    same = {
        **{"cluster": "dc1", "source": "cruise-control-topic", "resolution_ms": 120_000, "record_partition": 2},
        **{"topic": topic, "partition": partition, "time_ms": TIME, "leader": 3, "cpu": 0.5, "skipped": None},
        "bytes_per_second": bytes_in * 1024,
        "bytes_out_per_second": 2 * bytes_in * 1024,
        "log_bytes": disk * 1024 * 1024,
    }
    only_new = {
        **{"records_per_second": records, "produce_requests_per_second": 11.0, "fetch_requests_per_second": 12.0},
        **{"replication_bytes_in_per_second": 13.0 * 1024, "replication_bytes_out_per_second": 14.0 * 1024},
    }
    old, new = decode(version_0(topic, partition, disk, bytes_in), version_1(topic, partition, disk, bytes_in, records))
    assert old == {**same, **dict.fromkeys(only_new), "record_offset": 7}
    assert new == {**same, **only_new, "record_offset": 8}


NO_SAMPLES = [
    (None, "without a value"),
    (b"", "without a value"),
    (b"\x02" + version_1("t", 0, 1, 1, 1)[1:], "of unknown version 2"),
    (b"\xff" + b"x" * 200, "of unknown version 255"),
    (version_0("", 0, 1, 1), "cut short"),
    (version_1("topic", 0, 1, 1, 1)[:60], "cut short"),
    (version_1("t", 0, 1, 1, 1)[:-1] + b"\xff", "with a topic that is not UTF-8"),
    (version_1("t", 0, 1, 1, 1, time_ms=-1), "without a sample time"),
    (version_1("t", 0, 1, 1, 1, time_ms=2**60), "without a sample time"),
]


@pytest.mark.parametrize(("value", "reason"), NO_SAMPLES)
def test_what_is_no_sample_is_named(value: bytes | None, reason: str) -> None:
    (row,) = decode(value)
    assert row["skipped"] == reason
    assert {name for name, column in row.items() if column is not None} == {
        *("cluster", "source", "resolution_ms", "record_partition", "record_offset", "skipped")
    }


def test_what_is_no_sample_harms_no_other_row() -> None:
    values = [value for pair in NO_SAMPLES for value in (pair[0], version_1("t", 1, 1, 1, 1))]
    assert [row["skipped"] for row in decode(*values)] == [reason for pair in NO_SAMPLES for reason in (pair[1], None)]


@given(st.lists(st.binary(max_size=120), max_size=5))
def test_no_bytes_break_the_decoder(values: list[bytes]) -> None:
    assert len(decode(*values)) == len(values)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 3 * 10**6)), min_size=1, max_size=32))
def test_commits_and_tasks_cover_each_offset_once_and_stay_small(spans: list[tuple[int, int]]) -> None:
    start = {number: first for number, (first, _) in enumerate(spans)}
    ends = {number: first + length for number, (first, length) in enumerate(spans)}
    reached = dict(start)
    for end in _commits(start, ends):
        assert 0 < sum(end.values()) - sum(reached.values()) <= 1_000_000 + len(spans)
        for task in TopicReader("dc1", "samples", {}).partitions(reached, end):
            assert 0 < sum(stop - first for _, first, stop in task) <= 100_000
            for number, first, stop in task:
                assert reached[number] == first < stop
                reached[number] = stop
        assert reached == end
    assert reached == ends


def test_a_reader_shows_no_password() -> None:
    assert "hunter2" not in repr(TopicReader("dc1", "samples", {"sasl.password": "hunter2"}))

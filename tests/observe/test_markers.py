"""Offsets at the end of a log that hold no record, such as markers of transactions: they are no lag, and looked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import KafkaSilence
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs
from mm2mgr.live.reach import KafkaReach
from mm2mgr.partitions import TopicPartition
from tests.observe.estate import Estate, FakeKafka, estate, kinds

ORDERS = TopicPartition("orders", 0)


def standing(small: Estate, *, end: int, records_to: int) -> None:
    """Let the flow stand at offset 100 of a log with records up to an offset, and markers behind, for three minutes."""
    small.log(0, end)
    small.log(0, 100, alias="B", topic="A.orders")
    small.stored(99)
    small.kafka.recordless_from["A", ORDERS] = records_to
    for seconds in (0, 30, 150):
        small.flow(later_seconds=seconds)


def test_markers_at_the_end_of_a_log_are_no_lag(small: Estate) -> None:
    standing(small, end=113, records_to=100)
    flow = small.flow(later_seconds=30)
    assert (flow.lag_records, flow.health, kinds(flow)) == (0, "ok", [])
    assert "level: 13 offsets at the end of its logs hold nothing to mirror" in flow.offsets_note
    assert small.kafka.searched == [("A", ORDERS, 100, 113)], "looked for once, however often a look sees the same end"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions_are_records_to_who_reads_them(tmp_path: Path, isolation: str) -> None:
    with estate(tmp_path, more=f"source_consumer: {{isolation.level: {isolation}}}") as small:
        standing(small, end=113, records_to=100)
        assert small.kafka.searched_committed == [isolation == "read_committed"]


def test_records_that_wait_stay_a_lag_and_are_looked_for_once(small: Estate) -> None:
    standing(small, end=113, records_to=113)
    flow = small.flow(later_seconds=30)
    assert (flow.lag_records, kinds(flow)) == (13, ["no-progress"])
    assert "no record" not in flow.offsets_note
    assert small.kafka.searched == [("A", ORDERS, 100, 113)]


def test_records_after_markers_count_without_these(small: Estate) -> None:
    standing(small, end=113, records_to=100)
    small.log(0, 120)
    small.kafka.recordless_from["A", ORDERS] = 120
    flow = small.flow(later_seconds=10)
    assert flow.lag_records == 7
    small.stored(118)  # they are mirrored, and a marker follows
    small.log(0, 107, alias="B", topic="A.orders")
    assert small.flow(later_seconds=10).lag_records == 1


def test_a_lag_that_moves_is_not_searched(small: Estate) -> None:
    small.log(0, 200)
    for stored in range(100, 190, 10):
        small.stored(stored)
        small.flow(later_seconds=45)
    assert small.kafka.searched == []


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "FAILED"])
def test_a_flow_that_does_not_run_is_not_searched(small: Estate, state: str) -> None:
    small.connect.connectors[small.source].state = state
    standing(small, end=113, records_to=100)
    assert small.flow(later_seconds=30).lag_records == 13
    assert small.kafka.searched == []


def test_a_large_lag_is_not_searched(small: Estate) -> None:
    standing(small, end=1113, records_to=100)
    assert small.flow(later_seconds=30).lag_records == 1013
    assert small.kafka.searched == []


def test_a_topic_that_was_created_again_is_searched_anew(small: Estate) -> None:
    standing(small, end=113, records_to=100)
    small.recreate("another")
    small.kafka.recordless_from["A", ORDERS] = 113
    assert small.flow(later_seconds=10).lag_records == 13


def test_a_search_that_fails_says_nothing_and_is_repeated(small: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    read, failing = FakeKafka.__call__, [True]

    def unless_failing(self: FakeKafka, reach: KafkaReach, choose: WantedLogs) -> RunningKafka:
        if choose.between and failing.pop():
            raise KafkaSilence("A: no broker answered in time")
        return read(self, reach, choose)

    monkeypatch.setattr(FakeKafka, "__call__", unless_failing)
    standing(small, end=113, records_to=100)
    assert small.kafka.searched == []
    failing.append(False)
    assert small.flow(later_seconds=10).lag_records == 0

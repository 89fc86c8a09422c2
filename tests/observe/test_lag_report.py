"""Rows of lag: sums that agree on every level, and nothing unknown that looks like zero."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.lag_report import Age, Amount, FlowFacts, LagLevel, age_of, production
from mm2mgr.observe.trend import follow_lag
from mm2mgr.partitions import LogHistory, Offsets, TopicPartition
from tests.sizing.assignments import assigned

LEVELS = tuple(LagLevel)
NOW = 10_000.0


def part(lag: int, *, topic: str = "t", number: int = 0, task: int | None = 0, end: int = 10_000) -> PartitionLag:
    position = end - lag
    return PartitionLag(TopicPartition(topic, number), Offsets(0, end), None, position, position, task=task)


def facts(lag: FlowLag, **more: object) -> FlowFacts:
    tasks = {one.partition: one.task for one in lag.partitions if one.task is not None}
    tasks |= lag.assignment.task_of
    made = FlowFacts("f:A->B", "cb", "mm2", "RUNNING", NOW, 60.0, replace(lag, assignment=assigned(tasks)))
    return replace(made, **more)  # type: ignore[arg-type]


def history(*samples: tuple[float, int], record_bytes: float | None = None) -> LogHistory:
    return LogHistory(tuple(round(1000 * at) for at, _ in samples), tuple(end for _, end in samples), record_bytes)


# --- seconds ----------------------------------------------------------------------------------------------------------


def test_the_age_of_a_position_is_when_the_log_ended_there() -> None:
    one = part(1_000, end=5_000)  # position 4 000
    known = history((NOW - 600, 3_000), (NOW - 300, 3_500), (NOW - 200, 4_500), (NOW - 10, 4_990))
    assert age_of(one, known, NOW) == Age(250.0, "rate history")
    assert age_of(part(0), known, NOW) == Age(0.0, "level")


def test_a_position_after_the_last_sample_lies_between_it_and_now() -> None:
    one = part(50, end=5_000)
    assert age_of(one, history((NOW - 100, 4_900)), NOW) == Age(50.0, "rate history")


def test_a_position_before_the_first_sample_is_at_least_that_old() -> None:
    assert age_of(part(4_000, end=5_000), history((NOW - 100, 4_900)), NOW) == Age(100.0, "rate history", True)


@pytest.mark.parametrize("known", [None, LogHistory(), history((NOW + 5, 100))])
def test_without_samples_the_age_is_unknown(known: LogHistory | None) -> None:
    assert age_of(part(10), known, NOW) is None


def test_a_records_own_timestamp_comes_before_the_history() -> None:
    one = part(10)
    made = facts(FlowLag((one,)), written_at={one.partition: NOW - 77}, histories={one.partition: history((0.0, 5))})
    assert made.total.seconds == Amount(77.0)


def test_production_is_that_of_the_samples() -> None:
    steady = history(*((NOW - 900 + 30 * n, 300 * n) for n in range(30)))
    assert production(steady, 0) == production(steady, 1000 * (NOW - 905))
    found = production(steady, 0)
    assert found is not None
    assert (found.mean, found.error) == (10.0, 0.0)
    bursts = production(history(*((NOW - 900 + 30 * n, 300 * n + (150 if n % 2 else 0)) for n in range(30))), 0)
    assert bursts is not None
    assert bursts.error > 0
    assert production(history((1.0, 1), (2.0, 2)), 0) is None


# --- bytes and the rest of a row --------------------------------------------------------------------------------------


def test_bytes_are_unknown_without_a_record_size_and_at_least_with_some() -> None:
    sized, other = part(100), part(300, number=1)
    known = {sized.partition: history((1.0, 1), record_bytes=250.0)}
    assert facts(FlowLag((sized,)), histories=known).total.bytes == Amount(25_000.0)
    assert facts(FlowLag((sized, other)), histories=known).total.bytes == Amount(25_000.0, at_least=True)
    assert facts(FlowLag((other,)), histories=known).total.bytes == Amount(None)
    assert facts(FlowLag((part(0),))).total.bytes == Amount(0), "nothing waits, whatever its size"


def test_a_flow_is_level_when_its_slowest_task_is() -> None:
    """The sum over tasks shrinks fast at first, which says nothing about the last one."""
    known = {}
    for step in range(6):
        quick, slow = part(max(0, 5_000 - 1_000 * step)), part(9_000 - 100 * step, number=1, task=1)
        lag = FlowLag((quick, slow))
        known = follow_lag(known, lag, NOW + 30 * step)
    made = facts(lag, points=known)
    total, by_task = made.total, made.rows(LagLevel.TASK)
    assert total.level == by_task[0].level
    assert total.level is not None
    assert total.level.seconds == pytest.approx(8_500 / (100 / 30), rel=0.01)


def test_a_flow_with_a_task_that_stands_still_is_never_level() -> None:
    known = {}
    for step in range(6):
        lag = FlowLag((part(50_000 - 1_000 * step), part(900, number=1, task=1)))
        known = follow_lag(known, lag, NOW + 30 * step)
    made = facts(lag, points=known)
    assert made.total.level is None
    assert [row.level is None for row in made.rows(LagLevel.TASK)] == [False, True]


def test_an_unreadable_partition_is_named_and_makes_its_sums_lower_bounds() -> None:
    gone = TopicPartition("t", 1)
    made = facts(FlowLag((part(7),), unread={gone: "no leader"}, assignment=assigned({gone: 3})))
    for by in ("topic", "flow"):
        (row,) = made.rows(by)
        assert (row.records, row.partitions, row.unknown) == (Amount(7, at_least=True), 2, {"t-1": "no leader"})
    task, other = made.rows(LagLevel.TASK)
    assert (task.task, task.records, other.records) == (3, Amount(None), Amount(7))
    partition = made.rows(LagLevel.PARTITION)[0]
    assert (partition.partition, partition.records, partition.level) == (1, Amount(None), None)


@pytest.mark.parametrize("by", LEVELS)
def test_a_flow_of_which_nothing_is_known_is_unknown_on_every_level(by: LagLevel) -> None:
    (row,) = facts(FlowLag((part(5),), unknown="stored offsets could not be read")).rows(by)
    assert (row.records, row.bytes, row.seconds) == (Amount(None),) * 3
    assert row.unknown == {"": "stored offsets could not be read"}


partitions = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 5),
        st.none() | st.integers(0, 3),
        st.integers(0, 10_000),
        st.sampled_from(["known", "unread", "heartbeat"]),
        st.none() | st.integers(1, 500),
    ),
    unique_by=lambda one: one[:2],
    max_size=15,
)


@given(partitions, st.none() | st.just("no answer"))
def test_sums_agree_on_every_level_and_unknown_is_never_zero(
    drawn: list[tuple[str, int, int | None, int, str, int | None]], unknown: str | None
) -> None:
    found, unread, tasks, histories = [], {}, {}, {}
    for topic, number, task, lag, kind, size in drawn:
        name = TopicPartition(topic, number)
        if task is not None:
            tasks[name] = task
        if kind == "unread":
            unread[name] = "no leader"
            continue
        found.append(part(lag, topic=topic, number=number, task=task)._replace(heartbeat=kind == "heartbeat"))
        if size is not None:
            histories[name] = history((NOW - 50, 5_000), record_bytes=float(size))
    made = facts(FlowLag(tuple(found), unread=unread, assignment=assigned(tasks), unknown=unknown), histories=histories)
    total = made.total
    for by in LEVELS:
        rows = made.rows(by)
        known = [row.records.value for row in rows if row.records.value is not None]
        assert all(value >= 0 for value in known)
        assert sum(known) == (total.records.value or 0)
        assert sum(row.partitions for row in rows) == total.partitions
        assert {name for row in rows for name in row.unknown} == set(total.unknown)
        for row in rows:
            if row.unknown:
                assert row.records.value is None or row.records.at_least
            if row.partitions == len(row.unknown):
                assert row.records.value is None or not (row.unknown or row.partitions)
            for amount in (row.bytes, row.seconds):
                if row.records.value is None:
                    assert amount.value is None
                elif row.records.value > 0:
                    assert amount.value is None or amount.value > 0
        json.dumps(to_json(rows), allow_nan=False)
    if unknown is not None:
        assert total.records.value is None

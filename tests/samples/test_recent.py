"""The memory of recent polls: ends of a while ago, other logs under an old name told apart, and a bound on what is kept."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from mm2mgr.evidence.task_rates import RecentLogs
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.sizing.capacity import Log

NAMES = ["a", "a", "b"]
A0, A1, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))


def batch(seconds: float, *ends: int, start: int = 0, names: Sequence[str] = NAMES, ids: str = "") -> Batch:
    return Batch(
        "dc1",
        "test",
        round(seconds * 1000),
        names,
        [list(names[:row]).count(name) for row, name in enumerate(names)],
        [ids or name for name in names],
        end_offset=array("q", ends),
        start_offset=array("q", [start] * len(names)),
        record_bytes=[100.0 if seconds == 0 else None] * len(names),
    )


@pytest.fixture
def recent() -> RecentLogs:
    return RecentLogs(240)


def test_an_end_is_that_of_the_last_poll_before_and_the_start_that_of_now(recent: RecentLogs) -> None:
    for number in range(9):
        recent.take(batch(30 * number, 10 * number, 20 * number, 5, start=number))
    assert recent.growth("dc1", A1, 119_999) == Log(8, 60, 100.0)
    assert recent.growth("dc1", A1, 120_000) == Log(8, 80, 100.0)
    assert recent.growth("dc1", B0, 10**9) == Log(8, 5, 100.0)


def test_what_was_not_polled_is_not_known(recent: RecentLogs) -> None:
    assert recent.growth("dc1", A0, 1_000) is None
    recent.take(batch(60, 1, -1, 1))
    assert recent.growth("dc1", A0, 59_999) is None
    assert recent.growth("dc1", A1, 60_000) is None
    assert [recent.growth(*other, 60_000) for other in (("dc2", A0), ("dc1", TopicPartition("b", 1)))] == [None, None]
    assert recent.growth("dc1", TopicPartition("c", 0), 60_000) is None
    assert recent.growth("dc1", B0, 60_000) == Log(0, 1, None)


def test_a_topic_that_was_created_again_has_no_past(recent: RecentLogs) -> None:
    recent.take(batch(0, 5, 5, 5, ids="old"))
    recent.take(batch(30, 50, 50, 50, ids="new"))
    assert recent.growth("dc1", A0, 10_000) is None
    assert recent.growth("dc1", A0, 30_000) == Log(0, 50, 100.0)


def test_a_log_that_became_shorter_has_no_past(recent: RecentLogs) -> None:
    recent.take(batch(0, 5, 5, 5))
    recent.take(batch(30, 4, 6, 5))
    assert recent.growth("dc1", A0, 10_000) is None
    assert recent.growth("dc1", A1, 10_000) == Log(0, 5, 100.0)


def test_rows_may_move_between_polls(recent: RecentLogs) -> None:
    recent.take(batch(0, 7, 9, 5))
    recent.take(batch(30, 8, 11, 6, names=["aa", "b", "a"]))
    assert recent.growth("dc1", B0, 10_000) == Log(0, 5, 100.0)
    assert recent.growth("dc1", A0, 30_000) == Log(0, 6, 100.0)
    assert recent.growth("dc1", A0, 10_000) is None  # 7 then, 6 now


def test_it_remembers_the_horizon_in_few_polls(recent: RecentLogs) -> None:
    for second in range(2_000):
        recent.take(batch(second, second, second, second))
    polls = recent._polls["dc1"]
    assert len(polls) <= 15
    grown = recent.growth("dc1", A0, (1_999 - 240) * 1000)
    assert grown is not None
    assert 1_999 - 240 - 25 <= grown.end <= 1_999 - 240
    assert recent.growth("dc1", A0, (1_999 - 300) * 1000) is None
    assert sum(poll.batch.start_offset is not None for poll in polls) <= 2  # only the newest is asked for

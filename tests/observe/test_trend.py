"""Trends and forecasts from made looks: rates that the test chose, and a clock that it moves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.trend import (
    FLOW,
    Points,
    RecordRate,
    follow_lag,
    level_in,
    overtaken_in,
    partition_key,
    task_key,
    trend,
)
from mm2mgr.partitions import Offsets, TopicPartition

ZERO = TopicPartition("orders", 0)


def one(position: int, end: int, *, start: int = 0, task: int | None = 0, partition: int = 0) -> PartitionLag:
    return PartitionLag(TopicPartition("orders", partition), Offsets(start, end), None, position, position, task=task)


def looked(found: list[tuple[float, PartitionLag]]) -> Points:
    """Return the points of the flow after these looks."""
    known: dict[str, Points] = {}
    for now, each in found:
        known = follow_lag(known, FlowLag((each,)), now)
    return known[FLOW]


@dataclass(frozen=True)
class Drain:
    """A backlog that is worked off: records per second in and out, and flushes that hide what was mirrored since."""

    backlog: int
    produced: float
    mirrored: float
    flush_seconds: float = 0.0
    burst: float = 0.0
    """How far the rates of single looks are off, as a share."""

    @property
    def seconds(self) -> float:
        return self.backlog / (self.mirrored - self.produced)

    def looks(self, every: float, until: float, seed: int = 1) -> Iterator[tuple[float, PartitionLag]]:
        draw, now, end, position, flushed, flushed_at = random.Random(seed), 0.0, float(self.backlog), 0.0, 0.0, 0.0
        while now <= until:
            yield now, one(round(flushed if self.flush_seconds else position), round(end))
            now += every
            end += every * self.produced * draw.uniform(1 - self.burst, 1 + self.burst)
            position = min(end, position + every * self.mirrored * draw.uniform(1 - self.burst, 1 + self.burst))
            if now - flushed_at >= self.flush_seconds:
                flushed, flushed_at = position, now


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "drain",
    [
        Drain(600_000, 0, 1_000),
        Drain(600_000, 1_000, 2_000),
        Drain(600_000, 1_000, 2_000, flush_seconds=60),
        Drain(600_000, 500, 1_500, flush_seconds=60, burst=0.2),
        Drain(600_000, 1_000, 2_000, burst=0.2),
    ],
    ids=["no traffic", "traffic", "flushes", "flushes and bursts", "bursts"],
)
def test_the_forecast_of_a_ten_minute_backlog_is_within_a_fifth(drain: Drain, seed: int) -> None:
    """From a quarter of the way on, and the interval holds the truth."""
    for share in (0.3, 0.5, 0.7):
        until = share * drain.seconds
        points = looked(list(drain.looks(15.0, until, seed)))
        seen = trend(points, drain.flush_seconds or 15.0)
        assert seen is not None
        assert seen.direction == "shrinking"
        forecast = level_in(points[-1].lag_records, seen)
        assert forecast is not None
        left = points[-1].lag_records / (drain.mirrored - drain.produced)
        assert forecast.seconds == pytest.approx(left, rel=0.2), share
        assert forecast.earliest_seconds <= forecast.seconds <= (forecast.latest_seconds or forecast.seconds)


def test_production_that_varies_widens_the_interval() -> None:
    points = looked(list(Drain(600_000, 1_000, 2_000).looks(15.0, 150)))
    narrow, wide = (level_in(300_000, trend(points, 15.0), RecordRate(1_000, error)) for error in (0.0, 400.0))
    assert narrow is not None
    assert wide is not None
    assert wide.earliest_seconds < narrow.earliest_seconds < narrow.seconds == wide.seconds
    assert wide.latest_seconds is not None
    assert wide.latest_seconds > (narrow.latest_seconds or 0)
    never = level_in(300_000, trend(points, 15.0), RecordRate(1_000, 5_000.0))
    assert never is not None
    assert never.latest_seconds is None, "it may as well never be level"


def test_a_lag_grows_since_it_began_to_grow() -> None:
    level = [(float(now), one(1_000 * now, 1_000 * now + 50)) for now in range(0, 600, 30)]
    grows = [(float(now), one(600_000, 1_000 * now + 50)) for now in range(600, 1_800, 30)]
    found = trend(looked(level + grows), 30.0)
    assert found is not None
    assert (found.direction, found.records > 1_000_000) == ("growing", True)
    assert found.seconds == pytest.approx(1_190, abs=60)
    assert level_in(1_000, found) is None


def test_flushes_of_a_healthy_flow_are_no_trend() -> None:
    """By stored offsets alone the lag is a saw-tooth of one flush interval."""
    looks = [(float(now), one(500 * (now - now % 60), 500 * now + 20)) for now in range(0, 3_600, 13)]
    found = trend(looked(looks), 60.0)
    assert found is not None
    assert found.direction == "steady"


def test_a_lag_that_no_longer_grows_is_steady() -> None:
    grows = [(float(now), one(0, 1_000 * now)) for now in range(0, 300, 15)]
    stays = [(float(now), one(1_000 * (now - 300), 1_000 * now)) for now in range(300, 900, 15)]
    found = trend(looked(grows + stays), 15.0)
    assert found is not None
    assert found.direction == "steady"
    assert found.seconds == pytest.approx(600, abs=60)


@pytest.mark.parametrize(
    "after",
    [one(50, 60), one(90, 200, partition=1), one(0, 200)],
    ids=["shorter log", "another partition", "reset"],
)
def test_what_is_another_log_or_a_reset_begins_anew(after: PartitionLag) -> None:
    first = [(float(now), one(10 + now, 100 + now)) for now in range(0, 50, 10)]
    other = FlowLag((after,)) if after.partition == ZERO else FlowLag((first[-1][1], after))
    known: dict[str, Points] = {}
    for now, each in first:
        known = follow_lag(known, FlowLag((each,)), now)
    assert len(follow_lag(known, other, 60.0)[FLOW]) == 1


def test_the_memory_of_months_stays_small() -> None:
    known: dict[str, Points] = {}
    for now in range(3_000):
        partitions = tuple(one(now, 10_000 + now * 2, partition=number, task=number % 8) for number in range(64))
        known = follow_lag(known, FlowLag(partitions), 60.0 * now)
    assert len(known) == 1 + 8 + 1 + 20
    assert max(map(len, known.values())) == 24
    assert known[FLOW][0].time == 0
    assert known[task_key(0)][-1].time == 60.0 * 2_999


def test_only_partitions_that_are_behind_are_followed() -> None:
    found = follow_lag({}, FlowLag((one(5, 9), one(9, 9, partition=1))), 0.0)
    assert partition_key(ZERO) in found
    assert partition_key(TopicPartition("orders", 1)) not in found


# --- retention --------------------------------------------------------------------------------------------------------


def test_a_reader_that_stands_still_is_overtaken_when_the_next_record_is_too_old() -> None:
    points = looked([(float(now), one(0, 100 * now)) for now in range(0, 300, 30)])
    found = overtaken_in(points, trend(points, 30.0), age_seconds=270, retention_seconds=3_600)
    assert found is not None
    assert (found.seconds, found.reason) == (3_330, "retention.ms")


def test_a_reader_at_half_speed_is_overtaken_twice_as_late() -> None:
    points = looked([(float(now), one(50 * now, 1_000 + 100 * now)) for now in range(0, 600, 30)])
    found = overtaken_in(points, trend(points, 30.0), age_seconds=300, retention_seconds=3_600)
    assert found is not None
    assert found.seconds == pytest.approx(6_600, rel=0.01)
    assert found.earliest_seconds < found.seconds < (found.latest_seconds or 0)


def test_a_reader_that_catches_up_or_a_topic_that_keeps_all_is_not_overtaken() -> None:
    points = looked([(float(now), one(200 * now, 100_000 + 100 * now)) for now in range(0, 300, 30)])
    assert overtaken_in(points, trend(points, 30.0), age_seconds=300, retention_seconds=3_600) is None
    still = looked([(float(now), one(0, 100 * now)) for now in range(0, 300, 30)])
    assert overtaken_in(still, trend(still, 30.0), age_seconds=270, retention_seconds=None) is None
    assert overtaken_in(still, trend(still, 30.0), age_seconds=None, retention_seconds=60) is None


def test_a_log_start_that_moves_faster_than_the_reader_overtakes_it() -> None:
    points = looked([(float(t), one(10_000 + 10 * t, 50_000 + 60 * t, start=60 * t)) for t in range(0, 100, 10)])
    found = overtaken_in(points, trend(points, 10.0), None, None)
    assert found is not None
    assert found.seconds == pytest.approx((10_000 + 10 * 90 - 60 * 90) / 50, rel=0.01)
    assert found.reason == "log start"


def test_records_that_are_too_old_already_are_due_now() -> None:
    assert overtaken_in((), None, age_seconds=700, retention_seconds=600) is not None


steps = st.lists(
    st.tuples(st.floats(-50, 500), st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 900)), max_size=40
)


@example([(3.7e-190, 5, 1, 0)] * 9)
@given(steps)
def test_no_looks_break_the_promises(drawn: list[tuple[float, int, int, int]]) -> None:
    """Forecasts are intervals in the future, whatever the clock and the offsets do."""
    known: dict[str, Points] = {}
    now, end, position = 0.0, 0, 0
    for seconds, produced, mirrored, start in drawn:
        now, end = now + seconds, end + produced
        position = min(end, position + mirrored)
        known = follow_lag(known, FlowLag((one(position, end, start=min(start, position)),)), now)
    points = known.get(FLOW, ())
    assert all(before.time < after.time for before, after in pairwise(points))
    seen = trend(points, 30.0)
    lag = points[-1].lag_records if points else 0
    for found in (level_in(lag, seen), overtaken_in(points, seen, 10.0, 600.0)):
        if found is not None:
            assert 0 <= found.earliest_seconds <= found.seconds
            assert found.latest_seconds is None or found.seconds <= found.latest_seconds

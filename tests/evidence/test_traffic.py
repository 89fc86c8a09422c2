"""Lag and rates over time: what looks say of rates and gaps, what the store keeps of them, and what is usual."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.evidence.traffic import (
    DAY_SECONDS,
    HOUR_SECONDS,
    RANGES,
    UNSEEN_SECONDS,
    Beside,
    FlowPast,
    TrafficPoint,
    add_up,
    by_hour,
    history_dict,
    lag_seconds,
    points_of_looks,
    rates_beside,
    thin_out,
    traffic_history,
    verdict,
)
from mm2mgr.observe.trend import LagPoint
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import KAFKA_OFFSETS, SharedLag
from mm2mgr.samples.store import LagStore, SampleStore
from tests.serve.estate import columns_of, flow_traffic
from tests.spec.trees import write
from tests.throughput.stores import HOUR_MS, START, rolled

NOW = 1_700_000_000.0


def looks(*rows: tuple[float, int, int], partitions: int = 3) -> list[LagPoint]:
    """Looks as time, log end and position."""
    return [LagPoint(time, partitions, 0, end, position) for time, end, position in rows]


def point(time: float, end: int, position: int, partitions: int = 3) -> TrafficPoint:
    return TrafficPoint(time, partitions, end, position, end - position, end - position)


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_rate_is_that_between_two_looks_at_the_same_partitions() -> None:
    first, second, third = points_of_looks(looks((0, 100, 100), (60, 700, 400), (120, 700, 700)))
    assert (first.source_rate, first.mirrored_rate) == (None, None)
    assert (second.source_rate, second.mirrored_rate, second.lag) == (10.0, 5.0, 300)
    assert (third.source_rate, third.mirrored_rate) == (0.0, 5.0)


@pytest.mark.parametrize(
    "later",
    [
        LagPoint(UNSEEN_SECONDS + 1, 3, 0, 200, 200),
        LagPoint(60, 4, 0, 200, 200),
        LagPoint(60, 3, 0, 90, 90),
        LagPoint(60, 3, 0, 200, 50),
    ],
    ids=["gap", "partitions", "shorter log", "reset"],
)
def test_no_rate_is_known_over_a_gap_or_a_reset(later: LagPoint) -> None:
    _, last = points_of_looks([*looks((0, 100, 100)), later])
    assert (last.source_rate, last.mirrored_rate, last.seconds) == (None, None, 0.0)


def test_looks_that_are_close_to_each_other_count_as_one_and_the_newest_always_counts() -> None:
    times = [each.time for each in points_of_looks(looks(*((30.0 * at, at, at) for at in range(8))))]
    assert times == [0, 60, 120, 180, 210]


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=40), st.sampled_from((300.0, 3600.0)))
def test_thinning_out_loses_no_record_and_no_time(steps: list[int], seconds: float) -> None:
    rows, time, end = list[tuple[float, int, int]](), NOW, 0
    for step in steps:
        time, end = time + 60 + step % 700, end + step
        rows.append((time, end, end - step % 50 if step % 50 <= end else end))
    points = points_of_looks(looks(*rows))
    thinned = thin_out(points, seconds)
    for place in ("seconds", "produced", "mirrored"):
        assert sum(getattr(each, place) for each in thinned) == pytest.approx(
            sum(getattr(each, place) for each in points)
        )
    assert max(each.most_lag for each in thinned) == max(each.most_lag for each in points)
    assert thinned[-1].time == points[-1].time
    assert len({each.time // seconds for each in thinned}) == len(thinned)


def test_a_lag_in_time_is_how_long_before_the_log_ended_there() -> None:
    points = [point(0, 1000, 1000), point(600, 1600, 1000), point(1200, 1600, 1300), point(1800, 1600, 1600)]
    assert lag_seconds(points) == [0.0, 600.0, 900.0, 0.0]


def test_a_lag_in_time_is_unknown_where_the_points_do_not_go_back_so_far() -> None:
    assert lag_seconds([point(0, 1000, 400), point(60, 1100, 500)]) == [None, None]
    assert lag_seconds([point(0, 1000, 1000), point(60, 900, 800), point(120, 950, 900)]) == [0.0, None, 60.0]


# --- what is usual ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (Beside(100.0, 90.0, 110.0), "as usual"),
        (Beside(100.0, 40.0, 110.0), "as usual"),
        (Beside(100.0, None, 110.0), "as usual"),
        (Beside(300.0, 100.0, 149.0), "more than usual"),
        (Beside(20.0, 100.0, 41.0), "less than usual"),
        (Beside(0.0, 0.0, None), "as usual"),
        (Beside(5.0, 0.0, None), "more than usual"),
        (Beside(100.0), "unknown"),
        (Beside(None, 100.0, 100.0), "unknown"),
    ],
)
def test_what_is_usual_is_measured(beside: Beside, words: str) -> None:
    assert verdict([beside]) == words


def test_only_what_was_measured_now_and_then_is_compared() -> None:
    both = [Beside(100.0, 100.0, None), Beside(None, 1000.0, None), Beside(5000.0, None, None)]
    assert verdict(both) == "as usual"
    assert add_up(both) == Beside(5100.0, 1100.0, None)
    assert add_up([Beside(), Beside()]) == Beside()


# --- one flow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANGES)
def test_each_range_has_points_up_to_the_newest_look(name: str) -> None:
    traffic, seconds = flow_traffic(NOW), RANGES[name]
    recent = looks(*((NOW - 30.0 * back, 10**9 - 100 * back, 10**9 - 100 * back) for back in range(60, -1, -1)))
    points = traffic.points(NOW, seconds, recent)
    times = [each.time for each in points]
    assert times == sorted(set(times))
    assert times[-1] == NOW
    assert times[0] >= NOW - seconds
    assert times[0] - (NOW - seconds) <= (HOUR_SECONDS if seconds > DAY_SECONDS else 300)
    assert len(points) <= 24 * 30 + 2


def test_without_a_store_the_looks_of_this_process_are_drawn() -> None:
    recent = looks((NOW - 120, 100, 100), (NOW - 60, 160, 130), (NOW, 220, 220))
    for seconds in RANGES.values():
        assert FlowPast().points(NOW, seconds, recent)[-1].time == NOW
    assert FlowPast().points(NOW, DAY_SECONDS) == []


def test_rates_stand_beside_those_of_the_same_hour_of_the_clock() -> None:
    traffic = flow_traffic(NOW, rate=200.0, record_bytes=512.0)
    hour = int(NOW // HOUR_SECONDS)
    records, volumes = rates_beside(traffic, 77.0, 5.0, NOW)
    then = traffic.hours.of_hour(hour - 24)
    assert then is not None
    assert records == Beside(77.0, then.source_rate, pytest.approx(then.source_rate))
    assert volumes.yesterday == pytest.approx((then.source_rate or 0.0) * 512.0, rel=0.15)
    hours = dict(by_hour(traffic, NOW))
    assert len(hours) == 24
    assert None not in hours.values()
    gap = dict(by_hour(traffic, NOW - 10 * HOUR_SECONDS))
    assert sum(rate is None for rate in gap.values()) in {2, 3}, "nobody looked for three hours"


def test_json_has_null_for_what_is_unknown() -> None:
    points = points_of_looks(looks((NOW - 60, 100, 50), (NOW, 160, 150)))
    rows = history_dict(FlowPast(), points, lag_seconds(points))
    assert rows[0]["source_records_per_second"] is rows[0]["lag_seconds"] is rows[1]["source_bytes_per_second"] is None
    assert rows[1] == {
        "time": NOW,
        "lag_records": 10,
        "most_lag_records": 10,
        "lag_seconds": pytest.approx(10.0),
        "source_records_per_second": 1.0,
        "mirrored_records_per_second": pytest.approx(100 / 60),
        "source_bytes_per_second": None,
        "mirrored_bytes_per_second": None,
    }


def test_columns_give_back_their_points() -> None:
    points = points_of_looks(looks((NOW - 120, 100, 100), (NOW - 60, 160, 130), (NOW, 220, 220)))
    columns = columns_of(points)
    assert (len(columns), columns.points_since(NOW - 60), columns.points_since(NOW + 1)) == (3, points[1:], [])
    assert columns.of_hour(int(NOW // 3600)) == points[-1]
    assert columns.of_hour(int(NOW // 3600) - 1) is None


# --- the store --------------------------------------------------------------------------------------------------------

TREE = """\
owner: team
clusters:
  dc1: {bootstrap_servers: ["dc1:9092"]}
  agg: {bootstrap_servers: ["agg:9092"]}
connect: {w: {url: "http://w:8083", kafka: agg}}
flows:
  orders: {sources: [dc1], targets: [agg], topics: {include: [orders]}}
  other: {sources: [dc1], targets: [agg], topics: {include: [other]}}
"""


def test_looks_and_bytes_come_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "state"))
    write(tmp_path / "tree", x=TREE)
    flows, store, now = Workspace((tmp_path / "tree",)).topology.flows, tmp_path / "store", START / 1000 + 2 * 3600
    orders = next(flow for flow in flows if flow.id.startswith("orders"))
    for at in range(START, START + 2 * HOUR_MS + 1, HOUR_MS // 4):
        LagStore(store, "team").append([SharedLag(orders.id, "home", at, 1, 0, at // 1000, at // 1000 - 60)], at)
    SampleStore(store).append(
        *(
            Batch(
                *("dc1", KAFKA_OFFSETS, START + quarter * HOUR_MS // 4, ["orders"], [0], ["id"]),
                end_offset=[quarter * 900],
                start_offset=[0],
                record_bytes=[1000.0],
            )
            for quarter in range(8)
        )
    )
    rolled(store)
    history = traffic_history("team", flows, store, now)
    assert (history.unknown, history.bytes_unknown) == ("", "")
    known = history.of_flow(orders.id)
    assert [each.lag for each in known.looks.points_since(0)] == [60.0] * 9
    assert {each.source_rate for each in known.hours.points_since(0)} == {1.0}
    assert known.bytes_per_second == {
        START // HOUR_MS: pytest.approx(1000.0),
        START // HOUR_MS + 1: pytest.approx(1000.0),
    }
    assert known.record_bytes == pytest.approx(1000.0)
    other = history.of_flow(next(flow.id for flow in flows if flow is not orders))
    assert (len(other.looks), len(other.hours), other.bytes_per_second) == (0, 0, {})


def test_a_store_that_cannot_be_read_says_why_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "state"))
    write(tmp_path / "tree", x=TREE)
    flows = Workspace((tmp_path / "tree",)).topology.flows
    assert traffic_history("team", flows, tmp_path / "nothing", NOW).unknown == ""
    for table in ("lag", "throughput"):
        (tmp_path / "store" / table).mkdir(parents=True)
        (tmp_path / "store" / table / "a.parquet").write_text("x")
    history = traffic_history("team", flows, tmp_path / "store", NOW)
    assert "damaged" in history.unknown
    assert "damaged" in history.bytes_unknown

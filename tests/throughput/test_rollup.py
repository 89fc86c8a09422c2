"""Roll-ups of an hour against a slow reference, and the cases that rates from offsets get wrong."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.intervals import Series, clean, join_hours, tail
from mm2mgr.throughput.rollup import roll_up
from mm2mgr.throughput.windows import read_throughput

from .reference import Point, reference
from .stores import HOUR_MS, START, elsewhere, rates, rolled, series, stored, throughput_of

HOUR = 3_600_000 * 489_000


@st.composite
def points(draw: st.DrawFn, start_ms: int, offset: int) -> list[Point]:
    steps = st.tuples(st.integers(0, 40), st.integers(-30, 400), st.none() | st.floats(1, 1000))
    time_ms, found = start_ms, []
    for elapsed, records, size in draw(st.lists(steps, max_size=25)):
        time_ms, offset = time_ms + elapsed * draw(st.sampled_from([1, 1, 1, 9])), max(0, offset + records)
        found.append(Point(time_ms, offset, size))
    return draw(
        st.permutations([*found, *draw(st.lists(st.sampled_from(found), max_size=3) if found else st.just([]))])
    )


def arrays(partitions: list[list[Point]]) -> Series:
    rows = [(number, point) for number, each in enumerate(partitions) for point in each]
    nothing = np.full(len(rows), np.nan)
    return Series(
        np.array([number for number, _ in rows], np.int32),
        np.zeros(len(rows), np.int32),
        np.array([point.time_ms for _, point in rows], np.int64),
        np.array([point.end for _, point in rows], np.int64),
        nothing,
        nothing,
        np.array([point.size or np.nan for _, point in rows], np.float64),
        np.zeros(len(rows), np.int32),
    )


@settings(deadline=None)
@given(data=st.lists(st.tuples(points(HOUR - 9_000, 1000), points(HOUR, 1500)), min_size=1, max_size=5))
def test_any_samples_give_what_the_reference_gives(data: list[tuple[list[Point], list[Point]]]) -> None:
    before = clean(arrays([lead for lead, _ in data]), HOUR - HOUR_MS, HOUR)
    hour = clean(arrays([own for _, own in data]), HOUR, HOUR + HOUR_MS)
    found = roll_up(join_hours(tail(before), hour), HOUR)
    expected = {number: row for number, each in enumerate(data) if (row := reference(*each, HOUR))}
    assert (found.values["partition_id"].tolist() if found else []) == list(expected)
    for place, row in enumerate(expected.values()):
        assert found is not None
        for name, value in row.items():
            actual = found.values[name][place]
            assert np.isnan(actual) if value is None else actual == pytest.approx(value, rel=1e-9), name
        sketch = found.values["sketch_ms"][found.offsets[place] : found.offsets[place + 1]]
        assert sketch.sum() == row["covered_ms"]


def test_rates_resets_gaps_and_borrowed_sizes_at_a_glance(tmp_path: Path) -> None:
    steady = series("steady", [(0, 0), (10, 100), (20, 200), (30, 300)])
    reset = series("reset", [(0, 900), (10, 1000), (20, 5), (30, 15)])
    gap = series("gap", [(0, 0), (10, 10), (20, 20), (30, 30), (100, 100_000), (110, 100_010)])
    recreated = [
        *series("new", [(0, 0), (10, 10)], "one"),
        *series("new", [(20, 9_000_000), (30, 9_000_010)], "two", None),
    ]
    unsized = series("unsized", [(0, 0), (10, 10)], size=None)
    lonely = series("lonely", [(0, 5)])
    of = throughput_of(tmp_path, steady, reset, gap, recreated, unsized, lonely, elsewhere(unsized, "dc2"))
    assert (of["steady"].bytes_per_second_p95, of["steady"].records_per_second_mean) == (1000.0, 10.0)
    assert (of["steady"].covered_seconds, of["steady"].samples, of["steady"].resets, of["steady"].gaps) == (30, 4, 0, 0)
    assert (of["reset"].resets, of["reset"].covered_seconds, of["reset"].records_per_second_max) == (1, 20.0, 10.0)
    assert (of["reset"].records_per_second_mean, of["reset"].gaps) == (5.5, 0)
    assert (of["gap"].gaps, of["gap"].covered_seconds, of["gap"].records_per_second_max) == (1, 40.0, 1.0)
    assert (of["new"].resets, of["new"].records_per_second_max, of["new"].covered_seconds) == (1, 1.0, 20.0)
    assert (of["unsized"].record_bytes, of["unsized"].bytes_per_second_mean) == (100.0, 100.0)
    assert (of["lonely"].bytes_per_second_p95, of["lonely"].covered_seconds, of["lonely"].samples) == (None, 0.0, 1)
    assert (of["dc2/unsized"].bytes_per_second_p95, of["dc2/unsized"].records_per_second_p95) == (None, 1.0)


def paced(topic: str, *seconds: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """Points with these seconds between them, one record a second."""
    return [(topic, [(second, second) for second in accumulate(seconds, initial=0)])]


def gaps(folder: Path, *cases: list[tuple[str, list[tuple[int, int]]]]) -> dict[str, int]:
    found = throughput_of(folder, *[series(topic, where) for case in cases for topic, where in case])
    return {topic: rate.gaps for topic, rate in found.items()}


def test_a_new_pace_is_known_after_six_intervals(tmp_path: Path) -> None:
    assert gaps(
        tmp_path,
        paced("six", *[10] * 60, *[60] * 6),
        paced("five", *[10] * 60, *[60] * 5),
        paced("shorter", *[60] * 20, *[10] * 60),
        paced("there and back", *[10] * 60, *[60] * 20, *[10] * 60),
        paced("outage at the change", *[10] * 60, 600, *[60] * 20),
        paced("hourly", *[3600] * 20),
    ) == {"six": 0, "five": 1, "shorter": 0, "there and back": 0, "outage at the change": 1, "hourly": 0}


def test_one_outage_is_a_gap_wherever_it_lies(tmp_path: Path) -> None:
    places = (0, 1, 6, 20, 38, 39)
    lost = [paced(f"lost {place}", *[10] * place, 31, *[10] * (39 - place)) for place in places]
    late = [paced(f"late {place}", *[10] * place, 30, *[10] * (39 - place)) for place in places]
    found = gaps(tmp_path, *lost, *late)
    assert found == {topic: int(topic.startswith("lost")) for topic in found}
    assert len(found) == 12


def test_overlapping_samplers_make_no_gaps(tmp_path: Path) -> None:
    cases = {"short first": [1, 9] * 20, "long first": [*[9, 1] * 20, 9], "outage": [*[1, 9] * 20, 100, *[1, 9] * 20]}
    found = gaps(tmp_path, *[paced(topic, *seconds) for topic, seconds in cases.items()])
    assert found == {"short first": 0, "long first": 0, "outage": 1}


def test_clocks_that_disagree_make_no_resets_and_lose_nothing(tmp_path: Path) -> None:
    ahead = [(second, 10 * second) for second in range(0, 601, 60)]
    behind = [(second - 40, 10 * second) for second in range(90, 601, 60)]  # 40 seconds slow
    rate = throughput_of(tmp_path, series("t", sorted([*ahead, *behind])))["t"]
    assert rate.resets <= 1  # the very last sample has none after it that would show it was late
    assert rate.records_per_second_mean == pytest.approx(10.0, rel=0.1)
    set_back = [(0, 0), (60, 600), (120, 1200), (90, 1500), (180, 1800)]
    assert throughput_of(tmp_path / "back", series("t", set_back))["t"].resets == 0


@pytest.mark.parametrize("lie", [10**18, -5])
def test_an_offset_that_cannot_be_true_moves_no_rate(tmp_path: Path, lie: int) -> None:
    honest = [(second, 10 * second) for second in range(0, 601, 60)]
    lied = [(second, lie if second == 300 else offset) for second, offset in honest]
    rate = throughput_of(tmp_path, series("t", lied))["t"]
    assert (rate.records_per_second_max, rate.records_per_second_p95) == (10.0, 10.0)


@pytest.mark.parametrize("lie", [float("nan"), float("inf"), -1.0, 1e18])
def test_a_rate_that_cannot_be_true_is_not_known(tmp_path: Path, lie: float) -> None:
    points_ = [(second, lie if second == 300 else 500.0) for second in range(60, 601, 60)]
    SampleStore(tmp_path).append(*rates("prometheus:m", points_, 60_000))
    rolled(tmp_path)
    (rate,) = read_throughput(tmp_path)
    assert (rate.bytes_per_second_mean, rate.bytes_per_second_max, rate.samples) == (500.0, 500.0, 9)
    assert (rate.covered_seconds, rate.records_per_second_mean) == (540.0, None)


def test_of_several_sources_the_better_one_tells_and_nothing_counts_twice(tmp_path: Path) -> None:
    offsets = series("t", [(second, 10 * second) for second in range(0, 1801, 60)], topic_id=None)  # half an hour
    store = SampleStore(stored(tmp_path, offsets))
    store.append(*rates("prometheus:m", [(second, 9_999.0) for second in range(60, 3600, 60)], 60_000))
    store.append(*rates("cruise-control", [(second, 77_777.0) for second in range(300, 3600, 300)], 300_000))
    rolled(tmp_path)
    (rate,) = read_throughput(tmp_path)
    assert rate.covered_seconds == 3540.0  # each minute once
    assert (rate.bytes_per_second_max, rate.resets) == (9_999.0, 0)
    assert rate.bytes_per_second_mean == pytest.approx((1_800 * 1_000 + 1_740 * 9_999) / 3_540)


def test_percentiles_weigh_intervals_by_their_seconds(tmp_path: Path) -> None:
    rate = throughput_of(tmp_path, series("t", [(0, 0), (30, 30), (60, 60), (90, 90), (91, 1090)]))["t"]
    assert (rate.records_per_second_p50, rate.records_per_second_p95) == (1.0, 1.0)
    assert (rate.records_per_second_max, rate.covered_seconds) == (1000.0, 91.0)


def test_the_interval_across_an_hour_belongs_to_the_hour_in_which_it_ends(tmp_path: Path) -> None:
    stored(tmp_path, series("t", [(second, second) for second in range(0, 7200, 60)]))
    rolled(tmp_path)
    (rate,) = read_throughput(tmp_path)
    assert (rate.covered_seconds, rate.records_per_second_mean, rate.samples) == (7140.0, 1.0, 120)
    assert START % HOUR_MS == 0


def test_records_of_unknown_size_beside_another_sources_bytes_have_percentiles(tmp_path: Path) -> None:
    SampleStore(tmp_path).append(*rates("prometheus:x", [(second, 100.0) for second in range(1260, 2000, 60)], 60_000))
    points = [(0, 0), (600, 600), (1200, 1200), (3600, 1200), (3900, 6000), (4200, 9000)]
    rate = throughput_of(tmp_path, series("t", points, size=None))["t"]
    assert (rate.bytes_per_second_p50, rate.bytes_per_second_p95, rate.records_per_second_max) == (100.0, 100.0, 16.0)

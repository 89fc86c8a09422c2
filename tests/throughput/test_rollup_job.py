"""Incremental, repeatable and killed runs; days and windows; damaged files. The same steps as the job's, without a JVM."""

from __future__ import annotations

import resource
import shutil
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import StoredTable
from mm2mgr.throughput import periods_due
from mm2mgr.throughput.hourly import hourly
from mm2mgr.throughput.rollup import bucket_of, merge_buckets, percentile, rate_of, throughput_table
from mm2mgr.throughput.rollup_job import is_due, make
from mm2mgr.throughput.windows import choose, last_hours, read_throughput, read_window
from tests.samples.rows import data_files

from .stores import HOUR_MS, START, elsewhere, rolled, series, stored

HOURS = 30
NEW = range(HOURS * 3600, HOURS * 3600 + 1200, 300)


def wave(topic: str, seconds: range, scale: int = 1) -> list[tuple[int, int]]:
    """An offset that grows unevenly."""
    return [(second, scale * (7 * second + (second // 300) % 5 * 400)) for second in seconds]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty hours from 10:00 of two topics each five minutes, as samples and rolled up: one whole day is not in it, one night's end is."""
    folder, seconds = tmp_path_factory.mktemp("templates"), range(0, HOURS * 3600, 300)
    new = stored(folder / "new", series("a", wave("a", seconds)), series("b", wave("b", seconds, 3)))
    rolled(shutil.copytree(new, folder / "rolled"))
    return folder


@pytest.fixture
def store(templates: Path, tmp_path: Path) -> Path:
    return shutil.copytree(templates / "new", tmp_path / "store")


@pytest.fixture
def rolled_store(templates: Path, tmp_path: Path) -> Path:
    return shutil.copytree(templates / "rolled", tmp_path / "store")


def contents(store: Path) -> dict[str, Any]:
    """Return the rows of each hour and day, sorted."""
    table = throughput_table(store)
    names = table.file_schema.names
    return {
        period: pa.concat_tables(
            [
                pq.read_table(path, partitioning=None)
                for path in data_files(store, "throughput")
                if path.parent.name == period
            ]
        ).select(names)
        for period in {path.parent.name for path in data_files(store, "throughput")}
    }


def test_a_new_hour_costs_an_hours_work_and_a_repeated_run_nothing(store: Path) -> None:
    assert len(rolled(store).made) == HOURS + 2  # and both days
    before = contents(store)
    assert not is_due(store)
    assert rolled(store).made == []
    stored(store, series("a", wave("a", NEW)))
    report = rolled(store)
    assert report.made == ["2025-11-22T16", "2025-11-22"]
    assert report.samples == len(NEW)
    after = contents(store)
    assert {name for name in after if name not in before} == {"period=2025-11-22T16"}
    assert [name for name, rows in before.items() if not after[name].equals(rows)] == ["period=2025-11-22"]


def test_in_one_go_or_hour_by_hour_the_numbers_are_the_same(tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    evening = 10
    for hour in range(evening, 18):  # over midnight
        seconds = range(hour * 3600, hour * 3600 + 3600, 300)
        for folder in (fast, slow):
            stored(folder, series("a", wave("a", seconds), size=100.0 if hour == evening else None))
        rolled(slow)
    rolled(fast)
    one, other = contents(slow), contents(fast)
    assert one.keys() == other.keys()
    # The day that goes on took its hours one by one: the last digits of its means may differ until it is over.
    assert {name for name, rows in one.items() if not rows.equals(other[name])} <= {"period=2025-11-22"}
    for left, right in zip(read_throughput(slow), read_throughput(fast), strict=True):
        assert astuple(left)[:3] == astuple(right)[:3]
        assert astuple(left)[3:] == pytest.approx(astuple(right)[3:], rel=1e-12)


def test_compacting_makes_no_roll_up_due_and_changes_no_number(tmp_path: Path) -> None:
    for second in range(0, 7200, 300):
        stored(tmp_path, series("a", wave("a", range(second, second + 300, 300))))
    rolled(tmp_path)
    before, samples = contents(tmp_path), SampleStore(tmp_path)
    assert samples.loose_hours() == samples.hours()
    for hour in samples.hours():
        samples.compact(hour)
    assert not is_due(tmp_path)
    shutil.rmtree(tmp_path / "throughput")
    rolled(tmp_path)
    after = contents(tmp_path)
    assert all(after[name].equals(rows) for name, rows in before.items())


def test_a_late_sample_is_taken_in_with_its_hour_and_the_next(rolled_store: Path) -> None:
    stored(rolled_store, series("a", [(5 * 3600 + 100, 7 * (5 * 3600 + 100))], size=None))
    assert rolled(rolled_store).made == ["2025-11-21T15", "2025-11-21T16", "2025-11-21"]


def test_samples_that_retention_removed_leave_their_roll_ups(rolled_store: Path) -> None:
    before = contents(rolled_store)
    SampleStore(rolled_store).expire(START + 20 * HOUR_MS)
    assert rolled(rolled_store).made == []
    assert contents(rolled_store).keys() == before.keys()


class _Killed(BaseException):
    """Stands for a process that ends here and now."""


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("call", range(1, 5))
def test_a_run_killed_between_its_commits_counts_nothing_twice(
    rolled_store: Path, call: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = read_throughput(rolled_store)
    stored(rolled_store, series("a", [(5 * 3600 + 100, 7 * (5 * 3600 + 100))], size=None))
    real, calls = StoredTable.replace, iter(range(1, 100))

    def replace(table: StoredTable, *args: Any, **more: Any) -> None:
        if (number := next(calls)) == call and not after:
            raise _Killed
        real(table, *args, **more)
        if number == call:
            raise _Killed

    monkeypatch.setattr(StoredTable, "replace", replace)
    with pytest.raises(_Killed):
        rolled(rolled_store)
    found = read_throughput(rolled_store)
    assert {rate.topic for rate in found} == {"a", "b"}
    for old, new in zip(honest, found, strict=True):
        assert new.samples <= old.samples + 1
        assert new.bytes_per_second_mean == pytest.approx(old.bytes_per_second_mean, rel=0.05)
    monkeypatch.setattr(StoredTable, "replace", real)
    rolled(rolled_store)
    assert [rate.samples for rate in read_throughput(rolled_store)] == [HOURS * 12 + 1, HOURS * 12]


def test_two_jobs_at_once_count_nothing_twice(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = StoredTable.replace

    def first_the_other(table: StoredTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(StoredTable, "replace", real)
        assert len(rolled(store).made) == HOURS + 2
        real(table, *args, **more)

    monkeypatch.setattr(StoredTable, "replace", first_the_other)
    rolled(store)
    assert [rate.samples for rate in read_throughput(store)] == [HOURS * 12, HOURS * 12]
    assert len(data_files(store, "throughput")) == HOURS + 2


def test_a_day_answers_what_its_hours_answer(rolled_store: Path) -> None:
    whole = choose(rolled_store)
    assert whole.periods == ("2025-11-21", "2025-11-22", "2025-11-22T15")
    by_day = read_window(rolled_store, whole)
    by_hour = read_window(rolled_store, whole.only(whole.hours))
    for name, column in by_hour.values.items():
        assert by_day.values[name] == pytest.approx(column, rel=1e-12), name


def test_hours_of_more_than_five_weeks_ago_leave_their_days_and_days_go_after_400_days(tmp_path: Path) -> None:
    day, long_ago = 24 * 3600, -500 * 24 * 3600

    def after(days: int, hours: int) -> list[str]:
        start = long_ago + days * day
        stored(
            tmp_path,
            series("a", [(second, 10 * (second - start)) for second in range(start, start + hours * 3600, 600)]),
        )
        rolled(tmp_path)
        return sorted({file.values[0] for file in throughput_table(tmp_path).files()})

    (first, *_) = after(0, 3)
    assert sorted(map(len, after(370, 3))) == [10, 10, *[13] * 3]
    assert sorted(map(len, periods := after(401, 3))) == [10, 10, *[13] * 6]
    assert first[:10] not in periods
    assert sorted(map(len, after(443, 1))) == [10, 10, 13]
    found = read_throughput(tmp_path)
    assert found[0].samples == 18 + 18 + 6
    assert not is_due(tmp_path)
    assert "and 2 days" in choose(tmp_path).text()


def test_windows_are_whole_hours_and_their_maxima_and_means_exact(rolled_store: Path) -> None:
    assert last_hours(rolled_store, 7200).hours == ("2025-11-22T14", "2025-11-22T15")
    assert last_hours(rolled_store, 7201).hours[0] == "2025-11-22T13"
    found = read_window(rolled_store, last_hours(rolled_store, 7200))
    seconds = [second for second, _ in wave("a", range(28 * 3600 - 300, HOURS * 3600, 300))]
    offsets = [offset for _, offset in wave("a", range(28 * 3600 - 300, HOURS * 3600, 300))]
    steps = np.diff(offsets) / 300 * 100
    kept = steps[steps >= 0]
    assert len(seconds) == 25
    assert found.values["bytes_per_second_max"][0] == kept.max()
    assert found.values["bytes_per_second_mean"][0] == pytest.approx(kept.mean())
    assert found.values["bytes_per_second_p95"][0] == pytest.approx(
        np.quantile(kept, 0.95, method="inverted_cdf"), rel=0.02
    )
    assert hourly(rolled_store, found.window, found).shape == (2, 2)
    with pytest.raises(Mm2mgrError, match="no throughput since") as caught:
        choose(rolled_store, START + 99 * HOUR_MS)
    assert "2025-11-21T10 to 2025-11-22T15" in str(caught.value.hint)


@settings(deadline=None)
@given(rates=st.lists(st.tuples(st.floats(0.001, 1e12), st.integers(1, 90_000)), min_size=1, max_size=60))
def test_percentiles_of_merged_sketches_are_two_percent_off_at_most(rates: list[tuple[float, int]]) -> None:
    values, weights = np.array([rate for rate, _ in rates]), np.array([weight for _, weight in rates])
    one, bucket, weight = merge_buckets(
        np.zeros(1, np.int64), np.array([len(rates)]), bucket_of(values).astype(np.int64), weights
    )
    noted = np.repeat(values, weights)
    for share in (0.5, 0.95):
        (found,) = percentile(one, rate_of(bucket), weight, share, 1)
        assert found == pytest.approx(np.quantile(noted, share, method="inverted_cdf"), rel=0.0201)


def test_damaged_and_lost_samples_are_named_and_the_rest_is_right(store: Path) -> None:
    before = set(data_files(store))
    stored(store, series("a", [(7_300, 52_100)], size=None))
    stored(store, series("b", [(11_000, 232_000)], size=None))
    stored(store, series("b", [(15_000, 315_000)], size=None))
    broken, empty, lost = sorted(set(data_files(store)) - before)
    broken.write_bytes(b"PAR1 not really PAR1".ljust(broken.stat().st_size))
    empty.write_bytes(bytes(empty.stat().st_size))
    lost.unlink()
    assert set(rolled(store).unreadable) == {str(broken), str(empty), str(lost)}
    assert [rate.samples for rate in read_throughput(store)] == [HOURS * 12, HOURS * 12]


def test_a_damaged_roll_up_says_how_to_get_it_back(rolled_store: Path) -> None:
    file = data_files(rolled_store, "throughput", "2025-11-22T15")[0]
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(Mm2mgrError, match="a roll-up is not readable") as caught:
        read_throughput(rolled_store)
    assert f"move {rolled_store / 'throughput'} away first" in str(caught.value.hint)
    shutil.move(rolled_store / "throughput", rolled_store.parent / "beside")
    rolled(rolled_store)
    assert len(read_throughput(rolled_store)) == 2


def test_a_topic_created_anew_is_one_partition_with_a_reset(tmp_path: Path) -> None:
    old = series("t", [(second, 5 * second) for second in range(0, 1800, 60)], topic_id="old")
    new = series("t", [(second, 5 * second - 9_000) for second in range(1800, 3600, 60)], topic_id="new")
    unnamed = series("t", [(second, 5 * second - 9_000) for second in range(3600, 5400, 60)], topic_id=None, size=None)
    stored(tmp_path, old, new, unnamed)
    rolled(tmp_path)
    (rate,) = read_throughput(tmp_path)
    assert (rate.samples, rate.resets) == (90, 1)  # samples without an id are of the topic as it was known last
    assert (rate.records_per_second_mean, rate.covered_seconds) == (5.0, 89 * 60 - 60)


def test_shares_of_topics_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in range(0, 7200, 600):
        stored(
            tmp_path,
            *[series(f"t{n}", wave(f"t{n}", range(minute, minute + 600, 300), n + 1)) for n in range(9)],
            elsewhere(series("t3", wave("t3", range(minute, minute + 600, 300))), "dc2"),
        )
    rolled(tmp_path)
    whole = read_throughput(tmp_path)
    assert len(whole) == 10
    shutil.rmtree(tmp_path / "throughput")
    monkeypatch.setattr(periods_due, "_ROWS_PER_UNIT", 20)
    SampleStore(tmp_path).compact("2025-11-21T11")
    rolled(tmp_path)
    assert len(data_files(tmp_path, "throughput")) > 6
    assert read_throughput(tmp_path) == whole


def test_a_full_disk_leaves_what_there_was(rolled_store: Path) -> None:
    before = contents(rolled_store)
    stored(rolled_store, series("a", wave("a", NEW)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 200, 900, 3_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(Mm2mgrError, match="File too large"):
                make(rolled_store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert contents(rolled_store).keys() == before.keys()
    assert make(rolled_store).made == ["2025-11-22T16", "2025-11-22"]


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no samples in") as caught:
        is_due(tmp_path)
    assert "mm2mgr sample" in str(caught.value.hint)

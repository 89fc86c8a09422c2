"""Incremental, repeatable and killed runs; days and windows; damaged files. The same steps as the job's, without a JVM."""

from __future__ import annotations

import shutil
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import plan
from mm2mgr.throughput.make import is_due, make, one_by_one
from mm2mgr.throughput.sketch import bucket_of, merged, percentile, rate_of
from mm2mgr.throughput.table import read_throughput
from mm2mgr.throughput.windows import choose, hourly, last_hours, read_window

from .stores import HOUR_MS, START, rolled, series, stored

HOURS = 30
NEW = range(HOURS * 3600, HOURS * 3600 + 1200, 300)


def wave(topic: str, seconds: range, scale: int = 1) -> list[tuple[int, int]]:
    """An offset that grows unevenly."""
    return [(second, scale * (7 * second + (second // 300) % 5 * 400)) for second in seconds]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Thirty hours from 10:00 of two topics each five minutes: one whole day is not in it, one night's end is."""
    seconds = range(0, HOURS * 3600, 300)
    return stored(tmp_path / "store", series("a", wave("a", seconds)), series("b", wave("b", seconds, 3)))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "rollups").rglob("*"))
        if path.is_file()
    }


def test_a_new_hour_costs_an_hours_work_and_a_repeated_run_nothing(store: Path) -> None:
    assert len(rolled(store).made) == HOURS + 2  # and both days
    before = contents(store)
    assert not is_due(store)
    assert rolled(store).made == []
    stored(store, series("a", wave("a", NEW)))
    report = rolled(store)
    assert report.made == ["hour=2025-11-22T16", "day=2025-11-22"]
    assert report.samples == len(NEW)
    after = contents(store)
    assert [name for name in before if after[name] != before[name]] == [
        "rollups/day=2025-11-22/.made-from.json",
        "rollups/day=2025-11-22/part-0000000000.parquet",
    ]


def test_in_one_go_or_hour_by_hour_the_bytes_are_the_same(store: Path, tmp_path: Path) -> None:
    rolled(store)
    slow = tmp_path / "slow"
    shutil.copytree(store / "dictionary", slow / "dictionary")
    shutil.copy(store / "LAYOUT", slow / "LAYOUT")
    for hour in sorted(store.glob("hour=*")):
        shutil.copytree(hour, slow / hour.name)
        rolled(slow)
    # The day that goes on took its hours one by one: the last digits of its means may differ until it is over.
    fast, running = contents(store), "rollups/day=2025-11-22/part-0000000000.parquet"
    assert [name for name, bytes_ in contents(slow).items() if bytes_ != fast[name]] in ([], [running])
    for one, other in zip(read_throughput(slow), read_throughput(store), strict=True):
        assert astuple(one)[:3] == astuple(other)[:3]
        assert astuple(one)[3:] == pytest.approx(astuple(other)[3:], rel=1e-12)


def test_compacting_changes_no_number(store: Path) -> None:
    rolled(store)
    before = read_throughput(store)
    samples = SampleStore(store)
    for hour in samples.hours():
        samples.compact(hour)
    assert len(rolled(store).made) == HOURS + 2
    assert read_throughput(store) == before


def test_a_late_sample_is_taken_in_with_its_hour_and_the_next(store: Path) -> None:
    rolled(store)
    stored(store, series("a", [(5 * 3600 + 100, 7 * (5 * 3600 + 100))], size=None))
    assert rolled(store).made == ["hour=2025-11-21T15", "hour=2025-11-21T16", "day=2025-11-21"]


def test_samples_that_retention_removed_leave_their_roll_ups(store: Path) -> None:
    rolled(store)
    before = contents(store)
    SampleStore(store).expire(START + 20 * HOUR_MS)
    assert rolled(store).made == []
    assert contents(store) == before


class _Killed(BaseException):
    """Stands for a process that ends here and now."""


@pytest.mark.parametrize("call", range(1, 12))
def test_a_run_killed_while_it_gives_names_counts_nothing_twice(
    store: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled(store)
    honest = read_throughput(store)
    stored(store, series("a", [(5 * 3600 + 100, 7 * (5 * 3600 + 100))], size=None))
    real, calls = plan.os.replace, iter(range(1, 100))

    def replace(source: object, target: object) -> None:
        if next(calls) == call:
            raise _Killed
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(plan.os, "replace", replace)
    try:
        rolled(store)
    except _Killed:
        found = read_throughput(store)
        assert {rate.topic for rate in found} == {"a", "b"}
        for old, new in zip(honest, found, strict=True):
            assert new.samples <= old.samples + 1
            assert new.bytes_per_second_mean == pytest.approx(old.bytes_per_second_mean, rel=0.05)
    monkeypatch.setattr(plan.os, "replace", real)
    rolled(store)
    assert [rate.samples for rate in read_throughput(store)] == [HOURS * 12 + 1, HOURS * 12]


def test_drafts_of_a_killed_run_are_swept_and_a_second_run_is_refused(store: Path) -> None:
    litter = store / "rollups" / ".drafts" / "half.parquet"
    litter.parent.mkdir(parents=True)
    litter.write_bytes(b"PAR1 half")
    with plan.alone(store), pytest.raises(Mm2mgrError, match="another throughput job is at work"):
        rolled(store)
    assert not litter.exists()
    rolled(store)
    assert not (store / "rollups" / ".drafts").exists()


def test_a_day_answers_what_its_hours_answer(store: Path) -> None:
    rolled(store)
    whole = choose(store)
    assert (whole.days, whole.loose_hours) == (("2025-11-21", "2025-11-22"), ("2025-11-22T15",))
    by_day = read_window(store, whole)
    for day in whole.days:
        shutil.rmtree(store / "rollups" / f"day={day}")
    by_hour = read_window(store, choose(store))
    for name, column in by_hour.values.items():
        assert by_day.values[name] == pytest.approx(column, rel=1e-12), name


def test_windows_are_whole_hours_and_their_maxima_and_means_exact(store: Path) -> None:
    rolled(store)
    assert last_hours(store, 7200).hours == ("2025-11-22T14", "2025-11-22T15")
    assert last_hours(store, 7201).hours[0] == "2025-11-22T13"
    found = read_window(store, last_hours(store, 7200))
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
    assert hourly(store, found.window, found).shape == (2, 2)
    with pytest.raises(Mm2mgrError, match="no throughput since") as caught:
        choose(store, START + 99 * HOUR_MS)
    assert "2025-11-21T10 to 2025-11-22T15" in str(caught.value.hint)


@settings(deadline=None)
@given(rates=st.lists(st.tuples(st.floats(0.001, 1e12), st.integers(1, 90_000)), min_size=1, max_size=60))
def test_percentiles_of_merged_sketches_are_two_percent_off_at_most(rates: list[tuple[float, int]]) -> None:
    values, weights = np.array([rate for rate, _ in rates]), np.array([weight for _, weight in rates])
    one, bucket, weight = merged(
        np.zeros(1, np.int64), np.array([len(rates)]), bucket_of(values).astype(np.int64), weights
    )
    noted = np.repeat(values, weights)
    for share in (0.5, 0.95):
        (found,) = percentile(one, rate_of(bucket), weight, share, 1)
        assert found == pytest.approx(np.quantile(noted, share, method="inverted_cdf"), rel=0.0201)


def test_damaged_samples_are_named_and_the_rest_is_right(store: Path) -> None:
    stored(store, series("a", [(7_300, 52_100)], size=None))
    stored(store, series("b", [(11_000, 232_000)], size=None))
    (broken,) = [
        path for path in (store / "hour=2025-11-21T12").glob("*.parquet") if pq.read_metadata(path).num_rows == 1
    ]
    (empty,) = [
        path for path in (store / "hour=2025-11-21T13").glob("*.parquet") if pq.read_metadata(path).num_rows == 1
    ]
    whole = broken.read_bytes()
    broken.write_bytes(b"PAR1 not really PAR1")
    empty.write_bytes(b"")
    assert set(rolled(store).unreadable) == {str(broken), str(empty)}
    assert [rate.samples for rate in read_throughput(store)] == [HOURS * 12, HOURS * 12]
    broken.write_bytes(whole)
    assert rolled(store).made == ["hour=2025-11-21T12", "hour=2025-11-21T13", "day=2025-11-21"]
    assert [rate.samples for rate in read_throughput(store)] == [HOURS * 12 + 1, HOURS * 12]


def test_a_damaged_roll_up_says_how_to_get_it_back(store: Path) -> None:
    rolled(store)
    part = next(store.glob("rollups/day=*/part-*.parquet"))
    part.write_bytes(b"PAR1")
    with pytest.raises(Mm2mgrError, match="a roll-up is not readable") as caught:
        read_throughput(store)
    assert "rollups" in str(caught.value.hint)
    shutil.rmtree(store / "rollups")
    rolled(store)
    assert len(read_throughput(store)) == 2


def test_files_of_an_older_version_lack_columns_and_are_read(store: Path) -> None:
    for path in store.glob("hour=2025-11-21T1*/*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.select(["partition_id", "time_ms", "end_offset", "source"]), path)
    assert rolled(store).unreadable == {}
    assert {rate.samples for rate in read_throughput(store)} == {HOURS * 12}


def test_a_full_disk_leaves_what_there_was(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled(store)
    before = contents(store)
    stored(store, series("a", wave("a", NEW)))

    def full(units: object) -> list[str]:
        raise OSError(28, "No space left on device")

    with pytest.raises(Mm2mgrError, match="No space left on device"):
        make(store, full)
    assert contents(store) == before
    assert make(store, one_by_one).made == ["hour=2025-11-22T16", "day=2025-11-22"]


def test_another_layout_and_an_empty_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no samples in") as caught:
        is_due(tmp_path)
    assert "mm2mgr sample" in str(caught.value.hint)
    (tmp_path / "LAYOUT").write_text("mm2mgr samples, layout 1\n")
    with pytest.raises(Mm2mgrError, match="layout 1"):
        is_due(tmp_path)
    with pytest.raises(Mm2mgrError, match="layout 1"):
        read_throughput(tmp_path)

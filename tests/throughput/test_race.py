"""The job and readers beside a sampler that compacts, expires and samples on: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.make import is_due
from mm2mgr.throughput.parts import read_parts
from mm2mgr.throughput.table import read_throughput
from mm2mgr.throughput.windows import hourly, last_hours, read_window

from .stores import HOUR_MS, START, rolled, series, stored

HOURS = 3
STEP = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three hours of a topic, a file a poll: twelve an hour, not compacted."""
    for second in range(0, HOURS * 3600, STEP):
        stored(tmp_path, series("t", [(second, 10 * second)], size=100.0 if not second else None))
    return tmp_path


@contextmanager
def before_opening(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[Path], Any]) -> Iterator[list[Path]]:
    """Do something when file number `number` (from 1) is about to be opened, and let the opener go on."""
    real, opened, busy = pq.ParquetFile, list[Path](), threading.Lock()

    def opening(path: Any, *args: Any, **more: Any) -> Any:
        if busy.acquire(blocking=False):  # what is done opens files too
            try:
                opened.append(Path(path))
                if len(opened) == number:
                    do(Path(path))
            finally:
                busy.release()
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", opening)
        yield opened


def compact_all(folder: Path) -> None:
    samples = SampleStore(folder)
    for hour in samples.loose_hours():
        samples.compact(hour)


@pytest.mark.parametrize("number", [1, 2, 12, 13, 20, 30, 36])
def test_an_hour_that_is_compacted_while_the_job_reads_it_is_read_whole(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with before_opening(monkeypatch, number, lambda _: compact_all(store)) as opened:
        report = rolled(store)
    assert len(opened) >= number
    assert report.unreadable == {}
    (rate,) = read_throughput(store)
    assert (rate.samples, rate.covered_seconds, rate.gaps) == (HOURS * 12, HOURS * 3600 - STEP, 0)
    rolled(store)
    assert read_throughput(store) == [rate]
    assert not is_due(store)


def test_an_hour_that_retention_removes_while_the_job_reads_it_spoils_no_other(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with before_opening(monkeypatch, 5, lambda _: SampleStore(store).expire(START + HOUR_MS)):
        report = rolled(store)
    assert report.unreadable == {}
    rolled(store)
    (rate,) = read_throughput(store)
    assert rate.samples in (24, 36)
    assert (rate.resets, rate.gaps, rate.records_per_second_max) == (0, 0, 10.0)


@pytest.mark.parametrize(("number", "lost_seconds"), [(1, STEP), (2, 0)])
def test_retention_beside_a_job_takes_no_roll_up_away(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int, lost_seconds: int
) -> None:
    rolled(store)
    (before,) = read_throughput(store)
    SampleStore(store).compact(hour_of(START))  # so that the job makes this hour and the next one anew
    with before_opening(monkeypatch, number, lambda _: SampleStore(store).expire(START + HOUR_MS)):
        report = rolled(store)
    assert f"hour={hour_of(START)}" not in report.made
    assert SampleStore(store).hours()[0] == hour_of(START + HOUR_MS)
    (rate,) = read_throughput(store)
    # The first interval of the second hour needs the last sample of the first one.
    assert (rate.samples, rate.covered_seconds) == (before.samples, before.covered_seconds - lost_seconds)
    assert not is_due(store)


@pytest.mark.parametrize("number", [1, 3, 12])
def test_reading_samples_beside_a_compaction_misses_none(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    said: list[str] = []
    samples = SampleStore(store, said.append)
    whole = samples.read()
    with before_opening(monkeypatch, number, lambda _: compact_all(store)):
        assert samples.read().equals(whole)
    with before_opening(monkeypatch, 1, lambda _: compact_all(store)):
        assert samples.newest_ms() == START + (HOURS * 3600 - STEP) * 1000
    assert said == []


def test_a_day_that_is_merged_while_it_is_read_counts_no_hour_twice(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled(store)
    more = range(HOURS * 3600, 4 * 3600 + 3 * STEP, STEP)  # an hour, and the beginning of the next
    stored(store, series("t", [(second, 10 * second) for second in more], size=None))

    def late(paths: Any, columns: Any) -> Any:
        monkeypatch.undo()
        rolled(store)  # the day takes in an hour that the reader still means to add
        return read_parts(paths, columns)

    monkeypatch.setattr("mm2mgr.throughput.windows.read_parts", late)
    (rate,) = read_throughput(store)
    assert rate.samples in (HOURS * 12, 4 * 12 + 3)
    assert rate.covered_seconds == (rate.samples - 1) * STEP


def test_hours_read_after_a_job_added_partitions_are_those_of_the_partitions_known(store: Path) -> None:
    rolled(store)
    window = last_hours(store, None)
    found = read_window(store, window)
    before = hourly(store, window, found)
    stored(store, series("new", [(second, second) for second in range(0, 3600, STEP)]))
    rolled(store)
    assert np.array_equal(hourly(store, window, found), before, equal_nan=True)


def test_a_sampler_that_runs_on_beside_many_jobs_loses_nothing(tmp_path: Path) -> None:
    stop, polls = threading.Event(), 150

    def sample() -> None:
        samples = SampleStore(tmp_path)
        try:
            for number in range(1, polls):
                stored(tmp_path, series("t", [(number * STEP, 10 * number * STEP)], size=None))
                if number % 12 == 3:
                    for hour in samples.loose_hours()[:-1]:
                        samples.compact(hour)
        finally:
            stop.set()

    stored(tmp_path, series("t", [(0, 0)]))
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        jobs, seen = 0, 0
        while not stop.is_set():
            assert rolled(tmp_path).unreadable == {}
            (rate,) = read_throughput(tmp_path)
            assert rate.samples >= seen, "what was rolled up stays rolled up"
            assert rate.covered_seconds == (rate.samples - 1) * STEP, "each poll once, none left out in between"
            jobs, seen = jobs + 1, rate.samples
    finally:
        sampler.join(60)
    assert jobs >= 3
    rolled(tmp_path)
    (rate,) = read_throughput(tmp_path)
    assert (rate.samples, rate.records_per_second_mean, rate.resets) == (polls, 10.0, 0)

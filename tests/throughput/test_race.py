"""The job and readers beside a sampler that compacts, expires and samples on: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import Store
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import DataFile, StoredTable
from mm2mgr.throughput.hourly import hourly
from mm2mgr.throughput.rollup_job import is_due, make
from mm2mgr.throughput.rollup_reader import RollupReader
from mm2mgr.throughput.rollup_writer import Report, ThroughputWriter, WrittenFiles
from mm2mgr.throughput.windows import choose, last_hours, read_throughput, read_window

from .stores import HOUR_MS, START, rolled, series, stored

HOURS = 3
STEP = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three hours of a topic, a file a poll: twelve an hour, not compacted."""
    for second in range(0, HOURS * 3600, STEP):
        stored(tmp_path, series("t", [(second, 10 * second)], size=100.0 if not second else None))
    return tmp_path


def test_compaction_and_retention_between_the_plan_of_a_job_and_its_work_change_nothing(store: Path) -> None:
    samples = SampleStore(store)

    def late(store: Store, options: Mapping[str, str]) -> Report:
        reader, writer = RollupReader(store, **options), ThroughputWriter(store)
        units = reader.partitions()
        for hour in samples.hours():
            samples.compact(hour)
        samples.expire(START + HOUR_MS)
        samples.vacuum()
        return writer.commit([writer.write(reader.read(unit)) for unit in units])

    report = make(store, late)
    assert (report.samples, report.unreadable) == (HOURS * 12, {})
    (rate,) = read_throughput(store)
    assert (rate.samples, rate.records_per_second_mean) == (HOURS * 12, 10.0)
    assert not is_due(store)


def test_a_window_reads_the_files_it_was_chosen_with(store: Path) -> None:
    rolled(store)
    window = choose(store)
    before = read_window(store, window).values
    stored(store, series("t", [(HOURS * 3600 - 150, 10 * (HOURS * 3600 - 150))], size=None))
    rolled(store)
    again = read_window(store, window).values
    assert all(np.array_equal(before[name], again[name], equal_nan=True) for name in before)
    assert read_throughput(store)[0].samples == HOURS * 12 + 1


def test_hours_read_after_a_job_added_partitions_are_those_of_the_partitions_known(store: Path) -> None:
    rolled(store)
    window = last_hours(store, 3600.0)
    found = read_window(store, window)
    before = hourly(store, window, found)
    stored(store, series("a new topic", [(second, 7 * second) for second in range(2 * 3600, 3 * 3600, STEP)]))
    rolled(store)
    assert np.array_equal(hourly(store, last_hours(store, 3600.0), found), before, equal_nan=True)


def test_a_task_that_cannot_read_what_the_driver_reads_fails_the_job(
    store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("an executor's own folder")

    def blind(store: Store, options: Mapping[str, str]) -> Report:
        reader, writer = RollupReader(store, **options), ThroughputWriter(store)
        units = [replace(unit, store=elsewhere) for unit in reader.partitions()]
        return writer.commit([writer.write(reader.read(unit)) for unit in units])

    with pytest.raises(Mm2mgrError, match=r"cannot read or write the tables of .*No such file.*every machine"):
        make(store, blind)
    assert is_due(store)
    with pytest.raises(Mm2mgrError, match="holds no throughput"):
        choose(store)


def test_what_a_task_wrote_out_of_sight_of_the_driver_fails_the_job(store: Path) -> None:
    lost = DataFile("period=2025-11-21T10/part-lost.parquet", 100, 1, ("2025-11-21T10", "12+0 v1"))

    def wrote_elsewhere(store: Store, options: Mapping[str, str]) -> Report:
        return ThroughputWriter(store).commit(
            [WrittenFiles({"2025-11-21T10": "12+0 v1"}, {"2025-11-21T10": [(0, 1)]}, [lost])]
        )

    with pytest.raises(Mm2mgrError, match=r"part-lost.parquet, which the driver does not see; nothing was changed"):
        make(store, wrote_elsewhere)
    assert is_due(store)


def test_samples_that_may_not_be_read_fail_the_job_and_damaged_ones_do_not(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = StoredTable.read_file

    def refused(table: StoredTable, file: DataFile, *args: object) -> object:
        if table.name == "samples":
            raise PermissionError(13, "Permission denied")
        return real(table, file, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredTable, "read_file", refused)
    with pytest.raises(Mm2mgrError, match="Permission denied"):
        rolled(store)
    monkeypatch.setattr(StoredTable, "read_file", real)
    assert is_due(store)


def test_a_sampler_that_runs_on_beside_many_jobs_loses_nothing(tmp_path: Path) -> None:
    stop, polls = threading.Event(), 60

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

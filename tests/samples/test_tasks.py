"""The history of tasks on disk: written whole, one file an hour, counted once after a crash, and gone when it is old."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore, TaskRow, TaskStore
from mm2mgr.samples.tables import StoredTable
from tests.samples.rows import stored

from .rows import data_files

TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
MINUTE, HOUR = 60_000, 3_600_000
ROW = TaskRow("w", "mm2.a.b.source.logs", "a", "b", "s", 0, TEN, 0, 0.0, 9, 60_000)


def row(minute: int, task: int = 0, rate: float = 1e6) -> TaskRow:
    return replace(ROW, task=task, time_ms=TEN + minute * MINUTE, span_ms=MINUTE, bytes_per_second=rate)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> TaskStore:
    return TaskStore(tmp_path, warnings.append)


def hours(folder: Path) -> list[str]:
    """The hour of each file of the table."""
    return [path.parent.name.removeprefix("hour=") for path in data_files(folder, "task_offsets")]


def test_rows_come_back_in_order_and_once(store: TaskStore) -> None:
    store.append([row(1, task=1), row(1)])
    store.append([row(0)])
    store.append([row(0)])
    assert store.read() == [row(0), row(1), row(1, task=1)]
    assert store.read(TEN + 1) == [row(1), row(1, task=1)]


def test_no_rows_make_no_file(store: TaskStore, tmp_path: Path) -> None:
    store.append([])
    store.tidy(TEN)
    assert (list(tmp_path.iterdir()), store.read()) == ([], [])


def test_an_hour_that_is_over_becomes_one_file(store: TaskStore, tmp_path: Path) -> None:
    for minute in (*range(0, 60, 5), *range(60, 70)):
        store.append([row(minute)])
    before = store.read()
    store.tidy(TEN + HOUR + 10 * MINUTE)
    assert hours(tmp_path) == ["2025-11-21T10", *["2025-11-21T11"] * 10]
    assert store.read() == before
    store.append([row(59, rate=2e6)])  # late
    store.tidy(TEN + HOUR + 10 * MINUTE)
    assert len(hours(tmp_path)) == 11
    assert len(store.read()) == 23


def test_of_an_hour_the_tasks_that_lagged_longest_stay_whatever_they_carried(store: TaskStore) -> None:
    for minute in range(3):
        tasks = [task for task in range(9) if task in range(2, 6) or minute < 2]
        store.append([row(minute, task, rate=1e6 * (1 + task)) for task in tasks])
    other = replace(row(1), settings="larger fetches")
    store.append([other])
    store.tidy(TEN + 2 * HOUR)
    assert {one.task for one in store.read() if one.settings == "s"} == {2, 3, 4, 5}
    assert len(store.read()) == 4 * 3 + 1
    assert other in store.read()


def test_two_that_tidy_at_once_count_nothing_twice(
    store: TaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(5):
        store.append([row(minute)])
    other, real = TaskStore(tmp_path, str), StoredTable.replace

    def first_the_other(table: StoredTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(StoredTable, "replace", real)
        other.tidy(TEN + HOUR)
        real(table, *args, **more)

    monkeypatch.setattr(StoredTable, "replace", first_the_other)
    store.tidy(TEN + HOUR)
    assert hours(tmp_path) == ["2025-11-21T10"]
    assert len(store.read()) == 5


def test_a_damaged_file_costs_its_own_rows_and_stays(store: TaskStore, tmp_path: Path, warnings: list[str]) -> None:
    store.append([row(0)])
    (first,) = data_files(tmp_path, "task_offsets")
    store.append([row(1)])
    first.write_bytes(first.read_bytes()[:100])
    assert store.read() == [row(1)]
    store.tidy(TEN + HOUR)
    assert first.exists()
    assert store.read() == [row(1)]
    assert all(first.name in warning for warning in warnings)


def test_what_is_older_than_kept_goes(store: TaskStore, tmp_path: Path) -> None:
    store.append([row(0)])
    store.append([row(70)])
    for hour in (2, 3):  # samples beside it bear out that the time has passed
        SampleStore(tmp_path).append(Batch("a", "test", TEN + hour * HOUR, ["t"], [0], end_offset=[7]))
    store.tidy(TEN + 3 * HOUR, keep_seconds=7_200)
    assert hours(tmp_path) == ["2025-11-21T11"]


def test_it_leaves_the_samples_alone(store: TaskStore, tmp_path: Path) -> None:
    store.append([row(0)])
    samples = SampleStore(tmp_path)
    samples.append(Batch("a", "test", TEN, ["t"], [0], end_offset=[7]))
    store.tidy(TEN + HOUR)
    assert (samples.hours(), len(stored(samples))) == (["2025-11-21T10"], 1)

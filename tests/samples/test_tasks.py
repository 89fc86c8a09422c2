"""The history of tasks on disk: written whole, one file an hour, counted once after a crash, and gone when it is old."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples import tasks as tasks_module
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tasks import TaskRow, TaskStore

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


def names(folder: Path) -> list[str]:
    return sorted(path.name[:18] for path in (folder / "tasks").iterdir())


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
    for minute in range(70):
        store.append([row(minute)])
    before = store.read()
    store.tidy(TEN + HOUR + 10 * MINUTE)
    assert [name for name in names(tmp_path) if "T10" in name] == ["2025-11-21T10-hour"]
    assert len(names(tmp_path)) == 11
    assert store.read() == before
    store.append([row(59, rate=2e6)])  # late
    store.tidy(TEN + HOUR + 10 * MINUTE)
    assert len(names(tmp_path)) == 11
    assert len(store.read()) == 71


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


def test_a_crash_between_the_new_file_and_the_old_ones_counts_nothing_twice(
    store: TaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(5):
        store.append([row(minute)])
    monkeypatch.setattr(tasks_module, "_remove", lambda paths: None)
    store.tidy(TEN + HOUR)
    assert len(names(tmp_path)) == 6
    assert len(store.read()) == 5
    monkeypatch.undo()
    store.tidy(TEN + HOUR)
    assert names(tmp_path) == ["2025-11-21T10-hour"]
    assert len(store.read()) == 5


def test_a_draft_that_a_killed_process_left_is_no_file(store: TaskStore, tmp_path: Path) -> None:
    store.append([row(0)])
    (tmp_path / "tasks" / ".2025-11-21T10-1.parquet.abc").write_bytes(b"half")
    (tmp_path / "tasks" / "notes.parquet").write_bytes(b"somebody's")
    assert store.read() == [row(0)]


def test_a_damaged_file_costs_its_own_rows_and_stays(store: TaskStore, tmp_path: Path, warnings: list[str]) -> None:
    store.append([row(0)])
    store.append([row(1)])
    first = min((tmp_path / "tasks").iterdir())
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
    assert names(tmp_path) == ["2025-11-21T11-hour"]


def test_it_shares_the_layout_of_the_samples_and_leaves_them_alone(store: TaskStore, tmp_path: Path) -> None:
    store.append([row(0)])
    samples = SampleStore(tmp_path)
    samples.append(Batch("a", "test", TEN, ["t"], [0], end_offset=[7]))
    store.tidy(TEN + HOUR)
    assert (samples.hours(), len(samples.read())) == (["2025-11-21T10"], 1)
    (tmp_path / "LAYOUT").write_text("mm2mgr samples, layout 9\n")
    for refused in (store.read, lambda: store.append([row(0)]), lambda: store.tidy(TEN)):
        with pytest.raises(Mm2mgrError, match="layout 9"):
            refused()


def test_a_full_disk_leaves_what_was_there(store: TaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([row(0)])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mm2mgr.samples.tasks.pq.write_table", full)
    with pytest.raises(Mm2mgrError, match="No space left on device"):
        store.append([row(1)])
    with pytest.raises(Mm2mgrError, match="No space left on device"):
        store.tidy(TEN + HOUR)
    assert store.read() == [row(0)]

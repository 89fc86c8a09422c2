"""Executors that do not see the driver's store fail the job; roll-ups and what is due stay as they were.

An executor elsewhere is one whose paths lead to another folder: no JVM is needed for that.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import hours as hours_module
from mm2mgr.throughput import unit as unit_module
from mm2mgr.throughput.make import is_due, make, one_by_one
from mm2mgr.throughput.session import failure
from mm2mgr.throughput.table import read_throughput
from mm2mgr.throughput.unit import Unit, work

from .stores import rolled, series, stored

STEP = 300
HOURS = 26  # so that a day is over, and another has begun


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A day of a topic, rolled up, and two hours more that are not."""
    folder = tmp_path / "store"
    stored(folder, series("t", [(second, 10 * second) for second in range(0, (HOURS - 2) * 3600, STEP)]))
    rolled(folder)
    late = range((HOURS - 2) * 3600 - STEP // 2, HOURS * 3600, STEP)
    stored(folder, series("t", [(second, 10 * second) for second in late], size=None))
    return folder


def elsewhere(store: Path, other: Path) -> Callable[[Sequence[Unit]], list[str]]:
    """Do units where the store's path leads to another folder."""
    store = store.resolve()

    def there(value: Any) -> Any:
        return value.replace(str(store), str(other)) if isinstance(value, str) else value

    def spread(units: Sequence[Unit]) -> list[str]:
        moved = [replace(one, **{each.name: there(getattr(one, each.name)) for each in fields(one)}) for one in units]
        return [work(one).replace(str(other), str(store)) for one in moved]

    return spread


def state(store: Path) -> dict[str, bytes]:
    """What the store keeps, without locks."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def empty(store: Path, other: Path) -> None:
    other.mkdir()


def absent(store: Path, other: Path) -> None:
    pass


def a_copy(store: Path, other: Path) -> None:
    """Yesterday's copy: samples are there, but what is written there nobody sees."""
    shutil.copytree(store, other)


@pytest.mark.parametrize("make_other", [empty, absent, a_copy])
def test_executors_that_see_another_folder_fail_the_job_and_nothing_is_lost(
    store: Path, tmp_path: Path, make_other: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "other"
    make_other(store, other)
    before, rates = state(store), read_throughput(store)
    with pytest.raises(Mm2mgrError) as caught:
        make(store, elsewhere(store, other))
    assert "does not see the store as the driver does" in caught.value.message
    assert "mount the store under this path on every machine that runs executors" in caught.value.message
    assert state(store) == before
    assert read_throughput(store) == rates
    assert is_due(store)
    make(store, one_by_one)
    (rate,) = read_throughput(store)
    assert rate.samples > rates[0].samples


def stale(monkeypatch: pytest.MonkeyPatch, hides: Callable[[Path], bool]) -> None:
    """Let tasks miss files that the driver sees, as a cached listing of a network file system does."""
    listed, read = hours_module.sample_files_of, unit_module.read_hour

    def reading(*at: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(
                hours_module, "sample_files_of", lambda *here: [path for path in listed(*here) if not hides(path)]
            )
            return read(*at)

    monkeypatch.setattr(unit_module, "read_hour", reading)


def test_a_file_that_a_task_misses_fails_the_job(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(store)
    newest = max(store.glob("hour=*/*.parquet"), key=lambda path: path.name)
    with monkeypatch.context() as patch:
        stale(patch, lambda path: path == newest.resolve())
        with pytest.raises(Mm2mgrError, match=f"a task did not see {newest.resolve()}, which the driver sees"):
            rolled(store)
    assert state(store) == before
    rolled(store)
    assert not is_due(store)


def test_a_part_that_a_task_misses_is_not_left_out_of_the_day(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = read_throughput(store)
    real = unit_module.require

    def late(folder: Path, told: Any) -> list[Path]:
        hidden = [path.rename(path.with_suffix(".hidden")) for path in folder.glob("part-*.parquet")]
        try:
            return real(folder, told)
        finally:
            for path in hidden:
                path.rename(path.with_suffix(".parquet"))

    monkeypatch.setattr(unit_module, "require", late)
    with pytest.raises(Mm2mgrError, match=r"does not see the store as the driver does: .*part-\d+.parquet"):
        rolled(store)
    monkeypatch.undo()
    assert read_throughput(store)[0].samples >= rates[0].samples
    rolled(store)
    assert not is_due(store)


def test_what_a_task_wrote_out_of_sight_of_the_driver_fails_the_job(store: Path) -> None:
    before = state(store)

    def spread(units: Sequence[Unit]) -> list[str]:
        answers = one_by_one(units)
        for draft in (store / "rollups" / ".drafts").glob("*.parquet"):
            draft.unlink()
        return answers

    with pytest.raises(Mm2mgrError, match="which the driver does not see; nothing was changed"):
        make(store, spread)
    assert state(store) == before


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_samples_that_a_task_may_not_read_are_not_left_out(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before, real = state(store), pq.ParquetFile

    def opening(path: Any, *args: Any, **more: Any) -> Any:
        if Path(path).parent.name.startswith("hour=") and "rollups" not in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", opening)
        with pytest.raises(Mm2mgrError, match=rf"hour=.* cannot be read on .*: {os.strerror(number)}"):
            rolled(store)
    assert state(store) == before


def test_an_hour_that_may_not_be_listed_is_not_taken_for_empty(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def listing(path: Any) -> list[str]:
        if Path(path).name.startswith("hour="):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listing)
    with pytest.raises(Mm2mgrError, match=r"hour=\S+ cannot be read on .*: Permission denied"):
        is_due(store)


def test_a_sector_that_cannot_be_read_costs_its_own_file_only(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = pq.ParquetFile, max(store.resolve().glob("hour=*/*.parquet"), key=lambda path: path.name)

    def opening(path: Any, *args: Any, **more: Any) -> Any:
        if Path(path) == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(pq, "ParquetFile", opening)
    assert list(rolled(store).unreadable) == [str(broken)]


def test_retention_and_compaction_beside_the_job_are_no_lost_sight(store: Path) -> None:
    samples = SampleStore(store)

    def spread(units: Sequence[Unit]) -> list[str]:
        for hour in samples.loose_hours():
            samples.compact(hour)
        samples.expire(10**15)
        return one_by_one(units)

    make(store, spread)
    assert read_throughput(store)


def test_what_spark_says_of_it_is_a_sentence() -> None:
    text = (
        "Traceback:\nFileNotFoundError: [Errno 2] x\nmm2mgr.throughput.proof.NotSeenError: h does not see the store\n"
    )
    assert failure("the Spark job failed", ValueError(text)).message == "the Spark job failed: h does not see the store"

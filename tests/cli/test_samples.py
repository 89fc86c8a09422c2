"""A store that the last version with a format of its own wrote: refused with the command that converts it, and converted.

`old_store/` was written by that version: two topics of three hours, one created anew, the first hour's samples removed by
retention, a late hour that was not rolled up, one hour compacted, and the history of one task.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.sample import convert_samples
from mm2mgr.samples.store import SampleStore, TaskStore
from mm2mgr.throughput.rollup_job import make, one_by_one
from mm2mgr.throughput.windows import read_throughput
from tests.cli.command import Command

OLD = Path(__file__).with_name("old_store")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_conversion_keeps_samples_roll_ups_and_tasks(tmp_path: Path) -> None:
    before, hours = contents(OLD), list[str]()
    done = convert_samples(OLD, tmp_path, pytest.fail, hours.append)
    assert (done.samples, done.roll_ups, done.task_rows) == (26, 1, 2)
    assert hours == SampleStore(tmp_path).hours() == ["2025-11-21T11", "2025-11-21T12", "2025-11-21T13"]
    make(tmp_path, one_by_one)
    found = {rate.topic: rate for rate in read_throughput(tmp_path)}
    assert [(each.samples, each.records_per_second_mean) for each in found.values()] == [(18, 7.0), (18, 3.0), (2, 1.0)]
    assert (found["c"].resets, found["a.b"].covered_seconds) == (
        1,
        10_200.0 - 600.0,
    )  # the interval over the first hour's end
    assert [row.bytes_per_second for row in TaskStore(tmp_path, pytest.fail).read()] == [0.0, 5e6]
    assert contents(OLD) == before


def test_damaged_files_are_named_and_the_rest_is_converted(tmp_path: Path) -> None:
    old = shutil.copytree(OLD, tmp_path / "old")
    (damaged,) = old.glob("hour=2025-11-21T13/*.parquet")
    damaged.write_bytes(b"PAR1")
    warnings: list[str] = []
    assert convert_samples(old, tmp_path / "new", warnings.append).samples == 24
    assert len(warnings) == 1
    assert str(damaged) in warnings[0]


def test_what_is_no_old_store_or_has_tables_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no LAYOUT file"):
        convert_samples(tmp_path, tmp_path / "new")
    convert_samples(OLD, tmp_path / "new")
    with pytest.raises(Mm2mgrError, match="holds tables already"):
        convert_samples(OLD, tmp_path / "new")
    (tmp_path / "LAYOUT").write_text("mm2mgr samples, layout 1")
    with pytest.raises(Mm2mgrError, match="layout 1"):
        convert_samples(tmp_path, tmp_path / "newer")


def test_commands_refuse_an_old_store_and_name_the_command_that_converts_it(mm2mgr: Command, tmp_path: Path) -> None:
    refused = mm2mgr("throughput", "--store", OLD, "--no-spark", code=1)
    assert f"mm2mgr samples convert {OLD} NEW" in " ".join(refused.err.split())
    done = mm2mgr("samples", "convert", OLD, tmp_path / "new")
    assert "26 samples, 1 hours of roll-ups and 2 task rows" in done.out
    mm2mgr("throughput", "--store", tmp_path / "new", "--no-spark")

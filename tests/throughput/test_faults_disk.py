"""Roll-ups on a disk that really is full, here and under Spark: what there was stays readable, and the next run is whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.samples.small_disk import SmallDisk, small_disk

BLOCK = 4096
STEP = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput.rollup_job import make, one_by_one
from mm2mgr.throughput.windows import read_throughput
from tests.throughput.test_faults_disk import begun, grown
store, what = Path(sys.argv[2]), sys.argv[1]
try:
    {"begin": begun, "grow": grown, "make": lambda store: make(store, one_by_one), "read": lambda store: None}[what](store)
except Mm2mgrError as error:
    sys.exit(f"error: {error.message}")
if what == "read":
    print(json.dumps([asdict(rate) for rate in read_throughput(store)]))
"""
SPARK = [sys.executable, "-m", "mm2mgr.throughput.job", "--store"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 1024 * 1024) as mounted:
        yield mounted


def begun(folder: Path) -> None:
    """Two hours of a topic on two days."""
    from .stores import series, stored

    seconds = range(13 * 3600 + 600, 15 * 3600, 600)
    stored(folder, series("a", [(second, 7 * second + (second // 600) % 5 * 400) for second in seconds]))


def grown(folder: Path) -> None:
    """A late sample, which changes an hour, the next one and a day, and a new hour with a new topic."""
    from .stores import series, stored

    stored(folder, series("a", [(13 * 3600 + 1500, 7 * (13 * 3600 + 1500))], size=None))
    stored(folder, series("b", [(second, 3 * second) for second in range(15 * 3600, 16 * 3600, 600)]))


def here(what: str) -> list[str]:
    return [sys.executable, "-c", STEP, what]


def run(disk: SmallDisk, command: list[str]) -> tuple[str, str]:
    """Run a command where the disk is; return what it printed and the error."""
    done = disk.run([*command, str(disk.inside / "store")], timeout_seconds=180)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(errors)) in ((0, 0), (1, 1)), done.stderr[-2000:]
    return done.stdout, "".join(errors)


def rates(disk: SmallDisk) -> dict[str, Any]:
    return {rate["topic"]: rate for rate in json.loads(run(disk, here("read"))[0])}


def compared(disk: SmallDisk, command: list[str], steps: Iterable[int]) -> int:
    """Let runs fail with more and more space until one goes well; return how many failed."""
    for what in ("begin", "make", "grow"):
        assert run(disk, here(what))[1] == ""
    before, failed = rates(disk), 0
    for blocks in steps:
        disk.fill(leave_bytes=blocks * BLOCK)
        error = run(disk, command)[1]
        disk.free()
        if not error:
            break
        failed += 1
        assert "No space left on device" in error
        now = rates(disk)
        assert before["a"]["samples"] <= now["a"]["samples"] <= before["a"]["samples"] + 1, "nothing is absent or twice"
    assert run(disk, command)[1] == ""
    after = rates(disk)
    assert (after["a"]["samples"], after["b"]["samples"]) == (before["a"]["samples"] + 1, 6)
    return failed


def test_a_roll_up_that_does_not_fit_leaves_what_there_was(disk: SmallDisk) -> None:
    assert compared(disk, here("make"), (0, 3, 8, 30)) >= 2


@pytest.mark.spark
def test_a_spark_job_that_finds_no_space_says_so_and_the_next_is_whole(disk: SmallDisk) -> None:
    assert compared(disk, SPARK, (3,)) == 1

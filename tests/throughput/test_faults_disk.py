"""Roll-ups on a disk that really is full, here and under Spark: what there was stays readable, and the next run is whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput.rollup_job import make
from mm2mgr.throughput.windows import read_throughput
from tests.samples.small_disk import SmallDisk, small_disk

from .stores import series, stored

BLOCK = 4096
STEPS = """
import sys
from pathlib import Path
from tests.throughput.test_faults_disk import step
for line in sys.stdin:
    print(step(Path(sys.argv[1]), line.strip()), flush=True)
"""
SPARK = [sys.executable, "-m", "mm2mgr.throughput.job", "--store"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 1024 * 1024) as mounted:
        yield mounted


def begun(folder: Path) -> None:
    """Two hours of a topic on two days."""
    seconds = range(13 * 3600 + 600, 15 * 3600, 600)
    stored(folder, series("a", [(second, 7 * second + (second // 600) % 5 * 400) for second in seconds]))


def grown(folder: Path) -> None:
    """A late sample, which changes an hour, the next one and a day, and a new hour with a new topic."""
    stored(folder, series("a", [(13 * 3600 + 1500, 7 * (13 * 3600 + 1500))], size=None))
    stored(folder, series("b", [(second, 3 * second) for second in range(15 * 3600, 16 * 3600, 600)]))


def step(store: Path, what: str) -> str:
    """Do a step; return the rates as JSON after `read`, an error, or nothing."""
    does: dict[str, Callable[[Path], object]] = {
        "begin": begun,
        "grow": grown,
        "make": make,
    }
    try:
        if what != "read":
            does[what](store)
            return ""
        return json.dumps([asdict(rate) for rate in read_throughput(store)])
    except Mm2mgrError as error:
        return f"error: {error.message}"


def on_spark(disk: SmallDisk) -> str:
    """Run the job where the disk is; return its error."""
    done = disk.run([*SPARK, str(disk.inside / "store")], timeout_seconds=180)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(errors)) in ((0, 0), (1, 1)), done.stderr[-2000:]
    return "".join(errors)


def compared(disk: SmallDisk, steps: Iterable[int], job: Callable[[SmallDisk], str] | None = None) -> int:
    """Let runs fail with more and more space until one goes well; return how many failed."""
    with disk.python(STEPS, str(disk.inside / "store")) as do:

        def made() -> str:
            return job(disk) if job else do("make")

        def rates() -> dict[str, Any]:
            return {rate["topic"]: rate for rate in json.loads(do("read"))}

        for what in ("begin", "make", "grow"):
            assert do(what) == ""
        before, failed = rates(), 0
        for blocks in steps:
            disk.fill(leave_bytes=blocks * BLOCK)
            error = made()
            disk.free()
            if not error:
                break
            failed += 1
            assert "No space left on device" in error
            now = rates()
            samples = before["a"]["samples"]
            assert samples <= now["a"]["samples"] <= samples + 1, "nothing is absent or twice"
        assert made() == ""
        after = rates()
    assert (after["a"]["samples"], after["b"]["samples"]) == (before["a"]["samples"] + 1, 6)
    return failed


def test_a_roll_up_that_does_not_fit_leaves_what_there_was(disk: SmallDisk) -> None:
    assert compared(disk, (0, 3, 8, 30)) >= 2


@pytest.mark.matrix  # the same in process, above, and a task that fails in test_job.py are the gate's samples of it
@pytest.mark.spark
def test_a_spark_job_that_finds_no_space_says_so_and_the_next_is_whole(disk: SmallDisk) -> None:
    assert compared(disk, (3,), on_spark) == 1

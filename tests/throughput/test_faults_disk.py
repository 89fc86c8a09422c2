"""Roll-ups on a disk that really is full, here and under Spark: what there was stays readable, and the next run is whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.throughput.rates import PartitionRate
from mm2mgr.throughput.table import read_throughput
from tests.samples.small_disk import SmallDisk, small_disk

from .stores import rolled, series, stored

BLOCK = 4096
MAKE = """
import sys
from pathlib import Path
from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput.make import make, one_by_one
try:
    make(Path(sys.argv[1]), one_by_one)
except Mm2mgrError as error:
    sys.exit(f"error: {error.message}\\nhint: {error.hint}")
"""
HERE = [sys.executable, "-c", MAKE]
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


def parts(folder: Path) -> dict[str, bytes]:
    """Every file of the finished roll-ups; of the lists only that they are there, as they hold random names."""
    files = [path for made in folder.glob("rollups/*/.made-from.json") for path in made.parent.iterdir()]
    return {str(path.relative_to(folder)): path.read_bytes() if path.suffix == ".parquet" else b"" for path in files}


def told(folder: Path) -> dict[str, PartitionRate]:
    return {rate.topic: rate for rate in read_throughput(folder)}


def run(disk: SmallDisk, command: list[str], blocks: int) -> str:
    """Run the job with so much space; return what it says, nothing when it went well."""
    disk.fill(leave_bytes=blocks * BLOCK)
    done = disk.run([*command, str(disk.inside / "store")], timeout_seconds=180)
    disk.free()
    *_, error, hint = ["", "", *done.stderr.splitlines()]  # before them, Spark says what it has to say
    ended = (done.returncode, error[:7] == "error: ", hint[:6] == "hint: ")
    assert ended in ((0, False, False), (1, True, True)), done.stderr[-2000:]
    return error if done.returncode else ""


def compared(disk: SmallDisk, command: list[str], tmp_path: Path, steps: Iterator[int]) -> int:
    """Let runs fail with more and more space until one goes well; return how many failed."""
    store, easy = disk.seen / "store", tmp_path / "easy"
    for folder in (store, easy):
        begun(folder)
    rolled(easy)
    assert run(disk, HERE, 64) == ""
    assert parts(store) == parts(easy)
    for folder in (store, easy):
        grown(folder)
    before, failed = told(store), 0
    for blocks in steps:
        if not (said := run(disk, command, blocks)):
            break
        failed += 1
        assert "No space left on device" in said
        now = told(store)
        assert before["a"].samples <= now["a"].samples <= before["a"].samples + 1, "nothing is absent or counted twice"
        assert list(store.glob("rollups/.drafts")) == []
    rolled(easy)
    assert run(disk, command, 64) == ""
    assert parts(store) == parts(easy)
    assert told(store) == told(easy)
    return failed


def test_a_roll_up_that_does_not_fit_leaves_what_there_was(disk: SmallDisk, tmp_path: Path) -> None:
    assert compared(disk, HERE, tmp_path, iter(range(40))) >= 3


@pytest.mark.spark
def test_a_spark_job_that_finds_no_space_says_so_and_the_next_is_whole(disk: SmallDisk, tmp_path: Path) -> None:
    assert compared(disk, SPARK, tmp_path, iter((3,))) == 1

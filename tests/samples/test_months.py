"""What months bring: thousands of rounds, samplers killed and doubled, clocks set wrong. Nothing is lost, nothing counts twice."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll, Round, Schedule, follow
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup_job import make
from mm2mgr.throughput.windows import read_throughput
from tests.samples.rows import stored

from .rows import data_files
from .sampler import ROUND_MS, TEN
from .test_follow import Clock, Stop, resident_bytes

HOUR_MS = 3_600_000
KILLS = 8


class Source:
    """Partitions that grow by ten records a second of true time, whatever the clock says; one topic comes anew each day."""

    name = "dc1"

    def __init__(self, clock: Clock, partitions: int = 1) -> None:
        self.clock, self.partitions, self.true_ms = clock, partitions, 0

    def poll(self) -> Poll:
        ends = [self.true_ms // 100] * (self.partitions + 1)
        topics = ["logs"] * self.partitions + [f"day-{self.true_ms // 86_400_000}"]
        numbers = [*range(self.partitions), 0]
        return Poll([Batch("dc1", "fake", self.clock.now_ms, topics, numbers, end_offset=ends)])

    def close(self) -> None:
        pass


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_rounds_after_a_day_take_no_more_memory_than_that_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    source, blocks, resident = Source(clock, 100), dict[int, int](), dict[int, int]()

    def progress(done: Round) -> None:
        source.true_ms += ROUND_MS
        if done.number in (160, 220):  # more than the day that is kept, and ten hours later
            gc.collect()
            blocks[done.number], resident[done.number] = sys.getallocatedblocks(), resident_bytes()

    store = SampleStore(tmp_path)
    follow([source], Schedule(ROUND_MS / 1000, None, keep_seconds=86_400.0), store, progress, Stop(clock, 220))
    assert blocks[220] - blocks[160] < 300, "the names of new topics; five blocks a round are no leak"
    assert resident[220] < 1.15 * resident[160]
    assert len(store.hours()) in (24, 25, 26)
    assert len(data_files(tmp_path)) < 26 + 8, "an hour is a file once it is over"


# --- killed, and two at once ----------------------------------------------------------------------------------------


@contextmanager
def sampler(store: Path, start_ms: int, rounds: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.samples.sampler", str(store), str(start_ms), str(rounds)]
    home = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home) as process:
        try:
            yield process
        finally:
            process.kill()


def counted(store: Path) -> dict[tuple[str, int], tuple[int, float, int]]:
    make(store)
    return {
        (rate.topic, rate.partition): (rate.samples, round(rate.records_per_second_mean or 0, 9), rate.resets)
        for rate in read_throughput(store)
    }


def test_kills_lose_nothing_that_was_done_and_nothing_counts_twice(tmp_path: Path) -> None:
    moments, done, now = random.Random(5), set[int](), TEN
    for number in range(KILLS):
        with sampler(tmp_path, now) as process:
            assert process.stdout
            for _ in range(moments.randrange(2, 12)):
                done.add(int(process.stdout.readline().split()[0]))  # a warning may follow the time
            threading.Event().wait(moments.random() / 50)  # then dead at any point of a round, a compaction or a sweep
            process.kill()
            done.update(int(line.split()[0]) for line in process.stdout if line.endswith("\n"))
        now = max(done) + ROUND_MS * (number % 2)  # half of the restarts sample the last moment again
        stored(SampleStore(tmp_path))
    with sampler(tmp_path, now + HOUR_MS // ROUND_MS * ROUND_MS, rounds=2) as process:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, len(out.splitlines())) == (0, 2), err
    rows = stored(SampleStore(tmp_path))
    places = list(zip(*(rows[name].to_pylist() for name in ("topic", "partition", "time_ms")), strict=True))
    times = {at for _, _, at in places}
    assert done <= times
    assert len(set(places)) == len(places) == 3 * len(times)
    found = counted(tmp_path)
    assert found["logs", 0][0] == found["logs", 1][0] == len(times)
    assert found["logs", 0][1:] == (10.0, 0)


def test_two_samplers_of_one_store_do_no_harm(tmp_path: Path) -> None:
    rounds = 40
    with ExitStack() as stack:  # the second one half a round behind
        both = [stack.enter_context(sampler(tmp_path, TEN + ahead, rounds)) for ahead in (0, ROUND_MS // 2)]
        told = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    lines = [line for out, _ in told for line in out.splitlines()]
    assert len(lines) == 2 * rounds
    # Their clocks run as fast as they can, so each may meet samples of its future; else they have no trouble with one another.
    assert all("holds samples of future hours" in line for line in lines if " " in line)
    found = counted(tmp_path)
    assert found["logs", 0] == found["logs", 1] == (2 * rounds, 10.0, 0)
    hours = SampleStore(tmp_path).hours()
    assert [hour for hour in hours[:-1] if len(data_files(tmp_path, period=hour)) > 5] == []


# --- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jump_hours", "back_after"), [(-1, None), (24, None), (24, 30), (-24, 30)])
def test_a_clock_that_jumps_loses_no_sample_and_makes_no_record_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_hours: int, back_after: int | None
) -> None:
    clock, rounds, step = Clock(monkeypatch), 100, 60_000
    source, news = Source(clock), list[str]()

    def progress(done: Round) -> None:
        news.extend(done.news)
        source.true_ms += step
        if done.number == 40:
            clock.now_ms += jump_hours * HOUR_MS + 7
        if back_after and done.number == 40 + back_after:
            clock.now_ms -= jump_hours * HOUR_MS

    store = SampleStore(tmp_path)
    follow([source], Schedule(step / 1000, None), store, progress, Stop(clock, rounds))
    assert news == []
    kept = [row for row in stored(store).to_pylist() if row["topic"] == "logs"]
    assert sorted(row["end_offset"] for row in kept) == [number * step // 100 for number in range(rounds)]
    make(tmp_path)
    (rate,) = (rate for rate in read_throughput(tmp_path) if rate.topic == "logs")
    records = (rate.records_per_second_mean or 0) * rate.covered_seconds
    assert 0 < records <= (rounds - 1) * step / 100 + 1
    assert store.loose_hours() == [hour_of(clock.now_ms)] or jump_hours == 24

"""The loop over months: outages said once, backed off from, hours tidied, memory level, nothing counted twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.estate_view import RoundEnd
from mm2mgr.operations.sample import SampleView
from mm2mgr.operations.serve_parts import end_of_samples
from mm2mgr.samples import schema as clock_module
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll, Round, Schedule, follow
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore
from tests.clock import go_by
from tests.samples.rows import stored

from .fakes import FakeReader

HOUR_MS = 3_600_000
TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z


class Clock(timing.Clock):
    """A time that passes only when the loop waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now_ms: int = TEN) -> None:
        self.now_ms = now_ms
        monkeypatch.setattr(clock_module, "time", self)
        go_by(self, monkeypatch)

    def now(self) -> float:
        return self.now_ms / 1000

    def steady(self) -> float:
        return self.now_ms / 1000

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000


class Stop(threading.Event):
    """Lets the clock run instead of waiting, and ends the loop after some rounds."""

    def __init__(self, clock: Clock, rounds: int) -> None:
        super().__init__()
        self.clock, self.rounds = clock, rounds

    def wait(self, timeout: float | None = None) -> bool:  # through `timing.wait`
        self.clock.now_ms += round((timeout or 0) * 1000)
        self.rounds -= 1
        return self.rounds < 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run(
    clock: Clock, store: SampleStore, rounds: int, *readers: Any, interval_seconds: float = 30.0, **more: Any
) -> list[Round]:
    told: list[Round] = []
    follow(readers, Schedule(interval_seconds, None, **more), store, told.append, Stop(clock, rounds))
    return told


def news(rounds: list[Round]) -> list[tuple[int, str]]:
    return [(one.number, sentence) for one in rounds for sentence in one.news]


def test_an_outage_is_said_once_and_backed_off_from(clock: Clock, tmp_path: Path) -> None:
    down = FakeReader("dc1", lambda n: f"no answer after {n} ms" if 2 <= n <= 6 else n)
    up = FakeReader("dc2", lambda n: n)
    rounds = run(clock, SampleStore(tmp_path), 40, down, up)
    assert up.polls == 40
    asked = [one.number for one in rounds if "dc1" not in one.failures]
    assert asked == [1, *range(33, 41)]  # asked in rounds 2, 3, 5, 9, 17 and 33
    assert down.polls == 14
    assert news(rounds) == [(2, "dc1: no answer after 2 ms"), (33, "dc1: answers again after 15.5 min")]
    assert [one.samples for one in rounds] == [2, *[1] * 31, *[2] * 8]
    assert down.closed
    assert up.closed


def test_what_is_read_beside_the_samples_is_no_source_of_them(clock: Clock, tmp_path: Path) -> None:
    """Capacity of tasks that is unknown leaves sampling as good as it is."""
    tasks = FakeReader("Connect cluster 'w'", lambda _: "task capacity is not measured")
    tasks.gives_samples = False  # type: ignore[attr-defined]
    (done, *_) = run(clock, SampleStore(tmp_path), 1, tasks, FakeReader("dc2", lambda n: n))
    assert (list(done.failures), done.sources_without_samples) == (["Connect cluster 'w'"], {})
    assert end_of_samples(done) == RoundEnd(outcome="done, without Connect cluster 'w'")
    assert SampleView().after_round(done, 1.0).to_dict()["unsampled"] == []
    (down, *_) = run(clock, SampleStore(tmp_path), 1, FakeReader("dc1", lambda _: "no answer"), FakeReader("dc2", int))
    assert end_of_samples(down) == RoundEnd("dc1: no answer")


def test_a_source_with_a_fault_that_nobody_expected_stops_no_other(clock: Clock, tmp_path: Path) -> None:
    def answer(n: int) -> int:
        if n == 2:
            raise ValueError("read length must be non-negative")
        return n

    broken, up = FakeReader("dc1", answer), FakeReader("dc2", lambda n: n)
    rounds = run(clock, SampleStore(tmp_path), 4, broken, up)
    assert (up.polls, broken.polls) == (4, 4)
    assert [sentence for _, sentence in news(rounds)] == [
        "dc1: ValueError: read length must be non-negative",
        "dc1: answers again after 30 s",
    ]


def test_the_wait_never_grows_beyond_ten_minutes(clock: Clock, tmp_path: Path) -> None:
    down, up = FakeReader("dc1", lambda n: "down"), FakeReader("dc2", lambda n: n)
    run(clock, SampleStore(tmp_path), 200, down, up, interval_seconds=60.0)
    assert 20 <= down.polls <= 25


def test_another_reason_is_news_and_the_same_one_is_not(clock: Clock, tmp_path: Path) -> None:
    reader = FakeReader("dc1", lambda n: "login refused" if n > 3 else f"connect failed ({n} attempts)")
    assert [sentence for _, sentence in news(run(clock, SampleStore(tmp_path), 100, reader))] == [
        "dc1: connect failed (1 attempts)",
        "dc1: login refused",
    ]


def test_partitions_without_samples_are_said_when_their_number_changes_in_kind(clock: Clock, tmp_path: Path) -> None:
    reader = FakeReader("dc1", lambda n: n)

    def answer(n: int) -> int:
        counts = {2: 5, 3: 6, 4: 7, 5: 900}
        reader.left_out = {"no leader": counts[n]} if n in counts else {}
        return n

    reader.answer = answer
    assert news(run(clock, SampleStore(tmp_path), 7, reader)) == [
        (2, "dc1: partitions without a sample: 5 (no leader)"),
        (5, "dc1: partitions without a sample: 900 (no leader)"),
        (6, "dc1: all partitions have samples again"),
    ]


def test_what_a_source_notes_is_said_until_it_is_over(clock: Clock, tmp_path: Path) -> None:
    class Noting(FakeReader):
        def poll(self) -> Poll:
            return replace(super().poll(), notes=("topic configs may not be read",) if 2 <= self.polls <= 4 else ())

    assert news(run(clock, SampleStore(tmp_path), 8, Noting("w", lambda n: n))) == [
        (2, "w: topic configs may not be read"),
        (5, "w: recovered"),
    ]


def test_a_full_disk_costs_the_samples_of_that_time_only(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = SampleStore(tmp_path), SampleStore.append
    calls = iter(range(1, 100))

    def append(self: SampleStore, *batches: Batch) -> Any:
        if next(calls) in (3, 4):
            raise Mm2mgrError("samples cannot be written: No space left on device")
        return real(self, *batches)

    monkeypatch.setattr(SampleStore, "append", append)
    rounds = run(clock, store, 6, FakeReader("dc1", lambda n: n))
    assert [one.samples for one in rounds] == [1, 1, 0, 0, 1, 1]
    assert news(rounds) == [
        (3, "samples cannot be written: No space left on device; the samples of this round are lost"),
        (5, "samples are written again"),
    ]
    assert stored(store)["end_offset"].to_pylist() == [1, 2, 5, 6]


def test_a_store_that_cannot_be_written_at_all_is_an_error(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reader = FakeReader("dc1", lambda n: n)
    with pytest.raises(Mm2mgrError, match="cannot write to"):
        run(clock, SampleStore(tmp_path / "file" / "store"), 3, reader)
    assert reader.closed


def test_closed_hours_are_compacted_and_old_ones_expire(clock: Clock, tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    for hours in range(-100, 0, 2):  # what an earlier run left loose
        store.append(Batch("dc1", "fake", TEN + hours * HOUR_MS, ["t"], [0], end_offset=[1]))
    reader = FakeReader("dc1", lambda n: n, clock=lambda: clock.now_ms)
    run(clock, store, 10, reader, interval_seconds=900.0, keep_seconds=50 * 3600.0)
    kept = [*range(-48, 0, 2), 0, 1, 2]
    assert store.hours() == [hour_of(TEN + hours * HOUR_MS) for hours in kept]
    assert store.loose_hours() == [hour_of(TEN + 2 * HOUR_MS)]
    assert len(stored(store)) == 24 + 10


def test_compaction_that_fails_is_news_and_tried_again(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, calls = SampleStore(tmp_path), SampleStore.compact, list[str]()

    def compact(self: SampleStore, hour: str) -> list[Path]:
        calls.append(hour)
        if len(calls) == 1:
            raise Mm2mgrError("no space")
        return real(self, hour)

    monkeypatch.setattr(SampleStore, "compact", compact)
    rounds = run(clock, store, 10, FakeReader("dc1", lambda n: n, clock=lambda: clock.now_ms), interval_seconds=900.0)
    assert news(rounds) == [(5, "no space")]
    assert store.loose_hours() == [hour_of(TEN + 2 * HOUR_MS)]
    assert [one.samples for one in rounds] == [1] * 10


def test_following_ends_when_asked_to(tmp_path: Path) -> None:
    stop, rounds = threading.Event(), list[Round]()

    def progress(one: Round) -> None:
        rounds.append(one)
        stop.set()

    reader = FakeReader("dc1", lambda n: n)
    assert follow([reader], Schedule(interval_seconds=600), SampleStore(tmp_path), progress, stop) == 1
    assert len(rounds) == 1


@pytest.mark.parametrize(("interval", "timeout"), [(0.5, 1.0), (5.0, 4.0), (60.0, 10.0)])
def test_a_call_fits_into_the_interval_and_ten_seconds(interval: float, timeout: float) -> None:
    assert Schedule(interval_seconds=interval).timeout_seconds == timeout


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Wide:
    """A source of many partitions, so that a leak of one round shows."""

    name = "wide"

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.topics = [f"topic-{number // 10}" for number in range(5_000)]
        self.numbers = [number % 10 for number in range(5_000)]

    def poll(self) -> Poll:
        ends = [self.clock() % 1_000_003 + number for number in range(5_000)]
        return Poll([Batch(self.name, "fake", self.clock(), self.topics, self.numbers, end_offset=ends)])

    def close(self) -> None:
        pass


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_rounds_and_their_compactions_leave_memory_level(clock: Clock, tmp_path: Path) -> None:
    store, sizes = SampleStore(tmp_path), list[int]()
    schedule = Schedule(300.0, None)
    stop = Stop(clock, 120)
    follow([Wide(lambda: clock.now_ms)], schedule, store, lambda _: sizes.append(resident_bytes()), stop)
    assert len(sizes) == 120
    assert max(sizes[30:]) <= 1.2 * max(sizes[:30])
    assert len(store.loose_hours()) == 1

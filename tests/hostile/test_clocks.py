"""Clocks that jump, stay wrong, or differ between samplers; stores that go away; locks that somebody else holds.

Only the clock that people set is moved (`time.time_ns`); the steady one is the machine's, as in a real jump.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mm2mgr import timing
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.batch import Batch, Gathered, Inventory
from mm2mgr.samples.follow import Poll, Round, Schedule, follow
from mm2mgr.samples.readers import MetricSourceReader
from mm2mgr.samples.schema import LASTING_SECONDS, ahead, hour_of, hour_start_ms, kept_since_ms
from mm2mgr.samples.store import SampleStore, TaskRow, TaskStore
from mm2mgr.throughput.rollup_job import make
from mm2mgr.throughput.windows import last_hours
from tests.samples.rows import stored

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
KEEP_SECONDS = 10 * 86_400.0
REPOSITORY = Path(__file__).resolve().parents[2]
REAL_NS = time.time_ns


@dataclass
class Wall:
    """The clock that people set, ahead of the true time by `ahead_ms`."""

    ahead_ms: int = 0

    def time_ns(self) -> int:
        return REAL_NS() + self.ahead_ms * 1_000_000


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(time, "time_ns", made.time_ns)
    monkeypatch.setattr(time, "time", lambda: made.time_ns() / 1e9)
    return made


@dataclass
class Source:
    """A cluster whose one partition grows by one a poll."""

    name: str = "dc1"
    polls: int = 0
    lost: int = 0
    while_polling: Callable[[], None] = lambda: None

    def poll(self) -> Poll:
        self.polls += 1
        now_ms = time.time_ns() // 1_000_000
        self.while_polling()

        def lost() -> None:
            self.lost += 1

        return Poll([Batch(self.name, "fake", now_ms, ["t"], [0], end_offset=[self.polls])], lost=lost)

    def close(self) -> None:
        pass


@dataclass
class Run:
    """A run of the sampling loop: what was said, and what is done after each round."""

    store: SampleStore
    source: Source = field(default_factory=Source)
    news: list[str] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def __call__(
        self, rounds: int, then: Callable[[int], None] = lambda _: None, keep_seconds: float | None = KEEP_SECONDS
    ) -> Run:
        stop = threading.Event()

        def progress(done: Round) -> None:
            self.news += done.news
            self.samples.append(done.samples)
            then(done.number)
            if done.number >= rounds:
                stop.set()

        schedule = Schedule(interval_seconds=0.01, duration_seconds=60, keep_seconds=keep_seconds)
        follow([self.source], schedule, self.store, progress, stop)
        return self


def filled(folder: Path, days: int = 9, step_hours: int = 6) -> SampleStore:
    """A store with a sample every few hours of the last days, up to now."""
    store, now_ms = SampleStore(folder), REAL_NS() // 1_000_000
    for hours in range(days * 24, 0, -step_hours):
        store.append(Batch("dc1", "fake", now_ms - hours * HOUR_MS, ["t"], [0], end_offset=[1]))
    return store


# --- this machine's clock -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_ms", [YEAR_MS, 20 * DAY_MS, -YEAR_MS])
def test_a_clock_that_is_wrong_for_a_moment_deletes_nothing_and_stamps_nothing(
    tmp_path: Path, wall: Wall, by_ms: int
) -> None:
    store = filled(tmp_path)
    before = store.hours()

    def jump(number: int) -> None:
        wall.ahead_ms = by_ms if 3 <= number < 8 else 0

    run = Run(store)(12, jump)
    assert set(store.hours()) - {hour_of(REAL_NS() // 1_000_000)} >= set(before) - {hour_of(REAL_NS() // 1_000_000)}
    assert all(abs(hour_start_ms(hour) - REAL_NS() // 1_000_000) < 10 * DAY_MS for hour in store.hours())
    assert run.samples == [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    direction = "ahead" if by_ms > 0 else "back"
    assert len(run.news) == 2
    assert run.news[0].startswith(f"the clock of this machine jumped {direction} by {abs(by_ms) // DAY_MS} d, to 20")
    assert "nothing is sampled or removed until it is back, or has stayed there for 10 min" in run.news[0]
    assert run.news[1].startswith("the clock of this machine is back after ")


def test_a_jump_in_the_middle_of_a_round_gives_the_samples_back_to_their_source(tmp_path: Path, wall: Wall) -> None:
    run = Run(filled(tmp_path))

    def poll() -> None:
        wall.ahead_ms = YEAR_MS if run.source.polls == 3 else 0

    run.source.while_polling = poll
    run(5, lambda _: setattr(wall, "ahead_ms", 0))
    assert run.samples == [1, 1, 0, 1, 1]
    assert run.source.lost == 1
    assert ahead(run.store.hours(), REAL_NS() // 1_000_000) == []


def test_a_clock_that_stays_where_it_jumped_to_is_taken_and_takes_a_day_of_samples_at_most(
    tmp_path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = [1000.0]
    monkeypatch.setattr(timing, "steady", lambda: steady[0])
    store = filled(tmp_path)
    before = store.hours()

    def jump(number: int) -> None:
        steady[0] += LASTING_SECONDS / 2
        wall.ahead_ms = round((steady[0] - 1000) * 1000) + (YEAR_MS if number >= 3 else 0)

    run = Run(store)
    run(8, jump)
    assert run.samples[:5] == [1, 1, 1, 0, 0]
    assert run.samples[-1] == 1
    assert run.news[1] == "the clock of this machine has stayed where it jumped to: samples carry its time from now on"
    lost = [hour_start_ms(hour) for hour in before if hour not in store.hours()]
    assert all(start <= REAL_NS() // 1_000_000 - 8 * DAY_MS for start in lost)


def test_small_corrections_of_the_clock_are_no_news(tmp_path: Path, wall: Wall) -> None:
    run = Run(filled(tmp_path))(20, lambda number: setattr(wall, "ahead_ms", number * 20_000))
    assert run.news == []
    assert run.samples == [1] * 20


def test_samplers_started_now_and_then_lose_a_day_at_most_to_a_clock_that_is_ahead_at_the_start(
    tmp_path: Path, wall: Wall
) -> None:
    store = filled(tmp_path)
    before, now_ms = store.hours(), REAL_NS() // 1_000_000
    wall.ahead_ms = YEAR_MS
    for _ in range(5):  # as a timer does it, while the clock is wrong
        (said,) = Run(SampleStore(tmp_path))(1).news
        assert said.startswith(f"samples up to {before[-1]} (UTC) are older than what is to be kept, and stay")
    wall.ahead_ms = 0
    run = Run(SampleStore(tmp_path))(2)
    assert [hour for hour in before if hour not in store.hours()] == []  # nine days were there, ten are kept
    assert [hour_start_ms(hour) > now_ms for hour in store.hours()].count(True) == 1
    (said,) = run.news
    assert "holds samples of future hours, 20" in said
    assert "the clock of this machine is behind, or that of another sampler was ahead" in said


def test_a_restart_with_a_shorter_time_to_keep_takes_effect_at_once(tmp_path: Path, wall: Wall) -> None:
    store = filled(tmp_path, days=4, step_hours=1)
    Run(store)(1, keep_seconds=2 * 86_400.0)
    oldest_ms = hour_start_ms(store.hours()[0])
    assert abs(REAL_NS() // 1_000_000 - 2 * DAY_MS - oldest_ms) <= HOUR_MS


def hours_back(now_ms: int, *back: int) -> list[str]:
    return [hour_of(now_ms - hours * HOUR_MS) for hours in back]


NOW = hour_start_ms("2026-11-22T08") + 1_234_567


def test_hours_in_a_row_bear_out_the_whole_time() -> None:
    for keep_hours in (1, 2, 30, 24 * 90):
        hours = hours_back(NOW, *range(24 * 100))
        assert kept_since_ms(hours, NOW, keep_hours * 3600.0) == NOW - keep_hours * HOUR_MS


def test_a_gap_proves_a_day_at_most_and_what_follows_makes_up_for_it() -> None:
    keep_days, pause = 90, 24 * 100
    old = range(pause, pause + 24 * 90)
    proved = [
        (NOW - kept_since_ms(hours_back(NOW, *range(hours), *old), NOW, keep_days * 86_400.0)) / DAY_MS
        for hours in (1, 24, 24 * 50, 24 * 90)
    ]
    # An hour after the pause: 89 of the old days still count as young; in the end only what is new.
    assert [round(each) for each in proved] == [100 + 89, 100 + 88, 100 + 39, 90]


@pytest.mark.parametrize("keep_hours", [1, 2, 24, 24 * 7, 24 * 90])
@pytest.mark.parametrize("wrong_ms", [NOW + YEAR_MS, NOW + DAY_MS, NOW + 2 * HOUR_MS])
def test_one_look_at_a_wrong_clock_moves_retention_by_a_day_or_a_24th_of_what_is_kept(
    keep_hours: int, wrong_ms: int
) -> None:
    hours = hours_back(NOW, *range(24 * 100))
    right = kept_since_ms(hours, NOW, keep_hours * 3600.0)
    wrong = kept_since_ms([*hours, hour_of(wrong_ms)], wrong_ms, keep_hours * 3600.0)
    assert wrong - right <= HOUR_MS + min(DAY_MS, keep_hours * HOUR_MS // 24)
    behind = NOW - YEAR_MS
    assert kept_since_ms(hours, behind, keep_hours * 3600.0) <= behind
    assert kept_since_ms(hours, wrong_ms, keep_hours * 3600.0) <= wrong_ms - keep_hours * HOUR_MS


def test_an_hour_that_a_clock_far_behind_wrote_keeps_no_other_hour_alive() -> None:
    hours = [*hours_back(NOW, *range(24 * 20)), "2020-01-01T00"]
    assert kept_since_ms(hours, NOW, KEEP_SECONDS) == NOW - 10 * DAY_MS


def test_the_history_of_tasks_goes_by_the_same_rule(tmp_path: Path) -> None:
    samples, tasks = filled(tmp_path), TaskStore(tmp_path, lambda _: None)
    now_ms = REAL_NS() // 1_000_000
    for days in (8, 4, 1):
        tasks.append([TaskRow("w", "c", "a", "b", "s", 0, now_ms - days * DAY_MS, 1000, 5.0, 1, 1)])
    tasks.tidy(now_ms + YEAR_MS, KEEP_SECONDS)
    assert len(tasks.read()) == 3
    for hours in range(72):
        samples.append(Batch("dc1", "fake", now_ms + hours * HOUR_MS, ["t"], [0], end_offset=[1]))
    tasks.tidy(now_ms + 72 * HOUR_MS, KEEP_SECONDS)
    assert len(tasks.read()) == 2


# --- other people's clocks ------------------------------------------------------------------------------------------


@dataclass
class Answering:
    """A metric source that notes what it is asked, and gives one sample at a time that it makes up."""

    stamp_ms: Callable[[int], int]
    asked: list[tuple[int | None, int]] = field(default_factory=list)
    source_prefix: str = "lying"

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        self.asked.append((since_ms, until_ms))
        yield Gathered([Batch("a", "lying", self.stamp_ms(until_ms), ["t"], [0], end_offset=[1])], [])

    def close(self) -> None:
        pass


def reader_of(folder: Path, source: Answering) -> MetricSourceReader:
    reader = MetricSourceReader(KafkaAccess("a", "127.0.0.1:1"), lambda _: True, source, SampleStore(folder))
    reader._inventory, reader._inventory_until = Inventory("a", {}, lambda _: True), float("inf")
    return reader


def test_a_source_is_asked_on_after_this_machines_clock_was_ahead_for_long(tmp_path: Path, wall: Wall) -> None:
    source = Answering(lambda until_ms: until_ms)
    reader = reader_of(tmp_path, source)
    reader.poll()
    wall.ahead_ms = YEAR_MS
    reader.poll()
    wall.ahead_ms = 0
    for _ in range(2):
        reader.poll()
    for since_ms, until_ms in source.asked[2:]:
        assert since_ms is not None
        assert since_ms <= until_ms <= REAL_NS() // 1_000_000


def test_samples_of_the_future_from_a_lying_source_neither_enter_the_store_nor_push_retention(
    tmp_path: Path, wall: Wall
) -> None:
    store = filled(tmp_path)
    before = store.hours()
    reader = reader_of(tmp_path, Answering(lambda until_ms: until_ms + YEAR_MS))
    said, stop = list[str](), threading.Event()

    def progress(done: Round) -> None:
        said.extend(done.news)
        if done.number == 3:
            stop.set()

    follow([reader], Schedule(0.01, 60, keep_seconds=KEEP_SECONDS), store, progress, stop)
    assert store.hours() == before
    assert said == ["a: 1 samples dropped: their time is in the future or long past"]


def test_hours_to_come_are_no_newest_hours_for_sizes(tmp_path: Path, wall: Wall) -> None:
    store = filled(tmp_path, days=2, step_hours=1)
    now_ms = REAL_NS() // 1_000_000
    newest = store.hours()[-1]
    store.append(Batch("dc1", "fake", now_ms + 99 * DAY_MS, ["t"], [0], end_offset=[9**9]))
    make(tmp_path)
    assert last_hours(tmp_path, 3 * 3600.0).hours[-1] == newest
    wall.ahead_ms = -YEAR_MS  # then it is this clock that is wrong, and the samples still say what they say
    assert last_hours(tmp_path, None).hours[0] == store.hours()[0]


# --- stores that go away --------------------------------------------------------------------------------------------


def test_a_store_that_is_unmounted_gets_no_successor_under_its_mount_point(tmp_path: Path) -> None:
    mounted, away = tmp_path / "store", tmp_path / "away"
    store = filled(mounted, days=1)
    before = len(stored(store))

    def unmount(number: int) -> None:
        if number == 3:
            mounted.rename(away)
            mounted.mkdir()
        if number == 6:
            assert list(mounted.iterdir()) == []
            mounted.rmdir()
            away.rename(mounted)

    run = Run(store)(9, unmount)
    assert run.samples == [1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert run.news == [
        f"the table {mounted}/samples is gone; the samples of this round are lost",
        "samples are written again",
    ]
    assert run.source.lost == 3
    assert len(stored(store)) == before + 6


def test_a_store_that_is_removed_while_sampling_is_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    run = Run(SampleStore(folder))(6, lambda number: shutil.rmtree(folder, ignore_errors=True))
    assert run.samples == [1, 0, 0, 0, 0, 0]
    assert not folder.exists()
    assert len(run.news) == 1

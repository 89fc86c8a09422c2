"""Disks that really are full, and files that may not grow: the store stays as it was, says so, and goes on with the space."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll, Round, Schedule, follow
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore

from .small_disk import SmallDisk, small_disk
from .test_follow import Clock, Stop

TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
HOUR = "2025-11-21T10"
HOUR_MS = 3_600_000
BLOCK = 4096


def poll(minute: int, topic: str = "logs", partitions: int = 300) -> Batch:
    ends = [minute * 100 + number * number for number in range(partitions)]
    return Batch("dc1", "fake", TEN + minute * 60_000, [topic] * partitions, range(partitions), end_offset=ends)


def whole(store: SampleStore, minutes: int = 10) -> SampleStore:
    for minute in range(minutes):
        store.append(poll(minute))
    return store


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "ballast"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 512 * 1024) as mounted:
        yield mounted


def refused(use: Callable[[], object]) -> str:
    with pytest.raises(Mm2mgrError) as caught:
        use()
    assert caught.value.hint == "check the directory's rights and space; what was written before stays readable"
    return caught.value.message


def squeezed(disk: SmallDisk, use: Callable[[], object], after_failure: Callable[[], object]) -> int:
    """Do something with a block of space more each time until it works, so that it breaks off at every place there is."""
    for tries in range(30):
        disk.fill(leave_bytes=tries * BLOCK)
        try:
            use()
        except Mm2mgrError:
            assert refused(use).endswith("No space left on device")
            after_failure()
        else:
            disk.free()
            return tries
    raise AssertionError("it never worked")


@pytest.mark.parametrize("step", [poll(10), poll(10, "new topic"), poll(70)], ids=["poll", "new topic", "new hour"])
def test_a_poll_that_does_not_fit_leaves_nothing_behind(disk: SmallDisk, tmp_path: Path, step: Batch) -> None:
    full, easy = whole(SampleStore(disk.seen / "store")), whole(SampleStore(tmp_path / "easy"))
    before, rows = files(disk.seen), full.read()

    def as_it_was() -> None:
        left = files(disk.seen)
        # What may be new is a dictionary file that is whole: an id that is not used yet harms nobody.
        assert [name for name in left.keys() - before.keys() if "dictionary" not in name] == []
        assert {name: left[name] for name in before} == before
        assert full.read().equals(rows)

    assert squeezed(disk, lambda: full.append(step), as_it_was) >= 1
    easy.append(step)
    assert full.read().equals(easy.read())
    assert full.dictionary().equals(easy.dictionary())


def test_a_store_begun_on_a_full_disk_is_begun_when_there_is_space(disk: SmallDisk, tmp_path: Path) -> None:
    store = SampleStore(disk.seen / "store")

    def is_empty() -> None:
        assert SampleStore(disk.seen / "store").hours() == []

    assert squeezed(disk, lambda: store.append(poll(0)), is_empty) >= 1
    assert whole(store).read().equals(whole(SampleStore(tmp_path / "easy")).read())


def test_a_compaction_that_does_not_fit_keeps_the_polls(disk: SmallDisk, tmp_path: Path) -> None:
    full, easy = whole(SampleStore(disk.seen / "store")), whole(SampleStore(tmp_path / "easy"))
    before, rows = files(disk.seen), full.read()

    def as_it_was() -> None:
        assert files(disk.seen) == before
        assert full.read().equals(rows)
        assert full.loose_hours() == [HOUR]

    assert squeezed(disk, lambda: full.compact(HOUR), as_it_was) >= 1
    easy.compact(HOUR)
    assert full.loose_hours() == []
    assert full.read().equals(easy.read())


@contextmanager
def no_file_above(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size: a full disk for machines that let nobody mount one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size_bytes", [0, 4, 200, 900])
def test_files_that_may_not_grow_leave_the_store_as_it_was(tmp_path: Path, size_bytes: int) -> None:
    store, minutes = whole(SampleStore(tmp_path)), range(10)
    before, rows = files(tmp_path), store.read()
    for use in (lambda: store.append(poll(11)), lambda: store.compact(HOUR)):
        with no_file_above(size_bytes):
            assert refused(use).endswith("File too large")
        assert files(tmp_path) == before
        assert store.read().equals(rows)
    store.append(poll(11))
    store.compact(HOUR)
    assert sorted(set(store.read()["time_ms"].to_pylist())) == [TEN + minute * 60_000 for minute in [*minutes, 11]]


# --- the loop -------------------------------------------------------------------------------------------------------


class Polls:
    """A source of 300 partitions that does something to the disk before some of its polls."""

    name = "dc1"

    def __init__(self, clock: Clock, before: dict[int, Callable[[], Any]]) -> None:
        self.clock, self.before, self.polls = clock, before, 0

    def poll(self) -> Poll:
        self.polls += 1
        self.before.get(self.polls, int)()
        return Poll([poll((self.clock.now_ms - TEN) // 60_000)])

    def close(self) -> None:
        pass


def followed(disk: SmallDisk, clock: Clock, source: Polls, rounds: int, **more: Any) -> tuple[SampleStore, list[Round]]:
    store, told = SampleStore(disk.seen / "store"), list[Round]()
    follow([source], Schedule(600.0, None, **more), store, told.append, Stop(clock, rounds))
    return store, told


def test_following_survives_a_full_disk_and_says_when_it_began_and_ended(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    source = Polls(clock, {4: disk.fill, 14: disk.free})  # over the end of an hour
    store, told = followed(disk, clock, source, 20)
    assert [one.number for one in told if not one.samples] == list(range(4, 14))
    news = [(one.number, sentence) for one in told for sentence in one.news]
    assert [number for number, _ in news] == [4, 14]
    assert "No space left on device; the samples of this time are lost" in news[0][1]
    assert news[1][1] == "samples are written again"
    assert len(store.read()) == 10 * 300
    assert store.loose_hours() == [hour_of(clock.now_ms)]


def test_retention_goes_on_while_the_disk_is_full(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    source = Polls(clock, {31: disk.fill})  # other files took the rest of the disk, for good
    store, told = followed(disk, clock, source, 60, keep_seconds=4 * 3600.0)
    assert not told[30].samples
    assert any(one.samples for one in told[31:]), "what retention frees is used"
    assert store.hours()[0] >= hour_of(clock.now_ms - 5 * HOUR_MS)

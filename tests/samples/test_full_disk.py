"""Disks that really are full, and files that may not grow: the store stays as it was, says so, and goes on with the space."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll, Round, Schedule, follow
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore
from tests.samples.rows import stored

from .small_disk import SmallDisk, small_disk
from .test_follow import Clock, Stop

TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
HOUR = "2025-11-21T10"
BLOCK = 4096


def poll(minute: int, topic: str = "logs", partitions: int = 300) -> Batch:
    ends = [minute * 100 + number * number for number in range(partitions)]
    return Batch("dc1", "fake", TEN + minute * 60_000, [topic] * partitions, range(partitions), end_offset=ends)


def whole(store: SampleStore, minutes: int = 10) -> SampleStore:
    for minute in range(minutes):
        store.append(poll(minute))
    return store


STEPS = """
import sys
from pathlib import Path
from tests.samples.test_full_disk import step
for line in sys.stdin:
    print(step(Path(sys.argv[1]), line.strip()), flush=True)
"""


def step(folder: Path, what: str) -> str:
    """Do a step; return the times in the store, or the error."""
    store = SampleStore(folder)
    does: dict[str, Callable[[], object]] = {
        "begin": lambda: whole(store),
        "append": lambda: store.append(poll(10)),
        "new hour": lambda: store.append(poll(70)),
        "compact": lambda: store.compact(HOUR),
        "expire": lambda: store.expire(2**60),
        "read": lambda: None,
    }
    try:
        does[what]()
    except Mm2mgrError as error:
        return f"error: {error.message}"
    return str(sorted(stored(SampleStore(folder))["time_ms"].to_pylist()) if store.hours() else [])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 512 * 1024) as mounted:
        yield mounted


@pytest.fixture
def do(disk: SmallDisk) -> Iterator[Callable[[str], str]]:
    """Do steps in a process where the disk is."""
    with disk.python(STEPS, str(disk.inside / "store")) as ask:
        yield ask


@pytest.mark.parametrize("what", ["append", "new hour", "compact", "expire"])
def test_what_does_not_fit_leaves_the_table_as_it_was_and_works_with_the_space(
    disk: SmallDisk, do: Callable[[str], str], what: str
) -> None:
    before, failed = do("begin"), 0
    for blocks in (0, 2, 5, 20):  # it breaks off at another place each time
        disk.fill(leave_bytes=blocks * BLOCK)
        found = do(what)
        disk.free()
        if not found.startswith("error"):
            break
        failed += 1
        assert found.endswith("No space left on device")
        assert do("read") == before
    assert failed >= 1
    after = do("read")
    assert len(after.split(",")) == {"append": 3300, "new hour": 3300, "compact": 3000, "expire": 1}[what]


def refused(use: Callable[[], object]) -> str:
    with pytest.raises(Mm2mgrError) as caught:
        use()
    assert caught.value.hint == "check the rights and the space there; what was written before stays readable"
    return caught.value.message


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
    rows = stored(store)
    for use in (lambda: store.append(poll(11)), lambda: store.compact(HOUR)):
        with no_file_above(size_bytes):
            assert refused(use).endswith("File too large")
        assert stored(store).equals(rows)
    store.append(poll(11))
    store.compact(HOUR)
    assert sorted(set(stored(store)["time_ms"].to_pylist())) == [TEN + minute * 60_000 for minute in [*minutes, 11]]


# --- the loop -------------------------------------------------------------------------------------------------------


def test_following_survives_a_full_disk_and_says_when_it_began_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rounds = Clock(monkeypatch), list[Round]()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def progress(done: Round) -> None:  # over the end of an hour
        rounds.append(done)
        if done.number in (3, 13):
            resource.setrlimit(resource.RLIMIT_FSIZE, (200 if done.number == 3 else soft, hard))

    store = SampleStore(tmp_path)
    try:
        follow([Polls(clock)], Schedule(600.0, None), store, progress, Stop(clock, 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [one.number for one in rounds if not one.samples] == list(range(4, 14))
    news = [(one.number, sentence) for one in rounds for sentence in one.news]
    assert {number for number, _ in news} <= {4, 6, 7, 12, 13, 14}
    assert "File too large; the samples of this round are lost" in news[0][1]
    assert news[-1] == (14, "samples are written again")
    assert len(stored(store)) == 10 * 300
    assert store.loose_hours() in ([], [hour_of(clock.now_ms)])


class Polls:
    """A source of 300 partitions."""

    name = "dc1"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def poll(self) -> Poll:
        return Poll([poll((self.clock.now_ms - TEN) // 60_000)])

    def close(self) -> None:
        pass

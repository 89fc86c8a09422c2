"""Files that a person names to write to: a full disk, a pipe that nobody reads, a folder, and files of the tree."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.plan.site import FLOWS, ON_EAST, Site

from .command import Command

FULL = "the event log /dev/full is incomplete: "
OF_EVENTS = [
    ("apply", "--yes"),
    ("reconcile", "--once", "--report-only"),
    ("watch", "--once", "--dry-run"),
    ("serve", "--with", "watch", "--listen", "127.0.0.1:0"),
]


def test_an_apply_gives_its_verdict_on_a_full_disk(mm2mgr: Command, site: Site) -> None:
    done = mm2mgr("apply", "--yes", "--events", "/dev/full")
    assert done.lines[-2].startswith("Applied: 7 of 7 changes")
    assert done.lines[-1].startswith(FULL)
    assert site.names("east") == sorted(ON_EAST)
    assert mm2mgr("apply", "--yes", "--events", "/dev/full", "-o", "json").json["unlogged"].startswith(FULL)
    assert mm2mgr("apply", "--yes", "--events", "e", "-o", "json").json["unlogged"] is None


@pytest.mark.parametrize("command", OF_EVENTS)
@pytest.mark.parametrize(
    "path", ["clusters/x.yaml", "clusters/new.yaml", "clusters/sub/NEW.YML", "templates/x.j2", "link"]
)
def test_events_never_go_into_the_tree(mm2mgr: Command, site: Site, command: tuple[str, ...], path: str) -> None:
    (mm2mgr.folder / "templates").mkdir()
    (mm2mgr.folder / "link").symlink_to(mm2mgr.tree / "x.yaml")
    before = (mm2mgr.tree / "x.yaml").read_bytes()
    done = mm2mgr(*command, "--events", path, code=1)
    assert f"--events {path}: it is" in done.err
    assert (mm2mgr.tree / "x.yaml").read_bytes() == before
    assert [each.name for each in mm2mgr.tree.iterdir()] == ["x.yaml"]
    assert site.names("east") == []


@pytest.fixture
def at_once() -> Iterator[None]:
    """Fail where a command waits for a pipe."""

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "command",
    [(*command, "--events") for command in OF_EVENTS] + [("plan", "--out"), ("link", "explain", "orders", "--page")],
)
def test_a_pipe_that_nobody_reads_is_refused_at_once(mm2mgr: Command, site: Site, command: tuple[str, ...]) -> None:
    site.declare(FLOWS + "links: [{between: [a, east], rtt: 80ms}]\n")
    os.mkfifo(mm2mgr.folder / "pipe")
    assert "it is a pipe, and nobody reads it" in mm2mgr(*command, "pipe", code=1).err
    assert site.east.writes == []


@pytest.mark.parametrize("path", ["clusters/plan.yaml", "clusters/x.yaml", "templates/plan.json"])
def test_no_plan_goes_into_the_tree(mm2mgr: Command, site: Site, path: str) -> None:
    (mm2mgr.folder / "templates").mkdir()
    done = mm2mgr("plan", "--out", path, code=1)
    assert f"--out {path}: it is" in done.err
    assert [each.name for each in mm2mgr.tree.iterdir()] == ["x.yaml"]
    mm2mgr("lint")


def test_a_plan_for_a_full_disk_or_a_folder_is_an_error(mm2mgr: Command, site: Site) -> None:
    assert "No space left on device" in mm2mgr("plan", "--out", "/dev/full", code=1).err
    assert "is a directory" in mm2mgr("plan", "--out", "clusters", code=64).err
    reader, writer = os.pipe()
    with os.fdopen(reader) as read:
        mm2mgr("plan", "--out", f"/dev/fd/{writer}")
        os.close(writer)
        assert json.load(read)["plan"]["owner"] == "team"


def test_a_starter_that_does_not_fit_leaves_nothing(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, room = os.fsync, [1]

    def fsync(opened: int) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(opened)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert "No space left on device" in mm2mgr("init", code=1).err
    assert mm2mgr.files() == {}
    mm2mgr("init")

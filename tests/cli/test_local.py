"""sandbox and demo where nothing was started, and Ctrl-C while real brokers start."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mm2mgr.sandbox.layout import Sandbox

from .command import Command, finish, start, until


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of all processes that name a directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if str(directory) in command:
            found.append(command)
    return found


def test_no_sandbox_is_said_and_nothing_is_written(mm2mgr: Command) -> None:
    said = mm2mgr("sandbox", "status")
    assert said.out == "no sandbox in .mm2mgr/sandbox; start one: mm2mgr sandbox up\n"
    assert mm2mgr("sandbox", "status", "--dir", "mine", "-o", "json").json == []
    assert mm2mgr("sandbox", "down").out == ""
    assert list(mm2mgr.folder.iterdir()) == []


def test_a_demo_is_not_shorter_than_it_takes_to_measure(mm2mgr: Command) -> None:
    assert "'4' is less than 5s" in mm2mgr("demo", "--seconds", "4", code=64).err


@pytest.mark.live
def test_ctrl_c_during_sandbox_up_leaves_no_process(mm2mgr: Command) -> None:
    directory = mm2mgr.folder / "sandbox"
    # The jars of the machine's own cache: what is fetched is not the subject here.
    running = start(mm2mgr.folder, "sandbox", "up", "--dir", str(directory), more={"MM2MGR_CACHE": ""})
    try:
        until(lambda: sum(each.running for each in Sandbox(directory).status()) == 4, "all brokers are starting")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
        left, state = processes_of(directory), (directory / "state.json").exists()
        Sandbox(directory).stop()  # should the command have left something, the test does not
    assert said.code == 130
    assert "starting brokers dc1-logging, dc2-logging, agg-east, agg-west" in said.err
    assert left == []
    assert not state
    assert mm2mgr("sandbox", "status", "--dir", directory).out.startswith("no sandbox in ")

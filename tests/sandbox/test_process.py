"""One process: started, watched, ended by its own id and never by somebody else's."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.process import (
    CONSOLE_LIMIT_BYTES,
    ProcessDied,
    ProcessId,
    last_lines,
    spawn,
    wait_until,
    without_interrupts,
)

Shell = Callable[[str], ProcessId]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Start shell scripts; whatever is left at the end is killed."""
    started: list[ProcessId] = []

    def start(script: str) -> ProcessId:
        process = spawn(["sh", "-c", script], tmp_path / "console.log", os.environ)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


def test_stop_ends_the_process_and_its_children(shell: Shell, tmp_path: Path) -> None:
    process = shell(f"sleep 60 & echo $! > {tmp_path}/child; wait")
    wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"))
    child = int((tmp_path / "child").read_text())
    process.stop()
    assert not process.alive()
    wait_for(lambda: not _runs(child))


def test_stop_kills_what_ignores_sigterm(shell: Shell, tmp_path: Path) -> None:
    process = shell(f"trap '' TERM; touch {tmp_path}/deaf; while true; do sleep 1; done")
    wait_for((tmp_path / "deaf").exists)
    process.stop(timeout_seconds=0.2)
    assert not process.alive()


def test_a_reused_process_id_is_left_alone(shell: Shell) -> None:
    process = shell("sleep 60")
    earlier = ProcessId(process.pid, "another start time")
    assert not earlier.alive()
    earlier.stop()
    earlier.kill()
    assert process.alive()


def test_a_process_that_is_gone_is_not_alive_and_can_be_stopped_again(shell: Shell) -> None:
    process = shell("true")
    wait_for(lambda: not process.alive())
    process.stop()


def test_the_console_stays_bounded(shell: Shell, tmp_path: Path) -> None:
    shell(f"trap '' PIPE; yes mirror | head -c {3 * CONSOLE_LIMIT_BYTES}; touch {tmp_path}/done; sleep 60")
    wait_for((tmp_path / "done").exists)
    wait_for(lambda: (tmp_path / "console.log").stat().st_size == CONSOLE_LIMIT_BYTES)


def test_waiting_fails_at_once_when_the_process_dies(shell: Shell, tmp_path: Path) -> None:
    process = shell("echo the reason; exit 3")
    before = time.monotonic()
    with pytest.raises(ProcessDied, match=r"the thing ended while starting(.|\n)*the reason"):
        wait_until(lambda: False, process, "the thing", 30, lambda: _console_with(tmp_path, "the reason"))
    assert time.monotonic() - before < 15


def test_waiting_ends_at_its_deadline(shell: Shell) -> None:
    with pytest.raises(SandboxError, match="the thing was not ready after 0 s"):
        wait_until(lambda: False, shell("sleep 60"), "the thing", 0.2, lambda: "")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="could not start no-such-program"):
        spawn(["no-such-program"], tmp_path / "console.log", os.environ)


def test_last_lines_are_few_and_cut(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{number} {'x' * 1000}\n" for number in range(500)))
    lines = last_lines(tmp_path / "log", lines=2, line_characters=10)
    assert lines == ["498 xxxxxx", "499 xxxxxx"]
    assert last_lines(tmp_path / "absent") == []


def _console_with(directory: Path, text: str) -> str:
    """Read the console when its last words have been written; the writer is another process than the one that died."""
    wait_for(lambda: text in (directory / "console.log").read_text())
    return (directory / "console.log").read_text()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc/self").exists() else True


def test_a_ctrl_c_while_a_process_is_noted_down_comes_after_it() -> None:
    noted = []

    def interrupted_start() -> None:
        with without_interrupts():
            signal.raise_signal(signal.SIGINT)
            noted.append("started")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark may have put one of its own there
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_start()
        assert noted == ["started"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_a_process_said_before_it_ended_is_in_the_error_however_late_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "head"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("head")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    console = tmp_path / "console.log"
    process = spawn(["sh", "-c", "echo the port is taken"], console, dict(os.environ))
    with pytest.raises(ProcessDied, match="the port is taken"):
        wait_until(lambda: False, process, "it", 30, console.read_text)

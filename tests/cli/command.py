"""The `mm2mgr` command as people meet it: arguments in; exit code, stdout and stderr apart out.

`Command` runs it inside this process, through the same `main()`; `start` runs it as a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from mm2mgr.cli import cli, main
from mm2mgr.errors import exit_codes
from tests.clock import sleep_for_others

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
# Each of these would change what is printed, or which Java is found.
_PRIVATE = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "MM2MGR_CLUSTERS", "MM2MGR_TEMPLATES", "PYTHONPATH", "TERM")


@dataclass(frozen=True)
class Said:
    """How one run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Stdout by lines, without the blanks that align columns."""
        return [line.rstrip() for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """Runs the command in this process, in a folder of its own, on the tree `clusters` there."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def tree(self) -> Path:
        return self.folder / "clusters"

    def __call__(self, *arguments: str | Path, code: int = 0) -> Said:
        """Run `mm2mgr ARGUMENTS` and hold it to its exit code."""
        self.monkeypatch.setattr(sys, "argv", ["mm2mgr", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self.capsys.readouterr()
        said = Said(int(ended.value.code or 0), out, err)
        assert said.code in exit_codes(command_in(arguments)), f"{said.code} is not in the table of exit codes"
        assert said.code == code, f"mm2mgr {' '.join(map(str, arguments))} ended with {said.code}\n{out}{err}"
        assert "Traceback" not in out + err
        return said

    def files(self) -> dict[str, bytes]:
        """Return every file below the folder with its bytes, to see that nothing was written."""
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


def command_in(arguments: Sequence[str | Path]) -> str:
    """Return the command of a command line, such as `link read`."""
    path: list[str] = []
    command: click.Command = cli
    for argument in map(str, arguments):
        below = command.commands.get(argument) if isinstance(command, click.Group) else None
        if below:
            path, command = [*path, argument], below
    return " ".join(path)


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what would change the output, and with folders of its own."""
    kept = {key: value for key, value in os.environ.items() if key not in _PRIVATE}
    own = {"MM2MGR_CACHE": str(folder / "cache"), "MM2MGR_STATE": str(folder / "state")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **own, **(more or {})}


def impatient_mm2mgr(seconds: float = 0.5) -> list[str]:
    """Return a command line of mm2mgr that waits so long for what a cluster does not answer: mock brokers cannot describe topics."""
    script = f"""
from mm2mgr.cli import main
from mm2mgr.kafka.client import Kafka
begin = Kafka.__init__
Kafka.__init__ = lambda kafka, access, timeout_seconds={seconds}: begin(kafka, access, min(timeout_seconds, {seconds}))
main()
"""
    return [sys.executable, "-c", script]


def start(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Start `python -m mm2mgr ARGUMENTS` in a folder."""
    command = [sys.executable, "-m", "mm2mgr", *arguments]
    pipe = subprocess.PIPE
    env = environment(folder, more)
    return subprocess.Popen(command, cwd=folder, env=env, stdin=stdin, stdout=pipe, stderr=pipe, text=True)


def left_early(mm2mgr: Command, *arguments: str) -> None:
    """Run a command whose reader is gone before it prints, as `| head` may be, to its end."""
    running = start(mm2mgr.folder, *arguments)
    assert running.stdout
    running.stdout.close()
    assert running.stderr
    try:
        said = running.stderr.read()
        assert running.wait(DEADLINE_SECONDS) == 1, said
    finally:
        running.kill()
    assert "Traceback" not in said


def finish(running: subprocess.Popen[str], timeout_seconds: float = DEADLINE_SECONDS) -> Said:
    """Wait for the end of a process, and end it by its own id when it does not come."""
    try:
        out, err = running.communicate(timeout=timeout_seconds)
    finally:
        running.kill()
    assert "Traceback" not in out + err, err
    return Said(running.returncode, out, err)


def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition of another thread or process; fail at the deadline, by a clock that never jumps."""
    deadline = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < deadline, f"{what}: not after {seconds:.0f} s"
        sleep_for_others(0.02)


def allowed_seconds() -> float:
    """Five seconds for what takes two; on a machine with more to run than it has cores for, as much longer as others hold it up.

    The load of the last minute says too little where a JVM has just begun beside the test: the threads that run now count too.
    """
    running = float(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) if sys.platform == "linux" else 0.0
    return 5.0 * max(1.0, max(os.getloadavg()[0], running) / (os.cpu_count() or 1))

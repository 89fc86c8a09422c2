"""A disk that really is full: a few hundred kilobytes of tmpfs in a mount namespace of its own, gone with its keeper.

Ways in: `seen`, a path that this process can use; `run`, a command, and `python`, a script, that find the disk at `inside`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_BLOCK = 4096


@dataclass(frozen=True)
class SmallDisk:
    """A mounted disk; `keeper` is the process whose namespace holds it."""

    keeper: int
    inside: Path

    @property
    def seen(self) -> Path:
        """The disk as this process sees it; it must not be resolved, which would lead out of the namespace."""
        return Path(f"/proc/{self.keeper}/root{self.inside}")

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self.keeper}", "--user", "--mount", "--preserve-credentials", "--"]

    @property
    def free_bytes(self) -> int:
        """How much can still be written."""
        told = os.statvfs(self.seen)
        return told.f_bavail * told.f_bsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all space but whole blocks of what is to be left."""
        self.free()
        blocks = max(0, self.free_bytes - leave_bytes) // _BLOCK
        (self.seen / "ballast").write_bytes(bytes(blocks * _BLOCK))

    def free(self) -> None:
        """Give the space back."""
        (self.seen / "ballast").unlink(missing_ok=True)

    def run(self, command: Sequence[str], timeout_seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command that sees the disk at `inside`."""
        return subprocess.run(
            [*self._enter, *command], capture_output=True, text=True, timeout=timeout_seconds, check=False
        )

    @contextmanager
    def python(self, script: str, *arguments: str) -> Iterator[Callable[[str], str]]:
        """Run a script that sees the disk at `inside`; each call gives it a line and returns the line that it answers."""
        command = [*self._enter, sys.executable, "-c", script, *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdin
            assert running.stdout
            given, answers = running.stdin, running.stdout

            def ask(line: str) -> str:
                print(line, file=given, flush=True)
                answer = answers.readline()
                assert answer.endswith("\n"), f"{line}: no answer"
                return answer[:-1]

            yield ask
            given.close()  # it ends with its input


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount an empty disk at a folder of its own namespace; the test is skipped where the machine forbids that."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("a small disk needs unshare and nsenter of util-linux")
    folder.mkdir(parents=True, exist_ok=True)
    script = f'mount -t tmpfs -o size={size_bytes} none "$0" && echo mounted && exec cat'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder)]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert keeper.stdin
    assert keeper.stdout
    try:
        if keeper.stdout.readline() != "mounted\n":
            _, said = keeper.communicate(timeout=10)
            pytest.skip(f"this machine lets nobody mount a small disk: {said.strip()[:200]}")
        yield SmallDisk(keeper.pid, folder)
    finally:
        keeper.stdin.close()  # `cat` ends with its input, and the disk with `cat`
        keeper.wait(10)
        keeper.stdout.close()
        if keeper.stderr:
            keeper.stderr.close()

"""A YAML tree in its own folder and the `mm2mgr` command run on it, as a person would: in a process of its own.

What it printed is kept as a whole, so that a test can search it for secrets. The processes are forked from one that has
imported the command already: that takes off half a second of CPU time each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mm2mgr.operations.workspace import Workspace

COMMAND_TIMEOUT_SECONDS = 180.0
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [f"mm2mgr.{each}" for each in ("cli", "operations.plan", "operations.status", "apply.execute", "output.apply_text")]
)


@dataclass
class Tree:
    """One folder of YAML; `said` is everything the command ever printed about it."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tree.yaml").write_text(text, encoding="utf-8")

    def write_more(self, name: str, text: str) -> None:
        """Write another file beside the tree."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run `mm2mgr ARGUMENTS`, hold it to its exit code, and return stdout and stderr in one text."""
        done = self._run(arguments)
        assert done.returncode == code, f"mm2mgr {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def attempt(self, *arguments: str) -> str:
        """Run `mm2mgr ARGUMENTS` and return stdout and stderr in one text, whatever the exit code."""
        done = self._run(arguments)
        return done.stdout + done.stderr

    def json(self, *arguments: str) -> Any:
        """Run `mm2mgr ARGUMENTS -o json` and return the result, whatever the exit code."""
        done = self._run((*arguments, "-o", "json"))
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def workspace(self) -> Workspace:
        """Return the tree as the commands see it, for a test that has to reach into an apply."""
        return Workspace((self.folder,))

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start `mm2mgr ARGUMENTS`; it is killed on the way out if it still runs."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self._command(arguments), stdout=pipe, stderr=pipe, text=True, cwd=self.folder, env=self._environment()
        ) as running:
            try:
                yield running
            finally:
                running.kill()

    @contextmanager
    def serve(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Start `mm2mgr serve ARGUMENTS` on a free port and yield it with its URL, once it listens."""
        with self.start("serve", "--listen", "127.0.0.1:0", *arguments) as running:
            assert running.stderr
            said = running.stderr.readline()
            assert said.startswith("serving http"), said
            yield running, said.removeprefix("serving ").partition(";")[0]

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "mm2mgr", "--clusters", str(self.folder), *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "MM2MGR_STATE": str(self.folder.parent / "state")}

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = self._command(arguments)
        with tempfile.TemporaryDirectory() as folder:
            said = [Path(folder, name) for name in ("stdout", "stderr")]
            process = _PROCESSES.Process(target=_mm2mgr, args=(command[3:], self._environment(), self.folder, *said))
            process.start()
            process.join(COMMAND_TIMEOUT_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()
                raise subprocess.TimeoutExpired(command, COMMAND_TIMEOUT_SECONDS)
            out, err = (path.read_text(encoding="utf-8") for path in said)
        self.said.append(out + err)
        assert "Traceback (most recent call last)" not in err, err
        return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _mm2mgr(arguments: list[str], environment: dict[str, str], folder: Path, out: Path, err: Path) -> None:
    """Become `mm2mgr ARGUMENTS`: in its folder, with its environment and its standard streams."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["mm2mgr", *arguments]
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    from mm2mgr.cli import main

    main()

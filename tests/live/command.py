"""A YAML tree in its own folder and the `mm2mgr` command run on it, as a person would: in a process of its own.

In: YAML text and arguments. Out: what was printed, kept as a whole so that a test can search it for secrets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mm2mgr.operations.workspace import Workspace

COMMAND_TIMEOUT_SECONDS = 180.0


@dataclass
class Tree:
    """One folder of YAML; `said` is everything the command ever printed about it."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tree.yaml").write_text(text, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run `mm2mgr ARGUMENTS`, hold it to its exit code, and return stdout and stderr in one text."""
        done = self._run(arguments)
        assert done.returncode == code, f"mm2mgr {' '.join(arguments)}\n{done.stdout}{done.stderr}"
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

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "mm2mgr", "--clusters", str(self.folder), *arguments]

    def _environment(self) -> dict[str, str]:
        own = {name: str(self.folder.parent / name.lower()) for name in ("cache", "state")}
        return {**os.environ, "MM2MGR_CACHE": own["cache"], "MM2MGR_STATE": own["state"]}

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._command(arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_SECONDS,
            cwd=self.folder,
            env=self._environment(),
        )
        self.said.append(done.stdout + done.stderr)
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
        return done

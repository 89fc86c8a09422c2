"""One operating-system process: start it in its own session, wait for it, stop it by its own id.

A ProcessId outlives this Python process. A process whose start time differs from the recorded one is never signalled.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mm2mgr import timing
from mm2mgr.errors import SandboxError

CONSOLE_LIMIT_BYTES = 1024 * 1024
_POLL_SECONDS = 0.05
_children: dict[int, subprocess.Popen[bytes]] = {}  # ours to reap
_consoles: dict[int, subprocess.Popen[bytes]] = {}  # by the process whose output each writes down
_CONSOLE_SECONDS = 5.0


class ProcessDied(SandboxError):
    """The process ended while this program waited for it; the message carries the end of its log."""


@dataclass(frozen=True)
class ProcessId:
    """A process id with the start time that tells it from a later process of the same number."""

    pid: int
    started: str

    def alive(self) -> bool:
        return started_at(self.pid) == self.started

    def words(self) -> list[str]:
        """Return the words of its command line, those of a `sh -c` script too; none when it has ended."""
        deadline = timing.now() + 1.0
        while self.alive():
            # A process that is about to run a program, or to end, has none for a moment.
            if (words := _words_of(self.pid)) or timing.now() > deadline:
                return words or ["?"]
            timing.sleep(_POLL_SECONDS)
        return []

    def ask_to_end(self) -> None:
        """Send SIGTERM; a process that is not ours is left alone."""
        self._signal(signal.SIGTERM)

    def stop(self, timeout_seconds: float = 15.0) -> bool:
        """Ask it to end (SIGTERM), and kill it when the deadline passes: then False; a process that is not ours is left
        alone."""
        self.ask_to_end()
        if self._gone_within(timeout_seconds):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """End it at once (SIGKILL); raise SandboxError if the kernel still has it ten seconds later."""
        self._signal(signal.SIGKILL)
        if not self._gone_within(10.0):
            raise SandboxError(
                f"process {self.pid} did not end after SIGKILL", hint="it may be blocked by an unreachable file system"
            )

    def _signal(self, number: int) -> None:
        if self.alive():
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.pid, number)  # it leads its own session, so its group has its number

    def _gone_within(self, seconds: float) -> bool:
        # Not psutil's wait: it waits on for the zombie of a process whose parent is another one.
        deadline = timing.now() + seconds
        while self.alive() and timing.now() < deadline:
            timing.sleep(_POLL_SECONDS)
        return not self.alive()


def started_at(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; None when there is none or only its zombie is left.

    Not the time of day that psutil gives: that moves when the machine's clock is set.
    """
    import psutil  # an optional package: without it, `sandbox status` can still say that nothing was started

    _reap()
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return str(round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK")))
    except psutil.Error:
        return None


def _words_of(pid: int) -> list[str]:
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return []
    if words[:2] == ["sh", "-c"] and len(words) > 2:
        with suppress(ValueError):  # an unfinished quotation: no script of ours
            words += shlex.split(words[2])
    return [word for word in words if word]


def spawn(command: Sequence[str], console: Path, environment: Mapping[str, str]) -> ProcessId:
    """Start a command in its own session, so that Ctrl-C here does not reach it; keep the first MiB of its console."""
    with console.open("wb") as file:
        # `head` ends the growth without a thread of ours that would have to live as long as the JVM. A JVM ignores
        # SIGPIPE, so its later output is simply lost.
        head = subprocess.Popen(
            ["head", "-c", str(CONSOLE_LIMIT_BYTES)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.DEVNULL,  # else a pipe around `sandbox up` would stay open until `sandbox down`
            start_new_session=True,
        )
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=head.stdin,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"could not start {command[0]}: {error.strerror}") from error
    finally:
        if head.stdin:
            head.stdin.close()
    _children.update({head.pid: head, child.pid: child})
    _consoles[child.pid] = head
    return ProcessId(child.pid, started_at(child.pid) or "ended at once")


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold a Ctrl-C back until the block is over: between starting a process and noting it down, it would be orphaned.

    A handler and not a signal mask, which the new process would inherit for good.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # One that is ignored, as nohup ignores SIGHUP, stays so, in the new process too.
    held = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in held}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


def wait_until(
    ready: Callable[[], bool], process: ProcessId, server: str, timeout_seconds: float, tail: Callable[[], str]
) -> None:
    """Wait until `ready()`; raise ProcessDied at once when the process ends, SandboxError at the deadline."""
    deadline = timing.now() + timeout_seconds
    while not ready():
        if not process.alive():
            if console := _consoles.get(process.pid):  # what the process said last may not be written down yet
                with suppress(subprocess.TimeoutExpired):
                    console.wait(_CONSOLE_SECONDS)
            raise ProcessDied(f"{server} ended while starting. The end of its log:\n{tail()}")
        if timing.now() > deadline:
            raise SandboxError(f"{server} was not ready after {timeout_seconds:.0f} s. The end of its log:\n{tail()}")
        timing.sleep(_POLL_SECONDS)


def last_lines(path: Path, lines: int = 15, line_characters: int = 300) -> list[str]:
    """Return the last lines of a log, each cut and without Java's stack frames; nothing when there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    own_lines = [line for line in text.splitlines() if not line.startswith("\tat ")]  # frames would push the cause out
    return [line[:line_characters] for line in own_lines[-lines:]]


def _reap() -> None:
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)

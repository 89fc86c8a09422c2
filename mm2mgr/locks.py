"""File locks between processes: a waiting process names the holder, and waits for a limited time.

A lock file keeps the name of the process that holds it, for those who wait. It stays when the lock is given back: whoever
removed it could hand the lock to two others at once. Not filelock: it cannot lock a folder, nor name the holder.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from mm2mgr.errors import Mm2mgrError

_SAID_AFTER_SECONDS = 2.0  # most locks are held for milliseconds
_LONGEST_PAUSE_SECONDS = 0.25
_NAME_BYTES = 300


class Locked(Mm2mgrError):
    """Another process held the lock to the end of the time allowed."""


@contextmanager
def locked(
    path: Path, purpose: str, wait_seconds: float, say: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the lock file, created where it is missing, or lock a folder itself; OSError where the place allows neither.

    `say` is called once with the holder's name; Locked when the wait exceeds `wait_seconds`. `purpose` says what is waiting.
    """
    opened = _opened(path)
    try:
        _acquire(opened, path, purpose, wait_seconds, say)
        _sign(opened)
        try:
            yield
        finally:
            _sign(opened, leaving=True)
    finally:
        os.close(opened)  # and with it the lock


def _opened(path: Path) -> int:
    if path.is_dir():
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    # Neither through a link nor waiting for the other end of a pipe.
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not _is_file(opened):
        os.close(opened)
        raise Mm2mgrError(f"{path} is not a lock file: it is not a regular file", hint="move it away")
    return opened


def _acquire(opened: int, path: Path, purpose: str, wait_seconds: float, say: Callable[[str], None]) -> None:
    began, pause, said = time.monotonic(), 0.005, False
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited >= wait_seconds:
            how = f"is still locked after {waited:.0f} s" if wait_seconds else "is locked"
            hint = f"wait until it is done, or end it if it hangs (`fuser -v {path}` on its machine names it)"
            raise Locked(f"{purpose}: {path} {how} by {_holder(opened)}", hint=hint)
        if not said and waited >= min(_SAID_AFTER_SECONDS, wait_seconds / 2):
            said = True
            say(f"{purpose}: waiting up to {wait_seconds:.0f} s for {path}, locked by {_holder(opened)}")
        time.sleep(min(pause, max(0.0, wait_seconds - waited)))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _sign(opened: int, *, leaving: bool = False) -> None:
    """Write down who holds the lock; a disk that is full costs only the name."""
    if not _is_file(opened):
        return
    what = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]) if sys.argv else "?"
    name = f"process {os.getpid()} ({what}) on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        os.ftruncate(opened, 0)
        if not leaving:
            os.pwrite(opened, name.encode(errors="replace")[:_NAME_BYTES], 0)
    except OSError:
        return


def _holder(opened: int) -> str:
    try:
        name = os.pread(opened, _NAME_BYTES, 0).decode(errors="replace") if _is_file(opened) else ""
    except OSError:
        name = ""
    return "".join(letter if letter.isprintable() else "?" for letter in name) or "an unknown process"


def _is_file(opened: int) -> bool:
    return stat.S_ISREG(os.fstat(opened).st_mode)

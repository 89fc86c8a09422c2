"""Reads a file that people named, whatever it is: a size limit, no devices, and no waiting for ever at a pipe.

In: a path. Out: bytes, or Unreadable with the end of a sentence that begins with the file's name.
"""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path

PIPE_SECONDS = 10.0
_CHUNK = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class Unreadable(Exception):
    """Why a file cannot be read; `missing` when there is none."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Return what a regular file or a pipe holds. Raises Unreadable; a pipe that is silent for PIPE_SECONDS is left."""
    try:
        _refuse(path.stat().st_mode)  # before it is opened: that alone may do something to a device
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unreadable("no such file", missing=True) from error
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    try:
        mode = os.fstat(opened).st_mode
        _refuse(mode)
        return _read(opened, most_bytes, is_pipe=stat.S_ISFIFO(mode))
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(opened)


def _refuse(mode: int) -> None:
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise Unreadable(f"cannot be read: it is {kind}, not a file")


def _read(opened: int, most_bytes: int, *, is_pipe: bool) -> bytes:
    found = bytearray()
    waiting = select.poll()
    waiting.register(opened, select.POLLIN)
    while len(found) <= most_bytes:
        if is_pipe and not waiting.poll(PIPE_SECONDS * 1000):
            raise Unreadable(f"cannot be read: it is a pipe, and nothing was written to it for {PIPE_SECONDS:g} s")
        data = os.read(opened, min(_CHUNK, most_bytes + 1 - len(found)))
        if not data:
            return bytes(found)
        found += data
    size = f"{most_bytes // 1_000_000} MB" if most_bytes >= 1_000_000 else f"{most_bytes} bytes"
    raise Unreadable(f"is larger than {size}")

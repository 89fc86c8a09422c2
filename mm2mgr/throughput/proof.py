"""The proof that whoever does a unit sees the same store as the driver: without it, what was not seen would count as empty.

The driver writes down beside the drafts which files there are, under a name that nobody can guess; each task must find that
list where its unit says, and the files that are on it. What a task did not find, the driver judges.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError

Seen = Mapping[str, Sequence[Sequence[Any]]]
"""The files (name, size) of each folder as the driver sees them."""
_HINT = "mount the store under this path on every machine that runs executors, or use --no-spark"
_OF_THE_FILE = {errno.EIO, errno.ENOENT, errno.ENOTDIR}  # damaged, or gone by now; other errors are those of the reader


class NotSeenError(Mm2mgrError):
    """A task does not see the store that the driver sees."""


def write_proof(drafts: Path, files: Seen) -> str:
    """Write down the files (name, size) of each folder as the driver sees them; return the path of the list."""
    path = drafts / f"seen-{uuid.uuid4().hex[:16]}.json"
    path.write_text(json.dumps({folder: list(each) for folder, each in files.items()}), encoding="utf-8")
    return str(path)


def read_proof(path: str) -> Seen:
    """Return what `write_proof` wrote; NotSeenError where it is not there."""
    try:
        Path(path).stat()  # each time, although it is read only once
        return _listed(path)
    except (OSError, ValueError) as error:
        raise _not_seen(f"{path} cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from error


@lru_cache(maxsize=2)
def _listed(path: str) -> Seen:
    found: Seen = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def unseen(told: Iterable[Sequence[Any]], paths: Iterable[Path]) -> list[str]:
    """Return the names of the files that the driver saw and that are not among those that were read."""
    return sorted({str(name) for name, _ in told} - {path.name for path in paths})


def require(folder: Path, told: Iterable[Sequence[Any]]) -> list[Path]:
    """Return these files; NotSeenError unless they are there in these sizes. For roll-ups, which only the driver changes."""
    paths = []
    for name, size in told:
        path = folder / str(name)
        try:
            found = path.stat().st_size
        except OSError as error:
            raise _not_seen(f"{path}: {error.strerror}") from error
        if found != size:
            raise _not_seen(f"{path} has {found} bytes instead of {size}")
        paths.append(path)
    return paths


def not_allowed(path: Path, error: BaseException) -> None:
    """NotSeenError where a failure to read says nothing about the file: no rights, or storage that does not answer."""
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number is not None and number not in _OF_THE_FILE:
        raise NotSeenError(
            f"{path} cannot be read on {socket.gethostname()}: {os.strerror(number)}",
            hint="let the user of the job, or of Spark's executors, read all files of the store",
        ) from error


def judge(store: Path, missing: Iterable[str]) -> None:
    """NotSeenError when a file that a task did not find is still there for the driver; else it was compacted or expired."""
    for name in missing:
        if (path := store / name).exists():
            raise NotSeenError(f"a task did not see {path}, which the driver sees; nothing was changed", hint=_HINT)


def require_drafts(drafts: Iterable[str]) -> None:
    """NotSeenError when what a task says it wrote is not there for the driver."""
    for draft in drafts:
        if not Path(draft).is_file():
            raise NotSeenError(f"a task wrote {draft}, which the driver does not see; nothing was changed", hint=_HINT)


def _not_seen(what: str) -> NotSeenError:
    # What to do is part of the message: Spark hands on nothing else.
    return NotSeenError(f"{socket.gethostname()} does not see the store as the driver does: {what}; {_HINT}")

"""The folders that the sandbox and the demo may fill and empty: those with their marker and without links that lead out.

Any other folder is a SandboxError, and nothing in it is touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from mm2mgr.errors import SandboxError
from mm2mgr.locks import locked
from mm2mgr.text import few

MARKER = ".mm2mgr-folder"
_OTHER = "name a new or an empty folder: --dir DIR"


def claim(folder: Path, use: str, is_older: Callable[[Path], bool]) -> None:
    """Make the folder and mark it for this use; `is_older` knows the folders of versions that set no marker.

    Raises SandboxError where it holds anything and is not of this use, or a symbolic link.
    """
    is_there = is_claimed(folder, use, is_older)
    if is_there and _is_marked(folder, use):
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / MARKER).open("x", encoding="utf-8") as marker:
            marker.write(_mark(use))


def is_claimed(folder: Path, use: str, is_older: Callable[[Path], bool]) -> bool:
    """Tell whether the folder is marked for this use; False where there is nothing yet. SandboxError for any other folder."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SandboxError(f"{folder} cannot be read: {error.strerror}", hint=_OTHER) from error
    if not names:
        return False
    if not (_is_marked(folder, use) or (MARKER not in names and is_older(folder))):
        what = f"{folder} was not made by `mm2mgr {use}` (it holds {few(names)}, and no {MARKER} file of it); nothing was touched"
        raise SandboxError(what, hint=_OTHER)
    _refuse_ways_out(folder)
    return True


def only_one(folder: Path, doing: str = "starting or stopping the sandbox") -> AbstractContextManager[None]:
    """Hold the folder's lock, which the kernel frees when its holder dies; raise Locked when another process has it."""
    return locked(folder / "state.lock", f"another process is {doing} in {folder}", 0)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failure to write into a SandboxError that names the file, or else the folder."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise SandboxError(f"{where} cannot be written: {error.strerror or error}", hint=_OTHER) from error


def _mark(use: str) -> str:
    return f"mm2mgr {use}\nmm2mgr fills and empties this folder: keep nothing of yours in it.\n"


def _is_marked(folder: Path, use: str) -> bool:
    marker = folder / MARKER
    try:
        if not stat.S_ISREG(marker.lstat().st_mode):
            return False
        with marker.open(encoding="utf-8", errors="replace") as file:
            return file.readline(100).rstrip("\n") == f"mm2mgr {use}"
    except OSError:
        return False


def _refuse_ways_out(folder: Path) -> None:
    """Refuse links, pipes and devices anywhere below the folder: what is written or deleted there must stay there."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue  # a running broker deletes files
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                what = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                hint = f"remove it, or {_OTHER}"
                raise SandboxError(f"{path} is {what}, which mm2mgr never puts there; nothing was touched", hint=hint)

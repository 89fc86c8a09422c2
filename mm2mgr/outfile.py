"""Writes a result file whole or not at all, and never over a file of another kind.

In: a path that people gave and a text. Out: the file; Mm2mgrError where it cannot be written, or something else is there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import Mm2mgrError

_HEAD_CHARACTERS = 4_096


@dataclass(frozen=True)
class Kind:
    """A kind of file that mm2mgr writes: what it is called, how one is known by its first characters, its rights."""

    name: str
    is_one: Callable[[str], bool]
    mode: int = 0o666
    failure: str = "cannot be written"


def check_free(path: Path, kind: Kind) -> bool:
    """Refuse a path where a file of another kind is; True where a file may take its place, False for a pipe or a device."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD_CHARACTERS)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise _refused(path, kind, error) from error
    if head.strip() and not kind.is_one(head):
        what = f"{path} is there and is not {kind.name} of mm2mgr; it was left as it is"
        raise Mm2mgrError(what, hint="name another file, or remove this one")
    return True


def write_whole(path: Path, text: str, kind: Kind) -> None:
    """Write the text; a file of this kind is replaced in one step, the target of a link too; a pipe or device is written to."""
    if not check_free(path, kind):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _refused(path, kind, error) from error
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, kind.mode), "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _refused(path, kind, error) from error


def _refused(path: Path, kind: Kind, error: OSError) -> Mm2mgrError:
    return Mm2mgrError(f"{path}: {kind.failure}: {error.strerror}", hint="name another file")

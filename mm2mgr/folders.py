"""Folders: where mm2mgr keeps what belongs to a user and to no tree, the cache and the state; and what lies in one."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

from mm2mgr.errors import Mm2mgrError


def cache_folder() -> Path:
    """Return $MM2MGR_CACHE, or ~/.cache/mm2mgr; Mm2mgrError where no home folder is known."""
    given = os.environ.get("MM2MGR_CACHE")
    return Path(given) if given else _home("MM2MGR_CACHE") / ".cache" / "mm2mgr"


def state_folder() -> Path:
    """Return $MM2MGR_STATE, else mm2mgr below $XDG_STATE_HOME, else ~/.local/state/mm2mgr; Mm2mgrError as above."""
    if given := os.environ.get("MM2MGR_STATE"):
        return Path(given)
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else _home("MM2MGR_STATE") / ".local" / "state") / "mm2mgr"


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return what lies in a folder under names like `pattern`, sorted; a missing folder is empty.

    Mm2mgrError where the folder cannot be read: `Path.glob` takes that for empty, and what is there would be made anew.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        hint = "check the rights of this folder"
        raise Mm2mgrError(f"{folder}: cannot be read: {error.strerror}", hint=hint) from error
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def _home(variable: str) -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # no HOME, and this user is not in the machine's list
        hint = f"set ${variable} to a folder that can be written"
        raise Mm2mgrError(f"this user has no home folder, and ${variable} is not set", hint=hint) from error

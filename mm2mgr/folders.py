"""Where mm2mgr keeps what belongs to a user and to no tree: the cache, and the state that `status` remembers."""

from __future__ import annotations

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


def _home(variable: str) -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # no HOME, and this user is not in the machine's list
        hint = f"set ${variable} to a folder that can be written"
        raise Mm2mgrError(f"this user has no home folder, and ${variable} is not set", hint=hint) from error

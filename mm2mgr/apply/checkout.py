"""Whether git is changing the files of a tree right now: what it has in its folder meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# What git has in its folder while it changes files, or waits for a person in the middle of that.
_GIT_WORKS = (
    *("index.lock", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("rebase-merge", "rebase-apply", "sequencer", "BISECT_START"),
)


def git_at_work(files: Iterable[Path]) -> Path | None:
    """Return what shows that git is changing these files right now, or is in the middle of a merge, rebase or the like;
    None if nothing does.
    """
    folders = {file.resolve() if file.is_dir() else file.resolve().parent for file in files}
    for folder in sorted(folders):
        for parent in (folder, *folder.parents):
            if (own := _git_folder(parent / ".git")) is not None:
                if sign := next((own / name for name in _GIT_WORKS if (own / name).exists()), None):
                    return sign
                break
    return None


def _git_folder(path: Path) -> Path | None:
    """Return the folder that git keeps for a working tree; a linked one has a file that names it."""
    try:
        if path.is_file():
            named = path.read_text(errors="replace").partition("gitdir:")[2].strip()
            return path.parent / named if named else None
        return path if path.is_dir() else None
    except OSError:
        return None

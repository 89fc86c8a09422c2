"""Finds the YAML files of a tree, and reports each one that cannot be read.

No file is skipped without an error: `apply --prune` deletes what is missing from the tree.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import Mm2mgrError, Problem
from mm2mgr.spec.places import Place

OVERRIDES = "overrides"
_LEADS_OUT = "a link that leads out of the tree: move the files into the tree, or add their folder with -f"


def resolved_within(path: Path, folder: Path) -> Path | None:
    """Return where a path leads, None when a link leads out of the folder. Raises OSError or RuntimeError for a link to itself.

    The one test for links that leave a tree; the loader, the writer of overrides and the loader of templates ask it.
    """
    target = path.resolve()
    return target if target.is_relative_to(folder.resolve()) else None


@dataclass(frozen=True, order=True)
class TreeFile:
    """A file of the tree. `override`: it is in an overrides/ folder inside the tree."""

    path: Path
    override: bool


def tree_files(sources: Sequence[Path]) -> tuple[list[TreeFile], list[Problem]]:
    """List the files of `sources`, folders recursively, in a fixed order. Raises Mm2mgrError for a source that does not exist."""
    files: list[TreeFile] = []
    problems: list[Problem] = []
    for source in sources:
        try:
            mode = source.stat().st_mode
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            what = "no such file or folder" if missing else f"cannot be read: {error.strerror}"
            raise Mm2mgrError(f"{source}: {what}", hint="name the tree with --clusters, or run mm2mgr init") from error
        if stat.S_ISDIR(mode):
            files += sorted(_below(source, problems))
        else:
            files.append(TreeFile(source, source.parent.name == OVERRIDES))
    return files, problems


def _below(source: Path, problems: list[Problem]) -> Iterator[TreeFile]:
    def unreadable(error: OSError) -> None:
        problems.append(Problem(Place(str(error.filename or source), 1, 1), f"cannot be read: {error.strerror}"))

    seen: set[tuple[int, int]] = set()  # links may lead back up
    for name, folders, names in os.walk(source, followlinks=True, onerror=unreadable):
        folder = Path(name)
        try:
            here = folder.stat()
        except OSError as error:
            unreadable(error)
            continue
        if resolved_within(folder, source) is None:
            problems.append(Problem(Place(name, 1, 1), _LEADS_OUT))
            folders.clear()
            continue
        if (here.st_dev, here.st_ino) in seen:
            folders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        override = OVERRIDES in folder.relative_to(source).parts
        # A dot hides: Kubernetes mounts a ConfigMap as x.yaml -> ..data/x.yaml, and ..data holds every file again.
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        shown = [one for one in (*names, *folders) if not one.startswith(".")]
        for path in _yaml(folder, shown, source, problems):
            yield TreeFile(path, override)


def _yaml(folder: Path, names: Iterable[str], source: Path, problems: list[Problem]) -> Iterator[Path]:
    for path in (folder / name for name in names):
        yaml = path.suffix.lower() in {".yaml", ".yml"}
        if not yaml and not path.is_symlink():
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:  # a link without its target, which may have been a folder of files
            problems.append(Problem(Place(str(path), 1, 1), f"cannot be read: {error.strerror}"))
            continue
        if yaml and not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            problems.append(Problem(Place(str(path), 1, 1), f"cannot be read: it is {kind}"))
        elif yaml and not (path.is_symlink() and resolved_within(path, source) is None):
            yield path
        elif yaml:
            problems.append(Problem(Place(str(path), 1, 1), _LEADS_OUT))

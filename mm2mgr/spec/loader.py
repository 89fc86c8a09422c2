"""Loads the files of a YAML tree into one `Spec`: the validated tree plus the place of every value.

Every problem has file, line, column and, for a misspelt key, the nearest known one. No file is skipped without an
error: `apply --prune` deletes what is missing from the tree. Aliases are resolved later, by `expand`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from mm2mgr.errors import Mm2mgrError, Problem, SpecError
from mm2mgr.files import resolved_within
from mm2mgr.secrets import remember
from mm2mgr.spec.models import OVERRIDE_KEYS, FlowSettings, Tree
from mm2mgr.spec.places import Document, Key, PathKey, Place, nearest_place, read_yaml

OVERRIDES = "overrides"
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
_NEVER_EMPTY = ("owner", "clusters", "connect", "flows")  # a name with nothing below it in any file is a slip
_LEADS_OUT = "a link that leads out of the tree: move the files into the tree, or add their folder with -f"


@dataclass(frozen=True)
class Spec:
    """A validated tree. `raw` has the written values (nested dicts), `places` their places, `overrides` the override
    files."""

    tree: Tree
    raw: dict[str, Any]
    places: dict[PathKey, Place]
    files: tuple[str, ...]
    overrides: frozenset[str] = frozenset()

    def place(self, *path: Key) -> Place:
        """Return where `path` was written, or its nearest parent that was."""
        return nearest_place(self.places, path)


def load(sources: Sequence[Path], contents: Mapping[str, bytes] = MappingProxyType({})) -> Spec:
    """Load all YAML files in `sources` (files, or folders read recursively). Raises SpecError with every problem found.

    `contents` are read instead of the files of these names.
    """
    files, problems = _tree_files(sources)
    overrides = frozenset(str(path) for path, is_override in files if is_override)
    documents: list[Document] = []
    for path, _ in files:
        try:
            documents += read_yaml(path, contents.get(str(path)))
        except SpecError as error:
            problems += error.problems
    merged = _Merged()
    for document in documents:
        if {"apiVersion", "kind"} <= document.values.keys():
            what = "a Kubernetes resource is no part of a tree: move it to another folder (mm2mgr lint FILE reads it)"
            problems.append(Problem(document.places["kind",], what))
            continue
        _remember(document.values)
        merged.add(document, is_override=document.file in overrides)
    problems += merged.problems
    if problems:
        raise SpecError(problems)
    if not documents:
        problem = Problem(", ".join(map(str, sources)), "no YAML file with content")
        raise SpecError([problem], hint="mm2mgr init writes a starter")
    for key in _NEVER_EMPTY:
        if (key,) in merged.places:
            merged.values.setdefault(key, None)
    try:
        tree = Tree.model_validate(merged.values)
    except ValidationError as error:
        from mm2mgr.spec.mistakes import mistakes  # nothing of it is needed where nothing is wrong

        problems_found = mistakes(error, merged.values)
        raise SpecError(
            [Problem(nearest_place(merged.places, path), message) for path, message in problems_found]
        ) from error
    return Spec(tree, merged.values, merged.places, tuple(str(path) for path, _ in files), overrides)


def _remember(values: object) -> None:
    """Register the secrets in the tree for masking, before any problem quotes them."""
    if isinstance(values, dict):
        remember(values)
        values = list(values.values())
    for inner in values if isinstance(values, list) else ():
        _remember(inner)


def check_merged(merged: dict[str, object], of: str) -> tuple[FlowSettings | None, list[tuple[PathKey, str]]]:
    """Check merged settings: each layer was valid, the result need not be. Returns the paths and messages of problems
    too."""
    try:
        return FlowSettings.model_validate(merged), []
    except ValidationError as error:
        from mm2mgr.spec.mistakes import mistakes

        return None, mistakes(error, merged, ("defaults", "flows"), of)


class _Merged:
    """The top level of all files as one mapping: maps are merged (a duplicate key is a problem), lists are appended."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.places: dict[PathKey, Place] = {}
        self.problems: list[Problem] = []

    def add(self, document: Document, *, is_override: bool) -> None:
        lengths = {key: len(value) for key, value in self.values.items() if isinstance(value, list)}
        for key, value in document.values.items():
            before = self.values.get(key)
            if (key in OVERRIDE_KEYS) != is_override:
                names = " and ".join(f"{key}:" for key in OVERRIDE_KEYS)
                rule = f"only files in an {OVERRIDES}/ folder contain {names}, and nothing else"
                self.problems.append(Problem(document.places[key,], f"'{key}' does not belong in this file: {rule}"))
            elif value is None:
                continue  # `flows:` with every entry below it commented out
            elif isinstance(before, list) and isinstance(value, list):
                before.extend(value)
            elif isinstance(before, dict) and isinstance(value, dict):
                self._join(document, (key,), before, value, deep=key == "defaults")
            elif key in self.values and before != value:
                message = f"'{key}' has another value at {self.places[key,]}"
                self.problems.append(Problem(document.places[key,], message))
            else:
                self.values[key] = value
        if not any(lengths.values()):
            self.places = document.places | self.places
            return
        for path, place in document.places.items():
            shifted = path
            if len(path) > 1 and isinstance(path[1], int):
                shifted = (path[0], path[1] + lengths.get(str(path[0]), 0), *path[2:])
            self.places.setdefault(shifted, place)

    def _join(
        self, document: Document, path: PathKey, into: dict[str, object], values: dict[str, object], *, deep: bool
    ) -> None:
        for key, value in values.items():
            inner = (*path, key)
            below = into.get(key)
            if key not in into:
                into[key] = value
            elif deep and isinstance(below, dict) and isinstance(value, dict):
                self._join(document, inner, below, value, deep=True)
            else:
                message = f"'{'.'.join(map(str, inner))}' is already declared at {self.places[inner]}"
                self.problems.append(Problem(document.places[inner], message))


# --- the files of a tree ----------------------------------------------------------------------------------------------


def _tree_files(sources: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[Problem]]:
    files: list[tuple[Path, bool]] = []
    problems: list[Problem] = []

    def refuse(path: object, reason: str) -> None:
        problems.append(Problem(Place(str(path), 1, 1), reason))

    for source in sources:
        try:
            mode = source.stat().st_mode
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            reason = "no such file or folder" if missing else _unreadable(error)
            raise Mm2mgrError(
                f"{source}: {reason}", hint="name the tree with --clusters, or run mm2mgr init"
            ) from error
        if stat.S_ISDIR(mode):
            paths = sorted(_files_below(source, refuse))
            files += [(path, OVERRIDES in path.parent.relative_to(source).parts) for path in paths]
        else:
            files.append((source, source.parent.name == OVERRIDES))
    return files, problems


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror}"


def _files_below(source: Path, refuse: Callable[[object, str], None]) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        refuse(error.filename or source, _unreadable(error))

    visited: set[tuple[int, int]] = set()  # links may lead back up
    for name, folders, names in os.walk(source, followlinks=True, onerror=unreadable):
        folder = Path(name)
        try:
            here = folder.stat()
        except OSError as error:
            unreadable(error)
            continue
        leads_out = resolved_within(folder, source) is None
        if leads_out:
            refuse(name, _LEADS_OUT)
        if leads_out or (here.st_dev, here.st_ino) in visited:
            folders.clear()
            continue
        visited.add((here.st_dev, here.st_ino))
        # A dot hides: Kubernetes mounts a ConfigMap as x.yaml -> ..data/x.yaml, and ..data holds every file again.
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        shown = [name for name in (*names, *folders) if not name.startswith(".")]
        yield from (path for path in map(folder.joinpath, shown) if _is_readable(path, source, refuse))


def _is_readable(path: Path, source: Path, refuse: Callable[[object, str], None]) -> bool:
    is_yaml = path.suffix.lower() in YAML_SUFFIXES
    if not is_yaml and not path.is_symlink():
        return False
    try:
        mode = path.stat().st_mode
    except OSError as error:  # a link without its target, which may have been a folder of files
        refuse(path, _unreadable(error))
        return False
    if is_yaml and not stat.S_ISREG(mode):
        refuse(path, f"cannot be read: it is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}")
    elif is_yaml and path.is_symlink() and resolved_within(path, source) is None:
        refuse(path, _LEADS_OUT)
    else:
        return is_yaml
    return False

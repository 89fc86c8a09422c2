"""Loads the files of a YAML tree into one `Spec`: the validated tree plus the place of every value; and writes those in
`overrides/` that mm2mgr changes later, for people to review, and a starter.

Every problem has file, line, column and, for a misspelt key, the nearest known one. No file is skipped without an
error: `apply --prune` deletes what is missing from the tree. Aliases are resolved later, by `expand`. A written file
changes as a whole or not at all; entries without a new value stay, and so do those that somebody else changed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import ValidationError

from mm2mgr.errors import Mm2mgrError, Problem, SpecError
from mm2mgr.files import hold_lock, locked_working_folder, read_regular, replace_file, resolved_within
from mm2mgr.secrets import remember
from mm2mgr.spec.models import OVERRIDE_KEYS, Cluster, Defaults, FlowSettings, Tree
from mm2mgr.spec.places import Document, Key, PathKey, Place, nearest_place, read_yaml

OVERRIDES = "overrides"
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
_NEVER_EMPTY = ("owner", "clusters", "connect", "flows")  # a name with nothing below it in any file is a slip
_LEADS_OUT = "a link that leads out of the tree: move the files into the tree, or add their folder with -f"


@dataclass(frozen=True)
class Spec:
    """A validated tree: `raw` written values (nested dicts), `places` theirs, `overrides` the override files."""

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
    if not documents and not problems:
        problem = Problem(", ".join(map(str, sources)), "no YAML file with content")
        raise SpecError([problem], hint="mm2mgr init writes a starter")
    return spec_of(documents, tuple(str(path) for path, _ in files), overrides, problems)


def spec_of(
    documents: Sequence[Document],
    files: tuple[str, ...],
    overrides: frozenset[str] = frozenset(),
    problems: Sequence[Problem] = (),
) -> Spec:
    """Validate the documents of a tree together; `problems` are those of files that could not be read."""
    problems = list(problems)
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
    return Spec(tree, merged.values, merged.places, files, overrides)


def turns_spark_off(sources: Sequence[Path], contents: Mapping[str, bytes] = MappingProxyType({})) -> bool:
    """Say whether a file of a tree has `defaults: {spark: false}`, whatever else is wrong in it or in others; a file
    that cannot be read says nothing."""
    written: list[object] = []
    with suppress(Mm2mgrError):
        for path, _ in _tree_files(sources)[0]:
            with suppress(SpecError):
                for document in read_yaml(path, contents.get(str(path))):
                    defaults = document.values.get("defaults")
                    written.append(defaults.get("spark") if isinstance(defaults, dict) else None)
    return any(_is_off(value) for value in written if value is not None)


def _is_off(spark: object) -> bool:
    try:
        return not Defaults.model_validate({"spark": spark}).spark
    except ValidationError:
        return False


def _remember(values: object) -> None:
    """Register the secrets in the tree for masking, before any problem quotes them."""
    if isinstance(values, dict):
        remember(values)
        values = list(values.values())
    for inner in values if isinstance(values, list) else ():
        _remember(inner)


def check_merged(merged: dict[str, object], of: str) -> tuple[FlowSettings | None, list[tuple[PathKey, str]]]:
    """Check merged settings: valid layers may give an invalid whole. Returns problems' paths and messages too."""
    try:
        return FlowSettings.model_validate(merged), []
    except ValidationError as error:
        from mm2mgr.spec.mistakes import mistakes

        return None, mistakes(error, merged, ("defaults", "flows"), of)


def refused_security(security: Mapping[str, str]) -> list[str]:
    """Return the security keys of a cluster whose names or values the declaration does not take."""
    refused = []
    for key, value in security.items():
        try:
            Cluster.model_validate({"bootstrap_servers": ["kafka:9092"], "security": {key: value}})
        except ValidationError:
            refused.append(key)
    return refused


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
            if locked := locked_working_folder(source, error):
                raise locked from error
            raise Mm2mgrError(
                f"{source}: {reason}", hint="name the tree with --clusters, or run mm2mgr init"
            ) from error
        if stat.S_ISDIR(mode):
            paths = sorted(_files_below(source, refuse))
            files += [(path, OVERRIDES in path.parent.relative_to(source).parts) for path in paths]
        else:
            files.append((source, source.parent.name == OVERRIDES))
    return files, problems


def tree_state(sources: Sequence[Path]) -> object:
    """Return what differs once a file of the tree was written, came or went: names, times and sizes; nothing is read.
    A tree that cannot be listed has a state too."""
    try:
        paths = [path for path, _ in _tree_files(sources)[0]]
        return tuple((str(path), of.st_mtime_ns, of.st_size, of.st_ino) for path in paths for of in [path.stat()])
    except (OSError, Mm2mgrError) as error:
        return str(error)


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


_LOCK_SECONDS = 30.0  # it is held for milliseconds
_ATTEMPTS = 10
Entries = Mapping[str, Mapping[str, object]]
"""The content of such a file: by flow or by cluster."""


def yaml_text(value: Mapping[str, object]) -> str:
    """Return plain values as a YAML document, keys in the order that they have."""
    return yaml.safe_dump(value, sort_keys=False, width=110, allow_unicode=True)


def inline_yaml(value: object) -> str:
    """Return a plain value as YAML on one line, with `null` in full."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{inline_yaml(key)}: {inline_yaml(below)}' for key, below in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline_yaml, value))}]"
    if type(value) is str and _PLAIN_WORD.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value  # as the writer of YAML has it, which takes its time for 100,000 topics
    return _inline_scalar(value)


_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_LINE_ENDS = "\n\r\x85\u2028\u2029"  # of YAML 1.1, which folds them in other styles


@lru_cache(maxsize=65_536, typed=True)  # True is 1 otherwise
def _inline_scalar(value: object) -> str:
    style = '"' if isinstance(value, str) and any(sign in value for sign in _LINE_ENDS) else None
    text = yaml.safe_dump([value], default_flow_style=True, default_style=style, width=sys.maxsize, allow_unicode=True)
    return text.removesuffix("\n")[1:-1]


@dataclass(frozen=True)
class OverrideFile:
    """A file of the overrides folder: its only key in YAML, the command that writes it, from what, and what else its
    head says.

    `decisive`: the value of an entry that matters where somebody else changed it meanwhile; "": all.
    """

    key: str
    command: str
    source: str
    note: str
    decisive: str = ""

    @property
    def first_line(self) -> str:
        """The line by which files of the command are known from files of people."""
        return f"# Written by `mm2mgr {self.command}` from {self.source}: review it like any change, then commit.\n"

    def path(self, sources: Collection[Path], *, write: bool = True) -> Path:
        """Return where the file belongs: the overrides folder of the tree's first folder.

        A tree of single files has none: Mm2mgrError, or where nothing is to be written the place beside the first.
        """
        beside = None if write else next(iter(sources)).parent
        folder = next((source for source in sources if source.is_dir()), beside)
        if folder is None:
            problem = "the tree consists of single files, so there is no folder for overrides"
            raise Mm2mgrError(problem, hint=f"use its folder: mm2mgr --clusters FOLDER {self.command}")
        return folder / OVERRIDES / f"{self.key}.yaml"

    def read(self, path: Path) -> Entries:
        """Return the content of the file; empty if it cannot be read, which loading or writing reports."""
        try:
            return self._entries(path)
        except Mm2mgrError:
            return {}

    def write(
        self,
        path: Path,
        entries: Entries,
        known_names: Collection[str],
        before: Entries,
        say: Callable[[str], None] = lambda _: None,
    ) -> tuple[bool, tuple[str, ...]]:
        """Update the entries of `path`; drop those that are no longer `known`.

        Return whether the file changed, and the entries that were not written because somebody else changed them.

        `before`: the content when entries were decided; those that differ now stay. `say` reports waiting.
        """
        target = override_target(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as held:
                with suppress(OSError):  # NFS locks no folders; then the comparison before the replacement has to do
                    # The folder, as a lock file would show up in git.
                    held.enter_context(hold_lock(target.parent, f"writing {path}", _LOCK_SECONDS, say))
                for _ in range(_ATTEMPTS):
                    content, now = _content(target), self._entries(target)
                    theirs = {name for name in entries if now.get(name) not in (before.get(name), entries[name])}
                    mine = {name: entry for name, entry in entries.items() if name not in theirs}
                    merged = merge(now, mine, known_names, before)
                    if merged == now or _replace_unchanged(target, self.text(merged), content):
                        refused = (name for name in theirs if self._value(now, name) != self._value(entries, name))
                        return merged != now, tuple(sorted(refused))
        except OSError as error:
            raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}") from error
        hint = f"find the process that writes it, then run {self.command} again"
        raise Mm2mgrError(f"{path}: not written: another process keeps changing it", hint=hint)

    def text(self, entries: Entries) -> str:
        """Return the file with these entries, in a stable order."""
        body = {self.key: {name: dict(entries[name]) for name in sorted(entries)}}
        return f"{self.first_line}{self.note}{yaml_text(body)}"

    def wrote(self, path: Path) -> bool:
        """Tell whether the command wrote this file: it starts with the same line."""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(200) == self.first_line

    def _value(self, entries: Entries, name: str) -> object:
        entry = entries.get(name, {})
        return entry.get(self.decisive) if self.decisive else entry

    def _entries(self, path: Path) -> dict[str, dict[str, object]]:
        if not path.exists():
            return {}
        documents = read_yaml(path)
        if documents and not self.wrote(path):
            raise self._not_ours(path, f"it does not start with the line that `{self.command}` writes")
        entries: dict[str, dict[str, object]] = {}
        for document in documents:
            if other := sorted(document.values.keys() - {self.key}):
                raise self._not_ours(path, f"it also contains '{other[0]}'")
            section = document.values.get(self.key)
            entries |= section if isinstance(section, dict) else {}
        return entries

    def _not_ours(self, path: Path, reason: str) -> Mm2mgrError:
        hint = f"move your content to another file of the tree, delete this file, and run {self.command} again"
        return Mm2mgrError(f"{path} would be overwritten, but {reason}; it was not changed", hint=hint)


SIZING = OverrideFile(
    "sizing",
    "size",
    "measured throughput",
    "# A number in the flow itself (tasks: {max: N}) overrides the number here.\n",
    decisive="tasks_max",
)
BROKERS = OverrideFile(
    "brokers",
    "link read",
    "the brokers",
    "# Where brokers differ, their smallest value. -1: the operating system sizes the buffer.\n",
)


def merge(
    now: Entries, entries: Entries, known_names: Collection[str], before: Entries
) -> dict[str, Mapping[str, object]]:
    """Return the content with these entries for those there; unknown ones are left out, unless new."""
    stay = {name: entry for name, entry in now.items() if name in known_names or name not in before}
    return stay | dict(entries)


def override_target(path: Path) -> Path:
    """Return the file that a link at `path` leads to, else `path`; Mm2mgrError when that is outside of the tree."""
    try:
        target = resolved_within(path, path.parent.parent)
    except (OSError, RuntimeError) as error:  # a link to itself
        raise Mm2mgrError(f"{path}: cannot be written: it is a broken link", hint="remove it") from error
    if target is None:
        hint = "replace the link by the file or folder itself, or print only"
        raise Mm2mgrError(f"{path}: not written: a link leads out of the tree, to {path.resolve()}", hint=hint)
    return target


def _replace_unchanged(target: Path, text: str, content: bytes | None) -> bool:
    like = None if content is None else target.stat()
    return replace_file(target, text, like=like, only_if=lambda: _content(target) == content)


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


# --- the starter of init ----------------------------------------------------------------------------------------------


def write_starter(folder: Path) -> list[Path]:
    """Write the starter files into `folder`; if any of them exists already, or they do not all fit, none is written."""
    sources = sorted(Path(__file__).with_name("starter").glob("*.yaml"))
    targets = [folder / source.name for source in sources]
    there = [str(target) for target in targets if os.path.lexists(target)]  # also a link that leads to nothing yet
    if there:
        problem = f"{', '.join(there)} exists already; nothing was written"
        raise Mm2mgrError(problem, hint="name another folder: mm2mgr init FOLDER")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            replace_file(target, source.read_bytes())
            written.append(target)
    except OSError as error:
        for target in written:
            target.unlink(missing_ok=True)
        raise Mm2mgrError(f"{folder}: cannot be written: {error.strerror}") from error
    return targets

"""Reads several files together, and folders: what they mount from beside them, and the MirrorMaker 1 of several files.

No link is followed out of a folder, and what is left out is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import resolved_within
from mm2mgr.formats import hcl, mirror_maker1
from mm2mgr.formats.connectors import FoundConnector, Note
from mm2mgr.formats.documents import Node
from mm2mgr.formats.recognise import (
    ForeignFile,
    HoldsNoMirror,
    decode_utf8,
    holds_config,
    read_file,
    read_text,
    with_version,
    with_workers,
    wrong,
)
from mm2mgr.spec.places import Place

MOST_FILES = 2_000
"""Of a folder; a folder with more is no folder of configs."""
_MOST_FOLDER_BYTES = 100_000_000
_DEEPEST_FOLDER = 12
_READ = (
    *(".properties", ".json", ".yaml", ".yml", ".tf", ".tfstate", ".sh", ".conf", ".cfg", ".config", ".template"),
    *(".tmpl", ".tpl", ".j2"),
)
_LEFT_FOLDERS = frozenset({"node_modules", "__pycache__", "vendor", "target", "build"})


@dataclass(frozen=True)
class Sources:
    """Files that were read together: those named, what is within and beside them, and the MirrorMaker 1 of several.

    `notes` say what was left out, or could not be taken, and why.
    """

    files: tuple[ForeignFile, ...]
    notes: tuple[Note, ...] = ()

    @property
    def connectors(self) -> tuple[FoundConnector, ...]:
        """Every connector of MirrorMaker in them; those of other plugins are in `files`."""
        return tuple(connector for file in self.files for connector in file.connectors if connector.type)


def read_sources(
    paths: Sequence[Path], contents: Mapping[str, bytes] = MappingProxyType({}), *, topics: str = ""
) -> Sources:
    """Read files and folders together. SpecError with everything that a named file has wrong.

    A folder is walked: hidden files, links out of it, and files of other kinds are left out with a note; one that
    speaks of a connector and is broken is an error.
    `contents` are read instead of the files of these names. `topics` is the list of topics of a MirrorMaker 1 whose
    command is not among the files.
    """
    files: list[ForeignFile] = []
    notes: list[Note] = []
    problems: list[Problem] = []
    read_paths: set[Path] = set()
    named = dict.fromkeys(path for path in paths if not path.is_dir())
    folders = dict.fromkeys(path for path in paths if path.is_dir())
    for path in (*named, *_files_of(folders, notes)):
        if path.resolve() in read_paths:
            continue
        read_paths.add(path.resolve())
        try:
            file = read_file(path, contents.get(str(path)), _module_locals(path, contents))
        except SpecError as error:
            is_other = isinstance(error, HoldsNoMirror) or not holds_config(path)
            if path not in named and is_other:
                notes += [_note_of(problem) for problem in error.problems]
            else:
                problems += error.problems
            continue
        files += [file, *file.within]
        notes += [*file.notes, *(note for inner in file.within for note in inner.notes)]
        beside = list(_mounted_files(file, contents, read_paths, notes))
        files += beside
        if file.mounts and file.is_empty and not beside:
            message = "holds no connector: none of the files that it mounts is a config of MirrorMaker"
            notes.append(Note(0, message, str(path)))
    parts = [part for file in files for part in file.parts]
    commands = [command for file in files for command in file.commands]
    of_several, of_parts = mirror_maker1.connectors(parts, commands, topics)
    if of_several:
        at = of_several[0].file
        files.append(ForeignFile(at, "properties", "", tuple(of_several)))
        notes += of_parts
    elif of_parts:
        problems += [Problem(note.file, note.message) for note in of_parts]
    if not problems and not any(not file.is_empty for file in files):
        problems += [Problem(str(note).rpartition(f": {note.message}")[0], note.message) for note in notes]
    if problems:
        raise SpecError(problems)
    return Sources(tuple(files), tuple(notes))


def is_folder_of_configs(folder: Path) -> bool:
    """Tell whether a folder, which is no tree, is one of configs: it has other files than YAML, or configs in that."""
    yaml, waiting = (".yaml", ".yml"), _walk(folder, [])
    return any(path.suffix.lower() not in yaml or holds_config(path) for path in waiting)


def _note_of(problem: Problem) -> Note:
    place = problem.place
    return (
        Note(place.line, problem.message, place.file)
        if isinstance(place, Place)
        else Note(0, problem.message, str(place))
    )


def _files_of(folders: Iterable[Path], notes: list[Note]) -> Iterator[Path]:
    for folder in folders:
        files = list(_walk(folder, notes))
        if len(files) > MOST_FILES:
            raise wrong(str(folder), f"has more than {MOST_FILES:,} files of configs: name the folder that is meant")
        if not files:
            notes.append(Note(0, "has no file that could hold a config", str(folder)))
        yield from files


def _walk(folder: Path, notes: list[Note]) -> Iterator[Path]:
    total = 0

    def note_unread(error: OSError) -> None:
        notes.append(Note(0, f"cannot be read: {error.strerror}", str(error.filename or folder)))

    for at, names, files in os.walk(folder, onerror=note_unread):
        here = Path(at)
        hidden = [name for name in names if name.startswith(".") or name in _LEFT_FOLDERS]
        links = [name for name in names if (here / name).is_symlink()]
        if len(here.parts) - len(folder.parts) >= _DEEPEST_FOLDER and names:
            notes.append(Note(0, "is left out with all below it: too deep", str(here / names[0])))
            names.clear()
        names[:] = sorted(name for name in names if name not in hidden and name not in links)
        notes += [Note(0, "is a link to a folder, which is left out: name it", str(here / name)) for name in links]
        for name in sorted(files):
            path = here / name
            if name.startswith(".") or not name.lower().endswith(_READ):
                continue
            if path.is_symlink() and resolved_within_or_none(path, folder) is None:
                notes.append(Note(0, "is a link out of the folder, which is left out: name it", str(path)))
                continue
            if not path.is_file():
                notes.append(Note(0, "is no file", str(path)))
                continue
            total += _size(path)
            if total > _MOST_FOLDER_BYTES:
                raise wrong(str(folder), f"holds more than {_MOST_FOLDER_BYTES // 1_000_000} MB: name what is meant")
            yield path


def resolved_within_or_none(path: Path, folder: Path) -> Path | None:
    """Return where a path leads within a folder, None for out of it and for a loop of links."""
    try:
        return resolved_within(path, folder)
    except (OSError, RuntimeError):
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mounted_files(
    file: ForeignFile, contents: Mapping[str, bytes], read_paths: set[Path], notes: list[Note]
) -> Iterator[ForeignFile]:
    """Yield the files that a file mounts from its own folder, and what is within them."""
    folder = Path(file.path).parent
    for mount in file.mounts:
        path = folder / mount.path
        if resolved_within_or_none(path, folder) is None:
            message = f"{mount.path} is outside of the folder of this file: name it to have it read"
            notes.append(Note(mount.line, message, file.path))
        elif not path.exists():
            notes.append(Note(mount.line, f"{mount.path} is mounted, and is not there", file.path))
        elif path.is_file() and path.resolve() not in read_paths:
            read_paths.add(path.resolve())
            try:
                beside = with_workers(
                    with_version(read_file(path, contents.get(str(path))), mount.version), file.workers
                )
            except SpecError as error:
                notes += [_note_of(problem) for problem in error.problems]
                continue
            notes += beside.notes
            yield from (beside, *beside.within)


def _module_locals(path: Path, contents: Mapping[str, bytes]) -> dict[str, Node]:
    """Return what the other files of a Terraform module define as locals."""
    if path.suffix != ".tf":
        return {}
    values: dict[str, Node] = {}
    for other in sorted(path.parent.glob("*.tf"))[:100]:
        if other != path and not other.is_symlink():
            try:
                values |= hcl.locals_of(
                    hcl.parse(decode_utf8(str(other), read_text(other, contents.get(str(other)))), str(other))
                )
            except SpecError:
                continue  # it is reported where it is read itself
    return values

"""`import` turns connectors and mm2.properties that exist into a tree, and writes it whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.errors import InvalidArgument, Mm2mgrError, Problem, SpecError
from mm2mgr.files import resolved_within
from mm2mgr.formats.recognise import ForeignFile, read_file
from mm2mgr.imports.report import ImportReport
from mm2mgr.imports.tree import ImportedTree, ImportOptions, import_tree
from mm2mgr.spec.scalars import check_url
from mm2mgr.truth.keys import kafka_version, load

_SUFFIXES = {".json", ".properties", ".yaml", ".yml"}
_MOST_FILES = 10_000


@dataclass(frozen=True)
class ImportedFolder:
    """An imported tree; `written` are its files, empty without `out`. `passed_over` are files of folders that hold no
    connector, with the reason."""

    tree: ImportedTree
    out: Path | None = None
    written: tuple[Path, ...] = ()
    passed_over: tuple[str, ...] = ()
    json_keys = "summary written passed_over rows left_out placeholders notes"

    @property
    def report(self) -> ImportReport:
        return self.tree.report

    @property
    def summary(self) -> dict[str, int]:
        return self.report.summary

    @property
    def rows(self) -> object:
        return self.report.rows

    @property
    def left_out(self) -> object:
        return self.report.left_out

    @property
    def placeholders(self) -> object:
        return self.report.placeholders

    @property
    def notes(self) -> tuple[str, ...]:
        return self.report.notes


def import_sources(
    sources: Sequence[Path], options: ImportOptions = ImportOptions(), out: Path | None = None
) -> ImportedFolder:
    """Read files and folders, and return the tree that keeps their connectors as they are.

    With `out`, a folder that is empty or not there, the tree is written to it. SpecError with all that cannot be read;
    Mm2mgrError with nothing written where `out` holds something already.
    """
    options = _checked(options)
    if out is not None:
        _refuse_folder(out)
    files, passed_over = _read(sources)
    if not any(connector.type for file in files for inner in (file, *file.within) for connector in inner.connectors):
        names = ", ".join(map(str, sources))
        raise Mm2mgrError(f"{names}: no connector of MirrorMaker in it", hint="; ".join(passed_over[:3]) or None)
    tree = import_tree(files, options)
    written = _write(tree, out) if out is not None else ()
    return ImportedFolder(tree, out, written, passed_over)


def _checked(options: ImportOptions) -> ImportOptions:
    for urls in options.urls.values():
        for url in urls:
            try:
                check_url(url)
            except ValueError as error:
                raise InvalidArgument("connect", str(error)) from error
    version = options.version
    if version is not None and (not kafka_version(version) or not load().knows(version)):
        raise InvalidArgument("kafka", f"{version} is no Kafka version that is known, such as 3.9")
    return replace(options, version=kafka_version(version) if version else None)


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(sources: Sequence[Path]) -> tuple[list[ForeignFile], tuple[str, ...]]:
    files: list[ForeignFile] = []
    problems: list[Problem] = []
    passed_over: list[str] = []
    for source in dict.fromkeys(sources):
        for path in _files_below(source, passed_over) if source.is_dir() else (source,):
            try:
                files.append(read_file(path))
            except SpecError as error:
                if source.is_dir() and _holds_nothing(error):
                    passed_over.append(str(error.problems[0]))
                else:
                    problems += error.problems
    if problems:
        raise SpecError(problems, hint="nothing was written")
    return files, tuple(passed_over)


def _holds_nothing(error: SpecError) -> bool:
    """Tell whether a file is well-formed and of another kind."""
    words = ("holds no connector", "is the properties of", "is neither", "has no connector.class", "part of an mm2mgr")
    return all(any(word in problem.message for word in words) for problem in error.problems)


def _files_below(folder: Path, passed_over: list[str]) -> Iterator[Path]:
    count = 0
    for name, folders, names in os.walk(folder):
        folders[:] = sorted(below for below in folders if not below.startswith("."))
        for path in (Path(name) / file for file in sorted(names) if not file.startswith(".")):
            if path.suffix.lower() not in _SUFFIXES:
                continue
            if path.is_symlink() and resolved_within(path, folder) is None:
                passed_over.append(f"{path}: a link that leads out of {folder}")
                continue
            count += 1
            if count > _MOST_FILES:
                raise Mm2mgrError(f"{folder} holds more than {_MOST_FILES:,} files", hint="name a folder below it")
            yield path


# --- writing ----------------------------------------------------------------------------------------------------------


def _refuse_folder(out: Path) -> None:
    """Mm2mgrError unless a folder is new or empty."""
    try:
        if not os.path.lexists(out):
            return
        if not out.is_dir() or out.is_symlink():
            raise Mm2mgrError(f"{out}: is no folder", hint="name a new one: --out clusters")
        if any(out.iterdir()):
            raise Mm2mgrError(f"{out}: holds files already; nothing was written", hint="name a new or an empty folder")
    except OSError as error:
        raise Mm2mgrError(f"{out}: cannot be read: {error.strerror}") from error


def _write(tree: ImportedTree, out: Path) -> tuple[Path, ...]:
    """Write all files into a folder beside `out`, and give it this name."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            for name, text in tree.files.items():
                (draft / name).write_text(text, encoding="utf-8")
            draft.chmod(0o777 & ~_umask())
            draft.rename(out)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Mm2mgrError(f"{out}: cannot be written: {error.strerror}; nothing was written") from error
    return tuple(out / name for name in tree.files)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

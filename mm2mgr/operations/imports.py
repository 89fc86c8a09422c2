"""`import` turns connectors and mm2.properties that exist into a tree, and writes it whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.cluster_mirroring import MirroringAdvice, advise_flow
from mm2mgr.errors import InvalidArgument, Mm2mgrError, SpecError
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.formats.sources import read_sources
from mm2mgr.imports.report import ImportReport
from mm2mgr.imports.tree import ImportedTree, ImportOptions, import_tree
from mm2mgr.render import OWNER_KEY
from mm2mgr.spec.scalars import check_url
from mm2mgr.truth.keys import kafka_version, load


@dataclass(frozen=True)
class ImportedFolder:
    """An imported tree; `written` are its files, empty without `out`. `passed_over` are files of folders that hold no
    connector, with the reason."""

    tree: ImportedTree
    out: Path | None = None
    written: tuple[Path, ...] = ()
    passed_over: tuple[str, ...] = ()
    with_advice: bool = False
    json_keys = (
        "summary=report.summary written passed_over rows=report.rows left_out=report.left_out"
        " placeholders=report.placeholders advice=report.advice notes=report.notes cluster_mirroring"
    )

    @property
    def cluster_mirroring(self) -> tuple[MirroringAdvice, ...]:
        """Whether Cluster Mirroring (KIP-1279) could take each flow; nothing unless it was asked for."""
        tree = self.tree
        flows = tree.flows if self.with_advice else ()
        return tuple(advise_flow(flow, flows, tree.connectors) for flow in flows)

    @property
    def report(self) -> ImportReport:
        return self.tree.report


def import_sources(
    sources: Sequence[Path],
    options: ImportOptions = ImportOptions(),
    out: Path | None = None,
    *,
    with_advice: bool = False,
) -> ImportedFolder:
    """Read files and folders, and return the tree that keeps their connectors as they are.

    With `out`, a folder that is empty or not there, the tree is written to it. SpecError with all that cannot be read;
    Mm2mgrError with nothing written where `out` holds something already. `with_advice`: also whether Cluster Mirroring
    could take each flow.
    """
    options = _check_options(options)
    if out is not None:
        _refuse_folder(out)
    files, passed_over = _read(sources)
    if not any(connector.type for file in files for inner in (file, *file.within) for connector in inner.connectors):
        names = ", ".join(map(str, sources))
        raise Mm2mgrError(f"{names}: no connector of MirrorMaker in it", hint="; ".join(passed_over[:3]) or None)
    configs = (connector.config for file in files for connector in file.connectors)
    if out is not None and not options.owner and not any(config.get(OWNER_KEY) for config in configs):
        raise InvalidArgument("owner", "is needed: its name marks what the new tree manages, such as data-platform")
    tree = import_tree(files, options)
    written = _write(tree, out) if out is not None else ()
    return ImportedFolder(tree, out, written, passed_over, with_advice)


def _check_options(options: ImportOptions) -> ImportOptions:
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


def _read(sources: Sequence[Path], topics: str = "") -> tuple[list[ForeignFile], tuple[str, ...]]:
    try:
        read = read_sources(sources, topics=topics)
    except SpecError as error:
        raise SpecError(error.problems, hint=error.hint or "nothing was written") from error
    files = [replace(file, within=()) for file in read.files]  # which are among them
    return files, tuple(map(str, read.notes))


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
        except BaseException:  # Ctrl-C, too, leaves nothing behind
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Mm2mgrError(f"{out}: cannot be written: {error.strerror}; nothing was written") from error
    return tuple(out / name for name in tree.files)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

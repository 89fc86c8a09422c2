"""`import` turns connectors and mm2.properties that exist into a tree, and writes it whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr.cluster_mirroring import MirroringAdvice, advise_flow
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.imports.report import ImportReport
from mm2mgr.imports.tree import ImportedTree, ImportOptions, import_tree
from mm2mgr.operations.import_reading import ImportInputs, Source, known_version, read_import_sources
from mm2mgr.render import OWNER_KEY
from mm2mgr.spec.scalars import check_url


@dataclass(frozen=True)
class ImportedFolder:
    """An imported tree, and the `inputs` it is of; `written` are its files, empty without `out`."""

    tree: ImportedTree
    inputs: ImportInputs = field(repr=False)  # may hold secrets
    out: Path | None = None
    written: tuple[Path, ...] = ()
    with_advice: bool = False
    json_keys = (
        "summary=report.summary written passed_over rows=report.rows left_out=report.left_out"
        " differences=report.differences"
        " placeholders=report.placeholders advice=report.advice notes=report.notes cluster_mirroring"
    )

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Files of folders that hold no connector, with the reason."""
        return self.inputs.notes

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
    sources: Sequence[Source],
    options: ImportOptions = ImportOptions(),
    out: Path | None = None,
    *,
    topics: str = "",
    with_advice: bool = False,
) -> ImportedFolder:
    """Read files, folders and Connect clusters, and return the tree that keeps their connectors as they are.

    A Connect cluster is named by its URL, as text.

    With `out`, a folder that is empty or not there, the tree is written to it. SpecError with all that cannot be read;
    Mm2mgrError with nothing written where `out` holds something already. `topics`: the list of topics of a
    MirrorMaker 1 whose command is not among the sources. `with_advice`: also whether Cluster Mirroring could take each
    flow.
    """
    options = _check_options(options)
    if out is not None:
        _refuse_folder(out)
    read = read_import_sources(sources, options.urls, topics)
    owners = [connector.config.get(OWNER_KEY) for connector in read.connectors]
    if out is not None and not options.owner and not any(owners):
        raise InvalidArgument("owner", "is needed: its name marks what the new tree manages, such as data-platform")
    logins = dict.fromkeys(read.urls, read.login) if read.login else {}
    tree = import_tree(read.files, replace(options, urls={**options.urls, **read.urls}, logins=logins))
    written = _write(tree, out) if out is not None else ()
    return ImportedFolder(tree, read, out, written, with_advice)


def _check_options(options: ImportOptions) -> ImportOptions:
    for urls in options.urls.values():
        for url in urls:
            try:
                check_url(url)
            except ValueError as error:
                raise InvalidArgument("connect", str(error)) from error
    return options if options.version is None else replace(options, version=known_version(options.version))


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
    """Write all files of a tree to a folder, or none: to a draft first, of which the folder is made.

    A folder that is there stays the same one: it may be where somebody stands, or where a volume is mounted.
    """
    try:
        is_there = out.is_dir()
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out if is_there else out.parent))
        try:
            for name, text in tree.files.items():
                (draft / name).write_text(text, encoding="utf-8")
            if is_there:
                _move_files(draft, out)
            else:
                draft.chmod(0o777 & ~_umask())
                draft.rename(out)
        except BaseException:  # Ctrl-C, too, leaves nothing behind
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Mm2mgrError(f"{out}: cannot be written: {error.strerror}; nothing was written") from error
    return tuple(out / name for name in tree.files)


def _move_files(draft: Path, out: Path) -> None:
    """Move the files of a draft to the folder that it is in; after a failure none is left there."""
    moved: list[Path] = []
    try:
        for path in sorted(draft.iterdir()):
            if os.path.lexists(out / path.name):
                raise FileExistsError(errno.EEXIST, f"{path.name} is there by now")
            path.rename(out / path.name)
            moved.append(out / path.name)
        draft.rmdir()
    except BaseException:
        for path in moved:
            path.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

"""The folder of `mm2mgr demo`: claimed before anything starts, and emptied only of what an earlier demo wrote.

In: the folder as the user named it. Out: a folder without the tree and the samples of the demo before; SandboxError, with
nothing touched, where there is anything that no demo wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mm2mgr.errors import SandboxError
from mm2mgr.samples.schema import PARTITIONED_BY
from mm2mgr.sandbox.folder import claim, is_claimed, only_one, writing
from mm2mgr.sandbox.tree import as_written
from mm2mgr.spec.sizing_file import is_written_by_size
from mm2mgr.text import few

_USE = "demo"
_HOURS = 2  # a demo samples for ten minutes at most
_STORE = {*PARTITIONED_BY, "spark.log"}


@contextmanager
def demo_folder(directory: Path) -> Iterator[None]:
    """Hold the folder for one demo, without the tree and samples of the demo before."""
    if is_claimed(directory, _USE, _is_older):
        _refuse_others(directory)  # before the marker is set, and again as the only demo here
    with writing(directory):
        claim(directory, _USE, _is_older)
    with only_one(directory, "running the demo"):
        _refuse_others(directory)
        for old in ("clusters", "samples"):
            shutil.rmtree(directory / old, ignore_errors=True)
        yield


def _refuse_others(directory: Path) -> None:
    with writing(directory):
        kept = [*_strange_in_tree(directory / "clusters"), *_strange_in_samples(directory / "samples")]
    if kept:
        named = few([str(each) for each in kept])
        what = f"the demo would remove {named}, which no demo left like that; nothing was touched"
        hint = "move what you want to keep away and delete the rest, or name another folder: --dir DIR"
        raise SandboxError(what, hint=hint)


def _is_older(directory: Path) -> bool:
    """Tell the folder of a version that set no marker: its tree, beside its sandbox."""
    tree = directory / "clusters" / "clusters.yaml"
    return (directory / "sandbox" / "state.lock").is_file() and tree.is_file() and as_written(tree)


def _strange_in_tree(tree: Path) -> list[Path]:
    """Return the files that neither the demo nor its `size` wrote, or that were changed since."""

    def is_ours(path: Path) -> bool:
        name = path.relative_to(tree).as_posix()
        if name == "overrides/sizing.yaml":
            return is_written_by_size(path)
        return name in {"clusters.yaml", "flows.yaml"} and as_written(path)

    return sorted(path for path in tree.rglob("*") if path.is_file() and not is_ours(path))


def _strange_in_samples(samples: Path) -> list[Path]:
    """Return what is no part of a store, and whatever is of an hour where there are more hours than a demo takes."""
    found = sorted(samples.iterdir()) if samples.is_dir() else []
    strange = [path for path in found if path.name not in _STORE]
    by_hour = [path for table, (first, *_) in PARTITIONED_BY.items() for path in samples.glob(f"{table}/{first}=*")]
    hours = {path.name.partition("=")[2] for path in by_hour}
    return strange + (sorted(by_hour) if len(hours) > _HOURS else [])

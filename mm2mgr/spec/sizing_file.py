"""Writes `overrides/sizing.yaml`, the one file of the tree that mm2mgr writes itself, for people to review.

In: the new entries. Out: the file, whole or unchanged; entries of flows that were not sized this time stay.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from mm2mgr.errors import Mm2mgrError
from mm2mgr.spec.files import OVERRIDES
from mm2mgr.spec.places import read_yaml

FILE = "sizing.yaml"
_HEADER = """\
# Written by `mm2mgr size` from measured throughput: review it like any change, then commit.
# A number that people wrote in the flow itself (tasks: {max: N}) outranks what stands here.
"""


def sizing_path(sources: Collection[Path]) -> Path:
    """Return where the file belongs: the overrides folder of the tree's first folder."""
    folder = next((source for source in sources if source.is_dir()), None)
    if folder is None:
        raise Mm2mgrError(
            "the tree was given as single files, so there is no folder for overrides",
            hint="name its folder: mm2mgr --clusters FOLDER size",
        )
    return folder / OVERRIDES / FILE


def write_sizing(path: Path, entries: Mapping[str, Mapping[str, Any]], known_flows: Collection[str]) -> bool:
    """Update the entries of `path`; drop those of flows that no longer exist. Return whether the file changed."""
    before = _entries(path)
    merged = {flow: entry for flow, entry in before.items() if flow in known_flows} | dict(entries)
    if merged == before:
        return False
    body = yaml.safe_dump(
        {"sizing": {flow: dict(merged[flow]) for flow in sorted(merged)}},
        sort_keys=False,
        width=110,
        allow_unicode=True,
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(_HEADER + body, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def is_written_by_size(path: Path) -> bool:
    """Tell whether `write_sizing` wrote this file: it begins with the same line."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(200) == _HEADER.splitlines(keepends=True)[0]


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    documents = read_yaml(path)
    if documents and not is_written_by_size(path):
        raise _not_ours(path, "it does not begin with the line that `size` writes")
    entries: dict[str, dict[str, Any]] = {}
    for document in documents:
        if other := sorted(document.values.keys() - {"sizing"}):
            raise _not_ours(path, f"it holds '{other[0]}' too")
        entries |= document.values.get("sizing") or {}
    return entries


def _not_ours(path: Path, why: str) -> Mm2mgrError:
    hint = "move what is yours into another file of the tree, delete this one, and run size again"
    return Mm2mgrError(f"{path} would be overwritten, and {why}; it was left as it is", hint=hint)

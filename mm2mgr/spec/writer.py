"""Writes the files of a tree: `overrides/sizing.yaml`, the only one that mm2mgr changes later, for people to review, and a starter.

sizing.yaml changes as a whole or not at all. Entries of flows that were not sized this time stay, and so do entries that
somebody else changed in the meantime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import locked, replace_file, resolved_within
from mm2mgr.spec.loader import OVERRIDES
from mm2mgr.spec.places import read_yaml

FILE = "sizing.yaml"
_HEADER = """\
# Written by `mm2mgr size` from measured throughput: review it like any change, then commit.
# A number in the flow itself (tasks: {max: N}) overrides the number here.
"""
_LOCK_SECONDS = 30.0  # it is held for milliseconds
_ATTEMPTS = 10
Entries = Mapping[str, Mapping[str, Any]]
"""The content of the file, by flow."""


@dataclass(frozen=True)
class SizingUpdate:
    """Whether the file changed, and the flows whose new numbers were not written because somebody else changed the entries."""

    changed: bool
    refused: tuple[str, ...] = ()


def sizing_path(sources: Collection[Path]) -> Path:
    """Return where the file belongs: the overrides folder of the tree's first folder."""
    folder = next((source for source in sources if source.is_dir()), None)
    if folder is None:
        what = "the tree consists of single files, so there is no folder for overrides"
        raise Mm2mgrError(what, hint="use its folder: mm2mgr --clusters FOLDER size")
    return folder / OVERRIDES / FILE


def sizing_target(path: Path) -> Path:
    """Return the file that a link at `path` leads to, else `path`; Mm2mgrError when that is outside of the tree."""
    try:
        target = resolved_within(path, path.parent.parent)
    except (OSError, RuntimeError) as error:  # a link to itself
        raise Mm2mgrError(f"{path}: cannot be written: it is a broken link", hint="remove it") from error
    if target is None:
        hint = "replace the link by the file or folder itself, or print only: --dry-run"
        raise Mm2mgrError(f"{path}: not written: a link leads out of the tree, to {path.resolve()}", hint=hint)
    return target


def read_sizing(path: Path) -> Entries:
    """Return the content of the file; empty if it cannot be read, which loading or writing reports."""
    try:
        return _entries(path)
    except Mm2mgrError:
        return {}


def write_sizing(
    path: Path,
    entries: Entries,
    known_flows: Collection[str],
    before: Entries,
    say: Callable[[str], None] = lambda _: None,
) -> SizingUpdate:
    """Update the entries of `path`; drop those of flows that no longer exist.

    `before` is the content when the entries were decided: entries that differ from it now stay. `say` reports waiting.
    """
    target = sizing_target(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            with suppress(OSError):  # NFS locks no folders; then the comparison before the replacement has to do
                # The folder, as a lock file would show up in git.
                held.enter_context(locked(target.parent, f"writing {path}", _LOCK_SECONDS, say))
            for _ in range(_ATTEMPTS):
                content, now = _content(target), _entries(target)
                theirs = {flow for flow in entries if now.get(flow) not in (before.get(flow), entries[flow])}
                stay = {flow: entry for flow, entry in now.items() if flow in known_flows or flow not in before}
                merged = stay | {flow: entry for flow, entry in entries.items() if flow not in theirs}
                if merged == now or _replaced(target, _text(merged), content):
                    refused = (flow for flow in theirs if _number(now, flow) != _number(entries, flow))
                    return SizingUpdate(merged != now, tuple(sorted(refused)))
    except OSError as error:
        raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}") from error
    hint = "find the process that writes it, then run size again"
    raise Mm2mgrError(f"{path}: not written: another process keeps changing it", hint=hint)


def _text(entries: Entries) -> str:
    body = {"sizing": {flow: dict(entries[flow]) for flow in sorted(entries)}}
    return _HEADER + yaml.safe_dump(body, sort_keys=False, width=110, allow_unicode=True)


def _number(entries: Entries, flow: str) -> object:
    return entries.get(flow, {}).get("tasks_max")


def _replaced(target: Path, text: str, content: bytes | None) -> bool:
    """Replace the file, keeping owner and mode; False where it no longer has this content."""
    like = None if content is None else target.stat()
    return replace_file(target, text, like=like, only_if=lambda: _content(target) == content)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def is_written_by_size(path: Path) -> bool:
    """Tell whether `write_sizing` wrote this file: it starts with the same line."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(200) == _HEADER.splitlines(keepends=True)[0]


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    documents = read_yaml(path)
    if documents and not is_written_by_size(path):
        raise _not_ours(path, "it does not start with the line that `size` writes")
    entries: dict[str, dict[str, Any]] = {}
    for document in documents:
        if other := sorted(document.values.keys() - {"sizing"}):
            raise _not_ours(path, f"it also contains '{other[0]}'")
        sizing = document.values.get("sizing")
        entries |= sizing if isinstance(sizing, dict) else {}
    return entries


def _not_ours(path: Path, why: str) -> Mm2mgrError:
    hint = "move your content to another file of the tree, delete this file, and run size again"
    return Mm2mgrError(f"{path} would be overwritten, but {why}; it was not changed", hint=hint)


# --- the starter of init ----------------------------------------------------------------------------------------------


def write_starter(folder: Path) -> list[Path]:
    """Write the starter files into `folder`; if any of them exists already, nothing is written at all."""
    sources = sorted(Path(__file__).with_name("starter").glob("*.yaml"))
    targets = [folder / source.name for source in sources]
    there = [str(target) for target in targets if os.path.lexists(target)]  # also a link that leads to nothing yet
    if there:
        what = f"{', '.join(there)} exists already; nothing was written"
        raise Mm2mgrError(what, hint="name another folder: mm2mgr init FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            with target.open("x", encoding="utf-8") as file:
                file.write(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mm2mgrError(f"{folder}: cannot be written: {error.strerror}") from error
    return targets

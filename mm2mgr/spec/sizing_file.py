"""Writes `overrides/sizing.yaml`, the one file of the tree that mm2mgr writes itself, for people to review.

In: the new entries, and those that they were decided by. Out: the file, whole or unchanged. Entries of flows that were not
sized this time stay, and so do entries that somebody else changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import replace_file
from mm2mgr.locks import locked
from mm2mgr.spec.files import OVERRIDES, resolved_within
from mm2mgr.spec.places import read_yaml

FILE = "sizing.yaml"
_HEADER = """\
# Written by `mm2mgr size` from measured throughput: review it like any change, then commit.
# A number that people wrote in the flow itself (tasks: {max: N}) outranks what stands here.
"""
_LOCK_SECONDS = 30.0  # it is held for milliseconds
_ATTEMPTS = 10
Entries = Mapping[str, Mapping[str, Any]]
"""What the file says, by flow."""


@dataclass(frozen=True)
class SizingUpdate:
    """Whether the file changed, and the flows whose new numbers were not written, because others had changed the entries."""

    changed: bool
    refused: tuple[str, ...] = ()


def sizing_path(sources: Collection[Path]) -> Path:
    """Return where the file belongs: the overrides folder of the tree's first folder."""
    folder = next((source for source in sources if source.is_dir()), None)
    if folder is None:
        raise Mm2mgrError(
            "the tree was given as single files, so there is no folder for overrides",
            hint="name its folder: mm2mgr --clusters FOLDER size",
        )
    return folder / OVERRIDES / FILE


def sizing_target(path: Path) -> Path:
    """Return the file that a link at `path` leads to, else `path`; Mm2mgrError when that is outside of the tree."""
    try:
        target = resolved_within(path, path.parent.parent)
    except (OSError, RuntimeError) as error:  # a link to itself
        raise Mm2mgrError(f"{path}: cannot be written: it is a link that leads nowhere", hint="remove it") from error
    if target is None:
        hint = "replace the link by the file or folder itself, or print only: --dry-run"
        raise Mm2mgrError(f"{path}: not written: a link leads out of the tree, to {path.resolve()}", hint=hint)
    return target


def read_sizing(path: Path) -> Entries:
    """Return what the file says now; nothing where it cannot be read, which loading or writing it reports."""
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

    `before` is what the file said when the entries were decided: what differs from it by now stays. `say` tells of a wait.
    """
    target = sizing_target(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_writer(target.parent, path, say):
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
    raise Mm2mgrError(
        f"{path}: not written: it changes all the time", hint="find out who writes it, then run size again"
    )


def _text(entries: Entries) -> str:
    body = {"sizing": {flow: dict(entries[flow]) for flow in sorted(entries)}}
    return _HEADER + yaml.safe_dump(body, sort_keys=False, width=110, allow_unicode=True)


def _number(entries: Entries, flow: str) -> object:
    return entries.get(flow, {}).get("tasks_max")


@contextmanager
def _one_writer(folder: Path, path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other runs of mm2mgr out, by a lock on the folder: a lock file would show up in git."""
    with ExitStack() as held:
        with suppress(OSError):  # NFS locks no folders; then the comparison before the replacement has to do
            held.enter_context(locked(folder, f"writing {path}", _LOCK_SECONDS, say))
        yield


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
        sizing = document.values.get("sizing")
        entries |= sizing if isinstance(sizing, dict) else {}
    return entries


def _not_ours(path: Path, why: str) -> Mm2mgrError:
    hint = "move what is yours into another file of the tree, delete this one, and run size again"
    return Mm2mgrError(f"{path} would be overwritten, and {why}; it was left as it is", hint=hint)

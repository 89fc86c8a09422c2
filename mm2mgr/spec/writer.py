"""Writes the files of a tree: those in `overrides/` that mm2mgr changes later, for people to review, and a starter.

Such a file changes as a whole or not at all. Entries without a new value stay, and so do entries that somebody else
changed in the meantime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import hold_lock, read_regular, replace_file, resolved_within
from mm2mgr.spec.loader import OVERRIDES
from mm2mgr.spec.places import read_yaml

_LOCK_SECONDS = 30.0  # it is held for milliseconds
_ATTEMPTS = 10
Entries = Mapping[str, Mapping[str, object]]
"""The content of such a file: by flow or by cluster."""


def yaml_text(value: Mapping[str, object]) -> str:
    """Return plain values as a YAML document, keys in the order that they have."""
    return yaml.safe_dump(value, sort_keys=False, width=110, allow_unicode=True)


@dataclass(frozen=True)
class Update:
    """Whether the file changed, and the entries that were not written because somebody else changed them."""

    changed: bool
    refused: tuple[str, ...] = ()


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

    def path(self, sources: Collection[Path]) -> Path:
        """Return where the file belongs: the overrides folder of the tree's first folder."""
        folder = next((source for source in sources if source.is_dir()), None)
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
    ) -> Update:
        """Update the entries of `path`; drop those that are no longer `known`.

        `before` is the content when the entries were decided: entries that differ from it now stay. `say` reports
        waiting.
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
                        return Update(merged != now, tuple(sorted(refused)))
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
    """Return the content with these entries instead of the ones there; what is no longer known is left out, unless it
    is new."""
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

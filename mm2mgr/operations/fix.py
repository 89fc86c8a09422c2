"""`lint --fix`: applies fixes to the texts of files, lints again, and writes them on request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from mm2mgr.errors import Mm2mgrError, Problem, SpecError
from mm2mgr.files import read_regular, replace_file
from mm2mgr.lint.findings import SEVERITIES, Finding, Severity
from mm2mgr.lint.fixing import heal
from mm2mgr.lint.reading import is_tree
from mm2mgr.lint.subject import Estate
from mm2mgr.operations.lint import Document, LintOptions, as_severe_as, read_inputs, with_patch
from mm2mgr.operations.workspace import Workspace
from mm2mgr.secrets import mask_text


@dataclass(frozen=True)
class Fixes:
    """What `fix` writes: the `new` contents of files instead of the `old` ones; findings `fixed`, and `left` with the
    reason."""

    old: Mapping[str, bytes] = field(repr=False)  # may hold secrets
    new: Mapping[str, bytes] = field(repr=False)
    fixed: tuple[Finding, ...]
    left: tuple[tuple[Finding, str], ...]
    written: bool = False
    json_keys = "diff fixed=fixed_documents left=left_documents written"

    @cached_property
    def diff(self) -> list[str]:
        """The lines of a unified diff of all files, secrets masked."""
        lines: list[str] = []
        for file, data in self.new.items():
            before, after = (text.decode(errors="replace").splitlines() for text in (self.old[file], data))
            lines += unified_diff(before, after, file, file, lineterm="")
        return mask_text("\n".join(lines)).split("\n") if lines else []

    @property
    def fixed_documents(self) -> list[Document]:
        return [with_patch(finding) for finding in self.fixed]

    @property
    def left_documents(self) -> list[Document]:
        return [{**with_patch(finding), "why": reason} for finding, reason in self.left]

    def fails(self, on: Severity | Literal["never"]) -> bool:
        """Tell whether a finding as severe as `on` is in the files as they are now."""
        findings = [finding for finding, _ in self.left] + ([] if self.written else list(self.fixed))
        return any(finding.severity in as_severe_as(on) for finding in findings)

    def write(self) -> Fixes:
        """Replace the files, each whole, and return the fixes as written.

        Mm2mgrError, and none is written, when one is no longer what was read, or may not be written.
        """
        paths = {Path(file).resolve(): file for file in self.new}
        for path, file in paths.items():
            if not _is(path, self.old[file]):
                raise Mm2mgrError(f"{file} was changed meanwhile; nothing was written", hint="run it again")
            if not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
                hint = "make it and its folder writable, or change what writes it"
                raise Mm2mgrError(f"{file} is read-only; nothing was written", hint=hint)
        for path, file in paths.items():
            try:
                done = replace_file(path, self.new[file], like=path.stat(), only_if=partial(_is, path, self.old[file]))
            except OSError as error:
                raise Mm2mgrError(f"{file}: cannot be written: {error.strerror}") from error
            if not done:
                raise Mm2mgrError(f"{file} was changed meanwhile and not written", hint="run it again")
        return replace(self, written=True)


def _is(path: Path, data: bytes) -> bool:
    try:
        return read_regular(path) == data
    except OSError:
        return False


def _content(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise Mm2mgrError(f"{path}: cannot be changed: {error.strerror}", hint="name the file itself") from error


def fix(
    workspace: Workspace, files: Sequence[Path] = (), options: LintOptions = LintOptions(), *, hints: bool = False
) -> Fixes:
    """Return what the files or the tree are with every fix that a machine can apply; nothing is written before
    `Fixes.write`.

    No Connect cluster is read; fixes of findings of severity info are applied only with `hints`. After each fix the
    files are linted again: one that leaves its finding, or brings one as severe, is given up. Mm2mgrError where the
    tree cannot be read.
    """
    rules, surroundings, options = options.rules, options.surroundings(), replace(options, connects=())

    def read(contents: Mapping[str, bytes]) -> Estate:
        inputs = read_inputs(replace(workspace, contents=contents), files, options, surroundings)
        if inputs.invalid:
            raise SpecError([Problem(str(finding.spot), finding.message) for finding in inputs.invalid])
        return inputs.estate

    read({})  # what cannot be read is reported as by lint
    trees = tuple(path for path in files if is_tree(path)) or (() if files else workspace.files)
    paths = [path for path in files if path not in trees]
    if trees:
        paths += [Path(file) for file in replace(workspace, files=trees).spec.files]
    old = {str(path): _content(path) for path in dict.fromkeys(paths)}
    healed = heal(old, read, rules, SEVERITIES if hints else SEVERITIES[:2])
    left = tuple((finding, mask_text(reason) or "to be done by hand") for finding, reason in healed.left)
    return Fixes(old, healed.contents, healed.fixed, left)

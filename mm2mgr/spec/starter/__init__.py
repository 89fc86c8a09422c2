"""The starter tree that `mm2mgr init` writes: the YAML files beside this module, as they are."""

from __future__ import annotations

import os
from pathlib import Path

from mm2mgr.errors import Mm2mgrError


def write_starter(folder: Path) -> list[Path]:
    """Write the starter files into `folder`; if any of them exists already, nothing is written at all."""
    sources = sorted(Path(__file__).parent.glob("*.yaml"))
    targets = [folder / source.name for source in sources]
    there = [str(target) for target in targets if os.path.lexists(target)]  # also a link that leads to nothing yet
    if there:
        raise Mm2mgrError(
            f"{', '.join(there)} exists already; nothing was written", hint="name another folder: mm2mgr init FOLDER"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            with target.open("x", encoding="utf-8") as file:
                file.write(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mm2mgrError(f"{folder}: cannot be written: {error.strerror}") from error
    return targets

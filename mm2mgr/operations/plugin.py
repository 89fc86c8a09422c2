"""The operation on mm2mgr's Connect plugin: write its jar into a folder, from where people bring it onto workers."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mm2mgr.assignment_text import PLUGIN_CLASS, VERSION
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import read_regular, replace_file

PLUGIN_JAR = Path(__file__).with_name("mm2mgr-connect-plugin.jar")
"""Made of `connect-plugin/` by `python -m tools.connect_plugin`. Its name has no version, so that a newer one replaces
it on a worker: two of them on one `plugin.path` would be two plugins of the same class."""
_LONGEST_JAR = 1 << 20


@dataclass(frozen=True)
class PluginWritten:
    """The jar that was written; `version` is what `GET /connector-plugins` shows for it, `sha256` is of the file."""

    path: Path
    connector_class: str
    version: str
    sha256: str
    change: Literal["written", "replaced", "unchanged"]


def write_plugin(folder: Path) -> PluginWritten:
    """Write the jar into a folder, which is made; an older jar of this name there is replaced in one step.

    Mm2mgrError where that cannot be done.
    """
    jar = PLUGIN_JAR.read_bytes()
    path = folder / PLUGIN_JAR.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = read_regular(path, _LONGEST_JAR) if path.exists() else None
        if before != jar:
            replace_file(Path(os.path.realpath(path)), jar)
    except OSError as error:
        hint = "name a folder that you may write to"
        raise Mm2mgrError(f"{path}: the plugin cannot be written: {error.strerror}", hint=hint) from error
    change: Literal["written", "replaced", "unchanged"] = (
        "written" if before is None else "unchanged" if before == jar else "replaced"
    )
    return PluginWritten(path, PLUGIN_CLASS, f"{VERSION}.0", hashlib.sha256(jar).hexdigest(), change)

"""Small trees for the tests of everything that starts from YAML: text in, files on disk, and what the loader says about them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.spec.files import Spec, load
from mm2mgr.topology import Topology

ESTATE = Path(__file__).parents[2] / "clusters"

# From this version on the parser counts levels itself, and a key that two merged maps have is merged once.
PYYAML_6_0_4 = tuple(int(part) for part in yaml.__version__.split(".")) >= (6, 0, 4)

# One of each: two clusters, one Connect cluster on the target, one flow.
BASE = """\
owner: team
clusters:
  a: {bootstrap_servers: [a1:9092]}
  b: {bootstrap_servers: [b1:9092]}
connect:
  w: {url: "http://localhost:8083", kafka: b}
"""
FLOW = """\
flows:
  f:
    sources: [a]
    targets: [b]
    topics: {include: [t]}
"""


def write(folder: Path, **files: str) -> Path:
    """Write NAME.yaml (two underscores in a name stand for a folder) and return the folder."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def loaded(folder: Path, **files: str) -> Spec:
    return load([write(folder, **files)])


def expanded(folder: Path, **files: str) -> Topology:
    return expand(loaded(folder, **files))


def complaints(folder: Path, **files: str) -> list[str]:
    """Return what load and expand complain about, one `file:line:column: message` each, files relative to `folder`."""
    with pytest.raises(SpecError) as caught:
        expanded(folder, **files)
    assert caught.value.message == "\n".join(map(str, caught.value.problems))
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def complaint(folder: Path, **files: str) -> str:
    """Return the only complaint."""
    (only,) = complaints(folder, **files)
    return only

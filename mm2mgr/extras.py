"""Optional Python packages: which extra of mm2mgr brings each, and the error when one is not installed.

The base install renders, plans, applies and watches; measuring and sizing, and Kafka on this machine, need an extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mm2mgr.errors import Mm2mgrError

EXTRA_OF = {"numpy": "spark", "pyarrow": "spark", "pyspark": "spark", "py4j": "spark"}


class PackageMissing(Mm2mgrError):
    """A command needs a package of an extra that is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"this command needs the Python package {package}", hint=f"pip install 'mm2mgr[{EXTRA_OF[package]}]'"
        )


def need_all() -> None:
    """Raise PackageMissing unless every optional package is installed; imports none of them."""
    for package in EXTRA_OF:
        if find_spec(package) is None:
            raise PackageMissing(package)


def pyspark_jar(prefix: str) -> Path:
    """Return the jar of this name that PySpark ships; PackageMissing without PySpark."""
    package = find_spec("pyspark")
    for location in (package.submodule_search_locations or ()) if package else ():
        for jar in sorted(Path(location, "jars").glob(f"{prefix}-*.jar")):
            return jar
    raise PackageMissing("pyspark")

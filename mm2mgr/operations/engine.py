"""Where an operation works on the tables: the one choice between Spark and this process, for roll-ups, audits and
Cruise Control's topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.throughput.engine import Engine


def engine_of(workspace: Workspace, option: bool | None) -> Engine:
    """Choose the engine; `option` is --spark, --no-spark or None. JavaMissing where Spark is demanded without a Java.

    No session starts here. The tree is read only where nothing else decides, and one that cannot be read says nothing:
    a command that needs it fails by itself.
    """
    from mm2mgr.throughput.engine import choose_engine

    def setting() -> bool:
        try:
            return workspace.spec.tree.defaults.spark
        except Mm2mgrError:
            return True

    return choose_engine(option, setting, spark_java)


def spark_java() -> Path:
    """Return the JAVA_HOME of a local session; JavaMissing where there is none."""
    from mm2mgr.sandbox.runtime import find_java, spark_java_home

    return spark_java_home(find_java())

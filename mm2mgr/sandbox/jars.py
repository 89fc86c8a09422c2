"""Fetches the jars of a Kafka version by its lock file, with the Ivy that PySpark ships, and verifies each by sha256.

`kafka-<version>.lock` beside this module lists them; adding a file adds a version. A jar with another checksum is
deleted and never put on a class path.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from mm2mgr.errors import PackageMissing, SandboxError
from mm2mgr.files import cache_folder, hold_lock, read_regular, replace_file
from mm2mgr.sandbox.java import find_java, trust_arguments
from mm2mgr.text import few

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

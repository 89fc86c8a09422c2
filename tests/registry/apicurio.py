"""Apicurio Registry 2.6.13 as a server of this machine, from the central Maven repository: in memory, with Confluent's API and its own.

3.3.3, whose answers the fakes give too, needs Java 21. Confluent's registry and Karapace are not in the registries that this project uses.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from mm2mgr.files import cache_folder, hold_lock
from mm2mgr.sandbox.jars import Repository
from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.sandbox.server import HOST, Server

VERSION = "2.6.13.Final"
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"


def apicurio_jar() -> Path:
    """Return the jar to run, beside its libraries; fetched once (142 MB) and verified."""
    folder = cache_folder() / f"apicurio-{VERSION}"
    jar = folder / f"apicurio-registry-app-{VERSION}-runner.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / "busy", f"downloading Apicurio to {folder}", 600):
            if not jar.exists():
                archive = _fetch(folder)
                assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
                with tarfile.open(archive) as members:
                    members.extractall(folder, filter="data")
                archive.unlink()
    return jar


def _fetch(folder: Path) -> Path:
    name = "apicurio-registry-app"
    url = f"{Repository.choose().base}/io/apicurio/{name}/{VERSION}/{name}-{VERSION}-all.tar.gz"
    archive = folder / f"{name}.tar.gz"
    with urllib.request.build_opener().open(url, timeout=60) as answer, archive.open("wb") as file:
        shutil.copyfileobj(answer, file)
    return archive


class Apicurio(Server):
    """One registry that keeps its schemas in memory."""

    kind = "registry"
    heap = "300m"

    def __init__(self, name: str, directory: Path, jar: Path) -> None:
        super().__init__(name, directory)
        self._jar = jar

    @property
    def port_names(self) -> tuple[str, ...]:
        return ("HTTP",)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['HTTP']}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def server_properties(self) -> dict[str, str]:
        return {}

    def shell_command(self, java: str, properties_file: Path) -> str:
        options = [f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={self.ports['HTTP']}"]
        return f"exec {shlex.join([java, *options, '-jar', str(self._jar)])}"

    def ready(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/apis/registry/v2/system/info", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

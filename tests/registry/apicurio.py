"""Apicurio Registry 2.6.13 as a server of this machine, from the central Maven repository: in memory, with Confluent's API and its own.

3.3.3, whose answers the fakes give too, needs Java 21. Confluent's registry and Karapace are not in the registries that this project uses.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tarfile
import urllib.error
from pathlib import Path

from mm2mgr.files import cache_folder, hold_lock
from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.sandbox.runtime import find_java, pyspark_jar
from mm2mgr.sandbox.server import HOST, Server

VERSION = "2.6.13.Final"
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false" checksums="sha1"/></resolvers></ivysettings>
"""
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="local" module="apicurio"/><configurations><conf name="default"/></configurations><dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false" conf="default->default">
<artifact name="apicurio-registry-app" type="tgz" ext="tar.gz" m:classifier="all"/></dependency></dependencies></ivy-module>
"""


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
    settings, module = folder / "settings.xml", folder / "ivy.xml"
    archive = folder / "apicurio-registry-app.tar.gz"
    settings.write_text(_SETTINGS)
    module.write_text(_MODULE)
    command = [str(find_java().java), "-cp", str(pyspark_jar("ivy")), "org.apache.ivy.Main", "-settings", str(settings)]
    command += ["-ivy", str(module), "-confs", "default", "-cache", str(folder / "ivy"), "-types", "tgz"]
    command += ["-retrieve", f"{folder}/[artifact].[ext]", "-warn"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert archive.exists(), run.stdout + run.stderr
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

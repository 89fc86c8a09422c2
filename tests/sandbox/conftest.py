"""Stand-ins (a scripted `java`, a Maven repository on this machine), and one real small sandbox for the live tests."""

from __future__ import annotations

import hashlib
import stat
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mm2mgr.sandbox.jars import REPOSITORY_VARIABLE
from mm2mgr.sandbox.layout import Layout, Sandbox

FAKE_JAVA = """#!{python} -S
import sys
if "-XshowSettings:properties" in sys.argv:
    sys.stderr.write("Property settings:\\n    java.home = {home}\\n    java.specification.version = {version}\\n")
else:
    print("java.base@{version}\\n{module}@{version}")
"""


def write_fake_java(home: Path, version: str, module: str = "java.se") -> Path:
    """Write `<home>/bin/java`, which answers as that version."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    values = {"python": sys.executable, "home": home, "version": version, "module": module}
    script.write_text(FAKE_JAVA.format(**values))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


class Repository:
    """A Maven repository on this machine with two jars, and a lock file that names them."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        self.jars: dict[str, bytes] = {}
        self.paths: list[str] = []
        self.broken = 0  # answers that end too early, from now on
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.paths.append(self.path)
                content = repository.jars.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                repository.broken -= 1
                self.wfile.write((content or b"")[: 2 if repository.broken >= 0 else None])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/maven"

    def publish(self, name: str, content: bytes) -> None:
        self.jars[f"/maven/org/example/{name}/1.0/{name}-1.0.jar"] = content

    def withdraw(self, name: str) -> None:
        del self.jars[f"/maven/org/example/{name}/1.0/{name}-1.0.jar"]

    @property
    def requested(self) -> list[str]:
        """Names of the artifacts that were requested, in order of their names."""
        return sorted(path.split("/")[-3] for path in self.paths)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    lock = tmp_path / "test.lock"
    lines = [f"org.example:{name}:1.0 {hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("alpha", "beta")]
    lock.write_text("".join(lines))
    made = Repository(lock)
    made.publish("alpha", b"alpha")
    made.publish("beta", b"beta")
    monkeypatch.setenv(REPOSITORY_VARIABLE, f"{made.url}/")
    yield made
    made.server.shutdown()
    made.server.server_close()


SMALL = Layout(sources=("here",), aggregates=("there",), connect={"mover": "there"})


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two real brokers and a real worker, stopped at the end of the module also when a test fails."""
    made = Sandbox(tmp_path_factory.mktemp("sandbox"))
    try:
        made.start(SMALL)
        yield made
    finally:
        made.stop()

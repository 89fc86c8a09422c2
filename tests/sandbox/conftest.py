"""Stand-ins at the process boundary (a scripted `java` and its Ivy), and one real small sandbox for the live tests."""

from __future__ import annotations

import hashlib
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mm2mgr.sandbox.layout import Layout, Sandbox

FAKE_JAVA = """#!{python} -S
import pathlib, shutil, sys
if "-XshowSettings:properties" in sys.argv:
    sys.stderr.write("Property settings:\\n    java.home = {home}\\n    java.specification.version = {version}\\n")
elif "--list-modules" in sys.argv:
    print("java.base@{version}\\n{module}@{version}")
else:
    import re
    repository = pathlib.Path({repository!r})
    with (repository / "runs").open("a") as runs:
        runs.write("run\\n")
    given = dict(zip(sys.argv, sys.argv[1:]))
    target = pathlib.Path(given["-retrieve"]).parent
    asked = re.findall(r'org="(.*?)" name="(.*?)" rev="(.*?)"', pathlib.Path(given["-ivy"]).read_text())
    (repository / "asked").write_text("\\n".join(name for _, name, _ in asked))
    missing = [each for each in asked if not (repository / f"{{each[1]}}-{{each[2]}}.jar").exists()]
    for group, name, version in missing:
        print(f"\\t\\t:: {{group}}#{{name}};{{version}}: not found")
    if missing:
        sys.exit(1)
    target.mkdir(parents=True, exist_ok=True)
    for _, name, version in asked:
        shutil.copy(repository / f"{{name}}-{{version}}.jar", target)
"""


def write_fake_java(home: Path, version: str, repository: Path | None = None, module: str = "java.se") -> Path:
    """Write `<home>/bin/java`, which answers as that version and, as Ivy, copies jars out of `repository`."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    values = {"python": sys.executable, "home": home, "version": version, "module": module}
    script.write_text(FAKE_JAVA.format(repository=str(repository), **values))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


@dataclass(frozen=True)
class Repository:
    """Two jars that the fake Ivy can deliver, and a lock file that names them."""

    directory: Path
    lock: Path

    def publish(self, name: str, content: bytes) -> None:
        (self.directory / f"{name}-1.0.jar").write_bytes(content)

    def withdraw(self, name: str) -> None:
        (self.directory / f"{name}-1.0.jar").unlink()

    @property
    def runs(self) -> int:
        runs = self.directory / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    @property
    def asked(self) -> list[str]:
        """Names of the artifacts in the last request."""
        return (self.directory / "asked").read_text().split()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    directory, lock = tmp_path / "repository", tmp_path / "test.lock"
    directory.mkdir()
    lines = [f"org.example:{name}:1.0 {hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("alpha", "beta")]
    lock.write_text("".join(lines))
    made = Repository(directory, lock)
    made.publish("alpha", b"alpha")
    made.publish("beta", b"beta")
    write_fake_java(tmp_path / "jdk", "17", directory)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return made


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

"""Builds the jar of the Connect plugin, the same bytes each time, and writes it into the package.

    PYTHONPATH=. python -m tools.connect_plugin

Needs `javac` of Java 17 or newer and Kafka's jars, which the sandbox fetches. Run it after each change of
`connect-plugin/`; `tests/connect_plugin/test_jar.py` compares the jar with its sources.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from mm2mgr.errors import JavaMissing
from mm2mgr.operations.plugin import PLUGIN_JAR
from mm2mgr.sandbox.jars import kafka_jars
from mm2mgr.sandbox.runtime import find_java

SOURCES = Path(__file__).resolve().parents[1] / "connect-plugin"
MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can have


def find_javac() -> Path | None:
    """Return the compiler beside the Java that mm2mgr uses; None where that is no JDK, or there is none."""
    try:
        javac = find_java().java.resolve().with_name("javac")
    except JavaMissing:
        return None
    return javac if javac.is_file() else None


def compile_classes(javac: Path, sources: Sequence[Path], class_path: Sequence[Path], folder: Path) -> None:
    """Compile for Java 11, the oldest that workers of 3.6 run on; CalledProcessError shows what javac says.

    Strings are joined without `invokedynamic`, whose constants each version of javac puts in another order.
    """
    options = ["--release", "11", "-XDstringConcat=inline", "-encoding", "UTF-8", "-proc:none", "-g:source,lines"]
    options += ["-Xlint:-options,-classfile"]
    paths = ["-cp", ":".join(map(str, class_path)), "-d", str(folder)]
    subprocess.run([javac, *options, *paths, *sources], check=True, timeout=300)


def jar_of(files: dict[str, bytes]) -> bytes:
    """Return a jar with these files: the manifest first, sorted, without times, and not compressed, since what a zlib
    makes of the same bytes differs from version to version."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as jar:
        for name in sorted(files, key=lambda name: (name != MANIFEST, name)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            jar.writestr(entry, files[name])
    return archive.getvalue()


def build(javac: Path, jars: Sequence[Path]) -> bytes:
    """Return the plugin's jar, compiled against Kafka's."""
    files = {MANIFEST: b"Manifest-Version: 1.0\r\n\r\n"}
    files |= {str(path.relative_to(SOURCES)): path.read_bytes() for path in SOURCES.glob("META-INF/services/*")}
    with tempfile.TemporaryDirectory() as folder:
        compile_classes(javac, sorted(SOURCES.rglob("*.java")), jars, Path(folder))
        files |= {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.class")}
    return jar_of(files)


def main() -> int:
    javac = find_javac()
    if javac is None:
        print("no javac beside the Java that is used: install a JDK, or set JAVA_HOME to one", file=sys.stderr)
        return 1
    jar = build(javac, kafka_jars())
    PLUGIN_JAR.write_bytes(jar)
    print(f"{PLUGIN_JAR}: {len(jar)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Jars are fetched once, verified against the lock, noticed when missing or altered, and safe to fetch twice at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.runtime import kafka_jars, known_versions, lock_file, locked_jars, read_lock

from .conftest import Repository


def test_fetched_once_then_never_asked_again(repository: Repository, tmp_path: Path) -> None:
    jars = locked_jars(repository.lock, tmp_path / "jars")
    assert [(jar.name, jar.read_bytes()) for jar in jars] == [("alpha-1.0.jar", b"alpha"), ("beta-1.0.jar", b"beta")]
    assert locked_jars(repository.lock, tmp_path / "jars") == jars
    assert repository.runs == 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda jar: jar.write_bytes(b"more than beta")])
def test_a_missing_or_altered_jar_is_fetched_again_alone(
    repository: Repository, tmp_path: Path, damage: object
) -> None:
    _, beta = locked_jars(repository.lock, tmp_path / "jars")
    assert callable(damage)
    damage(beta)
    locked_jars(repository.lock, tmp_path / "jars")
    assert beta.read_bytes() == b"beta"
    assert repository.asked == ["beta"]


def test_a_changed_lock_is_noticed(repository: Repository, tmp_path: Path) -> None:
    locked_jars(repository.lock, tmp_path / "jars")
    repository.lock.write_text(re.sub(r"[0-9a-f]{64}", "0" * 64, repository.lock.read_text(), count=1))
    with pytest.raises(SandboxError, match=r"org\.example:alpha:1\.0 differs"):
        locked_jars(repository.lock, tmp_path / "jars")


def test_an_altered_download_is_refused_and_a_retry_asks_for_it_alone(repository: Repository, tmp_path: Path) -> None:
    repository.publish("beta", b"evil")
    with pytest.raises(SandboxError, match=r"org\.example:beta:1\.0 differs from the sha256") as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert "alpha" not in caught.value.message
    assert [path.name for path in (tmp_path / "jars").rglob("*.jar")] == ["alpha-1.0.jar"]
    repository.publish("beta", b"beta")
    locked_jars(repository.lock, tmp_path / "jars")
    assert repository.asked == ["beta"]


def test_a_failed_download_names_the_artifact_and_a_retry_works(repository: Repository, tmp_path: Path) -> None:
    repository.withdraw("beta")
    with pytest.raises(SandboxError, match=r"could not download org\.example:beta:1\.0 ") as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert "run again" in (caught.value.hint or "")
    repository.publish("beta", b"beta")
    assert len(locked_jars(repository.lock, tmp_path / "jars")) == 2


def test_two_processes_at_once_fetch_once(repository: Repository, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from mm2mgr.sandbox.runtime import locked_jars
print(len(locked_jars(Path({str(repository.lock)!r}), Path({str(tmp_path / "jars")!r}))))
"""
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["2", "2"]
    assert repository.runs == 1


def test_the_shipped_lock_is_complete_and_unambiguous() -> None:
    artifacts = read_lock(lock_file("4.3.1"))
    assert len({artifact.file_name for artifact in artifacts}) == len(artifacts)
    assert all(re.fullmatch(r"[0-9a-f]{64}", artifact.sha256) for artifact in artifacts)
    # kafka_2.13 and connect-mirror are the servers; without the slf4j binding they are silent
    assert {"kafka_2.13", "connect-runtime", "connect-mirror", "log4j-slf4j-impl"} <= {a.name for a in artifacts}


def test_an_unknown_kafka_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        kafka_jars("0.1", tmp_path)
    assert caught.value.hint == f"known versions: {', '.join(known_versions())}"

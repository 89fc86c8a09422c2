"""Jars are fetched once, verified against the lock, noticed when missing or altered, and safe to fetch twice at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr.errors import PackageMissing, SandboxError
from mm2mgr.sandbox.jars import REPOSITORY_VARIABLE, kafka_jars, known_versions, lock_file, locked_jars, read_lock
from mm2mgr.sandbox.jars import Repository as MavenRepository

from .conftest import Repository


def test_fetched_once_then_never_requested_again(repository: Repository, tmp_path: Path) -> None:
    jars = locked_jars(repository.lock, tmp_path / "jars")
    assert [(jar.name, jar.read_bytes()) for jar in jars] == [("alpha-1.0.jar", b"alpha"), ("beta-1.0.jar", b"beta")]
    assert locked_jars(repository.lock, tmp_path / "jars") == jars
    assert repository.requested == ["alpha", "beta"]
    assert "/maven/org/example/alpha/1.0/alpha-1.0.jar" in repository.paths


@pytest.mark.parametrize("damage", [Path.unlink, lambda jar: jar.write_bytes(b"more than beta")])
def test_a_missing_or_altered_jar_is_fetched_again_alone(
    repository: Repository, tmp_path: Path, damage: object
) -> None:
    _, beta = locked_jars(repository.lock, tmp_path / "jars")
    repository.paths.clear()
    assert callable(damage)
    damage(beta)
    locked_jars(repository.lock, tmp_path / "jars")
    assert beta.read_bytes() == b"beta"
    assert repository.requested == ["beta"]


def test_a_changed_lock_is_noticed(repository: Repository, tmp_path: Path) -> None:
    locked_jars(repository.lock, tmp_path / "jars")
    repository.lock.write_text(re.sub(r"[0-9a-f]{64}", "0" * 64, repository.lock.read_text(), count=1))
    with pytest.raises(SandboxError, match=r"org\.example:alpha:1\.0 of .* differs"):
        locked_jars(repository.lock, tmp_path / "jars")


def test_an_altered_download_is_refused_and_a_retry_requests_it_alone(repository: Repository, tmp_path: Path) -> None:
    repository.publish("beta", b"evil")
    with pytest.raises(SandboxError) as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert caught.value.message == (
        f"refused: org.example:beta:1.0 of {repository.url} differs from the sha256 in the lock file"
    )
    assert [path.name for path in (tmp_path / "jars").iterdir() if ".jar" in path.name] == ["alpha-1.0.jar"]
    repository.paths.clear()
    repository.publish("beta", b"beta")
    locked_jars(repository.lock, tmp_path / "jars")
    assert repository.requested == ["beta"]


def test_a_failed_download_names_the_artifact_and_a_retry_works(repository: Repository, tmp_path: Path) -> None:
    repository.withdraw("beta")
    with pytest.raises(SandboxError) as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert caught.value.message == (
        f"could not download org.example:beta:1.0 from {repository.url}: HTTP Error 404: Not Found"
    )
    assert "run again" in (caught.value.hint or "")
    assert repository.requested == ["alpha", "beta"], "what is not there is requested once"
    repository.publish("beta", b"beta")
    assert len(locked_jars(repository.lock, tmp_path / "jars")) == 2


def test_an_answer_that_is_cut_short_is_requested_again(repository: Repository, tmp_path: Path) -> None:
    repository.broken = 2
    alpha, beta = locked_jars(repository.lock, tmp_path / "jars")
    assert (alpha.read_bytes(), beta.read_bytes()) == (b"alpha", b"beta")
    assert len(repository.paths) == 4


def test_a_repository_that_cannot_be_reached_is_named_with_the_ways_around(
    repository: Repository, tmp_path: Path
) -> None:
    repository.server.server_close()
    with pytest.raises(SandboxError) as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert f"from {repository.url}: " in caught.value.message
    assert "Connection refused" in caught.value.message
    for way in ("HTTPS_PROXY=", f"{REPOSITORY_VARIABLE}="):
        assert way in (caught.value.hint or "")


def test_the_proxy_of_the_environment_is_asked(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", repository.url.removesuffix("/maven"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://mirror.example.net/maven")
    with pytest.raises(SandboxError, match=r"from http://mirror\.example\.net/maven: HTTP Error 404"):
        locked_jars(repository.lock, tmp_path / "jars")
    assert all(path.startswith("http://mirror.example.net/maven/org/example/") for path in repository.paths)


@pytest.mark.parametrize(
    "url",
    ["maven2", "ftp://mirror.example.net/", "file:///srv/maven", "https://", "https://me:secret@h/", "https://h/?a"],
)
def test_a_mirror_is_a_plain_url_and_a_login_in_it_is_not_printed(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, url)
    with pytest.raises(SandboxError, match=f"^{REPOSITORY_VARIABLE} is not the base URL") as caught:
        locked_jars(repository.lock, tmp_path / "jars")
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


def test_without_a_mirror_it_is_the_central_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    central = MavenRepository.choose({})
    assert (central.name, central.base[:8]) == ("the central Maven repository", "https://")
    monkeypatch.setitem(sys.modules, "jgo.constants", None)
    with pytest.raises(PackageMissing, match="jgo"):
        MavenRepository.choose({})


def test_two_processes_at_once_fetch_once(repository: Repository, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from mm2mgr.sandbox.jars import locked_jars
print(len(locked_jars(Path({str(repository.lock)!r}), Path({str(tmp_path / "jars")!r}))))
"""
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["2", "2"]
    assert repository.requested == ["alpha", "beta"]


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

"""The jars of a Kafka version: fetched over HTTPS by the lock file beside this module, and checked before use.

A lock file has every jar with its sha256, so neither POMs nor the repository's own checksums are asked for: what comes
from the central repository, a mirror of it or a proxy is either that jar, or it is deleted and refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from mm2mgr.errors import PackageMissing, SandboxError
from mm2mgr.files import cache_folder, hold_lock, read_regular, replace_file
from mm2mgr.text import few

DEFAULT_VERSION = "4.3.1"
REPOSITORY_VARIABLE = "MM2MGR_MAVEN_REPOSITORY"
_CENTRAL = "the central Maven repository"
_STAMP = "verified.json"
_AT_ONCE = 6
_ATTEMPTS = 3
_SILENT_SECONDS = 30
_DOWNLOAD_TIMEOUT_SECONDS = 900
_LARGEST_BYTES = 256 << 20
_PIECE_BYTES = 1 << 16
_NETWORK_ERRORS = (OSError, HTTPException, ValueError)  # urllib's own are OSError; ValueError: a URL it cannot use


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

    @property
    def path(self) -> str:
        """Where a repository of Maven's layout has it, below its base URL."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


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
        _download(missing, directory, Repository.choose())
    sizes = {artifact.file_name: (directory / artifact.file_name).stat().st_size for artifact in artifacts}
    replace_file(directory / _STAMP, json.dumps(_stamp(artifacts, sizes)))


def _is_good(path: Path, artifact: Artifact) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as jar:
        return hashlib.file_digest(jar, "sha256").hexdigest() == artifact.sha256


# --- where they come from ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repository:
    """A repository of Maven's layout: its base URL, and what messages call it."""

    base: str
    name: str

    @classmethod
    def choose(cls, environment: Mapping[str, str] = os.environ) -> Repository:
        """Return the mirror that MM2MGR_MAVEN_REPOSITORY names, else the central repository.

        Raises SandboxError for a value that is no plain base URL, and PackageMissing without the package that knows the
        central one.
        """
        if mirror := environment.get(REPOSITORY_VARIABLE, "").strip():
            return cls(_check_base(mirror), mirror.rstrip("/"))
        try:
            from jgo.constants import MAVEN_CENTRAL_URL
        except ImportError as error:
            raise PackageMissing("jgo") from error
        return cls(_check_base(MAVEN_CENTRAL_URL), _CENTRAL)


def _check_base(base: str) -> str:
    """Return the base URL without its last slash; a login in it could end up in a log, and is refused unprinted."""
    try:
        parts = urlsplit(base)
        is_plain = parts.scheme in {"https", "http"} and parts.hostname and not (parts.query or parts.fragment)
    except ValueError:
        is_plain, parts = False, urlsplit("")
    if not is_plain or "@" in parts.netloc:
        raise SandboxError(
            f"{REPOSITORY_VARIABLE} is not the base URL of a Maven repository without login, query and fragment",
            hint=f"for instance: export {REPOSITORY_VARIABLE}=https://mirror.example.net/maven2",
        )
    return base.rstrip("/")


def _download(artifacts: Sequence[Artifact], directory: Path, repository: Repository) -> None:
    """Fetch several at a time into the directory; SandboxError names those that did not come, or came altered."""
    # It also takes the proxies of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    stop = threading.Event()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = [pool.submit(_fetch, artifact, directory, repository, opener, stop) for artifact in artifacts]
        try:
            outcomes = dict(zip(artifacts, map(_error_of, runs), strict=True))
        except BaseException:  # Ctrl-C: what has not begun does not begin
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    altered = [artifact for artifact, error in outcomes.items() if isinstance(error, _Altered)]
    failed = {artifact: error for artifact, error in outcomes.items() if error and artifact not in altered}
    if altered:
        raise SandboxError(
            f"refused: {few([a.coordinates for a in altered])} of {repository.name} differs from the sha256 in the"
            " lock file",
            hint="run again to download it afresh; if it stays, a proxy or mirror alters downloads",
        )
    if failed:
        raise SandboxError(
            f"could not download {few([a.coordinates for a in failed])} from {repository.name}:"
            f" {next(iter(failed.values()))}",
            hint="check the network and run again: what was fetched is kept. Behind a proxy:"
            f" HTTPS_PROXY=http://HOST:PORT. From a mirror: {REPOSITORY_VARIABLE}=https://HOST/PATH",
        )


class _Altered(Exception):
    """A jar with another sha256 than the lock file's."""


def _error_of(run: Future[None]) -> Exception | None:
    try:
        run.result()
    except (_Altered, *_NETWORK_ERRORS) as error:
        return error
    return None


def _fetch(
    artifact: Artifact,
    directory: Path,
    repository: Repository,
    opener: urllib.request.OpenerDirector,
    stop: threading.Event,
) -> None:
    """Put one jar into the directory, whole and verified, or nothing; a broken connection is tried again at once."""
    part = directory / f"{artifact.file_name}.part"
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                digest = _save(f"{repository.base}/{artifact.path}", part, opener, stop)
                break
            except urllib.error.HTTPError as error:
                error.close()
                if attempt == _ATTEMPTS or error.code < 500:
                    raise
            except _NETWORK_ERRORS:
                if attempt == _ATTEMPTS or stop.is_set():
                    raise
        if digest != artifact.sha256:
            raise _Altered
        part.replace(directory / artifact.file_name)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _save(url: str, path: Path, opener: urllib.request.OpenerDirector, stop: threading.Event) -> str:
    """Save a body and return its sha256; OSError when it is cut short, or larger than any jar."""
    digest, received = hashlib.sha256(), 0
    with opener.open(url, timeout=_SILENT_SECONDS) as answer, path.open("wb") as file:
        while piece := answer.read(_PIECE_BYTES):
            received += len(piece)
            if stop.is_set() or received > _LARGEST_BYTES:
                raise OSError("stopped" if stop.is_set() else f"more than {_LARGEST_BYTES >> 20} MiB")
            digest.update(piece)
            file.write(piece)
        if (length := answer.headers["Content-Length"]) and received < int(length):
            raise OSError("the connection broke")
    return digest.hexdigest()

"""The folders that the sandbox and the demo may fill and empty, and the YAML tree that is written into them.

A folder has its marker and no links that lead out; any other is a SandboxError, and nothing in it is touched. A file
that people changed is known by the checksum in it, and never overwritten or removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.errors import SandboxError
from mm2mgr.files import hold_lock, replace_file
from mm2mgr.text import few

MARKER = ".mm2mgr-folder"
_OTHER = "name a new or an empty folder: --dir DIR"
_HEAD = "# Written by mm2mgr for the sandbox on this machine (its ports change with every start).\n"
_NOTE = "# Changed by hand it is not written again: put what is yours into another file of this folder (checksum {}).\n"
_NOTED = re.compile(r"# .*\(checksum (\w+)\)\.\n")
_CLUSTERS = """\
owner: sandbox

defaults:
  clusters: {replication_factor: 1}        # one broker each

clusters:
"""
_FLOWS = """\
# Every local cluster is mirrored to every aggregate: sources × targets.
flows:
  logging:
    sources: {tier: local}
    targets: {tier: aggregate}
    topics: {include: ["app[.].*", "audit.log"]}
    # One task is given 500 kB/s here, so that the small traffic of a demo needs several. The default is 10 MB/s.
    tasks: {max: auto, limit: 8, capacity: 500 kB/s, threshold: 70%}
    refresh_interval: 5s
    checkpoints: {group_offsets: true, interval: 5s}
    heartbeats: true
"""


def claim(folder: Path, use: str) -> None:
    """Make the folder and mark it for this use.

    Raises SandboxError where it holds anything and is not of this use, or a symbolic link.
    """
    is_there = is_claimed(folder, use)
    if is_there and _is_marked(folder, use):
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / MARKER).open("x", encoding="utf-8") as marker:
            marker.write(_mark(use))


def is_claimed(folder: Path, use: str) -> bool:
    """Tell whether the folder is marked for this use; False where there is nothing yet. SandboxError for any other
    folder."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SandboxError(f"{folder} cannot be read: {error.strerror}", hint=_OTHER) from error
    if not names:
        return False
    if not _is_marked(folder, use):
        problem = (
            f"{folder} was not made by `mm2mgr {use}` (it holds {few(names)}, and no {MARKER} file of it); nothing was"
            " touched"
        )
        raise SandboxError(problem, hint=_OTHER)
    _refuse_ways_out(folder)
    return True


def only_one(folder: Path, doing: str = "starting or stopping the sandbox") -> AbstractContextManager[None]:
    """Hold the folder's lock, which the kernel frees when its holder dies; raise Locked when another process has it."""
    return hold_lock(folder / "state.lock", f"another process is {doing} in {folder}", 0)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failure to write into a SandboxError that names the file, or else the folder."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise SandboxError(f"{where} cannot be written: {error.strerror or error}", hint=_OTHER) from error


def _mark(use: str) -> str:
    return f"mm2mgr {use}\nmm2mgr fills and empties this folder: keep nothing of yours in it.\n"


def _is_marked(folder: Path, use: str) -> bool:
    marker = folder / MARKER
    try:
        if not stat.S_ISREG(marker.lstat().st_mode):
            return False
        with marker.open(encoding="utf-8", errors="replace") as file:
            return file.readline(100).rstrip("\n") == f"mm2mgr {use}"
    except OSError:
        return False


def _refuse_ways_out(folder: Path) -> None:
    """Refuse links, pipes and devices anywhere below the folder: what is written or deleted there must stay there."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue  # a running broker deletes files
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                hint = f"remove it, or {_OTHER}"
                raise SandboxError(f"{path} is {kind}, which mm2mgr never puts there; nothing was touched", hint=hint)


# --- the YAML tree of a sandbox ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Endpoints:
    """Where a sandbox answers: `host:port` per Kafka cluster, REST URL and Kafka cluster per Connect cluster."""

    bootstrap_servers: Mapping[str, str]
    connect_urls: Mapping[str, str]
    connect_kafka: Mapping[str, str]


def as_written(path: Path) -> bool:
    """Tell whether a file is as `write_tree` wrote it; earlier versions left no checksum in it."""
    with path.open("rb") as file:
        text = file.read(1_000_000).decode("utf-8", errors="replace")
    head, rest = text[: len(_HEAD)], text[len(_HEAD) :]
    if head != _HEAD:
        return path.name == "flows.yaml" and text == _FLOWS
    noted = _NOTED.match(rest)
    return noted is None or _checksum(rest[noted.end() :]) == noted[1]


def check_tree(folder: Path) -> None:
    """Refuse a folder whose clusters.yaml is not as `write_tree` wrote it."""
    path = folder / "clusters.yaml"
    with writing(folder):
        if path.exists() and not as_written(path):
            hint = "move what is yours into another file of that folder, and this file away"
            raise SandboxError(f"{path} was written or changed by somebody else; nothing was touched", hint=hint)


def write_tree(folder: Path, endpoints: Endpoints, flows: str = _FLOWS) -> Path:
    """Write clusters.yaml and flows.yaml into `folder`; its overrides, and what people changed, are left alone.

    `flows`: the text of the latter.
    """
    check_tree(folder)
    aggregates = set(endpoints.connect_kafka.values())
    lines = [_CLUSTERS]
    for alias, address in endpoints.bootstrap_servers.items():
        tier = "aggregate" if alias in aggregates else "local"
        lines.append(f"  {alias}: {{bootstrap_servers: ['{address}'], labels: {{tier: {tier}}}}}\n")
    lines.append("\nconnect:\n")
    for name, url in endpoints.connect_urls.items():
        more = "flush_interval: 2s, workers: {count: 1}"
        lines.append(f"  {name}: {{url: ['{url}'], kafka: {endpoints.connect_kafka[name]}, {more}}}\n")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "clusters.yaml", _sign_body("".join(lines)))
        file = folder / "flows.yaml"
        if not file.exists():  # people who keep the sandbox edit this one
            replace_file(file, _sign_body(flows))
    return folder


def _sign_body(body: str) -> str:
    return _HEAD + _NOTE.format(_checksum(body)) + body


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]

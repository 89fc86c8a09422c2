"""Writes the YAML tree of a sandbox: the estate of clusters/ in small, with the ports that the sandbox got.

A file that people changed is known by the checksum in it, and never overwritten or removed.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.folder import writing
from mm2mgr.sandbox.layout import Endpoints

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


def as_written(path: Path) -> bool:
    """Tell whether a file is as `write_tree` wrote it; versions before left no checksum in it."""
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


def write_tree(folder: Path, endpoints: Endpoints) -> Path:
    """Write clusters.yaml and flows.yaml into `folder`; its overrides, and what people changed, are left alone."""
    check_tree(folder)
    aggregates = set(endpoints.connect_kafka.values())
    lines = [_CLUSTERS]
    for alias, address in endpoints.bootstrap_servers.items():
        tier = "aggregate" if alias in aggregates else "local"
        lines.append(f"  {alias}: {{bootstrap_servers: ['{address}'], labels: {{tier: {tier}}}}}\n")
    lines.append("\nconnect:\n")
    for name, url in endpoints.connect_urls.items():
        lines.append(f"  {name}: {{url: ['{url}'], kafka: {endpoints.connect_kafka[name]}}}\n")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "clusters.yaml").write_text(_signed("".join(lines)), encoding="utf-8")
        flows = folder / "flows.yaml"
        if not flows.exists():  # people who keep the sandbox edit this one
            flows.write_text(_signed(_FLOWS), encoding="utf-8")
    return folder


def _signed(body: str) -> str:
    return _HEAD + _NOTE.format(_checksum(body)) + body


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]

"""Writes the YAML tree of a sandbox: the estate of clusters/ in small, with the ports that the sandbox got."""

from __future__ import annotations

from pathlib import Path

from mm2mgr.sandbox.layout import Endpoints

_CLUSTERS = """\
# Written by mm2mgr for the sandbox on this machine (its ports change with every start).
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


def write_tree(folder: Path, endpoints: Endpoints) -> Path:
    """Write clusters.yaml and flows.yaml into `folder`; its overrides are left alone."""
    aggregates = set(endpoints.connect_kafka.values())
    lines = [_CLUSTERS]
    for alias, address in endpoints.bootstrap_servers.items():
        tier = "aggregate" if alias in aggregates else "local"
        lines.append(f"  {alias}: {{bootstrap_servers: ['{address}'], labels: {{tier: {tier}}}}}\n")
    lines.append("\nconnect:\n")
    for name, url in endpoints.connect_urls.items():
        lines.append(f"  {name}: {{url: ['{url}'], kafka: {endpoints.connect_kafka[name]}}}\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clusters.yaml").write_text("".join(lines), encoding="utf-8")
    flows = folder / "flows.yaml"
    if not flows.exists():  # people who keep the sandbox edit this one
        flows.write_text(_FLOWS, encoding="utf-8")
    return folder

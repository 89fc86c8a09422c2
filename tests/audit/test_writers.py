"""Which flows write to one topic of a target, when transformations name it."""

from __future__ import annotations

from pathlib import Path

from mm2mgr.operations import Workspace
from mm2mgr.operations.audit_bounds import writers_of

ROUTED = (
    "topics: {include: ['orders.*']}, source_connector: {transforms: r, transforms.r.regex: '[ab][.](.*)',"
    " transforms.r.type: org.apache.kafka.connect.transforms.RegexRouter, transforms.r.replacement: $1}"
)
TREE = f"""\
owner: t
clusters:
  a: {{bootstrap_servers: ["a:9092"]}}
  b: {{bootstrap_servers: ["b:9092"]}}
  c: {{bootstrap_servers: ["c:9092"]}}
connect:
  w: {{url: "http://127.0.0.1:1", kafka: c}}
flows:
  one: {{sources: [a], targets: [c], {ROUTED}}}
  two: {{sources: [b], targets: [c], {ROUTED}}}
"""


def test_two_patterns_that_a_router_leads_to_one_name_are_two_writers(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TREE)
    workspace = Workspace((tmp_path,))
    writers = writers_of(workspace, {"a": ["orders.eu", "other"], "b": ["orders.eu"]})
    assert len(writers("c", "orders.eu")) == 2
    assert writers("c", "other") == []
    (alone,) = writers_of(workspace, {"a": ["orders.eu"], "b": []})("c", "orders.eu")
    assert alone.startswith("one")

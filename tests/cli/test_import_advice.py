"""`import --advise`: one line per flow on Cluster Mirroring, and none without it."""

from __future__ import annotations

from pathlib import Path

from .command import Command

PROPERTIES = """\
clusters = a, b, c
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
c.bootstrap.servers = c:9092
a->b.enabled = true
a->b.topics = orders
a->b.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
a->c.enabled = true
a->c.topics = orders
"""


def test_a_line_per_flow_says_what_cluster_mirroring_could_take(mm2mgr: Command, tmp_path: Path) -> None:
    source = tmp_path / "mm2.properties"
    source.write_text(PROPERTIES)
    arguments = ("import", str(source), "--owner", "team")
    found = mm2mgr(*arguments, "--advise", "-o", "json", code=3).json["cluster_mirroring"]
    assert {each["flow"].partition(":")[2]: each["could_move"] for each in found} == {"a->b": True, "a->c": False}
    text = mm2mgr(*arguments, "--advise", code=3).out
    assert text.count("Cluster Mirroring (KIP-1279, in no release up to Kafka") == 2
    assert "could not take this flow: its topics get other names" in text
    assert "## Cluster Mirroring" in mm2mgr(*arguments, "--advise", "-o", "markdown", code=3).out
    assert "Cluster Mirroring" not in mm2mgr(*arguments, code=3).out
    assert mm2mgr(*arguments, "-o", "json", code=3).json["cluster_mirroring"] == []

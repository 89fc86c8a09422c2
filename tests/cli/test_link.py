"""`link read` where brokers do not answer or differ. Answers of real brokers: tests/kafka/test_live.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.operations.link import smallest

from .command import Command

TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ["127.0.0.1:{port}"]}}
  b: {{bootstrap_servers: ["localhost:{port}"]}}
connect:
  w: {{url: "http://localhost:8083", kafka: b}}
flows:
  f: {{sources: [a], targets: [b], topics: {{include: [t]}}}}
"""
READ = """\
# Written by `mm2mgr link read` from the brokers: review it like any change, then commit.
brokers:
  a: {count: 3, version: '3.9', socket.send.buffer.bytes: -1, since: '2026-01-02'}
  gone: {count: 1}
"""
KAFKA = {
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "message.max.bytes": "1048588",
}


def declare(folder: Path, port: int, brokers: str = READ) -> Path:
    file = folder / "overrides" / "brokers.yaml"
    file.parent.mkdir(parents=True)
    (folder / "tree.yaml").write_text(TREE.format(port=port))
    file.write_text(brokers)
    return file


def test_clusters_that_do_not_answer_keep_their_entries(mm2mgr: Command, closed_port: int) -> None:
    file = declare(mm2mgr.tree, closed_port)
    said = mm2mgr("link", "read", "--timeout", "5", code=1)
    assert said.err.count("its entry stays as it is") == 2
    assert "a: no broker of 127.0.0.1" in said.err
    assert file.read_text() == READ
    found = mm2mgr("link", "read", "a", "--timeout", "5", "-o", "json", code=1).json
    assert found["clusters"] == {}
    assert list(found["failures"]) == ["a"]


def test_a_cluster_that_is_not_declared_is_an_error_and_one_that_no_longer_is_is_said(
    mm2mgr: Command, closed_port: int
) -> None:
    declare(mm2mgr.tree, closed_port)
    said = mm2mgr("link", "read", "aa", code=1)
    assert "no cluster 'aa' in the tree" in said.err
    assert "did you mean 'a'?" in said.err
    said = mm2mgr("plan", code=1)
    assert "cluster 'gone' is no longer declared" in said.err


def test_a_file_of_people_is_not_overwritten(mm2mgr: Command, closed_port: int) -> None:
    declare(mm2mgr.tree, closed_port, "brokers: {a: {count: 0}}\n")
    said = mm2mgr("link", "read", code=1)
    assert "overrides/brokers.yaml:1:15: " in said.err


def test_the_smallest_value_counts_and_the_system_is_the_largest() -> None:
    other = {**KAFKA, "socket.send.buffer.bytes": "-1", "message.max.bytes": "2000000"}
    entry, remarks = smallest("a", {1: KAFKA, 2: {**other, "inter.broker.protocol.version": "3.9-IV0"}})
    assert entry == {"count": 2, "version": "3.9", **{key: int(value) for key, value in KAFKA.items()}}
    assert remarks == [
        "a: brokers differ in socket.send.buffer.bytes (102400 on broker 1, -1 on broker 2); the smallest counts",
        "a: brokers differ in message.max.bytes (1048588 on broker 1, 2000000 on broker 2); the smallest counts",
    ]
    same, remarks = smallest("a", {1: other, 2: other})
    assert (same["socket.send.buffer.bytes"], same["version"], remarks) == (-1, "4.0", [])


@pytest.mark.parametrize("arguments", [("link", "read", "--timeout", "0"), ("link", "read", "--timeout", "nan")])
def test_bad_values_are_wrong_usage(mm2mgr: Command, arguments: tuple[str, ...]) -> None:
    mm2mgr(*arguments, code=2)

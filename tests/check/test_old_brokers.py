"""What a check says of brokers that are too old for the workers' clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mm2mgr.check.judge import CheckRow, Session, new_workers, old_broker_rows
from mm2mgr.check.run import Sessions, ask_versions
from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.kafka.wire import decode
from mm2mgr.live.principals import Principal
from mm2mgr.live.reach import ClientLogin
from mm2mgr.operations import Workspace
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.kafka.test_api_versions import NEWER, OF_2_0_1, answering, framed
from tests.spec.trees import write

TREE = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["a:9092"]}}
  b: {{bootstrap_servers: ["b:9092"]}}
connect:
  w: {{url: "http://localhost:1", kafka: b}}
flows:
  f: {{sources: [a], targets: [b], topics: {{include: [orders]}}{more}}}
"""
# The highest versions of the requests that matter, as clients/…/requests/*.java of each line has them.
LINES = {
    "1.0": {0: 5, 1: 6, 2: 2, 8: 3, 9: 3, 19: 2, 23: 0, 29: 0, 30: 0, 32: 0},
    "1.1": {0: 5, 1: 7, 2: 2, 8: 3, 9: 3, 19: 2, 23: 0, 29: 0, 30: 0, 32: 1},
    "2.0": {key: high for key, (_, high) in decode(OF_2_0_1).items()},
    "2.1": {0: 7, 1: 10, 2: 4, 8: 6, 9: 5, 19: 3, 23: 2, 29: 1, 30: 1, 32: 2},
    "2.3": {0: 7, 1: 11, 2: 5, 8: 7, 9: 5, 19: 3, 23: 3, 29: 1, 30: 1, 32: 2, 44: 0},
}
RAISED = {"a": "2.3", "b": "2.3"}


def connectors(folder: Path, more: str = "") -> Sequence[Connector]:
    return render(expand(load([write(folder, x=TREE.format(more=more))])))


def rows(
    connectors: Sequence[Connector], lines: Mapping[str, str], version: str | None = "4.3.1"
) -> dict[str, CheckRow]:
    answers = {alias: {key: (0, high) for key, high in LINES[line].items()} for alias, line in lines.items()}
    found = list(old_broker_rows(connectors, new_workers(connectors, {"w": version}), answers))
    by_alias = {row.where: row for row in found}
    assert len(by_alias) == len(found)
    return by_alias


@pytest.mark.parametrize("version", [None, "3.9.2", "2.7.0", "7.9.0-ccs"])
def test_workers_before_4_0_take_every_broker(tmp_path: Path, version: str | None) -> None:
    assert rows(connectors(tmp_path), {"a": "1.0", "b": "1.0"}, version) == {}


def test_brokers_that_take_all_requests_are_well(tmp_path: Path) -> None:
    found = rows(connectors(tmp_path), RAISED)
    assert {alias: row.status for alias, row in found.items()} == {"a": "ok", "b": "ok"}
    assert found["a"].what == "brokers that workers of Kafka 4.3.1 (w) can use"


@pytest.mark.parametrize(
    ("side", "line", "status", "says"),
    [
        ("a", "1.0", "failed", "brokers of Kafka 1.0 do not take DescribeConfigs 1: no topic is created on the target"),
        ("a", "2.0", "unknown", "brokers of Kafka 2.0 take what is sent, but Kafka neither supports"),
        ("a", "2.1", "ok", ""),
        ("b", "2.0", "failed", "of Kafka 2.0 do not take IncrementalAlterConfigs 0: the connector fails"),
        ("b", "2.1", "failed", "these brokers do not take IncrementalAlterConfigs 0: the connector fails"),
        ("b", "2.3", "ok", ""),
    ],
)
def test_old_brokers_are_told_with_what_fails(tmp_path: Path, side: str, line: str, status: str, says: str) -> None:
    row = rows(connectors(tmp_path), RAISED | {side: line})[side]
    assert row.status == status
    assert says in row.effect
    assert ("workers of Kafka 3.9" in row.fix) == (status != "ok")


def test_what_is_off_needs_no_request(tmp_path: Path) -> None:
    on = connectors(tmp_path / "on", ", sync: {topic_acls: true}")
    off = connectors(tmp_path / "off", ", sync: {topic_acls: false, topic_configs: false}")
    with_acls, without = rows(on, {"a": "1.1", "b": "2.0"}), rows(off, {"a": "1.1", "b": "2.0"})
    assert (with_acls["a"].status, without["a"].status) == ("failed", "unknown")
    assert "DescribeAcls 1: ACLs are not copied" in with_acls["a"].effect
    assert with_acls["a"].fix.endswith("upgrade the brokers to 2.1 or newer, or set sync: {topic_acls: false}")
    assert (with_acls["b"].status, without["b"].status) == ("failed", "unknown")
    assert with_acls["b"].fix.endswith("upgrade the brokers to 2.3 or newer, or set sync: {topic_configs: false}")


def test_brokers_that_could_not_be_asked_are_no_failure(tmp_path: Path) -> None:
    made = connectors(tmp_path)
    for answers in ({}, {"a": None, "b": None}):
        found = list(old_broker_rows(made, {"w": "4.0.0"}, answers))
        assert {row.status for row in found} == {"unknown"}
        assert all("kafka-broker-api-versions.sh" in row.fix for row in found)


def test_only_the_clusters_of_new_workers_are_asked(tmp_path: Path) -> None:
    made = connectors(tmp_path)
    with answering(framed(OF_2_0_1)) as (old, _), answering(framed(NEWER)) as (new, _):
        tree = TREE.format(more="").replace("a:9092", old).replace("b:9092", new)
        workspace = Workspace((write(tmp_path / "brokers", x=tree),))
        sessions: Sessions = {}
        for alias, address in (("a", old), ("b", new), ("c", old)):
            login = ClientLogin.from_config(alias, {"bootstrap.servers": address})
            sessions[login] = Session(login, Principal("User:ANONYMOUS"), address)
        assert workspace.ask(ask_versions(sessions, made, {})) == {}
        answers = workspace.ask(ask_versions(sessions, made, {"w": "4.1.0"}))
        assert answers == {"a": decode(OF_2_0_1), "b": decode(NEWER)}

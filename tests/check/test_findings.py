"""What lint finds during a check: with the version that the workers report."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.check.judge import Session
from mm2mgr.check.run import Sessions, history_rows, lint_with_facts, shared_rows
from mm2mgr.connectors import ConnectorStatus, RunningConnector
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.expand import expand
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.lint.subject import KafkaFacts, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.live.principals import Principal
from mm2mgr.live.reach import ClientLogin
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.spec.trees import write

TREE = """\
owner: tester
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
connect:
  w: {url: "http://localhost:1", kafka: b}
flows:
  f: {sources: [a], targets: [b], topics: {include: [orders]}}
"""


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ("3.4.0", ["KAFKA-12468", "KAFKA-14545", "KAFKA-19012"]),
        ("3.4.1", ["KAFKA-19012"]),
        ("4.3.1", []),
    ],
)
def test_a_check_names_the_known_bugs_of_the_workers_that_answer(version: str, bugs: list[str], tmp_path: Path) -> None:
    spec = load([write(tmp_path, x=TREE)])
    topology = expand(spec)
    workers = {"w": WorkerFacts(version=version)}
    found = lint_with_facts(topology, from_tree(topology, render(topology), spec), {}, workers)
    assert sorted(each.message.partition(" ")[0] for each in found if each.rule == "known-bug") == bugs


@pytest.mark.parametrize(("length", "said"), [(247, 0), (248, 1)])
def test_a_check_names_topics_whose_name_on_the_target_is_too_long(length: int, said: int, tmp_path: Path) -> None:
    spec = load([write(tmp_path, x=TREE.replace("[orders]", "[orders, 'n.*']"))])
    topology, long = expand(spec), "n" * length
    facts = {"a": KafkaFacts(partitions={"orders": 1, long: 1})}
    found = lint_with_facts(topology, from_tree(topology, render(topology), spec), facts, {})
    named = [each for each in found if each.rule == "name-too-long"]
    assert len(named) == said
    assert all(long in each.message and f"exclude: [{long}]" in each.fix and each.severity == "error" for each in named)


@pytest.mark.parametrize(("kept_ms", "said"), [("86400000", 0), ("604800000", 1)])
def test_a_check_names_topics_whose_target_refuses_records_that_the_source_has(
    kept_ms: str, said: int, tmp_path: Path
) -> None:
    spec = load([write(tmp_path, x=TREE)])
    topology = expand(spec)
    settings = {"retention.ms": kept_ms, "cleanup.policy": "delete", "message.timestamp.before.max.ms": "86400000"}
    facts = {name: KafkaFacts(topic_settings={topic: settings}) for name, topic in (("a", "orders"), ("b", "a.orders"))}
    found = lint_with_facts(topology, from_tree(topology, render(topology), spec), facts, {})
    named = [each for each in found if each.rule == "record-refused"]
    assert len(named) == said
    assert all("orders" in each.message and "raise message.timestamp.before.max.ms" in each.fix for each in named)


def test_a_history_of_several_partitions_is_a_failed_row_with_the_remedy(tmp_path: Path) -> None:
    topology = expand(load([write(tmp_path, x=TREE)]))
    sessions: Sessions = {}

    def seen(alias: str, partitions: int) -> None:
        login = ClientLogin.from_config(alias, {"bootstrap.servers": f"{alias}:9092"})
        view = ClusterView(alias, (1,), frozenset(), {HISTORY_TOPIC: partitions}, frozenset())
        sessions[login] = Session(login, Principal("User:ANONYMOUS"), f"{alias}:9092", view=view)

    seen("a", 3)
    seen("b", 1)
    assert list(history_rows(sessions, topology)) == [], "no Connect cluster runs on a"
    seen("b", 3)
    (row,) = history_rows(sessions, topology)
    assert (row.status, row.where, row.what) == ("failed", "b", "topic mm2mgr.history.internal")
    assert row.effect.startswith("it has 3 partitions: mm2mgr needs exactly one")
    assert "delete the topic" in row.fix


def test_workers_that_are_not_a_connect_clusters_own_are_a_failed_row() -> None:
    there = {"a": RunningConnector("a", {"topics": "t"}, status=ConnectorStatus("a", "RUNNING"))}
    rows = list(shared_rows({"east": (there, "kafka"), "west": (there, "kafka"), "north": (there, "other")}))
    assert [(row.status, row.where) for row in rows] == [("failed", "connect east"), ("failed", "connect west")]
    assert all("config.storage.topic" in row.effect and "group.id" in row.fix for row in rows)

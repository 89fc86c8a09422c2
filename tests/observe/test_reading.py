"""What is read, and what is not: requests, partitions, aliases, access."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.assignment import read_back
from mm2mgr.connect.types import SOURCE_CLASS, SourceOffset, parse_stored
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.partitions import TopicPartition
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import TREE, Estate, flow_of, topology_of

TWO = """
owner: tester
clusters:
  A: {{bootstrap_servers: "a:9092"}}
  B: {{bootstrap_servers: "b:9092"}}
  C: {{bootstrap_servers: "c:9092"}}
connect:
  cb: {{url: "{b}", kafka: B}}
  cc: {{url: "{c}", kafka: C}}
flows:
  orders: {{sources: [A], targets: [B, C], topics: {{include: orders}}}}
"""


def test_requests_are_four_per_cluster_and_two_per_source_connector(small: Estate) -> None:
    small.status()
    paths = [(request.path, request.query) for request in small.connect.requests]
    assert sorted(paths) == [
        ("/", ""),
        (f"/connector-plugins/{SOURCE_CLASS}/config/validate", ""),
        ("/connectors", "expand=info"),
        ("/connectors", "expand=status"),
        (f"/connectors/{small.source}/offsets", ""),
        (f"/connectors/{small.source}/tasks", ""),
    ]
    assert small.connect.writes == []


def test_only_the_flows_partitions_are_asked_for(small: Estate) -> None:
    small.kafka.clusters["A"] |= {"payments": [(0, 5)], "B.orders": [(0, 5)], "__consumer_offsets": [(0, 1)]}
    small.kafka.clusters["B"] |= {"orders": [(0, 5)], "A.payments": [(0, 5)]}
    small.status()
    assert {(alias, one.topic) for alias, one in small.kafka.asked} == {("A", "orders"), ("B", "A.orders")}


def test_what_tasks_really_hold_is_read_even_if_the_tree_does_not_name_it(small: Estate) -> None:
    small.kafka.clusters["A"]["heartbeats"] = [(0, 50)]
    small.kafka.clusters["B"]["A.heartbeats"] = [(0, 50)]
    small.connect.source_topics = {"orders": 2, "heartbeats": 1}
    small.connect.connectors[small.source].config["topics"] = "orders.*,heartbeats"
    lag = small.look().lags["orders:A->B"]
    beats = [one for one in lag.partitions if one.partition.topic == "heartbeats"]
    assert [(one.lag_records, one.arrived, one.heartbeat) for one in beats] == [(50, 50, True)]
    assert lag.total_records == 0


def test_a_cluster_that_is_both_source_and_target_is_read_once(tmp_path: Path) -> None:
    connect = FakeConnect()
    with serving(connect) as url:
        text = (
            TREE.format(url=url, more="")
            + "  back: {sources: [B], targets: [A], topics: {include: orders}, run_on: cb}\n"
        )
        both = Estate(topology_of(text, tmp_path), connect, tmp_path)
        both.kafka.clusters["B"]["orders"] = [(0, 3)]
        both.kafka.clusters["A"]["B.orders"] = [(0, 3)]
        both.status()
    asked = [str(one) for alias, one in both.kafka.asked if alias == "A"]
    assert asked == ["orders-0", "orders-1", "B.orders-0"]


def test_one_connect_cluster_down_leaves_the_other_readable(tmp_path: Path) -> None:
    fake = FakeConnect(source_topics={"orders": 2})
    with serving(fake) as url:
        topology = topology_of(TWO.format(b=url, c="http://127.0.0.1:9"), tmp_path)
        two = Estate(topology, fake, tmp_path)
        two.kafka.clusters["C"] = {}
        status = two.status()
        assert {flow.flow: flow.health for flow in status.flows} == {"orders:A->B": "ok", "orders:A->C": "unknown"}
        assert list(status.failures) == ["connect cc"]
        before = len(fake.requests)
        chosen = two.status(only=["orders:A->C"])
    assert [flow.flow for flow in chosen.flows] == ["orders:A->C"]
    assert len(fake.requests) == before, "a flow that nobody asked about is not read"


def test_a_connector_deleted_while_it_is_read_is_no_error(small: Estate) -> None:
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 404, "Connector not found", times=9)
    flow = small.flow()
    assert flow.health == "unknown"
    assert any("tasks could not be read" in note for note in flow.notes)


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", ()),
        ("a-0", (TopicPartition("a", 0),)),
        ("a-b-2-11,c.d-0", (TopicPartition("a-b-2", 11), TopicPartition("c.d", 0))),
        ("broken,-1,x-", ()),
    ],
)
def test_assigned_partitions(text: str, partitions: tuple[TopicPartition, ...]) -> None:
    assert read_back({0: text}).tasks == (partitions,)


def test_stored_offsets_of_another_alias_or_shape_are_not_ours() -> None:
    def entry(cluster: object, topic: object, partition: object, offset: object) -> SourceOffset:
        stored = None if offset is None else {"offset": offset}
        return SourceOffset({"cluster": cluster, "topic": topic, "partition": partition}, stored)

    entries = [entry("A", "t", 0, 5), entry("old", "t", 1, 6), entry("A", "t", 2, None), entry("A", 3, "x", "y")]
    assert parse_stored(entries, "A") == {TopicPartition("t", 0): 5}


def test_upstream_is_the_inverse_of_the_remote_name(tmp_path: Path) -> None:
    default, identity = flow_of(tmp_path), flow_of(tmp_path, "replication_policy: identity")
    for flow in (default, identity):
        for topic in ("orders", "orders.x", "heartbeats"):
            assert flow.selection.upstream(flow.remote_topic(topic)) == topic
    assert default.selection.upstream("orders") is None
    assert identity.selection.upstream("A.orders") == "A.orders"
    assert flow_of(tmp_path, "replication_policy: com.example.Own").selection.upstream("A.orders") is None


def test_access_replaces_only_what_it_gives(tmp_path: Path) -> None:
    text = """
owner: t
clusters:
  A: {bootstrap_servers: "a:1,b:2", security: {protocol: SSL}, access: {bootstrap_servers: "out:9"}}
  B: {bootstrap_servers: "b:1", security: {protocol: SSL}, access: {security: {}}}
  C: {bootstrap_servers: ["c:1", "d:1"], security: {protocol: SSL}}
connect: {x: {url: "http://x:1", kafka: A}}
"""
    clusters = topology_of(text, tmp_path).clusters
    found = [(one.bootstrap_servers, dict(one.security)) for one in map(kafka_access, clusters.values())]
    ssl = {"security.protocol": "SSL"}
    assert found == [("out:9", ssl), ("b:1", {}), ("c:1,d:1", ssl)]

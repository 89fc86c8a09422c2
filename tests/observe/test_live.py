"""On real brokers and a real worker: a flow that ends with no lag, and one whose source port is dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from mm2mgr.apply.execute import apply_plan
from mm2mgr.connectors import Connector
from mm2mgr.json_values import to_json
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import topic_acls, topic_configs
from mm2mgr.kafka.records import Producer
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.reading import Patience
from mm2mgr.observe.state_file import load
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.health import ConnectorState, FlowStatus
from mm2mgr.problems.status import describe, status
from mm2mgr.problems.watchdog import Watchdog
from mm2mgr.render import render
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.sandbox.server import free_ports
from mm2mgr.topology import Topology
from tests.asking import make_plan
from tests.live.conftest import serving
from tests.live.seen import config_of, connector_url, rest
from tests.live.transactions import Transactions
from tests.observe.estate import sentences, topology_of

pytestmark = pytest.mark.live

TREE = """
owner: live
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{checkpoints: {{interval: 1s, group_offsets: true}}}}
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
  gone: {{bootstrap_servers: "127.0.0.1:{dead}"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  orders:
    sources: [A]
    targets: [B]
    topics: {{include: ["orders"]}}
    tasks: {{max: 2}}
    refresh_interval: 5s
  copied:
    sources: [A]
    targets: [B]
    topics: {{include: ["settings"]}}
    refresh_interval: 5s
    source_connector: {{sync.topic.configs.interval.seconds: 1}}
  granted:
    sources: [A]
    targets: [B]
    topics: {{include: ["granted"]}}
    refresh_interval: 5s
    sync: {{topic_acls: true}}
    source_connector: {{sync.topic.acls.interval.seconds: 1}}
  refused:
    sources: [A]
    targets: [B]
    topics: {{include: ["refused[.].*"]}}
    refresh_interval: 5s
  held:
    sources: [A]
    targets: [B]
    topics: {{include: ["held"]}}
    refresh_interval: 5s
    source_consumer: {{isolation.level: read_committed}}
  lost:
    sources: [gone]
    targets: [B]
    topics: {{include: ["orders"]}}
    heartbeats: false
    checkpoints: false
    source_connector: {{admin.timeout.ms: 5000}}
"""


# Everybody may do everything, except to topics that have an ACL.
OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    directory = tmp_path_factory.mktemp("observe")
    runtime = kafka_runtime()
    a, b = (Broker(alias, directory / alias, OPEN, runtime=runtime) for alias in ("A", "B"))
    with serving([a, b]):
        worker = Worker("cb", directory / "cb", b.bootstrap_servers, runtime=runtime)
        with serving([worker]):
            (dead,) = free_ports(1)
            addresses = {"a": a.bootstrap_servers, "b": b.bootstrap_servers, "url": worker.url, "dead": dead}
            yield topology_of(TREE.format(**addresses), directory)


@pytest.fixture(scope="module")
def applied(topology: Topology) -> tuple[Connector, ...]:
    with Kafka(kafka_access(topology.clusters["A"])) as kafka:
        kafka.create_topics({"orders": (3, 1, {})})
    produce(topology, 500)
    connectors = render(topology)
    apply(topology, connectors, "orders:A->B")
    return connectors


def apply(topology: Topology, connectors: tuple[Connector, ...], flow: str) -> None:
    plan = asyncio.run(make_plan(topology, connectors, only=[flow]))
    results = asyncio.run(apply_plan(topology, plan))
    assert {result.error for result in results} == {None}


def produce(topology: Topology, records: int) -> None:
    with Producer(kafka_access(topology.clusters["A"])) as producer:
        for number in range(records):
            producer.send(("orders", number % 3), f"record {number}".encode())
        producer.flush()


def until(holds: Callable[[], bool], what: str, deadline_seconds: float = 180.0) -> None:
    end = time.monotonic() + deadline_seconds
    while not holds():
        assert time.monotonic() < end, f"not within {deadline_seconds:.0f} s: {what}"
        time.sleep(0.2)


def wait_for(
    look: Callable[[], FlowStatus], wanted: Callable[[FlowStatus], bool], deadline_seconds: float = 180.0
) -> FlowStatus:
    """Look until it is as wanted; fail with the last status."""
    end = time.monotonic() + deadline_seconds
    while not wanted(found := look()):
        assert time.monotonic() < end, str(to_json(found))
        time.sleep(0.5)
    return found


def test_a_healthy_flow_ends_with_no_lag(topology: Topology, applied: tuple[Connector, ...], tmp_path: Path) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json")

    def look() -> FlowStatus:
        return asyncio.run(status(topology, applied, only=["orders:A->B"], options=options)).flows[0]

    # three partitions of orders; the heartbeats are mirrored by the first flow by name
    flow = wait_for(
        look,
        lambda one: one.lag_records == 0 and one.health == "ok" and [*one.partitions_per_task.values()] == [2, 1],
    )
    assert flow.state == "RUNNING"
    assert flow.problems == ()
    produce(topology, 300)
    wait_for(look, lambda one: one.lag_records == 0 and one.health == "ok")

    def orders_stored() -> bool:
        nonlocal data
        data = to_json(asyncio.run(describe(topology, applied, topology.select("orders")[0], options=options)))
        return all(one["stored_offset"] == one["log_end"] - 1 for one in data["lag"] if one["topic"] == "orders")

    # The target's end says that all has arrived; the worker stores offsets later.
    data: dict[str, Any] = {}
    until(orders_stored, "all offsets are stored")
    orders = [one for one in data["lag"] if one["topic"] == "orders"]
    assert [(one["stored_offset"], one["log_end"]) for one in orders] == [(266, 267), (266, 267), (265, 266)]
    assert sum(one["target_end"] for one in orders) == 800
    assert {one["health"] for one in data["companions"]} <= {"ok", "waiting"}


def test_a_dead_source_is_no_status_first_and_a_problem_then(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(patience=Patience(no_status_seconds=3), memory_file=tmp_path / "memory.json")

    def look() -> FlowStatus:
        return asyncio.run(status(topology, applied, only=["lost:gone->B"], options=options)).flows[0]

    apply(topology, applied, "lost:gone->B")
    first = look()
    assert (first.state, first.health, first.lag_records) == ("no status", "waiting", None)
    assert "gone" in first.offsets_note
    found = wait_for(look, lambda one: bool(one.problems))
    assert (found.state, found.health) == ("no status", "problem")
    assert "check addresses, ports and security protocol of gone and B" in sentences(found)[0]
    ended = wait_for(look, lambda one: one.state == "RUNNING")
    assert "RUNNING without a task" in sentences(ended)[0]
    assert "gone" in sentences(ended)[0]


CLUSTER = "kafka-cluster"


def acl(
    operation: AclOperation, permission: AclPermissionType, name: str = "A.settings", principal: str = "User:ANONYMOUS"
) -> AclBinding:
    """Return an ACL on a mirrored topic, or on the cluster, by default for clients without a login."""
    kind = ResourceType.BROKER if name == CLUSTER else ResourceType.TOPIC
    return AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, permission)


def every_acl(of: AclBinding) -> AclBindingFilter:
    """Return what finds all ACLs on the same topic or cluster."""
    anything = AclOperation.ANY, AclPermissionType.ANY
    return AclBindingFilter(of.restype, of.name, ResourcePatternType.LITERAL, None, None, *anything)


def restart_failed(topology: Topology, name: str) -> None:
    url = topology.connects["cb"].model.url[0]
    rest("POST", connector_url(url, name, "/restart?includeTasks=true&onlyFailed=true"))


REST_ALLOWED = acl(AclOperation.ALL, AclPermissionType.ALLOW)
NO_CONFIGS = acl(AclOperation.ALTER_CONFIGS, AclPermissionType.DENY)


def test_settings_that_the_target_refuses_are_a_problem_until_it_takes_them(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(not_synced_seconds=2))

    def keep(milliseconds: int) -> None:
        entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=[entry])
        with Kafka(kafka_access(topology.clusters["A"])) as kafka:
            kafka.admin.incremental_alter_configs([resource])[resource].result(20)

    def kept(milliseconds: int) -> bool:
        with Kafka(kafka_access(topology.clusters["B"])) as kafka:
            return topic_configs(kafka, ["A.settings"])["A.settings"].set.get("retention.ms") == str(milliseconds)

    def look() -> FlowStatus:
        found = asyncio.run(status(topology, applied, only=["copied:A->B"], options=options)).flows[0]
        said.append([one.kind for one in found.problems])
        return found

    said: list[list[str]] = []
    with Kafka(kafka_access(topology.clusters["A"])) as kafka:
        kafka.create_topics({"settings": (1, 1, {"retention.ms": "86400000"})})
    apply(topology, applied, "copied:A->B")
    until(lambda: look().health == "ok" and kept(86400000), "the topic and its setting are on the target")
    keep(90000000)
    until(lambda: not look().problems and kept(90000000), "the changed setting is on the target")
    assert not any("topic-configs-differ" in kinds for kinds in said)

    with Kafka(kafka_access(topology.clusters["B"])) as kafka:
        for future in kafka.admin.create_acls([REST_ALLOWED, NO_CONFIGS]).values():
            future.result(20)
        keep(95000000)
        found = wait_for(look, lambda one: bool(one.problems))
        assert [one.kind for one in found.problems] == ["topic-configs-differ"]
        assert "topic A.settings on B without the setting retention.ms that A has" in sentences(found)[0]
        assert found.state == "RUNNING"
        assert not kept(95000000)
        for deleted in kafka.admin.delete_acls([every_acl(NO_CONFIGS)]).values():
            assert len(deleted.result(20)) == 2
    wait_for(look, lambda one: not one.problems)
    assert kept(95000000)


def test_acls_that_go_elsewhere_are_a_problem_until_they_are_on_the_target(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(not_synced_seconds=2))
    url, name, allow = topology.connects["cb"].model.url[0], "mm2.A.B.source.granted", AclPermissionType.ALLOW

    def create(kafka: Kafka, *acls: AclBinding) -> None:
        for future in kafka.admin.create_acls(list(acls)).values():
            future.result(20)

    def on_target() -> set[str]:
        return {str(one) for one in topic_acls(b, ["A.granted"])["A.granted"]}

    def kinds() -> list[str]:
        flow = asyncio.run(status(topology, applied, only=["granted:A->B"], options=options)).flows[0]
        said.extend(sentences(flow))
        return [one.kind for one in flow.problems]

    said: list[str] = []
    with Kafka(kafka_access(topology.clusters["A"])) as a, Kafka(kafka_access(topology.clusters["B"])) as b:
        a.create_topics({"granted": (1, 1, {})})
        create(b, acl(AclOperation.ALL, allow, "A.granted"))
        create(
            a,
            acl(AclOperation.ALL, allow, "granted"),
            acl(AclOperation.READ, allow, "granted", "User:bob"),
            acl(AclOperation.WRITE, allow, "granted", "User:eve"),
            acl(AclOperation.DESCRIBE, AclPermissionType.DENY, "granted", "User:eve"),
        )
        apply(topology, applied, "granted:A->B")
        mirrored = {"allow Read for User:ANONYMOUS", "allow Read for User:bob", "deny Describe for User:eve"}
        own = "allow All for User:ANONYMOUS"
        until(lambda: kinds() == [] and on_target() == {own} | mirrored, "MirrorMaker's own rules are those of mm2mgr")
        assert not any("without the ACL" in one for one in said)
        declared = config_of(url, name)
        elsewhere = {"target.admin.bootstrap.servers": topology.clusters["A"].client["bootstrap.servers"]}
        rest("PUT", connector_url(url, name, "/config"), declared | elsewhere)
        create(a, acl(AclOperation.READ, allow, "granted", "User:late"))
        until(lambda: "topic-acls-differ" in kinds(), "it is a problem")
        assert any(
            "topic A.granted on B without the ACL allow Read for User:late that MirrorMaker copies" in one
            for one in said
        )
        rest("PUT", connector_url(url, name, "/config"), declared)
        until(lambda: kinds() == [], "the ACL is on the target")
        assert on_target() == {own, "allow Read for User:late"} | mirrored


def test_what_the_target_refuses_to_create_is_a_problem(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    """A topic that the workers may not create on the target, and partitions that they may not add."""
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(no_progress_seconds=2))
    nobody = AclPermissionType.DENY
    refused = [
        acl(AclOperation.ALL, AclPermissionType.ALLOW, "A.refused.few"),
        acl(AclOperation.ALTER, nobody, "A.refused.few"),
        acl(AclOperation.ALL, AclPermissionType.ALLOW, "A.refused.new"),
        acl(AclOperation.CREATE, nobody, "A.refused.new"),
        acl(AclOperation.ALL, AclPermissionType.ALLOW, CLUSTER),
        acl(AclOperation.CREATE, nobody, CLUSTER),
    ]

    def look() -> FlowStatus:
        return asyncio.run(status(topology, applied, only=["refused:A->B"], options=options)).flows[0]

    def problem(kind: str) -> list[str]:
        """Wait for a problem, and return the topics that it names."""
        found = wait_for(look, lambda one: any(each.kind == kind for each in one.problems))
        return [topic for one in found.problems if one.kind == kind for topic in to_json(one.evidence)["topics"]]

    with Kafka(kafka_access(topology.clusters["A"])) as a, Kafka(kafka_access(topology.clusters["B"])) as b:
        a.create_topics({"refused.few": (1, 1, {})})
        apply(topology, applied, "refused:A->B")
        wait_for(look, lambda one: one.health == "ok" and "A.refused.few" in b.partition_counts())
        for future in b.admin.create_acls(refused).values():
            future.result(20)
        try:
            for future in a.admin.create_partitions([NewPartitions("refused.few", 3)]).values():
                future.result(20)
            assert problem("target-partitions-fewer") == ["A.refused.few"]
            a.create_topics({"refused.new": (1, 1, {})})
            with Producer(kafka_access(topology.clusters["A"])) as producer:
                for _ in range(10):
                    producer.send(("refused.new", 0), b"waits")
            assert problem("target-topic-missing") == ["A.refused.new"]
        finally:
            for future in b.admin.delete_acls(
                [every_acl(one) for one in {each.name: each for each in refused}.values()]
            ).values():
                future.result(20)
        restart_failed(topology, "mm2.A.B.source.refused")
        wait_for(look, lambda one: not one.problems)
        assert b.partition_counts()["A.refused.few"] == 3


@contextmanager
def open_transaction(topology: Topology) -> Iterator[None]:
    """Hold up everybody who reads committed records of the topic: fetches bring nothing."""
    transactions = Transactions(kafka_access(topology.clusters["A"]), "holds")
    transactions.begin()
    transactions.produce("held", b"not committed yet")
    transactions.flush()
    try:
        yield
    finally:
        transactions.abort()


@pytest.fixture(scope="module")
def held(topology: Topology, applied: tuple[Connector, ...]) -> tuple[Connector, ...]:
    with Kafka(kafka_access(topology.clusters["A"])) as kafka:
        kafka.create_topics({"held": (1, 1, {})})
    apply(topology, applied, "held:A->B")
    return applied


def test_a_running_task_whose_fetches_bring_nothing_is_a_problem_until_they_do(
    topology: Topology, held: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(no_progress_seconds=5))

    def look() -> FlowStatus:
        return asyncio.run(status(topology, held, only=["held:A->B"], options=options)).flows[0]

    def write() -> None:
        with Producer(kafka_access(topology.clusters["A"])) as producer:
            for _ in range(100):
                producer.send(("held", 0), b"waits")
            producer.flush()

    write()
    wait_for(look, lambda one: one.health == "ok" and not one.lag_records)
    with open_transaction(topology):
        write()
        found = wait_for(look, lambda one: bool(one.problems))
        assert ([one.kind for one in found.problems], found.state) == (["no-progress"], "RUNNING")
        evidence = to_json(found.problems[0].evidence)
        expected = {"blind": False, "read_committed": True, "target": "B", "target_down": False}
        assert evidence == evidence | expected
        assert found.lag_records is not None
        assert found.lag_records >= 100
    wait_for(look, lambda one: not one.problems and one.lag_records == 1)  # the marker at the end of the transaction


def test_tasks_that_keep_an_older_config_are_a_problem(
    topology: Topology, held: tuple[Connector, ...], tmp_path: Path
) -> None:
    """The connector got a config with which it cannot start; its tasks run on with the one before."""
    options, name = ObserveOptions(memory_file=tmp_path / "memory.json"), "mm2.A.B.source.held"
    url = connector_url(topology.connects["cb"].model.url[0], name, "/config")

    def look() -> FlowStatus:
        return asyncio.run(status(topology, held, only=["held:A->B"], options=options)).flows[0]

    wait_for(look, lambda one: one.state == "RUNNING" and not one.problems and bool(one.tasks))
    dead = topology.clusters["gone"].client["bootstrap.servers"]
    rest("PUT", url, config_of(topology.connects["cb"].model.url[0], name) | {"source.cluster.bootstrap.servers": dead})
    try:
        found = wait_for(look, lambda one: any(each.older for each in one.problems))
        (problem,) = found.problems
        assert problem.older == ("source.cluster.bootstrap.servers",), "told by what the change by hand causes"
        assert [task.state for task in found.tasks] == ["RUNNING"]
    finally:
        apply(topology, held, "held:A->B")
    wait_for(look, lambda one: one.state == "RUNNING" and not one.problems)


def test_heartbeats_that_go_elsewhere_are_a_problem(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json", patience=Patience(no_heartbeat_seconds=3))
    url, name = topology.connects["cb"].model.url[0], "mm2.A.B.heartbeat"

    def kinds() -> list[str]:
        seen = asyncio.run(status(topology, applied, only=["orders:A->B"], options=options))
        (beat,) = (one for one in seen.companions if one.connector == name)
        return [one.kind for one in beat.problems]

    began = time.monotonic()
    until(lambda: kinds() == [] and time.monotonic() - began > 7, "heartbeats arrive for longer than five intervals")
    declared = config_of(url, name)
    assert declared["target.cluster.alias"] == "A", "heartbeats begin on the source"
    elsewhere = {"producer.override.bootstrap.servers": topology.clusters["B"].client["bootstrap.servers"]}
    rest("PUT", connector_url(url, name, "/config"), declared | elsewhere)
    until(lambda: "heartbeats-not-emitted" in kinds(), "it is a problem")
    rest("PUT", connector_url(url, name, "/config"), declared)
    until(lambda: kinds() == [], "heartbeats arrive again")


@contextmanager
def member(topology: Topology, alias: str, topic: str) -> Iterator[Consumer]:
    """A consumer of the group `readers` on a cluster, which leaves the group at the end."""
    settings = {
        "bootstrap.servers": topology.clusters[alias].client["bootstrap.servers"],
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def read(topology: Topology, records: int) -> None:
    """Read so many records of orders on A as the group, and commit."""
    with member(topology, "A", "orders") as consumer:
        found: list[object] = []
        until(
            lambda: bool(found.extend(consumer.consume(records - len(found), 1)) or len(found) == records),
            "all is read",
        )
        consumer.commit(asynchronous=False)


def test_checkpoints_that_go_elsewhere_and_group_offsets_that_go_back_are_problems(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    memory = tmp_path / "memory.json"
    options = ObserveOptions(memory_file=memory, patience=Patience(no_checkpoint_seconds=1))
    url, name = topology.connects["cb"].model.url[0], "mm2.A.B.checkpoint"
    with Kafka(kafka_access(topology.clusters["A"])) as kafka:
        ends = kafka.offsets([TopicPartition("orders", number) for number in range(3)])
    read(topology, sum(one.end for one in ends.values()))

    def state() -> ConnectorState:
        seen = asyncio.run(status(topology, applied, only=["orders:A->B"], options=options))
        return next(one for one in seen.companions if one.connector == name)

    def kinds() -> list[str]:
        return [one.kind for one in state().problems]

    until(lambda: state().health == "ok", "its task has the group")
    declared = config_of(url, name)
    elsewhere = {"producer.override.bootstrap.servers": topology.clusters["A"].client["bootstrap.servers"]}
    rest("PUT", connector_url(url, name, "/config"), declared | elsewhere)

    def is_counted() -> bool:
        assert "checkpoints-not-emitted" not in kinds()
        return any(one.arrived for one in load(memory).checkpoints[f"cb/{name}"].baselines.get("readers", {}).values())

    def is_told() -> bool:
        """Read on, as long as the task with the old config may have written a last checkpoint meanwhile, which begins everything anew."""
        produce(topology, 600)
        read(topology, 600)
        return "checkpoints-not-emitted" in kinds()

    until(is_counted, "it is known where the group is while no checkpoint comes")
    until(is_told, "it is a problem")
    rest("PUT", connector_url(url, name, "/config"), declared)
    produce(topology, 1_500)
    read(topology, 1_500)
    until(lambda: kinds() == [], "checkpoints arrive again")

    def is_synced() -> bool:
        assert kinds() == []
        return bool(load(memory).checkpoints[f"cb/{name}"].synced.get("readers"))

    until(is_synced, "the group's offsets are on the target")
    with member(topology, "B", "A.orders") as consumer:  # MirrorMaker leaves the offsets of a group with members alone
        until(lambda: bool(consumer.poll(0.2) and consumer.assignment()), "it has its partitions")
        consumer.commit(offsets=[Committed("A.orders", number, 0) for number in range(3)], asynchronous=False)
        until(lambda: kinds() == ["group-offsets-rewound"], "the group is back at the beginning")
    until(lambda: kinds() == [], "MirrorMaker has set them again")


def test_a_task_that_may_not_write_failed_and_no_watchdog_restarts_it(
    topology: Topology, applied: tuple[Connector, ...], tmp_path: Path
) -> None:
    options = ObserveOptions(memory_file=tmp_path / "memory.json")
    denied = acl(AclOperation.WRITE, AclPermissionType.DENY, "A.orders")

    def look() -> FlowStatus:
        return asyncio.run(status(topology, applied, only=["orders:A->B"], options=options)).flows[0]

    wait_for(look, lambda one: one.health == "ok" and len(one.tasks) == 2)
    with Kafka(kafka_access(topology.clusters["B"])) as kafka:
        for future in kafka.admin.create_acls([denied]).values():
            future.result(20)
        try:
            produce(topology, 3)
            # Both have partitions of the topic; one that FAILED later would miss the restart below.
            found = wait_for(look, lambda one: all(task.state == "FAILED" for task in one.tasks))
        finally:
            for deleted in kafka.admin.delete_acls([every_acl(denied)]).values():
                assert len(deleted.result(20)) == 1
    failed = [one for one in found.problems if one.kind == "task-failed"]
    assert {(one.cause, one.retryable) for one in failed} == {("authorisation", False)}
    actions = Watchdog().look(failed, (), {"cb"}, time.monotonic())
    assert {(one.action, one.reason) for one in actions} == {("tell", "not-retryable")}
    restart_failed(topology, "mm2.A.B.source.orders")
    wait_for(look, lambda one: one.health == "ok" and one.lag_records == 0)

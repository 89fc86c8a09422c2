"""A connector made by hand against what the tree wants: by what its clients get, not by how that is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.comparison.differences import WorkerClients, another_connector, compare
from mm2mgr.connectors import Connector
from mm2mgr.defaults import Origin
from mm2mgr.render import render
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import Setting, configured_clients
from tests.spec.trees import BASE, expanded

FLOW = """\
flows:
  f: {sources: [a], targets: [b], topics: {include: [app.orders, "logs.*"]}, connector_name: legacy, source_consumer: {max.poll.records: 500}, tasks: {max: 2}}
"""
# As people write it: few keys, the rest is Kafka's.
BY_HAND = {
    "name": "legacy",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "a",
    "target.cluster.alias": "b",
    "source.cluster.bootstrap.servers": " a1:9092",
    "target.cluster.bootstrap.servers": "b1:9092",
    "topics": "logs.*, app\\.orders",
    "tasks.max": "2",
}
WORKERS = WorkerClients("4.3.1", {"bootstrap.servers": "b1:9092"})


@pytest.fixture
def desired(tmp_path: Path) -> Connector:
    topology = expanded(tmp_path, base=BASE, flow=FLOW)
    return next(each for each in render(topology) if each.name == "legacy")


def differing(desired: Connector, **more: str | None) -> tuple[str, ...]:
    live = {key: value for key, value in {**BY_HAND, **more}.items() if value is not None}
    return compare(desired, live, WORKERS)[0]


def test_what_people_write_by_hand_needs_no_write(desired: Connector) -> None:
    differing_keys, pending = compare(desired, BY_HAND, WORKERS)
    assert differing_keys == ()
    assert {"mm2mgr.owner", "mm2mgr.flow", "key.converter", "replication.factor", "connector.class"} <= {*pending}
    assert "tasks.max" not in pending


@pytest.mark.parametrize(
    "more",
    [
        {"emit.heartbeats.enabled": "true"},  # no key of a source connector
        {"sync.topic.configs.enabled": " TRUE"},
        {"replication.policy.separator": "."},
        {"producer.override.bootstrap.servers": "b1:9092"},  # the workers' own Kafka
        {"consumer.max.poll.records": "500"},
        {"source.consumer.max.poll.records": "500 "},
        {"source.cluster.consumer.max.poll.records": "1"},  # reaches no client
        {"topics": "app.orders,logs.*"},  # the backslash comes with the next change
        {"errors.tolerance": "none"},
        {"transforms": ""},
    ],
)
def test_another_spelling_of_the_same_is_no_reason(desired: Connector, more: dict[str, str]) -> None:
    assert differing(desired, **more) == ()


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({"tasks.max": "4"}, ("tasks.max",)),
        ({"tasks.max": None}, ("tasks.max",)),  # Kafka's default is 1, and the tree says 2
        ({"topics": "logs.*"}, ("topics",)),
        ({"source.cluster.bootstrap.servers": "other:9092"}, ("source.cluster.bootstrap.servers",)),
        ({"consumer.max.poll.records": "9"}, ("consumer.max.poll.records", "source.consumer.max.poll.records")),
        ({"source.consumer.max.poll.records": "9"}, ("source.consumer.max.poll.records",)),
        ({"producer.override.bootstrap.servers": "x:1"}, ("producer.override.bootstrap.servers",)),
        ({"producer.override.acks": "1"}, ("producer.override.acks",)),
        ({"sync.topic.acls.enabled": "true"}, ("sync.topic.acls.enabled",)),
        ({"offset.lag.max": "7"}, ("offset.lag.max",)),
        ({"x.of.a.plugin": "1"}, ("x.of.a.plugin",)),
        ({"transforms": "a"}, ("transforms",)),
        ({"key.converter": "org.apache.kafka.connect.storage.StringConverter"}, ("key.converter",)),
        ({"source.cluster.sasl.jaas.config": "x"}, ("source.cluster.sasl.jaas.config",)),
    ],
)
def test_what_differs_in_effect_is_named(desired: Connector, more: dict[str, str], keys: tuple[str, ...]) -> None:
    assert differing(desired, **more) == keys


@pytest.mark.parametrize(
    "more",
    [
        {"connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"},
        {"connector.class": "io.lenses.MirrorSourceConnector"},
        {"source.cluster.alias": "A"},
        {"mm2mgr.journal": "{}"},
    ],
)
def test_another_connector_of_that_name_is_not_adopted(desired: Connector, more: dict[str, str]) -> None:
    assert another_connector(desired, BY_HAND) is None
    assert another_connector(desired, BY_HAND | more)


@pytest.mark.parametrize("spelling", [PLUGIN_CLASS, "AssignedMirrorSourceConnector", " AssignedMirrorSource "])
def test_a_connector_of_the_connect_plugin_is_adopted_and_its_class_differs(desired: Connector, spelling: str) -> None:
    live = BY_HAND | {"connector.class": spelling}
    assert another_connector(desired, live) is None
    assert "connector.class" in compare(desired, live, WORKERS)[0]
    assert "connector.class" not in compare(desired, BY_HAND, WORKERS)[0]


def test_checkpoint_connectors_are_adopted_likewise(tmp_path: Path) -> None:
    flow = FLOW.replace("tasks: {max: 2}", "checkpoints: {connector_name: cp, interval: 30s}")
    wanted = {each.name: each for each in render(expanded(tmp_path, base=BASE, flow=flow))}["cp"]
    live = {key: value for key, value in BY_HAND.items() if key != "tasks.max"}
    live |= {"name": "cp", "connector.class": "MirrorCheckpointConnector", "emit.checkpoints.interval.seconds": "30"}
    assert another_connector(wanted, live) is None
    assert compare(wanted, live, WORKERS)[0] == ()
    asked, _ = compare(wanted, live | {"sync.group.offsets.enabled": "true"}, WORKERS)
    assert asked == ("sync.group.offsets.enabled", "sync.group.offsets.interval.seconds")  # now it counts
    never = {key: value for key, value in live.items() if not key.startswith("emit.")}
    assert compare(wanted, never, WORKERS)[0] == ("emit.checkpoints.interval.seconds",)


KEYS = st.sampled_from(
    [f"{prefix}{key}" for prefix in ("", "source.consumer.", "consumer.", "producer.override.", "source.cluster.", "target.admin.", "admin.")
     for key in ("max.poll.records", "fetch.max.bytes", "linger.ms", "acks", "retry.backoff.ms", "bootstrap.servers", "security.protocol")]
    + ["tasks.max", "topics", "topics.exclude", "refresh.topics.enabled", "offset.lag.max", "sync.topic.acls.enabled", "key.converter", "transforms"]
)  # fmt: skip
VALUES = st.sampled_from(["1", "500", "true", "TRUE", "false", "a,b", "b, a", "all", "-1", "", "PLAINTEXT", "5000"])
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=8)


@given(CONFIGS, CONFIGS, st.sampled_from(["2.7.2", "3.6.2", "3.9.1", "4.3.1", ""]))
def test_nothing_that_a_client_gets_changes_unless_it_is_named(
    live: dict[str, str], wanted: dict[str, str], version: str
) -> None:
    """With every value of the tree declared by people, what is neither differing nor pending is the same for every client."""
    head = {key: BY_HAND[key] for key in ("name", "connector.class", "source.cluster.alias", "target.cluster.alias")}
    spec = Origin("spec", "x.yaml:1")
    config = head | wanted
    desired = Connector("legacy", "source", "w", "a->b", ("f:a->b",), config, dict.fromkeys(config, spec))
    differing_keys, pending = compare(desired, head | live, WorkerClients(version))
    named = {*differing_keys, *pending}
    assert named == {key for key in live.keys() | wanted.keys() if live.get(key) != wanted.get(key)}
    if differing_keys:
        return
    versions = [version] if version else []
    before, after = (
        configured_clients("source", each, Setting.from_config(each, *versions))
        for each in (head | live, head | wanted)
    )
    for name, client in before.items():
        for plain in {*client.written, *after[name].written}:
            one, other = (each[name].value(plain, load()) for each in (before, after))
            spelled = [each.value.lower().replace(" ", "") if each else None for each in (one, other)]
            assert spelled[0] == spelled[1] or {*spelled} == {"a,b", "b,a"}, (name, plain)

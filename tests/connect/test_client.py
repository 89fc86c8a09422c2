from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import AlreadyExists, ConnectError, Invalid, NotFound, Unsupported, WrongBody
from mm2mgr.connect.types import SourceOffset, WorkerInfo
from mm2mgr.connectors import RunningConnector
from tests.fake_connect import CLASSES, FakeConnect

Ask = Callable[..., Any]
FLOW = {"connector.class": "MirrorSourceConnector", "topics": "orders,paid", "tasks.max": "9"}
NAME = "dc1->agg.east lane ?1#ü"


def test_the_cluster(fake: FakeConnect, ask: Ask) -> None:
    fake.add(NAME, FLOW)
    fake.add("b", FLOW, hidden_reads=3)
    assert ask(lambda c: c.root()) == WorkerInfo("4.3.1", "fake", "fake-kafka-cluster-id")
    assert ask(lambda c: c.connectors()) == (NAME, "b")
    assert ask(lambda c: c.infos())["b"] == RunningConnector("b", {"name": "b", **FLOW}, (0, 1), "source")
    assert list(ask(lambda c: c.statuses())) == [NAME]
    plugins = ask(lambda c: c.plugins())
    assert [plugin.class_name for plugin in plugins if plugin.type == "source"] == sorted(CLASSES)
    assert {plugin.type for plugin in plugins} >= {"transformation", "predicate", "converter", "header_converter"}


def test_one_connector_from_create_to_delete(fake: FakeConnect, ask: Ask) -> None:
    async def life(c: ConnectClient) -> None:
        assert (await c.create(NAME, FLOW, initial_state="STOPPED")).name == NAME
        assert (await c.status(NAME)).state == "STOPPED"
        assert await c.tasks(NAME) == ()
        await c.patch_offsets(
            NAME, [SourceOffset({"cluster": "dc1", "topic": "orders", "partition": 0}, {"offset": 41})]
        )
        assert (await c.offsets(NAME))[0].offset == {"offset": 41}
        await c.patch_offsets(NAME, [SourceOffset(entry.partition, None) for entry in await c.offsets(NAME)])
        assert [entry for entry in await c.offsets(NAME) if entry.offset is not None] == []
        await c.resume(NAME)
        assert {task.state for task in (await c.status(NAME)).tasks} == {"RUNNING"}
        await c.pause(NAME)
        assert {task.state for task in (await c.status(NAME)).tasks} == {"PAUSED"}
        assert (await c.put_config(NAME, FLOW | {"tasks.max": "1"})).config["tasks.max"] == "1"
        assert (await c.tasks(NAME))[0].config["task.assigned.partitions"] == "orders-0,paid-0"
        assert (await c.info(NAME)).config == await c.config(NAME) == {"name": NAME, **FLOW, "tasks.max": "1"}
        fake.connectors[NAME].topics.append("dc1.orders")
        assert await c.topics(NAME) == ("dc1.orders",)
        await c.stop(NAME)
        await c.delete(NAME)
        assert await c.connectors() == ()

    ask(life)


def test_restart_says_what_it_restarts(fake: FakeConnect, ask: Ask) -> None:
    fake.add("a", FLOW, failed_tasks={1: "boom"})
    plan = ask(lambda c: c.restart("a", include_tasks=True, only_failed=True))
    assert [(task.id, task.state) for task in plan.tasks] == [(0, "RUNNING"), (1, "RESTARTING")]
    assert fake.requests[-1].query == "includeTasks=true&onlyFailed=true"
    assert ask(lambda c: c.restart("a")) is None
    assert fake.requests[-1].query == ""


@pytest.mark.parametrize(
    ("action", "kind", "says"),
    [
        (lambda c: c.config("x"), NotFound, "Connector x not found"),
        (lambda c: c.status("x"), NotFound, "No status found"),
        (lambda c: c.pause("x"), NotFound, "Unknown connector x"),
        (lambda c: c.delete("x"), NotFound, "not found"),
        (lambda c: c.create("a", FLOW), AlreadyExists, "already exists"),
        (lambda c: c.put_config("a", FLOW | {"name": "b"}), Invalid, "doesn't match"),
        (lambda c: c.put_config("a", {"connector.class": "Nope"}), Invalid, "Failed to find any class"),
        (lambda c: c.patch_offsets("a", [SourceOffset({"topic": "t"}, None)]), Invalid, "STOPPED state"),
        (lambda c: c.patch_offsets("a", []), Invalid, "need to be provided"),
    ],
)
def test_a_refusal_is_final_and_costs_one_request(
    fake: FakeConnect, ask: Ask, action: Any, kind: type[ConnectError], says: str
) -> None:
    fake.add("a", FLOW)
    with pytest.raises(kind, match=says) as caught:
        ask(action)
    assert type(caught.value) is kind
    assert caught.value.cluster == "east"
    assert len(fake.requests) == 1


def test_a_refused_config_does_not_give_its_secrets_away(fake: FakeConnect, ask: Ask) -> None:
    secret = {"sasl.jaas.config": 'x required password="hunter2";', "ssl.key.password": "pa55"}
    with pytest.raises(Invalid) as caught:
        ask(lambda c: c.put_config("a", secret))
    assert "contains no connector type" in str(caught.value)
    text = f"{caught.value!r} {caught.value.lines} {caught.value.hint}"
    assert "hunter2" not in text
    assert "pa55" not in text


@pytest.mark.parametrize("name", ["a/b", "a\\b", "50%", "..", ".", "", " a", "a\n"])
def test_a_name_that_could_never_be_removed_is_not_created(fake: FakeConnect, ask: Ask, name: str) -> None:
    for action in (lambda c: c.create(name, FLOW), lambda c: c.put_config(name, FLOW)):
        with pytest.raises(Invalid, match="cannot be addressed"):
            ask(action)
    assert fake.requests == []


def test_an_existing_connector_that_cannot_be_addressed(fake: FakeConnect, ask: Ask) -> None:
    fake.add("a/b", FLOW)
    with pytest.raises(Invalid) as caught:
        ask(lambda c: c.delete("a/b"))
    assert "name" in str(caught.value.hint)


def test_validate_tells_the_policy(ask: Ask) -> None:
    probe = {
        "name": "a",
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "dc1",
        "offsets.storage.topic": "x",
        "producer.override.sasl.mechanism": "PLAIN",
        "consumer.override.client.id": "x",
    }
    assert ask(lambda c: c.validate("MirrorSourceConnector", probe)).errors == {}


def test_validate_names_the_refused_keys(fake: FakeConnect, ask: Ask) -> None:
    fake.policy = "None"
    probe = (
        FLOW
        | {"name": "a", "source.cluster.alias": "dc1"}
        | {"producer.override.acks": "all", "consumer.override.client.id": "not checked"}
    )
    refused = ask(lambda c: c.validate("MirrorSourceConnector", probe)).errors
    assert list(refused) == ["producer.override.acks"]
    assert "The 'None' policy does not allow 'acks'" in refused["producer.override.acks"][0]
    with pytest.raises(Invalid) as caught:
        ask(lambda c: c.put_config("a", probe))
    assert caught.value.lines == refused["producer.override.acks"]


def test_validate_masks_what_it_was_sent(fake: FakeConnect, ask: Ask) -> None:
    value = {"name": "x.password", "errors": ["Invalid value hunter2 for x.password"]}
    fake.fail_next("PUT", "/connector-plugins", 200, {"name": "c", "error_count": 1, "configs": [{"value": value}]})
    found = ask(lambda c: c.validate("c", {"x.password": "hunter2"}))
    assert found.errors == {"x.password": ("Invalid value [hidden] for x.password",)}


@pytest.mark.parametrize("version", ["3.4.1", "3.5.2", "3.6.2", "3.9.1"])
def test_what_an_older_worker_lacks(fake: FakeConnect, ask: Ask, version: str) -> None:
    fake.version = version
    fake.add("a", FLOW, state="STOPPED")
    gated = {
        (3, 5): lambda c: c.stop("a"),
        (3, 6): lambda c: c.patch_offsets(
            "a", [SourceOffset({"cluster": "dc1", "topic": "orders", "partition": 0}, None)]
        ),
        (3, 7): lambda c: c.create("b", FLOW, initial_state="STOPPED"),
    }
    for needs, action in gated.items():
        if tuple(int(part) for part in version.split(".")[:2]) >= needs:
            ask(action)
        else:
            with pytest.raises(Unsupported):
                ask(action)


@pytest.mark.parametrize("body", [b"", b"<html>Sign in</html>", b'{"name": "a", "conf', b"[]", b'{"name": 1}'])
def test_a_foreign_body_is_named(fake: FakeConnect, ask: Ask, body: bytes) -> None:
    fake.fail_next("GET", "/connectors/a", 200, body)
    with pytest.raises(WrongBody, match="Connect cluster 'east', connector 'a'"):
        ask(lambda c: c.info("a"))


def test_three_thousand_connectors_are_one_request(fake: FakeConnect, ask: Ask) -> None:
    for number in range(3000):
        fake.add(f"flow.{number}", FLOW)

    async def read(c: ConnectClient) -> tuple[int, int, int]:
        return len(await c.infos()), len(await c.statuses()), len(await c.infos_with_states())

    assert ask(read) == (3000, 3000, 3000)
    assert len(fake.requests) == 3

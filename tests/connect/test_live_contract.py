"""The fake tells the truth: the same requests get the same answers from a real worker and from FakeConnect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, NotFound
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import SourceOffset
from mm2mgr.connectors import Connector
from mm2mgr.lint.workers import probe
from mm2mgr.plan.facts import refusals
from tests.asking import from_client
from tests.examples import draw_examples
from tests.fake_connect import INSTALLED, FakeConnect
from tests.render.test_lists import rendered, with_doubles
from tests.render.test_order import Tree, trees

NAME = "dc1->agg east.1"
DEADLINE_SECONDS = 180.0
PARTITION = {"cluster": "dc1", "topic": "orders", "partition": 0}
PROBE = {
    **{"connector.class": "MirrorSourceConnector", "exactly.once.support": "required"},
    **{"producer.override.acks": "7", "producer.override.partitioner.class": "java.lang.Object"},
}
COMMITTED = {"source.consumer.isolation.level": "read_committed", "name": "v"}
LISTS = {"connector.class": "MirrorSourceConnector", "topics": "a,,b", "topics.exclude": "a,b,a", "groups": "a,a"}
OWN_TOPIC = {"offsets.storage.topic": "own-offsets", "mm2mgr.journal": ""}
STEPS: tuple[tuple[str, Callable[[ConnectClient, dict[str, str]], Awaitable[Any]]], ...] = (
    ("status of nobody", lambda c, _: c.status("x")),
    ("config of nobody", lambda c, _: c.config("x")),
    ("pause nobody", lambda c, _: c.pause("x")),
    ("delete nobody", lambda c, _: c.delete("x")),
    ("offsets of nobody", lambda c, _: c.offsets("x")),
    ("restart nobody", lambda c, _: c.restart("x")),
    ("topics of nobody", lambda c, _: c.topics("x")),
    ("put without class", lambda c, _: c.put_config("x", {"a.password": "hunter2"})),
    ("put unknown class", lambda c, _: c.put_config("x", {"connector.class": "Nope"})),
    ("put another name", lambda c, flow: c.put_config("x", flow | {"name": "y"})),
    ("create stopped", lambda c, flow: c.create(NAME, flow, initial_state="STOPPED")),
    ("create again", lambda c, flow: c.create(NAME, flow)),
    ("status STOPPED", lambda c, _: shown(c, "STOPPED", 0)),
    ("config", lambda c, _: c.config(NAME)),
    ("no tasks", lambda c, _: c.tasks(NAME)),
    ("no offsets", lambda c, _: c.offsets(NAME)),
    ("alter nothing", lambda c, _: c.patch_offsets(NAME, [])),
    ("alter badly", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, {"offset": -1})])),
    ("alter", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, {"offset": 41})])),
    ("offsets", lambda c, _: present(c)),
    ("remove one", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, None)])),
    ("offsets after removal", lambda c, _: kept(c)),
    ("alter before a topic of its own", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, {"offset": 7})])),
    ("put a topic of its own", lambda c, flow: c.put_config(NAME, flow | OWN_TOPIC)),
    ("offsets of its empty topic", lambda c, _: kept(c)),
    ("alter in it", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, {"offset": 8})])),
    ("offsets of its topic", lambda c, _: kept(c)),
    ("put the workers' topic back", lambda c, flow: c.put_config(NAME, flow)),
    ("offsets of both", lambda c, _: kept(c)),
    ("remove all", lambda c, _: removed(c)),
    ("resume", lambda c, _: c.resume(NAME)),
    ("status RUNNING", lambda c, _: shown(c, "RUNNING", 2)),
    ("task configs", lambda c, _: c.tasks(NAME)),
    ("alter while running", lambda c, _: c.patch_offsets(NAME, [SourceOffset(PARTITION, None)])),
    ("all infos", lambda c, _: c.infos()),
    ("pause", lambda c, _: c.pause(NAME)),
    ("status PAUSED", lambda c, _: shown(c, "PAUSED", 2)),
    ("update", lambda c, flow: c.put_config(NAME, flow | {"tasks.max": "1"})),
    ("stop", lambda c, _: c.stop(NAME)),
    ("stopped again", lambda c, _: shown(c, "STOPPED", 0)),
    ("delete", lambda c, _: c.delete(NAME)),
    ("plugins", lambda c, _: c.plugins()),
    ("validate", lambda c, _: judged(c, PROBE)),
    ("validate committed", lambda c, _: judged(c, PROBE | COMMITTED)),
    ("validate no number", lambda c, _: judged(c, PROBE | {"producer.override.linger.ms": "soon"})),
    ("validate lists", lambda c, _: judged(c, COMMITTED | LISTS)),
    (
        "validate missing plugins",
        lambda c, _: judged(c, PROBE | COMMITTED | {"transforms": "a,b", "transforms.a.type": "x.Y"}),
    ),
    ("validate unknown class", lambda c, _: c.validate("x.Y", {"connector.class": "x.Y"})),
    ("put doubles", lambda c, flow: c.put_config(NAME, flow | {"topics.exclude": "a,b,a"})),
    (
        "put a missing plugin",
        lambda c, flow: c.put_config(NAME, flow | {"transforms": "a", "transforms.a.type": "x.Y"}),
    ),
    ("put for exactly once", lambda c, flow: c.put_config(NAME, flow | PROBE | COMMITTED | {"name": NAME})),
    (
        "probe",
        lambda c, _: from_client(
            c, probe("c", {"admin.override.client.id": "x", "producer.override.sasl.jaas.config": "x"})
        ),
    ),
    ("names", lambda c, _: c.connectors()),
)


async def kept(connect: ConnectClient) -> list[SourceOffset]:
    """Return the offsets that are there; a removed one may or may not still be listed, as null (both seen on a worker)."""
    return [one for one in await connect.offsets(NAME) if one.offset is not None]


async def removed(connect: ConnectClient) -> None:
    await connect.patch_offsets(NAME, [SourceOffset(entry.partition, None) for entry in await kept(connect)])


async def present(connect: ConnectClient) -> tuple[SourceOffset, ...]:
    """Wait until offsets are listed, and return them; a busy worker was seen to list none at once after it took them."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            if found := await connect.offsets(NAME):
                return found
            await asyncio.sleep(0.1)


async def judged(connect: ConnectClient, config: dict[str, str]) -> tuple[object, ...]:
    """Return the errors of a validation, and which of the telling keys it judged."""
    found = await connect.validate("MirrorSourceConnector", config)
    telling = {"exactly.once.support", "producer.override.acks", "name", "no.such.key"}
    return found.name, found.error_count, found.errors, sorted(found.keys & telling)


async def shown(connect: ConnectClient, state: str, tasks: int) -> tuple[str, list[str]]:
    """Wait until the status shows a state with so many tasks in it, and return it without worker addresses."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                status = await connect.status(NAME)
                states = [task.state for task in status.tasks]
                if status.state == state and states == [state] * tasks:
                    return status.state, states
            except NotFound:
                pass  # a new connector has no status for a moment
            await asyncio.sleep(0.1)


async def observed(connect: ConnectClient, flow: dict[str, str]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for step, action in STEPS:
        try:
            seen[step] = await action(connect, flow)
        except ConnectError as error:
            seen[step] = f"{type(error).__name__}: {error.message}"
    return seen


def refused_of_drawn_trees(url: str, folder: Path) -> dict[str, object]:
    """Return why the worker would refuse connectors that random trees render, by name."""
    found: dict[str, object] = {}

    async def validate(connectors: tuple[Connector, ...]) -> None:
        async with ConnectClient(ConnectTarget("east", (url,))) as connect:
            for connector in connectors:
                if reasons := await from_client(connect, refusals("c", {"name": connector.name, **connector.config})):
                    found[connector.name] = reasons

    @draw_examples(5)
    @given(tree=trees(), seed=st.integers(0, 2**32))
    def validated(tree: Tree, seed: int) -> None:
        asyncio.run(validate(rendered(folder, with_doubles(tree, random.Random(seed)))))

    folder.mkdir()
    validated()
    return found


@pytest.mark.live
def test_the_fake_answers_as_a_real_worker(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from mm2mgr.sandbox.kafka_servers import Broker, Worker

    async def both(url: str, flow: dict[str, str]) -> tuple[dict[str, object], dict[str, object]]:
        fake = FakeConnect(source_topics={"orders": 2})
        fake.other_plugins = [plugin for plugin in fake.other_plugins if plugin not in INSTALLED]
        async with ConnectClient(ConnectTarget("east", (url,))) as real:
            of_real = await observed(real, flow)
        async with ConnectClient(ConnectTarget("east", ("http://fake",)), transport=fake.transport()) as faked:
            return of_real, await observed(faked, flow)

    with Broker("agg", tmp_path / "agg") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        flow = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "topics": "orders",
            "tasks.max": "9",
            "source.cluster.alias": "dc1",
            "target.cluster.alias": "agg",
            "source.cluster.bootstrap.servers": broker.bootstrap_servers,
            "target.cluster.bootstrap.servers": broker.bootstrap_servers,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
        }
        with Worker("east", tmp_path / "east", broker.bootstrap_servers) as worker:
            real, fake = asyncio.run(both(worker.url, flow))
            refused = refused_of_drawn_trees(worker.url, tmp_path / "trees")
    assert "hunter2" not in str(real.values())
    assert fake == real
    assert refused == {}

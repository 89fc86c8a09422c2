"""On real brokers and a real worker: topics created again, records that retention took, and a connector left paused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.endpoints import connect_target, kafka_access
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer
from mm2mgr.observe.health import Status
from mm2mgr.observe.memory import RecordLoss
from mm2mgr.observe.status import ObserveOptions, acknowledge, status
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.apply import apply_plan
from mm2mgr.reconcile.live import make_plan
from mm2mgr.render import Connector, render
from mm2mgr.sandbox.broker import Broker
from mm2mgr.sandbox.server import kafka_runtime
from mm2mgr.sandbox.worker import Worker
from mm2mgr.topology import Topology
from tests.live.conftest import serving
from tests.live.seen import admin, delete, topics, until
from tests.observe.estate import sentences, topology_of

pytestmark = pytest.mark.live

TREE = """
owner: losses
defaults:
  clusters: {{replication_factor: 1}}
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  stopped: {{sources: [A], targets: [B], topics: {{include: [stopped]}}, heartbeats: false, checkpoints: false}}
  running: {{sources: [A], targets: [B], topics: {{include: [running]}}, heartbeats: false, checkpoints: false}}
  aged: {{sources: [A], targets: [B], topics: {{include: [aged]}}, heartbeats: false, checkpoints: false}}
  rest: {{sources: [A], targets: [B], topics: {{include: [rest]}}, heartbeats: false, checkpoints: false}}
"""
NAMES = ("stopped", "running", "aged", "rest")


@dataclass
class World:
    """Two brokers and a worker with everything applied, 500 records of each topic mirrored and their offsets stored."""

    text: str
    topology: Topology
    connectors: tuple[Connector, ...]
    options: ObserveOptions

    def status(self, name: str) -> Status:
        only = [f"{name}:A->B"]
        return asyncio.run(status(self.topology, self.connectors, only=only, options=self.options))

    def produce(self, topic: str, records: int) -> None:
        with Producer(kafka_access(self.topology.clusters["A"])) as producer:
            for number in range(records):
                producer.send((topic, 0), f"record {number}".encode())
            producer.flush()

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again, unless a client that asks for it was faster."""
        access = kafka_access(self.topology.clusters["A"])
        before = self.topic_id(topic)
        delete(access, [topic])
        until(lambda: topic not in topics(access) or self.topic_id(topic) != before, bool, f"{topic} is deleted")
        with Kafka(access) as kafka:
            kafka.create_topics({topic: (1, 1, {})})

    def topic_id(self, topic: str) -> str | None:
        with Kafka(kafka_access(self.topology.clusters["A"])) as kafka:
            info = kafka.topics().get(topic)
        return info.topic_id if info else None

    def set_state(self, name: str, verb: str, state: str) -> None:
        connector = f"mm2.A.B.source.{name}"

        async def ask() -> None:
            async with ConnectClient(connect_target(self.topology.connects["cb"])) as client:
                await getattr(client, verb)(connector)

        asyncio.run(ask())
        self.wait(name, lambda found: found.flows[0].state == state)

    def wait(self, name: str, wanted: Callable[[Status], bool], deadline_seconds: float = 90.0) -> Status:
        """Look until it is as wanted; fail with the last status."""
        end = time.monotonic() + deadline_seconds
        while not wanted(found := self.status(name)):
            assert time.monotonic() < end, found.to_dict()
            time.sleep(0.5)
        return found

    def ack(self, loss: RecordLoss) -> None:
        acknowledge(self.topology, [loss.id], options=self.options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("losses")
    runtime = kafka_runtime()
    a, b = (Broker(name, directory / name, runtime=runtime) for name in ("A", "B"))
    with serving([a, b]):
        worker = Worker("cb", directory / "cb", b.bootstrap_servers, runtime=runtime)
        with serving([worker]):
            text = TREE.format(a=a.bootstrap_servers, b=b.bootstrap_servers, url=worker.url)
            topology = topology_of(text, directory)
            with Kafka(kafka_access(topology.clusters["A"])) as kafka:
                kafka.create_topics({name: (1, 1, {}) for name in NAMES})
            made = World(text, topology, render(topology), ObserveOptions(memory_file=directory / "state.json"))
            for name in NAMES:
                made.produce(name, 500)
            plan = asyncio.run(make_plan(topology, made.connectors))
            assert {result.error for result in asyncio.run(apply_plan(topology, plan))} == {None}
            for name in NAMES:
                made.wait(name, lambda found: found.flows[0].lag_records == 0 and found.health == "ok")
            yield made


def stays_until_acknowledged(world: World, name: str) -> RecordLoss:
    """Look twice more, acknowledge, and look again."""
    (loss,) = world.wait(name, lambda found: bool(found.losses)).losses
    for _ in range(2):
        assert [one.id for one in world.status(name).losses] == [loss.id]
    world.ack(loss)
    assert world.status(name).losses == ()
    return loss


def test_a_topic_created_again_behind_a_stopped_connector_that_outgrew_its_offset(world: World) -> None:
    world.set_state("stopped", "stop", "STOPPED")
    world.recreate("stopped")
    world.produce("stopped", 2000)
    loss = stays_until_acknowledged(world, "stopped")
    assert (loss.kind, loss.records) == ("re-created", 500)
    world.set_state("stopped", "resume", "RUNNING")
    found = world.wait("stopped", lambda found: found.flows[0].lag_records == 0)
    assert found.losses == ()
    with Kafka(kafka_access(world.topology.clusters["B"])) as kafka:
        (ends,) = kafka.offsets([TopicPartition("A.stopped", 0)]).values()
    assert ends.end == 500 + 1500, "the first 500 records of the new topic never arrived"


def test_a_topic_created_again_under_a_running_connector(world: World) -> None:
    world.recreate("running")
    world.produce("running", 2000)
    assert stays_until_acknowledged(world, "running").kind == "re-created"
    found = world.wait("running", lambda found: found.flows[0].lag_records == 0)
    assert found.losses == ()


def test_records_that_left_the_log_before_they_were_mirrored(world: World) -> None:
    world.set_state("aged", "stop", "STOPPED")
    world.produce("aged", 1000)
    client = admin(kafka_access(world.topology.clusters["A"]))
    for future in client.delete_records([confluent_kafka.TopicPartition("aged", 0, 800)]).values():
        future.result(30)
    (loss,) = world.wait("aged", lambda found: bool(found.losses)).losses
    assert (loss.kind, loss.records) == ("retention", 300)
    world.set_state("aged", "resume", "RUNNING")
    healthy = world.wait("aged", lambda found: found.flows[0].lag_records == 0)
    assert [one.id for one in healthy.losses] == [loss.id], "the flow is well again, the records are lost"
    assert healthy.health == "problem"
    assert stays_until_acknowledged(world, "aged").id == loss.id
    assert world.status("aged").health == "ok"


def test_a_paused_connector_whose_lag_grows_is_a_problem_unless_the_tree_says_so(world: World, tmp_path: Path) -> None:
    world.set_state("rest", "pause", "PAUSED")
    assert world.status("rest").health == "waiting"
    world.produce("rest", 40)
    (sentence,) = sentences(world.status("rest").flows[0])
    assert sentence.startswith("PAUSED while its lag grows: ")
    wanted = topology_of(world.text.replace("include: [rest]}", "include: [rest]}, state: paused"), tmp_path)
    only = ["rest:A->B"]
    found = asyncio.run(status(wanted, world.connectors, only=only, options=world.options))
    assert (found.flows[0].problems, found.health) == ((), "waiting")
    world.set_state("rest", "resume", "RUNNING")
    (sentence,) = sentences(asyncio.run(status(wanted, world.connectors, only=only, options=world.options)).flows[0])
    assert sentence == "the tree declares state: paused, but the connector is RUNNING; run mm2mgr plan"
